//! One group, one channel, one instant: the message to send, and what the channel knows afterwards.
//!
//! The contract is stricter than Alertmanager's: a channel gets exactly one end for each alert that
//! it was notified of, also while a silence, an acknowledgement, an inhibition or maintenance covers
//! the alert. Only a time interval of the route delays ends, until it is over.

use super::dedup::{LogEntry, NotifiedAlert, Reason, decide};
use crate::alert::Alert;
use crate::fingerprint::Fingerprint;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use takt_model::Timestamp;

/// One alert of a group.
#[derive(Debug, Clone, Copy)]
pub struct GroupMember<'a> {
    /// Its identity.
    pub fingerprint: Fingerprint,
    /// The current alert.
    pub alert: &'a Alert,
    /// Whether a silence, an inhibition, maintenance or a time interval mutes it.
    pub is_muted: bool,
    /// Whether a time interval mutes its route: nothing at all is sent.
    pub is_route_muted: bool,
}

/// The message for one channel about one group.
#[derive(Debug, Clone, PartialEq)]
pub struct MessagePlan {
    /// The reason for the message.
    pub reason: Reason,
    /// The alerts of the message; empty where no message is sent.
    pub alerts: Vec<Fingerprint>,
    /// The new log entry; `None` if the entry does not change.
    pub entry: Option<LogEntry>,
}

/// Decides on the message.
pub fn plan(
    entry: Option<&LogEntry>,
    members: &[GroupMember<'_>],
    send_resolved: bool,
    repeat_interval: Duration,
    now: Timestamp,
) -> MessagePlan {
    let is_open = |member: &GroupMember<'_>| {
        entry.is_some_and(|entry| entry.open.contains_key(&member.fingerprint))
    };

    // An alert that is muted is not announced, but its end is sent to the channels that know it.
    let unmuted = || members.iter().filter(|member| !member.is_muted);
    let firing: BTreeSet<_> = unmuted()
        .filter(|m| !m.alert.is_resolved(now))
        .map(|m| m.fingerprint)
        .collect();
    let resolved: BTreeSet<_> = members
        .iter()
        .filter(|m| !m.is_route_muted && m.alert.is_resolved(now) && is_open(m))
        .map(|m| m.fingerprint)
        .collect();

    // A group that is muted as a whole would otherwise look like one that has ended.
    let reason = if firing.is_empty() && resolved.is_empty() {
        Reason::Nothing
    } else {
        decide(
            entry,
            &firing,
            &resolved,
            send_resolved,
            repeat_interval,
            now,
        )
    };

    let known = |member: &GroupMember<'_>| entry?.open.get(&member.fingerprint);
    let is_wrong = unmuted()
        .filter(|member| firing.contains(&member.fingerprint))
        .any(|member| known(member).is_some_and(|known| known.is_wrong(member.alert)));
    // A correction is worth more than a repetition, and every other message has the new text anyway.
    let reason = match reason {
        Reason::Nothing | Reason::StillFiring if is_wrong => Reason::Corrected,
        reason => reason,
    };

    if reason == Reason::Nothing {
        return MessagePlan {
            reason,
            alerts: Vec::new(),
            entry: None,
        };
    }

    // The channel goes on knowing a muted alert that fires.
    let open: BTreeMap<_, _> = members
        .iter()
        .filter(|member| member.is_muted && is_open(member))
        .filter(|member| !resolved.contains(&member.fingerprint))
        .chain(unmuted().filter(|member| firing.contains(&member.fingerprint)))
        .map(|member| {
            let notified = match known(member) {
                // The message leaves it out.
                Some(known) if member.is_muted => known.clone(),
                Some(known) => known.told_again(member.alert),
                None => NotifiedAlert::new(member.alert),
            };
            (member.fingerprint, notified)
        })
        .collect();

    let alerts = members
        .iter()
        .map(|member| member.fingerprint)
        .filter(|fingerprint| {
            firing.contains(fingerprint) || (send_resolved && resolved.contains(fingerprint))
        })
        .collect();
    // Muted alerts that the channel knows still fire, so the group as a whole has not ended.
    let reason = match reason {
        Reason::Resolved if !open.is_empty() => Reason::SomeResolved,
        reason => reason,
    };

    MessagePlan {
        reason,
        alerts,
        entry: Some(LogEntry {
            at: now,
            open,
            resolved,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection;
    use proptest::prelude::*;
    use takt_model::Labels;

    const REPEAT: Duration = Duration::from_secs(3600);

    fn alert(name: usize, ends_at: Option<Timestamp>) -> Alert {
        let labels: Labels = [("alertname", name.to_string())].into_iter().collect();
        Alert {
            labels,
            annotations: BTreeMap::new(),
            starts_at: Timestamp(0),
            ends_at,
            updated_at: Timestamp(0),
            generator_url: String::new(),
            began_at: None,
            is_timeout: false,
        }
    }

    /// One step in the life of one alert.
    #[derive(Debug, Clone, Copy)]
    enum Move {
        Fire,
        Resolve,
        Mute,
        Unmute,
    }

    proptest! {
        /// Four alerts fire, resolve and are muted at random, and the group is flushed now and
        /// then. At the end all have resolved and none is muted: each alert was sent as firing and
        /// as resolved in turn, ending with resolved.
        #[test]
        fn every_sent_episode_is_closed_exactly_once(
            moves in collection::vec((0usize..4, prop_oneof![
                Just(Move::Fire), Just(Move::Resolve), Just(Move::Mute), Just(Move::Unmute)
            ], any::<bool>()), 0..60),
        ) {
            let mut firing = [false; 4];
            let mut muted = [false; 4];
            let mut entry: Option<LogEntry> = None;
            let mut log: [Vec<bool>; 4] = Default::default();
            let count = moves.len();
            // Each alert ends and is unmuted, so that every end can be sent.
            let closing = (0..4).flat_map(|n| [(n, Move::Resolve, false), (n, Move::Unmute, true)]);
            for (step, (which, what, look)) in moves.into_iter().chain(closing).enumerate() {
                match what {
                    Move::Fire if step < count => firing[which] = true,
                    Move::Fire | Move::Resolve => firing[which] = false,
                    Move::Mute => muted[which] = true,
                    Move::Unmute => muted[which] = false,
                }
                if !look {
                    continue;
                }

                let now = Timestamp::from_seconds(i64::try_from(step).unwrap() * 60);
                let alerts: Vec<_> = (0..4)
                    .map(|n| alert(n, (!firing[n]).then_some(Timestamp(0))))
                    .collect();

                let members: Vec<_> = alerts
                    .iter()
                    .enumerate()
                    .map(|(n, alert)| GroupMember {
                        fingerprint: alert.fingerprint(),
                        alert,
                        is_muted: muted[n],
                        // Two of four alerts are muted by a time interval of the route, the others by a silence.
                        is_route_muted: muted[n] && n % 2 == 0,
                    })
                    .collect();

                let plan = plan(entry.as_ref(), &members, true, REPEAT, now);
                for (n, member) in members.iter().enumerate() {
                    if plan.alerts.contains(&member.fingerprint) {
                        // Repeated messages about a firing alert count once.
                        if log[n].last() != Some(&firing[n]) {
                            log[n].push(firing[n]);
                        } else {
                            prop_assert!(firing[n], "two ends were sent of alert {}", n);
                        }
                    }
                }
                entry = plan.entry.or(entry);
            }

            for (n, sent) in log.iter().enumerate() {
                prop_assert!(
                    sent.first() != Some(&false),
                    "an end of alert {} was sent first: {:?}",
                    n,
                    sent
                );
                prop_assert!(
                    sent.last() != Some(&true),
                    "no end of alert {} was sent: {:?}",
                    n,
                    sent
                );
            }
            prop_assert!(entry.is_none_or(|entry| entry.open.is_empty()));
        }
    }

    #[test]
    fn who_was_told_something_else_is_corrected_a_few_times() {
        let told = |action: &str| Alert {
            annotations: [("action".to_owned(), action.to_owned())].into(),
            ..alert(1, None)
        };

        let at = |entry: Option<&LogEntry>, alert: &Alert, is_muted| {
            let member = GroupMember {
                fingerprint: alert.fingerprint(),
                alert,
                is_muted,
                is_route_muted: false,
            };
            plan(entry, &[member], true, REPEAT, Timestamp::from_seconds(60))
        };

        let again = told("Submit it again; 3 h are lost.");
        let wait = told("Slurm has requeued it: do not submit it again.");
        let first = at(None, &again, false).entry;
        let same = at(first.as_ref(), &again, false);
        assert_eq!(same.reason, Reason::Nothing);

        // Another number is the same instruction; a text that is not there is none.
        let number = at(
            first.as_ref(),
            &told("Submit it again; 4 h are lost."),
            false,
        );
        assert_eq!(number.reason, Reason::Nothing);
        assert_eq!(
            at(first.as_ref(), &alert(1, None), false).reason,
            Reason::Nothing
        );

        // A muted alert is corrected when it is sent again.
        assert_eq!(at(first.as_ref(), &wait, true).reason, Reason::Nothing);
        let corrected = at(first.as_ref(), &wait, false);
        assert_eq!(corrected.reason, Reason::Corrected);
        assert_eq!(corrected.alerts, [wait.fingerprint()]);
        let mut entry = corrected.entry;
        assert_eq!(at(entry.as_ref(), &wait, false).reason, Reason::Nothing);

        // A text that goes to and fro does not send for ever.
        let mut corrections = 1;
        for turn in 0..20 {
            let alert = if turn % 2 == 0 { &again } else { &wait };
            let plan = at(entry.as_ref(), alert, false);
            corrections += u32::from(plan.reason == Reason::Corrected);
            entry = plan.entry.or(entry);
        }
        assert_eq!(corrections, 3);
    }

    #[test]
    fn an_end_under_a_silence_is_sent_at_once() {
        let fires = alert(1, None);
        let other = alert(2, None);
        let over = alert(1, Some(Timestamp(0)));
        let now = Timestamp::from_seconds(60);
        let member = |alert, is_muted| GroupMember {
            fingerprint: Alert::fingerprint(alert),
            alert,
            is_muted,
            is_route_muted: false,
        };
        let at = |entry: Option<&LogEntry>, members: &[GroupMember<'_>]| {
            plan(entry, members, true, REPEAT, now)
        };

        let first = at(None, &[member(&fires, false), member(&other, false)]);
        let known = first.entry;

        // Both are acknowledged; one of them ends, then it begins and ends again, unheard.
        let end = at(known.as_ref(), &[member(&over, true), member(&other, true)]);
        assert_eq!(
            (end.reason, &*end.alerts),
            (Reason::SomeResolved, &[over.fingerprint()][..])
        );

        let known = end.entry.unwrap();
        assert_eq!(
            known.open.keys().collect::<Vec<_>>(),
            [&other.fingerprint()]
        );
        for alert in [&fires, &over] {
            let none = at(Some(&known), &[member(alert, true), member(&other, true)]);
            assert_eq!((none.reason, none.entry), (Reason::Nothing, None));
        }
    }

    #[test]
    fn an_end_within_a_time_interval_is_sent_when_the_interval_ends() {
        let fires = alert(1, None);
        let over = alert(1, Some(Timestamp(0)));
        let now = Timestamp::from_seconds(60);
        let member = |alert, is_muted| {
            [GroupMember {
                fingerprint: Alert::fingerprint(alert),
                alert,
                is_muted,
                is_route_muted: is_muted,
            }]
        };

        let first = plan(None, &member(&fires, false), true, REPEAT, now);
        assert_eq!(first.reason, Reason::FirstFiring);
        // Inside the interval nothing at all is sent, not even the end.
        let muted = plan(
            first.entry.as_ref(),
            &member(&over, true),
            true,
            REPEAT,
            now,
        );
        assert_eq!(muted.reason, Reason::Nothing);
        assert_eq!(muted.entry, None);

        let after = plan(
            first.entry.as_ref(),
            &member(&over, false),
            true,
            REPEAT,
            now,
        );
        assert_eq!(after.reason, Reason::Resolved);
        assert_eq!(after.alerts.len(), 1);

        let again = plan(
            after.entry.as_ref(),
            &member(&over, false),
            true,
            REPEAT,
            now,
        );
        assert_eq!(again.reason, Reason::Nothing);
    }

    #[test]
    fn a_channel_that_wants_no_ends_gets_no_message_and_a_cleared_log() {
        let fires = alert(1, None);
        let over = alert(1, Some(Timestamp(0)));
        let member = |alert| {
            [GroupMember {
                fingerprint: Alert::fingerprint(alert),
                alert,
                is_muted: false,
                is_route_muted: false,
            }]
        };
        let first = plan(None, &member(&fires), false, REPEAT, Timestamp(1));

        // A log that is not cleared would make the next alert one of an old group.
        let second = plan(
            first.entry.as_ref(),
            &member(&over),
            false,
            REPEAT,
            Timestamp(2),
        );
        assert_eq!(second.reason, Reason::Resolved);
        assert_eq!(second.alerts.len(), 0);
        assert!(second.entry.unwrap().open.is_empty());

        let third = plan(None, &member(&over), false, REPEAT, Timestamp(3));
        assert_eq!(third.reason, Reason::Nothing);
    }
}
