//! One message to one channel: its number, the state of its delivery, and the result of an attempt.

use crate::message::Message;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use takt_model::Timestamp;

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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
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
}
