//! AMD GPUs: how busy they are, and their memory.
//!
//! Source: `/sys/class/drm/card*/device`, where the driver is amdgpu. Their sensors are hwmon's.

use crate::collector::{CollectError, Collector};
use crate::collectors::MAX_DEVICES;
use crate::options::Options;
use crate::sysfs;
use std::path::PathBuf;
use takt_model::{Metric, Samples};

struct Drm {
    class: PathBuf,
}

const INFO: Metric = Metric::gauge(
    "node_drm_card_info",
    "Card information",
    &["card", "memory_vendor", "power_performance_level", "unique_id", "vendor"],
);

macro_rules! numbers {
    ($($file:literal $name:literal $help:literal,)*) => {
        const FILES: &[&str] = &[$($file),*];
        const METRICS: &[Metric] = &[INFO, $(Metric::gauge(concat!("node_drm_", $name), $help, &["card"])),*];
    };
}

numbers! {
    "gpu_busy_percent" "gpu_busy_percent" "How busy the GPU is as a percentage.",
    "mem_info_gtt_total" "memory_gtt_size_bytes" "The size of the graphics translation table (GTT) block in bytes.",
    "mem_info_gtt_used" "memory_gtt_used_bytes" "The used amount of the graphics translation table (GTT) block in bytes.",
    "mem_info_vis_vram_total" "memory_vis_vram_size_bytes" "The size of visible VRAM in bytes.",
    "mem_info_vis_vram_used" "memory_vis_vram_used_bytes" "The used amount of visible VRAM in bytes.",
    "mem_info_vram_total" "memory_vram_size_bytes" "The size of VRAM in bytes.",
    "mem_info_vram_used" "memory_vram_used_bytes" "The used amount of VRAM in bytes.",
}

pub(crate) fn new(options: &Options) -> Box<dyn Collector> {
    Box::new(Drm { class: options.paths.sysfs.join("class/drm") })
}

impl Collector for Drm {
    fn name(&self) -> &'static str {
        "drm"
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        // Beside the cards there are their plugs, `card0-DP-1`.
        let cards = sysfs::numbered(&self.class, "card").unwrap_or_default();
        for (card, _) in cards {
            let device = self.class.join(&card).join("device");
            let text = |file: &str| sysfs::text(&device.join(file)).unwrap_or_default();
            if !text("uevent").lines().any(|line| line == "DRIVER=amdgpu") {
                continue;
            }
            let (memory, level, id) =
                (text("mem_info_vram_vendor"), text("power_dpm_force_performance_level"), text("unique_id"));
            out.push(&INFO, &[card.as_str(), &memory, &level, &id, "amd"], 1.0);
            for (file, metric) in FILES.iter().zip(&METRICS[1..]) {
                if let Some(value) = sysfs::number::<u64>(&device.join(file)) {
                    out.push(metric, &[&card], value as f64);
                }
            }
        }
        Ok(())
    }
}
