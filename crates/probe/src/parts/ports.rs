//! Ports of a switch: state, speed and counters of `IF-MIB`.
//!
//! Columns are read, not the table, most of whose columns nobody looks at. Counters of bytes have 64 bits; those of errors and
//! discards have 32 and wrap, which looks like a start from 0. `ifHighSpeed` is in Mbit/s.

use super::{ProbeRound, UniqueNames, dotted};
use crate::reading::SwitchPort;
use crate::snmp::{ColumnRows, SnmpError, SnmpValue};
use std::collections::BTreeMap;

const TYPE: &str = "1.3.6.1.2.1.2.2.1.3";
const ADMIN_STATUS: &str = "1.3.6.1.2.1.2.2.1.7";
const OPER_STATUS: &str = "1.3.6.1.2.1.2.2.1.8";
const HIGH_SPEED: &str = "1.3.6.1.2.1.31.1.1.1.15";
const HC_IN_OCTETS: &str = "1.3.6.1.2.1.31.1.1.1.6";
const HC_OUT_OCTETS: &str = "1.3.6.1.2.1.31.1.1.1.10";
const IN_ERRORS: &str = "1.3.6.1.2.1.2.2.1.14";
const OUT_ERRORS: &str = "1.3.6.1.2.1.2.2.1.20";
const IN_DISCARDS: &str = "1.3.6.1.2.1.2.2.1.13";
const OUT_DISCARDS: &str = "1.3.6.1.2.1.2.2.1.19";
const DISCONTINUITY: &str = "1.3.6.1.2.1.31.1.1.1.19";

/// Columns that change, in the order of [`port`].
const VALUES: [&str; 11] = [
    TYPE,
    ADMIN_STATUS,
    OPER_STATUS,
    HIGH_SPEED,
    HC_IN_OCTETS,
    HC_OUT_OCTETS,
    IN_ERRORS,
    OUT_ERRORS,
    IN_DISCARDS,
    OUT_DISCARDS,
    DISCONTINUITY,
];

/// `ifName`, `ifAlias`, `ifDescr`.
const TEXTS: [&str; 3] = [
    "1.3.6.1.2.1.31.1.1.1.1",
    "1.3.6.1.2.1.31.1.1.1.18",
    "1.3.6.1.2.1.2.2.1.2",
];

/// `ifType` of what a cable is plugged into, and of aggregates of such: Ethernet in its spellings, Fibre Channel, InfiniBand,
/// LAG. Loopback, VLANs and tunnels would be counted twice.
const PORT_TYPES: [i64; 7] = [6, 56, 62, 69, 117, 161, 199];

/// Megabit per second in bits per second.
const MEGABIT: u64 = 1_000_000;

/// Name and alias of each port by its `ifIndex`.
#[derive(Debug, Default)]
pub(crate) struct KnownPorts(BTreeMap<Vec<u32>, PortTexts>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct PortTexts {
    name: String,
    alias: String,
}

impl KnownPorts {
    /// Name of the port with this `ifIndex`.
    pub(crate) fn name(&self, index: u32) -> Option<&str> {
        self.0.get(&vec![index]).map(|texts| texts.name.as_str())
    }

    /// Whether a port has this name.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.0.values().any(|texts| texts.name == name)
    }
}

pub(super) async fn read(round: &mut ProbeRound<'_>) -> Result<(), SnmpError> {
    let mut found = round.columns(&VALUES).await?;
    found.rows.retain(|_, values| is_port(values));

    // A port without a text is new, a card that was plugged in for example.
    let known = &round.memory.ports.0;
    let is_known = found.rows.keys().all(|index| known.contains_key(index));
    if round.reads_texts || !is_known {
        let texts = round.columns(&TEXTS).await?;
        round.memory.ports = KnownPorts(port_texts(&found, &texts));
    }

    let known = &round.memory.ports.0;
    round.reading.ports = found
        .rows
        .iter()
        .filter_map(|(index, values)| Some(port(known.get(index)?, values)))
        .collect();
    Ok(())
}

fn is_port(values: &[Option<SnmpValue>]) -> bool {
    let kind = values.first().and_then(|value| value.as_ref()?.code());
    // A device without the column has no other way to say it.
    kind.is_none_or(|kind| PORT_TYPES.contains(&kind))
}

/// Returns the texts of all ports, with unique names.
fn port_texts(ports: &ColumnRows, texts: &ColumnRows) -> BTreeMap<Vec<u32>, PortTexts> {
    let mut names = UniqueNames::default();
    let mut found = BTreeMap::new();
    for index in ports.rows.keys() {
        let text = |column| texts.get(index, column).and_then(SnmpValue::text);
        let name = text(0).or_else(|| text(2));
        let name = name.unwrap_or_else(|| format!("port {}", dotted(index)));
        let texts = PortTexts {
            name: names.take(name, index),
            alias: text(1).unwrap_or_default(),
        };
        found.insert(index.clone(), texts);
    }
    found
}

/// Reads a row of [`VALUES`].
fn port(texts: &PortTexts, values: &[Option<SnmpValue>]) -> SwitchPort {
    let value = |column: usize| values.get(column).and_then(Option::as_ref);
    let is_one = |column| Some(value(column)?.code()? == 1);

    let is_up = is_one(2);
    let mut port = SwitchPort {
        port: texts.name.clone(),
        alias: texts.alias.clone(),
        is_enabled: is_one(1),
        is_up,
        ..SwitchPort::default()
    };
    // A port without a link has no speed and no errors; 0 would look like a measurement.
    if is_up != Some(true) {
        return port;
    }

    let count = |column| value(column).and_then(SnmpValue::count);
    let speed = count(3).filter(|megabits| *megabits > 0);
    port.speed_bits_per_second = speed.map(|megabits| megabits.saturating_mul(MEGABIT));
    port.receive_bytes = count(4);
    port.transmit_bytes = count(5);
    port.receive_errors = count(6);
    port.transmit_errors = count(7);
    port.receive_discards = count(8);
    port.transmit_discards = count(9);
    // `TimeTicks` are hundredths of a second.
    port.counters_since_uptime_seconds = count(10).map(|ticks| ticks as f64 / 100.0);
    port
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(oper: i64) -> Vec<Option<SnmpValue>> {
        let mut row = vec![
            Some(SnmpValue::Integer(6)),
            Some(SnmpValue::Integer(1)),
            Some(SnmpValue::Integer(oper)),
            Some(SnmpValue::Unsigned(25_000)),
        ];
        row.extend((0..7).map(|number| Some(SnmpValue::Unsigned(number * 100))));
        row
    }

    #[test]
    fn a_port_without_a_link_has_no_errors_to_show() {
        let up = port(&PortTexts::default(), &row(1));
        assert_eq!(up.speed_bits_per_second, Some(25_000_000_000));
        assert_eq!((up.receive_bytes, up.receive_errors), (Some(0), Some(200)));
        assert_eq!(up.counters_since_uptime_seconds, Some(6.0));

        let down = port(&PortTexts::default(), &row(7));
        assert_eq!((down.is_enabled, down.is_up), (Some(true), Some(false)));
        assert_eq!(
            (down.receive_errors, down.speed_bits_per_second),
            (None, None)
        );
    }

    #[test]
    fn values_of_wrong_types_are_absent() {
        let mut row = row(1);
        row[3] = Some(SnmpValue::bytes(b"fast"));
        row[4] = Some(SnmpValue::Integer(-5));
        row[5] = None;
        let port = port(&PortTexts::default(), &row);
        assert_eq!(port.speed_bits_per_second, None);
        assert_eq!((port.receive_bytes, port.transmit_bytes), (None, None));
        assert_eq!(port.receive_errors, Some(200));
        // Neither is a text a state.
        row[2] = Some(SnmpValue::bytes(b"up"));
        assert_eq!(super::port(&PortTexts::default(), &row).is_up, None);
    }

    #[test]
    fn only_what_takes_a_cable_is_a_port() {
        let of = |kind| [Some(SnmpValue::Integer(kind))];
        assert!(is_port(&of(6)) && is_port(&of(161)) && is_port(&[None]));
        assert!(!is_port(&of(24)) && !is_port(&of(135)));
    }

    #[test]
    fn ports_with_one_name_are_told_apart() {
        let rows = |texts: &[(u32, &str)]| {
            let row = |(index, text): &(u32, &str)| {
                (
                    vec![*index],
                    vec![Some(SnmpValue::bytes(text.as_bytes())), None, None],
                )
            };
            ColumnRows {
                rows: texts.iter().map(row).collect(),
                defect: None,
            }
        };
        let texts = rows(&[(1, "Gi1"), (2, "Gi1"), (3, "")]);
        let found = port_texts(&texts, &texts);
        let names: Vec<&str> = found.values().map(|texts| texts.name.as_str()).collect();
        assert_eq!(names, ["Gi1", "Gi1 (2)", "port 3"]);
    }
}
