//! The sources of all data: when each was last seen, with how much, and whether it is complete.

use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use takt_access::{Need, Viewer};
use takt_collector::schedulers::{JOB_RECORDS, NOT_READ};
use takt_model::{Matcher, Timestamp, UnixTime};
use takt_store::{SeriesData, Store, StoreError};

/// Lookback of the series.
const LOOKBACK: Duration = Duration::from_secs(300);

/// Job label of the server's own series.
const OWN_JOB: &str = "takt-server";

/// Asks for the sources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourcesQuestion {}

/// A source of data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceState {
    /// `targets` (scrapes), `events` (of exporters), `job_records` (sacct, slurmrestd or the completion file), `queue` and
    /// `nodes` (slurmctld), `slurmdbd` (history of nodes).
    pub source: String,
    /// Time of the last answer; `None` if there was none.
    pub last_seen: Option<UnixTime>,
    /// Number of things in that answer: exporters, streams, runs, jobs, nodes, events.
    pub items: Option<u64>,
    /// Why the source is not complete; `None` if it is.
    pub problem: Option<String>,
}

impl SourceState {
    /// Returns the words of a page that shows the source's data, if these may be old or not complete.
    pub fn warning(&self) -> Option<String> {
        let what = match self.source.as_str() {
            JOB_RECORDS => "Job records",
            "queue" => "The queue",
            "nodes" => "States of nodes",
            _ => return None,
        };
        let problem = self.problem.as_ref()?;
        Some(format!("{what} may be old or not complete: {problem}."))
    }
}

/// Returns what pages and commands say of sources whose data may be old or not complete. One cause for all of Slurm's
/// sources is said once.
pub fn source_warnings(sources: &[SourceState]) -> Vec<String> {
    let mut warnings: Vec<String> = sources.iter().filter_map(SourceState::warning).collect();
    warnings.dedup_by_key(|text| text.split_once(": ").map(|(_, problem)| problem.to_owned()));
    warnings
}

impl Question for SourcesQuestion {
    const PATH: &'static str = "/api/takt/v1/sources";
    const NEED: Need = Need::SignedIn;
    type Answer = Vec<SourceState>;
    type Data = Store;

    fn answer(
        &self,
        _viewer: &Viewer,
        store: &Store,
        config: &AnswerConfig,
    ) -> Result<Vec<SourceState>, AnswerError> {
        let look = Look {
            store,
            now: SystemTime::now().into(),
        };
        let mut sources = look.polled()?;
        // A command on the files has no poller, and a server that has just started has no series yet.
        let is_polled = config.polls_jobs && config.unserved.is_none();
        let own = look.latest("takt_server_config_reload_successful")?;
        if is_polled && own.is_empty() && sources.is_empty() {
            sources.push(SourceState {
                source: JOB_RECORDS.to_owned(),
                problem: Some(NOT_READ.to_owned()),
                ..SourceState::default()
            });
        }

        sources.extend(look.group("targets", "up", "exporters do not answer")?);
        let streams = "takt_alerts_event_stream_up";
        sources.extend(look.group("events", streams, "streams of events are interrupted")?);
        Ok(sources)
    }
}

struct Look<'a> {
    store: &'a Store,
    now: Timestamp,
}

impl Look<'_> {
    /// The series that have not ended, also while another engine has the samples: pages ask often.
    fn latest(&self, metric: &str) -> Result<Vec<SeriesData>, StoreError> {
        let matchers = [Matcher::metric(metric)];
        let from = self.now.minus(LOOKBACK);
        let mut found = self.store.own_range(&matchers, from, self.now)?;
        // A staleness marker is NaN: the series has ended.
        found.retain(|series| {
            series
                .samples
                .last()
                .is_some_and(|last| !last.value.is_nan())
        });
        Ok(found)
    }

    /// The sources of the poller, from the server's own series.
    fn polled(&self) -> Result<Vec<SourceState>, StoreError> {
        let mut sources: BTreeMap<String, SourceState> = BTreeMap::new();
        for metric in [
            "takt_source_last_success_timestamp_seconds",
            "takt_source_items",
            "takt_source_problem",
        ] {
            for series in self.latest(metric)? {
                let name = series.labels.get("source").unwrap_or_default().to_owned();
                // The three metrics of one source share its label.
                let source = sources.entry(name.clone()).or_default();
                source.source = name;
                let value = series.samples.last().map(|sample| sample.value);
                match metric {
                    "takt_source_problem" => {
                        source.problem = series.labels.get("problem").map(str::to_owned);
                    }
                    "takt_source_items" => source.items = value.map(|value| value as u64),
                    _ => source.last_seen = value.map(|value| UnixTime(value as i64)),
                }
            }
        }

        Ok(sources.into_values().collect())
    }

    /// A source of many parts, of which each has a series that is 1 while it answers.
    fn group(
        &self,
        name: &str,
        metric: &str,
        fault: &str,
    ) -> Result<Option<SourceState>, StoreError> {
        let mut found = self.latest(metric)?;
        // The server scrapes itself, and always answers.
        found.retain(|series| metric != "up" || series.labels.get("job") != Some(OWN_JOB));
        let last = |series: &SeriesData| series.samples.last().copied();
        let answers = found.iter().filter_map(last).filter(|one| one.value == 1.0);
        let (answering, newest) = answers.fold((0, None), |(count, newest), sample| {
            (count + 1, newest.max(Some(sample.at)))
        });

        let silent = found.len() as u64 - answering;
        Ok((!found.is_empty()).then(|| SourceState {
            source: name.to_owned(),
            last_seen: newest.map(Timestamp::whole_seconds),
            items: Some(answering),
            problem: (silent > 0).then(|| format!("{silent} of {} {fault}", found.len())),
        }))
    }
}
