//! What one waiting job waits for, by name, and which change of its request would start it sooner.

use super::change::{ChangeFacts, RequestChange, request_changes};
use super::model::{obstacle, opens_by_itself, queue_model};
use super::shown::{FARTHEST_SECONDS, clock, forecast_state};
use super::{
    GRADED_DAYS, MOST_ENDED, MOST_GRADED, POLLED_SECONDS, QueueFacts, QueueModel, RUN_TIME_DAYS,
    WaitingJob, calibration, queue_facts, run_times,
};
use crate::period::{the_cluster, the_zone};
use crate::{AnswerConfig, AnswerError, Question};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use takt_access::{Need, Owner, Viewer};
use takt_jobs::JobRun;
use takt_model::UnixTime;
use takt_model::words::duration;
use takt_simulate::{Calibration, Forecast, SimulatedJob, StartStudy, study_start};
use takt_store::{JobFilter, Records, Store};

/// Asks what a waiting job waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BlockedQuestion {
    /// Job id: 123, 123_4 (array task), 123+0 (component).
    pub job_id: String,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
}

/// What a waiting job waits for. Other jobs that the viewer may not see are counted, not named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockedAnswer {
    /// Job id.
    pub job_id: String,
    /// Time zone of the cluster (IANA name).
    pub timezone: String,
    /// Time of the answer.
    pub at: UnixTime,
    /// Slurm's reason.
    pub reason: Option<String>,
    /// Running jobs that have to end first, the first to end first.
    pub awaited: Vec<AwaitedRun>,
    /// Running jobs that have to end first and that the viewer may not see.
    pub hidden_awaited: usize,
    /// Waiting jobs that start before it on the same nodes.
    pub ahead: Vec<String>,
    /// Such jobs that the viewer may not see.
    pub hidden_ahead: usize,
    /// Nodes that have what it asks for and start no jobs now.
    pub closed_nodes: Vec<String>,
    /// What it waits for, one sentence for each kind of obstacle.
    pub words: Vec<String>,
    /// Changes of the request that start it sooner, the cheapest first.
    pub changes: Vec<StartChange>,
    /// Replays of the queue that this is from.
    pub replays: u32,
}

/// A running job that has to end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitedRun {
    /// Job id.
    pub job_id: String,
    /// Unix user.
    pub user: String,
    /// Time at which it probably ends.
    pub end: UnixTime,
}

/// A change of the request that starts the job sooner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartChange {
    /// Kind of the change: `time`, `gpu type`, `partition`, `gpus`, `nodes`.
    pub kind: String,
    /// Option of `sbatch`.
    pub option: String,
    /// Start with the change.
    pub start: UnixTime,
    /// Time by which it starts sooner, in seconds.
    pub sooner_seconds: i64,
    /// The change with both times as a sentence.
    pub words: String,
}

/// Time for the replays of one answer.
const STUDY_TIME: Duration = Duration::from_secs(2);

/// Time by which a change has to start a job sooner to be worth its proposal, in seconds.
const LEAST_SOONER_SECONDS: i64 = 600;

/// Names in one sentence.
const MOST_NAMES: usize = 8;

/// Earlier runs of the same name, and of the user in all, that are read.
const MOST_EARLIER: usize = 200;

impl Question for BlockedQuestion {
    const PATH: &'static str = "/api/takt/v1/job/blocked";
    const NEED: Need = Need::SignedIn;
    type Answer = BlockedAnswer;
    type Data = Store;

    fn answer(
        &self,
        viewer: &Viewer,
        store: &Store,
        config: &AnswerConfig,
    ) -> Result<BlockedAnswer, AnswerError> {
        let database = store.database();
        config.kept.answer(self, viewer, database, || {
            let records = Records::of(database);
            self.study(viewer, &records, config)
        })
    }
}

impl BlockedQuestion {
    fn study(
        &self,
        viewer: &Viewer,
        records: &Records<'_>,
        config: &AnswerConfig,
    ) -> Result<BlockedAnswer, AnswerError> {
        let began = Instant::now();
        let known = the_cluster(
            records,
            self.cluster.as_deref(),
            config.accounting.home.as_deref(),
        )?;
        let zone = the_zone(&known, &config.accounting)?;
        let cluster = known.cluster;
        let now = UnixTime::from(Timestamp::now());

        let (facts, _) = queue_facts(records, &cluster, now)?;
        let is_it = |one: &&WaitingJob| {
            one.run.job_id == self.job_id
                && viewer.sees_job(Owner::new(&one.run.user, &one.run.account))
        };
        let Some((at, one)) = facts
            .waiting
            .iter()
            .enumerate()
            .filter(|(_, one)| is_it(one))
            .max_by_key(|(_, one)| one.run.submit)
        else {
            return Err(AnswerError::Input(format!(
                "no job {} waits, or it is too far behind in the queue to be replayed",
                self.job_id
            )));
        };

        let page = BlockedPage {
            viewer,
            zone: &zone,
            facts: &facts,
            run: &one.run,
        };
        let mut answer = BlockedAnswer {
            job_id: self.job_id.clone(),
            timezone: zone.iana_name().unwrap_or("UTC").to_owned(),
            at: now,
            reason: one.reason.clone(),
            ..BlockedAnswer::default()
        };
        answer.words.extend(page.limit_words(one.reason.as_deref()));

        if let Some(obstacle) = obstacle(&one.run, one.reason.as_deref(), one.priority) {
            let words = format!("when it starts cannot be replayed: {obstacle}");
            answer.words.push(words);
            return Ok(answer);
        }
        let polled = records.last_poll_of(&cluster)?;
        if polled.is_none_or(|polled| polled + POLLED_SECONDS <= now) {
            let words = "the queue is too old to be replayed: Slurm was not polled lately";
            answer.words.push(words.to_owned());
            return Ok(answer);
        }
        let mut model = queue_model(&facts);
        let Some(subject) = model.waiting[at] else {
            answer.words.push("its reservation is not known".to_owned());
            return Ok(answer);
        };
        page.tell_nodes(&model.jobs[subject].job, &mut answer);

        // What a change would bring says how long the user's other jobs ran.
        let owner = Owner::new(&one.run.user, &one.run.account);
        let state = forecast_state(records, &cluster)?;
        let mut changes = Vec::new();
        if viewer.sees_details(owner) && state.grades.refusal().is_none() {
            let change_facts = change_facts(records, &one.run, &facts, now)?;
            open_partitions(&mut model, &change_facts);
            changes = request_changes(&model.jobs[subject].job, &one.run, &change_facts);
        }

        let ended = records.ended_ratios(&cluster, now - RUN_TIME_DAYS * 86_400, MOST_ENDED)?;
        let requests: Vec<SimulatedJob> = changes.iter().map(|one| one.job.clone()).collect();
        let study = study_start(
            &model.cluster,
            &model.jobs,
            &run_times(&ended),
            now,
            subject,
            &requests,
            || began.elapsed() < STUDY_TIME,
        );
        answer.replays = study.replays;
        page.tell_jobs(&study, &model, &mut answer);

        let since = now - GRADED_DAYS * 86_400;
        let graded = records.graded_forecasts(&cluster, since, MOST_GRADED)?;
        answer.changes = page.helpful(&study, &changes, &calibration(&graded));
        Ok(answer)
    }
}

/// Reads what the user's earlier jobs say about other requests.
fn change_facts<'f>(
    records: &Records<'_>,
    run: &JobRun,
    facts: &'f QueueFacts,
    now: UnixTime,
) -> Result<ChangeFacts<'f>, AnswerError> {
    let of_user = JobFilter {
        cluster: Some(run.cluster.clone()),
        user: Some(run.user.clone()),
        from: Some(now - RUN_TIME_DAYS * 86_400),
        limit: Some(MOST_EARLIER),
        ..JobFilter::default()
    };
    let others = records.jobs(&of_user)?;
    let same_name = match run.name.clone().filter(|name| !name.is_empty()) {
        Some(name) => records.jobs(&JobFilter {
            whole_name: Some(name),
            ..of_user
        })?,
        None => Vec::new(),
    };

    // One that failed at its begin says nothing of the time that the work takes.
    let is_whole = |run: &JobRun| matches!(run.state.as_str(), "COMPLETED" | "TIMEOUT");
    let ran = |run: &JobRun| {
        let (start, end) = run.start.zip(run.end)?;
        is_whole(run).then_some(end - start)
    };
    Ok(ChangeFacts {
        ran_seconds: same_name.iter().filter_map(ran).collect(),
        partitions: others
            .into_iter()
            .filter(|other| other.start.is_some() && other.account == run.account)
            .map(|other| other.partition)
            .collect(),
        nodes: &facts.nodes,
    })
}

/// Lets jobs of these partitions use their nodes, if no job of the queue is in them yet.
fn open_partitions(model: &mut QueueModel, facts: &ChangeFacts<'_>) {
    for (simulated, node) in model.cluster.nodes.iter_mut().zip(facts.nodes) {
        for name in &facts.partitions {
            let is_known = simulated.partitions.iter().any(|one| **one == **name);
            if node.partitions.contains(name) && !is_known {
                simulated.partitions.push(name.as_str().into());
            }
        }
    }
}

/// The queue as one viewer sees it, for one of its jobs.
struct BlockedPage<'p> {
    viewer: &'p Viewer,
    zone: &'p TimeZone,
    facts: &'p QueueFacts,
    run: &'p JobRun,
}

impl BlockedPage<'_> {
    fn clock(&self, at: UnixTime) -> String {
        clock(at, self.facts.now, self.zone)
    }

    fn sees(&self, run: &JobRun) -> bool {
        self.viewer.sees_job(Owner::new(&run.user, &run.account))
    }

    /// Which limit holds the job back by Slurm's reason, and what the jobs hold that share it.
    fn limit_words(&self, reason: Option<&str>) -> Option<String> {
        let reason = reason?;
        let scope = LimitedBy::of(reason, self.run)?;
        let shared: Vec<&JobRun> = self
            .facts
            .running
            .iter()
            .filter(|run| scope.is_shared_by(run, self.run))
            .collect();
        let mut words = format!("Slurm's reason {reason} is a limit of {}", scope.words);
        // A sum over jobs that the viewer may not see would be their owners' usage.
        if shared.iter().all(|run| self.sees(run)) {
            let gpus: u64 = shared.iter().filter_map(|run| run.gpus).sum();
            let cpus: u64 = shared.iter().filter_map(|run| run.cpus).sum();
            words += &format!(
                ", whose {} running jobs hold {gpus} GPUs and {cpus} CPUs",
                shared.len()
            );
        }
        Some(words + "; the limit itself is not recorded")
    }

    /// Nodes that have what the job asks for, and why they do not start it now.
    fn tell_nodes(&self, job: &SimulatedJob, answer: &mut BlockedAnswer) {
        let mut away = Vec::new();
        for node in self
            .facts
            .nodes
            .iter()
            .filter(|node| self.has_enough(node, job))
        {
            if !opens_by_itself(&node.state, true) {
                away.push(format!("{} ({})", node.node, node.state));
            }
        }
        if !away.is_empty() {
            let words = format!("nodes that would do start no jobs: {}", listed(&away, 0));
            answer.words.push(words);
        }
        answer.closed_nodes = away;

        let limit = job.limit_seconds.unwrap_or(FARTHEST_SECONDS);
        for kept in &self.facts.reservations {
            let is_own = self.run.reservation.as_deref() == Some(&kept.name);
            if is_own || kept.from >= self.facts.now.max(job.eligible) + limit {
                continue;
            }
            let names = kept.nodes();
            let is_reserved =
                |node: &&takt_jobs::Node| names.contains(&node.node) && self.has_enough(node, job);
            let count = self.facts.nodes.iter().filter(is_reserved).count();
            if count == 0 {
                continue;
            }
            let span = format!("from {} to {}", self.clock(kept.from), self.clock(kept.to));
            let nodes = if count == 1 { "node" } else { "nodes" };
            answer.words.push(if kept.from <= self.facts.now {
                format!("{count} {nodes} that would do: reserved ({}) {span}", kept.name)
            } else {
                format!(
                    "{count} {nodes} that would do: reserved ({}) {span}, before its time limit of {} ends",
                    kept.name,
                    duration(limit as f64)
                )
            });
        }
    }

    fn has_enough(&self, node: &takt_jobs::Node, job: &SimulatedJob) -> bool {
        let mut names = self.run.partition.split(',');
        let is_in = node.partitions.is_empty()
            || names.any(|name| node.partitions.iter().any(|one| one == name));
        let is_type = match (&job.gpu_model, &node.gpu_model) {
            (Some(wanted), Some(has)) => has.split('+').any(|one| one == &**wanted),
            _ => true,
        };
        // The memory of the model may be forgotten, where Slurm does not allocate it.
        is_in
            && is_type
            && node.has.cpus >= job.per_node.cpus
            && node.has.gpus >= job.per_node.gpus
            && node.has.mem_bytes >= job.per_node.mem_bytes
    }

    /// Which jobs have to end, and which ones start before it.
    fn tell_jobs(&self, study: &StartStudy, model: &QueueModel, answer: &mut BlockedAnswer) {
        if study.replays == 0 {
            let words = format!(
                "which jobs have to end is not known: the queue could not be replayed within {} s",
                STUDY_TIME.as_secs()
            );
            answer.words.push(words);
            return;
        }
        if study.start.is_none() {
            let words =
                "no replay starts it: the nodes that it could use are too few, down or reserved";
            answer.words.push(words.to_owned());
            return;
        }

        for one in &study.awaited {
            let run = &self.facts.running[model.running[one.job]];
            if self.sees(run) {
                answer.awaited.push(AwaitedRun {
                    job_id: run.job_id.clone(),
                    user: run.user.clone(),
                    end: one.end,
                });
            } else {
                answer.hidden_awaited += 1;
            }
        }
        let count = study.awaited.len();
        if count > 0 {
            let named: Vec<String> = answer
                .awaited
                .iter()
                .map(|one| {
                    format!(
                        "{} of {} (about {})",
                        one.job_id,
                        one.user,
                        self.clock(one.end)
                    )
                })
                .collect();
            let verb = if count == 1 { "job has" } else { "jobs have" };
            let names = listed(&named, answer.hidden_awaited);
            answer
                .words
                .push(format!("{count} running {verb} to end first: {names}"));
        }

        let facts_of = |job: usize| model.waiting.iter().position(|at| *at == Some(job));
        for job in &study.ahead {
            match facts_of(*job).map(|at| &self.facts.waiting[at].run) {
                Some(run) if self.sees(run) => answer.ahead.push(run.job_id.clone()),
                _ => answer.hidden_ahead += 1,
            }
        }
        let count = study.ahead.len();
        if count > 0 {
            let verb = if count == 1 {
                "job starts"
            } else {
                "jobs start"
            };
            let names = listed(&answer.ahead, answer.hidden_ahead);
            answer.words.push(format!(
                "{count} waiting {verb} before it on these nodes: {names}"
            ));
        }
    }

    /// The changes that help: of each kind the smallest among those that help most.
    fn helpful(
        &self,
        study: &StartStudy,
        changes: &[RequestChange],
        calibration: &Calibration,
    ) -> Vec<StartChange> {
        let corrected = |at: UnixTime| {
            let one = Forecast {
                p10: at,
                p50: at,
                p90: at,
            };
            calibration.apply(one, self.facts.now).p50
        };
        let farthest = self.facts.now + FARTHEST_SECONDS;
        let told = study.start.map(corrected).filter(|at| *at < farthest);

        let mut found: Vec<StartChange> = Vec::new();
        for (change, start) in changes.iter().zip(&study.changed) {
            let Some(start) = start.map(corrected).filter(|at| *at < farthest) else {
                continue;
            };
            let sooner_seconds = told.unwrap_or(farthest) - start;
            let better = found.iter().position(|one| one.kind == change.kind);
            let least = better.map_or(0, |at| found[at].sooner_seconds);
            // A larger change is worth it only if it brings as much more again.
            if sooner_seconds < least + LEAST_SOONER_SECONDS {
                continue;
            }
            let instead = match told {
                Some(at) => format!("{} instead of {}", self.clock(start), self.clock(at)),
                None => format!("{}; as it is, no replay starts it", self.clock(start)),
            };
            let new = StartChange {
                kind: change.kind.to_owned(),
                option: change.option.clone(),
                start,
                sooner_seconds,
                words: format!("{} ({}): {instead}", change.words, change.option),
            };
            match better {
                Some(at) => found[at] = new,
                None => found.push(new),
            }
        }
        found
    }
}

/// Names with the number of those that are not shown.
fn listed(names: &[String], hidden: usize) -> String {
    let shown = names.len().min(MOST_NAMES);
    let mut parts: Vec<String> = names[..shown].to_vec();
    if names.len() > shown {
        parts.push(format!("{} more", names.len() - shown));
    }
    if hidden > 0 {
        parts.push(format!("{hidden} of other users"));
    }
    parts.join(", ")
}

/// Whose jobs share the limit that Slurm's reason names.
struct LimitedBy {
    words: String,
    is_of_qos: bool,
    of_user: bool,
    of_account: bool,
}

impl LimitedBy {
    fn of(reason: &str, run: &JobRun) -> Option<Self> {
        // Limits for each account are a QOS's (MaxJobsPerAccount and the like), whatever their names begin with.
        let is_of_qos =
            reason.starts_with("QOS") || reason.starts_with("Max") && reason.contains("PerAccount");
        // A limit for each job or node is met by this job alone.
        let is_own = reason.contains("PerJob") || reason.contains("PerNode");
        if is_own || !is_of_qos && !reason.starts_with("Assoc") {
            return None;
        }
        let of_user = reason.contains("PerUser");
        // A limit of an association is that of its account, or of the user in it.
        let of_account = !is_of_qos || reason.contains("PerAccount");
        let qos = run.qos.as_ref();
        let qos = qos.map_or_else(|| "its QOS".to_owned(), |qos| format!("QOS {qos}"));
        let words = match (is_of_qos, of_user, of_account) {
            (true, true, _) => format!("{qos} for user {}", run.user),
            (true, false, true) => format!("{qos} for account {}", run.account),
            (true, false, false) => qos,
            (false, ..) => format!("account {} or its user {}", run.account, run.user),
        };
        Some(Self {
            words,
            is_of_qos,
            of_user,
            of_account,
        })
    }

    fn is_shared_by(&self, other: &JobRun, run: &JobRun) -> bool {
        (!self.is_of_qos || other.qos == run.qos)
            && (!self.of_user || other.user == run.user)
            && (!self.of_account || other.account == run.account)
    }
}
