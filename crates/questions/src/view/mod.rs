//! Several servers under one view: what each server of `[[view.servers]]` answers, in one table.
//!
//! Each row names its server. A server that does not answer is named with the reason, and the others
//! are shown. What is seen of users is what that server shows to the token; the view itself needs a
//! role that sees all users.

mod fairshare;
mod jobs;
mod now;
mod overview;
mod usage;

use super::{AnswerConfig, AnswerError, ClusterQuestion, Question};
use crate::view_servers::{Answered, ViewServer, ViewServers};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::iter;
use takt_access::{Need, Viewer};
use takt_accounting::{Period, PeriodError};
use takt_store::Database;

/// Subject of a view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ViewOf {
    /// A row for each server: nodes, GPUs, jobs, alerts.
    #[default]
    Overview,
    /// The nodes now.
    Nodes,
    /// The GPUs now.
    Gpus,
    /// Job runs, the newest first.
    Jobs,
    /// Usage of a period, by server and summed.
    Usage,
    /// Fair share of accounts and users.
    Fairshare,
}

/// Asks the servers of the view.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ViewQuestion {
    /// Subject. Default: `overview`.
    pub of: ViewOf,
    /// Only this server.
    pub server: Option<String>,
    /// Only this user's jobs, usage or fair share.
    pub user: Option<String>,
    /// Only this account's jobs or fair share.
    pub account: Option<String>,
    /// Only jobs in these states, separated by commas.
    pub state: Option<String>,
    /// Month of the usage, `2026-10`. Default: the current month.
    pub month: Option<String>,
    /// First day of the usage.
    pub from: Option<String>,
    /// End of the usage (exclusive).
    pub to: Option<String>,
    /// Columns to group the usage by, separated by commas. Default: `user`.
    pub by: Option<String>,
    /// Maximum number of jobs. Default: 1,000.
    pub limit: Option<usize>,
}

/// The rows of all servers that answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ViewAnswer {
    /// Names of the columns. The first is `server`.
    pub columns: Vec<String>,
    /// Rows with a value for each column; null is unknown.
    pub rows: Vec<Vec<Value>>,
    /// The servers that were asked.
    pub servers: Vec<ServerState>,
}

/// A server that was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerState {
    /// Name in the configuration.
    pub name: String,
    /// Address.
    pub url: String,
    /// Why it has no rows; `None` if it answered.
    pub error: Option<String>,
}

impl Question for ViewQuestion {
    const PATH: &'static str = "/api/takt/v1/view";
    const NEED: Need = Need::AllUsers;
    type Answer = ViewAnswer;
    type Data = Database;

    fn answer(
        &self,
        _viewer: &Viewer,
        _database: &Database,
        config: &AnswerConfig,
    ) -> Result<ViewAnswer, AnswerError> {
        // A malformed month is refused here, or each server would say so.
        if let Some(month) = &self.month {
            check_month(month)?;
        }

        let view = &config.view;
        let servers = self.servers(view)?;
        match self.of {
            ViewOf::Overview => Ok(overview::rows(view, &servers)),
            ViewOf::Nodes => Ok(now::nodes(view, &servers)),
            ViewOf::Gpus => Ok(now::gpus(view, &servers)),
            ViewOf::Jobs => Ok(jobs::rows(self, view, &servers)),
            ViewOf::Usage => usage::rows(self, view, &servers),
            ViewOf::Fairshare => Ok(fairshare::rows(self, view, &servers)),
        }
    }
}

/// Checks the form of a month. Each server knows by its own time zone whether it has begun.
fn check_month(month: &str) -> Result<(), AnswerError> {
    match Period::month(month, &TimeZone::UTC, Timestamp::now()) {
        Err(error @ PeriodError::Month(_)) => Err(AnswerError::usage(error)),
        _ => Ok(()),
    }
}

impl ViewAnswer {
    fn new(columns: &[&str]) -> Self {
        Self {
            columns: columns.iter().map(|&name| name.to_owned()).collect(),
            ..Self::default()
        }
    }

    /// Notes a server. Calls `rows` with its answer, if it has one.
    fn add<T>(&mut self, (server, answer): Answered<'_, T>, rows: impl FnOnce(&mut Self, T)) {
        let ViewServer { config, .. } = server;
        // A silent server is a row of `servers`, and the others are shown.
        let error = match answer {
            Ok(answer) => {
                rows(self, answer);
                None
            }
            Err(error) => Some(error),
        };
        self.servers.push(ServerState {
            name: config.name.clone(),
            url: config.url.trim_end_matches('/').to_owned(),
            error,
        });
    }

    /// Adds a row of a server.
    fn push(&mut self, server: &str, row: impl IntoIterator<Item = Value>) {
        let row = iter::once(Value::from(server)).chain(row).collect();
        self.rows.push(row);
    }
}

impl ViewQuestion {
    fn servers<'v>(&self, view: &'v ViewServers) -> Result<Vec<&'v ViewServer>, AnswerError> {
        let all = view.all();
        if all.is_empty() {
            let error = "no servers to show: list them in [[view.servers]] of takt.toml";
            return Err(AnswerError::Usage(error.to_owned()));
        }
        let Some(name) = &self.server else {
            return Ok(all.iter().collect());
        };
        let found = all
            .iter()
            .find(|server| server.config.name == *name)
            .ok_or_else(|| {
                let known: Vec<&str> = all.iter().map(|one| one.config.name.as_str()).collect();
                AnswerError::Usage(format!(
                    "server: no server {name:?} in [[view.servers]]; expected one of {}",
                    known.join(", ")
                ))
            })?;
        Ok(vec![found])
    }
}

/// Adds two numbers; `None` is unknown.
fn added(one: Option<u64>, another: Option<u64>) -> Option<u64> {
    match (one, another) {
        (None, None) => None,
        // A server without a scheduler has no jobs, which makes the sum no less known.
        _ => Some(one.unwrap_or(0) + another.unwrap_or(0)),
    }
}

fn the_cluster(server: &ViewServer) -> ClusterQuestion {
    ClusterQuestion {
        cluster: server.config.cluster.clone(),
        node: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_is_checked_before_servers_are_asked() {
        for (month, expected) in [
            ("2026-10", None),
            ("9998-01", None),
            (
                "2026-13",
                Some("'2026-13' is not a month (expected one such as 2026-10)"),
            ),
        ] {
            let said = check_month(month).err().map(|error| error.to_string());
            assert_eq!(said.as_deref(), expected);
        }
    }
}
