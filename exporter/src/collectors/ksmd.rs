//! Pages that processes share because they are alike.
//!
//! Source: `/sys/kernel/mm/ksm`. The kernel counts milliseconds; we publish seconds.

use crate::collector::{CollectError, Collector};
use crate::paths::Paths;
use crate::table::{Row, metrics_of, push_files};
use std::path::PathBuf;
use takt_model::{Metric, Samples};

struct Ksmd {
    directory: PathBuf,
}

#[rustfmt::skip]
const FILES: &[Row] = &[
    Row::counter("full_scans", "node_ksmd_full_scans_total", "ksmd 'full_scans' file.", &[]),
    Row::gauge("merge_across_nodes", "node_ksmd_merge_across_nodes",
        "ksmd 'merge_across_nodes' file.", &[]),
    Row::gauge("pages_shared", "node_ksmd_pages_shared", "ksmd 'pages_shared' file.", &[]),
    Row::gauge("pages_sharing", "node_ksmd_pages_sharing", "ksmd 'pages_sharing' file.", &[]),
    Row::gauge("pages_to_scan", "node_ksmd_pages_to_scan", "ksmd 'pages_to_scan' file.", &[]),
    Row::gauge("pages_unshared", "node_ksmd_pages_unshared", "ksmd 'pages_unshared' file.", &[]),
    Row::gauge("pages_volatile", "node_ksmd_pages_volatile", "ksmd 'pages_volatile' file.", &[]),
    Row::gauge("run", "node_ksmd_run", "ksmd 'run' file.", &[]),
    Row::gauge("sleep_millisecs", "node_ksmd_sleep_seconds",
        "ksmd 'sleep_millisecs' file.", &[]).of(1e-3),
];
const METRICS: &[Metric] = metrics_of!([], FILES);

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Ksmd {
        directory: paths.sysfs.join("kernel/mm/ksm"),
    })
}

impl Collector for Ksmd {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        push_files::<&str>(&self.directory, FILES, &[], out);
        if out.is_empty() {
            Err(CollectError::Absent("no shared pages in this kernel"))
        } else {
            Ok(())
        }
    }
}
