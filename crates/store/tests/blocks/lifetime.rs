//! Retention, disk limits and damaged blocks.

use super::bench_store::{BEGIN, Bench, DAY, HOUR, METRICS, SECOND, config, value};
use std::fs;
use std::path::{Path, PathBuf};
use takt_store::StoreConfig;
use tempfile::tempdir;

fn bytes(path: &Path) -> u64 {
    fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                bytes(&entry.path())
            } else {
                entry.metadata().map_or(0, |file| file.len())
            }
        })
        .sum()
}

/// Twelve days with an accelerated clock and a retention of three days: disk usage must not grow
/// after the fifth day.
#[test]
fn the_disk_stays_bounded_over_three_times_the_retention() {
    let root = tempdir().unwrap();
    let config = StoreConfig {
        retention_days: 3,
        retention_5m_days: 3,
        retention_1h_days: 5,
        ..config()
    };
    let bench = Bench::open(root.path(), &config, BEGIN);
    let mut sizes = Vec::new();
    for day in 0..12 {
        for hour in (0..24).step_by(2) {
            let from = BEGIN + day * DAY + hour * HOUR;
            bench.scrape_all(from, from + 2 * HOUR, 60 * SECOND);
            bench.store.seal().unwrap();
        }
        let counts = ["raw", "5m", "1h"].map(|resolution| bench.blocks(resolution));
        assert!(
            counts[0] <= 3 + 14 && counts[1] <= 6 && counts[2] <= 7,
            "day {day}: {counts:?}"
        );
        sizes.push(
            bench
                .store
                .database()
                .stat()
                .unwrap()
                .blocks
                .iter()
                .map(|block| block.bytes)
                .sum::<u64>(),
        );
    }
    let early = sizes[6];
    let late = sizes[11];
    assert!(late <= early + early / 4, "{sizes:?}");
    let end = BEGIN + 12 * DAY;
    bench.expect_all(end - 3 * DAY + HOUR, end, 60 * SECOND);
    // Before that, hourly rows answer.
    let coarse = bench.samples(0, end - 5 * DAY, end - 4 * DAY);
    assert!(
        !coarse.is_empty() && coarse.len() < 24 * 13,
        "{}",
        coarse.len()
    );
    assert_eq!(bench.samples(0, BEGIN, BEGIN + 5 * DAY), []);
    // An hourly row yields a value every five minutes: on the line between both ends for a counter,
    // which is exact here; the mean for other metrics.
    let hours = end - 5 * DAY + 2 * HOUR..end - 5 * DAY + 4 * HOUR;
    let counter = bench.samples(0, hours.start, hours.end);
    assert!(counter.len() >= 24, "{counter:?}");
    assert!(
        counter
            .iter()
            .all(|&(at, found)| (found - value(0, at)).abs() <= 61.0),
        "{counter:?}"
    );
    assert!(
        bench
            .samples(3, hours.start, hours.end)
            .iter()
            .all(|&(_, found)| found == 42.0)
    );
    assert!(bench.metric("takt_store_blocks{resolution=\"raw\"}") > 0.0);
    drop(bench);
    // Disk usage matches the listed blocks, except for a few hundred bytes of metadata per block.
    let found = bytes(&root.path().join("blocks"));
    assert!(
        found >= late && found <= late + 40_000,
        "{found} bytes of files, {late} of blocks"
    );
}

fn raw_blocks(root: &Path) -> Vec<PathBuf> {
    let folder = root.join("blocks/raw");
    let mut found: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.sort();
    found
}

#[test]
fn a_damaged_block_is_set_aside_and_the_rest_answers() {
    let root = tempdir().unwrap();
    let bench = Bench::open(root.path(), &config(), BEGIN);
    bench.scrape_and_seal(BEGIN, BEGIN + 3 * HOUR, SECOND);
    let end = BEGIN + 3 * HOUR;
    drop(bench);

    // A changed byte: verify names the file. Nothing else happens yet.
    let blocks = raw_blocks(root.path());
    assert_eq!(blocks.len(), 3);
    let file = blocks[1].join("samples.parquet");
    let mut content = fs::read(&file).unwrap();
    let middle = content.len() / 2;
    content[200..middle].fill(0xa5);
    fs::write(&file, &content).unwrap();
    let bench = Bench::open(root.path(), &config(), end);
    let said = bench.store.database().verify_blocks().unwrap();
    assert_eq!(said.len(), 1);
    assert!(
        said[0].contains("samples.parquet is damaged: its bytes are not those that were written"),
        "{said:?}"
    );

    // A query that reads the damaged block sets it aside and answers from the others.
    for (metric, name) in METRICS.iter().enumerate() {
        let found = bench.samples(metric, BEGIN, end).len();
        assert!(found == 2 * 3600 || metric == 3, "{name}: {found}");
    }
    assert_eq!(bench.metric("takt_store_damaged_files "), 1.0);
    assert_eq!(bench.store.database().verify_blocks().unwrap(), [""; 0]);
    drop(bench);
    let aside: Vec<_> = raw_blocks(root.path())
        .into_iter()
        .filter(|path| path.to_string_lossy().contains(".damaged-"))
        .collect();
    assert_eq!(aside.len(), 1);

    // The next start detects a truncated file.
    let block = raw_blocks(root.path())
        .into_iter()
        .find(|path| !path.to_string_lossy().contains(".damaged-"))
        .unwrap()
        .join("samples.parquet");
    fs::OpenOptions::new()
        .write(true)
        .open(block)
        .unwrap()
        .set_len(100)
        .unwrap();
    let bench = Bench::open(root.path(), &config(), end);
    assert_eq!(bench.metric("takt_store_damaged_files "), 2.0);
    assert_eq!(bench.samples(0, BEGIN, end).len(), 3600);
    drop(bench);

    // The next start also detects a file with a damaged end: views over it would fail.
    let file = raw_blocks(root.path())
        .into_iter()
        .find(|path| !path.to_string_lossy().contains(".damaged-"))
        .unwrap()
        .join("samples.parquet");
    let mut content = fs::read(&file).unwrap();
    *content.last_mut().unwrap() ^= 1;
    fs::write(&file, content).unwrap();
    let bench = Bench::open(root.path(), &config(), end);
    assert_eq!(bench.metric("takt_store_damaged_files "), 3.0);
    assert!(bench.samples(0, BEGIN, end).is_empty());
}

/// The whole hot database is lost. The blocks restore the series, and no number is assigned twice.
#[test]
fn blocks_outlive_the_hot_database() {
    let root = tempdir().unwrap();
    let end = BEGIN + HOUR;
    {
        let bench = Bench::open(root.path(), &config(), BEGIN);
        bench.scrape_all(BEGIN, end, SECOND);
        bench.store.seal().unwrap();
    }
    fs::write(root.path().join("hot.duckdb"), vec![7; 20_000]).unwrap();
    let bench = Bench::open(root.path(), &config(), end);
    bench.expect_all(BEGIN, end, SECOND);
    bench.scrape_all(end, end + HOUR, SECOND);
    bench.store.seal().unwrap();
    bench.expect_all(BEGIN, end + HOUR, SECOND);
    assert_eq!(bench.store.database().stat().unwrap().series, 4);
}
