//! Builds a report from the sums of usage and the assessed runs.

mod figures;
mod runs;
mod tables;

use super::books::{Books, Entry};
use super::{Figures, Part, Sheet, Subject};
use crate::efficiency::{AssessedRun, EfficiencyConfig};
use crate::rates::Cost;
use crate::{Accounts, Breach, BudgetUse, Credit, Period};
pub use figures::energy_money;
use figures::{credited, figures, held_cost, last, waiting};
use jiff::Timestamp;
use runs::{fixes, lost, network_bound, runs};
use tables::{days, models, rank, share, table};
use takt_model::{UnixTime, words};

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
            // The quotient would be undefined.
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
    // The last period is the one of the report.
    let mut figures = months.pop()?;

    // Usage before the records began is unknown, not 0.
    if let Some(records_from) = facts.records_from {
        let unrecorded = |period: &&Period| period.to() <= records_from;
        let unrecorded = books
            .periods()
            .iter()
            .filter(unrecorded)
            .count()
            .min(months.len());
        months.drain(..unrecorded);
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

    // A table of the account alone would repeat its figures.
    if matches!(subject, Subject::Account(above) if accounts.iter().all(|account| account.name == *above))
    {
        accounts.clear();
    }

    let runs = runs(facts, &seen);
    let gpu_models = models(entry);

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
        notes: notes(facts, &figures, &gpu_models, period),
        gpu_models,
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
    facts
        .breaches
        .iter()
        .filter(|breach| is_of(facts, subject, &breach.user, &breach.account))
        .cloned()
        .collect()
}

/// Computes a run's time in each period, and the cost of its GPUs and their energy there.
fn look<'f>(facts: &Facts<'f>, assessed: &'f AssessedRun) -> SeenRun<'f> {
    let (seconds, cost) = facts
        .books
        .periods()
        .iter()
        .map(|period| held_cost(assessed, period, facts.books.rates()).unwrap_or_default())
        .unzip();
    SeenRun {
        assessed,
        seconds,
        cost,
    }
}

fn budgets(facts: &Facts<'_>, subject: &Subject) -> Vec<BudgetUse> {
    facts
        .budgets
        .iter()
        .filter(|budget| match subject {
            Subject::User(name) => !budget.is_account && budget.name == *name,
            Subject::Account(name) => budget.is_account && budget.name == *name,
            Subject::Cluster => true,
        })
        .cloned()
        .collect()
}

/// Returns the note about models of GPUs without a price.
fn unpriced(facts: &Facts<'_>, models: &[Part], period: &Period) -> Option<String> {
    facts.currency?;
    let rates = facts.books.rates();
    let unpriced = models
        .iter()
        .filter(|model| rates.lacks_price(&model.name, period.from(), period.to()));
    let names: Vec<&str> = unpriced.clone().map(|model| model.name.as_str()).collect();
    let hours = unpriced.fold(0.0, |sum, model| sum + model.gpu_hours);
    (hours > 0.0).then(|| {
        format!(
            "No price for {}: {} GPU-hours cost nothing here.",
            names.join(", "),
            words::amount(hours)
        )
    })
}

/// Returns the note about usage before the first rate card.
fn before_prices(facts: &Facts<'_>, figures: &Figures, period: &Period) -> Option<String> {
    facts.currency?;
    let (first, ..) = facts.books.rates().cards().next()?;
    let is_used = figures.gpu_hours > 0.0 || figures.cpu_hours > 0.0;
    let day = Timestamp::from_second(first.0)
        .ok()?
        .to_zoned(period.zone())
        .date();
    (is_used && period.from() < first)
        .then(|| format!("Prices begin on {day}: what was used before costs nothing here."))
}

fn notes(facts: &Facts<'_>, figures: &Figures, models: &[Part], period: &Period) -> Vec<String> {
    let mut notes = Vec::new();
    let runs = |count: u64| {
        if count == 1 {
            "1 run".to_owned()
        } else {
            format!("{count} runs")
        }
    };

    notes.extend(
        facts
            .records_from
            .and_then(|records_from| period.unrecorded_note(records_from)),
    );
    if facts.now < period.to() {
        notes.push("The period has not ended: these are its figures so far.".to_owned());
    }

    notes.extend(before_prices(facts, figures, period));
    notes.extend(unpriced(facts, models, period));

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
    // Differences below half a percent are not worth a note.
    if unassessed > (0.005 * figures.gpu_hours).max(0.05) {
        notes.push(format!(
            "{} GPU-hours belong to runs that have not ended or have no efficiency.",
            words::amount(unassessed)
        ));
    }

    notes
}
