//! A plain HTTP/1.1 connection to one target, kept open between scrapes.
//!
//! Every scrape of a target sends the same small request and receives one page. A general client
//! (reqwest, which serves every other kind of target) runs a task for each connection, and that
//! task wakes the scrape for every part of the response. For pages of a few hundred samples, these
//! wake-ups were most of the cost of ingestion. Here the scrape task itself reads the response into
//! the buffer that the parser reads.

use super::lookup;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Maximum length of a response's head, in bytes.
const MAX_HEAD: usize = 64 << 10;
const MAX_HEADERS: usize = 64;
/// Bytes to read at once if the body's length is unknown.
const PIECE: usize = 16 << 10;
/// Maximum number of bytes to reserve at once: a response may be shorter than its stated length.
const MOST: usize = 1 << 20;
/// Maximum length of the line that begins a chunk, in bytes.
const MAX_CHUNK_LINE: usize = 4 << 10;

/// The connection to one target.
#[derive(Debug)]
pub(super) struct Connection {
    host: String,
    port: u16,
    stream: Option<TcpStream>,
}

/// The response of a target.
#[derive(Debug)]
pub(super) struct TargetResponse {
    pub status: u16,
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    pub body: Vec<u8>,
}

/// The reason for a failed request.
#[derive(Debug)]
pub(super) enum ConnectionError {
    /// The connection failed, or it broke before a response began.
    Unreachable(io::Error),
    /// The response ended early.
    Interrupted { received: usize, source: io::Error },
    /// The response exceeds the limit.
    TooLarge,
}

/// How the end of a body is recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyEnd {
    Length(u64),
    Chunks,
    Close,
}

#[derive(Debug)]
struct Head {
    status: u16,
    content_type: Option<String>,
    content_encoding: Option<String>,
    end: BodyEnd,
    stays_open: bool,
    /// Length of the head in bytes, with the empty line.
    length: usize,
}

impl Connection {
    /// Creates a connection that opens with the first request.
    pub fn new(host: &str, port: u16) -> Self {
        Self {
            host: host.to_owned(),
            port,
            stream: None,
        }
    }

    /// Closes the connection. The next request opens it again.
    pub fn close(&mut self) {
        self.stream = None;
    }

    /// Sends a request and reads the response. The body is read only if the status is 200 to 299.
    /// `expected_bytes` is the expected size of the body.
    ///
    /// Fails if the target is unreachable, the response is malformed or ends early, or its body
    /// exceeds `limit`.
    pub async fn get(
        &mut self,
        request: &[u8],
        limit: u64,
        expected_bytes: usize,
    ) -> Result<TargetResponse, ConnectionError> {
        // `take` drops the connection if this exchange fails or is aborted at its deadline.
        if let Some(stream) = self.stream.take() {
            match self.exchange(stream, request, limit, expected_bytes).await {
                // The server may close an idle connection at any time. Connect again.
                Err(ConnectionError::Unreachable(_)) => {}
                done => return done,
            }
        }

        let stream = lookup::connect(&self.host, self.port)
            .await
            .map_err(ConnectionError::Unreachable)?;
        stream
            .set_nodelay(true)
            .map_err(ConnectionError::Unreachable)?;

        self.exchange(stream, request, limit, expected_bytes).await
    }

    async fn exchange(
        &mut self,
        mut stream: TcpStream,
        request: &[u8],
        limit: u64,
        expected_bytes: usize,
    ) -> Result<TargetResponse, ConnectionError> {
        stream
            .write_all(request)
            .await
            .map_err(ConnectionError::Unreachable)?;

        // The expected size is that of the last page, so the buffer seldom has to grow.
        let mut body = Vec::with_capacity(expected_bytes + PIECE);
        let head = read_head(&mut stream, &mut body)
            .await
            .map_err(ConnectionError::Unreachable)?;

        body.drain(..head.length);
        let Head {
            status,
            content_type,
            content_encoding,
            end,
            stays_open,
            ..
        } = head;

        // The rest of an error's response stays unread, so its connection cannot be used again.
        if !(200..300).contains(&status) {
            return Ok(TargetResponse {
                status,
                content_type,
                content_encoding,
                body: Vec::new(),
            });
        }

        let left_over = match end {
            BodyEnd::Length(length) if length > limit => return Err(ConnectionError::TooLarge),
            BodyEnd::Length(length) => read_length(&mut stream, &mut body, length).await?,
            BodyEnd::Chunks => read_chunks(&mut stream, &mut body, limit).await?,
            BodyEnd::Close => read_to_close(&mut stream, &mut body, limit).await?,
        };

        // Bytes after the response belong to no request, so such a connection is not kept.
        if stays_open && left_over == 0 && end != BodyEnd::Close {
            self.stream = Some(stream);
        }

        Ok(TargetResponse {
            status,
            content_type,
            content_encoding,
            body,
        })
    }
}

async fn read_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Head> {
    loop {
        if more(stream, buffer, PIECE).await? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the connection was closed before an answer",
            ));
        }
        // Skip informational responses (1xx).

        while let Some(head) = parse_head(buffer)? {
            if (100..200).contains(&head.status) {
                buffer.drain(..head.length);
            } else {
                return Ok(head);
            }
        }

        if buffer.len() > MAX_HEAD {
            return Err(wrong("the answer's headers are longer than 64 KiB"));
        }
    }
}

fn parse_head(bytes: &[u8]) -> io::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(wrong(format!("the answer is not HTTP: {error}"))),
    };

    let all = |name: &str| {
        response
            .headers
            .iter()
            .filter(move |header| header.name.eq_ignore_ascii_case(name))
            .map(|header| String::from_utf8_lossy(header.value).trim().to_owned())
            .collect::<Vec<_>>()
    };

    // A header may repeat, and each of its values may be a list.
    let has = |name: &str, word: &str| {
        all(name)
            .iter()
            .flat_map(|value| value.split(','))
            .any(|one| one.trim().eq_ignore_ascii_case(word))
    };

    let status = response.code.unwrap_or_default();

    // The same length twice is harmless. Two lengths could make a part of the body look like the next response.
    let mut lengths = all("content-length");
    lengths.dedup();
    let end = match &lengths[..] {
        _ if status == 204 => BodyEnd::Length(0),
        // As RFC 9112 requires, chunks win over a content length.
        _ if has("transfer-encoding", "chunked") => BodyEnd::Chunks,
        [] => BodyEnd::Close,
        [one] => BodyEnd::Length(
            one.parse()
                .map_err(|_| wrong(format!("the answer's content length is {one:?}")))?,
        ),
        _ => return Err(wrong("the answer has two content lengths")),
    };

    // HTTP/1.0 closes the connection unless both sides agree to keep it.
    let stays_open = response.version == Some(1) && !has("connection", "close");
    let first = |name| all(name).into_iter().next();
    let content_type = first("content-type");
    let content_encoding = first("content-encoding");

    Ok(Some(Head {
        status,
        content_type,
        content_encoding,
        end,
        stays_open,
        length,
    }))
}

/// Reads a body of a known length. Returns the number of bytes received after it.
async fn read_length(
    stream: &mut TcpStream,
    body: &mut Vec<u8>,
    length: u64,
) -> Result<usize, ConnectionError> {
    let length = usize::try_from(length).map_err(|_| ConnectionError::TooLarge)?;
    while body.len() < length {
        let missing = length - body.len();
        fill(stream, body, missing.min(MOST), 0).await?;
    }

    let left_over = body.len() - length;
    body.truncate(length);
    Ok(left_over)
}

async fn read_to_close(
    stream: &mut TcpStream,
    body: &mut Vec<u8>,
    limit: u64,
) -> Result<usize, ConnectionError> {
    while body.len() as u64 <= limit {
        let read = more(stream, body, PIECE).await;
        if read.map_err(|source| ConnectionError::Interrupted {
            received: body.len(),
            source,
        })? == 0
        {
            return Ok(0);
        }
    }

    Err(ConnectionError::TooLarge)
}

/// Reads a chunked body. Joins the chunks in place: the unread bytes are always behind the joined
/// ones.
async fn read_chunks(
    stream: &mut TcpStream,
    body: &mut Vec<u8>,
    limit: u64,
) -> Result<usize, ConnectionError> {
    // The first `done` bytes are the joined chunks; the line of the next chunk begins at `next`.
    let mut done = 0;
    let mut next = 0;
    loop {
        let (line, size) = loop {
            let interrupted = |source| ConnectionError::Interrupted {
                received: done,
                source,
            };
            match httparse::parse_chunk_size(&body[next..]) {
                Ok(httparse::Status::Complete(found)) => break found,
                Ok(httparse::Status::Partial) if body.len() - next < MAX_CHUNK_LINE => {
                    fill(stream, body, PIECE, done).await?;
                }
                _ => return Err(interrupted(wrong("a chunk has no size"))),
            }
        };

        // No page exceeds 4 GiB, whatever the limit. So sums of sizes cannot overflow.
        if size > limit.min(u64::from(u32::MAX)).saturating_sub(done as u64) {
            return Err(ConnectionError::TooLarge);
        }

        let begin = next + line;
        let size = size as usize;
        if size == 0 {
            let left_over = skip_trailers(stream, body, begin, done).await?;
            body.truncate(done);
            return Ok(left_over);
        }

        let end = begin + size;
        // The two bytes more are the line end behind each chunk.
        while body.len() < end + 2 {
            let missing = end + 2 - body.len();
            // Count the received part of an incomplete chunk, too.
            fill(
                stream,
                body,
                missing.clamp(PIECE, MOST),
                done + body.len().saturating_sub(begin).min(size),
            )
            .await?;
        }

        if &body[end..end + 2] != b"\r\n" {
            return Err(ConnectionError::Interrupted {
                received: done + size,
                source: wrong("a chunk is longer than its stated size"),
            });
        }

        body.copy_within(begin..end, done);
        done += size;
        next = end + 2;
    }
}

/// Skips the trailers up to the empty line. Returns the number of bytes received after it.
async fn skip_trailers(
    stream: &mut TcpStream,
    body: &mut Vec<u8>,
    begin: usize,
    received: usize,
) -> Result<usize, ConnectionError> {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let length = match httparse::parse_headers(&body[begin..], &mut headers) {
            Ok(httparse::Status::Complete((length, _))) => Ok(Some(length)),
            Ok(httparse::Status::Partial) => Ok(None),
            Err(error) => Err(error),
        };

        match length {
            Ok(Some(length)) => return Ok(body.len() - begin - length),
            Ok(None) if body.len() - begin < MAX_HEAD => {
                fill(stream, body, PIECE, received).await?;
            }
            _ => {
                return Err(ConnectionError::Interrupted {
                    received,
                    source: wrong("the end after the last chunk is missing"),
                });
            }
        }
    }
}

/// Reads more of a body, of which `before` bytes were already moved elsewhere. Fails if the
/// connection ends.
async fn fill(
    stream: &mut TcpStream,
    body: &mut Vec<u8>,
    room: usize,
    before: usize,
) -> Result<(), ConnectionError> {
    let received = if before > 0 { before } else { body.len() };

    match more(stream, body, room).await {
        Ok(1..) => Ok(()),
        Ok(_) => {
            let source = io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed");
            Err(ConnectionError::Interrupted { received, source })
        }
        Err(source) => Err(ConnectionError::Interrupted { received, source }),
    }
}

async fn more(stream: &mut TcpStream, buffer: &mut Vec<u8>, room: usize) -> io::Result<usize> {
    buffer.reserve(room);
    stream.read_buf(buffer).await
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Starts a server. Each inner list has the responses of one connection, which the server
    /// closes after the last one.
    fn server(connections: Vec<Vec<&'static str>>) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for answers in connections {
                let (mut stream, _) = listener.accept().unwrap();
                for answer in answers {
                    let mut request = Vec::new();
                    let mut byte = [0];
                    while !request.ends_with(b"\r\n\r\n")
                        && stream.read(&mut byte).is_ok_and(|read| read == 1)
                    {
                        request.push(byte[0]);
                    }
                    // Send small pieces, so that a read can end anywhere.
                    for piece in answer.as_bytes().chunks(7) {
                        let _ = stream.write_all(piece).and_then(|()| stream.flush());
                        std::thread::yield_now();
                    }
                }
            }
        });
        Connection::new("127.0.0.1", port)
    }

    /// Gets the page `times` times and returns the results as text.
    fn get(mut connection: Connection, times: usize, limit: u64) -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
        let mut one = || match runtime.block_on(connection.get(request, limit, 100)) {
            Ok(answer) => format!(
                "{} {}",
                answer.status,
                String::from_utf8(answer.body).unwrap()
            ),
            Err(ConnectionError::Unreachable(error)) => format!("unreachable: {error}"),
            Err(ConnectionError::Interrupted { received, source }) => {
                format!("interrupted after {received}: {source}")
            }
            Err(ConnectionError::TooLarge) => "too large".to_owned(),
        };
        (0..times).map(|_| one()).collect()
    }

    const PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\n";
    const CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                          3\r\na 1\r\n00b; x=\"y\"\r\n\nlonger 234\r\n0\r\nTrailer: x\r\n\r\n";

    #[test]
    fn every_kind_of_body_is_read_and_the_connection_kept() {
        let connection = server(vec![vec![
            PAGE,
            CHUNKS,
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-LENGTH: 1\r\n\r\nb",
            "HTTP/1.1 204 No Content\r\n\r\n",
            PAGE,
        ]]);
        assert_eq!(
            get(connection, 5, 100),
            [
                "200 a 1\n",
                "200 a 1\nlonger 234",
                "200 b",
                "204 ",
                "200 a 1\n"
            ]
        );
    }

    #[test]
    fn a_connection_that_cannot_be_kept_is_reopened() {
        // Each list is one connection, and the server never accepts more of them.
        let connection = server(vec![
            vec!["HTTP/1.0 200 OK\r\n\r\nuntil the end"],
            vec!["HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 1\r\n\r\nb"],
            vec!["HTTP/1.1 500 Oh\r\nContent-Length: 3\r\n\r\nwhy"],
            vec!["HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nc and what nobody asked for"],
            // The server closes the kept connection before the next request.
            vec![PAGE],
            vec![PAGE],
        ]);
        let expected = [
            "200 until the end",
            "200 b",
            "500 ",
            "200 c",
            "200 a 1\n",
            "200 a 1\n",
        ];
        assert_eq!(get(connection, 6, 100), expected);
    }

    #[test]
    fn invalid_responses_give_their_reason() {
        for (answer, expected) in [
            (
                "SSH-2.0-OpenSSH_9.2\r\n",
                "unreachable: the answer is not HTTP: invalid HTTP version",
            ),
            (
                "",
                "unreachable: the connection was closed before an answer",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
                "unreachable: the answer has two content lengths",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nab",
                "unreachable: the answer's content length is \"-1\"",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na 1\n",
                "interrupted after 4: the connection was closed",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na 1\n\r\n",
                "interrupted after 4: the connection was closed",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na 1\nb\r\n0\r\n\r\n",
                "interrupted after 4: a chunk is longer than its stated size",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
                "interrupted after 0: a chunk has no size",
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\n", "too large"),
            // Sums with this size would overflow 64 bits.
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
                "too large",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nffffffffffffffff\r\n",
                "too large",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1f\r\n",
                "too large",
            ),
            (
                "HTTP/1.1 200 OK\r\n\r\n0123456789012345678901234567890123456789",
                "too large",
            ),
        ] {
            assert_eq!(get(server(vec![vec![answer]]), 1, 30), [expected]);
        }
    }
}
