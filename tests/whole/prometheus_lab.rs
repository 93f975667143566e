//! The Prometheus lab itself: it scrapes targets, answers queries and ends.

use std::process::Command;
use std::time::Duration;

use crate::support::process::{Daemon, free_port, http_get};
use crate::support::prometheus::{Prometheus, Sample, Target};
use crate::support::{Needed, need};
use crate::support::{or_skip, process};
use tempfile::tempdir;

#[test]
fn targets_are_scraped_and_questions_answered() {
    let Some(()) = or_skip(need(&[Needed {
        program: "prometheus-node-exporter",
        package: "prometheus-node-exporter",
    }])) else {
        return;
    };
    let directory = tempdir().unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new("prometheus-node-exporter");
    command.args([
        format!("--web.listen-address={address}"),
        "--collector.disable-defaults".to_owned(),
    ]);
    command.args(["--collector.time", "--collector.uname"]);
    let mut exporter = Daemon::start(
        "node_exporter",
        command,
        &directory.path().join("node_exporter.log"),
    );
    exporter.wait_until("serving", Duration::from_secs(30), || {
        http_get(&format!("http://{address}/metrics")).ok()
    });

    let target = Target {
        job: "node",
        address: &address,
        // A quote, which the configuration has to escape.
        labels: &[("cluster", "lab"), ("node", "it's g01")],
    };
    let Some(mut prometheus) = or_skip(Prometheus::start(&[target])) else {
        return;
    };
    prometheus.wait_for_scrapes(3);

    let up = prometheus.query("up").unwrap();
    let labels = [
        ("__name__", "up"),
        ("cluster", "lab"),
        ("instance", &address),
        ("job", "node"),
        ("node", "it's g01"),
    ];
    let labels = labels
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    assert_eq!(up, [Sample { labels, value: 1.0 }]);
    let slope = prometheus.query("deriv(node_time_seconds[10s])").unwrap();
    assert!(
        (slope[0].value - 1.0).abs() < 0.1,
        "a clock gains a second a second: {slope:?}"
    );
    assert_eq!(
        prometheus
            .query("absent(nothing_of_this_name) + 1")
            .unwrap()[0]
            .value,
        2.0
    );
    assert!(prometheus.query("nothing_of_this_name").unwrap().is_empty());
    assert!(prometheus.query("1 +").unwrap_err().contains("parse error"));
    let targets = prometheus.get("/api/v1/targets", &[("state", "active")]);
    assert!(targets.body.contains(&address), "{}", targets.body);

    // The next scrapes notice that a target is gone.
    exporter.kill();
    process::wait_for("up to be 0", Duration::from_secs(10), || {
        prometheus
            .query("up")
            .unwrap()
            .first()
            .filter(|up| up.value == 0.0)
            .map(|_| ())
    });
    let url = prometheus.url().to_owned();
    drop(prometheus);
    assert!(http_get(&url).is_err());
}
