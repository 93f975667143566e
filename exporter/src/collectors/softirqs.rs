//! Work that interrupts put off, by CPU and kind.
//!
//! Source: `/proc/softirqs`.

use crate::collector::{CollectError, Collector, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

struct Softirqs {
    softirqs: KernelFile,
}

const FUNCTIONS: Metric = Metric::counter(
    "node_softirqs_functions_total",
    "Softirq counts per CPU.",
    &["cpu", "type"],
);

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Softirqs {
        softirqs: KernelFile::new(paths.procfs.join("softirqs")),
    })
}

impl Collector for Softirqs {
    fn metrics(&self) -> &'static [Metric] {
        &[FUNCTIONS]
    }

    fn max_series(&self) -> usize {
        65_536
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        self.softirqs.parse(|text| {
            for (number, line) in text.lines().enumerate().skip(1) {
                let error = ParseError {
                    line: number + 1,
                    expected: "a kind and a count for each CPU",
                };

                let (kind, counts) = line.split_once(':').ok_or(error)?;
                for (cpu, count) in counts.split_ascii_whitespace().enumerate() {
                    let count = count.parse().map_err(|_| error)?;
                    let cpu = cpu.to_string();
                    let labels = [cpu.as_str(), kind.trim_ascii()];
                    out.push(&FUNCTIONS, &labels, count);
                }
            }
            Ok(())
        })
    }
}
