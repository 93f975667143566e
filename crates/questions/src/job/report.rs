//! The report of one run.

use super::kept::{KeptReport, is_measured};
use super::measured::{NodeReport, node_reports};
use super::pace::{PaceReport, pace_of};
use crate::assess;
use crate::forecast::StartForecast;
use crate::listed_run::{ListedRun, WhyWaiting};
use crate::{AnswerConfig, AnswerError};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use takt_accounting::efficiency::{
    Advice, Axis, CgroupResource, Efficiency, Grade, NodeFigures, Split, Verdict,
    assess as efficiency_of, hints, verdict, why_unmeasured,
};
use takt_accounting::{Cost, Failure, HeldAmounts, Rates, Traces, XidMeaning, failure, has_failed};
use takt_alerts::events::xid::XidTable;
use takt_jobs::{JobRun, NodeEvent, nodelist};
use takt_model::UnixTime;
use takt_store::{Records, Store};

/// One run in full.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// The run.
    #[serde(flatten)]
    pub run: JobRun,
    /// Stage of the run.
    pub phase: JobPhase,
    /// Time from the submission to the start, or until now, in seconds.
    pub waited_seconds: u64,
    /// Run time until the end, or until now, in seconds. `None` before the start.
    pub ran_seconds: Option<u64>,
    /// Time at which a running run reaches its time limit.
    pub ends_by: Option<UnixTime>,
    /// Run time over time limit, 0 to 1.
    pub limit_ratio: Option<f64>,
    /// Why the run is pending.
    pub waiting: Option<WhyWaiting>,
    /// When a pending run starts, or why that is not known. `None` for other runs.
    #[serde(default)]
    pub start_forecast: Option<StartForecast>,
    /// Verdict on the use of the allocation; `None` before the start.
    pub verdict: Option<Verdict>,
    /// Use of the allocation; of a running run, until now.
    pub efficiency: Option<Efficiency>,
    /// Why the use of CPUs was not measured, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_unmeasured: Option<String>,
    /// Why the use of memory was not measured, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_unmeasured: Option<String>,
    /// GPU-hours by category.
    pub split_gpu_hours: Option<Split>,
    /// Wasted GPU-hours. `None` if too little was measured.
    pub wasted_gpu_hours: Option<f64>,
    /// Energy of the GPUs in kWh, with its CO2 and the price of the allocation.
    pub cost: Option<Cost>,
    /// Currency of the price; `None` without prices.
    pub currency: Option<String>,
    /// Proposed changes, largest savings first.
    pub hints: Vec<JobHint>,
    /// Cause of the failure; `None` unless the run failed.
    pub failure: Option<Failure>,
    /// Time axis of the curves; `None` before the start.
    pub axis: Option<Axis>,
    /// Use by node and GPU.
    pub by_node: Vec<NodeReport>,
    /// Whether one GPU makes the others wait; `None` with too few GPUs, or without samples of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<PaceReport>,
}

/// Stage of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobPhase {
    /// The run has not started.
    Pending,
    /// The run holds its resources.
    Running,
    /// The run has ended.
    Finished,
}

/// A proposed change to the job's script.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobHint {
    /// Line to paste into the script.
    pub line: String,
    /// Observation that leads to the proposal.
    pub why: String,
    /// GPU-hours that the change would have saved.
    pub gpu_hours: f64,
}

/// The parts of a run that the viewer may see.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// Whether the viewer sees its measurements.
    pub measurements: bool,
    /// Whether the viewer sees its name, its exit code, and why it failed.
    pub details: bool,
}

/// The part of the question that a report depends on.
pub(super) struct Request<'q> {
    /// The parts that the viewer may see.
    pub sees: Seen,
    /// Time zone of the cluster.
    pub zone: &'q TimeZone,
    /// Current time.
    pub now: UnixTime,
    /// Time of the curves, where it is asked for.
    pub span: (Option<UnixTime>, Option<UnixTime>),
    /// Maximum number of steps of a curve.
    pub steps: usize,
}

/// Shortest step of a curve, in milliseconds: the usual time between two scrapes.
pub(super) const SHORTEST_STEP_MS: i64 = 15_000;

const HOUR: f64 = 3600.0;

/// The report of one run.
///
/// # Errors
/// When the store fails, or the time of the curves is outside the run.
pub(super) fn report(
    store: &Store,
    config: &AnswerConfig,
    one: ListedRun,
    request: &Request<'_>,
) -> Result<JobReport, AnswerError> {
    let ListedRun {
        run,
        waiting,
        start_forecast,
        ..
    } = one;
    let now = request.now;
    let phase = match (run.start, run.end) {
        (_, Some(_)) => JobPhase::Finished,
        (Some(_), None) => JobPhase::Running,
        (None, None) => JobPhase::Pending,
    };
    let ran_seconds = run.start.map(|start| run.end.unwrap_or(now).since(start));
    let limit = run.timelimit.filter(|limit| *limit > 0);

    let mut report = JobReport {
        phase,
        waited_seconds: run.start.or(run.end).unwrap_or(now).since(run.submit),
        ran_seconds,
        ends_by: run
            .start
            .filter(|_| phase == JobPhase::Running)
            .and_then(|start| Some(start + i64::try_from(limit?).ok()?)),
        limit_ratio: ran_seconds
            .zip(limit)
            .map(|(ran, limit)| ran as f64 / limit as f64),
        waiting,
        start_forecast,
        verdict: None,
        efficiency: None,
        cpu_unmeasured: None,
        memory_unmeasured: None,
        split_gpu_hours: None,
        wasted_gpu_hours: None,
        cost: None,
        currency: None,
        hints: Vec::new(),
        failure: None,
        axis: None,
        by_node: Vec::new(),
        pace: None,
        run,
    };

    if let Some(start) = report.run.start
        && request.sees.measurements
    {
        measure(store, config, &mut report, start, request)?;
    } else {
        report.failure = cause(store, &report.run, &[])?;
    }
    if !request.sees.details {
        report.failure = None;
    }
    Ok(report)
}

/// Adds the figures that depend on measurements.
fn measure(
    store: &Store,
    config: &AnswerConfig,
    report: &mut JobReport,
    start: UnixTime,
    request: &Request<'_>,
) -> Result<(), AnswerError> {
    let records = Records::of(store.database());
    let rules = &config.accounting.efficiency;
    let until_now = JobRun {
        end: Some(report.run.end.unwrap_or(request.now).max(start)),
        ..report.run.clone()
    };
    let end = until_now.end.unwrap_or(start);
    let from = request.span.0.unwrap_or(start).max(start);
    let to = request.span.1.unwrap_or(end).min(end);
    if to < from {
        return Err(AnswerError::Input(format!(
            "job {} did not run in this time",
            report.run.job_id
        )));
    }
    let is_final = report.phase == JobPhase::Finished;
    // The stored assessment and the kept curves outlive the samples.
    let (stored, kept) = if is_final {
        let kept = KeptReport::of(&records, &report.run)?;
        (records.efficiency_of(&report.run)?, kept)
    } else {
        (None, None)
    };
    let is_whole = request.span == (None, None) && stored.is_some();
    let kept = kept.map(|kept| kept.part(from, to, request.steps, rules));
    let axis = Axis::new(from.into(), to.into(), request.steps, SHORTEST_STEP_MS);
    let figures = if is_whole && kept.is_some() {
        Vec::new()
    } else {
        assess::measure(store, &until_now, rules, axis).map_err(AnswerError::failed)?
    };
    let seen = stored.or_else(|| efficiency_of(&until_now, &figures, rules));
    let mut advice = Vec::new();
    if let Some(seen) = seen {
        let found = verdict(&report.run, &seen, rules, is_final);
        if found.grade != Grade::TooEarly {
            advice = hints(&report.run, &seen, rules);
        }
        let mut split = Split::default();
        split.add(&seen.split(), 1.0 / HOUR);
        report.wasted_gpu_hours = split.known_waste();
        report.split_gpu_hours = Some(split);
        let rates = Rates::new(&config.accounting.rates, request.zone);
        report.cost = Some(cost(&until_now, &seen, &rates));
        report.currency = rates
            .has_prices()
            .then(|| config.accounting.rates.currency.clone())
            .flatten();
        report.verdict = Some(found);
        report.efficiency = Some(seen);
    }
    report.cpu_unmeasured = why_unmeasured(CgroupResource::Cpu, &figures);
    report.memory_unmeasured = why_unmeasured(CgroupResource::Memory, &figures);
    report.failure = cause(store, &report.run, &figures)?;
    let held = records.gpus_of(&report.run.cluster, &report.run.job_id, report.run.submit)?;
    report.by_node = node_reports(&report.run, figures, &held, axis, rules);
    report.axis = Some(axis);
    if let Some(kept) = kept
        && !report.by_node.iter().any(is_measured)
    {
        report.by_node = kept.by_node;
        report.axis = Some(kept.axis);
        // The record may have been corrected since; only the samples knew more.
        let is_more = |now: &Failure, kept: &Failure| kept.evidence.len() >= now.evidence.len();
        report.failure = match (report.failure.take(), kept.failure) {
            (Some(now), Some(kept)) if is_more(&now, &kept) => Some(kept),
            (now, _) => now,
        };
    }

    report.pace = pace_of(store, report, request.now, request.zone)?;

    // Only the whole report knows what the kernel killed; the record may say no more than FAILED.
    let cause = report.failure.as_ref().map(|failure| failure.cause);
    advice.retain(|advice| !cause.is_some_and(|cause| cause.forbids(advice.fix)));
    report.hints = advice.into_iter().map(hint).collect();
    Ok(())
}

fn hint(advice: Advice) -> JobHint {
    JobHint {
        line: advice.fix.line(advice.amount),
        why: advice.why,
        gpu_hours: advice.spares_gpu_seconds / HOUR,
    }
}

/// Price, energy and CO2 of a run.
fn cost(run: &JobRun, seen: &Efficiency, rates: &Rates) -> Cost {
    let joules = seen.gpu_energy_joules.unwrap_or(0.0);
    let held = HeldAmounts {
        gpus: run.gpus.unwrap_or(0),
        cpus: run.cpus.unwrap_or(0),
        mem_bytes: run.mem_bytes.unwrap_or(0),
        gpu_watts: joules / seen.held_seconds.max(1) as f64,
    };
    let start = run.start.unwrap_or(run.submit);
    let end = run.end.unwrap_or(start);
    rates.cost(&held, run.gpu_model.as_deref(), start, end)
}

/// Returns the cause of a run's failure; `None` unless the run failed.
///
/// # Errors
/// When the store fails.
pub(super) fn cause(
    store: &Store,
    run: &JobRun,
    nodes: &[NodeFigures],
) -> Result<Option<Failure>, AnswerError> {
    // Without a failure, the events are not needed.
    let start = run.start.or(run.end).filter(|_| has_failed(run));
    let Some(start) = start else {
        return Ok(None);
    };
    let events = Records::of(store.database()).node_events(&run.cluster, start)?;
    Ok(cause_among(&events, run, nodes))
}

/// Like [`cause`], with the events of the run's cluster since its start or earlier.
pub(super) fn cause_among(
    events: &[NodeEvent],
    run: &JobRun,
    nodes: &[NodeFigures],
) -> Option<Failure> {
    let start = run.start.or(run.end).filter(|_| has_failed(run))?;
    let events: Vec<NodeEvent> = events
        .iter()
        .filter(|event| event.to.is_none_or(|to| to > start))
        .cloned()
        .collect();
    let names = run
        .node_list
        .as_deref()
        .and_then(|list| nodelist::expand(list).ok())
        .unwrap_or_default();
    let traces = Traces {
        nodes,
        node_events: &events,
        node_names: &names,
        xid: xid_meaning,
    };
    failure(run, &traces)
}

fn xid_meaning(xid: &str) -> XidMeaning {
    match xid.parse() {
        Ok(number) => {
            let known = XidTable::shipped().get(number);
            XidMeaning {
                words: known.meaning,
                is_by_program: known.severity == "user",
            }
        }
        Err(_) => XidMeaning::default(),
    }
}
