//! Accepting connections and speaking HTTP/1.1, within the limits of [`Connections`].

use super::connections::{BODY_TIME, Connections, MIN_BYTES_PER_SECOND, OpenConnection};
use super::held::is_held;
use super::request_line::RequestLine;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{BoxError, Router};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::error::Error;
use std::io::{self, IoSlice};
use std::iter;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use takt_connections::{CHECK_INTERVAL, Connection};
use takt_identity::Peer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;
use tokio::time;
use tokio_util::sync::CancellationToken;

/// Memory for the head of a request; a longer head is refused. Long PromQL queries travel in it.
const MAX_HEAD_BYTES: usize = 256 << 10;

/// Accepts and answers connections until `stop` is cancelled, then finishes the requests in flight.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    connections: Arc<Connections>,
    stop: CancellationToken,
) {
    let mut check = time::interval(CHECK_INTERVAL);
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = check.tick() => connections.close_overdue(Instant::now()),
            Some(_) = tasks.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, address)) => {
                    // A connection over the limits is closed without an answer.
                    if let Some(open) = connections.open(address.ip()) {
                        // An answer is written in few pieces, and Nagle's algorithm would hold back
                        // the last one.
                        let _ = stream.set_nodelay(true);
                        let peer = Peer::of(address, stream.local_addr().ok());
                        tasks.spawn(answer(stream, peer, open, router.clone(), stop.clone()));
                    }
                }
                Err(error) => connections.accept_failed(&error).await,
            },
        }
    }

    // New clients are refused at once, while the requests in flight end.
    drop(listener);
    while tasks.join_next().await.is_some() {}
}

/// Accepts and answers connections of the Unix socket until `stop` is cancelled, then finishes the requests in flight.
pub async fn serve_socket(
    listener: UnixListener,
    router: Router,
    connections: Arc<Connections>,
    stop: CancellationToken,
) {
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = tasks.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let uid = stream.peer_cred().ok().map(|peer| peer.uid());
                    // The socket has no address; the loopback one stands for it in logs and rules.
                    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
                    let peer = Peer { address, uid, is_socket: true };
                    if let Some(open) = connections.open(client_of_uid(uid)) {
                        tasks.spawn(answer(stream, peer, open, router.clone(), stop.clone()));
                    }
                }
                Err(error) => connections.accept_failed(&error).await,
            },
        }
    }

    drop(listener);
    while tasks.join_next().await.is_some() {}
}

/// The client at the other end of the Unix socket, among those with addresses: each user is one,
/// and none is a client of the network.
fn client_of_uid(uid: Option<u32>) -> IpAddr {
    let [a, b, c, d] = uid.unwrap_or(u32::MAX).to_be_bytes();
    // 100::/8 is not allocated (RFC 4291), but for 100::/64, from which nobody sends (RFC 6666).
    IpAddr::from([1, 0, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
}

/// Answers the requests of one connection, until the client, a limit or the server's end ends it.
async fn answer<S>(
    stream: S,
    peer: Peer,
    open: OpenConnection,
    router: Router,
    stop: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let connection = Arc::clone(&open.connection);

    let stream = WatchedStream {
        stream,
        connection: Arc::clone(&connection),
        request_line: RequestLine::default(),
    };

    let router = TowerToHyperService::new(router);
    let service = service_fn(|request: Request<Incoming>| {
        connection.requested();
        let answering = Answering(Arc::clone(&connection));
        let upload = Arc::clone(&connection);
        let mut request = request.map(|body| {
            Body::new(RequestBody {
                body,
                connection: upload,
            })
        });

        request.extensions_mut().insert(peer);
        // Handlers give the connection its place, and an import more time.
        request.extensions_mut().insert(Arc::clone(&connection));

        let response = router.call(request);
        async move {
            let mut response: Response = response.await?;
            // Most handlers take the end of a slow upload for a damaged body.
            if answering.0.is_upload_ended() && is_of_body(response.status()) {
                response = too_slow();
            }
            // From here on, the client has a limited time to read.
            if is_held(&response) {
                answering.0.answers_from_memory();
            }
            Ok::<_, Infallible>(response.map(|body| AnswerBody {
                body,
                _answering: answering,
            }))
        }
    });

    let http = http1::Builder::new()
        // `Connections` has limits for all phases, heads included.
        .header_read_timeout(None)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut http = pin!(http);
    let mut is_ending = false;

    loop {
        tokio::select! {
            result = http.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(client = %peer.address, %error, "connection failed");
                }
                return;
            }
            () = connection.closed() => return,
            () = stop.cancelled(), if !is_ending => {
                is_ending = true;
                // The request in flight is answered; an idle connection ends at once.
                http.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Whether a handler may have answered so because of its request's body. A push says itself that
/// the body was slow.
fn is_of_body(status: StatusCode) -> bool {
    let is_error = status.is_client_error() || status.is_server_error();

    is_error && status != StatusCode::SERVICE_UNAVAILABLE
}

/// The answer to an upload that arrives too slowly.
fn too_slow() -> Response {
    // The rest of the body would be taken for the next request.
    let close = [(header::CONNECTION, "close")];
    (
        StatusCode::REQUEST_TIMEOUT,
        close,
        format!("{SlowUpload}\n"),
    )
        .into_response()
}

/// The error of a body that arrives too slowly.
#[derive(Debug, thiserror::Error)]
#[error(
    "the body arrived too slowly: expected {} bytes per second, and the whole of it within {} seconds (of an import, an hour)",
    MIN_BYTES_PER_SECOND,
    BODY_TIME.as_secs()
)]
pub(super) struct SlowUpload;

impl SlowUpload {
    /// Whether `error`, of reading a body, is one of these.
    pub fn caused(error: &(dyn Error + 'static)) -> bool {
        iter::successors(Some(error), |&error| error.source()).any(|error| error.is::<Self>())
    }
}

/// A request that is being answered.
struct Answering(Arc<Connection>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.answered();
    }
}

/// The body of an answer. The request is answered when it is dropped.
struct AnswerBody {
    body: Body,
    _answering: Answering,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a request, whose connection is notified when a handler waits for it.
struct RequestBody {
    body: Incoming,
    connection: Arc<Connection>,
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        let bytes = match &frame {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(frame.data_ref().map_or(0, Bytes::len)),
            Poll::Ready(_) => Poll::Ready(0),
            Poll::Pending => Poll::Pending,
        };
        if self.connection.uploads(bytes, context.waker()) {
            frame.map_err(BoxError::from)
        } else {
            Poll::Ready(Some(Err(SlowUpload.into())))
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.connection.upload_over();
    }
}

/// A stream whose connection is notified of arriving bytes, and of bytes that the client does not read.
struct WatchedStream<S> {
    stream: S,
    connection: Arc<Connection>,
    request_line: RequestLine,
}

impl<S> WatchedStream<S>
where
    S: AsyncRead + Unpin,
{
    /// Reads bytes of the first request line, which are escaped before hyper reads them.
    fn poll_request_line(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut some = self.request_line.give(buffer.remaining());
        // An empty result would mean the end of the stream, so bytes are read until some can be
        // given.
        if some.is_empty() {
            let mut bytes = [0; 1024];
            let mut arrived = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut arrived))?;
            self.request_line.take(arrived.filled());
            some = self.request_line.give(buffer.remaining());
        }
        buffer.put_slice(&some);
        Poll::Ready(Ok(()))
    }
}

impl<S> AsyncRead for WatchedStream<S>
where
    S: AsyncRead + Unpin,
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = if self.request_line.is_over() {
            Pin::new(&mut self.stream).poll_read(context, buffer)
        } else {
            self.poll_request_line(context, buffer)
        };
        if buffer.filled().len() > before {
            self.connection.received();
        }
        result
    }
}

impl<S> AsyncWrite for WatchedStream<S>
where
    S: AsyncWrite + Unpin,
{
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.connection.wrote(&result);
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.connection.wrote(&result);
        result
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
