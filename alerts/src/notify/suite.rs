//! Tests that every notifier has to pass.

use super::channels::{ChannelContext, Channels};
use super::http::{HttpNotifier, HttpReply};
use super::ntfy::Ntfy;
use super::owner::Addresses;
use super::slack::Slack;
use super::webhook::Webhook;
use super::{NOTIFIERS, Notifier};
use crate::alert::Alert;
use crate::message::{Message, MessageAlert, Status};
use crate::outbox::{Outcome, Row, RowState};
use crate::routing::dedup::Reason;
use crate::testing::parse_series;
use crate::yaml::Node;
use std::collections::BTreeMap;
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use takt_mail::{EmailConfig, TlsMode};
use takt_model::{Labels, Timestamp};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time;

pub(crate) fn row(alerts: usize, words: &str) -> Row {
    let alert = |n: usize| {
        let alert = Alert {
            labels: parse_series(&format!(
                "{{alertname=GpuHot,node=g{n},severity=critical,jobid={n},user=ada}}"
            )),
            annotations: [
                ("summary".to_owned(), format!("{words} on g{n}")),
                ("action".to_owned(), "drain".to_owned()),
            ]
            .into(),
            starts_at: Timestamp::from_seconds(1_000),
            ends_at: None,
            updated_at: Timestamp(0),
            generator_url: "http://takt/a".to_owned(),
            began_at: None,
            is_timeout: false,
        };
        // It has fired for 1,000 s when the message is made.
        MessageAlert::new(&alert, Timestamp::from_seconds(2_000))
    };
    let message = Message {
        channel: "ops/slack/0".to_owned(),
        receiver: "ops".to_owned(),
        group_key: "{}:{alertname=\"GpuHot\"}".to_owned(),
        reason: Reason::FirstFiring,
        status: Status::Firing,
        group_labels: parse_series("{alertname=GpuHot}"),
        common_labels: Labels::new(),
        common_annotations: BTreeMap::new(),
        route_labels: Labels::new(),
        external_url: "http://takt".to_owned(),
        timezone: None,
        acknowledge_url: None,
        alerts: (0..alerts).map(alert).collect(),
    };
    Row {
        id: 7,
        channel: "ops/slack/0".to_owned(),
        instead_of: None,
        message: message.arranged(),
        state: RowState::Sending,
        created_at: Timestamp::from_seconds(2_000),
        attempts: 1,
        next_at: Timestamp(0),
        error: None,
        handle: None,
        is_in_doubt: false,
    }
}

/// Every notifier that speaks HTTP, for a service at this URL.
pub(super) fn http_notifiers(base: &str) -> Vec<(&'static str, Box<dyn HttpNotifier>)> {
    vec![
        (
            "webhook",
            Box::new(Webhook {
                url: super::webhook::Url::Fixed(format!("{base}/hook")),
                alerts_max: 0,
                payload: None,
                templates: Arc::default(),
            }),
        ),
        (
            "slack webhook",
            Box::new(Slack::webhook(&format!("{base}/services/T/B/s"))),
        ),
        (
            "slack bot",
            Box::new(Slack::bot(&format!("{base}/api"), "xoxb-1", "C1")),
        ),
        (
            "ntfy",
            Box::new(Ntfy {
                url: base.to_owned(),
                topic: "lab".to_owned(),
                token: None,
            }),
        ),
    ]
}

/// The pure half of the suite, for notifiers that speak HTTP.
#[test]
fn every_http_notifier_names_the_fault_stays_small_and_reads_replies() {
    for (name, notifier) in http_notifiers("http://x") {
        let request = notifier.request(&row(1, "too <hot> & loud"));
        assert!(
            request.body.contains("GpuHot") && request.body.contains("g0"),
            "{name}: {}",
            request.body
        );

        // A service refuses a body that grows with the alerts. Only a webhook gets all of them.
        let many = notifier.request(&row(3_000, "it is hot"));
        assert!(
            name == "webhook" || many.body.len() < 40_000,
            "{name}: {} bytes",
            many.body.len()
        );

        let long = notifier.request(&row(1, &"x".repeat(100_000)));
        assert!(
            name == "webhook" || long.body.len() < 40_000,
            "{name}: {} bytes",
            long.body.len()
        );

        let ok = if name == "slack bot" {
            "{\"ok\":true,\"ts\":\"1.2\",\"channel\":\"C1\"}"
        } else {
            "ok"
        };

        for (status, retry_after, body, expected) in [
            (200, None, ok, "sent"),
            (429, Some(30), "", "again in 30"),
            (500, None, "rollup_error", "again"),
            (503, None, "<html>", "again"),
            (400, None, "invalid_payload", "never"),
            (403, None, "action_prohibited", "never"),
            (404, None, "channel_not_found", "never"),
            (410, None, "channel_is_archived", "never"),
        ] {
            let reply = HttpReply {
                status,
                retry_after: retry_after.map(Duration::from_secs),
                body: body.to_owned(),
            };

            let said = words(&notifier.outcome(&reply));
            assert_eq!(said, expected, "{name}: {status} {body}");
        }
    }
}

fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Sent(_) => "sent".to_owned(),
        Outcome::TryAgain {
            after: Some(after), ..
        } => format!("again in {}", after.as_secs()),
        Outcome::TryAgain { after: None, .. } | Outcome::NoAnswer { .. } => "again".to_owned(),
        Outcome::GiveUp { .. } | Outcome::NoRecipient { .. } | Outcome::NoChannel => {
            "never".to_owned()
        }
    }
}

/// How the service of a test answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Takes,
    NotNow,
    Never,
    HangsUp,
    /// Takes one second to answer.
    Slow,
    /// Redirects to `/there` with this status, and takes what comes there.
    Redirects(u16),
}

/// A service on a port of its own that answers with one verdict: SMTP if the client waits for a
/// greeting, HTTP if the client speaks first. Returns HOST:PORT and what clients sent.
pub(crate) async fn service(verdict: Verdict) -> (String, UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (seen, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, verdict, seen.clone()));
        }
    });
    (address, received)
}

async fn answer(stream: TcpStream, verdict: Verdict, seen: UnboundedSender<String>) {
    let mut first = [0; 1];
    // A client of SMTP waits for the greeting, one of HTTP speaks first.
    let speaks = time::timeout(Duration::from_millis(300), stream.peek(&mut first)).await;
    if speaks.is_ok() {
        answer_http(stream, verdict, &seen).await;
    } else {
        answer_smtp(stream, verdict, &seen).await;
    }
}

async fn answer_http(mut stream: TcpStream, verdict: Verdict, seen: &UnboundedSender<String>) {
    let mut text = Vec::new();

    let mut buffer = [0; 4096];
    while !is_whole_request(&text) {
        let count = stream.read(&mut buffer).await.unwrap();
        // Closed, or a TLS handshake.
        if count == 0 || !buffer[0].is_ascii() || buffer[0] == 0x16 {
            return;
        }
        text.extend_from_slice(&buffer[..count]);
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let is_there = text.lines().next().unwrap_or_default().contains("/there");
    let _ = seen.send(text);

    if verdict == Verdict::Slow {
        time::sleep(Duration::from_secs(1)).await;
    }
    if let Verdict::Redirects(status) = verdict
        && !is_there
    {
        let reply =
            format!("HTTP/1.1 {status} Moved\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(reply.as_bytes()).await.unwrap();
        return;
    }

    let (status, body) = match verdict {
        Verdict::Takes | Verdict::Slow | Verdict::Redirects(_) => ("200 OK", "{\"ok\":true}"),
        Verdict::NotNow => ("503 Busy", ""),
        Verdict::Never => ("404 Gone", ""),
        Verdict::HangsUp => return,
    };
    let reply = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(reply.as_bytes()).await.unwrap();
}

/// Whether the bytes are a request with its whole body.
fn is_whole_request(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text).into_owned();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let head = head.to_ascii_lowercase();

    let length = head.split("content-length: ").nth(1).unwrap_or("0");
    body.len() >= length.lines().next().unwrap().parse().unwrap()
}

async fn answer_smtp(mut stream: TcpStream, verdict: Verdict, seen: &UnboundedSender<String>) {
    let (reader, mut writer) = stream.split();
    let mut lines = BufReader::new(reader).lines();
    writer.write_all(b"220 test\r\n").await.unwrap();
    let mut mail = String::new();
    let mut is_data = false;

    while let Ok(Some(line)) = lines.next_line().await {
        let reply = match line.as_str() {
            "." if is_data => {
                is_data = false;
                // The verdict is about the whole mail, after its last line.
                let _ = seen.send(mem::take(&mut mail));
                match verdict {
                    Verdict::Takes => "250 OK",
                    Verdict::NotNow => "451 busy",
                    Verdict::Never => "550 refused",
                    Verdict::HangsUp | Verdict::Slow | Verdict::Redirects(_) => return,
                }
            }
            line if is_data => {
                mail += line;
                mail.push('\n');
                continue;
            }
            "DATA" => {
                is_data = true;
                "354 go on"
            }
            line => {
                // Tests look at the commands of the session too.
                mail += line;
                mail.push('\n');
                if line.starts_with("EHLO") {
                    "250-test\r\n250 AUTH PLAIN"
                } else {
                    "250 OK"
                }
            }
        };

        writer
            .write_all(format!("{reply}\r\n").as_bytes())
            .await
            .unwrap();
    }
}

pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// A notifier's example with this service, which is also the server of `[email]`.
fn example(
    kind: &super::NotifierKind,
    server: &str,
    more: &str,
) -> Result<Box<dyn Notifier>, String> {
    let email = EmailConfig {
        server: server.to_owned(),
        tls: Some(TlsMode::None),
        from: "takt@lab.example".to_owned(),
        ..EmailConfig::default()
    };
    let owners = Addresses::new(|user| Some(format!("{user}@lab.example")));
    let global = Node::empty();
    let context = ChannelContext::new(&global, &email, &owners, Path::new("/nonexistent"));
    let text = kind.example.replace("{server}", server);

    let text = match text.trim_end_matches('}').trim_end() {
        "{" => format!("{{{more}}}"),
        start if more.is_empty() => format!("{start}}}"),
        start => format!("{start}, {more}}}"),
    };
    (kind.build)(&Node::read(&text).unwrap(), &context).map_err(|mistake| mistake.to_string())
}

/// The suite: every notifier delivers the alert, and distinguishes success, a temporary failure, a
/// permanent one and a lost answer.
#[test]
fn every_notifier_delivers_and_reports_failures() {
    runtime().block_on(async {
        for kind in NOTIFIERS {
            for verdict in [
                Verdict::Takes,
                Verdict::NotNow,
                Verdict::Never,
                Verdict::HangsUp,
            ] {
                let (server, mut received) = service(verdict).await;
                let notifier = example(kind, &server, "send_resolved: true").unwrap();
                let outcome = notifier.send(&row(1, "hot"), None).await;
                let sent = received.recv().await.unwrap();
                assert!(sent.contains("GpuHot"), "{}: {sent}", kind.name);

                let is_right = match verdict {
                    Verdict::Takes => matches!(outcome, Outcome::Sent(_)),
                    Verdict::NotNow => matches!(outcome, Outcome::TryAgain { .. }),
                    Verdict::Never => matches!(
                        outcome,
                        Outcome::GiveUp { .. } | Outcome::NoRecipient { .. }
                    ),
                    Verdict::HangsUp | Verdict::Slow | Verdict::Redirects(_) => {
                        matches!(outcome, Outcome::NoAnswer { .. } | Outcome::TryAgain { .. })
                    }
                };
                assert!(is_right, "{}, {verdict:?}: {outcome:?}", kind.name);
            }

            // Port 1 refuses connections.
            let nobody = example(kind, "127.0.0.1:1", "").unwrap();
            let outcome = nobody.send(&row(1, "hot"), None).await;
            let is_right = matches!(outcome, Outcome::TryAgain { .. });
            assert!(is_right, "{}, no service: {outcome:?}", kind.name);
        }
    });
}

#[test]
fn every_notifier_refuses_unknown_keys() {
    for kind in NOTIFIERS {
        let mistake = example(kind, "localhost:1", "send_resolve: true")
            .err()
            .unwrap();
        assert!(
            mistake.contains("unknown key `send_resolve`"),
            "{}: {mistake}",
            kind.name
        );
        assert_eq!(kind.config_key, format!("{}_configs", kind.name));
    }
}

#[test]
fn every_kind_is_reached_through_its_configuration_key() {
    let email = EmailConfig {
        server: "localhost:1".to_owned(),
        tls: Some(TlsMode::None),
        from: "takt@lab.example".to_owned(),
        ..EmailConfig::default()
    };
    for kind in NOTIFIERS {
        let settings = kind.example.replace("{server}", "localhost:1");
        let text = format!(
            "route: {{receiver: a}}\nreceivers: [{{name: a, {}: [{settings}]}}]",
            kind.config_key
        );
        let config = crate::routing::config::Config::read("am.yml", &text).unwrap();
        let base = Path::new("/nonexistent");
        let channels = Channels::build(&config, &email, &Addresses::none(), base).unwrap();
        let names: Vec<_> = channels.names().collect();
        assert_eq!(names, [format!("a/{}/0", kind.name)]);
        assert_eq!(
            config.receivers[0].integrations[0].send_resolved,
            kind.sends_resolved
        );
    }
}
