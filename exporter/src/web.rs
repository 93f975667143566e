//! The exporter's HTTP side: routes, shutdown and signals.

mod connections;
mod events;
mod pages;
mod serve;
mod sockets;

pub(crate) use self::connections::{Connections, connections, report as report_connections};
pub(crate) use self::pages::{PageLimit, PagePermit};

use self::sockets::listeners;
use crate::collectors::Options;
use crate::exporter::{Error, Exporter, Visitor, Wanted};
use crate::web_config::guard;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use bytes::Bytes;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use takt_connections::Connection;
use takt_model::exposition::Format;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Seconds after which a refused scrape may come again.
const RETRY_SCRAPE: u64 = 1;

/// Starts the collectors and serves on the addresses of `options` until SIGINT or SIGTERM.
///
/// # Errors
/// When an address cannot be served on or the collectors cannot start.
pub async fn run(options: Options) -> Result<(), Error> {
    // An address that is in use fails before the first collector starts.
    let listeners = listeners(&options.web).await?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Serve)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Serve)?;
    let mut let_go = signal(SignalKind::user_defined1()).map_err(Error::Serve)?;
    let mut take_up = signal(SignalKind::user_defined2()).map_err(Error::Serve)?;

    let letting_go = options.shared.letting_go.clone();
    let exporter = Exporter::new(&options)?;

    let (end, ended) = watch::channel(false);

    let mut servers = JoinSet::new();
    for listener in listeners {
        if let Ok(address) = listener.local_addr() {
            let tls = exporter.web_config().is_some_and(|config| config.has_tls());
            tracing::info!(%address, tls, collectors = exporter.collectors().join(","), "serving");
        }

        let exporter = exporter.clone();
        let mut ended = ended.clone();
        servers.spawn(async move {
            exporter
                .serve(
                    listener,
                    async move { drop(ended.wait_for(|end| *end).await) },
                )
                .await
        });
    }

    // From here on only the servers hold the exporter, so that it ends with them.
    drop(exporter);

    loop {
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            _ = let_go.recv() => {
                letting_go.begin();
                tracing::info!("letting go of the GPUs' driver");
            }
            _ = take_up.recv() => {
                letting_go.end();
                tracing::info!("taking up the GPUs' driver again");
            }
            Some(Ok(Err(error))) = servers.join_next() => return Err(error),
        }
    }

    tracing::info!("ending");
    end.send_replace(true);
    while servers.join_next().await.is_some() {}
    Ok(())
}

impl Exporter {
    /// Serves until `shutdown` ends, and then for a moment longer, so that the pages under way are
    /// sent whole.
    ///
    /// # Errors
    /// None so far: a connection that fails ends alone.
    pub async fn serve(
        &self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Error> {
        let tls = self.web_config().filter(|config| config.has_tls()).cloned();

        // Streams of events have no end of their own, so they are ended here.
        let shutdown = async {
            shutdown.await;
            self.end();
        };

        let connections = Arc::clone(self.connections());
        serve::serve(listener, self.router(), tls, connections, shutdown).await;
        Ok(())
    }

    /// The routes, for a server that has others too.
    pub fn router(&self) -> Router {
        let router = Router::new()
            .route(self.telemetry_path(), get(metrics))
            .route("/events", get(events::events))
            .route("/-/healthy", get(|| async { "Healthy.\n" }))
            .with_state(self.clone());

        // With this path, the page itself is at the root.
        let router = match self.telemetry_path() {
            "/" => router,
            path => {
                let page = landing(path);
                router.route("/", get(move || async move { Html(page) }))
            }
        };

        match self.web_config() {
            Some(config) => router.layer(from_fn_with_state(Arc::clone(config), guard)),
            None => router,
        }
    }
}

/// The page that leads to the others; `telemetry_path` is plain.
fn landing(telemetry_path: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let metrics = telemetry_path.trim_start_matches('/');
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>takt-exporter</title><h1>takt-exporter {version}</h1>\
         <p><a href={metrics}>metrics</a>, <a href=events?after=0>events</a>\n"
    )
}

async fn metrics(
    State(exporter): State<Exporter>,
    Query(query): Query<Vec<(String, String)>>,
    connection: Option<Extension<Arc<Connection>>>,
    headers: HeaderMap,
) -> Response {
    let Some(permit) = exporter.permit(client(connection)).await else {
        let reason = "too many scrapes at the same time\n";
        return unavailable(RETRY_SCRAPE, reason);
    };

    let format = Format::negotiate(headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()));
    let refuse = |reason: String| (StatusCode::BAD_REQUEST, reason + "\n").into_response();
    let wanted = match wanted(query) {
        Ok(wanted) => wanted,
        Err(reason) => return refuse(reason.to_owned()),
    };

    let user_agent = headers.get(USER_AGENT).and_then(|name| name.to_str().ok());
    let visitor = Visitor::of_user_agent(user_agent);
    match exporter.page_for(visitor, format, &wanted).await {
        Ok(text) => {
            // The permit is given back when the page has been sent, not when it has been written.
            let body = Bytes::from_owner(Page {
                text,
                _permit: permit,
            });
            ([(CONTENT_TYPE, format.content_type())], Body::from(body)).into_response()
        }
        Err(error) => refuse(error.to_string()),
    }
}

/// The client's address. A request without one comes from a server that this module does not run.
pub(crate) fn client(connection: Option<Extension<Arc<Connection>>>) -> IpAddr {
    connection.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |connection| {
        connection.client
    })
}

/// Returns the answer to a client beyond the limit, which may retry after `seconds`.
pub(crate) fn unavailable(seconds: u64, reason: &'static str) -> Response {
    let headers = [(RETRY_AFTER, seconds)];
    (StatusCode::SERVICE_UNAVAILABLE, headers, reason).into_response()
}

struct Page {
    text: String,
    _permit: PagePermit,
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

fn wanted(query: Vec<(String, String)>) -> Result<Wanted, &'static str> {
    let mut only = Vec::new();
    let mut all_but = Vec::new();
    for (key, name) in query {
        match key.as_str() {
            "collect[]" => only.push(name),
            "exclude[]" => all_but.push(name),
            _ => {}
        }
    }
    match (only.is_empty(), all_but.is_empty()) {
        (true, true) => Ok(Wanted::All),
        (false, true) => Ok(Wanted::Only(only)),
        (true, false) => Ok(Wanted::AllBut(all_but)),
        (false, false) => Err("collect[] and exclude[] exclude each other"),
    }
}
