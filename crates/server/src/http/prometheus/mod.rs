//! Prometheus' HTTP API, version 1, for Grafana's data source, promtool and scripts.
//!
//! Every answer is `{"status": …}`; parameters come in the query string or as a form. Where Prometheus 2 and 3 differ, this
//! is Prometheus 3. The endpoints of rules and exemplars exist and answer with empty lists: Grafana calls them when a data
//! source is set up.

mod answer;
mod federate;
mod labels;
mod params;
mod query;
mod status;
mod targets;
mod write;

pub use query::{QueryAnswer, QueryData, QueryQuestion};
pub use targets::Scraping;

use super::{App, AppParts, GuardedRouter};
use answer::{Answer, ApiError};
use axum::routing::get;
use std::sync::Arc;
use takt_access::{Need, RouteNeeds, Viewer};
use tokio::sync::Semaphore;

const QUERY: &str = "/api/v1/query";
const QUERY_RANGE: &str = "/api/v1/query_range";
const EXEMPLARS: &str = "/api/v1/query_exemplars";
const FORMAT: &str = "/api/v1/format_query";
const PARSE: &str = "/api/v1/parse_query";
const SERIES: &str = "/api/v1/series";
const LABELS: &str = "/api/v1/labels";

/// State of the handlers.
#[derive(Debug, Clone)]
struct Api {
    app: App,
    /// One permit per concurrent evaluation; other queries wait, within their timeout.
    queries: Arc<Semaphore>,
}

/// The routes.
pub(super) fn router(app: App) -> GuardedRouter {
    let samples = RouteNeeds::read(Need::Samples);
    let page = RouteNeeds::get(Need::Samples);
    let harmless = RouteNeeds::read(Need::SignedIn);
    let queries = Arc::new(Semaphore::new(app.config().query.max_concurrency));
    let api = Api { app, queries };
    GuardedRouter::new()
        .route(QUERY, samples, get(query::instant).post(query::instant))
        .route(QUERY_RANGE, samples, get(query::range).post(query::range))
        .route(
            EXEMPLARS,
            samples,
            get(query::exemplars).post(query::exemplars),
        )
        .route(FORMAT, harmless, get(query::format).post(query::format))
        .route(PARSE, harmless, get(query::parse).post(query::parse))
        .route(SERIES, samples, get(labels::series).post(labels::series))
        .route(LABELS, samples, get(labels::names).post(labels::names))
        .route("/api/v1/label/{name}/values", page, get(labels::values))
        .route("/federate", page, get(federate::federate))
        .route("/api/v1/metadata", page, get(targets::metadata))
        .route("/api/v1/targets", page, get(targets::targets))
        .route("/api/v1/targets/metadata", page, get(targets::of_targets))
        .route("/api/v1/scrape_pools", page, get(targets::scrape_pools))
        .route(
            "/api/v1/alertmanagers",
            harmless,
            get(status::alertmanagers),
        )
        .route(
            "/api/v1/status/buildinfo",
            harmless,
            get(status::build_info),
        )
        .route(
            "/api/v1/status/runtimeinfo",
            page,
            get(status::runtime_info),
        )
        .route("/api/v1/status/config", page, get(status::config))
        .route("/api/v1/status/flags", page, get(status::flags))
        .route("/api/v1/status/tsdb", page, get(status::tsdb))
        .route(
            "/api/v1/status/walreplay",
            harmless,
            get(status::wal_replay),
        )
        .route(
            "/api/v1/notifications",
            harmless,
            get(status::notifications),
        )
        .with_state(api)
}

impl Api {
    /// Runs `ask`, which may read the disk, on a thread for blocking work.
    async fn blocking<T: Send + 'static>(
        &self,
        viewer: &Viewer,
        ask: impl FnOnce(&AppParts) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let app = Arc::clone(self.app.of(viewer));
        tokio::task::spawn_blocking(move || ask(&app))
            .await
            .map_err(|error| ApiError::internal(&error))?
    }
}

/// Result of a handler.
type Reply = Result<Answer, ApiError>;
