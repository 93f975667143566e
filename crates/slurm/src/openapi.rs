//! Slurm's OpenAPI in JSON, as slurmrestd answers and as `squeue --json` and `sinfo --json` print.
//!
//! Version 0.0.38 (Slurm 22.05) is what the tests run against a live Slurm. 0.0.39 to 0.0.45 are read from their published
//! schemas: there a number may be `{"set": true, "infinite": false, "number": 5}` and a state a list. Fields that are
//! missing or new are passed over. What a job says is put in sacct's words, so that one set of rules reads both.

use crate::Reservation;
use crate::reservation::owners;
use crate::sacct::{Field, Fields, OVER, Options, entry_of};
use crate::tres::Tres;
use crate::{Association, BillingWeights, Qos, Shares};
use crate::{Entry, Reject, nodelist};
use serde_json::Value;
use std::collections::BTreeMap;

/// An answer that says that something went wrong, under whatever HTTP status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{source_name}{description} (error {number})")]
pub struct OpenApiError {
    /// Slurm's number: 1007 is a bad or expired token, 7000 a slurmdbd that does not answer.
    pub number: i64,
    /// What it says.
    pub description: String,
    /// Which of Slurm's functions said so, with a colon.
    source_name: String,
}

/// The first error that an answer tells of. Slurm sends some with status 200.
pub fn error(answer: &Value) -> Option<OpenApiError> {
    let error = answer["errors"].as_array()?.first()?;
    let text = |key: &str| {
        error[key]
            .as_str()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    Some(OpenApiError {
        number: number(&error["error_number"])
            .or_else(|| number(&error["errno"]))
            .unwrap_or(-1),
        description: text("description")
            .or_else(|| text("error"))
            .unwrap_or_else(|| "no reason given".to_owned()),
        source_name: text("source").map_or_else(String::new, |source| format!("{source}: ")),
    })
}

/// The runs of `GET /slurmdb/vX/jobs`.
pub fn database_jobs(answer: &Value, options: &Options) -> Vec<Entry> {
    list(&answer["jobs"])
        .iter()
        .map(|job| database_job(job, options))
        .collect()
}

fn database_job(job: &Value, options: &Options) -> Entry {
    let time = &job["time"];
    let state = state(&job["state"]["current"]);
    let allocated = tres(&job["tres"]["allocated"]);
    let requested = tres(&job["tres"]["requested"]);
    let array = Array {
        job_id: &job["array"]["job_id"],
        task_id: &job["array"]["task_id"],
        tasks: &job["array"]["task"],
    };
    let user = text(&job["association"]["user"])
        .or_else(|| text(&job["user"]))
        .unwrap_or_default();
    // slurmrestd of Slurm 22.05 says SUCCESS of jobs that exited with 3: of a job that failed, no success is believed.
    let exit_code = exit_code(&job["exit_code"]);
    let believed = OVER.contains(&state.as_str()) && !(state == "FAILED" && exit_code == "0:0");
    let exit_code = if believed { exit_code } else { String::new() };
    let suspended = number(&time["suspended"]).unwrap_or(0).max(0);
    // While a job is suspended, the database keeps the instant at which that began here.
    let suspended = if suspended > 1_000_000_000 {
        0
    } else {
        suspended
    };
    let words = [
        (
            Field::JobId,
            job_id(
                &job["job_id"],
                &array,
                &job["het"]["job_id"],
                &job["het"]["job_offset"],
            ),
        ),
        (Field::JobIdRaw, count(&job["job_id"])),
        (Field::Submit, instant(&time["submission"])),
        (Field::Eligible, instant(&time["eligible"])),
        (Field::Start, instant(&time["start"])),
        (Field::End, instant(&time["end"])),
        (Field::State, state),
        (Field::User, user),
        (Field::Account, text(&job["account"]).unwrap_or_default()),
        (
            Field::Partition,
            text(&job["partition"]).unwrap_or_default(),
        ),
        (Field::Qos, text(&job["qos"]).unwrap_or_default()),
        (Field::JobName, text(&job["name"]).unwrap_or_default()),
        (Field::AllocTres, allocated),
        (Field::ReqTres, requested),
        (Field::NNodes, count(&job["allocation_nodes"])),
        (Field::NCpus, count(&job["required"]["CPUs"])),
        (Field::NodeList, text(&job["nodes"]).unwrap_or_default()),
        (Field::ElapsedRaw, count(&time["elapsed"])),
        (Field::Suspended, clock(suspended)),
        (Field::TimelimitRaw, count(&time["limit"])),
        (Field::ExitCode, exit_code),
        (
            Field::Reservation,
            text(&job["reservation"]["name"]).unwrap_or_default(),
        ),
    ];
    entry(&words, job, options)
}

/// What slurmctld knows of one job now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveJob {
    /// The run.
    pub entry: Entry,
    /// The GPUs that it holds: node and GRES index. Known only while it holds them.
    pub gpus: Vec<(String, u32)>,
    /// Why it waits, in Slurm's word.
    pub reason: Option<String>,
    /// When slurmctld means to start it, while it waits.
    pub expected_start: Option<i64>,
}

/// The jobs of `GET /slurm/vX/jobs` and `squeue --json`.
pub fn live_jobs(answer: &Value, options: &Options) -> Vec<LiveJob> {
    list(&answer["jobs"])
        .iter()
        .map(|job| live_job(job, options))
        .collect()
}

fn live_job(job: &Value, options: &Options) -> LiveJob {
    let state = state(&job["job_state"]);
    let over = OVER.contains(&state.as_str());
    let array = Array {
        job_id: &job["array_job_id"],
        task_id: &job["array_task_id"],
        tasks: &job["array_task_string"],
    };
    let user =
        text(&job["user_name"]).or_else(|| number(&job["user_id"]).map(|uid| uid.to_string()));
    let waiting = state == "PENDING";
    // slurmdbd has a record of its own for what follows a resize, and takes that for its submission.
    let resized =
        number(&job["resize_time"]).filter(|at| *at > 0 && Some(*at) >= number(&job["start_time"]));
    let submitted = |key: &str| resized.map_or_else(|| instant(&job[key]), |at| at.to_string());
    let words = [
        (
            Field::JobId,
            job_id(
                &job["job_id"],
                &array,
                &job["het_job_id"],
                &job["het_job_offset"],
            ),
        ),
        (Field::JobIdRaw, count(&job["job_id"])),
        (Field::Submit, submitted("submit_time")),
        (Field::Eligible, submitted("eligible_time")),
        (
            Field::Start,
            if waiting {
                String::new()
            } else {
                instant(&job["start_time"])
            },
        ),
        // Of a job that is not over this is the end of its time limit.
        (
            Field::End,
            if over {
                instant(&job["end_time"])
            } else {
                String::new()
            },
        ),
        (Field::State, state.clone()),
        (Field::User, user.unwrap_or_default()),
        (Field::Account, text(&job["account"]).unwrap_or_default()),
        (
            Field::Partition,
            text(&job["partition"]).unwrap_or_default(),
        ),
        (Field::Qos, text(&job["qos"]).unwrap_or_default()),
        (Field::JobName, text(&job["name"]).unwrap_or_default()),
        (
            Field::AllocTres,
            text(&job["tres_alloc_str"]).unwrap_or_default(),
        ),
        (
            Field::ReqTres,
            text(&job["tres_req_str"]).unwrap_or_default(),
        ),
        (Field::NNodes, count(&job["node_count"])),
        (Field::NCpus, count(&job["cpus"])),
        (Field::NodeList, text(&job["nodes"]).unwrap_or_default()),
        (Field::TimelimitRaw, count(&job["time_limit"])),
        (
            Field::ExitCode,
            if over {
                exit_code(&job["exit_code"])
            } else {
                String::new()
            },
        ),
        (
            Field::Reservation,
            text(&job["resv_name"]).unwrap_or_default(),
        ),
    ];
    let mut entry = entry(&words, job, options);
    // Slurm forgets what a job holds while it completes, so only of one that runs "none" means none.
    let held = ["RUNNING", "SUSPENDED"]
        .contains(&state.as_str())
        .then(|| held_gpus(job))
        .flatten();
    let held = held.filter(|held| !held.is_empty() || !wants_gpus(job));
    if let Entry::Run(run) = &mut entry
        && !run
            .alloc_tres
            .as_deref()
            .is_some_and(|tres| tres.contains("gres/gpu"))
    {
        // Without slurmdbd Slurm counts no GPU among the TRES, so that none is there says nothing.
        run.gpus = held
            .as_ref()
            .map(|held| held.iter().map(|gres| gres.count).sum());
        run.gpu_model = held.as_ref().and_then(|held| models(held));
    }
    let gpus = held.into_iter().flatten().flat_map(|gres| {
        gres.indexes
            .into_iter()
            .map(move |at| (gres.node.clone(), at))
    });
    let reason = text(&job["state_reason"]).filter(|reason| waiting && reason != "None");
    let expected_start = number(&job["start_time"]).filter(|start| waiting && *start > 0);
    LiveJob {
        entry,
        gpus: gpus.collect(),
        reason,
        expected_start,
    }
}

/// Whether a job asked for GPUs, by node, by task or in all.
fn wants_gpus(job: &Value) -> bool {
    let asked = [
        "tres_per_job",
        "tres_per_node",
        "tres_per_socket",
        "tres_per_task",
        "tres_req_str",
    ];
    asked
        .iter()
        .any(|key| text(&job[*key]).is_some_and(|tres| tres.contains("gpu")))
}

/// GPUs of one type that a job holds on one node.
struct Gres {
    node: String,
    model: Option<String>,
    count: u64,
    indexes: Vec<u32>,
}

/// `None` where Slurm gives no detail.
fn held_gpus(job: &Value) -> Option<Vec<Gres>> {
    let detail = job["gres_detail"].as_array()?;
    let nodes = text(&job["job_resources"]["nodes"]).or_else(|| text(&job["nodes"]))?;
    let nodes = nodelist::expand(&nodes).ok()?;
    let mut held = Vec::new();
    for (node, on_node) in nodes.iter().zip(detail) {
        for gres in outside_brackets(on_node.as_str().unwrap_or_default()) {
            held.extend(gpu(gres, node));
        }
    }
    Some(held)
}

/// `gpu:a100:2(IDX:0-1)`, `gpu:1(IDX:3)`.
fn gpu(gres: &str, node: &str) -> Option<Gres> {
    let (name, indexes) = gres.split_once('(').unwrap_or((gres, ""));
    let mut parts = name.split(':');
    if parts.next() != Some("gpu") {
        return None;
    }
    let parts: Vec<&str> = parts.collect();
    let indexes = indexes
        .strip_prefix("IDX:")
        .and_then(|text| text.strip_suffix(')'))
        .unwrap_or_default();
    let indexes = nodelist::ranges(indexes, 1024).unwrap_or_default();
    Some(Gres {
        node: node.to_owned(),
        model: (parts.len() > 1).then(|| parts[0].to_owned()),
        count: parts.last()?.parse().ok()?,
        indexes: indexes
            .iter()
            .filter_map(|index| index.parse().ok())
            .collect(),
    })
}

/// The types joined with `+`, as those of TRES are.
fn models(held: &[Gres]) -> Option<String> {
    let mut models: Vec<&str> = held
        .iter()
        .filter_map(|gres| gres.model.as_deref())
        .collect();
    models.sort_unstable();
    models.dedup();
    (!models.is_empty()).then(|| models.join("+"))
}

/// The parts of a list between commas that are in no bracket.
pub(super) fn outside_brackets(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0_u32, 0, Vec::new());
    for (at, letter) in text.char_indices() {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts.retain(|part| !part.is_empty());
    parts
}

/// When slurmctld answered `GET /slurm/vX/diag`, by its own clock: UTC seconds.
pub fn time(answer: &Value) -> Option<i64> {
    number(&answer["statistics"]["req_time"]).filter(|at| *at > 0)
}

/// A node as slurmctld sees it now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeNow {
    /// Its NodeName.
    pub node: String,
    /// The base state and its flags in upper case: `IDLE`, `MIXED+DRAIN`.
    pub state: String,
    /// Why, if somebody said so.
    pub reason: Option<String>,
    /// Who said so.
    pub reason_by: Option<String>,
    /// When, UTC seconds.
    pub reason_at: Option<i64>,
    /// The partitions that it is in.
    pub partitions: Vec<String>,
    /// What it has (`CfgTRES`).
    pub tres: String,
    /// What jobs hold of it (`AllocTRES`).
    pub tres_used: String,
    /// Its GPUs (`Gres`), where Slurm does not count them among the TRES.
    pub gres: String,
    /// Those that jobs hold (`GresUsed`).
    pub gres_used: String,
}

/// The nodes of `GET /slurm/vX/nodes` and `sinfo --json`.
pub fn nodes(answer: &Value) -> Vec<NodeNow> {
    let node = |node: &Value| {
        let mut states: Vec<String> = words(&node["state"]);
        states.extend(words(&node["state_flags"]));
        Some(NodeNow {
            node: text(&node["name"])?,
            state: states
                .iter()
                .map(|state| state.to_uppercase())
                .collect::<Vec<_>>()
                .join("+"),
            reason: text(&node["reason"]),
            reason_by: text(&node["reason_set_by_user"]),
            reason_at: number(&node["reason_changed_at"]).filter(|at| *at > 0),
            partitions: words(&node["partitions"]),
            tres: text(&node["tres"]).unwrap_or_default(),
            tres_used: text(&node["tres_used"]).unwrap_or_default(),
            gres: text(&node["gres"]).unwrap_or_default(),
            gres_used: text(&node["gres_used"]).unwrap_or_default(),
        })
    };
    list(&answer["nodes"]).iter().filter_map(node).collect()
}

/// The reservations of `GET /slurm/vX/reservations`.
pub fn reservations(answer: &Value) -> Vec<Reservation> {
    let one = |one: &Value| {
        let tres = text(&one["tres"])
            .and_then(|tres| Tres::parse(&tres).ok().flatten())
            .unwrap_or_default();
        let flags = match text(&one["flags"]) {
            Some(flags) => flags,
            None => words(&one["flags"]).join(","),
        };
        Some(Reservation {
            name: text(&one["name"])?,
            flags,
            node_list: text(&one["node_list"]),
            cpus: tres.cpus.unwrap_or(0),
            gpus: tres.gpus.filter(|gpus| *gpus > 0),
            owners: owners(
                text(&one["accounts"]).as_deref(),
                text(&one["users"]).as_deref(),
            ),
            from: number(&one["start_time"])?,
            to: number(&one["end_time"])?,
        })
    };
    list(&answer["reservations"])
        .iter()
        .filter_map(one)
        .collect()
}

/// The associations of one cluster in `GET /slurmdb/vX/associations`.
pub fn associations(answer: &Value, cluster: &str) -> Vec<Association> {
    let association = |one: &Value| {
        let shares = number(&one["shares_raw"])
            .and_then(|shares| u32::try_from(shares).ok())
            .unwrap_or(1);
        (one["cluster"].as_str() == Some(cluster)).then(|| {
            Some(Association {
                account: text(&one["account"])?,
                parent_account: text(&one["parent_account"]),
                user: text(&one["user"]),
                partition: text(&one["partition"]),
                shares: Shares::from_raw(shares),
                grp_tres_mins: None,
            })
        })?
    };
    list(&answer["associations"])
        .iter()
        .filter_map(association)
        .collect()
}

/// What each QOS of `GET /slurmdb/vX/qos` makes of usage.
pub fn qos(answer: &Value) -> BTreeMap<String, Qos> {
    let listed = if answer["QOS"].is_array() {
        &answer["QOS"]
    } else {
        &answer["qos"]
    };
    let one = |one: &Value| {
        let factor = &one["usage_factor"];
        let usage_factor = factor
            .as_f64()
            .or_else(|| factor["number"].as_f64())
            .unwrap_or(1.0);
        let no_decay = words(&one["flags"]).iter().any(|flag| flag == "NO_DECAY");
        Some((
            text(&one["name"])?,
            Qos {
                usage_factor,
                no_decay,
            },
        ))
    };
    list(listed).iter().filter_map(one).collect()
}

/// `TRESBillingWeights` of each partition of `GET /slurm/vX/partitions`.
pub fn billing_weights(answer: &Value) -> BTreeMap<String, Option<BillingWeights>> {
    let one = |one: &Value| {
        let weights =
            text(&one["billing_weights"]).or_else(|| text(&one["tres"]["billing_weights"]));
        let weights = weights.and_then(|text| BillingWeights::parse(&text).ok());
        Some((text(&one["name"])?, weights))
    };
    list(&answer["partitions"]).iter().filter_map(one).collect()
}

fn entry(words: &[(Field, String)], job: &Value, options: &Options) -> Entry {
    let words: Vec<(Field, &str)> = words
        .iter()
        .map(|(field, word)| (*field, word.as_str()))
        .collect();
    entry_of(&Fields::of(&words), options).unwrap_or_else(|reason| {
        Entry::Rejected(Reject {
            line: None,
            reason,
            text: job.to_string().chars().take(4096).collect(),
        })
    })
}

struct Array<'v> {
    job_id: &'v Value,
    task_id: &'v Value,
    tasks: &'v Value,
}

/// As sacct writes it: `6_3`, `6_[4-9]`, `20+1`, `7`.
fn job_id(id: &Value, array: &Array<'_>, het_id: &Value, het_offset: &Value) -> String {
    let positive = |value: &Value| number(value).filter(|number| *number > 0);
    let id = number(id).map_or_else(String::new, |id| id.to_string());
    if let Some(of) = positive(array.job_id) {
        return match (number(array.task_id), text(array.tasks)) {
            (_, Some(tasks)) => format!("{of}_[{tasks}]"),
            (Some(task), None) => format!("{of}_{task}"),
            (None, None) => id,
        };
    }
    match (positive(het_id), number(het_offset)) {
        (Some(of), Some(offset)) => format!("{of}+{offset}"),
        _ => id,
    }
}

/// `SUCCESS` is no number, so the code is put together as sacct writes it: `1:0`, `0:9`.
fn exit_code(value: &Value) -> String {
    if let Some(status) = number(value) {
        // slurmctld's own is a wait status.
        return format!("{}:{}", (status >> 8) & 0xff, status & 0x7f);
    }
    let code = number(&value["return_code"]).unwrap_or(0);
    let signal = number(&value["signal"]["signal_id"])
        .or_else(|| number(&value["signal"]["id"]))
        .unwrap_or(0);
    format!("{code}:{signal}")
}

/// `[{"type": "gres", "name": "gpu", "count": 2}, …]` in the words of a TRES string.
fn tres(value: &Value) -> String {
    let amount = |one: &Value| {
        let (kind, count) = (
            text(&one["type"])?,
            number(&one["count"]).filter(|count| *count >= 0)?,
        );
        let name = text(&one["name"]).map_or_else(String::new, |name| format!("/{name}"));
        // The API counts memory in MiB.
        let unit = if kind == "mem" { "M" } else { "" };
        (kind != "energy").then(|| format!("{kind}{name}={count}{unit}"))
    };
    list(value)
        .iter()
        .filter_map(amount)
        .collect::<Vec<_>>()
        .join(",")
}

/// The state that counts of those that a list names: a run that was requeued is over, whatever its job is now.
fn state(value: &Value) -> String {
    let states = words(value);
    let requeued = states.iter().find(|state| state.starts_with("REQUEUE"));
    match requeued {
        Some(_) => "REQUEUED".to_owned(),
        None => states.into_iter().next().unwrap_or_default(),
    }
}

fn words(value: &Value) -> Vec<String> {
    match value {
        Value::String(word) if !word.is_empty() => vec![word.clone()],
        Value::Array(words) => words
            .iter()
            .filter_map(|word| word.as_str().map(str::to_owned))
            .collect(),
        _ => Vec::new(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A text that says something.
fn text(value: &Value) -> Option<String> {
    value
        .as_str()
        .filter(|text| !text.is_empty() && *text != "(null)")
        .map(str::to_owned)
}

/// A number, plain or with the marks of later versions; `None` where it is not set or without bound.
fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number
            .as_i64()
            .or_else(|| number.as_f64().map(|number| number as i64)),
        Value::Object(marked) => {
            let is = |key: &str| marked.get(key).and_then(Value::as_bool);
            (is("set") != Some(false) && is("infinite") != Some(true))
                .then(|| number(marked.get("number")?))?
        }
        _ => None,
    }
}

fn count(value: &Value) -> String {
    number(value)
        .filter(|number| *number >= 0)
        .map_or_else(String::new, |number| number.to_string())
}

/// Seconds since 1970; 0 is none.
fn instant(value: &Value) -> String {
    number(value)
        .filter(|number| *number > 0)
        .map_or_else(String::new, |number| number.to_string())
}

/// Seconds as sacct writes a duration.
fn clock(seconds: i64) -> String {
    format!(
        "{}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobRun;
    use crate::sacct::Cluster;
    use jiff::tz::TimeZone;
    use proptest::prelude::*;
    use serde_json::json;

    fn options() -> Options {
        Options {
            cluster: Cluster::Named("lab".into()),
            zone: TimeZone::UTC,
            columns: None,
        }
    }

    fn run(entry: Entry) -> JobRun {
        match entry {
            Entry::Run(run) => run,
            other => panic!("{other:?}"),
        }
    }

    /// A run as v0.0.38 tells of it, and the same as the schemas of v0.0.40 and later have it.
    fn both() -> [Value; 2] {
        let tres = json!([
            {"type": "cpu", "name": null, "id": 1, "count": 2},
            {"type": "mem", "name": "", "id": 2, "count": 1000},
            {"type": "energy", "name": null, "id": 3, "count": -2},
            {"type": "node", "name": null, "id": 4, "count": 1},
            {"type": "gres", "name": "gpu", "id": 1001, "count": 1},
            {"type": "gres", "name": "gpu:a100", "id": 1002, "count": 1},
        ]);
        let plain = json!({
            "job_id": 12, "account": "lab-a", "name": "train", "nodes": "node0", "partition": "gpu", "qos": "normal",
            "array": {"job_id": 6, "task_id": 3, "task": null}, "het": {"job_id": 0, "job_offset": null},
            "association": {"user": "alice"}, "state": {"current": "FAILED"}, "allocation_nodes": 1,
            "time": {"submission": 1000, "eligible": 1001, "start": 1010, "end": 1110, "elapsed": 90, "suspended": 10,
                     "limit": 5},
            "exit_code": {"status": "ERROR", "return_code": 3},
            "tres": {"allocated": tres, "requested": []},
        });
        let mut marked = plain.clone();
        let number = |number: i64| json!({"set": true, "infinite": false, "number": number});
        marked["array"]["task_id"] = number(3);
        marked["array"]["task"] = json!("");
        marked["het"]["job_offset"] = json!({"set": false, "infinite": false, "number": 0});
        marked["state"]["current"] = json!(["FAILED"]);
        marked["time"]["limit"] = number(5);
        marked["exit_code"] = json!({"status": ["ERROR"], "return_code": number(3), "signal": {"id": {"set": false, "number": 0}}});
        marked["licenses"] = json!("new fields are passed over");
        [plain, marked]
    }

    #[test]
    fn every_version_tells_the_same_run() {
        for job in both() {
            let run = run(database_jobs(&json!({"jobs": [job]}), &options()).remove(0));
            let expected = JobRun {
                cluster: "lab".into(),
                job_id: "6_3".into(),
                submit: 1000,
                eligible: Some(1001),
                start: Some(1010),
                end: Some(1110),
                state: "FAILED".into(),
                user: "alice".into(),
                account: "lab-a".into(),
                partition: "gpu".into(),
                qos: Some("normal".into()),
                name: Some("train".into()),
                nodes: Some(1),
                cpus: Some(2),
                gpus: Some(1),
                gpu_model: Some("a100".into()),
                mem_bytes: Some(1000 << 20),
                alloc_tres: Some("cpu=2,mem=1000M,node=1,gres/gpu=1,gres/gpu:a100=1".into()),
                node_list: Some("node0".into()),
                elapsed: Some(90),
                suspended: Some(10),
                timelimit: Some(300),
                exit_code: Some("3:0".into()),
                raw_job_id: Some("12".into()),
                ..JobRun::default()
            };
            assert_eq!(run, expected);
        }
    }

    #[test]
    fn missing_fields_leave_unknown_what_they_would_say() {
        let [mut job, _] = both();
        for field in [
            "qos",
            "name",
            "exit_code",
            "allocation_nodes",
            "array",
            "het",
        ] {
            job.as_object_mut().unwrap().remove(field);
        }
        let told = run(database_job(&job, &options()));
        assert_eq!(
            (told.job_id.as_str(), told.qos, told.name),
            ("12", None, None)
        );
        job["time"] = json!(null);
        let Entry::Rejected(reject) = database_job(&job, &options()) else {
            panic!()
        };
        assert_eq!(reject.reason, "Submit is missing");
    }

    #[test]
    fn a_running_job_tells_its_gpus_by_node_and_index() {
        let job = json!({
            "job_id": 5, "job_state": ["RUNNING"], "user_name": "dave", "submit_time": 10, "start_time": 20,
            "end_time": 320, "partition": "gpu", "nodes": "node[0-1]", "node_count": 2, "cpus": 4, "time_limit": 5,
            "tres_alloc_str": "cpu=4,mem=4000M,node=2,billing=4", "gres_detail": ["gpu:a100:1(IDX:0)", "gpu:a100:3(IDX:0,2-3)"],
            "job_resources": {"nodes": "node[0-1]"}, "exit_code": 0,
        });
        let told = live_jobs(&json!({"jobs": [job]}), &options()).remove(0);
        let held = run(told.entry);
        assert_eq!(
            (held.end, held.gpus, held.gpu_model.as_deref()),
            (None, Some(4), Some("a100"))
        );
        let at = |node: &str, index| (node.to_owned(), index);
        assert_eq!(
            told.gpus,
            [
                at("node0", 0),
                at("node1", 0),
                at("node1", 2),
                at("node1", 3)
            ]
        );

        // While it completes and once it is over, Slurm no longer says what it held; that is unknown and not nothing.
        for (state, asked) in [("COMPLETING", ""), ("RUNNING", "gres:gpu:1")] {
            let mut completing = job_of(&held);
            completing["job_state"] = json!(state);
            completing["gres_detail"] = json!([]);
            completing["tres_per_node"] = json!(asked);
            assert_eq!(
                run(live_job(&completing, &options()).entry).gpus,
                None,
                "{state}"
            );
        }
        let mut over = job_of(&held);
        over["gres_detail"] = json!([]);
        let told = live_job(&over, &options());
        assert_eq!((run(told.entry).gpus, told.gpus), (None, Vec::new()));
    }

    fn job_of(run: &JobRun) -> Value {
        json!({
            "job_id": 5, "job_state": "COMPLETED", "user_name": run.user, "submit_time": run.submit, "start_time": 20,
            "end_time": 30, "nodes": "node[0-1]", "tres_alloc_str": "cpu=4,mem=4000M,node=2", "cpus": 4,
        })
    }

    #[test]
    fn pending_jobs_hold_nothing_and_say_why_they_wait() {
        let job = json!({
            "job_id": 8, "array_job_id": 8, "array_task_string": "0-2,5", "job_state": "PENDING", "user_id": 61003,
            "user_name": null, "submit_time": 10, "start_time": 4000, "end_time": 4300, "state_reason": "Resources",
            "nodes": "", "tres_alloc_str": "", "cpus": 1,
        });
        let told = live_job(&job, &options());
        assert_eq!(told.reason.as_deref(), Some("Resources"));
        let Entry::Tasks { run, job_ids } = told.entry else {
            panic!("{:?}", told.entry)
        };
        assert_eq!(job_ids, ["8_0", "8_1", "8_2", "8_5"]);
        assert_eq!(
            (run.user.as_str(), run.start, run.end, run.gpus),
            ("61003", None, None, None)
        );
    }

    #[test]
    fn slurmctlds_clock() {
        let of = |at: Value| time(&json!({"statistics": {"req_time": at}}));
        assert_eq!(of(json!(1_795_200_573)), Some(1_795_200_573));
        assert_eq!(
            of(json!({"set": true, "infinite": false, "number": 1_795_200_573})),
            Some(1_795_200_573)
        );
        assert_eq!((of(json!(0)), time(&json!({}))), (None, None));
    }

    #[test]
    fn errors_are_seen_under_any_status() {
        let answer = json!({"errors": [{"error_number": 1007, "error": "Protocol authentication error", "source": "slurmdb_tres_get"}]});
        let found = error(&answer).unwrap();
        assert_eq!(
            (found.number, found.to_string().as_str()),
            (
                1007,
                "slurmdb_tres_get: Protocol authentication error (error 1007)"
            )
        );
        assert_eq!(
            error(&json!({"errors": [{"error": "Unspecified error", "errno": -1}]}))
                .unwrap()
                .number,
            -1
        );
        assert_eq!(error(&json!({"errors": []})), None);
        assert_eq!(error(&json!({})), None);
    }

    #[test]
    fn shares_and_prices() {
        let answer = json!({"associations": [
            {"cluster": "lab", "account": "root", "parent_account": null, "user": null, "partition": null, "shares_raw": 1},
            {"cluster": "lab", "account": "vision", "parent_account": "root", "user": "", "shares_raw": 2147483647},
            {"cluster": "lab", "account": "vision", "parent_account": "", "user": "ann", "shares_raw": 10},
            {"cluster": "other", "account": "root", "shares_raw": 1},
        ]});
        let found = associations(&answer, "lab");
        assert_eq!(
            (found.len(), found[1].shares, found[2].shares),
            (3, Shares::Parent, Shares::Raw(10))
        );
        assert_eq!(
            (found[1].user.as_deref(), found[2].user.as_deref()),
            (None, Some("ann"))
        );
        let old =
            qos(&json!({"QOS": [{"name": "low", "flags": ["NO_DECAY"], "usage_factor": 0.5}]}));
        let new = qos(
            &json!({"qos": [{"name": "low", "flags": ["NO_DECAY"], "usage_factor": {"set": true, "number": 0.5}}]}),
        );
        assert_eq!((old["low"], old["low"].usage_factor), (new["low"], 0.5));
        let old = billing_weights(
            &json!({"partitions": [{"name": "gpu", "billing_weights": "CPU=1,GRES/gpu=8"}, {"name": "x"}]}),
        );
        let new = billing_weights(
            &json!({"partitions": [{"name": "gpu", "tres": {"billing_weights": "CPU=1,GRES/gpu=8"}}, {"name": "x"}]}),
        );
        assert!(old == new && old["gpu"].is_some() && old["x"].is_none());
    }

    #[test]
    fn nodes_of_old_and_new_versions() {
        let old = json!({"nodes": [{"name": "node0", "state": "mixed", "state_flags": ["DRAIN"], "reason": "fan",
            "reason_set_by_user": "root", "reason_changed_at": 1700000000, "partitions": ["gpu", "all"],
            "tres": "cpu=8,gres/gpu=2", "tres_used": "cpu=1", "gres": "gpu:a100:2", "gres_used": "gpu:a100:1(IDX:0)"}]});
        let new = json!({"nodes": [{"name": "node0", "state": ["MIXED", "DRAIN"], "reason": "fan",
            "reason_set_by_user": "root", "reason_changed_at": {"set": true, "infinite": false, "number": 1700000000},
            "partitions": ["gpu", "all"],
            "tres": "cpu=8,gres/gpu=2", "tres_used": "cpu=1", "gres": "gpu:a100:2", "gres_used": "gpu:a100:1(IDX:0)"}]});
        assert_eq!(nodes(&old), nodes(&new));
        let node = &nodes(&old)[0];
        assert_eq!(
            (node.state.as_str(), node.partitions.join(" ").as_str()),
            ("MIXED+DRAIN", "gpu all")
        );
        assert_eq!(
            (node.reason_by.as_deref(), node.reason_at),
            (Some("root"), Some(1_700_000_000))
        );
        let well = json!({"nodes": [{"name": "node1", "state": ["IDLE"], "reason_set_by_user": "", "reason_changed_at": 0}]});
        assert_eq!(
            (&nodes(&well)[0].reason_by, nodes(&well)[0].reason_at),
            (&None, None)
        );
    }

    proptest! {
        #[test]
        fn no_json_makes_a_reader_panic(
            key in "job_id|time|array|state|tres|gres_detail|nodes|exit_code|job_state|submit_time",
            value in prop_oneof![Just(json!(null)), Just(json!(-1)), Just(json!([1, {}])), Just(json!({"set": 1})), Just(json!("x,[")), Just(json!(1e300))],
        ) {
            for mut job in both() {
                job[&key] = value.clone();
                let answer = json!({"jobs": [job, value], "nodes": value});
                let (_, _, _, _) = (database_jobs(&answer, &options()), live_jobs(&answer, &options()), nodes(&answer), error(&answer));
            }
        }
    }
}
