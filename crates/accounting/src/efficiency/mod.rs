//! How well a run used what it held: computed once, at its end, from the samples of its nodes.
//!
//! A number that was not measured is `None`, never 0. Of GPU-seconds each one that was held is counted under exactly
//! one heading: used, one of the causes of waste, or not measured. Below a floor of coverage nothing is said at all.

mod hints;
mod meter;
mod signal;

pub use hints::{Advice, Fix, hints};
pub use meter::{METRICS, MeterSample, NodeMeter};
pub use signal::{Activity, ActivityFigures, Growth, Held, Level, Stretch, Window};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use takt_model::ConfigError;
use takt_slurm::JobRun;

/// What counts as idle, wasteful and measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EfficiencyConfig {
    /// GPU utilization below which a GPU is idle, 0 to 1.
    pub idle_below_ratio: f64,
    /// Seconds that a GPU must be idle without interruption before the time counts as waste.
    pub idle_streak_seconds: u64,
    /// Mean GPU utilization outside idle streaks below which the time without a kernel counts as
    /// waste, 0 to 1.
    pub low_utilization_ratio: f64,
    /// Share of a link's speed at which the link counts as full, 0 to 1.
    pub link_busy_ratio: f64,
    /// Share of a multi-node run's time with a full link and waiting GPUs at which the run counts
    /// as network-bound, 0 to 1.
    pub network_bound_ratio: f64,
    /// Share of a run's GPU time (CPU runs: of its time) that must be measured. Below it, no
    /// efficiency is reported for the run.
    pub min_coverage_ratio: f64,
    /// Longest gap between two samples that still counts as measured, in seconds; at least twice
    /// the scrape interval.
    pub max_gap_seconds: u64,
}

impl Default for EfficiencyConfig {
    fn default() -> Self {
        Self {
            idle_below_ratio: 0.05,
            idle_streak_seconds: 900,
            low_utilization_ratio: 0.5,
            link_busy_ratio: 0.8,
            network_bound_ratio: 0.2,
            min_coverage_ratio: 0.5,
            max_gap_seconds: 90,
        }
    }
}

impl EfficiencyConfig {
    /// Checks that types cannot express: ranges and references between keys.
    ///
    /// # Errors
    /// The first key with an invalid value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (key, value) in [
            ("idle_below_ratio", self.idle_below_ratio),
            ("low_utilization_ratio", self.low_utilization_ratio),
            ("link_busy_ratio", self.link_busy_ratio),
            ("network_bound_ratio", self.network_bound_ratio),
            ("min_coverage_ratio", self.min_coverage_ratio),
        ] {
            if !(value > 0.0 && value <= 1.0) {
                return Err(ConfigError::new(
                    key,
                    "a ratio above 0 and at most 1",
                    value,
                ));
            }
        }
        if self.max_gap_seconds == 0 {
            return Err(ConfigError::new("max_gap_seconds", "at least 1", 0));
        }
        Ok(())
    }

    /// The time of a run, and how far its samples reach.
    pub fn window(&self, start: i64, end: i64) -> Window {
        let reach_ms = i64::try_from(self.max_gap_seconds.saturating_mul(500)).unwrap_or(i64::MAX);
        Window {
            from_ms: start.saturating_mul(1000),
            to_ms: end.saturating_mul(1000),
            reach_ms,
        }
    }
}

/// What one GPU did during a run.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuFigures {
    /// Its node.
    pub node: String,
    /// Its UUID.
    pub uuid: String,
    /// Its utilization.
    pub activity: Option<ActivityFigures>,
    /// Highest memory in use.
    pub memory_peak_bytes: Option<f64>,
    /// Memory it has.
    pub memory_total_bytes: Option<f64>,
    /// Mean power.
    pub power_mean_watts: Option<f64>,
    /// Energy by its counter, else by its power where that was measured.
    pub energy_joules: Option<f64>,
    /// Mean share of its multiprocessors that had work.
    pub sm_mean: Option<f64>,
    /// Mean share of the time its tensor cores worked.
    pub tensor_mean: Option<f64>,
    /// A hardware fault of it during the run.
    pub fault: Option<String>,
}

/// What one node says of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeFigures {
    /// Its name.
    pub node: String,
    /// The run's GPUs, as far as they are known.
    pub gpus: Vec<GpuFigures>,
    /// CPU time of the run's cgroup.
    pub cpu_seconds: Option<f64>,
    /// Seconds of the run in which that was followed.
    pub cpu_covered_seconds: f64,
    /// Highest memory of the run's cgroup.
    pub memory_peak_bytes: Option<f64>,
    /// Bytes received and sent by the node, where no other job was on it.
    pub network_bytes: Option<f64>,
    /// Bytes read from and written to NFS by the node, where no other job was on it.
    pub nfs_bytes: Option<f64>,
    /// Seconds in which a link was full and the run's GPUs waited.
    pub link_bound_seconds: Option<f64>,
    /// Seconds in which both are known.
    pub link_seen_seconds: f64,
}

/// How well a run used what it held. The names are those of the columns of `run_efficiency`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Efficiency {
    /// Seconds it held its nodes.
    pub held_seconds: u64,
    /// GPU-seconds it held; `None` where the number of its GPUs is unknown.
    pub held_gpu_seconds: Option<f64>,
    /// Share of that (of its time, for a run without GPUs) which was measured.
    pub coverage_ratio: f64,
    /// GPUs of it that are known by UUID and were measured.
    pub gpus_measured: u64,
    /// Those of them that did nothing at all.
    pub gpus_idle: u64,
    /// Mean utilization of its GPUs, by time.
    pub gpu_utilization_mean: Option<f64>,
    /// 95th percentile, averaged over its GPUs.
    pub gpu_utilization_p95: Option<f64>,
    /// Share of the GPU time that was idle.
    pub gpu_idle_ratio: Option<f64>,
    /// Longest time that one of its GPUs was idle without a break.
    pub gpu_idle_longest_seconds: Option<f64>,
    /// Highest memory in use on one of its GPUs.
    pub gpu_memory_peak_bytes: Option<f64>,
    /// Memory of that GPU.
    pub gpu_memory_total_bytes: Option<f64>,
    /// Mean power of all its GPUs together.
    pub gpu_power_mean_watts: Option<f64>,
    /// Energy of all its GPUs together.
    pub gpu_energy_joules: Option<f64>,
    /// Mean share of multiprocessors with work, where it was measured.
    pub gpu_sm_mean: Option<f64>,
    /// Mean share of time that tensor cores worked, where it was measured.
    pub gpu_tensor_mean: Option<f64>,
    /// CPU time used.
    pub cpu_seconds: Option<f64>,
    /// CPU time used of what its CPUs had.
    pub cpu_ratio: Option<f64>,
    /// Highest memory of its cgroups, all nodes together (kernel's count: anonymous, page cache and shared).
    pub memory_peak_bytes: Option<f64>,
    /// That of what it asked for.
    pub memory_ratio: Option<f64>,
    /// Bytes over the network, in and out, where it was alone on its nodes.
    pub network_bytes: Option<f64>,
    /// Bytes from and to NFS, where it was alone on its nodes.
    pub nfs_bytes: Option<f64>,
    /// Share of the time in which a link was full while GPUs waited.
    pub link_bound_ratio: Option<f64>,
    /// Whether that makes it network-bound: several nodes, and more of it than `network_bound_ratio`.
    pub is_network_bound: bool,
    /// GPU-seconds used well enough.
    pub used_gpu_seconds: f64,
    /// GPU-seconds of GPUs that did nothing at all.
    pub waste_idle_gpu_seconds: f64,
    /// GPU-seconds in idle streaks of GPUs that worked at other times.
    pub waste_streak_gpu_seconds: f64,
    /// GPU-seconds without a kernel on GPUs of low utilization.
    pub waste_low_gpu_seconds: f64,
    /// GPU-seconds held by a run that a fault of a node or GPU ended.
    pub lost_gpu_seconds: f64,
    /// CPU-seconds held by such a run.
    pub lost_cpu_seconds: f64,
    /// GPU-seconds of which nothing is known.
    pub unmeasured_gpu_seconds: f64,
    /// GPU-seconds that the time limit kept reserved beyond the run's end. They were not held: others could use them, but
    /// the scheduler could not plan with them.
    pub limit_excess_gpu_seconds: f64,
    /// The fault that ended it.
    pub fault: Option<String>,
}

/// A run and how well it used what it held.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AssessedRun {
    /// The run.
    pub run: JobRun,
    /// What was found.
    pub efficiency: Efficiency,
}

/// Of what a run's GPU time went to, in GPU-seconds; together what it held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// Used well enough.
    pub used: f64,
    /// Held by GPUs that did nothing at all.
    pub idle: f64,
    /// In idle streaks.
    pub streak: f64,
    /// Without a kernel, at low utilization.
    pub low: f64,
    /// Lost to a fault.
    pub lost: f64,
    /// Not measured.
    pub unmeasured: f64,
}

impl Split {
    /// All of it.
    pub fn held(&self) -> f64 {
        self.used + self.wasted() + self.lost + self.unmeasured
    }

    /// What its user could have spared.
    pub fn wasted(&self) -> f64 {
        self.idle + self.streak + self.low
    }

    /// Adds a share of another.
    pub fn add(&mut self, other: &Self, share: f64) {
        self.used += other.used * share;
        self.idle += other.idle * share;
        self.streak += other.streak * share;
        self.low += other.low * share;
        self.lost += other.lost * share;
        self.unmeasured += other.unmeasured * share;
    }
}

impl Efficiency {
    /// Of what its GPU time went to.
    pub fn split(&self) -> Split {
        Split {
            used: self.used_gpu_seconds,
            idle: self.waste_idle_gpu_seconds,
            streak: self.waste_streak_gpu_seconds,
            low: self.waste_low_gpu_seconds,
            lost: self.lost_gpu_seconds,
            unmeasured: self.unmeasured_gpu_seconds,
        }
    }

    /// Whether enough of it was measured to say anything.
    pub fn is_measured(&self, rules: &EfficiencyConfig) -> bool {
        self.coverage_ratio >= rules.min_coverage_ratio
    }
}

/// Of a GPU whose busy time is no more than this share, nothing was used: a library that looks at it once is no use.
const NEVER_USED: f64 = 0.01;

/// States in which a fault of the cluster ended the run.
const FAULT_STATES: &[(&str, &str)] = &[
    ("NODE_FAIL", "node failed"),
    ("BOOT_FAIL", "node did not boot"),
];

/// States in which a run may have ended because its GPU was gone. A run that completed lost nothing.
const FAILED_STATES: &[&str] = &[
    "FAILED",
    "TIMEOUT",
    "OUT_OF_MEMORY",
    "CANCELLED",
    "DEADLINE",
];

/// The efficiency of a run that has ended, from what its nodes say. `None` for a run that never held anything.
pub fn assess(run: &JobRun, nodes: &[NodeFigures], rules: &EfficiencyConfig) -> Option<Efficiency> {
    let (start, end) = run.start.zip(run.end)?;
    let held_seconds = u64::try_from(end.saturating_sub(start)).unwrap_or(0);
    let seconds = held_seconds as f64;
    let gpus: Vec<&GpuFigures> = nodes.iter().flat_map(|node| &node.gpus).collect();
    let held = run.gpus.map(|gpus| gpus as f64 * seconds);
    let activities: Vec<&ActivityFigures> = gpus
        .iter()
        .filter_map(|gpu| gpu.activity.as_ref())
        .collect();
    let covered: f64 = activities.iter().map(|gpu| gpu.covered_seconds).sum();
    let per_node = seconds * nodes.len() as f64;
    let cpu_covered: f64 = nodes.iter().map(|node| node.cpu_covered_seconds).sum();
    let coverage_ratio = match held {
        Some(held) if held > 0.0 => covered / held,
        None => 0.0,
        _ if per_node > 0.0 => cpu_covered / per_node,
        _ => 0.0,
    };
    let fault = fault(run, &gpus);
    let cpu_seconds = sum_of_all(nodes, |node| node.cpu_seconds);
    let memory_peak_bytes = sum_of_all(nodes, |node| node.memory_peak_bytes);
    let by_time = |of: fn(&ActivityFigures) -> f64| {
        let sum: f64 = activities
            .iter()
            .map(|gpu| of(gpu) * gpu.covered_seconds)
            .sum();
        (covered > 0.0).then(|| sum / covered)
    };
    let fullest = gpus.iter().filter(|gpu| gpu.memory_peak_bytes.is_some());
    let fullest = fullest.max_by(|a, b| {
        a.memory_peak_bytes
            .partial_cmp(&b.memory_peak_bytes)
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let seen: f64 = nodes.iter().map(|node| node.link_seen_seconds).sum();
    let bound: f64 = nodes
        .iter()
        .filter_map(|node| node.link_bound_seconds)
        .sum();
    let link_bound_ratio = (seen > 0.0).then(|| bound / seen);
    let cpu_held = run
        .cpus
        .map(|cpus| cpus as f64 * seconds)
        .filter(|held| *held > 0.0);
    let mut efficiency = Efficiency {
        held_seconds,
        held_gpu_seconds: held,
        coverage_ratio: coverage_ratio.clamp(0.0, 1.0),
        gpus_measured: activities.len() as u64,
        gpus_idle: activities.iter().filter(|gpu| is_idle(gpu)).count() as u64,
        gpu_utilization_mean: by_time(|gpu| gpu.mean),
        gpu_utilization_p95: mean(activities.iter().map(|gpu| gpu.p95)),
        gpu_idle_ratio: by_time(|gpu| gpu.idle_ratio),
        gpu_idle_longest_seconds: activities
            .iter()
            .map(|gpu| gpu.idle_longest_seconds)
            .reduce(f64::max),
        gpu_memory_peak_bytes: fullest.and_then(|gpu| gpu.memory_peak_bytes),
        gpu_memory_total_bytes: fullest.and_then(|gpu| gpu.memory_total_bytes),
        gpu_power_mean_watts: sum(gpus.iter().map(|gpu| gpu.power_mean_watts)),
        gpu_energy_joules: sum(gpus.iter().map(|gpu| gpu.energy_joules)),
        gpu_sm_mean: mean(gpus.iter().filter_map(|gpu| gpu.sm_mean)),
        gpu_tensor_mean: mean(gpus.iter().filter_map(|gpu| gpu.tensor_mean)),
        cpu_seconds,
        cpu_ratio: cpu_seconds.zip(cpu_held).map(|(used, held)| used / held),
        memory_peak_bytes,
        memory_ratio: memory_peak_bytes
            .zip(run.mem_bytes.filter(|bytes| *bytes > 0))
            .map(|(peak, held)| peak / held as f64),
        network_bytes: sum_of_all(nodes, |node| node.network_bytes),
        nfs_bytes: sum_of_all(nodes, |node| node.nfs_bytes),
        link_bound_ratio,
        is_network_bound: nodes.len() > 1
            && link_bound_ratio.is_some_and(|ratio| ratio >= rules.network_bound_ratio),
        limit_excess_gpu_seconds: limit_excess(run, held_seconds),
        lost_cpu_seconds: if fault.is_some() {
            cpu_held.unwrap_or(0.0)
        } else {
            0.0
        },
        fault,
        ..Efficiency::default()
    };
    efficiency.spread(held.unwrap_or(0.0), &activities, rules);
    Some(efficiency)
}

impl Efficiency {
    /// Counts each GPU-second of `held` under one heading.
    fn spread(&mut self, held: f64, gpus: &[&ActivityFigures], rules: &EfficiencyConfig) {
        if self.fault.is_some() {
            self.lost_gpu_seconds = held;
            return;
        }
        if !self.is_measured(rules) {
            self.unmeasured_gpu_seconds = held;
            return;
        }
        for gpu in gpus {
            if is_idle(gpu) {
                self.waste_idle_gpu_seconds += gpu.covered_seconds;
                continue;
            }
            let working = (gpu.covered_seconds - gpu.idle_streak_seconds).max(0.0);
            let low = match gpu.working_mean < rules.low_utilization_ratio {
                true => working * (1.0 - gpu.working_mean),
                false => 0.0,
            };
            self.waste_streak_gpu_seconds += gpu.idle_streak_seconds;
            self.waste_low_gpu_seconds += low;
            self.used_gpu_seconds += working - low;
        }
        let counted = self.used_gpu_seconds + self.split().wasted();
        self.unmeasured_gpu_seconds = (held - counted).max(0.0);
    }
}

fn is_idle(gpu: &ActivityFigures) -> bool {
    gpu.idle_ratio >= 1.0 - NEVER_USED
}

/// The fault of the cluster's that ended the run.
fn fault(run: &JobRun, gpus: &[&GpuFigures]) -> Option<String> {
    if let Some((_, words)) = FAULT_STATES.iter().find(|(state, _)| *state == run.state) {
        return Some((*words).to_owned());
    }
    let faulty = gpus
        .iter()
        .find_map(|gpu| Some(format!("{} on {}", gpu.fault.as_ref()?, gpu.node)));
    faulty.filter(|_| FAILED_STATES.contains(&run.state.as_str()))
}

/// Reserved beyond the end, for a run that ended by itself.
fn limit_excess(run: &JobRun, held_seconds: u64) -> f64 {
    let excess = run
        .timelimit
        .map_or(0, |limit| limit.saturating_sub(held_seconds));
    if run.state == "COMPLETED" {
        excess as f64 * run.gpus.unwrap_or(0) as f64
    } else {
        0.0
    }
}

/// The sum over all nodes; `None` where one of them does not know.
fn sum_of_all(nodes: &[NodeFigures], of: fn(&NodeFigures) -> Option<f64>) -> Option<f64> {
    if nodes.is_empty() {
        return None;
    }
    nodes
        .iter()
        .map(of)
        .try_fold(0.0, |sum, value| Some(sum + value?))
}

/// The sum of what is known; `None` where nothing is.
fn sum(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values
        .flatten()
        .fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests;
