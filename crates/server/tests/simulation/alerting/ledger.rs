//! What the channels have got, and whether that is what they should have got.
//!
//! "At least once" means here: a channel gets a message a second time only if its answer was lost, or
//! the process ended before the answer was stored. A message whose row was never stored, because
//! commits failed until the process ended, may be decided again; only its alerts may then have a
//! second end, or none.
//!
//! A newer message replaces a firing one of its group that has waited for a minute, and takes over its
//! ends. So an end may come without the beginning; and it comes a second time if the channel had the
//! replaced message, but its answer was lost or not stored.

use super::disk::Tables;
use crate::seeds::{Broken, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use takt_alerts::fingerprint::Fingerprint;
use takt_alerts::message::{Message, Status};
use takt_alerts::outbox::Row;
use takt_model::Timestamp;

pub const ONE_END: &str = "each announced episode has exactly one end in each channel";
pub const NOTHING_AFTER: &str = "no message about an episode comes after its end";
pub const AT_LEAST_ONCE: &str =
    "a message comes a second time only if its first answer was lost or not stored";
pub const NO_ENDS: &str = "a channel without send_resolved gets no end";
pub const NOTHING_LOST: &str = "a row that counts as sent was taken by its channel";
pub const NUMBERS: &str = "the number of a row is never used for another message";

/// What a channel knows of an alert.
#[derive(Debug, Clone)]
struct Told {
    status: Status,
    starts_at: Timestamp,
    /// How often it had begun, at the last message that it fires.
    begun: u64,
    /// The row of the message.
    row: u64,
    /// Whether another end, or none at all, may follow: a message about it was never stored.
    is_excused: bool,
}

/// A message that a channel has, or has refused for good.
#[derive(Debug, Clone)]
struct Taken {
    message: Message,
    /// How often it may come again.
    excuses: usize,
    /// Whether the channel refused it. If that was never stored, the channel is asked again.
    is_refused: bool,
}

/// The messages of all channels.
#[derive(Debug, Default)]
pub struct Ledger {
    told: BTreeMap<(String, Fingerprint), Told>,
    /// How often each alert has begun. Times do not tell episodes apart: the clock is set back.
    begun: BTreeMap<Fingerprint, u64>,
    taken: BTreeMap<u64, Taken>,
    /// Rows that a newer message replaced while they waited, and that excuse one end of an alert: the
    /// channel has not got the beginning in the row, or it has the end in it, without an answer.
    replaced: BTreeMap<(String, Fingerprint), BTreeSet<u64>>,
    /// The configured channels.
    channels: BTreeSet<String>,
    /// What a channel knew that a configuration lacks. Where no commit succeeds until the process ends,
    /// the next one with that channel goes on from there.
    forgotten: BTreeMap<(String, Fingerprint), Told>,
    /// Rows up to this one are of a configuration that lacked the channel since.
    forgotten_until: BTreeMap<String, u64>,
    /// The newest row at each reload: a route that leads elsewhere ends an episode in its channel,
    /// and one that leads back begins it again.
    reloads: Vec<u64>,
    /// Channels that get no ends.
    without_ends: BTreeSet<String>,
    /// What [`Self::forgotten_until`] had for the channels that a reload removed, if no commit succeeded
    /// since.
    removed_unstored: BTreeMap<String, Option<u64>>,
    /// Rows that a newer message replaced in a process that ended before it could store that. The
    /// channel gets them after the newer one, and then the newer one again.
    revived: BTreeSet<u64>,
    /// Rows that a channel refused in a process that ended before it could store that. The channel is asked
    /// again, so that it may refuse several ends of an alert, one after another.
    asked_again: BTreeSet<u64>,
    /// The channel and the group of each row that was sent.
    numbers: BTreeMap<u64, (String, String)>,
}

impl Ledger {
    /// An alert begins to fire.
    pub fn begins(&mut self, print: Fingerprint) {
        *self.begun.entry(print).or_default() += 1;
    }

    /// A channel has a message. `is_known` says whether Takt gets the answer.
    pub fn takes(&mut self, row: &Row, is_known: bool) -> Result<(), Broken> {
        // The same number must always stand for the same channel and group.
        let series = (row.channel.clone(), row.message.group_key.clone());
        let known = self.numbers.entry(row.id).or_insert(series);
        let is_same = (&known.0, &known.1) == (&row.channel, &row.message.group_key);
        ensure(is_same, NUMBERS, || format!("row {}", row.id))?;

        // A second time needs an excuse: an answer that was lost, or a process that ended before it was stored.
        if let Some(taken) = self.taken.get_mut(&row.id) {
            ensure(taken.excuses > 0, AT_LEAST_ONCE, || {
                format!("row {}", row.id)
            })?;
            taken.excuses -= 1;
            taken.excuses += usize::from(!is_known);
            self.hear_again(row);
            return Ok(());
        }

        self.hear(row)?;
        self.keep(row, usize::from(!is_known), false);
        Ok(())
    }

    /// A channel refused a message for good: it counts as heard, since others have it.
    pub fn gives_up(&mut self, row: &Row) -> Result<(), Broken> {
        // A refusal may be repeated after a crash, and changes nothing then.
        if !self.taken.contains_key(&row.id) {
            self.hear(row)?;
            self.keep(row, 0, true);
        }
        Ok(())
    }

    /// A message was replaced while it waited, at first or after an attempt without an answer. The
    /// newer one has its ends.
    pub fn replaced(&mut self, row: &Row) {
        // A message that stands in for a refused one of another channel has no ends of its own.
        if row.instead_of.is_some() {
            return;
        }

        let excusing = if self.taken.contains_key(&row.id) {
            Status::Resolved
        } else {
            Status::Firing
        };

        let alerts = row.message.alerts.iter();
        for alert in alerts.filter(|alert| alert.status == excusing) {
            let key = (row.message.channel.clone(), alert.fingerprint);
            self.replaced.entry(key).or_default().insert(row.id);
        }
    }

    /// Whether a row before this one was replaced that excuses an end. It excuses only one.
    fn has_replaced(&mut self, key: &(String, Fingerprint), row: u64) -> bool {
        let Some(rows) = self.replaced.get_mut(key) else {
            return false;
        };
        // Rows from this one on stay: they excuse later ends.
        let later = rows.split_off(&row);
        !mem::replace(rows, later).is_empty()
    }

    fn keep(&mut self, row: &Row, excuses: usize, is_refused: bool) {
        let taken = Taken {
            message: row.message.clone(),
            excuses,
            is_refused,
        };
        self.taken.insert(row.id, taken);
    }

    /// A channel gets a message again, maybe after a revived row that it replaced.
    fn hear_again(&mut self, row: &Row) {
        // A revived row has overwritten a newer one, which now comes again and has the last word.
        for alert in &row.message.alerts {
            let key = (row.message.channel.clone(), alert.fingerprint);
            let is_newer = |known: &&mut Told| known.row < row.id;
            let known = self.told.get_mut(&key).filter(is_newer);
            if let Some(known) = known.filter(|known| self.revived.contains(&known.row)) {
                known.status = alert.status;
            }
        }
    }

    fn hear(&mut self, row: &Row) -> Result<(), Broken> {
        let channel = &row.message.channel;
        let is_old = |until: &u64| row.id <= *until;
        let is_forgotten = self.forgotten_until.get(channel).is_some_and(is_old);
        // Rows of an older configuration, and stand-ins, say nothing about this channel's episodes.
        if row.instead_of.is_some() || is_forgotten || !self.channels.contains(channel) {
            return Ok(());
        }
        for alert in &row.message.alerts {
            let key = (channel.clone(), alert.fingerprint);
            let is_replaced = self.has_replaced(&key, row.id);

            let known = self.told.get(&key);
            // A reload puts an alert into another group, and groups that fire come first: what the
            // earlier group had to say of it comes late.
            let is_late = known.is_some_and(|known| {
                let between = row.id..known.row;
                self.reloads.iter().any(|at| between.contains(at))
            });
            if is_late {
                continue;
            }
            let about = || {
                format!(
                    "{channel}: {} {}, row {}",
                    alert.labels, alert.starts_at, row.id
                )
            };

            let is_revived = self.revived.contains(&row.id);
            let is_excused = is_revived
                || self.asked_again.contains(&row.id)
                || known.is_some_and(|known| known.is_excused);

            let mut begun = self.begun.get(&alert.fingerprint).copied().unwrap_or(0);
            if alert.status == Status::Resolved {
                ensure(!self.without_ends.contains(channel), NO_ENDS, about)?;
                let is_open = known.is_some_and(|known| known.status == Status::Firing);
                ensure(is_open || is_replaced || is_excused, ONE_END, about)?;
                begun = known.map_or(begun, |known| known.begun);
            } else if let Some(known) = known {
                // A beginning after an end needs a new episode, a reload in between, or an excuse.
                let is_same = known.starts_at == alert.starts_at && known.begun == begun;
                let is_over = known.status == Status::Resolved && is_same;
                let between = known.row..row.id;
                let is_rerouted = self.reloads.iter().any(|at| between.contains(at));
                let is_kept = !is_over || is_excused || is_rerouted;
                ensure(is_kept, NOTHING_AFTER, about)?;
            }

            self.told.insert(
                key,
                Told {
                    status: alert.status,
                    starts_at: alert.starts_at,
                    begun,
                    row: row.id,
                    is_excused: is_excused && !is_revived && alert.status == Status::Firing,
                },
            );
        }
        Ok(())
    }

    /// A commit succeeded: the next process knows the configuration.
    pub fn stored(&mut self) {
        self.removed_unstored.clear();
    }

    /// The process ends; the next one knows what is on the disk.
    pub fn crash(&mut self, disk: &Tables) {
        // No commit has stored that the channel was removed, so the next process still knows it.
        for (channel, before) in mem::take(&mut self.removed_unstored) {
            match before {
                Some(until) => drop(self.forgotten_until.insert(channel.clone(), until)),
                None => drop(self.forgotten_until.remove(&channel)),
            }
            self.channels.insert(channel);
        }
        // Rows that were replaced only in memory wait on the disk again.
        for rows in self.replaced.values() {
            let is_back = |id: &&u64| disk.outbox.contains_key(id);
            self.revived.extend(rows.iter().filter(is_back));
        }

        // Messages that the disk does not know as ended may be sent again.
        let mut taken = mem::take(&mut self.taken);
        taken.retain(|id, taken| {
            if disk.ended.contains_key(id) {
                return true;
            }
            // The row waits on the disk, so the channel may get it a second time.
            if disk.outbox.contains_key(id) {
                if !taken.is_refused {
                    taken.excuses += 1;
                    return true;
                }
                self.asked_again.insert(*id);
            }
            // The row was never stored, so its alerts may be decided again.
            for alert in &taken.message.alerts {
                let key = (taken.message.channel.clone(), alert.fingerprint);
                if let Some(told) = self.told.get_mut(&key) {
                    told.is_excused = true;
                }
            }
            false
        });

        self.taken = taken;
        // Where the clock was set back, the numbers of rows that were never stored are above the next.
        let last = disk.last_row();
        let until = self.forgotten_until.values_mut();
        until
            .filter(|until| **until != u64::MAX)
            .chain(&mut self.reloads)
            .for_each(|until| *until = last.min(*until));

        for told in self.told.values_mut() {
            told.row = told.row.min(last);
        }
        // Episodes of channels that a configuration lacked, if the disk still has them open.
        for (key, told) in mem::take(&mut self.forgotten) {
            let is_open = disk
                .log
                .iter()
                .any(|(log, entry)| log.channel == key.0 && entry.open.contains_key(&key.1));
            // Its last message may wait, if no commit has dropped the channel.
            let is_queued = disk.outbox.values().any(|row| {
                let mut alerts = row.message.alerts.iter();
                row.channel == key.0 && alerts.any(|alert| alert.fingerprint == key.1)
            });
            if is_open || is_queued {
                let is_excused = true;
                self.told.entry(key).or_insert(Told { is_excused, ..told });
            }
        }

        for rows in self.replaced.values_mut() {
            rows.retain(|id| disk.ended.contains_key(id));
        }
    }

    /// Another configuration. `last_row` is the newest row that waits or is stored.
    pub fn reload(&mut self, channels: &[(&str, bool)], last_row: u64) {
        // Rows that were sent since no commit succeeds neither wait nor are stored.
        let sent = self.taken.last_key_value().map_or(0, |(id, _)| *id);
        let last_row = last_row.max(sent);
        self.reloads.push(last_row);
        self.configured(channels, last_row);
    }

    /// The channels of the configuration in force. One that is gone gets no more ends.
    pub fn configured(&mut self, channels: &[(&str, bool)], last_row: u64) {
        let wanted = |name: &str| channels.iter().any(|(channel, _)| *channel == name);
        // Whatever a removed channel knew is put aside: it gets no ends from now on.
        for gone in self.channels.iter().filter(|name| !wanted(name)) {
            let of_gone = self.told.extract_if(.., |(name, _), _| name == gone);
            self.forgotten.extend(of_gone);
            let before = self.forgotten_until.insert(gone.clone(), u64::MAX);
            self.removed_unstored.entry(gone.clone()).or_insert(before);
        }

        self.channels = channels
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect();
        // A channel that comes back begins with rows of this configuration.
        for (name, wants_ends) in channels {
            if let Some(until) = self.forgotten_until.get_mut(*name) {
                *until = (*until).min(last_row);
            }
            if !wants_ends {
                self.without_ends.insert((*name).to_owned());
            }
        }
    }

    /// Whether a channel knows that an alert fires, or has an end of it that was never stored: the process
    /// after that takes the channel's knowledge for the last that was.
    pub fn knows(&self, channel: &str, print: Fingerprint) -> bool {
        let told = self.told.get(&(channel.to_owned(), print));
        told.is_some_and(|told| told.status == Status::Firing || told.is_excused)
    }

    /// All is well and silent: every announced episode has its end.
    pub fn at_rest(&mut self, disk: &Tables) -> Result<(), Broken> {
        // An end in each channel, apart from those that get none.
        for ((channel, print), told) in &self.told {
            let is_over = told.status == Status::Resolved
                || told.is_excused
                || self.without_ends.contains(channel);
            ensure(is_over, ONE_END, || {
                format!("{channel}: no end of {print}, {}", told.starts_at)
            })?;
        }

        for (id, has_it) in &disk.ended {
            let is_taken = self.taken.contains_key(id);
            ensure(!has_it || is_taken, NOTHING_LOST, || format!("row {id}"))?;
        }
        // The next round begins with nothing.
        self.told.clear();
        self.replaced.clear();
        self.forgotten.clear();
        self.reloads.clear();
        self.revived.clear();
        self.asked_again.clear();
        self.taken.clear();
        Ok(())
    }
}
