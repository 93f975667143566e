//! A message in plain words: what every way can send, and what is left when a template is broken.

use crate::message::{Message, Status, ToldAlert, rfc3339};
use crate::routing::dedup::Reason;

/// How many alerts a text names; the others are counted.
const ALERTS_MAX: usize = 20;

/// How many characters of one annotation a text holds.
const WORDS_MAX: usize = 1_000;

/// One line that says the most: `[FIRING 3] GpuHot g01 g02 g03`.
pub fn subject(message: &Message) -> String {
    let firing = message.alerts.iter().filter(|alert| alert.status == Status::Firing).count();
    let state = match message.reason {
        Reason::StillFiring => format!("STILL FIRING {firing}"),
        _ if firing > 0 => format!("FIRING {firing}"),
        _ => "RESOLVED".to_owned(),
    };
    let mut names: Vec<_> = message.alerts.iter().filter_map(|alert| alert.labels.get("alertname")).collect();
    names.sort_unstable();
    names.dedup();
    let mut nodes: Vec<_> = message.alerts.iter().filter_map(|alert| alert.labels.get("node")).collect();
    nodes.dedup();
    format!("[{state}] {} {}", some(&names), some(&nodes)).trim_end().to_owned()
}

/// The whole message: for each alert what broke where, whose job was there, since when, and what to do.
pub fn text(message: &Message) -> String {
    let mut lines: Vec<String> = message.alerts.iter().take(ALERTS_MAX).map(line).collect();
    let more = message.alerts.len().saturating_sub(ALERTS_MAX);
    if more > 0 {
        lines.push(format!("+{more} more: {}", message.external_url));
    }
    lines.join("\n\n")
}

/// One alert.
pub fn line(alert: &ToldAlert) -> String {
    let name = alert.labels.get("alertname").unwrap_or("alert");
    let words = |key: &str| alert.annotations.get(key).map(|text| shortened(text, WORDS_MAX));
    let mut out = match words("summary").or_else(|| words("description")) {
        Some(summary) => format!("{name}: {summary}"),
        None => format!("{name} {}", alert.labels),
    };
    match alert.ends_at {
        Some(end) => out += &format!("\nover since {}", rfc3339(end)),
        None => out += &format!("\nsince {}", rfc3339(alert.starts_at)),
    }
    if let Some(job) = alert.labels.get("jobid") {
        out += &format!(", job {job} of {}", alert.labels.get("user").unwrap_or("somebody"));
    }
    if let Some(action) = words("action").filter(|_| alert.status == Status::Firing) {
        out += &format!("\nwhat to do: {action}");
    }
    for key in ["flapping", "kernel_lines"] {
        out += &words(key).map(|text| format!("\n{text}")).unwrap_or_default();
    }
    out
}

/// At most so many characters, with a mark where something was cut off.
pub(super) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((at, _)) => text[..at].to_owned() + " …",
    }
}

fn some(names: &[&str]) -> String {
    match names.len() {
        0..=4 => names.join(" "),
        many => format!("{} +{}", names[..3].join(" "), many - 3),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;

    #[test]
    fn says_what_where_who_and_what_to_do() {
        let row = row(2, "too hot");
        assert_eq!(subject(&row.message), "[FIRING 2] GpuHot g0 g1");
        let said = text(&row.message);
        assert!(
            said.starts_with("GpuHot: too hot on g0\nsince 1970-01-01T00:16:40Z, job 0 of ada\nwhat to do: drain"),
            "{said}"
        );
    }

    #[test]
    fn many_are_counted() {
        let row = row(100, "too hot");
        assert_eq!(subject(&row.message), "[FIRING 100] GpuHot g0 g1 g10 +97");
        assert!(text(&row.message).ends_with("+80 more: http://takt"));
    }
}
