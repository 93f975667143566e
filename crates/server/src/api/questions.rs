//! Questions as people ask them, in words, and how they are answered from the records.

use super::Problem;
use super::near::did_you_mean;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use takt_accounting::{GroupBy, Period, Usage, UsageReport};
use takt_slurm::sacct::{self, Cluster, Reader};
use takt_slurm::{Entry, JobRun, jobcomp, reasons, time_zone};
use takt_store::{
    Database, ImportError, ImportSummary, JobFilter, KnownCluster, Origin, Records, Shifted,
    StoreError,
};

/// The cluster of a machine that nobody has named.
pub const LOCAL_CLUSTER: &str = "local";

/// Who used what in a period?
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UsageQuestion {
    /// A month, `2026-10`; the current one where no period is given.
    pub month: Option<String>,
    /// The first day.
    pub from: Option<String>,
    /// The first day that is outside.
    pub to: Option<String>,
    /// Names of what to group by, with commas; by user where there are none.
    pub by: String,
    /// Only this user's runs.
    pub user: Option<String>,
    /// The cluster; may be left out where there is one only.
    pub cluster: Option<String>,
    /// The IANA name of the zone whose days count; else the one remembered for the cluster, or this machine's.
    pub timezone: Option<String>,
}

/// Which runs are there?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobsQuestion {
    /// One job, its array tasks and components.
    pub job_id: Option<String>,
    /// Only this user's.
    pub user: Option<String>,
    /// Only in these states, with commas; by name or by Slurm's letters (`R`, `PD`).
    pub state: Option<String>,
    /// At most so many, the last submitted first.
    pub limit: usize,
}

impl Default for JobsQuestion {
    fn default() -> Self {
        Self {
            job_id: None,
            user: None,
            state: None,
            limit: 1000,
        }
    }
}

/// What wrote a text that is brought in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImportFormat {
    /// `sacct -P`.
    #[default]
    Sacct,
    /// `JobCompType=jobcomp/filetxt`.
    Jobcomp,
}

/// How to read a text that is brought in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImportQuestion {
    /// What wrote it.
    pub format: ImportFormat,
    /// What messages call the text.
    pub name: String,
    /// Whose jobs these are, where the rows do not say.
    pub cluster: Option<String>,
    /// The IANA name of the zone of times without an offset; the cluster's remembered one, else this machine's.
    pub timezone: Option<String>,
    /// The columns of a text without a header, separated by `|`.
    pub columns: Option<String>,
    /// What becomes of runs that are known already, but in another time zone.
    pub shifted: Shifted,
}

/// Answers a [`UsageQuestion`], as of now.
///
/// # Errors
/// A question that makes no sense, or a database that does not answer.
pub fn usage(database: &Database, question: &UsageQuestion) -> Result<UsageReport, Problem> {
    let records = Records::of(database);
    let names = question
        .by
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let mut by: Vec<GroupBy> = names
        .map(str::parse)
        .collect::<Result<_, _>>()
        .map_err(Problem::usage)?;
    if by.is_empty() {
        by.push(GroupBy::User);
    }
    if by.iter().filter(|by| by.unit().is_some()).count() > 1 {
        return Err(Problem::usage(io::Error::other(
            "group by one of hour, day, month and year",
        )));
    }
    let cluster = the_cluster(&records, question.cluster.as_deref())?;
    let zone = match &question.timezone {
        Some(name) => time_zone(name).map_err(Problem::usage)?,
        None => the_zone(&cluster)?,
    };
    let now = Timestamp::now();
    let period = the_period(&question.month, &question.from, &question.to, &zone, now)?;
    let mut usage = Usage::new(&period, &by, now.as_second());
    if by.contains(&GroupBy::AccountTree) {
        usage = usage.with_accounts(
            records
                .accounts(&cluster.cluster)
                .map_err(Problem::failed)?,
        );
    }
    records
        .held_runs(&cluster.cluster, period.from(), period.to(), |run| {
            if question.user.as_deref().is_none_or(|user| user == run.user) {
                usage.add(run);
            }
        })
        .map_err(Problem::failed)?;
    let report = usage.report(&cluster.cluster);
    if let Some(user) = question.user.as_deref().filter(|_| report.rows.is_empty()) {
        let users = records
            .names(&cluster.cluster)
            .map_err(Problem::failed)?
            .users;
        if !users.iter().any(|known| known == user) {
            let near = did_you_mean(user, users.iter().map(String::as_str));
            return Err(Problem::input(io::Error::other(format!(
                "no run of the user {user} is recorded{near}"
            ))));
        }
    }
    Ok(report)
}

/// A run, and why it waits if it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedRun {
    /// The run.
    #[serde(flatten)]
    pub run: JobRun,
    /// Of one that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WhyWaiting>,
}

/// Why a run waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyWaiting {
    /// In Slurm's word.
    pub reason: String,
    /// In ours.
    pub words: String,
    /// Since when Slurm has said so, UTC seconds.
    pub since: i64,
    /// When Slurm means to start it, UTC seconds.
    pub expected_start: Option<i64>,
}

/// A state by its name or, as `squeue` and `sacct` write it, by its letters.
fn state_of(asked: &str) -> Result<String, Problem> {
    let asked = asked.trim().to_uppercase();
    let known = STATES
        .iter()
        .find(|(letters, name)| *letters == asked || *name == asked);
    known.map(|(_, name)| (*name).to_owned()).ok_or_else(|| {
        let near = did_you_mean(&asked, STATES.iter().map(|(_, name)| *name));
        Problem::usage(io::Error::other(format!(
            "jobs have no state '{asked}'{near}"
        )))
    })
}

/// The states of Slurm's jobs.
const STATES: &[(&str, &str)] = &[
    ("BF", "BOOT_FAIL"),
    ("CA", "CANCELLED"),
    ("CD", "COMPLETED"),
    ("CF", "CONFIGURING"),
    ("CG", "COMPLETING"),
    ("DL", "DEADLINE"),
    ("F", "FAILED"),
    ("NF", "NODE_FAIL"),
    ("OOM", "OUT_OF_MEMORY"),
    ("PD", "PENDING"),
    ("PR", "PREEMPTED"),
    ("R", "RUNNING"),
    ("RQ", "REQUEUED"),
    ("RS", "RESIZING"),
    ("RV", "REVOKED"),
    ("S", "SUSPENDED"),
    ("ST", "STOPPED"),
    ("TO", "TIMEOUT"),
];

/// Answers a [`JobsQuestion`].
///
/// # Errors
/// A database that does not answer.
pub fn jobs(database: &Database, question: &JobsQuestion) -> Result<Vec<ListedRun>, Problem> {
    let records = Records::of(database);
    let states = question
        .state
        .iter()
        .flat_map(|states| states.split(','))
        .map(state_of);
    let states = states.collect::<Result<_, _>>()?;
    let filter = JobFilter {
        job_id: question.job_id.clone(),
        user: question.user.clone(),
        states,
        limit: Some(question.limit),
        ..JobFilter::default()
    };
    let runs = records.jobs(&filter).map_err(Problem::failed)?;
    let listed = runs.into_iter().map(|run| {
        let waits = run.start.is_none() && run.end.is_none();
        let known = if waits {
            records.reason(&run.cluster, &run.job_id, run.submit)?
        } else {
            None
        };
        let waiting = known.map(|known| WhyWaiting {
            words: reasons::in_words(&known.reason, &run),
            reason: known.reason,
            since: known.since,
            expected_start: known.expected_start,
        });
        Ok(ListedRun { run, waiting })
    });
    listed
        .collect::<Result<_, StoreError>>()
        .map_err(Problem::failed)
}

/// Brings in what `sacct -P` printed or what jobcomp wrote; all of it or nothing.
///
/// # Errors
/// A text that is neither, an unknown time zone, runs that are known in another zone, or a database that does not answer.
pub fn import(
    database: &Database,
    text: impl Read + Send + 'static,
    question: &ImportQuestion,
) -> Result<ImportSummary, Problem> {
    let records = Records::of(database);
    let cluster = match &question.cluster {
        Some(name) => name.clone(),
        None => match records.clusters().map_err(Problem::failed)?.as_slice() {
            [only] => only.cluster.clone(),
            _ => LOCAL_CLUSTER.to_owned(),
        },
    };
    let remembered = records.timezone(&cluster).map_err(Problem::failed)?;
    let zone = match question.timezone.as_ref().or(remembered.as_ref()) {
        Some(name) => time_zone(name).map_err(Problem::usage)?,
        None => TimeZone::system(),
    };
    let zone_name = zone.iana_name().map(str::to_owned);
    let origin = Origin {
        source: match question.format {
            ImportFormat::Sacct => "sacct",
            ImportFormat::Jobcomp => "jobcomp",
        },
        name: &question.name,
        // Whatever the times were read in is the cluster's zone from now on, unless one is known already.
        timezone: question.timezone.as_deref().or(if remembered.is_none() {
            zone_name.as_deref()
        } else {
            None
        }),
        told_until: None,
        shifted: question.shifted,
    };
    match question.format {
        ImportFormat::Sacct => {
            let columns = question
                .columns
                .as_ref()
                .map(|columns| columns.split('|').map(str::to_owned).collect());
            let options = sacct::Options {
                cluster: Cluster::Column(cluster),
                zone,
                columns,
            };
            imported(
                &records,
                &origin,
                Reader::open(text, &question.name, options).map_err(Problem::input)?,
            )
        }
        ImportFormat::Jobcomp => {
            let accounts = records
                .accounts_of_users(&cluster)
                .map_err(Problem::failed)?;
            let options = jobcomp::Options {
                cluster: Cluster::Column(cluster),
                zone,
                accounts,
                resized: jobcomp::Resized::default(),
            };
            imported(
                &records,
                &origin,
                jobcomp::Reader::open(text, &question.name, options).map_err(Problem::input)?,
            )
        }
    }
}

fn imported<E: std::error::Error>(
    records: &Records<'_>,
    origin: &Origin<'_>,
    entries: impl Iterator<Item = Result<Entry, E>>,
) -> Result<ImportSummary, Problem> {
    records
        .import(origin, entries)
        .map_err(|error| match error {
            ImportError::Source(error) => Problem::input(error),
            ImportError::Shifted { .. } => Problem::input(error),
            ImportError::Store(error) => Problem::failed(error),
        })
}

/// The zone whose months a cluster's are; the system's where nobody has said it.
pub(super) fn the_zone(cluster: &KnownCluster) -> Result<TimeZone, Problem> {
    match &cluster.timezone {
        Some(name) => time_zone(name).map_err(Problem::failed),
        None => Ok(TimeZone::system()),
    }
}

/// The period that is meant: a month, the time between two days, or the month that `now` lies in.
pub(super) fn the_period(
    month: &Option<String>,
    from: &Option<String>,
    to: &Option<String>,
    zone: &TimeZone,
    now: Timestamp,
) -> Result<Period, Problem> {
    match (month, from, to) {
        (Some(month), None, None) => Period::month(month, zone, now),
        (None, Some(from), Some(to)) => Period::days(from, to, zone, now),
        (None, None, None) => Period::month(
            &now.to_zoned(zone.clone()).strftime("%Y-%m").to_string(),
            zone,
            now,
        ),
        _ => {
            return Err(Problem::usage(io::Error::other(
                "a period is a month, or from and to",
            )));
        }
    }
    .map_err(Problem::usage)
}

/// The cluster that is meant: the one asked for, or the only one.
pub(super) fn the_cluster(
    records: &Records<'_>,
    asked: Option<&str>,
) -> Result<KnownCluster, Problem> {
    let mut known = records.clusters().map_err(Problem::failed)?;
    let names = || {
        known
            .iter()
            .map(|cluster| cluster.cluster.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let found = match asked {
        Some(name) => known.iter().position(|cluster| cluster.cluster == name),
        None if known.len() > 1 => {
            let error = format!(
                "there are records of several clusters ({}); choose one with --cluster",
                names()
            );
            return Err(Problem::usage(io::Error::other(error)));
        }
        None => (!known.is_empty()).then_some(0),
    };
    match (found, asked) {
        (Some(at), _) => Ok(known.swap_remove(at)),
        (None, Some(name)) if !known.is_empty() => Err(Problem::usage(io::Error::other(format!(
            "there are no records of a cluster {name}; known: {}",
            names()
        )))),
        (None, _) => Ok(KnownCluster {
            cluster: asked.unwrap_or(LOCAL_CLUSTER).to_owned(),
            timezone: None,
        }),
    }
}

/// A reader that tells how far it is.
pub struct Counted<R, F> {
    inner: R,
    read: u64,
    tell: F,
}

impl<R, F: FnMut(u64)> Counted<R, F> {
    /// Calls `tell` with the number of bytes read so far, after each read.
    pub fn new(inner: R, tell: F) -> Self {
        Self {
            inner,
            read: 0,
            tell,
        }
    }
}

impl<R: Read, F: FnMut(u64)> Read for Counted<R, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read += count as u64;
        (self.tell)(self.read);
        Ok(count)
    }
}
