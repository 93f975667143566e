//! Usage of a period, by server and summed.

use super::{ViewAnswer, ViewQuestion, added};
use crate::view_servers::{SUM, ViewServer, ViewServers};
use crate::{AnswerError, UsageQuestion};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use takt_accounting::{Figures, GroupBy};

pub(super) fn rows(
    asked: &ViewQuestion,
    view: &ViewServers,
    servers: &[&ViewServer],
) -> Result<ViewAnswer, AnswerError> {
    let by = asked.by.as_deref().unwrap_or("user");
    let keys: Vec<&str> = by.split(',').map(str::trim).collect();
    // Checked here, so that a misspelt column is one error and not one of each server.
    for key in &keys {
        key.parse::<GroupBy>().map_err(AnswerError::usage)?;
    }
    let answers = view.send(servers, |server| UsageQuestion {
        month: asked.month.clone(),
        from: asked.from.clone(),
        to: asked.to.clone(),
        by: by.to_owned(),
        user: asked.user.clone(),
        account: asked.account.clone(),
        // Each server has the days of its own cluster.
        cluster: server.config.cluster.clone(),
        timezone: None,
    });

    let figures = [
        "jobs",
        "gpu_hours",
        "cpu_hours",
        "node_hours",
        "mem_gib_hours",
    ];

    let columns: Vec<&str> = ["server"].into_iter().chain(keys).chain(figures).collect();
    let mut all = ViewAnswer::new(&columns);
    let mut sums: BTreeMap<Vec<Option<String>>, Sums> = BTreeMap::new();
    let mut answering = 0;
    for answered in answers.wait() {
        let name = &answered.0.config.name;
        all.add(answered, |all, report| {
            answering += 1;
            // Servers group by the same columns, so equal groups are added.
            for row in report.rows {
                let group: Vec<Option<String>> =
                    row.group.0.into_iter().map(|(_, value)| value).collect();
                let of_server = Sums::of(&row.figures);
                sums.entry(group.clone()).or_default().add(of_server);
                let group = group
                    .into_iter()
                    .map(|value| json!(value))
                    .chain(of_server.cells());
                all.push(name, group);
            }
        });
    }

    if answering > 1 {
        for (group, sum) in sums {
            let group = group
                .into_iter()
                .map(|value| json!(value))
                .chain(sum.cells());
            all.push(SUM, group);
        }
    }
    Ok(all)
}

/// Usage that is added up over servers.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    jobs: u64,
    /// In seconds; `None` if no run has a known number of GPUs.
    gpus: Option<u64>,
    /// CPUs and nodes, in seconds.
    cpus: u64,
    nodes: u64,
    mem_gib_hours: f64,
}

impl Sums {
    fn of(figures: &Figures) -> Self {
        Self {
            jobs: figures.jobs_running,
            gpus: figures.gpu_seconds,
            cpus: figures.cpu_seconds,
            nodes: figures.node_seconds,
            mem_gib_hours: figures.mem_gib_hours,
        }
    }

    fn add(&mut self, other: Self) {
        self.jobs += other.jobs;
        self.gpus = added(self.gpus, other.gpus);
        self.cpus += other.cpus;
        self.nodes += other.nodes;
        self.mem_gib_hours += other.mem_gib_hours;
    }

    fn cells(self) -> [Value; 5] {
        let hours = |seconds: u64| seconds as f64 / 3600.0;
        [
            json!(self.jobs),
            json!(self.gpus.map(hours)),
            json!(hours(self.cpus)),
            json!(hours(self.nodes)),
            json!(self.mem_gib_hours),
        ]
    }
}
