//! One SQL view per metric in the schema `metrics`: `ts`, `value`, and one column per label.
//!
//! Targets choose the names of metrics and labels, and one page can bring 200,000 of them. So views exist beforehand
//! for the oldest metrics only, so that clients can list them. A statement that names another metric gets that view
//! first ([`add_named`]), within its own limits of time and memory.

use super::block::metric_hash;
use super::layout::POINTS;
use super::{Database, StoreError, quoted};
use duckdb::Connection;
use duckdb::arrow::array::{Array, AsArray, StringArray};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::PoisonError;
use takt_model::error_chain;

/// Metrics that lists of tables show: those that were stored first. Later ones cannot displace them. DuckDB takes a
/// second and 20 MB for their views.
pub(super) const LISTED_METRICS: usize = 1000;

/// Labels of a metric that are columns of its view: those that were stored first. One series has at most 64 labels
/// by default, and the series of an honest metric have most of them in common. DuckDB takes 4 ms and 100 KB for the
/// view of a metric with so many.
const COLUMNS_MAX: usize = 100;

/// The views that exist without a statement that names them.
#[derive(Debug)]
pub(super) struct MetricViews {
    /// Highest series number included so far.
    newest: i64,
    /// At most [`LISTED_METRICS`].
    listed: HashMap<FoldedName, MetricColumns>,
    /// Hashes of the names of all other metrics.
    left_out: HashSet<u64>,
}

/// A name in lower case: DuckDB ignores the case of names.
type FoldedName = String;

/// The columns of a metric's view.
#[derive(Debug)]
struct MetricColumns {
    metric: String,
    /// Labels by the names of their columns; at most [`COLUMNS_MAX`].
    labels: BTreeMap<FoldedName, String>,
}

impl Default for MetricViews {
    fn default() -> Self {
        Self {
            newest: -1,
            listed: HashMap::new(),
            left_out: HashSet::new(),
        }
    }
}

impl Database {
    /// Creates or updates the views of listed metrics. Returns whether anything changed.
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
        let newest: i64 = db
            .query_row(
                "SELECT coalesce(max(id), -1) FROM memory.main.series",
                [],
                |row| row.get(0),
            )
            .map_err(StoreError::sql("create the views of metrics"))?;

        if newest <= self.newest {
            return Ok(false);
        }

        let new = format!("id > {} AND id <= {newest}", self.newest);
        let mut changed = BTreeSet::new();
        read_series(db, &new, |metric, labels| {
            if let Some(name) = self.note(metric, labels) {
                changed.insert(name);
            }
        })?;

        for name in &changed {
            // A view that DuckDB rejects must not keep the others from statements.
            if let Err(error) = create_view(db, &self.listed[name]) {
                tracing::warn!(metric = ?name, error = %error_chain(&error), "cannot create the view of a metric");
            }
        }

        self.newest = newest;
        Ok(!changed.is_empty())
    }

    /// Number of metrics that lists of tables do not show.
    pub(super) fn left_out(&self) -> usize {
        self.left_out.len()
    }

    /// Notes a series. Returns the name of its metric if that needs a new view.
    fn note(&mut self, metric: &str, labels: &StringArray) -> Option<FoldedName> {
        let name = metric.to_ascii_lowercase();
        let is_full = self.listed.len() >= LISTED_METRICS;

        match self.listed.entry(name) {
            Entry::Occupied(mut listed) => {
                let is_changed = listed.get_mut().add(metric, labels);
                is_changed.then(|| listed.key().clone())
            }
            Entry::Vacant(_) if is_full => {
                let mut hasher = DefaultHasher::new();
                metric.hash(&mut hasher);
                self.left_out.insert(hasher.finish());
                None
            }
            Entry::Vacant(free) => {
                let name = free.key().clone();
                free.insert(MetricColumns::new(metric)).add(metric, labels);
                Some(name)
            }
        }
    }
}

impl MetricColumns {
    fn new(metric: &str) -> Self {
        Self {
            metric: metric.to_owned(),
            labels: BTreeMap::new(),
        }
    }

    /// Adds labels of a series of `metric`. Returns whether the view changes. Of metrics, and of labels, whose names
    /// differ in case only, the view has the older one: a new series cannot hide one that was there.
    fn add(&mut self, metric: &str, labels: &StringArray) -> bool {
        if metric != self.metric {
            return false;
        }

        let before = self.labels.len();
        for label in labels.iter().flatten() {
            // SQL cannot name a column with a zero byte.
            if self.labels.len() >= COLUMNS_MAX || label.contains('\0') {
                continue;
            }
            let column = column_name(label).to_ascii_lowercase();
            self.labels
                .entry(column)
                .or_insert_with(|| label.to_owned());
        }
        self.labels.len() > before
    }
}

/// Creates the views of the metrics that have one of these names, in any case. Returns whether there are any.
///
/// # Errors
/// If the database fails, or the statement's process reaches its limits.
pub(super) fn add_named(db: &Connection, names: &[&str]) -> Result<bool, StoreError> {
    let exact: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    let folded = exact.iter().map(|name| name.to_ascii_lowercase());
    let folded: Vec<String> = folded.collect();
    let named = format!(
        "metric IN ({}) OR lower(metric) IN ({})",
        exact.join(", "),
        folded.join(", ")
    );

    let mut found: HashMap<FoldedName, MetricColumns> = HashMap::new();
    read_series(db, &named, |metric, labels| {
        let columns = found
            .entry(metric.to_ascii_lowercase())
            .or_insert_with(|| MetricColumns::new(metric));
        columns.add(metric, labels);
    })?;

    for columns in found.values() {
        create_view(db, columns)?;
    }
    Ok(!found.is_empty())
}

/// Reads the metric and the names of labels of each series that meets a condition, the oldest first. The rows are
/// read as they are found, so that any number of series takes little memory.
fn read_series(
    db: &Connection,
    condition: &str,
    mut visit: impl FnMut(&str, &StringArray),
) -> Result<(), StoreError> {
    let failed = || StoreError::sql("read the labels of metrics");
    // Series are stored in the order of their numbers.
    let sql = format!("SELECT metric, json_keys(labels) FROM memory.main.series WHERE {condition}");

    let mut statement = db.prepare(&sql).map_err(failed())?;
    // The returned iterator panics if reading fails; `step` does not.
    drop(statement.stream_arrow([]).map_err(failed())?);

    while let Some(batch) = statement.step().map_err(failed())? {
        let metrics = batch.column(0).as_string::<i32>();
        let labels = batch.column(1).as_list::<i32>();
        for row in 0..batch.len() {
            let labels = labels.value(row);
            visit(metrics.value(row), labels.as_string::<i32>());
        }
    }
    Ok(())
}

fn create_view(db: &Connection, columns: &MetricColumns) -> Result<(), StoreError> {
    // SQL cannot name such a metric.
    if columns.metric.contains('\0') {
        return Ok(());
    }
    db.execute_batch(&view(columns))
        .map_err(StoreError::sql("create the view of a metric"))
}

/// Returns the SQL that creates a metric's view. The query reads labels once per series, not per
/// sample, and resolves conditions on labels to series numbers before it reads samples.
fn view(columns: &MetricColumns) -> String {
    let mut labels: Vec<&String> = columns.labels.values().collect();
    labels.sort_unstable();

    let mut selected = String::new();
    let mut paths = String::new();
    for (number, label) in labels.into_iter().enumerate() {
        let name = identifier(&column_name(label));
        // JSON pointers can name any label; JSON paths cannot name one with quotes.
        let pointer = format!("/{}", label.replace('~', "~0").replace('/', "~1"));
        let _ = write!(selected, ", s.label{number} AS {name}");
        let _ = write!(paths, ", labels ->> {} AS label{number}", quoted(&pointer));
    }

    format!(
        "CREATE OR REPLACE VIEW memory.metrics.{name} AS SELECT h.ts, h.value{selected} FROM memory.main.{POINTS}({hash}) AS h JOIN \
         (SELECT id{paths} FROM memory.main.series WHERE metric = {metric}) AS s ON s.id = h.series;",
        name = identifier(&columns.metric),
        hash = metric_hash(&columns.metric),
        metric = quoted(&columns.metric),
    )
}

/// The name of a label's column. A label may have the name of a fixed column.
fn column_name(label: &str) -> String {
    match label.to_ascii_lowercase().as_str() {
        "ts" | "value" | "labels" => format!("label_{label}"),
        _ => label.to_owned(),
    }
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests;
