//! The values that flow between nodes: one value or gap per step, for each series.

use crate::error::{Error, same_labelset};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::mem;
use std::sync::Arc;
use takt_model::native::NativeHistogram;
use takt_model::{Labels, METRIC_NAME};

/// One histogram or gap per step, or nothing where no step has one.
pub(crate) type Histograms = Vec<Option<Arc<NativeHistogram>>>;

/// The value at one step.
#[derive(Debug, Clone)]
pub(crate) enum Element {
    Float(f64),
    Histogram(Arc<NativeHistogram>),
}

/// One series over the steps of a grid. At least one step has a value.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Column {
    pub labels: Labels,
    pub values: Vec<Option<f64>>,
    /// Native histograms, at steps without a value.
    pub histograms: Histograms,
    /// Whether the values were computed, so that the name has to go at the end of the query (see
    /// [`Options::delayed_names`](super::Options::delayed_names)).
    pub nameless: bool,
}

impl Column {
    /// A column of floats, unless it has no value at all.
    pub fn new(labels: Labels, values: Vec<Option<f64>>) -> Option<Self> {
        Self {
            labels,
            values,
            ..Self::default()
        }
        .unless_empty()
    }

    /// A column of elements. The other fields are those of `self`.
    pub fn with_elements(self, elements: impl Iterator<Item = Option<Element>>) -> Self {
        self.with_elements_from(0, elements)
    }

    /// A column of elements that begin at step `first`. The other fields are those of `self`.
    pub fn with_elements_from(
        mut self,
        first: usize,
        elements: impl Iterator<Item = Option<Element>>,
    ) -> Self {
        self.values.clear();
        self.values.resize(first, None);
        self.histograms.clear();
        for element in elements {
            let step = self.values.len();
            self.values.push(None);
            match element {
                Some(Element::Float(value)) => self.values[step] = Some(value),
                Some(Element::Histogram(histogram)) => {
                    // Only as long as needed: most columns have no histogram at all.
                    self.histograms.resize(step, None);
                    self.histograms.push(Some(histogram));
                }
                None => {}
            }
        }

        let steps = self.values.len();
        self.with_steps(steps)
    }

    /// Itself, with gaps up to a number of steps.
    pub fn with_steps(mut self, steps: usize) -> Self {
        self.values.resize(steps, None);
        if self.has_histograms() {
            self.histograms.resize(steps, None);
        }
        self
    }

    /// Itself, unless it has no value any more.
    pub fn unless_empty(mut self) -> Option<Self> {
        // An empty list means "no histogram anywhere", which `has_histograms` relies on.
        if !self.histograms.iter().any(Option::is_some) {
            self.histograms.clear();
        }
        (self.has_histograms() || self.values.iter().any(Option::is_some)).then_some(self)
    }

    /// Whether any step may have a histogram.
    pub fn has_histograms(&self) -> bool {
        !self.histograms.is_empty()
    }

    /// The histogram at a step.
    pub fn histogram(&self, step: usize) -> Option<&Arc<NativeHistogram>> {
        self.histograms.get(step)?.as_ref()
    }

    /// Whether the step has a value or a histogram.
    pub fn is_present(&self, step: usize) -> bool {
        self.values[step].is_some() || self.histogram(step).is_some()
    }

    /// The value or the histogram at a step.
    pub fn element(&self, step: usize) -> Option<Element> {
        match self.values[step] {
            Some(value) => Some(Element::Float(value)),
            None => self
                .histogram(step)
                .map(|found| Element::Histogram(Arc::clone(found))),
        }
    }

    /// Removes what the step has.
    pub fn clear(&mut self, step: usize) {
        self.values[step] = None;
        if let Some(histogram) = self.histograms.get_mut(step) {
            *histogram = None;
        }
    }

    /// About how many floats the column holds.
    pub fn size(&self) -> usize {
        let histograms = self.histograms.iter().flatten();
        self.values.len() + histograms.map(|one| one.bucket_count()).sum::<usize>()
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
                let known = &mut merged[*place.get()];
                if known.has_histograms() || column.has_histograms() {
                    *known = joined(mem::take(known), &column)?;
                    continue;
                }
                for (known, value) in known.values.iter_mut().zip(column.values) {
                    match (&known, value) {
                        // Two series of one name after the name was dropped, such as
                        // rate({__name__=~"a|b"}).
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

fn joined(known: Column, column: &Column) -> Result<Column, Error> {
    let steps = 0..known.values.len();
    if steps
        .clone()
        .any(|step| known.is_present(step) && column.is_present(step))
    {
        return Err(same_labelset());
    }
    let elements: Vec<_> = steps
        .map(|step| known.element(step).or_else(|| column.element(step)))
        .collect();
    Ok(known.with_elements(elements.into_iter()))
}
