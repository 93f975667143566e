//! The ledger of credits.

use super::period::the_cluster;
use super::{AnswerConfig, AnswerError, Asker, Question};
use serde::{Deserialize, Serialize};
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
    type Answer = Vec<Credit>;
    type Data = Database;

    fn answer(
        &self,
        _asker: &Asker,
        database: &Database,
        _config: &AnswerConfig,
    ) -> Result<Vec<Credit>, AnswerError> {
        let records = Records::of(database);
        let cluster = the_cluster(&records, self.cluster.as_deref())?;
        Ok(records.credits(&cluster.cluster)?)
    }
}
