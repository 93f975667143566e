//! One SQL view per metric in the schema `metrics`: `ts`, `value`, and one column per label.
//!
//! New metrics appear with new scrapes. A statement that names an unknown view therefore updates
//! the views first.

use super::block::metric_hash;
use super::layout::POINTS;
use super::{Database, StoreError};
use duckdb::Connection;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::sync::PoisonError;

/// The series that the existing views cover.
#[derive(Debug)]
pub(super) struct MetricViews {
    /// Highest series number included so far.
    newest: i64,
    /// Label names by metric.
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
    /// Creates or updates views for new metrics and labels. Returns whether anything changed.
    ///
    /// # Errors
    /// If the database fails.
    pub fn follow_metrics(&self) -> Result<bool, StoreError> {
        let db = self.connect()?;
        let mut views = self
            .metric_views
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        views.follow(&db)
    }
}

impl MetricViews {
    /// Creates or updates views for new metrics and labels. Returns whether anything changed.
    pub(super) fn follow(&mut self, db: &Connection) -> Result<bool, StoreError> {
        let failed = || StoreError::sql("create the views of metrics");
        let newest: i64 = db
            .query_row("SELECT coalesce(max(id), -1) FROM series", [], |row| {
                row.get(0)
            })
            .map_err(failed())?;

        if newest <= self.newest {
            return Ok(false);
        }

        let mut statement = db
            .prepare(
                "SELECT DISTINCT metric, unnest(list_concat([''], json_keys(labels))) FROM series
                 WHERE id > ? AND id <= ? ORDER BY ALL",
            )
            .map_err(failed())?;

        let found = statement
            .query_map([self.newest, newest], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            })
            .map_err(failed())?;

        let mut changed = BTreeSet::new();
        for pair in found {
            let (metric, label) = pair.map_err(failed())?;
            let labels = self.labels.entry(metric.clone()).or_insert_with(|| {
                changed.insert(metric.clone());
                BTreeSet::new()
            });
            if !label.is_empty() && labels.insert(label) {
                changed.insert(metric);
            }
        }

        let views: String = changed
            .iter()
            .map(|metric| view(metric, &self.labels[metric]))
            .collect();

        db.execute_batch(&views).map_err(failed())?;
        self.newest = newest;
        Ok(!changed.is_empty())
    }
}

/// Returns the SQL that creates a metric's view. The query reads labels once per series, not per
/// sample, and resolves conditions on labels to series numbers before it reads samples.
fn view(metric: &str, labels: &BTreeSet<String>) -> String {
    let mut columns = String::new();
    let mut paths = String::new();
    for label in labels {
        // A label may have the name of a fixed column. DuckDB ignores case.
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
