//! Input of a replay: nodes, jobs, limits and the scheduler's settings.

use std::collections::BTreeMap;
use std::sync::Arc;
use takt_accounting::fairshare::{AssociationId, AssociationTree, PriorityWeights};
use takt_jobs::{Amounts, PrioritySettings};
use takt_model::UnixTime;

/// A time in which a node starts no jobs, or only those of one reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closure {
    /// Start.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
    /// Reservation whose jobs may use the node. `None` while the node is down or drained.
    pub reservation: Option<Arc<str>>,
    /// Whether the scheduler knows of it in advance, as of a reservation.
    pub is_foreseen: bool,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SimulatedNode {
    /// Node name.
    pub name: String,
    /// CPUs, GPUs and memory.
    pub has: Amounts,
    /// GPU type, in Slurm's words. `None` if it is unknown.
    pub gpu_model: Option<Arc<str>>,
    /// Partitions that contain the node.
    pub partitions: Vec<Arc<str>>,
    /// Times in which the node starts no jobs.
    pub closed: Vec<Closure>,
}

/// A job that runs when the replay begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Start.
    pub start: UnixTime,
    /// Indexes of its nodes. Nodes that no longer exist are left out.
    pub nodes: Vec<u32>,
}

/// One run of a job; each task of an array is one.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulatedJob {
    /// Time from which only the scheduler delays the job: dependencies and begin times have passed.
    pub eligible: UnixTime,
    /// Time that it runs, in seconds. The scheduler does not know it.
    pub run_seconds: i64,
    /// Time limit in seconds, which the scheduler plans with. `None` without a limit.
    pub limit_seconds: Option<i64>,
    /// Number of nodes.
    pub nodes: u32,
    /// Amounts on each of its nodes.
    pub per_node: Amounts,
    /// GPU type that it requests.
    pub gpu_model: Option<Arc<str>>,
    /// Partition.
    pub partition: Arc<str>,
    /// Unix user.
    pub user: Arc<str>,
    /// Account.
    pub account: Arc<str>,
    /// Quality of service.
    pub qos: Option<Arc<str>>,
    /// Reservation that it was submitted to.
    pub reservation: Option<Arc<str>>,
    /// Association that is charged.
    pub association: Option<AssociationId>,
    /// Billing units per second.
    pub billing_per_second: f64,
    /// Priority that the scheduler has given it. `None`: it follows from the weights.
    pub priority: Option<u32>,
    /// Start and nodes, if it runs when the replay begins.
    pub running: Option<Running>,
}

/// Whose jobs share a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the field of a job of this name")]
pub enum LimitScope {
    User,
    Account,
    Partition,
    Qos,
}

/// A limit on what jobs hold together: `GrpTRES`, `MaxTRESPerUser`, `MaxJobs`. Jobs above it wait; they do not hold back
/// jobs below them in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// Whose jobs share it.
    pub scope: LimitScope,
    /// The user, account, partition or QOS. `None`: each has a limit of its own.
    pub name: Option<String>,
    /// Largest number of running jobs.
    pub jobs: Option<u64>,
    /// Largest number of CPUs.
    pub cpus: Option<u64>,
    /// Largest number of GPUs.
    pub gpus: Option<u64>,
}

/// Backfill, in the words of `SchedulerParameters`. The defaults are Slurm's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackfillSettings {
    /// `bf_interval`: least time between two cycles, in seconds.
    pub interval_seconds: i64,
    /// `bf_window`: how far it plans, in seconds.
    pub window_seconds: i64,
    /// `bf_resolution`: planned ends are rounded up to a multiple, in seconds.
    pub resolution_seconds: i64,
    /// `bf_max_job_test`: jobs that a cycle looks at.
    pub max_job_test: usize,
    /// Jobs for which a cycle keeps nodes free. Slurm does for all that it looks at; those far behind delay only jobs
    /// that are further behind.
    pub reserve_depth: usize,
    /// `default_queue_depth`: jobs that the main scheduler looks at.
    pub queue_depth: usize,
}

impl Default for BackfillSettings {
    fn default() -> Self {
        Self {
            interval_seconds: 30,
            window_seconds: 86_400,
            resolution_seconds: 60,
            max_job_test: 500,
            reserve_depth: 50,
            queue_depth: 100,
        }
    }
}

/// Fair share when the replay begins. The replay's own usage changes it.
#[derive(Debug, Clone)]
pub struct FairShare {
    /// Associations with their shares.
    pub tree: AssociationTree,
    /// Decay and formula.
    pub settings: PrioritySettings,
    /// Decayed usage by association, with the usage below it.
    pub raw_usage: Vec<f64>,
}

/// A cluster with its rules.
#[derive(Debug, Clone, Default)]
pub struct SimulatedCluster {
    /// Nodes.
    pub nodes: Vec<SimulatedNode>,
    /// `PriorityTier` by partition. A partition that is not listed has tier 1.
    pub tiers: BTreeMap<String, u32>,
    /// Limits.
    pub limits: Vec<Limit>,
    /// Backfill.
    pub backfill: BackfillSettings,
    /// Weights of the multifactor priority. Without any, the queue is in the order of eligibility.
    pub weights: PriorityWeights,
    /// `PriorityMaxAge`, in seconds.
    pub max_age_seconds: u32,
    /// Fair share; `None` if the shares are unknown.
    pub fair_share: Option<FairShare>,
}
