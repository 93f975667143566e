//! The ledger of credits, and the log of sent reports.

use super::{Records, StoreError, TimeColumns, micros};
use duckdb::params;
use serde::{Deserialize, Serialize};
use takt_accounting::Credit;
use takt_model::UnixTime;

/// A report that was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentReport {
    /// Name of the cluster.
    pub cluster: String,
    /// Month of the report, as `2026-10`.
    pub month: String,
    /// Kind of report: `user`, `account` or `cluster`.
    pub kind: String,
    /// User, account or cluster of the report.
    pub subject: String,
    /// Mail address that it was sent to.
    pub recipient: String,
    /// Number of the edition: 1, then 2 for the first correction.
    pub edition: i64,
    /// Digest of its figures.
    pub digest: String,
    /// Time of sending.
    pub sent_at: UnixTime,
}

impl Records<'_> {
    /// Returns all ledger entries of a cluster, the oldest first.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn credits(&self, cluster: &str) -> Result<Vec<Credit>, StoreError> {
        self.list(
            "read the credits",
            "SELECT id, cluster, \"user\", account, job_id, epoch_ms(submit_time) // 1000, gpu_seconds, cpu_seconds,
                    epoch_ms(credited_to) // 1000, reason, granted_by, epoch_ms(granted_at) // 1000, revokes
             FROM records.credits WHERE cluster = ? ORDER BY id",
            vec![cluster.to_owned().into()],
            |row| {
                Ok(Credit {
                    id: row.get(0)?,
                    cluster: row.get(1)?,
                    user: row.get(2)?,
                    account: row.get(3)?,
                    job_id: row.get(4)?,
                    submit: row.time_if_set(5)?,
                    gpu_seconds: row.get(6)?,
                    cpu_seconds: row.get(7)?,
                    credited_to: row.time(8)?,
                    reason: row.get(9)?,
                    granted_by: row.get(10)?,
                    granted_at: row.time(11)?,
                    revokes: row.get(12)?,
                })
            },
        )
    }

    /// Adds a credit to the ledger and returns it with its number. `check` gets the current ledger
    /// and may reject the credit.
    ///
    /// # Errors
    /// The error of `check`, or of the store.
    pub fn enter_credit<E>(
        &self,
        mut credit: Credit,
        check: impl FnOnce(&[Credit]) -> Result<(), E>,
    ) -> Result<Credit, E>
    where
        E: From<StoreError>,
    {
        // Two concurrent entries could get the same number or credit a run twice.
        let _writing = self.database.writing();
        check(&self.credits(&credit.cluster)?)?;

        credit.id = self.database.connect()?.query_row(
            "INSERT INTO records.credits
             SELECT coalesce(max(id), 0) + 1, ?, ?, ?, ?, make_timestamp(?::BIGINT), ?, ?, make_timestamp(?::BIGINT),
                    ?, ?, make_timestamp(?::BIGINT), ?
             FROM records.credits RETURNING id",
            params![
                credit.cluster,
                credit.user,
                credit.account,
                credit.job_id,
                credit.submit.map(micros),
                credit.gpu_seconds,
                credit.cpu_seconds,
                micros(credit.credited_to),
                credit.reason,
                credit.granted_by,
                micros(credit.granted_at),
                credit.revokes,
            ],
            |row| row.get(0),
        ).map_err(StoreError::sql("enter the credit"))?;

        Ok(credit)
    }

    /// Returns the reports sent for a month, the oldest first.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn sent_reports(&self, cluster: &str, month: &str) -> Result<Vec<SentReport>, StoreError> {
        self.list(
            "read which reports were sent",
            "SELECT cluster, month, kind, subject, recipient, edition, digest, epoch_ms(sent_at) // 1000
             FROM records.report_log WHERE cluster = ? AND month = ? ORDER BY sent_at, edition",
            vec![cluster.to_owned().into(), month.to_owned().into()],
            |row| {
                Ok(SentReport {
                    cluster: row.get(0)?,
                    month: row.get(1)?,
                    kind: row.get(2)?,
                    subject: row.get(3)?,
                    recipient: row.get(4)?,
                    edition: row.get(5)?,
                    digest: row.get(6)?,
                    sent_at: row.time(7)?,
                })
            },
        )
    }

    /// Records that a report was sent.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn note_sent_report(&self, sent: &SentReport) -> Result<(), StoreError> {
        self.database.connect()?.execute(
            "INSERT INTO records.report_log VALUES (?, ?, ?, ?, ?, ?, ?, make_timestamp(?::BIGINT))",
            params![
                sent.cluster,
                sent.month,
                sent.kind,
                sent.subject,
                sent.recipient,
                sent.edition,
                sent.digest,
                micros(sent.sent_at)
            ],
        )
        .map(|_| ())
        .map_err(StoreError::sql("record a sent report"))
    }
}
