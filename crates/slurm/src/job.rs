//! One job run, and what one row of a scheduler's records turned out to be.

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

/// One run of a job: from a submission to its end. A requeued job has one for each time it was queued, an array one
/// for each task, a heterogeneous job one for each component.
///
/// `cluster`, `job_id` and `submit` are its identity: ids come round again. Instants are UTC seconds since 1970. What
/// a run held is `None` where nobody saw it, never 0; a run that never got a node has no `start` and held nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRun {
    /// The cluster's name (Slurm's `ClusterName`).
    pub cluster: String,
    /// As Slurm writes it: `123`, `123_4` (array task), `123+0` (component of a heterogeneous job).
    pub job_id: String,
    /// When it was submitted, or requeued, or resized.
    pub submit: i64,
    /// When nothing but a lack of resources kept it waiting any more.
    pub eligible: Option<i64>,
    /// When it got its nodes; `None` if it never did, or not yet.
    pub start: Option<i64>,
    /// When it left them, or the queue; `None` while it waits or runs.
    pub end: Option<i64>,
    /// Slurm's word: `COMPLETED`, `RUNNING`, `CANCELLED` (without the `by 1000`), …
    pub state: String,
    /// Who submitted it.
    pub user: String,
    /// What it is charged to.
    pub account: String,
    /// Where it ran; several with commas while it waits in several.
    pub partition: String,
    /// Its quality of service.
    pub qos: Option<String>,
    /// The name its user gave it.
    pub name: Option<String>,
    /// Nodes held.
    pub nodes: Option<u64>,
    /// CPUs held, as Slurm counts them (threads or cores).
    pub cpus: Option<u64>,
    /// GPUs held.
    pub gpus: Option<u64>,
    /// Their type in Slurm's words (`a100`); several types are joined with `+`.
    pub gpu_model: Option<String>,
    /// Memory held, on all nodes together.
    pub mem_bytes: Option<u64>,
    /// Billing TRES: the units that Slurm's own rates make of what it held.
    pub billing: Option<u64>,
    /// What it held, as Slurm wrote it.
    pub alloc_tres: Option<String>,
    /// What it asked for, as Slurm wrote it.
    pub req_tres: Option<String>,
    /// The nodes it held, as Slurm wrote them (`gpu[1-3]`).
    pub node_list: Option<String>,
    /// Seconds it ran, suspension excluded; known when it has ended.
    pub elapsed: Option<u64>,
    /// Seconds it was suspended.
    pub suspended: Option<u64>,
    /// Seconds it may run; `None` without a limit.
    pub timelimit: Option<u64>,
    /// Exit code and signal (`1:0`).
    pub exit_code: Option<String>,
    /// The reservation that it was submitted to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// Slurm's own number of an array's task or a component, by which its nodes know it: `123_4` may be 130 there. `None`
    /// where it is the id, or nobody told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_job_id: Option<String>,
}

impl JobRun {
    /// What accounting looks at.
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

/// The part of a [`JobRun`] that accounting looks at, borrowed from wherever it lies: a million of them are read for a
/// report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each field is the one of the same name in `JobRun`"
)]
pub struct HeldRun<'a> {
    pub submit: i64,
    pub start: Option<i64>,
    pub end: Option<i64>,
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

/// What one row of a source turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A run.
    Run(JobRun),
    /// The tasks of an array that Slurm tells of in one row (`17_[5-9]`), because it never took them apart.
    Tasks {
        /// What they have in common: everything but the id.
        run: JobRun,
        /// Their ids.
        job_ids: Vec<String>,
    },
    /// A step, which holds nothing beyond its job's allocation.
    Step,
    /// Not understood.
    Rejected(Reject),
}

/// A row that could not be understood: set aside as it came, never dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reject {
    /// Its line in the file, from 1; `None` where there is no file.
    pub line: Option<u64>,
    /// Why.
    pub reason: String,
    /// The row.
    pub text: String,
}

/// A time zone's name that the IANA database does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown time zone '{0}' (expected an IANA name such as Europe/Oslo)")]
pub struct UnknownTimeZone(pub String);

/// The time zone of an IANA name.
///
/// # Errors
/// When there is none of that name.
pub fn time_zone(name: &str) -> Result<TimeZone, UnknownTimeZone> {
    TimeZone::get(name).map_err(|_| UnknownTimeZone(name.to_owned()))
}
