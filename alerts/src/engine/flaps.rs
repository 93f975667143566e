//! Alerts that begin or end, and those that do so too often.

use super::{Batch, Engine, resolved};
use crate::alert::Alert;
use crate::fingerprint::Fingerprint;
use crate::flapping::{FlapVerdict, Flapping};
use std::collections::BTreeSet;
use std::mem;
use takt_model::Timestamp;

/// The label of the alert that reports another alert as flapping.
pub const FLAPPING_LABEL: &str = "flapping";

impl Engine {
    /// Notes whether an alert fires: `fires` is the alert, or `None`. Does nothing where that is as
    /// before.
    pub(super) fn changed(
        &mut self,
        fingerprint: Fingerprint,
        fires: Option<Alert>,
        at: Timestamp,
    ) -> Batch {
        let mut batch = Batch::default();
        let did_fire = self.firing.contains(&fingerprint);
        if did_fire == fires.is_some() {
            return batch;
        }

        if fires.is_some() {
            self.firing.insert(fingerprint);
        } else {
            self.firing.remove(&fingerprint);
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
        let is_about = |alert: &Alert| {
            let mut labels = alert.labels.clone();
            labels.remove(FLAPPING_LABEL).is_some() && Fingerprint::of(&labels) == fingerprint
        };
        // The alert that reports the flapping has labels of its own, so it is found by the rest of its labels.
        let unsteady = self
            .router
            .alerts()
            .iter()
            .map(|(_, alert)| alert)
            .find(|alert| is_about(alert))
            .cloned();
        let Some(unsteady) = unsteady else {
            return Vec::new();
        };
        let mut alerts = vec![
            self.router
                .take(resolved(unsteady.clone(), now), now)
                .clone(),
        ];

        // It still fires: the channel has had no message about the alert itself since the flapping began.
        if fires {
            let mut steady = unsteady;
            steady.labels.remove(FLAPPING_LABEL);
            steady.annotations.remove(FLAPPING_LABEL);
            (steady.starts_at, steady.updated_at, steady.ends_at) = (now, now, None);
            steady.began_at = None;
            alerts.push(self.router.take(steady, now).clone());
        }
        alerts
    }

    /// Whether a stored alert is still active: its rule has it firing, or it flaps.
    pub(super) fn is_wanted(&self, alert: &Alert, wanted: &BTreeSet<Fingerprint>) -> bool {
        let mut labels = alert.labels.clone();
        let is_flapping = labels.remove(FLAPPING_LABEL).is_some();
        let fingerprint = Fingerprint::of(&labels);
        if !is_flapping {
            return wanted.contains(&fingerprint);
        }
        self.flapping
            .get(&fingerprint)
            .is_some_and(Flapping::is_flapping)
    }
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
