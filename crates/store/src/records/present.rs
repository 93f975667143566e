//! Runs and events of the present, for the overview of a cluster.

use super::{Records, TimeColumns, micros};
use crate::{EventRecord, StoreError};
use duckdb::types::Value;
use takt_model::{Timestamp, UnixTime};

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
    /// Partition of the job.
    pub partition: String,
    /// Name of the job; `None` if the scheduler gave none.
    pub name: Option<String>,
    /// Start of the run.
    pub start: UnixTime,
}

/// A GPU that slurmctld has allocated to a running job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocatedGpu {
    /// Name of the node.
    pub node: String,
    /// GRES index of the GPU on that node.
    pub index: u32,
    /// Number of the job on its nodes.
    pub number: String,
    /// When slurmctld first named the GPU.
    pub since: UnixTime,
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
    /// Time.
    pub at: Timestamp,
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
    /// UUID of the GPU.
    pub uuid: String,
    /// User of the job; empty if the job is unknown.
    pub user: String,
    /// Account of the job; empty if the job is unknown.
    pub account: String,
    /// Begin and end.
    pub period: [UnixTime; 2],
}

impl Records<'_> {
    /// Returns the number of runs with an unknown number of GPUs that run, or that ended after
    /// `since`.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn runs_with_unknown_gpus(
        &self,
        cluster: &str,
        since: UnixTime,
    ) -> Result<u64, StoreError> {
        let found = self.list(
            "count runs with an unknown number of GPUs",
            "SELECT count(*) FROM records.jobs
             WHERE cluster = ? AND gpus IS NULL AND start_time IS NOT NULL AND source <> 'processes'
               AND coalesce(end_time > make_timestamp(?::BIGINT)::TIMESTAMP_S, true)",
            vec![cluster.to_owned().into(), micros(since).into()],
            |row| row.get(0),
        )?;
        Ok(found.into_iter().next().unwrap_or(0))
    }

    /// Returns when the newest record of a scheduler's job changed: the latest submission, start or
    /// end. `None` without jobs.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn newest_change(&self, cluster: &str) -> Result<Option<UnixTime>, StoreError> {
        let found = self.list(
            "find the newest job record",
            "SELECT epoch_ms(max(greatest(submit_time, start_time, end_time))) // 1000
             FROM records.jobs WHERE cluster = ? AND source <> 'processes'",
            vec![cluster.to_owned().into()],
            |row| row.time_if_set(0),
        )?;
        Ok(found.into_iter().next().flatten())
    }

    /// Returns the running jobs of a cluster.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn running_jobs(&self, cluster: &str) -> Result<Vec<RunningJob>, StoreError> {
        self.list(
            "list the running jobs",
            "SELECT coalesce(raw_job_id, job_id), job_id, \"user\", account, \"partition\", job_name, epoch_ms(start_time) // 1000
             FROM records.jobs WHERE cluster = ? AND end_time IS NULL AND start_time IS NOT NULL",
            vec![cluster.to_owned().into()],
            |row| {
                Ok(RunningJob {
                    number: row.get(0)?,
                    job_id: row.get(1)?,
                    user: row.get(2)?,
                    account: row.get(3)?,
                    partition: row.get(4)?,
                    name: row.get(5)?,
                    start: row.time(6)?,
                })
            },
        )
    }

    /// Returns the GPUs that slurmctld had allocated to running jobs when it was last asked.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn allocated_gpus(&self, cluster: &str) -> Result<Vec<AllocatedGpu>, StoreError> {
        // A GPU that slurmctld did not name in the three minutes up to its last answer was given back.
        self.list(
            "list the allocated GPUs",
            "SELECT g.node, g.gpu_index, coalesce(j.raw_job_id, j.job_id), epoch_ms(g.first_seen) // 1000
             FROM records.job_gpus AS g
             JOIN records.jobs AS j
                 ON j.cluster = g.cluster AND j.job_id = g.job_id AND j.submit_time = g.submit_time
             WHERE g.cluster = ? AND g.source = 'slurmctld' AND j.start_time IS NOT NULL AND j.end_time IS NULL
               AND g.last_seen > (SELECT max(l.last_seen) FROM records.job_gpus AS l
                                  WHERE l.cluster = g.cluster AND l.source = 'slurmctld') - INTERVAL 3 MINUTES
             ORDER BY ALL",
            vec![cluster.to_owned().into()],
            |row| {
                Ok(AllocatedGpu {
                    node: row.get(0)?,
                    index: row.get(1)?,
                    number: row.get(2)?,
                    since: row.time(3)?,
                })
            },
        )
    }

    /// Returns the number of running and pending jobs of a cluster.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn queue_counts(&self, cluster: &str) -> Result<QueueCounts, StoreError> {
        // A run without an end has started or is pending.
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

    /// Returns the last `most` transitions of alerts in `[from, to)`, the newest first.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn alert_log(
        &self,
        from: UnixTime,
        to: UnixTime,
        most: usize,
    ) -> Result<Vec<AlertTransition>, StoreError> {
        // Transitions of one moment are in the order in which they were written.
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
                Ok(AlertTransition { at: Timestamp(row.get(0)?), texts })
            },
        )
    }

    /// Returns the events of exporters in `[from, to)`, the newest first, at most
    /// `most`.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn events(
        &self,
        from: UnixTime,
        to: UnixTime,
        most: usize,
    ) -> Result<Vec<EventRecord>, StoreError> {
        self.list(
            "read the events of exporters",
            "SELECT epoch_ms(happened_at), node, kind, labels, message FROM records.events
             WHERE happened_at >= make_timestamp(?::BIGINT) AND happened_at < make_timestamp(?::BIGINT)
             ORDER BY happened_at DESC, rowid DESC LIMIT ?",
            vec![micros(from).into(), micros(to).into(), (most as i64).into()],
            |row| {
                Ok(EventRecord {
                    at: Timestamp(row.get(0)?),
                    texts: [row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?],
                })
            },
        )
    }

    /// Returns the periods in which jobs held the GPUs of a node, that end after `from` (UTC
    /// seconds), the newest first.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn holds_of_node(
        &self,
        cluster: &str,
        node: &str,
        from: UnixTime,
        most: usize,
    ) -> Result<Vec<GpuHold>, StoreError> {
        self.holds(
            "g.node = ? AND g.last_seen >= make_timestamp(?::BIGINT)",
            vec![
                cluster.to_owned().into(),
                node.to_owned().into(),
                micros(from).into(),
                (most as i64).into(),
            ],
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
        self.holds(
            "g.uuid = ?",
            vec![
                cluster.to_owned().into(),
                uuid.to_owned().into(),
                (most as i64).into(),
            ],
        )
    }

    fn holds(&self, condition: &str, values: Vec<Value>) -> Result<Vec<GpuHold>, StoreError> {
        // The run may be unknown, because exporters see a GPU before the scheduler's record arrives.
        let sql = format!(
            "SELECT g.job_id, g.node, g.uuid, coalesce(j.\"user\", ''), coalesce(j.account, ''),
                    epoch_ms(g.first_seen) // 1000, epoch_ms(g.last_seen) // 1000
             FROM records.job_gpus AS g
             LEFT JOIN records.jobs AS j
                 ON j.cluster = g.cluster AND j.job_id = g.job_id AND j.submit_time = g.submit_time
             WHERE g.cluster = ? AND g.uuid IS NOT NULL AND {condition} ORDER BY g.last_seen DESC LIMIT ?"
        );

        self.list("list the jobs of GPUs", &sql, values, |row| {
            Ok(GpuHold {
                job_id: row.get(0)?,
                node: row.get(1)?,
                uuid: row.get(2)?,
                user: row.get(3)?,
                account: row.get(4)?,
                period: [row.time(5)?, row.time(6)?],
            })
        })
    }
}
