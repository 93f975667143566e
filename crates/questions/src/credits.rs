//! The ledger of credits.

use super::period::the_cluster;
use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use takt_access::{Need, Owner, Viewer};
use takt_accounting::Credit;
use takt_store::{Database, Records};

/// Path of the ledger: GET lists it, POST adds to it.
pub(super) const PATH: &str = "/api/takt/v1/credits";

/// Asks for all credits and revocations, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreditsQuestion {
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
}

impl Question for CreditsQuestion {
    const PATH: &'static str = PATH;
    const NEED: Need = Need::SignedIn;
    type Answer = Vec<Credit>;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<Vec<Credit>, AnswerError> {
        let records = Records::of(database);
        let cluster = the_cluster(
            &records,
            self.cluster.as_deref(),
            config.accounting.home.as_deref(),
        )?;
        let mut credits = records.credits(&cluster.cluster)?;
        credits.retain(|credit| viewer.sees_usage(Owner::new(&credit.user, &credit.account)));
        Ok(credits)
    }
}
