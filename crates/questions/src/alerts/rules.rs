//! The rules over samples, with their state.

use crate::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use takt_access::{Need, Viewer};
use takt_alerts::Engine;
use takt_alerts::group::{GroupRun, RuleView};
use takt_alerts::rules::Rule;
use takt_alerts::state::State;
use takt_store::Database;

/// Asks for the alerting rules over samples.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RulesQuestion {}

/// An alerting rule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RuleLine {
    /// Name of its alerts.
    pub name: String,
    /// Group of rules.
    pub group: String,
    /// Condition, in PromQL.
    pub expr: String,
    /// Seconds for which the condition has to hold.
    pub for_seconds: f64,
    /// Number of firing alerts.
    pub firing: u64,
    /// Number of pending alerts.
    pub pending: u64,
    /// Why the last evaluation failed. Errors name series with all their labels, so viewers who do not see all users get no
    /// details.
    pub error: Option<String>,
}

impl RuleLine {
    /// Returns `failed`, `firing`, `pending` or `ok`.
    pub fn state(&self) -> &'static str {
        match (&self.error, self.firing, self.pending) {
            (Some(_), ..) => "failed",
            (None, 1.., _) => "firing",
            (None, 0, 1..) => "pending",
            (None, 0, 0) => "ok",
        }
    }
}

impl Question for RulesQuestion {
    const PATH: &'static str = "/api/takt/v1/alerts/rules";
    const NEED: Need = Need::SignedIn;
    type Answer = Vec<RuleLine>;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        _database: &Database,
        config: &AnswerConfig,
    ) -> Result<Vec<RuleLine>, AnswerError> {
        let mut rules = config.alerts.read(|engine, _| lines(engine))?;
        // An error names series with labels such as the user.
        if !viewer.sees_all() {
            for error in rules.iter_mut().filter_map(|rule| rule.error.as_mut()) {
                "its last evaluation failed".clone_into(error);
            }
        }
        Ok(rules)
    }
}

fn lines(engine: &Engine) -> Vec<RuleLine> {
    engine.groups().iter().flat_map(of_group).collect()
}

fn of_group(run: &GroupRun) -> impl Iterator<Item = RuleLine> {
    run.views().filter_map(|view| line(&run.group().name, view))
}

fn line(group: &str, view: RuleView<'_>) -> Option<RuleLine> {
    // Recording rules have no alerts.
    let Rule::Alerting(rule) = view.rule else {
        return None;
    };
    let count = |state| {
        let instances = view.instances.iter();
        instances.filter(|(_, one)| one.shown() == state).count() as u64
    };
    Some(RuleLine {
        name: rule.name.clone(),
        group: group.to_owned(),
        // Line breaks of the rule file are not part of the condition.
        expr: rule.expr.split_whitespace().collect::<Vec<_>>().join(" "),
        for_seconds: rule.hold.as_secs_f64(),
        firing: count(State::Firing),
        pending: count(State::Pending),
        error: view.last.error.clone(),
    })
}
