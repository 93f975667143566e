//! Rules and their alerts, as Prometheus' API tells them: for Grafana, promtool and people.

use super::{Answer, Api, Refusal, times};
use crate::Engine;
use crate::group::GroupRun;
use crate::rules::{AlertingRule, Rule};
use crate::state::{Instance, Instances, State as AlertState};
use crate::template::Template;
use axum::extract::State;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use takt_model::Labels;

pub(super) async fn rules(State(api): State<Api>) -> Result<Answer, Refusal> {
    let groups = api.handle.read(|engine, _| engine.groups().iter().map(group).collect::<Vec<_>>()).await?;
    Ok(Answer(json!({"status": "success", "data": {"groups": groups}})))
}

pub(super) async fn alerts(State(api): State<Api>) -> Result<Answer, Refusal> {
    let alerts = api.handle.read(|engine, _| all_alerts(engine)).await?;
    Ok(Answer(json!({"status": "success", "data": {"alerts": alerts}})))
}

fn all_alerts(engine: &Engine) -> Vec<Value> {
    let of_rules = engine.groups().iter().flat_map(|run| run.instances()).flat_map(|(_, instances)| active(instances));
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

fn active(instances: &Instances) -> impl Iterator<Item = Value> + '_ {
    instances.iter().filter(|(_, instance)| instance.state != AlertState::Inactive).map(|(_, instance)| alert(instance))
}

fn alert(instance: &Instance) -> Value {
    json!({
        "labels": by_name(&instance.labels),
        "annotations": words(&instance.annotations),
        "state": instance.state.as_str(),
        "activeAt": times::write(instance.active_at),
        "value": format!("{:e}", instance.value),
    })
}

fn group(run: &GroupRun) -> Value {
    let group = run.group();
    let rules = group.rules.iter().zip(run.instances()).map(|(rule, (_, instances))| match rule {
        Rule::Alerting(rule) => alerting(rule, instances),
        Rule::Recording(rule) => json!({
            "type": "recording",
            "name": rule.name,
            "query": rule.expr,
            "labels": by_name(&rule.labels),
            "health": "ok",
            "evaluationTime": 0.0,
            "lastEvaluation": "0001-01-01T00:00:00Z",
        }),
    });
    json!({
        "name": group.name,
        "file": run.file(),
        "interval": run.interval().as_secs_f64(),
        "limit": group.limit,
        "rules": rules.collect::<Vec<_>>(),
        "evaluationTime": 0.0,
        "lastEvaluation": "0001-01-01T00:00:00Z",
    })
}

fn alerting(rule: &AlertingRule, instances: &Instances) -> Value {
    let state = |state| instances.iter().any(|(_, instance)| instance.state == state);
    let worst = match (state(AlertState::Firing), state(AlertState::Pending)) {
        (true, _) => "firing",
        (false, true) => "pending",
        (false, false) => "inactive",
    };
    let sources = |templates: &[(String, Template)]| -> BTreeMap<String, String> {
        templates.iter().map(|(name, template)| (name.clone(), template.source().to_owned())).collect()
    };
    json!({
        "type": "alerting",
        "state": worst,
        "name": rule.name,
        "query": rule.expr,
        "duration": rule.hold.as_secs_f64(),
        "keepFiringFor": rule.keep_firing_for.as_secs_f64(),
        "labels": sources(&rule.labels),
        "annotations": sources(&rule.annotations),
        "alerts": active(instances).collect::<Vec<_>>(),
        "health": "ok",
        "evaluationTime": 0.0,
        "lastEvaluation": "0001-01-01T00:00:00Z",
    })
}

fn by_name(labels: &Labels) -> BTreeMap<&str, &str> {
    labels.iter().collect()
}

fn words(words: &[(String, String)]) -> BTreeMap<&str, &str> {
    words.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect()
}
