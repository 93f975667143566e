//! The tables of records. Each month is one file, named by the digest of its rows, and replaced
//! when the rows in the store have another digest: when a day has ended, or a record was corrected.

use crate::LakeError;
use crate::log::Add;
use crate::round::OpenTable;
use crate::table::{EFFICIENCY, FAIRSHARE, JOB_RUNS, Table, USAGE};
use duckdb::Connection;
use std::collections::BTreeMap;
use takt_model::Timestamp;

/// Ended runs, with the month of their end on the clocks of their cluster.
const JOB_RUNS_ROWS: &str = "
SELECT j.*, strftime(coalesce(d.day, CAST(j.end_time AS DATE)), '%Y-%m') AS month
FROM (SELECT * REPLACE (CAST(end_time AS TIMESTAMP) AS end_time) FROM memory.jobs
      WHERE end_time IS NOT NULL) AS j
ASOF LEFT JOIN memory.days AS d ON d.cluster = j.cluster AND j.end_time >= d.day_start
WHERE coalesce(d.day_end, date_trunc('day', j.end_time) + INTERVAL 1 DAY) <= $NOW";

/// The seconds of each run on each finished day. A run that has not ended counts until now, as in
/// reports. Days have numbers, so that a run is joined with its own days only.
const USAGE_ROWS: &str = "
WITH finished AS MATERIALIZED (
    SELECT *, row_number() OVER (PARTITION BY cluster ORDER BY day_start) AS number
    FROM memory.days WHERE day_end <= $NOW
),
runs AS (
    SELECT j.*, CAST(j.start_time AS TIMESTAMP) AS since,
        least(coalesce(CAST(j.end_time AS TIMESTAMP), $NOW), $NOW) AS until
    FROM records.jobs AS j WHERE j.start_time IS NOT NULL AND j.start_time < $NOW
),
begun AS (
    SELECT r.*, d.number AS first_number FROM runs AS r
    ASOF JOIN finished AS d ON d.cluster = r.cluster AND r.since >= d.day_start
),
spans AS (
    SELECT b.*, unnest(range(b.first_number, d.number + 1)) AS number FROM begun AS b
    ASOF JOIN finished AS d ON d.cluster = b.cluster AND b.until > d.day_start
),
cut AS (
    SELECT s.*, d.day, strftime(d.month, '%Y-%m') AS month,
        CAST(epoch(least(s.until, d.day_end)) - epoch(greatest(s.since, d.day_start)) AS BIGINT)
            AS seconds
    FROM spans AS s JOIN finished AS d ON d.cluster = s.cluster AND d.number = s.number
)
SELECT *, nodes * seconds AS node_seconds, cpus * seconds AS cpu_seconds,
    gpus * seconds AS gpu_seconds,
    CAST(mem_bytes AS DOUBLE) * seconds AS memory_byte_seconds, billing * seconds AS billing_seconds
FROM cut WHERE seconds > 0";

/// The efficiency of ended runs, with the month of their end.
const EFFICIENCY_ROWS: &str = "
SELECT e.*, strftime(coalesce(d.day, CAST(e.run_end AS DATE)), '%Y-%m') AS month
FROM (SELECT r.*, CAST(r.run_end_time AS TIMESTAMP) AS run_end, j.\"user\", j.account,
          j.\"partition\", j.gpu_model, j.gpus
      FROM memory.run_efficiency AS r LEFT JOIN records.jobs AS j
          ON j.cluster = r.cluster AND j.job_id = r.job_id AND j.submit_time = r.submit_time) AS e
ASOF LEFT JOIN memory.days AS d ON d.cluster = e.cluster AND e.run_end >= d.day_start
WHERE coalesce(d.day_end, date_trunc('day', e.run_end) + INTERVAL 1 DAY) <= $NOW";

/// Fair share by month. The store deletes rows after 400 days, so months that may be incomplete
/// there stay as they are in the lake.
const FAIRSHARE_ROWS: &str = "
SELECT f.*, strftime(coalesce(d.day, CAST(f.at AS DATE)), '%Y-%m') AS month
FROM (SELECT *, CAST(noted_at AS TIMESTAMP) AS at FROM records.fairshare) AS f
ASOF LEFT JOIN memory.days AS d ON d.cluster = f.cluster AND f.at >= d.day_start
WHERE coalesce(d.day_end, date_trunc('day', f.at) + INTERVAL 1 DAY) <= $NOW
    AND strftime(coalesce(d.day, CAST(f.at AS DATE)), '%Y-%m')
        > strftime($NOW - INTERVAL 365 DAY, '%Y-%m')";

/// Returns a SELECT of the rows of finished days, with the column `month`.
fn rows(table: &Table, now: Timestamp) -> String {
    let rows = [
        (JOB_RUNS.name, JOB_RUNS_ROWS),
        (USAGE.name, USAGE_ROWS),
        (EFFICIENCY.name, EFFICIENCY_ROWS),
        (FAIRSHARE.name, FAIRSHARE_ROWS),
    ];
    let found = rows.iter().find(|(name, _)| *name == table.name);
    // Microseconds, as DuckDB counts.
    let now = format!("make_timestamp({})", now.0.saturating_mul(1000));
    found.map_or("", |(_, sql)| sql).replace("$NOW", &now)
}

/// Returns whether the store deletes rows of the table after some time.
fn forgets(table: &Table) -> bool {
    table.name == FAIRSHARE.name
}

/// Returns the digest of the rows of each month.
pub fn months(
    db: &Connection,
    table: &'static Table,
    now: Timestamp,
) -> Result<BTreeMap<String, String>, LakeError> {
    let sql = format!(
        "SELECT month, {} FROM ({}) GROUP BY month",
        table.digest(),
        rows(table, now)
    );

    let read = || -> Result<BTreeMap<String, String>, duckdb::Error> {
        db.prepare(&sql)?
            .query_map([], |row| {
                let digest: String = row.get(1)?;
                Ok((row.get(0)?, name_of(digest.parse().unwrap_or_default())))
            })?
            .collect()
    };
    read().map_err(LakeError::sql("read the rows", table.name))
}

/// Name of the file with this digest.
pub fn name_of(digest: i128) -> String {
    format!("{digest:032x}")
}

/// Checks that a file has a name of this module.
///
/// # Errors
/// If another program has written it.
pub fn check_name(table: &'static Table, file: &Add) -> Result<(), LakeError> {
    let name = file.stem();
    if name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(());
    }

    Err(LakeError::UnknownFile {
        table: table.name,
        file: file.path.clone(),
    })
}

/// Writes the months whose rows have changed, and commits them together.
pub fn write(open: &mut OpenTable<'_>) -> Result<(), LakeError> {
    let table = open.table;
    let round = open.round;
    let months = months(&round.db, table, round.now)?;

    let mut old: Vec<Add> = Vec::new();
    for file in open.version.files.values() {
        check_name(table, file)?;
        let is_other = match months.get(file.partition()) {
            Some(name) => name != file.stem(),
            // A month without rows in the store is removed, unless the store deletes such rows by
            // itself.
            None => !forgets(table),
        };
        if is_other {
            old.push(file.clone());
        }
    }

    // An empty table is rather a mistake, such as a wrong data directory, than a wish.
    if months.is_empty() && !old.is_empty() {
        return Err(LakeError::Emptied { table: table.name });
    }

    let known: Vec<String> = open
        .version
        .files
        .values()
        .map(|file| file.stem().to_owned())
        .collect();

    let mut new = Vec::new();
    for (month, name) in &months {
        // The digest is the name, so an equal name means equal rows.
        if known.contains(name) {
            continue;
        }
        round.check_stop()?;

        let select = format!(
            "SELECT {} FROM ({}) WHERE month = '{month}' ORDER BY {}",
            table.select_list(),
            rows(table, round.now),
            table.order
        );

        // A record may have changed since the comparison, so the rows of the file name it.
        let Some(staged) = open.stage(&select)? else {
            continue;
        };

        let name = name_of(staged.digest);
        let is_same = |file: &Add| file.partition() == month && file.stem() == name;

        // The month was changed and changed back meanwhile; its file stays.
        if old.iter().any(is_same) {
            old.retain(|file| !is_same(file));
        } else {
            new.push(open.place(&staged, month, &name)?);
        }
    }

    open.replace("WRITE", &old, new)
}
