//! Usage: allocated amounts × run time, cut at the ends of a period.
//!
//! A running job counts until `now`. Suspended time counts, because the nodes stay allocated;
//! Slurm's sreport subtracts it, from CPUs only. A run that never started uses nothing.
//!
//! By node, an allocation is split as evenly as whole units allow, because Slurm's real split is
//! not recorded: of three CPUs on two nodes, the first gets one and the second two. A run counts as
//! a job, with its wall time and waiting time, on each of its nodes, so these add up to more than
//! the totals. The same applies to each hour, day, month or year in which the run was active, and
//! to each ancestor account with `account_tree`.

use super::period::{TimeSlice, Unit};
use super::{Accounts, Period};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use takt_jobs::{HeldRun, nodelist};
use takt_model::UnixTime;

/// Attribute by which usage is grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the columns of the same names")]
pub enum GroupBy {
    User,
    Account,
    AccountTree,
    Partition,
    Qos,
    Node,
    GpuModel,
    State,
    Hour,
    Day,
    Month,
    Year,
}

impl GroupBy {
    /// All attributes with their names in commands and reports.
    pub const ALL: &[(&str, Self)] = &[
        ("user", Self::User),
        ("account", Self::Account),
        ("account_tree", Self::AccountTree),
        ("partition", Self::Partition),
        ("qos", Self::Qos),
        ("node", Self::Node),
        ("gpu_model", Self::GpuModel),
        ("state", Self::State),
        ("hour", Self::Hour),
        ("day", Self::Day),
        ("month", Self::Month),
        ("year", Self::Year),
    ];

    /// Returns the unit of time, if the attribute is one.
    pub fn unit(self) -> Option<Unit> {
        match self {
            Self::Hour => Some(Unit::Hour),
            Self::Day => Some(Unit::Day),
            Self::Month => Some(Unit::Month),
            Self::Year => Some(Unit::Year),
            _ => None,
        }
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, by)| *by == self)
            .map_or("", |(name, _)| name)
    }
}

/// Usage cannot be grouped by this word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot group by '{0}' (expected some of user, account, account_tree, partition, qos, node, gpu_model, state, and one of hour, day, month, year)"
)]
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

/// Usage in a period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsageReport {
    /// Cluster name.
    pub cluster: String,
    /// First instant of the period, RFC 3339.
    pub from: String,
    /// First instant after the period, RFC 3339.
    pub to: String,
    /// Time zone of the period's days.
    pub timezone: String,
    /// Totals. Each run counts once.
    pub totals: Figures,
    /// One row per group, ordered by GPU time, then CPU time (descending), then name.
    pub rows: Vec<Row>,
}

/// Usage of one group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Group.
    #[serde(flatten)]
    pub group: Group,
    /// Usage.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Attribute values that the runs of a group share, in the requested order. `None` is unknown or
/// missing: an unrecorded QOS, the GPU model of a run without GPUs, the node of a pending run.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group(pub Vec<(&'static str, Option<String>)>);

/// Usage. Seconds are exact; hours are the nearest double to seconds / 3,600.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Runs that were submitted in the period.
    pub jobs_submitted: u64,
    /// Runs that started in the period.
    pub jobs_started: u64,
    /// Runs that ended in the period, or left the queue.
    pub jobs_ended: u64,
    /// Runs that held resources at some time of the period, whether they have ended since or not.
    pub jobs_running: u64,
    /// The part of `jobs_running` with an unknown number of GPUs.
    pub jobs_gpu_unknown: u64,
    /// CPUs × seconds.
    pub cpu_seconds: u64,
    /// CPUs × hours.
    pub cpu_hours: f64,
    /// GPUs × seconds of the runs with a known number of GPUs. `None` if no run has one.
    pub gpu_seconds: Option<u64>,
    /// GPUs × hours.
    pub gpu_hours: Option<f64>,
    /// Nodes × seconds. A shared node counts for each run on it.
    pub node_seconds: u64,
    /// Nodes × hours.
    pub node_hours: f64,
    /// Run time in seconds.
    pub wall_seconds: u64,
    /// Run time in hours.
    pub wall_hours: f64,
    /// Memory in GiB × hours.
    pub mem_gib_hours: f64,
    /// Billing TRES × seconds, by Slurm's own weights.
    #[serde(default)]
    pub billing_seconds: u64,
    /// Billing TRES × hours.
    #[serde(default)]
    pub billing_hours: f64,
    /// Start − submit of the runs that started in the period, in seconds. Clock changes can make it
    /// negative.
    pub wait_seconds: i64,
    /// The same in hours.
    pub wait_hours: f64,
}

/// Maximum number of rows of a report.
pub const MOST_ROWS: usize = 1_000_000;

/// Memory of a row until it is written, with its names.
const ROW_BYTES: usize = 700;

/// Memory of an hour, day, month or year.
const SLICE_BYTES: usize = 100;

/// Usage of a period while runs are added, in any order.
#[derive(Debug)]
pub struct Usage<'p> {
    period: &'p Period,
    from: UnixTime,
    to: UnixTime,
    now: UnixTime,
    by: Vec<GroupBy>,
    totals: Sums,
    groups: Vec<Sums>,
    /// Index of a group by its values. Each value ends with a byte that UTF-8 text cannot contain.
    index: HashMap<Vec<u8>, usize>,
    key: Vec<u8>,
    /// Expanded node lists: few different ones occur.
    nodes: HashMap<String, Arc<[String]>>,
    /// The requested hours, days, … or empty for the whole period.
    slices: Vec<TimeSlice>,
    /// Hierarchy of accounts.
    accounts: Accounts,
    /// Paths of an account and its ancestors: `physics`, `physics/optics`.
    paths: HashMap<String, Arc<[String]>>,
}

/// Attributes of a group that do not come from the run itself.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    slice: usize,
    path: Option<&'a str>,
    node: Option<&'a str>,
}

/// Returns the usage of many runs.
pub fn usage<'r>(
    runs: impl IntoIterator<Item = HeldRun<'r>>,
    cluster: &str,
    period: &Period,
    by: &[GroupBy],
    now: UnixTime,
) -> UsageReport {
    let mut usage = Usage::new(period, by, now);
    for run in runs {
        usage.add(&run);
    }
    usage.report(cluster)
}

impl<'p> Usage<'p> {
    /// Starts without runs. Running jobs count until `now`.
    pub fn new(period: &'p Period, by: &[GroupBy], now: UnixTime) -> Self {
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
            nodes: HashMap::new(),
            slices: by
                .iter()
                .find_map(|by| by.unit())
                .map_or_else(Vec::new, |unit| period.slices(unit)),
            accounts: Accounts::default(),
            paths: HashMap::new(),
        }
    }

    /// Sets the hierarchy of accounts.
    pub fn with_accounts(self, accounts: Accounts) -> Self {
        Self { accounts, ..self }
    }

    /// Returns whether the report would have more than [`MOST_ROWS`] rows. Later runs do not count then.
    pub fn is_too_large(&self) -> bool {
        self.groups.len() > MOST_ROWS
    }

    /// Returns how much memory the report takes, in bytes.
    pub fn bytes(&self) -> u64 {
        (self.groups.len() * ROW_BYTES + self.slices.len() * SLICE_BYTES) as u64
    }

    /// Adds the part of a run within the period.
    pub fn add(&mut self, run: &HeldRun<'_>) {
        let Some(part) = self.part(run, self.from, self.to) else {
            return;
        };
        self.totals.add(&part, run.into());
        if self.slices.is_empty() {
            return self.add_to_accounts(run, 0, &part);
        }

        // A run has no part before its submission or start, whichever is first, nor after its end.
        let first = run.start.map_or(run.submit, |start| start.min(run.submit));
        let mut slice = self
            .slices
            .partition_point(|slice| slice.from <= first)
            .saturating_sub(1);

        while let Some(&TimeSlice { from, to, .. }) = self.slices.get(slice)
            && run.end.unwrap_or(self.now).max(run.submit) >= from
            && !self.is_too_large()
        {
            if let Some(part) = self.part(run, from, to) {
                self.add_to_accounts(run, slice, &part);
            }
            slice += 1;
        }
    }

    fn add_to_accounts(&mut self, run: &HeldRun<'_>, slice: usize, part: &Part) {
        let place = Place {
            slice,
            path: None,
            node: None,
        };

        if !self.by.contains(&GroupBy::AccountTree) {
            return self.add_to_nodes(run, place, part);
        }

        // Many runs share few accounts, so their paths are formed once.
        let paths = match self.paths.get(run.account) {
            Some(paths) => paths.clone(),
            None => {
                let paths: Arc<[String]> = paths(run.account, &self.accounts).into();
                self.paths.insert(run.account.to_owned(), paths.clone());
                paths
            }
        };

        paths.iter().for_each(|path| {
            self.add_to_nodes(
                run,
                Place {
                    path: Some(path),
                    ..place
                },
                part,
            )
        });
    }

    fn add_to_nodes(&mut self, run: &HeldRun<'_>, place: Place<'_>, part: &Part) {
        let listed = run
            .node_list
            .filter(|list| !list.is_empty() && self.by.contains(&GroupBy::Node));

        let Some(list) = listed else {
            return self.add_to_group(run, place, part, run.into());
        };

        let nodes = match self.nodes.get(list) {
            Some(nodes) => nodes.clone(),
            None => {
                // A list that cannot be expanded becomes a group with its own name, so that its
                // usage is not lost.
                let nodes: Arc<[String]> = nodelist::expand(list)
                    .unwrap_or_else(|_| vec![list.to_owned()])
                    .into();
                self.nodes.insert(list.to_owned(), nodes.clone());
                nodes
            }
        };

        for (position, node) in nodes.iter().enumerate() {
            if self.is_too_large() {
                return;
            }
            self.add_to_group(
                run,
                Place {
                    node: Some(node),
                    ..place
                },
                part,
                HeldUnits::from(run).share(position, nodes.len()),
            );
        }
    }

    /// Returns the report.
    pub fn report(self, cluster: &str) -> UsageReport {
        let mut rows: Vec<Row> = self
            .index
            .iter()
            .map(|(key, &group)| Row {
                group: group_of(&self.by, key),
                figures: self.groups[group].figures(),
            })
            .collect();

        // The names of a repeated hour differ in their offsets, which do not sort.
        let slices: HashMap<&str, usize> = self
            .slices
            .iter()
            .enumerate()
            .map(|(at, slice)| (slice.name.as_str(), at))
            .collect();

        let time = self.by.iter().position(|by| by.unit().is_some());
        // Without a unit of time, all rows are equal here.
        let when = |row: &Row| slices.get(row.group.0.get(time?)?.1.as_deref()?).copied();

        rows.sort_unstable_by(|a, b| {
            let order = |row: &Row| {
                (
                    row.figures.gpu_seconds.unwrap_or(0),
                    row.figures.cpu_seconds,
                )
            };
            when(a)
                .cmp(&when(b))
                .then_with(|| order(b).cmp(&order(a)))
                .then_with(|| a.group.cmp(&b.group))
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

    /// Returns the part of the run within `[from, to)`. `None` if it is empty.
    fn part(&self, run: &HeldRun<'_>, from: UnixTime, to: UnixTime) -> Option<Part> {
        let within = |instant: UnixTime| from <= instant && instant < to;
        let mut part = Part {
            submitted: within(run.submit),
            ..Part::default()
        };
        part.ended = run.end.is_some_and(within);
        if let Some(start) = run.start {
            part.started = within(start);
            part.waited = start - run.submit;
            part.running = start < to && run.end.is_none_or(|end| end > from);
            let until = run.end.unwrap_or(self.now).min(to);
            part.seconds = until.since(start.max(from));
        }
        (part.submitted || part.started || part.ended || part.running).then_some(part)
    }

    fn add_to_group(&mut self, run: &HeldRun<'_>, place: Place<'_>, part: &Part, held: HeldUnits) {
        // Without attributes there are totals only.
        if self.by.is_empty() {
            return;
        }

        // The same buffer for each run, without a new allocation.
        self.key.clear();
        for by in &self.by {
            let value = match by {
                GroupBy::User => Some(run.user),
                GroupBy::Account => Some(run.account),
                GroupBy::Partition => Some(run.partition),
                GroupBy::Qos => run.qos,
                GroupBy::AccountTree => place.path,
                GroupBy::Node => place.node,
                GroupBy::Hour | GroupBy::Day | GroupBy::Month | GroupBy::Year => self
                    .slices
                    .get(place.slice)
                    .map(|slice| slice.name.as_str()),
                GroupBy::GpuModel => run.gpu_model,
                GroupBy::State => Some(run.state),
            };
            self.key
                .extend_from_slice(value.unwrap_or_default().as_bytes());
            self.key.push(if value.is_some() {
                VALUE_ENDS
            } else {
                NO_VALUE
            });
        }

        // Looked up first, so that only a new group copies the key.
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

/// Returns the paths of an account and its ancestors, from the top.
fn paths(account: &str, accounts: &Accounts) -> Vec<String> {
    let mut way = accounts.up(account);
    way.reverse();
    (1..=way.len())
        .map(|depth| way[..depth].join("/"))
        .collect()
}

const VALUE_ENDS: u8 = 0xff;
const NO_VALUE: u8 = 0xfe;

fn group_of(by: &[GroupBy], key: &[u8]) -> Group {
    // No byte of UTF-8 text is this large, so these are the ends of values.
    let values =
        key.split_inclusive(|&byte| byte >= NO_VALUE)
            .map(|value| match value.split_last() {
                Some((&VALUE_ENDS, text)) => Some(String::from_utf8_lossy(text).into_owned()),
                _ => None,
            });
    Group(by.iter().map(|by| by.name()).zip(values).collect())
}

/// Part of one run within the period.
#[derive(Debug, Default)]
struct Part {
    submitted: bool,
    started: bool,
    ended: bool,
    running: bool,
    /// Run time within the period, in seconds.
    seconds: u64,
    /// Seconds between submission and start.
    waited: i64,
}

/// Amounts that a run, or its share of a node, holds.
#[derive(Debug, Clone, Copy)]
struct HeldUnits {
    nodes: Option<u64>,
    cpus: Option<u64>,
    gpus: Option<u64>,
    mem_bytes: Option<u64>,
    billing: Option<u64>,
}

impl From<&HeldRun<'_>> for HeldUnits {
    fn from(run: &HeldRun<'_>) -> Self {
        let HeldRun {
            nodes,
            cpus,
            gpus,
            mem_bytes,
            billing,
            ..
        } = *run;

        Self {
            nodes,
            cpus,
            gpus,
            mem_bytes,
            billing,
        }
    }
}

impl HeldUnits {
    /// Returns the share of the node at `position` of `count`. Units stay whole and shares add up.
    /// They do not depend on time, so a run can be cut anywhere.
    fn share(self, position: usize, count: usize) -> Self {
        let position = position as u128;
        let count = count as u128;
        let until = |amount: u64, position: u128| u128::from(amount) * position / count;
        // A difference of two quotients, rounded down: such shares add up.
        let share = |amount: u64| {
            u64::try_from(until(amount, position + 1) - until(amount, position)).unwrap_or(0)
        };
        Self {
            nodes: self.nodes.map(share),
            cpus: self.cpus.map(share),
            gpus: self.gpus.map(share),
            mem_bytes: self.mem_bytes.map(share),
            billing: self.billing.map(share),
        }
    }
}

/// Exact sums that cannot overflow and do not depend on the order.
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
    billing_seconds: u128,
    wait_seconds: i128,
}

impl Sums {
    fn add(&mut self, part: &Part, held: HeldUnits) {
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
            self.billing_seconds += times(held.billing);
        }
    }

    fn figures(&self) -> Figures {
        let seconds = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
        let hours = |sum: u128| sum as f64 / SECONDS_PER_HOUR;
        // Without any run, the number of GPUs is known to be 0.
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
            billing_seconds: seconds(self.billing_seconds),
            billing_hours: hours(self.billing_seconds),
            wait_seconds,
            wait_hours: wait_seconds as f64 / SECONDS_PER_HOUR,
        }
    }
}

const SECONDS_PER_HOUR: f64 = 3600.0;
const BYTES_PER_GIB: f64 = (1_u64 << 30) as f64;

impl Serialize for Group {
    fn serialize<S>(&self, serializer: S) -> Result<S::Ok, S::Error>
    where
        S: Serializer,
    {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// The attributes are fields of the row itself, so other fields are ignored.
impl<'de> Deserialize<'de> for Group {
    fn deserialize<D>(deserializer: D) -> Result<Self, D::Error>
    where
        D: Deserializer<'de>,
    {
        struct Flat;
        impl<'de> Visitor<'de> for Flat {
            type Value = Group;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a row of usage")
            }

            fn visit_map<A>(self, mut map: A) -> Result<Group, A::Error>
            where
                A: MapAccess<'de>,
            {
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

#[cfg(test)]
mod tests;
