//! Caches of the network, such as that of neighbours, by CPU.
//!
//! Source: `/proc/net/stat`: a head of names, then a line for each CPU, in hexadecimal. The kernel
//! chooses the names.

use crate::collector::{CollectError, Collector};
use crate::paths::Paths;
use crate::sysfs;
use std::path::PathBuf;
use takt_model::{Family, Kind, Metric, Samples};

struct Lnstat {
    directory: PathBuf,
}

const FIELDS: Family = Family {
    prefix: "node_lnstat_",
    help: "linux network cache stats",
    kind: Kind::Counter,
    labels: &["subsystem", "cpu"],
};

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Lnstat {
        directory: paths.procfs.join("net/stat"),
    })
}

impl Collector for Lnstat {
    fn name(&self) -> &'static str {
        "lnstat"
    }

    fn metrics(&self) -> &'static [Metric] {
        &[]
    }

    fn families(&self) -> &'static [Family] {
        &[FIELDS]
    }

    fn max_series(&self) -> usize {
        200_000
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        for file in sysfs::names(&self.directory, "").unwrap_or_default() {
            let Ok(text) = std::fs::read_to_string(self.directory.join(&file)) else {
                continue;
            };
            for (field, cpu, count) in parse(&text) {
                out.push_field(
                    &FIELDS,
                    &format!("{field}_total"),
                    &[file.as_str(), &cpu.to_string()],
                    count,
                );
            }
        }
        Ok(())
    }
}

fn parse(text: &str) -> impl Iterator<Item = (&str, usize, f64)> {
    let names: Vec<_> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .collect();
    let is_name = |name: &str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    text.lines()
        .skip(1)
        .enumerate()
        .flat_map(move |(cpu, line)| {
            let counts = line
                .split_ascii_whitespace()
                .map(|count| u64::from_str_radix(count, 16).ok());
            names
                .clone()
                .into_iter()
                .zip(counts)
                .filter(move |(name, _)| is_name(name))
                .filter_map(move |(name, count)| Some((name, cpu, count? as f64)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_cpu() {
        let text = "entries  allocs od{d\n00000014  0000001f 1\n00000014  zz\n";
        let found: Vec<_> = parse(text).collect();
        assert_eq!(
            found,
            [
                ("entries", 0, 20.0),
                ("allocs", 0, 31.0),
                ("entries", 1, 20.0)
            ]
        );
    }
}
