//! Native histograms: the same ones are pushed to Takt and to Prometheus 3.14, and the same queries are asked of both.

use super::bad_requests::{now, snappy_of};
use super::{OF_THE_SERVER, Receiver, SOON, prometheus_with_histograms};
use crate::support::process::{free_port, http_get_with, http_post, wait_for};
use crate::support::prometheus::labels_without;
use crate::support::{need_peer, or_skip};
use serde_json::Value;
use std::slice;
use std::time::Duration;
use takt_push::remote_write::Protocol;

/// Time between two samples, in milliseconds.
const STEP_MS: i64 = 15_000;
/// Samples of a series.
const SAMPLES: i64 = 32;
const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// What is sent of a native histogram.
#[derive(Clone, Default)]
struct Sent {
    at: i64,
    schema: i64,
    sum: f64,
    zero_threshold: f64,
    zero_count: f64,
    /// Index of the first bucket, and the counts.
    positive: (i64, Vec<f64>),
    negative: (i64, Vec<f64>),
    /// Observations that no bucket holds.
    outside: f64,
    hint: u64,
    is_float: bool,
    /// Bounds of custom buckets.
    custom_values: Vec<f64>,
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

fn zigzag(number: i64) -> Vec<u8> {
    varint(((number << 1) ^ (number >> 63)).cast_unsigned())
}

fn field(number: u64, wire: u64, content: &[u8]) -> Vec<u8> {
    [varint(number << 3 | wire), content.to_vec()].concat()
}

fn bytes(number: u64, content: &[u8]) -> Vec<u8> {
    let length = varint(content.len() as u64);
    field(number, 2, &[length, content.to_vec()].concat())
}

fn double(number: u64, value: f64) -> Vec<u8> {
    field(number, 1, &value.to_le_bytes())
}

impl Sent {
    /// The message `Histogram` of remote write.
    fn message(&self) -> Vec<u8> {
        let counts = self.positive.1.iter().chain(&self.negative.1);
        let count = counts.sum::<f64>() + self.zero_count + self.outside;
        let mut out = Vec::new();
        if self.is_float {
            out.extend(double(2, count));
            out.extend(double(7, self.zero_count));
        } else {
            out.extend(field(1, 0, &varint(count as u64)));
            out.extend(field(6, 0, &varint(self.zero_count as u64)));
        }
        out.extend(double(3, self.sum));
        out.extend(field(4, 0, &zigzag(self.schema)));
        out.extend(double(5, self.zero_threshold));
        // The numbers of the fields of each side: spans, differences of integers, and counts of
        // floats.
        for (first, (offset, counts)) in [(8, &self.negative), (11, &self.positive)] {
            if counts.is_empty() {
                continue;
            }
            let length = varint(counts.len() as u64);
            let span = [field(1, 0, &zigzag(*offset)), field(2, 0, &length)].concat();
            out.extend(bytes(first, &span));
            if self.is_float {
                let packed: Vec<u8> = counts.iter().flat_map(|one| one.to_le_bytes()).collect();
                out.extend(bytes(first + 2, &packed));
            } else {
                // Integer counts are sent as differences to the bucket before.
                let mut before = 0;
                let mut packed = Vec::new();
                for count in counts {
                    packed.extend(zigzag(*count as i64 - before));
                    before = *count as i64;
                }
                out.extend(bytes(first + 1, &packed));
            }
        }
        out.extend(field(14, 0, &varint(self.hint)));
        out.extend(field(15, 0, &varint(self.at.cast_unsigned())));
        if !self.custom_values.is_empty() {
            let bounds = self.custom_values.iter();
            let packed: Vec<u8> = bounds.flat_map(|one| one.to_le_bytes()).collect();
            out.extend(bytes(16, &packed));
        }
        out
    }
}

fn label(name: &str, value: &str) -> Vec<u8> {
    bytes(
        1,
        &[bytes(1, name.as_bytes()), bytes(2, value.as_bytes())].concat(),
    )
}

/// A series of a request of version 1.0, with floats and histograms.
fn series(metric: &str, node: &str, floats: &[(i64, f64)], histograms: &[Sent]) -> Vec<u8> {
    let mut out = [label("__name__", metric), label("node", node)].concat();
    for (at, value) in floats {
        let sample = [double(1, *value), field(2, 0, &varint(at.cast_unsigned()))];
        out.extend(bytes(2, &sample.concat()));
    }
    for histogram in histograms {
        out.extend(bytes(4, &histogram.message()));
    }
    bytes(1, &out)
}

/// Numbers that look random and are the same in each run.
fn pick(of: i64, below: i64) -> f64 {
    ((of * 7_919 + 104_729).wrapping_mul(2_654_435_761) >> 7).rem_euclid(below) as f64
}

/// Histograms of a counter: buckets grow, and start again at the sample `reset`.
fn counter(began: i64, seed: i64, schema: i64, reset: i64) -> Vec<Sent> {
    let mut counts = vec![0.0; 6];
    let mut zero_count = 0.0;
    let mut sum = 0.0;
    let one = |step| {
        if step == reset {
            counts.fill(0.0);
            zero_count = 0.0;
            sum = 0.0;
        }
        for (bucket, count) in counts.iter_mut().enumerate() {
            *count += pick(seed + step * 31 + bucket as i64, 5);
        }
        zero_count += pick(seed + step, 2);
        sum += pick(seed + step * 3, 90) / 4.0;
        Sent {
            at: began + step * STEP_MS + seed,
            schema,
            sum,
            zero_threshold: 0.001,
            zero_count,
            positive: (-2, counts.clone()),
            ..Sent::default()
        }
    };
    (0..SAMPLES).map(one).collect()
}

/// The same counts in custom buckets.
fn with_bounds(mut sent: Vec<Sent>, bounds: &[f64]) -> Vec<Sent> {
    for one in &mut sent {
        one.schema = -53;
        one.zero_threshold = 0.0;
        one.zero_count = 0.0;
        one.positive.0 = 0;
        // One bucket more than bounds: the last one reaches to infinity.
        one.positive.1.truncate(bounds.len() + 1);
        one.custom_values = bounds.to_vec();
    }
    sent
}

/// All series of the comparison. The samples begin at `began`.
fn request(began: i64) -> Vec<Vec<u8>> {
    let mut coarser = counter(began, 5, 3, 99);
    for sent in &mut coarser[20..] {
        // A sender halves its resolution when it has too many buckets.
        let counts = &sent.positive.1;
        let joined = [
            counts[0] + counts[1],
            counts[2] + counts[3],
            counts[4] + counts[5],
        ];
        sent.schema = 2;

        // Buckets -1 and 0 of schema 3 are bucket 0 of schema 2.
        sent.positive = (0, joined.to_vec());
    }
    for sent in &mut coarser {
        if sent.schema == 3 {
            sent.positive.0 = -1;
        }
    }
    let gauges = (0..SAMPLES).map(|step| Sent {
        at: began + step * STEP_MS + 7,
        schema: 1,
        sum: pick(step, 100) - 50.0,
        zero_threshold: 0.5,
        zero_count: pick(step, 3) + 0.5,
        positive: (0, (0..4).map(|n| pick(step * 5 + n, 4) / 2.0).collect()),
        negative: (1, (0..3).map(|n| pick(step * 3 + n, 4) / 2.0).collect()),
        hint: 3,
        is_float: true,
        ..Sent::default()
    });
    let gauges: Vec<Sent> = gauges.collect();

    // A sender that widens its zero bucket over the lowest one.
    let mut wide = counter(began, 9, 0, 99);
    for sent in &mut wide[10..] {
        sent.zero_threshold = 0.25;
        sent.zero_count += sent.positive.1.remove(0);
        sent.positive.0 += 1;
    }
    // With a sum of NaN the count may exceed that of the buckets.
    let mut with_nan = counter(began, 11, 2, 99);
    for sent in &mut with_nan {
        sent.sum = f64::NAN;
        sent.outside = 3.0;
    }
    // A staleness marker of histograms is a sum with the marker's bits.
    let mut ends = counter(began, 13, 0, 99);
    ends.truncate(10);
    ends.push(Sent {
        at: began + 10 * STEP_MS + 13,
        sum: STALE,
        ..Sent::default()
    });

    // A series that changes from floats to histograms.
    let floats: Vec<(i64, f64)> = (0..16)
        .map(|step| (began + step * STEP_MS + 3, step as f64))
        .collect();
    let mixed = counter(began, 3, 0, 99);
    let bounds = [0.1, 0.5, 1.0, 5.0, 10.0];
    let bounded = |seed, reset| with_bounds(counter(began, seed, 0, reset), &bounds);
    let elsewhere = with_bounds(counter(began, 23, 0, 99), &[0.5, 1.0, 2.0, 10.0]);
    let below_zero = with_bounds(counter(began, 24, 0, 99), &[-2.0, 0.0, 1.0]);

    // A sender leaves out a bound, and another one begins to send exponential buckets.
    let mut fewer = bounded(25, 99);
    for sent in &mut fewer[16..] {
        let joined = sent.positive.1.remove(1);
        sent.positive.1[1] += joined;
        sent.custom_values.remove(1);
    }
    let mut other_kind = bounded(26, 99);
    other_kind[16..].clone_from_slice(&counter(began, 26, 0, 99)[16..]);
    let classic = |le: &str, value: f64| {
        let mut out = [
            label("__name__", "both"),
            label("le", le),
            label("node", "g01"),
        ]
        .concat();
        for step in 0..SAMPLES {
            let at = began + step * STEP_MS + 17;
            let sample = [double(1, value), field(2, 0, &varint(at.cast_unsigned()))];
            out.extend(bytes(2, &sample.concat()));
        }
        bytes(1, &out)
    };
    vec![
        series("latency", "g01", &[], &counter(began, 0, 0, 12)),
        series("latency", "g02", &[], &counter(began, 1, 0, 99)),
        series("latency", "g03", &[], &counter(began, 2, 1, 99)),
        series("coarser", "g01", &[], &coarser),
        series("gauge", "g01", &[], &gauges),
        series("wide", "g01", &[], &wide),
        series("nan", "g01", &[], &with_nan),
        series("ends", "g01", &[], &ends),
        series("mixed", "g01", &floats, &mixed[16..]),
        series("both", "g01", &[], &counter(began, 17, 0, 99)),
        classic("1", 3.0),
        classic("+Inf", 5.0),
        series("bounded", "g01", &[], &bounded(19, 12)),
        series("bounded", "g02", &[], &bounded(21, 99)),
        series("bounded", "g03", &[], &elsewhere),
        series("below", "g01", &[], &below_zero),
        series("fewer", "g01", &[], &fewer),
        series("kinds", "g01", &[], &other_kind),
        series("number", "g01", &floats, &[]),
        series("number", "g02", &floats, &[]),
    ]
}

const QUERIES: &[&str] = &include!("native.in");

/// Pushes all series to Takt.
fn push(server: &Receiver, began: i64) {
    for one in request(began) {
        let page = server.write(Protocol::V1, &snappy_of(&one));
        assert_eq!(page.status, 204, "{}", page.body);
    }
}

/// Pushes all series to Prometheus, which takes each sample once.
fn push_to_prometheus(url: &str, began: i64) {
    for one in request(began) {
        let headers = [
            ("Content-Type", "application/x-protobuf"),
            ("Content-Encoding", "snappy"),
        ];
        let url = format!("{url}/api/v1/write");
        let page = http_post(&url, &headers, &snappy_of(&one)).unwrap();
        assert_eq!(page.status, 204, "{}", page.body);
    }
}

fn ask(url: &str, path: &str, parameters: &[(&str, String)]) -> Value {
    let parameters: Vec<(&str, &str)> = parameters
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let page = http_get_with(&format!("{url}/api/v1/{path}"), &parameters, &[]).unwrap();
    serde_json::from_str(&page.body).unwrap()
}

/// Elements in the order of their labels, without the labels that the server sets.
fn comparable(answer: &Value) -> Vec<(String, Value)> {
    let result = &answer["data"]["result"];
    let Some(elements) = result
        .as_array()
        .filter(|all| all.iter().all(Value::is_object))
    else {
        return vec![(String::new(), result.clone())];
    };
    let mut all: Vec<(String, Value)> = elements
        .iter()
        .map(|one| {
            let mut values = one.clone();
            values.as_object_mut().unwrap().remove("metric");
            (labels_without(one, &OF_THE_SERVER), values)
        })
        .collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

/// Whether two answers are the same but for the rounding of numbers.
fn is_same(theirs: &Value, ours: &Value) -> bool {
    match (theirs, ours) {
        (Value::Array(theirs), Value::Array(ours)) => {
            theirs.len() == ours.len() && theirs.iter().zip(ours).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(theirs), Value::Object(ours)) => {
            theirs.len() == ours.len()
                && theirs
                    .iter()
                    .all(|(name, value)| ours.get(name).is_some_and(|own| is_same(value, own)))
        }
        (Value::String(theirs), Value::String(ours)) => {
            match (theirs.parse::<f64>(), ours.parse::<f64>()) {
                (Ok(one), Ok(other)) => {
                    one == other
                        || one.is_nan() && other.is_nan()
                        || (one - other).abs() <= 1e-9 * one.abs().max(other.abs()).max(1e-6)
                }
                _ => theirs == ours,
            }
        }
        _ => theirs == ours,
    }
}

/// Differences between the answers to one query.
fn difference(theirs: &Value, ours: &Value) -> Option<String> {
    let remarks = |answer: &Value, kind: &str| {
        let texts = answer[kind].as_array().cloned().unwrap_or_default();
        let mut texts: Vec<String> = texts.iter().map(Value::to_string).collect();
        texts.sort();
        texts
    };
    for kind in ["warnings", "infos"] {
        let [theirs, ours] = [theirs, ours].map(|answer| remarks(answer, kind));
        if theirs != ours {
            return Some(format!("{kind}\n  there {theirs:?}\n  here  {ours:?}"));
        }
    }
    if theirs["status"] != ours["status"] {
        return Some(format!("there {theirs}\n  here  {ours}"));
    }
    let [theirs, ours] = [theirs, ours].map(comparable);
    let is_equal = theirs.len() == ours.len()
        && theirs
            .iter()
            .zip(&ours)
            .all(|(a, b)| a.0 == b.0 && is_same(&a.1, &b.1));
    let shown = |all: &[(String, Value)]| {
        let all: Vec<String> = all
            .iter()
            .map(|(labels, v)| format!("{labels} {v}"))
            .collect();
        all.join("\n        ")
    };
    (!is_equal).then(|| format!("there {}\n  here  {}", shown(&theirs), shown(&ours)))
}

#[test]
fn native_histograms_are_answered_as_prometheus_answers() {
    let Some(program) = or_skip(need_peer("prometheus-3.14.0")) else {
        return;
    };
    let mut server = Receiver::start("[query]\nexperimental = true\n");
    let address = format!("127.0.0.1:{}", free_port());
    let files = server.takt.directory().join("prometheus");
    let _prometheus = prometheus_with_histograms(&program, &files, &address);
    let prometheus = format!("http://{address}");
    let began = (now() - (SAMPLES + 4) * STEP_MS) / 1000 * 1000;
    push(&server, began);
    push_to_prometheus(&prometheus, began);
    let compare = |server: &Receiver| {
        let mut wrong = Vec::new();
        for query in QUERIES {
            let text = ("query", (*query).to_owned());
            let mut asked = Vec::new();
            // Before and after the changes within the series, and at the end.
            for step in [9, 14, 21, SAMPLES] {
                let at = began + step * STEP_MS + 1000;
                asked.push(("query", vec![text.clone(), ("time", seconds(at))]));
            }
            let times = [
                ("start", seconds(began + 2 * STEP_MS + 500)),
                ("end", seconds(began + SAMPLES * STEP_MS)),
                ("step", "20".to_owned()),
            ];
            asked.push(("query_range", [&[text][..], &times].concat()));
            for (path, parameters) in asked {
                let theirs = ask(&prometheus, path, &parameters);
                let ours = ask(&server.url, path, &parameters);
                if let Some(text) = difference(&theirs, &ours) {
                    wrong.push(format!("{path} {query}\n  {text}"));
                }
            }
        }
        let count = wrong.len();
        wrong.truncate(15);
        assert!(wrong.is_empty(), "{count} differ\n{}", wrong.join("\n"));
    };
    compare(&server);

    // Parts are hidden from listings, and the histograms are in them.
    let names = ask(&server.url, "labels", &[]);
    assert!(!names["data"].to_string().contains("__native__"), "{names}");
    let selector = [("match[]", "{__name__=~\"latency|gauge\"}".to_owned())];
    let listed = ask(&server.url, "series", &selector);
    assert_eq!(listed["data"].as_array().unwrap().len(), 4, "{listed}");
    assert!(!listed.to_string().contains("__native__"), "{listed}");
    let values = ask(&server.url, "label/__name__/values", &[]);
    assert!(values["data"].to_string().contains("latency"), "{values}");

    // The same histograms again change nothing; another one at the same time is refused.
    push(&server, began);
    let mut other = counter(began, 1, 0, 99);
    other.truncate(1);
    other[0].zero_count += 4.0;
    let page = server.write(
        Protocol::V1,
        &snappy_of(&series("latency", "g02", &[], &other)),
    );
    assert_eq!(page.status, 400);
    assert_eq!(server.rejected("conflict"), 1.0);
    compare(&server);

    // After a crash, and sealed.
    server.kill_and_restart(Duration::ZERO);
    compare(&server);
    server.takt.run(["store", "seal"]).ok();
    compare(&server);
}

/// Prometheus' own page has native histograms. The count of one is that on its text page.
#[test]
fn native_histograms_of_a_page_are_scraped() {
    let Some(program) = or_skip(need_peer("prometheus-3.14.0")) else {
        return;
    };
    let address = format!("127.0.0.1:{}", free_port());
    let more = format!(
        "[scrape]\ninterval_seconds = 1\ntimeout_seconds = 1\n[[scrape.configs]]\njob_name = \"native\"\n\
         scrape_native_histograms = true\nstatic_configs = [{{ targets = [\"{address}\"] }}]\n\
         metric_relabel_configs = [{{ regex = \"__native__\", action = \"labeldrop\" }}]\n\
         [[scrape.configs]]\njob_name = \"text\"\nstatic_configs = [{{ targets = [\"{address}\"] }}]\n"
    );
    let server = Receiver::start(&more);
    let files = server.takt.directory().join("prometheus");
    let mut prometheus = prometheus_with_histograms(&program, &files, &address);
    let metric = "prometheus_http_request_duration_seconds";
    let of = |query: &str| {
        ask(&server.url, "query", &[("query", query.to_owned())])["data"]["result"][0]["value"][1]
            .as_str()?
            .parse::<f64>()
            .ok()
    };

    // The page that Takt asks for is counted, too, so compare a handler that is asked by nobody now.
    let ready = "handler=\"/-/ready\"";
    let native = format!("histogram_count({metric}{{{ready},job=\"native\"}})");
    let classic = format!("{metric}_count{{{ready},job=\"text\"}}");
    let both = prometheus.wait_until("both counts", SOON, || {
        let native = of(&native)?;
        let classic = of(&classic)?;
        (native == classic).then_some(native)
    });
    assert!(both >= 1.0);

    // The native job has no classic buckets, the other one no histograms.
    let buckets = |job: &str| of(&format!("count({metric}_bucket{{job=\"{job}\"}})"));
    assert_eq!(buckets("native"), None);
    assert!(buckets("text").is_some());
    assert_eq!(
        of(&format!("histogram_count({metric}{{job=\"text\"}})")),
        None
    );
    let quantile = format!("histogram_quantile(0.9, sum({metric}{{job=\"native\"}}))");
    assert!(of(&quantile).is_some_and(|value| value > 0.0 && value < 100.0));

    // Other metrics of the page are as on the text page.
    let info = "count(prometheus_build_info{job=\"native\"})";
    assert_eq!(of(info), Some(1.0));
    let up = of("count(up{job=~\"native|text\"} == 1)");
    assert_eq!(up, Some(2.0));

    // The series end with their target.
    prometheus.kill();
    wait_for("the end of the series", SOON, || {
        of(&format!("absent({metric}{{job=\"native\"}})"))
    });
}

#[test]
fn bad_native_histograms_are_refused_and_counted() {
    let server = Receiver::start("");
    let at = now() - 30_000;
    let fine = Sent {
        at,
        sum: 4.0,
        positive: (0, vec![1.0, 2.0]),
        ..Sent::default()
    };
    let page = server.write(
        Protocol::V1,
        &snappy_of(&series("fine", "g01", &[], slice::from_ref(&fine))),
    );
    assert_eq!(page.status, 204);
    assert_eq!(page.body.as_str(), "");
    let headers = page.headers;
    assert_eq!(headers["x-prometheus-remote-write-histograms-written"], "1");
    assert_eq!(headers["x-prometheus-remote-write-samples-written"], "0");
    let later = |change: &dyn Fn(&mut Sent)| {
        let mut sent = Sent {
            at: at + 1,
            ..fine.clone()
        };
        change(&mut sent);
        sent.message()
    };
    // A span of nine buckets with the counts of two.
    let spans = [later(&|_| {}), bytes(11, &field(2, 0, &[9]))].concat();
    let bad: [(&str, Vec<u8>); 7] = [
        ("schema 53 is", later(&|sent| sent.schema = 53)),
        ("custom buckets", later(&|sent| sent.schema = -53)),
        ("schema -5 is", later(&|sent| sent.schema = -5)),
        ("negative", later(&|sent| sent.positive.1[0] = -1.0)),
        ("add up", later(&|sent| sent.outside = -1.0)),
        ("threshold", later(&|sent| sent.zero_threshold = -1.0)),
        ("number of buckets", spans),
    ];
    for (number, (words, message)) in bad.into_iter().enumerate() {
        let labels = [label("__name__", "fine"), label("node", "g01")].concat();
        let one = bytes(1, &[labels, bytes(4, &message)].concat());
        let page = server.write(Protocol::V1, &snappy_of(&one));
        assert_eq!(page.status, 400, "{words}");
        assert!(page.body.contains(words), "{words}: {}", page.body);
        assert_eq!(server.rejected("native_histogram"), number as f64 + 1.0);
    }

    // Cut off within a bucket: the whole request is refused.
    let labels = [label("__name__", "fine"), label("node", "g01")].concat();
    let cut = later(&|_| {});
    let one = bytes(1, &[labels, bytes(4, &cut[..cut.len() - 12])].concat());
    let page = server.write(Protocol::V1, &snappy_of(&one));
    assert_eq!(page.status, 400, "{}", page.body);

    // The label of the parts cannot be sent.
    let forged = [label("__name__", "fine"), label("__native__", "count")].concat();
    let sample = [double(1, 5.0), field(2, 0, &varint(at.cast_unsigned()))].concat();
    let one = bytes(1, &[forged, bytes(2, &sample)].concat());
    let page = server.write(Protocol::V1, &snappy_of(&one));
    assert!(page.body.contains("reserved"), "{}", page.body);

    // The first one is stored as it was sent.
    let stored = ask(
        &server.url,
        "query",
        &[("query", "fine".to_owned()), ("time", seconds(at + 5000))],
    );
    let expected = r#"{"count":"3","sum":"4","buckets":[[0,"0.5","1","1"],[0,"1","2","2"]]}"#;
    let histogram = stored["data"]["result"][0]["histogram"][1].to_string();
    assert_eq!(
        serde_json::from_str::<Value>(&histogram).unwrap(),
        serde_json::from_str::<Value>(expected).unwrap()
    );

    // Readers of floats see no parts.
    let federate = format!("{}/federate", server.url);
    let page = wait_for("the server's own samples", Duration::from_secs(30), || {
        let all = [("match[]", "{__name__=~\".+\"}")];
        let page = http_get_with(&federate, &all, &[]).unwrap();
        page.body.contains("takt_push").then_some(page.body)
    });
    assert!(!page.contains("fine"), "{page}");
}

fn seconds(ms: i64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}
