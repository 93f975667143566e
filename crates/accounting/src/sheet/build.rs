//! Making a sheet from the books and from what was found of the runs that were assessed.

use super::books::{Books, Entry, Tally};
use super::{
    Day, Figures, FixRow, LostRow, Member, NetworkRow, Part, Rank, RankRow, RunRow, Share, Sheet,
    Subject, Waiting,
};
use crate::efficiency::{AssessedRun, EfficiencyConfig, Fix, Split, hints};
use crate::rates::{Cost, Held, Rates};
use crate::{Accounts, Breach, BudgetUse, Credit, Period, in_force};
use jiff::Timestamp;
use std::collections::{BTreeMap, HashMap, HashSet};
use takt_slurm::JobRun;

/// All that sheets are made from.
#[derive(Debug)]
pub struct Facts<'f> {
    /// The cluster.
    pub cluster: &'f str,
    /// What everybody held.
    pub books: &'f Books<'f>,
    /// Which account is above which: an account's sheet is of those below it, too.
    pub accounts: &'f Accounts,
    /// The runs of all periods of the books that were assessed.
    pub assessed: &'f [AssessedRun],
    /// The ledger of credits.
    pub credits: &'f [Credit],
    /// How far every budget is used.
    pub budgets: &'f [BudgetUse],
    /// Runs that broke policy windows.
    pub breaches: &'f [Breach],
    /// What counts as what.
    pub rules: &'f EfficiencyConfig,
    /// The money's name.
    pub currency: Option<&'f str>,
    /// Whether users' names are kept back in the rank.
    pub pseudonyms: bool,
    /// Most runs that a sheet lists.
    pub most_runs: usize,
    /// UTC seconds.
    pub now: i64,
}

/// Changes that a sheet lists.
const MOST_FIXES: usize = 5;
/// Of one kind.
const MOST_OF_A_KIND: usize = 2;
/// Places of the rank that everybody sees, besides their own.
const FIRST_PLACES: usize = 10;

const HOUR: f64 = 3600.0;

/// A run and the periods of the books that it lies in.
struct Seen<'f> {
    assessed: &'f AssessedRun,
    /// Seconds within each period.
    seconds: Vec<f64>,
    cost: Vec<Cost>,
}

impl Seen<'_> {
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

/// The sheet of a subject; `None` for one who used nothing in any period of the books.
pub fn sheet(facts: &Facts<'_>, subject: &Subject) -> Option<Sheet> {
    let books = facts.books;
    let entry: &Entry = match subject {
        Subject::User(name) => books.user(name)?,
        Subject::Account(name) => &books.within(name, facts.accounts)?,
        Subject::Cluster => books.all(),
    };
    let period = books.periods().last()?;
    let seen: Vec<Seen<'_>> = facts
        .assessed
        .iter()
        .filter(|assessed| is_of(facts, subject, &assessed.run.user, &assessed.run.account))
        .map(|assessed| look(facts, assessed))
        .collect();
    let all: Vec<&Seen<'_>> = seen.iter().collect();
    let mut months: Vec<Figures> = (0..books.periods().len())
        .map(|at| figures(facts, entry, &all, at))
        .collect();
    let mut figures = months.pop()?;
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

/// Whether what this user did under this account is the subject's.
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

/// What lies of a run in each period, with what its GPUs and their energy cost there.
fn look<'f>(facts: &Facts<'f>, assessed: &'f AssessedRun) -> Seen<'f> {
    let within =
        |period: &Period| held_cost(assessed, period, facts.books.rates()).unwrap_or_default();
    let (seconds, cost) = facts.books.periods().iter().map(within).unzip();
    Seen {
        assessed,
        seconds,
        cost,
    }
}

/// Seconds of a run in a period, and what its GPUs and their energy cost there; `None` where it was not there.
fn held_cost(assessed: &AssessedRun, period: &Period, rates: &Rates) -> Option<(f64, Cost)> {
    let (run, efficiency) = (&assessed.run, &assessed.efficiency);
    let joules = efficiency.gpu_energy_joules.unwrap_or(0.0);
    let held = Held {
        gpus: run.gpus.unwrap_or(0),
        gpu_watts: joules / efficiency.held_seconds.max(1) as f64,
        ..Held::default()
    };
    let (from, to) = (
        run.start.unwrap_or(0).max(period.from()),
        run.end.unwrap_or(0).min(period.to()),
    );
    (from < to).then(|| {
        (
            (to - from) as f64,
            rates.cost(&held, run.gpu_model.as_deref(), from, to),
        )
    })
}

/// What the measured energy of a run costs in a period: what it held costs the same without.
pub fn energy_money(assessed: &AssessedRun, period: &Period, rates: &Rates) -> f64 {
    let cost = held_cost(assessed, period, rates).map_or_else(Cost::default, |(_, cost)| cost);
    cost.money - cost.gpu_money
}

/// What an entry and the runs that were assessed make in a period.
fn figures(facts: &Facts<'_>, entry: &Entry, seen: &[&Seen<'_>], at: usize) -> Figures {
    let tally = &entry.periods[at];
    let mut figures = Figures {
        period: facts.books.periods()[at].label(),
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
    let (mut utilization, mut cpu) = (Mean::default(), Mean::default());
    for seen in seen.iter().filter(|seen| seen.seconds[at] > 0.0) {
        let (efficiency, cost, share) = (&seen.assessed.efficiency, &seen.cost[at], seen.share(at));
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

/// A mean by weight of what is known.
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
    in_force(facts.credits)
        .filter(is_its)
        .map(|credit| credit.gpu_seconds)
        .sum::<f64>()
        / HOUR
}

/// Those who used anything in the last period, the most first.
fn table<'e>(
    facts: &Facts<'_>,
    seen: &[Seen<'_>],
    entries: impl Iterator<Item = (&'e str, &'e Entry)>,
    key: fn(&JobRun) -> &String,
) -> Vec<Member> {
    let at = facts.books.periods().len() - 1;
    let mut by_name: HashMap<&str, Vec<&Seen<'_>>> = HashMap::new();
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
        let (a_used, b_used) = (order(a), order(b));
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

/// What several runs of one script want alike is one change, with the amount that suits all of them.
fn fixes(facts: &Facts<'_>, seen: &[Seen<'_>]) -> Vec<FixRow> {
    struct Wanted {
        row: FixRow,
        amount: u64,
        most: f64,
        held: f64,
    }
    let mut wanted: BTreeMap<(&str, &str, Fix), Wanted> = BTreeMap::new();
    for seen in seen.iter().filter(|seen| seen.is_in_last()) {
        let (run, efficiency) = (&seen.assessed.run, &seen.assessed.efficiency);
        let (share, cost) = (
            seen.share(seen.seconds.len() - 1),
            seen.cost.last().copied().unwrap_or_default(),
        );
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
    // Five times the same advice helps less than the next best one.
    let mut of_kind: BTreeMap<Fix, usize> = BTreeMap::new();
    rows.retain(|row| {
        let seen = of_kind.entry(row.fix).or_default();
        *seen += 1;
        *seen <= MOST_OF_A_KIND
    });
    rows.truncate(MOST_FIXES);
    rows
}

fn runs(facts: &Facts<'_>, seen: &[Seen<'_>]) -> Vec<RunRow> {
    let mut found: Vec<&Seen<'_>> = seen.iter().filter(|seen| seen.is_in_last()).collect();
    let wasted = |seen: &Seen<'_>| seen.assessed.efficiency.split().wasted();
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
        .and_then(|end| Some(Timestamp::from_second(end).ok()?.to_zoned(zone?)));
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
        coverage: efficiency.coverage_ratio,
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

/// The cause that took the most, in words.
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

fn network_bound(seen: &[Seen<'_>]) -> Vec<NetworkRow> {
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

fn lost(facts: &Facts<'_>, seen: &[Seen<'_>]) -> Vec<LostRow> {
    let credited: HashSet<(&str, Option<i64>)> = in_force(facts.credits)
        .filter_map(|credit| Some((credit.job_id.as_deref()?, credit.submit)))
        .collect();
    let row = |AssessedRun { run, efficiency }: &AssessedRun| {
        Some(LostRow {
            job_id: run.job_id.clone(),
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
        notes.push(format!(
            "Too little was measured of {} to say how well they used what they held.",
            runs(unmeasured)
        ));
    }
    let unassessed = figures.gpu_hours - figures.split_gpu_hours.held();
    if unassessed > 0.005 * figures.gpu_hours.max(1.0) {
        notes.push(format!(
            "{unassessed:.1} GPU-hours belong to runs that go on or were never assessed."
        ));
    }
    notes
}
