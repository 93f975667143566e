//! `takt gpus`: the GPUs with their users, jobs, memory and utilization.

use super::{ask, print};
use crate::cli::{ListingFormat, Person, Place};
use anyhow::{Error, anyhow};
use clap::Args;
use serde::Serialize;
use takt_questions::listing::{Column, Listing};
use takt_questions::{ClusterQuestion, GpuHolder, GpuNow, GpuState, NodeNow, did_you_mean};
use takt_server::{Failure, OrUsage};

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
    state: GpuState,
    user: Option<String>,
    job_id: Option<String>,
    job_name: Option<String>,
    /// Names of the programs, for processes without a job.
    commands: Option<String>,
    /// Memory of the user, if the driver reports it, else of the GPU.
    memory_used_bytes: Option<f64>,
    /// Utilization; `None` if unknown or not between 0 and 1.
    utilization_ratio: Option<f64>,
    /// Whether the GPU is held and idle.
    is_idle: bool,
    /// Whether the GPU answers; `None` if it is not measured.
    up: Option<bool>,
    /// Whether the job is known from Slurm's allocation alone.
    is_allocated_only: bool,
    /// Why the GPU does not answer or is not measured.
    reason: Option<String>,
}

/// Runs the command.
pub fn run(place: &Place, asked: &Gpus) -> Result<(), Failure> {
    let question = ClusterQuestion {
        node: asked.node.clone(),
        ..ClusterQuestion::default()
    };
    let nodes = ask(place, &question)?.nodes;
    if let Some(name) = &asked.node
        && nodes.is_empty()
    {
        // All nodes are asked for only to propose a name.
        let all = ask(place, &ClusterQuestion::default())?.nodes;
        return Err(unknown_node(name, &all)).usage();
    }
    let mut found: Vec<OnGpu> = nodes.iter().flat_map(on_gpus).collect();
    let are_known = !found.is_empty();
    if !are_known {
        tracing::warn!("no exporter has reported a GPU in the last seven days");
    }

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

/// Returns the error for a node that neither an exporter nor Slurm has named.
fn unknown_node(name: &str, nodes: &[NodeNow]) -> Error {
    let near = did_you_mean(name, nodes.iter().map(|node| node.node.as_str()));
    let hint = match (near.as_str(), nodes.len()) {
        (_, 0) => "; no node is known yet, see takt doctor".to_owned(),
        ("", _) => "; takt gpus lists the GPUs of all nodes".to_owned(),
        _ => near,
    };
    anyhow!("--node: no node {name} is known{hint}")
}

/// Returns a line for each holder of each GPU of a node, and one for a GPU without holders.
fn on_gpus(node: &NodeNow) -> Vec<OnGpu> {
    let of_gpu = |gpu: &GpuNow| {
        let mut lines: Vec<OnGpu> = gpu
            .holders
            .iter()
            .map(|holder| on_gpu(node, gpu, Some(holder)))
            .collect();
        if lines.is_empty() {
            lines.push(on_gpu(node, gpu, None));
        }
        lines
    };
    node.gpus.iter().flat_map(of_gpu).collect()
}

fn on_gpu(node: &NodeNow, gpu: &GpuNow, holder: Option<&GpuHolder>) -> OnGpu {
    let set = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let commands = holder.map(|one| one.commands.join(" "));
    let of_holder = holder.and_then(|one| one.memory_used_bytes);
    OnGpu {
        node: node.node.clone(),
        gpu: set(&gpu.index),
        uuid: gpu.uuid.clone(),
        model: set(&gpu.model),
        state: gpu.state,
        user: holder.map(|one| one.holder.user.clone()),
        job_id: holder.and_then(|one| one.holder.job_id.clone()),
        job_name: holder.and_then(|one| one.job_name.clone()),
        commands: commands.filter(|commands| !commands.is_empty()),
        // Not every driver reports the memory of processes.
        memory_used_bytes: of_holder.or(gpu.memory_used_bytes),
        utilization_ratio: gpu
            .utilization_ratio
            // A value outside this range is a fault of the exporter or the driver, not a
            // measurement.
            .filter(|ratio| (0.0..=1.0).contains(ratio)),
        is_idle: gpu.state == GpuState::Idle,
        up: match gpu.state {
            GpuState::Lost => Some(false),
            _ => gpu.reason.is_none().then_some(true),
        },
        is_allocated_only: holder.is_some_and(|one| one.is_allocated_only),
        reason: gpu.reason.clone(),
    }
}

/// Returns what the state does not say.
fn note(on: &OnGpu) -> &str {
    match &on.reason {
        Some(reason) => reason,
        None if on.is_allocated_only => "allocated by Slurm",
        None => "",
    }
}

fn listing(found: &[OnGpu]) -> Listing {
    use Column::{Number, Text};
    let mut listing = Listing::new(&[
        Text("node"),
        Text("gpu"),
        Text("model"),
        Text("state"),
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
            // A GPU that fell off the bus has no index, only its UUID.
            on.gpu.clone().unwrap_or_else(|| on.uuid.clone()),
            text(&on.model),
            on.state.words().to_owned(),
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
