//! Closing alerts by hand: an end condition that never comes true must not keep an alert open for
//! ever.

use super::flaps::reported;
use super::own::OWN;
use super::{Batch, Engine, resolved};
use crate::fingerprint::Fingerprint;
use crate::routing::matcher::Matchers;
use crate::state::{Closing, Reason, RuleKey, State, Transition};
use std::collections::BTreeMap;
use takt_model::{Labels, Timestamp};

/// The annotation of a closed alert: who closed it, and why.
pub const CLOSED: &str = "closed";

/// The rule that the history names for alerts that were posted over the API.
const POSTED: &str = "posted";

impl Engine {
    /// Closes the active alerts whose labels all matchers accept, and returns their labels. Each
    /// gets a last message to the channels that know it.
    ///
    /// An alert of an event rule fires again with the next event. An alert of a rule over samples
    /// fires again once its condition has been false in between. A posted alert fires again when it
    /// is posted again. With the alert that reports another one as flapping, that one is closed, too.
    pub fn close(
        &mut self,
        matchers: &Matchers,
        closing: &Closing,
        now: Timestamp,
    ) -> (Vec<Labels>, Batch) {
        let active: BTreeMap<Fingerprint, Labels> = self
            .router
            .alerts()
            .iter()
            .filter(|(_, alert)| !alert.is_resolved(now) && matchers.accept(&alert.labels))
            .map(|(fingerprint, alert)| (fingerprint, alert.labels.clone()))
            .collect();

        let mut batch = Batch::default();
        for (fingerprint, labels) in &active {
            batch = batch.then(self.close_one(*fingerprint, labels, closing, now));
        }

        // Who was notified learns at once that it is over, and nobody gets the beginning any more.
        let is_closed = |fingerprint: Fingerprint| active.contains_key(&fingerprint);
        self.router
            .flush_by(&|alert| is_closed(alert.fingerprint()), now);
        batch.outbox.extend(self.outbox.age(&is_closed, now));
        (active.into_values().collect(), batch)
    }

    fn close_one(
        &mut self,
        fingerprint: Fingerprint,
        labels: &Labels,
        closing: &Closing,
        now: Timestamp,
    ) -> Batch {
        // A report of flapping stands for the alert that flaps: both are over.
        let is_flapping = |one: &Fingerprint| self.flapping.contains_key(one);
        let raised = reported(labels).filter(is_flapping).unwrap_or(fingerprint);
        let mut batch = self.forget_flapping(raised, now);
        batch = batch.then(self.close_in_rules(raised, closing, now));

        // The end of one of Takt's own alerts belongs to its beginning in the history.
        let is_own = self.own.remove(&fingerprint).is_some();
        let rule = if is_own { OWN } else { POSTED };

        // No rule has this alert: it was posted, or it flaps and does not fire now.
        if batch.transitions.is_empty() {
            batch.transitions.push(Transition {
                rule: RuleKey(rule.into()),
                fingerprint,
                labels: labels.clone(),
                from: State::Firing,
                to: State::Inactive,
                at: now,
                value: 0.0,
                reason: Reason::Closed,
                closing: Some(closing.clone()),
            });
        }

        if let Some(alert) = self.router.alerts().get(fingerprint).cloned() {
            // An alert that was posted still fires here.
            let mut closed = resolved(alert, now);
            let words = format!("by {}: {}", closing.by, closing.comment);
            closed.annotations.insert(CLOSED.to_owned(), words);
            batch.alerts.push(self.router.take(closed, now).clone());
        }

        self.posted.forget(fingerprint);
        batch
    }

    fn close_in_rules(
        &mut self,
        fingerprint: Fingerprint,
        closing: &Closing,
        now: Timestamp,
    ) -> Batch {
        let change = self.events.close(fingerprint, closing, now);
        let mut batch = self.event_changed(change, now);

        // Several rules may raise the alert, and one of them would keep it.
        let mut closed = Vec::new();
        for group in &mut self.groups {
            while let Some(one) = group.close(fingerprint, closing, now) {
                closed.push(one);
            }
        }

        for (instance, transition) in closed {
            batch = batch.then(self.changed(&transition.rule, fingerprint, None, now));
            batch.instances.push((transition.rule.clone(), instance));
            batch.transitions.push(transition);
        }
        batch
    }
}
