//! Duration of assessing the runs of a month: `efficiency DIRECTORY [NODES DAYS JOBS INTERVAL_SECONDS]`.
//!
//! Generates a month of jobs on nodes with two GPUs, and the series that exporters would have had
//! (utilization, memory, power, energy, the job of each GPU). Stores both in a new data directory,
//! assesses every run, and prints the duration. The directory stays, for trying `takt report`.

#![expect(clippy::print_stdout, reason = "a program that prints its result")]

use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::env;
use std::error::Error;
use std::path::Path;
use std::time::{Instant, SystemTime};
use takt_accounting::efficiency::EfficiencyConfig;
use takt_jobs::{Entry, JobRun};
use takt_model::{Labels, METRIC_NAME, Timestamp, UnixTime};
use takt_questions::assess;
use takt_store::{
    Column, Corrections, DataDir, Due, Group, Origin, Records, STALE, Shifted, Store, StoreConfig,
};

type Failure = Box<dyn Error + Send + Sync>;

const USERS: [(&str, &str); 30] = [
    ("ada", "vision"),
    ("grace", "language"),
    ("alan", "physics"),
    ("edsger", "biology"),
    ("barbara", "robotics"),
    ("donald", "vision"),
    ("katherine", "language"),
    ("emmy", "physics"),
    ("lise", "biology"),
    ("rosalind", "robotics"),
    ("carl", "vision"),
    ("dorothy", "language"),
    ("sofia", "physics"),
    ("chien", "biology"),
    ("leonhard", "robotics"),
    ("evariste", "vision"),
    ("srinivasa", "language"),
    ("maryam", "physics"),
    ("alonzo", "biology"),
    ("kurt", "robotics"),
    ("hedy", "vision"),
    ("radia", "language"),
    ("margaret", "physics"),
    ("frances", "biology"),
    ("jean", "robotics"),
    ("adele", "language"),
    ("karen", "vision"),
    ("shafi", "language"),
    ("tim", "vision"),
    ("vint", "language"),
];

/// Activity of a job's GPUs over the job's time.
#[derive(Clone, Copy)]
enum Habit {
    /// Both GPUs work.
    Busy,
    /// The GPUs mostly wait for data.
    Low,
    /// The second GPU is idle.
    Half,
    /// The GPUs work at first, then stay idle.
    Tail,
}

struct Job {
    run: JobRun,
    habit: Habit,
    /// Node and GPU.
    gpus: Vec<(usize, usize)>,
}

/// A small random generator with the same numbers in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: i64) -> i64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit.max(1).cast_unsigned()).cast_signed()
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let number =
        |at: usize, default: i64| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let directory = arguments
        .first()
        .ok_or("usage: efficiency DIRECTORY [NODES DAYS JOBS INTERVAL_SECONDS]")?;
    let nodes = number(1, 30)?;
    let days = number(2, 30)?;
    let jobs = number(3, 10_000)?;
    let interval = number(4, 15)?;
    let end = Timestamp::from(SystemTime::now()).whole_seconds() - 3600;
    let begin = end - days * 86_400;
    let jobs = make_up(nodes, begin, end, jobs);

    let config = StoreConfig {
        retention_days: 400,
        min_free_bytes: 0,
        queue_limit_mib: 512,
        ..StoreConfig::default()
    };
    let store = Store::open(
        DataDir::claim(Path::new(directory))?,
        &config,
        &mut Registry::default(),
    )?;
    let origin = Origin {
        source: "bench",
        name: "bench",
        timezone: Some("Europe/Oslo"),
        complete_until: None,
        shifted: Shifted::Keep,
        corrections: Corrections::Accept,
    };
    Records::of(store.database()).import(
        &origin,
        jobs.iter()
            .map(|job| Ok::<_, Infallible>(Entry::Run(job.run.clone()))),
    )?;
    let began = Instant::now();
    let samples = write_series(&store, &jobs, nodes, (begin, end), interval)?;
    println!(
        "{samples} samples written in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    let began = Instant::now();
    store.seal()?;
    println!("sealed in {:.1} s", began.elapsed().as_secs_f64());

    let rules = EfficiencyConfig {
        max_gap_seconds: 4 * interval.cast_unsigned(),
        ..EfficiencyConfig::default()
    };
    for name in ["first", "again"] {
        let began = Instant::now();
        let done = assess::pass(&store, "lab", (begin, end + 1), Due::All, &rules, |_| true)?;
        println!(
            "{name}: {} runs judged, {} measured well enough, in {:.2} s",
            done.runs,
            done.measured,
            began.elapsed().as_secs_f64()
        );
    }
    Ok(())
}

/// Returns about `count` jobs, one after the other on every pair of nodes.
fn make_up(nodes: i64, begin: UnixTime, end: UnixTime, count: i64) -> Vec<Job> {
    let mut dice = Dice(42);
    let mut jobs = Vec::new();
    // A pair of nodes runs about 3.3 jobs per round.
    let round = (end - begin) * nodes * 33 / (count * 20);
    for pair in 0..nodes / 2 {
        let mut at = begin + dice.below(3600);
        while at + round / 2 < end {
            let places: Vec<Vec<(usize, usize)>> = match dice.below(10) {
                0 => vec![vec![(0, 0), (0, 1), (1, 0), (1, 1)]],
                1..=4 => vec![vec![(0, 0), (0, 1)], vec![(1, 0)], vec![(1, 1)]],
                _ => vec![vec![(0, 0)], vec![(0, 1)], vec![(1, 0)], vec![(1, 1)]],
            };
            let length = round / 2 + dice.below(round);
            for gpus in places {
                let gpus = gpus
                    .iter()
                    .map(|(node, gpu)| (pair as usize * 2 + node, *gpu))
                    .collect();
                jobs.push(job(
                    jobs.len(),
                    gpus,
                    at,
                    (at + length - dice.below(length / 3)).min(end),
                    &mut dice,
                ));
            }
            at += length + dice.below(600);
        }
    }
    jobs
}

fn job(
    number: usize,
    gpus: Vec<(usize, usize)>,
    start: UnixTime,
    end: UnixTime,
    dice: &mut Dice,
) -> Job {
    let (user, account) = USERS[(dice.below(30).min(dice.below(30))) as usize];
    let habit = match (dice.below(10), gpus.len()) {
        (0, _) => Habit::Low,
        (1, _) => Habit::Tail,
        (2 | 3, 2) => Habit::Half,
        _ => Habit::Busy,
    };
    let mut nodes: Vec<usize> = gpus.iter().map(|(node, _)| *node).collect();
    nodes.dedup();
    let state = match dice.below(40) {
        0 => "NODE_FAIL",
        1..=3 => "FAILED",
        4 => "TIMEOUT",
        _ => "COMPLETED",
    };
    let names: Vec<String> = nodes.iter().map(|node| format!("gpu{node:02}")).collect();
    let run = JobRun {
        cluster: "lab".into(),
        job_id: (100_000 + number).to_string(),
        submit: start - dice.below(7200) * dice.below(4),
        start: Some(start),
        end: Some(end),
        state: state.into(),
        user: user.into(),
        account: account.into(),
        partition: "gpu".into(),
        name: Some(["train", "finetune", "eval", "sweep"][dice.below(4) as usize].into()),
        nodes: Some(nodes.len() as u64),
        cpus: Some(8 * gpus.len() as u64),
        gpus: Some(gpus.len() as u64),
        gpu_model: Some(if nodes[0] < 10 { "a100" } else { "rtx5090" }.into()),
        mem_bytes: Some((64 << 30) * gpus.len() as u64),
        node_list: Some(names.join(",")),
        elapsed: Some(end.since(start)),
        timelimit: Some(86_400),
        ..JobRun::default()
    };
    Job { run, habit, gpus }
}

impl Job {
    /// Returns the utilization of the job's GPU `index` at a time.
    fn utilization(&self, index: usize, at: UnixTime) -> f64 {
        let start = self.run.start.unwrap_or_default();
        let end = self.run.end.unwrap_or_default();
        let noise = ((at.0 / 15 + index as i64 * 7) % 9) as f64 / 100.0;
        match self.habit {
            Habit::Busy => 0.88 + noise,
            Habit::Low => 0.22 + noise,
            Habit::Half if index == 1 => 0.0,
            Habit::Half => 0.8 + noise,
            Habit::Tail if (at - start) * 10 > (end - start) * 6 => 0.0,
            Habit::Tail => 0.75 + noise,
        }
    }
}

/// One node's series.
struct Node {
    group: Group,
    fixed: Vec<[Column; 5]>,
    jobs: BTreeMap<(usize, usize), Column>,
    joules: [f64; 2],
}

/// Writes the series that the exporters of all nodes would have had.
fn write_series(
    store: &Store,
    jobs: &[Job],
    nodes: i64,
    (begin, end): (UnixTime, UnixTime),
    interval: i64,
) -> Result<u64, Failure> {
    let mut starting: Vec<usize> = (0..jobs.len()).collect();
    starting.sort_by_key(|&job| jobs[job].run.start);
    let mut starting = starting.into_iter().peekable();
    let mut on_gpu: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let mut written: Vec<Node> = (0..nodes as usize)
        .map(|node| open(store, node))
        .collect::<Result<_, _>>()?;
    let mut samples = 0;
    for passed in (0..end - begin).step_by(interval as usize) {
        let at = begin + passed;
        on_gpu.retain(|_, job| jobs[*job].run.end.is_none_or(|end| end > at));
        while let Some(job) =
            starting.next_if(|&job| jobs[job].run.start.is_some_and(|start| start <= at))
        {
            on_gpu.extend(jobs[job].gpus.iter().map(|&gpu| (gpu, job)));
        }
        let tickets: Vec<_> = written
            .iter()
            .map(|node| node.group.ticket(at.into()))
            .collect::<Result<_, _>>()?;
        for (number, (node, ticket)) in written.iter_mut().zip(tickets).enumerate() {
            let mut values = Vec::new();
            for gpu in 0..2 {
                let job = on_gpu.get(&(number, gpu)).copied();
                let work = job.map_or(0.0, |job| {
                    let index = jobs[job]
                        .gpus
                        .iter()
                        .position(|place| *place == (number, gpu))
                        .unwrap_or(0);
                    jobs[job].utilization(index, at)
                });
                let watts = 30.0 + 420.0 * work;
                node.joules[gpu] += watts * interval as f64;
                let memory = job.map_or(1e8, |_| 4e9 + 20e9 * work);
                values.extend(node.fixed[gpu].into_iter().zip([
                    1.0,
                    work,
                    memory,
                    watts,
                    node.joules[gpu],
                ]));
                if let Some(job) = job {
                    let column = match node.jobs.get(&(gpu, job)) {
                        Some(column) => *column,
                        None => info(node, number, gpu, &jobs[job].run)?,
                    };
                    node.jobs.insert((gpu, job), column);
                    values.push((column, 1.0));
                }
            }
            samples += values.len() as u64;
            let mut row = vec![STALE; node.group.width()];
            values
                .into_iter()
                .for_each(|(column, value)| row[column.index()] = value);
            let committed = node.group.commit(ticket, &row, &[])?;
            node.jobs
                .retain(|_, column| !committed.dropped.contains(column));
        }
        if passed / interval % 240 == 0 {
            store.flush();
        }
        // A server has one block per day after merging the hourly blocks.
        if at.0.rem_euclid(86_400) < interval {
            store.flush();
            store.seal()?;
        }
    }
    store.flush();
    Ok(samples)
}

fn labels(metric: &str, node: usize, gpu: usize, more: &[(&str, &str)]) -> Labels {
    let (node, uuid) = (format!("gpu{node:02}"), format!("GPU-{node:04}-{gpu}"));
    [
        (METRIC_NAME, metric),
        ("cluster", "lab"),
        ("node", &node),
        ("uuid", &uuid),
    ]
    .into_iter()
    .chain(more.iter().copied())
    .collect()
}

fn open(store: &Store, node: usize) -> Result<Node, Failure> {
    let group = store.group();
    let mut fixed = Vec::new();
    for gpu in 0..2 {
        let column = |metric: &str| {
            group
                .column(&labels(metric, node, gpu, &[]))
                .ok_or("a series is another's")
        };
        fixed.push([
            column("takt_gpu_info")?,
            column("takt_gpu_utilization_ratio")?,
            column("takt_gpu_memory_used_bytes")?,
            column("takt_gpu_power_watts")?,
            column("takt_gpu_energy_joules_total")?,
        ]);
    }
    Ok(Node {
        group,
        fixed,
        jobs: BTreeMap::new(),
        joules: [0.0; 2],
    })
}

fn info(node: &Node, number: usize, gpu: usize, run: &JobRun) -> Result<Column, Failure> {
    let labels = labels(
        "takt_gpu_job_info",
        number,
        gpu,
        &[("jobid", &run.job_id), ("user", &run.user)],
    );
    Ok(node.group.column(&labels).ok_or("a series is another's")?)
}
