//! Use of a run's nodes and GPUs.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use takt_accounting::efficiency::{
    Axis, Curve, EfficiencyConfig, GpuCurves, GpuFigures, NodeFigures,
};
use takt_jobs::{JobRun, nodelist};
use takt_store::GpuInterval;

/// Use of one node of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeReport {
    /// Node name.
    pub node: String,
    /// Mean number of busy CPUs while the run was measured.
    pub cpus_mean: Option<f64>,
    /// Maximum memory of the run's cgroup, in bytes.
    pub memory_peak_bytes: Option<f64>,
    /// Number of busy CPUs over time.
    pub cpus: Curve,
    /// Memory of the run's cgroup over time, in bytes.
    pub memory: Curve,
    /// GPUs of the run on this node, by index.
    pub gpus: Vec<GpuReport>,
}

/// Use of one GPU of a run. Ratios are from 0 to 1.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuReport {
    /// Index on the node: NVML's, or Slurm's if the GPU was not measured.
    pub index: Option<String>,
    /// UUID.
    pub uuid: Option<String>,
    /// Model, as NVML names it.
    pub model: Option<String>,
    /// Mean utilization.
    pub utilization_mean: Option<f64>,
    /// 95th percentile of utilization.
    pub utilization_p95: Option<f64>,
    /// Idle fraction of the measured time.
    pub idle_ratio: Option<f64>,
    /// Longest continuous idle time, in seconds.
    pub idle_longest_seconds: Option<f64>,
    /// Maximum of used memory, in bytes.
    pub memory_peak_bytes: Option<f64>,
    /// Total memory, in bytes.
    pub memory_total_bytes: Option<f64>,
    /// Mean power, in watts.
    pub power_mean_watts: Option<f64>,
    /// Energy, in joules.
    pub energy_joules: Option<f64>,
    /// Mean fraction of multiprocessors with work.
    pub sm_mean: Option<f64>,
    /// Mean fraction of time in which tensor cores worked.
    pub tensor_mean: Option<f64>,
    /// Hardware fault during the run.
    pub fault: Option<String>,
    /// Utilization over time.
    pub utilization: Curve,
    /// Used memory over time, in bytes.
    pub memory: Curve,
    /// Power over time, in watts.
    pub power: Curve,
    /// Idle streaks: first step of the axis, and first step after the streak.
    pub idle_streaks: Vec<(usize, usize)>,
}

/// The use of each node and GPU: measured ones with their curves, others as Slurm and the exporters
/// recorded their allocation.
pub(super) fn node_reports(
    run: &JobRun,
    figures: Vec<NodeFigures>,
    held: &[GpuInterval],
    axis: Axis,
    rules: &EfficiencyConfig,
) -> Vec<NodeReport> {
    let mut measured: BTreeMap<String, NodeFigures> = figures
        .into_iter()
        .map(|figures| (figures.node.clone(), figures))
        .collect();
    // A node without figures is listed as well: its GPUs were held.
    run.node_list
        .as_deref()
        .and_then(|list| nodelist::expand(list).ok())
        .unwrap_or_default()
        .into_iter()
        .map(|node| {
            let figures = measured.remove(&node).unwrap_or_default();
            let held: Vec<&GpuInterval> = held.iter().filter(|gpu| gpu.node == node).collect();
            node_report(node, figures, &held, axis, rules)
        })
        .collect()
}

fn node_report(
    node: String,
    figures: NodeFigures,
    held: &[&GpuInterval],
    axis: Axis,
    rules: &EfficiencyConfig,
) -> NodeReport {
    // Busy CPUs in the time that was measured, which may be less than the run.
    let covered = figures.cpu_covered_seconds;
    let cpus_mean = figures
        .cpu_seconds
        .filter(|_| covered > 0.0)
        .map(|used| used / covered);

    let curves = figures.curves.unwrap_or_default();
    let mut gpus: Vec<GpuReport> = figures
        .gpus
        .into_iter()
        .map(|gpu| gpu_report(gpu, axis, rules))
        .collect();
    // A GPU that the exporter reported, and that was not measured.
    for gpu in held {
        let is_new = gpu.uuid.is_some() && gpus.iter().all(|known| known.uuid != gpu.uuid);
        if is_new {
            gpus.push(GpuReport {
                uuid: gpu.uuid.clone(),
                ..GpuReport::default()
            });
        }
    }
    // Slurm's indexes count device files, not NVML's GPUs: they help only if nothing else is known.
    if gpus.is_empty() {
        let by_index = held
            .iter()
            .filter_map(|gpu| gpu.index)
            .map(|index| GpuReport {
                index: Some(index.to_string()),
                ..GpuReport::default()
            });
        gpus.extend(by_index);
    }
    // By number, so that 10 comes behind 2; unknown indexes come last.
    gpus.sort_by_key(|gpu| {
        let index = gpu.index.as_deref().and_then(|index| index.parse().ok());
        (index.unwrap_or(u32::MAX), gpu.uuid.clone())
    });

    NodeReport {
        node,
        cpus_mean,
        memory_peak_bytes: figures.memory_peak_bytes,
        cpus: curves.cpus,
        memory: curves.memory,
        gpus,
    }
}

fn gpu_report(gpu: GpuFigures, axis: Axis, rules: &EfficiencyConfig) -> GpuReport {
    let GpuCurves {
        utilization,
        memory,
        power,
    } = gpu.curves.unwrap_or_default();
    let activity = gpu.activity;
    GpuReport {
        index: gpu.index,
        uuid: Some(gpu.uuid),
        model: gpu.model,
        utilization_mean: activity.map(|activity| activity.mean),
        utilization_p95: activity.map(|activity| activity.p95),
        idle_ratio: activity.map(|activity| activity.idle_ratio),
        idle_longest_seconds: activity.map(|activity| activity.idle_longest_seconds),
        memory_peak_bytes: gpu.memory_peak_bytes,
        memory_total_bytes: gpu.memory_total_bytes,
        power_mean_watts: gpu.power_mean_watts,
        energy_joules: gpu.energy_joules,
        sm_mean: gpu.sm_mean,
        tensor_mean: gpu.tensor_mean,
        fault: gpu.fault,
        idle_streaks: idle_streaks(&utilization, axis, rules),
        utilization,
        memory,
        power,
    }
}

/// The idle streaks of a curve that are as long as the configured ones.
pub(super) fn idle_streaks(
    utilization: &Curve,
    axis: Axis,
    rules: &EfficiencyConfig,
) -> Vec<(usize, usize)> {
    let streak_ms = i64::try_from(rules.idle_streak_seconds.saturating_mul(1000));
    let shortest = streak_ms.unwrap_or(i64::MAX) / axis.step_ms;
    // At least one step, also where a step is longer than the shortest streak.
    let shortest = usize::try_from(shortest).unwrap_or(usize::MAX).max(1);
    utilization.streaks(rules.idle_below_ratio, shortest)
}
