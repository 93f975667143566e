//! Alerts of the server about itself. They are renewed while they hold, and the history has their
//! beginnings and ends, as those of other alerts.

use super::{Batch, Engine};
use crate::alert::{Alert, Posted, PostedError};
use crate::rules::ALERT_NAME;
use crate::state::{Reason, RuleKey, State, Transition};
use std::mem;
use takt_model::Timestamp;

/// The rule that the history names for these alerts.
pub(super) const OWN: &str = "takt";

/// Whether Takt posts this alert about itself.
pub(super) fn is_own(alert: &Alert) -> bool {
    alert.label("scope") == "takt" && alert.label(ALERT_NAME).starts_with("Takt")
}

impl Engine {
    /// Takes alerts of the server itself, without bounds. Those that cannot be alerts are returned as
    /// errors.
    pub fn post(&mut self, posted: Vec<Posted>, now: Timestamp) -> (Batch, Vec<PostedError>) {
        let mut batch = Batch::default();
        let mut errors = Vec::new();
        for posted in posted {
            let alert = match posted.into_alert(now, self.router.config().resolve_timeout) {
                Ok(alert) => self.router.take(alert, now).clone(),
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };

            if is_own(&alert) && !alert.is_resolved(now) {
                let begun = self
                    .own
                    .insert(alert.fingerprint(), alert.clone())
                    .is_none();
                let begin = begun.then(|| changed(&alert, State::Firing, alert.starts_at));
                batch.transitions.extend(begin);
            }
            batch.alerts.push(alert);
        }
        (batch.then(self.end_own(now)), errors)
    }

    /// The active alerts of the server itself.
    pub fn own_alerts(&self) -> impl Iterator<Item = &Alert> {
        self.own.values()
    }

    /// Notes the ends of the server's own alerts for the history.
    pub(super) fn end_own(&mut self, now: Timestamp) -> Batch {
        let mut batch = Batch::default();
        for (fingerprint, alert) in mem::take(&mut self.own) {
            let alert = self.router.alerts().get(fingerprint).unwrap_or(&alert);
            match alert.ends_at {
                Some(end) if end <= now => {
                    batch.transitions.push(changed(alert, State::Inactive, end));
                }
                _ => drop(self.own.insert(fingerprint, alert.clone())),
            }
        }
        batch
    }
}

/// The beginning or the end of one of the server's own alerts.
fn changed(alert: &Alert, to: State, at: Timestamp) -> Transition {
    let (from, reason) = match to {
        State::Firing => (State::Inactive, Reason::Breached),
        _ => (State::Firing, Reason::Cleared),
    };
    Transition {
        rule: RuleKey(OWN.into()),
        fingerprint: alert.fingerprint(),
        labels: alert.labels.clone(),
        from,
        to,
        at,
        value: 0.0,
        reason,
        closing: None,
    }
}
