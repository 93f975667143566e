//! SAS disks: their informational exceptions, SCSI's counterpart of SMART.
//!
//! Layouts follow SCSI Primary Commands 4 (SPC-4). A process that may open the disk may send these
//! commands.

use super::HealthValues;
use super::scsi::{SenseData, command};
use crate::collector::flag;
use std::fs::File;
use std::io;

const REQUEST_SENSE: u8 = 0x03;
const LOG_SENSE: u8 = 0x4d;
const INFORMATIONAL_EXCEPTIONS: u8 = 0x2f;
/// Current values, not thresholds.
const CURRENT_VALUES: u8 = 0x40;
/// "Failure prediction threshold exceeded".
const WILL_FAIL: u8 = 0x5d;

/// Returns whether the disk sleeps or was stopped; the command does not wake it.
pub(super) fn is_asleep(disk: &File) -> io::Result<bool> {
    let mut data = [0; 18];
    let request = [REQUEST_SENSE, 0, 0, 0, data.len() as u8, 0];
    let reply = command(disk, &request, &mut data)?;
    Ok(SenseData::parse(&data[..reply.bytes]).is_some_and(|sense| sleeps(&sense)))
}

/// Standby of either depth, or waiting for the command to start. In idle a disk answers without
/// being woken.
fn sleeps(sense: &SenseData) -> bool {
    matches!(sense.code, (0x5e, 0x02 | 0x04 | 0x43) | (0x04, 0x02))
}

/// Reads the health of a disk.
pub(super) fn health(disk: &File) -> io::Result<HealthValues> {
    let mut page = [0; 64];
    let request = [
        LOG_SENSE,
        0,
        CURRENT_VALUES | INFORMATIONAL_EXCEPTIONS,
        0,
        0,
        0,
        0,
        0,
        page.len() as u8,
        0,
    ];

    let reply = command(disk, &request, &mut page)?;
    let health = match reply.sense {
        None => parse(&page[..reply.bytes]),
        Some(_) => None,
    };
    health.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "no informational exceptions"))
}

/// A header of four bytes, then parameter 0: number, control, length, additional sense code,
/// qualifier, temperature.
fn parse(page: &[u8]) -> Option<HealthValues> {
    let [first, _, length @ ..] = page else {
        return None;
    };
    let length = usize::from(u16::from_be_bytes([*length.first()?, *length.get(1)?]));
    let parameter = page.get(4..4 + length.min(page.len().saturating_sub(4)))?;
    let (0, 0, 2..) = (*parameter.first()?, *parameter.get(1)?, *parameter.get(3)?) else {
        return None;
    };

    if first & 0x3f != INFORMATIONAL_EXCEPTIONS {
        return None;
    }

    let will_fail = *parameter.get(4)? == WILL_FAIL;
    // 0 and 255 are for disks that do not measure.
    let temperature = parameter.get(6).copied();
    let temperature = temperature.filter(|celsius| (1..=0xfe).contains(celsius));
    Some(HealthValues {
        healthy: Some(flag(!will_fail)),
        temperature: temperature.map(f64::from),
        ..HealthValues::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn exceptions_as_spc_has_them() {
        let told = |page: &[u8]| parse(page).map(|health| (health.healthy, health.temperature));
        // Data of Linux 6.1's scsi_debug, for which smartctl prints "SMART Health Status: OK", 38
        // degrees.
        let well = [0x2f, 0, 0, 7, 0, 0, 3, 3, 0, 0, 0x26];
        assert_eq!(told(&well), Some((Some(1.0), Some(38.0))));
        let failing = [0x2f, 0, 0, 8, 0, 0, 3, 4, 0x5d, 0x10, 0xff, 65];
        assert_eq!(told(&failing), Some((Some(0.0), None)));
        assert_eq!(
            told(&[0x2f, 0, 0, 6, 0, 0, 3, 2, 0x0b, 0x01]),
            Some((Some(1.0), None)),
            "a warning, and no temperature"
        );
        for other in [
            &[][..],
            &[0x2f, 0, 0, 0],
            &[0x0d, 0, 0, 8, 0, 0, 3, 4, 0, 0, 38, 65],
            &[0x2f, 0, 0, 8, 0, 1, 3, 4],
        ] {
            assert_eq!(told(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_stopped_disk_sleeps() {
        let sense = |code| SenseData {
            key: 0,
            code,
            registers: None,
        };
        assert!(
            [(0x5e, 0x43), (0x5e, 0x02), (0x04, 0x02)]
                .map(sense)
                .iter()
                .all(sleeps)
        );
        assert!(
            ![(0, 0), (0x5e, 0x01), (0x5d, 0x10)]
                .map(sense)
                .iter()
                .any(sleeps)
        );
    }

    proptest! {
        #[test]
        fn no_page_ends_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse(&bytes);
            let _ = parse(&[&[INFORMATIONAL_EXCEPTIONS, 0, 0], &bytes[..]].concat());
        }
    }
}
