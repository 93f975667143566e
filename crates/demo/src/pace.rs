//! Speed of the simulation: what happens after the start happens faster than planned.

/// Relation of planned time to the clock. Both are UTC seconds, and equal until the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Start of the demo.
    pub began: i64,
    /// Planned seconds that pass in one second.
    pub speed: i64,
}

impl Pace {
    /// Returns the planned time at a time of the clock.
    pub fn planned(self, at: i64) -> i64 {
        at + (at - self.began).max(0) * (self.speed - 1)
    }

    /// Returns the first second of the clock in which a planned time has come.
    pub fn clock(self, planned: i64) -> i64 {
        if planned <= self.began {
            planned
        } else {
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
            let pace = Pace { began: 1000, speed };
            for planned in 900..1300 {
                let at = pace.clock(planned);
                assert!(pace.planned(at - 1) < planned && planned <= pace.planned(at));
            }
        }
        assert_eq!(
            Pace {
                began: 1000,
                speed: 10
            }
            .clock(4600),
            1360
        );
    }
}
