//! The trait of a scheduler, and the list of those that Takt can ask.

use super::config::JobsConfig;
use super::status::PollError;
use super::{slurm_commands, slurmrestd};
use async_trait::async_trait;
use serde_json::Value;
use std::fmt;
use std::io::Cursor;
use takt_slurm::jobcomp;
use takt_slurm::openapi::{self, LiveJob};
use takt_slurm::sacct::{Cluster, Options, Reader};
use takt_slurm::{Entry, Node, NodeEvent, Reservation, ShareSettings};

/// Every scheduler, in the order in which the configuration is asked for it. The first that is configured is polled.
pub(super) const SCHEDULERS: &[Configured] =
    &[slurmrestd::from_config, slurm_commands::from_config];

/// Returns the scheduler if the configuration names it.
pub(super) type Configured = fn(&JobsConfig) -> Option<Result<Box<dyn Scheduler>, PollError>>;

/// The configured scheduler.
///
/// # Errors
/// A scheduler whose settings cannot be used.
pub(super) fn configured(config: &JobsConfig) -> Result<Box<dyn Scheduler>, PollError> {
    let found = SCHEDULERS
        .iter()
        .find_map(|from_config| from_config(config));
    found.unwrap_or_else(|| Err(PollError::NoSlurm("no scheduler is configured".to_owned())))
}

/// One way to ask a scheduler for its jobs, nodes, reservations and shares. Instants are UTC seconds since 1970.
#[async_trait]
pub(super) trait Scheduler: fmt::Debug + Send + Sync {
    /// Name in `jobs.source` and `polls.source`.
    fn name(&self) -> &'static str;

    /// Longest period of one question in seconds, so that no answer grows without bound.
    fn window_seconds(&self) -> i64;

    /// Whether the records lack the reservation of a job, which only the live queue has.
    fn records_lack_reservations(&self) -> bool;

    /// Name of the cluster.
    async fn cluster(&mut self) -> Result<String, PollError>;

    /// The scheduler's clock; `None` if it does not answer.
    async fn time(&mut self) -> Option<i64>;

    /// All nodes as they are now.
    async fn nodes(&mut self) -> Result<Vec<Node>, PollError>;

    /// Reservations that run or are to come.
    async fn reservations(&mut self) -> Result<Vec<Reservation>, PollError>;

    /// Associations, QOS, billing weights, and how usage decays.
    async fn shares(&mut self, cluster: &str) -> Result<ShareSettings, PollError>;

    /// The queue as it is now.
    async fn live_jobs(&mut self, cluster: &str) -> Result<Vec<LiveJob>, PollError>;

    /// Records of all jobs of all users in a period, or from an instant on.
    async fn jobs_in(&mut self, from: i64, to: Option<i64>) -> Result<Answer, PollError>;

    /// Records of these jobs.
    async fn jobs_by_id(&mut self, ids: &[&str]) -> Result<Answer, PollError>;

    /// Whether [`Scheduler::node_events`] and [`Scheduler::past_reservations`] have answers.
    fn keeps_history(&self) -> bool {
        false
    }

    /// When nodes could not be used, since an instant.
    async fn node_events(&mut self, _: &str, _: i64) -> Result<Vec<NodeEvent>, PollError> {
        Ok(Vec::new())
    }

    /// All reservations since an instant, past ones included.
    async fn past_reservations(&mut self, _: &str, _: i64) -> Result<Vec<Reservation>, PollError> {
        Ok(Vec::new())
    }
}

/// Job records as they were answered. Parsing takes time and happens on a blocking thread.
pub(super) enum Answer {
    /// Rows of `sacct -P`.
    Sacct(Vec<u8>),
    /// Answers of `/slurmdb/vX/jobs` and `/slurmdb/vX/job/ID`.
    Database(Vec<Value>),
    /// Lines of a jobcomp file.
    Jobcomp(Vec<u8>, jobcomp::Options),
    /// The live queue.
    Live(Vec<LiveJob>),
}

/// The entries of an answer, one by one.
pub(super) type Entries = Box<dyn Iterator<Item = Result<Entry, PollError>>>;

impl Answer {
    /// Parses the answer. Errors call it `name`.
    pub fn entries(self, cluster: &str, name: &str) -> Result<Entries, PollError> {
        let options = options(cluster);
        Ok(match self {
            Self::Sacct(text) => {
                Box::new(Reader::open(Cursor::new(text), name, options)?.map(|entry| Ok(entry?)))
            }
            Self::Database(answers) => Box::new(
                answers
                    .into_iter()
                    .flat_map(move |answer| openapi::database_jobs(&answer, &options))
                    .map(Ok),
            ),
            Self::Jobcomp(text, options) => Box::new(
                jobcomp::Reader::open(Cursor::new(text), name, options)?.map(|entry| Ok(entry?)),
            ),
            Self::Live(jobs) => Box::new(jobs.into_iter().map(|job| Ok(job.entry))),
        })
    }
}

/// Instants in answers are UTC seconds and need no time zone.
pub(super) fn options(cluster: &str) -> Options {
    Options {
        cluster: Cluster::Named(cluster.to_owned()),
        zone: jiff::tz::TimeZone::UTC,
        columns: None,
    }
}
