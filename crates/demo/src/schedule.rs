//! The simulated scheduler: five weeks of submissions, and when and where each job runs.

mod submissions;

use crate::cluster::{Cluster, Node};
use crate::pace::Pace;
use crate::workload::Kind;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;
use takt_model::UnixTime;

/// Days of job records before the start of the demo.
pub const PAST_DAYS: i64 = 35;

/// Hours after the start for which jobs are scheduled.
const FUTURE_HOURS: i64 = 30;

/// Number of pending jobs that the scheduler looks at after each change.
const DEPTH: usize = 500;

/// Waiting times in which a job keeps later ones from passing it, in seconds.
const PATIENCE_SECONDS: Range<i64> = 6 * 3600..24 * 3600;

/// Seconds from a node failure to the next run of its jobs.
const REQUEUE_SECONDS: i64 = 120;

/// Final state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The program ended without an error.
    Completed,
    /// The program ended with an error.
    Failed,
    /// The user ended it.
    Cancelled,
    /// It reached its time limit.
    Timeout,
    /// It used more memory than it had requested.
    OutOfMemory,
    /// Its node failed.
    NodeFail,
}

/// GPUs of a run on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Index of the node.
    pub node: usize,
    /// Indexes of the GPUs.
    pub gpus: Vec<usize>,
}

/// Resources that a job requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Number of nodes.
    pub nodes: usize,
    /// GPUs on each node.
    pub gpus: usize,
    /// CPUs on each node.
    pub cpus: u32,
    /// Memory on each node, in GiB.
    pub memory_gib: u32,
}

/// One run of a job.
#[derive(Debug, Clone)]
pub struct Job {
    /// Number of the job; unique among array tasks as well.
    pub number: u32,
    /// `number` as text: the name of its cgroup.
    pub raw_id: String,
    /// Slurm's JobID: `7123`, or `7123_4` of an array task.
    pub id: String,
    /// Number of the array and of the task.
    pub array: Option<(u32, u32)>,
    /// Index of the user.
    pub user: usize,
    /// Partition.
    pub partition: &'static str,
    /// QOS.
    pub qos: &'static str,
    /// Name.
    pub name: &'static str,
    /// How it uses what it holds.
    pub kind: Kind,
    /// Seed of its noise.
    pub seed: u64,
    /// Requested resources.
    pub request: Request,
    /// Time limit, in minutes.
    pub limit_minutes: i64,
    /// Submission.
    pub submit: UnixTime,
    /// Start. `None` if the job waits until the end of the simulation.
    pub start: Option<UnixTime>,
    /// End. Set together with `start`.
    pub end: UnixTime,
    /// Final state.
    pub outcome: Outcome,
    /// Seconds after which a hanging job hangs.
    pub hangs_after: i64,
    /// Nodes and GPUs.
    pub placed: Vec<Placement>,
    /// Reason of a job that never starts; empty for others.
    pub held: &'static str,
    /// Seconds that the job runs if nothing interrupts it.
    duration: i64,
    /// Node and GPUs that the script of the demo prescribes.
    pinned: Option<Placement>,
}

/// A time in which a node cannot run jobs.
#[derive(Debug, Clone)]
pub struct Outage {
    /// Index of the node.
    pub node: usize,
    /// Begin.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
    /// Slurm's state: `DOWN` or `DRAIN`.
    pub state: &'static str,
    /// Slurm's reason.
    pub reason: &'static str,
}

/// A reservation for maintenance.
#[derive(Debug, Clone)]
pub struct Maintenance {
    /// Name.
    pub name: &'static str,
    /// Indexes of its nodes.
    pub nodes: Vec<usize>,
    /// Begin.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
}

/// All jobs, past and future, in order of submission.
#[derive(Debug)]
pub struct Schedule {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Times in which nodes were unusable.
    pub outages: Vec<Outage>,
    /// The reservation.
    pub maintenance: Maintenance,
}

impl Job {
    /// Returns whether the job runs at `at`.
    pub fn is_running(&self, at: UnixTime) -> bool {
        self.start.is_some_and(|start| start <= at && at < self.end)
    }

    /// Returns whether the job waits at `at`.
    pub fn is_pending(&self, at: UnixTime) -> bool {
        self.submit <= at && self.start.is_none_or(|start| at < start)
    }

    /// Replaces planned times by times of the clock.
    fn follow(&mut self, pace: Pace) {
        let clock = |planned| pace.clock(planned);
        if let Some(start) = self.start {
            self.start = Some(clock(start));
            // A duration is the difference of two times: rounding each of them keeps the hang within the run.
            self.hangs_after = clock(start + self.hangs_after) - clock(start);
        }
        self.submit = clock(self.submit);
        self.end = clock(self.end);
    }

    /// Returns whether the job has ended at `at`.
    pub fn is_over(&self, at: UnixTime) -> bool {
        self.start.is_some() && self.end <= at
    }
}

impl Schedule {
    /// Simulates the scheduler around the start of the demo. `node_failure` has planned times; the
    /// result has times of the clock.
    pub fn new(cluster: &Cluster, pace: Pace, node_failure: Outage) -> Self {
        let now = pace.began;
        let maintenance = maintenance(cluster, now);
        let mut outages = outages(cluster, now);
        // The script's node failure is one of the outages, so that its jobs end with it.
        outages.push(node_failure);
        let submitted = submissions::of(cluster, now);

        let mut simulation = Simulation::new(cluster, &outages, &maintenance, &submitted);
        simulation.run(submitted, now + FUTURE_HOURS * 3600);
        let mut jobs = simulation.done;
        // Jobs that are still pending belong to the queue of the demo.
        jobs.append(&mut simulation.pending);
        jobs.iter_mut().for_each(|job| job.follow(pace));

        // Without an end, the outage lasts as long as the demo.
        for outage in outages
            .iter_mut()
            .filter(|outage| outage.to < UnixTime::MAX)
        {
            outage.from = pace.clock(outage.from);
            outage.to = pace.clock(outage.to);
        }

        jobs.sort_by_key(|job| (job.submit, job.number));
        Self {
            jobs,
            outages,
            maintenance,
        }
    }
}

/// Past failures and drains: a node every few days.
fn outages(cluster: &Cluster, now: UnixTime) -> Vec<Outage> {
    const REASONS: [(&str, &str, i64); 5] = [
        ("DOWN", "Not responding", 3),
        ("DRAIN", "XID 79: GPU fell off the bus", 20),
        ("DOWN", "Kernel panic", 2),
        ("DRAIN", "Kill task failed", 5),
        ("DRAIN", "Row remapping pending", 9),
    ];
    // The number grows with the square root, or 300 nodes would be a list of failures.
    let count = cluster.nodes.len().isqrt() * 2;
    let mut random = fastrand::Rng::with_seed(11);
    let mut all: Vec<Outage> = (0..count)
        .map(|number| {
            let (state, reason, hours) = REASONS[number % REASONS.len()];
            let from = now - random.i64(2 * 86_400..PAST_DAYS * 86_400);
            Outage {
                node: random.usize(..cluster.nodes.len()),
                from,
                to: from + hours * 3600,
                state,
                reason,
            }
        })
        .collect();

    // One node is drained now, where a cluster can spare it.
    if cluster.nodes.len() > 3 {
        all.push(Outage {
            node: cluster.nodes.len() / 2,
            from: now - 20 * 3600,
            to: UnixTime::MAX,
            state: "DRAIN",
            reason: "GPU 3: uncorrectable ECC errors, RMA 4711",
        });
    }
    all
}

/// Firmware was updated on a third of the nodes ten days ago.
fn maintenance(cluster: &Cluster, now: UnixTime) -> Maintenance {
    let from = (now - 10 * 86_400).round_down(86_400) + 8 * 3600;
    Maintenance {
        name: "firmware",
        nodes: (0..cluster.nodes.len().div_ceil(3)).collect(),
        from,
        to: from + 4 * 3600,
    }
}

/// Free resources of a node.
#[derive(Debug, Clone)]
struct Free {
    gpus: Vec<bool>,
    /// Number of free GPUs.
    count: usize,
    cpus: i64,
    memory_gib: i64,
}

/// A time in which a job may not hold a GPU of a node, or any GPU.
#[derive(Debug)]
struct Reserved {
    gpu: Option<usize>,
    from: UnixTime,
    to: UnixTime,
}

struct Simulation<'c> {
    cluster: &'c Cluster,
    outages: &'c [Outage],
    /// Nodes of each partition.
    nodes_of: BTreeMap<&'static str, Vec<usize>>,
    /// Begin and end of the outages of each node.
    outages_of: Vec<Vec<(UnixTime, UnixTime)>>,
    reserved: BTreeMap<usize, Vec<Reserved>>,
    free: Vec<Free>,
    pending: Vec<Job>,
    /// Running jobs by end; the number is an index in `done`.
    running: BinaryHeap<Reverse<(UnixTime, usize)>>,
    done: Vec<Job>,
}

impl<'c> Simulation<'c> {
    fn new(
        cluster: &'c Cluster,
        outages: &'c [Outage],
        maintenance: &Maintenance,
        submitted: &[Job],
    ) -> Self {
        let mut reserved: BTreeMap<usize, Vec<Reserved>> = BTreeMap::new();
        for &node in &maintenance.nodes {
            reserved.entry(node).or_default().push(Reserved {
                gpu: None,
                from: maintenance.from,
                to: maintenance.to,
            });
        }

        // The tour's jobs hold certain GPUs. Other jobs must be gone from these before they begin.
        for job in submitted {
            for (placement, &gpu) in job
                .pinned
                .iter()
                .flat_map(|placement| placement.gpus.iter().map(move |gpu| (placement, gpu)))
            {
                reserved.entry(placement.node).or_default().push(Reserved {
                    gpu: Some(gpu),
                    from: job.submit,
                    to: job.submit + job.duration,
                });
            }
        }

        let free = |node: &Node| Free {
            gpus: vec![true; node.gpus.len()],
            count: node.gpus.len(),
            cpus: i64::from(node.cpus),
            memory_gib: i64::from(node.memory_gib),
        };

        let mut nodes_of: BTreeMap<&'static str, Vec<usize>> = BTreeMap::new();
        for (number, node) in cluster.nodes.iter().enumerate() {
            for partition in node.partitions {
                nodes_of.entry(*partition).or_default().push(number);
            }
        }

        let mut outages_of = vec![Vec::new(); cluster.nodes.len()];
        for outage in outages {
            outages_of[outage.node].push((outage.from, outage.to));
        }
        Self {
            cluster,
            outages,
            nodes_of,
            outages_of,
            reserved,
            free: cluster.nodes.iter().map(free).collect(),
            pending: Vec::new(),
            running: BinaryHeap::new(),
            done: Vec::new(),
        }
    }

    fn run(&mut self, submitted: Vec<Job>, until: UnixTime) {
        let mut submitted = submitted.into_iter().peekable();
        loop {
            // Time jumps from event to event: five weeks would have three million seconds.
            let next_end = self.running.peek().map(|Reverse((end, _))| *end);
            let next_submit = submitted.peek().map(|job| job.submit);
            let Some(now) = next_end
                .into_iter()
                .chain(next_submit)
                .min()
                .filter(|now| *now <= until)
            else {
                return;
            };

            // Ends before submissions, so that freed resources are seen by what arrives in the same second.
            while let Some(Reverse((end, index))) = self.running.peek().copied()
                && end <= now
            {
                self.running.pop();
                self.release(index);
            }
            while let Some(job) = submitted.next_if(|job| job.submit <= now) {
                self.pending.push(job);
            }
            self.start_what_fits(now);
        }
    }

    /// Frees the resources of an ended run. A job whose node failed waits again.
    fn release(&mut self, index: usize) {
        let job = &self.done[index];

        for placement in &job.placed {
            let free = &mut self.free[placement.node];

            placement.gpus.iter().for_each(|&gpu| free.gpus[gpu] = true);
            // A count beside the flags, since `place` asks for it for each node.
            free.count = free.gpus.iter().filter(|free| **free).count();
            free.cpus += i64::from(job.request.cpus);
            free.memory_gib += i64::from(job.request.memory_gib);
        }
        // A run that failed with its node is queued again, as Slurm does by default.
        if job.outcome == Outcome::NodeFail {
            self.pending.push(Job {
                submit: job.end + REQUEUE_SECONDS,
                start: None,
                placed: Vec::new(),
                outcome: Outcome::Completed,
                pinned: None,
                ..job.clone()
            });
        }
    }

    fn start_what_fits(&mut self, now: UnixTime) {
        let mut kept_free = vec![false; self.cluster.nodes.len()];
        // Where one job does not fit, another one of the same shape does not fit either.
        let mut too_large = Vec::new();
        let mut index = 0;
        while index < self.pending.len().min(DEPTH) {
            let job = &self.pending[index];
            let shape = (job.partition, job.request);
            let is_ready = job.submit <= now && job.held.is_empty();
            if !is_ready || (job.pinned.is_none() && too_large.contains(&shape)) {
                index += 1;
                // Held jobs and requeued ones that are not ready must not stop those behind them.
                continue;
            }
            if let Some(placed) = self.place(job, now, &kept_free) {
                let job = self.pending.remove(index);
                self.start(job, placed, now);
                continue;
            }

            too_large.push(shape);
            // After a day, the job may never fit, and the others must not wait for it.
            if PATIENCE_SECONDS.contains(&(now - job.submit)) {
                self.keep_free_for(job, &mut kept_free);
            }
            index += 1;
        }
    }

    /// Marks the nodes that a job which has waited for long will get next.
    fn keep_free_for(&self, job: &Job, kept_free: &mut [bool]) {
        let mut fitting = Vec::new();
        for &number in self.nodes_of.get(job.partition).into_iter().flatten() {
            let node = &self.cluster.nodes[number];
            if node.gpus.len() >= job.request.gpus && !kept_free[number] {
                fitting.push(number);
            }
        }
        // The nodes with most free GPUs will be complete first.
        fitting.sort_by_key(|node| Reverse(self.free[*node].count));
        for node in fitting.into_iter().take(job.request.nodes) {
            kept_free[node] = true;
        }
    }

    fn start(&mut self, mut job: Job, placed: Vec<Placement>, now: UnixTime) {
        for placement in &placed {
            let free = &mut self.free[placement.node];
            placement
                .gpus
                .iter()
                .for_each(|&gpu| free.gpus[gpu] = false);
            free.count = free.gpus.iter().filter(|free| **free).count();
            free.cpus -= i64::from(job.request.cpus);
            free.memory_gib -= i64::from(job.request.memory_gib);
        }
        // The scheduler needs a moment.
        let start = now + i64::from(job.number % 3);
        job.start = Some(start);
        job.end = start + job.duration;

        // A failure that begins during the run ends it. A drain does not.
        let failure = self
            .outages
            .iter()
            .filter(|outage| placed.iter().any(|placement| placement.node == outage.node))
            .filter(|outage| outage.state == "DOWN")
            .map(|outage| outage.from)
            .filter(|from| start < *from && *from < job.end)
            .min();
        if let Some(failure) = failure {
            job.end = failure;
            job.outcome = Outcome::NodeFail;
        }

        job.placed = placed;
        self.running.push(Reverse((job.end, self.done.len())));
        self.done.push(job);
    }

    /// Returns nodes and GPUs for a job, or `None` if it does not fit.
    fn place(&self, job: &Job, now: UnixTime, kept_free: &[bool]) -> Option<Vec<Placement>> {
        // The places of the tour's jobs were kept free for them.
        if let Some(pinned) = &job.pinned {
            return Some(vec![pinned.clone()]);
        }

        // Later outages are known here, but not to a scheduler: only reservations count.
        let end = now + job.duration;
        let mut placed = Vec::new();
        for &number in self.nodes_of.get(job.partition)? {
            let free = &self.free[number];
            let has_room = !kept_free[number]
                && free.count >= job.request.gpus
                && free.cpus >= i64::from(job.request.cpus)
                && free.memory_gib >= i64::from(job.request.memory_gib);
            if !has_room {
                continue;
            }

            let mut outages = self.outages_of[number].iter();
            if outages.any(|(from, to)| *from <= now && now < *to) {
                continue;
            }

            // A reservation for maintenance blocks jobs that would run into it, as Slurm does.
            let reserved = self.reserved.get(&number).map_or(&[][..], Vec::as_slice);
            let blocks = |gpu: Option<usize>| {
                reserved.iter().any(|reserved| {
                    (reserved.gpu.is_none() || reserved.gpu == gpu)
                        && reserved.from < end
                        && now < reserved.to
                })
            };
            if blocks(None) {
                continue;
            }

            let gpus: Vec<usize> = (0..free.gpus.len())
                .filter(|&gpu| free.gpus[gpu] && !blocks(Some(gpu)))
                .take(job.request.gpus)
                .collect();
            if gpus.len() < job.request.gpus {
                continue;
            }

            placed.push(Placement { node: number, gpus });
            if placed.len() == job.request.nodes {
                return Some(placed);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Size;
    use crate::page::Demo;
    use std::collections::BTreeSet;

    const NOW: UnixTime = UnixTime(1_795_000_000);

    fn demos() -> [Demo; 2] {
        [Size::Three, Size::Thirty].map(|size| Demo::new(Cluster::new(size), NOW, 1))
    }

    #[test]
    fn at_a_higher_speed_more_jobs_end_in_the_next_hour_and_none_has_another_past() {
        let [slow, fast] = [1, 20].map(|speed| Demo::new(Cluster::new(Size::Three), NOW, speed));

        let ended = |demo: &Demo, from: UnixTime, to: UnixTime| {
            demo.schedule
                .jobs
                .iter()
                .filter(|job| job.start.is_some() && (from..to).contains(&job.end))
                .map(|job| job.end)
                .collect::<Vec<_>>()
        };
        // The past is the same at any speed.
        assert_eq!(
            ended(&slow, UnixTime(0), NOW),
            ended(&fast, UnixTime(0), NOW)
        );

        let hour = |demo| ended(demo, NOW, NOW + 3600).len();
        assert!(
            hour(&fast) > 5 * hour(&slow),
            "{} {}",
            hour(&slow),
            hour(&fast)
        );

        let mut jobs = fast.schedule.jobs.iter();
        assert!(jobs.all(|job| job.start.is_none_or(|start| start < job.end)));
    }

    #[test]
    fn no_gpu_has_two_jobs_and_no_job_runs_on_a_node_that_is_out() {
        for demo in demos() {
            let jobs = &demo.schedule.jobs;

            let mut held: BTreeMap<(usize, usize), Vec<(UnixTime, UnixTime)>> = BTreeMap::new();
            for job in jobs {
                let Some(start) = job.start else {
                    assert!(job.placed.is_empty(), "{job:?}");
                    continue;
                };
                assert!(job.submit <= start && start < job.end, "{job:?}");
                assert_eq!(job.placed.len(), job.request.nodes);
                for placement in &job.placed {
                    assert_eq!(placement.gpus.len(), job.request.gpus);
                    for &gpu in &placement.gpus {
                        held.entry((placement.node, gpu))
                            .or_default()
                            .push((start, job.end));
                    }
                    // A drained node may keep its running jobs.
                    let down = demo.schedule.outages.iter().find(|outage| {
                        outage.node == placement.node
                            && outage.state == "DOWN"
                            && outage.from < job.end
                            && start < outage.to
                    });
                    assert!(down.is_none(), "{job:?} {down:?}");
                }
            }

            for (gpu, mut times) in held {
                times.sort_unstable();
                let overlap = times.windows(2).find(|pair| pair[1].0 < pair[0].1);
                assert_eq!(overlap, None, "{gpu:?}");
            }
        }
    }

    #[test]
    fn the_month_is_believable() {
        for demo in demos() {
            let jobs = &demo.schedule.jobs;
            let gpus = demo.cluster.gpus() as f64;
            // The first day is left out: the cluster fills up.
            let past = (NOW - PAST_DAYS * 86_400 + 86_400, NOW);
            let busy: f64 = jobs
                .iter()
                .filter_map(|job| {
                    let seconds = job.end.min(past.1) - job.start?.max(past.0);
                    let held = job.request.nodes * job.request.gpus;
                    Some(seconds.max(0) as f64 * held as f64)
                })
                .sum();
            let share = busy / gpus / (past.1 - past.0) as f64;

            assert!((0.5..0.97).contains(&share), "{share} of the GPUs are held");
            let over = jobs.iter().filter(|job| job.is_over(NOW)).count();
            assert!(over > 300, "{over} jobs");

            let outcomes: Vec<Outcome> = jobs.iter().map(|job| job.outcome).collect();
            assert!(outcomes.contains(&Outcome::Failed));
            assert!(outcomes.contains(&Outcome::Timeout));
            // Records are found by id and submission, so a requeued run has another submission.
            let runs: BTreeSet<(&str, UnixTime)> = jobs
                .iter()
                .map(|job| (job.id.as_str(), job.submit))
                .collect();
            assert_eq!(runs.len(), jobs.len(), "runs differ in id or submission");
            // The tour names these users.
            for user in ["alice", "bob", "erin"] {
                let user = demo.cluster.user(user).unwrap();
                let runs = |job: &&Job| job.user == user && job.is_running(NOW);
                assert!(jobs.iter().any(|job| runs(&job)), "{user}");
            }

            let waiting = jobs.iter().filter(|job| job.is_pending(NOW)).count();
            assert!(waiting > 0, "the queue is empty");
        }
    }
}
