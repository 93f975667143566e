//! `takt gpus`: the GPUs with their users, jobs, memory and utilization.

use super::{ask, print};
use crate::cli::{ListingFormat, Person, Place};
use clap::Args;
use serde::Serialize;
use serde_json::Value;
use takt_questions::SqlQuestion;
use takt_questions::listing::{Column, Listing};
use takt_server::Failure;

#[derive(Debug, Args)]
pub struct Gpus {
    /// Only this node
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Only the GPU with this index or UUID
    #[arg(long, value_name = "INDEX")]
    pub gpu: Option<String>,
    #[command(flatten)]
    pub person: Person,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListingFormat,
}

/// A GPU with one of its users, or without.
#[derive(Debug, Serialize)]
struct OnGpu {
    node: String,
    gpu: Option<String>,
    uuid: String,
    model: Option<String>,
    user: Option<String>,
    job_id: Option<String>,
    job_name: Option<String>,
    /// Names of the programs, for processes without a job.
    commands: Option<String>,
    /// Memory of the user, if the driver reports it, else of the GPU.
    memory_used_bytes: Option<f64>,
    /// Utilization; `None` if unknown or not between 0 and 1.
    utilization_ratio: Option<f64>,
    /// Whether memory is in use and no kernel runs.
    is_idle: bool,
    /// Whether the GPU answers; `None` if its exporter does not answer.
    up: Option<bool>,
    /// Whether the job is known from Slurm's allocation alone.
    is_allocated_only: bool,
}

/// Runs the command.
pub fn run(place: &Place, asked: &Gpus) -> Result<(), Failure> {
    let question = SqlQuestion {
        statement: QUESTION.to_owned(),
    };
    let rows = ask(place, &question)?.rows;
    let mut found: Vec<OnGpu> = rows.iter().map(|row| on_gpu(row)).collect();
    let are_known = !found.is_empty();
    if !are_known {
        tracing::warn!("no exporter has reported a GPU in the last hours");
    }
    found.retain(|on| asked.node.as_ref().is_none_or(|node| *node == on.node));
    found.retain(|on| {
        asked
            .gpu
            .as_ref()
            .is_none_or(|gpu| Some(gpu) == on.gpu.as_ref() || *gpu == on.uuid)
    });
    let user = asked.person.name();
    found.retain(|on| user.is_none() || user == on.user);
    if are_known && found.is_empty() {
        tracing::warn!("no GPU matches");
    }
    print(asked.format, &listing(&found), &found)
}

/// Returns the GPUs with the jobs and processes that the exporter reports. A job that Slurm has
/// placed on a node, and that the exporter reports on no GPU there, is shown on the GPUs with its
/// GRES indexes, which count device files (`minor`). So is each job of a node whose exporter does
/// not answer. A job whose series on a node have ended while the exporter answers has ended: Slurm is
/// asked only once a minute. An array's task has its own id. The last readings of an exporter that stopped while
/// the server was down have no end, so the node has to answer.
const QUESTION: &str = "
WITH seen AS (
    SELECT labels ->> '$.cluster' AS cluster, labels ->> '$.node' AS node, labels ->> '$.uuid' AS uuid,
        labels ->> '$.user' AS \"user\", labels ->> '$.jobid' AS job_id, labels ->> '$.command' AS command,
        coalesce(labels ->> '$.minor', labels ->> '$.index') AS minor, metric, value
    FROM latest
    WHERE metric IN ('takt_gpu_info', 'takt_gpu_job_info', 'takt_gpu_job_memory_used_bytes',
            'takt_gpu_process_without_job', 'takt_gpu_process_memory_used_bytes')
        AND value IS NOT NULL AND ts > (SELECT max(ts) FROM latest) - INTERVAL 3 MINUTES
), cards AS (
    SELECT DISTINCT labels ->> '$.cluster' AS cluster, labels ->> '$.node' AS node, labels ->> '$.uuid' AS uuid,
        coalesce(labels ->> '$.minor', labels ->> '$.index') AS minor
    FROM latest WHERE metric = 'takt_gpu_info'
), reported AS (
    SELECT i.cluster, i.node, i.uuid, i.\"user\", coalesce(j.job_id, i.job_id) AS job_id, m.value AS memory
    FROM seen AS i
    LEFT JOIN seen AS m ON m.metric = 'takt_gpu_job_memory_used_bytes' AND m.uuid = i.uuid AND m.job_id = i.job_id
    LEFT JOIN jobs AS j
        ON j.cluster = i.cluster AND j.raw_job_id = i.job_id AND j.start_time IS NOT NULL AND j.end_time IS NULL
    WHERE i.metric = 'takt_gpu_job_info'
), gone AS (
    SELECT labels ->> '$.cluster' AS cluster, labels ->> '$.node' AS node, labels ->> '$.jobid' AS job_id
    FROM latest WHERE metric = 'takt_job_info' AND value IS NULL
), allocated AS (
    SELECT c.cluster, c.node, c.uuid, j.\"user\", j.job_id
    FROM job_gpus AS g
    JOIN jobs AS j ON j.cluster = g.cluster AND j.job_id = g.job_id AND j.submit_time = g.submit_time
    JOIN cards AS c ON c.cluster = g.cluster AND c.node = g.node AND try_cast(c.minor AS BIGINT) = g.gpu_index
    WHERE g.source = 'slurmctld' AND j.start_time IS NOT NULL AND j.end_time IS NULL
        AND g.last_seen > (SELECT max(last_seen) FROM job_gpus) - INTERVAL 3 MINUTES
        AND NOT EXISTS (
            SELECT 1 FROM reported AS r WHERE r.cluster = g.cluster AND r.node = g.node AND r.job_id = g.job_id)
        AND NOT EXISTS (
            SELECT 1 FROM gone JOIN nodes AS n USING (cluster, node)
            WHERE n.up AND gone.cluster = g.cluster AND gone.node = g.node AND gone.job_id = j.raw_job_id)
), given AS (
    SELECT cluster, node, uuid, \"user\", job_id, NULL AS commands, memory, false AS allocated_only FROM reported
    UNION ALL
    SELECT cluster, node, uuid, \"user\", job_id, NULL, NULL, true FROM allocated
    UNION ALL
    SELECT i.cluster, i.node, i.uuid, i.\"user\", NULL, string_agg(DISTINCT m.command, ' ' ORDER BY m.command),
        sum(m.value), false
    FROM seen AS i
    LEFT JOIN seen AS m
        ON m.metric = 'takt_gpu_process_memory_used_bytes' AND m.uuid = i.uuid AND m.\"user\" = i.\"user\"
    WHERE i.metric = 'takt_gpu_process_without_job'
    GROUP BY ALL
), answering AS (
    SELECT cluster, node, bool_or(up) AS up FROM nodes GROUP BY ALL
), running AS (
    SELECT cluster, job_id, any_value(job_name) AS name
    FROM jobs WHERE start_time IS NOT NULL AND end_time IS NULL GROUP BY ALL
)
SELECT g.node, g.index, g.uuid, g.model, h.\"user\", h.job_id, h.commands,
    coalesce(h.memory, g.memory_used_bytes), g.utilization_ratio,
    CASE WHEN a.up IS NOT FALSE THEN g.up END, h.allocated_only, r.name
FROM gpus AS g LEFT JOIN given AS h USING (cluster, node, uuid)
LEFT JOIN answering AS a ON a.cluster = g.cluster AND a.node = g.node
LEFT JOIN running AS r ON r.cluster = g.cluster AND r.job_id = h.job_id
ORDER BY g.node, try_cast(g.index AS INTEGER), g.uuid, h.\"user\", h.job_id";

/// Utilization below which a GPU is idle.
const IDLE_BELOW: f64 = 0.05;

/// Memory above which a GPU is in use, in bytes: more than the driver itself uses.
const HELD_BYTES: f64 = 256.0 * (1_u64 << 20) as f64;

fn on_gpu(row: &[Value]) -> OnGpu {
    let text = |at: usize| row.get(at).and_then(Value::as_str).map(str::to_owned);
    let number = |at: usize| row.get(at).and_then(Value::as_f64);
    let flag = |at: usize| row.get(at).and_then(Value::as_bool);
    let up = flag(9);
    let user = text(4);
    // The last readings of a GPU that does not answer, and readings out of range, are ignored.
    let memory = number(7).filter(|_| up.is_some());
    let utilization = number(8).filter(|ratio| up == Some(true) && (0.0..=1.0).contains(ratio));
    let is_idle =
        user.is_some() && memory.is_some_and(|bytes| bytes > HELD_BYTES) && is_low(utilization);
    OnGpu {
        node: text(0).unwrap_or_default(),
        gpu: text(1),
        uuid: text(2).unwrap_or_default(),
        model: text(3),
        user,
        job_id: text(5),
        job_name: text(11),
        commands: text(6),
        memory_used_bytes: memory,
        utilization_ratio: utilization,
        is_idle,
        up,
        is_allocated_only: flag(10).unwrap_or(false),
    }
}

fn note(on: &OnGpu) -> &'static str {
    match on.up {
        None => "exporter does not answer",
        Some(false) => "does not answer",
        Some(true) if on.is_idle => "holds memory, does nothing",
        Some(true) if on.is_allocated_only => "allocated by Slurm",
        Some(true) if on.job_id.is_some() && is_low(on.utilization_ratio) => "held and idle",
        Some(true) => "",
    }
}

fn is_low(utilization_ratio: Option<f64>) -> bool {
    utilization_ratio.is_some_and(|ratio| ratio < IDLE_BELOW)
}

fn listing(found: &[OnGpu]) -> Listing {
    use Column::{Number, Text};
    let mut listing = Listing::new(&[
        Text("node"),
        Text("gpu"),
        Text("model"),
        Text("user"),
        Text("job_id"),
        Text("job_name"),
        Text("commands"),
        Number("memory_gib"),
        Number("utilization"),
        Text("note"),
    ])
    .omitting(&["model"]);
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    for on in found {
        listing.push(vec![
            on.node.clone(),
            on.gpu.clone().unwrap_or_else(|| on.uuid.clone()),
            text(&on.model),
            on.user.clone().unwrap_or_else(|| "-".to_owned()),
            text(&on.job_id),
            text(&on.job_name),
            text(&on.commands),
            on.memory_used_bytes.map_or_else(String::new, |bytes| {
                format!("{:.1}", bytes / (1_u64 << 30) as f64)
            }),
            on.utilization_ratio
                .map_or_else(String::new, |ratio| format!("{:.0} %", ratio * 100.0)),
            note(on).to_owned(),
        ]);
    }
    listing
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::registry::Registry;
    use std::convert::Infallible;
    use std::time::SystemTime;
    use takt_access::Viewer;
    use takt_jobs::{Entry, JobRun};
    use takt_model::{Labels, METRIC_NAME, UnixTime};
    use takt_questions::{AnswerConfig, Question};
    use takt_store::{
        Corrections, DataDir, HeldGpu, Origin, Records, STALE, Shifted, Store, StoreConfig,
    };
    use tempfile::tempdir;

    /// Labels of a series, and its values in two scrapes.
    type TwoScrapes<'l> = (&'l [(&'l str, &'l str)], f64, f64);

    /// Stores two scrapes.
    fn scrape(store: &Store, series: &[TwoScrapes<'_>]) {
        let group = store.group();
        let columns: Vec<_> = series
            .iter()
            .map(|(labels, ..)| {
                let mut labels: Labels = labels.iter().copied().collect();
                labels.set("cluster", "lab");
                if labels.get("node").is_none() {
                    labels.set("node", "g01");
                }
                group.column(&labels).unwrap()
            })
            .collect();
        let now = UnixTime::from(SystemTime::now());
        for (at, second) in [(now - 20, false), (now - 10, true)] {
            let mut row = vec![STALE; group.width()];
            for (column, (_, one, two)) in columns.iter().zip(series) {
                row[column.index()] = if second { *two } else { *one };
            }
            let ticket = group.ticket(at.into()).unwrap();
            group.commit(ticket, &row, &[]).unwrap();
        }
        store.flush();
    }

    fn info<'l>(uuid: &'l str, index: &'l str) -> [(&'l str, &'l str); 4] {
        let name = (METRIC_NAME, "takt_gpu_info");
        [name, ("uuid", uuid), ("index", index), ("minor", index)]
    }

    fn on_g02<'l>(metric: &'l str, label: &'l str) -> [(&'l str, &'l str); 3] {
        [(METRIC_NAME, metric), (label, "dim"), ("node", "g02")]
    }

    fn on_g03<'l>(metric: &'l str, label: &'l str) -> [(&'l str, &'l str); 4] {
        let name = if label == "jobid" { "9" } else { "late" };
        [
            (METRIC_NAME, metric),
            (label, name),
            ("node", "g03"),
            ("minor", "0"),
        ]
    }

    fn of<'l>(metric: &'l str, uuid: &'l str) -> [(&'l str, &'l str); 2] {
        [(METRIC_NAME, metric), ("uuid", uuid)]
    }

    /// Issue 13: jobs that had ended were shown, allocated GPUs were free, a hung GPU was busy.
    #[test]
    fn gpus_show_current_jobs() {
        const UP: &str = "takt_gpu_up";
        const BUSY: &str = "takt_gpu_utilization_ratio";
        let root = tempdir().unwrap();
        let config = StoreConfig {
            min_free_bytes: 0,
            ..StoreConfig::default()
        };
        let dir = DataDir::claim(root.path()).unwrap();
        let store = Store::open(dir, &config, &mut Registry::default()).unwrap();
        let ended = [
            (METRIC_NAME, "takt_gpu_job_info"),
            ("uuid", "wild"),
            ("jobid", "6"),
            ("user", "bob"),
        ];
        scrape(
            &store,
            &[
                (&info("hung", "0"), 1.0, 1.0),
                (&of(UP, "hung"), 1.0, 0.0),
                (&of(BUSY, "hung"), 0.22, STALE),
                (&info("wild", "1"), 1.0, 1.0),
                (&of(UP, "wild"), 1.0, 1.0),
                (&of(BUSY, "wild"), 0.5, 295.96),
                (&ended, 1.0, STALE),
                (&info("held", "2"), 1.0, 1.0),
                (&of(UP, "held"), 1.0, 1.0),
                (&of(BUSY, "held"), 0.0, 0.0),
                // The exporter of these two no longer answers.
                (&info("dark", "3"), 1.0, STALE),
                (&of(UP, "dark"), 1.0, STALE),
                (&info("lone", "4"), 1.0, STALE),
                (&of(UP, "lone"), 1.0, STALE),
                // This one stopped while the server was down.
                (&on_g02("up", "instance"), 1.0, 0.0),
                (&on_g02("takt_gpu_info", "uuid"), 1.0, 1.0),
                (&on_g02(UP, "uuid"), 1.0, 1.0),
                (&on_g02(BUSY, "uuid"), 0.5, 0.5),
                // On this one a job has ended, of which Slurm's records do not know yet.
                (&on_g03("up", "instance"), 1.0, 1.0),
                (&on_g03("takt_gpu_info", "uuid"), 1.0, 1.0),
                (&on_g03(UP, "uuid"), 1.0, 1.0),
                (&on_g03("takt_job_info", "jobid"), 1.0, STALE),
            ],
        );
        let records = Records::of(store.database());
        let now = UnixTime::from(SystemTime::now());
        let run = |id: &str| JobRun {
            cluster: "lab".into(),
            job_id: id.into(),
            raw_job_id: Some(id.into()),
            submit: now - 100,
            start: Some(now - 90),
            state: "RUNNING".into(),
            user: "ann".into(),
            name: Some("train".into()),
            ..JobRun::default()
        };
        let origin = Origin {
            source: "sacct",
            name: "test",
            timezone: None,
            complete_until: None,
            shifted: Shifted::Refuse,
            corrections: Corrections::Accept,
        };
        let entries = ["7", "9"].map(|id| Ok::<_, Infallible>(Entry::Run(run(id))));
        records.import(&origin, entries).unwrap();
        let held = [("7", "g01", 2), ("7", "g01", 3), ("9", "g03", 0)];
        let held = held.map(|(job, node, index)| HeldGpu {
            job_id: job.into(),
            submit: now - 100,
            node: node.into(),
            index,
        });
        records.note_held_gpus("lab", &held, now).unwrap();

        let question = SqlQuestion {
            statement: QUESTION.to_owned(),
        };
        let answer = question
            .answer(
                &Viewer::server(),
                store.database(),
                &AnswerConfig::default(),
            )
            .unwrap();
        let found: Vec<OnGpu> = answer.rows.iter().map(|row| on_gpu(row)).collect();
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let shown: Vec<_> = found
            .iter()
            .map(|on| (on.uuid.as_str(), text(&on.user), text(&on.job_id), note(on)))
            .collect();
        let none = String::new;
        assert_eq!(
            shown,
            [
                ("hung", none(), none(), "does not answer"),
                ("wild", none(), none(), ""),
                (
                    "held",
                    "ann".to_owned(),
                    "7".to_owned(),
                    "allocated by Slurm"
                ),
                (
                    "dark",
                    "ann".to_owned(),
                    "7".to_owned(),
                    "exporter does not answer"
                ),
                ("lone", none(), none(), "exporter does not answer"),
                ("dim", none(), none(), "exporter does not answer"),
                ("late", none(), none(), ""),
            ]
        );
        assert_eq!(found[2].job_name.as_deref(), Some("train"));
        let busy: Vec<_> = found.iter().map(|on| on.utilization_ratio).collect();
        assert_eq!(busy, [None, None, Some(0.0), None, None, None, None]);
        // `takt` without a command counts them alike.
        let question = SqlQuestion {
            statement: crate::commands::overview::COUNTS.to_owned(),
        };
        let viewer = Viewer::server();
        let counts = question.answer(&viewer, store.database(), &AnswerConfig::default());
        assert_eq!(
            counts.unwrap().rows[0],
            serde_json::json!([2, 1, 7, 3, 0.0, 2, 0])
                .as_array()
                .unwrap()
                .as_slice()
        );
    }
}
