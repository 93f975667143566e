//! Answers of slurmctld: configuration, nodes, partitions and the queue.

use super::sacctmgr::node_tres;
use super::{WEIGHTS, node_list, tres};
use crate::cluster::Node;
use crate::page::Demo;
use crate::schedule::Job;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::mem;
use takt_model::UnixTime;

/// `scontrol show config`.
pub(super) fn config(demo: &Demo, now: UnixTime) -> String {
    format!(
        "Configuration data as of {now}\n\
         AccountingStorageTRES   = cpu,mem,energy,node,billing,fs/disk,vmem,pages,gres/gpu\n\
         AccountingStorageType   = accounting_storage/slurmdbd\n\
         ClusterName             = {}\n\
         JobCompType             = jobcomp/none\n\
         PriorityCalcPeriod      = 00:05:00\n\
         PriorityDecayHalfLife   = 7-00:00:00\n\
         PriorityFlags           = \n\
         PriorityUsageResetPeriod = NONE\n\
         PrivateData             = none\n\
         ProctrackType           = proctrack/cgroup\n\
         SLURM_VERSION           = 24.11.1\n\
         TaskPlugin              = task/cgroup,task/affinity\n",
        demo.cluster.name
    )
}

/// `scontrol show partition`.
pub(super) fn partitions(demo: &Demo) -> String {
    let names: BTreeSet<&str> = demo
        .cluster
        .nodes
        .iter()
        .flat_map(|node| node.partitions)
        .copied()
        .collect();

    let mut out = String::new();
    for name in names {
        let members: Vec<&str> = demo
            .cluster
            .nodes
            .iter()
            .filter(|node| node.partitions.contains(&name))
            .map(|node| node.name.as_str())
            .collect();
        // Values in continuation lines, as scontrol prints them.
        let _ = writeln!(
            out,
            "PartitionName={name}\n   AllowGroups=ALL MaxTime=2-00:00:00 State=UP\n   Nodes={}\n   \
             TRESBillingWeights={WEIGHTS}\n",
            members.join(",")
        );
    }
    out
}

/// `scontrol show nodes --json`.
pub(super) fn nodes(demo: &Demo, now: UnixTime) -> String {
    let node = |(number, node): (usize, &Node)| {
        let running: Vec<(&Job, usize)> = demo.running_on(number, now).collect();
        let cpus: u32 = running.iter().map(|(job, _)| job.request.cpus).sum();
        let gpus: usize = running
            .iter()
            .map(|(job, place)| job.placed[*place].gpus.len())
            .sum();

        let outage = demo
            .schedule
            .outages
            .iter()
            .find(|outage| outage.node == number && outage.from <= now && now < outage.to);

        let base = if running.is_empty() {
            "IDLE"
        } else if cpus >= node.cpus {
            "ALLOCATED"
        } else {
            "MIXED"
        };
        // The exporter of a node that is down does not answer either, so both agree.
        let is_down = !demo.answers(number, now);
        let mut state = vec![if is_down { "DOWN" } else { base }];
        if is_down {
            state.push("NOT_RESPONDING");
        } else if outage.is_some() {
            state.push("DRAIN");
        }

        let gres = node.model.map_or_else(String::new, |model| {
            format!("gpu:{}:{}(S:0-1)", model.gres, node.gpus.len())
        });

        json!({
            "name": node.name,
            "state": state,
            "reason": outage.map_or("", |outage| outage.reason),
            "reason_set_by_user": outage.map_or("", |_| "root"),
            "reason_changed_at": {
                "set": outage.is_some(),
                "number": outage.map_or(UnixTime(0), |outage| outage.from),
            },
            "partitions": node.partitions,
            "tres": node_tres(node),
            "tres_used": format!("cpu={cpus},gres/gpu={gpus}"),
            "gres": gres,
        })
    };

    let nodes: Vec<Value> = demo.cluster.nodes.iter().enumerate().map(node).collect();
    json!({ "nodes": nodes, "errors": [] }).to_string()
}

/// `squeue --all --json`.
pub(super) fn queue(demo: &Demo, now: UnixTime) -> String {
    let jobs = &demo.schedule.jobs;
    let is_live = |job: &&Job| job.is_pending(now) || job.is_running(now);
    // One job waits for resources, the others for their turn, as in Slurm's reasons.
    let mut is_first = true;
    let jobs: Vec<Value> = jobs
        .iter()
        .filter(is_live)
        .map(|job| live_job(demo, job, now, &mut is_first))
        .collect();
    json!({ "jobs": jobs, "errors": [] }).to_string()
}

fn live_job(demo: &Demo, job: &Job, now: UnixTime, is_first: &mut bool) -> Value {
    let user = &demo.cluster.users[job.user];
    let is_running = job.is_running(now);

    let reason = if is_running {
        "None"
    } else if !job.held.is_empty() {
        job.held
    } else if mem::take(is_first) {
        "Resources"
    } else {
        "Priority"
    };

    let start = job
        .start
        .filter(|_| job.held.is_empty())
        .unwrap_or_default();
    // `end_time` of a job that has not ended is start and time limit.
    let limit = start + job.limit_minutes * 60;

    let array = job
        .array
        .map_or((0, None), |(array, task)| (array, Some(task)));
    // Only a running job has GPUs with indexes.
    let gres: Vec<String> = job
        .placed
        .iter()
        .filter(|placement| is_running && !placement.gpus.is_empty())
        .map(|placement| {
            let model = demo.cluster.nodes[placement.node].model;
            let indexes: Vec<String> = placement.gpus.iter().map(usize::to_string).collect();
            format!(
                "gpu:{}:{}(IDX:{})",
                model.map_or("gpu", |model| model.gres),
                placement.gpus.len(),
                indexes.join(",")
            )
        })
        .collect();

    let nodes = if is_running {
        node_list(demo, job)
    } else {
        String::new()
    };
    json!({
        "job_id": job.number,
        "array_job_id": {"set": true, "number": array.0},
        "array_task_id": {
            "set": array.1.is_some(),
            "number": array.1.unwrap_or(0),
        },
        "job_state": [if is_running { "RUNNING" } else { "PENDING" }],
        "user_name": user.name,
        "user_id": user.uid,
        "account": demo.cluster.accounts[user.account].name,
        "partition": job.partition,
        "qos": job.qos,
        "name": job.name,
        // A held job is not eligible, so its waiting time does not count.
        "submit_time": {"set": true, "number": job.submit},
        "eligible_time": {"set": job.held.is_empty(), "number": job.submit},
        // A pending job may have an expected start, and 0 is no time.
        "start_time": {"set": start > UnixTime(0), "number": start},
        "end_time": {"set": start > UnixTime(0), "number": limit},
        "time_limit": {"set": true, "number": job.limit_minutes},
        "tres_alloc_str": if is_running { tres(demo, job) } else { String::new() },
        "tres_req_str": tres(demo, job),
        "node_count": job.request.nodes,
        "cpus": job.request.nodes as u32 * job.request.cpus,
        "nodes": nodes,
        "job_resources": {"nodes": nodes},
        "gres_detail": gres,
        "state_reason": reason,
        "priority": {"set": true, "number": if job.held.is_empty() { NEWEST - job.submit.0 } else { 0 }},
    })
}

/// A time after all submissions: only the age of a job counts for its priority.
const NEWEST: i64 = 4_000_000_000;
