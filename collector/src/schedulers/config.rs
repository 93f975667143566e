//! `[jobs]` of `takt.toml`.

use super::slurmrestd::SlurmrestdConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use takt_model::ConfigError;

/// Where job records come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobsConfig {
    /// Read jobs from the Slurm of this machine, if it has one.
    pub poll: bool,
    /// Seconds between two polls.
    pub interval_seconds: u64,
    /// Seconds that each poll reads again before the previous one, for records that reach slurmdbd
    /// late.
    pub look_back_seconds: u64,
    /// Seconds after which a poll is cancelled.
    pub timeout_seconds: u64,
    /// Days of history that the first poll reads.
    pub history_days: u32,
    /// Directory of `sacct`, `squeue` and `scontrol`. Default: PATH.
    pub slurm_bin: Option<PathBuf>,
    /// Job completion file of a cluster without slurmdbd (`JobCompType=jobcomp/filetxt`), read
    /// instead of asking slurmdbd. Default: the file that slurm.conf names, if the cluster has no
    /// slurmdbd.
    pub jobcomp_file: Option<PathBuf>,
    /// A slurmrestd to read jobs from, instead of Slurm's commands on this machine.
    pub slurmrestd: SlurmrestdConfig,
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
            jobcomp_file: None,
            slurmrestd: SlurmrestdConfig::default(),
        }
    }
}

impl JobsConfig {
    /// Checks that types cannot express: ranges and references between keys.
    ///
    /// # Errors
    /// The first key with an invalid value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let seconds = [
            ("interval_seconds", self.interval_seconds),
            ("look_back_seconds", self.look_back_seconds),
            ("timeout_seconds", self.timeout_seconds),
        ];

        if let Some((key, found)) = seconds
            .into_iter()
            .find(|(_, seconds)| !(1..=MAX_SECONDS).contains(seconds))
        {
            return Err(ConfigError::new(key, format!("1 to {MAX_SECONDS}"), found));
        }

        if self.look_back_seconds < self.interval_seconds {
            let expected = format!("at least interval_seconds ({})", self.interval_seconds);
            return Err(ConfigError::new(
                "look_back_seconds",
                expected,
                self.look_back_seconds,
            ));
        }

        self.slurmrestd.validate()
    }
}

/// Maximum of each period in a [`JobsConfig`], in seconds: a day. The store keeps the poll history
/// for so long.
const MAX_SECONDS: u64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_makes_no_sense_says_which_key() {
        assert_eq!(JobsConfig::default().validate(), Ok(()));
        let said = |config: JobsConfig| config.validate().unwrap_err().to_string();
        let zero = JobsConfig {
            timeout_seconds: 0,
            ..JobsConfig::default()
        };
        assert_eq!(said(zero), "timeout_seconds: expected 1 to 86400, found 0");
        let short = JobsConfig {
            look_back_seconds: 30,
            ..JobsConfig::default()
        };
        assert_eq!(
            said(short),
            "look_back_seconds: expected at least interval_seconds (60), found 30"
        );
    }
}
