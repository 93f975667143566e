//! Power supplies and batteries.
//!
//! Source: `/sys/class/power_supply`, in millionths of volts, amperes and watts and in tenths of
//! degrees.

use crate::collector::{CollectError, Collector, MAX_DEVICES, device_names};
use crate::filter::{NameFilter, NamePattern};
use crate::paths::Paths;
use crate::sysfs;
use std::path::PathBuf;
use takt_model::{Metric, Samples};

/// Flags of the collector `powersupplyclass`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct PowersupplyOptions {
    /// Power supplies to leave out.
    #[arg(
        long = "collector.powersupply.ignored-supplies",
        value_name = "REGEXP",
        default_value = "^$"
    )]
    pub ignored_supplies: NamePattern,
}

struct Powersupplyclass {
    class: PathBuf,
    filter: NameFilter,
}

const TEXTS: &[&str] = &[
    "capacity_level",
    "charge_type",
    "health",
    "manufacturer",
    "model_name",
    "serial_number",
    "status",
    "technology",
    "type",
    "usb_type",
    "scope",
];
const INFO: Metric = Metric::gauge(
    "node_power_supply_info",
    "info of /sys/class/power_supply/<power_supply>.",
    &[
        "power_supply",
        "capacity_level",
        "charge_type",
        "health",
        "manufacturer",
        "model_name",
        "serial_number",
        "status",
        "technology",
        "type",
        "usb_type",
        "scope",
    ],
);

macro_rules! numbers {
    ($($file:literal $divisor:literal $name:literal,)*) => {
        const NUMBERS: &[(&str, f64)] = &[$(($file, $divisor)),*];
        const METRICS: &[Metric] = &[INFO, $(Metric::gauge(
            concat!("node_power_supply_", $name),
            concat!($name, " value of /sys/class/power_supply/<power_supply>."),
            &["power_supply"],
        )),*];
    };
}

numbers! {
    "authentic" 1.0 "authentic",
    "calibrate" 1.0 "calibrate",
    "capacity" 1.0 "capacity",
    "capacity_alert_max" 1.0 "capacity_alert_max",
    "capacity_alert_min" 1.0 "capacity_alert_min",
    "cycle_count" 1.0 "cyclecount",
    "online" 1.0 "online",
    "present" 1.0 "present",
    "time_to_empty_now" 1.0 "time_to_empty_seconds",
    "time_to_full_now" 1.0 "time_to_full_seconds",
    "current_boot" 1e6 "current_boot",
    "current_max" 1e6 "current_max",
    "current_now" 1e6 "current_ampere",
    "energy_empty" 1e6 "energy_empty",
    "energy_empty_design" 1e6 "energy_empty_design",
    "energy_full" 1e6 "energy_full",
    "energy_full_design" 1e6 "energy_full_design",
    "energy_now" 1e6 "energy_watthour",
    "voltage_boot" 1e6 "voltage_boot",
    "voltage_max" 1e6 "voltage_max",
    "voltage_max_design" 1e6 "voltage_max_design",
    "voltage_min" 1e6 "voltage_min",
    "voltage_min_design" 1e6 "voltage_min_design",
    "voltage_now" 1e6 "voltage_volt",
    "voltage_ocv" 1e6 "voltage_ocv",
    "charge_control_limit" 1e6 "charge_control_limit",
    "charge_control_limit_max" 1e6 "charge_control_limit_max",
    "charge_counter" 1e6 "charge_counter",
    "charge_empty" 1e6 "charge_empty",
    "charge_empty_design" 1e6 "charge_empty_design",
    "charge_full" 1e6 "charge_full",
    "charge_full_design" 1e6 "charge_full_design",
    "charge_now" 1e6 "charge_ampere",
    "charge_term_current" 1e6 "charge_term_current",
    "constant_charge_current" 1e6 "constant_charge_current",
    "constant_charge_current_max" 1e6 "constant_charge_current_max",
    "constant_charge_voltage" 1e6 "constant_charge_voltage",
    "constant_charge_voltage_max" 1e6 "constant_charge_voltage_max",
    "precharge_current" 1e6 "precharge_current",
    "input_current_limit" 1e6 "input_current_limit",
    "power_now" 1e6 "power_watt",
    "temp" 10.0 "temp_celsius",
    "temp_alert_max" 10.0 "temp_alert_max_celsius",
    "temp_alert_min" 10.0 "temp_alert_min_celsius",
    "temp_ambient" 10.0 "temp_ambient_celsius",
    "temp_ambient_max" 10.0 "temp_ambient_max_celsius",
    "temp_ambient_min" 10.0 "temp_ambient_min_celsius",
    "temp_max" 10.0 "temp_max_celsius",
    "temp_min" 10.0 "temp_min_celsius",
}

pub(crate) fn new(paths: &Paths, options: &PowersupplyOptions) -> Box<dyn Collector> {
    Box::new(Powersupplyclass {
        class: paths.sysfs.join("class/power_supply"),
        filter: NameFilter::excluding(options.ignored_supplies.clone()),
    })
}

impl Collector for Powersupplyclass {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let supplies = device_names(&self.class, "", "no power supplies")?;

        for supply in supplies.iter().filter(|supply| self.filter.passes(supply)) {
            let directory = self.class.join(supply);
            // Most supplies have few of these files.
            let present = sysfs::names(&directory, "").unwrap_or_default();
            let is_present = |file: &str| {
                let place = present.binary_search_by(|name| name.as_str().cmp(file));
                place.is_ok()
            };

            for ((file, divisor), metric) in NUMBERS.iter().zip(&METRICS[1..]) {
                if !is_present(file) {
                    continue;
                }
                if let Some(value) = sysfs::number::<i64>(&directory.join(file)) {
                    out.push(metric, &[supply], value as f64 / divisor);
                }
            }

            let texts = TEXTS.iter().filter(|file| is_present(file));
            let texts = texts.filter_map(|file| Some((*file, sysfs::text(&directory.join(file))?)));
            let texts: Vec<_> = texts.filter(|(_, text)| !text.is_empty()).collect();

            let mut labels = vec![("power_supply", supply.as_str())];
            labels.extend(texts.iter().map(|(name, text)| (*name, text.as_str())));
            out.push_foreign(INFO.name, INFO.kind, INFO.help, &labels, 1.0);
        }
        Ok(())
    }
}
