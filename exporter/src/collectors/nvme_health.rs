//! Health of NVMe disks, from their SMART log.
//!
//! Source: the SMART log (page 2) of each controller, asked over `/dev/nvme*`, which needs
//! `CAP_SYS_ADMIN` and no other program. A controller in trouble may not answer, so this collector
//! has a thread; the log changes slowly, and is read once a minute. The log counts 512,000-byte
//! units, hours, minutes and kelvins; we publish bytes, seconds and degrees Celsius.

use crate::collector::{CollectError, Collector, MAX_DEVICES};
use crate::ioctl::ioctl;
use crate::paths::Paths;
use crate::sysfs;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use takt_model::{Metric, Samples};

struct NvmeHealth {
    class: PathBuf,
    /// When the disks were asked last, and what each said.
    last: Option<(Instant, Vec<(String, Health)>)>,
}

/// In the order of [`METRICS`].
type Health = [f64; METRICS.len()];

const DEVICE: &[&str] = &["device"];
const METRICS: &[Metric] = &[
    Metric::gauge(
        "takt_nvme_critical_warning",
        "Bits: 1 little spare, 2 temperature, 4 unreliable, 8 read-only, 16 backup of volatile \
         memory failed. 0 is healthy.",
        DEVICE,
    ),
    Metric::gauge(
        "takt_nvme_temperature_celsius",
        "Temperature of the disk as a whole.",
        DEVICE,
    ),
    Metric::gauge(
        "takt_nvme_available_spare_ratio",
        "Share of the spare blocks that is left.",
        DEVICE,
    ),
    Metric::gauge(
        "takt_nvme_available_spare_threshold_ratio",
        "Share of spare blocks below which the disk warns.",
        DEVICE,
    ),
    Metric::gauge(
        "takt_nvme_used_ratio",
        "Share of the disk's rated life that is used up; may exceed 1.",
        DEVICE,
    ),
    Metric::counter(
        "takt_nvme_read_bytes_total",
        "Bytes that the node has read.",
        DEVICE,
    ),
    Metric::counter(
        "takt_nvme_written_bytes_total",
        "Bytes that the node has written.",
        DEVICE,
    ),
    Metric::counter(
        "takt_nvme_power_cycles_total",
        "Number of times the disk was switched on.",
        DEVICE,
    ),
    Metric::counter(
        "takt_nvme_power_on_seconds_total",
        "Time powered on.",
        DEVICE,
    ),
    Metric::counter(
        "takt_nvme_unsafe_shutdowns_total",
        "Power losses without a shutdown.",
        DEVICE,
    ),
    Metric::counter(
        "takt_nvme_media_errors_total",
        "Errors of data that could not be read back or was wrong.",
        DEVICE,
    ),
    Metric::counter(
        "takt_nvme_warning_temperature_seconds_total",
        "Time above the disk's warning temperature.",
        DEVICE,
    ),
];

const EVERY: Duration = Duration::from_secs(60);
const LOG_BYTES: usize = 512;

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(NvmeHealth {
        class: paths.sysfs.join("class/nvme"),
        last: None,
    })
}

impl Collector for NvmeHealth {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let last = match self.last.take().filter(|(at, _)| at.elapsed() < EVERY) {
            Some(last) => last,
            None => (Instant::now(), self.ask()?),
        };

        let (_, disks) = &last;
        for (device, health) in disks {
            for (metric, value) in METRICS.iter().zip(health) {
                out.push(metric, &[device], *value);
            }
        }
        self.last = Some(last);
        Ok(())
    }
}

impl NvmeHealth {
    /// Fails only where no disk answers.
    fn ask(&self) -> Result<Vec<(String, Health)>, CollectError> {
        const NONE: CollectError = CollectError::Absent("no NVMe disks");
        let mut found = Vec::new();
        let mut failure = NONE;

        for (device, _) in sysfs::numbered(&self.class, "nvme").map_err(|_| NONE)? {
            let path = PathBuf::from("/dev").join(&device);
            match File::open(&path).and_then(|disk| read_log(&disk)) {
                Ok(log) => found.push((device, parse(&log))),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    failure = CollectError::Denied(
                        "reading the health of NVMe disks needs CAP_SYS_ADMIN",
                    );
                }
                Err(source) => {
                    failure =
                        CollectError::read(&path, source).or_absent("no device of an NVMe disk")
                }
            }
        }

        if found.is_empty() {
            Err(failure)
        } else {
            Ok(found)
        }
    }
}

/// `struct nvme_passthru_cmd` of `linux/nvme_ioctl.h`.
#[repr(C)]
#[derive(Default)]
struct Command {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_3: [u32; 2],
    metadata: u64,
    address: u64,
    metadata_bytes: u32,
    data_bytes: u32,
    words_10_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

/// `_IOWR('N', 0x41, struct nvme_passthru_cmd)`
const ADMIN_COMMAND: u32 = 0xc048_4e41;
const GET_LOG_PAGE: u8 = 2;
const SMART: u32 = 2;
const ALL_NAMESPACES: u32 = u32::MAX;

fn read_log(disk: &File) -> io::Result<[u8; LOG_BYTES]> {
    let mut log = [0; LOG_BYTES];
    let mut command = Command {
        opcode: GET_LOG_PAGE,
        namespace: ALL_NAMESPACES,
        address: log.as_mut_ptr() as u64,
        data_bytes: LOG_BYTES as u32,
        // The number of words, less one, above the number of the page.
        words_10_15: [(LOG_BYTES as u32 / 4 - 1) << 16 | SMART, 0, 0, 0, 0, 0],
        timeout_ms: 1000,
        ..Command::default()
    };

    // SAFETY: the command points to a buffer of the length that it says, and both live on. The
    // command changes nothing.
    match unsafe { ioctl(disk, ADMIN_COMMAND, &raw mut command) }? {
        0 => Ok(log),
        status => Err(io::Error::other(format!(
            "the controller answers with status {status:#x}"
        ))),
    }
}

fn parse(log: &[u8; LOG_BYTES]) -> Health {
    // Numbers are little-endian; the counters have 16 bytes.
    let number = |from: usize, bytes: usize| {
        let digits = log[from..from + bytes].iter().rev();
        digits.fold(0_u128, |number, byte| number << 8 | u128::from(*byte)) as f64
    };
    let ratio = |at: usize| f64::from(log[at]) / 100.0;
    let unit = 512.0 * 1000.0;

    [
        number(0, 1),
        number(1, 2) - 273.0,
        ratio(3),
        ratio(4),
        ratio(5),
        number(32, 16) * unit,
        number(48, 16) * unit,
        number(112, 16),
        number(128, 16) * 3600.0,
        number(144, 16),
        number(160, 16),
        number(192, 4) * 60.0,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_log_in_base_units() {
        let mut log = [0; LOG_BYTES];
        log[..6].copy_from_slice(&[4, 0x3d, 0x01, 100, 10, 103]);
        for (at, number) in [
            (32, 2_u128),
            (48, 3),
            (112, 7),
            (128, 10),
            (144, 5),
            (160, 1 << 64),
        ] {
            log[at..at + 16].copy_from_slice(&number.to_le_bytes());
        }
        log[192..196].copy_from_slice(&9_u32.to_le_bytes());
        let media_errors = 2_f64.powi(64);
        let expected = [
            4.0,
            44.0,
            1.0,
            0.1,
            1.03,
            1_024_000.0,
            1_536_000.0,
            7.0,
            36_000.0,
            5.0,
            media_errors,
            540.0,
        ];
        assert_eq!(parse(&log), expected);
    }

    #[test]
    fn the_command_is_laid_out_as_the_kernel_has_it() {
        assert_eq!(size_of::<Command>(), 72);
        assert_eq!(std::mem::offset_of!(Command, address), 24);
        assert_eq!(std::mem::offset_of!(Command, words_10_15), 40);
        // A device that is no NVMe disk refuses the command.
        assert!(read_log(&File::open("/dev/null").unwrap()).is_err());
    }

    proptest! {
        #[test]
        fn no_log_ends_the_reader(bytes in prop::collection::vec(any::<u8>(), LOG_BYTES)) {
            let health = parse(&bytes.try_into().unwrap());
            prop_assert!(health.iter().all(|value| value.is_finite()));
        }
    }
}
