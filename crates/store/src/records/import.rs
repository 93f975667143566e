//! Import of runs: upserts by identity, all rows of a source in one transaction.
//!
//! Runs are staged in a temporary table by a thread of its own, while more are read. Sets are
//! compared instead of rows, so no index is needed. A value missing in the source (NULL, an empty
//! account) keeps the recorded one. An older state than the recorded one (the run still waits or
//! runs, though it has ended) changes nothing.
//!
//! A file in which a job's name can look like a record ([`Corrections::Refuse`]) may add runs, end
//! recorded runs of the same user and fill their gaps. What was recorded of a run that has begun stays:
//! a true record of fewer GPUs ends the run all the same. What contradicts an ended run, an earlier row of the
//! file, or a poll of slurmdbd that listed the run as unfinished after its end, is set aside with the rejected rows. Without
//! slurmdbd, a running run that such a file ended is open again as soon as slurmctld lists it ([`Records::set_aside_false_ends`]).

use super::Records;
use super::contradictions::{
    IDENTITY, SHIFTED, find_contradictions, is_record, keeps_recorded, set_aside_contradictions,
    text_of, user_is_number,
};
use crate::StoreError;
use crate::database::microseconds_now;
use duckdb::arrow::array::{
    ArrayRef, Int64Builder, RecordBatch, StringBuilder, TimestampSecondBuilder,
};
use duckdb::{Connection, params};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use takt_jobs::{Entry, JobRun, MAX_TEXT_BYTES, Reject, bounded, is_known_state, nodelist};
use takt_model::UnixTime;

/// Source of runs that slurmctld's live queue reported. Its values of an ended run can be those of
/// a moment, so they never replace those of a record: they fill its gaps.
pub const LIVE_QUEUE: &str = "slurmctld";

/// Origin of imported runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin<'a> {
    /// Kind of source, as in `sacct`.
    pub source: &'a str,
    /// Name of the file or of another source, recorded with rejected rows.
    pub name: &'a str,
    /// Time zone to record for every cluster in the source. `None` keeps the recorded one.
    pub timezone: Option<&'a str>,
    /// Cluster, and the time up to which the source has now been imported completely.
    /// The next import continues from it.
    pub complete_until: Option<(&'a str, UnixTime)>,
    /// Handling of runs that are recorded earlier or later by the difference of two time zones.
    pub shifted: Shifted,
    /// Handling of runs that contradict recorded ones.
    pub corrections: Corrections,
}

/// Handling of runs that contradict recorded ones: another user, or, once the recorded run has ended,
/// another account, time or amount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Corrections {
    /// Keep the recorded run and set the other one aside. For texts in which a user's text can look
    /// like a record.
    #[default]
    Refuse,
    /// Correct the recorded run.
    Accept,
}

/// Handling of a source whose runs are recorded with all times shifted by the same quarters of an
/// hour. One of the two imports used a wrong time zone, and storing both would count every run
/// twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shifted {
    /// Import nothing and return an error.
    #[default]
    Refuse,
    /// Delete the recorded runs first.
    Replace,
    /// Import the runs as other runs.
    Keep,
}

/// Result of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportSummary {
    /// Rows read: runs (array tasks may share one), steps and rejected rows.
    pub rows: u64,
    /// Runs read.
    pub runs: u64,
    /// Runs read that have begun and have no end.
    #[serde(default)]
    pub running: u64,
    /// Runs that were not recorded before.
    pub runs_inserted: u64,
    /// Recorded runs that changed.
    pub runs_updated: u64,
    /// Runs recorded with the same or newer data.
    pub unchanged: u64,
    /// Runs that occur again later in the source. The last and latest row is used.
    pub duplicates: u64,
    /// Job steps, skipped because they use the job's allocation.
    pub steps_skipped: u64,
    /// Rows that could not be parsed, or contradict recorded runs. They are stored in `rejects`.
    pub rejected: u64,
    /// Runs among the rejected rows that contradict recorded ones, or earlier rows of the source.
    #[serde(default)]
    pub contradicting: u64,
    /// Rejected rows that were not stored before.
    #[serde(default)]
    pub rejected_first: u64,
    /// Runs by states that Takt does not know, as a later version of Slurm may have; at most 20 states.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown_states: BTreeMap<String, u64>,
    /// The first rejected rows.
    pub first_rejects: Vec<Reject>,
}

impl AddAssign for ImportSummary {
    /// Adds the figures of another import.
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.runs += other.runs;
        self.running += other.running;
        self.runs_inserted += other.runs_inserted;
        self.runs_updated += other.runs_updated;
        self.unchanged += other.unchanged;
        self.duplicates += other.duplicates;
        self.steps_skipped += other.steps_skipped;
        self.rejected += other.rejected;
        self.contradicting += other.contradicting;
        self.rejected_first += other.rejected_first;
        for (state, runs) in other.unknown_states {
            self.note_unknown_state(&state, runs);
        }
        self.first_rejects.extend(other.first_rejects);
        self.first_rejects.truncate(FIRST_REJECTS);
    }
}

impl ImportSummary {
    fn note_unknown_state(&mut self, state: &str, runs: u64) {
        let counted = self.unknown_states.get_mut(state);
        if let Some(counted) = counted {
            *counted += runs;
        } else if self.unknown_states.len() < MAX_UNKNOWN_STATES {
            self.unknown_states.insert(state.to_owned(), runs);
        }
    }
}

/// Maximum number of rejected rows in a summary.
pub(super) const FIRST_REJECTS: usize = 10;

/// Maximum number of unknown states in a summary.
const MAX_UNKNOWN_STATES: usize = 20;

/// Reason why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError<E> {
    /// The source failed.
    #[error(transparent)]
    Source(E),
    /// The runs are recorded at other times of the day.
    #[error(
        "{runs} of these runs are known already, {hours} h {earlier}: one of the two imports used a \
         wrong time zone; use the right --timezone, and add --shifted replace if the earlier import \
         was wrong"
    )]
    Shifted {
        /// Number of these runs.
        runs: u64,
        /// Difference in hours.
        hours: f64,
        /// `earlier` or `later`.
        earlier: &'static str,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Records<'_> {
    /// Imports all entries of a source. Imports nothing if the source or the store fails.
    ///
    /// # Errors
    /// The error of the source or of the store.
    pub fn import<E>(
        &self,
        origin: &Origin<'_>,
        entries: impl IntoIterator<Item = Result<Entry, E>>,
    ) -> Result<ImportSummary, ImportError<E>> {
        let entries = entries.into_iter().map(|entry| Ok((None, entry?)));
        self.import_as(origin, None, entries)
    }

    /// Imports entries with their lines and, where `file` is given, logs the import with the time zone of
    /// the file.
    pub(super) fn import_as<E>(
        &self,
        origin: &Origin<'_>,
        file: Option<Option<&str>>,
        entries: impl IntoIterator<Item = Result<(Option<u64>, Entry), E>>,
    ) -> Result<ImportSummary, ImportError<E>> {
        // Two concurrent imports could both add the same new run. Only this lock keeps identities
        // unique.
        let _writing = self.database.writing();
        let db = self.database.connect()?;
        let mut summary = ImportSummary::default();
        let db = stage(db, origin, entries, &mut summary)?;
        choose_partitions(&db).map_err(StoreError::sql("find the partitions of runs"))?;
        db.execute_batch("BEGIN")
            .map_err(StoreError::sql("store the job records"))?;
        if origin.corrections == Corrections::Refuse {
            find_contradictions(&db)
                .map_err(StoreError::sql("compare the runs with recorded ones"))?;
        }
        guard(&db, origin)?;
        merge(&db, origin, file, &mut summary).map_err(StoreError::sql("store the job records"))?;
        Ok(summary)
    }
}

/// Entries passed from the reading to the staging thread.
enum StagedEntry {
    Runs(RecordBatch),
    Rejected(Reject),
}

/// Batches that may be read ahead of staging.
const READ_AHEAD: usize = 8;

/// Reads all entries into the temporary tables `incoming` and `refused` of a connection, and
/// returns the connection.
fn stage<E>(
    db: Connection,
    origin: &Origin<'_>,
    entries: impl IntoIterator<Item = Result<(Option<u64>, Entry), E>>,
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

/// Reads entries until the end, an error of the source, or the end of the staging thread.
fn read<E>(
    entries: impl IntoIterator<Item = Result<(Option<u64>, Entry), E>>,
    to: &SyncSender<StagedEntry>,
    summary: &mut ImportSummary,
) -> Result<(), E> {
    let mut batch = RunBatch::new();
    let mut running = 0;
    for entry in entries {
        summary.rows += 1;
        let (line, entry) = entry?;
        let mut push = |run: &JobRun| {
            running += u64::from(run.start.is_some() && run.end.is_none());
            if !is_known_state(&run.state) {
                summary.note_unknown_state(&run.state, 1);
            }
            batch
                .push(line, run)
                .is_none_or(|full| to.send(StagedEntry::Runs(full)).is_ok())
        };
        let is_staged = match entry {
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
                to.send(StagedEntry::Rejected(reject)).is_ok()
            }
        };
        if !is_staged {
            break;
        }
    }
    summary.runs = batch.pushed;
    summary.running = running;
    // If the staging thread has stopped, it reports its own error.
    let _ = to.send(StagedEntry::Runs(batch.take()));
    Ok(())
}

/// Creates the temporary tables and appends the received entries.
fn append(db: Connection, from: &Receiver<StagedEntry>) -> duckdb::Result<Connection> {
    let columns: Vec<String> = COLUMNS
        .iter()
        .map(|(name, kind)| format!("\"{name}\" {}", kind.sql_type()))
        .collect();
    db.execute_batch(&format!(
        "CREATE TEMP TABLE incoming ({}, line BIGINT, precedence BIGINT NOT NULL);
         CREATE TEMP TABLE refused (line BIGINT, reason VARCHAR NOT NULL, text VARCHAR NOT NULL);",
        columns.join(", ")
    ))?;
    let appender = |table| db.appender_to_catalog_and_db(table, "temp", "main");
    let mut runs = appender("incoming")?;
    let mut rejects = appender("refused")?;
    for read in from {
        match read {
            StagedEntry::Runs(batch) => runs.append_record_batch(batch)?,
            StagedEntry::Rejected(reject) => {
                rejects.append_row(params![reject.line, reject.reason, reject.text])?
            }
        }
    }
    runs.flush()?;
    rejects.flush()?;
    drop((runs, rejects));
    Ok(db)
}

/// Reduces the partitions of staged runs that have begun to the one that has their nodes: a job may ask for
/// several. If the nodes do not decide, it is the first.
fn choose_partitions(db: &Connection) -> duckdb::Result<()> {
    let is_several = "start_time IS NOT NULL AND contains(\"partition\", ',')";
    let mut found = db.prepare(&format!(
        "SELECT DISTINCT cluster, \"partition\", coalesce(node_list, '') FROM incoming WHERE {is_several}"
    ))?;
    let found = found
        .query_map([], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, String>(2)?,
            ))
        })?
        .collect::<duckdb::Result<Vec<_>>>()?;
    for (cluster, partitions, node_list) in found {
        let mut has_nodes = db.prepare(
            "SELECT count(*) = ? FROM records.nodes WHERE cluster = ? AND list_contains(string_split(?, ','), node)
             AND list_contains(string_split(partitions, ','), ?)",
        )?;
        let nodes = nodelist::expand(&node_list).unwrap_or_default();
        let mut chosen = partitions.split(',').next().unwrap_or_default();
        for partition in partitions.split(',').filter(|_| !nodes.is_empty()) {
            let values = params![nodes.len() as u64, cluster, nodes.join(","), partition];
            if has_nodes.query_row(values, |row| row.get(0))? {
                chosen = partition;
                break;
            }
        }
        db.execute(
            &format!(
                "UPDATE incoming SET \"partition\" = ?
                 WHERE {is_several} AND cluster = ? AND \"partition\" = ? AND coalesce(node_list, '') = ?"
            ),
            params![chosen, cluster, partitions, node_list],
        )?;
    }
    Ok(())
}

/// Longest difference between two time zones, in seconds.
const MAX_SHIFT_SECONDS: i64 = 26 * 3600;

/// Finds staged runs that are recorded at other times of the day, and handles them as the origin
/// requires. One such run is enough: job ids are not reused within a day. Where a user's text can look like
/// a run, runs that are recorded at the same times can show that the time zone is right: then the others
/// are set aside.
fn guard<E>(db: &Connection, origin: &Origin<'_>) -> Result<(), ImportError<E>> {
    if origin.shifted == Shifted::Keep {
        return Ok(());
    }

    // In another time zone, all times of a run differ by the same amount. A recorded run that the
    // source contains with the same times is another run of a requeued job.
    let shift = "(epoch(j.submit_time) - epoch(i.submit_time))::BIGINT";
    let find = format!(
        "CREATE TEMP TABLE elsewhere AS
         SELECT i.precedence, j.cluster, j.job_id, j.submit_time, {shift} AS seconds,
             coalesce(epoch(j.start_time) - epoch(i.start_time) = {shift}, false)
             AND coalesce(epoch(j.end_time) - epoch(i.end_time) = {shift}, true) AS is_same
         FROM incoming AS i
         JOIN records.jobs AS j
             ON i.cluster = j.cluster AND i.job_id = j.job_id AND i.\"user\" = j.\"user\"
         ANTI JOIN incoming AS k
             ON k.cluster = j.cluster AND k.job_id = j.job_id AND k.submit_time = j.submit_time
         WHERE abs({shift}) <= {MAX_SHIFT_SECONDS} AND {shift} % 900 = 0"
    );
    let found: duckdb::Result<(u64, Option<i64>)> = db.execute_batch(&find).and_then(|()| {
        db.query_row(
            "SELECT count(*), mode(seconds) FROM elsewhere WHERE is_same",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
    });
    let (runs, seconds) = found.map_err(StoreError::sql("compare the runs with recorded ones"))?;
    let Some(seconds) = seconds else {
        return Ok(());
    };

    if origin.shifted == Shifted::Replace {
        // Runs recorded as pending or running have no end to compare. The shift of the other runs
        // identifies them.
        let forget = "DELETE FROM records.jobs AS j USING elsewhere AS e
             WHERE j.cluster = e.cluster AND j.job_id = e.job_id AND j.submit_time = e.submit_time
                 AND e.seconds IN (SELECT seconds FROM elsewhere WHERE is_same)";
        let forgotten = db
            .execute(forget, [])
            .map_err(StoreError::sql("delete the runs of the other time zone"))?;
        tracing::warn!(
            runs = forgotten,
            "deleted runs imported in another time zone"
        );
        return Ok(());
    }
    if origin.corrections == Corrections::Refuse {
        let is_set_aside = set_aside_shifted(db, runs)
            .map_err(StoreError::sql("compare the runs with recorded ones"))?;
        if is_set_aside {
            return Ok(());
        }
    }
    let earlier = if seconds < 0 { "earlier" } else { "later" };
    Err(ImportError::Shifted {
        runs,
        hours: seconds.abs() as f64 / 3600.0,
        earlier,
    })
}

/// Sets aside the runs that are recorded at other times, and returns true, if more runs are recorded at
/// their own times.
fn set_aside_shifted(db: &Connection, runs: u64) -> duckdb::Result<bool> {
    let agreeing: u64 = db.query_row(
        &format!(
            "SELECT count(*) FROM incoming AS i JOIN records.jobs AS j ON {IDENTITY}
             WHERE i.start_time = j.start_time AND i.precedence NOT IN (SELECT precedence FROM contradicting)"
        ),
        [],
        |row| row.get(0),
    )?;
    if agreeing > runs {
        db.execute(
            &format!(
                "INSERT INTO contradicting SELECT i.precedence, i.line, ?, {}
                 FROM incoming AS i
                 WHERE i.precedence IN (SELECT precedence FROM elsewhere WHERE is_same)",
                text_of('i')
            ),
            [SHIFTED],
        )?;
    }
    Ok(agreeing > runs)
}

/// Merges the staged rows into the records and commits.
fn merge(
    db: &Connection,
    origin: &Origin<'_>,
    file: Option<Option<&str>>,
    summary: &mut ImportSummary,
) -> duckdb::Result<()> {
    let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, u64>(0));
    let refuses = origin.corrections == Corrections::Refuse;
    if refuses {
        set_aside_contradictions(db, summary)?;
    }

    db.execute_batch(
        "CREATE TEMP TABLE latest AS
             SELECT max(precedence) AS precedence FROM incoming GROUP BY cluster, job_id, submit_time",
    )?;
    let staged = summary.runs - summary.contradicting;
    summary.duplicates = staged - count("SELECT count(*) FROM latest")?;
    if summary.duplicates > 0 {
        db.execute_batch(
            "DELETE FROM incoming WHERE precedence NOT IN (SELECT precedence FROM latest)",
        )?;
    }

    let fills_gaps = match origin.source {
        _ if refuses => keeps_recorded(),
        LIVE_QUEUE => is_record(),
        _ => "false".to_owned(),
    };
    let merged: Vec<MergedColumn> = COLUMNS
        .iter()
        .map(|column| MergedColumn::of(column, origin.source))
        .collect();
    let differs = |fills: bool| {
        let columns: Vec<String> = merged.iter().map(|column| column.differs(fills)).collect();
        columns.join(" OR ")
    };
    db.execute_batch(&format!(
        "CREATE TEMP TABLE known AS
             SELECT i.precedence, {fills_gaps} AS fills_gaps,
                    NOT (i.end_time IS NULL AND j.end_time IS NOT NULL)
                    AND NOT (i.start_time IS NULL AND i.end_time IS NULL AND j.start_time IS NOT NULL)
                    AND CASE WHEN {fills_gaps} THEN {} ELSE {} END AS changed
             FROM incoming AS i JOIN records.jobs AS j ON {IDENTITY}",
        differs(true),
        differs(false)
    ))?;
    let known = count("SELECT count(*) FROM known")?;
    summary.runs_inserted = staged - summary.duplicates - known;
    summary.runs_updated = count("SELECT count(*) FROM known WHERE changed")?;
    summary.unchanged = known - summary.runs_updated;

    let names: Vec<String> = COLUMNS
        .iter()
        .map(|(name, _)| format!("\"{name}\""))
        .collect();
    let names = names.join(", ");
    let stamp = format!("make_timestamp({})", microseconds_now());
    if summary.runs_updated > 0 {
        let values: Vec<String> = merged.iter().map(MergedColumn::value).collect();
        db.execute(
            &format!(
                "CREATE TEMP TABLE corrected AS
                     SELECT {}, CASE WHEN k.fills_gaps THEN j.source ELSE ? END AS source
                     FROM known AS k JOIN incoming AS i USING (precedence)
                     JOIN records.jobs AS j ON {IDENTITY} WHERE k.changed",
                values.join(", ")
            ),
            [origin.source],
        )?;
        db.execute_batch(&format!(
            "DELETE FROM records.jobs AS j USING corrected AS i WHERE {IDENTITY};
             INSERT INTO records.jobs ({names}, source, recorded_at)
                 SELECT {names}, source, {stamp} FROM corrected"
        ))?;
    }
    let import_id = file
        .map(|zone| log_import(db, origin, zone, summary))
        .transpose()?;
    if summary.runs_inserted > 0 {
        // Corrected runs have no import: other sources have them too.
        let sql = format!(
            "INSERT INTO records.jobs ({names}, source, recorded_at, import_id)
             SELECT {names}, ?, {stamp}, ? FROM incoming ANTI JOIN known USING (precedence)"
        );
        db.execute(&sql, params![origin.source, import_id])?;
    }
    note(db, origin, summary)?;
    db.execute_batch("COMMIT")
}

/// Adds an import to the log and returns its number.
fn log_import(
    db: &Connection,
    origin: &Origin<'_>,
    zone: Option<&str>,
    summary: &ImportSummary,
) -> duckdb::Result<i64> {
    db.query_row(
        &format!(
            "INSERT INTO records.imports
             SELECT coalesce(max(id), 0) + 1, ?, ?, ?, make_timestamp({}), ?, ?, NULL FROM records.imports
             RETURNING id",
            microseconds_now()
        ),
        params![
            origin.source,
            origin.name,
            zone,
            summary.runs_inserted.cast_signed(),
            summary.runs_updated.cast_signed()
        ],
        |row| row.get(0),
    )
}

/// Seconds for which every imported-until time of a source is kept.
const LONGEST_LOOK_BACK: i64 = 86_400;

/// Stores rejected rows, the clusters' time zone, and the time up to which the source was imported.
fn note(db: &Connection, origin: &Origin<'_>, summary: &mut ImportSummary) -> duckdb::Result<()> {
    if summary.rejected > 0 {
        let stored = db.execute(
            &format!(
                "INSERT INTO records.rejects (source, line, reason, text, recorded_at)
                 SELECT ?, line, reason, text, make_timestamp({}) FROM
                     (SELECT DISTINCT line, reason, text FROM refused
                      EXCEPT SELECT line, reason, text FROM records.rejects WHERE source = ?)",
                microseconds_now()
            ),
            [origin.name, origin.name],
        )?;
        summary.rejected_first = stored as u64;
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
    if let Some((cluster, instant)) = origin.complete_until {
        db.execute(
            "INSERT INTO records.polls VALUES (?, ?, make_timestamp(?::BIGINT)::TIMESTAMP_S)",
            params![cluster, origin.source, super::micros(instant)],
        )?;
        // Keep the last entry older than the longest look-back, and all newer ones: only these can
        // be queried.
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

/// SQL for a column of an incoming run `i` that is recorded as `j` already.
struct MergedColumn {
    name: &'static str,
    incoming: String,
    recorded: String,
}

impl MergedColumn {
    fn of((name, kind): &(&'static str, ColumnKind), source: &str) -> Self {
        let value = |row: char| match kind {
            ColumnKind::Word(_) => format!("nullif({row}.\"{name}\", '')"),
            _ => format!("{row}.\"{name}\""),
        };
        let (incoming, recorded) = match *name {
            // slurmctld and sacct show a uid while the name is unknown.
            "user" => (
                format!(
                    "CASE WHEN j.\"user\" = '' OR {} OR NOT {} THEN nullif(i.\"user\", '') END",
                    user_is_number('j'),
                    user_is_number('i')
                ),
                value('j'),
            ),
            // Slurm records the last size of a run's memory only. A correction after the end is no shrinking.
            "mem_bytes_most" => (
                "CASE WHEN j.end_time IS NULL AND i.mem_bytes < j.mem_bytes
                      THEN greatest(j.mem_bytes, coalesce(j.mem_bytes_most, 0)) ELSE i.mem_bytes_most END"
                    .to_owned(),
                value('j'),
            ),
            // slurmctld moves the start to the end where a job is cancelled before it runs again, and the answer
            // may still be about the run before.
            "start_time" if source == LIVE_QUEUE => (
                "CASE WHEN i.start_time = i.end_time AND j.start_time < i.start_time
                      THEN j.start_time ELSE i.start_time END"
                    .to_owned(),
                value('j'),
            ),
            // The state of a run ends with the run.
            "state" => (
                value('i'),
                "CASE WHEN j.end_time IS NOT NULL OR i.end_time IS NULL THEN nullif(j.state, '') END"
                    .to_owned(),
            ),
            _ => (value('i'), value('j')),
        };
        Self {
            name,
            incoming,
            recorded,
        }
    }

    /// Whether the incoming run changes the column; with `fills_gaps`, only a missing value.
    fn differs(&self, fills_gaps: bool) -> String {
        let Self {
            incoming, recorded, ..
        } = self;
        if fills_gaps {
            format!("({incoming} IS NOT NULL AND {recorded} IS NULL)")
        } else {
            format!("({incoming} IS NOT NULL AND {incoming} IS DISTINCT FROM {recorded})")
        }
    }

    /// The merged value. `k` is the row in `known`.
    fn value(&self) -> String {
        let Self {
            name,
            incoming,
            recorded,
        } = self;
        format!(
            "CASE WHEN k.fills_gaps THEN coalesce({recorded}, {incoming}, j.\"{name}\")
             ELSE coalesce({incoming}, j.\"{name}\") END AS \"{name}\""
        )
    }
}

/// How a run fills a column.
enum ColumnKind {
    /// Never NULL; empty if the source lacks it.
    Word(fn(&JobRun) -> &str),
    Text(fn(&JobRun) -> Option<&str>),
    /// A text that Slurm makes. It may be longer than [`MAX_TEXT_BYTES`], and a part of it would be
    /// wrong.
    List(fn(&JobRun) -> Option<&str>),
    Time(fn(&JobRun) -> Option<UnixTime>),
    Amount(fn(&JobRun) -> Option<u64>),
}

impl ColumnKind {
    fn sql_type(&self) -> &'static str {
        match self {
            Self::Word(_) => "VARCHAR NOT NULL",
            Self::Text(_) | Self::List(_) => "VARCHAR",
            Self::Time(_) => "TIMESTAMP_S",
            Self::Amount(_) => "BIGINT",
        }
    }
}

/// The columns of `records.jobs` that a run fills.
const COLUMNS: &[(&str, ColumnKind)] = &[
    ("cluster", ColumnKind::Word(|run| &run.cluster)),
    ("job_id", ColumnKind::Word(|run| &run.job_id)),
    ("submit_time", ColumnKind::Time(|run| Some(run.submit))),
    ("eligible_time", ColumnKind::Time(|run| run.eligible)),
    ("start_time", ColumnKind::Time(|run| run.start)),
    ("end_time", ColumnKind::Time(|run| run.end)),
    ("state", ColumnKind::Word(|run| &run.state)),
    ("user", ColumnKind::Word(|run| &run.user)),
    ("account", ColumnKind::Word(|run| &run.account)),
    ("partition", ColumnKind::Word(|run| &run.partition)),
    ("qos", ColumnKind::Text(|run| run.qos.as_deref())),
    ("job_name", ColumnKind::Text(|run| run.name.as_deref())),
    ("nodes", ColumnKind::Amount(|run| run.nodes)),
    ("cpus", ColumnKind::Amount(|run| run.cpus)),
    ("gpus", ColumnKind::Amount(|run| run.gpus)),
    (
        "gpu_model",
        ColumnKind::Text(|run| run.gpu_model.as_deref()),
    ),
    ("mem_bytes", ColumnKind::Amount(|run| run.mem_bytes)),
    ("billing", ColumnKind::Amount(|run| run.billing)),
    (
        "alloc_tres",
        ColumnKind::List(|run| run.alloc_tres.as_deref()),
    ),
    ("req_tres", ColumnKind::List(|run| run.req_tres.as_deref())),
    (
        "node_list",
        ColumnKind::List(|run| run.node_list.as_deref()),
    ),
    ("elapsed_seconds", ColumnKind::Amount(|run| run.elapsed)),
    ("suspended_seconds", ColumnKind::Amount(|run| run.suspended)),
    ("timelimit_seconds", ColumnKind::Amount(|run| run.timelimit)),
    (
        "exit_code",
        ColumnKind::Text(|run| run.exit_code.as_deref()),
    ),
    (
        "reservation",
        ColumnKind::Text(|run| run.reservation.as_deref()),
    ),
    (
        "raw_job_id",
        ColumnKind::Text(|run| run.raw_job_id.as_deref()),
    ),
    ("sluid", ColumnKind::Text(|run| run.sluid.as_deref())),
    (
        "original_sluid",
        ColumnKind::Text(|run| run.original_sluid.as_deref()),
    ),
    (
        "mem_bytes_most",
        ColumnKind::Amount(|run| run.mem_bytes_most),
    ),
];

/// Runs to be appended to `incoming`, one DuckDB vector at a time.
struct RunBatch {
    columns: Vec<ColumnBuilder>,
    line: Int64Builder,
    precedence: Int64Builder,
    rows: usize,
    pushed: u64,
}

enum ColumnBuilder {
    Text(StringBuilder),
    Time(TimestampSecondBuilder),
    Amount(Int64Builder),
}

/// DuckDB's vector size: larger batches are split, and each batch costs a call.
const BATCH_ROWS: usize = 2048;

/// Weight of a run's stage. Of two rows of one run, the one in the later stage (waiting, running,
/// finished) is used, then the later row.
const STAGE: i64 = 1 << 48;

impl RunBatch {
    fn new() -> Self {
        let columns = COLUMNS
            .iter()
            .map(|(_, kind)| match kind {
                ColumnKind::Word(_) | ColumnKind::Text(_) | ColumnKind::List(_) => {
                    ColumnBuilder::Text(StringBuilder::new())
                }
                ColumnKind::Time(_) => ColumnBuilder::Time(TimestampSecondBuilder::new()),
                ColumnKind::Amount(_) => ColumnBuilder::Amount(Int64Builder::new()),
            })
            .collect();
        Self {
            columns,
            line: Int64Builder::new(),
            precedence: Int64Builder::new(),
            rows: 0,
            pushed: 0,
        }
    }

    /// Adds the run of a line. Returns the batch when it is full.
    fn push(&mut self, line: Option<u64>, run: &JobRun) -> Option<RecordBatch> {
        for ((_, kind), builder) in COLUMNS.iter().zip(&mut self.columns) {
            match (kind, builder) {
                (ColumnKind::Word(of), ColumnBuilder::Text(column)) => {
                    column.append_value(bounded(of(run), MAX_TEXT_BYTES))
                }
                (ColumnKind::Text(of), ColumnBuilder::Text(column)) => {
                    column.append_option(of(run).map(|text| bounded(text, MAX_TEXT_BYTES)))
                }
                (ColumnKind::List(of), ColumnBuilder::Text(column)) => {
                    column.append_option(of(run))
                }
                (ColumnKind::Time(of), ColumnBuilder::Time(column)) => {
                    column.append_option(of(run).map(|at| at.0))
                }
                (ColumnKind::Amount(of), ColumnBuilder::Amount(column)) => {
                    column.append_option(of(run).map(u64::cast_signed))
                }
                _ => unreachable!("each column has the builder of its kind"),
            }
        }
        self.line.append_option(line.map(u64::cast_signed));
        let stage = i64::from(run.start.is_some()) + 2 * i64::from(run.end.is_some());
        self.precedence
            .append_value(stage * STAGE + self.pushed.cast_signed());
        self.pushed += 1;
        self.rows += 1;
        (self.rows == BATCH_ROWS).then(|| self.take())
    }

    /// Returns the rows added since the last call.
    fn take(&mut self) -> RecordBatch {
        self.rows = 0;
        let finish = |builder: &mut ColumnBuilder| -> ArrayRef {
            match builder {
                ColumnBuilder::Text(column) => Arc::new(column.finish()),
                ColumnBuilder::Time(column) => Arc::new(column.finish()),
                ColumnBuilder::Amount(column) => Arc::new(column.finish()),
            }
        };
        let names = COLUMNS.iter().map(|(name, _)| *name);
        let names = names.chain(["line", "precedence"]);
        let arrays = self
            .columns
            .iter_mut()
            .map(finish)
            .collect::<Vec<_>>()
            .into_iter()
            .chain([
                Arc::new(self.line.finish()) as ArrayRef,
                Arc::new(self.precedence.finish()),
            ]);
        RecordBatch::try_from_iter_with_nullable(
            names.zip(arrays).map(|(name, array)| (name, array, true)),
        )
        .expect("columns of one length")
    }
}
