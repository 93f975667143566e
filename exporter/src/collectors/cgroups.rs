//! Number of control groups, by controller. The collector `jobs` reports their usage.
//!
//! Source: `/proc/cgroups`.

use crate::collector::{CollectError, Collector, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

struct Cgroups {
    cgroups: KernelFile,
}

const CGROUPS: Metric = Metric::gauge(
    "node_cgroups_cgroups",
    "Current cgroup number of the subsystem.",
    &["subsys_name"],
);
const ENABLED: Metric = Metric::gauge(
    "node_cgroups_enabled",
    "Current cgroup number of the subsystem.",
    &["subsys_name"],
);

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Cgroups {
        cgroups: KernelFile::new(paths.procfs.join("cgroups")),
    })
}

impl Collector for Cgroups {
    fn metrics(&self) -> &'static [Metric] {
        &[CGROUPS, ENABLED]
    }

    fn max_series(&self) -> usize {
        128
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        self.cgroups.parse(|text| {
            for (number, line) in text.lines().enumerate() {
                if line.starts_with('#') {
                    continue;
                }

                let (name, [count, enabled]) = parse(line).ok_or(ParseError {
                    line: number + 1,
                    expected: "a controller and three numbers",
                })?;
                out.push(&CGROUPS, &[name], count);
                out.push(&ENABLED, &[name], enabled);
            }
            Ok(())
        })
    }
}

fn parse(line: &str) -> Option<(&str, [f64; 2])> {
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    let [name, _, count, enabled] = words[..] else {
        return None;
    };
    Some((name, [count.parse().ok()?, enabled.parse().ok()?]))
}
