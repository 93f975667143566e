//! The values that flow between nodes: one value or gap per step, for each series.

use crate::error::{Error, same_labelset};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use takt_model::{Labels, METRIC_NAME};

/// One series over the steps of a grid. At least one step has a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Column {
    pub labels: Labels,
    pub values: Vec<Option<f64>>,
    /// Whether the values were computed, so that the name has to go at the end of the query (see
    /// [`Options::delayed_names`](super::Options::delayed_names)).
    pub nameless: bool,
}

impl Column {
    /// A column, unless it has no value at all.
    pub fn new(labels: Labels, values: Vec<Option<f64>>) -> Option<Self> {
        Self {
            labels,
            values,
            nameless: false,
        }
        .unless_empty()
    }

    /// Itself, unless it has no value any more.
    pub fn unless_empty(self) -> Option<Self> {
        self.values.iter().any(Option::is_some).then_some(self)
    }
}

/// Removes what describes the metric itself: a computed value is no longer of that name, type or unit
/// (`schema.IsMetadataLabel`).
pub(crate) fn drop_name(labels: &mut Labels) {
    for name in [METRIC_NAME, "__type__", "__unit__"] {
        labels.remove(name);
    }
}

/// Removes the names of columns that are nameless.
pub(crate) fn settle_names(mut columns: Vec<Column>) -> Result<Vec<Column>, Error> {
    for column in columns.iter_mut().filter(|column| column.nameless) {
        drop_name(&mut column.labels);
        column.nameless = false;
    }
    merge(columns)
}

/// Joins columns whose labels became equal: legal while they never have a value at the same step.
pub(crate) fn merge(columns: Vec<Column>) -> Result<Vec<Column>, Error> {
    let mut places: HashMap<Labels, usize> = HashMap::with_capacity(columns.len());
    let mut merged: Vec<Column> = Vec::with_capacity(columns.len());
    for column in columns {
        match places.entry(column.labels.clone()) {
            Entry::Vacant(place) => {
                place.insert(merged.len());
                merged.push(column);
            }
            Entry::Occupied(place) => {
                let known = &mut merged[*place.get()].values;
                for (known, value) in known.iter_mut().zip(column.values) {
                    match (&known, value) {
                        (Some(_), Some(_)) => return Err(same_labelset()),
                        (None, Some(_)) => *known = value,
                        _ => {}
                    }
                }
            }
        }
    }
    Ok(merged)
}
