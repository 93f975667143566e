//! `takt alerts`: active alerts, sent messages, rules and silences.

pub(crate) mod close;
pub(crate) mod files;
pub(crate) mod send;
pub(crate) mod silences;

use self::close::AlertsClose;
use self::send::AlertsTestSend;
use self::silences::{AlertsAck, AlertsSilence};
use super::{in_zone, print};
use crate::cli::{ListingFormat, Place};
use crate::client::Server;
use crate::output::stdout;
use crate::person;
use crate::place;
use crate::source::{self, Source, zone_of};
use anyhow::anyhow;
use clap::{Args, Subcommand};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use reqwest::Method;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::io::{self, Write};
use std::path::PathBuf;
use takt_alerts::alert::alert_name;
use takt_alerts::engine::FLAPPING_LABEL;
use takt_alerts::notify::severity_rank;
use takt_alerts::routing::config::RoutedTo;
use takt_alerts::routing::matcher::{Matchers, parse_matcher};
use takt_model::{Labels, UnixTime};
use takt_questions::listing::{Column, Listing};
use takt_questions::{AboutQuestion, AlertsQuestion, EndedAlertsQuestion, SqlQuestion};
use takt_server::alerting;
use takt_server::{Failure, OrUsage};
use takt_store::Database;

/// Commands of the alerts.
#[derive(Debug, Subcommand)]
pub enum Alerts {
    /// List active alerts (needs a running server)
    List(AlertsList),
    /// Show the history of alerts, newest first
    History(AlertsHistory),
    /// Check rule files (Prometheus' format, *.events.yml) and alertmanager.yml files
    Check(AlertsFiles),
    /// Run rule tests in promtool's format
    Test(AlertsFiles),
    /// Show the receivers of an alert with these labels
    RouteTest(AlertsRouteTest),
    /// Create, list or expire silences (needs a running server)
    Silence(AlertsSilence),
    /// Silence matching active alerts
    Ack(AlertsAck),
    /// Close active alerts by hand, with a reason for the history (needs a running server)
    Close(AlertsClose),
    /// Send a test message through every channel and report the results
    TestSend(AlertsTestSend),
}

#[derive(Debug, Args)]
pub struct AlertsList {
    /// Only alerts that match all of these: node=g01 'alertname=~"Gpu.*"'
    #[arg(value_name = "MATCHER")]
    pub matchers: Vec<String>,
    /// Only alerts about the jobs of the user who runs the command
    #[arg(long)]
    pub me: bool,
    /// Include alerts of severity "none", which report no fault: Watchdog
    #[arg(long)]
    pub all: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct AlertsHistory {
    /// Only this alert
    #[arg(long, value_name = "NAME")]
    pub alert: Option<String>,
    /// Only this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Include alerts that became pending and never fired, and those of severity "none"
    #[arg(long, conflicts_with = "messages")]
    pub pending: bool,
    /// Show sent messages and their results instead of alerts
    #[arg(long, conflicts_with_all = ["alert", "node"])]
    pub messages: bool,
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: usize,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

#[derive(Debug, Args)]
pub struct AlertsFiles {
    /// Files
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct AlertsRouteTest {
    /// Labels of the alert: alertname=GpuFellOffBus severity=critical
    #[arg(required = true, value_name = "LABEL=VALUE")]
    pub labels: Vec<String>,
    /// By the configuration file, which the running server may not have read yet
    #[arg(long)]
    pub file: bool,
}

/// Runs the command.
pub fn run(place: &Place, asked: &Alerts) -> Result<(), Failure> {
    match asked {
        Alerts::List(asked) => list(place, asked),
        Alerts::History(asked) => history(place, asked),
        Alerts::Check(asked) => files::check(&asked.files),
        Alerts::Test(asked) => files::test(&asked.files),
        Alerts::RouteTest(asked) => route_test(place, asked),
        Alerts::Silence(asked) => silences::run(place, asked),
        Alerts::Ack(asked) => silences::acknowledge(place, asked),
        Alerts::Close(asked) => close::run(place, asked),
        Alerts::TestSend(asked) => send::run(place, asked),
    }
}

/// Returns a client of the server at this place.
fn server(place: &Place) -> Result<Server, Failure> {
    let (_, at) = place::find(place)?;
    source::server(at)
}

/// Returns the firing alerts that match all matchers.
fn firing(server: &Server, matchers: &[String]) -> Result<Vec<Value>, Failure> {
    let query: Vec<(&str, &str)> = matchers
        .iter()
        .map(|matcher| ("filter", matcher.as_str()))
        .collect();
    let answer = server.alertmanager(Method::GET, "alerts", &query, None)?;
    Ok(answer.as_array().cloned().unwrap_or_default())
}

/// Returns the firing alerts that match all matchers as the user may see them, in the form of [`firing`].
fn visible(server: &Server, matchers: &[String]) -> Result<Vec<Value>, Failure> {
    let mut wanted = Vec::new();
    for text in matchers {
        wanted.push(parse_matcher(text).map_err(|error| anyhow!("{error}"))?);
    }

    // The server filters by itself only in Alertmanager's API, so this is done here.
    let wanted = Matchers(wanted);
    let shown = server.ask(&AlertsQuestion {})?.alerts.into_iter();
    let alerts = shown.filter(|alert| {
        let labels = alert.labels.iter();
        let labels: Labels = labels.map(|(name, value)| (&**name, &**value)).collect();
        wanted.accept(&labels)
    });
    Ok(alerts
        .map(|alert| {
            let since = jiff::Timestamp::try_from(alert.since).unwrap_or_default();
            let (state, muted) = match alert.unsent.as_str() {
                "" => ("active", vec![]),
                why => ("suppressed", vec![why]),
            };
            json!({
                "labels": alert.labels,
                "annotations": alert.annotations,
                "fingerprint": alert.fingerprint,
                "startsAt": since.to_string(),
                "status": {"state": state, "mutedBy": muted, "silencedBy": [], "inhibitedBy": []},
            })
        })
        .collect())
}

fn list(place: &Place, asked: &AlertsList) -> Result<(), Failure> {
    let server = server(place)?;

    let mut matchers = asked.matchers.clone();
    if asked.me {
        matchers.push(format!("user={:?}", person::operator()));
    }
    let mut alerts = match firing(&server, &matchers) {
        Ok(alerts) => alerts,
        // Alertmanager's API shows the alerts of all users, so it is not for everybody. What a user may see is.
        Err(refused) => visible(&server, &matchers).map_err(|_| refused)?,
    };
    alerts.retain(|alert| asked.all || alert["labels"]["severity"] != "none");

    // The worst first, and of the same severity the newest.
    alerts.sort_by_cached_key(|alert| {
        let severity = text(&alert["labels"]["severity"]);
        let since = Reverse(text(since(alert)));
        (severity_rank(&severity), since)
    });

    let zone = zone_of(server.ask(&AboutQuestion {}).ok());
    use Column::{Text, Time};
    let mut listing = Listing::new(&[
        Text("alert"),
        Text("severity"),
        Text("node"),
        Time("since"),
        Text("state"),
        Text("summary"),
    ]);

    for alert in &alerts {
        let label = |name: &str| text(&alert["labels"][name]);
        let mut state = state(&alert["status"]);
        // A rule's condition may be false at the moment: the alert stands for its changes.
        if label(FLAPPING_LABEL) == "true" {
            state = flapping(&state);
        }
        let words = [
            name(&alert["labels"]),
            label("severity"),
            label("node"),
            local(since(alert), &zone),
            state,
        ];

        listing.push(
            words
                .into_iter()
                .chain([text(&alert["annotations"]["summary"])])
                .collect(),
        );
    }

    print(asked.format, &listing, &alerts)
}

/// The time since which the alert's condition holds, as the pages and messages show it.
fn since(alert: &Value) -> &Value {
    match &alert["since"] {
        Value::Null => &alert["startsAt"],
        since => since,
    }
}

/// Returns the state of an alert, with the reasons why no message is sent.
fn state(status: &Value) -> String {
    let named = |by: &str| {
        status[by]
            .as_array()
            .into_iter()
            .flatten()
            .map(text)
            .collect::<Vec<_>>()
    };

    // The ids of silences and of inhibiting alerts say nothing in a table.
    let mut why = named("mutedBy");
    why.extend(named("silencedBy").first().map(|_| "silenced".to_owned()));
    why.extend(
        named("inhibitedBy")
            .first()
            .map(|_| "inhibited by another".to_owned()),
    );

    let state = text(&status["state"]);
    if why.is_empty() {
        state
    } else {
        format!("{state}: {}", why.join(", "))
    }
}

/// The state of an alert that reports another one as flapping.
fn flapping(state: &str) -> String {
    match state {
        "active" => "flapping".to_owned(),
        other => format!("flapping, {other}"),
    }
}

/// Formats the API's instant in the cluster's time zone.
fn local(value: &Value, zone: &TimeZone) -> String {
    let at = value.as_str().and_then(|text| text.parse().ok());
    at.map_or_else(|| text(value), |at| in_zone(at, zone))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The name of an alert with these labels; its labels if it has none.
fn name(labels: &Value) -> String {
    let labels = labels.as_object().into_iter().flatten();
    let labels: Labels = labels
        .map(|(name, value)| (name.as_str(), text(value)))
        .collect();
    alert_name(&labels).into_owned()
}

/// Shows each change of an alert's state. Users whom these tables are closed to get the alerts that ended, as
/// they may see them.
fn history(place: &Place, asked: &AlertsHistory) -> Result<(), Failure> {
    let source: Source<Database> = super::source(place)?;
    match transitions(&source, asked) {
        Err(refused) if !asked.messages => ended(&source, asked).map_err(|error| match error {
            // A misspelt name is the user's to correct, whatever the user may see.
            Failure::Usage(_) => error,
            _ => refused,
        }),
        shown => shown,
    }
}

/// Shows the alerts that ended, the newest first.
fn ended(source: &Source<Database>, asked: &AlertsHistory) -> Result<(), Failure> {
    let mut ended = source.ask(&EndedAlertsQuestion {
        name: asked.alert.clone(),
        node: asked.node.clone(),
        ..EndedAlertsQuestion::default()
    })?;
    let is_cut = super::cut(&mut ended, asked.limit);

    use Column::{Text, Time};
    let mut listing = Listing::new(&[
        Time("from"),
        Time("to"),
        Text("alert"),
        Text("severity"),
        Text("node"),
        Text("labels"),
    ]);

    let zone = source.zone();
    let at = |time: UnixTime| in_zone(jiff::Timestamp::try_from(time).unwrap_or_default(), &zone);
    for alert in &ended {
        let node = alert.labels.get("node").cloned().unwrap_or_default();
        let labels: Labels = alert.labels.iter().collect();
        listing.push(vec![
            at(alert.from),
            at(alert.to),
            alert.name.clone(),
            alert.severity.clone(),
            node,
            labels.to_string(),
        ]);
    }

    print(asked.format, &listing, &ended)?;
    super::note_cut(is_cut, asked.limit);
    Ok(())
}

/// Asks in SQL, so the command also works without a server.
fn transitions(source: &Source<Database>, asked: &AlertsHistory) -> Result<(), Failure> {
    let quoted = |text: &String| format!("'{}'", text.replace('\'', "''"));

    let mut wanted = vec!["true".to_owned()];
    wanted.extend(
        asked
            .alert
            .as_ref()
            .map(|name| format!("alertname = {}", quoted(name))),
    );
    wanted.extend(
        asked
            .node
            .as_ref()
            .map(|name| format!("node = {}", quoted(name))),
    );

    if !asked.messages && !asked.pending {
        // Most conditions end before their `for` has passed: such alerts were never sent.
        wanted.push(
            "NOT (state_after = 'pending' AND state_before IN ('inactive', 'unknown')) \
             AND NOT (state_before = 'pending' AND state_after IN ('inactive', 'unknown'))"
                .to_owned(),
        );
        if asked.alert.is_none() {
            // Watchdog and its like report no fault.
            wanted.push("coalesce(severity, '') <> 'none'".to_owned());
        }
    }

    let (columns, table, order) = if asked.messages {
        (
            "created_at, channel, reason, alerts, state, attempts, coalesce(error, '') AS error",
            "notifications",
            "id",
        )
    } else {
        (
            "happened_at, CASE WHEN trim(coalesce(alertname, '')) = '' THEN labels ELSE alertname END AS alertname, \
             coalesce(severity, '') AS severity, coalesce(node, '') AS \
             node, state_before, state_after, reason, value, labels",
            "alert_transitions",
            "happened_at",
        )
    };

    let statement = format!(
        "SELECT {columns} FROM {table} WHERE {} ORDER BY {order} DESC LIMIT {}",
        wanted.join(" AND "),
        // One more than is shown, to know whether there are others.
        asked.limit.saturating_add(1)
    );
    let mut answer = source.ask(&SqlQuestion { statement })?;
    // A misspelt name must not look like an alert that never fired.
    if answer.rows.is_empty() && asked.alert.is_some() {
        source.ask(&EndedAlertsQuestion {
            name: asked.alert.clone(),
            limit: Some(1),
            ..EndedAlertsQuestion::default()
        })?;
    }

    let is_cut = super::cut(&mut answer.rows, asked.limit);
    let zone = source.zone();
    // The first column is the time, which SQL gives in UTC without an offset.
    for row in &mut answer.rows {
        let at = row[0]
            .as_str()
            .map(|text| text.trim_end_matches('Z'))
            .and_then(|text| text.replace(' ', "T").parse::<DateTime>().ok());
        let at = at.and_then(|at| at.to_zoned(TimeZone::UTC).ok());
        if let Some(at) = at {
            row[0] = Value::String(in_zone(at.timestamp(), &zone));
        }
    }

    // Columns that a narrow terminal does without.
    let minor = &["labels", "value", "severity", "attempts", "state_before"];
    super::sql::show_timed(asked.format, &answer, minor)?;
    super::note_cut(is_cut, asked.limit);
    Ok(())
}

fn route_test(place: &Place, asked: &AlertsRouteTest) -> Result<(), Failure> {
    let mut labels = Labels::new();
    let mut query = Vec::new();
    for pair in &asked.labels {
        let named = pair.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, value) = named
            .ok_or_else(|| anyhow!("expected LABEL=VALUE, found {pair:?}"))
            .usage()?;
        // Labels are often copied from a message, where values have quotes.
        let value = value.trim_matches('"');
        labels.set(name, value);
        query.push(format!("{name}={value}"));
    }

    let routed: Vec<RoutedTo> = match in_use(place, asked.file)? {
        Some(server) => {
            let query: Vec<(&str, &str)> =
                query.iter().map(|one| ("label", one.as_str())).collect();
            let answer = server.alertmanager(Method::GET, "alerts/route", &query, None)?;
            serde_json::from_value(answer).map_err(anyhow::Error::from)?
        }
        None => {
            let config = place::load(place).usage()?;
            alerting::load(&config).usage()?.routing.route_test(&labels)
        }
    };

    let mut out = stdout();
    for to in routed {
        let channels = match to.channels.as_slice() {
            [] => "no channel".to_owned(),
            all => all.join(" "),
        };
        writeln!(out, "{}: {channels}  (route {})", to.receiver, to.route)?;
    }
    Ok(())
}

/// The running server, whose routes and channels are in use. `None` if the configuration file is meant, or no server runs.
fn in_use(place: &Place, of_file: bool) -> Result<Option<Server>, Failure> {
    if of_file {
        return Ok(None);
    }
    let (_, at) = place::find(place)?;
    // A server that does not answer is no error here, but a wrong address is.
    let server = source::running(at)?.ok();
    if server.is_none() {
        let mut err = io::stderr();
        writeln!(
            err,
            "no server runs: this is tried by the configuration file, with your rights"
        )?;
    }
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flapping_alert_says_so() {
        let silenced = json!({"state": "suppressed", "silencedBy": ["s1"]});
        let states = [json!({"state": "active"}), silenced].map(|status| flapping(&state(&status)));
        assert_eq!(states, ["flapping", "flapping, suppressed: silenced"]);
    }
}
