//! Requests that no good sender makes: each gets its documented reply and a counter, and nothing that
//! was stored before is harmed.

use super::{Receiver, number, raw_samples, token};
use crate::support::process::{Page, http_post};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use takt_model::{Labels, Timestamp};
use takt_push::remote_write::{Protocol, RequestWriter};

const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

pub(super) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

type Given<'a> = (&'a [(&'a str, &'a str)], &'a [(i64, f64)]);

fn body(protocol: Protocol, series: &[Given<'_>]) -> Vec<u8> {
    let mut writer = RequestWriter::new(protocol);
    for (labels, samples) in series {
        let labels: Labels = labels.iter().copied().collect();
        let samples = samples.iter().map(|&(at, value)| (Timestamp(at), value));
        writer.add(&labels, samples);
    }
    writer.body()
}

fn snappy(message: &[u8]) -> Vec<u8> {
    // A literal, as the format describes it: the length, a tag with the length minus one, the bytes.
    assert!((1..=60).contains(&message.len()));
    let length = message.len() as u8;
    [&[length, (length - 1) << 2], message].concat()
}

/// As [`snappy`], for up to 64 KiB.
pub(super) fn snappy_of(message: &[u8]) -> Vec<u8> {
    let last = u16::try_from(message.len() - 1).unwrap();
    let mut body = Vec::new();
    let mut length = message.len();
    while length >= 0x80 {
        body.push(length as u8 | 0x80);
        length >>= 7;
    }
    body.push(length as u8);
    // A literal whose length, less one, follows in two bytes.
    body.push(61 << 2);
    body.extend(last.to_le_bytes());
    body.extend(message);
    body
}

impl Receiver {
    pub(super) fn write(&self, protocol: Protocol, body: &[u8]) -> Page {
        self.write_as(&token("one"), protocol.content_type(), "snappy", body)
    }

    fn write_as(&self, token: &str, kind: &str, encoding: &str, body: &[u8]) -> Page {
        self.post("/api/v1/write", token, kind, encoding, body)
    }

    fn otlp(&self, kind: &str, encoding: &str, body: &[u8]) -> Page {
        self.post(
            "/api/v1/otlp/v1/metrics",
            &token("one"),
            kind,
            encoding,
            body,
        )
    }

    fn post(&self, path: &str, token: &str, kind: &str, encoding: &str, body: &[u8]) -> Page {
        let token = format!("Bearer {token}");
        let mut headers = vec![("Content-Type", kind), ("Authorization", &token)];
        if !encoding.is_empty() {
            headers.push(("Content-Encoding", encoding));
        }
        http_post(&format!("{}{path}", self.url), &headers, body).unwrap()
    }

    pub(super) fn rejected(&self, reason: &str) -> f64 {
        let series = "takt_push_rejected_samples_total{sender=\"one\",reason=";
        self.metric(&format!("{series}\"{reason}\"}}"))
    }

    fn answered(&self, protocol: &str, code: u16) -> f64 {
        let sender = "takt_push_requests_total{sender=\"one\"";
        self.metric(&format!(
            "{sender},protocol=\"{protocol}\",code=\"{code}\"}}"
        ))
    }
}

/// A server that takes small requests, with one stored sample.
fn server_with_a_sample(at: i64) -> Receiver {
    let server = Receiver::start("[push]\nmax_body_mib = 1\nmax_message_mib = 2\nmax_requests = 2");
    let series = [("__name__", "good"), ("instance", "a")];
    let page = server.write(
        Protocol::V1,
        &body(Protocol::V1, &[(&series, &[(at, 1.5)])]),
    );
    assert_eq!(page.status, 204);
    assert_eq!(page.body.as_str(), "");
    server
}

fn is_unharmed(server: &Receiver, at: i64) {
    let good = raw_samples(&server.url, "good", at - 1000, at + 1000);
    let samples = good.values().next().unwrap();
    assert_eq!(samples.iter().next().unwrap(), (&at, &"1.5".to_owned()));
}

#[test]
fn broken_requests_get_the_documented_replies() {
    let at = now() - 30_000;
    let mut server = server_with_a_sample(at);
    let good = body(Protocol::V1, &[(&[("__name__", "x")], &[(at, 1.0)])]);
    let v1 = Protocol::V1.content_type();

    // Eight bytes that promise 4 GiB.
    let bomb = [0xff, 0xff, 0xff, 0xff, 0x0f, 0xfe, 0x01, 0x00];
    let cut = &good[..good.len() - 3];
    let long_body = vec![0x61; 3 << 20];
    let long_message = {
        let text = "x".repeat(3 << 20);
        body(Protocol::V1, &[(&[("__name__", &text)], &[(at, 1.0)])])
    };
    let no_message = snappy(&[0x0a, 0x7f, 0x01]);
    let unknown_symbol = snappy(&[0x2a, 0x04, 0x0a, 0x02, 0x00, 0x07]);
    let v2 = Protocol::V2.content_type();
    let of_other_kind = "application/x-protobuf;proto=io.prometheus.write.v3.Request";
    for (what, kind, encoding, body, status) in [
        ("snappy bomb", v1, "snappy", &bomb[..], 413),
        ("wrong length", v1, "snappy", cut, 400),
        ("no snappy", v1, "snappy", b"\x05hello".as_slice(), 400),
        ("empty body", v1, "snappy", b"", 400),
        ("message cut off", v1, "snappy", &no_message, 400),
        ("unknown symbol", v2, "snappy", &unknown_symbol, 400),
        ("long body", v1, "snappy", &long_body, 413),
        ("long message", v1, "snappy", &long_message, 413),
        ("gzip", v1, "gzip", &good, 415),
        ("JSON", "application/json", "snappy", &good, 415),
        ("unknown message", of_other_kind, "snappy", &good, 415),
        ("no type", "", "snappy", &good, 415),
    ] {
        let protocol = match kind {
            kind if kind == v1 => "remote_write_1",
            kind if kind == v2 => "remote_write_2",
            _ => "remote_write",
        };
        let before = server.answered(protocol, status);
        let page = server.write_as(&token("one"), kind, encoding, body);
        assert_eq!(page.status, status, "{what}: {}", page.body);
        assert!(!page.body.is_empty(), "{what}");
        let written = "x-prometheus-remote-write-samples-written";
        assert_eq!(page.headers[written], "0", "{what}");
        assert_eq!(server.answered(protocol, status), before + 1.0, "{what}");
    }

    // To a reader of one version, a message of the other looks empty: its samples would be lost.
    let one = Protocol::V1;
    let two = Protocol::V2;
    for (written, declared) in [(two, one), (one, two)] {
        let undeclared = body(written, &[(&[("__name__", "x")], &[(at, 1.0)])]);
        let page = server.write(declared, &undeclared);
        assert_eq!(page.status, 400);
        assert!(page.body.contains("but the message is of"), "{}", page.body);
        assert_eq!(
            page.headers["x-prometheus-remote-write-samples-written"],
            "0"
        );
    }

    // A path that is nearly right is no question of the token.
    for (path, right) in [
        ("/api/v1/write/", " /api/v1/write "),
        ("/v1/metrics", " /api/v1/otlp/v1/metrics "),
    ] {
        let page = server.post(path, &token("one"), v1, "snappy", &good);
        assert_eq!(page.status, 404, "{path}: {}", page.body);
        assert!(page.body.contains(right), "{path}: {}", page.body);
    }

    // The server works on: a good request of another sender is taken.
    let reader = fs::read_to_string(server.takt.directory().join("two.token")).unwrap();
    assert_eq!(server.write_as(&reader, v1, "snappy", &good).status, 204);
    for token in ["", "wrong-wrong-wrong-wrong"] {
        let page = server.write_as(token, v1, "snappy", &good);
        assert_eq!(page.status, 401);
        assert!(page.body.contains("the token of a sender"), "{}", page.body);
    }
    is_unharmed(&server, at);
    server.kill_and_restart(Duration::ZERO);
    is_unharmed(&server, at);
}

#[test]
fn bad_samples_are_rejected_by_name_and_the_others_stored() {
    let at = now() - 30_000;
    let mut server = server_with_a_sample(at);
    let year_2100 = 4_102_444_800_000;
    // A NaN with other bits than Prometheus' stale marker and its usual NaN.
    let payload = f64::from_bits(0x7ff8_0000_dead_beef);
    let good = [("__name__", "good"), ("instance", "a")];
    for protocol in [Protocol::V1, Protocol::V2] {
        let before = ["too_old", "future", "conflict"].map(|reason| server.rejected(reason));
        // The second version sends its good samples ten seconds later, as those of the first exist.
        let shift = if protocol == Protocol::V1 { 0 } else { 10_000 };
        let page = server.write(
            protocol,
            &body(
                protocol,
                &[(
                    &good,
                    &[
                        (0, 1.0),
                        (year_2100, 1.0),
                        (at, 2.5),
                        (at + shift + 1, payload),
                        (at + shift + 2, f64::INFINITY),
                        (at + shift + 3, STALE),
                        (at, 1.5),
                    ],
                )],
            ),
        );
        assert_eq!(page.status, 400);
        assert!(
            page.body.contains("1 too_old")
                && page.body.contains("1 future")
                && page.body.contains("1 conflict"),
            "{}",
            page.body
        );

        // Three new ones, and one that was there.
        let written = &page.headers["x-prometheus-remote-write-samples-written"];
        assert_eq!(written, "4");
        let after = ["too_old", "future", "conflict"].map(|reason| server.rejected(reason));
        assert_eq!(after, before.map(|count| count + 1.0));
    }
    let stored = raw_samples(&server.url, "good", at - 1000, at + 20_000);
    let stored: Vec<_> = stored.into_values().next().unwrap().into_iter().collect();
    let expected = [
        (at, "1.5"),
        (at + 1, "NaN"),
        (at + 2, "+Inf"),
        (at + 10_001, "NaN"),
        (at + 10_002, "+Inf"),
    ];
    assert_eq!(stored, expected.map(|(at, value)| (at, value.to_owned())));
    assert_eq!(number(&server.url, "good"), None, "the series has ended");

    // Labels: unsorted, twice, without a name, not UTF-8. Written by hand, as the writer sorts.
    let label = |name: &[u8], value: &[u8]| {
        let n = name.len() as u8;
        let v = value.len() as u8;
        [&[0x0a, n + v + 4, 0x0a, n], name, &[0x12, v], value].concat()
    };
    let sample = [0x12, 0x02, 0x10, 0x01];
    let metric = label(b"__name__", b"x");
    for (labels, words) in [
        (
            [label(b"b", b"1"), label(b"a", b"1")].concat(),
            "not in the order of names",
        ),
        (
            [label(b"a", b"1"), label(b"a", b"2")].concat(),
            "occurs twice",
        ),
        (label(b"a", b"1"), "no label __name__"),
        ([metric, label(b"a", &[0xff])].concat(), "not valid UTF-8"),
        (label(b"", b"1"), "a label has no name"),
    ] {
        let before = server.rejected("labels");
        let series = [&labels[..], &sample].concat();
        let message = [&[0x0a, series.len() as u8], &series[..]].concat();
        let page = server.write(Protocol::V1, &snappy(&message));
        assert_eq!(page.status, 400);
        assert!(page.body.contains(words), "{words}: {}", page.body);
        assert_eq!(server.rejected("labels"), before + 1.0);
    }

    // A native histogram of schema 53, in both versions.
    let metric = label(b"__name__", b"native");
    let series = [&metric[..], &[0x22, 0x02, 0x20, 0x6a]].concat();
    let message = [&[0x0a, series.len() as u8], &series[..]].concat();
    let page = server.write(Protocol::V1, &snappy(&message));
    assert_eq!(page.status, 400);
    assert!(page.body.contains("the native histogram cannot be stored"));
    assert!(page.body.contains("schema 53 is"), "{}", page.body);
    let symbols = [
        &[0x22, 0x00, 0x22, 0x08],
        &b"__name__"[..],
        &[0x22, 0x01, b'x'],
    ]
    .concat();
    let series = [0x2a, 0x08, 0x0a, 0x02, 0x01, 0x02, 0x1a, 0x02, 0x20, 0x6a];
    let page = server.write(Protocol::V2, &snappy(&[&symbols[..], &series].concat()));
    assert_eq!(page.status, 400);
    assert_eq!(
        page.headers["x-prometheus-remote-write-histograms-written"],
        "0"
    );
    assert_eq!(server.rejected("native_histogram"), 2.0);
    is_unharmed(&server, at);
    server.kill_and_restart(Duration::ZERO);
    is_unharmed(&server, at);
}

#[test]
fn bad_points_of_opentelemetry_are_rejected_and_the_others_stored() {
    let at = now() - 30_000;
    let server = server_with_a_sample(at);
    let json = |metrics: &str| {
        format!(r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{metrics}]}}]}}]}}"#)
    };
    let request = json(&format!(
        r#"{{"name":"native","exponentialHistogram":{{"aggregationTemporality":1,"dataPoints":[{{}}]}}}},
        {{"name":"cut","histogram":{{"aggregationTemporality":2,"dataPoints":[
            {{"timeUnixNano":"{at}000000","count":"3","bucketCounts":["1","2"],"explicitBounds":[1,2]}}]}}}},
        {{"name":"old","gauge":{{"dataPoints":[{{"timeUnixNano":"0","asDouble":1}}]}}}},
        {{"name":"fine","gauge":{{"dataPoints":[{{"timeUnixNano":"{at}000000","asInt":"7"}}]}}}}"#
    ));
    let page = server.otlp("application/json", "", request.as_bytes());
    // OpenTelemetry's partial success: an error would make the SDK send everything again.
    assert_eq!(page.status, 200, "{}", page.body);
    assert_eq!(page.headers["content-type"], "application/json");
    let reply: serde_json::Value = serde_json::from_str(&page.body).unwrap();
    let partial = &reply["partialSuccess"];
    assert_eq!(partial["rejectedDataPoints"], "3", "{reply}");
    let message = partial["errorMessage"].as_str().unwrap();
    assert!(
        message.contains("exponential histograms with delta temporality are not stored"),
        "{message}"
    );
    let reasons = ["native_histogram", "data_point", "too_old"];
    assert_eq!(reasons.map(|reason| server.rejected(reason)), [1.0; 3]);
    assert_eq!(number(&server.url, "fine"), Some(7.0));

    // The same request again, compressed: nothing new is stored, and nothing is wrong with that.
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    let fine = json(&format!(
        r#"{{"name":"fine","gauge":{{"dataPoints":[{{"timeUnixNano":"{at}000000","asInt":"7"}}]}}}}"#
    ));
    packed.write_all(fine.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let page = server.otlp("application/json; charset=utf-8", "gzip", &packed);
    assert_eq!(page.status, 200);
    assert_eq!(page.body.as_str(), "{}");

    // 64 MiB of blanks, which gzip makes a thousand times smaller.
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..64 {
        bomb.write_all(&[b' '; 1 << 20]).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    for (what, kind, encoding, body, status) in [
        ("no JSON", "application/json", "", &b"{"[..], 400),
        (
            "no protobuf",
            "application/x-protobuf",
            "",
            b"\x0a\x7f",
            400,
        ),
        ("no gzip", "application/json", "gzip", b"{}", 400),
        (
            "gzip cut off",
            "application/json",
            "gzip",
            &packed[..20],
            400,
        ),
        ("gzip bomb", "application/json", "gzip", &bomb, 413),
        ("text", "text/plain", "", b"{}", 415),
        ("zstd", "application/json", "zstd", b"{}", 415),
    ] {
        let before = server.answered("otlp", status);
        let page = server.otlp(kind, encoding, body);
        assert_eq!(page.status, status, "{what}: {}", page.body);
        assert_eq!(server.answered("otlp", status), before + 1.0, "{what}");
    }
    let page = server.otlp("application/x-protobuf", "", b"");
    assert_eq!(page.status, 200);
    assert_eq!(page.body.as_str(), "");
    is_unharmed(&server, at);
}

/// While samples cannot be written, senders keep theirs; nothing of their requests stays behind.
#[test]
fn a_full_disk_is_answered_with_503_and_the_sample_is_stored_later() {
    let mut server = Receiver::start("[store]\nmin_free_bytes = 1_000_000_000_000_000");
    let at = now() - 30_000;
    let request = body(Protocol::V2, &[(&[("__name__", "good")], &[(at, 1.5)])]);
    // Again and again, as a sender does: no attempt may leave a part behind.
    for attempt in 0..3 {
        let page = server.write(Protocol::V2, &request);
        assert_eq!(page.status, 503, "{attempt}: {}", page.body);
        assert_eq!(page.headers["retry-after"], "5");
        assert!(
            page.body.contains("samples cannot be written"),
            "{}",
            page.body
        );
        assert_eq!(
            page.headers["x-prometheus-remote-write-samples-written"],
            "0"
        );
        assert_eq!(number(&server.url, "last_over_time(good[1m])"), None);
    }
    let json = format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"g","gauge":{{
        "dataPoints":[{{"timeUnixNano":"{at}000000","asDouble":1}}]}}}}]}}]}}]}}"#
    );
    let page = server.otlp("application/json", "", json.as_bytes());
    assert_eq!(page.status, 503);
    assert_eq!(server.answered("remote_write_2", 503), 3.0);
    let config = server.takt.directory().join("takt.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("1_000_000_000_000_000", "0")).unwrap();
    server.kill_and_restart(Duration::ZERO);
    let page = server.write(Protocol::V2, &request);
    assert_eq!(page.status, 204, "{}", page.body);
    assert_eq!(
        page.headers["x-prometheus-remote-write-samples-written"],
        "1"
    );
    let stored = raw_samples(&server.url, "good", at - 1000, at + 1000);
    let samples = stored.values().next().unwrap();
    assert_eq!(samples.iter().next().unwrap(), (&at, &"1.5".to_owned()));
}

/// Requests whose bodies never come take half of the places only.
#[test]
fn a_sender_with_slow_bodies_leaves_requests_to_others() {
    let server = Receiver::start("[push]\nmax_requests = 4\n");
    let address = server.url.trim_start_matches("http://");
    let slow: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut connection = TcpStream::connect(address).unwrap();
            let request = format!(
                "POST /api/v1/write HTTP/1.1\r\nHost: takt\r\nAuthorization: Bearer {}\r\n\
                 Content-Type: application/x-protobuf\r\nContent-Length: 100\r\n\r\nabc",
                token("one")
            );
            connection.write_all(request.as_bytes()).unwrap();
            connection
        })
        .collect();
    let write = |sender: &str| {
        let authorization = format!("Bearer {}", token(sender));
        let headers = [
            ("Content-Type", "application/x-protobuf"),
            ("Authorization", &*authorization),
        ];
        let message = body(Protocol::V1, &[]);
        http_post(&server.write_url(), &headers, &message).unwrap()
    };

    // Once the server reads their requests, the sender gets no place.
    let is_refused = (0..100).any(|_| write("one").status == 503);
    assert!(is_refused);
    let begun = Instant::now();
    assert_eq!(write("two").status, 204);
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
    drop(slow);
}

/// Bodies in chunks, a byte every half second: each gives its place back within half a minute, however many follow.
#[test]
fn slow_chunks_do_not_keep_the_places_of_a_sender() {
    let server = Receiver::start("[push]\nmax_requests = 4\n");
    let address = server.url.trim_start_matches("http://").to_owned();
    let begun = Instant::now();
    let slow: Vec<_> = (0..4)
        .map(|_| {
            let mut connection = TcpStream::connect(&address).unwrap();
            let request = format!(
                "POST /api/v1/write HTTP/1.1\r\nHost: takt\r\nAuthorization: Bearer {}\r\n\
                 Content-Type: application/x-protobuf\r\nTransfer-Encoding: chunked\r\n\r\n",
                token("one")
            );
            connection.write_all(request.as_bytes()).unwrap();
            thread::spawn(move || {
                while begun.elapsed() < Duration::from_secs(120) {
                    if connection.write_all(b"1\r\nx\r\n").is_err() {
                        return begun.elapsed();
                    }
                    thread::sleep(Duration::from_millis(500));
                }
                begun.elapsed()
            })
        })
        .collect();
    for slow in slow {
        let lasted = slow.join().unwrap();
        assert!(lasted < Duration::from_secs(45), "{lasted:?}");
    }
}
