//! Captured pages of a node, to be replayed as many nodes (`bench/replay.py` describes the format).

use flate2::read::GzDecoder;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

type Failure = Box<dyn Error + Send + Sync>;

/// A captured series: its value at each second.
pub struct Captured {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    is_counter: bool,
    values: Vec<f64>,
}

impl Captured {
    /// Returns the value at a second after the begin of the capture, also beyond its end.
    pub fn at(&self, second: usize) -> f64 {
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

/// Reads the series that are on every page of a capture (`bench/replay.py` describes the format).
pub fn read(path: &Path) -> Result<Vec<Captured>, Failure> {
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
