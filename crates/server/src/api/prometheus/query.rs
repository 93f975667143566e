//! Evaluating, formatting and explaining queries.

use super::answer::{Answer, ApiError};
use super::params::Params;
use super::write::write_value;
use super::{Api, QUERY, QUERY_RANGE, Reply};
use crate::QueryConfig;
use crate::api::Problem;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use takt_promql::{Error, Options, Value};
use takt_store::Store;

/// Points of a series in one answer; what a screen can show.
const MAX_POINTS: i64 = 11_000;

/// Which values does a PromQL query have? Times and steps are texts as the API takes them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct QueryQuestion {
    /// The query.
    pub query: String,
    /// The instant; the present where nothing is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The first instant of a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// The last instant of a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// The time between two instants of a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// What the API answers, when it has an answer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct QueryAnswer {
    /// The values.
    pub data: QueryData,
    /// The answer may be wrong.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The answer may not be what was meant.
    #[serde(default)]
    pub infos: Vec<String>,
}

/// A result and its shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueryData {
    /// `scalar`, `string`, `vector` or `matrix`.
    pub result_type: String,
    /// As Prometheus writes such a result.
    pub result: serde_json::Value,
}

impl QueryQuestion {
    /// Where a server is asked it.
    pub fn path(&self) -> &'static str {
        if self.start.is_some() {
            QUERY_RANGE
        } else {
            QUERY
        }
    }

    fn params(&self) -> Params {
        let QueryQuestion {
            query,
            time,
            start,
            end,
            step,
        } = self;
        let optional = [
            ("time", time),
            ("start", start),
            ("end", end),
            ("step", step),
        ];
        let given = optional
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)));
        given.chain([("query", query.as_str())]).collect()
    }
}

/// Answers a [`QueryQuestion`] from a store that this process holds. Blocks.
///
/// # Errors
/// A question that makes no sense, or one that the data do not fit.
pub fn query(store: &Store, question: &QueryQuestion) -> Result<QueryAnswer, Problem> {
    let (params, config) = (question.params(), QueryConfig::default());
    let evaluation = match question.start {
        Some(_) => Evaluation::range(&params, &config),
        None => Evaluation::instant(&params, &config),
    };
    let answer = evaluation
        .and_then(|evaluation| evaluation.run(store))
        .map_err(ApiError::into_problem)?;
    serde_json::from_slice(&answer.into_body()).map_err(Problem::failed)
}

/// `query` at one instant.
pub(super) async fn instant(State(api): State<Api>, params: Params) -> Reply {
    evaluate(&api, Evaluation::instant(&params, &api.app.query)?).await
}

/// `query_range`.
pub(super) async fn range(State(api): State<Api>, params: Params) -> Reply {
    evaluate(&api, Evaluation::range(&params, &api.app.query)?).await
}

/// Exemplars there are none; a wrong query is told all the same.
pub(super) async fn exemplars(params: Params) -> Reply {
    params.period()?;
    takt_promql::parse(params.text("query"))?;
    Answer::of::<[(); 0]>(&[])
}

/// The query, written nicely.
pub(super) async fn format(params: Params) -> Reply {
    Answer::of(&takt_promql::parse(params.text("query"))?.prettify())
}

/// The query as a tree.
pub(super) async fn parse(params: Params) -> Reply {
    Answer::of(&takt_promql::parse(params.text("query"))?)
}

/// Tells an evaluation that nobody waits any more when the request that asked is dropped.
struct CancelWhenDropped(Arc<AtomicBool>);

impl Drop for CancelWhenDropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn evaluate(api: &Api, evaluation: Evaluation) -> Reply {
    let _canceled = CancelWhenDropped(Arc::clone(&evaluation.options.limits.canceled));
    let permit =
        tokio::time::timeout(evaluation.timeout, Arc::clone(&api.queries).acquire_owned()).await;
    let permit = permit
        .map_err(|_| Error::Timeout)?
        .map_err(|error| ApiError::internal(&error))?;
    api.blocking(move |app| {
        // An evaluation that was given up still works until it looks up; its turn ends only then.
        let _permit = permit;
        evaluation.run(&app.store)
    })
    .await
}

/// A query with all its parameters, checked in Prometheus' order.
struct Evaluation {
    query: String,
    when: When,
    options: Options,
    timeout: Duration,
    /// Series in the answer.
    limit: usize,
    /// Whether the answer says what it has cost.
    stats: Option<Stats>,
    since: Instant,
}

/// How much an answer says of its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stats {
    Sums,
    /// Also what each step has read.
    All,
}

enum When {
    Instant {
        at_ms: i64,
    },
    Range {
        start_ms: i64,
        end_ms: i64,
        step_ms: i64,
    },
}

impl Evaluation {
    fn instant(params: &Params, config: &QueryConfig) -> Result<Self, ApiError> {
        let limit = params.limit()?;
        let at_ms = params.time_or_now("time")?;
        Self::new(params, config, limit, When::Instant { at_ms })
    }

    fn range(params: &Params, config: &QueryConfig) -> Result<Self, ApiError> {
        let limit = params.limit()?;
        let (start_ms, end_ms) = (params.needed_time("start")?, params.needed_time("end")?);
        if end_ms < start_ms {
            return Err(ApiError::parameter(
                "end",
                "end timestamp must not be before start time",
            ));
        }
        let step_ms = params.needed_duration("step")?;
        if step_ms <= 0 {
            let error = "zero or negative query resolution step widths are not accepted. Try a positive integer";
            return Err(ApiError::parameter("step", error));
        }
        if end_ms.saturating_sub(start_ms) / step_ms > MAX_POINTS {
            let error = "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query \
                         resolution (?step=XX)";
            return Err(ApiError::bad_data(error));
        }
        Self::new(
            params,
            config,
            limit,
            When::Range {
                start_ms,
                end_ms,
                step_ms,
            },
        )
    }

    fn new(
        params: &Params,
        config: &QueryConfig,
        limit: usize,
        when: When,
    ) -> Result<Self, ApiError> {
        let timeout = params.timeout(config.timeout())?;
        let mut options = config.options(timeout);
        if let Some(lookback_ms) = params.duration("lookback_delta")?.filter(|&ms| ms > 0) {
            options.lookback_ms = lookback_ms;
        }
        let stats = params.get("stats").map(|asked| {
            if asked == "all" {
                Stats::All
            } else {
                Stats::Sums
            }
        });
        let query = params.text("query").to_owned();
        Ok(Self {
            query,
            when,
            options,
            timeout,
            limit,
            stats,
            since: Instant::now(),
        })
    }

    fn run(&self, store: &Store) -> Result<Answer, ApiError> {
        let began = Instant::now();
        let mut answer = match self.when {
            When::Instant { at_ms } => {
                takt_promql::instant(store, &self.query, at_ms, &self.options)?
            }
            When::Range {
                start_ms,
                end_ms,
                step_ms,
            } => takt_promql::range(store, &self.query, start_ms, end_ms, step_ms, &self.options)?,
        };
        let truncated = truncate(&mut answer.value, self.limit);
        let mut data = Vec::new();
        write_value(&mut data, &answer.value);
        if let Some(stats) = self.stats {
            self.write_stats(&mut data, &answer, stats, began);
        }
        Ok(Answer::json(data)
            .annotated(answer.annotations)
            .truncated(truncated))
    }
}

impl Evaluation {
    /// Puts `stats` into the data, in Prometheus' form (`util/stats/query_stats.go`).
    fn write_stats(
        &self,
        data: &mut Vec<u8>,
        answer: &takt_promql::Answer,
        stats: Stats,
        began: Instant,
    ) {
        let (total, queued) = (
            self.since.elapsed().as_secs_f64(),
            began.duration_since(self.since).as_secs_f64(),
        );
        let evaluated = began.elapsed().as_secs_f64();
        let read: u64 = answer.samples_per_step.iter().sum();
        let mut samples =
            json!({ "totalQueryableSamples": read, "peakSamples": answer.peak_samples });
        if stats == Stats::All {
            let (start_ms, step_ms) = match self.when {
                When::Instant { at_ms } => (at_ms, 1),
                When::Range {
                    start_ms, step_ms, ..
                } => (start_ms, step_ms),
            };
            let at = |step: usize| {
                start_ms.saturating_add(step_ms.saturating_mul(step as i64)) as f64 / 1e3
            };
            let steps = answer
                .samples_per_step
                .iter()
                .enumerate()
                .map(|(step, count)| json!([at(step), count]));
            samples["totalQueryableSamplesPerStep"] = steps.collect();
        }
        let timings = json!({
            "evalTotalTime": evaluated,
            "resultSortTime": 0.0,
            "queryPreparationTime": 0.0,
            "innerEvalTime": evaluated,
            "execQueueTime": queued,
            "execTotalTime": total,
        });
        // The data end with the brace of their object.
        data.pop();
        data.extend(
            format!(
                r#","stats":{}}}"#,
                json!({ "timings": timings, "samples": samples })
            )
            .into_bytes(),
        );
    }
}

fn truncate(value: &mut Value, limit: usize) -> bool {
    match value {
        Value::Vector(samples) => cut(samples, limit),
        Value::Matrix(series) => cut(series, limit),
        Value::Scalar(_) | Value::String { .. } => false,
    }
}

/// Keeps the first `limit`; whether there were more.
pub(super) fn cut<T>(all: &mut Vec<T>, limit: usize) -> bool {
    let more = all.len() > limit;
    all.truncate(limit);
    more
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::App;
    use crate::api::prometheus::Scraping;
    use prometheus_client::registry::Registry;
    use std::collections::BTreeMap;
    use takt_collector::scrape::{MetricMetadata, TargetStatus};
    use takt_store::sql;
    use takt_store::{DataDir, StoreConfig};
    use tokio::sync::Semaphore;

    #[derive(Debug)]
    struct NoTargets;

    impl Scraping for NoTargets {
        fn targets(&self) -> Vec<TargetStatus> {
            Vec::new()
        }

        fn dropped(&self) -> Vec<takt_model::Labels> {
            Vec::new()
        }

        fn metadata(&self) -> BTreeMap<String, MetricMetadata> {
            BTreeMap::new()
        }
    }

    fn api(root: &std::path::Path, queries: usize) -> Api {
        let mut registry = Registry::default();
        let store = Store::open(
            DataDir::claim(root).unwrap(),
            &StoreConfig::default(),
            &mut registry,
        )
        .unwrap();
        let app = App {
            store: Arc::new(store),
            limits: sql::Limits::default(),
            query: QueryConfig::default(),
            registry: Arc::new(registry),
            scraping: Arc::new(NoTargets),
            accounting: Arc::default(),
            started: jiff::Timestamp::now(),
        };
        Api {
            app,
            queries: Arc::new(Semaphore::new(queries)),
        }
    }

    #[tokio::test]
    async fn an_evaluation_ends_when_nobody_waits_for_it() {
        let root = tempfile::tempdir().unwrap();
        // No evaluation has its turn, so this one would wait for two minutes.
        let api = api(root.path(), 0);
        let evaluation = || {
            Evaluation::instant(&[("query", "up")].into_iter().collect(), &api.app.query).unwrap()
        };
        let asked = evaluation();
        let canceled = Arc::clone(&asked.options.limits.canceled);
        let waited = tokio::time::timeout(Duration::from_millis(10), evaluate(&api, asked)).await;
        assert!(waited.is_err());
        assert!(canceled.load(Ordering::Relaxed));

        let late = evaluation();
        late.options.limits.canceled.store(true, Ordering::Relaxed);
        assert_eq!(
            late.run(&api.app.store).unwrap_err(),
            ApiError::from(Error::Canceled)
        );
    }

    #[tokio::test]
    async fn a_query_waits_for_its_turn_no_longer_than_its_timeout() {
        let root = tempfile::tempdir().unwrap();
        let api = api(root.path(), 0);
        let params: Params = [("query", "1"), ("timeout", "10ms")].into_iter().collect();
        let refused = evaluate(&api, Evaluation::instant(&params, &api.app.query).unwrap())
            .await
            .unwrap_err();
        assert_eq!(refused, ApiError::from(Error::Timeout));
    }

    #[test]
    fn the_limit_cuts_with_a_word() {
        let root = tempfile::tempdir().unwrap();
        let api = api(root.path(), 1);
        let ask = |limit| {
            let question = "label_replace(vector(1), \"a\", \"b\", \"\", \"\") or vector(2)";
            let params: Params = [("query", question), ("limit", limit), ("time", "1")]
                .into_iter()
                .collect();
            let body = Evaluation::instant(&params, &api.app.query)
                .unwrap()
                .run(&api.app.store)
                .unwrap()
                .into_body();
            serde_json::from_slice::<QueryAnswer>(&body).unwrap()
        };
        assert_eq!(ask("1").data.result.as_array().unwrap().len(), 1);
        assert_eq!(ask("1").warnings, ["results truncated due to limit"]);
        assert_eq!(ask("0").data.result.as_array().unwrap().len(), 2);
        assert!(ask("2").warnings.is_empty());
    }
}
