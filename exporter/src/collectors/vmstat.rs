//! Virtual memory: pages faulted, swapped and read, and processes killed because there was no
//! memory left.
//!
//! Source: `/proc/vmstat`. It has some 190 fields; a flag says which are published. They count
//! pages, but for `pgpgin` and `pgpgout`, which count kilobytes.

use crate::collector::{CollectError, Collector, ParseError};
use crate::file::File;
use crate::filter::{Filter, Pattern};
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
    pub fields: Pattern,
}

struct Vmstat {
    vmstat: File,
    fields: Filter,
}

const FIELDS: Family = Family {
    prefix: "node_vmstat_",
    help: "/proc/vmstat information field {}.",
    kind: Kind::Unknown,
    labels: &[],
};

pub(crate) fn new(paths: &Paths, options: &VmstatOptions) -> Box<dyn Collector> {
    Box::new(Vmstat {
        vmstat: File::new(paths.procfs.join("vmstat")),
        fields: Filter::including(options.fields.clone()),
    })
}

impl Collector for Vmstat {
    fn name(&self) -> &'static str {
        "vmstat"
    }

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
            parse(text).try_for_each(|line| {
                let (field, value) = line?;
                if self.fields.passes(field) {
                    out.push_field::<&str>(&FIELDS, field, &[], value);
                }
                Ok(())
            })
        })
    }
}

/// A field and its value on each line.
fn parse(text: &str) -> impl Iterator<Item = Result<(&str, f64), ParseError>> {
    text.lines().enumerate().map(|(number, line)| {
        let field = || {
            let (name, value) = line.split_once(' ')?;
            let is_name =
                !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
            Some((name, value.trim_ascii().parse::<f64>().ok()?)).filter(|_| is_name)
        };
        field().ok_or(ParseError {
            line: number + 1,
            expected: "a field and its value",
        })
    })
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
