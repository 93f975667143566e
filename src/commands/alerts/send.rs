//! `takt alerts test-send`: sends a test message through every channel.

use crate::cli::Place;
use crate::output::stdout;
use crate::place;
use anyhow::{Context, anyhow};
use clap::Args;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::time::SystemTime;
use takt_alerts::alert::Alert;
use takt_alerts::message::{Message, MessageAlert, Status};
use takt_alerts::outbox::{NO_CHANNEL, Outcome, Row, RowState};
use takt_alerts::routing::config::{Config as Routing, Integration};
use takt_alerts::routing::dedup::Reason;
use takt_alerts::yaml::Node;
use takt_model::{Labels, Timestamp};
use takt_server::Config;
use takt_server::alerting;
use takt_server::{Failure, OrUsage};

#[derive(Debug, Args)]
pub struct AlertsTestSend {
    /// Only this channel (receiver/kind/number)
    #[arg(long, value_name = "CHANNEL")]
    pub channel: Option<String>,
}

/// Runs the command. Tries all channels, then fails if one did not accept the message, or if none
/// was tested.
pub fn run(place: &Place, asked: &AlertsTestSend) -> Result<(), Failure> {
    let config = place::load(place).usage()?;
    let loaded = alerting::load(&config).usage()?;
    let channels = loaded.channels;
    let same_as = alike(&loaded.routing);

    let names: Vec<&str> = channels
        .names()
        .filter(|name| asked.channel.as_ref().is_none_or(|only| only == name))
        .collect();
    if names.is_empty() {
        let known: Vec<_> = channels.names().collect();
        return Err(Failure::Usage(if known.is_empty() {
            anyhow!("no channel is configured; see [alerts] in docs/configuration.md")
        } else {
            anyhow!(
                "no such channel; the configured channels are {}",
                known.join(", ")
            )
        }));
    }

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut out = stdout();
    let mut sent = 0;
    let mut failed = 0;
    for name in &names {
        if let Some(first) = same_as
            .get(*name)
            .filter(|first| names.contains(&first.as_str()))
        {
            writeln!(out, "{name}: the same as {first}")?;
            continue;
        }

        let channel = channels.get(name).context("a listed channel is missing")?;
        let outcome = runtime.block_on(channel.send(&row(name, &config), None));
        let said = match outcome {
            Outcome::Sent(_) => "sent".to_owned(),
            Outcome::TryAgain { error, .. } | Outcome::NoAnswer { error } => {
                format!("failed for now: {error}")
            }
            Outcome::GiveUp { error } => format!("refused: {error}"),
            Outcome::NoChannel => NO_CHANNEL.to_owned(),
            // The mails of owners depend on a job, and a test has none.
            Outcome::NoRecipient { .. } => {
                writeln!(out, "{name}: not tested: it mails the owner of a job")?;
                continue;
            }
        };

        sent += usize::from(said == "sent");
        failed += usize::from(said != "sent");
        writeln!(out, "{name}: {said}")?;
    }

    match failed {
        0 if sent > 0 => Ok(()),
        0 => Err(Failure::Failed(anyhow!("no channel was tested"))),
        failed => Err(Failure::Failed(anyhow!(
            "{failed} of {} channels did not accept the message",
            names.len()
        ))),
    }
}

/// Channels that have the settings of another one before them, by name, with the name of that one.
fn alike(routing: &Routing) -> BTreeMap<String, String> {
    let mut first: Vec<(String, &Integration)> = Vec::new();
    let mut alike = BTreeMap::new();
    for receiver in &routing.receivers {
        for integration in &receiver.integrations {
            let name = receiver.channel(integration);
            let is_same = |(_, known): &&(String, &Integration)| {
                known.kind == integration.kind && is_same(&known.settings, &integration.settings)
            };
            match first.iter().find(is_same) {
                Some((known, _)) => drop(alike.insert(name, known.clone())),
                None => first.push((name, integration)),
            }
        }
    }
    alike
}

/// Whether two values are the same, wherever they stand in the file.
fn is_same(a: &Node, b: &Node) -> bool {
    if let (Ok(a), Ok(b)) = (a.text(), b.text()) {
        return a == b;
    }
    if let (Ok(a), Ok(b)) = (a.list(), b.list()) {
        return a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b));
    }
    let (Ok(a), Ok(b)) = (a.pairs(), b.pairs()) else {
        return false;
    };
    let b: BTreeMap<&str, &Node> = b.collect();
    let a: BTreeMap<&str, &Node> = a.collect();
    let is_pair = |(name, a): (&&str, &&Node)| b.get(name).is_some_and(|b| is_same(a, b));
    a.len() == b.len() && a.iter().all(is_pair)
}

fn row(channel: &str, config: &Config) -> Row {
    let address: Option<SocketAddr> = config.server.listen_address.parse().ok();
    let port = address.map_or(0, |address| address.port());
    let now = Timestamp::from(SystemTime::now());

    let alert = Alert {
        labels: [("alertname", "TaktTest"), ("severity", "info")]
            .into_iter()
            .collect::<Labels>(),
        annotations: [
            (
                "summary".to_owned(),
                "This is a test message of Takt; nothing is broken".to_owned(),
            ),
            ("action".to_owned(), "None. The channel works.".to_owned()),
        ]
        .into(),
        starts_at: now,
        ends_at: None,
        updated_at: now,
        generator_url: String::new(),
        began_at: None,
        is_timeout: false,
    };

    let message = Message {
        channel: channel.to_owned(),
        receiver: channel.split('/').next().unwrap_or_default().to_owned(),
        group_key: "{}:{alertname=\"TaktTest\"}".to_owned(),
        reason: Reason::FirstFiring,
        status: Status::Firing,
        group_labels: Labels::new(),
        common_labels: Labels::new(),
        common_annotations: BTreeMap::new(),
        route_labels: Labels::new(),
        external_url: alerting::external_url(config, port),
        timezone: config.zone().iana_name().map(str::to_owned),
        acknowledge_url: None,
        alerts: vec![MessageAlert::new(&alert, now)],
    };

    Row {
        id: 0,
        channel: channel.to_owned(),
        instead_of: None,
        message: message.arranged(),
        state: RowState::Sending,
        created_at: now,
        attempts: 1,
        next_at: now,
        error: None,
        handle: None,
        is_in_doubt: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_of_two_receivers_is_tested_once() {
        let text = "
route: {receiver: operators}
receivers:
- name: operators
  email_configs: [{to: ops@lab, send_resolved: true}]
- name: digest
  email_configs: [{send_resolved: true, to: ops@lab}, {to: boss@lab, send_resolved: true}]
- name: owners
  webhook_configs: [{url: 'http://x/'}]
";
        let routing = Routing::read("am.yml", text).unwrap();
        let expected = [("digest/email/0", "operators/email/0")];
        let expected = expected.map(|(one, other)| (one.to_owned(), other.to_owned()));
        assert_eq!(alike(&routing), expected.into());
    }
}
