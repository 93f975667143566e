//! The outbox: messages that are decided and not yet delivered.
//!
//! A row is committed together with the decision to send it, so a crash loses no message, and each
//! is delivered at least once. This module decides what to send and when; the clock is an argument.

mod replace;
mod row;

pub use replace::{IsOpen, OLD_AFTER};
pub use row::{Outcome, Row, RowState, first_row};

use crate::message::{Message, Status};
use crate::routing::dedup::Reason;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use takt_model::Timestamp;

/// Wait after the first failure; it doubles with every further failure.
pub const BACKOFF_FIRST: Duration = Duration::from_secs(1);

/// Longest wait after a failure.
pub const BACKOFF_MAX: Duration = Duration::from_secs(300);

/// The error of a row whose channel a reload removed.
pub const NO_CHANNEL: &str = "the configuration has no such channel";

/// Messages that may follow one another without a pause in a paced channel.
pub const BURST: usize = 4;

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
                // The process may have ended after the channel took the message, before that was stored.
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
        // A new episode begins a thread of its own.
        let is_first = row.message.reason == Reason::FirstFiring;
        self.threads
            .get(&thread_key(row))
            .filter(|_| !is_first)
            .map(String::as_str)
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

        // A row under way keeps its channel: the next one waits for the answer.
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
        // In the order of the decisions, not of the channels' names.
        heads.sort_unstable();

        let mut due = Vec::new();
        for id in heads {
            let Some(row) = self.rows.get_mut(&id) else {
                continue;
            };
            if row.state != RowState::Queued || row.next_at > now {
                continue;
            }

            // The channel has asked for a pause, with `Retry-After` or by its pace.
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

        // The next message waits until four pauses after the fourth-last, which is the channel's pace.
        let until = recent
            .pop_front()
            .map_or(now, |oldest| oldest.plus(pause * BURST as u32));
        // A longer pause that the channel itself has asked for stays.
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
            // The channel has not taken the message, so a second attempt brings no second copy.
            Outcome::TryAgain { after, error } => {
                row.state = RowState::Queued;
                row.error = Some(error.clone());
                row.next_at = now.plus(after.unwrap_or_else(|| backoff(row.attempts, row.id)));
                // A limit of the rate is the channel's, so its other messages wait as well.
                if let Some(after) = after {
                    self.resting.insert(row.channel.clone(), now.plus(*after));
                }
            }
            // Nothing is wrong with the channel: no retry, and no other channel.
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
        // By age and not by number: a row that took over an older one has its age.
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

    // Fibonacci hashing: neighbouring numbers get shares far apart, of at most 255/1024.
    let share = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u32;
    doubled - doubled * share / 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::Fingerprint;
    use takt_model::Labels;

    pub(super) fn none_open(_: &Row, _: Fingerprint) -> bool {
        false
    }

    pub(super) fn message(channel: &str, group: &str, reason: Reason) -> Message {
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

    pub(super) fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    fn ids(rows: &[Row]) -> Vec<u64> {
        rows.iter().map(|row| row.id).collect()
    }

    pub(super) fn again(after: Option<u64>) -> Outcome {
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
        // The first is delivered, and its channel is free.
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

        // Only Slack waits: the mail channel sends at once.
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

        // Up to a quarter shorter than 16 s.
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
            // The other channel is one of another receiver, so the message moves.
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
        // The process ends while the message is under way, and its answer is lost.
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

        // The thread is stored with the row that began it, and ends with the group's last message.
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
}
