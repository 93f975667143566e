//! Devices of each profile. Their walks are made up, not recorded.

use super::agent::Agent;
use super::{ask, device, table};
use takt_probe::{DeviceReading, SensorQuantity};
use tempfile::tempdir;

/// Asks an agent with the values of a file.
async fn reading(file: &str) -> DeviceReading {
    let folder = tempdir().unwrap();
    let agent = Agent::good(table(file));
    let reading = ask(device(agent.port, folder.path())).await;
    assert!(reading.is_up, "{:?}", reading.problems);
    assert_eq!(reading.problems, [], "{file}");
    reading
}

/// The value of a sensor, rounded to thousandths.
fn sensor(reading: &DeviceReading, name: &str, quantity: SensorQuantity) -> f64 {
    let found = reading.sensors.iter();
    let mut found = found.filter(|one| one.sensor == name && one.quantity == quantity);
    let value = found.next().expect("the sensor is there").value;
    (value * 1000.0).round() / 1000.0
}

#[tokio::test]
async fn a_switch_has_ports_neighbours_and_sensors() {
    let reading = reading("switch.snmprec").await;
    assert_eq!((reading.profile, &*reading.name), ("standard", "leaf1"));
    assert_eq!(reading.uptime_seconds, Some(86_400.0));

    let names: Vec<&str> = reading
        .ports
        .iter()
        .map(|port| port.port.as_str())
        .collect();
    let cables = [
        "Ethernet1",
        "Ethernet2",
        "Ethernet3",
        "Ethernet4",
        "Port-Channel1",
    ];
    assert_eq!(names, cables, "loopback and VLAN are no ports");
    let first = &reading.ports[0];
    assert_eq!(first.alias, "to gpu01");
    assert_eq!(first.speed_bits_per_second, Some(25_000_000_000));
    assert_eq!(first.receive_bytes, Some(5_000_000_000_000));
    assert_eq!(first.transmit_bytes, Some(7_000_000_000_000));
    assert_eq!(
        (first.receive_errors, first.transmit_discards),
        (Some(3), Some(2))
    );
    let without_link = &reading.ports[2];
    assert_eq!(
        (without_link.is_enabled, without_link.is_up),
        (Some(true), Some(false))
    );
    assert_eq!(without_link.receive_errors, None);
    assert_eq!(reading.ports[3].is_enabled, Some(false));

    let neighbors: Vec<_> = reading
        .neighbors
        .iter()
        .map(|one| (&*one.port, &*one.neighbor, &*one.neighbor_port))
        .collect();
    let expected = [
        ("Ethernet1", "gpu01", "ens1f0"),
        ("Ethernet2", "gpu02", "ens1f0"),
    ];
    assert_eq!(neighbors, expected);

    let value = |name, quantity| sensor(&reading, name, quantity);
    assert_eq!(
        value("Inlet temperature", SensorQuantity::TemperatureCelsius),
        23.5
    );
    assert_eq!(value("Fan 1", SensorQuantity::FanRpm), 5400.0);
    assert_eq!(
        value("PSU 1 input power", SensorQuantity::PowerWatts),
        120.5
    );
    assert_eq!(
        reading.sensors.len(),
        3,
        "a sensor that is unavailable has no value"
    );
    assert_eq!(reading.ups, None);
}

#[tokio::test]
async fn texts_are_read_once_in_ten_minutes() {
    let folder = tempdir().unwrap();
    let agent = Agent::good(table("switch.snmprec"));
    let mut probe = takt_probe::DeviceProbe::new(device(agent.port, folder.path()));
    let first = probe.ask().await;
    let second = probe.ask().await;
    assert!(
        second.requests < first.requests,
        "{} {}",
        second.requests,
        first.requests
    );
    assert_eq!(
        (&second.ports, &second.neighbors),
        (&first.ports, &first.neighbors)
    );
    assert_eq!(second.sensors, first.sensors);
    assert_eq!(
        agent.requests(),
        (first.requests + second.requests) as usize
    );
}

#[tokio::test]
async fn pdus_have_watts_and_joules() {
    let reading_of_apc = reading("apc-pdu.snmprec").await;
    assert_eq!(reading_of_apc.profile, "apc-pdu");
    assert_eq!(reading_of_apc.inputs[0].power_watts, Some(3120.0));
    assert_eq!(
        reading_of_apc.inputs[0].energy_joules,
        Some(17_098.2 * 3.6e6)
    );
    assert_eq!(reading_of_apc.outlets[0].name, "gpu01 PSU A");
    assert_eq!(reading_of_apc.outlets[0].power_watts, Some(640.0));
    assert_eq!(
        reading_of_apc.outlets[1].power_watts, None,
        "-1 is not measured"
    );
    assert_eq!(
        sensor(&reading_of_apc, "cold aisle", SensorQuantity::HumidityRatio),
        0.38
    );

    let raritan = reading("raritan-pdu2.snmprec").await;
    assert_eq!(raritan.inputs.len(), 1);
    assert_eq!(raritan.inputs[0].power_watts, Some(2345.0));
    assert_eq!(raritan.inputs[0].energy_joules, Some(3.6e6));
    let [first, second] = &raritan.outlets[..] else {
        panic!("two outlets")
    };
    assert_eq!(
        (&*first.outlet, &*first.name, first.power_watts),
        ("1.1", "gpu01", Some(641.0))
    );
    assert_eq!(
        (second.power_watts, second.energy_joules),
        (None, Some(7.0 * 3600.0))
    );
    assert_eq!(
        sensor(&raritan, "rack top", SensorQuantity::TemperatureCelsius),
        22.3
    );

    let sentry = reading("servertech-sentry4.snmprec").await;
    assert_eq!(sentry.inputs[0].energy_joules, Some(5.0 * 3.6e6));
    assert_eq!(
        (sentry.outlets[0].power_watts, &*sentry.outlets[0].outlet),
        (Some(600.0), "1.1.1")
    );
    assert_eq!(
        sensor(&sentry, "top", SensorQuantity::TemperatureCelsius),
        25.0
    );
    assert_eq!(sentry.sensors.len(), 1);
}

#[tokio::test]
async fn upses_say_whether_they_run_on_battery() {
    let ups = reading("ups.snmprec").await.ups.unwrap();
    assert_eq!((ups.on_battery, ups.battery_low), (Some(true), Some(false)));
    assert_eq!(ups.battery_runtime_seconds, Some(1860.0));
    assert_eq!(
        (ups.lines[0].power_watts, ups.lines[0].load_ratio),
        (Some(1500.0), Some(0.42))
    );

    let apc = reading("apc-ups.snmprec").await;
    let ups = apc.ups.as_ref().unwrap();
    assert_eq!(
        (ups.on_battery, ups.battery_charge_ratio),
        (Some(false), Some(1.0))
    );
    assert_eq!(ups.lines[0].load_ratio, Some(0.275));
    assert_eq!(
        sensor(&apc, "battery", SensorQuantity::TemperatureCelsius),
        29.2
    );
}
