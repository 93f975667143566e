//! Delivery: hands messages to their channels, all channels at once. The outbox gives each channel
//! one message at a time.

use super::AlertMetrics;
use super::handle::{Handle, Work};
use crate::notify::ChannelPlace;
use crate::notify::channels::Channels;
use crate::notify::http::{HttpOptions, HttpSender};
use crate::outbox::{Outcome, Row};
use crate::ports::StoreError;
use std::sync::Arc;
use std::time::Duration;
use takt_model::error_chain;

/// Sends messages in the background.
pub(super) struct Delivery {
    pub channels: Arc<Channels>,
    heartbeats: HttpSender,
    runtime: tokio::runtime::Handle,
    engine: Handle,
    metrics: AlertMetrics,
}

impl Delivery {
    pub fn new(
        channels: Channels,
        runtime: tokio::runtime::Handle,
        engine: Handle,
        metrics: AlertMetrics,
    ) -> Result<Self, StoreError> {
        let heartbeats = HttpSender::new(&HttpOptions::default())
            .map_err(|error| StoreError(error_chain(&error)))?;
        Ok(Self {
            channels: Arc::new(channels),
            heartbeats,
            runtime,
            engine,
            metrics,
        })
    }

    /// Where a link in the row goes, for the record of who acknowledged by it: `Slack link sent to #ops`.
    pub fn acknowledge_place(&self, row: &Row) -> Option<String> {
        let ChannelPlace { service, name } = self.channels.get(&row.channel)?.place(row)?;
        let name = name.unwrap_or_else(|| format!("receiver {}", row.message.receiver));
        Some(format!("{service} link sent to {name}"))
    }

    /// Sends a row. The outcome comes back as work for the engine.
    pub fn send(&self, row: Row, thread: Option<String>) {
        let channels = Arc::clone(&self.channels);
        let engine = self.engine.clone();
        self.runtime.spawn(async move {
            // A reload may have removed the channel since the message was decided.
            let (outcome, pause) = match channels.get(&row.channel) {
                Some(channel) => {
                    let thread = thread.as_deref();
                    (
                        channel.send(&row, thread).await,
                        channel.pause(&row, thread),
                    )
                }
                None => (Outcome::NoChannel, Duration::ZERO),
            };

            log(&row, &outcome);
            // The engine is gone only when the process ends; the row is sent again after the start.
            let _ = engine.put_always(Work::Answered {
                row: Box::new(row),
                outcome,
                pause,
            });
        });
    }

    /// Requests the heartbeat's URL.
    pub fn beat(&self, url: String) {
        let sender = self.heartbeats.clone();
        let metrics = self.metrics.clone();
        self.runtime.spawn(async move {
            let answer = sender.get(&url).await;
            metrics.beat(answer.is_ok());
            if let Err(error) = answer {
                tracing::warn!(%error, "heartbeat failed");
            }
        });
    }
}

fn log(row: &Row, outcome: &Outcome) {
    let id = row.id;
    let channel = row.channel.as_str();
    match outcome {
        Outcome::Sent(_) => tracing::info!(id, channel, "message sent"),
        Outcome::TryAgain { error, .. } | Outcome::NoAnswer { error } => {
            tracing::warn!(id, channel, error, "message not sent; trying again");
        }
        Outcome::NoRecipient { error } => {
            tracing::info!(id, channel, error, "message has no recipient");
        }
        Outcome::GiveUp { error } => {
            tracing::error!(id, channel, error, "the channel refused the message");
        }
        Outcome::NoChannel => {
            tracing::error!(
                id,
                channel,
                "the configuration has no such channel any more"
            );
        }
    }
}
