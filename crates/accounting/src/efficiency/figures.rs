//! Measurements of the GPUs and nodes of a run.

use super::{ActivityFigures, Curve};
use takt_model::Timestamp;

/// Measurements of one GPU during a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuFigures {
    /// Node name.
    pub node: String,
    /// GPU UUID.
    pub uuid: String,
    /// NVML index of the GPU on its node.
    pub index: Option<String>,
    /// GPU model, as NVML names it.
    pub model: Option<String>,
    /// Utilization.
    pub activity: Option<ActivityFigures>,
    /// Maximum of used GPU memory, in bytes.
    pub memory_peak_bytes: Option<f64>,
    /// Total GPU memory, in bytes.
    pub memory_total_bytes: Option<f64>,
    /// Mean power, in watts.
    pub power_mean_watts: Option<f64>,
    /// Energy in joules, from the counter, or from the measured power without one.
    pub energy_joules: Option<f64>,
    /// Mean fraction of multiprocessors with work, 0 to 1.
    pub sm_mean: Option<f64>,
    /// Mean fraction of time in which tensor cores worked, 0 to 1.
    pub tensor_mean: Option<f64>,
    /// Hardware fault of the GPU during the run.
    pub fault: Option<String>,
    /// XID errors of the GPU during the run, by number.
    pub xids: Vec<XidCount>,
    /// First time at which the GPU did not answer.
    pub lost_at: Option<Timestamp>,
    /// Curves, if the meter was given an axis.
    pub curves: Option<GpuCurves>,
}

/// XID errors of one number on one GPU during a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct XidCount {
    /// Number of the XID.
    pub xid: String,
    /// First sample with the error.
    pub at: Timestamp,
    /// Number of errors.
    pub errors: f64,
}

/// Curves of one GPU during a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuCurves {
    /// Utilization, 0 to 1.
    pub utilization: Curve,
    /// Used memory, in bytes.
    pub memory: Curve,
    /// Power, in watts.
    pub power: Curve,
}

/// Curves of a run's cgroup on one node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeCurves {
    /// CPU time used per second: the number of busy CPUs.
    pub cpus: Curve,
    /// Memory of the cgroup, in bytes.
    pub memory: Curve,
}

/// Measurements of one node during a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeFigures {
    /// Node name.
    pub node: String,
    /// Whether any sample of the node was read.
    pub was_heard: bool,
    /// Whether the node's exporter showed the run.
    pub showed_run: bool,
    /// The run's known GPUs.
    pub gpus: Vec<GpuFigures>,
    /// CPU time of the run's cgroup, in seconds.
    pub cpu_seconds: Option<f64>,
    /// Seconds of the run in which CPU time was measured.
    pub cpu_covered_seconds: f64,
    /// Maximum memory of the run's cgroup, in bytes.
    pub memory_peak_bytes: Option<f64>,
    /// Bytes received and sent by the node, if no other job was there.
    pub network_bytes: Option<f64>,
    /// Bytes read from and written to NFS by the node, if no other job was there.
    pub nfs_bytes: Option<f64>,
    /// Seconds in which a link was full and the run's GPUs waited.
    pub link_bound_seconds: Option<f64>,
    /// Seconds in which both links and GPUs were measured.
    pub link_seen_seconds: f64,
    /// Processes of the run that the kernel killed for lack of memory.
    pub oom_kills: Option<f64>,
    /// First sample with such a kill.
    pub oom_at: Option<Timestamp>,
    /// Curves, if the meter was given an axis.
    pub curves: Option<NodeCurves>,
}
