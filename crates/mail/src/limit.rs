//! A connection with two limits on what the server sends.
//!
//! lettre keeps a whole line of a reply before it looks at its length, so a line without an end would
//! fill the memory: a session reads a limited number of bytes.
//!
//! lettre reads ahead and keeps what it has read when it begins TLS, so replies that an attacker adds
//! to the last one in clear text would count as encrypted ones: before TLS begins, this connection
//! hands out one byte at a time. TLS then finds the added bytes and fails.

use futures_io::{AsyncRead as _, AsyncWrite as _};
#[expect(
    deprecated,
    reason = "lettre has no other way to begin TLS at once over a stream of ours"
)]
use lettre::transport::smtp::client::AsyncNetworkStream;
use lettre::transport::smtp::client::{AsyncTokioStream, TlsParameters};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Bytes that a server may send in a session, certificates included. lettre reads a reply again from its
/// beginning with each line, so a reply of many lines costs the square of its length.
const SESSION_BYTES_MAX: usize = 64 << 10;

/// First byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;

/// A connection, and how much may still be read from it.
#[derive(Debug)]
pub(crate) struct LimitedStream {
    stream: TcpStream,
    left: usize,
    is_encrypted: bool,
}

impl LimitedStream {
    pub async fn connect(address: (&str, u16)) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        Ok(Self {
            stream,
            left: SESSION_BYTES_MAX,
            is_encrypted: false,
        })
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        // A read of more bytes in clear text could take replies that an attacker put behind the answer to STARTTLS.
        if self.is_encrypted {
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        } else {
            let mut byte = [0];
            let mut one = ReadBuf::new(&mut byte);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut one))?;
            buffer.put_slice(one.filled());
        }

        let read = buffer.filled().len() - before;
        self.left = self.left.checked_sub(read).ok_or_else(|| {
            io::Error::other(format!(
                "the server sends more than {SESSION_BYTES_MAX} bytes"
            ))
        })?;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        // SMTP commands begin with a letter, so this byte first appears when TLS begins.
        self.is_encrypted |= bytes.first() == Some(&HANDSHAKE);
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl AsyncTokioStream for LimitedStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }
}

/// A [`LimitedStream`] on which TLS began at once, as on port 465.
#[derive(Debug)]
#[expect(deprecated, reason = "as above")]
pub(crate) struct EncryptedStream(AsyncNetworkStream);

#[expect(deprecated, reason = "as above")]
impl EncryptedStream {
    /// Runs the TLS handshake.
    ///
    /// # Errors
    /// If the handshake fails or the server's certificate is refused.
    pub async fn begin(
        stream: LimitedStream,
        parameters: TlsParameters,
    ) -> Result<Self, lettre::transport::smtp::Error> {
        let mut stream = AsyncNetworkStream::use_existing_tokio1(Box::new(stream));
        stream.upgrade_tls(parameters).await?;
        Ok(Self(stream))
    }
}

impl AsyncRead for EncryptedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // lettre's stream reads into a slice, tokio's into a buffer that remembers how much it holds.
        let free = buffer.initialize_unfilled();
        let read = ready!(Pin::new(&mut self.0).poll_read(context, free))?;
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for EncryptedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_close(context)
    }
}

impl AsyncTokioStream for EncryptedStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr()
    }
}
