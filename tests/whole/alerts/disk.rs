//! A disk that fails or is full, and kills, while alerts begin and end in the real server.
//!
//! The law: each alert that fires gets its messages, and each alert that ends, too; a message may
//! come twice. The server reports a fault that lasts, and recovers when it ends.
//!
//! Usually a few places of a fault are tried. `TAKT_TEST_SEEDS` asks for [`PLACES`] of them.

use super::lab::{EVENT_RULES, Lab, SOON};
use crate::disk_faults::layer;
use crate::support::or_skip;
use crate::support::process::{http_get, wait_for};
use crate::support::takt::Takt;
use serde_json::Value;
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

const CHANNELS: &str = "  webhook_configs: [{url: 'SLACK/hook'}]\n  \
                        email_configs: [{to: ann@lab.example, send_resolved: true}]\n";

/// Each rack is an alert of its own.
const RULES: &str = "
groups:
- name: test
  interval: 1s
  rules:
  - alert: Hot
    expr: heat > 90
    labels: {severity: critical}
    annotations: {summary: 'rack {{ $labels.rack }} is hot'}
";

/// Number of the call that fails, counted from the moment in which an alert begins. A turn of the
/// engine makes about this many.
const PLACES: usize = 24;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// A server over the fault layer.
struct FaultLab {
    lab: Lab,
    fault: PathBuf,
    /// Alerts that have begun: the rack of each `Hot`, and the XID of each `GpuXid`.
    begun: Vec<u32>,
}

impl FaultLab {
    fn start() -> Option<Self> {
        let takt = Takt::fresh();
        let layer = or_skip(layer(takt.directory()))?;
        let fault = takt.directory().join("fault");
        let data = takt.data_directory();
        let set = |name: &str, value: &PathBuf| (name.to_owned(), value.display().to_string());
        let takt = takt.with_environment([
            set("LD_PRELOAD", &layer),
            set("FAULT_DIR", &data),
            set("FAULT_WHILE", &fault),
        ]);
        let lab = Lab::start_with(takt, CHANNELS, |config| {
            config + "[store]\nmin_free_bytes = 0\n"
        })?;
        lab.takt.file("rules/test.rules.yml", RULES);
        lab.takt.file(
            "rules/test.events.yml",
            EVENT_RULES.replace("hold: 3s", "hold: 10m"),
        );
        assert_eq!(lab.reload().0, 200);
        lab.wait_for_listener();
        Some(Self {
            lab,
            fault,
            begun: Vec::new(),
        })
    }

    /// Lets calls fail from now on.
    fn begin_fault(&self, at: usize, errno: i32, mode: &str) {
        let new = self
            .lab
            .takt
            .file("fault.new", format!("{at} {errno} {mode}\n"));
        fs::rename(new, &self.fault).unwrap();
    }

    fn end_fault(&self) {
        fs::remove_file(&self.fault).unwrap();
    }

    /// Two new alerts: one from an event, and one from samples.
    fn begin_alerts(&mut self) -> u32 {
        let number = 200 + self.begun.len() as u32;
        self.begun.push(number);
        self.lab.fault(number);
        self.write_heat(number, 95);
        number
    }

    /// Sets the temperature of a rack; earlier ones are cold. A series that ends while the server is
    /// away would be valid for the look-back of five minutes.
    fn write_heat(&self, rack: u32, value: u32) {
        let of = |rack: u32, value: u32| format!("heat{{rack=\"{rack}\"}} {value}\n");
        let text: String = self
            .begun
            .iter()
            .filter(|one| **one != rack)
            .map(|one| of(*one, 20))
            .collect();
        let new = self.lab.textfiles.join("heat.new");
        fs::write(&new, text + &of(rack, value)).unwrap();
        fs::rename(new, self.lab.textfiles.join("heat.prom")).unwrap();
    }

    /// Racks and XIDs in the webhook's messages with this status.
    fn sent(&self, status: &str) -> BTreeSet<(String, u32)> {
        self.lab
            .slack
            .on("/hook")
            .iter()
            .flat_map(|one| one["body"]["alerts"].as_array().unwrap().clone())
            .filter(|alert| alert["status"] == status)
            .filter_map(|alert| {
                let label = |name: &str| alert["labels"][name].as_str().map(str::to_owned);
                let number = label("rack").or_else(|| label("xid"))?;
                Some((label("alertname")?, number.parse().ok()?))
            })
            .collect()
    }

    fn wait_for_messages(&self, number: u32) {
        let expected = [("GpuXid", number), ("Hot", number)];
        let expected = expected.map(|(name, number)| (name.to_owned(), number));
        wait_for(&format!("messages about {number}"), SOON, || {
            let sent = self.sent("firing");
            expected.iter().all(|one| sent.contains(one)).then_some(())
        });
        let words = [
            format!("XID {number} on g01"),
            format!("rack {number} is hot"),
        ];
        wait_for(&format!("mails about {number}"), SOON, || {
            let mails = self.lab.smtp.taken();
            words
                .iter()
                .all(|words| {
                    mails
                        .iter()
                        .filter_map(|mail| mail["content"].as_str())
                        .any(|text| text.replace("=\r\n", "").contains(words))
                })
                .then_some(())
        });
    }

    /// Waits until a message says that the store fails.
    fn wait_for_report(&mut self) {
        let is_report = |one: &Value| one["body"].to_string().contains("TaktCannotStore");
        wait_for("a report of the fault", SOON, || {
            self.restart();
            self.lab
                .slack
                .on("/hook")
                .iter()
                .any(is_report)
                .then_some(())
        });
    }

    fn is_running(&mut self) -> bool {
        self.lab.server.as_mut().unwrap().is_running()
    }

    /// Starts the server again if it has ended, as systemd does.
    fn restart(&mut self) {
        if !self.is_running() {
            let server = self.lab.takt.start(["serve", "--config", "takt.toml"]);
            self.lab.server = Some(server);
        }
    }

    /// Waits until the server knows this alert and stores state again. Until then the next fault
    /// would be a second one: an alert that ends before its state is stored has no end to report.
    fn wait_for_recovery(&mut self, number: u32) {
        let silence = ["alerts", "silence", "node=nobody", "--for", "1s"];
        let known = format!("\"rack\":\"{number}\"");
        wait_for("a stored silence", SOON, || {
            self.restart();
            let alerts = http_get(&format!("http://{}/api/v2/alerts", self.lab.address)).ok()?;
            alerts.body.contains(&known).then_some(())?;
            (self.lab.takt(&silence).code == Some(0)).then_some(())
        });
    }

    /// Ends all alerts, and checks that every one of them was reported, and its end, too.
    fn finish(mut self) {
        self.write_heat(0, 20);
        let closed = [
            "alerts",
            "close",
            "alertname=GpuXid",
            "--comment",
            "seen",
            "--by",
            "ada",
        ];
        self.lab.takt(&closed).ok();
        let all = |name: &str| {
            self.begun
                .iter()
                .map(|number| (name.to_owned(), *number))
                .collect::<Vec<_>>()
        };
        let expected: BTreeSet<_> = [all("GpuXid"), all("Hot")].concat().into_iter().collect();
        let until = Instant::now() + SOON;
        while self.sent("resolved") != expected && Instant::now() < until {
            thread::sleep(Duration::from_millis(200));
        }
        assert_eq!(self.sent("resolved"), expected);
        assert_eq!(self.sent("firing"), expected);
        let open = "SELECT count(*) AS n FROM notifications WHERE state IN ('queued', 'sending')";
        wait_for("an empty outbox", SOON, || {
            let run = self.lab.takt(&["sql", "--format", "csv", open]);
            (run.stdout == "n\n0\n").then_some(())
        });

        // The next start finds everything in order.
        self.lab.stop();
        fs::remove_file(self.lab.takt.directory().join("takt.log")).unwrap();
        self.lab.serve();
        let log = self.lab.server.as_ref().unwrap().log();
        assert!(!log.contains("damaged"), "{log}");
        self.lab.stop();
    }
}

/// Places of a fault: a few, or all of them.
fn places(usual: &[usize]) -> Vec<usize> {
    if env::var_os("TAKT_TEST_SEEDS").is_some() {
        (1..=PLACES).collect()
    } else {
        usual.to_vec()
    }
}

/// One write fails or is torn, or the server is killed at it.
fn fail_once(mode: &str, usual: &[usize]) {
    let Some(mut lab) = FaultLab::start() else {
        return;
    };
    for at in places(usual) {
        lab.begin_fault(at, EIO, mode);
        let number = lab.begin_alerts();
        if mode == "kill" {
            wait_for("the kill", SOON, || (!lab.is_running()).then_some(()));
        } else {
            wait_for("the fault", SOON, || {
                lab.restart();
                lab.sent("firing")
                    .contains(&("Hot".to_owned(), number))
                    .then_some(())
            });
        }
        lab.end_fault();
        lab.restart();
        lab.wait_for_messages(number);
        lab.wait_for_recovery(number);
    }
    lab.finish();
}

#[test]
fn a_failed_write_while_alerts_begin_loses_no_message() {
    fail_once("once", &[1, 4, 9]);
}

#[test]
fn a_torn_write_while_alerts_begin_loses_no_message() {
    fail_once("torn", &[2, 5, 7]);
}

#[test]
fn a_kill_at_a_write_while_alerts_begin_loses_no_message() {
    fail_once("kill", &[1, 3, 6]);
}

#[test]
fn a_full_disk_while_alerts_begin_and_end_stops_no_message() {
    let Some(mut lab) = FaultLab::start() else {
        return;
    };
    for at in places(&[1, 5]) {
        lab.begin_fault(at, ENOSPC, "full");
        let number = lab.begin_alerts();
        lab.wait_for_messages(number);
        lab.wait_for_report();

        // The end of an alert, too, is reported while the disk is full.
        lab.write_heat(number, 20);
        wait_for("the end", SOON, || {
            lab.sent("resolved")
                .contains(&("Hot".to_owned(), number))
                .then_some(())
        });
        lab.end_fault();
        lab.write_heat(number, 95);
        lab.wait_for_recovery(number);
    }
    lab.finish();
}

/// Every call fails, also those of a server that starts again: it says so, and continues when the
/// disk works again.
#[test]
fn a_dead_disk_is_reported_and_alerts_continue_after_it() {
    let Some(mut lab) = FaultLab::start() else {
        return;
    };
    lab.begin_fault(1, EIO, "on");
    let number = lab.begin_alerts();
    lab.wait_for_report();
    lab.end_fault();
    lab.wait_for_messages(number);
    lab.wait_for_recovery(number);
    lab.finish();
}
