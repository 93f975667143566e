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

mod nodes;

use nodes::Nodes;
use prometheus_client::registry::Registry;
use std::env;
use std::mem;
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime};
use takt_model::{Matcher, Timestamp};
use takt_store::{Clock, DataDir, Store, StoreConfig};

const STEP_MS: i64 = 15_000;

/// Series of a node.
const WIDTH: usize = 500;

fn fill(store: &Store, now: &AtomicI64, series: usize, rows: usize) {
    let page = nodes::read(Path::new(nodes::PAGE)).unwrap();
    let mut nodes = Nodes::new(store, &page, series.div_ceil(WIDTH), WIDTH).unwrap();
    for row in 0..rows {
        let at = Timestamp(now.fetch_add(STEP_MS, Ordering::SeqCst));
        nodes
            .write(15 * row, |node| at.plus_ms(node as i64))
            .unwrap();
        store.flush();
    }
    mem::forget(nodes);
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let directory = Path::new(&arguments[1]);
    let mut number = arguments
        .iter()
        .skip(3)
        .map(|text| text.parse::<usize>().unwrap());
    let series = number.next().unwrap_or(0);
    let rows = number.next().unwrap_or(0);
    let real = Timestamp::from(SystemTime::now());
    let now = Arc::new(AtomicI64::new(real.0 - rows as i64 * STEP_MS));
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
        let matchers = [Matcher::metric("node_cpu_seconds_total")];
        let found = store
            .range(
                &matchers,
                real.minus(std::time::Duration::from_secs(3600)),
                real,
            )
            .unwrap();
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
        process::abort();
    }
}
