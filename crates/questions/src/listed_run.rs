//! A run in a list, with its use of the GPUs and the reason of a pending one.

use super::forecast::StartForecast;
use super::visible::hide_details;
use serde::{Deserialize, Serialize};
use takt_access::{Owner, Viewer};
use takt_accounting::efficiency::{Efficiency, EfficiencyConfig};
use takt_accounting::waste::{WasteCause, main_cause};
use takt_jobs::{JobRun, reasons};
use takt_model::UnixTime;
use takt_slurm::tres::TresCounts;
use takt_store::{KnownReason, ListedJob};

/// A run, its use of the GPUs, and the reason of a pending one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListedRun {
    /// The run.
    #[serde(flatten)]
    pub run: JobRun,
    /// Why the run is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WhyWaiting>,
    /// When a pending run starts, or why that is not known. `None` for other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_forecast: Option<StartForecast>,
    /// Use of the allocation; `None` if the run was not assessed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<RunUse>,
    /// Position in the list, for the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl ListedRun {
    /// GPUs that the run holds, or that a pending one requests; `None` if they are unknown.
    pub fn gpus(&self) -> Option<u64> {
        self.run.gpus.or_else(|| requested(&self.run).gpus)
    }
}

/// Resources that a run requests; all `None` if Slurm did not record them.
pub fn requested(run: &JobRun) -> TresCounts {
    run.req_tres
        .as_deref()
        .map(TresCounts::parse)
        .and_then(|counts| counts.ok().flatten())
        .unwrap_or_default()
}

/// Use of an allocation. Ratios are from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RunUse {
    /// Measured fraction of the run.
    pub coverage: f64,
    /// Whether enough was measured for a verdict.
    pub is_measured: bool,
    /// Mean GPU utilization.
    pub gpu_utilization: Option<f64>,
    /// CPU time used over CPU time allocated.
    pub cpu_ratio: Option<f64>,
    /// Maximum memory over requested memory.
    pub memory_ratio: Option<f64>,
    /// Allocated GPU-hours.
    pub gpu_hours: Option<f64>,
    /// Wasted GPU-hours; `None` if too little was measured.
    pub wasted_gpu_hours: Option<f64>,
    /// Cause of the largest waste.
    pub cause: Option<WasteCause>,
    /// Energy of the GPUs, in kWh.
    pub kwh: Option<f64>,
}

const HOUR: f64 = 3600.0;
const JOULES_PER_KWH: f64 = 3.6e6;

impl RunUse {
    /// The use that an assessment found.
    pub fn of(seen: &Efficiency, rules: &EfficiencyConfig) -> Self {
        let split = seen.split();
        Self {
            coverage: seen.coverage_ratio,
            is_measured: seen.is_measured(rules),
            gpu_utilization: seen.gpu_utilization_mean,
            cpu_ratio: seen.cpu_ratio,
            memory_ratio: seen.memory_ratio,
            gpu_hours: seen.held_gpu_seconds.map(|seconds| seconds / HOUR),
            wasted_gpu_hours: split.known_waste().map(|seconds| seconds / HOUR),
            cause: main_cause(&split),
            kwh: seen.gpu_energy_joules.map(|joules| joules / JOULES_PER_KWH),
        }
    }
}

/// Why a run is pending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyWaiting {
    /// Slurm's reason, such as `Priority`.
    pub reason: String,
    /// The reason, explained.
    pub words: String,
    /// Since when Slurm has given this reason.
    pub since: UnixTime,
    /// Slurm's estimate of the start.
    pub expected_start: Option<UnixTime>,
    /// Slurm's priority. `None` if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// What it asks for besides amounts, a time and a partition: `features`, `licenses`, …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub demands: Vec<String>,
}

impl WhyWaiting {
    /// The reason of a run, in words.
    pub fn of(known: KnownReason, run: &JobRun) -> Self {
        Self {
            words: reasons::in_words(&known.reason, run),
            reason: known.reason,
            since: known.since,
            expected_start: known.expected_start,
            priority: known.priority,
            demands: known.demands,
        }
    }
}

/// The row of a list, without what the viewer may not see of another user's run.
pub(super) fn listed_run(
    mut row: ListedJob,
    rules: &EfficiencyConfig,
    viewer: &Viewer,
) -> ListedRun {
    let owner = Owner::new(&row.run.user, &row.run.account);
    let efficiency = row.efficiency.filter(|_| viewer.sees_measurements(owner));
    hide_details(viewer, &mut row.run);
    ListedRun {
        waiting: row.reason.map(|known| WhyWaiting::of(known, &row.run)),
        start_forecast: None,
        used: efficiency.map(|seen| RunUse::of(&seen, rules)),
        cursor: None,
        run: row.run,
    }
}
