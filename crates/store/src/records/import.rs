//! Import: runs are upserted by identity, all of a text in one transaction.
//!
//! Runs are staged in a temporary table, by a thread of its own while more are read; then sets are compared, not rows, and
//! there is no index to keep. What a text
//! does not tell (NULL, an empty account) leaves what was known, and one that is older than what was known (the run
//! still waits or runs, though it has ended) changes nothing.

use super::Records;
use crate::StoreError;
use crate::database::microseconds_now;
use duckdb::arrow::array::{
    ArrayRef, Int64Builder, RecordBatch, StringBuilder, TimestampSecondBuilder,
};
use duckdb::{Connection, params};
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, PoisonError};
use std::thread;
use takt_slurm::{Entry, JobRun, Reject};

/// Where runs come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin<'a> {
    /// The kind of source: `sacct`.
    pub source: &'a str,
    /// The file, or whatever else tells rejected rows apart.
    pub name: &'a str,
    /// Time zone to record for every cluster in the text. `None`: the recorded one stays.
    pub timezone: Option<&'a str>,
    /// The instant up to which the source has now told everything of this cluster (UTC seconds), to go on from.
    pub told_until: Option<(&'a str, i64)>,
    /// What becomes of runs that are known already, but earlier or later by the difference of two time zones.
    pub shifted: Shifted,
}

/// What to do with a text whose runs are known, all of them earlier or later by the same quarters of an hour: one of
/// the two imports named the wrong time zone, and storing both would count everything twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shifted {
    /// Import nothing and say so.
    #[default]
    Refuse,
    /// Forget the runs as they were known.
    Replace,
    /// Take them for other runs.
    Keep,
}

/// What an import did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportSummary {
    /// Rows read: runs (an array's tasks may share one), steps and rejected rows.
    pub rows: u64,
    /// Runs read.
    pub runs: u64,
    /// Runs that were not known.
    pub runs_inserted: u64,
    /// Runs that were known otherwise.
    pub runs_updated: u64,
    /// Runs that were known as they are, or better.
    pub unchanged: u64,
    /// Runs that the text told again later on; the last, and latest, counts.
    pub duplicates: u64,
    /// Steps, which hold nothing beyond their job's allocation.
    pub steps_skipped: u64,
    /// Rows that could not be understood and were set aside in `rejects`.
    pub rejected: u64,
    /// The first of them.
    pub first_rejects: Vec<Reject>,
}

impl AddAssign for ImportSummary {
    /// Both together.
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.runs += other.runs;
        self.runs_inserted += other.runs_inserted;
        self.runs_updated += other.runs_updated;
        self.unchanged += other.unchanged;
        self.duplicates += other.duplicates;
        self.steps_skipped += other.steps_skipped;
        self.rejected += other.rejected;
        self.first_rejects.extend(other.first_rejects);
        self.first_rejects.truncate(FIRST_REJECTS);
    }
}

/// Most rejected rows that a summary shows.
const FIRST_REJECTS: usize = 10;

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError<E> {
    /// The source broke off.
    #[error(transparent)]
    Source(E),
    /// The runs are known at other times of the day.
    #[error(
        "{runs} of these runs are known already, {hours} h {earlier}: one of the two imports named the wrong time zone; \
         import with the right --timezone, and with --shifted replace if it was the other one that was wrong"
    )]
    Shifted {
        /// How many.
        runs: u64,
        /// By how many hours.
        hours: f64,
        /// `earlier` or `later`.
        earlier: &'static str,
    },
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Records<'_> {
    /// Imports what a source tells, or nothing at all if the source or the store fails on the way.
    ///
    /// # Errors
    /// The source's own, or the store's.
    pub fn import<E>(
        &self,
        origin: &Origin<'_>,
        entries: impl IntoIterator<Item = Result<Entry, E>>,
    ) -> Result<ImportSummary, ImportError<E>> {
        // Two imports at a time could both find a run unknown: nothing but this lock keeps identities unique.
        let _writing = self
            .database
            .writing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let db = self.database.connect()?;
        let mut summary = ImportSummary::default();
        let db = stage(db, origin, entries, &mut summary)?;
        db.execute_batch("BEGIN")
            .map_err(StoreError::sql("store the job records"))?;
        guard(&db, origin)?;
        merge(&db, origin, &mut summary).map_err(StoreError::sql("store the job records"))?;
        Ok(summary)
    }
}

/// What one thread has read for another to stage.
enum Read {
    Runs(RecordBatch),
    Rejected(Reject),
}

/// Batches that may be read ahead of what is staged.
const READ_AHEAD: usize = 8;

/// Reads everything into the temporary tables `incoming` and `refused` of this connection, and hands it back.
fn stage<E>(
    db: Connection,
    origin: &Origin<'_>,
    entries: impl IntoIterator<Item = Result<Entry, E>>,
    summary: &mut ImportSummary,
) -> Result<Connection, ImportError<E>> {
    let (sender, receiver) = mpsc::sync_channel(READ_AHEAD);
    let (read, staged) = thread::scope(|scope| {
        let stager = scope.spawn(move || append(db, &receiver));
        let read = read(entries, &sender, summary);
        drop(sender);
        (
            read,
            stager
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        )
    });
    read.map_err(ImportError::Source)?;
    let db = staged.map_err(StoreError::sql("stage the job records"))?;
    tracing::debug!(
        source = origin.name,
        runs = summary.runs,
        "staged the job records"
    );
    Ok(db)
}

/// Reads entries until there are no more, the source breaks off, or nobody stages them any longer.
fn read<E>(
    entries: impl IntoIterator<Item = Result<Entry, E>>,
    to: &SyncSender<Read>,
    summary: &mut ImportSummary,
) -> Result<(), E> {
    let mut batch = Batch::new();
    for entry in entries {
        summary.rows += 1;
        let mut push = |run: &JobRun| {
            batch
                .push(run)
                .is_none_or(|full| to.send(Read::Runs(full)).is_ok())
        };
        let is_staged = match entry? {
            Entry::Run(run) => push(&run),
            Entry::Tasks { mut run, job_ids } => job_ids.into_iter().all(|job_id| {
                run.job_id = job_id;
                push(&run)
            }),
            Entry::Step => {
                summary.steps_skipped += 1;
                true
            }
            Entry::Rejected(reject) => {
                summary.rejected += 1;
                if summary.first_rejects.len() < FIRST_REJECTS {
                    summary.first_rejects.push(reject.clone());
                }
                to.send(Read::Rejected(reject)).is_ok()
            }
        };
        if !is_staged {
            break;
        }
    }
    summary.runs = batch.pushed;
    // That nobody takes it has its reason, which the other thread tells.
    let _ = to.send(Read::Runs(batch.take()));
    Ok(())
}

/// Makes the temporary tables and appends to them what comes.
fn append(db: Connection, from: &Receiver<Read>) -> duckdb::Result<Connection> {
    let columns: Vec<String> = COLUMNS
        .iter()
        .map(|(name, kind)| format!("\"{name}\" {}", kind.sql_type()))
        .collect();
    db.execute_batch(&format!(
        "CREATE TEMP TABLE incoming ({}, precedence BIGINT NOT NULL);
         CREATE TEMP TABLE refused (line BIGINT, reason VARCHAR NOT NULL, text VARCHAR NOT NULL);",
        columns.join(", ")
    ))?;
    let appender = |table| db.appender_to_catalog_and_db(table, "temp", "main");
    let (mut runs, mut rejects) = (appender("incoming")?, appender("refused")?);
    for read in from {
        match read {
            Read::Runs(batch) => runs.append_record_batch(batch)?,
            Read::Rejected(reject) => {
                rejects.append_row(params![reject.line, reject.reason, reject.text])?
            }
        }
    }
    runs.flush()?;
    rejects.flush()?;
    drop((runs, rejects));
    Ok(db)
}

/// Longest difference between two time zones.
const MAX_SHIFT_SECONDS: i64 = 26 * 3600;

/// Looks for staged runs that are known at other times of the day, and does with them what the origin says. One such run is
/// enough to doubt the time zone: a job id does not come round within a day.
fn guard<E>(db: &Connection, origin: &Origin<'_>) -> Result<(), ImportError<E>> {
    if origin.shifted == Shifted::Keep {
        return Ok(());
    }
    // The same run in another zone differs in all its instants alike. A known run that the text has too, at the same time, is
    // another run of a requeued job.
    let shift = "(epoch(j.submit_time) - epoch(i.submit_time))::BIGINT";
    let find = format!(
        "CREATE TEMP TABLE elsewhere AS
         SELECT j.cluster, j.job_id, j.submit_time, {shift} AS seconds,
             coalesce(epoch(j.start_time) - epoch(i.start_time) = {shift}, false)
             AND coalesce(epoch(j.end_time) - epoch(i.end_time) = {shift}, true) AS is_same
         FROM incoming AS i
         JOIN records.jobs AS j ON i.cluster = j.cluster AND i.job_id = j.job_id AND i.\"user\" = j.\"user\"
         ANTI JOIN incoming AS k ON k.cluster = j.cluster AND k.job_id = j.job_id AND k.submit_time = j.submit_time
         WHERE abs({shift}) <= {MAX_SHIFT_SECONDS} AND {shift} % 900 = 0"
    );
    let found: duckdb::Result<(u64, Option<i64>)> = db.execute_batch(&find).and_then(|()| {
        db.query_row(
            "SELECT count(*), mode(seconds) FROM elsewhere WHERE is_same",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
    });
    let (runs, seconds) = found.map_err(StoreError::sql("compare the runs with those known"))?;
    let Some(seconds) = seconds else {
        return Ok(());
    };
    if origin.shifted == Shifted::Replace {
        // Runs recorded as pending or running have no end to compare. The shift of the others identifies them.
        let forget = "DELETE FROM records.jobs AS j USING elsewhere AS e
             WHERE j.cluster = e.cluster AND j.job_id = e.job_id AND j.submit_time = e.submit_time
                 AND e.seconds IN (SELECT seconds FROM elsewhere WHERE is_same)";
        let forgotten = db
            .execute(forget, [])
            .map_err(StoreError::sql("forget the runs of the other time zone"))?;
        tracing::warn!(
            runs = forgotten,
            "forgot runs that had been imported in another time zone"
        );
        return Ok(());
    }
    let earlier = if seconds < 0 { "earlier" } else { "later" };
    Err(ImportError::Shifted {
        runs,
        hours: seconds.abs() as f64 / 3600.0,
        earlier,
    })
}

/// Brings what was staged into the records, and ends the transaction.
fn merge(db: &Connection, origin: &Origin<'_>, summary: &mut ImportSummary) -> duckdb::Result<()> {
    let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, u64>(0));
    let identity =
        "i.cluster = j.cluster AND i.job_id = j.job_id AND i.submit_time = j.submit_time";

    db.execute_batch(
        "CREATE TEMP TABLE latest AS
             SELECT max(precedence) AS precedence FROM incoming GROUP BY cluster, job_id, submit_time",
    )?;
    summary.duplicates = summary.runs - count("SELECT count(*) FROM latest")?;
    if summary.duplicates > 0 {
        db.execute_batch(
            "DELETE FROM incoming WHERE precedence NOT IN (SELECT precedence FROM latest)",
        )?;
    }

    let told_otherwise: Vec<String> = told().map(|(_, incoming)| incoming).collect();
    db.execute_batch(&format!(
        "CREATE TEMP TABLE known AS
             SELECT i.precedence,
                    NOT (i.end_time IS NULL AND j.end_time IS NOT NULL)
                    AND NOT (i.start_time IS NULL AND i.end_time IS NULL AND j.start_time IS NOT NULL)
                    AND ({}) AS changed
             FROM incoming AS i JOIN records.jobs AS j ON {identity}",
        told_otherwise.join(" OR ")
    ))?;
    let known = count("SELECT count(*) FROM known")?;
    summary.runs_inserted = summary.runs - summary.duplicates - known;
    summary.runs_updated = count("SELECT count(*) FROM known WHERE changed")?;
    summary.unchanged = known - summary.runs_updated;

    let names: Vec<String> = COLUMNS
        .iter()
        .map(|(name, _)| format!("\"{name}\""))
        .collect();
    let names = names.join(", ");
    let stamp = format!("?, make_timestamp({})", microseconds_now());
    let target = format!("INSERT INTO records.jobs ({names}, source, recorded_at)");
    if summary.runs_updated > 0 {
        let merged: Vec<String> = told().map(|(merged, _)| merged).collect();
        db.execute_batch(&format!(
            "CREATE TEMP TABLE corrected AS
                 SELECT {} FROM incoming AS i JOIN records.jobs AS j ON {identity}
                 WHERE i.precedence IN (SELECT precedence FROM known WHERE changed);
             DELETE FROM records.jobs AS j USING corrected AS i WHERE {identity};",
            merged.join(", ")
        ))?;
        db.execute(
            &format!("{target} SELECT {names}, {stamp} FROM corrected"),
            [origin.source],
        )?;
    }
    if summary.runs_inserted > 0 {
        let sql = format!(
            "{target} SELECT {names}, {stamp} FROM incoming ANTI JOIN known USING (precedence)"
        );
        db.execute(&sql, [origin.source])?;
    }
    note(db, origin, summary)?;
    db.execute_batch("COMMIT")
}

/// Seconds for which every answer of a source is remembered.
const LONGEST_LOOK_BACK: i64 = 86_400;

/// Rejected rows, the clusters' time zone, and how far the source has told.
fn note(db: &Connection, origin: &Origin<'_>, summary: &ImportSummary) -> duckdb::Result<()> {
    if summary.rejected > 0 {
        db.execute(
            &format!(
                "INSERT INTO records.rejects (source, line, reason, text, recorded_at)
                 SELECT ?, line, reason, text, make_timestamp({}) FROM
                     (SELECT DISTINCT line, reason, text FROM refused
                      EXCEPT SELECT line, reason, text FROM records.rejects WHERE source = ?)",
                microseconds_now()
            ),
            [origin.name, origin.name],
        )?;
    }
    if let Some(timezone) = origin.timezone {
        db.execute_batch(
            "DELETE FROM records.clusters WHERE cluster IN (SELECT DISTINCT cluster FROM incoming)",
        )?;
        db.execute(
            "INSERT INTO records.clusters SELECT DISTINCT cluster, ? FROM incoming",
            [timezone],
        )?;
    }
    if let Some((cluster, instant)) = origin.told_until {
        db.execute(
            "INSERT INTO records.polls VALUES (?, ?, make_timestamp(?::BIGINT)::TIMESTAMP_S)",
            params![cluster, origin.source, super::micros(instant)],
        )?;
        // The last one that is older than any look-back, and all since, are what may still be asked for.
        db.execute(
            "DELETE FROM records.polls AS old USING (
                 SELECT max(told_until) AS keep FROM records.polls
                 WHERE cluster = ? AND source = ? AND told_until <= make_timestamp(?::BIGINT)::TIMESTAMP_S)
             WHERE old.cluster = ? AND old.source = ? AND old.told_until < keep",
            params![cluster, origin.source, super::micros(instant - LONGEST_LOOK_BACK), cluster, origin.source],
        )?;
    }
    Ok(())
}

/// For each column beyond the identity: its value after a correction, and whether the text tells another than is known.
fn told() -> impl Iterator<Item = (String, String)> {
    COLUMNS.iter().map(|(name, kind)| {
        let told = match kind {
            Kind::Word(_) => format!("nullif(i.\"{name}\", '')"),
            _ => format!("i.\"{name}\""),
        };
        let merged = format!("coalesce({told}, j.\"{name}\") AS \"{name}\"");
        (
            merged,
            format!("coalesce({told} IS DISTINCT FROM j.\"{name}\" AND {told} IS NOT NULL, false)"),
        )
    })
}

/// How a column is filled.
enum Kind {
    /// Always there; empty where the text does not have it.
    Word(fn(&JobRun) -> &str),
    Text(fn(&JobRun) -> Option<&str>),
    Time(fn(&JobRun) -> Option<i64>),
    Amount(fn(&JobRun) -> Option<u64>),
}

impl Kind {
    fn sql_type(&self) -> &'static str {
        match self {
            Self::Word(_) => "VARCHAR NOT NULL",
            Self::Text(_) => "VARCHAR",
            Self::Time(_) => "TIMESTAMP_S",
            Self::Amount(_) => "BIGINT",
        }
    }
}

/// The columns of `records.jobs` that a run fills.
const COLUMNS: &[(&str, Kind)] = &[
    ("cluster", Kind::Word(|run| &run.cluster)),
    ("job_id", Kind::Word(|run| &run.job_id)),
    ("submit_time", Kind::Time(|run| Some(run.submit))),
    ("eligible_time", Kind::Time(|run| run.eligible)),
    ("start_time", Kind::Time(|run| run.start)),
    ("end_time", Kind::Time(|run| run.end)),
    ("state", Kind::Word(|run| &run.state)),
    ("user", Kind::Word(|run| &run.user)),
    ("account", Kind::Word(|run| &run.account)),
    ("partition", Kind::Word(|run| &run.partition)),
    ("qos", Kind::Text(|run| run.qos.as_deref())),
    ("job_name", Kind::Text(|run| run.name.as_deref())),
    ("nodes", Kind::Amount(|run| run.nodes)),
    ("cpus", Kind::Amount(|run| run.cpus)),
    ("gpus", Kind::Amount(|run| run.gpus)),
    ("gpu_model", Kind::Text(|run| run.gpu_model.as_deref())),
    ("mem_bytes", Kind::Amount(|run| run.mem_bytes)),
    ("billing", Kind::Amount(|run| run.billing)),
    ("alloc_tres", Kind::Text(|run| run.alloc_tres.as_deref())),
    ("req_tres", Kind::Text(|run| run.req_tres.as_deref())),
    ("node_list", Kind::Text(|run| run.node_list.as_deref())),
    ("elapsed_seconds", Kind::Amount(|run| run.elapsed)),
    ("suspended_seconds", Kind::Amount(|run| run.suspended)),
    ("timelimit_seconds", Kind::Amount(|run| run.timelimit)),
    ("exit_code", Kind::Text(|run| run.exit_code.as_deref())),
    ("reservation", Kind::Text(|run| run.reservation.as_deref())),
    ("raw_job_id", Kind::Text(|run| run.raw_job_id.as_deref())),
];

/// Runs on their way into `incoming`, a vector of DuckDB's at a time.
struct Batch {
    columns: Vec<Builder>,
    precedence: Int64Builder,
    rows: usize,
    pushed: u64,
}

enum Builder {
    Text(StringBuilder),
    Time(TimestampSecondBuilder),
    Amount(Int64Builder),
}

/// DuckDB's vector size: larger batches are cut, smaller ones cost a call each.
const BATCH_ROWS: usize = 2048;

/// Of two rows of one run the later row counts, but first the one that is further on: waiting, running, over.
const STAGE: i64 = 1 << 48;

impl Batch {
    fn new() -> Self {
        let builder = |(_, kind): &(&str, Kind)| match kind {
            Kind::Word(_) | Kind::Text(_) => Builder::Text(StringBuilder::new()),
            Kind::Time(_) => Builder::Time(TimestampSecondBuilder::new()),
            Kind::Amount(_) => Builder::Amount(Int64Builder::new()),
        };
        Self {
            columns: COLUMNS.iter().map(builder).collect(),
            precedence: Int64Builder::new(),
            rows: 0,
            pushed: 0,
        }
    }

    /// Adds a run; gives the batch when it is full.
    fn push(&mut self, run: &JobRun) -> Option<RecordBatch> {
        for ((_, kind), builder) in COLUMNS.iter().zip(&mut self.columns) {
            match (kind, builder) {
                (Kind::Word(of), Builder::Text(column)) => column.append_value(of(run)),
                (Kind::Text(of), Builder::Text(column)) => column.append_option(of(run)),
                (Kind::Time(of), Builder::Time(column)) => column.append_option(of(run)),
                (Kind::Amount(of), Builder::Amount(column)) => {
                    column.append_option(of(run).map(u64::cast_signed))
                }
                _ => unreachable!("each column has the builder of its kind"),
            }
        }
        let stage = i64::from(run.start.is_some()) + 2 * i64::from(run.end.is_some());
        self.precedence
            .append_value(stage * STAGE + self.pushed.cast_signed());
        self.pushed += 1;
        self.rows += 1;
        (self.rows == BATCH_ROWS).then(|| self.take())
    }

    /// What was added since the last time.
    fn take(&mut self) -> RecordBatch {
        self.rows = 0;
        let finish = |builder: &mut Builder| -> ArrayRef {
            match builder {
                Builder::Text(column) => Arc::new(column.finish()),
                Builder::Time(column) => Arc::new(column.finish()),
                Builder::Amount(column) => Arc::new(column.finish()),
            }
        };
        let names = COLUMNS.iter().map(|(name, _)| *name).chain(["precedence"]);
        let arrays = self.columns.iter_mut().map(finish).collect::<Vec<_>>();
        let arrays = arrays
            .into_iter()
            .chain([Arc::new(self.precedence.finish()) as ArrayRef]);
        RecordBatch::try_from_iter_with_nullable(
            names.zip(arrays).map(|(name, array)| (name, array, true)),
        )
        .expect("columns of one length")
    }
}
