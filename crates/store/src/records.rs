//! Typed questions on the job records, and their import.

mod credits;
mod efficiency;
mod held_gpus;
mod import;
mod nodes;
mod reservations;
mod scheduler;
mod shares;

pub use credits::SentReport;
pub use efficiency::Due;
pub use held_gpus::{GivenGpu, HeldGpu};
pub use import::{ImportError, ImportSummary, Origin, Shifted};
pub use reservations::{KnownReason, WaitingRun};
pub use scheduler::{LostJob, SchedulerNow};
pub use shares::{CONFIGURED, ChargedRun, FairsharePoint, ShareSettingsRecord};

use super::{Database, StoreError};
use duckdb::arrow::array::{Array, Int64Array, StringArray, StructArray, TimestampSecondArray};
use duckdb::types::Value;
use duckdb::{Row, params, params_from_iter};
use serde::{Deserialize, Serialize};
use takt_slurm::{HeldRun, JobRun, nodelist};

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

/// Who is in the records of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Users.
    pub users: Vec<String>,
    /// Accounts; the empty one is of runs that name none.
    pub accounts: Vec<String>,
}

/// Which runs to list. What is `None` or empty does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobFilter {
    /// The cluster's name.
    pub cluster: Option<String>,
    /// A job's id, with which its array tasks and components come too: `123` finds `123_4` and `123+1`. Slurm's own number of
    /// one of them finds it too.
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
            |row| {
                Ok(KnownCluster {
                    cluster: row.get(0)?,
                    timezone: row.get(1)?,
                })
            },
        )
    }

    /// Everybody and every account that a cluster has records of, by name.
    ///
    /// # Errors
    /// When DuckDB cannot answer.
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

    /// From when to when runs of a cluster are recorded: the first submission and the last instant told of, UTC seconds.
    ///
    /// # Errors
    /// When DuckDB cannot answer.
    pub fn extent(&self, cluster: &str) -> Result<Option<(i64, i64)>, StoreError> {
        let sql = "SELECT epoch_ms(min(submit_time)) // 1000, epoch_ms(max(greatest(submit_time, start_time, end_time))) // 1000
                   FROM records.jobs WHERE cluster = ? HAVING count(*) > 0";
        let found = self.list(
            "look how far records reach",
            sql,
            vec![cluster.to_owned().into()],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok(found.into_iter().next())
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
        // Which nodes a list names is not SQL's to say, so with a node the limit has to wait.
        let sql_limit = filter.limit.filter(|_| filter.node.is_none());
        let sql_limit = sql_limit
            .map(|limit| format!("LIMIT {}", limit.min(i64::MAX as usize)))
            .unwrap_or_default();
        let sql = format!(
            "SELECT {RUN_COLUMNS} FROM records.jobs WHERE {condition} ORDER BY submit_time DESC, job_id DESC {sql_limit}"
        );
        let mut runs = self.list("list the jobs", &sql, values, job_run)?;
        if let Some(node) = &filter.node {
            runs.retain(|run| run.node_list.as_ref().is_some_and(|list| names(list, node)));
        }
        if let Some(limit) = filter.limit {
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
                "SELECT submit_time, start_time, end_time, nodes, cpus, gpus, mem_bytes, billing,
                        \"user\", account, \"partition\", state, qos, gpu_model, node_list, reservation
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

    /// What the capacity of a period is computed from: every run of the cluster that waited or ran in `[from, to)`.
    ///
    /// # Errors
    /// When DuckDB cannot answer.
    pub fn capacity_runs(
        &self,
        cluster: &str,
        from: i64,
        to: i64,
    ) -> Result<Vec<JobRun>, StoreError> {
        self.list(
            "read the job records",
            &format!(
                "SELECT {RUN_COLUMNS} FROM records.jobs
                 WHERE cluster = ? AND submit_time < make_timestamp(?::BIGINT)::TIMESTAMP_S
                   AND coalesce(end_time > make_timestamp(?::BIGINT)::TIMESTAMP_S, true)"
            ),
            vec![
                cluster.to_owned().into(),
                micros(to).into(),
                micros(from).into(),
            ],
            job_run,
        )
    }

    /// Whether anybody but our own sight of processes told of a cluster's runs.
    ///
    /// # Errors
    /// When DuckDB cannot answer.
    pub fn has_scheduler(&self, cluster: &str) -> Result<bool, StoreError> {
        let found = self.list(
            "look for a scheduler",
            "SELECT 1 FROM records.jobs WHERE cluster = ? AND source <> 'processes' LIMIT 1",
            vec![cluster.to_owned().into()],
            |_| Ok(()),
        )?;
        Ok(!found.is_empty())
    }

    /// The runs of a cluster that had not ended when its scheduler was last heard of.
    ///
    /// # Errors
    /// When DuckDB cannot answer.
    pub fn open_runs(&self, cluster: &str) -> Result<Vec<OpenRun>, StoreError> {
        self.list(
            "list the open jobs",
            "SELECT job_id, epoch_ms(submit_time) // 1000 FROM records.jobs
             WHERE cluster = ? AND end_time IS NULL AND source <> 'processes'",
            vec![cluster.to_owned().into()],
            |row| {
                Ok(OpenRun {
                    job_id: row.get(0)?,
                    submit: row.get(1)?,
                })
            },
        )
    }

    /// When `source` last told everything up to an instant at or before `instant` (UTC seconds).
    ///
    /// # Errors
    /// When DuckDB cannot answer.
    pub fn told_until(
        &self,
        cluster: &str,
        source: &str,
        instant: i64,
    ) -> Result<Option<i64>, StoreError> {
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
        let rows = (|| {
            db.prepare(sql)?
                .query_map(params_from_iter(values), read)?
                .collect::<duckdb::Result<_>>()
        })();
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
        restrict(
            "list_contains([job_id, regexp_extract(job_id, '^[^_+]*'), raw_job_id], ?)",
            text(&self.job_id),
        );
        restrict("\"user\" = ?", text(&self.user));
        restrict("account = ?", text(&self.account));
        restrict("\"partition\" = ?", text(&self.partition));
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
     suspended_seconds, timelimit_seconds, exit_code, reservation, raw_job_id";

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
        reservation: row.get(25)?,
        raw_job_id: row.get(26)?,
    })
}

/// The columns of one batch of [`Records::held_runs`].
struct HeldRuns<'a> {
    times: [&'a TimestampSecondArray; 3],
    amounts: [&'a Int64Array; 5],
    texts: [&'a StringArray; 8],
}

impl<'a> HeldRuns<'a> {
    fn of(batch: &'a StructArray) -> Self {
        fn column<T: 'static>(batch: &StructArray, position: usize) -> &T {
            batch
                .column(position)
                .as_any()
                .downcast_ref()
                .expect("the statement names columns of these types")
        }
        Self {
            times: std::array::from_fn(|position| column(batch, position)),
            amounts: std::array::from_fn(|position| column(batch, 3 + position)),
            texts: std::array::from_fn(|position| column(batch, 8 + position)),
        }
    }

    fn at(&self, row: usize) -> HeldRun<'a> {
        let time = |column: usize| {
            self.times[column]
                .is_valid(row)
                .then(|| self.times[column].value(row))
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
            submit: self.times[0].value(row),
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
mod tests {
    use super::*;
    use crate::{DataDir, Settings};
    use proptest::prelude::*;
    use std::convert::Infallible;
    use takt_slurm::{Entry, Reject};

    /// A database in a directory of its own.
    struct Store {
        database: Database,
        _dir: DataDir,
        _root: tempfile::TempDir,
    }

    impl Store {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            let dir = DataDir::claim(root.path()).unwrap();
            Self {
                database: Database::open(&dir, &Settings::default()).unwrap(),
                _dir: dir,
                _root: root,
            }
        }

        fn records(&self) -> Records<'_> {
            Records::of(&self.database)
        }

        fn import(&self, runs: &[JobRun]) -> ImportSummary {
            self.import_entries(runs.iter().cloned().map(Entry::Run).collect())
        }

        fn import_entries(&self, entries: Vec<Entry>) -> ImportSummary {
            let entries = entries.into_iter().map(Ok::<_, Infallible>);
            self.records().import(&ORIGIN, entries).unwrap()
        }

        fn jobs(&self) -> Vec<JobRun> {
            self.records().jobs(&JobFilter::default()).unwrap()
        }
    }

    const ORIGIN: Origin<'_> = Origin {
        source: "sacct",
        name: "test",
        timezone: None,
        told_until: None,
        shifted: Shifted::Refuse,
    };

    fn run(job_id: &str, submit: i64, end: Option<i64>) -> JobRun {
        JobRun {
            cluster: "lab".into(),
            job_id: job_id.into(),
            submit,
            eligible: Some(submit),
            start: Some(submit + 10),
            end,
            state: if end.is_some() {
                "COMPLETED"
            } else {
                "RUNNING"
            }
            .into(),
            user: "ann".into(),
            account: "physics".into(),
            partition: "gpu".into(),
            qos: Some("normal".into()),
            name: Some("train 'x' | \u{1f980}".into()),
            nodes: Some(2),
            cpus: Some(8),
            gpus: Some(1),
            gpu_model: Some("a100".into()),
            mem_bytes: Some(1 << 50),
            billing: Some(9),
            alloc_tres: Some("cpu=8".into()),
            req_tres: Some("cpu=8".into()),
            node_list: Some("g[1-2]".into()),
            elapsed: end.map(|end| end.abs_diff(submit) - 10),
            suspended: Some(0),
            timelimit: Some(3600),
            exit_code: Some("0:0".into()),
            reservation: Some("class".into()),
            raw_job_id: Some(format!("9{job_id}")),
        }
    }

    /// Inserted, updated, unchanged, duplicates.
    fn counts(summary: &ImportSummary) -> [u64; 4] {
        [
            summary.runs_inserted,
            summary.runs_updated,
            summary.unchanged,
            summary.duplicates,
        ]
    }

    #[test]
    fn a_run_comes_back_as_it_went_in() {
        let store = Store::new();
        let bare = JobRun {
            cluster: "lab".into(),
            job_id: "8".into(),
            submit: -5,
            state: "PENDING".into(),
            ..JobRun::default()
        };
        assert_eq!(
            counts(&store.import(&[run("7", 1000, Some(2000)), bare.clone()])),
            [2, 0, 0, 0]
        );
        assert_eq!(store.jobs(), [run("7", 1000, Some(2000)), bare]);
        let mut held = Vec::new();
        store
            .records()
            .held_runs("lab", -100, 3000, |run| held.push(format!("{run:?}")))
            .unwrap();
        held.sort();
        let mut expected: Vec<_> = store
            .jobs()
            .iter()
            .map(|run| format!("{:?}", run.held()))
            .collect();
        expected.sort();
        assert_eq!(held, expected);
    }

    #[test]
    fn the_same_and_an_overlapping_text_change_nothing() {
        let store = Store::new();
        let runs: Vec<_> = (0..5000)
            .map(|id| run(&id.to_string(), 1000 + id, (id % 3 > 0).then_some(9000)))
            .collect();
        assert_eq!(counts(&store.import(&runs[..3000])), [3000, 0, 0, 0]);
        assert_eq!(counts(&store.import(&runs[2000..])), [2000, 0, 1000, 0]);
        let before = store.jobs();
        assert_eq!(counts(&store.import(&runs)), [0, 0, 5000, 0]);
        assert_eq!(store.jobs(), before);
        assert_eq!(before.len(), 5000);
    }

    #[test]
    fn a_late_correction_corrects_and_an_older_text_does_not() {
        let store = Store::new();
        let pending = JobRun {
            start: None,
            state: "PENDING".into(),
            ..run("7", 1000, None)
        };
        let running = run("7", 1000, None);
        let ended = run("7", 1000, Some(2000));
        let corrected = JobRun {
            end: Some(1900),
            elapsed: Some(890),
            state: "FAILED".into(),
            ..ended.clone()
        };
        for (told, expected, known) in [
            (&pending, [1, 0, 0, 0], &pending),
            (&running, [0, 1, 0, 0], &running),
            (&pending, [0, 0, 1, 0], &running),
            (&ended, [0, 1, 0, 0], &ended),
            (&running, [0, 0, 1, 0], &ended),
            (&pending, [0, 0, 1, 0], &ended),
            (&corrected, [0, 1, 0, 0], &corrected),
        ] {
            assert_eq!(counts(&store.import(std::slice::from_ref(told))), expected);
            assert_eq!(store.jobs(), std::slice::from_ref(known));
        }
    }

    #[test]
    fn what_a_poorer_text_does_not_tell_stays_known() {
        let store = Store::new();
        let rich = run("7", 1000, Some(2000));
        store.import(std::slice::from_ref(&rich));
        let poor = JobRun {
            account: String::new(),
            qos: None,
            gpus: None,
            eligible: None,
            exit_code: Some("1:0".into()),
            ..rich.clone()
        };
        assert_eq!(counts(&store.import(&[poor])), [0, 1, 0, 0]);
        assert_eq!(
            store.jobs(),
            [JobRun {
                exit_code: Some("1:0".into()),
                ..rich
            }]
        );
    }

    #[test]
    fn of_two_rows_of_one_run_the_one_that_is_further_on_counts_then_the_last() {
        let store = Store::new();
        let (ended, last) = (run("7", 1000, Some(2000)), run("7", 1000, Some(2500)));
        assert_eq!(
            counts(&store.import(&[ended, last.clone(), run("7", 1000, None)])),
            [1, 0, 0, 2]
        );
        assert_eq!(store.jobs(), [last]);
    }

    #[test]
    fn a_requeued_run_and_an_id_that_comes_round_again_are_runs_of_their_own() {
        let store = Store::new();
        let other = JobRun {
            cluster: "other".into(),
            ..run("7", 1000, None)
        };
        let runs = [
            run("7", 1000, Some(1500)),
            run("7", 1500, None),
            run("7_1", 1000, None),
            other,
        ];
        assert_eq!(counts(&store.import(&runs)), [4, 0, 0, 0]);
        assert_eq!(store.records().open_runs("lab").unwrap().len(), 2);
        let clusters = store.records().clusters().unwrap();
        assert_eq!(
            clusters
                .iter()
                .map(|known| known.cluster.as_str())
                .collect::<Vec<_>>(),
            ["lab", "other"]
        );
    }

    #[test]
    fn bad_rows_are_kept_once_and_counted_each_time() {
        let store = Store::new();
        let reject = |line, text: &str| {
            Entry::Rejected(Reject {
                line,
                reason: "bad".into(),
                text: text.into(),
            })
        };
        let tasks = Entry::Tasks {
            run: run("", 1, None),
            job_ids: vec!["9_1".into(), "9_2".into()],
        };
        let entries = vec![
            reject(Some(2), "x"),
            Entry::Step,
            reject(None, "y"),
            Entry::Step,
            tasks,
            reject(None, "y"),
        ];
        for inserted in [2, 0] {
            let summary = store.import_entries(entries.clone());
            assert_eq!(
                (
                    summary.rows,
                    summary.runs,
                    summary.steps_skipped,
                    summary.rejected
                ),
                (6, 2, 2, 3)
            );
            assert_eq!(summary.runs_inserted, inserted);
            assert_eq!(summary.first_rejects.len(), 3);
            let db = store.database.connect().unwrap();
            let kept: i64 = db
                .query_row("SELECT count(*) FROM records.rejects", [], |row| row.get(0))
                .unwrap();
            assert_eq!(kept, 2);
        }
        let many = (0..50).map(|line| reject(Some(line), "z")).collect();
        assert_eq!(store.import_entries(many).first_rejects.len(), 10);
    }

    #[test]
    fn a_source_that_breaks_off_leaves_no_trace() {
        let store = Store::new();
        store.import(&[run("7", 1000, None)]);
        let entries = (0..5000).map(|id| Ok(Entry::Run(run("7", 1000 + id, Some(9000)))));
        let origin = Origin {
            timezone: Some("UTC"),
            told_until: Some(("lab", 5)),
            ..ORIGIN
        };
        let error = store
            .records()
            .import(&origin, entries.chain([Err("cut off")]))
            .unwrap_err();
        assert!(matches!(error, ImportError::Source("cut off")));
        assert_eq!(store.jobs(), [run("7", 1000, None)]);
        assert_eq!(store.records().timezone("lab").unwrap(), None);
        assert_eq!(
            store.records().told_until("lab", "sacct", 100).unwrap(),
            None
        );
        // And the next one works.
        assert_eq!(
            counts(&store.import(&[run("7", 1000, Some(9))])),
            [0, 1, 0, 0]
        );
    }

    #[test]
    fn a_time_zone_and_how_far_a_source_told_are_remembered() {
        let store = Store::new();
        let import = |timezone, until| {
            let origin = Origin {
                timezone,
                told_until: Some(("lab", until)),
                ..ORIGIN
            };
            store
                .records()
                .import(
                    &origin,
                    [Ok::<_, Infallible>(Entry::Run(run("7", 1000, None)))],
                )
                .unwrap();
        };
        import(Some("Asia/Tokyo"), 500);
        import(None, 900);
        assert_eq!(
            store.records().timezone("lab").unwrap().as_deref(),
            Some("Asia/Tokyo")
        );
        import(Some("Europe/Oslo"), 901);
        assert_eq!(
            store.records().timezone("lab").unwrap().as_deref(),
            Some("Europe/Oslo")
        );
        for (instant, told) in [
            (499, None),
            (500, Some(500)),
            (900, Some(900)),
            (5000, Some(901)),
        ] {
            assert_eq!(
                store.records().told_until("lab", "sacct", instant).unwrap(),
                told
            );
        }
        assert_eq!(
            store.records().told_until("lab", "jobcomp", 5000).unwrap(),
            None
        );
    }

    #[test]
    fn filters() {
        let store = Store::new();
        let named =
            |job_id: &str, submit, end, user: &str, state: &str, node_list: Option<&str>| JobRun {
                user: user.into(),
                state: state.into(),
                node_list: node_list.map(str::to_owned),
                ..run(job_id, submit, end)
            };
        store.import(&[
            named("12", 100, Some(200), "ann", "COMPLETED", Some("g1")),
            named("123", 200, Some(300), "bob", "FAILED", Some("g[1-3]")),
            named("123_4", 300, None, "ann", "RUNNING", Some("g[10-12]")),
            named("123+1", 400, None, "ann", "PENDING", None),
        ]);
        let ids = |filter: JobFilter| -> String {
            let runs = store.records().jobs(&filter).unwrap();
            runs.iter()
                .map(|run| run.job_id.as_str())
                .collect::<Vec<_>>()
                .join(" ")
        };
        let text = |text: &str| Some(text.to_owned());
        let any = JobFilter::default;
        assert_eq!(ids(any()), "123+1 123_4 123 12");
        assert_eq!(
            ids(JobFilter {
                limit: Some(2),
                ..any()
            }),
            "123+1 123_4"
        );
        assert_eq!(
            ids(JobFilter {
                job_id: text("123"),
                ..any()
            }),
            "123+1 123_4 123"
        );
        assert_eq!(
            ids(JobFilter {
                job_id: text("123_4"),
                ..any()
            }),
            "123_4"
        );
        assert_eq!(
            ids(JobFilter {
                job_id: text("1"),
                ..any()
            }),
            ""
        );
        assert_eq!(
            ids(JobFilter {
                user: text("ann"),
                cluster: text("lab"),
                ..any()
            }),
            "123+1 123_4 12"
        );
        assert_eq!(
            ids(JobFilter {
                states: vec!["failed".into(), "RUNNING".into()],
                ..any()
            }),
            "123_4 123"
        );
        assert_eq!(
            ids(JobFilter {
                node: text("g1"),
                ..any()
            }),
            "123 12"
        );
        assert_eq!(
            ids(JobFilter {
                node: text("g1"),
                limit: Some(1),
                ..any()
            }),
            "123"
        );
        assert_eq!(
            ids(JobFilter {
                node: text("g11"),
                ..any()
            }),
            "123_4"
        );
        assert_eq!(
            ids(JobFilter {
                from: Some(200),
                to: Some(400),
                ..any()
            }),
            "123_4 123"
        );
        assert_eq!(
            ids(JobFilter {
                user: text("ann' OR true --"),
                ..any()
            }),
            ""
        );
        assert_eq!(
            ids(JobFilter {
                account: text("physics"),
                partition: text("cpu"),
                ..any()
            }),
            ""
        );
    }

    #[test]
    fn only_runs_that_touch_the_period_are_shown_to_accounting() {
        let store = Store::new();
        let pending = JobRun {
            start: None,
            ..run("5", 50, None)
        };
        let cancelled = JobRun {
            start: None,
            ..run("6", 50, Some(100))
        };
        store.import(&[
            run("1", 10, Some(99)),
            run("2", 10, Some(100)),
            run("3", 199, Some(400)),
            run("4", 200, Some(400)),
            pending,
            cancelled,
            JobRun {
                cluster: "other".into(),
                ..run("7", 100, None)
            },
        ]);
        let mut submits = Vec::new();
        store
            .records()
            .held_runs("lab", 100, 200, |run| submits.push((run.submit, run.end)))
            .unwrap();
        submits.sort_unstable();
        assert_eq!(
            submits,
            [
                (10, Some(100)),
                (50, None),
                (50, Some(100)),
                (199, Some(400))
            ]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        /// Whatever is imported, importing it again changes nothing, and no identity is there twice.
        #[test]
        fn importing_twice_changes_nothing(
            runs in proptest::collection::vec((0..4_u8, 0..3_i64, proptest::option::of(20..30_i64), any::<bool>()), 0..40)
        ) {
            let store = Store::new();
            let runs: Vec<_> = runs
                .into_iter()
                .map(|(id, submit, end, started)| {
                    let run = run(&id.to_string(), submit, end);
                    JobRun { start: run.start.filter(|_| started), ..run }
                })
                .collect();
            let first = store.import(&runs);
            let before = store.jobs();
            prop_assert_eq!(first.runs_inserted, before.len() as u64);
            let again = store.import(&runs);
            prop_assert_eq!(counts(&again), [0, 0, first.runs_inserted, first.duplicates]);
            prop_assert_eq!(store.jobs(), before);
        }
    }
    #[test]
    fn the_same_runs_in_another_time_zone_are_refused_replaced_or_kept() {
        let store = Store::new();
        let runs: Vec<_> = (0..10)
            .map(|n| run(&n.to_string(), 1000 * n, Some(1000 * n + 500)))
            .collect();
        store.import(&runs);
        let later = |run: &JobRun| JobRun {
            submit: run.submit + 7200,
            start: run.start.map(|start| start + 7200),
            end: run.end.map(|end| end + 7200),
            ..run.clone()
        };
        let shifted: Vec<_> = runs.iter().map(later).collect();
        let import = |shifted_runs: &[JobRun], shifted| {
            let entries = shifted_runs
                .iter()
                .cloned()
                .map(|run| Ok::<_, Infallible>(Entry::Run(run)));
            store
                .records()
                .import(&Origin { shifted, ..ORIGIN }, entries)
        };
        let refused = import(&shifted, Shifted::Refuse).unwrap_err().to_string();
        assert!(
            refused.starts_with("10 of these runs are known already, 2 h earlier: one of the two"),
            "{refused}"
        );
        assert_eq!(store.jobs().len(), 10);
        // The same runs again, and other runs of the same ids, are no mistake.
        assert_eq!(
            counts(&import(&runs, Shifted::Refuse).unwrap()),
            [0, 0, 10, 0]
        );
        let others: Vec<_> = (0..10)
            .map(|n| run(&n.to_string(), 1000 * n + 7200, Some(1000 * n + 7900)))
            .collect();
        let mixed: Vec<_> = others.iter().chain(&shifted[..1]).cloned().collect();
        let refused = import(&mixed, Shifted::Refuse).unwrap_err().to_string();
        assert!(refused.starts_with("1 of these runs"), "{refused}");
        assert_eq!(
            counts(&import(&mixed, Shifted::Keep).unwrap()),
            [10, 0, 0, 1]
        );
        assert_eq!(
            import(&shifted, Shifted::Replace).unwrap().runs_inserted,
            0,
            "those of the same identity are known"
        );
        assert!(
            store.jobs().iter().all(|run| run.submit >= 7200),
            "the others are forgotten"
        );
    }

    /// Issue 13: five of 300 runs existed twice after an import without --timezone, and `replace` left running ghosts.
    #[test]
    fn a_few_runs_of_another_time_zone_are_noticed_and_replaced_whole() {
        let store = Store::new();
        let later = |run: &JobRun, seconds: i64| JobRun {
            submit: run.submit + seconds,
            start: run.start.map(|start| start + seconds),
            end: run.end.map(|end| end + seconds),
            ..run.clone()
        };
        let all: Vec<_> = (0..300)
            .map(|n| run(&n.to_string(), 1000 * n, Some(1000 * n + 500)))
            .collect();
        // As they were known while the last of them still ran, and one still waited.
        let mut few: Vec<_> = all[..5].iter().map(|run| later(run, 7200)).collect();
        few[3].end = None;
        few[4].start = None;
        few[4].end = None;
        store.import(&few);
        let import = |runs: &[JobRun], shifted| {
            let entries = runs
                .iter()
                .cloned()
                .map(|run| Ok::<_, Infallible>(Entry::Run(run)));
            store
                .records()
                .import(&Origin { shifted, ..ORIGIN }, entries)
        };
        let refused = import(&all, Shifted::Refuse).unwrap_err().to_string();
        assert!(
            refused.starts_with("4 of these runs are known already, 2 h later"),
            "{refused}"
        );
        assert_eq!(store.jobs().len(), 5, "nothing is stored");
        import(&all, Shifted::Replace).unwrap();
        let stored = store.jobs();
        assert_eq!(stored.len(), 300);
        assert!(stored.iter().all(|run| run.end.is_some()), "no ghosts");
    }

    /// Two runs of a requeued job, an hour apart to the second, are two runs.
    #[test]
    fn runs_of_a_requeued_job_are_no_shift() {
        let store = Store::new();
        let first = run("7", 1000, Some(1500));
        let second = run("7", 4600, Some(5100));
        store.import(std::slice::from_ref(&first));
        store.import(&[first, second]);
        assert_eq!(store.jobs().len(), 2);
    }
}
