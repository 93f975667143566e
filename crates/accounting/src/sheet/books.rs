//! Sums of usage by user and account in several periods, from one pass over the runs.
//!
//! All reports of a month use the same sums, so one report and the monthly mails to all users take
//! the same time.

use crate::rates::{Cost, HeldAmounts, Rates};
use crate::{Accounts, Period};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use takt_jobs::HeldRun;
use takt_model::UnixTime;

/// Usage of one subject (user, account or cluster) in one period.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// Runs that started in the period.
    pub jobs_started: u64,
    /// Runs that ended in the period.
    pub jobs_ended: u64,
    /// Runs that ended in the period without success: FAILED, TIMEOUT, OUT_OF_MEMORY, NODE_FAIL and
    /// similar states.
    pub jobs_failed: u64,
    /// Runs with an unknown number of GPUs.
    pub jobs_gpu_unknown: u64,
    /// GPUs × seconds.
    pub gpu_seconds: f64,
    /// CPUs × seconds.
    pub cpu_seconds: f64,
    /// Memory in GiB × seconds.
    pub gib_seconds: f64,
    /// Cost of the allocation. Energy is added when it is known.
    pub cost: Cost,
}

/// Usage of one subject.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// Usage by period.
    pub periods: Vec<Tally>,
    /// GPU-seconds and CPU-seconds by day of the last period, counted from 0. Days without usage are missing: a period may
    /// have decades of them.
    pub days: BTreeMap<usize, (f64, f64)>,
    /// GPU-seconds by GPU model in the last period. The empty name is an unknown model.
    pub models: BTreeMap<String, f64>,
    /// Waiting times of the runs that started in the last period, in seconds.
    pub waits: Vec<u32>,
}

/// Collects runs. Each run is added once, under its user and account; the sums are formed at the
/// end.
#[derive(Debug)]
pub struct Journal<'p> {
    periods: &'p [Period],
    bounds: Vec<(UnixTime, UnixTime)>,
    /// Midnights of the last period, and its end.
    midnights: Vec<UnixTime>,
    rates: &'p Rates,
    now: UnixTime,
    entries: Vec<Entry>,
    /// Index into `entries` by user and account.
    members: HashMap<String, HashMap<String, usize>>,
}

/// Usage of all users and accounts.
#[derive(Debug)]
pub struct Books<'p> {
    periods: &'p [Period],
    rates: &'p Rates,
    all: Entry,
    users: BTreeMap<String, Entry>,
    accounts: BTreeMap<String, Entry>,
    members: BTreeMap<(String, String), Entry>,
}

/// States of runs that ended without success.
const FAILURES: &[&str] = &[
    "FAILED",
    "TIMEOUT",
    "OUT_OF_MEMORY",
    "NODE_FAIL",
    "BOOT_FAIL",
    "DEADLINE",
    "PREEMPTED",
];

const GIB: f64 = (1_u64 << 30) as f64;

/// Part of a run within one period.
struct Part {
    seconds: u64,
    from: UnixTime,
    to: UnixTime,
    started: bool,
    ended: bool,
    failed: bool,
}

impl<'p> Journal<'p> {
    /// Starts without runs. The report covers the last of these periods. Running jobs count until
    /// `now`.
    pub fn new(periods: &'p [Period], rates: &'p Rates, now: UnixTime) -> Self {
        Self {
            periods,
            bounds: periods
                .iter()
                .map(|period| (period.from(), period.to()))
                .collect(),
            midnights: periods.last().map(Period::midnights).unwrap_or_default(),
            rates,
            now,
            entries: Vec::new(),
            members: HashMap::new(),
        }
    }

    /// Adds a run.
    pub fn add(&mut self, run: &HeldRun<'_>) {
        let Some(start) = run.start else { return };
        let end = run.end.unwrap_or(self.now);
        let mut member = None;

        for at in 0..self.bounds.len() {
            let Some(part) = part(run, start, end, self.bounds[at]) else {
                continue;
            };
            // A run outside all periods gets no entry.
            let member = *member.get_or_insert_with(|| self.member(run));
            let held = HeldAmounts {
                gpus: run.gpus.unwrap_or(0),
                cpus: run.cpus.unwrap_or(0),
                mem_bytes: run.mem_bytes.unwrap_or(0),
                gpu_watts: 0.0,
            };
            let cost = if part.seconds > 0 {
                self.rates.cost(&held, run.gpu_model, part.from, part.to)
            } else {
                Cost::default()
            };

            let entry = &mut self.entries[member];
            let seconds = part.seconds as f64;
            entry.periods[at].add(&Tally {
                jobs_started: u64::from(part.started),
                jobs_ended: u64::from(part.ended),
                jobs_failed: u64::from(part.failed),
                jobs_gpu_unknown: u64::from(run.gpus.is_none()),
                gpu_seconds: held.gpus as f64 * seconds,
                cpu_seconds: held.cpus as f64 * seconds,
                gib_seconds: held.mem_bytes as f64 / GIB * seconds,
                cost,
            });

            // Only the last period has these details; the others are for comparison.
            if at + 1 == self.bounds.len() {
                let waited = u32::try_from(start.since(run.submit)).unwrap_or(u32::MAX);
                entry.add_to_last(run.gpu_model, &part, &held, waited, &self.midnights);
            }
        }
    }

    /// Returns the index of the entry for the run's user and account.
    fn member(&mut self, run: &HeldRun<'_>) -> usize {
        let accounts = self.members.entry_ref(run.user).or_default();
        *accounts.entry_ref(run.account).or_insert_with(|| {
            self.entries.push(Entry::new(self.periods.len()));
            self.entries.len() - 1
        })
    }

    /// Forms the sums.
    pub fn close(self) -> Books<'p> {
        let new = || Entry::new(self.periods.len());
        let mut all = new();
        let mut users = BTreeMap::new();
        let mut accounts = BTreeMap::new();
        // Each entry is taken once, so it is moved and not copied.
        let mut entries: Vec<Option<Entry>> = self.entries.into_iter().map(Some).collect();

        let members: BTreeMap<_, _> = self
            .members
            .into_iter()
            .flat_map(|(user, accounts)| {
                accounts
                    .into_iter()
                    .map(move |(account, at)| ((user.clone(), account), at))
            })
            .filter_map(|(pair, at)| Some((pair, entries[at].take()?)))
            .collect();

        // In the order of names, so that equal runs give equal sums to the last digit.
        for ((user, account), entry) in &members {
            all.absorb(entry);
            users.entry(user.clone()).or_insert_with(new).absorb(entry);
            accounts
                .entry(account.clone())
                .or_insert_with(new)
                .absorb(entry);
        }

        Books {
            periods: self.periods,
            rates: self.rates,
            all,
            users,
            accounts,
            members,
        }
    }
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.jobs_started += other.jobs_started;
        self.jobs_ended += other.jobs_ended;
        self.jobs_failed += other.jobs_failed;
        self.jobs_gpu_unknown += other.jobs_gpu_unknown;
        self.gpu_seconds += other.gpu_seconds;
        self.cpu_seconds += other.cpu_seconds;
        self.gib_seconds += other.gib_seconds;
        self.cost.add(&other.cost);
    }
}

impl Entry {
    fn new(periods: usize) -> Self {
        Self {
            periods: vec![Tally::default(); periods],
            ..Self::default()
        }
    }

    fn add_to_last(
        &mut self,
        model: Option<&str>,
        part: &Part,
        held: &HeldAmounts,
        waited: u32,
        midnights: &[UnixTime],
    ) {
        if part.started {
            self.waits.push(waited);
        }
        // Such a part held nothing: it only started or ended here.
        if part.seconds == 0 {
            return;
        }

        if held.gpus > 0 {
            let model = model.unwrap_or_default();
            let gpu_seconds = held.gpus as f64 * part.seconds as f64;
            // Most models have an entry, so a name is copied only for a new one.
            match self.models.get_mut(model) {
                Some(sum) => *sum += gpu_seconds,
                None => {
                    self.models.insert(model.to_owned(), gpu_seconds);
                }
            }
        }

        let first = midnights
            .partition_point(|midnight| *midnight <= part.from)
            .saturating_sub(1);
        for (at, day) in midnights
            .windows(2)
            .enumerate()
            .skip(first)
            .take_while(|(_, day)| day[0] < part.to)
        {
            let sums = self.days.entry(at).or_default();
            let seconds = (part.to.min(day[1]) - part.from.max(day[0])) as f64;
            sums.0 += held.gpus as f64 * seconds;
            sums.1 += held.cpus as f64 * seconds;
        }
    }

    /// Adds the usage of another subject in the same periods.
    fn absorb(&mut self, other: &Self) {
        self.periods
            .iter_mut()
            .zip(&other.periods)
            .for_each(|(sum, tally)| sum.add(tally));
        for (&at, day) in &other.days {
            let sum = self.days.entry(at).or_default();
            *sum = (sum.0 + day.0, sum.1 + day.1);
        }
        for (model, seconds) in &other.models {
            *self.models.entry(model.clone()).or_default() += seconds;
        }
        self.waits.extend_from_slice(&other.waits);
    }
}

impl<'p> Books<'p> {
    /// Returns the usage of the whole cluster.
    pub fn all(&self) -> &Entry {
        &self.all
    }

    /// Returns the usage of a user.
    pub fn user(&self, name: &str) -> Option<&Entry> {
        self.users.get(name)
    }

    /// Returns the usage of an account and all accounts below it. `None` if they have no usage.
    pub fn within(&self, above: &str, tree: &Accounts) -> Option<Entry> {
        self.accounts()
            .filter(|(account, _)| tree.is_within(account, above))
            .map(|(_, entry)| entry.clone())
            .reduce(|mut sum, entry| {
                sum.absorb(&entry);
                sum
            })
    }

    /// Returns the usage under an account and those below it, by user.
    pub fn users_within(&self, above: &str, tree: &Accounts) -> BTreeMap<&str, Entry> {
        let mut users: BTreeMap<&str, Entry> = BTreeMap::new();
        for (user, _, entry) in self
            .members()
            .filter(|(_, account, _)| tree.is_within(account, above))
        {
            users
                .entry(user)
                .and_modify(|sum| sum.absorb(entry))
                .or_insert_with(|| entry.clone());
        }
        users
    }

    /// Returns the usage of each user, by name.
    pub fn users(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.users
            .iter()
            .map(|(name, entry)| (name.as_str(), entry))
    }

    /// Returns the usage of each account, by name.
    pub fn accounts(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.accounts
            .iter()
            .map(|(name, entry)| (name.as_str(), entry))
    }

    /// Returns user, account, and the user's usage under the account, in this order.
    pub fn members(&self) -> impl Iterator<Item = (&str, &str, &Entry)> {
        self.members
            .iter()
            .map(|((user, account), entry)| (user.as_str(), account.as_str(), entry))
    }

    /// Returns the periods.
    pub fn periods(&self) -> &'p [Period] {
        self.periods
    }

    /// Returns the rates.
    pub fn rates(&self) -> &'p Rates {
        self.rates
    }
}

/// Returns the part of a run within a period. `None` if it is empty.
fn part(
    run: &HeldRun<'_>,
    start: UnixTime,
    end: UnixTime,
    (from, to): (UnixTime, UnixTime),
) -> Option<Part> {
    let within = |instant: UnixTime| from <= instant && instant < to;
    let ended = run.end.is_some_and(within);
    let part = Part {
        seconds: end.min(to).since(start.max(from)),
        from: start.max(from),
        to: end.min(to),
        started: within(start),
        ended,
        failed: ended && FAILURES.contains(&run.state),
    };
    (part.seconds > 0 || part.started || part.ended).then_some(part)
}
