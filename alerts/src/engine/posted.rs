//! Bounds of the alerts that programs post. An alert that is known can always end.

use super::Engine;
use crate::Batch;
use crate::alert::{Alert, Posted, PostedError};
use crate::fingerprint::Fingerprint;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use takt_model::Timestamp;

/// Largest text of one alert, in bytes: names and values of its labels and annotations, and its URL.
const ALERT_BYTES_MAX: usize = 64 << 10;

/// Bytes of text that the posted alerts may have on average.
const MEAN_BYTES_MAX: usize = 4 << 10;

/// The posted alerts that are known, with those who posted them.
#[derive(Debug, Default)]
pub(super) struct PostedAlerts {
    known: BTreeMap<Fingerprint, PostedEntry>,
    by_sender: HashMap<Arc<str>, usize>,
    bytes: usize,
}

#[derive(Debug)]
struct PostedEntry {
    sender: Arc<str>,
    bytes: usize,
}

impl PostedAlerts {
    pub fn count(&self) -> usize {
        self.known.len()
    }

    /// Counts an alert, or its new text. `max` is the number of alerts of all senders; one sender
    /// may have three quarters of them.
    ///
    /// # Errors
    /// If it exceeds a bound; then nothing changes.
    fn admit(&mut self, alert: &Alert, sender: &Arc<str>, max: usize) -> Result<(), PostedError> {
        let fingerprint = alert.fingerprint();
        let bytes = text_bytes(alert);
        let known = self.known.get(&fingerprint);
        let known_bytes = known.map_or(0, |known| known.bytes);
        let of_sender = self.by_sender.get(sender).copied().unwrap_or(0);
        // One program that posts without end leaves a quarter to the others.
        let max_of_sender = max - max / 4;

        // Only what grows is refused: a known alert always keeps the room it has.
        if bytes > ALERT_BYTES_MAX {
            let max = ALERT_BYTES_MAX;
            return Err(PostedError::TooLong { max });
        } else if known.is_none() && self.known.len() >= max {
            return Err(PostedError::TooMany { max });
        } else if known.is_none() && of_sender >= max_of_sender {
            return Err(PostedError::TooManyOfSender { max: max_of_sender });
        } else if bytes > known_bytes
            && self.bytes - known_bytes + bytes > max.saturating_mul(MEAN_BYTES_MAX)
        {
            let max = max.saturating_mul(MEAN_BYTES_MAX);
            return Err(PostedError::TooMuchText { max });
        }

        self.note(fingerprint, sender, bytes);
        Ok(())
    }

    fn note(&mut self, fingerprint: Fingerprint, sender: &Arc<str>, bytes: usize) {
        // The alert counts for the program that posted it last.
        self.forget(fingerprint);
        self.bytes += bytes;
        *self.by_sender.entry(Arc::clone(sender)).or_insert(0) += 1;
        let sender = Arc::clone(sender);
        self.known
            .insert(fingerprint, PostedEntry { sender, bytes });
    }

    /// Counts an alert that was posted before a restart. Its sender is unknown.
    pub fn restore(&mut self, alert: &Alert) {
        self.note(alert.fingerprint(), &Arc::from(""), text_bytes(alert));
    }

    /// Makes room: the alert is over.
    pub fn forget(&mut self, fingerprint: Fingerprint) {
        let Some(gone) = self.known.remove(&fingerprint) else {
            return;
        };
        self.bytes -= gone.bytes;
        if let Some(count) = self.by_sender.get_mut(&gone.sender) {
            *count -= 1;
            if *count == 0 {
                self.by_sender.remove(&gone.sender);
            }
        }
    }
}

fn text_bytes(alert: &Alert) -> usize {
    let labels: usize = alert.labels.iter().map(|(n, v)| n.len() + v.len()).sum();
    let words = alert.annotations.iter();
    let words: usize = words.map(|(n, v)| n.len() + v.len()).sum();
    labels + words + alert.generator_url.len()
}

impl Engine {
    /// Number of posted alerts that are known.
    pub fn posted_count(&self) -> usize {
        self.posted.count()
    }

    /// Whether a program has posted this alert, and no rule raises it.
    pub fn is_posted(&self, fingerprint: Fingerprint) -> bool {
        self.posted.known.contains_key(&fingerprint) && !self.firing.contains_key(&fingerprint)
    }

    /// Number of posted alerts that may be known.
    pub fn posted_max(&self) -> usize {
        self.server.posted_max
    }

    /// Takes alerts that `sender` has posted, within the bounds. Of a known alert whose new text
    /// exceeds them, the times count and the text stays. The others are returned as errors.
    pub fn post_from(
        &mut self,
        sender: &Arc<str>,
        posted: Vec<Posted>,
        now: Timestamp,
    ) -> (Batch, Vec<PostedError>) {
        let mut batch = Batch::default();
        let mut errors = Vec::new();
        let resolve_timeout = self.router.config().resolve_timeout;
        for posted in posted {
            let mut alert = match posted.into_alert(now, resolve_timeout) {
                Ok(alert) => alert,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };

            if let Err(error) = self.posted.admit(&alert, sender, self.server.posted_max) {
                errors.push(error);
                let Some(known) = self.router.alerts().get(alert.fingerprint()) else {
                    continue;
                };
                // The times count, or a known alert could not be ended while all room is taken.
                alert.annotations.clone_from(&known.annotations);
                alert.generator_url.clone_from(&known.generator_url);
            }
            batch.alerts.push(self.router.take(alert, now).clone());
        }
        (batch, errors)
    }
}
