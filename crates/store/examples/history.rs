//! Fills a data directory with hours of samples, for `bench/query.sh`. Writes the same samples as
//! OpenMetrics for `promtool tsdb create-blocks-from`, one file per two hours.
//!
//! `history CAPTURE.jsonl.gz DATA_DIR TEXT_DIR NODES HOURS STEP_SECONDS END`
//!
//! Each node replays the captured pages, one per second, from a second of its own. Counters
//! continue when the capture repeats. The clock runs as fast as the store accepts samples: blocks
//! are sealed by the hour and merged as usual, and the rest is sealed at END.

#![expect(clippy::print_stderr, reason = "a program that says how far it is")]

use flate2::read::GzDecoder;
use prometheus_client::registry::Registry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use takt_model::{Labels, METRIC_NAME, Timestamp};
use takt_store::{Clock, Column, DataDir, Group, Store, StoreConfig};

type Failure = Box<dyn Error + Send + Sync>;

/// Milliseconds after each whole second. No sample then lies on the left end of a range, where
/// Prometheus 2 and 3 differ.
const BESIDE_MS: i64 = 137;

/// Seconds that promtool puts into one block.
const FILE_SECONDS: i64 = 7200;

/// A captured series: its value at each second.
struct Captured {
    name: String,
    labels: BTreeMap<String, String>,
    is_counter: bool,
    values: Vec<f64>,
}

impl Captured {
    /// Returns the value at a second after the begin of the capture, also beyond its end.
    fn at(&self, second: usize) -> f64 {
        let length = self.values.len();
        let value = self.values[second % length];
        match (self.is_counter, self.values.first(), self.values.last()) {
            (true, Some(first), Some(last)) if last >= first => {
                value + (second / length) as f64 * (last - first)
            }
            _ => value,
        }
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [capture, data, text, nodes, hours, step, end] = &arguments[..] else {
        return Err(
            "usage: history CAPTURE.jsonl.gz DATA_DIR TEXT_DIR NODES HOURS STEP_SECONDS END".into(),
        );
    };
    let nodes: usize = nodes.parse()?;
    let hours: i64 = hours.parse()?;
    let step: i64 = step.parse()?;
    let end: i64 = end.parse()?;
    let captured = read(Path::new(capture))?;

    let now = Arc::new(AtomicI64::new(0));
    let shown = Arc::clone(&now);
    let clock = Clock::new(move || Timestamp::from_seconds(shown.load(Ordering::SeqCst)));
    let begin = end - hours * 3600;
    now.store(begin, Ordering::SeqCst);
    let config = StoreConfig {
        min_free_bytes: 0,
        commit_interval_ms: 200,
        ..StoreConfig::default()
    };
    let store = Store::open_at(
        DataDir::claim(Path::new(data))?,
        &config,
        &mut Registry::default(),
        clock,
    )?;
    let nodes = (0..nodes)
        .map(|node| Node::new(node, &captured, &store))
        .collect::<Result<Vec<_>, Failure>>()?;

    let mut row = Vec::new();
    for at in (begin..=end).step_by(usize::try_from(step)?) {
        now.store(at + 1, Ordering::SeqCst);
        let second = usize::try_from(at - begin)?;
        for node in &nodes {
            node.values(&captured, second, &mut row);
            node.group.commit(
                node.group.ticket(Timestamp(at * 1000 + BESIDE_MS))?,
                &row,
                &[],
            )?;
        }
        // Without flushes the queue would drop samples.
        if second % 300 == 0 {
            store.flush();
        }
        if second % 3600 == 0 {
            store.keep()?;
            eprint!("\r{} h", second / 3600);
        }
    }
    store.seal()?;
    let series = nodes.len() * captured.len();
    eprintln!(
        "\r{series} series, {} samples",
        series as i64 * ((end - begin) / step + 1)
    );
    write_text(Path::new(text), &nodes, &captured, (begin, end, step))
}

/// A node of the cluster.
struct Node {
    group: Group,
    columns: Vec<Column>,
    /// Its series as text, in the order of the capture.
    names: Vec<String>,
    /// Second of the capture at which it begins, so that all nodes differ.
    phase: usize,
}

impl Node {
    fn new(number: usize, captured: &[Captured], store: &Store) -> Result<Self, Failure> {
        let node = format!("n{number:02}");
        let group = store.group();
        let mut columns = Vec::new();
        let mut names = Vec::new();
        for series in captured {
            let mut labels = series.labels.clone();
            labels.extend(
                labels
                    .get("uuid")
                    .map(|uuid| ("uuid".to_owned(), format!("{uuid}-{node}"))),
            );
            for (name, value) in [
                ("cluster", "lab"),
                ("instance", &format!("{node}:9855")),
                ("job", "node"),
                ("node", &node),
            ] {
                labels.insert(name.to_owned(), value.to_owned());
            }
            let pairs: Vec<String> = labels
                .iter()
                .map(|(name, value)| format!("{name}={value:?}"))
                .collect();
            names.push(format!("{}{{{}}}", series.name, pairs.join(",")));
            let metric = (METRIC_NAME, series.name.as_str());
            let all: Labels = labels
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .chain([metric])
                .collect();
            columns.push(group.column(&all).ok_or("a series has no column")?);
        }
        Ok(Self {
            group,
            columns,
            names,
            phase: number * 37,
        })
    }

    fn values(&self, captured: &[Captured], second: usize, row: &mut Vec<f64>) {
        row.resize(self.group.width(), 0.0);
        for (series, column) in captured.iter().zip(&self.columns) {
            row[column.index()] = series.at(second + self.phase);
        }
    }
}

/// Reads the series that are on every page of a capture (`bench/replay.py` describes the format).
fn read(path: &Path) -> Result<Vec<Captured>, Failure> {
    let mut lines = BufReader::new(GzDecoder::new(File::open(path)?)).lines();
    let page = lines.next().ok_or("an empty capture")??;
    let page: String = serde_json::from_str(page.strip_prefix("PAGE ").ok_or("no page")?)?;
    let kinds = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let counters: BTreeSet<&str> = kinds
        .filter(|(_, kind)| *kind == "counter")
        .map(|(name, _)| name)
        .collect();
    let mut now: BTreeMap<String, f64> = BTreeMap::new();
    let mut all: HashMap<String, Vec<f64>> = HashMap::new();
    let mut seconds = 0;
    for line in lines {
        let (_, changed, gone): (i64, BTreeMap<String, String>, Vec<String>) =
            serde_json::from_str(&line?)?;
        for (series, value) in changed {
            now.insert(series, value.parse()?);
        }
        now.retain(|series, _| !gone.contains(series));
        now.iter()
            .for_each(|(series, value)| all.entry(series.clone()).or_default().push(*value));
        seconds += 1;
    }
    let mut complete: Vec<(String, Vec<f64>)> = all
        .into_iter()
        .filter(|(_, values)| values.len() == seconds)
        .collect();
    complete.sort_by(|a, b| a.0.cmp(&b.0));
    let captured = complete.into_iter().map(|(series, values)| {
        let (name, labels) = series.split_once('{').unwrap_or((&series, "}"));
        let pairs = labels
            .trim_end_matches('}')
            .split("\",")
            .filter_map(|pair| pair.split_once("=\""));
        let labels =
            pairs.map(|(name, value)| (name.to_owned(), value.trim_end_matches('"').to_owned()));
        Captured {
            name: name.to_owned(),
            labels: labels.collect(),
            is_counter: counters.contains(name),
            values,
        }
    });
    Ok(captured.collect())
}

/// Writes the same samples for promtool, which requires the samples of a series to be adjacent
/// within a file.
fn write_text(
    folder: &Path,
    nodes: &[Node],
    captured: &[Captured],
    (begin, end, step): (i64, i64, i64),
) -> Result<(), Failure> {
    let mut from = begin;
    while from <= end {
        let to = (from.div_euclid(FILE_SECONDS) + 1) * FILE_SECONDS;
        let mut out = BufWriter::new(File::create(folder.join(format!("{from}.om")))?);
        let first = begin + (from - begin + step - 1) / step * step;
        for node in nodes {
            for (series, name) in captured.iter().zip(&node.names) {
                for at in (first..to.min(end + 1)).step_by(usize::try_from(step)?) {
                    let value = series.at(usize::try_from(at - begin)? + node.phase);
                    writeln!(out, "{name} {value} {at}.{BESIDE_MS}")?;
                }
            }
        }
        writeln!(out, "# EOF")?;
        out.flush()?;
        from = to;
    }
    Ok(())
}
