//! `/api/v1/rules` and `/api/v1/alerts` of Prometheus' API, for Grafana and promtool.

use super::{Answer, Api, Refusal, is_true, times, values};
use crate::Engine;
use crate::group::{GroupRun, LastRun, RuleView};
use crate::rules::Rule;
use crate::state::{Instance, State as AlertState};
use crate::template::{Template, print_scientific};
use axum::extract::{Query, State};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use takt_model::Labels;

type Pairs = Vec<(String, String)>;

pub(super) async fn rules(
    State(api): State<Api>,
    Query(query): Query<Pairs>,
) -> Result<Answer, Refusal> {
    let wanted = Wanted::read(&query)?;
    let groups = api.handle.read(move |engine, _| {
        let groups = engine.groups().iter().filter(|run| wanted.group(run));
        let groups = groups.map(|run| group(run, &wanted));
        groups
            .filter(|group| {
                wanted.is_all() || group["rules"].as_array().is_some_and(|all| !all.is_empty())
            })
            .collect::<Vec<_>>()
    });
    Ok(Answer(
        json!({"status": "success", "data": {"groups": groups.await?}}),
    ))
}

pub(super) async fn alerts(State(api): State<Api>) -> Result<Answer, Refusal> {
    let alerts = api.handle.read(|engine, _| all_alerts(engine)).await?;
    Ok(Answer(
        json!({"status": "success", "data": {"alerts": alerts}}),
    ))
}

/// The query parameters: the rules to return; all rules by default.
struct Wanted {
    kind: Option<String>,
    names: Vec<String>,
    groups: Vec<String>,
    files: Vec<String>,
    without_alerts: bool,
}

impl Wanted {
    fn read(query: &Pairs) -> Result<Self, Refusal> {
        let all = |name: &str| values(query, name).map(str::to_owned).collect::<Vec<_>>();
        let kind = all("type").pop().filter(|kind| !kind.is_empty());
        if let Some(odd) = kind
            .as_ref()
            .filter(|kind| !matches!(kind.as_str(), "alert" | "record"))
        {
            return Err(Refusal::prometheus(format!(
                "invalid parameter \"type\": not supported value {odd:?}"
            )));
        }
        let names = all("rule_name[]");
        let groups = all("rule_group[]");
        let files = all("file[]");
        Ok(Self {
            kind,
            names,
            groups,
            files,
            without_alerts: is_true(query, "exclude_alerts"),
        })
    }

    fn is_all(&self) -> bool {
        self.kind.is_none() && self.names.is_empty()
    }

    fn group(&self, run: &GroupRun) -> bool {
        let is_among =
            |all: &[String], one: &str| all.is_empty() || all.iter().any(|name| name == one);
        is_among(&self.groups, &run.group().name) && is_among(&self.files, run.file())
    }

    fn rule(&self, rule: &Rule) -> bool {
        let is_alert = matches!(rule, Rule::Alerting(_));
        self.kind
            .as_ref()
            .is_none_or(|kind| is_alert == (kind == "alert"))
            && (self.names.is_empty() || self.names.iter().any(|name| name == rule.name()))
    }
}

fn all_alerts(engine: &Engine) -> Vec<Value> {
    let of_rules = engine
        .groups()
        .iter()
        .flat_map(GroupRun::views)
        .flat_map(active);
    let of_events = engine.events().iter().filter_map(|(_, _, instance)| {
        let since = instance.fired_at?;
        Some(json!({
            "labels": by_name(&instance.labels),
            "annotations": words(&instance.annotations),
            "state": "firing",
            "activeAt": times::write(since),
            "value": "1e+00",
        }))
    });
    of_rules.chain(of_events).collect()
}

fn active(view: RuleView<'_>) -> impl Iterator<Item = Value> + '_ {
    let active = view
        .instances
        .iter()
        .filter(|(_, instance)| instance.state != AlertState::Inactive);
    active.map(|(_, instance)| alert(instance))
}

fn alert(instance: &Instance) -> Value {
    let mut alert = json!({
        "labels": by_name(&instance.labels),
        "annotations": words(&instance.annotations),
        "state": instance.state.as_str(),
        "activeAt": times::write(instance.active_at),
        "value": print_scientific(instance.value),
    });
    if let Some(since) = instance.keep_firing_since {
        alert["keepFiringSince"] = times::write(since).into();
    }
    alert
}

fn group(run: &GroupRun, wanted: &Wanted) -> Value {
    let group = run.group();
    let rules = run
        .views()
        .filter(|view| wanted.rule(view.rule))
        .map(|view| rule(view, wanted.without_alerts));
    json!({
        "name": group.name,
        "file": run.file(),
        "interval": run.interval().as_secs_f64(),
        "limit": group.limit,
        "rules": rules.collect::<Vec<_>>(),
        "evaluationTime": run.last().took.as_secs_f64(),
        "lastEvaluation": last_evaluation(run.last()),
    })
}

fn rule(view: RuleView<'_>, without_alerts: bool) -> Value {
    let mut told = match view.rule {
        Rule::Alerting(rule) => {
            let state = |state| {
                view.instances
                    .iter()
                    .any(|(_, instance)| instance.state == state)
            };
            let worst = match (state(AlertState::Firing), state(AlertState::Pending)) {
                (true, _) => "firing",
                (false, true) => "pending",
                (false, false) => "inactive",
            };
            json!({
                "type": "alerting",
                "state": worst,
                "duration": rule.hold.as_secs_f64(),
                "keepFiringFor": rule.keep_firing_for.as_secs_f64(),
                "labels": sources(&rule.labels),
                "annotations": sources(&rule.annotations),
                "alerts": if without_alerts { Vec::new() } else { active(view).collect() },
            })
        }
        Rule::Recording(rule) => json!({"type": "recording", "labels": by_name(&rule.labels)}),
    };
    told["name"] = view.rule.name().into();
    told["query"] = view.rule.expr().into();
    told["health"] = match view.last {
        LastRun { at: None, .. } => "unknown",
        LastRun { error: Some(_), .. } => "err",
        _ => "ok",
    }
    .into();
    if let Some(error) = &view.last.error {
        told["lastError"] = error.as_str().into();
    }
    told["evaluationTime"] = view.last.took.as_secs_f64().into();
    told["lastEvaluation"] = last_evaluation(view.last).into();
    told
}

fn sources(templates: &[(String, Template)]) -> BTreeMap<&str, &str> {
    templates
        .iter()
        .map(|(name, template)| (name.as_str(), template.source()))
        .collect()
}

fn last_evaluation(last: &LastRun) -> String {
    last.at
        .map_or_else(|| "0001-01-01T00:00:00Z".to_owned(), times::write)
}

fn by_name(labels: &Labels) -> BTreeMap<&str, &str> {
    labels.iter().collect()
}

fn words(words: &[(String, String)]) -> BTreeMap<&str, &str> {
    words
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect()
}
