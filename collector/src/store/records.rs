//! Typed questions on the job records, and their import.

mod import;

pub use import::{ImportError, ImportSummary, Origin};

use super::{Database, StoreError};
use crate::jobs::{HeldRun, JobRun, nodelist};
use duckdb::arrow::array::{Array, Int64Array, StringArray, StructArray, TimestampSecondArray};
use duckdb::types::Value;
use duckdb::{Row, params, params_from_iter};
use serde::{Deserialize, Serialize};

/// The job records of a database.
#[derive(Debug, Clone, Copy)]
pub struct Records<'d> {
    database: &'d Database,
}

/// What takt knows of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownCluster {
    /// Its name.
    pub cluster: String,
    /// The IANA name of the time zone that its records are written in and its months are cut by; `None` where nobody
    /// has said it.
    pub timezone: Option<String>,
}

/// Which runs to list. What is `None` or empty does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobFilter {
    /// The cluster's name.
    pub cluster: Option<String>,
    /// A job's id, with which its array tasks and components come too: `123` finds `123_4` and `123+1`.
    pub job_id: Option<String>,
    /// The user's name.
    pub user: Option<String>,
    /// The account's name.
    pub account: Option<String>,
    /// The partition's name.
    pub partition: Option<String>,
    /// Any of these states, in Slurm's words.
    pub states: Vec<String>,
    /// The name of a node that the run held.
    pub node: Option<String>,
    /// Only runs that were queued or ran after this instant (UTC seconds).
    pub from: Option<i64>,
    /// Only runs submitted before this instant (UTC seconds).
    pub to: Option<i64>,
    /// At most so many, the last submitted first.
    pub limit: Option<usize>,
}

/// A run that had not ended when it was last heard of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OpenRun {
    /// The job's id.
    pub job_id: String,
    /// Its submission, UTC seconds.
    pub submit: i64,
}

impl<'d> Records<'d> {
    /// The records of this database.
    pub fn of(database: &'d Database) -> Self {
        Self { database }
    }

    /// The clusters there are records of, by name.
    ///
    /// # Errors
    /// When DuckDB cannot answer.
    pub fn clusters(&self) -> Result<Vec<KnownCluster>, StoreError> {
        self.list(
            "list the clusters",
            "SELECT cluster, any_value(timezone) FROM (
                 SELECT cluster, timezone FROM records.clusters
                 UNION ALL SELECT DISTINCT cluster, NULL FROM records.jobs)
             GROUP BY cluster ORDER BY cluster",
            Vec::new(),
            |row| Ok(KnownCluster { cluster: row.get(0)?, timezone: row.get(1)? }),
        )
    }

    /// The time zone that was remembered for a cluster.
    ///
    /// # Errors
    /// When DuckDB cannot answer.
    pub fn timezone(&self, cluster: &str) -> Result<Option<String>, StoreError> {
        let zones = self.list(
            "look up the cluster's time zone",
            "SELECT timezone FROM records.clusters WHERE cluster = ?",
            vec![cluster.to_owned().into()],
            |row| row.get(0),
        )?;
        Ok(zones.into_iter().next())
    }

    /// Runs as they were recorded, the last submitted first.
    ///
    /// # Errors
    /// When DuckDB cannot answer.
    pub fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRun>, StoreError> {
        let (condition, values) = filter.condition();
        let limit = filter.limit.unwrap_or(usize::MAX);
        // Which nodes a list names is not SQL's to say, so with a node the limit has to wait.
        let sql_limit = if filter.node.is_none() { format!("LIMIT {limit}") } else { String::new() };
        let sql = format!(
            "SELECT {RUN_COLUMNS} FROM records.jobs WHERE {condition} ORDER BY submit_time DESC, job_id DESC {sql_limit}"
        );
        let mut runs = self.list("list the jobs", &sql, values, job_run)?;
        if let Some(node) = &filter.node {
            runs.retain(|run| run.node_list.as_ref().is_some_and(|list| names(list, node)));
            runs.truncate(limit);
        }
        Ok(runs)
    }

    /// Shows what accounting needs of every run of the cluster that was queued, ran or ended in `[from, to)`, in no
    /// particular order. Instants are UTC seconds.
    ///
    /// # Errors
    /// When DuckDB cannot answer; some runs may have been shown by then.
    pub fn held_runs(
        &self,
        cluster: &str,
        from: i64,
        to: i64,
        mut show: impl FnMut(&HeldRun<'_>),
    ) -> Result<(), StoreError> {
        let db = self.database.connect()?;
        (|| {
            let mut statement = db.prepare(
                "SELECT submit_time, start_time, end_time, nodes, cpus, gpus, mem_bytes,
                        \"user\", account, \"partition\", state, qos, gpu_model, node_list
                 FROM records.jobs
                 WHERE cluster = ? AND submit_time < make_timestamp(?::BIGINT)::TIMESTAMP_S
                   AND (end_time IS NULL OR end_time >= make_timestamp(?::BIGINT)::TIMESTAMP_S)",
            )?;
            // Executed here and fetched below: the crate's own iterator panics where fetching fails.
            drop(statement.stream_arrow(params![cluster, micros(to), micros(from)])?);
            while let Some(batch) = statement.step()? {
                let runs = HeldRuns::of(&batch);
                (0..batch.len()).for_each(|position| show(&runs.at(position)));
            }
            Ok(())
        })()
        .map_err(StoreError::sql("read the job records"))
    }

    /// The runs of a cluster that had not ended when they were last heard of.
    ///
    /// # Errors
    /// When DuckDB cannot answer.
    pub fn open_runs(&self, cluster: &str) -> Result<Vec<OpenRun>, StoreError> {
        self.list(
            "list the open jobs",
            "SELECT job_id, epoch_ms(submit_time) // 1000 FROM records.jobs WHERE cluster = ? AND end_time IS NULL",
            vec![cluster.to_owned().into()],
            |row| Ok(OpenRun { job_id: row.get(0)?, submit: row.get(1)? }),
        )
    }

    /// When `source` last told everything up to an instant at or before `instant` (UTC seconds).
    ///
    /// # Errors
    /// When DuckDB cannot answer.
    pub fn told_until(&self, cluster: &str, source: &str, instant: i64) -> Result<Option<i64>, StoreError> {
        let told = self.list(
            "look up the last poll",
            "SELECT epoch_ms(max(told_until)) // 1000 FROM records.polls
             WHERE cluster = ? AND source = ? AND told_until <= make_timestamp(?::BIGINT)::TIMESTAMP_S",
            vec![cluster.to_owned().into(), source.to_owned().into(), micros(instant).into()],
            |row| row.get(0),
        )?;
        Ok(told.into_iter().next().flatten())
    }

    fn list<T>(
        &self,
        what: &'static str,
        sql: &str,
        values: Vec<Value>,
        read: impl FnMut(&Row<'_>) -> duckdb::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let db = self.database.connect()?;
        let rows = (|| db.prepare(sql)?.query_map(params_from_iter(values), read)?.collect::<duckdb::Result<_>>())();
        rows.map_err(StoreError::sql(what))
    }
}

impl JobFilter {
    /// The SQL condition and its parameters.
    fn condition(&self) -> (String, Vec<Value>) {
        let mut conditions = vec!["true".to_owned()];
        let mut values = Vec::new();
        let mut restrict = |condition: &str, value: Option<Value>| {
            if let Some(value) = value {
                conditions.push(condition.to_owned());
                values.push(value);
            }
        };
        let text = |text: &Option<String>| text.clone().map(Value::from);
        let instant = |seconds: Option<i64>| seconds.map(|seconds| micros(seconds).into());
        restrict("cluster = ?", text(&self.cluster));
        restrict("list_contains([job_id, regexp_extract(job_id, '^[^_+]*')], ?)", text(&self.job_id));
        restrict("\"user\" = ?", text(&self.user));
        restrict("account = ?", text(&self.account));
        restrict("\"partition\" = ?", text(&self.partition));
        restrict("coalesce(end_time > make_timestamp(?::BIGINT)::TIMESTAMP_S, true)", instant(self.from));
        restrict("submit_time < make_timestamp(?::BIGINT)::TIMESTAMP_S", instant(self.to));
        if !self.states.is_empty() {
            conditions.push(format!("state IN (?{})", ", ?".repeat(self.states.len() - 1)));
            values.extend(self.states.iter().map(|state| Value::from(state.to_uppercase())));
        }
        (conditions.join(" AND "), values)
    }
}

/// DuckDB makes timestamps of microseconds.
fn micros(seconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000)
}

fn names(list: &str, node: &str) -> bool {
    list == node || nodelist::expand(list).is_ok_and(|nodes| nodes.iter().any(|name| name == node))
}

/// What a [`JobRun`] is made of, in the order in which [`job_run`] reads it.
const RUN_COLUMNS: &str = "cluster, job_id, epoch_ms(submit_time) // 1000, epoch_ms(eligible_time) // 1000, \
     epoch_ms(start_time) // 1000, epoch_ms(end_time) // 1000, state, \"user\", account, \"partition\", qos, job_name, \
     nodes, cpus, gpus, gpu_model, mem_bytes, billing, alloc_tres, req_tres, node_list, elapsed_seconds, \
     suspended_seconds, timelimit_seconds, exit_code";

fn job_run(row: &Row<'_>) -> duckdb::Result<JobRun> {
    Ok(JobRun {
        cluster: row.get(0)?,
        job_id: row.get(1)?,
        submit: row.get(2)?,
        eligible: row.get(3)?,
        start: row.get(4)?,
        end: row.get(5)?,
        state: row.get(6)?,
        user: row.get(7)?,
        account: row.get(8)?,
        partition: row.get(9)?,
        qos: row.get(10)?,
        name: row.get(11)?,
        nodes: row.get(12)?,
        cpus: row.get(13)?,
        gpus: row.get(14)?,
        gpu_model: row.get(15)?,
        mem_bytes: row.get(16)?,
        billing: row.get(17)?,
        alloc_tres: row.get(18)?,
        req_tres: row.get(19)?,
        node_list: row.get(20)?,
        elapsed: row.get(21)?,
        suspended: row.get(22)?,
        timelimit: row.get(23)?,
        exit_code: row.get(24)?,
    })
}

/// The columns of one batch of [`Records::held_runs`].
struct HeldRuns<'a> {
    times: [&'a TimestampSecondArray; 3],
    amounts: [&'a Int64Array; 4],
    texts: [&'a StringArray; 7],
}

impl<'a> HeldRuns<'a> {
    fn of(batch: &'a StructArray) -> Self {
        fn column<T: 'static>(batch: &StructArray, position: usize) -> &T {
            batch.column(position).as_any().downcast_ref().expect("the statement names columns of these types")
        }
        Self {
            times: std::array::from_fn(|position| column(batch, position)),
            amounts: std::array::from_fn(|position| column(batch, 3 + position)),
            texts: std::array::from_fn(|position| column(batch, 7 + position)),
        }
    }

    fn at(&self, row: usize) -> HeldRun<'a> {
        let time = |column: usize| self.times[column].is_valid(row).then(|| self.times[column].value(row));
        let amount = |column: usize| {
            let column = self.amounts[column];
            column.is_valid(row).then(|| column.value(row).cast_unsigned())
        };
        let text = |column: usize| self.texts[column].is_valid(row).then(|| self.texts[column].value(row));
        HeldRun {
            submit: self.times[0].value(row),
            start: time(1),
            end: time(2),
            nodes: amount(0),
            cpus: amount(1),
            gpus: amount(2),
            mem_bytes: amount(3),
            user: self.texts[0].value(row),
            account: self.texts[1].value(row),
            partition: self.texts[2].value(row),
            state: self.texts[3].value(row),
            qos: text(4),
            gpu_model: text(5),
            node_list: text(6),
        }
    }
}
