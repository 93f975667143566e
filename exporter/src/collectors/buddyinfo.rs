//! Free memory by the size of its blocks: how fragmented it is.
//!
//! Source: `/proc/buddyinfo`. A block of size `n` has 2ⁿ pages.

use crate::collector::{CollectError, Collector, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

struct Buddyinfo {
    buddyinfo: KernelFile,
}

const BLOCKS: Metric = Metric::gauge(
    "node_buddyinfo_blocks",
    "Count of free blocks according to size.",
    &["node", "zone", "size"],
);

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Buddyinfo {
        buddyinfo: KernelFile::new(paths.procfs.join("buddyinfo")),
    })
}

impl Collector for Buddyinfo {
    fn metrics(&self) -> &'static [Metric] {
        &[BLOCKS]
    }

    fn max_series(&self) -> usize {
        16_384
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        self.buddyinfo.parse(|text| {
            for (number, line) in text.lines().enumerate() {
                let error = ParseError {
                    line: number + 1,
                    expected: "a zone and its free blocks",
                };
                let (node, zone, counts) = parse(line).ok_or(error)?;
                for (size, count) in counts.into_iter().enumerate() {
                    out.push(&BLOCKS, &[node, zone, &size.to_string()], count);
                }
            }
            Ok(())
        })
    }
}

/// `Node 0, zone   Normal   4381   1093    185`
fn parse(line: &str) -> Option<(&str, &str, Vec<f64>)> {
    let (node, rest) = line.strip_prefix("Node ")?.split_once(", zone ")?;
    let mut words = rest.split_ascii_whitespace();
    let zone = words.next()?;
    let counts = words.map(|count| count.parse().ok());
    Some((node.trim_ascii(), zone, counts.collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones() {
        assert_eq!(
            parse("Node 0, zone   Normal   43 10  1 "),
            Some(("0", "Normal", vec![43.0, 10.0, 1.0]))
        );
        assert_eq!(
            (
                parse("Node 0, zone"),
                parse("Node 0, zone DMA few"),
                parse("")
            ),
            (None, None, None)
        );
    }
}
