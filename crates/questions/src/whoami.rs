//! The user and role that the server assigns to the client.

use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use takt_access::{Need, Viewer};
use takt_store::Database;

/// Asks who the server takes the client for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhoamiQuestion {}

/// The user and role that the server assigns to the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhoamiAnswer {
    /// Unix user; `None` for a program or a stranger.
    pub user: Option<String>,
    /// Role: `anonymous`, `status`, `user`, `coordinator`, `viewer`, `support` or `admin`.
    pub role: String,
    /// Accounts that the user coordinates, with the accounts below them.
    pub accounts: Vec<String>,
    /// How the server knows: `socket`, `loopback`, `token`, `proxy`, `session`, `files` or
    /// `unknown`.
    pub way: String,
    /// Visibility of data among users: `open`, `usage` or `private`.
    pub privacy: String,
}

impl Question for WhoamiQuestion {
    const PATH: &'static str = "/api/takt/v1/whoami";
    const NEED: Need = Need::Nothing;
    type Answer = WhoamiAnswer;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        _database: &Database,
        _config: &AnswerConfig,
    ) -> Result<WhoamiAnswer, AnswerError> {
        Ok(WhoamiAnswer {
            user: viewer.user().map(str::to_owned),
            role: viewer.role_name().to_owned(),
            accounts: viewer.accounts().iter().cloned().collect(),
            way: viewer.way().name().to_owned(),
            privacy: viewer.privacy().name().to_owned(),
        })
    }
}
