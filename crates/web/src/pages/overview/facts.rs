//! Current facts from the store for the overview page.

use jiff::Zoned;
use jiff::tz::TimeZone;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use takt_access::{OTHER_USER, Owner, Viewer};
use takt_accounting::UsageReport;
use takt_collector::scrape::TargetStatus;
use takt_model::Matcher;
use takt_model::{Labels, Timestamp, error_chain};
use takt_server::answers::{AnswerConfig, AnswerError, Question, UsageQuestion};
use takt_slurm::JobRun;
use takt_store::{FairsharePoint, Health, JobFilter, Records, SeriesData, Store, StoreError};

/// The facts of the page, before rounding and formatting.
#[derive(Debug)]
pub struct Facts {
    /// Name of the cluster.
    pub cluster: String,
    /// Time of the facts, in the cluster's time zone.
    pub now: Zoned,
    /// Nodes, by name.
    pub nodes: Vec<NodeFacts>,
    /// Name of the current month.
    pub month_name: String,
    /// Usage by user in this month; `None` without job records.
    pub month: Option<UsageReport>,
    /// Users by fair share, highest first.
    pub shares: Vec<FairsharePoint>,
    /// The queue; `None` without a scheduler.
    pub queue: Option<QueueFacts>,
    /// Lines about the collector's health; `true` marks a good state.
    pub health: Vec<(bool, String)>,
}

/// One node.
#[derive(Debug, Default)]
pub struct NodeFacts {
    pub name: String,
    /// Reason why the exporter did not answer.
    pub trouble: Option<String>,
    pub cpu_busy_ratio: Option<f64>,
    pub memory_used_ratio: Option<f64>,
    pub gpus: Vec<GpuFacts>,
}

/// One GPU.
#[derive(Debug, Default)]
pub struct GpuFacts {
    pub uuid: String,
    pub index: String,
    pub model: String,
    /// Reason why NVML cannot read the GPU.
    pub trouble: Option<String>,
    pub utilization_ratio: Option<f64>,
    pub memory_used_bytes: Option<f64>,
    pub memory_total_bytes: Option<f64>,
    pub temperature_celsius: Option<f64>,
    pub power_watts: Option<f64>,
    /// Users with a process or a job on the GPU.
    pub users: Vec<String>,
    /// Processes without a job: `ann: python`.
    pub commands: Vec<String>,
}

/// The queue of the scheduler.
#[derive(Debug, Default)]
pub struct QueueFacts {
    pub running: usize,
    pub pending: usize,
    /// Jobs: pending first, then running; each newest first.
    pub runs: Vec<JobRun>,
}

/// Facts that only the running server has.
#[derive(Debug)]
pub struct ServerFacts {
    /// Name of the cluster.
    pub cluster: String,
    /// Time zone of the cluster.
    pub zone: TimeZone,
    /// Targets and their health.
    pub targets: Vec<TargetStatus>,
    /// The line about the scheduler; `None` without a scheduler.
    pub scheduler: Option<(bool, String)>,
}

/// Lookback of the instant queries.
const LOOKBACK: Duration = Duration::from_secs(300);

/// Window for the rate of the CPU's idle time.
const CPU_WINDOW: Duration = Duration::from_secs(120);

/// Gathers the facts. Blocks on the database.
///
/// # Errors
/// If a query of the store fails.
pub fn gather(store: &Store, viewer: &Viewer, around: &ServerFacts) -> Result<Facts, StoreError> {
    let now = Timestamp::from(SystemTime::now());
    let zoned = jiff::Timestamp::from_millisecond(now.0)
        .unwrap_or_default()
        .to_zoned(around.zone.clone());
    let month_name = zoned.strftime("%B %Y").to_string();
    let known = Records::of(store.database())
        .clusters()?
        .iter()
        .any(|known| known.cluster == around.cluster);
    let mut health = health(store, around, now);
    // Without records, the cluster has no usage to compute.
    let month = if known {
        month(store, viewer, around).map(Some)
    } else {
        Ok(None)
    };
    let month = month.unwrap_or_else(|error| {
        let error = error_chain(&error);
        health.push((false, format!("usage of the month: {error}")));
        None
    });
    Ok(Facts {
        cluster: around.cluster.clone(),
        nodes: nodes(store, viewer, &around.targets, now)?,
        queue: queue(store, viewer, around)?,
        now: zoned,
        month_name,
        month,
        shares: fairshare(store, viewer, around)?,
        health,
    })
}

/// Returns this cluster's usage in the current month, by the days of its own time zone.
fn month(store: &Store, viewer: &Viewer, around: &ServerFacts) -> Result<UsageReport, AnswerError> {
    let question = UsageQuestion {
        cluster: Some(around.cluster.clone()),
        timezone: around.zone.iana_name().map(str::to_owned),
        ..UsageQuestion::default()
    };
    question.answer(viewer, store.database(), &AnswerConfig::default())
}

/// Returns the users of this cluster by fair share, highest first. Uses the last stored values: a
/// page must not read every run.
fn fairshare(
    store: &Store,
    viewer: &Viewer,
    around: &ServerFacts,
) -> Result<Vec<FairsharePoint>, StoreError> {
    let records = Records::of(store.database());
    let Some(noted) = records.fairshare_noted(&around.cluster)? else {
        return Ok(Vec::new());
    };
    let mut points = records.fairshare_history(&around.cluster, None, None, noted)?;
    points.retain(|point| {
        let user = point.user.as_deref();
        user.is_some_and(|user| viewer.sees_usage(Owner::new(user, &point.account)))
    });
    points.sort_by(|a, b| {
        b.fair_share
            .unwrap_or(0.0)
            .total_cmp(&a.fair_share.unwrap_or(0.0))
    });
    Ok(points)
}

fn nodes(
    store: &Store,
    viewer: &Viewer,
    targets: &[TargetStatus],
    now: Timestamp,
) -> Result<Vec<NodeFacts>, StoreError> {
    let mut nodes: BTreeMap<String, NodeFacts> = BTreeMap::new();
    for target in targets {
        let node = nodes
            .entry(target.labels.get("node").unwrap_or(&target.url).to_owned())
            .or_default();
        node.trouble = node.trouble.take().or_else(|| target.error.clone());
    }
    let latest = |metric: &str| store.instant(&[Matcher::metric(metric)], now, LOOKBACK);
    for (node, ratio) in cpu_busy(store, now)? {
        nodes.entry(node).or_default().cpu_busy_ratio = Some(ratio);
    }
    let total: BTreeMap<String, f64> = by_node(&latest("node_memory_MemTotal_bytes")?).collect();
    for (node, available) in by_node(&latest("node_memory_MemAvailable_bytes")?) {
        if let Some(total) = total.get(&node) {
            nodes.entry(node).or_default().memory_used_ratio = Some(1.0 - available / total);
        }
    }
    for (node, gpus) in gpus(viewer, &latest)? {
        nodes.entry(node).or_default().gpus = gpus;
    }
    Ok(nodes
        .into_iter()
        .map(|(name, node)| NodeFacts { name, ..node })
        .collect())
}

/// Accessor for one reading of a GPU.
type Field = fn(&mut GpuFacts) -> &mut Option<f64>;

fn gpus(
    viewer: &Viewer,
    latest: &impl Fn(&str) -> Result<Vec<SeriesData>, StoreError>,
) -> Result<BTreeMap<String, Vec<GpuFacts>>, StoreError> {
    let mut gpus: BTreeMap<(String, String), GpuFacts> = BTreeMap::new();
    let key = |labels: &Labels| {
        let of = |name| labels.get(name).unwrap_or_default().to_owned();
        (of("node"), of("uuid"))
    };
    for series in latest("takt_gpu_up")? {
        let gpu = gpus.entry(key(&series.labels)).or_default();
        gpu.trouble = (value(&series) == 0.0)
            .then(|| series.labels.get("reason").unwrap_or("down").to_owned());
    }
    for series in latest("takt_gpu_info")? {
        let gpu = gpus.entry(key(&series.labels)).or_default();
        gpu.index = series.labels.get("index").unwrap_or_default().to_owned();
        gpu.model = series.labels.get("model").unwrap_or_default().to_owned();
    }
    let readings: [(&str, Field); 5] = [
        ("takt_gpu_utilization_ratio", |gpu| {
            &mut gpu.utilization_ratio
        }),
        ("takt_gpu_memory_used_bytes", |gpu| {
            &mut gpu.memory_used_bytes
        }),
        ("takt_gpu_memory_total_bytes", |gpu| {
            &mut gpu.memory_total_bytes
        }),
        ("takt_gpu_temperature_celsius", |gpu| {
            &mut gpu.temperature_celsius
        }),
        ("takt_gpu_power_watts", |gpu| &mut gpu.power_watts),
    ];
    for (metric, field) in readings {
        for series in latest(metric)? {
            *field(gpus.entry(key(&series.labels)).or_default()) = Some(value(&series));
        }
    }
    for metric in ["takt_gpu_job_info", "takt_gpu_process_without_job"] {
        for series in latest(metric)? {
            let user = series.labels.get("user").unwrap_or_default();
            let user = shown_holder(viewer, user).to_owned();
            let users = &mut gpus.entry(key(&series.labels)).or_default().users;
            if !user.is_empty() && !users.contains(&user) {
                users.push(user);
            }
        }
    }
    for series in latest("takt_gpu_process_memory_used_bytes")? {
        let label = |name| series.labels.get(name).unwrap_or_default();
        if !viewer.sees_details(Owner::new(label("user"), "")) {
            continue;
        }
        gpus.entry(key(&series.labels))
            .or_default()
            .commands
            .push(format!("{}: {}", label("user"), label("command")));
    }
    let mut by_node: BTreeMap<String, Vec<GpuFacts>> = BTreeMap::new();
    for ((node, uuid), gpu) in gpus {
        by_node
            .entry(node)
            .or_default()
            .push(GpuFacts { uuid, ..gpu });
    }
    let order = |gpu: &GpuFacts| (gpu.index.parse().unwrap_or(u32::MAX), gpu.uuid.clone());
    by_node
        .values_mut()
        .for_each(|gpus| gpus.sort_by_key(order));
    Ok(by_node)
}

/// Returns the user of a GPU, or other words if the viewer may not see whose GPU it is.
fn shown_holder<'u>(viewer: &Viewer, user: &'u str) -> &'u str {
    if user.is_empty() || viewer.sees_job(Owner::new(user, "")) {
        user
    } else {
        OTHER_USER
    }
}

/// Returns the ratio of non-idle CPU time in the last minutes, by node.
fn cpu_busy(store: &Store, now: Timestamp) -> Result<BTreeMap<String, f64>, StoreError> {
    let idle = [
        Matcher::metric("node_cpu_seconds_total"),
        Matcher::equal("mode", "idle"),
    ];
    let mut idle_and_all: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for series in store.range(&idle, now.minus(CPU_WINDOW), now)? {
        let readings: Vec<_> = series
            .samples
            .iter()
            .filter(|sample| sample.value.is_finite())
            .collect();
        if let (Some(first), Some(last), Some(node)) =
            (readings.first(), readings.last(), series.labels.get("node"))
        {
            let (idle, all) = idle_and_all.entry(node.to_owned()).or_default();
            *idle += (last.value - first.value).max(0.0);
            *all += (last.at.0 - first.at.0) as f64 / 1e3;
        }
    }
    let busy = |(node, (idle, all)): (String, (f64, f64))| {
        (all > 0.0).then(|| (node, (1.0 - idle / all).clamp(0.0, 1.0)))
    };
    Ok(idle_and_all.into_iter().filter_map(busy).collect())
}

fn by_node(series: &[SeriesData]) -> impl Iterator<Item = (String, f64)> {
    series
        .iter()
        .filter_map(|series| Some((series.labels.get("node")?.to_owned(), value(series))))
}

/// Returns the only value of an instant query's series.
fn value(series: &SeriesData) -> f64 {
    series
        .samples
        .last()
        .map_or(f64::NAN, |sample| sample.value)
}

fn queue(
    store: &Store,
    viewer: &Viewer,
    around: &ServerFacts,
) -> Result<Option<QueueFacts>, StoreError> {
    let states = [
        "PENDING",
        "RUNNING",
        "SUSPENDED",
        "CONFIGURING",
        "COMPLETING",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut runs = Records::of(store.database()).jobs(&JobFilter {
        cluster: Some(around.cluster.clone()),
        states,
        ..JobFilter::default()
    })?;
    if runs.is_empty() && around.scheduler.is_none() {
        return Ok(None);
    }
    let pending = runs.iter().filter(|run| run.start.is_none()).count();
    let running = runs.len() - pending;
    // The numbers count all jobs; the list has those that the viewer may see.
    runs.retain(|run| viewer.sees_job(Owner::new(&run.user, &run.account)));
    runs.sort_by_key(|run| run.start.is_some());
    Ok(Some(QueueFacts {
        running,
        pending,
        runs,
    }))
}

fn health(store: &Store, around: &ServerFacts, now: Timestamp) -> Vec<(bool, String)> {
    let mut checks = Vec::new();
    let failing = around
        .targets
        .iter()
        .filter(|target| target.error.is_some())
        .count();
    checks.push(match around.targets.len() {
        0 => (false, "no exporter is configured".to_owned()),
        all => (
            failing == 0,
            format!("{} of {all} exporters answer", all - failing),
        ),
    });
    checks.push(match &*store.health().borrow() {
        Health::Writing => {
            // Before the first sample, the watermark is the smallest time.
            let behind = now.0.checked_sub(store.watermark().0);
            let text = behind.map_or_else(
                || "no samples are stored yet".to_owned(),
                |behind| format!("samples are durable up to {} s ago", behind.max(0) / 1000),
            );
            (true, text)
        }
        Health::Waiting(why) => (false, format!("samples are waiting to be written: {why}")),
        Health::Invalidated(why) => (false, format!("reopening the database: {why}")),
    });
    for damaged in store.database().damaged() {
        checks.push((
            false,
            format!(
                "a damaged file was set aside as {}: {}",
                damaged.moved_to.display(),
                damaged.reason
            ),
        ));
    }
    checks.extend(around.scheduler.clone());
    checks
}
