//! The page `/alerts`: what fires now, each alert where the link of its message leads, `/alerts#FINGERPRINT`.

use super::TEMPLATES;
use minijinja::context;
use serde::Serialize;
use std::cmp::Reverse;
use takt_alerts::Engine;
use takt_alerts::alert::Alert;
use takt_alerts::fingerprint::Fingerprint;
use takt_alerts::notify::{WORST_FIRST, instant};
use takt_alerts::routing::Suppressed;

/// More alerts than this are counted.
const MOST: usize = 500;

/// All that the page shows.
#[derive(Debug, Clone, Serialize)]
pub struct AlertsView {
    cluster: String,
    now: String,
    alerts: Vec<AlertView>,
    /// How many are not shown.
    more: usize,
}

#[derive(Debug, Clone, Serialize)]
struct AlertView {
    fingerprint: String,
    name: String,
    severity: String,
    summary: String,
    since: String,
    /// Why nobody is told of it; empty where somebody is.
    untold: String,
    /// Annotations but for the summary, and labels but for those that stand in the title.
    words: Vec<(String, String)>,
    labels: Vec<(String, String)>,
}

impl AlertsView {
    /// What the engine knows to fire at `now`: the worst first, then the newest.
    pub fn of(engine: &Engine, cluster: &str, now: takt_model::Timestamp) -> Self {
        let suppressed = engine.router().suppressed(now);
        let firing = engine.router().alerts().iter().filter(|(_, alert)| !alert.is_resolved(now));
        let mut firing: Vec<_> = firing.collect();
        let rank =
            |alert: &Alert| WORST_FIRST.iter().position(|severity| Some(*severity) == alert.labels.get("severity"));
        firing.sort_by_key(|(_, alert)| (rank(alert).unwrap_or(3), Reverse(alert.starts_at)));
        let more = firing.len().saturating_sub(MOST);
        let view = |(fingerprint, alert): &(_, &Alert)| AlertView::of(fingerprint, alert, &suppressed(alert));
        let alerts = firing.iter().take(MOST).map(view);
        Self { cluster: cluster.to_owned(), now: instant(now), alerts: alerts.collect(), more }
    }

    /// The page.
    ///
    /// # Errors
    /// Only where the template asks for something that its values have not.
    pub fn render(&self) -> Result<String, minijinja::Error> {
        TEMPLATES.get_template("alerts.html")?.render(context! { ..minijinja::Value::from_serialize(self) })
    }
}

impl AlertView {
    fn of(fingerprint: &Fingerprint, alert: &Alert, why: &Suppressed) -> Self {
        let label = |name: &str| alert.labels.get(name).unwrap_or_default().to_owned();
        let mut untold = why.muted_by.clone();
        untold.extend(why.silenced_by.first().map(|_| "silenced".to_owned()));
        untold.extend(why.inhibited_by.map(|_| "explained by another alert".to_owned()));
        let words = alert.annotations.iter().filter(|(name, _)| *name != "summary");
        let labels = alert.labels.iter().filter(|(name, _)| !["alertname", "severity"].contains(name));
        Self {
            fingerprint: fingerprint.to_string(),
            name: label("alertname"),
            severity: label("severity"),
            summary: alert.annotations.get("summary").cloned().unwrap_or_default(),
            since: instant(alert.starts_at),
            untold: untold.join(", "),
            words: words.map(|(name, text)| (name.replace('_', " "), text.clone())).collect(),
            labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        }
    }
}
