//! Samples that other programs push: from decoded series to durable samples.
//!
//! Each sender has its own token, its own labels and its own group of series in the store. The
//! server reads the requests (`crates/server/src/http/push.rs`) and sends the replies.

mod config;
mod delta;
mod metrics;
mod places;
mod replica;
mod sender;

pub use config::{PushConfig, SenderConfig};
pub use metrics::{PushMetrics, RejectReason};
pub use sender::{PushReport, Sender};

use std::sync::Arc;
use std::time::Duration;
use takt_store::Store;

/// How often old samples are removed from memory.
const AGING_INTERVAL: Duration = Duration::from_secs(30);

/// All senders.
#[derive(Debug)]
pub struct Senders {
    all: Vec<Arc<Sender>>,
    metrics: PushMetrics,
}

impl Senders {
    /// Returns the configured senders. `cluster` becomes the label of series without one.
    pub fn new(
        config: &PushConfig,
        cluster: &str,
        store: &Arc<Store>,
        metrics: PushMetrics,
    ) -> Self {
        let senders = config.senders.iter();

        let of = |sender| Arc::new(Sender::new(config, sender, cluster, store, &metrics));
        Self {
            all: senders.map(of).collect(),
            metrics,
        }
    }

    /// Returns the sender with this name.
    pub fn named(&self, name: &str) -> Option<&Arc<Sender>> {
        self.all.iter().find(|sender| sender.name() == name)
    }

    /// Names of the senders.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|sender| sender.name())
    }

    /// Metrics of all senders.
    pub fn metrics(&self) -> &PushMetrics {
        &self.metrics
    }

    /// Removes old samples from memory until the future is dropped.
    pub async fn keep_aging(&self) {
        loop {
            tokio::time::sleep(AGING_INTERVAL).await;
            for sender in &self.all {
                let sender = Arc::clone(sender);
                // A panic is logged by the runtime; the next round tries again.
                let _ = takt_store::spawn_blocking(move || sender.age()).await;
            }
        }
    }
}
