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
mod selection;
mod self_metrics;
mod status;
mod targets;
mod write;

pub use query::{QueryAnswer, QueryData, QueryQuestion};
pub use targets::Scraping;

use super::{App, AppParts};
use answer::{Answer, ApiError};
use std::sync::Arc;
use takt_access::{RouteNeeds, Viewer};
use takt_identity::GuardedRouter;
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

/// The routes.
pub(super) fn router(app: App) -> GuardedRouter {
    let queries = Arc::new(Semaphore::new(app.config().query.max_concurrency));
    let all = routes::all().into_iter();
    // All of them only read, with any method: a wrong one is no attempt to change something.
    all.fold(GuardedRouter::new(), |router, route| {
        router.route(route.path, RouteNeeds::read(route.need), route.handler)
    })
    .with_state(Api { app, queries })
}

impl Api {
    /// Runs `ask`, which may read the disk, on a thread for blocking work.
    async fn blocking<T>(
        &self,
        viewer: &Viewer,
        ask: impl FnOnce(&AppParts) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError>
    where
        T: Send + 'static,
    {
        let app = Arc::clone(self.app.of(viewer));
        takt_store::spawn_blocking(move || ask(&app))
            .await
            .map_err(|error| ApiError::internal(&error))?
    }
}

/// Result of a handler.
type Reply = Result<Answer, ApiError>;
