//! A live Slurm on this machine, asked through `sacct`.
//!
//! Every answer is imported like a file, so asking twice does no harm, and each question goes back to the last success
//! that is at least a look-back old. That covers records which reach slurmdbd late, and an outage closes by itself:
//! for a look-back after it, questions still go back to before it, while slurmctld hands in what it kept.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Where job records come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobsConfig {
    /// Whether the Slurm of this machine, if there is one, is asked for its jobs.
    pub poll: bool,
    /// Seconds between two questions.
    pub interval_seconds: u64,
    /// Seconds that every question goes back beyond the last answer; records may reach slurmdbd that late.
    pub look_back_seconds: u64,
    /// Seconds after which a question is given up.
    pub timeout_seconds: u64,
    /// Days of history that the first question goes back.
    pub history_days: u32,
    /// Directory of `sacct` and `scontrol`; else where PATH says.
    pub slurm_bin: Option<PathBuf>,
}

impl Default for JobsConfig {
    fn default() -> Self {
        Self {
            poll: true,
            interval_seconds: 60,
            look_back_seconds: 3600,
            timeout_seconds: 60,
            history_days: 92,
            slurm_bin: None,
        }
    }
}

/// A configuration that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: expected {expected}, found {found}")]
pub struct JobsConfigError {
    key: &'static str,
    expected: &'static str,
    found: u64,
}

impl JobsConfig {
    /// What no type can say.
    ///
    /// # Errors
    /// The first key whose value makes no sense.
    pub fn validate(&self) -> Result<(), JobsConfigError> {
        let seconds = [
            ("interval_seconds", self.interval_seconds),
            ("look_back_seconds", self.look_back_seconds),
            ("timeout_seconds", self.timeout_seconds),
        ];
        match seconds.into_iter().find(|(_, seconds)| !(1..=86_400).contains(seconds)) {
            Some((key, found)) => Err(JobsConfigError { key, expected: "1 second to a day", found }),
            None if self.look_back_seconds < self.interval_seconds => Err(JobsConfigError {
                key: "look_back_seconds",
                expected: "at least interval_seconds",
                found: self.look_back_seconds,
            }),
            None => Ok(()),
        }
    }
}
