//! The instants of a query, and the samples that it looks at for each of them.

use crate::plan::Shift;
use std::ops::Range;
use takt_model::Timestamp;

/// The instants of evaluation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    pub start: Timestamp,
    pub step_ms: i64,
    pub steps: usize,
}

impl Grid {
    /// From `start` to `end`, both included; empty where the end comes first.
    pub fn new(start: Timestamp, end: Timestamp, step_ms: i64) -> Self {
        // In 128 bits: the ends may be the smallest and the largest time.
        let span = i128::from(end.0) - i128::from(start.0);
        let steps = if span < 0 {
            0
        } else {
            usize::try_from(span / i128::from(step_ms) + 1).unwrap_or(usize::MAX)
        };
        Self {
            start,
            step_ms,
            steps,
        }
    }

    #[inline]
    pub fn time(&self, step: usize) -> Timestamp {
        self.start
            .plus_ms((step as i64).saturating_mul(self.step_ms))
    }

    /// The steps that look at instants in `[from, until)`; all steps if they look at the same one.
    pub fn steps_at(&self, shift: Shift, from: Timestamp, until: Timestamp) -> Range<usize> {
        if shift.at.is_some() {
            return 0..self.steps;
        }
        let step_of = |at: Timestamp| {
            let since = i128::from(at.0) + i128::from(shift.offset_ms) - i128::from(self.start.0);
            let step_ms = i128::from(self.step_ms.max(1));
            // Rounded up: the first step that is not before the instant.
            let step = (since.max(0) + step_ms - 1) / step_ms;
            usize::try_from(step).map_or(self.steps, |step| step.min(self.steps))
        };
        let begin = step_of(from);
        begin..step_of(until).max(begin)
    }

    pub fn times(&self) -> impl Iterator<Item = Timestamp> + '_ {
        (0..self.steps).map(|step| self.time(step))
    }

    pub fn last(&self) -> Timestamp {
        self.time(self.steps.saturating_sub(1))
    }
}

/// How many samples each step of a query has looked at.
#[derive(Debug)]
pub(crate) struct StepSamples {
    grid: Grid,
    counts: Vec<u64>,
}

impl StepSamples {
    /// No sample for any step of the grid.
    pub fn new(grid: Grid) -> Self {
        Self {
            grid,
            counts: vec![0; grid.steps],
        }
    }

    /// Returns the samples of each step.
    pub fn into_counts(self) -> Vec<u64> {
        self.counts
    }

    /// Adds the samples looked at for each instant of a grid, the query's own or a subquery's.
    pub fn add(&mut self, grid: &Grid, counts: &[u64]) {
        for (at, count) in grid.times().zip(counts).filter(|(_, count)| **count > 0) {
            self.add_at(at, *count);
        }
    }

    /// Adds samples to the step at that instant, or else to the next one.
    fn add_at(&mut self, at: Timestamp, count: u64) {
        let Grid {
            start,
            step_ms,
            steps,
        } = self.grid;
        // Instants of subqueries lie between the steps of the query, and before its start.
        let after = (i128::from(at.0) - i128::from(start.0) + i128::from(step_ms) - 1)
            .div_euclid(i128::from(step_ms));
        let step = usize::try_from(after.max(0))
            .unwrap_or(usize::MAX)
            .min(steps.saturating_sub(1));
        if let Some(counted) = self.counts.get_mut(step) {
            *counted += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn steps_are_those_that_look_at_the_range(
            start in -50_i64..50,
            step_ms in 1_i64..20,
            steps in 0_usize..12,
            offset_ms in -60_i64..60,
            from in -150_i64..150,
            length in 0_i64..150,
        ) {
            let grid = Grid {
                start: Timestamp(start),
                step_ms,
                steps,
            };
            let shift = Shift {
                at: None,
                offset_ms,
            };
            let (from, until) = (Timestamp(from), Timestamp(from + length));
            let found = grid.steps_at(shift, from, until);
            for step in 0..steps {
                let at = shift.apply(grid.time(step));
                prop_assert_eq!(found.contains(&step), (from..until).contains(&at));
            }
            prop_assert!(found.end <= steps);
        }
    }
}
