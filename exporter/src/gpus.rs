//! What the collector `nvml` tells the collector `jobs`: which GPUs there are, and which processes use them.
//!
//! `jobs` asks NVML nothing itself, so a driver that hangs costs no job its values.

use rustix::time::{ClockId, clock_gettime};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The node's GPUs as they were last read. Cloning gives another handle to the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedGpus(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// `None` before the first reading.
    table: Mutex<Option<Arc<GpuTable>>>,
    published: Condvar,
}

/// Whether the driver shall be left alone, so that it can be unloaded. Cloning gives another handle to the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct LettingGo(Arc<Mutex<Option<Instant>>>);

impl LettingGo {
    /// For so long, unless it is told otherwise: whoever asked may forget to.
    const AT_MOST: Duration = Duration::from_secs(15 * 60);

    /// From now on.
    pub fn begin(&self) {
        *self.lock() = Some(Instant::now());
    }

    /// No more.
    pub fn end(&self) {
        *self.lock() = None;
    }

    pub fn is_now(&self) -> bool {
        self.lock()
            .is_some_and(|since| since.elapsed() < Self::AT_MOST)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One reading of all GPUs.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct GpuTable {
    /// In the order of NVML's indices.
    pub gpus: Vec<KnownGpu>,
    /// Seconds between the machine's start and the reading: a process that began later is not the one NVML saw.
    pub read_at: f64,
}

/// A GPU, answering or not.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct KnownGpu {
    pub uuid: String,
    /// NVML's index, in the order of the PCI bus.
    pub index: u32,
    /// That of `/dev/nvidia*`.
    pub minor: Option<u32>,
    /// The parts into which it is divided (MIG), by UUID and the number of their GPU instance.
    pub parts: Vec<(String, u32)>,
    pub processes: Vec<GpuProcess>,
}

/// A process on a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GpuProcess {
    pub pid: u32,
    /// Bytes of the GPU's memory; `None` where the driver does not tell.
    pub memory: Option<u64>,
    /// The GPU instance that it runs on (MIG).
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

    /// The last reading; waits for the first, but not for long.
    pub fn table(&self, patience: Duration) -> Arc<GpuTable> {
        let table = self.0.table.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .0
            .published
            .wait_timeout_while(table, patience, |table| table.is_none());
        waited
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .clone()
            .unwrap_or_default()
    }
}

impl KnownGpu {
    /// The UUID of what the process uses: the GPU, or a part of it.
    pub fn used_by(&self, process: &GpuProcess) -> &str {
        let part = self
            .parts
            .iter()
            .find(|(_, instance)| process.gpu_instance == Some(*instance));
        part.map_or(&self.uuid, |(uuid, _)| uuid)
    }
}

/// By the clock in which `/proc/PID/stat` tells when a process began.
fn seconds_since_boot() -> f64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
