//! Decay: what a second of running is still worth, by slurmctld's own steps.
//!
//! Slurm does not integrate. Its decay thread ticks once a calculation period and each tick, r seconds after the one
//! before, multiplies all usage by d^r and then adds, for each run, its seconds since the last tick times d to the power
//! of just these seconds. A run that ends between two ticks gets its last slice at once, and the next tick decays that
//! by the whole period. d is 1 − 0.693 / half life, so after one half life 0.50007 of a second is left and not 0.5.
//!
//! [`DecayTable`] gives the same in closed form. What a tick's slice is worth now depends on the tick alone, so sums of
//! slices over ticks are made once and a run is two look-ups and two powers, whatever its length. This is no
//! approximation: it differs from the steps by the rounding of doubles only (10⁻⁹ of the value at most, tested).
//!
//! What can differ from a real cluster is which ticks there were. Their phase is that of slurmctld's last start. Any
//! other phase changes what an ended run is worth by less than 2 × period × 0.693 / half life of it (0.07 % with 300 s
//! and 7 days), nearly the same for all, and counts up to one period more or less of a running one.

/// How usage fades.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decay {
    /// ln d, d being what is left of a second's worth after one second.
    ln_per_second: f64,
}

impl Decay {
    /// Decay with this half life in seconds (`PriorityDecayHalfLife`); 0 is none.
    pub fn new(half_life_seconds: u32) -> Self {
        let per_second = match half_life_seconds {
            0 => 1.0,
            // Below 0.693 s nothing would be left: Slurm's least half life is a minute.
            seconds => (1.0 - 0.693 / f64::from(seconds)).max(f64::MIN_POSITIVE),
        };
        Self {
            ln_per_second: per_second.ln(),
        }
    }

    /// What is left after so many seconds.
    pub fn over(self, seconds: i64) -> f64 {
        // Slurm keeps a remainder too, however long slurmctld was down.
        (self.ln_per_second * seconds.max(0) as f64)
            .exp()
            .max(f64::MIN_POSITIVE)
    }

    /// What a constant rate of 1 a second adds up to in so many seconds.
    pub fn sum_over(self, seconds: i64) -> f64 {
        let seconds = seconds.max(0) as f64;
        if self.ln_per_second == 0.0 {
            seconds
        } else {
            (self.ln_per_second * seconds).exp_m1() / self.ln_per_second
        }
    }

    /// What a tick adds for seconds that passed since the one before.
    fn slice(self, seconds: i64) -> f64 {
        seconds.max(0) as f64 * self.over(seconds)
    }
}

/// When slurmctld's decay thread ticked: UTC seconds since 1970, ascending. After an outage of slurmctld the next tick
/// makes up for all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ticks(Vec<i64>);

impl Ticks {
    /// Ticks every `period_seconds` that include, or would include, `phase`: those in `from..=to`. At most
    /// [`Ticks::MAX`], the latest.
    pub fn every(period_seconds: u32, phase: i64, from: i64, to: i64) -> Self {
        let period = i64::from(period_seconds.max(1));
        let last = to.saturating_sub(to.saturating_sub(phase).rem_euclid(period));
        let count = (last.saturating_sub(from).max(-1).div_euclid(period) + 1).clamp(0, Self::MAX);
        Self((0..count).rev().map(|back| last - back * period).collect())
    }

    /// Known ticks, in any order.
    pub fn at(mut instants: Vec<i64>) -> Self {
        instants.sort_unstable();
        instants.dedup();
        Self(instants)
    }

    /// Most ticks that [`Ticks::every`] makes: forty years of Slurm's default period.
    pub const MAX: i64 = 1 << 22;

    /// The instants.
    pub fn as_slice(&self) -> &[i64] {
        &self.0
    }
}

/// What running in any period is worth at one instant.
#[derive(Debug, Clone)]
pub struct DecayTable {
    decay: Decay,
    as_of: i64,
    /// Ticks up to `as_of`.
    ticks: Vec<i64>,
    /// The tick that emptied all usage last.
    reset: Option<i64>,
    /// What is left of something that was added at this tick, or after it and before the next. Nothing, if there was a
    /// reset since.
    left: Vec<f64>,
    /// What is left of something that was there before the first tick.
    left_before_first: f64,
    /// What is left of the slices of all ticks before this one.
    slices_before: Vec<f64>,
}

/// What a run's time is worth: seconds of it, faded.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DecayedSeconds {
    /// At the last tick, when Slurm computed shares of usage and the factors.
    pub at_last_tick: f64,
    /// What ended runs added since, which Slurm shows in raw usage only.
    pub since: f64,
}

impl DecayTable {
    /// The table for an instant. Each of `resets` empties all usage at the first tick from then on.
    pub fn new(decay: Decay, ticks: &Ticks, resets: &[i64], as_of: i64) -> Self {
        let ticks = ticks.0[..ticks.0.partition_point(|tick| *tick <= as_of)].to_vec();
        let last = ticks.last().copied().unwrap_or(as_of);
        let reset = resets
            .iter()
            .filter_map(|reset| ticks.get(ticks.partition_point(|tick| tick < reset)))
            .max()
            .copied();
        let kept = |tick: i64| reset.is_none_or(|reset| tick >= reset);
        let left: Vec<f64> = ticks
            .iter()
            .map(|tick| {
                if kept(*tick) {
                    decay.over(last.saturating_sub(*tick))
                } else {
                    0.0
                }
            })
            .collect();
        let left_before_first = if reset.is_none() {
            left.first().copied().unwrap_or(1.0)
        } else {
            0.0
        };
        let mut slices_before = Vec::with_capacity(ticks.len() + 1);
        let mut sum = 0.0;
        for index in 0..ticks.len() {
            slices_before.push(sum);
            if index > 0 {
                sum += decay.slice(ticks[index].saturating_sub(ticks[index - 1])) * left[index];
            }
        }
        slices_before.push(sum);
        Self {
            decay,
            as_of,
            ticks,
            reset,
            left,
            left_before_first,
            slices_before,
        }
    }

    /// The same without decay: what usage that never fades is worth.
    pub fn undecayed(&self) -> Self {
        let reset: Vec<i64> = self.reset.into_iter().collect();
        Self::new(
            Decay::new(0),
            &Ticks(self.ticks.clone()),
            &reset,
            self.as_of,
        )
    }

    /// The instant.
    pub fn as_of(&self) -> i64 {
        self.as_of
    }

    /// The last tick before it.
    pub fn last_tick(&self) -> Option<i64> {
        self.ticks.last().copied()
    }

    /// How usage fades.
    pub fn decay(&self) -> Decay {
        self.decay
    }

    /// What running from `start` to `end` is worth, or until now where there is no end. Suspended seconds count, as in
    /// Slurm. Nothing is counted for time before the start, or of clocks that ran backwards.
    pub fn seconds(&self, start: i64, end: Option<i64>) -> DecayedSeconds {
        let ended = end.filter(|end| *end <= self.as_of);
        if start > self.as_of || ended.is_some_and(|end| end <= start) {
            return DecayedSeconds::default();
        }
        let first = self.ticks.partition_point(|tick| *tick <= start);
        let after_last = ended.map_or(self.ticks.len(), |end| {
            self.ticks.partition_point(|tick| *tick <= end)
        });
        let mut worth = DecayedSeconds::default();
        if first < after_last {
            worth.at_last_tick = self.decay.slice(self.ticks[first].saturating_sub(start))
                * self.left[first]
                + (self.slices_before[after_last] - self.slices_before[first + 1]);
        }
        if let Some(end) = ended {
            let before = after_last.checked_sub(1);
            let since = before.map_or(start, |index| self.ticks[index].max(start));
            let slice = self.decay.slice(end.saturating_sub(since));
            // The next tick decays it by all that lies between it and the one before, as if it were added at that one.
            match before {
                _ if after_last == self.ticks.len() => worth.since = slice,
                Some(index) => worth.at_last_tick += slice * self.left[index],
                None => worth.at_last_tick += slice * self.left_before_first,
            }
        }
        worth
    }
}

impl DecayedSeconds {
    /// All of it.
    pub fn total(self) -> f64 {
        self.at_last_tick + self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WEEK: u32 = 7 * 86_400;

    /// Slurm's steps as its decay thread does them, for one run that is charged 1 a second.
    fn step_by_step(
        half_life: u32,
        ticks: &Ticks,
        resets: &[i64],
        as_of: i64,
        start: i64,
        end: Option<i64>,
    ) -> (f64, f64) {
        let per_second: f64 = if half_life == 0 {
            1.0
        } else {
            1.0 - 0.693 / f64::from(half_life)
        };
        let slice = |seconds: i64| seconds.max(0) as f64 * per_second.powf(seconds.max(0) as f64);
        let (mut usage, mut at_last_tick, mut last_ran, mut finished) =
            (0.0, 0.0, None::<i64>, false);
        let mut resets = resets.to_vec();
        resets.sort_unstable();
        for tick in ticks
            .as_slice()
            .iter()
            .copied()
            .filter(|tick| *tick <= as_of)
            .chain([i64::MAX])
        {
            let since = last_ran.map_or(start, |last: i64| last.max(start));
            if let Some(end) = end.filter(|end| *end < tick && *end <= as_of && !finished) {
                usage += slice(end - since);
                finished = true;
            }
            if tick == i64::MAX {
                break;
            }
            let due = resets.partition_point(|reset| *reset <= tick);
            if due > 0 {
                usage = 0.0;
                resets.drain(..due);
            }
            usage *= last_ran.map_or(1.0, |last| per_second.powf((tick - last) as f64));
            if !finished && start <= tick {
                usage += slice(tick - since);
            }
            (last_ran, at_last_tick) = (Some(tick), usage);
        }
        (at_last_tick, usage)
    }

    fn close(left: f64, right: f64, relative: f64) -> bool {
        (left - right).abs() <= relative * left.abs().max(right.abs()) + 1e-9
    }

    #[test]
    fn half_a_second_is_left_of_one_after_the_half_life_nearly() {
        assert!((Decay::new(WEEK).over(i64::from(WEEK)) - 0.500_073).abs() < 1e-6);
        assert_eq!(Decay::new(0).over(1 << 40), 1.0);
        assert_eq!(Decay::new(1).over(1 << 40), f64::MIN_POSITIVE);
    }

    #[test]
    fn ticks_keep_their_phase() {
        assert_eq!(Ticks::every(60, 7, 100, 300).as_slice(), [127, 187, 247]);
        assert_eq!(
            Ticks::every(60, 10_007, 187, 187).as_slice(),
            Ticks::at(vec![]).as_slice()
        );
        assert_eq!(Ticks::every(60, 10_027, 127, 127).as_slice(), [127]);
        assert_eq!(
            Ticks::every(60, 0, 300, 100).as_slice(),
            Ticks::at(vec![]).as_slice()
        );
        assert_eq!(Ticks::at(vec![9, 3, 9]).as_slice(), [3, 9]);
    }

    #[test]
    fn what_runs_is_counted_up_to_the_last_tick_and_what_ended_to_its_end() {
        let table = DecayTable::new(Decay::new(0), &Ticks::every(60, 0, 0, 300), &[], 350);
        for (start, end, at_last_tick, since) in [
            (100, None, 200.0, 0.0),
            (100, Some(400), 200.0, 0.0),
            (100, Some(340), 200.0, 40.0),
            (100, Some(130), 30.0, 0.0),
            (310, Some(340), 0.0, 30.0),
            (310, None, 0.0, 0.0),
            (400, None, 0.0, 0.0),
            (200, Some(100), 0.0, 0.0),
            (120, Some(240), 120.0, 0.0),
        ] {
            assert_eq!(
                table.seconds(start, end),
                DecayedSeconds {
                    at_last_tick,
                    since
                },
                "{start} {end:?}"
            );
        }
    }

    #[test]
    fn a_reset_leaves_what_its_own_tick_adds() {
        let table = DecayTable::new(Decay::new(0), &Ticks::every(60, 0, 0, 300), &[150, 60], 300);
        assert_eq!(table.seconds(0, None).total(), 180.0);
        assert_eq!(table.seconds(0, Some(170)).total(), 0.0);
        assert_eq!(table.seconds(0, Some(190)).total(), 70.0);
        // One that no tick has done yet changes nothing.
        let table = DecayTable::new(Decay::new(0), &Ticks::every(60, 0, 0, 300), &[301], 330);
        assert_eq!(table.seconds(0, Some(310)).total(), 310.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn the_table_says_what_the_steps_say(
            half_life in prop_oneof![Just(0_u32), 60_u32..100_000, Just(WEEK)],
            period in 1_u32..400,
            phase in 0_i64..400,
            gaps in proptest::collection::vec(0_i64..9000, 0..4),
            resets in proptest::collection::vec(0_i64..20_000, 0..3),
            as_of in 0_i64..25_000,
            start in 0_i64..20_000,
            length in proptest::option::of(0_i64..20_000),
        ) {
            // Ticks with outages of slurmctld in between.
            let ticks = Ticks::every(period, phase, 0, 30_000);
            let ticks = Ticks::at(
                ticks.as_slice().iter().copied().filter(|tick| !gaps.iter().any(|gap| (*gap..gap + 2000).contains(tick))).collect(),
            );
            let end = length.map(|length| start + length);
            let (at_last_tick, now) = step_by_step(half_life, &ticks, &resets, as_of, start, end);
            let found = DecayTable::new(Decay::new(half_life), &ticks, &resets, as_of).seconds(start, end);
            prop_assert!(close(found.at_last_tick, at_last_tick, 1e-9), "{} {}", found.at_last_tick, at_last_tick);
            prop_assert!(close(found.total(), now, 1e-9), "{} {}", found.total(), now);
        }

        #[test]
        fn fourteen_days_are_fourteen_times_one(half_life in prop_oneof![Just(0_u32), 3600_u32..3_000_000], usage in 0.0..1e15) {
            let decay = Decay::new(half_life);
            let once = usage * decay.over(14 * 86_400);
            let daily = (0..14).fold(usage, |usage, _| usage * decay.over(86_400));
            prop_assert!(close(once, daily, 1e-12), "{once} {daily}");
        }

        #[test]
        fn another_phase_makes_little_difference(
            half_life in 3600_u32..3_000_000,
            phase in 0_i64..300,
            start in 0_i64..10_000,
            length in 1_i64..200_000,
            after in 600_i64..50_000,
        ) {
            const PERIOD: u32 = 300;
            let (end, decay) = (start + length, Decay::new(half_life));
            let worth = |phase| {
                let ticks = Ticks::every(PERIOD, phase, -300, end + after);
                DecayTable::new(decay, &ticks, &[], end + after).seconds(start, Some(end)).total()
            };
            let (one, other) = (worth(0), worth(phase));
            let most = 1.0 / decay.over(2 * i64::from(PERIOD));
            prop_assert!(one <= other * most && other <= one * most, "{one} {other} {most}");
        }

        #[test]
        fn a_cut_run_is_the_uncut_one_up_to_its_slice(
            half_life in 3600_u32..3_000_000,
            start in 0_i64..10_000,
            length in 2_i64..20_000,
            cut in 0.0..1.0,
            after in 0_i64..50_000,
        ) {
            const PERIOD: u32 = 300;
            let (end, decay) = (start + length, Decay::new(half_life));
            let cut = start + 1 + (cut * (length - 1) as f64) as i64;
            let as_of = end + after;
            let table = DecayTable::new(decay, &Ticks::every(PERIOD, 0, 0, as_of), &[], as_of);
            let whole = table.seconds(start, Some(end)).total();
            let parts = table.seconds(start, Some(cut)).total() + table.seconds(cut, Some(end)).total();
            // Only the slice that is cut changes, and at most by one period's decay.
            let bound = f64::from(PERIOD) * (1.0 / decay.over(PERIOD.into()) - 1.0);
            prop_assert!((whole - parts).abs() <= bound + 1e-9, "{whole} {parts} {bound}");
        }
    }
}
