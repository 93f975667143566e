//! Pushed samples of real senders, which are killed and restarted, as the server is. Afterwards every
//! sample is compared. And requests that no good sender makes.

mod bad_requests;
mod native;
mod opentelemetry;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::process::{Daemon, free_port, http_get};
use crate::support::prometheus::{self, RawSamples};
use crate::support::takt::Takt;
use crate::support::{Needed, Skip, need, need_peer, or_skip};
use std::fs;
use std::thread;

/// A limit that a busy machine does not reach.
const SOON: Duration = Duration::from_secs(120);

const TOKEN: &str = "0123456789abcdef-sender";

/// Labels that the server sets.
const OF_THE_SERVER: [&str; 2] = ["sender", "cluster"];

/// The tested server, with the senders `one`, `two` and so on.
struct Receiver {
    takt: Takt,
    daemon: Daemon,
    url: String,
}

const SENDERS: [&str; 3] = ["one", "two", "three"];

/// The token of a sender.
fn token(sender: &str) -> String {
    format!("{TOKEN}-{sender}")
}

impl Receiver {
    fn start(more: &str) -> Self {
        let takt = Takt::fresh();
        let address = format!("127.0.0.1:{}", free_port());
        let senders = SENDERS.map(|name| {
            takt.file(&format!("{name}.token"), token(name));
            format!(
                "[[push.senders]]\nname = \"{name}\"\ntoken_file = \"{name}.token\"\n\
                 promote_resource_attributes = [\"slurm.job_id\"]\n"
            )
        });
        takt.file(
            "takt.toml",
            format!(
                "cluster = \"lab\"\n[server]\nlisten_address = \"{address}\"\n\
                 [jobs]\npoll = false\n[alerts]\nenabled = false\n{more}\n{}",
                senders.concat()
            ),
        );
        let mut receiver = Self {
            daemon: takt.start(["serve", "--config", "takt.toml"]),
            url: format!("http://{address}"),
            takt,
        };
        receiver.wait_until_ready();
        receiver
    }

    fn wait_until_ready(&mut self) {
        let ready = format!("{}/-/ready", self.url);
        self.daemon.wait_until("ready", SOON, || {
            http_get(&ready).ok().filter(|page| page.status == 200)
        });
    }

    /// Kills the server and starts it again on its data.
    fn kill_and_restart(&mut self, pause: Duration) {
        self.daemon.kill();
        thread::sleep(pause);
        self.daemon = self.takt.start(["serve", "--config", "takt.toml"]);
        self.wait_until_ready();
    }

    fn write_url(&self) -> String {
        format!("{}/api/v1/write", self.url)
    }

    /// Value of a series on the server's metrics page.
    fn metric(&self, series: &str) -> f64 {
        http_get(&format!("{}/metrics", self.url))
            .unwrap()
            .body
            .lines()
            .find_map(|line| line.strip_prefix(series))
            .map_or(0.0, |value| value.trim().parse().unwrap())
    }
}

/// Starts an exporter to scrape.
fn exporter(takt: &Takt) -> (Daemon, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let mut daemon = takt.start(["exporter", "--web.listen-address", &address]);
    let page = format!("http://{address}/metrics");
    daemon.wait_until("serving", SOON, || {
        http_get(&page).ok().filter(|page| page.status == 200)
    });
    (daemon, address)
}

/// Starts a Prometheus on the data of an earlier start, if there is one. `writes` are its
/// destinations.
fn prometheus(
    program: &Path,
    directory: &Path,
    address: &str,
    target: &str,
    writes: &str,
) -> Daemon {
    let flags = [
        format!("--storage.tsdb.path={}", directory.join("data").display()),
        "--web.enable-remote-write-receiver".to_owned(),
        "--web.enable-otlp-receiver".to_owned(),
    ];
    let is_old = program == Path::new("prometheus");
    let flags = &flags[..if is_old { 2 } else { 3 }];
    run_prometheus(program, directory, address, target, writes, flags)
}

fn run_prometheus(
    program: &Path,
    directory: &Path,
    address: &str,
    target: &str,
    writes: &str,
    flags: &[String],
) -> Daemon {
    fs::create_dir_all(directory).unwrap();
    let config = directory.join("prometheus.yml");
    let job = if target.is_empty() {
        String::new()
    } else {
        format!("scrape_configs:\n- job_name: node\n  static_configs:\n  - targets: ['{target}']\n")
    };
    let text = format!("global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n{job}{writes}");
    fs::write(&config, text).unwrap();
    let mut command = Command::new(program);
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--web.listen-address={address}"))
        .args(flags)
        .arg("--log.level=warn");
    let mut daemon = Daemon::start("prometheus", command, &directory.join("prometheus.log"));
    let ready = format!("http://{address}/-/ready");
    daemon.wait_until("ready", SOON, || {
        http_get(&ready).ok().filter(|page| page.status == 200)
    });
    daemon
}

/// Starts a Prometheus without targets that takes native histograms.
fn prometheus_with_histograms(program: &Path, directory: &Path, address: &str) -> Daemon {
    let flags = [
        format!("--storage.tsdb.path={}", directory.join("data").display()),
        "--web.enable-remote-write-receiver".to_owned(),
        "--enable-feature=native-histograms,promql-experimental-functions,\
         promql-extended-range-selectors"
            .to_owned(),
    ];
    run_prometheus(program, directory, address, "", "", &flags)
}

/// The section `remote_write` for a destination.
fn destination(url: &str, token: &str, more: &str) -> String {
    format!(
        "- url: {url}\n  authorization: {{credentials: '{token}'}}\n  \
         queue_config: {{batch_send_deadline: 1s, max_samples_per_send: 500}}\n{more}"
    )
}

/// Returns the raw samples in `(from, to]` of the selected series, by the texts of their labels
/// without those that the server sets.
fn raw_samples(url: &str, selector: &str, from: i64, to: i64) -> BTreeMap<String, RawSamples> {
    prometheus::raw_samples(url, selector, from, to, &OF_THE_SERVER)
}

fn number(url: &str, query: &str) -> Option<f64> {
    prometheus::instant_query(url, query)
        .ok()?
        .first()
        .map(|sample| sample.value)
}

/// Compares the samples of every series in `(from, to]`. The last requests may still be on their way.
fn compare(theirs: &str, ours: &str, selector: &str, (from, to): (i64, i64)) {
    let expected = raw_samples(theirs, selector, from, to);
    // A selector that fits nothing would make both sides equal.
    assert!(expected.len() > 200, "{} series", expected.len());
    let deadline = Instant::now() + SOON;
    let mut stored = raw_samples(ours, selector, from, to);
    while stored != expected && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(500));
        stored = raw_samples(ours, selector, from, to);
    }
    for (labels, samples) in &expected {
        assert_eq!(stored.get(labels), Some(samples), "{labels}");
    }
    assert_eq!(stored.len(), expected.len());
}

fn debian_prometheus() -> Result<(), Skip> {
    need(&[Needed {
        program: "prometheus",
        package: "prometheus",
    }])
}

#[test]
fn every_sample_of_prometheus_2_is_stored_though_both_sides_are_killed() {
    let Some(()) = or_skip(debian_prometheus()) else {
        return;
    };
    let mut server = Receiver::start("");
    let (_exporter, target) = exporter(&server.takt);
    let files = server.takt.directory().join("prometheus");
    let address = format!("127.0.0.1:{}", free_port());
    let theirs = format!("http://{address}");
    let writes = destination(&server.write_url(), &token("one"), "");
    let writes = format!("remote_write:\n{writes}");
    let start = || prometheus(Path::new("prometheus"), &files, &address, &target, &writes);
    let mut sender = start();
    let count = "count_over_time(up{job=\"node\"}[1h])";
    let enough = |url: &str, least: f64| number(url, count).filter(|&count| count >= least);
    sender.wait_until("sending", SOON, || enough(&server.url, 5.0));
    let first = |url: &str| {
        let now = number(url, "time() * 1000").unwrap() as i64;
        let up = raw_samples(url, "up{job=\"node\"}", now - 600_000, now);
        *up.values().next().unwrap().keys().next().unwrap()
    };
    let began = first(&theirs);

    // Killed while samples arrive, twice; the second time it is away for some seconds.
    server.kill_and_restart(Duration::ZERO);
    let before = number(&theirs, count).unwrap();
    sender.wait_until("scraping", SOON, || enough(&theirs, before + 5.0));
    server.kill_and_restart(Duration::from_secs(4));
    let reached = "timestamp(up{job=\"node\"}) * 1000";
    let catch_up = |server: &mut Receiver, sender: &mut Daemon| {
        let newest = number(&theirs, reached).unwrap() as i64;
        sender.wait_until("up to date", SOON, || {
            number(&server.url, reached).filter(|&at| at as i64 >= newest)
        });
        newest
    };
    // Two seconds less: the series of the last scrape may come in several requests.
    let newest = catch_up(&mut server, &mut sender) - 2000;
    let selector = "{job=\"node\"}";
    compare(&theirs, &server.url, selector, (began - 1, newest));

    // A Prometheus that is killed forgets what it has not sent. What it sends afterwards is stored.
    sender.kill();
    let mut sender = start();
    let before = number(&theirs, count).unwrap();
    sender.wait_until("scraping again", SOON, || enough(&theirs, before + 5.0));
    let restarted = number(&theirs, "time()").unwrap();
    sender.wait_until("scraping still", SOON, || enough(&theirs, before + 12.0));
    let newest = catch_up(&mut server, &mut sender) - 2000;
    let from = (restarted * 1000.0) as i64;
    compare(&theirs, &server.url, selector, (from, newest));

    // No sample is there that Prometheus does not have, also around the kill.
    let all = raw_samples(&theirs, selector, began - 1, newest);
    for (labels, samples) in raw_samples(&server.url, selector, began - 1, newest) {
        let known = &all[&labels];
        let strange = samples
            .iter()
            .find(|(at, value)| known.get(at) != Some(value));
        assert_eq!(strange, None, "{labels}");
    }
    assert_eq!(
        server.metric("takt_push_rejected_samples_total{sender=\"one\",reason=\"conflict\"}"),
        0.0
    );

    // Sealed into blocks, they are the same.
    server.takt.run(["store", "seal"]).ok();
    compare(&theirs, &server.url, selector, (from, newest));
}

/// An agent of Prometheus 3 sends the same samples by 2.0 to Takt and by 1.0 to another Prometheus.
#[test]
fn an_agent_of_prometheus_3_sends_version_2() {
    let peer = debian_prometheus().and_then(|()| need_peer("prometheus-3.14.0"));
    let Some(program) = or_skip(peer) else {
        return;
    };
    let mut server = Receiver::start("");
    let (mut exporter, target) = exporter(&server.takt);
    let at = || format!("127.0.0.1:{}", free_port());
    let agent_at = at();
    let reference_at = at();
    let files = server.takt.directory().to_owned();
    let reference = "http://".to_owned() + &reference_at;
    let debian = Path::new("prometheus");
    // An agent stores nothing itself, so another Prometheus has the samples to compare with.
    let _reference = prometheus(debian, &files.join("reference"), &reference_at, "", "");
    let to_takt = destination(
        &server.write_url(),
        &token("two"),
        "  protobuf_message: io.prometheus.write.v2.Request\n",
    );
    let to_reference = destination(&format!("{reference}/api/v1/write"), "none", "");
    let writes = format!("remote_write:\n{to_takt}{to_reference}");
    let data = files.join("agent/data").display().to_string();
    let flags = ["--agent".to_owned(), format!("--storage.agent.path={data}")];
    let mut agent = run_prometheus(
        &program,
        &files.join("agent"),
        &agent_at,
        &target,
        &writes,
        &flags,
    );
    let count = "count_over_time(up{job=\"node\"}[1h])";
    let enough = |url: &str, least: f64| number(url, count).filter(|&count| count >= least);
    agent.wait_until("sending", SOON, || enough(&server.url, 5.0));
    server.kill_and_restart(Duration::from_secs(3));
    let before = number(&reference, count).unwrap();
    agent.wait_until("sending again", SOON, || enough(&server.url, before + 5.0));

    // The series of the exporter end.
    exporter.kill();
    let ended = "absent(node_load1{job=\"node\"})";
    for url in [&server.url, &reference] {
        agent.wait_until("without the target's series", SOON, || number(url, ended));
    }
    let newest = number(&reference, "timestamp(up{job=\"node\"}) * 1000").unwrap() as i64;
    agent.wait_until("up to date", SOON, || {
        let at = number(&server.url, "timestamp(up{job=\"node\"}) * 1000")?;
        (at as i64 >= newest).then_some(())
    });
    let to = newest - 2000;
    let selector = "{job=\"node\"}";
    compare(&reference, &server.url, selector, (to - 600_000, to));
    let answered =
        "takt_push_requests_total{sender=\"two\",protocol=\"remote_write_2\",code=\"204\"}";
    assert!(server.metric(answered) > 5.0);

    // The agent counts what the reply's headers say.
    let failed = http_get(&format!("http://{agent_at}/metrics"))
        .unwrap()
        .body;
    let failed = failed.lines().find(|line| {
        line.starts_with("prometheus_remote_storage_samples_failed_total")
            && line.contains(&server.url)
    });
    assert!(failed.is_none_or(|line| line.ends_with(" 0")), "{failed:?}");
}

/// One Takt sends to another, which is killed.
#[test]
fn takt_pushes_to_takt() {
    let mut server = Receiver::start("");
    let sender = Takt::fresh();
    let (_exporter, target) = exporter(&sender);
    let address = format!("127.0.0.1:{}", free_port());
    sender.file("token", token("three"));
    sender.file(
        "takt.toml",
        format!(
            "cluster = \"here\"\n[server]\nlisten_address = \"{address}\"\n[jobs]\npoll = false\n\
             [scrape]\ninterval_seconds = 1\ntimeout_seconds = 1\n\
             [[scrape.targets]]\naddress = \"{target}\"\nnode = \"n1\"\n\
             [[remote_write]]\nurl = \"{}\"\nbearer_token_file = \"token\"\nprotocol = \"2.0\"\n\
             samples_per_request = 300\n",
            server.write_url()
        ),
    );
    let mut daemon = sender.start(["serve", "--config", "takt.toml"]);
    let theirs = format!("http://{address}");
    let count = "count_over_time(up{node=\"n1\"}[1h])";
    let enough = |url: &str, least: f64| number(url, count).filter(|&count| count >= least);
    daemon.wait_until("sending", SOON, || enough(&server.url, 4.0));
    server.kill_and_restart(Duration::from_secs(6));
    let before = number(&theirs, count).unwrap();
    daemon.wait_until("sending again", SOON, || enough(&server.url, before + 6.0));
    let up = "up{node=\"n1\"}";
    let newest = number(&server.url, &format!("timestamp({up}) * 1000")).unwrap() as i64;
    // A destination gets the samples after its first start only.
    let from = *raw_samples(&server.url, up, newest - 600_000, newest)
        .values()
        .next()
        .unwrap()
        .keys()
        .next()
        .unwrap();
    let selector = "{node=\"n1\"}";
    compare(&theirs, &server.url, selector, (from - 1, newest));

    // The sender's cluster stays.
    assert!(
        number(
            &server.url,
            "count(up{node=\"n1\",cluster=\"here\",sender=\"three\"})"
        )
        .is_some()
    );
}
