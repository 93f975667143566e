//! Aggregations: many elements of a vector become one a group (`aggregation` in `promql/engine.go`).

use crate::annotations::{About, AggregationPart};
use crate::budget::Budget;
use crate::column::Column;
use crate::error::Error;
use crate::group::Groups;
use crate::native;
use crate::numbers::{self, Kahan, Mean, format_f};
use crate::plan::{Aggregation, Grouping};
use crate::rank;
use crate::syntax::TextLiteral;
use hashbrown::HashMap;
use takt_model::Labels;

/// The parameter of an aggregation that takes one.
pub(crate) enum Param<'a> {
    None,
    Text(&'a TextLiteral),
    /// One value a step.
    Scalar(Vec<f64>),
}

/// Evaluates any aggregation.
pub(crate) fn aggregate(
    op: Aggregation,
    grouping: &Grouping,
    param: &Param<'_>,
    columns: Vec<Column>,
    steps: usize,
    budget: &Budget,
    about: &mut About<'_>,
) -> Result<Vec<Column>, Error> {
    use Aggregation::*;
    if let (CountValues, Param::Text(label)) = (op, param) {
        return count_values(label, grouping, &columns, steps, budget);
    }

    let groups = groups(columns, grouping);
    let scalar = match param {
        Param::Scalar(values) => values.as_slice(),
        _ => &[],
    };
    if matches!(op, Topk | Bottomk | Limitk | LimitRatio) {
        return rank::rank(op, scalar, groups, steps, about);
    }
    if op == Quantile {
        warn_of_quantiles(scalar, about);
    }

    let mut result = Vec::with_capacity(groups.len());
    for group in &groups {
        // Before the group is folded: a grouping by many labels has about as many groups as series.
        budget.hold(steps)?;
        let members = &group.members;
        let mut values = match op {
            Sum => fold(
                members,
                steps,
                |v| Kahan {
                    sum: v,
                    compensation: 0.0,
                },
                Kahan::add,
                |k| k.total(),
            ),
            Avg => fold(members, steps, Mean::of, Mean::add, |mean| mean.value()),
            Min => fold(
                members,
                steps,
                |v| v,
                |min, v| replace_if(min, v, v < *min),
                |min| min,
            ),
            Max => fold(
                members,
                steps,
                |v| v,
                |max, v| replace_if(max, v, v > *max),
                |max| max,
            ),
            Count => counts(members, steps).collect(),
            Group => counts(members, steps)
                .map(|count| count.map(|_| 1.0))
                .collect(),
            Stdvar => fold(members, steps, Variance::of, Variance::add, Variance::value),
            Stddev => fold(members, steps, Variance::of, Variance::add, |variance| {
                variance.value().sqrt()
            }),
            _ => quantiles(members, scalar),
        };

        let mut histograms = Vec::new();
        if members.iter().any(Column::has_histograms) {
            match op {
                Sum | Avg => histograms = native::totals(op, group, &mut values, about),
                // These count histograms like floats.
                Count | Group => {}
                _ => native::remark_ignored(op, members, AggregationPart::Argument, about),
            }
        }

        // One computed member makes the group's name wrong.
        let nameless = members.iter().any(|member| member.nameless);
        result.extend(
            Column {
                labels: group.labels.clone(),
                values,
                histograms,
                nameless,
            }
            .unless_empty(),
        );
    }
    Ok(result)
}

/// Columns that belong together.
pub(crate) struct Group {
    pub labels: Labels,
    pub members: Vec<Column>,
}

/// Groups in the order in which they first appear.
fn groups(columns: Vec<Column>, grouping: &Grouping) -> Vec<Group> {
    let mut places = Groups::new(grouping);
    let mut groups: Vec<Group> = Vec::new();
    for column in columns {
        let place = places.place(&column.labels);
        if place == groups.len() {
            groups.push(Group {
                labels: grouping.labels(&column.labels),
                members: Vec::new(),
            });
        }
        groups[place].members.push(column);
    }
    groups
}

/// Folds the members' values at each step, in the order of the members: sums of floats depend on it.
fn fold<A>(
    members: &[Column],
    steps: usize,
    first: impl Fn(f64) -> A,
    add: impl Fn(&mut A, f64),
    value: impl Fn(A) -> f64,
) -> Vec<Option<f64>>
where
    A: Copy,
{
    let mut folded: Vec<Option<A>> = vec![None; steps];
    for member in members {
        for (folded, next) in folded.iter_mut().zip(&member.values) {
            match (folded.as_mut(), next) {
                // Member by member, so that the inner loop runs over neighbouring memory.
                (Some(folded), Some(next)) => add(folded, *next),
                (None, Some(next)) => *folded = Some(first(*next)),
                (_, None) => {}
            }
        }
    }
    folded
        .into_iter()
        .map(|folded| folded.map(&value))
        .collect()
}

/// Number of members with a value or histogram at each step.
fn counts(members: &[Column], steps: usize) -> impl Iterator<Item = Option<f64>> {
    (0..steps).map(|step| {
        match members
            .iter()
            .filter(|member| member.is_present(step))
            .count()
        {
            0 => None,
            count => Some(count as f64),
        }
    })
}

/// `min` and `max` pass over NaN while there is anything else.
fn replace_if(kept: &mut f64, next: f64, better: bool) {
    if better || kept.is_nan() {
        *kept = next;
    }
}

/// Welford's algorithm. A first value that is not finite makes all of it NaN.
#[derive(Clone, Copy)]
struct Variance {
    mean: f64,
    squares: f64,
    count: f64,
}

impl Variance {
    fn of(first: f64) -> Self {
        Self {
            mean: first,
            squares: if first.is_finite() { 0.0 } else { f64::NAN },
            count: 1.0,
        }
    }

    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let delta = value - self.mean;
        self.mean += delta / self.count;
        self.squares += delta * (value - self.mean);
    }

    fn value(self) -> f64 {
        self.squares / self.count
    }
}

fn quantiles(members: &[Column], phi: &[f64]) -> Vec<Option<f64>> {
    let mut present = Vec::with_capacity(members.len());
    phi.iter()
        .enumerate()
        .map(|(step, phi)| {
            // One list for all steps, which is sorted in place.
            present.clear();
            present.extend(members.iter().filter_map(|member| member.values[step]));
            if present.is_empty() {
                None
            } else {
                Some(numbers::quantile(*phi, &mut present))
            }
        })
        .collect()
}

fn warn_of_quantiles(phi: &[f64], about: &mut About<'_>) {
    let worst = |better: fn(f64, f64) -> f64| phi.iter().copied().reduce(better).unwrap_or(0.5);
    if phi.iter().any(|phi| phi.is_nan()) {
        about.invalid_quantile(0, f64::NAN);
    }
    let max = worst(f64::max);
    let min = worst(f64::min);
    // As in Prometheus, a range of steps has one remark for each side, with its worst value.
    if max > 1.0 {
        about.invalid_quantile(0, max);
    }
    if min < 0.0 {
        about.invalid_quantile(0, min);
    }
}

/// `count_values("label", v)`: one series a group and value; the value becomes the label (`aggregationCountValues`).
fn count_values(
    label: &TextLiteral,
    grouping: &Grouping,
    columns: &[Column],
    steps: usize,
    budget: &Budget,
) -> Result<Vec<Column>, Error> {
    if !label.is_label_name() {
        let text = format!("invalid label name {}", label.quoted());
        return Err(Error::Execution(text));
    }
    let label = label.text.as_str();
    let grouping = match grouping {
        // The new label distinguishes the results, even if `by` does not name it.
        Grouping::By(names) => {
            Grouping::By(names.iter().cloned().chain([label.to_owned()]).collect())
        }
        without => without.clone(),
    };

    let mut counts = ValueCounts {
        label,
        grouping: &grouping,
        steps,
        budget,
        places: HashMap::new(),
        result: Vec::new(),
    };
    for column in columns {
        // A column's values repeat; the labels of each are made once.
        let mut known: HashMap<u64, usize> = HashMap::new();
        for (step, value) in column
            .values
            .iter()
            .enumerate()
            .filter_map(|(step, value)| Some((step, (*value)?)))
        {
            let place = match known.get(&value.to_bits()) {
                Some(place) => *place,
                None => {
                    let place = counts.place(column, &format_f(value))?;
                    known.insert(value.to_bits(), place);
                    place
                }
            };
            counts.count(place, step);
        }
        // The text of a histogram is the value of its label.
        for (step, histogram) in column.histograms.iter().enumerate() {
            if let Some(histogram) = histogram {
                let place = counts.place(column, &histogram.to_string())?;
                counts.count(place, step);
            }
        }
    }
    Ok(counts.result)
}

/// The series of `count_values`.
struct ValueCounts<'a> {
    label: &'a str,
    grouping: &'a Grouping,
    steps: usize,
    budget: &'a Budget,
    /// Places in `result`, by labels.
    places: HashMap<Labels, usize>,
    result: Vec<Column>,
}

impl ValueCounts<'_> {
    /// Returns the place of the series that counts a value of a column, and adds it if it is new.
    ///
    /// # Errors
    /// If the query would hold too many samples.
    fn place(&mut self, column: &Column, value: &str) -> Result<usize, Error> {
        let mut labels = column.labels.clone();
        labels.set(self.label, value);
        let labels = self.grouping.labels(&labels);
        let place = *self
            .places
            .entry(labels.clone())
            .or_insert(self.result.len());
        // Each value is a series of its own: a gauge with noise makes as many as it has samples.
        if place == self.result.len() {
            self.budget.hold(self.steps)?;
            self.result.push(Column {
                labels,
                values: vec![None; self.steps],
                nameless: column.nameless,
                ..Column::default()
            });
        }
        Ok(place)
    }

    /// Counts a value at a step.
    fn count(&mut self, place: usize, step: usize) {
        let count = &mut self.result[place].values[step];
        *count = Some(count.unwrap_or(0.0) + 1.0);
    }
}
