//! Tests of routes and channels as they are in use. Not part of Alertmanager's API.

use super::body::{self, Object};
use super::{ActedBy, Answer, Api, Refusal, values};
use crate::notify::trial::try_channels;
use axum::body::Bytes;
use axum::extract::{Extension, Query, State};
use axum::http::HeaderMap;
use std::sync::Arc;
use takt_model::Labels;

/// `GET /api/v2/alerts/route` with one or more `label` (`NAME=VALUE`): the receivers of an alert with these labels.
pub(super) async fn route(
    State(api): State<Api>,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Answer, Refusal> {
    let mut labels = Labels::new();
    for pair in values(&query, "label") {
        let named = pair.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, value) =
            named.ok_or_else(|| Refusal::bad(format!("expected NAME=VALUE, found {pair:?}")))?;
        labels.set(name, value);
    }

    let routed = api
        .handle
        .read(move |engine, _| engine.router().config().route_test(&labels));
    Answer::of(&routed.await?)
}

/// `POST /api/v2/alerts/test`: sends a test message through all channels, or through `channel` of the body.
pub(super) async fn test(
    State(api): State<Api>,
    acted: Option<Extension<ActedBy>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Answer, Refusal> {
    let body = body::read("test", &headers, &bytes)?;
    let only = Object::of("test", String::new(), &body)?.text("channel")?;

    // The clone lets the engine's thread continue while the channels are tried.
    let (channels, routing, settings) = api
        .handle
        .read_channels(|engine, channels, _| {
            let router = engine.router();
            (
                Arc::clone(channels),
                router.config().clone(),
                router.settings().clone(),
            )
        })
        .await?;

    let trials = try_channels(&channels, &routing, &settings, only);
    let trials = trials.await.map_err(Refusal::bad)?;

    let Extension(acted) = acted.unwrap_or_default();
    acted.note(format!("test message by {} channels", trials.len()));
    Answer::of(&trials)
}
