//! Alerts: listed, grouped, pushed.

use super::{Answer, Api, Refusal, is_on, times, values};
use crate::Engine;
use crate::alert::{Alert, Posted};
use crate::routing::Suppressed;
use crate::routing::config::{Config, Route};
use crate::routing::matcher::{Matchers, parse_matchers};
use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use takt_model::{Labels, Timestamp};

type Pairs = Vec<(String, String)>;

pub(super) async fn receivers(State(api): State<Api>) -> Result<Answer, Refusal> {
    let names = api.handle.read(|engine, _| {
        let receivers = engine.router().config().receivers.iter();
        receivers.map(|receiver| json!({"name": receiver.name})).collect::<Vec<_>>()
    });
    Answer::of(&names.await?)
}

pub(super) async fn list(State(api): State<Api>, Query(query): Query<Pairs>) -> Result<Answer, Refusal> {
    let filter = Filter::read(&query)?;
    let alerts = api.handle.read(move |engine, now| {
        let suppressed = engine.router().suppressed(now);
        let config = engine.router().config();
        let alerts = engine.router().alerts().iter().map(|(_, alert)| alert).filter(|alert| !alert.is_resolved(now));
        let told = alerts.filter_map(|alert| {
            let routes: Vec<&Route> =
                config.routes.matching(&alert.labels).into_iter().map(|at| config.routes.get(at)).collect();
            let why = suppressed(alert);
            let receivers: Vec<&str> = routes.iter().map(|route| route.receiver.as_str()).collect();
            filter.wants(alert, &why, &receivers).then(|| gettable(alert, &why, &receivers, config, now))
        });
        told.collect::<Vec<Value>>()
    });
    Answer::of(&alerts.await?)
}

pub(super) async fn groups(State(api): State<Api>, Query(query): Query<Pairs>) -> Result<Answer, Refusal> {
    let filter = Filter::read(&query)?;
    let groups = api.handle.read(move |engine, now| groups_of(engine, &filter, now));
    Answer::of(&groups.await?)
}

fn groups_of(engine: &Engine, filter: &Filter, now: Timestamp) -> Vec<Value> {
    let suppressed = engine.router().suppressed(now);
    let config = engine.router().config();
    let mut groups: Vec<(String, String, Value)> = Vec::new();
    for (route, labels, alerts) in engine.router().groups() {
        let receivers = [route.receiver.as_str()];
        let alerts = alerts.into_iter().filter(|alert| !alert.is_resolved(now));
        let told: Vec<Value> = alerts
            .filter_map(|alert| {
                let why = suppressed(alert);
                let routes = config.routes.matching(&alert.labels).into_iter();
                let told: Vec<_> = routes.map(|at| config.routes.get(at).receiver.as_str()).collect();
                filter.wants(alert, &why, &receivers).then(|| gettable(alert, &why, &told, config, now))
            })
            .collect();
        if !told.is_empty() {
            let group = json!({
                "labels": by_name(labels),
                "routeLabels": by_name(&route.labels),
                "receiver": {"name": route.receiver},
                "alerts": told,
            });
            groups.push((labels.to_string(), route.receiver.clone(), group));
        }
    }
    groups.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    groups.into_iter().map(|(_, _, group)| group).collect()
}

/// An alert as it is pushed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PostableAlert {
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    starts_at: Option<String>,
    ends_at: Option<String>,
    #[serde(default, rename = "generatorURL")]
    generator_url: String,
}

impl PostableAlert {
    fn read(self) -> Result<Posted, String> {
        if let Some(name) = self.labels.keys().find(|name| name.is_empty()) {
            return Err(format!("{name:?} is no name of a label"));
        }
        Ok(Posted {
            labels: self
                .labels
                .iter()
                .filter(|(_, value)| !value.is_empty())
                .map(|(n, v)| (n.as_str(), v.as_str()))
                .collect(),
            annotations: self.annotations.into_iter().filter(|(_, text)| !text.is_empty()).collect(),
            starts_at: times::read(self.starts_at.as_deref())?,
            ends_at: times::read(self.ends_at.as_deref())?,
            generator_url: self.generator_url,
        })
    }
}

/// Good alerts of a batch are taken also if others are not.
pub(super) async fn post(
    State(api): State<Api>,
    Json(alerts): Json<Vec<PostableAlert>>,
) -> Result<StatusCode, Refusal> {
    let (mut good, mut errors) = (Vec::new(), Vec::new());
    for alert in alerts {
        match alert.read() {
            Ok(alert) => good.push(alert),
            Err(error) => errors.push(error),
        }
    }
    let refused = api.handle.change(move |engine, now| {
        let (batch, refused) = engine.post(good, now);
        (refused, batch)
    });
    errors.extend(refused.await?.iter().map(ToString::to_string));
    match errors.is_empty() {
        true => Ok(StatusCode::OK),
        false => Err(Refusal::bad(errors.join("; "))),
    }
}

/// Which alerts are asked for.
struct Filter {
    matchers: Matchers,
    receiver: Option<Regex>,
    active: bool,
    silenced: bool,
    inhibited: bool,
    muted: bool,
}

impl Filter {
    fn read(query: &Pairs) -> Result<Self, Refusal> {
        let mut matchers = Vec::new();
        for text in values(query, "filter") {
            matchers.extend(parse_matchers(text).map_err(Refusal::bad)?);
        }
        let receiver = values(query, "receiver").last().filter(|text| !text.is_empty());
        let receiver = receiver.map(|text| Regex::new(&format!("^(?:{text})$"))).transpose().map_err(Refusal::bad)?;
        Ok(Self {
            matchers: Matchers(matchers),
            receiver,
            active: is_on(query, "active"),
            silenced: is_on(query, "silenced"),
            inhibited: is_on(query, "inhibited"),
            muted: is_on(query, "muted"),
        })
    }

    fn wants(&self, alert: &Alert, why: &Suppressed, receivers: &[&str]) -> bool {
        let is_silenced = !why.silenced_by.is_empty();
        let is_inhibited = why.inhibited_by.is_some();
        let is_muted = !why.muted_by.is_empty();
        self.matchers.accept(&alert.labels)
            && self.receiver.as_ref().is_none_or(|regex| receivers.iter().any(|name| regex.is_match(name)))
            && (self.active || is_silenced || is_inhibited)
            && (self.silenced || !is_silenced)
            && (self.inhibited || !is_inhibited)
            && (self.muted || !is_muted)
    }
}

fn by_name(labels: &Labels) -> BTreeMap<&str, &str> {
    labels.iter().collect()
}

fn gettable(alert: &Alert, why: &Suppressed, receivers: &[&str], config: &Config, now: Timestamp) -> Value {
    let is_suppressed = !why.silenced_by.is_empty() || why.inhibited_by.is_some() || !why.muted_by.is_empty();
    let inhibited_by: Vec<String> = why.inhibited_by.iter().map(ToString::to_string).collect();
    json!({
        "labels": by_name(&alert.labels),
        "annotations": alert.annotations,
        "receivers": receivers.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
        "fingerprint": alert.fingerprint().to_string(),
        "startsAt": times::write(alert.starts_at),
        "updatedAt": times::write(alert.updated_at),
        "endsAt": times::write(alert.ends_at.unwrap_or(now.plus(config.resolve_timeout))),
        "generatorURL": alert.generator_url,
        "status": {
            "state": if is_suppressed { "suppressed" } else { "active" },
            "silencedBy": why.silenced_by,
            "inhibitedBy": inhibited_by,
            "mutedBy": why.muted_by,
        },
    })
}
