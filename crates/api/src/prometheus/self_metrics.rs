//! `status/self_metrics`: the server's own metrics in the JSON form of Prometheus' metric families.

use super::answer::{Answer, ApiError};
use super::params::Params;
use super::{Api, Reply};
use axum::extract::State;
use serde_json::{Map, Value, json};
use takt_identity::By;
use takt_model::exposition::{Fact, Format, Line, MetricType, Page, ReadError};
use takt_model::{Labels, parse_float, whole};

/// `status/self_metrics`: families of metrics, optionally those whose name a pattern matches.
pub(super) async fn self_metrics(State(api): State<Api>, By(viewer): By, params: Params) -> Reply {
    let pattern = params
        .get("metric_name_pattern")
        .map(whole)
        .transpose()
        .map_err(|error| ApiError::bad_data(format!("invalid metric_name_pattern: {error}")))?;

    let mut page = String::new();
    prometheus_client::encoding::text::encode(&mut page, &api.app.of(&viewer).registry)
        .map_err(|error| ApiError::internal(&error))?;
    let mut families = families(&page).map_err(|error| ApiError::internal(&error))?;

    // By the name that Prometheus shows, with `_total` for counters.
    families.retain(|family| {
        let name = family.name();
        pattern
            .as_ref()
            .is_none_or(|pattern| pattern.is_match(&name))
    });
    families.sort_by_key(Family::name);

    let families: Vec<Value> = families.into_iter().map(Family::into_json).collect();
    Answer::of(&families)
}

/// One family of metrics.
#[derive(Debug)]
struct Family {
    /// Name in OpenMetrics, where a counter lacks `_total`.
    name: String,
    help: String,
    unit: String,
    kind: MetricType,
    metrics: Vec<(Labels, Map<String, Value>)>,
}

/// Reads a page in OpenMetrics.
fn families(page: &str) -> Result<Vec<Family>, ReadError> {
    let mut page = Page::new(Format::OpenMetrics, page.as_bytes());
    let mut families: Vec<Family> = Vec::new();
    while let Some(line) = page.next_line(b"")? {
        match line {
            Line::Metadata(metadata) => {
                let name = metadata.metric();
                if families.last().is_none_or(|last| last.name != name) {
                    families.push(Family::new(&name));
                }
                if let Some(family) = families.last_mut() {
                    family.describe(metadata.fact);
                }
            }
            Line::Sample(sample) => {
                let labels = sample.labels()?;
                if families
                    .last()
                    // A sample without metadata begins a family of its own.
                    .is_none_or(|last| !labels.metric().starts_with(&last.name))
                {
                    families.push(Family::new(labels.metric()));
                }
                if let Some(family) = families.last_mut() {
                    family.add(&labels, sample.value);
                }
            }
        }
    }
    Ok(families)
}

impl Family {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            help: String::new(),
            unit: String::new(),
            kind: MetricType::Unknown,
            metrics: Vec::new(),
        }
    }

    fn name(&self) -> String {
        match self.kind {
            MetricType::Counter => format!("{}_total", self.name),
            MetricType::Info => format!("{}_info", self.name),
            _ => self.name.clone(),
        }
    }

    fn describe(&mut self, fact: Fact<'_>) {
        match fact {
            Fact::Help(help) => self.help = help.to_string(),
            Fact::Type(kind) => self.kind = kind,
            Fact::Unit(unit) => self.unit = String::from_utf8_lossy(unit).into_owned(),
        }
    }

    /// Adds a sample. The buckets, the sum and the count of a histogram are one metric.
    fn add(&mut self, labels: &Labels, value: f64) {
        let is_other = |name: &str| !matches!(name, "__name__" | "le");
        let key = labels.only(is_other);

        let place = self
            .metrics
            .iter()
            .position(|(known, _)| *known == key)
            .unwrap_or_else(|| {
                self.metrics.push((key, Map::new()));
                self.metrics.len() - 1
            });

        let parts = &mut self.metrics[place].1;
        let suffix = labels.metric().strip_prefix(self.name.as_str());
        let count = || Value::from(format!("{value}"));

        match (self.kind, suffix) {
            (MetricType::Histogram, Some("_count")) => {
                parts.insert("sampleCount".to_owned(), count());
            }
            (MetricType::Histogram, Some("_sum")) => {
                parts.insert("sampleSum".to_owned(), number(value));
            }
            (MetricType::Histogram, Some("_bucket")) => {
                let bound = labels.get("le").and_then(parse_float).map(number);
                let bucket = json!({"cumulativeCount": count(), "upperBound": bound});
                let buckets = parts.entry("bucket").or_insert_with(|| json!([]));
                if let Value::Array(buckets) = buckets {
                    buckets.push(bucket);
                }
            }
            _ => {
                parts.insert("value".to_owned(), number(value));
            }
        }
    }

    fn into_json(self) -> Value {
        let name = self.name();

        let (kind, key) = match self.kind {
            MetricType::Counter => ("COUNTER", "counter"),
            MetricType::Histogram => ("HISTOGRAM", "histogram"),
            MetricType::Unknown => ("UNTYPED", "untyped"),
            _ => ("GAUGE", "gauge"),
        };

        let metric = |(labels, parts): (Labels, Map<String, Value>)| {
            let pairs: Vec<Value> = labels
                .iter()
                .map(|(name, value)| json!({"name": name, "value": value}))
                .collect();
            let mut metric = json!({key: parts});
            if !pairs.is_empty() {
                metric["label"] = pairs.into();
            }
            metric
        };

        let metrics: Vec<Value> = self.metrics.into_iter().map(metric).collect();
        let mut family = json!({
            "name": name,
            "help": self.help,
            "type": kind,
            "metric": metrics,
        });

        if !self.unit.is_empty() {
            family["unit"] = self.unit.into();
        }
        family
    }
}

/// A number in the JSON form of protocol buffers.
fn number(value: f64) -> Value {
    match value {
        value if value.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        // Whole numbers without `.0`, as Go writes them; beyond 2^53 not each one is exact.
        value if value.fract() == 0.0 && value.abs() < 9e15 => (value as i64).into(),
        value => value.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_families() {
        let page = "# HELP a_seconds Duration.\n# TYPE a_seconds histogram\n# UNIT a_seconds seconds\n\
                    a_seconds_sum{x=\"1\"} 0.5\na_seconds_count{x=\"1\"} 3\n\
                    a_seconds_bucket{le=\"1.0\",x=\"1\"} 2\na_seconds_bucket{le=\"+Inf\",x=\"1\"} 3\n\
                    # HELP b Number.\n# TYPE b counter\nb_total 7\n\
                    # HELP c Level.\n# TYPE c gauge\nc{y=\"2\"} NaN\n# EOF\n";
        let found: Vec<Value> = families(page)
            .unwrap()
            .into_iter()
            .map(Family::into_json)
            .collect();
        let buckets = json!([
            {"cumulativeCount": "2", "upperBound": 1},
            {"cumulativeCount": "3", "upperBound": "Infinity"},
        ]);
        let histogram = json!({
            "sampleSum": 0.5,
            "sampleCount": "3",
            "bucket": buckets,
        });
        let expected = [
            json!({
                "name": "a_seconds",
                "help": "Duration.",
                "type": "HISTOGRAM",
                "unit": "seconds",
                "metric": [{
                    "label": [{"name": "x", "value": "1"}],
                    "histogram": histogram,
                }],
            }),
            json!({
                "name": "b_total",
                "help": "Number.",
                "type": "COUNTER",
                "metric": [{"counter": {"value": 7}}],
            }),
            json!({
                "name": "c",
                "help": "Level.",
                "type": "GAUGE",
                "metric": [{
                    "label": [{"name": "y", "value": "2"}],
                    "gauge": {"value": "NaN"},
                }],
            }),
        ];
        assert_eq!(found, expected);
    }
}
