//! Who is asked for jobs, and what kind of answer that is.

use super::command::ask;
use super::config::JobsConfig;
use super::slurmrestd::Slurmrestd;
use super::status::PollError;
use jiff::Timestamp;
use serde_json::Value;
use std::io::Cursor;
use takt_slurm::Entry;
use takt_slurm::jobcomp;
use takt_slurm::openapi::{self, LiveJob};
use takt_slurm::sacct::{Cluster, Options, Reader};

/// Who keeps the accounts.
#[derive(Debug)]
pub(super) enum Source {
    /// slurmdbd, through `sacct` on this machine.
    Sacct,
    /// slurmdbd, through slurmrestd.
    Slurmrestd(Slurmrestd),
}

/// What was answered, not read yet: reading takes its time and is done where that holds nobody up.
pub(super) enum Answer {
    /// Rows of `sacct -P`.
    Sacct(Vec<u8>),
    /// Answers of `/slurmdb/vX/jobs` and `/slurmdb/vX/job/ID`.
    Database(Vec<Value>),
    /// Lines of a jobcomp file.
    Jobcomp(Vec<u8>, jobcomp::Options),
    /// What slurmctld knows now.
    Live(Vec<LiveJob>),
}

/// What an answer holds, one by one.
pub(super) type Entries = Box<dyn Iterator<Item = Result<Entry, PollError>>>;

/// Everything of sacct's that is read. The name is last: it alone may hold a separator.
const COLUMNS: &str = "JobID,JobIDRaw,Submit,Eligible,Start,End,State,User,Account,Partition,QOS,AllocTRES,ReqTRES,NNodes,NCPUS,\
                       NodeList,ElapsedRaw,Suspended,TimelimitRaw,ExitCode,Reservation,JobName";

impl Source {
    /// What tells, in `jobs.source` and `polls.source`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Sacct => "sacct",
            Self::Slurmrestd(_) => "slurmrestd",
        }
    }

    /// Longest period of one question, so that no answer grows without bound.
    pub fn window_seconds(&self) -> i64 {
        match self {
            Self::Sacct => 7 * 86_400,
            // slurmrestd answers in JSON, 3 kB a job, and keeps the memory.
            Self::Slurmrestd(_) => 86_400,
        }
    }

    /// Job ids in one question.
    pub fn ids_per_question(&self) -> usize {
        500
    }

    /// All runs of all users in a period, or from an instant on.
    pub async fn period(
        &mut self,
        config: &JobsConfig,
        from: i64,
        to: Option<i64>,
    ) -> Result<Answer, PollError> {
        match self {
            Self::Sacct => {
                let (since, until) = (utc(from), to.map(utc));
                let mut period = vec!["-S", &since];
                period.extend(until.as_deref().into_iter().flat_map(|until| ["-E", until]));
                sacct(config, &period).await
            }
            Self::Slurmrestd(rest) => {
                let until = to.map_or_else(String::new, |to| format!("&end_time=uts{to}"));
                Ok(Answer::Database(vec![
                    rest.database(&format!("jobs?start_time=uts{from}{until}"))
                        .await?,
                ]))
            }
        }
    }

    /// All runs of these jobs.
    pub async fn jobs(&mut self, config: &JobsConfig, ids: &[&str]) -> Result<Answer, PollError> {
        match self {
            Self::Sacct => sacct(config, &["-j", &ids.join(",")]).await,
            Self::Slurmrestd(rest) => {
                let mut answers = Vec::new();
                for id in ids {
                    match rest.database(&format!("job/{id}")).await {
                        Ok(answer) => answers.push(answer),
                        // A job that was purged is an error of its own, and no reason to stop.
                        Err(PollError::Failed { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(Answer::Database(answers))
            }
        }
    }
}

impl Answer {
    /// What it holds. `name` is what errors call it.
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

/// What slurmctld knows now.
pub(super) async fn live(
    config: &JobsConfig,
    rest: Option<&mut Slurmrestd>,
    cluster: &str,
) -> Result<Vec<LiveJob>, PollError> {
    let answer = match rest {
        Some(rest) => rest.controller("jobs").await?,
        None => {
            let text = ask(config, "squeue", ["--all", "--json"]).await?;
            let unreadable = |error: serde_json::Error| PollError::Failed {
                program: "squeue",
                stderr: format!("its answer is no JSON: {error}"),
            };
            let answer: Value = serde_json::from_slice(&text).map_err(unreadable)?;
            // squeue says so with success.
            if let Some(error) = openapi::error(&answer) {
                return Err(PollError::ControllerDown(error.to_string()));
            }
            answer
        }
    };
    Ok(openapi::live_jobs(&answer, &options(cluster)))
}

/// Instants in answers need no zone.
fn options(cluster: &str) -> Options {
    Options {
        cluster: Cluster::Named(cluster.to_owned()),
        zone: jiff::tz::TimeZone::UTC,
        columns: None,
    }
}

async fn sacct(config: &JobsConfig, which: &[&str]) -> Result<Answer, PollError> {
    let args = [
        "--allusers",
        "--parsable2",
        "--duplicates",
        "--allocations",
        "--format",
        COLUMNS,
    ];
    Ok(Answer::Sacct(
        ask(config, "sacct", args.iter().chain(which)).await?,
    ))
}

/// An instant as sacct's options take it in the zone UTC.
fn utc(instant: i64) -> String {
    let instant = Timestamp::from_second(instant).unwrap_or(Timestamp::UNIX_EPOCH);
    instant.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}
