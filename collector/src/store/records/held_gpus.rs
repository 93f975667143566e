//! Which GPUs runs held: intervals of having been seen.

use super::{Records, micros};
use crate::store::StoreError;
use duckdb::params;
use std::sync::PoisonError;

/// A GPU that a run holds now, by its GRES index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldGpu {
    /// The job's id.
    pub job_id: String,
    /// Its submission, UTC seconds.
    pub submit: i64,
    /// The node.
    pub node: String,
    /// Slurm's number of the GPU on that node.
    pub index: u32,
}

impl Records<'_> {
    /// Notes which GPUs slurmctld says are held at `now`.
    ///
    /// # Errors
    /// When DuckDB cannot.
    pub fn note_held_gpus(&self, cluster: &str, held: &[HeldGpu], now: i64) -> Result<(), StoreError> {
        if held.is_empty() {
            return Ok(());
        }
        let _writing = self.database.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let db = self.database.connect()?;
        (|| {
            db.execute_batch(
                "CREATE TEMP TABLE held (job_id VARCHAR, submit_time TIMESTAMP_S, node VARCHAR, gpu_index BIGINT)",
            )?;
            let mut insert = db.prepare("INSERT INTO held VALUES (?, make_timestamp(?::BIGINT)::TIMESTAMP_S, ?, ?)")?;
            for gpu in held {
                insert.execute(params![gpu.job_id, micros(gpu.submit), gpu.node, gpu.index])?;
            }
            db.execute_batch("BEGIN")?;
            db.execute(
                "UPDATE records.job_gpus AS g SET last_seen = make_timestamp(?::BIGINT)::TIMESTAMP_S FROM held AS h
                 WHERE g.cluster = ? AND g.source = 'slurmctld' AND g.job_id = h.job_id
                   AND g.submit_time = h.submit_time AND g.node = h.node AND g.gpu_index = h.gpu_index",
                params![micros(now), cluster],
            )?;
            db.execute(
                "INSERT INTO records.job_gpus
                 SELECT ?, h.job_id, h.submit_time, h.node, h.gpu_index, NULL, t.now, t.now, 'slurmctld'
                 FROM held AS h, (SELECT make_timestamp(?::BIGINT)::TIMESTAMP_S AS now) AS t
                 WHERE NOT EXISTS (
                     SELECT 1 FROM records.job_gpus AS g
                     WHERE g.cluster = ? AND g.source = 'slurmctld' AND g.job_id = h.job_id
                       AND g.submit_time = h.submit_time AND g.node = h.node AND g.gpu_index = h.gpu_index)",
                params![cluster, micros(now), cluster],
            )?;
            db.execute_batch("COMMIT")
        })()
        .map_err(StoreError::sql("note which GPUs are held"))
    }
}
