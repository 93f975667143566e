//! One job run, and the result of parsing one record.

use crate::bounded;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use takt_model::UnixTime;

/// One run of a job, from submission to end. A requeued job has one run for each time it was
/// queued, an array has one for each task, a heterogeneous job has one for each component.
///
/// `cluster`, `job_id` and `submit` identify a run, because Slurm reuses job ids. Amounts are `None`
/// if the source did not record them, never 0. A run that never started has no `start` and held
/// nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRun {
    /// Cluster name (Slurm's `ClusterName`).
    pub cluster: String,
    /// Job id as Slurm writes it: `123`, `123_4` (array task), `123+0` (component of a
    /// heterogeneous job).
    pub job_id: String,
    /// Time of submission, requeue or resize.
    pub submit: UnixTime,
    /// Time from which only a lack of resources delayed the run.
    pub eligible: Option<UnixTime>,
    /// Start time. `None` if the run has not started.
    pub start: Option<UnixTime>,
    /// End time. `None` while the run is pending or running.
    pub end: Option<UnixTime>,
    /// Slurm's state: `COMPLETED`, `RUNNING`, `CANCELLED` (without `by 1000`), …
    pub state: String,
    /// Unix user who submitted the job.
    pub user: String,
    /// Account that is charged.
    pub account: String,
    /// Partition. A pending job may list several, separated by commas; the store keeps one of a run that has
    /// begun.
    pub partition: String,
    /// Quality of service.
    pub qos: Option<String>,
    /// Job name.
    pub name: Option<String>,
    /// Number of allocated nodes.
    pub nodes: Option<u64>,
    /// Number of allocated CPUs, as Slurm counts them (threads or cores).
    pub cpus: Option<u64>,
    /// Number of allocated GPUs.
    pub gpus: Option<u64>,
    /// GPU type in Slurm's words (`a100`). Several types are joined with `+`.
    pub gpu_model: Option<String>,
    /// Allocated memory on all nodes together, in bytes.
    pub mem_bytes: Option<u64>,
    /// Billing TRES: billing units by Slurm's own weights.
    pub billing: Option<u64>,
    /// Allocated TRES (`AllocTRES`), as Slurm wrote them.
    pub alloc_tres: Option<String>,
    /// Requested TRES (`ReqTRES`), as Slurm wrote them.
    pub req_tres: Option<String>,
    /// Allocated nodes, as Slurm wrote them (`gpu[1-3]`).
    pub node_list: Option<String>,
    /// Run time without suspension, in seconds. `None` until the run has ended.
    pub elapsed: Option<u64>,
    /// Time of suspension, in seconds.
    pub suspended: Option<u64>,
    /// Time limit in seconds. `None` without a limit.
    pub timelimit: Option<u64>,
    /// Exit code and signal (`1:0`).
    pub exit_code: Option<String>,
    /// Reservation that the job was submitted to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// Slurm's internal number of an array task or a component. The node's cgroups use it: `123_4`
    /// may be 130 there. `None` if it equals the id or the source lacks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_job_id: Option<String>,
    /// Slurm's unique id of the run, since 26.05 (`s88DKSW5HH2P00`). Slurm draws a new one at each requeue and
    /// resize, thus one for each `submit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sluid: Option<String>,
    /// SLUID of the run before its resizes; `sluid` of a run that was not resized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original_sluid: Option<String>,
    /// Largest allocated memory, in bytes, of a run whose memory was seen to shrink while it ran (since Slurm
    /// 26.05); `mem_bytes` is the last size, which Slurm records. `None` for other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem_bytes_most: Option<u64>,
}

impl JobRun {
    /// Returns the largest memory that the run held, in bytes.
    pub fn largest_mem_bytes(&self) -> Option<u64> {
        self.mem_bytes_most.or(self.mem_bytes)
    }

    /// Returns the SLUID that the parts of a resized run share. `None` if Slurm does not record it.
    pub fn lineage(&self) -> Option<&str> {
        self.original_sluid.as_deref().or(self.sluid.as_deref())
    }

    /// Returns the fields that accounting reads.
    pub fn held(&self) -> HeldRun<'_> {
        HeldRun {
            submit: self.submit,
            start: self.start,
            end: self.end,
            nodes: self.nodes,
            cpus: self.cpus,
            gpus: self.gpus,
            mem_bytes: self.mem_bytes,
            billing: self.billing,
            user: &self.user,
            account: &self.account,
            partition: &self.partition,
            state: &self.state,
            qos: self.qos.as_deref(),
            gpu_model: self.gpu_model.as_deref(),
            node_list: self.node_list.as_deref(),
            reservation: self.reservation.as_deref(),
        }
    }
}

/// The fields of a [`JobRun`] that accounting reads, borrowed: one report reads a million of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each field is the one of the same name in `JobRun`"
)]
pub struct HeldRun<'a> {
    pub submit: UnixTime,
    pub start: Option<UnixTime>,
    pub end: Option<UnixTime>,
    pub nodes: Option<u64>,
    pub cpus: Option<u64>,
    pub gpus: Option<u64>,
    pub mem_bytes: Option<u64>,
    pub billing: Option<u64>,
    pub user: &'a str,
    pub account: &'a str,
    pub partition: &'a str,
    pub state: &'a str,
    pub qos: Option<&'a str>,
    pub gpu_model: Option<&'a str>,
    pub node_list: Option<&'a str>,
    pub reservation: Option<&'a str>,
}

/// Result of parsing one record of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A run.
    Run(JobRun),
    /// Pending tasks of an array in one record (`17_[5-9]`).
    Tasks {
        /// Fields that the tasks share: all except the id.
        run: JobRun,
        /// Job ids of the tasks.
        job_ids: Vec<String>,
    },
    /// A job step. Its allocation is part of the job's.
    Step,
    /// A record that cannot be parsed.
    Rejected(Reject),
}

/// A record that cannot be parsed. Takt stores it unchanged instead of dropping it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reject {
    /// Line number in the file, from 1. `None` if the source is not a file.
    pub line: Option<u64>,
    /// Reason why the record was rejected.
    pub reason: String,
    /// Text of the record.
    pub text: String,
}

/// Maximum length of the stored text of a rejected record, in bytes.
const MAX_REJECT_BYTES: usize = 4096;

impl Reject {
    /// Returns a rejected record; a long text is cut.
    pub(super) fn new(line: Option<u64>, reason: String, text: &str) -> Self {
        Self {
            line,
            reason,
            text: bounded(text, MAX_REJECT_BYTES).into_owned(),
        }
    }
}

/// The IANA time zone database lacks this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown time zone '{0}' (expected an IANA name such as Europe/Oslo)")]
pub struct UnknownTimeZone(pub String);

/// Returns the time zone of an IANA name.
///
/// # Errors
/// The database lacks the name.
pub fn time_zone(name: &str) -> Result<TimeZone, UnknownTimeZone> {
    TimeZone::get(name).map_err(|_| UnknownTimeZone(name.to_owned()))
}
