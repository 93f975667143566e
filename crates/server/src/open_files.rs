//! Open files: how many the configuration needs, and how many its parts may have. Each part has a
//! number of its own, so that neither many targets nor many clients take those of the store.

use crate::Config;
use takt_api::HTTP_FILES;
use takt_collector::scrape::TargetFiles;
use takt_connections::{open_files_max, raise_open_files};
use takt_postgres::LOGIN_CONNECTIONS;

/// Files of the store, notifications and everything else.
const OWN_FILES: usize = 2048;

/// Files that the unit `takt.service` allows, and that a start asks for if the hard limit allows it.
pub const UNIT_FILES: usize = 65_536;

/// The process may open fewer files than the listed targets need.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{targets} targets need {needed} open files, and this process may open {limit}: set LimitNOFILE={needed} in takt.service (systemctl edit takt), or ulimit -n {needed}"
)]
pub struct TooFewFiles {
    targets: usize,
    needed: usize,
    limit: usize,
}

/// Open files of the parts of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenFiles {
    /// HTTP connections.
    pub http: usize,
    /// SQL connections of clients that are logged in.
    pub sql: usize,
    /// Connections to targets.
    pub targets: usize,
}

/// Number of files that a server with this configuration needs.
pub fn files_needed(config: &Config) -> usize {
    let targets = TargetFiles::needed(config.scrape.listed_targets());
    OWN_FILES + HTTP_FILES + sql_files(config) + targets
}

fn sql_files(config: &Config) -> usize {
    config.sql.max_connections.saturating_add(LOGIN_CONNECTIONS)
}

impl OpenFiles {
    /// Raises the soft limit of this process, and shares it out.
    ///
    /// # Errors
    /// If the targets need more.
    pub fn share_out(config: &Config) -> Result<Self, TooFewFiles> {
        // More than the configuration needs, since targets may be discovered later.
        let wanted = files_needed(config).max(UNIT_FILES);
        if let Err(error) = raise_open_files(wanted as u64) {
            tracing::warn!(%error, wanted, "cannot raise the limit of open files");
        }
        Self::of(config, open_files_max())
    }

    /// A process that may open few files gives half of them to HTTP.
    fn of(config: &Config, limit: usize) -> Result<Self, TooFewFiles> {
        // Clients come first: without HTTP, nothing else of the server can be reached.
        let http = HTTP_FILES.min(limit / 2);
        let rest = limit - http;
        let sql = sql_files(config).min(rest / 8);

        let own = OWN_FILES.min(rest / 2) + sql;
        let logins = LOGIN_CONNECTIONS.min(sql / 2);

        // The rest belongs to targets, whose number is known when they are listed.
        let files = Self {
            http,
            sql: config.sql.max_connections.min(sql - logins),
            targets: rest - own,
        };

        let targets = config.scrape.listed_targets();
        if TargetFiles::needed(targets) > files.targets {
            let needed = files_needed(config);
            return Err(TooFewFiles {
                targets,
                needed,
                limit,
            });
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_collector::scrape::TargetConfig;

    #[test]
    fn many_targets_leave_files_to_others_or_the_start_says_how_many_are_needed() {
        let with = |targets: usize| {
            let mut config = Config::default();
            config.scrape.targets = vec![TargetConfig::default(); targets];
            config
        };
        // 10,000 targets within 20,000 files, with all of SQL and HTTP.
        let large = OpenFiles::of(&with(10_000), 20_000).unwrap();
        let sql = Config::default().sql.max_connections;
        assert_eq!((large.http, large.sql), (HTTP_FILES, sql));
        assert!((11_000..15_000).contains(&large.targets), "{large:?}");

        let small = OpenFiles::of(&with(3), 256).unwrap();
        assert_eq!((small.http, small.sql), (128, 8));
        assert!(small.targets >= TargetFiles::needed(3));

        let refused = OpenFiles::of(&with(20_000), 20_000).unwrap_err();
        let needed = files_needed(&with(20_000));
        assert!(
            refused
                .to_string()
                .contains(&format!("LimitNOFILE={needed}")),
            "{refused}"
        );
        OpenFiles::of(&with(20_000), needed).unwrap();
    }
}
