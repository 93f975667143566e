//! Number of tasks that the kernel has found hung since boot.
//!
//! Source: `/proc/sys/kernel/hung_task_detect_count`, since Linux 6.13. The collector `events`
//! reports each hung task when the kernel logs it.

use crate::collector::{CollectError, Collector, ParseError};
use crate::file::File;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

struct KernelHung {
    count: File,
}

const DETECTED: Metric = Metric::counter(
    "node_kernel_hung_tasks_total",
    "Total number of tasks that have been detected as hung since the system booted.",
    &[],
);

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(KernelHung {
        count: File::new(paths.procfs.join("sys/kernel/hung_task_detect_count")),
    })
}

impl Collector for KernelHung {
    fn name(&self) -> &'static str {
        "kernel_hung"
    }

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
        out.push::<&str>(
            &DETECTED,
            &[],
            count.map_err(|error| error.or_absent("the kernel does not count hung tasks"))? as f64,
        );
        Ok(())
    }
}
