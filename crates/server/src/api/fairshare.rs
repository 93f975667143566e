//! Who stands where in fair share, and why: computed from job records and what is known of shares and prices.

use super::Problem;
use super::near::did_you_mean;
use super::questions::{the_cluster, the_zone};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use takt_accounting::fairshare::{
    Accumulator, AssociationId, AssociationTree, Decay, DecayTable, Explainer, PlannedJob,
    ResetSchedule, Run, ShareRow, Ticks, share_rows,
};
use takt_collector::schedulers::SharesConfig;
use takt_slurm::billing::{TresAmounts, is_tres};
use takt_slurm::{Association, ShareSettings, Shares};
use takt_store::CONFIGURED;
use takt_store::{ChargedRun, Database, FairsharePoint, Records};

/// Who stands where?
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FairshareQuestion {
    /// The cluster; may be left out where there is one only.
    pub cluster: Option<String>,
    /// Only this user and the accounts above her.
    pub user: Option<String>,
    /// Only this account, what is below it and what is above it.
    pub account: Option<String>,
    /// Whether the user's standing is explained in words.
    pub explain: bool,
    /// A job that she thinks of, as TRES (`cpu=8,gres/gpu=1`).
    pub plan: Option<String>,
    /// How long that job would run.
    pub plan_hours: Option<f64>,
    /// Where it would run.
    pub plan_partition: Option<String>,
    /// With which quality of service.
    pub plan_qos: Option<String>,
    /// Days of history.
    pub history_days: Option<u32>,
}

/// Who stands where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FairshareAnswer {
    /// The cluster.
    pub cluster: String,
    /// The instant, RFC 3339.
    pub at: String,
    /// Who said what the shares are: `slurm`, `takt.toml`, or `job records` where nobody did and all have one share.
    pub shares_from: String,
    /// Whether ranks are Fair Tree's; else the factor is the classic one.
    pub fair_tree: bool,
    /// Seconds after which usage counts half; 0 is no decay.
    pub half_life_seconds: u32,
    /// The lines of `sshare -l -a`.
    pub rows: Vec<ShareRow>,
    /// Runs that were charged to nobody because their account is not in the tree.
    pub runs_of_unknown_accounts: u64,
    /// Runs that were charged to nobody because nobody saw what they held.
    pub runs_of_unknown_amounts: u64,
    /// Why the user stands there; one text an association.
    pub explanations: Vec<String>,
    /// Fair share as it was, the oldest first.
    pub history: Vec<FairsharePoint>,
}

/// Usage fades below one part in a thousand million in so many half lives: older runs need not be read.
const HALF_LIVES: i64 = 30;

/// What was used in so many seconds up to now makes the rates by which predictions go.
const RECENT_SECONDS: i64 = 7 * 86_400;

/// Answers a [`FairshareQuestion`], as of now.
///
/// # Errors
/// A question that makes no sense, or a database that does not answer.
pub fn fairshare(
    database: &Database,
    question: &FairshareQuestion,
) -> Result<FairshareAnswer, Problem> {
    let records = Records::of(database);
    let cluster = the_cluster(&records, question.cluster.as_deref())?;
    let now = Timestamp::now();
    let known = records
        .share_settings(&cluster.cluster, CONFIGURED)
        .map_err(Problem::failed)?;
    let (settings, shares_from) = match known {
        Some(known) => (known.settings, known.source),
        None => (
            everybody_alike(&records, &cluster.cluster)?,
            "job records".to_owned(),
        ),
    };
    let tree = AssociationTree::new(settings.associations.clone()).map_err(Problem::failed)?;
    let standing = Standing::of(
        &records,
        &cluster.cluster,
        &tree,
        &settings,
        now.as_second(),
        &the_zone(&cluster)?,
    )?;

    let users = wanted_users(&tree, question)?;
    let explainer = Explainer {
        tree: &tree,
        settings: &settings.priority,
        table: &standing.table,
        rates: &standing.rates,
        usage: &standing.usage,
    };
    let plan = Plan::of(question)?;
    let explain = |id: &AssociationId| explainer.explain(*id, plan.as_ref().map(Plan::job));
    let explained = question.explain || plan.is_some();
    let explanations = users
        .iter()
        .filter(|_| explained)
        .filter_map(explain)
        .map(|one| one.to_string())
        .collect();
    let history = match question.history_days {
        None => Vec::new(),
        Some(days) => {
            let from = now.as_second() - i64::from(days) * 86_400;
            records
                .fairshare_history(
                    &cluster.cluster,
                    question.user.as_deref(),
                    question.account.as_deref(),
                    from,
                )
                .map_err(Problem::failed)?
        }
    };
    let mut rows = share_rows(&tree, &settings.priority, &standing.usage);
    restrict(&mut rows, &tree, question);
    let left_out = standing.usage.left_out();
    Ok(FairshareAnswer {
        cluster: cluster.cluster,
        at: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        shares_from,
        fair_tree: !settings.priority.flags.no_fair_tree,
        half_life_seconds: settings.priority.decay_half_life_seconds,
        rows,
        runs_of_unknown_accounts: left_out.account_unknown,
        runs_of_unknown_amounts: left_out.tres_unknown,
        explanations,
        history,
    })
}

/// What a cluster used, faded, and what that was computed with.
struct Standing {
    table: DecayTable,
    rates: takt_slurm::BillingRates,
    usage: takt_accounting::fairshare::Usage,
}

impl Standing {
    fn of(
        records: &Records<'_>,
        cluster: &str,
        tree: &AssociationTree,
        settings: &ShareSettings,
        now: i64,
        zone: &jiff::tz::TimeZone,
    ) -> Result<Self, Problem> {
        let priority = &settings.priority;
        let half_life = i64::from(priority.decay_half_life_seconds);
        let from = if half_life == 0 {
            0
        } else {
            now - HALF_LIVES * half_life
        };
        let runs = records
            .charged_runs(cluster, from)
            .map_err(Problem::failed)?;
        let first = runs.iter().filter_map(|run| run.start).min().unwrap_or(now);
        let resets = priority.usage_reset_period.between(first, now, zone);
        // slurmctld's ticks are not known; their phase matters less than a part in a thousand.
        let ticks = Ticks::every(priority.calc_period_seconds, now, first - 1, now);
        let table = DecayTable::new(
            Decay::new(priority.decay_half_life_seconds),
            &ticks,
            &resets,
            now,
        );
        let rates = settings.rates();
        let mut usage = Accumulator::new(tree, &table, &rates, now - RECENT_SECONDS);
        let mut held: HashMap<String, Option<TresAmounts>> = HashMap::new();
        for run in &runs {
            let tres = run.tres_text().unwrap_or_default();
            // What many runs held is the same, and read once.
            let tres = held.entry(tres).or_insert_with_key(|text| {
                TresAmounts::parse(text)
                    .ok()
                    .filter(|tres| !tres.is_empty())
            });
            usage.add(&charged(tree, run, tres.as_ref()));
        }
        let usage = usage.finish();
        Ok(Self {
            table,
            rates,
            usage,
        })
    }
}

/// A run that names no account is charged to the first one that its user is in.
fn charged<'r>(
    tree: &'r AssociationTree,
    run: &'r ChargedRun,
    tres: Option<&'r TresAmounts>,
) -> Run<'r> {
    let own = || {
        tree.of_user(&run.user)
            .first()
            .map(|id| tree.get(*id).account.as_str())
    };
    let account = if run.account.is_empty() {
        own().unwrap_or_default()
    } else {
        &run.account
    };
    Run {
        account,
        user: &run.user,
        partition: &run.partition,
        qos: run.qos.as_deref(),
        start: run.start,
        end: run.end,
        timelimit_seconds: run.timelimit,
        tres,
    }
}

/// Where nobody says what the shares are: each account of the records has one share, and each user in it. Who has no
/// account competes beside the accounts.
fn everybody_alike(records: &Records<'_>, cluster: &str) -> Result<ShareSettings, Problem> {
    const ROOT: &str = "root";
    let runs = records.charged_runs(cluster, 0).map_err(Problem::failed)?;
    let mut accounts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for run in runs {
        let account = if run.account.is_empty() {
            ROOT.to_owned()
        } else {
            run.account
        };
        accounts.entry(account).or_default().insert(run.user);
    }
    let mut associations = vec![Association::account(ROOT, None, Shares::Raw(1))];
    for (account, users) in &accounts {
        if account != ROOT {
            associations.push(Association::account(account, Some(ROOT), Shares::Raw(1)));
        }
        associations.extend(
            users
                .iter()
                .map(|user| Association::user(account, user, Shares::Raw(1))),
        );
    }
    Ok(ShareSettings {
        associations,
        ..ShareSettings::default()
    })
}

/// The associations of the user that is asked for.
fn wanted_users(
    tree: &AssociationTree,
    question: &FairshareQuestion,
) -> Result<Vec<AssociationId>, Problem> {
    let refused = |error: String| Err(Problem::usage(io::Error::other(error)));
    if let Some(account) = question
        .account
        .as_deref()
        .filter(|account| tree.account(account).is_none())
    {
        let accounts = tree
            .top_down()
            .iter()
            .map(|id| tree.get(*id).account.as_str());
        return refused(format!(
            "there is no account {account}{}",
            did_you_mean(account, accounts)
        ));
    }
    let Some(user) = &question.user else {
        return match question.explain || question.plan.is_some() {
            true => refused("whose standing? name a user with --user".to_owned()),
            false => Ok(Vec::new()),
        };
    };
    let mut found = tree.of_user(user);
    if let Some(account) = &question.account {
        found.retain(|id| tree.get(*id).account == *account);
    }
    match found.is_empty() {
        true => {
            let users = tree
                .top_down()
                .iter()
                .filter_map(|id| tree.get(*id).user.as_deref());
            refused(format!(
                "no user {user} has shares{}",
                did_you_mean(user, users)
            ))
        }
        false => Ok(found),
    }
}

/// Leaves the rows that were asked for, and the accounts above them.
fn restrict(rows: &mut Vec<ShareRow>, tree: &AssociationTree, question: &FairshareQuestion) {
    let asked = |id: AssociationId| {
        let path = tree.path(id);
        let in_account = question.account.as_deref().is_none_or(|account| {
            path.iter()
                .any(|id| tree.get(*id).user.is_none() && tree.get(*id).account == *account)
        });
        in_account
            && question
                .user
                .as_deref()
                .is_none_or(|user| tree.get(id).user.as_deref() == Some(user))
    };
    let kept: BTreeSet<AssociationId> = tree
        .top_down()
        .iter()
        .filter(|id| asked(**id))
        .flat_map(|id| tree.path(*id))
        .collect();
    let mut order = tree.display_order().into_iter();
    rows.retain(|_| order.next().is_some_and(|id| kept.contains(&id)));
}

/// A job that is thought of.
struct Plan<'q> {
    tres: TresAmounts,
    hours: f64,
    question: &'q FairshareQuestion,
}

impl<'q> Plan<'q> {
    fn of(question: &'q FairshareQuestion) -> Result<Option<Self>, Problem> {
        let Some(text) = &question.plan else {
            return Ok(None);
        };
        let tres = TresAmounts::parse(text).map_err(Problem::usage)?;
        if let Some((name, _)) = tres.iter().find(|(name, _)| !is_tres(name)) {
            let near = did_you_mean(name, ["cpu", "gres/gpu", "mem", "node"]);
            let expected = "expected cpu=N, gres/gpu=N, mem=NG and the like";
            return Err(Problem::usage(io::Error::other(format!(
                "Slurm does not track '{name}' ({expected}){near}"
            ))));
        }
        // An amount that is none leaves its resource out.
        if tres.iter().count() < text.split(',').count() {
            return Err(Problem::usage(io::Error::other(format!(
                "'{text}' is no job: each amount is a number above 0"
            ))));
        }
        let hours = question.plan_hours.unwrap_or(1.0);
        if !(0.0..=87_600.0).contains(&hours) {
            return Err(Problem::usage(io::Error::other(format!(
                "a job of {hours} hours cannot be planned"
            ))));
        }
        Ok(Some(Self {
            tres,
            hours,
            question,
        }))
    }

    fn job(&self) -> PlannedJob<'_> {
        PlannedJob {
            partition: self.question.plan_partition.as_deref().unwrap_or_default(),
            qos: self.question.plan_qos.as_deref(),
            tres: &self.tres,
            hours: self.hours,
        }
    }
}

/// Remembers what the configuration says of a cluster's shares, or that it no longer says anything.
///
/// # Errors
/// A database that does not answer.
pub fn configure_shares(
    database: &Database,
    cluster: Option<&str>,
    config: &SharesConfig,
) -> Result<(), Problem> {
    let records = Records::of(database);
    let cluster = the_cluster(&records, cluster)?.cluster;
    let now = Timestamp::now().as_second();
    let settings = config.settings().unwrap_or_default();
    records
        .note_share_settings(&cluster, CONFIGURED, &settings, now)
        .map_err(Problem::failed)
}

/// Notes the fair share of a cluster for its history; at most once in `every_seconds`.
///
/// # Errors
/// A database that does not answer.
pub fn note_fairshare(
    database: &Database,
    cluster: &str,
    every_seconds: i64,
) -> Result<(), Problem> {
    let records = Records::of(database);
    let now = Timestamp::now().as_second();
    let noted = records.fairshare_noted(cluster).map_err(Problem::failed)?;
    let known = records
        .clusters()
        .map_err(Problem::failed)?
        .iter()
        .any(|known| known.cluster == cluster);
    if !known || noted.is_some_and(|noted| now < noted + every_seconds) {
        return Ok(());
    }
    let question = FairshareQuestion {
        cluster: Some(cluster.to_owned()),
        ..FairshareQuestion::default()
    };
    let answer = fairshare(database, &question)?;
    records
        .note_fairshare(cluster, now, &answer.rows)
        .map_err(Problem::failed)
}
