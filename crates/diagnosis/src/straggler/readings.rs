//! The readings of each GPU of a job, window by window.

use serde::{Deserialize, Serialize};
use std::ops::{Index, IndexMut};

/// A reading of a GPU, or of the job on the GPU's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Share of the time in which a kernel ran, 0 to 1. A rank that waits for the others spins in a kernel.
    Utilization,
    /// Share of the time in which the tensor cores worked, 0 to 1.
    Tensor,
    /// Power draw, in watts.
    Power,
    /// Clock of the multiprocessors, in hertz.
    Clock,
    /// Share of the time for which heat, a power brake or another fault held the clocks down, 0 to 1. The
    /// power limit does not count: it is normal under load.
    HeldDown,
    /// Whether the PCIe link has fewer lanes, or is slower, than it can: 0 or 1.
    PcieDegraded,
    /// Packets that were sent again and errors of the GPU's links, per second.
    LinkErrors,
    /// Share of the time for which a quota kept the job off its CPUs on this node; may exceed 1, one for each CPU.
    CpuThrottled,
    /// Share of the time in which threads of the job on this node waited for files, 0 to 1.
    FileWait,
}

impl Metric {
    /// Every metric.
    pub const ALL: [Self; 9] = [
        Self::Utilization,
        Self::Tensor,
        Self::Power,
        Self::Clock,
        Self::HeldDown,
        Self::PcieDegraded,
        Self::LinkErrors,
        Self::CpuThrottled,
        Self::FileWait,
    ];
}

/// The readings of a GPU in one window; what was not measured is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Readings([Option<f64>; Metric::ALL.len()]);

impl Readings {
    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

impl Index<Metric> for Readings {
    type Output = Option<f64>;

    fn index(&self, metric: Metric) -> &Option<f64> {
        &self.0[metric as usize]
    }
}

impl IndexMut<Metric> for Readings {
    fn index_mut(&mut self, metric: Metric) -> &mut Option<f64> {
        &mut self.0[metric as usize]
    }
}

/// A GPU of a job and its readings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuReadings {
    /// Node of the GPU.
    pub node: String,
    /// UUID of the GPU.
    pub uuid: String,
    /// Model; GPUs of different models are not compared.
    pub model: String,
    /// Readings of each window, the oldest first. All GPUs of a job have the same windows.
    pub windows: Vec<Readings>,
}
