//! Builds a report from the sums of usage and the assessed runs.

use super::books::{Books, Entry, Tally};
use super::{
    Day, Figures, FixRow, LostRow, Member, NetworkRow, Part, Rank, RankRow, RunRow, Share, Sheet,
    Subject, Waiting,
};
use crate::efficiency::{AssessedRun, EfficiencyConfig, FixKind, Split, hints};
use crate::rates::{Cost, HeldAmounts, Rates};
use crate::{Accounts, Breach, BudgetUse, Credit, Period, in_force};
use jiff::Timestamp;
use std::collections::{BTreeMap, HashMap, HashSet};
use takt_model::UnixTime;
use takt_slurm::JobRun;

/// Input of all reports.
#[derive(Debug)]
pub struct Facts<'f> {
    /// Cluster name.
    pub cluster: &'f str,
    /// Usage of all users and accounts.
    pub books: &'f Books<'f>,
    /// First recorded submission of the cluster. `None` if it is unknown.
    pub records_from: Option<UnixTime>,
    /// Hierarchy of accounts: an account's report includes the accounts below it.
    pub accounts: &'f Accounts,
    /// Assessed runs of all periods.
    pub assessed: &'f [AssessedRun],
    /// Ledger of credits.
    pub credits: &'f [Credit],
    /// Use of all budgets.
    pub budgets: &'f [BudgetUse],
    /// Runs that broke policy windows.
    pub breaches: &'f [Breach],
    /// Thresholds of efficiency.
    pub rules: &'f EfficiencyConfig,
    /// Currency.
    pub currency: Option<&'f str>,
    /// Whether the ranking hides users' names.
    pub pseudonyms: bool,
    /// Maximum number of runs in a report.
    pub most_runs: usize,
    /// Current time.
    pub now: UnixTime,
}

/// The first job of a recorded period may be submitted this long after its start, in seconds.
const FIRST_JOB_DELAY: i64 = 86_400;
/// Maximum number of changes in a report.
const MOST_FIXES: usize = 5;
/// Maximum number of changes of one kind.
const MOST_OF_A_KIND: usize = 2;
/// Number of top places in the ranking that each user sees.
const FIRST_PLACES: usize = 10;

const HOUR: f64 = 3600.0;

/// An assessed run and its part of each period.
struct SeenRun<'f> {
    assessed: &'f AssessedRun,
    /// Run time within each period, in seconds.
    seconds: Vec<f64>,
    cost: Vec<Cost>,
}

impl SeenRun<'_> {
    fn share(&self, period: usize) -> f64 {
        match self.assessed.efficiency.held_seconds {
            0 => 0.0,
            held => self.seconds[period] / held as f64,
        }
    }

    fn is_in_last(&self) -> bool {
        self.seconds.last().is_some_and(|seconds| *seconds > 0.0)
    }
}

/// Returns the report of a subject. `None` for a subject without usage in any period.
pub fn sheet(facts: &Facts<'_>, subject: &Subject) -> Option<Sheet> {
    let books = facts.books;
    let entry: &Entry = match subject {
        Subject::User(name) => books.user(name)?,
        Subject::Account(name) => &books.within(name, facts.accounts)?,
        Subject::Cluster => books.all(),
    };
    let period = books.periods().last()?;
    let seen: Vec<SeenRun<'_>> = facts
        .assessed
        .iter()
        .filter(|assessed| is_of(facts, subject, &assessed.run.user, &assessed.run.account))
        .map(|assessed| look(facts, assessed))
        .collect();
    let all: Vec<&SeenRun<'_>> = seen.iter().collect();
    let mut months: Vec<Figures> = (0..books.periods().len())
        .map(|at| figures(facts, entry, &all, at))
        .collect();
    let mut figures = months.pop()?;
    // Usage before the records began is unknown, not 0.
    if let Some(records_from) = facts.records_from {
        let unrecorded = |period: &&Period| period.to() <= records_from;
        let unrecorded = books.periods().iter().filter(unrecorded).count();
        months.drain(..unrecorded.min(months.len()));
    }
    figures.credited_gpu_hours = credited(facts, subject, period);
    let members = match subject {
        Subject::User(user) => {
            let own = books
                .members()
                .filter(|(of, ..)| of == user)
                .map(|(_, account, entry)| (account, entry));
            table(facts, &seen, own, |run| &run.account)
        }
        Subject::Account(account) => {
            let users = books.users_within(account, facts.accounts);
            table(
                facts,
                &seen,
                users.iter().map(|(user, entry)| (*user, entry)),
                |run| &run.user,
            )
        }
        Subject::Cluster => table(facts, &seen, books.users(), |run| &run.user),
    };
    let mut accounts = match subject {
        Subject::Cluster => table(facts, &seen, books.accounts(), |run| &run.account),
        Subject::Account(above) => {
            let within = books
                .accounts()
                .filter(|(account, _)| facts.accounts.is_within(account, above));
            table(facts, &seen, within, |run| &run.account)
        }
        Subject::User(_) => Vec::new(),
    };
    if matches!(subject, Subject::Account(above) if accounts.iter().all(|account| account.name == *above))
    {
        accounts.clear();
    }
    let runs = runs(facts, &seen);
    Some(Sheet {
        subject: subject.clone(),
        cluster: facts.cluster.to_owned(),
        period: period.label(),
        from: period.from_text(),
        to: period.to_text(),
        timezone: period.zone_name(),
        is_open: facts.now < period.to(),
        currency: facts
            .currency
            .filter(|_| books.rates().has_prices())
            .map(str::to_owned),
        has_co2: books.rates().has_co2(),
        has_gpus: books
            .all()
            .periods
            .iter()
            .any(|tally| tally.gpu_seconds > 0.0 || tally.jobs_gpu_unknown > 0),
        before: months,
        days: days(period, entry),
        gpu_models: models(entry),
        share: (*subject != Subject::Cluster).then(|| share(last(entry), last(books.all()))),
        rank: rank(facts, subject),
        members,
        accounts,
        gpu_capacity: None,
        cpu_capacity: None,
        waiting: waiting(&entry.waits),
        fixes: fixes(facts, &seen),
        runs,
        network_bound: network_bound(&seen),
        lost: lost(facts, &seen),
        budgets: budgets(facts, subject),
        breaches: breaches(facts, subject),
        notes: notes(facts, &figures, period),
        figures,
    })
}

/// Returns whether usage of this user and account belongs to the subject.
fn is_of(facts: &Facts<'_>, subject: &Subject, user: &str, account: &str) -> bool {
    match subject {
        Subject::User(name) => user == name,
        Subject::Account(name) => facts.accounts.is_within(account, name),
        Subject::Cluster => true,
    }
}

fn breaches(facts: &Facts<'_>, subject: &Subject) -> Vec<Breach> {
    let is_its = |breach: &&Breach| is_of(facts, subject, &breach.user, &breach.account);
    facts.breaches.iter().filter(is_its).cloned().collect()
}

fn last(entry: &Entry) -> &Tally {
    entry.periods.last().expect("books have a period")
}

/// Computes a run's time in each period, and the cost of its GPUs and their energy there.
fn look<'f>(facts: &Facts<'f>, assessed: &'f AssessedRun) -> SeenRun<'f> {
    let within =
        |period: &Period| held_cost(assessed, period, facts.books.rates()).unwrap_or_default();
    let (seconds, cost) = facts.books.periods().iter().map(within).unzip();
    SeenRun {
        assessed,
        seconds,
        cost,
    }
}

/// Returns the run time within a period in seconds, and the cost of GPUs and their energy. `None`
/// if the run lies outside.
fn held_cost(assessed: &AssessedRun, period: &Period, rates: &Rates) -> Option<(f64, Cost)> {
    let run = &assessed.run;
    let efficiency = &assessed.efficiency;
    let joules = efficiency.gpu_energy_joules.unwrap_or(0.0);
    let held = HeldAmounts {
        gpus: run.gpus.unwrap_or(0),
        gpu_watts: joules / efficiency.held_seconds.max(1) as f64,
        ..HeldAmounts::default()
    };
    let from = run.start.unwrap_or_default().max(period.from());
    let to = run.end.unwrap_or_default().min(period.to());
    (from < to).then(|| {
        (
            (to - from) as f64,
            rates.cost(&held, run.gpu_model.as_deref(), from, to),
        )
    })
}

/// Returns the cost of the measured energy of a run in a period.
pub fn energy_money(assessed: &AssessedRun, period: &Period, rates: &Rates) -> f64 {
    let cost = held_cost(assessed, period, rates).map_or_else(Cost::default, |(_, cost)| cost);
    cost.money - cost.gpu_money
}

/// Computes the figures of one period from usage and assessed runs.
fn figures(facts: &Facts<'_>, entry: &Entry, seen: &[&SeenRun<'_>], at: usize) -> Figures {
    let tally = &entry.periods[at];
    let period = &facts.books.periods()[at];
    let mut figures = Figures {
        period: period.label(),
        is_partial: (facts.records_from)
            .is_some_and(|begin| begin > period.from() + FIRST_JOB_DELAY),
        jobs_started: tally.jobs_started,
        jobs_ended: tally.jobs_ended,
        jobs_failed: tally.jobs_failed,
        jobs_gpu_unknown: tally.jobs_gpu_unknown,
        gpu_hours: tally.gpu_seconds / HOUR,
        cpu_hours: tally.cpu_seconds / HOUR,
        mem_gib_hours: tally.gib_seconds / HOUR,
        money: tally.cost.money,
        ..Figures::default()
    };
    let mut utilization = Mean::default();
    let mut cpu = Mean::default();
    for seen in seen.iter().filter(|seen| seen.seconds[at] > 0.0) {
        let efficiency = &seen.assessed.efficiency;
        let cost = &seen.cost[at];
        let share = seen.share(at);
        let held = efficiency.held_gpu_seconds.unwrap_or(0.0);
        figures.runs_assessed += 1;
        figures.runs_measured += u64::from(efficiency.is_measured(facts.rules));
        figures
            .split_gpu_hours
            .add(&efficiency.split(), share / HOUR);
        if held > 0.0 {
            figures
                .split_money
                .add(&efficiency.split(), cost.gpu_money / held);
        }
        figures.limit_excess_gpu_hours += efficiency.limit_excess_gpu_seconds * share / HOUR;
        figures.kwh += cost.kwh;
        figures.co2_kg += cost.co2_grams / 1e3;
        figures.money += cost.money - cost.gpu_money;
        utilization.add(
            efficiency.gpu_utilization_mean,
            held * efficiency.coverage_ratio * share,
        );
        cpu.add(
            efficiency.cpu_ratio,
            seen.assessed.run.cpus.unwrap_or(0) as f64 * seen.seconds[at],
        );
    }
    figures.gpu_utilization = utilization.value();
    figures.cpu_ratio = cpu.value();
    figures
}

/// Weighted mean of the known values.
#[derive(Default)]
struct Mean(f64, f64);

impl Mean {
    fn add(&mut self, value: Option<f64>, weight: f64) {
        if let Some(value) = value {
            self.0 += value * weight;
            self.1 += weight;
        }
    }

    fn value(&self) -> Option<f64> {
        (self.1 > 0.0).then(|| self.0 / self.1)
    }
}

fn credited(facts: &Facts<'_>, subject: &Subject, period: &Period) -> f64 {
    let is_its = |credit: &&Credit| {
        let is_in_period = period.from() <= credit.credited_to && credit.credited_to < period.to();
        is_in_period && is_of(facts, subject, &credit.user, &credit.account)
    };
    let given = in_force(facts.credits).filter(is_its);
    given.fold(0.0, |sum, credit| sum + credit.gpu_seconds) / HOUR
}

/// Returns the members with usage in the last period, largest usage first.
fn table<'e>(
    facts: &Facts<'_>,
    seen: &[SeenRun<'_>],
    entries: impl Iterator<Item = (&'e str, &'e Entry)>,
    key: fn(&JobRun) -> &String,
) -> Vec<Member> {
    let at = facts.books.periods().len() - 1;
    let mut by_name: HashMap<&str, Vec<&SeenRun<'_>>> = HashMap::new();
    for seen in seen.iter().filter(|seen| seen.is_in_last()) {
        by_name
            .entry(key(&seen.assessed.run))
            .or_default()
            .push(seen);
    }
    let member = |(name, entry): (&str, &Entry)| Member {
        name: name.to_owned(),
        figures: figures(
            facts,
            entry,
            by_name.get(name).map(Vec::as_slice).unwrap_or_default(),
            at,
        ),
        wait_mean_hours: wait_mean(&entry.waits).map(|seconds| seconds / HOUR),
    };
    let mut members: Vec<Member> = entries
        .filter(|(_, entry)| is_used(last(entry)))
        .map(member)
        .collect();
    members.sort_by(|a, b| {
        let order = |member: &Member| (member.figures.gpu_hours, member.figures.cpu_hours);
        let a_used = order(a);
        let b_used = order(b);
        b_used
            .0
            .total_cmp(&a_used.0)
            .then(b_used.1.total_cmp(&a_used.1))
            .then_with(|| a.name.cmp(&b.name))
    });
    members
}

fn is_used(tally: &Tally) -> bool {
    tally.cpu_seconds > 0.0 || tally.gpu_seconds > 0.0 || tally.jobs_started > 0
}

fn days(period: &Period, entry: &Entry) -> Vec<Day> {
    let mut date = period.first_day();
    let mut days = Vec::new();
    for (gpu_seconds, cpu_seconds) in &entry.days {
        days.push(Day {
            date: date.to_string(),
            gpu_hours: gpu_seconds / HOUR,
            cpu_hours: cpu_seconds / HOUR,
        });
        date = date.tomorrow().unwrap_or(date);
    }
    days
}

fn models(entry: &Entry) -> Vec<Part> {
    let name = |name: &String| {
        if name.is_empty() {
            "unknown model".to_owned()
        } else {
            name.clone()
        }
    };
    let mut parts: Vec<Part> = entry
        .models
        .iter()
        .map(|(model, seconds)| Part {
            name: name(model),
            gpu_hours: seconds / HOUR,
        })
        .collect();
    parts.sort_by(|a, b| {
        b.gpu_hours
            .total_cmp(&a.gpu_hours)
            .then_with(|| a.name.cmp(&b.name))
    });
    parts
}

fn share(of: &Tally, all: &Tally) -> Share {
    let ratio = |of: f64, all: f64| (all > 0.0).then(|| of / all);
    Share {
        gpu: ratio(of.gpu_seconds, all.gpu_seconds),
        cpu: ratio(of.cpu_seconds, all.cpu_seconds),
    }
}

fn rank(facts: &Facts<'_>, subject: &Subject) -> Option<Rank> {
    let Subject::User(own) = subject else {
        return None;
    };
    let by_gpu = last(facts.books.all()).gpu_seconds > 0.0;
    let used = |entry: &Entry| if by_gpu { last(entry).gpu_seconds } else { last(entry).cpu_seconds } / HOUR;
    let mut users: Vec<(&str, &Entry)> = facts
        .books
        .users()
        .filter(|(_, entry)| used(entry) > 0.0)
        .collect();
    users.sort_by(|(a_name, a), (b_name, b)| {
        used(b).total_cmp(&used(a)).then_with(|| a_name.cmp(b_name))
    });
    let place = users.iter().position(|(name, _)| name == own)? + 1;
    let row = |(at, (name, entry)): (usize, &(&str, &Entry))| RankRow {
        place: at + 1,
        name: (!facts.pseudonyms || name == own).then(|| (*name).to_owned()),
        is_self: name == own,
        hours: used(entry),
    };
    let rows = users
        .iter()
        .enumerate()
        .map(row)
        .filter(|row| row.place <= FIRST_PLACES || row.is_self)
        .collect();
    let unit = if by_gpu { "GPU-hours" } else { "CPU-hours" }.to_owned();
    Some(Rank {
        place,
        of: users.len(),
        unit,
        rows,
    })
}

fn waiting(waits: &[u32]) -> Option<Waiting> {
    let mean_seconds = wait_mean(waits)?;
    let mut waits = waits.to_vec();
    let mut quantile = |q: f64| {
        let at = ((waits.len() as f64 * q).ceil() as usize).clamp(1, waits.len()) - 1;
        u64::from(*waits.select_nth_unstable(at).1)
    };
    Some(Waiting {
        mean_seconds,
        median_seconds: quantile(0.5),
        p90_seconds: quantile(0.9),
        longest_seconds: quantile(1.0),
        runs: waits.len() as u64,
    })
}

fn wait_mean(waits: &[u32]) -> Option<f64> {
    let sum: u64 = waits.iter().map(|wait| u64::from(*wait)).sum();
    (!waits.is_empty()).then(|| sum as f64 / waits.len() as f64)
}

/// Combines equal advice for several runs of one script. The amount suits all of them.
fn fixes(facts: &Facts<'_>, seen: &[SeenRun<'_>]) -> Vec<FixRow> {
    struct Wanted {
        row: FixRow,
        amount: u64,
        most: f64,
        held: f64,
    }
    let mut wanted: BTreeMap<(&str, &str, FixKind), Wanted> = BTreeMap::new();
    for seen in seen.iter().filter(|seen| seen.is_in_last()) {
        let run = &seen.assessed.run;
        let efficiency = &seen.assessed.efficiency;
        let share = seen.share(seen.seconds.len() - 1);
        let cost = seen.cost.last().copied().unwrap_or_default();
        let held = efficiency.held_gpu_seconds.unwrap_or(0.0);
        let job = run
            .name
            .as_deref()
            .filter(|name| !name.is_empty())
            .unwrap_or(&run.job_id);
        for advice in hints(run, efficiency, facts.rules) {
            let spared = advice.spares_gpu_seconds * share;
            let row = wanted
                .entry((&run.user, job, advice.fix))
                .or_insert_with(|| Wanted {
                    row: FixRow {
                        job: job.to_owned(),
                        user: run.user.clone(),
                        fix: advice.fix,
                        line: String::new(),
                        why: String::new(),
                        runs: 0,
                        gpu_hours: 0.0,
                        money: 0.0,
                    },
                    amount: 0,
                    most: -1.0,
                    held: 0.0,
                });
            row.row.runs += 1;
            row.row.gpu_hours += spared / HOUR;
            row.row.money += if held > 0.0 {
                cost.gpu_money * advice.spares_gpu_seconds / held
            } else {
                0.0
            };
            row.amount = row.amount.max(advice.amount);
            row.held += efficiency.held_seconds as f64 * share;
            if spared > row.most {
                row.most = spared;
                row.row.why = advice.why;
            }
        }
    }
    let mut rows: Vec<Wanted> = wanted.into_values().collect();
    rows.sort_by(|a, b| {
        b.row
            .gpu_hours
            .total_cmp(&a.row.gpu_hours)
            .then(b.held.total_cmp(&a.held))
    });
    let mut rows: Vec<FixRow> = rows
        .into_iter()
        .map(|Wanted { row, amount, .. }| FixRow {
            line: row.fix.line(amount),
            ..row
        })
        .collect();
    // Different advice helps more than the same advice five times.
    let mut of_kind: BTreeMap<FixKind, usize> = BTreeMap::new();
    rows.retain(|row| {
        let seen = of_kind.entry(row.fix).or_default();
        *seen += 1;
        *seen <= MOST_OF_A_KIND
    });
    rows.truncate(MOST_FIXES);
    rows
}

fn runs(facts: &Facts<'_>, seen: &[SeenRun<'_>]) -> Vec<RunRow> {
    let mut found: Vec<&SeenRun<'_>> = seen.iter().filter(|seen| seen.is_in_last()).collect();
    let wasted = |seen: &SeenRun<'_>| seen.assessed.efficiency.split().wasted();
    found.sort_by(|a, b| {
        wasted(b)
            .total_cmp(&wasted(a))
            .then_with(|| a.assessed.run.job_id.cmp(&b.assessed.run.job_id))
    });
    found.truncate(facts.most_runs);
    found
        .into_iter()
        .map(|seen| run_row(facts, seen.assessed))
        .collect()
}

fn run_row(facts: &Facts<'_>, AssessedRun { run, efficiency }: &AssessedRun) -> RunRow {
    let mut split_gpu_hours = Split::default();
    split_gpu_hours.add(&efficiency.split(), 1.0 / HOUR);
    let zone = facts.books.periods().last().map(Period::zone);
    let end = run
        .end
        .and_then(|end| Some(Timestamp::try_from(end).ok()?.to_zoned(zone?)));
    RunRow {
        job_id: run.job_id.clone(),
        name: run.name.clone(),
        user: run.user.clone(),
        account: run.account.clone(),
        state: run.state.clone(),
        end: end.map_or_else(String::new, |end| {
            end.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
        }),
        hours: efficiency.held_seconds as f64 / HOUR,
        gpus: run.gpus,
        gpu_model: run.gpu_model.clone(),
        // Efficiencies stored by older versions may contain -0.0.
        coverage: efficiency.coverage_ratio + 0.0,
        gpu_utilization: efficiency.gpu_utilization_mean,
        gpu_utilization_p95: efficiency.gpu_utilization_p95,
        idle_longest_hours: efficiency
            .gpu_idle_longest_seconds
            .map(|seconds| seconds / HOUR),
        gpu_memory_peak_ratio: (efficiency.gpu_memory_peak_bytes)
            .zip(
                efficiency
                    .gpu_memory_total_bytes
                    .filter(|total| *total > 0.0),
            )
            .map(|(peak, total)| peak / total),
        gpu_sm: efficiency.gpu_sm_mean,
        cpu_ratio: efficiency.cpu_ratio,
        memory_ratio: efficiency.memory_ratio,
        kwh: efficiency.gpu_energy_joules.map(|joules| joules / 3.6e6),
        cause: cause(&split_gpu_hours).to_owned(),
        split_gpu_hours,
    }
}

/// Returns the cause of the largest waste, in words.
fn cause(split: &Split) -> &'static str {
    let causes = [
        (split.idle, "did nothing"),
        (split.streak, "idle streaks"),
        (split.low, "low utilization"),
        (split.lost, "lost to a fault"),
    ];
    let most = causes.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    most.filter(|(hours, _)| *hours > 0.0)
        .map_or("", |(_, name)| name)
}

fn network_bound(seen: &[SeenRun<'_>]) -> Vec<NetworkRow> {
    let mut on_one_node: HashMap<&str, Mean> = HashMap::new();
    for seen in seen
        .iter()
        .filter(|seen| seen.assessed.run.nodes == Some(1))
    {
        let efficiency = &seen.assessed.efficiency;
        let weight = efficiency.held_gpu_seconds.unwrap_or(0.0) * efficiency.coverage_ratio;
        on_one_node
            .entry(&seen.assessed.run.user)
            .or_default()
            .add(efficiency.gpu_utilization_mean, weight);
    }
    let bound = seen
        .iter()
        .filter(|seen| seen.is_in_last() && seen.assessed.efficiency.is_network_bound);
    let row = |AssessedRun { run, efficiency }: &AssessedRun| NetworkRow {
        job_id: run.job_id.clone(),
        name: run.name.clone(),
        user: run.user.clone(),
        nodes: run.nodes.unwrap_or(0),
        link_bound: efficiency.link_bound_ratio.unwrap_or(0.0),
        gpu_utilization: efficiency.gpu_utilization_mean,
        single_node_utilization: on_one_node.get(run.user.as_str()).and_then(Mean::value),
    };
    let mut rows: Vec<NetworkRow> = bound.map(|seen| row(seen.assessed)).collect();
    rows.sort_by(|a, b| {
        b.link_bound
            .total_cmp(&a.link_bound)
            .then_with(|| a.job_id.cmp(&b.job_id))
    });
    rows
}

fn lost(facts: &Facts<'_>, seen: &[SeenRun<'_>]) -> Vec<LostRow> {
    let credited: HashSet<(&str, Option<UnixTime>)> = in_force(facts.credits)
        .filter_map(|credit| Some((credit.job_id.as_deref()?, credit.submit)))
        .collect();
    let row = |AssessedRun { run, efficiency }: &AssessedRun| {
        Some(LostRow {
            job_id: run.job_id.clone(),
            name: run.name.clone(),
            user: run.user.clone(),
            nodes: run.node_list.clone().unwrap_or_default(),
            fault: efficiency.fault.clone()?,
            gpu_hours: efficiency.lost_gpu_seconds / HOUR,
            cpu_hours: efficiency.lost_cpu_seconds / HOUR,
            is_credited: credited.contains(&(run.job_id.as_str(), Some(run.submit))),
        })
    };
    let mut rows: Vec<LostRow> = seen
        .iter()
        .filter(|seen| seen.is_in_last())
        .filter_map(|seen| row(seen.assessed))
        .collect();
    rows.sort_by(|a, b| {
        b.gpu_hours
            .total_cmp(&a.gpu_hours)
            .then_with(|| a.job_id.cmp(&b.job_id))
    });
    rows
}

fn budgets(facts: &Facts<'_>, subject: &Subject) -> Vec<BudgetUse> {
    let is_its = |budget: &&BudgetUse| match subject {
        Subject::User(name) => !budget.is_account && budget.name == *name,
        Subject::Account(name) => budget.is_account && budget.name == *name,
        Subject::Cluster => true,
    };
    facts.budgets.iter().filter(is_its).cloned().collect()
}

fn notes(facts: &Facts<'_>, figures: &Figures, period: &Period) -> Vec<String> {
    let mut notes = Vec::new();
    let runs = |count: u64| {
        if count == 1 {
            "1 run".to_owned()
        } else {
            format!("{count} runs")
        }
    };
    if facts.now < period.to() {
        notes.push("The period has not ended: these are its figures so far.".to_owned());
    }
    if figures.jobs_gpu_unknown > 0 {
        notes.push(format!(
            "The GPUs of {} are unknown and in no sum.",
            runs(figures.jobs_gpu_unknown)
        ));
    }
    let unmeasured = figures.runs_assessed - figures.runs_measured;
    if unmeasured > 0 {
        let have = if unmeasured == 1 { "has" } else { "have" };
        notes.push(format!(
            "{} {have} too few samples for a verdict.",
            runs(unmeasured)
        ));
    }
    let unassessed = figures.gpu_hours - figures.split_gpu_hours.held();
    if unassessed > (0.005 * figures.gpu_hours).max(0.05) {
        notes.push(format!(
            "{unassessed:.1} GPU-hours belong to runs that have not ended or have no efficiency."
        ));
    }
    notes
}
