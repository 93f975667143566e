//! Waste of a period: GPU-hours by cause, by the utilization of the runs, and a point for each run.

use crate::Period;
use crate::efficiency::{AssessedRun, EfficiencyConfig, Split};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use takt_model::UnixTime;

/// Number of bars in the histogram of utilization: 5 % each.
const BARS: usize = 20;

const HOUR: f64 = 3600.0;

/// Waste in a period. Hours are GPU-hours within the period.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Waste {
    /// Number of assessed runs with GPUs.
    pub runs: u64,
    /// Number of them with enough measurements.
    pub runs_measured: u64,
    /// GPU-hours of these runs by category.
    pub split: Split,
    /// GPU-hours between the ends of completed runs and their time limits. Not part of `split`.
    pub limit_excess_gpu_hours: f64,
    /// Causes of waste, largest first.
    pub causes: Vec<CauseRow>,
    /// Users, largest waste first.
    pub users: Vec<WasteRow>,
    /// Accounts, largest waste first.
    pub accounts: Vec<WasteRow>,
    /// GPU-hours by mean utilization of the run, in equal steps from 0 to 1.
    pub histogram: Vec<Bar>,
    /// Measured runs, most GPU-hours first.
    pub points: Vec<WastePoint>,
}

/// GPU-hours with one cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CauseRow {
    /// Cause: `idle`, `streak`, `low` or `lost`.
    pub cause: WasteCause,
    /// GPU-hours.
    pub gpu_hours: f64,
    /// Number of runs with this cause.
    pub runs: u64,
}

/// Cause of waste.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WasteCause {
    /// GPUs that did nothing.
    Idle,
    /// GPUs that worked and then idled.
    Streak,
    /// GPUs of low utilization.
    Low,
    /// Work lost to a fault of the cluster.
    Lost,
}

impl WasteCause {
    /// All causes.
    pub const ALL: [Self; 4] = [Self::Idle, Self::Streak, Self::Low, Self::Lost];

    /// Returns the cause in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Idle => "GPUs that did nothing",
            Self::Streak => "idle streaks",
            Self::Low => "low utilization",
            Self::Lost => "lost to faults",
        }
    }

    /// Returns the part of a split that this cause wasted.
    pub fn of(self, split: &Split) -> f64 {
        match self {
            Self::Idle => split.idle,
            Self::Streak => split.streak,
            Self::Low => split.low,
            Self::Lost => split.lost,
        }
    }
}

/// Waste of a user or an account, in GPU-hours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WasteRow {
    /// Name of the user or account.
    pub name: String,
    /// Number of assessed runs with GPUs.
    pub runs: u64,
    /// GPU-hours by category.
    pub split: Split,
    /// GPU-hours wasted. `None` if nothing was measured.
    pub wasted: Option<f64>,
    /// Cause of the largest waste.
    pub cause: Option<WasteCause>,
}

/// One bar of the histogram.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// Lowest utilization of the bar, 0 to 1.
    pub from: f64,
    /// Highest utilization of the bar, 0 to 1.
    pub to: f64,
    /// GPU-hours of the runs with such a utilization.
    pub gpu_hours: f64,
    /// Number of the runs.
    pub runs: u64,
}

/// One measured run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WastePoint {
    /// Job id.
    pub job_id: String,
    /// Time of submission.
    pub submit: UnixTime,
    /// Job name.
    pub name: Option<String>,
    /// Unix user.
    pub user: String,
    /// Account.
    pub account: String,
    /// GPU-hours within the period.
    pub gpu_hours: f64,
    /// Mean utilization of its GPUs, 0 to 1.
    pub utilization: f64,
    /// GPU-hours wasted within the period.
    pub wasted: f64,
    /// Cause of the largest waste.
    pub cause: Option<WasteCause>,
}

/// Returns the waste of the runs in a period, with at most `most_points` points.
pub fn waste<'r>(
    runs: impl IntoIterator<Item = &'r AssessedRun>,
    period: &Period,
    rules: &EfficiencyConfig,
    most_points: usize,
) -> Waste {
    let mut found = Waste {
        histogram: bars(),
        ..Waste::default()
    };

    let mut users: BTreeMap<&str, (u64, Split)> = BTreeMap::new();
    let mut accounts: BTreeMap<&str, (u64, Split)> = BTreeMap::new();
    let mut causes = WasteCause::ALL.map(|cause| CauseRow {
        cause,
        gpu_hours: 0.0,
        runs: 0,
    });

    for AssessedRun { run, efficiency } in runs {
        let share = share_in(run.start, run.end, efficiency.held_seconds, period);
        if share == 0.0 || run.gpus.unwrap_or(0) == 0 {
            continue;
        }

        let mut split = Split::default();
        split.add(&efficiency.split(), share / HOUR);
        found.runs += 1;
        found.split.add(&split, 1.0);
        found.limit_excess_gpu_hours += efficiency.limit_excess_gpu_seconds * share / HOUR;

        for (group, name) in [(&mut users, &run.user), (&mut accounts, &run.account)] {
            let (runs, sum) = group.entry(name).or_default();
            *runs += 1;
            sum.add(&split, 1.0);
        }

        for row in &mut causes {
            let hours = row.cause.of(&split);
            row.gpu_hours += hours;
            row.runs += u64::from(hours > 0.0);
        }

        // Only a measured run has a bar and a point.
        let Some(utilization) = efficiency
            .gpu_utilization_mean
            .filter(|_| efficiency.is_measured(rules))
        else {
            continue;
        };

        found.runs_measured += 1;
        // A utilization of exactly 1 belongs to the last bar.
        let bar = ((utilization * BARS as f64) as usize).min(BARS - 1);
        found.histogram[bar].gpu_hours += split.held();
        found.histogram[bar].runs += 1;

        found.points.push(WastePoint {
            job_id: run.job_id.clone(),
            submit: run.submit,
            name: run.name.clone(),
            user: run.user.clone(),
            account: run.account.clone(),
            gpu_hours: split.held(),
            utilization,
            wasted: split.wasted(),
            cause: main_cause(&split),
        });
    }

    found.causes = causes.into_iter().filter(|row| row.runs > 0).collect();
    found
        .causes
        .sort_by(|a, b| b.gpu_hours.total_cmp(&a.gpu_hours));

    found.users = rows(users);
    found.accounts = rows(accounts);
    found
        .points
        .sort_by(|a, b| b.gpu_hours.total_cmp(&a.gpu_hours));
    found.points.truncate(most_points);
    found
}

/// Returns the fraction of a run's time that lies within the period, 0 to 1.
fn share_in(
    start: Option<UnixTime>,
    end: Option<UnixTime>,
    held_seconds: u64,
    period: &Period,
) -> f64 {
    let from = start.unwrap_or_default().max(period.from());
    let to = end.unwrap_or_default().min(period.to());
    if held_seconds == 0 || to <= from {
        0.0
    } else {
        (to - from) as f64 / held_seconds as f64
    }
}

/// Returns the cause of the largest waste. `None` without waste.
pub fn main_cause(split: &Split) -> Option<WasteCause> {
    WasteCause::ALL
        .into_iter()
        .max_by(|a, b| a.of(split).total_cmp(&b.of(split)))
        .filter(|cause| cause.of(split) > 0.0)
}

fn bars() -> Vec<Bar> {
    let edge = |bar: usize| bar as f64 / BARS as f64;
    (0..BARS)
        .map(|at| Bar {
            from: edge(at),
            to: edge(at + 1),
            ..Bar::default()
        })
        .collect()
}

fn rows(groups: BTreeMap<&str, (u64, Split)>) -> Vec<WasteRow> {
    let row = |(name, (runs, split)): (&str, (u64, Split))| WasteRow {
        name: name.to_owned(),
        runs,
        wasted: split.known_waste(),
        cause: main_cause(&split),
        split,
    };
    let mut rows: Vec<WasteRow> = groups.into_iter().map(row).collect();
    // Unknown waste comes after none.
    let wasted = |row: &WasteRow| row.wasted.unwrap_or(-1.0);
    rows.sort_by(|a, b| wasted(b).total_cmp(&wasted(a)).then(a.name.cmp(&b.name)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::efficiency::Efficiency;
    use jiff::tz::TimeZone;
    use takt_jobs::JobRun;

    fn assessed(user: &str, from_hour: i64, hours: i64, idle: bool) -> AssessedRun {
        let seconds = (hours * 3600) as f64;
        AssessedRun {
            run: JobRun {
                job_id: format!("{user}{from_hour}"),
                user: user.into(),
                account: "lab".into(),
                start: Some(UnixTime(from_hour * 3600)),
                end: Some(UnixTime((from_hour + hours) * 3600)),
                gpus: Some(1),
                ..JobRun::default()
            },
            efficiency: Efficiency {
                held_seconds: seconds as u64,
                coverage_ratio: 1.0,
                gpu_utilization_mean: Some(if idle { 0.0 } else { 1.0 }),
                used_gpu_seconds: if idle { 0.0 } else { seconds },
                waste_idle_gpu_seconds: if idle { seconds } else { 0.0 },
                ..Efficiency::default()
            },
        }
    }

    #[test]
    fn parts_add_up_and_runs_are_cut_at_the_ends_of_the_period() {
        let now = jiff::Timestamp::from_second(10 * 86_400).unwrap();
        let period = Period::span("1970-01-02", "1970-01-03", &TimeZone::UTC, now).unwrap();
        // One run is half within the period, one before it.
        let runs = [
            assessed("ann", 12, 24, true),
            assessed("bob", 30, 6, false),
            assessed("eve", 0, 6, true),
        ];
        let found = waste(&runs, &period, &EfficiencyConfig::default(), 1);
        assert_eq!(found.runs, 2);
        assert_eq!(found.runs_measured, 2);
        assert_eq!(found.split.idle, 12.0);
        assert_eq!(found.split.used, 6.0);
        assert_eq!(
            found.causes,
            [CauseRow {
                cause: WasteCause::Idle,
                gpu_hours: 12.0,
                runs: 1
            }]
        );
        let users: Vec<_> = found
            .users
            .iter()
            .map(|row| (row.name.as_str(), row.wasted, row.cause))
            .collect();
        assert_eq!(
            users,
            [
                ("ann", Some(12.0), Some(WasteCause::Idle)),
                ("bob", Some(0.0), None)
            ]
        );
        assert_eq!(found.accounts[0].split, found.split);
        let sum: f64 = found.histogram.iter().map(|bar| bar.gpu_hours).sum();
        assert_eq!(sum, found.split.held());
        assert_eq!(found.histogram[0].gpu_hours, 12.0);
        assert_eq!(found.histogram[19].gpu_hours, 6.0);
        assert_eq!(found.points.len(), 1, "the largest only");
        assert_eq!(found.points[0].job_id, "ann12");
    }
}
