//! The firewall's table of connections: how full it is, and what did not fit.
//!
//! Sources: `/proc/sys/net/netfilter/nf_conntrack_{count,max}`, and `/proc/net/stat/nf_conntrack`,
//! a line for each CPU.

use crate::collector::{CollectError, Collector, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

struct Conntrack {
    count: KernelFile,
    max: KernelFile,
    stat: KernelFile,
}

const ENTRIES: Metric = Metric::gauge(
    "node_nf_conntrack_entries",
    "Number of currently allocated flow entries for connection tracking.",
    &[],
);
const LIMIT: Metric = Metric::gauge(
    "node_nf_conntrack_entries_limit",
    "Maximum size of connection tracking table.",
    &[],
);

macro_rules! stats {
    ($($column:literal $help:literal,)*) => {
        /// The columns of [`STATS`]. node_exporter calls these counters gauges, and so do we.
        const COLUMNS: &[&str] = &[$($column),*];
        const METRICS: &[Metric] =
            &[ENTRIES, LIMIT, $(Metric::gauge(concat!("node_nf_conntrack_stat_", $column), $help, &[])),*];
    };
}

stats! {
    "found" "Number of searched entries which were successful.",
    "invalid" "Number of packets seen which can not be tracked.",
    "ignore" "Number of packets seen which are already connected to a conntrack entry.",
    "insert" "Number of entries inserted into the list.",
    "insert_failed" "Number of entries for which list insertion was attempted but failed.",
    "drop" "Number of packets dropped due to conntrack failure.",
    "early_drop"
        "Number of dropped conntrack entries to make room for new ones, if maximum table size was \
         reached.",
    "search_restart"
        "Number of conntrack table lookups which had to be restarted due to hashtable resizes.",
}
/// The metrics of [`COLUMNS`].
const STATS: &[Metric] = METRICS.split_at(2).1;

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    let procfs = &paths.procfs;
    Box::new(Conntrack {
        count: KernelFile::new(procfs.join("sys/net/netfilter/nf_conntrack_count")),
        max: KernelFile::new(procfs.join("sys/net/netfilter/nf_conntrack_max")),
        stat: KernelFile::new(procfs.join("net/stat/nf_conntrack")),
    })
}

impl Collector for Conntrack {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let absent = |error: CollectError| error.or_absent("no connection tracking");
        let entries = self.count.parse(parse_number).map_err(absent)?;
        out.push::<&str>(&ENTRIES, &[], entries);
        let limit = self.max.parse(parse_number).map_err(absent)?;
        out.push::<&str>(&LIMIT, &[], limit);

        let sums = self.stat.parse(parse_stat).map_err(absent)?;
        for (metric, sum) in STATS.iter().zip(sums) {
            if let Some(sum) = sum {
                out.push::<&str>(metric, &[], sum as f64);
            }
        }
        Ok(())
    }
}

fn parse_number(text: &str) -> Result<f64, ParseError> {
    let number = text.trim_ascii().parse::<u64>();
    let number = number.map_err(|_| ParseError {
        line: 1,
        expected: "a number",
    })?;
    Ok(number as f64)
}

/// A line of names, then hexadecimal numbers for each CPU; the sums over the CPUs. The names moved
/// between kernels.
fn parse_stat(text: &str) -> Result<Vec<Option<u64>>, ParseError> {
    let mut lines = text.lines().enumerate();
    let (_, heading) = lines.next().unwrap_or_default();
    let heading: Vec<_> = heading.split_ascii_whitespace().collect();
    let place_of = |column: &&str| heading.iter().position(|name| name == column);
    let places: Vec<_> = COLUMNS.iter().map(place_of).collect();

    // A column that this kernel lacks has no sum.
    let mut sums: Vec<_> = places.iter().map(|place| place.map(|_| 0_u64)).collect();
    for (number, line) in lines {
        let words = line.split_ascii_whitespace();
        let numbers = words.map(|word| u32::from_str_radix(word, 16).ok());
        let numbers = numbers.collect::<Option<Vec<_>>>();
        let numbers = numbers.filter(|numbers| numbers.len() == heading.len());
        let numbers = numbers.ok_or(ParseError {
            line: number + 1,
            expected: "a hexadecimal number for each name",
        })?;

        for (sum, place) in sums.iter_mut().zip(&places) {
            if let (Some(sum), Some(place)) = (sum, place) {
                *sum += u64::from(numbers[*place]);
            }
        }
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_over_cpus() {
        let text = "entries  found invalid insert drop\n0000000a 00000001 000000ff 0 \
             ffffffff\n0000000a 1 1 0 1\n";
        let none = None;
        assert_eq!(
            parse_stat(text),
            Ok(vec![
                Some(2),
                Some(0x100),
                none,
                Some(0),
                none,
                Some(0x1_0000_0000),
                none,
                none
            ])
        );
        assert_eq!(parse_stat(""), Ok(vec![None; COLUMNS.len()]));
    }

    #[test]
    fn wrong_lines_are_named() {
        for line in ["1", "1 x", "1 2 3", ""] {
            assert_eq!(
                parse_stat(&format!("entries found\n1 2\n{line}\n"))
                    .unwrap_err()
                    .line,
                3,
                "{line:?}"
            );
        }
        assert!(parse_number("many").is_err());
    }
}
