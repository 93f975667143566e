//! One line about the scheduler for the page.

use takt_collector::schedulers::{JOB_RECORDS, NOT_READ, PollState, PollStatus};
use takt_questions::SourceState;

/// Without this setting, Slurm does not record a job's GPUs.
const GPUS_NOT_COUNTED: &str = "Slurm's records are up to date, but without GPUs: \
    AccountingStorageTRES in slurm.conf lacks gres/gpu. The GPUs of jobs that run while this \
    server runs are counted; those of other jobs are unknown";

/// Before the first answer.
const READING: &str = "reading Slurm's records";

/// Returns the line about the scheduler; `None` if this machine has no Slurm. An error may repeat a part of a job's record,
/// so only viewers who see all users get it. After a poll, `sources` say for some seconds what they said before it, as on
/// every page: then this line does too.
pub fn scheduler(
    status: &PollStatus,
    sources: &[SourceState],
    sees_all: bool,
) -> Option<(bool, String)> {
    let records = sources.iter().find(|source| source.source == JOB_RECORDS);
    let problem = records.and_then(|records| records.problem.as_deref());
    let detail = status.detail.as_deref().filter(|_| sees_all);
    let detail = detail.unwrap_or("an administrator sees the error here");
    match status.state {
        PollState::NoSlurm => None,
        PollState::Unconfigured => Some((false, format!("no Slurm is read: {detail}"))),
        PollState::Waiting => Some((true, READING.to_owned())),
        PollState::Ok if problem == Some(NOT_READ) => Some((true, READING.to_owned())),
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
        PollState::Ok => Some(match problem {
            Some(problem) => (
                false,
                format!("Slurm's records may be old or not complete: {problem}"),
            ),
            None => (true, "Slurm's records are up to date".to_owned()),
        }),
        _ => Some((
            false,
            format!("Slurm's records are not up to date: {detail}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_and_the_sources_say_one_thing() {
        let said = |state: PollState, problem: Option<&str>| {
            let status = PollStatus {
                state,
                ..PollStatus::default()
            };
            let records = SourceState {
                source: JOB_RECORDS.to_owned(),
                problem: problem.map(str::to_owned),
                ..SourceState::default()
            };
            scheduler(&status, &[records], true).unwrap()
        };
        let reading = (true, READING.to_owned());
        assert_eq!(said(PollState::Waiting, Some(NOT_READ)), reading);
        assert_eq!(said(PollState::Ok, Some(NOT_READ)), reading);
        assert_eq!(
            said(PollState::Ok, None),
            (true, "Slurm's records are up to date".to_owned())
        );
        let (is_good, text) = said(PollState::Ok, Some("slurmdbd does not answer"));
        assert!(!is_good && text.ends_with("not complete: slurmdbd does not answer"));
    }
}
