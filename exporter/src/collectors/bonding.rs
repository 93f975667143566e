//! Bonded links: how many a bond has, and how many of them carry.
//!
//! Source: `/sys/class/net/bonding_masters` and the files of each master.

use crate::collector::{CollectError, Collector, MAX_DEVICES};
use crate::paths::Paths;
use crate::sysfs;
use std::path::PathBuf;
use takt_model::{Metric, Samples};

struct Bonding {
    class_net: PathBuf,
}

const SLAVES: Metric = Metric::gauge(
    "node_bonding_slaves",
    "Number of configured slaves per bonding interface.",
    &["master"],
);
const ACTIVE: Metric = Metric::gauge(
    "node_bonding_active",
    "Number of active slaves per bonding interface.",
    &["master"],
);

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Bonding {
        class_net: paths.sysfs.join("class/net"),
    })
}

impl Collector for Bonding {
    fn metrics(&self) -> &'static [Metric] {
        &[SLAVES, ACTIVE]
    }

    fn max_series(&self) -> usize {
        2 * MAX_DEVICES
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let masters = sysfs::text(&self.class_net.join("bonding_masters"))
            .ok_or(CollectError::Absent("no bonded links"))?;

        for master in masters.split_ascii_whitespace() {
            let directory = self.class_net.join(master);
            // A bond that vanishes meanwhile is left out.
            let Some(slaves) = sysfs::text(&directory.join("bonding/slaves")) else {
                continue;
            };

            let is_up = |slave: &&str| {
                let state = |prefix| {
                    let state = format!("{prefix}_{slave}/bonding_slave/mii_status");
                    sysfs::text(&directory.join(state))
                };
                let state = state("lower").or_else(|| state("slave"));
                state.is_some_and(|state| state == "up")
            };
            let slaves = slaves.split_ascii_whitespace();
            let active = slaves.clone().filter(is_up).count();
            out.push(&SLAVES, &[master], slaves.count() as f64);
            out.push(&ACTIVE, &[master], active as f64);
        }
        Ok(())
    }
}
