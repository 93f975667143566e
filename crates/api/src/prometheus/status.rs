//! Information about the server, and the list of Alertmanagers, which is empty.

use super::answer::{Answer, ApiError};
use super::params::Params;
use super::targets::{job, seconds};
use super::{Api, Reply};
use axum::extract::State;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::thread;
use takt_identity::By;
use takt_model::Labels;
use takt_store::Listed;

/// Version of Prometheus whose PromQL and API this is. Grafana adapts its requests to it.
const VERSION: &str = "3.14.0";

/// `alertmanagers`: always empty.
pub(super) async fn alertmanagers() -> Reply {
    Answer::of(&json!({
        "activeAlertmanagers": [],
        "droppedAlertmanagers": [],
    }))
}

/// `buildinfo`, without `features`: with them, Grafana treats the server as Mimir.
pub(super) async fn build_info() -> Reply {
    Answer::of(&json!({
        "version": VERSION,
        "revision": concat!("takt-", env!("CARGO_PKG_VERSION")),
        "branch": "",
        "buildUser": "",
        "buildDate": "",
        "goVersion": "",
    }))
}

/// `runtimeinfo`.
pub(super) async fn runtime_info(State(api): State<Api>, By(viewer): By) -> Reply {
    let app = api.app.of(&viewer);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let started = app.started.to_string();

    Answer::of(&json!({
        "startTime": started,
        "CWD": app.store.path(),
        "reloadConfigSuccess": true,
        "lastConfigTime": started,
        "corruptionCount": app.store.database().damaged().len(),
        "goroutineCount": 0,
        "GOMAXPROCS": threads,
        "GOMEMLIMIT": 0,
        "GOGC": "",
        "GODEBUG": "",
        "storageRetention": "",
    }))
}

/// `config`: the scrape targets as a configuration of Prometheus.
pub(super) async fn config(State(api): State<Api>, By(viewer): By) -> Reply {
    let mut targets = api.app.of(&viewer).scraping.targets();
    targets.sort_by(|a, b| job(a).cmp(job(b)));

    let mut yaml = String::new();
    let mut pool = None;
    for target in &targets {
        if pool != Some(job(target)) {
            pool = Some(job(target));
            let interval = seconds(target.interval_seconds);
            let timeout = seconds(target.timeout_seconds);
            let begin = if yaml.is_empty() {
                "scrape_configs:\n"
            } else {
                ""
            };
            writeln!(yaml, "{begin}- job_name: {}", yaml_text(job(target)))
                .map_err(|error| ApiError::internal(&error))?;
            yaml.push_str(&format!(
                "  scrape_interval: {interval}\n  scrape_timeout: {timeout}\n  static_configs:\n"
            ));
        }
        push_target(&mut yaml, &target.labels);
    }

    Answer::of(&json!({ "yaml": yaml }))
}

/// Appends a target with its labels.
fn push_target(yaml: &mut String, labels: &Labels) {
    let instance = yaml_text(labels.get("instance").unwrap_or_default());
    yaml.push_str(&format!("  - targets: [{instance}]\n    labels:\n"));

    let others = labels
        .iter()
        .filter(|(name, _)| !["job", "instance"].contains(name));
    for (name, value) in others {
        // Any text is a name, and plain `a: b` or `no` would be something else in YAML.
        let line = format!("      {}: {}\n", yaml_text(name), yaml_text(value));
        yaml.push_str(&line);
    }
}

/// The text as a string of YAML, which strings of JSON are.
fn yaml_text(text: &str) -> String {
    Value::from(text).to_string()
}

/// `flags`: the equivalent flags of Prometheus.
pub(super) async fn flags(State(api): State<Api>) -> Reply {
    let query = &api.app.config().query;
    Answer::of(&json!({
        "query.lookback-delta": seconds(query.lookback_seconds as f64),
        "query.max-concurrency": query.max_concurrency.to_string(),
        "query.max-samples": query.max_samples.to_string(),
        "query.timeout": seconds(query.timeout().as_secs_f64()),
    }))
}

/// `walreplay`: always done, because the server starts after the replay.
pub(super) async fn wal_replay() -> Reply {
    Answer::of(&json!({ "min": 0, "max": 0, "current": 0 }))
}

/// `notifications`: always empty.
pub(super) async fn notifications() -> Reply {
    Answer::of::<[(); 0]>(&[])
}

/// `tsdb/blocks`: the blocks of all resolutions. A block has no chunks, and its level is 1 for scraped samples, 2 for
/// five-minute rows and 3 for one-hour rows.
pub(super) async fn blocks(State(api): State<Api>, By(viewer): By) -> Reply {
    api.blocking(&viewer, |app| {
        let stat = app
            .store
            .database()
            .stat()
            .map_err(|error| ApiError::internal(&error))?;

        let blocks = stat.blocks.iter().map(|block| {
            let level = match block.resolution.as_str() {
                "raw" => 1,
                "5m" => 2,
                _ => 3,
            };
            json!({
                "ulid": format!("{}/{}", block.resolution, block.name),
                "minTime": block.from,
                // In Prometheus, the end is not a part of the block.
                "maxTime": block.to.plus_ms(1),
                "stats": {
                    "numSamples": block.rows,
                    "numSeries": block.series,
                    "numBytes": block.bytes,
                },
                "compaction": {"level": level, "sources": [block.name]},
                "version": 1,
            })
        });

        Answer::of(&json!({ "blocks": blocks.collect::<Vec<_>>() }))
    })
    .await
}

/// Maximum of the parameter `limit` of `tsdb`, as in Prometheus.
const MAX_TSDB_LIMIT: usize = 10_000;

/// `tsdb`: numbers of series by metric and label.
pub(super) async fn tsdb(State(api): State<Api>, By(viewer): By, params: Params) -> Reply {
    let limit = match params.get("limit").map(str::parse::<usize>) {
        None => 10,
        Some(Ok(limit)) if limit > MAX_TSDB_LIMIT => {
            let error = format!("limit must not exceed {MAX_TSDB_LIMIT}");
            return Err(ApiError::bad_data(error));
        }
        Some(Ok(limit)) if limit > 0 => limit,
        Some(_) => return Err(ApiError::bad_data("limit must be a positive number")),
    };

    api.blocking(&viewer, move |app| {
        let series = app
            .store
            .own_series(Listed::ever(&[]))
            .map_err(|error| ApiError::internal(&error))?;

        let mut by_metric = BTreeMap::new();
        let mut by_pair = BTreeMap::new();
        let mut values = BTreeMap::<&str, BTreeSet<&str>>::new();
        for labels in &series {
            *by_metric.entry(labels.metric().to_owned()).or_insert(0) += 1;
            for (name, value) in labels.iter() {
                *by_pair.entry((name, value)).or_insert(0) += 1;
                values.entry(name).or_default().insert(value);
            }
        }

        // The bytes of the distinct values, as in Prometheus' head.
        let bytes = |values: &BTreeSet<&str>| values.iter().map(|value| value.len()).sum();
        Answer::of(&json!({
            "headStats": {
                "numSeries": series.len(),
                "numLabelPairs": by_pair.len(),
                "maxTime": app.store.watermark(),
            },
            "seriesCountByMetricName": top(by_metric, limit),
            "labelValueCountByLabelName": top(
                values.iter().map(|(name, values)| {
                    ((*name).to_owned(), values.len())
                }),
                limit,
            ),
            "memoryInBytesByLabelName": top(
                values.iter().map(|(name, values)| {
                    ((*name).to_owned(), bytes(values))
                }),
                limit,
            ),
            "seriesCountByLabelValuePair": top(
                by_pair.iter().map(|((name, value), count)| {
                    (format!("{name}={value}"), *count)
                }),
                limit,
            ),
        }))
    })
    .await
}

/// The largest values in descending order, equal values by name.
fn top(counts: impl IntoIterator<Item = (String, usize)>, limit: usize) -> Vec<Value> {
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts
        .into_iter()
        .take(limit)
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_model::yaml::Node;

    #[test]
    fn any_label_of_a_target_is_valid_yaml() {
        let labels: Labels = [
            ("instance", "g1:9400"),
            ("my.label: x", "a # b"),
            ("no", "- c"),
        ]
        .into_iter()
        .collect();
        let mut yaml = String::new();
        push_target(&mut yaml, &labels);

        let read = Node::read(&yaml).unwrap();
        let target = &read.list().unwrap()[0];
        let labels = target.fields(&["targets", "labels"]).unwrap();
        assert_eq!(
            labels.require("labels").unwrap().text_pairs().unwrap(),
            [("my.label: x", "a # b"), ("no", "- c")].map(|(k, v)| (k.to_owned(), v.to_owned()))
        );
    }
}
