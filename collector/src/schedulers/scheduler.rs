//! The trait of a scheduler and the list of the supported ones.

use super::config::JobsConfig;
use super::status::PollError;
use super::{slurm_commands, slurmrestd};
use async_trait::async_trait;
use jiff::tz::TimeZone;
use serde_json::Value;
use std::collections::HashMap;
use std::fmt;
use std::io::Cursor;
use std::sync::Arc;
use takt_model::UnixTime;
use takt_slurm::jobcomp;
use takt_slurm::openapi::{self, LiveJob};
use takt_slurm::sacct::{Cluster, Options, Reader};
use takt_slurm::{
    Entry, MAX_TEXT_BYTES, Node, NodeEvent, Reject, Reservation, ShareSettings, bounded,
};
use takt_store::{Corrections, OpenRun};

/// All schedulers. The first configured one in this order is polled.
pub(super) const SCHEDULERS: &[SchedulerFactory] =
    &[slurmrestd::from_config, slurm_commands::from_config];

/// Returns the scheduler if the configuration names it.
pub(super) type SchedulerFactory = fn(&JobsConfig) -> Option<Result<Box<dyn Scheduler>, PollError>>;

/// Returns the configured scheduler.
///
/// # Errors
/// If the settings of the scheduler are unusable.
pub(super) fn configured(config: &JobsConfig) -> Result<Box<dyn Scheduler>, PollError> {
    SCHEDULERS
        .iter()
        .find_map(|from_config| from_config(config))
        .unwrap_or_else(|| Err(PollError::NoSlurm("no scheduler is configured".to_owned())))
}

/// A source of jobs, nodes, reservations and shares.
#[async_trait]
pub trait Scheduler: fmt::Debug + Send + Sync {
    /// Returns the name in `jobs.source` and `polls.source`.
    fn name(&self) -> &'static str;

    /// Returns the maximum period of one request in seconds, which bounds the size of an answer.
    fn window_seconds(&self) -> i64;

    /// Returns whether the records lack the reservation of a job, which only the live queue has.
    fn records_lack_reservations(&self) -> bool;

    /// Returns the name of the cluster.
    async fn cluster(&mut self) -> Result<String, PollError>;

    /// Returns the scheduler's clock; `None` if it does not answer.
    async fn time(&mut self) -> Option<UnixTime>;

    /// Returns whether jobs can open only their own GPUs, as known since [`Scheduler::time`]; `None`
    /// if the scheduler does not say.
    fn constrains_devices(&self) -> Option<bool> {
        None
    }

    /// Returns the version of slurmctld (`22.05.8`), as known since [`Scheduler::time`].
    fn version(&self) -> Option<String> {
        None
    }

    /// Returns the current state of all nodes.
    async fn nodes(&mut self) -> Result<Vec<Node>, PollError>;

    /// Returns current and future reservations.
    async fn reservations(&mut self) -> Result<Vec<Reservation>, PollError>;

    /// Returns the associations, QOS, billing weights and usage decay.
    async fn shares(&mut self, cluster: &str) -> Result<ShareSettings, PollError>;

    /// Returns the jobs in the queue.
    async fn live_jobs(&mut self, cluster: &str) -> Result<Vec<LiveJob>, PollError>;

    /// Returns the records of all users' jobs in a period, or since a time.
    async fn jobs_in(
        &mut self,
        from: UnixTime,
        to: Option<UnixTime>,
    ) -> Result<SchedulerAnswer, PollError>;

    /// Returns the records of these jobs.
    async fn jobs_by_id(&mut self, ids: &[&str]) -> Result<SchedulerAnswer, PollError>;

    /// Returns whether [`Scheduler::node_events`] and [`Scheduler::past_reservations`] have
    /// answers.
    fn keeps_history(&self) -> bool {
        false
    }

    /// Returns the periods since a time in which nodes were unusable.
    async fn node_events(&mut self, _: &str, _: UnixTime) -> Result<Vec<NodeEvent>, PollError> {
        Ok(Vec::new())
    }

    /// Returns all reservations since a time, past ones included.
    async fn past_reservations(
        &mut self,
        _: &str,
        _: UnixTime,
    ) -> Result<Vec<Reservation>, PollError> {
        Ok(Vec::new())
    }
}

/// Job records as received. A blocking thread parses them, because that takes time.
#[derive(Debug)]
pub enum SchedulerAnswer {
    /// Rows of `sacct --parsable`, and their delimiter.
    Sacct {
        /// The rows.
        text: Vec<u8>,
        /// The delimiter.
        delimiter: String,
    },
    /// Answers of `/slurmdb/vX/jobs` and `/slurmdb/vX/job/ID`.
    Database(Vec<Value>),
    /// Lines of a jobcomp file, and the times at which the live queue listed unfinished runs.
    Jobcomp(Vec<u8>, jobcomp::Options, Arc<HashMap<OpenRun, UnixTime>>),
    /// The live queue.
    Live(Vec<LiveJob>),
}

/// Iterator over the entries of an answer.
pub(super) type AnswerEntries = Box<dyn Iterator<Item = Result<Entry, PollError>>>;

impl SchedulerAnswer {
    /// Returns whether the records may correct recorded ones: users' texts cannot look like records.
    pub fn corrections(&self) -> Corrections {
        match self {
            Self::Jobcomp(..) => Corrections::Refuse,
            Self::Sacct { .. } | Self::Database(_) | Self::Live(_) => Corrections::Accept,
        }
    }

    /// Parses the answer. Errors contain `name`.
    pub(super) fn entries(self, cluster: &str, name: &str) -> Result<AnswerEntries, PollError> {
        let options = options(cluster);

        Ok(match self {
            Self::Sacct { text, delimiter } => Box::new(
                Reader::with_delimiter(Cursor::new(text), name, options, &delimiter)?
                    .map(|entry| Ok(entry?)),
            ),
            Self::Database(answers) => Box::new(
                answers
                    .into_iter()
                    .flat_map(move |answer| openapi::database_jobs(&answer, &options))
                    .map(Ok),
            ),
            Self::Jobcomp(text, options, unfinished) => Box::new(
                jobcomp::Reader::open(Cursor::new(text), name, options)?
                    .map(move |entry| Ok(checked_end(entry?, &unfinished))),
            ),
            Self::Live(jobs) => Box::new(jobs.into_iter().map(|job| Ok(job.entry))),
        })
    }
}

/// Maximum difference between the clocks of slurmctld and the poll, in seconds.
pub(super) const CLOCKS_AGREE_SECONDS: i64 = 60;

/// Rejects a record of a run that the live queue listed as unfinished after the record's end.
fn checked_end(entry: Entry, unfinished: &HashMap<OpenRun, UnixTime>) -> Entry {
    let Entry::Run(run) = &entry else {
        return entry;
    };

    let key = OpenRun {
        job_id: run.job_id.clone(),
        submit: run.submit,
    };

    let listed = unfinished.get(&key);
    match (run.end, listed) {
        (Some(end), Some(listed)) if end + CLOCKS_AGREE_SECONDS < *listed => {
            let text = format!(
                "{}|{}|{}|{end}|{}",
                run.job_id, run.user, run.submit, run.state
            );
            Entry::Rejected(Reject {
                line: None,
                reason: "the live queue listed the run as unfinished after this end".to_owned(),
                text: bounded(&text, MAX_TEXT_BYTES).into_owned(),
            })
        }
        _ => entry,
    }
}

/// Times in answers are UTC seconds, so the options need no time zone.
pub(super) fn options(cluster: &str) -> Options {
    Options {
        cluster: Cluster::Named(cluster.to_owned()),
        zone: TimeZone::UTC,
        columns: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_slurm::JobRun;

    /// A forged end of a run that goes on.
    #[test]
    fn an_end_before_the_run_was_listed_is_rejected() {
        let run = |end: i64| {
            Entry::Run(JobRun {
                job_id: "5".into(),
                submit: UnixTime(1000),
                end: Some(UnixTime(end)),
                ..JobRun::default()
            })
        };
        let key = OpenRun {
            job_id: "5".into(),
            submit: UnixTime(1000),
        };
        let unfinished = HashMap::from([(key, UnixTime(9000))]);
        assert!(matches!(
            checked_end(run(5000), &unfinished),
            Entry::Rejected(_)
        ));
        // The run ended after the queue was read; two clocks differ a little.
        for end in [8950, 9001] {
            assert!(matches!(checked_end(run(end), &unfinished), Entry::Run(_)));
        }
        assert!(matches!(
            checked_end(run(5000), &HashMap::new()),
            Entry::Run(_)
        ));
    }
}
