//! The audit log.

use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use takt_access::{Need, Role, Viewer};
use takt_store::{AuditFilter, AuditRecord, Database, Records};

/// Asks for entries of the audit log, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditQuestion {
    /// Unix user.
    pub user: Option<String>,
    /// Maximum number of entries.
    pub limit: usize,
}

impl Default for AuditQuestion {
    fn default() -> Self {
        Self {
            user: None,
            limit: 100,
        }
    }
}

impl Question for AuditQuestion {
    const PATH: &'static str = "/api/takt/v1/audit";
    const NEED: Need = Need::Role(Role::Admin);
    type Answer = Vec<AuditRecord>;
    type Data = Database;

    fn answer(
        &self,
        _viewer: &Viewer,
        database: &Database,
        _config: &AnswerConfig,
    ) -> Result<Vec<AuditRecord>, AnswerError> {
        let filter = AuditFilter {
            user: self.user.clone(),
            from: None,
            limit: self.limit,
        };
        Ok(Records::of(database).audited(&filter)?)
    }
}
