//! Exemplars: examples of what samples count, such as the traces of slow requests.

use super::Api;
use super::answer::{Answer, ApiError};
use super::params::Params;
use super::write::write_exemplars;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use takt_identity::By;

/// `query_exemplars`: the exemplars of the series that the query selects. As in Prometheus, the answer to a query
/// without a selector is empty.
pub(super) async fn exemplars(
    State(api): State<Api>,
    By(viewer): By,
    params: Params,
) -> Result<Response, ApiError> {
    let (from, to) = params.times()?;
    if to < from {
        let error = "end timestamp must not be before start timestamp";
        return Err(ApiError::bad_data(error));
    }

    let selectors = takt_promql::parse(params.text("query"))
        .map_err(|error| ApiError::bad_data(error.to_string()))?
        .selectors();
    if selectors.is_empty() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }

    let answer = api
        .blocking(&viewer, move |app| {
            let found = app.store.exemplars(&selectors, from, to);
            let mut data = Vec::new();
            write_exemplars(&mut data, &found);
            Ok(Answer::json(data))
        })
        .await?
        .into_response();
    Ok(answer)
}
