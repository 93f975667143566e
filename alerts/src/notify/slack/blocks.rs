//! A message as Slack's blocks.

use super::Slack;
use crate::message::{Message, Status};
use crate::notify::words::{self, Part, shortened};
use crate::notify::{ACKNOWLEDGE, subject};
use crate::outbox::Row;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use takt_model::{Labels, Timestamp};

/// Slack's documented limit of a header's text, in characters.
const HEADER_MAX: usize = 150;

/// Slack allows 3,000 characters in a section; escaping may turn one character into five.
const SECTION_MAX: usize = 2_900;

/// Characters of one fact. A section of up to four facts and the kernel's lines stays within its
/// limit.
const FACT_MAX: usize = 400;

/// Characters of the kernel's lines.
const LINES_MAX: usize = 700;

/// Slack refuses messages whose blocks have more than about 13,200 characters. The limit is not
/// documented.
const BLOCKS_MAX: usize = 12_000;

impl Slack {
    /// A title, a section for each alert (or the configured text), and a link.
    pub(super) fn blocks(&self, row: &Row) -> Vec<Value> {
        let message = &row.message;
        let plain = without_markup(message);

        // Each template's text stays within Slack's limit of a section.
        let said = |name| {
            self.wording
                .text_about(name, &plain, row.created_at)
                .map(|text| shortened(&text, SECTION_MAX))
        };
        let mut blocks: Vec<Value> = said("pretext")
            .map(|text| section(&text))
            .into_iter()
            .collect();

        // A header is plain text, so a title with a link or with markup becomes a section.
        let mut header = String::new();
        blocks.push(match (said("title"), said("title_link")) {
            (Some(title), Some(link)) => section(&format!(
                // These characters would end the link within the title.
                "*<{link}|{}>*",
                title.replace(['<', '>', '|'], " ")
            )),
            (Some(title), None) => section(&format!("*{title}*")),
            (None, _) => {
                header = escaped(&subject(message), HEADER_MAX - 2);
                json!({
                    "type": "header",
                    "text": {"type": "plain_text", "text": header, "emoji": false},
                })
            }
        });

        let shown = match said("text") {
            Some(text) => {
                blocks.push(section(&text));
                message.alerts.len()
            }
            None => sections(message, &header, &mut blocks),
        };

        let more = message.alerts.len() - shown;
        let rest = if more > 0 {
            format!("+{more} more · ")
        } else {
            String::new()
        };
        let footer = said("footer")
            .map(|text| format!("{} · ", shortened(&text, 300)))
            .unwrap_or_default();
        // A button of Slack would report each click to the bot's server; a link is only opened.
        let acknowledge = message
            .acknowledge_url
            .as_ref()
            .map_or_else(String::new, |url| format!("<{url}|{ACKNOWLEDGE}> · "));
        let link = format!("{rest}{footer}{acknowledge}<{}|Takt>", words::link(message));
        blocks.push(json!({
            "type": "context",
            "elements": [{"type": "mrkdwn", "text": link}],
        }));
        blocks
    }
}

fn section(text: &str) -> Value {
    json!({
        "type": "section",
        "text": {"type": "mrkdwn", "text": text},
    })
}

/// Adds a section for each part, as many as fit. Returns the number of alerts in them.
fn sections(message: &Message, header: &str, blocks: &mut Vec<Value>) -> usize {
    let mut size = HEADER_MAX;
    let mut shown = 0;
    let zone = message.zone();

    for part in words::parts(message) {
        let text = part_text(&part, header, &zone);
        size += text.len();
        // Slack refuses more than 50 blocks, and a message that is refused reaches no one.
        if size > BLOCKS_MAX || blocks.len() > 45 {
            break;
        }
        // Alerts that do not fit are counted, so that the footer can say how many they are.
        shown += part.alerts;
        blocks.push(section(&text));
    }
    shown
}

/// The text of a section: name, the summary if the header has not said it, severity and time, facts, and the kernel's lines.
/// Slack shows times in the reader's time zone.
fn part_text(part: &Part, header: &str, zone: &TimeZone) -> String {
    let dot = match (part.status, part.severity.as_str()) {
        (Status::Resolved, _) => ":white_check_mark:",
        (Status::Firing, "critical") => ":red_circle:",
        (Status::Firing, "warning") => ":large_orange_circle:",
        (Status::Firing, _) => ":large_blue_circle:",
    };

    // Slack shows the reader's own time; the text after the bar is for programs that cannot.
    let local = |at: Timestamp| {
        format!(
            "<!date^{}^{{date_short_pretty}} {{time_secs}}|{}>",
            at.whole_seconds(),
            words::instant(at, zone)
        )
    };

    let name = escaped(&part.name, 100);
    let mut summary = escaped(&part.summary, FACT_MAX);
    // The header has said it: a summary is not repeated.
    if header.contains(&summary) {
        summary.clear();
    } else {
        summary.insert_str(0, ": ");
    }

    let severity = Part {
        severity: escaped(&part.severity, 50),
        ..part.clone()
    };
    let mut text = format!(
        "{dot} *{name}*{summary}\n{}",
        words::when(&severity, &local)
    );
    for (name, fact) in &part.facts {
        text += &format!("\n*{name}:* {}", escaped(fact, FACT_MAX));
    }
    if !part.lines.is_empty() {
        // Three backticks in a kernel's line would end the block of code.
        text += &format!(
            "\n```{}```",
            escaped(&part.lines.replace("```", "~~~"), LINES_MAX)
        );
    }
    text
}

/// The message for configured templates. Labels come from users of the cluster: they are text, also
/// where a rule has put their values into annotations. Rules may have written links into
/// annotations; mentions of people, groups and channels are text.
pub(super) fn without_markup(message: &Message) -> Message {
    let labels = |labels: &Labels| -> Labels {
        labels
            .iter()
            .map(|(name, value)| (name, escaped(value, usize::MAX)))
            .collect()
    };

    let mut message = message.clone();
    // Only these can be markup once a rule has copied them into a text.
    let mut suspects: Vec<String> = message
        .alerts
        .iter()
        .flat_map(|alert| alert.labels.iter())
        .filter(|(_, value)| value.contains('<'))
        .map(|(_, value)| value.to_owned())
        .collect();
    // A value may be a part of another one.
    suspects.sort_by_key(|value| Reverse(value.len()));
    suspects.dedup();

    message.group_labels = labels(&message.group_labels);
    message.common_labels = labels(&message.common_labels);

    let mut annotations = vec![&mut message.common_annotations];
    for alert in &mut message.alerts {
        alert.labels = labels(&alert.labels);
        annotations.push(&mut alert.annotations);
    }
    for text in annotations.into_iter().flat_map(BTreeMap::values_mut) {
        for value in &suspects {
            *text = text.replace(value, &escaped(value, usize::MAX));
        }
        for mention in ['!', '@', '#'] {
            *text = text.replace(&format!("<{mention}"), &format!("&lt;{mention}"));
        }
    }
    message
}

/// The text with Slack's three special characters replaced, cut after `most` characters and never
/// within a replacement.
pub(super) fn escaped(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut left = most;
    for c in text.chars() {
        let replaced = match c {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            _ => "",
        };
        let size = replaced.len().max(1);
        if size > left {
            return out + " …";
        }
        left -= size;
        match replaced {
            "" => out.push(c),
            _ => out.push_str(replaced),
        }
    }
    out
}
