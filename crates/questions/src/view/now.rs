//! The nodes and GPUs of all servers, as they are now.

use super::{ViewAnswer, the_cluster};
use crate::GpuState;
use crate::view_servers::{ViewServer, ViewServers};
use serde_json::json;

pub(super) fn nodes(view: &ViewServers, servers: &[&ViewServer]) -> ViewAnswer {
    let mut all = ViewAnswer::new(&[
        "server",
        "node",
        "is_up",
        "state",
        "reason",
        "cpu_busy_ratio",
        "memory_used_bytes",
        "memory_total_bytes",
        "gpus",
        "gpus_busy",
    ]);

    for answered in view.send(servers, the_cluster).wait() {
        let name = &answered.0.config.name;
        all.add(answered, |all, now| {
            for node in now.nodes {
                let busy = node
                    .gpus
                    .iter()
                    .filter(|gpu| gpu.state == GpuState::Busy)
                    .count();
                let cells = [
                    json!(node.node),
                    json!(node.is_up),
                    json!(node.state),
                    json!(node.reason),
                    json!(node.cpu_busy_ratio),
                    json!(node.memory_used_bytes),
                    json!(node.memory_total_bytes),
                    json!(node.gpus.len()),
                    json!(busy),
                ];
                all.push(name, cells);
            }
        });
    }
    all
}

pub(super) fn gpus(view: &ViewServers, servers: &[&ViewServer]) -> ViewAnswer {
    let mut all = ViewAnswer::new(&[
        "server",
        "node",
        "index",
        "uuid",
        "model",
        "state",
        "utilization_ratio",
        "memory_used_bytes",
        "memory_total_bytes",
        "temperature_celsius",
        "power_watts",
        "users",
        "jobs",
        "idle_seconds",
    ]);

    for answered in view.send(servers, the_cluster).wait() {
        let name = &answered.0.config.name;
        all.add(answered, |all, now| {
            for node in now.nodes {
                for gpu in node.gpus {
                    let users: Vec<&str> =
                        gpu.holders.iter().map(|one| &*one.holder.user).collect();
                    let jobs: Vec<&str> = gpu
                        .holders
                        .iter()
                        .filter_map(|one| one.holder.job_id.as_deref())
                        .collect();
                    let cells = [
                        json!(node.node),
                        json!(gpu.index),
                        json!(gpu.uuid),
                        json!(gpu.model),
                        json!(gpu.state),
                        json!(gpu.utilization_ratio),
                        json!(gpu.memory_used_bytes),
                        json!(gpu.memory_total_bytes),
                        json!(gpu.temperature_celsius),
                        json!(gpu.power_watts),
                        json!(users.join(" ")),
                        json!(jobs.join(" ")),
                        json!(gpu.idle_seconds),
                    ];
                    all.push(name, cells);
                }
            }
        });
    }
    all
}
