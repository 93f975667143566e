//! Remarks that come with an answer, in Prometheus' words (`util/annotations/annotations.go`).

use crate::numbers::format_g;
use crate::outline::{self, Place};
use std::collections::BTreeMap;

/// Most remarks of a kind in an answer of the HTTP API, as in Prometheus (`web/api/v1/api.go`).
const MOST: usize = 10;

/// Warnings (the answer may be wrong) and infos (it may not be what was meant), each text once, with the argument that
/// the last such remark is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Annotations {
    /// Texts that begin with `PromQL warning: `.
    pub warnings: BTreeMap<String, Option<Place>>,
    /// Texts that begin with `PromQL info: `.
    pub infos: BTreeMap<String, Option<Place>>,
}

impl Annotations {
    /// Warnings and infos as an answer has them: with their places, and not too many.
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

fn message((text, place): (&String, &Option<Place>)) -> String {
    place.map_or(text.clone(), |place| format!("{text} ({place})"))
}

/// Remarks while they arise.
#[derive(Debug, Default)]
pub(crate) struct Remarks {
    warnings: BTreeMap<String, Spot>,
    infos: BTreeMap<String, Spot>,
}

/// The argument that a remark is about.
#[derive(Debug, Clone, Copy)]
struct Spot {
    /// Calls and aggregations that are written before.
    call: usize,
    argument: Argument,
}

#[derive(Debug, Clone, Copy)]
enum Argument {
    First,
    Last,
}

impl Remarks {
    /// For remarks about a call or an aggregation, counted as they are written.
    pub fn about(&mut self, call: usize) -> About<'_> {
        About {
            remarks: self,
            call,
        }
    }

    /// The remarks about a query, with their places in it.
    pub fn placed(self, query: &str) -> Annotations {
        if self.warnings.is_empty() && self.infos.is_empty() {
            return Annotations::default();
        }
        let calls = outline::read(query)
            .map(|outline| outline.arguments())
            .unwrap_or_default();
        let place = |spot: Spot| {
            let arguments = calls.get(spot.call)?;
            let at = match spot.argument {
                Argument::First => arguments.first(),
                Argument::Last => arguments.last(),
            };
            Some(Place::of(query, *at?))
        };
        let [warnings, infos] = [self.warnings, self.infos].map(|remarks| {
            remarks
                .into_iter()
                .map(|(text, spot)| (text, place(spot)))
                .collect()
        });
        Annotations { warnings, infos }
    }
}

/// Remarks about one call.
pub(crate) struct About<'a> {
    remarks: &'a mut Remarks,
    call: usize,
}

impl About<'_> {
    fn warn(&mut self, argument: Argument, text: String) {
        self.remarks.warnings.insert(
            format!("PromQL warning: {text}"),
            Spot {
                call: self.call,
                argument,
            },
        );
    }

    fn info(&mut self, argument: Argument, text: String) {
        self.remarks.infos.insert(
            format!("PromQL info: {text}"),
            Spot {
                call: self.call,
                argument,
            },
        );
    }

    /// A quantile outside 0 to 1.
    pub fn invalid_quantile(&mut self, quantile: f64) {
        self.warn(
            Argument::First,
            format!(
                "quantile value should be between 0 and 1, got {}",
                format_g(quantile)
            ),
        );
    }

    /// A ratio outside -1 to 1.
    pub fn invalid_ratio(&mut self, ratio: f64, used: f64) {
        let (ratio, used) = (format_g(ratio), format_g(used));
        self.warn(
            Argument::First,
            format!("ratio value should be between -1 and 1, got {ratio}, capping to {used}"),
        );
    }

    /// A bucket without a number in `le`.
    pub fn bad_bucket_label(&mut self, value: &str, metric: &str) {
        let text = format!("bucket label \"le\" is missing or has a malformed value of {value:?}");
        self.warn(Argument::Last, with_metric(text, metric));
    }

    /// `rate` of something that is not named like a counter.
    pub fn possible_non_counter(&mut self, metric: &str) {
        let reason =
            "metric might not be a counter, name does not end in _total/_sum/_count/_bucket";
        self.info(Argument::First, format!("{reason}: {metric:?}"));
    }

    /// Cumulative buckets that fell.
    pub fn forced_monotonicity(&mut self, metric: &str) {
        let page =
            "https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile";
        let text =
            format!("input to histogram_quantile needed to be fixed for monotonicity (see {page})");
        self.info(Argument::Last, with_metric(text, metric));
    }
}

fn with_metric(text: String, metric: &str) -> String {
    if metric.is_empty() {
        text
    } else {
        format!("{text} for metric name {metric:?}")
    }
}

#[cfg(test)]
mod tests {
    use crate::{Memory, Options, instant};
    use takt_model::Labels;

    fn messages(query: &str) -> [Vec<String>; 2] {
        let mut memory = Memory::new();
        for (name, le) in [("up", ""), ("bucket", "x"), ("bucket", "1")] {
            let labels: Labels = [("__name__", name), ("le", le)]
                .into_iter()
                .filter(|(_, v)| !v.is_empty())
                .collect();
            memory.add(labels, [(0, Some(1.0)), (1000, Some(2.0))]);
        }
        instant(&memory, query, 2000, &Options::default())
            .unwrap()
            .annotations
            .messages()
    }

    #[test]
    fn remarks_name_the_argument_that_they_are_about() {
        let no_counter = "PromQL info: metric might not be a counter, name does not end in \
                          _total/_sum/_count/_bucket: \"up\"";
        let quantile = "PromQL warning: quantile value should be between 0 and 1, got 2";
        let [warnings, infos] = messages("sum(rate(up[5m])) +\n  quantile by (a) (2, abs(up))");
        assert_eq!(
            (warnings, infos),
            (
                vec![format!("{quantile} (2:20)")],
                vec![format!("{no_counter} (1:10)")]
            )
        );
        let bucket = "PromQL warning: bucket label \"le\" is missing or has a malformed value of \"x\" for metric name \
                      \"bucket\" (1:25)";
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
        assert_eq!(
            (warnings.len(), warnings[10].as_str()),
            (11, "2 more warning annotations omitted")
        );
    }
}
