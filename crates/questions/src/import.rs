//! Import of job records.
//!
//! Names of jobs in a file can look like records. Where that is possible, the file may add runs and end
//! runs, and may not change finished ones, unless the administrator says that the file is Slurm's own
//! (`--accept-corrections`). Rows that contradict another one, or name an unknown cluster, are set aside, and
//! the import goes on: a text of a user must not end it.

use super::calendar::note_calendar;
use super::fairshare::configure_shares;
use super::period::{LOCAL_CLUSTER, configured_zone, the_cluster};
use super::{AnswerConfig, AnswerError};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::iter;
use std::time::SystemTime;
use takt_jobs::{Entry, JobRun, MAX_TEXT_BYTES, Reject, bounded, time_zone};
use takt_kubernetes::{NameSources, ObjectReader, PodOptions};
use takt_model::UnixTime;
use takt_slurm::jobcomp;
use takt_slurm::sacct::{self, Cluster};
use takt_store::{Corrections, Database, ImportError, ImportSummary, Origin, Records, Shifted};

/// Path of the HTTP API. The body is the file; the [`ImportQuestion`] is the query string.
pub const IMPORT_PATH: &str = "/api/takt/v1/import";

/// Format of an imported file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImportFormat {
    /// Output of `sacct -P`.
    #[default]
    Sacct,
    /// File of `JobCompType=jobcomp/filetxt`.
    Jobcomp,
    /// JSON of Kubernetes' objects: lists, streams, watch events.
    Kubernetes,
}

/// Parameters of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImportQuestion {
    /// Format of the file.
    pub format: ImportFormat,
    /// Name of the file, for messages.
    pub name: String,
    /// Cluster of rows that name none, and a new cluster that rows may name. Default: the server's
    /// cluster; rows of unknown clusters are set aside.
    pub cluster: Option<String>,
    /// Time zone (IANA name) of times without an offset. Default: the configured, the cluster's, or this machine's.
    pub timezone: Option<String>,
    /// Columns of a file without a header, separated by `|`.
    pub columns: Option<String>,
    /// Treatment of runs that are stored with other times, as another time zone gives them.
    pub shifted: Shifted,
    /// Whether the file corrects finished runs, although a job's name could look like a record.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub accept_corrections: bool,
    /// Sources of the users of pods, in order. Default: those of [`NameSources::of_users`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_from: Option<String>,
    /// Sources of the accounts of pods, in order. Default: their namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account_from: Option<String>,
}

/// Imports the text, or nothing if an error occurs. A command calls [`prepare_import`] first.
///
/// # Errors
/// When the text is malformed, the time zone is unknown, its runs are stored in another time zone, or the store fails.
pub fn import(
    database: &Database,
    text: impl Read + Send + 'static,
    question: &ImportQuestion,
    config: &AnswerConfig,
) -> Result<ImportSummary, AnswerError> {
    let records = Records::of(database);
    let home = config.accounting.home.as_deref();

    let cluster = import_cluster(&records, question, home)?;
    let remembered = records.timezone(&cluster)?;
    let configured = configured_zone(&cluster, &config.accounting);
    // The zone of the question is about the file; the others are about the cluster.
    let zone = match question
        .timezone
        .as_deref()
        .or(configured)
        .or(remembered.as_deref())
    {
        Some(name) => time_zone(name).map_err(AnswerError::usage)?,
        None => TimeZone::system(),
    };
    let zone_name = zone.iana_name().map(str::to_owned);
    // A time zone belongs to its file. Only the first import of a cluster sets the cluster's, for reports.
    let first_zone = zone_name.as_deref().filter(|_| remembered.is_none());

    let origin = Origin {
        source: match question.format {
            ImportFormat::Sacct => "sacct",
            ImportFormat::Jobcomp => "jobcomp",
            ImportFormat::Kubernetes => "kubernetes",
        },
        name: &question.name,
        timezone: configured.or(first_zone),
        complete_until: None,
        shifted: question.shifted,
        corrections: Corrections::Refuse,
    };
    // The administrator has named a cluster, so a new one is no mistake.
    let expected = match &question.cluster {
        Some(_) => None,
        None => expected_clusters(&records, &cluster, home)?,
    };

    let summary = match question.format {
        ImportFormat::Sacct => {
            let columns = question.columns.as_ref();
            let options = sacct::Options {
                cluster: Cluster::Column(cluster),
                zone,
                columns: columns.map(|columns| columns.split('|').map(str::to_owned).collect()),
            };
            let mut entries =
                sacct::Reader::open(text, &question.name, options).map_err(AnswerError::input)?;
            // Without a column of users, or with a secret delimiter, every row is Slurm's own.
            let believed = question.accept_corrections || !entries.may_be_forged();
            let origin = Origin {
                corrections: corrections(believed),
                ..origin
            };
            let entries = iter::from_fn(|| {
                let entry = entries.next()?;
                // The line is asked for behind `next`, since a row may have several lines.
                Some(entry.map(|entry| (entries.line(), entry)))
            });
            imported(&records, &origin, zone_name.as_deref(), expected, entries)
        }
        ImportFormat::Jobcomp => {
            let options = jobcomp::Options {
                accounts: records.accounts_of_users(&cluster)?,
                cluster: Cluster::Column(cluster),
                zone,
                resized: jobcomp::Resized::default(),
            };
            let mut entries =
                jobcomp::Reader::open(text, &question.name, options).map_err(AnswerError::input)?;
            // Slurm escapes nothing in this file, so only the administrator can vouch for it.
            let origin = Origin {
                corrections: corrections(question.accept_corrections),
                ..origin
            };
            let entries = iter::from_fn(|| {
                let entry = entries.next()?;
                Some(entry.map(|entry| (entries.line(), entry)))
            });
            imported(&records, &origin, zone_name.as_deref(), expected, entries)
        }
        ImportFormat::Kubernetes => {
            let options = pod_options(question, cluster)?;
            let text = takt_slurm::decompressed(text).map_err(AnswerError::input)?;
            let mut entries = ObjectReader::new(text, &question.name, options);
            // JSON has an end for each text, so no name can look like a record. Its times are in UTC: no zone can be wrong.
            let origin = Origin {
                corrections: Corrections::Accept,
                shifted: Shifted::Keep,
                ..origin
            };
            let summary = imported(&records, &origin, Some("UTC"), expected, entries.by_ref());
            tracing::debug!(restarts = entries.restarts(), "read the pods of a file");
            summary
        }
    }?;
    // A new cluster has a zone from now on.
    note_calendar(database, None, &config.accounting)?;
    Ok(summary)
}

/// Returns how pods are read.
fn pod_options(question: &ImportQuestion, cluster: String) -> Result<PodOptions, AnswerError> {
    let sources = |text: &Option<String>| {
        let parsed = text.as_deref().map(NameSources::parse);
        parsed.transpose().map_err(AnswerError::usage)
    };
    Ok(PodOptions {
        cluster,
        users: sources(&question.user_from)?.unwrap_or_else(NameSources::of_users),
        accounts: sources(&question.account_from)?.unwrap_or_else(NameSources::of_accounts),
        now: UnixTime::from(SystemTime::now()),
    })
}

/// Stores the configured shares, as a server does at its start. For a command that opened the files.
///
/// # Errors
/// When the cluster is unknown or the store fails.
pub fn prepare_import(
    database: &Database,
    question: &ImportQuestion,
    config: &AnswerConfig,
) -> Result<(), AnswerError> {
    let records = Records::of(database);
    let cluster = import_cluster(&records, question, config.accounting.home.as_deref())?;
    configure_shares(&records, &cluster, &config.shares)
}

/// The cluster of rows that name none: the one of the question, the server's, or the only one.
/// [`LOCAL_CLUSTER`] is no server's name, but the lack of one.
fn import_cluster(
    records: &Records<'_>,
    question: &ImportQuestion,
    home: Option<&str>,
) -> Result<String, AnswerError> {
    match (
        &question.cluster,
        home.filter(|home| *home != LOCAL_CLUSTER),
    ) {
        (Some(name), _) => Ok(name.clone()),
        (None, Some(home)) => Ok(home.to_owned()),
        (None, None) => Ok(the_cluster(records, None, None)?.cluster),
    }
}

/// The clusters that rows may name; `None` if any, because the store has no records yet and no cluster
/// is configured.
fn expected_clusters(
    records: &Records<'_>,
    cluster: &str,
    home: Option<&str>,
) -> Result<Option<Vec<String>>, AnswerError> {
    let known = records.clusters()?;
    if known.is_empty() && home.is_none_or(|home| home == LOCAL_CLUSTER) {
        return Ok(None);
    }

    let known = known.into_iter().map(|one| one.cluster);
    // The cluster of the import comes first: it is the one that a message proposes.
    let mut expected = vec![cluster.to_owned()];
    expected.extend(known.filter(|name| name != cluster));
    Ok(Some(expected))
}

fn corrections(believed: bool) -> Corrections {
    if believed {
        Corrections::Accept
    } else {
        Corrections::Refuse
    }
}

fn imported<E>(
    records: &Records<'_>,
    origin: &Origin<'_>,
    zone: Option<&str>,
    expected: Option<Vec<String>>,
    entries: impl Iterator<Item = Result<(u64, Entry), E>>,
) -> Result<ImportSummary, AnswerError>
where
    E: std::error::Error,
{
    // A row of an unknown cluster is set aside as one that cannot be read: the others are imported.
    let known = |line, entry: Entry| {
        let unknown = match (&expected, &entry) {
            (Some(expected), Entry::Run(run) | Entry::Tasks { run, .. }) => {
                (!expected.contains(&run.cluster)).then(|| unknown_cluster(line, run, expected))
            }
            _ => None,
        };
        (line, unknown.map_or(entry, Entry::Rejected))
    };

    let entries = entries.map(|entry| match entry {
        Ok((line, entry)) => Ok(known(line, entry)),
        Err(error) => Err(AnswerError::input(error)),
    });

    records
        .import_file(origin, zone, entries)
        .map_err(|error| match error {
            ImportError::Source(error) => error,
            ImportError::Shifted { .. } => AnswerError::input(error),
            ImportError::Store(error) => error.into(),
        })
}

fn unknown_cluster(line: u64, run: &JobRun, expected: &[String]) -> Reject {
    let (cluster, expected) = (bounded(&run.cluster, SHOWN_BYTES), expected.join(", "));
    let JobRun {
        job_id,
        user,
        account,
        submit,
        state,
        ..
    } = run;
    // The columns that identify the run, since the text of the row is no longer there.
    let text = format!("{cluster}|{job_id}|{user}|{account}|{submit}|{state}");
    Reject {
        line: Some(line),
        reason: format!(
            "cluster '{cluster}' is unknown; known: {expected}; to add it, import with --cluster {cluster}"
        ),
        text: bounded(&text, MAX_TEXT_BYTES).into_owned(),
    }
}

/// Maximum length of the name of an unknown cluster in a message, in bytes.
const SHOWN_BYTES: usize = 64;

/// A reader that reports its progress.
pub struct CountingReader<R, F> {
    inner: R,
    read: u64,
    report: F,
}

impl<R, F> CountingReader<R, F>
where
    F: FnMut(u64),
{
    /// Calls `report` after each read, with the number of bytes read so far.
    pub fn new(inner: R, report: F) -> Self {
        Self {
            inner,
            read: 0,
            report,
        }
    }
}

impl<R, F> Read for CountingReader<R, F>
where
    R: Read,
    F: FnMut(u64),
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read += count as u64;
        (self.report)(self.read);
        Ok(count)
    }
}
