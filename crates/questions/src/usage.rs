//! Usage of a period.

use super::near::did_you_mean;
use super::period::{the_cluster, the_period, the_zone};
use super::visible::{ShownNames, known_accounts, known_users, no_run_of};
use super::{AnswerConfig, AnswerError, Question, write_json};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::io::Write;
use takt_access::{Need, Viewer};
use takt_accounting::sheet::Subject;
use takt_accounting::{Accounts, GroupBy, MOST_ROWS, Usage, UsageReport};
use takt_jobs::time_zone;
use takt_store::{Database, HeldMemory, MemoryAccount, MemoryUse, Records};

/// Asks for the usage of a period, by user, account, node and so on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UsageQuestion {
    /// Month, `2026-10`. Default without a period: the current month.
    pub month: Option<String>,
    /// Start of the period: a date, a time, an instant, or a relative time such as `yesterday` or `-7d`.
    pub from: Option<String>,
    /// End of the period (exclusive), in the same forms.
    pub to: Option<String>,
    /// Names of the columns to group by, separated by commas. Default: `user`.
    pub by: String,
    /// User whose runs count. Default: all users.
    pub user: Option<String>,
    /// Account whose runs count, with its sub-accounts. Default: all accounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
    /// Time zone (IANA name) of the days. Default: the cluster's, else this machine's.
    pub timezone: Option<String>,
}

impl Question for UsageQuestion {
    const PATH: &'static str = "/api/takt/v1/report/usage";
    const NEED: Need = Need::SignedIn;
    type Answer = UsageReport;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<UsageReport, AnswerError> {
        // A caller inside of the program, such as a command, is not limited.
        let mut memory = MemoryAccount::default().holder(MemoryUse::Query);
        self.report(viewer, database, config, &mut memory)
    }

    fn write_answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
        memory: &MemoryAccount,
        out: &mut dyn Write,
    ) -> Result<(), AnswerError> {
        // Held until the report is written.
        let mut memory = memory.holder(MemoryUse::Query);
        write_json(&self.report(viewer, database, config, &mut memory)?, out)
    }
}

impl UsageQuestion {
    /// The report. `memory` holds what it takes.
    fn report(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
        memory: &mut HeldMemory,
    ) -> Result<UsageReport, AnswerError> {
        let records = Records::of(database);
        let by = self.group_by()?;
        let cluster = the_cluster(
            &records,
            self.cluster.as_deref(),
            config.accounting.home.as_deref(),
        )?;

        let zone = match &self.timezone {
            Some(name) => time_zone(name).map_err(AnswerError::usage)?,
            None => the_zone(&cluster, &config.accounting)?,
        };
        let now = Timestamp::now();
        let period = the_period(&self.month, &self.from, &self.to, &zone, now)?;

        let mut usage = Usage::new(&period, &by, now.into());
        let accounts = records.accounts(&cluster.cluster)?;
        if by.contains(&GroupBy::AccountTree) {
            usage = usage.with_accounts(accounts.clone());
        }

        let from = period.from();
        let to = period.to();
        let names = ShownNames::read(viewer, &records, &cluster.cluster, from, to)?;

        // The report grows with its groups, so its memory is asked for while they are added.
        let mut refused = memory.grow_to(usage.bytes()).err();
        records.held_runs(&cluster.cluster, from, to, |run| {
            if refused.is_some() {
                return;
            }
            // Names are replaced before groups are made, or a filter would show which runs are whose.
            let run = names.run(run);
            let is_account = |name: &str| accounts.is_within(run.account, name);
            if self.user.as_deref().is_none_or(|user| user == run.user)
                && self.account.as_deref().is_none_or(is_account)
            {
                usage.add(&run);
                refused = memory.grow_to(usage.bytes()).err();
            }
        })?;

        // The reading cannot stop, so the refusal is returned behind it.
        if let Some(refusal) = refused {
            return Err(refusal.into());
        }
        if usage.is_too_large() {
            return Err(AnswerError::Input(format!(
                "the report would have more than {MOST_ROWS} rows: group by fewer columns, or ask for a shorter period"
            )));
        }

        let report = usage.report(&cluster.cluster);

        // An empty report may be that of a misspelt name.
        if let Some(user) = &self.user
            && report.rows.is_empty()
        {
            check_user(viewer, &records, &cluster.cluster, user)?;
        }
        if let Some(account) = &self.account
            && report.rows.is_empty()
        {
            let known = known_accounts(viewer, records.names(&cluster.cluster)?.accounts);
            check_account(viewer, &known, &accounts, account)?;
        }
        Ok(report)
    }

    fn group_by(&self) -> Result<Vec<GroupBy>, AnswerError> {
        let by: Result<Vec<GroupBy>, _> = self
            .by
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::parse)
            .collect();
        let mut by = by.map_err(AnswerError::usage)?;
        if by.is_empty() {
            by.push(GroupBy::User);
        }
        // Two units of time would count each second in both.
        if by.iter().filter(|by| by.unit().is_some()).count() > 1 {
            let error = "group by one of hour, day, month and year";
            return Err(AnswerError::Usage(error.to_owned()));
        }
        Ok(by)
    }
}

/// Fails if no run of an account, or of one below it, is recorded.
fn check_account(
    viewer: &Viewer,
    known: &[String],
    tree: &Accounts,
    account: &str,
) -> Result<(), AnswerError> {
    if known.iter().any(|name| tree.is_within(name, account)) {
        return Ok(());
    }

    let near = did_you_mean(account, known.iter().map(String::as_str));
    let none = no_run_of(viewer, &Subject::Account(account.to_owned()), "");
    Err(AnswerError::Input(format!("{none}{near}")))
}

/// Fails if the cluster has no records of `user`.
fn check_user(
    viewer: &Viewer,
    records: &Records<'_>,
    cluster: &str,
    user: &str,
) -> Result<(), AnswerError> {
    let users = known_users(viewer, records.names(cluster)?.users);
    if users.iter().any(|known| known == user) {
        return Ok(());
    }
    let near = did_you_mean(user, users.iter().map(String::as_str));
    let none = no_run_of(viewer, &Subject::User(user.to_owned()), "");
    Err(AnswerError::Input(format!("{none}{near}")))
}
