//! Virtual memory: pages faulted, swapped and read, and processes killed because there was no
//! memory left.
//!
//! Source: `/proc/vmstat`. It has some 190 fields; a flag says which are published. They count
//! pages, but for `pgpgin` and `pgpgout`, which count kilobytes.

use crate::collector::{CollectError, Collector, ParseError};
use crate::file::KernelFile;
use crate::filter::{NameFilter, NamePattern};
use crate::paths::Paths;
use takt_model::{Family, Kind, Metric, Samples};

/// Flags of the collector `vmstat`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct VmstatOptions {
    /// Fields of /proc/vmstat to publish.
    #[arg(
        id = "vmstat-fields",
        long = "collector.vmstat.fields",
        value_name = "REGEXP",
        default_value = "^(oom_kill|pgpg|pswp|pg.*fault).*"
    )]
    pub fields: NamePattern,
}

struct Vmstat {
    vmstat: KernelFile,
    fields: NameFilter,
}

const FIELDS: Family = Family {
    prefix: "node_vmstat_",
    help: "/proc/vmstat information field {}.",
    kind: Kind::Unknown,
    labels: &[],
};

pub(crate) fn new(paths: &Paths, options: &VmstatOptions) -> Box<dyn Collector> {
    Box::new(Vmstat {
        vmstat: KernelFile::new(paths.procfs.join("vmstat")),
        fields: NameFilter::including(options.fields.clone()),
    })
}

impl Collector for Vmstat {
    fn metrics(&self) -> &'static [Metric] {
        &[]
    }

    fn families(&self) -> &'static [Family] {
        &[FIELDS]
    }

    fn max_series(&self) -> usize {
        512
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        self.vmstat.parse(|text| {
            for line in parse(text) {
                let (field, value) = line?;
                if self.fields.passes(field) {
                    out.push_field::<&str>(&FIELDS, field, &[], value);
                }
            }
            Ok(())
        })
    }
}

/// A field and its value on each line.
fn parse(text: &str) -> impl Iterator<Item = Result<(&str, f64), ParseError>> {
    let lines = text.lines().enumerate();
    lines.map(|(number, line)| {
        parse_line(line).ok_or(ParseError {
            line: number + 1,
            expected: "a field and its value",
        })
    })
}

fn parse_line(line: &str) -> Option<(&str, f64)> {
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || c == b'_';

    let (name, value) = line.split_once(' ')?;
    let value = value.trim_ascii().parse().ok()?;
    let is_name = !name.is_empty() && name.bytes().all(is_plain);
    is_name.then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let lines: Vec<_> = parse("nr_free_pages 25043\noom_kill 3\nnr_unstable -1\n")
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(
            lines,
            [
                ("nr_free_pages", 25_043.0),
                ("oom_kill", 3.0),
                ("nr_unstable", -1.0)
            ]
        );
    }

    #[test]
    fn wrong_lines_are_named_and_the_others_stay() {
        let lines: Vec<_> = parse("pgfault\npgmajfault many\npg-in 1\n\npswpin 1\n")
            .map(|line| line.ok())
            .collect();
        assert_eq!(lines, [None, None, None, None, Some(("pswpin", 1.0))]);
    }
}
