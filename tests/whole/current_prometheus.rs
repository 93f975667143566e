//! Scrapes and API routes that Debian's Prometheus lacks, beside the current release.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::support::or_skip;
use crate::support::process::{Daemon, free_port, http_get, http_get_with, wait_for};
use crate::support::prometheus::Prometheus;
use crate::support::takt::Takt;
use crate::support::target::{Page, scrape_target};

const SOON: Duration = Duration::from_secs(60);

const TEXT: &str = "untyped{le=\"1\"} 1
# TYPE h histogram
h_bucket{le=\"1\"} 1
h_bucket{le=\"1e6\"} 1
h_bucket{le=\"5e-05\"} 1
h_bucket{le=\"1e400\"} 1
h_bucket{le=\"+Inf\"} 2
h_bucket{le=\"abc\"} 2
h_bucket{le=\"nan\",quantile=\"1\"} 2
h_bucket{le=\"123456789\"} 1
h_bucket{le=\"0.10\"} 1
other{le=\"7\"} 1
# TYPE s summary
s{quantile=\"1\",le=\"2\"} 1
s{quantile=\"0.50\"} 1
# TYPE g gauge
g{le=\"3\",quantile=\"4\"} 1
";

const OPENMETRICS: &str = "# TYPE h histogram
h_bucket{le=\"1\"} 1 # {trace_id=\"a\"} 0.5 1.25
h_bucket{le=\"+Inf\"} 3 # {trace_id=\"b\",x=\"y\"} +Inf
# TYPE g gaugehistogram
g_bucket{le=\"1\"} 1
# TYPE s summary
s{quantile=\"1\"} 1
# TYPE c counter
c_total 1 # {} 2 3
late 1 99999999999999999999
# EOF
";

/// A page in each format.
fn page(path: &str) -> Page {
    if path.starts_with("/openmetrics") {
        (
            "application/openmetrics-text; version=1.0.0",
            OPENMETRICS.into(),
        )
    } else {
        ("text/plain; version=0.0.4", TEXT.into())
    }
}

fn configuration(address: SocketAddr) -> String {
    format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- job_name: text
  static_configs: [{{targets: ['{address}']}}]
  relabel_configs:
  - {{source_labels: [__address__, a], target_label: x}}
  - {{regex: a, action: labeldrop}}
  - {{source_labels: [x], regex: 'no.*', action: drop}}
  - {{source_labels: [x], modulus: 8, target_label: m, action: hashmod}}
- job_name: openmetrics
  metrics_path: /openmetrics
  static_configs: [{{targets: ['{address}']}}]
"
    )
}

struct Both {
    prometheus: Prometheus,
    url: String,
    _takt: Takt,
    _server: Daemon,
}

impl Both {
    fn start() -> Option<Self> {
        let address = scrape_target(page);
        let text = configuration(address);
        let prometheus = or_skip(Prometheus::current(&text))?;
        let takt = Takt::fresh();
        takt.file("prometheus.yml", &text);
        let listen = format!("127.0.0.1:{}", free_port());
        takt.file(
            "takt.toml",
            format!(
                "[server]\nlisten_address = \"{listen}\"\n[jobs]\npoll = false\n\
                 [alerts]\nenabled = false\n[scrape]\nprometheus_config = \"prometheus.yml\"\n"
            ),
        );
        let mut server = takt.start(["serve", "--config", "takt.toml"]);
        let url = format!("http://{listen}");
        server.wait_until("serving", SOON, || {
            http_get(&format!("{url}/-/ready"))
                .ok()
                .filter(|page| page.status == 200)
        });
        let both = Self {
            prometheus,
            url,
            _takt: takt,
            _server: server,
        };
        wait_for("three scrapes of all targets", SOON, || {
            let query = [("query", "count(sum_over_time(up[5m]) >= 3)")];
            both.ask("/api/v1/query", &query)
                .iter()
                .all(|answer| answer["data"]["result"][0]["value"][1] == "2")
                .then_some(())
        });
        Some(both)
    }

    /// Returns Takt's and Prometheus' answer.
    fn ask(&self, path: &str, query: &[(&str, &str)]) -> [Value; 2] {
        let ours = http_get_with(&format!("{}{path}", self.url), query, &[]).unwrap();
        let theirs = self.prometheus.get(path, query);
        [ours, theirs].map(|page| {
            let body = serde_json::from_str(&page.body).unwrap_or(Value::Null);
            json!({
                "status": page.status,
                "data": body["data"],
                "error": body["error"],
            })
        })
    }

    /// The labels of all series of the target, without those that Takt adds.
    fn series(&self) -> [BTreeSet<String>; 2] {
        let query = [(
            "match[]",
            "{job=~\"text|openmetrics\",__name__!~\"scrape_.*|up|late\"}",
        )];
        self.ask("/api/v1/series", &query).map(|answer| {
            answer["data"]
                .as_array()
                .unwrap()
                .iter()
                .map(|labels| without_ours(labels.clone()).to_string())
                .collect()
        })
    }
}

fn without_ours(mut labels: Value) -> Value {
    if let Some(labels) = labels.as_object_mut() {
        labels.retain(|name, _| !["cluster", "node"].contains(&name.as_str()));
    }
    labels
}

#[test]
fn bounds_exemplars_and_times_are_stored_as_by_the_current_prometheus() {
    let Some(both) = Both::start() else { return };
    let [ours, theirs] = both.series();
    assert_eq!(ours, theirs);
    assert!(
        ours.iter()
            .any(|labels| labels.contains("\"le\":\"1e+06\""))
    );
    let [ours, theirs] = both.ask("/api/v1/query", &[("query", "late")]);
    assert_eq!(
        ours, theirs,
        "a sample of a time beyond all times is dropped"
    );

    // Each finds its own spelling; Takt also the other one.
    for (query, of_both) in [
        ("h_bucket{le=\"1.0\"}", true),
        ("h_bucket{le=\"1\"}", false),
    ] {
        let [ours, theirs] = both
            .ask("/api/v1/query", &[("query", &format!("count({query})"))])
            .map(|answer| answer["data"]["result"][0]["value"][1].clone());
        assert_eq!(ours, "2", "{query}");
        assert_eq!(theirs == "2", of_both, "{query}");
    }

    for query in [
        "h_bucket",
        "rate(h_bucket{le=\"1.0\"}[5m]) + on () c_total",
        "g",
        "1",
        "1 +",
    ] {
        for times in [&[][..], &[("start", "1"), ("end", "2")]] {
            let query = [&[("query", query)], times].concat();
            let mut answers = both.ask("/api/v1/query_exemplars", &query);
            for answer in &mut answers {
                let series = answer["data"].as_array_mut().into_iter().flatten();
                for series in series {
                    series["seriesLabels"] = without_ours(series["seriesLabels"].take());

                    // An exemplar without a time has that of its first scrape.
                    let exemplars = series["exemplars"].as_array_mut().into_iter().flatten();
                    for exemplar in exemplars {
                        let at = exemplar["timestamp"].as_f64().unwrap();
                        exemplar["timestamp"] = if at > 1e6 { "scrape".into() } else { json!(at) };
                    }
                }
            }
            let [ours, theirs] = answers;
            assert_eq!(ours, theirs, "{query:?}");
        }
    }
}

#[test]
fn routes_answer_as_those_of_the_current_prometheus() {
    let Some(both) = Both::start() else { return };
    let labels = [
        r#"{"__address__":"q:1","a":"b"}"#,
        r#"{"__address__":"no:1"}"#,
        "{}",
        "",
    ];
    for labels in labels {
        for pool in ["text", "openmetrics", "none", ""] {
            let query = [("scrapePool", pool), ("labels", labels)];
            let [ours, theirs] = both.ask("/api/v1/targets/relabel_steps", &query);
            assert_eq!(ours, theirs, "{query:?}");
        }
    }

    // Takt lists no feature that Prometheus does not know, but its own discovery.
    let [ours, theirs] = both.ask("/api/v1/features", &[]);
    for (category, features) in ours["data"].as_object().unwrap() {
        for name in features
            .as_object()
            .unwrap()
            .keys()
            .filter(|name| *name != "slurm")
        {
            assert!(
                theirs["data"][category][name].is_boolean(),
                "{category} {name}"
            );
        }
    }
    let functions = |answer: &Value| answer["data"]["promql_functions"].clone();
    assert_eq!(functions(&ours), functions(&theirs));

    let pattern = [("metric_name_pattern", ".*process_resident_memory_bytes")];
    let [ours, theirs] = both
        .ask("/api/v1/status/self_metrics", &pattern)
        .map(|mut answer| {
            let family = answer["data"][0].take();
            let keys = |value: &Value| -> Vec<String> {
                value.as_object().unwrap().keys().cloned().collect()
            };
            (family["type"].clone(), keys(&family["metric"][0]))
        });
    assert_eq!(ours, theirs);
    let [ours, theirs] = both.ask("/api/v1/status/tsdb/blocks", &[]);
    assert_eq!(ours, theirs, "both have no block yet");
    let [ours, theirs] = both.ask("/api/v1/status/tsdb", &[("limit", "10001")]);
    assert_eq!(ours, theirs);

    let page = http_get(&format!("{}/api/v1/openapi.yaml", both.url)).unwrap();
    assert!(page.body.contains("\"openapi\": \"3.1.0\""));
    let theirs = both.prometheus.get("/api/v1/openapi.yaml", &[]).body;
    for line in page
        .body
        .lines()
        .filter(|line| line.starts_with("  \"/api/v1/"))
    {
        let path = line.trim().trim_end_matches(':').trim_matches('"');
        let path = path.trim_start_matches("/api/v1");
        let is_known = theirs.contains(&format!("\n    {path}:")) || path == "/openapi.yaml";
        assert!(is_known, "{path}");
    }
}

/// Sends a request as it is and returns the status line and the body.
fn raw(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let head = format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer
        .lines()
        .next()
        .unwrap_or_default()
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .to_owned();
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}

#[test]
fn wrong_methods_and_raw_quotes_are_answered_as_by_the_current_prometheus() {
    let Some(both) = Both::start() else { return };
    let addresses = [both.url.as_str(), both.prometheus.url()];
    let addresses = addresses.map(|url| url.trim_start_matches("http://").to_owned());
    for request in [
        "DELETE /api/v1/series",
        "POST /api/v1/metadata",
        "PUT /api/v1/label/job/values",
        "POST /api/v1/status/tsdb",
        "PATCH /api/v1/query",
        "POST /api/v1/rules",
    ] {
        let [ours, theirs] = addresses.each_ref().map(|address| raw(address, request).0);
        assert_eq!(ours.as_str(), "405", "{request}");
        assert_eq!(theirs.as_str(), "405", "{request}");
    }

    // Requests that change something still need a token.
    assert_eq!(raw(&addresses[0], "POST /api/v2/silences").0, "401");

    let request = "GET /api/v1/query?time=1&query=vector(1)>0+or+up{job=\"text\"}";
    let [ours, theirs] = addresses.each_ref().map(|address| raw(address, request));
    assert_eq!(ours, theirs);
    assert_eq!(ours.0, "200");
}

/// Values that some parameter refuses.
const ODD_VALUES: [&str; 11] = [
    "1",
    "1.5",
    "x",
    "1m",
    "5m0s",
    "-1s",
    "1h 5m",
    "300y",
    "2026-11-23T10:00:00Z",
    "2026-11-23",
    "1_",
];
const ODD_LIMITS: [&str; 6] = ["", "0", "1", "-1", "1.5", "99999999999999999999"];

/// Texts that are selectors or not.
const ODD_SELECTORS: [&str; 14] = [
    "",
    "{}",
    "{a=\"\"}",
    "{a!=\"b\"}",
    "nothing",
    "nothing[5m]",
    "nothing offset 5m",
    "sum(nothing)",
    "1",
    "nothing{",
    "{\"nothing\"}",
    "{nothing}",
    "sum",
    "(nothing)",
];

#[test]
fn odd_parameters_get_the_same_answers() {
    let Some(both) = Both::start() else { return };
    let usual = [
        ("query", "vector(1)"),
        ("time", "1700000000"),
        ("start", "1700000000"),
        ("end", "1700000060"),
        ("step", "15"),
    ];
    let mut requests: Vec<(&str, Vec<(&str, &str)>)> = Vec::new();
    let mut add = |path, names: &[&str], parameters: &[&'static str], values: &[&'static str]| {
        let kept = |without: &str| {
            usual
                .iter()
                .filter(|(name, _)| names.contains(name) && *name != without)
                .copied()
                .collect::<Vec<_>>()
        };
        for name in parameters {
            for value in values {
                requests.push((path, [kept(name), vec![(*name, *value)]].concat()));
            }
        }
    };
    let query = "/api/v1/query";
    add(
        query,
        &["query", "time"],
        &["time", "timeout", "lookback_delta"],
        &ODD_VALUES,
    );
    add(query, &["query", "time"], &["limit"], &ODD_LIMITS);
    add("/api/v1/labels", &[], &["limit"], &ODD_LIMITS);
    let all = ["start", "end", "step", "timeout", "lookback_delta"];
    add(
        "/api/v1/query_range",
        &["query", "start", "end", "step"],
        &all,
        &ODD_VALUES,
    );
    for path in [
        "/api/v1/series",
        "/api/v1/labels",
        "/api/v1/label/job/values",
    ] {
        add(path, &["start", "end"], &["match[]"], &ODD_SELECTORS);
        add(
            path,
            &["start", "end"],
            &["limit", "start", "end"],
            &ODD_VALUES,
        );
    }
    add(
        "/api/v1/query_exemplars",
        &["query", "start", "end"],
        &["start", "end"],
        &ODD_VALUES,
    );
    add(
        "/api/v1/query_exemplars",
        &["start", "end"],
        &["query"],
        &ODD_SELECTORS,
    );
    for parameter in ["limit", "limit_per_metric"] {
        add(
            "/api/v1/metadata",
            &[],
            &[parameter],
            &["x", "1.5", "-1", "0"],
        );
    }
    add(
        "/api/v1/rules",
        &[],
        &["type"],
        &["", "alert", "ALERT", "record", "x"],
    );
    add(
        "/api/v1/rules",
        &[],
        &["exclude_alerts"],
        &["", "1", "T", "false", "x"],
    );
    add(
        "/api/v1/rules",
        &[],
        &["group_limit"],
        &["", "1", "0", "-1"],
    );
    add("/api/v1/rules", &[], &["group_next_token"], &["", "x"]);
    let count = requests.len();
    let mut wrong = Vec::new();
    for (path, query) in requests {
        let [ours, theirs] = both.ask(path, &query).map(|mut answer| {
            // The servers have stored different samples.
            let is_listing = !path.starts_with("/api/v1/query");
            if is_listing && answer["error"].is_null() {
                answer["data"] = Value::Null;
            }
            answer
        });
        if ours != theirs {
            wrong.push(format!(
                "{path} {query:?}\n    there {theirs}\n    here  {ours}"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {count} differ\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
