//! Writes a month of a cluster for `bench/energy.sh`: 30 nodes with two GPUs each, scraped every 15
//! s, and 10,000 jobs.
//!
//! `energy DATA_DIR SACCT_FILE`: the samples go into blocks as on a server, with a clock that runs
//! as fast as the store accepts samples. The jobs go into a file for `takt import sacct`.

#![expect(clippy::print_stderr, reason = "a program that says how far it is")]

use prometheus_client::registry::Registry;
use std::env;
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use takt_model::{Labels, METRIC_NAME, Timestamp};
use takt_store::{Clock, Column, DataDir, Group, STALE, Store, StoreConfig};

type Failure = Box<dyn Error + Send + Sync>;

/// 2026-10-01, and the number of days.
const BEGIN: i64 = 1_790_812_800;
const DAYS: i64 = 31;
const STEP: i64 = 15;

const NODES: i64 = 30;
const GPUS: i64 = 2;
const JOBS: i64 = 10_000;

/// Seconds between the starts of two consecutive jobs on a GPU.
const TURN: i64 = 16_000;
const RUN: i64 = 15_500;

/// Returns a job's GPU, and its first and last second.
fn job(number: i64) -> (i64, i64, i64) {
    let start = BEGIN + number / (NODES * GPUS) * TURN + 37;
    (number % (NODES * GPUS), start, start + RUN)
}

fn user(job: i64) -> String {
    format!("user{:02}", job % 23)
}

/// A GPU: its energy, and the series of its current job.
struct Gpu {
    number: i64,
    energy: Column,
    job: Option<(i64, Column)>,
}

fn labels(gpu: i64, metric: &str) -> Labels {
    let node = format!("n{:02}", gpu / GPUS);
    let uuid = format!("GPU-{gpu}");
    [
        (METRIC_NAME, metric),
        ("cluster", "lab"),
        ("node", &node),
        ("uuid", &uuid),
    ]
    .into_iter()
    .collect()
}

impl Gpu {
    fn new(number: i64, group: &Group) -> Result<Self, Failure> {
        let energy = group
            .column(&labels(number, "takt_gpu_energy_joules_total"))
            .ok_or("a series has no column")?;
        Ok(Self {
            number,
            energy,
            job: None,
        })
    }

    /// Writes the values at a time into the row of the GPU's node.
    fn show(&mut self, group: &Group, at: i64, row: &mut Vec<f64>) -> Result<(), Failure> {
        let turn = (at - BEGIN).div_euclid(TURN);
        let number = turn * NODES * GPUS + self.number;
        let (_, start, end) = job(number);
        let is_running = number < JOBS && (start..=end).contains(&at);
        if is_running && self.job.is_none_or(|(known, _)| known != number) {
            let mut labels = labels(self.number, "takt_gpu_job_info");
            labels.set("jobid", &number.to_string());
            labels.set("user", &user(number));
            self.job = Some((
                number,
                group.column(&labels).ok_or("a series has no column")?,
            ));
        }
        row.resize(group.width(), STALE);
        // Idle GPUs take 40 W, busy GPUs several hundred.
        let busy = (turn * RUN + (at - start).clamp(0, RUN)) as f64;
        row[self.energy.index()] =
            (busy * (200.0 + 5.0 * self.number as f64) + (at - BEGIN) as f64 * 40.0).round();
        if let (Some((_, column)), true) = (self.job, is_running) {
            row[column.index()] = 1.0;
        }
        Ok(())
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [data, sacct] = &arguments[..] else {
        return Err("usage: energy DATA_DIR SACCT_FILE".into());
    };
    let now = Arc::new(AtomicI64::new(BEGIN));
    let shown = Arc::clone(&now);
    let clock = Clock::new(move || Timestamp::from_seconds(shown.load(Ordering::SeqCst)));
    let config = StoreConfig {
        min_free_bytes: 0,
        commit_interval_ms: 200,
        retention_days: 400,
        ..StoreConfig::default()
    };
    let store = Store::open_at(
        DataDir::claim(Path::new(data))?,
        &config,
        &mut Registry::default(),
        clock,
    )?;
    let mut nodes = Vec::new();
    for node in 0..NODES {
        let group = store.group();
        let gpus = (node * GPUS..(node + 1) * GPUS).map(|number| Gpu::new(number, &group));
        let gpus = gpus.collect::<Result<Vec<_>, _>>()?;
        nodes.push((group, gpus));
    }
    let mut row = Vec::new();
    for at in (BEGIN..BEGIN + DAYS * 86_400).step_by(STEP as usize) {
        now.store(at, Ordering::SeqCst);
        for (group, gpus) in &mut nodes {
            row.clear();
            gpus.iter_mut()
                .try_for_each(|gpu| gpu.show(group, at, &mut row))?;
            group.commit(group.ticket(Timestamp::from_seconds(at))?, &row, &[])?;
        }
        // One hour per block, as on a server. Without flushes the queue would drop samples.
        if (at - BEGIN) % 3600 == 0 {
            store.seal()?;
            eprint!("\r{} h", (at - BEGIN) / 3600);
        }
    }
    store.seal()?;
    eprintln!("\r{} GPUs, {DAYS} days, {JOBS} jobs", NODES * GPUS);
    write_jobs(Path::new(sacct))
}

fn write_jobs(path: &Path) -> Result<(), Failure> {
    let mut out = BufWriter::new(File::create(path)?);
    let columns = "JobID|User|Account|Partition|Submit|Eligible|Start|End|State|AllocTRES|NNodes|NCPUS|NodeList|ElapsedRaw";
    writeln!(out, "{columns}")?;
    for number in 0..JOBS {
        let (gpu, start, end) = job(number);
        let node = gpu / GPUS;
        let user = user(number);
        let submit = start - 600;
        writeln!(
            out,
            "{number}|{user}|lab|gpu|{submit}|{submit}|{start}|{end}|COMPLETED|cpu=8,mem=64G,node=1,gres/gpu=1|1|8|n{node:02}|{}",
            end - start
        )?;
    }
    Ok(out.flush()?)
}
