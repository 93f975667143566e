//! The page `/alerts`: active and recently resolved alerts. Messages link to an alert as
//! `/alerts#FINGERPRINT`.

mod forms;
pub mod history;
pub mod rules;

use crate::frame::{Content, Group, Page, PageError, Visit};
use minijinja::context;
use serde::Serialize;
use std::collections::BTreeSet;
use takt_model::UnixTime;
use takt_questions::{ActiveAlert, AlertsQuestion, EndedAlertView, EndedAlertsQuestion};

pub const PAGE: Page = Page::new("/alerts", include_str!("alerts.html"), show)
    .menu(Group::Now, "Alerts")
    .live()
    .submit(forms::submit);

fn show(visit: &Visit) -> Result<Content, PageError> {
    let answer = visit.ask(&AlertsQuestion {})?;
    let ended = visit.ask(&EndedAlertsQuestion {
        from: UnixTime::from(visit.now) - ENDED_SECONDS,
        limit: Some(ENDED_MOST),
        ..EndedAlertsQuestion::default()
    })?;
    let alerts: Vec<AlertView> = answer.alerts.into_iter().map(AlertView::of).collect();
    let values = context! {
        ended => ended_views(&alerts, ended),
        ended_days => ENDED_DAYS,
        silences => answer.silences,
        acts_as => visit.viewer.user(),
        alerts,
        more => answer.more,
    };
    Ok(Content::new("Alerts", values))
}

/// The active alerts: by severity, then newest first.
///
/// # Errors
/// If the engine does not answer.
pub fn firing(visit: &Visit) -> Result<Vec<AlertView>, PageError> {
    let answer = visit.ask(&AlertsQuestion {})?;
    Ok(answer.alerts.into_iter().map(AlertView::of).collect())
}

/// Days for which the page shows resolved alerts: on Monday, Friday night is still visible.
const ENDED_DAYS: i64 = 3;
const ENDED_SECONDS: i64 = ENDED_DAYS * 86_400;

/// Maximum number of resolved alerts on the page.
const ENDED_MOST: usize = 200;

/// Labels that are part of the title.
const TITLE: [&str; 2] = ["alertname", "severity"];

#[derive(Debug, Clone, Serialize)]
struct EndedView {
    /// Anchor of the alert; empty if a newer alert has the same fingerprint.
    anchor: String,
    #[serde(flatten)]
    alert: EndedAlertView,
}

/// An active alert.
#[derive(Debug, Clone, Serialize)]
pub struct AlertView {
    /// The summary annotation; empty if the reader may not see it.
    pub summary: String,
    /// Annotations without the summary.
    words: Vec<(String, String)>,
    #[serde(flatten)]
    pub alert: ActiveAlert,
}

impl AlertView {
    fn of(mut alert: ActiveAlert) -> Self {
        let summary = alert.annotations.remove("summary").unwrap_or_default();
        let words = alert.annotations.iter();
        let words = words.map(|(name, text)| (name.replace('_', " "), text.clone()));
        let words = words.collect();
        alert
            .labels
            .retain(|name, _| !TITLE.contains(&name.as_str()));
        Self {
            summary,
            words,
            alert,
        }
    }

    /// Whether a label of the alert has this value.
    pub fn names(&self, label: &str, value: &str) -> bool {
        self.alert.names(label, value)
    }
}

/// The resolved alerts. Only the newest alert with a fingerprint is its anchor.
fn ended_views(alerts: &[AlertView], ended: Vec<EndedAlertView>) -> Vec<EndedView> {
    let mut placed: BTreeSet<String> = alerts
        .iter()
        .map(|view| view.alert.fingerprint.clone())
        .collect();
    let view = |mut alert: EndedAlertView| {
        alert
            .labels
            .retain(|name, _| !TITLE.contains(&name.as_str()));
        let is_free = placed.insert(alert.fingerprint.clone());
        let anchor = if is_free {
            alert.fingerprint.clone()
        } else {
            String::new()
        };
        EndedView { anchor, alert }
    };
    ended.into_iter().map(view).collect()
}
