//! Health of SATA and SAS disks, from SMART and the disks' statistics.
//!
//! Source: SCSI commands (`SG_IO`) to each `/dev/sd*`. An ATA disk gives SMART status, attributes,
//! thresholds and device statistics, which needs `CAP_SYS_RAWIO`. A SAS disk gives informational
//! exceptions, which only needs the right to open it. A sleeping disk is not woken: its last values
//! stay, except the temperature. A failing disk may not answer, so this collector has a thread, and
//! reads every five minutes.
//!
//! A bridge or a RAID controller that refuses the commands has no series. USB bridges get commands
//! only if they report an ATA disk behind them: some others hang.

mod ata;
mod sas;
mod scsi;

use crate::collector::{CollectError, Collector, MAX_DEVICES, device_names, flag};
use crate::paths::Paths;
use crate::sysfs;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use takt_model::{Metric, Samples};

struct DiskHealth {
    block: PathBuf,
    /// When the disks were asked last.
    asked: Option<Instant>,
    /// Health by disk.
    disks: BTreeMap<String, Disk>,
    /// Why some disks are left out.
    problem: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq)]
struct Disk {
    health: HealthValues,
    is_asleep: bool,
}

/// Health of one disk; `None` for values that it does not report.
#[derive(Debug, Clone, Default, PartialEq)]
struct HealthValues {
    healthy: Option<f64>,
    failing_attributes: Option<f64>,
    temperature: Option<f64>,
    power_on_seconds: Option<f64>,
    reallocated: Option<f64>,
    pending: Option<f64>,
    offline_uncorrectable: Option<f64>,
    reported_uncorrectable: Option<f64>,
    command_timeouts: Option<f64>,
    crc_errors: Option<f64>,
    used: Option<f64>,
    read_bytes: Option<f64>,
    written_bytes: Option<f64>,
}

impl HealthValues {
    /// In the order of [`METRICS`], after the first of them.
    fn values(&self) -> [Option<f64>; METRICS.len() - 1] {
        [
            self.healthy,
            self.failing_attributes,
            self.temperature,
            self.power_on_seconds,
            self.reallocated,
            self.pending,
            self.offline_uncorrectable,
            self.reported_uncorrectable,
            self.command_timeouts,
            self.crc_errors,
            self.used,
            self.read_bytes,
            self.written_bytes,
        ]
    }
}

const DEVICE: &[&str] = &["device"];
const METRICS: &[Metric] = &[
    Metric::gauge(
        "takt_disk_asleep",
        "Whether the disk sleeps. A sleeping disk is not asked; its last values stay.",
        DEVICE,
    ),
    Metric::gauge(
        "takt_disk_healthy",
        "The disk's own judgement: 0 if SMART, or a SAS disk's informational exception, predicts a \
         failure.",
        DEVICE,
    ),
    Metric::gauge(
        "takt_disk_failing_attributes",
        "SMART attributes whose value is at or below the threshold that its maker set.",
        DEVICE,
    ),
    Metric::gauge(
        "takt_disk_temperature_celsius",
        "Temperature of the disk.",
        DEVICE,
    ),
    Metric::counter(
        "takt_disk_power_on_seconds_total",
        "Time powered on, from the device statistics or attribute 9, which nearly all disks count \
         in hours.",
        DEVICE,
    ),
    Metric::counter(
        "takt_disk_reallocated_sectors_total",
        "Bad sectors replaced by spare ones (attribute 5).",
        DEVICE,
    ),
    Metric::gauge(
        "takt_disk_pending_sectors",
        "Sectors that cannot be read at present (attribute 197).",
        DEVICE,
    ),
    Metric::gauge(
        "takt_disk_offline_uncorrectable_sectors",
        "Sectors that the disk's own test could not read (attribute 198).",
        DEVICE,
    ),
    Metric::counter(
        "takt_disk_reported_uncorrectable_errors_total",
        "Uncorrectable errors reported to the host (attribute 187).",
        DEVICE,
    ),
    Metric::counter(
        "takt_disk_command_timeouts_total",
        "Commands aborted by a timeout (attribute 188).",
        DEVICE,
    ),
    Metric::counter(
        "takt_disk_interface_crc_errors_total",
        "Transfers damaged between disk and controller: most often the cable (attribute 199).",
        DEVICE,
    ),
    Metric::gauge(
        "takt_disk_used_ratio",
        "Share of the SSD's rated life that is used up; may exceed 1.",
        DEVICE,
    ),
    Metric::counter(
        "takt_disk_read_bytes_total",
        "Bytes read in the disk's life, from the device statistics.",
        DEVICE,
    ),
    Metric::counter(
        "takt_disk_written_bytes_total",
        "Bytes written in the disk's life, from the device statistics.",
        DEVICE,
    ),
];

const EVERY: Duration = Duration::from_secs(300);

const NO_DISKS: &str = "no SATA or SAS disks";
const NOT_ALLOWED: &str = "reading the health of SATA disks needs CAP_SYS_RAWIO";
const ALL_REFUSE: &str = "no disk reports its health";

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    let block = paths.sysfs.join("block");
    Box::new(DiskHealth {
        block,
        asked: None,
        disks: BTreeMap::new(),
        problem: None,
    })
}

impl Collector for DiskHealth {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        if self.asked.is_none_or(|asked| asked.elapsed() >= EVERY) {
            self.ask()?;
            self.asked = Some(Instant::now());
        }

        for (device, disk) in &self.disks {
            out.push(&METRICS[0], &[device], flag(disk.is_asleep));
            for (metric, value) in METRICS[1..].iter().zip(disk.health.values()) {
                if let Some(value) = value {
                    out.push(metric, &[device], value);
                }
            }
        }

        match self.problem.filter(|_| self.disks.is_empty()) {
            None => Ok(()),
            Some(NOT_ALLOWED) => Err(CollectError::Denied(NOT_ALLOWED)),
            Some(problem) => Err(CollectError::Absent(problem)),
        }
    }
}

impl DiskHealth {
    fn ask(&mut self) -> Result<(), CollectError> {
        let names = device_names(&self.block, "sd", NO_DISKS)?;
        let mut known = std::mem::take(&mut self.disks);
        let problem_before =
            std::mem::replace(&mut self.problem, names.is_empty().then_some(NO_DISKS));

        for name in names.into_iter().take(MAX_DEVICES) {
            let disk = match ask(&self.block.join(&name), &name) {
                Ok(Some(health)) => Disk {
                    health,
                    is_asleep: false,
                },
                Ok(None) => {
                    // The last values hold, but for the temperature.
                    let before = known.remove(&name).map(|disk| disk.health);
                    let health = HealthValues {
                        temperature: None,
                        ..before.unwrap_or_default()
                    };
                    Disk {
                        health,
                        is_asleep: true,
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.problem = Some(NOT_ALLOWED);
                    continue;
                }
                Err(error) => {
                    tracing::debug!(device = name, %error, "no health reported");
                    self.problem = self.problem.or(Some(ALL_REFUSE));
                    continue;
                }
            };

            self.disks.insert(name, disk);
        }

        // If all are left out, the collector reports it.
        if self.problem == Some(NOT_ALLOWED)
            && problem_before != self.problem
            && !self.disks.is_empty()
        {
            tracing::info!(
                collector = "disk_health",
                error = NOT_ALLOWED,
                "some disks are left out"
            );
        }
        Ok(())
    }
}

/// Reads one disk; `None` if it sleeps. `block` is its directory in `/sys/block`.
fn ask(block: &Path, name: &str) -> io::Result<Option<HealthValues>> {
    // The kernel would wake a disk that it put to sleep itself as soon as the device is opened.
    if sysfs::text(&block.join("device/power/runtime_status")).as_deref() == Some("suspended") {
        return Ok(None);
    }

    let language = language(block);
    let open = || {
        OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(Path::new("/dev").join(name))
    };

    match language {
        DiskProtocol::Ata { identity } => {
            let disk: File = open()?;
            // Any other command would wake the disk.
            if ata::is_asleep(&disk)? {
                return Ok(None);
            }
            ata::health(&disk, identity.as_deref()).map(Some)
        }
        DiskProtocol::Scsi => {
            let disk = open()?;
            if sas::is_asleep(&disk)? {
                return Ok(None);
            }
            sas::health(&disk).map(Some)
        }
        DiskProtocol::Unknown => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "a USB bridge that may not know the commands",
        )),
    }
}

/// Protocol of a disk.
#[derive(Debug, PartialEq)]
enum DiskProtocol {
    Ata {
        /// IDENTIFY DEVICE, as the kernel read it when it found the disk.
        identity: Option<Vec<u8>>,
    },
    Scsi,
    Unknown,
}

/// Vital product data 0x89, "ATA information", exists only if an ATA disk is behind a translating
/// controller.
fn language(block: &Path) -> DiskProtocol {
    const IDENTITY_FROM: usize = 60;
    let information = std::fs::read(block.join("device/vpd_pg89"))
        .ok()
        .filter(|page| page.len() >= IDENTITY_FROM);
    // libata gives its disks this vendor.
    let is_ata = information.is_some()
        || sysfs::text(&block.join("device/vendor")).as_deref() == Some("ATA");

    if is_ata {
        let identity = information
            .and_then(|page| Some(page.get(IDENTITY_FROM..IDENTITY_FROM + 512)?.to_vec()));
        return DiskProtocol::Ata { identity };
    }

    let path = std::fs::canonicalize(block).unwrap_or_default();
    let is_usb = path
        .components()
        .any(|part| part.as_os_str().to_string_lossy().starts_with("usb"));

    if is_usb {
        DiskProtocol::Unknown
    } else {
        DiskProtocol::Scsi
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysfs_gives_the_protocol_of_a_disk() {
        let sys = tempfile::tempdir().unwrap();
        let device = |path: &str, vendor: &str| {
            let block = sys.path().join(path);
            std::fs::create_dir_all(block.join("device")).unwrap();
            std::fs::write(block.join("device/vendor"), vendor).unwrap();
            block
        };
        assert_eq!(
            language(&device("pci0/ata1/block/sda", "ATA     \n")),
            DiskProtocol::Ata { identity: None }
        );
        assert_eq!(
            language(&device("pci0/host0/block/sdb", "SEAGATE \n")),
            DiskProtocol::Scsi
        );
        let bridge = device("pci0/usb1/1-1/block/sdc", "Samsung \n");
        assert_eq!(language(&bridge), DiskProtocol::Unknown);
        let mut page = vec![0; 572];
        page[60..62].copy_from_slice(&[0x40, 0x00]);
        std::fs::write(bridge.join("device/vpd_pg89"), &page).unwrap();
        let DiskProtocol::Ata {
            identity: Some(identity),
        } = language(&bridge)
        else {
            panic!()
        };
        assert_eq!((identity.len(), identity[0]), (512, 0x40));
    }

    #[test]
    fn a_node_without_disks_is_absent() {
        let sys = tempfile::tempdir().unwrap();
        let collect = || {
            let mut collector = DiskHealth {
                block: sys.path().join("block"),
                asked: None,
                disks: BTreeMap::new(),
                problem: None,
            };
            collector.collect(&mut Samples::new())
        };
        assert!(matches!(collect(), Err(CollectError::Absent(_))));
        std::fs::create_dir_all(sys.path().join("block/vda")).unwrap();
        assert!(matches!(collect(), Err(CollectError::Absent(NO_DISKS))));
    }
}
