//! Tapes: what is read from and written to them, and how long that takes.
//!
//! Source: `/sys/class/scsi_tape/st*/stats`. The kernel counts nanoseconds; we publish seconds.

use crate::collector::{CollectError, Collector, MAX_DEVICES};
use crate::filter::{NameFilter, NamePattern};
use crate::paths::Paths;
use crate::sysfs;
use crate::table::{Row, metrics_of, push_files};
use std::path::PathBuf;
use takt_model::{Metric, Samples};

/// Flags of the collector `tapestats`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct TapestatsOptions {
    /// Tapes to leave out.
    #[arg(
        id = "tapestats-ignored",
        long = "collector.tapestats.ignored-devices",
        value_name = "REGEXP",
        default_value = "^$"
    )]
    pub ignored_devices: NamePattern,
}

struct Tapestats {
    class: PathBuf,
    filter: NameFilter,
}

const TAPE: &[&str] = &["device"];
const NANOSECOND: f64 = 1e-9;
#[rustfmt::skip]
const FILES: &[Row] = &[
    Row::gauge("in_flight", "node_tape_io_now",
        "The number of I/Os currently outstanding to this device.", TAPE),
    Row::counter("io_ns", "node_tape_io_time_seconds_total",
        "The amount of time spent waiting for all I/O to complete (including read and write). This \
         includes tape movement commands such as seeking between file or set marks and implicit \
         tape movement such as when rewind on close tape devices are used.", TAPE).of(NANOSECOND),
    Row::counter("other_cnt", "node_tape_io_others_total",
        "The number of I/Os issued to the tape drive other than read or write commands. The time \
         taken to complete these commands uses the following calculation \
         io_time_seconds_total-read_time_seconds_total-write_time_seconds_total", TAPE),
    Row::counter("read_byte_cnt", "node_tape_read_bytes_total",
        "The number of bytes read from the tape drive.", TAPE),
    Row::counter("read_cnt", "node_tape_reads_completed_total",
        "The number of read requests issued to the tape drive.", TAPE),
    Row::counter("read_ns", "node_tape_read_time_seconds_total",
        "The amount of time spent waiting for read requests to complete.", TAPE).of(NANOSECOND),
    Row::counter("resid_cnt", "node_tape_residual_total",
        "The number of times during a read or write we found the residual amount to be non-zero. \
         This should mean that a program is issuing a read larger thean the block size on tape. \
         For write not all data made it to tape.", TAPE),
    Row::counter("write_byte_cnt", "node_tape_written_bytes_total",
        "The number of bytes written to the tape drive.", TAPE),
    Row::counter("write_cnt", "node_tape_writes_completed_total",
        "The number of write requests issued to the tape drive.", TAPE),
    Row::counter("write_ns", "node_tape_write_time_seconds_total",
        "The amount of time spent waiting for write requests to complete.", TAPE).of(NANOSECOND),
];
const METRICS: &[Metric] = metrics_of!([], FILES);

pub(crate) fn new(paths: &Paths, options: &TapestatsOptions) -> Box<dyn Collector> {
    Box::new(Tapestats {
        class: paths.sysfs.join("class/scsi_tape"),
        filter: NameFilter::excluding(options.ignored_devices.clone()),
    })
}

impl Collector for Tapestats {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        // Each tape has further names, `nst0` and `st0a`, for other ways of using it.
        let tapes = sysfs::numbered(&self.class, "st")
            .map_err(|source| CollectError::read(&self.class, source).or_absent("no tapes"))?;

        for (tape, _) in tapes.iter().filter(|(tape, _)| self.filter.passes(tape)) {
            push_files(&self.class.join(tape).join("stats"), FILES, &[tape], out);
        }
        Ok(())
    }
}
