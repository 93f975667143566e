//! Times as Slurm writes them: local without an offset, or with one, or seconds since 1970.
//!
//! An hour that a clock goes through twice is settled by how long the job ran, where its start or end lies in it. The
//! submission is part of a run's identity and must not depend on anything that changes: it is always taken from the
//! first passage.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

/// The instants of a run, in UTC seconds.
pub(super) struct Times {
    pub submit: i64,
    pub eligible: Option<i64>,
    pub start: Option<i64>,
    pub end: Option<i64>,
}

/// The instants of a run as its record writes them.
pub(super) struct Written<'t> {
    pub submit: &'t str,
    pub eligible: &'t str,
    pub start: &'t str,
    pub end: &'t str,
}

impl Times {
    /// `held` is how many seconds lie between start and end, if that is known.
    pub fn of(written: &Written<'_>, zone: &TimeZone, held: Option<u64>) -> Result<Self, String> {
        let moment = |text, name| moment(text, zone).map_err(|reason| format!("{name} {reason}"));
        let submit = moment(written.submit, "Submit")?
            .ok_or("Submit is missing")?
            .first;
        let eligible =
            moment(written.eligible, "Eligible")?.map(|moment| moment.not_before(submit));
        let (start, end) = match (moment(written.start, "Start")?, moment(written.end, "End")?) {
            (Some(start), Some(end)) => {
                let (start, end) = settle(start, end, submit, held);
                if end < start {
                    return Err("End is before Start".to_owned());
                }
                (Some(start), Some(end))
            }
            (start, end) => (
                start.map(|moment| moment.not_before(submit)),
                end.map(|moment| moment.not_before(submit)),
            ),
        };
        Ok(Self {
            submit,
            eligible,
            start,
            end,
        })
    }
}

/// A time as it was written: one instant, or the two at which the clock showed it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Moment {
    first: i64,
    second: i64,
}

impl Moment {
    fn at(instant: i64) -> Self {
        Self {
            first: instant,
            second: instant,
        }
    }

    fn not_before(self, earliest: i64) -> i64 {
        if self.first < earliest {
            self.second
        } else {
            self.first
        }
    }
}

/// Which passages of the clock are meant: those that lie as far apart as the job ran, after its submission.
fn settle(start: Moment, end: Moment, submit: i64, held: Option<u64>) -> (i64, i64) {
    let fits = |start: i64, end: i64| {
        held.is_some_and(|held| end.checked_sub_unsigned(held) == Some(start))
    };
    let pairs = [start.first, start.second]
        .into_iter()
        .flat_map(|s| [(s, end.first), (s, end.second)]);
    pairs
        .filter(|&(start, end)| start >= submit && fits(start, end))
        .min()
        .unwrap_or_else(|| {
            let start = start.not_before(submit);
            (start, end.not_before(start))
        })
}

/// A time as sacct writes it; `None` where it says that there is none.
fn moment(text: &str, zone: &TimeZone) -> Result<Option<Moment>, String> {
    if ["", "Unknown", "unknown", "None", "NONE", "N/A", "0"].contains(&text) {
        return Ok(None);
    }
    let no_time = || format!("'{text}' is no time");
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let seconds = text
            .parse()
            .ok()
            .and_then(|seconds| Timestamp::from_second(seconds).ok())
            .ok_or_else(no_time)?;
        return Ok(Some(Moment::at(seconds.as_second())));
    }
    if text.len() > "2026-10-25T02:30:00".len() {
        let instant: Timestamp = text.parse().map_err(|_| no_time())?;
        return Ok(Some(Moment::at(instant.as_second())));
    }
    let local: DateTime = text.parse().map_err(|_| no_time())?;
    let seconds = |offset: Offset| {
        offset
            .to_timestamp(local)
            .map(Timestamp::as_second)
            .map_err(|_| no_time())
    };
    Ok(Some(match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } => Moment::at(seconds(offset)?),
        AmbiguousOffset::Fold { before, after } => Moment {
            first: seconds(before)?,
            second: seconds(after)?,
        },
        // Slurm's clock never showed it, so the zone is not the one it was written in, and every other row is suspect.
        AmbiguousOffset::Gap { .. } => {
            let zone = zone.iana_name().unwrap_or("its time zone");
            return Err(format!(
                "'{text}' does not exist in {zone}; is the time zone right?"
            ));
        }
    }))
}
