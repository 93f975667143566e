//! `/api/v2/alerts` and `/api/v2/alerts/groups`: lists, groups and takes alerts.

use super::body::{self, Object};
use super::{Answer, Api, PostedBy, Refusal, is_on, times, values};
use crate::Engine;
use crate::alert::{Alert, Posted, PostedError};
use crate::order;
use crate::routing::Suppressed;
use crate::routing::config::Config;
use crate::routing::matcher::{Matchers, parse_matcher, whole};
use crate::routing::routes::Route;
use axum::body::Bytes;
use axum::extract::{Extension, Query, State};
use axum::http::{HeaderMap, StatusCode};
use regex::Regex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use takt_model::{Labels, Timestamp};
use tokio::sync::Semaphore;

type Pairs = Vec<(String, String)>;

/// Alerts in one request. Prometheus sends 256.
const REQUEST_ALERTS_MAX: usize = 10_000;

/// Requests with alerts that are read at the same time.
static READING: Semaphore = Semaphore::const_new(2);

pub(super) async fn receivers(
    State(api): State<Api>,
    Query(query): Query<Pairs>,
) -> Result<Answer, Refusal> {
    let wanted = receiver_matchers(&query)?;

    let receivers = api.handle.read(move |engine, _| {
        engine
            .router()
            .config()
            .receivers
            .iter()
            .filter(|receiver| wanted.accept(&receiver.labels))
            .map(|receiver| {
                json!({
                    "name": receiver.name,
                    "labels": by_name(&receiver.labels),
                })
            })
            .collect::<Vec<_>>()
    });
    Answer::of(&receivers.await?)
}

/// Conditions on the labels of receivers.
fn receiver_matchers(query: &[(String, String)]) -> Result<Matchers, Refusal> {
    values(query, "receiver_matchers")
        .map(|text| {
            parse_matcher(text).map_err(|error| {
                Refusal::bad(format!("failed to parse receiver_matchers param: {error}"))
            })
        })
        .collect::<Result<_, _>>()
        .map(Matchers)
}

pub(super) async fn list(
    State(api): State<Api>,
    Query(query): Query<Pairs>,
) -> Result<Answer, Refusal> {
    let filter = Filter::read(&query)?;

    let alerts = api.handle.read(move |engine, now| {
        let suppressed = engine.router().suppressed(now);
        let config = engine.router().config();
        engine
            .router()
            .alerts()
            .iter()
            .map(|(_, alert)| alert)
            .filter(|alert| !alert.is_resolved(now))
            .filter_map(|alert| {
                let routes: Vec<&Route> = config
                    .routes
                    .matching(&alert.labels)
                    .into_iter()
                    .map(|at| config.routes.get(at))
                    .collect();

                let why = suppressed(alert);
                let receivers: Vec<&str> =
                    routes.iter().map(|route| route.receiver.as_str()).collect();
                filter
                    .wants(alert, &why, &receivers, config)
                    .then(|| gettable(alert, &why, &receivers, config, now))
            })
            .collect::<Vec<Value>>()
    });
    Answer::of(&alerts.await?)
}

pub(super) async fn groups(
    State(api): State<Api>,
    Query(query): Query<Pairs>,
) -> Result<Answer, Refusal> {
    let filter = Filter::read(&query)?;
    let groups = api
        .handle
        .read(move |engine, now| groups_of(engine, &filter, now));
    Answer::of(&groups.await?)
}

fn groups_of(engine: &Engine, filter: &Filter, now: Timestamp) -> Vec<Value> {
    let suppressed = engine.router().suppressed(now);
    let config = engine.router().config();
    let mut groups: Vec<(Labels, String, Value)> = Vec::new();
    for (route, labels, alerts) in engine.router().groups() {
        let receivers = [route.receiver.as_str()];

        let alerts: Vec<_> = alerts
            .into_iter()
            .filter(|alert| !alert.is_resolved(now))
            .collect();

        let shown: Vec<Value> = alerts
            .iter()
            // An alert may take several routes, and is shown with the receivers of all of them.
            .filter_map(|alert| {
                let why = suppressed(alert);
                let all_receivers: Vec<_> = config
                    .routes
                    .matching(&alert.labels)
                    .into_iter()
                    .map(|at| config.routes.get(at).receiver.as_str())
                    .collect();
                filter
                    .wants(alert, &why, &receivers, config)
                    .then(|| gettable(alert, &why, &all_receivers, config, now))
            })
            .collect();
        if !shown.is_empty() {
            let route_labels = engine.router().route_labels(route, labels, &alerts, now);
            let group = json!({
                "labels": by_name(labels),
                "routeLabels": by_name(&route_labels),
                "receiver": {"name": route.receiver},
                "alerts": shown,
            });
            groups.push((labels.clone(), route.receiver.clone(), group));
        }
    }

    // In Alertmanager's order, not in that of the routes.
    groups.sort_by(|a, b| order::labels(&a.0, &b.0).then_with(|| a.1.cmp(&b.1)));
    groups.into_iter().map(|(_, _, group)| group).collect()
}

/// Reads a pushed alert. The inner error refuses this alert only.
fn pushed(place: usize, value: &Value) -> Result<Result<Posted, String>, Refusal> {
    let alert = Object::of("alerts", format!("{place}."), value)?;

    let labels = alert.texts("labels")?;
    let annotations = alert.texts("annotations")?.unwrap_or_default();
    let starts_at = alert.instant("startsAt")?.flatten();
    let ends_at = alert.instant("endsAt")?.flatten();
    let generator_url = alert.text("generatorURL")?.unwrap_or_default();
    let labels = alert.required("labels", labels)?;

    if !generator_url.is_empty() && !is_address(generator_url) {
        return Err(alert.invalid(
            601,
            "generatorURL",
            &format!("must be of type uri: {generator_url:?}"),
        ));
    }
    // Labels without a value do not count.
    let has_unnamed = labels.get("").is_some_and(|value| !value.is_empty());

    for (is_wrong, what) in [
        (has_unnamed, "label set"),
        (annotations.contains_key(""), "annotations"),
    ] {
        if is_wrong {
            return Ok(Err(format!("invalid {what}: invalid name \"\"")));
        }
    }
    Ok(Ok(Posted {
        labels: labels
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect(),
        annotations,
        starts_at,
        ends_at,
        generator_url: generator_url.to_owned(),
    }))
}

/// Whether Go accepts the text as a request URL: a path, or a URL with a scheme.
fn is_address(text: &str) -> bool {
    (text.starts_with('/') || reqwest::Url::parse(text).is_ok())
        && !text.contains(char::is_whitespace)
}

/// Takes the valid alerts of a batch, also if others are invalid or exceed a bound.
pub(super) async fn post(
    State(api): State<Api>,
    sender: Option<Extension<PostedBy>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<StatusCode, Refusal> {
    let (good, mut errors) = {
        // The JSON of a large request takes several times its length.
        let _reading = READING.acquire().await;
        read_posted(&headers, &bytes)?
    };

    let sender = sender.map_or_else(|| "".into(), |Extension(PostedBy(sender))| sender);
    let refused = api
        .handle
        .change(move |engine, now| {
            let (batch, refused) = engine.post_from(&sender, good, now);
            (refused, batch)
        })
        .await?;

    api.handle.note_refused_alerts(errors.len() + refused.len());
    let is_full = refused.iter().any(PostedError::is_of_room);

    let mut counts: BTreeMap<PostedError, usize> = BTreeMap::new();
    // Thousands of alerts may be refused for one reason, which is named once.
    for error in refused {
        *counts.entry(error).or_insert(0) += 1;
    }

    errors.extend(counts.into_iter().map(|(error, count)| match count {
        1 => error.to_string(),
        count => format!("{count} alerts: {error}"),
    }));

    if errors.is_empty() {
        Ok(StatusCode::OK)
    } else if is_full {
        let status = StatusCode::TOO_MANY_REQUESTS;
        Err(Refusal::new(status, errors.join("; ")))
    } else {
        Err(Refusal::bad(errors.join("; ")))
    }
}

/// Returns the alerts of a request, and the reasons why others were refused.
fn read_posted(headers: &HeaderMap, bytes: &[u8]) -> Result<(Vec<Posted>, Vec<String>), Refusal> {
    let alerts = match body::read("alerts", headers, bytes)? {
        Value::Array(alerts) => alerts,
        Value::Null => Vec::new(),
        _ => {
            return Err(Refusal::coded(
                StatusCode::BAD_REQUEST,
                400,
                "parsing alerts body from \"\" failed, because it is not a list",
            ));
        }
    };

    // Parsed texts of more alerts would take more memory than the request.
    if alerts.len() > REQUEST_ALERTS_MAX {
        let found = alerts.len();
        return Err(Refusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("a request has at most {REQUEST_ALERTS_MAX} alerts, this one has {found}"),
        ));
    }

    let mut good = Vec::new();
    let mut errors = Vec::new();
    for (place, alert) in alerts.iter().enumerate() {
        match pushed(place, alert)? {
            Ok(alert) => good.push(alert),
            Err(error) => errors.push(error),
        }
    }
    Ok((good, errors))
}

/// The query parameters: the alerts to return.
struct Filter {
    matchers: Matchers,
    receiver: Option<Regex>,
    /// Conditions on the labels of receivers.
    receiver_matchers: Matchers,
    active: bool,
    silenced: bool,
    inhibited: bool,
    muted: bool,
}

impl Filter {
    fn read(query: &Pairs) -> Result<Self, Refusal> {
        let mut matchers = Vec::new();
        for text in values(query, "filter") {
            matchers.push(parse_matcher(text).map_err(Refusal::bad)?);
        }

        let receiver = values(query, "receiver")
            .last()
            .filter(|text| !text.is_empty());

        let receiver = receiver
            .map(whole)
            .transpose()
            .map_err(|error| Refusal::bad(format!("failed to parse receiver param: {error}")))?;
        Ok(Self {
            matchers: Matchers(matchers),
            receiver,
            receiver_matchers: receiver_matchers(query)?,
            active: is_on(query, "active"),
            silenced: is_on(query, "silenced"),
            inhibited: is_on(query, "inhibited"),
            muted: is_on(query, "muted"),
        })
    }

    fn wants(&self, alert: &Alert, why: &Suppressed, receivers: &[&str], config: &Config) -> bool {
        let fits = |name: &&str| {
            let receiver = config.receiver(name);
            receiver.is_some_and(|receiver| self.receiver_matchers.accept(&receiver.labels))
        };

        let is_silenced = !why.silenced_by.is_empty();
        let is_inhibited = why.inhibited_by.is_some();
        let is_muted = !why.muted_by.is_empty();
        self.matchers.accept(&alert.labels)
            && self
                .receiver
                .as_ref()
                .is_none_or(|regex| receivers.iter().any(|name| regex.is_match(name)))
            && (self.receiver_matchers.0.is_empty() || receivers.iter().any(fits))
            // A silenced or inhibited alert is not active, so `active=false` does not hide it.
            && (self.active || is_silenced || is_inhibited)
            && (self.silenced || !is_silenced)
            && (self.inhibited || !is_inhibited)
            && (self.muted || !is_muted)
    }
}

fn by_name(labels: &Labels) -> BTreeMap<&str, &str> {
    labels.iter().collect()
}

fn gettable(
    alert: &Alert,
    why: &Suppressed,
    receivers: &[&str],
    config: &Config,
    now: Timestamp,
) -> Value {
    let is_suppressed =
        !why.silenced_by.is_empty() || why.inhibited_by.is_some() || !why.muted_by.is_empty();

    let inhibited_by: Vec<String> = why.inhibited_by.iter().map(ToString::to_string).collect();

    let mut shown = json!({
        "labels": by_name(&alert.labels),
        "annotations": alert.annotations,
        "receivers": receivers
            .iter()
            .map(|name| json!({"name": name}))
            .collect::<Vec<_>>(),
        "fingerprint": alert.fingerprint().to_string(),
        "startsAt": times::write(alert.starts_at),
        "updatedAt": times::write(alert.updated_at),
        // Prometheus' clients expect an end: the alert counts as ended unless it is updated until then.
        "endsAt": times::write(alert.ends_at.unwrap_or(now.plus(config.resolve_timeout))),
        "status": {
            "state": if is_suppressed { "suppressed" } else { "active" },
            "silencedBy": why.silenced_by,
            "inhibitedBy": inhibited_by,
            "mutedBy": why.muted_by,
        },
    });
    // Takt's own: Alertmanager knows no time before an alert fires.
    if alert.began_at.is_some() {
        shown["since"] = json!(times::write(alert.since()));
    }
    if !alert.generator_url.is_empty() {
        shown["generatorURL"] = json!(alert.generator_url);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of Alertmanager 0.25 to the same requests.
    #[test]
    fn invalid_alerts_are_refused_with_alertmanagers_codes() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(
                "content-type",
                "application/json; charset=utf-8".parse().unwrap(),
            );
            let value = body::read("alerts", &headers, text.as_bytes())
                .map_err(|refusal| refusal.0.as_u16())?;
            pushed(0, &value).map_err(|refusal| refusal.0.as_u16())
        };
        for (text, expected) in [
            ("", Err(422)),
            ("{", Err(400)),
            ("1", Err(400)),
            ("{}", Err(422)),
            (r#"{"labels":null}"#, Err(422)),
            (r#"{"labels":{"a":1}}"#, Err(400)),
            (r#"{"labels":{"a":"b"},"annotations":null} x"#, Ok(true)),
            (r#"{"labels":{"a":"b"},"annotations":{"c":null}}"#, Ok(true)),
            (r#"{"labels":{"a":"b"},"startsAt":"x"}"#, Err(400)),
            (r#"{"labels":{"a":"b"},"startsAt":""}"#, Ok(true)),
            (r#"{"labels":{"a":"b"},"generatorURL":"x y"}"#, Err(422)),
            (
                r#"{"labels":{"a":"b"},"generatorURL":"/graph?g0=x"}"#,
                Ok(true),
            ),
            (r#"{"labels":{"":"b"}}"#, Ok(false)),
            (r#"{"labels":{"":"","a":"b"}}"#, Ok(true)),
            (r#"{"labels":{"a":"b"},"annotations":{"":""}}"#, Ok(false)),
        ] {
            assert_eq!(read(text).map(|alert| alert.is_ok()), expected, "{text}");
        }
        assert_eq!(
            body::read("alerts", &HeaderMap::new(), b"[]")
                .unwrap_err()
                .0
                .as_u16(),
            415
        );
    }

    #[test]
    fn switches_are_read_as_go_openapi_reads_them() {
        let on = |value: &str| is_on(&[("active".to_owned(), value.to_owned())], "active");
        assert!(
            ["true", "TRUE", "1", "yes", "on", ""]
                .iter()
                .all(|value| on(value))
        );
        assert!(!["false", "0", "no", "f", "x"].iter().any(|value| on(value)));
        assert!(is_on(&[], "active"));
    }
}
