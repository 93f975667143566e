//! Remote write to real receivers, which are killed and restarted while samples arrive. Afterwards
//! every sample is compared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::process::{Daemon, free_port, http_get, http_get_with};
use crate::support::prometheus::{self, RawSamples};
use crate::support::takt::Takt;
use crate::support::{Needed, need, or_skip};
use std::array;
use std::fs;
use std::thread;

/// A limit that a busy machine does not reach.
const SOON: Duration = Duration::from_secs(90);

/// Starts Debian's Prometheus as a receiver, on the data of an earlier start if there is one.
pub(crate) fn prometheus(directory: &Path, address: &str) -> Daemon {
    fs::create_dir_all(directory).unwrap();
    let config = directory.join("prometheus.yml");
    fs::write(&config, "global: {}\n").unwrap();
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            directory.join("data").display()
        ))
        .arg(format!("--web.listen-address={address}"))
        .args(["--web.enable-remote-write-receiver", "--log.level=warn"]);
    let mut daemon = Daemon::start("prometheus", command, &directory.join("prometheus.log"));
    let ready = format!("http://{address}/-/ready");
    daemon.wait_until("ready", SOON, || {
        http_get(&ready).ok().filter(|page| page.status == 200)
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
        .arg(format!("-httpListenAddr={address}"));
    let mut daemon = Daemon::start("victoria-metrics", command, &directory.join("vm.log"));
    let ready = format!("http://{address}/health");
    daemon.wait_until("ready", SOON, || {
        http_get(&ready).ok().filter(|page| page.status == 200)
    });
    daemon
}

/// Returns the raw samples in `(from, to]` of the selected series, by the texts of their labels.
fn raw_samples(url: &str, selector: &str, from: i64, to: i64) -> BTreeMap<String, RawSamples> {
    prometheus::raw_samples(url, selector, from, to, &["site"])
}

fn number(url: &str, query: &str) -> Option<f64> {
    prometheus::instant_query(url, query)
        .ok()?
        .first()
        .map(|sample| sample.value)
}

#[test]
fn receivers_get_every_sample_though_they_and_the_server_are_killed() {
    let program = |program, package| Needed { program, package };
    let needed = [
        program("prometheus", "prometheus"),
        program("victoria-metrics", "victoria-metrics"),
    ];
    let Some(()) = or_skip(need(&needed)) else {
        return;
    };
    let takt = Takt::fresh();
    let [exporter_at, server_at, prometheus_at, victoria_at] =
        array::from_fn(|_| format!("127.0.0.1:{}", free_port()));
    // One receiver is killed and has all series, the other one only gets a selection.
    let receiver_files = takt.directory().join("prometheus");
    let mut receiver = prometheus(&receiver_files, &prometheus_at);
    let victoria_files = takt.directory().join("victoria");
    let _victoria = victoria_metrics(&victoria_files, &victoria_at);
    let mut exporter = takt.start(["exporter", "--web.listen-address", &exporter_at]);
    let page = format!("http://{exporter_at}/metrics");
    exporter.wait_until("serving", SOON, || {
        http_get(&page).ok().filter(|page| page.status == 200)
    });
    takt.file(
        "takt.toml",
        format!(
            "cluster = \"lab\"\n[server]\nlisten_address = \"{server_at}\"\n[jobs]\npoll = false\n\
             [scrape]\ninterval_seconds = 1\ntimeout_seconds = 1\n\
             [[scrape.targets]]\naddress = \"{exporter_at}\"\nnode = \"n1\"\n\
             [[remote_write]]\nname = \"prometheus\"\nurl = \"http://{prometheus_at}/api/v1/write\"\n\
             external_labels = {{ site = \"here\" }}\nsamples_per_request = 300\n\
             [[remote_write]]\nname = \"victoria\"\nurl = \"http://{victoria_at}/api/v1/write\"\n\
             select = ['{{__name__=~\"node_load.*\"}}', \"up\"]\n"
        ),
    );
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let ours = format!("http://{server_at}");
    let theirs = format!("http://{prometheus_at}");
    let count = "count_over_time(up{node=\"n1\"}[1h])";
    server.wait_until("samples at the receiver", SOON, || {
        number(&theirs, count).filter(|&count| count >= 5.0)
    });

    // The receiver is away, then the server is killed while it has windows to catch up.
    receiver.kill();
    let before = number(&ours, count).unwrap();
    server.wait_until("samples while the receiver is away", SOON, || {
        number(&ours, count).filter(|&count| count >= before + 8.0)
    });
    server.wait_until("a growing lag", SOON, || {
        let page = http_get(&format!("{ours}/metrics")).ok()?;
        let lag = "takt_remote_write_lag_seconds{destination=\"prometheus\"} ";
        let lag = page.body.lines().find_map(|line| line.strip_prefix(lag))?;
        (lag.parse::<f64>().ok()? > 6.0).then_some(())
    });
    let mut receiver = prometheus(&receiver_files, &prometheus_at);
    server.kill();
    let mut server = takt.start(["serve", "--config", "takt.toml"]);

    // Another kill, of the receiver, while samples arrive.
    server.wait_until("samples after the restart", SOON, || {
        number(&ours, "time() - timestamp(up{node=\"n1\"})").filter(|&age| age < 3.0)
    });
    receiver.kill();
    let _receiver = prometheus(&receiver_files, &prometheus_at);

    // From here on the comparison is about samples that both sides must have.
    let newest = number(&ours, "timestamp(up{node=\"n1\"}) * 1000").unwrap() as i64;
    let reached = "timestamp(up{node=\"n1\"}) * 1000";
    server.wait_until("the newest sample at the receiver", SOON, || {
        number(&theirs, reached).filter(|&at| at as i64 >= newest)
    });

    // All samples after the first that the receiver has; those before the first start are not sent.
    let series = "{node=\"n1\"}";
    let first = raw_samples(&theirs, "up{node=\"n1\"}", newest - 600_000, newest);
    let first = *first.values().next().unwrap().first_key_value().unwrap().0;
    let stored = raw_samples(&ours, series, first - 1, newest);
    assert!(stored.len() > 200, "{} series", stored.len());

    // The samples of one scrape arrive in several requests.
    let until = Instant::now() + SOON;
    let mut received = raw_samples(&theirs, series, first - 1, newest);
    while received != stored && Instant::now() < until {
        thread::sleep(Duration::from_millis(300));
        received = raw_samples(&theirs, series, first - 1, newest);
    }
    for (labels, samples) in &stored {
        assert_eq!(received.get(labels), Some(samples), "{labels}");
    }
    assert_eq!(received.len(), stored.len());

    let victoria = format!("http://{victoria_at}");
    let exported = server.wait_until("the newest sample at VictoriaMetrics", SOON, || {
        let parameters = [("match[]", "{node=\"n1\"}")];
        let page = http_get_with(&format!("{victoria}/api/v1/export"), &parameters, &[]).ok()?;
        let series: Vec<Value> = page
            .body
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let has_newest = |series: &Value| {
            series["timestamps"]
                .as_array()
                .unwrap()
                .iter()
                .any(|at| at.as_i64() >= Some(newest))
        };
        (!series.is_empty() && series.iter().all(has_newest)).then_some(series)
    });
    let mut names: Vec<&str> = exported
        .iter()
        .map(|series| series["metric"]["__name__"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["node_load1", "node_load15", "node_load5", "up"]);
    let up = exported
        .iter()
        .find(|series| series["metric"]["__name__"] == "up")
        .unwrap();
    // Staleness markers are null.
    let samples = up["timestamps"]
        .as_array()
        .unwrap()
        .iter()
        .zip(up["values"].as_array().unwrap());
    let times: BTreeSet<i64> = samples
        .filter(|(_, value)| !value.is_null())
        .map(|(at, _)| at.as_i64().unwrap())
        .filter(|at| (first..=newest).contains(at))
        .collect();
    // Each destination begins with the samples after its own first start.
    let first = *times.first().unwrap();
    let ours: BTreeSet<i64> = stored
        .iter()
        .find(|(labels, _)| labels.contains("\"up\""))
        .unwrap()
        .1
        .keys()
        .copied()
        .filter(|&at| at >= first)
        .collect();
    assert_eq!(times, ours);
}

#[test]
fn mistakes_in_the_configuration_are_named() {
    let takt = Takt::fresh();
    for (lines, expected) in [
        ("url = \"mimir:9009\"", "expected an address such as"),
        (
            "url = \"http://a/push\"\nselect = [\"{\"]",
            "select: expected a selector",
        ),
        (
            "url = \"http://a/push\"\nusername = \"me\"",
            "username and password_file together",
        ),
        (
            "url = \"http://a/push\"\nconnections = 0",
            "connections: expected at least 1",
        ),
        (
            "url = \"http://a/push\"\n[[remote_write]]\nurl = \"http://a:80/other\"",
            "two destinations have the name a:80",
        ),
        (
            "url = \"http://a/push\"\nbearer_token_file = \"missing\"\n",
            "missing",
        ),
    ] {
        let listen = format!("server.listen_address = \"127.0.0.1:{}\"\n", free_port());
        takt.file("takt.toml", format!("{listen}[[remote_write]]\n{lines}\n"));
        let run = takt.run(["serve", "--config", "takt.toml"]);
        assert_eq!(run.code, Some(2), "{lines}: {}", run.stderr);
        assert!(run.stderr.contains(expected), "{lines}: {}", run.stderr);
    }
}
