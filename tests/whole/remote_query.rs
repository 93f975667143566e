//! `[query] remote`: the same questions to a store and to the engines that it sent its samples to.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::process::{Daemon, free_port, http_get, http_get_with};
use crate::support::prometheus::instant_query;
use crate::support::takt::Takt;
use crate::support::{Needed, need, or_skip};
use std::array;
use std::fs;
use std::thread;

/// A limit that a busy machine does not reach.
const SOON: Duration = Duration::from_secs(90);

/// The exporter's password in exporter/tests/web_config.rs is another; this is `test` of
/// Prometheus' documentation.
const WEB_CONFIG: &str =
    "basic_auth_users:\n  takt: $2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay\n";

/// Starts Prometheus as a receiver behind a password, on the data of an earlier start if there is one.
fn prometheus(directory: &Path, address: &str) -> Daemon {
    fs::create_dir_all(directory).unwrap();
    let [config, web] = ["prometheus.yml", "web.yml"].map(|name| directory.join(name));
    fs::write(&config, "global: {}\n").unwrap();
    fs::write(&web, WEB_CONFIG).unwrap();
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--web.config.file={}", web.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            directory.join("data").display()
        ))
        .arg(format!("--web.listen-address={address}"))
        .args(["--web.enable-remote-write-receiver", "--log.level=warn"]);
    let mut daemon = Daemon::start("prometheus", command, &directory.join("prometheus.log"));
    let ready = format!("http://{address}/-/ready");

    // 401 without the password.
    daemon.wait_until("ready", SOON, || {
        http_get(&ready).ok().filter(|page| page.status == 401)
    });
    daemon
}

fn victoria_metrics(directory: &Path, address: &str) -> Daemon {
    fs::create_dir_all(directory).unwrap();
    let mut command = Command::new("victoria-metrics");
    command
        .arg(format!(
            "-storageDataPath={}",
            directory.join("data").display()
        ))
        .arg(format!("-httpListenAddr={address}"))
        // Older versions hide the newest 30 s of range queries whatever the request says.
        .arg("-search.latencyOffset=1s");
    let mut daemon = Daemon::start("victoria-metrics", command, &directory.join("vm.log"));
    let ready = format!("http://{address}/health");
    daemon.wait_until("ready", SOON, || {
        http_get(&ready).ok().filter(|page| page.status == 200)
    });
    daemon
}

/// A server that scrapes one exporter and sends its samples to both engines.
struct Lab {
    takt: Takt,
    exporter_at: String,
    server_at: String,
    prometheus_at: String,
    victoria_at: String,
    password: PathBuf,
}

impl Lab {
    fn new() -> Self {
        let takt = Takt::fresh();
        let [exporter_at, server_at, prometheus_at, victoria_at] =
            array::from_fn(|_| format!("127.0.0.1:{}", free_port()));
        let password = takt.file("password", "test\n");
        Self {
            takt,
            exporter_at,
            server_at,
            prometheus_at,
            victoria_at,
            password,
        }
    }

    fn exporter(&self) -> Daemon {
        let address = ["--web.listen-address", &self.exporter_at];
        let mut exporter = self.takt.start(["exporter"].into_iter().chain(address));
        let page = format!("http://{}/metrics", self.exporter_at);
        exporter.wait_until("serving", SOON, || {
            http_get(&page).ok().filter(|page| page.status == 200)
        });
        exporter
    }

    /// The lines of `[query]` that name Prometheus.
    fn over_prometheus(&self) -> String {
        format!(
            "remote = \"http://{}\"\nremote_username = \"takt\"\nremote_password_file = {:?}\n",
            self.prometheus_at, self.password
        )
    }

    /// Starts the server with these lines of `[query]`.
    fn server(&self, query: &str) -> Daemon {
        let Self {
            exporter_at,
            server_at,
            prometheus_at,
            victoria_at,
            password,
            ..
        } = self;
        fs::create_dir_all(self.takt.directory().join("rules")).unwrap();
        self.takt.file(
            "rules/lab.rules.yml",
            "groups:\n- name: lab\n  interval: 1s\n  rules:\n\
             \x20 - {alert: Loaded, expr: 'node_load1 >= 0', labels: {severity: none}}\n\
             \x20 - {record: 'lab:load', expr: 'node_load1 * 2'}\n",
        );
        self.takt.file(
            "takt.toml",
            format!(
                "cluster = \"lab\"\n[server]\nlisten_address = \"{server_at}\"\n[jobs]\npoll = false\n\
                 [alerts]\nrule_dirs = [\"rules\"]\n[query]\n{query}\
                 [scrape]\ninterval_seconds = 1\ntimeout_seconds = 1\n\
                 [[scrape.targets]]\naddress = \"{exporter_at}\"\nnode = \"n1\"\n\
                 [[remote_write]]\nname = \"prometheus\"\nurl = \"http://{prometheus_at}/api/v1/write\"\n\
                 username = \"takt\"\npassword_file = {password:?}\n\
                 [[remote_write]]\nname = \"victoria\"\nurl = \"http://{victoria_at}/api/v1/write\"\n"
            ),
        );
        let mut server = self.takt.start(["serve", "--config", "takt.toml"]);
        let ready = format!("{}/-/ready", self.url());
        server.wait_until("ready", SOON, || {
            http_get(&ready).ok().filter(|page| page.status == 200)
        });
        server
    }

    fn url(&self) -> String {
        format!("http://{}", self.server_at)
    }

    fn get(&self, path: &str, parameters: &[(&str, &str)]) -> (u16, Value) {
        let page = http_get_with(&format!("{}{path}", self.url()), parameters, &[]).unwrap();
        let body = serde_json::from_str(&page.body).unwrap_or(Value::String(page.body));
        (page.status, body)
    }

    /// The first value of an instant query.
    fn number(&self, query: &str) -> Option<f64> {
        instant_query(&self.url(), query)
            .ok()?
            .first()
            .map(|sample| sample.value)
    }

    fn doctor(&self) -> String {
        self.takt
            .run(["doctor", "--config", "takt.toml", "--only", "query"])
            .stdout
    }
}

/// Queries whose answers must not depend on the engine.
const QUERIES: [&str; 14] = [
    "up",
    "node_load1",
    "timestamp(up)",
    "timestamp(node_load1)",
    "time() - timestamp({__name__=~\"node_load1|none\"})",
    "rate(node_cpu_seconds_total[10s])",
    "sum by (node, mode) (increase(node_cpu_seconds_total{mode!~\"idle|steal\"}[9s500ms]))",
    "count_over_time(up[10s])",
    "max_over_time(node_load1[10s:2s])",
    "node_memory_MemAvailable_bytes offset 3s",
    "changes(up[10s]) > 0",
    "absent(node_load1)",
    "count({__name__=~\"node_.+\"})",
    // Not node_time_seconds: VictoriaMetrics keeps 15 digits of a number.
    "timestamp(node_boot_time_seconds) - node_boot_time_seconds > 5",
];

/// Everything that the API tells about the time up to `to`, in seconds.
fn answers(lab: &Lab, from: f64, down: f64, to: f64) -> Vec<(String, Value)> {
    let text = |at: f64| format!("{at:.3}");
    let from = text(from);
    let down = text(down);
    let to = text(to);
    let mut found = Vec::new();
    for query in QUERIES {
        for at in [&down, &to] {
            let (status, answer) = lab.get("/api/v1/query", &[("query", query), ("time", at)]);
            assert_eq!(status, 200, "{query}: {answer}");
            found.push((format!("{query} at {at}"), answer["data"].clone()));
        }
        // Steps shorter than the interval of the scrapes, and longer than the windows.
        for step in ["0.7", "15"] {
            let parameters = [
                ("query", query),
                ("start", from.as_str()),
                ("end", to.as_str()),
                ("step", step),
            ];
            let (status, answer) = lab.get("/api/v1/query_range", &parameters);
            assert_eq!(status, 200, "{query}: {answer}");
            found.push((format!("{query} every {step}"), answer["data"].clone()));
        }
    }
    let selected = [("match[]", "{__name__=~\"node_load.*|up\"}")];
    for path in [
        "/api/v1/series",
        "/api/v1/labels",
        "/api/v1/label/__name__/values",
        "/api/v1/label/node/values",
    ] {
        let (status, answer) = lab.get(path, &selected);
        assert_eq!(status, 200, "{path}: {answer}");
        found.push((path.to_owned(), answer["data"].clone()));
    }
    found
}

#[test]
fn a_store_and_the_engines_that_have_its_samples_answer_alike() {
    let program = |program, package| Needed { program, package };
    let needed = [
        program("prometheus", "prometheus"),
        program("victoria-metrics", "victoria-metrics"),
    ];
    let Some(()) = or_skip(need(&needed)) else {
        return;
    };
    let lab = Lab::new();
    let prometheus_files = lab.takt.directory().join("prometheus");
    let _prometheus = prometheus(&prometheus_files, &lab.prometheus_at);
    let victoria_files = lab.takt.directory().join("victoria");
    let _victoria = victoria_metrics(&victoria_files, &lab.victoria_at);
    let mut exporter = lab.exporter();

    let mut server = lab.server("");
    let count = "count_over_time(up{node=\"n1\"}[1h])";
    server.wait_until("samples", SOON, || {
        lab.number(count).filter(|&count| count >= 12.0)
    });

    // The engines get the samples after the first start; the windows of all queries begin later.
    let sent = server.wait_until("samples at the engines", SOON, || {
        let page = http_get(&format!("{}/metrics", lab.url())).ok()?;
        let sent = page
            .body
            .lines()
            .filter(|line| line.starts_with("takt_remote_write_samples_total{"));
        let has_some = |line: &str| !line.ends_with(" 0");
        (sent.filter(|line| has_some(line)).count() == 2).then(|| lab.number("time()"))?
    });
    server.wait_until("a window of samples", SOON, || {
        lab.number("time()").filter(|&now| now >= sent + 14.0)
    });

    // The exporter is away for some seconds: its series end and begin again.
    let from = lab.number("time()").unwrap() - 1.0;
    exporter.kill();
    let down = server.wait_until("the end of its series", SOON, || {
        lab.number("absent(node_load1) * time()")
    });
    let mut exporter = lab.exporter();
    let back = server.wait_until("its return", SOON, || {
        lab.number("count_over_time(node_load1[3s])")
            .filter(|&count| count >= 2.0)
            .and_then(|_| lab.number("time()"))
    });
    server.wait_until("samples after it", SOON, || {
        lab.number("time()").filter(|&now| now >= back + 8.0)
    });
    let to = lab.number("time()").unwrap();

    // The engines get everything up to this time.
    server.wait_until("samples at the engines", SOON, || {
        let page = http_get(&format!("{}/metrics", lab.url())).ok()?;
        let lags: Vec<f64> = page
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("takt_remote_write_lag_seconds{"))
            .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
            .collect();
        let now = lab.number("time()")?;
        let have = |lag: &f64| now - lag > to + 1.0;
        (lags.len() == 2 && lags.iter().all(have)).then_some(())
    });
    let own = answers(&lab, from, down, to);
    server.stop();
    exporter.stop();

    // Of VictoriaMetrics, what it received a moment ago is not visible yet.
    thread::sleep(Duration::from_secs(5));

    let over_victoria = format!("remote = \"http://{}\"\n", lab.victoria_at);
    for query in [lab.over_prometheus(), over_victoria] {
        let mut server = lab.server(&query);
        let theirs = answers(&lab, from, down, to);
        for ((question, own), (_, theirs)) in own.iter().zip(&theirs) {
            assert_eq!(sorted(own), sorted(theirs), "{question}, with {query}");
        }
        // Equal answers could be empty ones.
        assert!(own.iter().any(|(_, data)| data.to_string().contains("n1")));
        server.stop();
    }
}

/// The order of series is that of the store.
fn sorted(data: &Value) -> Value {
    let mut data = data.clone();
    let result = match &mut data {
        Value::Array(list) => Some(list),
        Value::Object(parts) => parts.get_mut("result").and_then(Value::as_array_mut),
        _ => None,
    };
    if let Some(list) = result {
        list.sort_by_key(Value::to_string);
    }
    data
}

#[test]
fn everything_reads_the_engine_and_nothing_breaks_without_it() {
    let program = |program, package| Needed { program, package };
    let Some(()) = or_skip(need(&[program("prometheus", "prometheus")])) else {
        return;
    };
    let lab = Lab::new();
    let files = lab.takt.directory().join("prometheus");
    let mut engine = prometheus(&files, &lab.prometheus_at);
    let _exporter = lab.exporter();
    let mut server = lab.server(&lab.over_prometheus());

    // The alert fires, its series and the recorded one come back from the engine.
    server.wait_until("results of rules at the engine", SOON, || {
        lab.number("lab:load and on() ALERTS{alertname=\"Loaded\",alertstate=\"firing\"}")
    });
    let cluster = "/api/takt/v1/cluster";
    server.wait_until("the node's readings", SOON, || {
        let (status, answer) = lab.get(cluster, &[]);
        assert_eq!(status, 200, "{answer}");
        answer["nodes"].to_string().contains("n1").then_some(())
    });
    assert!(!lab.doctor().contains("query.remote  "), "{}", lab.doctor());
    let asked = lab.takt.run(["query", "--config", "takt.toml", "up"]).ok();
    assert!(asked.contains("n1"), "{asked}");

    engine.kill();
    let firing = || {
        let (_, answer) = lab.get("/api/v1/alerts", &[]);
        let alerts = answer["data"]["alerts"].as_array().unwrap().clone();
        let is_ours = |alert: &Value| alert["labels"]["alertname"] == "Loaded";
        alerts
            .iter()
            .any(|alert| is_ours(alert) && alert["state"] == "firing")
    };
    let expected = format!("the engine at http://{}", lab.prometheus_at);
    let (status, answer) = server.wait_until("an error", SOON, || {
        let answer = lab.get("/api/v1/query", &[("query", "up")]);
        (answer.0 != 200).then_some(answer)
    });
    let error = answer["error"].as_str().unwrap_or_default();
    assert_eq!(status, 500, "{answer}");
    assert!(error.contains(&expected), "{answer}");
    assert!(error.contains("does not answer"), "{answer}");
    for (path, parameters) in [
        ("/api/v1/labels", &[][..]),
        ("/api/v1/series", &[("match[]", "up")][..]),
        (cluster, &[]),
        ("/nodes", &[]),
    ] {
        let (status, answer) = lab.get(path, parameters);
        assert_eq!(status, 500, "{path}: {answer}");
        assert!(answer.to_string().contains(&expected), "{path}: {answer}");
    }
    let doctor = lab.doctor();
    assert!(
        doctor.contains("query.remote") && doctor.contains(&expected),
        "{doctor}"
    );

    // Records are here.
    let (status, _) = lab.get("/api/takt/v1/jobs", &[]);
    assert_eq!(status, 200);

    // Some evaluations fail; the alert stays.
    thread::sleep(Duration::from_secs(4));
    assert!(firing());
    assert!(server.is_running());

    let _engine = prometheus(&files, &lab.prometheus_at);
    server.wait_until("answers again", SOON, || lab.number("up"));
    // Samples that could not be sent meanwhile are sent now.
    server.wait_until("samples of the outage", SOON, || {
        let (_, answer) = lab.get("/api/v1/query", &[("query", "max(max_over_time(up[5s]))")]);
        (answer["data"]["result"][0]["value"][1] == "1").then_some(())
    });
    assert!(firing());
}

#[test]
fn an_address_without_the_api_is_named() {
    let takt = Takt::fresh();

    // A server of Takt has no such address below its pages.
    let listen = format!("127.0.0.1:{}", free_port());
    let toml = |query: &str| {
        format!(
            "[server]\nlisten_address = \"{listen}\"\n[jobs]\npoll = false\n[alerts]\nenabled = false\n\
             [query]\nremote_timeout_seconds = 2\n{query}"
        )
    };

    takt.file(
        "takt.toml",
        toml(&format!("remote = \"http://{listen}/nothing\"\n")),
    );
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    server.wait_until("ready", SOON, || {
        let page = http_get(&format!("http://{listen}/-/ready")).ok()?;
        (page.status == 200).then_some(())
    });
    let parameters = [("query", "up")];
    let page = http_get_with(&format!("http://{listen}/api/v1/query"), &parameters, &[]).unwrap();
    assert!(page.body.contains("refuses: HTTP 404"), "{}", page.body);
    server.stop();

    takt.file(
        "takt.toml",
        toml("remote = \"http://127.0.0.1:1\"\nremote_bearer_token_file = \"none\"\n"),
    );
    let run = takt.run(["serve", "--config", "takt.toml"]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("cannot read"), "{}", run.stderr);
}
