//! The node's BMC: its event log, whose entries go out as events, and what it says of power and
//! cooling.
//!
//! Source: `/dev/ipmi0`, asked with the few commands below and no other program. BMCs are slow and
//! busy with other things, so this collector has a thread, asks seldom, and keeps the last answer
//! for a while if the BMC does not answer: an alert must not flap with a BMC that answers only
//! sometimes. A node without one has nothing to collect.
//!
//! Sensors are not read one by one: their names and limits are in a repository of hundreds of
//! records, which takes minutes to read where a BMC is slow; what goes beyond a critical limit is
//! written into the log. hwmon has what the board's own chips measure.

mod device;
mod log;
mod record;

use self::device::{Bmc, BmcAnswer};
use self::log::{BmcTransport, LogSpace};
use self::record::RawRecord;
use crate::collector::{CollectError, Collector, flag};
use crate::events::{Events, LogMark};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use takt_model::{Metric, Samples, Timestamp};

struct Ipmi {
    device: PathBuf,
    events: Events,
    /// How far the log was read.
    mark: Option<LogMark>,
    asked: Option<Instant>,
    /// The BMC's last answer, and its time.
    said: Option<(Instant, BmcStatus)>,
    problem: Option<(io::ErrorKind, String)>,
}

#[derive(Debug, Clone, Copy)]
struct BmcStatus {
    fill: LogSpace,
    /// In the order of [`FAULTS`]; a BMC need not know.
    faults: Option<[bool; FAULTS.len()]>,
}

const ENTRIES: Metric = Metric::gauge(
    "takt_ipmi_log_entries",
    "Records in the BMC's event log.",
    &[],
);
const FREE: Metric = Metric::gauge(
    "takt_ipmi_log_free_bytes",
    "Free space in the BMC's event log; 65,535 means that or more.",
    &[],
);
const OVERFLOWN: Metric = Metric::gauge(
    "takt_ipmi_log_overflown",
    "Whether the BMC has dropped records because its log is full. The log must be cleared.",
    &[],
);
const FAULT: Metric = Metric::gauge(
    "takt_ipmi_chassis_fault",
    "Whether the BMC reports this fault of the chassis: power, power_control, power_overload, \
     drive or cooling.",
    &["fault"],
);
const METRICS: &[Metric] = &[ENTRIES, FREE, OVERFLOWN, FAULT];

const EVERY: Duration = Duration::from_secs(30);
/// Time for which the last values are shown without an answer.
const KEPT: Duration = Duration::from_secs(600);

pub(crate) fn new() -> Box<dyn Collector> {
    Box::new(Ipmi {
        device: PathBuf::from("/dev/ipmi0"),
        events: Events::default(),
        mark: None,
        asked: None,
        said: None,
        problem: None,
    })
}

impl Collector for Ipmi {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        3 + FAULTS.len()
    }

    fn attach(&mut self, events: &Events) -> io::Result<()> {
        self.events = events.clone();
        self.mark = events.bmc_mark();
        Ok(())
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        if self.asked.is_none_or(|asked| asked.elapsed() >= EVERY) {
            let error = self.ask().err();
            self.problem = error.map(|error| (error.kind(), error.to_string()));
            self.asked = Some(Instant::now());
        }

        if let Some((_, said)) = self.said.filter(|(at, _)| at.elapsed() < KEPT) {
            out.push::<&str>(&ENTRIES, &[], said.fill.entries.into());
            out.push::<&str>(&FREE, &[], said.fill.free_bytes.into());
            let has_overflown = flag(said.fill.has_overflown);
            out.push::<&str>(&OVERFLOWN, &[], has_overflown);
            for ((fault, ..), is_there) in FAULTS.iter().zip(said.faults.into_iter().flatten()) {
                out.push(&FAULT, &[fault], flag(is_there));
            }
        }

        match &self.problem {
            None => Ok(()),
            Some((io::ErrorKind::PermissionDenied, _)) => {
                Err(CollectError::Denied("opening /dev/ipmi0"))
            }
            Some((kind, error)) => {
                let source = io::Error::new(*kind, error.clone());
                Err(CollectError::Read {
                    path: self.device.clone(),
                    source,
                }
                .or_absent("no BMC, or no module ipmi_devintf"))
            }
        }
    }
}

impl Ipmi {
    fn ask(&mut self) -> io::Result<()> {
        let bmc = &mut Bmc::open(&self.device)?;
        let fill = log::fill(bmc)?;
        let faults = faults(bmc).unwrap_or_default();
        self.said = Some((Instant::now(), BmcStatus { fill, faults }));

        let mut news = Vec::new();
        let result = match fill.entries {
            0 => {
                self.mark = Some(log::mark_of_empty());
                Ok(())
            }
            _ => log::follow(bmc, &mut self.mark, &mut news),
        };

        // Also what was read before an error, as the mark stands behind it.
        self.tell(bmc, &news);
        result
    }

    /// Sends the records that are events, with their times by the node's clock.
    fn tell(&mut self, bmc: &mut Bmc, news: &[RawRecord]) {
        let entries = news.iter();
        let entries = entries.filter_map(|record| Some((record, record::read(record)?)));
        let entries: Vec<_> = entries.collect();

        if !entries.is_empty() {
            let now = SystemTime::now();
            // How far its clock is off, time zone and all.
            let clock = log::clock(bmc).ok();
            for (record, entry) in entries {
                let age = match (clock, record::time(record)) {
                    (Some(clock), Some(at)) => clock.saturating_sub(at),
                    _ => 0,
                };
                let at = Timestamp::from(now).minus(Duration::from_secs(age.into()));
                let mark = log::mark_of(record);
                self.events
                    .hardware_log(entry.labels, entry.message, at, mark);
            }
        }

        if let Some(mark) = &self.mark {
            self.events.bmc_log_was_read(mark.clone());
        }
    }
}

impl BmcTransport for Bmc {
    fn ask(&mut self, function: u8, command: u8, data: &[u8]) -> io::Result<BmcAnswer> {
        self.ask(function, command, data)
    }
}

const CHASSIS: u8 = 0x00;
const GET_CHASSIS_STATUS: u8 = 0x01;

/// Name, byte and bit of Get Chassis Status (IPMI 2.0, §28.2).
const FAULTS: &[(&str, usize, u8)] = &[
    ("power_overload", 0, 1),
    ("power", 0, 3),
    ("power_control", 0, 4),
    ("drive", 2, 2),
    ("cooling", 2, 3),
];

/// Faults of the chassis; `None` if the BMC does not support the command.
fn faults(bmc: &mut impl BmcTransport) -> io::Result<Option<[bool; FAULTS.len()]>> {
    let answer = bmc.ask(CHASSIS, GET_CHASSIS_STATUS, &[])?;
    let status = log::well(answer).ok();
    Ok(status.and_then(|status| parse_faults(&status)))
}

fn parse_faults(status: &[u8]) -> Option<[bool; FAULTS.len()]> {
    let status: &[u8; 3] = status.first_chunk()?;
    let mut faults = [false; FAULTS.len()];
    for (fault, (_, byte, bit)) in faults.iter_mut().zip(FAULTS) {
        *fault = status[*byte] & 1 << bit != 0;
    }
    Some(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answer_is_kept_for_a_while() {
        let fill = LogSpace {
            entries: 7,
            free_bytes: 100,
            has_overflown: false,
        };
        let told = |ago| {
            let mut ipmi = Ipmi {
                // No BMC: it refuses every command.
                device: PathBuf::from("/dev/null"),
                events: Events::default(),
                mark: None,
                asked: None,
                said: Instant::now()
                    .checked_sub(ago)
                    .map(|at| (at, BmcStatus { fill, faults: None })),
                problem: None,
            };
            let mut samples = Samples::new();
            assert!(matches!(
                ipmi.collect(&mut samples),
                Err(CollectError::Read { .. })
            ));
            samples.len()
        };
        assert_eq!([told(Duration::ZERO), told(KEPT)], [3, 0]);
    }

    #[test]
    fn faults_of_the_chassis() {
        assert_eq!(
            parse_faults(&[0x21, 0x10, 0x40]),
            Some([false; 5]),
            "on, and switched on by a command"
        );
        assert_eq!(parse_faults(&[0x61, 0, 0, 0]), Some([false; 5]), "QEMU's");
        assert_eq!(
            parse_faults(&[0x0b, 0x00, 0x08, 0x00]),
            Some([true, true, false, false, true])
        );
        assert_eq!(
            parse_faults(&[0x10, 0x00, 0x04]),
            Some([false, false, true, true, false])
        );
        assert_eq!(parse_faults(&[0x01, 0x00]), None);
    }
}
