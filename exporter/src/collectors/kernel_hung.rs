//! Tasks that the kernel found hung, also while nobody followed its log.
//!
//! Source: `/proc/sys/kernel/hung_task_detect_count`, which newer kernels have. Each is told at once by the collector
//! `events`.

use crate::collector::{CollectError, Collector, ParseError};
use crate::file::File;
use crate::options::Options;
use takt_model::{Metric, Samples};

struct KernelHung {
    count: File,
}

const DETECTED: Metric = Metric::counter(
    "node_kernel_hung_task_detect_count",
    "Total number of tasks that have been detected as hung since the system booted",
    &[],
);

pub(crate) fn new(options: &Options) -> Box<dyn Collector> {
    Box::new(KernelHung {
        count: File::new(
            options
                .paths
                .procfs
                .join("sys/kernel/hung_task_detect_count"),
        ),
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
