//! Time to open a store with many unsealed samples.
//!
//! ```text
//! start DIRECTORY fill SERIES ROWS    writes ROWS rows, 15 s apart, and ends in order
//! start DIRECTORY crash SERIES ROWS   the same, and ends like kill -9
//! start DIRECTORY open                prints how long opening takes, and the first query
//! ```

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement, run by hand"
)]

use prometheus_client::registry::Registry;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime};
use takt_model::{Labels, METRIC_NAME, Matcher, Timestamp};
use takt_store::{Clock, DataDir, Group, Store, StoreConfig};

const STEP_MS: i64 = 15_000;

/// Series of a node.
const WIDTH: u32 = 600;

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

fn fill(store: &Store, now: &AtomicI64, series: u32, rows: i64) {
    let nodes: Vec<Group> = (0..series.div_ceil(WIDTH)).map(|_| store.group()).collect();
    for (node, group) in (0..).zip(&nodes) {
        for number in 0..WIDTH {
            group.column(&labels(node, number)).unwrap();
        }
    }
    let mut row = vec![0.0; WIDTH as usize];
    for _ in 0..rows {
        let at = now.fetch_add(STEP_MS, Ordering::SeqCst);
        for (node, group) in nodes.iter().enumerate() {
            for (number, value) in row.iter_mut().enumerate() {
                // A third of the series does not change.
                let step = (number % 3 * (at as usize / 1000 + node * number)) % 1_000_000;
                *value = step as f64 / 10.0;
            }
            let at = Timestamp(at + node as i64);
            group.commit(group.ticket(at).unwrap(), &row, &[]).unwrap();
        }
        store.flush();
    }
    std::mem::forget(nodes);
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let directory = Path::new(&arguments[1]);
    let mut number = arguments
        .iter()
        .skip(3)
        .map(|text| text.parse::<u32>().unwrap());
    let series = number.next().unwrap_or(0);
    let rows = i64::from(number.next().unwrap_or(0));
    let real = Timestamp::from(SystemTime::now());
    let now = Arc::new(AtomicI64::new(real.0 - rows * STEP_MS));
    let shown = Arc::clone(&now);
    let clock = Clock::new(move || Timestamp(shown.load(Ordering::SeqCst)));
    let config = StoreConfig {
        seal_minutes: 1440,
        min_free_bytes: 0,
        ..StoreConfig::default()
    };
    let began = Instant::now();
    let directory = DataDir::claim(directory).unwrap();
    let store = Store::open_at(directory, &config, &mut Registry::default(), clock).unwrap();
    println!("opened in {:.2} s", began.elapsed().as_secs_f64());
    if series == 0 {
        let stat = store.database().stat().unwrap();
        println!(
            "{} series, {} unsealed samples",
            stat.series, stat.hot_samples
        );
        let began = Instant::now();
        let matchers = [Matcher::metric("metric_001_total")];
        let found = store.range(
            &matchers,
            real.minus(std::time::Duration::from_secs(3600)),
            real,
        );
        let found = found.unwrap();
        let samples: usize = found.iter().map(|series| series.samples.len()).sum();
        println!(
            "an hour of {} series, {samples} samples: {:.1} ms",
            found.len(),
            began.elapsed().as_secs_f64() * 1e3
        );
        return;
    }
    fill(&store, &now, series, rows);
    println!("filled in {:.2} s", began.elapsed().as_secs_f64());
    if arguments[2] == "crash" {
        std::process::abort();
    }
}
