//! A trial of the channels: a test message through each of them.

use super::Notifier;
use super::channels::{ChannelParts, Channels};
use crate::alert::Alert;
use crate::message::{Message, MessageAlert, Status};
use crate::outbox::{NO_CHANNEL, Outcome, Row, RowState};
use crate::routing::Settings;
use crate::routing::config::{Config, Integration};
use crate::routing::dedup::Reason;
use crate::yaml::Node;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use takt_model::{Labels, Timestamp};

/// Result of the trial of one channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Channel name, `RECEIVER/KIND/NUMBER`.
    pub channel: String,
    /// Address or channel that its messages go to, if it is known.
    pub place: Option<String>,
    /// Result of the test message.
    pub result: TrialResult,
}

/// Result of a test message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialResult {
    /// The service took it.
    Sent,
    /// The service did not take it. Contains the reason.
    Failed(String),
    /// None was sent: this channel has the same settings.
    SameAs(String),
    /// None was sent, for this reason.
    Untested(String),
}

/// The configuration has no channel that could be tried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoChannel {
    /// The configuration has none.
    #[error("no channel is configured; see [alerts] in docs/configuration.md")]
    Configured,
    /// The configuration has others. Contains their names.
    #[error("no such channel; the configured channels are {0}")]
    Named(String),
}

/// Sends a test message through the channels, all at once; through `only` if it is named. `settings` are those of the
/// server whose links the message has.
///
/// # Errors
/// If the configuration has no channel, or no channel of that name.
pub async fn try_channels(
    channels: &Channels,
    routing: &Config,
    settings: &Settings,
    only: Option<&str>,
) -> Result<Vec<Trial>, NoChannel> {
    let same_as = alike(routing);
    let tried: BTreeMap<&str, &dyn Notifier> = channels
        .iter()
        .filter(|(name, _)| only.is_none_or(|only| only == *name))
        .collect();
    if tried.is_empty() {
        let known: Vec<&str> = channels.names().collect();
        return Err(match known.as_slice() {
            [] => NoChannel::Configured,
            known => NoChannel::Named(known.join(", ")),
        });
    }

    let trials = tried.iter().map(|(name, channel)| async {
        let row = row(name, settings, SystemTime::now().into());
        let first = same_as.get(*name);
        // Two receivers may share a channel, and people must not get the test twice.
        let result = match first.filter(|first| tried.contains_key(first.as_str())) {
            Some(first) => TrialResult::SameAs(first.clone()),
            None => try_one(*channel, &row).await,
        };

        let place = channel.place(&row);
        Trial {
            channel: (*name).to_owned(),
            place: place.and_then(|place| place.name),
            result,
        }
    });
    Ok(join_all(trials).await)
}

async fn try_one(channel: &dyn Notifier, row: &Row) -> TrialResult {
    match channel.send(row, None).await {
        Outcome::Sent(_) => TrialResult::Sent,
        Outcome::TryAgain { error, .. } | Outcome::NoAnswer { error } => {
            TrialResult::Failed(format!("failed for now: {error}"))
        }
        Outcome::GiveUp { error } => TrialResult::Failed(format!("refused: {error}")),
        Outcome::NoChannel => TrialResult::Failed(NO_CHANNEL.to_owned()),
        // The mails of owners depend on a job, and a test has none.
        Outcome::NoRecipient { .. } => {
            TrialResult::Untested("it mails the owner of a job".to_owned())
        }
    }
}

/// Channels that have the settings of another one before them, by name, with the name of that one.
fn alike(routing: &Config) -> BTreeMap<String, String> {
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

fn row(channel: &str, settings: &Settings, now: Timestamp) -> Row {
    let texts = [
        (
            "summary",
            "This is a test message of Takt; nothing is broken",
        ),
        ("action", "None. The channel works."),
    ];
    let alert = Alert {
        labels: [("alertname", "TaktTest"), ("severity", "info")]
            .into_iter()
            .collect::<Labels>(),
        annotations: texts
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
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
        receiver: ChannelParts::of(channel).receiver.to_owned(),
        group_key: "{}:{alertname=\"TaktTest\"}".to_owned(),
        reason: Reason::FirstFiring,
        status: Status::Firing,
        group_labels: Labels::new(),
        common_labels: Labels::new(),
        common_annotations: BTreeMap::new(),
        route_labels: Labels::new(),
        external_url: settings.external_url.clone(),
        timezone: settings.timezone.clone(),
        acknowledge_url: None,
        alerts: vec![MessageAlert::new(&alert, now)],
    };

    Row {
        id: next_number(now),
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

/// A number for a test message that no message has: receivers drop one whose number they know. Those of alerts are a thousand
/// times as large.
fn next_number(now: Timestamp) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let by_clock = now.0.max(0).unsigned_abs();
    let after = |last: u64| by_clock.max(last + 1);

    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
        Some(after(last))
    });
    last.map_or(by_clock, after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::first_row;
    use std::time::Duration;

    /// All test messages had the number 0, so receivers took each after the first for a repetition.
    #[test]
    fn each_test_message_has_a_number_of_its_own() {
        let settings = Settings {
            external_url: String::new(),
            timezone: None,
            pages: None,
        };
        let now = Timestamp::from(SystemTime::now());
        // The clock may have been set back between two tests.
        let times = [now, now, now.minus(Duration::from_secs(60))];
        let numbers = times.map(|at| row("ops/webhook/0", &settings, at).id);
        assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
        assert!(numbers[2] < first_row(1, now), "apart from those of alerts");
    }

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
        let routing = Config::read("am.yml", text).unwrap();

        let expected = [("digest/email/0", "operators/email/0")];
        let expected = expected.map(|(one, other)| (one.to_owned(), other.to_owned()));
        assert_eq!(alike(&routing), expected.into());
    }
}
