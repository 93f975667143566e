//! Current state of the scheduler, for the series that the server exports.

use super::{Records, RunningJob, TimeColumns, micros};
use crate::StoreError;
use takt_model::UnixTime;
use takt_slurm::Reservation;

/// State of the scheduler at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchedulerNow {
    /// Nodes: name, Slurm's states, reason.
    pub nodes: Vec<(String, String, Option<String>)>,
    /// Last start of a job.
    pub last_start: Option<UnixTime>,
    /// Jobs that ended within the last day because a node failed or did not boot.
    pub lost_jobs: Vec<LostJob>,
    /// Running interactive jobs, by the number that their nodes know, judged by their names. Idle times of such jobs are normal.
    pub interactive: Vec<String>,
    /// Running jobs.
    pub running: Vec<RunningJob>,
    /// Maintenance reservations that have begun and not ended.
    pub maintenance: Vec<Reservation>,
}

/// A job that ended because a node failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostJob {
    /// Job id.
    pub job_id: String,
    /// Name of the job; `None` if Slurm gave none.
    pub name: Option<String>,
    /// Whether Slurm has requeued the job: a later run with the same id exists.
    pub is_requeued: bool,
    /// User of the job.
    pub user: String,
    /// Nodes of the job, as Slurm writes them.
    pub node_list: Option<String>,
    /// End of the job.
    pub end: UnixTime,
}

/// Default names of interactive jobs: of salloc, of shells under srun, of Open OnDemand, and names
/// that begin with "interactive".
const INTERACTIVE: &str = "^(interactive.*|sys/dashboard/.*|-?(bash|sh|zsh|fish|tcsh|ksh|csh)|jupyter.*|vscode.*|.*code-server.*)$";

impl Records<'_> {
    /// Returns the state of the scheduler at `now`.
    ///
    /// # Errors
    /// If DuckDB fails.
    pub fn scheduler_now(&self, cluster: &str, now: UnixTime) -> Result<SchedulerNow, StoreError> {
        let nodes = self.node_states(cluster)?;
        let last_start = self.list(
            "find the last start",
            "SELECT epoch_ms(max(start_time)) // 1000 FROM records.jobs
             WHERE cluster = ? AND start_time <= make_timestamp(?::BIGINT)::TIMESTAMP_S",
            vec![cluster.to_owned().into(), micros(now).into()],
            |row| row.time_if_set(0),
        )?;
        let lost_jobs = self.list(
            "list the jobs that nodes failed",
            "SELECT job_id, \"user\", node_list, epoch_ms(end_time) // 1000, job_name,
                    EXISTS (SELECT 1 FROM records.jobs AS later
                            WHERE later.cluster = jobs.cluster AND later.job_id = jobs.job_id
                              AND later.submit_time > jobs.submit_time)
             FROM records.jobs
             WHERE cluster = ? AND end_time > make_timestamp(?::BIGINT)::TIMESTAMP_S
               AND (state LIKE 'NODE_FAIL%' OR state LIKE 'BOOT_FAIL%')
             ORDER BY end_time DESC, job_id LIMIT 1000",
            vec![cluster.to_owned().into(), micros(now - 86_400).into()],
            |row| {
                Ok(LostJob {
                    job_id: row.get(0)?,
                    user: row.get(1)?,
                    node_list: row.get(2)?,
                    end: row.time(3)?,
                    name: row.get(4)?,
                    is_requeued: row.get(5)?,
                })
            },
        )?;
        let interactive = self.list(
            "list the interactive jobs",
            "SELECT coalesce(raw_job_id, job_id) FROM records.jobs
             WHERE cluster = ? AND end_time IS NULL AND state = 'RUNNING' AND regexp_matches(lower(job_name), ?)
             ORDER BY job_id LIMIT 10000",
            vec![cluster.to_owned().into(), INTERACTIVE.to_owned().into()],
            |row| row.get(0),
        )?;
        let mut maintenance = self.reservations(cluster, now)?;
        maintenance.retain(|kept| kept.is_maintenance() && kept.from <= now);
        let last_start = last_start.into_iter().flatten().next();
        Ok(SchedulerNow {
            nodes,
            last_start,
            lost_jobs,
            interactive,
            running: self.running_jobs(cluster)?,
            maintenance,
        })
    }
}
