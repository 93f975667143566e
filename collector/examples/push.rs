//! Cost of pushed samples: CPU time per sample from the compressed body to the durable commit.
//!
//! `push NODES SECONDS INTERVAL_MS PAGE_0 PAGE_1 [VERSION]` pushes the series of the pages for NODES
//! nodes in requests of 2,000 samples, as Prometheus does. Compare with `ingest`, which scrapes the
//! same pages. The time for making the requests is not counted.

#![expect(clippy::print_stdout, reason = "a program that prints its result")]

use prometheus_client::registry::Registry;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use takt_collector::push::{PushConfig, PushMetrics, SenderConfig, Senders};
use takt_model::exposition::{Format, Line, Page};
use takt_model::{Labels, Timestamp};
use takt_push::MemoryGrant;
use takt_push::remote_write::{Protocol, RequestWriter, decompress, read_request};
use takt_store::{DataDir, Store, StoreConfig};

type Failure = Box<dyn Error + Send + Sync>;

/// Samples of a request, as in Prometheus.
const SAMPLES: usize = 2000;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [nodes, seconds, interval_ms, page_0, page_1, rest @ ..] => {
            let protocol = if rest == ["2.0"] {
                Protocol::V2
            } else {
                Protocol::V1
            };
            let pages = [std::fs::read(page_0)?, std::fs::read(page_1)?];
            measure(
                nodes.parse()?,
                seconds.parse()?,
                interval_ms.parse()?,
                &pages,
                protocol,
            )
        }
        _ => Err("usage: push NODES SECONDS INTERVAL_MS PAGE_0 PAGE_1 [1.0|2.0]".into()),
    }
}

/// Series of a page, with their values in both pages.
fn series(pages: &[Vec<u8>; 2], node: usize) -> Result<Vec<(Labels, [f64; 2])>, Failure> {
    let mut found: Vec<(Labels, [f64; 2])> = Vec::new();
    for (number, page) in pages.iter().enumerate() {
        let mut lines = Page::new(Format::Text, page);
        let mut at = 0;
        while let Some(line) = lines.next_line(b"")? {
            let Line::Sample(sample) = line else { continue };
            if number == 0 {
                let mut labels = sample.labels()?;
                labels.set("instance", &format!("node{node:04}:9100"));
                labels.set("node", &format!("node{node:04}"));
                labels.set("job", "node");
                found.push((labels, [sample.value; 2]));
            } else if let Some((_, values)) = found.get_mut(at) {
                values[1] = sample.value;
            }
            at += 1;
        }
    }
    Ok(found)
}

fn measure(
    nodes: usize,
    seconds: u64,
    interval_ms: u64,
    pages: &[Vec<u8>; 2],
    protocol: Protocol,
) -> Result<(), Failure> {
    let directory = std::env::temp_dir().join(format!("takt-push-{}", std::process::id()));
    let config = StoreConfig {
        min_free_bytes: 0,
        duckdb_memory_mib: 256,
        ..StoreConfig::default()
    };
    let directory_claimed = DataDir::claim(&directory)?;
    let store = Arc::new(Store::open(
        directory_claimed,
        &config,
        &mut Registry::default(),
    )?);
    let sender = SenderConfig {
        name: "bench".to_owned(),
        token_file: "none".into(),
        labels: None,
        max_series: 10_000_000,
        replica_label: None,
        promote_resource_attributes: Vec::new(),
    };
    let config = PushConfig {
        senders: vec![sender],
        ..PushConfig::default()
    };
    let senders = Senders::new(&config, "bench", &store, PushMetrics::default());
    let sender = senders.named("bench").ok_or("no sender")?;
    let all: Result<Vec<_>, Failure> = (0..nodes).map(|node| series(pages, node)).collect();
    let all: Vec<(Labels, [f64; 2])> = all?.concat();
    let interval = Duration::from_millis(interval_ms);
    let rounds = (seconds * 1000).div_ceil(interval_ms) + 2;
    let mut cpu = 0.0;
    let mut stored = 0;
    for round in 0..rounds {
        let began = Instant::now();
        let at: Timestamp = SystemTime::now().into();
        let bodies = all.chunks(SAMPLES).map(|chunk| {
            let mut writer = RequestWriter::new(protocol);
            for (labels, values) in chunk {
                let value = values[(round % 2) as usize];
                writer.add(labels, std::iter::once((at, value)));
            }
            writer.body()
        });
        let bodies: Vec<Vec<u8>> = bodies.collect();
        let before = cpu_seconds();
        let mut new = 0;
        for body in bodies {
            let message = decompress(&body, 64 << 20)?;
            let request = read_request(protocol, message, &mut MemoryGrant::of_bytes(usize::MAX))?;
            new += sender.store(&request)?.stored;
        }
        // The first rounds create the series.
        if round >= 2 {
            cpu += cpu_seconds() - before;
            stored += new;
        }
        std::thread::sleep(interval.saturating_sub(began.elapsed()));
    }
    println!(
        "{nodes} nodes, {} series, {stored} samples: {:.3} µs CPU a sample",
        all.len(),
        cpu * 1e6 / stored as f64,
    );
    let began = cpu_seconds();
    let kept = store.seal()?;
    println!(
        "sealing {} samples: {:.3} µs CPU a sample",
        kept.rows,
        (cpu_seconds() - began) * 1e6 / kept.rows as f64,
    );
    drop((senders, store));
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

/// Returns the user and system time of this process, in seconds.
fn cpu_seconds() -> f64 {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    usage.tv_sec as f64 + usage.tv_nsec as f64 / 1e9
}
