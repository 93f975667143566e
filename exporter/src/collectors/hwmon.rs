//! Sensors: temperatures, fans, voltages, currents, power.
//!
//! Source: `/sys/class/hwmon/hwmon*`. A file's name gives the kind of sensor, its number and the
//! element: `temp1_input`, `fan2_min`. The kernel counts thousandths or millionths; we publish
//! degrees Celsius, volts, amperes, watts and joules. Sensors behind a board controller may take
//! hundreds of milliseconds, so this collector has a thread.

use crate::collector::{CollectError, Collector, flag};
use crate::filter::{NameFilter, NamePattern};
use crate::paths::Paths;
use crate::sysfs;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use takt_model::{Family, Kind, Metric, Samples};

/// Flags of the collector `hwmon`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct HwmonOptions {
    /// Chips to include.
    #[arg(
        long = "collector.hwmon.chip-include",
        value_name = "REGEXP",
        conflicts_with = "hwmon-chip-exclude"
    )]
    pub chip_include: Option<NamePattern>,
    /// Chips to leave out.
    #[arg(
        id = "hwmon-chip-exclude",
        long = "collector.hwmon.chip-exclude",
        value_name = "REGEXP",
        default_value = ""
    )]
    pub chip_exclude: NamePattern,
    /// Sensors to include, as CHIP;SENSOR.
    #[arg(
        long = "collector.hwmon.sensor-include",
        value_name = "REGEXP",
        conflicts_with = "hwmon-sensor-exclude"
    )]
    pub sensor_include: Option<NamePattern>,
    /// Sensors to leave out, as CHIP;SENSOR.
    #[arg(
        id = "hwmon-sensor-exclude",
        long = "collector.hwmon.sensor-exclude",
        value_name = "REGEXP",
        default_value = ""
    )]
    pub sensor_exclude: NamePattern,
}

struct Hwmon {
    class: PathBuf,
    chips: NameFilter,
    sensors: NameFilter,
}

const SENSOR: &[&str] = &["chip", "sensor"];
const CHIP_NAMES: Metric = Metric::gauge(
    "node_hwmon_chip_names",
    "Annotation metric for human-readable chip names",
    &["chip", "chip_name"],
);
const SENSOR_LABEL: Metric = Metric::gauge(
    "node_hwmon_sensor_label",
    "Label for given chip and sensor",
    &["chip", "sensor", "label"],
);
const BEEP: Metric = Metric::gauge("node_hwmon_beep_enabled", "Hardware beep enabled", SENSOR);
const REGULATOR: Metric = Metric::gauge(
    "node_hwmon_voltage_regulator_version",
    "Hardware voltage regulator",
    SENSOR,
);
const INTERVAL: Metric = Metric::gauge(
    "node_hwmon_update_interval_seconds",
    "Hardware monitor update interval",
    SENSOR,
);

macro_rules! families {
    ($($kind:literal,)*) => {
        /// Kinds of sensors whose files all become metrics. Gauges, but for `energy`. The help
        /// texts are [`help`]'s.
        const FAMILIES: &[Family] = &[$(Family {
            prefix: concat!("node_hwmon_", $kind),
            help: concat!("Hardware monitor, ", $kind, "{}"),
            kind: Kind::Gauge,
            labels: SENSOR,
        }),*];
    };
}

families! { "in", "cpu", "fan", "pwm", "temp", "curr", "power", "energy", "humidity", "intrusion", "freq", }
const OTHER_KINDS: [&str; 3] = ["vrm", "beep_enable", "update_interval"];
const PREFIX: &str = "node_hwmon_";

/// No board has more sensors times files.
const MAX_SERIES: usize = 8192;

pub(crate) fn new(paths: &Paths, options: &HwmonOptions) -> Box<dyn Collector> {
    let HwmonOptions {
        chip_include,
        chip_exclude,
        sensor_include,
        sensor_exclude,
    } = options.clone();
    Box::new(Hwmon {
        class: paths.sysfs.join("class/hwmon"),
        chips: NameFilter::new(chip_include, chip_exclude),
        sensors: NameFilter::new(sensor_include, sensor_exclude),
    })
}

impl Collector for Hwmon {
    fn metrics(&self) -> &'static [Metric] {
        &[CHIP_NAMES, SENSOR_LABEL, BEEP, REGULATOR, INTERVAL]
    }

    fn families(&self) -> &'static [Family] {
        FAMILIES
    }

    fn max_series(&self) -> usize {
        MAX_SERIES
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let chips = chips(&self.class)
            .map_err(|source| CollectError::read(&self.class, source).or_absent("no sensors"))?;

        for chip in &chips {
            let label = chip.label(&chips);
            if self.chips.passes(&label) {
                push_chip(&label, chip, &mut self.sensors, out);
            }
        }
        Ok(())
    }
}

/// A directory of `/sys/class/hwmon`.
struct Chip {
    directory: PathBuf,
    /// Name of the directory: `hwmon3`. It depends on the order in which drivers were loaded.
    number: String,
    /// Name of the device behind the chip, which does not.
    device: String,
    /// Name that the driver gives in the file `name`; may be empty.
    driver: String,
}

/// The chips, in the order of their directories.
fn chips(class: &Path) -> io::Result<Vec<Chip>> {
    let mut chips = Vec::new();
    for number in sysfs::names(class, "")? {
        let directory = class.join(&number);
        let driver = sysfs::text(&directory.join("name")).unwrap_or_default();
        if let Some(device) = device(&directory, &driver) {
            chips.push(Chip {
                directory,
                number,
                device,
                driver,
            });
        }
    }
    Ok(chips)
}

impl Chip {
    /// The label `chip`. Chips of one device are distinguished by their drivers, or by their
    /// numbers if the drivers are the same as well.
    fn label(&self, all: &[Self]) -> String {
        let same_device = |other: &&Self| other.device == self.device;
        let siblings: Vec<_> = all.iter().filter(same_device).collect();
        if siblings.len() == 1 {
            return self.device.clone();
        }

        let driver = clean(&self.driver);
        let same_driver = siblings.iter().filter(|chip| chip.driver == self.driver);
        let suffix = if driver.is_empty() || same_driver.count() > 1 {
            clean(&self.number)
        } else {
            driver
        };

        format!("{}_{suffix}", self.device)
    }
}

/// The files of one sensor, by element.
#[derive(Default)]
struct Sensor {
    kind: String,
    /// `""` for a file that is the sensor itself, as `pwm1`.
    files: BTreeMap<String, String>,
}

fn push_chip(label: &str, chip: &Chip, filter: &mut NameFilter, out: &mut Samples) {
    let device = chip.directory.join("device");
    let mut sensors = BTreeMap::new();

    // Reading the sensors of a GPU would wake it.
    if !sysfs::is_sleeping_gpu(&device) {
        gather(&chip.directory, &mut sensors);
        // Some drivers have their files in the directory of the device.
        gather(&device, &mut sensors);
    }

    let driver = clean(&chip.driver);
    if !driver.is_empty() {
        out.push(&CHIP_NAMES, &[label, &driver], 1.0);
    }

    for (name, sensor) in &sensors {
        if !filter.passes(&format!("{label};{name}")) {
            continue;
        }
        if let Some(text) = sensor.files.get("label") {
            out.push(&SENSOR_LABEL, &[label, name, text], 1.0);
        }
        push_sensor(label, name, sensor, out);
    }
}

fn push_sensor(chip: &str, name: &str, sensor: &Sensor, out: &mut Samples) {
    let own = sensor.files.get("").map(String::as_str);
    let own_number = own.and_then(|value| value.parse::<f64>().ok());

    let labels = [chip, name];
    match (sensor.kind.as_str(), own_number) {
        // These kinds have one file each, the others a file for each element.
        ("beep_enable", _) => out.push(&BEEP, &labels, flag(own == Some("1"))),
        ("vrm", Some(version)) => out.push(&REGULATOR, &labels, version),
        ("update_interval", Some(millis)) => out.push(&INTERVAL, &labels, millis * 0.001),
        ("vrm" | "update_interval", None) => {}
        _ => push_family(chip, name, sensor, out),
    }
}

/// A series for each file of a sensor, under the name of its kind's family.
fn push_family(chip: &str, name: &str, sensor: &Sensor, out: &mut Samples) {
    let Some(family) = family_of(&sensor.kind) else {
        return;
    };
    let kind = match sensor.kind.as_str() {
        "energy" => Kind::Counter,
        _ => family.kind,
    };
    // `pwm1` is the value itself, and `temp1` has `temp1_input`.
    let has_own_file = sensor.files.contains_key("");
    let frequency_label = sensor.files.get("label").map(|label| clean(label));

    for (element, value) in &sensor.files {
        if element == "label" {
            continue;
        }
        let Ok(value) = value.parse::<f64>() else {
            continue;
        };

        let sensor_name = match (sensor.kind.as_str(), element.as_str()) {
            // node_exporter names a clock by its label, and leaves out clocks without one.
            ("freq", "input") => match &frequency_label {
                Some(label) => label,
                None => continue,
            },
            _ => name,
        };

        let (field, scaled) = field(&sensor.kind, element, has_own_file, value);
        let metric = format!("{}{field}", family.prefix);
        let help = help(&sensor.kind, element);
        let labels = [(SENSOR[0], chip), (SENSOR[1], sensor_name)];
        out.push_foreign(&metric, kind, &help, &labels, scaled);
    }
}

fn family_of(kind: &str) -> Option<&'static Family> {
    FAMILIES
        .iter()
        .find(|family| &family.prefix[PREFIX.len()..] == kind)
}

/// node_exporter's help text.
fn help(kind: &str, element: &str) -> String {
    match (kind, element) {
        (_, "fault" | "alarm") => format!("Hardware sensor {element} status ({kind})"),
        (_, "beep") => "Hardware monitor sensor has beeping enabled".into(),
        ("in" | "cpu", _) => format!("Hardware monitor for voltage ({element})"),
        ("temp", "") => "Hardware monitor for temperature (input)".into(),
        ("temp", "type") => format!("Hardware monitor {kind} element {element}"),
        ("temp", _) => format!("Hardware monitor for temperature ({element})"),
        ("curr", _) => format!("Hardware monitor for current ({element})"),
        ("energy", _) => format!("Hardware monitor for joules used so far ({element})"),
        ("power", "accuracy") => "Hardware monitor power meter accuracy, as a ratio".into(),
        ("power", "average_interval" | "average_interval_min" | "average_interval_max") => {
            format!("Hardware monitor power usage update interval ({element})")
        }
        ("power", _) => format!("Hardware monitor for power usage in watts ({element})"),
        ("humidity", _) => format!(
            "Hardware monitor for humidity, as a ratio \
             (multiply with 100.0 to get the humidity as a percentage) ({element})"
        ),
        ("fan", "input" | "min" | "max" | "target") => {
            format!("Hardware monitor for fan revolutions per minute ({element})")
        }
        ("freq", "input") => "Hardware monitor for GPU frequency in MHz".into(),
        _ => format!("Hardware monitor {kind} element {element}"),
    }
}

/// The rest of the metric's name, and the value in its base unit.
fn field(kind: &str, element: &str, has_own_file: bool, value: f64) -> (String, f64) {
    // "input" is the sensor's value, unless a file without an element is.
    let mut part = match element {
        "" => String::new(),
        "input" if !has_own_file => String::new(),
        other => format!("_{}", clean(other)),
    };

    // Only `fault` and `alarm` themselves are flags: node_exporter scales `crit_alarm`, too.
    let (unit, value) = match (kind, element) {
        (_, "fault" | "alarm") => ("", value),
        (_, "beep") => ("_enabled", value),
        ("in" | "cpu", _) => ("_volts", value * 0.001),
        ("temp", "type") => ("", value),
        ("temp", _) => ("_celsius", value * 0.001),
        ("curr", _) => ("_amps", value * 0.001),
        ("energy", _) => ("_joule_total", value / 1e6),
        ("power", "accuracy") | ("humidity", _) => ("", value / 1e6),
        ("power", "average_interval" | "average_interval_min" | "average_interval_max") => {
            ("_seconds", value * 0.001)
        }
        ("power", _) => ("_watt", value / 1e6),
        ("fan", "input" | "min" | "max" | "target") => ("_rpm", value),
        ("freq", "input") => ("_freq_mhz", value / 1e6),
        _ => ("", value),
    };

    part.push_str(unit);
    (part, value)
}

fn gather(directory: &Path, sensors: &mut BTreeMap<String, Sensor>) {
    for file in sysfs::names(directory, "").unwrap_or_default() {
        let Some((kind, number, element)) = take_apart(&file) else {
            continue;
        };

        let is_known = OTHER_KINDS.contains(&kind) || family_of(kind).is_some();
        if !is_known {
            continue;
        }

        let Some(value) = sysfs::text(&directory.join(&file)) else {
            continue;
        };

        // Several files make up one sensor.
        let sensor = sensors.entry(format!("{kind}{number}")).or_default();
        kind.clone_into(&mut sensor.kind);
        sensor.files.insert(element.to_owned(), value);
    }
}

/// `temp1_crit_alarm` is sensor 1 of kind `temp`, element `crit_alarm`; no number is 0.
fn take_apart(file: &str) -> Option<(&str, u32, &str)> {
    let is_digit = |letter: char| letter.is_ascii_digit();
    let (kind, rest) = file.split_at(file.find(is_digit).unwrap_or(file.len()));
    let end = rest
        .find(|letter: char| !is_digit(letter))
        .unwrap_or(rest.len());
    let (number, element) = rest.split_at(end);

    let number = if number.is_empty() {
        0
    } else {
        number.parse().ok()?
    };

    match (kind, element.strip_prefix('_')) {
        ("", _) => None,
        (_, Some("")) => None,
        (_, Some(element)) => Some((kind, number, element)),
        // Behind the number comes an underscore or nothing.
        (_, None) => element.is_empty().then_some((kind, number, "")),
    }
}

/// The name of the device behind a chip, with its bus; else the driver's name, else the
/// directory's.
fn device(directory: &Path, driver: &str) -> Option<String> {
    let named = |path: &Path| {
        let name = clean(path.file_name()?.to_str()?);
        (!name.is_empty()).then_some(name)
    };

    // The path of the device does not depend on the order in which drivers were loaded.
    if let Ok(device) = directory.join("device").canonicalize()
        && let Some(name) = named(&device)
    {
        let bus = device.parent().and_then(named);
        return Some(bus.map_or(name.clone(), |bus| format!("{bus}_{name}")));
    }

    let driver = clean(driver);
    if driver.is_empty() {
        named(&directory.canonicalize().ok()?)
    } else {
        Some(driver)
    }
}

/// As node_exporter writes names that the hardware chose.
fn clean(name: &str) -> String {
    let is_plain = |letter: char| {
        letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, ':' | '_')
    };

    let lower = name.to_lowercase();
    let replaced: String = lower
        .chars()
        .map(|letter| if is_plain(letter) { letter } else { '_' })
        .collect();
    replaced.trim_matches('_').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names() {
        assert_eq!(take_apart("temp1_input"), Some(("temp", 1, "input")));
        assert_eq!(
            take_apart("temp12_crit_alarm"),
            Some(("temp", 12, "crit_alarm"))
        );
        assert_eq!(take_apart("pwm2"), Some(("pwm", 2, "")));
        assert_eq!(
            take_apart("update_interval"),
            Some(("update_interval", 0, ""))
        );
        for name in ["", "1", "temp1_", "temp1x", "temp99999999999_input"] {
            assert_eq!(take_apart(name), None, "{name}");
        }
    }

    #[test]
    fn units() {
        let is = |kind, element, own, value| field(kind, element, own, value);
        assert_eq!(
            is("temp", "input", false, 45_000.0),
            ("_celsius".into(), 45.0)
        );
        assert_eq!(is("temp", "type", false, 4.0), ("_type".into(), 4.0));
        assert_eq!(
            is("temp", "crit_alarm", false, 1.0),
            ("_crit_alarm_celsius".into(), 0.001),
            "as node_exporter has it"
        );
        assert_eq!(is("in", "alarm", false, 1.0), ("_alarm".into(), 1.0));
        assert_eq!(is("fan", "input", false, 900.0), ("_rpm".into(), 900.0));
        assert_eq!(is("fan", "div", false, 2.0), ("_div".into(), 2.0));
        assert_eq!(
            is("power", "average", false, 5e6),
            ("_average_watt".into(), 5.0)
        );
        assert_eq!(is("power", "input", true, 5e6), ("_input_watt".into(), 5.0));
        assert_eq!(
            is("energy", "input", false, 5e6),
            ("_joule_total".into(), 5.0)
        );
        assert_eq!(clean("  AMD k10-Temp\u{e9}"), "amd_k10_temp");
    }

    fn page(class: &Path) -> Vec<String> {
        let pattern = || "".parse().unwrap();
        let mut hwmon = Hwmon {
            class: class.to_owned(),
            chips: NameFilter::excluding(pattern()),
            sensors: NameFilter::excluding(pattern()),
        };
        let mut samples = Samples::new();
        hwmon.collect(&mut samples).unwrap();
        let mut page = String::new();
        takt_model::exposition::write_page(
            takt_model::exposition::Format::Text,
            [&samples],
            &mut page,
        );
        page.lines()
            .filter(|line| !line.starts_with("# TYPE"))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn a_gpu_that_sleeps_is_not_woken() {
        let sysfs = tempfile::tempdir().unwrap();
        let chip = sysfs.path().join("class/hwmon/hwmon0");
        let device = sysfs
            .path()
            .join("devices/pci0000:00/0000:00:01.0/0000:01:00.0");
        std::fs::create_dir_all(device.join("power")).unwrap();
        std::fs::create_dir_all(&chip).unwrap();
        std::os::unix::fs::symlink(&device, chip.join("device")).unwrap();
        std::fs::write(chip.join("name"), "amdgpu\n").unwrap();
        std::fs::write(chip.join("temp1_input"), "41000\n").unwrap();
        let has_temperature = |class: &str, status: &str| {
            std::fs::write(device.join("class"), class).unwrap();
            std::fs::write(device.join("power/runtime_status"), status).unwrap();
            let page = page(&sysfs.path().join("class/hwmon"));
            assert!(page.iter().any(|line| line.contains("chip_names{")));
            page.iter().any(|line| line.contains("temp_celsius{"))
        };

        // PCI's class 0x03 is that of displays, and 0x0108 that of NVMe disks.
        assert!(has_temperature("0x030000\n", "active\n"));
        assert!(!has_temperature("0x030000\n", "suspended\n"));
        assert!(!has_temperature("0x038000\n", "suspended\n"));
        assert!(has_temperature("0x010802\n", "suspended\n"), "a disk");
    }

    /// Three chips of one device, two of them of one driver, and a chip of its own.
    #[test]
    fn chips_of_one_device_keep_their_sensors() {
        let sysfs = tempfile::tempdir().unwrap();
        let class = sysfs.path().join("class/hwmon");
        let device = sysfs.path().join("devices/platform/asus-nb-wmi");
        let other = sysfs.path().join("devices/platform/coretemp.0");
        for device in [&device, &other] {
            std::fs::create_dir_all(device).unwrap();
        }
        for (number, name, device) in [
            ("hwmon0", "asus_fan", &device),
            ("hwmon1", "asus_wmi", &device),
            ("hwmon2", "asus_wmi", &device),
            ("hwmon3", "coretemp", &other),
        ] {
            let directory = class.join(number);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("name"), format!("{name}\n")).unwrap();
            std::fs::write(directory.join("temp1_input"), "41000\n").unwrap();
            std::os::unix::fs::symlink(device, directory.join("device")).unwrap();
        }
        let chips = page(&class);
        let chips: Vec<_> = chips
            .iter()
            .filter_map(|line| line.strip_prefix("node_hwmon_temp_celsius"))
            .collect();
        assert_eq!(
            chips,
            [
                r#"{chip="platform_asus_nb_wmi_asus_fan",sensor="temp1"} 41"#,
                r#"{chip="platform_asus_nb_wmi_hwmon1",sensor="temp1"} 41"#,
                r#"{chip="platform_asus_nb_wmi_hwmon2",sensor="temp1"} 41"#,
                r#"{chip="platform_coretemp_0",sensor="temp1"} 41"#,
            ]
        );
    }

    #[test]
    fn clocks_are_named_by_their_labels() {
        let class = tempfile::tempdir().unwrap();
        let directory = class.path().join("hwmon0");
        std::fs::create_dir_all(&directory).unwrap();
        for (file, text) in [
            ("name", "amdgpu"),
            ("freq1_input", "1500000000"),
            ("freq1_label", "sclk"),
            ("freq2_input", "96000000"),
        ] {
            std::fs::write(directory.join(file), text).unwrap();
        }
        assert_eq!(
            page(class.path())[2..],
            [
                "# HELP node_hwmon_sensor_label Label for given chip and sensor",
                r#"node_hwmon_sensor_label{chip="amdgpu",sensor="freq1",label="sclk"} 1"#,
                "# HELP node_hwmon_freq_freq_mhz Hardware monitor for GPU frequency in MHz",
                r#"node_hwmon_freq_freq_mhz{chip="amdgpu",sensor="sclk"} 1500"#,
            ]
        );
    }
}
