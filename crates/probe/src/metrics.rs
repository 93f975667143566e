//! The metrics of devices, and the samples of a reading.

use crate::reading::{
    DeviceReading, DeviceSensor, PduInput, PduOutlet, SensorQuantity, SwitchPort, UpsReading,
};
use std::collections::BTreeSet;
use takt_model::Metric;

const UP: Metric = Metric::gauge(
    "takt_device_up",
    "1 if the device said in the last round what it is, else 0.",
    &["device"],
);
const INFO: Metric = Metric::gauge(
    "takt_device_info",
    "1. `profile` is the group of tables that were read; `name` and `description` are sysName and sysDescr of the device.",
    &["device", "address", "profile", "name", "description"],
);
const UPTIME: Metric = Metric::gauge(
    "takt_device_uptime_seconds",
    "Time since the network management of the device started (sysUpTime). It begins anew after 497 days.",
    &["device"],
);
const DURATION: Metric = Metric::gauge(
    "takt_device_probe_duration_seconds",
    "Length of the last round of questions to the device.",
    &["device"],
);
const REQUESTS: Metric = Metric::gauge(
    "takt_device_probe_requests",
    "Requests of the last round.",
    &["device"],
);
const PROBLEM: Metric = Metric::gauge(
    "takt_device_problem",
    "1 while a part of the device could not be read, or not all of it. `part` is device, ports, neighbors, sensors, power or ups; `problem` is no_answer, unreachable, secret, refused, timeout, too_big, too_many_requests, malformed or cut.",
    &["device", "part", "problem"],
);
const PORT_UP: Metric = Metric::gauge(
    "takt_switch_port_up",
    "1 if the port has a link, else 0.",
    &["device", "port", "alias"],
);
const PORT_ENABLED: Metric = Metric::gauge(
    "takt_switch_port_enabled",
    "1 if the administrator has the port on, else 0.",
    &["device", "port", "alias"],
);
const PORT_SPEED: Metric = Metric::gauge(
    "takt_switch_port_speed_bits_per_second",
    "Negotiated speed of the port. No series without a link.",
    &["device", "port", "alias"],
);
const PORT_RECEIVE_BYTES: Metric = Metric::counter(
    "takt_switch_port_receive_bytes_total",
    "Bytes that the port received: of the device behind it, what it sent. No series without a link, as for all counters of ports.",
    &["device", "port", "alias"],
);
const PORT_TRANSMIT_BYTES: Metric = Metric::counter(
    "takt_switch_port_transmit_bytes_total",
    "Bytes that the port sent.",
    &["device", "port", "alias"],
);
const PORT_RECEIVE_ERRORS: Metric = Metric::counter(
    "takt_switch_port_receive_errors_total",
    "Received packets with errors. The counter has 32 bits and wraps.",
    &["device", "port", "alias"],
);
const PORT_TRANSMIT_ERRORS: Metric = Metric::counter(
    "takt_switch_port_transmit_errors_total",
    "Packets that could not be sent because of errors. The counter has 32 bits and wraps.",
    &["device", "port", "alias"],
);
const PORT_RECEIVE_DISCARDS: Metric = Metric::counter(
    "takt_switch_port_receive_discards_total",
    "Received packets without errors that were dropped. The counter has 32 bits and wraps.",
    &["device", "port", "alias"],
);
const PORT_TRANSMIT_DISCARDS: Metric = Metric::counter(
    "takt_switch_port_transmit_discards_total",
    "Packets to send without errors that were dropped, mostly of a full queue. The counter has 32 bits and wraps.",
    &["device", "port", "alias"],
);
const PORT_COUNTERS_SINCE: Metric = Metric::gauge(
    "takt_switch_port_counters_since_uptime_seconds",
    "Uptime of the device at which the counters of the port began anew; 0 for its start.",
    &["device", "port", "alias"],
);
const NEIGHBOR: Metric = Metric::gauge(
    "takt_lldp_neighbor_info",
    "1 for each device at the other end of a port, by LLDP. Read every ten minutes.",
    &["device", "port", "neighbor", "neighbor_port"],
);
const TEMPERATURE: Metric = Metric::gauge(
    "takt_device_temperature_celsius",
    "Temperature of a sensor.",
    &["device", "sensor"],
);
const FAN: Metric = Metric::gauge(
    "takt_device_fan_rpm",
    "Speed of a fan, in revolutions per minute.",
    &["device", "sensor"],
);
const SENSOR_POWER: Metric = Metric::gauge(
    "takt_device_power_watts",
    "Power of a sensor, such as that of a power supply.",
    &["device", "sensor"],
);
const VOLTAGE: Metric = Metric::gauge(
    "takt_device_voltage_volts",
    "Voltage of a sensor.",
    &["device", "sensor"],
);
const CURRENT: Metric = Metric::gauge(
    "takt_device_current_amperes",
    "Current of a sensor.",
    &["device", "sensor"],
);
const HUMIDITY: Metric = Metric::gauge(
    "takt_device_humidity_ratio",
    "Relative humidity, 0 to 1.",
    &["device", "sensor"],
);
const PDU_POWER: Metric = Metric::gauge(
    "takt_pdu_power_watts",
    "Active power of an inlet of a PDU. It is more than the sum of the outlets: the PDU needs power itself.",
    &["device", "input"],
);
const PDU_ENERGY: Metric = Metric::counter(
    "takt_pdu_energy_joules_total",
    "Energy of an inlet of a PDU. The meter can be set back by hand.",
    &["device", "input"],
);
const OUTLET_POWER: Metric = Metric::gauge(
    "takt_pdu_outlet_power_watts",
    "Active power of an outlet of a PDU.",
    &["device", "outlet", "name"],
);
const OUTLET_ENERGY: Metric = Metric::counter(
    "takt_pdu_outlet_energy_joules_total",
    "Energy of an outlet of a PDU. The meter can be set back by hand.",
    &["device", "outlet", "name"],
);
const UPS_ON_BATTERY: Metric = Metric::gauge(
    "takt_ups_on_battery",
    "1 while the load of the UPS runs on its battery, else 0.",
    &["device"],
);
const UPS_BATTERY_LOW: Metric = Metric::gauge(
    "takt_ups_battery_low",
    "1 while the UPS calls its battery low, depleted or faulty, else 0.",
    &["device"],
);
const UPS_CHARGE: Metric = Metric::gauge(
    "takt_ups_battery_charge_ratio",
    "Charge of the battery, 0 to 1.",
    &["device"],
);
const UPS_RUNTIME: Metric = Metric::gauge(
    "takt_ups_battery_runtime_seconds",
    "Time that the battery lasts at the present load, as the UPS estimates it.",
    &["device"],
);
const UPS_POWER: Metric = Metric::gauge(
    "takt_ups_output_power_watts",
    "Active power of an output line of the UPS.",
    &["device", "line"],
);
const UPS_LOAD: Metric = Metric::gauge(
    "takt_ups_load_ratio",
    "Load of an output line as a share of its capacity; more than 1 is an overload.",
    &["device", "line"],
);

/// All metrics of devices.
pub const DEVICE_METRICS: &[Metric] = &[
    UP,
    INFO,
    UPTIME,
    DURATION,
    REQUESTS,
    PROBLEM,
    PORT_UP,
    PORT_ENABLED,
    PORT_SPEED,
    PORT_RECEIVE_BYTES,
    PORT_TRANSMIT_BYTES,
    PORT_RECEIVE_ERRORS,
    PORT_TRANSMIT_ERRORS,
    PORT_RECEIVE_DISCARDS,
    PORT_TRANSMIT_DISCARDS,
    PORT_COUNTERS_SINCE,
    NEIGHBOR,
    TEMPERATURE,
    FAN,
    SENSOR_POWER,
    VOLTAGE,
    CURRENT,
    HUMIDITY,
    PDU_POWER,
    PDU_ENERGY,
    OUTLET_POWER,
    OUTLET_ENERGY,
    UPS_ON_BATTERY,
    UPS_BATTERY_LOW,
    UPS_CHARGE,
    UPS_RUNTIME,
    UPS_POWER,
    UPS_LOAD,
];

/// A sample of a reading.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceSample {
    /// The metric, one of [`DEVICE_METRICS`].
    pub metric: &'static Metric,
    /// Values of its labels, in the order of their declaration.
    pub labels: Vec<String>,
    /// The value.
    pub value: f64,
}

/// Samples of one device. Its name is the first label of each.
struct DeviceSamples<'r> {
    device: &'r str,
    samples: Vec<DeviceSample>,
    /// Names and labels of the samples.
    series: BTreeSet<(&'static str, Vec<String>)>,
}

impl DeviceSamples<'_> {
    /// Adds a sample, if the device has the value.
    fn add(&mut self, metric: &'static Metric, labels: &[&str], value: Option<f64>) {
        let Some(value) = value else {
            return;
        };
        let mut all = vec![self.device.to_owned()];
        all.extend(labels.iter().map(|label| (*label).to_owned()));
        // Two tables of a device may name a sensor alike. Twice the same series would spoil the page for all devices.
        if !self.series.insert((metric.name, all.clone())) {
            return;
        }
        self.samples.push(DeviceSample {
            metric,
            labels: all,
            value,
        });
    }

    fn add_port(&mut self, port: &SwitchPort) {
        let labels = [port.port.as_str(), &port.alias];
        let count = |count: Option<u64>| count.map(|count| count as f64);
        for (metric, value) in [
            (&PORT_UP, flag(port.is_up)),
            (&PORT_ENABLED, flag(port.is_enabled)),
            (&PORT_SPEED, count(port.speed_bits_per_second)),
            (&PORT_RECEIVE_BYTES, count(port.receive_bytes)),
            (&PORT_TRANSMIT_BYTES, count(port.transmit_bytes)),
            (&PORT_RECEIVE_ERRORS, count(port.receive_errors)),
            (&PORT_TRANSMIT_ERRORS, count(port.transmit_errors)),
            (&PORT_RECEIVE_DISCARDS, count(port.receive_discards)),
            (&PORT_TRANSMIT_DISCARDS, count(port.transmit_discards)),
            (&PORT_COUNTERS_SINCE, port.counters_since_uptime_seconds),
        ] {
            self.add(metric, &labels, value);
        }
    }

    fn add_sensor(&mut self, sensor: &DeviceSensor) {
        let metric = match sensor.quantity {
            SensorQuantity::TemperatureCelsius => &TEMPERATURE,
            SensorQuantity::FanRpm => &FAN,
            SensorQuantity::PowerWatts => &SENSOR_POWER,
            SensorQuantity::VoltageVolts => &VOLTAGE,
            SensorQuantity::CurrentAmperes => &CURRENT,
            SensorQuantity::HumidityRatio => &HUMIDITY,
        };
        self.add(metric, &[&sensor.sensor], Some(sensor.value));
    }

    fn add_input(&mut self, input: &PduInput) {
        self.add(&PDU_POWER, &[&input.input], input.power_watts);
        self.add(&PDU_ENERGY, &[&input.input], input.energy_joules);
    }

    fn add_outlet(&mut self, outlet: &PduOutlet) {
        let labels = [outlet.outlet.as_str(), &outlet.name];
        self.add(&OUTLET_POWER, &labels, outlet.power_watts);
        self.add(&OUTLET_ENERGY, &labels, outlet.energy_joules);
    }

    fn add_ups(&mut self, ups: &UpsReading) {
        self.add(&UPS_ON_BATTERY, &[], flag(ups.on_battery));
        self.add(&UPS_BATTERY_LOW, &[], flag(ups.battery_low));
        self.add(&UPS_CHARGE, &[], ups.battery_charge_ratio);
        self.add(&UPS_RUNTIME, &[], ups.battery_runtime_seconds);
        for line in &ups.lines {
            self.add(&UPS_POWER, &[&line.line], line.power_watts);
            self.add(&UPS_LOAD, &[&line.line], line.load_ratio);
        }
    }
}

fn flag(value: Option<bool>) -> Option<f64> {
    value.map(|value| f64::from(u8::from(value)))
}

impl DeviceReading {
    /// Returns the samples of the reading. No two have the same metric and labels.
    pub fn samples(&self) -> Vec<DeviceSample> {
        let mut out = DeviceSamples {
            device: &self.device,
            samples: Vec::new(),
            series: BTreeSet::new(),
        };
        out.add(&UP, &[], flag(Some(self.is_up)));
        out.add(&DURATION, &[], Some(self.duration_seconds));
        out.add(&REQUESTS, &[], Some(f64::from(self.requests)));
        for problem in &self.problems {
            out.add(&PROBLEM, &[problem.part, problem.reason], Some(1.0));
        }
        if self.is_up {
            let labels = [
                self.address.as_str(),
                self.profile,
                &self.name,
                &self.description,
            ];
            out.add(&INFO, &labels, Some(1.0));
        }
        out.add(&UPTIME, &[], self.uptime_seconds);

        self.ports.iter().for_each(|port| out.add_port(port));
        for neighbor in &self.neighbors {
            let labels = [
                neighbor.port.as_str(),
                &neighbor.neighbor,
                &neighbor.neighbor_port,
            ];
            out.add(&NEIGHBOR, &labels, Some(1.0));
        }
        self.sensors
            .iter()
            .for_each(|sensor| out.add_sensor(sensor));
        self.inputs.iter().for_each(|input| out.add_input(input));
        self.outlets
            .iter()
            .for_each(|outlet| out.add_outlet(outlet));
        self.ups.iter().for_each(|ups| out.add_ups(ups));
        out.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_model::Kind;

    #[test]
    fn names_and_labels_follow_the_rules() {
        let names: BTreeSet<&str> = DEVICE_METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), DEVICE_METRICS.len());
        for metric in DEVICE_METRICS {
            assert_eq!(metric.labels.first(), Some(&"device"), "{}", metric.name);
            let is_counter = metric.kind == Kind::Counter;
            assert_eq!(
                metric.name.ends_with("_total"),
                is_counter,
                "{}",
                metric.name
            );
        }
    }

    #[test]
    fn a_device_that_is_down_is_a_value_and_not_a_gap() {
        let mut reading = DeviceReading {
            device: "pdu1".to_owned(),
            ..DeviceReading::default()
        };
        reading.problem("device", "no_answer", "no answer".to_owned());
        reading.problem("device", "no_answer", "the same once more".to_owned());
        let samples = reading.samples();
        let of = |metric: &Metric| {
            samples
                .iter()
                .filter(|sample| sample.metric == metric)
                .count()
        };
        assert_eq!((of(&UP), of(&PROBLEM), of(&INFO)), (1, 1, 0));
        assert_eq!(samples[0].value, 0.0);
        assert!(samples.iter().all(|sample| sample.labels[0] == "pdu1"));
    }

    #[test]
    fn a_series_has_one_sample() {
        let sensor = |value| DeviceSensor {
            sensor: "battery".to_owned(),
            quantity: SensorQuantity::TemperatureCelsius,
            value,
        };
        let reading = DeviceReading {
            sensors: vec![sensor(20.0), sensor(30.0)],
            ..DeviceReading::default()
        };
        let samples = reading.samples();
        let found: Vec<f64> = samples
            .iter()
            .filter(|sample| sample.metric == &TEMPERATURE)
            .map(|sample| sample.value)
            .collect();
        assert_eq!(found, [20.0]);
    }

    #[test]
    fn what_a_port_does_not_have_is_no_series() {
        let reading = DeviceReading {
            ports: vec![SwitchPort {
                port: "Gi1".to_owned(),
                is_up: Some(false),
                ..SwitchPort::default()
            }],
            ..DeviceReading::default()
        };
        let names = reading
            .samples()
            .into_iter()
            .map(|sample| sample.metric.name);
        let of_ports: Vec<_> = names
            .filter(|name| name.starts_with("takt_switch"))
            .collect();
        assert_eq!(of_ports, ["takt_switch_port_up"]);
    }
}
