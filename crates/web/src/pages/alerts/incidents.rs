//! Incidents: the active alerts, grouped by what is broken. A node that dies is one incident, whatever its exporter, Slurm
//! and its jobs say about it.

use super::AlertView;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use takt_access::OTHER_USER;
use takt_model::UnixTime;
use takt_questions::{ClusterAnswer, GpuNow, NodeNow, severity_rank};

/// Users that an incident names; the others are counted.
const NAMED_USERS: usize = 4;

/// Programs of operators whose command lines in an alert's text can be copied.
const PROGRAMS: [&str; 8] = [
    "scontrol ",
    "sinfo ",
    "squeue ",
    "nvidia-smi ",
    "systemctl ",
    "journalctl ",
    "dcgmi ",
    "takt ",
];

/// The thing that is broken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Broken {
    Node(String),
    Gpu(String),
    /// A server of the network, such as a file server.
    Server(String),
    Job(String),
    /// Something else: the alert stands alone.
    Alert(String),
}

/// The alerts about one broken thing.
#[derive(Debug, Clone, Serialize)]
pub struct Incident {
    /// The fault, as a sentence.
    pub sentence: String,
    /// Fingerprint of the alert that gives the sentence; the anchor on the page.
    pub anchor: String,
    /// Severity of that alert; may be empty.
    pub severity: String,
    /// Time at which the first of the alerts began.
    pub since: UnixTime,
    /// Node, if the incident is about one.
    pub node: Option<String>,
    /// UUID of the GPU, if the incident is about one.
    pub uuid: Option<String>,
    /// Jobs that the alerts name, or that run there now.
    pub jobs: Vec<String>,
    /// Some of the users of these jobs.
    pub users: Vec<String>,
    /// Number of their users that are not named.
    pub users_more: usize,
    /// GPUs of the node, if it is broken as a whole.
    pub gpus: usize,
    /// Evidence, oldest first.
    pub evidence: Vec<Evidence>,
    /// Steps to take, in order.
    pub steps: Vec<Step>,
    /// Whether it is about a job alone: its owner acts, not the operators.
    pub is_of_owner: bool,
    /// The alert that gives the sentence, and those with other causes.
    pub alerts: Vec<AlertView>,
    /// Alerts that another alert of the page explains.
    pub consequences: Vec<AlertView>,
}

/// A piece of evidence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Evidence {
    /// Time.
    pub at: UnixTime,
    /// Summary of an alert, or line of the kernel log.
    pub text: String,
}

/// A step to take.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Instruction.
    pub text: String,
    /// The command for it; empty if there is none.
    pub command: String,
}

impl Incident {
    /// Whether one of its alerts has this label.
    pub fn names(&self, label: &str, value: &str) -> bool {
        self.members().any(|alert| alert.names(label, value))
    }

    /// Whether one of its alerts has this fingerprint.
    pub fn has(&self, fingerprint: &str) -> bool {
        self.members()
            .any(|alert| alert.alert.fingerprint == fingerprint)
    }

    fn members(&self) -> impl Iterator<Item = &AlertView> {
        self.alerts.iter().chain(&self.consequences)
    }
}

/// Groups alerts by what is broken. The worst incident comes first; among equals, one that makes more people suffer, then
/// the newest.
pub fn incidents(alerts: Vec<AlertView>, cluster: &ClusterAnswer) -> Vec<Incident> {
    // A node about which a critical alert fires is broken as a whole: its cards and jobs are consequences.
    let dead: BTreeSet<String> = alerts
        .iter()
        .filter(|alert| alert.alert.severity == "critical" && alert.names("scope", "node"))
        .map(|alert| label(alert, "node").to_owned())
        .collect();

    let mut groups: BTreeMap<(String, Broken), Vec<AlertView>> = BTreeMap::new();
    for alert in alerts {
        let of_cluster = label(&alert, "cluster").to_owned();
        let broken = broken(&alert, &dead);
        groups.entry((of_cluster, broken)).or_default().push(alert);
    }

    let mut incidents: Vec<Incident> = groups
        .into_iter()
        .map(|((_, broken), members)| incident(&broken, members, cluster))
        .collect();
    incidents.sort_by_key(|one| {
        let suffering = one.users.len() + one.users_more;
        (
            severity_rank(&one.severity),
            Reverse(suffering),
            Reverse(one.since),
        )
    });
    incidents
}

fn label<'a>(alert: &'a AlertView, name: &str) -> &'a str {
    alert.alert.labels.get(name).map_or("", String::as_str)
}

/// Returns what an alert says is broken.
fn broken(alert: &AlertView, dead: &BTreeSet<String>) -> Broken {
    let [node, uuid, server, job, scope] =
        ["node", "uuid", "server", "jobid", "scope"].map(|name| label(alert, name).to_owned());
    // The most specific thing that is broken, except on a dead node, which explains its cards and jobs.
    if !node.is_empty() && (scope == "node" || dead.contains(&node)) {
        Broken::Node(node)
    } else if !uuid.is_empty() {
        Broken::Gpu(uuid)
    } else if !server.is_empty() {
        Broken::Server(server)
    } else if !job.is_empty() {
        Broken::Job(job)
    } else if !node.is_empty() {
        Broken::Node(node)
    } else {
        Broken::Alert(alert.alert.fingerprint.clone())
    }
}

fn incident(broken: &Broken, mut members: Vec<AlertView>, cluster: &ClusterAnswer) -> Incident {
    // An alert about a whole node gives the sentence of its incident, before those of its cards.
    let is_of_kind = |alert: &AlertView| match broken {
        Broken::Node(_) => alert.names("scope", "node"),
        _ => true,
    };
    members.sort_by_key(|one| {
        let alert = &one.alert;
        let is_explained = is_explained(one);
        (
            !is_of_kind(one),
            is_explained,
            severity_rank(&alert.severity),
            alert.since,
        )
    });
    let first = &members[0];

    let node = members
        .iter()
        .map(|one| label(one, "node"))
        .find(|name| !name.is_empty());
    let node = node.map(str::to_owned);

    let uuid = match broken {
        Broken::Gpu(uuid) => Some(uuid.clone()),
        _ => None,
    };

    let place = cluster
        .nodes
        .iter()
        .find(|known| Some(&known.node) == node.as_ref());
    let (jobs, users) = suffering(&members, place, broken);
    let sentence = sentence(first);

    Incident {
        anchor: first.alert.fingerprint.clone(),
        severity: first.alert.severity.clone(),
        since: members
            .iter()
            .map(|one| one.alert.since)
            .min()
            .unwrap_or(first.alert.since),
        gpus: match broken {
            // A node with a lesser fault goes on computing.
            Broken::Node(_) if first.alert.severity == "critical" => {
                place.map_or(0, |place| place.gpus.len())
            }
            _ => 0,
        },
        users: users.iter().take(NAMED_USERS).cloned().collect(),
        users_more: users.len().saturating_sub(NAMED_USERS),
        jobs: jobs.into_iter().collect(),
        evidence: evidence(&members),
        steps: steps(first, place),
        is_of_owner: matches!(broken, Broken::Job(_)),
        node,
        uuid,
        sentence,
        // The first alert gives the sentence, so it is never a consequence of itself.
        alerts: members
            .iter()
            .enumerate()
            .filter(|(at, one)| *at == 0 || !is_consequence(one, first))
            .map(|(_, one)| one.clone())
            .collect(),
        consequences: members
            .iter()
            .skip(1)
            .filter(|one| is_consequence(one, first))
            .cloned()
            .collect(),
    }
}

/// Whether an alert only says that another one is true: no message was sent about it for that reason.
fn is_explained(alert: &AlertView) -> bool {
    alert.alert.unsent.contains("inhibited")
}

/// Whether an alert follows from the first one of its incident.
fn is_consequence(alert: &AlertView, first: &AlertView) -> bool {
    // Alerts about cards and jobs follow from one about their node.
    is_explained(alert) || (first.names("scope", "node") && !alert.names("scope", "node"))
}

fn sentence(alert: &AlertView) -> String {
    if alert.summary.is_empty() {
        alert.alert.name.clone()
    } else {
        alert.summary.clone()
    }
}

/// Returns jobs and users that suffer: those that the alerts name, and those that hold the node or GPU now.
fn suffering(
    members: &[AlertView],
    place: Option<&NodeNow>,
    broken: &Broken,
) -> (BTreeSet<String>, BTreeSet<String>) {
    let gpus = place.map_or(&[][..], |place| &place.gpus);
    let is_hit = |gpu: &&GpuNow| match broken {
        Broken::Node(_) => true,
        Broken::Gpu(uuid) => gpu.uuid == *uuid,
        Broken::Server(_) | Broken::Job(_) | Broken::Alert(_) => false,
    };

    let mut jobs = BTreeSet::new();
    let mut users = BTreeSet::new();
    for alert in members {
        jobs.insert(label(alert, "jobid").to_owned());
        users.insert(label(alert, "user").to_owned());
    }
    // A drained node disturbs no job: its jobs finish.
    let is_disturbed = members
        .iter()
        .any(|alert| alert.alert.severity == "critical");

    for held in gpus.iter().filter(is_hit).flat_map(|gpu| &gpu.holders) {
        if is_disturbed {
            jobs.extend(held.holder.job_id.clone());
            users.insert(held.holder.user.clone());
        }
    }
    // Alerts without a job or a user have no such label.
    jobs.remove("");
    users.remove("");
    users.remove(OTHER_USER);
    (jobs, users)
}

/// Returns the evidence, oldest first: kernel lines and summaries.
fn evidence(members: &[AlertView]) -> Vec<Evidence> {
    let mut evidence = BTreeSet::new();
    for one in members {
        let at = one.alert.since;
        let lines = one.words.iter().filter(|(name, _)| name == "kernel lines");
        for text in lines.flat_map(|(_, lines)| lines.lines()) {
            let text = text.to_owned();
            evidence.insert(Evidence { at, text });
        }

        let text = sentence(one);
        evidence.insert(Evidence { at, text });
    }
    evidence.into_iter().collect()
}

/// Returns what to do: the sentences of the alert's action, with the commands in them, and a command to drain the node if
/// one of them asks for it.
fn steps(alert: &AlertView, place: Option<&NodeNow>) -> Vec<Step> {
    let action = alert.words.iter().find(|(name, _)| name == "action");
    let Some((_, action)) = action else {
        return Vec::new();
    };
    sentences(action)
        .into_iter()
        .map(|text| {
            let command = command_in(&text)
                .or_else(|| drain_command(&text, place?, &alert.alert.name))
                .unwrap_or_default();
            Step { text, command }
        })
        .collect()
}

/// Splits a text into its sentences.
fn sentences(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    // A full stop and a blank: names of nodes and versions have full stops, too.
    while let Some(end) = rest.find(". ") {
        let (sentence, after) = rest.split_at(end + 1);
        found.push(sentence.to_owned());
        rest = after.trim_start();
    }

    if !rest.is_empty() {
        found.push(rest.to_owned());
    }
    found
}

/// Returns the command in parentheses in a sentence. The text of an alert may come from outside, so only a plain command
/// line of a known program counts: what a person pastes into a root shell must do one thing.
fn command_in(text: &str) -> Option<String> {
    text.split('(')
        .skip(1)
        .filter_map(|part| part.split_once(')'))
        .map(|(command, _)| command.trim())
        // Quotes, dollar signs, semicolons and line feeds could begin another command.
        .find(|command| {
            let is_known = PROGRAMS.iter().any(|program| command.starts_with(program));
            let is_plain = |c: char| c.is_ascii_alphanumeric() || " -_=.,:/".contains(c);
            is_known && command.chars().all(is_plain)
        })
        .map(str::to_owned)
}

/// Returns the command that drains the node, if a sentence asks for it and Slurm has the node. Slurm shows the reason of a
/// node to everybody, so it is the name of the rule: a summary may name a user and a job.
fn drain_command(text: &str, place: &NodeNow, rule: &str) -> Option<String> {
    let asks = text.to_lowercase().contains("drain the node");

    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !asks || place.state.is_none() || !place.node.chars().all(is_plain) {
        return None;
    }
    // The reason is quoted in the command, so it has plain characters only.
    let reason: String = rule.chars().filter(|c| is_plain(*c)).take(80).collect();
    let node = &place.node;
    Some(format!(
        "scontrol update nodename={node} state=drain reason=\"{reason}\""
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use takt_questions::{ActiveAlert, GpuHolder, Holder};

    fn alert(name: &str, severity: &str, since: i64, labels: &[(&str, &str)]) -> AlertView {
        let summary = labels.iter().find(|(name, _)| *name == "summary");
        let labels = labels.iter().filter(|(name, _)| *name != "summary");
        AlertView {
            summary: summary.map_or("", |(_, text)| text).to_owned(),
            words: Vec::new(),
            alert: ActiveAlert {
                fingerprint: format!("{name}{since}"),
                name: name.to_owned(),
                severity: severity.to_owned(),
                since: UnixTime(since),
                labels: labels
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect(),
                ..ActiveAlert::default()
            },
        }
    }

    fn inhibited(mut alert: AlertView) -> AlertView {
        "inhibited by another alert".clone_into(&mut alert.alert.unsent);
        alert
    }

    fn doing(mut alert: AlertView, action: &str) -> AlertView {
        alert.words.push(("action".to_owned(), action.to_owned()));
        alert
    }

    fn node(name: &str, users: &[&str]) -> NodeNow {
        let holder = |user: &&str| GpuHolder {
            holder: Holder {
                job_id: Some(format!("of-{user}")),
                user: (*user).to_owned(),
                ..Holder::default()
            },
            ..GpuHolder::default()
        };
        NodeNow {
            node: name.to_owned(),
            state: Some("DOWN".to_owned()),
            gpus: users
                .iter()
                .map(|user| GpuNow {
                    uuid: format!("GPU-{user}"),
                    holders: vec![holder(user)],
                    ..GpuNow::default()
                })
                .collect(),
            ..NodeNow::default()
        }
    }

    #[test]
    fn one_dead_node_is_one_incident() {
        // A critical alert about l05 as a whole, with what its job, its exporter and its card say; l06 is another node.
        let l05 = ("node", "l05");
        let alerts = vec![
            alert(
                "JobNodeFail",
                "info",
                40,
                &[l05, ("scope", "job"), ("jobid", "7"), ("user", "judy")],
            ),
            inhibited(alert(
                "ExporterDown",
                "warning",
                10,
                &[l05, ("scope", "node")],
            )),
            inhibited(alert(
                "GpuNotAnswering",
                "critical",
                20,
                &[l05, ("scope", "gpu"), ("uuid", "G")],
            )),
            alert(
                "NodeDown",
                "critical",
                30,
                &[l05, ("scope", "node"), ("summary", "l05 does not answer")],
            ),
            alert(
                "NodeDown",
                "critical",
                30,
                &[("node", "l06"), ("scope", "node")],
            ),
        ];

        let cluster = ClusterAnswer {
            nodes: vec![node("l05", &["dave"])],
            ..ClusterAnswer::default()
        };
        let found = incidents(alerts, &cluster);
        assert_eq!(found.len(), 2);

        let one = &found[0];
        assert_eq!(one.sentence, "l05 does not answer");
        assert_eq!(one.since, UnixTime(10), "since the first sign");
        assert_eq!(one.jobs, ["7", "of-dave"]);
        assert_eq!(one.users, ["dave", "judy"]);
        assert_eq!(one.gpus, 1);
        assert_eq!((one.alerts.len(), one.consequences.len()), (1, 3));
        assert_eq!(
            one.evidence.iter().map(|one| one.at.0).collect::<Vec<_>>(),
            [10, 20, 30, 40]
        );
    }

    #[test]
    fn a_lost_card_is_an_incident_beside_its_node() {
        let g01 = ("node", "g01");
        let gpu = [g01, ("scope", "gpu"), ("uuid", "GPU-bob")];
        let alerts = vec![
            inhibited(alert("GpuNotAnswering", "critical", 5, &gpu)),
            doing(
                alert(
                    // A rule from outside that tries to put a command into the reason.
                    "GpuFellOffBus\"; $(reboot)",
                    "critical",
                    6,
                    &[&gpu[..], &[("summary", "GPU 0 is \"lost\"; $(reboot)")]].concat(),
                ),
                "Drain the node and wait. Then power-cycle it.",
            ),
            alert("SlurmNodeDrained", "warning", 1, &[g01, ("scope", "node")]),
        ];

        let cluster = ClusterAnswer {
            nodes: vec![node("g01", &["bob", "eve"])],
            ..ClusterAnswer::default()
        };
        let found = incidents(alerts, &cluster);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].users, ["bob"], "eve's card works");
        assert!(
            found[1].users.is_empty() && found[1].gpus == 0,
            "a drained node disturbs no job"
        );

        assert_eq!(
            found[0].steps,
            [
                Step {
                    text: "Drain the node and wait.".to_owned(),
                    command:
                        "scontrol update nodename=g01 state=drain reason=\"GpuFellOffBusreboot\""
                            .to_owned(),
                },
                Step {
                    text: "Then power-cycle it.".to_owned(),
                    command: String::new(),
                },
            ]
        );
    }

    #[test]
    fn only_a_plain_command_can_be_copied() {
        // With a known program and plain characters, with a second command, a substitution, and another program.
        for (text, command) in [
            (
                "Resume it (scontrol update nodename=l04 state=resume).",
                Some("scontrol update nodename=l04 state=resume"),
            ),
            (
                "Check it (nvidia-smi -q -d ROW_REMAPPER).",
                Some("nvidia-smi -q -d ROW_REMAPPER"),
            ),
            ("Do it (takt doctor; rm -rf /).", None),
            ("Do it (scontrol $(reboot)).", None),
            ("Do it (rm -rf /).", None),
            ("Nothing (yet).", None),
        ] {
            assert_eq!(command_in(text).as_deref(), command, "{text}");
        }
    }

    proptest! {
        /// No alert is lost and none is shown twice, whatever it names.
        #[test]
        fn each_alert_is_in_one_incident(kinds in prop::collection::vec((0_usize..4, 0_usize..3, 0_usize..3, 0_usize..3), 0..20)) {
            // Few values, so that many alerts name the same things.
            let values = ["", "a", "b"];
            let alerts: Vec<_> = kinds
                .iter()
                .enumerate()
                .map(|(at, (scope, node, uuid, job))| {
                    let labels = [
                        ("scope", ["", "node", "gpu", "job"][*scope]),
                        ("node", values[*node]),
                        ("uuid", values[*uuid]),
                        ("jobid", values[*job]),
                    ];
                    let severity = ["critical", "warning"][at % 2];
                    alert("A", severity, at as i64, &labels)
                })
                .collect();

            let found = incidents(alerts, &ClusterAnswer::default());
            let mut shown: Vec<i64> = found
                .iter()
                .flat_map(|one| one.alerts.iter().chain(&one.consequences))
                .map(|one| one.alert.since.0)
                .collect();
            shown.sort_unstable();
            prop_assert_eq!(shown, (0..kinds.len() as i64).collect::<Vec<_>>());
        }
    }
}
