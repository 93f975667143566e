//! Millions of series in one store, for `bench/scale.sh`: CPU, memory, disk, start, queries, rules.
//!
//! ```text
//! scale CAPTURE RULES DIRECTORY fill NODES SERIES ROWS   NODES × SERIES series, ROWS rows each, 15 s apart
//! scale CAPTURE RULES DIRECTORY open                     start, queries, sealing
//! ```
//!
//! Each node replays the captured page from a second of its own; to reach SERIES series a node, the page is
//! repeated under other metric names. The clock runs as fast as the store accepts rows: what is thinned
//! is the time between two rows, and the figures are per sample. RULES is a folder of rule files.

#![expect(
    clippy::print_stdout,
    reason = "a measurement, run by hand, that prints its result"
)]

mod capture;

use capture::Captured;
use prometheus_client::registry::Registry;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use takt_model::{Labels, METRIC_NAME, Timestamp};
use takt_promql::{Limits, Options, Value};
use takt_store::{Clock, Column, DataDir, Group, Store, StoreConfig};

type Failure = Box<dyn Error + Send + Sync>;

const STEP_MS: i64 = 15_000;

/// Nodes after whose rows the queue is emptied.
const FLUSHED_TOGETHER: usize = 250;

/// Questions of pages and dashboards.
const QUERIES: [(&str, &str); 8] = [
    (
        "one GPU, now",
        "takt_gpu_temperature_celsius{node=\"n0007\",sensor=\"gpu\"}",
    ),
    ("a node, all its series", "{node=\"n0007\"}"),
    ("utilization of all GPUs, now", "takt_gpu_utilization_ratio"),
    ("mean of all GPUs", "avg(takt_gpu_utilization_ratio)"),
    (
        "CPU of a node over 5 minutes",
        "sum by (mode) (rate(node_cpu_seconds_total{node=\"n0007\"}[5m]))",
    ),
    (
        "CPU of all nodes over 5 minutes",
        "sum by (node) (rate(node_cpu_seconds_total{mode!=\"idle\"}[5m]))",
    ),
    (
        "the ten hottest GPUs",
        "topk(10, takt_gpu_temperature_celsius)",
    ),
    (
        "number of all series by node",
        "count by (node) ({__name__=~\".+\"})",
    ),
];

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [capture, rules, directory, what, numbers @ ..] = &arguments[..] else {
        return Err(
            "usage: scale CAPTURE RULES DIRECTORY fill NODES SERIES ROWS, or … open".into(),
        );
    };
    let numbers = numbers.iter().map(|text| text.parse());
    let numbers: Vec<usize> = numbers.collect::<Result<_, _>>()?;
    let (directory, rules) = (Path::new(directory), Path::new(rules));
    match (what.as_str(), &numbers[..]) {
        ("fill", &[nodes, series, rows]) => {
            let captured = capture::read(Path::new(capture))?;
            fill(directory, rules, &captured, (nodes, series, rows))
        }
        ("open", []) => open(directory),
        _ => Err("expected fill NODES SERIES ROWS, or open".into()),
    }
}

fn config() -> StoreConfig {
    StoreConfig {
        min_free_bytes: 0,
        // As docs/scaling.md advises for this size.
        head_minutes: 6,
        commit_interval_ms: 200,
        ..StoreConfig::default()
    }
}

/// CPU time of this process.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|text| text.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

fn resident_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|text| text.parse::<u64>().ok());
    pages.unwrap_or_default() * 4096 >> 20
}

fn bytes(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => bytes(&entry.path()),
        _ => entry.metadata().map_or(0, |file| file.len()),
    };
    entries.map(size).sum()
}

/// A node: its group, and its columns in the order of the series.
struct Node {
    group: Group,
    columns: Vec<Column>,
    phase: usize,
}

impl Node {
    fn new(
        number: usize,
        series: usize,
        captured: &[Captured],
        store: &Store,
    ) -> Result<Self, Failure> {
        let node = format!("n{number:04}");
        let instance = format!("{node}:9855");
        let group = store.group();
        let mut columns = Vec::with_capacity(series);
        for at in 0..series {
            let Captured { name, labels, .. } = &captured[at % captured.len()];
            let name = match at / captured.len() {
                0 => name.clone(),
                copy => format!("{name}_{copy}"),
            };
            let own = labels.iter().map(|(name, value)| {
                // A GPU is in one node.
                let value = if name == "uuid" {
                    format!("{value}-{node}")
                } else {
                    value.clone()
                };
                (name.clone(), value)
            });
            let mut labels: Labels = own.collect();
            labels.set(METRIC_NAME, &name);
            labels.set("cluster", "lab");
            labels.set("node", &node);
            labels.set("instance", &instance);
            labels.set("job", "node");
            columns.push(group.column(&labels).ok_or("a series has no column")?);
        }
        Ok(Self {
            group,
            columns,
            phase: number * 37,
        })
    }
}

fn fill(
    directory: &Path,
    rules: &Path,
    captured: &[Captured],
    (nodes, series, rows): (usize, usize, usize),
) -> Result<(), Failure> {
    let all = nodes * series;
    let begin = Timestamp::from(SystemTime::now()).minus_ms(rows as i64 * STEP_MS);
    let now = Arc::new(AtomicI64::new(begin.0));
    let shown = Arc::clone(&now);
    let clock = Clock::new(move || Timestamp(shown.load(Ordering::SeqCst)));
    let store = Store::open_at(
        DataDir::claim(directory)?,
        &config(),
        &mut Registry::default(),
        clock,
    )?;
    println!("{all} series: {nodes} nodes with {series} each, {rows} samples of each");
    let (clock, used, before) = (Instant::now(), cpu(), resident_mib());
    let known = (0..nodes).map(|number| Node::new(number, series, captured, &store));
    let known: Vec<Node> = known.collect::<Result<_, Failure>>()?;
    println!(
        "new series: {:.1} s, {:.2} µs of CPU each; resident {} MiB",
        clock.elapsed().as_secs_f64(),
        (cpu() - used).as_secs_f64() * 1e6 / all as f64,
        resident_mib() - before
    );

    let mut row = Vec::new();
    let mut steady = None;
    for number in 0..rows {
        let at = begin.plus_ms(number as i64 * STEP_MS);
        now.store(at.0 + STEP_MS - 1, Ordering::SeqCst);
        // The first two rows store the series.
        if number == 2 {
            steady = Some((Instant::now(), cpu()));
        }
        for (place, node) in known.iter().enumerate() {
            row.resize(node.group.width(), 0.0);
            for (at, column) in node.columns.iter().enumerate() {
                let of = &captured[at % captured.len()];
                row[column.index()] = of.at(number * 15 + node.phase);
            }
            let own = at.plus_ms((place * 7 % 14_000) as i64);
            node.group.commit(node.group.ticket(own)?, &row, &[])?;
            if place % FLUSHED_TOGETHER == 0 {
                store.flush();
            }
        }
        store.flush();
        if number % 4 == 3 {
            println!("row {}: resident {} MiB", number + 1, resident_mib());
        }
    }
    let (clock, used) = steady.ok_or("at least 3 rows")?;
    let samples = ((rows - 2) * all) as f64;
    let each = (cpu() - used).as_secs_f64() / samples;
    println!(
        "samples: {:.0} a second, {:.3} µs of CPU each (with making the values); resident {} MiB",
        samples / clock.elapsed().as_secs_f64(),
        each * 1e6,
        resident_mib()
    );
    let size = bytes(directory) as f64;
    println!(
        "unsealed: {:.0} MiB on disk, {:.2} bytes a sample, series included",
        size / (1 << 20) as f64,
        size / (rows * all) as f64
    );

    let newest = begin.plus_ms(rows as i64 * STEP_MS - 1);
    thresholds(&store, rules, newest)?;
    ask(&store, newest);
    evaluate(&store, rules, newest)?;
    println!("resident {} MiB after queries and rules", resident_mib());
    let rate = all as f64 / 15.0;
    println!(
        "arithmetic: {all} series every 15 s are {rate:.0} samples a second; × {:.3} µs = {:.2} cores",
        each * 1e6,
        rate * each
    );
    drop(known);
    Ok(())
}

fn options() -> Options {
    let limits = Limits {
        max_samples: 500_000_000,
        max_series: 10_000_000,
        ..Limits::default()
    };
    Options {
        limits,
        lazy: true,
        ..Options::default()
    }
}

/// Evaluates an expression. Returns the time and the number of series.
fn timed(store: &Store, expr: &str, at: Timestamp) -> (Duration, Result<usize, String>) {
    let clock = Instant::now();
    let answer = takt_promql::instant(store, expr, at, &options());
    let count = answer.map_err(|error| takt_model::error_chain(&error));
    let count = count.map(|answer| match answer.value {
        Value::Vector(samples) => samples.len(),
        _ => 1,
    });
    (clock.elapsed(), count)
}

fn ask(store: &Store, at: Timestamp) {
    println!("queries, the quicker of two:");
    for (name, query) in QUERIES {
        let (first, count) = timed(store, query, at);
        let (second, _) = timed(store, query, at);
        let took = first.min(second).as_secs_f64() * 1e3;
        let count = count.map_or_else(|error| error, |count| format!("{count} series"));
        println!("  {took:9.1} ms  {name}: {count}");
    }
}

/// Expressions of the rule files, recording rules first: `(name, labels, expression)`.
fn expressions(rules: &Path) -> Result<Vec<(String, String, String)>, Failure> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(rules)? {
        let path = entry?.path();
        if !path.to_string_lossy().ends_with(".rules.yml") {
            continue;
        }
        let file = takt_model::yaml::Node::read(&std::fs::read_to_string(&path)?)
            .map_err(|mistake| format!("{}: {mistake:?}", path.display()))?;
        let mistake = |mistake| format!("{}: {mistake:?}", path.display());
        let groups = file.get("groups").ok_or("no groups")?;
        for group in groups.list().map_err(mistake)? {
            let rules = group.get("rules").ok_or("no rules")?;
            for rule in rules.list().map_err(mistake)? {
                let text = |key: &str| {
                    let text = rule.get(key).and_then(|node| node.text().ok());
                    text.unwrap_or_default().to_owned()
                };
                let label = rule.get("labels").and_then(|labels| labels.get("name"));
                let label = label.and_then(|node| node.text().ok()).unwrap_or_default();
                let name = text("record");
                let name = if name.is_empty() { text("alert") } else { name };
                found.push((name, label.to_owned(), text("expr")));
            }
        }
    }
    Ok(found)
}

/// Stores the thresholds of the rules, as their recording rules would.
fn thresholds(store: &Store, rules: &Path, at: Timestamp) -> Result<(), Failure> {
    let group = store.group();
    let mut row = Vec::new();
    for (name, label, expr) in expressions(rules)? {
        let value = expr
            .strip_prefix("vector(")
            .and_then(|text| text.strip_suffix(')'));
        let value = value.and_then(|text| text.parse::<f64>().ok());
        if let (Some(value), false) = (value, label.is_empty()) {
            let labels = [(METRIC_NAME, name.as_str()), ("name", label.as_str())];
            let column = group.column(&labels.into_iter().collect());
            let column = column.ok_or("a threshold twice")?.index();
            row.resize(row.len().max(column + 1), 0.0);
            row[column] = value;
        }
    }
    group.commit(group.ticket(at)?, &row, &[])?;
    store.flush();
    std::mem::forget(group);
    Ok(())
}

fn evaluate(store: &Store, rules: &Path, at: Timestamp) -> Result<(), Failure> {
    let all = expressions(rules)?;
    let (clock, used) = (Instant::now(), cpu());
    let mut times = Vec::new();
    let mut failed = 0;
    for (name, _, expr) in &all {
        let (took, count) = timed(store, expr, at);
        if let Err(error) = count {
            failed += 1;
            println!("  {name}: {error}");
        }
        times.push((took, name));
    }
    times.sort();
    println!(
        "rules: {} in {:.2} s, {:.2} s of CPU, {failed} failed; the slowest:",
        all.len(),
        clock.elapsed().as_secs_f64(),
        (cpu() - used).as_secs_f64()
    );
    for (took, name) in times.iter().rev().take(6) {
        println!("  {:9.1} ms  {name}", took.as_secs_f64() * 1e3);
    }
    Ok(())
}

fn open(directory: &Path) -> Result<(), Failure> {
    let (clock, used) = (Instant::now(), cpu());
    let store = Store::open(
        DataDir::claim(directory)?,
        &config(),
        &mut Registry::default(),
    )?;
    println!(
        "start: {:.1} s, {:.1} s of CPU; resident {} MiB",
        clock.elapsed().as_secs_f64(),
        (cpu() - used).as_secs_f64(),
        resident_mib()
    );
    let newest = store.watermark();
    ask(&store, newest);
    let (clock, used) = (Instant::now(), cpu());
    store.seal()?;
    let stat = store.stat()?;
    let raw = || stat.blocks.iter().filter(|block| block.resolution == "raw");
    let rows: u64 = raw().map(|block| block.rows).sum();
    let used = cpu() - used;
    println!(
        "sealing: {:.0} s, {:.3} µs of CPU a sample, {rows} samples; resident {} MiB",
        clock.elapsed().as_secs_f64(),
        used.as_secs_f64() * 1e6 / rows as f64,
        resident_mib()
    );
    let size: u64 = raw().map(|block| block.bytes).sum();
    println!("sealed: {:.2} bytes a sample", size as f64 / rows as f64);
    println!("sealed, the same");
    ask(&store, newest);
    Ok(())
}
