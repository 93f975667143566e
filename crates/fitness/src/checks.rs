//! The file of checks: what this node must have, and what a failed check means.

use crate::judge::CHECKS;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The checks of a node, in TOML. Without a file, these defaults apply.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Checks {
    /// Age in seconds beyond which a reading of the exporter proves nothing.
    pub max_age_seconds: f64,
    /// What a failed check means, by its name; others keep their default.
    pub checks: BTreeMap<String, Action>,
    /// What the GPUs must be like.
    pub gpus: GpuChecks,
    /// File systems that must be mounted.
    pub mounts: Vec<MountCheck>,
    /// Links that must have a speed.
    pub links: Vec<LinkCheck>,
    /// NFS mounts.
    pub nfs: NfsChecks,
    /// The clock.
    pub clock: ClockChecks,
}

impl Default for Checks {
    fn default() -> Self {
        let root = MountCheck {
            path: "/".to_owned(),
            min_free_bytes: 1 << 30,
            ..MountCheck::default()
        };
        Self {
            max_age_seconds: 60.0,
            checks: BTreeMap::new(),
            gpus: GpuChecks::default(),
            mounts: vec![root],
            links: Vec::new(),
            nfs: NfsChecks::default(),
            clock: ClockChecks::default(),
        }
    }
}

/// What a failed check means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The node is not fit.
    Fail,
    /// A line is printed, and the node stays fit.
    Warn,
    /// The check is left out.
    Off,
}

/// What the GPUs must be like.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GpuChecks {
    /// Number of GPUs of the node. Without it, those count that the exporter has seen before.
    pub count: Option<u32>,
    /// Active NVLinks that each GPU must have. Without it they are not checked.
    pub nvlinks: Option<u32>,
    /// XIDs after which a GPU is not fit for a job.
    pub xids: Vec<u32>,
    /// Seconds for which such an XID counts.
    pub xid_seconds: f64,
}

impl Default for GpuChecks {
    /// NVIDIA's classes that need a reset, a reboot or a repair. Mistakes of programs (13, 31, 43 and the like) are
    /// not among them: a user could drain nodes with them.
    fn default() -> Self {
        Self {
            count: None,
            nvlinks: None,
            xids: vec![
                46, 48, 54, 61, 62, 64, 74, 79, 95, 119, 120, 136, 140, 143, 155, 156, 158,
            ],
            xid_seconds: 900.0,
        }
    }
}

/// A file system that must be mounted, answer and have space.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MountCheck {
    /// The mount point.
    pub path: String,
    /// Whether it must be writable.
    pub writable: bool,
    /// Free bytes that it must have for users.
    pub min_free_bytes: u64,
    /// Free share of its size that it must have for users, from 0 to 1.
    pub min_free_ratio: f64,
}

impl Default for MountCheck {
    fn default() -> Self {
        Self {
            path: String::new(),
            writable: true,
            min_free_bytes: 0,
            min_free_ratio: 0.0,
        }
    }
}

/// A link that must be up, with a speed.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkCheck {
    /// Name of the link, such as `eth0`; device and port of an InfiniBand device, such as `mlx5_0/1`.
    pub device: String,
    /// The lowest speed, in bits per second.
    pub min_bits_per_second: f64,
}

/// NFS mounts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NfsChecks {
    /// Seconds without an answer after which a server counts as gone.
    pub max_hung_seconds: f64,
}

impl Default for NfsChecks {
    fn default() -> Self {
        Self {
            max_hung_seconds: 30.0,
        }
    }
}

/// The clock.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClockChecks {
    /// Largest offset from the time server, in seconds.
    pub max_offset_seconds: f64,
}

impl Default for ClockChecks {
    fn default() -> Self {
        Self {
            max_offset_seconds: 0.5,
        }
    }
}

/// The file of checks cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ChecksError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not what is expected.
    #[error("{}: {problem}", path.display())]
    Mistake {
        /// The file.
        path: PathBuf,
        /// The mistake, on one line.
        problem: String,
    },
}

impl Checks {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// With the mistake, on one line, if a key is unknown or a value cannot be.
    pub fn parse(text: &str) -> Result<Self, String> {
        let checks: Self = toml::from_str(text).map_err(|error| one_line(&error, text))?;
        checks.validate().map(|()| checks)
    }

    /// What it means if this check fails.
    pub fn action(&self, name: &str) -> Action {
        let configured = self.checks.get(name).copied();
        let default = || CHECKS.iter().find(|check| check.name == name);
        configured
            .or_else(|| default().map(|check| check.by_default))
            .unwrap_or(Action::Fail)
    }

    /// Whether the check has nothing to compare with, so that it passes whatever the node is like.
    pub(crate) fn asks_nothing_of(&self, name: &str) -> bool {
        match name {
            "gpu_count" => self.gpus.count.is_none(),
            "gpu_nvlink" => self.gpus.nvlinks.is_none(),
            "links" => self.links.is_empty(),
            "mounts" => self.mounts.is_empty(),
            _ => false,
        }
    }

    fn validate(&self) -> Result<(), String> {
        let known = |name: &&String| !CHECKS.iter().any(|check| check.name == **name);
        // A misspelt name would leave the check as it is, without a word.
        if let Some(name) = self.checks.keys().find(known) {
            let names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
            return Err(format!(
                "checks.{name}: no such check; there are {}",
                names.join(", ")
            ));
        }

        let numbers = [
            ("max_age_seconds", self.max_age_seconds),
            ("gpus.xid_seconds", self.gpus.xid_seconds),
            ("nfs.max_hung_seconds", self.nfs.max_hung_seconds),
            ("clock.max_offset_seconds", self.clock.max_offset_seconds),
        ];
        // NaN compares false with everything, and would pass each limit.
        let not_positive = |(_, value): &&(&str, f64)| !(*value > 0.0 && value.is_finite());
        if let Some((key, value)) = numbers.iter().find(not_positive) {
            return Err(format!("{key}: expected more than 0, found {value}"));
        }

        for (at, mount) in self.mounts.iter().enumerate() {
            if !mount.path.starts_with('/') {
                return Err(format!(
                    "mounts[{at}].path: expected an absolute path, found {:?}",
                    mount.path
                ));
            }
            if !(0.0..1.0).contains(&mount.min_free_ratio) {
                return Err(format!(
                    "mounts[{at}].min_free_ratio: expected 0 to 1, found {}",
                    mount.min_free_ratio
                ));
            }
        }
        for (at, link) in self.links.iter().enumerate() {
            if link.device.is_empty() {
                return Err(format!("links[{at}].device: expected the name of a link"));
            }
            if !(0.0..f64::INFINITY).contains(&link.min_bits_per_second) {
                return Err(format!(
                    "links[{at}].min_bits_per_second: expected 0 or more, found {}",
                    link.min_bits_per_second
                ));
            }
        }
        Ok(())
    }
}

/// The mistake of a TOML file with its line.
fn one_line(error: &toml::de::Error, text: &str) -> String {
    // Slurm logs the output of a prolog line by line.
    let message = error.message().replace('\n', " ");
    let Some(span) = error.span() else {
        return message;
    };
    let before = text.get(..span.start).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    format!("line {line}: {message}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_is_named_on_one_line() {
        for (text, said) in [
            ("gpu = 8", "line 1: unknown field `gpu`"),
            ("[gpus]\ncount = \"8\"", "line 2: invalid type: string"),
            (
                "[checks]\ngpu_upp = \"off\"",
                "checks.gpu_upp: no such check; there are readings",
            ),
            ("[checks]\ngpu_up = \"drain\"", "line 2: unknown variant"),
            ("[[mounts]]\npath = \"home\"", "mounts[0].path: expected an"),
            (
                "[[mounts]]\npath = \"/\"\nmin_free_ratio = 5",
                "mounts[0].min_free_ratio: expected 0 to 1",
            ),
            ("[[links]]\nmin_bits_per_second = 1e9", "links[0].device"),
            ("max_age_seconds = nan", "max_age_seconds: expected more"),
            ("[clock]\nmax_offset_seconds = 0", "clock.max_offset"),
        ] {
            let found = Checks::parse(text).unwrap_err();
            assert!(found.starts_with(said), "{text}: {found}");
            assert!(!found.contains('\n'), "{found}");
        }
    }

    #[test]
    fn an_empty_file_has_the_defaults_and_no_mounts_means_none() {
        assert_eq!(Checks::parse("").unwrap(), Checks::default());
        assert_eq!(Checks::parse("mounts = []").unwrap().mounts, []);
    }
}
