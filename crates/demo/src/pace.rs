//! Speed of the simulation: what happens after the start happens faster than planned.

use takt_model::UnixTime;

/// Relation of planned time to the clock. Both are equal until the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Start of the demo.
    pub began: UnixTime,
    /// Planned seconds that pass in one second.
    pub speed: i64,
}

impl Pace {
    /// Returns the planned time at a time of the clock.
    pub fn planned(self, at: UnixTime) -> UnixTime {
        // Until the start, `max(0)` keeps both times equal.
        at + (at - self.began).max(0) * (self.speed - 1)
    }

    /// Returns the first second of the clock in which a planned time has come.
    pub fn clock(self, planned: UnixTime) -> UnixTime {
        if planned <= self.began {
            planned
        } else {
            // Rounded up: at an earlier second, the planned time has not come.
            self.began + (planned - self.began + self.speed - 1) / self.speed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planned_time_comes_in_exactly_one_second_of_the_clock() {
        for speed in [1, 7, 30] {
            let pace = Pace {
                began: UnixTime(1000),
                speed,
            };
            for planned in (900..1300).map(UnixTime) {
                // Exactly one second of the clock covers each planned one, so no event is missed or repeated.
                let at = pace.clock(planned);
                assert!(pace.planned(at - 1) < planned && planned <= pace.planned(at));
            }
        }
        assert_eq!(
            Pace {
                began: UnixTime(1000),
                speed: 10
            }
            .clock(UnixTime(4600)),
            UnixTime(1360)
        );
    }
}
