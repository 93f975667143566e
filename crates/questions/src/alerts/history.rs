//! Alerts that ended.

use super::{NO_FAULT, ShownAlert, shown_name};
use crate::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use takt_access::{Need, Viewer};
use takt_model::{Timestamp, UnixTime};
use takt_store::{Database, EndedAlert};

/// Maximum number of episodes in an answer.
const MOST: usize = 10_000;

/// Asks for the alerts that ended and reported a fault, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EndedAlertsQuestion {
    /// Only alerts that ended at this time or later.
    #[serde(deserialize_with = "crate::period::read_instant")]
    pub from: UnixTime,
    /// Only alerts that began before this time; `None`: until now.
    #[serde(deserialize_with = "crate::period::read_instant_if_set")]
    pub to: Option<UnixTime>,
    /// Only this alert.
    pub name: Option<String>,
    /// Only alerts of this node.
    pub node: Option<String>,
    /// Only alerts of this severity.
    pub severity: Option<String>,
    /// Maximum number of alerts that are read; at most 10,000.
    pub limit: Option<usize>,
}

/// An alert that ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedAlertView {
    /// Fingerprint of its labels, or a keyed hash of it.
    pub fingerprint: String,
    /// Name of the alert.
    pub name: String,
    /// Severity; may be empty.
    pub severity: String,
    /// Begin.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
    /// Seconds from begin to end.
    pub lasted_seconds: i64,
    /// Labels that the viewer may see.
    pub labels: BTreeMap<String, String>,
}

impl Question for EndedAlertsQuestion {
    const PATH: &'static str = "/api/takt/v1/alerts/history";
    const NEED: Need = Need::SignedIn;
    type Answer = Vec<EndedAlertView>;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<Vec<EndedAlertView>, AnswerError> {
        // The limit holds for the rows that are read; alerts without a fault are left out behind it.
        let most = self.limit.unwrap_or(MOST).min(MOST);
        let ended = EndedAlert::since(database, self.from.into(), most)?;
        Ok(ended
            .into_iter()
            .map(|one| view(viewer, config, one))
            .filter(|one| self.wants(one))
            .collect())
    }
}

impl EndedAlertsQuestion {
    fn wants(&self, alert: &EndedAlertView) -> bool {
        let is = |wanted: &Option<String>, value: Option<&str>| {
            wanted.is_none() || wanted.as_deref() == value
        };
        // The filter is behind the view: a hidden label must not be found by asking for its values.
        alert.severity != NO_FAULT
            && self.to.is_none_or(|to| alert.from < to)
            && is(&self.name, Some(&alert.name))
            && is(&self.severity, Some(&alert.severity))
            && is(&self.node, alert.labels.get("node").map(String::as_str))
    }
}

fn view(viewer: &Viewer, config: &AnswerConfig, ended: EndedAlert) -> EndedAlertView {
    let [name, severity, fingerprint, labels] = ended.texts;
    let [from, to] = ended.period.map(Timestamp::whole_seconds);

    let shown = ShownAlert::of(viewer, &config.alerts, &labels, &fingerprint);
    EndedAlertView {
        fingerprint: shown.fingerprint,
        name: shown_name(&name, &shown.labels),
        severity,
        from,
        to,
        lasted_seconds: to - from,
        labels: shown.labels,
    }
}
