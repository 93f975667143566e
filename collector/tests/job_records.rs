//! Job records from real clusters, from sacct's text to the month's report.
//!
//! What our own code makes of them is compared with what DuckDB's SQL makes of the raw text: its own CSV reader, its
//! own splitting of AllocTRES, and the offsets of local time written out by hand.
//!
//! The records lie in the folder that `TAKT_SHARED` names, or in `../shared` beside the workspace; a test whose
//! records are not there says so and passes.

use flate2::read::GzDecoder;
use jiff::Timestamp;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;
use takt_collector::accounting::{GroupBy, Period, Usage, UsageReport};
use takt_collector::jobs::sacct::{Cluster, Options, Reader};
use takt_collector::jobs::time_zone;
use takt_collector::store::{DataDir, Database, ImportSummary, Origin, Records, Settings};

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
        let database = Database::open(&dir, &Settings::default()).unwrap();
        Self { database, _dir: dir, _root: root }
    }

    fn records(&self) -> Records<'_> {
        Records::of(&self.database)
    }

    fn import(&self, text: impl Read, name: &str, zone: &str) -> ImportSummary {
        let options =
            Options { cluster: Cluster::Named("real".into()), zone: time_zone(zone).unwrap(), columns: None };
        let reader = Reader::open(text, name, options).unwrap();
        let origin = Origin { source: "sacct", name, timezone: Some(zone), told_until: None };
        self.records().import(&origin, reader).unwrap()
    }

    fn usage(&self, period: &Period, by: &[GroupBy], now: &str) -> UsageReport {
        let now: Timestamp = now.parse().unwrap();
        let mut usage = Usage::new(period, by, now.as_second());
        self.records().held_runs("real", period.from(), period.to(), |run| usage.add(run)).unwrap();
        usage.report("real")
    }
}

fn shared(path: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("TAKT_SHARED").map_or_else(
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

/// A million rows: RICC's month 21 times, with ids of their own.
#[test]
#[ignore = "a measurement: cargo test --release -- --ignored --nocapture a_million_runs"]
fn a_million_runs() {
    let Some(file) = shared("data/ricc-2010-05/sacct-2010-05.txt.gz") else { return };
    let mut month = String::new();
    GzDecoder::new(File::open(file).unwrap()).read_to_string(&mut month).unwrap();
    let (header, rows) = month.split_once('\n').unwrap();
    let mut text = format!("{header}\n");
    for copy in 0..21 {
        for row in rows.lines() {
            writeln!(text, "{copy}{row}").unwrap();
        }
    }
    let store = Store::new();
    let begin = Instant::now();
    let options = Options { cluster: Cluster::Named("real".into()), zone: time_zone("Asia/Tokyo").unwrap(), columns: None };
    let runs = Reader::open(Cursor::new(text.as_bytes()), "x", options).unwrap().count();
    eprintln!("{runs} rows, {} MB: read alone {:?}", text.len() >> 20, begin.elapsed());
    for pass in ["first", "again"] {
        let begin = Instant::now();
        let summary = store.import(Cursor::new(text.as_bytes()), "million", "Asia/Tokyo");
        eprintln!("{pass} {:?}: {} inserted, {} unchanged, {} rejected", begin.elapsed(), summary.runs_inserted, summary.unchanged, summary.rejected);
    }
    let zone = time_zone("Asia/Tokyo").unwrap();
    let period = Period::month("2010-05", &zone, Timestamp::now()).unwrap();
    for by in [&[GroupBy::User][..], &[GroupBy::User, GroupBy::Account, GroupBy::Partition, GroupBy::State], &[GroupBy::Node]] {
        for _ in 0..3 {
            let begin = Instant::now();
            let report = store.usage(&period, by, "2026-11-01T00:00:00Z");
            eprintln!("{by:?} {:?} {} rows {}", begin.elapsed(), report.rows.len(), report.totals.cpu_seconds);
        }
    }
}
