//! The way of the questions to the alert engine of a running server.

use crate::AnswerError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use takt_access::{MessageLink, ShownLabels, keyed_hash};
use takt_alerts::run::{ChangeError, Handle};
use takt_alerts::{Batch, Engine};
use takt_model::Timestamp;
use tokio::runtime;

/// The alert engine, and the secret that hides labels behind fingerprints. The default has no engine: that of a command that
/// reads the files.
#[derive(Clone, Default)]
pub struct AlertDesk {
    engine: Option<Handle>,
    secret: Arc<str>,
    links: Option<MessageLinks>,
}

/// What is needed to read the links of messages.
#[derive(Clone)]
struct MessageLinks {
    key: Arc<str>,
    /// Whether `alerts.acknowledge_links` is on; a reload may change it.
    are_on: Arc<AtomicBool>,
}

impl AlertDesk {
    /// Returns the desk of a server. `secret` is random and the same for the life of the data directory.
    pub fn new(engine: Handle, secret: impl Into<Arc<str>>) -> Self {
        Self {
            engine: Some(engine),
            secret: secret.into(),
            links: None,
        }
    }

    /// Accepts links of messages that were signed with this key, while `are_on` is true.
    pub fn with_links(self, key: String, are_on: Arc<AtomicBool>) -> Self {
        let links = MessageLinks {
            key: key.into(),
            are_on,
        };
        Self {
            links: Some(links),
            ..self
        }
    }

    /// Whether links of messages are accepted now.
    pub(super) fn accepts_links(&self) -> bool {
        let links = self.links.as_ref();
        links.is_some_and(|links| links.are_on.load(Ordering::Relaxed))
    }

    /// Reads a link of a message. `None` if it is forged.
    pub(super) fn link(&self, text: &str) -> Option<MessageLink> {
        MessageLink::read(text, &self.links.as_ref()?.key)
    }

    /// Reads from the engine.
    pub(super) fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Engine, Timestamp) -> T + Send + 'static,
    ) -> Result<T, AnswerError> {
        let engine = self.engine()?;
        // Answers run on a blocking thread, so waiting for the engine holds no thread of the runtime.
        Ok(runtime::Handle::current().block_on(engine.read(look))?)
    }

    /// Changes the engine.
    pub(super) fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Engine, Timestamp) -> (T, Batch) + Send + 'static,
    ) -> Result<T, AnswerError> {
        let engine = self.engine()?;
        let changed = runtime::Handle::current().block_on(engine.change(change));
        changed.map_err(|error| match error {
            ChangeError::Engine(error) => error.into(),
            ChangeError::Store(_) => AnswerError::failed(error),
        })
    }

    fn engine(&self) -> Result<&Handle, AnswerError> {
        let missing =
            || AnswerError::Input("active alerts are known to a running server".to_owned());
        self.engine.as_ref().ok_or_else(missing)
    }

    /// Returns the fingerprint of an alert for a viewer who sees this part of its labels. A fingerprint is a hash of all
    /// labels: who knows the shown ones could try out users and job names.
    pub(super) fn shown_fingerprint(&self, shown: ShownLabels, fingerprint: &str) -> String {
        if shown.is_all() {
            fingerprint.to_owned()
        } else if self.secret.is_empty() {
            String::new()
        } else {
            keyed_hash(&self.secret, fingerprint)
        }
    }
}

impl fmt::Debug for AlertDesk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlertDesk").finish_non_exhaustive()
    }
}
