//! Looking after the samples on disk: what there is, whether it is sound, sealing it now, deleting some of it.

use super::{App, Problem, blocking};
use axum::Router;
use axum::extract::{Json, Query, State};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use takt_store::{Kept, Stat, Store};

/// Where the blocks are listed.
pub const STAT_PATH: &str = "/api/takt/v1/store";

/// Where every block is read to its end.
pub const VERIFY_PATH: &str = "/api/takt/v1/store/verify";

/// Where a POST seals what is hot.
pub const SEAL_PATH: &str = "/api/takt/v1/store/seal";

/// Where a POST deletes series.
pub const DELETE_PATH: &str = "/api/takt/v1/store/delete";

/// Which samples are to be deleted?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteQuestion {
    /// A PromQL selector: `{node="g01"}`, `power_watts{gpu="3"}`.
    pub selector: String,
}

pub(super) fn router(app: App) -> Router {
    Router::new()
        .route(STAT_PATH, get(stat))
        .route(VERIFY_PATH, get(verify))
        .route(SEAL_PATH, post(seal))
        .route(DELETE_PATH, post(delete))
        .with_state(app)
}

/// Deletes what the selector matches.
///
/// # Errors
/// A selector that is none, or that would match everything; a disk that does not let go.
pub fn delete_samples(store: &Store, question: &DeleteQuestion) -> Result<Kept, Problem> {
    let matchers = takt_promql::selector(&question.selector).map_err(Problem::usage)?;
    store.delete(&matchers).map_err(Problem::failed)
}

async fn stat(State(app): State<App>) -> Result<Json<Stat>, Problem> {
    blocking(app, |database| database.stat().map_err(Problem::failed)).await
}

async fn verify(State(app): State<App>) -> Result<Json<Vec<String>>, Problem> {
    blocking(app, |database| {
        database.verify_blocks().map_err(Problem::failed)
    })
    .await
}

async fn seal(State(app): State<App>) -> Result<Json<Kept>, Problem> {
    let done = tokio::task::spawn_blocking(move || app.store.seal().map_err(Problem::failed)).await;
    done.map_err(Problem::failed)?.map(Json)
}

async fn delete(
    State(app): State<App>,
    Query(question): Query<DeleteQuestion>,
) -> Result<Json<Kept>, Problem> {
    let done = tokio::task::spawn_blocking(move || delete_samples(&app.store, &question)).await;
    done.map_err(Problem::failed)?.map(Json)
}
