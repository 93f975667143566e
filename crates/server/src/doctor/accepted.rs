//! Findings that the administrator accepts: they are listed by name only.

use super::{CHECKS, Finding};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use takt_model::ConfigError;

/// Separates the id of a check from a node.
const SEPARATOR: char = ':';

/// Findings of `takt doctor`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AcceptedFindings {
    /// Findings that are wanted, such as `messages.heartbeat`, or `link.speed:desk03` for one node. `takt
    /// doctor` lists them by name only.
    pub accept: Vec<String>,
}

impl AcceptedFindings {
    /// Checks the names of the checks.
    ///
    /// # Errors
    /// If a check does not exist.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for entry in &self.accept {
            let id = entry.split(SEPARATOR).next().unwrap_or_default();
            if CHECKS.iter().all(|check| check.id != id) {
                let expected = "the id of a check, as in `takt doctor`, or ID:NODE";
                return Err(ConfigError::new("accept", expected, entry));
            }
        }
        Ok(())
    }

    /// Returns the nodes whose findings are accepted.
    pub(super) fn nodes(&self) -> impl Iterator<Item = String> {
        let entries = self.accept.iter();
        entries.filter_map(|entry| Some(entry.split_once(SEPARATOR)?.1.to_owned()))
    }

    /// Returns whether a finding is accepted.
    pub fn has(&self, finding: &Finding) -> bool {
        self.accept
            .iter()
            .any(|entry| match entry.split_once(SEPARATOR) {
                Some((id, node)) => id == finding.id && node == finding.node,
                None => *entry == finding.id,
            })
    }
}

/// Returns the name under which a finding is listed and accepted.
pub(super) fn name(finding: &Finding) -> String {
    if finding.node.is_empty() {
        finding.id.clone()
    } else {
        format!("{}{SEPARATOR}{}", finding.id, finding.node)
    }
}
