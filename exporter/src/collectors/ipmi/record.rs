//! Records of the BMC's event log.
//!
//! Layout and tables: IPMI 2.0, §32 (records), tables 42-2 (event types) and 42-3 (sensor types).
//! The tables hold what must be reported; other offsets are no events. Records of a maker's own
//! form say nothing to others.

use takt_model::Labels;

/// A record of the log has this many bytes.
pub(super) const BYTES: usize = 16;
pub(super) type RawRecord = [u8; BYTES];

/// Times up to this are counted from the BMC's own start, not from 1970.
const LAST_OF_START: u32 = 0x2000_0000;

/// A record that is reported as an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogEntry {
    pub labels: Labels,
    pub message: String,
}

/// The id by which the log knows the record.
pub(super) fn id(record: &RawRecord) -> u16 {
    u16::from_le_bytes([record[0], record[1]])
}

/// Seconds since 1970 by the BMC's clock, where that had been set and the record has a time.
pub(super) fn time(record: &RawRecord) -> Option<u32> {
    const WITHOUT_TIME: u8 = 0xe0;

    let time = u32::from_le_bytes([record[3], record[4], record[5], record[6]]);
    Some(time)
        .filter(|time| record[2] < WITHOUT_TIME && (LAST_OF_START + 1..u32::MAX).contains(time))
}

/// All bytes of the record, for the event and to recognise it again.
pub(super) fn hex(record: &RawRecord) -> String {
    record.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The event of a record that says that something failed or is about to fail. Recovery is no event.
pub(super) fn read(record: &RawRecord) -> Option<LogEntry> {
    const SYSTEM_EVENT: u8 = 0x02;
    const IS_OVER: u8 = 0x80;
    let &[
        _,
        _,
        kind,
        _,
        _,
        _,
        _,
        _,
        _,
        _,
        sensor_type,
        sensor,
        event_type,
        data,
        ..,
    ] = record;

    if kind != SYSTEM_EVENT || event_type & IS_OVER != 0 {
        return None;
    }

    let (event, severity) = meaning(sensor_type, event_type & 0x7f, data & 0x0f)?;

    let sensor_type = sensor_type_name(sensor_type);
    let sensor = format!("{sensor:#04x}");
    let labels = [
        ("sensor_type", sensor_type),
        ("sensor", &sensor),
        ("event", event),
        ("severity", severity.name()),
    ];
    let message = format!(
        "BMC: {sensor_type}, sensor {sensor}: {event} (record {})",
        hex(record)
    );
    Some(LogEntry {
        labels: labels.into_iter().collect(),
        message,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Severity {
    Critical,
    Warning,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
        }
    }
}

use Severity::{Critical, Warning};

/// Event type, offset, words, severity: of any sensor.
#[rustfmt::skip]
const OF_ANY_SENSOR: &[(u8, u8, &str, Severity)] = &[
    // Thresholds, passed in the direction that makes it worse.
    (0x01, 0x0, "lower non-critical", Warning),
    (0x01, 0x2, "lower critical", Critical),
    (0x01, 0x4, "lower non-recoverable", Critical),
    (0x01, 0x7, "upper non-critical", Warning),
    (0x01, 0x9, "upper critical", Critical),
    (0x01, 0xb, "upper non-recoverable", Critical),
    (0x04, 0x1, "predictive failure", Warning),
    // Severities.
    (0x07, 0x1, "non-critical", Warning),
    (0x07, 0x2, "critical", Critical),
    (0x07, 0x3, "non-recoverable", Critical),
    (0x07, 0x6, "non-recoverable", Critical),
    // Redundancy.
    (0x0b, 0x1, "redundancy lost", Warning),
    (0x0b, 0x5, "insufficient resources", Critical),
];

const POWER_SUPPLY: u8 = 0x08;

/// Sensor type, offset, words, severity: of sensors whose events are their type's own.
#[rustfmt::skip]
const OF_A_TYPE: &[(u8, u8, &str, Severity)] = &[
    (0x07, 0x0, "IERR", Critical),
    (0x07, 0x1, "thermal trip", Critical),
    (0x07, 0x2, "self test failed", Critical),
    (0x07, 0x3, "hang in POST", Critical),
    (0x07, 0x4, "startup failed", Critical),
    (0x07, 0x5, "configuration error", Critical),
    (0x07, 0x6, "uncorrectable error", Critical),
    (0x07, 0xa, "throttled", Warning),
    (0x07, 0xb, "uncorrectable machine check", Critical),
    (0x07, 0xc, "correctable machine check", Warning),
    (POWER_SUPPLY, 0x1, "failure", Critical),
    (POWER_SUPPLY, 0x2, "predictive failure", Warning),
    (POWER_SUPPLY, 0x3, "input lost", Critical),
    (POWER_SUPPLY, 0x4, "input lost or out of range", Critical),
    (POWER_SUPPLY, 0x5, "input out of range", Critical),
    (POWER_SUPPLY, 0x6, "configuration error", Warning),
    (0x09, 0x4, "AC lost", Critical),
    (0x09, 0x5, "soft power control failure", Critical),
    (0x09, 0x6, "failure", Critical),
    (0x09, 0x7, "predictive failure", Warning),
    (0x0c, 0x1, "uncorrectable ECC error", Critical),
    (0x0c, 0x2, "parity error", Critical),
    (0x0c, 0x3, "scrub failed", Critical),
    (0x0c, 0x5, "too many correctable ECC errors", Warning),
    (0x0c, 0xa, "critical overtemperature", Critical),
    (0x0d, 0x1, "drive fault", Warning),
    (0x0d, 0x2, "predictive failure", Warning),
    (0x10, 0x4, "log full", Warning),
    (0x13, 0x1, "bus timeout", Critical),
    (0x13, 0x2, "I/O channel check NMI", Critical),
    (0x13, 0x4, "PCI PERR", Critical),
    (0x13, 0x5, "PCI SERR", Critical),
    (0x13, 0x7, "bus correctable error", Warning),
    (0x13, 0x8, "bus uncorrectable error", Critical),
    (0x13, 0x9, "fatal NMI", Critical),
    (0x13, 0xa, "bus fatal error", Critical),
    (0x13, 0xb, "bus degraded", Warning),
    (0x21, 0x0, "fault", Warning),
    (0x23, 0x1, "watchdog reset the node", Warning),
    (0x23, 0x2, "watchdog powered the node down", Warning),
    (0x23, 0x3, "watchdog power-cycled the node", Warning),
    (0x29, 0x0, "battery low", Warning),
    (0x29, 0x1, "battery failed", Warning),
];

fn meaning(sensor_type: u8, event_type: u8, offset: u8) -> Option<(&'static str, Severity)> {
    const TYPE_S_OWN: u8 = 0x6f;
    // Either the event's type says what an offset means, or the sensor's does.
    let (table, kind) = match event_type {
        TYPE_S_OWN => (OF_A_TYPE, sensor_type),
        _ => (OF_ANY_SENSOR, event_type),
    };
    let (.., event, severity) = table
        .iter()
        .find(|(of, at, ..)| (*of, *at) == (kind, offset))?;
    Some((*event, *severity))
}

fn sensor_type_name(sensor_type: u8) -> &'static str {
    match sensor_type {
        0x01 => "temperature",
        0x02 => "voltage",
        0x03 => "current",
        0x04 => "fan",
        0x07 => "processor",
        POWER_SUPPLY => "power_supply",
        0x09 => "power_unit",
        0x0a => "cooling_device",
        0x0c => "memory",
        0x0d => "drive_slot",
        0x10 => "event_log",
        0x13 => "critical_interrupt",
        0x15 => "board",
        0x17 => "add_in_card",
        0x19 => "chip_set",
        0x1b => "cable",
        0x21 => "slot",
        0x23 => "watchdog",
        0x29 => "battery",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(sensor_type: u8, event_type: u8, data: u8) -> RawRecord {
        // Record 1 of 2021-03-20 00:56:43 by generator 0x92, sensor 0x12, as `ipmitool sel get`
        // showed it to the writer of ackdo.com/2021/03/21/ipmi_ackdo_os_boot_sensor, with another
        // sensor in it.
        [
            1,
            0,
            2,
            0x4b,
            0x48,
            0x55,
            0x60,
            0x92,
            0,
            4,
            sensor_type,
            0x12,
            event_type,
            data,
            0xff,
            0xff,
        ]
    }

    fn told(sensor_type: u8, event_type: u8, data: u8) -> Option<String> {
        let labels = read(&record(sensor_type, event_type, data))?.labels;
        Some(
            ["sensor_type", "event", "severity"]
                .map(|name| labels.get(name).unwrap_or_default())
                .join(", "),
        )
    }

    #[test]
    fn only_relevant_records_become_events() {
        let cases = [
            ((0x08, 0x6f, 0x03), "power_supply, input lost, critical"),
            ((0x08, 0x6f, 0xa1), "power_supply, failure, critical"),
            ((0x09, 0x6f, 0x04), "power_unit, AC lost, critical"),
            (
                (0x0c, 0x6f, 0x21),
                "memory, uncorrectable ECC error, critical",
            ),
            (
                (0x0c, 0x6f, 0x25),
                "memory, too many correctable ECC errors, warning",
            ),
            ((0x07, 0x6f, 0x00), "processor, IERR, critical"),
            ((0x13, 0x6f, 0xa5), "critical_interrupt, PCI SERR, critical"),
            ((0x01, 0x01, 0x59), "temperature, upper critical, critical"),
            ((0x04, 0x01, 0x52), "fan, lower critical, critical"),
            ((0x02, 0x07, 0x03), "voltage, non-recoverable, critical"),
            ((0x08, 0x0b, 0x01), "power_supply, redundancy lost, warning"),
            ((0xc1, 0x07, 0x02), "other, critical, critical"),
        ];
        for ((sensor_type, event_type, data), expected) in cases {
            assert_eq!(
                told(sensor_type, event_type, data).as_deref(),
                Some(expected)
            );
            assert_eq!(
                told(sensor_type, event_type | 0x80, data),
                None,
                "{expected}: it is over"
            );
        }
        for (sensor_type, event_type, data) in [
            (0x1f, 0x6f, 0x01), // booted from disk, the record as it was
            (0x0c, 0x6f, 0x00), // a corrected error
            (0x08, 0x6f, 0x00), // a power supply is there
            (0x01, 0x01, 0x58), // back below the upper critical temperature
            (0x05, 0x6f, 0x00), // the chassis was opened
        ] {
            assert_eq!(told(sensor_type, event_type, data), None);
        }
        let mut own = record(0x08, 0x6f, 0x03);
        // Kinds from here on are a maker's own.
        own[2] = 0xc0;
        assert_eq!(read(&own), None, "a record of a maker's own form");
    }

    #[test]
    fn a_record_says_when_and_which_sensor() {
        let input_lost = record(0x08, 0x6f, 0x03);
        let told = read(&input_lost).unwrap();
        assert_eq!(
            (id(&input_lost), time(&input_lost)),
            (1, Some(1_616_201_803))
        );
        assert_eq!(told.labels.get("sensor"), Some("0x12"));
        let message =
            "BMC: power_supply, sensor 0x12: input lost (record 0100024b48556092000408126f03ffff)";
        assert_eq!(told.message, message);
        let mut unset = input_lost;
        unset[3..7].copy_from_slice(&[0x10, 0, 0, 0]);
        assert_eq!(time(&unset), None, "16 seconds after the BMC's start");
    }

    proptest! {
        #[test]
        fn no_record_ends_the_reader(record: RawRecord, sensor_type in 0_u8..0x30, event_type in prop::sample::select(vec![1_u8, 4, 7, 0xb, 0x6f])) {
            let _ = (read(&record), time(&record), id(&record));
            let mut record = record;
            (record[2], record[10], record[12]) = (2, sensor_type, event_type);
            if let Some(told) = read(&record) {
                prop_assert!(told.labels.iter().all(|(_, value)| !value.is_empty()));
            }
        }
    }
}
