//! Metrics of an OpenTelemetry SDK.

use super::{OF_THE_SERVER, Receiver, number, prometheus, token};
use crate::support::process::{free_port, http_get_with};
use crate::support::prometheus::labels_without;
use crate::support::{Skip, need_peer, or_skip};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn otel_python() -> Result<PathBuf, Skip> {
    need_peer("opentelemetry-1.45.2/bin/python")
}

fn export(python: &Path, arguments: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/whole/push/otel.py");
    let output = Command::new(python)
        .arg(script)
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Newest values of the SDK's series, by their labels. Several series of one receiver have no
/// common time.
fn exported(url: &str) -> BTreeMap<String, String> {
    let selector = "last_over_time({job=\"lab/train\"}[5m])";
    let page = http_get_with(&format!("{url}/api/v1/query"), &[("query", selector)], &[]).unwrap();
    let body: Value = serde_json::from_str(&page.body).unwrap();
    let series = body["data"]["result"].as_array().unwrap().iter();
    series
        .map(|series| {
            let value = series["value"][1].as_str().unwrap().to_owned();
            (labels_without(series, &OF_THE_SERVER), value)
        })
        .collect()
}

/// The SDK exports to Takt and to Prometheus 3: names, labels and values are the same.
#[test]
fn the_opentelemetry_sdk_gets_the_names_that_prometheus_gives() {
    let needed = otel_python().and_then(|python| Ok((python, need_peer("prometheus-3.14.0")?)));
    let Some((python, program)) = or_skip(needed) else {
        return;
    };
    let server = Receiver::start("");
    let address = format!("127.0.0.1:{}", free_port());
    let theirs = format!("http://{address}");
    let settings = "otlp: {promote_resource_attributes: ['slurm.job_id']}\n";
    let files = server.takt.directory().join("prometheus");
    let _prometheus = prometheus(&program, &files, &address, "", settings);
    let to_takt = format!("{}/api/v1/otlp/v1/metrics={}", server.url, token("one"));
    let to_prometheus = format!("{theirs}/api/v1/otlp/v1/metrics=");
    let failures = export(&python, &["cumulative", "4", &to_takt, &to_prometheus]);
    assert_eq!(failures, "");
    let expected = exported(&theirs);
    assert!(expected.len() > 20, "{expected:?}");
    assert_eq!(exported(&server.url), expected);
}

/// Deltas become the same totals, also when the server is restarted.
#[test]
fn the_opentelemetry_sdk_may_send_deltas() {
    let Some(python) = or_skip(otel_python()) else {
        return;
    };
    let mut server = Receiver::start("");
    // Each sender has series of its own, so one sends deltas and the other one totals.
    let address = |sender: &str| format!("{}/api/v1/otlp/v1/metrics={}", server.url, token(sender));
    let delta = address("one");
    let cumulative = address("two");
    assert_eq!(export(&python, &["delta", "4", &delta]), "");
    assert_eq!(export(&python, &["cumulative", "4", &cumulative]), "");
    let of = |server: &Receiver, sender: &str| {
        let query = format!("steps_done_total{{sender=\"{sender}\",rank=\"1\"}}");
        number(&server.url, &query)
    };
    assert_eq!(of(&server, "one"), Some(12.0));
    assert_eq!(of(&server, "two"), Some(12.0));
    let buckets = |sender: &str| {
        let query = format!("step_duration_seconds_bucket{{sender=\"{sender}\",le=\"+Inf\"}}");
        number(&server.url, &query)
    };
    assert_eq!(buckets("one"), Some(8.0));
    assert_eq!(buckets("two"), Some(8.0));
    server.kill_and_restart(Duration::ZERO);
    assert_eq!(export(&python, &["delta", "2", &delta]), "");

    // The sum continues from the stored one.
    assert_eq!(of(&server, "one"), Some(18.0));
    let resets = "resets(steps_done_total{sender=\"one\",rank=\"1\"}[1h])";
    assert_eq!(number(&server.url, resets), Some(0.0));
}
