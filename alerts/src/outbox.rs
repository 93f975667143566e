//! The outbox: messages that are decided and not yet delivered.
//!
//! A row is committed together with the decision to send it, so a crash loses no message, and each
//! is delivered at least once. This module decides what to send and when; the clock is an argument.

use crate::fingerprint::Fingerprint;
use crate::message::{Message, Status};
use crate::routing::dedup::Reason;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::slice;
use std::time::Duration;
use takt_model::Timestamp;

/// Wait after the first failure; it doubles with every further failure.
pub const BACKOFF_FIRST: Duration = Duration::from_secs(1);

/// Longest wait after a failure.
pub const BACKOFF_MAX: Duration = Duration::from_secs(300);

/// A firing message that has waited for this long is old: a newer one about its group replaces it.
pub const OLD_AFTER: Duration = Duration::from_secs(60);

/// The error of a row whose channel a reload removed.
pub const NO_CHANNEL: &str = "the configuration has no such channel";

/// Ended alerts that a message takes over from those that it replaces.
const TAKEN_OVER_MAX: usize = 1_000;

/// Messages that may follow one another without a pause in a paced channel.
pub const BURST: usize = 4;

/// One message to one channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Number of the row: rises, is never used again, and is part of Message-IDs.
    pub id: u64,
    /// The channel that gets the message.
    pub channel: String,
    /// The channel that refused the message for good, if this row replaces it.
    pub instead_of: Option<String>,
    /// The content.
    pub message: Message,
    /// State of the delivery.
    pub state: RowState,
    /// Time of the decision to send.
    pub created_at: Timestamp,
    /// Number of attempts so far.
    pub attempts: u32,
    /// Earliest time of the next attempt.
    pub next_at: Timestamp,
    /// Error of the last attempt.
    pub error: Option<String>,
    /// The channel's name of the message, if later messages of the group belong below it.
    #[serde(default)]
    pub handle: Option<String>,
    /// Whether an attempt got no answer: the channel may already have the message.
    #[serde(default)]
    pub is_in_doubt: bool,
}

/// State of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowState {
    /// The row waits.
    Queued,
    /// An attempt is under way. After a crash the message is sent again, since it may not have
    /// arrived.
    Sending,
    /// The channel took the message.
    Sent,
    /// The channel refused the message for good. Another channel gets it, if one exists.
    GaveUp,
    /// A newer message about the same group contains everything.
    Superseded,
}

impl RowState {
    /// Whether the delivery has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Sent | Self::GaveUp | Self::Superseded)
    }
}

/// Result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The channel took the message; with its name if later messages can go below it.
    Sent(Option<String>),
    /// The channel cannot take the message now.
    TryAgain {
        /// Wait that the channel asked for (`Retry-After`).
        after: Option<Duration>,
        /// The cause.
        error: String,
    },
    /// No answer came: the channel may or may not have the message.
    NoAnswer {
        /// The cause.
        error: String,
    },
    /// The channel refused the message for good.
    GiveUp {
        /// The cause.
        error: String,
    },
    /// The message has no recipient on this channel, and needs none: an owner without an address.
    NoRecipient {
        /// The cause.
        error: String,
    },
    /// The configuration has no such channel any more.
    NoChannel,
}

/// The first number of a row of a process that began at `now`; `next` is above all that are stored. A
/// process before it may have given numbers that it could not store: receivers know them, and would
/// take a message with one of them for a repetition.
pub fn first_row(next: u64, now: Timestamp) -> u64 {
    let by_clock = now.0.max(0).unsigned_abs() * ROWS_PER_MS;
    if by_clock >= next {
        return by_clock;
    }
    // The clock was set back. The gap is another one for each process.
    next + by_clock % GAP_MAX
}

/// Rows that a process decides in a millisecond of its life, at most.
const ROWS_PER_MS: u64 = 1_000;

/// Three hours of numbers. A number stays far below the largest that JSON programs read exactly.
const GAP_MAX: u64 = 10_000_000 * ROWS_PER_MS;

/// All rows whose delivery has not ended, and the state of their channels.
#[derive(Debug, Clone, Default)]
pub struct Outbox {
    rows: BTreeMap<u64, Row>,
    next_id: u64,
    /// End of the pause of channels that asked for one.
    resting: BTreeMap<String, Timestamp>,
    /// Times of the last messages to paced channels.
    recent: BTreeMap<String, VecDeque<Timestamp>>,
    /// Names of the messages that began threads, by channel and group.
    threads: BTreeMap<(String, String), String>,
}

/// Returns the channel that gets the messages another channel refused.
pub type Fallback<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Says whether the channel of a message counts as knowing that an alert fires.
pub type IsOpen<'a> = &'a dyn Fn(&Row, Fingerprint) -> bool;

impl Outbox {
    /// Restores stored rows. Rows that were being sent are sent again; of ended rows only their
    /// thread is kept. `next_id` must be above all numbers ever used.
    pub fn load(rows: impl IntoIterator<Item = Row>, next_id: u64) -> Self {
        let mut outbox = Self {
            next_id,
            ..Self::default()
        };
        for row in rows {
            outbox.next_id = outbox.next_id.max(row.id + 1);
            outbox
                .threads
                .extend(row.handle.clone().map(|handle| (thread_key(&row), handle)));
            if !row.state.is_final() {
                let is_in_doubt = row.is_in_doubt || row.state == RowState::Sending;
                outbox.rows.insert(
                    row.id,
                    Row {
                        state: RowState::Queued,
                        is_in_doubt,
                        ..row
                    },
                );
            }
        }
        outbox
    }

    /// The channel's name of the message that this row belongs below: the first one about its
    /// group.
    pub fn thread(&self, row: &Row) -> Option<&str> {
        let is_first = row.message.reason == Reason::FirstFiring;
        self.threads
            .get(&thread_key(row))
            .filter(|_| !is_first)
            .map(String::as_str)
    }

    /// Adds messages. Returns the rows to commit: new rows, and queued rows that they supersede.
    pub fn add(
        &mut self,
        messages: impl IntoIterator<Item = Message>,
        is_open: IsOpen<'_>,
        now: Timestamp,
    ) -> Vec<Row> {
        let mut changed = Vec::new();
        for message in messages {
            let old: Vec<Row> = self
                .rows
                .values_mut()
                .filter(|row| is_superseded_by(row, &message, is_open, now))
                .map(|row| {
                    row.state = RowState::Superseded;
                    row.clone()
                })
                .collect();
            let new = self.queue(message.channel.clone(), None, message, now);
            let new = self.take_over(new.id, &old).unwrap_or(new);
            changed.extend(old);
            changed.push(new);
        }
        self.rows.retain(|_, row| !row.state.is_final());
        changed
    }

    /// Gives a new row what the rows that it replaces have and it lacks: the age, the wait after
    /// failures, the beginning of a thread, and the alerts that ended meanwhile.
    fn take_over(&mut self, id: u64, old: &[Row]) -> Option<Row> {
        let row = self.rows.get_mut(&id)?;
        for old in old {
            row.created_at = row.created_at.min(old.created_at);
            row.next_at = row.next_at.max(old.next_at);
            row.attempts = row.attempts.max(old.attempts);

            let message = &mut row.message;
            let begins = old.message.reason == Reason::FirstFiring;
            if begins && message.status == Status::Firing {
                message.reason = Reason::FirstFiring;
            }
            let known: BTreeSet<_> = message.alerts.iter().map(|one| one.fingerprint).collect();
            let ended = old.message.alerts.iter().filter(|alert| {
                alert.status == Status::Resolved && !known.contains(&alert.fingerprint)
            });
            message.alerts.extend(ended.take(TAKEN_OVER_MAX).cloned());
        }
        Some(row.clone())
    }

    /// Replaces old firing messages that have a newer message about their group behind them: they
    /// were under way, or young, when it was added. Returns the rows to commit.
    pub fn renew(&mut self, is_open: IsOpen<'_>, now: Timestamp) -> Vec<Row> {
        if !self.rows.values().any(|row| is_old(row, now)) {
            return Vec::new();
        }
        let mut changed = Vec::new();
        let series = |row: &Row| (thread_key(row), row.instead_of.clone());
        let mut behind = BTreeMap::new();
        let ids: Vec<u64> = self.rows.keys().rev().copied().collect();
        for id in ids {
            let Some(row) = self.rows.get(&id) else {
                continue;
            };
            let newer = behind.get(&series(row)).copied();
            let tells_all = |newer: &u64| {
                let newer = self.rows.get(newer);
                newer.is_some_and(|newer| contains_firing(row, &newer.message, is_open))
            };
            let Some(newer) = newer.filter(|newer| is_old(row, now) && tells_all(newer)) else {
                behind.insert(series(row), id);
                continue;
            };
            if let Some(mut old) = self.rows.remove(&id) {
                changed.extend(self.take_over(newer, slice::from_ref(&old)));
                old.state = RowState::Superseded;
                changed.push(old);
            }
        }
        changed
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

    /// The next row of each channel. Groups with a firing message come first; within a group the
    /// oldest, as a resolved message never overtakes the firing one.
    fn heads(&self) -> BTreeMap<&str, &Row> {
        let firing: BTreeSet<(&str, &str)> = self
            .rows
            .values()
            .filter(|row| row.message.status == Status::Firing)
            .map(|row| (row.channel.as_str(), row.message.group_key.as_str()))
            .collect();
        let rank = |row: &Row| {
            let group = (row.channel.as_str(), row.message.group_key.as_str());
            (
                row.state != RowState::Sending,
                !firing.contains(&group),
                row.id,
            )
        };
        let mut heads: BTreeMap<&str, &Row> = BTreeMap::new();
        for row in self.rows.values() {
            let head = heads.entry(&row.channel).or_insert(row);
            if rank(row) < rank(head) {
                *head = row;
            }
        }
        heads
    }

    /// The rows to send now, at most one for each channel. The rows are marked as being sent; the
    /// caller commits the marks before sending.
    pub fn due(&mut self, now: Timestamp) -> Vec<Row> {
        let mut heads: Vec<u64> = self.heads().values().map(|row| row.id).collect();
        heads.sort_unstable();
        let mut due = Vec::new();
        for id in heads {
            let Some(row) = self.rows.get_mut(&id) else {
                continue;
            };
            if row.state != RowState::Queued || row.next_at > now {
                continue;
            }
            if self
                .resting
                .get(&row.channel)
                .is_some_and(|until| *until > now)
            {
                continue;
            }
            row.state = RowState::Sending;
            row.attempts += 1;
            due.push(row.clone());
        }
        due
    }

    /// Notes a message to a channel that asks for this average time between two messages. [`BURST`]
    /// messages may follow one another.
    pub fn pace(&mut self, channel: &str, pause: Duration, now: Timestamp) {
        let recent = self.recent.entry(channel.to_owned()).or_default();
        recent.push_back(now);
        if recent.len() < BURST {
            return;
        }
        let until = recent
            .pop_front()
            .map_or(now, |oldest| oldest.plus(pause * BURST as u32));
        let resting = self.resting.entry(channel.to_owned()).or_insert(until);
        *resting = until.max(*resting);
    }

    /// Time at which a row may be due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.heads()
            .values()
            .filter(|row| row.state == RowState::Queued)
            .map(|row| {
                self.resting
                    .get(&row.channel)
                    .map_or(row.next_at, |until| row.next_at.max(*until))
            })
            .min()
    }

    /// Applies the result of an attempt. Returns the rows to commit: this row, and one for another
    /// channel if this channel refused for good.
    pub fn answered(
        &mut self,
        id: u64,
        outcome: &Outcome,
        fallback: Fallback<'_>,
        now: Timestamp,
    ) -> Vec<Row> {
        let Some(row) = self.rows.get_mut(&id) else {
            return Vec::new();
        };
        match outcome {
            Outcome::Sent(handle) => {
                // The resolved message ends the thread.
                let is_end = row.message.reason == Reason::Resolved;
                let handle = handle.clone().filter(|_| !is_end);
                row.state = RowState::Sent;
                row.error = None;
                row.handle.clone_from(&handle);
                match handle {
                    Some(handle) => drop(self.threads.insert(thread_key(row), handle)),
                    None if is_end => drop(self.threads.remove(&thread_key(row))),
                    None => {}
                }
            }
            Outcome::NoAnswer { error } => {
                row.state = RowState::Queued;
                row.is_in_doubt = true;
                row.error = Some(error.clone());
                row.next_at = now.plus(backoff(row.attempts, row.id));
            }
            Outcome::TryAgain { after, error } => {
                row.state = RowState::Queued;
                row.error = Some(error.clone());
                row.next_at = now.plus(after.unwrap_or_else(|| backoff(row.attempts, row.id)));
                if let Some(after) = after {
                    self.resting.insert(row.channel.clone(), now.plus(*after));
                }
            }
            Outcome::NoRecipient { error } => {
                row.state = RowState::GaveUp;
                row.error = Some(error.clone());
            }
            Outcome::GiveUp { .. } | Outcome::NoChannel => {
                let is_removed = *outcome == Outcome::NoChannel;
                row.error = Some(match outcome {
                    Outcome::GiveUp { error } => error.clone(),
                    _ => NO_CHANNEL.to_owned(),
                });
                let other = fallback(&row.channel).filter(|other| *other != row.channel);
                match (other, &row.instead_of) {
                    // No other channel is left. The operator may repair this one, so the row stays.
                    (None, _) | (_, Some(_)) if !is_removed => {
                        row.state = RowState::Queued;
                        row.next_at = now.plus(BACKOFF_MAX);
                    }
                    // Nobody is configured who could get the message.
                    (None, _) => row.state = RowState::GaveUp,
                    // The receiver's other channels have had the message from the start: no second
                    // copy.
                    (Some(other), None) if is_of(&other, &row.message.receiver) => {
                        row.state = RowState::GaveUp;
                    }
                    (Some(other), _) => {
                        row.state = RowState::GaveUp;
                        let refused = row.clone();
                        let channel = Some(refused.channel.clone());
                        let moved = self.queue(other, channel, refused.message.clone(), now);
                        self.rows.remove(&id);
                        return vec![refused, moved];
                    }
                }
            }
        }
        let changed = row.clone();
        self.rows.retain(|_, row| !row.state.is_final());
        vec![changed]
    }

    /// The longest-waiting row of each channel, if it was decided before `since`.
    pub fn late(&self, since: Timestamp) -> Vec<&Row> {
        let mut oldest: BTreeMap<&str, &Row> = BTreeMap::new();
        for row in self.rows.values() {
            let known = oldest.entry(&row.channel).or_insert(row);
            if row.created_at < known.created_at {
                *known = row;
            }
        }
        oldest.retain(|_, row| row.created_at < since);
        oldest.into_values().collect()
    }

    /// The rows whose delivery has not ended.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Row> {
        self.rows.values()
    }

    fn queue(
        &mut self,
        channel: String,
        instead_of: Option<String>,
        message: Message,
        now: Timestamp,
    ) -> Row {
        let id = self.next_id;
        self.next_id += 1;
        let state = RowState::Queued;
        let row = Row {
            id,
            channel,
            instead_of,
            message,
            state,
            created_at: now,
            attempts: 0,
            next_at: now,
            error: None,
            handle: None,
            is_in_doubt: false,
        };
        self.rows.insert(id, row.clone());
        row
    }
}

/// Whether a channel (`receiver/kind/number`) is one of the receiver's.
fn is_of(channel: &str, receiver: &str) -> bool {
    channel
        .strip_prefix(receiver)
        .is_some_and(|rest| rest.starts_with('/'))
}

fn thread_key(row: &Row) -> (String, String) {
    (row.channel.clone(), row.message.group_key.clone())
}

/// The wait after `attempts` failures, shortened by up to a quarter, so that rows that failed
/// together are not retried together. The row's number decides how much.
pub fn backoff(attempts: u32, id: u64) -> Duration {
    let doubled = BACKOFF_FIRST
        .saturating_mul(1 << attempts.saturating_sub(1).min(16))
        .min(BACKOFF_MAX);
    let share = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u32;
    doubled - doubled * share / 1024
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
    use super::*;
    use crate::message::MessageAlert;
    use takt_model::Labels;

    fn none_open(_: &Row, _: Fingerprint) -> bool {
        false
    }

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
        outbox.due(at(0));
        outbox.add([about("g", Reason::Resolved, "a")], &none_open, at(3));
        outbox.answered(1, &again(None), &|_| None, at(4));
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

        let mut outbox = Outbox::load([], 1);
        outbox.add([about("g", Reason::FirstFiring, "AB")], &is_open, at(0));
        outbox.add([about("g", Reason::Resolved, "a")], &none_open, at(100));
        assert_eq!(delivered(&mut outbox, at(200)), [end]);
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

    fn message(channel: &str, group: &str, reason: Reason) -> Message {
        Message {
            channel: channel.to_owned(),
            receiver: "ops".to_owned(),
            group_key: group.to_owned(),
            reason,
            status: Status::Firing,
            group_labels: Labels::new(),
            common_labels: Labels::new(),
            common_annotations: BTreeMap::new(),
            route_labels: Labels::new(),
            external_url: String::new(),
            timezone: None,
            acknowledge_url: None,
            alerts: Vec::new(),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    fn ids(rows: &[Row]) -> Vec<u64> {
        rows.iter().map(|row| row.id).collect()
    }

    fn again(after: Option<u64>) -> Outcome {
        Outcome::TryAgain {
            after: after.map(Duration::from_secs),
            error: "429".to_owned(),
        }
    }

    #[test]
    fn one_at_a_time_for_each_channel_in_order() {
        let mut outbox = Outbox::load([], 1);
        let messages =
            ["slack", "slack", "mail"].map(|channel| message(channel, "g", Reason::FirstFiring));
        assert_eq!(ids(&outbox.add(messages, &none_open, at(0))), [1, 2, 3]);
        assert_eq!(ids(&outbox.due(at(0))), [1, 3]);
        assert!(outbox.due(at(0)).is_empty(), "2 waits behind 1");
        outbox.answered(1, &Outcome::Sent(None), &|_| None, at(1));
        assert_eq!(ids(&outbox.due(at(1))), [2]);
    }

    #[test]
    fn a_channel_that_asks_for_rest_gets_it_and_others_go_on() {
        let mut outbox = Outbox::load([], 1);
        outbox.add(
            [
                message("slack", "g", Reason::FirstFiring),
                message("slack", "h", Reason::FirstFiring),
            ],
            &none_open,
            at(0),
        );
        outbox.due(at(0));
        outbox.answered(1, &again(Some(30)), &|_| None, at(0));
        outbox.add(
            [message("mail", "g", Reason::FirstFiring)],
            &none_open,
            at(1),
        );
        assert_eq!(ids(&outbox.due(at(29))), [3]);
        assert_eq!(outbox.next_due(), Some(at(30)));
        assert_eq!(ids(&outbox.due(at(30))), [1]);
    }

    #[test]
    fn a_paced_channel_takes_a_few_at_once_and_then_one_at_a_time() {
        let mut outbox = Outbox::load([], 1);
        outbox.add(
            (0..12).map(|n| message("slack", &n.to_string(), Reason::FirstFiring)),
            &none_open,
            at(0),
        );
        let mut sent_at = Vec::new();
        for half_seconds in 0..24 {
            let now = Timestamp(half_seconds * 500);
            for row in outbox.due(now) {
                outbox.answered(row.id, &Outcome::Sent(None), &|_| None, now);
                outbox.pace("slack", Duration::from_secs(1), now);
                sent_at.push(half_seconds);
            }
        }
        assert_eq!(
            sent_at,
            [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19],
            "in no four seconds more than four"
        );
    }

    #[test]
    fn waits_double_up_to_five_minutes_and_are_spread() {
        let seconds: Vec<_> = (1..12).map(|n| backoff(n, 0).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        for id in 0..1000 {
            let wait = backoff(5, id);
            assert!(
                wait <= Duration::from_secs(16) && wait > Duration::from_secs(12),
                "{wait:?}"
            );
        }
        assert_ne!(backoff(5, 1), backoff(5, 2));
    }

    #[test]
    fn what_one_channel_gives_up_another_delivers() {
        let mut outbox = Outbox::load([], 7);
        outbox.add(
            [message("slack", "g", Reason::FirstFiring)],
            &none_open,
            at(0),
        );
        outbox.due(at(0));
        let give_up = Outcome::GiveUp {
            error: "channel_not_found".to_owned(),
        };
        let to_mail = |channel: &str| (channel == "slack").then(|| "mail".to_owned());
        let changed = outbox.answered(7, &give_up, &to_mail, at(1));
        assert_eq!(changed[0].state, RowState::GaveUp);
        assert_eq!(changed[1].channel.as_str(), "mail");
        assert_eq!(changed[1].instead_of.as_deref(), Some("slack"));
        assert_eq!(ids(&outbox.due(at(1))), [8]);
        // The other one refuses as well: the row stays and is tried now and then.
        let to_slack = |_: &str| Some("slack".to_owned());
        let changed = outbox.answered(8, &give_up, &to_slack, at(2));
        assert_eq!(changed.len(), 1);
        assert_eq!(changed[0].state, RowState::Queued);
        assert_eq!(outbox.next_due(), Some(at(302)));
        assert_eq!(outbox.late(at(2)).len(), 1);
    }

    #[test]
    fn a_receiver_gets_no_second_copy_of_what_its_other_channel_has() {
        let mut outbox = Outbox::load([], 1);
        let both =
            ["ops/slack/0", "ops/email/0"].map(|name| message(name, "g", Reason::FirstFiring));
        outbox.add(both, &none_open, at(0));
        outbox.due(at(0));
        let give_up = Outcome::GiveUp {
            error: "404".to_owned(),
        };
        let to_mail = |_: &str| Some("ops/email/0".to_owned());
        let changed = outbox.answered(1, &give_up, &to_mail, at(1));
        assert_eq!(changed.len(), 1);
        assert_eq!(changed[0].state, RowState::GaveUp);
        assert_eq!(outbox.iter().map(|row| row.id).collect::<Vec<_>>(), [2]);
        assert!(!is_of("ops2/email/0", "ops"));
    }

    #[test]
    fn numbers_that_were_never_stored_are_not_given_again() {
        let first = |next, second| first_row(next, at(second));
        assert_eq!(first(1, 1_000), 1_000_000_000);
        assert!(first(1_000_000_007, 1_001) > first(1, 1_000) + 500_000);
        // The clock was set back, twice.
        let stored = first(1, 1_000) + 7;
        let lives = [first(stored, 900), first(stored, 901), first(stored, 999)];
        assert!(lives.is_sorted_by(|one, next| stored < *one && one + 500_000 < *next));
    }

    #[test]
    fn a_moved_message_does_not_wait_for_a_channel_that_a_reload_removed() {
        let give_up = Outcome::GiveUp {
            error: "404".to_owned(),
        };
        let moved = || {
            let mut outbox = Outbox::load([], 1);
            let page = Message {
                receiver: "nurse".to_owned(),
                ..message("nurse/ntfy/0", "g", Reason::FirstFiring)
            };
            outbox.add([page], &none_open, at(0));
            outbox.due(at(0));
            outbox.answered(1, &give_up, &|_| Some("ops/email/0".to_owned()), at(1));
            outbox.due(at(1));
            outbox
        };

        let mut outbox = moved();
        let to_slack = |_: &str| Some("ops/slack/0".to_owned());
        let changed = outbox.answered(2, &Outcome::NoChannel, &to_slack, at(2));
        assert_eq!(changed[0].state, RowState::GaveUp);
        assert_eq!(changed[1].channel, "ops/slack/0");
        assert_eq!(ids(&outbox.due(at(2))), [3]);
        // A channel that exists and refuses is tried again: the operator may repair it.
        outbox.answered(3, &give_up, &|_| Some("nurse/ntfy/0".to_owned()), at(3));
        assert_eq!(outbox.next_due(), Some(at(303)));

        let mut outbox = moved();
        let changed = outbox.answered(2, &Outcome::NoChannel, &|_| None, at(2));
        assert_eq!(changed[0].state, RowState::GaveUp);
        assert_eq!(outbox.iter().len(), 0);
    }

    #[test]
    fn after_a_crash_unacknowledged_messages_are_sent_again() {
        let mut outbox = Outbox::load([], 1);
        outbox.add(
            [message("slack", "g", Reason::FirstFiring)],
            &none_open,
            at(0),
        );
        let stored = outbox.due(at(0));
        assert_eq!(stored[0].state, RowState::Sending);
        let mut after = Outbox::load(stored, 2);
        assert_eq!(ids(&after.due(at(5))), [1]);
        assert_eq!(
            ids(&after.add([message("slack", "g", Reason::Resolved)], &none_open, at(5))),
            [2],
            "numbers are not used again"
        );
    }

    #[test]
    fn later_messages_go_into_the_thread_also_after_a_restart() {
        let mut outbox = Outbox::load([], 1);
        let send = |outbox: &mut Outbox, reason, handle: Option<&str>| {
            let row = outbox
                .add([message("slack", "g", reason)], &none_open, at(0))
                .pop()
                .unwrap();
            let thread = outbox.thread(&row).map(str::to_owned);
            outbox.due(at(0));
            let stored = outbox.answered(
                row.id,
                &Outcome::Sent(handle.map(str::to_owned)),
                &|_| None,
                at(0),
            );
            (thread, stored)
        };
        let (_, first) = send(&mut outbox, Reason::FirstFiring, Some("C1/1.1"));
        assert_eq!(
            send(&mut outbox, Reason::NewInGroup, None).0.as_deref(),
            Some("C1/1.1")
        );
        let mut outbox = Outbox::load(first, 3);
        assert_eq!(
            send(&mut outbox, Reason::Resolved, None).0.as_deref(),
            Some("C1/1.1")
        );
        assert_eq!(
            send(&mut outbox, Reason::FirstFiring, Some("C1/2.2")).0,
            None,
            "a new episode, a new thread"
        );
        assert_eq!(
            send(&mut outbox, Reason::StillFiring, None).0.as_deref(),
            Some("C1/2.2")
        );
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
