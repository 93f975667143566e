//! NVMe disks: identity, and the size of their namespaces.
//!
//! Source: `/sys/class/nvme`. The kernel counts a namespace's `size` in sectors of 512 bytes and
//! `nuse` in logical blocks; node_exporter multiplies both by the logical block size, and so do we.

use crate::collector::{CollectError, Collector, MAX_DEVICES, device_names};
use crate::paths::Paths;
use crate::sysfs;
use std::path::{Path, PathBuf};
use takt_model::{Metric, Samples};

struct Nvme {
    class: PathBuf,
}

const INFO: Metric = Metric::gauge(
    "node_nvme_info",
    "Non-numeric data from /sys/class/nvme/<device>, value is always 1.",
    &[
        "device",
        "firmware_revision",
        "model",
        "serial",
        "state",
        "cntlid",
    ],
);
const NAMESPACE: &[&str] = &["device", "nsid"];
const NAMESPACE_INFO: Metric = Metric::gauge(
    "node_nvme_namespace_info",
    "Information about NVMe namespaces. Value is always 1",
    &["device", "nsid", "ana_state"],
);
const CAPACITY: Metric = Metric::gauge(
    "node_nvme_namespace_capacity_bytes",
    "Capacity of the NVMe namespace in bytes. Computed as namespace_size * \
     namespace_logical_block_size",
    NAMESPACE,
);
const SIZE: Metric = Metric::gauge(
    "node_nvme_namespace_size_bytes",
    "Size of the NVMe namespace in bytes. Available in /sys/class/nvme/<device>/<namespace>/size",
    NAMESPACE,
);
const USED: Metric = Metric::gauge(
    "node_nvme_namespace_used_bytes",
    "Used space of the NVMe namespace in bytes. Available in \
     /sys/class/nvme/<device>/<namespace>/nuse",
    NAMESPACE,
);
const BLOCK: Metric = Metric::gauge(
    "node_nvme_namespace_logical_block_size_bytes",
    "Logical block size of the NVMe namespace in bytes. Usually 4Kb. Available in \
     /sys/class/nvme/<device>/<namespace>/queue/logical_block_size",
    NAMESPACE,
);
const METRICS: &[Metric] = &[INFO, NAMESPACE_INFO, CAPACITY, SIZE, USED, BLOCK];

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Nvme {
        class: paths.sysfs.join("class/nvme"),
    })
}

impl Collector for Nvme {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        METRICS.len() * MAX_DEVICES
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let devices = device_names(&self.class, "nvme", "no NVMe disks")?;

        for device in devices {
            let directory = self.class.join(&device);
            let text = |file: &str| sysfs::text(&directory.join(file)).unwrap_or_default();
            let [firmware, model, serial, state, cntlid] =
                ["firmware_rev", "model", "serial", "state", "cntlid"].map(text);
            let labels = [&device, &firmware, &model, &serial, &state, &cntlid];
            out.push(&INFO, &labels, 1.0);

            for name in sysfs::names(&directory, "nvme").unwrap_or_default() {
                if let Some(id) = namespace_id(&name) {
                    push_namespace(&directory.join(&name), [&device, id], out);
                }
            }
        }
        Ok(())
    }
}

/// The number behind the `n` of `nvme0n1`. Other entries, such as `nvme0c0n1`, are paths to a
/// namespace.
fn namespace_id(name: &str) -> Option<&str> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());

    let (controller, id) = name.strip_prefix("nvme")?.split_once('n')?;
    (is_number(controller) && is_number(id)).then_some(id)
}

fn push_namespace(directory: &Path, labels: [&str; 2], out: &mut Samples) {
    let number = |file: &str| sysfs::number::<u64>(&directory.join(file));

    let state = sysfs::text(&directory.join("ana_state"));
    let state = state.as_deref().unwrap_or("unknown");
    out.push(&NAMESPACE_INFO, &[labels[0], labels[1], state], 1.0);

    let Some(block) = number("queue/logical_block_size") else {
        return;
    };
    out.push(&BLOCK, &labels, block as f64);

    if let Some(size) = number("size") {
        // node_exporter has two names for it.
        let bytes = size.saturating_mul(block) as f64;
        out.push(&CAPACITY, &labels, bytes);
        out.push(&SIZE, &labels, bytes);
    }
    if let Some(used) = number("nuse") {
        out.push(&USED, &labels, used.saturating_mul(block) as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_differ_from_paths_to_them() {
        assert_eq!(namespace_id("nvme0n1"), Some("1"));
        assert_eq!(namespace_id("nvme12n34"), Some("34"));
        for name in ["nvme0", "nvme0c0n1", "nvme0n", "nvme0n1p1", "ng0n1"] {
            assert_eq!(namespace_id(name), None, "{name}");
        }
    }
}
