//! The queue: waiting jobs with their reasons, free resources, running jobs, reservations.

use super::forecast::{ForecastBook, ForecastState};
use super::listed_run::{ListedRun, listed_run, requested};
use super::near::did_you_mean;
use super::period::{the_cluster, the_zone};
use super::visible::{hide_details, shown_owner};
use super::{AnswerConfig, AnswerError, Question};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use takt_access::{Need, Owner, Viewer};
use takt_accounting::queue::{FreeNode, FreeNow, free_nodes, free_now};
use takt_jobs::{JobRun, NodeState, Reservation};
use takt_model::UnixTime;
use takt_store::{
    CONFIGURED, Database, JobFilter, JobOrder, JobSort, ListedJob, Records, StoreError,
};

/// Asks for the queue of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueQuestion {
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
    /// Only waiting jobs of this partition.
    pub partition: Option<String>,
    /// Only waiting jobs of this user.
    pub user: Option<String>,
    /// Maximum number of waiting jobs, and of running jobs, in the answer. Totals include all.
    pub limit: usize,
}

impl Default for QueueQuestion {
    fn default() -> Self {
        Self {
            cluster: None,
            partition: None,
            user: None,
            limit: 500,
        }
    }
}

/// The queue of a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueAnswer {
    /// Cluster.
    pub cluster: String,
    /// Time zone of the cluster (IANA name).
    pub timezone: String,
    /// Time of the answer.
    pub at: UnixTime,
    /// Number of waiting jobs.
    pub pending_runs: usize,
    /// GPUs that the waiting jobs request.
    pub pending_gpus: u64,
    /// Waiting jobs by reason, most jobs first.
    pub reasons: Vec<ReasonCount>,
    /// Waiting jobs in the order of their expected start, then of their submission.
    pub pending: Vec<QueuedRun>,
    /// Number of running jobs.
    pub running_runs: usize,
    /// Running jobs, the next to end first.
    pub running: Vec<RunningRun>,
    /// Largest requests that fit now.
    pub free: FreeNow,
    /// Free resources by node.
    pub nodes: Vec<FreeNode>,
    /// Reservations that have not ended.
    pub reservations: Vec<Reservation>,
    /// Forecasts of starts: their grades, and what they do not know.
    #[serde(default)]
    pub forecasts: ForecastState,
}

/// Waiting jobs with one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonCount {
    /// Slurm's reason; `None` if it is not known yet.
    pub reason: Option<String>,
    /// Number of jobs.
    pub runs: usize,
    /// GPUs that the jobs request.
    pub gpus: u64,
}

/// A waiting job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueuedRun {
    /// Place among all waiting jobs, from 1.
    pub place: usize,
    /// Job with its reason.
    #[serde(flatten)]
    pub listed: ListedRun,
    /// Time since the submission, in seconds.
    pub waited_seconds: u64,
    /// Requested GPUs.
    pub wants_gpus: u64,
    /// Requested CPUs.
    pub wants_cpus: u64,
    /// Requested memory, in bytes.
    pub wants_mem_bytes: u64,
}

/// A running job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningRun {
    /// The run.
    #[serde(flatten)]
    pub run: JobRun,
    /// Time at which it reaches its time limit. `None` without a limit.
    pub ends_by: Option<UnixTime>,
}

/// States of jobs that wait.
const PENDING: &[&str] = &[
    "PENDING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "REQUEUE_FED",
    "EXPEDITING",
];

/// States of jobs that hold resources.
const RUNNING: &[&str] = &["RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING"];

impl Question for QueueQuestion {
    const PATH: &'static str = "/api/takt/v1/queue";
    const NEED: Need = Need::SignedIn;
    type Answer = QueueAnswer;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<QueueAnswer, AnswerError> {
        let records = Records::of(database);
        let known = the_cluster(
            &records,
            self.cluster.as_deref(),
            config.accounting.home.as_deref(),
        )?;
        let zone = the_zone(&known, &config.accounting)?;
        let cluster = known.cluster.clone();
        let now = UnixTime::from(Timestamp::now());

        let rules = &config.accounting.efficiency;
        let mut waiting: Vec<ListedRun> = waiting_rows(&records, &cluster, now)?
            .into_iter()
            .map(|row| listed_run(row, rules, viewer))
            .collect();
        let forecasts = ForecastBook::read(&records, &known, None, config, now)?;
        forecasts.add_to(&mut waiting);
        let pending = queued(waiting, now);

        let running = running_runs(&records, &cluster, now)?;
        if let Some(name) = &self.partition {
            let waiting = pending.iter().map(|one| &one.listed.run);
            let seen = |run: &&JobRun| viewer.sees_job(Owner::new(&run.user, &run.account));
            let runs = waiting.chain(&running).filter(seen);
            check_partition(&records, &cluster, runs, name)?;
        }
        let states: HashMap<String, String> = records
            .node_states(&cluster)?
            .into_iter()
            .map(|(node, state, _)| (node, state))
            .collect();
        let nodes = records.node_capacities(&cluster)?.into_iter().map(|node| {
            let state = states.get(&node.node).cloned().unwrap_or_default();
            let is_usable = NodeState::parse(&state).starts_jobs();
            (node, state, is_usable)
        });
        let nodes = free_nodes(nodes, &running);
        let mut answer = QueueAnswer {
            timezone: zone.iana_name().unwrap_or("UTC").to_owned(),
            at: now,
            pending_runs: pending.len(),
            pending_gpus: pending.iter().map(|one| one.wants_gpus).sum(),
            reasons: reasons(&pending),
            pending,
            running_runs: running.len(),
            running: ending(running),
            free: free_now(&nodes),
            nodes,
            reservations: shown_reservations(viewer, records.reservations(&cluster, now)?),
            forecasts: forecasts.into_state(),
            cluster,
        };
        let is_seen = |run: &JobRun| viewer.sees_job(Owner::new(&run.user, &run.account));
        answer
            .pending
            .retain(|one| is_seen(&one.listed.run) && self.is_asked(&one.listed.run));
        answer.running.retain(|one| is_seen(&one.run));
        answer
            .running
            .iter_mut()
            .for_each(|one| hide_details(viewer, &mut one.run));
        answer.pending.truncate(self.limit);
        answer.running.truncate(self.limit);
        Ok(answer)
    }
}

/// The jobs of a cluster that wait, with their reasons.
pub(super) fn waiting_rows(
    records: &Records<'_>,
    cluster: &str,
    now: UnixTime,
) -> Result<Vec<ListedJob>, StoreError> {
    let mut rows = in_states(records, cluster, PENDING, now)?;
    // An ended run keeps the state REQUEUED.
    rows.retain(|row| row.run.start.is_none() && row.run.end.is_none());
    Ok(rows)
}

/// The jobs of a cluster that hold resources.
pub(super) fn running_runs(
    records: &Records<'_>,
    cluster: &str,
    now: UnixTime,
) -> Result<Vec<JobRun>, StoreError> {
    let rows = in_states(records, cluster, RUNNING, now)?;
    let runs = rows.into_iter().map(|row| row.run);
    Ok(runs
        .filter(|run| run.start.is_some() && run.end.is_none())
        .collect())
}

/// The runs of a cluster in any of these states, the first submitted first.
fn in_states(
    records: &Records<'_>,
    cluster: &str,
    states: &[&str],
    now: UnixTime,
) -> Result<Vec<ListedJob>, StoreError> {
    let filter = JobFilter {
        cluster: Some(cluster.to_owned()),
        states: states.iter().map(|state| (*state).to_owned()).collect(),
        ..JobFilter::default()
    };
    let order = JobOrder {
        by: JobSort::Submit,
        is_descending: false,
        now,
    };
    records.listed(&filter, order, None)
}

/// Fails if no node, no setting and none of the runs has this partition. Nothing is refused of a cluster whose
/// partitions are not known.
fn check_partition<'r>(
    records: &Records<'_>,
    cluster: &str,
    runs: impl Iterator<Item = &'r JobRun>,
    partition: &str,
) -> Result<(), AnswerError> {
    let nodes = records.nodes_now(cluster)?.into_iter();
    let mut known: BTreeSet<String> = nodes.flat_map(|node| node.partitions).collect();
    if let Some(shares) = records.share_settings(cluster, CONFIGURED)? {
        known.extend(shares.settings.partitions.into_keys());
    }
    if known.is_empty() {
        return Ok(());
    }

    // A partition may have been removed while jobs wait in it.
    let of_runs = runs.flat_map(|run| run.partition.split(','));
    known.extend(of_runs.map(str::to_owned));
    if known.contains(partition) {
        return Ok(());
    }
    let near = did_you_mean(partition, known.iter().map(String::as_str));
    let error = format!("the cluster {cluster} has no partition {partition}{near}");
    Err(AnswerError::Input(error))
}

/// The reservations with the owners that the viewer sees.
fn shown_reservations(viewer: &Viewer, mut kept: Vec<Reservation>) -> Vec<Reservation> {
    for reservation in &mut kept {
        reservation.owners = mem::take(&mut reservation.owners)
            .into_iter()
            .map(|owner| shown_owner(viewer, owner))
            .collect();
    }
    kept
}

impl QueueQuestion {
    fn is_asked(&self, run: &JobRun) -> bool {
        // A waiting job may name several partitions.
        let in_partition = |name: &str| run.partition.split(',').any(|one| one == name);
        self.partition.as_deref().is_none_or(in_partition)
            && self.user.as_deref().is_none_or(|user| user == run.user)
    }
}

/// The waiting jobs with their places.
fn queued(mut listed: Vec<ListedRun>, now: UnixTime) -> Vec<QueuedRun> {
    let expected = |one: &ListedRun| one.waiting.as_ref().and_then(|why| why.expected_start);
    listed.sort_by_key(|one| (expected(one).unwrap_or(UnixTime::MAX), one.run.submit));
    listed
        .into_iter()
        .enumerate()
        .map(|(at, listed)| {
            let wants = requested(&listed.run);
            QueuedRun {
                place: at + 1,
                waited_seconds: now.since(listed.run.submit),
                wants_gpus: wants.gpus.unwrap_or(0),
                wants_cpus: wants.cpus.unwrap_or(0),
                wants_mem_bytes: wants.mem_bytes.unwrap_or(0),
                listed,
            }
        })
        .collect()
}

fn reasons(pending: &[QueuedRun]) -> Vec<ReasonCount> {
    let mut counts: BTreeMap<Option<&str>, (usize, u64)> = BTreeMap::new();
    for one in pending {
        let reason = one.listed.waiting.as_ref().map(|why| why.reason.as_str());
        let (runs, gpus) = counts.entry(reason).or_default();
        *runs += 1;
        *gpus += one.wants_gpus;
    }
    let mut reasons: Vec<ReasonCount> = counts
        .into_iter()
        .map(|(reason, (runs, gpus))| ReasonCount {
            reason: reason.map(str::to_owned),
            runs,
            gpus,
        })
        .collect();
    reasons.sort_by_key(|count| Reverse(count.runs));
    reasons
}

/// The running jobs, the next to end first.
fn ending(running: Vec<JobRun>) -> Vec<RunningRun> {
    let ends_by = |run: &JobRun| {
        let limit = run.timelimit.filter(|limit| *limit > 0)?;
        Some(run.start? + i64::try_from(limit).ok()?)
    };
    let mut running: Vec<RunningRun> = running
        .into_iter()
        .map(|run| RunningRun {
            ends_by: ends_by(&run),
            run,
        })
        .collect();
    running.sort_by_key(|one| one.ends_by.unwrap_or(UnixTime::MAX));
    running
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::import;
    use takt_jobs::{Amounts, Node};
    use takt_store::{DataDir, OpenRun, Settings, WaitingRun};
    use tempfile::tempdir;

    #[test]
    fn the_queue_has_places_reasons_and_what_is_free() {
        let root = tempdir().unwrap();
        let database =
            Database::open(&DataDir::claim(root.path()).unwrap(), &Settings::default()).unwrap();
        let records = Records::of(&database);
        let now = UnixTime::from(Timestamp::now());
        let pending = |job_id: &str, ago: i64, gpus: u64| JobRun {
            cluster: "lab".into(),
            job_id: job_id.into(),
            submit: now - ago,
            state: "PENDING".into(),
            user: "ann".into(),
            partition: "gpu,short".into(),
            req_tres: Some(format!("cpu=4,mem=8G,node=1,gres/gpu={gpus}")),
            ..JobRun::default()
        };
        let running = JobRun {
            state: "RUNNING".into(),
            start: Some(now - 600),
            timelimit: Some(3600),
            node_list: Some("g1".into()),
            cpus: Some(4),
            gpus: Some(1),
            nodes: Some(1),
            ..pending("4", 700, 0)
        };
        let runs = [
            pending("1", 300, 4),
            pending("2", 200, 1),
            // Requeued at once after a failure, since 25.11.
            JobRun {
                state: "EXPEDITING".into(),
                ..pending("3", 100, 0)
            },
            running,
        ];
        import(&database, Some("UTC"), runs);
        let waiting = |job_id: &str, ago: i64, expected| WaitingRun {
            run: OpenRun {
                job_id: job_id.into(),
                submit: now - ago,
            },
            reason: "Priority".into(),
            expected_start: expected,
            priority: None,
            demands: Vec::new(),
        };
        let waiting = [waiting("1", 300, None), waiting("2", 200, Some(now + 60))];
        records.note_waiting("lab", &waiting, now).unwrap();
        let node = |node: &str, state: &str| Node {
            node: node.into(),
            state: state.into(),
            has: Amounts {
                cpus: 8,
                gpus: 2,
                mem_bytes: 64 << 30,
            },
            partitions: vec!["gpu".into(), "long".into()],
            ..Node::default()
        };
        let nodes = [
            node("g1", "MIXED"),
            node("g2", "IDLE+DRAIN"),
            node("g3", "IDLE+PLANNED"),
            node("g4", "MIXED+RESERVED"),
            node("g5", "IDLE+MAINTENANCE"),
        ];
        records.note_nodes("lab", &nodes, now, false).unwrap();

        let ask = |question: QueueQuestion| {
            question
                .answer(&Viewer::server(), &database, &AnswerConfig::default())
                .unwrap()
        };
        let answer = ask(QueueQuestion::default());
        let places: Vec<_> = answer
            .pending
            .iter()
            .map(|one| (one.place, one.listed.run.job_id.as_str(), one.wants_gpus))
            .collect();
        assert_eq!(places, [(1, "2", 1), (2, "1", 4), (3, "3", 0)]);
        assert_eq!(answer.pending_runs, 3);
        assert_eq!(answer.pending_gpus, 5);
        let reasons: Vec<_> = answer
            .reasons
            .iter()
            .map(|count| (count.reason.as_deref(), count.runs))
            .collect();
        assert_eq!(reasons, [(Some("Priority"), 2), (None, 1)]);
        assert_eq!(answer.running[0].ends_by, Some(now + 3000));
        assert_eq!(answer.free.gpus, 1);
        assert_eq!(answer.free.gpus_on_one_node, 1);
        assert_eq!(answer.free.cpus, 4, "the other nodes start nothing");
        let short = ask(QueueQuestion {
            partition: Some("short".into()),
            limit: 1,
            ..QueueQuestion::default()
        });
        assert_eq!(short.pending.len(), 1);
        assert_eq!(short.pending_runs, 3);
        let none = ask(QueueQuestion {
            user: Some("bob".into()),
            ..QueueQuestion::default()
        });
        assert!(none.pending.is_empty());

        // Of a node, and of a waiting job only.
        let of = |partition: &str| {
            let question = QueueQuestion {
                partition: Some(partition.into()),
                ..QueueQuestion::default()
            };
            question
                .answer(&Viewer::server(), &database, &AnswerConfig::default())
                .map(|answer| answer.pending.len())
                .map_err(|error| error.to_string())
        };
        assert_eq!(of("long"), Ok(0));
        assert_eq!(of("short"), Ok(3));
        let unknown = "the cluster lab has no partition gpuu; did you mean gpu?";
        assert_eq!(of("gpuu"), Err(unknown.to_owned()));
    }
}
