//! `takt probe`: what a switch, PDU or UPS says now, and a page with the metrics of devices.

use super::one_thread;
use crate::cli::Place;
use crate::output::{self, stdout};
use crate::place;
use anyhow::anyhow;
use clap::{Args, ValueEnum};
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use takt_model::shown::visible_json;
use takt_model::words;
use takt_probe::{
    DeviceConfig, DeviceProbe, DeviceReading, DeviceSensor, SensorQuantity, SnmpDigest,
    SnmpPrivacy, SwitchPort, UpsReading,
};
use takt_questions::listing::{Column, Listing, printable};
use takt_server::serve::signals;
use takt_server::{Failure, OrUsage, serve_devices};

/// Joules of a kilowatt-hour.
const JOULES_PER_KWH: f64 = 3.6e6;

#[derive(Debug, Args)]
pub struct Probe {
    /// Device: a name of [[devices]], or a host or host:port with --community-file or --user
    #[arg(
        value_name = "DEVICE",
        required_unless_present_any = ["all", "listen"],
        conflicts_with_all = ["all", "listen"]
    )]
    pub device: Option<String>,
    /// All devices of the configuration
    #[arg(long, conflicts_with = "listen")]
    pub all: bool,
    /// Ask the devices of the configuration again and again, and serve their metrics at this address (/metrics)
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    #[command(flatten)]
    pub access: ProbeAccess,
    /// Output format
    #[arg(long, value_enum, default_value_t, conflicts_with = "listen")]
    pub format: ProbeFormat,
}

/// Access to a device without configuration.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Without configuration")]
pub struct ProbeAccess {
    /// File with the community (SNMP v2c)
    #[arg(
        long,
        value_name = "FILE",
        requires = "device",
        conflicts_with = "user"
    )]
    pub community_file: Option<PathBuf>,
    /// User (SNMP v3)
    #[arg(
        long,
        value_name = "NAME",
        requires_all = ["device", "auth_file", "privacy_file"]
    )]
    pub user: Option<String>,
    /// File with the password for authentication
    #[arg(long, value_name = "FILE", requires = "user")]
    pub auth_file: Option<PathBuf>,
    /// Digest: MD5, SHA, SHA-224, SHA-256, SHA-384, SHA-512 [default: SHA-256]
    #[arg(long, value_name = "NAME", requires = "user")]
    pub auth_protocol: Option<SnmpDigest>,
    /// File with the password for encryption
    #[arg(long, value_name = "FILE", requires = "user")]
    pub privacy_file: Option<PathBuf>,
    /// Encryption: AES, AES-192, AES-256, AES-192-C, AES-256-C [default: AES]
    #[arg(long, value_name = "NAME", requires = "user")]
    pub privacy_protocol: Option<SnmpPrivacy>,
}

/// Output format of a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ProbeFormat {
    #[default]
    Table,
    Json,
}

impl ProbeAccess {
    /// The device at an address that the options give access to; `None` without them.
    fn device(&self, address: &str) -> Option<DeviceConfig> {
        if self.community_file.is_none() && self.user.is_none() {
            return None;
        }
        Some(DeviceConfig {
            community_file: self.community_file.clone(),
            user: self.user.clone(),
            auth_file: self.auth_file.clone(),
            auth_protocol: self.auth_protocol.unwrap_or_default(),
            privacy_file: self.privacy_file.clone(),
            privacy_protocol: self.privacy_protocol.unwrap_or_default(),
            ..DeviceConfig::at(address, address)
        })
    }
}

/// Runs the command. Fails if a device does not answer.
pub fn run(place: &Place, asked: &Probe) -> Result<(), Failure> {
    let devices = devices(place, asked).usage()?;
    if let Some(address) = asked.listen {
        return Ok(one_thread()?.block_on(async {
            let shutdown = signals()?;
            serve_devices(devices, address, shutdown).await
        })?);
    }

    let readings = one_thread()?.block_on(ask_all(devices));
    let mut out = BufWriter::new(stdout());
    match asked.format {
        ProbeFormat::Table => {
            for (at, reading) in readings.iter().enumerate() {
                if at > 0 {
                    writeln!(out)?;
                }
                write_reading(reading, &mut out)?;
            }
        }
        ProbeFormat::Json => {
            let json = serde_json::to_string_pretty(&readings)?;
            writeln!(out, "{}", visible_json(&json))?;
        }
    }
    out.flush()?;

    match readings.iter().filter(|reading| !reading.is_up).count() {
        0 => Ok(()),
        1 if readings.len() == 1 => Err(anyhow!("the device does not answer").into()),
        down => Err(anyhow!("{down} of {} devices do not answer", readings.len()).into()),
    }
}

/// Returns the devices that the command line names.
fn devices(place: &Place, asked: &Probe) -> anyhow::Result<Vec<DeviceConfig>> {
    if let Some(name) = &asked.device
        && let Some(device) = asked.access.device(name)
    {
        device.validate()?;
        return Ok(vec![device]);
    }

    let devices = place::load(place)?.devices;
    let Some(name) = &asked.device else {
        let missing = || anyhow!("the configuration has no [[devices]]; see docs/devices.md");
        return if devices.is_empty() {
            Err(missing())
        } else {
            Ok(devices)
        };
    };
    let found = devices.into_iter().find(|device| device.name == *name);
    found.map(|device| vec![device]).ok_or_else(|| {
        anyhow!(
            "no [[devices]] has the name {}; for an address, add --community-file FILE (v2c), or --user NAME \
             --auth-file FILE --privacy-file FILE (v3)",
            printable(name)
        )
    })
}

/// Asks all devices at the same time. Returns their readings in the order of the configuration.
async fn ask_all(devices: Vec<DeviceConfig>) -> Vec<DeviceReading> {
    let asking = devices
        .into_iter()
        .map(|device| async move { DeviceProbe::new(device).ask().await });
    futures_util::future::join_all(asking).await
}

/// Writes a device as lines and tables. Texts of devices have no control characters.
fn write_reading(reading: &DeviceReading, out: &mut dyn Write) -> io::Result<()> {
    let name = printable(&reading.device);
    if reading.name.is_empty() || reading.name == reading.device {
        writeln!(out, "{name} ({})", reading.address)?;
    } else {
        writeln!(out, "{name} ({}), {}", reading.address, reading.name)?;
    }
    if !reading.description.is_empty() {
        writeln!(out, "{}", reading.description)?;
    }
    if reading.is_up {
        let uptime = reading.uptime_seconds.map_or_else(String::new, |seconds| {
            format!("up {}, ", words::duration(seconds))
        });
        let (profile, requests) = (reading.profile, reading.requests);
        let seconds = reading.duration_seconds;
        writeln!(
            out,
            "{uptime}profile {profile}, {requests} requests in {seconds:.2} s"
        )?;
    }
    for problem in &reading.problems {
        writeln!(
            out,
            "not read: {}: {}",
            problem.part,
            printable(&problem.text)
        )?;
    }

    let tables = [
        ports(reading),
        neighbors(reading),
        inputs(reading),
        outlets(reading),
        reading.ups.as_ref().map(ups),
        sensors(reading),
    ];
    for table in tables.into_iter().flatten() {
        writeln!(out)?;
        table.write_table(output::width(), out)?;
    }
    Ok(())
}

fn ports(reading: &DeviceReading) -> Option<Listing> {
    let columns = [
        Column::Text("port"),
        Column::Text("text"),
        Column::Text("link"),
        Column::Id("speed"),
        Column::Id("received"),
        Column::Id("sent"),
        Column::Id("errors"),
        Column::Id("discards"),
    ];
    let mut table = Listing::new(&columns).omitting(&["discards"]);
    for port in &reading.ports {
        let bytes = |count: Option<u64>| with_unit(count.map(|count| count as f64), "B");
        let speed = port.speed_bits_per_second.map(|speed| speed as f64);
        table.push(vec![
            port.port.clone(),
            port.alias.clone(),
            link(port).to_owned(),
            with_unit(speed, "bit/s"),
            bytes(port.receive_bytes),
            bytes(port.transmit_bytes),
            pair(port.receive_errors, port.transmit_errors),
            pair(port.receive_discards, port.transmit_discards),
        ]);
    }
    (!reading.ports.is_empty()).then_some(table)
}

fn link(port: &SwitchPort) -> &'static str {
    match (port.is_enabled, port.is_up) {
        (Some(false), _) => "off",
        (_, Some(true)) => "up",
        (_, Some(false)) => "down",
        (_, None) => "",
    }
}

fn neighbors(reading: &DeviceReading) -> Option<Listing> {
    let columns = [
        Column::Text("port"),
        Column::Text("neighbor"),
        Column::Text("its port"),
    ];
    let mut table = Listing::new(&columns);
    for one in &reading.neighbors {
        let cells = [&one.port, &one.neighbor, &one.neighbor_port];
        table.push(cells.map(String::clone).to_vec());
    }
    (!reading.neighbors.is_empty()).then_some(table)
}

fn inputs(reading: &DeviceReading) -> Option<Listing> {
    let columns = [
        Column::Text("input"),
        Column::Id("power"),
        Column::Id("energy"),
    ];
    let mut table = Listing::new(&columns);
    for one in &reading.inputs {
        table.push(vec![
            one.input.clone(),
            watts(one.power_watts),
            kwh(one.energy_joules),
        ]);
    }
    (!reading.inputs.is_empty()).then_some(table)
}

fn outlets(reading: &DeviceReading) -> Option<Listing> {
    let columns = [
        Column::Text("outlet"),
        Column::Text("name"),
        Column::Id("power"),
        Column::Id("energy"),
    ];
    let mut table = Listing::new(&columns);
    for one in &reading.outlets {
        table.push(vec![
            one.outlet.clone(),
            one.name.clone(),
            watts(one.power_watts),
            kwh(one.energy_joules),
        ]);
    }
    (!reading.outlets.is_empty()).then_some(table)
}

fn ups(ups: &UpsReading) -> Listing {
    let mut table = Listing::new(&[Column::Text("UPS"), Column::Id("value")]);
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            table.push(vec![name.to_owned(), value]);
        }
    };
    let yes_no = |value: bool| if value { "yes" } else { "no" }.to_owned();
    add("on battery", ups.on_battery.map(yes_no));
    add("battery low", ups.battery_low.map(yes_no));
    add("charge", ups.battery_charge_ratio.map(words::percent));
    add(
        "lasts for",
        ups.battery_runtime_seconds.map(words::duration),
    );
    for line in &ups.lines {
        let power = line.power_watts.is_some().then(|| watts(line.power_watts));
        add(&format!("power of line {}", line.line), power);
        add(
            &format!("load of line {}", line.line),
            line.load_ratio.map(words::percent),
        );
    }
    table
}

fn sensors(reading: &DeviceReading) -> Option<Listing> {
    let mut table = Listing::new(&[Column::Text("sensor"), Column::Id("value")]);
    for one in &reading.sensors {
        table.push(vec![one.sensor.clone(), sensor_value(one)]);
    }
    (!reading.sensors.is_empty()).then_some(table)
}

fn sensor_value(sensor: &DeviceSensor) -> String {
    let value = sensor.value;
    match sensor.quantity {
        SensorQuantity::TemperatureCelsius => format!("{value:.1} °C"),
        SensorQuantity::FanRpm => format!("{} rpm", words::amount(value)),
        SensorQuantity::PowerWatts => watts(Some(value)),
        SensorQuantity::VoltageVolts => format!("{value:.2} V"),
        SensorQuantity::CurrentAmperes => format!("{value:.2} A"),
        SensorQuantity::HumidityRatio => words::percent(value),
    }
}

fn watts(value: Option<f64>) -> String {
    value.map_or_else(String::new, |watts| format!("{} W", words::amount(watts)))
}

fn kwh(joules: Option<f64>) -> String {
    joules.map_or_else(String::new, |joules| {
        format!("{} kWh", words::amount(joules / JOULES_PER_KWH))
    })
}

/// Counters of both directions as `3/0`: received, sent; empty if both are unknown.
fn pair(first: Option<u64>, second: Option<u64>) -> String {
    let shown = |count: Option<u64>| count.map_or_else(|| words::UNKNOWN.to_owned(), words::count);
    if first.is_none() && second.is_none() {
        String::new()
    } else {
        format!("{}/{}", shown(first), shown(second))
    }
}

/// A value with the prefix of its unit: `25 Gbit/s`, `5.1 TB`.
fn with_unit(value: Option<f64>, unit: &str) -> String {
    let Some(value) = value else {
        return String::new();
    };
    let prefixes = ["", "k", "M", "G", "T", "P", "E"];
    let mut rest = value;
    let mut at = 0;
    // From here on, rounding would show four digits.
    while rest >= 999.5 && at + 1 < prefixes.len() {
        rest /= 1000.0;
        at += 1;
    }
    let digits = if rest >= 9.95 || rest.fract() == 0.0 {
        0
    } else {
        1
    };
    format!("{rest:.digits$} {}{unit}", prefixes[at])
}

/// Whether the command runs until it is stopped.
pub fn keeps_running(asked: &Probe) -> bool {
    asked.listen.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_probe::LldpNeighbor;

    #[test]
    fn values_have_the_prefix_that_people_say() {
        let speed = |value| with_unit(Some(value), "bit/s");
        assert_eq!(speed(25e9), "25 Gbit/s");
        assert_eq!(speed(2.5e9), "2.5 Gbit/s");
        assert_eq!(speed(999.6e6), "1.0 Gbit/s");
        assert_eq!(with_unit(Some(5.04e12), "B"), "5.0 TB");
        assert_eq!(with_unit(Some(0.0), "B"), "0 B");
        assert_eq!(with_unit(None, "B"), "");
    }

    #[test]
    fn a_reading_fits_into_80_columns() {
        let port = |name: &str, alias: &str| SwitchPort {
            port: name.to_owned(),
            alias: alias.to_owned(),
            is_enabled: Some(true),
            is_up: Some(true),
            speed_bits_per_second: Some(100_000_000_000),
            receive_bytes: Some(5_123_456_789_012),
            transmit_bytes: Some(7_123_456_789_012),
            receive_errors: Some(3),
            transmit_errors: Some(0),
            receive_discards: Some(12_345),
            transmit_discards: Some(1),
            ..SwitchPort::default()
        };
        let reading = DeviceReading {
            ports: vec![
                port("Ethernet1/1", "to gpu01, the node with the H100s"),
                port("Port-Channel1", ""),
            ],
            neighbors: vec![LldpNeighbor {
                port: "Ethernet1/1".to_owned(),
                neighbor: "gpu01".to_owned(),
                neighbor_port: "ens1f0".to_owned(),
            }],
            ..DeviceReading::default()
        };
        for table in [ports(&reading), neighbors(&reading)].into_iter().flatten() {
            let mut out = Vec::new();
            table.write_table(Some(80), &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
            assert!(text.contains("Ethernet1/1"), "{text}");
        }
    }

    #[test]
    fn options_give_access_to_an_address() {
        let access = ProbeAccess {
            community_file: Some("c".into()),
            ..ProbeAccess::default()
        };
        let device = access.device("10.0.0.7:1161").unwrap();
        assert_eq!(device.validate(), Ok(()));
        assert_eq!(device.host_and_port(), Some(("10.0.0.7", 1161)));
        assert!(ProbeAccess::default().device("10.0.0.7").is_none());
    }
}
