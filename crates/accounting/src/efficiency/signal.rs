//! What a value did during a run, from samples that come at times of their own.
//!
//! A gauge's sample speaks for the time that is nearest to it, but no further than [`Window::reach_ms`]: beyond that
//! nobody knows. What lies outside the run is cut off, and a sample from outside says nothing about it. A counter knows
//! better: it also counted while nobody looked.

/// The time of a run, and how far a sample speaks. Milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Its first instant.
    pub from_ms: i64,
    /// The first instant after it.
    pub to_ms: i64,
    /// Time on either side of a sample that it speaks for at most.
    pub reach_ms: i64,
}

/// A piece of time with one value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretch {
    /// Its first instant.
    pub from_ms: i64,
    /// The first instant after it.
    pub to_ms: i64,
    /// The value.
    pub value: f64,
}

impl Stretch {
    /// Its length.
    pub fn ms(&self) -> i64 {
        self.to_ms - self.from_ms
    }
}

/// Turns a gauge's samples into stretches.
#[derive(Debug, Clone)]
pub struct Held {
    window: Window,
    /// The last sample, and since when it speaks.
    last: Option<(i64, f64, i64)>,
    /// Before this instant the next sample says nothing: the series had ended here.
    floor_ms: i64,
}

impl Held {
    /// Of a gauge of which nothing is known yet.
    pub fn new(window: Window) -> Self {
        Self {
            window,
            last: None,
            floor_ms: window.from_ms,
        }
    }

    /// The next sample; `None` is the end of the series. The time of the one before is decided by it and returned.
    /// Samples from outside the run, and those that are not later than the one before, are passed over.
    pub fn push(&mut self, at_ms: i64, value: Option<f64>) -> Option<Stretch> {
        let is_next = self.last.is_none_or(|(last, ..)| at_ms > last);
        if at_ms < self.window.from_ms || at_ms > self.window.to_ms || !is_next {
            return None;
        }
        let reach = self.window.reach_ms;
        let boundary = match (self.last, value) {
            (Some((last, ..)), Some(_)) => last + (at_ms - last) / 2,
            (_, None) => at_ms,
            (None, Some(_)) => self.floor_ms,
        };
        let before = self.close(boundary);
        self.floor_ms = boundary;
        self.last = value.map(|value| (at_ms, value, boundary.max(at_ms - reach)));
        before
    }

    /// The time of the last sample.
    pub fn finish(mut self) -> Option<Stretch> {
        self.close(i64::MAX)
    }

    fn close(&mut self, boundary: i64) -> Option<Stretch> {
        let (at, value, from) = self.last.take()?;
        let stretch = Stretch {
            from_ms: from.max(self.window.from_ms),
            to_ms: boundary
                .min(at + self.window.reach_ms)
                .min(self.window.to_ms),
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

    /// Its mean over the time that is covered.
    pub fn mean(&self) -> Option<f64> {
        (self.covered_ms > 0).then(|| self.sum / self.covered_ms as f64)
    }

    /// Its highest value.
    pub fn max(&self) -> Option<f64> {
        self.max
    }

    /// Seconds that are covered.
    pub fn covered_seconds(&self) -> f64 {
        self.covered_ms as f64 / 1e3
    }

    /// The value times the seconds it lasted, summed up: joules, for watts.
    pub fn integral(&self) -> f64 {
        self.sum / 1e3
    }
}

/// Steps of 1 % from 0 to 100 %, which is how finely NVML tells utilization.
const STEPS: usize = 101;

/// What a utilization between 0 and 1 did: how high, how long idle, and how long at a stretch.
#[derive(Debug, Clone)]
pub struct Activity {
    idle_below: f64,
    streak_floor_ms: i64,
    level: Level,
    by_step_ms: [i64; STEPS],
    idle_ms: i64,
    longest_ms: i64,
    /// The streak that goes on: its length and its integral.
    streak: (i64, f64),
    streak_until_ms: Option<i64>,
    /// Streaks that were long enough, all together.
    streaks: (i64, f64),
}

impl Activity {
    /// Idle is what is below `idle_below`; an idle streak counts from `streak_floor_ms` on.
    pub fn new(idle_below: f64, streak_floor_ms: i64) -> Self {
        Self {
            idle_below,
            streak_floor_ms,
            level: Level::default(),
            by_step_ms: [0; STEPS],
            idle_ms: 0,
            longest_ms: 0,
            streak: (0, 0.0),
            streak_until_ms: None,
            streaks: (0, 0.0),
        }
    }

    /// Adds the next stretch. A hole before it ends an idle streak: what nobody saw is not idle.
    pub fn add(&mut self, stretch: Stretch) {
        self.level.add(stretch);
        let step = (stretch.value * 100.0).round().clamp(0.0, 100.0) as usize;
        self.by_step_ms[step] += stretch.ms();
        let goes_on = self.streak_until_ms == Some(stretch.from_ms);
        if !goes_on || stretch.value >= self.idle_below {
            self.end_streak();
        }
        if stretch.value < self.idle_below {
            self.idle_ms += stretch.ms();
            self.streak.0 += stretch.ms();
            self.streak.1 += stretch.value * stretch.ms() as f64;
            self.longest_ms = self.longest_ms.max(self.streak.0);
            self.streak_until_ms = Some(stretch.to_ms);
        }
    }

    fn end_streak(&mut self) {
        if self.streak.0 >= self.streak_floor_ms {
            self.streaks.0 += self.streak.0;
            self.streaks.1 += self.streak.1;
        }
        self.streak = (0, 0.0);
        self.streak_until_ms = None;
    }

    /// The figures, where anything was covered.
    pub fn finish(mut self) -> Option<ActivityFigures> {
        self.end_streak();
        let mean = self.level.mean()?;
        let covered = self.level.covered_ms;
        let working_ms = covered - self.streaks.0;
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

    /// The lowest step at or below which the share `p` of the time was spent.
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

/// What a utilization did. Ratios between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ActivityFigures {
    /// Seconds of which it is known.
    pub covered_seconds: f64,
    /// Mean over them.
    pub mean: f64,
    /// 95th percentile by time.
    pub p95: f64,
    /// Share of the covered time that was idle.
    pub idle_ratio: f64,
    /// The longest time that it was idle without a break.
    pub idle_longest_seconds: f64,
    /// Time in idle streaks that were long enough to count.
    pub idle_streak_seconds: f64,
    /// Mean outside those streaks.
    pub working_mean: f64,
}

/// What a counter grew by during a run.
///
/// Between two samples it is taken to grow evenly, so the ends of the run are cut in proportion. A smaller value says
/// that it was reset, and that it has counted from 0 since.
#[derive(Debug, Clone, Copy)]
pub struct Growth {
    window: Window,
    last: Option<(i64, f64)>,
    grown: f64,
    covered_ms: i64,
}

impl Growth {
    /// Of a counter of which nothing is known yet.
    pub fn new(window: Window) -> Self {
        Self {
            window,
            last: None,
            grown: 0.0,
            covered_ms: 0,
        }
    }

    /// Of a counter that was made, at 0, when the run began.
    pub fn from_zero(window: Window) -> Self {
        Self {
            last: Some((window.from_ms, 0.0)),
            ..Self::new(window)
        }
    }

    /// The next sample. Returns what the counter grew by since the one before, in time and amount, within the run.
    pub fn push(&mut self, at_ms: i64, value: f64) -> Option<Stretch> {
        let Some((last_ms, last)) = self.last else {
            self.last = Some((at_ms, value));
            return None;
        };
        if at_ms <= last_ms {
            return None;
        }
        self.last = Some((at_ms, value));
        let grown = if value < last { value } else { value - last };
        let (from_ms, to_ms) = (
            last_ms.max(self.window.from_ms),
            at_ms.min(self.window.to_ms),
        );
        if to_ms <= from_ms {
            return None;
        }
        let part = grown * (to_ms - from_ms) as f64 / (at_ms - last_ms) as f64;
        self.grown += part;
        self.covered_ms += to_ms - from_ms;
        Some(Stretch {
            from_ms,
            to_ms,
            value: part,
        })
    }

    /// What it grew by; `None` where two samples were never seen.
    pub fn total(&self) -> Option<f64> {
        (self.covered_ms > 0).then_some(self.grown)
    }

    /// Seconds of the run between its first and last sample.
    pub fn covered_seconds(&self) -> f64 {
        self.covered_ms as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOW: Window = Window {
        from_ms: 0,
        to_ms: 100_000,
        reach_ms: 20_000,
    };

    fn stretches(samples: &[(i64, Option<f64>)]) -> Vec<(i64, i64, f64)> {
        let mut held = Held::new(WINDOW);
        let mut found: Vec<Stretch> = samples
            .iter()
            .filter_map(|&(at, value)| held.push(at, value))
            .collect();
        found.extend(held.finish());
        found
            .iter()
            .map(|stretch| (stretch.from_ms, stretch.to_ms, stretch.value))
            .collect()
    }

    #[test]
    fn a_sample_speaks_for_what_is_nearest_and_no_further_than_it_reaches() {
        let (a, b) = (Some(1.0), Some(2.0));
        assert_eq!(
            stretches(&[(10_000, a), (30_000, b)]),
            [(0, 20_000, 1.0), (20_000, 50_000, 2.0)]
        );
        // A hole of which nothing is known, and the edges of the run.
        assert_eq!(
            stretches(&[(5_000, a), (90_000, b)]),
            [(0, 25_000, 1.0), (70_000, 100_000, 2.0)]
        );
        // The end of a series is an end, and what comes after it does not reach back over it.
        assert_eq!(
            stretches(&[(10_000, a), (12_000, None), (20_000, b)]),
            [(0, 12_000, 1.0), (12_000, 40_000, 2.0)]
        );
        // From outside, or not in order.
        assert_eq!(
            stretches(&[(-5, b), (10_000, a), (9_000, b), (100_001, b)]),
            [(0, 30_000, 1.0)]
        );
    }

    #[test]
    fn idle_streaks_and_percentiles() {
        let mut activity = Activity::new(0.05, 10_000);
        for (from_ms, to_ms, value) in [
            (0, 5_000, 0.0),        // 5 s idle: too short
            (5_000, 45_000, 0.8),   // 40 s of work
            (45_000, 58_000, 0.01), // 13 s idle …
            (58_000, 60_000, 0.0),  // … and 2 more without a break
            (70_000, 79_000, 0.0),  // 9 s after a hole: not the same streak
            (79_000, 80_000, 0.9),
        ] {
            activity.add(Stretch {
                from_ms,
                to_ms,
                value,
            });
        }
        let figures = activity.finish().unwrap();
        assert_eq!(
            (
                figures.covered_seconds,
                figures.idle_longest_seconds,
                figures.idle_streak_seconds
            ),
            (70.0, 15.0, 15.0)
        );
        assert!((figures.mean - (40.0 * 0.8 + 13.0 * 0.01 + 0.9) / 70.0).abs() < 1e-12);
        assert!((figures.working_mean - (40.0 * 0.8 + 0.9) / 55.0).abs() < 1e-12);
        assert!((figures.idle_ratio - 29.0 / 70.0).abs() < 1e-12);
        assert!((figures.p95 - 0.8).abs() < 1e-12);
    }

    #[test]
    fn a_counter_counts_through_holes_and_resets_and_is_cut_at_the_ends() {
        let mut energy = Growth::new(WINDOW);
        for (at_ms, value) in [
            (-10_000, 1000.0),
            (10_000, 1200.0),
            (90_000, 2000.0),
            (95_000, 50.0),
            (105_000, 70.0),
        ] {
            energy.push(at_ms, value);
        }
        // Half of 200, all of 800, 50 since the reset, half of 20.
        assert_eq!(
            (energy.total(), energy.covered_seconds()),
            (Some(960.0), 100.0)
        );
        let mut cpu = Growth::from_zero(WINDOW);
        cpu.push(15_000, 30.0);
        assert_eq!(cpu.total(), Some(30.0));
        assert_eq!(Growth::new(WINDOW).total(), None);
    }

    proptest! {
        /// Samples that are never further apart than they reach cover the time between the first and the last, and no
        /// set of samples covers more than the run, or the same time twice.
        #[test]
        fn coverage(gaps in proptest::collection::vec(1_i64..60_000, 1..40), first in 0_i64..20_000) {
            let mut at = first;
            let mut samples = vec![at];
            samples.extend(gaps.iter().map(|gap| { at += gap; at }));
            let found = stretches(&samples.iter().map(|&at| (at, Some(0.5))).collect::<Vec<_>>());
            let covered: i64 = found.iter().map(|(from, to, _)| to - from).sum();
            prop_assert!(covered <= WINDOW.to_ms);
            prop_assert!(found.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            if gaps.iter().all(|gap| *gap <= 2 * WINDOW.reach_ms) {
                let end = (samples.iter().copied().filter(|at| *at <= WINDOW.to_ms).max().unwrap_or(0) + WINDOW.reach_ms)
                    .min(WINDOW.to_ms);
                let begin = if first <= WINDOW.to_ms { 0 } else { end };
                prop_assert_eq!(covered, end - begin);
            }
        }

        /// A run cut in two has, in its halves, what it has uncut.
        #[test]
        fn a_counter_of_a_run_cut_in_two(values in proptest::collection::vec(0.0_f64..1e6, 2..30), cut in 1_i64..99_999) {
            let grown = |window: Window| {
                let mut growth = Growth::new(window);
                for (at, value) in values.iter().enumerate() {
                    growth.push(at as i64 * 7_000 - 10_000, *value);
                }
                growth.total().unwrap_or(0.0)
            };
            let whole = grown(WINDOW);
            let halves = grown(Window { to_ms: cut, ..WINDOW }) + grown(Window { from_ms: cut, ..WINDOW });
            prop_assert!((whole - halves).abs() <= 1e-6 * whole.max(1.0), "{whole} {halves}");
        }

        /// Figures stay within what was measured.
        #[test]
        fn figures_are_bounded(values in proptest::collection::vec(0.0_f64..=1.0, 1..60)) {
            let mut activity = Activity::new(0.05, 5_000);
            let mut held = Held::new(WINDOW);
            for (at, value) in values.iter().enumerate() {
                held.push(at as i64 * 2_000, Some(*value)).into_iter().for_each(|stretch| activity.add(stretch));
            }
            held.finish().into_iter().for_each(|stretch| activity.add(stretch));
            let figures = activity.finish().expect("one sample covers something");
            let (low, high) = values[..values.len().min(51)].iter().fold((1.0_f64, 0.0_f64), |(low, high), v| (low.min(*v), high.max(*v)));
            prop_assert!(figures.mean >= low - 1e-9 && figures.mean <= high + 1e-9);
            prop_assert!(figures.p95 <= high + 0.005 && (0.0..=1.0).contains(&figures.idle_ratio));
            prop_assert!(figures.idle_streak_seconds <= figures.idle_ratio * figures.covered_seconds + 1e-6);
            prop_assert!(figures.idle_longest_seconds <= figures.idle_ratio * figures.covered_seconds + 1e-6);
        }
    }
}
