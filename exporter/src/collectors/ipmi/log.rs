//! The BMC's event log (SEL): how full it is, and what is new in it.
//!
//! IPMI 2.0, §31. Records are linked: each is answered with the id of the next. Ids are reused and
//! logs are cleared, so a mark is a whole record: if it is unchanged, the records after it are new.

use super::device::BmcAnswer;
use super::record::{self, BYTES, RawRecord};
use crate::events::{EventSource, LogMark};
use std::io;

/// A BMC, or a stand-in for one.
pub(super) trait BmcTransport {
    fn ask(&mut self, function: u8, command: u8, data: &[u8]) -> io::Result<BmcAnswer>;
}

/// How full the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogSpace {
    pub entries: u16,
    /// Up to 65,535, which may be more.
    pub free_bytes: u16,
    pub has_overflown: bool,
}

const STORAGE: u8 = 0x0a;
const GET_LOG_INFO: u8 = 0x40;
const GET_LOG_ENTRY: u8 = 0x43;
const GET_LOG_TIME: u8 = 0x48;
const FIRST: u16 = 0x0000;
const LAST: u16 = 0xffff;
/// Value instead of a next record's id at the end of the log.
const NO_MORE: u16 = 0xffff;
/// Maximum number of new records in one reading; the others are read next time.
const AT_ONCE: usize = 64;

/// Completion code of success.
pub(super) fn well(answer: BmcAnswer) -> io::Result<Vec<u8>> {
    match answer.code {
        0 => Ok(answer.data),
        code => Err(io::Error::other(format!(
            "the BMC answers with completion code {code:#04x}"
        ))),
    }
}

fn too_short() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the BMC's answer is too short",
    )
}

pub(super) fn fill(bmc: &mut impl BmcTransport) -> io::Result<LogSpace> {
    let info = well(bmc.ask(STORAGE, GET_LOG_INFO, &[])?)?;
    let &[_, e0, e1, f0, f1, .., flags] = info.get(..14).ok_or_else(too_short)? else {
        return Err(too_short());
    };

    let entries = u16::from_le_bytes([e0, e1]);
    let free_bytes = u16::from_le_bytes([f0, f1]);
    Ok(LogSpace {
        entries,
        free_bytes,
        has_overflown: flags & 0x80 != 0,
    })
}

/// Seconds since 1970, by the BMC's clock.
pub(super) fn clock(bmc: &mut impl BmcTransport) -> io::Result<u32> {
    let time = well(bmc.ask(STORAGE, GET_LOG_TIME, &[])?)?;
    let time = time.first_chunk().ok_or_else(too_short)?;
    Ok(u32::from_le_bytes(*time))
}

/// Appends the records after `mark` to `news`, oldest first, and advances the mark; both are
/// consistent also if this fails midway. Without a mark the records in the log are old and are
/// skipped.
pub(super) fn follow(
    bmc: &mut impl BmcTransport,
    mark: &mut Option<LogMark>,
    news: &mut Vec<RawRecord>,
) -> io::Result<()> {
    let Some(known) = mark else {
        *mark = entry(bmc, LAST)?.map(|(_, last)| mark_of(&last));
        return Ok(());
    };

    let mut lost_since = None;
    let mut next = match place(known) {
        None => FIRST,
        Some(known) => match entry(bmc, record::id(&known))? {
            Some((next, same)) if same == known => next,
            // Cleared, or written over. Should the BMC have changed the record, what is older is
            // still not news.
            _ => {
                lost_since = record::time(&known);
                FIRST
            }
        },
    };

    for _ in 0..AT_ONCE {
        if next == NO_MORE {
            break;
        }
        // The log may be cleared in between.
        let Some((behind, record)) = entry(bmc, next)? else {
            break;
        };

        let is_old =
            lost_since.is_some_and(|since| record::time(&record).is_some_and(|at| at <= since));
        if !is_old {
            news.push(record);
        }

        // At each record, so that none comes twice if the next one fails.
        *mark = Some(mark_of(&record));

        // A log whose last record names itself would never end.
        if behind == next {
            break;
        }

        next = behind;
    }
    Ok(())
}

/// The mark of an empty log: every later record is new.
pub(super) fn mark_of_empty() -> LogMark {
    LogMark {
        source: EventSource::Bmc,
        log: String::new(),
        position: 0,
    }
}

pub(super) fn mark_of(record: &RawRecord) -> LogMark {
    LogMark {
        source: EventSource::Bmc,
        log: record::hex(record),
        position: record::id(record).into(),
    }
}

/// The record at the mark, where there was one.
fn place(mark: &LogMark) -> Option<RawRecord> {
    let mut bytes = Vec::new();
    for pair in mark.log.as_bytes().chunks_exact(2) {
        let pair = std::str::from_utf8(pair).ok()?;
        bytes.push(u8::from_str_radix(pair, 16).ok()?);
    }
    bytes.try_into().ok()
}

/// The id of the next, and the record.
fn entry(bmc: &mut impl BmcTransport, id: u16) -> io::Result<Option<(u16, RawRecord)>> {
    const NOT_THERE: [u8; 2] = [0xc9, 0xcb];
    const ALL_OF_IT: [u8; 2] = [0, 0xff];

    // Without a reservation: it is needed for parts of records only.
    let [low, high] = id.to_le_bytes();
    let request = [0, 0, low, high, ALL_OF_IT[0], ALL_OF_IT[1]];
    let answer = bmc.ask(STORAGE, GET_LOG_ENTRY, &request)?;
    if NOT_THERE.contains(&answer.code) {
        return Ok(None);
    }

    let data = well(answer)?;
    let (next, record) = data.split_first_chunk::<2>().ok_or_else(too_short)?;
    let record = record.first_chunk::<BYTES>().ok_or_else(too_short)?;

    Ok(Some((u16::from_le_bytes(*next), *record)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A log of records; what does not answer fails.
    #[derive(Default)]
    struct Bmc {
        records: Vec<RawRecord>,
        fails_at: Option<u16>,
    }

    fn record(id: u16, time: u32) -> RawRecord {
        let id = id.to_le_bytes();
        let time = time.to_le_bytes();
        [
            id[0], id[1], 2, time[0], time[1], time[2], time[3], 0x20, 0, 4, 8, 0x51, 0x6f, 3,
            0xff, 0xff,
        ]
    }

    impl BmcTransport for Bmc {
        fn ask(&mut self, function: u8, command: u8, data: &[u8]) -> io::Result<BmcAnswer> {
            assert_eq!((function, command), (STORAGE, GET_LOG_ENTRY));
            let wanted = u16::from_le_bytes([data[2], data[3]]);
            if self.fails_at == Some(wanted) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let place = match wanted {
                FIRST => Some(0),
                LAST => self.records.len().checked_sub(1),
                id => self
                    .records
                    .iter()
                    .position(|record| record::id(record) == id),
            };
            let found = place
                .and_then(|place| Some((self.records.get(place)?, self.records.get(place + 1))));
            Ok(match found {
                None => BmcAnswer {
                    code: 0xcb,
                    data: Vec::new(),
                },
                Some((record, next)) => {
                    let next = next.map_or(NO_MORE, record::id).to_le_bytes();
                    BmcAnswer {
                        code: 0,
                        data: [&next[..], record].concat(),
                    }
                }
            })
        }
    }

    impl Bmc {
        /// The ids of what is new.
        fn news(&mut self, mark: &mut Option<LogMark>) -> Vec<u16> {
            let mut news = Vec::new();
            let _ = follow(self, mark, &mut news);
            news.iter().map(record::id).collect()
        }
    }

    const TIME: u32 = 1_795_000_000;

    #[test]
    fn only_later_events_are_new() {
        let mut bmc = Bmc {
            records: vec![record(1, TIME), record(2, TIME)],
            ..Bmc::default()
        };
        let mut mark = None;
        assert_eq!(bmc.news(&mut mark), [0_u16; 0], "what was there");
        assert_eq!(bmc.news(&mut mark), [0_u16; 0]);
        bmc.records
            .extend([record(3, TIME + 5), record(4, TIME + 5)]);
        bmc.fails_at = Some(4);
        assert_eq!(bmc.news(&mut mark), [3]);
        bmc.fails_at = None;
        assert_eq!(bmc.news(&mut mark), [4], "it goes on where it failed");
        // The oldest go, ids come round.
        bmc.records.drain(..3);
        bmc.records.push(record(1, TIME + 9));
        assert_eq!(bmc.news(&mut mark), [1]);
    }

    #[test]
    fn a_log_that_is_cleared_is_read_from_its_beginning() {
        let mut bmc = Bmc {
            records: vec![record(1, TIME), record(2, TIME)],
            ..Bmc::default()
        };
        let mut mark = None;
        bmc.news(&mut mark);
        bmc.records = vec![record(1, TIME + 5), record(2, TIME + 6)];
        assert_eq!(bmc.news(&mut mark), [1, 2]);
        bmc.records = vec![record(7, TIME), record(8, TIME + 7)];
        assert_eq!(
            bmc.news(&mut mark),
            [8],
            "an old record under a new number is not news"
        );
        let mut mark = Some(mark_of_empty());
        assert_eq!(bmc.news(&mut mark), [7, 8]);
        assert_eq!(mark, Some(mark_of(&record(8, TIME + 7))));
    }

    #[test]
    fn a_flood_is_read_in_pieces() {
        let mut bmc = Bmc {
            records: vec![record(1, TIME)],
            ..Bmc::default()
        };
        let mut mark = None;
        bmc.news(&mut mark);
        bmc.records.extend((2..=100).map(|id| record(id, TIME)));
        assert_eq!(bmc.news(&mut mark).len(), AT_ONCE);
        assert_eq!(bmc.news(&mut mark).last(), Some(&100));
    }

    /// Output of `ipmitool raw 0x0a 0x40`, from
    /// computercheese.blogspot.com/2013/05/ipmi-sel-device-commands.html.
    #[test]
    fn how_full_it_is() {
        struct Info<'a>(&'a [u8]);
        impl BmcTransport for Info<'_> {
            fn ask(&mut self, _: u8, command: u8, _: &[u8]) -> io::Result<BmcAnswer> {
                assert_eq!(command, GET_LOG_INFO);
                Ok(BmcAnswer {
                    code: self.0[0],
                    data: self.0[1..].to_vec(),
                })
            }
        }
        // The first number is the completion code.
        let info = [
            0, 0x51, 8, 0, 0x4c, 0xfb, 0x5d, 0x55, 0x0b, 0x5b, 0x43, 0xd2, 0xff, 0x4e, 0x0f,
        ];
        let expected = LogSpace {
            entries: 8,
            free_bytes: 0xfb4c,
            has_overflown: false,
        };
        assert_eq!(fill(&mut Info(&info)).unwrap(), expected);
        // QEMU's BMC after four records.
        let info = &[
            0, 0x51, 4, 0, 0xc0, 7, 0xb0, 0x37, 2, 0x6b, 0xff, 0xff, 0xff, 0xff, 2,
        ];
        let expected = LogSpace {
            entries: 4,
            free_bytes: 1984,
            has_overflown: false,
        };
        assert_eq!(fill(&mut Info(info)).unwrap(), expected);
        assert_eq!(
            fill(&mut Info(&[0x81])).unwrap_err().to_string(),
            "the BMC answers with completion code 0x81"
        );
        assert!(fill(&mut Info(&[0, 0x51, 8])).is_err());
    }

    struct GarbageBmc(Vec<u8>);

    impl BmcTransport for GarbageBmc {
        fn ask(&mut self, _: u8, _: u8, _: &[u8]) -> io::Result<BmcAnswer> {
            Ok(BmcAnswer {
                code: 0,
                data: self.0.clone(),
            })
        }
    }

    proptest! {
        #[test]
        fn no_answer_ends_the_reader_or_keeps_it_for_ever(bytes in prop::collection::vec(any::<u8>(), 0..40), log in ".{0,40}") {
            let bmc = &mut GarbageBmc(bytes);
            let _ = (fill(bmc), clock(bmc));
            let mut news = Vec::new();
            let mut mark = Some(LogMark { source: EventSource::Bmc, log, position: 1 });
            let _ = follow(bmc, &mut mark, &mut news);
            prop_assert!(news.len() <= AT_ONCE);
        }
    }
}
