//! `/federate`: the newest samples of selected series, as a page for other Prometheus servers to scrape.

use super::Api;
use super::answer::ApiError;
use super::params::Params;
use super::selection::Selection;
use crate::http::By;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, SystemTime};
use takt_model::{Labels, METRIC_NAME, Timestamp};
use takt_promql::format_g;
use takt_store::SeriesData;

/// The newest sample of every series that `match[]` selects, unless it is older than the look-back.
pub(super) async fn federate(
    State(api): State<Api>,
    By(viewer): By,
    params: Params,
) -> Result<Response, ApiError> {
    let config = &api.app.config().query;
    let lookback = Duration::from_secs(config.lookback_seconds);
    let now = Timestamp::from(SystemTime::now());
    let selection = Selection::new(&params, config.timeout())?;
    let found = selection
        .each(
            &api,
            &viewer,
            BTreeMap::new(),
            move |selection, store, matchers, found| {
                let mut meter = |_| selection.is_in_time();
                let series = store.instant_metered(matchers, now, lookback, &mut meter)?;
                let named = series
                    .into_iter()
                    .map(|series| (series.labels.clone(), series));
                found.extend(named);
                Ok(())
            },
        )
        .await?;
    let page = page(found.into_values());
    Ok((
        [(
            header::CONTENT_TYPE,
            "text/plain; version=0.0.4; charset=utf-8",
        )],
        page,
    )
        .into_response())
}

/// The page, sorted by metric name. All types are untyped, as in Prometheus (`web/federate.go`).
fn page(series: impl Iterator<Item = SeriesData>) -> String {
    let mut by_metric = BTreeMap::<String, Vec<SeriesData>>::new();
    for one in series {
        by_metric
            .entry(one.labels.metric().to_owned())
            .or_default()
            .push(one);
    }
    let mut out = String::new();
    for (metric, series) in by_metric {
        let _ = writeln!(out, "# TYPE {metric} untyped");
        for one in &series {
            let Some(sample) = one.samples.last() else {
                continue;
            };
            let _ = writeln!(
                out,
                "{metric}{} {} {}",
                labels(&one.labels),
                format_g(sample.value),
                sample.at.0
            );
        }
    }
    out
}

/// A series without an instance gets an empty one, so that the scraping server does not add its own.
fn labels(labels: &Labels) -> String {
    let mut pairs: Vec<(&str, &str)> = labels
        .iter()
        .filter(|(name, _)| *name != METRIC_NAME)
        .collect();
    if labels.get("instance").is_none() {
        pairs.push(("instance", ""));
    }
    let escaped = |value: &str| {
        value
            .replace('\\', "\\\\")
            .replace('\n', "\\n")
            .replace('"', "\\\"")
    };
    let pairs: Vec<String> = pairs
        .into_iter()
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
        .collect();
    format!("{{{}}}", pairs.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter;
    use takt_store::{Sample, SeriesId};

    #[test]
    fn a_page_is_in_order_and_escaped() {
        let series = |pairs: &[(&str, &str)], value| SeriesData {
            id: SeriesId(0),
            labels: pairs.iter().copied().collect(),
            samples: vec![Sample {
                at: Timestamp(1500),
                value,
            }],
        };
        let all = [
            series(&[(METRIC_NAME, "up"), ("instance", "b:1")], f64::INFINITY),
            series(&[(METRIC_NAME, "a"), ("path", "C:\\x\n\"")], 0.5),
            series(&[(METRIC_NAME, "up"), ("instance", "a:1")], 1.0),
        ];
        assert_eq!(
            page(all.into_iter()),
            "# TYPE a untyped\na{path=\"C:\\\\x\\n\\\"\",instance=\"\"} 0.5 1500\n\
             # TYPE up untyped\nup{instance=\"b:1\"} +Inf 1500\nup{instance=\"a:1\"} 1 1500\n"
        );
        assert_eq!(page(iter::empty()), "");
    }
}
