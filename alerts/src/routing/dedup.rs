//! Whether a message is due, and why: compares the last message with the present state.

use crate::alert::Alert;
use crate::fingerprint::Fingerprint;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use takt_model::{Labels, Timestamp};

/// Most corrections of one alert: a text that goes to and fro must not send a message each time.
const CORRECTIONS_MAX: u32 = 3;

/// The reason for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The channel knew of no firing alert of this group.
    FirstFiring,
    /// Further alerts of the group fire.
    NewInGroup,
    /// Some of the alerts that the channel knows have resolved.
    SomeResolved,
    /// All alerts that the channel knows have resolved.
    Resolved,
    /// The last message told people to do something that is no longer right.
    Corrected,
    /// Nothing has changed for `repeat_interval`.
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
            Self::Corrected => "instructions changed",
            Self::StillFiring => "repeat interval elapsed",
            Self::Nothing => "",
        }
    }
}

/// An alert that a channel was notified of, and of whose end it was not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NotifiedAlert {
    /// Its labels: its end can be sent even if nothing else is known of it.
    pub labels: Labels,
    /// Since when it fired, by that message.
    pub starts_at: Timestamp,
    /// What the last message told people to do; see [`Alert::instruction`]. `None` if that is unknown.
    #[serde(default)]
    pub instruction: Option<Fingerprint>,
    /// Corrections of that so far.
    #[serde(default)]
    pub corrections: u32,
}

impl NotifiedAlert {
    /// An alert that the next message begins with.
    pub fn new(alert: &Alert) -> Self {
        Self {
            labels: alert.labels.clone(),
            starts_at: alert.starts_at,
            instruction: alert.instruction(),
            corrections: 0,
        }
    }

    /// Whether the channel was told to do something else about this alert than its present annotations
    /// say.
    pub fn is_wrong(&self, alert: &Alert) -> bool {
        let now = alert.instruction();
        now.is_some()
            && self.instruction.is_some()
            && self.instruction != now
            && self.corrections < CORRECTIONS_MAX
    }

    /// The alert after another message with its present annotations.
    pub fn told_again(&self, alert: &Alert) -> Self {
        Self {
            instruction: alert.instruction(),
            corrections: self.corrections + u32::from(self.is_wrong(alert)),
            ..self.clone()
        }
    }
}

/// The last message to one channel about one group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LogEntry {
    /// When.
    pub at: Timestamp,
    /// The alerts that the channel knows to be firing.
    pub open: BTreeMap<Fingerprint, NotifiedAlert>,
    /// The alerts whose end was in the last message.
    pub resolved: BTreeSet<Fingerprint>,
}

/// Whether a message is due: Alertmanager's decision, as a reason.
///
/// `firing` and `resolved` are the alerts of the group that are not muted. When no alert fires any
/// more, the log has to be cleared even if the channel wants no ends, so `send_resolved` has no
/// influence on [`Reason::Resolved`].
pub fn decide(
    entry: Option<&LogEntry>,
    firing: &BTreeSet<Fingerprint>,
    resolved: &BTreeSet<Fingerprint>,
    send_resolved: bool,
    repeat_interval: Duration,
    now: Timestamp,
) -> Reason {
    // The channel has had no message about the group.
    let Some(entry) = entry else {
        return if firing.is_empty() {
            Reason::Nothing
        } else {
            Reason::FirstFiring
        };
    };

    let is_known = |fingerprint: &Fingerprint| entry.open.contains_key(fingerprint);
    // The order is Alertmanager's: what is new comes before what has ended.
    if !firing.iter().all(is_known) {
        // An entry without open alerts is that of an episode that has ended.
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

    // A channel without `send_resolved` gets no message about some ends.
    if send_resolved && !resolved.is_subset(&entry.resolved) {
        return Reason::SomeResolved;
    }

    if entry.at < now.minus(repeat_interval) {
        Reason::StillFiring
    } else {
        Reason::Nothing
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
        let notified = NotifiedAlert {
            labels: Labels::new(),
            starts_at: Timestamp(0),
            instruction: None,
            corrections: 0,
        };
        LogEntry {
            at: Timestamp::from_seconds(100_000 - seconds_ago),
            open: prints(open)
                .into_iter()
                .map(|print| (print, notified.clone()))
                .collect(),
            resolved: prints(resolved),
        }
    }

    type Known = Option<(&'static str, &'static str, i64)>;

    /// Known as firing, known as resolved, how long ago; firing now, resolved now; `send_resolved`;
    /// the decision.
    #[test]
    fn the_truth_table() {
        use Reason::{FirstFiring, NewInGroup, Nothing, Resolved, SomeResolved, StillFiring};
        let table: &[(Known, &str, &str, bool, Reason)] = &[
            (None, "a", "", true, FirstFiring),
            (None, "", "a", true, Nothing),
            (None, "", "", true, Nothing),
            (None, "a", "b", false, FirstFiring),
            // Entries without open alerts: the group fired before.
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
            // A repetition is due a second after the interval, not at its end.
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
        /// A message is not repeated at once, and no end is sent of an alert that was never sent.
        #[test]
        fn nothing_is_sent_twice(
            firing in "[a-e]{0,4}",
            resolved in "[f-j]{0,4}",
            send_resolved: bool,
        ) {
            let now = Timestamp::from_seconds(100_000);
            let logged = entry(&firing, &resolved, 0);

            let firing = prints(&firing);
            let resolved = prints(&resolved);
            let reason = decide(
                Some(&logged),
                &firing,
                &resolved,
                send_resolved,
                REPEAT,
                now,
            );

            if !firing.is_empty() {
                prop_assert_eq!(reason, Reason::Nothing);
            }

            prop_assert_eq!(
                decide(
                    None,
                    &BTreeSet::new(),
                    &resolved,
                    send_resolved,
                    REPEAT,
                    now
                ),
                Reason::Nothing
            );
        }
    }
}
