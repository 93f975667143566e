//! Silences: listed, made, ended.

use super::{Answer, Api, Refusal, times, values};
use crate::routing::matcher::{MatchOp, Matcher, Matchers, parse_matchers};
use crate::routing::silence::{Silence, SilenceError};
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use takt_model::Timestamp;

type Pairs = Vec<(String, String)>;

pub(super) async fn list(State(api): State<Api>, Query(query): Query<Pairs>) -> Result<Answer, Refusal> {
    let mut wanted = Vec::new();
    for text in values(&query, "filter") {
        wanted.extend(parse_matchers(text).map_err(Refusal::bad)?);
    }
    let silences = api.handle.read(move |engine, now| {
        let all = engine.router().silences.list(now).into_iter();
        all.filter(|silence| is_about(silence, &wanted)).map(|silence| shown(silence, now)).collect::<Vec<_>>()
    });
    Answer::of(&silences.await?)
}

/// Whether the conditions that are asked for are among the silence's own, as they are written.
fn is_about(silence: &Silence, wanted: &[Matcher]) -> bool {
    wanted.is_empty() || silence.matchers.iter().any(|set| wanted.iter().all(|matcher| set.0.contains(matcher)))
}

pub(super) async fn get(State(api): State<Api>, Path(id): Path<String>) -> Result<Answer, Refusal> {
    let missing = Refusal::new(StatusCode::NOT_FOUND, format!("silence {id} not found"));
    let found =
        api.handle.read(move |engine, now| engine.router().silences.get(&id).map(|silence| shown(silence, now)));
    found.await?.map(Answer).ok_or(missing)
}

pub(super) async fn expire(State(api): State<Api>, Path(id): Path<String>) -> Result<StatusCode, Refusal> {
    let expired = api.handle.change(move |engine, now| match engine.expire_silence(&id, now) {
        Ok(batch) => (Ok(()), batch),
        Err(error) => (Err(error), crate::Batch::default()),
    });
    expired.await?.map(|()| StatusCode::OK).map_err(refused)
}

/// A silence as it is asked for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PostableSilence {
    #[serde(default)]
    id: String,
    matchers: Vec<PostableMatcher>,
    starts_at: Option<String>,
    ends_at: Option<String>,
    created_by: Option<String>,
    comment: Option<String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PostableMatcher {
    name: String,
    value: String,
    #[serde(default)]
    is_regex: bool,
    is_equal: Option<bool>,
}

impl PostableSilence {
    fn read(self) -> Result<Silence, Refusal> {
        let matcher = |one: &PostableMatcher| {
            let op = match (one.is_regex, one.is_equal.unwrap_or(true)) {
                (false, true) => MatchOp::Equal,
                (false, false) => MatchOp::NotEqual,
                (true, true) => MatchOp::Regex,
                (true, false) => MatchOp::NotRegex,
            };
            Matcher::new(&one.name, op, &one.value)
        };
        let matchers = self.matchers.iter().map(matcher).collect::<Result<Vec<_>, _>>().map_err(Refusal::bad)?;
        let ends_at = times::read(self.ends_at.as_deref()).map_err(Refusal::bad)?;
        Ok(Silence {
            id: self.id,
            matchers: vec![Matchers(matchers)],
            starts_at: times::read(self.starts_at.as_deref()).map_err(Refusal::bad)?.unwrap_or(Timestamp(0)),
            ends_at: ends_at.ok_or_else(|| Refusal::required("endsAt"))?,
            updated_at: Timestamp(0),
            created_by: self.created_by.ok_or_else(|| Refusal::required("createdBy"))?,
            comment: self.comment.ok_or_else(|| Refusal::required("comment"))?,
            annotations: self.annotations,
        })
    }
}

pub(super) async fn set(State(api): State<Api>, Json(asked): Json<PostableSilence>) -> Result<Answer, Refusal> {
    let wanted = asked.read()?;
    let set = api.handle.change(move |engine, now| match engine.silence(wanted, &new_id(), now) {
        Ok((id, batch)) => (Ok(id), batch),
        Err(error) => (Err(error), crate::Batch::default()),
    });
    set.await?.map(|id| Answer(json!({"silenceID": id}))).map_err(refused)
}

fn refused(error: SilenceError) -> Refusal {
    match error {
        SilenceError::NotFound(_) => Refusal::new(StatusCode::NOT_FOUND, error),
        _ => Refusal::bad(error),
    }
}

fn shown(silence: &Silence, now: Timestamp) -> Value {
    let matchers = silence.matchers.iter().flat_map(|set| &set.0).map(|matcher| {
        let (is_regex, is_equal) = match matcher.op() {
            MatchOp::Equal => (false, true),
            MatchOp::NotEqual => (false, false),
            MatchOp::Regex => (true, true),
            MatchOp::NotRegex => (true, false),
        };
        json!({"name": matcher.name(), "value": matcher.value(), "isRegex": is_regex, "isEqual": is_equal})
    });
    json!({
        "id": silence.id,
        "status": {"state": silence.state(now)},
        "matchers": matchers.collect::<Vec<_>>(),
        "startsAt": times::write(silence.starts_at),
        "endsAt": times::write(silence.ends_at),
        "updatedAt": times::write(silence.updated_at),
        "createdBy": silence.created_by,
        "comment": silence.comment,
        "annotations": silence.annotations,
    })
}

/// A UUID of version 4.
fn new_id() -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let word = || RandomState::new().build_hasher().finish();
    let (high, low) = (word(), word());
    let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, high & 0x0fff);
    let (d, e) = ((low >> 48) & 0x3fff | 0x8000, low & 0xffff_ffff_ffff);
    format!("{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{e:012x}")
}
