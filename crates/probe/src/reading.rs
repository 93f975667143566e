//! What a device has said, as plain values in base units.

use serde::Serialize;

/// The answer of a device in one round. A value that the device does not have is absent, never 0.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct DeviceReading {
    /// Name in the configuration.
    pub device: String,
    /// Address in the configuration.
    pub address: String,
    /// Whether the device has said what it is.
    pub is_up: bool,
    /// Name of the profile that its `sysObjectID` has chosen; empty for a device that is not up.
    pub profile: &'static str,
    /// `sysName`: the name that its administrator gave it.
    pub name: String,
    /// `sysDescr`: maker, model and version, in the maker's words.
    pub description: String,
    /// `sysObjectID`: maker and model as a number.
    pub object_id: String,
    /// Time since the start of its network management, in seconds. It begins anew after 497 days.
    pub uptime_seconds: Option<f64>,
    /// Length of the round in seconds.
    pub duration_seconds: f64,
    /// Requests of the round.
    pub requests: u32,
    /// What is missing, and why.
    pub problems: Vec<DeviceProblem>,
    /// Physical ports and their aggregates.
    pub ports: Vec<SwitchPort>,
    /// Devices at the other ends of ports, at most ten minutes old.
    pub neighbors: Vec<LldpNeighbor>,
    /// Temperatures, fans and other sensors.
    pub sensors: Vec<DeviceSensor>,
    /// Inlets of a PDU.
    pub inputs: Vec<PduInput>,
    /// Metered outlets of a PDU.
    pub outlets: Vec<PduOutlet>,
    /// The UPS, if the device is one.
    pub ups: Option<UpsReading>,
}

/// A part of a device that could not be read, or not all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceProblem {
    /// `device` for all of it, or a part: `ports`, `neighbors`, `sensors`, `power`, `ups`.
    pub part: &'static str,
    /// A word for metrics: `no_answer`, `unreachable`, `timeout`, `refused`, `malformed`, `cut`, …
    pub reason: &'static str,
    /// The sentence for people.
    pub text: String,
}

/// A port of a switch. Counters are absent while the port has no link.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct SwitchPort {
    /// `ifName`, such as `Ethernet1/1`. `ifIndex` moves when many switches start, so it names nothing.
    pub port: String,
    /// `ifAlias`: what the administrator wrote; empty if nothing.
    pub alias: String,
    /// Whether the administrator has it on.
    pub is_enabled: Option<bool>,
    /// Whether it has a link.
    pub is_up: Option<bool>,
    /// Negotiated speed in bits per second; absent without a link.
    pub speed_bits_per_second: Option<u64>,
    /// Received bytes (64 bits).
    pub receive_bytes: Option<u64>,
    /// Sent bytes (64 bits).
    pub transmit_bytes: Option<u64>,
    /// Received packets with errors (32 bits; the counter wraps).
    pub receive_errors: Option<u64>,
    /// Packets that could not be sent because of errors (32 bits).
    pub transmit_errors: Option<u64>,
    /// Received packets that were dropped without an error, for lack of memory mostly (32 bits).
    pub receive_discards: Option<u64>,
    /// Packets to send that were dropped without an error, of a full queue mostly (32 bits).
    pub transmit_discards: Option<u64>,
    /// `uptime_seconds` at which the counters began anew; 0 for the start of the device.
    pub counters_since_uptime_seconds: Option<f64>,
}

/// A device at the other end of a port, by LLDP.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LldpNeighbor {
    /// The port of this device.
    pub port: String,
    /// Name of the other device, or its address.
    pub neighbor: String,
    /// Port of the other device.
    pub neighbor_port: String,
}

/// Quantity and unit of a sensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SensorQuantity {
    /// Temperature in degrees Celsius.
    TemperatureCelsius,
    /// Speed of a fan in revolutions per minute.
    FanRpm,
    /// Power in watts.
    PowerWatts,
    /// Voltage in volts.
    VoltageVolts,
    /// Current in amperes.
    CurrentAmperes,
    /// Relative humidity, 0 to 1.
    HumidityRatio,
}

/// A sensor of a device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceSensor {
    /// Name of the sensor, unique in the device.
    pub sensor: String,
    /// Quantity and unit.
    pub quantity: SensorQuantity,
    /// The value.
    pub value: f64,
}

/// An inlet of a PDU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PduInput {
    /// Number or name of the inlet.
    pub input: String,
    /// Active power in watts. It is more than the sum of the outlets: the PDU needs power itself.
    pub power_watts: Option<f64>,
    /// Energy since the meter was set back, in joules.
    pub energy_joules: Option<f64>,
}

/// A metered outlet of a PDU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PduOutlet {
    /// Number of the outlet, with the number of the PDU in front where several may be linked.
    pub outlet: String,
    /// What the administrator wrote; empty if nothing.
    pub name: String,
    /// Active power in watts.
    pub power_watts: Option<f64>,
    /// Energy since the meter was set back, in joules.
    pub energy_joules: Option<f64>,
}

/// The state of a UPS.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct UpsReading {
    /// Whether the load runs on the battery.
    pub on_battery: Option<bool>,
    /// Whether the UPS calls its battery low, depleted or faulty.
    pub battery_low: Option<bool>,
    /// Charge of the battery, 0 to 1.
    pub battery_charge_ratio: Option<f64>,
    /// Time that the battery lasts at the present load, in seconds, as the UPS estimates it.
    pub battery_runtime_seconds: Option<f64>,
    /// Output lines.
    pub lines: Vec<UpsLine>,
}

/// An output line of a UPS.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UpsLine {
    /// Number of the line.
    pub line: String,
    /// Active power in watts.
    pub power_watts: Option<f64>,
    /// Load as a share of the capacity; more than 1 is an overload.
    pub load_ratio: Option<f64>,
}

impl DeviceReading {
    /// Adds that a part could not be read, or not all of it.
    pub(crate) fn problem(&mut self, part: &'static str, reason: &'static str, text: String) {
        // A part has one series for a reason.
        let is_known = |known: &DeviceProblem| known.part == part && known.reason == reason;
        if !self.problems.iter().any(is_known) {
            self.problems.push(DeviceProblem { part, reason, text });
        }
    }
}
