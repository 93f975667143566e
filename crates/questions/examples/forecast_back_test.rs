//! Back-test of forecasts: asks at past times when each waiting job starts, knowing only what was known then, and compares
//! with the records. The estimate that believes time limits is computed beside it.
//!
//! `forecast_back_test DATA_DIR CLUSTER HOURS [NODES CPUS_PER_NODE]`: one time each `HOURS`; nodes for records without any.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for developers prints its figures"
)]

use std::env;
use std::path::Path;
use std::time::{Duration, Instant};
use takt_jobs::{Amounts, JobRun, Node};
use takt_model::UnixTime;
use takt_questions::{QueueFacts, WaitingJob, forecast_queue};
use takt_simulate::{Calibration, Forecast, KnownStart, RunTimes};
use takt_store::{DataDir, Database, JobFilter, Records, Settings};

/// Replays at each time.
const REPLAYS: u32 = 50;

/// Time for the replays at each time.
const ROUND_TIME: Duration = Duration::from_secs(5);

/// Waiting jobs that are replayed, as in a server.
const MOST_WAITING: usize = 2000;

/// Time after which a job starts anyway, in seconds: Slurm's own cycles take as long.
const EQUAL_SECONDS: i64 = 60;

/// A job that waited at one of the times.
struct Tested {
    /// From the time of the forecast to the start, in seconds.
    left: i64,
    forecast: Forecast,
    /// The forecast before its correction by earlier ones.
    replayed: Forecast,
    at: UnixTime,
    /// The start by time limits.
    naive: Option<UnixTime>,
    is_first: bool,
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [directory, cluster, hours, rest @ ..] = arguments.as_slice() else {
        panic!("DATA_DIR CLUSTER HOURS [NODES CPUS_PER_NODE]");
    };
    let every = hours.parse::<f64>().expect("hours") * 3600.0;
    let directory = DataDir::claim(Path::new(directory)).expect("the data directory");
    let database = Database::open(&directory, &Settings::default()).expect("the records");
    let records = Records::of(&database);
    let filter = JobFilter {
        cluster: Some(cluster.clone()),
        ..JobFilter::default()
    };
    let mut runs = records.jobs(&filter).expect("the runs");
    runs.iter_mut().for_each(complete);
    let nodes = match rest {
        [nodes, cpus] => {
            let (nodes, cpus) = (nodes.parse().expect("nodes"), cpus.parse().expect("CPUs"));
            place(&mut runs, nodes, cpus);
            made_up(nodes, cpus)
        }
        _ => records.nodes_now(cluster).expect("the nodes"),
    };
    let mut ended: Vec<&JobRun> = runs.iter().filter(|run| run.end.is_some()).collect();
    ended.sort_by_key(|run| std::cmp::Reverse(run.end));

    let first = runs.iter().map(|run| run.submit).min().expect("a run");
    let last = runs
        .iter()
        .filter_map(|run| run.start)
        .max()
        .expect("a start");
    // A quarter of the time is left for run times to be known.
    let mut now = first + (last - first) / 4;
    let mut tested = Vec::new();
    let mut impossible = 0;
    while now < last {
        impossible += test(&runs, &ended, &nodes, now, &mut tested);
        now += every as i64;
    }

    println!(
        "{} runs, {} nodes, {impossible} jobs without a forecast",
        runs.len(),
        nodes.len()
    );
    report("all waiting jobs", &tested.iter().collect::<Vec<_>>());
    report_of("replays alone", &tested.iter().collect::<Vec<_>>(), |one| {
        one.replayed
    });
    report(
        "waited for less than 10 min",
        &tested.iter().filter(|one| one.is_first).collect::<Vec<_>>(),
    );
    report(
        "started more than 10 min later",
        &tested
            .iter()
            .filter(|one| one.left > 600)
            .collect::<Vec<_>>(),
    );
    report(
        "more than an hour",
        &tested
            .iter()
            .filter(|one| one.left > 3600)
            .collect::<Vec<_>>(),
    );
}

/// Fills in the request of records that have only what was allocated.
fn complete(run: &mut JobRun) {
    if run.req_tres.is_none() {
        let text = format!(
            "cpu={},node={},gres/gpu={}",
            run.cpus.unwrap_or(1),
            run.nodes.unwrap_or(1),
            run.gpus.unwrap_or(0)
        );
        run.req_tres = Some(text);
    }
}

fn made_up(nodes: usize, cpus: u64) -> Vec<Node> {
    let node = |at: usize| Node {
        node: format!("n{at}"),
        state: "IDLE".into(),
        has: Amounts {
            cpus,
            gpus: 0,
            mem_bytes: 0,
        },
        ..Node::default()
    };
    (0..nodes).map(node).collect()
}

/// Gives the runs of records without node lists nodes that had room for them, the fullest first.
fn place(runs: &mut [JobRun], nodes: usize, cpus: u64) {
    let mut order: Vec<usize> = (0..runs.len())
        .filter(|at| runs[*at].start.is_some())
        .collect();
    order.sort_by_key(|at| runs[*at].start);
    let mut free = vec![cpus; nodes];
    let mut held: Vec<(UnixTime, Vec<usize>, u64)> = Vec::new();
    let mut without = 0;
    for at in order {
        let run = &mut runs[at];
        let start = run.start.expect("it has started");
        held.retain(|(end, places, each)| {
            let has_ended = *end <= start;
            if has_ended {
                places.iter().for_each(|place| free[*place] += each);
            }
            !has_ended
        });

        let count = run.nodes.unwrap_or(1).max(1);
        let each = run.cpus.unwrap_or(1).div_ceil(count);
        let mut places: Vec<usize> = (0..nodes).filter(|place| free[*place] >= each).collect();
        places.sort_by_key(|place| free[*place]);
        places.truncate(count as usize);
        if (places.len() as u64) < count {
            without += 1;
        }
        places.iter().for_each(|place| free[*place] -= each);
        let names: Vec<String> = places.iter().map(|place| format!("n{place}")).collect();
        run.node_list = Some(names.join(","));
        held.push((run.end.unwrap_or(UnixTime::MAX), places, each));
    }
    println!("{without} runs found too few nodes");
}

fn test(
    runs: &[JobRun],
    ended: &[&JobRun],
    nodes: &[Node],
    now: UnixTime,
    tested: &mut Vec<Tested>,
) -> usize {
    let is_running =
        |run: &&JobRun| run.start.is_some_and(|at| at <= now) && run.end.is_none_or(|at| at > now);
    let is_waiting = |run: &&JobRun| {
        run.eligible.unwrap_or(run.submit) <= now
            && run.start.is_none_or(|at| at > now)
            && run.end.is_none_or(|at| at > now)
    };
    let mut waiting: Vec<&JobRun> = runs.iter().filter(is_waiting).collect();
    waiting.sort_by_key(|run| (run.eligible.unwrap_or(run.submit), run.submit));
    waiting.truncate(MOST_WAITING);
    if waiting.is_empty() {
        return 0;
    }
    let facts = QueueFacts {
        now,
        nodes: nodes.to_vec(),
        reservations: Vec::new(),
        running: runs.iter().filter(is_running).cloned().collect(),
        waiting: waiting
            .iter()
            .map(|run| WaitingJob {
                run: (*run).clone(),
                ..WaitingJob::default()
            })
            .collect(),
    };
    let mut times = RunTimes::default();
    for run in ended
        .iter()
        .filter(|run| run.end.is_some_and(|at| at <= now))
        .take(50_000)
    {
        if let (Some(start), Some(end), Some(limit)) =
            (run.start, run.end, run.timelimit.filter(|limit| *limit > 0))
        {
            let name = run.name.as_deref().unwrap_or_default();
            times.add(
                &run.user.as_str().into(),
                &name.into(),
                (end - start) as f64 / limit as f64,
            );
        }
    }

    let began = Instant::now();
    let (_, found) = forecast_queue(&facts, &times, |done| {
        done < REPLAYS && began.elapsed() < ROUND_TIME
    });
    eprintln!(
        "{now}: {} run, {} wait, {REPLAYS} replays in {:.2} s",
        facts.running.len(),
        waiting.len(),
        began.elapsed().as_secs_f64()
    );
    let began = Instant::now();
    let (_, naive) = forecast_queue(&facts, &RunTimes::default(), |done| {
        done < 1 && began.elapsed() < ROUND_TIME
    });
    let known: Vec<KnownStart> = tested
        .iter()
        .filter(|one| one.is_first && one.at + one.left <= now && one.at > now - 30 * 86_400)
        .map(|one| KnownStart {
            made_at: one.at,
            forecast: one.replayed,
            start: one.at + one.left,
        })
        .collect();
    let calibration = Calibration::of(&known);
    let mut impossible = 0;
    for ((run, found), naive) in waiting.iter().zip(found).zip(naive) {
        let Some(start) = run.start else { continue };
        let Some(forecast) = found else {
            impossible += 1;
            continue;
        };
        tested.push(Tested {
            left: start - now,
            forecast: calibration.apply(forecast, now),
            replayed: forecast,
            at: now,
            naive: naive.map(|one| one.p50),
            is_first: now - run.submit < 600,
        });
    }
    impossible
}

fn report(what: &str, tested: &[&Tested]) {
    report_of(what, tested, |one| one.forecast);
}

fn report_of(what: &str, tested: &[&Tested], forecast: fn(&Tested) -> Forecast) {
    let share = |is: &dyn Fn(&&&Tested) -> bool| {
        100.0 * tested.iter().filter(is).count() as f64 / tested.len().max(1) as f64
    };
    let start = |one: &Tested| one.at + one.left;
    let inside = share(&|one| {
        start(one) >= forecast(one).p10 - EQUAL_SECONDS
            && start(one) <= forecast(one).p90 + EQUAL_SECONDS
    });
    let late = share(&|one| start(one) > forecast(one).p90 + EQUAL_SECONDS);
    let error = |one: &&Tested| (start(one) - forecast(one).p50).abs();
    let naive = |one: &&Tested| one.naive.map(|at| (start(one) - at).abs());
    let errors: Vec<i64> = tested.iter().map(error).collect();
    let naives: Vec<i64> = tested.iter().filter_map(naive).collect();
    let left: Vec<i64> = tested.iter().map(|one| one.left).collect();
    let width: Vec<i64> = tested
        .iter()
        .map(|one| forecast(one).p90 - forecast(one).p10)
        .collect();
    let ratio = errors.iter().sum::<i64>() as f64 / left.iter().sum::<i64>().max(1) as f64;
    let naive_ratio = naives.iter().sum::<i64>() as f64 / left.iter().sum::<i64>().max(1) as f64;
    println!(
        "{what}: {} forecasts, {inside:.1} % within the band, {late:.1} % later; median error {} min (by time limits {} min), error ratio {ratio:.2} ({naive_ratio:.2}); median wait {} min, band {} min",
        tested.len(),
        median(errors) / 60,
        median(naives) / 60,
        median(left) / 60,
        median(width) / 60,
    );
}

fn median(mut values: Vec<i64>) -> i64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
