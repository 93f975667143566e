//! A store with two finished days of samples and some days of records, and its lake. Its time is fixed: the
//! queries of the documentation ask about the month of its records.

use prometheus_client::registry::Registry;
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;
use takt_jobs::{Entry, JobRun};
use takt_lake::{Lake, LakeConfig, LakeError, LakeStatus, RoundSummary};
use takt_model::{Labels, METRIC_NAME, Timestamp, UnixTime};
use takt_store::{
    Clock, Corrections, DataDir, Origin, Records, STALE, Sample, Shifted, Store, StoreConfig,
    TimeOffset,
};
use tempfile::TempDir;

pub const HOUR: i64 = 3600;
pub const DAY: i64 = 24 * HOUR;

/// 2026-10-01 in Oslo, where summer time ends on the 25th.
pub const MONTH: i64 = 1_790_805_600;

/// The time when a test begins: 2026-10-12, 9:00 UTC.
const START: i64 = 1_791_795_600;

/// The first midnight of the samples, in UTC: 2026-10-08.
const SAMPLES: i64 = START - 9 * HOUR - 4 * DAY;

/// Seconds between two samples of a series.
const STEP: i64 = 120;

/// Number, user, first and last hour of a run on a GPU.
type Held<'a> = (&'a str, &'a str, i64, i64);

/// The last value before or at an hour.
fn level(levels: &[(i64, f64)], hour: i64) -> f64 {
    levels
        .iter()
        .rev()
        .find(|(from, _)| *from <= hour)
        .map_or(0.0, |(_, value)| *value)
}

pub struct Lab {
    /// Deleted with this value; `None` if another one owns the folder.
    temporary: Option<TempDir>,
    root: PathBuf,
    store: Store,
    pub config: LakeConfig,
    /// Seconds by which the store's clock is ahead of the machine's.
    ahead: Arc<AtomicI64>,
}

impl Lab {
    pub fn new() -> Self {
        Self::with_noise(0)
    }

    /// Also with this number of series whose values cannot be compressed, each with 720 samples on the first day.
    pub fn with_noise(series: u64) -> Self {
        let root = TempDir::with_prefix("takt-lake-").unwrap();
        let ahead = START - Timestamp::from(SystemTime::now()).0 / 1000;
        let mut lab = Self::at(root.path(), ahead);
        lab.temporary = Some(root);
        lab.fill(series);
        lab
    }

    /// The lab that another process has left in a folder, at the time that it had.
    pub fn again(root: &Path, config: LakeConfig) -> Self {
        let ahead = fs::read_to_string(root.join("ahead")).unwrap();
        let mut lab = Self::at(root, ahead.parse().unwrap());
        lab.config = LakeConfig {
            path: lab.config.path,
            ..config
        };
        lab
    }

    /// Ends the lab, and returns its folder for other processes.
    pub fn close(mut self) -> TempDir {
        let ahead = self.ahead.load(Ordering::Relaxed).to_string();
        fs::write(self.root.join("ahead"), ahead).unwrap();
        self.temporary.take().unwrap()
    }

    fn at(root: &Path, ahead: i64) -> Self {
        let ahead = Arc::new(AtomicI64::new(ahead));
        let offset = Arc::clone(&ahead);
        let clock = Clock::new(move || {
            let now = Timestamp::from(SystemTime::now());
            Timestamp(now.0 + 1000 * offset.load(Ordering::Relaxed))
        });
        let config = StoreConfig {
            // The disk of a test machine may be nearly full.
            min_free_bytes: 0,
            commit_interval_ms: 20,
            ..StoreConfig::default()
        };
        let data = DataDir::claim(&root.join("data")).unwrap();
        let store = Store::open_at(data, &config, &mut Registry::default(), clock).unwrap();
        Self {
            config: LakeConfig {
                path: Some(root.join("lake")),
                ..LakeConfig::default()
            },
            temporary: None,
            root: root.to_owned(),
            store,
            ahead,
        }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn lake(&self) -> PathBuf {
        self.config.path.clone().unwrap()
    }

    pub fn data(&self) -> PathBuf {
        self.store.path()
    }

    pub fn now(&self) -> Timestamp {
        let now = Timestamp::from(SystemTime::now());
        Timestamp(now.0 + 1000 * self.ahead.load(Ordering::Relaxed))
    }

    /// Start of the run that has not ended.
    pub fn running_since(&self) -> i64 {
        SAMPLES + DAY + 2 * HOUR
    }

    /// Ends the run that has not ended: the report and the server's SQL also count what the lake has not.
    pub fn end_all(&self) {
        let start = self.running_since();
        self.import("4", start, Some(start + 20 * HOUR));
    }

    /// Lets time pass.
    pub fn later(&self, seconds: i64) {
        self.ahead.fetch_add(seconds, Ordering::Relaxed);
    }

    fn fill(&self, noise: u64) {
        let records = Records::of(self.store.database());
        // Summer time begins at the end of March, here for all years.
        let offsets = [
            (946_681_200, 1_792_890_000, 7200),
            (1_792_890_000, 2_051_218_800, 3600),
        ];
        let offsets = offsets.map(|(from, until, offset_seconds)| TimeOffset {
            from: UnixTime(from),
            until: UnixTime(until),
            offset_seconds,
        });
        records
            .note_time_offsets("lab", "Europe/Oslo", &offsets)
            .unwrap();
        self.import(
            "1",
            MONTH + DAY + 9 * HOUR,
            Some(MONTH + 2 * DAY + 10 * HOUR),
        );
        self.import("2", MONTH + 3 * DAY, Some(MONTH + 4 * DAY));
        // A run without a duration: it is a record and no usage.
        self.import("3", MONTH + 3 * DAY, Some(MONTH + 3 * DAY));
        self.import("4", self.running_since(), None);
        self.import_more();

        let db = self.store.database().connect().unwrap();
        let end = 1_000_000 * (MONTH + 2 * DAY + 10 * HOUR);
        let measured = "cluster, job_id, submit_time, run_end_time, assessed_at, held_seconds,
             held_gpu_seconds, coverage_ratio, gpus_measured, gpus_idle, is_network_bound,
             used_gpu_seconds, waste_idle_gpu_seconds, waste_streak_gpu_seconds,
             waste_low_gpu_seconds, lost_gpu_seconds, lost_cpu_seconds, unmeasured_gpu_seconds,
             limit_excess_gpu_seconds";
        db.execute_batch(&format!(
            "INSERT INTO records.run_efficiency ({measured}) VALUES ('lab', '1',
                 make_timestamp({submit})::TIMESTAMP_S, make_timestamp({end})::TIMESTAMP_S,
                 make_timestamp({end})::TIMESTAMP_S, 90000, 180000, 0.9, 2, 0, false, 100000,
                 80000, 0, 0, 0, 0, 0, 0)",
            submit = 1_000_000 * (MONTH + DAY),
        ))
        .unwrap();
        db.execute_batch(&format!(
            "INSERT INTO records.fairshare SELECT 'lab',
                 make_timestamp({} + 3600000000 * hour)::TIMESTAMP_S, 'physics', user_name, NULL, 10,
                 0.5, 100.5, 0.25, 0.25, 'inf'::DOUBLE, fair_share - hour / 100
             FROM range(48) AS t(hour), (VALUES ('ann', 0.75), ('bob', 0.5)) AS u(user_name, fair_share)",
            1_000_000 * (SAMPLES - 4 * DAY)
        ))
        .unwrap();

        self.write_samples(noise);
        self.store.seal().unwrap();
    }

    /// Writes a day and a half of samples.
    fn write_samples(&self, noise: u64) {
        let start = SAMPLES;
        let mut samples = Vec::new();
        // The runs that a GPU had, with their hours since the start, and hours with the GPU's utilization.
        let of_g01 = [
            ("5", "ann", 1, 5),
            ("7", "ann", 6, 12),
            ("4", "bob", 26, 36),
        ];
        let of_g02 = [("6", "bob", 3, 20), ("4", "bob", 26, 36)];
        let g01: (&[Held], &[(i64, f64)]) = (&of_g01, &[(0, 0.9), (6, 0.004), (13, 0.8)]);
        let g02: (&[Held], &[(i64, f64)]) = (&of_g02, &[(0, 0.0), (26, 0.5)]);
        for (node, (runs, utilization)) in [("g01", g01), ("g02", g02)] {
            let series = |metric: &str, labels: &[(&str, &str)]| {
                let labels: Labels = [(METRIC_NAME, metric), ("cluster", "lab"), ("node", node)]
                    .iter()
                    .chain(labels)
                    .copied()
                    .collect();
                self.store.series_number(&labels)
            };
            let uuid = format!("GPU-{node}");
            let gpu = [("uuid", uuid.as_str())];
            let power = series("takt_gpu_power_watts", &gpu);
            let energy = series("takt_gpu_energy_joules_total", &gpu);
            let busy = series("takt_gpu_utilization_ratio", &gpu);
            // Characters that JSON, SQL and Parquet each treat in their own way.
            let load = series("node_load1", &[("odd", "\"quoted\", \\ and Ä")]);
            for step in 0..36 * HOUR / STEP {
                let at = Timestamp(1000 * (start + step * STEP));
                let values = [
                    (power, 300.0 + step as f64 / 7.0),
                    (energy, 1e6 + 36_000.0 * step as f64),
                    (busy, level(utilization, step * STEP / HOUR)),
                    (
                        load,
                        // The end of a series, which is NULL in the lake.
                        if step == 500 {
                            STALE
                        } else {
                            step as f64 / 3.0
                        },
                    ),
                ];
                samples.extend(values.map(|(series, value)| (series, Sample { at, value })));
            }
            for (job_id, user, from, until) in runs {
                let job = [("uuid", uuid.as_str()), ("jobid", *job_id), ("user", *user)];
                let info = series("takt_gpu_job_info", &job);
                for step in from * HOUR / STEP..until * HOUR / STEP {
                    let at = Timestamp(1000 * (start + step * STEP));
                    samples.push((info, Sample { at, value: 1.0 }));
                }
            }
        }
        let mut seed: u64 = 1;
        for number in 0..noise {
            let number = number.to_string();
            let labels = [
                (METRIC_NAME, "noise"),
                ("cluster", "lab"),
                ("number", &number),
            ];
            let series = self.store.series_number(&labels.into_iter().collect());
            for step in 0..DAY / STEP {
                let at = Timestamp(1000 * (start + step * STEP));
                // A linear congruential generator: the same noise in each run.
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let value = f64::from_bits(seed >> 12 | 1.0_f64.to_bits());
                samples.push((series, Sample { at, value }));
            }
        }
        self.store.write_past(samples).unwrap();
    }

    /// Imports runs of several users, accounts, partitions and states: three that held GPUs with samples, and
    /// one with an unknown number of GPUs.
    fn import_more(&self) {
        let run = |job_id: &str, user: &str, submit: i64, start: i64, end: i64| JobRun {
            submit: UnixTime(submit),
            user: user.into(),
            gpus: Some(1),
            timelimit: Some((8 * HOUR).cast_unsigned()),
            ..Self::run(job_id, start, Some(end))
        };
        let at = |hour: i64, minute: i64| SAMPLES + hour * HOUR + minute * 60;
        self.import_run(run("5", "ann", at(0, 30), at(1, 0) + 50, at(5, 0) + 10));
        self.import_run(JobRun {
            state: "FAILED".into(),
            account: "biology".into(),
            partition: "long".into(),
            ..run("6", "bob", at(1, 10), at(3, 1) + 20, at(20, 0))
        });
        self.import_run(JobRun {
            state: "TIMEOUT".into(),
            ..run("7", "ann", at(5, 13), at(6, 0), at(12, 0))
        });
        self.import_run(JobRun {
            account: "biology".into(),
            partition: "cpu".into(),
            gpus: None,
            ..run("8", "cem", at(-29, 30), at(-28, 0), at(-22, 0))
        });
    }

    /// Imports a run of two GPUs.
    pub fn import(&self, job_id: &str, start: i64, end: Option<i64>) {
        self.import_run(Self::run(job_id, start, end));
    }

    fn import_run(&self, run: JobRun) {
        let origin = Origin {
            source: "sacct",
            name: "test",
            timezone: Some("Europe/Oslo"),
            complete_until: None,
            shifted: Shifted::Keep,
            corrections: Corrections::Accept,
        };
        let entries = [Ok::<_, Infallible>(Entry::Run(run))];
        Records::of(self.store.database())
            .import(&origin, entries)
            .unwrap();
    }

    fn run(job_id: &str, start: i64, end: Option<i64>) -> JobRun {
        let user = if job_id == "1" { "ann" } else { "bob" };
        JobRun {
            cluster: "lab".into(),
            job_id: job_id.into(),
            submit: UnixTime(MONTH + DAY),
            start: Some(UnixTime(start)),
            end: end.map(UnixTime),
            state: end.map_or("RUNNING", |_| "COMPLETED").into(),
            user: user.into(),
            account: "physics".into(),
            partition: "gpu".into(),
            nodes: Some(1),
            cpus: Some(8),
            gpus: Some(2),
            mem_bytes: Some(64 << 30),
            timelimit: Some(4 * 86_400),
            ..JobRun::default()
        }
    }

    pub fn try_round(&self, config: &LakeConfig, anew: bool) -> Result<RoundSummary, LakeError> {
        Lake::new(self.store.database(), config, 0).round(anew, self.now(), &|| false)
    }

    /// A round without an error.
    pub fn round(&self) -> RoundSummary {
        let done = self.try_round(&self.config, false).unwrap();
        assert_eq!(done.error(), "");
        done
    }

    pub fn status(&self) -> LakeStatus {
        Lake::new(self.store.database(), &self.config, 0)
            .status()
            .unwrap()
    }

    pub fn version(&self, table: &str) -> u64 {
        let status = self.status();
        status
            .tables
            .iter()
            .find(|status| status.table == table)
            .unwrap()
            .version
            .unwrap()
    }

    pub fn verify(&self) -> Vec<String> {
        Lake::new(self.store.database(), &self.config, 0)
            .verify(self.now())
            .unwrap()
    }

    fn count(&self, sql: &str) -> u64 {
        let db = self.store.database().connect().unwrap();
        let count: i64 = db.query_row(sql, [], |row| row.get(0)).unwrap();
        count.cast_unsigned()
    }

    /// Number of samples in the store.
    pub fn samples(&self) -> u64 {
        self.count("SELECT count(*) FROM samples")
    }

    /// Sum of the GPU-seconds in the newest version of the table `usage`, by its files.
    pub fn gpu_seconds(&self) -> u64 {
        let files = files_in(&self.lake(), "usage");
        let list = takt_store::file_list(files.iter().map(PathBuf::as_path));
        let db = takt_store::in_memory(256, 1).unwrap();
        let sql = format!("SELECT sum(gpu_seconds)::BIGINT FROM read_parquet({list})");
        let sum: i64 = db.query_row(&sql, [], |row| row.get(0)).unwrap();
        sum.cast_unsigned()
    }

    pub fn folder(&self) -> &Path {
        &self.root
    }
}

/// Files of the newest version of a table, by the log of a lake in a folder.
fn files_in(lake: &Path, table: &str) -> Vec<PathBuf> {
    let log = fs::read_dir(lake.join(table).join("_delta_log"));
    let log = log.into_iter().flatten();
    let mut commits: Vec<PathBuf> = log.map(|file| file.unwrap().path()).collect();
    commits.retain(|commit| commit.extension().is_some_and(|it| it == "json"));
    commits.sort();
    let mut files = std::collections::BTreeSet::new();
    for commit in commits {
        for line in fs::read_to_string(commit).unwrap().lines() {
            let action: serde_json::Value = serde_json::from_str(line).unwrap();
            if let Some(path) = action["remove"]["path"].as_str() {
                // Takt's log removes only what it has added.
                assert!(files.remove(path), "{path}");
            }
            if let Some(path) = action["add"]["path"].as_str() {
                assert!(files.insert(path.to_owned()), "{path}");
            }
        }
    }
    let paths = files.iter().map(|file| lake.join(table).join(file));
    paths.collect()
}

/// Rows of a table, by its files.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TableRows {
    pub rows: i64,
    /// Number of different rows, by the columns that name one.
    pub different: i64,
    /// Sum of the rows' hashes. It does not depend on their order.
    pub digest: String,
}

/// Reads the newest version of a table of a lake in a folder, without Takt's code.
pub fn rows_in(lake: &Path, table: &str) -> TableRows {
    let key = match table {
        "job_runs" | "efficiency" => "cluster, job_id, submit_time",
        "usage" => "cluster, job_id, submit_time, day",
        "fairshare" => "cluster, noted_at, account, \"user\", \"partition\"",
        _ => "ts, metric, labels",
    };
    let files = files_in(lake, table);
    if files.is_empty() {
        return TableRows::default();
    }
    let list = takt_store::file_list(files.iter().map(PathBuf::as_path));
    let db = takt_store::in_memory(1024, 1).unwrap();
    let sql = format!(
        "SELECT count(*), count(DISTINCT ({key})), sum(hash(t))::VARCHAR
         FROM read_parquet({list}, hive_partitioning = false) AS t"
    );
    db.query_row(&sql, [], |row| {
        Ok(TableRows {
            rows: row.get(0)?,
            different: row.get(1)?,
            digest: row.get(2)?,
        })
    })
    .unwrap()
}
