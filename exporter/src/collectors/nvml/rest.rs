//! Lets a laptop's GPU sleep: each call of NVML wakes it, and so does an open device.
//!
//! Where a GPU may sleep, NVML is closed after a minute without work, and asked again when
//! something else has woken the GPU. Pure: the time is an argument.

use super::pci::CardPower;
use std::time::{Duration, Instant};

/// Time without work after which NVML is closed.
const IDLE: Duration = Duration::from_secs(60);
/// Time in which a GPU falls asleep.
const FALLS_ASLEEP: Duration = Duration::from_secs(30);
/// Pause after a GPU did not fall asleep: most boards cannot.
const TRY_AGAIN: Duration = Duration::from_secs(3600);

/// Whether NVML rests.
#[derive(Debug, Default)]
pub(super) struct NvmlRest {
    idle_since: Option<Instant>,
    resting: Option<Resting>,
    not_before: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Resting {
    since: Instant,
    has_slept: bool,
}

impl NvmlRest {
    /// Whether NVML may be asked now.
    pub fn may_ask(&mut self, power: CardPower, now: Instant) -> bool {
        let Some(resting) = self.resting.as_mut().filter(|_| power == CardPower::Awake) else {
            self.resting = (power == CardPower::Asleep).then_some(Resting {
                since: now,
                has_slept: true,
            });
            return power != CardPower::Asleep;
        };

        let has_time = now.duration_since(resting.since) < FALLS_ASLEEP;
        // It may still fall asleep if it is left alone.
        if !resting.has_slept && has_time {
            return false;
        }

        // Something else woke it, or it never slept. The latter is not tried again soon.
        self.not_before = (!resting.has_slept).then(|| now + TRY_AGAIN);
        self.resting = None;
        self.idle_since = None;
        true
    }

    /// Takes over whether the GPUs work.
    pub fn saw(&mut self, is_idle: bool, power: CardPower, now: Instant) {
        if !is_idle || power != CardPower::Awake {
            // The minute begins again after work.
            self.idle_since = None;
            return;
        }

        let since = *self.idle_since.get_or_insert(now);
        let is_time = self.not_before.is_none_or(|begin| now >= begin);
        if is_time && now.duration_since(since) >= IDLE {
            self.resting = Some(Resting {
                since: now,
                has_slept: false,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks once a second, and returns the seconds at which NVML was asked.
    fn asked(
        seconds: std::ops::Range<u64>,
        rest: &mut NvmlRest,
        begin: Instant,
        power: impl Fn(u64) -> CardPower,
    ) -> Vec<u64> {
        seconds
            .filter(|second| {
                let now = begin + Duration::from_secs(*second);
                let may = rest.may_ask(power(*second), now);
                if may {
                    rest.saw(true, power(*second), now);
                }
                may
            })
            .collect()
    }

    #[test]
    fn a_gpu_without_work_sleeps_until_something_else_wakes_it() {
        let (mut rest, begin) = (NvmlRest::default(), Instant::now());
        let power = |second| match second {
            70..500 => CardPower::Asleep,
            _ => CardPower::Awake,
        };
        let expected: Vec<u64> = (0..61).chain(500..561).collect();
        assert_eq!(asked(0..580, &mut rest, begin, power), expected);
    }

    #[test]
    fn one_that_sleeps_at_the_start_is_not_woken() {
        let (mut rest, begin) = (NvmlRest::default(), Instant::now());
        assert_eq!(asked(0..9, &mut rest, begin, |_| CardPower::Asleep), [0; 0]);
    }

    #[test]
    fn one_that_cannot_sleep_is_let_go_for_half_a_minute_an_hour() {
        let (mut rest, begin) = (NvmlRest::default(), Instant::now());
        let missed = 3600 - asked(0..3600, &mut rest, begin, |_| CardPower::Awake).len();
        assert_eq!(missed, 29);
        let always_on = asked(0..3600, &mut NvmlRest::default(), begin, |_| {
            CardPower::AlwaysOn
        });
        assert_eq!(always_on.len(), 3600);
    }

    #[test]
    fn one_that_works_is_asked() {
        let (mut rest, begin) = (NvmlRest::default(), Instant::now());
        for second in 0..600 {
            let now = begin + Duration::from_secs(second);
            assert!(rest.may_ask(CardPower::Awake, now));
            rest.saw(second % 30 != 0, CardPower::Awake, now);
        }
    }
}
