//! Times as Slurm writes them: local without an offset, with an offset, or seconds since 1970.
//!
//! When clocks are set back, one local hour occurs twice. The run time decides which of the two a
//! start or end means. The submission identifies the run and must not depend on data that change,
//! so it always means the first occurrence.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use takt_model::UnixTime;

/// Times of a run.
pub(super) struct RunTimes {
    pub submit: UnixTime,
    pub eligible: Option<UnixTime>,
    pub start: Option<UnixTime>,
    pub end: Option<UnixTime>,
}

/// Times of a run as the record writes them.
pub(super) struct WrittenTimes<'t> {
    pub submit: &'t str,
    pub eligible: &'t str,
    pub start: &'t str,
    pub end: &'t str,
}

impl RunTimes {
    /// Parses the times. `held` is the number of seconds between start and end, if known.
    pub fn of(
        written: &WrittenTimes<'_>,
        zone: &TimeZone,
        held: Option<u64>,
    ) -> Result<Self, String> {
        let moment = |text, name| moment(text, zone).map_err(|reason| format!("{name} {reason}"));
        // The submission identifies the run, so it must not depend on the times of the run, which change.
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

/// A parsed time: one instant, or the two instants of a repeated local hour.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ParsedTime {
    first: UnixTime,
    second: UnixTime,
}

impl ParsedTime {
    fn at(instant: UnixTime) -> Self {
        Self {
            first: instant,
            second: instant,
        }
    }

    fn not_before(self, earliest: UnixTime) -> UnixTime {
        // In a repeated hour, the first instant may be before the submission, and the second behind it.
        if self.first < earliest {
            self.second
        } else {
            self.first
        }
    }
}

/// Chooses the instants of start and end that fit the run time and follow the submission.
fn settle(
    start: ParsedTime,
    end: ParsedTime,
    submit: UnixTime,
    held: Option<u64>,
) -> (UnixTime, UnixTime) {
    // Without a run time, no pair is known to fit.
    let fits =
        |start: UnixTime, end: UnixTime| held.is_some() && u64::try_from(end - start).ok() == held;

    [start.first, start.second]
        .into_iter()
        .flat_map(|s| [(s, end.first), (s, end.second)])
        // A pair that fits and begins before the submission is that of the other hour.
        .filter(|&(start, end)| start >= submit && fits(start, end))
        .min()
        // No pair fits, as after a change of slurmctld's clock: at least the order is kept.
        .unwrap_or_else(|| {
            let start = start.not_before(submit);
            (start, end.not_before(start))
        })
}

/// Times that are not set: Slurm's words, and its numbers NO_VAL and INFINITE of 32 and 64 bits.
const NOT_SET: &[&str] = &[
    "",
    "Unknown",
    "unknown",
    "None",
    "NONE",
    "N/A",
    "0",
    "4294967294",
    "4294967295",
    "18446744073709551614",
    "18446744073709551615",
];

/// The form of a local time. Slurm always prints seconds.
const LOCAL: &str = "0000-00-00T00:00:00";

/// Returns whether a text has the form of a local time.
fn is_local(text: &str) -> bool {
    // The caller has cut the text to the length of the form.
    text.bytes()
        .zip(LOCAL.bytes())
        .all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            b'T' => matches!(byte, b'T' | b' '),
            _ => byte == form,
        })
}

/// Parses a time as sacct writes it. `None` if it is not set.
fn moment(text: &str, zone: &TimeZone) -> Result<Option<ParsedTime>, String> {
    if NOT_SET.contains(&text) {
        return Ok(None);
    }
    let no_time = || format!("'{text}' is not a time");

    // `SLURM_TIME_FORMAT=%s`.
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let instant: UnixTime = text.parse().map_err(|_| no_time())?;
        // Beyond the years that a date can have, arithmetic with the instant would fail later.
        Timestamp::try_from(instant).map_err(|_| no_time())?;
        return Ok(Some(ParsedTime::at(instant)));
    }

    let is_local = text.get(..LOCAL.len()).is_some_and(is_local);
    // `2026-10-01t10:00:00z` is a form that other parsers take and Slurm never writes.
    if !is_local || text.ends_with(|letter: char| letter.is_ascii_lowercase()) {
        return Err(no_time());
    }
    // Behind the seconds comes an offset, or thousandths.
    if text.len() > LOCAL.len() {
        let instant: Timestamp = text.parse().map_err(|_| no_time())?;
        return Ok(Some(ParsedTime::at(instant.into())));
    }

    let local: DateTime = text.parse().map_err(|_| no_time())?;
    let seconds = |offset: Offset| {
        offset
            .to_timestamp(local)
            .map(UnixTime::from)
            .map_err(|_| no_time())
    };
    Ok(Some(match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } => ParsedTime::at(seconds(offset)?),
        AmbiguousOffset::Fold { before, after } => ParsedTime {
            first: seconds(before)?,
            second: seconds(after)?,
        },
        // This local time was skipped when clocks were set forward, so the time zone is wrong, and
        // all other rows are suspect.
        AmbiguousOffset::Gap { .. } => {
            let zone = zone.iana_name().unwrap_or("its time zone");
            return Err(format!(
                "'{text}' does not exist in {zone}; is the time zone right?"
            ));
        }
    }))
}
