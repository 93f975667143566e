//! Prometheus' HTTP API, ours beside Debian's Prometheus. Both scrape the same exporter and get the
//! same requests.

use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::or_skip;
use crate::support::process::{Daemon, free_port, http_get, http_get_with, wait_for};
use crate::support::prometheus::{Prometheus, Target, instant_query};
use crate::support::takt::Takt;
use std::mem;
use std::net::TcpStream;

/// Takt's server and Prometheus, after some scrapes of the same exporter.
struct Both {
    prometheus: Prometheus,
    url: String,
    takt: Takt,
    server: Daemon,
    _exporter: Daemon,
}

impl Both {
    fn start() -> Option<Self> {
        let takt = Takt::fresh();
        let exporter_address = format!("127.0.0.1:{}", free_port());

        // Both have to see the same metrics, and other tests start and end jobs.
        let mut exporter = takt.start([
            "exporter",
            "--no-collector.jobs",
            "--web.listen-address",
            &exporter_address,
        ]);
        let page = format!("http://{exporter_address}/metrics");
        exporter.wait_until("serving", Duration::from_secs(20), || {
            http_get(&page).ok().filter(|page| page.status == 200)
        });
        let labels = [("cluster", "lab"), ("node", "n1")];
        let target = Target {
            job: "node",
            address: &exporter_address,
            labels: &labels,
        };
        let mut prometheus = or_skip(Prometheus::start(&[target]))?;
        let address = format!("127.0.0.1:{}", free_port());
        takt.file(
            "takt.toml",
            format!(
                "cluster = \"lab\"\n[server]\nlisten_address = \"{address}\"\n[jobs]\npoll = \
                 false\n[alerts]\nenabled = false\n[scrape]\n\
                 interval_seconds = 1\ntimeout_seconds = 1\n\
                 [[scrape.targets]]\naddress = \"{exporter_address}\"\nnode = \"n1\"\n"
            ),
        );
        let mut server = takt.start(["serve", "--config", "takt.toml"]);
        let url = format!("http://{address}");
        server.wait_until("scraping", Duration::from_secs(30), || {
            let scrapes = instant_query(&url, "sum_over_time(up[1m])").ok()?;
            scrapes
                .first()
                .filter(|scrapes| scrapes.value >= 3.0)
                .map(|_| ())
        });
        prometheus.wait_for_scrapes(3);
        Some(Self {
            prometheus,
            url,
            takt,
            server,
            _exporter: exporter,
        })
    }

    /// Returns status and body of Takt's and of Prometheus' answer.
    fn ask(&self, path: &str, query: &[(&str, &str)]) -> [(u16, Value); 2] {
        let json = |page: crate::support::process::Page| {
            let body = serde_json::from_str(&page.body)
                .unwrap_or_else(|_| panic!("{path} {query:?}: {}", page.body));
            (page.status, body)
        };
        let ours = http_get_with(&format!("{}{path}", self.url), query, &[]).unwrap();
        [json(ours), json(self.prometheus.get(path, query))]
    }

    /// Fails unless both answers are equal, apart from the order of series.
    #[track_caller]
    fn assert_same(&self, path: &str, query: &[(&str, &str)]) -> Value {
        let [mut ours, mut theirs] = self.ask(path, query);
        for (_, body) in [&mut ours, &mut theirs] {
            let result = if body["data"]["result"].is_array() {
                &mut body["data"]["result"]
            } else {
                &mut body["data"]
            };
            if let Some(series) = result
                .as_array_mut()
                .filter(|all| all.iter().all(Value::is_object))
            {
                series.sort_by_key(ToString::to_string);
            }
        }
        assert_eq!(ours, theirs, "{path} {query:?}");
        ours.1["data"].take()
    }
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

#[test]
fn answers_as_prometheus_does() {
    let Some(mut both) = Both::start() else {
        return;
    };
    let begin = now();
    wait_for("two seconds of samples", Duration::from_secs(10), || {
        (now() >= begin + 3).then_some(())
    });
    let start = begin.to_string();
    let end = format!("{}.500", begin + 2);

    // Grafana's test of a data source.
    let health = both.assert_same("/api/v1/query", &[("query", "1+1"), ("time", &start)]);
    assert_eq!(
        health,
        json!({"resultType": "scalar", "result": [begin, "2"]})
    );

    // Metrics that do not change, as the two servers scrape at different moments.
    let stable = [
        "node_memory_MemTotal_bytes",
        "node_uname_info",
        "count by (cpu) (node_cpu_seconds_total)",
        "count(node_cpu_seconds_total{mode=~\"idle|user\"})",
        "node_boot_time_seconds * 2 > 0",
        "max by (node) (node_memory_MemTotal_bytes) / on (node) group_left (release) \
         node_uname_info",
        "label_replace(up{job=\"node\"}, \"short\", \"$1\", \"instance\", \"(.*):.*\")",
        "absent(nothing_of_this_name{a=\"b\"})",
        "\"text\"",
        "vector(1.5)",
    ];

    // Over a range, Prometheus 3 warns that sorting has no effect; 2.42 does not.
    let sorted = "sort_desc(count by (mode) (node_cpu_seconds_total))";
    both.assert_same("/api/v1/query", &[("query", sorted), ("time", &end)]);
    for query in stable {
        let answer = both.assert_same("/api/v1/query", &[("query", query), ("time", &end)]);
        assert_ne!(answer["result"], json!([]), "{query}");
        if query != "\"text\"" {
            let range = [
                ("query", query),
                ("start", start.as_str()),
                ("end", end.as_str()),
                ("step", "500ms"),
            ];
            let answer = both.assert_same("/api/v1/query_range", &range);
            assert_eq!(
                answer["result"][0]["values"].as_array().unwrap().len(),
                6,
                "{query}"
            );
        }
    }

    let of_node = ("match[]", "{__name__=~\"node_(memory|cpu|uname|load).*\"}");
    both.assert_same(
        "/api/v1/series",
        &[of_node, ("start", &start), ("end", &end)],
    );
    both.assert_same("/api/v1/labels", &[of_node]);
    both.assert_same(
        "/api/v1/labels",
        &[("match[]", "node_uname_info"), ("match[]", "node_load1")],
    );
    for label in ["__name__", "mode", "node", "job", "nothing"] {
        both.assert_same(&format!("/api/v1/label/{label}/values"), &[of_node]);
    }
    for metric in ["node_memory_MemTotal_bytes", "nothing_of_this_name"] {
        both.assert_same("/api/v1/metadata", &[("metric", metric)]);
    }
    both.assert_same(
        "/api/v1/query_exemplars",
        &[("query", "test"), ("start", &start), ("end", &end)],
    );
    both.assert_same("/api/v1/rules", &[]);
    both.assert_same("/api/v1/alerts", &[]);
    both.assert_same("/api/v1/alertmanagers", &[]);
    both.assert_same("/api/v1/format_query", &[("query", "sum  by(a)( up )")]);

    // Where values differ by server, the keys are equal.
    let [(_, ours), (_, theirs)] = both.ask("/api/v1/targets", &[("state", "active")]);
    let target = |answer: &Value| answer["data"]["activeTargets"][0].clone();
    for key in [
        "labels",
        "scrapePool",
        "scrapeUrl",
        "health",
        "lastError",
        "scrapeInterval",
        "scrapeTimeout",
    ] {
        assert_eq!(target(&ours)[key], target(&theirs)[key], "{key}");
    }
    for (name, value) in target(&theirs).as_object().unwrap() {
        let same_kind = mem::discriminant(&target(&ours)[name]) == mem::discriminant(value);
        assert!(same_kind, "{name}: {} and {value}", target(&ours)[name]);
    }
    for path in ["buildinfo", "runtimeinfo", "config", "flags", "tsdb"] {
        let [(status, ours), (_, theirs)] = both.ask(&format!("/api/v1/status/{path}"), &[]);
        assert_eq!(status, 200, "{path}");
        assert_eq!(&ours["status"], &theirs["status"], "{path}");
        assert!(ours["data"].is_object(), "{path}: {ours}");
    }

    // Metadata of a metric by target; the limit stops before the next target.
    let of_target = [("metric", "node_load1"), ("match_target", "{job=\"node\"}")];
    let [(_, ours), (_, theirs)] = both.ask("/api/v1/targets/metadata", &of_target);
    assert_eq!(ours["data"], theirs["data"]);
    let [(_, ours), (_, theirs)] = both.ask(
        "/api/v1/targets/metadata",
        &[("match_target", "{job=\"node\"}")],
    );
    let names = |answer: &Value| {
        let mut names: Vec<_> = answer["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["metric"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&ours), names(&theirs));
    for limit in ["0", "2"] {
        let [ours, theirs] = both
            .ask(
                "/api/v1/targets/metadata",
                &[("limit", limit), ("match_target", "{job=\"node\"}")],
            )
            .map(|(_, answer)| answer["data"].as_array().unwrap().len());
        assert_eq!(ours, theirs);
        assert_eq!(ours == 0, limit == "0");
    }
    both.assert_same(
        "/api/v1/targets/metadata",
        &[("metric", "nothing_of_this_name")],
    );
    both.assert_same("/api/v1/status/walreplay", &[]);

    // POST with a form equals GET and needs no token on this machine.
    let form = ureq::post(format!("{}/api/v1/query", both.url))
        .send_form([("query", "1+1"), ("time", "5")])
        .unwrap();
    let answer: Value = serde_json::from_str(&form.into_body().read_to_string().unwrap()).unwrap();
    assert_eq!(answer["data"]["result"], json!([5, "2"]));

    // The command asks the server while it runs and reads the files afterwards.
    let asked = [
        "query",
        "node_memory_MemTotal_bytes",
        "--time",
        &end,
        "--format",
        "json",
    ];
    let from_server = both.takt.run(asked).ok();
    both.server.stop();
    assert_eq!(both.takt.run(asked).ok(), from_server);
    assert!(from_server.contains("\"node\": \"n1\""), "{from_server}");
    assert!(
        both.takt
            .run(["query", "1 +"])
            .fails(2)
            .contains("parse error")
    );
}

#[test]
fn errors_equal_prometheus_errors() {
    let Some(both) = Both::start() else { return };
    let mut different = Vec::new();
    let query = |query| vec![("query", query)];
    let range = |start, end, step| {
        vec![
            ("query", "up"),
            ("start", start),
            ("end", end),
            ("step", step),
        ]
    };
    for (path, parameters) in [
        ("query", query("")),
        ("query", query("1 +")),
        ("query", query("rate(up)")),
        ("query", query("{}")),
        ("query", vec![("query", "up"), ("time", "yesterday")]),
        ("query", vec![("query", "up"), ("timeout", "5x")]),
        (
            "query",
            query("node_cpu_seconds_total + on () node_cpu_seconds_total"),
        ),
        (
            "query",
            query("label_replace(node_cpu_seconds_total, \"mode\", \"\", \"\", \"\")"),
        ),
        ("query_range", range("", "10", "1")),
        ("query_range", range("10", "9", "1")),
        ("query_range", range("0", "10", "0")),
        ("query_range", range("0", "10", "-1")),
        ("query_range", range("0", "10", "1e300")),
        ("query_range", range("0", "11001", "1")),
        (
            "query_range",
            vec![
                ("query", "up[1m]"),
                ("start", "0"),
                ("end", "10"),
                ("step", "1"),
            ],
        ),
        ("series", Vec::new()),
        ("series", vec![("match[]", "{")]),
        ("series", vec![("match[]", "up"), ("start", "x")]),
        ("labels", vec![("match[]", "{a=\"\"}")]),
        ("label/mode/values", vec![("match[]", "1")]),
        ("metadata", vec![("limit", "x")]),
        ("query_exemplars", query("1 +")),
        ("format_query", query("1 +")),
    ] {
        let [(our_status, ours), (their_status, theirs)] =
            both.ask(&format!("/api/v1/{path}"), &parameters);
        let kind = |status: u16, answer: &Value| {
            (
                status,
                answer["status"].clone(),
                answer["errorType"].clone(),
            )
        };

        // Capitals, and which errors name the parameter "query", differ between Prometheus 2 and 3.
        let text = |answer: &Value| {
            let text = answer["error"].as_str().unwrap_or_default().to_lowercase();
            text.strip_prefix("invalid parameter \"query\": ")
                .map(str::to_owned)
                .unwrap_or(text)
        };

        // Messages of the parser are Takt's own, and series are written as `up{…}`; all others
        // equal Prometheus'.
        let our_words = ["parse error", "found duplicate series"]
            .iter()
            .any(|words| text(&ours).contains(words));
        let same_text = our_words || text(&ours) == text(&theirs);
        if kind(our_status, &ours) != kind(their_status, &theirs) || !same_text {
            different.push(format!(
                "{path} {parameters:?}\n  {our_status} {ours}\n  {their_status} {theirs}"
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));

    // The largest allowed number of points.
    let [(ours, _), (theirs, _)] = both.ask("/api/v1/query_range", &range("0", "11000", "1"));
    assert_eq!(ours, 200);
    assert_eq!(theirs, 200);

    // Times out before it starts.
    let [(ours, body), (theirs, _)] =
        both.ask("/api/v1/query", &[("query", "up"), ("timeout", "0.000001")]);
    assert_eq!(ours, 503);
    assert_eq!(theirs, 503);
    assert_eq!(&body["errorType"], &json!("timeout"));
}

/// Requests of Grafana's data source "Prometheus": its test, variables, the query builder, panels
/// and alert rules.
#[test]
fn grafana_is_answered() {
    let Some(both) = Both::start() else { return };
    let end = now();
    let start = (end - 3600).to_string();
    let end = end.to_string();
    let post = |path: &str, form: &[(&str, &str)]| -> Value {
        let answer = ureq::post(format!("{}/api/v1/{path}", both.url))
            .send_form(form.iter().copied())
            .unwrap();
        serde_json::from_str(&answer.into_body().read_to_string().unwrap()).unwrap()
    };

    // "Save & test", and the version check; with the field `features` Grafana would take the server
    // for Mimir.
    let health = post("query", &[("query", "1+1"), ("time", &end)]);
    assert_eq!(health["data"]["result"][1], "2");
    let [(_, ours), (_, theirs)] = both.ask("/api/v1/status/buildinfo", &[]);
    let keys = |body: &Value| {
        body["data"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(&ours), keys(&theirs));
    assert_eq!(both.ask("/api/v1/rules", &[])[0].0, 200);
    assert_eq!(
        post(
            "query_exemplars",
            &[("query", "test"), ("start", &start), ("end", &end)]
        )["data"],
        json!([])
    );

    // Variables and the builder; a name that a URL cannot hold comes escaped.
    let from = ("start", start.as_str());
    let to = ("end", end.as_str());
    let limit = ("limit", "40000");
    for (path, matching) in [
        ("labels", None),
        ("labels", Some("node_uname_info")),
        ("labels", Some("{__name__=\"node_load1\",node=~\"n.+\"}")),
        (
            "label/__name__/values",
            Some("{node=\"n1\", __name__=~\"node_load.*\"}"),
        ),
        (
            "label/mode/values",
            Some("node_cpu_seconds_total{cpu=\"0\"}"),
        ),
        ("label/U__mode/values", Some("node_cpu_seconds_total")),
        ("series", Some("node_memory_MemTotal_bytes{job=\"node\"}")),
    ] {
        let matching = matching.map(|matching| ("match[]", matching));
        let query: Vec<_> = [from, to, limit].into_iter().chain(matching).collect();
        let answer = match matching {
            // Prometheus describes its metrics in other words than the exporter.
            None => both.ask(&format!("/api/v1/{path}"), &query)[0].1["data"].clone(),
            // Debian's Prometheus does not support escaped names.
            Some(_) if path.contains("U__") => {
                both.ask(&format!("/api/v1/{path}"), &query)[0].1["data"].clone()
            }
            Some(_) => both.assert_same(&format!("/api/v1/{path}"), &query),
        };
        assert!(
            !answer.as_array().unwrap().is_empty(),
            "{path} {query:?}: {answer}"
        );
    }

    // Before the first scrape the answer is empty.
    let long_ago = [
        ("start", "1000000"),
        ("end", "1003600"),
        limit,
        ("match[]", "node_uname_info"),
    ];
    for path in ["labels", "label/node/values", "series"] {
        let answer = both.assert_same(&format!("/api/v1/{path}"), &long_ago);
        assert_eq!(answer, json!([]), "{path}");
    }
    let metadata = both.ask("/api/v1/metadata", &[("limit_per_metric", "1")])[0]
        .1
        .clone();
    assert_eq!(
        metadata["data"]["node_load1"][0]["type"], "gauge",
        "{metadata}"
    );

    // A panel and an alert rule: POST with a form, times as floats, a step with or without unit.
    let query = "sum by (mode) (rate(node_cpu_seconds_total{node=~\"(n1|n2)\"}[1m0s]))";
    let start = format!("{start}.781");
    let end = format!("{end}.781");
    let range = [
        ("query", query),
        ("start", &start),
        ("end", &end),
        ("step", "15"),
        ("timeout", "60s"),
    ];
    assert_eq!(post("query_range", &range)["data"]["resultType"], "matrix");
    let instant = [
        ("query", query),
        ("time", end.as_str()),
        ("limit", "1000"),
        ("lookback_delta", "1m"),
    ];
    assert_eq!(post("query", &instant)["data"]["resultType"], "vector");
}

#[test]
fn scripts_of_promql_are_run() {
    let takt = Takt::fresh();
    takt.file(
        "good.test",
        "load 1m\n  m 1 2\n\neval instant at 1m m\n  m 2\n",
    );
    takt.file(
        "bad.test",
        "load 1m\n  m 1 2\n\neval instant at 1m m\n  m 3\n",
    );
    assert_eq!(
        takt.run(["promqltest", "good.test"]).ok(),
        "1 passed, 0 failed\n"
    );
    let run = takt.run(["promqltest", "good.test", "bad.test"]);
    assert_eq!(run.code, Some(1));
    assert_eq!(
        run.stdout,
        "bad.test:4: failed: m: expected 3 for m, got 2\n1 passed, 1 failed\n"
    );
    takt.run(["promqltest", "none.test"]).fails(2);
}

#[test]
fn federation_equals_prometheus() {
    let Some(both) = Both::start() else { return };
    let query = [
        ("match[]", "node_uname_info"),
        (
            "match[]",
            "{__name__=~\"node_uname_info|node_memory_MemTotal_bytes\"}",
        ),
    ];

    // The timestamps of two scrapes differ, and 2.5e+10 equals 25000000000.
    let lines = |page: crate::support::process::Page| -> Vec<String> {
        assert_eq!(page.status, 200, "{}", page.body);
        page.body
            .lines()
            .map(|line| match line.rsplitn(3, ' ').collect::<Vec<_>>()[..] {
                [_, value, series] if !line.starts_with('#') => {
                    format!("{series} {}", value.parse::<f64>().unwrap())
                }
                _ => line.to_owned(),
            })
            .collect()
    };
    let ours = lines(http_get_with(&format!("{}/federate", both.url), &query, &[]).unwrap());
    assert_eq!(ours, lines(both.prometheus.get("/federate", &query)));
    assert_eq!(ours.len(), 4, "{ours:?}");
    assert_eq!(
        http_get_with(&format!("{}/federate", both.url), &[], &[])
            .unwrap()
            .body,
        ""
    );
}

#[test]
fn an_answer_has_query_statistics() {
    let Some(both) = Both::start() else { return };
    let query = [("query", "count(node_cpu_seconds_total)"), ("stats", "all")];
    let [ours, theirs] = both
        .ask("/api/v1/query", &query)
        .map(|(_, body)| body["data"]["stats"].clone());
    let keys = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(&ours), keys(&theirs));
    assert_eq!(keys(&ours["timings"]), keys(&theirs["timings"]));
    let read = &ours["samples"]["totalQueryableSamples"];
    assert_eq!(read, &theirs["samples"]["totalQueryableSamples"]);

    // Prometheus needs a feature flag for the samples that each step has read.
    assert_eq!(&ours["samples"]["totalQueryableSamplesPerStep"][0][1], read);
}

#[test]
fn answers_are_compressed_on_request() {
    let Some(both) = Both::start() else { return };
    let ask = |query: &str, encoding: &str| {
        let answer = ureq::get(format!("{}/api/v1/query", both.url))
            .query("query", query)
            .header("Accept-Encoding", encoding)
            .call()
            .unwrap();
        let headers = answer.headers();
        let is_gzip = headers
            .get("Content-Encoding")
            .is_some_and(|coding| coding == "gzip");
        assert_eq!(headers.get("Content-Type").unwrap(), "application/json");
        (is_gzip, answer.into_body().read_to_vec().unwrap())
    };
    let (is_gzip, plain) = ask("node_cpu_seconds_total", "identity");
    assert!(!is_gzip && plain.len() > 2000, "{}", plain.len());
    let (is_gzip, packed) = ask("node_cpu_seconds_total", "deflate, gzip");
    assert!(
        is_gzip && packed.len() * 2 < plain.len(),
        "{} of {}",
        packed.len(),
        plain.len()
    );
    assert!(packed.starts_with(&[0x1f, 0x8b]));
    assert!(!ask("1", "gzip").0, "too small to be worth it");
}

/// A query that takes minutes, over one series that no target exposes.
const LONG: &str = "sum_over_time(sum_over_time(vector(1)[40m:10ms])[2h:50ms])";

#[test]
fn a_query_ends_when_its_client_goes_away() {
    use std::io::Write;
    let takt = Takt::fresh();
    let address = format!("127.0.0.1:{}", free_port());
    takt.file(
        "takt.toml",
        format!("[server]\nlisten_address = \"{address}\"\n[jobs]\npoll = false\n"),
    );
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let limit = Duration::from_secs(60);
    server.wait_until("serving", limit, || {
        http_get(&format!("http://{address}/-/healthy"))
            .ok()
            .filter(|page| page.status == 200)
    });
    let mut client = TcpStream::connect(&address).unwrap();
    let form = format!("query={}", LONG.replace('[', "%5B").replace(']', "%5D"));
    let request = format!(
        "POST /api/v1/query HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\n\r\n{form}",
        form.len()
    );
    client.write_all(request.as_bytes()).unwrap();
    wait_for("work", limit, || (server.load() > 0.3).then_some(()));
    drop(client);
    wait_for("the end of the work", limit, || {
        (server.load() < 0.2).then_some(())
    });

    // The server is not busy with the query of the one who left.
    let answer = http_get(&format!("http://{address}/api/v1/query?query=1")).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
}
