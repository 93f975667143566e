//! Services that mean harm, or are broken: no message takes much memory or more than its time, and
//! other channels are not delayed.

use super::http::{HttpOptions, HttpSender};
use super::suite::{Verdict, http_notifiers, row, runtime, service};
use crate::outbox::Outcome;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Bytes that a client may take of an answer, and those that both kernels may hold for it.
const TAKEN_MAX: usize = 24 << 20;

/// Time limit of a request in these tests.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Time in which a delivery ends, also on a busy machine: five requests at most, each within
/// [`TIMEOUT`].
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// The bytes that a service sends after a request: `head` once, then `part` again and again, with a pause.
#[derive(Clone, Copy)]
struct Attack {
    name: &'static str,
    head: &'static str,
    part: &'static [u8],
    pause: Duration,
}

const fn flood(name: &'static str, head: &'static str, part: &'static [u8]) -> Attack {
    Attack {
        name,
        head,
        part,
        pause: Duration::ZERO,
    }
}

const fn drip(name: &'static str, head: &'static str, part: &'static [u8]) -> Attack {
    Attack {
        pause: Duration::from_millis(50),
        ..flood(name, head, part)
    }
}

const OK: &str = "HTTP/1.1 200 OK\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
/// gzip's header, and a block without compression, again and again: none is the last one.
const GZIP: &str = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f";

const ATTACKS: [Attack; 13] = [
    flood("an endless body", OK, b"{\"ok\":true}"),
    flood(
        "an endless body of an error",
        "HTTP/1.1 503 Busy\r\n\r\n",
        b"<p>",
    ),
    flood(
        "a body that is too long",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b" ",
    ),
    flood("an endless line", "", b"HTTP/1.1 200 "),
    flood("an endless header", "HTTP/1.1 200 OK\r\nX: ", b"x"),
    flood(
        "endless headers",
        "HTTP/1.1 200 OK\r\n",
        b"X-Pad: aaaaaaaaaaaaaaaaaaaaaaaa\r\n",
    ),
    // Nothing of them is kept.
    drip(
        "endless interim answers",
        "",
        b"HTTP/1.1 100 Continue\r\n\r\n",
    ),
    flood("an endless chunk", CHUNKED, b"ffffffffff"),
    flood("endless small chunks", CHUNKED, b"1\r\nx\r\n"),
    flood(
        "an endless chunk extension",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;",
        b"x",
    ),
    flood("a compressed body that is none", GZIP, b"\x8b\x08\0\0"),
    drip("a head that drips", "HTTP/1.1 200 OK\r\nX: ", b"x"),
    drip("a body that drips", OK, b"x"),
];

/// A service that attacks each client. Returns its URL, and the number of bytes that it has sent.
fn attacker(attack: Attack) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let count = Arc::clone(&count);
            thread::spawn(move || attack_client(client, attack, &count));
        }
    });
    (url, sent)
}

fn attack_client(mut client: TcpStream, attack: Attack, sent: &AtomicUsize) {
    // The request is read first, so that the client waits for the answer.
    let _ = client.read(&mut [0; 64 << 10]);

    let repeat = if attack.pause.is_zero() {
        (64 << 10) / attack.part.len()
    } else {
        1
    };
    let part = attack.part.repeat(repeat);

    let mut written = client.write_all(attack.head.as_bytes());
    // A client that takes all would get eight times its limit, which shows in the count.
    while written.is_ok() && sent.load(Ordering::SeqCst) < 8 * TAKEN_MAX {
        written = client.write_all(&part);
        sent.fetch_add(part.len(), Ordering::SeqCst);
        thread::sleep(attack.pause);
    }
}

fn sender() -> HttpSender {
    HttpSender::new(&HttpOptions {
        timeout: Some(TIMEOUT),
        ..HttpOptions::default()
    })
    .unwrap()
}

#[test]
fn a_hostile_service_takes_neither_memory_nor_time() {
    runtime().block_on(async {
        let sender = sender();
        for attack in ATTACKS {
            let (url, sent) = attacker(attack);
            for (name, notifier) in http_notifiers(&url) {
                // The count is of one delivery.
                sent.store(0, Ordering::SeqCst);
                let begun = Instant::now();
                let outcome = sender.deliver(&*notifier, &row(1, "hot"), None).await;
                let case = format!("{}, {name}: {outcome:?}", attack.name);
                assert!(begun.elapsed() < ENDS_WITHIN, "{case}");

                let sent = sent.load(Ordering::SeqCst);
                assert!(sent < TAKEN_MAX, "{case}: {sent} bytes");
                // A message counts as sent only after a whole head that says so.
                let said_ok =
                    attack.head.starts_with("HTTP/1.1 200 OK") && attack.head.contains("\r\n\r\n");
                assert!(said_ok || !matches!(outcome, Outcome::Sent(_)), "{case}");
            }
        }
    });
}

/// Each redirect is one answer: none is followed to an address that the service chose.
#[test]
fn a_service_cannot_send_messages_elsewhere() {
    runtime().block_on(async {
        for status in [301, 302, 303, 307, 308] {
            let (server, mut received) = service(Verdict::Redirects(status)).await;
            for (name, notifier) in http_notifiers(&format!("http://{server}")) {
                let outcome = sender().deliver(&*notifier, &row(1, "hot"), None).await;
                let first = received.recv().await.unwrap();
                assert!(!first.contains(" /there "), "{name}: {first}");
                assert!(received.try_recv().is_err(), "{name}: followed {status}");
                assert!(!matches!(outcome, Outcome::Sent(_)), "{name}: {outcome:?}");
            }
        }
        // With `follow_redirects`, a circle ends.
        let options = HttpOptions {
            follows_redirects: true,
            timeout: Some(ENDS_WITHIN),
            ..HttpOptions::default()
        };
        let circle = "HTTP/1.1 307 Moved\r\nLocation: /again\r\nContent-Length: 0\r\n\
                      Connection: close\r\n\r\n";

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                // The request has to be read, or the kernel would reset the connection.
                let _ = client.read(&mut [0; 64 << 10]);
                let _ = client.write_all(circle.as_bytes());
                count.fetch_add(1, Ordering::SeqCst);
            }
        });

        let sender = HttpSender::new(&options).unwrap();
        for (name, notifier) in http_notifiers(&url) {
            requests.store(0, Ordering::SeqCst);
            let outcome = sender.deliver(&*notifier, &row(1, "hot"), None).await;
            let requests = requests.load(Ordering::SeqCst);
            // The first request and ten redirects, and one of margin.
            assert!(requests <= 12, "{name}: {requests} requests");
            assert!(!matches!(outcome, Outcome::Sent(_)), "{name}: {outcome:?}");
        }
    });
}

/// All attacks at once, on one thread, beside a service that works.
#[test]
fn other_channels_are_not_delayed_by_hostile_ones() {
    runtime().block_on(async {
        let sender = sender();
        let (good, _received) = service(Verdict::Takes).await;

        let mut attacked = JoinSet::new();
        for attack in ATTACKS {
            let (url, _) = attacker(attack);
            let (_, notifier) = http_notifiers(&url).remove(0);
            let sender = sender.clone();
            attacked.spawn(async move {
                drop(sender.deliver(&*notifier, &row(1, "hot"), None).await);
            });
        }

        let mut delivered = 0;
        for (name, notifier) in http_notifiers(&format!("http://{good}")) {
            if name == "slack bot" {
                continue;
            }
            let patient = HttpSender::new(&HttpOptions {
                timeout: Some(ENDS_WITHIN),
                ..HttpOptions::default()
            })
            .unwrap();
            let outcome = patient.deliver(&*notifier, &row(1, "hot"), None).await;
            assert!(matches!(outcome, Outcome::Sent(_)), "{name}: {outcome:?}");
            delivered += 1;
        }

        assert_eq!(delivered, 3);
        while attacked.join_next().await.is_some() {}
    });
}
