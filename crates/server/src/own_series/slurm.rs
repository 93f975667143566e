//! Series about Slurm, from the latest answers to the poller.

use super::{Row, named};
use std::collections::BTreeMap;
use takt_collector::schedulers::{JOB_RECORDS, NOT_READ, Pending, PollState, PollStatus};
use takt_jobs::{Node, NodeCondition, NodeState, nodelist};
use takt_model::{Labels, Timestamp};
use takt_store::{RunningJob, SchedulerNow};

/// Seconds for which a job that a node failure ended has a series.
const FAILED_JOB_SECONDS: i64 = 3600;

/// Maximum number of running jobs with a series.
const MAX_RUNNING: usize = 10_000;

/// Returns whether slurmctld answered: only then is the list of pending jobs known, even if it is
/// empty. slurmdbd also answers without slurmctld.
fn controller_answers(status: &PollStatus) -> bool {
    let asked = matches!(
        status.state,
        PollState::Ok | PollState::NoAccounting | PollState::DatabaseDown
    );
    asked && status.pending.is_some()
}

/// Returns the current series; empty before the first poll and without Slurm.
pub(super) fn series(now: &SchedulerNow, status: &PollStatus, at: Timestamp) -> Row {
    let mut row = daemons(status);
    // Without an answer of any daemon, only the sources are known.
    if row.is_empty() {
        return sources(status);
    }
    row.extend(sources(status));
    let set_aside = status.records_set_aside as f64;

    row.push((named("takt_slurm_records_set_aside_total", &[]), set_aside));
    // Runs in states of a newer Slurm, which this version does not know, are counted.
    for (state, runs) in &status.unknown_states {
        let labels = [("state", state.as_str())];
        row.push((
            named("takt_slurm_jobs_unknown_state", &labels),
            *runs as f64,
        ));
    }
    // Without slurmctld, its last answer may be outdated.
    if controller_answers(status) {
        row.extend(nodes(now, status));
        let ahead = status.clock_ahead_seconds as f64;
        row.push((named("takt_slurm_clock_ahead_seconds", &[]), ahead));
        if let Some(version) = &status.version {
            row.push((named("takt_slurm_info", &[("version", version)]), 1.0));
        }
        if let Some(constrains) = status.constrains_devices {
            let constrains = f64::from(u8::from(constrains));
            row.push((named("takt_slurm_constrains_devices", &[]), constrains));
        }
        if let Some(start) = now.last_start {
            row.push((
                named("takt_slurm_last_start_timestamp_seconds", &[]),
                start.0 as f64,
            ));
        }
        for Pending {
            partition,
            reason,
            jobs,
        } in status.pending.iter().flatten()
        {
            let labels = [("partition", partition.as_str()), ("reason", reason)];
            row.push((named("takt_slurm_jobs_pending", &labels), *jobs as f64));
        }
    }

    // Jobs come from the records, so they have series without slurmctld as well.
    row.extend(
        now.interactive
            .iter()
            .map(|job| (named("takt_slurm_job_interactive", &[("jobid", job)]), 1.0)),
    );
    row.extend(now.running.iter().take(MAX_RUNNING).map(job_info));
    row.extend(maintenance(now));
    row.extend(failures(now, at));
    row
}

/// Returns what is known of each source: when it answered, with how much, and why it is not complete. No series for the
/// sources of a Slurm that is not there.
fn sources(status: &PollStatus) -> Row {
    // A machine without Slurm has no sources to report.
    if status.state.is_absent() {
        return Row::new();
    }
    let mut sources = status.sources.clone();
    let records = sources.entry(JOB_RECORDS.to_owned()).or_default();

    // Before the first poll, the job records are missing and not empty.
    if status.state == PollState::Waiting && records.last_success.is_none() {
        records.problem = Some(NOT_READ.to_owned());
    }
    let mut row = Row::new();
    for (name, source) in &sources {
        let labels = [("source", name.as_str())];
        if let Some(at) = source.last_success {
            let last = named("takt_source_last_success_timestamp_seconds", &labels);
            row.push((last, at.0 as f64));
            row.push((named("takt_source_items", &labels), source.items as f64));
        }
        if let Some(problem) = &source.problem {
            let labels = [("source", name.as_str()), ("problem", problem)];
            row.push((named("takt_source_problem", &labels), 1.0));
        }
    }
    row
}

/// Returns the account and the partition of a running job, which its nodes do not know.
fn job_info(job: &RunningJob) -> (Labels, f64) {
    let labels = [
        ("jobid", job.number.as_str()),
        ("user", &job.user),
        ("account", &job.account),
        ("partition", &job.partition),
    ];
    (named("takt_slurm_job_info", &labels), 1.0)
}

/// Returns whether each of Slurm's daemons answers. A daemon that was not asked has no series.
fn daemons(status: &PollStatus) -> Row {
    // slurmdbd answers through sacct even where slurmctld is silent.
    let controller = ("slurmctld", f64::from(u8::from(controller_answers(status))));
    let states: &[(&str, f64)] = match status.state {
        PollState::Ok => &[controller, ("slurmdbd", 1.0)],
        PollState::DatabaseDown => &[controller, ("slurmdbd", 0.0)],
        PollState::NoAccounting | PollState::ControllerDown => &[controller],
        _ => &[],
    };
    states
        .iter()
        .map(|(daemon, up)| (named("takt_slurm_up", &[("daemon", daemon)]), *up))
        .collect()
}

fn nodes(now: &SchedulerNow, status: &PollStatus) -> Row {
    let polled_nodes: BTreeMap<&str, &Node> = status
        .nodes
        .iter()
        .flatten()
        .map(|node| (node.node.as_str(), node))
        .collect();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut idle: BTreeMap<&str, u64> = BTreeMap::new();
    let mut row = Row::new();

    for (node, state, reason) in &now.nodes {
        let parsed = NodeState::parse(state);
        let condition = parsed.condition();
        // One word for all causes here. The series of the node has the cause.
        let shown = if condition.is_unavailable() {
            "unavailable"
        } else {
            condition.as_str()
        };

        // The poller knows the partitions; the stored state alone does not.
        let polled = polled_nodes.get(node.as_str());
        for partition in polled.iter().flat_map(|polled| &polled.partitions) {
            // An entry also where no node is idle: 0 is an answer, and an absent series would be unknown.
            *idle.entry(partition).or_default() += u64::from(condition == NodeCondition::Idle);
            let labels = [("node", node.as_str()), ("partition", partition)];
            row.push((named("takt_slurm_node_partition", &labels), 1.0));
        }

        *counts.entry(shown).or_default() += 1;
        if parsed.is_reached() {
            row.push((named("takt_slurm_node_responding", &[("node", node)]), 1.0));
        }
        if condition.is_unavailable() {
            let mut labels = named(
                "takt_slurm_node_unavailable",
                &[
                    ("node", node),
                    ("cause", condition.as_str()),
                    ("state", state),
                    ("reason", reason.as_deref().unwrap_or_default()),
                ],
            );

            // The reason's author and time are only in slurmctld's own answer.
            if let Some((by, since)) =
                polled.and_then(|polled| polled.reason_by.as_ref().zip(polled.reason_at))
            {
                labels.set("by", by);
                let since = jiff::Timestamp::try_from(since).unwrap_or_default();
                labels.set("since", &since.to_string());
            }
            row.push((labels, 1.0));
        }
    }

    row.extend(idle.into_iter().map(|(partition, nodes)| {
        (
            named(
                "takt_slurm_partition_idle_nodes",
                &[("partition", partition)],
            ),
            nodes as f64,
        )
    }));
    row.extend(
        counts
            .into_iter()
            .map(|(state, nodes)| (named("takt_slurm_nodes", &[("state", state)]), nodes as f64)),
    );
    row
}

/// Maintenance is planned in advance, so it is valid even without slurmctld.
fn maintenance(now: &SchedulerNow) -> Row {
    let mut row = Row::new();
    for kept in &now.maintenance {
        for node in kept.nodes() {
            let labels = [("node", node.as_str()), ("reservation", &kept.name)];
            row.push((named("takt_slurm_node_maintenance", &labels), 1.0));
        }
    }
    row
}

fn failures(now: &SchedulerNow, at: Timestamp) -> Row {
    let mut by_node: BTreeMap<String, u64> = BTreeMap::new();
    let mut row = Row::new();

    for job in &now.lost_jobs {
        let list = job.node_list.as_deref().unwrap_or_default();
        for node in nodelist::expand(list).unwrap_or_default() {
            *by_node.entry(node).or_default() += 1;
        }
        // A day of failures counts for the node, an hour is news about the job.
        if job.end > at.whole_seconds() - FAILED_JOB_SECONDS {
            let labels = [
                ("jobid", job.job_id.as_str()),
                ("job_name", job.name.as_deref().unwrap_or_default()),
                ("user", &job.user),
                ("node", list),
            ];
            row.push((named("takt_slurm_job_node_failure", &labels), 1.0));
            if job.is_requeued {
                let labels = [("jobid", job.job_id.as_str())];
                row.push((named("takt_slurm_job_requeued", &labels), 1.0));
            }
        }
    }

    row.extend(by_node.into_iter().map(|(node, jobs)| {
        (
            named("takt_slurm_node_failures_1d", &[("node", &node)]),
            jobs as f64,
        )
    }));
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_jobs::Reservation;
    use takt_model::UnixTime;
    use takt_store::LostJob;

    fn shown(state: PollState, pending: Option<Vec<Pending>>) -> Vec<String> {
        let node = |name: &str, state: &str, reason: Option<&str>| {
            (name.to_owned(), state.to_owned(), reason.map(str::to_owned))
        };
        let lost = |id: &str, nodes: &str, end| LostJob {
            job_id: id.to_owned(),
            name: Some("train".to_owned()),
            is_requeued: id == "7",
            user: "ada".to_owned(),
            node_list: Some(nodes.to_owned()),
            end,
        };
        let now = SchedulerNow {
            nodes: vec![
                node("g1", "IDLE", None),
                node("g2", "MIXED*", None),
                node("g3", "IDLE+DRAIN", Some("fan")),
                node("g4", "MAINT", None),
            ],
            last_start: Some(UnixTime(100)),
            interactive: vec!["9".to_owned()],
            running: vec![RunningJob {
                number: "12".to_owned(),
                job_id: "11_1".to_owned(),
                user: "ada".to_owned(),
                account: "physics".to_owned(),
                partition: "gpu".to_owned(),
                name: None,
                start: UnixTime(50),
            }],
            lost_jobs: vec![
                lost("7", "g[1-2]", UnixTime(9_000)),
                lost("8", "g2", UnixTime(100)),
            ],
            maintenance: vec![Reservation {
                name: "firmware".to_owned(),
                node_list: Some("g[4-5]".to_owned()),
                ..Reservation::default()
            }],
        };

        let polled = |node: &str, partitions: &[&str], by: Option<&str>| Node {
            node: node.to_owned(),
            partitions: partitions.iter().map(|name| (*name).to_owned()).collect(),
            reason_by: by.map(str::to_owned),
            reason_at: by.map(|_| UnixTime(1_700_000_000)),
            ..Node::default()
        };

        let nodes = vec![
            polled("g1", &["all", "gpu"], None),
            polled("g2", &["gpu"], None),
            polled("g3", &["big"], Some("ann")),
        ];

        let status = PollStatus {
            state,
            pending,
            clock_ahead_seconds: -90,
            constrains_devices: Some(false),
            version: Some("22.05.8".to_owned()),
            nodes: Some(nodes),
            records_set_aside: 2,
            unknown_states: [("HIBERNATED".to_owned(), 4)].into(),
            ..PollStatus::default()
        };

        series(&now, &status, Timestamp::from_seconds(10_000))
            .into_iter()
            .map(|(labels, value)| format!("{labels} {value}"))
            .collect()
    }

    /// Returns the series of the nodes of partition `gpu` in these states.
    fn of_states(states: &[&str]) -> Vec<String> {
        let names: Vec<String> = (1..=states.len()).map(|at| format!("g{at}")).collect();

        let now = SchedulerNow {
            nodes: names
                .iter()
                .zip(states)
                .map(|(name, state)| (name.clone(), (*state).to_owned(), None))
                .collect(),
            ..SchedulerNow::default()
        };

        let polled = |node: &String| Node {
            node: node.clone(),
            partitions: vec!["gpu".to_owned()],
            ..Node::default()
        };

        let status = PollStatus {
            state: PollState::Ok,
            nodes: Some(names.iter().map(polled).collect()),
            ..PollStatus::default()
        };
        nodes(&now, &status)
            .into_iter()
            .map(|(labels, value)| format!("{labels} {value}"))
            // Series that are the same for each state are left out.
            .filter(|line| !line.contains("node_partition") && !line.contains("responding"))
            .collect()
    }

    #[test]

    fn an_idle_node_that_is_kept_or_changes_its_power_is_not_free() {
        assert_eq!(
            of_states(&[
                // Each state with one of Slurm's flags, and a word that no version has.
                "IDLE",
                "IDLE+CLOUD",
                "IDLE+PLANNED",
                "IDLE+RESERVED",
                "IDLE+BLOCKED",
                "IDLE+COMPLETING",
                "IDLE+INVALID_REG",
                "IDLE+REBOOT_REQUESTED",
                "DOWN+REBOOT_ISSUED+NOT_RESPONDING",
                "IDLE+POWERING_DOWN",
                "IDLE+CLOUD+NOT_RESPONDING+POWERING_UP",
                "IDLE+CLOUD+POWERED_DOWN",
                "IDLE+MAINTENANCE",
                "FUTURE",
                "QUANTUM",
            ]),
            [
                r#"takt_slurm_node_unavailable{cause="invalid", node="g7", state="IDLE+INVALID_REG"} 1"#,
                r#"takt_slurm_partition_idle_nodes{partition="gpu"} 2"#,
                r#"takt_slurm_nodes{state="blocked"} 1"#,
                r#"takt_slurm_nodes{state="completing"} 1"#,
                r#"takt_slurm_nodes{state="future"} 1"#,
                r#"takt_slurm_nodes{state="idle"} 2"#,
                r#"takt_slurm_nodes{state="maintenance"} 1"#,
                r#"takt_slurm_nodes{state="other"} 1"#,
                r#"takt_slurm_nodes{state="planned"} 1"#,
                r#"takt_slurm_nodes{state="powered_down"} 1"#,
                r#"takt_slurm_nodes{state="powering"} 2"#,
                r#"takt_slurm_nodes{state="rebooting"} 2"#,
                r#"takt_slurm_nodes{state="reserved"} 1"#,
                r#"takt_slurm_nodes{state="unavailable"} 1"#,
            ]
        );
    }

    #[test]
    fn slurm_in_series() {
        let pending = Some(vec![Pending {
            partition: "gpu".to_owned(),
            reason: "Resources".to_owned(),
            jobs: 3,
        }]);
        assert_eq!(
            shown(PollState::Ok, pending.clone()),
            [
                r#"takt_slurm_up{daemon="slurmctld"} 1"#,
                r#"takt_slurm_up{daemon="slurmdbd"} 1"#,
                "takt_slurm_records_set_aside_total 2",
                r#"takt_slurm_jobs_unknown_state{state="HIBERNATED"} 4"#,
                r#"takt_slurm_node_partition{node="g1", partition="all"} 1"#,
                r#"takt_slurm_node_partition{node="g1", partition="gpu"} 1"#,
                r#"takt_slurm_node_responding{node="g1"} 1"#,
                r#"takt_slurm_node_partition{node="g2", partition="gpu"} 1"#,
                r#"takt_slurm_node_unavailable{cause="down", node="g2", state="MIXED*"} 1"#,
                r#"takt_slurm_node_partition{node="g3", partition="big"} 1"#,
                r#"takt_slurm_node_responding{node="g3"} 1"#,
                r#"takt_slurm_node_unavailable{by="ann", cause="drained", node="g3", reason="fan", since="2023-11-14T22:13:20Z", state="IDLE+DRAIN"} 1"#,
                r#"takt_slurm_node_responding{node="g4"} 1"#,
                r#"takt_slurm_partition_idle_nodes{partition="all"} 1"#,
                r#"takt_slurm_partition_idle_nodes{partition="big"} 0"#,
                r#"takt_slurm_partition_idle_nodes{partition="gpu"} 1"#,
                r#"takt_slurm_nodes{state="idle"} 1"#,
                r#"takt_slurm_nodes{state="maintenance"} 1"#,
                r#"takt_slurm_nodes{state="unavailable"} 2"#,
                "takt_slurm_clock_ahead_seconds -90",
                r#"takt_slurm_info{version="22.05.8"} 1"#,
                "takt_slurm_constrains_devices 0",
                "takt_slurm_last_start_timestamp_seconds 100",
                r#"takt_slurm_jobs_pending{partition="gpu", reason="Resources"} 3"#,
                r#"takt_slurm_job_interactive{jobid="9"} 1"#,
                r#"takt_slurm_job_info{account="physics", jobid="12", partition="gpu", user="ada"} 1"#,
                r#"takt_slurm_node_maintenance{node="g4", reservation="firmware"} 1"#,
                r#"takt_slurm_node_maintenance{node="g5", reservation="firmware"} 1"#,
                r#"takt_slurm_job_node_failure{job_name="train", jobid="7", node="g[1-2]", user="ada"} 1"#,
                r#"takt_slurm_job_requeued{jobid="7"} 1"#,
                r#"takt_slurm_node_failures_1d{node="g1"} 1"#,
                r#"takt_slurm_node_failures_1d{node="g2"} 2"#,
            ]
        );
        // slurmctld silent, and an answer without a queue: both hide the queue.
        for down in [
            shown(PollState::ControllerDown, pending.clone()),
            shown(PollState::Ok, None),
        ] {
            assert_eq!(down[0], r#"takt_slurm_up{daemon="slurmctld"} 0"#);
            assert!(
                down.iter()
                    .all(|line| !line.contains("takt_slurm_nodes") && !line.contains("pending")),
                "{down:?}"
            );
        }

        let database = shown(PollState::DatabaseDown, pending);
        assert_eq!(
            database[..2],
            [
                r#"takt_slurm_up{daemon="slurmctld"} 1"#,
                r#"takt_slurm_up{daemon="slurmdbd"} 0"#
            ]
        );

        for absent in [PollState::NoSlurm, PollState::Unconfigured] {
            assert!(shown(absent, None).is_empty());
        }
        assert_eq!(
            shown(PollState::Waiting, None),
            [r#"takt_source_problem{problem="not read yet", source="job_records"} 1"#]
        );
    }
}
