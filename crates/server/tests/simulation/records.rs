//! Job records: the real poller and the real store beside a simulated Slurm whose database may be
//! away for hours, records late or corrected, and clocks wrong.

use crate::random::Random;
use crate::seeds::{self, Broken, Size, Trace, ensure};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex};
use takt_collector::schedulers::poll::Poller;
use takt_collector::schedulers::{JobsConfig, PollError, Scheduler, SchedulerAnswer};
use takt_jobs::{Entry, JobRun, Node, Reservation, ShareSettings};
use takt_model::UnixTime;
use takt_slurm::openapi::LiveJob;
use takt_store::{DataDir, Database, ImportSummary, JobFilter, Records, Settings};
use tempfile::{TempDir, tempdir};
use tokio::runtime::{Builder, Runtime};

const COMPLETE: &str = "after the last poll, the stored runs are the scheduler's";
const IDEMPOTENT: &str = "importing the same records again changes nothing";
const NO_STRANGERS: &str = "no run is stored that the scheduler never had";
const ENDED: &str = "a run that has ended does not run again";

/// 2026-10-24T22:00:00Z
const BEGIN: UnixTime = UnixTime(1_792_879_200);

/// Seconds for which a poll reads records again.
const LOOK_BACK: i64 = 3_600;

/// Polls between two comparisons with the scheduler's records.
const POLLS: usize = 60;

#[test]
fn records_follow_the_scheduler() {
    let size = Size {
        seeds: 2,
        steps: 800,
    };
    seeds::run(
        "records_follow_the_scheduler",
        size,
        |seed, steps, trace| {
            let mut cluster = Cluster::new(seed);
            // Disturbed polls, then a comparison in quiet.
            while trace.steps < steps {
                for _ in 0..POLLS {
                    cluster.live(trace);
                    cluster.poll(trace)?;
                }
                cluster.compare(trace)?;
            }
            Ok(())
        },
    );
}

/// What identifies a run: the job's number and the time of its submission.
type Identity = (String, UnixTime);

fn identity(run: &JobRun) -> Identity {
    (run.job_id.clone(), run.submit)
}

/// Slurm: the queue of slurmctld, and the records of slurmdbd.
#[derive(Debug, Default)]
struct Slurm {
    now: UnixTime,
    /// Jobs that wait or run.
    queue: Vec<JobRun>,
    /// Records on their way to slurmdbd, the oldest first, with the time of their arrival.
    delayed: Vec<(UnixTime, JobRun)>,
    /// Runs whose account `sacctmgr modify job` changes, and when.
    corrections: Vec<(UnixTime, Identity)>,
    database: BTreeMap<Identity, JobRun>,
    next_job: u64,
    has_controller: bool,
    has_database: bool,
    /// Requests to slurmdbd that succeed before one fails.
    fails_after: Option<usize>,
}

impl Slurm {
    /// Sends the state of a run to slurmdbd.
    fn record(&mut self, run: &JobRun, delay: i64) {
        self.delayed.push((self.now + delay, run.clone()));
    }

    /// slurmdbd takes the records that have come; while it is away, they wait.
    fn deliver(&mut self) {
        if !self.has_database {
            return;
        }
        let now = self.now;
        // Records arrive in the order of their delay, not of their making.
        self.delayed.sort_by_key(|(at, _)| *at);
        let come = self.delayed.iter().take_while(|(at, _)| *at <= now).count();
        for (_, run) in self.delayed.drain(..come) {
            self.database.insert(identity(&run), run);
        }
        self.correct();
    }

    /// Makes the corrections whose time has come. sacctmgr talks to slurmdbd itself, so none waits
    /// while that is away; later than the look-back, nobody makes one.
    fn correct(&mut self) {
        let now = self.now;

        let (come, waiting): (Vec<_>, Vec<_>) = mem::take(&mut self.corrections)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.corrections = waiting;
        for (_, identity) in come {
            let Some(run) = self.database.get_mut(&identity) else {
                continue;
            };
            if run
                .end
                .is_some_and(|end| now.since(end) < LOOK_BACK.unsigned_abs())
            {
                run.account = "chemistry".to_owned();
            }
        }
    }

    fn submit(&mut self, random: &mut Random) {
        // The numbers of jobs begin again after some thousand.
        let number = self.next_job % 40 + 1;
        self.next_job += 1;
        let run = JobRun {
            cluster: "lab".to_owned(),
            job_id: number.to_string(),
            submit: self.now,
            eligible: Some(self.now),
            state: "PENDING".to_owned(),
            user: format!("user{}", random.below(5)),
            account: "physics".to_owned(),
            partition: "gpu".to_owned(),
            gpus: Some(random.below(8) as u64),
            ..JobRun::default()
        };
        // A number that still runs or was just used is skipped.
        let is_known = |other: &JobRun| other.job_id == run.job_id;
        if self.queue.iter().any(is_known) || self.database.contains_key(&identity(&run)) {
            return;
        }

        self.record(&run, 1);
        self.queue.push(run);
    }

    /// A waiting job starts or is cancelled; a running one ends or is requeued.
    fn advance(&mut self, random: &mut Random) {
        if self.queue.is_empty() {
            return;
        }

        let place = random.below(self.queue.len());
        let mut run = self.queue.remove(place);
        let is_waiting = run.start.is_none();
        // Four of five waiting jobs start. The fifth is cancelled in the queue.
        if is_waiting && !random.once_in(5) {
            run.start = Some(self.now);
            run.state = "RUNNING".to_owned();
            self.record(&run, 1);
            self.queue.push(run);
            return;
        }

        run.end = Some(self.now);
        if is_waiting {
            // A cancelled job has a start in Slurm's records, the time of its end.
            run.start = Some(self.now);
            run.state = "CANCELLED".to_owned();
        } else {
            let states = ["COMPLETED", "FAILED", "REQUEUED", "NODE_FAIL"];
            run.state = random.pick(&states).to_owned();
            run.elapsed = run.start.map(|start| self.now.since(start));
        }

        self.record(&run, 1);
        // A requeued job has the same number and another submission.
        if run.state == "REQUEUED" {
            let again = JobRun {
                submit: self.now + 1,
                eligible: Some(self.now + 1),
                start: None,
                end: None,
                elapsed: None,
                state: "PENDING".to_owned(),
                ..run.clone()
            };
            self.record(&again, 2);
            self.queue.push(again);
        } else if random.once_in(6) {
            // Some runs are corrected later, within the look-back.
            let at = self.now + random.between(60, LOOK_BACK - 600);
            self.corrections.push((at, identity(&run)));
        }
    }
}

/// The simulated Slurm as the poller sees it.
#[derive(Debug)]
struct Scheduling(Arc<Mutex<Slurm>>);

impl Scheduling {
    fn ask_database(&self, wanted: impl Fn(&JobRun) -> bool) -> Result<SchedulerAnswer, PollError> {
        let mut slurm = self.0.lock().unwrap();
        let fails = slurm.fails_after == Some(0);
        // A request may fail after another one of the same poll has succeeded.
        slurm.fails_after = slurm.fails_after.map(|left| left.saturating_sub(1));
        if !slurm.has_database || fails {
            return Err(PollError::DatabaseDown("Connection refused".to_owned()));
        }

        let runs = slurm.database.values().filter(|run| wanted(run));
        let entries = runs.map(|run| LiveJob {
            entry: Entry::Run(run.clone()),
            gpus: Vec::new(),
            reason: None,
            expected_start: None,
            priority: None,
            demands: Vec::new(),
            is_cut: false,
        });
        Ok(SchedulerAnswer::Live(entries.collect()))
    }
}

#[async_trait]
impl Scheduler for Scheduling {
    fn name(&self) -> &'static str {
        "sacct"
    }

    fn window_seconds(&self) -> i64 {
        7 * 86_400
    }

    fn records_lack_reservations(&self) -> bool {
        false
    }

    async fn cluster(&mut self) -> Result<String, PollError> {
        Ok("lab".to_owned())
    }

    async fn time(&mut self) -> Option<UnixTime> {
        let slurm = self.0.lock().unwrap();
        slurm.has_controller.then_some(slurm.now)
    }

    async fn nodes(&mut self) -> Result<Vec<Node>, PollError> {
        Err(PollError::ControllerDown("not simulated".to_owned()))
    }

    async fn reservations(&mut self) -> Result<Vec<Reservation>, PollError> {
        Err(PollError::ControllerDown("not simulated".to_owned()))
    }

    async fn shares(&mut self, _: &str) -> Result<ShareSettings, PollError> {
        Err(PollError::DatabaseDown("not simulated".to_owned()))
    }

    async fn live_jobs(&mut self, _: &str) -> Result<Vec<LiveJob>, PollError> {
        let slurm = self.0.lock().unwrap();

        if !slurm.has_controller {
            return Err(PollError::ControllerDown("Connection refused".to_owned()));
        }

        let jobs = slurm.queue.iter().map(|run| LiveJob {
            entry: Entry::Run(run.clone()),
            gpus: Vec::new(),
            reason: run.start.is_none().then(|| "Priority".to_owned()),
            expected_start: None,
            priority: None,
            demands: Vec::new(),
            is_cut: false,
        });
        Ok(jobs.collect())
    }

    /// As `sacct -S FROM -E TO`: runs that were in the queue or ran within the time.
    async fn jobs_in(
        &mut self,
        from: UnixTime,
        to: Option<UnixTime>,
    ) -> Result<SchedulerAnswer, PollError> {
        self.ask_database(|run| {
            run.end.is_none_or(|end| end >= from) && to.is_none_or(|to| run.submit <= to)
        })
    }

    async fn jobs_by_id(&mut self, ids: &[&str]) -> Result<SchedulerAnswer, PollError> {
        self.ask_database(|run| ids.contains(&run.job_id.as_str()))
    }
}

/// Slurm, and the Takt that follows it.
struct Cluster {
    random: Random,
    slurm: Arc<Mutex<Slurm>>,
    poller: Option<Poller>,
    opened: Option<(Arc<Database>, DataDir)>,
    folder: TempDir,
    runtime: Runtime,
    /// Seconds by which Takt's clock is ahead.
    ahead: i64,
    /// Whether Takt polls.
    is_up: bool,
}

fn open(folder: &TempDir) -> (Arc<Database>, DataDir) {
    let dir = DataDir::claim(&folder.path().join("data")).unwrap();
    let database = Database::open(&dir, &Settings::default()).unwrap();
    (Arc::new(database), dir)
}

impl Cluster {
    fn new(seed: u64) -> Self {
        let folder = tempdir().unwrap();
        let opened = Some(open(&folder));
        let mut cluster = Self {
            random: Random::new(seed),
            slurm: Arc::new(Mutex::new(Slurm {
                now: BEGIN,
                has_controller: true,
                has_database: true,
                ..Slurm::default()
            })),
            poller: None,
            opened,
            folder,
            runtime: Builder::new_current_thread().enable_all().build().unwrap(),
            ahead: 0,
            is_up: true,
        };
        cluster.start();
        cluster
    }

    fn database(&self) -> &Arc<Database> {
        let (database, _) = self.opened.as_ref().unwrap();
        database
    }

    fn start(&mut self) {
        let config = JobsConfig {
            look_back_seconds: LOOK_BACK.unsigned_abs(),
            ..JobsConfig::default()
        };
        let database = Arc::clone(self.database());
        let poller = Poller::new(config, database, None, "Europe/Oslo".to_owned());
        let scheduler = Scheduling(Arc::clone(&self.slurm));
        self.poller = Some(poller.with_scheduler(Box::new(scheduler)));
    }

    /// Some minutes pass, jobs come and go, and sometimes something fails.
    fn live(&mut self, trace: &mut Trace) {
        let mut slurm = self.slurm.lock().unwrap();
        let random = &mut self.random;
        // Several events in one interval between two polls.
        for _ in 0..random.below(8) {
            trace.steps += 1;
            slurm.now += random.between(5, 120);
            if random.once_in(2) {
                slurm.submit(random);
            } else {
                slurm.advance(random);
            }
            slurm.deliver();
        }

        let what = match random.below(40) {
            0 | 1 => {
                slurm.has_database = !slurm.has_database;
                "slurmdbd goes or comes back"
            }
            2 => {
                slurm.has_controller = !slurm.has_controller;
                "slurmctld goes or comes back"
            }
            3 => {
                slurm.fails_after = Some(random.below(2));
                "slurmdbd fails once it was asked"
            }
            4 => {
                self.is_up = !self.is_up;
                "Takt stops or starts"
            }
            5 => {
                slurm.now += random.between(600, 14_400);
                slurm.deliver();
                "hours pass"
            }
            6 => {
                self.ahead = random.between(-7_200, 7_200);
                "Takt's clock jumps"
            }
            // From time to time all works, so that the next failure is not covered by another one.
            7 => {
                self.ahead = 0;
                slurm.fails_after = None;
                slurm.has_database = true;
                slurm.has_controller = true;
                "all is well"
            }
            _ => return,
        };
        let at = slurm.now;
        trace.note(|| format!("{at}: {what}"));
    }

    fn poll(&mut self, trace: &mut Trace) -> Result<(), Broken> {
        if !self.is_up {
            return Ok(());
        }
        // The files are all that a new process has.
        if self.random.once_in(40) {
            self.restart();
            trace.note(|| "Takt starts again".to_owned());
        }

        let before = self.stored();
        let polled = self.poll_once();
        trace.note(|| match &polled {
            Ok(summary) => format!(
                "polled: {} new, {} changed",
                summary.runs_inserted, summary.runs_updated
            ),
            Err(error) => format!("polled: {error}"),
        });

        let after = self.stored();
        let slurm = self.slurm.lock().unwrap();
        // A run may be stored before slurmdbd has it, as it came from the queue.
        for (identity, run) in &after {
            let is_known = slurm.database.contains_key(identity)
                || slurm
                    .delayed
                    .iter()
                    .any(|(_, run)| self::identity(run) == *identity);
            ensure(is_known, NO_STRANGERS, || format!("{run:?}"))?;
        }
        // Whatever a poll reads later, an end stays an end.
        for (identity, run) in before.iter().filter(|(_, run)| run.end.is_some()) {
            let is_over = after.get(identity).is_some_and(|now| now.end == run.end);
            ensure(is_over, ENDED, || format!("{run:?}"))?;
        }
        Ok(())
    }

    fn poll_once(&mut self) -> Result<ImportSummary, PollError> {
        let now = self.slurm.lock().unwrap().now + self.ahead;
        let poller = self.poller.as_mut().unwrap();
        self.runtime.block_on(poller.poll(now))
    }

    /// Takt ends and starts again over its files.
    fn restart(&mut self) {
        self.poller = None;
        self.opened = None;
        self.opened = Some(open(&self.folder));
        self.start();
    }

    fn stored(&self) -> BTreeMap<Identity, JobRun> {
        let runs = Records::of(self.database())
            .jobs(&JobFilter::default())
            .unwrap();
        runs.into_iter().map(|run| (identity(&run), run)).collect()
    }

    /// All is well for longer than a look-back: the stored runs are the scheduler's.
    fn compare(&mut self, trace: &mut Trace) -> Result<(), Broken> {
        // All services work, and Takt's clock is right.
        {
            let mut slurm = self.slurm.lock().unwrap();
            slurm.fails_after = None;
            slurm.has_database = true;
            slurm.has_controller = true;
        }
        self.ahead = 0;
        self.is_up = true;
        // Two hours in steps, which is longer than the look-back.
        for _ in 0..12 {
            let mut slurm = self.slurm.lock().unwrap();
            slurm.now += 600;
            slurm.deliver();
            drop(slurm);
            self.poll(trace)?;
        }

        // A poll of the same records must find nothing to change.
        let again = self.poll_once().map_err(|error| Broken {
            promise: COMPLETE,
            detail: error.to_string(),
        })?;
        let changes = again.runs_inserted + again.runs_updated;
        ensure(changes == 0, IDEMPOTENT, || format!("{again:?}"))?;

        let stored = self.stored();
        let slurm = self.slurm.lock().unwrap();

        for (identity, run) in &slurm.database {
            let found = stored.get(identity);
            ensure(found == Some(run), COMPLETE, || {
                format!("{run:?} is stored as {found:?}")
            })?;
        }

        let surplus = stored.keys().find(|key| !slurm.database.contains_key(*key));
        ensure(surplus.is_none(), NO_STRANGERS, || format!("{surplus:?}"))
    }
}
