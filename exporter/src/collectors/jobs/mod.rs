//! Jobs on this node: their resource usage and their GPUs, used or not.
//!
//! Sources: the cgroups (versions 1 and 2) that Slurm and the kubelet make, `/proc` for the jobs'
//! processes, and what the collector `nvml` last saw on the GPUs. No scheduler is asked. Reading
//! another user's environment needs root, or CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; without, the
//! GPUs of a job are known only while it uses them.
//!
//! Series are bounded by the jobs on the node, and end with them. Join them by `jobid` instead of
//! labelling GPUs by job.

mod environment;
mod grant;
mod listings;
mod pods;
mod processes;
mod stepd;
mod tree;
mod usage;

use self::environment::{GrantedGpus, StepEnvironment};
use self::grant::{GpuEvidence, GpuGrant, GpuOrder};
use self::listings::CgroupListings;
use self::pods::PodName;
use self::processes::{ProcessOwner, Processes, STEPD};
use self::stepd::StepDaemons;
use self::tree::JobCgroups;
use self::usage::{BlockDevices, JobUsage};
use crate::collector::{CollectError, Collector};
use crate::events::Events;
use crate::gpus::{GpuTable, SharedGpus};
use crate::job_path::JobKey;
use crate::paths::Paths;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use takt_model::{Metric, Samples};

/// Flags of the collector `jobs`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct JobsOptions {
    /// Meaning of the numbers in SLURM_JOB_GPUS: pci with AutoDetect=nvml in gres.conf, minor with
    /// File=/dev/nvidia… alone.
    #[arg(
        long = "collector.jobs.gpu-order",
        value_name = "ORDER",
        default_value = "pci"
    )]
    pub gpu_order: GpuOrder,
}

struct Jobs {
    cgroups: PathBuf,
    listings: CgroupListings,
    pod_logs: PathBuf,
    processes: Processes,
    stepds: StepDaemons,
    disks: BlockDevices,
    gpus: SharedGpus,
    events: Events,
    /// How long the first reading waits for that of the GPUs, so that the first page is whole.
    patience: Duration,
    order: GpuOrder,
    known: HashMap<JobKey, KnownJob>,
}

/// A job on the node at this reading.
#[derive(Debug, Default)]
struct Job {
    group: JobCgroups,
    /// Processes by step.
    steps: BTreeMap<String, Vec<u32>>,
}

/// Facts about a job that are kept while it runs.
#[derive(Debug, Default)]
struct KnownJob {
    user: Option<String>,
    uid: Option<u32>,
    pod: Option<PodName>,
    /// Environment of the first process of each step.
    environments: BTreeMap<String, StepEnvironment>,
    /// Whether an environment may not be read.
    is_unreadable: bool,
    oom_kills: MonotonicSum,
    open: BTreeSet<u32>,
}

/// A sum whose parts may vanish, such as the steps of a job, but that shall not fall.
#[derive(Debug, Default)]
struct MonotonicSum {
    last: f64,
    total: f64,
}

const JOB: &[&str] = &["jobid"];
const INFO: Metric = Metric::gauge(
    "takt_job_info",
    "A job on this node; always 1. jobid is Slurm's number or the pod's UID, sluid Slurm's unique \
     id if cgroups are named by it.",
    &["jobid", "user", "scheduler", "sluid"],
);
const POD_INFO: Metric = Metric::gauge(
    "takt_job_pod_info",
    "Namespace and name of a pod on this node, from the kubelet's log directories; always 1.",
    &["jobid", "namespace", "pod"],
);
const USER_INFO: Metric = Metric::gauge(
    "takt_job_user_info",
    "A user with jobs on this node, with the user and group ids of this node; always 1. Ids that \
     differ between nodes give files on a shared file system the wrong owner.",
    &["user", "uid", "gid"],
);
const CPU: Metric = Metric::counter(
    "takt_job_cpu_seconds_total",
    "CPU time that the job has used on this node.",
    JOB,
);
const CPU_MODE: Metric = Metric::counter(
    "takt_job_cpu_mode_seconds_total",
    "CPU time by mode, user or system.",
    &["jobid", "mode"],
);
const CPU_THROTTLED: Metric = Metric::counter(
    "takt_job_cpu_throttled_seconds_total",
    "Time that a quota kept the job off its CPUs.",
    JOB,
);
const CPUS: Metric = Metric::gauge("takt_job_cpus", "CPUs that the job may run on.", JOB);
const MEMORY_CURRENT: Metric = Metric::gauge(
    "takt_job_memory_current_bytes",
    "Memory charged to the job, cached files included.",
    JOB,
);
const MEMORY_PEAK: Metric = Metric::gauge(
    "takt_job_memory_peak_bytes",
    "Highest amount of memory ever charged to the job.",
    JOB,
);
const MEMORY_LIMIT: Metric = Metric::gauge(
    "takt_job_memory_limit_bytes",
    "Memory limit of the job.",
    JOB,
);
const MEMORY_ANONYMOUS: Metric = Metric::gauge(
    "takt_job_memory_anonymous_bytes",
    "Memory of the job that is not cached files. The kernel can only swap it out or kill its \
     processes.",
    JOB,
);
const MEMORY_FILE: Metric = Metric::gauge(
    "takt_job_memory_file_bytes",
    "Files cached on behalf of the job.",
    JOB,
);
const MEMORY_SWAP: Metric = Metric::gauge(
    "takt_job_memory_swap_bytes",
    "Memory of the job that is swapped out.",
    JOB,
);
const OOM_KILLS: Metric = Metric::counter(
    "takt_job_oom_kills_total",
    "Processes of the job that the kernel killed for lack of memory, since the exporter first saw \
     the job.",
    JOB,
);
const IO_BYTES: Metric = Metric::counter(
    "takt_job_io_bytes_total",
    "Bytes that the job read from and wrote to local disks; network file systems are not counted.",
    &["jobid", "direction"],
);
const IO_OPERATIONS: Metric = Metric::counter(
    "takt_job_io_operations_total",
    "Requests of the job to read from and write to local disks.",
    &["jobid", "direction"],
);
const PROCESSES: Metric = Metric::gauge(
    "takt_job_processes",
    "Processes of the job, without slurmstepd if that has a cgroup of its own.",
    JOB,
);
const THREADS: Metric = Metric::gauge("takt_job_threads", "Threads of the job.", JOB);
const PRESSURE: Metric = Metric::counter(
    "takt_job_pressure_seconds_total",
    "Time that some of the job's threads waited for the resource: cpu, io or memory.",
    &["jobid", "resource"],
);
const UNREADABLE: Metric = Metric::gauge(
    "takt_jobs_unreadable",
    "Jobs whose environment the exporter may not read. GPUs that such a job holds without using \
     them are not seen.",
    &[],
);
const LEFT_OUT: Metric = Metric::gauge(
    "takt_jobs_left_out",
    "Jobs without series because there are more jobs than the exporter shows.",
    &[],
);
const GPU_JOB_INFO: Metric = Metric::gauge(
    "takt_gpu_job_info",
    "A job that was given the GPU, or a part of it (MIG), used or not; always 1. Join on it \
     instead of labelling every series with jobs.",
    &["uuid", "jobid", "user"],
);
const GPU_JOB_MEMORY: Metric = Metric::gauge(
    "takt_gpu_job_memory_used_bytes",
    "Memory of the GPU that the job's processes have allocated.",
    &["uuid", "jobid"],
);
const PROCESS_WITHOUT_JOB: Metric = Metric::gauge(
    "takt_gpu_process_without_job",
    "Processes on the GPU that belong to no job, or to a job that was not given the GPU. Desktop \
     processes are left out.",
    &["uuid", "user"],
);
const PROCESS_MEMORY: Metric = Metric::gauge(
    "takt_gpu_process_memory_used_bytes",
    "Memory of the GPU allocated by processes without a job, by user and command; 0 if the driver \
     does not report it.",
    &["uuid", "user", "command"],
);
const METRICS: &[Metric] = &[
    INFO,
    POD_INFO,
    USER_INFO,
    CPU,
    CPU_MODE,
    CPU_THROTTLED,
    CPUS,
    MEMORY_CURRENT,
    MEMORY_PEAK,
    MEMORY_LIMIT,
    MEMORY_ANONYMOUS,
    MEMORY_FILE,
    MEMORY_SWAP,
    OOM_KILLS,
    IO_BYTES,
    IO_OPERATIONS,
    PROCESSES,
    THREADS,
    PRESSURE,
    UNREADABLE,
    LEFT_OUT,
    GPU_JOB_INFO,
    GPU_JOB_MEMORY,
    PROCESS_WITHOUT_JOB,
    PROCESS_MEMORY,
];

const FIRST_PATIENCE: Duration = Duration::from_millis(200);
/// Maximum number of jobs with series.
const MAX_JOBS: usize = 512;
/// Series of one job, GPUs aside.
const SERIES_OF_JOB: usize = 26;
/// GPUs with jobs and users on them, in all.
const MAX_HOLDINGS: usize = 2048;

pub(crate) fn new(paths: &Paths, options: &JobsOptions, gpus: &SharedGpus) -> Box<dyn Collector> {
    Box::new(Jobs {
        cgroups: paths.sysfs.join("fs/cgroup"),
        listings: CgroupListings::new(),
        pod_logs: paths.rootfs.join("var/log/pods"),
        processes: Processes::new(paths.procfs.clone()),
        stepds: StepDaemons::default(),
        disks: BlockDevices::new(paths.sysfs.clone()),
        gpus: gpus.clone(),
        events: Events::default(),
        patience: FIRST_PATIENCE,
        order: options.gpu_order,
        known: HashMap::new(),
    })
}

impl Collector for Jobs {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_JOBS * SERIES_OF_JOB + 4 * MAX_HOLDINGS + 2
    }

    fn attach(&mut self, events: &Events) -> io::Result<()> {
        self.events = events.clone();
        Ok(())
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let mut jobs = self.find();
        self.known.retain(|key, _| jobs.contains_key(key));

        for (key, job) in &jobs {
            let known = self.known.entry(key.clone()).or_default();
            known.learn(key, job, &mut self.processes);
            if let (JobKey::Pod(uid), None) = (key, &known.pod) {
                known.pod = pods::find(&self.pod_logs, uid);
            }
        }

        let left_out = jobs.len().saturating_sub(MAX_JOBS);
        jobs = jobs.into_iter().take(MAX_JOBS).collect();

        let mut names = BTreeMap::new();
        for (key, job) in &jobs {
            let known = self.known.entry(key.clone()).or_default();
            let name = known.name(key);
            push_job(key, &name, job, known, &mut self.disks, out);
            names.insert(key.clone(), name);
        }

        // Events of the kernel name a job by its SLUID where its cgroup does.
        self.events.jobs_by_sluid(numbers_by_sluid(&names));

        let unreadable = jobs
            .keys()
            .filter(|key| self.known.get(key).is_some_and(|known| known.is_unreadable));
        out.push::<&str>(&UNREADABLE, &[], unreadable.count() as f64);
        out.push::<&str>(&LEFT_OUT, &[], left_out as f64);

        let uids: BTreeSet<_> = self.known.values().filter_map(|known| known.uid).collect();
        for uid in uids.into_iter().take(MAX_JOBS) {
            if let (user, Some(gid)) = (self.processes.user(uid), self.processes.gid(uid)) {
                out.push(&USER_INFO, &[user, uid.to_string(), gid.to_string()], 1.0);
            }
        }

        self.push_gpus(&jobs, &names, out);
        self.processes.forget();

        if self.cgroups.exists() {
            Ok(())
        } else {
            Err(CollectError::Absent("no cgroups"))
        }
    }
}

impl Jobs {
    /// The jobs that have processes: cgroups may be left behind empty.
    fn find(&mut self) -> BTreeMap<JobKey, Job> {
        let groups = tree::find(&self.cgroups, &mut self.listings);

        let mut jobs = BTreeMap::new();
        for (key, group) in groups {
            let steps = tree::processes(&group);
            if !steps.is_empty() {
                jobs.insert(key, Job { group, steps });
            }
        }

        // Where Slurm runs without cgroups.
        for (key, steps) in self.stepds.jobs(&self.processes) {
            let group = JobCgroups::default();
            jobs.entry(key).or_insert(Job { group, steps });
        }
        jobs
    }

    fn push_gpus(
        &mut self,
        jobs: &BTreeMap<JobKey, Job>,
        names: &BTreeMap<JobKey, String>,
        out: &mut Samples,
    ) {
        let table = self.gpus.table(std::mem::take(&mut self.patience));
        let mut holdings = GpuHolders::default();

        let mut grants = BTreeMap::new();
        for (key, job) in jobs {
            let (Some(known), Some(name)) = (self.known.get(key), names.get(key)) else {
                continue;
            };

            let grant = known.grant(job, &table, self.order);
            if let GpuGrant::Gpus(gpus) = &grant {
                let user = known.user.clone().unwrap_or_default();
                for uuid in gpus {
                    let given = (uuid.clone(), name.clone(), user.clone());
                    holdings.given.insert(given);
                }
            }
            grants.insert(key, grant);
        }

        for gpu in &table.gpus {
            for process in &gpu.processes {
                let Some(owner) = self.processes.owner(process.pid, table.read_at) else {
                    continue;
                };

                let uuid = gpu.used_by(process);

                // A job that has a whole GPU may use its parts, and one that has a part shows on
                // the GPU where the driver names no part.
                let may = |gpus: &BTreeSet<String>| {
                    let is_part = |given: &String| gpu.parts.iter().any(|(part, _)| part == given);
                    gpus.contains(uuid)
                        || gpus.contains(&gpu.uuid)
                        || (uuid == gpu.uuid && gpus.iter().any(is_part))
                };

                let job = owner.job.as_ref();
                let name = job.map(|job| names.get(job).cloned().unwrap_or_else(|| job.name()));

                let is_allowed = match job.and_then(|job| grants.get(job)) {
                    Some(GpuGrant::Gpus(gpus)) => may(gpus),
                    // The job's GPUs are unknown; the ones it uses count as given.
                    Some(GpuGrant::Unknown) | None => job.is_some(),
                };

                if let Some(name) = &name {
                    holdings.memory(uuid, name, process.memory);
                }

                match name {
                    Some(name) if is_allowed => {
                        // The job's user, even if a process has switched to another one.
                        let user = job
                            .and_then(|job| self.known.get(job))
                            .map(|known| known.user.clone())
                            .map_or(owner.user, Option::unwrap_or_default);
                        holdings.given.insert((uuid.to_owned(), name, user));
                    }
                    None if owner.is_desktop => {}
                    _ => holdings.without_job(uuid, owner, process.memory),
                }
            }
        }

        holdings.push(out);
    }
}

/// Jobs and users on the GPUs, by UUID.
#[derive(Debug, Default)]
struct GpuHolders {
    /// With job and user.
    given: BTreeSet<(String, String, String)>,
    /// With job.
    memory: BTreeMap<(String, String), f64>,
    /// With user.
    without_job: BTreeMap<(String, String), f64>,
    /// With user and command.
    commands: BTreeMap<(String, String, String), f64>,
}

impl GpuHolders {
    fn memory(&mut self, uuid: &str, name: &str, bytes: Option<u64>) {
        if let Some(bytes) = bytes {
            *self
                .memory
                .entry((uuid.to_owned(), name.to_owned()))
                .or_insert(0.0) += bytes as f64;
        }
    }

    fn without_job(&mut self, uuid: &str, owner: ProcessOwner, bytes: Option<u64>) {
        let ProcessOwner { user, command, .. } = owner;
        *self
            .without_job
            .entry((uuid.to_owned(), user.clone()))
            .or_insert(0.0) += 1.0;
        *self
            .commands
            .entry((uuid.to_owned(), user, command))
            .or_insert(0.0) += bytes.unwrap_or(0) as f64;
    }

    fn push(&self, out: &mut Samples) {
        for (uuid, jobid, user) in self.given.iter().take(MAX_HOLDINGS) {
            out.push(&GPU_JOB_INFO, &[uuid, jobid, user], 1.0);
        }
        for ((uuid, jobid), bytes) in self.memory.iter().take(MAX_HOLDINGS) {
            out.push(&GPU_JOB_MEMORY, &[uuid, jobid], *bytes);
        }
        for ((uuid, user), count) in self.without_job.iter().take(MAX_HOLDINGS) {
            out.push(&PROCESS_WITHOUT_JOB, &[uuid, user], *count);
        }
        for ((uuid, user, command), bytes) in self.commands.iter().take(MAX_HOLDINGS) {
            out.push(&PROCESS_MEMORY, &[uuid, user, command], *bytes);
        }
    }
}

impl KnownJob {
    /// Looks at the first process of each step that was not understood yet.
    fn learn(&mut self, key: &JobKey, job: &Job, processes: &mut Processes) {
        if let Some(uid) = job.group.uid {
            self.user.get_or_insert_with(|| processes.user(uid));
            self.uid = Some(uid);
        }

        self.is_unreadable = false;

        for (step, pids) in &job.steps {
            if is_stepd(step) || self.environments.contains_key(step) {
                continue;
            }
            let Some(first) = first_process(pids, processes) else {
                continue;
            };

            // A pod's processes run as a user of its image, who has no name on the node.
            if self.user.is_none() && key.scheduler() == "slurm" {
                self.uid = processes.uid(first);
                self.user = self.uid.map(|uid| processes.user(uid));
            }

            match processes.environment(first) {
                Ok(environment) => {
                    let is_slurm = key.scheduler() == "slurm";
                    let is_of_job = is_slurm && environment.jobid.is_some();
                    // Between fork and exec a process has its parent's environment.
                    if is_of_job || environment.gpus != GrantedGpus::Nothing {
                        let knows_all = is_slurm && has_all_gpus(step);
                        let environment = StepEnvironment {
                            knows_all,
                            ..environment
                        };
                        self.environments.insert(step.clone(), environment);
                    }
                }
                Err(error) => self.is_unreadable |= error.kind() == io::ErrorKind::PermissionDenied,
            }
        }

        // The last source, since it is expensive.
        if self.environments.is_empty() && self.open.is_empty() {
            const MOST_PROCESSES: usize = 8;
            let steps = job.steps.iter().filter(|(step, _)| !is_stepd(step));
            let pids = steps.flat_map(|(_, pids)| pids).take(MOST_PROCESSES);
            self.open = pids.flat_map(|pid| processes.open_gpus(*pid)).collect();
        }
    }

    /// Name of the job: Slurm's number if it is known.
    fn name(&self, key: &JobKey) -> String {
        let number = self.environments.values().find_map(|known| known.jobid);
        match (key, number) {
            (JobKey::Sluid(_), Some(number)) => number.to_string(),
            _ => key.name(),
        }
    }

    fn grant(&self, job: &Job, table: &GpuTable, order: GpuOrder) -> GpuGrant {
        let evidence = GpuEvidence {
            device_lists: tree::device_lists(&job.group),
            environments: self.environments.values().collect(),
            open: self.open.clone(),
        };
        grant::grant(&evidence, table, order)
    }
}

/// The numbers of jobs whose cgroups have the SLUID alone, where the environment told them.
fn numbers_by_sluid(names: &BTreeMap<JobKey, String>) -> BTreeMap<String, String> {
    let mut numbers = BTreeMap::new();
    for (key, name) in names {
        if let JobKey::Sluid(sluid) = key
            && sluid != name
        {
            numbers.insert(sluid.clone(), name.clone());
        }
    }
    numbers
}

impl MonotonicSum {
    fn step(&mut self, sum: f64) -> f64 {
        self.total += (sum - self.last).max(0.0);
        self.last = sum;
        self.total
    }
}

fn push_job(
    key: &JobKey,
    name: &str,
    job: &Job,
    known: &mut KnownJob,
    disks: &mut BlockDevices,
    out: &mut Samples,
) {
    let user = known.user.as_deref().unwrap_or_default();
    let sluid = match key {
        JobKey::Sluid(sluid) => sluid,
        _ => "",
    };
    out.push(&INFO, &[name, user, key.scheduler(), sluid], 1.0);
    if let Some(PodName {
        namespace,
        name: pod,
    }) = &known.pod
    {
        out.push(&POD_INFO, &[name, namespace, pod], 1.0);
    }

    let steps = job.steps.iter().filter(|(step, _)| !is_stepd(step));
    let processes: usize = steps.map(|(_, pids)| pids.len()).sum();
    out.push(&PROCESSES, &[name], processes as f64);

    let mut usage = JobUsage::default();
    for directory in &job.group.directories {
        match directory.controller {
            tree::V2 => usage.add_v2(&directory.path, disks),
            controller => usage.add_v1(controller, &directory.path, disks),
        }
    }

    // Steps take their counts with them when they end.
    let oom_kills = usage.oom_kills.map(|kills| known.oom_kills.step(kills));
    for (metric, value) in [
        (&CPU, usage.cpu_seconds),
        (&CPU_THROTTLED, usage.cpu_throttled_seconds),
        (&CPUS, usage.cpus),
        (&MEMORY_CURRENT, usage.memory_current),
        (&MEMORY_PEAK, usage.memory_peak),
        (&MEMORY_LIMIT, usage.memory_limit),
        (&MEMORY_ANONYMOUS, usage.memory_anonymous),
        (&MEMORY_FILE, usage.memory_file),
        (&MEMORY_SWAP, usage.memory_swap),
        (&OOM_KILLS, oom_kills),
        (&THREADS, usage.threads),
    ] {
        if let Some(value) = value {
            out.push(metric, &[name], value);
        }
    }

    for (mode, value) in [
        ("user", usage.cpu_user_seconds),
        ("system", usage.cpu_system_seconds),
    ] {
        if let Some(value) = value {
            out.push(&CPU_MODE, &[name, mode], value);
        }
    }

    for (metric, pair) in [
        (&IO_BYTES, usage.io_bytes),
        (&IO_OPERATIONS, usage.io_operations),
    ] {
        for (direction, value) in ["read", "write"].iter().zip(pair.into_iter().flatten()) {
            out.push(metric, &[name, direction], value);
        }
    }

    for (resource, value) in ["cpu", "io", "memory"].iter().zip(usage.pressure_seconds) {
        if let Some(value) = value {
            out.push(&PRESSURE, &[name, resource], value);
        }
    }
}

/// Whether the process of this step has all GPUs of the job in its environment: a batch script and
/// an interactive shell do, a step of `srun` may have a part of them.
fn has_all_gpus(step: &str) -> bool {
    step.starts_with("step_batch") || step.starts_with("step_interactive")
}

/// Version 2 puts `slurmstepd` in a cgroup of its own.
fn is_stepd(step: &str) -> bool {
    step.ends_with("/slurm")
}

/// The process that the scheduler started: ids rise. Version 1 has `slurmstepd` before it.
fn first_process(pids: &[u32], processes: &Processes) -> Option<u32> {
    /// The first process that is not `slurmstepd` or a copy of it.
    const FIRST: usize = 4;

    let mut pids = pids.to_owned();
    pids.sort_unstable();

    pids.into_iter().take(FIRST).find(|pid| {
        let stat = processes.stat(*pid);
        stat.is_some_and(|stat| stat.name != STEPD)
    })
}
