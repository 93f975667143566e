//! A clock that is set while the server runs, or before it starts: nothing that cannot be undone
//! happens by its time.

use crate::support::channels::Channel;
use crate::support::process::{Daemon, Page, free_port, http_get, http_get_with, tail, wait_for};
use crate::support::takt::Takt;
use crate::support::target::{self, scrape_target};
use crate::support::{need_file, or_skip};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

const SOON: Duration = Duration::from_secs(120);

const DAY: i64 = 86_400;

/// `Hot` fires at once, `Warm` would after an hour, and `Quiet` is silenced.
const RULES: &str = "
groups:
- name: test
  interval: 1s
  rules:
  - {alert: Hot, expr: heat > 90, labels: {severity: critical}}
  - {alert: Warm, expr: heat > 50, for: 1h, labels: {severity: critical}}
  - {alert: Quiet, expr: heat > 70, labels: {severity: critical}}
";

const ROUTES: &str = "
route: {receiver: ops, group_by: [alertname], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}
receivers:
- {name: ops, webhook_configs: [{url: 'SLACK/hook'}]}
";

/// A server whose clock the test sets, and an exporter with the machine's.
struct Machine {
    takt: Takt,
    address: String,
    hook: Channel,
    /// The variable TZ of the server.
    zone: Option<String>,
    _exporter: Daemon,
}

impl Machine {
    /// `more` is added to `takt.toml`. `None` without libfaketime.
    fn new(more: &str) -> Option<Self> {
        Self::with_exporter(more, false)
    }

    /// `has_clock`: the exporter has the server's clock, so time really passes.
    fn with_exporter(more: &str, has_clock: bool) -> Option<Self> {
        or_skip(need_file(FAKETIME, "libfaketime"))?;
        let hook = or_skip(Channel::slack())?;
        let takt = Takt::fresh();
        let textfiles = takt.directory().join("textfiles");
        fs::create_dir(&textfiles).unwrap();
        fs::write(textfiles.join("heat.prom"), "heat 95\n").unwrap();
        let node = format!("127.0.0.1:{}", free_port());
        let mut command = takt.command(["exporter", "--web.listen-address", &node]);
        command
            .arg("--collector.textfile.directory")
            .arg(&textfiles);
        if has_clock {
            takt.file("clock", "+0");
            command.envs(false_clock(&takt));
        }
        let exporter = Daemon::start("exporter", command, &takt.directory().join("exporter.log"));
        let address = format!("127.0.0.1:{}", free_port());
        fs::create_dir(takt.directory().join("rules")).unwrap();
        takt.file("rules/test.rules.yml", RULES);
        takt.file("alertmanager.yml", ROUTES.replace("SLACK", &hook.url()));
        takt.file(
            "takt.toml",
            format!(
                "cluster = 'lab'\nserver.listen_address = '{address}'\njobs.poll = false\n\
                 sql.listen_address = ''\nstore.min_free_bytes = 0\n{more}\n\
                 [alerts]\nalertmanager_file = 'alertmanager.yml'\nshipped_rules = false\n\
                 rule_dirs = ['rules']\n\
                 [scrape]\ninterval_seconds = 0.5\ntimeout_seconds = 0.5\n\
                 [[scrape.targets]]\naddress = '{node}'\nnode = 'g01'\n"
            ),
        );
        let machine = Self {
            takt,
            address,
            hook,
            zone: None,
            _exporter: exporter,
        };
        machine.set_clock("+0");
        Some(machine)
    }

    /// Sets the server's clock, in libfaketime's words.
    fn set_clock(&self, clock: &str) {
        // Renamed into place, since the server reads the file at each look at the clock.
        let new = self.takt.file("clock.new", clock);
        fs::rename(new, self.takt.directory().join("clock")).unwrap();
    }

    /// Starts the server and waits until samples are stored.
    fn serve(&self) -> Daemon {
        let mut command = self.takt.command(["serve", "--config", "takt.toml"]);
        command.envs(false_clock(&self.takt));
        command.envs(self.zone.iter().map(|zone| ("TZ", zone)));
        let log = self.takt.directory().join("takt.log");
        let mut server = Daemon::start("takt", command, &log);
        server.wait_until("storing samples", SOON, || {
            (self.metric("takt_store_samples_total")? > 1000.0).then_some(())
        });
        server
    }

    fn get(&self, path: &str) -> Option<Page> {
        http_get(&format!("http://{}{path}", self.address)).ok()
    }

    fn metric(&self, name: &str) -> Option<f64> {
        self.get("/metrics")?
            .body
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?
            .parse()
            .ok()
    }

    fn seal(&self) {
        self.takt.run(["store", "seal"]).ok();
    }

    /// Number of stored samples from `from` to `to`, seconds since 1970.
    fn samples(&self, from: i64, to: i64) -> i64 {
        let sql = format!(
            "SELECT count(*) AS n FROM samples WHERE epoch_ms(ts) >= {from}000 AND epoch_ms(ts) < {to}000"
        );
        let read = || {
            let asked = Instant::now();
            let run = self.takt.run(["sql", "--format", "json", &sql]);
            let rows: Option<Value> = serde_json::from_str(&run.stdout).ok();
            let count = rows.and_then(|rows| rows[0]["n"].as_i64());
            if count.is_none() {
                // The reason, if it goes on until the test fails.
                let log = fs::read_to_string(self.takt.directory().join("takt.log"));
                eprintln!(
                    "takt sql after {:?}: {}{}",
                    asked.elapsed(),
                    run.stderr,
                    tail(&log.unwrap_or_default())
                );
            }
            count
        };

        // The server may open the store anew.
        wait_for("the number of samples", SOON, read)
    }

    /// Waits until samples with the machine's present time are stored.
    fn wait_for_samples(&self, ahead: i64) {
        let now = now() + ahead;
        wait_for("samples of the present", SOON, || {
            (self.samples(now + 2, now + 600) > 100).then_some(())
        });
    }

    fn wait_for_trust(&self, trusted: f64) {
        wait_for("the clock's state", SOON, || {
            (self.metric("takt_store_clock_trusted")? == trusted).then_some(())
        });
    }

    /// Names of the raw blocks, and paths of the removed ones.
    fn blocks(&self) -> (Vec<String>, Vec<PathBuf>) {
        let data = self.takt.data_directory();
        let blocks = files_below(&data.join("blocks/raw"), 1);
        let names = blocks
            .iter()
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
        (names.collect(), files_below(&data.join("removed"), 3))
    }

    /// Sets the value that the rules compare.
    fn heat(&self, value: u32) {
        let new = self.takt.file("heat.new", format!("heat {value}\n"));
        fs::rename(new, self.takt.directory().join("textfiles/heat.prom")).unwrap();
    }

    fn wait_for_alert(&self, name: &str, fires: bool) {
        let label = format!("\"alertname\":\"{name}\"");
        wait_for(name, SOON, || {
            let page = self.get("/api/v2/alerts")?;
            (page.body.contains(&label) == fires).then_some(())
        });
    }

    fn messages(&self) -> Vec<(String, String)> {
        let bodies = self.hook.on("/hook");
        bodies
            .iter()
            .flat_map(|one| {
                let alerts = one["body"]["alerts"].as_array().unwrap().clone();
                alerts.into_iter().map(|alert| {
                    let text = |value: &Value| value.as_str().unwrap().to_owned();
                    (text(&alert["labels"]["alertname"]), text(&alert["status"]))
                })
            })
            .collect()
    }
}

/// Variables of a program whose clock is the file `clock`.
fn false_clock(takt: &Takt) -> [(&'static str, PathBuf); 4] {
    [
        ("LD_PRELOAD", FAKETIME.into()),
        ("FAKETIME_TIMESTAMP_FILE", takt.directory().join("clock")),
        ("FAKETIME_NO_CACHE", "1".into()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
    ]
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_secs().cast_signed()
}

fn files_below(folder: &Path, depth: usize) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| match depth {
            1 => vec![entry.path()],
            _ => files_below(&entry.path(), depth - 1),
        })
        .collect()
}

/// The attack: in 90 seconds, retention deleted every sample, `for` had passed, silences had ended,
/// and all alerts had resolved.
#[test]
fn a_clock_a_year_ahead_for_90_seconds_deletes_expires_and_sends_nothing() {
    let Some(machine) = Machine::new("") else {
        return;
    };
    let mut server = machine.serve();
    machine
        .takt
        .run([
            "alerts",
            "silence",
            "alertname=Quiet",
            "--for",
            "2h",
            "--comment",
            "known",
        ])
        .ok();
    wait_for("the alert", SOON, || {
        let messages = machine.messages();
        messages.iter().any(|(name, _)| name == "Hot").then_some(())
    });
    thread::sleep(Duration::from_secs(5));
    let until = now() - 2;
    machine.seal();
    let stored = machine.samples(until - DAY / 2, until);
    let sent = machine.messages();
    assert!(stored > 1000 && !sent.is_empty());

    machine.set_clock("+366d");
    machine.wait_for_samples(366 * DAY);
    machine.wait_for_trust(0.0);

    // A round is due each minute; these come in addition.
    for _ in 0..3 {
        machine.seal();
    }
    thread::sleep(Duration::from_secs(75));
    machine.seal();
    machine.set_clock("+0");
    machine.wait_for_samples(0);
    thread::sleep(Duration::from_secs(10));
    machine.seal();

    assert_eq!(machine.samples(until - DAY / 2, until), stored);
    let (_, removed) = machine.blocks();
    assert!(removed.is_empty(), "{removed:?}");
    assert_eq!(machine.messages(), sent, "{}", server.log());
    let silences = machine.get("/api/v2/silences").unwrap().body;
    assert!(silences.contains("\"active\""), "{silences}");
    let alerts = machine.get("/api/v2/alerts").unwrap().body;
    assert!(
        alerts.contains("Hot") && !alerts.contains("Warm"),
        "{alerts}"
    );
    machine.wait_for_trust(1.0);
    assert!(server.log().contains("the clock was set"));

    // Neither does a day back change anything.
    machine.set_clock("-1d");
    machine.wait_for_samples(-DAY);
    machine.seal();
    machine.set_clock("+0");
    machine.wait_for_samples(0);
    machine.seal();
    assert_eq!(machine.samples(until - DAY / 2, until), stored);
    assert_eq!(machine.messages(), sent, "{}", server.log());
    server.stop();
    machine.takt.run(["store", "verify"]).ok();
}

/// A battery clock of 1970 or 2030, until NTP corrects it.
#[test]
fn a_server_that_starts_with_a_wrong_clock_deletes_nothing() {
    let Some(machine) = Machine::new("") else {
        return;
    };
    let mut server = machine.serve();
    thread::sleep(Duration::from_secs(3));
    let until = now() - 2;
    machine.seal();
    let stored = machine.samples(until - DAY, until);
    server.stop();
    for wrong in ["@1970-01-02 00:00:00", "@2030-01-01 00:00:00"] {
        machine.set_clock(wrong);
        let mut server = machine.serve();
        machine.wait_for_trust(0.0);
        for _ in 0..3 {
            machine.seal();
        }
        machine.set_clock("+0");
        machine.wait_for_samples(0);
        machine.seal();
        assert_eq!(machine.samples(until - DAY, until), stored, "{wrong}");
        machine.wait_for_trust(1.0);
        server.stop();
    }
    machine.takt.run(["store", "verify"]).ok();
}

/// What targets say whose clocks are forty days ahead of this machine's.
fn forty_days_later(_path: &str) -> target::Page {
    let seconds = now() + 40 * DAY;
    let page = format!(
        "node_time_seconds {seconds}\nnode_timex_sync_status 1\nnode_boot_time_seconds 1000\n"
    );
    ("text/plain; version=0.0.4", page)
}

/// The server was off, or its machine was, for forty days: it needs the targets' word.
#[test]
fn samples_expire_when_targets_confirm_the_time_and_can_be_restored() {
    let Some(machine) = Machine::new("store.retention_5m_days = 0\nstore.retention_1h_days = 0")
    else {
        return;
    };
    let mut server = machine.serve();
    thread::sleep(Duration::from_secs(3));
    let until = now() - 2;
    machine.seal();
    let stored = machine.samples(until - DAY, until);
    let (blocks, _) = machine.blocks();
    server.stop();

    machine.set_clock("+40d");
    let mut server = machine.serve();
    machine.seal();
    assert_eq!(machine.samples(until - DAY, until), stored);
    machine.wait_for_trust(0.0);
    server.stop();

    let path = machine.takt.directory().join("takt.toml");
    let config = fs::read_to_string(&path).unwrap();
    let two: String = ["w1", "w2"]
        .map(|node| {
            let address = scrape_target(forty_days_later);
            format!("[[scrape.targets]]\naddress = '{address}'\nnode = '{node}'\n")
        })
        .concat();
    fs::write(&path, format!("{config}{two}")).unwrap();
    let mut server = machine.serve();
    machine.wait_for_trust(1.0);
    machine.seal();
    assert_eq!(machine.samples(until - DAY, until), 0);
    assert!(server.log().contains("removing a block past its retention"));
    server.stop();

    // docs/storage.md: move the blocks back, with a longer retention.
    let (_, removed) = machine.blocks();
    let raw = machine.takt.data_directory().join("blocks/raw");
    for block in &removed {
        fs::rename(block, raw.join(block.file_name().unwrap())).unwrap();
    }
    assert!(raw.join(&blocks[0]).exists(), "{removed:?}");
    fs::write(
        &path,
        config.replace("[alerts]", "store.retention_days = 100\n[alerts]"),
    )
    .unwrap();
    let mut server = machine.serve();
    machine.seal();
    assert_eq!(machine.samples(until - DAY, until), stored);
    server.stop();
}

/// The rules of the machine's time zone change while the server runs, and an hour of daylight saving
/// time comes.
#[test]
fn a_changed_time_zone_of_the_machine_changes_no_time() {
    let Some(mut machine) = Machine::new("") else {
        return;
    };
    let zone = machine.takt.directory().join("zone");
    let zones = Path::new("/usr/share/zoneinfo");
    if !zones.join("Europe/Oslo").exists() {
        return;
    }
    let set = |name: &str| {
        let new = zone.with_extension("new");
        fs::copy(zones.join(name), &new).unwrap();
        fs::rename(new, &zone).unwrap();
    };
    set("Europe/Oslo");
    machine.zone = Some(format!(":{}", zone.display()));
    let mut server = machine.serve();
    let until = now() - 2;
    machine.seal();
    let stored = machine.samples(until - DAY, until);
    for name in ["America/New_York", "Etc/GMT-14", "UTC"] {
        set(name);
        machine.wait_for_samples(0);
        machine.seal();
        assert_eq!(machine.samples(until - DAY, until), stored, "{name}");
    }
    assert_eq!(machine.metric("takt_store_clock_trusted"), Some(1.0));
    let log = server.log();
    assert!(!log.contains("clock was set"), "{log}");
    let query = [("query", "count_over_time(heat[20s]) > 10")];
    let url = format!("http://{}/api/v1/query", machine.address);
    let page = http_get_with(&url, &query, &[]).unwrap();
    assert!(page.body.contains("\"value\""), "{}", page.body);
    server.stop();
}

/// What happened meanwhile is not repeated: the channel hears how it ended.
#[test]
fn a_channel_that_is_down_for_six_hours_is_told_what_is_true_then() {
    let Some(mut machine) = Machine::with_exporter("", true) else {
        return;
    };
    let mut server = machine.serve();
    machine.hook.wait("/hook", 2);
    assert_eq!(machine.messages().len(), 2, "Hot and Quiet fire");

    machine.hook.stop();
    machine.heat(80);
    machine.wait_for_alert("Hot", false);
    let mut at = 0;
    for hour in 1..=12 {
        at = hour * 1800;
        machine.set_clock(&format!("+{at}"));
        thread::sleep(Duration::from_secs(1));
        if hour == 4 {
            machine.heat(95);
            machine.wait_for_alert("Hot", true);
        }
    }
    assert_eq!(at, 6 * 3600);
    let begun = Instant::now();
    machine.hook.run();
    machine.hook.wait("/hook", 4);
    let waited = begun.elapsed();
    thread::sleep(Duration::from_secs(10));

    let told = machine.messages();
    let of = |name: &str| {
        let states = told.iter().filter(|(alert, _)| alert == name);
        states.map(|(_, state)| state.as_str()).collect::<Vec<_>>()
    };

    // Its end and its new beginning, and nothing for each of the six hours.
    assert_eq!(of("Hot"), ["firing", "resolved", "firing"], "{told:?}");

    // Hours that a clock skips are none in which the heat was seen.
    assert!(of("Warm").is_empty(), "{told:?}");
    assert!(told.len() <= 7, "{told:?}");
    assert!(waited < Duration::from_secs(60), "{waited:?}");
    server.stop();
}
