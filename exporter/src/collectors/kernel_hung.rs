//! Number of tasks that the kernel has found hung since boot.
//!
//! Source: `/proc/sys/kernel/hung_task_detect_count`, since Linux 6.13. The collector `events`
//! reports each hung task when the kernel logs it.

use crate::collector::{CollectError, Collector, OrAbsent, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

struct KernelHung {
    count: KernelFile,
}

const DETECTED: Metric = Metric::counter(
    "node_kernel_hung_tasks_total",
    "Total number of tasks that have been detected as hung since the system booted.",
    &[],
);

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(KernelHung {
        count: KernelFile::new(paths.procfs.join("sys/kernel/hung_task_detect_count")),
    })
}

impl Collector for KernelHung {
    fn metrics(&self) -> &'static [Metric] {
        &[DETECTED]
    }

    fn max_series(&self) -> usize {
        1
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let error = ParseError {
            line: 1,
            expected: "a number",
        };

        let count = self
            .count
            .parse(|text| text.trim().parse::<u64>().map_err(|_| error));
        let count = count.or_absent("the kernel does not count hung tasks");
        out.push::<&str>(&DETECTED, &[], count? as f64);
        Ok(())
    }
}
