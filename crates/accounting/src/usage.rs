//! Usage: what runs held, times how long, cut at the ends of a period.
//!
//! A running job counts up to `now`. Suspended time counts, because the nodes are held all the while; Slurm's sreport
//! takes it off the CPUs only. A run that never got a node holds nothing.
//!
//! By node, what a run held is split over its nodes as evenly as whole units allow, since nobody recorded how Slurm
//! did: three CPUs on two nodes are one on the first and two on the second. A run counts as a job, with its wall and
//! waiting time, on each of its nodes, so these add up to more than the totals. So does it in each hour, day, month or year in
//! which it ran, if these are asked for, and in each account above its own with `account_tree`.

use super::period::{Slice, Unit};
use super::{Accounts, Period};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use takt_slurm::{HeldRun, nodelist};

/// What usage can be grouped by.
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
    /// All of them, with the names that people and reports use.
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

    /// The unit of time, where it is one.
    pub fn unit(self) -> Option<Unit> {
        match self {
            Self::Hour => Some(Unit::Hour),
            Self::Day => Some(Unit::Day),
            Self::Month => Some(Unit::Month),
            Self::Year => Some(Unit::Year),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, by)| *by == self)
            .map_or("", |(name, _)| name)
    }
}

/// A word that usage cannot be grouped by.
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
    /// Billing TRES × seconds: by Slurm's own rates.
    #[serde(default)]
    pub billing_seconds: u64,
    /// Billing TRES × hours.
    #[serde(default)]
    pub billing_hours: f64,
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
    /// Lists of nodes that were expanded: the same few come again and again.
    nodes: HashMap<String, Arc<[String]>>,
    /// The hours, days, … that are asked for; else the period as one.
    slices: Vec<Slice>,
    /// Which account is above which.
    accounts: Accounts,
    /// The paths of an account and of those above it: `physics`, `physics/optics`.
    paths: HashMap<String, Arc<[String]>>,
}

/// What of a group is not the run's own.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    slice: usize,
    path: Option<&'a str>,
    node: Option<&'a str>,
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
            nodes: HashMap::new(),
            slices: by
                .iter()
                .find_map(|by| by.unit())
                .map_or_else(Vec::new, |unit| period.slices(unit)),
            accounts: Accounts::default(),
            paths: HashMap::new(),
        }
    }

    /// With accounts that are below others.
    pub fn with_accounts(self, accounts: Accounts) -> Self {
        Self { accounts, ..self }
    }

    /// Adds what a run did in the period, if anything.
    pub fn add(&mut self, run: &HeldRun<'_>) {
        let Some(part) = self.part(run, self.from, self.to) else {
            return;
        };
        self.totals.add(&part, run.into());
        if self.slices.is_empty() {
            return self.add_to_accounts(run, 0, &part);
        }
        // Nothing of it lies before its submission or its start, whichever is first, nor after its end.
        let first = run.start.map_or(run.submit, |start| start.min(run.submit));
        let mut slice = self
            .slices
            .partition_point(|slice| slice.from <= first)
            .saturating_sub(1);
        while let Some(&Slice { from, to, .. }) = self.slices.get(slice)
            && run.end.unwrap_or(self.now).max(run.submit) >= from
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
                // A list that cannot be expanded is a group of its own: better one odd name than a share charged to
                // nobody.
                let nodes: Arc<[String]> = nodelist::expand(list)
                    .unwrap_or_else(|_| vec![list.to_owned()])
                    .into();
                self.nodes.insert(list.to_owned(), nodes.clone());
                nodes
            }
        };
        for (position, node) in nodes.iter().enumerate() {
            self.add_to_group(
                run,
                Place {
                    node: Some(node),
                    ..place
                },
                part,
                Held::from(run).share(position, nodes.len()),
            );
        }
    }

    /// The report of what was added.
    pub fn report(self, cluster: &str) -> UsageReport {
        let mut rows: Vec<Row> = self
            .index
            .iter()
            .map(|(key, &group)| Row {
                group: group_of(&self.by, key),
                figures: self.groups[group].figures(),
            })
            .collect();
        // The hour that comes twice has two names, which say by their offsets which is which but do not sort.
        let slices: HashMap<&str, usize> = self
            .slices
            .iter()
            .enumerate()
            .map(|(at, slice)| (slice.name.as_str(), at))
            .collect();
        let time = self.by.iter().position(|by| by.unit().is_some());
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

    /// What of the run lies in `[from, to)`; `None` if nothing does.
    fn part(&self, run: &HeldRun<'_>, from: i64, to: i64) -> Option<Part> {
        let within = |instant: i64| from <= instant && instant < to;
        let mut part = Part {
            submitted: within(run.submit),
            ..Part::default()
        };
        part.ended = run.end.is_some_and(within);
        if let Some(start) = run.start {
            part.started = within(start);
            part.waited = start.saturating_sub(run.submit);
            part.running = start < to && run.end.is_none_or(|end| end > from);
            let until = run.end.unwrap_or(self.now).min(to);
            part.seconds = u64::try_from(until.saturating_sub(start.max(from))).unwrap_or(0);
        }
        (part.submitted || part.started || part.ended || part.running).then_some(part)
    }

    fn add_to_group(&mut self, run: &HeldRun<'_>, place: Place<'_>, part: &Part, held: Held) {
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

/// The account and those above it, from the top, each as the way to it.
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
    let values =
        key.split_inclusive(|&byte| byte >= NO_VALUE)
            .map(|value| match value.split_last() {
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
    billing: Option<u64>,
}

impl From<&HeldRun<'_>> for Held {
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

impl Held {
    /// The share of the node at `position` of `count`. Units stay whole and the shares add up; that they do not depend
    /// on time lets a run be cut anywhere.
    fn share(self, position: usize, count: usize) -> Self {
        let (position, count) = (position as u128, count as u128);
        let until = |amount: u64, position: u128| u128::from(amount) * position / count;
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
    billing_seconds: u128,
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
            self.billing_seconds += times(held.billing);
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

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use jiff::tz::TimeZone;
    use proptest::prelude::*;

    const HOUR: i64 = 3600;

    fn now() -> i64 {
        "2026-11-15T12:00:00Z"
            .parse::<Timestamp>()
            .unwrap()
            .as_second()
    }

    fn days(from: &str, to: &str) -> Period {
        let zone = TimeZone::get("Europe/Oslo").unwrap();
        Period::days(from, to, &zone, Timestamp::from_second(now()).unwrap()).unwrap()
    }

    fn october() -> Period {
        days("2026-10-01", "2026-11-01")
    }

    fn run(start: i64, end: i64) -> HeldRun<'static> {
        HeldRun {
            submit: start - 60,
            start: Some(start),
            end: Some(end),
            nodes: Some(1),
            cpus: Some(8),
            gpus: Some(2),
            mem_bytes: Some(4 << 30),
            user: "ann",
            account: "lab",
            partition: "gpu",
            state: "COMPLETED",
            ..HeldRun::default()
        }
    }

    fn totals(runs: &[HeldRun<'_>], period: &Period) -> Figures {
        usage(runs.iter().copied(), "c", period, &[], now()).totals
    }

    #[test]
    fn a_run_is_cut_at_the_ends_of_the_period() {
        let (from, to) = (october().from(), october().to());
        for (start, end, hours, started, ended, running) in [
            (from, from + HOUR, 1, 1, 1, 1),
            (from - HOUR, from + HOUR, 1, 0, 1, 1),
            (to - HOUR, to + HOUR, 1, 1, 0, 1),
            (from - HOUR, to + HOUR, 745, 0, 0, 1),
            // Half-open: what ends with the beginning held nothing in it, though it ended in it.
            (from - HOUR, from, 0, 0, 1, 0),
            (to, to + HOUR, 0, 0, 0, 0),
            (from + 5, from + 5, 0, 1, 1, 1),
        ] {
            let figures = totals(&[run(start, end)], &october());
            let counts = (
                figures.jobs_started,
                figures.jobs_ended,
                figures.jobs_running,
            );
            assert_eq!(counts, (started, ended, running), "{start} {end}");
            assert_eq!(figures.wall_seconds, hours * 3600);
            assert_eq!(figures.cpu_seconds, hours * 8 * 3600);
            assert_eq!(figures.gpu_seconds, Some(hours * 2 * 3600));
            assert_eq!(figures.node_hours, hours as f64);
            assert_eq!(figures.mem_gib_hours, (hours * 4) as f64);
            assert_eq!(figures.wait_seconds, 60 * started.cast_signed());
        }
    }

    #[test]
    fn a_running_job_counts_up_to_now() {
        let period = days("2026-11-01", "2026-12-01");
        let running = HeldRun {
            end: None,
            ..run(now() - HOUR, 0)
        };
        let figures = totals(&[running], &period);
        assert_eq!(
            (
                figures.wall_seconds,
                figures.jobs_running,
                figures.jobs_ended
            ),
            (3600, 1, 0)
        );
        // In a month that is over it counts to the month's end.
        let old = HeldRun {
            end: None,
            ..run(october().from(), 0)
        };
        assert_eq!(totals(&[old], &october()).wall_hours, 745.0);
    }

    #[test]
    fn a_run_that_never_got_a_node_holds_nothing() {
        let from = october().from();
        let cancelled = HeldRun {
            start: None,
            gpus: None,
            ..run(from, from + HOUR)
        };
        let pending = HeldRun {
            end: None,
            ..cancelled
        };
        let figures = totals(
            &[
                HeldRun {
                    submit: from,
                    ..cancelled
                },
                HeldRun {
                    submit: from,
                    ..pending
                },
            ],
            &october(),
        );
        let expected = Figures {
            jobs_submitted: 2,
            jobs_ended: 1,
            gpu_seconds: Some(0),
            gpu_hours: Some(0.0),
            ..Figures::default()
        };
        assert_eq!(figures, expected);
        // One that waits all the time neither begins nor ends anything in it.
        assert!(
            usage([pending], "c", &october(), &[GroupBy::User], now())
                .rows
                .is_empty()
        );
    }

    #[test]
    fn gpus_are_unknown_only_where_nobody_saw_any() {
        let from = october().from();
        let unseen = HeldRun {
            gpus: None,
            user: "bob",
            ..run(from, from + HOUR)
        };
        let report = usage(
            [unseen, run(from, from + HOUR), unseen],
            "c",
            &october(),
            &[GroupBy::User],
            now(),
        );
        assert_eq!(
            (report.totals.gpu_seconds, report.totals.jobs_gpu_unknown),
            (Some(7200), 2)
        );
        let bob = &report.rows[1].figures;
        assert_eq!(
            (
                bob.gpu_seconds,
                bob.gpu_hours,
                bob.jobs_gpu_unknown,
                bob.cpu_hours
            ),
            (None, None, 2, 16.0)
        );
    }

    #[test]
    fn by_node_whole_units_are_shared_out() {
        let from = october().from();
        let two = HeldRun {
            nodes: Some(2),
            cpus: Some(3),
            gpus: Some(4),
            node_list: Some("g[1-2]"),
            ..run(from, from + HOUR)
        };
        let none = HeldRun {
            start: None,
            end: None,
            submit: from,
            node_list: None,
            ..two
        };
        let odd = HeldRun {
            node_list: Some("g[1-"),
            nodes: Some(1),
            cpus: Some(1),
            ..two
        };
        let report = usage([two, none, odd], "c", &october(), &[GroupBy::Node], now());
        let rows: Vec<_> = report
            .rows
            .iter()
            .map(|row| {
                (
                    row.group.0[0].1.as_deref(),
                    row.figures.cpu_hours,
                    row.figures.gpu_hours,
                    row.figures.jobs_running,
                )
            })
            .collect();
        let expected = [
            (Some("g[1-"), 1.0, Some(4.0), 1),
            (Some("g2"), 2.0, Some(2.0), 1),
            (Some("g1"), 1.0, Some(2.0), 1),
            (None, 0.0, Some(0.0), 0),
        ];
        assert_eq!(rows, expected);
    }

    /// 25 October 2026 in Oslo: 02:00 to 03:00 comes twice.
    #[test]
    fn by_hour_and_day_over_a_change_of_clocks() {
        let day = days("2026-10-24", "2026-10-27");
        let at = |text: &str| text.parse::<Timestamp>().unwrap().as_second();
        let night = run(
            at("2026-10-25T01:30:00+02:00"),
            at("2026-10-25T03:30:00+01:00"),
        );
        let by = |by| {
            let report = usage([night], "c", &day, &[by, GroupBy::User], now());
            let row = |row: &Row| (row.group.0[0].1.clone().unwrap(), row.figures.wall_seconds);
            report.rows.iter().map(row).collect::<Vec<_>>()
        };
        assert_eq!(
            by(GroupBy::Hour),
            [
                ("2026-10-25T01:00+02:00".to_owned(), 1800),
                ("2026-10-25T02:00+02:00".to_owned(), 3600),
                ("2026-10-25T02:00+01:00".to_owned(), 3600),
                ("2026-10-25T03:00+01:00".to_owned(), 1800)
            ]
        );
        assert_eq!(by(GroupBy::Day), [("2026-10-25".to_owned(), 10_800)]);
        assert_eq!(by(GroupBy::Month), [("2026-10".to_owned(), 10_800)]);
        assert_eq!(by(GroupBy::Year), [("2026".to_owned(), 10_800)]);
    }

    #[test]
    fn an_account_holds_what_those_below_it_hold() {
        let from = october().from();
        let of = |account| HeldRun {
            account,
            ..run(from, from + HOUR)
        };
        let parents = [
            ("optics", "physics"),
            ("laser", "optics"),
            ("physics", "root"),
            ("odd", "even"),
            ("even", "odd"),
        ];
        let parents = parents
            .map(|(account, parent)| (account.to_owned(), parent.to_owned()))
            .into();
        let period = october();
        let mut usage = Usage::new(&period, &[GroupBy::AccountTree], now())
            .with_accounts(Accounts::new(parents));
        for account in ["physics", "laser", "laser", "odd", "unknown"] {
            usage.add(&of(account));
        }
        let rows = usage.report("c").rows;
        let found: Vec<_> = rows
            .iter()
            .map(|row| (row.group.0[0].1.as_deref().unwrap(), row.figures.wall_hours))
            .collect();
        assert_eq!(
            found,
            [
                ("physics", 3.0),
                ("physics/optics", 2.0),
                ("physics/optics/laser", 2.0),
                ("even", 1.0),
                ("even/odd", 1.0),
                ("unknown", 1.0)
            ]
        );
    }

    #[test]
    fn a_report_is_flat_json_that_can_be_read_back() {
        let from = october().from();
        let cpu_only = HeldRun {
            gpus: Some(0),
            ..run(from, from + 1800)
        };
        let by = [GroupBy::User, GroupBy::GpuModel];
        let report = usage(
            [
                cpu_only,
                HeldRun {
                    gpu_model: Some("a100"),
                    ..run(from, from + HOUR)
                },
            ],
            "c",
            &october(),
            &by,
            now(),
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["from"], "2026-10-01T00:00:00+02:00");
        assert_eq!(json["to"], "2026-11-01T00:00:00+01:00");
        assert_eq!(json["timezone"], "Europe/Oslo");
        assert_eq!(json["totals"]["cpu_seconds"], 8 * 5400);
        assert_eq!(json["rows"][0]["user"], "ann");
        assert_eq!(json["rows"][0]["gpu_model"], "a100");
        assert_eq!(json["rows"][0]["gpu_hours"], 2.0);
        assert!(json["rows"][1]["gpu_model"].is_null());
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<UsageReport>(&text).unwrap(), report);
        assert!(
            text.contains(r#""rows":[{"user":"ann","gpu_model":"a100","jobs_submitted":0,"#),
            "{text}"
        );
    }

    #[test]
    fn groups_have_the_names_of_the_columns() {
        for (name, by) in GroupBy::ALL {
            assert_eq!(name.parse(), Ok(*by));
            assert_eq!(by.name(), *name);
        }
        assert_eq!("gpu".parse::<GroupBy>(), Err(UnknownGroup("gpu".into())));
    }

    /// Runs around October, a second of which is as good as an hour.
    fn any_run() -> impl Strategy<Value = HeldRun<'static>> {
        let from = october().from();
        let times = (
            from - 900_000..from + 3_600_000,
            0..500_000_i64,
            0..2_000_000_i64,
            0..10_u8,
        );
        let held = (
            0..5_u64,
            0..300_u64,
            proptest::option::of(0..9_u64),
            proptest::option::of(0..1_u64 << 40),
        );
        let words = (0..4_usize, 0..3_usize, 0..3_usize);
        (times, held, words).prop_map(
            |((submit, wait, length, fate), (nodes, cpus, gpus, mem_bytes), (a, b, c))| {
                let start = Some(submit + wait).filter(|_| fate > 0);
                HeldRun {
                    submit,
                    start,
                    end: Some(submit + wait + length).filter(|_| fate != 1),
                    nodes: Some(nodes),
                    cpus: Some(cpus),
                    gpus,
                    mem_bytes,
                    billing: mem_bytes.map(|bytes| bytes >> 30),
                    user: ["ann", "bob", "", "carol"][a],
                    account: ["lab-a", "lab-b", "lab-a|x"][b],
                    partition: "gpu",
                    state: ["COMPLETED", "FAILED", "RUNNING"][c],
                    qos: [None, Some("normal"), Some("")][b],
                    gpu_model: [None, Some("a100"), Some("l40s")][c],
                    node_list: [None, Some("g1"), Some("g[1-3]"), Some("n[01-16],g1")][a],
                    reservation: None,
                }
            },
        )
    }

    fn exact(figures: &Figures) -> [u128; 4] {
        let gpu_seconds = figures.gpu_seconds.unwrap_or(0);
        [
            figures.cpu_seconds,
            gpu_seconds,
            figures.node_seconds,
            figures.wall_seconds,
        ]
        .map(u128::from)
    }

    fn sum(rows: &[Row]) -> [u128; 4] {
        rows.iter().fold([0; 4], |sums, row| {
            std::array::from_fn(|i| sums[i] + exact(&row.figures)[i])
        })
    }

    proptest! {
        /// The period in two parts, wherever it is cut, and the period in one.
        #[test]
        fn cut_anywhere_is_uncut(runs in proptest::collection::vec(any_run(), 0..20), cut in 2..31_u8) {
            let middle = format!("2026-10-{cut:02}");
            for by in [GroupBy::User, GroupBy::Node] {
                let report = |from: &str, to: &str| usage(runs.iter().copied(), "c", &days(from, to), &[by], now());
                let parts = [report("2026-10-01", &middle), report(&middle, "2026-11-01")];
                let whole = report("2026-10-01", "2026-11-01");
                let of = |report: &UsageReport, group: &Group| -> [u128; 4] {
                    report.rows.iter().find(|row| row.group == *group).map_or([0; 4], |row| exact(&row.figures))
                };
                for row in &whole.rows {
                    let (a, b) = (of(&parts[0], &row.group), of(&parts[1], &row.group));
                    prop_assert_eq!(std::array::from_fn(|i| a[i] + b[i]), exact(&row.figures));
                }
                for count in [|f: &Figures| f.jobs_submitted, |f: &Figures| f.jobs_started, |f: &Figures| f.jobs_ended] {
                    prop_assert_eq!(parts.iter().map(|part| count(&part.totals)).sum::<u64>(), count(&whole.totals));
                }
                let hours: f64 = parts.iter().map(|part| part.totals.mem_gib_hours).sum();
                prop_assert!((hours - whole.totals.mem_gib_hours).abs() <= 1e-12 * hours);
            }
        }

        /// One run cut in two at any instant holds what it held.
        #[test]
        fn a_run_cut_anywhere_is_the_run(run in any_run(), share in 0.0..1.0_f64) {
            let (Some(start), Some(end)) = (run.start, run.end) else { return Ok(()) };
            let cut = start + ((end - start) as f64 * share) as i64;
            let halves = [HeldRun { end: Some(cut), ..run }, HeldRun { start: Some(cut), ..run }];
            prop_assert_eq!(exact(&totals(&halves, &october())), exact(&totals(&[run], &october())));
        }

        #[test]
        fn groups_add_up_to_the_totals(runs in proptest::collection::vec(any_run(), 0..30)) {
            for (name, by) in GroupBy::ALL {
                let report = usage(runs.iter().copied(), "c", &october(), &[*by, GroupBy::State], now());
                let (groups, totals) = (sum(&report.rows), exact(&report.totals));
                prop_assert_eq!(&groups[..3], &totals[..3], "{}", name);
                if by.unit().is_some() {
                    let count = |of: fn(&Figures) -> u64| report.rows.iter().map(|row| of(&row.figures)).sum::<u64>();
                    prop_assert_eq!(count(|f| f.jobs_submitted), report.totals.jobs_submitted);
                    prop_assert_eq!(count(|f| f.jobs_started), report.totals.jobs_started);
                    prop_assert_eq!(count(|f| f.jobs_ended), report.totals.jobs_ended);
                }
                if *by != GroupBy::Node && by.unit().is_none() {
                    prop_assert_eq!(groups[3], totals[3]);
                    let count = |of: fn(&Figures) -> u64| report.rows.iter().map(|row| of(&row.figures)).sum::<u64>();
                    prop_assert_eq!(count(|f| f.jobs_running), report.totals.jobs_running);
                    prop_assert_eq!(count(|f| f.jobs_submitted), report.totals.jobs_submitted);
                    let waited: i64 = report.rows.iter().map(|row| row.figures.wait_seconds).sum();
                    prop_assert_eq!(waited, report.totals.wait_seconds);
                }
            }
        }

        #[test]
        fn order_does_not_matter(
            (runs, shuffled) in proptest::collection::vec(any_run(), 0..30)
                .prop_flat_map(|runs| (Just(runs.clone()), Just(runs).prop_shuffle()))
        ) {
            let by = [GroupBy::User, GroupBy::Qos];
            let report = |runs: &[HeldRun<'static>]| usage(runs.iter().copied(), "c", &october(), &by, now());
            prop_assert_eq!(report(&runs), report(&shuffled));
        }
    }
}
