//! PDUs of Server Technology (`Sentry4-MIB`): watts, tenths of a kilowatt-hour for cords and watt-hours for outlets,
//! temperatures in tenths of the unit that the device is set to. What is not measured is negative.

use super::{JOULES_PER_TENTH_KWH, JOULES_PER_WH, ProbeRound, UniqueNames, dotted};
use crate::reading::{DeviceSensor, PduInput, PduOutlet, SensorQuantity};
use crate::snmp::{SnmpError, SnmpValue};

/// `st4InputCordActivePower`, `st4InputCordEnergy`.
const CORDS: [&str; 2] = [
    "1.3.6.1.4.1.1718.4.1.3.3.1.3",
    "1.3.6.1.4.1.1718.4.1.3.3.1.10",
];

/// `st4OutletName`, `st4OutletActivePower`, `st4OutletEnergy`.
const OUTLETS: [&str; 3] = [
    "1.3.6.1.4.1.1718.4.1.8.2.1.3",
    "1.3.6.1.4.1.1718.4.1.8.3.1.7",
    "1.3.6.1.4.1.1718.4.1.8.3.1.14",
];

/// `st4TempSensorScale`: 0 Celsius, 1 Fahrenheit.
const TEMPERATURE_SCALE: &str = "1.3.6.1.4.1.1718.4.1.9.1.10.0";

/// `st4TempSensorName`, `st4TempSensorValue`.
const TEMPERATURES: [&str; 2] = [
    "1.3.6.1.4.1.1718.4.1.9.2.1.3",
    "1.3.6.1.4.1.1718.4.1.9.3.1.1",
];

/// Values up to this, in tenths, stand for a sensor that is not plugged in (-410).
const NO_TEMPERATURE: f64 = -400.0;

pub(super) async fn read(round: &mut ProbeRound<'_>) -> Result<(), SnmpError> {
    let cords = round.columns(&CORDS).await?;
    for index in cords.rows.keys() {
        let amount = |column| cords.get(index, column).and_then(SnmpValue::amount);
        round.reading.inputs.push(PduInput {
            input: dotted(index),
            power_watts: amount(0),
            energy_joules: amount(1).map(|value| value * JOULES_PER_TENTH_KWH),
        });
    }

    let outlets = round.columns(&OUTLETS).await?;
    for index in outlets.rows.keys() {
        let amount = |column| outlets.get(index, column).and_then(SnmpValue::amount);
        let name = outlets.get(index, 0).and_then(SnmpValue::text);
        round.reading.outlets.push(PduOutlet {
            outlet: dotted(index),
            name: name.unwrap_or_default(),
            power_watts: amount(1),
            energy_joules: amount(2).map(|value| value * JOULES_PER_WH),
        });
    }

    let temperatures = round.columns(&TEMPERATURES).await?;
    if temperatures.rows.is_empty() {
        return Ok(());
    }
    let scale = round.session.values(&[TEMPERATURE_SCALE]).await?;
    let is_fahrenheit = scale[0].as_ref().and_then(SnmpValue::code) == Some(1);
    let mut names = UniqueNames::default();
    for index in temperatures.rows.keys() {
        let Some(value) = temperatures
            .get(index, 1)
            .and_then(|value| celsius(value, is_fahrenheit))
        else {
            continue;
        };
        let name = temperatures.get(index, 0).and_then(SnmpValue::text);
        round.reading.sensors.push(DeviceSensor {
            sensor: names.take(name.unwrap_or_else(|| dotted(index)), index),
            quantity: SensorQuantity::TemperatureCelsius,
            value,
        });
    }
    Ok(())
}

fn celsius(value: &SnmpValue, is_fahrenheit: bool) -> Option<f64> {
    let tenths = value.number().filter(|tenths| *tenths > NO_TEMPERATURE)?;
    let degrees = tenths / 10.0;
    Some(if is_fahrenheit {
        (degrees - 32.0) / 1.8
    } else {
        degrees
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temperatures_are_celsius_in_either_unit() {
        assert_eq!(celsius(&SnmpValue::Integer(245), false), Some(24.5));
        assert_eq!(celsius(&SnmpValue::Integer(770), true), Some(25.0));
        assert_eq!(celsius(&SnmpValue::Integer(-410), false), None);
        assert_eq!(celsius(&SnmpValue::bytes(b"hot"), false), None);
    }
}
