//! Interrupts by CPU and source.
//!
//! Source: `/proc/interrupts`, a column for each CPU and then what the interrupt is.

use crate::collector::{CollectError, Collector, ParseError};
use crate::file::KernelFile;
use crate::filter::{NameFilter, NamePattern};
use crate::paths::Paths;
use takt_model::{Metric, Samples};

/// Flags of the collector `interrupts`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct InterruptsOptions {
    /// Interrupts to include, as NAME;INFO;DEVICES.
    #[arg(
        long = "collector.interrupts.name-include",
        value_name = "REGEXP",
        conflicts_with = "interrupts-exclude"
    )]
    pub name_include: Option<NamePattern>,
    /// Interrupts to leave out.
    #[arg(
        id = "interrupts-exclude",
        long = "collector.interrupts.name-exclude",
        value_name = "REGEXP",
        default_value = ""
    )]
    pub name_exclude: NamePattern,
    /// Leave out interrupts that have not happened on a CPU.
    #[arg(
        long = "no-collector.interrupts.include-zeros",
        overrides_with = "include_zeros"
    )]
    pub no_zeros: bool,
    /// Include interrupts that have not happened on a CPU (default).
    #[arg(
        long = "collector.interrupts.include-zeros",
        hide_short_help = true,
        overrides_with = "no_zeros"
    )]
    pub include_zeros: bool,
}

struct Interrupts {
    interrupts: KernelFile,
    filter: NameFilter,
    zeros: bool,
}

const TOTAL: Metric = Metric::counter(
    "node_interrupts_total",
    "Interrupt details.",
    &["cpu", "type", "info", "devices"],
);

pub(crate) fn new(paths: &Paths, options: &InterruptsOptions) -> Box<dyn Collector> {
    let InterruptsOptions {
        name_include,
        name_exclude,
        no_zeros,
        ..
    } = options.clone();
    Box::new(Interrupts {
        interrupts: KernelFile::new(paths.procfs.join("interrupts")),
        filter: NameFilter::new(name_include, name_exclude),
        zeros: !no_zeros,
    })
}

impl Collector for Interrupts {
    fn metrics(&self) -> &'static [Metric] {
        &[TOTAL]
    }

    fn max_series(&self) -> usize {
        // A server of 512 CPUs has some hundred sources.
        500_000
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        self.interrupts.parse(|text| {
            for interrupt in parse(text)? {
                let Interrupt {
                    name,
                    counts,
                    info,
                    devices,
                } = interrupt;
                if !self.filter.passes(&format!("{name};{info};{devices}")) {
                    continue;
                }

                for (cpu, count) in counts.iter().enumerate() {
                    if self.zeros || *count != 0.0 {
                        let cpu = cpu.to_string();
                        let labels = [cpu.as_str(), name, &info, &devices];
                        out.push(&TOTAL, &labels, *count);
                    }
                }
            }
            Ok(())
        })
    }
}

#[derive(Debug, PartialEq)]
struct Interrupt<'a> {
    name: &'a str,
    counts: Vec<f64>,
    info: String,
    devices: String,
}

fn parse(text: &str) -> Result<Vec<Interrupt<'_>>, ParseError> {
    let mut lines = text.lines().enumerate();
    let (_, heading) = lines.next().unwrap_or_default();
    let cpus = heading.split_ascii_whitespace().count();

    let interrupts = lines.filter_map(|(number, line)| {
        let interrupt = parse_line(line, cpus)?;
        Some(interrupt.ok_or(ParseError {
            line: number + 1,
            expected: "a count for each CPU",
        }))
    });
    interrupts.collect()
}

/// ERR and MIS, which have one number for all CPUs, give nothing; a count that is no number gives
/// `Some(None)`.
fn parse_line(line: &str, cpus: usize) -> Option<Option<Interrupt<'_>>> {
    let (name, rest) = line.split_once(':')?;
    let words: Vec<_> = rest.split_ascii_whitespace().collect();
    let (counts, details) = words.split_at_checked(cpus)?;
    if details.is_empty() {
        return None;
    }

    let name = name.trim_ascii();
    // `IO-APIC 2-edge timer`: the first word is the controller, but named interrupts have only a
    // text.
    let of_info = if name.parse::<u64>().is_ok() {
        1
    } else {
        details.len()
    };

    let (info, devices) = details.split_at(of_info);

    let counts: Option<_> = counts.iter().map(|count| count.parse().ok()).collect();
    Some(counts.map(|counts| Interrupt {
        name,
        counts,
        info: info.join(" "),
        devices: devices.join(" "),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_have_a_controller_or_a_name() {
        let text = "           CPU0       CPU1\n  0:         18          0   IO-APIC   2-edge      \
             timer\nNMI:          0          2   Non-maskable interrupts\nERR:          0\n";
        let [timer, nmi] = &parse(text).unwrap()[..] else {
            panic!("two")
        };
        assert_eq!(
            (timer.name, &*timer.info, &*timer.devices),
            ("0", "IO-APIC", "2-edge timer")
        );
        assert_eq!(
            (nmi.name, &*nmi.info, &*nmi.devices),
            ("NMI", "Non-maskable interrupts", "")
        );
        assert_eq!(nmi.counts, [0.0, 2.0]);
        assert_eq!(parse("CPU0\n 1: many x\n").unwrap_err().line, 2);
    }
}
