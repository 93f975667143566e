//! Grades of forecasts: whether starts are forecast well enough to be shown.

use serde::{Deserialize, Serialize};
use takt_model::words::{duration, percent};
use takt_simulate::{Waited, back_test};
use takt_store::{ForecastSummary, GradedForecast};

/// Graded forecasts from which on bad ones are no longer shown.
pub(super) const LEAST_GRADED: u64 = 20;

/// Least share of starts within the band. The band promises 0.8; below this it is 20 points or more off.
pub(super) const LEAST_RIGHT_RATIO: f64 = 0.6;

/// Largest sum of errors over the sum of the waits that were left. Above it, "it starts now" would have been closer.
pub(super) const MOST_ERROR_RATIO: f64 = 1.0;

/// Days of forecasts that are graded.
pub(super) const GRADED_DAYS: i64 = 30;

/// How good the forecasts of the last month were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ForecastGrades {
    /// Forecasts of jobs that have started.
    pub graded: u64,
    /// Share of starts within the forecast band, from 0 to 1. `None` if none is graded.
    pub right_ratio: Option<f64>,
    /// Median of the distance between the start and the most likely time, in seconds.
    pub median_error_seconds: Option<i64>,
    /// Sum of these distances over the sum of the waits that were left.
    pub error_ratio: Option<f64>,
    /// Graded forecasts of jobs for which Slurm had planned a start, too.
    pub slurm_graded: u64,
    /// Median of the distance between the start and Slurm's plan, in seconds.
    pub slurm_median_error_seconds: Option<i64>,
    /// Median of the distance between the start and the most likely time of the same jobs, in seconds.
    pub paired_median_error_seconds: Option<i64>,
}

impl ForecastGrades {
    /// The grades as they are recorded.
    pub fn of(summary: &ForecastSummary) -> Self {
        Self {
            graded: summary.graded,
            right_ratio: (summary.graded > 0).then(|| summary.right as f64 / summary.graded as f64),
            median_error_seconds: summary.median_error_seconds,
            error_ratio: summary.error_ratio,
            slurm_graded: summary.slurm_graded,
            slurm_median_error_seconds: summary.slurm_median_error_seconds,
            paired_median_error_seconds: summary.paired_median_error_seconds,
        }
    }

    /// Whether forecasts are good enough to be shown, as far as is known.
    pub fn are_shown(&self) -> bool {
        let is_off = self
            .right_ratio
            .is_some_and(|ratio| ratio < LEAST_RIGHT_RATIO);
        let is_far = self
            .error_ratio
            .is_some_and(|ratio| ratio > MOST_ERROR_RATIO);
        self.graded < LEAST_GRADED || !(is_off || is_far)
    }

    /// The grades in words, as the continuation of a sentence.
    pub fn words(&self) -> String {
        let Some(ratio) = self.right_ratio else {
            return "no forecast has been graded yet".to_owned();
        };
        let of = match self.graded {
            1 => "the only graded forecast".to_owned(),
            graded => format!("the last {graded} forecasts"),
        };
        let error = self
            .median_error_seconds
            .map_or_else(String::new, |seconds| {
                format!(", with a median error of {}", duration(seconds as f64))
            });
        format!("of {of} {} were right{error}", percent(ratio))
    }

    /// Why no forecast is shown. `None` if they are.
    pub fn refusal(&self) -> Option<String> {
        let ratio = self.right_ratio.filter(|_| !self.are_shown())?;
        let error = self.median_error_seconds.unwrap_or(0);
        let worse = if ratio < LEAST_RIGHT_RATIO {
            format!("least: {}", percent(LEAST_RIGHT_RATIO))
        } else {
            "but the errors are larger than the waits".to_owned()
        };
        Some(format!(
            "the forecasts of the last {GRADED_DAYS} days were wrong: {} of {} jobs started within the forecast time \
             ({worse}), with a median error of {}; none is shown",
            percent(ratio),
            self.graded,
            duration(error as f64)
        ))
    }
}

/// Sums up graded forecasts.
pub(super) fn grade(forecasts: &[GradedForecast]) -> ForecastSummary {
    let errors: Vec<Waited<'_>> = forecasts
        .iter()
        .map(|one| waited(one.start - one.made_at, one.p50 - one.made_at))
        .collect();

    let compared: Vec<(&GradedForecast, i64)> = forecasts
        .iter()
        .filter_map(|one| Some((one, one.slurm_start? - one.made_at)))
        .collect();
    let slurm: Vec<Waited<'_>> = compared
        .iter()
        .map(|(one, planned)| waited(one.start - one.made_at, *planned))
        .collect();
    let paired: Vec<Waited<'_>> = compared
        .iter()
        .map(|(one, _)| waited(one.start - one.made_at, one.p50 - one.made_at))
        .collect();

    let median = |waits: &[Waited<'_>]| {
        (!waits.is_empty()).then(|| back_test(waits).all.median_error_seconds)
    };
    ForecastSummary {
        graded: forecasts.len() as u64,
        right: forecasts.iter().filter(|one| one.is_right).count() as u64,
        median_error_seconds: median(&errors),
        error_ratio: back_test(&errors).all.error_ratio,
        slurm_graded: compared.len() as u64,
        slurm_median_error_seconds: median(&slurm),
        paired_median_error_seconds: median(&paired),
    }
}

fn waited(recorded: i64, replayed: i64) -> Waited<'static> {
    Waited {
        partition: "",
        size: "",
        recorded,
        replayed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_model::UnixTime;
    use takt_store::ForecastTimes;

    fn one(start: i64, p50: i64, slurm: Option<i64>, is_right: bool) -> GradedForecast {
        GradedForecast {
            made_at: UnixTime(1000),
            p50: UnixTime(p50),
            replayed: ForecastTimes::default(),
            slurm_start: slurm.map(UnixTime),
            start: UnixTime(start),
            is_right,
        }
    }

    #[test]
    fn errors_are_compared_with_slurms_on_the_same_jobs() {
        let found = grade(&[
            one(2000, 1900, Some(4000), true),
            one(3000, 3600, Some(3100), false),
            one(2000, 2010, None, true),
        ]);
        assert_eq!((found.graded, found.right), (3, 2));
        assert_eq!(found.median_error_seconds, Some(100));
        assert_eq!(found.error_ratio, Some(710.0 / 4000.0));
        assert_eq!(found.slurm_graded, 2);
        assert_eq!(found.slurm_median_error_seconds, Some(100));
        assert_eq!(found.paired_median_error_seconds, Some(100));
        assert_eq!(grade(&[]), ForecastSummary::default());
    }

    #[test]
    fn bad_forecasts_are_refused_as_soon_as_enough_are_graded() {
        let with = |graded, right| {
            ForecastGrades::of(&ForecastSummary {
                graded,
                right,
                median_error_seconds: Some(5400),
                ..ForecastSummary::default()
            })
        };
        assert!(with(0, 0).are_shown());
        assert_eq!(with(0, 0).words(), "no forecast has been graded yet");
        assert!(with(19, 0).are_shown(), "too few to judge");
        assert!(!with(20, 11).are_shown());
        assert!(with(20, 12).are_shown());
        let refusal = with(100, 41).refusal().unwrap();
        assert!(refusal.contains("41 % of 100 jobs"), "{refusal}");
        assert_eq!(with(100, 83).refusal(), None);
        let far = ForecastGrades {
            error_ratio: Some(1.2),
            ..with(100, 83)
        };
        assert!(far.refusal().unwrap().contains("larger than the waits"));
        assert!(
            with(100, 83)
                .words()
                .starts_with("of the last 100 forecasts 83 % were right")
        );
    }
}
