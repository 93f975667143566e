//! AMD GPUs: how busy they are, their memory, and their errors.
//!
//! Source: `/sys/class/drm/card*/device`, where the driver is amdgpu. Their sensors (temperatures,
//! power, fans) are hwmon's, and their PCIe links those of `pcidevice`.

use crate::collector::{CollectError, Collector, MAX_DEVICES};
use crate::paths::Paths;
use crate::sysfs;
use std::path::{Path, PathBuf};
use takt_model::{Metric, Samples};

struct Drm {
    class: PathBuf,
}

const INFO: Metric = Metric::gauge(
    "node_drm_card_info",
    "Card information",
    &[
        "card",
        "memory_vendor",
        "power_performance_level",
        "unique_id",
        "vendor",
    ],
);

const MEMORY_BUSY: Metric = Metric::gauge(
    "takt_drm_memory_busy_ratio",
    "Share of the last sampling period in which the card's memory was read or written; not how \
     full it is.",
    &["card"],
);
const PCIE_REPLAYS: Metric = Metric::counter(
    "takt_drm_pcie_replays_total",
    "Packets sent again over PCIe.",
    &["card"],
);
const ECC_ERRORS: Metric = Metric::counter(
    "takt_drm_ecc_errors_total",
    "Errors in the memories of a part of the card (umc is that of its own memory): corrected, \
     uncorrected, or deferred until the data is used.",
    &["card", "block", "type"],
);
/// Metrics before those of `FILES`.
const OTHERS: usize = 4;
/// The parts of a card that may count errors, times their types.
const MAX_ERRORS: usize = 3 * 32;

macro_rules! numbers {
    ($($file:literal $name:literal $help:literal,)*) => {
        const FILES: &[&str] = &[$($file),*];
        const METRICS: &[Metric] = &[INFO, MEMORY_BUSY, PCIE_REPLAYS, ECC_ERRORS, $(Metric::gauge(concat!("node_drm_", $name), $help, &["card"])),*];
    };
}

numbers! {
    "gpu_busy_percent" "gpu_busy_percent" "How busy the GPU is as a percentage.",
    "mem_info_gtt_total" "memory_gtt_size_bytes"
        "The size of the graphics translation table (GTT) block in bytes.",
    "mem_info_gtt_used" "memory_gtt_used_bytes"
        "The used amount of the graphics translation table (GTT) block in bytes.",
    "mem_info_vis_vram_total" "memory_vis_vram_size_bytes" "The size of visible VRAM in bytes.",
    "mem_info_vis_vram_used" "memory_vis_vram_used_bytes"
        "The used amount of visible VRAM in bytes.",
    "mem_info_vram_total" "memory_vram_size_bytes" "The size of VRAM in bytes.",
    "mem_info_vram_used" "memory_vram_used_bytes" "The used amount of VRAM in bytes.",
}

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Drm {
        class: paths.sysfs.join("class/drm"),
    })
}

impl Collector for Drm {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * (METRICS.len() + MAX_ERRORS)
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        // Beside the cards there are their plugs, `card0-DP-1`.
        let cards = sysfs::numbered(&self.class, "card").unwrap_or_default();
        for (card, _) in cards {
            let device = self.class.join(&card).join("device");
            let text = |file: &str| sysfs::text(&device.join(file)).unwrap_or_default();
            let is_amd = text("uevent").lines().any(|line| line == "DRIVER=amdgpu");
            if !is_amd || sysfs::is_sleeping_gpu(&device) {
                continue;
            }

            let memory = text("mem_info_vram_vendor");
            let level = text("power_dpm_force_performance_level");
            let id = text("unique_id");
            out.push(&INFO, &[card.as_str(), &memory, &level, &id, "amd"], 1.0);

            for (file, metric) in FILES.iter().zip(&METRICS[OTHERS..]) {
                if let Some(value) = sysfs::number::<u64>(&device.join(file)) {
                    out.push(metric, &[&card], value as f64);
                }
            }

            if let Some(percent) = sysfs::number::<u64>(&device.join("mem_busy_percent")) {
                out.push(&MEMORY_BUSY, &[&card], percent as f64 / 100.0);
            }
            if let Some(replays) = sysfs::number::<u64>(&device.join("pcie_replay_count")) {
                out.push(&PCIE_REPLAYS, &[&card], replays as f64);
            }

            push_errors(&card, &device.join("ras"), out);
        }
        Ok(())
    }
}

/// A file for each part, `umc_err_count`, with lines such as `ue: 0`.
fn push_errors(card: &str, ras: &Path, out: &mut Samples) {
    const TYPES: [(&str, &str); 3] = [
        ("ce", "corrected"),
        ("ue", "uncorrected"),
        ("de", "deferred"),
    ];
    for file in sysfs::names(ras, "").unwrap_or_default() {
        let Some(block) = file.strip_suffix("_err_count") else {
            continue;
        };

        let text = sysfs::text(&ras.join(&file)).unwrap_or_default();
        for (key, count) in text.lines().filter_map(|line| line.split_once(':')) {
            let kind = TYPES.iter().find(|(known, _)| *known == key.trim());
            if let (Some((_, kind)), Ok(count)) = (kind, count.trim().parse::<u64>()) {
                out.push(&ECC_ERRORS, &[card, block, kind], count as f64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_that_sleeps_is_not_woken() {
        let sysfs = tempfile::tempdir().unwrap();
        let device = sysfs.path().join("class/drm/card0/device");
        std::fs::create_dir_all(device.join("power")).unwrap();
        let file = |name: &str, text: &str| std::fs::write(device.join(name), text).unwrap();
        file("uevent", "DRIVER=amdgpu\n");
        file("class", "0x030000\n");
        file("gpu_busy_percent", "3\n");
        let series = |status: &str| {
            file("power/runtime_status", status);
            let mut drm = Drm {
                class: sysfs.path().join("class/drm"),
            };
            let mut samples = Samples::new();
            drm.collect(&mut samples).unwrap();
            samples.len()
        };
        assert_eq!(series("active\n"), 2);
        assert_eq!(series("suspended\n"), 0);
    }
}
