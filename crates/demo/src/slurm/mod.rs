//! Answers of Slurm's commands, in the forms that Slurm prints.

mod live;
mod sacct;
mod sacctmgr;

use crate::page::Demo;
use crate::schedule::{Job, Outcome};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use takt_model::UnixTime;

/// The commands that [`answer`] knows.
pub const PROGRAMS: [&str; 5] = ["sacct", "sacctmgr", "scontrol", "sinfo", "squeue"];

/// Returns what a command prints at `now`. Times are in seconds, as with
/// `SLURM_TIME_FORMAT=%s`.
///
/// # Errors
/// The message on stderr of a command that fails.
pub fn answer(demo: &Demo, now: UnixTime, program: &str, args: &[&str]) -> Result<String, String> {
    // Each command is recognized by the words that Takt's calls contain.
    let has = |word: &str| args.contains(&word);
    let unknown = || Err(format!("{program}: the demo has no answer to {args:?}"));
    match program {
        "sacct" => sacct::records(demo, now, args),
        "sacctmgr" if has("event") => Ok(sacctmgr::events(demo, now)),
        "sacctmgr" if has("reservation") => Ok(sacctmgr::reservations(demo)),
        "sacctmgr" if has("assoc") => Ok(sacctmgr::associations(demo)),
        "sacctmgr" if has("associations") => Ok(sacctmgr::association_ids(demo)),
        "sacctmgr" if has("qos") => Ok(sacctmgr::QOS.to_owned()),
        "sacctmgr" if has("cluster") => Ok(format!("{}\n", demo.cluster.name)),
        "scontrol" if has("config") => Ok(live::config(demo, now)),
        "scontrol" if has("nodes") && has("--json") => Ok(live::nodes(demo, now)),
        "scontrol" if has("partition") => Ok(live::partitions(demo)),
        "scontrol" if has("reservations") => Ok("No reservations in the system\n".to_owned()),
        "sinfo" if has("--json") => Ok(live::nodes(demo, now)),
        "squeue" if has("--json") => Ok(live::queue(demo, now)),
        // An unknown call fails loudly, so that a new question of Takt is noticed.
        _ => unknown(),
    }
}

/// Weights of TRES in the billing of all partitions.
const WEIGHTS: &str = "CPU=0.5,Mem=0.05G,GRES/gpu=10";

/// Returns the TRES of a job.
fn tres(demo: &Demo, job: &Job) -> String {
    let request = job.request;
    let nodes = request.nodes as u64;
    let cpus = nodes * u64::from(request.cpus);
    let memory = nodes * u64::from(request.memory_gib);
    let gpus = nodes * request.gpus as u64;
    // `WEIGHTS`, in numbers.
    let billing = (cpus as f64 * 0.5 + memory as f64 * 0.05 + gpus as f64 * 10.0) as u64;

    let model = job
        .placed
        .first()
        .and_then(|placement| demo.cluster.nodes[placement.node].model);
    // Slurm has both the type and the sum. The type is known once the job has a node.
    let gres = match (gpus, model) {
        (0, _) => String::new(),
        (gpus, Some(model)) => format!("gres/gpu:{}={gpus},gres/gpu={gpus},", model.gres),
        (gpus, None) => format!("gres/gpu={gpus},"),
    };
    format!("billing={billing},cpu={cpus},{gres}mem={memory}G,node={nodes}")
}

/// Returns the state of a job as sacct prints it.
fn state(demo: &Demo, job: &Job, now: UnixTime) -> String {
    if job.is_pending(now) {
        return "PENDING".to_owned();
    }
    if job.is_running(now) {
        return "RUNNING".to_owned();
    }
    match job.outcome {
        Outcome::Completed => "COMPLETED".to_owned(),
        Outcome::Failed => "FAILED".to_owned(),
        // sacct has the uid behind the word.
        Outcome::Cancelled => format!("CANCELLED by {}", demo.cluster.users[job.user].uid),
        Outcome::Timeout => "TIMEOUT".to_owned(),
        Outcome::OutOfMemory => "OUT_OF_MEMORY".to_owned(),
        Outcome::NodeFail => "NODE_FAIL".to_owned(),
    }
}

/// Returns the names of the nodes of a job, separated by commas.
fn node_list(demo: &Demo, job: &Job) -> String {
    let names: Vec<&str> = job
        .placed
        .iter()
        .map(|placement| demo.cluster.nodes[placement.node].name.as_str())
        .collect();
    names.join(",")
}

/// Parses a time as sacct's options have it, in UTC.
fn parsed_time(text: &str) -> Option<UnixTime> {
    let time: DateTime = text.parse().ok()?;
    let zoned = time.to_zoned(TimeZone::UTC).ok()?;
    Some(UnixTime::from(&zoned))
}
