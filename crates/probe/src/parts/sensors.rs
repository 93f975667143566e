//! Temperatures, fans and other sensors of `ENTITY-SENSOR-MIB`, which most switches have. Types, scales and names are read
//! every ten minutes.

use super::{ProbeRound, UniqueNames, dotted};
use crate::reading::{DeviceSensor, SensorQuantity};
use crate::snmp::{ColumnRows, SnmpError, SnmpValue};
use std::collections::BTreeMap;

/// `entPhySensorValue`, `entPhySensorOperStatus`.
const VALUES: [&str; 2] = ["1.3.6.1.2.1.99.1.1.1.4", "1.3.6.1.2.1.99.1.1.1.5"];

/// `entPhySensorType`, `entPhySensorScale`, `entPhySensorPrecision`.
const KINDS: [&str; 3] = [
    "1.3.6.1.2.1.99.1.1.1.1",
    "1.3.6.1.2.1.99.1.1.1.2",
    "1.3.6.1.2.1.99.1.1.1.3",
];

/// `entPhysicalName`, `entPhysicalDescr`.
const NAMES: [&str; 2] = ["1.3.6.1.2.1.47.1.1.1.1.7", "1.3.6.1.2.1.47.1.1.1.1.2"];

/// `entPhySensorOperStatus`: the value is valid.
const IS_OK: i64 = 1;

/// Value from which on a number is a sign, in a sensor's own unit.
const OUT_OF_RANGE: f64 = 1e9;

/// The kinds of sensors by their index.
#[derive(Debug, Default)]
pub(crate) struct KnownSensors(BTreeMap<Vec<u32>, SensorKind>);

#[derive(Debug, Clone, PartialEq)]
struct SensorKind {
    name: String,
    quantity: SensorQuantity,
    factor: f64,
}

pub(super) async fn read(round: &mut ProbeRound<'_>) -> Result<(), SnmpError> {
    if round.reads_texts {
        let kinds = round.columns(&KINDS).await?;
        let names = if kinds.rows.is_empty() {
            ColumnRows::default()
        } else {
            round.columns(&NAMES).await?
        };
        round.memory.sensors = KnownSensors(known(&kinds, &names));
    }
    if round.memory.sensors.0.is_empty() {
        return Ok(());
    }

    let values = round.columns(&VALUES).await?;
    let known = &round.memory.sensors.0;
    round.reading.sensors.extend(readings(known, &values));
    Ok(())
}

fn known(kinds: &ColumnRows, names: &ColumnRows) -> BTreeMap<Vec<u32>, SensorKind> {
    let mut unique = UniqueNames::default();
    let mut found = BTreeMap::new();
    for index in kinds.rows.keys() {
        let code = |column| kinds.get(index, column).and_then(SnmpValue::code);
        let Some((quantity, unit)) = code(0).and_then(quantity_of) else {
            continue;
        };
        let Some(factor) = factor_of(code(1), code(2)) else {
            continue;
        };
        let text = |column| names.get(index, column).and_then(SnmpValue::text);
        let name = text(0).or_else(|| text(1));
        let name = name.unwrap_or_else(|| format!("sensor {}", dotted(index)));
        let kind = SensorKind {
            name: unique.take(name, index),
            quantity,
            factor: factor * unit,
        };
        found.insert(index.clone(), kind);
    }
    found
}

/// Quantity of an `entPhySensorType`, and the factor of its unit.
fn quantity_of(code: i64) -> Option<(SensorQuantity, f64)> {
    match code {
        3 | 4 => Some((SensorQuantity::VoltageVolts, 1.0)),
        5 => Some((SensorQuantity::CurrentAmperes, 1.0)),
        6 => Some((SensorQuantity::PowerWatts, 1.0)),
        8 => Some((SensorQuantity::TemperatureCelsius, 1.0)),
        // Percent.
        9 => Some((SensorQuantity::HumidityRatio, 0.01)),
        10 => Some((SensorQuantity::FanRpm, 1.0)),
        _ => None,
    }
}

/// `entPhySensorScale` counts thousands (9 is 1, 8 is a thousandth), `entPhySensorPrecision` the digits behind the point. `None`
/// for values outside of the standard.
fn factor_of(scale: Option<i64>, precision: Option<i64>) -> Option<f64> {
    let scale = scale.unwrap_or(9);
    let precision = precision.unwrap_or(0);
    let is_valid = (1..=17).contains(&scale) && (-8..=9).contains(&precision);
    // A negative precision is the number of exact digits, which does not move the point.
    let power = (scale - 9) * 3 - precision.max(0);
    is_valid.then(|| 10f64.powi(power as i32))
}

fn readings<'r>(
    known: &'r BTreeMap<Vec<u32>, SensorKind>,
    values: &'r ColumnRows,
) -> impl Iterator<Item = DeviceSensor> + 'r {
    known.iter().filter_map(|(index, kind)| {
        let status = values.get(index, 1).and_then(SnmpValue::code);
        if status.is_some_and(|status| status != IS_OK) {
            return None;
        }
        // RFC 3433: ±1,000,000,000 stand for values that the sensor cannot show.
        let value = values.get(index, 0)?.number()?;
        if value.abs() >= OUT_OF_RANGE {
            return None;
        }
        Some(DeviceSensor {
            sensor: kind.name.clone(),
            quantity: kind.quantity,
            value: value * kind.factor,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(index: u32, values: &[i64]) -> (Vec<u32>, Vec<Option<SnmpValue>>) {
        let values = values.iter().map(|value| Some(SnmpValue::Integer(*value)));
        (vec![index], values.collect())
    }

    fn rows(of: &[(u32, &[i64])]) -> ColumnRows {
        ColumnRows {
            rows: of
                .iter()
                .map(|(index, values)| row(*index, values))
                .collect(),
            defect: None,
        }
    }

    #[test]
    fn scale_and_precision_give_the_value() {
        // 48.5 °C with one digit, 1,500 mV, 5,400 rpm, 41 %, dBm (other), a scale that does not exist.
        let kinds = rows(&[
            (1, &[8, 9, 1]),
            (2, &[4, 8, 0]),
            (3, &[10, 9, 0]),
            (4, &[9, 9, 0]),
            (5, &[1, 9, 1]),
            (6, &[8, 99, 0]),
        ]);
        let values = rows(&[
            (1, &[485, 1]),
            (2, &[1500, 1]),
            (3, &[5400, 1]),
            (4, &[41, 1]),
            (5, &[1, 1]),
            (6, &[1, 1]),
        ]);
        let known = known(&kinds, &ColumnRows::default());
        let found: Vec<_> = readings(&known, &values)
            .map(|one| (one.quantity, (one.value * 1000.0).round() / 1000.0))
            .collect();
        assert_eq!(
            found,
            [
                (SensorQuantity::TemperatureCelsius, 48.5),
                (SensorQuantity::VoltageVolts, 1.5),
                (SensorQuantity::FanRpm, 5400.0),
                (SensorQuantity::HumidityRatio, 0.41)
            ]
        );
    }

    #[test]
    fn a_sensor_out_of_order_has_no_value() {
        let known = known(&rows(&[(1, &[8, 9, 0])]), &ColumnRows::default());
        let count = |status| readings(&known, &rows(&[(1, &[40, status])])).count();
        assert_eq!((count(1), count(2), count(3)), (1, 0, 0));
    }
}
