//! Whether a message is due, and why: what was told last, against what is true now.

use crate::fingerprint::Fingerprint;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use takt_model::{Labels, Timestamp};

/// Why a message is sent, or that none is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Nothing of this group was known to fire.
    FirstFiring,
    /// Alerts fire that were not told yet.
    NewInGroup,
    /// Some of what was told is over.
    SomeResolved,
    /// All of what was told is over.
    Resolved,
    /// Nothing changed, and it is time to say so.
    StillFiring,
    /// No message.
    Nothing,
}

impl Reason {
    /// The reason in Alertmanager's words, for webhooks and templates.
    pub fn words(self) -> &'static str {
        match self {
            Self::FirstFiring => "first notification",
            Self::NewInGroup => "new alerts added",
            Self::SomeResolved => "some alerts resolved",
            Self::Resolved => "all alerts resolved",
            Self::StillFiring => "repeat interval elapsed",
            Self::Nothing => "",
        }
    }
}

/// An alert that was told to be firing and is not told to be over yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// Its labels, so that its end can be told even if nothing else is known of it any more.
    pub labels: Labels,
    /// Since when it fired when it was told.
    pub starts_at: Timestamp,
}

/// What one channel was told last about one group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LogEntry {
    /// When.
    pub at: Timestamp,
    /// What it believes to be firing.
    pub open: BTreeMap<Fingerprint, Told>,
    /// What it was told to be over with the last message.
    pub resolved: BTreeSet<Fingerprint>,
}

/// Whether a message is due: Alertmanager's decision, as a reason.
///
/// `firing` and `resolved` are the alerts of the group that are not muted. Where nothing fires any more the log has to
/// be cleared, whether or not the channel wants to hear of it; so `send_resolved` plays no part in [`Reason::Resolved`].
pub fn decide(
    entry: Option<&LogEntry>,
    firing: &BTreeSet<Fingerprint>,
    resolved: &BTreeSet<Fingerprint>,
    send_resolved: bool,
    repeat_interval: Duration,
    now: Timestamp,
) -> Reason {
    let Some(entry) = entry else {
        return if firing.is_empty() {
            Reason::Nothing
        } else {
            Reason::FirstFiring
        };
    };
    let is_told = |fingerprint: &Fingerprint| entry.open.contains_key(fingerprint);
    if !firing.iter().all(is_told) {
        return if entry.open.is_empty() {
            Reason::FirstFiring
        } else {
            Reason::NewInGroup
        };
    }
    if firing.is_empty() {
        return if entry.open.is_empty() {
            Reason::Nothing
        } else {
            Reason::Resolved
        };
    }
    if send_resolved && !resolved.is_subset(&entry.resolved) {
        return Reason::SomeResolved;
    }
    match entry.at < now.minus(repeat_interval) {
        true => Reason::StillFiring,
        false => Reason::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REPEAT: Duration = Duration::from_secs(3600);

    fn prints(text: &str) -> BTreeSet<Fingerprint> {
        text.bytes()
            .map(|byte| Fingerprint(u64::from(byte)))
            .collect()
    }

    fn entry(open: &str, resolved: &str, seconds_ago: i64) -> LogEntry {
        let told = Told {
            labels: Labels::new(),
            starts_at: Timestamp(0),
        };
        LogEntry {
            at: Timestamp::from_seconds(100_000 - seconds_ago),
            open: prints(open)
                .into_iter()
                .map(|print| (print, told.clone()))
                .collect(),
            resolved: prints(resolved),
        }
    }

    type Known = Option<(&'static str, &'static str, i64)>;

    /// Told to fire, told to be over, how long ago; firing now, over now; is told of ends; the decision.
    #[test]
    fn the_truth_table() {
        use Reason::{FirstFiring, NewInGroup, Nothing, Resolved, SomeResolved, StillFiring};
        let table: &[(Known, &str, &str, bool, Reason)] = &[
            (None, "a", "", true, FirstFiring),
            (None, "", "a", true, Nothing),
            (None, "", "", true, Nothing),
            (None, "a", "b", false, FirstFiring),
            (Some(("", "", 1)), "a", "", true, FirstFiring),
            (Some(("", "a", 1)), "a", "", true, FirstFiring),
            (Some(("a", "", 1)), "ab", "", true, NewInGroup),
            (Some(("ab", "", 1)), "ac", "b", true, NewInGroup),
            (Some(("ab", "", 1)), "a", "b", true, SomeResolved),
            (Some(("ab", "", 1)), "a", "b", false, Nothing),
            (Some(("a", "b", 1)), "a", "b", true, Nothing),
            (Some(("a", "bc", 1)), "a", "b", true, Nothing),
            (Some(("a", "", 1)), "", "a", true, Resolved),
            (Some(("a", "", 1)), "", "a", false, Resolved),
            (Some(("", "a", 1)), "", "a", true, Nothing),
            (Some(("", "a", 9999)), "", "b", true, Nothing),
            (Some(("a", "", 3600)), "a", "", true, Nothing),
            (Some(("a", "", 3601)), "a", "", true, StillFiring),
            (Some(("ab", "", 3601)), "a", "b", false, StillFiring),
            (Some(("ab", "", 3601)), "a", "b", true, SomeResolved),
        ];
        for (known, firing, resolved, send_resolved, expected) in table {
            let entry = known.map(|(open, resolved, ago)| entry(open, resolved, ago));
            let now = Timestamp::from_seconds(100_000);
            let reason = decide(
                entry.as_ref(),
                &prints(firing),
                &prints(resolved),
                *send_resolved,
                REPEAT,
                now,
            );
            assert_eq!(
                reason, *expected,
                "{known:?}, firing {firing:?}, resolved {resolved:?}, {send_resolved}"
            );
        }
    }

    proptest! {
        /// What was just told is not told again, and what nobody was told of is never told to be over.
        #[test]
        fn nothing_is_told_twice(firing in "[a-e]{0,4}", resolved in "[f-j]{0,4}", send_resolved: bool) {
            let now = Timestamp::from_seconds(100_000);
            let told = entry(&firing, &resolved, 0);
            let (firing, resolved) = (prints(&firing), prints(&resolved));
            let reason = decide(Some(&told), &firing, &resolved, send_resolved, REPEAT, now);
            if !firing.is_empty() {
                prop_assert_eq!(reason, Reason::Nothing);
            }
            prop_assert_eq!(decide(None, &BTreeSet::new(), &resolved, send_resolved, REPEAT, now), Reason::Nothing);
        }
    }
}
