//! Waste of a period: by cause, user and account, with a histogram and a point for each run.

use super::period::{the_cluster, the_period, the_zone};
use super::{AnswerConfig, AnswerError, Question};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use takt_access::{Need, Owner, Viewer};
use takt_accounting::waste::{Waste, waste};
use takt_model::UnixTime;
use takt_store::{Database, Records};

/// Asks for the waste of a period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WasteQuestion {
    /// Month, `2026-10`. Default without a period: the current month.
    pub month: Option<String>,
    /// First day of the period.
    pub from: Option<String>,
    /// End of the period (exclusive).
    pub to: Option<String>,
    /// User of the runs. Default: all users.
    pub user: Option<String>,
    /// Account of the runs, with the accounts below it. Default: all accounts.
    pub account: Option<String>,
    /// Partition of the runs. Default: all partitions.
    pub partition: Option<String>,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
    /// Maximum number of points.
    pub points: usize,
}

impl Default for WasteQuestion {
    fn default() -> Self {
        Self {
            month: None,
            from: None,
            to: None,
            user: None,
            account: None,
            partition: None,
            cluster: None,
            points: 400,
        }
    }
}

/// Waste of a period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WasteAnswer {
    /// Cluster.
    pub cluster: String,
    /// Name of the period: `2026-10`, or its days.
    pub period: String,
    /// First instant of the period.
    pub from: UnixTime,
    /// First instant after the period.
    pub to: UnixTime,
    /// Time zone of the period's days (IANA name).
    pub timezone: String,
    /// Waste of the finished runs.
    #[serde(flatten)]
    pub waste: Waste,
}

/// Largest number of points in an answer.
const MOST_POINTS: usize = 5000;

impl Question for WasteQuestion {
    const PATH: &'static str = "/api/takt/v1/waste";
    const NEED: Need = Need::SignedIn;
    type Answer = WasteAnswer;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<WasteAnswer, AnswerError> {
        config.kept.answer(self, viewer, database, || {
            self.read(viewer, database, config)
        })
    }
}

impl WasteQuestion {
    fn read(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<WasteAnswer, AnswerError> {
        let records = Records::of(database);
        let known = the_cluster(
            &records,
            self.cluster.as_deref(),
            config.accounting.home.as_deref(),
        )?;
        let zone = the_zone(&known, &config.accounting)?;
        let cluster = known.cluster;

        let period = the_period(&self.month, &self.from, &self.to, &zone, Timestamp::now())?;

        let accounts = records.accounts(&cluster)?;
        let mut assessed = records.assessed(&cluster, period.from(), period.to())?;
        assessed.retain(|one| {
            let run = &one.run;
            let is_user = |name: &String| *name == run.user;
            let is_partition = |name: &String| *name == run.partition;
            let is_account = |name: &String| accounts.is_within(&run.account, name);
            self.user.as_ref().is_none_or(is_user)
                && self.account.as_ref().is_none_or(is_account)
                && self.partition.as_ref().is_none_or(is_partition)
        });
        // A partition, too, may be one user's.
        if self.user.is_some() || self.account.is_some() || self.partition.is_some() {
            assessed.retain(|one| viewer.sees_usage(Owner::new(&one.run.user, &one.run.account)));
        }

        let rules = &config.accounting.efficiency;
        let mut found = waste(&assessed, &period, rules, self.points.min(MOST_POINTS));
        reduce(viewer, &mut found);

        Ok(WasteAnswer {
            cluster,
            period: period.label(),
            from: period.from(),
            to: period.to(),
            timezone: period.zone_name(),
            waste: found,
        })
    }
}

/// Removes what the viewer may not see of other users. The sums remain.
fn reduce(viewer: &Viewer, found: &mut Waste) {
    found
        .users
        .retain(|row| viewer.sees_usage(Owner::new(&row.name, "")));
    found
        .accounts
        .retain(|row| viewer.sees_usage(Owner::new("", &row.name)));
    // A point is a measurement of one run.
    found
        .points
        .retain(|point| viewer.sees_measurements(Owner::new(&point.user, &point.account)));
    for point in &mut found.points {
        if !viewer.sees_details(Owner::new(&point.user, &point.account)) {
            point.name = None;
        }
    }
}
