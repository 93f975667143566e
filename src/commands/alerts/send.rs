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
use takt_alerts::outbox::{Outcome, Row, RowState};
use takt_alerts::routing::dedup::Reason;
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
    let channels = alerting::load(&config).usage()?.channels;
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
        let channel = channels.get(name).context("a listed channel is missing")?;
        let outcome = runtime.block_on(channel.send(&row(name, &config), None));
        let said = match outcome {
            Outcome::Sent(_) => "sent".to_owned(),
            Outcome::TryAgain { error, .. } | Outcome::NoAnswer { error } => {
                format!("failed for now: {error}")
            }
            Outcome::GiveUp { error } => format!("refused: {error}"),
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
