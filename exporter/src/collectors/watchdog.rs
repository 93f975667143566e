//! Watchdogs: whether they are set, and what the last boot was due to.
//!
//! Source: `/sys/class/watchdog`.

use crate::collector::{CollectError, Collector, MAX_DEVICES, device_names};
use crate::paths::Paths;
use crate::sysfs;
use crate::table::{Row, metrics_of, push_files};
use std::path::PathBuf;
use takt_model::{Metric, Samples};

struct Watchdog {
    class: PathBuf,
}

const NAME: &[&str] = &["name"];
#[rustfmt::skip]
const FILES: &[Row] = &[
    Row::gauge("bootstatus", "node_watchdog_bootstatus",
        "Value of /sys/class/watchdog/<watchdog>/bootstatus", NAME),
    Row::gauge("fw_version", "node_watchdog_fw_version",
        "Value of /sys/class/watchdog/<watchdog>/fw_version", NAME),
    Row::gauge("nowayout", "node_watchdog_nowayout",
        "Value of /sys/class/watchdog/<watchdog>/nowayout", NAME),
    Row::gauge("timeleft", "node_watchdog_timeleft_seconds",
        "Value of /sys/class/watchdog/<watchdog>/timeleft", NAME),
    Row::gauge("timeout", "node_watchdog_timeout_seconds",
        "Value of /sys/class/watchdog/<watchdog>/timeout", NAME),
    Row::gauge("pretimeout", "node_watchdog_pretimeout_seconds",
        "Value of /sys/class/watchdog/<watchdog>/pretimeout", NAME),
    Row::gauge("access_cs0", "node_watchdog_access_cs0",
        "Value of /sys/class/watchdog/<watchdog>/access_cs0", NAME),
];
const INFO: Metric = Metric::gauge(
    "node_watchdog_info",
    "Info of /sys/class/watchdog/<watchdog>",
    &[
        "name",
        "options",
        "identity",
        "state",
        "status",
        "pretimeout_governor",
    ],
);
const METRICS: &[Metric] = metrics_of!([INFO], FILES);

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Watchdog {
        class: paths.sysfs.join("class/watchdog"),
    })
}

impl Collector for Watchdog {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let watchdogs = device_names(&self.class, "", "no watchdogs")?;
        for name in &watchdogs {
            let directory = self.class.join(name);
            push_files(&directory, FILES, &[name], out);

            let text = |file: &str| sysfs::text(&directory.join(file)).unwrap_or_default();
            let [options, identity, state, status, governor] = [
                "options",
                "identity",
                "state",
                "status",
                "pretimeout_governor",
            ]
            .map(text);
            let labels = [name, &options, &identity, &state, &status, &governor];
            out.push(&INFO, &labels, 1.0);
        }
        Ok(())
    }
}
