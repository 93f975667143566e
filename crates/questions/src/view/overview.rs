//! A row for each server: nodes, GPUs, jobs, alerts.

use super::{ViewAnswer, added, the_cluster};
use crate::view_servers::{SUM, ViewServer, ViewServers};
use crate::{AboutAnswer, AboutQuestion};
use serde::Deserialize;
use serde_json::{Value, json};

/// An alert of Prometheus' API.
#[derive(Deserialize)]
struct FiringAlerts {
    data: AlertList,
}

#[derive(Deserialize)]
struct AlertList {
    alerts: Vec<AlertNow>,
}

#[derive(Deserialize)]
struct AlertNow {
    state: String,
}

pub(super) fn rows(view: &ViewServers, servers: &[&ViewServer]) -> ViewAnswer {
    // All three at once: a silent server costs its timeout once.
    let about = view.send(servers, |_| AboutQuestion {});
    let alerts = view.get::<FiringAlerts>(servers, |_| "/api/v1/alerts".to_owned());
    let now = view.send(servers, the_cluster);
    let about = about.wait();
    let alerts = alerts.wait();
    let now = now.wait();

    let mut all = ViewAnswer::new(&[
        "server",
        "cluster",
        "version",
        "nodes",
        "nodes_up",
        "gpus",
        "gpus_busy",
        "gpus_idle",
        "gpus_free",
        "gpus_lost",
        "gpus_unknown",
        "jobs_running",
        "jobs_pending",
        "alerts_firing",
    ]);
    // One for each count below.
    let mut sums: Vec<Option<u64>> = vec![None; 11];
    let mut answering = 0;
    for ((now, (_, about)), (_, alerts)) in now.into_iter().zip(about).zip(alerts) {
        let name = &now.0.config.name;
        let cluster = now.0.config.cluster.clone();
        all.add(now, |all, now| {
            // The version and the alerts are unknown if only the request for the cluster was answered.
            let AboutAnswer {
                cluster: own,
                version,
                ..
            } = about.unwrap_or_else(|_| AboutAnswer {
                cluster: None,
                timezone: None,
                version: String::new(),
                records_from: None,
            });

            let is_firing = |alert: &&AlertNow| alert.state == "firing";
            let firing = alerts.map(|found| found.data.alerts.iter().filter(is_firing).count());
            let counts = [
                Some(now.nodes.len() as u64),
                Some(now.nodes_up),
                Some(now.gpus.all),
                Some(now.gpus.busy),
                Some(now.gpus.idle),
                Some(now.gpus.free),
                Some(now.gpus.lost),
                Some(now.gpus.unknown),
                now.jobs_running,
                now.jobs_pending,
                firing.ok().map(|count| count as u64),
            ];

            answering += 1;
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum = added(*sum, count);
            }

            let counts = counts.map(|count| json!(count));
            let facts = [json!(cluster.or(own)), json!(version)];
            all.push(name, facts.into_iter().chain(counts));
        });
    }
    // A sum of one server would repeat its row.
    if answering > 1 {
        let sums = sums.into_iter().map(|count| json!(count));
        all.push(SUM, [Value::Null, Value::Null].into_iter().chain(sums));
    }
    all
}
