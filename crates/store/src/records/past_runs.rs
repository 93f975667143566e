//! Runs of a past period, for replays.

use super::{JOB_ORDER, Records, TimeColumns, micros};
use crate::StoreError;
use takt_model::UnixTime;

/// The fields of a run that a replay reads. The run has started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PastRun {
    /// Time of submission.
    pub submit: UnixTime,
    /// Time from which only a lack of resources delayed the run.
    pub eligible: Option<UnixTime>,
    /// Start time.
    pub start: UnixTime,
    /// End time. `None` while it runs.
    pub end: Option<UnixTime>,
    /// Time limit in seconds.
    pub timelimit: Option<i64>,
    /// Allocated nodes.
    pub nodes: Option<u64>,
    /// Allocated CPUs.
    pub cpus: Option<u64>,
    /// Allocated GPUs.
    pub gpus: Option<u64>,
    /// Allocated memory, in bytes.
    pub mem_bytes: Option<u64>,
    /// GPU type in Slurm's words.
    pub gpu_model: Option<String>,
    /// Unix user.
    pub user: String,
    /// Account.
    pub account: String,
    /// Partition.
    pub partition: String,
    /// Reservation that the job was submitted to.
    pub reservation: Option<String>,
    /// Allocated nodes, as Slurm writes them.
    pub node_list: Option<String>,
    /// Requested TRES, as Slurm writes them.
    pub req_tres: Option<String>,
}

impl Records<'_> {
    /// Passes the runs of a cluster that waited or ran in `[from, to)` and have started to `show`: at most `most`, in the order
    /// in which they became eligible.
    ///
    /// # Errors
    /// If DuckDB fails. Some runs may have been passed before.
    pub fn past_runs(
        &self,
        cluster: &str,
        (from, to): (UnixTime, UnixTime),
        most: usize,
        mut show: impl FnMut(PastRun),
    ) -> Result<(), StoreError> {
        let sql = format!(
            "SELECT epoch_ms(submit_time) // 1000, epoch_ms(eligible_time) // 1000, epoch_ms(start_time) // 1000,
                    epoch_ms(end_time) // 1000, timelimit_seconds, nodes, cpus, gpus, mem_bytes, gpu_model,
                    \"user\", account, \"partition\", reservation, node_list, req_tres
             FROM records.jobs
             WHERE cluster = ? AND start_time IS NOT NULL AND source <> 'processes'
               AND coalesce(eligible_time, submit_time) < make_timestamp(?::BIGINT)::TIMESTAMP_S
               AND coalesce(end_time > make_timestamp(?::BIGINT)::TIMESTAMP_S, true)
             ORDER BY coalesce(eligible_time, submit_time), submit_time, {JOB_ORDER}
             LIMIT {most}"
        );

        let values = vec![
            cluster.to_owned().into(),
            micros(to).into(),
            micros(from).into(),
        ];

        // Each row is passed on, so that a million of them are never held.
        self.list("read the past jobs", &sql, values, |row| {
            show(PastRun {
                submit: row.time(0)?,
                eligible: row.time_if_set(1)?,
                start: row.time(2)?,
                end: row.time_if_set(3)?,
                timelimit: row.get(4)?,
                nodes: row.get(5)?,
                cpus: row.get(6)?,
                gpus: row.get(7)?,
                mem_bytes: row.get(8)?,
                gpu_model: row.get(9)?,
                user: row.get(10)?,
                account: row.get(11)?,
                partition: row.get(12)?,
                reservation: row.get(13)?,
                node_list: row.get(14)?,
                req_tres: row.get(15)?,
            });
            Ok(())
        })?;
        Ok(())
    }
}
