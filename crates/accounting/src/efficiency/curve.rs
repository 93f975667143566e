//! Curves: means of a reading over equal steps of a run's time.

use super::signal::{GaugeReader, Stretch, Window};
use serde::{Deserialize, Serialize};
use takt_model::Timestamp;

/// Time axis of curves: equal steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// Start of the first step.
    #[serde(rename = "from_ms")]
    pub from: Timestamp,
    /// Length of a step, in milliseconds.
    pub step_ms: i64,
    /// Number of steps.
    pub steps: usize,
}

impl Axis {
    /// Returns an axis from one instant to another with at most `steps` steps, none shorter than
    /// `shortest_ms`. The last step may end later than `to`.
    pub fn new(from: Timestamp, to: Timestamp, steps: usize, shortest_ms: i64) -> Self {
        let length = (to - from).max(1);
        let most = i64::try_from(steps.max(1)).unwrap_or(i64::MAX);
        // Rounded up, so that the axis covers the time with no more steps than asked for.
        let step_ms = ((length + most - 1) / most).max(shortest_ms).max(1);
        Self {
            from,
            step_ms,
            steps: usize::try_from((length + step_ms - 1) / step_ms).unwrap_or(0),
        }
    }

    /// Returns the end of the last step.
    pub fn to(&self) -> Timestamp {
        let steps = i64::try_from(self.steps).unwrap_or(i64::MAX);
        self.from.plus_ms(steps.saturating_mul(self.step_ms))
    }
}

/// Means of a reading by step. `None` where the step was not measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Curve(pub Vec<Option<f64>>);

impl Curve {
    /// Returns whether any step was measured.
    pub fn is_measured(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    /// Returns the curve as text: one character a step, from `(` for 0 to `~` for `most`, and a space
    /// where the step was not measured. A value is exact to 1/86 of `most`.
    pub fn to_text(&self, most: f64) -> String {
        self.0
            .iter()
            .map(|value| match value {
                None => ' ',
                Some(value) => {
                    // A curve of zeros has 0 as its highest value.
                    let share = if most > 0.0 { value / most } else { 0.0 };
                    char::from(FIRST_LEVEL + (share.clamp(0.0, 1.0) * LEVELS).round() as u8)
                }
            })
            .collect()
    }

    /// Returns the curve of a text that [`Curve::to_text`] wrote with the same `most`.
    pub fn of_text(text: &str, most: f64) -> Self {
        let values = text
            .bytes()
            .map(|character| {
                // A space is below the first level: the step was not measured.
                let level = character.checked_sub(FIRST_LEVEL)?;
                Some(f64::from(level) / LEVELS * most)
            })
            .collect();
        Self(values)
    }

    /// Returns the steps `[from, until)`, each `length` of them as one: the mean of the measured
    /// ones.
    pub fn part(&self, from: usize, until: usize, length: usize) -> Self {
        let steps = self.0.get(from..until.min(self.0.len())).unwrap_or(&[]);
        let parts = steps
            .chunks(length.max(1))
            .map(|part| mean_of(part.iter().copied()))
            .collect();
        Self(parts)
    }

    /// Returns the intervals of at least `shortest` steps in which every value is below `below`:
    /// first step, and first step after the interval.
    pub fn streaks(&self, below: f64, shortest: usize) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        let mut begin = None;
        // One more unmeasured step ends a streak at the end of the curve.
        for (step, value) in self.0.iter().chain([&None]).enumerate() {
            if value.is_some_and(|value| value < below) {
                begin.get_or_insert(step);
            } else if let Some(first) = begin.take()
                && step - first >= shortest
            {
                found.push((first, step));
            }
        }
        found
    }

    /// Returns the mean of several curves by step, over those that were measured there.
    pub fn mean(curves: &[&Self]) -> Self {
        let steps = curves.iter().map(|curve| curve.0.len()).max().unwrap_or(0);
        let at = |step: usize| curves.iter().map(move |curve| *curve.0.get(step)?);
        Self((0..steps).map(|step| mean_of(at(step))).collect())
    }
}

/// Character of the value 0 in a curve as text.
const FIRST_LEVEL: u8 = b'(';

/// Number of levels above 0 in a curve as text: the last character is `~`.
const LEVELS: f64 = (b'~' - FIRST_LEVEL) as f64;

/// Sums the stretches of a reading by step.
#[derive(Debug, Clone)]
pub struct CurveMeter {
    axis: Axis,
    /// Value × milliseconds, and milliseconds, of each step.
    sums: Vec<(f64, i64)>,
}

impl CurveMeter {
    /// Starts without stretches.
    pub fn new(axis: Axis) -> Self {
        Self {
            axis,
            sums: vec![(0.0, 0); axis.steps],
        }
    }

    /// Adds a stretch of a gauge. Time outside the axis is ignored.
    pub fn add(&mut self, stretch: Stretch) {
        let axis = self.axis;
        let mut from = stretch.from.max(axis.from);
        let to = stretch.to.min(axis.to());

        while from < to {
            // The step may end within the stretch, which then goes to the next one too.
            let step = (from - axis.from) / axis.step_ms;
            let until = axis.from.plus_ms((step + 1) * axis.step_ms).min(to);
            if let Some(sum) = self
                .sums
                .get_mut(usize::try_from(step).unwrap_or(usize::MAX))
            {
                sum.0 += stretch.value * (until - from) as f64;
                sum.1 += until - from;
            }

            from = until;
        }
    }

    /// Adds the growth of a counter: the curve shows the growth per second.
    pub fn add_growth(&mut self, growth: Stretch) {
        if growth.ms() > 0 {
            let per_second = growth.value * 1e3 / growth.ms() as f64;
            self.add(Stretch {
                value: per_second,
                ..growth
            });
        }
    }

    /// Returns the means, rounded to a multiple of `unit`. A step counts as measured if a quarter
    /// of it was covered.
    pub fn finish(&self, unit: f64) -> Curve {
        let means = self
            .sums
            .iter()
            .map(|(sum, ms)| {
                let rounded = || (sum / *ms as f64 / unit).round() * unit;
                // Multiplying by 0.001 would leave digits such as 0.30000000000000004.
                // A step of which a few seconds were measured would show a value that is not its mean.
                (*ms > 0 && *ms * 4 >= self.axis.step_ms).then(|| (rounded() * 1e6).round() / 1e6)
            })
            .collect();
        Curve(means)
    }
}

/// Returns the mean of the known values.
fn mean_of(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut sum = 0.0;
    let mut count = 0_u32;
    for value in values.flatten() {
        sum += value;
        count += 1;
    }
    (count > 0).then(|| sum / f64::from(count))
}

/// Reads the samples of a gauge into a curve.
#[derive(Debug, Clone)]
pub(super) struct GaugeCurve {
    reader: GaugeReader,
    meter: CurveMeter,
}

impl GaugeCurve {
    pub(super) fn new(window: Window, axis: Axis) -> Self {
        Self {
            reader: GaugeReader::new(window),
            meter: CurveMeter::new(axis),
        }
    }

    pub(super) fn push(&mut self, at: Timestamp, value: Option<f64>) {
        if let Some(stretch) = self.reader.push(at, value) {
            self.meter.add(stretch);
        }
    }

    pub(super) fn finish(self, unit: f64) -> Curve {
        let Self { reader, mut meter } = self;
        // The last sample has its reach, too.
        if let Some(stretch) = reader.finish() {
            meter.add(stretch);
        }
        meter.finish(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_covers_the_time_with_steps_that_are_not_too_short() {
        let axis = |from, to| Axis::new(Timestamp(from), Timestamp(to), 120, 15_000);
        let hour = axis(0, 3_600_000);

        assert_eq!(hour.step_ms, 30_000);
        assert_eq!(hour.steps, 120);
        assert_eq!(hour.to(), Timestamp(3_600_000));
        let short = axis(0, 61_000);
        assert_eq!(short.step_ms, 15_000);
        assert_eq!(short.steps, 5);
        assert!(short.to() >= Timestamp(61_000));
        assert_eq!(axis(5, 5).steps, 1);
    }

    #[test]
    fn a_curve_survives_as_text() {
        let curve = Curve(vec![None, Some(0.0), Some(40.0), Some(80.0), Some(99.0)]);
        let text = curve.to_text(80.0);
        // A value above the highest has the highest level.
        assert_eq!(text, " (S~~");
        let read = Curve::of_text(&text, 80.0);
        assert_eq!(
            read.0,
            [None, Some(0.0), Some(40.0), Some(80.0), Some(80.0)]
        );
        assert_eq!(Curve(vec![Some(0.0)]).to_text(0.0), "(");
        assert_eq!(read.part(1, 9, 2).0, [Some(20.0), Some(80.0)]);
        assert_eq!(read.part(0, 2, 2).0, [Some(0.0)], "a gap does not count");
        assert_eq!(read.part(7, 9, 1).0, []);
    }

    #[test]
    fn a_curve_has_gaps_where_nothing_was_measured() {
        let axis = Axis::new(Timestamp(0), Timestamp(40_000), 4, 1);
        let mut meter = CurveMeter::new(axis);
        let stretch = |from, to, value| Stretch {
            from: Timestamp(from),
            to: Timestamp(to),
            value,
        };
        // One stretch begins before the axis, and another ends behind it.
        meter.add(stretch(-5_000, 15_000, 1.0));
        meter.add(stretch(15_000, 20_000, 0.5));
        meter.add(stretch(38_000, 90_000, 0.3));
        assert_eq!(
            meter.finish(0.01),
            Curve(vec![Some(1.0), Some(0.75), None, None]),
            "the last step is covered by a fifth"
        );
        let mut cpu = CurveMeter::new(axis);
        cpu.add_growth(stretch(0, 20_000, 60.0));
        assert_eq!(cpu.finish(0.1).0[..2], [Some(3.0), Some(3.0)]);
        // The curves have different lengths, and gaps at different places.
        let mean = Curve::mean(&[
            &Curve(vec![Some(1.0), None, None]),
            &Curve(vec![Some(0.0), Some(0.5)]),
        ]);
        assert_eq!(mean, Curve(vec![Some(0.5), Some(0.5), None]));
        // A streak ends at work, at a gap, and at the end of the curve.
        let idle = [0.0, 0.0, 0.9, 0.0, 0.01, 0.0].map(Some);
        let curve = Curve([&idle[..], &[None], &idle[..2]].concat());
        assert_eq!(curve.streaks(0.05, 2), [(0, 2), (3, 6), (7, 9)]);
        assert_eq!(curve.streaks(0.05, 3), [(3, 6)]);
    }
}
