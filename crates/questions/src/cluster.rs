//! The cluster now: nodes, GPUs, who holds them, and what is held and idle.
//!
//! Pages, `takt gpus`, `takt` alone, the API, and the series behind the SQL table `gpus` have their GPUs from here.

mod unmeasured;

#[cfg(test)]
mod tests;

use super::period::the_cluster;
use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::{Duration, SystemTime};
use takt_access::{Need, OTHER_USER, Owner, Role, Viewer};
use takt_jobs::{NodeCondition, NodeState};
use takt_model::{Labels, Matcher, Timestamp, UnixTime};
use takt_store::{
    GpuPlace, Records, RunningJob, SLOT_SECONDS, SLOTS, SeriesData, Slot, Store, StoreError,
    is_stale, slot_of,
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
    /// Number of nodes of the scheduler that no target names: they are neither up nor down. Older servers send none.
    #[serde(default)]
    pub nodes_unscraped: u64,
    /// GPUs by state.
    pub gpus: GpuCounts,
    /// Running jobs; `None` without a record of a job or a node.
    pub jobs_running: Option<u64>,
    /// Pending jobs; `None` without a record of a job or a node.
    pub jobs_pending: Option<u64>,
    /// Jobs and users that hold idle GPUs, the most idle GPUs first.
    pub idle: Vec<IdleHolder>,
    /// Nodes, by name.
    pub nodes: Vec<NodeNow>,
}

/// Number of GPUs by state. Older servers send no `down` and `drained`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuCounts {
    /// All GPUs that exist.
    pub all: u64,
    /// GPUs at work.
    pub busy: u64,
    /// GPUs that are held and idle.
    pub idle: u64,
    /// GPUs that nothing holds.
    pub free: u64,
    /// GPUs that NVML cannot read.
    pub lost: u64,
    /// GPUs that nothing holds, of nodes that Slurm has down.
    pub down: u64,
    /// GPUs that nothing holds, of nodes that are drained.
    pub drained: u64,
    /// GPUs without a measurement.
    pub unknown: u64,
}

impl GpuCounts {
    /// Returns the number of GPUs in a state.
    pub fn of(&self, state: GpuState) -> u64 {
        match state {
            GpuState::Lost => self.lost,
            GpuState::Idle => self.idle,
            GpuState::Busy => self.busy,
            GpuState::Free => self.free,
            GpuState::Down => self.down,
            GpuState::Drained => self.drained,
            GpuState::Unknown => self.unknown,
        }
    }

    fn add(&mut self, state: GpuState) {
        let count = match state {
            GpuState::Lost => &mut self.lost,
            GpuState::Idle => &mut self.idle,
            GpuState::Busy => &mut self.busy,
            GpuState::Free => &mut self.free,
            GpuState::Down => &mut self.down,
            GpuState::Drained => &mut self.drained,
            GpuState::Unknown => &mut self.unknown,
        };
        *count += 1;
        self.all += 1;
    }
}

/// State of a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuState {
    /// NVML cannot read the GPU.
    Lost,
    /// A job or a process has held the GPU for at least five minutes, and it is below the idle threshold now and was in
    /// the last complete five minutes. A job holds the GPUs that Slurm has allocated to it, used or not.
    Idle,
    /// The GPU is at work.
    Busy,
    /// Nothing holds the GPU, and jobs can start on its node.
    Free,
    /// Nothing holds the GPU, and Slurm has its node down, powered off or rebooting.
    Down,
    /// Nothing holds the GPU, and its node is drained, failing or in maintenance.
    Drained,
    /// The utilization is not measured.
    #[default]
    Unknown,
}

impl GpuState {
    /// All states, what needs attention first.
    pub const ALL: [Self; 7] = [
        Self::Lost,
        Self::Down,
        Self::Drained,
        Self::Busy,
        Self::Idle,
        Self::Free,
        Self::Unknown,
    ];

    /// Returns the name in the API, in labels and in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Free => "free",
            Self::Down => "down",
            Self::Drained => "drained",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the name for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Idle => "held and idle",
            Self::Unknown => "not measured",
            other => other.as_str(),
        }
    }

    /// Returns the state of a GPU that nothing holds in a node of this condition; `None` if jobs can start there.
    fn of_node(condition: NodeCondition) -> Option<Self> {
        use NodeCondition as C;
        match condition {
            C::Drained | C::Failing | C::Maintenance => Some(Self::Drained),
            C::Down | C::Invalid | C::Rebooting | C::Powering | C::PoweredDown | C::Future => {
                Some(Self::Down)
            }
            C::Idle | C::Mixed | C::Allocated | C::Completing | C::Planned | C::Reserved => None,
            C::Blocked | C::Other => None,
        }
    }
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeNow {
    /// Name of the node.
    pub node: String,
    /// Whether an exporter of the node answers.
    pub is_up: bool,
    /// Whether only the scheduler names the node: no target and no sender does.
    #[serde(default)]
    pub is_unscraped: bool,
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

impl NodeNow {
    /// Returns the number of GPUs that Slurm has in the node and that no exporter ever showed, where jobs can start.
    pub fn unseen_gpus(&self) -> usize {
        let gpus = self.gpus.iter();
        gpus.filter(|gpu| gpu.state == GpuState::Unknown && gpu.uuid.starts_with(UNSEEN))
            .count()
    }
}

/// Beginning of the UUID of a GPU that only Slurm knows.
const UNSEEN: &str = "unknown-";

/// A GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuNow {
    /// UUID, from NVML; `unknown-N` for the GPU N that Slurm has and no exporter ever showed.
    pub uuid: String,
    /// NVML's index, or Slurm's if there was never a measurement.
    pub index: String,
    /// Model.
    pub model: String,
    /// State.
    pub state: GpuState,
    /// Why NVML cannot read the GPU, or why it is not measured.
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
    pub holders: Vec<GpuHolder>,
    /// Processes on the GPU: `ann: python`.
    pub processes: Vec<String>,
    /// Seconds for which the GPU has been held by its present jobs and idle, to five minutes; at most seven days.
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

/// A job or a user that holds a GPU, and what it does there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuHolder {
    /// The job or user.
    #[serde(flatten)]
    pub holder: Holder,
    /// Name of the job; `None` without a job, or if the viewer may not see the name.
    pub job_name: Option<String>,
    /// Names of the programs, of processes outside of jobs.
    pub commands: Vec<String>,
    /// Memory of the GPU that the holder uses, in bytes; `None` if the driver does not say.
    pub memory_used_bytes: Option<f64>,
    /// Whether only Slurm's allocation says that the job holds the GPU.
    pub is_allocated_only: bool,
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
        // Jobs are read once: holders, allocations and counts have to agree.
        let running = records.running_jobs(&cluster.cluster)?;
        let mut look = Look::new(viewer, store, self.node.as_deref());
        look.gpus_of(&records, &cluster.cluster, &running, config)?;
        look.machines()?;
        let mut answer = look.answer();

        // Without a scheduler the number of jobs is unknown, not 0.
        let is_known = !running.is_empty()
            || records.has_scheduler(&cluster.cluster)?
            || !records.node_states(&cluster.cluster)?.is_empty();
        if is_known {
            let counts = records.queue_counts(&cluster.cluster)?;
            answer.jobs_running = Some(counts.running);
            answer.jobs_pending = Some(counts.pending);
        }
        // The role of the status screen sees hardware only.
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

/// Returns the GPUs of a cluster with their nodes and states, without readings of nodes.
pub fn gpus_now(
    store: &Store,
    cluster: &str,
    config: &AnswerConfig,
) -> Result<Vec<(String, GpuNow)>, StoreError> {
    let records = Records::of(store.database());
    let running = records.running_jobs(cluster)?;
    // The server writes these GPUs into the series behind SQL, without a viewer.
    let viewer = Viewer::server();
    let mut look = Look::new(&viewer, store, None);
    look.gpus_of(&records, cluster, &running, config)?;
    let gpus = mem::take(&mut look.gpus).into_iter();
    Ok(gpus.map(|((node, _), gpu)| (node, gpu)).collect())
}

/// Node and UUID.
type GpuKey = (String, String);

/// Job, instance and node of an exporter.
type ExporterKey = [String; 3];

/// The cluster while it is assembled from samples and records.
struct Look<'a> {
    viewer: &'a Viewer,
    store: &'a Store,
    node: Option<&'a str>,
    now: Timestamp,
    nodes: BTreeMap<String, NodeNow>,
    gpus: BTreeMap<GpuKey, GpuNow>,
    /// Nodes that are scraped.
    targets: BTreeSet<String>,
    /// The exporters that do not answer. Their last samples have no end if they stopped while the server was down.
    silent: BTreeSet<ExporterKey>,
    /// GPUs by node and number of the device file, which is Slurm's index of the GPU.
    devices: BTreeMap<(String, u32), GpuKey>,
    /// Since when Slurm has allocated GPUs whose holder no exporter names.
    allocated_since: BTreeMap<GpuKey, UnixTime>,
    /// Since when jobs hold GPUs at the earliest: what was before is of others.
    held_since: BTreeMap<GpuKey, UnixTime>,
    /// The series of holders whose start no record has: processes outside of jobs.
    unrecorded: BTreeMap<GpuKey, Vec<Labels>>,
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

impl<'a> Look<'a> {
    fn new(viewer: &'a Viewer, store: &'a Store, node: Option<&'a str>) -> Self {
        Self {
            viewer,
            store,
            node,
            now: Timestamp::from(SystemTime::now()),
            nodes: BTreeMap::new(),
            gpus: BTreeMap::new(),
            targets: BTreeSet::new(),
            silent: BTreeSet::new(),
            devices: BTreeMap::new(),
            allocated_since: BTreeMap::new(),
            held_since: BTreeMap::new(),
            unrecorded: BTreeMap::new(),
        }
    }

    /// Finds the GPUs, their holders and their states.
    fn gpus_of(
        &mut self,
        records: &Records<'_>,
        cluster: &str,
        running: &[RunningJob],
        config: &AnswerConfig,
    ) -> Result<(), StoreError> {
        // The order matters: each step reads what the steps before it found.
        self.targets()?;
        self.scheduler(&records.node_states(cluster)?);
        self.gpus()?;
        self.unmeasured(&records.node_capacities(cluster)?)?;
        self.holders(running)?;
        self.allocated(running, &records.allocated_gpus(cluster)?)?;
        self.states(config.accounting.efficiency.idle_below_ratio)
    }

    fn matchers(&self, metric: &str) -> Vec<Matcher> {
        let node = self.node.map(|node| Matcher::equal("node", node));
        [Matcher::metric(metric)].into_iter().chain(node).collect()
    }

    fn latest(&self, metric: &str) -> Result<Vec<SeriesData>, StoreError> {
        let mut found = self
            .store
            .instant(&self.matchers(metric), self.now, LOOKBACK)?;
        found.retain(|series| !self.silent.contains(&exporter_of(&series.labels)));
        Ok(found)
    }

    fn node(&mut self, name: &str) -> &mut NodeNow {
        self.nodes
            .entry(name.to_owned())
            .or_insert_with(|| NodeNow {
                node: name.to_owned(),
                is_unscraped: true,
                ..NodeNow::default()
            })
    }

    /// Notes that a node has samples. Nodes whose samples are pushed have no target, and so no `up`.
    fn heard(&mut self, name: &str) -> &mut NodeNow {
        let node = self.node(name);
        node.is_up |= node.is_unscraped;
        node.is_unscraped = false;
        node
    }

    fn targets(&mut self) -> Result<(), StoreError> {
        // A node may have several exporters: one that answers is enough.
        let mut silent = BTreeSet::new();
        let mut answers: BTreeMap<String, bool> = BTreeMap::new();
        for series in self.latest("up")? {
            let is_up = value(&series) == 1.0;
            if !is_up {
                silent.insert(exporter_of(&series.labels));
            }
            if let Some(name) = series.labels.get("node") {
                *answers.entry(name.to_owned()).or_default() |= is_up;
            }
        }

        for (name, is_up) in answers {
            self.heard(&name).is_up = is_up;
            self.targets.insert(name);
        }
        self.silent = silent;
        Ok(())
    }

    fn scheduler(&mut self, nodes: &[(String, String, Option<String>)]) {
        // Slurm knows nodes that have no exporter, too.
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
                // The counter restarts with the machine: `max` makes a restart no negative idle time.
                *sum += (last.value - first.value).max(0.0);
                // Each CPU is one series, so the seconds of all CPUs add up.
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
                self.heard(node).memory_total_bytes = Some(value(&series));
            }
        }
        // `MemAvailable` counts caches as free, as `free` does.
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
        let key = key_of(labels);
        let uuid = key.1.clone();
        self.gpus.entry(key).or_insert_with(|| GpuNow {
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
            self.describe(&series.labels);
        }

        for (metric, field) in READINGS {
            for series in self.latest(metric)? {
                *field(self.gpu(&series.labels)) = Some(value(&series));
            }
        }

        // Drivers sometimes report nonsense.
        for gpu in self.gpus.values_mut() {
            gpu.utilization_ratio = gpu
                .utilization_ratio
                .filter(|ratio| (0.0..=1.0).contains(ratio));
        }

        for series in self.latest("takt_gpu_process_memory_used_bytes")? {
            let label = |name| series.labels.get(name).unwrap_or_default();
            // A command names the work of its user.
            if !self.viewer.sees_details(Owner::new(label("user"), "")) {
                continue;
            }
            let process = format!("{}: {}", label("user"), label("command"));
            self.gpu(&series.labels).processes.push(process);
        }
        Ok(())
    }

    /// Takes index, model and device number of a GPU from its `takt_gpu_info`.
    fn describe(&mut self, info: &Labels) {
        let gpu = self.gpu(info);
        gpu.index = info.get("index").unwrap_or_default().to_owned();
        gpu.model = info.get("model").unwrap_or_default().to_owned();

        let key = key_of(info);
        // Slurm counts device files (`minor`); the order of NVML may differ from it.
        let device = info.get("minor").or(info.get("index"));
        if let Some(device) = device.and_then(|text| text.parse().ok()) {
            self.devices.insert((key.0.clone(), device), key);
        }
    }

    fn holders(&mut self, running: &[RunningJob]) -> Result<(), StoreError> {
        let by_number = by_number(running);
        let memory = self.memory_of_jobs()?;

        let programs = self.programs()?;
        for metric in ["takt_gpu_job_info", "takt_gpu_process_without_job"] {
            for series in self.latest(metric)? {
                let number = series
                    .labels
                    .get("jobid")
                    .filter(|number| !number.is_empty());
                // An exporter knows the number of the cgroup; the records have the id of the task.
                let known = number.and_then(|number| by_number.get(number));
                let user = series.labels.get("user").unwrap_or_default();
                let holder = Holder {
                    job_id: known
                        .map(|job| job.job_id.clone())
                        .or(number.map(str::to_owned)),
                    user: known.map_or(user, |job| &job.user).to_owned(),
                    account: known.map_or("", |job| &job.account).to_owned(),
                };

                let (node, uuid) = key_of(&series.labels);
                let (commands, used) = match number {
                    Some(number) => {
                        let used = memory.get(&(node, uuid, number.to_owned()));
                        (Vec::new(), used.copied())
                    }
                    None => programs
                        .get(&(node, uuid, user.to_owned()))
                        .map(|(commands, used)| (commands.iter().cloned().collect(), Some(*used)))
                        .unwrap_or_default(),
                };

                let holder = GpuHolder {
                    job_name: known.and_then(|job| job.name.clone()),
                    commands,
                    memory_used_bytes: used,
                    ..GpuHolder::of(holder)
                };
                let key = key_of(&series.labels);
                // A job has a start in its record; the begin of a process has to be found in the samples.
                match known {
                    Some(job) => self.hold_since(&key, job.start),
                    None => self
                        .unrecorded
                        .entry(key.clone())
                        .or_default()
                        .push(series.labels),
                }
                self.hold(&key, holder);
            }
        }
        Ok(())
    }

    /// Memory of jobs, by node, GPU and number of the job.
    fn memory_of_jobs(&self) -> Result<BTreeMap<(String, String, String), f64>, StoreError> {
        let found = self.latest("takt_gpu_job_memory_used_bytes")?;
        let of_job = |series: &SeriesData| {
            let (node, uuid) = key_of(&series.labels);
            let number = series.labels.get("jobid").unwrap_or_default().to_owned();
            ((node, uuid, number), value(series))
        };
        Ok(found.iter().map(of_job).collect())
    }

    /// Programs and memory of processes, by node, GPU and user.
    fn programs(&self) -> Result<Programs, StoreError> {
        let mut programs = Programs::new();
        for series in self.latest("takt_gpu_process_memory_used_bytes")? {
            let label = |name| series.labels.get(name).unwrap_or_default().to_owned();
            let (node, uuid) = key_of(&series.labels);

            let (commands, used) = programs.entry((node, uuid, label("user"))).or_default();
            commands.insert(label("command"));
            *used += value(&series);
        }
        Ok(programs)
    }

    /// Notes since when a job holds a GPU.
    fn hold_since(&mut self, key: &GpuKey, since: UnixTime) {
        let held_since = self.held_since.entry(key.clone()).or_insert(since);
        // Several jobs may share a GPU: it is held since the first of them.
        *held_since = since.min(*held_since);
    }

    /// Notes a holder of a GPU as the viewer may see it, once.
    fn hold(&mut self, key: &GpuKey, holder: GpuHolder) {
        // Compared as the viewer sees it: two jobs of others are one entry.
        let holder = self.shown(holder);
        if let Some(gpu) = self.gpus.get_mut(key)
            && !gpu.holders.contains(&holder)
        {
            gpu.holders.push(holder);
        }
    }

    /// The holder, without names if the viewer may not see whose GPU it is.
    fn shown(&self, mut holder: GpuHolder) -> GpuHolder {
        let owner = Owner::new(&holder.holder.user, &holder.holder.account);
        // Not even the number of the job: it leads to the user.
        if !self.viewer.sees_job(owner) {
            return GpuHolder::of(Holder {
                user: OTHER_USER.to_owned(),
                ..Holder::default()
            });
        }
        let sees_details = self.viewer.sees_details(owner);
        let sees_measurements = self.viewer.sees_measurements(owner);
        if !sees_details {
            holder.job_name = None;
            holder.commands.clear();
        }
        if !sees_measurements {
            holder.memory_used_bytes = None;
        }
        holder
    }

    /// Decides the state of each GPU. A pause between two kernels is not idle time, so the last
    /// complete five minutes must have been idle, too.
    fn states(&mut self, idle_below: f64) -> Result<(), StoreError> {
        let slot = slot_of(self.now.whole_seconds());

        let strips = self.store.strips();
        for (key, gpu) in &mut self.gpus {
            // A GPU that NVML cannot read has no other state.
            if gpu.state == GpuState::Lost {
                continue;
            }
            let place = GpuPlace {
                node: key.0.clone(),
                uuid: key.1.clone(),
            };

            let condition = self
                .nodes
                .get(&key.0)
                .and_then(|node| node.state.as_deref())
                .map(|state| NodeState::parse(state).condition());
            let out_of_use = condition.and_then(GpuState::of_node);

            let allocated_in = self.allocated_since.get(key).map(|at| slot_of(*at));
            // An allocation counts as held before the exporter sees a process.
            let is_held = |number: i64, slot: Slot| {
                slot.is_held() || allocated_in.is_some_and(|first| number >= first)
            };
            let is_low = |slot: Slot| {
                slot.utilization_ratio()
                    .is_some_and(|ratio| ratio < idle_below)
            };

            let was_busy = strips.read_one(&place, slot - 1, slot).iter().any(|last| {
                is_held(slot - 1, *last) && last.utilization_ratio().is_some() && !is_low(*last)
            });
            // The start of a job is in its record; that of a process outside of jobs has to be found in its samples.
            let held_for = |most: i64| -> Result<i64, StoreError> {
                let window = LOOKBACK + Duration::from_secs(most.cast_unsigned());
                let window = (self.now.minus(window), self.now);
                let mut since = self.held_since.get(key).copied();
                for holder in self.unrecorded.get(key).into_iter().flatten() {
                    let seen = seen_since(self.store, holder, window)?;
                    since = since.into_iter().chain(seen).min();
                }
                Ok(since.map_or(most, |since| {
                    (self.now.whole_seconds() - since).clamp(0, most)
                }))
            };

            // What has just started loads its data: it has not been idle for five minutes yet.
            let is_low_now = gpu
                .utilization_ratio
                .is_some_and(|ratio| ratio < idle_below);
            let is_new =
                is_low_now && !gpu.holders.is_empty() && held_for(SLOT_SECONDS)? < SLOT_SECONDS;
            gpu.state = match gpu.utilization_ratio {
                Some(ratio) if ratio >= idle_below => GpuState::Busy,
                Some(_) if gpu.holders.is_empty() => out_of_use.unwrap_or(GpuState::Free),
                Some(_) if was_busy || is_new => GpuState::Busy,
                Some(_) => GpuState::Idle,
                // Slurm may not know yet that a node is down, and its jobs hold their GPUs until it does.
                None if gpu.holders.is_empty() => out_of_use.unwrap_or(GpuState::Unknown),
                None => GpuState::Unknown,
            };

            // The slots show how long it has been idle; no longer than its present holders have it.
            if gpu.state == GpuState::Idle {
                let slots = strips.read_one(&place, slot - SLOTS, slot);
                let idle = (1..)
                    .zip(slots.iter().rev())
                    .take_while(|(back, last)| is_held(slot - back, **last) && is_low(**last))
                    .count();
                gpu.idle_seconds = Some(held_for(idle as i64 * SLOT_SECONDS)?);
            }
        }
        Ok(())
    }

    fn answer(mut self) -> ClusterAnswer {
        let mut counts = GpuCounts::default();
        let mut holders: BTreeMap<Holder, IdleHolder> = BTreeMap::new();

        for ((node, _), gpu) in mem::take(&mut self.gpus) {
            counts.add(gpu.state);
            // One job holds several GPUs; the list has it once.
            for holder in &gpu.holders {
                let held = holders.entry(holder.holder.clone()).or_default();
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
        // Indexes are numbers, and text would put 10 before 2.
        let order = |gpu: &GpuNow| (gpu.index.parse().unwrap_or(u32::MAX), gpu.uuid.clone());
        for node in self.nodes.values_mut() {
            node.gpus.sort_by_key(order);

            // Readings from before the node fell silent say nothing about now.
            if !node.is_up {
                node.cpu_busy_ratio = None;
                node.memory_used_bytes = None;
            }
        }

        let mut idle: Vec<IdleHolder> = holders
            .into_iter()
            .filter(|(_, held)| held.idle_gpus > 0)
            .map(|(holder, held)| IdleHolder { holder, ..held })
            .collect();
        idle.sort_by_key(|held| Reverse((held.idle_gpus, held.idle_seconds)));
        let count = |is: fn(&NodeNow) -> bool| {
            let nodes = self.nodes.values();
            nodes.filter(|node| is(node)).count() as u64
        };
        ClusterAnswer {
            at: self.now.whole_seconds(),
            nodes_up: count(|node| node.is_up),
            nodes_unscraped: count(|node| node.is_unscraped),
            gpus: counts,
            jobs_running: None,
            jobs_pending: None,
            idle,
            nodes: self.nodes.into_values().collect(),
        }
    }
}

/// Commands and memory of processes, by node, GPU and user.
type Programs = BTreeMap<(String, String, String), (BTreeSet<String>, f64)>;

impl GpuHolder {
    fn of(holder: Holder) -> Self {
        Self {
            holder,
            ..Self::default()
        }
    }
}

fn by_number(running: &[RunningJob]) -> BTreeMap<&str, &RunningJob> {
    let numbered = running.iter().map(|job| (job.number.as_str(), job));
    numbered.collect()
}

/// Job, instance and node of a series. One address may answer for several nodes.
fn exporter_of(labels: &Labels) -> ExporterKey {
    ["job", "instance", "node"].map(|name| labels.get(name).unwrap_or_default().to_owned())
}

fn key_of(labels: &Labels) -> GpuKey {
    let label = |name| labels.get(name).unwrap_or_default().to_owned();
    (label("node"), label("uuid"))
}

/// Returns since when a series has had samples without a pause, at the earliest since the window's begin.
fn seen_since(
    store: &Store,
    series: &Labels,
    (from, to): (Timestamp, Timestamp),
) -> Result<Option<UnixTime>, StoreError> {
    // All labels, so that exactly this process is found.
    let exactly = series
        .iter()
        .map(|(name, value)| Matcher::equal(name, value));
    let found = store.range(&exactly.collect::<Vec<_>>(), from, to)?;

    let samples = found.iter().flat_map(|series| &series.samples);
    let mut since: Option<Timestamp> = None;
    let mut last = from;
    // After a pause longer than the lookback, the series counts as another process of the same name.
    for sample in samples {
        let goes_on = since.is_some() && sample.at.minus(LOOKBACK) <= last;
        last = sample.at;
        if is_stale(sample.value) {
            since = None;
        } else if !goes_on {
            since = Some(sample.at);
        }
    }
    Ok(since.map(Timestamp::whole_seconds))
}

/// Returns the only value of an instant query's series.
fn value(series: &SeriesData) -> f64 {
    series
        // NaN where the series has no sample: no comparison with it is true.
        .samples
        .last()
        .map_or(f64::NAN, |sample| sample.value)
}
