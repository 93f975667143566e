//! Silences, and acknowledgements: silences of the alerts that fire now.

use super::{firing, local, name, server, text};
use crate::cli::{ListingFormat, Place};
use crate::client::Server;
use crate::commands::print;
use crate::output::stdout;
use crate::person;
use crate::source::zone_of;
use anyhow::anyhow;
use clap::Args;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use reqwest::Method;
use serde_json::{Value, json};
use std::io::{self, Write};
use takt_alerts::duration;
use takt_alerts::routing::matcher::{MatchOp, Matcher, parse_matchers};
use takt_questions::listing::{Column, Listing};
use takt_questions::{AboutQuestion, did_you_mean};
use takt_server::Failure;

#[derive(Debug, Args)]
pub struct AlertsSilence {
    /// Matchers of the silence: node=g01 'alertname=~"Gpu.*"'; without any, existing silences are
    /// listed
    #[arg(value_name = "MATCHER")]
    pub matchers: Vec<String>,
    /// Duration (30m, 2h, 3d)
    #[arg(long = "for", value_name = "DURATION", default_value = "2h")]
    pub duration: String,
    /// Start time: 2026-11-22T08:00 in the cluster's time zone, or 2026-11-22T07:00Z [default: now]
    #[arg(long, value_name = "TIME")]
    pub start: Option<String>,
    /// Reason for the silence
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub comment: String,
    /// Expire the silence with this id
    #[arg(long, value_name = "ID", conflicts_with = "matchers")]
    pub expire: Option<String>,
    /// Output format of the list
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct AlertsAck {
    /// Matchers that select active alerts
    #[arg(required = true, value_name = "MATCHER")]
    pub matchers: Vec<String>,
    /// How long notifications stay silenced
    #[arg(long = "for", value_name = "DURATION", default_value = "8h")]
    pub duration: String,
    /// Comment, such as the action taken
    #[arg(long, value_name = "TEXT", default_value = "acknowledged")]
    pub comment: String,
}

/// Creates, expires or lists silences.
pub fn run(place: &Place, asked: &AlertsSilence) -> Result<(), Failure> {
    let server = server(place)?;
    if let Some(id) = &asked.expire {
        server.alertmanager(Method::DELETE, &format!("silence/{id}"), &[], None)?;
        return Ok(());
    }
    if asked.matchers.is_empty() {
        return list(&server, asked);
    }

    // All matchers are parsed first, so that a mistake in one leaves no silence behind.
    let mut parsed = Vec::new();
    for text in &asked.matchers {
        let of_text =
            parse_matchers(text).map_err(|error| Failure::Usage(anyhow!("{text}: {error}")))?;
        parsed.extend(of_text);
    }

    // A time without an offset is one of the cluster's zone, which only the server knows.
    let matchers: Vec<Value> = parsed.iter().map(in_json).collect();
    let zone = zone_of(server.ask(&AboutQuestion {}).ok());
    let start = asked
        .start
        .as_deref()
        .map(|text| instant(text, &zone))
        .transpose()?;
    let period = period(start, &asked.duration, jiff::Timestamp::now(), &zone)?;
    let id = set(&server, &matchers, period, &asked.comment)?;
    writeln!(stdout(), "{id}")?;

    let matched = firing(&server, &asked.matchers).map_or(0, |alerts| alerts.len());
    let when = match start.filter(|start| *start > jiff::Timestamp::now()) {
        Some(start) => format!("from {} ", shown_time(start, &zone)),
        None => String::new(),
    };
    tracing::info!(
        "silenced {when}for {}: {}; {matched} of the alerts that are active now match",
        asked.duration,
        asked.matchers.join(" ")
    );
    // A silence for later may be right without an alert, so this is a warning only.
    if matched == 0 {
        for said in unknown_names(&server, &parsed) {
            writeln!(io::stderr(), "warning: {said}")?;
        }
    }
    Ok(())
}

/// A matcher as Alertmanager's API has it.
fn in_json(matcher: &Matcher) -> Value {
    // Alertmanager's API splits the operator into two flags.
    let is_regex = matches!(matcher.op(), MatchOp::Regex | MatchOp::NotRegex);
    let is_equal = matches!(matcher.op(), MatchOp::Equal | MatchOp::Regex);
    json!({
        "name": matcher.name(),
        "value": matcher.value(),
        "isRegex": is_regex,
        "isEqual": is_equal,
    })
}

/// Says which matchers are about a label, a rule or a value that the server has never seen: they may be
/// misspelt. Empty if the server does not say what it has.
fn unknown_names(server: &Server, matchers: &[Matcher]) -> Vec<String> {
    let texts = |path: &str| -> Option<Vec<String>> {
        let answer: Value = server.get(path).ok()?;
        let texts = answer["data"].as_array()?.iter();
        Some(texts.map(text).collect())
    };
    let rules: Value = server.get("/api/v1/rules").unwrap_or_default();
    let rules = || {
        let groups = rules["data"]["groups"].as_array().into_iter().flatten();
        groups.flat_map(|group| group["rules"].as_array().into_iter().flatten())
    };
    let alerts: Vec<String> = rules().map(|rule| text(&rule["name"])).collect();
    // Labels that rules add are on alerts, not on series.
    let of_rules = rules().filter_map(|rule| rule["labels"].as_object());
    let of_rules: Vec<&String> = of_rules.flat_map(|labels| labels.keys()).collect();
    let Some(labels) = texts("/api/v1/labels") else {
        return Vec::new();
    };

    let near = |text: &str, known: &[String]| did_you_mean(text, known.iter().map(String::as_str));
    let unknown = |matcher: &Matcher| {
        let (name, value) = (matcher.name(), matcher.value());
        let is_exact = matcher.op() == MatchOp::Equal;
        if name == "alertname" {
            let is_unknown = is_exact && !alerts.iter().any(|alert| alert == value);
            return is_unknown.then(|| format!("no rule is named {value}{}", near(value, &alerts)));
        }
        if of_rules.iter().any(|label| *label == name) {
            return None;
        }
        if !labels.iter().any(|label| label == name) {
            let near = near(name, &labels);
            return Some(format!("no series and no rule has a label {name}{near}"));
        }
        let values = texts(&format!("/api/v1/label/{name}/values"))?;
        let is_unknown = is_exact && !values.iter().any(|known| known == value);
        is_unknown.then(|| format!("no series has {name}={value:?}{}", near(value, &values)))
    };
    matchers.iter().filter_map(unknown).collect()
}

fn shown_time(at: jiff::Timestamp, zone: &TimeZone) -> String {
    let at = at.to_zoned(zone.clone());
    at.strftime("%Y-%m-%d %H:%M").to_string()
}

/// Silences each firing alert that matches all matchers, by all of its labels.
pub fn acknowledge(place: &Place, asked: &AlertsAck) -> Result<(), Failure> {
    let server = server(place)?;
    let alerts = firing(&server, &asked.matchers)?;
    if alerts.is_empty() {
        return Err(anyhow!("no firing alert matches {}", asked.matchers.join(" ")).into());
    }
    let period = period(
        None,
        &asked.duration,
        jiff::Timestamp::now(),
        &TimeZone::UTC,
    )?;
    let mut out = stdout();
    for alert in &alerts {
        let labels = alert["labels"].as_object().into_iter().flatten();
        let matchers: Vec<Value> = labels
            .map(|(name, value)| {
                json!({
                    "name": name,
                    "value": value,
                    "isRegex": false,
                    "isEqual": true,
                })
            })
            .collect();
        let id = set(&server, &matchers, period, &asked.comment)?;
        writeln!(
            out,
            "{id} {} {}",
            name(&alert["labels"]),
            text(&alert["labels"]["node"])
        )?;
    }
    Ok(())
}

/// Parses an instant with an offset from UTC, or in the cluster's time zone.
fn instant(text: &str, zone: &TimeZone) -> Result<jiff::Timestamp, Failure> {
    let local = || text.parse::<DateTime>().ok()?.to_zoned(zone.clone()).ok();
    // With an offset first: a local time has none, so the texts cannot be confused.
    text
        .parse()
        .ok()
        .or_else(|| local().map(|zoned| zoned.timestamp())).ok_or_else(|| {
        Failure::Usage(anyhow!(
            "--start: expected a time such as 2026-11-22T08:00 or 2026-11-22T07:00Z, found {text:?}"
        ))
    })
}

/// Begin and end of a silence that lasts `length`, from now on if it has no start.
fn period(
    start: Option<jiff::Timestamp>,
    length: &str,
    now: jiff::Timestamp,
    zone: &TimeZone,
) -> Result<[jiff::Timestamp; 2], Failure> {
    let length = duration::parse(length)
        .filter(|length| !length.is_zero())
        .ok_or_else(|| {
            Failure::Usage(anyhow!("--for: expected a duration such as 30m, 2h or 3d"))
        })?;
    let starts_at = start.unwrap_or(now);
    let ends_at = starts_at.checked_add(jiff::SignedDuration::try_from(length)?)?;
    // It would silence nothing, and a wrong date is easily typed.
    if ends_at <= now {
        return Err(Failure::Usage(anyhow!(
            "--start: the silence would have ended at {}",
            shown_time(ends_at, zone)
        )));
    }
    Ok([starts_at, ends_at])
}

fn set(
    server: &Server,
    matchers: &[Value],
    [starts_at, ends_at]: [jiff::Timestamp; 2],
    comment: &str,
) -> Result<String, Failure> {
    let silence = json!({
        "matchers": matchers,
        "startsAt": starts_at.to_string(),
        "endsAt": ends_at.to_string(),
        "createdBy": person::operator(),
        "comment": comment,
    });
    let answer = server.alertmanager(Method::POST, "silences", &[], Some(&silence))?;
    Ok(text(&answer["silenceID"]))
}

fn list(server: &Server, asked: &AlertsSilence) -> Result<(), Failure> {
    let answer = server.alertmanager(Method::GET, "silences", &[], None)?;
    let silences = answer.as_array().cloned().unwrap_or_default();
    let zone = zone_of(server.ask(&AboutQuestion {}).ok());
    use Column::{Text, Time};
    let mut listing = Listing::new(&[
        Text("id"),
        Text("state"),
        Time("starts"),
        Time("ends"),
        Text("by"),
        Text("matchers"),
        Text("comment"),
    ]);
    for silence in &silences {
        let matchers = silence["matchers"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| {
                // Without `isEqual`, as older clients send it, a matcher is an equality.
                let op = match (one["isRegex"].as_bool(), one["isEqual"].as_bool()) {
                    (Some(true), Some(false)) => "!~",
                    (Some(true), _) => "=~",
                    (_, Some(false)) => "!=",
                    _ => "=",
                };
                format!("{}{op}{}", text(&one["name"]), one["value"])
            });
        listing.push(vec![
            text(&silence["id"]),
            text(&silence["status"]["state"]),
            local(&silence["startsAt"], &zone),
            local(&silence["endsAt"], &zone),
            text(&silence["createdBy"]),
            matchers.collect::<Vec<_>>().join(" "),
            text(&silence["comment"]),
        ]);
    }
    print(asked.format, &listing, &silences)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_of_the_past_is_refused_in_the_clusters_time() {
        let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap();
        let now = at("2026-11-28T12:00:00Z");
        let oslo = TimeZone::get("Europe/Oslo").unwrap();
        let refused = period(Some(at("2026-11-28T06:00:00Z")), "2h", now, &oslo).unwrap_err();
        let (Failure::Usage(error) | Failure::Failed(error)) = refused;
        assert_eq!(
            error.to_string(),
            "--start: the silence would have ended at 2026-11-28 09:00"
        );
        let begun = at("2026-11-28T11:00:00Z");
        let ends = at("2026-11-28T13:00:00Z");
        assert_eq!(
            period(Some(begun), "2h", now, &oslo).unwrap(),
            [begun, ends]
        );
    }
}
