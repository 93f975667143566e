//! PCI devices: which they are, and the width and speed of their links.
//!
//! Source: `/sys/bus/pci/devices`, links whose targets name the bridge above each device. Values
//! that a device lacks is -1 or 0, as node_exporter has it. With `--collector.pcidevice.names` the
//! names come from the distribution's `pci.ids`.

mod ids;

use self::ids::PciNames;
use crate::collector::{CollectError, Collector, device_names, flag};
use crate::paths::Paths;
use crate::sysfs;
use std::path::{Path, PathBuf};
use takt_model::{Kind, Metric, Samples};

/// Flags of the collector `pcidevice`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct PcideviceOptions {
    /// Add the names of vendors, devices and classes.
    #[arg(long = "collector.pcidevice.names")]
    pub names: bool,
    /// File with the names (pci.ids). Default: where distributions put it.
    #[arg(long = "collector.pcidevice.idsfile", value_name = "PATH")]
    pub ids_file: Option<PathBuf>,
}

struct Pcidevice {
    devices: PathBuf,
    names: Option<PciNames>,
}

const PLACE: [&str; 4] = ["segment", "bus", "device", "function"];
const INFO: Metric = Metric::gauge(
    "node_pcidevice_info",
    "Non-numeric data from /sys/bus/pci/devices/<location>, value is always 1.",
    &[
        "segment",
        "bus",
        "device",
        "function",
        "parent_segment",
        "parent_bus",
        "parent_device",
        "parent_function",
        "class_id",
        "vendor_id",
        "device_id",
        "subsystem_vendor_id",
        "subsystem_device_id",
        "revision",
    ],
);
const NAME_LABELS: [&str; 5] = [
    "vendor_name",
    "device_name",
    "subsystem_vendor_name",
    "subsystem_device_name",
    "class_name",
];
const POWER: Metric = Metric::gauge(
    "node_pcidevice_power_state",
    "PCIe device power state, one of: D0, D1, D2, D3hot, D3cold, unknown or error.",
    &["segment", "bus", "device", "function", "state"],
);
const POWER_STATES: [&str; 7] = ["D0", "D1", "D2", "D3hot", "D3cold", "unknown", "error"];
const NUMA_NODE: Metric = Metric::gauge(
    "node_pcidevice_numa_node",
    "NUMA node number for the PCI device. -1 indicates unknown or not available.",
    &PLACE,
);
/// The files that are identifications, how many digits these have, and whether every device has
/// them.
const IDENTIFICATIONS: [(&str, usize); 6] = [
    ("class", 6),
    ("vendor", 4),
    ("device", 4),
    ("subsystem_vendor", 4),
    ("subsystem_device", 4),
    ("revision", 2),
];

macro_rules! numbers {
    ($($file:literal $missing:literal $name:literal $help:literal,)*) => {
        /// The files with a number, and what stands for one that is not there.
        const NUMBERS: &[(&str, f64)] = &[$(($file, $missing)),*];
        const METRICS: &[Metric] =
            &[INFO, POWER, NUMA_NODE, $(Metric::gauge(concat!("node_pcidevice_", $name), $help, &PLACE)),*];
    };
}

numbers! {
    "max_link_speed" -1.0 "max_link_transfers_per_second"
        "Value of maximum link's transfers per second (T/s)",
    "max_link_width" -1.0 "max_link_width" "Value of maximum link's width (number of lanes)",
    "current_link_speed" -1.0 "current_link_transfers_per_second"
        "Value of current link's transfers per second (T/s)",
    "current_link_width" -1.0 "current_link_width"
        "Value of current link's width (number of lanes)",
    "d3cold_allowed" 0.0 "d3cold_allowed"
        "Whether the PCIe device supports D3cold power state (0/1).",
    "sriov_drivers_autoprobe" 0.0 "sriov_drivers_autoprobe"
        "Whether SR-IOV drivers autoprobe is enabled for the device (0/1).",
    "sriov_numvfs" 0.0 "sriov_numvfs"
        "Number of Virtual Functions (VFs) currently enabled for SR-IOV.",
    "sriov_totalvfs" 0.0 "sriov_totalvfs"
        "Total number of Virtual Functions (VFs) supported by the device.",
    "sriov_vf_total_msix" 0.0 "sriov_vf_total_msix"
        "Total number of MSI-X vectors for Virtual Functions.",
}

pub(crate) fn new(paths: &Paths, options: &PcideviceOptions) -> Box<dyn Collector> {
    let PcideviceOptions { names, ids_file } = &options;
    Box::new(Pcidevice {
        devices: paths.sysfs.join("bus/pci/devices"),
        names: names.then(|| PciNames::new(ids_file.as_deref())),
    })
}

impl Collector for Pcidevice {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        4096 * (METRICS.len() + POWER_STATES.len())
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let devices = device_names(&self.devices, "", "no PCI")?;

        for device in devices {
            self.push(&self.devices.clone().join(device), out);
        }
        Ok(())
    }
}

impl Pcidevice {
    /// A device that goes meanwhile is left out.
    fn push(&mut self, directory: &Path, out: &mut Samples) {
        let target = std::fs::read_link(directory).unwrap_or_else(|_| directory.to_owned());
        let name_of = |path: Option<&Path>| place(path?.file_name()?.to_str()?);
        let Some(own) = name_of(Some(&target)) else {
            return;
        };

        let parent = name_of(target.parent()).unwrap_or_else(|| ["*"; 4].map(str::to_owned));
        let identification = |(file, digits): (&str, usize)| {
            let text = sysfs::text(&directory.join(file))?;
            let number = u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
            Some(format!("0x{number:0digits$x}"))
        };
        let ids = IDENTIFICATIONS.into_iter().map(identification);
        let Some(ids) = ids.collect::<Option<Vec<_>>>() else {
            return;
        };

        let values = own.iter().chain(&parent).chain(&ids).map(String::as_str);
        let mut labels: Vec<_> = INFO.labels.iter().copied().zip(values).collect();
        let names = self.names.as_mut();
        let names = names.into_iter().flat_map(|names| names.of(&ids));

        labels.extend(NAME_LABELS.into_iter().zip(names.map(String::as_str)));
        out.push_foreign(INFO.name, Kind::Gauge, INFO.help, &labels, 1.0);

        for ((file, missing), metric) in NUMBERS.iter().zip(&METRICS[3..]) {
            let text = sysfs::text(&directory.join(file));
            let value = text.as_deref().and_then(number).unwrap_or(*missing);
            out.push(metric, &own, value);
        }

        if let Some(now) = sysfs::text(&directory.join("power_state")) {
            for state in POWER_STATES {
                let labels = [own.as_slice(), &[state.to_owned()]].concat();
                out.push(&POWER, &labels, flag(now == state));
            }
        }

        // -1 stands for a device that is near no node.
        let node = sysfs::number::<i32>(&directory.join("numa_node"));
        if let Some(node) = node.filter(|node| *node != -1) {
            out.push(&NUMA_NODE, &own, f64::from(node));
        }
    }
}

/// `0000:a2:00.1`: segment, bus, device, function.
fn place(name: &str) -> Option<[String; 4]> {
    let (rest, function) = name.split_once('.')?;
    let parts = rest.split(':').chain([function]);
    let mut parts = parts.map(|part| u32::from_str_radix(part, 16).ok());
    let mut next = || parts.next().flatten();
    let [segment, bus, device, function] = [next()?, next()?, next()?, next()?];

    Some([
        format!("{segment:04x}"),
        format!("{bus:02x}"),
        format!("{device:02x}"),
        format!("{function:x}"),
    ])
}

/// `16.0 GT/s PCIe` and plain numbers.
fn number(text: &str) -> Option<f64> {
    match text.split_once(" GT/s") {
        Some((gigatransfers, _)) => Some(gigatransfers.parse::<f64>().ok()? * 1e9),
        None => text.parse::<u32>().ok().map(f64::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_numbers() {
        assert_eq!(place("0000:a2:00.1").unwrap(), ["0000", "a2", "00", "1"]);
        assert_eq!(
            (place("pci0000:00"), place("0000:a2"), place("")),
            (None, None, None)
        );
        assert_eq!(
            (number("2.5 GT/s PCIe"), number("16"), number("Unknown")),
            (Some(2.5e9), Some(16.0), None)
        );
    }
}
