//! Thermal zones and the devices that cool them.
//!
//! Source: `/sys/class/thermal`, in thousandths of a degree. Firmware is asked for some of them, so
//! this collector has a thread. A node without any is a success without series, as with
//! node_exporter.

use crate::collector::{CollectError, Collector, MAX_DEVICES};
use crate::paths::Paths;
use crate::sysfs;
use std::path::PathBuf;
use takt_model::{Metric, Samples};

struct ThermalZone {
    class: PathBuf,
}

const TEMPERATURE: Metric = Metric::gauge(
    "node_thermal_zone_temp",
    "Zone temperature in Celsius",
    &["zone", "type"],
);
const STATE: Metric = Metric::gauge(
    "node_cooling_device_cur_state",
    "Current throttle state of the cooling device",
    &["name", "type"],
);
const MAX_STATE: Metric = Metric::gauge(
    "node_cooling_device_max_state",
    "Maximum throttle state of the cooling device",
    &["name", "type"],
);

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(ThermalZone {
        class: paths.sysfs.join("class/thermal"),
    })
}

impl Collector for ThermalZone {
    fn metrics(&self) -> &'static [Metric] {
        &[TEMPERATURE, STATE, MAX_STATE]
    }

    fn max_series(&self) -> usize {
        3 * MAX_DEVICES
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        for (name, zone) in sysfs::numbered(&self.class, "thermal_zone").unwrap_or_default() {
            let directory = self.class.join(name);
            // A zone whose sensor is switched off has no temperature just now.
            let Some(thousandths) = sysfs::number::<i64>(&directory.join("temp")) else {
                continue;
            };

            let kind = sysfs::text(&directory.join("type")).unwrap_or_default();
            out.push(&TEMPERATURE, &[zone, kind], thousandths as f64 / 1e3);
        }

        for (name, device) in sysfs::numbered(&self.class, "cooling_device").unwrap_or_default() {
            let directory = self.class.join(name);
            let kind = sysfs::text(&directory.join("type")).unwrap_or_default();
            for (file, metric) in [("cur_state", &STATE), ("max_state", &MAX_STATE)] {
                if let Some(state) = sysfs::number::<i64>(&directory.join(file)) {
                    out.push(metric, &[&device, &kind], state as f64);
                }
            }
        }
        Ok(())
    }
}
