//! Evaluates the series of one node for one run: identifies the run's GPUs, and measures them, the
//! run's cgroup and the node's links.
//!
//! A run's GPUs are known if a process of the run was seen on them. A run that holds GPUs without
//! using them has no process there. Therefore, if the GPUs without other jobs are as many as the
//! run held on the node, they are the run's. Otherwise the remaining GPUs are unknown and are not
//! counted as idle.
//!
//! Slurm's cgroups use an internal number for array tasks (`7_3`) and components (`7+1`). Most
//! sources record this number. Without it, the run is the only job of its user that was on the node
//! exactly during the run.
//!
//! Without a scheduler a run is one user on one GPU, and its job id names the GPU.
//!
//! Links and NFS mounts belong to the node. They count for a run only if no other job was seen
//! there.

use super::curve::{Axis, CurveMeter, GaugeCurve};
use super::gpu_meter::{
    ACTIVITY, ENERGY, GPU_UP, GpuMeter, MEMORY_TOTAL, MEMORY_UNIT, MEMORY_USED, POWER, RATIO_UNIT,
    STEP_MS, Steps, UTILIZATION, XID, follow, highest,
};
use super::signal::{Growth, Window};
use super::{EfficiencyConfig, NodeCurves, NodeFigures};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use takt_jobs::JobRun;
use takt_jobs::process_usage::sighting_of;
use takt_model::{Labels, Timestamp};

/// The metrics that a meter reads. It ignores all others.
pub const METRICS: &[&str] = &[
    GPU_INFO,
    JOB_INFO,
    ON_NODE,
    UTILIZATION,
    MEMORY_USED,
    MEMORY_TOTAL,
    POWER,
    ENERGY,
    ACTIVITY,
    GPU_UP,
    XID,
    JOB_CPU,
    JOB_MEMORY_PEAK,
    JOB_MEMORY_CURRENT,
    JOB_OOM_KILLS,
    NET_RECEIVED,
    NET_SENT,
    NET_SPEED,
    IB_RECEIVED,
    IB_SENT,
    IB_SPEED,
    NFS_READ,
    NFS_WRITTEN,
];

const GPU_INFO: &str = "takt_gpu_info";
const JOB_INFO: &str = "takt_gpu_job_info";
const ON_NODE: &str = "takt_job_info";
const JOB_CPU: &str = "takt_job_cpu_seconds_total";
const JOB_MEMORY_PEAK: &str = "takt_job_memory_peak_bytes";
const JOB_MEMORY_CURRENT: &str = "takt_job_memory_current_bytes";
const JOB_OOM_KILLS: &str = "takt_job_oom_kills_total";
const NET_RECEIVED: &str = "node_network_receive_bytes_total";
const NET_SENT: &str = "node_network_transmit_bytes_total";
const NET_SPEED: &str = "node_network_speed_bytes";
const IB_RECEIVED: &str = "node_infiniband_port_data_received_bytes_total";
const IB_SENT: &str = "node_infiniband_port_data_transmitted_bytes_total";
const IB_SPEED: &str = "node_infiniband_rate_bytes_per_second";
const NFS_READ: &str = "node_mountstats_nfs_total_read_bytes_total";
const NFS_WRITTEN: &str = "node_mountstats_nfs_total_write_bytes_total";

/// A sample: its time and value. `None` ends the series.
pub type MeterSample = (Timestamp, Option<f64>);

/// Reads one node's series for one run. Samples of one series come in order of time, in one or
/// several calls.
#[derive(Debug)]
pub struct NodeMeter {
    node: String,
    /// The run's number in the node's cgroups.
    number: Option<String>,
    window: Window,
    user: String,
    /// Without a scheduler: the GPU of the run, by index or UUID.
    seen_on: Option<String>,
    /// UUID of that GPU.
    seen_uuid: Option<String>,
    rules: EfficiencyConfig,
    /// Axis of the curves; `None` without curves.
    axis: Option<Axis>,
    /// Whether any sample was read.
    was_heard: bool,
    gpus: BTreeMap<String, GpuMeter>,
    jobs: BTreeMap<String, JobTrace>,
    links: BTreeMap<String, Link>,
    nfs: HashMap<(&'static str, Labels), Growth>,
}

/// A job that was seen on the node around the time of the run.
#[derive(Debug)]
struct JobTrace {
    user: Option<String>,
    first: Timestamp,
    last: Timestamp,
    /// Number of the job's samples during the run.
    inside: usize,
    gpus: BTreeSet<String>,
    cpu: Growth,
    memory_peak: Option<f64>,
    oom_kills: Growth,
    oom_at: Option<Timestamp>,
    curves: Option<(CurveMeter, GaugeCurve)>,
}

#[derive(Debug)]
struct Link {
    received: (Growth, Steps),
    sent: (Growth, Steps),
    speed: Option<f64>,
}

impl NodeMeter {
    /// Starts without samples, for a run on a node.
    pub fn new(node: &str, run: &JobRun, window: Window, rules: &EfficiencyConfig) -> Self {
        Self {
            node: node.to_owned(),
            // An array task has another number in the cgroup; without it, `own_id` looks for the run.
            number: run
                .raw_job_id
                .clone()
                .or_else(|| Some(run.job_id.clone()).filter(|id| is_number(id))),
            user: run.user.clone(),
            seen_on: sighting_of(run).map(|seen| seen.gpu),
            seen_uuid: None,
            window,
            rules: rules.clone(),
            axis: None,
            was_heard: false,
            gpus: BTreeMap::new(),
            jobs: BTreeMap::new(),
            links: BTreeMap::new(),
            nfs: HashMap::new(),
        }
    }

    /// Also makes curves over `axis`.
    pub fn with_curves(mut self, axis: Axis) -> Self {
        self.axis = Some(axis);
        self
    }

    /// Reads samples of one series.
    pub fn add(&mut self, labels: &Labels, samples: &[MeterSample]) {
        let Some(metric) = METRICS
            .iter()
            .copied()
            .find(|metric| *metric == labels.metric())
        else {
            return;
        };

        let window = self.window;
        let within = move |at: Timestamp| window.from <= at && at < window.to;
        // Samples with a value; a stale marker has none.
        let values = || samples.iter().filter_map(|&(at, value)| Some((at, value?)));
        let inside = || {
            values()
                .filter(|&(at, _)| within(at))
                .map(|(_, value)| value)
        };

        // Samples from around the run do not show that the exporter answered during it.
        self.was_heard |= inside().next().is_some();

        let uuid = labels.get("uuid").unwrap_or_default();
        match metric {
            GPU_INFO if inside().next().is_some() => {
                // A later series may lack a label.
                let gpu = self.gpu(uuid);
                let label = |name| labels.get(name).map(str::to_owned);
                gpu.index = label("index").or(gpu.index.take());
                gpu.model = label("model").or(gpu.model.take());
                // Without a scheduler, the run names its GPU by index or UUID.
                if self
                    .seen_on
                    .as_deref()
                    .is_some_and(|gpu| gpu == uuid || labels.get("index") == Some(gpu))
                {
                    self.seen_uuid = Some(uuid.to_owned());
                }
            }
            JOB_INFO | ON_NODE | JOB_CPU | JOB_MEMORY_PEAK | JOB_MEMORY_CURRENT | JOB_OOM_KILLS => {
                let Some(job) = self.job(labels, values().map(|(at, _)| at), inside().count())
                else {
                    return;
                };
                match metric {
                    JOB_INFO if inside().next().is_some() => {
                        job.gpus.insert(uuid.to_owned());
                    }
                    JOB_CPU => values().for_each(|(at, value)| job.add_cpu(at, value)),
                    // Where the kernel has no peak, the highest current value stands in for it.
                    JOB_MEMORY_PEAK | JOB_MEMORY_CURRENT => {
                        job.memory_peak = inside().fold(job.memory_peak, highest);
                        if let (JOB_MEMORY_CURRENT, Some((_, curve))) = (metric, &mut job.curves) {
                            samples
                                .iter()
                                .for_each(|&(at, value)| curve.push(at, value));
                        }
                    }
                    JOB_OOM_KILLS => values().for_each(|(at, value)| job.add_kills(at, value)),
                    _ => {}
                }
            }
            NET_RECEIVED | NET_SENT | NET_SPEED | IB_RECEIVED | IB_SENT | IB_SPEED => {
                self.link(metric, labels, samples)
            }
            NFS_READ | NFS_WRITTEN => {
                let growth = self
                    .nfs
                    .entry((metric, labels.clone()))
                    .or_insert_with(|| Growth::new(self.window));
                values().for_each(|(at, value)| follow(growth, at, value));
            }
            // All other metrics are about one GPU.
            _ if !uuid.is_empty() => {
                self.gpu(uuid).add(metric, labels, samples, window);
            }
            _ => {}
        }
    }

    fn gpu(&mut self, uuid: &str) -> &mut GpuMeter {
        let window = self.window;
        let axis = self.axis;
        let rules = &self.rules;
        self.gpus
            .entry(uuid.to_owned())
            .or_insert_with(|| GpuMeter::new(window, axis, rules))
    }

    /// Returns the trace of the job that a series belongs to, updated with these samples.
    fn job(
        &mut self,
        labels: &Labels,
        at: impl Iterator<Item = Timestamp>,
        inside: usize,
    ) -> Option<&mut JobTrace> {
        let (first, last) = at.fold(None, |span: Option<(Timestamp, Timestamp)>, at| {
            Some((span.map_or(at, |(first, _)| first), at))
        })?;

        let window = self.window;
        let axis = self.axis;
        let trace = self
            .jobs
            .entry(labels.get("jobid").unwrap_or_default().to_owned())
            .or_insert_with(|| JobTrace {
                user: None,
                first,
                last,
                inside: 0,
                gpus: BTreeSet::new(),
                // The cgroup begins with the job, so its counters start at 0.
                cpu: Growth::from_zero(window),
                memory_peak: None,
                oom_kills: Growth::from_zero(window),
                oom_at: None,
                curves: axis.map(|axis| (CurveMeter::new(axis), GaugeCurve::new(window, axis))),
            });

        // Series come in several calls, and each has another part of the time.
        trace.first = trace.first.min(first);
        trace.last = trace.last.max(last);
        trace.inside = trace.inside.max(inside);
        if let Some(user) = labels.get("user") {
            trace.user.get_or_insert_with(|| user.to_owned());
        }

        Some(trace)
    }

    /// Returns the run's number on the node, if the run was seen there.
    fn own_id(&self) -> Option<String> {
        // A known number that was not seen means that the run was not seen.
        if let Some(number) = &self.number {
            return self.jobs.contains_key(number).then(|| number.clone());
        }

        // Exactly during the run means up to the reach of a sample.
        let slack = self.window.reach_ms;
        let is_it = |trace: &JobTrace| {
            trace.user.as_ref() == Some(&self.user)
                && (trace.first - self.window.from).abs() <= slack
                && (trace.last - self.window.to).abs() <= slack
        };

        let mut found = self
            .jobs
            .iter()
            .filter(|(_, trace)| is_it(trace))
            .map(|(id, _)| id);
        // Two such jobs are ambiguous.
        found.next().filter(|_| found.next().is_none()).cloned()
    }

    fn link(&mut self, metric: &str, labels: &Labels, samples: &[MeterSample]) {
        let device = labels.get("device").unwrap_or_default();
        // The loopback is no link.
        if matches!(device, "" | "lo") {
            return;
        }

        // InfiniBand devices have ports; others have none.
        let name = format!("{device}/{}", labels.get("port").unwrap_or_default());
        let window = self.window;
        let new = || (Growth::new(window), Steps::default());
        let link = self.links.entry(name).or_insert_with(|| Link {
            received: new(),
            sent: new(),
            speed: None,
        });

        let (growth, steps) = match metric {
            NET_RECEIVED | IB_RECEIVED => &mut link.received,
            NET_SENT | IB_SENT => &mut link.sent,
            _ => {
                // The last known speed: it is 0 while the link is down.
                link.speed = samples
                    .iter()
                    .rev()
                    .filter_map(|(_, value)| *value)
                    .find(|speed| *speed > 0.0)
                    .or(link.speed);
                return;
            }
        };

        for &(at, value) in samples {
            if let Some(stretch) = value.and_then(|value| growth.push(at, value)) {
                steps.add(window, stretch, stretch.value);
            }
        }
    }

    /// Returns the figures of a run that held `held` GPUs of this node. `None` means that their
    /// number is unknown.
    pub fn finish(mut self, held: Option<u64>) -> NodeFigures {
        let id = self.own_id();
        let own_trace = id.and_then(|id| self.jobs.remove(&id));
        let mut own = own_trace
            .as_ref()
            .map(|trace| trace.gpus.clone())
            .unwrap_or_default();

        // A single sample of another job is enough to take a GPU out of question.
        let others: BTreeSet<&String> = self
            .jobs
            .values()
            .filter(|trace| trace.inside > 0)
            .flat_map(|trace| &trace.gpus)
            .collect();

        let free: BTreeSet<String> = self
            .gpus
            .keys()
            .filter(|uuid| own.contains(*uuid) || !others.contains(uuid))
            .cloned()
            .collect();

        // Without the run's number its own process looks like another job; then only a run on all
        // GPUs is unambiguous.
        let is_whole = held == Some(self.gpus.len() as u64);
        let is_identified = own_trace.is_some() || self.number.is_some();
        // Without a scheduler the run names its GPU.
        if let Some(uuid) = self.seen_uuid.take() {
            own = [uuid].into();
        } else if is_whole {
            own = self.gpus.keys().cloned().collect();
        } else if is_identified && held == Some(free.len() as u64) {
            own = free;
        }

        // One sample of another job may come from the previous job, before the node has cleaned up.
        let is_shared = self.jobs.values().any(|trace| trace.inside > 1);
        let is_alone = !self.gpus.is_empty() && is_whole || own_trace.is_some() && !is_shared;

        // Links and mounts are those of the node, so another job may have used them.
        let link_bound = if is_alone {
            self.link_bound(&own)
        } else {
            None
        };
        let network_bytes = is_alone.then(|| {
            self.links
                .values()
                .flat_map(|link| [link.received.0.total(), link.sent.0.total()])
                .flatten()
                .fold(None, |sum: Option<f64>, total| {
                    Some(sum.unwrap_or(0.0) + total)
                })
        });
        let nfs = is_alone.then(|| {
            self.nfs
                .values()
                .filter_map(Growth::total)
                .fold(None, |sum: Option<f64>, total| {
                    Some(sum.unwrap_or(0.0) + total)
                })
        });

        let Self {
            node,
            gpus,
            was_heard,
            ..
        } = self;
        let showed_run = own_trace.is_some();
        let cpu = own_trace.as_ref().map(|trace| trace.cpu);
        let oom_kills = own_trace.as_ref().and_then(|trace| trace.oom_kills.total());
        let oom_at = own_trace.as_ref().and_then(|trace| trace.oom_at);
        let memory_peak_bytes = own_trace.as_ref().and_then(|trace| trace.memory_peak);
        let curves = own_trace.and_then(|trace| trace.curves);

        let gpus = gpus
            .into_iter()
            .filter(|(uuid, _)| own.contains(uuid))
            .map(|(uuid, gpu)| gpu.finish(&node, uuid))
            .collect();

        NodeFigures {
            was_heard,
            showed_run,
            gpus,
            cpu_seconds: cpu.and_then(|cpu| cpu.total()),
            cpu_covered_seconds: cpu.map_or(0.0, |cpu| cpu.covered_seconds()),
            memory_peak_bytes,
            network_bytes: network_bytes.flatten(),
            nfs_bytes: nfs.flatten(),
            link_bound_seconds: link_bound.map(|(bound, _)| bound),
            link_seen_seconds: link_bound.map_or(0.0, |(_, seen)| seen),
            oom_kills,
            oom_at,
            curves: curves.map(|(cpus, memory)| NodeCurves {
                cpus: cpus.finish(RATIO_UNIT),
                memory: memory.finish(MEMORY_UNIT),
            }),
            node,
        }
    }

    /// Returns the seconds in which a link was near its speed while the run's GPUs waited, and the
    /// seconds in which both are known.
    fn link_bound(&self, own: &BTreeSet<String>) -> Option<(f64, f64)> {
        let gpus: Vec<&Steps> = own
            .iter()
            .filter_map(|uuid| self.gpus.get(uuid))
            .map(|gpu| &gpu.steps)
            .collect();
        let links: Vec<(f64, &Link)> = self
            .links
            .values()
            // A link without a known speed cannot be full.
            .filter_map(|link| Some((link.speed?, link)))
            .collect();

        if gpus.is_empty() || links.is_empty() {
            return None;
        }

        let mut bound = 0_u32;
        let mut seen = 0_u32;
        for step in 0..gpus.iter().map(|steps| steps.0.len()).max().unwrap_or(0) {
            let work: Vec<f64> = gpus.iter().filter_map(|steps| steps.rate(step)).collect();

            let use_of = |(speed, link): &(f64, &Link)| {
                [&link.received, &link.sent]
                    .map(|(_, steps)| steps.rate(step))
                    .into_iter()
                    .flatten()
                    .map(|rate| rate / speed)
                    .reduce(f64::max)
            };

            // A step counts only if both the GPUs and the links were measured in it.
            let (false, Some(busiest)) = (
                work.is_empty(),
                links.iter().filter_map(use_of).reduce(f64::max),
            ) else {
                continue;
            };

            seen += 1;
            let mean = work.iter().sum::<f64>() / work.len() as f64;
            bound += u32::from(
                // A full link with busy GPUs is good use of both.
                busiest >= self.rules.link_busy_ratio && mean < self.rules.low_utilization_ratio,
            );
        }

        let seconds = |steps: u32| f64::from(steps) * STEP_MS as f64 / 1e3;
        (seen > 0).then(|| (seconds(bound), seconds(seen)))
    }
}

impl JobTrace {
    fn add_cpu(&mut self, at: Timestamp, seconds: f64) {
        let grown = self.cpu.push(at, seconds);
        if let (Some(grown), Some((curve, _))) = (grown, &mut self.curves) {
            curve.add_growth(grown);
        }
    }

    fn add_kills(&mut self, at: Timestamp, kills: f64) {
        let grown = self.oom_kills.push(at, kills);
        if grown.is_some_and(|grown| grown.value > 0.0) {
            self.oom_at.get_or_insert(at);
        }
    }
}

/// Returns whether an id consists of digits only, as in cgroups.
fn is_number(id: &str) -> bool {
    id.bytes().all(|byte| byte.is_ascii_digit())
}
