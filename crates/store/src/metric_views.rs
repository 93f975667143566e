//! One view a metric, in the schema `metrics`: `ts`, `value`, and a column for each label.
//!
//! Metrics come and go with what is scraped, so the views follow the table of series: whoever asks for one that is
//! not there brings them up to date first.

use super::block::metric_hash;
use super::layout::POINTS;
use super::{Database, StoreError};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::sync::PoisonError;

/// What the views have been made of so far.
#[derive(Debug)]
pub(super) struct MetricViews {
    /// The highest number of a series that has been looked at.
    newest: i64,
    /// The labels of each metric.
    labels: HashMap<String, BTreeSet<String>>,
}

impl Default for MetricViews {
    fn default() -> Self {
        Self {
            newest: -1,
            labels: HashMap::new(),
        }
    }
}

impl Database {
    /// Makes the views of metrics that have come, or that have a label more; whether there were any.
    ///
    /// # Errors
    /// When the database does not answer.
    pub fn follow_metrics(&self) -> Result<bool, StoreError> {
        let failed = || StoreError::sql("make the views of metrics");
        let db = self.connect()?;
        let mut known = self
            .metric_views
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let newest: i64 = db
            .query_row("SELECT coalesce(max(id), -1) FROM series", [], |row| {
                row.get(0)
            })
            .map_err(failed())?;
        if newest <= known.newest {
            return Ok(false);
        }
        let mut statement = db
            .prepare(
                "SELECT DISTINCT metric, unnest(list_concat([''], json_keys(labels))) FROM series
                 WHERE id > ? AND id <= ? ORDER BY ALL",
            )
            .map_err(failed())?;
        let found = statement
            .query_map([known.newest, newest], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            })
            .map_err(failed())?;
        let mut changed = BTreeSet::new();
        for pair in found {
            let (metric, label) = pair.map_err(failed())?;
            let labels = known.labels.entry(metric.clone()).or_insert_with(|| {
                changed.insert(metric.clone());
                BTreeSet::new()
            });
            if !label.is_empty() && labels.insert(label) {
                changed.insert(metric);
            }
        }
        let views: String = changed
            .iter()
            .map(|metric| view(metric, &known.labels[metric]))
            .collect();
        db.execute_batch(&views).map_err(failed())?;
        known.newest = newest;
        Ok(!changed.is_empty())
    }
}

/// The view of one metric. Labels are read once a series, not once a sample, and a condition on them is known as numbers of
/// series before samples are read.
fn view(metric: &str, labels: &BTreeSet<String>) -> String {
    let (mut columns, mut paths) = (String::new(), String::new());
    for label in labels {
        // A label of the same name as one of our columns, in DuckDB's eyes, which tell no case.
        let name = match label.to_lowercase().as_str() {
            "ts" | "value" | "labels" => format!("label_{label}"),
            _ => label.clone(),
        };
        let name = identifier(&name);
        let _ = write!(columns, ", s.{name}");
        let _ = write!(
            paths,
            ", labels ->> {} AS {name}",
            super::quoted(&format!("$.\"{label}\""))
        );
    }
    format!(
        "CREATE OR REPLACE VIEW metrics.{name} AS SELECT h.ts, h.value{columns} FROM memory.main.{POINTS}({hash}) AS h JOIN \
         (SELECT id{paths} FROM memory.main.series WHERE metric = {metric}) AS s ON s.id = h.series;",
        name = identifier(metric),
        hash = metric_hash(metric),
        metric = super::quoted(metric),
    )
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
