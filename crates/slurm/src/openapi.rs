//! Slurm's OpenAPI in JSON: answers of slurmrestd and output of `squeue --json` and `sinfo --json`.
//!
//! The tests run version 0.0.38 (Slurm 22.05) against a live Slurm. Versions 0.0.39 to 0.0.45 are tested
//! with recorded jobs, 0.0.46 follows its published schema: a number may be `{"set": true, "infinite": false, "number": 5}`
//! and a state a list. Versions without these marks, and some fields of later ones, write NO_VAL and
//! INFINITE for numbers that are not set. Unknown fields are ignored. Jobs are converted to sacct's fields,
//! so that both sources share the same rules.

use crate::reservation::owners;
use crate::sacct::{Field, Fields, OVER, Options, entry_of};
use crate::tres::TresCounts;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use takt_jobs::{Association, BillingWeights, Entry, Qos, Reject, Reservation, Shares, nodelist};
use takt_model::UnixTime;

/// Error that Slurm reports in an answer, with any HTTP status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{source_name}{description} (error {number})")]
pub struct OpenApiError {
    /// Slurm's error number: 1007 is an invalid or expired token, 7000 a slurmdbd that does not
    /// respond.
    pub number: i64,
    /// Slurm's description.
    pub description: String,
    /// Slurm's function that failed, followed by a colon.
    source_name: String,
}

/// Returns the first error of an answer. Slurm sends some errors with status 200.
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

/// Returns the runs of `GET /slurmdb/vX/jobs`.
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
    let array = ArrayIds {
        job_id: &job["array"]["job_id"],
        task_id: &job["array"]["task_id"],
        tasks: &job["array"]["task"],
    };

    let user = text(&job["association"]["user"])
        .or_else(|| text(&job["user"]))
        .unwrap_or_default();

    // slurmrestd of Slurm 22.05 reports SUCCESS for jobs with exit code 3. Ignore success of a
    // failed job.
    let exit_code = exit_code(&job["exit_code"]);
    let believed = OVER.contains(&state.as_str()) && !(state == "FAILED" && exit_code == "0:0");
    let exit_code = if believed { exit_code } else { String::new() };

    let suspended = number(&time["suspended"]).unwrap_or(0).max(0);
    // During a suspension this field is the time at which the suspension began.
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
        (Field::Submit, seconds(&time["submission"])),
        (Field::Eligible, seconds(&time["eligible"])),
        (Field::Start, seconds(&time["start"])),
        (Field::End, seconds(&time["end"])),
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
        (Field::Sluid, text(&job["sluid"]).unwrap_or_default()),
        (
            Field::OriginalSluid,
            text(&job["original_sluid"]).unwrap_or_default(),
        ),
    ];
    entry(&words, job, options)
}

/// Current state of one job, from slurmctld.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveJob {
    /// The run.
    pub entry: Entry,
    /// Allocated GPUs: node and GRES index. Empty unless the job runs.
    pub gpus: Vec<(String, u32)>,
    /// Slurm's reason why the job waits.
    pub reason: Option<String>,
    /// Expected start of a pending job, from slurmctld.
    pub expected_start: Option<UnixTime>,
    /// Slurm's priority of a pending job. 0 if it is held. `None` if Slurm does not name it.
    pub priority: Option<u32>,
    /// What a pending job asks for besides amounts, a time and a partition: `features`, `licenses`, …
    pub demands: Vec<&'static str>,
    /// Whether the job is an array of which Slurm lists only some pending tasks.
    pub is_cut: bool,
}

/// Returns the jobs of `GET /slurm/vX/jobs` and `squeue --json`.
pub fn live_jobs(answer: &Value, options: &Options) -> Vec<LiveJob> {
    list(&answer["jobs"])
        .iter()
        .map(|job| live_job(job, options))
        .collect()
}

fn live_job(job: &Value, options: &Options) -> LiveJob {
    let state = state(&job["job_state"]);
    let over = OVER.contains(&state.as_str());
    let array = ArrayIds {
        job_id: &job["array_job_id"],
        task_id: &job["array_task_id"],
        tasks: &job["array_task_string"],
    };
    let user =
        text(&job["user_name"]).or_else(|| number(&job["user_id"]).map(|uid| uid.to_string()));
    let waiting = state == "PENDING";

    // slurmdbd adds a record at a resize, with the time of the resize as its submission.
    let resized =
        instant(&job["resize_time"]).filter(|at| Some(*at) >= instant(&job["start_time"]));
    let submitted = |key: &str| resized.map_or_else(|| seconds(&job[key]), |at| at.to_string());

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
                seconds(&job["start_time"])
            },
        ),
        // For an unfinished job this field is the end of its time limit.
        (
            Field::End,
            if over {
                seconds(&job["end_time"])
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
        // Slurm 25.11 has the SLUID in the id of the job's steps only.
        (
            Field::Sluid,
            text(&job["sluid"])
                .or_else(|| text(&job["step_id"]["sluid"]))
                .unwrap_or_default(),
        ),
        (
            Field::OriginalSluid,
            text(&job["original_sluid"]).unwrap_or_default(),
        ),
    ];
    let mut entry = entry(&words, job, options);

    // While a job completes, slurmctld no longer lists its GPUs: an empty list means "no GPUs" only
    // for a running job.
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
        // Without slurmdbd TRES never include GPUs, so their absence says nothing.
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

    // The description is more exact than the reason, as in squeue: a job that waits for drained nodes
    // has the reason `Resources`.
    let reason = text(&job["state_description"]).or_else(|| text(&job["state_reason"]));
    let reason = reason.filter(|reason| waiting && reason != "None");
    let expected_start = instant(&job["start_time"]).filter(|_| waiting);
    let priority = number(&job["priority"])
        .and_then(|priority| u32::try_from(priority).ok())
        .filter(|_| waiting);

    LiveJob {
        entry,
        gpus: gpus.collect(),
        reason,
        expected_start,
        priority,
        demands: if waiting { demands(job) } else { Vec::new() },
        is_cut: text(array.tasks).is_some_and(|tasks| is_cut(&tasks)),
    }
}

/// Fields of a job that restrict where or when it can start, and what they ask for.
const DEMANDS: &[(&str, &str)] = &[
    ("features", "features"),
    ("required_nodes", "named nodes"),
    ("excluded_nodes", "excluded nodes"),
    ("licenses", "licenses"),
    ("burst_buffer", "burst buffers"),
    ("network", "network"),
];

fn demands(job: &Value) -> Vec<&'static str> {
    let mut found: Vec<&str> = DEMANDS
        .iter()
        .filter(|(field, _)| text(&job[*field]).is_some())
        .map(|(_, name)| *name)
        .collect();
    // "none" shares with nobody.
    if words(&job["shared"]).iter().any(|word| word == "none") {
        found.push("whole nodes");
    }
    found
}

/// Returns whether a job requested GPUs in any of its TRES fields.
fn wants_gpus(job: &Value) -> bool {
    [
        "tres_per_job",
        "tres_per_node",
        "tres_per_socket",
        "tres_per_task",
        "tres_req_str",
    ]
    .iter()
    .any(|key| text(&job[*key]).is_some_and(|tres| tres.contains("gpu")))
}

/// GPUs of one type that a job holds on one node.
struct GpuGres {
    node: String,
    model: Option<String>,
    count: u64,
    indexes: Vec<u32>,
}

/// Returns the allocated GPUs, or `None` if the answer lacks the details.
fn held_gpus(job: &Value) -> Option<Vec<GpuGres>> {
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

/// Parses `gpu:a100:2(IDX:0-1)` or `gpu:1(IDX:3)`.
fn gpu(gres: &str, node: &str) -> Option<GpuGres> {
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
    Some(GpuGres {
        node: node.to_owned(),
        model: (parts.len() > 1).then(|| parts[0].to_owned()),
        count: parts.last()?.parse().ok()?,
        indexes: indexes
            .iter()
            .filter_map(|index| index.parse().ok())
            .collect(),
    })
}

/// Returns the GPU types of a node's `gpu:a100:2(S:0-1),gpu:l40s:1,shard:8`, joined as for TRES. `None` if it names none.
pub(super) fn gres_models(text: &str) -> Option<String> {
    let gres = outside_brackets(text).into_iter();
    let held: Vec<GpuGres> = gres.filter_map(|one| gpu(one, "")).collect();
    models(&held)
}

/// Joins the types with `+`, as for TRES.
fn models(held: &[GpuGres]) -> Option<String> {
    let mut models: Vec<&str> = held
        .iter()
        .filter_map(|gres| gres.model.as_deref())
        .collect();
    models.sort_unstable();
    models.dedup();
    (!models.is_empty()).then(|| models.join("+"))
}

/// Splits a text at the commas outside brackets.
pub(super) fn outside_brackets(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut depth = 0_u32;
    let mut from = 0;
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

/// Returns the version of Slurm in an answer: `22.05.8`.
pub fn version(answer: &Value) -> Option<String> {
    let meta = &answer["meta"];
    text(&meta["slurm"]["release"]).or_else(|| text(&meta["Slurm"]["release"]))
}

/// Returns slurmctld's clock in its answer to `GET /slurm/vX/diag`.
pub fn time(answer: &Value) -> Option<UnixTime> {
    instant(&answer["statistics"]["req_time"])
}

/// Current state of a node, from slurmctld.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeNow {
    /// Slurm's NodeName.
    pub node: String,
    /// Base state and flags in upper case: `IDLE`, `MIXED+DRAIN`.
    pub state: String,
    /// Reason, if set.
    pub reason: Option<String>,
    /// User who set the reason.
    pub reason_by: Option<String>,
    /// Time at which the reason was set.
    pub reason_at: Option<UnixTime>,
    /// Partitions that contain the node.
    pub partitions: Vec<String>,
    /// Configured TRES (`CfgTRES`).
    pub tres: String,
    /// Allocated TRES (`AllocTRES`).
    pub tres_used: String,
    /// GRES (`Gres`): the node's GPUs, also if Slurm does not track them as TRES.
    pub gres: String,
    /// Allocated GRES (`GresUsed`).
    pub gres_used: String,
}

/// Returns the nodes of `GET /slurm/vX/nodes` and `sinfo --json`.
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
            reason_at: instant(&node["reason_changed_at"]),
            partitions: words(&node["partitions"]),
            tres: text(&node["tres"]).unwrap_or_default(),
            tres_used: text(&node["tres_used"]).unwrap_or_default(),
            gres: text(&node["gres"]).unwrap_or_default(),
            gres_used: text(&node["gres_used"]).unwrap_or_default(),
        })
    };
    list(&answer["nodes"]).iter().filter_map(node).collect()
}

/// Duration of a reservation without an end, as Slurm takes it.
const UNLIMITED_RESERVATION_SECONDS: i64 = 365 * 86_400;

/// Returns the reservations of `GET /slurm/vX/reservations`.
pub fn reservations(answer: &Value) -> Vec<Reservation> {
    let one = |one: &Value| {
        let tres = text(&one["tres"])
            .and_then(|tres| TresCounts::parse(&tres).ok().flatten())
            .unwrap_or_default();
        let flags = match text(&one["flags"]) {
            Some(flags) => flags,
            None => words(&one["flags"]).join(","),
        };
        let from = instant(&one["start_time"])?;
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
            from,
            to: instant(&one["end_time"]).unwrap_or(from + UNLIMITED_RESERVATION_SECONDS),
        })
    };
    list(&answer["reservations"])
        .iter()
        .filter_map(one)
        .collect()
}

/// Returns the associations of one cluster in `GET /slurmdb/vX/associations`.
pub fn associations(answer: &Value, cluster: &str) -> Vec<Association> {
    list(&answer["associations"])
        .iter()
        .filter_map(|one| {
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
        })
        .collect()
}

/// Returns the usage factor and flags of each QOS of `GET /slurmdb/vX/qos`.
pub fn qos(answer: &Value) -> BTreeMap<String, Qos> {
    let listed = if answer["QOS"].is_array() {
        &answer["QOS"]
    } else {
        &answer["qos"]
    };
    list(listed)
        .iter()
        .filter_map(|one| {
            let usage_factor = real(&one["usage_factor"]).unwrap_or(1.0);
            let no_decay = words(&one["flags"]).iter().any(|flag| flag == "NO_DECAY");
            Some((
                text(&one["name"])?,
                Qos {
                    usage_factor,
                    no_decay,
                },
            ))
        })
        .collect()
}

/// Returns `TRESBillingWeights` of each partition of `GET /slurm/vX/partitions`.
pub fn billing_weights(answer: &Value) -> BTreeMap<String, Option<BillingWeights>> {
    list(&answer["partitions"])
        .iter()
        .filter_map(|one| {
            let weights = text(&one["billing_weights"])
                .or_else(|| text(&one["tres"]["billing_weights"]))
                .and_then(|text| BillingWeights::parse(&text).ok());
            Some((text(&one["name"])?, weights))
        })
        .collect()
}

fn entry(words: &[(Field, String)], job: &Value, options: &Options) -> Entry {
    let words: Vec<(Field, &str)> = words
        .iter()
        .map(|(field, word)| (*field, word.as_str()))
        .collect();
    entry_of(&Fields::of(&words), options)
        .unwrap_or_else(|reason| Entry::Rejected(Reject::new(None, reason, &settled(&words, job))))
}

/// Returns the text of a job that cannot be parsed: what was read of it, without values that go on while
/// it runs. The whole object would be another one in each answer (priorities, times of the scheduler).
fn settled(words: &[(Field, &str)], job: &Value) -> String {
    let stays = |(field, word): &&(Field, &str)| !field.goes_on() && !word.is_empty();
    let read: Map<String, Value> = words
        .iter()
        .filter(stays)
        .map(|(field, word)| (format!("{field:?}"), (*word).into()))
        .collect();
    if read.is_empty() {
        job.to_string()
    } else {
        Value::Object(read).to_string()
    }
}

struct ArrayIds<'v> {
    job_id: &'v Value,
    task_id: &'v Value,
    tasks: &'v Value,
}

/// Returns the job id as sacct writes it: `6_3`, `6_[4-9]`, `20+1`, `7`.
fn job_id(id: &Value, array: &ArrayIds<'_>, het_id: &Value, het_offset: &Value) -> String {
    let positive = |value: &Value| number(value).filter(|number| *number > 0);
    let id = number(id).map_or_else(String::new, |id| id.to_string());
    if let Some(of) = positive(array.job_id) {
        return match (number(array.task_id), text(array.tasks)) {
            (_, Some(tasks)) => format!("{of}_[{}]", listed_tasks(&tasks)),
            (Some(task), None) => format!("{of}_{task}"),
            (None, None) => id,
        };
    }
    match (positive(het_id), number(het_offset)) {
        (Some(of), Some(offset)) => format!("{of}+{offset}"),
        _ => id,
    }
}

/// Returns whether a list of tasks is cut, as Slurm's programs do without `SLURM_BITSTR_LEN=0`.
fn is_cut(tasks: &str) -> bool {
    without_limit(tasks).ends_with("...")
}

/// Returns the tasks of an array without the limit of running tasks (`%2`).
fn without_limit(tasks: &str) -> &str {
    tasks.split_once('%').map_or(tasks, |(tasks, _)| tasks)
}

/// Returns the tasks of an array as sacct lists them. slurmdbd keeps a mask (`0x1E`). Of a list that is cut
/// only the whole numbers count.
fn listed_tasks(tasks: &str) -> String {
    let tasks = without_limit(tasks);
    if let Some(mask) = tasks.strip_prefix("0x") {
        return ranges_of_mask(mask);
    }
    match tasks.strip_suffix("...") {
        Some(listed) => listed
            .rsplit_once(',')
            .map_or("", |(whole, _)| whole)
            .to_owned(),
        None => tasks.to_owned(),
    }
}

/// Returns the bits of a hexadecimal mask as ranges: `1-4` for `1E`; empty if it is malformed.
fn ranges_of_mask(mask: &str) -> String {
    let bits = mask.bytes().rev().flat_map(|digit| {
        let digit = char::from(digit).to_digit(16).unwrap_or_default();
        (0..4).map(move |bit| digit >> bit & 1 == 1)
    });
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for (task, _) in bits.enumerate().filter(|(_, is_set)| *is_set) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == task => *last = task,
            _ => ranges.push((task, task)),
        }
    }
    ranges
        .into_iter()
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        })
        .collect::<Vec<_>>()
        .join(",")
}

/// Returns the exit code as sacct writes it: `1:0`, `0:9`; empty if it is not set. The API's `SUCCESS` is a
/// word.
fn exit_code(value: &Value) -> String {
    if let Some(status) = number(value) {
        // slurmctld reports a wait status.
        return format!("{}:{}", (status >> 8) & 0xff, status & 0x7f);
    }
    // A number that is not set.
    if value.is_number() || value.get("number").is_some() {
        return String::new();
    }
    let short = |value: &Value| number(value).filter(|number| *number < NO_VAL_16);
    let code = short(&value["return_code"]).unwrap_or(0);
    let signal = short(&value["signal"]["signal_id"])
        .or_else(|| short(&value["signal"]["id"]))
        .unwrap_or(0);
    format!("{code}:{signal}")
}

/// Converts `[{"type": "gres", "name": "gpu", "count": 2}, …]` to a TRES string.
fn tres(value: &Value) -> String {
    list(value)
        .iter()
        .filter_map(|one| {
            let kind = text(&one["type"])?;
            let count = number(&one["count"]).filter(|count| *count >= 0)?;
            let name = text(&one["name"]).map_or_else(String::new, |name| format!("/{name}"));
            // The API counts memory in MiB.
            let unit = if kind == "mem" { "M" } else { "" };
            (kind != "energy").then(|| format!("{kind}{name}={count}{unit}"))
        })
        .collect::<Vec<_>>()
        .join(",")
}

/// Returns the effective state. A requeued run has ended, whatever the state of its job.
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

/// Returns a text, or `None` if it is empty.
fn text(value: &Value) -> Option<String> {
    value
        .as_str()
        .filter(|text| !text.is_empty() && *text != "(null)")
        .map(str::to_owned)
}

/// Slurm's 16-bit numbers from this one on mean "not set" or "unlimited".
const NO_VAL_16: i64 = 0xfffe;

/// Slurm's 32-bit numbers that mean "not set" (NO_VAL) and "unlimited" (INFINITE).
const NO_VAL_32: [i64; 2] = [0xffff_fffe, 0xffff_ffff];

/// Returns a number, plain or with the flags of later versions. `None` if it is unset or infinite: also as
/// a number of 32 or 64 bits that means this.
fn number(value: &Value) -> Option<i64> {
    let number = match value {
        Value::Number(number) if number.is_f64() => {
            // The 64-bit ones round to 2⁶⁴.
            let number = number.as_f64().filter(|number| *number < 9e18)?;
            Some(number as i64)
        }
        Value::Number(number) => number.as_i64(),
        Value::Object(marked) => number(marked_number(marked)?),
        _ => None,
    };
    number.filter(|number| !NO_VAL_32.contains(number))
}

/// Returns a number with a fraction, as [`number`] does.
fn real(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number
            .as_f64()
            .filter(|number| *number < NO_VAL_32[0] as f64),
        Value::Object(marked) => real(marked_number(marked)?),
        _ => None,
    }
}

/// Returns the number of `{"set": true, "infinite": false, "number": 5}`, if it is set and finite.
fn marked_number(marked: &Map<String, Value>) -> Option<&Value> {
    let is = |key: &str| marked.get(key).and_then(Value::as_bool);
    (is("set") != Some(false) && is("infinite") != Some(true)).then(|| marked.get("number"))?
}

fn count(value: &Value) -> String {
    number(value)
        .filter(|number| *number >= 0)
        .map_or_else(String::new, |number| number.to_string())
}

/// Returns an instant. 0 means "not set".
fn instant(value: &Value) -> Option<UnixTime> {
    number(value).filter(|number| *number > 0).map(UnixTime)
}

/// Returns an instant as text. Empty if it is not set.
fn seconds(value: &Value) -> String {
    instant(value).map_or_else(String::new, |at| at.to_string())
}

/// Returns seconds as sacct writes a duration.
fn clock(seconds: i64) -> String {
    format!(
        "{}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests;
