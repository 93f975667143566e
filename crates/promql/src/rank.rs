//! Aggregations that pick elements instead of combining them (`aggregationK` in `promql/engine.go`).

use crate::aggregate::Group;
use crate::annotations::{About, AggregationPart};
use crate::column::Column;
use crate::error::Error;
use crate::native;
use crate::numbers::format_g;
use crate::plan::Aggregation;
use takt_model::Labels;
use xxhash_rust::xxh64::xxh64;

/// `topk`, `bottomk`, `limitk`, `limit_ratio`; the parameter has one value a step.
///
/// At a single step the result has the order of rank, group by group; over several, a column keeps the steps at which
/// it was picked.
pub(crate) fn rank(
    op: Aggregation,
    param: &[f64],
    groups: Vec<Group>,
    steps: usize,
    about: &mut About<'_>,
) -> Result<Vec<Column>, Error> {
    if !validate(op, param, about)? {
        return Ok(Vec::new());
    }

    let mut result = Vec::new();
    for group in groups {
        let mut members = group.members;
        match op {
            Aggregation::LimitRatio => {
                for member in &mut members {
                    let place = sampling_place(&member.labels);
                    keep(member, |step| in_ratio(param[step], place));
                }
                result.extend(members.into_iter().filter_map(Column::unless_empty));
            }
            _ => {
                // `limitk` takes histograms; the others need an order, which histograms do not
                // have.
                if op != Aggregation::Limitk {
                    native::remark_ignored(op, &members, AggregationPart::Whole, about);
                }
                result.extend(pick(op, param, members, steps));
            }
        }
    }
    Ok(result)
}

/// Whether there is anything to pick.
fn validate(op: Aggregation, param: &[f64], about: &mut About<'_>) -> Result<bool, Error> {
    let mut min = f64::INFINITY;
    let mut max = f64::NEG_INFINITY;
    for value in param {
        (min, max) = (min.min(*value), max.max(*value));
    }

    // `min` and `max` of floats pass over NaN.
    let nan = param.iter().any(|value| value.is_nan());
    let refuse = |text: String| Err(Error::Execution(text));
    if op == Aggregation::LimitRatio {
        // A ratio of 0 picks nothing, which is no error.
        if !nan && min == 0.0 && max == 0.0 {
            return Ok(false);
        }
        if nan {
            return refuse("Ratio value is NaN".to_owned());
        }
        if max > 1.0 {
            about.invalid_ratio(max, 1.0);
        }
        if min < -1.0 {
            about.invalid_ratio(min, -1.0);
        }
        return Ok(true);
    }

    if !nan && max < 1.0 {
        return Ok(false);
    }
    if nan {
        return refuse("Parameter value is NaN".to_owned());
    }

    // Prometheus converts the parameter to an int64 and refuses one that does not fit, as do its
    // messages.
    if min <= i64::MIN as f64 {
        return refuse(format!("Scalar value {} underflows int64", format_g(min)));
    }
    if max >= i64::MAX as f64 {
        return refuse(format!("Scalar value {} overflows int64", format_g(max)));
    }
    Ok(true)
}

fn pick(op: Aggregation, param: &[f64], mut members: Vec<Column>, steps: usize) -> Vec<Column> {
    let mut picked = vec![vec![false; steps]; members.len()];

    // Members keep their order over several steps, as no rank holds for all of them.
    let mut order: Vec<usize> = (0..members.len()).collect();

    for (step, k) in param.iter().enumerate() {
        // A cast from f64 saturates, so a huge `k` picks all.
        let k = if *k < 1.0 { 0 } else { *k as usize };
        let chosen = match op {
            Aggregation::Limitk => (0..members.len())
                .filter(|at| members[*at].is_present(step))
                .take(k)
                .collect(),
            _ => best(&members, step, k, op == Aggregation::Topk),
        };
        chosen.iter().for_each(|at| picked[*at][step] = true);
        if steps == 1 {
            order = chosen;
        }
    }

    for (member, picked) in members.iter_mut().zip(&picked) {
        keep(member, |step| picked[step]);
    }

    let mut members: Vec<Option<Column>> = members.into_iter().map(Some).collect();
    order
        .into_iter()
        .filter_map(|at| members[at].take().and_then(Column::unless_empty))
        .collect()
}

/// The `k` largest or smallest, best first. NaN is worst both ways. Which of equals stays depends on a heap's layout,
/// so the heap is Go's.
fn best(members: &[Column], step: usize, k: usize, largest: bool) -> Vec<usize> {
    if k == 0 {
        return Vec::new();
    }

    // The worst of those kept is on top.
    let worse = |a: f64, b: f64| a.is_nan() || if largest { a < b } else { a > b };
    let mut heap: Vec<(usize, f64)> = Vec::new();
    for (at, value) in members
        .iter()
        .enumerate()
        .filter_map(|(at, member)| Some((at, member.values[step]?)))
    {
        if heap.len() < k {
            heap.push((at, value));
            sift_up(&mut heap, worse);
        } else if !value.is_nan() && worse(heap[0].1, value) {
            heap[0] = (at, value);
            sift_down(&mut heap, worse);
        }
    }

    // The heap only knows the worst; the answer has the best first and NaN last.
    heap.sort_by(|(_, a), (_, b)| {
        a.partial_cmp(b)
            .map(|order| if largest { order.reverse() } else { order })
            .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
    });
    heap.into_iter().map(|(at, _)| at).collect()
}

/// `container/heap`, `up`, for the last element.
fn sift_up(heap: &mut [(usize, f64)], worse: impl Fn(f64, f64) -> bool) {
    let mut child = heap.len() - 1;
    while child > 0 {
        let parent = (child - 1) / 2;
        if !worse(heap[child].1, heap[parent].1) {
            break;
        }
        heap.swap(child, parent);
        child = parent;
    }
}

/// `container/heap`, `down`, for the first element.
fn sift_down(heap: &mut [(usize, f64)], worse: impl Fn(f64, f64) -> bool) {
    let mut parent = 0;
    loop {
        let mut child = 2 * parent + 1;
        if child >= heap.len() {
            break;
        }
        if child + 1 < heap.len() && worse(heap[child + 1].1, heap[child].1) {
            child += 1;
        }
        if !worse(heap[child].1, heap[parent].1) {
            break;
        }
        heap.swap(child, parent);
        parent = child;
    }
}

fn keep(column: &mut Column, wanted: impl Fn(usize) -> bool) {
    for step in 0..column.values.len() {
        if !wanted(step) {
            column.clear(step);
        }
    }
}

/// A place between 0 and 1 that depends on nothing but the labels, so that a sample stays the same sample
/// (`HashRatioSampler`). The hash is of Prometheus' own encoding of labels: each name and value behind its length.
fn sampling_place(labels: &Labels) -> f64 {
    let mut encoded = Vec::new();
    for text in labels.iter().flat_map(|(name, value)| [name, value]) {
        // One byte for lengths below 255, else 255 and three bytes (`labels_stringlabels.go`).
        match u8::try_from(text.len()) {
            Ok(length) if length < 255 => encoded.push(length),
            _ => {
                let length = (text.len() as u32).to_le_bytes();
                encoded.extend_from_slice(&[255, length[0], length[1], length[2]]);
            }
        }
        encoded.extend_from_slice(text.as_bytes());
    }
    xxh64(&encoded, 0) as f64 / u64::MAX as f64
}

/// A negative ratio picks exactly what its complement leaves.
fn in_ratio(ratio: f64, place: f64) -> bool {
    let ratio = ratio.clamp(-1.0, 1.0);
    if ratio >= 0.0 {
        place < ratio
    } else {
        place >= 1.0 + ratio
    }
}
