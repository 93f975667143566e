//! Alerting as a whole: scrapes, rules and events in, messages out, over a disk that may fail, with a
//! clock that jumps, and a process that may end at any moment.

mod disk;
mod ledger;
mod promises;
mod samples;
mod setups;
mod world;

use crate::queries;
use crate::random::Random;
use crate::seeds::{self, Broken, Size, Trace};
use disk::{CommitFault, Disk};
use ledger::Ledger;
use promises::Promises;
use samples::Samples;
use setups::Setup;
use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;
use takt_alerts::outbox::{Outcome, Row, RowState};
use takt_alerts::ports::AlertStore;
use takt_alerts::routing::maintenance::Maintenance;
use takt_alerts::routing::matcher::{Matchers, parse_matchers};
use takt_alerts::routing::silence::Silence;
use takt_alerts::run::{Commits, SteadyClock};
use takt_alerts::state::Closing;
use takt_alerts::{Batch, Engine};
use takt_model::Timestamp;
use world::{CHANNEL_MODES, World};

const NODES: usize = 3;

/// Steps with disturbances between two times of rest.
const CHAOS_STEPS: usize = 2_000;

/// Length of a step at rest, and of each of the two times of rest: flapping ends after an hour
/// without changes.
const REST_STEP_MS: i64 = 10_000;
const REST_STEPS: usize = 420;

/// How far the clock may be behind the newest sample before the server opens its store again.
const CLOCK_BEHIND: Duration = Duration::from_secs(60);

#[test]
fn alerting_keeps_its_promises() {
    let size = Size {
        seeds: 10,
        steps: 20_000,
    };
    seeds::run("alerting_keeps_its_promises", size, |seed, steps, trace| {
        let mut cluster = Cluster::new(seed);
        while trace.steps < steps {
            // Each round: a change of clocks near, many disturbances, then rest and the checks that need it.
            cluster.begin_near_a_change_of_clocks(trace)?;
            for _ in 0..CHAOS_STEPS {
                cluster.disturb(trace);
                cluster.step(trace)?;
            }
            cluster.rest(trace)?;
        }
        Ok(())
    });
}

/// Where the process ends within a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CrashPoint {
    BeforeCommit,
    AfterCommit,
    AfterFirstMessage,
    AfterTurn,
}

/// A message on its way, with the answer that will come.
struct InFlight {
    row: u64,
    outcome: Outcome,
    answer_at_ms: i64,
}

/// Takt and everything around it.
struct Cluster {
    random: Random,
    world: World,
    clock: SteadyClock,
    /// The engine's time.
    now: Timestamp,
    samples: Samples,
    disk: Disk,
    setups: Vec<Setup>,
    setup: usize,
    engine: Engine,
    commits: Commits,
    in_flight: Vec<InFlight>,
    ledger: Ledger,
    promises: Promises,
    crash: Option<CrashPoint>,
    /// How long Takt stays down after the crash, in milliseconds.
    down_ms: i64,
    /// The configuration that the next process finds, if another one.
    setup_at_start: Option<usize>,
    silences: usize,
}

impl Cluster {
    fn new(seed: u64) -> Self {
        let setups = Setup::all();
        let hold_seconds = setups[0].hold_seconds;
        let world = World::new(NODES);
        let engine = setups[0].engine();
        let mut ledger = Ledger::default();

        ledger.reload(setups[0].channels, 0);
        let mut cluster = Self {
            random: Random::new(seed),
            commits: Commits::new(Batch::default(), world.now()),
            clock: SteadyClock::new(world.now()),
            now: world.now(),
            world,
            samples: Samples::default(),
            disk: Disk::new(),
            setups,
            setup: 0,

            engine,
            in_flight: Vec::new(),
            ledger,
            promises: Promises::new(hold_seconds),
            crash: None,
            down_ms: 0,
            setup_at_start: None,
            silences: 0,
        };
        cluster.know_channels();
        cluster
    }

    fn setup(&self) -> &Setup {
        &self.setups[self.setup]
    }

    fn know_channels(&mut self) {
        for (name, _) in self.setups[self.setup].channels {
            let known = self.world.channels.entry((*name).to_owned());
            known.or_insert(world::ChannelMode::Takes);
        }
    }

    /// Takt was off for months, or not: half of the rounds begin shortly before clocks change.
    fn begin_near_a_change_of_clocks(&mut self, trace: &mut Trace) -> Result<(), Broken> {
        let before_ms = self.random.between(0, 5_400_000);
        if !self.random.once_in(2) || !self.world.go_before_a_change_of_clocks(before_ms) {
            return Ok(());
        }

        self.setup_at_start = Some(self.random.below(self.setups.len()));
        self.restart(trace)
    }

    /// Sometimes something goes wrong, or somebody does something.
    fn disturb(&mut self, trace: &mut Trace) {
        // Usually a second, sometimes less or much more, as a busy machine has it.
        self.world.true_ms += match self.random.below(40) {
            0 => self.random.between(5_000, 120_000),
            1..5 => self.random.between(1, 1_000),
            _ => 1_000,
        };
        // Most steps are undisturbed, or nothing would ever come to an end.
        if !self.random.once_in(12) {
            return;
        }

        let what = match self.random.below(24) {
            0..9 => self.world.disturb_node(&mut self.random),
            9..12 => self.disturb_channel(),
            12 | 13 => self.silence(),
            14 => self.close(),
            15 => self.reload_or_die(),
            16 | 17 => self.disturb_disk(),
            18 | 19 => self.disturb_clock(),
            20 => self.maintain(),
            21 => {
                self.samples.is_broken = self.random.once_in(2);
                format!("queries fail: {}", self.samples.is_broken)
            }
            _ => self.die(),
        };

        trace.note(|| what);
    }

    fn disturb_channel(&mut self) -> String {
        let names: Vec<String> = self.world.channels.keys().cloned().collect();
        let name = &names[self.random.below(names.len())];
        let mode = self.random.pick(&CHANNEL_MODES);
        self.world.channels.insert(name.clone(), mode);
        format!("{name}: {mode:?}")
    }

    fn disturb_disk(&mut self) -> String {
        use CommitFault::{AnswerLost, Fails, None};
        let fault = self.random.pick(&[None, None, Fails, AnswerLost]);
        self.disk.fault.set(fault);
        format!("commits: {fault:?}")
    }

    fn disturb_clock(&mut self) -> String {
        // Small jumps, and large ones back and ahead.
        let by_ms = match self.random.below(4) {
            0 => self.random.between(-50_000, 50_000),
            1 => self.random.between(-7_200_000, -61_000),
            _ => self.random.between(61_000, 7_200_000),
        };

        self.world.ahead_ms += by_ms;
        self.promises.clock_jumps(by_ms);
        format!("the clock jumps by {by_ms} ms")
    }

    fn silence(&mut self) -> String {
        let now = self.now;

        self.silences += 1;
        let id = format!("s{}", self.silences);
        let node = self.random.below(NODES);
        let seconds = self.random.between(1, 1_800).unsigned_abs();

        let text = format!("node=g{node}");
        let wanted = Silence {
            id: String::new(),
            matchers: vec![Matchers(parse_matchers(&text).unwrap())],
            starts_at: now,
            ends_at: now.plus(Duration::from_secs(seconds)),
            updated_at: now,
            created_by: "ada".to_owned(),
            comment: "new fan".to_owned(),
            annotations: BTreeMap::new(),
        };

        let (_, batch) = self.engine.silence(wanted, &id, now).unwrap();
        // Changes by people are stored with the next turn.
        self.promises.pending = mem::take(&mut self.promises.pending).then(batch);
        format!("silence {text} for {seconds} s")
    }

    fn close(&mut self) -> String {
        let text = format!("node=g{}", self.random.below(NODES));
        let closing = Closing {
            by: "ada".to_owned(),
            comment: "done".to_owned(),
        };

        let matchers = Matchers(parse_matchers(&text).unwrap());
        let (closed, batch) = self.engine.close(&matchers, &closing, self.now);
        self.promises.pending = mem::take(&mut self.promises.pending).then(batch);
        format!("close {text}: {} alerts", closed.len())
    }

    /// A reload; the process may end before or while it does that. The next one begins with the new
    /// configuration.
    fn reload_or_die(&mut self) -> String {
        let setup = self.random.below(self.setups.len());
        match self.random.below(3) {
            0 => self.reload_to(setup),
            1 => format!("{}, {}", self.reload_to(setup), self.die()),
            _ => {
                self.setup_at_start = Some(setup);
                format!("setup {setup} at the next start, {}", self.die())
            }
        }
    }

    fn die(&mut self) -> String {
        use CrashPoint::{AfterCommit, AfterFirstMessage, AfterTurn, BeforeCommit};
        let points = [BeforeCommit, AfterCommit, AfterFirstMessage, AfterTurn];

        let point = self.random.pick(&points);
        self.crash = Some(point);
        // Up to 20 minutes, which is longer than any `group_interval` here.
        self.down_ms = self.random.pick(&[0, 1_000, 20_000, 240_000, 1_200_000]);
        format!("the process ends {point:?}, for {} ms", self.down_ms)
    }

    fn reload_to(&mut self, setup: usize) -> String {
        let now = self.now;
        self.setup = setup;

        let batch = self.setups[self.setup].reload(&mut self.engine, now);
        self.promises.pending = mem::take(&mut self.promises.pending).then(batch);
        // The newest row of the process, also of those that no commit has stored.
        let last = self.engine.outbox().iter().map(|row| row.id).max();
        self.reconfigured(last.unwrap_or(0));
        format!("reload: setup {}", self.setup)
    }

    /// Tells the ledger of another configuration. `last` is the newest row that the process knows.
    fn reconfigured(&mut self, last: u64) {
        let stored = self.disk.tables.borrow().last_row();
        let last = last.max(stored);
        self.ledger.reload(self.setups[self.setup].channels, last);
        self.know_channels();
        let hold_seconds = self.setup().hold_seconds;
        self.promises.reloaded(hold_seconds);
    }

    fn maintain(&mut self) -> String {
        let node = format!("g{}", self.random.below(NODES));
        let from = self.now;
        let seconds = self.random.between(1, 1_800);
        let work = Maintenance {
            name: "fans".to_owned(),
            cluster: "lab".to_owned(),
            nodes: [node.clone()].into(),
            from,
            to: from.plus_ms(seconds * 1_000),
        };
        self.engine.set_maintenance(vec![work], from);
        format!("maintenance of {node} for {seconds} s")
    }

    /// Scrapes, reads events, and does one turn of the engine.
    fn step(&mut self, trace: &mut Trace) -> Result<(), Broken> {
        trace.steps += 1;

        self.world.scrape(&mut self.samples);
        // As in the server: a clock that is far behind opens the store again.
        if self.world.behind() > CLOCK_BEHIND {
            trace.note(|| "the clock was set back; the store is opened again".to_owned());
            self.world.continue_at_clock(&mut self.samples);
            return self.restart(trace);
        }

        let crash = self.crash.take();
        let ended = self.turn(crash, trace)?;
        if ended {
            self.world.true_ms += self.down_ms;
            self.world.skip_scrapes();
            return self.restart(trace);
        }
        Ok(())
    }

    /// One turn, as the engine's thread does it. Returns whether the process ended.
    fn turn(&mut self, crash: Option<CrashPoint>, trace: &mut Trace) -> Result<bool, Broken> {
        let now = self.clock.now(self.world.now());
        self.now = now;

        // The order of the engine's thread: what was not stored, answers, events, rules, then messages.
        let unsaved = self.commits.take_unsaved();
        let mut fresh = mem::take(&mut self.promises.pending);
        fresh = fresh.then(self.answers(now, trace)?);
        fresh = fresh.then(self.events(now));

        let down = |at, since| queries::exporter_states(&self.samples, at, since);
        let (evaluated, _) = self
            .engine
            .evaluate(&self.samples, &self.samples, &down, now);
        fresh = fresh.then(evaluated);

        let flushed = self.engine.flush(&self.samples, now);
        promises::is_silent_at_night(&flushed, self.setup(), now)?;
        fresh = fresh.then(flushed);
        trace.note(|| promises::shown(&fresh, now));
        // The ledger learns of episodes before their messages.
        for transition in &fresh.transitions {
            if promises::is_begin(transition) {
                self.ledger.begins(transition.fingerprint);
            }
        }

        self.promises
            .check(&fresh, &self.engine, &self.world, now)?;
        fresh = fresh.then(self.commits.mark_due(&mut self.engine, now));
        self.note_replaced(&fresh);
        // The batch is lost, as nothing was stored.
        if crash == Some(CrashPoint::BeforeCommit) {
            return Ok(true);
        }

        let batch = unsaved.then(fresh);
        let committed = self.commits.commit(&self.disk, batch, now);
        // Stored, but no message was sent.
        if crash == Some(CrashPoint::AfterCommit) {
            return Ok(true);
        }
        // A commit whose answer was lost is stored as well.
        if self.disk.fault.get() != CommitFault::Fails {
            self.ledger.stored();
        }
        if committed.result.is_ok() {
            promises::stored_is_known(&self.disk.tables.borrow(), &self.engine)?;
        }

        for row in committed.messages {
            self.send(row, trace)?;
            if crash == Some(CrashPoint::AfterFirstMessage) {
                return Ok(true);
            }
        }

        let pages = self.setups[self.setup].pages;
        self.promises
            .pages_are_sent(&self.engine, self.world.true_ms, pages, now)?;
        Ok(crash == Some(CrashPoint::AfterTurn))
    }

    fn note_replaced(&mut self, batch: &Batch) {
        let rows = batch.outbox.iter();
        rows.filter(|row| row.state == RowState::Superseded)
            .for_each(|row| self.ledger.replaced(row));
    }

    fn send(&mut self, row: Row, trace: &mut Trace) -> Result<(), Broken> {
        let is_configured = self.setup().has(&row.channel);

        let mode = self.world.channels[&row.channel];
        trace.note(|| {
            let reason = row.message.reason;
            format!("send {} to {}: {reason:?}, {mode:?}", row.id, row.channel)
        });
        // A row of an earlier configuration may name a channel that is gone.
        let outcome = if is_configured {
            mode.outcome()
        } else {
            Outcome::NoChannel
        };

        if is_configured && mode.has_message() {
            self.ledger
                .takes(&row, matches!(outcome, Outcome::Sent(_)))?;
        }

        // The answer may come after later messages.
        self.in_flight.push(InFlight {
            row: row.id,
            outcome,
            answer_at_ms: self.world.true_ms + self.random.pick(&[0, 0, 200, 3_000, 20_000]),
        });
        Ok(())
    }

    /// Takes the answers of channels that have come.
    fn answers(&mut self, now: Timestamp, trace: &mut Trace) -> Result<Batch, Broken> {
        let true_ms = self.world.true_ms;
        let (come, waiting): (Vec<_>, Vec<_>) = mem::take(&mut self.in_flight)
            .into_iter()
            .partition(|one| one.answer_at_ms <= true_ms);
        self.in_flight = waiting;

        let mut batch = Batch::default();
        for InFlight { row, outcome, .. } in come {
            trace.note(|| format!("answer about {row}: {outcome:?}"));
            let setup = &self.setups[self.setup];
            let fallback = |failed: &str| setup.fallback(failed);
            let answered = self.engine.answered(row, &outcome, &fallback, now);
            // A refusal for good is known to the engine only with the answer.
            for row in &answered.outbox {
                if row.state == RowState::GaveUp {
                    self.ledger.gives_up(row)?;
                }
            }
            batch = batch.then(answered);
        }
        Ok(batch)
    }

    /// Reads new events of the exporters that answer.
    fn events(&mut self, now: Timestamp) -> Batch {
        let mut batch = Batch::default();
        // A silent exporter has events that are read when it answers again.
        for node in self.world.nodes.iter().filter(|node| node.answers) {
            let read = self.engine.read_until(&node.name).unwrap_or(0);
            for event in node.events.iter().filter(|event| event.id > read) {
                batch = batch.then(self.engine.event_of(&node.name, event, &[], now));
            }
        }
        batch
    }

    /// The process begins with what is on the disk.
    fn restart(&mut self, trace: &mut Trace) -> Result<(), Broken> {
        let now = self.world.now();
        self.clock = SteadyClock::new(now);
        self.now = now;
        self.in_flight.clear();
        // The disk is all that the next process knows.
        self.ledger.crash(&self.disk.tables.borrow());
        self.promises.restarted();
        match self.setup_at_start.take() {
            Some(setup) => {
                self.setup = setup;
                self.reconfigured(0);
            }
            // The disk may know nothing of the last reload.
            None => {
                let last = self.disk.tables.borrow().last_row();
                let channels = self.setup().channels;
                self.ledger.configured(channels, last);
            }
        }

        self.engine = self.setup().engine();
        let stored = self.disk.load().unwrap();
        let restored = self.engine.restore(stored, now);
        trace.note(|| format!("start at {now}: {}", promises::shown(&restored, now)));
        self.note_replaced(&restored);

        self.commits = Commits::new(restored, now);
        self.promises.pending = Batch::default();
        Ok(())
    }

    /// Nothing goes wrong for a while, and alerts that fire stay; then everything is well.
    fn rest(&mut self, trace: &mut Trace) -> Result<(), Broken> {
        // All that may fail works again, while alerts that fire stay.
        self.disk.fault.set(CommitFault::None);
        self.samples.is_broken = false;
        self.engine.set_maintenance(Vec::new(), self.now);

        self.world.steady();
        for _ in 0..REST_STEPS {
            self.world.true_ms += REST_STEP_MS;
            self.step(trace)?;
        }

        // Long enough for each page to be sent. Now the reasons end, and so must the alerts.
        let pages = self.setup().pages;
        promises::all_are_announced(&self.engine, &self.ledger, pages, self.now)?;
        self.world.heal();

        for _ in 0..REST_STEPS {
            self.world.true_ms += REST_STEP_MS;
            self.step(trace)?;
        }

        let mut tables = self.disk.tables.borrow_mut();
        promises::nothing_waits(&self.engine, &tables)?;
        self.ledger.at_rest(&tables)?;
        // The number of the last row stays, as numbers must not be used again.
        let last = tables.ended.pop_last();
        tables.ended.clear();
        tables.ended.extend(last.map(|(id, _)| (id, false)));
        Ok(())
    }
}
