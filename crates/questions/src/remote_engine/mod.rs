//! `[query] remote`: samples of an engine that speaks Prometheus' HTTP API.
//!
//! Takt asks for series, not for results: PromQL stays Takt's own, so that a rule means the same over
//! Prometheus, Mimir and VictoriaMetrics, and everything else that reads samples (pages, efficiency,
//! checks) uses the same four requests. A window is `selector[range]`, an instant selector is its
//! value at each step. docs/remote-query.md has the reasons.

mod answer;

use crate::QueryConfig;
use crate::http_thread::HttpThread;
use answer::{Pair, Row};
use anyhow::Context;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use takt_alerts::notify::http::{FetchedReply, HttpSender, NoReply};
use takt_model::{Labels, METRIC_NAME, MatchOp, Matcher, Timestamp};
use takt_store::{
    Listed, Meter, RemoteEngine, RemoteError, RemoteSeries, STALE, Sample, Steps, is_stale,
};

/// Bytes of one answer. A sample takes about 30.
const ANSWER_MAX: usize = 512 << 20;

/// Points of a series that Prometheus returns in one answer.
const STEPS_MAX: i64 = 11_000;

/// Time between two looks at the caller's deadline.
const POLL: Duration = Duration::from_millis(100);

/// Time for which further requests fail at once after one without a reply. Without it each rule
/// would wait for its own timeout, and events behind them.
const PAUSE: Duration = Duration::from_secs(5);

/// The same after a timeout.
const TIMEOUT_PAUSE: Duration = Duration::from_secs(30);

/// Returns the engine that `[query] remote` names.
///
/// # Errors
/// If a file with a secret or certificate cannot be read, or a header is invalid.
pub fn remote_engine(config: &QueryConfig) -> anyhow::Result<Option<Arc<dyn RemoteEngine>>> {
    let Some(url) = &config.remote else {
        return Ok(None);
    };

    let options = config.http_options().context("query")?;
    let http = HttpSender::new(&options).context("query")?;
    let thread =
        HttpThread::start("takt-remote").context("cannot start a thread for query.remote")?;

    Ok(Some(Arc::new(EngineClient {
        url: url.trim_end_matches('/').to_owned(),
        http,
        thread,
        silent: Mutex::default(),
        metricsql: OnceLock::new(),
    })))
}

/// Asks an engine.
#[derive(Debug)]
struct EngineClient {
    /// Address, without a slash at the end.
    url: String,
    http: HttpSender,
    thread: HttpThread,
    /// The last error without a reply, and how long further requests are not tried.
    silent: Mutex<Option<(Instant, String)>>,
    /// Whether the engine is VictoriaMetrics, once it was asked.
    metricsql: OnceLock<bool>,
}

/// Parameters of a request.
type Form = Vec<(&'static str, String)>;

impl EngineClient {
    /// Posts a form, or requests `path` without one. Stops when the meter says so.
    fn ask<T>(&self, path: &str, form: Option<&Form>, meter: Meter<'_>) -> Result<T, RemoteError>
    where
        T: DeserializeOwned,
    {
        self.check_pause()?;
        let url = format!("{}/api/v1/{path}", self.url);
        let http = self.http.clone();

        let body = form.map(|form| {
            form_urlencoded::Serializer::new(String::new())
                .extend_pairs(form)
                .finish()
        });
        // The request runs on its own thread, so that this one can look at the meter and give up.
        let request = async move { http.fetch(&url, body, ANSWER_MAX).await };
        let in_flight = self.thread.begin(request).ok_or_else(|| self.lost())?;
        let reply = loop {
            match in_flight.reply.recv_timeout(POLL) {
                Ok(reply) => break reply,
                Err(RecvTimeoutError::Timeout) if meter(0) => {}
                Err(RecvTimeoutError::Timeout) => {
                    // Otherwise the request would run to its end.
                    in_flight.abort.abort();
                    return Err(RemoteError::GivenUp);
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.lost()),
            }
        };
        match reply {
            Ok(reply) => {
                // An answer of any kind ends the pause: the engine is there.
                self.note(None);
                self.read(&reply)
            }
            Err(NoReply { error, was_sent }) => {
                let pause = if was_sent { TIMEOUT_PAUSE } else { PAUSE };
                self.note(Some((Instant::now() + pause, error.clone())));
                Err(self.silent(error))
            }
        }
    }

    fn read<T>(&self, reply: &FetchedReply) -> Result<T, RemoteError>
    where
        T: DeserializeOwned,
    {
        let url = self.url.clone();
        if reply.is_cut {
            let error = format!("more than {} MiB", ANSWER_MAX >> 20);
            return Err(RemoteError::TooMuch { url, error });
        }
        let status = reply.status;
        // A body that is cut is no JSON; the size is the better message.
        match (status, answer::read(&reply.body)) {
            (200..=299, Ok(data)) => Ok(data),
            (200..=299, Err(error)) => Err(RemoteError::Malformed { url, error }),
            // Prometheus, Mimir and VictoriaMetrics refuse a query over their limits so.
            (422, _) => {
                let error = answer::words(&reply.body);
                Err(RemoteError::TooMuch { url, error })
            }
            _ => {
                let error = format!("HTTP {status}: {}", answer::words(&reply.body));
                Err(RemoteError::Refused { url, error })
            }
        }
    }

    fn check_pause(&self) -> Result<(), RemoteError> {
        let known = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((until, error)) if Instant::now() < *until => Err(self.silent(error.clone())),
            _ => Ok(()),
        }
    }

    fn note(&self, silent: Option<(Instant, String)>) {
        *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = silent;
    }

    fn silent(&self, error: String) -> RemoteError {
        let url = self.url.clone();
        RemoteError::Silent { url, error }
    }

    fn lost(&self) -> RemoteError {
        self.silent("the request was given up".to_owned())
    }

    /// Asks for rows, and makes series of them in the order of their labels.
    fn rows(
        &self,
        path: &str,
        form: &Form,
        meter: Meter<'_>,
    ) -> Result<Vec<RemoteSeries>, RemoteError> {
        let found: answer::Rows = self.ask(path, Some(form), &mut *meter)?;
        let mut series = Vec::with_capacity(found.result.len());
        for row in found.result {
            // Samples are floats: without the error, the series would look empty.
            if row.has_histograms() {
                let url = self.url.clone();
                return Err(RemoteError::Native { url });
            }
            let Row {
                metric,
                value,
                values,
                ..
            } = row;
            let samples: Vec<Sample> = values.into_iter().chain(value).map(Pair::sample).collect();
            // Counted before they are kept, since the meter bounds the memory.
            if !meter(samples.len()) {
                return Err(RemoteError::GivenUp);
            }
            let labels: Labels = metric.iter().collect();
            series.push(RemoteSeries { labels, samples });
        }
        series.sort_unstable_by(|a, b| a.labels.cmp(&b.labels));
        Ok(series)
    }

    /// Asks for the value of an expression at one time.
    fn instant(
        &self,
        expr: String,
        at: Timestamp,
        lookback_ms: i64,
        meter: Meter<'_>,
    ) -> Result<Vec<RemoteSeries>, RemoteError> {
        let mut form = vec![("query", expr), ("time", seconds(at))];
        form.extend(evaluation(lookback_ms));
        self.rows("query", &form, meter)
    }

    /// Whether the engine is VictoriaMetrics: Prometheus has no function `now`.
    fn speaks_metricsql(&self, meter: Meter<'_>) -> Result<bool, RemoteError> {
        if let Some(&known) = self.metricsql.get() {
            return Ok(known);
        }
        let form = vec![("query", "now()".to_owned())];
        let speaks = match self.rows("query", &form, meter) {
            Ok(_) => true,
            // An error of the query is the answer: the function is unknown.
            Err(RemoteError::Refused { .. } | RemoteError::TooMuch { .. }) => false,
            Err(error) => return Err(error),
        };
        Ok(*self.metricsql.get_or_init(|| speaks))
    }

    fn listed<T>(&self, path: &str, form: &Form) -> Result<T, RemoteError>
    where
        T: DeserializeOwned,
    {
        self.ask(path, Some(form), &mut |_| true)
    }
}

impl RemoteEngine for EngineClient {
    fn range(
        &self,
        matchers: &[Matcher],
        from: Timestamp,
        to: Timestamp,
        meter: Meter<'_>,
    ) -> Result<Vec<RemoteSeries>, RemoteError> {
        if to < from {
            return Ok(Vec::new());
        }
        // Open on the left in Prometheus 3, closed in Prometheus 2.
        let length = (to - from).saturating_add(1);
        let expr = format!("{}[{length}ms]", selector(matchers));
        let mut found = self.instant(expr, to, length, &mut *meter)?;

        let samples = || found.iter().flat_map(|series| &series.samples);
        // VictoriaMetrics stores no NaN but staleness markers, and returns them as NaN.
        if samples().any(|sample| sample.value.is_nan()) && self.speaks_metricsql(meter)? {
            for sample in found
                .iter_mut()
                .flat_map(|series| &mut series.samples)
                .filter(|sample| sample.value.is_nan())
            {
                sample.value = STALE;
            }
        }

        for series in &mut found {
            series
                .samples
                .retain(|sample| sample.at >= from && sample.at <= to);
        }
        found.retain(|series| !series.samples.is_empty());
        Ok(found)
    }

    fn steps(
        &self,
        matchers: &[Matcher],
        steps: Steps,
        meter: Meter<'_>,
    ) -> Result<Vec<RemoteSeries>, RemoteError> {
        let Steps {
            first,
            last,
            step_ms,
            lookback_ms,
        } = steps;
        // A single step is an instant query.
        if step_ms == 0 || last - first < step_ms {
            let mut found = self.instant(selector(matchers), first, lookback_ms, meter)?;
            // VictoriaMetrics may round it.
            found
                .iter_mut()
                .flat_map(|series| &mut series.samples)
                .for_each(|sample| sample.at = first);
            return Ok(found);
        }

        let mut all: BTreeMap<Labels, Vec<Sample>> = BTreeMap::new();
        let mut from = first;
        while from <= last {
            // The most points that Prometheus gives in one answer; a longer range is asked in parts.
            let to = from
                .plus_ms(step_ms.saturating_mul(STEPS_MAX - 1))
                .min(last);
            let mut form = vec![
                ("query", selector(matchers)),
                ("start", seconds(from)),
                ("end", seconds(to)),
                ("step", seconds(Timestamp(step_ms))),
            ];
            form.extend(evaluation(lookback_ms));
            for series in self.rows("query_range", &form, &mut *meter)? {
                all.entry(series.labels).or_default().extend(series.samples);
            }
            // The next part begins one step behind the last point.
            from = from.plus_ms(step_ms.saturating_mul(STEPS_MAX));
        }
        let series = all
            .into_iter()
            .map(|(labels, samples)| RemoteSeries { labels, samples })
            .collect();
        Ok(series)
    }

    fn newest(
        &self,
        matchers: &[Matcher],
        at: Timestamp,
        lookback: Duration,
        meter: Meter<'_>,
    ) -> Result<Vec<RemoteSeries>, RemoteError> {
        let lookback_ms = i64::try_from(lookback.as_millis()).unwrap_or(i64::MAX);
        let mut alive = self.instant(selector(matchers), at, lookback_ms, &mut *meter)?;
        // The values alone have the time of the query, not of their samples.
        let is_one_metric =
            |matcher: &Matcher| matcher.name() == METRIC_NAME && matcher.op() == MatchOp::Equal;
        if let Some(metric) = matchers.iter().find(|one| is_one_metric(one)) {
            // `timestamp` drops the name, which is the same for all.
            let expr = format!("timestamp({})", selector(matchers));
            let times: BTreeMap<Labels, f64> = self
                .instant(expr, at, lookback_ms, &mut *meter)?
                .into_iter()
                .filter_map(|mut series| {
                    series.labels.set(METRIC_NAME, metric.value());
                    Some((series.labels, series.samples.last()?.value))
                })
                .collect();
            alive.retain_mut(|series| match times.get(&series.labels) {
                Some(time) => {
                    let at = Timestamp((time * 1000.0).round() as i64);
                    series.samples.iter_mut().for_each(|sample| sample.at = at);
                    true
                }
                None => false,
            });
            return Ok(alive);
        }
        // Without a single metric, `timestamp` would drop the names, so the window is read.
        let alive: BTreeSet<Labels> = alive.into_iter().map(|series| series.labels).collect();
        // The window of an instant query is open on the left.
        let from = at.minus(lookback).plus(Duration::from_millis(1));
        let mut found = self.range(matchers, from, at, meter)?;

        found.retain_mut(|series| {
            // Only the last sample of the window; a series that ended has a stale marker there.
            series.samples.drain(..series.samples.len() - 1);
            alive.contains(&series.labels) && !series.samples.iter().any(|one| is_stale(one.value))
        });
        Ok(found)
    }

    fn series(&self, listed: Listed<'_>) -> Result<Vec<Labels>, RemoteError> {
        let found: Vec<BTreeMap<String, String>> = self.listed("series", &listing(listed))?;
        Ok(found.iter().map(|labels| labels.iter().collect()).collect())
    }

    fn label_names(&self, listed: Listed<'_>) -> Result<Vec<String>, RemoteError> {
        let mut found: Vec<String> = self.listed("labels", &listing(listed))?;
        found.sort_unstable();
        Ok(found)
    }

    fn label_values(&self, name: &str, listed: Listed<'_>) -> Result<Vec<String>, RemoteError> {
        // The one request that Prometheus takes by GET only.
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&listing(listed));
        let name: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
        let path = format!("label/{name}/values?{}", query.finish());
        let mut found: Vec<String> = self.ask(&path, None, &mut |_| true)?;
        found.sort_unstable();
        Ok(found)
    }

    fn probe(&self) -> Result<(), RemoteError> {
        let form = vec![("query", "vector(1)".to_owned())];
        self.rows("query", &form, &mut |_| true).map(drop)
    }
}

/// The selector of the conditions.
fn selector(matchers: &[Matcher]) -> String {
    let mut conditions: Vec<String> = matchers.iter().map(Matcher::to_string).collect();

    // Engines refuse a selector that accepts a series without labels.
    if matchers.iter().all(|matcher| matcher.accepts("")) {
        conditions.push(format!("{METRIC_NAME}!=\"\""));
    }
    format!("{{{}}}", conditions.join(","))
}

/// Parameters that make engines evaluate as Prometheus does. Each engine ignores those of others.
fn evaluation(lookback_ms: i64) -> [(&'static str, String); 5] {
    let lookback = format!("{lookback_ms}ms");
    [
        // Prometheus.
        ("lookback_delta", lookback.clone()),
        // VictoriaMetrics: its own look-back, no cache (which moves steps), the newest samples too,
        // and an error instead of a part of the answer.
        ("max_lookback", lookback),
        ("nocache", "1".to_owned()),
        ("latency_offset", "1ms".to_owned()),
        ("deny_partial_response", "1".to_owned()),
    ]
}

/// Parameters of a listing. Without times VictoriaMetrics lists the last minutes only.
fn listing(listed: Listed<'_>) -> Form {
    let latest = Timestamp::from(SystemTime::now()).plus(Duration::from_secs(86_400));
    vec![
        ("match[]", selector(listed.matchers)),
        // For VictoriaMetrics, 0 is not a time.
        ("start", seconds(listed.from.max(Timestamp(1000)))),
        ("end", seconds(listed.to.min(latest))),
    ]
}

/// Milliseconds as seconds, exactly.
fn seconds(at: Timestamp) -> String {
    // Without floats: 1700000000.123 has no exact double.
    let sign = if at.0 < 0 { "-" } else { "" };
    let whole = at.0.unsigned_abs() / 1000;
    let rest = at.0.unsigned_abs() % 1000;
    format!("{sign}{whole}.{rest:03}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]

    fn a_selector_always_asks_for_something() {
        let job = Matcher::equal("job", "a\"b");
        let absent = Matcher::equal("node", "");
        assert_eq!(selector(&[job]), r#"{job="a\"b"}"#);
        assert_eq!(selector(&[absent]), r#"{node="",__name__!=""}"#);
        assert_eq!(selector(&[]), r#"{__name__!=""}"#);
    }

    #[test]
    fn times_are_exact() {
        for (at, text) in [
            (1_700_000_000_123, "1700000000.123"),
            (15_000, "15.000"),
            // Before 1970, the sign is in front of a second of 0.
            (-1, "-0.001"),
        ] {
            assert_eq!(seconds(Timestamp(at)), text);
        }
    }
}
