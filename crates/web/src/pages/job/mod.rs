//! `/jobs/ID`: one job in full, or the tasks of an array.

mod credit;
mod picture;

use super::work::{Plain, address, columns, length, memory, runs, share, state_class, time_row};
use crate::frame::{Cell, Column, Content, Page, PageError, Table, Visit, href};
use credit::{credits_of, may_credit};
use minijinja::{Value, context};
use picture::{GIB, Metric, Scene, gpu_name, life};
use serde::Serialize;
use std::collections::BTreeSet;
use takt_access::Role;
use takt_jobs::JobRun;
use takt_model::UnixTime;
use takt_questions::{
    BlockedQuestion, GpuReport, JobAnswer, JobPhase, JobQuestion, JobReport, ListedRun, NodeReport,
    requested,
};

pub const PAGE: Page = Page::new("/jobs/{job}", include_str!("job.html"), show)
    .filters(&["submit", "metric"])
    .days()
    .live()
    .submit_by(Role::Admin)
    .submit(credit::submit);

/// Number of GPUs above which rows are strips of colour instead of areas.
const MOST_AREAS: usize = 16;

/// Steps of a curve on the page.
const STEPS: usize = 120;

fn show(visit: &Visit) -> Result<Content, PageError> {
    let id = visit.parameter("job");
    let text = |name: &str| visit.get(name).map(str::to_owned);
    let question = JobQuestion {
        job_id: id.to_owned(),
        submit: text("submit"),
        cluster: Some(visit.site.cluster.to_string()),
        from: text("from"),
        to: text("to"),
        steps: STEPS,
    };
    let answer = visit.ask(&question).map_err(|error| {
        error
            .of_unknown("job", id)
            .next(
                &address("/search", &[("q", id)]),
                &format!("Search for {id}"),
            )
            .next("/jobs", "All jobs")
    })?;
    // The id of an array has tasks and no run of its own.
    match &answer.report {
        Some(report) => one(visit, &answer, report),
        None => array(visit, &answer),
    }
}

/// The page of one run.
fn one(visit: &Visit, answer: &JobAnswer, report: &JobReport) -> Result<Content, PageError> {
    let metric = Metric::of(visit)?;
    let run = &report.run;
    let gpus: Vec<(&NodeReport, &GpuReport)> = report
        .by_node
        .iter()
        .flat_map(|node| node.gpus.iter().map(move |gpu| (node, gpu)))
        .collect();

    let unmeasured = report.efficiency.as_ref().and_then(|seen| {
        let reasons = [&report.cpu_unmeasured, &report.memory_unmeasured];
        let is_unmeasured = seen.coverage_ratio == 0.0 && seen.memory_peak_bytes.is_none();
        is_unmeasured.then(|| unmeasured(reasons.map(|reason| reason.as_deref())))
    });
    let times = ticks(report, visit);
    let scene = Scene::of(report, metric, idle_below(visit));
    let table = gpu_table(visit, &gpus, &scene, &times)?;
    let name = run.name.clone().unwrap_or_default();

    let nodes: Vec<Value> = report
        .by_node
        .iter()
        .take(MOST_NODES)
        .map(|node| node_values(node, report, &scene))
        .collect();

    let wants = requested(run);
    let events = &answer.events;
    // A requeued job has a run for each submission; the page has one of them.
    let earlier: Vec<ListedRun> = answer
        .runs
        .iter()
        .filter(|other| other.run.job_id == run.job_id && other.run.submit != run.submit)
        .cloned()
        .collect();

    let now = answer.at;
    let is_pending = report.phase == JobPhase::Pending;

    let values = context! {
        report => Value::from_serialize(Summary::of(report)),
        is_unmeasured => unmeasured.is_some(),
        unmeasured,
        is_running => report.phase == JobPhase::Running,
        is_pending,
        blocked => is_pending.then(|| blocked(visit, run)).flatten(),
        state_class => state_class(&run.state),
        state => run.state.to_lowercase().replace('_', " "),
        life => life(report, now),
        nodes,
        nodes_more => report.by_node.len().saturating_sub(MOST_NODES),
        times => times.iter().map(|(_, text)| text).collect::<Vec<_>>(),
        // The link to the node needs a single name.
        one_node => run
            .node_list
            .as_deref()
            .filter(|list| !list.contains(['[', ','])),
        wants_gpus => wants.gpus,
        wants_cpus => wants.cpus,
        wants_memory => wants.mem_bytes,
        faults => faults(&gpus),
        events_more => events.len().saturating_sub(EVENTS),
        events => events.iter().take(EVENTS).collect::<Vec<_>>(),
        has_gpus => !gpus.is_empty(),
        metric => metric.name(),
        metrics => Metric::ALL
            .iter()
            .map(|one| {
                context! {
                    name => one.name(),
                    address => visit.address(&[("metric", one.key())]),
                    is_current => *one == metric,
                }
            })
            .collect::<Vec<_>>(),
        // A file has the reading and the range of the page, not its other parts.
        svg => address(
            &format!("{}.svg", visit.path),
            &[
                ("metric", metric.key()),
                ("submit", visit.get("submit").unwrap_or_default()),
                ("from", visit.get("from").unwrap_or_default()),
                ("to", visit.get("to").unwrap_or_default()),
            ],
        ),
        is_zoomed => visit.get("from").is_some() || visit.get("to").is_some(),
        whole => visit.address(&[("from", ""), ("to", "")]),
        zooms => zooms(report, visit),
        may_credit => may_credit(visit, run),
        credits => credits_of(visit, run)?
            .iter()
            .map(|credit| {
                context! {
                    id => credit.id,
                    gpu_hours => credit.gpu_seconds / 3600.0,
                    reason => credit.reason,
                    by => credit.granted_by,
                    at => credit.granted_at,
                }
            })
            .collect::<Vec<_>>(),
        submit => run.submit,
        earlier => others("Other runs of this job", &earlier, now),
        same_name => others("Jobs of the same name", &answer.same_name, now),
        neighbours => others(
            "Jobs on the same node at that time",
            &answer.neighbours,
            now,
        ),
        compare => compare(run.job_id.as_str(), &answer.same_name),
        array => run.job_id.split_once('_').map(|(array, _)| array),
        api => address("/api/takt/v1/job", &[("job_id", &run.job_id)]),
    };

    Ok(
        Content::new(format!("Job {} {name}", run.job_id).trim_end(), values)
            .table(table)
            .picture(scene.sheet(report, &times)),
    )
}

/// What a waiting job waits for. `None` if it has started meanwhile.
fn blocked(visit: &Visit, run: &JobRun) -> Option<Value> {
    let question = BlockedQuestion {
        job_id: run.job_id.clone(),
        cluster: Some(run.cluster.clone()),
    };
    visit.ask(&question).ok().map(Value::from_serialize)
}

/// Nodes of a job with curves of their own.
const MOST_NODES: usize = 16;

/// Events on the page of a job.
const EVENTS: usize = 20;

/// Utilization below which a GPU is idle.
fn idle_below(visit: &Visit) -> f64 {
    visit.site.config.accounting.efficiency.idle_below_ratio
}

/// Hardware faults of the job's GPUs.
fn faults(gpus: &[(&NodeReport, &GpuReport)]) -> Vec<Value> {
    gpus.iter()
        .filter_map(|(node, gpu)| {
            let fault = gpu.fault.as_ref()?;
            let address = gpu.uuid.as_ref().map(|uuid| href("gpus", uuid));
            Some(context! { name => gpu_name(node, gpu), fault, address })
        })
        .collect()
}

/// What the page says of a run without curves: why its CPUs and its memory were not measured, as the command says it.
fn unmeasured(reasons: [Option<&str>; 2]) -> String {
    match reasons {
        [Some(cpus), Some(memory)] if cpus == memory => {
            format!("Nothing was measured: {cpus}.")
        }
        [None, None] => {
            "Nothing was measured while it ran: its record names no node with an exporter."
                .to_owned()
        }
        reasons => {
            let named = ["CPUs", "Memory"].into_iter().zip(reasons);
            let said =
                named.filter_map(|(name, why)| Some(format!("{name} not measured: {}.", why?)));
            said.collect::<Vec<_>>().join(" ")
        }
    }
}

/// The report without its curves, which the page draws itself.
#[derive(Serialize)]
struct Summary<'r> {
    #[serde(flatten)]
    report: &'r JobReport,
    /// Grade of the verdict in words.
    grade: Option<&'static str>,
}

impl<'r> Summary<'r> {
    fn of(report: &'r JobReport) -> Self {
        Self {
            report,
            grade: report.verdict.as_ref().map(|verdict| verdict.grade.word()),
        }
    }
}

fn gpu_table(
    visit: &Visit,
    gpus: &[(&NodeReport, &GpuReport)],
    scene: &Scene,
    times: &[(f64, String)],
) -> Result<Table, PageError> {
    let mut columns = vec![
        Column::text("gpu", "GPU"),
        Column::picture("curve", "Over time"),
        Column::number("utilization", "Busy"),
        Column::number("idle", "Idle"),
        Column::number("memory", "Memory"),
        Column::number("power", "Power").unit("W"),
        Column::number("idle_longest", "Longest idle").minor(),
        Column::text("model", "Model").minor(),
        Column::text("uuid", "UUID").minor(),
    ];

    let as_strips = gpus.len() > MOST_AREAS;
    let row = |(node, gpu): &(&NodeReport, &GpuReport)| {
        let name = gpu_name(node, gpu);
        let mut name_cell = Cell::text(&name);
        if let Some(uuid) = &gpu.uuid {
            name_cell = name_cell.link(href("gpus", uuid));
        }
        // An unmeasured GPU is not marked as idle.
        let idle = gpu.idle_ratio.unwrap_or(0.0);
        let picture = scene.row(gpu, as_strips, &name);
        vec![
            name_cell,
            Cell::picture(picture).class("curvecell"),
            share(gpu.utilization_mean),
            share(gpu.idle_ratio).class(if idle > 0.5 { "warn" } else { "" }),
            memory(gpu.memory_peak_bytes),
            Cell::number(gpu.power_mean_watts, |watts| format!("{watts:.0}")),
            length(gpu.idle_longest_seconds),
            Cell::text(gpu.model.clone().unwrap_or_default()),
            Cell::text(gpu.uuid.clone().unwrap_or_default()),
        ]
    };

    let mut rows: Vec<Vec<Cell>> = gpus.iter().map(row).collect();
    if !visit.is_file() {
        // The width is for the curves; files have the names.
        columns.truncate(columns.len() - ONLY_IN_FILES);
        rows.iter_mut().for_each(|row| row.truncate(columns.len()));
        if !rows.is_empty() {
            // The times stand below the curves, in a row of the table.
            let times: Vec<String> = times.iter().map(|(_, text)| text.clone()).collect();
            rows.push(time_row(&times, 1, columns.len()));
        }
    }

    let count = gpus.len();
    let metric = scene.metric.name();
    let gpus = if count == 1 { "GPU" } else { "GPUs" };
    let caption = format!("{metric} of {count} {gpus}, as a mean of each step");
    Table::new(visit, "gpus", caption, columns, rows)
}

/// Columns at the end of the table of GPUs that only files have: model and UUID.
const ONLY_IN_FILES: usize = 2;

fn node_values(node: &NodeReport, report: &JobReport, scene: &Scene) -> Value {
    // The limits of a job on several nodes are not known by node.
    let is_alone = report.by_node.len() == 1;
    let cpus = report.run.cpus.filter(|_| is_alone);
    let memory = report.run.mem_bytes.filter(|_| is_alone);
    let cpu_label = format!("busy CPUs of {}", node.node);
    let memory_label = format!("memory on {}", node.node);

    let cpu_most = cpus.map(|cpus| cpus as f64);
    let memory_most = memory.map(|bytes| bytes as f64);
    context! {
        name => node.node,
        cpus_mean => node.cpus_mean,
        cpus_of => cpus,
        memory_peak => node.memory_peak_bytes,
        memory_of => memory_most,
        cpus => scene.of_node(&node.cpus, cpu_most, (1.0, " CPUs"), &cpu_label),
        memory => scene.of_node(&node.memory, memory_most, GIB, &memory_label),
    }
}

/// Five times below the curves: share of the width, and text.
fn ticks(report: &JobReport, visit: &Visit) -> Vec<(f64, String)> {
    let Some(axis) = report.axis else {
        return Vec::new();
    };

    let length = axis.to() - axis.from;
    // Beyond two days, hours alone would be ambiguous.
    let format = if length > 2 * 86_400_000 {
        "%-d %b %H:%M"
    } else {
        "%H:%M"
    };
    // Five times make four quarters, the parts that can be zoomed into.
    (0..5)
        .filter_map(|quarter| {
            let at = axis.from.plus_ms(length * quarter / 4);
            let at = jiff::Timestamp::try_from(at).ok()?;
            let at = at.to_zoned(visit.zone().clone());
            Some((quarter as f64 / 4.0, at.strftime(format).to_string()))
        })
        .collect()
}

/// Shortest curve that can be zoomed into, in milliseconds.
const SHORTEST_ZOOM_MS: i64 = 240_000;

/// Addresses of the quarters of the curves.
fn zooms(report: &JobReport, visit: &Visit) -> Vec<String> {
    let Some(axis) = report.axis else {
        return Vec::new();
    };
    let length = axis.to() - axis.from;
    if length < SHORTEST_ZOOM_MS {
        return Vec::new();
    }

    let seconds = |quarter: i64| {
        let at = axis.from.plus_ms(length * quarter / 4);
        at.whole_seconds().to_string()
    };

    (0..4)
        .map(|quarter| {
            let from = seconds(quarter);
            let to = seconds(quarter + 1);
            visit.address(&[("from", &from), ("to", &to)])
        })
        .collect()
}

/// A list of other runs, without links for sorting.
fn others(caption: &str, listed: &[ListedRun], now: UnixTime) -> Option<Plain> {
    const KEYS: [&str; 9] = [
        "job_id",
        "user",
        "state",
        "start",
        "length",
        "gpus",
        "utilization",
        "waste",
        "nodes",
    ];
    (!listed.is_empty()).then(|| Plain::of(caption, columns(), runs(listed, now)).keep(&KEYS))
}

/// Address of the comparison with the last jobs of the same name.
fn compare(job_id: &str, same_name: &[ListedRun]) -> Option<String> {
    // Four jobs at most, so that the comparison fits on a page.
    let mut ids: Vec<&str> = vec![job_id];
    for other in same_name {
        if !ids.contains(&other.run.job_id.as_str()) && ids.len() < 4 {
            ids.push(&other.run.job_id);
        }
    }
    (ids.len() > 1).then(|| address("/compare", &[("jobs", &ids.join(","))]))
}

/// The page of an array: a grid of its tasks.
fn array(visit: &Visit, answer: &JobAnswer) -> Result<Content, PageError> {
    // The newest run of a task comes first, and the others are its earlier ones.
    let mut seen = BTreeSet::new();
    let mut tasks: Vec<&ListedRun> = answer
        .runs
        .iter()
        .filter(|one| seen.insert(one.run.job_id.as_str()))
        .collect();
    // Tasks by number: as text, task 10 would come before task 2.
    let number = |one: &&ListedRun| {
        let digits = one.run.job_id.rsplit(['_', '+']).next();
        digits
            .and_then(|digits| digits.parse::<u64>().ok())
            .unwrap_or(u64::MAX)
    };
    tasks.sort_by_key(number);

    let grid: Vec<Value> = tasks
        .iter()
        .map(|one| {
            let id = &one.run.job_id;
            let used = one.used.filter(|used| used.is_measured);
            context! {
                name => id.rsplit(['_', '+']).next().unwrap_or(id),
                address => href("jobs", id),
                state => one.run.state,
                class => state_class(&one.run.state),
                utilization => used.and_then(|used| used.gpu_utilization),
            }
        })
        .collect();
    // Tasks share name, user and account, so any of them has these.
    let first = answer
        .runs
        .first()
        .map(|one| one.run.clone())
        .unwrap_or_default();

    let mut listed = answer.runs.clone();
    listed.sort_by_key(|one| number(&one));
    let rows = runs(&listed, answer.at);
    let caption = format!("{} runs", rows.len());
    let table = Table::new(visit, "tasks", caption, columns(), rows)?;

    let wasted: Vec<f64> = tasks
        .iter()
        .filter_map(|one| one.used?.wasted_gpu_hours)
        .collect();

    let values = context! {
        job_id => answer.job_id,
        name => first.name,
        user => first.user,
        account => first.account,
        array => Value::from_serialize(&answer.array),
        grid,
        most_wasted => wasted.iter().copied().reduce(f64::max),
        is_array => true,
    };
    Ok(Content::new(format!("Job {}", answer.job_id), values).table(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_why_nothing_was_measured_as_the_command_does() {
        let silent = Some("no samples of g01 while it ran");
        assert_eq!(
            unmeasured([silent, silent]),
            "Nothing was measured: no samples of g01 while it ran."
        );
        assert_eq!(
            unmeasured([
                Some("no cpuacct cgroup on g01"),
                Some("no memory cgroup on g01")
            ]),
            "CPUs not measured: no cpuacct cgroup on g01. Memory not measured: no memory cgroup on g01."
        );
        assert_eq!(
            unmeasured([None, None]),
            "Nothing was measured while it ran: its record names no node with an exporter."
        );
    }
}
