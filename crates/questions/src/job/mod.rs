//! One job in full: its allocation, its use over time, the verdict, and the cause of a failure.

mod kept;
mod measured;
mod pace;
mod report;

pub use kept::{kept_axis, kept_curves};
pub use measured::{GpuReport, NodeReport};
pub use pace::{PaceReport, SlowJob, slow_jobs_now};
pub use report::{JobHint, JobPhase, JobReport};

use super::events::{ClusterEvent, EventsQuestion};
use super::forecast::add_forecasts;
use super::listed_run::{ListedRun, listed_run};
use super::near::did_you_mean;
use super::period::{rfc3339, the_common_zone, the_instant, the_interval};
use super::visible::{own_runs, visible_runs};
use super::{AnswerConfig, AnswerError, Question};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use takt_access::{Need, Owner, Viewer};
use takt_jobs::{JobRun, nodelist};
use takt_model::UnixTime;
use takt_store::{JobFilter, JobOrder, JobSort, Records, Store};

/// Asks for one job in full.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobQuestion {
    /// Job id: 123, 123_4 (array task), 123+0 (component).
    pub job_id: String,
    /// Time of submission of one run: seconds since 1970, or a time such as 2026-10-02T08:00:00Z. Default: the newest run.
    pub submit: Option<String>,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
    /// Start of the curves. Default: the start of the run.
    pub from: Option<String>,
    /// End of the curves. Default: the end of the run.
    pub to: Option<String>,
    /// Maximum number of steps of a curve.
    pub steps: usize,
}

impl Default for JobQuestion {
    fn default() -> Self {
        Self {
            job_id: String::new(),
            submit: None,
            cluster: None,
            from: None,
            to: None,
            steps: 120,
        }
    }
}

/// One job in full.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobAnswer {
    /// Job id in the question.
    pub job_id: String,
    /// Time zone of the cluster (IANA name).
    pub timezone: String,
    /// Time of the answer.
    pub at: UnixTime,
    /// The run in full. `None` if the id is that of an array or of several components.
    pub report: Option<Box<JobReport>>,
    /// Tasks or components and their states. `None` for a single job.
    pub array: Option<ArrayReport>,
    /// Runs of this id, newest first: the tasks of an array, and earlier runs of a requeued job.
    pub runs: Vec<ListedRun>,
    /// Other jobs of the same user with the same name, newest first.
    pub same_name: Vec<ListedRun>,
    /// Other jobs on the same nodes at the same time.
    pub neighbours: Vec<ListedRun>,
    /// Events of the run's nodes while it ran, without those of GPUs that it did not hold, newest first.
    #[serde(default)]
    pub events: Vec<ClusterEvent>,
}

/// Tasks of an array, or components of a heterogeneous job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayReport {
    /// Number of tasks.
    pub tasks: usize,
    /// Number of tasks by state, most frequent first.
    pub states: Vec<StateCount>,
}

/// Number of runs in a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateCount {
    /// Slurm's state.
    pub state: String,
    /// Number of runs.
    pub runs: usize,
}

/// Maximum number of runs of one job in an answer: the largest array that Slurm allows by default
/// has 1,001 tasks.
const MOST_RUNS: usize = 5000;

/// Maximum number of other jobs in an answer.
const MOST_OTHERS: usize = 12;

/// Maximum number of steps of a curve.
const MOST_STEPS: usize = 2000;

impl Question for JobQuestion {
    const PATH: &'static str = "/api/takt/v1/job";
    const NEED: Need = Need::SignedIn;
    type Answer = JobAnswer;
    type Data = Store;

    fn answer(
        &self,
        viewer: &Viewer,
        store: &Store,
        config: &AnswerConfig,
    ) -> Result<JobAnswer, AnswerError> {
        let records = Records::of(store.database());
        let zone = the_common_zone(&records, self.cluster.as_deref(), &config.accounting)?;
        let span = the_interval(self.from.as_deref(), self.to.as_deref(), &zone)?;
        let now = UnixTime::from(Timestamp::now());
        let list = List {
            viewer,
            records: &records,
            config,
            now,
        };

        let runs = list.of(JobFilter {
            cluster: self.cluster.clone(),
            job_id: Some(self.job_id.clone()),
            limit: Some(MOST_RUNS),
            ..JobFilter::default()
        })?;
        if runs.is_empty() {
            return Err(unknown_job(viewer, &records, &self.job_id)?);
        }
        refuse_several_clusters(&runs, &self.job_id)?;

        let ids: BTreeSet<&str> = runs.iter().map(|run| run.run.job_id.as_str()).collect();
        let chosen = self.chosen(&runs, ids.len(), &zone)?.cloned();
        let array = (ids.len() > 1).then(|| array_report(&runs));
        let (same_name, neighbours) = match &chosen {
            Some(one) => (list.same_name(&one.run)?, list.neighbours(&one.run)?),
            None => (Vec::new(), Vec::new()),
        };

        let report = match chosen {
            Some(one) => {
                let request = report::Request {
                    sees: seen(viewer, &one.run),
                    zone: &zone,
                    now,
                    span,
                    steps: self.steps.clamp(1, MOST_STEPS),
                };
                Some(Box::new(report::report(store, config, one, &request)?))
            }
            None => None,
        };

        let events = match &report {
            Some(report) => events_of(report, now, viewer, store, config)?,
            None => Vec::new(),
        };
        Ok(JobAnswer {
            job_id: self.job_id.clone(),
            timezone: zone_name(&zone),
            at: now,
            report,
            array,
            runs,
            same_name,
            neighbours,
            events,
        })
    }
}

/// Nodes of a job whose events are read.
const EVENT_NODES: usize = 8;

/// Returns the events of the nodes of a run while it ran, newest first.
fn events_of(
    report: &JobReport,
    now: UnixTime,
    viewer: &Viewer,
    store: &Store,
    config: &AnswerConfig,
) -> Result<Vec<ClusterEvent>, AnswerError> {
    let Some(start) = report.run.start else {
        return Ok(Vec::new());
    };
    let own: BTreeSet<&str> = report
        .by_node
        .iter()
        .flat_map(|node| node.gpus.iter().filter_map(|gpu| gpu.uuid.as_deref()))
        .collect();

    let mut events = Vec::new();
    for node in report.by_node.iter().take(EVENT_NODES) {
        let question = EventsQuestion {
            from: start,
            // The last lines of the kernel's log come after the end.
            to: report.run.end.map_or(now + 1, |end| end + 60),
            node: Some(node.node.clone()),
            cluster: Some(report.run.cluster.clone()),
            ..EventsQuestion::default()
        };
        events.extend(question.answer(viewer, store, config)?);
    }
    events.retain(|event| event.uuid.as_deref().is_none_or(|uuid| own.contains(uuid)));
    events.sort_by_key(|event| Reverse(event.at));
    Ok(events)
}

impl JobQuestion {
    /// The run to report in full: the one with the submission of the question, else the newest of
    /// the id. `None` for the id of an array.
    fn chosen<'r>(
        &self,
        runs: &'r [ListedRun],
        ids: usize,
        zone: &TimeZone,
    ) -> Result<Option<&'r ListedRun>, AnswerError> {
        let Some(submit) = &self.submit else {
            return Ok(runs
                .iter()
                .find(|one| ids == 1 || one.run.job_id == self.job_id));
        };
        let seconds = submit.parse();
        let at = seconds.or_else(|_| the_instant(submit, zone))?;
        let found = runs.iter().find(|one| one.run.submit == at);
        found.map(Some).ok_or_else(|| {
            let known: Vec<String> = runs
                .iter()
                .take(MOST_OTHERS)
                .map(|one| format!("{} ({})", rfc3339(one.run.submit), one.run.state))
                .collect();
            AnswerError::Input(format!(
                "job {} has no run that was submitted at {submit}; its runs: {}",
                self.job_id,
                known.join(", ")
            ))
        })
    }
}

/// Returns which parts of a run the viewer may see. Job ids come round again, so another run of the id says nothing.
fn seen(viewer: &Viewer, run: &JobRun) -> report::Seen {
    let owner = Owner::new(&run.user, &run.account);
    report::Seen {
        measurements: viewer.sees_measurements(owner),
        details: viewer.sees_details(owner),
    }
}

/// Lists of runs.
struct List<'l> {
    viewer: &'l Viewer,
    records: &'l Records<'l>,
    config: &'l AnswerConfig,
    now: UnixTime,
}

impl List<'_> {
    fn of(&self, filter: JobFilter) -> Result<Vec<ListedRun>, AnswerError> {
        let order = JobOrder {
            by: JobSort::Submit,
            is_descending: true,
            now: self.now,
        };
        let filter = JobFilter {
            visible: visible_runs(self.viewer),
            ..filter
        };
        let found = self.records.listed(&filter, order, None)?;
        let rules = &self.config.accounting.efficiency;
        let mut listed: Vec<ListedRun> = found
            .into_iter()
            .map(|row| listed_run(row, rules, self.viewer))
            .collect();
        add_forecasts(self.records, self.config, self.now, &mut listed)?;
        Ok(listed)
    }

    fn same_name(&self, run: &JobRun) -> Result<Vec<ListedRun>, AnswerError> {
        let Some(name) = run.name.as_ref().filter(|name| !name.is_empty()) else {
            return Ok(Vec::new());
        };
        let mut found = self.of(JobFilter {
            cluster: Some(run.cluster.clone()),
            user: Some(run.user.clone()),
            whole_name: Some(name.clone()),
            limit: Some(MOST_OTHERS + 1),
            ..JobFilter::default()
        })?;
        found.retain(|one| one.run.job_id != run.job_id);
        found.truncate(MOST_OTHERS);
        Ok(found)
    }

    /// The other runs on the run's first node while it ran.
    fn neighbours(&self, run: &JobRun) -> Result<Vec<ListedRun>, AnswerError> {
        let (Some(start), Some(list)) = (run.start, &run.node_list) else {
            return Ok(Vec::new());
        };
        let first = nodelist::expand(list)
            .ok()
            .and_then(|names| names.into_iter().next());
        let end = run.end.unwrap_or(self.now);
        let mut found = self.of(JobFilter {
            cluster: Some(run.cluster.clone()),
            node: Some(first.unwrap_or_else(|| list.clone())),
            from: Some(start),
            to: Some(end.max(start + 1)),
            limit: Some(MOST_OTHERS * 4),
            ..JobFilter::default()
        })?;
        let was_there = |other: &JobRun| {
            let begin = other.start.unwrap_or(UnixTime::MAX);
            other.job_id != run.job_id && begin < end && other.end.is_none_or(|end| end > start)
        };
        found.retain(|one| was_there(&one.run));
        found.truncate(MOST_OTHERS);
        Ok(found)
    }
}

fn array_report(runs: &[ListedRun]) -> ArrayReport {
    // A requeued task has several runs; its newest one counts.
    let mut newest: BTreeMap<&str, &JobRun> = BTreeMap::new();
    for one in runs.iter().rev() {
        newest.insert(&one.run.job_id, &one.run);
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for run in newest.values() {
        *counts.entry(&run.state).or_default() += 1;
    }
    let mut states: Vec<StateCount> = counts
        .into_iter()
        .map(|(state, runs)| StateCount {
            state: state.to_owned(),
            runs,
        })
        .collect();
    states.sort_by_key(|one| Reverse(one.runs));
    ArrayReport {
        tasks: newest.len(),
        states,
    }
}

fn refuse_several_clusters(runs: &[ListedRun], job_id: &str) -> Result<(), AnswerError> {
    let clusters: BTreeSet<&str> = runs.iter().map(|one| one.run.cluster.as_str()).collect();
    if clusters.len() < 2 {
        return Ok(());
    }
    let names: Vec<&str> = clusters.into_iter().collect();
    Err(AnswerError::Usage(format!(
        "several clusters ({}) have a job {job_id}; choose one",
        names.join(", ")
    )))
}

/// Time after a poll in which the next one is expected.
const POLL_EXPECTED_SECONDS: i64 = 3600;

/// The error for a job without records, with similar job ids. While a scheduler is polled, it says
/// when a job that was just submitted appears.
fn unknown_job(
    viewer: &Viewer,
    records: &Records<'_>,
    job_id: &str,
) -> Result<AnswerError, AnswerError> {
    let visible = visible_runs(viewer);
    let named = (!viewer.sees_all()).then(|| own_runs(viewer));
    let found = records.search(job_id, MOST_OTHERS, visible.as_ref(), named.as_ref())?;
    let named = found.job_names.iter().map(|(_, id, _)| id.as_str());
    let near = match found.job_names.first() {
        Some((name, id, _)) if !job_id.is_empty() => {
            format!("; the newest job named {name} is {id}")
        }
        _ => did_you_mean(job_id, named),
    };
    let age = |polled: i64| Timestamp::now().as_second() - polled;
    let expected = records
        .last_poll()?
        .map(age)
        .filter(|age| (0..POLL_EXPECTED_SECONDS).contains(age));
    let later = match expected {
        Some(age) if near.is_empty() && job_id.starts_with(|c: char| c.is_ascii_digit()) => {
            format!("; a new job appears with the next poll of Slurm, the last was {age} s ago")
        }
        _ => String::new(),
    };
    Ok(AnswerError::Input(format!(
        "no job {job_id} is recorded{near}{later}"
    )))
}

fn zone_name(zone: &TimeZone) -> String {
    zone.iana_name().unwrap_or("UTC").to_owned()
}

#[cfg(test)]
mod tests;
