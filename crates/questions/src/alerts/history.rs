//! Alerts that ended.

use super::{NO_FAULT, ShownAlert, shown_name};
use crate::near::did_you_mean;
use crate::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use takt_access::{Need, Viewer};
use takt_alerts::Engine;
use takt_alerts::group::GroupRun;
use takt_alerts::rules::Rule;
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
        let shown: Vec<EndedAlertView> = ended
            .into_iter()
            .map(|one| view(viewer, config, one))
            .filter(|one| self.wants(one))
            .collect();

        // A misspelt name must not look like a quiet month.
        if shown.is_empty() && (self.name.is_some() || self.severity.is_some()) {
            self.check_names(&KnownNames::of(database, config)?)?;
        }
        Ok(shown)
    }
}

/// Names and severities that alerts have, or may have by their rules.
#[derive(Debug, Default)]
struct KnownNames {
    names: BTreeSet<String>,
    severities: BTreeSet<String>,
}

impl KnownNames {
    fn of(database: &Database, config: &AnswerConfig) -> Result<Self, AnswerError> {
        // A command that reads the files has no rules.
        let of_rules = config.alerts.read(|engine, _| of_rules(engine));
        let mut known = of_rules.unwrap_or_default();

        for [name, severity] in EndedAlert::known(database)? {
            known.names.insert(name);
            known.severities.insert(severity);
        }
        Ok(known)
    }
}

/// The names and severities that the rules give their alerts.
fn of_rules(engine: &Engine) -> KnownNames {
    let of_samples = engine.groups().iter().flat_map(GroupRun::views);
    let of_samples = of_samples.filter_map(|view| match view.rule {
        Rule::Alerting(rule) => Some((&rule.name, &rule.labels)),
        Rule::Recording(_) => None,
    });
    let of_events = engine.events().rules();
    let of_events = of_events.map(|rule| (&rule.name, &rule.labels));

    let mut known = KnownNames::default();
    for (name, labels) in of_samples.chain(of_events) {
        known.names.insert(name.clone());
        let severity = labels.iter().find(|(label, _)| label == "severity");
        known
            .severities
            .extend(severity.map(|(_, template)| template.source().to_owned()));
    }
    known
}

impl EndedAlertsQuestion {
    fn check_names(&self, known: &KnownNames) -> Result<(), AnswerError> {
        let refused = |what: &str, asked: &str, known: &BTreeSet<String>| {
            let near = did_you_mean(asked, known.iter().map(String::as_str));
            let text =
                format!("no rule and no alert in the history has the {what} {asked:?}{near}");
            Err(AnswerError::Usage(text))
        };

        // Alerts without a name go by their labels, which no list has.
        if let Some(name) = &self.name
            && !name.starts_with('{')
            && !known.names.contains(name)
        {
            return refused("name", name, &known.names);
        }
        match &self.severity {
            Some(severity) if !known.severities.contains(severity) => {
                refused("severity", severity, &known.severities)
            }
            _ => Ok(()),
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nothing_has_are_refused_with_the_nearest() {
        let known = KnownNames {
            names: ["GpuFellOffBus".to_owned(), "NodeDown".to_owned()].into(),
            severities: ["critical".to_owned(), "warning".to_owned()].into(),
        };
        let checked = |name: Option<&str>, severity: Option<&str>| {
            let question = EndedAlertsQuestion {
                name: name.map(str::to_owned),
                severity: severity.map(str::to_owned),
                ..EndedAlertsQuestion::default()
            };
            let refused = question.check_names(&known).err();
            refused.map(|error| error.to_string()).unwrap_or_default()
        };

        let name =
            "no rule and no alert in the history has the name \"NodeDwn\"; did you mean NodeDown?";
        assert_eq!(checked(Some("NodeDwn"), Some("critical")), name);
        let severity = "no rule and no alert in the history has the severity \"critcal\"; did you mean critical?";
        assert_eq!(checked(Some("NodeDown"), Some("critcal")), severity);
        assert_eq!(checked(Some("NodeDown"), None), "");
        assert_eq!(
            checked(Some("{job=\"backup\"}"), None),
            "",
            "an alert without a name"
        );
    }
}
