//! Correction of forecasts by how far earlier ones were off.
//!
//! A replay does not know the jobs that are submitted later, nor all rules of a site, and so is early or late by habit. Each
//! of the three times is stretched by the quantile of what earlier forecasts missed (conformal prediction): of the earlier
//! forecasts, 80 % would have had the start within the corrected band.

use crate::Forecast;
use crate::back_test::quantile;
use takt_model::UnixTime;

/// Earlier forecasts without which nothing is corrected.
const LEAST_KNOWN: usize = 20;

/// Time that is added to each wait, in seconds: below it, ratios of waits say nothing.
const OFFSET_SECONDS: i64 = 300;

/// Largest correction: a time is not moved to more than this multiple of its distance.
const MOST: f64 = 100.0;

/// A replay's forecast of a job that has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownStart {
    /// Time at which the forecast was made.
    pub made_at: UnixTime,
    /// The forecast, before any correction.
    pub forecast: Forecast,
    /// Start of the job.
    pub start: UnixTime,
}

/// Factors by which the distances of the three times are stretched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    p10: f64,
    p50: f64,
    p90: f64,
}

impl Default for Calibration {
    /// Corrects nothing.
    fn default() -> Self {
        Self {
            p10: 1.0,
            p50: 1.0,
            p90: 1.0,
        }
    }
}

impl Calibration {
    /// The correction by earlier forecasts. Too few of them correct nothing.
    pub fn of(known: &[KnownStart]) -> Self {
        if known.len() < LEAST_KNOWN {
            return Self::default();
        }

        let factor = |fraction: f64, time: fn(&Forecast) -> UnixTime| {
            let mut ratios: Vec<f64> = known
                .iter()
                .map(|one| {
                    let waited = distance(one.start, one.made_at);
                    waited / distance(time(&one.forecast), one.made_at)
                })
                .collect();
            ratios.sort_by(f64::total_cmp);
            quantile(&ratios, fraction).clamp(1.0 / MOST, MOST)
        };
        Self {
            p10: factor(0.1, |one| one.p10),
            p50: factor(0.5, |one| one.p50),
            p90: factor(0.9, |one| one.p90),
        }
    }

    /// The corrected forecast. Its times stay in their order, and after `made_at`.
    pub fn apply(&self, forecast: Forecast, made_at: UnixTime) -> Forecast {
        let stretched = |at: UnixTime, factor: f64| {
            let distance = distance(at, made_at) * factor - OFFSET_SECONDS as f64;
            made_at + (distance.max(0.0) as i64)
        };
        let p50 = stretched(forecast.p50, self.p50);
        Forecast {
            p10: stretched(forecast.p10, self.p10).min(p50),
            p50,
            p90: stretched(forecast.p90, self.p90).max(p50),
        }
    }
}

fn distance(at: UnixTime, made_at: UnixTime) -> f64 {
    ((at - made_at).max(0) + OFFSET_SECONDS) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(p10: i64, p50: i64, p90: i64) -> Forecast {
        Forecast {
            p10: UnixTime(p10),
            p50: UnixTime(p50),
            p90: UnixTime(p90),
        }
    }

    fn known(starts: &[i64]) -> Vec<KnownStart> {
        starts
            .iter()
            .map(|start| KnownStart {
                made_at: UnixTime(0),
                forecast: of(3000, 3300, 3600),
                start: UnixTime(*start),
            })
            .collect()
    }

    #[test]
    fn forecasts_that_are_early_by_habit_are_stretched() {
        let starts: Vec<i64> = (1..=100).map(|at| at * 100).collect();
        let found = Calibration::of(&known(&starts)).apply(of(3000, 3300, 3600), UnixTime(0));
        assert_eq!(found, of(1000, 5000, 9000));
        let later = Calibration::of(&known(&starts)).apply(of(3000, 3300, 3600), UnixTime(3000));
        assert!(later.p10 >= UnixTime(3000), "{later:?}");

        let few = Calibration::of(&known(&starts[..19]));
        assert_eq!(few, Calibration::default());
        assert_eq!(few.apply(of(10, 20, 30), UnixTime(5)), of(10, 20, 30));
    }

    proptest! {
        #[test]
        fn four_fifths_of_the_known_starts_are_within_the_corrected_band(
            waits in prop::collection::vec((0_i64..100_000, 0_i64..50_000, 0_i64..50_000, 0_i64..50_000), 30..200),
        ) {
            let known: Vec<KnownStart> = waits
                .into_iter()
                .map(|(start, p10, more, most)| KnownStart {
                    made_at: UnixTime(0),
                    forecast: of(p10, p10 + more, p10 + more + most),
                    start: UnixTime(start),
                })
                .collect();
            let calibration = Calibration::of(&known);
            let is_within = |one: &&KnownStart| {
                let found = calibration.apply(one.forecast, one.made_at);
                assert!(found.p10 <= found.p50 && found.p50 <= found.p90);
                // A second is lost where a time is rounded.
                found.p10 <= one.start + 1 && one.start <= found.p90 + 1
            };
            let within = known.iter().filter(is_within).count();
            prop_assert!(within as f64 >= known.len() as f64 * 0.8 - 2.0, "{within} of {}", known.len());
        }
    }
}
