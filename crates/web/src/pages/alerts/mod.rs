//! The page `/alerts`: incidents, which group the active alerts, and recently resolved alerts. Messages link to an alert as
//! `/alerts#FINGERPRINT`.

mod forms;
pub mod history;
mod incidents;
pub mod rules;
mod troubles;

pub use incidents::Incident;
pub use troubles::{lost_gpus, troubles, unasked};

use crate::frame::{Content, Group, Page, PageError, Visit};
use minijinja::context;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use takt_access::{Need, Role};
use takt_model::{UnixTime, words};
use takt_questions::{
    ActiveAlert, AlertsQuestion, ClusterAnswer, ClusterQuestion, EndedAlertView,
    EndedAlertsQuestion, RulesQuestion,
};

pub const PAGE: Page = Page::new("/alerts", include_str!("alerts.html"), show)
    .menu(Group::Now, "Alerts")
    // The fields of its forms: who signs in to act finds them filled.
    .filters(&["do", "fingerprint", "for", "by", "comment", "matchers"])
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

    let count = alerts.len() + answer.more;
    let ended = ended_views(&alerts, ended);

    let cluster = visit.ask(&ClusterQuestion::default())?;
    let incidents = incidents::incidents(alerts, &cluster);
    let may_act = visit.viewer.check(Need::Change(Role::Support)).is_ok();

    // The owner of a job acts on it; operators find it below what is theirs.
    let (of_owners, of_operators): (Vec<_>, Vec<_>) = incidents
        .into_iter()
        .map(|incident| IncidentView::of(incident, visit))
        .partition(|view| view.incident.is_of_owner);
    // Without incidents, the page says whether anything watches at all.
    let has_rules = !of_operators.is_empty() || !visit.ask(&RulesQuestion {})?.is_empty();
    let mut unnamed = lost_gpus(&cluster, &of_operators);
    unnamed.extend(troubles(&cluster, &of_operators));

    let critical = of_operators
        .iter()
        .filter(|view| view.incident.severity == "critical")
        .count();

    // A form that was filled before signing in is filled again.
    let draft = ["do", "for", "by", "comment", "matchers"]
        .into_iter()
        .filter_map(|name| Some((name, visit.get(name)?)))
        .collect::<BTreeMap<_, _>>();
    let values = context! {
        ended,
        ended_days => ENDED_DAYS,
        silences => answer.silences,
        acts_as => visit.viewer.user(),
        may_act,
        // A person whose role is too low would sign in for nothing.
        offers_sign_in => !may_act && visit.viewer.user().is_none(),
        draft,
        incidents => of_operators,
        of_owners,
        troubles => unnamed,
        has_rules,
        unasked => unasked(visit),
        critical,
        count,
        more => answer.more,
    };
    Ok(Content::new("Alerts", values))
}

/// An incident as the page shows it.
#[derive(Debug, Clone, Serialize)]
pub struct IncidentView {
    /// The incident.
    #[serde(flatten)]
    pub incident: Incident,
    /// Time since its first alert, in words.
    age: String,
    /// Whether its form is open, because its sender has just signed in.
    is_open: bool,
}

impl IncidentView {
    /// The incident at the time of a visit.
    pub fn of(incident: Incident, visit: &Visit) -> Self {
        // Full minutes, so that the section of the incident keeps its version for a minute.
        let seconds = UnixTime::from(visit.now).round_down(60) - incident.since;
        let age = if seconds < 60 {
            "less than a minute".to_owned()
        } else {
            words::duration(seconds as f64)
        };
        let is_open = visit.all("fingerprint").any(|print| incident.has(print));
        Self {
            incident,
            age,
            is_open,
        }
    }
}

/// The incidents of the active alerts: the worst first.
///
/// # Errors
/// If the engine does not answer.
pub fn active_incidents(
    visit: &Visit,
    cluster: &ClusterAnswer,
) -> Result<Vec<IncidentView>, PageError> {
    let found = incidents::incidents(firing(visit)?, cluster);
    let views = found.into_iter().map(|one| IncidentView::of(one, visit));
    Ok(views.collect())
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
        // `kernel_lines` becomes `kernel lines`.
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
        // Two elements with one id would lead a link to the older one.
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
