//! Sheets, credits and assessments: what is asked, and how it is answered from the records.

use super::capacity::report;
use super::near::did_you_mean;
use super::questions::{the_cluster, the_period, the_zone};
use super::{Problem, blocking, blocking_store};
use crate::assess::{self, Assessed};
use axum::extract::{Json, Query, State};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io;
use takt_accounting::capacity::CapacityRow;
use takt_accounting::efficiency::EfficiencyConfig;
use takt_accounting::sheet::{Books, Entry, Facts, Journal, Sheet, Subject, energy_money, sheet};
use takt_accounting::{
    Accounts, Breach, BudgetConfig, BudgetPeriod, BudgetUse, Credit, Period, PolicyWindow, Rates,
    RatesConfig, in_force,
};
use takt_store::{Database, Due, JobFilter, KnownCluster, Records, SentReport, Store, StoreError};

/// Where sheets are asked for.
pub const SHEETS_PATH: &str = "/api/takt/v1/report/sheets";
/// Where credits are listed, and posted.
pub const CREDITS_PATH: &str = "/api/takt/v1/credits";
/// Where the log of reports that were sent is asked for, and added to.
pub const SENT_PATH: &str = "/api/takt/v1/report/sent";
/// Where an assessment is posted.
pub const ASSESS_PATH: &str = "/api/takt/v1/assess";

/// What accounting needs of the configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AccountingConfig {
    /// What counts as idle, wasteful and measured.
    pub efficiency: EfficiencyConfig,
    /// Prices of GPUs, CPUs, memory and energy.
    pub rates: RatesConfig,
    /// What users and accounts may use.
    pub budgets: Vec<BudgetConfig>,
    /// When jobs may not run on some nodes.
    pub policy_windows: Vec<PolicyWindow>,
    /// Whether users' names are kept back in the rank.
    pub pseudonyms: bool,
}

/// Which sheets?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SheetQuestion {
    /// A month, `2026-10`; the current one where no period is given.
    pub month: Option<String>,
    /// The first day.
    pub from: Option<String>,
    /// The first day that is outside.
    pub to: Option<String>,
    /// This user's.
    pub user: Option<String>,
    /// This account's.
    pub account: Option<String>,
    /// Everybody's own: those of all users and accounts, and the cluster's. Without any of these three, the cluster's.
    pub everybody: bool,
    /// Most runs that a sheet lists.
    pub runs: usize,
    /// The cluster; may be left out where there is one only.
    pub cluster: Option<String>,
}

impl Default for SheetQuestion {
    fn default() -> Self {
        let (month, from, to, user, account, cluster) = (None, None, None, None, None, None);
        Self {
            month,
            from,
            to,
            user,
            account,
            everybody: false,
            runs: 10,
            cluster,
        }
    }
}

/// Which runs to assess?
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AssessQuestion {
    /// Runs that ended in this month; in the current one where no period is given.
    pub month: Option<String>,
    /// The first day.
    pub from: Option<String>,
    /// The first day that is outside.
    pub to: Option<String>,
    /// Those that were assessed already as well.
    pub again: bool,
    /// The cluster; may be left out where there is one only.
    pub cluster: Option<String>,
}

/// A credit to enter: the hours of a run that was lost, or the revocation of an earlier credit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CreditOrder {
    /// The job whose last run was lost.
    pub job_id: Option<String>,
    /// The number of the credit to take back.
    pub revokes: Option<i64>,
    /// GPU-hours to give; all that the run held where this is left out.
    pub gpu_hours: Option<f64>,
    /// Why.
    pub reason: String,
    /// Who orders it.
    pub granted_by: String,
    /// The cluster; may be left out where there is one only.
    pub cluster: Option<String>,
}

/// Periods before the reported one that the trend shows.
const BEFORE: usize = 3;

/// Answers a [`SheetQuestion`], as of now.
///
/// # Errors
/// A question that makes no sense, a subject that used nothing, or a database that does not answer.
pub fn sheets(
    database: &Database,
    question: &SheetQuestion,
    config: &AccountingConfig,
) -> Result<Vec<Sheet>, Problem> {
    let records = Records::of(database);
    let cluster = the_cluster(&records, question.cluster.as_deref())?;
    let zone = the_zone(&cluster)?;
    let now = Timestamp::now();
    let period = the_period(&question.month, &question.from, &question.to, &zone, now)?;
    let periods = with_before(period);
    let rates = Rates::new(&config.rates, &zone);
    let books = books(&records, &cluster.cluster, &periods, &rates, now)?;
    let last = periods
        .last()
        .expect("there is the period that was asked for");
    let from = periods.first().map_or(last.from(), Period::from);
    let assessed = records
        .assessed(&cluster.cluster, from, last.to())
        .map_err(Problem::failed)?;
    let credits = records.credits(&cluster.cluster).map_err(Problem::failed)?;
    let accounts = records
        .accounts(&cluster.cluster)
        .map_err(Problem::failed)?;
    let budgets = budgets(&records, &cluster, (&books, &accounts), &rates, config, now)?;
    let facts = Facts {
        cluster: &cluster.cluster,
        books: &books,
        records_from: records
            .extent(&cluster.cluster)
            .map_err(Problem::failed)?
            .map(|(from, _)| from),
        accounts: &accounts,
        assessed: &assessed,
        credits: &credits,
        budgets: &budgets,
        breaches: &breaches(&records, &cluster.cluster, last, &zone, config, now)?,
        rules: &config.efficiency,
        currency: config.rates.currency.as_deref(),
        pseudonyms: config.pseudonyms,
        most_runs: question.runs,
        now: now.as_second(),
    };
    let subjects = subjects(question, &books, &accounts);
    let mut made: Vec<Sheet> = subjects
        .iter()
        .filter_map(|subject| sheet(&facts, subject))
        .collect();
    if let Some(sheet) = made
        .iter_mut()
        .find(|sheet| sheet.subject == Subject::Cluster)
    {
        sheet
            .notes
            .extend(nothing_recorded(&records, sheet, &zone)?);
        [sheet.cpu_capacity, sheet.gpu_capacity] =
            capacities(&records, &cluster.cluster, last, now)?;
        sheet.has_gpus |= sheet.gpu_capacity.is_some();
    }
    match (made.is_empty(), subjects.first()) {
        (true, Some(subject)) => {
            let names = records.names(&cluster.cluster).map_err(Problem::failed)?;
            let known = if matches!(subject, Subject::User(_)) {
                &names.users
            } else {
                &names.accounts
            };
            let is_known = known.iter().any(|name| name == subject.name());
            let others = known.iter().map(String::as_str);
            Err(Problem::input(io::Error::other(format!(
                "no run of the {} {} is recorded in {} or the three periods before it{}",
                subject.kind(),
                subject.name(),
                last.label(),
                if is_known {
                    String::new()
                } else {
                    did_you_mean(subject.name(), others)
                }
            ))))
        }
        _ => Ok(made),
    }
}

/// A cluster's sheet on which nothing stands says what there would be.
fn nothing_recorded(
    records: &Records<'_>,
    sheet: &Sheet,
    zone: &TimeZone,
) -> Result<Option<String>, Problem> {
    if sheet.figures.jobs_started + sheet.figures.jobs_ended > 0 || sheet.figures.cpu_hours > 0.0 {
        return Ok(None);
    }
    let day = |at: i64| {
        Timestamp::from_second(at)
            .unwrap_or_default()
            .to_zoned(zone.clone())
            .strftime("%Y-%m-%d")
    };
    Ok(Some(match records.extent(&sheet.cluster).map_err(Problem::failed)? {
        Some((from, to)) => {
            format!("No run is recorded in this period; there are records from {} to {}.", day(from), day(to))
        }
        None => {
            "There are no job records yet: a server that polls Slurm makes them, `takt import` brings in older ones."
                .to_owned()
        }
    }))
}

/// Returns the use of the cluster's CPUs and GPUs, as `takt capacity` computes it. `None` for a
/// resource whose total is unknown.
fn capacities(
    records: &Records<'_>,
    cluster: &str,
    period: &Period,
    now: Timestamp,
) -> Result<[Option<CapacityRow>; 2], Problem> {
    let nodes = records.node_capacities(cluster).map_err(Problem::failed)?;
    if nodes.is_empty() {
        return Ok([None, None]);
    }
    let reservations = records
        .reservations(cluster, period.from())
        .map_err(Problem::failed)?;
    let runs = records
        .capacity_runs(cluster, period.from(), period.to())
        .map_err(Problem::failed)?;
    let report = report(
        records,
        cluster,
        period,
        (&nodes, &reservations, &runs),
        now,
    )?;
    let mut rows = report
        .rows
        .into_iter()
        .map(|row| Some(row).filter(|row| row.reported > 0));
    Ok(std::array::from_fn(|_| rows.next().flatten()))
}

fn subjects(question: &SheetQuestion, books: &Books<'_>, tree: &Accounts) -> Vec<Subject> {
    match (&question.user, &question.account) {
        (Some(user), _) => vec![Subject::User(user.clone())],
        (None, Some(account)) => vec![Subject::Account(account.clone())],
        (None, None) if question.everybody => {
            let is_used = |(_, entry): &(&str, &Entry)| {
                entry
                    .periods
                    .last()
                    .is_some_and(|tally| tally.cpu_seconds > 0.0 || tally.gpu_seconds > 0.0)
            };
            // Who answers for an account answers for those below it.
            let accounts: BTreeSet<&str> = books
                .accounts()
                .filter(is_used)
                .flat_map(|(name, _)| tree.up(name))
                .collect();
            let users = books
                .users()
                .filter(is_used)
                .map(|(name, _)| Subject::User(name.to_owned()));
            users
                .chain(
                    accounts
                        .into_iter()
                        .map(|name| Subject::Account(name.to_owned())),
                )
                .chain([Subject::Cluster])
                .collect()
        }
        (None, None) => vec![Subject::Cluster],
    }
}

/// The period and those before it, the oldest first.
fn with_before(period: Period) -> Vec<Period> {
    let mut periods = vec![period];
    while periods.len() <= BEFORE
        && let Some(before) = periods[0].before()
    {
        periods.insert(0, before);
    }
    periods
}

fn books<'p>(
    records: &Records<'_>,
    cluster: &str,
    periods: &'p [Period],
    rates: &'p Rates,
    now: Timestamp,
) -> Result<Books<'p>, Problem> {
    let mut journal = Journal::new(periods, rates, now.as_second());
    if let (Some(first), Some(last)) = (periods.first(), periods.last()) {
        records
            .held_runs(cluster, first.from(), last.to(), |run| journal.add(run))
            .map_err(Problem::failed)?;
    }
    Ok(journal.close())
}

/// How far every budget is used in the current month and year.
///
/// # Errors
/// A database that does not answer.
pub fn budgets_now(
    database: &Database,
    cluster: &str,
    config: &AccountingConfig,
) -> Result<Vec<BudgetUse>, Problem> {
    if config.budgets.is_empty() {
        return Ok(Vec::new());
    }
    let records = Records::of(database);
    let cluster = the_cluster(&records, Some(cluster))?;
    let (zone, now) = (the_zone(&cluster)?, Timestamp::now());
    let month = [the_period(&None, &None, &None, &zone, now)?];
    let rates = Rates::new(&config.rates, &zone);
    let books = books(&records, &cluster.cluster, &month, &rates, now)?;
    let accounts = records
        .accounts(&cluster.cluster)
        .map_err(Problem::failed)?;
    budgets(&records, &cluster, (&books, &accounts), &rates, config, now)
}

/// How far every budget is used in the month and the year of the period, the energy that was measured added, credits taken
/// off.
fn budgets(
    records: &Records<'_>,
    cluster: &KnownCluster,
    (of_month, accounts): (&Books<'_>, &Accounts),
    rates: &Rates,
    config: &AccountingConfig,
    now: Timestamp,
) -> Result<Vec<BudgetUse>, Problem> {
    let currency = config.rates.currency.as_deref().unwrap_or_default();
    let wants_year = config
        .budgets
        .iter()
        .any(|budget| budget.period == BudgetPeriod::Year);
    let years: Vec<Period> = of_month
        .periods()
        .last()
        .and_then(Period::year)
        .filter(|_| wants_year)
        .into_iter()
        .collect();
    let of_year = books(records, &cluster.cluster, &years, rates, now)?;
    let ledger = records.credits(&cluster.cluster).map_err(Problem::failed)?;
    let needs_energy =
        rates.price_energy() && config.budgets.iter().any(|budget| budget.money.is_some());
    let assessed = |books: &Books<'_>| match books.periods().last() {
        Some(period) if needs_energy => {
            records.assessed(&cluster.cluster, period.from(), period.to())
        }
        _ => Ok(Vec::new()),
    };
    let month = (of_month, assessed(of_month).map_err(Problem::failed)?);
    let year = (&of_year, assessed(&of_year).map_err(Problem::failed)?);
    let mut used = Vec::new();
    for budget in &config.budgets {
        let (books, assessed) = match budget.period {
            BudgetPeriod::Month => &month,
            BudgetPeriod::Year => &year,
        };
        let entry = match (&budget.user, &budget.account) {
            (Some(user), _) => books.user(user).cloned(),
            (None, Some(account)) => books.within(account, accounts),
            (None, None) => None,
        };
        let Some(period) = books.periods().last() else {
            continue;
        };
        let is_its = |user: &str, account: &str| {
            budget.user.as_deref().is_none_or(|name| name == user)
                && budget
                    .account
                    .as_deref()
                    .is_none_or(|name| accounts.is_within(account, name))
        };
        let tally = entry
            .and_then(|mut entry| entry.periods.pop())
            .unwrap_or_default();
        let (mut gpu_seconds, mut money) = (tally.gpu_seconds, tally.cost.money);
        let its = assessed
            .iter()
            .filter(|one| is_its(&one.run.user, &one.run.account));
        money += its.map(|one| energy_money(one, period, rates)).sum::<f64>();
        let is_in_period = |at: i64| period.from() <= at && at < period.to();
        for credit in in_force(&ledger)
            .filter(|of| is_its(&of.user, &of.account) && is_in_period(of.credited_to))
        {
            gpu_seconds -= credit.gpu_seconds;
            if budget.money.is_some() {
                let model = model_of(records, credit)?;
                money -= rates.at(
                    credit.gpu_seconds,
                    credit.cpu_seconds,
                    model.as_deref(),
                    credit.credited_to,
                );
            }
        }
        used.extend(budget.used(gpu_seconds / 3600.0, money, currency));
    }
    Ok(used)
}

/// The model of the GPUs whose hours were given back.
fn model_of(records: &Records<'_>, credit: &Credit) -> Result<Option<String>, Problem> {
    let Some(job) = &credit.job_id else {
        return Ok(None);
    };
    let filter = JobFilter {
        cluster: Some(credit.cluster.clone()),
        job_id: Some(job.clone()),
        ..JobFilter::default()
    };
    let runs = records.jobs(&filter).map_err(Problem::failed)?;
    let run = runs
        .into_iter()
        .find(|run| run.job_id == *job && Some(run.submit) == credit.submit);
    Ok(run.and_then(|run| run.gpu_model))
}

fn breaches(
    records: &Records<'_>,
    cluster: &str,
    period: &Period,
    zone: &TimeZone,
    config: &AccountingConfig,
    now: Timestamp,
) -> Result<Vec<Breach>, Problem> {
    if config.policy_windows.is_empty() {
        return Ok(Vec::new());
    }
    let filter = JobFilter {
        cluster: Some(cluster.to_owned()),
        from: Some(period.from()),
        to: Some(period.to()),
        ..JobFilter::default()
    };
    let runs = records.jobs(&filter).map_err(Problem::failed)?;
    Ok(config
        .policy_windows
        .iter()
        .flat_map(|window| window.breaches(&runs, period, zone, now))
        .collect())
}

/// Assesses runs, and says how many.
///
/// # Errors
/// A period that makes no sense, or a store that does not answer.
pub fn assess(
    store: &Store,
    question: &AssessQuestion,
    config: &AccountingConfig,
) -> Result<Assessed, Problem> {
    let records = Records::of(store.database());
    let cluster = the_cluster(&records, question.cluster.as_deref())?;
    let zone = the_zone(&cluster)?;
    let period = the_period(
        &question.month,
        &question.from,
        &question.to,
        &zone,
        Timestamp::now(),
    )?;
    let due = if question.again { Due::All } else { Due::New };
    let times = (period.from(), period.to());
    assess::pass(
        store,
        &cluster.cluster,
        times,
        due,
        &config.efficiency,
        |_| true,
    )
    .map_err(Problem::failed)
}

/// Which reports?
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SentQuestion {
    /// Those of this month, `2026-10`.
    pub month: String,
    /// The cluster; may be left out where there is one only.
    pub cluster: Option<String>,
}

/// The reports of a month that were sent.
///
/// # Errors
/// A database that does not answer.
pub fn sent_reports(
    database: &Database,
    question: &SentQuestion,
) -> Result<Vec<SentReport>, Problem> {
    let records = Records::of(database);
    let cluster = the_cluster(&records, question.cluster.as_deref())?;
    records
        .sent_reports(&cluster.cluster, &question.month)
        .map_err(Problem::failed)
}

/// The ledger of credits, the oldest first.
///
/// # Errors
/// A database that does not answer.
pub fn credits(database: &Database, cluster: Option<&str>) -> Result<Vec<Credit>, Problem> {
    let records = Records::of(database);
    let cluster = the_cluster(&records, cluster)?;
    records.credits(&cluster.cluster).map_err(Problem::failed)
}

/// Enters a credit or revokes one, and returns the entry.
///
/// # Errors
/// An order that makes no sense, a run that is unknown or credited already, or a database that does not answer.
pub fn credit(database: &Database, order: &CreditOrder) -> Result<Credit, Problem> {
    let records = Records::of(database);
    let refuse = |why: String| Problem::usage(io::Error::other(why));
    if order.reason.trim().is_empty() {
        return Err(refuse("a credit needs a reason".to_owned()));
    }
    let cluster = the_cluster(&records, order.cluster.as_deref())?.cluster;
    let credit = match (&order.job_id, order.revokes) {
        (Some(job), None) => of_run(&records, &cluster, job, order)?,
        (None, Some(id)) => {
            let ledger = records.credits(&cluster).map_err(Problem::failed)?;
            let old = in_force(&ledger).find(|credit| credit.id == id);
            let old = old
                .ok_or_else(|| refuse(format!("there is no credit {id} in force")))?
                .clone();
            Credit {
                revokes: Some(id),
                ..old
            }
        }
        _ => {
            return Err(refuse(
                "a credit is of a job, or revokes another credit".to_owned(),
            ));
        }
    };
    let credit = Credit {
        reason: order.reason.trim().to_owned(),
        granted_by: order.granted_by.clone(),
        granted_at: Timestamp::now().as_second(),
        ..credit
    };
    let (revokes, job, submit) = (credit.revokes, credit.job_id.clone(), credit.submit);
    records.enter_credit(credit, |ledger| {
        let known = in_force(ledger).find(|known| known.job_id == job && known.submit == submit);
        match known {
            Some(known) if revokes.is_none() => Err(refuse(format!(
                "job {} was credited by {} already (credit {}): revoke that first",
                job.unwrap_or_default(),
                known.granted_by,
                known.id
            ))),
            None if revokes.is_some() => Err(refuse("it was revoked meanwhile".to_owned())),
            _ => Ok(()),
        }
    })
}

/// The hours of the last run of a job that has ended.
fn of_run(
    records: &Records<'_>,
    cluster: &str,
    job: &str,
    order: &CreditOrder,
) -> Result<Credit, Problem> {
    let refuse = |why: String| Problem::usage(io::Error::other(why));
    let filter = JobFilter {
        cluster: Some(cluster.to_owned()),
        job_id: Some(job.to_owned()),
        ..JobFilter::default()
    };
    let runs = records.jobs(&filter).map_err(Problem::failed)?;
    let ended =
        |run: &&takt_slurm::JobRun| run.job_id == job && run.start.is_some() && run.end.is_some();
    let run = runs
        .iter()
        .find(ended)
        .ok_or_else(|| refuse(format!("no run of job {job} that has ended is recorded")))?;
    let seconds = run
        .end
        .zip(run.start)
        .map_or(0.0, |(end, start)| (end - start).max(0) as f64);
    let held = run.gpus.unwrap_or(0) as f64 * seconds;
    let gpu_seconds = match order.gpu_hours.map(|hours| hours * 3600.0) {
        None => held,
        Some(given) if given > 0.0 && given <= held => given,
        Some(given) => {
            let (given, held) = (given / 3600.0, held / 3600.0);
            return Err(refuse(format!(
                "expected more than 0 and at most the {held:.2} GPU-hours of job {job}, found {given}"
            )));
        }
    };
    Ok(Credit {
        cluster: cluster.to_owned(),
        user: run.user.clone(),
        account: run.account.clone(),
        job_id: Some(run.job_id.clone()),
        submit: Some(run.submit),
        gpu_seconds,
        cpu_seconds: if order.gpu_hours.is_none() {
            run.cpus.unwrap_or(0) as f64 * seconds
        } else {
            0.0
        },
        credited_to: run.end.unwrap_or(0),
        ..Credit::default()
    })
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::failed(error)
    }
}

pub(super) async fn get_sheets(
    State(app): State<super::App>,
    Query(question): Query<SheetQuestion>,
) -> Result<Json<Vec<Sheet>>, Problem> {
    let config = app.accounting.clone();
    blocking(app, move |database| sheets(database, &question, &config)).await
}

pub(super) async fn get_sent(
    State(app): State<super::App>,
    Query(question): Query<SentQuestion>,
) -> Result<Json<Vec<SentReport>>, Problem> {
    blocking(app, move |database| sent_reports(database, &question)).await
}

pub(super) async fn post_sent(
    State(app): State<super::App>,
    Json(sent): Json<SentReport>,
) -> Result<Json<()>, Problem> {
    blocking(app, move |database| {
        Records::of(database)
            .note_sent_report(&sent)
            .map_err(Problem::failed)
    })
    .await
}

pub(super) async fn get_credits(
    State(app): State<super::App>,
) -> Result<Json<Vec<Credit>>, Problem> {
    blocking(app, |database| credits(database, None)).await
}

pub(super) async fn post_credit(
    State(app): State<super::App>,
    Json(order): Json<CreditOrder>,
) -> Result<Json<Credit>, Problem> {
    blocking(app, move |database| credit(database, &order)).await
}

pub(super) async fn post_assess(
    State(app): State<super::App>,
    Json(question): Json<AssessQuestion>,
) -> Result<Json<Assessed>, Problem> {
    let config = app.accounting.clone();
    blocking_store(app, move |store| assess(store, &question, &config)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use takt_accounting::RateCard;
    use takt_slurm::{Entry, JobRun};
    use takt_store::{DataDir, Origin, Settings};

    fn database(root: &std::path::Path) -> Database {
        let dir = DataDir::claim(root).unwrap();
        let database = Database::open(&dir, &Settings::default()).unwrap();
        let run = |job_id: &str, end: Option<i64>| JobRun {
            cluster: "lab".into(),
            job_id: job_id.into(),
            submit: 1_790_900_000,
            start: Some(1_790_900_000),
            end,
            state: "NODE_FAIL".into(),
            user: "ann".into(),
            account: "physics".into(),
            gpus: Some(2),
            cpus: Some(8),
            ..JobRun::default()
        };
        let runs = [run("7", Some(1_790_903_600)), run("8", None)];
        let origin = Origin {
            source: "sacct",
            name: "test",
            timezone: Some("UTC"),
            told_until: None,
            shifted: takt_store::Shifted::Refuse,
        };
        Records::of(&database)
            .import(
                &origin,
                runs.map(|run| Ok::<_, Infallible>(Entry::Run(run))),
            )
            .unwrap();
        database
    }

    fn order(job: &str) -> CreditOrder {
        CreditOrder {
            job_id: Some(job.into()),
            reason: "g1 lost its power".into(),
            granted_by: "root".into(),
            ..CreditOrder::default()
        }
    }

    #[test]
    fn hours_are_given_back_once_and_the_ledger_keeps_everything() {
        let root = tempfile::tempdir().unwrap();
        let database = database(root.path());
        let given = credit(&database, &order("7")).unwrap();
        assert_eq!(
            (
                given.id,
                given.gpu_seconds,
                given.cpu_seconds,
                given.user.as_str()
            ),
            (1, 7200.0, 28_800.0, "ann")
        );
        let refused = |order: &CreditOrder| credit(&database, order).unwrap_err().to_string();
        assert_eq!(
            refused(&order("7")),
            "job 7 was credited by root already (credit 1): revoke that first"
        );
        let revoke = |id| CreditOrder {
            job_id: None,
            revokes: Some(id),
            ..order("")
        };
        assert_eq!(credit(&database, &revoke(1)).unwrap().revokes, Some(1));
        assert_eq!(refused(&revoke(1)), "there is no credit 1 in force");
        let part = CreditOrder {
            gpu_hours: Some(0.5),
            ..order("7")
        };
        assert_eq!(credit(&database, &part).unwrap().gpu_seconds, 1800.0);
        let ledger = credits(&database, None).unwrap();
        assert_eq!(
            ledger.iter().map(|credit| credit.id).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        assert!(
            ledger
                .iter()
                .all(|credit| credit.granted_by == "root" && credit.granted_at > 0)
        );
        assert_eq!(
            in_force(&ledger)
                .map(|credit| credit.id)
                .collect::<Vec<_>>(),
            [3]
        );

        let question = SheetQuestion {
            month: Some("2026-10".into()),
            user: Some("ann".into()),
            ..SheetQuestion::default()
        };
        let sheet = &sheets(&database, &question, &AccountingConfig::default()).unwrap()[0];
        assert_eq!(sheet.figures.credited_gpu_hours, 0.5);

        // What is given back is taken off budgets: half a GPU-hour, which costs 3 EUR.
        let card = RateCard {
            from: "2026-01-01".into(),
            gpu_hour: 3.0,
            cpu_hour: 0.1,
            ..RateCard::default()
        };
        let budget = BudgetConfig {
            user: Some("ann".into()),
            money: Some(10.0),
            gpu_hours: Some(2.0),
            ..BudgetConfig::default()
        };
        let config = AccountingConfig {
            rates: RatesConfig {
                currency: Some("EUR".into()),
                cards: vec![card],
            },
            budgets: vec![budget],
            ..AccountingConfig::default()
        };
        let used = || {
            let budgets = &sheets(&database, &question, &config).unwrap()[0].budgets;
            [budgets[0].used, budgets[1].used]
        };
        let with_credit = used();
        credit(&database, &revoke(3)).unwrap();
        let without = used();
        let back = [without[0] - with_credit[0], without[1] - with_credit[1]];
        assert!(
            (back[0] - 0.5).abs() < 1e-6 && (back[1] - 1.5).abs() < 1e-6,
            "{with_credit:?} {without:?}"
        );
    }

    #[test]
    fn orders_and_questions_that_make_no_sense() {
        let root = tempfile::tempdir().unwrap();
        let database = database(root.path());
        let refused = |order: CreditOrder| credit(&database, &order).unwrap_err().to_string();
        assert_eq!(
            refused(order("8")),
            "no run of job 8 that has ended is recorded"
        );
        assert_eq!(
            refused(order("nine")),
            "no run of job nine that has ended is recorded"
        );
        assert_eq!(
            refused(CreditOrder {
                reason: " ".into(),
                ..order("7")
            }),
            "a credit needs a reason"
        );
        assert_eq!(
            refused(CreditOrder {
                gpu_hours: Some(3.0),
                ..order("7")
            }),
            "expected more than 0 and at most the 2.00 GPU-hours of job 7, found 3"
        );
        assert_eq!(
            refused(CreditOrder {
                job_id: None,
                ..order("")
            }),
            "a credit is of a job, or revokes another credit"
        );
        let question = SheetQuestion {
            month: Some("2026-10".into()),
            user: Some("eve".into()),
            ..SheetQuestion::default()
        };
        let refused = |question: &SheetQuestion| {
            sheets(&database, question, &AccountingConfig::default())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refused(&question),
            "no run of the user eve is recorded in 2026-10 or the three periods before it"
        );
        let nearly = SheetQuestion {
            user: Some("anna".into()),
            ..question.clone()
        };
        assert!(
            refused(&nearly).ends_with("before it; did you mean ann?"),
            "{}",
            refused(&nearly)
        );
        let nearly = SheetQuestion {
            user: None,
            account: Some("Phsyics".into()),
            ..question.clone()
        };
        assert!(
            refused(&nearly).ends_with("; did you mean physics?"),
            "{}",
            refused(&nearly)
        );
        let long_ago = SheetQuestion {
            month: Some("2020-01".into()),
            user: Some("ann".into()),
            ..question
        };
        assert!(
            refused(&long_ago).ends_with("before it"),
            "known, but not then: {}",
            refused(&long_ago)
        );
        let whole = SheetQuestion {
            month: Some("2020-01".into()),
            ..SheetQuestion::default()
        };
        let sheet = &sheets(&database, &whole, &AccountingConfig::default()).unwrap()[0];
        assert!(
            sheet
                .notes
                .iter()
                .any(|note| note.ends_with("there are records from 2026-10-02 to 2026-10-02.")),
            "{:?}",
            sheet.notes
        );
    }
}
