//! Roles.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Role of a viewer. A later role may do everything that an earlier one may.
///
/// A coordinator is a user who coordinates accounts; see [`crate::Viewer::accounts`].
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// An unknown person or program.
    #[default]
    Anonymous,
    /// Sees the status screen: nodes, GPUs and the length of the queue, no names of people and
    /// jobs.
    Status,
    /// A Unix or Slurm user: sees own jobs completely.
    User,
    /// Sees everything and changes nothing: dashboards, programs of the server's machine.
    Viewer,
    /// Sees everything; silences, acknowledges and closes alerts.
    Support,
    /// Sees and changes everything.
    Admin,
}

/// The text names no role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected status, user, viewer, support or admin, found {0:?}")]
pub struct UnknownRole(String);

impl Role {
    /// All roles with their names, the least powerful first.
    pub const ALL: [(Self, &str); 6] = [
        (Self::Anonymous, "anonymous"),
        (Self::Status, "status"),
        (Self::User, "user"),
        (Self::Viewer, "viewer"),
        (Self::Support, "support"),
        (Self::Admin, "admin"),
    ];

    /// Returns the name in commands, configuration and the audit log.
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(role, _)| *role == self)
            .map_or("", |(_, name)| name)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    /// Parses the role of a token. `anonymous` is refused: it needs no token.
    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        Self::ALL
            .iter()
            // Only `anonymous`, the first of the list, needs no token.
            .skip(1)
            .find(|(_, name)| *name == text)
            .map(|(role, _)| *role)
            .ok_or_else(|| UnknownRole(text.to_owned()))
    }
}
