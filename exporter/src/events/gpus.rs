//! Which GPU is at which place on the bus: the kernel log names places, everything else names UUIDs.
//!
//! Source: `/proc/driver/nvidia/gpus/*/information`, which needs no NVML; and NVML, where it runs.

use super::recognise::pci_bus_id;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// No node has more.
const MAX_GPUS: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Gpus {
    directory: PathBuf,
    uuids: BTreeMap<String, String>,
}

impl Gpus {
    pub fn new(procfs: &Path) -> Self {
        let mut gpus = Self { directory: procfs.join("driver/nvidia/gpus"), uuids: BTreeMap::new() };
        gpus.look();
        gpus
    }

    /// The UUID of the GPU at `bus_id`. The driver is asked only for GPUs that are new.
    pub fn uuid(&mut self, bus_id: &str) -> Option<String> {
        if !self.uuids.contains_key(bus_id) {
            self.look();
        }
        self.uuids.get(bus_id).cloned()
    }

    pub fn learn(&mut self, bus_id: &str, uuid: String) {
        let Some(bus_id) = pci_bus_id(bus_id) else { return };
        if uuid.starts_with("GPU-")
            && !uuid.contains('?')
            && (self.uuids.len() < MAX_GPUS || self.uuids.contains_key(&bus_id))
        {
            self.uuids.insert(bus_id, uuid);
        }
    }

    pub fn uuids(&self) -> impl Iterator<Item = &str> {
        self.uuids.values().map(String::as_str)
    }

    fn look(&mut self) {
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return };
        for entry in entries.flatten().take(MAX_GPUS) {
            let text = std::fs::read_to_string(entry.path().join("information")).unwrap_or_default();
            let uuid = text.lines().find_map(|line| line.strip_prefix("GPU UUID:")).map(str::trim);
            if let (Some(uuid), Some(bus_id)) = (uuid, entry.file_name().to_str()) {
                self.learn(bus_id, uuid.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "Model: \t\t NVIDIA GeForce RTX 5090\nGPU UUID: \t GPU-2c57\nBus Location: \t 0000:06:00.0\n",
        );
        gpu("0000:07:00.0", "GPU UUID: \t GPU-????????-????-????-????-????????????\n");
        let mut gpus = Gpus::new(procfs.path());
        assert_eq!(gpus.uuid("0000:06:00.0").as_deref(), Some("GPU-2c57"));
        assert_eq!(gpus.uuid("0000:07:00.0"), None, "lost before anybody asked");
        gpu("0000:07:00.0", "GPU UUID: GPU-7\n");
        assert_eq!(gpus.uuid("0000:07:00.0").as_deref(), Some("GPU-7"));
        gpus.learn("00000000:C1:00.0", "GPU-c1".to_owned());
        gpus.learn("nonsense", "GPU-x".to_owned());
        assert_eq!(gpus.uuids().collect::<Vec<_>>(), ["GPU-2c57", "GPU-7", "GPU-c1"]);
    }
}
