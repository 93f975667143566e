//! Nodes that replay a captured page, for measurements of the store (`bench/replay.py` describes the
//! format of captures).

use flate2::read::GzDecoder;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use takt_model::{Labels, METRIC_NAME, Timestamp};
use takt_store::{Group, Store};

pub type Failure = Box<dyn Error + Send + Sync>;

/// The captured page of takt-exporter with eight GPUs: 604 series over ten minutes.
pub const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../bench/pages/takt-exporter_8-stand-in-h100.jsonl.gz"
);

/// Samples after which the queue is emptied: a full one drops the oldest.
const FLUSHED_TOGETHER: usize = 1_000_000;

/// Seconds of the capture from the begin of a node to that of the next, so that all nodes differ.
const PHASE: usize = 37;

/// A captured series: its value at each second.
pub struct Captured {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub is_counter: bool,
    pub values: Vec<f64>,
}

impl Captured {
    /// Returns the value of a node at a second after its begin, also beyond the end of the capture.
    pub fn value(&self, node: usize, second: usize) -> f64 {
        let second = second + PHASE * node;
        let length = self.values.len();
        let value = self.values[second % length];
        match (self.is_counter, self.values.first(), self.values.last()) {
            (true, Some(first), Some(last)) if last >= first => {
                value + (second / length) as f64 * (last - first)
            }
            _ => value,
        }
    }

    /// Returns the labels of a node's series.
    pub fn labels(&self, node: usize) -> Labels {
        let node = format!("n{node:02}");
        let mut labels: Labels = self.labels.iter().collect();
        // A GPU is in one node.
        if let Some(uuid) = self.labels.get("uuid") {
            labels.set("uuid", &format!("{uuid}-{node}"));
        }
        labels.set(METRIC_NAME, &self.name);
        labels.set("cluster", "lab");
        labels.set("instance", &format!("{node}:9855"));
        labels.set("job", "node");
        labels.set("node", &node);
        labels
    }
}

/// Reads the series that are on every page of a capture.
///
/// # Errors
/// If the file cannot be read or has another format.
pub fn read(path: &Path) -> Result<Vec<Captured>, Failure> {
    let mut lines = BufReader::new(GzDecoder::new(File::open(path)?)).lines();
    let page = lines.next().ok_or("an empty capture")??;
    let page: String = serde_json::from_str(page.strip_prefix("PAGE ").ok_or("no page")?)?;
    let counters: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
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
    let captured = complete
        .into_iter()
        .map(|(series, values)| {
            let (name, labels) = series.split_once('{').unwrap_or((&series, "}"));
            let labels = labels
                .trim_end_matches('}')
                .split("\",")
                .filter_map(|pair| pair.split_once("=\""))
                .map(|(name, value)| (name.to_owned(), value.trim_end_matches('"').to_owned()));
            Captured {
                name: name.to_owned(),
                labels: labels.collect(),
                is_counter: counters.contains(name),
                values,
            }
        })
        .collect();
    Ok(captured)
}

/// Nodes that write into a store.
pub struct Nodes<'s> {
    store: &'s Store,
    captured: &'s [Captured],
    series: usize,
    groups: Vec<Group>,
    row: Vec<f64>,
    /// Samples since the queue was emptied.
    unflushed: usize,
}

impl<'s> Nodes<'s> {
    /// Adds `count` nodes of `series` series. If the page has fewer, it is repeated under other
    /// metric names.
    ///
    /// # Errors
    /// If two series have the same labels.
    pub fn new(
        store: &'s Store,
        captured: &'s [Captured],
        count: usize,
        series: usize,
    ) -> Result<Self, Failure> {
        let mut groups = Vec::with_capacity(count);
        for node in 0..count {
            let group = store.group();
            for number in 0..series {
                let one = &captured[number % captured.len()];
                let mut labels = one.labels(node);
                let copy = number / captured.len();
                if copy > 0 {
                    labels.set(METRIC_NAME, &format!("{}_{copy}", one.name));
                }
                // The columns of a new group are numbered in order.
                group.column(&labels).ok_or("a series has no column")?;
            }
            groups.push(group);
        }
        Ok(Self {
            store,
            captured,
            series,
            groups,
            row: Vec::with_capacity(series),
            unflushed: 0,
        })
    }

    /// Writes a row of each node with its values at a second after the begin. `at` returns the
    /// timestamp of a node's row.
    ///
    /// # Errors
    /// If a timestamp is before those of written rows.
    pub fn write(&mut self, second: usize, at: impl Fn(usize) -> Timestamp) -> Result<(), Failure> {
        for (node, group) in self.groups.iter().enumerate() {
            let all = self.captured.iter().cycle().take(self.series);
            self.row.clear();
            self.row.extend(all.map(|one| one.value(node, second)));
            group.commit(group.ticket(at(node))?, &self.row, &[])?;
            self.unflushed += self.series;
            if self.unflushed >= FLUSHED_TOGETHER {
                self.store.flush();
                self.unflushed = 0;
            }
        }
        Ok(())
    }
}
