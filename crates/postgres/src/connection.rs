//! The messages of one connection, from TLS to the end, with limits on what a client may send.
//!
//! pgwire reads messages of up to 1 GiB, also from clients that are not logged in. Here the number
//! of bytes that the server reads for one message is limited, by little before the login.

use super::auth::TOO_MANY_CLIENTS;
use super::session::{PreparedStatement, Sessions};
use futures_util::{SinkExt, StreamExt};
use pgwire::api::{ClientInfo, METADATA_USER, PgWireServerHandlers};
use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use pgwire::tokio::TlsAcceptor;
use pgwire::tokio::server::{
    MaybeTls, PgWireMessageServerCodec, negotiate_tls, process_error, process_message,
};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use takt_connections::Connection;
use takt_identity::Access;
use takt_store::{HeldMemory, MemoryUse};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time;
use tokio_util::codec::{Framed, FramedParts};

/// Bytes that are read for one message before the login.
const LOGIN_BYTES_MAX: usize = 64 << 10;

/// Bytes that are read for one message of a client that is logged in.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Copies of a message in memory: as received, as decoded, and the room of a buffer that doubles.
const MESSAGE_COPIES: usize = 3;

/// Memory for a message is taken in steps of so many bytes.
const MESSAGE_STEP_BYTES: u64 = 256 << 10;

/// Time for a client to read why it is refused.
const REFUSAL_TIME: Duration = Duration::from_secs(5);

type Socket = Framed<LimitedStream, PgWireMessageServerCodec<PreparedStatement>>;

/// The reason why the server ended a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    /// The client did not log in within the limit.
    #[error("the client did not log in in time")]
    LoginTimeout,
    /// The client did not read, or gave way to another before its login.
    #[error("the client did not read its rows, or gave way to another before its login")]
    Closed,
    /// The password is wrong, or the client may not connect.
    #[error("the login of {user:?} failed")]
    LoginFailed {
        /// Name that the client gave.
        user: String,
        /// Cause.
        #[source]
        source: PgWireError,
    },
    /// The client sent something that is not a message, or too large a one.
    #[error("the client sent an invalid message")]
    Malformed(#[source] PgWireError),
    /// There is no memory for a message.
    #[error("there is no memory for a message of the client")]
    NoMemory(#[source] io::Error),
    /// A message cannot be decoded.
    #[error("a message of the client cannot be decoded")]
    Undecodable,
    /// The connection broke.
    #[error("the connection broke")]
    Broken(#[from] io::Error),
}

impl ConnectionError {
    /// Value of the label `reason`. `None` if the server did not decide to end the connection.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Self::LoginTimeout => Some("login_timeout"),
            Self::LoginFailed { source, .. } if source.code() == TOO_MANY_CLIENTS => Some("limit"),
            Self::LoginFailed { .. } => Some("login_failed"),
            Self::Malformed(_) | Self::Undecodable => Some("malformed"),
            Self::NoMemory(_) => Some("memory"),
            // Counted as it is closed.
            Self::Closed | Self::Broken(_) => None,
        }
    }
}

/// An error while reading a message.
fn unread(error: PgWireError) -> ConnectionError {
    match error {
        PgWireError::IoError(error) => match error.kind() {
            // `LimitedStream` reports its two limits through these kinds.
            io::ErrorKind::InvalidData => ConnectionError::Malformed(error.into()),
            io::ErrorKind::OutOfMemory => ConnectionError::NoMemory(error),
            _ => ConnectionError::Broken(error),
        },
        error => ConnectionError::Malformed(error),
    }
}

/// Serves a connection until the client ends it.
///
/// # Errors
/// If the login fails, a message is malformed or too large, or the connection breaks.
pub(super) async fn serve(
    socket: TcpStream,
    tls: Option<TlsAcceptor>,
    sessions: Sessions,
    access: Access,
) -> Result<(), ConnectionError> {
    let address = socket.peer_addr()?.ip();
    let has_passwords = sessions.auth.has_passwords();
    let mut socket = begin(socket, tls, Arc::clone(&sessions.connection)).await?;

    let sessions = Arc::new(sessions);
    loop {
        let was_logged_in = sessions.logged_in.is_cancelled();
        // A new account for each message, because the user is only known after the login.
        let memory = was_logged_in.then(|| {
            let account = sessions.account(&socket);
            account.holder(MemoryUse::Statement)
        });

        if was_logged_in {
            // The time in which the last rows had to be read ends with the next message.
            sessions.connection.requested();
            sessions.connection.answers_from_memory();
        }

        begin_message(&mut socket, memory);
        let message = match socket.next().await {
            Some(Ok(PgWireFrontendMessage::Terminate(_))) | None => return Ok(()),
            Some(Ok(message)) => message,
            Some(Err(error)) => {
                let error = unread(error);
                if let ConnectionError::NoMemory(cause) = &error {
                    refuse_message(&mut socket, cause).await?;
                }
                return Err(error);
            }
        };

        // Before the check of the password: further guesses must not even learn whether they were
        // right.
        let proves_password = matches!(message, PgWireFrontendMessage::PasswordMessageFamily(_));
        if has_passwords && !was_logged_in && proves_password {
            check_guesses(&mut socket, &access, address).await?;
        }

        let is_cancel_request = matches!(message, PgWireFrontendMessage::CancelRequest(_));
        let is_extended = message.is_extended_query();
        let processed = process_message(
            message,
            &mut socket,
            Arc::clone(&sessions),
            Arc::clone(&sessions),
            Arc::clone(&sessions),
            sessions.copy_handler(),
            sessions.cancel_handler(),
        )
        .await;

        if !was_logged_in && sessions.logged_in.is_cancelled() && has_passwords {
            access.note_sql_password(&user(&socket), address, true);
        }

        match processed {
            // A request to cancel has a connection of its own, which PostgreSQL closes without an
            // answer.
            Ok(()) if is_cancel_request => return Ok(()),
            Ok(()) => {}
            Err(error) if was_logged_in => {
                let is_fatal = error.is_fatal();
                process_error(&mut socket, error, is_extended).await?;
                if is_fatal {
                    return Ok(());
                }
            }
            Err(error) => {
                if matches!(error, PgWireError::InvalidPassword(_)) {
                    access.note_sql_password(&user(&socket), address, false);
                }
                return Err(refuse(&mut socket, error).await?);
            }
        }
    }
}

/// Prepares for the next message. The memory of the last one is free, and so is its buffer, which
/// would stay as large as the largest message.
fn begin_message(socket: &mut Socket, memory: Option<HeldMemory>) {
    let stream = socket.get_mut();
    let was_large = stream.received > LOGIN_BYTES_MAX;
    stream.received = 0;
    stream.left = if memory.is_some() {
        MESSAGE_BYTES_MAX
    } else {
        LOGIN_BYTES_MAX
    };
    stream.memory = memory;

    if was_large {
        // A client may already have sent the beginning of its next message.
        let rest = socket.read_buffer().clone();
        *socket.read_buffer_mut() = rest;
    }
}

/// Tells the client why its message is not read.
async fn refuse_message(socket: &mut Socket, cause: &io::Error) -> io::Result<()> {
    let info = ErrorInfo::new("FATAL".to_owned(), "53200".to_owned(), cause.to_string());
    let refusal = PgWireBackendMessage::ErrorResponse(info.into());
    let sent = async {
        socket.send(refusal).await?;
        socket.close().await
    };
    // A client that sends and does not read would wait for ever.
    time::timeout(REFUSAL_TIME, sent).await.unwrap_or(Ok(()))
}

/// Negotiates TLS.
async fn begin(
    socket: TcpStream,
    tls: Option<TlsAcceptor>,
    connection: Arc<Connection>,
) -> Result<Socket, ConnectionError> {
    let no_tls = || io::Error::new(io::ErrorKind::InvalidData, "the server has no TLS");
    let old = negotiate_tls::<PreparedStatement>(socket, tls)
        .await?
        .ok_or_else(|| ConnectionError::Malformed(no_tls().into()))?
        .into_parts();
    // Around TLS: the limit counts the bytes of messages, after they are decrypted.
    let stream = LimitedStream {
        stream: old.io,
        left: LOGIN_BYTES_MAX,
        received: 0,
        memory: None,
        connection,
    };

    // Bytes that arrived with the negotiation are the first ones of the login.
    let mut parts = FramedParts::new(stream, old.codec);
    parts.read_buf = old.read_buf;
    parts.write_buf = old.write_buf;
    Ok(Framed::from_parts(parts))
}

/// Refuses further passwords after too many wrong ones.
async fn check_guesses(
    socket: &mut Socket,
    access: &Access,
    address: IpAddr,
) -> Result<(), ConnectionError> {
    if access.admits_sql_password(&user(socket), address) {
        return Ok(());
    }
    let info = ErrorInfo::new(
        "FATAL".to_owned(),
        "28P01".to_owned(),
        "too many wrong passwords; try again in 15 minutes".to_owned(),
    );
    Err(refuse(socket, PgWireError::UserError(Box::new(info))).await?)
}

/// Sends an error to a client that is not logged in, and closes the connection.
async fn refuse(socket: &mut Socket, error: PgWireError) -> io::Result<ConnectionError> {
    let info = ErrorInfo::new(
        "FATAL".to_owned(),
        error.code().to_owned(),
        match &error {
            PgWireError::UserError(info) => info.message.clone(),
            error => error.to_string(),
        },
    );

    let user = user(socket);
    socket
        .send(PgWireBackendMessage::ErrorResponse(info.into()))
        .await?;
    socket.close().await?;
    Ok(ConnectionError::LoginFailed {
        user,
        source: error,
    })
}

/// Name that the client gave.
fn user(socket: &Socket) -> String {
    socket
        .metadata()
        .get(METADATA_USER)
        .cloned()
        .unwrap_or_default()
}

/// A connection that reads a limited number of bytes, and holds memory for them. A client that does
/// not read is noticed.
struct LimitedStream {
    stream: MaybeTls,
    left: usize,
    /// Bytes of the message that is being read.
    received: usize,
    /// `None` before the login.
    memory: Option<HeldMemory>,
    /// Is told whether the client reads.
    connection: Arc<Connection>,
}

impl LimitedStream {
    /// Holds memory for the bytes of a message that is not small.
    fn hold(&mut self) -> io::Result<()> {
        let Some(memory) = &mut self.memory else {
            return Ok(());
        };
        // Taken in steps: one request for each read would be thousands for a large message.
        let wanted = (MESSAGE_COPIES * self.received) as u64;
        if self.received <= LOGIN_BYTES_MAX || memory.bytes() >= wanted {
            return Ok(());
        }
        memory
            .try_grow(wanted - memory.bytes() + MESSAGE_STEP_BYTES)
            .map_err(|refusal| io::Error::new(io::ErrorKind::OutOfMemory, refusal))
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 {
            let error = io::Error::new(io::ErrorKind::InvalidData, "the message is too large");
            return Poll::Ready(Err(error));
        }

        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let received = buffer.filled().len() - before;
        self.left = self.left.saturating_sub(received);
        self.received += received;
        Poll::Ready(self.hold())
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.connection.wrote(&result);
        result
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        // TLS takes bytes before the kernel does.
        self.connection.writes(if result.is_pending() {
            Poll::Pending
        } else {
            Poll::Ready(0)
        });
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Connections, LIMITS, STALL_TIME, SqlMetrics};
    use super::*;
    use std::time::Instant;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_client_may_wait_but_has_to_read_its_rows() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).await.unwrap();
        let (socket, peer) = listener.accept().await.unwrap();
        let connections = Arc::new(Connections::new(LIMITS, SqlMetrics::default()));
        let open = connections.open(peer.ip()).unwrap();
        open.connection.requested();
        // A day of computing: a slow statement is no reason to close.
        connections.close_overdue(Instant::now() + Duration::from_secs(86_400));
        assert_eq!(connections.count(), 1);

        let mut stream = LimitedStream {
            stream: MaybeTls::Plain(socket),
            left: 0,
            received: 0,
            memory: None,
            connection: Arc::clone(&open.connection),
        };
        // More than the kernel's buffers take.
        let rows = vec![0; 64 << 20];
        let sent = time::timeout(Duration::from_millis(200), stream.write_all(&rows)).await;
        assert!(sent.is_err(), "the client does not read");
        connections.close_overdue(Instant::now() + STALL_TIME / 2);
        assert_eq!(connections.count(), 1);
        connections.close_overdue(Instant::now() + STALL_TIME * 2);
        assert_eq!(connections.count(), 0);
        open.connection.closed().await;
        drop(client);
    }
}
