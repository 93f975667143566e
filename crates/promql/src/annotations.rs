//! Remarks that come with an answer, in Prometheus' words (`util/annotations/annotations.go`).

use crate::numbers::{exponential, format_g};
use crate::plan::CallPlaces;
use crate::syntax::Place;
use std::collections::BTreeMap;
use takt_model::Timestamp;
use takt_model::quoted;

/// Most remarks of a kind in an answer of the HTTP API, as in Prometheus (`web/api/v1/api.go`).
const MOST: usize = 10;

/// Warnings (the answer may be wrong) and infos (the answer may not be what was meant), each text once. A remark that
/// arose several times has the place of the last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Annotations {
    /// Texts that begin with `PromQL warning: `.
    pub warnings: BTreeMap<String, RemarkDetail>,
    /// Texts that begin with `PromQL info: `.
    pub infos: BTreeMap<String, RemarkDetail>,
}

/// The parts of a remark that do not distinguish it from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemarkDetail {
    /// The argument that the remark is about.
    pub place: Place,
    /// The end of the text, with figures; mostly empty.
    pub figures: String,
}

impl Annotations {
    /// Warnings and infos as the HTTP API gives them: with their places, and at most ten of each.
    pub fn messages(&self) -> [Vec<String>; 2] {
        [("warning", &self.warnings), ("info", &self.infos)].map(|(kind, remarks)| {
            let mut messages: Vec<String> = remarks.iter().take(MOST).map(message).collect();
            if remarks.len() > MOST {
                messages.push(format!(
                    "{} more {kind} annotations omitted",
                    remarks.len() - MOST
                ));
            }
            messages
        })
    }
}

fn message((text, detail): (&String, &RemarkDetail)) -> String {
    format!("{text}{} ({})", detail.figures, detail.place)
}

/// Remarks while a query is evaluated, each with the byte of the query that it is about.
#[derive(Debug, Default)]
pub(crate) struct Remarks {
    warnings: BTreeMap<String, usize>,
    infos: BTreeMap<String, usize>,
    /// Infos about buckets that fell.
    forced: BTreeMap<String, (usize, ForcedBuckets)>,
}

/// Cumulative buckets that fell and were raised again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ForcedBuckets {
    /// First and last instant.
    pub from: Timestamp,
    pub to: Timestamp,
    /// Smallest and largest bound of such a bucket.
    pub min_bound: f64,
    pub max_bound: f64,
    /// The greatest fall.
    pub max_fall: f64,
    /// Number of histograms and instants with such buckets.
    pub count: usize,
}

impl ForcedBuckets {
    /// Both together.
    pub fn join(self, other: Self) -> Self {
        Self {
            from: self.from.min(other.from),
            to: self.to.max(other.to),
            min_bound: self.min_bound.min(other.min_bound),
            max_bound: self.max_bound.max(other.max_bound),
            max_fall: self.max_fall.max(other.max_fall),
            count: self.count + other.count,
        }
    }

    fn figures(self) -> String {
        let time = |at: Timestamp| {
            let instant = jiff::Timestamp::try_from(at.whole_seconds());
            instant.map_or(String::new(), |instant| instant.to_string())
        };
        format!(
            ", from buckets {} to {}, with a max diff of {}, over {} samples from {} to {}",
            format_g(self.min_bound),
            format_g(self.max_bound),
            two_digits(self.max_fall),
            self.count,
            time(self.from),
            time(self.to),
        )
    }
}

/// A number with two significant digits (Go's `%.2g`).
fn two_digits(value: f64) -> String {
    let rounded: f64 = format!("{value:.1e}").parse().unwrap_or(value);
    // `%.2g` has an exponent from the number of its digits on, here from 100.
    if rounded != 0.0 && !(1e-4..1e2).contains(&rounded.abs()) {
        exponential(rounded)
    } else {
        format!("{rounded}")
    }
}

impl Remarks {
    /// For remarks about a call or an aggregation.
    pub fn about<'a>(&'a mut self, places: &'a CallPlaces) -> About<'a> {
        About {
            remarks: self,
            places,
        }
    }

    /// The remarks with their places in the query.
    pub fn placed(self, query: &str) -> Annotations {
        let detail = |(text, at), figures| {
            let place = Place::of(query, at);
            (text, RemarkDetail { place, figures })
        };
        let plain = |remark| detail(remark, String::new());
        let forced = self
            .forced
            .into_iter()
            // Figures are added last: remarks that differ by them only are one.
            .map(|(text, (at, buckets))| detail((text, at), buckets.figures()));
        Annotations {
            warnings: self.warnings.into_iter().map(plain).collect(),
            infos: self.infos.into_iter().map(plain).chain(forced).collect(),
        }
    }
}

/// The part of an aggregation that a remark is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AggregationPart {
    Whole,
    Argument,
}

/// A remark about native histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NativeRemark {
    /// A range has floats and histograms.
    Mixed,
    /// A counter is needed.
    NotCounter,
    /// A gauge is needed.
    NotGauge,
    /// The histograms of a range with floats are ignored.
    IgnoredInRange,
    /// Some quantile lies above all buckets, among the NaN observations.
    QuantileIsNaN,
    /// NaN observations shift a quantile.
    QuantileIsSkewed,
    /// NaN observations are in no fraction.
    FractionWithoutNaN,
    /// Exponential and custom buckets have no sum and no difference.
    MixedBuckets,
    /// Custom buckets with different bounds were added up.
    BoundsReconciled(HistogramOperation),
}

/// What brings custom buckets to common bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HistogramOperation {
    Aggregation,
    Addition,
    Subtraction,
}

impl HistogramOperation {
    fn name(self) -> &'static str {
        match self {
            Self::Aggregation => "aggregation",
            Self::Addition => "addition",
            Self::Subtraction => "subtraction",
        }
    }

    /// The operator.
    fn sign(self) -> &'static str {
        match self {
            Self::Aggregation | Self::Addition => "+",
            Self::Subtraction => "-",
        }
    }
}

/// Remarks about one call.
pub(crate) struct About<'a> {
    remarks: &'a mut Remarks,
    places: &'a CallPlaces,
}

impl About<'_> {
    fn argument(&self, nth: usize) -> usize {
        self.places
            .args
            .get(nth)
            .copied()
            .unwrap_or(self.places.whole)
    }

    fn warn(&mut self, at: usize, text: String) {
        let text = format!("PromQL warning: {text}");
        self.remarks.warnings.insert(text, at);
    }

    fn info(&mut self, at: usize, text: String) {
        let text = format!("PromQL info: {text}");
        self.remarks.infos.insert(text, at);
    }

    /// A sort in a range query.
    pub fn ineffective_sort(&mut self) {
        let text =
            "sort is ineffective for range queries since results are always ordered by labels";
        self.warn(self.places.whole, text.to_owned());
    }

    /// A quantile outside 0 to 1 in the argument of that number.
    pub fn invalid_quantile(&mut self, argument: usize, quantile: f64) {
        let at = self.argument(argument);
        self.warn(
            at,
            format!(
                "quantile value should be between 0 and 1, got {}",
                format_g(quantile)
            ),
        );
    }

    /// A ratio outside -1 to 1.
    pub fn invalid_ratio(&mut self, ratio: f64, used: f64) {
        let at = self.argument(0);
        let ratio = format_g(ratio);
        let used = format_g(used);
        self.warn(
            at,
            format!("ratio value should be between -1 and 1, got {ratio}, capping to {used}"),
        );
    }

    /// A bucket without a number in `le`, in the argument with the buckets.
    pub fn bad_bucket_label(&mut self, argument: usize, value: &str, metric: &str) {
        let value = quoted(value);
        let text = format!("bucket label \"le\" is missing or has a malformed value of {value}");
        self.warn(self.argument(argument), with_metric(text, metric));
    }

    /// `rate` of something that is not named like a counter.
    pub fn possible_non_counter(&mut self, metric: &str) {
        let at = self.argument(0);
        let reason =
            "metric might not be a counter, name does not end in _total/_sum/_count/_bucket";
        self.info(at, format!("{reason}: {}", quoted(metric)));
    }

    /// A remark about native histograms, in the first argument.
    pub fn native(&mut self, remark: NativeRemark, metric: &str) {
        let at = self.argument(0);
        let name = quoted(metric);

        match remark {
            NativeRemark::Mixed => {
                let text = "encountered a mix of histograms and floats for metric name";
                self.warn(at, format!("{text} {name}"));
            }
            NativeRemark::NotCounter => {
                let text = "this native histogram metric is not a counter:";
                self.warn(at, format!("{text} {name}"));
            }
            NativeRemark::NotGauge => {
                let text = "this native histogram metric is not a gauge:";
                self.warn(at, format!("{text} {name}"));
            }
            NativeRemark::IgnoredInRange => {
                let text = "ignored histograms in a range containing both floats and histograms";
                self.info(at, format!("{text} for metric name {name}"));
            }
            NativeRemark::QuantileIsNaN => {
                let text = "input to histogram_quantile has NaN observations, result is NaN";
                self.info(at, with_metric(text.to_owned(), metric));
            }
            NativeRemark::QuantileIsSkewed => {
                let text =
                    "input to histogram_quantile has NaN observations, result is skewed higher";
                self.info(at, with_metric(text.to_owned(), metric));
            }
            NativeRemark::MixedBuckets => self.mixed_buckets(at, metric),
            NativeRemark::BoundsReconciled(operation) => self.bounds_reconciled(at, operation),
            NativeRemark::FractionWithoutNaN => {
                let text = "input to histogram_fraction has NaN observations, which are excluded \
                            from all fractions";
                self.info(at, with_metric(text.to_owned(), metric));
            }
        }
    }

    /// Classic and native histograms with the same labels, in the argument with the buckets.
    pub fn mixed_histograms(&mut self, argument: usize, metric: &str) {
        let text = "vector contains a mix of classic and native histograms";
        self.warn(
            self.argument(argument),
            with_metric(text.to_owned(), metric),
        );
    }

    /// Histograms that an aggregation passes over.
    pub fn histogram_ignored(&mut self, aggregation: &str, at: AggregationPart) {
        let at = match at {
            AggregationPart::Whole => self.places.whole,
            AggregationPart::Argument => self.last_argument(),
        };
        self.info(
            at,
            format!("ignored histogram in {aggregation} aggregation"),
        );
    }

    fn mixed_buckets(&mut self, at: usize, metric: &str) {
        let text = "vector contains a mix of histograms with exponential and custom buckets \
                    schemas for metric name";
        self.warn(at, format!("{text} {}", quoted(metric)));
    }

    fn bounds_reconciled(&mut self, at: usize, operation: HistogramOperation) {
        let text = "mismatched custom buckets were reconciled during";
        self.info(at, format!("{text} {}", operation.name()));
    }

    /// Exponential and custom buckets on both sides of an operator.
    pub fn mixed_buckets_of_operator(&mut self, operation: HistogramOperation) {
        let text = "incompatible bucket layout encountered for binary operator";
        let sign = operation.sign();
        self.warn(self.places.whole, format!("{text} {sign}"));
    }

    /// Custom buckets with different bounds on both sides of an operator.
    pub fn bounds_reconciled_by_operator(&mut self, operation: HistogramOperation) {
        self.bounds_reconciled(self.places.whole, operation);
    }

    /// Exponential and custom buckets in a group.
    pub fn mixed_buckets_in_group(&mut self, metric: &str) {
        self.mixed_buckets(self.last_argument(), metric);
    }

    /// Custom buckets with different bounds in a group.
    pub fn bounds_reconciled_in_group(&mut self) {
        self.bounds_reconciled(self.last_argument(), HistogramOperation::Aggregation);
    }

    /// Floats and histograms in a group.
    pub fn mixed_group(&mut self) {
        let text = "encountered a mix of histograms and floats for aggregation";
        self.warn(self.last_argument(), text.to_owned());
    }

    /// An operator that does not take a float or histogram on one side.
    pub fn incompatible(&mut self, lhs: &str, operator: &str, rhs: &str) {
        let text = "incompatible sample types encountered for binary operator";
        let operator_name = quoted(operator);
        self.info(
            self.places.whole,
            format!("{text} {operator_name}: {lhs} {operator} {rhs}"),
        );
    }

    fn last_argument(&self) -> usize {
        self.places
            .args
            .last()
            .copied()
            .unwrap_or(self.places.whole)
    }

    /// Cumulative buckets that fell, in the argument with the buckets.
    pub fn forced_monotonicity(&mut self, argument: usize, metric: &str, buckets: ForcedBuckets) {
        let page =
            "https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile";
        let text =
            format!("input to histogram_quantile needed to be fixed for monotonicity (see {page})");
        let text = format!("PromQL info: {}", with_metric(text, metric));
        let at = self.argument(argument);
        let forced = &mut self.remarks.forced;
        // The figures of all steps and histograms become one remark.
        let joined = forced
            .get(&text)
            .map_or(buckets, |(_, known)| known.join(buckets));
        forced.insert(text, (at, joined));
    }
}

fn with_metric(text: String, metric: &str) -> String {
    if metric.is_empty() {
        text
    } else {
        format!("{text} for metric name {}", quoted(metric))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Memory, Options, instant};
    use takt_model::{Labels, Timestamp};

    fn messages(query: &str) -> [Vec<String>; 2] {
        let mut memory = Memory::new();
        for (name, le) in [("up", ""), ("bucket", "x"), ("bucket", "1")] {
            let labels: Labels = [("__name__", name), ("le", le)]
                .into_iter()
                .filter(|(_, v)| !v.is_empty())
                .collect();
            memory.add(
                labels,
                [(Timestamp(0), Some(1.0)), (Timestamp(1000), Some(2.0))],
            );
        }
        instant(&memory, query, Timestamp(2000), &Options::default())
            .unwrap()
            .annotations
            .messages()
    }

    #[test]
    fn remarks_name_their_argument() {
        let no_counter = "PromQL info: metric might not be a counter, name does not end in \
                          _total/_sum/_count/_bucket: \"up\"";
        let quantile = "PromQL warning: quantile value should be between 0 and 1, got 2";
        let [warnings, infos] = messages("sum(rate(up[5m])) +\n  quantile by (a) (2, abs(up))");
        assert_eq!(warnings, vec![format!("{quantile} (2:20)")]);
        assert_eq!(infos, vec![format!("{no_counter} (1:10)")]);
        let bucket = "PromQL warning: bucket label \"le\" is missing or has a malformed value of \"x\" (1:25)";
        assert_eq!(
            messages("histogram_quantile(0.9, bucket)"),
            [vec![bucket.to_owned()], Vec::new()]
        );
        // The same remark twice is one, about the later of them.
        assert_eq!(
            messages("rate(up[1m]) + increase(up[2m])")[1],
            [format!("{no_counter} (1:25)")]
        );
    }

    #[test]
    fn there_are_not_too_many_remarks() {
        let quantiles: Vec<String> = (2..14).map(|n| format!("quantile({n}, up)")).collect();
        let [warnings, _] = messages(&quantiles.join(" + "));
        // Twelve different quantiles: ten remarks, and one about the rest.
        assert_eq!(warnings.len(), 11);
        assert_eq!(warnings[10].as_str(), "2 more warning annotations omitted");
    }
}
