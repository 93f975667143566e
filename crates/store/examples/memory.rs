//! Memory per series of a store with a full head: `memory SERIES...`
//!
//! For each number of series, a process of its own writes 1,080 rows one second apart (the head's
//! window is 15 minutes), seals them, and prints its private resident memory. The last line is the
//! memory of each additional series. Pages of targets, which a server keeps too, are not part of it.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement, run by hand"
)]

use prometheus_client::registry::Registry;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};
use takt_model::{Labels, METRIC_NAME, Timestamp};
use takt_store::{Clock, DataDir, Group, Store, StoreConfig};

/// Rows of the head's window, and of the chunks that exceed it.
const ROWS: i64 = 1080;

/// Series of a node.
const WIDTH: u32 = 600;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [one, series] = &arguments[..]
        && one == "one"
    {
        return measure(series.parse().unwrap());
    }
    let mut measured: Vec<[f64; 3]> = Vec::new();
    for series in &arguments {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let output = command.args(["one", series]).output().unwrap();
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
        let (first, last) = (measured.first().unwrap(), measured.last().unwrap());
        (last[of] - first[of]) * 1024.0 / (last[0] - first[0])
    };
    println!(
        "one more series: {:.0} bytes with a full head, {:.0} after sealing",
        slope(1),
        slope(2)
    );
}

fn measure(series: u32) {
    let folder = tempfile::tempdir().unwrap();
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
    let nodes: Vec<Group> = (0..series.div_ceil(WIDTH)).map(|_| store.group()).collect();
    for (node, group) in (0..).zip(&nodes) {
        for number in 0..WIDTH {
            group.column(&labels(node, number)).unwrap();
        }
    }
    let mut values = vec![0.0; series.next_multiple_of(WIDTH) as usize];
    for row in 0..ROWS {
        let at = now.fetch_add(1000, Ordering::SeqCst);
        for (node, group) in nodes.iter().enumerate() {
            let row_of_node = &mut values[node * WIDTH as usize..][..WIDTH as usize];
            for (number, value) in row_of_node.iter_mut().enumerate() {
                change(value, number, row + 31 * node as i64);
            }
            let at = Timestamp(at + node as i64 % 1000);
            group
                .commit(group.ticket(at).unwrap(), row_of_node, &[])
                .unwrap();
        }
        store.flush();
    }
    // DuckDB's allocator returns memory after some seconds.
    std::thread::sleep(Duration::from_secs(12));
    let full = private_kib();
    store.seal().unwrap();
    std::thread::sleep(Duration::from_secs(12));
    println!("{full} {}", private_kib());
}

/// The next value of a series: half are constant, the others as on the page of a node.
fn change(value: &mut f64, number: usize, row: i64) {
    // A cheap generator, different for each series and row.
    let seed = (row as u64 ^ (number as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let random = (seed ^ seed >> 29) >> 40;
    match number % 20 {
        0..10 => *value = number as f64,
        10..12 => *value += 100.0,
        12..15 => *value += (random % 5000) as f64,
        15..17 => *value = ((*value * 100.0).round() + (random % 3) as f64) / 100.0,
        17 | 18 => *value = (random % 64) as f64 * 4096.0,
        _ => *value = random as f64 / 3.0,
    }
}

fn labels(node: u32, number: u32) -> Labels {
    let metric = format!("metric_{:03}_total", number / 4);
    let device = format!("device{}", number % 4);
    let node = format!("node{node:04}");
    let instance = format!("{node}:9855");
    let pairs = [
        (METRIC_NAME, &*metric),
        ("cluster", "bench"),
        ("device", &*device),
        ("instance", &*instance),
        ("job", "takt"),
        ("node", &*node),
    ];
    pairs.into_iter().collect()
}

/// Private resident memory of this process, in KiB.
fn private_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
