//! Whether SELinux is on, and how its cache of decisions does.
//!
//! Sources: `/sys/fs/selinux`, which is mounted only where it is on, and `/etc/selinux/config`.

use crate::collector::{CollectError, Collector, flag};
use crate::paths::Paths;
use crate::sysfs;
use std::path::PathBuf;
use takt_model::{Metric, Samples};

struct Selinux {
    selinuxfs: PathBuf,
    config: PathBuf,
}

const ENABLED: Metric = Metric::gauge(
    "node_selinux_enabled",
    "SELinux is enabled, 1 is true, 0 is false",
    &[],
);
const CONFIG_MODE: Metric = Metric::gauge(
    "node_selinux_config_mode",
    "Configured SELinux enforcement mode",
    &[],
);
const CURRENT_MODE: Metric = Metric::gauge(
    "node_selinux_current_mode",
    "Current SELinux enforcement mode",
    &[],
);
const CACHE: &[(&str, Metric)] = &[
    (
        "lookups",
        Metric::counter("node_selinux_avc_lookups_total", "SELinux AVC lookups", &[]),
    ),
    (
        "hits",
        Metric::counter("node_selinux_avc_hits_total", "SELinux AVC hits", &[]),
    ),
    (
        "misses",
        Metric::counter("node_selinux_avc_misses_total", "SELinux AVC misses", &[]),
    ),
    (
        "allocations",
        Metric::counter(
            "node_selinux_avc_allocations_total",
            "SELinux AVC allocations",
            &[],
        ),
    ),
    (
        "reclaims",
        Metric::counter(
            "node_selinux_avc_reclaims_total",
            "SELinux AVC reclaims",
            &[],
        ),
    ),
    (
        "frees",
        Metric::counter("node_selinux_avc_frees_total", "SELinux AVC frees", &[]),
    ),
];
const METRICS: &[Metric] = &[
    ENABLED,
    CONFIG_MODE,
    CURRENT_MODE,
    CACHE[0].1,
    CACHE[1].1,
    CACHE[2].1,
    CACHE[3].1,
    CACHE[4].1,
    CACHE[5].1,
];

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Selinux {
        selinuxfs: paths.sysfs.join("fs/selinux"),
        config: paths.rootfs.join("etc/selinux/config"),
    })
}

impl Collector for Selinux {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let mode = sysfs::number::<f64>(&self.selinuxfs.join("enforce"));
        out.push::<&str>(&ENABLED, &[], flag(mode.is_some()));
        let Some(mode) = mode else { return Ok(()) };

        out.push::<&str>(&CURRENT_MODE, &[], mode);

        // The mode after the next start, which may differ from the present one.
        let config = std::fs::read_to_string(&self.config).unwrap_or_default();
        if let Some(configured) = configured(&config) {
            out.push::<&str>(&CONFIG_MODE, &[], configured);
        }

        let stats = sysfs::text(&self.selinuxfs.join("avc/cache_stats")).unwrap_or_default();
        for (name, metric) in CACHE {
            if let Some(sum) = sum(&stats, name) {
                out.push::<&str>(metric, &[], sum as f64);
            }
        }
        Ok(())
    }
}

/// 1 enforcing, 0 permissive, -1 disabled.
fn configured(text: &str) -> Option<f64> {
    let mut lines = text.lines();
    let mode = lines.find_map(|line| line.trim().strip_prefix("SELINUX="))?;
    match mode.trim().to_ascii_lowercase().as_str() {
        "enforcing" => Some(1.0),
        "permissive" => Some(0.0),
        "disabled" => Some(-1.0),
        _ => None,
    }
}

/// A line of names, then numbers for each CPU.
fn sum(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    let mut names = lines.next()?.split_ascii_whitespace();
    let place = names.position(|column| column == name)?;

    let counts = lines.map(|line| {
        let count = line.split_ascii_whitespace().nth(place)?;
        count.parse::<u64>().ok()
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        let stats = "lookups hits misses\n1 2 3\n10 20 30\n";
        assert_eq!(
            (
                sum(stats, "lookups"),
                sum(stats, "misses"),
                sum(stats, "frees")
            ),
            (Some(11), Some(33), None)
        );
        assert_eq!(sum("lookups\nx\n", "lookups"), None);
        assert_eq!(
            configured("# SELINUX=disabled\nSELINUXTYPE=targeted\nSELINUX=Permissive\n"),
            Some(0.0)
        );
        assert_eq!(configured(""), None);
    }
}
