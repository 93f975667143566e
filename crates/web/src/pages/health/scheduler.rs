//! One line about the scheduler for the page.

use takt_collector::schedulers::{PollState, PollStatus};

/// Without this setting, Slurm does not record a job's GPUs.
const GPUS_NOT_COUNTED: &str = "Slurm's records are up to date, but without GPUs: \
    AccountingStorageTRES in slurm.conf lacks gres/gpu. The GPUs of jobs that run while this \
    server runs are counted; those of other jobs are unknown";

/// Returns the line about the scheduler; `None` if this machine has no Slurm. An error may repeat a part of a job's record,
/// so only viewers who see all users get it.
pub fn scheduler(status: &PollStatus, sees_all: bool) -> Option<(bool, String)> {
    let detail = status.detail.as_deref().filter(|_| sees_all);
    let detail = detail.unwrap_or("an administrator sees the error here");
    match status.state {
        PollState::NoSlurm => None,
        PollState::Unconfigured => Some((false, format!("no Slurm is read: {detail}"))),
        PollState::Waiting => Some((true, "reading Slurm's records".to_owned())),
        // A job that Slurm has forgotten would run for ever in the records.
        PollState::Ok if status.forgotten_runs > 0 => Some((
            false,
            format!(
                "Slurm no longer knows {} runs that never ended",
                status.forgotten_runs
            ),
        )),
        // The sign is the direction; minutes are rounded up, so that 0 is not shown.
        PollState::Ok if status.clock_ahead_seconds != 0 => {
            let minutes = status.clock_ahead_seconds.unsigned_abs().div_ceil(60);
            let side = if status.clock_ahead_seconds > 0 {
                "ahead of"
            } else {
                "behind"
            };

            let words = format!(
                "Slurm's records are up to date by its own clock, \
                 {minutes} min {side} this machine's"
            );
            Some((
                false,
                format!(
                    "{words}: one of the two clocks is wrong, so measurements do not match jobs"
                ),
            ))
        }
        PollState::Ok if status.gpus_are_not_counted => Some((false, GPUS_NOT_COUNTED.to_owned())),
        PollState::Ok => Some((true, "Slurm's records are up to date".to_owned())),
        _ => Some((
            false,
            format!("Slurm's records are not up to date: {detail}"),
        )),
    }
}
