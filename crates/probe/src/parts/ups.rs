//! UPSes by the standard `UPS-MIB` (RFC 1628).

use super::{ProbeRound, dotted};
use crate::reading::{DeviceSensor, SensorQuantity, UpsLine, UpsReading};
use crate::snmp::{SnmpError, SnmpValue};

/// `upsBatteryStatus`, `upsEstimatedMinutesRemaining`, `upsEstimatedChargeRemaining` in percent, `upsBatteryTemperature` in
/// degrees Celsius, `upsOutputSource`.
const BATTERY: [&str; 5] = [
    "1.3.6.1.2.1.33.1.2.1.0",
    "1.3.6.1.2.1.33.1.2.3.0",
    "1.3.6.1.2.1.33.1.2.4.0",
    "1.3.6.1.2.1.33.1.2.7.0",
    "1.3.6.1.2.1.33.1.4.1.0",
];

/// `upsOutputPower` in watts, `upsOutputPercentLoad`.
const OUTPUT: [&str; 2] = ["1.3.6.1.2.1.33.1.4.4.1.4", "1.3.6.1.2.1.33.1.4.4.1.5"];

pub(super) async fn read(round: &mut ProbeRound<'_>) -> Result<(), SnmpError> {
    let found = round.session.values(&BATTERY).await?;
    let Some(mut ups) = battery(&found) else {
        return Ok(());
    };

    let output = round.columns(&OUTPUT).await?;
    for index in output.rows.keys() {
        let amount = |column| output.get(index, column).and_then(SnmpValue::amount);
        ups.lines.push(UpsLine {
            line: dotted(index),
            power_watts: amount(0),
            load_ratio: amount(1).map(|percent| percent / 100.0),
        });
    }

    if let Some(value) = found[3].as_ref().and_then(SnmpValue::number) {
        round.reading.sensors.push(DeviceSensor {
            sensor: "battery".to_owned(),
            quantity: SensorQuantity::TemperatureCelsius,
            value,
        });
    }
    round.reading.ups = Some(ups);
    Ok(())
}

/// Reads the values of [`BATTERY`]; `None` for a device that is no UPS.
fn battery(found: &[Option<SnmpValue>]) -> Option<UpsReading> {
    if found.iter().all(Option::is_none) {
        return None;
    }
    let value = |at: usize| found.get(at).and_then(Option::as_ref);
    let code = |at| value(at).and_then(SnmpValue::code);
    let amount = |at| value(at).and_then(SnmpValue::amount);
    Some(UpsReading {
        // 1 is unknown: no state at all.
        battery_low: code(0).filter(|code| *code > 1).map(|code| code >= 3),
        battery_runtime_seconds: amount(1).map(|minutes| minutes * 60.0),
        battery_charge_ratio: amount(2).map(|percent| percent / 100.0),
        on_battery: code(4).filter(|code| *code > 1).map(|code| code == 5),
        lines: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ups_on_battery_says_so() {
        let found = [3, 12, 80, 30, 5].map(|value| Some(SnmpValue::Integer(value)));
        let ups = battery(&found).unwrap();
        assert_eq!((ups.on_battery, ups.battery_low), (Some(true), Some(true)));
        assert_eq!(ups.battery_runtime_seconds, Some(720.0));
        assert_eq!(ups.battery_charge_ratio, Some(0.8));

        let unknown = [
            Some(SnmpValue::Integer(1)),
            None,
            None,
            None,
            Some(SnmpValue::Integer(3)),
        ];
        let ups = battery(&unknown).unwrap();
        assert_eq!((ups.on_battery, ups.battery_low), (Some(false), None));
        assert_eq!(battery(&[None, None, None, None, None]), None);
    }
}
