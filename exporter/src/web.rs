//! The exporter's HTTP side.

use crate::collectors::Options;
use crate::events;
use crate::exporter::{Error, Exporter, Wanted};
use crate::options::WebOptions;
use crate::web_config::{TlsListener, guard};
use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::serve::ListenerExt;
use bytes::Bytes;
use std::future::Future;
use std::io;
use std::os::fd::FromRawFd;
use std::sync::Arc;
use std::time::Duration;
use takt_model::exposition::Format;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;

/// How long a shutdown waits for pages that are still being sent.
const LAST_PAGES: Duration = Duration::from_secs(2);

/// Starts the collectors and serves on the addresses of `options` until SIGINT or SIGTERM.
///
/// # Errors
/// When an address cannot be served on or the collectors cannot start.
pub async fn run(options: Options) -> Result<(), Error> {
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
        let (exporter, mut ended) = (exporter.clone(), ended.clone());
        servers.spawn(async move {
            exporter
                .serve(
                    listener,
                    async move { drop(ended.wait_for(|end| *end).await) },
                )
                .await
        });
    }
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

async fn listeners(options: &WebOptions) -> Result<Vec<TcpListener>, Error> {
    let mut listeners = Vec::new();
    if options.systemd_socket {
        let sockets = systemd_sockets()
            .and_then(|sockets| sockets.into_iter().map(TcpListener::from_std).collect());
        let failed = |source| Error::Listen {
            address: "the sockets of systemd".to_owned(),
            source,
        };
        return sockets.map_err(failed);
    }
    for address in &options.listen_address {
        let listener = listen(address).await;
        listeners.push(listener.map_err(|source| Error::Listen {
            address: address.clone(),
            source,
        })?);
    }
    Ok(listeners)
}

/// The sockets that whoever started us has opened, as `sd_listen_fds(3)` has them: so many, from number 3 on, and
/// meant for this process.
fn systemd_sockets() -> io::Result<Vec<std::net::TcpListener>> {
    const FIRST: i32 = 3;
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<i32>().ok())
    };
    let is_ours =
        number("LISTEN_PID").is_some_and(|pid| u32::try_from(pid) == Ok(std::process::id()));
    let count = number("LISTEN_FDS").filter(|count| is_ours && *count > 0);
    let count = count
        .ok_or_else(|| io::Error::other("LISTEN_PID and LISTEN_FDS name none for this process"))?;
    let sockets = (FIRST..FIRST.saturating_add(count)).map(|number| {
        // SAFETY: systemd gave us this number as an open socket, and nobody else in this process knows of it.
        let socket = unsafe { std::net::TcpListener::from_raw_fd(number) };
        socket.local_addr()?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        socket.set_nonblocking(true)?;
        Ok::<_, io::Error>(socket)
    });
    sockets.collect()
}

/// `:PORT` is every address, of both families where the system has both.
async fn listen(address: &str) -> io::Result<TcpListener> {
    match address.strip_prefix(':') {
        None => TcpListener::bind(address).await,
        Some(port) => match TcpListener::bind(format!("[::]:{port}")).await {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                TcpListener::bind(format!("0.0.0.0:{port}")).await
            }
            result => result,
        },
    }
}

impl Exporter {
    /// Serves until `shutdown` is over.
    ///
    /// # Errors
    /// When the listener fails for good.
    pub async fn serve(
        &self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Error> {
        let (end, mut ended) = watch::channel(());
        let tls = self.web_config().filter(|config| config.has_tls()).cloned();
        let exporter = self.clone();
        let shutdown = async move {
            shutdown.await;
            exporter.end();
            drop(end);
        };
        let router = self.router();
        let server = async move {
            match tls {
                Some(config) => {
                    axum::serve(TlsListener::new(listener, config), router)
                        .with_graceful_shutdown(shutdown)
                        .await
                }
                None => {
                    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
                    axum::serve(listener, router)
                        .with_graceful_shutdown(shutdown)
                        .await
                }
            }
        };
        let give_up = async move {
            while ended.changed().await.is_ok() {}
            tokio::time::sleep(LAST_PAGES).await;
        };
        tokio::select! {
            result = server => result.map_err(Error::Serve),
            () = give_up => Ok(()),
        }
    }

    /// The routes, for a server that has others too.
    pub fn router(&self) -> Router {
        let router = Router::new()
            .route(self.telemetry_path(), get(metrics))
            .route("/events", get(events::events))
            .route("/-/healthy", get(|| async { "Healthy.\n" }))
            .with_state(self.clone());
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
    headers: HeaderMap,
) -> Response {
    let Some(permit) = exporter.permit() else {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "too many scrapes at the same time\n",
        )
            .into_response();
    };
    let format = Format::negotiate(headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()));
    let refuse = |reason: String| (StatusCode::BAD_REQUEST, reason + "\n").into_response();
    let wanted = match wanted(query) {
        Ok(wanted) => wanted,
        Err(reason) => return refuse(reason.to_owned()),
    };
    match exporter.page(format, &wanted).await {
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

struct Page {
    text: String,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

fn wanted(query: Vec<(String, String)>) -> Result<Wanted, &'static str> {
    let (mut only, mut all_but) = (Vec::new(), Vec::new());
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
