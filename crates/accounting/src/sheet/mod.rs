//! Reports: usage, efficiency and cost of a user, an account or the whole cluster in a period.
//!
//! All reports and monthly mails are rendered from a [`Sheet`]. Hours are cut at the ends of the
//! period. Measurements of a run across several periods are split by its run time in each.

mod books;
mod build;

pub use books::{Books, Entry, Journal, Tally};
pub use build::{Facts, energy_money, sheet};

use super::capacity::CapacityRow;
use super::efficiency::{FixKind, Split};
use super::{Breach, BudgetUse};
use serde::{Deserialize, Serialize};

/// Subject of a report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", content = "name", rename_all = "snake_case")]
pub enum Subject {
    /// A user.
    User(String),
    /// An account, for its coordinators.
    Account(String),
    /// The whole cluster, for operators.
    Cluster,
}

impl Subject {
    /// Returns `user`, `account` or `cluster`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::Account(_) => "account",
            Self::Cluster => "cluster",
        }
    }

    /// Returns the name of the user or account. Empty for the cluster.
    pub fn name(&self) -> &str {
        match self {
            Self::User(name) | Self::Account(name) => name,
            Self::Cluster => "",
        }
    }
}

/// Content of a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sheet {
    /// Subject.
    pub subject: Subject,
    /// Cluster name.
    pub cluster: String,
    /// Name of the period: `2026-10`, or its days.
    pub period: String,
    /// First instant of the period, RFC 3339.
    pub from: String,
    /// First instant after the period, RFC 3339.
    pub to: String,
    /// Time zone of the period's days.
    pub timezone: String,
    /// Whether the period had not ended when the report was made.
    pub is_open: bool,
    /// Currency. `None` without prices.
    pub currency: Option<String>,
    /// Whether CO2 per kWh is configured.
    pub has_co2: bool,
    /// Whether the cluster has GPUs, or may have some. Otherwise GPU figures are hidden.
    #[serde(default = "yes")]
    pub has_gpus: bool,
    /// Figures of the period.
    pub figures: Figures,
    /// Figures of the previous periods, oldest first. Periods before the first record are missing.
    pub before: Vec<Figures>,
    /// Usage by day.
    pub days: Vec<Day>,
    /// GPU-hours by model, largest first.
    pub gpu_models: Vec<Part>,
    /// The subject's share of the cluster's usage.
    pub share: Option<Share>,
    /// The user's place among all users.
    pub rank: Option<Rank>,
    /// Accounts of a user, or users of an account or the cluster; largest usage first.
    pub members: Vec<Member>,
    /// Accounts of the cluster with their own usage, or an account and those below it.
    pub accounts: Vec<Member>,
    /// Use of the cluster's GPUs, if known.
    #[serde(default)]
    pub gpu_capacity: Option<CapacityRow>,
    /// Use of the cluster's CPUs, if known.
    #[serde(default)]
    pub cpu_capacity: Option<CapacityRow>,
    /// Waiting times of the runs that started in the period.
    pub waiting: Option<Waiting>,
    /// Proposed changes, largest savings first.
    pub fixes: Vec<FixRow>,
    /// Assessed runs, largest waste first.
    pub runs: Vec<RunRow>,
    /// Multi-node runs whose GPUs waited for the network.
    pub network_bound: Vec<NetworkRow>,
    /// Runs that a fault of the cluster ended.
    pub lost: Vec<LostRow>,
    /// Use of budgets.
    pub budgets: Vec<BudgetUse>,
    /// Runs that broke policy windows.
    pub breaches: Vec<Breach>,
    /// Notes that are necessary to read the figures correctly.
    pub notes: Vec<String>,
}

fn yes() -> bool {
    true
}

/// Usage of a subject in one period.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Name of the period.
    pub period: String,
    /// Whether the cluster's job records begin within the period, so that a part is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_partial: bool,
    /// Runs that started in the period.
    pub jobs_started: u64,
    /// Runs that ended in the period.
    pub jobs_ended: u64,
    /// Runs that ended in the period without success: failed, out of time or memory, or lost their
    /// node.
    pub jobs_failed: u64,
    /// Runs with an unknown number of GPUs. They are excluded from GPU-hours.
    pub jobs_gpu_unknown: u64,
    /// Allocated GPUs × hours.
    pub gpu_hours: f64,
    /// Allocated CPUs × hours.
    pub cpu_hours: f64,
    /// Allocated memory in GiB × hours.
    pub mem_gib_hours: f64,
    /// Cost of the allocation and of the measured energy.
    pub money: f64,
    /// Measured energy of the GPUs, in kWh.
    pub kwh: f64,
    /// CO2 of that energy, in kg.
    pub co2_kg: f64,
    /// Assessed runs.
    pub runs_assessed: u64,
    /// Assessed runs with enough measurements.
    pub runs_measured: u64,
    /// Mean utilization over the measured GPU time, 0 to 1.
    pub gpu_utilization: Option<f64>,
    /// CPU time used over CPU time allocated, where measured.
    pub cpu_ratio: Option<f64>,
    /// GPU-hours of the assessed runs by category.
    pub split_gpu_hours: Split,
    /// The same in money.
    pub split_money: Split,
    /// GPU-hours between the ends of runs and their time limits.
    pub limit_excess_gpu_hours: f64,
    /// GPU-hours credited back.
    pub credited_gpu_hours: f64,
}

impl Sheet {
    /// Compares a figure with its mean in the previous periods that are recorded completely.
    /// Returns the relative change (0.2 for 20 % more) and the number of these periods. `None`
    /// if the period has not ended or is partial, or without usage to compare with.
    pub fn change(&self, of: fn(&Figures) -> f64) -> Option<(f64, usize)> {
        if self.is_open || self.figures.is_partial {
            return None;
        }
        let before: Vec<f64> = self
            .before
            .iter()
            .filter(|figures| !figures.is_partial)
            .map(of)
            .collect();
        // Without such periods the sum is 0, and so is the mean.
        let mean = before.iter().sum::<f64>() / before.len().max(1) as f64;
        (mean > 0.0).then(|| (of(&self.figures) / mean - 1.0, before.len()))
    }
}

/// Usage of one day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Day {
    /// Date, such as `2026-10-25`.
    pub date: String,
    /// Allocated GPUs × hours.
    pub gpu_hours: f64,
    /// Allocated CPUs × hours.
    pub cpu_hours: f64,
}

/// A part of a sum.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Name of the part.
    pub name: String,
    /// Allocated GPUs × hours.
    pub gpu_hours: f64,
}

/// Share of the cluster's usage, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Share of GPU-hours. `None` if the cluster used none.
    pub gpu: Option<f64>,
    /// Share of CPU-hours. `None` if the cluster used none.
    pub cpu: Option<f64>,
}

/// Place of a user in the ranking by usage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rank {
    /// Place; 1 has the largest usage.
    pub place: usize,
    /// Number of users with usage.
    pub of: usize,
    /// Unit of the ranking: `GPU-hours`, or `CPU-hours` if the cluster used no GPUs.
    pub unit: String,
    /// The top places, and the user's own.
    pub rows: Vec<RankRow>,
}

/// One place of the ranking.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankRow {
    /// Place from 1.
    pub place: usize,
    /// User name. `None` if names are hidden.
    pub name: Option<String>,
    /// Whether this is the report's user.
    pub is_self: bool,
    /// Usage in the unit of the ranking.
    pub hours: f64,
}

/// A user of an account, or an account of a user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Name of the user or account.
    pub name: String,
    /// Usage.
    #[serde(flatten)]
    pub figures: Figures,
    /// Mean waiting time in hours.
    pub wait_mean_hours: Option<f64>,
}

/// Waiting times between submission and start.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// Number of runs.
    pub runs: u64,
    /// Mean in seconds.
    pub mean_seconds: f64,
    /// Median in seconds.
    pub median_seconds: u64,
    /// 90th percentile in seconds.
    pub p90_seconds: u64,
    /// Maximum in seconds.
    pub longest_seconds: u64,
}

/// A proposed change to a job script.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FixRow {
    /// Job name, or the job id without one.
    pub job: String,
    /// Unix user.
    pub user: String,
    /// Kind of the change.
    pub fix: FixKind,
    /// Line to paste into the script.
    pub line: String,
    /// Observation in the run with the largest savings.
    pub why: String,
    /// Number of runs.
    pub runs: u64,
    /// GPU-hours that the change would have saved.
    pub gpu_hours: f64,
    /// The same in money.
    pub money: f64,
}

/// An assessed run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    /// Job id.
    pub job_id: String,
    /// Job name.
    pub name: Option<String>,
    /// Unix user.
    pub user: String,
    /// Account.
    pub account: String,
    /// Final state.
    pub state: String,
    /// End time, RFC 3339.
    pub end: String,
    /// Run time in hours, also outside the period.
    pub hours: f64,
    /// Number of GPUs.
    pub gpus: Option<u64>,
    /// GPU model.
    pub gpu_model: Option<String>,
    /// Measured fraction, 0 to 1.
    pub coverage: f64,
    /// Mean GPU utilization, 0 to 1.
    pub gpu_utilization: Option<f64>,
    /// 95th percentile of GPU utilization, 0 to 1.
    pub gpu_utilization_p95: Option<f64>,
    /// Longest continuous idle time of a GPU, in hours.
    pub idle_longest_hours: Option<f64>,
    /// Maximum memory on one GPU over its total memory.
    pub gpu_memory_peak_ratio: Option<f64>,
    /// Mean fraction of multiprocessors with work, 0 to 1.
    pub gpu_sm: Option<f64>,
    /// CPU time used over CPU time allocated.
    pub cpu_ratio: Option<f64>,
    /// Maximum memory over requested memory.
    pub memory_ratio: Option<f64>,
    /// Energy of the GPUs, in kWh.
    pub kwh: Option<f64>,
    /// GPU-hours by category, also outside the period.
    pub split_gpu_hours: Split,
    /// Cause of the largest waste. Empty without waste, or if too little was measured.
    pub cause: String,
}

/// A multi-node run whose GPUs waited for the network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkRow {
    /// Job id.
    pub job_id: String,
    /// Job name.
    #[serde(default)]
    pub name: Option<String>,
    /// Unix user.
    pub user: String,
    /// Number of nodes.
    pub nodes: u64,
    /// Fraction of time in which a full link kept the GPUs waiting, 0 to 1.
    pub link_bound: f64,
    /// Mean GPU utilization, 0 to 1.
    pub gpu_utilization: Option<f64>,
    /// Mean GPU utilization of the same user's single-node runs in the period, 0 to 1.
    pub single_node_utilization: Option<f64>,
}

/// A run that a fault ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LostRow {
    /// Job id.
    pub job_id: String,
    /// Job name.
    #[serde(default)]
    pub name: Option<String>,
    /// Unix user.
    pub user: String,
    /// Nodes, as Slurm wrote them.
    pub nodes: String,
    /// Fault.
    pub fault: String,
    /// GPU-hours that the run had used.
    pub gpu_hours: f64,
    /// CPU-hours that the run had used.
    pub cpu_hours: f64,
    /// Whether an operator credited them back.
    pub is_credited: bool,
}

#[cfg(test)]
mod tests;
