//! `/api/v2/silences`: lists, creates and expires silences.

use super::body::{self, Object};
use super::{ActedBy, Answer, Api, Refusal, is_on, times, values};
use crate::routing::matcher::{MatchOp, Matcher, Matchers, parse_matcher};
use crate::routing::silence::{Silence, SilenceError, SilenceState};
use axum::body::Bytes;
use axum::extract::{Extension, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use takt_model::Timestamp;

type Pairs = Vec<(String, String)>;

pub(super) async fn list(
    State(api): State<Api>,
    Query(query): Query<Pairs>,
) -> Result<Answer, Refusal> {
    let mut wanted = Vec::new();
    for text in values(&query, "filter") {
        wanted.push(parse_matcher(text).map_err(Refusal::bad)?);
    }

    // As in Alertmanager, all states are shown unless a parameter turns one off.
    let hidden = [
        ("active", SilenceState::Active),
        ("expired", SilenceState::Expired),
        ("pending", SilenceState::Pending),
    ]
    .map(|(name, state)| (!is_on(&query, name)).then_some(state));
    let silences = api.handle.read(move |engine, now| {
        engine
            .router()
            .silences
            .list(now)
            .into_iter()
            .filter(|silence| {
                is_about(silence, &wanted) && !hidden.contains(&Some(silence.state(now)))
            })
            .map(|silence| shown(silence, now))
            .collect::<Vec<_>>()
    });
    Answer::of(&silences.await?)
}

/// Whether the silence has all requested matchers, compared as text.
fn is_about(silence: &Silence, wanted: &[Matcher]) -> bool {
    wanted.is_empty()
        || silence
            .matchers
            .iter()
            .any(|set| wanted.iter().all(|matcher| set.0.contains(matcher)))
}

pub(super) async fn get(State(api): State<Api>, Path(id): Path<String>) -> Result<Answer, Refusal> {
    let id = uuid(id)?;
    let missing = Refusal::new(StatusCode::NOT_FOUND, format!("silence {id} not found"));
    api.handle
        .read(move |engine, now| {
            engine
                .router()
                .silences
                .get(&id)
                .map(|silence| shown(silence, now))
        })
        .await?
        .map(Answer)
        .ok_or(missing)
}

/// The silence's id in a path.
fn uuid(id: String) -> Result<String, Refusal> {
    // The places of the dashes in a UUID.
    let is_part = |(at, c): (usize, char)| {
        if matches!(at, 8 | 13 | 18 | 23) {
            c == '-'
        } else {
            c.is_ascii_hexdigit()
        }
    };
    if id.len() == 36 && id.chars().enumerate().all(is_part) {
        Ok(id)
    } else {
        let message = format!("silenceID in path must be of type uuid: {id:?}");
        Err(Refusal::coded(
            StatusCode::UNPROCESSABLE_ENTITY,
            601,
            message,
        ))
    }
}

pub(super) async fn expire(
    State(api): State<Api>,
    acted: Option<Extension<ActedBy>>,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    let id = uuid(id)?;
    let words = api
        .handle
        .change(move |engine, now| {
            // Its matchers, for the audit log: afterwards only the id is known.
            let known = engine.router().silences.get(&id);
            let words = known.map_or_else(String::new, Silence::words);
            match engine.expire_silence(&id, now) {
                Ok(batch) => (Ok(words), batch),
                Err(error) => (Err(error), crate::Batch::default()),
            }
        })
        .await?
        .map_err(refused)?;

    let Extension(acted) = acted.unwrap_or_default();
    acted.note(format!("expire silence of {words}"));
    Ok(StatusCode::OK)
}

/// Reads a silence. Fields are checked in the contract's order, so the error names the same missing
/// field as Alertmanager's.
fn asked(value: &Value) -> Result<Silence, Refusal> {
    let silence = Object::of("silence", String::new(), value)?;

    let id = silence.text("id")?.unwrap_or_default();
    let annotations = silence.texts("annotations")?;
    let comment = silence.text("comment")?;
    let created_by = silence.text("createdBy")?;
    let ends_at = silence.instant("endsAt")?;
    let matchers = silence.list("matchers")?;
    let starts_at = silence.instant("startsAt")?;

    // All matchers are read before the first error, as Alertmanager's order of checks wants it.
    let mut read = Vec::new();
    for (place, value) in matchers.unwrap_or_default().iter().enumerate() {
        read.push(Object::of("silence", format!("matchers.{place}."), value)?);
    }

    let comment = silence.required("comment", comment)?.to_owned();
    let created_by = silence.required("createdBy", created_by)?.to_owned();
    let ends_at = silence.required("endsAt", ends_at)?.unwrap_or(ZERO);
    if silence.required("matchers", matchers)?.is_empty() {
        return Err(silence.invalid(612, "matchers", "should have at least 1 items"));
    }

    let matchers = read
        .iter()
        .enumerate()
        .map(|(place, one)| matcher(place, one))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Silence {
        id: id.to_owned(),
        matchers: vec![Matchers(matchers)],
        starts_at: silence.required("startsAt", starts_at)?.unwrap_or(ZERO),
        ends_at,
        updated_at: ZERO,
        created_by,
        comment,
        annotations: annotations.unwrap_or_default(),
    })
}

/// Go's zero time: before every valid time.
const ZERO: Timestamp = Timestamp(0);

fn matcher(place: usize, one: &Object<'_>) -> Result<Matcher, Refusal> {
    let is_regex = one.boolean("isRegex")?;
    let is_equal = one.boolean("isEqual")?.unwrap_or(true);
    let name = one.text("name")?;
    let value = one.text("value")?;

    let is_regex = one.required("isRegex", is_regex)?;
    let name = one.required("name", name)?;
    let value = one.required("value", value)?;
    let op = match (is_regex, is_equal) {
        (false, true) => MatchOp::Equal,
        (false, false) => MatchOp::NotEqual,
        (true, true) => MatchOp::Regex,
        (true, false) => MatchOp::NotRegex,
    };

    let invalid = |why: String| {
        Refusal::bad(format!(
            "silence invalid: invalid label matcher {place}: {why}"
        ))
    };
    match name {
        "" => Err(invalid("invalid label name \"\"".to_owned())),
        name => Matcher::new(name, op, value)
            .map_err(|_| invalid(format!("invalid regular expression {value:?}"))),
    }
}

pub(super) async fn set(
    State(api): State<Api>,
    acted: Option<Extension<ActedBy>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Answer, Refusal> {
    let mut wanted = asked(&body::read("silence", &headers, &bytes)?)?;

    let Extension(acted) = acted.unwrap_or_default();
    // The name that the server knows counts, whatever the request says.
    wanted.created_by = acted.name(&wanted.created_by);
    acted.note(format!("silence {}", wanted.words()));

    api.handle
        .change(
            move |engine, now| match engine.silence(wanted, &new_id(), now) {
                Ok((id, batch)) => (Ok(id), batch),
                Err(error) => (Err(error), crate::Batch::default()),
            },
        )
        .await?
        .map(|id| Answer(json!({"silenceID": id})))
        .map_err(refused)
}

fn refused(error: SilenceError) -> Refusal {
    match error {
        SilenceError::NotFound(_) => Refusal::new(StatusCode::NOT_FOUND, error),
        _ => Refusal::bad(error),
    }
}

fn shown(silence: &Silence, now: Timestamp) -> Value {
    let matchers = silence
        .matchers
        .iter()
        .flat_map(|set| &set.0)
        .map(|matcher| {
            let (is_regex, is_equal) = match matcher.op() {
                MatchOp::Equal => (false, true),
                MatchOp::NotEqual => (false, false),
                MatchOp::Regex => (true, true),
                MatchOp::NotRegex => (true, false),
            };
            json!({
                "name": matcher.name(),
                "value": matcher.value(),
                "isRegex": is_regex,
                "isEqual": is_equal,
            })
        });

    let mut shown = json!({
        "id": silence.id,
        "status": {"state": silence.state(now)},
        "matchers": matchers.collect::<Vec<_>>(),
        "startsAt": times::write(silence.starts_at),
        "endsAt": times::write(silence.ends_at),
        "updatedAt": times::write(silence.updated_at),
        "createdBy": silence.created_by,
        "comment": silence.comment,
    });
    if !silence.annotations.is_empty() {
        shown["annotations"] = json!(silence.annotations);
    }
    shown
}

/// Returns a random UUID (version 4), the id of a new silence.
pub fn new_id() -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // The keys of hash maps are the only random numbers in the standard library.
    let word = || RandomState::new().build_hasher().finish();
    let high = word();
    let low = word();

    let a = high >> 32;
    let b = (high >> 16) & 0xffff;
    let c = high & 0x0fff;
    // The two highest bits are `10`, the variant of RFC 4122.
    let d = (low >> 48) & 0x3fff | 0x8000;
    let e = low & 0xffff_ffff_ffff;
    format!("{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{e:012x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of Alertmanager 0.25 to the same requests.
    #[test]
    fn invalid_silences_are_refused_with_alertmanagers_codes() {
        let good = json!({
            "matchers": [{"name": "a", "value": "b", "isRegex": false}],
            "startsAt": "2026-01-01T00:00:00Z",
            "endsAt": "2026-01-02T00:00:00Z",
            "createdBy": "me",
            "comment": "c",
            "id": null,
        });

        assert!(asked(&good).is_ok());
        for (field, value, status, says) in [
            ("comment", Value::Null, 422, "comment in body is required"),
            (
                "createdBy",
                json!(1),
                400,
                "createdBy is a number, not a text",
            ),
            ("endsAt", Value::Null, 422, "endsAt in body is required"),
            ("endsAt", json!("x"), 400, "parsing silence body"),
            ("matchers", Value::Null, 422, "matchers in body is required"),
            (
                "matchers",
                json!([]),
                422,
                "matchers in body should have at least 1 items",
            ),
            (
                "matchers",
                json!({}),
                400,
                "matchers is an object, not a list",
            ),
            (
                "matchers",
                json!([{"name": "a", "value": "b"}]),
                422,
                "matchers.0.isRegex in body is required",
            ),
            (
                "matchers",
                json!([{"value": "b", "isRegex": true}]),
                422,
                "matchers.0.name in body is required",
            ),
            (
                "matchers",
                json!([{"name": "", "value": "b", "isRegex": true}]),
                400,
                "invalid label name",
            ),
            (
                "matchers",
                json!([{"name": "a", "value": "x**", "isRegex": true}]),
                400,
                "invalid regular expression",
            ),
            ("startsAt", Value::Null, 422, "startsAt in body is required"),
        ] {
            let mut bad = good.clone();
            bad[field] = value;
            let Refusal(code, said) = asked(&bad).unwrap_err();
            assert_eq!(code.as_u16(), status, "{bad}: {said}");
            assert!(said.to_string().contains(says), "{bad}: {said}");
        }

        assert!(uuid("0b7a6a3e-8f0e-4b0e-9d57-5d1f8f6f1c11".to_owned()).is_ok());
        assert_eq!(uuid("x".to_owned()).unwrap_err().0.as_u16(), 422);
    }
}
