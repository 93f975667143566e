//! The page `/alerts`: active and recently resolved alerts. Messages link to an alert as
//! `/alerts#FINGERPRINT`.

use crate::frame::{Content, Group, Page, PageError, Visit};
use minijinja::Value;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use takt_access::{Owner, Viewer};
use takt_alerts::Engine;
use takt_alerts::alert::Alert;
use takt_alerts::fingerprint::Fingerprint;
use takt_alerts::notify::{WORST_FIRST, instant};
use takt_alerts::routing::Suppressed;
use takt_model::Timestamp;
use takt_store::EndedAlert;

pub const PAGE: Page = Page::new("/alerts", include_str!("alerts.html"), show)
    .menu(Group::Now, "Alerts")
    .live();

fn show(visit: &Visit) -> Result<Content, PageError> {
    let cluster = visit.site.cluster.clone();
    let viewer = visit.viewer.clone();
    let firing =
        visit.alerts(move |engine, now| AlertsView::firing(engine, &viewer, &cluster, now))?;
    let since = visit.now.as_millisecond() - ENDED_DAYS * 86_400_000;
    let ended = EndedAlert::since(visit.site.store.database(), since, ENDED_MOST)?;
    let view = firing.with_ended(&visit.viewer, ended);
    Ok(Content::new("Alerts", Value::from_serialize(view)))
}

/// Maximum number of active alerts on the page; the page shows the number of the others.
const MOST: usize = 500;

/// Days for which the page shows resolved alerts: on Monday, Friday night is still visible.
pub const ENDED_DAYS: i64 = 3;

/// Maximum number of resolved alerts on the page.
pub const ENDED_MOST: usize = 200;

/// Labels that are part of the title.
const TITLE: [&str; 2] = ["alertname", "severity"];

/// Labels that name a job or its owner.
const OF_JOB: [&str; 5] = ["user", "account", "jobid", "job_id", "command"];

/// The content of the page.
#[derive(Debug, Clone, Serialize)]
pub struct AlertsView {
    cluster: String,
    now: String,
    alerts: Vec<AlertView>,
    /// Number of active alerts that are not on the page.
    more: usize,
    ended: Vec<EndedView>,
    ended_days: i64,
}

#[derive(Debug, Clone, Serialize)]
struct EndedView {
    /// Anchor of the alert; empty if a newer alert has the same fingerprint.
    fingerprint: String,
    name: String,
    severity: String,
    from: String,
    to: String,
    lasted: String,
    labels: Vec<(String, String)>,
}

#[derive(Debug, Clone, Serialize)]
struct AlertView {
    fingerprint: String,
    name: String,
    severity: String,
    summary: String,
    since: String,
    /// Reason why no notification was sent; empty if one was.
    unsent: String,
    /// Annotations without the summary, and labels without those of the title.
    words: Vec<(String, String)>,
    labels: Vec<(String, String)>,
}

/// Severity of alerts that do not report a fault, such as Watchdog, which always fires.
const NO_FAULT: &str = "none";

impl AlertsView {
    /// Returns the alerts that fire at `now`: by severity, then newest first.
    pub fn firing(engine: &Engine, viewer: &Viewer, cluster: &str, now: Timestamp) -> Self {
        let suppressed = engine.router().suppressed(now);
        let firing =
            engine.router().alerts().iter().filter(|(_, alert)| {
                !alert.is_resolved(now) && alert.label("severity") != NO_FAULT
            });
        let mut firing: Vec<_> = firing.collect();
        let rank = |alert: &Alert| {
            WORST_FIRST
                .iter()
                .position(|severity| Some(*severity) == alert.labels.get("severity"))
        };
        firing.sort_by_key(|(_, alert)| (rank(alert).unwrap_or(3), Reverse(alert.starts_at)));
        let more = firing.len().saturating_sub(MOST);
        let view = |(fingerprint, alert): &(_, &Alert)| {
            let owner = Owner::new(alert.label("user"), alert.label("account"));
            let view = AlertView::of(fingerprint, alert, &suppressed(alert));
            if hides(viewer, owner) {
                view.without_job()
            } else {
                view
            }
        };
        let alerts = firing.iter().take(MOST).map(view);
        let alerts = alerts.collect();
        Self {
            cluster: cluster.to_owned(),
            now: instant(now),
            alerts,
            more,
            ended: Vec::new(),
            ended_days: ENDED_DAYS,
        }
    }

    /// Adds the resolved alerts.
    pub fn with_ended(mut self, viewer: &Viewer, ended: Vec<EndedAlert>) -> Self {
        let mut placed: BTreeSet<String> = self
            .alerts
            .iter()
            .map(|alert| alert.fingerprint.clone())
            .collect();
        self.ended = ended
            .into_iter()
            .map(|one| EndedView::of(viewer, one, |place| placed.insert(place.to_owned())))
            .collect();
        self
    }
}

impl EndedView {
    fn of(viewer: &Viewer, ended: EndedAlert, mut is_free: impl FnMut(&str) -> bool) -> Self {
        let [name, severity, fingerprint, labels] = ended.texts;
        let [from, to] = ended.instants_ms.map(Timestamp);
        let labels: BTreeMap<String, String> = serde_json::from_str(&labels).unwrap_or_default();
        let label = |name: &str| labels.get(name).map_or("", String::as_str);
        let is_hidden = hides(viewer, Owner::new(label("user"), label("account")));
        let lasted = jiff::SignedDuration::from_secs((to.0 - from.0 + 500) / 1000);
        Self {
            fingerprint: if is_free(&fingerprint) {
                fingerprint
            } else {
                String::new()
            },
            name,
            severity,
            from: instant(from),
            to: instant(to),
            lasted: format!("{lasted:#}"),
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

impl AlertView {
    /// Removes the job, its owner, and the texts that may name them.
    fn without_job(mut self) -> Self {
        self.labels
            .retain(|(name, _)| !OF_JOB.contains(&name.as_str()));
        self.words.clear();
        self.summary.clear();
        self
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
            since: instant(alert.starts_at),
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
