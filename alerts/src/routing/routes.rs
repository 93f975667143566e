//! The route tree of `alertmanager.yml`.

use super::config::{conditions, label_name};
use super::matcher::Matchers;
use crate::yaml::{Mistake, Node};
use std::collections::BTreeSet;
use std::time::Duration;
use takt_model::Labels;

/// Labels by which a route groups alerts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupBy {
    /// `...`: each alert is a group of its own.
    All,
    /// These.
    Labels(BTreeSet<String>),
}

/// One route with its inherited settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// The key: the matchers of all routes down to this one, as in group keys.
    pub key: String,
    /// The receiver's name.
    pub receiver: String,
    /// How alerts are grouped.
    pub group_by: GroupBy,
    /// Conditions on an alert.
    pub matchers: Matchers,
    /// Whether later routes are tried as well.
    pub is_continued: bool,
    /// How long a new group waits for further alerts.
    pub group_wait: Duration,
    /// Time between two messages about changes of a group.
    pub group_interval: Duration,
    /// Time until an unchanged group is sent again.
    pub repeat_interval: Duration,
    /// Time intervals without messages.
    pub mute_time_intervals: Vec<String>,
    /// The only time intervals with messages, if there are any.
    pub active_time_intervals: Vec<String>,
    /// Labels that messages carry.
    pub labels: Labels,
    /// The routes below, as positions in the tree.
    children: Vec<usize>,
}

/// All routes, each behind the one it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteTree(Vec<Route>);

impl RouteTree {
    /// The routes that an alert takes, as positions.
    pub fn matching(&self, labels: &Labels) -> Vec<usize> {
        let mut found = Vec::new();
        self.descend(0, labels, &mut found);
        found
    }

    /// One route.
    pub fn get(&self, at: usize) -> &Route {
        &self.0[at]
    }

    /// All routes, the root first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Route> {
        self.0.iter()
    }

    /// A route that matches is taken itself only if none below it is.
    fn descend(&self, at: usize, labels: &Labels, found: &mut Vec<usize>) -> bool {
        if !self.0[at].matchers.accept(labels) {
            return false;
        }

        let before = found.len();
        for child in &self.0[at].children {
            // As in Alertmanager, the first child that takes the alert is the last, unless it says `continue`.
            if self.descend(*child, labels, found) && !self.0[*child].is_continued {
                break;
            }
        }
        if found.len() == before {
            found.push(at);
        }
        true
    }
}

const ROUTE_KEYS: &[&str] = &[
    "receiver",
    "group_by",
    "matchers",
    "match",
    "match_re",
    "continue",
    "routes",
    "group_wait",
    "group_interval",
    "repeat_interval",
    "mute_time_intervals",
    "active_time_intervals",
    "labels",
];

/// Names that routes may refer to.
pub(super) struct RouteNames<'a> {
    pub(super) receivers: BTreeSet<&'a str>,
    pub(super) intervals: BTreeSet<&'a str>,
}

pub(super) fn read_routes(node: &Node, names: &RouteNames<'_>) -> Result<RouteTree, Mistake> {
    let fields = node.fields(ROUTE_KEYS)?;
    let inside = |mistake: Mistake| mistake.within("the root route");
    if fields
        .require("receiver")
        .and_then(Node::text)
        .map_err(inside)?
        .is_empty()
    {
        return Err(inside(node.mistake("`receiver` is missing")));
    }

    // A key without a value, or with an empty list, is as good as no key.
    let said = |key: &str| {
        let node = fields.get(key);
        node.filter(|node| match key {
            "continue" => node.boolean() != Ok(false),
            "match" | "match_re" => {
                node.pairs().is_err() || node.pairs().is_ok_and(|mut all| all.next().is_some())
            }
            _ => node.list() != Ok(&[]),
        })
    };

    let forbidden = [
        "matchers",
        "match",
        "match_re",
        "continue",
        "mute_time_intervals",
        "active_time_intervals",
    ];
    if let Some((key, at)) = forbidden
        .iter()
        .find_map(|key| said(key).map(|at| (key, at)))
    {
        return Err(inside(at.mistake(format!(
            "`{key}` has no place here: every alert passes it"
        ))));
    }

    // Alertmanager's defaults.
    let defaults = Route {
        key: String::new(),
        receiver: String::new(),
        group_by: GroupBy::Labels(BTreeSet::new()),
        matchers: Matchers::default(),
        is_continued: false,
        group_wait: Duration::from_secs(30),
        group_interval: Duration::from_secs(5 * 60),
        repeat_interval: Duration::from_secs(4 * 3600),
        mute_time_intervals: Vec::new(),
        active_time_intervals: Vec::new(),
        labels: Labels::new(),
        children: Vec::new(),
    };

    let mut tree = Vec::new();
    add_route(node, &defaults, names, &mut tree)?;
    Ok(RouteTree(tree))
}

fn add_route(
    node: &Node,
    parent: &Route,
    names: &RouteNames<'_>,
    tree: &mut Vec<Route>,
) -> Result<usize, Mistake> {
    let fields = node.fields(ROUTE_KEYS)?;
    let matchers = conditions(&fields, ["match", "match_re", "matchers"])?;

    let mut labels = parent.labels.clone();
    for (name, value) in fields.or_default("labels", Node::text_pairs)? {
        labels.set(&name, &value);
    }
    // The key is Alertmanager's: group keys of both have to agree.
    let separator = if tree.is_empty() { "" } else { "/" };
    let route = Route {
        key: format!("{}{separator}{matchers}", parent.key),
        receiver: fields
            // As in Alertmanager, an empty name is inherited.
            .optional("receiver", |node| match node.text()? {
                "" => Ok(None),
                _ => known(node, &names.receivers, "receiver").map(Some),
            })?
            .flatten()
            .unwrap_or_else(|| parent.receiver.clone()),
        group_by: fields
            .optional("group_by", group_by)?
            .unwrap_or_else(|| parent.group_by.clone()),
        matchers,
        is_continued: fields.or_default("continue", Node::boolean)?,
        group_wait: fields
            .optional("group_wait", Node::duration)?
            .unwrap_or(parent.group_wait),
        group_interval: fields
            .optional("group_interval", positive)?
            .unwrap_or(parent.group_interval),
        repeat_interval: fields
            .optional("repeat_interval", positive)?
            .unwrap_or(parent.repeat_interval),
        mute_time_intervals: fields
            // Intervals are not inherited: a route below sends at all times unless it says otherwise.
            .or_default("mute_time_intervals", |node| intervals(node, names))?,
        active_time_intervals: fields
            .or_default("active_time_intervals", |node| intervals(node, names))?,
        labels,
        children: Vec::new(),
    };

    // A parent comes before its children, which are then noted at its position.

    let at = tree.len();
    tree.push(route.clone());
    for child in fields.or_default("routes", Node::list)? {
        let child = add_route(child, &route, names, tree)?;
        tree[at].children.push(child);
    }
    Ok(at)
}

pub(super) fn positive(node: &Node) -> Result<Duration, Mistake> {
    match node.duration()? {
        Duration::ZERO => Err(node.mistake("has to be more than zero")),
        duration => Ok(duration),
    }
}

pub(super) fn known(node: &Node, names: &BTreeSet<&str>, what: &str) -> Result<String, Mistake> {
    let name = node.text()?;
    if !names.contains(name) {
        return Err(node.mistake(format!("there is no {what} `{name}`")));
    }
    Ok(name.to_owned())
}

fn intervals(node: &Node, names: &RouteNames<'_>) -> Result<Vec<String>, Mistake> {
    node.list()?
        .iter()
        .map(|item| known(item, &names.intervals, "time interval"))
        .collect()
}

/// The labels to group by. Without any, all alerts of the route are one group.
fn group_by(node: &Node) -> Result<GroupBy, Mistake> {
    let (all, labels): (Vec<String>, Vec<String>) = node
        .list()?
        .iter()
        .map(label_name)
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .partition(|name| name == "...");

    let different: BTreeSet<String> = labels.iter().cloned().collect();
    match (all.is_empty(), labels.is_empty()) {
        (false, true) => Ok(GroupBy::All),
        (false, false) => Err(node.mistake("`...` stands for all labels and so stands alone")),
        _ if different.len() < labels.len() => Err(node.mistake("a label is named twice")),
        _ => Ok(GroupBy::Labels(different)),
    }
}
