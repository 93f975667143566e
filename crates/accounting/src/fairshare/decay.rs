//! Decay: the current value of a second of running, by slurmctld's own steps.
//!
//! Slurm does not integrate. Its decay thread ticks once per calculation period. Each tick, r
//! seconds after the previous one, multiplies all usage by d^r. Then it adds, for each run, its n
//! seconds since the last tick times d^n. A run that ends between two ticks gets its last slice at
//! once, and the next tick decays this slice by the whole period. d is 1 − 0.693 / half-life, so
//! after one half-life 0.50007 of a second is left, not 0.5.
//!
//! [`DecayTable`] gives the same values in closed form. The current value of a tick's slice depends
//! on the tick alone, so sums of slices are computed once, and a run costs two look-ups and two
//! powers, whatever its length. The result differs from the steps only by the rounding of doubles
//! (at most 10⁻⁹ of the value, tested).
//!
//! The ticks may differ from a real cluster's, because their phase is that of slurmctld's last
//! start. Another phase changes the value of a finished run by less than 2 × period × 0.693 /
//! half-life (0.07 % with 300 s and 7 days), nearly equally for all runs, and the time of a running
//! job by up to one period.

use takt_model::UnixTime;

/// Rate of decay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decay {
    /// ln d, where d is the fraction of a value that is left after one second.
    ln_per_second: f64,
}

impl Decay {
    /// Decay with this half-life in seconds (`PriorityDecayHalfLife`). 0 disables decay.
    pub fn new(half_life_seconds: u32) -> Self {
        let per_second = match half_life_seconds {
            0 => 1.0,
            // Below 0.693 s nothing would be left. Slurm's minimum is one minute.
            seconds => (1.0 - 0.693 / f64::from(seconds)).max(f64::MIN_POSITIVE),
        };
        Self {
            ln_per_second: per_second.ln(),
        }
    }

    /// Returns the fraction that is left after this many seconds.
    pub fn over(self, seconds: i64) -> f64 {
        // Slurm also keeps a remainder, however long slurmctld was down.
        (self.ln_per_second * seconds.max(0) as f64)
            .exp()
            .max(f64::MIN_POSITIVE)
    }

    /// Returns the decayed sum of a constant rate of 1 per second over this many seconds.
    pub fn sum_over(self, seconds: i64) -> f64 {
        let seconds = seconds.max(0) as f64;
        if self.ln_per_second == 0.0 {
            seconds
        } else {
            (self.ln_per_second * seconds).exp_m1() / self.ln_per_second
        }
    }

    /// Returns the slice that a tick adds for the seconds since the previous one.
    fn slice(self, seconds: i64) -> f64 {
        seconds.max(0) as f64 * self.over(seconds)
    }
}

/// Ticks of slurmctld's decay thread, ascending. After an outage of
/// slurmctld the next tick covers all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ticks(Vec<UnixTime>);

impl Ticks {
    /// Returns the ticks in `from..=to` with this period and phase. At most [`Ticks::MAX`], the
    /// latest.
    pub fn every(period_seconds: u32, phase: UnixTime, from: UnixTime, to: UnixTime) -> Self {
        // A period of 0 would divide by 0.
        let period = i64::from(period_seconds.max(1));
        let last = to - (to - phase).rem_euclid(period);
        // Bounded, since a period of one second over years would take all memory.
        let count = ((last - from).max(-1).div_euclid(period) + 1).clamp(0, Self::MAX);
        Self((0..count).rev().map(|back| last - back * period).collect())
    }

    /// Recorded ticks, in any order.
    pub fn at(mut instants: Vec<UnixTime>) -> Self {
        instants.sort_unstable();
        instants.dedup();
        Self(instants)
    }

    /// Maximum number of ticks from [`Ticks::every`]: forty years of Slurm's default period.
    pub const MAX: i64 = 1 << 22;

    /// Returns the instants.
    pub fn as_slice(&self) -> &[UnixTime] {
        &self.0
    }
}

/// Current value of running time in any interval, at one instant.
#[derive(Debug, Clone)]
pub struct DecayTable {
    decay: Decay,
    as_of: UnixTime,
    /// Ticks up to `as_of`.
    ticks: Vec<UnixTime>,
    /// The last tick that reset all usage.
    reset: Option<UnixTime>,
    /// Remaining fraction of an amount that was added at this tick or before the next one. 0 if a
    /// reset followed.
    left: Vec<f64>,
    /// Remaining fraction of an amount from before the first tick.
    left_before_first: f64,
    /// Remaining sum of the slices of all earlier ticks.
    slices_before: Vec<f64>,
}

/// Decayed run time in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DecayedSeconds {
    /// Value at the last tick, when Slurm computed normalized usage and the factors.
    pub at_last_tick: f64,
    /// Added since by finished runs. Slurm includes it in raw usage only.
    pub since: f64,
}

impl DecayTable {
    /// Builds the table for an instant. Each of `resets` clears all usage at the next tick.
    pub fn new(decay: Decay, ticks: &Ticks, resets: &[UnixTime], as_of: UnixTime) -> Self {
        // Ticks after the instant have not happened.
        let ticks = ticks.0[..ticks.0.partition_point(|tick| *tick <= as_of)].to_vec();
        let last = ticks.last().copied().unwrap_or(as_of);

        // A reset takes effect at the next tick.
        let reset = resets
            .iter()
            .filter_map(|reset| ticks.get(ticks.partition_point(|tick| tick < reset)))
            .max()
            .copied();

        let kept = |tick: UnixTime| reset.is_none_or(|reset| tick >= reset);
        let left: Vec<f64> = ticks
            .iter()
            .map(|tick| {
                if kept(*tick) {
                    decay.over(last - *tick)
                } else {
                    0.0
                }
            })
            .collect();

        // Amounts from before the first tick are lost to any reset.
        let left_before_first = if reset.is_none() {
            left.first().copied().unwrap_or(1.0)
        } else {
            0.0
        };

        // Prefix sums: the slices between any two ticks are one difference.
        let mut slices_before = Vec::with_capacity(ticks.len() + 1);
        let mut sum = 0.0;
        for index in 0..ticks.len() {
            slices_before.push(sum);
            if index > 0 {
                sum += decay.slice(ticks[index] - ticks[index - 1]) * left[index];
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

    /// Returns the table without decay, for usage that does not decay.
    pub fn undecayed(&self) -> Self {
        let reset: Vec<UnixTime> = self.reset.into_iter().collect();
        Self::new(
            Decay::new(0),
            &Ticks(self.ticks.clone()),
            &reset,
            self.as_of,
        )
    }

    /// Returns the instant of the table.
    pub fn as_of(&self) -> UnixTime {
        self.as_of
    }

    /// Returns the last tick before it.
    pub fn last_tick(&self) -> Option<UnixTime> {
        self.ticks.last().copied()
    }

    /// Returns the rate of decay.
    pub fn decay(&self) -> Decay {
        self.decay
    }

    /// Returns the decayed time from `start` to `end`, or until the last tick without an end.
    /// Suspended seconds count, as in Slurm. Time before the start is 0, also if clocks ran
    /// backwards.
    pub fn seconds(&self, start: UnixTime, end: Option<UnixTime>) -> DecayedSeconds {
        // A run that ends later is still running at this instant.
        let ended = end.filter(|end| *end <= self.as_of);
        if start > self.as_of || ended.is_some_and(|end| end <= start) {
            return DecayedSeconds::default();
        }

        let first = self.ticks.partition_point(|tick| *tick <= start);
        let after_last = ended.map_or(self.ticks.len(), |end| {
            self.ticks.partition_point(|tick| *tick <= end)
        });

        let mut worth = DecayedSeconds::default();
        // The first slice begins within the run; all later ones are whole.
        if first < after_last {
            worth.at_last_tick = self.decay.slice(self.ticks[first] - start) * self.left[first]
                + (self.slices_before[after_last] - self.slices_before[first + 1]);
        }

        if let Some(end) = ended {
            let before = after_last.checked_sub(1);
            let since = before.map_or(start, |index| self.ticks[index].max(start));
            let slice = self.decay.slice(end - since);
            // The next tick decays this slice by its whole period, as if it had been added at the
            // previous tick.
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
    /// Returns the sum of both.
    pub fn total(self) -> f64 {
        self.at_last_tick + self.since
    }
}

#[cfg(test)]
mod tests;
