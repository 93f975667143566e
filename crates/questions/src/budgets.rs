//! Use of budgets: hours and money that users and accounts have used of what they may use.

use super::period::{the_cluster, the_period, the_zone};
use super::{AccountingConfig, AnswerError};
use jiff::Timestamp;
use std::collections::BTreeSet;
use takt_accounting::efficiency::AssessedRun;
use takt_accounting::sheet::{Books, Journal, energy_money};
use takt_accounting::{
    Accounts, BudgetConfig, BudgetPeriod, BudgetUse, Credit, Period, Rates, in_force,
};
use takt_model::UnixTime;
use takt_store::{Database, JobFilter, Records};

/// Use of every budget in the current month and year.
///
/// # Errors
/// When the store fails.
pub fn budgets_now(
    database: &Database,
    cluster: &str,
    config: &AccountingConfig,
) -> Result<Vec<BudgetUse>, AnswerError> {
    // Without budgets nothing is read: the records of a year may be millions.
    if config.budgets.is_empty() {
        return Ok(Vec::new());
    }
    let records = Records::of(database);
    let known = the_cluster(&records, Some(cluster), config.home.as_deref())?;
    let zone = the_zone(&known, config)?;
    let now = Timestamp::now();
    let month = [the_period(&None, &None, &None, &zone, now)?];

    let rates = Rates::new(&config.rates, &zone);
    // Budgets are compared with all usage, not with that of one account: `only` is `None`.
    let books = books(&records, &known.cluster, &month, &rates, None, now)?;
    let accounts = records.accounts(&known.cluster)?;
    let ledgers = Ledgers {
        month: &books,
        accounts: &accounts,
        rates: &rates,
    };
    budgets(&records, &known.cluster, &ledgers, config, now)
}

/// Usage and prices that budgets are compared with.
pub(super) struct Ledgers<'a> {
    /// Usage; the last period is the month of the budgets.
    pub month: &'a Books<'a>,
    /// The account tree.
    pub accounts: &'a Accounts,
    /// Prices.
    pub rates: &'a Rates,
}

/// Use of every budget in the month and the year of the period: usage and measured energy, less credits.
pub(super) fn budgets(
    records: &Records<'_>,
    cluster: &str,
    ledgers: &Ledgers<'_>,
    config: &AccountingConfig,
    now: Timestamp,
) -> Result<Vec<BudgetUse>, AnswerError> {
    let currency = config.rates.currency.as_deref().unwrap_or_default();
    let wants_year = config
        .budgets
        .iter()
        .any(|budget| budget.period == BudgetPeriod::Year);
    // A year is read only where a budget has one.
    let years: Vec<Period> = ledgers
        .month
        .periods()
        .last()
        .and_then(Period::year)
        .filter(|_| wants_year)
        .into_iter()
        .collect();
    let of_year = books(records, cluster, &years, ledgers.rates, None, now)?;

    let credits = records.credits(cluster)?;
    let has_money = config.budgets.iter().any(|budget| budget.money.is_some());
    // Energy costs money only, and reading it reads all assessed runs.
    let needs_energy = ledgers.rates.price_energy() && has_money;
    let assessed = |books: &Books<'_>| match books.periods().last() {
        Some(period) if needs_energy => records.assessed(cluster, period.from(), period.to()),
        _ => Ok(Vec::new()),
    };
    let month_runs = assessed(ledgers.month)?;
    let year_runs = assessed(&of_year)?;

    let mut used = Vec::new();
    for budget in &config.budgets {
        let (books, assessed) = match budget.period {
            BudgetPeriod::Month => (ledgers.month, &month_runs),
            BudgetPeriod::Year => (&of_year, &year_runs),
        };
        let ledger = BudgetLedger {
            budget,
            books,
            assessed,
            ledgers,
            credits: &credits,
        };
        if let Some((gpu_hours, money)) = ledger.used(records)? {
            used.extend(budget.used(gpu_hours, money, currency));
        }
    }
    Ok(used)
}

/// The usage of one budget's user or account.
struct BudgetLedger<'a> {
    budget: &'a BudgetConfig,
    /// Usage of the budget's period.
    books: &'a Books<'a>,
    /// Finished runs of that period, with their energy.
    assessed: &'a [AssessedRun],
    ledgers: &'a Ledgers<'a>,
    credits: &'a [Credit],
}

impl BudgetLedger<'_> {
    /// GPU-hours and money used; `None` without a period.
    fn used(&self, records: &Records<'_>) -> Result<Option<(f64, f64)>, AnswerError> {
        let Some(period) = self.books.periods().last() else {
            return Ok(None);
        };
        let rates = self.ledgers.rates;
        // A user comes before an account, and the period of the ledger is the last one.
        let entry = match (&self.budget.user, &self.budget.account) {
            (Some(user), _) => self.books.user(user).cloned(),
            (None, Some(account)) => self.books.within(account, self.ledgers.accounts),
            (None, None) => None,
        };
        let tally = entry
            .and_then(|mut entry| entry.periods.pop())
            .unwrap_or_default();
        // Energy is measured, so it is priced from the assessed runs, not from the books.
        let energy: f64 = self
            .assessed
            .iter()
            .filter(|one| self.covers(&one.run.user, &one.run.account))
            .map(|one| energy_money(one, period, rates))
            .sum();

        let mut gpu_seconds = tally.gpu_seconds;
        let mut money = tally.cost.money + energy;
        // A credit counts in the period in which its run ended.
        let is_in_period = |at: UnixTime| period.from() <= at && at < period.to();
        for credit in in_force(self.credits).filter(|credit| {
            self.covers(&credit.user, &credit.account) && is_in_period(credit.credited_to)
        }) {
            gpu_seconds -= credit.gpu_seconds;
            // The model costs a query for each credit, and only prices need it.
            if self.budget.money.is_some() {
                let model = model_of(records, credit)?;
                money -= rates.at(
                    credit.gpu_seconds,
                    credit.cpu_seconds,
                    model.as_deref(),
                    credit.credited_to,
                );
            }
        }
        Ok(Some((gpu_seconds / 3600.0, money)))
    }

    /// Whether usage of this user and account counts against the budget.
    fn covers(&self, user: &str, account: &str) -> bool {
        let is_user = |name: &str| name == user;
        let is_account = |name: &str| self.ledgers.accounts.is_within(account, name);
        self.budget.user.as_deref().is_none_or(is_user)
            && self.budget.account.as_deref().is_none_or(is_account)
    }
}

/// Model of the GPUs of the credited run.
fn model_of(records: &Records<'_>, credit: &Credit) -> Result<Option<String>, AnswerError> {
    // A credit that was entered without a job has no model.
    let Some(job) = &credit.job_id else {
        return Ok(None);
    };
    let filter = JobFilter {
        cluster: Some(credit.cluster.clone()),
        job_id: Some(job.clone()),
        ..JobFilter::default()
    };
    // Job ids come round again, so the submission decides.
    let run = records
        .jobs(&filter)?
        .into_iter()
        .find(|run| run.job_id == *job && Some(run.submit) == credit.submit);
    Ok(run.and_then(|run| run.gpu_model))
}

/// Usage of the cluster in `periods`, priced by `rates`; with `only`, in these accounts.
pub(super) fn books<'p>(
    records: &Records<'_>,
    cluster: &str,
    periods: &'p [Period],
    rates: &'p Rates,
    only: Option<&BTreeSet<String>>,
    now: Timestamp,
) -> Result<Books<'p>, AnswerError> {
    let is_wanted = |account: &str| only.is_none_or(|accounts| accounts.contains(account));
    let mut journal = Journal::new(periods, rates, now.into());

    if let (Some(first), Some(last)) = (periods.first(), periods.last()) {
        records.held_runs(cluster, first.from(), last.to(), |run| {
            if is_wanted(run.account) {
                journal.add(run);
            }
        })?;
    }
    Ok(journal.close())
}
