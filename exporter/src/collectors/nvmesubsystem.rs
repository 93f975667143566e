//! NVMe subsystems: whether each path to a disk over the network is alive.
//!
//! Source: `/sys/class/nvme-subsystem`.

use crate::collector::{CollectError, Collector, MAX_DEVICES, device_names, flag};
use crate::paths::Paths;
use crate::sysfs;
use std::path::PathBuf;
use takt_model::{Metric, Samples};

struct NvmeSubsystem {
    class: PathBuf,
}

const INFO: Metric = Metric::gauge(
    "node_nvmesubsystem_info",
    "Non-numeric information about an NVMe subsystem.",
    &["subsystem", "nqn", "model", "serial", "iopolicy"],
);
const NAMESPACE_INFO: Metric = Metric::gauge(
    "node_nvmesubsystem_namespace_info",
    "Maps an NVMe namespace block device to its subsystem.",
    &["subsystem", "device"],
);
const PATHS: Metric = Metric::gauge(
    "node_nvmesubsystem_paths",
    "Number of controller paths for an NVMe subsystem.",
    &["subsystem"],
);
const LIVE: Metric = Metric::gauge(
    "node_nvmesubsystem_paths_live",
    "Number of controller paths in live state for an NVMe subsystem.",
    &["subsystem"],
);
const STATE: Metric = Metric::gauge(
    "node_nvmesubsystem_path_state",
    "Current NVMe controller path state (1 for the current state, 0 for all others).",
    &["subsystem", "controller", "transport", "state"],
);
const METRICS: &[Metric] = &[INFO, NAMESPACE_INFO, PATHS, LIVE, STATE];
const STATES: [&str; 7] = [
    "connecting",
    "dead",
    "deleting",
    "live",
    "new",
    "resetting",
    "unknown",
];

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(NvmeSubsystem {
        class: paths.sysfs.join("class/nvme-subsystem"),
    })
}

impl Collector for NvmeSubsystem {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * (METRICS.len() + STATES.len())
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let subsystems = device_names(&self.class, "nvme-subsys", "no NVMe subsystems")?;

        for subsystem in &subsystems {
            self.push(subsystem, out);
        }
        Ok(())
    }
}

impl NvmeSubsystem {
    fn push(&self, subsystem: &str, out: &mut Samples) {
        let directory = self.class.join(subsystem);
        let text = |file: &str| sysfs::text(&directory.join(file)).unwrap_or_default();
        let [nqn, model, serial, policy] = ["subsysnqn", "model", "serial", "iopolicy"].map(text);
        out.push(&INFO, &[subsystem, &nqn, &model, &serial, &policy], 1.0);

        let mut paths = 0.0;
        let mut live = 0.0;
        for name in sysfs::names(&directory, "nvme").unwrap_or_default() {
            match kind(&name) {
                Some(Kind::Namespace) => out.push(&NAMESPACE_INFO, &[subsystem, &name], 1.0),
                Some(Kind::Controller) => {
                    let file = |file| sysfs::text(&directory.join(&name).join(file));
                    let [state, transport] =
                        ["state", "transport"].map(|name| file(name).unwrap_or_default());
                    let state = normalized(&state);

                    paths += 1.0;
                    live += flag(state == "live");
                    // A series for each state, so that a change ends none.
                    for other in STATES {
                        let labels = [subsystem, &name, &transport, other];
                        out.push(&STATE, &labels, flag(other == state));
                    }
                }
                None => {}
            }
        }

        out.push(&PATHS, &[subsystem], paths);
        out.push(&LIVE, &[subsystem], live);
    }
}

#[derive(Debug, PartialEq)]
enum Kind {
    /// `nvme0`
    Controller,
    /// `nvme0n1`
    Namespace,
}

fn kind(name: &str) -> Option<Kind> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let rest = name.strip_prefix("nvme")?;

    match rest.split_once('n') {
        None => is_number(rest).then_some(Kind::Controller),
        Some((controller, id)) => {
            (is_number(controller) && is_number(id)).then_some(Kind::Namespace)
        }
    }
}

/// One of [`STATES`].
fn normalized(state: &str) -> &'static str {
    if state == "deleting (no IO)" {
        return "deleting";
    }
    let mut known = STATES.into_iter();
    known.find(|known| *known == state).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_states() {
        assert_eq!(kind("nvme0"), Some(Kind::Controller));
        assert_eq!(kind("nvme0n1"), Some(Kind::Namespace));
        assert_eq!(kind("nvme0c1n1"), None);
        assert_eq!(normalized("live"), "live");
        assert_eq!(normalized("deleting (no IO)"), "deleting");
        assert_eq!(normalized("suspended"), "unknown");
    }
}
