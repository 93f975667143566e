//! Answers browsers while the store is still opening.
//!
//! Reading the series of a large store takes seconds. A browser gets a page that says so and loads
//! again. Programs get no answer, as if the server were not started: a client that waits for the
//! server must not take this page for it.

use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time;

/// Longest head of a request that is read.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Time for reading a request.
const TIMEOUT: Duration = Duration::from_secs(2);

const PAGE: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
    <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
    <meta name=\"color-scheme\" content=\"light dark\"><meta http-equiv=\"refresh\" content=\"3\">\
    <title>Takt is starting</title><h1>Takt is starting</h1>\
    <p>The server is reading its data directory. This page loads again by itself; a large store \
    takes up to a minute. The progress is in the server's log.</p></html>";

/// Answers on a listener until it is dropped.
#[derive(Debug)]
pub(crate) struct OpeningPage(JoinHandle<()>);

impl OpeningPage {
    /// Starts to answer.
    pub fn start(listener: TcpListener) -> Self {
        Self(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move { time::timeout(TIMEOUT, answer(stream)).await });
            }
        }))
    }
}

impl Drop for OpeningPage {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut head = Vec::new();
    while head.len() < MAX_HEAD_BYTES && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            break;
        }
    }
    if !wants_page(&head) {
        return Ok(());
    }
    let response = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html; charset=utf-8\r\n\
         Content-Length: {}\r\nRetry-After: 3\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n{PAGE}",
        PAGE.len()
    );
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}

/// Whether a request is a browser's for a page.
fn wants_page(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head).to_lowercase();
    let accepts = |line: &str| line.starts_with("accept:") && line.contains("text/html");
    head.starts_with("get ") && head.lines().any(accepts)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn asked(request: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _page = OpeningPage::start(listener);
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_browser_gets_a_page_and_a_program_nothing() {
        let page = asked("GET / HTTP/1.1\r\nHost: a\r\nAccept: text/html,*/*\r\n\r\n").await;
        assert!(page.starts_with("HTTP/1.1 503 "), "{page}");
        assert!(page.contains("Takt is starting"), "{page}");
        for program in [
            "GET /-/healthy HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n\r\n",
        ] {
            assert_eq!(asked(program).await, "", "{program}");
        }
    }
}
