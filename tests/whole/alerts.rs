//! Alerts as a whole: from a line in the kernel's log to every channel, over crashes, and beside
//! Debian's promtool, amtool and Prometheus.

use crate::support::channels::Channel;
use crate::support::mount::Mount;
use crate::support::process::{Daemon, free_port, http_get, http_get_with, wait_for};
use crate::support::slurm::{Mode, SlurmLab};
use crate::support::takt::Takt;
use crate::support::{Needed, need, need_root, or_skip};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(120);

/// Rules that a test makes true or false through a kernel log and a textfile.
const EVENT_RULES: &str = "
groups:
- name: test
  rules:
  - alert: GpuXid
    when: [{kind: xid}]
    by: [node, xid]
    hold: 3s
    labels: {severity: critical}
    annotations: {summary: 'XID {{ $labels.xid }} on {{ $labels.node }}', action: 'drain it', description: '{{ if $labels.node }}{{ humanize $labels.node }}{{ end }}'}
";
const SAMPLE_RULES: &str = "
groups:
- name: test
  interval: 1s
  rules:
  - record: lab:heat
    expr: sum by (node) (heat)
  - alert: Hot
    expr: lab:heat > 90
    labels: {severity: critical}
    annotations: {summary: '{{ $labels.node }} is at {{ $value }}'}
";
const ROUTES: &str = "
route:
  receiver: ops
  group_by: [alertname]
  group_wait: 0s
  group_interval: 1s
  repeat_interval: 1h
receivers:
- name: ops
";

/// Settings of a Slack bot.
const BOT: &str = "channel: '#gpu', app_url: 'SLACK/api', app_token: xoxb-test";

/// A node and a server, with channels.
struct Lab {
    takt: Takt,
    slack: Channel,
    smtp: Channel,
    address: String,
    server: Option<Daemon>,
    exporter: Option<Daemon>,
    node: String,
    kmsg: PathBuf,
    textfiles: PathBuf,
}

impl Lab {
    /// Starts a server whose receiver `ops` has `channels`. In them `SLACK` is replaced by the
    /// stand-in's address and `BOT` by the settings of a bot.
    fn start(channels: &str) -> Option<Self> {
        Self::start_with(Takt::fresh(), channels, |config| config)
    }

    /// As [`start`](Self::start), with a change to `takt.toml`.
    fn start_with(
        takt: Takt,
        channels: &str,
        change: impl FnOnce(String) -> String,
    ) -> Option<Self> {
        let slack = or_skip(Channel::slack())?;
        let smtp = or_skip(Channel::smtp())?;
        let kmsg = takt.file("kmsg", "");
        let textfiles = takt.directory().join("textfiles");
        fs::create_dir(&textfiles).unwrap();
        let node = format!("127.0.0.1:{}", free_port());
        fs::create_dir(takt.directory().join("rules")).unwrap();
        takt.file("rules/test.events.yml", EVENT_RULES);
        takt.file("rules/test.rules.yml", SAMPLE_RULES);
        takt.file(
            "alertmanager.yml",
            format!("{ROUTES}{channels}")
                .replace("BOT", BOT)
                .replace("SLACK", &slack.url()),
        );
        let address = format!("127.0.0.1:{}", free_port());
        let config = format!(
            "cluster = 'lab'\nserver.listen_address = '{address}'\nserver.token_file = \
             'token'\njobs.poll = false\n\
             [email]\nserver = '127.0.0.1:{}'\ntls = 'none'\nfrom = 'takt@lab.example'\n\
             [alerts]\nalertmanager_file = 'alertmanager.yml'\nshipped_rules = false\nrule_dirs = \
             ['rules']\n\
             heartbeat_url = '{}/heartbeat'\nheartbeat_seconds = 5\n\
             [scrape]\ninterval_seconds = 0.5\ntimeout_seconds = 0.5\n\
             [[scrape.targets]]\naddress = '{node}'\nnode = 'g01'\n",
            smtp.port,
            slack.url(),
        );
        takt.file("takt.toml", change(config));
        takt.file("token", "0123456789abcdef-test\n");
        let mut lab = Self {
            takt,
            slack,
            smtp,
            address,
            server: None,
            exporter: None,
            node,
            kmsg,
            textfiles,
        };
        lab.export();
        lab.serve();
        Some(lab)
    }

    /// Starts the exporter, with the stand-in for NVML.
    fn export(&mut self) {
        let mut command = self.takt.command([
            "exporter",
            "--web.listen-address",
            &self.node,
            "--path.kmsg",
        ]);
        command
            .arg(&self.kmsg)
            .arg("--state-directory")
            .arg(self.takt.directory().join("exporter-state"));
        command
            .arg("--collector.textfile.directory")
            .arg(&self.textfiles);
        let library = Path::new(env!("CARGO_BIN_EXE_takt")).with_file_name("libnvml_stand_in.so");
        assert!(
            library.exists(),
            "{} is missing; cargo build -p nvml-stand-in",
            library.display()
        );
        command.arg("--nvml.library").arg(library);
        let mut exporter = Daemon::start(
            "exporter",
            command,
            &self.takt.directory().join("exporter.log"),
        );
        let page = format!("http://{}/metrics", self.node);
        exporter.wait_until("answering", SOON, || http_get(&page).ok());
        self.exporter = Some(exporter);
    }

    /// Reloads the configuration and returns the status and body of the answer.
    fn reload(&self) -> (u16, String) {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build()
            .into();
        let request = agent.post(format!("http://{}/-/reload", self.address));
        let mut answer = request
            .header("Authorization", "Bearer 0123456789abcdef-test")
            .send_empty()
            .unwrap();
        (
            answer.status().as_u16(),
            answer.body_mut().read_to_string().unwrap(),
        )
    }

    /// Waits until the result of a query contains `part`.
    fn wait_for_series(&self, query: &str, part: &str) {
        wait_for(query, SOON, || {
            let page = http_get_with(
                &format!("http://{}/api/v1/query", self.address),
                &[("query", query)],
                &[],
            )
            .ok()?;
            page.body.contains(part).then_some(())
        });
    }

    fn serve(&mut self) {
        let mut server = self.takt.start(["serve", "--config", "takt.toml"]);
        let page = format!("http://{}/-/healthy", self.address);
        server.wait_until("serving", SOON, || {
            http_get(&page).ok().filter(|page| page.status == 200)
        });
        // The exporter's greeting means that the server listens to events.
        server.wait_until("seeing the exporter", SOON, || {
            let up = http_get(&format!(
                "http://{}/api/v1/query?query=up%7Bnode%21%3D%22%22%7D",
                self.address
            ))
            .ok()?;
            up.body.contains(",\"1\"]").then_some(())
        });
        self.server = Some(server);
    }

    fn kill(&mut self) {
        self.server.take().unwrap().kill();
    }

    fn fault(&self, xid: u32) {
        let mut file = fs::OpenOptions::new()
            .append(true)
            .open(&self.kmsg)
            .unwrap();
        writeln!(
            file,
            "NVRM: Xid (PCI:0000:06:00): {xid}, pid=1, something broke"
        )
        .unwrap();
    }

    /// Waits until the server listens to the exporter: it gets no events from before that.
    fn wait_for_listener(&self) {
        wait_for("a listener", SOON, || {
            let answer = http_get(&format!(
                "http://{}/api/v1/query?query=takt_events_listeners",
                self.address
            ))
            .ok()?;
            answer.body.contains(",\"1\"]").then_some(())
        });
    }

    fn heat(&self, value: Option<f64>) {
        let file = self.textfiles.join("heat.prom");
        match value {
            Some(value) => fs::write(file, format!("heat {value}\n")).unwrap(),
            None => drop(fs::remove_file(file)),
        }
    }

    fn get(&self, path: &str) -> Value {
        let page = http_get(&format!("http://{}{path}", self.address)).unwrap();
        serde_json::from_str(&page.body).unwrap_or_else(|_| panic!("{path}: {}", page.body))
    }

    fn takt(&self, arguments: &[&str]) -> crate::support::takt::Run {
        self.takt
            .run([&["--config", "takt.toml"], arguments].concat())
    }

    fn stop(&mut self) {
        let status = self.server.take().unwrap().stop();
        assert!(status.success(), "{status}");
    }
}

const ALL_FOUR: &str =
    "  slack_configs: [{BOT, send_resolved: true}, {api_url: 'SLACK/services/T/B/s', send_resolved: true}]
  email_configs: [{to: 'ann@lab.example, bob@lab.example', send_resolved: true}]
  webhook_configs: [{url: 'SLACK/hook'}]
  ntfy_configs: [{url: 'SLACK/ntfy', topic: lab}]
";

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
    assert_eq!(
        (&hook[0]["body"]["version"], &hook[0]["body"]["receiver"]),
        (&json!("4"), &json!("ops"))
    );
    let pushed = lab.slack.wait("/ntfy", 2);
    assert_eq!(
        (&pushed[0]["body"]["topic"], &pushed[0]["body"]["priority"]),
        (&json!("lab"), &json!(5))
    );
    for address in ["ann@lab.example", "bob@lab.example"] {
        let mails = lab.smtp.mails(address, 2);
        let header = |mail: &str, name: &str| {
            let line = mail
                .lines()
                .find(|line| line.starts_with(name))
                .unwrap_or_default();
            line.split_once(": ")
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
    let told = lab
        .takt(&[
            "sql",
            "--format",
            "csv",
            "SELECT count(*) AS n FROM notifications WHERE state <> 'sent'",
        ])
        .ok();
    assert_eq!(told, "n\n0\n");
    lab.stop();
    // The command works without a server too.
    assert_eq!(
        lab.takt(&["alerts", "history", "--alert", "GpuXid", "--format", "csv"])
            .ok(),
        steps
    );
}

#[test]
fn alerts_over_samples_are_in_the_api_and_the_command() {
    let Some(lab) = Lab::start("  webhook_configs: [{url: 'SLACK/hook'}]\n") else {
        return;
    };
    lab.heat(Some(95.0));
    let hook = lab.slack.wait("/hook", 1);
    assert_eq!(
        hook[0]["body"]["alerts"][0]["annotations"]["summary"],
        "g01 is at 95"
    );
    let rules = lab.get("/api/v1/rules");
    let group = &rules["data"]["groups"][0];
    assert_eq!(
        (&group["rules"][0]["type"], &group["rules"][1]["state"]),
        (&json!("recording"), &json!("firing"))
    );
    assert_eq!(
        lab.get("/api/v1/alerts")["data"]["alerts"][0]["labels"]["alertname"],
        "Hot"
    );
    for query in [
        "ALERTS%7Balertstate%3D%22firing%22%7D",
        "lab%3Aheat%20%3E%2090",
        "ALERTS_FOR_STATE",
    ] {
        wait_for(query, SOON, || {
            let answer = lab.get(&format!("/api/v1/query?query={query}"));
            (answer["data"]["result"].as_array()?.len() == 1).then_some(())
        });
    }
    assert!(
        lab.takt(&["alerts", "list", "node=g01"])
            .ok()
            .contains("g01 is at 95")
    );
    assert!(
        !lab.takt(&["alerts", "list", "node=g02"])
            .ok()
            .contains("g01 is at 95")
    );
    let page = http_get(&format!("http://{}/alerts", lab.address))
        .unwrap()
        .body;
    let link = lab.get("/api/v2/alerts")[0]["generatorURL"]
        .as_str()
        .unwrap()
        .to_owned();
    let (to, anchor) = link.split_once('#').unwrap();
    assert_eq!(to, format!("http://{}/alerts", lab.address));
    assert!(
        page.contains("g01 is at 95") && page.contains(&format!("id=\"{anchor}\"")),
        "{page}"
    );
    let acknowledged = lab
        .takt(&["alerts", "ack", "node=g01", "--comment", "on it"])
        .ok();
    let id = acknowledged.split(' ').next().unwrap().to_owned();
    let alerts = lab.get("/api/v2/alerts");
    assert_eq!(
        alerts[0]["status"],
        json!({"state": "suppressed", "silencedBy": [id], "inhibitedBy": [], "mutedBy": []})
    );
    assert!(lab.takt(&["alerts", "silence"]).ok().contains("on it"));
    // An alert that ended under a silence is reported as resolved when the silence ends.
    lab.heat(Some(20.0));
    wait_for("the end", SOON, || {
        lab.get("/api/v2/alerts")
            .as_array()?
            .is_empty()
            .then_some(())
    });
    // The linked page now shows that the alert has ended.
    // A rendered page is kept for some seconds.
    let page = wait_for("the resolved alert on the page", SOON, || {
        let page = http_get(&format!("http://{}/alerts", lab.address)).ok()?;
        page.body.contains("Resolved within").then_some(page.body)
    });
    let (_, ended) = page.split_once("Resolved within").unwrap();
    assert!(
        page.contains("Nothing is wrong.") && ended.contains(&format!("id=\"{anchor}\"")),
        "{page}"
    );
    assert_eq!(lab.slack.on("/hook").len(), 1);
    lab.takt(&["alerts", "silence", "--expire", &id]).ok();
    let hook = lab.slack.wait("/hook", 2);
    assert_eq!(hook[1]["body"]["status"], "resolved");
    let unknown = "0b7a6a3e-8f0e-4b0e-9d57-5d1f8f6f1c11";
    assert!(
        lab.takt(&["alerts", "silence", "--expire", unknown])
            .fails(1)
            .contains("not found")
    );
    assert!(
        lab.takt(&["alerts", "silence", "--expire", "nonsense"])
            .fails(2)
            .contains("must be of type uuid")
    );
    assert!(
        lab.takt(&["alerts", "silence", "node=~\".*\""])
            .fails(2)
            .contains("empty")
    );
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let said = lab.takt(&[&["alerts"], arguments].concat()).fails(code);
        assert!(said.contains(words), "{arguments:?}: {said}");
    };
    refused(&["silence", "node~g01"], 2, "node~g01");
    refused(&["silence", "node=~'g(01'"], 2, "g(01");
    refused(
        &["silence", "node=g01", "--for", "soon"],
        2,
        "30m, 2h or 3d",
    );
    refused(&["silence", "node=g01", "--for", "0s"], 2, "30m, 2h or 3d");
    refused(
        &["silence", "node=g01", "--start", "tomorrow"],
        2,
        "2026-11-22T08:00",
    );
    refused(
        &["silence", "node=g01", "--start", "2020-01-01T00:00Z"],
        2,
        "would have ended",
    );
    refused(&["ack", "node=g07"], 1, "no firing alert matches");
    refused(&["list", "node~g01"], 2, "node~g01");
    // A silence for a future day.
    lab.takt(&[
        "alerts",
        "silence",
        "node=g01",
        "--start",
        "2099-01-01T08:00",
        "--comment",
        "firmware",
    ])
    .ok();
    let listed = lab.takt(&["alerts", "silence"]).ok();
    assert!(
        listed
            .lines()
            .any(|line| line.contains("pending") && line.contains("firmware")),
        "{listed}"
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
    let open = lab
        .takt(&[
            "sql",
            "--format",
            "csv",
            "SELECT count(*) AS n FROM notifications WHERE state = 'queued'",
        ])
        .ok();
    assert_eq!(open, "n\n0\n");
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
    let begun = "SELECT count(*) AS n FROM records.alert_state WHERE kind = 'read'";
    wait_for("where reading begins", SOON, || {
        (lab.takt(&["sql", "--format", "csv", begun]).ok() == "n\n1\n").then_some(())
    });
    lab.kill();
    lab.fault(79);
    lab.serve();
    let told = lab.slack.wait("/hook", 1);
    assert!(told[0]["body"].to_string().contains("XID 79"), "{told:?}");
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
        json!([{"status": 503}, {"status": 429, "retry_after": 1}, {"error": "fatal_error"}]),
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

#[test]
fn debians_prometheus_and_amtool_work_with_takt() {
    let tools = [
        Needed {
            program: "amtool",
            package: "prometheus-alertmanager",
        },
        Needed {
            program: "prometheus",
            package: "prometheus",
        },
    ];
    let Some(()) = or_skip(need(&tools)) else {
        return;
    };
    let Some(lab) = Lab::start("  webhook_configs: [{url: 'SLACK/hook'}]\n") else {
        return;
    };
    let dir = lab.takt.directory();
    lab.takt.file(
        "push.rules.yml",
        "groups: [{name: p, interval: 1s, rules: [{alert: FromPrometheus, expr: vector(1), labels: \
         {node: g07}}]}]",
    );
    let config = format!(
        "global: {{evaluation_interval: 1s}}\nrule_files: [push.rules.yml]\nalerting:\n  \
         alertmanagers:\n  - static_configs: \
         [{{targets: ['{}']}}]\n    authorization: {{credentials_file: token}}\n",
        lab.address
    );
    lab.takt.file("prometheus.yml", config);
    let mut command = Command::new("prometheus");
    let listen = format!("--web.listen-address=127.0.0.1:{}", free_port());
    command
        .args([
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=prometheus-data",
            "--rules.alert.resend-delay=1s",
            "--log.level=warn",
            &listen,
        ])
        .current_dir(dir);
    let mut prometheus = Daemon::start("prometheus", command, &dir.join("prometheus.log"));
    let hook = lab.slack.wait("/hook", 1);
    assert_eq!(
        hook[0]["body"]["alerts"][0]["labels"]["alertname"],
        "FromPrometheus"
    );

    lab.takt
        .file("http.yml", "authorization: {credentials_file: token}\n");
    let url = format!("--alertmanager.url=http://{}", lab.address);
    let amtool = |arguments: &[&str]| {
        let mut command = Command::new("amtool");
        command
            .args(arguments)
            .args([&url, "--http.config.file=http.yml"])
            .current_dir(dir);
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "amtool {arguments:?}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    };
    assert!(amtool(&["alert", "query"]).contains("FromPrometheus"));
    assert!(amtool(&["alert", "query", "node=g07", "-o", "json"]).contains("\"g07\""));
    assert!(!amtool(&["alert", "query", "node=g08"]).contains("FromPrometheus"));
    amtool(&[
        "alert",
        "add",
        "alertname=ByHand",
        "node=g09",
        "--annotation=summary=hello",
    ]);
    assert!(amtool(&["alert", "query", "-o", "extended"]).contains("hello"));
    let id = amtool(&[
        "silence",
        "add",
        "alertname=ByHand",
        "--comment=testing",
        "--duration=1h",
    ]);
    assert!(amtool(&["silence", "query"]).contains("testing"));
    assert!(!amtool(&["alert", "query"]).contains("ByHand"));
    assert!(amtool(&["alert", "query", "--silenced"]).contains("ByHand"));
    amtool(&["silence", "expire", id.trim()]);
    assert!(amtool(&["silence", "query", "--expired"]).contains("testing"));
    // A silence is changed, exported to a file, expired, and imported from the file.
    let id = amtool(&[
        "silence",
        "add",
        "alertname=ByHand",
        "node=~g.*",
        "--comment=first",
        "--duration=1h",
    ]);
    amtool(&[
        "silence",
        "update",
        id.trim(),
        "--comment=second",
        "--duration=3h",
    ]);
    let exported = amtool(&["silence", "query", "-o", "json"]);
    assert!(
        exported.contains("second") && !exported.contains("first"),
        "{exported}"
    );
    lab.takt.file("silences.json", &exported);
    let all = amtool(&["silence", "query", "-q"]);
    amtool(
        &[
            &["silence", "expire"],
            all.split_whitespace().collect::<Vec<_>>().as_slice(),
        ]
        .concat(),
    );
    assert!(!amtool(&["silence", "query"]).contains("second"));
    amtool(&["silence", "import", "silences.json"]);
    assert!(amtool(&["silence", "query"]).contains("second"));
    assert!(amtool(&["alert", "query", "--silenced"]).contains("ByHand"));
    assert!(amtool(&["cluster", "show"]).contains("disabled"));
    assert!(amtool(&["config", "routes", "show"]).contains("ops"));
    assert!(amtool(&["config", "show"]).contains("receiver: ops"));
    assert!(amtool(&["config", "routes", "test", "alertname=X"]).contains("ops"));

    // amtool renders templates over our webhook's body and accepts our routes.
    lab.takt.file("body.json", hook[0]["body"].to_string());
    lab.takt.file(
        "words.tmpl",
        "{{ define \"w\" }}{{ .Status }} {{ .CommonLabels.node }} {{ len .Alerts.Firing }}{{ end }}",
    );
    let words = [
        "template",
        "render",
        "--template.glob=words.tmpl",
        "--template.text={{ template \"w\" . }}",
    ];
    assert_eq!(
        amtool(&[&words[..], &["--template.data=body.json"]].concat()).trim(),
        "firing g07 1"
    );
    amtool(&["check-config", "alertmanager.yml"]);

    // An alert does not end at once when Prometheus stops pushing; it ends at its `endsAt`.
    prometheus.stop();
    assert!(amtool(&["alert", "query"]).contains("FromPrometheus"));
}

/// Each configuration has one oddity in which amtool and Takt once differed.
#[test]
fn takt_and_amtool_agree_on_configurations() {
    let Some(()) = or_skip(need(&[Needed {
        program: "amtool",
        package: "prometheus-alertmanager",
    }])) else {
        return;
    };
    let takt = Takt::fresh();
    let child = |child: &str| {
        (
            format!("{{receiver: a, routes: [{child}]}}"),
            "[{name: a}]".to_owned(),
            String::new(),
        )
    };
    let hook = |more: &str| {
        (
            "{receiver: a}".to_owned(),
            format!("[{{name: a, webhook_configs: [{{url: 'http://x', {more}}}]}}]"),
            String::new(),
        )
    };
    let beside = |more: &str| {
        (
            "{receiver: a}".to_owned(),
            "[{name: a}]".to_owned(),
            more.to_owned(),
        )
    };
    let interval = |range: &str| {
        beside(&format!(
            "time_intervals: [{{name: n, time_intervals: [{{{range}}}]}}]"
        ))
    };
    for (number, (is_good, (route, receivers, more))) in [
        (
            true,
            child("{matchers: ['{a=b', 'a=b\\\"', 'a=b=c', 'a=~\"[a-z{]\\Q.\\E\"']}"),
        ),
        (false, child("{matchers: ['a=\"b\\\"']}")),
        (false, child("{matchers: ['a=b\"c']}")),
        (false, child("{matchers: ['a=~x**']}")),
        (false, child("{matchers: ['a=~\"x{1001}\"']}")),
        (false, child("{match: {a-b: c}}")),
        (false, child("{match_re: {a: }}")),
        (
            true,
            child("{receiver: '', group_by: ['...', '...'], continue: yes}"),
        ),
        (false, child("{group_by: ['']}")),
        (false, child("{group_wait: 293y}")),
        (
            true,
            hook(
                "send_resolved: , max_alerts: 3, http_config: {basic_auth: {username: a}, \
             bearer_token: ''}",
            ),
        ),
        (false, hook("send_resolved: 'true'")),
        (
            false,
            hook("http_config: {authorization: {type: ' BASIC '}}"),
        ),
        (
            false,
            hook("http_config: {bearer_token: x, basic_auth: {username: a}}"),
        ),
        (
            true,
            beside("global: {resolve_timeout: , opsgenie_api_key: x}"),
        ),
        (false, beside("global: {smtp_smarthost: mail}")),
        (false, beside("global: {smtp_fro: x}")),
        (false, beside("global: {slack_api_url: x}")),
        (
            true,
            interval("days_of_month: ['1:-1'], location: Europe/Berlin"),
        ),
        (false, interval("days_of_month: ['28:-2']")),
        (
            false,
            interval("times: [{start_time: '9:00', end_time: '10:00'}]"),
        ),
        (false, interval("location: utc")),
    ]
    .into_iter()
    .enumerate()
    {
        let file = format!("{number}.yml");
        let text = format!("route: {route}\nreceivers: {receivers}\n{more}\n");
        takt.file(&file, &text);
        let amtool = Command::new("amtool")
            .args(["check-config", &file])
            .current_dir(takt.directory())
            .output()
            .unwrap();
        let ours = takt.run(["alerts", "check", &file]);
        assert_eq!(
            (amtool.status.success(), ours.code == Some(0)),
            (is_good, is_good),
            "{text}{ours:?}"
        );
    }
}

#[test]
fn takt_and_promtool_agree_on_files() {
    let Some(()) = or_skip(need(&[Needed {
        program: "promtool",
        package: "prometheus",
    }])) else {
        return;
    };
    let takt = Takt::fresh();
    takt.file("good.rules.yml", SAMPLE_RULES);
    takt.file(
        "bad.rules.yml",
        SAMPLE_RULES.replace("lab:heat > 90", "lab:heat >"),
    );
    takt.file(
        "typo.rules.yml",
        SAMPLE_RULES.replace("expr: sum", "exp: sum"),
    );
    let test = |name: &str, value: u32, alerts: &str| {
        let text = format!(
            "rule_files: [good.rules.yml]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  \
             input_series:\n  \
             - {{series: 'heat{{node=\"g01\"}}', values: '20 {value}x5'}}\n  alert_rule_test:\n  - \
             eval_time: 3m\n    alertname: Hot\n    \
             exp_alerts: {alerts}\n  promql_expr_test:\n  - expr: lab:heat\n    eval_time: 3m\n    \
             exp_samples: [{{labels: 'lab:heat{{node=\"g01\"}}', value: {value}}}]\n"
        );
        takt.file(name, text);
    };
    let fires =
        "[{exp_labels: {node: g01, severity: critical}, exp_annotations: {summary: g01 is at 95}}]";
    test("passes.yml", 95, fires);
    test("quiet.yml", 50, "[]");
    test("fails.yml", 50, fires);
    test(
        "words.yml",
        95,
        "[{exp_labels: {node: g02, severity: critical}, exp_annotations: {summary: g01 is at 95}}]",
    );
    let promtool = |arguments: [&str; 3]| {
        Command::new("promtool")
            .args(arguments)
            .current_dir(takt.directory())
            .output()
            .unwrap()
            .status
            .success()
    };
    for (file, expected) in [
        ("good.rules.yml", true),
        ("bad.rules.yml", false),
        ("typo.rules.yml", false),
    ] {
        let ours = takt.run(["alerts", "check", file]);
        assert_eq!(
            (ours.code == Some(0), promtool(["check", "rules", file])),
            (expected, expected),
            "{file}: {ours:?}"
        );
    }
    for (file, expected) in [
        ("passes.yml", true),
        ("quiet.yml", true),
        ("fails.yml", false),
        ("words.yml", false),
    ] {
        let ours = takt.run(["alerts", "test", file]);
        assert_eq!(
            (ours.code == Some(0), promtool(["test", "rules", file])),
            (expected, expected),
            "{file}: {ours:?}"
        );
    }
    // The shipped rules.
    let pack = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards/rules");
    for entry in fs::read_dir(&pack).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().ends_with(".rules.yml") {
            let file = path.to_string_lossy().into_owned();
            assert!(promtool(["check", "rules", &file]), "{file}");
            takt.run(["alerts", "check", &file]).ok();
        }
    }
}

#[test]
fn routes_and_channels_can_be_tested() {
    let Some(lab) =
        Lab::start("  slack_configs: [{BOT}]\n  email_configs: [{to: ann@lab.example}]\n")
    else {
        return;
    };
    let route = lab
        .takt(&["alerts", "route-test", "alertname=Hot", "severity=critical"])
        .ok();
    assert_eq!(route, "ops: ops/slack/0 ops/email/0  (route {})\n");
    assert!(
        lab.takt(&["alerts", "route-test", "Hot"])
            .fails(2)
            .contains("LABEL=VALUE")
    );
    assert_eq!(
        lab.takt(&["alerts", "test-send"]).ok(),
        "ops/email/0: sent\nops/slack/0: sent\n"
    );
    assert!(lab.smtp.mails("ann@lab.example", 1)[0].contains("This is a test"));
    lab.slack
        .script("/api", json!([{"error": "not_in_channel"}]));
    let failed = lab.takt(&["alerts", "test-send", "--channel", "ops/slack/0"]);
    assert_eq!(
        (failed.code, failed.stdout.as_str()),
        (Some(1), "ops/slack/0: refused: not_in_channel\n")
    );
    assert!(
        lab.takt(&["alerts", "test-send", "--channel", "x"])
            .fails(2)
            .contains("ops/slack/0")
    );
}

#[test]
fn reload_applies_changes_and_keeps_the_old_state_on_a_mistake() {
    let Some(lab) = Lab::start("  webhook_configs: [{url: 'SLACK/hook'}]\n") else {
        return;
    };
    lab.heat(Some(95.0));
    lab.slack.wait("/hook", 1);
    let shown = || {
        lab.get("/api/v2/status")["config"]["original"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(
        shown().contains("receiver: ops") && !shown().contains("/hook"),
        "an address may be a secret: {}",
        shown()
    );

    let rule = || {
        lab.get("/api/v1/rules?type=alert&rule_name[]=Hot")["data"]["groups"][0]["rules"][0].clone()
    };
    lab.takt.file(
        "rules/test.rules.yml",
        SAMPLE_RULES.replace("> 90", "> 9 9"),
    );
    let (status, said) = lab.reload();
    assert!(
        status >= 400 && said.contains("test.rules.yml, line") && said.contains("rule `Hot`"),
        "{status} {said}"
    );
    assert_eq!(rule()["query"], "lab:heat > 90");
    assert_eq!(
        (&rule()["health"], &rule()["state"]),
        (&json!("ok"), &json!("firing"))
    );

    // With a higher limit the alert ends, and its channel gets "resolved".
    lab.takt
        .file("rules/test.rules.yml", SAMPLE_RULES.replace("> 90", "> 99"));
    assert_eq!(lab.reload(), (200, "reloaded\n".to_owned()));
    assert_eq!(rule()["query"], "lab:heat > 99");
    assert_eq!(lab.slack.wait("/hook", 2)[1]["body"]["status"], "resolved");

    // SIGHUP reloads too. The channel is another one now.
    let routes = fs::read_to_string(lab.takt.directory().join("alertmanager.yml")).unwrap();
    lab.takt.file(
        "alertmanager.yml",
        routes
            .replace("/hook", "/elsewhere")
            .replace("receiver: ops", "receiver: ops # new"),
    );
    let pid = lab.server.as_ref().unwrap().pid().to_string();
    assert!(
        Command::new("kill")
            .args(["-HUP", &pid])
            .status()
            .unwrap()
            .success()
    );
    wait_for("the other routes", SOON, || {
        shown().contains("receiver: ops # new").then_some(())
    });
    lab.heat(Some(120.0));
    assert_eq!(
        lab.slack.wait("/elsewhere", 1)[0]["body"]["status"],
        "firing"
    );
    assert_eq!(lab.slack.on("/hook").len(), 2);

    // A rule whose query fails reports its error.
    let failing = SAMPLE_RULES.replace(
        "lab:heat > 90",
        "lab:heat * on (node) {__name__=~\"heat|up\"}",
    );
    lab.takt.file("rules/test.rules.yml", failing);
    assert_eq!(lab.reload().0, 200);
    let failed = wait_for("a failing rule", SOON, || {
        Some(rule()).filter(|rule| rule["health"] == "err")
    });
    assert!(
        !failed["lastError"].as_str().unwrap().is_empty(),
        "{failed}"
    );
    assert!(
        failed["evaluationTime"].as_f64().unwrap() > 0.0
            && failed["lastEvaluation"] != "0001-01-01T00:00:00Z"
    );
}

#[test]
fn alerts_of_a_down_exporter_are_unknown() {
    let Some(mut lab) = Lab::start("  webhook_configs: [{url: 'SLACK/hook'}]\n") else {
        return;
    };
    lab.heat(Some(95.0));
    lab.slack.wait("/hook", 1);
    lab.exporter.take().unwrap().kill();
    let history = |lab: &Lab| {
        lab.takt(&["alerts", "history", "--alert", "Hot", "--format", "csv"])
            .ok()
    };
    wait_for("nobody to know", SOON, || {
        history(&lab)
            .contains("firing,unknown,exporter_down")
            .then_some(())
    });
    assert_eq!(lab.get("/api/v2/alerts").as_array().unwrap().len(), 1);
    lab.export();
    wait_for("the exporter", SOON, || {
        history(&lab)
            .contains("unknown,firing,exporter_back")
            .then_some(())
    });
    lab.heat(Some(20.0));
    let hook = lab.slack.wait("/hook", 2);
    assert_eq!(
        (hook.len(), &hook[1]["body"]["status"]),
        (2, &json!("resolved")),
        "one end, and no second beginning"
    );
}

/// 13.1: an alert that does not end by itself can be closed. Its history keeps the person and the
/// comment.
#[test]
fn an_alert_is_closed_by_hand_with_person_and_comment() {
    let Some(lab) = Lab::start("  webhook_configs: [{url: 'SLACK/hook'}]\n") else {
        return;
    };
    lab.heat(Some(95.0));
    lab.slack.wait("/hook", 1);
    let close = |matcher: &str| {
        let comment = ["--comment", "fan replaced", "--by", "ada"];
        lab.takt(&[&["alerts", "close", matcher][..], &comment].concat())
    };
    assert_eq!(close("alertname=Hot").ok(), "Hot g01\n");
    let hook = lab.slack.wait("/hook", 2);
    let end = &hook[1]["body"];
    assert_eq!(end["status"], "resolved", "{end}");
    assert_eq!(
        end["alerts"][0]["annotations"]["closed"],
        "by ada: fan replaced"
    );
    let history = lab
        .takt(&["alerts", "history", "--alert", "Hot", "--format", "csv"])
        .ok();
    assert!(
        history.contains("firing,inactive,closed by ada: fan replaced"),
        "{history}"
    );
    assert!(!lab.takt(&["alerts", "list"]).ok().contains("Hot"));
    let refused = close("alertname=Hot").fails(1);
    assert!(refused.contains("no active alert matches"), "{refused}");
}

/// With the shipped rules and routes, a fault of a job is mailed to its owner and pages no
/// operator.
#[test]
fn faults_of_a_job_go_to_its_owner() {
    let takt = Takt::fresh();
    let gpus = takt.file("gpus", "profile rtx5090\ngpu 0 serial 1654620000042\n");
    let script = (
        "NVML_STAND_IN_SCRIPT".to_owned(),
        gpus.display().to_string(),
    );
    let takt = takt.with_environment([script]);
    let unused = "  webhook_configs: [{url: 'SLACK/unused'}]\n";
    let Some(mut lab) = Lab::start_with(takt, unused, |config| config) else {
        return;
    };
    let config = fs::read_to_string(lab.takt.directory().join("takt.toml")).unwrap();
    let hook = format!("webhook_url = '{}/pager'", lab.slack.url());
    let config = config.replace(
        "alertmanager_file = 'alertmanager.yml'\nshipped_rules = false",
        &hook,
    );
    lab.stop();
    lab.takt.file(
        "takt.toml",
        config
            + "[reports]\ndomain = 'lab.example'\naddresses = { ada = 'a.lovelace@uni.example' }\n",
    );
    let gpu = http_get(&format!("http://{}/metrics", lab.node))
        .unwrap()
        .body;
    let gpu = gpu
        .lines()
        .find(|line| line.starts_with("takt_gpu_info{"))
        .unwrap()
        .to_owned();
    let label = |name: &str| {
        gpu.split(&format!("{name}=\""))
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .to_owned()
    };
    let uuid = label("uuid");
    let bus = label("pci_bus_id");
    // The series of the exporter that map the GPU to its job and the job to its user.
    let held = |metric: &str, labels: &str| {
        format!(
            "  - {{record: {metric}, expr: 'group by (node) (up{{node=\"g01\"}})', labels: \
             {{{labels}}}}}\n"
        )
    };
    let rules = held(
        "takt_gpu_job_info",
        &format!("uuid: {uuid}, jobid: '42', user: ada"),
    ) + &held("takt_job_info", "jobid: '7', user: bob");
    fs::remove_file(lab.takt.directory().join("rules/test.events.yml")).unwrap();
    lab.takt.file(
        "rules/test.rules.yml",
        format!("groups:\n- name: jobs\n  interval: 1s\n  rules:\n{rules}"),
    );
    lab.serve();
    lab.wait_for_listener();
    lab.wait_for_series("takt_gpu_job_info{user=\"ada\"}", "\"42\"");
    lab.wait_for_series("takt_job_info{jobid=\"7\"}", "\"bob\"");

    let kernel = |line: &str| {
        let mut file = fs::OpenOptions::new().append(true).open(&lab.kmsg).unwrap();
        writeln!(file, "{line}").unwrap();
    };
    let bus = bus.trim_end_matches(".0");
    for xid in [13, 31, 43] {
        kernel(&format!(
            "NVRM: Xid (PCI:{bus}): {xid}, pid=1, name=python, its own fault"
        ));
    }
    kernel(
        "oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/system.slice/slurmstepd.scope/job_7/step_0/user/task_0,task=python,pid=1234,uid=1000",
    );
    kernel("Memory cgroup out of memory: Killed process 1234 (python) total-vm:100kB");
    let mail = lab.smtp.mails("a.lovelace@uni.example", 1).remove(0);
    assert!(
        mail.contains("job 42") && mail.contains("GpuXidUserApp"),
        "{mail}"
    );
    let mail = lab.smtp.mails("bob@lab.example", 1).remove(0);
    assert!(mail.contains("Job 7 of bob used more memory"), "{mail}");
    // A fault of the machine pages the operators and is not mailed to the owner.
    kernel(&format!(
        "NVRM: Xid (PCI:{bus}): 79, pid=1, GPU has fallen off the bus"
    ));
    let paged = lab.slack.wait("/pager", 1);
    let names = |one: &Value| one["body"]["alerts"].to_string();
    assert!(
        paged
            .iter()
            .all(|one| !names(one).contains("UserApp") && !names(one).contains("JobOomKill")),
        "{paged:?}"
    );
    assert!(
        paged.iter().any(|one| names(one).contains("GpuFellOffBus")),
        "{paged:?}"
    );
    assert!(
        paged
            .iter()
            .any(|one| names(one).contains("serial number 1654620000042")),
        "{paged:?}"
    );
    let told = lab
        .takt(&["alerts", "history", "--messages", "--format", "csv"])
        .ok();
    assert!(told.contains("owners/owner/0,first_firing"), "{told}");
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

/// No message is sent about a node in a maintenance reservation of Slurm.
#[test]
fn nodes_in_a_maintenance_reservation_send_no_messages() {
    for mode in [Mode::WithDbd, Mode::WithoutDbd] {
        let Some(slurm) = or_skip(SlurmLab::start(mode)) else {
            return;
        };
        let takt = Takt::fresh().with_environment(slurm.environment());
        let polls = |config: String| {
            let config = config
                .replace("cluster = 'lab'\n", "")
                .replace("node = 'g01'", "node = 'node0'");
            config.replace(
                "jobs.poll = false",
                "jobs = {interval_seconds = 1, history_days = 1}",
            )
        };
        let Some(lab) = Lab::start_with(takt, "  webhook_configs: [{url: 'SLACK/hook'}]\n", polls)
        else {
            return;
        };
        lab.wait_for_listener();
        lab.heat(Some(95.0));
        assert_eq!(lab.slack.wait("/hook", 1)[0]["body"]["status"], "firing");
        let kept = [
            "reservationname=firmware",
            "flags=maint,ignore_jobs",
            "nodes=node0",
            "users=root",
        ];
        slurm.run(
            &[
                &[
                    "scontrol",
                    "create",
                    "reservation",
                    "starttime=now",
                    "duration=60",
                ][..],
                &kept,
            ]
            .concat(),
        );
        let why = || lab.get("/api/v2/alerts")[0]["status"]["mutedBy"].clone();
        wait_for("the reservation", SOON, || {
            (why() == json!(["reservation firmware"])).then_some(())
        });
        assert!(
            lab.takt(&["alerts", "list"])
                .ok()
                .contains("reservation firmware")
        );
        lab.wait_for_series(
            "takt_slurm_node_maintenance{reservation=\"firmware\"}",
            "\"node0\"",
        );
        // A new fault during maintenance, and the end of an alert that was sent before.
        lab.fault(79);
        wait_for("the fault", SOON, || {
            lab.get("/api/v2/alerts")
                .to_string()
                .contains("XID 79 on node0")
                .then_some(())
        });
        lab.heat(Some(20.0));
        wait_for("both ends", SOON, || {
            lab.get("/api/v2/alerts")
                .as_array()?
                .is_empty()
                .then_some(())
        });
        assert_eq!(
            lab.slack.on("/hook").len(),
            1,
            "{:?}",
            lab.slack.on("/hook")
        );
        slurm.run(&["scontrol", "delete", "reservation=firmware"]);
        let hook = lab.slack.wait("/hook", 2);
        assert_eq!(
            (&hook[1]["body"]["status"], hook.len()),
            (&json!("resolved"), 2)
        );
        assert!(!hook[1]["body"].to_string().contains("XID 79"), "{hook:?}");
        // After the reservation alerts are sent again.
        lab.fault(48);
        assert!(
            lab.slack.wait("/hook", 3)[2]["body"]
                .to_string()
                .contains("XID 48 on node0")
        );
    }
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
        let mails = lab
            .smtp
            .taken()
            .into_iter()
            .map(|mail| mail["content"].as_str().unwrap().to_owned());
        mails
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
    let heat: String = (0..12)
        .map(|n| format!("heat{{rack=\"{n}\"}} 95\n"))
        .collect();
    fs::write(lab.textfiles.join("heat.prom"), heat).unwrap();
    lab.takt.file(
        "rules/test.rules.yml",
        SAMPLE_RULES.replace("sum by (node)", "sum by (node, rack)"),
    );
    assert_eq!(lab.reload().0, 200);
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
        let page = http_get(&format!("http://{}/metrics", lab.address))
            .unwrap()
            .body;
        page.lines()
            .any(|line| line.starts_with("takt_alerts_heartbeat_failures") && line.ends_with(" 1"))
    };
    wait_for("a heartbeat that failed", SOON, || {
        failed(&lab).then_some(())
    });
    let heard = lab.slack.on("/heartbeat").len();
    lab.slack.wait("/heartbeat", heard + 1);
    lab.kill();
    let heard = lab.slack.on("/heartbeat").len();
    std::thread::sleep(Duration::from_secs(11));
    assert_eq!(lab.slack.on("/heartbeat").len(), heard);
    lab.serve();
    lab.slack.wait("/heartbeat", heard + 1);
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
        let messages = lab.slack.on("/hook");
        let named = messages
            .iter()
            .filter(|one| one["body"].to_string().contains(name));
        named.count()
    };
    lab.fault(79);
    wait_for("the fault's message", SOON, || {
        (sent(&lab, "GpuXid") > 0).then_some(())
    });
    let full = wait_for("word of the full disk", SOON, || {
        let messages = lab.slack.on("/hook");
        let texts = messages.iter().map(|one| one["body"].to_string());
        texts
            .into_iter()
            .find(|text| text.contains("TaktCannotStoreSamples"))
    });
    assert!(
        full.contains("bytes free") || full.contains("No space left"),
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
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(firing(&lab, "GpuXid"), before, "a message was sent twice");
    mount.free();
    wait_for("reserved space", SOON, || {
        lab.fault(13);
        std::thread::sleep(Duration::from_secs(1));
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
    let messages = lab.slack.on("/hook");
    let texts = messages.iter().map(|one| one["body"].to_string());
    texts
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
    let rules = include_str!("../../dashboards/rules/takt.rules.yml");
    lab.takt.file(
        "rules/takt.rules.yml",
        rules
            .replace("for: 1m", "for: 2s")
            .replace("interval: 15s", "interval: 1s"),
    );
    lab.takt.file(
        "rules/thresholds.rules.yml",
        include_str!("../../dashboards/rules/thresholds.rules.yml"),
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
