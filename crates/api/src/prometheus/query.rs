//! Evaluating, formatting and explaining queries.

use super::answer::{Answer, ApiError, BEGIN};
use super::params::Params;
use super::write::write_value;
use super::{Api, QUERY, QUERY_RANGE, Reply};
use crate::held::AnswerWriter;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use takt_access::{Need, Viewer};
use takt_identity::By;
use takt_model::Timestamp;
use takt_promql::{Error, Options, Value};
use takt_questions::query_memory::{account_of, evaluation_memory};
use takt_questions::{AnswerConfig, AnswerError, QueryConfig, Question, RequestForm};
use takt_store::{MemoryAccount, Store};
use tokio::time;

/// Maximum number of points of a series in one answer.
const MAX_POINTS: i64 = 11_000;

/// A PromQL query. Times and steps are texts in the API's formats.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct QueryQuestion {
    /// The query.
    pub query: String,
    /// Time of an instant query. Default: now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// First time of a range query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// Last time of a range query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Step of a range query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// A successful answer of the API.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct QueryAnswer {
    /// The values.
    pub data: QueryData,
    /// Warnings: the answer may be wrong.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Infos: the query may not mean what it should.
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
    fn params(&self) -> Params {
        let QueryQuestion {
            query,
            time,
            start,
            end,
            step,
        } = self;

        [
            ("time", time),
            ("start", start),
            ("end", end),
            ("step", step),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.as_deref()?)))
        .chain([("query", query.as_str())])
        .collect()
    }
}

/// A command asks this question like the others; a server answers it through the routes of Prometheus' API.
impl Question for QueryQuestion {
    const PATH: &'static str = QUERY;
    const REQUEST: RequestForm = RequestForm::PostForm;
    const NEED: Need = Need::Samples;
    type Answer = QueryAnswer;
    type Data = Store;

    fn answer(
        &self,
        viewer: &Viewer,
        store: &Store,
        config: &AnswerConfig,
    ) -> Result<QueryAnswer, AnswerError> {
        let params = self.params();
        let evaluation = if self.start.is_some() {
            Evaluation::range(&params, &config.query)
        } else {
            Evaluation::instant(&params, &config.query)
        };
        // Through the JSON of the API, so that a command shows the same numbers with and without a
        // server.
        let answer = evaluation
            .and_then(|evaluation| {
                let account = account_of(&config.memory, viewer);
                evaluation.run(store, &account)?.into_body()
            })
            .map_err(ApiError::into_answer_error)?;
        serde_json::from_slice(&answer).map_err(AnswerError::failed)
    }

    fn path(&self) -> &'static str {
        if self.start.is_some() {
            QUERY_RANGE
        } else {
            QUERY
        }
    }
}

/// `query` at one instant.
pub(super) async fn instant(State(api): State<Api>, By(viewer): By, params: Params) -> Reply {
    evaluate(
        &api,
        &viewer,
        Evaluation::instant(&params, &api.app.config().query)?,
    )
    .await
}

/// `query_range`.
pub(super) async fn range(State(api): State<Api>, By(viewer): By, params: Params) -> Reply {
    evaluate(
        &api,
        &viewer,
        Evaluation::range(&params, &api.app.config().query)?,
    )
    .await
}

/// `format_query`: the query, formatted.
pub(super) async fn format(params: Params) -> Reply {
    Answer::of(&takt_promql::parse(params.text("query"))?.prettify())
}

/// `parse_query`: the query's syntax tree.
pub(super) async fn parse(params: Params) -> Reply {
    Answer::of(&takt_promql::parse(params.text("query"))?)
}

/// Cancels an evaluation when its request is dropped.
struct CancelWhenDropped(Arc<AtomicBool>);

impl Drop for CancelWhenDropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

async fn evaluate(api: &Api, viewer: &Viewer, evaluation: Evaluation) -> Reply {
    let _canceled = CancelWhenDropped(Arc::clone(&evaluation.options.limits.canceled));
    let account = account_of(&api.app.config().memory, viewer);
    // Waiting for a turn is part of the timeout.
    let permit = time::timeout(evaluation.timeout, Arc::clone(&api.queries).acquire_owned()).await;
    let permit = permit
        .map_err(|_| Error::Timeout)?
        .map_err(|error| ApiError::internal(&error))?;

    api.blocking(viewer, move |app| {
        // A cancelled evaluation works on until its next check; it keeps its permit until then.
        let _permit = permit;
        evaluation.run(&app.store, &account)
    })
    .await
}

/// A query and its parameters, checked in Prometheus' order.
struct Evaluation {
    query: String,
    when: When,
    options: Options,
    timeout: Duration,
    /// Maximum number of series in the answer.
    limit: usize,
    /// Detail of the cost statistics in the answer.
    stats: Option<Stats>,
    since: Instant,
}

/// Detail of an answer's cost statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stats {
    Sums,
    /// Also the samples read by each step.
    All,
}

enum When {
    Instant {
        at: Timestamp,
    },
    Range {
        start: Timestamp,
        end: Timestamp,
        step_ms: i64,
    },
}

impl Evaluation {
    fn instant(params: &Params, config: &QueryConfig) -> Result<Self, ApiError> {
        let limit = params.limit()?;
        let at = params.time_or_now("time")?;
        Self::new(params, config, limit, When::Instant { at })
    }

    fn range(params: &Params, config: &QueryConfig) -> Result<Self, ApiError> {
        let limit = params.limit()?;
        let start = params.needed_time("start")?;
        let end = params.needed_time("end")?;
        if end < start {
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

        // As in Prometheus; a mistyped step would otherwise ask for millions of points of each
        // series.
        if (end - start) / step_ms > MAX_POINTS {
            let error = "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query \
                         resolution (?step=XX)";
            return Err(ApiError::bad_data(error));
        }

        Self::new(
            params,
            config,
            limit,
            When::Range {
                start,
                end,
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
        // Zero means the default, as in Prometheus.
        if let Some(lookback_ms) = params.lookback()?.filter(|&ms| ms > 0) {
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

    /// Evaluates the query. What it takes at its peak is held until the answer is written, the answer
    /// until it is read.
    fn run(&self, store: &Store, account: &MemoryAccount) -> Result<Answer, ApiError> {
        let began = Instant::now();
        let mut options = self.options.clone();
        options.limits.memory = Some(evaluation_memory(account));

        let mut answer = match self.when {
            When::Instant { at } => takt_promql::instant(store, &self.query, at, &options)?,
            When::Range {
                start,
                end,
                step_ms,
            } => takt_promql::range(store, &self.query, start, end, step_ms, &options)?,
        };

        let truncated = truncate(&mut answer.value, self.limit);
        // The value is consumed while it is written, so that series and text are not in memory
        // together.
        let value = mem::replace(&mut answer.value, Value::Vector(Vec::new()));

        let mut writer = AnswerWriter::new(account);
        writer.piece().extend(BEGIN);
        writer.piece().push(b'{');
        write_value(&mut writer, value)?;

        if let Some(stats) = self.stats {
            self.write_stats(writer.piece(), &answer, stats, began);
        }
        writer.piece().push(b'}');

        Ok(Answer::held(writer)
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
        let total = self.since.elapsed().as_secs_f64();
        let queued = began.duration_since(self.since).as_secs_f64();
        let evaluated = began.elapsed().as_secs_f64();
        let read: u64 = answer.samples_per_step.iter().sum();

        let mut samples = json!({
            "totalQueryableSamples": read,
            "peakSamples": answer.peak_samples,
        });

        if stats == Stats::All {
            let (start, step_ms) = match self.when {
                When::Instant { at } => (at, 1),
                When::Range { start, step_ms, .. } => (start, step_ms),
            };
            let at = |step: usize| {
                start
                    .plus_ms(step_ms.saturating_mul(step as i64))
                    .as_seconds()
            };
            samples["totalQueryableSamplesPerStep"] = answer
                .samples_per_step
                .iter()
                .enumerate()
                .map(|(step, count)| json!([at(step), count]))
                .collect();
        }

        let timings = json!({
            "evalTotalTime": evaluated,
            // Not measured apart; clients expect the keys.
            "resultSortTime": 0.0,
            "queryPreparationTime": 0.0,
            "innerEvalTime": evaluated,
            "execQueueTime": queued,
            "execTotalTime": total,
        });

        data.extend(
            format!(
                r#","stats":{}"#,
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

/// Keeps the first `limit` elements; returns whether there were more.
pub(super) fn cut<T>(all: &mut Vec<T>, limit: usize) -> bool {
    let more = all.len() > limit;
    all.truncate(limit);
    more
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prometheus::Scraping;
    use crate::{App, AppParts};
    use prometheus_client::registry::Registry;
    use std::collections::BTreeMap;
    use takt_collector::scrape::{MetricMetadata, RelabelStep, TargetStatus};
    use takt_store::{DataDir, StoreConfig};
    use tempfile::tempdir;
    use tokio::sync::Semaphore;
    use tokio::time;

    #[derive(Debug)]
    struct NoTargets;

    impl Scraping for NoTargets {
        fn dropped_counts(&self) -> BTreeMap<String, usize> {
            BTreeMap::new()
        }

        fn targets(&self) -> Vec<TargetStatus> {
            Vec::new()
        }

        fn dropped(&self) -> Vec<takt_model::Labels> {
            Vec::new()
        }

        fn metadata(&self) -> BTreeMap<String, MetricMetadata> {
            BTreeMap::new()
        }

        fn relabel_steps(
            &self,
            _job: &str,
            _labels: &takt_model::Labels,
        ) -> Option<Vec<RelabelStep>> {
            None
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
        let app = App::new(AppParts {
            store: Arc::new(store),
            config: Arc::default(),
            registry: Arc::new(registry),
            scraping: Arc::new(NoTargets),
            started: jiff::Timestamp::now(),
        });
        Api {
            app,
            queries: Arc::new(Semaphore::new(queries)),
        }
    }

    #[tokio::test]
    async fn an_evaluation_ends_when_nobody_waits_for_it() {
        let root = tempdir().unwrap();
        // No evaluation has its turn, so this one would wait for two minutes.
        let api = api(root.path(), 0);
        let evaluation = || {
            Evaluation::instant(
                &[("query", "up")].into_iter().collect(),
                &api.app.config().query,
            )
            .unwrap()
        };
        let asked = evaluation();
        let canceled = Arc::clone(&asked.options.limits.canceled);
        // A client that disconnects drops the future of its request.
        let waited = time::timeout(
            Duration::from_millis(10),
            evaluate(&api, &Viewer::server(), asked),
        )
        .await;
        assert!(waited.is_err());
        assert!(canceled.load(Ordering::Relaxed));

        let late = evaluation();
        late.options.limits.canceled.store(true, Ordering::Relaxed);
        assert_eq!(
            late.run(
                &api.app.of(&Viewer::server()).store,
                &MemoryAccount::default()
            )
            .unwrap_err(),
            ApiError::from(Error::Canceled)
        );
    }

    #[tokio::test]
    async fn a_query_waits_for_its_turn_no_longer_than_its_timeout() {
        let root = tempdir().unwrap();
        let api = api(root.path(), 0);
        let params: Params = [("query", "1"), ("timeout", "10ms")].into_iter().collect();
        let refused = evaluate(
            &api,
            &Viewer::server(),
            Evaluation::instant(&params, &api.app.config().query).unwrap(),
        )
        .await
        .unwrap_err();
        assert_eq!(refused, ApiError::from(Error::Timeout));
    }

    #[test]
    fn the_limit_cuts_with_a_word() {
        let root = tempdir().unwrap();
        let api = api(root.path(), 1);
        let ask = |limit| {
            // Two series without stored samples: the labels {a="b"} and none.
            let question = "label_replace(vector(1), \"a\", \"b\", \"\", \"\") or vector(2)";
            let params: Params = [("query", question), ("limit", limit), ("time", "1")]
                .into_iter()
                .collect();
            let body = Evaluation::instant(&params, &api.app.config().query)
                .unwrap()
                .run(
                    &api.app.of(&Viewer::server()).store,
                    &MemoryAccount::default(),
                )
                .unwrap()
                .into_body()
                .unwrap();
            serde_json::from_slice::<QueryAnswer>(&body).unwrap()
        };
        assert_eq!(ask("1").data.result.as_array().unwrap().len(), 1);
        assert_eq!(ask("1").warnings, ["results truncated due to limit"]);
        assert_eq!(ask("0").data.result.as_array().unwrap().len(), 2);
        assert!(ask("2").warnings.is_empty());
    }
}
