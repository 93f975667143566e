//! Timeline of the cluster: states of nodes, alerts that began and ended, and events of exporters.

use super::alerts::{NO_FAULT, ShownAlert, shown_labels, shown_name};
use super::near::did_you_mean;
use super::period::the_cluster;
use super::{AnswerConfig, AnswerError, Question};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use takt_access::{Need, Viewer};
use takt_model::{Matcher, UnixTime};
use takt_store::{EventRecord, Records, Store, StoreError};

/// Maximum number of transitions of alerts that are read.
const MOST_TRANSITIONS: usize = 20_000;

/// Maximum number of events of exporters that are read.
const MOST_EVENTS: usize = 20_000;

/// Asks for events, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventsQuestion {
    /// Begin.
    #[serde(deserialize_with = "crate::period::read_instant")]
    pub from: UnixTime,
    /// End (exclusive).
    #[serde(deserialize_with = "crate::period::read_instant")]
    pub to: UnixTime,
    /// Only events of this node.
    pub node: Option<String>,
    /// Only events of this GPU.
    pub uuid: Option<String>,
    /// Only events of this kind: `node`, `alert`, `resolved` or `hardware`.
    pub kind: Option<String>,
    /// Cluster; optional if the records are of one cluster.
    pub cluster: Option<String>,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterEvent {
    /// Time.
    pub at: UnixTime,
    /// End of a node's state; `None` while it lasts, and for other kinds.
    #[serde(default)]
    pub until: Option<UnixTime>,
    /// `node`: Slurm's state of a node changed; `alert`: an alert fires; `resolved`: an alert ended;
    /// `hardware`: an exporter reported an event of a node.
    pub kind: String,
    /// Name of the node; empty for the cluster.
    pub node: String,
    /// UUID of the GPU, if the event names one.
    pub uuid: Option<String>,
    /// Index of that GPU in its node, as `nvidia-smi` prints it; `None` if it is not known now.
    #[serde(default)]
    pub gpu_index: Option<String>,
    /// State of the node, name of the alert, or kind of the exporter's event.
    pub name: String,
    /// Severity of the alert; empty for nodes.
    pub severity: String,
    /// Reason of the state, labels of the alert that the viewer may see, or line of the kernel log.
    pub text: String,
    /// Fingerprint of the alert, or a keyed hash of it for viewers who do not see all its labels.
    pub fingerprint: Option<String>,
    /// User and job that the alert names.
    pub user: Option<String>,
}

/// Kinds of events.
pub const EVENT_KINDS: [&str; 4] = ["alert", "resolved", "hardware", "node"];

/// Fails if no event can be of this kind: a misspelt one must not show an empty list.
fn check_kind(kind: &str) -> Result<(), AnswerError> {
    if EVENT_KINDS.contains(&kind) {
        return Ok(());
    }
    let near = did_you_mean(kind, EVENT_KINDS);
    let known = EVENT_KINDS.join(", ");
    let text = format!("no event is of kind {kind:?}; known: {known}{near}");
    Err(AnswerError::Usage(text))
}

/// Labels that an event shows elsewhere, or that say nothing to people.
const SHOWN_ELSEWHERE: [&str; 11] = [
    "alertname",
    "severity",
    "node",
    "cluster",
    "uuid",
    "instance",
    "job",
    "notify",
    "pci_bus_id",
    "scope",
    "__name__",
];

impl Question for EventsQuestion {
    const PATH: &'static str = "/api/takt/v1/events";
    const NEED: Need = Need::SignedIn;
    type Answer = Vec<ClusterEvent>;
    type Data = Store;

    fn answer(
        &self,
        viewer: &Viewer,
        store: &Store,
        config: &AnswerConfig,
    ) -> Result<Vec<ClusterEvent>, AnswerError> {
        if let Some(kind) = &self.kind {
            check_kind(kind)?;
        }
        let records = Records::of(store.database());

        let asked = self
            .cluster
            .as_deref()
            .or(config.accounting.cluster.as_deref());

        let cluster = the_cluster(&records, asked, config.accounting.home.as_deref())?;
        let mut events: Vec<ClusterEvent> = records
            .node_events(&cluster.cluster, self.from)?
            .into_iter()
            // The cluster's own registration is an event without a node.
            .filter(|event| !event.node.is_empty())
            .map(|event| ClusterEvent {
                at: event.from,
                until: event.to,
                kind: "node".to_owned(),
                node: event.node,
                uuid: None,
                gpu_index: None,
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

            // An alert that becomes unknown and fires again has not begun again.
            let kind = match (before.as_str(), after.as_str()) {
                ("firing" | "unknown", "inactive") => "resolved",
                (before, "firing") if before != "unknown" => "alert",
                _ => continue,
            };
            // Watchdog and its like fire and resolve without a fault.
            if severity == NO_FAULT {
                continue;
            }
            let shown = ShownAlert::of(viewer, &config.alerts, &labels, &fingerprint);
            events.push(ClusterEvent {
                at: transition.at.whole_seconds(),
                until: None,
                kind: kind.to_owned(),
                node,
                uuid: shown.labels.get("uuid").cloned(),
                gpu_index: None,
                name: shown_name(&name, &shown.labels),
                severity,
                text: text_of(&shown.labels),
                user: shown.labels.get("user").cloned(),
                fingerprint: Some(shown.fingerprint),
            });
        }

        let logged = records.events(self.from, self.to, MOST_EVENTS)?;
        events.extend(logged.into_iter().map(|event| hardware(viewer, event)));

        // The filters look at what the viewer sees: a hidden UUID must not be found by asking for it.
        let is_wanted = |wanted: &Option<String>, value: Option<&str>| {
            wanted.is_none() || wanted.as_deref() == value
        };
        events.retain(|event| {
            (self.from..self.to).contains(&event.at)
                && is_wanted(&self.node, Some(&event.node))
                && is_wanted(&self.uuid, event.uuid.as_deref())
                && is_wanted(&self.kind, Some(&event.kind))
        });

        events.sort_by_key(|event| Reverse(event.at));
        if events.iter().any(|event| event.uuid.is_some()) {
            name_gpus(store, &mut events)?;
        }
        Ok(events)
    }
}

/// Lookback of the GPUs' indexes, which a lost GPU no longer reports.
const LOOKBACK: Duration = Duration::from_secs(3600);

/// Adds the index of each GPU that an exporter has reported within an hour.
fn name_gpus(store: &Store, events: &mut [ClusterEvent]) -> Result<(), StoreError> {
    let now = SystemTime::now().into();
    let info = store.instant(&[Matcher::metric("takt_gpu_info")], now, LOOKBACK)?;
    let indexes: BTreeMap<&str, &str> = info
        .iter()
        .filter_map(|one| Some((one.labels.get("uuid")?, one.labels.get("index")?)))
        .filter(|(_, index)| !index.is_empty())
        .collect();

    for event in events {
        let index = event.uuid.as_deref().and_then(|uuid| indexes.get(uuid));
        event.gpu_index = index.map(|index| (*index).to_owned());
    }
    Ok(())
}

/// The labels that an event does not show elsewhere.
fn text_of(labels: &BTreeMap<String, String>) -> String {
    let pairs = labels
        .iter()
        .filter(|(name, _)| !SHOWN_ELSEWHERE.contains(&name.as_str()))
        .map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join(" ")
}

/// An event of an exporter. The kernel's line may name a process, so only those who see all labels get it.
fn hardware(viewer: &Viewer, event: EventRecord) -> ClusterEvent {
    let [node, kind, labels, message] = event.texts;
    let mut labels: BTreeMap<String, String> = serde_json::from_str(&labels).unwrap_or_default();
    let shown = shown_labels(viewer, &labels);
    // A hidden label has no part in the name either.
    labels.retain(|name, _| shown.shows(name));

    let name = match labels.get("xid") {
        Some(xid) => format!("XID {xid}"),
        None => kind.replace('_', " "),
    };
    ClusterEvent {
        at: event.at.whole_seconds(),
        until: None,
        kind: "hardware".to_owned(),
        node,
        uuid: labels.get("uuid").cloned(),
        gpu_index: None,
        name,
        severity: String::new(),
        text: if shown.is_all() {
            message
        } else {
            text_of(&labels)
        },
        fingerprint: None,
        user: labels.get("user").cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_access::{Privacy, Role, Way};
    use takt_model::Timestamp;

    #[test]
    fn an_unknown_kind_is_refused() {
        assert!(check_kind("hardware").is_ok());
        assert_eq!(
            check_kind("nod").unwrap_err().to_string(),
            "no event is of kind \"nod\"; known: alert, resolved, hardware, node; did you mean node?"
        );
    }

    #[test]
    fn the_kernels_line_is_for_those_who_see_the_job() {
        let event = || {
            EventRecord {
            at: Timestamp(5000),
            texts: [
                "g1",
                "xid",
                r#"{"uuid":"GPU-1","xid":"79","user":"ann","jobid":"7","process":"secret.py","node":"g1"}"#,
                "NVRM: Xid 79, name=secret.py",
            ]
            .map(str::to_owned),
        }
        };
        // The same job for a user who sees users, its owner, one who sees nothing of others, and an operator.
        let bob = Viewer::new(Role::User, Way::Socket, Privacy::Open).with_user("bob");
        let ann = Viewer::new(Role::User, Way::Socket, Privacy::Private).with_user("ann");
        let shown = hardware(&bob, event());
        assert_eq!(shown.name.as_str(), "XID 79");
        assert_eq!(shown.at, UnixTime(5));
        assert_eq!(shown.text.as_str(), "jobid=7 user=ann xid=79");
        assert_eq!(shown.user.as_deref(), Some("ann"));
        assert_eq!(shown.uuid.as_deref(), Some("GPU-1"));

        let stranger = Viewer::new(Role::User, Way::Socket, Privacy::Private).with_user("bob");
        let hidden = hardware(&stranger, event());
        assert_eq!((hidden.text.as_str(), hidden.user), ("xid=79", None));

        let own = hardware(&ann, event());
        assert_eq!(own.text, "NVRM: Xid 79, name=secret.py");
        assert_eq!(own.user.as_deref(), Some("ann"));

        let support = Viewer::new(Role::Support, Way::Socket, Privacy::Private).with_user("op");
        assert_eq!(hardware(&support, event()).user.as_deref(), Some("ann"));
    }
}
