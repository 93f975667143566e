//! A past period as a replay needs it, from the records: jobs, nodes with their failures, reservations, and what of the site
//! no replay knows.

use crate::forecast::UnmodelledRule;
use crate::{AnswerError, did_you_mean};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use takt_accounting::capacity::effect_of_event;
use takt_jobs::{Amounts, Node, nodelist};
use takt_model::UnixTime;
use takt_simulate::{
    BackfillSettings, Closure, PastJob, PastPeriod, Running, SimulatedCluster, SimulatedJob,
    SimulatedNode,
};
use takt_slurm::tres::TresCounts;
use takt_store::{PastRun, Records};

/// Most jobs that are replayed.
const MOST_RUNS: usize = 1_000_000;

/// A time after all jobs of a period, in seconds from its end: a node that is down returns then.
const FAR_SECONDS: i64 = 10 * 365 * 86_400;

/// Backfill of what-ifs: to the minute, which takes a fraction of the time that Slurm's cycles of 30 s take.
const BACKFILL: BackfillSettings = BackfillSettings {
    interval_seconds: 60,
    window_seconds: 86_400,
    resolution_seconds: 60,
    max_job_test: 500,
    reserve_depth: 20,
    queue_depth: 100,
};

/// A past period of a cluster, from its records.
pub(super) struct PastRecords {
    /// The period.
    pub period: PastPeriod,
    /// What is not modelled.
    pub not_modelled: Vec<UnmodelledRule>,
}

impl PastRecords {
    /// Reads a period.
    ///
    /// # Errors
    /// If the store fails, if no job or no node is recorded, or if the jobs are too many.
    pub(super) fn read(
        records: &Records<'_>,
        cluster: &str,
        from: UnixTime,
        to: UnixTime,
    ) -> Result<Self, AnswerError> {
        let mut jobs = PastJobs::new(from, to);
        records.past_runs(cluster, (from, to), MOST_RUNS + 1, |run| jobs.add(&run))?;
        if jobs.found.len() > MOST_RUNS {
            return Err(AnswerError::Usage(format!(
                "the period has more than {MOST_RUNS} jobs: choose a shorter one"
            )));
        }
        if jobs.found.is_empty() {
            return Err(AnswerError::Input(format!(
                "no job of cluster {cluster} waited or ran in this period: choose another one with --month, or --from and --to"
            )));
        }

        let registered = records.nodes_now(cluster)?;
        let events = records.node_events(cluster, from)?;
        let reservations = records.reservations(cluster, from)?;
        let mut past = jobs.with_nodes(&registered)?;
        for event in events {
            let is_in = event.from < to && effect_of_event(&event.state).is_some();
            if is_in && let Some(node) = past.node_mut(&event.node) {
                node.closed.push(Closure {
                    from: event.from,
                    to: event.to.unwrap_or(to + FAR_SECONDS),
                    reservation: None,
                    is_foreseen: false,
                });
            }
        }
        for kept in reservations.iter().filter(|kept| kept.from < to) {
            for name in kept.nodes() {
                if let Some(node) = past.node_mut(&name) {
                    node.closed.push(Closure {
                        from: kept.from,
                        to: kept.to,
                        reservation: Some(kept.name.as_str().into()),
                        is_foreseen: true,
                    });
                }
            }
        }
        Ok(past)
    }

    fn node_mut(&mut self, name: &str) -> Option<&mut SimulatedNode> {
        let nodes = &mut self.period.cluster.nodes;
        nodes.iter_mut().find(|node| node.name == name)
    }

    /// Names of the partitions of jobs and nodes.
    pub(super) fn partitions(&self) -> BTreeSet<&str> {
        let of_nodes = self.period.cluster.nodes.iter();
        let of_jobs = self.period.jobs.iter().map(|one| &*one.job.partition);
        of_nodes
            .flat_map(|node| node.partitions.iter().map(|name| &**name))
            .chain(of_jobs)
            .collect()
    }

    /// Indexes of the nodes of a list.
    ///
    /// # Errors
    /// If the list is empty or not one, or names a node that the cluster does not have.
    pub(super) fn nodes(&self, list: &str) -> Result<Vec<usize>, AnswerError> {
        let nodes = &self.period.cluster.nodes;
        let mut found = Vec::new();
        for name in node_names(list)? {
            let Some(at) = nodes.iter().position(|node| node.name == name) else {
                let near = did_you_mean(&name, nodes.iter().map(|node| node.name.as_str()));
                return Err(AnswerError::Usage(format!(
                    "the cluster has no node {name}{near}"
                )));
            };
            if !found.contains(&at) {
                found.push(at);
            }
        }
        Ok(found)
    }
}

/// The names of a list of nodes.
///
/// # Errors
/// If there are none.
pub(super) fn node_names(list: &str) -> Result<Vec<String>, AnswerError> {
    let names = nodelist::expand(list).unwrap_or_default();
    if !names.is_empty() && names.iter().all(|name| !name.is_empty()) {
        return Ok(names);
    }
    Err(AnswerError::Usage(format!(
        "'{list}' names no node: expected a list such as g[31-34] or g07,g09"
    )))
}

/// A node as the records of jobs show it.
#[derive(Default)]
struct SeenNode {
    partitions: BTreeSet<Arc<str>>,
    gpu_model: Option<String>,
    /// Start and end of each run, with what it held on this node.
    holds: Vec<(UnixTime, UnixTime, Amounts)>,
}

impl SeenNode {
    /// What runs held at the same time at most, of each resource.
    fn peak(&self) -> Amounts {
        let mut changes: Vec<(UnixTime, bool, Amounts)> = Vec::with_capacity(self.holds.len() * 2);
        for (start, end, held) in &self.holds {
            changes.push((*start, true, *held));
            changes.push((*end, false, *held));
        }
        // What ends at a second is free for what begins at it.
        changes.sort_by_key(|(at, begins, _)| (*at, *begins));

        let (mut now, mut peak) = (Amounts::default(), Amounts::default());
        for (_, begins, held) in changes {
            let change = |now: u64, held: u64| {
                if begins {
                    now + held
                } else {
                    now.saturating_sub(held)
                }
            };
            now.cpus = change(now.cpus, held.cpus);
            now.gpus = change(now.gpus, held.gpus);
            now.mem_bytes = change(now.mem_bytes, held.mem_bytes);
            peak.cpus = peak.cpus.max(now.cpus);
            peak.gpus = peak.gpus.max(now.gpus);
            peak.mem_bytes = peak.mem_bytes.max(now.mem_bytes);
        }
        peak
    }
}

/// The jobs of a period while they are read.
struct PastJobs {
    from: UnixTime,
    to: UnixTime,
    found: Vec<PastJob>,
    /// Node list of each job that ran when the period began, by its index.
    running: Vec<(usize, UnixTime, Vec<String>)>,
    names: HashSet<Arc<str>>,
    seen: HashMap<String, SeenNode>,
    unended: usize,
    reserved: usize,
}

impl PastJobs {
    fn new(from: UnixTime, to: UnixTime) -> Self {
        Self {
            from,
            to,
            found: Vec::new(),
            running: Vec::new(),
            names: HashSet::new(),
            seen: HashMap::new(),
            unended: 0,
            reserved: 0,
        }
    }

    /// A name that many jobs share.
    fn name(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.names.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.names.insert(Arc::clone(&new));
        new
    }

    fn add(&mut self, run: &PastRun) {
        let start = run.start;
        let limit_seconds = run.timelimit.filter(|limit| *limit > 0);
        // A job that still runs has its limit, or as much again as it ran by the end of the period.
        let end = run.end.unwrap_or_else(|| {
            self.unended += 1;
            match limit_seconds {
                Some(limit) => start + limit,
                None => self.to + (self.to - start).max(0),
            }
        });
        let end = end.max(start);

        let nodes = run.nodes.unwrap_or(1).max(1);
        let per_node = Amounts {
            cpus: run.cpus.unwrap_or(1).div_ceil(nodes),
            gpus: run.gpus.unwrap_or(0).div_ceil(nodes),
            mem_bytes: run.mem_bytes.unwrap_or(0).div_ceil(nodes),
        };
        let partition = self.name(&run.partition);
        let names = run.node_list.as_deref().map(nodelist::expand);
        let names = names.and_then(Result::ok).unwrap_or_default();
        for name in &names {
            let seen = match self.seen.get_mut(name) {
                Some(seen) => seen,
                None => self.seen.entry(name.clone()).or_default(),
            };
            if !seen.partitions.contains(&partition) {
                seen.partitions.insert(Arc::clone(&partition));
            }
            if seen.gpu_model.is_none() {
                seen.gpu_model.clone_from(&run.gpu_model);
            }
            seen.holds.push((start, end, per_node));
        }

        let waits_from = run.eligible.unwrap_or(run.submit).min(start);
        let is_running = start < self.from;
        if is_running {
            self.running.push((self.found.len(), start, names));
        }
        self.reserved += usize::from(run.reservation.is_some());
        let job = SimulatedJob {
            eligible: waits_from.max(self.from),
            run_seconds: end - start,
            limit_seconds,
            nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
            per_node,
            gpu_model: wanted_model(run).map(|model| self.name(&model)),
            partition,
            user: self.name(&run.user),
            account: self.name(&run.account),
            qos: None,
            reservation: run.reservation.as_deref().map(|name| self.name(name)),
            association: None,
            billing_per_second: 0.0,
            priority: None,
            running: is_running.then(|| Running {
                start,
                nodes: Vec::new(),
            }),
        };
        self.found.push(PastJob {
            job,
            waits_from,
            recorded: Some((start, end)),
            number: self.found.len() as u32,
        });
    }

    /// Adds the nodes: the registered ones, and those that only records of jobs name.
    fn with_nodes(mut self, registered: &[Node]) -> Result<PastRecords, AnswerError> {
        let has_partitions = registered.iter().any(|node| !node.partitions.is_empty());
        let every: BTreeSet<Arc<str>> = self
            .found
            .iter()
            .map(|one| Arc::clone(&one.job.partition))
            .collect();
        let mut nodes: Vec<SimulatedNode> = Vec::new();
        let mut is_memory_allocated = true;
        for node in registered {
            let partitions = if has_partitions {
                node.partitions.iter().map(|name| self.name(name)).collect()
            } else {
                every.iter().cloned().collect()
            };
            if let Some(seen) = self.seen.remove(&node.node) {
                is_memory_allocated &= seen.peak().mem_bytes <= node.has.mem_bytes;
            }
            let model = node
                .gpu_model
                .as_deref()
                .filter(|model| !model.contains('+'));
            nodes.push(SimulatedNode {
                name: node.node.clone(),
                has: node.has,
                gpu_model: model.map(Arc::from),
                partitions,
                closed: Vec::new(),
            });
        }

        let mut gone: Vec<(String, SeenNode)> = self.seen.drain().collect();
        gone.sort_by(|(a, _), (b, _)| a.cmp(b));
        let unregistered = gone.len();
        for (name, seen) in gone {
            nodes.push(self.unregistered(name, &seen, registered.is_empty()));
        }
        if nodes.is_empty() {
            return Err(AnswerError::Input(
                "no node of the cluster is known: its records name none, and no server has polled Slurm".to_owned(),
            ));
        }

        self.place_running(&nodes);
        if !is_memory_allocated {
            nodes.iter_mut().for_each(|node| node.has.mem_bytes = 0);
            self.found
                .iter_mut()
                .for_each(|one| one.job.per_node.mem_bytes = 0);
        }
        let not_modelled = self.not_modelled(is_memory_allocated, unregistered, has_partitions);
        Ok(PastRecords {
            period: PastPeriod {
                from: self.from,
                to: self.to,
                cluster: SimulatedCluster {
                    nodes,
                    backfill: BACKFILL,
                    ..SimulatedCluster::default()
                },
                jobs: self.found,
                are_limits_exact: false,
            },
            not_modelled,
        })
    }

    /// A node that Slurm no longer has, of the size that its jobs held. It is away from its last job on, unless no node is
    /// registered at all.
    fn unregistered(&self, name: String, seen: &SeenNode, is_imported: bool) -> SimulatedNode {
        let last = seen.holds.iter().map(|(_, end, _)| *end).max();
        let away = last.filter(|last| !is_imported && *last < self.to);
        let model = seen
            .gpu_model
            .as_deref()
            .filter(|model| !model.contains('+'));
        SimulatedNode {
            name,
            has: seen.peak(),
            gpu_model: model.map(Arc::from),
            partitions: seen.partitions.iter().cloned().collect(),
            closed: away
                .into_iter()
                .map(|from| Closure {
                    from,
                    to: self.to + FAR_SECONDS,
                    reservation: None,
                    is_foreseen: true,
                })
                .collect(),
        }
    }

    fn place_running(&mut self, nodes: &[SimulatedNode]) {
        let places: HashMap<&str, u32> = (0_u32..)
            .zip(nodes)
            .map(|(at, node)| (node.name.as_str(), at))
            .collect();
        for (at, start, names) in self.running.drain(..) {
            let on = names
                .iter()
                .filter_map(|name| places.get(name.as_str()).copied());
            self.found[at].job.running = Some(Running {
                start,
                nodes: on.collect(),
            });
        }
    }

    fn not_modelled(
        &self,
        has_memory: bool,
        unregistered: usize,
        has_partitions: bool,
    ) -> Vec<UnmodelledRule> {
        let mut rules: Vec<UnmodelledRule> = [
            (
                "nodes that Slurm no longer has, of the size that jobs held",
                unregistered,
            ),
            (
                "ends of jobs that still run, taken as their time limits",
                self.unended,
            ),
            (
                "jobs of reservations, which may also start on other nodes",
                self.reserved,
            ),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(rule, count)| UnmodelledRule {
            rule: rule.to_owned(),
            count: Some(count),
        })
        .collect();

        let mut always = vec![
            "priorities, which are not recorded: jobs are in the order in which they became eligible",
            "limits of users, accounts and QOS",
            "features, licenses and named nodes of jobs",
            "preemption",
            "jobs that were cancelled while they waited",
            "nodes that were added within the period",
            "people who submit more when they wait less",
        ];
        if !has_memory {
            always.push("memory, of which jobs have more than their nodes");
        }
        if !has_partitions {
            always.push("partitions, as the scheduler has not named those of nodes");
        }
        rules.extend(always.into_iter().map(|rule| UnmodelledRule {
            rule: rule.to_owned(),
            count: None,
        }));
        rules
    }
}

/// The GPU type that a run asked for.
fn wanted_model(run: &PastRun) -> Option<String> {
    let wanted = TresCounts::parse(run.req_tres.as_deref()?).ok().flatten();
    wanted.and_then(|wanted| wanted.gpu_model)
}
