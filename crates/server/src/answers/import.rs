//! Import of job records.

use super::calendar::note_calendar;
use super::fairshare::configure_shares;
use super::period::configured_zone;
use super::{AnswerConfig, AnswerError};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use takt_slurm::sacct::{self, Cluster};
use takt_slurm::{Entry, jobcomp, time_zone};
use takt_store::{Database, ImportError, ImportSummary, Origin, Records, Shifted};

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
}

/// Parameters of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImportQuestion {
    /// Format of the file.
    pub format: ImportFormat,
    /// Name of the file, for messages.
    pub name: String,
    /// Cluster of rows that name none.
    pub cluster: Option<String>,
    /// Time zone (IANA name) of times without an offset. Default: the configured, the cluster's, or this machine's.
    pub timezone: Option<String>,
    /// Columns of a file without a header, separated by `|`.
    pub columns: Option<String>,
    /// Treatment of runs that are stored with other times, as another time zone gives them.
    pub shifted: Shifted,
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
    let cluster = match &question.cluster {
        Some(name) => name.clone(),
        None => match records.clusters()?.as_slice() {
            [only] => only.cluster.clone(),
            _ => super::LOCAL_CLUSTER.to_owned(),
        },
    };
    let remembered = records.timezone(&cluster)?;
    let configured = configured_zone(&cluster, &config.accounting);
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
        },
        name: &question.name,
        timezone: configured.or(first_zone),
        complete_until: None,
        shifted: question.shifted,
    };
    let summary = match question.format {
        ImportFormat::Sacct => {
            let columns = question.columns.as_ref();
            let options = sacct::Options {
                cluster: Cluster::Column(cluster),
                zone,
                columns: columns.map(|columns| columns.split('|').map(str::to_owned).collect()),
            };
            let entries = sacct::Reader::open(text, &question.name, options);
            imported(
                &records,
                &origin,
                zone_name.as_deref(),
                entries.map_err(AnswerError::input)?,
            )
        }
        ImportFormat::Jobcomp => {
            let options = jobcomp::Options {
                accounts: records.accounts_of_users(&cluster)?,
                cluster: Cluster::Column(cluster),
                zone,
                resized: jobcomp::Resized::default(),
            };
            let entries = jobcomp::Reader::open(text, &question.name, options);
            imported(
                &records,
                &origin,
                zone_name.as_deref(),
                entries.map_err(AnswerError::input)?,
            )
        }
    }?;
    note_calendar(database, None, &config.accounting)?;
    Ok(summary)
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
    configure_shares(database, question.cluster.as_deref(), &config.shares)
}

fn imported<E>(
    records: &Records<'_>,
    origin: &Origin<'_>,
    zone: Option<&str>,
    entries: impl Iterator<Item = Result<Entry, E>>,
) -> Result<ImportSummary, AnswerError>
where
    E: std::error::Error,
{
    records
        .import_file(origin, zone, entries)
        .map_err(|error| match error {
            ImportError::Source(error) => AnswerError::input(error),
            ImportError::Shifted { .. } => AnswerError::input(error),
            ImportError::Store(error) => error.into(),
        })
}

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
