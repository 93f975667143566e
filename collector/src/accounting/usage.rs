//! Usage: what runs held, times how long, cut at the ends of a period.
//!
//! A running job counts up to `now`. Suspended time counts, because the nodes are held all the while; Slurm's sreport
//! takes it off the CPUs only. A run that never got a node holds nothing.
//!
//! By node, what a run held is split over its nodes as evenly as whole units allow, since nobody recorded how Slurm
//! did: three CPUs on two nodes are one on the first and two on the second. A run counts as a job, with its wall and
//! waiting time, on each of its nodes, so these add up to more than the totals.

use super::Period;
use crate::jobs::{HeldRun, nodelist};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

/// What usage can be grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the columns of the same names")]
pub enum GroupBy {
    User,
    Account,
    Partition,
    Qos,
    Node,
    GpuModel,
    State,
}

impl GroupBy {
    /// All of them, with the names that people and reports use.
    pub const ALL: &[(&str, Self)] = &[
        ("user", Self::User),
        ("account", Self::Account),
        ("partition", Self::Partition),
        ("qos", Self::Qos),
        ("node", Self::Node),
        ("gpu_model", Self::GpuModel),
        ("state", Self::State),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, by)| *by == self).map_or("", |(name, _)| name)
    }
}

/// A word that usage cannot be grouped by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot group by '{0}' (expected some of user, account, partition, qos, node, gpu_model, state)")]
pub struct UnknownGroup(pub String);

impl FromStr for GroupBy {
    type Err = UnknownGroup;

    fn from_str(name: &str) -> Result<Self, UnknownGroup> {
        Self::ALL
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, by)| *by)
            .ok_or_else(|| UnknownGroup(name.to_owned()))
    }
}

/// Who used how much in a period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsageReport {
    /// The cluster.
    pub cluster: String,
    /// The period's first instant, RFC 3339.
    pub from: String,
    /// The first instant after it, RFC 3339.
    pub to: String,
    /// The zone whose days the period is made of.
    pub timezone: String,
    /// Everybody together; each run counts once.
    pub totals: Figures,
    /// One row a group, most GPU time first, then most CPU time, then by name.
    pub rows: Vec<Row>,
}

/// One group and what it used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The group.
    #[serde(flatten)]
    pub group: Group,
    /// What it used.
    #[serde(flatten)]
    pub figures: Figures,
}

/// The values that the runs of a group share, in the order in which they were asked for. `None` is unknown or absent:
/// the QOS that was not recorded, the GPU model of a run without GPUs, the node of one that has none yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group(pub Vec<(&'static str, Option<String>)>);

/// What was used. Seconds are exact; hours are the nearest double to seconds / 3,600.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Runs submitted in the period.
    pub jobs_submitted: u64,
    /// Runs that got their nodes in the period.
    pub jobs_started: u64,
    /// Runs that left their nodes, or the queue, in the period.
    pub jobs_ended: u64,
    /// Runs that held something at some time of the period.
    pub jobs_running: u64,
    /// Those of them whose number of GPUs nobody saw.
    pub jobs_gpu_unknown: u64,
    /// CPUs × seconds.
    pub cpu_seconds: u64,
    /// CPUs × hours.
    pub cpu_hours: f64,
    /// GPUs × seconds of the runs whose number of GPUs is known; `None` where that is none of several.
    pub gpu_seconds: Option<u64>,
    /// GPUs × hours.
    pub gpu_hours: Option<f64>,
    /// Nodes × seconds; a node that is shared counts for each run on it.
    pub node_seconds: u64,
    /// Nodes × hours.
    pub node_hours: f64,
    /// Seconds of running.
    pub wall_seconds: u64,
    /// Hours of running.
    pub wall_hours: f64,
    /// Memory (GiB) × hours.
    pub mem_gib_hours: f64,
    /// Start − submit of the runs that started in the period. Clocks that were set can make it negative.
    pub wait_seconds: i64,
    /// The same in hours.
    pub wait_hours: f64,
}

/// Usage of a period while runs are added to it, in any order.
#[derive(Debug)]
pub struct Usage<'p> {
    period: &'p Period,
    from: i64,
    to: i64,
    now: i64,
    by: Vec<GroupBy>,
    totals: Sums,
    groups: Vec<Sums>,
    /// Groups by the values they share, each ended by a byte that no UTF-8 text holds.
    index: HashMap<Vec<u8>, usize>,
    key: Vec<u8>,
}

/// The usage of many runs.
pub fn usage<'r>(
    runs: impl IntoIterator<Item = HeldRun<'r>>,
    cluster: &str,
    period: &Period,
    by: &[GroupBy],
    now: i64,
) -> UsageReport {
    let mut usage = Usage::new(period, by, now);
    for run in runs {
        usage.add(&run);
    }
    usage.report(cluster)
}

impl<'p> Usage<'p> {
    /// Nothing used yet. `now` is how long running jobs count.
    pub fn new(period: &'p Period, by: &[GroupBy], now: i64) -> Self {
        Self {
            period,
            from: period.from(),
            to: period.to(),
            now,
            by: by.to_vec(),
            totals: Sums::default(),
            groups: Vec::new(),
            index: HashMap::new(),
            key: Vec::new(),
        }
    }

    /// Adds what a run did in the period, if anything.
    pub fn add(&mut self, run: &HeldRun<'_>) {
        let Some(part) = self.part(run) else { return };
        self.totals.add(&part, run.into());
        if !self.by.contains(&GroupBy::Node) {
            return self.add_to_group(run, None, &part, run.into());
        }
        // A list that cannot be expanded is a group of its own: better one odd name than a share charged to nobody.
        let list = run.node_list.filter(|list| !list.is_empty());
        let nodes = list.map(|list| nodelist::expand(list).unwrap_or_else(|_| vec![list.to_owned()]));
        match nodes {
            None => self.add_to_group(run, None, &part, run.into()),
            Some(nodes) => {
                for (position, node) in nodes.iter().enumerate() {
                    self.add_to_group(run, Some(node), &part, Held::from(run).share(position, nodes.len()));
                }
            }
        }
    }

    /// The report of what was added.
    pub fn report(self, cluster: &str) -> UsageReport {
        let mut rows: Vec<Row> = self
            .index
            .iter()
            .map(|(key, &group)| Row { group: group_of(&self.by, key), figures: self.groups[group].figures() })
            .collect();
        rows.sort_unstable_by(|a, b| {
            let order = |row: &Row| (row.figures.gpu_seconds.unwrap_or(0), row.figures.cpu_seconds);
            order(b).cmp(&order(a)).then_with(|| a.group.cmp(&b.group))
        });
        UsageReport {
            cluster: cluster.to_owned(),
            from: self.period.from_text(),
            to: self.period.to_text(),
            timezone: self.period.zone_name(),
            totals: self.totals.figures(),
            rows,
        }
    }

    /// What of the run lies in the period; `None` if nothing does.
    fn part(&self, run: &HeldRun<'_>) -> Option<Part> {
        let within = |instant: i64| self.from <= instant && instant < self.to;
        let mut part = Part { submitted: within(run.submit), ..Part::default() };
        part.ended = run.end.is_some_and(within);
        if let Some(start) = run.start {
            part.started = within(start);
            part.waited = start.saturating_sub(run.submit);
            part.running = start < self.to && run.end.is_none_or(|end| end > self.from);
            let until = run.end.unwrap_or(self.now).min(self.to);
            part.seconds = u64::try_from(until.saturating_sub(start.max(self.from))).unwrap_or(0);
        }
        (part.submitted || part.started || part.ended || part.running).then_some(part)
    }

    fn add_to_group(&mut self, run: &HeldRun<'_>, node: Option<&str>, part: &Part, held: Held) {
        if self.by.is_empty() {
            return;
        }
        self.key.clear();
        for by in &self.by {
            let value = match by {
                GroupBy::User => Some(run.user),
                GroupBy::Account => Some(run.account),
                GroupBy::Partition => Some(run.partition),
                GroupBy::Qos => run.qos,
                GroupBy::Node => node,
                GroupBy::GpuModel => run.gpu_model,
                GroupBy::State => Some(run.state),
            };
            self.key.extend_from_slice(value.unwrap_or_default().as_bytes());
            self.key.push(if value.is_some() { VALUE_ENDS } else { NO_VALUE });
        }
        let group = match self.index.get(self.key.as_slice()) {
            Some(&group) => group,
            None => {
                self.index.insert(self.key.clone(), self.groups.len());
                self.groups.push(Sums::default());
                self.groups.len() - 1
            }
        };
        self.groups[group].add(part, held);
    }
}

const VALUE_ENDS: u8 = 0xff;
const NO_VALUE: u8 = 0xfe;

fn group_of(by: &[GroupBy], key: &[u8]) -> Group {
    let values = key.split_inclusive(|&byte| byte >= NO_VALUE).map(|value| match value.split_last() {
        Some((&VALUE_ENDS, text)) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    });
    Group(by.iter().map(|by| by.name()).zip(values).collect())
}

/// What of one run lies in the period.
#[derive(Debug, Default)]
struct Part {
    submitted: bool,
    started: bool,
    ended: bool,
    running: bool,
    /// Seconds of running in the period.
    seconds: u64,
    /// Seconds between submission and start.
    waited: i64,
}

/// What a run, or its share on a node, holds at any moment.
#[derive(Debug, Clone, Copy)]
struct Held {
    nodes: Option<u64>,
    cpus: Option<u64>,
    gpus: Option<u64>,
    mem_bytes: Option<u64>,
}

impl From<&HeldRun<'_>> for Held {
    fn from(run: &HeldRun<'_>) -> Self {
        Self { nodes: run.nodes, cpus: run.cpus, gpus: run.gpus, mem_bytes: run.mem_bytes }
    }
}

impl Held {
    /// The share of the node at `position` of `count`. Units stay whole and the shares add up; that they do not depend
    /// on time lets a run be cut anywhere.
    fn share(self, position: usize, count: usize) -> Self {
        let (position, count) = (position as u128, count as u128);
        let until = |amount: u64, position: u128| u128::from(amount) * position / count;
        let share = |amount: u64| u64::try_from(until(amount, position + 1) - until(amount, position)).unwrap_or(0);
        Self {
            nodes: self.nodes.map(share),
            cpus: self.cpus.map(share),
            gpus: self.gpus.map(share),
            mem_bytes: self.mem_bytes.map(share),
        }
    }
}

/// Sums that no input can overflow and no order can change.
#[derive(Debug, Default)]
struct Sums {
    submitted: u64,
    started: u64,
    ended: u64,
    running: u64,
    gpu_unknown: u64,
    cpu_seconds: u128,
    gpu_seconds: u128,
    node_seconds: u128,
    wall_seconds: u128,
    byte_seconds: u128,
    wait_seconds: i128,
}

impl Sums {
    fn add(&mut self, part: &Part, held: Held) {
        self.submitted += u64::from(part.submitted);
        self.ended += u64::from(part.ended);
        if part.started {
            self.started += 1;
            self.wait_seconds += i128::from(part.waited);
        }
        if part.running {
            let seconds = u128::from(part.seconds);
            let times = |amount: Option<u64>| u128::from(amount.unwrap_or(0)) * seconds;
            self.running += 1;
            self.gpu_unknown += u64::from(held.gpus.is_none());
            self.cpu_seconds += times(held.cpus);
            self.gpu_seconds += times(held.gpus);
            self.node_seconds += times(held.nodes);
            self.wall_seconds += seconds;
            self.byte_seconds += times(held.mem_bytes);
        }
    }

    fn figures(&self) -> Figures {
        let seconds = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
        let hours = |sum: u128| sum as f64 / SECONDS_PER_HOUR;
        let gpus_seen = self.running == 0 || self.gpu_unknown < self.running;
        let wait_seconds = i64::try_from(self.wait_seconds).unwrap_or(i64::MAX);
        Figures {
            jobs_submitted: self.submitted,
            jobs_started: self.started,
            jobs_ended: self.ended,
            jobs_running: self.running,
            jobs_gpu_unknown: self.gpu_unknown,
            cpu_seconds: seconds(self.cpu_seconds),
            cpu_hours: hours(self.cpu_seconds),
            gpu_seconds: gpus_seen.then(|| seconds(self.gpu_seconds)),
            gpu_hours: gpus_seen.then(|| hours(self.gpu_seconds)),
            node_seconds: seconds(self.node_seconds),
            node_hours: hours(self.node_seconds),
            wall_seconds: seconds(self.wall_seconds),
            wall_hours: hours(self.wall_seconds),
            mem_gib_hours: self.byte_seconds as f64 / BYTES_PER_GIB / SECONDS_PER_HOUR,
            wait_seconds,
            wait_hours: wait_seconds as f64 / SECONDS_PER_HOUR,
        }
    }
}

const SECONDS_PER_HOUR: f64 = 3600.0;
const BYTES_PER_GIB: f64 = (1_u64 << 30) as f64;

impl Serialize for Group {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// A group lies flat among a row's figures, so what is no name of a group is passed over.
impl<'de> Deserialize<'de> for Group {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Flat;
        impl<'de> Visitor<'de> for Flat {
            type Value = Group;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a row of usage")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Group, A::Error> {
                let mut values = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    match name.parse::<GroupBy>() {
                        Ok(by) => values.push((by.name(), map.next_value()?)),
                        Err(_) => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(Group(values))
            }
        }
        deserializer.deserialize_map(Flat)
    }
}
