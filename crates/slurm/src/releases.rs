//! Releases of Slurm: the API versions of each, and what changes for a site that Takt watches.
//!
//! Source: SchedMD's release notes and changelogs up to 26.05.3, and the main branch of August 2026 for
//! 26.11.

use std::fmt;
use std::str::FromStr;

/// A release of Slurm: the year and the month of its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    /// Year, two digits.
    pub year: u8,
    /// Month.
    pub month: u8,
}

const fn release(year: u8, month: u8) -> Release {
    Release { year, month }
}

/// Releases since 22.05, oldest first.
pub const RELEASES: &[Release] = &[
    release(22, 5),
    release(23, 2),
    release(23, 11),
    release(24, 5),
    release(24, 11),
    release(25, 5),
    release(25, 11),
    release(26, 5),
    release(26, 11),
];

/// Number of releases back from which Slurm can be upgraded at once.
pub const UPGRADES_FROM: usize = 3;

/// API versions of slurmrestd, the release that brought each, and the release that removed it.
const API_VERSIONS: &[(&str, Release, Option<Release>)] = &[
    ("v0.0.38", release(22, 5), Some(release(24, 5))),
    ("v0.0.39", release(23, 2), Some(release(24, 11))),
    ("v0.0.40", release(23, 11), Some(release(25, 11))),
    ("v0.0.41", release(24, 5), Some(release(26, 5))),
    ("v0.0.42", release(24, 11), Some(release(26, 11))),
    ("v0.0.43", release(25, 5), None),
    ("v0.0.44", release(25, 11), None),
    ("v0.0.45", release(26, 5), None),
    ("v0.0.46", release(26, 11), None),
];

/// A part of Slurm that a site uses, or reads through Takt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlurmUse {
    /// Every site with Slurm.
    Queue,
    /// Job records of slurmdbd.
    Accounting,
    /// slurmrestd.
    Slurmrestd,
    /// Cgroups of jobs, through exporters.
    Cgroups,
    /// Munge, for signing in.
    Munge,
    /// The metrics of slurmctld, as a target.
    ControllerMetrics,
}

/// A change that an administrator should know of before the upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReleaseChange {
    /// The first release with the change.
    pub since: Release,
    /// The part of Slurm that changes.
    pub part: SlurmUse,
    /// The change.
    pub change: &'static str,
    /// The consequence for the site.
    pub cost: &'static str,
    /// Lines to paste.
    pub fix: &'static [&'static str],
}

/// All changes, oldest first.
const CHANGES: &[ReleaseChange] = &[
    ReleaseChange {
        since: release(25, 5),
        part: SlurmUse::Slurmrestd,
        change: "slurmrestd can require TLS since 25.05",
        cost: "Once it does, an address with http:// gets no answer, and Takt reads no jobs.",
        fix: &[
            "url = \"https://…\"        # in [jobs.slurmrestd], when slurmrestd has a certificate",
        ],
    },
    ReleaseChange {
        since: release(25, 11),
        part: SlurmUse::Accounting,
        change: "AllocTRES of finished jobs can be changed afterwards since 25.11 (sacctmgr modify job; flag JOB_ALTERED)",
        cost: "Takt reads each of the last 31 days again within two days; it misses changes of older jobs.",
        fix: &[
            "takt import sacct jobs.txt        # of the days with changes, exported as docs/history.md says",
        ],
    },
    ReleaseChange {
        since: release(25, 11),
        part: SlurmUse::ControllerMetrics,
        change: "slurmctld 25.11.0 to 25.11.4 can crash when its /metrics is read after a partition was deleted",
        cost: "A scrape can end slurmctld.",
        fix: &["slurmctld -V        # 25.11.5 or later, before its port is a target"],
    },
    ReleaseChange {
        since: release(26, 5),
        part: SlurmUse::Cgroups,
        change: "cgroups of jobs are named by the job's SLUID instead of its number since 26.05",
        cost: "takt-exporter reads both, also side by side during the upgrade; scripts and other exporters that look for job_ID find no jobs.",
        fix: &["CgroupJobIdPaths=yes        # in cgroup.conf, if others need the numbers"],
    },
    ReleaseChange {
        since: release(26, 5),
        part: SlurmUse::Queue,
        change: "jobs that wait for a place in the network have reasons of their own instead of Resources since 26.05",
        cost: "Your own rules, boards and queries for the reason Resources count fewer jobs.",
        fix: &[],
    },
    ReleaseChange {
        since: release(26, 5),
        part: SlurmUse::Accounting,
        change: "the memory of a running job can shrink since 26.05 (--mem-update)",
        cost: "Slurm records the last size only, so memory-hours of such a job are less than it held; jobs.mem_bytes_most in SQL has the largest.",
        fix: &[],
    },
    ReleaseChange {
        since: release(26, 5),
        part: SlurmUse::Accounting,
        change: "slurmdbd can be told not to roll up usage since 26.05 (DisableRollups)",
        cost: "sreport then has no hours, and takt reconcile nothing to compare with.",
        fix: &["sacctmgr show config | grep DisableRollups        # No, if you need sreport"],
    },
    ReleaseChange {
        since: release(26, 5),
        part: SlurmUse::Munge,
        change: "packages of Slurm recommend munge since 26.05 and no longer require it",
        cost: "Where munge is not installed, nobody can sign in with takt login.",
        fix: &["systemctl enable --now munge        # on the server's and the users' machines"],
    },
    ReleaseChange {
        since: release(26, 5),
        part: SlurmUse::ControllerMetrics,
        change: "slurmctld's /metrics requires a token if PrivateData is set, and a standby answers 303, since 26.05",
        cost: "A target that is a standby counts as down, and so does each without a token.",
        fix: &[
            "MetricsParameters=ignore_private_data        # in slurm.conf, or MetricsAuthUsers and a token",
        ],
    },
];

impl Release {
    /// Returns the newest release that this program knows.
    pub fn newest() -> Self {
        RELEASES[RELEASES.len() - 1]
    }

    /// Returns the releases from which Slurm can be upgraded to this one, newest first.
    pub fn upgrades_from(self) -> Vec<Self> {
        RELEASES
            .iter()
            .rev()
            .filter(|older| **older < self)
            .take(UPGRADES_FROM)
            .copied()
            .collect()
    }

    /// Returns the changes after the release `from` up to this one.
    pub fn changes_since(self, from: Self) -> impl Iterator<Item = &'static ReleaseChange> {
        CHANGES
            .iter()
            .filter(move |change| change.since > from && change.since <= self)
    }

    /// Returns slurmrestd's API versions in this release, oldest first.
    pub fn api_versions(self) -> Vec<&'static str> {
        API_VERSIONS
            .iter()
            .filter(|(_, since, removed)| {
                *since <= self && removed.is_none_or(|removed| self < removed)
            })
            .map(|(version, ..)| *version)
            .collect()
    }
}

/// A text that names no release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a release of Slurm, such as 26.05")]
pub struct ReleaseError;

impl FromStr for Release {
    type Err = ReleaseError;

    /// Reads `26.05` and versions of it: `26.05.3`, `26.05.0-0rc1`.
    fn from_str(text: &str) -> Result<Self, ReleaseError> {
        let mut parts = text.trim().split('.');
        // Text behind the second dot names a version within the release.
        let mut number = || parts.next()?.parse().ok();

        let (year, month) = number().zip(number()).ok_or(ReleaseError)?;
        // The ranges refuse version numbers of other programs, such as 4.1.
        if (15..=99).contains(&year) && (1..=12).contains(&month) {
            Ok(Self { year, month })
        } else {
            Err(ReleaseError)
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.year, self.month)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_in_text() {
        for (text, release) in [
            ("26.05", "26.05"),
            ("22.05.8", "22.05"),
            ("26.05.0-0rc1", "26.05"),
            ("25.11.7", "25.11"),
        ] {
            assert_eq!(text.parse::<Release>().unwrap().to_string(), release);
        }
        // No month, no dot, no number, an invalid month, and a year of four digits.
        for text in ["", "26", "slurm", "26.13", "2026.05", "26.x"] {
            assert_eq!(text.parse::<Release>(), Err(ReleaseError), "{text}");
        }
    }

    #[test]
    fn each_release_has_its_api_versions_and_its_way_back() {
        let of = |text: &str| text.parse::<Release>().unwrap();
        // The oldest release, one between, and one in which an API version was removed.
        assert_eq!(of("22.05").api_versions(), ["v0.0.38"]);
        assert_eq!(
            of("25.11").api_versions(),
            ["v0.0.41", "v0.0.42", "v0.0.43", "v0.0.44"]
        );
        assert_eq!(
            of("26.05").api_versions(),
            ["v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"]
        );

        assert_eq!(
            of("26.05").upgrades_from(),
            [of("25.11"), of("25.05"), of("24.11")]
        );
        // The lists are searched in order.
        assert!(CHANGES.is_sorted_by_key(|change| change.since));
        assert!(RELEASES.is_sorted());
        assert!(
            CHANGES
                .iter()
                .all(|change| RELEASES.contains(&change.since))
        );

        let since = |from: &str| of("26.05").changes_since(of(from)).count();
        assert_eq!(since("26.05"), 0);
        assert_eq!(since("25.11"), 6);
        assert_eq!(since("22.05"), CHANGES.len());
    }
}
