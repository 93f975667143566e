//! Takt and Prometheus over the same exporters: this machine's, with stand-in GPUs, and a page with
//! hardware that this machine lacks.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::boards::{Kind, repository};
use crate::support::or_skip;
use crate::support::process::{Daemon, free_port, http_get, http_get_with, wait_for};
use crate::support::prometheus::Prometheus;
use crate::support::takt::Takt;
use jiff::SignedDuration;
use std::fs;
use std::thread;

/// Labels of each series of an answer.
pub type Answer = BTreeSet<BTreeMap<String, String>>;

/// The page of `tests/fixtures/made-up/hardware.prom`, as written there.
pub fn hardware() -> String {
    let path = repository().join("tests/fixtures/made-up/hardware.prom");
    fs::read_to_string(path).unwrap()
}

/// Everything that runs. It ends with this.
pub struct Lab {
    pub takt: Takt,
    /// `None` where Prometheus is not installed.
    pub prometheus: Option<Prometheus>,
    url: String,
    _daemons: Vec<Daemon>,
}

fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs_f64()
}

fn stand_in() -> PathBuf {
    let library = Path::new(env!("CARGO_BIN_EXE_takt")).with_file_name("libnvml_stand_in.so");
    assert!(
        library.exists(),
        "{} is missing; cargo build -p nvml-stand-in",
        library.display()
    );
    library
}

/// Serves the page at an address of its own until the test program ends.
fn serve_hardware() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let page = hardware();
    let began = now() - 1000.0;
    thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else {
                continue;
            };
            let _ = connection.read(&mut [0; 4096]);
            let body = at(&page, now(), began);
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\nconnection: close\r\n";
            let _ = write!(
                connection,
                "{head}content-length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    address
}

/// The page at an instant: `5/s` is what has grown since `began`, `now` the instant itself.
fn at(page: &str, now: f64, began: f64) -> String {
    page.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let value = if let Some(rate) = value.strip_suffix("/s") {
                rate.parse::<f64>().unwrap() * (now - began)
            } else if value == "now" {
                now
            } else {
                value.parse().unwrap()
            };
            format!("{series} {value}\n")
        })
        .collect()
}

impl Lab {
    /// Starts everything and waits until rates can be computed and a rule fires.
    pub fn start() -> Option<Self> {
        let takt = Takt::fresh();
        let script = "profile rtx5090 2\nprofile h100 1\nprofile b200 1\nprofile a100 1\ngpu 4 part 1 0 1g.5gb 5GiB 1GiB\n";
        let script = takt.file("gpus.txt", script);
        let environment = (
            "NVML_STAND_IN_SCRIPT".to_owned(),
            script.display().to_string(),
        );
        let takt = takt.with_environment([environment]);
        let exporter_address = format!("127.0.0.1:{}", free_port());
        let library = stand_in().display().to_string();
        let arguments = [
            "exporter",
            "--web.listen-address",
            &exporter_address,
            "--nvml.library",
            &library,
        ];
        let mut exporter = takt.start(arguments);
        let page = format!("http://{exporter_address}/metrics");
        exporter.wait_until("showing GPUs", Duration::from_secs(20), || {
            http_get(&page)
                .ok()
                .filter(|page| page.body.contains("takt_gpu_energy_joules_total"))
        });
        let nodes = [
            ("n1", exporter_address),
            ("n9", serve_hardware()),
            // A closed port: a node whose exporter is down.
            ("n8", format!("127.0.0.1:{}", free_port())),
        ];
        let prometheus = or_skip(Prometheus::configured(&prometheus_configuration(&nodes)));
        let address = format!("127.0.0.1:{}", free_port());
        takt.file("takt.toml", takt_configuration(&address, &nodes));

        // The server records fair share a minute after its start, if it knows jobs then.
        import(&takt, &old_jobs());
        let began = jiff::Timestamp::now();
        let server = takt.start(["serve", "--config", "takt.toml"]);
        let lab = Self {
            takt,
            prometheus,
            url: format!("http://{address}"),
            _daemons: vec![exporter, server],
        };

        // The server writes its own series every 15 seconds, and the rules are evaluated as often.
        lab.wait("count_over_time(takt_store_samples_total[1m]) >= 3");

        // Where a board counts the steps at which an alert fired, there must have been one.
        let fired = r#"ALERTS{alertname="NfsHung", alertstate="firing"}"#;
        lab.wait(&format!("count_over_time({fired}[5m:45s])"));
        lab.wait("takt_scrape_refused == 1");
        import(&lab.takt, &measured_job(began));
        lab.takt.run(["assess"]).ok();
        wait_for("fair share", Duration::from_secs(120), || {
            let noted = ["sql", "--format", "json", "SELECT 1 FROM fairshare LIMIT 1"];
            (lab.takt.run(noted).ok().trim() != "[]").then_some(())
        });
        Some(lab)
    }

    fn wait(&self, promql: &str) {
        let urls = [
            Some(self.url.as_str()),
            self.prometheus.as_ref().map(Prometheus::url),
        ];
        for url in urls.into_iter().flatten() {
            // Prometheus has none of the server's own series.
            if url != self.url && !promql.contains("ALERTS") {
                continue;
            }
            wait_for(promql, Duration::from_secs(120), || {
                self.ask(url, Kind::Instant, promql)
                    .ok()
                    .filter(|answer| !answer.is_empty())
            });
        }
    }

    /// Labels of what Takt answers.
    pub fn ask_takt(&self, kind: Kind, promql: &str) -> Result<Answer, String> {
        self.ask(&self.url, kind, promql)
    }

    /// Labels of what the server at `url` answers, over the last minute or at its end.
    pub fn ask(&self, url: &str, kind: Kind, promql: &str) -> Result<Answer, String> {
        // Both have stored what they scraped two seconds ago.
        let end = now() - 2.0;
        let from = format!("{:.3}", end - 60.0);
        let to = format!("{end:.3}");
        let page = if kind == Kind::Range {
            let query = [
                ("query", promql),
                ("start", &from),
                ("end", &to),
                ("step", "15"),
            ];
            http_get_with(&format!("{url}/api/v1/query_range"), &query, &[])
        } else {
            http_get_with(
                &format!("{url}/api/v1/query"),
                &[("query", promql), ("time", &to)],
                &[],
            )
        };
        let body = page.map_err(|error| error.to_string())?.body;
        let answer: Value = serde_json::from_str(&body).map_err(|_| body.clone())?;
        let result = answer["data"]["result"].as_array().ok_or(body)?;
        Ok(result
            .iter()
            .map(|series| {
                series["metric"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
                    .collect()
            })
            .collect())
    }

    /// Grafana's macros of the time range: the last three days.
    pub fn with_times(&self, sql: &str) -> String {
        let to = jiff::Timestamp::now();
        let from = to - SignedDuration::from_hours(72);
        sql.replace("$__timeFrom()", &format!("'{from:.3}'"))
            .replace("$__timeTo()", &format!("'{to:.3}'"))
    }
}

const HEADER: &str = "JobID|User|Account|Partition|Submit|Start|End|State|AllocTRES|ReqMem|NNodes|\
                      NCPUS|NodeList|ElapsedRaw|Timelimit";

fn import(takt: &Takt, rows: &str) {
    takt.file("jobs.txt", format!("{HEADER}\n{rows}"));
    let import = [
        "import",
        "sacct",
        "jobs.txt",
        "--timezone",
        "UTC",
        "--cluster",
        "lab",
    ];

    // A row is set aside where the test wants one.
    let run = takt.run(import);
    assert!(matches!(run.code, Some(0 | 1)), "{}", run.stderr);
}

fn time(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

/// A job that runs, one that waits, and a line that is not a record.
fn old_jobs() -> String {
    let day = time(jiff::Timestamp::now() - SignedDuration::from_hours(24));
    format!(
        "102|bob|b|gpu|{day}|{day}|Unknown|RUNNING|cpu=4,gres/gpu=1,node=1|8G|1|4|n9|0|2-00:00:00\n\
         103|bob|b|gpu|{day}|Unknown|Unknown|PENDING||8G|1|4||0|01:00:00\n\
         oops|bob|b|gpu|never|never|never|FAILED||8G|1|4|n9|0|01:00:00\n"
    )
}

/// A job that held a GPU of the made-up node while the server watched, and ended ten seconds ago.
fn measured_job(began: jiff::Timestamp) -> String {
    // Its last samples have been stored by now.
    let end = jiff::Timestamp::now() - SignedDuration::from_secs(10);
    let seconds = end.as_second() - began.as_second();
    let began = time(began);
    let end = time(end);
    format!(
        "101|alice|a|gpu|{began}|{began}|{end}|COMPLETED|cpu=8,mem=8G,gres/gpu=1,node=1|8G|1|8|n9|\
         {seconds}|01:00:00\n"
    )
}

fn takt_configuration(address: &str, nodes: &[(&str, String)]) -> String {
    let targets = nodes.iter().map(|(node, address)| {
        format!("[[scrape.targets]]\naddress = \"{address}\"\nnode = \"{node}\"\n")
    });
    format!(
        "cluster = \"lab\"\ntimezone = \"UTC\"\n[server]\nlisten_address = \"{address}\"\n\
         [rates]\ncurrency = \"EUR\"\n[[rates.cards]]\nfrom = \"2026-01-01\"\ngpu_hour = 1.5\n\
         kwh = 0.3\n[[budgets]]\naccount = \"a\"\ngpu_hours = 100\n\
         [[budgets]]\nuser = \"alice\"\ngpu_hours = 10\n\
         [sql]\nlisten_address = \"127.0.0.1:{}\"\n[jobs]\npoll = false\n\
         [scrape]\ninterval_seconds = 2\ntimeout_seconds = 2\n{}",
        free_port(),
        targets.collect::<String>()
    )
}

fn prometheus_configuration(nodes: &[(&str, String)]) -> String {
    let targets = nodes.iter().map(|(node, address)| {
        format!("      - {{targets: ['{address}'], labels: {{cluster: lab, node: {node}}}}}\n")
    });

    // The same machines once more, as another cluster's.
    let others = nodes.iter().map(|(node, address)| {
        format!("      - {{targets: ['{address}'], labels: {{cluster: other, node: {node}}}}}\n")
    });
    let rules = repository().join("dashboards/rules/*.rules.yml");
    format!(
        "global: {{scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 5s}}\nrule_files: ['{}']\n\
         scrape_configs:\n  - job_name: node\n    static_configs:\n{}",
        rules.display(),
        targets.chain(others).collect::<String>()
    )
}
