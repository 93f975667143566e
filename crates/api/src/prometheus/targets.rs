//! Scrape targets, and metadata of metrics.

use super::answer::{Answer, ApiError};
use super::params::Params;
use super::{Api, Reply};
use axum::extract::State;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use takt_collector::scrape::{
    MetricMetadata, RelabelConfig, RelabelStep, ScrapeManager, TargetStatus,
};
use takt_identity::By;
use takt_model::shown::{shown_address, shown_parameter, without_secrets};
use takt_model::{Labels, METRIC_NAME, Matcher};
use takt_store::Listed;

/// The scrape manager, as this API needs it.
pub trait Scraping: Debug + Send + Sync {
    /// All targets with their current state.
    fn targets(&self) -> Vec<TargetStatus>;

    /// Labels of discovered targets that relabelling dropped.
    fn dropped(&self) -> Vec<Labels>;

    /// Number of dropped targets of each job.
    fn dropped_counts(&self) -> BTreeMap<String, usize>;

    /// Metadata of metrics, by name.
    fn metadata(&self) -> BTreeMap<String, MetricMetadata>;

    /// The relabelling of labels, rule by rule; `None` if the job does not exist.
    fn relabel_steps(&self, job: &str, labels: &Labels) -> Option<Vec<RelabelStep>>;
}

impl Scraping for ScrapeManager {
    fn targets(&self) -> Vec<TargetStatus> {
        self.targets()
    }

    fn dropped(&self) -> Vec<Labels> {
        self.dropped()
    }

    fn dropped_counts(&self) -> BTreeMap<String, usize> {
        self.dropped_counts()
    }

    fn metadata(&self) -> BTreeMap<String, MetricMetadata> {
        self.metadata()
    }

    fn relabel_steps(&self, job: &str, labels: &Labels) -> Option<Vec<RelabelStep>> {
        self.relabel_steps(job, labels)
    }
}

/// `metadata`: type, help and unit of each metric.
pub(super) async fn metadata(State(api): State<Api>, By(viewer): By, params: Params) -> Reply {
    let limit = number(&params, "limit")?;
    // One description is kept per metric.
    let per_metric = if number(&params, "limit_per_metric")? == Some(0) {
        0
    } else {
        1
    };

    let mut known = api.app.of(&viewer).scraping.metadata();
    if let Some(metric) = params.get("metric") {
        known.retain(|name, _| name == metric);
    }

    let described = known
        .into_iter()
        .take(limit.unwrap_or(usize::MAX))
        .map(|(name, about)| (name, vec![described(&about); per_metric]))
        .collect::<BTreeMap<_, _>>();

    Answer::of(&described)
}

/// `targets/metadata`: the metadata of the metrics that each target has series of.
pub(super) async fn of_targets(State(api): State<Api>, By(viewer): By, params: Params) -> Reply {
    let limit = number(&params, "limit")?.unwrap_or(usize::MAX);
    let matchers = params
        .get("match_target")
        .map(takt_promql::selector)
        .transpose()
        .map_err(|error| ApiError::parameter("match_target", error))?
        .unwrap_or_default();

    let metric = params.get("metric").map(str::to_owned);
    api.blocking(&viewer, move |app| {
        let mut known = app.scraping.metadata();
        known.retain(|name, _| metric.as_ref().is_none_or(|metric| metric == name));

        let mut entries = Vec::new();
        let meant = |target: &TargetStatus| {
            matchers
                .iter()
                .all(|matcher| matcher.accepts_labels(&target.labels))
        };

        for target in app.scraping.targets().into_iter().filter(meant) {
            // As in Prometheus, all metrics of a target are listed.
            if entries.len() >= limit {
                break;
            }

            // A target's series have all of its labels.
            let of_target: Vec<Matcher> = target
                .labels
                .iter()
                .map(|(name, value)| Matcher::equal(name, value))
                .collect();
            let names: BTreeSet<String> = app
                .store
                .label_values(METRIC_NAME, Listed::ever(&of_target))
                .map_err(|error| ApiError::internal(&error))?
                .into_iter()
                .collect();

            let has_series = |name: &str| {
                PARTS
                    .iter()
                    .any(|part| names.contains(&format!("{name}{part}")))
            };

            for (name, about) in known.iter().filter(|(name, _)| has_series(name)) {
                let mut entry = described(about);
                entry["target"] = json!(map(&target.labels));
                // As in Prometheus: the name is left out where the client asked for it.
                if metric.is_none() {
                    entry["metric"] = name.as_str().into();
                }
                entries.push(entry);
            }
        }

        Answer::of(&entries)
    })
    .await
}

/// Suffixes of the series of a metric family.
const PARTS: [&str; 6] = ["", "_total", "_bucket", "_count", "_sum", "_info"];

fn described(about: &MetricMetadata) -> Value {
    let kind = if about.kind.is_empty() {
        "unknown"
    } else {
        about.kind
    };
    json!({
        "type": kind,
        "help": about.help,
        "unit": about.unit,
    })
}

/// A limit; negative: no limit.
fn number(params: &Params, name: &str) -> Result<Option<usize>, ApiError> {
    let number = params.get(name).map(str::parse::<i64>).transpose();
    let number = number.map_err(|_| ApiError::bad_data(format!("{name} must be a number")))?;
    Ok(number.and_then(|number| usize::try_from(number).ok()))
}

/// `targets`: all targets with the result of their last scrape.
pub(super) async fn targets(State(api): State<Api>, By(viewer): By, params: Params) -> Reply {
    let state = params.text("state").to_lowercase();
    let active = if state == "dropped" {
        Vec::new()
    } else {
        api.app.of(&viewer).scraping.targets()
    };
    let dropped = if state == "active" {
        Vec::new()
    } else {
        api.app.of(&viewer).scraping.dropped()
    };

    let counts = api.app.of(&viewer).scraping.dropped_counts();
    let pool = params.get("scrapePool");
    let active = active
        .iter()
        .filter(|target| pool.is_none_or(|pool| target.pool == pool))
        .map(shown);

    Answer::of(&json!({
        "activeTargets": active.collect::<Vec<_>>(),
        "droppedTargets": dropped
            .iter()
            .map(|found| json!({"discoveredLabels": discovered(found)}))
            .collect::<Vec<_>>(),
        "droppedTargetCounts": counts,
    }))
}

/// `targets/relabel_steps`: what each relabelling rule of a job makes of labels.
pub(super) async fn relabel_steps(State(api): State<Api>, By(viewer): By, params: Params) -> Reply {
    let given = |name: &str| {
        params
            .get(name)
            .ok_or_else(|| ApiError::bad_data(format!("no {name} parameter provided")))
    };

    let pool = given("scrapePool")?;
    let labels: BTreeMap<String, String> = serde_json::from_str(given("labels")?)
        .map_err(|error| ApiError::bad_data(format!("error parsing labels: {error}")))?;
    let labels: Labels = labels.iter().collect();

    let steps = api
        .app
        .of(&viewer)
        .scraping
        .relabel_steps(pool, &labels)
        .ok_or_else(|| {
            let error = format!("error retrieving scrape config: scrape pool {pool:?} not found");
            ApiError::bad_data(error)
        })?;

    let steps = steps.iter().map(|step| {
        json!({
            "rule": rule(&step.rule),
            "output": discovered(&step.output),
            "keep": step.keep,
        })
    });

    Answer::of(&json!({ "steps": steps.collect::<Vec<_>>() }))
}

/// A rule in Prometheus' JSON form.
fn rule(rule: &RelabelConfig) -> Value {
    let mut shown = json!({
        "separator": rule.separator,
        "regex": rule.regex,
        "replacement": shown_label(&rule.target_label, &rule.replacement),
        "action": rule.action,
    });

    if !rule.source_labels.is_empty() {
        shown["source_labels"] = json!(rule.source_labels);
    }
    if !rule.target_label.is_empty() {
        shown["target_label"] = json!(rule.target_label);
    }
    if rule.modulus > 0 {
        shown["modulus"] = json!(rule.modulus);
    }

    shown
}

/// `scrape_pools`: the names of the jobs.
pub(super) async fn scrape_pools(State(api): State<Api>, By(viewer): By) -> Reply {
    let targets = api.app.of(&viewer).scraping.targets();
    let pools: BTreeSet<&str> = targets.iter().map(|target| target.pool.as_str()).collect();
    Answer::of(&json!({ "scrapePools": pools }))
}

/// The scrape pool of a target: its job.
pub(super) fn job(target: &TargetStatus) -> &str {
    target.labels.get("job").unwrap_or_default()
}

fn shown(target: &TargetStatus) -> Value {
    // Go's zero time, which Prometheus writes before the first scrape.
    let never = || "0001-01-01T00:00:00Z".to_owned();
    let at =
        |at: takt_model::Timestamp| jiff::Timestamp::try_from(at).ok().map(|at| at.to_string());

    json!({
        "discoveredLabels": discovered(&target.discovered),
        "labels": map(&target.labels),
        "scrapePool": target.pool,
        "scrapeUrl": target.url,
        "globalUrl": target.url,
        "lastError": target.error.as_deref().unwrap_or_default(),
        "lastScrape": target.last_scrape.and_then(at).unwrap_or_else(never),
        "lastScrapeDuration": target.duration_seconds,
        "health": target.health,
        "scrapeInterval": seconds(target.interval_seconds),
        "scrapeTimeout": seconds(target.timeout_seconds),
    })
}

/// Labels before relabelling. Those that become the address may be or contain secrets.
fn discovered(labels: &Labels) -> BTreeMap<&str, String> {
    labels
        .iter()
        .map(|(name, value)| (name, shown_label(name, value)))
        .collect()
}

/// The value of a label before relabelling, or what a rule replaces it with, without its secrets.
fn shown_label(label: &str, value: &str) -> String {
    match label.strip_prefix("__param_") {
        Some(parameter) => shown_parameter(parameter, value).to_owned(),
        None if ["__address__", "__metrics_path__"].contains(&label) => shown_address(value),
        None => without_secrets(value),
    }
}

fn map(labels: &Labels) -> BTreeMap<&str, &str> {
    labels.iter().collect()
}

/// A duration in Prometheus' format, in the largest unit that divides it.
pub(super) fn seconds(seconds: f64) -> String {
    let ms = (seconds * 1e3).round() as u64;
    [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1000, "s"),
    ]
    .into_iter()
    .find(|(unit, _)| ms > 0 && ms.is_multiple_of(*unit))
    .map_or_else(
        || format!("{ms}ms"),
        |(unit, name)| format!("{}{name}", ms / unit),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_in_the_greatest_unit() {
        assert_eq!(
            [15.0, 60.0, 90.0, 0.5, 0.0].map(seconds),
            ["15s", "1m", "90s", "500ms", "0ms"]
        );
    }
}
