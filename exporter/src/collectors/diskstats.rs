//! Disk I/O by device, and which disk each is.
//!
//! Sources: `/proc/diskstats`, whose sectors are 512 bytes on every disk and whose times are
//! milliseconds, and udev's properties in `/run/udev/data`.

use crate::collector::{CollectError, Collector, MAX_DEVICES, ParseError};
use crate::file::KernelFile;
use crate::filter::{NameFilter, NamePattern};
use crate::paths::Paths;
use crate::sysfs;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::SystemTime;
use takt_model::{Metric, Samples};

/// Flags of the collector `diskstats`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct DiskstatsOptions {
    /// Disks and partitions to leave out.
    #[arg(
        id = "diskstats-exclude",
        long = "collector.diskstats.device-exclude",
        value_name = "REGEXP"
    )]
    #[arg(
        alias = "collector.diskstats.ignored-devices",
        default_value = r"^(z?ram|loop|fd|(h|s|v|xv)d[a-z]|nvme\d+n\d+p)\d+$"
    )]
    pub device_exclude: NamePattern,
    /// Disks and partitions to keep, all others being left out.
    #[arg(
        id = "diskstats-include",
        long = "collector.diskstats.device-include",
        value_name = "REGEXP"
    )]
    #[arg(conflicts_with = "diskstats-exclude")]
    pub device_include: Option<NamePattern>,
}

struct Diskstats {
    diskstats: KernelFile,
    filter: NameFilter,
    udev: Udev,
}

const SECTOR_BYTES: f64 = 512.0;
const SECONDS: f64 = 1e-3;

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric::counter(name, help, &["device"])
}

/// In the order of the columns, each with what its unit is in ours.
const COLUMNS: [(Metric, f64); 17] = [
    (
        counter(
            "node_disk_reads_completed_total",
            "The total number of reads completed successfully.",
        ),
        1.0,
    ),
    (
        counter(
            "node_disk_reads_merged_total",
            "The total number of reads merged.",
        ),
        1.0,
    ),
    (
        counter(
            "node_disk_read_bytes_total",
            "The total number of bytes read successfully.",
        ),
        SECTOR_BYTES,
    ),
    (
        counter(
            "node_disk_read_time_seconds_total",
            "The total number of seconds spent by all reads.",
        ),
        SECONDS,
    ),
    (
        counter(
            "node_disk_writes_completed_total",
            "The total number of writes completed successfully.",
        ),
        1.0,
    ),
    (
        counter(
            "node_disk_writes_merged_total",
            "The number of writes merged.",
        ),
        1.0,
    ),
    (
        counter(
            "node_disk_written_bytes_total",
            "The total number of bytes written successfully.",
        ),
        SECTOR_BYTES,
    ),
    (
        counter(
            "node_disk_write_time_seconds_total",
            "This is the total number of seconds spent by all writes.",
        ),
        SECONDS,
    ),
    (
        Metric::gauge(
            "node_disk_io_now",
            "The number of I/Os currently in progress.",
            &["device"],
        ),
        1.0,
    ),
    (
        counter(
            "node_disk_io_time_seconds_total",
            "Total seconds spent doing I/Os.",
        ),
        SECONDS,
    ),
    (
        counter(
            "node_disk_io_time_weighted_seconds_total",
            "The weighted # of seconds spent doing I/Os.",
        ),
        SECONDS,
    ),
    (
        counter(
            "node_disk_discards_completed_total",
            "The total number of discards completed successfully.",
        ),
        1.0,
    ),
    (
        counter(
            "node_disk_discards_merged_total",
            "The total number of discards merged.",
        ),
        1.0,
    ),
    (
        counter(
            "node_disk_discarded_sectors_total",
            "The total number of sectors discarded successfully.",
        ),
        1.0,
    ),
    (
        counter(
            "node_disk_discard_time_seconds_total",
            "This is the total number of seconds spent by all discards.",
        ),
        SECONDS,
    ),
    (
        counter(
            "node_disk_flush_requests_total",
            "The total number of flush requests completed successfully",
        ),
        1.0,
    ),
    (
        counter(
            "node_disk_flush_requests_time_seconds_total",
            "This is the total number of seconds spent by all flush requests.",
        ),
        SECONDS,
    ),
];
/// Kernels before 4.18 count no discards, and before 5.5 no flushes; before 2.6 there was less
/// still.
const FEWEST_COLUMNS: usize = 11;

const INFO: Metric = Metric::gauge(
    "node_disk_info",
    "Info of /sys/block/<block_device>.",
    &[
        "device",
        "major",
        "minor",
        "path",
        "wwn",
        "model",
        "serial",
        "revision",
        "rotational",
    ],
);
const FILESYSTEM: Metric = Metric::gauge(
    "node_disk_filesystem_info",
    "Info about disk filesystem.",
    &["device", "type", "usage", "uuid", "version"],
);
const DEVICE_MAPPER: Metric = Metric::gauge(
    "node_disk_device_mapper_info",
    "Info about disk device mapper.",
    &["device", "name", "uuid", "vg_name", "lv_name", "lv_layer"],
);
const WRITE_CACHE: Metric = Metric::gauge(
    "node_disk_ata_write_cache",
    "ATA disk has a write cache.",
    &["device"],
);
const WRITE_CACHE_ENABLED: Metric = Metric::gauge(
    "node_disk_ata_write_cache_enabled",
    "ATA disk has its write cache enabled.",
    &["device"],
);
const ROTATION: Metric = Metric::gauge(
    "node_disk_ata_rotation_rate_rpm",
    "ATA disk rotation rate in RPMs (0 for SSDs).",
    &["device"],
);
const METRICS: &[Metric; COLUMNS.len() + 6] = &{
    let mut metrics = [INFO; COLUMNS.len() + 6];
    let mut at = 0;
    while at < COLUMNS.len() {
        metrics[at] = COLUMNS[at].0;
        at += 1;
    }
    metrics[at + 1] = FILESYSTEM;
    metrics[at + 2] = DEVICE_MAPPER;
    metrics[at + 3] = WRITE_CACHE;
    metrics[at + 4] = WRITE_CACHE_ENABLED;
    metrics[at + 5] = ROTATION;
    metrics
};

pub(crate) fn new(paths: &Paths, options: &DiskstatsOptions) -> Box<dyn Collector> {
    let DiskstatsOptions {
        device_include,
        device_exclude,
    } = options.clone();
    Box::new(Diskstats {
        diskstats: KernelFile::new(paths.procfs.join("diskstats")),
        filter: NameFilter::new(device_include, device_exclude),
        udev: Udev {
            data: paths.udev_data.clone(),
            block: paths.sysfs.join("block"),
            disks: HashMap::new(),
        },
    })
}

impl Collector for Diskstats {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        self.diskstats.parse(|text| {
            parse(text).try_for_each(|line| {
                let disk = line?;
                if self.filter.passes(disk.device) {
                    disk.push(out);
                    self.udev.properties(&disk).push(&disk, out);
                }
                Ok(())
            })
        })
    }
}

#[derive(Debug, PartialEq)]
struct Disk<'a> {
    major: &'a str,
    minor: &'a str,
    device: &'a str,
    counts: [Option<u64>; COLUMNS.len()],
}

impl Disk<'_> {
    fn push(&self, out: &mut Samples) {
        for ((metric, scale), count) in COLUMNS.iter().zip(self.counts) {
            if let Some(count) = count {
                out.push(metric, &[self.device], count as f64 * scale);
            }
        }
    }
}

fn parse(text: &str) -> impl Iterator<Item = Result<Disk<'_>, ParseError>> {
    let lines = text.lines().enumerate();
    lines.map(|(number, line)| {
        parse_line(line).ok_or(ParseError {
            line: number + 1,
            expected: "a disk and its 11 or more counts",
        })
    })
}

fn parse_line(line: &str) -> Option<Disk<'_>> {
    let is_number = |text: &str| text.bytes().all(|c| c.is_ascii_digit());

    let mut words = line.split_ascii_whitespace();
    let major = words.next()?;
    let minor = words.next()?;
    let device = words.next()?;

    let mut counts = [None; COLUMNS.len()];
    // A later kernel may have more columns.
    for (count, word) in counts.iter_mut().zip(words) {
        *count = Some(word.parse().ok()?);
    }

    let is_whole = counts[FEWEST_COLUMNS - 1].is_some();
    // Both numbers become a part of a path, so nothing but digits may be in them.
    (is_number(major) && is_number(minor) && is_whole).then_some(Disk {
        major,
        minor,
        device,
        counts,
    })
}

/// Properties of the disks from udev, which rewrites a file when a disk changes.
struct Udev {
    data: PathBuf,
    block: PathBuf,
    disks: HashMap<(String, String), KnownDisk>,
}

/// A disk that was seen before.
struct KnownDisk {
    /// When what udev wrote was written.
    written: Option<SystemTime>,
    properties: Properties,
}

#[derive(Debug, Default, PartialEq)]
struct Properties {
    /// `1` where the kernel says that it turns, else `0`.
    rotational: String,
    of_udev: HashMap<String, String>,
}

impl Udev {
    fn properties(&mut self, disk: &Disk<'_>) -> &Properties {
        let path = self.data.join(format!("b{}:{}", disk.major, disk.minor));
        let metadata = std::fs::metadata(&path);
        let written = metadata.and_then(|metadata| metadata.modified()).ok();

        let key = (disk.major.to_owned(), disk.minor.to_owned());
        let known = self.disks.entry(key).or_insert_with(|| {
            // Read once, because it does not change while the disk is there.
            let rotational = self.block.join(disk.device).join("queue/rotational");
            let rotational = sysfs::text(&rotational).unwrap_or_else(|| "0".to_owned());
            let properties = Properties {
                rotational,
                of_udev: HashMap::new(),
            };
            KnownDisk {
                written: None,
                properties,
            }
        });

        if known.written != written {
            known.written = written;
            // Devices that users plug in name themselves, with any bytes.
            let bytes = std::fs::read(&path).unwrap_or_default();
            known.properties.of_udev = parse_udev(&String::from_utf8_lossy(&bytes));
        }

        &known.properties
    }
}

/// `E:KEY=VALUE`, among lines of other kinds.
fn parse_udev(text: &str) -> HashMap<String, String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("E:")?.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

impl Properties {
    fn get(&self, key: &str) -> &str {
        self.of_udev.get(key).map_or("", String::as_str)
    }

    fn push(&self, disk: &Disk<'_>, out: &mut Samples) {
        let device = disk.device;

        // The serial number on the disk's label comes first. MMC cards and virtio disks have only
        // `ID_SERIAL`.
        let serial = ["SCSI_IDENT_SERIAL", "ID_SERIAL_SHORT", "ID_SERIAL"]
            .into_iter()
            .map(|key| self.get(key))
            .find(|serial| !serial.is_empty())
            .unwrap_or_default();
        let [path, wwn, model, revision] =
            ["ID_PATH", "ID_WWN", "ID_MODEL", "ID_REVISION"].map(|key| self.get(key));

        out.push(
            &INFO,
            &[
                device,
                disk.major,
                disk.minor,
                path,
                wwn,
                model,
                serial,
                revision,
                &self.rotational,
            ],
            1.0,
        );

        if !self.get("ID_FS_TYPE").is_empty() {
            let [kind, usage, uuid, version] =
                ["ID_FS_TYPE", "ID_FS_USAGE", "ID_FS_UUID", "ID_FS_VERSION"]
                    .map(|key| self.get(key));
            out.push(&FILESYSTEM, &[device, kind, usage, uuid, version], 1.0);
        }

        if !self.get("DM_NAME").is_empty() {
            let [name, uuid, group, volume, layer] = [
                "DM_NAME",
                "DM_UUID",
                "DM_VG_NAME",
                "DM_LV_NAME",
                "DM_LV_LAYER",
            ]
            .map(|key| self.get(key));
            out.push(
                &DEVICE_MAPPER,
                &[device, name, uuid, group, volume, layer],
                1.0,
            );
        }

        if !self.get("ID_ATA").is_empty() {
            for (metric, key) in [
                (&WRITE_CACHE, "ID_ATA_WRITE_CACHE"),
                (&WRITE_CACHE_ENABLED, "ID_ATA_WRITE_CACHE_ENABLED"),
                (&ROTATION, "ID_ATA_ROTATION_RATE_RPM"),
            ] {
                if let Ok(value) = self.get(key).parse() {
                    out.push(metric, &[device], value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_of_old_and_new_kernels() {
        let text = " 254  0 vda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n   8  0 sda 1 2 3 4 5 6 \
             7 8 9 10 11\n 8 1 sdb 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19\n";
        let disks: Vec<_> = parse(text).collect::<Result<_, _>>().unwrap();
        assert_eq!(
            (disks[0].major, disks[0].minor, disks[0].device),
            ("254", "0", "vda")
        );
        assert_eq!(disks[0].counts[16], Some(17));
        assert_eq!((disks[1].counts[10], disks[1].counts[11]), (Some(11), None));
        assert_eq!(
            disks[2].counts[16],
            Some(17),
            "columns of the future are left"
        );
    }

    #[test]
    fn wrong_lines_are_named() {
        for text in [
            "8 0 sda 1 2 3\n",
            "8 0 sda 1 2 3 4 5 6 7 8 9 10 x\n",
            "8/../1 0 sda 1 2 3 4 5 6 7 8 9 10 11\n",
            "\n",
        ] {
            assert_eq!(parse(text).next().unwrap().unwrap_err().line, 1, "{text:?}");
        }
    }

    #[test]
    fn a_memory_card_has_the_serial_number_of_its_only_key() {
        let card = Properties {
            rotational: String::new(),
            of_udev: parse_udev("E:ID_NAME=SD32G\nE:ID_SERIAL=0x1a2b3c4d\n"),
        };
        let disk = parse("179 0 mmcblk0 1 2 3 4 5 6 7 8 9 10 11")
            .next()
            .unwrap()
            .unwrap();
        let mut samples = Samples::new();
        card.push(&disk, &mut samples);
        let mut page = String::new();
        takt_model::exposition::write_page(
            takt_model::exposition::Format::Text,
            [&samples],
            &mut page,
        );
        assert!(page.contains(r#"serial="0x1a2b3c4d""#), "{page}");
    }

    #[test]
    fn udev_identifies_the_disk() {
        let data = tempfile::tempdir().unwrap();

        // The serial number on the disk's label is shown, not the other one.
        let text = "S:disk/by-id/x\nE:ID_MODEL=Samsung_SSD\nE:ID_SERIAL_SHORT=S1\nE:SCSI_IDENT_SERIAL=S2\nE:ID_FS_TYPE=ext4\nE:ID_ATA=1\nE:ID_ATA_ROTATION_RATE_RPM=0\n";
        std::fs::write(data.path().join("b8:0"), text).unwrap();
        let mut udev = Udev {
            data: data.path().to_owned(),
            block: data.path().to_owned(),
            disks: HashMap::new(),
        };
        let disk = parse("8 0 sda 1 2 3 4 5 6 7 8 9 10 11")
            .next()
            .unwrap()
            .unwrap();
        let mut samples = Samples::new();
        udev.properties(&disk).push(&disk, &mut samples);
        let mut page = String::new();
        takt_model::exposition::write_page(
            takt_model::exposition::Format::Text,
            [&samples],
            &mut page,
        );
        let lines: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                r#"node_disk_info{device="sda",major="8",minor="0",path="",wwn="",model="Samsung_SSD",serial="S2",revision="",rotational="0"} 1"#,
                r#"node_disk_filesystem_info{device="sda",type="ext4",usage="",uuid="",version=""} 1"#,
                r#"node_disk_ata_rotation_rate_rpm{device="sda"} 0"#,
            ]
        );
    }
}
