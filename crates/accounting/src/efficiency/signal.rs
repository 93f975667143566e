//! Evaluates the samples of a gauge or a counter during a run.
//!
//! A gauge's sample is valid for the time nearest to it, up to [`Window::reach_ms`]; beyond that
//! the value is unknown. Time outside the run is cut off, and samples from outside are ignored. A
//! counter also covers the time between distant samples.

use takt_model::Timestamp;

/// Time of a run and reach of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// First instant of the run.
    pub from: Timestamp,
    /// First instant after the run.
    pub to: Timestamp,
    /// Longest time before and after a sample for which it is valid, in milliseconds.
    pub reach_ms: i64,
}

/// A piece of time with one value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretch {
    /// First instant.
    pub from: Timestamp,
    /// First instant after it.
    pub to: Timestamp,
    /// Value.
    pub value: f64,
}

impl Stretch {
    /// Returns the length in milliseconds.
    pub fn ms(&self) -> i64 {
        self.to - self.from
    }
}

/// Converts a gauge's samples to stretches.
#[derive(Debug, Clone)]
pub struct GaugeReader {
    window: Window,
    /// Time and value of the last sample, and the start of its validity.
    last: Option<(Timestamp, f64, Timestamp)>,
    /// The next sample is not valid before this instant, because the series had ended.
    floor: Timestamp,
}

impl GaugeReader {
    /// Starts without samples.
    pub fn new(window: Window) -> Self {
        Self {
            window,
            last: None,
            floor: window.from,
        }
    }

    /// Adds the next sample; `None` ends the series. Returns the stretch of the previous sample,
    /// which this one completes. Samples outside the run or out of order are ignored.
    pub fn push(&mut self, at: Timestamp, value: Option<f64>) -> Option<Stretch> {
        let is_next = self.last.is_none_or(|(last, ..)| at > last);
        // A sample that is not newer than the last one has nothing to add.
        if at < self.window.from || at > self.window.to || !is_next {
            return None;
        }
        let reach = self.window.reach_ms;
        // Two samples share the time between them; the end of a series ends the last one at once.
        let boundary = match (self.last, value) {
            (Some((last, ..)), Some(_)) => last.plus_ms((at - last) / 2),
            (_, None) => at,
            (None, Some(_)) => self.floor,
        };
        let before = self.close(boundary);
        self.floor = boundary;
        // The reach ends the time before a sample that follows a gap.
        self.last = value.map(|value| (at, value, boundary.max(at.minus_ms(reach))));
        before
    }

    /// Returns the stretch of the last sample.
    pub fn finish(mut self) -> Option<Stretch> {
        self.close(Timestamp::MAX)
    }

    fn close(&mut self, boundary: Timestamp) -> Option<Stretch> {
        let (at, value, from) = self.last.take()?;
        let stretch = Stretch {
            from: from.max(self.window.from),
            to: boundary
                .min(at.plus_ms(self.window.reach_ms))
                .min(self.window.to),
            value,
        };
        (stretch.ms() > 0).then_some(stretch)
    }
}

/// Mean and maximum of a gauge.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Level {
    sum: f64,
    covered_ms: i64,
    max: Option<f64>,
}

impl Level {
    /// Adds a stretch.
    pub fn add(&mut self, stretch: Stretch) {
        self.sum += stretch.value * stretch.ms() as f64;
        self.covered_ms += stretch.ms();
        self.max = Some(self.max.map_or(stretch.value, |max| max.max(stretch.value)));
    }

    /// Returns the mean over the covered time.
    pub fn mean(&self) -> Option<f64> {
        (self.covered_ms > 0).then(|| self.sum / self.covered_ms as f64)
    }

    /// Returns the maximum.
    pub fn max(&self) -> Option<f64> {
        self.max
    }

    /// Returns the covered time in seconds.
    pub fn covered_seconds(&self) -> f64 {
        self.covered_ms as f64 / 1e3
    }

    /// Returns the integral over time: joules, for watts.
    pub fn integral(&self) -> f64 {
        self.sum / 1e3
    }
}

/// Steps of 1 % from 0 to 100 %, NVML's resolution of utilization.
const STEPS: usize = 101;

/// Statistics of a utilization between 0 and 1: level, idle time, idle streaks.
#[derive(Debug, Clone)]
pub struct Activity {
    idle_below: f64,
    streak_floor_ms: i64,
    level: Level,
    by_step_ms: [i64; STEPS],
    idle_ms: i64,
    longest_ms: i64,
    /// Length and integral of the current idle streak.
    streak: (i64, f64),
    streak_until: Option<Timestamp>,
    /// Length and integral of all idle streaks that were long enough.
    streaks: (i64, f64),
}

impl Activity {
    /// Utilization below `idle_below` is idle. Idle streaks count from `streak_floor_ms` on.
    pub fn new(idle_below: f64, streak_floor_ms: i64) -> Self {
        Self {
            idle_below,
            streak_floor_ms,
            level: Level::default(),
            by_step_ms: [0; STEPS],
            idle_ms: 0,
            longest_ms: 0,
            streak: (0, 0.0),
            streak_until: None,
            streaks: (0, 0.0),
        }
    }

    /// Adds the next stretch. A gap before it ends an idle streak, because unmeasured time is not
    /// idle.
    pub fn add(&mut self, stretch: Stretch) {
        self.level.add(stretch);
        let step = (stretch.value * 100.0).round().clamp(0.0, 100.0) as usize;
        self.by_step_ms[step] += stretch.ms();
        // A gap or work ends the streak.
        let goes_on = self.streak_until == Some(stretch.from);
        if !goes_on || stretch.value >= self.idle_below {
            self.end_streak();
        }
        if stretch.value < self.idle_below {
            self.idle_ms += stretch.ms();
            self.streak.0 += stretch.ms();
            self.streak.1 += stretch.value * stretch.ms() as f64;
            self.longest_ms = self.longest_ms.max(self.streak.0);
            self.streak_until = Some(stretch.to);
        }
    }

    fn end_streak(&mut self) {
        if self.streak.0 >= self.streak_floor_ms {
            self.streaks.0 += self.streak.0;
            self.streaks.1 += self.streak.1;
        }
        self.streak = (0, 0.0);
        self.streak_until = None;
    }

    /// Returns the figures, if any time was covered.
    pub fn finish(mut self) -> Option<ActivityFigures> {
        self.end_streak();
        let mean = self.level.mean()?;
        let covered = self.level.covered_ms;
        // Streaks are taken out of time and sum alike, so that the rest is the mean of the work.
        let working_ms = covered - self.streaks.0;
        // Rounding of the sums may give a tiny negative number.
        let working_sum = (self.level.sum - self.streaks.1).max(0.0);

        Some(ActivityFigures {
            covered_seconds: self.level.covered_seconds(),
            mean,
            p95: self.percentile(0.95),
            idle_ratio: self.idle_ms as f64 / covered as f64,
            idle_longest_seconds: self.longest_ms as f64 / 1e3,
            idle_streak_seconds: self.streaks.0 as f64 / 1e3,
            working_mean: if working_ms > 0 {
                working_sum / working_ms as f64
            } else {
                0.0
            },
        })
    }

    /// Returns the lowest step at or below which the fraction `p` of the time was spent.
    fn percentile(&self, p: f64) -> f64 {
        let wanted = p * self.level.covered_ms as f64;
        let mut spent = 0;
        let reached = |step: &usize| {
            spent += self.by_step_ms[*step];
            spent as f64 >= wanted
        };
        (0..STEPS).find(reached).unwrap_or(STEPS - 1) as f64 / 100.0
    }
}

/// Statistics of a utilization. Ratios are from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ActivityFigures {
    /// Covered time in seconds.
    pub covered_seconds: f64,
    /// Mean over the covered time.
    pub mean: f64,
    /// 95th percentile by time.
    pub p95: f64,
    /// Idle fraction of the covered time.
    pub idle_ratio: f64,
    /// Longest continuous idle time, in seconds.
    pub idle_longest_seconds: f64,
    /// Time in idle streaks that were long enough to count, in seconds.
    pub idle_streak_seconds: f64,
    /// Mean outside these streaks.
    pub working_mean: f64,
}

/// Growth of a counter during a run.
///
/// Between two samples the counter is assumed to grow evenly, so the ends of the run are cut in
/// proportion. A smaller value means that the counter was reset and has counted from 0 since.
#[derive(Debug, Clone, Copy)]
pub struct Growth {
    window: Window,
    last: Option<(Timestamp, f64)>,
    grown: f64,
    covered_ms: i64,
}

impl Growth {
    /// Starts without samples.
    pub fn new(window: Window) -> Self {
        Self {
            window,
            last: None,
            grown: 0.0,
            covered_ms: 0,
        }
    }

    /// Starts with a counter that was created, at 0, when the run began.
    pub fn from_zero(window: Window) -> Self {
        Self {
            last: Some((window.from, 0.0)),
            ..Self::new(window)
        }
    }

    /// Adds the next sample. Returns the growth since the previous one within the run.
    pub fn push(&mut self, at: Timestamp, value: f64) -> Option<Stretch> {
        let Some((last_at, last)) = self.last else {
            self.last = Some((at, value));
            return None;
        };
        // A sample that comes twice has no growth.
        if at <= last_at {
            return None;
        }

        self.last = Some((at, value));
        // A counter that was reset has counted from 0 since.
        let grown = if value < last { value } else { value - last };

        // Cut at the ends of the run, in proportion to the time.
        let from = last_at.max(self.window.from);
        let to = at.min(self.window.to);
        if to <= from {
            return None;
        }

        let part = grown * (to - from) as f64 / (at - last_at) as f64;
        self.grown += part;
        self.covered_ms += to - from;

        Some(Stretch {
            from,
            to,
            value: part,
        })
    }

    /// Returns the total growth. `None` with fewer than two samples.
    pub fn total(&self) -> Option<f64> {
        (self.covered_ms > 0).then_some(self.grown)
    }

    /// Returns the time between the first and the last sample within the run, in seconds.
    pub fn covered_seconds(&self) -> f64 {
        self.covered_ms as f64 / 1e3
    }
}

#[cfg(test)]
mod tests;
