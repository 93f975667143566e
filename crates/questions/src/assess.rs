//! Efficiency of finished runs: reads the samples of their nodes, and stores what accounting
//! computes from them.
//!
//! A pass assesses the runs that are due. It can be repeated at any time with the same result. It
//! reads the samples in order of time, some nodes at a time, and passes each sample to all runs on
//! its node at that time. Memory is bounded by the number of concurrent runs and by a maximum
//! number of samples.

use crate::{AnswerError, kept_axis, kept_curves};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::mem;
use std::slice;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, SystemTime};
use takt_accounting::efficiency::{
    self, AssessedRun, Axis, EfficiencyConfig, METRICS, MeterSample, NodeFigures, NodeMeter, Window,
};
use takt_jobs::{JobRun, NodeEvent, nodelist};
use takt_model::{METRIC_NAME, MatchOp, Matcher, MatcherError, Timestamp, UnixTime, error_chain};
use takt_store::{Due, Reading, Records, SeriesData, Store, StoreError, is_stale};
use tokio::time;
use tokio_util::sync::CancellationToken;

/// Time between the end of a run and its assessment, in seconds: its last samples and the records
/// of other runs arrive late.
pub const SETTLE_SECONDS: i64 = 120;

/// Time between two passes.
const INTERVAL: Duration = Duration::from_secs(60);

/// Longest time span of one reading: that of a block.
const LONGEST_CHUNK: Duration = Duration::from_secs(24 * 3600);

/// Shortest time span of one reading, regardless of the number of samples.
const SHORTEST_CHUNK: Duration = Duration::from_secs(60);

/// Maximum number of samples of one reading (64 MiB). A span with more is divided.
const MOST_SAMPLES: usize = 4 << 20;

/// Number of nodes in the first reading. Readings with few samples are followed by readings of more
/// nodes, because reading a block costs almost the same for one node and for all.
const FIRST_NODES: usize = 16;

/// Number of runs for which the samples are read together. Each batch reads the blocks of its time
/// again, from the start of its longest run on; a run takes less than a kilobyte.
const BATCH: usize = 30_000;

/// Number of measured runs that are stored in one transaction.
const STORED_TOGETHER: usize = 1000;

/// Held during a pass: two passes would read the same samples and assess the same runs.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Result of a pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assessed {
    /// Number of assessed runs.
    pub runs: u64,
    /// Number of them with enough samples for a verdict.
    pub measured: u64,
}

/// Error that ended a pass. Results stored before it remain.
#[derive(Debug, thiserror::Error)]
pub enum AssessError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The curves of a run could not be made.
    #[error(transparent)]
    Curves(#[from] AnswerError),
    /// A metric name is not a valid pattern; does not occur with the names in use.
    #[error(transparent)]
    Matcher(#[from] MatcherError),
}

/// Assesses the due runs each minute until `stop` is cancelled. Ignores runs that ended more than
/// `reach` ago: their samples are deleted, and imported history never had samples. If samples are
/// read from another engine, runs wait until one of the `destinations` of remote write has theirs.
pub async fn keep_assessing(
    store: Arc<Store>,
    cluster: String,
    rules: EfficiencyConfig,
    reach: Duration,
    destinations: Vec<String>,
    stop: CancellationToken,
) {
    let rules = Arc::new(rules);
    let destinations = Arc::new(destinations);
    while !stop.is_cancelled() {
        let store = Arc::clone(&store);
        let cluster = cluster.clone();
        let rules = Arc::clone(&rules);
        let token = stop.clone();
        let destinations = Arc::clone(&destinations);
        let pass = takt_store::spawn_blocking(move || {
            // Samples are complete up to the last acknowledged one, if another engine has them.
            let now = now();
            let complete = sent_until(&store, &destinations)?.unwrap_or(now).min(now);
            let period = (
                now.minus(reach).whole_seconds(),
                complete.whole_seconds() - SETTLE_SECONDS,
            );
            // The next pass comes in a minute.
            if let Err(TryLockError::WouldBlock) = ONE_AT_A_TIME.try_lock() {
                return Ok(Assessed::default());
            }
            pass(&store, &cluster, period, Due::New, &rules, |_| {
                !token.is_cancelled()
            })
        });
        match pass.await {
            Ok(Ok(done)) if done.runs > 0 => {
                tracing::info!(runs = done.runs, measured = done.measured, "runs assessed")
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = %error_chain(&error), "cannot assess runs")
            }
            Err(error) => tracing::error!(error = %error, "the assessment of runs panicked"),
        }
        // A timeout only means that the next pass is due.
        let _ = time::timeout(INTERVAL, stop.cancelled()).await;
    }
}

/// Returns the time up to which the engine has the samples, as far as remote write tells. `None` if
/// samples are read from the own store, or if nothing is sent.
fn sent_until(store: &Store, destinations: &[String]) -> Result<Option<Timestamp>, StoreError> {
    if store.remote().is_none() {
        return Ok(None);
    }
    let records = Records::of(store.database());
    let mut sent = None;
    // One destination that has the samples is enough, as they are read from one engine.
    for name in destinations {
        let progress = records.remote_write(name)?;

        sent = sent.max(progress.map(|progress| progress.acknowledged));
    }
    Ok(sent)
}

/// Assesses the runs of a cluster that ended in `[from, to)`, after any other pass of
/// this process. Calls `go_on` between two readings, and stops if it returns false.
///
/// # Errors
/// If the store fails.
pub fn pass(
    store: &Store,
    cluster: &str,
    (from, to): (UnixTime, UnixTime),
    due: Due,
    rules: &EfficiencyConfig,
    mut go_on: impl FnMut(&Assessed) -> bool,
) -> Result<Assessed, AssessError> {
    // A pass that panicked has stored whole batches, so its lock may be taken.
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let records = Records::of(store.database());

    let reader = SampleReader::new(store, cluster, rules, &kept_axis)?.reading_once();
    let mut done = Assessed::default();
    let mut after = None;
    loop {
        // The next batch begins after the last run, so that runs which cannot be assessed are not read for ever.
        let runs = records.due(cluster, (from, to), due, after.as_ref(), BATCH)?;
        let Some(last) = runs.last().cloned() else {
            return Ok(done);
        };
        // Events before the first start of the batch cannot touch its runs.
        let first = runs
            .iter()
            .filter_map(|run| run.start)
            .min()
            .unwrap_or(from);
        let events = records.node_events(cluster, first)?;
        let mut store_measured = |measured: Vec<Measured<'_>>| {
            let kept = keep(&records, &events, &measured, rules)?;
            done.runs += kept.runs;
            done.measured += kept.measured;
            Ok::<bool, AssessError>(go_on(&done))
        };

        if !reader.measure(&runs, &mut store_measured)? {
            return Ok(done);
        }
        after = Some(last);
    }
}

/// A run with the figures of all its nodes.
type Measured<'r> = (&'r JobRun, Vec<NodeFigures>);

/// Stores the efficiencies and curves of runs. Returns the number of assessed runs.
fn keep(
    records: &Records<'_>,
    events: &[NodeEvent],
    measured: &[Measured<'_>],
    rules: &EfficiencyConfig,
) -> Result<Assessed, AssessError> {
    let mut done = Assessed::default();
    let mut found = Vec::with_capacity(measured.len());
    let mut curves = Vec::new();
    // A run of which nothing was measured has no curves.
    for (run, nodes) in measured {
        curves.extend(kept_curves(run, nodes, events, rules)?);
        if let Some(efficiency) = efficiency::assess(run, nodes, rules) {
            done.runs += 1;
            done.measured += u64::from(efficiency.is_measured(rules));
            let run = (*run).clone();
            found.push(AssessedRun { run, efficiency });
        }
    }
    // First the curves: a run without an efficiency is assessed again.
    records.keep_curves(&curves)?;
    records.keep_efficiencies(&found, now().whole_seconds())?;
    Ok(done)
}

/// Measures one run by node, with curves over `axis`. The run needs a start and an end; for a
/// running one, the end is the current time.
///
/// # Errors
/// If the store fails.
pub fn measure(
    store: &Store,
    run: &JobRun,
    rules: &EfficiencyConfig,
    axis: Axis,
) -> Result<Vec<NodeFigures>, AssessError> {
    let axis = |_: &JobRun| axis;
    let reader = SampleReader::new(store, &run.cluster, rules, &axis)?;
    let mut figures = Vec::new();
    reader.measure(slice::from_ref(run), &mut |measured| {
        figures.extend(measured.into_iter().flat_map(|(_, nodes)| nodes));
        Ok(true)
    })?;
    Ok(figures)
}

/// Reads the samples of nodes, each span of each node once for all runs on it.
struct SampleReader<'s> {
    store: &'s Store,
    cluster: &'s str,
    metrics: Matcher,
    rules: &'s EfficiencyConfig,
    /// Axis of the curves of a run.
    axis: &'s (dyn Fn(&JobRun) -> Axis + 's),
    /// Whether the samples are read past the cache.
    reads_once: bool,
}

/// Size of the next reading.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Time span.
    chunk: Duration,
    /// Number of nodes.
    nodes: usize,
}

/// A run on one of its nodes. The times include the samples just before and after the run, at which
/// counters are cut.
struct NodeRun<'r> {
    run: usize,
    of: &'r JobRun,
    node: String,
    from: Timestamp,
    to: Timestamp,
    held: Option<u64>,
}

/// Takes measured runs; none before each reading. Returns whether to go on.
type Sink<'s, 'r> = &'s mut dyn FnMut(Vec<Measured<'r>>) -> Result<bool, AssessError>;

/// Runs of which not all nodes are measured, and measured runs that were not passed on.
#[derive(Default)]
struct Unfinished<'r> {
    /// By position of the run: the run, its figures so far, and the number of nodes to come.
    runs: Vec<(&'r JobRun, Vec<NodeFigures>, usize)>,
    /// Positions of the runs that are measured.
    complete: Vec<usize>,
}

impl<'r> Unfinished<'r> {
    /// Adds the next run.
    fn begin(&mut self, run: &'r JobRun, nodes: usize) {
        // A run whose node list cannot be expanded has no figures, and is passed on at once.
        if nodes == 0 {
            self.complete.push(self.runs.len());
        }
        self.runs.push((run, Vec::new(), nodes));
    }

    /// Adds the figures of a node.
    fn add(&mut self, run: usize, figures: NodeFigures) {
        let (_, known, to_come) = &mut self.runs[run];
        known.push(figures);
        // The last node completes the run.
        *to_come -= 1;
        if *to_come == 0 {
            self.complete.push(run);
        }
    }

    /// Passes the measured runs on, at most `most` together. Returns whether to go on.
    fn pass_on(&mut self, most: usize, sink: Sink<'_, 'r>) -> Result<bool, AssessError> {
        let mut complete = mem::take(&mut self.complete);
        // Runs complete in the order of their nodes; in their own order the same pass gives the same rows.
        complete.sort_unstable();
        for numbers in complete.chunks(most) {
            let measured = numbers.iter().map(|&number| {
                let (run, figures, _) = &mut self.runs[number];

                let mut figures = mem::take(figures);
                figures.sort_by(|a, b| a.node.cmp(&b.node));
                (*run, figures)
            });
            if !sink(measured.collect())? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A node and the runs on it, each with its measurements so far.
type OpenNode<'r> = (String, Vec<(NodeRun<'r>, NodeMeter)>);

impl<'s> SampleReader<'s> {
    fn new(
        store: &'s Store,
        cluster: &'s str,
        rules: &'s EfficiencyConfig,
        axis: &'s (dyn Fn(&JobRun) -> Axis + 's),
    ) -> Result<Self, AssessError> {
        Ok(Self {
            store,
            cluster,
            metrics: Matcher::new(METRIC_NAME, MatchOp::Regex, &METRICS.join("|"))?,
            rules,
            axis,
            reads_once: false,
        })
    }

    /// Reads the samples past the cache: finished runs are not measured again.
    fn reading_once(self) -> Self {
        Self {
            reads_once: true,
            ..self
        }
    }

    /// Measures runs by node. Passes them to `sink` when all their nodes are measured, some at a
    /// time and in order of their ends. Stops when `sink` returns false, and returns false then.
    ///
    /// # Errors
    /// If the store or `sink` fails.
    fn measure<'r>(&self, runs: &'r [JobRun], sink: Sink<'_, 'r>) -> Result<bool, AssessError> {
        let mut to_come: Vec<NodeRun<'r>> = Vec::new();
        let mut unfinished = Unfinished::default();
        for (number, run) in runs.iter().enumerate() {
            let parts = self.parts(number, run);
            unfinished.begin(run, parts.len());
            to_come.extend(parts);
        }

        // Latest first, so that runs are popped from the end in order of time.
        to_come.sort_by_key(|part| Reverse(part.from));
        let mut open: BTreeMap<String, Vec<(NodeRun<'r>, NodeMeter)>> = BTreeMap::new();

        let mut pace = Pace {
            chunk: LONGEST_CHUNK,
            nodes: FIRST_NODES,
        };
        let mut next = to_come.last().map(|part| part.from);

        // Chunks are aligned to their length: a chunk of a day reads exactly one block.
        while let Some(from) = next {
            let to = end_of_chunk(from, pace.chunk);
            while let Some(part) = to_come.pop_if(|part| part.from <= to) {
                let window = self.window(part.of);
                let meter = NodeMeter::new(&part.node, part.of, window, self.rules)
                    .with_curves((self.axis)(part.of));
                open.entry(part.node.clone())
                    .or_default()
                    .push((part, meter));
            }

            let mut nodes: Vec<OpenNode<'r>> = mem::take(&mut open).into_iter().collect();
            let mut rest = nodes.as_mut_slice();
            while !rest.is_empty() {
                // The caller may want to stop.
                if !sink(Vec::new())? {
                    return Ok(false);
                }
                let (group, others) = rest.split_at_mut(pace.nodes.min(rest.len()));
                self.read(group, from, to, &mut pace)?;
                rest = others;
            }

            // Runs that ended in this chunk are complete on this node; the others stay open for the next one.
            for (node, parts) in nodes {
                let (over, going): (Vec<_>, Vec<_>) =
                    parts.into_iter().partition(|(part, _)| part.to <= to);
                over.into_iter()
                    .for_each(|(part, meter)| unfinished.add(part.run, meter.finish(part.held)));
                if !going.is_empty() {
                    open.insert(node, going);
                }
            }
            if !unfinished.pass_on(STORED_TOGETHER, sink)? {
                return Ok(false);
            }
            // Spans without runs are not read.
            let after = to.plus(Duration::from_millis(1));
            next = if open.is_empty() {
                to_come.last().map(|part| part.from.max(after))
            } else {
                Some(after)
            };
        }
        unfinished.pass_on(STORED_TOGETHER, sink)
    }

    fn parts<'r>(&self, number: usize, run: &'r JobRun) -> Vec<NodeRun<'r>> {
        // A list that cannot be expanded names no scraped node.
        let names = run
            .node_list
            .as_deref()
            .and_then(|list| nodelist::expand(list).ok())
            .unwrap_or_default();
        let held = gpus_a_node(run, names.len());
        let window = self.window(run);
        // Twice the reach of a sample: counters are cut at the samples just before and after the run.
        let around = Duration::from_millis(2 * window.reach_ms.cast_unsigned());
        let from = window.from.minus(around);
        let to = window.to.plus(around);
        names
            .into_iter()
            .map(|node| NodeRun {
                run: number,
                of: run,
                node,
                from,
                to,
                held,
            })
            .collect()
    }

    fn window(&self, run: &JobRun) -> Window {
        self.rules.window(
            run.start.unwrap_or(run.submit),
            run.end.unwrap_or(run.submit),
        )
    }

    /// Reads a span of some nodes and passes the samples to their runs. Reads in parts and lowers
    /// `pace` if the span has too many samples; raises it if the span has few.
    fn read(
        &self,
        nodes: &mut [OpenNode<'_>],
        from: Timestamp,
        to: Timestamp,
        pace: &mut Pace,
    ) -> Result<(), AssessError> {
        let parts = || {
            nodes
                .iter()
                .flat_map(|(_, parts)| parts)
                .map(|(part, _)| part)
        };

        // The chunk may be much longer than the runs in it.
        let from = parts()
            .map(|part| part.from)
            .min()
            .map_or(from, |first| first.max(from));
        let to = parts()
            .map(|part| part.to)
            .max()
            .map_or(to, |last| last.min(to));

        let names: Vec<String> = nodes.iter().map(|(node, _)| regex::escape(node)).collect();
        let names = Matcher::new("node", MatchOp::Regex, &names.join("|"))?;
        let matchers = [
            self.metrics.clone(),
            Matcher::equal("cluster", self.cluster),
            names,
        ];
        let length = Duration::from_millis(to.0.abs_diff(from.0));
        // A minute is read whatever it has: it cannot be divided further.
        let most = if length <= SHORTEST_CHUNK {
            usize::MAX
        } else {
            MOST_SAMPLES
        };
        let mut read = 0_usize;
        // The meter stops the reading while it runs: the samples of a long reading would not fit into memory.
        let mut meter = |samples: usize| {
            read = read.saturating_add(samples);
            read < most
        };
        let found = if self.reads_once {
            self.store.range_once(&matchers, from, to, &mut meter)
        } else {
            let last = Reading::Last;
            self.store
                .range_metered(&matchers, from, to, last, &mut meter)
        };
        match found {
            Ok(found) => {
                found.iter().for_each(|series| show(nodes, series));
                // Few samples: reading a block costs almost the same for more nodes.
                if nodes.len() == pace.nodes && read < MOST_SAMPLES / 4 {
                    pace.nodes *= 2;
                }
                Ok(())
            }
            Err(error) if error.is_too_much() && nodes.len() > FIRST_NODES => {
                pace.nodes = (nodes.len() / 2).max(FIRST_NODES);
                let (some, others) = nodes.split_at_mut(nodes.len() / 2);
                self.read(some, from, to, pace)?;
                self.read(others, from, to, pace)
            }
            Err(error) if error.is_too_much() && length > SHORTEST_CHUNK => {
                pace.chunk = (pace.chunk / 2).max(SHORTEST_CHUNK);
                let middle = from.plus(length / 2);
                self.read(nodes, from, middle, pace)?;
                // Spans include both ends, so the second begins a millisecond later.
                self.read(nodes, middle.plus(Duration::from_millis(1)), to, pace)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Passes the samples of a series to the runs on its node at that time.
fn show(nodes: &mut [OpenNode<'_>], series: &SeriesData) {
    let node = series.labels.get("node").unwrap_or_default();
    // The nodes came out of a `BTreeMap`, so they are sorted.
    let Ok(at) = nodes.binary_search_by(|(name, _)| name.as_str().cmp(node)) else {
        return;
    };
    // A stale marker ends a series: the meter must not carry the last value on.
    let sample = |at: Timestamp, value: f64| (at, (!is_stale(value)).then_some(value));
    let samples: Vec<MeterSample> = series
        .samples
        .iter()
        .map(|one| sample(one.at, one.value))
        .collect();
    for (part, meter) in &mut nodes[at].1 {
        let first = samples.partition_point(|(at, _)| *at < part.from);
        let end = samples.partition_point(|(at, _)| *at <= part.to);
        if first < end {
            meter.add(&series.labels, &samples[first..end]);
        }
    }
}

/// The last instant of the chunk in which `at` lies.
fn end_of_chunk(at: Timestamp, chunk: Duration) -> Timestamp {
    // Aligned to the epoch, as blocks are.
    let chunk = i64::try_from(chunk.as_millis()).unwrap_or(i64::MAX);
    Timestamp((at.0.div_euclid(chunk) + 1).saturating_mul(chunk) - 1)
}

/// Number of GPUs that the run held on each node, if it is the same on all.
fn gpus_a_node(run: &JobRun, nodes: usize) -> Option<u64> {
    let gpus = run.gpus?;
    let nodes = nodes as u64;
    (nodes > 0 && gpus % nodes == 0).then(|| gpus / nodes)
}

fn now() -> Timestamp {
    SystemTime::now().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{import, store_in};
    use takt_alerts::rules::{Rule, RuleFile};
    use takt_model::Labels;
    use takt_store::{Column, STALE, Sample};
    use tempfile::tempdir;

    /// A name with a character that has a meaning in regular expressions.
    const NODE: &str = "gpu-1.lab";

    fn run(job_id: &str, start: UnixTime, end: UnixTime) -> JobRun {
        JobRun {
            cluster: "lab".into(),
            job_id: job_id.into(),
            submit: start,
            start: Some(start),
            end: Some(end),
            state: "COMPLETED".into(),
            user: "ann".into(),
            nodes: Some(1),
            cpus: Some(4),
            gpus: Some(1),
            node_list: Some(NODE.into()),
            ..JobRun::default()
        }
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs
            .iter()
            .copied()
            .chain([("cluster", "lab"), ("node", NODE)])
            .collect()
    }

    /// Writes an hour of a node with two GPUs: job 7 uses the first, and job 8 leaves the second
    /// idle.
    fn write_hour(store: &Store, from: UnixTime) {
        let group = store.group();
        let column = |pairs: &[(&str, &str)]| group.column(&labels(pairs)).unwrap();
        let series: Vec<(Column, f64)> = ["a", "b"]
            .into_iter()
            .zip([("7", 0.9), ("8", 0.0)])
            .flat_map(|(uuid, (job, work))| {
                [
                    (
                        column(&[(METRIC_NAME, "takt_gpu_info"), ("uuid", uuid)]),
                        1.0,
                    ),
                    (
                        column(&[(METRIC_NAME, "takt_gpu_utilization_ratio"), ("uuid", uuid)]),
                        work,
                    ),
                    (
                        column(&[
                            (METRIC_NAME, "takt_gpu_job_info"),
                            ("uuid", uuid),
                            ("jobid", job),
                        ]),
                        1.0,
                    ),
                ]
            })
            .collect();
        for seconds in (0..3600).step_by(30) {
            let mut row = vec![STALE; group.width()];
            series
                .iter()
                .for_each(|(column, value)| row[column.index()] = *value);
            group
                .commit(group.ticket((from + seconds).into()).unwrap(), &row, &[])
                .unwrap();
        }
        store.flush();
    }

    /// A series of dcgm-exporter: its name, and for each of two GPUs the value at first and its growth each second.
    type DcgmSeries = (&'static str, [(f64, f64); 2]);

    const GIB: f64 = (1_u64 << 30) as f64;

    /// Writes samples every 30 s of an hour that is over. `value` returns the value of a series at a second.
    fn write_past_hour(
        store: &Store,
        from: UnixTime,
        series: &[Labels],
        value: &dyn Fn(usize, i64) -> Option<f64>,
    ) {
        let mut past = Vec::new();
        for (number, labels) in series.iter().enumerate() {
            let id = store.series_number(labels);

            // One GPU works and the other idles; energy grows each second.
            for seconds in (0..3600).step_by(30) {
                let at = (from + seconds).into();
                past.extend(value(number, seconds).map(|value| (id, Sample { at, value })));
            }
        }
        store.write_past(past).unwrap();
        store.flush();
    }

    /// Writes an hour of a node with two GPUs, as it is scraped from dcgm-exporter, and what the shipped rules
    /// make of it.
    fn write_hour_of_dcgm(
        store: &Store,
        from: UnixTime,
        more: &[(&str, &str)],
        metrics: &[DcgmSeries],
    ) {
        let gpus = [("0", "GPU-a"), ("1", "GPU-b")];
        let scraped: Vec<(Labels, (f64, f64))> = metrics
            .iter()
            .flat_map(|(name, values)| {
                gpus.iter().zip(values).map(move |((gpu, uuid), value)| {
                    let own = [(METRIC_NAME, *name), ("gpu", gpu), ("UUID", uuid)];
                    (labels(&[&own, more].concat()), *value)
                })
            })
            .collect();
        let names: Vec<Labels> = scraped.iter().map(|(labels, _)| labels.clone()).collect();
        write_past_hour(store, from, &names, &|number, seconds| {
            let (first, growth) = scraped[number].1;
            Some(first + growth * seconds as f64)
        });

        // The rules that a site loads, not a copy: they give the names that the assessment reads.
        let text = include_str!("../../../dashboards/rules/dcgm.rules.yml");
        let file = RuleFile::read("dcgm.rules.yml", text).unwrap();
        let rules = file.groups.iter().flat_map(|group| &group.rules);
        let mut recorded: Vec<(Labels, BTreeMap<Timestamp, f64>)> = Vec::new();

        for rule in rules {
            let Rule::Recording(rule) = rule else {
                panic!("{}", rule.name());
            };
            let (start, end) = (from.into(), (from + 3600).into());
            let options = takt_promql::Options::default();
            // One step each 30 s, as the samples come.
            let answer = takt_promql::range(store, &rule.expr, start, end, 30_000, &options);
            let takt_promql::Value::Matrix(found) = answer.unwrap().value else {
                panic!("{}", rule.expr);
            };
            for series in found {
                let named = [(METRIC_NAME, rule.name.as_str())];
                let labels = series.labels.iter().chain(rule.labels.iter()).chain(named);
                let points = series.points.iter().map(|point| (point.at, point.value));
                recorded.push((labels.collect(), points.collect()));
            }
        }

        let names: Vec<Labels> = recorded.iter().map(|(labels, _)| labels.clone()).collect();
        write_past_hour(store, from, &names, &|number, seconds| {
            recorded[number].1.get(&(from + seconds).into()).copied()
        });
    }

    #[test]
    fn runs_are_judged_by_what_dcgm_exporter_measures() {
        let mib = 1024.0;
        let old: &[DcgmSeries] = &[
            ("DCGM_FI_DEV_GPU_TEMP", [(60.0, 0.0), (40.0, 0.0)]),
            ("DCGM_FI_DEV_GPU_UTIL", [(90.0, 0.0), (0.0, 0.0)]),
            ("DCGM_FI_DEV_FB_USED", [(20.0 * mib, 0.0), (0.0, 0.0)]),
            (
                "DCGM_FI_DEV_FB_FREE",
                [(60.0 * mib, 0.0), (80.0 * mib, 0.0)],
            ),
            ("DCGM_FI_DEV_POWER_USAGE", [(400.0, 0.0), (100.0, 0.0)]),
            // Millijoules.
            (
                "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
                [(5e9, 400e3), (7e9, 100e3)],
            ),
        ];
        let new: &[DcgmSeries] = &[
            ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", [(60.0, 0.0), (40.0, 0.0)]),
            ("DCGM_FI_DEV_GPU_UTIL_RATIO", [(0.9, 0.0), (0.0, 0.0)]),
            ("DCGM_FI_DEV_FB_USED_BYTES", [(20.0 * GIB, 0.0), (0.0, 0.0)]),
            (
                "DCGM_FI_DEV_FB_FREE_BYTES",
                [(60.0 * GIB, 0.0), (80.0 * GIB, 0.0)],
            ),
            (
                "DCGM_FI_DEV_BOARD_POWER_WATTS",
                [(400.0, 0.0), (100.0, 0.0)],
            ),
            (
                "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
                [(5e6, 400.0), (7e6, 100.0)],
            ),
        ];
        let generations = [
            ([("Hostname", "x"), ("modelName", "NVIDIA H100")], old),
            ([("hostname", "x"), ("modelName", "NVIDIA H100")], new),
        ];
        for (more, metrics) in generations {
            let root = tempdir().unwrap();
            let store = store_in(root.path());
            let from = now().whole_seconds() - 7200;
            let both = JobRun {
                gpus: Some(2),
                ..run("7", from, from + 3600)
            };
            import(store.database(), None, [both]);
            write_hour_of_dcgm(&store, from, &more, metrics);

            let rules = EfficiencyConfig::default();
            let span = (from, from + 7200);
            pass(&store, "lab", span, Due::New, &rules, |_| true).unwrap();
            let records = Records::of(store.database());
            let found = records.assessed("lab", from, from + 7200).unwrap();
            let seen = &found[0].efficiency;
            let is_about = |found: Option<f64>, expected: f64| {
                found.is_some_and(|found| (found / expected - 1.0).abs() < 0.02)
            };
            assert!(seen.coverage_ratio > 0.98, "{more:?} {seen:?}");
            assert!(is_about(seen.gpu_utilization_mean, 0.45), "{seen:?}");
            assert!(
                is_about(Some(seen.waste_idle_gpu_seconds), 3600.0),
                "{seen:?}"
            );
            assert_eq!(seen.gpu_memory_peak_bytes, Some(20.0 * GIB), "{more:?}");
            assert_eq!(seen.gpu_memory_total_bytes, Some(80.0 * GIB), "{more:?}");
            assert!(is_about(seen.gpu_power_mean_watts, 500.0), "{seen:?}");
            assert!(is_about(seen.gpu_energy_joules, 1.8e6), "{seen:?}");
        }
    }

    #[test]
    fn runs_are_judged_once_and_again_when_their_end_is_corrected() {
        let root = tempdir().unwrap();
        let store = store_in(root.path());
        let from = now().whole_seconds() - 7200;
        let records = Records::of(store.database());
        let import = |runs: &[JobRun]| import(store.database(), None, runs.iter().cloned());
        // A node that is not scraped: assessed, with all its time unmeasured.
        let unseen = JobRun {
            node_list: Some("elsewhere".into()),
            ..run("9", from, from + 60)
        };
        let pending = JobRun {
            start: None,
            ..run("10", from, from + 60)
        };
        import(&[
            run("7", from, from + 3600),
            run("8", from, from + 3600),
            unseen,
            pending,
        ]);
        write_hour(&store, from);

        // Seven and eight have samples; nine has none, and ten never started.
        let rules = EfficiencyConfig::default();
        let pass = |due| pass(&store, "lab", (from, from + 7200), due, &rules, |_| true).unwrap();
        assert_eq!(
            pass(Due::New),
            Assessed {
                runs: 3,
                measured: 2
            }
        );
        assert_eq!(pass(Due::New), Assessed::default());

        let mut found = records.assessed("lab", from, from + 7200).unwrap();
        found.sort_by(|a, b| a.run.job_id.cmp(&b.run.job_id));
        let wasted: Vec<f64> = found
            .iter()
            .map(|found| found.efficiency.split().wasted())
            .collect();
        assert_eq!(wasted.len(), 3);
        assert!(
            wasted[0] == 0.0 && (wasted[1] - 3600.0).abs() < 60.0,
            "{wasted:?}"
        );
        assert_eq!(found[2].efficiency.coverage_ratio, 0.0);
        assert_eq!(found[2].efficiency.unmeasured_gpu_seconds, 60.0);
        assert!((found[0].efficiency.gpu_utilization_mean.unwrap() - 0.9).abs() < 1e-9);

        // `All` reads assessed runs again; the rows are replaced.
        assert_eq!(
            pass(Due::All),
            Assessed {
                runs: 3,
                measured: 2
            }
        );
        assert_eq!(
            records.assessed("lab", from, from + 7200).unwrap().len(),
            3,
            "one row a run"
        );
        // A corrected end makes the run due again.
        import(&[run("8", from, from + 1800)]);
        assert_eq!(
            pass(Due::New),
            Assessed {
                runs: 1,
                measured: 1
            }
        );
        let corrected = records.assessed("lab", from, from + 7200).unwrap();
        let of_8 = corrected
            .iter()
            .find(|found| found.run.job_id == "8")
            .unwrap();
        assert_eq!(of_8.efficiency.held_seconds, 1800);
    }
}
