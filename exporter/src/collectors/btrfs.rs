//! Btrfs: how its space is laid out, how long its commits take, and the errors of its disks.
//!
//! Sources: `/sys/fs/btrfs/UUID`, and, for the disks of what is mounted, the ioctls of
//! `linux/btrfs.h` on a mount point. A mount may hang, so this collector has a thread. The kernel
//! counts sectors of 512 bytes and milliseconds; we publish bytes and seconds. A number that a
//! kernel's version lacks is 0, as node_exporter has it.

mod disks;

use self::disks::{BtrfsDisk, disks};
use crate::collector::{CollectError, Collector, MAX_DEVICES};
use crate::paths::Paths;
use crate::sysfs;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use takt_model::{Kind, Metric, Samples};

struct Btrfs {
    directory: PathBuf,
    mounts: PathBuf,
    rootfs: PathBuf,
}

const UUID: &[&str] = &["uuid"];
const LAYOUT: &[&str] = &["uuid", "block_group_type", "mode"];
const INFO: Metric = Metric::gauge(
    "node_btrfs_info",
    "Filesystem information",
    &["uuid", "label"],
);
const RESERVE: Metric = Metric::gauge(
    "node_btrfs_global_rsv_size_bytes",
    "Size of global reserve.",
    UUID,
);
const COMMITS: Metric = Metric::counter(
    "node_btrfs_commits_total",
    "The total number of commits that have occurred.",
    UUID,
);
const LAST_COMMIT: Metric = Metric::gauge(
    "node_btrfs_last_commit_seconds",
    "Duration of the most recent commit, in seconds.",
    UUID,
);
const MAX_COMMIT: Metric = Metric::gauge(
    "node_btrfs_max_commit_seconds",
    "Duration of the slowest commit, in seconds.",
    UUID,
);
const COMMIT_SECONDS: Metric = Metric::counter(
    "node_btrfs_commit_seconds_total",
    "Sum of the duration of all commits, in seconds.",
    UUID,
);
const RESERVED: Metric = Metric::gauge(
    "node_btrfs_reserved_bytes",
    "Amount of space reserved for a data type",
    &["uuid", "block_group_type"],
);
const USED: Metric = Metric::gauge(
    "node_btrfs_used_bytes",
    "Amount of used space by a layout/data type",
    LAYOUT,
);
const SIZE: Metric = Metric::gauge(
    "node_btrfs_size_bytes",
    "Amount of space allocated for a layout/data type",
    LAYOUT,
);
const RATIO: Metric = Metric::gauge(
    "node_btrfs_allocation_ratio",
    "Data allocation ratio for a layout/data type",
    LAYOUT,
);
const DEVICE_SIZE: Metric = Metric::gauge(
    "node_btrfs_device_size_bytes",
    "Size of a device that is part of the filesystem.",
    &["uuid", "device", "btrfs_dev_uuid"],
);
const DEVICE_UNUSED: Metric = Metric::gauge(
    "node_btrfs_device_unused_bytes",
    "Unused bytes unused on a device that is part of the filesystem.",
    &["uuid", "device", "btrfs_dev_uuid"],
);
const DEVICE_ERRORS: Metric = Metric::counter(
    "node_btrfs_device_errors_total",
    "Errors reported for the device",
    &["uuid", "type", "device", "btrfs_dev_uuid"],
);
const METRICS: &[Metric] = &[
    INFO,
    RESERVE,
    COMMITS,
    LAST_COMMIT,
    MAX_COMMIT,
    COMMIT_SECONDS,
    RESERVED,
    USED,
    SIZE,
    RATIO,
    DEVICE_SIZE,
    DEVICE_UNUSED,
    DEVICE_ERRORS,
];
const SECTOR: f64 = 512.0;
const MILLISECONDS: f64 = 1e3;

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Btrfs {
        directory: paths.sysfs.join("fs/btrfs"),
        mounts: paths.procfs.join("1/mounts"),
        rootfs: paths.rootfs.clone(),
    })
}

impl Collector for Btrfs {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * 64
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        // Beside the file systems there is `features`.
        let mut systems = sysfs::names(&self.directory, "").unwrap_or_default();
        systems.retain(|name| name.contains('-'));

        let mounted = if systems.is_empty() {
            BTreeMap::new()
        } else {
            disks(&self.mounts, &self.rootfs)
        };

        for name in systems {
            let directory = self.directory.join(&name);
            let metadata_uuid = sysfs::text(&directory.join("metadata_uuid"));
            let metadata_uuid = metadata_uuid.filter(|uuid| !uuid.is_empty());
            let uuid = metadata_uuid.unwrap_or(name);
            let disks = mounted.get(&uuid.replace('-', ""));
            push_system(&directory, &uuid, disks, out);
        }
        Ok(())
    }
}

fn push_system(directory: &Path, uuid: &str, mounted: Option<&Vec<BtrfsDisk>>, out: &mut Samples) {
    let number =
        |file: &str| sysfs::number::<u64>(&directory.join(file)).unwrap_or_default() as f64;

    let label = sysfs::text(&directory.join("label")).unwrap_or_default();
    out.push(&INFO, &[uuid, &label], 1.0);
    out.push(&RESERVE, &[uuid], number("allocation/global_rsv_size"));

    let commits = sysfs::text(&directory.join("commit_stats")).unwrap_or_default();
    let count = field_of(&commits, "commits").unwrap_or_default();
    let seconds = |field| field_of(&commits, field).unwrap_or_default() / MILLISECONDS;
    out.push(&COMMITS, &[uuid], count);
    out.push(&LAST_COMMIT, &[uuid], seconds("last_commit_ms"));
    out.push(&MAX_COMMIT, &[uuid], seconds("max_commit_ms"));
    out.push(&COMMIT_SECONDS, &[uuid], seconds("total_commit_ms"));

    let devices = sysfs::names(&directory.join("devices"), "").unwrap_or_default();
    for group in ["data", "metadata", "system"] {
        let directory = directory.join("allocation").join(group);
        push_group(&directory, &[uuid, group], devices.len(), out);
    }

    // Only the ioctls on a mount tell how much of a disk is used, and its errors.
    match mounted {
        Some(disks) => {
            for disk in disks {
                push_disk(disk, uuid, out);
            }
        }
        None => {
            for device in &devices {
                let bytes = SECTOR * number(&format!("devices/{device}/size"));
                // Without a mount the disk's UUID is unknown, so this label is left out.
                let labels = [("uuid", uuid), ("device", device)];
                let Metric { name, help, .. } = DEVICE_SIZE;
                out.push_foreign(name, Kind::Gauge, help, &labels, bytes);
            }
        }
    }
}

/// Pushes a kind of data (`data`, `metadata`, `system`), and how much of it is stored in which
/// layouts.
fn push_group(directory: &Path, labels: &[&str; 2], devices: usize, out: &mut Samples) {
    let number =
        |file: &str| sysfs::number::<u64>(&directory.join(file)).unwrap_or_default() as f64;

    out.push(&RESERVED, labels, number("bytes_reserved"));
    for layout in sysfs::names(directory, "").unwrap_or_default() {
        // The layouts are directories, the sums are files.
        if !directory.join(&layout).is_dir() {
            continue;
        }

        let [uuid, group] = *labels;
        let labels = &[uuid, group, &layout];
        out.push(&USED, labels, number(&format!("{layout}/used_bytes")));
        out.push(&SIZE, labels, number(&format!("{layout}/total_bytes")));
        out.push(&RATIO, labels, ratio(&layout, devices as f64));
    }
}

fn push_disk(disk: &BtrfsDisk, uuid: &str, out: &mut Samples) {
    let labels = [uuid, &disk.name, &disk.uuid];
    out.push(&DEVICE_SIZE, &labels, disk.total_bytes as f64);
    let unused = disk.total_bytes.saturating_sub(disk.used_bytes);
    out.push(&DEVICE_UNUSED, &labels, unused as f64);

    for (kind, count) in BtrfsDisk::ERRORS.iter().zip(disk.errors) {
        let labels = [uuid, kind, &disk.name, &disk.uuid];
        out.push(&DEVICE_ERRORS, &labels, count as f64);
    }
}

/// The number behind a name, in lines such as `commits 258051`.
fn field_of(text: &str, name: &str) -> Option<f64> {
    let mut fields = text.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = fields.find(|(field, _)| *field == name)?;
    let value: u64 = value.trim_ascii().parse().ok()?;
    Some(value as f64)
}

/// How many bytes of the disks hold one byte of data.
fn ratio(layout: &str, devices: f64) -> f64 {
    match layout {
        "single" | "raid0" => 1.0,
        "dup" | "raid1" | "raid10" => 2.0,
        "raid1c3" => 3.0,
        "raid1c4" => 4.0,
        "raid5" => devices / (devices - 1.0),
        "raid6" => devices / (devices - 2.0),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_ratios() {
        let text = "commits 258051\nlast_commit_ms 1\ntotal_commit_ms x\n";
        assert_eq!(
            (field_of(text, "commits"), field_of(text, "last_commit_ms")),
            (Some(258_051.0), Some(1.0))
        );
        assert_eq!(
            (
                field_of(text, "total_commit_ms"),
                field_of(text, "max_commit_ms")
            ),
            (None, None)
        );
        assert_eq!(
            (
                ratio("raid5", 4.0),
                ratio("raid6", 4.0),
                ratio("raid1", 4.0)
            ),
            (4.0 / 3.0, 2.0, 2.0)
        );
    }
}
