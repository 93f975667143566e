//! Discovery of targets: lists in the configuration, files, HTTP servers, Slurm.
//!
//! A provider sends its complete list whenever the list may have changed. If a provider fails, its
//! previous list stays in use: a failed discovery must not remove targets.

mod file;
mod http;
mod slurm;

pub use file::FileSdConfig;
pub use http::HttpSdConfig;
pub use slurm::SlurmSdConfig;

use super::job::JobConfig;
use super::metrics::ScrapeMetrics;
use file::FileSd;
use http::HttpSd;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slurm::SlurmSd;
use std::collections::BTreeMap;
use takt_model::ConfigError;
use takt_model::Labels;
use takt_model::shown::shown_address;
use tokio::sync::mpsc;

/// Label with the address of a target.
pub(super) const ADDRESS: &str = "__address__";

/// Targets and the labels that they share: an item of `static_configs`, of a file or of an HTTP
/// server's list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StaticConfig {
    /// Addresses of the targets: `host:port`, or a host alone for port 80 (http) or 443 (https).
    pub targets: Vec<String>,
    /// Labels of all these targets.
    pub labels: BTreeMap<String, String>,
}

impl StaticConfig {
    /// Returns the labels of each target. `about` is an additional label with the source of the
    /// list.
    pub(super) fn discovered(&self, about: Option<(&str, &str)>) -> Vec<Labels> {
        // The targets share the texts of these labels.

        let mut shared: Labels = self.labels.iter().collect();
        about
            .into_iter()
            .for_each(|(name, value)| shared.set(name, value));

        let with_address = |address: &String| {
            let mut labels = shared.clone();
            labels.set(ADDRESS, address);
            labels
        };

        self.targets.iter().map(with_address).collect()
    }
}

/// The result of one provider's read.
#[derive(Debug)]
pub(super) struct ProviderReport {
    /// Index of the provider in its job.
    pub provider: usize,
    /// The complete list; `None` if the provider failed.
    pub targets: Option<Vec<Labels>>,
    /// Why the provider, or a part of it, failed.
    pub problems: Vec<String>,
}

/// A source of targets.
#[derive(Debug, Clone)]
pub(super) enum Provider {
    Static(Vec<Labels>),
    File(FileSd),
    Http(Box<HttpSd>),
    Slurm(SlurmSd),
}

impl Provider {
    /// Returns the providers of one scrape configuration. `key` is the configuration's key, for
    /// messages.
    pub fn all(config: &JobConfig, key: &str) -> Result<Vec<Self>, ConfigError> {
        let place = |list: &str, index| format!("{key}.{list}[{index}]");

        let mut all = Vec::new();
        for (index, list) in config.static_configs.iter().enumerate() {
            if let Some(name) = list.labels.keys().find(|name| name.is_empty()) {
                return Err(ConfigError::new(
                    place("static_configs", index),
                    "labels with names",
                    format!("{name:?}"),
                ));
            }

            // Prometheus also rejects URLs, unless relabelling can make an address of them: probes
            // have them. Such a target from a file or a server is only skipped.
            let is_probed = !config.relabel_configs.is_empty();
            if let Some(target) = list
                .targets
                .iter()
                .find(|target| target.contains('@') || target.contains('/') && !is_probed)
            {
                let key = place("static_configs", index) + ".targets";
                return Err(ConfigError::new(
                    key,
                    "host:port; the rest goes to scheme and metrics_path",
                    shown_address(target),
                ));
            }

            all.push(Self::Static(list.discovered(None)));
        }

        for (index, sd) in config.file_sd_configs.iter().enumerate() {
            all.push(Self::File(FileSd::new(
                sd,
                &place("file_sd_configs", index),
            )?));
        }

        for (index, sd) in config.http_sd_configs.iter().enumerate() {
            all.push(Self::Http(Box::new(HttpSd::new(
                sd,
                &place("http_sd_configs", index),
            )?)));
        }

        all.extend(
            config
                .slurm_sd_configs
                .iter()
                .map(|sd| Self::Slurm(SlurmSd::new(sd))),
        );

        Ok(all)
    }

    /// Returns the list if the configuration contains it.
    pub fn fixed(&self) -> Option<Vec<Labels>> {
        match self {
            Self::Static(targets) => Some(targets.clone()),
            _ => None,
        }
    }

    /// Sends lists until the receiver is dropped. Returns at once if the list cannot change.
    pub async fn run(self, to: Listener) {
        match self {
            Self::Static(_) => {}
            Self::File(files) => files.run(to).await,
            Self::Http(server) => server.run(to).await,
            Self::Slurm(slurm) => slurm.run(to).await,
        }
    }
}

/// Receives the lists and failures of one provider.
#[derive(Debug, Clone)]
pub(super) struct Listener {
    pub provider: usize,
    pub job: String,
    pub found: mpsc::Sender<ProviderReport>,
    pub metrics: ScrapeMetrics,
}

/// The receiver of the lists was dropped.
struct ListenerDropped;

impl Listener {
    /// Sends the result of a read of the whole list. `mechanism` is the configuration's word for the
    /// provider.
    async fn send<E>(
        &self,
        mechanism: &'static str,
        read: Result<Vec<Labels>, E>,
    ) -> Result<(), ListenerDropped>
    where
        E: std::error::Error + 'static,
    {
        match read {
            Ok(targets) => self.report(Some(targets), Vec::new()).await,
            Err(error) => {
                let problem = self.failed(mechanism, &error);
                self.report(None, vec![problem]).await
            }
        }
    }

    async fn report(
        &self,
        targets: Option<Vec<Labels>>,
        problems: Vec<String>,
    ) -> Result<(), ListenerDropped> {
        let report = ProviderReport {
            provider: self.provider,
            targets,
            problems,
        };
        self.found.send(report).await.map_err(|_| ListenerDropped)
    }

    /// Counts and logs a failed read of the list, and returns the error's text.
    fn failed(&self, mechanism: &'static str, error: &(dyn std::error::Error + 'static)) -> String {
        self.metrics.discovery_failed(mechanism);
        let error = takt_model::error_chain(error);
        tracing::warn!(job = %self.job, mechanism, %error, "cannot discover targets; keeping the previous list");
        error
    }
}
