//! Timeline of the cluster: states of nodes, and alerts that began and ended.

use super::period::the_cluster;
use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use takt_access::{Need, Owner, Viewer};
use takt_store::{Database, Records};

/// Maximum number of transitions of alerts that are read.
const MOST_TRANSITIONS: usize = 20_000;

/// Asks for events, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventsQuestion {
    /// Begin, UTC seconds.
    pub from: i64,
    /// End (exclusive), UTC seconds.
    pub to: i64,
    /// Only events of this node.
    pub node: Option<String>,
    /// Only events of this GPU.
    pub uuid: Option<String>,
    /// Only events of this kind: `node`, `alert` or `resolved`.
    pub kind: Option<String>,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterEvent {
    /// Time, UTC seconds.
    pub at: i64,
    /// `node`: Slurm's state of a node changed; `alert`: an alert fires; `resolved`: an alert ended.
    pub kind: String,
    /// Name of the node; empty for the cluster.
    pub node: String,
    /// UUID of the GPU, if the event names one.
    pub uuid: Option<String>,
    /// State of the node, or name of the alert.
    pub name: String,
    /// Severity of the alert; empty for nodes.
    pub severity: String,
    /// Reason of the state, or labels of the alert.
    pub text: String,
    /// Fingerprint of the alert.
    pub fingerprint: Option<String>,
    /// User and job that the alert names.
    pub user: Option<String>,
}

/// Labels that an event shows elsewhere, or that say nothing to people.
const SHOWN_ELSEWHERE: [&str; 9] = [
    "alertname",
    "severity",
    "node",
    "cluster",
    "uuid",
    "instance",
    "job",
    "scope",
    "__name__",
];

/// Labels that name a job or its owner.
const OF_JOB: [&str; 5] = ["user", "account", "jobid", "job_id", "command"];

impl Question for EventsQuestion {
    const PATH: &'static str = "/api/takt/v1/events";
    const NEED: Need = Need::SignedIn;
    type Answer = Vec<ClusterEvent>;
    type Data = Database;

    fn answer(
        &self,
        viewer: &Viewer,
        database: &Database,
        config: &AnswerConfig,
    ) -> Result<Vec<ClusterEvent>, AnswerError> {
        let records = Records::of(database);
        let asked = self
            .cluster
            .as_deref()
            .or(config.accounting.cluster.as_deref());
        let cluster = the_cluster(&records, asked)?;
        let mut events: Vec<ClusterEvent> = records
            .node_events(&cluster.cluster, self.from)?
            .into_iter()
            .filter(|event| !event.node.is_empty())
            .map(|event| ClusterEvent {
                at: event.from,
                kind: "node".to_owned(),
                node: event.node,
                uuid: None,
                name: event.state,
                severity: String::new(),
                text: event.reason.unwrap_or_default(),
                fingerprint: None,
                user: None,
            })
            .collect();
        for transition in records.alert_log(self.from, self.to, MOST_TRANSITIONS)? {
            let [
                _,
                name,
                severity,
                node,
                fingerprint,
                labels,
                before,
                after,
                _,
            ] = transition.texts;
            let kind = match (before.as_str(), after.as_str()) {
                ("firing" | "unknown", "inactive") => "resolved",
                (before, "firing") if before != "unknown" => "alert",
                _ => continue,
            };
            if severity == "none" {
                continue;
            }
            let mut labels: BTreeMap<String, String> =
                serde_json::from_str(&labels).unwrap_or_default();
            let label = |name: &str| labels.get(name).map_or("", String::as_str);
            let owner = Owner::new(label("user"), label("account"));
            let is_hidden = !owner.user.is_empty() && !viewer.sees_job(owner);
            if is_hidden {
                labels.retain(|name, _| !OF_JOB.contains(&name.as_str()));
            }
            let text = labels
                .iter()
                .filter(|(name, _)| !SHOWN_ELSEWHERE.contains(&name.as_str()))
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
                .join(" ");
            events.push(ClusterEvent {
                at: transition.at_ms / 1000,
                kind: kind.to_owned(),
                node,
                uuid: labels.get("uuid").cloned(),
                name,
                severity,
                text,
                fingerprint: Some(fingerprint),
                user: labels.get("user").cloned(),
            });
        }
        let is_wanted = |wanted: &Option<String>, value: Option<&str>| {
            wanted.is_none() || wanted.as_deref() == value
        };
        events.retain(|event| {
            (self.from..self.to).contains(&event.at)
                && is_wanted(&self.node, Some(&event.node))
                && is_wanted(&self.uuid, event.uuid.as_deref())
                && is_wanted(&self.kind, Some(&event.kind))
        });
        events.sort_by_key(|event| std::cmp::Reverse(event.at));
        Ok(events)
    }
}
