//! Multipath disks of the device mapper: whether each path to them works.
//!
//! Source: `/sys/block/dm-*`, those whose `dm/uuid` begins with `mpath-`.

use crate::collector::{CollectError, Collector, MAX_DEVICES, device_names, flag};
use crate::paths::Paths;
use crate::sysfs;
use std::path::{Path, PathBuf};
use takt_model::{Metric, Samples};

struct DmMultipath {
    block: PathBuf,
}

const DEVICE: &[&str] = &["device", "sysfs_name"];
const INFO: Metric = Metric::gauge(
    "node_dmmultipath_device_info",
    "Non-numeric information about a DM-multipath device.",
    &["device", "sysfs_name", "uuid"],
);
const ACTIVE: Metric = Metric::gauge(
    "node_dmmultipath_device_active",
    "Whether the multipath device-mapper device is active (1) or suspended (0).",
    DEVICE,
);
const SIZE: Metric = Metric::gauge(
    "node_dmmultipath_device_size_bytes",
    "Size of the multipath device in bytes, read from /sys/block/<dm>/size.",
    DEVICE,
);
const PATHS: Metric = Metric::gauge(
    "node_dmmultipath_device_paths",
    "Number of paths for a multipath device.",
    DEVICE,
);
const PATHS_ACTIVE: Metric = Metric::gauge(
    "node_dmmultipath_device_paths_active",
    "Number of paths in active state (SCSI running or NVMe live) for a multipath device.",
    DEVICE,
);
const PATHS_FAILED: Metric = Metric::gauge(
    "node_dmmultipath_device_paths_failed",
    "Number of paths not in active state for a multipath device.",
    DEVICE,
);
const PATH_STATE: Metric = Metric::gauge(
    "node_dmmultipath_path_state",
    "Reports the underlying device state for a multipath path, as read from \
     /sys/block/<dev>/device/state.",
    &["device", "path", "state"],
);
const METRICS: &[Metric] = &[
    INFO,
    ACTIVE,
    SIZE,
    PATHS,
    PATHS_ACTIVE,
    PATHS_FAILED,
    PATH_STATE,
];

/// Paths of one disk.
const MAX_PATHS: usize = 64;
/// The kernel counts sectors, whatever the disk's own are.
const SECTOR_BYTES: f64 = 512.0;

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(DmMultipath {
        block: paths.sysfs.join("block"),
    })
}

impl Collector for DmMultipath {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * (METRICS.len() + MAX_PATHS)
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let devices = device_names(&self.block, "dm-", "no block devices")?;

        for device in &devices {
            let directory = self.block.join(device);
            let uuid = sysfs::text(&directory.join("dm/uuid")).unwrap_or_default();
            if uuid.starts_with("mpath-") {
                self.push(device, &directory, &uuid, out);
            }
        }
        Ok(())
    }
}

impl DmMultipath {
    fn push(&self, sysfs_name: &str, directory: &Path, uuid: &str, out: &mut Samples) {
        let name = sysfs::text(&directory.join("dm/name")).unwrap_or_default();
        let labels = [name.as_str(), sysfs_name];
        out.push(&INFO, &[&name, sysfs_name, uuid], 1.0);

        if let Some(suspended) = sysfs::number::<u8>(&directory.join("dm/suspended")) {
            out.push(&ACTIVE, &labels, flag(suspended == 0));
        }
        if let Some(sectors) = sysfs::number::<u64>(&directory.join("size")) {
            out.push(&SIZE, &labels, sectors as f64 * SECTOR_BYTES);
        }

        let paths = sysfs::names(&directory.join("slaves"), "").unwrap_or_default();
        let mut active = 0;
        for path in &paths {
            let state = self.block.join(path).join("device/state");
            let state = sysfs::text(&state).unwrap_or_default();

            // SCSI says `running`, NVMe `live`.
            active += usize::from(["running", "live"].contains(&state.as_str()));
            out.push(&PATH_STATE, &[&name, path, &state], 1.0);
        }

        out.push(&PATHS, &labels, paths.len() as f64);
        out.push(&PATHS_ACTIVE, &labels, active as f64);
        out.push(&PATHS_FAILED, &labels, (paths.len() - active) as f64);
    }
}
