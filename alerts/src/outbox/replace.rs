//! Replacing messages that wait: a newer one about their group says all that is true now.

use super::{Outbox, Row, RowState, thread_key};
use crate::fingerprint::Fingerprint;
use crate::message::{Message, MessageAlert, Status};
use crate::routing::dedup::Reason;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use takt_model::Timestamp;

/// A firing message that has waited for this long is old: a newer one about its group replaces it.
pub const OLD_AFTER: Duration = Duration::from_secs(60);

/// Ended alerts in a message that takes over some. A message whose ends would be more stays.
const ENDS_MAX: usize = 1_000;

/// Says whether the channel of a message counts as knowing that an alert fires.
pub type IsOpen<'a> = &'a dyn Fn(&Row, Fingerprint) -> bool;

impl Outbox {
    /// Adds messages. Returns the rows to commit: new rows, and queued rows that they supersede.
    pub fn add(
        &mut self,
        messages: impl IntoIterator<Item = Message>,
        is_open: IsOpen<'_>,
        now: Timestamp,
    ) -> Vec<Row> {
        let mut changed = Vec::new();
        for message in messages {
            // The newest first: of two ends of one alert, the later one counts.
            let needless: Vec<u64> = self
                .rows
                .values()
                .rev()
                .filter(|row| is_superseded_by(row, &message, is_open, now))
                .map(|row| row.id)
                .collect();
            let new = self.queue(message.channel.clone(), None, message, now);

            for old in needless {
                changed.extend(self.replace(old, new.id));
            }
            changed.extend(self.rows.get(&new.id).cloned());
        }
        changed
    }

    /// Replaces old firing messages that have a newer message about their group behind them: they
    /// were under way, or young, when it was added. Returns the rows to commit.
    pub fn renew(&mut self, is_open: IsOpen<'_>, now: Timestamp) -> Vec<Row> {
        // This runs each turn, and usually no message has waited for long.
        if !self.rows.values().any(|row| is_old(row, now)) {
            return Vec::new();
        }

        let mut changed = Vec::new();
        let mut behind = BTreeMap::new();
        // The newest first, so that a row finds the newest one behind it.
        let ids: Vec<u64> = self.rows.keys().rev().copied().collect();
        for id in ids {
            let Some(row) = self.rows.get(&id) else {
                continue;
            };
            let series = series(row);
            let tells_all = |newer: &u64| {
                let newer = self.rows.get(newer);
                newer.is_some_and(|newer| contains_firing(row, &newer.message, is_open))
            };

            let newer = behind.get(&series).copied();
            let newer = newer.filter(|newer| is_old(row, now) && tells_all(newer));

            let superseded = newer.and_then(|newer| Some((newer, self.replace(id, newer)?)));
            match superseded {
                Some((newer, old)) => {
                    changed.extend(self.rows.get(&newer).cloned());
                    changed.push(old);
                }
                // Older rows of the series may give way to this one.
                None => drop(behind.insert(series, id)),
            }
        }
        changed
    }

    /// Replaces a row by a newer one, which gets what it lacks: the age, the wait after failures, the
    /// beginning of a thread, and the alerts that ended meanwhile. Returns the superseded row; `None`
    /// if its ends would make the newer message too long.
    fn replace(&mut self, old: u64, newer: u64) -> Option<Row> {
        let ended = self.ends_to_take_over(self.rows.get(&old)?, newer);
        let row = self.rows.get(&newer)?;
        if !ended.is_empty() && ended.len() + ends(&row.message).count() > ENDS_MAX {
            return None;
        }

        let mut old = self.rows.remove(&old)?;
        old.state = RowState::Superseded;

        let row = self.rows.get_mut(&newer)?;
        // `late` and the heartbeat count from the oldest message that is not delivered.
        row.created_at = row.created_at.min(old.created_at);
        // The channel's failures count on, or each new message would begin with short waits again.
        row.next_at = row.next_at.max(old.next_at);
        row.attempts = row.attempts.max(old.attempts);

        // The channel has no message of this episode yet, so the newer one begins the thread.
        let begins = old.message.reason == Reason::FirstFiring;
        if begins && row.message.status == Status::Firing {
            row.message.reason = Reason::FirstFiring;
        }

        // Labels that all alerts share may differ now, so they are computed again.
        if !ended.is_empty() {
            row.message.alerts.extend(ended);
            row.message = row.message.clone().arranged();
        }
        Some(old)
    }

    /// The ends in a row that a newer one has to take over. Where a message between the two is about
    /// the same alert, an end behind that message would end another episode.
    fn ends_to_take_over(&self, old: &Row, newer: u64) -> Vec<MessageAlert> {
        let series_of_old = series(old);
        let later = self.rows.range(old.id + 1..=newer).map(|(_, row)| row);
        let said: BTreeSet<Fingerprint> = later
            .filter(|row| series(row) == series_of_old)
            .flat_map(|row| &row.message.alerts)
            .map(|alert| alert.fingerprint)
            .collect();

        let ends = ends(&old.message).filter(|end| !said.contains(&end.fingerprint));
        ends.cloned().collect()
    }

    /// Supersedes old firing messages about a group of which nothing fires any more: their channel
    /// gets no message about the end.
    pub fn withdraw(&mut self, channel: &str, group_key: &str, now: Timestamp) -> Vec<Row> {
        let withdrawn = self
            .rows
            .values_mut()
            .filter(|row| {
                (row.channel.as_str(), row.message.group_key.as_str()) == (channel, group_key)
            })
            .filter(|row| is_old(row, now))
            .map(|row| {
                row.state = RowState::Superseded;
                row.clone()
            })
            .collect();
        self.rows.retain(|_, row| !row.state.is_final());
        withdrawn
    }

    /// Makes rows old about which all alerts that fire were closed: the next message about their group
    /// replaces them, however young they are. Returns the rows to commit.
    pub fn age(&mut self, is_closed: &dyn Fn(Fingerprint) -> bool, now: Timestamp) -> Vec<Row> {
        let is_over = |row: &Row| {
            let mut firing = row.message.alerts.iter();
            firing.all(|alert| alert.status == Status::Resolved || is_closed(alert.fingerprint))
        };

        let rows = self.rows.values_mut();
        let young = rows.filter(|row| {
            row.message.status == Status::Firing
                && row.created_at.plus(OLD_AFTER) > now
                && is_over(row)
        });
        young
            .map(|row| {
                row.created_at = now.minus(OLD_AFTER);
                row.clone()
            })
            .collect()
    }
}

/// Rows of which the newest says all: those of a channel about a group. What another channel refused
/// is beside the channel's own messages.
fn series(row: &Row) -> ((String, String), Option<String>) {
    (thread_key(row), row.instead_of.clone())
}

fn ends(message: &Message) -> impl Iterator<Item = &MessageAlert> {
    let alerts = message.alerts.iter();
    alerts.filter(|alert| alert.status == Status::Resolved)
}

/// Whether `newer` makes a queued row needless: the newer message has the whole state of the group,
/// and the row is a repetition, or is so old that its alerts may have ended. Resolved messages are
/// never dropped.
fn is_superseded_by(row: &Row, newer: &Message, is_open: IsOpen<'_>, now: Timestamp) -> bool {
    // What another channel refused is a copy beside this channel's own messages.
    let is_same = row.instead_of.is_none()
        && (&row.channel, &row.message.group_key) == (&newer.channel, &newer.group_key);
    let is_repeat = row.message.reason == Reason::StillFiring
        && matches!(
            newer.reason,
            Reason::NewInGroup | Reason::Corrected | Reason::StillFiring
        );
    let is_outdated = || is_old(row, now) && contains_firing(row, newer, is_open);
    is_same && row.state == RowState::Queued && (is_repeat || is_outdated())
}

/// Whether a newer message contains each firing alert of this row. It lacks alerts that were muted
/// since. The channel counts as notified of those, so no later message would begin with them.
fn contains_firing(row: &Row, newer: &Message, is_open: IsOpen<'_>) -> bool {
    let sent: BTreeSet<_> = newer.alerts.iter().map(|one| one.fingerprint).collect();
    let alerts = row.message.alerts.iter();
    let mut firing = alerts.filter(|alert| alert.status == Status::Firing);
    firing.all(|alert| sent.contains(&alert.fingerprint) || !is_open(row, alert.fingerprint))
}

/// Whether a row is a firing message that has waited for long.
fn is_old(row: &Row, now: Timestamp) -> bool {
    row.state == RowState::Queued
        && row.message.status == Status::Firing
        && row.created_at.plus(OLD_AFTER) <= now
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::super::tests::{again, at, message, none_open};
    use super::*;
    use takt_model::Labels;

    /// A message with alerts: those in capitals fire.
    fn about(group: &str, reason: Reason, alerts: &str) -> Message {
        let alert = |name: char| MessageAlert {
            status: if name.is_uppercase() {
                Status::Firing
            } else {
                Status::Resolved
            },
            labels: Labels::new(),
            annotations: BTreeMap::new(),
            starts_at: at(0),
            began_at: None,
            ends_at: None,
            generator_url: String::new(),

            fingerprint: Fingerprint(u64::from(u32::from(name.to_ascii_lowercase()))),
        };
        let alerts: Vec<_> = alerts.chars().map(alert).collect();
        Message {
            status: if reason == Reason::Resolved {
                Status::Resolved
            } else {
                Status::Firing
            },
            alerts,
            ..message("slack", group, reason)
        }
    }

    /// The waiting messages in the order of delivery, at a channel that takes all of them.
    fn delivered(outbox: &mut Outbox, now: Timestamp) -> Vec<(String, Reason, String)> {
        let mut delivered = Vec::new();
        while let Some(row) = outbox.due(now).pop() {
            let name = |alert: &MessageAlert| {
                let name = char::from_u32(alert.fingerprint.0 as u32).unwrap();
                match alert.status {
                    Status::Firing => name.to_ascii_uppercase(),
                    Status::Resolved => name,
                }
            };
            let alerts = row.message.alerts.iter().map(name).collect();
            delivered.push((row.message.group_key.clone(), row.message.reason, alerts));
            outbox.answered(row.id, &Outcome::Sent(None), &|_| None, now);
        }
        delivered
    }

    /// The channel is down for six hours. Before that, it was told of `a`.
    #[test]
    fn after_hours_a_channel_is_told_what_is_true_now() {
        let mut outbox = Outbox::load([], 1);
        outbox.add([about("g", Reason::FirstFiring, "A")], &none_open, at(0));

        assert_eq!(delivered(&mut outbox, at(0)).len(), 1);
        let down = |outbox: &mut Outbox, from: i64, to: i64| {
            let mut attempts = 0;
            for second in from..to {
                for row in outbox.due(at(second)) {
                    attempts += 1;
                    outbox.answered(row.id, &again(None), &|_| None, at(second));
                }
            }
            attempts
        };

        let mut attempts = 0;
        for (second, group, reason, alerts) in [
            (100, "g", Reason::Resolved, "a"),
            // Began and ended while the channel was down: never delivered as firing.
            (300, "page", Reason::FirstFiring, "B"),
            (900, "page", Reason::Resolved, "b"),
            // Of three alerts, one still fires at the end.
            (1_000, "many", Reason::FirstFiring, "CD"),
            (2_000, "many", Reason::SomeResolved, "Cd"),
            (3_000, "many", Reason::NewInGroup, "CE"),
            (4_000, "many", Reason::SomeResolved, "Ec"),
            // Fires again.
            (5_000, "g", Reason::FirstFiring, "A"),
        ] {
            attempts += down(&mut outbox, second - 100, second);
            outbox.add([about(group, reason, alerts)], &none_open, at(second));
        }
        attempts += down(&mut outbox, 5_000, 21_600);
        assert_eq!(outbox.iter().len(), 4);
        assert!(attempts < 150, "{attempts}");
        assert_eq!(outbox.late(at(21_600))[0].created_at, at(100));

        let text = |(group, reason, alerts): (&str, Reason, &str)| {
            (group.to_owned(), reason, alerts.to_owned())
        };
        assert_eq!(
            delivered(&mut outbox, at(30_000)),
            [
                // What fires comes first; the end of a told episode before its new beginning.
                ("g", Reason::Resolved, "a"),
                ("many", Reason::FirstFiring, "Ecd"),
                ("g", Reason::FirstFiring, "A"),
                ("page", Reason::Resolved, "b"),
            ]
            .map(text)
        );
    }

    /// The channel failed while the message was under way, and its end came behind it.
    #[test]
    fn a_message_that_failed_gives_way_to_the_end_behind_it() {
        let mut outbox = Outbox::load([], 1);
        outbox.add([about("g", Reason::FirstFiring, "A")], &none_open, at(0));
        // It is under way while the end is added, so it cannot be replaced then.
        outbox.due(at(0));
        outbox.add([about("g", Reason::Resolved, "a")], &none_open, at(3));

        outbox.answered(1, &again(None), &|_| None, at(4));
        // The attempt has failed, and from its sixtieth second on the message may be replaced.
        assert!(outbox.renew(&none_open, at(59)).is_empty());
        let states: Vec<_> = outbox
            .renew(&none_open, at(60))
            .iter()
            .map(|row| (row.id, row.state))
            .collect();
        assert_eq!(states, [(2, RowState::Queued), (1, RowState::Superseded)]);

        let ended = ("g".to_owned(), Reason::Resolved, "a".to_owned());
        assert_eq!(delivered(&mut outbox, at(100)), [ended]);
    }

    /// `b` was muted before `a` ended: no later message says that it fires.
    #[test]
    fn a_message_stays_if_the_newer_one_lacks_an_alert_that_fires() {
        let b = Fingerprint(u64::from(b'b'));
        let is_open = |_: &Row, print: Fingerprint| print == b;
        let first = ("g".to_owned(), Reason::FirstFiring, "AB".to_owned());
        let end = ("g".to_owned(), Reason::Resolved, "a".to_owned());

        let mut outbox = Outbox::load([], 1);
        outbox.add([about("g", Reason::FirstFiring, "AB")], &is_open, at(0));
        outbox.add([about("g", Reason::Resolved, "a")], &is_open, at(100));
        assert!(outbox.renew(&is_open, at(200)).is_empty());
        assert_eq!(delivered(&mut outbox, at(200)), [first, end.clone()]);

        // The same, but the channel counts `b` as ended: nothing of the old message is still true.
        let mut outbox = Outbox::load([], 1);
        outbox.add([about("g", Reason::FirstFiring, "AB")], &is_open, at(0));
        outbox.add([about("g", Reason::Resolved, "a")], &none_open, at(100));
        assert_eq!(delivered(&mut outbox, at(200)), [end]);
    }

    /// `b` ended, fired again and was muted, each time while `a` fired or was muted.
    #[test]
    fn an_end_is_not_taken_past_a_newer_beginning_of_its_alert() {
        let b = Fingerprint(u64::from(b'b'));
        let is_open = |_: &Row, print: Fingerprint| print == b;
        let mut outbox = Outbox::load([], 1);
        outbox.add([about("g", Reason::SomeResolved, "Ab")], &is_open, at(0));
        outbox.add([about("g", Reason::NewInGroup, "B")], &is_open, at(100));
        outbox.add([about("g", Reason::SomeResolved, "a")], &is_open, at(200));

        let said = |reason, alerts: &str| ("g".to_owned(), reason, alerts.to_owned());
        assert_eq!(
            delivered(&mut outbox, at(300)),
            [
                said(Reason::NewInGroup, "B"),
                said(Reason::SomeResolved, "a")
            ]
        );
    }

    #[test]
    fn no_end_is_lost_if_there_are_too_many_for_one_message() {
        // One end more than a message takes over.
        let ended: String = ('\u{4e00}'..).take(ENDS_MAX + 1).collect();

        let mut outbox = Outbox::load([], 1);
        let before = about("g", Reason::SomeResolved, &format!("A{ended}"));
        outbox.add([before], &none_open, at(0));
        outbox.add([about("g", Reason::Resolved, "a")], &none_open, at(100));
        outbox.renew(&none_open, at(200));
        let delivered = delivered(&mut outbox, at(200));
        let texts: Vec<_> = delivered.into_iter().map(|(_, _, alerts)| alerts).collect();
        assert_eq!(texts, [format!("A{ended}"), "a".to_owned()]);
    }

    #[test]
    fn shared_labels_are_those_of_the_alerts_taken_over_too() {
        let on = |node: &str, reason, alerts: &str| {
            let mut message = about("g", reason, alerts);
            for alert in &mut message.alerts {
                alert.labels = Labels::from_iter([("alertname", "Hot"), ("node", node)]);
            }
            message.arranged()
        };

        // Two nodes before, one of them after: only the name of the alert is shared.
        let mut outbox = Outbox::load([], 1);
        let mut first = on("g1", Reason::SomeResolved, "Ab");
        first.alerts[0].labels.set("node", "g2");
        outbox.add([first], &none_open, at(0));
        outbox.add([on("g2", Reason::StillFiring, "A")], &none_open, at(100));

        let last = outbox.iter().last().unwrap();
        assert_eq!(last.message.alerts.len(), 2);
        assert_eq!(
            last.message.common_labels,
            Labels::from_iter([("alertname", "Hot")])
        );
    }

    /// The mail channel gets no ends of its own.
    #[test]
    fn a_copy_of_what_another_channel_refused_gives_its_ends_to_no_other_message() {
        let mut outbox = Outbox::load([], 1);
        outbox.add([about("g", Reason::SomeResolved, "Ab")], &none_open, at(0));
        outbox.due(at(0));

        let refused = Outcome::GiveUp {
            error: "404".to_owned(),
        };
        outbox.answered(1, &refused, &|_| Some("mail".to_owned()), at(1));

        let own = Message {
            channel: "mail".to_owned(),
            ..about("g", Reason::FirstFiring, "A")
        };

        outbox.add([own], &none_open, at(100));
        let text = |reason, alerts: &str| ("g".to_owned(), reason, alerts.to_owned());
        assert!(outbox.renew(&none_open, at(100)).is_empty());
        assert_eq!(
            delivered(&mut outbox, at(200)),
            [
                text(Reason::SomeResolved, "Ab"),
                text(Reason::FirstFiring, "A")
            ]
        );
    }

    #[test]
    fn a_channel_without_ends_gets_no_page_whose_alert_has_ended() {
        let mut outbox = Outbox::load([], 1);
        outbox.add([about("g", Reason::FirstFiring, "A")], &none_open, at(0));
        assert!(outbox.withdraw("slack", "g", at(59)).is_empty());
        let changed = outbox.withdraw("slack", "g", at(60));
        assert_eq!(changed[0].state, RowState::Superseded);
        assert!(outbox.due(at(60)).is_empty());
    }

    #[test]
    fn repeats_give_way_to_news_but_beginnings_and_ends_stay() {
        let mut outbox = Outbox::load([], 1);
        outbox.add(
            [message("slack", "g", Reason::StillFiring)],
            &none_open,
            at(0),
        );
        let changed = outbox.add(
            [message("slack", "g", Reason::NewInGroup)],
            &none_open,
            at(1),
        );
        assert_eq!(changed[0].state, RowState::Superseded);

        // An end and a beginning are not repeats: both stay.
        outbox.add(
            [
                message("slack", "g", Reason::Resolved),
                message("slack", "g", Reason::FirstFiring),
            ],
            &none_open,
            at(2),
        );
        assert_eq!(
            outbox.iter().map(|row| row.id).collect::<Vec<_>>(),
            [2, 3, 4]
        );

        outbox.add(
            [message("slack", "h", Reason::StillFiring)],
            &none_open,
            at(3),
        );
        assert_eq!(outbox.iter().len(), 4, "another group");
    }
}
