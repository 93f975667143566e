//! Efficiency: how well a run used its allocation, computed once at its end from its nodes'
//! samples.
//!
//! A value that was not measured is `None`, never 0. Each allocated GPU-second counts in exactly
//! one category: used, one of the causes of waste, or not measured. Below a minimum of coverage no
//! verdict is given.

mod curve;
mod figures;
mod gpu_meter;
mod hints;
mod meter;
mod signal;
mod unmeasured;
mod verdict;

pub use curve::{Axis, Curve, CurveMeter};
pub use figures::{GpuCurves, GpuFigures, NodeCurves, NodeFigures, XidCount};
pub use hints::{Advice, FixKind, hints};
pub use meter::{METRICS, MeterSample, NodeMeter};
pub use signal::{Activity, ActivityFigures, GaugeReader, Growth, Level, Stretch, Window};
pub use unmeasured::{CgroupResource, why_unmeasured};
pub use verdict::{Grade, Verdict, verdict};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use takt_jobs::JobRun;
use takt_model::{ConfigError, UnixTime};

/// Thresholds of idle, wasteful and measured time.
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
            // NaN fails both comparisons, so it is refused too.
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

    /// Returns the time of a run and the reach of its samples.
    pub fn window(&self, start: UnixTime, end: UnixTime) -> Window {
        // Half of the longest gap on each side of a sample.
        let reach_ms = i64::try_from(self.max_gap_seconds.saturating_mul(500)).unwrap_or(i64::MAX);
        Window {
            from: start.into(),
            to: end.into(),
            reach_ms,
        }
    }
}

/// Efficiency of a run. The fields have the names of the columns of `run_efficiency`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Efficiency {
    /// Run time in seconds.
    pub held_seconds: u64,
    /// Allocated GPU-seconds. `None` if the number of GPUs is unknown.
    pub held_gpu_seconds: Option<f64>,
    /// Measured fraction of the allocated GPU time (of the run time for a run without GPUs), 0 to
    /// 1.
    pub coverage_ratio: f64,
    /// Number of GPUs that are known by UUID and were measured.
    pub gpus_measured: u64,
    /// Number of measured GPUs that did no work.
    pub gpus_idle: u64,
    /// Mean utilization of the GPUs, weighted by time, 0 to 1.
    pub gpu_utilization_mean: Option<f64>,
    /// 95th percentile of utilization, averaged over the GPUs, 0 to 1.
    pub gpu_utilization_p95: Option<f64>,
    /// Fraction of the measured GPU time that was idle, 0 to 1.
    pub gpu_idle_ratio: Option<f64>,
    /// Longest continuous idle time of one GPU, in seconds.
    pub gpu_idle_longest_seconds: Option<f64>,
    /// Maximum of used memory on one GPU, in bytes.
    pub gpu_memory_peak_bytes: Option<f64>,
    /// Total memory of that GPU, in bytes.
    pub gpu_memory_total_bytes: Option<f64>,
    /// Mean power of all GPUs together, in watts.
    pub gpu_power_mean_watts: Option<f64>,
    /// Energy of all GPUs together, in joules.
    pub gpu_energy_joules: Option<f64>,
    /// Mean fraction of multiprocessors with work, if measured, 0 to 1.
    pub gpu_sm_mean: Option<f64>,
    /// Mean fraction of time in which tensor cores worked, if measured, 0 to 1.
    pub gpu_tensor_mean: Option<f64>,
    /// CPU time used, in seconds.
    pub cpu_seconds: Option<f64>,
    /// CPU time used over CPU time allocated.
    pub cpu_ratio: Option<f64>,
    /// Maximum memory of the run's cgroups on all nodes, in bytes. The kernel counts anonymous
    /// memory, page cache and shared memory.
    pub memory_peak_bytes: Option<f64>,
    /// Maximum memory over requested memory.
    pub memory_ratio: Option<f64>,
    /// Bytes received and sent over the network, if the run was alone on its nodes.
    pub network_bytes: Option<f64>,
    /// Bytes read from and written to NFS, if the run was alone on its nodes.
    pub nfs_bytes: Option<f64>,
    /// Fraction of time in which a link was full while GPUs waited, 0 to 1.
    pub link_bound_ratio: Option<f64>,
    /// Whether the run is network-bound: it has several nodes, and `link_bound_ratio` reaches
    /// `network_bound_ratio`.
    pub is_network_bound: bool,
    /// GPU-seconds in use.
    pub used_gpu_seconds: f64,
    /// GPU-seconds of GPUs that did no work.
    pub waste_idle_gpu_seconds: f64,
    /// GPU-seconds in idle streaks of GPUs that worked at other times.
    pub waste_streak_gpu_seconds: f64,
    /// GPU-seconds without a kernel on GPUs of low utilization.
    pub waste_low_gpu_seconds: f64,
    /// GPU-seconds of a run that a fault of a node or GPU ended.
    pub lost_gpu_seconds: f64,
    /// CPU-seconds of such a run.
    pub lost_cpu_seconds: f64,
    /// GPU-seconds that were not measured.
    pub unmeasured_gpu_seconds: f64,
    /// GPU-seconds between the run's end and its time limit. They were not allocated, but the
    /// scheduler could not plan with them.
    pub limit_excess_gpu_seconds: f64,
    /// Fault that ended the run.
    pub fault: Option<String>,
}

/// A run and its efficiency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AssessedRun {
    /// The run.
    pub run: JobRun,
    /// Its efficiency.
    pub efficiency: Efficiency,
}

/// A run's GPU time by category, in GPU-seconds. The sum is the allocated time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// In use.
    pub used: f64,
    /// On GPUs that did no work.
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
    /// Returns the sum of all categories.
    pub fn held(&self) -> f64 {
        self.used + self.wasted() + self.lost + self.unmeasured
    }

    /// Returns the time for which use or waste is known.
    pub fn measured(&self) -> f64 {
        self.used + self.wasted()
    }

    /// Returns the time that the user could have saved. `None` if nothing was measured: waste is
    /// then unknown, not 0.
    pub fn known_waste(&self) -> Option<f64> {
        (self.measured() > 0.0).then(|| self.wasted())
    }

    /// Returns the time that is known to be wasted; 0 if nothing was measured.
    pub fn wasted(&self) -> f64 {
        self.idle + self.streak + self.low
    }

    /// Adds a fraction of another split.
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
    /// Returns the GPU time by category.
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

    /// Returns whether enough was measured for a verdict.
    pub fn is_measured(&self, rules: &EfficiencyConfig) -> bool {
        self.coverage_ratio >= rules.min_coverage_ratio
    }
}

/// Largest busy fraction of an unused GPU: a library may query the GPU once without using it.
const NEVER_USED: f64 = 0.01;

/// States of runs that a fault of the cluster ended.
const FAULT_STATES: &[(&str, &str)] = &[
    ("NODE_FAIL", "node failed"),
    ("BOOT_FAIL", "node did not boot"),
];

/// States of runs that may have ended because of their GPU. A completed run lost nothing.
const FAILED_STATES: &[&str] = &[
    "FAILED",
    "TIMEOUT",
    "OUT_OF_MEMORY",
    "CANCELLED",
    "DEADLINE",
];

/// Returns the efficiency of a finished run from the measurements of its nodes. `None` for a run
/// that never started or has not ended.
pub fn assess(run: &JobRun, nodes: &[NodeFigures], rules: &EfficiencyConfig) -> Option<Efficiency> {
    // A run that never started held nothing.
    let (start, end) = run.start.zip(run.end)?;
    let held_seconds = end.since(start);
    let seconds = held_seconds as f64;

    let gpus: Vec<&GpuFigures> = nodes.iter().flat_map(|node| &node.gpus).collect();
    // Without a number of GPUs, nothing can be compared with what was measured.
    let held = run.gpus.map(|gpus| gpus as f64 * seconds);
    let activities: Vec<&ActivityFigures> = gpus
        .iter()
        .filter_map(|gpu| gpu.activity.as_ref())
        .collect();

    let covered: f64 = activities.iter().map(|gpu| gpu.covered_seconds).sum();
    let per_node = seconds * nodes.len() as f64;
    let cpu_covered: f64 = nodes.iter().map(|node| node.cpu_covered_seconds).sum();
    // Without samples the sums are -0.0. Adding 0 clears the sign, which reports would print.
    let coverage_ratio = 0.0
        + match held {
            Some(held) if held > 0.0 => covered / held,
            None => 0.0,
            _ if per_node > 0.0 => cpu_covered / per_node,
            _ => 0.0,
        };

    let fault = fault(run, &gpus);
    let cpu_seconds = sum_of_all(nodes, |node| node.cpu_seconds);
    let memory_peak_bytes = sum_of_all(nodes, |node| node.memory_peak_bytes);

    // Weighted by the covered time: a GPU that was measured for a minute must not count as much as one for days.
    let by_time = |of: fn(&ActivityFigures) -> f64| {
        let sum: f64 = activities
            .iter()
            .map(|gpu| of(gpu) * gpu.covered_seconds)
            .sum();
        (covered > 0.0).then(|| sum / covered)
    };

    // Peak and total are of the same GPU, the fullest one.
    let fullest = gpus
        .iter()
        .filter(|gpu| gpu.memory_peak_bytes.is_some())
        .max_by(|a, b| {
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

    // Without CPUs or time a ratio would divide by 0.
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
            .zip(run.largest_mem_bytes().filter(|bytes| *bytes > 0))
            .map(|(peak, held)| peak / held as f64),
        network_bytes: sum_of_all(nodes, |node| node.network_bytes),
        nfs_bytes: sum_of_all(nodes, |node| node.nfs_bytes),
        link_bound_ratio,
        // A single node has no other node to wait for.
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
    /// Assigns each GPU-second of `held` to one category.
    fn spread(&mut self, held: f64, gpus: &[&ActivityFigures], rules: &EfficiencyConfig) {
        // Lost hours are neither used nor wasted, whatever was measured.
        if self.fault.is_some() {
            self.lost_gpu_seconds = held;
            return;
        }
        if !self.is_measured(rules) {
            self.unmeasured_gpu_seconds = held;
            return;
        }

        for gpu in gpus {
            // A GPU that did nothing counts as idle as a whole, not as one long streak.
            if is_idle(gpu) {
                self.waste_idle_gpu_seconds += gpu.covered_seconds;
                continue;
            }

            // Streaks are waste of their own; only the rest may be of low utilization.
            let working = (gpu.covered_seconds - gpu.idle_streak_seconds).max(0.0);
            let low = if gpu.working_mean < rules.low_utilization_ratio {
                working * (1.0 - gpu.working_mean)
            } else {
                0.0
            };

            self.waste_streak_gpu_seconds += gpu.idle_streak_seconds;
            self.waste_low_gpu_seconds += low;
            self.used_gpu_seconds += working - low;
        }

        let counted = self.used_gpu_seconds + self.split().wasted();
        // Rounding may make the parts a little larger than the whole.
        self.unmeasured_gpu_seconds = (held - counted).max(0.0);
    }
}

fn is_idle(gpu: &ActivityFigures) -> bool {
    gpu.idle_ratio >= 1.0 - NEVER_USED
}

/// Returns the fault of the cluster that ended the run.
fn fault(run: &JobRun, gpus: &[&GpuFigures]) -> Option<String> {
    if let Some((_, words)) = FAULT_STATES.iter().find(|(state, _)| *state == run.state) {
        return Some((*words).to_owned());
    }
    // A program that completed has lost nothing to a fault of its GPU.
    gpus.iter()
        .find_map(|gpu| Some(format!("{} on {}", gpu.fault.as_ref()?, gpu.node)))
        .filter(|_| FAILED_STATES.contains(&run.state.as_str()))
}

/// Returns the GPU-seconds between the end and the time limit of a completed run.
fn limit_excess(run: &JobRun, held_seconds: u64) -> f64 {
    let excess = run
        .timelimit
        .map_or(0, |limit| limit.saturating_sub(held_seconds));
    // A run that failed before its limit did not need less time.
    if run.state == "COMPLETED" {
        excess as f64 * run.gpus.unwrap_or(0) as f64
    } else {
        0.0
    }
}

/// Returns the sum over all nodes. `None` if it is unknown for one of them.
fn sum_of_all(nodes: &[NodeFigures], of: fn(&NodeFigures) -> Option<f64>) -> Option<f64> {
    if nodes.is_empty() {
        return None;
    }
    nodes
        .iter()
        .map(of)
        .try_fold(0.0, |sum, value| Some(sum + value?))
}

/// Returns the sum of the known values. `None` if all are unknown.
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
