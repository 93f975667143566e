//! `/api/v1/rules` and `/api/v1/alerts` of Prometheus' API, for Grafana and promtool.

use super::{Answer, Api, Refusal, times, values};
use crate::Engine;
use crate::fingerprint::Fingerprint;
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
    let page = RulesPage::read(&query)?;
    let data = api
        .handle
        .read(move |engine, _| page.of(engine.groups(), &wanted))
        .await??;
    Ok(Answer(json!({"status": "success", "data": data})))
}

/// A part of the groups, as in Prometheus: `group_limit` groups from the one that
/// `group_next_token` names.
struct RulesPage {
    limit: Option<usize>,
    from: Option<String>,
}

impl RulesPage {
    fn read(query: &Pairs) -> Result<Self, Refusal> {
        let last = |name| values(query, name).last().filter(|text| !text.is_empty());
        let from = last("group_next_token").map(str::to_owned);
        let limit = match last("group_limit") {
            None if from.is_some() => {
                return Err(invalid(
                    "group_next_token",
                    "group_limit needs to be present in order to paginate over the groups",
                ));
            }
            None => None,
            Some(text) => match text.parse::<i32>() {
                Ok(1..) => text.parse().ok(),
                Ok(_) => {
                    return Err(invalid(
                        "group_limit",
                        "group_limit needs to be greater than 0",
                    ));
                }
                Err(error) => {
                    let what = format!("group_limit needs to be a valid number: {error}");
                    return Err(invalid("group_limit", &what));
                }
            },
        };

        Ok(Self { limit, from })
    }

    /// The groups of this page that have a wanted rule, and the token of the next page.
    fn of(&self, runs: &[GroupRun], wanted: &Wanted) -> Result<Value, Refusal> {
        let first = match &self.from {
            None => 0,
            Some(token) => runs
                .iter()
                .position(|run| page_token(run) == *token)
                .ok_or_else(|| {
                    let what =
                        format!("invalid group_next_token '{token}'. were rule groups changed?");
                    invalid("group_next_token", &what)
                })?,
        };

        let mut groups = Vec::new();
        for run in runs[first..].iter().filter(|run| wanted.group(run)) {
            // A group without a rule that is wanted is no part of the page.
            let group = group(run, wanted);
            if group["rules"].as_array().is_none_or(Vec::is_empty) {
                continue;
            }
            // One group more than the page holds: its token begins the next page.
            if self.limit == Some(groups.len()) {
                return Ok(json!({
                    "groups": groups,
                    "groupNextToken": page_token(run),
                }));
            }
            groups.push(group);
        }
        Ok(json!({"groups": groups}))
    }
}

/// A text that names a group of rules.
fn page_token(run: &GroupRun) -> String {
    let name = run.group().name.as_str();
    let labels = [("file", run.file()), ("group", name)];
    Fingerprint::of(&labels.into_iter().collect()).to_string()
}

fn invalid(parameter: &str, what: &str) -> Refusal {
    Refusal::prometheus(format!("invalid parameter {parameter:?}: {what}"))
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
        if values(query, "match[]").next().is_some() {
            let what = "not supported; rule_name[], rule_group[], file[] and type choose rules";
            return Err(invalid("match[]", what));
        }

        let all = |name: &str| values(query, name).map(str::to_owned).collect::<Vec<_>>();
        let first = |name| values(query, name).next().unwrap_or_default();
        let kind = first("type").to_lowercase();
        if !matches!(kind.as_str(), "" | "alert" | "record") {
            return Err(invalid("type", &format!("not supported value {kind:?}")));
        }

        let exclude = first("exclude_alerts").to_lowercase();
        let without_alerts = match exclude.as_str() {
            "1" | "t" | "true" => true,
            "" | "0" | "f" | "false" => false,
            odd => {
                let what = format!(
                    "error converting exclude_alerts: strconv.ParseBool: parsing {odd:?}: \
                     invalid syntax"
                );
                return Err(invalid("exclude_alerts", &what));
            }
        };

        let names = all("rule_name[]");
        let groups = all("rule_group[]");
        let files = all("file[]");
        Ok(Self {
            kind: (!kind.is_empty()).then_some(kind),
            names,
            groups,
            files,
            without_alerts,
        })
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

    // Events have no value that could be compared.
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
    view.instances
        .iter()
        .filter(|(_, instance)| instance.state != AlertState::Inactive)
        .map(|(_, instance)| alert(instance))
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
    let mut answer = match view.rule {
        Rule::Alerting(rule) => {
            let state = |state| {
                view.instances
                    .iter()
                    .any(|(_, instance)| instance.state == state)
            };
            // One alert that fires decides about the rule, however many are pending.
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
                "alerts": if without_alerts {
                    Vec::new()
                } else {
                    active(view).collect()
                },
            })
        }
        Rule::Recording(rule) => json!({
            "type": "recording",
            "labels": by_name(&rule.labels),
        }),
    };

    answer["name"] = view.rule.name().into();
    answer["query"] = view.rule.expr().into();

    answer["health"] = match view.last {
        LastRun { at: None, .. } => "unknown",
        LastRun { error: Some(_), .. } => "err",
        _ => "ok",
    }
    .into();

    if let Some(error) = &view.last.error {
        answer["lastError"] = error.as_str().into();
    }
    answer["evaluationTime"] = view.last.took.as_secs_f64().into();
    answer["lastEvaluation"] = last_evaluation(view.last).into();
    answer
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
