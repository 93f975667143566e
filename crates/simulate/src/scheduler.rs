//! The scheduler: events in the order of time, a queue for each partition, the main scheduler and backfill.

use crate::input::{FairShare, SimulatedCluster, SimulatedJob};
use crate::limits::LimitBook;
use crate::node::{NodeBook, covers};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::mem;
use takt_accounting::fairshare::{
    Decay, JobSize, Priority, PriorityFactors, age_factor, job_size_factor, standings,
};
use takt_model::UnixTime;

/// Where and when a job ran in a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Start.
    pub start: UnixTime,
    /// End.
    pub end: UnixTime,
    /// Indexes of its nodes.
    pub nodes: Box<[u32]>,
    /// Whether backfill started it, ahead of jobs with a higher priority.
    pub is_backfilled: bool,
}

/// Result of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Each job, in the order of the input. `None` if it never started.
    pub placed: Vec<Option<Placed>>,
    /// Jobs that fit on no nodes, or are above a limit by themselves.
    pub impossible: usize,
}

/// Limit of a job without one, in seconds: a year, as Slurm plans with.
const NO_LIMIT_SECONDS: i64 = 365 * 86_400;

/// Replays the jobs on the cluster.
pub fn replay(cluster: &SimulatedCluster, jobs: &[SimulatedJob]) -> Outcome {
    let mut scheduler = Scheduler::new(cluster, jobs);
    scheduler.place_running();
    scheduler.run(&mut || true);
    scheduler.outcome
}

/// As [`replay`], while `goes_on`: asked before each cycle of backfill. `None` if it ended early.
pub(crate) fn replay_while(
    cluster: &SimulatedCluster,
    jobs: &[SimulatedJob],
    goes_on: &mut dyn FnMut() -> bool,
) -> Option<Outcome> {
    let mut scheduler = Scheduler::new(cluster, jobs);
    scheduler.place_running();
    let is_whole = scheduler.run(goes_on);
    is_whole.then_some(scheduler.outcome)
}

/// As [`replay_while`], until the job with this index has started: jobs that would start later have no place.
pub(crate) fn replay_until(
    cluster: &SimulatedCluster,
    jobs: &[SimulatedJob],
    last: u32,
    goes_on: &mut dyn FnMut() -> bool,
) -> Option<Outcome> {
    let mut scheduler = Scheduler::new(cluster, jobs);
    scheduler.last = Some(last);
    scheduler.place_running();
    let is_whole = scheduler.run(goes_on);
    is_whole.then_some(scheduler.outcome)
}

/// The nodes that jobs of one partition and GPU type may use.
struct NodeClass {
    nodes: Vec<u32>,
    /// By node, whether it is one of them.
    has: Vec<bool>,
}

/// Jobs that fit on the same nodes, but for their time limits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Kind<'i> {
    class: u32,
    cpus: u64,
    gpus: u64,
    mem_bytes: u64,
    nodes: u32,
    reservation: Option<&'i str>,
}

/// The waiting jobs of a kind.
#[derive(Clone, Copy, Default)]
struct OfKind {
    waiting: u32,
    /// Whether they may find room now. Where this is false, they do not.
    may_have_room: bool,
}

struct Scheduler<'i> {
    cluster: &'i SimulatedCluster,
    jobs: &'i [SimulatedJob],
    nodes: Vec<NodeBook>,
    classes: Vec<NodeClass>,
    partition_of: Vec<u32>,
    kind_of: Vec<u32>,
    /// The class of each kind.
    class_of_kind: Vec<u32>,
    of_kind: Vec<OfKind>,
    /// Kinds of which jobs wait, each with one of its jobs.
    waiting_kinds: BTreeMap<u32, u32>,
    tiers: Vec<u32>,
    /// Waiting jobs of each partition, the first to start first.
    waiting: Vec<Vec<u32>>,
    waiting_count: usize,
    priority: Vec<u32>,
    cluster_cpus: u64,
    limits: LimitBook<'i>,
    ends: BinaryHeap<Reverse<(i64, u32)>>,
    shares: Option<Shares<'i>>,
    /// Job whose start ends the replay.
    last: Option<u32>,
    outcome: Outcome,
}

impl<'i> Scheduler<'i> {
    fn new(cluster: &'i SimulatedCluster, jobs: &'i [SimulatedJob]) -> Self {
        let mut classes = Vec::new();
        let mut known_classes: HashMap<(&str, Option<&str>), u32> = HashMap::new();
        let mut partitions: HashMap<&str, u32> = HashMap::new();
        let mut tiers = Vec::new();
        let mut kinds: HashMap<Kind<'i>, u32> = HashMap::new();
        let mut class_of_kind = Vec::new();
        let mut partition_of = Vec::with_capacity(jobs.len());
        let mut kind_of = Vec::with_capacity(jobs.len());
        for job in jobs {
            let partition = *partitions.entry(&job.partition).or_insert_with(|| {
                tiers.push(cluster.tiers.get(&*job.partition).copied().unwrap_or(1));
                tiers.len() as u32 - 1
            });
            let key = (&*job.partition, job.gpu_model.as_deref());
            let class = *known_classes.entry(key).or_insert_with(|| {
                classes.push(node_class(cluster, job));
                classes.len() as u32 - 1
            });
            let kind = Kind {
                class,
                cpus: job.per_node.cpus,
                gpus: job.per_node.gpus,
                mem_bytes: job.per_node.mem_bytes,
                nodes: job.nodes.max(1),
                reservation: job.reservation.as_deref(),
            };
            let kind = *kinds.entry(kind).or_insert_with(|| {
                class_of_kind.push(class);
                class_of_kind.len() as u32 - 1
            });
            partition_of.push(partition);
            kind_of.push(kind);
        }

        Self {
            cluster,
            jobs,
            nodes: cluster.nodes.iter().map(NodeBook::new).collect(),
            classes,
            partition_of,
            kind_of,
            of_kind: vec![OfKind::default(); class_of_kind.len()],
            class_of_kind,
            waiting_kinds: BTreeMap::new(),
            waiting: vec![Vec::new(); tiers.len()],
            waiting_count: 0,
            tiers,
            priority: vec![0; jobs.len()],
            cluster_cpus: cluster.nodes.iter().map(|node| node.has.cpus).sum(),
            limits: LimitBook::new(&cluster.limits),
            ends: BinaryHeap::new(),
            shares: Shares::new(cluster),
            last: None,
            outcome: Outcome {
                placed: vec![None; jobs.len()],
                impossible: 0,
            },
        }
    }

    /// Places the jobs that run when the replay begins.
    fn place_running(&mut self) {
        let jobs = self.jobs;
        for (index, job) in jobs.iter().enumerate() {
            if let Some(running) = &job.running {
                self.start(index as u32, running.start.0, &running.nodes, false);
            }
        }
    }

    /// Returns whether it went on to the end.
    fn run(&mut self, goes_on: &mut dyn FnMut() -> bool) -> bool {
        let jobs = self.jobs;
        let mut arrivals: Vec<u32> = (0..jobs.len() as u32)
            .filter(|index| jobs[*index as usize].running.is_none())
            .collect();
        arrivals.sort_by_key(|index| (jobs[*index as usize].eligible, *index));
        let mut arrivals = arrivals.into_iter().peekable();

        // Nodes come back at these times.
        let wakes: BTreeSet<i64> = self
            .cluster
            .nodes
            .iter()
            .flat_map(|node| node.closed.iter().map(|closed| closed.to.0))
            .collect();
        let first = arrivals
            .peek()
            .map_or(i64::MAX, |index| jobs[*index as usize].eligible.0);
        let mut wakes = wakes.into_iter().filter(|at| *at > first).peekable();

        let tick_seconds = self.cluster.fair_share.as_ref().map_or(300, |known| {
            i64::from(known.settings.calc_period_seconds.max(1))
        });
        let has_weights = has_weights(self.cluster);
        let mut next_tick = first;
        let mut next_backfill: Option<i64> = None;
        let mut last_backfill = i64::MIN / 2;
        let mut is_ordered = true;

        loop {
            let next_end = self.ends.peek().map(|Reverse((at, _))| *at);
            let next_arrival = arrivals
                .peek()
                .map(|index| jobs[*index as usize].eligible.0);
            // While nothing waits, the end of a reservation changes nothing.
            let next_wake = wakes.peek().copied().filter(|_| self.waiting_count > 0);
            let events = [next_end, next_arrival, next_wake, next_backfill];
            let Some(now) = events.into_iter().flatten().min() else {
                return true;
            };

            // The usage of each period decays at its tick, whether or not anything else happens.
            if has_weights {
                while next_tick <= now {
                    if let Some(shares) = &mut self.shares {
                        shares.tick(next_tick);
                    }
                    next_tick += tick_seconds;
                    is_ordered = false;
                }
                if !is_ordered && self.waiting_count > 0 {
                    self.order_again(now);
                    is_ordered = true;
                }
            }

            let mut is_changed = false;
            while let Some(Reverse((at, job))) = self.ends.peek().copied()
                && at <= now
            {
                self.ends.pop();
                self.end(job, at);
                is_changed = true;
            }
            while wakes.next_if(|at| *at <= now).is_some() {
                is_changed = true;
                let every_node: Vec<u32> = (0..self.nodes.len() as u32).collect();
                self.look_for_room(&every_node, now);
            }
            while let Some(index) =
                arrivals.next_if(|index| jobs[*index as usize].eligible.0 <= now)
            {
                is_changed |= self.queue(index, now);
            }

            if is_changed && self.waiting_count > 0 {
                self.start_in_order(now);
                if self.waiting_count > 0 && next_backfill.is_none() {
                    let interval = self.cluster.backfill.interval_seconds.max(1);
                    next_backfill = Some(now.max(last_backfill + interval));
                }
            }
            if next_backfill.is_some_and(|at| at <= now) {
                if !goes_on() {
                    return false;
                }
                self.backfill(now);
                last_backfill = now;
                next_backfill = None;
            }

            let is_found = |last: u32| self.outcome.placed[last as usize].is_some();
            if self.last.is_some_and(is_found) {
                return true;
            }
        }
    }

    /// Puts a job into its queue. Returns whether it can ever start.
    fn queue(&mut self, index: u32, now: i64) -> bool {
        let job = &self.jobs[index as usize];
        let fitting = self
            .class(index)
            .nodes
            .iter()
            .filter(|node| covers(self.nodes[**node as usize].has, job.per_node))
            .take(job.nodes.max(1) as usize)
            .count();
        if fitting < job.nodes.max(1) as usize || !self.limits.ever_allows(job) {
            self.outcome.impossible += 1;
            return false;
        }

        self.priority[index as usize] = self.priority_of(index, now);
        let key = self.order_key(index);
        let partition = self.partition_of[index as usize] as usize;
        let at = self.waiting[partition].partition_point(|one| self.order_key(*one) < key);
        self.waiting[partition].insert(at, index);
        self.waiting_count += 1;

        let kind = self.kind_of[index as usize];
        self.waiting_kinds.entry(kind).or_insert(index);
        if self.of_kind[kind as usize].waiting == 0 {
            self.of_kind[kind as usize].may_have_room = self.has_room(index, now);
        }
        self.of_kind[kind as usize].waiting += 1;
        true
    }

    /// Takes a waiting job out of its queue.
    fn take(&mut self, partition: usize, at: usize) -> u32 {
        let index = self.waiting[partition].remove(at);
        self.waiting_count -= 1;
        let kind = self.kind_of[index as usize];
        let of_kind = &mut self.of_kind[kind as usize];
        of_kind.waiting -= 1;
        if of_kind.waiting == 0 {
            self.waiting_kinds.remove(&kind);
        }
        index
    }

    fn class(&self, index: u32) -> &NodeClass {
        let kind = self.kind_of[index as usize];
        &self.classes[self.class_of_kind[kind as usize] as usize]
    }

    /// Whether enough nodes have room for a job now, if none is kept free for another one.
    fn has_room(&self, index: u32, now: i64) -> bool {
        let job = &self.jobs[index as usize];
        let wanted = job.nodes.max(1) as usize;
        let has_room = |node: &&u32| {
            let reservation = job.reservation.as_ref();
            self.nodes[**node as usize].has_room(job.per_node, now, reservation)
        };
        let nodes = &self.class(index).nodes;
        nodes.iter().filter(has_room).take(wanted).count() == wanted
    }

    /// Notes which of the kinds without room may have some, now that these nodes have more.
    fn look_for_room(&mut self, freed: &[u32], now: i64) {
        for (kind, index) in &self.waiting_kinds {
            if self.of_kind[*kind as usize].may_have_room {
                continue;
            }
            let job = &self.jobs[*index as usize];
            let reservation = job.reservation.as_ref();
            let class = self.class(*index);
            let is_nearer = freed.iter().any(|node| {
                let book = &self.nodes[*node as usize];
                class.has[*node as usize] && book.has_room(job.per_node, now, reservation)
            });
            if is_nearer && (job.nodes <= 1 || self.has_room(*index, now)) {
                self.of_kind[*kind as usize].may_have_room = true;
            }
        }
    }

    fn order_key(&self, index: u32) -> (Reverse<u32>, UnixTime, u32) {
        let job = &self.jobs[index as usize];
        (Reverse(self.priority[index as usize]), job.eligible, index)
    }

    fn priority_of(&self, index: u32, now: i64) -> u32 {
        let job = &self.jobs[index as usize];
        if let Some(priority) = job.priority {
            return priority;
        }
        if !has_weights(self.cluster) {
            return 1;
        }
        let size = JobSize {
            min_nodes: job.nodes,
            cpus: (job.per_node.cpus * u64::from(job.nodes)) as u32,
            cluster_nodes: self.nodes.len() as u32,
            cluster_cpus: self.cluster_cpus as u32,
        };
        let fair_share = self
            .shares
            .as_ref()
            .map_or(0.0, |shares| shares.factor(job));
        let factors = PriorityFactors {
            age: age_factor(
                UnixTime(now),
                Some(job.eligible),
                self.cluster.max_age_seconds,
            ),
            fair_share,
            job_size: job_size_factor(size, false),
            ..PriorityFactors::default()
        };
        Priority::new(&self.cluster.weights, &factors).priority
    }

    /// Computes all priorities again, and sorts the queues by them.
    fn order_again(&mut self, now: i64) {
        if let Some(shares) = &mut self.shares {
            shares.rank();
        }
        for partition in 0..self.waiting.len() {
            let mut queue = mem::take(&mut self.waiting[partition]);
            for index in &queue {
                self.priority[*index as usize] = self.priority_of(*index, now);
            }
            queue.sort_by_key(|index| self.order_key(*index));
            self.waiting[partition] = queue;
        }
    }

    /// The first waiting job of all partitions, from `cursors` on: by tier, then by priority.
    fn first(&self, cursors: &[usize]) -> Option<usize> {
        (0..self.waiting.len())
            .filter(|partition| cursors[*partition] < self.waiting[*partition].len())
            .min_by_key(|partition| {
                let index = self.waiting[*partition][cursors[*partition]];
                (Reverse(self.tiers[*partition]), self.order_key(index))
            })
    }

    /// The main scheduler: starts jobs in their order, until the first of each partition that finds no room.
    fn start_in_order(&mut self, now: i64) {
        let mut cursors = vec![0; self.waiting.len()];
        for _ in 0..self.cluster.backfill.queue_depth.max(1) {
            let Some(partition) = self.first(&cursors) else {
                return;
            };
            let index = self.waiting[partition][cursors[partition]];
            let job = &self.jobs[index as usize];
            if !self.limits.allows(job) {
                cursors[partition] += 1;
                continue;
            }

            let may_have_room = self.of_kind[self.kind_of[index as usize] as usize].may_have_room;
            let nodes = may_have_room.then(|| self.nodes_for_now(index, now));
            match nodes.flatten() {
                Some(nodes) => {
                    self.take(partition, cursors[partition]);
                    self.start(index, now, &nodes, false);
                }
                None => cursors[partition] = usize::MAX,
            }
        }
    }

    /// Backfill: in the order of the queue, starts each job that can start now, and plans the others at their earliest time.
    /// A job thus never delays one before it for which nodes are kept free, as far as time limits hold.
    fn backfill(&mut self, now: i64) {
        let mut candidates = self.candidates(now);
        let settings = self.cluster.backfill;
        let until = now + settings.window_seconds.max(1);
        let mut cursors = vec![0; self.waiting.len()];
        let mut too_long: HashMap<u32, i64> = HashMap::new();
        let mut earliest: HashMap<(u32, i64), Option<i64>> = HashMap::new();
        let mut planned: Vec<u32> = Vec::new();
        let mut reserved = 0;
        let mut is_behind = false;

        // A cycle that starts no job changes nothing: it ends where no job is left that could start.
        for _ in 0..settings.max_job_test {
            if candidates == 0 {
                break;
            }
            let Some(partition) = self.first(&cursors) else {
                break;
            };
            let index = self.waiting[partition][cursors[partition]];
            let job = &self.jobs[index as usize];
            let kind = self.kind_of[index as usize];
            let is_candidate = self.of_kind[kind as usize].may_have_room;
            candidates -= u32::from(is_candidate);
            if !self.limits.allows(job) {
                cursors[partition] += 1;
                is_behind = true;
                continue;
            }

            // Within a cycle nodes only fill up: what found no room finds none if it takes longer.
            let is_too_long = too_long
                .get(&kind)
                .is_some_and(|least| limit(job) >= *least);
            if is_candidate && !is_too_long {
                if let Some(nodes) = self.nodes_for_now(index, now) {
                    self.take(partition, cursors[partition]);
                    self.start(index, now, &nodes, is_behind);
                    continue;
                }
                too_long.insert(kind, limit(job));
            }

            cursors[partition] += 1;
            is_behind = true;
            if reserved == settings.reserve_depth {
                continue;
            }
            reserved += 1;
            let after = earliest.get(&(kind, limit(job))).copied();
            let after = after.unwrap_or(Some(now + 1));
            let found = after.and_then(|after| self.plan(index, (after, until), now));
            earliest.insert((kind, limit(job)), found.as_ref().map(|(at, _)| *at));
            if let Some((at, nodes)) = found {
                for node in &nodes {
                    let ends = at.saturating_add(limit(job));
                    self.nodes[*node as usize].plan(at, ends, job.per_node);
                }
                planned.extend(nodes);
            }
        }

        for node in planned {
            self.nodes[node as usize].forget_plans();
        }
    }

    /// Returns the number of waiting jobs that may find room now.
    fn candidates(&mut self, now: i64) -> u32 {
        let mut candidates = 0;
        for (kind, index) in &self.waiting_kinds {
            let is_one = self.of_kind[*kind as usize].may_have_room && self.has_room(*index, now);
            let of_kind = &mut self.of_kind[*kind as usize];
            of_kind.may_have_room = is_one;
            if is_one {
                candidates += of_kind.waiting;
            }
        }
        candidates
    }

    /// The nodes on which the job can start now, the fullest first.
    fn nodes_for_now(&self, index: u32, now: i64) -> Option<Vec<u32>> {
        let job = &self.jobs[index as usize];
        let span = (now, now.saturating_add(limit(job)));
        let fitting = self.class(index).nodes.iter().copied().filter(|node| {
            self.nodes[*node as usize].fits(job.per_node, span, now, job.reservation.as_ref())
        });

        if job.nodes == 1 {
            return fitting
                .min_by_key(|node| self.fullness(*node))
                .map(|node| vec![node]);
        }
        self.fullest(fitting.collect(), job.nodes)
    }

    /// The earliest time from `after` at which the job can start, with its nodes.
    fn plan(&self, index: u32, (after, until): (i64, i64), now: i64) -> Option<(i64, Vec<u32>)> {
        let job = &self.jobs[index as usize];
        let length = limit(job);
        let reservation = job.reservation.as_ref();
        let mut after = after;
        loop {
            let nodes = self.class(index).nodes.iter().copied();
            let found = nodes.filter_map(|node| {
                let book = &self.nodes[node as usize];
                let at = book.earliest(job.per_node, (after, until), length, now, reservation)?;
                Some((at, node))
            });
            if job.nodes <= 1 {
                let (at, node) = found.min_by_key(|(at, node)| (*at, self.fullness(*node)))?;
                return Some((at, vec![node]));
            }
            let mut times: Vec<(i64, u32)> = found.collect();
            times.sort_unstable();

            let (at, _) = *times.get(job.nodes.max(1) as usize - 1)?;
            let span = (at, at.saturating_add(length));
            let fitting: Vec<u32> = times
                .iter()
                .take_while(|(earliest, _)| *earliest <= at)
                .map(|(_, node)| *node)
                .filter(|node| {
                    self.nodes[*node as usize].fits(job.per_node, span, now, reservation)
                })
                .collect();
            if let Some(nodes) = self.fullest(fitting, job.nodes) {
                return Some((at, nodes));
            }

            // A node that was free earlier is planned for another job by then.
            after = at.max(after + 1);
        }
    }

    fn fullest(&self, mut nodes: Vec<u32>, count: u32) -> Option<Vec<u32>> {
        let count = count.max(1) as usize;
        if nodes.len() < count {
            return None;
        }
        nodes.sort_by_key(|node| self.fullness(*node));
        nodes.truncate(count);
        Some(nodes)
    }

    fn fullness(&self, node: u32) -> (u64, u64, u32) {
        let free = self.nodes[node as usize].free;
        (free.gpus, free.cpus, node)
    }

    fn start(&mut self, index: u32, at: i64, nodes: &[u32], is_backfilled: bool) {
        let job = &self.jobs[index as usize];
        let resolution = self.cluster.backfill.resolution_seconds.max(1);
        let ends = at.saturating_add(limit(job));
        let planned_end = ends.saturating_add((-ends).rem_euclid(resolution));
        for node in nodes {
            self.nodes[*node as usize].start(index, planned_end, job.per_node);
        }

        self.limits.start(job);
        if let Some(shares) = &mut self.shares {
            shares.start(job, at);
        }

        let end = at.saturating_add(job.run_seconds.max(0));
        self.ends.push(Reverse((end, index)));
        self.outcome.placed[index as usize] = Some(Placed {
            start: UnixTime(at),
            end: UnixTime(end),
            nodes: nodes.into(),
            is_backfilled,
        });
    }

    fn end(&mut self, index: u32, at: i64) {
        let job = &self.jobs[index as usize];
        let placed = self.outcome.placed[index as usize].as_ref();
        let nodes = placed.map_or_else(Box::default, |placed| placed.nodes.clone());
        for node in &nodes {
            self.nodes[*node as usize].end(index);
        }
        self.look_for_room(&nodes, at);
        self.limits.end(job);
        if let Some(shares) = &mut self.shares {
            shares.end(job, at);
        }
    }
}

fn limit(job: &SimulatedJob) -> i64 {
    job.limit_seconds.unwrap_or(NO_LIMIT_SECONDS).max(1)
}

fn has_weights(cluster: &SimulatedCluster) -> bool {
    let weights = &cluster.weights;
    weights.age > 0 || weights.fair_share > 0 || weights.job_size > 0
}

fn node_class(cluster: &SimulatedCluster, job: &SimulatedJob) -> NodeClass {
    let may_use = cluster.nodes.iter().map(|node| {
        let is_in = node.partitions.contains(&job.partition);
        // A node whose GPU type is unknown may have it.
        let is_model =
            job.gpu_model.is_none() || node.gpu_model.is_none() || node.gpu_model == job.gpu_model;
        is_in && is_model
    });
    let has: Vec<bool> = may_use.collect();
    NodeClass {
        nodes: (0..has.len() as u32)
            .filter(|node| has[*node as usize])
            .collect(),
        has,
    }
}

/// Decayed usage, fed by the replay's own jobs.
struct Shares<'i> {
    known: &'i FairShare,
    decay: Decay,
    raw_usage: Vec<f64>,
    /// Billing units per second of the running jobs, by association.
    rates: Vec<f64>,
    /// Billing units × seconds since the last tick that `rates` does not tell: of jobs that began or ended since.
    since: Vec<f64>,
    last_tick: i64,
    factors: Vec<f64>,
}

impl<'i> Shares<'i> {
    fn new(cluster: &'i SimulatedCluster) -> Option<Self> {
        let known = cluster.fair_share.as_ref()?;
        let mut shares = Self {
            known,
            decay: Decay::new(known.settings.decay_half_life_seconds),
            raw_usage: known.raw_usage.clone(),
            rates: vec![0.0; known.tree.len()],
            since: vec![0.0; known.tree.len()],
            last_tick: i64::MIN,
            factors: Vec::new(),
        };
        shares.raw_usage.resize(known.tree.len(), 0.0);
        shares.rank();
        Some(shares)
    }

    fn tick(&mut self, now: i64) {
        // Until the first tick, jobs that ran before are in the usage that was given.
        if self.last_tick != i64::MIN {
            let seconds = now - self.last_tick;
            let left = self.decay.over(seconds);
            for at in 0..self.raw_usage.len() {
                let added = self.since[at] + self.rates[at] * seconds as f64;
                self.raw_usage[at] = (self.raw_usage[at] + added).max(0.0) * left;
            }
        }
        self.since.fill(0.0);
        self.last_tick = now;
    }

    fn rank(&mut self) {
        self.factors = standings(&self.known.tree, &self.known.settings, &self.raw_usage)
            .into_iter()
            .map(|standing| standing.fair_share.unwrap_or(0.0))
            .collect();
    }

    fn factor(&self, job: &SimulatedJob) -> f64 {
        let id = job.association;
        id.and_then(|id| self.factors.get(id.index()).copied())
            .unwrap_or(0.0)
    }

    fn start(&mut self, job: &SimulatedJob, at: i64) {
        self.change(job, at, 1.0);
    }

    fn end(&mut self, job: &SimulatedJob, at: i64) {
        self.change(job, at, -1.0);
    }

    fn change(&mut self, job: &SimulatedJob, at: i64, sign: f64) {
        let Some(id) = job.association else {
            return;
        };
        let since = if self.last_tick == i64::MIN {
            0
        } else {
            (at - self.last_tick).max(0)
        };
        for above in self.known.tree.path(id) {
            self.rates[above.index()] += sign * job.billing_per_second;
            self.since[above.index()] -= sign * job.billing_per_second * since as f64;
        }
    }
}
