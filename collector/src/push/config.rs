//! `[push]` of `takt.toml`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use takt_model::{ConfigError, Labels, METRIC_NAME};

/// Programs that push samples, by Prometheus remote write or OTLP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PushConfig {
    /// Largest body of a request, in MiB.
    pub max_body_mib: usize,
    /// Largest message of a request after decompression, in MiB.
    pub max_message_mib: usize,
    /// Requests that are read at the same time; one of several senders has half of them at most.
    /// Others wait for five seconds and are then answered with 503 (OTLP: 429).
    pub max_requests: usize,
    /// Age up to which late samples are stored, in hours. At most `store.retention_days`.
    pub max_age_hours: u64,
    /// The programs. Without any, every push is refused.
    pub senders: Vec<SenderConfig>,
}

impl Default for PushConfig {
    fn default() -> Self {
        Self {
            max_body_mib: 16,
            max_message_mib: 64,
            max_requests: 16,
            max_age_hours: 24,
            senders: Vec::new(),
        }
    }
}

/// A program that pushes samples, or several that share a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SenderConfig {
    /// Name in metrics and logs.
    pub name: String,
    /// File with the sender's token: a bearer token, or the password of basic authentication with
    /// any user name. At least 16 characters. Not in the data directory.
    pub token_file: PathBuf,
    /// Labels that the server sets on every series of this sender, in place of what the sender
    /// says. Other senders cannot write series with all of these labels. Default: `sender`, with
    /// the name.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
    /// Series of the last minutes. Samples of further series are refused.
    #[serde(default = "max_series")]
    pub max_series: usize,
    /// Label with the name of a replica, such as `__replica__`. The samples of one replica
    /// are stored, without this label. If it sends nothing for 30 seconds, another takes over.
    #[serde(default)]
    pub replica_label: Option<String>,
    /// OTLP resource attributes that become labels of every series, such as `slurm.job_id`.
    #[serde(default)]
    pub promote_resource_attributes: Vec<String>,
}

fn max_series() -> usize {
    200_000
}

impl PushConfig {
    /// Checks that types cannot express.
    ///
    /// # Errors
    /// The first key that is out of range.
    pub fn validate(&self, retention_days: u64) -> Result<(), ConfigError> {
        for (key, value, most) in [
            ("max_body_mib", self.max_body_mib as u64, 1024),
            ("max_message_mib", self.max_message_mib as u64, 1024),
            ("max_requests", self.max_requests as u64, 1000),
            // An older sample would be deleted soon after it is stored.
            ("max_age_hours", self.max_age_hours, retention_days * 24),
        ] {
            if !(1..=most).contains(&value) {
                return Err(ConfigError::new(key, format!("1 to {most}"), value));
            }
        }

        // Each sender is compared with those before it, so that a duplicate is reported once.
        for (at, sender) in self.senders.iter().enumerate() {
            sender
                .validate(&self.senders[..at])
                .map_err(|error| error.in_list("senders.", "senders", at))?;
        }
        Ok(())
    }

    /// Largest body, in bytes.
    pub fn max_body_bytes(&self) -> usize {
        self.max_body_mib << 20
    }

    /// Largest decompressed message, in bytes.
    pub fn max_message_bytes(&self) -> usize {
        self.max_message_mib << 20
    }

    /// Age of the oldest sample that is stored.
    pub fn max_age(&self) -> Duration {
        Duration::from_secs(self.max_age_hours * 3600)
    }
}

impl SenderConfig {
    fn validate(&self, earlier: &[Self]) -> Result<(), ConfigError> {
        if self.name.trim().is_empty() {
            return Err(ConfigError::new("name", "a name", "an empty one"));
        }
        if self.max_series == 0 {
            return Err(ConfigError::new("max_series", "at least 1", 0));
        }

        // The name of the metric is a label, too, but one that all series of a sender cannot share.
        let is_no_label = |name: &&String| name.is_empty() || *name == METRIC_NAME;
        let mut names = self.labels.iter().flat_map(BTreeMap::keys);
        if let Some(name) = names.find(is_no_label) {
            let found = format!("{name:?}");
            return Err(ConfigError::new("labels", "names of labels", found));
        }

        // A label cannot be removed as the replica's name and set on every series at once.
        if let Some(name) = &self.replica_label {
            let expected = "the name of a label that is not in `labels`";
            let is_fixed = self.fixed_labels().get(name).is_some();
            if is_no_label(&name) || is_fixed {
                let found = format!("{name:?}");
                return Err(ConfigError::new("replica_label", expected, found));
            }
        }
        if self
            .promote_resource_attributes
            .iter()
            .any(String::is_empty)
        {
            let expected = "names of resource attributes";
            return Err(ConfigError::new(
                "promote_resource_attributes",
                expected,
                "an empty one",
            ));
        }
        if earlier.iter().any(|one| one.name == self.name) {
            let found = format!("{} twice", self.name);
            return Err(ConfigError::new("name", "a name for each sender", found));
        }

        // The token identifies its sender, so two senders need two.
        let file = &self.token_file;
        if earlier.iter().any(|one| one.token_file == *file) {
            let expected = "a file for each sender";
            let found = format!("{} twice", file.display());
            return Err(ConfigError::new("token_file", expected, found));
        }
        Ok(())
    }

    /// The labels that the server sets.
    pub fn fixed_labels(&self) -> Labels {
        match &self.labels {
            Some(labels) => labels.iter().collect(),
            None => [("sender", &self.name)].into_iter().collect(),
        }
    }
}
