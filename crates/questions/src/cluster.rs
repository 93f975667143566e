//! The cluster now: nodes, GPUs, who holds them, and what is held and idle.

use super::period::the_cluster;
use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::mem;
use std::time::{Duration, SystemTime};
use takt_access::{Need, OTHER_USER, Owner, Role, Viewer};
use takt_model::{Labels, Matcher, Timestamp, UnixTime};
use takt_store::{
    GpuPlace, Records, RunningJob, SLOT_SECONDS, SLOTS, SeriesData, Slot, Store, StoreError,
    slot_of,
};

/// Lookback of the instant queries.
const LOOKBACK: Duration = Duration::from_secs(300);

/// Window of the CPU's rate.
const CPU_WINDOW: Duration = Duration::from_secs(120);

/// Asks for the nodes and GPUs as they are now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterQuestion {
    /// Only this node.
    pub node: Option<String>,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
}

/// The cluster now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterAnswer {
    /// Time of the answer.
    pub at: UnixTime,
    /// Number of nodes that answer.
    pub nodes_up: u64,
    /// GPUs by state.
    pub gpus: GpuCounts,
    /// Running jobs; `None` without job records.
    pub jobs_running: Option<u64>,
    /// Pending jobs; `None` without job records.
    pub jobs_pending: Option<u64>,
    /// Jobs and users that hold idle GPUs, the most idle GPUs first.
    pub idle: Vec<IdleHolder>,
    /// Nodes, by name.
    pub nodes: Vec<NodeNow>,
}

/// Number of GPUs by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuCounts {
    /// All GPUs.
    pub all: u64,
    /// GPUs at work.
    pub busy: u64,
    /// GPUs that are held and idle.
    pub idle: u64,
    /// GPUs that nothing holds.
    pub free: u64,
    /// GPUs that NVML cannot read.
    pub lost: u64,
    /// GPUs without a measurement.
    pub unknown: u64,
}

/// State of a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuState {
    /// NVML cannot read the GPU.
    Lost,
    /// A job or a process holds the GPU, which is below the idle threshold now and was in the last
    /// complete five minutes.
    Idle,
    /// The GPU is at work.
    Busy,
    /// Nothing holds the GPU.
    Free,
    /// The utilization is not measured.
    #[default]
    Unknown,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeNow {
    /// Name of the node.
    pub node: String,
    /// Whether all exporters of the node answer.
    pub is_up: bool,
    /// Slurm's state, such as `MIXED+DRAIN`; `None` without Slurm.
    pub state: Option<String>,
    /// Slurm's reason, if set.
    pub reason: Option<String>,
    /// Share of the CPU time that is not idle, 0 to 1.
    pub cpu_busy_ratio: Option<f64>,
    /// Used memory, in bytes.
    pub memory_used_bytes: Option<f64>,
    /// Memory, in bytes.
    pub memory_total_bytes: Option<f64>,
    /// GPUs, by index.
    pub gpus: Vec<GpuNow>,
}

/// A GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuNow {
    /// UUID, from NVML.
    pub uuid: String,
    /// NVML's index.
    pub index: String,
    /// Model.
    pub model: String,
    /// State.
    pub state: GpuState,
    /// Why NVML cannot read the GPU.
    pub reason: Option<String>,
    /// Share of time in which a kernel ran, 0 to 1.
    pub utilization_ratio: Option<f64>,
    /// Used memory, in bytes.
    pub memory_used_bytes: Option<f64>,
    /// Memory, in bytes.
    pub memory_total_bytes: Option<f64>,
    /// Temperature, in degrees Celsius.
    pub temperature_celsius: Option<f64>,
    /// Power, in watts.
    pub power_watts: Option<f64>,
    /// Jobs and users that hold the GPU.
    pub holders: Vec<Holder>,
    /// Processes on the GPU: `ann: python`.
    pub processes: Vec<String>,
    /// Seconds for which the GPU has been held and idle, to five minutes; at most seven days.
    pub idle_seconds: Option<i64>,
}

/// A job or a user that holds a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Holder {
    /// Job id; `None` for a process outside of jobs.
    pub job_id: Option<String>,
    /// User; empty if unknown.
    pub user: String,
    /// Account of the job; empty if unknown.
    pub account: String,
}

/// A job or a user that holds idle GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct IdleHolder {
    /// The job or user.
    pub holder: Holder,
    /// GPUs that it holds.
    pub gpus: u64,
    /// Idle GPUs among them.
    pub idle_gpus: u64,
    /// Nodes with its idle GPUs.
    pub nodes: Vec<String>,
    /// Seconds for which its longest-idle GPU has been idle.
    pub idle_seconds: i64,
}

impl Question for ClusterQuestion {
    const PATH: &'static str = "/api/takt/v1/cluster";
    const NEED: Need = Need::Role(Role::Status);
    type Answer = ClusterAnswer;
    type Data = Store;

    fn answer(
        &self,
        viewer: &Viewer,
        store: &Store,
        config: &AnswerConfig,
    ) -> Result<ClusterAnswer, AnswerError> {
        let records = Records::of(store.database());
        let cluster = the_cluster(
            &records,
            self.cluster
                .as_deref()
                .or(config.accounting.cluster.as_deref()),
            config.accounting.home.as_deref(),
        )?;
        let now = Timestamp::from(SystemTime::now());
        let running = records.running_jobs(&cluster.cluster)?;
        let mut look = Look {
            viewer,
            store,
            node: self.node.as_deref(),
            now,
            nodes: BTreeMap::new(),
            gpus: BTreeMap::new(),
        };
        look.targets()?;
        look.scheduler(
            &records
                .scheduler_now(&cluster.cluster, now.whole_seconds())?
                .nodes,
        );
        look.machines()?;
        look.gpus()?;
        look.holders(&running)?;
        let idle_below = config.accounting.efficiency.idle_below_ratio;
        look.states(idle_below);
        let mut answer = look.answer();
        if records.has_scheduler(&cluster.cluster)? || !running.is_empty() {
            let counts = records.queue_counts(&cluster.cluster)?;
            answer.jobs_running = Some(counts.running);
            answer.jobs_pending = Some(counts.pending);
        }
        if viewer.role() < Role::User {
            answer.remove_people();
        }
        Ok(answer)
    }
}

impl ClusterAnswer {
    /// Removes people, jobs, and texts that people write, for the status screen.
    fn remove_people(&mut self) {
        self.idle.clear();
        for node in &mut self.nodes {
            node.reason = None;
            for gpu in &mut node.gpus {
                gpu.holders.clear();
                gpu.processes.clear();
            }
        }
    }
}

type GpuKey = (String, String);

/// The cluster while it is assembled from samples and records.
struct Look<'a> {
    viewer: &'a Viewer,
    store: &'a Store,
    node: Option<&'a str>,
    now: Timestamp,
    nodes: BTreeMap<String, NodeNow>,
    gpus: BTreeMap<GpuKey, GpuNow>,
}

/// Accessor for one reading of a GPU.
type Field = fn(&mut GpuNow) -> &mut Option<f64>;

const READINGS: [(&str, Field); 5] = [
    ("takt_gpu_utilization_ratio", |gpu| {
        &mut gpu.utilization_ratio
    }),
    ("takt_gpu_memory_used_bytes", |gpu| {
        &mut gpu.memory_used_bytes
    }),
    ("takt_gpu_memory_total_bytes", |gpu| {
        &mut gpu.memory_total_bytes
    }),
    ("takt_gpu_temperature_celsius", |gpu| {
        &mut gpu.temperature_celsius
    }),
    ("takt_gpu_power_watts", |gpu| &mut gpu.power_watts),
];

impl Look<'_> {
    fn matchers(&self, metric: &str) -> Vec<Matcher> {
        let node = self.node.map(|node| Matcher::equal("node", node));
        [Matcher::metric(metric)].into_iter().chain(node).collect()
    }

    fn latest(&self, metric: &str) -> Result<Vec<SeriesData>, StoreError> {
        self.store
            .instant(&self.matchers(metric), self.now, LOOKBACK)
    }

    fn node(&mut self, name: &str) -> &mut NodeNow {
        self.nodes
            .entry(name.to_owned())
            .or_insert_with(|| NodeNow {
                node: name.to_owned(),
                is_up: true,
                ..NodeNow::default()
            })
    }

    fn targets(&mut self) -> Result<(), StoreError> {
        for series in self.latest("up")? {
            if let Some(name) = series.labels.get("node") {
                self.node(name).is_up &= value(&series) == 1.0;
            }
        }
        Ok(())
    }

    fn scheduler(&mut self, nodes: &[(String, String, Option<String>)]) {
        for (name, state, reason) in nodes {
            if self.node.is_none_or(|wanted| wanted == name) {
                let node = self.node(name);
                node.state = Some(state.clone());
                node.reason.clone_from(reason);
            }
        }
    }

    fn machines(&mut self) -> Result<(), StoreError> {
        let mut idle: BTreeMap<String, (f64, f64)> = BTreeMap::new();
        let mut matchers = self.matchers("node_cpu_seconds_total");
        matchers.push(Matcher::equal("mode", "idle"));
        for series in self
            .store
            .range(&matchers, self.now.minus(CPU_WINDOW), self.now)?
        {
            let mut known = series
                .samples
                .iter()
                .filter(|sample| sample.value.is_finite());
            if let (Some(first), Some(last), Some(node)) =
                (known.next(), known.next_back(), series.labels.get("node"))
            {
                let (sum, all) = idle.entry(node.to_owned()).or_default();
                *sum += (last.value - first.value).max(0.0);
                *all += (last.at - first.at) as f64 / 1e3;
            }
        }
        for (node, (idle, all)) in idle {
            if all > 0.0 {
                self.node(&node).cpu_busy_ratio = Some((1.0 - idle / all).clamp(0.0, 1.0));
            }
        }
        for series in self.latest("node_memory_MemTotal_bytes")? {
            if let Some(node) = series.labels.get("node") {
                self.node(node).memory_total_bytes = Some(value(&series));
            }
        }
        for series in self.latest("node_memory_MemAvailable_bytes")? {
            if let Some(node) = series.labels.get("node") {
                let node = self.node(node);
                node.memory_used_bytes =
                    node.memory_total_bytes.map(|total| total - value(&series));
            }
        }
        Ok(())
    }

    fn gpu(&mut self, labels: &Labels) -> &mut GpuNow {
        let label = |name| labels.get(name).unwrap_or_default().to_owned();
        let uuid = label("uuid");
        self.gpus
            .entry((label("node"), uuid.clone()))
            .or_insert_with(|| GpuNow {
                uuid,
                ..GpuNow::default()
            })
    }

    fn gpus(&mut self) -> Result<(), StoreError> {
        for series in self.latest("takt_gpu_up")? {
            let is_up = value(&series) == 1.0;
            let gpu = self.gpu(&series.labels);
            if !is_up {
                gpu.state = GpuState::Lost;
                gpu.reason = Some(series.labels.get("reason").unwrap_or("down").to_owned());
            }
        }
        for series in self.latest("takt_gpu_info")? {
            let gpu = self.gpu(&series.labels);
            gpu.index = series.labels.get("index").unwrap_or_default().to_owned();
            gpu.model = series.labels.get("model").unwrap_or_default().to_owned();
        }
        for (metric, field) in READINGS {
            for series in self.latest(metric)? {
                *field(self.gpu(&series.labels)) = Some(value(&series));
            }
        }
        for series in self.latest("takt_gpu_process_memory_used_bytes")? {
            let label = |name| series.labels.get(name).unwrap_or_default();
            if !self.viewer.sees_details(Owner::new(label("user"), "")) {
                continue;
            }
            let process = format!("{}: {}", label("user"), label("command"));
            self.gpu(&series.labels).processes.push(process);
        }
        Ok(())
    }

    fn holders(&mut self, running: &[RunningJob]) -> Result<(), StoreError> {
        let by_number: BTreeMap<&str, &RunningJob> = running
            .iter()
            .map(|job| (job.number.as_str(), job))
            .collect();
        for metric in ["takt_gpu_job_info", "takt_gpu_process_without_job"] {
            for series in self.latest(metric)? {
                let number = series
                    .labels
                    .get("jobid")
                    .filter(|number| !number.is_empty());
                let known = number.and_then(|number| by_number.get(number));
                let user = series.labels.get("user").unwrap_or_default();
                let holder = Holder {
                    job_id: known
                        .map(|job| job.job_id.clone())
                        .or(number.map(str::to_owned)),
                    user: known.map_or(user, |job| &job.user).to_owned(),
                    account: known.map_or("", |job| &job.account).to_owned(),
                };
                let holder = self.shown(holder);
                let holders = &mut self.gpu(&series.labels).holders;
                if !holders.contains(&holder) {
                    holders.push(holder);
                }
            }
        }
        Ok(())
    }

    /// The holder, without names if the viewer may not see whose GPU it is.
    fn shown(&self, holder: Holder) -> Holder {
        let owner = Owner::new(&holder.user, &holder.account);
        if self.viewer.sees_job(owner) {
            return holder;
        }
        Holder {
            user: OTHER_USER.to_owned(),
            ..Holder::default()
        }
    }

    /// Decides the state of each GPU. A pause between two kernels is not idle time, so the last
    /// complete five minutes must have been idle, too.
    fn states(&mut self, idle_below: f64) {
        let slot = slot_of(self.now.whole_seconds());
        let strips = self.store.strips();
        let is_idle = |slot: &Slot| {
            slot.is_held()
                && slot
                    .utilization_ratio()
                    .is_some_and(|ratio| ratio < idle_below)
        };
        for (key, gpu) in &mut self.gpus {
            if gpu.state == GpuState::Lost {
                continue;
            }
            let place = GpuPlace {
                node: key.0.clone(),
                uuid: key.1.clone(),
            };
            let was_busy = strips
                .read_one(&place, slot - 1, slot)
                .iter()
                .any(|slot| slot.is_held() && !is_idle(slot));
            gpu.state = match gpu.utilization_ratio {
                None => GpuState::Unknown,
                Some(ratio) if ratio >= idle_below => GpuState::Busy,
                Some(_) if gpu.holders.is_empty() => GpuState::Free,
                Some(_) if was_busy => GpuState::Busy,
                Some(_) => GpuState::Idle,
            };
            if gpu.state == GpuState::Idle {
                let idle = strips
                    .read_one(&place, slot - SLOTS, slot)
                    .iter()
                    .rev()
                    .take_while(|slot| is_idle(slot))
                    .count();
                gpu.idle_seconds = Some(idle as i64 * SLOT_SECONDS);
            }
        }
    }

    fn answer(mut self) -> ClusterAnswer {
        let mut counts = GpuCounts::default();
        let mut holders: BTreeMap<Holder, IdleHolder> = BTreeMap::new();
        for ((node, _), gpu) in mem::take(&mut self.gpus) {
            counts.all += 1;
            match gpu.state {
                GpuState::Lost => counts.lost += 1,
                GpuState::Idle => counts.idle += 1,
                GpuState::Busy => counts.busy += 1,
                GpuState::Free => counts.free += 1,
                GpuState::Unknown => counts.unknown += 1,
            }
            for holder in &gpu.holders {
                let held = holders.entry(holder.clone()).or_default();
                held.gpus += 1;
                if gpu.state == GpuState::Idle {
                    held.idle_gpus += 1;
                    held.idle_seconds = held.idle_seconds.max(gpu.idle_seconds.unwrap_or(0));
                    if !held.nodes.contains(&node) {
                        held.nodes.push(node.clone());
                    }
                }
            }
            self.node(&node).gpus.push(gpu);
        }
        let order = |gpu: &GpuNow| (gpu.index.parse().unwrap_or(u32::MAX), gpu.uuid.clone());
        for node in self.nodes.values_mut() {
            node.gpus.sort_by_key(order);
        }
        let mut idle: Vec<IdleHolder> = holders
            .into_iter()
            .filter(|(_, held)| held.idle_gpus > 0)
            .map(|(holder, held)| IdleHolder { holder, ..held })
            .collect();
        idle.sort_by_key(|held| Reverse((held.idle_gpus, held.idle_seconds)));
        ClusterAnswer {
            at: self.now.whole_seconds(),
            nodes_up: self.nodes.values().filter(|node| node.is_up).count() as u64,
            gpus: counts,
            jobs_running: None,
            jobs_pending: None,
            idle,
            nodes: self.nodes.into_values().collect(),
        }
    }
}

/// Returns the only value of an instant query's series.
fn value(series: &SeriesData) -> f64 {
    series
        .samples
        .last()
        .map_or(f64::NAN, |sample| sample.value)
}
