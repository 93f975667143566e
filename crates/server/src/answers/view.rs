//! Several servers under one view: what each server of `[[view.servers]]` answers, in one table.
//!
//! Each row names its server. A server that does not answer is named with the reason, and the others
//! are shown. What is seen of users is what that server shows to the token; the view itself needs a
//! role that sees all users.

use super::{
    AboutAnswer, AboutQuestion, AnswerConfig, AnswerError, ClusterQuestion, FairshareQuestion,
    GpuState, JobsQuestion, Question, UsageQuestion,
};
use crate::view::{Answered, SUM, ViewServer, ViewServers};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use takt_access::{Need, Viewer};
use takt_accounting::{Figures, GroupBy};
use takt_model::UnixTime;
use takt_slurm::Shares;
use takt_store::Database;

/// Most rows of jobs.
const JOBS_MAX: usize = 10_000;

/// Subject of a view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ViewOf {
    /// A row for each server: nodes, GPUs, jobs, alerts.
    #[default]
    Overview,
    /// The nodes now.
    Nodes,
    /// The GPUs now.
    Gpus,
    /// Job runs, the newest first.
    Jobs,
    /// Usage of a period, by server and summed.
    Usage,
    /// Fair share of accounts and users.
    Fairshare,
}

/// Asks the servers of the view.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ViewQuestion {
    /// Subject. Default: `overview`.
    pub of: ViewOf,
    /// Only this server.
    pub server: Option<String>,
    /// Only this user's jobs, usage or fair share.
    pub user: Option<String>,
    /// Only this account's jobs or fair share.
    pub account: Option<String>,
    /// Only jobs in these states, separated by commas.
    pub state: Option<String>,
    /// Month of the usage, `2026-10`. Default: the current month.
    pub month: Option<String>,
    /// First day of the usage.
    pub from: Option<String>,
    /// End of the usage (exclusive).
    pub to: Option<String>,
    /// Columns to group the usage by, separated by commas. Default: `user`.
    pub by: Option<String>,
    /// Maximum number of jobs. Default: 1,000.
    pub limit: Option<usize>,
}

/// The rows of all servers that answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ViewAnswer {
    /// Names of the columns. The first is `server`.
    pub columns: Vec<String>,
    /// Rows with a value for each column; null is unknown.
    pub rows: Vec<Vec<Value>>,
    /// The servers that were asked.
    pub servers: Vec<ServerState>,
}

/// A server that was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerState {
    /// Name in the configuration.
    pub name: String,
    /// Address.
    pub url: String,
    /// Why it has no rows; `None` if it answered.
    pub error: Option<String>,
}

impl Question for ViewQuestion {
    const PATH: &'static str = "/api/takt/v1/view";
    const NEED: Need = Need::AllUsers;
    type Answer = ViewAnswer;
    type Data = Database;

    fn answer(
        &self,
        _viewer: &Viewer,
        _database: &Database,
        config: &AnswerConfig,
    ) -> Result<ViewAnswer, AnswerError> {
        let view = &config.view;
        let servers = self.servers(view)?;
        match self.of {
            ViewOf::Overview => Ok(overview(view, &servers)),
            ViewOf::Nodes => Ok(nodes(view, &servers)),
            ViewOf::Gpus => Ok(gpus(view, &servers)),
            ViewOf::Jobs => Ok(self.jobs(view, &servers)),
            ViewOf::Usage => self.usage(view, &servers),
            ViewOf::Fairshare => Ok(self.fairshare(view, &servers)),
        }
    }
}

impl ViewAnswer {
    fn new(columns: &[&str]) -> Self {
        Self {
            columns: columns.iter().map(|&name| name.to_owned()).collect(),
            ..Self::default()
        }
    }

    /// Notes a server. Calls `rows` with its answer, if it has one.
    fn add<T>(&mut self, (server, answer): Answered<'_, T>, rows: impl FnOnce(&mut Self, T)) {
        let ViewServer { config, .. } = server;
        let error = match answer {
            Ok(answer) => {
                rows(self, answer);
                None
            }
            Err(error) => Some(error),
        };
        self.servers.push(ServerState {
            name: config.name.clone(),
            url: config.url.trim_end_matches('/').to_owned(),
            error,
        });
    }

    /// Adds a row of a server.
    fn push(&mut self, server: &str, row: impl IntoIterator<Item = Value>) {
        let row = std::iter::once(Value::from(server)).chain(row);
        self.rows.push(row.collect());
    }
}

impl ViewQuestion {
    fn servers<'v>(&self, view: &'v ViewServers) -> Result<Vec<&'v ViewServer>, AnswerError> {
        let all = view.all();
        if all.is_empty() {
            let error = "no servers to show: list them in [[view.servers]] of takt.toml";
            return Err(AnswerError::Usage(error.to_owned()));
        }
        let Some(name) = &self.server else {
            return Ok(all.iter().collect());
        };
        let found = all.iter().find(|server| server.config.name == *name);
        let found = found.ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|one| one.config.name.as_str()).collect();
            AnswerError::Usage(format!(
                "server: no server {name:?} in [[view.servers]]; expected one of {}",
                known.join(", ")
            ))
        })?;
        Ok(vec![found])
    }

    fn jobs(&self, view: &ViewServers, servers: &[&ViewServer]) -> ViewAnswer {
        let limit = self.limit.unwrap_or(1000).min(JOBS_MAX);
        let answers = view.send(servers, |server| JobsQuestion {
            cluster: server.config.cluster.clone(),
            user: self.user.clone(),
            account: self.account.clone(),
            state: self.state.clone(),
            limit,
            ..JobsQuestion::default()
        });
        let mut all = ViewAnswer::new(&[
            "server",
            "cluster",
            "job_id",
            "user",
            "account",
            "name",
            "partition",
            "state",
            "submit",
            "start",
            "end",
            "nodes",
            "cpus",
            "gpus",
            "node_list",
            "reason",
        ]);
        let mut runs = Vec::new();
        for answered in answers.wait() {
            let name = &answered.0.config.name;
            all.add(answered, |_, found| {
                runs.extend(found.into_iter().map(|run| (name.clone(), run)));
            });
        }
        runs.sort_by_key(|(_, listed)| std::cmp::Reverse(listed.run.submit));
        for (server, listed) in runs.into_iter().take(limit) {
            let run = listed.run;
            let reason = listed.waiting.map(|waiting| waiting.reason);
            let row = [
                json!(run.cluster),
                json!(run.job_id),
                json!(run.user),
                json!(run.account),
                json!(run.name),
                json!(run.partition),
                json!(run.state),
                time(Some(run.submit)),
                time(run.start),
                time(run.end),
                json!(run.nodes),
                json!(run.cpus),
                json!(run.gpus),
                json!(run.node_list),
                json!(reason),
            ];
            all.push(&server, row);
        }
        all
    }

    fn usage(
        &self,
        view: &ViewServers,
        servers: &[&ViewServer],
    ) -> Result<ViewAnswer, AnswerError> {
        let by = self.by.as_deref().unwrap_or("user");
        let keys: Vec<&str> = by.split(',').map(str::trim).collect();
        for key in &keys {
            key.parse::<GroupBy>().map_err(AnswerError::usage)?;
        }
        let answers = view.send(servers, |server| UsageQuestion {
            month: self.month.clone(),
            from: self.from.clone(),
            to: self.to.clone(),
            by: by.to_owned(),
            user: self.user.clone(),
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
                for row in report.rows {
                    let group: Vec<Option<String>> =
                        row.group.0.into_iter().map(|(_, value)| value).collect();
                    let of_server = Sums::of(&row.figures);
                    sums.entry(group.clone()).or_default().add(of_server);
                    let group = group.into_iter().map(|value| json!(value));
                    all.push(name, group.chain(of_server.cells()));
                }
            });
        }
        if answering > 1 {
            for (group, sum) in sums {
                let group = group.into_iter().map(|value| json!(value));
                all.push(SUM, group.chain(sum.cells()));
            }
        }
        Ok(all)
    }

    fn fairshare(&self, view: &ViewServers, servers: &[&ViewServer]) -> ViewAnswer {
        let answers = view.send(servers, |server| FairshareQuestion {
            cluster: server.config.cluster.clone(),
            user: self.user.clone(),
            account: self.account.clone(),
            ..FairshareQuestion::default()
        });
        let mut all = ViewAnswer::new(&[
            "server",
            "cluster",
            "account",
            "user",
            "raw_shares",
            "norm_shares",
            "raw_usage",
            "effective_usage",
            "fair_share",
            "level_fs",
        ]);
        for answered in answers.wait() {
            let name = &answered.0.config.name;
            all.add(answered, |all, answer| {
                for row in answer.rows {
                    let shares = match row.raw_shares {
                        None => Value::Null,
                        Some(Shares::Raw(shares)) => json!(shares),
                        Some(Shares::Parent) => json!("parent"),
                    };
                    let cells = [
                        json!(answer.cluster),
                        json!(row.account),
                        json!(row.user),
                        shares,
                        json!(row.norm_shares),
                        json!(row.raw_usage.floor()),
                        json!(row.effective_usage),
                        json!(row.fair_share),
                        json!(row.level_fs),
                    ];
                    all.push(name, cells);
                }
            });
        }
        all
    }
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
        self.gpus = match (self.gpus, other.gpus) {
            (None, None) => None,
            (one, another) => Some(one.unwrap_or(0) + another.unwrap_or(0)),
        };
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

fn overview(view: &ViewServers, servers: &[&ViewServer]) -> ViewAnswer {
    // All three at once: a silent server costs its timeout once.
    let about = view.send(servers, |_| AboutQuestion {});
    let alerts = view.get::<FiringAlerts>(servers, |_| "/api/v1/alerts".to_owned());
    let now = view.send(servers, the_cluster);
    let (about, alerts, now) = (about.wait(), alerts.wait(), now.wait());
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
    let mut sums: Vec<Option<u64>> = vec![None; 11];
    let mut answering = 0;
    for ((now, (_, about)), (_, alerts)) in now.into_iter().zip(about).zip(alerts) {
        let name = &now.0.config.name;
        let cluster = now.0.config.cluster.clone();
        all.add(now, |all, now| {
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
                *sum = match (*sum, count) {
                    (None, None) => None,
                    (one, another) => Some(one.unwrap_or(0) + another.unwrap_or(0)),
                };
            }
            let counts = counts.map(|count| json!(count));
            let facts = [json!(cluster.or(own)), json!(version)];
            all.push(name, facts.into_iter().chain(counts));
        });
    }
    if answering > 1 {
        let sums = sums.into_iter().map(|count| json!(count));
        all.push(SUM, [Value::Null, Value::Null].into_iter().chain(sums));
    }
    all
}

fn nodes(view: &ViewServers, servers: &[&ViewServer]) -> ViewAnswer {
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
                let is_busy = |gpu: &&super::GpuNow| gpu.state == GpuState::Busy;
                let busy = node.gpus.iter().filter(is_busy).count();
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

fn gpus(view: &ViewServers, servers: &[&ViewServer]) -> ViewAnswer {
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
                    let users: Vec<&str> = gpu.holders.iter().map(|one| &*one.user).collect();
                    let jobs = gpu.holders.iter().filter_map(|one| one.job_id.as_deref());
                    let jobs: Vec<&str> = jobs.collect();
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

fn the_cluster(server: &ViewServer) -> ClusterQuestion {
    ClusterQuestion {
        cluster: server.config.cluster.clone(),
        node: None,
    }
}

/// An instant, RFC 3339.
fn time(at: Option<UnixTime>) -> Value {
    let at = at.and_then(|at| jiff::Timestamp::try_from(at).ok());
    json!(at.map(|at| at.to_string()))
}
