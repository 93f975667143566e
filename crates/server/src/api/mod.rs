//! The HTTP API, and the questions behind it, which a command asks of the files directly when no server runs.

mod access;
mod capacity;
mod compress;
mod fairshare;
mod near;
mod problem;
mod prometheus;
mod questions;
mod samples;
mod sheets;

pub use access::{Access, check};
pub use capacity::{CapacityAnswer, CapacityQuestion, Charge, capacity};
pub use fairshare::{
    FairshareAnswer, FairshareQuestion, configure_shares, fairshare, note_fairshare,
};
pub use problem::{Problem, ProblemKind};
pub use prometheus::{QueryAnswer, QueryData, QueryQuestion, Scraping, query};
pub use questions::{
    Counted, ImportFormat, ImportQuestion, JobsQuestion, LOCAL_CLUSTER, ListedRun, UsageQuestion,
    WhyWaiting, import, jobs, usage,
};
pub use samples::{DELETE_PATH, DeleteQuestion, SEAL_PATH, STAT_PATH, VERIFY_PATH, delete_samples};
pub use sheets::{
    ASSESS_PATH, AccountingConfig, AssessQuestion, CREDITS_PATH, CreditOrder, SENT_PATH,
    SHEETS_PATH, SentQuestion, SheetQuestion, assess, budgets_now, credit, credits, sent_reports,
    sheets,
};

use crate::QueryConfig;
use axum::Router;
use axum::body::Body;
use axum::extract::{Json, Query, State};
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use futures_util::StreamExt;
use prometheus_client::registry::Registry;
use std::fs::File;
use std::io::{Seek, Write};
use std::sync::Arc;
use takt_accounting::UsageReport;
use takt_model::exposition::Format;
use takt_store::sql::{self, Limits, Rows, SqlError};
use takt_store::{Database, ImportSummary, Store};

/// Where a SQL statement is posted.
pub const SQL_PATH: &str = "/api/takt/v1/sql";

/// Where the cluster's capacity is asked for.
pub const CAPACITY_PATH: &str = "/api/takt/v1/capacity";

/// Where fair share is asked for.
pub const FAIRSHARE_PATH: &str = "/api/takt/v1/fairshare";

/// Where the text of `sacct` or jobcomp is posted.
pub const IMPORT_PATH: &str = "/api/takt/v1/import";

/// What the routes answer from.
#[derive(Debug, Clone)]
pub struct App {
    /// The store of this server.
    pub store: Arc<Store>,
    /// How much one SQL statement may take.
    pub limits: Limits,
    /// How much one PromQL query may take.
    pub query: QueryConfig,
    /// What the server says of itself on `/metrics`.
    pub registry: Arc<Registry>,
    /// What is scraped.
    pub scraping: Arc<dyn Scraping>,
    /// How usage is priced and judged.
    pub accounting: Arc<AccountingConfig>,
    /// When the server began.
    pub started: jiff::Timestamp,
}

/// The routes of the API. Who may use them is [`check`]'s business.
pub fn router(app: App) -> Router {
    Router::new()
        .route("/api/takt/v1/report/usage", get(get_usage))
        .route(CAPACITY_PATH, get(get_capacity))
        .route(FAIRSHARE_PATH, get(get_fairshare))
        .route("/api/takt/v1/jobs", get(get_jobs))
        .route(SHEETS_PATH, get(sheets::get_sheets))
        .route(SENT_PATH, get(sheets::get_sent).post(sheets::post_sent))
        .route(
            CREDITS_PATH,
            get(sheets::get_credits).post(sheets::post_credit),
        )
        .route(ASSESS_PATH, post(sheets::post_assess))
        .route(SQL_PATH, post(post_sql))
        .route(IMPORT_PATH, post(post_import))
        .route("/-/healthy", get(healthy))
        .route("/-/ready", get(healthy))
        .route("/metrics", get(metrics))
        .with_state(app.clone())
        .merge(samples::router(app.clone()))
        .merge(prometheus::router(app))
        .layer(axum::middleware::from_fn(compress::compress))
}

async fn get_usage(
    State(app): State<App>,
    Query(question): Query<UsageQuestion>,
) -> Result<Json<UsageReport>, Problem> {
    blocking(app, move |database| usage(database, &question)).await
}

async fn get_capacity(
    State(app): State<App>,
    Query(question): Query<CapacityQuestion>,
) -> Result<Json<CapacityAnswer>, Problem> {
    blocking(app, move |database| capacity(database, &question)).await
}

async fn get_fairshare(
    State(app): State<App>,
    Query(question): Query<FairshareQuestion>,
) -> Result<Json<FairshareAnswer>, Problem> {
    blocking(app, move |database| fairshare(database, &question)).await
}

async fn get_jobs(
    State(app): State<App>,
    Query(question): Query<JobsQuestion>,
) -> Result<Json<Vec<ListedRun>>, Problem> {
    blocking(app, move |database| jobs(database, &question)).await
}

async fn post_sql(State(app): State<App>, statement: String) -> Result<Json<Rows>, Problem> {
    let limits = app.limits;
    blocking(app, move |database| {
        sql::run(database, &statement, limits).map_err(|error| match error {
            SqlError::Refused(_) | SqlError::Statement(_) => Problem::input(error),
            _ => Problem::failed(error),
        })
    })
    .await
}

/// The text is put down beside the data first: an import is one transaction, and a slow sender must not hold it open.
async fn post_import(
    State(app): State<App>,
    Query(question): Query<ImportQuestion>,
    body: Body,
) -> Result<Json<ImportSummary>, Problem> {
    let mut spool = tempfile::tempfile_in(app.store.path()).map_err(Problem::failed)?;
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        spool = write_all(spool, chunk.map_err(Problem::failed)?)
            .await
            .map_err(Problem::failed)?;
    }
    spool.rewind().map_err(Problem::failed)?;
    blocking(app, move |database| import(database, spool, &question)).await
}

async fn write_all(mut file: File, chunk: axum::body::Bytes) -> std::io::Result<File> {
    let written = tokio::task::spawn_blocking(move || file.write_all(&chunk).map(|()| file)).await;
    written.map_err(std::io::Error::other)?
}

/// A server that cannot ask its database is not healthy, whatever else still answers.
async fn healthy(State(app): State<App>) -> Result<Json<&'static str>, Problem> {
    blocking(app, |database| {
        let db = database.connect().map_err(Problem::failed)?;
        db.execute_batch("SELECT 1 FROM records.schema_version")
            .map_err(Problem::failed)?;
        Ok("ok")
    })
    .await
}

async fn metrics(State(app): State<App>) -> Result<impl IntoResponse, Problem> {
    let mut page = String::new();
    prometheus_client::encoding::text::encode(&mut page, &app.registry).map_err(Problem::failed)?;
    Ok((
        [(header::CONTENT_TYPE, Format::OpenMetrics.content_type())],
        page,
    ))
}

/// DuckDB blocks, so it is asked on a thread of its own.
async fn blocking<T: Send + 'static>(
    app: App,
    ask: impl FnOnce(&Database) -> Result<T, Problem> + Send + 'static,
) -> Result<Json<T>, Problem> {
    blocking_store(app, move |store| ask(store.database())).await
}

async fn blocking_store<T: Send + 'static>(
    app: App,
    ask: impl FnOnce(&Store) -> Result<T, Problem> + Send + 'static,
) -> Result<Json<T>, Problem> {
    let answer = tokio::task::spawn_blocking(move || ask(&app.store)).await;
    answer.map_err(Problem::failed)?.map(Json)
}
