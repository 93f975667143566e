//! A scrape target made of a function.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

/// A page: its content type and text.
pub type Page = (&'static str, String);

/// Starts a target that answers each request with the page of its path.
pub fn scrape_target(page: fn(path: &str) -> Page) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A scraper keeps connections open, so each has its thread.
            thread::spawn(move || answer(stream, page));
        }
    });
    address
}

fn answer(mut stream: TcpStream, page: fn(&str) -> Page) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while let Some(Ok(request)) = lines.next() {
        // The headers up to the blank line; a scrape has no body.
        while lines
            .next()
            .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
        {}
        let (kind, page) = page(request.split(' ').nth(1).unwrap_or_default());
        let length = page.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}");
        if write!(stream, "{head}\r\n\r\n{page}").is_err() {
            return;
        }
    }
}
