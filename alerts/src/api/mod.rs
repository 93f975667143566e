//! Alertmanager's API v2, and `rules` and `alerts` of Prometheus' API.
//!
//! Prometheus pushes alerts here, and `amtool` works with it. `openapi.yaml` of Alertmanager 0.28
//! is the contract. The server checks access.

mod alerts;
mod body;
mod close;
mod rules;
mod silences;
mod times;
mod trial;

pub use silences::new_id as new_silence_id;

use crate::run::{ChangeError, EngineError, Handle};
use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};

/// State of the routes.
#[derive(Clone)]
pub struct Api {
    /// Handle to the engine.
    pub handle: Handle,
    /// Start time of the server.
    pub started: jiff::Timestamp,
}

/// The sender of posted alerts, as an extension of the request.
#[derive(Debug, Clone)]
pub struct PostedBy(pub Arc<str>);

/// The person who changes something, as an extension of the request.
#[derive(Debug, Clone, Default)]
pub struct ActedBy {
    /// Unix user, if the server knows one. Nobody acts in another's name.
    pub user: Option<String>,
    /// What was done, for the audit log.
    pub note: Arc<OnceLock<String>>,
}

impl ActedBy {
    /// The person's name; of a program, the name that it gives.
    fn name(&self, given: &str) -> String {
        self.user.clone().unwrap_or_else(|| given.to_owned())
    }

    /// Notes what was done.
    fn note(&self, words: String) {
        let _ = self.note.set(words);
    }
}

/// Largest request body, in bytes. A push contains many alerts with all their annotations:
/// Prometheus sends 256, of 1 kB each.
const BODY_MAX: usize = 8 << 20;

/// Version of Alertmanager whose API this is. `amtool` warns if its own version differs.
const ALERTMANAGER_VERSION: &str = "0.34.0";

/// The routes.
pub fn router(api: Api) -> Router {
    Router::new()
        .route("/api/v2/status", get(status))
        .route("/api/v2/receivers", get(alerts::receivers))
        .route("/api/v2/alerts", get(alerts::list).post(alerts::post))
        .route("/api/v2/alerts/groups", get(alerts::groups))
        .route("/api/v2/alerts/route", get(trial::route))
        .route("/api/v2/alerts/test", post(trial::test))
        .route("/api/v2/alerts/close", post(close::close))
        .route("/api/v2/silences", get(silences::list).post(silences::set))
        .route(
            "/api/v2/silence/{id}",
            get(silences::get).delete(silences::expire),
        )
        .route("/api/v1/rules", get(rules::rules))
        .route("/api/v1/alerts", get(rules::alerts))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(api)
}

/// An answer: JSON that must not be cached.
struct Answer(Value);

impl Answer {
    fn of(value: &impl Serialize) -> Result<Self, Refusal> {
        serde_json::to_value(value)
            .map(Self)
            .map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error))
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        ([(header::CACHE_CONTROL, "no-store")], Json(self.0)).into_response()
    }
}

/// An error response: a JSON string for Alertmanager's API, an object for Prometheus'.
#[derive(Debug)]
struct Refusal(StatusCode, Value);

impl Refusal {
    fn new(status: StatusCode, error: impl ToString) -> Self {
        Self(status, Value::String(error.to_string()))
    }

    fn bad(error: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    fn prometheus(error: String) -> Self {
        Self(
            StatusCode::BAD_REQUEST,
            json!({
                "status": "error",
                "errorType": "bad_data",
                "error": error,
            }),
        )
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(self.1)).into_response()
    }
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error)
    }
}

impl From<ChangeError> for Refusal {
    fn from(error: ChangeError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error)
    }
}

async fn status(axum::extract::State(api): axum::extract::State<Api>) -> Result<Answer, Refusal> {
    let config = api
        .handle
        .read(|engine, _| engine.router().config().shown.clone())
        .await?;
    Ok(Answer(json!({
        "cluster": {"name": "", "status": "disabled", "peers": []},
        "versionInfo": {
            "version": ALERTMANAGER_VERSION,
            "revision": concat!("takt-", env!("CARGO_PKG_VERSION")),
            "branch": "",
            "buildUser": "",
            "buildDate": "",
            "goVersion": "",
        },
        "config": {"original": config},
        "uptime": api.started.to_string(),
    })))
}

/// All values of a query parameter.
fn values<'q>(query: &'q [(String, String)], name: &str) -> impl Iterator<Item = &'q str> {
    query
        .iter()
        .filter(move |(key, _)| key == name)
        .map(|(_, value)| value.as_str())
}

/// A parameter that is true unless given. Only go-openapi's words for true are true then.
fn is_on(query: &[(String, String)], name: &str) -> bool {
    values(query, name)
        .last()
        .filter(|value| !value.is_empty())
        .is_none_or(|value| ON.contains(&value.to_ascii_lowercase().as_str()))
}

/// go-openapi's words for true; see [`is_on`].
const ON: [&str; 10] = [
    "true", "1", "yes", "ok", "y", "on", "selected", "checked", "t", "enabled",
];
