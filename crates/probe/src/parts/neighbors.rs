//! Neighbours by LLDP: which node hangs on which port. They are read every ten minutes.
//!
//! The index of a neighbour is time, number of the local port, and a number of its own. The number of the port is often the
//! `ifIndex`, but the standard does not say so; `lldpLocPortTable` has its names.

use super::{KnownPorts, ProbeRound};
use crate::reading::LldpNeighbor;
use crate::snmp::{ColumnRows, SnmpError, SnmpValue};
use std::collections::BTreeSet;

/// `lldpRemChassisId`, `lldpRemPortId`, `lldpRemPortDesc`, `lldpRemSysName`.
const REMOTE: [&str; 4] = [
    "1.0.8802.1.1.2.1.4.1.1.5",
    "1.0.8802.1.1.2.1.4.1.1.7",
    "1.0.8802.1.1.2.1.4.1.1.8",
    "1.0.8802.1.1.2.1.4.1.1.9",
];

/// `lldpLocPortId`, `lldpLocPortDesc`.
const LOCAL: [&str; 2] = ["1.0.8802.1.1.2.1.3.7.1.3", "1.0.8802.1.1.2.1.3.7.1.4"];

/// The neighbours of the last reading.
#[derive(Debug, Default)]
pub(crate) struct KnownNeighbors(Vec<LldpNeighbor>);

pub(super) async fn read(round: &mut ProbeRound<'_>) -> Result<(), SnmpError> {
    if round.reads_texts {
        let remote = round.columns(&REMOTE).await?;
        let local = if remote.rows.is_empty() {
            ColumnRows::default()
        } else {
            round.columns(&LOCAL).await?
        };
        round.memory.neighbors = KnownNeighbors(neighbors(&remote, &local, &round.memory.ports));
    }
    round.reading.neighbors = round.memory.neighbors.0.clone();
    Ok(())
}

fn neighbors(remote: &ColumnRows, local: &ColumnRows, ports: &KnownPorts) -> Vec<LldpNeighbor> {
    let mut found = BTreeSet::new();
    for index in remote.rows.keys() {
        let [_, number, ..] = index[..] else {
            continue;
        };
        let value = |column| remote.get(index, column);
        let text = |column| value(column).and_then(SnmpValue::text);
        let chassis = || value(0).and_then(SnmpValue::text_or_bytes);
        let Some(neighbor) = text(3).or_else(chassis) else {
            continue;
        };
        found.insert(LldpNeighbor {
            port: local_port(number, local, ports),
            neighbor,
            neighbor_port: port_of_neighbor(value(1), text(2)),
        });
    }
    found.into_iter().collect()
}

/// Name of the local port with this number, as its series have it if they have.
fn local_port(number: u32, local: &ColumnRows, ports: &KnownPorts) -> String {
    let text = |column| local.get(&[number], column).and_then(SnmpValue::text);
    let [id, description] = [text(0), text(1)];

    let named = [&id, &description].into_iter().flatten();
    if let Some(name) = named.into_iter().find(|name| ports.has_name(name)) {
        return name.clone();
    }
    // The number is no ifIndex on all devices, so it is a guess.
    let by_index = ports.name(number).map(str::to_owned);
    description
        .or(id)
        .or(by_index)
        .unwrap_or_else(|| format!("port {number}"))
}

/// A node sends the address of its card as the port, and the name of the interface as its description.
fn port_of_neighbor(id: Option<&SnmpValue>, description: Option<String>) -> String {
    let is_text = |value: &&SnmpValue| {
        let SnmpValue::Bytes(bytes) = value else {
            return false;
        };
        str::from_utf8(bytes).is_ok_and(|text| !text.contains(char::is_control))
    };
    let text = id.filter(is_text).and_then(SnmpValue::text);
    text.or(description)
        .or_else(|| id.and_then(SnmpValue::text_or_bytes))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(of: &[(&[u32], &[&[u8]])]) -> ColumnRows {
        let row = |(index, texts): &(&[u32], &[&[u8]])| {
            let texts = texts.iter().map(|text| Some(SnmpValue::bytes(text)));
            (index.to_vec(), texts.collect())
        };
        ColumnRows {
            rows: of.iter().map(row).collect(),
            defect: None,
        }
    }

    #[test]
    fn a_node_has_a_name_and_its_interface() {
        let mac: &[u8] = &[0, 0x1c, 0x73, 1, 2, 3];
        let remote = rows(&[
            (&[9, 3, 1], &[mac, mac, b"eth0", b"gpu01"]),
            (&[9, 4, 1], &[mac, b"Ethernet49", b"uplink", b""]),
            (&[9], &[mac, mac, b"", b"broken index"]),
        ]);
        let local = rows(&[(&[3], &[mac, b"Ethernet3"])]);
        let found = neighbors(&remote, &local, &KnownPorts::default());
        let shown = found
            .iter()
            .map(|one| (&*one.port, &*one.neighbor, &*one.neighbor_port));
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                ("Ethernet3", "gpu01", "eth0"),
                ("port 4", "00:1c:73:01:02:03", "Ethernet49")
            ]
        );
    }
}
