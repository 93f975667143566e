//! Answers requests while the server starts.
//!
//! Reading the series of a large store takes seconds. Until then, every request is answered with 503, the time to try again, and
//! what the server waits for; a browser gets a page that loads again.

use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time;

/// Longest head of a request that is read.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Time for reading a request.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Seconds after which a client should try again.
const RETRY_AFTER_SECONDS: u64 = 3;

/// What a starting server waits for, as a sentence's end.
pub(crate) type Stage = &'static str;

/// Answers on a listener until it is dropped.
#[derive(Debug)]
pub(crate) struct OpeningPage {
    task: JoinHandle<()>,
    stage: watch::Sender<Stage>,
}

impl OpeningPage {
    /// Starts to answer.
    pub fn start(listener: TcpListener, first: Stage) -> Self {
        let (stage, current) = watch::channel(first);
        let task = tokio::spawn(async move {
            // A client that sends nothing holds only its own task, and for two seconds.
            while let Ok((stream, _)) = listener.accept().await {
                let stage = *current.borrow();
                tokio::spawn(async move { time::timeout(TIMEOUT, answer(stream, stage)).await });
            }
        });
        Self { task, stage }
    }

    /// From now on the server waits for this.
    pub fn enter(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }
}

impl Drop for OpeningPage {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut stream: TcpStream, stage: Stage) -> io::Result<()> {
    // The head is enough to know what to answer. Its body may be large and is thrown away below.
    let mut head = Vec::new();
    while head.len() < MAX_HEAD_BYTES && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();

    let (content_type, body) = body(&head, stage);
    let response = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
         Retry-After: {RETRY_AFTER_SECONDS}\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n",
        body.len()
    );

    stream.write_all(response.as_bytes()).await?;
    if !head.starts_with("head ") {
        stream.write_all(body.as_bytes()).await?;
    }
    stream.shutdown().await?;
    // Closing with unread bytes of a body would reset the connection, and the client would not see the answer.
    tokio::io::copy(&mut stream, &mut tokio::io::sink())
        .await
        .map(drop)
}

/// The type and the text of the answer: a page for browsers, the error of Prometheus' API, or plain text.
fn body(head: &str, stage: Stage) -> (&'static str, String) {
    let path = head.split(' ').nth(1).unwrap_or_default();
    let accepts = |line: &str| line.starts_with("accept:") && line.contains("text/html");
    if head.starts_with("get ") && head.lines().any(accepts) {
        let page = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
             <meta name=\"color-scheme\" content=\"light dark\">\
             <meta http-equiv=\"refresh\" content=\"{RETRY_AFTER_SECONDS}\">\
             <title>Takt is starting</title><h1>Takt is starting</h1>\
             <p>The server {stage}. This page loads again by itself; a large store takes up to a \
             minute. The progress is in the server's log.</p></html>"
        );
        ("text/html; charset=utf-8", page)
    } else if path.starts_with("/api/") {
        let error = format!("the server is starting: it {stage}");
        let body =
            serde_json::json!({"status": "error", "errorType": "unavailable", "error": error});
        ("application/json", body.to_string())
    } else {
        let text = format!("The server is starting: it {stage}.\n");
        ("text/plain; charset=utf-8", text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn asked(page: &OpeningPage, request: &str, address: std::net::SocketAddr) -> String {
        page.enter("reads its data directory");
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn every_request_is_answered_with_503_and_what_the_server_waits_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();

        let page = OpeningPage::start(listener, "begins");
        let long = format!(
            "POST /api/v1/write HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\n{}",
            "x".repeat(99_999)
        );
        for (request, expected) in [
            (
                "GET / HTTP/1.1\r\nHost: a\r\nAccept: text/html,*/*\r\n\r\n",
                "<p>The server reads its data directory. This page loads again",
            ),
            (
                "GET /-/ready HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",
                "\r\n\r\nThe server is starting: it reads its data directory.\n",
            ),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n\r\n",
                "\r\n\r\nThe server is starting: it reads its data directory.\n",
            ),
            (
                "GET /api/v1/query?query=up HTTP/1.1\r\nHost: a\r\n\r\n",
                "\"error\":\"the server is starting: it reads its data directory\"",
            ),
            (long.as_str(), "\"errorType\":\"unavailable\""),
            (
                "HEAD /health HTTP/1.1\r\nHost: a\r\n\r\n",
                "Connection: close\r\n\r\n",
            ),
        ] {
            let answer = asked(&page, request, address).await;
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(answer.contains("\r\nRetry-After: 3\r\n"), "{answer}");
            assert!(answer.contains(expected), "{answer}");
        }
    }
}
