//! UPSes of APC (`PowerNet-MIB`), which have more digits there than in the standard.

use super::ProbeRound;
use crate::reading::{DeviceSensor, SensorQuantity, UpsLine, UpsReading};
use crate::snmp::{SnmpError, SnmpValue};

/// `upsBasicBatteryStatus`, `upsAdvBatteryCapacity` in percent, `upsAdvBatteryRunTimeRemaining` in hundredths of a second,
/// `upsHighPrecBatteryTemperature` in tenths of a degree Celsius, `upsBasicOutputStatus`, `upsAdvOutputActivePower` in watts,
/// `upsHighPrecOutputLoad` in tenths of a percent.
const VALUES: [&str; 7] = [
    "1.3.6.1.4.1.318.1.1.1.2.1.1.0",
    "1.3.6.1.4.1.318.1.1.1.2.2.1.0",
    "1.3.6.1.4.1.318.1.1.1.2.2.3.0",
    "1.3.6.1.4.1.318.1.1.1.2.3.2.0",
    "1.3.6.1.4.1.318.1.1.1.4.1.1.0",
    "1.3.6.1.4.1.318.1.1.1.4.2.8.0",
    "1.3.6.1.4.1.318.1.1.1.4.3.3.0",
];

/// `upsBasicOutputStatus`: on battery.
const ON_BATTERY: i64 = 3;

pub(super) async fn read(round: &mut ProbeRound<'_>) -> Result<(), SnmpError> {
    let found = round.session.values(&VALUES).await?;
    round.reading.ups = ups(&found);
    if let Some(tenths) = found[3].as_ref().and_then(SnmpValue::amount) {
        round.reading.sensors.push(DeviceSensor {
            sensor: "battery".to_owned(),
            quantity: SensorQuantity::TemperatureCelsius,
            value: tenths / 10.0,
        });
    }
    Ok(())
}

/// Reads [`VALUES`]; `None` for a device without any of them.
fn ups(found: &[Option<SnmpValue>]) -> Option<UpsReading> {
    if found.iter().all(Option::is_none) {
        return None;
    }
    let value = |at: usize| found.get(at).and_then(Option::as_ref);
    // 1 is unknown: no state at all.
    let state = |at| value(at).and_then(SnmpValue::code).filter(|code| *code > 1);
    let amount = |at| value(at).and_then(SnmpValue::amount);

    let [power_watts, load] = [amount(5), amount(6)];
    let line = UpsLine {
        line: "1".to_owned(),
        power_watts,
        load_ratio: load.map(|per_mille| per_mille / 1000.0),
    };
    let has_line = power_watts.is_some() || load.is_some();
    Some(UpsReading {
        // 2 is normal; above are low and faulty.
        battery_low: state(0).map(|code| code > 2),
        battery_charge_ratio: amount(1).map(|percent| percent / 100.0),
        battery_runtime_seconds: amount(2).map(|ticks| ticks / 100.0),
        on_battery: state(4).map(|code| code == ON_BATTERY),
        lines: has_line.then_some(line).into_iter().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_base_units() {
        let found = [2, 97, 190_200, 292, 2, 410, 275].map(|value| Some(SnmpValue::Integer(value)));
        let ups = ups(&found).unwrap();
        assert_eq!(
            (ups.on_battery, ups.battery_low),
            (Some(false), Some(false))
        );
        assert_eq!(ups.battery_runtime_seconds, Some(1902.0));
        assert_eq!(ups.lines[0].power_watts, Some(410.0));
        assert_eq!(ups.lines[0].load_ratio, Some(0.275));
        assert_eq!(
            super::ups(&[None, None, None, None, None, None, None]),
            None
        );
    }
}
