//! Fair share of users and accounts, computed from job records and shares.

use super::fairshare_plan::Plan;
use super::near::did_you_mean;
use super::period::{the_cluster, the_zone};
use super::visible::{hide_neighbour, hide_share_rows, visible_points};
use super::{AccountingConfig, AnswerConfig, AnswerError, Question};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use takt_access::{Need, Owner, Viewer};
use takt_accounting::fairshare::{
    Accumulator, AssociationId, AssociationTree, Decay, DecayTable, Explainer, ResetSchedule, Run,
    ShareRow, Ticks, share_rows,
};
use takt_collector::schedulers::SharesConfig;
use takt_jobs::billing::TresAmounts;
use takt_jobs::{Association, ShareSettings, Shares};
use takt_model::UnixTime;
use takt_store::{CONFIGURED, ChargedRun, Database, FairsharePoint, Records};

/// Asks for the fair share of users and accounts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FairshareQuestion {
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
    /// User; the answer has this user and the accounts above.
    pub user: Option<String>,
    /// Account; the answer has this account, its users, and the accounts above and below.
    pub account: Option<String>,
    /// Whether the user's fair share is explained.
    pub explain: bool,
    /// TRES of a planned job (`cpu=8,gres/gpu=1`).
    pub plan: Option<String>,
    /// Length of the planned job, in hours. Default: 1.
    pub plan_hours: Option<f64>,
    /// Partition of the planned job.
    pub plan_partition: Option<String>,
    /// QOS of the planned job.
    pub plan_qos: Option<String>,
    /// Days of history in the answer. Default: no history.
    pub history_days: Option<u32>,
}

/// Fair share of users and accounts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FairshareAnswer {
    /// The cluster.
    pub cluster: String,
    /// Time of the computation, RFC 3339.
    pub at: String,
    /// Source of the shares: `slurm`, `takt.toml`, or `job records` (one share for everybody).
    pub shares_from: String,
    /// Whether the factor is Fair Tree's rank; otherwise the classic factor.
    pub fair_tree: bool,
    /// Half-life of usage, in seconds; 0: usage does not decay.
    pub half_life_seconds: u32,
    /// The lines of `sshare -l -a`.
    pub rows: Vec<ShareRow>,
    /// Number of runs not charged because their account is not in the tree.
    pub runs_of_unknown_accounts: u64,
    /// Number of runs not charged because their resources are unknown.
    pub runs_of_unknown_amounts: u64,
    /// Explanation of the user's fair share; one text per association.
    pub explanations: Vec<String>,
    /// Recorded fair share, the oldest first.
    pub history: Vec<FairsharePoint>,
}

/// After this many half-lives, less than 10^-9 of a run's usage is left: older runs are not read.
const HALF_LIVES: i64 = 30;

/// Length of the recent period, in seconds. Predictions assume that all users continue as in it.
const RECENT_SECONDS: i64 = 7 * 86_400;

impl Question for FairshareQuestion {
    const PATH: &'static str = "/api/takt/v1/fairshare";
    const NEED: Need = Need::SignedIn;
    type Answer = FairshareAnswer;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<FairshareAnswer, AnswerError> {
        fairshare(database, viewer, self, &config.accounting)
    }

    fn prepare(&self, database: &Database, config: &AnswerConfig) -> Result<(), AnswerError> {
        let records = Records::of(database);
        let home = config.accounting.home.as_deref();
        let cluster = the_cluster(&records, self.cluster.as_deref(), home)?.cluster;
        // A command that opens the files has no server that stores the configured shares at its start.
        configure_shares(&records, &cluster, &config.shares)
    }
}

fn fairshare(
    database: &Database,
    viewer: &Viewer,
    question: &FairshareQuestion,
    config: &AccountingConfig,
) -> Result<FairshareAnswer, AnswerError> {
    let records = Records::of(database);
    let known = the_cluster(
        &records,
        question.cluster.as_deref(),
        config.home.as_deref(),
    )?;
    let zone = the_zone(&known, config)?;

    let cluster = known.cluster;
    let now = Timestamp::now();
    let (settings, shares_from) = match records.share_settings(&cluster, CONFIGURED)? {
        Some(known) => (known.settings, known.source),
        None => (equal_shares(&records, &cluster)?, "job records".to_owned()),
    };
    let tree = AssociationTree::new(settings.associations.clone()).map_err(AnswerError::failed)?;
    // Older runs have decayed to nothing, and reading them all would take long.
    let runs = records.charged_runs(&cluster, charged_from(&settings, now.into()))?;
    let decayed = DecayedUsage::of(&runs, &tree, &settings, now.into(), &zone);

    let users = wanted_users(viewer, &tree, question)?;
    let explainer = Explainer {
        tree: &tree,
        settings: &settings.priority,
        table: &decayed.table,
        rates: &decayed.rates,
        usage: &decayed.usage,
    };
    let plan = Plan::of(question, &settings, &runs)?;
    let explanations = if question.explain || plan.is_some() {
        let assumption = plan.as_ref().and_then(|plan| plan.assumption.as_deref());
        let too_large = match &plan {
            Some(plan) => plan.too_large(&records.node_capacities(&cluster)?),
            None => None,
        };
        users
            .iter()
            .filter_map(|id| {
                let mut text = explainer.explain(*id, plan.as_ref().map(Plan::job))?;
                // The explanation names the user's nearest neighbour in the tree.
                hide_neighbour(viewer, &mut text);
                let assumption = assumption.unwrap_or_default();
                let too_large = too_large.as_deref().unwrap_or_default();
                Some(format!("{text}{assumption}{too_large}"))
            })
            .collect()
    } else {
        Vec::new()
    };

    let mut history = match question.history_days {
        None => Vec::new(),
        Some(days) => records.fairshare_history(
            &cluster,
            question.user.as_deref(),
            question.account.as_deref(),
            UnixTime::from(now) - i64::from(days) * 86_400,
        )?,
    };

    visible_points(viewer, &mut history);
    let mut rows = share_rows(&tree, &settings.priority, &decayed.usage);
    restrict(&mut rows, &tree, question);
    // Rows of others are reduced at the end, since the factors need the usage of all.
    hide_share_rows(viewer, &own_branch(viewer, &tree), &mut rows);
    let left_out = decayed.usage.left_out();
    Ok(FairshareAnswer {
        cluster,
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

/// Decayed usage of a cluster, with the decay and the prices.
struct DecayedUsage {
    table: DecayTable,
    rates: takt_jobs::BillingRates,
    usage: takt_accounting::fairshare::Usage,
}

/// Start of the runs that still count.
fn charged_from(settings: &ShareSettings, now: UnixTime) -> UnixTime {
    let half_life = i64::from(settings.priority.decay_half_life_seconds);
    // Without decay, usage never ends, so every run counts.
    if half_life == 0 {
        UnixTime(0)
    } else {
        now - HALF_LIVES * half_life
    }
}

impl DecayedUsage {
    fn of(
        runs: &[ChargedRun],
        tree: &AssociationTree,
        settings: &ShareSettings,
        now: UnixTime,
        zone: &TimeZone,
    ) -> Self {
        let priority = &settings.priority;
        let first = runs.iter().filter_map(|run| run.start).min().unwrap_or(now);
        let resets = priority.usage_reset_period.between(first, now, zone);
        // The phase of slurmctld's ticks is unknown; its effect is below one part in a thousand.
        // The first tick is before the first run, so that no second of it is left out.
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
        for run in runs {
            let tres = run.tres_text().unwrap_or_default();
            // Many runs held the same TRES; each text is parsed once.
            let tres = held.entry(tres).or_insert_with_key(|text| {
                TresAmounts::parse(text)
                    .ok()
                    .filter(|tres| !tres.is_empty())
            });
            usage.add(&charged(tree, run, tres.as_ref()));
        }
        let usage = usage.finish();
        Self {
            table,
            rates,
            usage,
        }
    }
}

/// Returns the run with the account that is charged. A run without an account is charged to its user's first account.
fn charged<'r>(
    tree: &'r AssociationTree,
    run: &'r ChargedRun,
    tres: Option<&'r TresAmounts>,
) -> Run<'r> {
    // Without slurmdbd, a record may have no account.
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

/// Shares of a cluster without configured shares: one for each account, and one for each user in it. Users without an
/// account are beside the accounts.
fn equal_shares(records: &Records<'_>, cluster: &str) -> Result<ShareSettings, AnswerError> {
    const ROOT: &str = "root";
    let runs = records.charged_runs(cluster, UnixTime(0))?;
    let mut accounts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for run in runs {
        let account = if run.account.is_empty() {
            ROOT.to_owned()
        } else {
            run.account
        };
        accounts.entry(account).or_default().insert(run.user);
    }
    // Every account is a child of root, since the records have no tree.
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

/// The accounts above the viewer's associations.
fn own_branch(viewer: &Viewer, tree: &AssociationTree) -> BTreeSet<String> {
    viewer
        .user()
        .map(|user| tree.of_user(user))
        .unwrap_or_default()
        .into_iter()
        .flat_map(|id| tree.path(id))
        .map(|id| tree.get(id).account.clone())
        .collect()
}

/// The associations of the user in the question. Fails if the user or the account is unknown, or hidden from the viewer.
fn wanted_users(
    viewer: &Viewer,
    tree: &AssociationTree,
    question: &FairshareQuestion,
) -> Result<Vec<AssociationId>, AnswerError> {
    let refused = |error: String| Err(AnswerError::Usage(error));

    let branch = own_branch(viewer, tree);
    // An account that is hidden is refused as one that does not exist, and not proposed either.
    if let Some(account) = question
        .account
        .as_deref()
        .filter(|account| tree.account(account).is_none() || !viewer.sees_account(account, &branch))
    {
        let accounts = tree
            .top_down()
            .iter()
            .map(|id| tree.get(*id).account.as_str())
            .filter(|account| viewer.sees_account(account, &branch));
        return refused(format!(
            "there is no account {account}{}",
            did_you_mean(account, accounts)
        ));
    }

    let Some(user) = &question.user else {
        return if question.explain || question.plan.is_some() {
            refused("whose standing? name a user with --user".to_owned())
        } else {
            Ok(Vec::new())
        };
    };

    let mut found = tree.of_user(user);
    if let Some(account) = &question.account {
        found.retain(|id| tree.get(*id).account == *account);
    }

    // A user whose associations are all hidden gets the answer for an unknown user.
    found.retain(|id| viewer.sees_usage(Owner::new(user, &tree.get(*id).account)));
    if !found.is_empty() {
        return Ok(found);
    }

    let users = tree
        .top_down()
        .iter()
        .filter_map(|id| tree.get(*id).user.as_deref())
        .filter(|user| viewer.sees_usage(Owner::new(user, "")));
    refused(format!(
        "no user {user} has shares{}",
        did_you_mean(user, users)
    ))
}

/// Keeps the rows of the question's user and account, and the accounts above.
fn restrict(rows: &mut Vec<ShareRow>, tree: &AssociationTree, question: &FairshareQuestion) {
    let asked = |id: AssociationId| {
        // An account contains the associations of accounts below it, which have no user.
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
    // The accounts above a row are kept: a share means something among its siblings only.
    let kept: BTreeSet<AssociationId> = tree
        .top_down()
        .iter()
        .filter(|id| asked(**id))
        .flat_map(|id| tree.path(*id))
        .collect();
    // Rows are in the order of display, and have no id of their own.
    let mut order = tree.display_order().into_iter();
    rows.retain(|_| order.next().is_some_and(|id| kept.contains(&id)));
}

/// Stores the configured shares of a cluster, or that none are configured.
///
/// # Errors
/// When the store fails.
pub(super) fn configure_shares(
    records: &Records<'_>,
    cluster: &str,
    config: &SharesConfig,
) -> Result<(), AnswerError> {
    let now = UnixTime::from(Timestamp::now());
    let settings = config.settings().unwrap_or_default();
    Ok(records.note_share_settings(cluster, CONFIGURED, &settings, now)?)
}

/// Records the fair share of a cluster for its history, at most once in `every_seconds`.
///
/// # Errors
/// When the fair share cannot be computed or the store fails.
pub fn note_fairshare(
    database: &Database,
    cluster: &str,
    config: &AccountingConfig,
    every_seconds: i64,
) -> Result<(), AnswerError> {
    let records = Records::of(database);
    // A clock that is ahead for a moment would note a time before which no later one is noted.
    let now = database.surely_passed(Timestamp::now().into());
    let noted = records.fairshare_noted(cluster)?;
    // A cluster without records has no fair share; a row of it would begin its history too early.
    let is_known = records
        .clusters()?
        .iter()
        .any(|known| known.cluster == cluster);
    if !is_known || noted.is_some_and(|noted| now < noted + every_seconds) {
        return Ok(());
    }

    let question = FairshareQuestion {
        cluster: Some(cluster.to_owned()),
        ..FairshareQuestion::default()
    };
    let answer = fairshare(database, &Viewer::server(), &question, config)?;
    Ok(records.note_fairshare(cluster, now, &answer.rows)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{import, store_in};
    use takt_jobs::JobRun;
    use tempfile::tempdir;

    #[test]
    fn the_history_is_computed_in_the_configured_time_zone() {
        let folder = tempdir().unwrap();
        let store = store_in(folder.path());
        let run = JobRun {
            cluster: "lab".into(),
            job_id: "1".into(),
            submit: UnixTime(1_790_850_000),
            state: "COMPLETED".into(),
            user: "ada".into(),
            account: "physics".into(),
            ..JobRun::default()
        };
        import(store.database(), Some("UTC"), [run]);

        // Resets of usage are at midnights of this zone; one that does not exist shows that it is asked for.
        let config = AccountingConfig {
            timezone: Some("Nowhere/Land".to_owned()),
            ..AccountingConfig::default()
        };
        let error = note_fairshare(store.database(), "lab", &config, 0).unwrap_err();
        assert!(error.to_string().contains("Nowhere/Land"), "{error}");
        note_fairshare(store.database(), "lab", &AccountingConfig::default(), 0).unwrap();
    }
}
