//! Runs and events of the present, for the overview of a cluster.

use super::{Records, micros};
use crate::StoreError;

/// A running job, with the number that nodes know it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningJob {
    /// Number of the job on its nodes; for an array task it differs from the job id.
    pub number: String,
    /// Job id.
    pub job_id: String,
    /// User of the job.
    pub user: String,
    /// Account of the job.
    pub account: String,
}

/// Number of jobs by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Running jobs.
    pub running: u64,
    /// Pending jobs.
    pub pending: u64,
}

/// A row of the alert log.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertTransition {
    /// Time, in UTC milliseconds.
    pub at_ms: i64,
    /// Rule, alertname, severity (may be empty), node (may be empty), fingerprint, labels as JSON,
    /// state before, state after, reason.
    pub texts: [String; 9],
}

/// A period in which a job held a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuHold {
    /// Job id.
    pub job_id: String,
    /// Node of the GPU.
    pub node: String,
    /// User of the job; empty if the job is unknown.
    pub user: String,
    /// Account of the job; empty if the job is unknown.
    pub account: String,
    /// Begin and end, in UTC seconds.
    pub period: [i64; 2],
}

impl Records<'_> {
    /// Returns the running jobs of a cluster.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn running_jobs(&self, cluster: &str) -> Result<Vec<RunningJob>, StoreError> {
        self.list(
            "list the running jobs",
            "SELECT coalesce(raw_job_id, job_id), job_id, \"user\", account FROM records.jobs
             WHERE cluster = ? AND end_time IS NULL AND start_time IS NOT NULL",
            vec![cluster.to_owned().into()],
            |row| {
                Ok(RunningJob {
                    number: row.get(0)?,
                    job_id: row.get(1)?,
                    user: row.get(2)?,
                    account: row.get(3)?,
                })
            },
        )
    }

    /// Returns the number of running and pending jobs of a cluster.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn queue_counts(&self, cluster: &str) -> Result<QueueCounts, StoreError> {
        let counts = self.list(
            "count the jobs",
            "SELECT count(*) FILTER (start_time IS NOT NULL), count(*) FILTER (start_time IS NULL)
             FROM records.jobs WHERE cluster = ? AND end_time IS NULL",
            vec![cluster.to_owned().into()],
            |row| {
                Ok(QueueCounts {
                    running: row.get(0)?,
                    pending: row.get(1)?,
                })
            },
        )?;
        Ok(counts.into_iter().next().unwrap_or_default())
    }

    /// Returns the last `most` transitions of alerts in `[from, to)` (UTC seconds), the newest first.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn alert_log(
        &self,
        from: i64,
        to: i64,
        most: usize,
    ) -> Result<Vec<AlertTransition>, StoreError> {
        self.list(
            "read the alert log",
            "SELECT epoch_ms(happened_at), rule, alertname, coalesce(severity, ''), coalesce(node, ''), fingerprint, labels,
                    state_before, state_after, reason
             FROM records.alert_transitions
             WHERE happened_at >= make_timestamp(?::BIGINT) AND happened_at < make_timestamp(?::BIGINT)
             ORDER BY happened_at DESC, rowid DESC LIMIT ?",
            vec![micros(from).into(), micros(to).into(), (most as i64).into()],
            |row| {
                let mut texts: [String; 9] = Default::default();
                for (at, text) in texts.iter_mut().enumerate() {
                    *text = row.get(at + 1)?;
                }
                Ok(AlertTransition { at_ms: row.get(0)?, texts })
            },
        )
    }

    /// Returns the periods in which jobs held a GPU, the newest first.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn holds_of_gpu(
        &self,
        cluster: &str,
        uuid: &str,
        most: usize,
    ) -> Result<Vec<GpuHold>, StoreError> {
        self.list(
            "list the jobs of a GPU",
            "SELECT g.job_id, g.node, coalesce(j.\"user\", ''), coalesce(j.account, ''),
                    epoch_ms(g.first_seen) // 1000, epoch_ms(g.last_seen) // 1000
             FROM records.job_gpus AS g
             LEFT JOIN records.jobs AS j
                 ON j.cluster = g.cluster AND j.job_id = g.job_id AND j.submit_time = g.submit_time
             WHERE g.cluster = ? AND g.uuid = ? ORDER BY g.last_seen DESC LIMIT ?",
            vec![
                cluster.to_owned().into(),
                uuid.to_owned().into(),
                (most as i64).into(),
            ],
            |row| {
                Ok(GpuHold {
                    job_id: row.get(0)?,
                    node: row.get(1)?,
                    user: row.get(2)?,
                    account: row.get(3)?,
                    period: [row.get(4)?, row.get(5)?],
                })
            },
        )
    }
}
