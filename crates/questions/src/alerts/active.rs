//! The alerts that fire now, and the silences.

use super::silences::{ShownSilence, shown_silence};
use super::{NO_FAULT, shown_name};
use crate::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use takt_access::{Need, ShownLabels, Viewer};
use takt_alerts::Engine;
use takt_alerts::alert::Alert;
use takt_alerts::fingerprint::Fingerprint;
use takt_alerts::notify::severity_rank;
use takt_alerts::routing::Suppressed;
use takt_alerts::routing::silence::SilenceState;
use takt_model::{Labels, Timestamp, UnixTime};
use takt_store::Database;

/// Maximum number of active alerts in an answer, which has the number of the others.
const MOST: usize = 500;

/// Asks for the active alerts: by severity, then newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertsQuestion {}

/// The active alerts and silences.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AlertsAnswer {
    /// Active alerts.
    pub alerts: Vec<ActiveAlert>,
    /// Number of active alerts that are left out.
    pub more: usize,
    /// Silences that are active or pending.
    pub silences: Vec<ShownSilence>,
}

/// An active alert.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ActiveAlert {
    /// Fingerprint of its labels, or a keyed hash of it; the anchor on the page.
    pub fingerprint: String,
    /// Name of the alert.
    pub name: String,
    /// Severity; may be empty.
    pub severity: String,
    /// Time since which its condition holds.
    pub since: UnixTime,
    /// Reason why no notification was sent; empty if one was.
    pub unsent: String,
    /// Fingerprint of the alert that inhibits it, if that is in the answer, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inhibited_by: Option<String>,
    /// Annotations that the viewer may see.
    pub annotations: BTreeMap<String, String>,
    /// Labels that the viewer may see.
    pub labels: BTreeMap<String, String>,
}

/// Why an alert that another one inhibits is not sent; the last reason of an alert.
const INHIBITED: &str = "inhibited by another alert";

impl ActiveAlert {
    /// Whether another alert inhibits it, which the answer may lack.
    pub fn is_consequence(&self) -> bool {
        self.inhibited_by.is_some() || self.unsent.ends_with(INHIBITED)
    }

    /// Whether a label of the alert has this value.
    pub fn names(&self, label: &str, value: &str) -> bool {
        self.labels.get(label).is_some_and(|known| known == value)
    }
}

impl Question for AlertsQuestion {
    const PATH: &'static str = "/api/takt/v1/alerts";
    const NEED: Need = Need::SignedIn;
    type Answer = AlertsAnswer;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        _database: &Database,
        config: &AnswerConfig,
    ) -> Result<AlertsAnswer, AnswerError> {
        let viewer = viewer.clone();
        let desk = config.alerts.clone();
        config.alerts.read(move |engine, now| {
            // The alerts are in the engine's task, which runs the closure: hidden labels are removed before it answers.
            let (mut answer, shown) = answer(engine, &viewer, now);
            let alerts = answer.alerts.iter().zip(shown);
            let known = alerts.map(|(alert, shown)| {
                let print = desk.shown_fingerprint(shown, &alert.fingerprint);
                (alert.fingerprint.clone(), print)
            });
            let known = known.collect();
            show_fingerprints(&mut answer.alerts, &known);
            answer
        })
    }
}

/// Replaces the fingerprints of alerts by those that the viewer may see.
fn show_fingerprints(alerts: &mut [ActiveAlert], known: &BTreeMap<String, String>) {
    let shown = |print: &String| known.get(print).filter(|shown| !shown.is_empty()).cloned();
    for alert in alerts {
        alert.inhibited_by = alert.inhibited_by.as_ref().and_then(shown);
        alert.fingerprint = shown(&alert.fingerprint).unwrap_or_default();
    }
}

/// Returns the answer, and what the viewer sees of each of its alerts.
fn answer(engine: &Engine, viewer: &Viewer, now: Timestamp) -> (AlertsAnswer, Vec<ShownLabels>) {
    let of = |labels: &Labels| ShownLabels::of(viewer, |name| labels.get(name));
    let suppressed = engine.router().suppressed(now);
    let mut firing: Vec<_> = engine
        .router()
        .alerts()
        .iter()
        .filter(|(_, alert)| !alert.is_resolved(now) && alert.label("severity") != NO_FAULT)
        .collect();
    firing.sort_by_key(|(_, alert)| (rank(alert), Reverse(alert.since())));
    let more = firing.len().saturating_sub(MOST);
    firing.truncate(MOST);

    // Who sees everything needs no look at the templates.
    let mut texts = if viewer.sees_all() {
        BTreeMap::new()
    } else {
        let listed = firing.iter().map(|(print, _)| *print).collect();
        engine.texts_without_hidden_labels(&listed, |labels, name| of(labels).shows(name))
    };
    // A posted alert has labels that its sender chose, so less of it is public.
    let shown = firing.iter().map(|(print, alert)| {
        let shown = of(&alert.labels);
        if engine.is_posted(*print) {
            shown.of_posted()
        } else {
            shown
        }
    });
    let shown: Vec<ShownLabels> = shown.collect();
    let alerts = firing.iter().zip(&shown).map(|((print, alert), shown)| {
        let annotations = if shown.is_all() {
            alert.annotations.clone()
        } else {
            texts
                .remove(print)
                .unwrap_or_default()
                .into_iter()
                .collect()
        };
        active(*print, alert, *shown, annotations, &suppressed(alert))
    });

    let silences = engine.router().silences.list(now);
    let silences = silences
        .into_iter()
        .filter(|one| one.state(now) != SilenceState::Expired)
        .map(|one| shown_silence(viewer, one));
    let answer = AlertsAnswer {
        alerts: alerts.collect(),
        more,
        silences: silences.collect(),
    };
    (answer, shown)
}

fn rank(alert: &Alert) -> usize {
    severity_rank(alert.labels.get("severity").unwrap_or_default())
}

fn active(
    fingerprint: Fingerprint,
    alert: &Alert,
    shown: ShownLabels,
    annotations: BTreeMap<String, String>,
    why: &Suppressed,
) -> ActiveAlert {
    // All reasons are named: with one of them gone, the others still suppress the message.
    let mut unsent = why.muted_by.clone();
    unsent.extend(why.silenced_by.first().map(|_| "silenced".to_owned()));
    unsent.extend(why.inhibited_by.map(|_| INHIBITED.to_owned()));
    let labels = alert.labels.iter().filter(|(name, _)| shown.shows(name));
    let labels: BTreeMap<String, String> = labels
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();

    ActiveAlert {
        fingerprint: fingerprint.to_string(),
        name: shown_name(alert.label("alertname"), &labels),
        severity: alert.label("severity").to_owned(),
        since: alert.since().whole_seconds(),
        unsent: unsent.join(", "),
        inhibited_by: why.inhibited_by.map(|print| print.to_string()),
        annotations,
        labels,
    }
}
