//! Efficiency of finished runs, computed on request.

use super::period::{the_cluster, the_period, the_zone};
use super::{AnswerConfig, AnswerError, Question, RequestForm};
use crate::assess::{self, Assessed};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use takt_access::{Need, Role, Viewer};
use takt_store::{Due, Records, Store};

/// Runs to assess.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AssessQuestion {
    /// Month in which the runs ended, `2026-10`. Default without a period: the current month.
    pub month: Option<String>,
    /// First day of the period.
    pub from: Option<String>,
    /// End of the period (exclusive).
    pub to: Option<String>,
    /// Whether runs that were assessed before are assessed again.
    pub again: bool,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
}

impl Question for AssessQuestion {
    const PATH: &'static str = "/api/takt/v1/assess";
    const REQUEST: RequestForm = RequestForm::PostJson;
    const NEED: Need = Need::Change(Role::Admin);
    type Answer = Assessed;
    type Data = Store;

    fn answer(
        &self,
        _viewer: &Viewer,
        store: &Store,
        config: &AnswerConfig,
    ) -> Result<Assessed, AnswerError> {
        let records = Records::of(store.database());
        let cluster = the_cluster(
            &records,
            self.cluster.as_deref(),
            config.accounting.home.as_deref(),
        )?;
        let zone = the_zone(&cluster, &config.accounting)?;
        let period = the_period(&self.month, &self.from, &self.to, &zone, Timestamp::now())?;
        let due = if self.again { Due::All } else { Due::New };

        let times = (period.from(), period.to());
        let rules = &config.accounting.efficiency;
        assess::pass(store, &cluster.cluster, times, due, rules, |_| true)
            .map_err(AnswerError::failed)
    }
}
