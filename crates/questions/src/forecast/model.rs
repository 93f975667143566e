//! The queue as a replay needs it: nodes, reservations, running and waiting jobs, and what of the site no replay knows.

use crate::listed_run::requested;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use takt_jobs::{Amounts, JobRun, Node, NodeCondition, NodeState, Reservation, nodelist};
use takt_model::UnixTime;
use takt_simulate::{
    BackfillSettings, Closure, ForecastJob, Running, SimulatedCluster, SimulatedJob, SimulatedNode,
};

/// A time after all forecasts, in seconds from now: a node that is down returns then.
const FAR_SECONDS: i64 = 10 * 365 * 86_400;

/// Backfill of forecasts: coarser than Slurm's, since a forecast to the minute is enough and takes a fraction of the time.
const BACKFILL: BackfillSettings = BackfillSettings {
    interval_seconds: 120,
    window_seconds: 86_400,
    resolution_seconds: 60,
    max_job_test: 500,
    reserve_depth: 20,
    queue_depth: 100,
};

/// What is known of a cluster and its queue at one time.
#[derive(Debug, Clone, Default)]
pub struct QueueFacts {
    /// The time.
    pub now: UnixTime,
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Reservations that have not ended.
    pub reservations: Vec<Reservation>,
    /// Running jobs.
    pub running: Vec<JobRun>,
    /// Waiting jobs.
    pub waiting: Vec<WaitingJob>,
}

/// A waiting job.
#[derive(Debug, Clone, Default)]
pub struct WaitingJob {
    /// The run.
    pub run: JobRun,
    /// Slurm's reason.
    pub reason: Option<String>,
    /// Slurm's priority. `None` if it is unknown.
    pub priority: Option<u32>,
    /// What it asks for besides amounts, a time and a partition.
    pub demands: Vec<String>,
    /// Start time planned by slurmctld.
    pub slurm_start: Option<UnixTime>,
}

/// A rule of the site, or a wish of some jobs, that no replay knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmodelledRule {
    /// What is not modelled, such as `features`.
    pub rule: String,
    /// Number of waiting jobs, or of nodes, that have it. `None` if it is unknown.
    pub count: Option<usize>,
}

/// A queue to replay.
#[derive(Debug, Default)]
pub struct QueueModel {
    /// Nodes.
    pub cluster: SimulatedCluster,
    /// Running jobs, then waiting ones, the first eligible first.
    pub jobs: Vec<ForecastJob>,
    /// Index in the facts of each running job, in the order of `jobs`, which begin with them.
    pub running: Vec<usize>,
    /// Index in `jobs` of each waiting job, in the order of the facts. `None` if it is not replayed.
    pub waiting: Vec<Option<usize>>,
    /// What is not modelled.
    pub not_modelled: Vec<UnmodelledRule>,
}

/// Reasons of jobs that a replay starts as Slurm does.
const FORESEEN: &[&str] = &[
    "None",
    "Priority",
    "Resources",
    "WaitingForScheduling",
    "BeginTime",
    "Reservation",
    "ReqNodeNotAvail",
    "Nodes required for job are DOWN",
];

/// Why no replay can tell when a job starts. `None` if one can.
pub(super) fn obstacle(
    run: &JobRun,
    reason: Option<&str>,
    priority: Option<u32>,
) -> Option<String> {
    let reason = reason.unwrap_or("None");
    if priority == Some(0) || reason.starts_with("JobHeld") {
        return Some("it is held".to_owned());
    }
    // Slurm appends details, with a comma or a blank.
    let is_foreseen = FORESEEN.iter().any(|one| {
        reason
            .strip_prefix(one)
            .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    });
    if !is_foreseen {
        return Some(format!("no replay knows when {reason} ends"));
    }
    if requested(run).cpus.is_none() {
        return Some("its request is not known".to_owned());
    }
    None
}

/// Builds the replay of a queue.
pub(super) fn queue_model(facts: &QueueFacts) -> QueueModel {
    let mut queues = Queues::of(facts);
    let places: HashMap<&str, u32> = (0_u32..)
        .zip(&facts.nodes)
        .map(|(at, node)| (node.node.as_str(), at))
        .collect();

    let mut jobs: Vec<ForecastJob> = Vec::new();
    let mut running = Vec::new();
    for (at, run) in facts.running.iter().enumerate() {
        if let Some(job) = running_job(run, &places, &mut queues) {
            jobs.push(job);
            running.push(at);
        }
    }

    let mut waiting = vec![None; facts.waiting.len()];
    for at in eligible_first(&facts.waiting) {
        let one = &facts.waiting[at];
        if obstacle(&one.run, one.reason.as_deref(), one.priority).is_some() {
            continue;
        }
        let Some(job) = waiting_job(one, &mut queues) else {
            continue;
        };
        waiting[at] = Some(jobs.len());
        jobs.push(job);
    }

    let mut cluster = SimulatedCluster {
        nodes: facts
            .nodes
            .iter()
            .map(|node| simulated_node(node, facts, &queues))
            .collect(),
        backfill: BACKFILL,
        ..SimulatedCluster::default()
    };
    let has_memory = is_memory_allocated(&cluster, &jobs);
    if !has_memory {
        forget_memory(&mut cluster, &mut jobs);
    }

    QueueModel {
        not_modelled: not_modelled(facts, &waiting, has_memory),
        cluster,
        jobs,
        running,
        waiting,
    }
}

/// Indexes of the waiting jobs, by the time from which only the scheduler delays them.
fn eligible_first(waiting: &[WaitingJob]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..waiting.len()).collect();
    order.sort_by_key(|at| {
        let run = &waiting[*at].run;
        (run.eligible.unwrap_or(run.submit), run.submit, *at)
    });
    order
}

/// The queues of jobs. A queue is a list of partitions, within a reservation or outside of all.
struct Queues<'f> {
    /// Whether the scheduler has named the partitions of nodes.
    has_partitions: bool,
    reserved: HashMap<&'f str, (UnixTime, Vec<String>)>,
    known: BTreeMap<(&'f str, Option<&'f str>), Arc<str>>,
    names: HashMap<String, Arc<str>>,
}

impl<'f> Queues<'f> {
    fn of(facts: &'f QueueFacts) -> Self {
        let reserved = facts.reservations.iter();
        Self {
            has_partitions: facts.nodes.iter().any(|node| !node.partitions.is_empty()),
            reserved: reserved
                .map(|kept| (kept.name.as_str(), (kept.from, kept.nodes())))
                .collect(),
            known: BTreeMap::new(),
            names: HashMap::new(),
        }
    }

    /// The queue of a run.
    fn of_run(&mut self, run: &'f JobRun) -> Arc<str> {
        let key = (run.partition.as_str(), run.reservation.as_deref());
        let name = || match key {
            (partition, None) => partition.into(),
            (partition, Some(reservation)) => format!("{partition}@{reservation}").into(),
        };
        Arc::clone(self.known.entry(key).or_insert_with(name))
    }

    /// The queues whose jobs may use a node.
    fn of_node(&self, node: &Node) -> Vec<Arc<str>> {
        let is_within = |(partitions, reservation): &(&str, Option<&str>)| {
            let is_partition = |name: &str| node.partitions.iter().any(|one| one == name);
            let is_in = !self.has_partitions || partitions.split(',').any(is_partition);
            let is_reserved = reservation.is_none_or(|name| {
                self.reserved
                    .get(name)
                    .is_some_and(|(_, nodes)| nodes.contains(&node.node))
            });
            is_in && is_reserved
        };
        let found = self.known.iter().filter(|(key, _)| is_within(key));
        found.map(|(_, name)| Arc::clone(name)).collect()
    }

    /// A name that many jobs share.
    fn name(&mut self, text: &str) -> Arc<str> {
        let known = self.names.entry(text.to_owned());
        Arc::clone(known.or_insert_with(|| text.into()))
    }

    /// The job of a run, without its amounts.
    fn job(&mut self, run: &'f JobRun) -> ForecastJob {
        ForecastJob {
            job: SimulatedJob {
                eligible: run.eligible.unwrap_or(run.submit),
                run_seconds: 0,
                limit_seconds: run
                    .timelimit
                    .filter(|limit| *limit > 0)
                    .and_then(|limit| i64::try_from(limit).ok()),
                nodes: 1,
                per_node: Amounts::default(),
                gpu_model: None,
                partition: self.of_run(run),
                user: self.name(&run.user),
                account: self.name(&run.account),
                qos: None,
                reservation: run.reservation.as_deref().map(|name| self.name(name)),
                association: None,
                billing_per_second: 0.0,
                priority: None,
                running: None,
            },
            name: self.name(run.name.as_deref().unwrap_or_default()),
        }
    }
}

fn running_job<'f>(
    run: &'f JobRun,
    places: &HashMap<&str, u32>,
    queues: &mut Queues<'f>,
) -> Option<ForecastJob> {
    let start = run.start?;
    let names = nodelist::expand(run.node_list.as_deref()?).ok()?;
    let nodes: Vec<u32> = names
        .iter()
        .filter_map(|name| places.get(name.as_str()).copied())
        .collect();

    let count = names.len().max(1) as u64;
    let mut one = queues.job(run);
    one.job.nodes = u32::try_from(count).ok()?;
    one.job.per_node = Amounts {
        cpus: run.cpus.unwrap_or(0).div_ceil(count),
        gpus: run.gpus.unwrap_or(0).div_ceil(count),
        mem_bytes: run.mem_bytes.unwrap_or(0).div_ceil(count),
    };
    one.job.running = Some(Running { start, nodes });
    Some(one)
}

/// `None` if its amounts or its reservation are not known.
fn waiting_job<'f>(waiting: &'f WaitingJob, queues: &mut Queues<'f>) -> Option<ForecastJob> {
    let run = &waiting.run;
    let wants = requested(run);
    let count = wants.nodes.unwrap_or(1).max(1);

    let mut one = queues.job(run);
    one.job.nodes = u32::try_from(count).ok()?;
    one.job.per_node = Amounts {
        cpus: wants.cpus?.div_ceil(count),
        gpus: wants.gpus.unwrap_or(0).div_ceil(count),
        mem_bytes: wants.mem_bytes.unwrap_or(0).div_ceil(count),
    };
    one.job.gpu_model = wants.gpu_model.map(|model| queues.name(&model));
    one.job.priority = waiting.priority;
    if let Some(reservation) = &run.reservation {
        let (from, _) = queues.reserved.get(reservation.as_str())?;
        one.job.eligible = one.job.eligible.max(*from);
    }
    Some(one)
}

fn simulated_node(node: &Node, facts: &QueueFacts, queues: &Queues<'_>) -> SimulatedNode {
    let is_on_it = |kept: &&Reservation| kept.nodes().contains(&node.node);
    let mut closed: Vec<Closure> = facts
        .reservations
        .iter()
        .filter(is_on_it)
        .map(|kept| Closure {
            from: kept.from,
            to: kept.to,
            reservation: Some(kept.name.as_str().into()),
            is_foreseen: true,
        })
        .collect();

    let is_reserved = closed.iter().any(|one| one.from <= facts.now);
    if !opens_by_itself(&node.state, is_reserved) {
        closed.push(Closure {
            from: facts.now,
            to: facts.now + FAR_SECONDS,
            reservation: None,
            is_foreseen: true,
        });
    }

    // A replay knows one type of a node.
    let model = node
        .gpu_model
        .as_deref()
        .filter(|model| !model.contains('+'));
    SimulatedNode {
        name: node.node.clone(),
        has: node.has,
        gpu_model: model.map(Arc::from),
        partitions: queues.of_node(node),
        closed,
    }
}

/// Whether a node starts jobs, or will without anybody repairing or resuming it.
pub(super) fn opens_by_itself(state: &str, is_reserved: bool) -> bool {
    match NodeState::parse(state).condition() {
        // A node in maintenance returns when its reservation ends.
        NodeCondition::Maintenance => is_reserved,
        NodeCondition::Future | NodeCondition::Other => false,
        condition => !condition.is_unavailable(),
    }
}

/// Whether Slurm allocates memory: otherwise jobs have more of it than their nodes.
fn is_memory_allocated(cluster: &SimulatedCluster, jobs: &[ForecastJob]) -> bool {
    let mut held = vec![0_u64; cluster.nodes.len()];
    for one in jobs {
        for node in one.job.running.iter().flat_map(|running| &running.nodes) {
            held[*node as usize] += one.job.per_node.mem_bytes;
        }
    }
    let mut nodes = cluster.nodes.iter().zip(held);
    nodes.all(|(node, held)| held <= node.has.mem_bytes)
}

fn forget_memory(cluster: &mut SimulatedCluster, jobs: &mut [ForecastJob]) {
    for node in &mut cluster.nodes {
        node.has.mem_bytes = 0;
    }
    for one in jobs {
        one.job.per_node.mem_bytes = 0;
    }
}

/// Rules that no replay knows, by name. Counts are of the whole queue and name nobody.
fn not_modelled(
    facts: &QueueFacts,
    replayed: &[Option<usize>],
    has_memory: bool,
) -> Vec<UnmodelledRule> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (one, at) in facts.waiting.iter().zip(replayed) {
        for demand in &one.demands {
            *counts.entry(demand).or_default() += 1;
        }
        if at.is_none() {
            *counts
                .entry("jobs that are held, or wait for something other than resources")
                .or_default() += 1;
        } else if one.priority.is_none() {
            *counts
                .entry("priority, which is not known and taken as the lowest")
                .or_default() += 1;
        }
    }

    let is_lost = |node: &&Node| !opens_by_itself(&node.state, true);
    let is_mixed = |node: &&Node| {
        node.gpu_model
            .as_ref()
            .is_some_and(|model| model.contains('+'))
    };
    let of_nodes = [
        (
            "return of nodes that are down or drained",
            facts.nodes.iter().filter(is_lost).count(),
        ),
        (
            "GPU types of nodes with several",
            facts.nodes.iter().filter(is_mixed).count(),
        ),
    ];
    counts.extend(of_nodes.into_iter().filter(|(_, nodes)| *nodes > 0));

    let mut rules: Vec<UnmodelledRule> = counts
        .into_iter()
        .map(|(rule, count)| UnmodelledRule {
            rule: rule.to_owned(),
            count: Some(count),
        })
        .collect();
    let mut always = vec![
        "jobs that are submitted later",
        "limits of users, accounts and QOS",
        "preemption",
    ];
    if !has_memory {
        always.push("memory, of which jobs have more than their nodes");
    }
    if facts.nodes.iter().all(|node| node.partitions.is_empty()) {
        always.push("partitions, as the scheduler has not named those of nodes");
    }
    rules.extend(always.into_iter().map(|rule| UnmodelledRule {
        rule: rule.to_owned(),
        count: None,
    }));
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, state: &str, partitions: &[&str]) -> Node {
        Node {
            node: name.into(),
            state: state.into(),
            partitions: partitions.iter().map(|one| (*one).to_owned()).collect(),
            has: Amounts {
                cpus: 16,
                gpus: 4,
                mem_bytes: 64 << 30,
            },
            gpu_model: Some("a100".into()),
            ..Node::default()
        }
    }

    fn run(job_id: &str, submit: i64) -> JobRun {
        JobRun {
            job_id: job_id.into(),
            submit: UnixTime(submit),
            user: "ann".into(),
            partition: "gpu".into(),
            state: "PENDING".into(),
            req_tres: Some("cpu=8,mem=32G,node=2,gres/gpu:a100=4,gres/gpu=4".into()),
            timelimit: Some(3600),
            ..JobRun::default()
        }
    }

    fn waits(run: JobRun) -> WaitingJob {
        WaitingJob {
            run,
            reason: Some("Priority".into()),
            priority: Some(5),
            ..WaitingJob::default()
        }
    }

    fn running(job_id: &str, node_list: &str, mem_bytes: u64) -> JobRun {
        JobRun {
            start: Some(UnixTime(500)),
            state: "RUNNING".into(),
            node_list: Some(node_list.into()),
            cpus: Some(8),
            gpus: Some(2),
            mem_bytes: Some(mem_bytes),
            ..run(job_id, 100)
        }
    }

    fn facts() -> QueueFacts {
        QueueFacts {
            now: UnixTime(1000),
            nodes: vec![
                node("g1", "MIXED", &["gpu", "long"]),
                node("g2", "IDLE+DRAIN", &["gpu"]),
                node("g3", "IDLE+PLANNED", &["long"]),
            ],
            ..QueueFacts::default()
        }
    }

    #[test]
    fn a_queue_has_its_jobs_on_their_nodes() {
        let mut facts = facts();
        facts.running = vec![running("1", "g[1,9]", 16 << 30)];
        facts.waiting = vec![
            waits(run("3", 300)),
            waits(JobRun {
                partition: "gpu,long".into(),
                ..run("2", 200)
            }),
        ];
        let model = queue_model(&facts);

        let [first, second, third] = model.jobs.as_slice() else {
            panic!("{:?}", model.jobs);
        };
        let on = first.job.running.as_ref().unwrap();
        assert_eq!(
            (on.start, on.nodes.as_slice()),
            (UnixTime(500), [0].as_slice())
        );
        assert_eq!(
            first.job.per_node.cpus, 4,
            "a node that is gone holds its half"
        );
        assert_eq!(second.job.eligible, UnixTime(200));
        assert_eq!(third.job.per_node.gpus, 2);
        assert_eq!(third.job.gpu_model.as_deref(), Some("a100"));
        assert_eq!(model.waiting, [Some(2), Some(1)]);

        let queues: Vec<Vec<&str>> = model
            .cluster
            .nodes
            .iter()
            .map(|node| node.partitions.iter().map(|one| &**one).collect())
            .collect();
        assert_eq!(
            queues,
            [
                vec!["gpu", "gpu,long"],
                vec!["gpu", "gpu,long"],
                vec!["gpu,long"]
            ]
        );
        let closed: Vec<usize> = model
            .cluster
            .nodes
            .iter()
            .map(|node| node.closed.len())
            .collect();
        assert_eq!(
            closed,
            [0, 1, 0],
            "a drained node stays away, a planned one does not"
        );
    }

    #[test]
    fn a_job_of_a_reservation_uses_its_nodes_when_it_has_begun() {
        let mut facts = facts();
        facts.reservations = vec![Reservation {
            name: "class".into(),
            node_list: Some("g1".into()),
            from: UnixTime(2000),
            to: UnixTime(3000),
            ..Reservation::default()
        }];
        let of = |name: &str| {
            waits(JobRun {
                reservation: Some(name.into()),
                ..run("2", 200)
            })
        };
        facts.waiting = vec![of("class"), of("gone")];
        let model = queue_model(&facts);
        assert_eq!(model.waiting, [Some(0), None]);
        assert_eq!(model.jobs[0].job.eligible, UnixTime(2000));
        assert_eq!(&*model.jobs[0].job.partition, "gpu@class");
        assert_eq!(model.cluster.nodes[0].partitions, ["gpu@class".into()]);
        assert!(
            model.cluster.nodes[1]
                .partitions
                .iter()
                .all(|one| &**one != "gpu@class")
        );
    }

    #[test]
    fn what_is_not_modelled_is_named_and_counted() {
        let mut facts = facts();
        facts.running = vec![running("1", "g1", 65 << 30)];
        facts.waiting = vec![
            WaitingJob {
                demands: vec!["features".into()],
                priority: None,
                ..waits(run("2", 200))
            },
            WaitingJob {
                reason: Some("Dependency".into()),
                ..waits(run("3", 200))
            },
        ];
        let model = queue_model(&facts);
        let count = |rule: &str| {
            let found = model
                .not_modelled
                .iter()
                .find(|one| one.rule.starts_with(rule));
            found.map(|one| one.count)
        };
        assert_eq!(count("features"), Some(Some(1)));
        assert_eq!(count("priority"), Some(Some(1)));
        assert_eq!(count("jobs that are held"), Some(Some(1)));
        assert_eq!(count("return of nodes"), Some(Some(1)));
        assert_eq!(count("preemption"), Some(None));
        assert_eq!(
            count("memory"),
            Some(None),
            "a node had more memory allocated than it has"
        );
        assert_eq!(model.jobs[1].job.per_node.mem_bytes, 0);
    }

    #[test]
    fn an_obstacle_is_told_for_what_no_replay_knows() {
        let run = run("2", 200);
        let told = |reason: &str, priority| obstacle(&run, Some(reason), priority).is_some();
        assert!(!told("Resources", Some(1)));
        assert!(!told("ReqNodeNotAvail, Reserved for maintenance", None));
        assert!(!told("ReqNodeNotAvail(Unavailable:g1)", None));
        assert!(told("ReservationDeleted", Some(1)));
        assert!(told("QOSMaxGRESPerUser", Some(1)));
        assert!(told("Priority", Some(0)), "held");
        assert!(told("JobHeldAdmin", None));
        let unknown = JobRun {
            req_tres: None,
            ..run.clone()
        };
        assert!(obstacle(&unknown, None, None).is_some());
    }
}
