//! A real Prometheus (Debian's) that scrapes a test's targets and answers queries.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::process::{Daemon, Page, free_port, http_get, http_get_with};
use super::{Needed, Skip, need, need_current};
use std::fs;

/// A Prometheus for one test; dropping it ends the program.
pub struct Prometheus {
    daemon: Daemon,
    url: String,
    targets: usize,
    // Dropped after the daemon that writes into it.
    _directory: TempDir,
}

/// A target that is scraped once a second.
pub struct Target<'a> {
    pub job: &'a str,
    /// `host:port`.
    pub address: &'a str,
    /// Labels that every series of the target gets.
    pub labels: &'a [(&'a str, &'a str)],
}

/// One element of an instant query's answer. A scalar has no labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl Prometheus {
    /// Starts Prometheus and waits until it answers.
    pub fn start(targets: &[Target<'_>]) -> Result<Self, Skip> {
        let started = Self::configured(&configuration(targets))?;
        Ok(Self {
            targets: targets.len(),
            ..started
        })
    }

    /// As [`start`](Self::start), with the text of the configuration file.
    pub fn configured(text: &str) -> Result<Self, Skip> {
        need(&[Needed {
            program: "prometheus",
            package: "prometheus",
        }])?;
        Ok(Self::run(Path::new("prometheus"), text, &[]))
    }

    /// As [`configured`](Self::configured), with the current release and its storage of exemplars.
    pub fn current(text: &str) -> Result<Self, Skip> {
        let program = need_current("prometheus")?;
        let flags = ["--enable-feature=exemplar-storage"];
        Ok(Self::run(&program, text, &flags))
    }

    fn run(program: &Path, text: &str, flags: &[&str]) -> Self {
        let directory = TempDir::with_prefix("takt-prometheus-").unwrap();
        let config = directory.path().join("prometheus.yml");
        fs::write(&config, text).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(program);
        command
            .args(flags)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn")
            .current_dir(directory.path());
        let log = directory.path().join("prometheus.log");
        let url = format!("http://{address}");
        let mut daemon = Daemon::start("prometheus", command, &log);
        daemon.wait_until("ready", Duration::from_secs(60), || {
            http_get(&format!("{url}/-/ready"))
                .ok()
                .filter(|page| page.status == 200)
        });
        Self {
            daemon,
            url,
            targets: 0,
            _directory: directory,
        }
    }

    /// Returns its URL, such as `http://127.0.0.1:20123`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits until every target was scraped `times` times without failure. A rate needs two scrapes
    /// with time between them.
    pub fn wait_for_scrapes(&mut self, scrapes: usize) {
        let query = format!("count(sum_over_time(up[10m]) >= {scrapes})");
        let url = self.url.clone();
        let targets = self.targets as f64;
        // Scrapes are a second apart.
        let limit = Duration::from_secs(30 + 2 * scrapes as u64);
        self.daemon.wait_until("scraping every target", limit, || {
            instant_query(&url, &query)
                .ok()?
                .first()
                .filter(|sample| sample.value == targets)
                .map(|_| ())
        });
    }

    /// Runs an instant query now and returns its vector, or Prometheus' error message.
    pub fn query(&self, promql: &str) -> Result<Vec<Sample>, String> {
        instant_query(&self.url, promql)
    }

    /// Fetches a page of its API, such as `/api/v1/targets`.
    pub fn get(&self, path: &str, query: &[(&str, &str)]) -> Page {
        http_get_with(&format!("{}{path}", self.url), query, &[]).unwrap()
    }
}

fn configuration(targets: &[Target<'_>]) -> String {
    let mut text =
        String::from("global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\nscrape_configs:\n");
    for target in targets {
        let Target {
            job,
            address,
            labels,
        } = target;
        write!(
            text,
            "  - job_name: '{job}'\n    static_configs:\n      - targets: ['{address}']\n"
        )
        .unwrap();
        for (i, (name, value)) in labels.iter().enumerate() {
            let heading = if i == 0 { "        labels:\n" } else { "" };
            writeln!(
                text,
                "{heading}          {name}: '{}'",
                value.replace('\'', "''")
            )
            .unwrap();
        }
    }
    text
}

/// Queries any server with Prometheus' HTTP API.
pub fn instant_query(url: &str, promql: &str) -> Result<Vec<Sample>, String> {
    let page = http_get_with(&format!("{url}/api/v1/query"), &[("query", promql)], &[])
        .map_err(|e| e.to_string())?;
    let answer: Value = serde_json::from_str(&page.body).map_err(|_| page.body.clone())?;
    if answer["status"] != "success" {
        return Err(answer["error"].as_str().unwrap_or(&page.body).to_owned());
    }

    let result = &answer["data"]["result"];
    match answer["data"]["resultType"].as_str() {
        Some("scalar") => Ok(vec![Sample {
            labels: BTreeMap::new(),
            value: number(&result[1]),
        }]),
        Some("vector") => Ok(result
            .as_array()
            .into_iter()
            .flatten()
            .map(sample)
            .collect()),
        other => Err(format!("{promql} is not an instant vector but {other:?}")),
    }
}

fn sample(element: &Value) -> Sample {
    let labels = element["metric"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    Sample {
        labels,
        value: number(&element["value"][1]),
    }
}

/// Parses Prometheus' numbers, which are strings and may be `NaN`, `+Inf` or `-Inf`.
fn number(value: &Value) -> f64 {
    value
        .as_str()
        .and_then(|text| text.parse().ok())
        .expect("a sample's value is a number in a text")
}

/// Samples of a series: milliseconds since 1970 and the text of the value.
pub type RawSamples = BTreeMap<i64, String>;

/// Returns the raw samples in `(from, to]` of the selected series, by the texts of their labels
/// except `ignored`. Prometheus and Takt leave staleness markers out.
pub fn raw_samples(
    url: &str,
    selector: &str,
    from: i64,
    to: i64,
    ignored: &[&str],
) -> BTreeMap<String, RawSamples> {
    // A range at one instant gives the stored samples, without interpolation.
    let query = format!("{selector}[{}ms]", to - from);
    let time = format!("{}.{:03}", to / 1000, to % 1000);
    let parameters = [("query", query.as_str()), ("time", &time)];
    let page = http_get_with(&format!("{url}/api/v1/query"), &parameters, &[]).unwrap();
    let body: Value = serde_json::from_str(&page.body).unwrap();
    let series = body["data"]["result"]
        .as_array()
        .unwrap_or_else(|| panic!("{body}"));
    series
        .iter()
        .map(|series| {
            let samples = series["values"].as_array().unwrap().iter().map(|pair| {
                let at = (pair[0].as_f64().unwrap() * 1000.0).round() as i64;
                (at, pair[1].as_str().unwrap().to_owned())
            });
            (labels_without(series, ignored), samples.collect())
        })
        .collect()
}

/// Labels of a series in an answer, except `ignored`.
pub fn labels_without(series: &Value, ignored: &[&str]) -> String {
    let mut labels = series["metric"].as_object().unwrap().clone();
    for name in ignored {
        labels.remove(*name);
    }
    Value::Object(labels).to_string()
}
