//! The HTTP API: one generic handler for all questions, imports, Prometheus' API, pushes of samples, and the connections
//! and bodies that carry them.

mod compress;
mod connections;
mod headers;
mod held;
mod import;
mod listen;
mod pages;
mod prometheus;
mod push;
mod questions;
mod request_line;
mod socket;

pub use compress::accepts_gzip;
pub use connections::{ConnectionMetrics, Connections, HTTP_FILES, connections};
pub use headers::protect;
pub use held::with_held_answers;
pub use listen::{serve, serve_socket};
pub use pages::{PageState, ReloadResult, Reloading};
pub use prometheus::{QueryAnswer, QueryData, QueryQuestion, Scraping};
pub use push::{Pushing, router as push_router};
pub use socket::listen_on_socket;
pub use socket::{SOCKET_FILE, is_trusted_socket, socket_path};

use axum::extract::{Json, State};
use axum::http::header;
use axum::middleware;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use prometheus_client::registry::Registry;
use std::sync::Arc;
use takt_access::{Need, Role, RouteNeeds, Viewer};
use takt_identity::{By, ErrorBody, GuardedRouter};
use takt_model::exposition::Format;
use takt_questions::{AnswerConfig, AnswerError, IMPORT_PATH};
use takt_store::Store;

/// State of the handlers. Only a viewer reaches its parts.
#[derive(Debug, Clone)]
pub struct App {
    parts: Arc<AppParts>,
}

impl App {
    /// Returns the state with these parts.
    pub fn new(parts: AppParts) -> Self {
        let parts = Arc::new(parts);
        Self { parts }
    }

    /// Returns the parts, for an answer to this viewer.
    pub fn of(&self, _viewer: &Viewer) -> &Arc<AppParts> {
        &self.parts
    }

    /// Returns the configuration of the answers.
    pub fn config(&self) -> &Arc<AnswerConfig> {
        &self.parts.config
    }
}

/// Parts of the handlers' state.
#[derive(Debug)]
pub struct AppParts {
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

/// The routes of the API. The caller adds the access check with [`takt_identity::guarded`]; without it they refuse every request.
pub fn router(app: App) -> GuardedRouter {
    let open = RouteNeeds::get(Need::Nothing);
    let memory = app.config().memory.clone();

    let router = GuardedRouter::new()
        .route(
            IMPORT_PATH,
            RouteNeeds::change(Role::Admin),
            post(import::post_import),
        )
        .route("/-/healthy", open, get(healthy))
        .route("/-/ready", open, get(healthy))
        .route("/metrics", RouteNeeds::read(Need::SignedIn), get(metrics))
        .with_state(app.clone())
        .merge(questions::router(app.clone()))
        .merge(prometheus::router(app));

    with_held_answers(router, memory)
        .map(|router| router.layer(middleware::from_fn(compress::compress)))
}

/// A server whose database fails is not healthy, even if other parts still work.
async fn healthy(State(app): State<App>) -> Result<Json<&'static str>, ErrorBody> {
    blocking(move || {
        let db = app.parts.store.database().connect()?;
        // A table of the store itself: a query without a table would not notice that the file is
        // gone.
        db.execute_batch("SELECT 1 FROM records.schema_version")
            .map_err(AnswerError::failed)?;
        Ok("ok")
    })
    .await
}

async fn metrics(State(app): State<App>, By(viewer): By) -> Result<impl IntoResponse, ErrorBody> {
    let mut page = String::new();
    prometheus_client::encoding::text::encode(&mut page, &app.of(&viewer).registry)
        .map_err(ErrorBody::failed)?;
    Ok((
        [(header::CONTENT_TYPE, Format::OpenMetrics.content_type())],
        page,
    ))
}

/// Runs `answer`, which may wait for DuckDB, on a thread for blocking work.
async fn blocking<T>(
    answer: impl FnOnce() -> Result<T, AnswerError> + Send + 'static,
) -> Result<Json<T>, ErrorBody>
where
    T: Send + 'static,
{
    let answered = takt_store::spawn_blocking(answer).await;
    Ok(Json(answered.map_err(ErrorBody::failed)??))
}
