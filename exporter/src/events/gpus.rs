//! UUIDs of GPUs by PCI bus id: the kernel log names bus ids, everything else names UUIDs.
//!
//! Source: `/proc/driver/nvidia/gpus/*/information`, which needs no NVML; and NVML, where it runs.
//! A driver in trouble may hang just when events come, so a thread of its own reads the files, and
//! others wait for it only briefly.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use takt_model::pci;

/// Most GPUs of a node.
const MAX_GPUS: usize = 256;
/// Wait for the driver at the start, and for each event of an unknown GPU.
const WAIT: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(crate) struct GpuNames {
    directory: PathBuf,
    uuids: Arc<Mutex<BTreeMap<String, String>>>,
    /// Whether a thread is reading; it may hang.
    is_looking: Arc<AtomicBool>,
}

impl GpuNames {
    pub fn new(procfs: &Path) -> Self {
        let gpus = Self {
            directory: procfs.join("driver/nvidia/gpus"),
            ..Self::default()
        };
        gpus.look();
        gpus
    }

    /// The UUID of the GPU at `bus_id`. The driver is read only for unknown GPUs.
    pub fn uuid(&self, bus_id: &str) -> Option<String> {
        let known = lock(&self.uuids).get(bus_id).cloned();
        if known.is_some() {
            return known;
        }

        self.look();
        lock(&self.uuids).get(bus_id).cloned()
    }

    pub fn learn(&self, bus_id: &str, uuid: String) {
        learn(&mut lock(&self.uuids), bus_id, uuid);
    }

    pub fn uuids(&self) -> Vec<String> {
        lock(&self.uuids).values().cloned().collect()
    }

    fn look(&self) {
        // One thread at a time: a driver that hangs would otherwise collect threads.
        if !self.directory.is_dir() || self.is_looking.swap(true, Ordering::AcqRel) {
            return;
        }

        let directory = self.directory.clone();
        let uuids = Arc::clone(&self.uuids);
        let is_looking = Arc::clone(&self.is_looking);
        let (done, is_done) = mpsc::channel();

        // The stack is small, because the thread may hang for as long as the exporter runs.
        let thread = std::thread::Builder::new()
            .name("gpu names".to_owned())
            .stack_size(128 << 10);
        let spawned = thread.spawn(move || {
            let found = read(&directory);
            let mut uuids = lock(&uuids);
            for (bus_id, uuid) in found {
                learn(&mut uuids, &bus_id, uuid);
            }
            drop(uuids);

            is_looking.store(false, Ordering::Release);
            let _ = done.send(());
        });

        match spawned {
            Ok(_) => drop(is_done.recv_timeout(WAIT)),
            Err(_) => self.is_looking.store(false, Ordering::Release),
        }
    }
}

/// Adds a GPU. The driver writes question marks for the UUID of a GPU that was lost early; those
/// are left out.
fn learn(uuids: &mut BTreeMap<String, String>, bus_id: &str, uuid: String) {
    let Some(bus_id) = pci::bus_id(bus_id) else {
        return;
    };

    let has_room = uuids.len() < MAX_GPUS || uuids.contains_key(&bus_id);
    if uuid.starts_with("GPU-") && !uuid.contains('?') && has_room {
        uuids.insert(bus_id, uuid);
    }
}

/// Bus ids and UUIDs from the driver's files.
fn read(directory: &Path) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let gpus = entries.take(MAX_GPUS).filter_map(|entry| {
        let text = std::fs::read_to_string(entry.path().join("information")).ok()?;
        let mut lines = text.lines();
        let uuid = lines.find_map(|line| line.strip_prefix("GPU UUID:"))?;
        let bus_id = entry.file_name().into_string().ok()?;
        Some((bus_id, uuid.trim().to_owned()))
    });
    gpus.collect()
}

fn lock(uuids: &Mutex<BTreeMap<String, String>>) -> MutexGuard<'_, BTreeMap<String, String>> {
    uuids.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// The thread may be late on a busy machine.
    fn wait_for(gpus: &GpuNames, bus_id: &str) -> Option<String> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let uuid = gpus.uuid(bus_id);
            if uuid.is_some() || Instant::now() > until {
                return uuid;
            }
        }
    }

    #[test]
    fn the_driver_s_files() {
        let procfs = tempfile::tempdir().unwrap();
        let gpu = |bus_id: &str, text: &str| {
            let directory = procfs.path().join("driver/nvidia/gpus").join(bus_id);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("information"), text).unwrap();
        };
        gpu(
            "0000:06:00.0",
            "Model: \t\t NVIDIA GeForce RTX 5090\nGPU UUID: \t GPU-2c57\nBus Location: \t \
             0000:06:00.0\n",
        );
        gpu(
            "0000:07:00.0",
            "GPU UUID: \t GPU-????????-????-????-????-????????????\n",
        );
        let gpus = GpuNames::new(procfs.path());
        assert_eq!(wait_for(&gpus, "0000:06:00.0").as_deref(), Some("GPU-2c57"));
        assert_eq!(gpus.uuid("0000:07:00.0"), None, "lost before anybody asked");
        gpu("0000:07:00.0", "GPU UUID: GPU-7\n");
        assert_eq!(wait_for(&gpus, "0000:07:00.0").as_deref(), Some("GPU-7"));
        gpus.learn("00000000:C1:00.0", "GPU-c1".to_owned());
        gpus.learn("nonsense", "GPU-x".to_owned());
        assert_eq!(gpus.uuids(), ["GPU-2c57", "GPU-7", "GPU-c1"]);
    }

    #[test]
    fn a_hung_driver_delays_nobody_for_long() {
        let procfs = tempfile::tempdir().unwrap();
        let directory = procfs.path().join("driver/nvidia/gpus/0000:06:00.0");
        std::fs::create_dir_all(&directory).unwrap();
        // Opening a FIFO for reading waits for its writer.
        rustix::fs::mknodat(
            rustix::fs::CWD,
            directory.join("information"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let gpus = GpuNames::new(procfs.path());
        let began = Instant::now();
        (0..1000).for_each(|_| assert_eq!(gpus.uuid("0000:06:00.0"), None));
        assert!(began.elapsed() < 500 * WAIT, "only the first waits");
        assert!(
            gpus.is_looking.load(Ordering::Acquire),
            "there is one thread, and it waits"
        );
    }
}
