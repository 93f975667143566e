//! Pressure stall information: for how long tasks waited for CPU, memory or I/O that others had.
//!
//! Source: `/proc/pressure/*`, since Linux 4.20 where `psi=0` does not turn it off. The kernel
//! counts microseconds; we publish seconds. "Waiting" is the time in which some task waited,
//! "stalled" that in which none could go on.

use crate::collector::{CollectError, Collector, OrAbsent, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

struct Pressure {
    resources: [KernelFile; RESOURCES.len()],
}

struct Resource {
    file: &'static str,
    waiting: Option<Metric>,
    stalled: Option<Metric>,
}

const CPU_WAITING: Metric = Metric::counter(
    "node_pressure_cpu_waiting_seconds_total",
    "Total time in seconds that processes have waited for CPU time",
    &[],
);
const IO_WAITING: Metric = Metric::counter(
    "node_pressure_io_waiting_seconds_total",
    "Total time in seconds that processes have waited due to IO congestion",
    &[],
);
const IO_STALLED: Metric = Metric::counter(
    "node_pressure_io_stalled_seconds_total",
    "Total time in seconds no process could make progress due to IO congestion",
    &[],
);
const MEMORY_WAITING: Metric = Metric::counter(
    "node_pressure_memory_waiting_seconds_total",
    "Total time in seconds that processes have waited for memory",
    &[],
);
const MEMORY_STALLED: Metric = Metric::counter(
    "node_pressure_memory_stalled_seconds_total",
    "Total time in seconds no process could make progress due to memory congestion",
    &[],
);
const IRQ_STALLED: Metric = Metric::counter(
    "node_pressure_irq_stalled_seconds_total",
    "Total time in seconds no process could make progress due to IRQ congestion",
    &[],
);
const METRICS: &[Metric] = &[
    CPU_WAITING,
    IO_WAITING,
    IO_STALLED,
    MEMORY_WAITING,
    MEMORY_STALLED,
    IRQ_STALLED,
];

/// All tasks of a node cannot wait for its CPUs at once, and of interrupts the kernel reports only
/// the stalls.
const RESOURCES: [Resource; 4] = [
    Resource {
        file: "cpu",
        waiting: Some(CPU_WAITING),
        stalled: None,
    },
    Resource {
        file: "io",
        waiting: Some(IO_WAITING),
        stalled: Some(IO_STALLED),
    },
    Resource {
        file: "memory",
        waiting: Some(MEMORY_WAITING),
        stalled: Some(MEMORY_STALLED),
    },
    Resource {
        file: IRQ,
        waiting: None,
        stalled: Some(IRQ_STALLED),
    },
];
/// Only where the kernel accounts for the time of interrupts.
const IRQ: &str = "irq";

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    let pressure = paths.procfs.join("pressure");
    Box::new(Pressure {
        resources: RESOURCES.map(|resource| KernelFile::new(pressure.join(resource.file))),
    })
}

impl Collector for Pressure {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        for (resource, file) in RESOURCES.iter().zip(&mut self.resources) {
            let stalls = file.parse(parse);
            let stalls = match stalls.or_absent("no pressure stall information") {
                Err(CollectError::Absent(_)) if resource.file == IRQ => continue,
                other => other?,
            };

            let pairs = [
                (&resource.waiting, stalls.some),
                (&resource.stalled, stalls.full),
            ];
            for (metric, micros) in pairs {
                if let (Some(metric), Some(micros)) = (metric, micros) {
                    // In two steps, so that the last digit is node_exporter's.
                    out.push::<&str>(metric, &[], micros as f64 / 1e3 / 1e3);
                }
            }
        }
        Ok(())
    }
}

/// Microseconds since the node started. Old kernels have no `full` for the CPU.
#[derive(Debug, PartialEq, Default)]
struct Stalls {
    some: Option<u64>,
    full: Option<u64>,
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=123`, and the same with `full`.
fn parse(text: &str) -> Result<Stalls, ParseError> {
    let mut stalls = Stalls::default();
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split_ascii_whitespace();
        let share = match words.next() {
            Some("some") => &mut stalls.some,
            Some("full") => &mut stalls.full,
            _ => continue,
        };

        let total = words.find_map(|word| word.strip_prefix("total="));
        let total = total.and_then(|total| total.parse().ok());
        *share = Some(total.ok_or(ParseError {
            line: number + 1,
            expected: "total= and microseconds",
        })?);
    }
    Ok(stalls)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: &str = "some avg10=0.00 avg60=1.50 avg300=0.12 total=123456\n";

    #[test]
    fn totals() {
        let text = format!("{SOME}full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n");
        assert_eq!(
            parse(&text),
            Ok(Stalls {
                some: Some(123_456),
                full: Some(7)
            })
        );
        assert_eq!(
            parse(SOME),
            Ok(Stalls {
                some: Some(123_456),
                full: None
            })
        );
        assert_eq!(parse(""), Ok(Stalls::default()));
    }

    #[test]
    fn wrong_lines_are_named() {
        for line in [
            "full avg10=0.00",
            "full total=",
            "full total=-1",
            "full total=many",
        ] {
            assert_eq!(
                parse(&format!("{SOME}{line}\n")).unwrap_err().line,
                2,
                "{line}"
            );
        }
    }
}
