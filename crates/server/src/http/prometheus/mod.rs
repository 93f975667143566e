//! Prometheus' HTTP API, version 1, for Grafana's data source, promtool and scripts.
//!
//! Every answer is `{"status": …}`; parameters come in the query string or as a form. Where Prometheus 2 and 3 differ, this
//! is Prometheus 3. `routes` lists the endpoints.

mod answer;
mod exemplars;
mod features;
mod federate;
mod labels;
mod openapi;
mod params;
mod query;
mod routes;
mod self_metrics;
mod status;
mod targets;
mod write;

pub use query::{QueryAnswer, QueryData, QueryQuestion};
pub use targets::Scraping;

use super::App;
use answer::{Answer, ApiError};
use axum::Router;
use std::sync::{Arc, LazyLock};
use tokio::sync::Semaphore;

const QUERY: &str = "/api/v1/query";
const QUERY_RANGE: &str = "/api/v1/query_range";

/// State of the handlers.
#[derive(Debug, Clone)]
struct Api {
    app: App,
    /// One permit per concurrent evaluation; other queries wait, within their timeout.
    queries: Arc<Semaphore>,
}

/// Whether no request to this path changes anything. Clients send long queries as forms, and a wrong method is no
/// attempt to change something.
pub(super) fn only_reads(path: &str) -> bool {
    static PATHS: LazyLock<Vec<&'static str>> =
        LazyLock::new(|| routes::all().iter().map(|route| route.path).collect());
    let fits = |known: &&str| match known.split_once("{name}") {
        Some((begin, end)) => path.starts_with(begin) && path.ends_with(end),
        None => *known == path,
    };
    PATHS.iter().chain(&OTHERS).any(fits)
}

/// Paths of other modules that change nothing.
const OTHERS: [&str; 6] = [
    "/api/v1/alerts",
    "/api/v1/rules",
    "/api/v2/alerts/groups",
    "/api/v2/receivers",
    "/api/v2/status",
    "/metrics",
];

/// The routes.
pub(super) fn router(app: App) -> Router {
    let queries = Arc::new(Semaphore::new(app.config.query.max_concurrency));
    let all = routes::all().into_iter();
    all.fold(Router::new(), |router, route| {
        router.route(route.path, route.handler)
    })
    .with_state(Api { app, queries })
}

impl Api {
    /// Runs `ask`, which may read the disk, on a thread for blocking work.
    async fn blocking<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&App) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let app = self.app.clone();
        tokio::task::spawn_blocking(move || ask(&app))
            .await
            .map_err(|error| ApiError::internal(&error))?
    }
}

/// Result of a handler.
type Reply = Result<Answer, ApiError>;
