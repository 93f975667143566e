//! `/federate`: the newest samples of selected series, as a page for other Prometheus servers to scrape.

use super::Api;
use super::answer::ApiError;
use super::params::Params;
use super::selection::Selection;
use crate::held::{AnswerWriter, HeldAnswer};
use axum::extract::State;
use axum::response::Response;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, SystemTime};
use takt_identity::By;
use takt_model::exposition::{push_metric_name, push_series};
use takt_model::{Labels, METRIC_NAME, Timestamp};
use takt_promql::format_g;
use takt_questions::query_memory::account_of;
use takt_store::{MemoryRefusal, MemoryUse, SeriesData};

/// Bytes of a series with its newest sample and its place among the found ones.
const SERIES_BYTES: u64 = 512;

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

    let account = account_of(&api.app.config().memory, &viewer);
    let memory = account.holder(MemoryUse::Query);

    let (found, memory) = selection
        .each(
            &api,
            &viewer,
            (memory, SERIES_BYTES),
            BTreeMap::new(),
            move |selection, store, matchers, found| {
                let mut meter = |_| selection.is_in_time();
                let newest = store.instant_metered(matchers, now, lookback, &mut meter)?;
                // By labels: a series that several selectors select is written once.
                let named = newest
                    .into_iter()
                    .map(|series| (series.labels.clone(), series));
                found.extend(named);
                Ok(())
            },
        )
        .await?;

    // Waiting for memory blocks.
    let page = takt_store::spawn_blocking(move || {
        let _memory = memory;
        page(found.into_values(), AnswerWriter::new(&account))
    })
    .await
    .map_err(|error| ApiError::internal(&error))??;

    Ok(page.respond("text/plain; version=0.0.4; charset=utf-8"))
}

/// The page, sorted by metric name. All types are untyped, as in Prometheus (`web/federate.go`).
fn page(
    series: impl Iterator<Item = SeriesData>,
    mut out: AnswerWriter,
) -> Result<HeldAnswer, MemoryRefusal> {
    let mut by_metric = BTreeMap::<String, Vec<SeriesData>>::new();
    for one in series {
        by_metric
            .entry(one.labels.metric().to_owned())
            .or_default()
            .push(one);
    }

    for (metric, series) in by_metric {
        let mut name = String::new();
        push_metric_name(&mut name, &metric);
        let _ = writeln!(out.piece(), "# TYPE {name} untyped");
        for one in &series {
            let Some(sample) = one.samples.last() else {
                continue;
            };
            // Writing to memory cannot fail.
            let _ = writeln!(
                out.piece(),
                "{} {} {}",
                series_text(&metric, &one.labels),
                format_g(sample.value),
                sample.at.0
            );
            out.settle()?;
        }
    }
    out.finish()
}

/// A series without an instance gets an empty one, so that the scraping server does not add its own.
fn series_text(metric: &str, labels: &Labels) -> String {
    let no_instance = labels.get("instance").is_none();
    let labels = labels
        .iter()
        .filter(|(name, _)| *name != METRIC_NAME)
        .chain(no_instance.then_some(("instance", "")));

    let mut text = String::new();
    push_series(&mut text, metric, labels);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter;
    use takt_store::{MemoryAccount, Sample, SeriesId};

    fn text(series: impl Iterator<Item = SeriesData>) -> String {
        let page = page(series, AnswerWriter::new(&MemoryAccount::default()));
        String::from_utf8(page.unwrap().into_bytes()).unwrap()
    }

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
            series(&[(METRIC_NAME, "my.metric"), ("my.label", "x")], 1.0),
        ];
        assert_eq!(
            text(all.into_iter()),
            "# TYPE a untyped\na{path=\"C:\\\\x\\n\\\"\",instance=\"\"} 0.5 1500\n\
             # TYPE \"my.metric\" untyped\n{\"my.metric\",\"my.label\"=\"x\",instance=\"\"} 1 1500\n\
             # TYPE up untyped\nup{instance=\"b:1\"} +Inf 1500\nup{instance=\"a:1\"} 1 1500\n"
        );
        assert_eq!(text(iter::empty()), "");
    }
}
