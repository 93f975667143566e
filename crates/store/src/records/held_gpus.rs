//! GPUs held by runs: the intervals in which they were observed.

use super::{Records, TimeColumns, micros};
use crate::StoreError;
use duckdb::params;
use takt_model::UnixTime;

/// A GPU that a run holds now, by its GRES index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldGpu {
    /// Job id.
    pub job_id: String,
    /// Time of submission.
    pub submit: UnixTime,
    /// Name of the node.
    pub node: String,
    /// GRES index of the GPU on that node.
    pub index: u32,
}

/// A GPU that a node's exporter reports as assigned to a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenGpu {
    /// Number of the job on the node. For an array task it differs from the job id.
    pub number: String,
    /// Name of the node.
    pub node: String,
    /// UUID of the GPU, from NVML.
    pub uuid: String,
}

/// A GPU that a run held in the past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastGpu {
    /// Job id.
    pub job_id: String,
    /// Time of submission.
    pub submit: UnixTime,
    /// Name of the node.
    pub node: String,
    /// UUID of the GPU, from NVML.
    pub uuid: String,
    /// First and last time.
    pub seen: (UnixTime, UnixTime),
}

/// An interval in which a run held a GPU, as slurmctld or an exporter reported it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuInterval {
    /// Name of the node.
    pub node: String,
    /// GRES index, from slurmctld.
    pub index: Option<u32>,
    /// UUID, from the exporter.
    pub uuid: Option<String>,
    /// First and last observation.
    pub seen: (UnixTime, UnixTime),
}

/// Seconds without an observation after which an interval ends. A later observation begins a new
/// interval. slurmctld may be asked at longer intervals: two of these then.
const GAP_SECONDS: i64 = 600;

/// Maximum difference between the clocks of a node and of Slurm, in seconds. Exporters may also
/// report a job this long after its end.
const CLOCKS_DIFFER_SECONDS: i64 = 60;

impl Records<'_> {
    /// Returns the GPUs of a run, by node and index.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn gpus_of(
        &self,
        cluster: &str,
        job_id: &str,
        submit: UnixTime,
    ) -> Result<Vec<GpuInterval>, StoreError> {
        self.list(
            "list the GPUs of a run",
            "SELECT node, gpu_index, uuid, epoch_ms(min(first_seen)) // 1000, epoch_ms(max(last_seen)) // 1000
             FROM records.job_gpus
             WHERE cluster = ? AND job_id = ? AND submit_time = make_timestamp(?::BIGINT)::TIMESTAMP_S
             GROUP BY ALL ORDER BY node, gpu_index, uuid",
            vec![
                cluster.to_owned().into(),
                job_id.to_owned().into(),
                micros(submit).into(),
            ],
            |row| {
                Ok(GpuInterval {
                    node: row.get(0)?,
                    index: row.get(1)?,
                    uuid: row.get(2)?,
                    seen: (row.time(3)?, row.time(4)?),
                })
            },
        )
    }

    /// Records the GPUs that exporters report as held at `now`. Slurm's number of a job is replaced
    /// by the run that had it at that time, as soon as the run is known.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_given_gpus(
        &self,
        cluster: &str,
        given: &[GivenGpu],
        now: UnixTime,
    ) -> Result<(), StoreError> {
        if given.is_empty() {
            return Ok(());
        }
        self.writing_aside("note which GPUs jobs were given", |db| {
            db.execute_batch("CREATE TEMP TABLE given (number VARCHAR, node VARCHAR, uuid VARCHAR)")?;

            let mut staged = db.appender_to_catalog_and_db("given", "temp", "main")?;
            for gpu in given {
                staged.append_row(params![gpu.number, gpu.node, gpu.uuid])?;
            }

            // The rows are in the table only after the appender has been dropped.
            drop(staged);

            let is_run = format!(
                "coalesce(j.raw_job_id, j.job_id) = g.job_id AND j.start_time <= g.last_seen + INTERVAL {CLOCKS_DIFFER_SECONDS} SECONDS
                 AND coalesce(j.end_time >= g.first_seen - INTERVAL {CLOCKS_DIFFER_SECONDS} SECONDS, true)"
            );

            // Job ids are reused. Of the matching runs, take the one submitted last.
            db.execute(
                &format!(
                    "UPDATE records.job_gpus AS g SET job_id = r.job_id, submit_time = r.submit_time
                     FROM (SELECT g.job_id AS number, g.node, g.uuid, g.first_seen, max_by(j.job_id, j.submit_time) AS job_id,
                               max(j.submit_time) AS submit_time
                           FROM records.job_gpus AS g JOIN records.jobs AS j ON j.cluster = g.cluster AND {is_run}
                           WHERE g.cluster = ? AND g.source = 'exporter' AND g.submit_time IS NULL GROUP BY ALL) AS r
                     WHERE g.cluster = ? AND g.source = 'exporter' AND g.submit_time IS NULL AND g.job_id = r.number
                       AND g.node = r.node AND g.uuid = r.uuid AND g.first_seen = r.first_seen"
                ),
                params![cluster, cluster],
            )?;

            // Without a record of the run, Slurm's number stays until the statement above finds the run.
            db.execute(
                "CREATE TEMP TABLE named AS
                 SELECT g.node, g.uuid, coalesce(max_by(j.job_id, j.submit_time), g.number) AS job_id,
                     max(j.submit_time) AS submit_time
                 FROM given AS g LEFT JOIN records.jobs AS j
                     ON j.cluster = ? AND coalesce(j.raw_job_id, j.job_id) = g.number
                     AND j.start_time IS NOT NULL AND j.end_time IS NULL
                 GROUP BY g.node, g.uuid, g.number",
                params![cluster],
            )?;

            let same = "g.cluster = ? AND g.source = 'exporter' AND g.job_id = h.job_id AND g.node = h.node
                 AND g.uuid = h.uuid AND g.submit_time IS NOT DISTINCT FROM h.submit_time
                 AND g.last_seen >= make_timestamp(?::BIGINT)::TIMESTAMP_S";
            db.execute(
                &format!(
                    "UPDATE records.job_gpus AS g SET last_seen = make_timestamp(?::BIGINT)::TIMESTAMP_S
                     FROM named AS h WHERE {same}"
                ),
                params![micros(now), cluster, micros(now - GAP_SECONDS)],
            )?;

            // Without an interval that is recent enough, another one begins.
            db.execute(
                &format!(
                    "INSERT INTO records.job_gpus
                     SELECT ?, h.job_id, h.submit_time, h.node, NULL, h.uuid, t.now, t.now, 'exporter'
                     FROM named AS h, (SELECT make_timestamp(?::BIGINT)::TIMESTAMP_S AS now) AS t
                     WHERE NOT EXISTS (SELECT 1 FROM records.job_gpus AS g WHERE {same})"
                ),
                params![cluster, micros(now), cluster, micros(now - GAP_SECONDS)],
            )?;

            db.execute_batch("DROP TABLE given; DROP TABLE named")
        })
    }

    /// Records the GPUs that runs held in the past, as their nodes' exporters would have. The interval
    /// of a run that still holds its GPU begins earlier.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_past_gpus(&self, cluster: &str, past: &[PastGpu]) -> Result<(), StoreError> {
        self.writing_aside("note which GPUs jobs held", |db| {
            db.execute_batch(
                "CREATE TEMP TABLE past (job_id VARCHAR, submit BIGINT, node VARCHAR, uuid VARCHAR, first BIGINT, last BIGINT)",
            )?;

            let mut staged = db.appender_to_catalog_and_db("past", "temp", "main")?;
            for gpu in past {
                let (first, last) = gpu.seen;
                staged.append_row(params![
                    gpu.job_id,
                    micros(gpu.submit),
                    gpu.node,
                    gpu.uuid,
                    micros(first),
                    micros(last)
                ])?;
            }
            drop(staged);

            let same = "g.cluster = ? AND g.source = 'exporter' AND g.job_id = p.job_id AND g.node = p.node
                 AND g.uuid = p.uuid AND g.submit_time = make_timestamp(p.submit)::TIMESTAMP_S";

            // A run that is known to hold the GPU gets an earlier beginning only.
            db.execute(
                &format!(
                    "UPDATE records.job_gpus AS g SET first_seen = least(g.first_seen, make_timestamp(p.first)::TIMESTAMP_S)
                     FROM past AS p WHERE {same}"
                ),
                params![cluster],
            )?;
            db.execute(
                &format!(
                    "INSERT INTO records.job_gpus
                     SELECT ?, p.job_id, make_timestamp(p.submit)::TIMESTAMP_S, p.node, NULL, p.uuid,
                         make_timestamp(p.first)::TIMESTAMP_S, make_timestamp(p.last)::TIMESTAMP_S, 'exporter'
                     FROM past AS p WHERE NOT EXISTS (SELECT 1 FROM records.job_gpus AS g WHERE {same})"
                ),
                params![cluster, cluster],
            )?;

            db.execute_batch("DROP TABLE past")
        })
    }

    /// Records the GPUs that slurmctld, which is asked every `interval_seconds`, reports as held at `now`.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_held_gpus(
        &self,
        cluster: &str,
        held: &[HeldGpu],
        now: UnixTime,
        interval_seconds: i64,
    ) -> Result<(), StoreError> {
        if held.is_empty() {
            return Ok(());
        }

        let _writing = self.database.writing().aside();
        let db = self.database.connect()?;
        (|| {
            db.execute_batch(
                "CREATE TEMP TABLE held (job_id VARCHAR, submit_time TIMESTAMP_S, node VARCHAR, gpu_index BIGINT)",
            )?;

            let mut insert = db.prepare("INSERT INTO held VALUES (?, make_timestamp(?::BIGINT)::TIMESTAMP_S, ?, ?)")?;
            for gpu in held {
                insert.execute(params![gpu.job_id, micros(gpu.submit), gpu.node, gpu.index])?;
            }

            let recent = micros(now - GAP_SECONDS.max(2 * interval_seconds));
            let same = "g.cluster = ? AND g.source = 'slurmctld' AND g.job_id = h.job_id
                 AND g.submit_time = h.submit_time AND g.node = h.node AND g.gpu_index = h.gpu_index
                 AND g.last_seen >= make_timestamp(?::BIGINT)::TIMESTAMP_S";

            db.execute_batch("BEGIN")?;
            db.execute(
                &format!(
                    "UPDATE records.job_gpus AS g SET last_seen = make_timestamp(?::BIGINT)::TIMESTAMP_S
                     FROM held AS h WHERE {same}"
                ),
                params![micros(now), cluster, recent],
            )?;

            // Without an interval that is recent enough, another one begins.
            db.execute(
                &format!(
                    "INSERT INTO records.job_gpus
                     SELECT ?, h.job_id, h.submit_time, h.node, h.gpu_index, NULL, t.now, t.now, 'slurmctld'
                     FROM held AS h, (SELECT make_timestamp(?::BIGINT)::TIMESTAMP_S AS now) AS t
                     WHERE NOT EXISTS (SELECT 1 FROM records.job_gpus AS g WHERE {same})"
                ),
                params![cluster, micros(now), cluster, recent],
            )?;
            db.execute_batch("COMMIT")
        })()
        .map_err(StoreError::sql("record the held GPUs"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Corrections, DataDir, Database, Origin, Settings, Shifted};
    use std::convert::Infallible;
    use takt_jobs::{Entry, JobRun};
    use tempfile::tempdir;

    #[test]
    fn the_past_of_a_held_gpu_extends_its_interval() {
        let root = tempdir().unwrap();
        let dir = DataDir::claim(root.path()).unwrap();
        let database = Database::open(&dir, &Settings::default()).unwrap();
        let records = Records::of(&database);
        let past = |job_id: &str, seen: (i64, i64)| PastGpu {
            job_id: job_id.into(),
            submit: UnixTime(50),
            node: "g1".into(),
            uuid: "a".into(),
            seen: (UnixTime(seen.0), UnixTime(seen.1)),
        };
        let seen = |job_id: &str| {
            records
                .gpus_of("lab", job_id, UnixTime(50))
                .unwrap()
                .into_iter()
                .map(|one| one.seen)
                .collect::<Vec<_>>()
        };

        // The second list repeats run 7, and has an earlier beginning of run 8.
        for gpus in [
            [past("7", (60, 90)), past("8", (200, 300))],
            [past("7", (60, 90)), past("8", (150, 250))],
        ] {
            records.note_past_gpus("lab", &gpus).unwrap();
        }
        assert_eq!(seen("7"), [(UnixTime(60), UnixTime(90))]);
        assert_eq!(seen("8"), [(UnixTime(150), UnixTime(300))]);
    }

    #[test]
    fn a_gpu_that_a_job_had_twice_has_two_intervals() {
        let root = tempdir().unwrap();
        let dir = DataDir::claim(root.path()).unwrap();
        let database = Database::open(&dir, &Settings::default()).unwrap();
        let records = Records::of(&database);
        let intervals = |job_id: &str, interval_seconds: i64| {
            let held = [HeldGpu {
                job_id: job_id.into(),
                submit: UnixTime(50),
                node: "g1".into(),
                index: 0,
            }];
            for now in [100, 160, 5000, 5060] {
                records
                    .note_held_gpus("lab", &held, UnixTime(now), interval_seconds)
                    .unwrap();
            }
            let sql = "SELECT epoch_ms(first_seen) // 1000, epoch_ms(last_seen) // 1000
                       FROM records.job_gpus WHERE job_id = ? ORDER BY ALL";
            let values = vec![job_id.to_owned().into()];
            records
                .list("list them", sql, values, |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .unwrap()
        };

        // Requeued, it waited for more than an hour. Polls at such intervals see no pause in that.
        let two: [(i64, i64); 2] = [(100, 160), (5000, 5060)];
        assert_eq!(intervals("7", 60), two);
        assert_eq!(intervals("8", 3600), [(100, 5060)]);
    }

    #[test]
    fn reports_of_exporters_become_intervals() {
        let root = tempdir().unwrap();
        let dir = DataDir::claim(root.path()).unwrap();
        let database = Database::open(&dir, &Settings::default()).unwrap();
        let records = Records::of(&database);
        let run = |job_id: &str, number: Option<&str>, submit: i64, end: Option<i64>| JobRun {
            cluster: "lab".into(),
            job_id: job_id.into(),
            raw_job_id: number.map(str::to_owned),
            submit: UnixTime(submit),
            start: Some(UnixTime(submit + 10)),
            end: end.map(UnixTime),
            state: "RUNNING".into(),
            ..JobRun::default()
        };
        let import = |runs: Vec<JobRun>| {
            let origin = Origin {
                source: "sacct",
                name: "test",
                timezone: None,
                complete_until: None,
                shifted: Shifted::Refuse,
                corrections: Corrections::Accept,
            };
            records
                .import(
                    &origin,
                    runs.into_iter()
                        .map(|run| Ok::<_, Infallible>(Entry::Run(run))),
                )
                .unwrap();
        };
        // Id 7 is reused: the earlier interval has ended.
        import(vec![
            run("7", None, -90_000, Some(-80_000)),
            run("7", None, 50, None),
        ]);
        let gpu = |number: &str, uuid: &str| GivenGpu {
            number: number.into(),
            node: "g1".into(),
            uuid: uuid.into(),
        };

        // No run with the number 8 is ever recorded, and the one with the number 12 only later.
        for (now, given) in [
            (100, vec![gpu("7", "a"), gpu("8", "b"), gpu("12", "c")]),
            (160, vec![gpu("7", "a")]),
            (220, vec![gpu("7", "a"), gpu("8", "b"), gpu("12", "c")]),
        ] {
            records
                .note_given_gpus("lab", &given, UnixTime(now))
                .unwrap();
        }
        // Now the scheduler reports an array task with the number 12, which has ended meanwhile.
        import(vec![run("11_2", Some("12"), 80, Some(215))]);

        // The gap since the last report is longer than `GAP_SECONDS`.
        records
            .note_given_gpus("lab", &[gpu("7", "a")], UnixTime(2000))
            .unwrap();
        let rows = records
            .list(
                "list them",
                "SELECT job_id, uuid, epoch_ms(submit_time) // 1000, epoch_ms(first_seen) // 1000, epoch_ms(last_seen) // 1000
                 FROM records.job_gpus ORDER BY ALL",
                Vec::new(),
                |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get(2)?, row.get(3)?, row.get(4)?)),
            )
            .unwrap();
        let row = |job: &str, uuid: &str, submit: Option<i64>, first: i64, last: i64| {
            (job.to_owned(), uuid.to_owned(), submit, first, last)
        };
        assert_eq!(
            rows,
            [
                row("11_2", "c", Some(80), 100, 220),
                row("7", "a", Some(50), 100, 220),
                row("7", "a", Some(50), 2000, 2000),
                row("8", "b", None, 100, 220),
            ]
        );
    }
}
