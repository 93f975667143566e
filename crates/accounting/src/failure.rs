//! Cause of a run's failure, with the evidence: Slurm's record, the run's own measurements, and the
//! states of its nodes.

use crate::efficiency::{FixKind, NodeFigures};
use serde::{Deserialize, Serialize};
use takt_jobs::{JobRun, NodeCondition, NodeEvent, NodeState};
use takt_model::{Timestamp, UnixTime};

/// Cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCause {
    /// The kernel killed the run, or a process of it, for lack of memory.
    OutOfMemory,
    /// A GPU of the run failed, or its driver reported an error.
    GpuFault,
    /// A node of the run failed or did not boot.
    NodeFailure,
    /// The run reached its time limit.
    TimeLimit,
    /// The run reached its deadline.
    Deadline,
    /// A job with a higher priority took the resources.
    Preempted,
    /// A person or a script cancelled the run.
    Cancelled,
    /// A signal ended the program.
    Signal,
    /// The program ended itself with an exit status other than 0.
    ExitStatus,
}

impl FailureCause {
    /// Returns whether a change of the script would make this failure more likely. No answer proposes
    /// such a change beside the failure.
    pub fn forbids(self, fix: FixKind) -> bool {
        matches!(
            (self, fix),
            (Self::OutOfMemory, FixKind::LessMemory) | (Self::TimeLimit, FixKind::LessTime)
        )
    }
}

/// Returns the cause of a failure as far as Slurm's state alone tells it.
pub fn recorded_cause(run: &JobRun) -> Option<FailureCause> {
    Some(match run.state.as_str() {
        "NODE_FAIL" | "BOOT_FAIL" => FailureCause::NodeFailure,
        "OUT_OF_MEMORY" => FailureCause::OutOfMemory,
        "DEADLINE" => FailureCause::Deadline,
        "PREEMPTED" => FailureCause::Preempted,
        _ => return None,
    })
}

/// Cause of a failure, with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Cause.
    pub cause: FailureCause,
    /// Cause as a sentence, without a full stop.
    pub words: String,
    /// Proposal for the user, as a sentence without a full stop.
    pub advice: String,
    /// Observations that lead to the cause, the earliest first.
    pub evidence: Vec<Evidence>,
}

/// One observation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Time of the observation. `None` if it has no time of its own.
    pub at: Option<UnixTime>,
    /// Node of the observation.
    pub node: Option<String>,
    /// UUID of the GPU of the observation.
    pub gpu: Option<String>,
    /// Observation in words.
    pub words: String,
}

/// Meaning and class of an XID error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XidMeaning {
    /// Meaning in words.
    pub words: String,
    /// Whether the program usually causes the error, and not the hardware.
    pub is_by_program: bool,
}

/// Observations around the end of a run.
#[derive(Debug, Clone, Copy)]
pub struct Traces<'t> {
    /// Measurements of the run by node.
    pub nodes: &'t [NodeFigures],
    /// Intervals in which nodes of the cluster were unavailable.
    pub node_events: &'t [NodeEvent],
    /// Names of the run's nodes.
    pub node_names: &'t [String],
    /// Meaning of an XID.
    pub xid: fn(&str) -> XidMeaning,
}

/// States in which a run has failed.
const FAILED_STATES: &[&str] = &[
    "FAILED",
    "TIMEOUT",
    "OUT_OF_MEMORY",
    "NODE_FAIL",
    "BOOT_FAIL",
    "CANCELLED",
    "DEADLINE",
    "PREEMPTED",
];

/// Seconds around the end of a run in which a node's failure belongs to it.
const AROUND_END: i64 = 600;

/// Share of the requested memory above which a run that was killed was probably out of memory.
const NEAR_LIMIT: f64 = 0.95;

/// Returns whether a run ended in a state that [`failure`] explains.
pub fn has_failed(run: &JobRun) -> bool {
    run.end.is_some() && FAILED_STATES.contains(&run.state.as_str())
}

/// Returns the cause of a run's failure. `None` for a run that has not ended, or that completed.
pub fn failure(run: &JobRun, traces: &Traces<'_>) -> Option<Failure> {
    let end = run.end.filter(|_| has_failed(run))?;
    let mut evidence = recorded(run, end);
    let memory = memory_evidence(run, traces);
    let gpus = gpu_evidence(traces);
    let nodes = node_evidence(traces, end);
    let cause = cause(run, traces, !nodes.is_empty());
    let (words, advice) = words(run, cause, traces);

    evidence.extend(memory.into_iter().chain(gpus).chain(nodes));
    evidence.sort_by_key(|one| one.at.unwrap_or(UnixTime::MIN));

    Some(Failure {
        cause,
        words,
        advice,
        evidence,
    })
}

fn cause(run: &JobRun, traces: &Traces<'_>, has_node_event: bool) -> FailureCause {
    let kills = traces
        .nodes
        .iter()
        .any(|node| node.oom_kills.is_some_and(|kills| kills > 0.0));
    let status = ExitCode::of(run);
    let is_killed = status.signal == Some(9);

    // Slurm's word is exact where it has one.
    if let Some(recorded) = recorded_cause(run) {
        return recorded;
    }

    // The kernel's counter is proof; a kill near the limit is likely one.
    if kills || is_killed && memory_share(run, traces).is_some_and(|share| share >= NEAR_LIMIT) {
        return FailureCause::OutOfMemory;
    }

    // Any XID counts here: a program's own error is named as such.
    let is_gpu = |node: &NodeFigures| {
        node.gpus
            .iter()
            .any(|gpu| gpu.fault.is_some() || !gpu.xids.is_empty())
    };
    if traces.nodes.iter().any(is_gpu) {
        return FailureCause::GpuFault;
    }

    // A cancelled run or one at its limit ended for that reason, even if a node failed later.
    match run.state.as_str() {
        "TIMEOUT" => FailureCause::TimeLimit,
        "CANCELLED" => FailureCause::Cancelled,
        _ if has_node_event => FailureCause::NodeFailure,
        _ if status.signal.is_some() => FailureCause::Signal,
        _ => FailureCause::ExitStatus,
    }
}

/// Exit status and signal of a run.
struct ExitCode {
    /// Exit status. `None` if the source has none.
    status: Option<u32>,
    /// Signal that ended the program: Slurm's, or the one in a shell's exit status above 128.
    signal: Option<u32>,
}

impl ExitCode {
    fn of(run: &JobRun) -> Self {
        let code = run
            .exit_code
            .as_deref()
            .and_then(|code| code.split_once(':'));
        let number = |text: &str| text.parse::<u32>().ok();
        let status = code.and_then(|(status, _)| number(status));
        // `0:9` has Slurm's signal; `137:0` is a shell's status of 128 and the signal.
        let by_slurm = code
            .and_then(|(_, signal)| number(signal))
            .filter(|signal| *signal > 0);
        let by_shell = status
            .and_then(|status| status.checked_sub(128))
            .filter(|signal| (1..=64).contains(signal));

        Self {
            status,
            signal: by_slurm.or(by_shell),
        }
    }
}

/// Signals with their names and usual causes.
const SIGNALS: &[(u32, &str, &str)] = &[
    (2, "SIGINT", "it was interrupted"),
    (4, "SIGILL", "it was built for another CPU"),
    (
        6,
        "SIGABRT",
        "it gave up after an error of its own, such as a failed assertion",
    ),
    (7, "SIGBUS", "it read memory or a file that was gone"),
    (8, "SIGFPE", "it divided by zero"),
    (
        9,
        "SIGKILL",
        "something killed it; often the lack of memory",
    ),
    (
        11,
        "SIGSEGV",
        "it used memory that it does not own: a bug in the program",
    ),
    (13, "SIGPIPE", "the program that read its output had ended"),
    (15, "SIGTERM", "it was asked to end"),
    (24, "SIGXCPU", "it reached a limit of CPU time"),
    (25, "SIGXFSZ", "it reached a limit of file size"),
];

fn words(run: &JobRun, cause: FailureCause, traces: &Traces<'_>) -> (String, String) {
    let sentence = |words: &str, advice: &str| (words.to_owned(), advice.to_owned());
    match cause {
        FailureCause::OutOfMemory => {
            let held = run
                .mem_bytes
                .map_or_else(String::new, |bytes| format!(" of {}", gib(bytes as f64)));
            (
                format!("it needed more memory than its limit{held}"),
                more_memory(run, traces),
            )
        }
        FailureCause::GpuFault => gpu_words(traces),
        FailureCause::NodeFailure if run.state == "BOOT_FAIL" => sentence(
            "a node did not boot",
            "submit it again; the fault is the cluster's",
        ),
        FailureCause::NodeFailure => sentence(
            "a node failed under it",
            "submit it again, unless Slurm has requeued it; the fault is the cluster's",
        ),
        FailureCause::TimeLimit => {
            let limit = run
                .timelimit
                .map_or_else(String::new, |limit| format!(" of {}", hours_minutes(limit)));
            (
                format!("it reached its time limit{limit}"),
                "request more time (--time), or save checkpoints and continue from them".to_owned(),
            )
        }
        FailureCause::Deadline => sentence(
            "it reached its deadline (--deadline)",
            "submit it earlier, or with a later deadline",
        ),
        FailureCause::Preempted => sentence(
            "a job with a higher priority took its resources",
            "save checkpoints, or use a partition or QOS that is not preempted",
        ),
        FailureCause::Cancelled => sentence(
            "it was cancelled (scancel)",
            "if you did not cancel it, ask your administrator",
        ),
        FailureCause::Signal => signal_words(ExitCode::of(run).signal.unwrap_or(0)),
        FailureCause::ExitStatus => exit_words(ExitCode::of(run).status),
    }
}

fn more_memory(run: &JobRun, traces: &Traces<'_>) -> String {
    let peak = peak_bytes(traces);
    let held = run.mem_bytes.map(|bytes| bytes as f64);
    let nodes = run.nodes.unwrap_or(1).max(1) as f64;
    // The higher of the peak and the limit is the base.
    match peak.into_iter().chain(held).reduce(f64::max) {
        Some(most) => {
            let wanted = (most * 1.5 / nodes / GIB).ceil();
            format!("request more memory, for example --mem={wanted:.0}G, or use less")
        }
        None => "request more memory (--mem), or use less".to_owned(),
    }
}

fn gpu_words(traces: &Traces<'_>) -> (String, String) {
    let gpus = || traces.nodes.iter().flat_map(|node| &node.gpus);
    let hardware = gpus().find_map(|gpu| Some((gpu.fault.as_ref()?, &gpu.node)));

    if let Some((fault, node)) = hardware {
        return (
            format!("a GPU of {node} failed ({fault})"),
            "submit it again on another node; the fault is the cluster's".to_owned(),
        );
    }

    // The first error is the cause, and the others may follow from it.
    let xid = gpus()
        .flat_map(|gpu| &gpu.xids)
        .min_by_key(|xid| xid.at)
        .map_or("", |xid| xid.xid.as_str());
    let meaning = (traces.xid)(xid);

    let advice = if meaning.is_by_program {
        "look for a bug in the program first: such errors are rarely the hardware's"
    } else {
        "submit it again on another node, and report the GPU"
    };

    (
        format!("the GPU driver reported XID {xid}: {}", meaning.words),
        advice.to_owned(),
    )
}

/// The signal that Slurm records if slurmstepd could not start the script, mostly because it could
/// not create the file of its output.
const NOT_STARTED: u32 = 53;

fn signal_words(signal: u32) -> (String, String) {
    if signal == NOT_STARTED {
        return (
            "Slurm could not start the script (signal 53)".to_owned(),
            "check that the folders of --output, --error and --chdir exist on the node and that you \
             may write into them"
                .to_owned(),
        );
    }
    match SIGNALS.iter().find(|(number, ..)| *number == signal) {
        Some((_, name, meaning)) => (
            format!("signal {signal} ({name}) ended the program: {meaning}"),
            "see the end of its output".to_owned(),
        ),
        None => (
            format!("signal {signal} ended the program"),
            "see the end of its output".to_owned(),
        ),
    }
}

fn exit_words(status: Option<u32>) -> (String, String) {
    let output = "see the end of its output: the program reported the failure itself";
    match status {
        Some(127) => (
            "its script called a command that does not exist (exit status 127)".to_owned(),
            "check the name, the modules and the PATH of the script".to_owned(),
        ),
        Some(126) => (
            "its script called a file that cannot be executed (exit status 126)".to_owned(),
            "check the file's permissions (chmod +x) and its first line".to_owned(),
        ),
        Some(status) if status > 0 => (
            format!("the program ended with exit status {status}"),
            output.to_owned(),
        ),
        _ => ("the job failed".to_owned(), output.to_owned()),
    }
}

/// Returns the observations in Slurm's record.
fn recorded(run: &JobRun, end: UnixTime) -> Vec<Evidence> {
    let at_end = |words: String| Evidence {
        at: Some(end),
        words,
        ..Evidence::default()
    };
    let mut found = vec![at_end(format!("Slurm recorded the state {}", run.state))];

    let code = ExitCode::of(run);
    let text = run.exit_code.as_deref().unwrap_or_default();
    // Code `0:0` says nothing.
    if code.status.is_some_and(|status| status > 0) || code.signal.is_some() {
        found.push(at_end(format!("exit code {text} (status:signal)")));
    }

    if let (Some(start), Some(limit)) = (run.start, run.timelimit)
        && run.state == "TIMEOUT"
    {
        let held = end.since(start);
        found.push(at_end(format!(
            "it ran {} of its limit of {}",
            hours_minutes(held),
            hours_minutes(limit)
        )));
    }

    found
}

fn memory_evidence(run: &JobRun, traces: &Traces<'_>) -> Vec<Evidence> {
    let mut found = Vec::new();
    for node in traces.nodes {
        if let Some(kills) = node.oom_kills.filter(|kills| *kills > 0.0) {
            found.push(Evidence {
                at: node.oom_at.map(Timestamp::whole_seconds),
                node: Some(node.node.clone()),
                gpu: None,
                words: format!("the kernel killed {kills:.0} of its processes for lack of memory"),
            });
        }
    }

    if let (Some(peak), Some(held)) = (peak_bytes(traces), run.mem_bytes) {
        let share = peak / (held as f64).max(1.0);
        // Far below the limit, memory explains nothing.
        if share >= NEAR_LIMIT || !found.is_empty() || run.state == "OUT_OF_MEMORY" {
            found.push(Evidence {
                words: format!("it used up to {} of {}", gib(peak), gib(held as f64)),
                ..Evidence::default()
            });
        }
    }
    found
}

fn gpu_evidence(traces: &Traces<'_>) -> Vec<Evidence> {
    let mut found = Vec::new();
    for gpu in traces.nodes.iter().flat_map(|node| &node.gpus) {
        let observed = |at: Timestamp, words: String| Evidence {
            at: Some(at.whole_seconds()),
            node: Some(gpu.node.clone()),
            gpu: Some(gpu.uuid.clone()),
            words,
        };

        let of_xid = gpu.xids.iter().map(|count| {
            let meaning = (traces.xid)(&count.xid).words;
            observed(count.at, format!("XID {}: {meaning}", count.xid))
        });
        found.extend(of_xid);
        found.extend(
            gpu.lost_at
                .map(|at| observed(at, "the GPU did not answer".to_owned())),
        );
    }
    found
}

/// Returns whether a node in this condition ends jobs. A drained node does not.
fn is_fault(condition: NodeCondition) -> bool {
    condition.is_unavailable() && condition != NodeCondition::Drained
}

fn node_evidence(traces: &Traces<'_>, end: UnixTime) -> Vec<Evidence> {
    traces
        .node_events
        .iter()
        .filter(|event| {
            traces.node_names.contains(&event.node)
                && is_fault(NodeState::parse(&event.state).condition())
                // slurmctld notices a failure after a timeout, so the event may follow the end.
                && (end - AROUND_END..=end + AROUND_END).contains(&event.from)
        })
        .map(|event| {
            let reason = event
                .reason
                .as_ref()
                .filter(|reason| !reason.is_empty())
                .map_or_else(String::new, |reason| format!(" ({reason})"));
            Evidence {
                at: Some(event.from),
                node: Some(event.node.clone()),
                gpu: None,
                words: format!("Slurm reported the node {}{reason}", event.state),
            }
        })
        .collect()
}

/// Returns the highest memory of the run on all nodes together, in bytes.
fn peak_bytes(traces: &Traces<'_>) -> Option<f64> {
    traces
        .nodes
        // Each node has its own peak; their sum is compared with the memory of all nodes.
        .iter()
        .filter_map(|node| node.memory_peak_bytes)
        .reduce(|sum, peak| sum + peak)
}

fn memory_share(run: &JobRun, traces: &Traces<'_>) -> Option<f64> {
    let held = run.mem_bytes.filter(|held| *held > 0)?;
    Some(peak_bytes(traces)? / held as f64)
}

const GIB: f64 = (1_u64 << 30) as f64;

fn gib(bytes: f64) -> String {
    let gib = bytes / GIB;
    if gib >= 10.0 {
        format!("{gib:.0} GiB")
    } else {
        format!("{gib:.1} GiB")
    }
}

fn hours_minutes(seconds: u64) -> String {
    // Rounded to the nearest minute.
    let minutes = (seconds + 30) / 60;
    if minutes < 60 {
        format!("{minutes} min")
    } else {
        format!("{}:{:02} h", minutes / 60, minutes % 60)
    }
}

#[cfg(test)]
mod tests;
