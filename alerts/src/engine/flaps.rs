//! Alerts that begin or end, and those that do so too often.

use super::{Batch, Engine, Raisers, resolved};
use crate::alert::Alert;
use crate::fingerprint::Fingerprint;
use crate::flapping::{FlapVerdict, Flapping};
use crate::group::GroupRun;
use crate::state::{RuleKey, State};
use std::mem;
use takt_model::{Labels, Timestamp};

/// The label of the alert that reports another alert as flapping.
pub const FLAPPING_LABEL: &str = "flapping";

impl Engine {
    /// Notes whether an alert fires by a rule: `fires` is the alert, or `None`. Does nothing where the alert fires as
    /// before: several rules may raise it, and it ends with the last of them.
    pub(super) fn changed(
        &mut self,
        rule: &RuleKey,
        fingerprint: Fingerprint,
        fires: Option<Alert>,
        at: Timestamp,
    ) -> Batch {
        let mut batch = Batch::default();
        let did_fire = self.firing.contains_key(&fingerprint);
        let is_other_firing = self.is_raised_besides(rule, fingerprint);

        if fires.is_some() {
            let raisers = self.firing.entry(fingerprint).or_default();
            raisers.insert(rule.clone());
        } else if is_other_firing {
            let raisers = self.firing.entry(fingerprint).or_default();
            raisers.remove(rule);
        } else {
            self.firing.remove(&fingerprint);
        }

        if did_fire == self.firing.contains_key(&fingerprint) {
            return batch;
        }
        if fires.is_none() {
            // The next episode looks the GPU up again: its index may change with a reboot.
            self.gpus.forget(fingerprint);
        }

        let flapping = self.flapping.entry(fingerprint).or_default();
        let verdict = flapping.change(fires.is_some(), at);
        batch.flapping.push((fingerprint, Some(flapping.clone())));

        let ended = || {
            self.router
                .alerts()
                .get(fingerprint)
                .filter(|alert| !alert.is_resolved(at))
                .cloned()
        };

        match (verdict, fires) {
            (FlapVerdict::Send, Some(alert)) => {
                batch.alerts.push(self.router.take(alert, at).clone())
            }
            (FlapVerdict::Send, None) => {
                if let Some(alert) = ended() {
                    batch
                        .alerts
                        .push(self.router.take(resolved(alert, at), at).clone());
                }
            }
            // The alert with the label `flapping` takes the place of the alert itself.
            (FlapVerdict::SendFlapping, fires) => {
                if let Some(known) = fires.or_else(ended) {
                    let unsteady = unsteady(&known, at);
                    batch.alerts.push(self.router.take(unsteady, at).clone());
                    // The channel knows the alert as firing, so it gets its end beside the report.
                    if self
                        .router
                        .alerts()
                        .get(fingerprint)
                        .is_some_and(|alert| !alert.is_resolved(at))
                    {
                        batch
                            .alerts
                            .push(self.router.take(resolved(known, at), at).clone());
                    }
                }
            }
            (FlapVerdict::Hold, _) => {}
        }
        batch
    }

    /// Whether an alert fires by another rule than this one.
    pub(super) fn is_raised_besides(&self, rule: &RuleKey, fingerprint: Fingerprint) -> bool {
        let mut raisers = self.firing.get(&fingerprint).into_iter().flatten();
        raisers.any(|raiser| raiser != rule)
    }

    /// Ends the flapping of alerts that no longer change, and forgets old changes.
    pub(super) fn settle(&mut self, now: Timestamp) -> Batch {
        let mut batch = Batch::default();
        let mut restless = mem::take(&mut self.flapping);

        // An hour without a change ends the flapping; changes that are older count no more.
        restless.retain(|fingerprint, flapping| {
            let was_flapping = flapping.is_flapping();
            if let Some(fires) = flapping.settled(now) {
                batch.alerts.extend(self.rested(*fingerprint, fires, now));
            }

            // Only what has changed is committed: this runs every second.
            let keep = !flapping.is_idle();
            if !keep || was_flapping != flapping.is_flapping() {
                batch
                    .flapping
                    .push((*fingerprint, keep.then(|| flapping.clone())));
            }
            keep
        });

        self.flapping = restless;
        batch
    }

    /// The alerts to send when one has stopped flapping: the end of the flapping, and the alert if
    /// it fires.
    fn rested(&mut self, fingerprint: Fingerprint, fires: bool, now: Timestamp) -> Vec<Alert> {
        let mut alerts: Vec<_> = self.end_report(fingerprint, now).into_iter().collect();

        // It still fires: the channel has had no message about the alert itself since the flapping began.
        if fires && let Some(alert) = self.raised(fingerprint, now) {
            alerts.push(self.router.take(alert, now).clone());
        }
        alerts
    }

    /// Ends the alert that reports this one as flapping, if there is one.
    fn end_report(&mut self, fingerprint: Fingerprint, now: Timestamp) -> Option<Alert> {
        // The report has labels of its own, so it is found by the rest of its labels.
        let alerts = self.router.alerts().iter().map(|(_, alert)| alert);
        let report = alerts
            .filter(|alert| !alert.is_resolved(now))
            .find(|alert| reported(&alert.labels) == Some(fingerprint))
            .cloned()?;

        Some(self.router.take(resolved(report, now), now).clone())
    }

    /// The alert as its rule has it now, beginning now; `None` if no rule has it firing.
    fn raised(&self, fingerprint: Fingerprint, now: Timestamp) -> Option<Alert> {
        let mut of_samples = self.groups.iter().flat_map(GroupRun::instances);
        let of_samples = of_samples.find_map(|(_, all)| {
            let instance = all.get(fingerprint)?;
            let is_firing = instance.state == State::Firing;
            is_firing.then_some((&instance.labels, &instance.annotations))
        });

        let mut of_events = self.events.iter();
        let of_events = || {
            of_events.find_map(|(_, print, instance)| {
                let is_firing = print == fingerprint && instance.fired_at.is_some();
                is_firing.then_some((&instance.labels, &instance.annotations))
            })
        };

        let (labels, annotations) = of_samples.or_else(of_events)?;
        Some(self.alert(labels, annotations, now, now))
    }

    /// Forgets the changes of an alert that somebody closes, so that its next beginning is sent.
    pub(super) fn forget_flapping(&mut self, fingerprint: Fingerprint, now: Timestamp) -> Batch {
        let Some(flapping) = self.flapping.remove(&fingerprint) else {
            return Batch::default();
        };
        let ended = flapping
            .is_flapping()
            .then(|| self.end_report(fingerprint, now));

        Batch {
            alerts: ended.flatten().into_iter().collect(),
            flapping: vec![(fingerprint, None)],
            ..Batch::default()
        }
    }

    /// Whether a stored alert is still active: its rule has it firing, or it flaps.
    pub(super) fn is_wanted(&self, alert: &Alert, wanted: &Raisers) -> bool {
        let is_report = |fingerprint| {
            let flapping = self.flapping.get(&fingerprint);
            flapping.is_some_and(Flapping::is_flapping)
        };
        wanted.contains_key(&alert.fingerprint()) || reported(&alert.labels).is_some_and(is_report)
    }
}

/// The alert that an alert with these labels reports as flapping, if it is such a report: rules may set the label, too.
pub(super) fn reported(labels: &Labels) -> Option<Fingerprint> {
    let mut labels = labels.clone();
    labels
        .remove(FLAPPING_LABEL)
        .map(|_| Fingerprint::of(&labels))
}

/// The alert that reports another one as flapping.
fn unsteady(alert: &Alert, at: Timestamp) -> Alert {
    let mut unsteady = alert.clone();

    unsteady.labels.set(FLAPPING_LABEL, "true");
    let words = "flapping: more than 4 changes within an hour; no message about further changes";
    unsteady
        .annotations
        .insert(FLAPPING_LABEL.to_owned(), words.to_owned());

    // The flapping begins now, not when the alert fired for the first time.
    (unsteady.starts_at, unsteady.updated_at, unsteady.ends_at) = (at, at, None);
    unsteady.began_at = None;
    unsteady
}
