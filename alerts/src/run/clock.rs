//! The clock of the engine.

use std::time::Duration;
use takt_model::Timestamp;

/// Longest step back that the engine's clock waits for. The server opens its store again after a
/// longer one, and the engine begins anew.
const HELD: Duration = Duration::from_secs(60);

/// A clock that does not follow small steps back of the machine's clock: an alert that has ended
/// would else fire again for a moment. It stands until the machine's clock has come as far.
#[derive(Debug)]
pub struct SteadyClock(Timestamp);

impl SteadyClock {
    /// Begins at the machine's clock.
    pub fn new(machine: Timestamp) -> Self {
        Self(machine)
    }

    /// The time, while the machine's clock shows `machine`.
    pub fn now(&mut self, machine: Timestamp) -> Timestamp {
        let is_step_back = machine < self.0 && self.0 <= machine.plus(HELD);
        if !is_step_back {
            self.0 = machine;
        }
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_steps_back_are_waited_for_and_long_ones_followed() {
        let mut clock = SteadyClock::new(Timestamp::from_seconds(100));
        let mut now = |seconds: i64| clock.now(Timestamp::from_seconds(seconds)).0 / 1000;

        // A step back of 51 s is waited for, one of 61 s is followed.
        assert_eq!(
            [101, 50, 60, 102, 41].map(&mut now),
            [101, 101, 101, 102, 41]
        );
    }
}
