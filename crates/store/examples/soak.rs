//! A week of ingest with an accelerated clock: memory and disk usage must be constant once the
//! retention is reached.
//!
//! `soak [DAYS [SERIES]]` writes SERIES series every 15 s of DAYS days (7 and 2000). The retention
//! is two days, and three for down-sampled rows. The clock runs as fast as the store accepts
//! samples. Sealing, merging and removal happen as on a server. The program fails if later days
//! need more memory or disk than earlier ones.

#![expect(clippy::print_stdout, reason = "a program that prints its result")]

use prometheus_client::registry::Registry;
use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use takt_model::{Labels, METRIC_NAME, Timestamp};
use takt_store::{Clock, DataDir, Store, StoreConfig};

type Failure = Box<dyn Error + Send + Sync>;

const BEGIN: i64 = 1_795_219_200_000;
const HOUR: i64 = 3_600_000;
const STEP: i64 = 15_000;

/// Allowed variation: the allocator keeps pages, and a merged day exists twice for a while.
const SWING: f64 = 1.3;

fn main() -> Result<(), Failure> {
    let mut arguments = env::args().skip(1);
    let mut number = |default: i64| arguments.next().map_or(Ok(default), |text| text.parse());
    let days = number(7)?;
    let series = number(2000)?;
    let directory = env::temp_dir().join(format!("takt-soak-{}", process::id()));
    let result = soak(&directory, days, usize::try_from(series)?);
    fs::remove_dir_all(&directory)?;
    result
}

fn soak(directory: &Path, days: i64, series: usize) -> Result<(), Failure> {
    let config = StoreConfig {
        min_free_bytes: 0,
        commit_interval_ms: 100,
        retention_days: 2,
        retention_5m_days: 3,
        retention_1h_days: 3,
        duckdb_memory_mib: 256,
        seal_memory_mib: 32,
        ..StoreConfig::default()
    };
    let now = Arc::new(AtomicI64::new(BEGIN));
    let shown = Arc::clone(&now);
    let clock = Clock::new(move || Timestamp(shown.load(Ordering::SeqCst)));
    let store = Store::open_at(
        DataDir::claim(directory)?,
        &config,
        &mut Registry::default(),
        clock,
    )?;
    let group = store.group();
    let columns: Vec<usize> = (0..series)
        .map(|n| {
            let metric = format!("metric_{}", n % 50);
            let node = format!("node{:03}", n / 50);
            let labels: Labels = [(METRIC_NAME, metric.as_str()), ("node", node.as_str())]
                .into_iter()
                .collect();
            group
                .column(&labels)
                .map(takt_store::Column::index)
                .ok_or("a series has no column")
        })
        .collect::<Result<_, _>>()?;
    let mut row = vec![0.0; group.width()];
    let mut peaks = Vec::new();
    println!("day  samples  resident MiB  disk MiB");
    for day in 0..days {
        let mut resident = 0;
        let mut disk = 0;
        for hour in 0..24 {
            for at in (0..HOUR)
                .step_by(STEP as usize)
                .map(|at| BEGIN + (24 * day + hour) * HOUR + at)
            {
                now.store(at, Ordering::SeqCst);
                for (n, &column) in columns.iter().enumerate() {
                    row[column] = value(n, at);
                }
                group.commit(group.ticket(Timestamp(at))?, &row, &[])?;
            }
            store.seal()?;
            resident = resident.max(resident_bytes()?);
            disk = disk.max(bytes(directory)?);
        }
        let samples = (day + 1) * 24 * (HOUR / STEP) * series as i64;
        println!(
            "{:3}  {samples:9}  {:8}  {:8}",
            day + 1,
            resident >> 20,
            disk >> 20
        );
        peaks.push((resident, disk));
    }
    // From the fifth day on, as much is removed as is added: two days of samples, three of rows.
    let (Some(settled), Some(last)) = (peaks.get(4), peaks.last()) else {
        return Ok(());
    };
    for (what, before, after) in [("memory", settled.0, last.0), ("disk", settled.1, last.1)] {
        if after as f64 > before as f64 * SWING {
            return Err(format!(
                "{what} is not flat: {before} bytes on the fifth day, {after} on the last"
            )
            .into());
        }
    }
    let damaged = store.database().verify_blocks()?;
    if !damaged.is_empty() {
        return Err(damaged.join("; ").into());
    }
    println!("flat");
    Ok(())
}

/// One third counters, one third changing decimals, one third constants.
fn value(n: usize, at: i64) -> f64 {
    let seconds = ((at - BEGIN) / 1000) as f64;
    match n % 3 {
        0 => (seconds * (1.0 + n as f64 / 7.0)).floor(),
        1 => ((seconds / (60.0 + n as f64)).sin() * 5000.0).round() / 100.0,
        _ => n as f64,
    }
}

fn resident_bytes() -> Result<u64, Failure> {
    let text = fs::read_to_string("/proc/self/statm")?;
    Ok(text
        .split(' ')
        .nth(1)
        .ok_or("no second field in /proc/self/statm")?
        .parse::<u64>()?
        * 4096)
}

/// Returns the size of all files below a folder, in bytes. Files deleted meanwhile count as zero.
fn bytes(path: &Path) -> Result<u64, Failure> {
    let mut sum = 0;
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        sum += if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            bytes(&entry.path())?
        } else {
            entry.metadata().map_or(0, |file| file.len())
        };
    }
    Ok(sum)
}
