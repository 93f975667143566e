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

/// Alerts above an alert, each inhibiting the one below, that are looked at for its cause.
const INHIBITED_BY_MOST: usize = 4;

/// Pieces of evidence that an incident shows, the oldest.
const EVIDENCE_MOST: usize = 12;

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
    /// GPUs of the node, if it is broken as a whole, or of the nodes that wait for the server.
    pub gpus: usize,
    /// Evidence, oldest first.
    pub evidence: Vec<Evidence>,
    /// Number of later pieces of evidence that are left out.
    pub evidence_more: usize,
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
    // A node about which a critical alert fires is broken as a whole: its cards and jobs are consequences. One that only waits
    // for a server is not.
    let dead: BTreeSet<String> = alerts
        .iter()
        .filter(|alert| alert.alert.severity == "critical" && alert.names("scope", "node"))
        .filter(|alert| alert.alert.inhibited_by.is_none())
        .map(|alert| label(alert, "node").to_owned())
        .collect();

    let keys: Vec<(String, Broken)> = (0..alerts.len())
        .map(|at| {
            let cause = cause(&alerts, at);
            (label(cause, "cluster").to_owned(), broken(cause, &dead))
        })
        .collect();
    let mut groups: BTreeMap<(String, Broken), Vec<AlertView>> = BTreeMap::new();
    for (key, alert) in keys.into_iter().zip(alerts) {
        groups.entry(key).or_default().push(alert);
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

/// Returns the alert that inhibits the one at this place, directly or by others. An alert that none inhibits is its own cause.
fn cause(alerts: &[AlertView], at: usize) -> &AlertView {
    let mut cause = &alerts[at];
    // Rules of a site may inhibit in a circle.
    for _ in 0..INHIBITED_BY_MOST {
        let inhibitor = cause.alert.inhibited_by.as_ref();
        let above = inhibitor.and_then(|print| {
            let mut all = alerts.iter();
            all.find(|alert| alert.alert.fingerprint == *print)
        });
        match above {
            Some(above) => cause = above,
            None => break,
        }
    }
    cause
}

/// Returns what an alert says is broken.
fn broken(alert: &AlertView, dead: &BTreeSet<String>) -> Broken {
    let [node, uuid, pci, server, job, scope] =
        ["node", "uuid", "pci_bus_id", "server", "jobid", "scope"]
            .map(|name| label(alert, name).to_owned());
    if !node.is_empty() && (scope == "node" || dead.contains(&node)) {
        Broken::Node(node)
    } else if !uuid.is_empty() {
        Broken::Gpu(uuid)
    } else if scope == "gpu" && !pci.is_empty() {
        // The kernel names a card by its address; the UUID of a lost one may be unknown.
        Broken::Gpu(format!("{node} {pci}"))
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
            is_explained,
            severity_rank(&alert.severity),
            !is_of_kind(one),
            alert.since,
        )
    });
    let first = &members[0];

    // Nodes are not what is broken where they wait for a server.
    let is_server = matches!(broken, Broken::Server(_));
    let naming = if is_server { &members[..1] } else { &members };
    let mut names = naming.iter().map(|one| label(one, "node"));
    let node = names.find(|name| !name.is_empty()).map(str::to_owned);
    let uuid = match broken {
        Broken::Gpu(_) => Some(label(first, "uuid").to_owned()).filter(|uuid| !uuid.is_empty()),
        _ => None,
    };

    let place = cluster
        .nodes
        .iter()
        .find(|known| Some(&known.node) == node.as_ref());
    let hit: Vec<&NodeNow> = if is_server {
        waiting(&members, cluster)
    } else {
        place.into_iter().collect()
    };
    let (jobs, users) = suffering(&members, &hit, broken);
    let sentence = sentence(first);
    let mut evidence = evidence(&members);
    let evidence_more = evidence.len().saturating_sub(EVIDENCE_MOST);
    evidence.truncate(EVIDENCE_MOST);

    Incident {
        anchor: first.alert.fingerprint.clone(),
        severity: worst(&members),
        since: members
            .iter()
            .map(|one| one.alert.since)
            .min()
            .unwrap_or(first.alert.since),
        gpus: match broken {
            // A node with a lesser fault goes on computing.
            Broken::Node(_) | Broken::Server(_) if first.alert.severity == "critical" => {
                hit.iter().map(|node| node.gpus.len()).sum()
            }
            _ => 0,
        },
        users: users.iter().take(NAMED_USERS).cloned().collect(),
        users_more: users.len().saturating_sub(NAMED_USERS),
        jobs: jobs.into_iter().collect(),
        evidence,
        evidence_more,
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

/// The worst severity of these alerts, those that another one explains included.
fn worst(members: &[AlertView]) -> String {
    let severities = members.iter().map(|one| &one.alert.severity);
    let worst = severities.min_by_key(|severity| severity_rank(severity));
    worst.cloned().unwrap_or_default()
}

/// Whether an alert only says that another one is true: no message was sent about it for that reason.
fn is_explained(alert: &AlertView) -> bool {
    alert.alert.unsent.contains("inhibited")
}

/// Whether an alert follows from the first one of its incident.
fn is_consequence(alert: &AlertView, first: &AlertView) -> bool {
    let is_worse = severity_rank(&alert.alert.severity) < severity_rank(&first.alert.severity);
    let is_below = first.names("scope", "node") && !alert.names("scope", "node");
    is_explained(alert) || (is_below && !is_worse)
}

fn sentence(alert: &AlertView) -> String {
    if alert.summary.is_empty() {
        alert.alert.name.clone()
    } else {
        alert.summary.clone()
    }
}

/// Returns the nodes that wait for a server: those of the critical alerts that it explains.
fn waiting<'c>(members: &[AlertView], cluster: &'c ClusterAnswer) -> Vec<&'c NodeNow> {
    let critical = members
        .iter()
        .filter(|one| one.alert.severity == "critical");
    let names: BTreeSet<&str> = critical.map(|one| label(one, "node")).collect();
    let known = cluster.nodes.iter();
    known
        .filter(|node| names.contains(node.node.as_str()))
        .collect()
}

/// Returns jobs and users that suffer: those that the alerts name, and those that hold the node or GPU now.
fn suffering(
    members: &[AlertView],
    hit: &[&NodeNow],
    broken: &Broken,
) -> (BTreeSet<String>, BTreeSet<String>) {
    let gpus = hit.iter().flat_map(|node| &node.gpus);
    let is_hit = |gpu: &&GpuNow| match broken {
        Broken::Node(_) | Broken::Server(_) => true,
        Broken::Gpu(uuid) => gpu.uuid == *uuid,
        Broken::Job(_) | Broken::Alert(_) => false,
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
    for held in gpus.filter(is_hit).flat_map(|gpu| &gpu.holders) {
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
    fn nodes_that_wait_for_a_file_server_are_its_consequences() {
        let by = |alert: AlertView, cause: &str| {
            let mut alert = inhibited(alert);
            alert.alert.inhibited_by = Some(cause.to_owned());
            alert
        };
        let hung = |node: &str, since| {
            alert(
                "NfsHung",
                "critical",
                since,
                &[("node", node), ("scope", "node")],
            )
        };
        let said = [("node", "l03"), ("scope", "nfs"), ("server", "nas01")];
        let server = [
            ("scope", "nfs"),
            ("server", "nas01"),
            ("summary", "nas01 does not respond"),
        ];
        let alerts = vec![
            by(hung("l02", 30), "NfsServerNotResponding20"),
            by(hung("l03", 31), "NfsServerSaid10"),
            by(
                alert("NfsServerSaid", "warning", 10, &said),
                "NfsServerNotResponding20",
            ),
            alert("NfsServerNotResponding", "critical", 20, &server),
            hung("l04", 5),
        ];
        let cluster = ClusterAnswer {
            nodes: vec![
                node("l02", &["ann"]),
                node("l03", &["bob"]),
                node("l04", &["eve"]),
            ],
            ..ClusterAnswer::default()
        };
        let found = incidents(alerts, &cluster);
        assert_eq!(found.len(), 2, "l04 hangs for a reason of its own");

        let one = &found[0];
        assert_eq!(one.sentence, "nas01 does not respond");
        assert_eq!((&one.node, one.gpus), (&None, 2));
        assert_eq!(one.users, ["ann", "bob"]);
        assert_eq!((one.alerts.len(), one.consequences.len()), (1, 3));
    }

    #[test]
    fn a_critical_alert_is_never_below_a_warning() {
        let g01 = ("node", "g01");
        let clock = || {
            let words = ("summary", "the clock of g01 is wrong");
            alert(
                "NodeClockSkew",
                "warning",
                1,
                &[g01, ("scope", "node"), words],
            )
        };
        let lost = [
            g01,
            ("scope", "gpu"),
            ("pci_bus_id", "0000:08:00"),
            ("summary", "lost"),
        ];
        let alerts = vec![clock(), alert("GpuFellOffBus", "critical", 9, &lost)];
        let found = incidents(alerts, &ClusterAnswer::default());
        assert_eq!(
            found.len(),
            2,
            "a card that only its address names is one, too"
        );
        assert_eq!(
            (&*found[0].sentence, &*found[0].severity),
            ("lost", "critical")
        );
        assert_eq!(found[0].uuid, None);

        let other = [g01, ("summary", "something of g01 is gone")];
        let alerts = vec![clock(), alert("Own", "critical", 9, &other)];
        let one = &incidents(alerts, &ClusterAnswer::default())[0];
        assert_eq!((&*one.sentence, &*one.severity), (other[1].1, "critical"));
        assert!(one.consequences.is_empty());
    }

    #[test]
    fn alerts_that_inhibit_each_other_end() {
        let mut alerts = vec![
            alert("A", "warning", 1, &[("node", "a")]),
            alert("B", "warning", 2, &[("node", "b")]),
        ];
        alerts[0].alert.inhibited_by = Some("B2".to_owned());
        alerts[1].alert.inhibited_by = Some("A1".to_owned());
        let found = incidents(alerts, &ClusterAnswer::default());
        let members = found
            .iter()
            .map(|one| one.alerts.len() + one.consequences.len());
        assert_eq!(members.sum::<usize>(), 2);
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
