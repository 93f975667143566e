//! The books: what everybody held in several periods, added up in one pass over the runs.
//!
//! Every sheet of a month is made from one pass, so a report for one person and the letters to all cost the same.

use crate::rates::{Cost, Held, Rates};
use crate::{Accounts, Period};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use takt_slurm::HeldRun;

/// What one subject (a user, an account, everybody) held in one period.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// Runs that got their nodes in the period.
    pub jobs_started: u64,
    /// Runs that ended in it.
    pub jobs_ended: u64,
    /// Those of them that did not end well: FAILED, TIMEOUT, OUT_OF_MEMORY, NODE_FAIL and their like.
    pub jobs_failed: u64,
    /// Runs of it whose number of GPUs nobody saw.
    pub jobs_gpu_unknown: u64,
    /// GPUs × seconds.
    pub gpu_seconds: f64,
    /// CPUs × seconds.
    pub cpu_seconds: f64,
    /// GiB × seconds.
    pub gib_seconds: f64,
    /// What was held, in money; energy is added when it is known.
    pub cost: Cost,
}

/// What one subject held.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// By period.
    pub periods: Vec<Tally>,
    /// GPU-seconds and CPU-seconds by day of the last period.
    pub days: Vec<(f64, f64)>,
    /// GPU-seconds by GPU model in the last period; the empty name is an unknown model.
    pub models: BTreeMap<String, f64>,
    /// Seconds that the runs that started in the last period had waited.
    pub waits: Vec<u32>,
}

/// The books while runs are entered. Each run is entered once, under its user and account; sums are drawn at the end.
#[derive(Debug)]
pub struct Journal<'p> {
    periods: &'p [Period],
    bounds: Vec<(i64, i64)>,
    /// Midnights of the last period, its end included.
    midnights: Vec<i64>,
    rates: &'p Rates,
    now: i64,
    entries: Vec<Entry>,
    /// Entries by user and account.
    members: HashMap<String, HashMap<String, usize>>,
}

/// Everybody's entries.
#[derive(Debug)]
pub struct Books<'p> {
    periods: &'p [Period],
    rates: &'p Rates,
    all: Entry,
    users: BTreeMap<String, Entry>,
    accounts: BTreeMap<String, Entry>,
    members: BTreeMap<(String, String), Entry>,
}

/// States in which a run ended without having done its work.
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

/// What of a run lies in one period.
struct Part {
    seconds: i64,
    from: i64,
    to: i64,
    started: bool,
    ended: bool,
    failed: bool,
}

impl<'p> Journal<'p> {
    /// Of these periods, the last of which is the one that is reported. A run that goes on counts up to `now` (UTC
    /// seconds).
    pub fn new(periods: &'p [Period], rates: &'p Rates, now: i64) -> Self {
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

    /// Enters a run.
    pub fn add(&mut self, run: &HeldRun<'_>) {
        let Some(start) = run.start else { return };
        let end = run.end.unwrap_or(self.now);
        let mut member = None;
        for at in 0..self.bounds.len() {
            let Some(part) = part(run, start, end, self.bounds[at]) else {
                continue;
            };
            let member = *member.get_or_insert_with(|| self.member(run));
            let held = Held {
                gpus: run.gpus.unwrap_or(0),
                cpus: run.cpus.unwrap_or(0),
                mem_bytes: run.mem_bytes.unwrap_or(0),
                gpu_watts: 0.0,
            };
            let cost = match part.seconds > 0 {
                true => self.rates.cost(&held, run.gpu_model, part.from, part.to),
                false => Cost::default(),
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
            if at + 1 == self.bounds.len() {
                let waited =
                    u32::try_from(start.saturating_sub(run.submit).max(0)).unwrap_or(u32::MAX);
                entry.add_to_last(run.gpu_model, &part, &held, waited, &self.midnights);
            }
        }
    }

    /// The entry of the run's user under its account.
    fn member(&mut self, run: &HeldRun<'_>) -> usize {
        let accounts = self.members.entry_ref(run.user).or_default();
        *accounts.entry_ref(run.account).or_insert_with(|| {
            self.entries.push(Entry::new(
                self.periods.len(),
                self.midnights.len().saturating_sub(1),
            ));
            self.entries.len() - 1
        })
    }

    /// Draws the sums.
    pub fn close(self) -> Books<'p> {
        let new = || Entry::new(self.periods.len(), self.midnights.len().saturating_sub(1));
        let (mut all, mut users, mut accounts) = (new(), BTreeMap::new(), BTreeMap::new());
        let mut entries: Vec<Option<Entry>> = self.entries.into_iter().map(Some).collect();
        let pairs = self.members.into_iter().flat_map(|(user, accounts)| {
            accounts
                .into_iter()
                .map(move |(account, at)| ((user.clone(), account), at))
        });
        let members: BTreeMap<_, _> = pairs
            .filter_map(|(pair, at)| Some((pair, entries[at].take()?)))
            .collect();
        // In the order of their names, so that the same runs make the same sums to the last digit.
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
    fn new(periods: usize, days: usize) -> Self {
        Self {
            periods: vec![Tally::default(); periods],
            days: vec![(0.0, 0.0); days],
            ..Self::default()
        }
    }

    fn add_to_last(
        &mut self,
        model: Option<&str>,
        part: &Part,
        held: &Held,
        waited: u32,
        midnights: &[i64],
    ) {
        if part.started {
            self.waits.push(waited);
        }
        if part.seconds == 0 {
            return;
        }
        if held.gpus > 0 {
            let (model, gpu_seconds) = (
                model.unwrap_or_default(),
                held.gpus as f64 * part.seconds as f64,
            );
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
        let days = midnights.windows(2).zip(&mut self.days).skip(first);
        for (day, sums) in days.take_while(|(day, _)| day[0] < part.to) {
            let seconds = (part.to.min(day[1]) - part.from.max(day[0])) as f64;
            sums.0 += held.gpus as f64 * seconds;
            sums.1 += held.cpus as f64 * seconds;
        }
    }

    /// Adds what another held in the same periods.
    fn absorb(&mut self, other: &Self) {
        self.periods
            .iter_mut()
            .zip(&other.periods)
            .for_each(|(sum, tally)| sum.add(tally));
        for (sum, day) in self.days.iter_mut().zip(&other.days) {
            *sum = (sum.0 + day.0, sum.1 + day.1);
        }
        for (model, seconds) in &other.models {
            *self.models.entry(model.clone()).or_default() += seconds;
        }
        self.waits.extend_from_slice(&other.waits);
    }
}

impl<'p> Books<'p> {
    /// Everybody's.
    pub fn all(&self) -> &Entry {
        &self.all
    }

    /// A user's.
    pub fn user(&self, name: &str) -> Option<&Entry> {
        self.users.get(name)
    }

    /// An account's with all that is below it; `None` where nobody used any of them.
    pub fn within(&self, above: &str, tree: &Accounts) -> Option<Entry> {
        let within = self
            .accounts()
            .filter(|(account, _)| tree.is_within(account, above));
        within
            .map(|(_, entry)| entry.clone())
            .reduce(|mut sum, entry| {
                sum.absorb(&entry);
                sum
            })
    }

    /// What users held under an account and those below it, by user.
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

    /// Every user's, by name.
    pub fn users(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.users
            .iter()
            .map(|(name, entry)| (name.as_str(), entry))
    }

    /// Every account's, by name.
    pub fn accounts(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.accounts
            .iter()
            .map(|(name, entry)| (name.as_str(), entry))
    }

    /// Users, accounts and what the one held under the other, by user and account.
    pub fn members(&self) -> impl Iterator<Item = (&str, &str, &Entry)> {
        self.members
            .iter()
            .map(|((user, account), entry)| (user.as_str(), account.as_str(), entry))
    }

    /// The periods.
    pub fn periods(&self) -> &'p [Period] {
        self.periods
    }

    /// The rates.
    pub fn rates(&self) -> &'p Rates {
        self.rates
    }
}

/// What of a run lies in a period; `None` if nothing does.
fn part(run: &HeldRun<'_>, start: i64, end: i64, (from, to): (i64, i64)) -> Option<Part> {
    let within = |instant: i64| from <= instant && instant < to;
    let ended = run.end.is_some_and(within);
    let part = Part {
        seconds: end.min(to).saturating_sub(start.max(from)).max(0),
        from: start.max(from),
        to: end.min(to),
        started: within(start),
        ended,
        failed: ended && FAILURES.contains(&run.state),
    };
    (part.seconds > 0 || part.started || part.ended).then_some(part)
}
