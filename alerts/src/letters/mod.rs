//! Letters: messages that no alert caused, such as monthly reports and budget warnings.
//!
//! Letters use the outbox's rules. Their state is stored before and after every attempt, so a mail
//! whose recipient was refused for good is never tried again, also after a restart; all other
//! failures, which the operator may repair, are retried after growing waits. Mails go through
//! [`takt_mail`], texts through the Slack notifier with the HTTP policy of alerts. The caller
//! decides on recipients and content, and offers each letter until it has ended.

mod file;

pub use file::FileLetterStore;

use crate::notify::http::HttpSender;
use crate::notify::slack::Slack;
use crate::outbox::{RowState, backoff};
use crate::ports::StoreError;
use serde::{Deserialize, Serialize};
use takt_mail::{Mail, Mailer};
use takt_model::Timestamp;

/// A letter to one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// Identity of the letter: the same for every attempt, different for every recipient, period
    /// and edition.
    pub key: String,
    /// Recipient and text.
    pub content: LetterContent,
}

/// Recipient and text of a letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LetterContent {
    /// A mail. Its Message-ID should be set, so that a second copy is recognized.
    Mail(Box<Mail>),
    /// A text for Slack, in Slack's markup.
    SlackText {
        /// URL of the incoming webhook.
        webhook: String,
        /// The text.
        text: String,
    },
}

/// Stored state of a letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetterRecord {
    /// State of the delivery.
    pub state: RowState,
    /// Number of attempts so far.
    pub attempts: u32,
    /// Earliest time of the next attempt.
    pub next_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
    /// Error of the last attempt.
    pub error: Option<String>,
}

/// Stores the state of letters.
pub trait LetterStore {
    /// The state of the letter with this key; `None` before its first attempt.
    ///
    /// # Errors
    /// If the state cannot be read.
    fn load(&self, key: &str) -> Result<Option<LetterRecord>, StoreError>;

    /// Stores the state of a letter durably.
    ///
    /// # Errors
    /// If the state cannot be stored.
    fn save(&self, key: &str, record: &LetterRecord) -> Result<(), StoreError>;
}

/// Result of offering a letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LetterResult {
    /// The letter was sent now.
    Sent,
    /// The server refused the recipient for good now.
    Refused {
        /// The cause.
        error: String,
    },
    /// The letter could not be sent now; offer it again.
    Later {
        /// The cause.
        error: String,
        /// Earliest time of the next attempt.
        next_at: Timestamp,
    },
    /// Nothing was done: the letter was sent or refused before.
    Ended(RowState),
}

/// Sends letters.
pub struct LetterSender<S> {
    mailer: Option<Mailer>,
    http: HttpSender,
    store: S,
}

impl<S> LetterSender<S>
where
    S: LetterStore,
{
    /// A sender; without a mailer mails wait.
    pub fn new(mailer: Option<Mailer>, http: HttpSender, store: S) -> Self {
        Self {
            mailer,
            http,
            store,
        }
    }

    /// The mailer, if mail is configured.
    pub fn mailer(&self) -> Option<&Mailer> {
        self.mailer.as_ref()
    }

    /// Sends a letter, unless it has ended or its next attempt is not due yet.
    ///
    /// If the store fails, the letter is sent nevertheless: one that comes twice is better than
    /// none.
    pub async fn send(&self, letter: &Letter, now: Timestamp) -> LetterResult {
        // A letter without a record has not been tried.
        let mut record = self
            .store
            .load(&letter.key)
            .unwrap_or_else(|error| {
                tracing::error!(key = letter.key, %error, "cannot read the state of a letter");
                None
            })
            .unwrap_or(LetterRecord {
                state: RowState::Queued,
                attempts: 0,
                next_at: now,
                updated_at: now,
                error: None,
            });

        if record.state.is_final() {
            return LetterResult::Ended(record.state);
        }

        if record.next_at > now {
            return LetterResult::Later {
                error: record.error.unwrap_or_default(),
                next_at: record.next_at,
            };
        }

        // Stored before the attempt, so that a crash does not begin the count of attempts again.
        record.attempts += 1;
        record.updated_at = now;
        record.state = RowState::Sending;
        self.save(letter, &record);

        let result = self.attempt(letter, record.attempts, now).await;
        match &result {
            LetterResult::Sent => {
                record.state = RowState::Sent;
                record.error = None;
            }
            LetterResult::Refused { error } => {
                record.state = RowState::GaveUp;
                record.error = Some(error.clone());
            }
            LetterResult::Later { error, next_at } => {
                record.state = RowState::Queued;
                record.next_at = *next_at;
                record.error = Some(error.clone());
            }
            LetterResult::Ended(_) => {}
        }

        self.save(letter, &record);
        result
    }

    async fn attempt(&self, letter: &Letter, attempts: u32, now: Timestamp) -> LetterResult {
        let failed = match &letter.content {
            LetterContent::Mail(mail) => match &self.mailer {
                None => Err(("no mail server is configured".to_owned(), false)),
                Some(mailer) => mailer
                    .send(mail)
                    .await
                    // Only a refused recipient is final: the operator may repair everything else.
                    .map_err(|error| (error.in_full(), error.is_refused_mail())),
            },
            LetterContent::SlackText { webhook, text } => Slack::webhook(webhook)
                .post_text(&self.http, text)
                .await
                .map_err(|error| (error.to_string(), false)),
        };

        match failed {
            Ok(()) => LetterResult::Sent,
            Err((error, true)) => LetterResult::Refused { error },
            Err((error, false)) => LetterResult::Later {
                error,
                next_at: now.plus(backoff(attempts, seed(&letter.key))),
            },
        }
    }

    fn save(&self, letter: &Letter, record: &LetterRecord) {
        if let Err(error) = self.store.save(&letter.key, record) {
            tracing::error!(key = letter.key, %error, "cannot store the state of a letter");
        }
    }
}

/// A number for the backoff, so that letters that failed together are not retried together.
fn seed(key: &str) -> u64 {
    key.bytes().fold(0, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify::http::HttpOptions;
    use crate::notify::suite::{Verdict, service};
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::rc::Rc;
    use takt_mail::{EmailConfig, TlsMode};

    #[derive(Clone, Default)]
    struct MemoryStore {
        records: Rc<RefCell<BTreeMap<String, LetterRecord>>>,
        is_full: bool,
    }

    impl LetterStore for MemoryStore {
        fn load(&self, key: &str) -> Result<Option<LetterRecord>, StoreError> {
            Ok(self.records.borrow().get(key).cloned())
        }

        fn save(&self, key: &str, record: &LetterRecord) -> Result<(), StoreError> {
            if self.is_full {
                return Err(StoreError("No space left on device".to_owned()));
            }
            self.records
                .borrow_mut()
                .insert(key.to_owned(), record.clone());
            Ok(())
        }
    }

    fn sender(server: &str, store: &MemoryStore) -> LetterSender<MemoryStore> {
        let config = EmailConfig {
            server: server.to_owned(),
            tls: Some(TlsMode::None),
            from: "takt@lab.example".to_owned(),
            ..EmailConfig::default()
        };
        let http = HttpSender::new(&HttpOptions::default()).unwrap();
        LetterSender::new(Some(Mailer::new(&config).unwrap()), http, store.clone())
    }

    fn letters(server: &str) -> [Letter; 2] {
        let mail = Mail {
            to: "ann@lab.example".to_owned(),
            subject: "October".to_owned(),
            text: "10 GPU-hours".to_owned(),
            ..Mail::default()
        };
        let slack = LetterContent::SlackText {
            webhook: format!("http://{server}/services/x"),
            text: "10 GPU-hours".to_owned(),
        };
        [LetterContent::Mail(Box::new(mail)), slack].map(|content| Letter {
            key: "october ann".to_owned(),
            content,
        })
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(1_000_000 + seconds)
    }

    /// A letter is sent once, a refused one is never sent again, and a failed one is retried after
    /// a wait; all of that across restarts, which the second sender stands for.
    #[tokio::test]
    async fn letters_keep_their_state_across_restarts() {
        for number in 0..2 {
            let is_mail = number == 0;
            for verdict in [Verdict::Takes, Verdict::Never, Verdict::NotNow] {
                let (server, mut received) = service(verdict).await;
                let letter = letters(&server)[number].clone();
                let store = MemoryStore::default();
                let first = sender(&server, &store).send(&letter, at(0)).await;
                assert!(received.recv().await.unwrap().contains("10 GPU-hours"));
                // The second sender has only the record of the first.
                let again = sender(&server, &store).send(&letter, at(0)).await;
                match verdict {
                    Verdict::Takes => {
                        assert_eq!(first, LetterResult::Sent);
                        assert_eq!(again, LetterResult::Ended(RowState::Sent));
                    }
                    Verdict::Never if is_mail => {
                        assert!(matches!(first, LetterResult::Refused { .. }), "{first:?}");
                        assert_eq!(again, LetterResult::Ended(RowState::GaveUp));
                    }
                    // A webhook that is gone can be replaced.
                    _ => {
                        assert!(matches!(first, LetterResult::Later { .. }), "{first:?}");
                        assert_eq!(again, first, "not before its time");
                    }
                }
                assert!(received.try_recv().is_err(), "nothing was sent again");

                if verdict == Verdict::NotNow {
                    let later = sender(&server, &store).send(&letter, at(2)).await;
                    assert!(matches!(later, LetterResult::Later { .. }), "{later:?}");
                    assert!(received.recv().await.is_some());
                }
            }
        }
    }

    #[tokio::test]
    async fn a_full_store_holds_no_letter_up() {
        let (server, _received) = service(Verdict::Takes).await;
        let store = MemoryStore {
            is_full: true,
            ..MemoryStore::default()
        };

        let sent = sender(&server, &store)
            .send(&letters(&server)[0], at(0))
            .await;
        assert_eq!(sent, LetterResult::Sent);
    }
}
