//! Readings of the simulated nodes. A reading depends on the node and the time only, so live pages
//! and the history agree.

mod gpus;
mod jobs;
mod system;

use crate::cluster::Cluster;
use crate::curve::Curve;
use crate::faults::{FaultKind, Script};
use crate::noise::wobble;
use crate::pace::Pace;
use crate::schedule::{Job, Outage, PAST_DAYS, Schedule};
use crate::workload::Moment;
use takt_model::Metric;
use takt_model::UnixTime;

/// Receiver of readings.
pub trait Sink {
    /// Takes a reading. `values` are the values of the metric's labels.
    fn push(&mut self, metric: &'static Metric, values: &[&str], value: f64);

    /// Takes readings of metrics whose labels have the same values.
    fn push_all(&mut self, values: &[&str], readings: &[(&'static Metric, f64)]) {
        for &(metric, value) in readings {
            self.push(metric, values, value);
        }
    }
}

/// Selection of readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All readings.
    Everything,
    /// Readings from which the efficiency of jobs is computed.
    Jobs,
}

/// An instant.
#[derive(Debug, Clone, Copy)]
pub struct Instant {
    /// The second that contains it.
    pub second: UnixTime,
    /// Seconds since 1970, with the fraction.
    pub exact: f64,
}

impl Instant {
    /// Returns smooth noise between -1 and 1.
    fn noise(self, seed: u64) -> f64 {
        wobble(seed, self.second.0)
    }
}

/// Jobs and counters of a node.
#[derive(Debug)]
struct NodeCurves {
    /// For each hour since the begin: the jobs that run in it, with the place in `Job::placed`.
    by_hour: Vec<Vec<(usize, usize)>>,
    user_cpu: Curve,
    nfs_read: Curve,
    received: Curve,
    energy: Vec<Curve>,
}

/// The simulated cluster with all that happens in it.
#[derive(Debug)]
pub struct Demo {
    /// Nodes, users and accounts.
    pub cluster: Cluster,
    /// Jobs.
    pub schedule: Schedule,
    /// Faults.
    pub script: Script,
    /// Time at which the nodes were booted.
    booted: UnixTime,
    nodes: Vec<NodeCurves>,
}

impl Demo {
    /// Simulates a cluster around `now`, the start of the script of faults. What is
    /// planned for later happens `speed` times as fast.
    pub fn new(cluster: Cluster, now: UnixTime, speed: u8) -> Self {
        let pace = Pace {
            began: now,
            speed: i64::from(speed.max(1)),
        };
        let script = Script::new(&cluster, pace);

        // The scheduler must know when the node is lost, since its job ends then.
        let (node, from, to) = script.first_node_loss();
        let failure = Outage {
            node,
            from,
            to,
            state: "DOWN",
            reason: "Not responding",
        };
        let schedule = Schedule::new(&cluster, pace, failure);
        // Before the oldest job, so that counters have grown before the history begins.
        let booted = now - (PAST_DAYS + 2) * 86_400;

        let mut on_node = vec![Vec::new(); cluster.nodes.len()];
        for (index, job) in schedule.jobs.iter().enumerate() {
            for (place, placement) in job.placed.iter().enumerate() {
                on_node[placement.node].push((index, place));
            }
        }

        let nodes = on_node
            .iter()
            .enumerate()
            .map(|(node, jobs)| NodeCurves::new(&cluster, &schedule, node, jobs, booted))
            .collect();
        Self {
            cluster,
            schedule,
            script,
            booted,
            nodes,
        }
    }

    /// Returns whether the exporter of a node answers at `at`.
    pub fn answers(&self, node: usize, at: UnixTime) -> bool {
        // A drained node answers. Only a node that is down does not.
        let is_out = |outage: &Outage| {
            outage.node == node && outage.state == "DOWN" && outage.from <= at && at < outage.to
        };
        self.script.on_node(FaultKind::NodeLost, node, at).is_none()
            && !self.schedule.outages.iter().any(is_out)
    }

    /// Gives all readings of a node at a time to `sink`.
    pub fn read(&self, node: usize, at: Instant, scope: Scope, sink: &mut impl Sink) {
        let running: Vec<(&Job, usize)> = self.running_on(node, at.second).collect();
        // Efficiency needs GPUs and jobs only, for which five weeks are read.
        if scope == Scope::Everything {
            system::read(self, node, at, &running, sink);
        }
        gpus::read(self, node, at, &running, scope, sink);
        jobs::read(self, node, at, &running, scope, sink);
    }

    /// Returns the jobs that run on a node, with their place in `Job::placed`.
    pub fn running_on(&self, node: usize, at: UnixTime) -> impl Iterator<Item = (&Job, usize)> {
        // Lists by hour: a page looks at few jobs instead of all of five weeks.
        let hour = usize::try_from((at - self.booted).div_euclid(3600)).ok();
        hour.and_then(|hour| self.nodes[node].by_hour.get(hour))
            .into_iter()
            .flatten()
            .map(|&(index, place)| (&self.schedule.jobs[index], place))
            .filter(move |(job, _)| job.is_running(at))
    }
}

impl Job {
    /// Returns the state of the job at a time, for one of its GPUs.
    fn moment(&self, rank: usize, at: UnixTime) -> Moment {
        Moment {
            elapsed: at - self.start.unwrap_or(at),
            hangs_after: self.hangs_after,
            rank,
            seed: self.seed,
        }
    }

    /// Returns the position of a GPU among all GPUs of the job.
    fn rank(&self, place: usize, gpu: usize) -> usize {
        place * self.request.gpus + gpu
    }

    /// Returns the time at which the job stops working.
    fn works_until(&self) -> UnixTime {
        // Counters stop where the job hangs, while it holds its GPUs until its end.
        match self.kind {
            crate::workload::Kind::Hung => self
                .end
                .min(self.start.unwrap_or(self.end) + self.hangs_after),
            _ => self.end,
        }
    }
}

impl NodeCurves {
    fn new(
        cluster: &Cluster,
        schedule: &Schedule,
        node: usize,
        jobs: &[(usize, usize)],
        booted: UnixTime,
    ) -> Self {
        let of = |index: usize| &schedule.jobs[index];
        let hour = |at: UnixTime| usize::try_from((at - booted).div_euclid(3600)).unwrap_or(0);
        let mut by_hour = Vec::new();
        for &(index, place) in jobs {
            // A job that waits until the end of the simulation is on no node.
            let Some(start) = of(index).start else {
                continue;
            };
            let last = hour(of(index).end);
            if by_hour.len() <= last {
                by_hour.resize_with(last + 1, Vec::new);
            }
            by_hour[hour(start)..=last]
                .iter_mut()
                .for_each(|jobs: &mut Vec<_>| jobs.push((index, place)));
        }

        let times = |job: &Job, rate: f64| (job.start.unwrap_or(job.end), job.works_until(), rate);
        let sum = |base: f64, rate: &dyn Fn(&Job) -> f64| {
            let parts = jobs
                .iter()
                .map(|&(index, _)| times(of(index), rate(of(index))));
            Curve::new(booted, base, parts)
        };

        let link = cluster.nodes[node].link_bits / 8.0;
        let model = cluster.nodes[node].model;
        let energy = (0..cluster.nodes[node].gpus.len()).map(|gpu| {
            let Some(model) = model else {
                return Curve::default();
            };
            let parts = jobs.iter().filter_map(|&(index, place)| {
                let job = of(index);
                // The position of this GPU among those that the job holds on the node.
                let position = job.placed[place]
                    .gpus
                    .iter()
                    .position(|held| *held == gpu)?;

                // The counter grows by the mean, the gauge shows the moment: both describe the same job.
                let busy = job.kind.mean_utilization(job.rank(place, position));
                Some(times(job, gpus::watts(model, busy) - model.idle_watts))
            });
            Curve::new(booted, model.idle_watts, parts)
        });
        Self {
            user_cpu: sum(0.4, &|job| f64::from(job.request.cpus) * job.kind.cpu()),
            nfs_read: sum(2e4, &|job| job.kind.read_bytes_per_second()),
            received: sum(6e4, &|job| {
                // Nodes of one job exchange gradients over the same link.
                let peers = if job.request.nodes > 1 {
                    0.12 * link
                } else {
                    0.0
                };
                job.kind.read_bytes_per_second() * 1.04 + peers
            }),
            energy: energy.collect(),
            by_hour,
        }
    }
}
