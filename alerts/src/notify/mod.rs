//! Notifiers: one file each, all of them in [`NOTIFIERS`].
//!
//! To add a notifier, write its file with a [`NotifierKind`] and add a line to [`NOTIFIERS`]. The
//! shared tests in `suite` then run against it.

pub mod channels;
pub mod email;
#[cfg(test)]
mod hostile;
pub mod http;
mod http_config;
mod looks;
pub mod ntfy;
pub mod owner;
mod payload;
#[cfg(test)]
mod settings_tests;
pub mod slack;
#[cfg(test)]
pub(crate) mod suite;
pub mod trial;
pub mod webhook;
pub(crate) mod wording;
mod words;

pub use wording::Wording;
pub(crate) use words::shortened;
pub use words::{Part, instant, link, parts, severity_rank, subject, text};

use crate::outbox::{Outcome, Row};
use crate::yaml::{Mistake, Node};
use channels::ChannelContext;
use futures_util::future::BoxFuture;
use std::time::Duration;

/// Text of the link that leads to the page that acknowledges alerts.
const ACKNOWLEDGE: &str = "Acknowledge";

/// All notifiers.
pub const NOTIFIERS: &[&NotifierKind] = &[
    &email::KIND,
    &slack::KIND,
    &webhook::KIND,
    &ntfy::KIND,
    &owner::KIND,
];

/// Builds a channel from the settings of one entry.
pub type BuildChannel = fn(&Node, &ChannelContext<'_>) -> Result<Box<dyn Notifier>, Mistake>;

/// A kind of notifier: its name in configurations, and the function that builds a channel from
/// settings.
pub struct NotifierKind {
    /// Name in channel names: `slack` in `ops/slack/0`.
    pub name: &'static str,
    /// Key of the list of settings in a receiver: `slack_configs`.
    pub config_key: &'static str,
    /// Default of `send_resolved`.
    pub sends_resolved: bool,
    /// A small valid configuration in YAML; `{server}` stands for HOST:PORT of the service. The
    /// shared tests use it.
    pub example: &'static str,
    /// Splits one entry of the list into the settings of its channels.
    pub split: fn(&Node) -> Vec<Node>,
    /// Builds the channel.
    pub build: BuildChannel,
}

impl NotifierKind {
    /// The kind whose settings are under this key of a receiver.
    pub fn with_key(config_key: &str) -> Option<&'static Self> {
        NOTIFIERS
            .iter()
            .copied()
            .find(|kind| kind.config_key == config_key)
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        NOTIFIERS.iter().copied().find(|kind| kind.name == name)
    }
}

/// One entry of a receiver's list is one channel.
fn no_split(settings: &Node) -> Vec<Node> {
    vec![settings.clone()]
}

/// Where the messages of a channel go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelPlace {
    /// The service, as people call it: `Slack`.
    pub service: &'static str,
    /// Address or channel. `None` if only the service knows it, as with a webhook.
    pub name: Option<String>,
}

/// A channel that is ready to send.
pub trait Notifier: Send + Sync {
    /// Sends one row. `thread` is the channel's name of the first message about the same group, if
    /// this row belongs below it.
    fn send<'a>(&'a self, row: &'a Row, thread: Option<&'a str>) -> BoxFuture<'a, Outcome>;

    /// Average time between two messages that the service asks for.
    fn pause(&self, _row: &Row, _thread: Option<&str>) -> Duration {
        Duration::ZERO
    }

    /// Where the messages go, and people may acknowledge alerts by a link in them. `None` if messages of this channel have
    /// no such link.
    fn place(&self, _row: &Row) -> Option<ChannelPlace> {
        None
    }

    /// Whether messages that another channel refused for good may be sent here.
    fn is_fallback(&self) -> bool {
        true
    }
}
