//! Counters of the kernel since boot: interrupts, context switches, forks; and how many tasks run
//! or wait.
//!
//! Source: `/proc/stat`. Its CPU lines are the collector `cpu`'s.

use crate::collector::{CollectError, Collector, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

/// Flags of the collector `stat`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct StatOptions {
    /// Also count software interrupts by kind.
    #[arg(long = "collector.stat.softirq")]
    pub softirq: bool,
}

struct Stat {
    stat: KernelFile,
    softirq: bool,
}

const INTR: Metric = Metric::counter(
    "node_intr_total",
    "Total number of interrupts serviced.",
    &[],
);
const CTXT: Metric = Metric::counter(
    "node_context_switches_total",
    "Total number of context switches.",
    &[],
);
const FORKS: Metric = Metric::counter("node_forks_total", "Total number of forks.", &[]);
const BTIME: Metric = Metric::gauge(
    "node_boot_time_seconds",
    "Node boot time, in unixtime.",
    &[],
);
const RUNNING: Metric = Metric::gauge(
    "node_procs_running",
    "Number of processes in runnable state.",
    &[],
);
const BLOCKED: Metric = Metric::gauge(
    "node_procs_blocked",
    "Number of processes blocked waiting for I/O to complete.",
    &[],
);
const SOFTIRQS: Metric = Metric::counter(
    "node_softirqs_total",
    "Number of softirq calls.",
    &["vector"],
);
const METRICS: &[Metric] = &[INTR, CTXT, FORKS, BTIME, RUNNING, BLOCKED, SOFTIRQS];

/// The kinds of software interrupt, in the kernel's order.
const VECTORS: [&str; 10] = [
    "hi",
    "timer",
    "net_tx",
    "net_rx",
    "block",
    "block_iopoll",
    "tasklet",
    "sched",
    "hrtimer",
    "rcu",
];

pub(crate) fn new(paths: &Paths, options: &StatOptions) -> Box<dyn Collector> {
    Box::new(Stat {
        stat: KernelFile::new(paths.procfs.join("stat")),
        softirq: options.softirq,
    })
}

impl Collector for Stat {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        METRICS.len() + VECTORS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        self.stat.parse(|text| {
            for line in parse(text) {
                match line? {
                    Line::Value(metric, value) => out.push::<&str>(metric, &[], value),
                    Line::Softirqs(counts) if self.softirq => {
                        for (vector, count) in VECTORS.iter().zip(counts) {
                            out.push(&SOFTIRQS, &[vector], count);
                        }
                    }
                    Line::Softirqs(_) => {}
                }
            }
            Ok(())
        })
    }
}

#[derive(Debug, PartialEq)]
enum Line {
    Value(&'static Metric, f64),
    Softirqs([f64; 10]),
}

fn parse(text: &str) -> impl Iterator<Item = Result<Line, ParseError>> {
    text.lines().enumerate().filter_map(|(number, line)| {
        let (key, rest) = line.split_once(' ')?;
        let metric = match key {
            "intr" => &INTR,
            "ctxt" => &CTXT,
            "processes" => &FORKS,
            "btime" => &BTIME,
            "procs_running" => &RUNNING,
            "procs_blocked" => &BLOCKED,
            "softirq" => {
                return Some(softirqs(rest).ok_or(ParseError {
                    line: number + 1,
                    expected: "11 counts",
                }));
            }
            _ => return None,
        };

        // The first number of `intr` is the sum; one for each interrupt follows.
        let value = rest.split_ascii_whitespace().next();
        let value = value.and_then(|value| value.parse().ok());
        let value = value.map(|value| Line::Value(metric, value));

        Some(value.ok_or(ParseError {
            line: number + 1,
            expected: "a number",
        }))
    })
}

/// The sum, then a count for each vector.
fn softirqs(counts: &str) -> Option<Line> {
    let counts = counts.split_ascii_whitespace().skip(1);
    let mut counts = counts.map(|count| count.parse().ok());

    let mut values = [0.0; VECTORS.len()];
    for value in &mut values {
        *value = counts.next()??;
    }
    Some(Line::Softirqs(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_vectors() {
        let text = "cpu 1 2 3\nintr 681573 0 0 5\nctxt 862882\nsoftirq 55 1 2 3 4 5 6 7 8 9 \
             10\nfuture 1\n";
        let lines: Vec<_> = parse(text).collect::<Result<_, _>>().unwrap();
        assert_eq!(
            lines[..2],
            [Line::Value(&INTR, 681_573.0), Line::Value(&CTXT, 862_882.0)]
        );
        assert_eq!(
            lines[2],
            Line::Softirqs([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0])
        );
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn wrong_lines_are_named() {
        for text in ["ctxt many\n", "ctxt \n", "softirq 1 2 3\n"] {
            assert_eq!(parse(text).next().unwrap().unwrap_err().line, 1, "{text:?}");
        }
    }
}
