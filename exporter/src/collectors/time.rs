//! The node's clock, its time zone, and what the kernel takes the time from.
//!
//! Sources: the system's clock and time zone, `/sys/devices/system/clocksource`.

use crate::collector::{CollectError, Collector};
use crate::file::File;
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
    available: File,
    current: File,
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
    fn name(&self) -> &'static str {
        "time"
    }

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
        out.push(
            &ZONE,
            &[offset.abbreviation()],
            f64::from(offset.offset().seconds()),
        );
        for Clocksource {
            device,
            available,
            current,
        } in &mut self.clocksources
        {
            for clocksource in available.read()?.split_ascii_whitespace() {
                out.push(&AVAILABLE, &[device.as_str(), clocksource], 1.0);
            }
            out.push(
                &CURRENT,
                &[device.as_str(), current.read()?.trim_ascii()],
                1.0,
            );
        }
        Ok(())
    }
}

fn clocksources(sysfs: &Path) -> Vec<Clocksource> {
    let Ok(entries) = std::fs::read_dir(sysfs.join("devices/system/clocksource")) else {
        return Vec::new();
    };
    let mut found: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let device = entry
                .file_name()
                .to_str()?
                .strip_prefix("clocksource")?
                .to_owned();
            let file = |name: &str| File::new(entry.path().join(name));
            Some(Clocksource {
                device,
                available: file("available_clocksource"),
                current: file("current_clocksource"),
            })
        })
        .collect();
    found.sort_by(|a, b| a.device.cmp(&b.device));
    found
}
