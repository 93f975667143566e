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
                let field = format!("{field}_total");
                out.push_field(&FIELDS, &field, &[file.as_str(), &cpu.to_string()], count);
            }
        }
        Ok(())
    }
}

fn parse(text: &str) -> impl Iterator<Item = (&str, usize, f64)> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';

    let mut lines = text.lines();
    let names = lines.next().unwrap_or_default();
    let counts = lines.enumerate().flat_map(move |(cpu, line)| {
        let counts = line.split_ascii_whitespace();
        let pairs = names.split_ascii_whitespace().zip(counts);
        pairs.map(move |(name, count)| (name, cpu, u64::from_str_radix(count, 16).ok()))
    });
    counts.filter_map(move |(name, cpu, count)| {
        let is_name = name.bytes().all(is_plain);
        Some((name, cpu, count.filter(|_| is_name)? as f64))
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
