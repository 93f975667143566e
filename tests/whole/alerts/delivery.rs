//! From a line in the kernel's log to every channel, also over crashes and failing channels.

use super::lab::{ALL_FOUR, Lab, SOON};
use crate::support::process::{Daemon, http_post, wait_for};
use crate::support::takt::count_stored;
use crate::support::{Needed, need, or_skip};
use serde_json::json;
use std::fs;
use std::process::Command;

#[test]
fn a_kernel_line_and_its_end_reach_every_channel() {
    let Some(mut lab) = Lab::start(ALL_FOUR) else {
        return;
    };
    lab.wait_for_listener();
    lab.fault(79);
    let posted = lab.slack.wait("/api/chat.postMessage", 1);
    let words = posted[0]["body"].to_string();
    for part in [
        "XID 79 on g01",
        "drain it",
        "Xid (PCI:0000:06:00): 79, pid=1, something broke",
    ] {
        assert!(words.contains(part), "{part:?} is not in {words}");
    }
    let updated = lab.slack.wait("/api/chat.update", 1);
    assert!(
        updated[0]["body"]["text"]
            .as_str()
            .unwrap()
            .starts_with("[RESOLVED]"),
        "{updated:?}"
    );
    assert_eq!(
        lab.slack.wait("/services/T/B/s", 2).len(),
        2,
        "a webhook tells both"
    );
    let hook = lab.slack.wait("/hook", 2);
    let states: Vec<_> = hook
        .iter()
        .map(|one| one["body"]["status"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["firing", "resolved"]);
    assert_eq!(&hook[0]["body"]["version"], &json!("4"));
    assert_eq!(&hook[0]["body"]["receiver"], &json!("ops"));
    let pushed = lab.slack.wait("/ntfy", 2);
    assert_eq!(&pushed[0]["body"]["topic"], &json!("lab"));
    assert_eq!(&pushed[0]["body"]["priority"], &json!(5));
    for address in ["ann@lab.example", "bob@lab.example"] {
        let mails = lab.smtp.mails(address, 2);
        let header = |mail: &str, name: &str| {
            mail.lines()
                .find(|line| line.starts_with(name))
                .unwrap_or_default()
                .split_once(": ")
                .map(|(_, value)| value.to_owned())
                .unwrap_or_default()
        };
        assert_eq!(
            header(&mails[0], "Message-ID"),
            header(&mails[1], "In-Reply-To"),
            "{}",
            mails[1]
        );
        assert!(mails[0].contains("XID 79 on g01"), "{}", mails[0]);
    }
    lab.slack.wait("/heartbeat", 1);

    let steps = lab
        .takt(&["alerts", "history", "--alert", "GpuXid", "--format", "csv"])
        .ok();
    assert!(
        steps.contains("inactive,firing,event") && steps.contains("firing,inactive,event_over"),
        "{steps}"
    );

    // The channel has a message before its state is committed.
    let unsent = "SELECT count(*) AS n FROM notifications WHERE state <> 'sent'";
    wait_for("the state of every message", SOON, || {
        let counted = lab.takt(&["sql", "--format", "csv", unsent]);
        (counted.ok() == "n\n0\n").then_some(())
    });
    lab.stop();

    // The command works without a server too.
    assert_eq!(
        lab.takt(&["alerts", "history", "--alert", "GpuXid", "--format", "csv"])
            .ok(),
        steps
    );
}

#[test]
fn decisions_survive_kills_and_are_sent_when_the_channel_is_back() {
    let Some(mut lab) = Lab::start("  slack_configs: [{BOT, send_resolved: true}]\n") else {
        return;
    };
    lab.wait_for_listener();
    lab.slack.stop();
    lab.fault(79);
    wait_for("the row", SOON, || {
        (!lab.get("/api/v2/alerts").as_array()?.is_empty()).then_some(())
    });
    lab.kill();

    // A fault while the server is away: the exporter keeps the event.
    lab.fault(48);
    lab.slack.run();
    lab.serve();
    let said = |lab: &Lab| {
        lab.slack
            .on("/api/chat.postMessage")
            .iter()
            .map(|one| one["body"].to_string())
            .collect::<String>()
    };
    wait_for("both faults", SOON, || {
        let said = said(&lab);
        (said.contains("XID 79") && said.contains("XID 48")).then_some(())
    });
    wait_for("their end", SOON, || {
        lab.get("/api/v2/alerts")
            .as_array()?
            .is_empty()
            .then_some(())
    });
    lab.slack.wait("/api/chat.update", 1);
    lab.kill();
    lab.serve();
    let open = "SELECT count(*) AS n FROM notifications WHERE state = 'queued'";
    wait_for("an empty queue", SOON, || {
        (lab.takt(&["sql", "--format", "csv", open]).ok() == "n\n0\n").then_some(())
    });
    let counts = "SELECT sum(CAST(reason = 'first_firing' AS INT)) = sum(CAST(reason = 'resolved' \
         AS INT)) AS ok FROM notifications";
    wait_for("as many ends as beginnings", SOON, || {
        (lab.takt(&["sql", "--format", "csv", counts]).ok() == "ok\ntrue\n").then_some(())
    });
}

#[test]
fn a_server_that_dies_before_the_first_event_it_ever_reads_misses_none() {
    let Some(mut lab) = Lab::start("  webhook_configs: [{url: 'SLACK/hook'}]\n") else {
        return;
    };
    let begun = "SELECT count(*) FROM records.alert_state WHERE kind = 'read'";
    let mut copies = 0;
    wait_for("where reading begins", SOON, || {
        copies += 1;
        let copy = lab.takt.directory().join(format!("copy-{copies}"));
        lab.takt(&["backup", "--to", copy.to_str().unwrap()]).ok();
        (count_stored(&copy, begun) == 1).then_some(())
    });
    lab.kill();
    lab.fault(79);
    lab.serve();
    let posts = lab.slack.wait("/hook", 1);
    assert!(posts[0]["body"].to_string().contains("XID 79"), "{posts:?}");
}

#[test]
fn refusals_rate_limits_and_lost_messages() {
    let channels =
        "  slack_configs: [{BOT, send_resolved: true}]\n  email_configs: [{to: ann@lab.example}]\n";
    let Some(lab) = Lab::start(channels) else {
        return;
    };
    lab.wait_for_listener();

    // A rate limit first, then success. The message to update was deleted, so "resolved" is a new
    // message.
    lab.slack.script(
        "/api/chat.postMessage",
        json!([
            {"status": 503},
            {"status": 429, "retry_after": 1},
            {"error": "fatal_error"},
        ]),
    );
    lab.slack
        .script("/api/chat.update", json!([{"error": "message_not_found"}]));
    lab.fault(79);
    let posted = lab.slack.wait("/api/chat.postMessage", 2);
    assert!(
        posted[1]["body"]["text"]
            .as_str()
            .unwrap()
            .starts_with("[RESOLVED]"),
        "{posted:?}"
    );
    assert_eq!(lab.smtp.mails("ann@lab.example", 1).len(), 1);

    // A refusal for good: the receiver's mail channel has the message already and gets no second
    // copy.
    lab.slack.script(
        "/api/chat.postMessage",
        json!([{"error": "channel_not_found", "forever": true}]),
    );
    lab.fault(48);
    wait_for("Slack's refusal", SOON, || {
        let why = lab
            .takt(&["alerts", "history", "--messages", "--format", "csv"])
            .ok();
        (why.contains("channel_not_found") && why.contains("gave_up")).then_some(())
    });
    let mails = lab.smtp.mails("ann@lab.example", 2);
    assert_eq!(
        mails.iter().filter(|mail| mail.contains("XID 48")).count(),
        1,
        "{mails:?}"
    );
}

/// Slack accepts a message and Takt is killed before the answer arrives: Takt finds the message and
/// does not send it twice.
#[test]
fn a_message_without_an_answer_from_slack_is_not_sent_twice() {
    let channels = "  slack_configs: [{channel: C1, app_url: 'SLACK/api', app_token: xoxb-test, \
         send_resolved: true}]\n";
    let Some(mut lab) = Lab::start(channels) else {
        return;
    };
    lab.wait_for_listener();
    lab.slack
        .script("/api/chat.postMessage", json!([{"take": true}]));
    lab.fault(79);
    lab.slack.wait("/api/chat.postMessage", 1);
    lab.kill();
    lab.serve();
    lab.slack.wait("/api/conversations.history", 1);

    // The message that was found is updated when the alert ends.
    let updated = lab.slack.wait("/api/chat.update", 1);
    assert!(
        updated[0]["body"]["text"]
            .as_str()
            .unwrap()
            .starts_with("[RESOLVED]"),
        "{updated:?}"
    );
    assert_eq!(lab.slack.on("/api/chat.postMessage").len(), 1);
}

/// The server uses the target's certificate and password for the exporter's events too.
#[test]
fn events_arrive_from_an_exporter_with_tls_and_password() {
    let Some(()) = or_skip(need(&[Needed {
        program: "openssl",
        package: "openssl",
    }])) else {
        return;
    };
    let Some(mut lab) = Lab::start("  webhook_configs: [{url: 'SLACK/hook'}]\n") else {
        return;
    };
    lab.stop();
    lab.exporter.take().unwrap().stop();
    let dir = lab.takt.directory().to_owned();
    let certificate = |name: &str, signed: bool| {
        let mut openssl = Command::new("openssl");
        let subject = format!("/CN={name}");
        let words = [
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ];
        openssl
            .args(words)
            .args(["-subj", &subject, "-addext", "subjectAltName=IP:127.0.0.1"])
            .current_dir(&dir);
        openssl.args([
            "-keyout",
            &format!("{name}.key"),
            "-out",
            &format!("{name}.crt"),
        ]);
        if signed {
            openssl.args([
                "-addext",
                "basicConstraints=critical,CA:FALSE",
                "-CA",
                "ca.crt",
                "-CAkey",
                "ca.key",
            ]);
        }
        let output = openssl.output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    certificate("ca", false);
    certificate("exporter", true);
    certificate("server", true);

    // The password is `secret`.
    lab.takt.file(
        "web.yml",
        "tls_server_config: {cert_file: exporter.crt, key_file: exporter.key, client_auth_type: \
         RequireAndVerifyClientCert, client_ca_file: ca.crt}\nbasic_auth_users:\n  \
         takt: $2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n",
    );
    lab.takt.file("password", "secret\n");
    let mut command = lab.takt.command([
        "exporter",
        "--web.config.file",
        "web.yml",
        "--web.listen-address",
        &lab.node,
    ]);
    command
        .arg("--path.kmsg")
        .arg(&lab.kmsg)
        .arg("--state-directory")
        .arg(dir.join("exporter-state"));
    lab.exporter = Some(Daemon::start(
        "exporter",
        command,
        &dir.join("exporter-tls.log"),
    ));
    let config = fs::read_to_string(dir.join("takt.toml")).unwrap();
    let (before, _) = config.split_once("[[scrape.targets]]").unwrap();
    let target = format!(
        "[[scrape.configs]]\njob_name = 'takt'\nscheme = 'https'\nstatic_configs = [{{targets = \
         ['{}'], labels = {{node = 'g01'}}}}]\n\
         basic_auth = {{username = 'takt', password_file = 'password'}}\n\
         tls_config = {{ca_file = 'ca.crt', cert_file = 'server.crt', key_file = 'server.key'}}\n",
        lab.node
    );
    lab.takt.file("takt.toml", format!("{before}{target}"));
    lab.serve();

    // Samples of the exporter before this one are still visible, under another job label.
    lab.wait_for_series("takt_events_listeners{job=\"takt\"}", ",\"1\"]");
    lab.fault(79);
    let hook = lab.slack.wait("/hook", 1);
    assert!(
        hook[0]["body"].to_string().contains("XID 79 on g01"),
        "{hook:?}"
    );
}

/// Labels and texts of alerts that hold line feeds, long words and encoded words stay text in each header.
#[test]
fn texts_of_others_make_no_header_of_a_mail() {
    let mail = "  email_configs: [{to: ann@lab.example, headers: {Subject: '{{ .CommonLabels.alertname }} {{ .CommonLabels.run }}', X-Run: '{{ .CommonLabels.run }}'}}]\n";
    let Some(lab) = Lab::start(mail) else {
        return;
    };
    let long = "a".repeat(5_000);
    let accents = "é".repeat(3_000);
    let texts = [
        "x\r\nBcc: mallory@evil.example\r\n\r\nbody",
        "x\nBcc: mallory@evil.example",
        "x\rBcc: mallory@evil.example",
        "x\u{2028}Bcc: mallory@evil.example\u{85}Bcc: m@evil.example\u{b}\u{c}\0",
        "=?utf-8?q?x=0D=0ABcc:_mallory@evil.example?=",
        "\"x\" <mallory@evil.example>, bob@lab.example",
        &long,
        &accents,
        "\u{202e}x\u{200b}",
        ".\r\nQUIT\r\nMAIL FROM:<mallory@evil.example>",
    ];
    for (number, text) in texts.iter().enumerate() {
        let labels =
            json!({"alertname": format!("Run{number}"), "severity": "critical", "run": text});
        let alerts = json!([{"labels": labels, "annotations": {"summary": text}}]).to_string();
        let url = format!("http://{}/api/v2/alerts", lab.address);
        let headers = [
            ("Authorization", "Bearer 0123456789abcdef-test"),
            ("Content-Type", "application/json"),
        ];
        let posted = http_post(&url, &headers, alerts.as_bytes()).unwrap();
        assert_eq!(posted.status, 200, "{}", posted.body);
    }

    let mails = lab.smtp.mails("ann@lab.example", texts.len());
    let every = lab.smtp.taken();
    assert!(
        every
            .iter()
            .all(|mail| mail["to"] == json!(["ann@lab.example"])),
        "{every:?}"
    );
    for mail in mails {
        let (head, _) = mail.split_once("\r\n\r\n").unwrap();
        let names = head
            .split("\r\n")
            .filter(|line| !line.starts_with([' ', '\t']));
        let names = names.map(|line| line.split_once(": ").map_or(line, |(name, _)| name));
        let mut names: Vec<&str> = names.collect();
        let expected = [
            "From",
            "To",
            "Subject",
            "Date",
            "Message-ID",
            "X-Run",
            "MIME-Version",
            "Content-Type",
            "Auto-Submitted",
            "List-Id",
            "X-GPU-Alert-Fingerprint",
            "References",
            "In-Reply-To",
            "X-Priority",
            "Importance",
            "X-Auto-Response-Suppress",
            "Content-Transfer-Encoding",
        ];
        let unknown: Vec<_> = names
            .iter()
            .filter(|name| !expected.contains(name))
            .collect();
        assert!(unknown.is_empty(), "{unknown:?} in {head}");
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "a header is there twice: {head}");
        assert!(mail.split("\r\n").all(|line| line.len() <= 998), "{head}");
        assert!(!mail.replace("\r\n", "").contains(['\r', '\n']), "{head}");
    }
}
