//! The checks of a running server, and what only it knows.

use crate::config::Unread;
use crate::slurm_roles::UnknownPrivacy;
use crate::{Config, CurrentConfig};
use std::sync::{Arc, Weak};
use takt_collector::schedulers::PollStatus;
use takt_collector::scrape::{DiscoveryProblem, ScrapeManager, TargetStatus};
use tokio::sync::watch;

/// Makes the checks of the configuration in force.
#[derive(Debug, Clone, Default)]
pub struct ServerDoctor {
    config: CurrentConfig,
    pub(super) live: LiveSources,
}

impl ServerDoctor {
    /// Checks this configuration. `live` is empty without a running server.
    pub fn new(config: CurrentConfig, live: LiveSources) -> Self {
        Self { config, live }
    }

    pub(super) fn config(&self) -> Arc<Config> {
        self.config.get()
    }

    /// Returns what was changed in the configuration after the server read it.
    pub(super) fn unread(&self) -> Unread {
        self.config.unread()
    }
}

/// Why targets and Slurm did not answer: series have no texts of errors.
#[derive(Debug, Clone, Default)]
pub struct LiveSources {
    /// The targets.
    pub targets: Weak<ScrapeManager>,
    /// State of the scheduler poller; `None` without a scheduler.
    pub polls: Option<watch::Receiver<PollStatus>>,
    /// Why Slurm's `PrivateData` is not known.
    pub unknown_privacy: UnknownPrivacy,
}

impl LiveSources {
    /// Returns the targets whose last scrape failed.
    pub(super) fn failing_targets(&self) -> Vec<TargetStatus> {
        let scrape = self.targets.upgrade();
        let mut targets = scrape.map(|scrape| scrape.targets()).unwrap_or_default();
        targets.retain(|target| target.error.is_some());
        targets
    }

    /// Returns why lists of targets cannot be read, and listed targets not be scraped.
    pub(super) fn discovery_problems(&self) -> Vec<DiscoveryProblem> {
        let scrape = self.targets.upgrade();
        scrape.map_or_else(Vec::new, |scrape| scrape.discovery_problems())
    }

    /// Returns the state of the poller; the default without one.
    pub(super) fn slurm(&self) -> PollStatus {
        self.polls
            .as_ref()
            .map(|polls| polls.borrow().clone())
            .unwrap_or_default()
    }
}
