//! Job records from real clusters, from sacct's text to the month's report.
//!
//! The tests compare Takt's figures with those of DuckDB's SQL over the raw text: its own CSV reader,
//! its own splitting of AllocTRES, and the offsets of local time written out by hand.
//!
//! The records are in the folder `TAKT_SHARED`, or in `../shared` next to the workspace. A test
//! without its records prints a note and passes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(
    clippy::print_stderr,
    reason = "says what was skipped and what was measured"
)]

use duckdb::Connection;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use std::collections::HashMap;
use std::env;
use std::fs::{self, File};
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use takt_accounting::{Figures, GroupBy, Period, Usage, UsageReport};
use takt_jobs::time_zone;
use takt_model::UnixTime;
use takt_slurm::sacct::{Cluster, Options, Reader};
use takt_store::{
    Corrections, DataDir, Database, ImportSummary, JobFilter, Origin, Records, Settings, Shifted,
};
use tempfile::{TempDir, tempdir};

/// A database in its own directory.
struct Store {
    database: Database,
    _dir: DataDir,
    _root: TempDir,
}

impl Store {
    fn new() -> Self {
        let root = tempdir().unwrap();

        let dir = DataDir::claim(root.path()).unwrap();
        let database = Database::open(&dir, &Settings::default()).unwrap();
        Self {
            database,
            _dir: dir,
            _root: root,
        }
    }

    fn records(&self) -> Records<'_> {
        Records::of(&self.database)
    }

    fn import(&self, text: impl Read, name: &str, zone: &str) -> ImportSummary {
        let options = Options {
            cluster: Cluster::Named("real".into()),
            zone: time_zone(zone).unwrap(),
            columns: None,
        };

        let reader = Reader::open(text, name, options).unwrap();
        let origin = Origin {
            source: "sacct",
            name,
            timezone: Some(zone),
            complete_until: None,
            shifted: Shifted::Refuse,
            corrections: Corrections::Accept,
        };
        self.records().import(&origin, reader).unwrap()
    }

    fn usage(&self, period: &Period, by: &[GroupBy], now: &str) -> UsageReport {
        let now: Timestamp = now.parse().unwrap();

        let mut usage = Usage::new(period, by, UnixTime::from(now));
        self.records()
            .held_runs("real", period.from(), period.to(), |run| usage.add(run))
            .unwrap();
        usage.report("real")
    }
}

fn shared(path: &str) -> Option<PathBuf> {
    let folder = env::var_os("TAKT_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared"),
        PathBuf::from,
    );
    let file = folder.join(path);
    if file.exists() {
        return Some(file);
    }
    eprintln!("skipped: {} is not there", file.display());
    None
}

/// Figures of a user, or of all users, in a period, as DuckDB's SQL counts them in the raw text.
#[derive(Debug, Default, Clone, PartialEq)]
struct Counted {
    user: String,
    submitted: u64,
    started: u64,
    ended: u64,
    running: u64,
    cpu_seconds: u64,
    gpu_seconds: u64,
    node_seconds: u64,
    wall_seconds: u64,
    wait_seconds: i64,
    mem_gib_hours: f64,
}

impl From<(&str, &Figures)> for Counted {
    fn from((user, figures): (&str, &Figures)) -> Self {
        Self {
            user: user.to_owned(),
            submitted: figures.jobs_submitted,
            started: figures.jobs_started,
            ended: figures.jobs_ended,
            running: figures.jobs_running,
            cpu_seconds: figures.cpu_seconds,
            gpu_seconds: figures.gpu_seconds.expect("all have AllocTRES"),
            node_seconds: figures.node_seconds,
            wall_seconds: figures.wall_seconds,
            wait_seconds: figures.wait_seconds,
            mem_gib_hours: figures.mem_gib_hours,
        }
    }
}

/// Counts the same figures from the raw text, without Takt's code. `offset` is the time zone's
/// offset in hours; `from`, `to` and `now` are local times.
fn counted_by_sql(file: &Path, offset: i64, from: &str, to: &str, now: &str) -> Vec<Counted> {
    let db = Connection::open_in_memory().unwrap();
    let sql = format!(
        r#"
        WITH raw AS (
            SELECT * FROM read_csv('{file}', delim = '|', header = true, all_varchar = true, quote = '')
            WHERE NOT contains(JobID, '.')
        ), local AS (
            SELECT *, try_strptime(Submit, '%Y-%m-%dT%H:%M:%S') AS submit_at,
                   CASE WHEN NodeList = 'None assigned' THEN NULL ELSE try_strptime(Start, '%Y-%m-%dT%H:%M:%S') END AS start_at,
                   try_strptime("End", '%Y-%m-%dT%H:%M:%S') AS end_at,
                   map_from_entries(list_transform(string_split(AllocTRES, ','),
                       lambda entry: struct_pack(k := split_part(entry, '=', 1), v := split_part(entry, '=', 2)))) AS tres
            FROM raw
        ), utc AS (
            SELECT "User" AS person, epoch(submit_at) - {offset} * 3600 AS submitted, epoch(start_at) - {offset} * 3600 AS started,
                   epoch(end_at) - {offset} * 3600 AS ended, tres['cpu']::BIGINT AS cpus, tres['node']::BIGINT AS nodes,
                   coalesce(tres['gres/gpu'], '0')::BIGINT AS gpus,
                   CASE WHEN starts_with(tres['mem'], '-') OR tres['mem'] IS NULL THEN 0
                        ELSE regexp_extract(tres['mem'], '[0-9.]+')::DOUBLE
                             * CASE right(tres['mem'], 1) WHEN 'T' THEN 1024 WHEN 'G' THEN 1 WHEN 'M' THEN 1 / 1024 END
                   END AS gib,
                   epoch(TIMESTAMP '{from}') - {offset} * 3600 AS a, epoch(TIMESTAMP '{to}') - {offset} * 3600 AS b,
                   epoch(TIMESTAMP '{now}') - {offset} * 3600 AS now
            FROM local
        ), cut AS (
            SELECT *, started < b AND (ended IS NULL OR ended > a) AS runs,
                   CASE WHEN runs THEN greatest(0, least(coalesce(ended, now), b) - greatest(started, a)) ELSE 0 END AS seconds
            FROM utc
        )
        SELECT coalesce(person, 'everybody') AS person, count(*) FILTER (submitted >= a AND submitted < b),
               count(*) FILTER (started >= a AND started < b), count(*) FILTER (ended >= a AND ended < b),
               count(*) FILTER (runs), sum(CASE WHEN runs THEN cpus * seconds ELSE 0 END)::UBIGINT,
               sum(CASE WHEN runs THEN gpus * seconds ELSE 0 END)::UBIGINT,
               sum(CASE WHEN runs THEN nodes * seconds ELSE 0 END)::UBIGINT, sum(seconds)::UBIGINT,
               coalesce(sum(started - submitted) FILTER (started >= a AND started < b), 0)::BIGINT,
               sum(gib * seconds) / 3600
        FROM cut GROUP BY GROUPING SETS ((person), ())
        HAVING count(*) FILTER ((submitted >= a AND submitted < b) OR (ended >= a AND ended < b) OR runs) > 0
        ORDER BY person"#,
        file = file.display()
    );
    db.prepare(&sql)
        .unwrap()
        .query_map([], |row| {
            Ok(Counted {
                user: row.get(0)?,
                submitted: row.get(1)?,
                started: row.get(2)?,
                ended: row.get(3)?,
                running: row.get(4)?,
                cpu_seconds: row.get(5)?,
                gpu_seconds: row.get(6)?,
                node_seconds: row.get(7)?,
                wall_seconds: row.get(8)?,
                wait_seconds: row.get(9)?,
                mem_gib_hours: row.get(10)?,
            })
        })
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

fn assert_same(report: &UsageReport, expected: &[Counted]) {
    let mut ours: Vec<Counted> = report
        .rows
        .iter()
        .map(|row| Counted::from((row.group.0[0].1.as_deref().unwrap(), &row.figures)))
        // The SQL's last row has all users together, as the totals.
        .chain([Counted::from(("everybody", &report.totals))])
        .collect();

    ours.sort_by(|a, b| a.user.cmp(&b.user));
    assert_eq!(ours.len(), expected.len());
    for (ours, expected) in ours.iter().zip(expected) {
        // Only this figure is not an integer; the SQL sums it in another order.
        let error = (ours.mem_gib_hours - expected.mem_gib_hours).abs();
        assert!(
            error <= 1e-9 * expected.mem_gib_hours,
            "{} {error}",
            ours.user
        );
        assert_eq!(
            *ours,
            Counted {
                mem_gib_hours: ours.mem_gib_hours,
                ..expected.clone()
            }
        );
    }
}

/// Checks that every allocation in the text is a run with all of its values.
fn assert_lossless(store: &Store, file: &Path) {
    let db = Connection::open_in_memory().unwrap();
    let sql = format!(
        "SELECT JobID, coalesce(\"User\", ''), coalesce(Account, ''), coalesce(\"Partition\", ''), State, AllocTRES, ReqTRES,
                NodeList, ElapsedRaw, TimelimitRaw, ExitCode, NCPUS, NNodes
         FROM read_csv('{}', delim = '|', header = true, all_varchar = true, quote = '') WHERE NOT contains(JobID, '.')",
        file.display()
    );
    let mut expected: HashMap<Option<String>, Vec<Option<String>>> = db
        .prepare(&sql)
        .unwrap()
        .query_map([], |row| {
            (0..13)
                .map(|column| row.get(column))
                .collect::<duckdb::Result<Vec<_>>>()
        })
        .unwrap()
        .map(Result::unwrap)
        .map(|raw: Vec<Option<String>>| (raw[0].clone(), raw))
        .collect();

    assert_eq!(
        store.records().jobs(&JobFilter::default()).unwrap().len(),
        expected.len()
    );
    for run in store.records().jobs(&JobFilter::default()).unwrap() {
        let mut raw = expected
            .remove(&Some(run.job_id.clone()))
            .expect("a run of the text");
        let number = |number: Option<u64>| number.map(|number| number.to_string());

        // Omitted on purpose: nodes that were never assigned, the elapsed time of running jobs, and
        // the requests of pending jobs.
        if run.start.is_none() {
            raw[7] = None;
            (raw[11], raw[12]) = (None, None);
        }
        if run.end.is_none() {
            raw[8] = None;
        }
        let ours = vec![
            Some(run.job_id),
            Some(run.user),
            Some(run.account),
            Some(run.partition),
            Some(run.state),
            run.alloc_tres,
            run.req_tres,
            run.node_list,
            number(run.elapsed),
            number(run.timelimit.map(|seconds| seconds / 60)),
            run.exit_code,
            number(run.cpus),
            number(run.nodes),
        ];
        assert_eq!(ours, raw);
    }
}

#[test]
fn ricc_2010_05() {
    let Some(file) = shared("data/ricc-2010-05/sacct-2010-05.txt.gz") else {
        return;
    };

    let store = Store::new();
    let summary = store.import(File::open(&file).unwrap(), "ricc", "Asia/Tokyo");
    assert_eq!(summary.rows, 47_698);
    assert_eq!(summary.runs_inserted, 47_698);
    assert_eq!(summary.rejected, 0);
    assert_eq!(summary.duplicates, 0);
    // Two months with jobs, and one before the first record.
    for (month, from, to) in [
        ("2010-05", "2010-05-01", "2010-06-01"),
        ("2010-06", "2010-06-01", "2010-07-01"),
        ("2010-04", "2010-04-01", "2010-05-01"),
    ] {
        let period =
            Period::month(month, &time_zone("Asia/Tokyo").unwrap(), Timestamp::now()).unwrap();
        let report = store.usage(&period, &[GroupBy::User], "2026-11-01T00:00:00Z");
        let expected = counted_by_sql(&file, 9, from, to, "2026-11-01");
        assert_eq!(expected.is_empty(), month == "2010-04");
        if !expected.is_empty() {
            assert_same(&report, &expected);
        }
    }

    // The same file, uncompressed and renamed, adds nothing.
    let again = store.import(
        GzDecoder::new(File::open(&file).unwrap()),
        "unpacked",
        "Asia/Tokyo",
    );
    assert_eq!(again.runs_inserted, 0);
    assert_eq!(again.runs_updated, 0);
    assert_eq!(again.unchanged, 47_698);

    assert_lossless(&store, &file);
}

#[test]
fn uio_2025_05_finished() {
    let Some(file) = shared("data/uio-2025-05/sacct-20250503.txt") else {
        return;
    };
    let store = Store::new();
    let summary = store.import(File::open(&file).unwrap(), "uio", "Europe/Oslo");
    assert_eq!(summary.rows, 876);
    assert_eq!(summary.runs_inserted, 294);
    assert_eq!(summary.steps_skipped, 582);
    assert_eq!(summary.rejected, 0);

    let oslo = time_zone("Europe/Oslo").unwrap();
    // The month, the day of the file, and the day before.
    for (from, to) in [
        ("2025-05-01", "2025-06-01"),
        ("2025-05-03", "2025-05-04"),
        ("2025-05-02", "2025-05-03"),
    ] {
        let period = Period::span(from, to, &oslo, Timestamp::now()).unwrap();
        let report = store.usage(&period, &[GroupBy::User], "2026-11-01T00:00:00Z");
        let expected = counted_by_sql(&file, 2, from, to, "2026-11-01");
        assert!(expected.len() >= 2, "{from}");
        assert_same(&report, &expected);
    }

    assert_lossless(&store, &file);
}

#[test]
fn uio_2025_05_running_and_pending() {
    let Some(file) = shared("data/uio-2025-05/sacct-active-20250503T090210.txt") else {
        return;
    };
    let store = Store::new();

    let summary = store.import(File::open(&file).unwrap(), "uio", "Europe/Oslo");
    assert_eq!(summary.rows, 1135);
    assert_eq!(summary.runs_inserted, 361 + 41);
    assert_eq!(summary.rejected, 0);
    assert_eq!(summary.steps_skipped, 1135 - 361 - 41);

    let period = Period::month(
        "2025-05",
        &time_zone("Europe/Oslo").unwrap(),
        Timestamp::now(),
    )
    .unwrap();

    let report = store.usage(&period, &[GroupBy::User], "2025-05-03T07:02:10Z");
    assert_same(
        &report,
        &counted_by_sql(&file, 2, "2025-05-01", "2025-06-01", "2025-05-03 09:02:10"),
    );

    assert_eq!(report.totals.jobs_running, 361);
    assert_lossless(&store, &file);
    // GPUs by model: typed GPUs, each counted once, and GPUs without a type.
    let by_model = store.usage(&period, &[GroupBy::GpuModel], "2025-05-03T07:02:10Z");
    let sum: u64 = by_model
        .rows
        .iter()
        .map(|row| row.figures.gpu_seconds.unwrap())
        .sum();
    assert_eq!(sum, report.totals.gpu_seconds.unwrap());
    assert!(
        by_model
            .rows
            .iter()
            .any(|row| row.group.0[0].1.as_deref() == Some("a100"))
    );
}

/// Output of a real Slurm 22.05. CPUTimeRAW is Slurm's own product of CPUs and seconds.
#[test]
fn slurm_lab_samples() {
    for (sample, runs) in [
        ("sacct-accounting", 16),
        ("sacct-X-ALL", 16),
        ("sacct-running", 11),
    ] {
        let Some(file) = shared(&format!("slurm-lab/samples/dbd/{sample}.psv")) else {
            return;
        };

        let text = fs::read_to_string(&file).unwrap();
        let store = Store::new();
        let summary = store.import(Cursor::new(text.clone()), sample, "UTC");
        assert_eq!(summary.runs, runs, "{sample}: {summary:?}");
        assert_eq!(summary.rejected, 0, "{sample}: {summary:?}");

        let mut rows = text.lines().map(|row| row.split('|').collect::<Vec<_>>());
        let header = rows.next().unwrap();
        let column = |name: &str| header.iter().position(|column| *column == name);
        // Not every sample has the column.
        let Some(cpu_time) = column("CPUTimeRAW") else {
            continue;
        };
        for row in rows.filter(|row| !row[column("JobID").unwrap()].contains('.')) {
            let filter = JobFilter {
                job_id: Some(row[column("JobID").unwrap()].to_owned()),
                ..JobFilter::default()
            };
            let [run] = &store.records().jobs(&filter).unwrap()[..] else {
                panic!("{filter:?}")
            };

            let held = run.cpus.unwrap_or(0) * run.elapsed.unwrap_or(0);
            assert_eq!(held.to_string(), row[cpu_time], "{}", run.job_id);
            assert_eq!(
                run.start.zip(run.end).map(|(start, end)| end.since(start)),
                run.start.and(run.elapsed)
            );
        }
    }
}

/// A million rows: RICC's month 21 times, with distinct ids. DESIGN.md sets the limits.
#[test]
#[ignore = "a measurement: cargo test --release -- --ignored --nocapture a_million_runs"]
fn a_million_runs() {
    let Some(file) = shared("data/ricc-2010-05/sacct-2010-05.txt.gz") else {
        return;
    };

    let mut month = String::new();
    GzDecoder::new(File::open(file).unwrap())
        .read_to_string(&mut month)
        .unwrap();
    let (header, rows) = month.split_once('\n').unwrap();
    // 21 copies with ids that begin with another number.
    let mut text = GzEncoder::new(Vec::new(), Compression::fast());
    writeln!(text, "{header}").unwrap();
    for row in (10..31).flat_map(|copy| rows.lines().map(move |row| format!("{copy}{row}\n"))) {
        text.write_all(row.as_bytes()).unwrap();
    }

    let text = text.finish().unwrap();

    let store = Store::new();
    let import = |what: &str| {
        let begin = Instant::now();
        let summary = store.import(Cursor::new(&text), "million", "Asia/Tokyo");
        let took = begin.elapsed();
        eprintln!(
            "{what}: {took:?} for {} inserted, {} unchanged",
            summary.runs_inserted, summary.unchanged
        );
        assert_eq!(summary.runs, 1_001_658);
        assert_eq!(summary.rejected, 0);
        took
    };

    let first = import("import");
    import("the same again");
    // One row more: the time of a poll in a store that is already large.
    let begin = Instant::now();
    let summary = store.import(
        Cursor::new(format!("{header}\n{}", rows.lines().next().unwrap())),
        "one",
        "Asia/Tokyo",
    );
    eprintln!("one more run: {:?}", begin.elapsed());
    assert_eq!(summary.runs_inserted, 1);

    let period = Period::month(
        "2010-05",
        &time_zone("Asia/Tokyo").unwrap(),
        Timestamp::now(),
    )
    .unwrap();
    let mut slowest = Duration::ZERO;

    for by in [
        &[GroupBy::User][..],
        &[
            GroupBy::User,
            GroupBy::Account,
            GroupBy::Partition,
            GroupBy::State,
        ],
    ] {
        for _ in 0..3 {
            let begin = Instant::now();
            let report = store.usage(&period, by, "2026-11-01T00:00:00Z");
            slowest = slowest.max(begin.elapsed());
            eprintln!(
                "report by {by:?}: {:?} for {} rows",
                begin.elapsed(),
                report.rows.len()
            );
        }
    }
    assert!(first <= Duration::from_secs(5), "import took {first:?}");
    assert!(
        slowest <= Duration::from_millis(300),
        "a report took {slowest:?}"
    );
}
