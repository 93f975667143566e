//! Queries on the job records.

mod access;
mod audit;
mod calendar;
mod cards;
mod contradictions;
mod credits;
mod curves;
mod deliveries;
mod efficiency;
mod forecasts;
mod held_gpus;
mod import;
mod imports;
mod links;
mod listed;
mod nodes;
mod past_runs;
mod present;
mod remote_write;
mod reservations;
mod scheduler;
mod search;
mod shares;

pub use access::{SessionRecord, TokenRecord};
pub use audit::{AuditFilter, AuditRecord};
pub use calendar::{BudgetNow, PricedTime, TimeOffset};
pub use cards::{CardNews, CardNote, CardReading, CardRun};
pub use credits::SentReport;
pub use curves::{RunCurves, RunStrip};
pub use deliveries::FailingChannel;
pub use efficiency::Due;
pub use forecasts::{
    EndedRatio, ForecastRound, ForecastSummary, ForecastTimes, GradedForecast, KnownForecast,
    NotedForecast,
};
pub use held_gpus::{GivenGpu, GpuInterval, HeldGpu, PastGpu};
pub use import::{Corrections, ImportError, ImportSummary, LIVE_QUEUE, Origin, Shifted};
pub use imports::{DeleteRuns, ImportRecord};
pub use listed::{JobCursor, JobOrder, JobSort, ListedJob, SortValue};
pub use nodes::RegisteredSize;
pub use past_runs::PastRun;
pub use present::{AlertTransition, AllocatedGpu, GpuHold, QueueCounts, RunningJob};
pub use remote_write::RemoteWriteProgress;
pub use reservations::{KnownReason, WaitingRun};
pub use scheduler::{LostJob, SchedulerNow};
pub use search::RecordHits;
pub use shares::{CONFIGURED, ChargedRun, FairsharePoint, ShareSettingsRecord};

use super::{Database, StoreError};
use duckdb::arrow::array::{Array, Int64Array, StringArray, StructArray, TimestampSecondArray};
use duckdb::types::Value;
use duckdb::{Row, params, params_from_iter};
use serde::{Deserialize, Serialize};
use std::array;
use std::iter;
use takt_jobs::{HeldRun, JobRun, nodelist};
use takt_model::UnixTime;

/// The job records of a database.
#[derive(Debug, Clone, Copy)]
pub struct Records<'d> {
    database: &'d Database,
}

/// A cluster in the records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownCluster {
    /// Name of the cluster.
    pub cluster: String,
    /// IANA name of the time zone of its records and of its months; `None` if unknown.
    pub timezone: Option<String>,
}

/// Users and accounts in the records of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// User names.
    pub users: Vec<String>,
    /// Account names; the empty name belongs to runs without an account.
    pub accounts: Vec<String>,
}

/// Selects runs. `None` and empty fields do not restrict the selection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobFilter {
    /// Name of the cluster.
    pub cluster: Option<String>,
    /// Job id, including its array tasks and components: `123` also selects `123_4` and `123+1`.
    /// Slurm's own number of a task selects it, too.
    pub job_id: Option<String>,
    /// Number that the job's processes see (`SLURM_JOB_ID`): of exactly one task of an array.
    pub job_number: Option<String>,
    /// User name.
    pub user: Option<String>,
    /// Account name.
    pub account: Option<String>,
    /// Name of the partition; of a pending run, one of its partitions.
    pub partition: Option<String>,
    /// Any of these states, as Slurm writes them.
    pub states: Vec<String>,
    /// Nodes of which the run held one: a name, or a list such as `n[1-2],m1`.
    pub node: Option<String>,
    /// GPU model, in Slurm's words; also one of several.
    pub gpu_model: Option<String>,
    /// Part of the job's name; upper and lower case are the same.
    pub name: Option<String>,
    /// The job's whole name.
    pub whole_name: Option<String>,
    /// Only runs that held or requested at least this many GPUs.
    pub min_gpus: Option<u64>,
    /// Only assessed runs that wasted at least this many GPU-seconds.
    pub min_wasted_gpu_seconds: Option<u64>,
    /// Only runs that were queued or ran after this time.
    pub from: Option<UnixTime>,
    /// Only runs submitted before this time.
    pub to: Option<UnixTime>,
    /// Maximum number of runs, the last submitted first.
    pub limit: Option<usize>,
    /// Only runs of this user or of these accounts, together with the conditions above.
    pub visible: Option<VisibleRuns>,
}

/// Runs of a user, and runs of accounts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VisibleRuns {
    /// Unix user.
    pub user: Option<String>,
    /// Accounts.
    pub accounts: Vec<String>,
}

/// The fields of a run that the capacity report reads; a month has a million runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HoldingRun {
    /// Time of submission.
    pub submit: UnixTime,
    /// Time from which only a lack of resources delayed the run.
    pub eligible: Option<UnixTime>,
    /// Start time.
    pub start: Option<UnixTime>,
    /// End time.
    pub end: Option<UnixTime>,
    /// Time of suspension, in seconds.
    pub suspended: Option<u64>,
    /// Allocated CPUs.
    pub cpus: Option<u64>,
    /// Allocated GPUs.
    pub gpus: Option<u64>,
    /// Allocated memory, in bytes.
    pub mem_bytes: Option<u64>,
    /// Requested TRES, as Slurm writes them.
    pub req_tres: Option<String>,
    /// Allocated nodes, as Slurm writes them.
    pub node_list: Option<String>,
    /// Reservation that the job was submitted to.
    pub reservation: Option<String>,
}

/// A run that has not ended, as far as known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OpenRun {
    /// Job id.
    pub job_id: String,
    /// Time of submission.
    pub submit: UnixTime,
}

/// Order of jobs that were submitted at the same time: by number, then by task, `7_9` before `7_10`.
const JOB_ORDER: &str = "(lpad(split_part(job_id, '_', 1), greatest(16, length(split_part(job_id, '_', 1)))::INTEGER, '0') || \
                         lpad(job_id, greatest(32, length(job_id))::INTEGER, '0'))";

impl<'d> Records<'d> {
    /// Returns the records of a database.
    pub fn of(database: &'d Database) -> Self {
        Self { database }
    }

    /// Returns the recorded clusters, by name.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn clusters(&self) -> Result<Vec<KnownCluster>, StoreError> {
        self.list(
            "list the clusters",
            "SELECT cluster, any_value(timezone) FROM (
                 SELECT cluster, timezone FROM records.clusters
                 UNION ALL SELECT DISTINCT cluster, NULL FROM records.jobs)
             GROUP BY cluster ORDER BY cluster",
            Vec::new(),
            |row| {
                Ok(KnownCluster {
                    cluster: row.get(0)?,
                    timezone: row.get(1)?,
                })
            },
        )
    }

    /// Returns all users and accounts in a cluster's records, by name.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn names(&self, cluster: &str) -> Result<Names, StoreError> {
        let list = |column: &str| {
            self.list(
                "list users and accounts",
                &format!(
                    "SELECT DISTINCT {column} FROM records.jobs WHERE cluster = ? ORDER BY ALL"
                ),
                vec![cluster.to_owned().into()],
                |row| row.get(0),
            )
        };
        Ok(Names {
            users: list("\"user\"")?,
            accounts: list("account")?,
        })
    }

    /// Returns the models of GPUs in a cluster's records, and the GPU-hours of each in `[from, to)`.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn gpu_hours_by_model(
        &self,
        cluster: &str,
        from: UnixTime,
        to: UnixTime,
    ) -> Result<Vec<(String, f64)>, StoreError> {
        self.list(
            "list the models of GPUs",
            "WITH period AS (SELECT make_timestamp(?::BIGINT)::TIMESTAMP_S AS from_time,
                                    make_timestamp(?::BIGINT)::TIMESTAMP_S AS until_time)
             SELECT gpu_model, coalesce(sum(gpus * greatest(0, epoch(least(coalesce(end_time, until_time), until_time))
                                                              - epoch(greatest(start_time, from_time)))), 0)::DOUBLE / 3600
             FROM records.jobs, period
             WHERE cluster = ? AND gpu_model IS NOT NULL AND gpu_model <> ''
             GROUP BY gpu_model ORDER BY gpu_model",
            vec![micros(from).into(), micros(to).into(), cluster.to_owned().into()],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
    }

    /// Returns the accounts of a user's runs, by name.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn accounts_of(&self, cluster: &str, user: &str) -> Result<Vec<String>, StoreError> {
        self.list(
            "list a user's accounts",
            "SELECT DISTINCT account FROM records.jobs WHERE cluster = ? AND \"user\" = ? ORDER BY ALL",
            vec![cluster.to_owned().into(), user.to_owned().into()],
            |row| row.get(0),
        )
    }

    /// Returns the recorded period of a cluster: the first submission and the last recorded time.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn extent(&self, cluster: &str) -> Result<Option<(UnixTime, UnixTime)>, StoreError> {
        let sql = "SELECT epoch_ms(min(submit_time)) // 1000, epoch_ms(max(greatest(submit_time, start_time, end_time))) // 1000
                   FROM records.jobs WHERE cluster = ? HAVING count(*) > 0";
        let found = self.list(
            "look how far records reach",
            sql,
            vec![cluster.to_owned().into()],
            |row| Ok((row.time(0)?, row.time(1)?)),
        )?;
        Ok(found.into_iter().next())
    }

    /// Returns the recorded time zone of a cluster.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn timezone(&self, cluster: &str) -> Result<Option<String>, StoreError> {
        let zones = self.list(
            "look up the cluster's time zone",
            "SELECT timezone FROM records.clusters WHERE cluster = ?",
            vec![cluster.to_owned().into()],
            |row| row.get(0),
        )?;
        Ok(zones.into_iter().next())
    }

    /// Returns the selected runs, the last submitted first.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRun>, StoreError> {
        let (condition, values) = filter.condition();

        // SQL cannot expand a list of nodes. With a node, the limit is applied afterwards.
        let sql_limit = filter
            .limit
            .filter(|_| filter.node.is_none())
            .map(|limit| format!("LIMIT {}", limit.min(i64::MAX as usize)))
            .unwrap_or_default();

        let sql = format!(
            "SELECT {RUN_COLUMNS} FROM records.jobs WHERE {condition} ORDER BY submit_time DESC, {JOB_ORDER} DESC {sql_limit}"
        );
        let mut runs = self.list("list the jobs", &sql, values, job_run)?;

        if let Some(asked) = &filter.node {
            let nodes = asked_nodes(asked);
            runs.retain(|run| {
                run.node_list
                    .as_ref()
                    .is_some_and(|list| names(list, &nodes))
            });
        }

        if let Some(limit) = filter.limit {
            runs.truncate(limit);
        }
        Ok(runs)
    }

    /// Passes every run of the cluster that was queued, ran or ended in `[from, to)` to `each`, in
    /// no particular order, with the fields that accounting needs.
    ///
    /// # Errors
    /// If DuckDB fails. Some runs may have been passed before.
    pub fn held_runs(
        &self,
        cluster: &str,
        from: UnixTime,
        to: UnixTime,
        mut show: impl FnMut(&HeldRun<'_>),
    ) -> Result<(), StoreError> {
        let db = self.database.reader()?;
        (|| {
            let mut statement = db.prepare(
                "SELECT submit_time, start_time, end_time, nodes, cpus, gpus, mem_bytes, billing,
                        \"user\", account, \"partition\", state, qos, gpu_model, node_list, reservation
                 FROM records.jobs
                 WHERE cluster = ? AND submit_time < make_timestamp(?::BIGINT)::TIMESTAMP_S
                   AND (end_time IS NULL OR end_time >= make_timestamp(?::BIGINT)::TIMESTAMP_S)",
            )?;
            // Executed here and fetched below: the crate's own iterator panics if fetching fails.
            drop(statement.stream_arrow(params![cluster, micros(to), micros(from)])?);
            while let Some(batch) = statement.step()? {
                let runs = HeldRuns::of(&batch);
                (0..batch.len()).for_each(|position| show(&runs.at(position)));
            }
            Ok(())
        })()
        .map_err(StoreError::sql("read the job records"))
    }

    /// Returns every run of the cluster that waited or ran in `[from, to)`, for the capacity
    /// report.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn capacity_runs(
        &self,
        cluster: &str,
        from: UnixTime,
        to: UnixTime,
    ) -> Result<Vec<HoldingRun>, StoreError> {
        self.list(
            "read the job records",
            "SELECT epoch_ms(submit_time) // 1000, epoch_ms(eligible_time) // 1000,
                    epoch_ms(start_time) // 1000, epoch_ms(end_time) // 1000,
                    suspended_seconds, cpus, gpus, mem_bytes, req_tres, node_list, reservation
             FROM records.jobs
             WHERE cluster = ? AND submit_time < make_timestamp(?::BIGINT)::TIMESTAMP_S
               AND coalesce(end_time > make_timestamp(?::BIGINT)::TIMESTAMP_S, true)",
            vec![
                cluster.to_owned().into(),
                micros(to).into(),
                micros(from).into(),
            ],
            |row| {
                Ok(HoldingRun {
                    submit: row.time(0)?,
                    eligible: row.time_if_set(1)?,
                    start: row.time_if_set(2)?,
                    end: row.time_if_set(3)?,
                    suspended: row.get(4)?,
                    cpus: row.get(5)?,
                    gpus: row.get(6)?,
                    mem_bytes: row.get(7)?,
                    req_tres: row.get(8)?,
                    node_list: row.get(9)?,
                    reservation: row.get(10)?,
                })
            },
        )
    }

    /// Returns whether any runs of a cluster come from a scheduler, not only from observed
    /// processes.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn has_scheduler(&self, cluster: &str) -> Result<bool, StoreError> {
        let found = self.list(
            "look for a scheduler",
            "SELECT 1 FROM records.jobs WHERE cluster = ? AND source <> 'processes' LIMIT 1",
            vec![cluster.to_owned().into()],
            |_| Ok(()),
        )?;
        Ok(!found.is_empty())
    }

    /// Returns the runs of a cluster that have not ended, as far as known.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn open_runs(&self, cluster: &str) -> Result<Vec<OpenRun>, StoreError> {
        self.list(
            "list the open jobs",
            "SELECT job_id, epoch_ms(submit_time) // 1000 FROM records.jobs
             WHERE cluster = ? AND end_time IS NULL AND source <> 'processes'",
            vec![cluster.to_owned().into()],
            |row| {
                Ok(OpenRun {
                    job_id: row.get(0)?,
                    submit: row.time(1)?,
                })
            },
        )
    }

    /// Returns the latest time, at or before `instant`, up to which `source` was
    /// imported completely.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn complete_until(
        &self,
        cluster: &str,
        source: &str,
        instant: UnixTime,
    ) -> Result<Option<UnixTime>, StoreError> {
        let found = self.list(
            "look up the last poll",
            "SELECT epoch_ms(max(told_until)) // 1000 FROM records.polls
             WHERE cluster = ? AND source = ? AND told_until <= make_timestamp(?::BIGINT)::TIMESTAMP_S",
            vec![cluster.to_owned().into(), source.to_owned().into(), micros(instant).into()],
            |row| row.time_if_set(0),
        )?;
        Ok(found.into_iter().next().flatten())
    }

    /// Forgets that `source` was imported completely up to times after `now`, and returns how many such
    /// times there were.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn forget_polls_after(
        &self,
        cluster: &str,
        source: &str,
        now: UnixTime,
    ) -> Result<u64, StoreError> {
        let is_later = "cluster = ? AND source = ?
             AND told_until > make_timestamp(?::BIGINT)::TIMESTAMP_S";
        let values = || -> Vec<Value> {
            vec![
                cluster.to_owned().into(),
                source.to_owned().into(),
                micros(now).into(),
            ]
        };
        let later = self.list(
            "look for polls of a time to come",
            &format!("SELECT count(*) FROM records.polls WHERE {is_later}"),
            values(),
            |row| row.get(0),
        )?;
        let later: u64 = later.into_iter().next().unwrap_or(0);
        if later > 0 {
            self.writing_aside("forget polls of a time to come", |db| {
                let delete = format!("DELETE FROM records.polls WHERE {is_later}");
                db.execute(&delete, params_from_iter(values())).map(drop)
            })?;
        }
        Ok(later)
    }

    /// Returns the time of the last complete poll of any scheduler, in UTC seconds; `None` if no
    /// scheduler was polled.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn last_poll(&self) -> Result<Option<i64>, StoreError> {
        let polled = self.list(
            "look up the last poll",
            "SELECT epoch_ms(max(told_until)) // 1000 FROM records.polls",
            Vec::new(),
            |row| row.get(0),
        )?;
        Ok(polled.into_iter().next().flatten())
    }

    /// Returns the time of the last complete poll of the scheduler of a cluster; `None` if it was
    /// not polled.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn last_poll_of(&self, cluster: &str) -> Result<Option<UnixTime>, StoreError> {
        let polled = self.list(
            "look up the last poll of a cluster",
            "SELECT epoch_ms(max(told_until)) // 1000 FROM records.polls WHERE cluster = ?",
            vec![cluster.to_owned().into()],
            |row| row.time_if_set(0),
        )?;
        Ok(polled.into_iter().next().flatten())
    }

    fn list<T>(
        &self,
        what: &'static str,
        sql: &str,
        values: Vec<Value>,
        read: impl FnMut(&Row<'_>) -> duckdb::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let db = self.database.reader()?;
        let rows = (|| {
            db.prepare(sql)?
                .query_map(params_from_iter(values), read)?
                .collect::<duckdb::Result<_>>()
        })();
        rows.map_err(StoreError::sql(what))
    }
}

impl JobFilter {
    /// Returns the SQL condition and its parameters.
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
        let instant = |at: Option<UnixTime>| at.map(|at| micros(at).into());

        restrict("cluster = ?", text(&self.cluster));
        restrict(
            "list_contains([job_id, regexp_extract(job_id, '^[^_+]*'), raw_job_id, sluid, original_sluid], ?)",
            text(&self.job_id),
        );
        restrict("coalesce(raw_job_id, job_id) = ?", text(&self.job_number));
        restrict("\"user\" = ?", text(&self.user));
        restrict("account = ?", text(&self.account));
        // A pending run may list several.
        restrict(
            "list_contains(string_split(\"partition\", ','), ?)",
            text(&self.partition),
        );
        restrict(
            "list_contains(string_split(gpu_model, '+'), ?)",
            text(&self.gpu_model),
        );
        restrict("contains(lower(job_name), lower(?))", text(&self.name));
        restrict("job_name = ?", text(&self.whole_name));

        let amount = |amount: Option<u64>| amount.map(Value::UBigInt);
        restrict(
            "coalesce(gpus, try_cast(regexp_extract(req_tres, 'gres/gpu=([0-9]+)', 1) AS UBIGINT)) >= ?",
            amount(self.min_gpus),
        );
        restrict(
            "(cluster, job_id, submit_time) IN (SELECT (cluster, job_id, submit_time) FROM records.run_efficiency
                 WHERE waste_idle_gpu_seconds + waste_streak_gpu_seconds + waste_low_gpu_seconds >= ?)",
            amount(self.min_wasted_gpu_seconds),
        );

        // SQL cannot expand a list of nodes; the names in the list begin alike.
        restrict(
            "contains(node_list, ?)",
            self.node
                .as_deref()
                .map(|asked| common_letters(&asked_nodes(asked)).to_owned().into()),
        );
        restrict(
            "coalesce(end_time > make_timestamp(?::BIGINT)::TIMESTAMP_S, true)",
            instant(self.from),
        );
        restrict(
            "submit_time < make_timestamp(?::BIGINT)::TIMESTAMP_S",
            instant(self.to),
        );

        if !self.states.is_empty() {
            conditions.push(format!(
                "state IN (?{})",
                ", ?".repeat(self.states.len() - 1)
            ));
            values.extend(
                self.states
                    .iter()
                    .map(|state| Value::from(state.to_uppercase())),
            );
        }

        if let Some(visible) = &self.visible {
            let (condition, of_visible) = visible.condition();
            conditions.push(condition);
            values.extend(of_visible);
        }

        (conditions.join(" AND "), values)
    }
}

impl VisibleRuns {
    /// Returns the SQL condition and its parameters.
    fn condition(&self) -> (String, Vec<Value>) {
        let accounts = ", ?".repeat(self.accounts.len());
        let condition = format!("(\"user\" = ? OR (account <> '' AND account IN (''{accounts})))");
        // No user has the empty name.
        let user = Value::from(self.user.clone().unwrap_or_default());
        let accounts = self.accounts.iter().cloned().map(Value::from);
        (condition, iter::once(user).chain(accounts).collect())
    }
}

/// Returns the microseconds since 1970, which DuckDB makes timestamps from: of the year 9999 for later instants, and of the
/// year -9999 for earlier ones.
fn micros(at: UnixTime) -> i64 {
    let [first, last] = [jiff::Timestamp::MIN, jiff::Timestamp::MAX].map(UnixTime::from);
    at.clamp(first, last).0 * 1_000_000
}

/// Reads columns that a statement returns as seconds since 1970.
trait TimeColumns {
    fn time(&self, column: usize) -> duckdb::Result<UnixTime>;

    /// Reads a column that may be NULL.
    fn time_if_set(&self, column: usize) -> duckdb::Result<Option<UnixTime>>;
}

impl TimeColumns for Row<'_> {
    fn time(&self, column: usize) -> duckdb::Result<UnixTime> {
        self.get(column).map(UnixTime)
    }

    fn time_if_set(&self, column: usize) -> duckdb::Result<Option<UnixTime>> {
        Ok(self.get::<_, Option<i64>>(column)?.map(UnixTime))
    }
}

/// The names in a list of nodes as people write it: `n[1-2],m1`.
fn asked_nodes(list: &str) -> Vec<String> {
    nodelist::expand(list).unwrap_or_else(|_| vec![list.to_owned()])
}

/// Whether a run's list of nodes has one of these.
fn names(list: &str, nodes: &[String]) -> bool {
    let is_asked = |name: &String| nodes.contains(name);
    nodelist::expand(list).is_ok_and(|names| names.iter().any(is_asked))
}

/// The letters that the names of all these nodes begin with. Numbers may be folded in a list, letters are not.
fn common_letters(nodes: &[String]) -> &str {
    let Some(first) = nodes.first() else {
        return "";
    };
    let letters = first
        .find(|c: char| c.is_ascii_digit())
        .unwrap_or(first.len());
    let common = (0..=letters)
        .rev()
        .filter_map(|end| first.get(..end))
        .find(|begin| nodes.iter().all(|name| name.starts_with(begin)));
    common.unwrap_or_default()
}

/// Columns of a [`JobRun`], in the order in which [`job_run`] reads them.
const RUN_COLUMNS: &str = "cluster, job_id, epoch_ms(submit_time) // 1000, epoch_ms(eligible_time) // 1000, \
     epoch_ms(start_time) // 1000, epoch_ms(end_time) // 1000, state, \"user\", account, \"partition\", qos, job_name, \
     nodes, cpus, gpus, gpu_model, mem_bytes, billing, alloc_tres, req_tres, node_list, elapsed_seconds, \
     suspended_seconds, timelimit_seconds, exit_code, reservation, raw_job_id, sluid, original_sluid, mem_bytes_most";

/// Number of [`RUN_COLUMNS`].
const RUN_COLUMN_COUNT: usize = 30;

fn job_run(row: &Row<'_>) -> duckdb::Result<JobRun> {
    Ok(JobRun {
        cluster: row.get(0)?,
        job_id: row.get(1)?,
        submit: row.time(2)?,
        eligible: row.time_if_set(3)?,
        start: row.time_if_set(4)?,
        end: row.time_if_set(5)?,
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
        reservation: row.get(25)?,
        raw_job_id: row.get(26)?,
        sluid: row.get(27)?,
        original_sluid: row.get(28)?,
        mem_bytes_most: row.get(29)?,
    })
}

/// Columns of one batch of [`Records::held_runs`].
struct HeldRuns<'a> {
    times: [&'a TimestampSecondArray; 3],
    amounts: [&'a Int64Array; 5],
    texts: [&'a StringArray; 8],
}

impl<'a> HeldRuns<'a> {
    fn of(batch: &'a StructArray) -> Self {
        fn column<T>(batch: &StructArray, position: usize) -> &T
        where
            T: 'static,
        {
            batch
                .column(position)
                .as_any()
                .downcast_ref()
                .expect("the statement names columns of these types")
        }
        Self {
            times: array::from_fn(|position| column(batch, position)),
            amounts: array::from_fn(|position| column(batch, 3 + position)),
            texts: array::from_fn(|position| column(batch, 8 + position)),
        }
    }

    fn at(&self, row: usize) -> HeldRun<'a> {
        let time = |column: usize| {
            self.times[column]
                .is_valid(row)
                .then(|| UnixTime(self.times[column].value(row)))
        };

        let amount = |column: usize| {
            let column = self.amounts[column];
            column
                .is_valid(row)
                .then(|| column.value(row).cast_unsigned())
        };

        let text = |column: usize| {
            self.texts[column]
                .is_valid(row)
                .then(|| self.texts[column].value(row))
        };

        HeldRun {
            submit: UnixTime(self.times[0].value(row)),
            start: time(1),
            end: time(2),
            nodes: amount(0),
            cpus: amount(1),
            gpus: amount(2),
            mem_bytes: amount(3),
            billing: amount(4),
            user: self.texts[0].value(row),
            account: self.texts[1].value(row),
            partition: self.texts[2].value(row),
            state: self.texts[3].value(row),
            qos: text(4),
            gpu_model: text(5),
            node_list: text(6),
            reservation: text(7),
        }
    }
}

#[cfg(test)]
mod tests;
