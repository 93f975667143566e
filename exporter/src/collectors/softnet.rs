//! Packets as the CPUs took them from the network cards' queues.
//!
//! Source: `/proc/net/softnet_stat`: a line for each CPU that is online, of hexadecimal numbers.
//! Old kernels have fewer of them; the missing ones are 0, as in node_exporter.

use crate::collector::{CollectError, Collector, MAX_DEVICES, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

struct Softnet {
    softnet_stat: KernelFile,
}

const PROCESSED: Metric = Metric::counter(
    "node_softnet_processed_total",
    "Number of processed packets",
    &["cpu"],
);
const DROPPED: Metric = Metric::counter(
    "node_softnet_dropped_total",
    "Number of dropped packets",
    &["cpu"],
);
const SQUEEZED: Metric = Metric::counter(
    "node_softnet_times_squeezed_total",
    "Number of times processing packets ran out of quota",
    &["cpu"],
);
const COLLISION: Metric = Metric::counter(
    "node_softnet_cpu_collision_total",
    "Number of collision occur while obtaining device lock while transmitting",
    &["cpu"],
);
const RPS: Metric = Metric::counter(
    "node_softnet_received_rps_total",
    "Number of times cpu woken up received_rps",
    &["cpu"],
);
const FLOW_LIMIT: Metric = Metric::counter(
    "node_softnet_flow_limit_count_total",
    "Number of times flow limit has been reached",
    &["cpu"],
);
const BACKLOG: Metric = Metric::gauge(
    "node_softnet_backlog_len",
    "Softnet backlog status",
    &["cpu"],
);
const METRICS: &[Metric] = &[
    PROCESSED, DROPPED, SQUEEZED, COLLISION, RPS, FLOW_LIMIT, BACKLOG,
];

/// Where [`METRICS`] stand. 3 to 7 are zeros, kept for those who count columns.
const COLUMNS: [usize; METRICS.len()] = [0, 1, 2, 8, 9, 10, 11];
/// Which CPU the line is about; where it is missing, the lines are counted.
const CPU_COLUMN: usize = 12;
/// The columns of the oldest kernel that there may be.
const FEWEST_COLUMNS: usize = 9;

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Softnet {
        softnet_stat: KernelFile::new(paths.procfs.join("net/softnet_stat")),
    })
}

impl Collector for Softnet {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        self.softnet_stat.parse(|text| {
            for line in parse(text) {
                let line = line?;
                let cpu = line.cpu.to_string();
                for (metric, value) in METRICS.iter().zip(line.values) {
                    out.push(metric, &[&cpu], value);
                }
            }
            Ok(())
        })
    }
}

#[derive(Debug, PartialEq)]
struct Line {
    cpu: u32,
    values: [f64; METRICS.len()],
}

fn parse(text: &str) -> impl Iterator<Item = Result<Line, ParseError>> {
    text.lines().enumerate().map(|(number, line)| {
        let words = line.split_ascii_whitespace();
        let columns = words.map(|word| u32::from_str_radix(word, 16).ok());
        let columns: Option<Vec<_>> = columns.collect();
        let columns = columns.filter(|columns| columns.len() >= FEWEST_COLUMNS);
        let columns = columns.ok_or(ParseError {
            line: number + 1,
            expected: "nine or more hexadecimal numbers",
        })?;

        // The backlog came in the same kernel as the CPU.
        let cpu = columns.get(CPU_COLUMN).copied().unwrap_or(number as u32);
        Ok(Line {
            cpu,
            values: COLUMNS.map(|at| columns.get(at).copied().map_or(0.0, f64::from)),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_is_offline_has_no_line() {
        let text = "0000000f 1 2 0 0 0 0 0 3 4 5 6 0 0 0\n00000010 1 2 0 0 0 0 0 3 4 5 6 2 0 0\n";
        let lines: Vec<_> = parse(text).collect::<Result<_, _>>().unwrap();
        assert_eq!(
            lines.iter().map(|line| line.cpu).collect::<Vec<_>>(),
            [0, 2]
        );
        assert_eq!(lines[0].values, [15.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn old_kernels_have_fewer_columns() {
        let lines: Vec<_> = parse("1 0 0 0 0 0 0 0 7\n2 0 0 0 0 0 0 0 7\n")
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(
            lines[1],
            Line {
                cpu: 1,
                values: [2.0, 0.0, 0.0, 7.0, 0.0, 0.0, 0.0]
            }
        );
    }

    #[test]
    fn wrong_lines_are_named() {
        for text in [
            "1 2 3",
            "x 0 0 0 0 0 0 0 0",
            "100000000 0 0 0 0 0 0 0 0",
            "\n",
        ] {
            assert_eq!(parse(text).next().unwrap().unwrap_err().line, 1, "{text:?}");
        }
    }
}
