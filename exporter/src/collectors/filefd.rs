//! Open files of the whole node, and how many there can be.
//!
//! Source: `/proc/sys/fs/file-nr`.

use crate::collector::{CollectError, Collector, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

struct Filefd {
    file_nr: KernelFile,
}

const ALLOCATED: Metric = Metric::gauge(
    "node_filefd_allocated",
    "File descriptor statistics: allocated.",
    &[],
);
const MAXIMUM: Metric = Metric::gauge(
    "node_filefd_maximum",
    "File descriptor statistics: maximum.",
    &[],
);
const METRICS: &[Metric] = &[ALLOCATED, MAXIMUM];

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Filefd {
        file_nr: KernelFile::new(paths.procfs.join("sys/fs/file-nr")),
    })
}

impl Collector for Filefd {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        for (metric, value) in METRICS.iter().zip(self.file_nr.parse(parse)?) {
            out.push::<&str>(metric, &[], value);
        }
        Ok(())
    }
}

/// Allocated, allocated but unused (0 since Linux 2.6), maximum.
fn parse(text: &str) -> Result<[f64; 2], ParseError> {
    let counts = text.split_ascii_whitespace();
    let mut counts = counts.map(|count| count.parse::<u64>().ok());
    let mut next = || {
        counts.next().flatten().ok_or(ParseError {
            line: 1,
            expected: "three counts",
        })
    };

    let allocated = next()?;
    let _ = next()?;
    let maximum = next()?;
    Ok([allocated as f64, maximum as f64])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        assert_eq!(parse("1024\t0\t1631329\n"), Ok([1024.0, 1_631_329.0]));
        assert_eq!(
            parse("1 0 9223372036854775807"),
            Ok([1.0, 9_223_372_036_854_775_807.0])
        );
        assert!(parse("").is_err());
        assert!(parse("1024 0").is_err());
        assert!(parse("1024 0 many").is_err());
    }
}
