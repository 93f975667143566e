//! The default text of a message: for every notifier, and where a template fails.

use crate::alert::{alert_name, given_name};
use crate::duration;
use crate::message::{Message, MessageAlert, Status};
use crate::routing::dedup::Reason;
use jiff::tz::TimeZone;
use std::collections::BTreeMap;
use std::ptr;
use takt_model::Timestamp;
use takt_model::shown::{printable, printable_lines};

/// Parts in a text; the alerts of further parts are only counted.
pub(super) const PARTS_MAX: usize = 20;

/// Alerts of one name that get a part each; more of them share one part.
const ALIKE_MAX: usize = 4;

/// Characters of one annotation in a text.
const WORDS_MAX: usize = 1_000;

/// Characters of the sentence in a subject.
const SENTENCE_MAX: usize = 150;

/// Places in a folded list.
const PLACES_MAX: usize = 30;

/// First words of a correction.
const CORRECTION: &str = "the last message said something else to do, which is no longer right";

/// Severities, the worst first.
const WORST_FIRST: [&str; 3] = ["critical", "warning", "info"];

/// Place of a severity among all, the worst first; others are last.
pub fn severity_rank(severity: &str) -> usize {
    WORST_FIRST
        .iter()
        .position(|known| *known == severity)
        .unwrap_or(WORST_FIRST.len())
}

/// A part of a message: one alert, or many of one name.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// State of the alerts.
    pub status: Status,
    /// Severity; empty if the alerts have none.
    pub severity: String,
    /// Name of the alert, with the number of alerts if they are several.
    pub name: String,
    /// The summary: fault and place.
    pub summary: String,
    /// Start of the first alert.
    pub since: Timestamp,
    /// End of the last alert; `None` while one fires.
    pub until: Option<Timestamp>,
    /// Further facts with their names: place, job, action, values of the last hour.
    pub facts: Vec<(&'static str, String)>,
    /// Lines of the kernel log; may be empty.
    pub lines: String,
    /// Number of alerts in this part.
    pub alerts: usize,
}

/// The subject line: the state, the worst fault as a sentence, and where the others are:
/// `[FIRING 3] g01 does not answer, and 2 more on g02 g03`.
pub fn subject(message: &Message) -> String {
    // A message that is firing is named after what fires, not after what has ended.
    let mut alerts: Vec<&MessageAlert> = message
        .alerts
        .iter()
        .filter(|alert| alert.status == Status::Firing)
        .collect();
    let state = match message.reason {
        Reason::StillFiring => "STILL FIRING",
        Reason::Corrected => "CORRECTION",
        _ if alerts.is_empty() => "RESOLVED",
        _ => "FIRING",
    };

    if alerts.is_empty() {
        alerts.extend(&message.alerts);
    }
    let count = match alerts.len() {
        0 | 1 => String::new(),
        several => format!(" {several}"),
    };

    alerts.sort_by_key(|alert| severity_rank(alert.labels.get("severity").unwrap_or_default()));
    let sentence = alerts.first().map(|worst| sentence(worst));

    let others = alerts.get(1..).unwrap_or_default();
    let places = folded(others.iter().filter_map(|alert| alert.labels.get("node")));
    let rest = match (others.len(), some(&places)) {
        (0, _) => String::new(),
        (more, places) if places.is_empty() => format!(", and {more} more"),
        (more, places) => format!(", and {more} more on {places}"),
    };

    // A title is one line, whatever labels hold.
    let title = format!("[{state}{count}] {}{rest}", sentence.unwrap_or_default());
    printable(&title.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The summary, or else the alert's name and node.
fn sentence(alert: &MessageAlert) -> String {
    let summary = alert.annotations.get("summary");
    let of_labels = || match (given_name(&alert.labels), alert.labels.get("node")) {
        (Some(name), Some(node)) => format!("{name} {node}"),
        // The labels of an alert without a name are all there, its node among them.
        _ => alert_name(&alert.labels).into_owned(),
    };
    shortened(&summary.cloned().unwrap_or_else(of_labels), SENTENCE_MAX)
}

/// URL of the page of firing alerts, at the alert if the message has one.
pub fn link(message: &Message) -> String {
    match message.alerts.as_slice() {
        [alert] => format!("{}/alerts#{}", message.external_url, alert.fingerprint),
        _ => format!("{}/alerts", message.external_url),
    }
}

/// The parts of a message, in its order: one for each alert, or one for many of a name.
pub fn parts(message: &Message) -> Vec<Part> {
    // Firing and ended alerts of a name are different parts.
    let key = |alert: &MessageAlert| {
        (
            // Alerts without a name are alike only if all of their labels are.
            alert_name(&alert.labels).into_owned(),
            alert.status == Status::Firing,
        )
    };

    let mut alike: BTreeMap<_, Vec<&MessageAlert>> = BTreeMap::new();
    for alert in &message.alerts {
        alike.entry(key(alert)).or_default().push(alert);
    }

    let mut parts = Vec::new();
    for alert in &message.alerts {
        let Some(all) = alike.get(&key(alert)) else {
            continue;
        };
        match all.len() {
            0..=ALIKE_MAX => parts.push(part(alert)),
            // The first alert of many stands for all, at its place in the message.
            _ if ptr::eq(all[0], alert) => parts.push(many(all)),
            _ => {}
        }
    }

    if message.reason == Reason::Corrected
        && let Some(part) = parts.iter_mut().find(|part| part.status == Status::Firing)
    {
        part.facts.insert(0, ("correction", CORRECTION.to_owned()));
    }
    parts
}

/// The message as plain text: for each part summary, facts, time and action.
pub fn text(message: &Message) -> String {
    let parts = parts(message);
    let zone = message.zone();
    let mut texts: Vec<String> = parts
        .iter()
        .take(PARTS_MAX)
        .map(|part| paragraph(part, &zone))
        .collect();

    let more: usize = parts.iter().skip(PARTS_MAX).map(|part| part.alerts).sum();
    if more > 0 {
        texts.push(format!("+{more} more: {}", link(message)));
    }
    texts.join("\n\n")
}

fn paragraph(part: &Part, zone: &TimeZone) -> String {
    let when = when(part, &|at| instant(at, zone));
    let mut out = format!("{}: {}\n{when}", part.name, part.summary);
    for (name, text) in &part.facts {
        out += &format!("\n{name}: {text}");
    }
    if !part.lines.is_empty() {
        out += &format!("\n{}", part.lines);
    }
    out
}

/// Severity and time, with times printed by `print`.
pub(super) fn when(part: &Part, print: &dyn Fn(Timestamp) -> String) -> String {
    let lasted = |until: Timestamp| {
        let seconds = u64::try_from((until - part.since) / 1000).unwrap_or(0);
        duration::print(std::time::Duration::from_secs(seconds))
    };
    let since = print(part.since);
    // Ended alerts have a duration; the severity no longer matters.
    match part.until {
        Some(until) => format!("over since {} after {}", print(until), lasted(until)),
        None if part.severity.is_empty() => format!("since {since}"),
        None => format!("{}, since {since}", part.severity),
    }
}

/// The time in a time zone: `2026-11-20 04:12:44 CET`.
pub fn instant(at: Timestamp, zone: &TimeZone) -> String {
    let instant = jiff::Timestamp::try_from(at);
    let in_zone = |at: jiff::Timestamp| at.to_zoned(zone.clone());
    instant.map_or_else(
        |_| at.to_string(),
        |at| in_zone(at).strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
    )
}

fn part(alert: &MessageAlert) -> Part {
    let label = |name: &str| alert.labels.get(name).unwrap_or_default();

    // Annotations come from rules and labels, and may hold control characters.
    let words = |key: &str| {
        alert
            .annotations
            .get(key)
            .map(|text| printable_lines(&shortened(text, WORDS_MAX)))
    };
    let summary = words("summary")
        .or_else(|| words("description"))
        .unwrap_or_else(|| match given_name(&alert.labels) {
            Some(_) => printable(&alert.labels.to_string()),
            // Its labels are its name already.
            None => "an alert without a name and a summary".to_owned(),
        });

    let job = words("jobs").or_else(|| {
        let job = alert.labels.get("jobid").filter(|job| !job.is_empty())?;
        let user = alert.labels.get("user").filter(|user| !user.is_empty());
        Some(format!("{job} of {}", user.unwrap_or("an unknown user")))
    });

    let mut facts: Vec<(&'static str, String)> =
        words("gpu").map(|gpu| ("GPU", gpu)).into_iter().collect();
    facts.extend(job.map(|job| ("job", job)));
    // The action and the last hour only matter while the alert fires.
    if alert.status == Status::Firing {
        facts.extend(words("action").map(|text| ("what to do", text)));
        facts.extend(words("last_hour").map(|text| ("last hour", text)));
    }
    facts.extend(words("flapping").map(|text| ("note", text)));
    facts.extend(words(crate::engine::RULE_REMOVED).map(|text| ("note", text)));
    facts.extend(words(crate::engine::CLOSED).map(|text| ("closed", text)));

    Part {
        status: alert.status,
        severity: label("severity").to_owned(),
        name: printable(&alert_name(&alert.labels)),
        summary,
        since: alert.since(),
        until: alert.ends_at,
        facts,
        lines: words("kernel_lines")
            .filter(|_| alert.status == Status::Firing)
            .unwrap_or_default(),
        alerts: 1,
    }
}

/// One part for many alerts of a name, with the annotations of the first.
fn many(alike: &[&MessageAlert]) -> Part {
    let first = part(alike[0]);

    // The worst severity of all: one critical alert among many must not look like a warning.
    let worst = WORST_FIRST.iter().find(|one| {
        alike
            .iter()
            .any(|alert| alert.labels.get("severity") == Some(one))
    });

    let places = folded(
        alike
            .iter()
            .filter_map(|alert| alert.labels.get("node").or(alert.labels.get("instance"))),
    );

    let mut facts = Vec::new();
    if !places.is_empty() {
        let more = places.len().saturating_sub(PLACES_MAX);
        let rest = if more > 0 {
            // A list of hundreds of nodes would be longer than the rest of the message.
            format!(" and {more} more")
        } else {
            String::new()
        };
        facts.push(("where", places[..places.len() - more].join(", ") + &rest));
    }

    // Only the action of the first alert is true for all of them.
    facts.extend(
        first
            .facts
            .into_iter()
            .filter(|(name, _)| *name == "what to do"),
    );

    Part {
        severity: worst.map_or(first.severity, |worst| (*worst).to_owned()),
        name: format!("{} ×{}", first.name, alike.len()),
        summary: format!("{} alerts, such as: {}", alike.len(), first.summary),
        since: alike
            .iter()
            .map(|alert| alert.since())
            .min()
            .unwrap_or(first.since),
        until: alike.iter().filter_map(|alert| alert.ends_at).max(),
        facts,
        lines: String::new(),
        alerts: alike.len(),
        ..first
    }
}

/// Folds names that differ only in the number at their end into ranges: `g[01-03]`.
fn folded<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    // By the digits too: `g1` and `g01` are different names.
    let mut numbers: BTreeMap<(&str, usize), Vec<u64>> = BTreeMap::new();
    let mut others: Vec<&str> = Vec::new();
    for name in names {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        // A number that does not fit into 64 bits, and a name of digits only, stay as they are.
        match name[stem.len()..].parse() {
            Ok(number) if !stem.is_empty() => {
                numbers
                    .entry((stem, name.len() - stem.len()))
                    .or_default()
                    .push(number);
            }
            _ => others.push(name),
        }
    }

    let mut folded = Vec::new();
    for ((stem, digits), mut all) in numbers {
        all.sort_unstable();

        all.dedup();
        // Runs of numbers without a gap; two of them are shorter as two names.
        for run in all.chunk_by(|a, b| a + 1 == *b) {
            match run {
                [first, .., last] if run.len() > 2 => {
                    folded.push(format!("{stem}[{first:0digits$}-{last:0digits$}]"))
                }
                few => folded.extend(few.iter().map(|number| format!("{stem}{number:0digits$}"))),
            }
        }
    }

    others.sort_unstable();
    others.dedup();
    folded.extend(others.into_iter().map(str::to_owned));
    folded
}

/// The text cut after `most` characters, with a mark at the cut.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((at, _)) => text[..at].to_owned() + " …",
    }
}

fn some(names: &[String]) -> String {
    match names.len() {
        0..=4 => names.join(" "),
        many => format!("{} +{}", names[..3].join(" "), many - 3),
    }
}

#[cfg(test)]
mod tests {
    use super::super::suite::row;
    use super::*;

    #[test]
    fn says_fault_place_person_and_action() {
        let row = row(2, "too hot");

        assert_eq!(
            subject(&row.message),
            "[FIRING 2] too hot on g0, and 1 more on g1"
        );
        assert_eq!(
            text(&row.message).split("\n\n").next().unwrap(),
            "GpuHot: too hot on g0\ncritical, since 1970-01-01 00:16:40 UTC\njob: 0 of ada\nwhat \
             to do: drain"
        );
    }

    #[test]
    fn a_subject_is_the_worst_fault_that_lasts() {
        let mut row = row(3, "too hot");
        let alerts = &mut row.message.alerts;
        // The first has ended, so the worst of the two that fire is the subject.
        (alerts[0].status, alerts[0].ends_at) =
            (Status::Resolved, Some(Timestamp::from_seconds(1_750)));
        alerts[1].labels.set("severity", "info");
        assert_eq!(
            subject(&row.message),
            "[FIRING 2] too hot on g2, and 1 more on g1"
        );

        let alerts = &mut row.message.alerts;
        alerts.truncate(2);
        alerts[1].annotations.remove("summary");
        assert_eq!(subject(&row.message), "[FIRING] GpuHot g1");

        row.message.alerts.truncate(1);
        assert_eq!(subject(&row.message), "[RESOLVED] too hot on g0");
    }

    /// Alertmanager's clients may post alerts without a name. They were "alert", and seven unlike ones one part.
    #[test]
    fn alerts_without_a_name_go_by_their_labels() {
        let mut row = row(7, "too hot");
        for (n, alert) in row.message.alerts.iter_mut().enumerate() {
            alert.labels = [("job", "backup"), ("node", &format!("g{n}"))]
                .into_iter()
                .collect();
            alert.annotations.clear();
        }

        let parts = parts(&row.message);
        assert_eq!(parts.len(), 7);
        assert_eq!(parts[3].name, r#"{job="backup", node="g3"}"#);
        assert!(
            subject(&row.message)
                .starts_with(r#"[FIRING 7] {job="backup", node="g0"}, and 6 more"#)
        );

        row.message.alerts.truncate(1);
        let text = text(&row.message);
        let first = r#"{job="backup", node="g0"}: an alert without a name and a summary"#;
        assert_eq!(text.lines().next(), Some(first));
    }

    #[test]
    fn times_are_in_the_clusters_time_zone() {
        let mut row = row(1, "too hot");
        row.message.timezone = Some("Europe/Oslo".to_owned());
        assert!(text(&row.message).contains("since 1970-01-01 01:16:40 CET\n"));
        // A zone that no database knows must not keep the message back.
        row.message.timezone = Some("No/Where".to_owned());
        assert!(text(&row.message).contains("since 1970-01-01 00:16:40 UTC\n"));
    }

    #[test]
    fn a_title_is_one_line_whatever_labels_hold() {
        let mut row = row(1, "too hot");
        row.message.alerts[0].annotations.insert(
            "summary".to_owned(),
            "hot\r\nBcc: eve@lab.example\n\u{202e}".to_owned(),
        );
        assert!(
            !subject(&row.message).contains(['\r', '\n', '\u{202e}']),
            "{}",
            subject(&row.message)
        );
    }

    #[test]
    fn many_alike_are_one() {
        let row = row(100, "too hot");
        assert_eq!(
            subject(&row.message),
            "[FIRING 100] too hot on g0, and 99 more on g[1-9] g[10-99]"
        );
        assert_eq!(
            text(&row.message),
            "GpuHot ×100: 100 alerts, such as: too hot on g0\ncritical, since 1970-01-01 00:16:40 \
             UTC\n\
             where: g[0-9], g[10-99]\nwhat to do: drain"
        );
    }

    #[test]
    fn an_end_has_its_duration_and_no_action() {
        let mut row = row(1, "too hot");

        let alert = &mut row.message.alerts[0];
        (alert.status, alert.ends_at) = (Status::Resolved, Some(Timestamp::from_seconds(1_750)));
        alert
            .annotations
            .insert("kernel_lines".to_owned(), "NVRM: Xid".to_owned());
        assert_eq!(
            text(&row.message),
            "GpuHot: too hot on g0\nover since 1970-01-01 00:29:10 UTC after 12m30s\njob: 0 of ada"
        );

        // It began before `for` had passed, so the outage is 90 s longer than the alert.
        let alert = &mut row.message.alerts[0];
        alert.began_at = Some(alert.starts_at.minus(std::time::Duration::from_secs(90)));
        let lasted = text(&row.message).contains("after 14m:");
        assert!(
            lasted || text(&row.message).contains("after 14m\n"),
            "from the start of the outage"
        );
    }

    #[test]
    fn names_are_folded_into_ranges() {
        let fold = |names: &str| folded(names.split(' ')).join(" ");
        // Two in a row stay two names.
        assert_eq!(fold("g03 g01 g02 g07 g09 g10 g11"), "g[01-03] g07 g[09-11]");
        assert_eq!(fold("login 10.0.0.1:80 g1 g1"), "10.0.0.1:80 g1 login");
        assert_eq!(
            fold("7 g99999999999999999999999"),
            "7 g99999999999999999999999"
        );
    }
}
