//! Usage of a period.

use super::near::did_you_mean;
use super::period::{the_cluster, the_period, the_zone};
use super::visible::{ShownNames, known_users};
use super::{AnswerConfig, AnswerError, Question};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use takt_access::{Need, Viewer};
use takt_accounting::{GroupBy, Usage, UsageReport};
use takt_slurm::time_zone;
use takt_store::{Database, Records};

/// Asks for the usage of a period, by user, account, node and so on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UsageQuestion {
    /// Month, `2026-10`. Default without a period: the current month.
    pub month: Option<String>,
    /// First day of the period.
    pub from: Option<String>,
    /// End of the period (exclusive).
    pub to: Option<String>,
    /// Names of the columns to group by, separated by commas. Default: `user`.
    pub by: String,
    /// User whose runs count. Default: all users.
    pub user: Option<String>,
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
        if by.contains(&GroupBy::AccountTree) {
            usage = usage.with_accounts(records.accounts(&cluster.cluster)?);
        }
        let from = period.from();
        let to = period.to();
        let names = ShownNames::read(viewer, &records, &cluster.cluster, from, to)?;
        records.held_runs(&cluster.cluster, from, to, |run| {
            let run = names.run(run);
            if self.user.as_deref().is_none_or(|user| user == run.user) {
                usage.add(&run);
            }
        })?;
        let report = usage.report(&cluster.cluster);
        if let Some(user) = &self.user
            && report.rows.is_empty()
        {
            check_user(viewer, &records, &cluster.cluster, user)?;
        }
        Ok(report)
    }
}

impl UsageQuestion {
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
        if by.iter().filter(|by| by.unit().is_some()).count() > 1 {
            let error = "group by one of hour, day, month and year";
            return Err(AnswerError::Usage(error.to_owned()));
        }
        Ok(by)
    }
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
    Err(AnswerError::Input(format!(
        "no run of the user {user} is recorded{near}"
    )))
}
