//! Accepting connections and speaking HTTP/1.1, with or without TLS, within the limits of
//! [`Connections`].

use super::connections::{ClosedConnections, Connections};
use crate::web_config::LiveConfig;
use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use takt_connections::{Connection, OpenConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// How often connections are checked against their time limits.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a shutdown waits for pages that are still being sent.
const LAST_PAGES: Duration = Duration::from_secs(2);
/// Memory for the head of a request; a longer head is refused.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Accepts and answers connections until `shutdown` ends, then finishes the answers under way.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<Arc<LiveConfig>>,
    connections: Arc<Connections>,
    shutdown: impl Future<Output = ()>,
) {
    let mut shutdown = pin!(shutdown);
    let mut check = tokio::time::interval(CHECK_INTERVAL);
    let (end, ended) = watch::channel(false);
    let mut tasks = JoinSet::new();

    loop {
        tokio::select! {
            () = &mut shutdown => break,
            _ = check.tick() => connections.close_overdue(Instant::now()),
            Some(_) = tasks.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    // A connection over the limits is closed without an answer.
                    if let Some(open) = connections.open(address.ip()) {
                        tasks.spawn(answer(stream, open, router.clone(), tls.clone(), ended.clone()));
                    }
                }
                Err(error) => connections.accept_failed(&error).await,
            },
        }
    }

    drop(listener);
    end.send_replace(true);

    let finish = async { while tasks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(LAST_PAGES, finish).await;
}

/// Answers the requests of one connection, until the client or a limit ends it.
async fn answer(
    stream: TcpStream,
    open: OpenConnection<ClosedConnections>,
    router: Router,
    tls: Option<Arc<LiveConfig>>,
    ended: watch::Receiver<bool>,
) {
    let connection = Arc::clone(&open.connection);

    let requests = async {
        let _ = stream.set_nodelay(true);
        let stream = WatchedStream {
            stream,
            connection: Arc::clone(&connection),
        };
        match tls {
            None => speak_http(stream, &connection, router, ended).await,
            Some(config) => {
                // The certificate as the file has it now.
                let Some(tls) = config.current().and_then(|config| config.tls.clone()) else {
                    return;
                };
                match TlsAcceptor::from(tls).accept(stream).await {
                    Ok(stream) => speak_http(stream, &connection, router, ended).await,
                    Err(error) => {
                        let client = connection.client;
                        tracing::debug!(%client, %error, "TLS handshake failed");
                    }
                }
            }
        }
    };

    tokio::select! {
        () = requests => {}
        () = connection.closed() => {}
    }
}

async fn speak_http(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    connection: &Arc<Connection>,
    router: Router,
    mut ended: watch::Receiver<bool>,
) {
    let router = TowerToHyperService::new(router);

    let service = service_fn(|mut request: Request<Incoming>| {
        connection.requested();
        let answering = Answering(Arc::clone(connection));
        request.extensions_mut().insert(Arc::clone(connection));
        let response = router.call(request);
        async move {
            let response: Response = response.await?;
            Ok::<_, Infallible>(response.map(|body| AnswerBody { body, answering }))
        }
    });

    let http = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut http = pin!(http);
    let mut is_ending = false;

    loop {
        tokio::select! {
            result = http.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(client = %connection.client, %error, "connection failed");
                }
                return;
            }
            _ = ended.wait_for(|ended| *ended), if !is_ending => {
                is_ending = true;
                http.as_mut().graceful_shutdown();
            }
        }
    }
}

/// A request that is being answered.
struct Answering(Arc<Connection>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answered();
    }
}

/// The body of an answer. Its connection knows which pieces the client has yet to read.
struct AnswerBody {
    body: axum::body::Body,
    answering: Answering,
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        let connection = &self.answering.0;

        let watched = |frame: Frame<Bytes>| {
            frame.map_data(|bytes| Bytes::from_owner(Piece::new(bytes, Arc::clone(connection))))
        };
        Poll::Ready(frame.map(|frame| frame.map(watched)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A piece of an answer, which is dropped when the kernel has taken it.
struct Piece {
    bytes: Bytes,
    connection: Arc<Connection>,
}

impl Piece {
    fn new(bytes: Bytes, connection: Arc<Connection>) -> Self {
        connection.sending();
        Self { bytes, connection }
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.connection.sent();
    }
}

/// A stream whose connection is notified of arriving bytes.
struct WatchedStream {
    stream: TcpStream,
    connection: Arc<Connection>,
}

impl AsyncRead for WatchedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.connection.received();
        }
        result
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
