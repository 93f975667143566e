//! Shares and prices, charged runs, and the history of fair share.

use super::{Records, TimeColumns, micros};
use crate::StoreError;
use duckdb::params;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::HashMap;
use takt_accounting::Accounts;
use takt_accounting::fairshare::{ShareRow, finite_or_infinite, infinite};
use takt_jobs::{ShareSettings, Shares};
use takt_model::UnixTime;

/// Source name under which the share settings of takt.toml are recorded.
pub const CONFIGURED: &str = "takt.toml";

/// Recorded share settings of one source.
#[derive(Debug, Clone, PartialEq)]
pub struct ShareSettingsRecord {
    /// Source: `slurm` or `takt.toml`.
    pub source: String,
    /// Time since which these settings apply.
    pub recorded_at: UnixTime,
    /// The settings.
    pub settings: ShareSettings,
}

/// A run with the fields that fair share needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each field is the one of the same name in `JobRun`"
)]
pub struct ChargedRun {
    pub account: String,
    pub user: String,
    pub partition: String,
    pub qos: Option<String>,
    pub start: Option<UnixTime>,
    pub end: Option<UnixTime>,
    pub timelimit: Option<u64>,
    pub alloc_tres: Option<String>,
    pub nodes: Option<u64>,
    pub cpus: Option<u64>,
    pub gpus: Option<u64>,
    pub mem_bytes: Option<u64>,
}

/// Fair share of one association at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FairsharePoint {
    /// Time.
    pub at: UnixTime,
    /// Account of the association.
    pub account: String,
    /// User of the association; `None` for an account.
    pub user: Option<String>,
    /// Decayed usage, in billing units × seconds.
    pub raw_usage: f64,
    /// Share of its account's usage, or the effective usage of the classic formula.
    pub effective_usage: f64,
    /// Shares divided by usage; infinite without usage.
    #[serde(serialize_with = "infinite", deserialize_with = "finite_or_infinite")]
    pub level_fs: Option<f64>,
    /// Fair-share factor of the priority.
    pub fair_share: Option<f64>,
}

/// Length of the stored history, with one point per hour, in seconds.
const HISTORY_SECONDS: i64 = 400 * 86_400;

impl Records<'_> {
    /// Records the share settings of `source` for a cluster, if they have changed.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_share_settings(
        &self,
        cluster: &str,
        source: &str,
        settings: &ShareSettings,
        now: UnixTime,
    ) -> Result<(), StoreError> {
        // The lock covers the comparison, so that two callers do not store the same settings.
        let _writing = self.database.writing();
        let known = self
            .latest_settings(cluster)?
            .into_iter()
            .find(|record| record.source == source);

        // A source that has never had associations needs no row.
        let nothing_said = known.is_none() && settings.associations.is_empty();
        if nothing_said || known.is_some_and(|known| known.settings == *settings) {
            return Ok(());
        }

        let text = serde_json::to_string(settings).unwrap_or_default();
        self.database.connect()?.execute(
            "INSERT INTO records.share_settings VALUES (?, ?, make_timestamp(?::BIGINT)::TIMESTAMP_S, ?)",
            params![cluster, source, micros(now), text],
        )
        .map(drop)
        .map_err(StoreError::sql("store the shares"))
    }

    /// Returns the share settings of a cluster: those of `preferred` if they name any association,
    /// else those of another source.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn share_settings(
        &self,
        cluster: &str,
        preferred: &str,
    ) -> Result<Option<ShareSettingsRecord>, StoreError> {
        let mut known = self.latest_settings(cluster)?;
        known.retain(|record| !record.settings.associations.is_empty());
        // `false` sorts before `true`, so the preferred source is the first.
        known.sort_by_key(|record| (record.source != preferred, Reverse(record.recorded_at)));
        Ok(known.into_iter().next())
    }

    /// Returns the default account of each user in `takt.toml` or Slurm, to which runs without an
    /// account are charged. `takt.toml` takes precedence.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn accounts_of_users(&self, cluster: &str) -> Result<HashMap<String, String>, StoreError> {
        let mut accounts = HashMap::new();
        let known = self.share_settings(cluster, CONFIGURED)?;
        for association in known
            .into_iter()
            .flat_map(|known| known.settings.associations)
        {
            // The first account that lists a user is the default.
            if let Some(user) = association.user {
                accounts.entry(user).or_insert(association.account);
            }
        }
        Ok(accounts)
    }

    /// Returns the parent of each account in `takt.toml` or Slurm.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn accounts(&self, cluster: &str) -> Result<Accounts, StoreError> {
        let known = self.share_settings(cluster, CONFIGURED)?;
        let accounts = known
            .into_iter()
            .flat_map(|known| known.settings.associations)
            .filter(|association| association.user.is_none())
            .filter_map(|of| Some((of.account, of.parent_account?)))
            .collect();
        Ok(Accounts::new(accounts))
    }

    /// Returns the latest settings of each source.
    fn latest_settings(&self, cluster: &str) -> Result<Vec<ShareSettingsRecord>, StoreError> {
        let rows = self.list(
            "look up the shares",
            "SELECT source, epoch_ms(max(recorded_at)) // 1000, arg_max(settings, recorded_at)
             FROM records.share_settings WHERE cluster = ? GROUP BY source",
            vec![cluster.to_owned().into()],
            |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    row.time(1)?,
                    row.get::<_, String>(2)?,
                ))
            },
        )?;
        // Settings that another version of takt wrote may be unreadable. They are fetched again.
        Ok(rows
            .into_iter()
            .filter_map(|(source, recorded_at, text)| {
                Some(ShareSettingsRecord {
                    source,
                    recorded_at,
                    settings: serde_json::from_str(&text).ok()?,
                })
            })
            .collect())
    }

    /// Returns every run of a cluster that held resources after `from`, in no
    /// particular order.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn charged_runs(
        &self,
        cluster: &str,
        from: UnixTime,
    ) -> Result<Vec<ChargedRun>, StoreError> {
        self.list(
            "read what runs are charged",
            "SELECT account, \"user\", \"partition\", qos, epoch_ms(start_time) // 1000, epoch_ms(end_time) // 1000,
                    timelimit_seconds, alloc_tres, nodes, cpus, gpus, mem_bytes
             FROM records.jobs
             WHERE cluster = ? AND start_time IS NOT NULL
               AND coalesce(end_time > make_timestamp(?::BIGINT)::TIMESTAMP_S, true)",
            vec![cluster.to_owned().into(), micros(from).into()],
            |row| {
                Ok(ChargedRun {
                    account: row.get(0)?,
                    user: row.get(1)?,
                    partition: row.get(2)?,
                    qos: row.get(3)?,
                    start: row.time_if_set(4)?,
                    end: row.time_if_set(5)?,
                    timelimit: row.get(6)?,
                    alloc_tres: row.get(7)?,
                    nodes: row.get(8)?,
                    cpus: row.get(9)?,
                    gpus: row.get(10)?,
                    mem_bytes: row.get(11)?,
                })
            },
        )
    }

    /// Records fair share at a time, and deletes points older than 400 days, by the time that has
    /// surely passed.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_fairshare(
        &self,
        cluster: &str,
        at: UnixTime,
        rows: &[ShareRow],
    ) -> Result<(), StoreError> {
        let kept_from = self.database.surely_passed(at) - HISTORY_SECONDS;

        let _writing = self.database.writing();
        let db = self.database.connect()?;

        (|| {
            db.execute_batch("BEGIN")?;
            // A point that was noted for this time already is replaced.
            db.execute(
                "DELETE FROM records.fairshare WHERE cluster = ?
                 AND (noted_at = make_timestamp(?::BIGINT)::TIMESTAMP_S OR noted_at < make_timestamp(?::BIGINT)::TIMESTAMP_S)",
                params![cluster, micros(at), micros(kept_from)],
            )?;

            let mut insert = db.prepare(
                "INSERT INTO records.fairshare
                 VALUES (?, make_timestamp(?::BIGINT)::TIMESTAMP_S, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?;

            for row in rows {
                // Slurm's `parent` has no number of shares.
                let raw_shares = match row.raw_shares {
                    Some(Shares::Raw(shares)) => Some(shares),
                    Some(Shares::Parent) | None => None,
                };
                insert.execute(params![
                    cluster,
                    micros(at),
                    row.account,
                    row.user,
                    row.partition,
                    raw_shares,
                    row.norm_shares,
                    row.raw_usage,
                    row.norm_usage,
                    row.effective_usage,
                    row.level_fs,
                    row.fair_share
                ])?;
            }
            db.execute_batch("COMMIT")
        })()
        .map_err(StoreError::sql("record the fair share"))
    }

    /// Returns the time of the last recorded point of a cluster.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn fairshare_noted(&self, cluster: &str) -> Result<Option<UnixTime>, StoreError> {
        let noted = self.list(
            "look up the fair share",
            "SELECT epoch_ms(max(noted_at)) // 1000 FROM records.fairshare WHERE cluster = ?",
            vec![cluster.to_owned().into()],
            |row| row.time_if_set(0),
        )?;
        Ok(noted.into_iter().next().flatten())
    }

    /// Returns the fair share since `from` of one user or of all, the oldest first.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn fairshare_history(
        &self,
        cluster: &str,
        user: Option<&str>,
        account: Option<&str>,
        from: UnixTime,
    ) -> Result<Vec<FairsharePoint>, StoreError> {
        self.list(
            "list the fair share",
            "SELECT epoch_ms(noted_at) // 1000, account, \"user\", raw_usage, effective_usage, level_fs, fair_share
             FROM records.fairshare
             WHERE cluster = ? AND noted_at >= make_timestamp(?::BIGINT)::TIMESTAMP_S
               AND coalesce(\"user\" = ?, true) AND coalesce(account = ?, true)
             ORDER BY noted_at, account, \"user\" NULLS FIRST",
            vec![
                cluster.to_owned().into(),
                micros(from).into(),
                user.map(str::to_owned).into(),
                account.map(str::to_owned).into(),
            ],
            |row| {
                Ok(FairsharePoint {
                    at: row.time(0)?,
                    account: row.get(1)?,
                    user: row.get(2)?,
                    raw_usage: row.get(3)?,
                    effective_usage: row.get(4)?,
                    level_fs: row.get(5)?,
                    fair_share: row.get(6)?,
                })
            },
        )
    }
}

impl ChargedRun {
    /// Returns the resources of a run as a Slurm TRES text, built from the recorded amounts if the
    /// scheduler sent none. `None` if nothing is known.
    pub fn tres_text(&self) -> Option<String> {
        if let Some(text) = self.alloc_tres.as_ref().filter(|text| !text.is_empty()) {
            // Without slurmdbd, Slurm records no GPUs; observed GPUs may be known.
            let gpus = self
                .gpus
                .filter(|gpus| *gpus > 0 && !text.contains("gres/gpu"));
            return Some(
                gpus.map_or_else(|| text.clone(), |gpus| format!("{text},gres/gpu={gpus}")),
            );
        }

        let mut text: Vec<String> = [
            ("cpu", self.cpus),
            ("gres/gpu", self.gpus),
            ("node", self.nodes),
        ]
        .iter()
        .filter_map(|(name, amount)| Some(format!("{name}={}", (*amount)?)))
        .collect();
        // Slurm's K is 1,024 bytes.
        text.extend(self.mem_bytes.map(|bytes| format!("mem={}K", bytes >> 10)));
        (!text.is_empty()).then(|| text.join(","))
    }
}
