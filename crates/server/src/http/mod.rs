//! The HTTP API: one generic handler for all questions, imports, Prometheus' API, and the access check.

mod access;
mod compress;
mod connections;
mod error;
mod headers;
mod import;
mod listen;
mod prometheus;
mod questions;
mod request_line;

pub use access::{Access, check};
pub(crate) use connections::{Connections, client_of};
pub use error::{ErrorBody, ErrorKind};
pub(crate) use headers::protect;
pub(crate) use listen::serve;
pub use prometheus::{QueryAnswer, QueryData, QueryQuestion, Scraping};

use crate::answers::{AnswerConfig, AnswerError, IMPORT_PATH};
use axum::Router;
use axum::extract::{Json, State};
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use prometheus_client::registry::Registry;
use std::sync::Arc;
use takt_model::exposition::Format;
use takt_store::Store;

/// State of the handlers.
#[derive(Debug, Clone)]
pub struct App {
    /// The server's store.
    pub store: Arc<Store>,
    /// Configuration of the answers.
    pub config: Arc<AnswerConfig>,
    /// The server's own metrics, for `/metrics`.
    pub registry: Arc<Registry>,
    /// Scraped targets.
    pub scraping: Arc<dyn Scraping>,
    /// Start of the server.
    pub started: jiff::Timestamp,
}

/// The routes of the API. The caller adds [`check`], without which the questions answer nobody.
pub fn router(app: App) -> Router {
    Router::new()
        .route(IMPORT_PATH, post(import::post_import))
        .route("/-/healthy", get(healthy))
        .route("/-/ready", get(healthy))
        .route("/metrics", get(metrics))
        .with_state(app.clone())
        .merge(questions::router(app.clone()))
        .merge(prometheus::router(app))
        .layer(axum::middleware::from_fn(compress::compress))
}

/// A server whose database fails is not healthy, even if other parts still work.
async fn healthy(State(app): State<App>) -> Result<Json<&'static str>, AnswerError> {
    blocking(move || {
        let db = app.store.database().connect()?;
        db.execute_batch("SELECT 1 FROM records.schema_version")
            .map_err(AnswerError::failed)?;
        Ok("ok")
    })
    .await
}

async fn metrics(State(app): State<App>) -> Result<impl IntoResponse, AnswerError> {
    let mut page = String::new();
    prometheus_client::encoding::text::encode(&mut page, &app.registry)
        .map_err(AnswerError::failed)?;
    Ok((
        [(header::CONTENT_TYPE, Format::OpenMetrics.content_type())],
        page,
    ))
}

/// Runs `answer`, which may wait for DuckDB, on a thread for blocking work.
async fn blocking<T: Send + 'static>(
    answer: impl FnOnce() -> Result<T, AnswerError> + Send + 'static,
) -> Result<Json<T>, AnswerError> {
    let answer = tokio::task::spawn_blocking(answer).await;
    answer.map_err(AnswerError::failed)?.map(Json)
}
