//! Outliers among the GPUs of a job.

use super::readings::{GpuReadings, Metric};
use std::collections::BTreeSet;

/// The direction in which a metric of a slow GPU differs from the others', and the least difference that counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sign {
    pub metric: Metric,
    is_low: bool,
    /// Least difference from the median, as a share of it.
    least_ratio: f64,
    /// Least difference from the median, in the metric's unit.
    least: f64,
}

impl Sign {
    const fn high(metric: Metric, least: f64) -> Self {
        Self {
            metric,
            is_low: false,
            least_ratio: 0.0,
            least,
        }
    }

    const fn low(metric: Metric, least_ratio: f64, least: f64) -> Self {
        Self {
            metric,
            is_low: true,
            least_ratio,
            least,
        }
    }

    /// Whether a value differs from those of the others enough, and in the direction of this sign.
    fn is_shown_by(&self, value: f64, others: Spread) -> bool {
        let difference = if self.is_low {
            others.median - value
        } else {
            value - others.median
        };
        // In a job whose GPUs differ much anyway, a small difference proves nothing.
        let noise = NOISE * others.deviation;
        difference
            >= self
                .least
                .max(self.least_ratio * others.median.abs())
                .max(noise)
    }
}

pub(super) const HELD_DOWN: Sign = Sign::high(Metric::HeldDown, 0.1);
pub(super) const PCIE_DEGRADED: Sign = Sign::high(Metric::PcieDegraded, 0.5);
pub(super) const LINK_ERRORS: Sign = Sign::high(Metric::LinkErrors, 1.0);
pub(super) const CPU_THROTTLED: Sign = Sign::high(Metric::CpuThrottled, 0.1);
pub(super) const FILE_WAIT: Sign = Sign::high(Metric::FileWait, 0.15);
pub(super) const LOW_CLOCK: Sign = Sign::low(Metric::Clock, 0.07, 0.0);
pub(super) const LOW_UTILIZATION: Sign = Sign::low(Metric::Utilization, 0.0, 0.12);

/// Standard deviations from the median within which a value is noise.
const NOISE: f64 = 5.0;

/// The middle of some values, and how far they lie from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub median: f64,
    /// Estimate of the standard deviation from the median absolute deviation, which outliers do not move.
    pub deviation: f64,
}

impl Spread {
    /// Returns `None` without values.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        let median = median(&mut values)?;
        values
            .iter_mut()
            .for_each(|value| *value = (*value - median).abs());
        // The factor that makes this the standard deviation for normally distributed values.
        let deviation = 1.4826 * self::median(&mut values)?;
        Some(Self { median, deviation })
    }
}

/// Returns the median, of an even number of values the mean of the two in the middle.
pub(super) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    let is_odd = values.len() % 2 == 1;
    Some(if is_odd {
        upper
    } else {
        (values[middle - 1] + upper) / 2.0
    })
}

/// The only GPU, or the only node, that differs from the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lone {
    /// Index among the GPUs.
    Gpu(usize),
    /// All GPUs of a node.
    Node(String),
}

impl Lone {
    pub fn has(&self, index: usize, gpu: &GpuReadings) -> bool {
        match self {
            Self::Gpu(one) => *one == index,
            Self::Node(node) => *node == gpu.node,
        }
    }
}

/// Returns the only GPU or node that shows a sign in a window.
pub(super) fn lone(gpus: &[&GpuReadings], window: usize, sign: Sign) -> Option<Lone> {
    let known: Vec<(usize, f64)> = gpus
        .iter()
        .enumerate()
        .filter_map(|(index, gpu)| Some((index, gpu.windows.get(window)?[sign.metric]?)))
        .collect();
    let all = Spread::of(known.iter().map(|(_, value)| *value).collect())?;

    let outliers: Vec<usize> = known
        .iter()
        .filter(|(_, value)| sign.is_shown_by(*value, all))
        .map(|(index, _)| *index)
        .collect();

    if let [one] = outliers[..] {
        return Some(Lone::Gpu(one));
    }

    // Several GPUs are one cause if they are all those of a node, and most GPUs are elsewhere.
    let nodes: BTreeSet<&str> = outliers.iter().map(|index| &*gpus[*index].node).collect();
    let node = nodes.first().filter(|_| nodes.len() == 1)?;
    let on_node = known
        .iter()
        .filter(|(index, _)| gpus[*index].node == **node)
        .count();
    let is_whole = on_node == outliers.len() && known.len() >= 2 * on_node;
    is_whole.then(|| Lone::Node((*node).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_ignores_one_value_far_off() {
        let spread = Spread::of(vec![10.0, 11.0, 9.0, 10.0, 900.0]).unwrap();
        assert_eq!(spread.median, 10.0);
        assert!(spread.deviation < 2.0, "{spread:?}");
        assert_eq!(Spread::of(Vec::new()), None);
        assert_eq!(median(&mut [1.0, 4.0]), Some(2.5));
    }
}
