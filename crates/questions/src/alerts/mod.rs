//! Alerts and silences, without what the viewer may not see of other users.
//!
//! Only this module reads labels and texts of alerts for people: [`ShownLabels`] decides, for active and resolved alerts,
//! silences and the timeline alike.

mod active;
mod desk;
mod history;
mod link;
mod order;
mod rules;
mod silences;

pub use active::{ActiveAlert, AlertsAnswer, AlertsQuestion};
pub use desk::AlertDesk;
pub use history::{EndedAlertView, EndedAlertsQuestion};
pub use link::{AcknowledgeByLink, LinkState, LinkedAlert, LinkedAlerts, LinkedAlertsQuestion};
pub use order::AlertOrder;
pub use rules::{RuleLine, RulesQuestion};
pub use silences::ShownSilence;

use std::collections::BTreeMap;
use takt_access::{ShownLabels, Viewer};
use takt_alerts::alert::alert_name;
use takt_model::Labels;

/// Severity of alerts that do not report a fault, such as Watchdog, which always fires.
pub(super) const NO_FAULT: &str = "none";

/// Name of an alert for people, and of its labels those that they may see. Alerts of other programs may come without a
/// name, and go by these labels.
pub(super) fn shown_name(name: &str, shown: &BTreeMap<String, String>) -> String {
    if !name.trim().is_empty() {
        return name.to_owned();
    }

    let labels: Labels = shown.iter().collect();
    if labels.is_empty() {
        "(no alertname)".to_owned()
    } else {
        alert_name(&labels).into_owned()
    }
}

/// Labels and fingerprint of a stored alert, as a viewer sees them.
pub(super) struct ShownAlert {
    pub labels: BTreeMap<String, String>,
    /// The fingerprint; for viewers who do not see all labels, a keyed hash of it.
    pub fingerprint: String,
}

impl ShownAlert {
    /// Reads an alert's labels, which are stored as JSON.
    pub fn of(viewer: &Viewer, desk: &AlertDesk, labels: &str, fingerprint: &str) -> Self {
        let mut labels: BTreeMap<String, String> = serde_json::from_str(labels).unwrap_or_default();
        let shown = shown_labels(viewer, &labels);
        labels.retain(|name, _| shown.shows(name));
        Self {
            labels,
            fingerprint: desk.shown_fingerprint(shown, fingerprint),
        }
    }
}

/// Returns what the viewer sees of an alert or event with these labels.
pub(super) fn shown_labels(viewer: &Viewer, labels: &BTreeMap<String, String>) -> ShownLabels {
    ShownLabels::of(viewer, |name| labels.get(name).map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_without_a_name_goes_by_the_labels_that_are_shown() {
        let shown = [("node".to_owned(), "g01".to_owned())].into();
        assert_eq!(shown_name("", &shown), r#"{node="g01"}"#);
        assert_eq!(shown_name(" ", &BTreeMap::new()), "(no alertname)");
        assert_eq!(shown_name("GpuFellOffBus", &shown), "GpuFellOffBus");
    }
}
