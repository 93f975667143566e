//! Mail servers that mean harm, or are broken: no session takes much memory or more than its time,
//! and no mail counts as sent.

#![allow(clippy::unwrap_used, reason = "a test without its surroundings ends")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use takt_mail::{EmailConfig, Mail, MailError, Mailer, TlsMode};

/// Bytes that a client may take in a session, and those that both kernels may hold for it.
const TAKEN_MAX: usize = 24 << 20;

const GREETING: &[u8] = b"220 mail ESMTP\r\n";

/// A server for one session. Returns its port, and the number of bytes that it could send.
fn server(
    session: impl FnOnce(&mut TcpStream, &mut dyn FnMut()) -> usize + Send + 'static,
) -> (u16, Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();

    let (sender, sent) = channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        // Reads a command.
        let mut command = || drop(lines.next());
        sender.send(session(&mut stream, &mut command)).unwrap();
    });
    (port, sent)
}

/// Sends the same bytes until the client goes away. Returns the number of bytes.
fn flood(stream: &mut TcpStream, bytes: &[u8]) -> usize {
    let bytes = bytes.repeat((64 << 10) / bytes.len() + 1);
    let mut sent = 0;
    // A client without a limit would take four times as much as is allowed.
    while sent < 4 * TAKEN_MAX && stream.write_all(&bytes).is_ok() {
        sent += bytes.len();
    }
    sent
}

fn send(port: u16, tls: TlsMode) -> (MailError, Duration) {
    let config = EmailConfig {
        server: format!("127.0.0.1:{port}"),
        tls: Some(tls),
        from: "takt@lab.example".to_owned(),
        timeout_seconds: 5,
        ..EmailConfig::default()
    };
    let mail = Mail {
        to: "ann@lab.example".to_owned(),
        subject: "GPU lost".to_owned(),
        text: "on g01".to_owned(),
        ..Mail::default()
    };

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();

    let begun = Instant::now();
    let sent = runtime.block_on(async { Mailer::new(&config).unwrap().send(&mail).await });
    (sent.unwrap_err(), begun.elapsed())
}

/// A reply without an end is given up at a limit of memory, wherever it comes.
#[test]
fn an_endless_reply_of_a_mail_server_fills_no_memory() {
    const PARTS: [&[u8]; 4] = [b"a", b"220-hello\r\n", b"\r\n", b"\xff\x00"];
    // Bytes without a line end, continued replies without an end, empty lines, and bytes that are not UTF-8.
    for part in PARTS {
        for commands in 0..3 {
            let (port, sent) = server(move |stream, command| {
                for _ in 0..commands {
                    stream.write_all(GREETING).unwrap();
                    command();
                }
                flood(stream, part)
            });

            let (error, _) = send(port, TlsMode::None);
            let sent = sent.recv().unwrap();
            assert!(sent < TAKEN_MAX, "{part:?} after {commands}: {sent} bytes");
            assert!(!error.is_refused_mail(), "{error}");
        }
    }
}

#[test]
fn a_mail_server_that_drips_takes_no_longer_than_the_time_limit() {
    // One digit each 100 ms: every read succeeds, so only a deadline of the whole session ends it.
    let (port, _sent) = server(|stream, _| {
        let mut sent = 0;
        while stream.write_all(b"2").is_ok() {
            sent += 1;
            thread::sleep(Duration::from_millis(100));
        }
        sent
    });

    let (error, took) = send(port, TlsMode::None);
    assert!(matches!(error, MailError::Timeout { .. }), "{error}");
    assert!(took < Duration::from_secs(20), "{took:?}");
}

/// Every place at which a session can end: the mail is tried again.
#[test]
fn a_mail_server_that_leaves_at_any_step_has_not_taken_the_mail() {
    const REPLIES: [&[u8]; 6] = [
        GREETING,
        b"250 mail\r\n",
        b"250 sender\r\n",
        b"250 recipient\r\n",
        b"354 go on\r\n",
        b"421 too busy\r\n",
    ];
    for last in 0..REPLIES.len() {
        let (port, _sent) = server(move |stream, command| {
            for reply in &REPLIES[..last] {
                stream.write_all(reply).unwrap();
                command();
            }
            // 421 closes the session at any step, and a server means it for a while only.
            stream.write_all(REPLIES[5]).unwrap();
            0
        });
        let (error, _) = send(port, TlsMode::None);
        assert!(!error.is_permanent(), "{last}: {error}");
    }
}
