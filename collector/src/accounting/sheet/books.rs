//! The books: what everybody held in several periods, added up in one pass over the runs.
//!
//! Every sheet of a month is made from one pass, so a report for one person and the letters to all cost the same.

use crate::accounting::Period;
use crate::accounting::rates::{Cost, Held, Rates};
use crate::jobs::HeldRun;
use hashbrown::HashMap;
use std::collections::BTreeMap;

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

/// Everybody's entries.
#[derive(Debug)]
pub struct Books<'p> {
    periods: &'p [Period],
    bounds: Vec<(i64, i64)>,
    /// Midnights of the last period, its end included.
    midnights: Vec<i64>,
    rates: &'p Rates,
    now: i64,
    entries: Vec<Entry>,
    /// Subjects by their name: users, accounts, and who used which account.
    users: HashMap<Box<str>, usize>,
    accounts: HashMap<Box<str>, usize>,
    members: HashMap<(usize, usize), usize>,
}

/// The entry of everybody together.
const ALL: usize = 0;

/// States in which a run ended without having done its work.
const FAILURES: &[&str] = &["FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "PREEMPTED"];

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

impl<'p> Books<'p> {
    /// Empty books of these periods, the last of which is the one that is reported. A run that goes on counts up to
    /// `now` (UTC seconds).
    pub fn new(periods: &'p [Period], rates: &'p Rates, now: i64) -> Self {
        let mut books = Self {
            periods,
            bounds: periods.iter().map(|period| (period.from(), period.to())).collect(),
            midnights: periods.last().map(Period::midnights).unwrap_or_default(),
            rates,
            now,
            entries: Vec::new(),
            users: HashMap::new(),
            accounts: HashMap::new(),
            members: HashMap::new(),
        };
        books.open();
        books
    }

    fn open(&mut self) -> usize {
        self.entries.push(Entry {
            periods: vec![Tally::default(); self.periods.len()],
            days: vec![(0.0, 0.0); self.midnights.len().saturating_sub(1)],
            ..Entry::default()
        });
        self.entries.len() - 1
    }

    /// Enters a run.
    pub fn add(&mut self, run: &HeldRun<'_>) {
        let Some(start) = run.start else { return };
        let end = run.end.unwrap_or(self.now);
        let mut subjects = None;
        for at in 0..self.bounds.len() {
            let Some(part) = part(run, start, end, self.bounds[at]) else { continue };
            let subjects = *subjects.get_or_insert_with(|| self.subjects(run));
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
            for subject in subjects {
                let tally = &mut self.entries[subject].periods[at];
                tally.jobs_started += u64::from(part.started);
                tally.jobs_ended += u64::from(part.ended);
                tally.jobs_failed += u64::from(part.failed);
                tally.jobs_gpu_unknown += u64::from(run.gpus.is_none());
                let seconds = part.seconds as f64;
                tally.gpu_seconds += held.gpus as f64 * seconds;
                tally.cpu_seconds += held.cpus as f64 * seconds;
                tally.gib_seconds += held.mem_bytes as f64 / GIB * seconds;
                tally.cost.add(&cost);
            }
            if at + 1 == self.bounds.len() {
                self.add_to_last(run, &part, &held, start, &subjects);
            }
        }
    }

    fn add_to_last(&mut self, run: &HeldRun<'_>, part: &Part, held: &Held, start: i64, subjects: &[usize]) {
        let waited = u32::try_from(start.saturating_sub(run.submit).max(0)).unwrap_or(u32::MAX);
        let first = self.midnights.partition_point(|midnight| *midnight <= part.from).saturating_sub(1);
        for &subject in subjects {
            let entry = &mut self.entries[subject];
            if part.started {
                entry.waits.push(waited);
            }
            if part.seconds == 0 {
                continue;
            }
            if held.gpus > 0 {
                let (model, gpu_seconds) = (run.gpu_model.unwrap_or_default(), held.gpus as f64 * part.seconds as f64);
                match entry.models.get_mut(model) {
                    Some(sum) => *sum += gpu_seconds,
                    None => {
                        entry.models.insert(model.to_owned(), gpu_seconds);
                    }
                }
            }
            let days = self.midnights.windows(2).zip(&mut entry.days).skip(first);
            for (day, sums) in days.take_while(|(day, _)| day[0] < part.to) {
                let seconds = (part.to.min(day[1]) - part.from.max(day[0])) as f64;
                sums.0 += held.gpus as f64 * seconds;
                sums.1 += held.cpus as f64 * seconds;
            }
        }
    }

    /// Everybody, the run's user, its account, and this user in this account.
    fn subjects(&mut self, run: &HeldRun<'_>) -> [usize; 4] {
        let user = match self.users.get(run.user) {
            Some(&known) => known,
            None => {
                let new = self.open();
                self.users.insert(run.user.into(), new);
                new
            }
        };
        let account = match self.accounts.get(run.account) {
            Some(&known) => known,
            None => {
                let new = self.open();
                self.accounts.insert(run.account.into(), new);
                new
            }
        };
        let member = match self.members.get(&(user, account)) {
            Some(&known) => known,
            None => {
                let new = self.open();
                self.members.insert((user, account), new);
                new
            }
        };
        [ALL, user, account, member]
    }

    /// Everybody's.
    pub fn all(&self) -> &Entry {
        &self.entries[ALL]
    }

    /// A user's.
    pub fn user(&self, name: &str) -> Option<&Entry> {
        self.users.get(name).map(|&at| &self.entries[at])
    }

    /// An account's.
    pub fn account(&self, name: &str) -> Option<&Entry> {
        self.accounts.get(name).map(|&at| &self.entries[at])
    }

    /// Every user's, by name.
    pub fn users(&self) -> Vec<(&str, &Entry)> {
        named(&self.users, &self.entries)
    }

    /// Every account's, by name.
    pub fn accounts(&self) -> Vec<(&str, &Entry)> {
        named(&self.accounts, &self.entries)
    }

    /// Users, accounts and what the one held under the other, by user and account.
    pub fn members(&self) -> Vec<(&str, &str, &Entry)> {
        let users: HashMap<usize, &str> = self.users.iter().map(|(name, &at)| (at, name.as_ref())).collect();
        let accounts: HashMap<usize, &str> = self.accounts.iter().map(|(name, &at)| (at, name.as_ref())).collect();
        let pairs =
            self.members.iter().map(|(&(user, account), &at)| (users[&user], accounts[&account], &self.entries[at]));
        let mut members: Vec<_> = pairs.collect();
        members.sort_by_key(|(user, account, _)| (*user, *account));
        members
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

fn named<'b>(names: &'b HashMap<Box<str>, usize>, entries: &'b [Entry]) -> Vec<(&'b str, &'b Entry)> {
    let mut found: Vec<_> = names.iter().map(|(name, &at)| (name.as_ref(), &entries[at])).collect();
    found.sort_by_key(|(name, _)| *name);
    found
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
