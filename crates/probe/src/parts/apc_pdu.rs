//! PDUs of APC (rPDU2): power in units of 10 W, energy in tenths of a kilowatt-hour. What is not measured is -1.

use super::{JOULES_PER_TENTH_KWH, ProbeRound, UniqueNames, dotted};
use crate::reading::{DeviceSensor, PduInput, PduOutlet, SensorQuantity};
use crate::snmp::{SnmpError, SnmpValue};

/// `rPDU2DeviceStatusPower`, `rPDU2DeviceStatusEnergy`.
const DEVICE: [&str; 2] = [
    "1.3.6.1.4.1.318.1.1.26.4.3.1.5",
    "1.3.6.1.4.1.318.1.1.26.4.3.1.9",
];

/// `rPDU2OutletMeteredStatusName`, `…Power` in watts, `…Energy`.
const OUTLETS: [&str; 3] = [
    "1.3.6.1.4.1.318.1.1.26.9.4.3.1.3",
    "1.3.6.1.4.1.318.1.1.26.9.4.3.1.7",
    "1.3.6.1.4.1.318.1.1.26.9.4.3.1.11",
];

/// `rPDU2SensorTempHumidityStatusName`, `…TempC` in tenths, `…RelativeHumidity` in percent.
const SENSORS: [&str; 3] = [
    "1.3.6.1.4.1.318.1.1.26.10.2.2.1.3",
    "1.3.6.1.4.1.318.1.1.26.10.2.2.1.8",
    "1.3.6.1.4.1.318.1.1.26.10.2.2.1.10",
];

/// Watts of the unit of `rPDU2DeviceStatusPower`, a hundredth of a kilowatt.
const WATTS: f64 = 10.0;

pub(super) async fn read(round: &mut ProbeRound<'_>) -> Result<(), SnmpError> {
    let devices = round.columns(&DEVICE).await?;
    for index in devices.rows.keys() {
        let amount = |column| devices.get(index, column).and_then(SnmpValue::amount);
        round.reading.inputs.push(PduInput {
            input: dotted(index),
            power_watts: amount(0).map(|value| value * WATTS),
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
            energy_joules: amount(2).map(|value| value * JOULES_PER_TENTH_KWH),
        });
    }

    let sensors = round.columns(&SENSORS).await?;
    let mut names = UniqueNames::default();
    for index in sensors.rows.keys() {
        let amount = |column| sensors.get(index, column).and_then(SnmpValue::amount);
        let name = sensors.get(index, 0).and_then(SnmpValue::text);
        let name = names.take(name.unwrap_or_else(|| dotted(index)), index);
        let found = [
            (
                SensorQuantity::TemperatureCelsius,
                amount(1).map(|tenths| tenths / 10.0),
            ),
            (
                SensorQuantity::HumidityRatio,
                amount(2).map(|percent| percent / 100.0),
            ),
        ];
        round
            .reading
            .sensors
            .extend(found.into_iter().filter_map(|(quantity, value)| {
                Some(DeviceSensor {
                    sensor: name.clone(),
                    quantity,
                    value: value?,
                })
            }));
    }
    Ok(())
}
