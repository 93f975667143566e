//! Native histograms in operators and aggregations (`vectorElemBinop`, `aggregation` in `promql/engine.go`).

use crate::aggregate::Group;
use crate::annotations::{About, AggregationPart, HistogramOperation};
use crate::binary::elements;
use crate::column::{Column, Element, Histograms};
use crate::plan::{Aggregation, Operator};
use std::sync::Arc;
use takt_model::native::{NativeHistogram, ResetHint};

impl Element {
    fn kind(&self) -> &'static str {
        match self {
            Element::Float(_) => "float",
            Element::Histogram(_) => "histogram",
        }
    }
}

/// Whether an operator takes operands that are histograms or floats.
pub(crate) fn takes(op: Operator, lhs_is_histogram: bool, rhs_is_histogram: bool) -> bool {
    match (lhs_is_histogram, rhs_is_histogram) {
        (false, false) => true,
        (false, true) => op == Operator::Mul,
        (true, false) => matches!(op, Operator::Mul | Operator::Div),
        (true, true) => matches!(
            op,
            Operator::Add | Operator::Sub | Operator::Equal | Operator::NotEqual
        ),
    }
}

/// Two elements of vectors. `None` if a comparison filters them out, or if the operator does not take these kinds.
pub(crate) fn combined(
    op: Operator,
    lhs: &Element,
    rhs: &Element,
    return_bool: bool,
    about: &mut About<'_>,
) -> Option<Element> {
    let compared = |holds: bool, kept: &Arc<NativeHistogram>| match (return_bool, holds) {
        (true, holds) => Some(Element::Float(f64::from(u8::from(holds)))),
        (false, true) => Some(Element::Histogram(Arc::clone(kept))),
        (false, false) => None,
    };

    // Such elements leave the result with an info, not an error, so that mixed series can be asked.
    let is_histogram = |element: &Element| matches!(element, Element::Histogram(_));
    if !takes(op, is_histogram(lhs), is_histogram(rhs)) {
        about.incompatible(lhs.kind(), op.name(), rhs.kind());
        return None;
    }
    match (op, lhs, rhs) {
        (_, Element::Float(lhs), Element::Float(rhs)) => {
            elements(op, *lhs, *rhs, return_bool).map(Element::Float)
        }
        (Operator::Mul, Element::Float(factor), Element::Histogram(histogram))
        | (Operator::Mul, Element::Histogram(histogram), Element::Float(factor)) => {
            changed(histogram, |histogram| histogram.scale(*factor))
        }
        (Operator::Div, Element::Histogram(histogram), Element::Float(by)) => {
            changed(histogram, |histogram| histogram.divide(*by))
        }
        (Operator::Add, Element::Histogram(lhs), Element::Histogram(rhs)) => {
            join(lhs, rhs, HistogramOperation::Addition, about)?;
            changed(lhs, |lhs| lhs.add(rhs))
        }
        (Operator::Sub, Element::Histogram(lhs), Element::Histogram(rhs)) => {
            join(lhs, rhs, HistogramOperation::Subtraction, about)?;
            // A difference may fall, so it is no counter whose resets count.
            changed(lhs, |lhs| {
                lhs.subtract(rhs);
                lhs.hint = ResetHint::Gauge;
            })
        }
        (Operator::Equal, Element::Histogram(lhs), Element::Histogram(rhs)) => {
            compared(lhs.is_same(rhs), lhs)
        }
        (Operator::NotEqual, Element::Histogram(lhs), Element::Histogram(rhs)) => {
            compared(!lhs.is_same(rhs), lhs)
        }
        _ => None,
    }
}

/// Remarks what two operands of an operator lose. `None` if they have no result.
fn join(
    lhs: &NativeHistogram,
    rhs: &NativeHistogram,
    operation: HistogramOperation,
    about: &mut About<'_>,
) -> Option<()> {
    if !lhs.has_kind_of(rhs) {
        about.mixed_buckets_of_operator(operation);
        return None;
    }
    if lhs.differs_in_bounds(rhs) {
        about.bounds_reconciled_by_operator(operation);
    }
    Some(())
}

fn changed(
    histogram: &NativeHistogram,
    change: impl FnOnce(&mut NativeHistogram),
) -> Option<Element> {
    // A copy: the store and other steps share the histogram.
    let mut histogram = histogram.clone();
    change(&mut histogram);
    histogram.compact();
    Some(Element::Histogram(Arc::new(histogram)))
}

/// The sums or means of the histograms of a group, one a step. A step with floats, too, has no result.
pub(crate) fn totals(
    op: Aggregation,
    group: &Group,
    values: &mut [Option<f64>],
    about: &mut About<'_>,
) -> Histograms {
    let mut totals: Histograms = vec![None; values.len()];
    for (step, (total, value)) in totals.iter_mut().zip(values).enumerate() {
        let mut present = group
            .members
            .iter()
            .filter_map(|one| Some((one, one.histogram(step)?)));
        let Some((_, first)) = present.next() else {
            continue;
        };

        // Floats and histograms have no common sum; Prometheus leaves the group out with a warning.
        if value.take().is_some() {
            about.mixed_group();
            continue;
        }

        let mut count = 1.0;
        let mut sum = NativeHistogram::clone(first);
        let mut is_reconciled = false;
        let other_kind = present.find(|(_, histogram)| {
            if !histogram.has_kind_of(first) {
                return true;
            }
            is_reconciled |= sum.differs_in_bounds(histogram);
            sum.add(histogram);
            count += 1.0;
            false
        });
        if let Some((column, _)) = other_kind {
            about.mixed_buckets_in_group(column.labels.metric());
            continue;
        }

        // Once a step, although several members may differ.
        if is_reconciled {
            about.bounds_reconciled_in_group();
        }

        if op == Aggregation::Avg {
            sum.divide(count);
        }
        sum.compact();
        *total = Some(Arc::new(sum));
    }
    totals
}

/// Remarks that an aggregation passes over histograms.
pub(crate) fn remark_ignored<'a>(
    op: Aggregation,
    columns: impl IntoIterator<Item = &'a Column>,
    part: AggregationPart,
    about: &mut About<'_>,
) {
    let mut columns = columns.into_iter();
    if columns.any(|column| column.histograms.iter().any(Option::is_some)) {
        about.histogram_ignored(op.name(), part);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Memory, Options, Value, instant};
    use takt_model::native::NativeHistogram;
    use takt_model::{Labels, Timestamp};

    fn memory() -> Memory {
        let mut memory = Memory::new();
        for (node, seed) in [("g01", 1.0), ("g02", 2.0)] {
            let labels: Labels = [("__name__", "x"), ("node", node)].into_iter().collect();
            let of = |count: f64| NativeHistogram {
                count,
                sum: 3.0 * count,
                positive: vec![(2, count)],
                ..NativeHistogram::default()
            };
            let samples = [0, 60, 120].map(|at| {
                let count = seed * (1.0 + f64::from(at));
                (Timestamp::from_seconds(at.into()), of(count))
            });
            memory.add_histograms(labels.clone(), samples);

            // The series is a histogram until 120 s and a float from 240 s on.
            memory.add(labels, [(Timestamp::from_seconds(240), Some(5.0))]);
        }
        memory
    }

    fn shown(query: &str, at: i64) -> Vec<String> {
        let options = Options::default();
        let answer = instant(&memory(), query, Timestamp::from_seconds(at), &options).unwrap();
        let Value::Vector(samples) = answer.value else {
            panic!("no vector")
        };
        let texts = samples.iter().map(|sample| match &sample.histogram {
            Some(histogram) => format!("{} {histogram}", sample.labels),
            None => format!("{} {}", sample.labels, sample.point.value),
        });
        let [warnings, infos] = answer.annotations.messages();
        texts.chain(warnings).chain(infos).collect()
    }

    #[test]
    fn histograms_take_part_in_queries() {
        assert_eq!(
            shown("sum(x)", 120),
            ["{} {count:363, sum:1089, (2,4]:363}"]
        );
        assert_eq!(
            shown("increase(x{node=\"g01\"}[2m])", 120),
            ["{node=\"g01\"} {count:120, sum:360, (2,4]:120}"]
        );
        assert_eq!(
            shown("histogram_count(x) > 200", 120),
            ["{node=\"g02\"} 242"]
        );
        // The float that follows ends the histograms.
        assert_eq!(shown("count(x == 5)", 250), ["{} 2"]);
        assert_eq!(
            shown("count_over_time(x{node=\"g01\"}[5m])", 250),
            ["{node=\"g01\"} 4"]
        );
    }

    #[test]
    fn floats_and_histograms_do_not_mix() {
        let remark = "PromQL warning: encountered a mix of histograms and floats for";
        assert_eq!(
            shown("rate(x{node=\"g01\"}[5m])", 240),
            [format!("{remark} metric name \"x\" (1:6)")]
        );
        let query = "sum(x{node=\"g01\"} or label_replace(vector(1), \"a\", \"b\", \"\", \"\"))";
        assert_eq!(shown(query, 120), [format!("{remark} aggregation (1:5)")]);
        let info = "PromQL info: incompatible sample types encountered for binary operator";
        assert_eq!(
            shown("1 + x", 120),
            [format!("{info} \"+\": float + histogram (1:1)")]
        );
    }
}
