//! Compares Takt's hours with `sreport`'s, with a reason for each difference.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use takt_jobs::SreportKey;

/// Facts about a user's runs in the period that may explain a difference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// CPUs × seconds of suspension, which Slurm subtracts.
    pub suspended_cpu_seconds: u64,
    /// Number of runaway runs: past their time limit without an end. Slurm counts them until an
    /// operator ends them.
    pub runaway_runs: u64,
    /// Number of unfinished runs. Slurm has counted them up to the last full hour.
    pub open_runs: u64,
    /// Number of runs with an unknown number of GPUs.
    pub gpu_unknown_runs: u64,
    /// Number of resized jobs. Slurm counts their time before the resize twice.
    pub resized_jobs: u64,
    /// CPUs × seconds of unused reservations that the user owned.
    pub reserved_idle_cpu_seconds: u64,
    /// CPUs × seconds since the last full hour, which Slurm has not counted yet.
    pub uncounted_cpu_seconds: u64,
    /// GPUs × seconds since the last full hour.
    pub uncounted_gpu_seconds: u64,
}

/// One row of the comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// User, account, resource and part.
    #[serde(flatten)]
    pub key: SreportKey,
    /// Seconds by Takt's records.
    pub ours: u64,
    /// Seconds by `sreport`.
    pub sreport: u64,
    /// `ours` minus `sreport`.
    pub difference: i64,
    /// Reason of the difference. Empty without one.
    pub reason: String,
}

/// Compares both sides, row by row. `with_reservations` says whether the period had reservations.
pub fn reconcile(
    ours: &BTreeMap<SreportKey, u64>,
    theirs: &BTreeMap<SreportKey, u64>,
    circumstances: &BTreeMap<(String, String), Circumstances>,
    with_reservations: bool,
) -> Vec<Line> {
    let keys: BTreeSet<&SreportKey> = ours.keys().chain(theirs.keys()).collect();
    // The circumstances of one user also apply to the whole cluster.
    let of_all = circumstances
        .values()
        .fold(Circumstances::default(), |all, one| Circumstances {
            suspended_cpu_seconds: all.suspended_cpu_seconds + one.suspended_cpu_seconds,
            runaway_runs: all.runaway_runs + one.runaway_runs,
            open_runs: all.open_runs + one.open_runs,
            gpu_unknown_runs: all.gpu_unknown_runs + one.gpu_unknown_runs,
            resized_jobs: all.resized_jobs + one.resized_jobs,
            // Both sides count charges to owners as part of the cluster's allocated time.
            reserved_idle_cpu_seconds: 0,
            uncounted_cpu_seconds: all.uncounted_cpu_seconds + one.uncounted_cpu_seconds,
            uncounted_gpu_seconds: all.uncounted_gpu_seconds + one.uncounted_gpu_seconds,
        });
    let line = |key: &SreportKey| {
        let ours = ours.get(key).copied();
        let sreport = theirs.get(key).copied();
        let of_user = circumstances
            .get(&(key.account.clone(), key.user.clone()))
            .copied();
        let known = if key.user.is_empty() {
            of_all
        } else {
            of_user.unwrap_or_default()
        };
        // The difference of two unsigned numbers needs a sign and more bits.
        let difference = i128::from(ours.unwrap_or(0)) - i128::from(sreport.unwrap_or(0));
        let difference =
            i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX });
        let reason = if difference == 0 {
            String::new()
        } else {
            reason(key, ours, sreport, difference, known, with_reservations)
        };
        Line {
            key: key.clone(),
            ours: ours.unwrap_or(0),
            sreport: sreport.unwrap_or(0),
            difference,
            reason,
        }
    };
    keys.into_iter().map(line).collect()
}

/// Returns whether two amounts of seconds are the same but for the moments at which they were read.
fn is_about(one: u64, other: u64) -> bool {
    other > 0 && one.abs_diff(other) <= other / 20
}

fn reason(
    key: &SreportKey,
    ours: Option<u64>,
    sreport: Option<u64>,
    difference: i64,
    known: Circumstances,
    with_reservations: bool,
) -> String {
    let is_gpu = key.resource.starts_with("gres/gpu");
    if key.part == "planned" && is_gpu {
        return "Slurm counts waiting for CPUs only".to_owned();
    }

    // An amount that equals the difference explains it; what could also be a cause comes later.
    let uncounted = if is_gpu {
        known.uncounted_gpu_seconds
    } else {
        known.uncounted_cpu_seconds
    };
    let counts_runs = matches!(key.part.as_str(), "used" | "allocated");
    if counts_runs && difference > 0 && is_about(difference.unsigned_abs(), uncounted) {
        return format!(
            "the last hour: Slurm has not counted its {uncounted} {} yet",
            if is_gpu { "GPU-seconds" } else { "CPU-seconds" }
        );
    }

    if is_gpu && key.user.is_empty() && with_reservations && key.part != "reported" {
        return "Slurm counts the CPUs of reservations only, and no GPU of the jobs in them"
            .to_owned();
    }
    let reserved = known.reserved_idle_cpu_seconds;
    if !is_gpu && reserved > 0 && difference < 0 {
        let charged = format!(
            "reservations: Slurm charges {reserved} CPU-seconds of their idle time to those who might have used it"
        );
        let rest = difference.unsigned_abs().saturating_sub(reserved);
        return match is_about(difference.unsigned_abs(), reserved) || rest == 0 {
            true => charged,
            false => format!("{charged}; {rest} more have another reason"),
        };
    }
    if key.part == "idle" && is_gpu {
        return "what waits for GPUs is planned here and idle there".to_owned();
    }
    if !is_gpu
        && known.suspended_cpu_seconds > 0
        && difference.unsigned_abs() <= known.suspended_cpu_seconds
    {
        return format!(
            "suspension: {} CPU-seconds, which Slurm takes off and usage here keeps",
            known.suspended_cpu_seconds
        );
    }
    if is_gpu && known.gpu_unknown_runs > 0 && difference < 0 {
        return format!(
            "the GPUs of {} runs are unknown here",
            known.gpu_unknown_runs
        );
    }
    if known.resized_jobs > 0 && difference < 0 {
        return format!(
            "{} resizes: Slurm counts the time before them twice",
            known.resized_jobs
        );
    }
    if known.runaway_runs > 0 {
        return format!(
            "{} runaway runs that never ended: sacctmgr show runawayjobs",
            known.runaway_runs
        );
    }
    if known.open_runs > 0 {
        return format!(
            "{} runs go on: Slurm has counted them up to the last full hour",
            known.open_runs
        );
    }
    match (ours, sreport) {
        (None, _) => {
            "no records here: history begins later, or the records were not read (takt import sacct)".to_owned()
        }
        (_, None) => "not in sreport: its association was removed, or the hours are not rolled up yet".to_owned(),
        _ if difference < 0 => {
            "sreport has more: runs that are missing here (takt import sacct), or a reservation that nobody here knew of".to_owned()
        }
        _ => "sreport has less: hours that are not rolled up yet, or runs that slurmdbd has purged".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(user: &str, resource: &str, part: &str) -> SreportKey {
        let account = if user.is_empty() { "" } else { "lab" };
        SreportKey {
            account: account.into(),
            user: user.into(),
            resource: resource.into(),
            part: part.into(),
        }
    }

    #[test]
    fn an_amount_that_equals_the_difference_explains_it() {
        let known = Circumstances {
            open_runs: 2,
            uncounted_gpu_seconds: 19_776,
            uncounted_cpu_seconds: 79_104,
            reserved_idle_cpu_seconds: 500,
            ..Circumstances::default()
        };
        let known = [(("lab".to_owned(), "ann".to_owned()), known)].into();
        let words = |of: SreportKey, ours: u64, theirs: u64| {
            let lines = reconcile(
                &[(of.clone(), ours)].into(),
                &[(of, theirs)].into(),
                &known,
                true,
            );
            lines[0].reason.clone()
        };
        let last_hour = "the last hour: Slurm has not counted its 19776 GPU-seconds yet";
        assert_eq!(
            words(key("", "gres/gpu", "allocated"), 119_776, 100_000),
            last_hour
        );
        // Both sides are read at different moments, so 24 seconds do not matter.
        assert_eq!(
            words(key("ann", "gres/gpu", "used"), 119_800, 100_000),
            last_hour
        );
        assert_eq!(
            words(key("ann", "cpu", "used"), 179_104, 100_000),
            "the last hour: Slurm has not counted its 79104 CPU-seconds yet"
        );
        // Reservations explain what they amount to.
        let charged = "reservations: Slurm charges 500 CPU-seconds of their idle time to those who might have used it";
        assert_eq!(words(key("ann", "cpu", "used"), 1000, 1500), charged);
        assert_eq!(
            words(key("ann", "cpu", "used"), 1000, 3000),
            format!("{charged}; 1500 more have another reason")
        );
    }

    #[test]
    fn each_difference_has_its_reason() {
        let ann = |known| [(("lab".to_owned(), "ann".to_owned()), known)].into();
        for (of, ours, theirs, known, words) in [
            (
                key("ann", "cpu", "used"),
                Some(100),
                Some(100),
                Circumstances::default(),
                "",
            ),
            (
                key("ann", "cpu", "used"),
                Some(100),
                Some(70),
                Circumstances {
                    suspended_cpu_seconds: 30,
                    ..Circumstances::default()
                },
                "suspension: 30 CPU-seconds",
            ),
            (
                key("ann", "gres/gpu", "used"),
                Some(100),
                Some(130),
                Circumstances {
                    gpu_unknown_runs: 2,
                    ..Circumstances::default()
                },
                "the GPUs of 2 runs are unknown",
            ),
            (
                key("ann", "cpu", "used"),
                Some(1),
                Some(9),
                Circumstances {
                    runaway_runs: 1,
                    open_runs: 1,
                    ..Circumstances::default()
                },
                "1 runaway runs",
            ),
            (
                key("", "cpu", "allocated"),
                Some(9),
                Some(1),
                Circumstances {
                    open_runs: 3,
                    ..Circumstances::default()
                },
                "3 runs go on",
            ),
            (
                key("ann", "cpu", "used"),
                None,
                Some(5),
                Circumstances::default(),
                "no records here",
            ),
            (
                key("ann", "cpu", "used"),
                Some(5),
                None,
                Circumstances::default(),
                "not in sreport",
            ),
            (
                key("ann", "cpu", "used"),
                Some(5),
                Some(6),
                Circumstances::default(),
                "sreport has more",
            ),
            (
                key("ann", "cpu", "used"),
                Some(6),
                Some(5),
                Circumstances::default(),
                "sreport has less",
            ),
            (
                key("ann", "cpu", "used"),
                Some(100),
                Some(130),
                Circumstances {
                    reserved_idle_cpu_seconds: 30,
                    ..Circumstances::default()
                },
                "charges 30 CPU-seconds of their idle time",
            ),
            (
                key("ann", "gres/gpu", "used"),
                Some(100),
                Some(130),
                Circumstances {
                    resized_jobs: 2,
                    ..Circumstances::default()
                },
                "2 resizes: Slurm counts the time before them twice",
            ),
            (
                key("", "gres/gpu", "planned"),
                Some(6),
                Some(0),
                Circumstances::default(),
                "waiting for CPUs only",
            ),
            (
                key("", "gres/gpu", "idle"),
                Some(6),
                Some(9),
                Circumstances::default(),
                "planned here and idle there",
            ),
        ] {
            let side = |seconds: Option<u64>| {
                seconds
                    .map(|seconds| (of.clone(), seconds))
                    .into_iter()
                    .collect()
            };
            let lines = reconcile(&side(ours), &side(theirs), &ann(known), false);
            assert!(
                lines[0].reason.contains(words),
                "{of:?}: {}",
                lines[0].reason
            );
            assert_eq!(lines[0].reason.is_empty(), words.is_empty());
        }
    }
}
