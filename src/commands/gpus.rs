//! `takt gpus`: who is on which GPU right now, with what, and whether it works.

use super::{ask, print};
use crate::cli::{Gpus, Place};
use serde::Serialize;
use serde_json::Value;
use takt_server::Failure;
use takt_server::answers::SqlQuestion;
use takt_server::listing::{Column, Listing};

/// A GPU with one of its users, or with nobody.
#[derive(Debug, Serialize)]
struct OnGpu {
    node: String,
    gpu: Option<String>,
    uuid: String,
    model: Option<String>,
    user: Option<String>,
    job_id: Option<String>,
    /// The kernel's names of the programs, where no scheduler brought them.
    commands: Option<String>,
    memory_used_bytes: Option<f64>,
    utilization_ratio: Option<f64>,
    /// Memory is held, and no kernel runs.
    is_idle: bool,
}

/// Runs the command.
pub fn run(place: &Place, asked: &Gpus) -> Result<(), Failure> {
    let question = SqlQuestion {
        statement: QUESTION.to_owned(),
    };
    let rows = ask(place, &question)?.rows;
    let mut found: Vec<OnGpu> = rows.iter().map(|row| on_gpu(row)).collect();
    if found.is_empty() {
        tracing::warn!("no exporter has told of a GPU in the last hours");
    }
    found.retain(|on| asked.node.as_ref().is_none_or(|node| *node == on.node));
    found.retain(|on| {
        asked
            .gpu
            .as_ref()
            .is_none_or(|gpu| Some(gpu) == on.gpu.as_ref() || *gpu == on.uuid)
    });
    found.retain(|on| {
        asked
            .user
            .as_ref()
            .is_none_or(|user| Some(user) == on.user.as_ref())
    });
    print(asked.format, &listing(&found), &found)
}

/// Jobs by what they were given, an array's tasks by their own ids; others by their processes; memory is a user's own where the driver tells, else the GPU's.
const QUESTION: &str = "
WITH seen AS (
    SELECT labels ->> '$.cluster' AS cluster, labels ->> '$.node' AS node, labels ->> '$.uuid' AS uuid,
        labels ->> '$.user' AS \"user\", labels ->> '$.jobid' AS job_id, labels ->> '$.command' AS command, metric, value
    FROM latest
    WHERE metric IN ('takt_gpu_job_info', 'takt_gpu_job_memory_used_bytes', 'takt_gpu_process_without_job',
            'takt_gpu_process_memory_used_bytes')
        AND value IS NOT NULL AND ts > (SELECT max(ts) FROM latest) - INTERVAL 3 MINUTES
), given AS (
    SELECT i.cluster, i.node, i.uuid, i.\"user\", i.job_id, NULL AS commands, m.value AS memory
    FROM seen AS i
    LEFT JOIN seen AS m ON m.metric = 'takt_gpu_job_memory_used_bytes' AND m.uuid = i.uuid AND m.job_id = i.job_id
    WHERE i.metric = 'takt_gpu_job_info'
    UNION ALL
    SELECT i.cluster, i.node, i.uuid, i.\"user\", NULL, string_agg(DISTINCT m.command, ' ' ORDER BY m.command), sum(m.value)
    FROM seen AS i
    LEFT JOIN seen AS m
        ON m.metric = 'takt_gpu_process_memory_used_bytes' AND m.uuid = i.uuid AND m.\"user\" = i.\"user\"
    WHERE i.metric = 'takt_gpu_process_without_job'
    GROUP BY ALL
)
SELECT g.node, g.index, g.uuid, g.model, h.\"user\", coalesce(j.job_id, h.job_id), h.commands,
    coalesce(h.memory, g.memory_used_bytes), g.utilization_ratio
FROM gpus AS g LEFT JOIN given AS h USING (cluster, node, uuid)
LEFT JOIN jobs AS j
    ON j.cluster = g.cluster AND j.raw_job_id = h.job_id AND j.start_time IS NOT NULL AND j.end_time IS NULL
ORDER BY g.node, try_cast(g.index AS INTEGER), g.uuid, h.\"user\", h.job_id";

/// Below this share of time a GPU does nothing.
const IDLE_BELOW: f64 = 0.05;

/// More than the driver itself takes.
const HELD_BYTES: f64 = 256.0 * (1_u64 << 20) as f64;

fn on_gpu(row: &[Value]) -> OnGpu {
    let text = |at: usize| row.get(at).and_then(Value::as_str).map(str::to_owned);
    let number = |at: usize| row.get(at).and_then(Value::as_f64);
    let (user, memory, utilization) = (text(4), number(7), number(8));
    OnGpu {
        node: text(0).unwrap_or_default(),
        gpu: text(1),
        uuid: text(2).unwrap_or_default(),
        model: text(3),
        job_id: text(5),
        commands: text(6),
        is_idle: user.is_some()
            && memory.is_some_and(|bytes| bytes > HELD_BYTES)
            && utilization.is_some_and(|ratio| ratio < IDLE_BELOW),
        user,
        memory_used_bytes: memory,
        utilization_ratio: utilization,
    }
}

fn listing(found: &[OnGpu]) -> Listing {
    use Column::{Number, Text};
    let mut listing = Listing::new(&[
        Text("node"),
        Text("gpu"),
        Text("model"),
        Text("user"),
        Text("job_id"),
        Text("commands"),
        Number("memory_gib"),
        Number("utilization"),
        Text("note"),
    ]);
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    for on in found {
        listing.push(vec![
            on.node.clone(),
            on.gpu.clone().unwrap_or_else(|| on.uuid.clone()),
            text(&on.model),
            on.user.clone().unwrap_or_else(|| "-".to_owned()),
            text(&on.job_id),
            text(&on.commands),
            on.memory_used_bytes.map_or_else(String::new, |bytes| {
                format!("{:.1}", bytes / (1_u64 << 30) as f64)
            }),
            on.utilization_ratio
                .map_or_else(String::new, |ratio| format!("{:.0} %", ratio * 100.0)),
            if on.is_idle {
                "holds memory, does nothing"
            } else {
                ""
            }
            .to_owned(),
        ]);
    }
    listing
}
