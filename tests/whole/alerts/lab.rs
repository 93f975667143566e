//! A node and a server whose alerts go to stand-ins for Slack and mail.

use crate::support::channels::Channel;
use crate::support::or_skip;
use crate::support::process::{Daemon, free_port, http_get, http_get_with, wait_for};
use crate::support::takt::Takt;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(super) const SOON: Duration = Duration::from_secs(120);

/// Rules that a test makes true or false through a kernel log and a textfile.
pub(super) const EVENT_RULES: &str = "
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

pub(super) const SAMPLE_RULES: &str = "
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

pub(super) const ROUTES: &str = "
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
pub(super) const BOT: &str = "channel: '#gpu', app_url: 'SLACK/api', app_token: xoxb-test";

/// A node and a server, with channels.
pub(super) struct Lab {
    pub(super) takt: Takt,
    pub(super) slack: Channel,
    pub(super) smtp: Channel,
    pub(super) address: String,
    pub(super) server: Option<Daemon>,
    pub(super) exporter: Option<Daemon>,
    pub(super) node: String,
    pub(super) kmsg: PathBuf,
    pub(super) textfiles: PathBuf,
}

impl Lab {
    /// Starts a server whose receiver `ops` has `channels`. In them `SLACK` is replaced by the
    /// stand-in's address and `BOT` by the settings of a bot.
    pub(super) fn start(channels: &str) -> Option<Self> {
        Self::start_with(Takt::fresh(), channels, |config| config)
    }

    /// As [`start`](Self::start), with a change to `takt.toml`.
    pub(super) fn start_with(
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
    pub(super) fn export(&mut self) {
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
    pub(super) fn reload(&self) -> (u16, String) {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build()
            .into();
        let mut answer = agent
            .post(format!("http://{}/-/reload", self.address))
            .header("Authorization", "Bearer 0123456789abcdef-test")
            .send_empty()
            .unwrap();
        (
            answer.status().as_u16(),
            answer.body_mut().read_to_string().unwrap(),
        )
    }

    /// Waits until the result of a query contains `part`.
    pub(super) fn wait_for_series(&self, query: &str, part: &str) {
        wait_for(query, SOON, || {
            http_get_with(
                &format!("http://{}/api/v1/query", self.address),
                &[("query", query)],
                &[],
            )
            .ok()?
            .body
            .contains(part)
            .then_some(())
        });
    }

    pub(super) fn serve(&mut self) {
        let mut server = self.takt.start(["serve", "--config", "takt.toml"]);
        let page = format!("http://{}/-/healthy", self.address);
        server.wait_until("serving", SOON, || {
            http_get(&page).ok().filter(|page| page.status == 200)
        });

        // The exporter's greeting means that the server listens to events.
        server.wait_until("seeing the exporter", SOON, || {
            http_get(&format!(
                "http://{}/api/v1/query?query=up%7Bnode%21%3D%22%22%7D",
                self.address
            ))
            .ok()?
            .body
            .contains(",\"1\"]")
            .then_some(())
        });
        self.server = Some(server);
    }

    pub(super) fn kill(&mut self) {
        self.server.take().unwrap().kill();
    }

    pub(super) fn fault(&self, xid: u32) {
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
    pub(super) fn wait_for_listener(&self) {
        wait_for("a listener", SOON, || {
            http_get(&format!(
                "http://{}/api/v1/query?query=takt_events_listeners",
                self.address
            ))
            .ok()?
            .body
            .contains(",\"1\"]")
            .then_some(())
        });
    }

    pub(super) fn heat(&self, value: Option<f64>) {
        let file = self.textfiles.join("heat.prom");
        match value {
            // Renamed into place: the exporter must not read an empty file.
            Some(value) => {
                let new = self.textfiles.join("heat.new");
                fs::write(&new, format!("heat {value}\n")).unwrap();
                fs::rename(new, file).unwrap();
            }
            None => drop(fs::remove_file(file)),
        }
    }

    pub(super) fn get(&self, path: &str) -> Value {
        let page = http_get(&format!("http://{}{path}", self.address)).unwrap();
        serde_json::from_str(&page.body).unwrap_or_else(|_| panic!("{path}: {}", page.body))
    }

    pub(super) fn takt(&self, arguments: &[&str]) -> crate::support::takt::Run {
        self.takt
            .run([&["--config", "takt.toml"], arguments].concat())
    }

    pub(super) fn stop(&mut self) {
        let status = self.server.take().unwrap().stop();
        assert!(status.success(), "{status}");
    }
}

pub(super) const ALL_FOUR: &str =
    "  slack_configs: [{BOT, send_resolved: true}, {api_url: 'SLACK/services/T/B/s', send_resolved: true}]
  email_configs: [{to: 'ann@lab.example, bob@lab.example', send_resolved: true}]
  webhook_configs: [{url: 'SLACK/hook'}]
  ntfy_configs: [{url: 'SLACK/ntfy', topic: lab}]
";
