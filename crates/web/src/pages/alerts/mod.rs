//! The page `/alerts`: active and recently resolved alerts. Messages link to an alert as
//! `/alerts#FINGERPRINT`.

mod forms;
pub mod history;
pub mod rules;

use crate::frame::{Content, Group, Page, PageError, Visit};
use minijinja::{Value, context};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use takt_access::{Owner, Viewer};
use takt_alerts::Engine;
use takt_alerts::alert::Alert;
use takt_alerts::fingerprint::Fingerprint;
use takt_alerts::notify::WORST_FIRST;
use takt_alerts::routing::Suppressed;
use takt_alerts::routing::silence::{Silence, SilenceState};
use takt_model::{Timestamp, UnixTime};
use takt_store::EndedAlert;

pub const PAGE: Page = Page::new("/alerts", include_str!("alerts.html"), show)
    .menu(Group::Now, "Alerts")
    .live()
    .submit(forms::submit);

fn show(visit: &Visit) -> Result<Content, PageError> {
    let viewer = visit.viewer.clone();
    let (alerts, more, silences) = visit.alerts(move |engine, now| {
        let (alerts, more) = active(engine, &viewer, now);
        let silences = engine
            .router()
            .silences
            .list(now)
            .into_iter()
            .filter(|one| one.state(now) != SilenceState::Expired);
        (alerts, more, silences.cloned().collect::<Vec<_>>())
    })?;
    let since = Timestamp::from(visit.now).minus(ENDED);
    let ended = EndedAlert::since(visit.site.store.database(), since, ENDED_MOST)?;
    let values = context! {
        ended => ended_views(&visit.viewer, &alerts, ended),
        ended_days => ENDED_DAYS,
        silences => silences.iter().map(silence).collect::<Vec<_>>(),
        alerts,
        more,
    };
    Ok(Content::new("Alerts", values))
}

fn silence(silence: &Silence) -> Value {
    let matchers: Vec<String> = silence.matchers.iter().map(ToString::to_string).collect();
    context! {
        id => silence.id,
        matchers => matchers.join(" or "),
        by => silence.created_by,
        comment => silence.comment,
        from => silence.starts_at.whole_seconds(),
        to => silence.ends_at.whole_seconds(),
    }
}

/// The active alerts: by severity, then newest first.
///
/// # Errors
/// If the engine does not answer.
pub fn firing(visit: &Visit) -> Result<Vec<AlertView>, PageError> {
    let viewer = visit.viewer.clone();
    let (alerts, _) = visit.alerts(move |engine, now| active(engine, &viewer, now))?;
    Ok(alerts)
}

/// Maximum number of active alerts on the page; the page shows the number of the others.
const MOST: usize = 500;

/// Days for which the page shows resolved alerts: on Monday, Friday night is still visible.
const ENDED_DAYS: u64 = 3;
const ENDED: Duration = Duration::from_secs(ENDED_DAYS * 86_400);

/// Maximum number of resolved alerts on the page.
const ENDED_MOST: usize = 200;

/// Labels that name a job or its owner.
const OF_JOB: [&str; 5] = ["user", "account", "jobid", "job_id", "command"];

/// Labels that are part of the title.
const TITLE: [&str; 2] = ["alertname", "severity"];

#[derive(Debug, Clone, Serialize)]
struct EndedView {
    /// Anchor of the alert; empty if a newer alert has the same fingerprint.
    fingerprint: String,
    name: String,
    severity: String,
    from: UnixTime,
    to: UnixTime,
    lasted: f64,
    labels: Vec<(String, String)>,
}

/// An active alert.
#[derive(Debug, Clone, Serialize)]
pub struct AlertView {
    /// Fingerprint of its labels; the anchor on the page.
    pub fingerprint: String,
    /// Name of the alert.
    pub name: String,
    /// Severity; may be empty.
    pub severity: String,
    /// The summary annotation.
    pub summary: String,
    /// Begin.
    since: UnixTime,
    /// Reason why no notification was sent; empty if one was.
    unsent: String,
    /// Annotations without the summary, and labels without those of the title.
    words: Vec<(String, String)>,
    labels: Vec<(String, String)>,
}

/// Severity of alerts that do not report a fault, such as Watchdog, which always fires.
const NO_FAULT: &str = "none";

/// Returns the alerts that fire at `now`, at most [`MOST`], and the number of the others.
fn active(engine: &Engine, viewer: &Viewer, now: Timestamp) -> (Vec<AlertView>, usize) {
    let suppressed = engine.router().suppressed(now);
    let mut firing: Vec<_> = engine
        .router()
        .alerts()
        .iter()
        .filter(|(_, alert)| !alert.is_resolved(now) && alert.label("severity") != NO_FAULT)
        .collect();
    let rank = |alert: &Alert| {
        WORST_FIRST
            .iter()
            .position(|severity| Some(*severity) == alert.labels.get("severity"))
    };
    firing.sort_by_key(|(_, alert)| (rank(alert).unwrap_or(3), Reverse(alert.starts_at)));
    let more = firing.len().saturating_sub(MOST);
    let alerts = firing.iter().take(MOST).map(|(fingerprint, alert)| {
        let view = AlertView::of(fingerprint, alert, &suppressed(alert));
        let owner = Owner::new(alert.label("user"), alert.label("account"));
        if hides(viewer, owner) {
            view.without_job()
        } else {
            view
        }
    });
    (alerts.collect(), more)
}

/// The resolved alerts. Only the newest alert with a fingerprint is its anchor.
fn ended_views(viewer: &Viewer, alerts: &[AlertView], ended: Vec<EndedAlert>) -> Vec<EndedView> {
    let mut placed: BTreeSet<String> = alerts
        .iter()
        .map(|alert| alert.fingerprint.clone())
        .collect();
    ended
        .into_iter()
        .map(|one| EndedView::of(viewer, one, |place| placed.insert(place.to_owned())))
        .collect()
}

impl EndedView {
    fn of(viewer: &Viewer, ended: EndedAlert, mut is_free: impl FnMut(&str) -> bool) -> Self {
        let [name, severity, fingerprint, labels] = ended.texts;
        let [from, to] = ended.period;
        let labels: BTreeMap<String, String> = serde_json::from_str(&labels).unwrap_or_default();
        let is_hidden = is_hidden(viewer, &labels);
        Self {
            fingerprint: if is_free(&fingerprint) {
                fingerprint
            } else {
                String::new()
            },
            name,
            severity,
            from: from.whole_seconds(),
            to: to.whole_seconds(),
            lasted: (to - from) as f64 / 1e3,
            labels: labels
                .into_iter()
                .filter(|(name, _)| !TITLE.contains(&name.as_str()))
                .filter(|(name, _)| !is_hidden || !OF_JOB.contains(&name.as_str()))
                .collect(),
        }
    }
}

/// Returns whether the viewer may not know the job or the user of an alert.
fn hides(viewer: &Viewer, owner: Owner<'_>) -> bool {
    !owner.user.is_empty() && !viewer.sees_job(owner)
}

/// Returns whether the viewer may not know the job or the user of an alert with these labels.
fn is_hidden(viewer: &Viewer, labels: &BTreeMap<String, String>) -> bool {
    let label = |name: &str| labels.get(name).map_or("", String::as_str);
    hides(viewer, Owner::new(label("user"), label("account")))
}

impl AlertView {
    /// Removes the job, its owner, and the texts that may name them.
    fn without_job(mut self) -> Self {
        self.labels
            .retain(|(name, _)| !OF_JOB.contains(&name.as_str()));
        self.words.clear();
        self.summary.clear();
        self
    }

    /// Whether a label of the alert has this value.
    pub fn names(&self, label: &str, value: &str) -> bool {
        self.labels
            .iter()
            .any(|(name, known)| name == label && known == value)
    }

    fn of(fingerprint: &Fingerprint, alert: &Alert, why: &Suppressed) -> Self {
        let label = |name: &str| alert.labels.get(name).unwrap_or_default().to_owned();
        let mut unsent = why.muted_by.clone();
        unsent.extend(why.silenced_by.first().map(|_| "silenced".to_owned()));
        unsent.extend(
            why.inhibited_by
                .map(|_| "inhibited by another alert".to_owned()),
        );
        let words = alert
            .annotations
            .iter()
            .filter(|(name, _)| *name != "summary");
        let labels = alert
            .labels
            .iter()
            .filter(|(name, _)| !TITLE.contains(name));
        Self {
            fingerprint: fingerprint.to_string(),
            name: label("alertname"),
            severity: label("severity"),
            summary: alert
                .annotations
                .get("summary")
                .cloned()
                .unwrap_or_default(),
            since: alert.starts_at.whole_seconds(),
            unsent: unsent.join(", "),
            words: words
                .map(|(name, text)| (name.replace('_', " "), text.clone()))
                .collect(),
            labels: labels
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        }
    }
}
