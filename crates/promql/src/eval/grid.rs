//! The instants of a query, and the samples that it looks at for each of them.

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

    pub fn time(&self, step: usize) -> Timestamp {
        self.start
            .plus_ms((step as i64).saturating_mul(self.step_ms))
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
