//! Memory per series of a store with a full head: `memory SERIES...`
//!
//! For each number of series, a process of its own writes 1,080 rows one second apart (the head's
//! window is 15 minutes), seals them, and prints its private resident memory. The last line is the
//! memory of each additional series. Pages of targets, which a server keeps too, are not part of it.
//! The nodes replay a captured page.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement, run by hand"
)]

mod nodes;

use nodes::Nodes;
use prometheus_client::registry::Registry;
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};
use takt_model::Timestamp;
use takt_store::{Clock, DataDir, Store, StoreConfig};
use tempfile::tempdir;

/// Rows of the head's window, and of the chunks that exceed it.
const ROWS: i64 = 1080;

/// Series of a node.
const WIDTH: usize = 500;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [one, series] = &arguments[..]
        && one == "one"
    {
        return measure(series.parse().unwrap());
    }
    let mut measured: Vec<[f64; 3]> = Vec::new();
    for series in &arguments {
        let output = Command::new(env::current_exe().unwrap())
            .args(["one", series])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let kib: Vec<f64> = text
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        println!(
            "{series} series: {:.0} MiB with a full head, {:.0} MiB after sealing",
            kib[0] / 1024.0,
            kib[1] / 1024.0
        );
        measured.push([series.parse().unwrap(), kib[0], kib[1]]);
    }
    let slope = |of: usize| {
        let first = measured.first().unwrap();
        let last = measured.last().unwrap();
        (last[of] - first[of]) * 1024.0 / (last[0] - first[0])
    };
    println!(
        "one more series: {:.0} bytes with a full head, {:.0} after sealing",
        slope(1),
        slope(2)
    );
}

fn measure(series: usize) {
    let folder = tempdir().unwrap();
    let now = Timestamp::from(SystemTime::now());
    let now = Arc::new(AtomicI64::new(now.0 - ROWS * 1000));
    let shown = Arc::clone(&now);
    let clock = Clock::new(move || Timestamp(shown.load(Ordering::SeqCst)));
    let config = StoreConfig {
        seal_minutes: 1440,
        min_free_bytes: 0,
        ..StoreConfig::default()
    };
    let directory = DataDir::claim(folder.path()).unwrap();
    let store = Store::open_at(directory, &config, &mut Registry::default(), clock).unwrap();
    let page = nodes::read(Path::new(nodes::PAGE)).unwrap();
    let mut nodes = Nodes::new(&store, &page, series.div_ceil(WIDTH), WIDTH).unwrap();
    for second in 0..ROWS {
        let at = Timestamp(now.fetch_add(1000, Ordering::SeqCst));
        let second = usize::try_from(second).unwrap();
        nodes
            .write(second, |node| at.plus_ms(node as i64 % 1000))
            .unwrap();
        store.flush();
    }
    // DuckDB's allocator returns memory after some seconds.
    thread::sleep(Duration::from_secs(12));
    let full = private_kib();
    store.seal().unwrap();
    thread::sleep(Duration::from_secs(12));
    println!("{full} {}", private_kib());
}

/// Private resident memory of this process, in KiB.
fn private_kib() -> u64 {
    fs::read_to_string("/proc/self/status")
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}
