//! Use of budgets: hours and money that users and accounts have used of what they may use.

use super::period::{the_cluster, the_period, the_zone};
use super::{AccountingConfig, AnswerError};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use std::collections::BTreeSet;
use takt_accounting::efficiency::AssessedRun;
use takt_accounting::sheet::{Books, Entry, Journal, Tally, energy_money};
use takt_accounting::{
    Accounts, BudgetConfig, BudgetPeriod, BudgetUse, Credit, Period, Rates, RunOut, Unit, in_force,
    run_out,
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

    // A year is still open where its month is not, and neither says anything of a period that has ended.
    let is_open = |books: &Books<'_>| books.periods().last().is_some_and(|one| has(one, now));
    let zone = ledgers.month.periods().last().map(Period::zone);
    let recent = match &zone {
        Some(zone)
            if !config.budgets.is_empty() && (is_open(ledgers.month) || is_open(&of_year)) =>
        {
            recent_days(records, cluster, zone, now)?
        }
        _ => Vec::new(),
    };
    let of_recent = books(records, cluster, &recent, ledgers.rates, None, now)?;

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
            let mut uses = budget.used(gpu_hours, money, currency);
            for one in &mut uses {
                let is_money = one.unit == currency;
                one.run_out = ledger.run_out(&of_recent, one.limit - one.used, is_money, now);
                one.outlook = one
                    .run_out
                    .zip(zone.as_ref())
                    .map(|(run_out, zone)| run_out.sentence(budget.period.name(), zone));
            }
            used.extend(uses);
        }
    }
    Ok(used)
}

/// Whether the instant is in the period.
fn has(period: &Period, at: Timestamp) -> bool {
    let at = UnixTime::from(at);
    period.from() <= at && at < period.to()
}

/// Days before today that tell the pace at which budgets are used.
const RECENT_DAYS: i64 = 28;

/// The last whole days of which there are records.
fn recent_days(
    records: &Records<'_>,
    cluster: &str,
    zone: &TimeZone,
    now: Timestamp,
) -> Result<Vec<Period>, AnswerError> {
    let Some((records_from, _)) = records.extent(cluster)? else {
        return Ok(Vec::new());
    };
    let today = now.to_zoned(zone.clone()).date();
    let first = today
        .checked_sub(RECENT_DAYS.days())
        .map_err(AnswerError::failed)?;

    let span = Period::span(&first.to_string(), &today.to_string(), zone, now)
        .map_err(AnswerError::failed)?;
    let days = span.slices(Unit::Day);
    // A day in which the records begin has less than was used.
    Ok(days
        .iter()
        .filter(|day| records_from <= day.from)
        .map(|day| Period::of_slice(day, zone))
        .collect())
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
    /// Usage of the budget's user or account.
    fn entry(&self, books: &Books<'_>) -> Option<Entry> {
        // A user comes before an account.
        match (&self.budget.user, &self.budget.account) {
            (Some(user), _) => books.user(user).cloned(),
            (None, Some(account)) => books.within(account, self.ledgers.accounts),
            (None, None) => None,
        }
    }

    /// When `left` GPU-hours or `left` of the money are used up, at the pace of the `recent` days.
    fn run_out(
        &self,
        recent: &Books<'_>,
        left: f64,
        is_money: bool,
        now: Timestamp,
    ) -> Option<RunOut> {
        let period = self.books.periods().last().filter(|one| has(one, now))?;
        let now = UnixTime::from(now);

        // Who used nothing has days of nothing.
        let mut tallies = self.entry(recent).unwrap_or_default().periods;
        tallies.resize_with(recent.periods().len(), Tally::default);
        let daily: Vec<f64> = tallies
            .iter()
            .map(|tally| match is_money {
                true => tally.cost.money,
                false => tally.gpu_seconds / 3600.0,
            })
            .collect();

        let later = period.midnights().into_iter().filter(|at| *at > now);
        let days: Vec<UnixTime> = [now].into_iter().chain(later).collect();
        run_out(&daily, left, &days)
    }

    /// GPU-hours and money used; `None` without a period.
    fn used(&self, records: &Records<'_>) -> Result<Option<(f64, f64)>, AnswerError> {
        let Some(period) = self.books.periods().last() else {
            return Ok(None);
        };
        let rates = self.ledgers.rates;
        // The period of the ledger is the last one.
        let tally = self
            .entry(self.books)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{database, import};
    use takt_accounting::{LEAST_DAYS, RatesConfig};
    use takt_jobs::JobRun;

    const DAY: i64 = 86_400;

    /// Day `number` of 2026-10, in UTC; days of September are below 1.
    fn october(number: i64) -> UnixTime {
        UnixTime(1_790_812_800 + (number - 1) * DAY)
    }

    /// The use of a budget of 600 GPU-hours on the morning of 11 October, with one GPU held from day `first`.
    fn used_since(first: i64) -> BudgetUse {
        let (_root, database) = database();
        let runs = (first..11).map(|number| JobRun {
            cluster: "lab".into(),
            job_id: (number + 100).to_string(),
            submit: october(number),
            start: Some(october(number)),
            end: Some(october(number + 1)),
            state: "COMPLETED".into(),
            user: "ada".into(),
            account: "physics".into(),
            gpus: Some(1),
            ..JobRun::default()
        });
        import(&database, Some("UTC"), runs);

        let config = AccountingConfig {
            budgets: vec![BudgetConfig {
                account: Some("physics".into()),
                gpu_hours: Some(600.0),
                ..BudgetConfig::default()
            }],
            ..AccountingConfig::default()
        };
        let now = Timestamp::from_second(october(11).0).unwrap();
        let records = Records::of(&database);
        let rates = Rates::new(&RatesConfig::default(), &TimeZone::UTC);
        let month = [Period::month("2026-10", &TimeZone::UTC, now).unwrap()];
        let books = books(&records, "lab", &month, &rates, None, now).unwrap();
        let accounts = records.accounts("lab").unwrap();
        let ledgers = Ledgers {
            month: &books,
            accounts: &accounts,
            rates: &rates,
        };
        let mut all = budgets(&records, "lab", &ledgers, &config, now).unwrap();
        all.remove(0)
    }

    #[test]
    fn a_budget_says_when_it_is_used_up() {
        // 240 of 600 hours are used, and 24 a day are: 15 days more.
        let used = used_since(-40);
        assert_eq!(used.used, 240.0);
        assert_eq!(used.run_out.unwrap().median, Some(october(26)));
        assert_eq!(
            used.outlook.unwrap(),
            "At the pace of the last weeks it is used up around 26 October."
        );

        // Records of a few days tell no pace.
        let few = 11 - i64::try_from(LEAST_DAYS).unwrap();
        assert!(used_since(few).run_out.is_some());
        let used = used_since(few + 1);
        assert_eq!((used.run_out, used.outlook), (None, None));
    }
}
