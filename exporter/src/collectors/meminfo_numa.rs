//! Memory by NUMA node, and from which node it was taken.
//!
//! Sources: `/sys/devices/system/node/node*/meminfo`, whose `kB` is 1,024 bytes (we publish bytes),
//! and `numastat`, in pages.

use crate::collector::{CollectError, Collector};
use crate::paths::Paths;
use crate::sysfs;
use std::path::PathBuf;
use takt_model::{Family, Kind, Metric, Samples};

struct MeminfoNuma {
    nodes: PathBuf,
}

const FIELDS: Family = Family {
    prefix: "node_memory_numa_",
    help: "Memory information field {}.",
    kind: Kind::Gauge,
    labels: &["node"],
};
/// The fields of `numastat`.
const PAGES: Family = Family {
    kind: Kind::Counter,
    ..FIELDS
};

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(MeminfoNuma {
        nodes: paths.sysfs.join("devices/system/node"),
    })
}

impl Collector for MeminfoNuma {
    fn metrics(&self) -> &'static [Metric] {
        &[]
    }

    fn families(&self) -> &'static [Family] {
        &[FIELDS]
    }

    fn max_series(&self) -> usize {
        64 * 64
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        // A kernel without NUMA is a success without series, as with node_exporter.
        for (name, node) in sysfs::numbered(&self.nodes, "node").unwrap_or_default() {
            let text =
                |file: &str| sysfs::text(&self.nodes.join(&name).join(file)).unwrap_or_default();

            for (field, value) in text("meminfo").lines().filter_map(parse_field) {
                out.push_field(&FIELDS, &field, &[&node], value);
            }

            for line in text("numastat").lines() {
                if let Some((field, pages)) = line.split_once(' ')
                    && is_plain(field)
                    && let Ok(pages) = pages.trim().parse::<u64>()
                {
                    out.push_field(&PAGES, &format!("{field}_total"), &[&node], pages as f64);
                }
            }
        }
        Ok(())
    }
}

/// `Node 0 Active(anon):   123 kB` is `Active_anon`.
fn parse_field(line: &str) -> Option<(String, f64)> {
    let mut words = line.split_ascii_whitespace().skip(2);
    let name = words.next()?.strip_suffix(':')?;
    let value: f64 = words.next()?.parse().ok()?;
    let name = name.replace('(', "_").replace(')', "");

    let unit = match words.next() {
        Some("kB") => 1024.0,
        _ => 1.0,
    };
    is_plain(&name).then_some((name, value * unit))
}

/// Whether it can be part of a metric's name.
fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        assert_eq!(
            parse_field("Node 0 Active(anon):  2 kB"),
            Some(("Active_anon".into(), 2048.0))
        );
        assert_eq!(
            parse_field("Node 1 HugePages_Free:     3"),
            Some(("HugePages_Free".into(), 3.0))
        );
        for line in [
            "",
            "Node 0",
            "Node 0 Free 3",
            "Node 0 Fr-ee: 3",
            "Node 0 Free: x",
        ] {
            assert_eq!(parse_field(line), None, "{line}");
        }
    }
}
