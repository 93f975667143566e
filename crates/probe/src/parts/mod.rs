//! The parts of devices, one file each: which columns are read, and what they mean.

mod apc_pdu;
mod apc_ups;
mod neighbors;
mod ports;
mod raritan;
mod sensors;
mod sentry;
mod ups;

use crate::reading::DeviceReading;
use crate::snmp::{BulkSize, ColumnRows, ObjectId, Session, SnmpError, SnmpKeys};
use std::collections::BTreeSet;

pub(crate) use neighbors::KnownNeighbors;
pub(crate) use ports::KnownPorts;
pub(crate) use sensors::KnownSensors;

/// Joules of a watt-hour.
const JOULES_PER_WH: f64 = 3600.0;

/// Joules of a tenth of a kilowatt-hour, which the meters of several makers count.
const JOULES_PER_TENTH_KWH: f64 = 100.0 * JOULES_PER_WH;

/// A group of tables of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DevicePart {
    Ports,
    Neighbors,
    Sensors,
    ApcPdu,
    RaritanPdu,
    SentryPdu,
    Ups,
    ApcUps,
}

impl DevicePart {
    /// Name of the part in problems.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ports => "ports",
            Self::Neighbors => "neighbors",
            Self::Sensors => "sensors",
            Self::ApcPdu | Self::RaritanPdu | Self::SentryPdu => "power",
            Self::Ups | Self::ApcUps => "ups",
        }
    }

    /// Reads the part into the reading of the round.
    pub(crate) async fn read(self, round: &mut ProbeRound<'_>) -> Result<(), SnmpError> {
        match self {
            Self::Ports => ports::read(round).await,
            Self::Neighbors => neighbors::read(round).await,
            Self::Sensors => sensors::read(round).await,
            Self::ApcPdu => apc_pdu::read(round).await,
            Self::RaritanPdu => raritan::read(round).await,
            Self::SentryPdu => sentry::read(round).await,
            Self::Ups => ups::read(round).await,
            Self::ApcUps => apc_ups::read(round).await,
        }
    }
}

/// What is remembered of a device between rounds: keys, how much it can answer, and texts, which are read every ten minutes
/// only.
#[derive(Debug, Default)]
pub(crate) struct DeviceMemory {
    pub keys: SnmpKeys,
    pub size: BulkSize,
    pub ports: KnownPorts,
    pub neighbors: KnownNeighbors,
    pub sensors: KnownSensors,
}

/// One round of questions to a device.
pub(crate) struct ProbeRound<'r> {
    pub session: &'r mut Session,
    pub memory: &'r mut DeviceMemory,
    pub reading: &'r mut DeviceReading,
    /// Whether texts are read in this round.
    pub reads_texts: bool,
    /// The part that is read.
    pub part: DevicePart,
}

impl ProbeRound<'_> {
    /// Returns the rows of a table. A table that breaks off is a problem of the part.
    async fn columns(&mut self, ids: &[&'static str]) -> Result<ColumnRows, SnmpError> {
        let found = self.session.columns(ids).await?;
        if let Some(defect) = found.defect {
            self.reading
                .problem(self.part.name(), "cut", defect.to_string());
        }
        Ok(found)
    }
}

/// The index of a row as a text: `1.5`.
fn dotted(index: &[u32]) -> String {
    ObjectId(index.to_vec()).to_string()
}

/// Names that are unique in a device: two series must not have the same labels.
#[derive(Debug, Default)]
struct UniqueNames(BTreeSet<String>);

impl UniqueNames {
    /// Returns the name, with the index of its row if another row has it.
    fn take(&mut self, name: String, index: &[u32]) -> String {
        let mut name = name;
        // A device may have named another row like this one with its index, so one attempt is not enough.
        while !self.0.insert(name.clone()) {
            name = format!("{name} ({})", dotted(index));
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rows_never_have_one_name() {
        let mut names = UniqueNames::default();
        assert_eq!(names.take("a (2)".to_owned(), &[1]), "a (2)");
        assert_eq!(names.take("a".to_owned(), &[3]), "a");
        assert_eq!(names.take("a".to_owned(), &[2]), "a (2) (2)");
        assert_eq!(names.take("a".to_owned(), &[1, 5]), "a (1.5)");
    }
}
