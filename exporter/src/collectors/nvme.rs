//! NVMe disks: which they are.
//!
//! Source: `/sys/class/nvme`.

use crate::collector::{CollectError, Collector};
use crate::collectors::MAX_DEVICES;
use crate::options::Options;
use crate::sysfs;
use std::path::PathBuf;
use takt_model::{Metric, Samples};

struct Nvme {
    class: PathBuf,
}

const INFO: Metric = Metric::gauge(
    "node_nvme_info",
    "Non-numeric data from /sys/class/nvme/<device>, value is always 1.",
    &["device", "firmware_revision", "model", "serial", "state"],
);

pub(crate) fn new(options: &Options) -> Box<dyn Collector> {
    Box::new(Nvme {
        class: options.paths.sysfs.join("class/nvme"),
    })
}

impl Collector for Nvme {
    fn name(&self) -> &'static str {
        "nvme"
    }

    fn metrics(&self) -> &'static [Metric] {
        &[INFO]
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let devices = sysfs::names(&self.class, "nvme")
            .map_err(|source| CollectError::read(&self.class, source).or_absent("no NVMe disks"))?;
        for device in devices {
            let text =
                |file: &str| sysfs::text(&self.class.join(&device).join(file)).unwrap_or_default();
            out.push(
                &INFO,
                &[
                    device.as_str(),
                    &text("firmware_rev"),
                    &text("model"),
                    &text("serial"),
                    &text("state"),
                ],
                1.0,
            );
        }
        Ok(())
    }
}
