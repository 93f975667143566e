//! Closing alerts by hand. Not part of Alertmanager's API.

use super::body::{self, Object};
use super::{ActedBy, Answer, Api, Refusal};
use crate::routing::matcher::{Matchers, parse_matcher};
use crate::state::Closing;
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// `POST /api/v2/alerts/close` with `filter` (a list of matchers), `createdBy` and `comment`;
/// answers with the labels of the closed alerts.
pub(super) async fn close(
    State(api): State<Api>,
    acted: Option<Extension<ActedBy>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Answer, Refusal> {
    let (matchers, mut closing) = asked(&body::read("close", &headers, &bytes)?)?;
    // The name that the server knows counts, whatever the request says.
    let Extension(acted) = acted.unwrap_or_default();
    closing.by = acted.name(&closing.by);

    let asked = matchers.to_string();

    let closed = api
        .handle
        .change(move |engine, now| {
            let (closed, batch) = engine.close(&matchers, &closing, now);
            (closed, batch)
        })
        .await?;
    if closed.is_empty() {
        return Err(Refusal::new(
            StatusCode::NOT_FOUND,
            "no active alert matches",
        ));
    }

    acted.note(format!("close {} alerts with {asked}", closed.len()));
    let labels = closed
        .iter()
        .map(|labels| labels.iter().collect::<BTreeMap<&str, &str>>());
    Ok(Answer(json!({"closed": labels.collect::<Vec<_>>()})))
}

fn asked(value: &Value) -> Result<(Matchers, Closing), Refusal> {
    let request = Object::of("close", String::new(), value)?;
    let filter = request.list("filter")?.unwrap_or_default();
    let mut matchers = Vec::new();
    for text in filter {
        let text = text
            .as_str()
            .ok_or_else(|| request.invalid(400, "filter", "must be a list of matchers"))?;
        matchers.push(parse_matcher(text).map_err(Refusal::bad)?);
    }
    // Without a condition every alert would be closed.
    if matchers.is_empty() {
        return Err(request.invalid(612, "filter", "should have at least 1 items"));
    }

    let by = request.text("createdBy")?;
    let by = request.required("createdBy", by)?.trim();
    let comment = request.text("comment")?;
    let comment = request.required("comment", comment)?.trim();
    for (field, text) in [("createdBy", by), ("comment", comment)] {
        if text.is_empty() {
            return Err(request.invalid(602, field, "is required"));
        }
    }

    let closing = Closing {
        by: by.to_owned(),
        comment: comment.to_owned(),
    };
    Ok((Matchers(matchers), closing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_and_why_are_required_and_so_is_a_filter() {
        let good = json!({
            "filter": ["alertname=GpuFellOffBus"],
            "createdBy": "ada",
            "comment": "reseated",
        });
        let (matchers, closing) = asked(&good).unwrap();
        assert_eq!(matchers.to_string(), r#"{alertname="GpuFellOffBus"}"#);
        assert_eq!(&*closing.by, "ada");
        assert_eq!(&*closing.comment, "reseated");

        for (field, value) in [
            ("filter", json!([])),
            ("filter", json!([1])),
            ("filter", json!(["("])),
            ("createdBy", json!(" ")),
            ("comment", json!("")),
            ("comment", Value::Null),
        ] {
            let mut bad = good.clone();
            bad[field] = value;
            let Refusal(status, _) = asked(&bad).unwrap_err();
            assert!(status.is_client_error(), "{bad}");
        }
    }
}
