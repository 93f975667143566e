//! Failing targets: each gives one clear reason and `up` 0, and no other series.

use crate::support::{Answer, OPENMETRICS, Scraping, TEXT, Target, config, instant, target};
use std::net::TcpListener;
use takt_collector::scrape::{FailureReason, ScrapeConfig, TargetHealth};
use takt_model::METRIC_NAME;
use takt_store::Listed;
use tempfile::tempdir;

fn raw(head: &str, body: &[u8]) -> Answer {
    Answer::Raw(
        [
            format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n").as_bytes(),
            body,
        ]
        .concat(),
    )
}

/// The reason, a part of the message, and the response that causes them.
type Case = (
    FailureReason,
    &'static str,
    Box<dyn Fn() -> Answer + Send + Sync>,
);

#[test]
fn each_kind_of_failure_has_its_reason() {
    use FailureReason::*;
    // One more than the limit of samples.
    let many: String = (0..101)
        .map(|number| format!("a{{x=\"{number}\"}} 1\n"))
        .collect();
    let cases: Vec<Case> = vec![
        (
            Status,
            "the target answered 404 Not Found",
            Box::new(|| Answer::Raw(b"HTTP/1.1 404 Not Found\r\n\r\n".to_vec())),
        ),
        (
            Status,
            "the target answered 206 Partial Content",
            Box::new(|| {
                Answer::Raw(
                    b"HTTP/1.1 206 Partial Content\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\na 1\n"
                        .to_vec(),
                )
            }),
        ),
        (
            ContentType,
            "the answer's content type is \"text/html\"; expected text/plain or application/openmetrics-text",
            Box::new(|| Answer::Page("text/html", "<html></html>".to_owned())),
        ),
        (
            ContentType,
            "the answer has no content type; expected",
            Box::new(|| raw("Content-Length: 4", b"a 1\n")),
        ),
        (
            ContentEncoding,
            "the answer's content encoding is \"gzip\", which Takt did not request",
            Box::new(|| {
                raw(
                    "Content-Type: text/plain\r\nContent-Encoding: gzip\r\nContent-Length: 4",
                    b"\x1f\x8b\x08\x00",
                )
            }),
        ),
        (
            Malformed,
            "cannot understand the page: line 1: expected a metric name, found \"<html>\"",
            Box::new(|| Answer::Page(TEXT, "<html>\n".to_owned())),
        ),
        (
            Malformed,
            "cannot understand the page: line 2: expected `# EOF`, found the end of the page",
            Box::new(|| Answer::Page(OPENMETRICS, "a 1\n".to_owned())),
        ),
        (
            Interrupted,
            "the answer broke off after 4 bytes",
            Box::new(|| raw("Content-Type: text/plain\r\nContent-Length: 8", b"a 1\n")),
        ),
        (
            Interrupted,
            "the answer broke off after 4 bytes",
            Box::new(|| {
                raw(
                    "Content-Type: text/plain\r\nTransfer-Encoding: chunked",
                    b"4\r\na 1\n\r\n",
                )
            }),
        ),
        (
            TooLarge,
            "the answer is larger than body_size_limit_bytes = 100000",
            Box::new(|| {
                raw(
                    "Content-Type: text/plain\r\nContent-Length: 2000000000",
                    b"a 1\n",
                )
            }),
        ),
        // Without a stated length, the received bytes are counted.
        (
            TooLarge,
            "the answer is larger than body_size_limit_bytes = 100000",
            Box::new(|| {
                Answer::Endless(
                    [
                        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n",
                        [b'#'; 60_000].as_slice(),
                    ]
                    .concat(),
                )
            }),
        ),
        (
            Limit,
            "line 101: the page has more samples than sample_limit = 100",
            Box::new(move || Answer::Page(TEXT, many.clone())),
        ),
        (
            Limit,
            "line 1: a label's value has 5000 bytes, more than label_value_length_limit = 4096",
            Box::new(|| Answer::Page(TEXT, format!("a{{x=\"{}\"}} 1\n", "y".repeat(5000)))),
        ),
        (
            Limit,
            "line 1: a label's name has 300 bytes, more than label_name_length_limit = 256",
            Box::new(|| Answer::Page(TEXT, format!("a{{{}=\"1\"}} 1\n", "n".repeat(300)))),
        ),
        (
            Limit,
            "line 2: the series has 66 labels, more than label_limit = 64",
            Box::new(|| {
                // With the name, cluster, instance, job and node.
                let labels: String = (0..61).map(|number| format!("l{number}=\"1\",")).collect();
                Answer::Page(TEXT, format!("a 1\nb{{{labels}}} 1\n"))
            }),
        ),
        (
            Timeout,
            "no complete answer within 0.3 s",
            Box::new(|| Answer::Silence),
        ),
        (
            Unreachable,
            "cannot reach the target",
            Box::new(|| Answer::Raw(Vec::new())),
        ),
    ];
    let root = tempdir().unwrap();
    let mut expected = Vec::new();
    let mut targets = Vec::new();
    for (number, (reason, message, answer)) in cases.into_iter().enumerate() {
        targets.push(target(
            Target::start(move |_, _| answer()).address,
            &format!("g{number:02}"),
        ));
        expected.push((reason, message));
    }

    // The listener is closed at once, so connections to its port are refused.
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    targets.push(target(closed, "g99"));
    expected.push((Refused, "Connection refused"));

    // Small limits keep the pages above small.
    let limits = ScrapeConfig {
        body_size_limit_bytes: 100_000,
        sample_limit: 100,
        ..config(300, targets)
    };
    let scraping = Scraping::start(root.path(), limits);
    scraping.wait_for_health(TargetHealth::Down);
    for (status, (reason, message)) in scraping.manager.targets().iter().zip(&expected) {
        let error = status.error.as_deref().unwrap_or_default();
        assert_eq!(status.reason, Some(*reason), "{error}");
        assert!(error.contains(message), "{message:?} in {error:?}");
    }
    let up = instant(&scraping.store, "up");
    assert_eq!(up.len(), expected.len());
    assert!(up.iter().all(|series| series.samples[0].value == 0.0));
    assert!(
        instant(&scraping.store, "a").is_empty(),
        "nothing of a bad page is stored"
    );
    let metrics = scraping
        .store
        .label_values(METRIC_NAME, Listed::ever(&[]))
        .unwrap();
    assert!(
        metrics
            .iter()
            .all(|name| name == "up" || name.starts_with("scrape_") || name.starts_with("takt_")),
        "{metrics:?}"
    );
    // No process listens at the port, but the machine runs.
    let refused = instant(&scraping.store, "takt_scrape_refused");
    let nodes: Vec<_> = refused
        .iter()
        .filter_map(|series| series.labels.get("node"))
        .collect();
    assert_eq!(nodes, ["g99"]);
    // An unusable response counts as a response.
    let alive = instant(&scraping.store, "takt_scrape_host_answers");
    let alive: Vec<_> = alive
        .iter()
        .filter_map(|series| series.labels.get("node"))
        .collect();
    for (number, (reason, message)) in expected.iter().enumerate() {
        let node = format!("g{number:02}");
        if !matches!(reason, Unreachable | Refused | Timeout) {
            assert!(alive.contains(&node.as_str()), "{node}: {message}");
        }
    }
    assert!(!alive.contains(&"g99"), "{alive:?}");
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &scraping.registry).unwrap();
    assert!(
        text.contains("takt_collector_scrapes_total{result=\"too_large\"}"),
        "{text}"
    );

    drop(scraping.stop());
}
