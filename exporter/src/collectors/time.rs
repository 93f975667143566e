//! The node's clock, its time zone, and what the kernel takes the time from.
//!
//! Sources: the system's clock and time zone, `/sys/devices/system/clocksource`.

use crate::collector::{CollectError, Collector};
use crate::file::KernelFile;
use crate::paths::Paths;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::path::Path;
use takt_model::{Metric, Samples};

struct Time {
    clocksources: Vec<Clocksource>,
}

/// One of the kernel's clock devices; there is seldom more than one.
struct Clocksource {
    device: String,
    available: KernelFile,
    current: KernelFile,
}

const SECONDS: Metric = Metric::gauge(
    "node_time_seconds",
    "System time in seconds since epoch (1970).",
    &[],
);
const ZONE: Metric = Metric::gauge(
    "node_time_zone_offset_seconds",
    "System time zone offset in seconds.",
    &["time_zone"],
);
const AVAILABLE: Metric = Metric::gauge(
    "node_time_clocksource_available_info",
    "Available clocksources read from '/sys/devices/system/clocksource'.",
    &["device", "clocksource"],
);
const CURRENT: Metric = Metric::gauge(
    "node_time_clocksource_current_info",
    "Current clocksource read from '/sys/devices/system/clocksource'.",
    &["device", "clocksource"],
);
const METRICS: &[Metric] = &[SECONDS, ZONE, AVAILABLE, CURRENT];

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Time {
        clocksources: clocksources(&paths.sysfs),
    })
}

impl Collector for Time {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        64
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let now = Timestamp::now();
        out.push::<&str>(&SECONDS, &[], now.as_duration().as_secs_f64());

        // A node without any time zone of its own is on UTC, for libc too.
        let zone = TimeZone::try_system().unwrap_or(TimeZone::UTC);
        let offset = zone.to_offset_info(now);
        let seconds = f64::from(offset.offset().seconds());
        out.push(&ZONE, &[offset.abbreviation()], seconds);

        for Clocksource {
            device,
            available,
            current,
        } in &mut self.clocksources
        {
            for clocksource in available.read()?.split_ascii_whitespace() {
                out.push(&AVAILABLE, &[device.as_str(), clocksource], 1.0);
            }
            let current = current.read()?.trim_ascii();
            out.push(&CURRENT, &[device.as_str(), current], 1.0);
        }
        Ok(())
    }
}

fn clocksources(sysfs: &Path) -> Vec<Clocksource> {
    let Ok(entries) = std::fs::read_dir(sysfs.join("devices/system/clocksource")) else {
        return Vec::new();
    };

    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let device = name
            .to_str()
            .and_then(|name| name.strip_prefix("clocksource"));
        if let Some(device) = device {
            let file = |name: &str| KernelFile::new(entry.path().join(name));
            found.push(Clocksource {
                device: device.to_owned(),
                available: file("available_clocksource"),
                current: file("current_clocksource"),
            });
        }
    }
    found.sort_by(|a, b| a.device.cmp(&b.device));
    found
}
