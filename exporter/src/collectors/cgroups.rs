//! Number of control groups, by controller. The collector `jobs` reports their usage.
//!
//! Source: `/proc/cgroups`.

use crate::collector::{CollectError, Collector, ParseError};
use crate::file::File;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

struct Cgroups {
    cgroups: File,
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
        cgroups: File::new(paths.procfs.join("cgroups")),
    })
}

impl Collector for Cgroups {
    fn name(&self) -> &'static str {
        "cgroups"
    }

    fn metrics(&self) -> &'static [Metric] {
        &[CGROUPS, ENABLED]
    }

    fn max_series(&self) -> usize {
        128
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        self.cgroups.parse(|text| {
            for (number, line) in text
                .lines()
                .enumerate()
                .filter(|(_, line)| !line.starts_with('#'))
            {
                let words: Vec<_> = line.split_ascii_whitespace().collect();
                let numbers = || {
                    let [name, _, count, enabled] = words[..] else {
                        return None;
                    };
                    Some((name, count.parse().ok()?, enabled.parse().ok()?))
                };
                let error = ParseError {
                    line: number + 1,
                    expected: "a controller and three numbers",
                };
                let (name, count, enabled) = numbers().ok_or(error)?;
                out.push(&CGROUPS, &[name], count);
                out.push(&ENABLED, &[name], enabled);
            }
            Ok(())
        })
    }
}
