//! The kernel's own memory, by kind of object.
//!
//! Source: `/proc/slabinfo`, which only root may read.

use crate::collector::{CollectError, Collector, ParseError};
use crate::file::KernelFile;
use crate::filter::{NameFilter, NamePattern};
use crate::paths::Paths;
use takt_model::{Metric, Samples};

/// Flags of the collector `slabinfo`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct SlabinfoOptions {
    /// Slabs to include.
    #[arg(
        long = "collector.slabinfo.slabs-include",
        value_name = "REGEXP",
        default_value = ".*"
    )]
    pub slabs_include: NamePattern,
    /// Slabs to leave out of these.
    #[arg(
        long = "collector.slabinfo.slabs-exclude",
        value_name = "REGEXP",
        default_value = ""
    )]
    pub slabs_exclude: NamePattern,
}

struct Slabinfo {
    slabinfo: KernelFile,
    include: NameFilter,
    exclude: NameFilter,
}

const SLAB: &[&str] = &["slab"];
/// In the order of the columns.
const METRICS: &[Metric] = &[
    Metric::gauge(
        "node_slabinfo_active_objects",
        "The number of objects that are currently active (i.e., in use).",
        SLAB,
    ),
    Metric::gauge(
        "node_slabinfo_objects",
        "The total number of allocated objects (i.e., objects that are both in use and not in \
         use).",
        SLAB,
    ),
    Metric::gauge(
        "node_slabinfo_object_size_bytes",
        "The size of objects in this slab, in bytes.",
        SLAB,
    ),
    Metric::gauge(
        "node_slabinfo_objects_per_slab",
        "The number of objects stored in each slab.",
        SLAB,
    ),
    Metric::gauge(
        "node_slabinfo_pages_per_slab",
        "The number of pages allocated for each slab.",
        SLAB,
    ),
];

pub(crate) fn new(paths: &Paths, options: &SlabinfoOptions) -> Box<dyn Collector> {
    let SlabinfoOptions {
        slabs_include,
        slabs_exclude,
    } = options.clone();
    Box::new(Slabinfo {
        slabinfo: KernelFile::new(paths.procfs.join("slabinfo")),
        include: NameFilter::including(slabs_include),
        exclude: NameFilter::excluding(slabs_exclude),
    })
}

impl Collector for Slabinfo {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        4096 * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        self.slabinfo.parse(|text| {
            let is_head = |line: &str| line.starts_with("slabinfo") || line.starts_with('#');
            for (number, line) in text.lines().enumerate() {
                if is_head(line) {
                    continue;
                }

                let (name, numbers) = parse(line).ok_or(ParseError {
                    line: number + 1,
                    expected: "a slab and its five numbers",
                })?;
                if self.include.passes(name) && self.exclude.passes(name) {
                    for (metric, number) in METRICS.iter().zip(numbers) {
                        out.push(metric, &[name], number);
                    }
                }
            }
            Ok(())
        })
    }
}

fn parse(line: &str) -> Option<(&str, [f64; 5])> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next()?;

    let mut numbers = [0.0; 5];
    for number in &mut numbers {
        *number = words.next()?.parse().ok()?;
    }

    Some((name, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs() {
        let line = "tcp_bind_bucket     32     64    128   31    2 : tunables    0    0    0 : \
             slabdata  1 1 0";
        assert_eq!(
            parse(line),
            Some(("tcp_bind_bucket", [32.0, 64.0, 128.0, 31.0, 2.0]))
        );
        assert_eq!(parse("few 1 2 3"), None);
    }
}
