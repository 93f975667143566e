//! The node's GPUs and their processes, passed from the collector `nvml` to the collector `jobs`.
//!
//! `jobs` does not call NVML itself, so a driver that hangs costs no job its values.

use rustix::time::{ClockId, clock_gettime};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The last reading of the node's GPUs. Cloning gives another handle to the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedGpus(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// `None` before the first reading.
    table: Mutex<Option<Arc<GpuTable>>>,
    published: Condvar,
}

/// Whether the driver is left alone, so that it can be unloaded. Cloning gives another handle to
/// the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct LettingGo(Arc<Mutex<Option<Instant>>>);

impl LettingGo {
    /// Longest time, in case no signal ends it.
    const AT_MOST: Duration = Duration::from_secs(15 * 60);

    /// Leaves the driver alone from now on.
    pub fn begin(&self) {
        *self.lock() = Some(Instant::now());
    }

    /// Uses the driver again.
    pub fn end(&self) {
        *self.lock() = None;
    }

    pub fn is_now(&self) -> bool {
        let since = *self.lock();
        since.is_some_and(|since| since.elapsed() < Self::AT_MOST)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One reading of all GPUs.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct GpuTable {
    /// GPUs in the order of NVML's indices.
    pub gpus: Vec<KnownGpu>,
    /// Time of the reading, in seconds since boot: a process that started later is not the one NVML
    /// saw.
    pub read_at: f64,
}

/// A GPU, whether it answers or not.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct KnownGpu {
    pub uuid: String,
    /// NVML's index, in the order of the PCI bus.
    pub index: u32,
    /// Minor number of its device, `/dev/nvidia*`.
    pub minor: Option<u32>,
    /// MIG devices: UUID and number of the GPU instance.
    pub parts: Vec<(String, u32)>,
    pub processes: Vec<GpuProcess>,
}

/// A process on a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GpuProcess {
    pub pid: u32,
    /// GPU memory in use, in bytes; `None` where the driver does not report it.
    pub memory: Option<u64>,
    /// GPU instance (MIG) that the process runs on.
    pub gpu_instance: Option<u32>,
}

impl SharedGpus {
    pub fn publish(&self, gpus: Vec<KnownGpu>) {
        let table = Arc::new(GpuTable {
            gpus,
            read_at: seconds_since_boot(),
        });

        *self.0.table.lock().unwrap_or_else(PoisonError::into_inner) = Some(table);
        self.0.published.notify_all();
    }

    /// The last reading. Waits up to `patience` for the first; empty if that does not come.
    pub fn table(&self, patience: Duration) -> Arc<GpuTable> {
        let table = self.0.table.lock().unwrap_or_else(PoisonError::into_inner);
        let published = &self.0.published;
        let waited = published.wait_timeout_while(table, patience, |table| table.is_none());
        let (table, _) = waited.unwrap_or_else(PoisonError::into_inner);
        table.clone().unwrap_or_default()
    }
}

impl KnownGpu {
    /// UUID of the GPU or MIG device that the process uses.
    pub fn used_by(&self, process: &GpuProcess) -> &str {
        let mut parts = self.parts.iter();
        let part = parts.find(|(_, instance)| process.gpu_instance == Some(*instance));
        part.map_or(&self.uuid, |(uuid, _)| uuid)
    }
}

/// Seconds since boot, by the clock of the start times in `/proc/PID/stat`.
fn seconds_since_boot() -> f64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
