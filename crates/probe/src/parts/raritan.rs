//! PDUs of Raritan and Legrand, and Server Technology's PRO3X and PRO4X (`PDU2-MIB`). Every value has a number of decimal digits
//! in a table of its own; the last arc of an index is the type of the sensor.

use super::{JOULES_PER_WH, ProbeRound, UniqueNames, dotted};
use crate::reading::{DeviceSensor, PduInput, PduOutlet, SensorQuantity};
use crate::snmp::{ColumnRows, SnmpError, SnmpValue};
use std::collections::BTreeMap;

/// `measurementsInletSensorIsAvailable`, `…Value`, `inletSensorDecimalDigits`.
const INLETS: [&str; 3] = [
    "1.3.6.1.4.1.13742.6.5.2.3.1.2",
    "1.3.6.1.4.1.13742.6.5.2.3.1.4",
    "1.3.6.1.4.1.13742.6.3.3.4.1.7",
];

/// The same of outlets.
const OUTLETS: [&str; 3] = [
    "1.3.6.1.4.1.13742.6.5.4.3.1.2",
    "1.3.6.1.4.1.13742.6.5.4.3.1.4",
    "1.3.6.1.4.1.13742.6.3.5.4.1.7",
];

/// `outletName`.
const OUTLET_NAMES: [&str; 1] = ["1.3.6.1.4.1.13742.6.3.5.3.1.3"];

/// The same of external sensors, then `externalSensorType` and `externalSensorName`.
const EXTERNAL: [&str; 5] = [
    "1.3.6.1.4.1.13742.6.5.5.3.1.2",
    "1.3.6.1.4.1.13742.6.5.5.3.1.4",
    "1.3.6.1.4.1.13742.6.3.6.3.1.17",
    "1.3.6.1.4.1.13742.6.3.6.3.1.2",
    "1.3.6.1.4.1.13742.6.3.6.3.1.4",
];

/// Types of sensors: active power in watts, active energy in watt-hours, temperature in degrees Celsius, humidity in percent.
const POWER: u32 = 5;
const ENERGY: u32 = 8;
const TEMPERATURE: i64 = 10;
const HUMIDITY: i64 = 11;

/// `…IsAvailable`: false.
const IS_UNAVAILABLE: i64 = 2;

/// Most digits behind the point that are believed.
const MAX_DIGITS: i64 = 9;

pub(super) async fn read(round: &mut ProbeRound<'_>) -> Result<(), SnmpError> {
    let inlets = power_and_energy(&round.columns(&INLETS).await?);
    for (index, (power, energy)) in inlets {
        round.reading.inputs.push(PduInput {
            input: dotted(&index),
            power_watts: power,
            energy_joules: energy,
        });
    }

    let outlets = power_and_energy(&round.columns(&OUTLETS).await?);
    if !outlets.is_empty() {
        let names = round.columns(&OUTLET_NAMES).await?;
        for (index, (power, energy)) in outlets {
            let name = names.get(&index, 0).and_then(SnmpValue::text);
            round.reading.outlets.push(PduOutlet {
                outlet: dotted(&index),
                name: name.unwrap_or_default(),
                power_watts: power,
                energy_joules: energy,
            });
        }
    }

    let external = round.columns(&EXTERNAL).await?;
    round.reading.sensors.extend(sensors(&external));
    Ok(())
}

/// Value in the units of its sensor; `None` if the sensor says that it has none.
fn scaled(rows: &ColumnRows, index: &[u32]) -> Option<f64> {
    let code = |column| rows.get(index, column).and_then(SnmpValue::code);
    if code(0) == Some(IS_UNAVAILABLE) {
        return None;
    }
    let digits = code(2).unwrap_or(0);
    if !(0..=MAX_DIGITS).contains(&digits) {
        return None;
    }
    Some(rows.get(index, 1)?.number()? / 10f64.powi(digits as i32))
}

/// Power and energy by the index of the inlet or outlet.
fn power_and_energy(rows: &ColumnRows) -> BTreeMap<Vec<u32>, (Option<f64>, Option<f64>)> {
    let mut found: BTreeMap<Vec<u32>, (Option<f64>, Option<f64>)> = BTreeMap::new();
    for index in rows.rows.keys() {
        let Some((kind, of)) = index.split_last() else {
            continue;
        };
        let Some(value) = scaled(rows, index) else {
            continue;
        };
        match *kind {
            POWER => found.entry(of.to_vec()).or_default().0 = Some(value),
            ENERGY => found.entry(of.to_vec()).or_default().1 = Some(value * JOULES_PER_WH),
            _ => {}
        }
    }
    found
}

fn sensors(rows: &ColumnRows) -> Vec<DeviceSensor> {
    let mut names = UniqueNames::default();
    let mut found = Vec::new();
    for index in rows.rows.keys() {
        let (quantity, unit) = match rows.get(index, 3).and_then(SnmpValue::code) {
            Some(TEMPERATURE) => (SensorQuantity::TemperatureCelsius, 1.0),
            Some(HUMIDITY) => (SensorQuantity::HumidityRatio, 0.01),
            _ => continue,
        };
        let Some(value) = scaled(rows, index) else {
            continue;
        };
        let name = rows.get(index, 4).and_then(SnmpValue::text);
        found.push(DeviceSensor {
            sensor: names.take(name.unwrap_or_else(|| dotted(index)), index),
            quantity,
            value: value * unit,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(of: &[(&[u32], [i64; 3])]) -> ColumnRows {
        let row = |(index, values): &(&[u32], [i64; 3])| {
            (
                index.to_vec(),
                values.map(|value| Some(SnmpValue::Integer(value))).to_vec(),
            )
        };
        ColumnRows {
            rows: of.iter().map(row).collect(),
            defect: None,
        }
    }

    #[test]
    fn values_have_digits_and_may_be_unavailable() {
        let rows = rows(&[
            // Current, which is not read; 123.4 W; 2,000 Wh.
            (&[1, 1, 1], [1, 5, 0]),
            (&[1, 1, 5], [1, 1234, 1]),
            (&[1, 1, 8], [1, 2000, 0]),
            (&[1, 2, 5], [2, 77, 0]),
            (&[1, 3, 5], [1, 77, 400]),
        ]);
        let found = power_and_energy(&rows);
        assert_eq!(found.len(), 1);
        assert_eq!(found[&vec![1, 1]], (Some(123.4), Some(7_200_000.0)));
    }
}
