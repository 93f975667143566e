//! Counters of the drivers of network links, and the modes that the links support.
//!
//! Source: the ioctls of `linux/ethtool.h`. A driver chooses its counters' names, and may ask its
//! hardware, so this collector has a thread. The collector `links` reports links that are slower
//! than they could be.

mod modes;
mod names;

use self::modes::{FEATURES, PORTS, SPEEDS};
use self::names::Renamed;
use crate::collector::{CollectError, Collector, MAX_DEVICES, device_names, flag};
use crate::collectors::links::ethtool::{self, LinkModes};
use crate::filter::{NameFilter, NamePattern};
use crate::paths::Paths;
use std::path::PathBuf;
use takt_model::{Family, Kind, Metric, Samples};

/// Flags of the collector `ethtool`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct EthtoolOptions {
    /// Network links to include.
    #[arg(
        id = "ethtool-include",
        long = "collector.ethtool.device-include",
        value_name = "REGEXP",
        conflicts_with = "ethtool-exclude"
    )]
    pub device_include: Option<NamePattern>,
    /// Network links to leave out.
    #[arg(
        id = "ethtool-exclude",
        long = "collector.ethtool.device-exclude",
        value_name = "REGEXP",
        default_value = ""
    )]
    pub device_exclude: NamePattern,
    /// Counters to include, by the driver's names.
    #[arg(
        long = "collector.ethtool.metrics-include",
        value_name = "REGEXP",
        default_value = ".*"
    )]
    pub metrics_include: NamePattern,
}

struct Ethtool {
    class_net: PathBuf,
    devices: NameFilter,
    counters: NameFilter,
}

const DEVICE: &[&str] = &["device"];
const SPEED: &[&str] = &["device", "duplex", "mode"];
const INFO: Metric = Metric::gauge(
    "node_ethtool_info",
    "A metric with a constant '1' value labeled by bus_info, device, driver, \
     expansion_rom_version, firmware_version, version.",
    &[
        "bus_info",
        "device",
        "driver",
        "expansion_rom_version",
        "firmware_version",
        "version",
    ],
);
const SUPPORTED_SPEED: Metric = Metric::gauge(
    "node_network_supported_speed_bytes",
    "Combination of speeds and features supported by network device",
    SPEED,
);
const ADVERTISED_SPEED: Metric = Metric::gauge(
    "node_network_advertised_speed_bytes",
    "Combination of speeds and features offered by network device",
    SPEED,
);
const PORT: Metric = Metric::gauge(
    "node_network_supported_port_info",
    "Type of ports or PHYs supported by network device",
    &["device", "type"],
);
/// In the order of [`FEATURES`].
const SUPPORTED: [Metric; 3] = [
    Metric::gauge(
        "node_network_autonegotiate_supported",
        "If this port device supports autonegotiate",
        DEVICE,
    ),
    Metric::gauge(
        "node_network_pause_supported",
        "If this port device supports pause frames",
        DEVICE,
    ),
    Metric::gauge(
        "node_network_asymmetricpause_supported",
        "If this port device supports asymmetric pause frames",
        DEVICE,
    ),
];
const ADVERTISED: [Metric; 3] = [
    Metric::gauge(
        "node_network_autonegotiate_advertised",
        "If this port device offers autonegotiate",
        DEVICE,
    ),
    Metric::gauge(
        "node_network_pause_advertised",
        "If this port device offers pause capability",
        DEVICE,
    ),
    Metric::gauge(
        "node_network_asymmetricpause_advertised",
        "If this port device offers asymmetric pause capability",
        DEVICE,
    ),
];
const AUTONEGOTIATE: Metric = Metric::gauge(
    "node_network_autonegotiate",
    "If this port is using autonegotiate",
    DEVICE,
);
const METRICS: &[Metric] = &[
    INFO,
    SUPPORTED_SPEED,
    ADVERTISED_SPEED,
    PORT,
    SUPPORTED[0],
    SUPPORTED[1],
    SUPPORTED[2],
    ADVERTISED[0],
    ADVERTISED[1],
    ADVERTISED[2],
    AUTONEGOTIATE,
];
const COUNTERS: Family = Family {
    prefix: "node_ethtool_",
    help: "Network interface {}",
    kind: Kind::Unknown,
    labels: DEVICE,
};
const MEGABIT: f64 = 1e6 / 8.0;

pub(crate) fn new(paths: &Paths, options: &EthtoolOptions) -> Box<dyn Collector> {
    let EthtoolOptions {
        device_include,
        device_exclude,
        metrics_include,
    } = options.clone();
    Box::new(Ethtool {
        class_net: paths.sysfs.join("class/net"),
        devices: NameFilter::new(device_include, device_exclude),
        counters: NameFilter::including(metrics_include),
    })
}

impl Collector for Ethtool {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn families(&self) -> &'static [Family] {
        &[COUNTERS]
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * 1024
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let links = device_names(&self.class_net, "", "no network devices")?;

        // A link that cannot be asked, or not for this, says nothing about it.
        for device in links.iter().filter(|device| self.devices.passes(device)) {
            if let Ok(settings) = ethtool::settings(device) {
                push_settings(device, &settings, out);
            }

            if let Ok(driver) = ethtool::driver(device) {
                let ethtool::LinkDriver {
                    name,
                    version,
                    firmware,
                    bus,
                    expansion_rom,
                } = &driver;
                let labels = [bus, device, name, expansion_rom, firmware, version];
                out.push(&INFO, &labels, 1.0);
            }

            let counters = ethtool::counters(device).unwrap_or_default();
            let renamed = names::rename(&counters, |name| self.counters.passes(name));
            for Renamed { name, help, value } in renamed {
                let name = format!("{}{name}", COUNTERS.prefix);
                let labels = [("device", device.as_str())];
                out.push_foreign(&name, COUNTERS.kind, &help, &labels, value as f64);
            }
        }
        Ok(())
    }
}

fn push_settings(device: &str, settings: &ethtool::LinkSettings, out: &mut Samples) {
    let ethtool::LinkSettings {
        supported,
        advertised,
        is_autonegotiated,
        ..
    } = settings;
    push_modes(device, supported, &SUPPORTED_SPEED, &SUPPORTED, out);
    for (bit, kind) in PORTS {
        if supported.has(*bit) {
            out.push(&PORT, &[device, *kind], 1.0);
        }
    }

    push_modes(device, advertised, &ADVERTISED_SPEED, &ADVERTISED, out);
    let is_autonegotiated = flag(*is_autonegotiated);
    out.push(&AUTONEGOTIATE, &[device], is_autonegotiated);
}

fn push_modes(
    device: &str,
    modes: &LinkModes,
    speed: &Metric,
    features: &[Metric; 3],
    out: &mut Samples,
) {
    for (bit, megabits, is_full, suffix) in SPEEDS {
        if modes.has(*bit) {
            let duplex = if *is_full { "full" } else { "half" };
            let mode = format!("{megabits}base{suffix}");
            let bits = f64::from(*megabits) * MEGABIT;
            out.push(speed, &[device, duplex, &mode], bits);
        }
    }

    for (metric, bit) in features.iter().zip(FEATURES) {
        out.push(metric, &[device], flag(modes.has(bit)));
    }
}
