//! Faults of the alerting itself: channels, silences, the heartbeat, a full disk.

use super::lab::{Lab, SAMPLE_RULES, SOON};
use crate::support::mount::Mount;
use crate::support::process::{http_get, wait_for};
use crate::support::takt::Takt;
use crate::support::{need_root, or_skip};
use serde_json::json;
use std::fs;
use std::thread;
use std::time::Duration;

/// A failing channel is reported through the others, a failing rule through all channels.
#[test]
fn faults_of_alerting_are_reported_by_working_channels() {
    let channels =
        "  slack_configs: [{BOT, send_resolved: true}]\n  email_configs: [{to: ann@lab.example}]\n";
    let soon = |config: String| {
        config.replace(
            "heartbeat_seconds = 5",
            "heartbeat_seconds = 5\npatience_seconds = 5",
        )
    };
    let Some(lab) = Lab::start_with(Takt::fresh(), channels, soon) else {
        return;
    };
    lab.wait_for_listener();
    lab.slack
        .script("/api", json!([{"status": 503, "forever": true}]));
    lab.fault(79);
    let says = |words: &str| {
        lab.smtp
            .taken()
            .into_iter()
            .map(|mail| mail["content"].as_str().unwrap().to_owned())
            .filter(|mail| mail.contains(words))
            .collect::<Vec<_>>()
    };
    let mail = wait_for("a mail about Slack", SOON, || {
        says("TaktDeliveryFailing").pop()
    });

    // Quoted-printable may break lines anywhere.
    let mail = mail.replace("=\r\n", "");
    assert!(
        mail.contains("ops/slack/0") && mail.contains("HTTP 503"),
        "{mail}"
    );

    lab.heat(Some(50.0));
    let failing = SAMPLE_RULES.replace(
        "lab:heat > 90",
        "lab:heat * on (node) {__name__=~\"heat|up\"}",
    );
    lab.takt.file("rules/test.rules.yml", failing);
    assert_eq!(lab.reload().0, 200);
    let mail = wait_for("a mail about the rule", SOON, || {
        says("TaktRuleFailing").pop()
    })
    .replace("=\r\n", "");
    assert!(mail.contains("test.rules.yml:test/Hot"), "{mail}");
    assert!(
        lab.takt(&["alerts", "list"])
            .ok()
            .contains("TaktRuleFailing")
    );

    // The channel is back and gets the messages that it missed.
    lab.slack.script("/api", json!([]));
    wait_for("what Slack missed", SOON, || {
        lab.slack
            .on("/api/chat.postMessage")
            .iter()
            .any(|one| one["body"].to_string().contains("XID 79"))
            .then_some(())
    });
}

#[test]
fn silences_over_most_alerts_are_reported() {
    let Some(lab) = Lab::start("  webhook_configs: [{url: 'SLACK/hook'}]\n") else {
        return;
    };
    lab.takt(&[
        "alerts",
        "silence",
        "alertname=Hot",
        "--comment",
        "too wide",
    ])
    .ok();
    lab.takt.file(
        "rules/test.rules.yml",
        SAMPLE_RULES.replace("sum by (node)", "sum by (node, rack)"),
    );
    assert_eq!(lab.reload().0, 200);
    let heat: String = (0..12)
        .map(|n| format!("heat{{rack=\"{n}\"}} 95\n"))
        .collect();
    // All twelve appear at once.
    let new = lab.textfiles.join("heat.new");
    fs::write(&new, heat).unwrap();
    fs::rename(new, lab.textfiles.join("heat.prom")).unwrap();
    let hook = lab.slack.wait("/hook", 1);
    let alert = &hook[0]["body"]["alerts"][0];
    assert_eq!(alert["labels"]["alertname"], "TaktSilencesTooMuch");
    assert_eq!(
        alert["annotations"]["summary"],
        "12 of 12 alerts that fire are silenced"
    );
}

/// The heartbeat stops with the server, so an outside service can raise the alarm.
#[test]
fn the_heartbeat_stops_with_the_server() {
    let Some(mut lab) = Lab::start("  webhook_configs: [{url: 'SLACK/hook'}]\n") else {
        return;
    };
    lab.slack.wait("/heartbeat", 3);

    // A heartbeat that fails does not stop the later ones.
    lab.slack.script("/heartbeat", json!([{"status": 500}]));
    let failed = |lab: &Lab| {
        http_get(&format!("http://{}/metrics", lab.address))
            .unwrap()
            .body
            .lines()
            .any(|line| line.starts_with("takt_alerts_heartbeat_failures") && line.ends_with(" 1"))
    };
    wait_for("a heartbeat that failed", SOON, || {
        failed(&lab).then_some(())
    });
    let heard = lab.slack.on("/heartbeat").len();
    lab.slack.wait("/heartbeat", heard + 1);
    lab.kill();
    let heard = lab.slack.on("/heartbeat").len();
    thread::sleep(Duration::from_secs(11));

    // One more may have been on its way.
    let after = lab.slack.on("/heartbeat").len();
    assert!(after <= heard + 1, "{after} of {heard}");
    lab.serve();
    lab.slack.wait("/heartbeat", after + 1);
}

/// Alerts take the reserved space of a full disk: they are committed, sent once, and survive a crash.
#[test]
fn a_full_disk_is_reported_and_alerts_are_committed_on_it() {
    let Some(()) = or_skip(need_root()) else {
        return;
    };
    let takt = Takt::fresh();
    let mount = Mount::tmpfs(&takt.data_directory(), "size=64m");
    let store = "[store]\nmin_free_bytes = 1048576\n";
    let started = Lab::start_with(
        takt,
        "  webhook_configs: [{url: 'SLACK/hook'}]\n",
        |config| config + store,
    );
    let Some(mut lab) = started else {
        return;
    };
    lab.wait_for_listener();
    let reserve = lab.takt.data_directory().join("reserve");
    let reserved = wait_for("reserved space", SOON, || {
        reserve.metadata().ok().map(|file| file.len())
    });
    mount.fill_whole();
    let sent = |lab: &Lab, name: &str| {
        lab.slack
            .on("/hook")
            .iter()
            .filter(|one| one["body"].to_string().contains(name))
            .count()
    };
    lab.fault(79);
    wait_for("the fault's message", SOON, || {
        (sent(&lab, "GpuXid") > 0).then_some(())
    });
    let full = wait_for("word of the full disk", SOON, || {
        lab.slack
            .on("/hook")
            .iter()
            .map(|one| one["body"].to_string())
            .into_iter()
            .find(|text| text.contains("TaktCannotStoreSamples"))
    });
    assert!(
        full.contains("MiB free") || full.contains("No space left"),
        "{full}"
    );
    assert_eq!(sent(&lab, "TaktCannotStoreAlerts"), 0);
    let metrics = http_get(&format!("http://{}/metrics", lab.address))
        .unwrap()
        .body;
    assert!(
        metrics.contains("takt_notifications_uncommitted_total 0\n"),
        "messages were not committed: {}",
        lab.server.as_ref().unwrap().log()
    );
    let left = reserve.metadata().unwrap().len();
    assert!(0 < left && left < reserved, "{left} of {reserved}");

    let before = firing(&lab, "GpuXid");
    lab.kill();
    lab.serve();
    thread::sleep(Duration::from_secs(3));
    assert_eq!(firing(&lab, "GpuXid"), before, "a message was sent twice");
    mount.free();
    wait_for("reserved space", SOON, || {
        lab.fault(13);
        thread::sleep(Duration::from_secs(1));
        reserve
            .metadata()
            .ok()
            .filter(|file| file.len() == reserved)
            .map(drop)
    });
    lab.stop();
}

/// Number of messages that say that an alert fires.
fn firing(lab: &Lab, name: &str) -> usize {
    lab.slack
        .on("/hook")
        .iter()
        .map(|one| one["body"].to_string())
        .filter(|text| text.contains(name) && !text.contains("resolved"))
        .count()
}

/// Rules see samples that cannot be stored, so the shipped rule reports the full disk.
#[test]
fn samples_that_wait_for_the_disk_are_reported() {
    let Some(mut lab) = Lab::start("  webhook_configs: [{url: 'SLACK/hook'}]\n") else {
        return;
    };
    lab.stop();
    let rules = include_str!("../../../dashboards/rules/takt.rules.yml");
    lab.takt.file(
        "rules/takt.rules.yml",
        rules
            .replace("for: 1m", "for: 2s")
            .replace("interval: 15s", "interval: 1s"),
    );
    lab.takt.file(
        "rules/thresholds.rules.yml",
        include_str!("../../../dashboards/rules/thresholds.rules.yml"),
    );
    let config = fs::read_to_string(lab.takt.directory().join("takt.toml")).unwrap();
    let config = config.replace(
        "heartbeat_url",
        "thresholds = {collector_lag_seconds = 3}\nheartbeat_url",
    );
    lab.takt.file(
        "takt.toml",
        format!("{config}[store]\nmin_free_bytes = {}\n", i64::MAX),
    );
    lab.serve();
    let said = wait_for("word of it", SOON, || {
        let all = lab
            .slack
            .on("/hook")
            .iter()
            .map(|one| one["body"].to_string())
            .collect::<String>();
        all.contains("CollectorLag").then_some(all)
    });
    assert!(said.contains("to be stored"), "{said}");
}
