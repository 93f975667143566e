//! Swap, device by device.
//!
//! Source: `/proc/swaps`. The kernel counts kilobytes; we publish bytes.

use crate::collector::{CollectError, Collector, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

struct Swap {
    swaps: KernelFile,
}

const DEVICE: &[&str] = &["device", "swap_type"];
const SIZE: Metric = Metric::gauge("node_swap_size_bytes", "Swap device size in bytes.", DEVICE);
const USED: Metric = Metric::gauge("node_swap_used_bytes", "Swap device used in bytes.", DEVICE);
const PRIORITY: Metric = Metric::gauge("node_swap_priority", "Swap device priority.", DEVICE);

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Swap {
        swaps: KernelFile::new(paths.procfs.join("swaps")),
    })
}

impl Collector for Swap {
    fn metrics(&self) -> &'static [Metric] {
        &[SIZE, USED, PRIORITY]
    }

    fn max_series(&self) -> usize {
        128 * 3
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        self.swaps.parse(|text| {
            for (number, line) in text.lines().enumerate().skip(1) {
                let (labels, [size, used, priority]) = parse(line).ok_or(ParseError {
                    line: number + 1,
                    expected: "a device, its kind and three numbers",
                })?;
                out.push(&SIZE, &labels, size);
                out.push(&USED, &labels, used);
                out.push(&PRIORITY, &labels, priority);
            }
            Ok(())
        })
    }
}

fn parse(line: &str) -> Option<([&str; 2], [f64; 3])> {
    let bytes = |kilobytes: &str| Some(kilobytes.parse::<u64>().ok()? as f64 * 1024.0);

    let words: Vec<_> = line.split_ascii_whitespace().collect();
    let [device, kind, size, used, priority] = words[..] else {
        return None;
    };
    let values = [bytes(size)?, bytes(used)?, priority.parse().ok()?];
    Some(([device, kind], values))
}
