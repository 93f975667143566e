//! A sheet: what a user, an account or the whole cluster used in a period, how well, and what it cost.
//!
//! It is what every report and every monthly letter is made from. Hours are cut at the period's ends; what was measured
//! of a run that spans several periods is split by the time it held its nodes in each.

mod books;
mod build;

pub use books::{Books, Entry, Journal, Tally};
pub use build::{Facts, energy_money, sheet};

use super::capacity::CapacityRow;
use super::efficiency::{Fix, Split};
use super::{Breach, BudgetUse};
use serde::{Deserialize, Serialize};

/// Whose sheet it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", content = "name", rename_all = "snake_case")]
pub enum Subject {
    /// A user's.
    User(String),
    /// An account's, for those who answer for it.
    Account(String),
    /// Everybody's, for the operator.
    Cluster,
}

impl Subject {
    /// `user`, `account` or `cluster`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::Account(_) => "account",
            Self::Cluster => "cluster",
        }
    }

    /// The user's or account's name; empty for the cluster.
    pub fn name(&self) -> &str {
        match self {
            Self::User(name) | Self::Account(name) => name,
            Self::Cluster => "",
        }
    }
}

/// Everything that a report says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sheet {
    /// Whose it is.
    pub subject: Subject,
    /// The cluster.
    pub cluster: String,
    /// The period: `2026-10`, or its days.
    pub period: String,
    /// Its first instant, RFC 3339.
    pub from: String,
    /// The first instant after it, RFC 3339.
    pub to: String,
    /// The zone whose days it is made of.
    pub timezone: String,
    /// Whether it had not ended when the sheet was made.
    pub is_open: bool,
    /// What stands behind amounts of money; `None` where nothing has a price.
    pub currency: Option<String>,
    /// Whether CO2 is known.
    pub has_co2: bool,
    /// Whether the cluster has GPUs, or anybody may have used some: else nothing of a sheet that is about them is shown.
    #[serde(default = "yes")]
    pub has_gpus: bool,
    /// The figures of the period.
    pub figures: Figures,
    /// Those of the periods before it, the oldest first.
    pub before: Vec<Figures>,
    /// By day.
    pub days: Vec<Day>,
    /// GPU-hours by model, the most first.
    pub gpu_models: Vec<Part>,
    /// The subject's share of what the whole cluster used.
    pub share: Option<Share>,
    /// Its place among all users.
    pub rank: Option<Rank>,
    /// A user's accounts, or an account's or the cluster's users; the most used first.
    pub members: Vec<Member>,
    /// The cluster's accounts, each with its own use; an account's own and those below it, where there are any.
    pub accounts: Vec<Member>,
    /// What became of the cluster's GPUs, where that is known.
    #[serde(default)]
    pub gpu_capacity: Option<CapacityRow>,
    /// What became of its CPUs, where that is known.
    #[serde(default)]
    pub cpu_capacity: Option<CapacityRow>,
    /// How long its runs waited.
    pub waiting: Option<Waiting>,
    /// What to change, the most spared first.
    pub fixes: Vec<FixRow>,
    /// Runs that were assessed, the most wasted first.
    pub runs: Vec<RunRow>,
    /// Runs of several nodes whose GPUs waited for the network.
    pub network_bound: Vec<NetworkRow>,
    /// Runs that a fault of the cluster ended.
    pub lost: Vec<LostRow>,
    /// Budgets.
    pub budgets: Vec<BudgetUse>,
    /// Runs that were where they may not be, when they may not.
    pub breaches: Vec<Breach>,
    /// What a reader must know to read the numbers right.
    pub notes: Vec<String>,
}

fn yes() -> bool {
    true
}

/// What a subject used in a period.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The period.
    pub period: String,
    /// Runs that started in it.
    pub jobs_started: u64,
    /// Runs that ended in it.
    pub jobs_ended: u64,
    /// Those of them that failed, ran out of time or memory, or lost their node.
    pub jobs_failed: u64,
    /// Runs whose number of GPUs nobody saw, and which are in no sum of GPU-hours.
    pub jobs_gpu_unknown: u64,
    /// GPUs × hours held.
    pub gpu_hours: f64,
    /// CPUs × hours held.
    pub cpu_hours: f64,
    /// GiB × hours held.
    pub mem_gib_hours: f64,
    /// What that costs, with the energy that was measured.
    pub money: f64,
    /// Energy of the GPUs, as far as it was measured.
    pub kwh: f64,
    /// CO2 of that.
    pub co2_kg: f64,
    /// Runs of it that were assessed.
    pub runs_assessed: u64,
    /// Those of them of which enough was measured.
    pub runs_measured: u64,
    /// Mean utilization of the GPU time that was measured.
    pub gpu_utilization: Option<f64>,
    /// CPU time used of what was held, where it was measured.
    pub cpu_ratio: Option<f64>,
    /// Of what the assessed GPU-hours went to.
    pub split_gpu_hours: Split,
    /// The same in money.
    pub split_money: Split,
    /// GPU-hours that time limits kept reserved beyond the runs' ends.
    pub limit_excess_gpu_hours: f64,
    /// GPU-hours credited back.
    pub credited_gpu_hours: f64,
}

/// What was held on a day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Day {
    /// `2026-10-25`.
    pub date: String,
    /// GPUs × hours.
    pub gpu_hours: f64,
    /// CPUs × hours.
    pub cpu_hours: f64,
}

/// A part of a sum.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Of what.
    pub name: String,
    /// GPUs × hours.
    pub gpu_hours: f64,
}

/// A share of what the whole cluster used.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Of its GPU-hours; `None` where nobody used any.
    pub gpu: Option<f64>,
    /// Of its CPU-hours.
    pub cpu: Option<f64>,
}

/// A place among all users.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rank {
    /// 1 used the most.
    pub place: usize,
    /// Users who used anything.
    pub of: usize,
    /// What is compared: `GPU-hours`, or `CPU-hours` where nobody used a GPU.
    pub unit: String,
    /// The first ones, and the subject itself.
    pub rows: Vec<RankRow>,
}

/// One place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankRow {
    /// The place.
    pub place: usize,
    /// The user's name; `None` where names are kept back.
    pub name: Option<String>,
    /// Whether this is the subject.
    pub is_self: bool,
    /// What was used.
    pub hours: f64,
}

/// A user of an account, or an account of a user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// What it used.
    #[serde(flatten)]
    pub figures: Figures,
    /// Hours that its runs waited on average.
    pub wait_mean_hours: Option<f64>,
}

/// How long runs that started in the period had waited since their submission.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// Runs.
    pub runs: u64,
    /// Mean.
    pub mean_seconds: f64,
    /// Half of them waited no longer.
    pub median_seconds: u64,
    /// Nine of ten waited no longer.
    pub p90_seconds: u64,
    /// The longest.
    pub longest_seconds: u64,
}

/// A change to a script.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FixRow {
    /// The job's name, else its id.
    pub job: String,
    /// Its user.
    pub user: String,
    /// The kind of change.
    pub fix: Fix,
    /// The line to paste.
    pub line: String,
    /// What was seen of the run that would have spared the most.
    pub why: String,
    /// Runs that want it.
    pub runs: u64,
    /// GPU-hours that it would have spared.
    pub gpu_hours: f64,
    /// The same in money.
    pub money: f64,
}

/// A run that was assessed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    /// The job's id.
    pub job_id: String,
    /// Its name.
    pub name: Option<String>,
    /// Its user.
    pub user: String,
    /// Its account.
    pub account: String,
    /// How it ended.
    pub state: String,
    /// When it ended, RFC 3339.
    pub end: String,
    /// Hours it ran, all of them.
    pub hours: f64,
    /// Its GPUs.
    pub gpus: Option<u64>,
    /// Their model.
    pub gpu_model: Option<String>,
    /// Share that was measured.
    pub coverage: f64,
    /// Mean utilization.
    pub gpu_utilization: Option<f64>,
    /// 95th percentile.
    pub gpu_utilization_p95: Option<f64>,
    /// Longest time without work, in hours.
    pub idle_longest_hours: Option<f64>,
    /// Highest memory on one GPU, as a share of it.
    pub gpu_memory_peak_ratio: Option<f64>,
    /// Share of multiprocessors with work.
    pub gpu_sm: Option<f64>,
    /// CPU time used of what was held.
    pub cpu_ratio: Option<f64>,
    /// Highest memory of what was asked for.
    pub memory_ratio: Option<f64>,
    /// Energy of its GPUs.
    pub kwh: Option<f64>,
    /// Of what its GPU-hours went to, all of them.
    pub split_gpu_hours: Split,
    /// The cause that wasted the most; empty where nothing was wasted or too little was measured.
    pub cause: String,
}

/// A run of several nodes whose GPUs waited for the network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkRow {
    /// The job's id.
    pub job_id: String,
    /// Its user.
    pub user: String,
    /// Its nodes.
    pub nodes: u64,
    /// Share of the time in which a full link kept its GPUs waiting.
    pub link_bound: f64,
    /// Its GPUs' mean utilization.
    pub gpu_utilization: Option<f64>,
    /// That of the same user's runs on one node in the period.
    pub single_node_utilization: Option<f64>,
}

/// A run that a fault ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LostRow {
    /// The job's id.
    pub job_id: String,
    /// Its user.
    pub user: String,
    /// Its nodes, as Slurm wrote them.
    pub nodes: String,
    /// The fault.
    pub fault: String,
    /// GPU-hours that it had held.
    pub gpu_hours: f64,
    /// CPU-hours.
    pub cpu_hours: f64,
    /// Whether an operator gave them back.
    pub is_credited: bool,
}

#[cfg(test)]
mod tests;
