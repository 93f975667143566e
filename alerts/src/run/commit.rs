//! Commits the changes of a turn, and keeps those that could not be committed.
//!
//! The store and the clock are arguments, so that a simulation can let any commit fail.

use super::uncommitted::{self, DroppedRecords};
use crate::outbox::Row;
use crate::ports::{AlertStore, StoreError};
use crate::{Batch, Engine};
use std::mem;
use std::time::Duration;
use takt_model::Timestamp;

/// Interval at which the store notes that Takt is running. After a crash the note says since when
/// Takt was down.
const NOTE_ALIVE: Duration = Duration::from_secs(15);

/// Time between a failed commit and the next attempt.
const COMMIT_PAUSE: Duration = Duration::from_secs(1);

/// Changes and messages that wait for a commit.
#[derive(Debug)]
pub struct Commits {
    /// Content of the commits that failed.
    unsaved: Batch,
    /// Messages that are marked as being sent and leave with this turn's commit.
    unsent: Vec<Row>,
    note_at: Timestamp,
    /// After a failed commit: time of the next attempt.
    commit_at: Timestamp,
}

/// The result of a commit.
#[derive(Debug)]
pub struct Committed {
    /// Whether the batch is stored.
    pub result: Result<(), StoreError>,
    /// Messages to hand to their channels now, whether the batch is stored or not.
    pub messages: Vec<Row>,
    /// Records that were dropped because too many wait for the store.
    pub dropped: DroppedRecords,
}

impl Commits {
    /// Begins with the changes of [`Engine::restore`].
    pub fn new(restored: Batch, now: Timestamp) -> Self {
        Self {
            unsaved: restored,
            unsent: Vec::new(),
            note_at: now,
            commit_at: now,
        }
    }

    /// Returns the changes of earlier turns that are not stored; the turn's own changes follow them.
    pub fn take_unsaved(&mut self) -> Batch {
        mem::take(&mut self.unsaved)
    }

    /// Marks the messages that are due as being sent. They leave with the next commit.
    pub fn mark_due(&mut self, engine: &mut Engine, now: Timestamp) -> Batch {
        let (rows, marks) = engine.send_due(now);
        self.unsent.extend(rows);
        marks
    }

    /// Commits a batch. A failed commit does not hold up messages; its content waits for the next
    /// one.
    pub fn commit(&mut self, store: &dyn AlertStore, batch: Batch, now: Timestamp) -> Committed {
        // An empty batch notes that Takt runs: after a crash that is the time at which it went down.
        let notes_alive = now >= self.note_at;
        let result = if batch.is_empty() && !notes_alive {
            Ok(())
        } else {
            store.commit(&batch, now)
        };

        let mut dropped = DroppedRecords::default();
        match &result {
            Ok(()) if notes_alive => self.note_at = now.plus(NOTE_ALIVE),
            Ok(()) => {}
            Err(_) => {
                self.unsaved = batch;
                dropped = uncommitted::compact(&mut self.unsaved);
                self.commit_at = now.plus(COMMIT_PAUSE);
            }
        }

        Committed {
            result,
            messages: mem::take(&mut self.unsent),
            dropped,
        }
    }

    /// When the store has to note that Takt is running.
    pub fn note_at(&self) -> Timestamp {
        self.note_at
    }

    /// Earliest time of the next commit.
    pub fn commit_at(&self) -> Timestamp {
        self.commit_at
    }
}
