//! Remarks that come with an answer, in Prometheus' words (`util/annotations/annotations.go`).

use crate::query::promql::numbers::format_g;
use std::collections::BTreeSet;

/// Warnings (the answer may be wrong) and infos (it may not be what was meant), each text once.
///
/// Prometheus appends the position in the query, which the parser does not give us; the texts are otherwise equal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Annotations {
    /// Texts that begin with `PromQL warning: `.
    pub warnings: BTreeSet<String>,
    /// Texts that begin with `PromQL info: `.
    pub infos: BTreeSet<String>,
}

impl Annotations {
    fn warn(&mut self, text: String) {
        self.warnings.insert(format!("PromQL warning: {text}"));
    }

    fn info(&mut self, text: String) {
        self.infos.insert(format!("PromQL info: {text}"));
    }

    /// A quantile outside 0 to 1.
    pub(crate) fn invalid_quantile(&mut self, quantile: f64) {
        self.warn(format!("quantile value should be between 0 and 1, got {}", format_g(quantile)));
    }

    /// A ratio outside -1 to 1.
    pub(crate) fn invalid_ratio(&mut self, ratio: f64, used: f64) {
        let (ratio, used) = (format_g(ratio), format_g(used));
        self.warn(format!("ratio value should be between -1 and 1, got {ratio}, capping to {used}"));
    }

    /// A bucket without a number in `le`.
    pub(crate) fn bad_bucket_label(&mut self, value: &str, metric: &str) {
        let text = format!("bucket label \"le\" is missing or has a malformed value of {value:?}");
        self.warn(with_metric(text, metric));
    }

    /// `rate` of something that is not named like a counter.
    pub(crate) fn possible_non_counter(&mut self, metric: &str) {
        let reason = "metric might not be a counter, name does not end in _total/_sum/_count/_bucket";
        self.info(format!("{reason}: {metric:?}"));
    }

    /// Cumulative buckets that fell.
    pub(crate) fn forced_monotonicity(&mut self, metric: &str) {
        let page = "https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile";
        let text = format!("input to histogram_quantile needed to be fixed for monotonicity (see {page})");
        self.info(with_metric(text, metric));
    }
}

fn with_metric(text: String, metric: &str) -> String {
    if metric.is_empty() { text } else { format!("{text} for metric name {metric:?}") }
}
