//! Tables of the kernel's numbers and their metrics.

use crate::sysfs;
use std::path::Path;
use takt_model::{Metric, Samples};

/// A number of the kernel and its metric.
pub(crate) struct Row {
    /// The name of the file or field.
    pub source: &'static str,
    pub metric: Metric,
    /// How much of the metric's base unit one of the kernel's counts is.
    pub unit: f64,
}

type Labels = &'static [&'static str];

impl Row {
    pub const fn counter(
        source: &'static str,
        name: &'static str,
        help: &'static str,
        labels: Labels,
    ) -> Self {
        Self {
            source,
            metric: Metric::counter(name, help, labels),
            unit: 1.0,
        }
    }

    pub const fn gauge(
        source: &'static str,
        name: &'static str,
        help: &'static str,
        labels: Labels,
    ) -> Self {
        Self {
            source,
            metric: Metric::gauge(name, help, labels),
            unit: 1.0,
        }
    }

    pub const fn of(self, unit: f64) -> Self {
        Self { unit, ..self }
    }

    pub fn push<V: AsRef<str>>(&self, labels: &[V], number: f64, out: &mut Samples) {
        out.push(&self.metric, labels, number * self.unit);
    }
}

/// Pushes the numbers in the files of a directory. Files that are missing or hold no number are
/// left out.
pub(crate) fn push_files<V: AsRef<str>>(
    directory: &Path,
    rows: &[Row],
    labels: &[V],
    out: &mut Samples,
) {
    for row in rows {
        if let Some(number) = sysfs::number::<f64>(&directory.join(row.source)) {
            row.push(labels, number, out);
        }
    }
}

/// All metrics of a collector: single ones, then those of its tables.
macro_rules! metrics_of {
    ([$($single:expr),* $(,)?] $(, $table:expr)* $(,)?) => {{
        const SINGLES: &[Metric] = &[$($single),*];
        const TABLES: &[&[crate::table::Row]] = &[$($table),*];
        const COUNT: usize = crate::table::count(SINGLES, TABLES);
        &crate::table::gather::<COUNT>(SINGLES, TABLES)
    }};
}
pub(crate) use metrics_of;

pub(crate) const fn count(singles: &[Metric], tables: &[&[Row]]) -> usize {
    let mut count = singles.len();
    let mut table = 0;
    while table < tables.len() {
        count += tables[table].len();
        table += 1;
    }
    count
}

pub(crate) const fn gather<const COUNT: usize>(
    singles: &[Metric],
    tables: &[&[Row]],
) -> [Metric; COUNT] {
    let mut metrics = [Metric::gauge("", "", &[]); COUNT];
    let mut filled = 0;
    while filled < singles.len() {
        metrics[filled] = singles[filled];
        filled += 1;
    }
    let mut table = 0;
    while table < tables.len() {
        let mut row = 0;
        while row < tables[table].len() {
            metrics[filled] = tables[table][row].metric;
            (filled, row) = (filled + 1, row + 1);
        }
        table += 1;
    }
    metrics
}
