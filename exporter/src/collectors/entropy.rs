//! The kernel's pool of randomness.
//!
//! Source: `/proc/sys/kernel/random`. Since Linux 5.18 both values are 256 as soon as the pool has
//! been filled once.

use crate::collector::{CollectError, Collector, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

struct Entropy {
    available: KernelFile,
    size: KernelFile,
}

const AVAILABLE: Metric = Metric::gauge(
    "node_entropy_available_bits",
    "Bits of available entropy.",
    &[],
);
const SIZE: Metric = Metric::gauge("node_entropy_pool_size_bits", "Bits of entropy pool.", &[]);
const METRICS: &[Metric] = &[AVAILABLE, SIZE];

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    let random = paths.procfs.join("sys/kernel/random");
    Box::new(Entropy {
        available: KernelFile::new(random.join("entropy_avail")),
        size: KernelFile::new(random.join("poolsize")),
    })
}

impl Collector for Entropy {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        out.push::<&str>(&AVAILABLE, &[], self.available.parse(parse)?);
        out.push::<&str>(&SIZE, &[], self.size.parse(parse)?);
        Ok(())
    }
}

fn parse(text: &str) -> Result<f64, ParseError> {
    let bits = text.trim_ascii().parse::<u64>();
    bits.map(|bits| bits as f64).map_err(|_| ParseError {
        line: 1,
        expected: "a number of bits",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits() {
        assert_eq!(parse("256\n"), Ok(256.0));
        assert!(parse("").is_err());
        assert!(parse("-1\n").is_err());
    }
}
