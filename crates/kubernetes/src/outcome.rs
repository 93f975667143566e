//! How far a pod has come: its first start, its restarts, and its end with state and exit code.
//!
//! A pod has ended when its phase is `Succeeded` or `Failed`, or when a watch saw its deletion. Its end is when the last of its
//! containers finished. States are Slurm's.

use crate::context::seconds;
use crate::objects::{
    ContainerStatus, PodObject, StatusCondition, TerminatedState, true_condition,
};
use crate::times::{any_instant, instant};
use takt_jobs::bounded;
use takt_model::UnixTime;
use takt_model::shown::printable;

/// Seconds by which the clocks of a node and of the scheduler may differ.
pub(crate) const CLOCKS_DIFFER_SECONDS: i64 = 300;

/// Grace period of a deletion that does not name one.
const GRACE_SECONDS: u64 = 30;

/// How far a pod has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PodOutcome {
    /// Earliest start of a container. Later restarts hide it from later states of the pod.
    pub first_start: Option<UnixTime>,
    /// Restarts of its containers.
    pub restarts: u64,
    pub end: Option<PodEnd>,
    /// Latest time in the pod's state.
    pub newest: UnixTime,
}

/// The end of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodEnd {
    pub at: UnixTime,
    /// Slurm's state.
    pub state: &'static str,
    /// Exit code and signal, as Slurm writes them (`1:0`).
    pub exit_code: Option<String>,
    /// Whether the pod was deleted before it ended by itself.
    pub was_deleted: bool,
}

/// States by the reason of the condition `DisruptionTarget`.
const DISRUPTIONS: &[(&str, &str)] = &[
    ("PreemptionByScheduler", "PREEMPTED"),
    ("DeletionByTaintManager", "NODE_FAIL"),
    ("DeletionByPodGC", "NODE_FAIL"),
    ("TerminationByKubelet", "NODE_FAIL"),
    ("EvictionByEvictionAPI", "CANCELLED"),
];

/// States by the reason of a pod's status.
const REASONS: &[(&str, &str)] = &[
    ("DeadlineExceeded", "TIMEOUT"),
    ("Evicted", "NODE_FAIL"),
    ("NodeLost", "NODE_FAIL"),
    ("NodeShutdown", "NODE_FAIL"),
    ("Shutdown", "NODE_FAIL"),
    ("Terminated", "NODE_FAIL"),
    ("Preempting", "PREEMPTED"),
    ("OOMKilled", "OUT_OF_MEMORY"),
];

impl PodOutcome {
    /// Returns how far a pod has come, which was created at `created` and holds its node since `start`. `removed` is the latest
    /// time known when a watch saw the pod's deletion.
    ///
    /// # Errors
    /// A time is not one, or the pod has ended and nothing shows when.
    pub fn of(
        pod: &PodObject,
        created: UnixTime,
        start: Option<UnixTime>,
        removed: Option<UnixTime>,
        now: UnixTime,
    ) -> Result<Self, String> {
        let status = &pod.status;
        let times = ContainerTimes::of(pod, now)?;
        let changed = status.conditions.iter().map(|condition| {
            instant(
                condition.last_transition_time.as_deref(),
                "lastTransitionTime",
                now,
            )
        });
        let changed = changed.collect::<Result<Vec<_>, _>>()?;
        let started = instant(status.start_time.as_deref(), "startTime", now)?;
        let newest = changed
            .into_iter()
            .chain([
                started,
                times.first_start,
                times.last_start,
                times.last_finish,
            ])
            .flatten()
            .fold(start.unwrap_or(created), UnixTime::max);

        let mut outcome = Self {
            first_start: times.first_start,
            restarts: restarts(&status.container_statuses),
            end: None,
            newest,
        };
        if !is_over(pod) && removed.is_none() {
            return Ok(outcome);
        }

        let at = outcome.end_time(pod, &times, removed, now)?;
        let at = not_before(at, start.unwrap_or(created))?;
        let deletion = deletion_request(pod)?;
        let was_deleted = deletion.is_some_and(|asked| at >= asked) || !is_over(pod);
        outcome.end = Some(PodEnd {
            at,
            state: end_state(pod, start.is_some(), was_deleted),
            exit_code: exit_code(pod),
            was_deleted,
        });
        Ok(outcome)
    }

    /// Returns when a pod that is over, or gone, ended.
    fn end_time(
        &self,
        pod: &PodObject,
        times: &ContainerTimes,
        removed: Option<UnixTime>,
        now: UnixTime,
    ) -> Result<UnixTime, String> {
        if let Some(finish) = times
            .last_finish
            .filter(|_| times.all_finished || is_over(pod) && !times.has_unknown_end)
        {
            return Ok(finish);
        }

        // It had ended before it was deleted, which may be days later.
        if is_over(pod) {
            let disruption = true_condition(&pod.status.conditions, "DisruptionTarget");
            let ended = disruption.map(|condition| transition(condition, now));
            if let Some(at) = ended.transpose()?.flatten() {
                return Ok(times.last_finish.map_or(at, |finish| finish.max(at)));
            }
            if removed.is_some() || self.first_start.is_none() {
                return Ok(self.newest);
            }
        }

        // No kubelet reported the end of the containers. The API server deletes a pod at the end of its grace period at the latest,
        // unless its node is lost.
        if let Some(floor) = removed {
            let metadata = &pod.metadata;
            let at = any_instant(metadata.deletion_timestamp.as_deref(), "deletionTimestamp")?;
            let at = at.unwrap_or(floor).min(now);
            return Ok(at.max(self.newest));
        }

        let reason = pod.status.reason.as_deref().unwrap_or("no reason given");
        let reason = printable(&bounded(reason, 64));
        Err(format!(
            "the pod has ended ({reason}), and nothing shows when"
        ))
    }
}

fn transition(condition: &StatusCondition, now: UnixTime) -> Result<Option<UnixTime>, String> {
    instant(
        condition.last_transition_time.as_deref(),
        "lastTransitionTime",
        now,
    )
}

/// Times of the containers of a pod.
#[derive(Debug, Default)]
struct ContainerTimes {
    first_start: Option<UnixTime>,
    last_start: Option<UnixTime>,
    last_finish: Option<UnixTime>,
    /// Whether each container has finished, and its status says when.
    all_finished: bool,
    /// Whether a container runs, or has ended at a time that nobody knows.
    has_unknown_end: bool,
}

impl ContainerTimes {
    fn of(pod: &PodObject, now: UnixTime) -> Result<Self, String> {
        let mut times = Self {
            all_finished: !pod.status.container_statuses.is_empty(),
            ..Self::default()
        };

        for container in &pod.status.container_statuses {
            let running = container.state.running.as_ref();
            let starts = [
                running.and_then(|running| running.started_at.as_deref()),
                started_at(container.state.terminated.as_ref()),
                started_at(container.last_state.terminated.as_ref()),
            ];
            for text in starts {
                let start = instant(text, "startedAt", now)?;
                times.last_start = times.last_start.max(start);
                times.first_start = match (times.first_start, start) {
                    (Some(first), Some(start)) => Some(first.min(start)),
                    (first, start) => first.or(start),
                };
            }

            let finish = finished_at(container, now)?;
            times.all_finished &= finish.is_some();
            let has_ended = container.state.terminated.is_some();
            times.has_unknown_end |= running.is_some() || has_ended && finish.is_none();
            times.last_finish = times.last_finish.max(finish);
        }

        // Where an init container failed, the others have not begun.
        for container in &pod.status.init_container_statuses {
            times.last_finish = times.last_finish.max(finished_at(container, now)?);
        }
        Ok(times)
    }
}

fn started_at(terminated: Option<&TerminatedState>) -> Option<&str> {
    terminated.and_then(|terminated| terminated.started_at.as_deref())
}

fn finished_at(container: &ContainerStatus, now: UnixTime) -> Result<Option<UnixTime>, String> {
    let terminated = container.state.terminated.as_ref();
    let text = terminated.and_then(|terminated| terminated.finished_at.as_deref());
    instant(text, "finishedAt", now)
}

fn restarts(containers: &[ContainerStatus]) -> u64 {
    let counts = containers.iter().map(|one| seconds(one.restart_count));
    counts
        .map(Option::unwrap_or_default)
        .fold(0, u64::saturating_add)
}

/// Returns whether all containers of a pod have ended for good.
fn is_over(pod: &PodObject) -> bool {
    matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Returns `at`, or `earliest` if the clocks of the cluster make it a little earlier.
pub(crate) fn not_before(at: UnixTime, earliest: UnixTime) -> Result<UnixTime, String> {
    if earliest - at > CLOCKS_DIFFER_SECONDS {
        return Err(format!(
            "a later step has an earlier time: {} s before it",
            earliest - at
        ));
    }
    Ok(at.max(earliest))
}

/// Returns when the deletion of a pod was requested: its grace period before the deletion.
fn deletion_request(pod: &PodObject) -> Result<Option<UnixTime>, String> {
    let metadata = &pod.metadata;
    let deletion = any_instant(metadata.deletion_timestamp.as_deref(), "deletionTimestamp")?;
    let grace = seconds(metadata.deletion_grace_period_seconds).unwrap_or(GRACE_SECONDS);
    let grace = i64::try_from(grace).unwrap_or(i64::MAX);
    Ok(deletion.map(|deletion| deletion - grace))
}

fn end_state(pod: &PodObject, has_started: bool, was_deleted: bool) -> &'static str {
    let status = &pod.status;
    if status.phase.as_deref() == Some("Succeeded") {
        return "COMPLETED";
    }
    if !has_started && !is_over(pod) {
        return "CANCELLED";
    }

    if let Some(disruption) = true_condition(&status.conditions, "DisruptionTarget") {
        let reason = disruption.reason.as_deref().unwrap_or_default();
        return match known(DISRUPTIONS, reason) {
            Some(state) => state,
            // Kueue hands the reason of its eviction on.
            None if reason.contains("Preempt") => "PREEMPTED",
            None => "CANCELLED",
        };
    }
    let reason = status.reason.as_deref().unwrap_or_default();
    let message = status.message.as_deref().unwrap_or_default();
    // A pod that outgrew its own limit of local storage is evicted, too: that is not the node's fault.
    // Kubelets up to 1.25 say of a node without memory that a container "exceeds its request".
    let is_of_node = message.starts_with("The node was low on");
    if reason == "Evicted" && message.contains("exceed") && !is_of_node {
        return "FAILED";
    }
    if let Some(state) = known(REASONS, reason) {
        return state;
    }

    let ended = terminated(&status.container_statuses);
    let all = ended.chain(terminated(&status.init_container_statuses));
    let mut reasons = all.filter_map(|terminated| terminated.reason.as_deref());
    if reasons.any(|reason| reason == "OOMKilled") {
        return "OUT_OF_MEMORY";
    }

    let mut ended = terminated(&status.container_statuses).peekable();
    let succeeded = ended.peek().is_some() && ended.all(|one| one.exit_code == Some(0));
    match (is_over(pod), was_deleted) {
        (false, _) if succeeded => "COMPLETED",
        (_, true) => "CANCELLED",
        _ => "FAILED",
    }
}

fn known(states: &[(&str, &'static str)], reason: &str) -> Option<&'static str> {
    let found = states.iter().find(|(known, _)| *known == reason);
    found.map(|(_, state)| *state)
}

fn terminated(containers: &[ContainerStatus]) -> impl Iterator<Item = &TerminatedState> {
    containers
        .iter()
        .filter_map(|container| container.state.terminated.as_ref())
}

/// Returns the exit code of the container that failed first, or of those that succeeded. An init container counts if no other
/// one failed: sidecars are killed behind the others.
fn exit_code(pod: &PodObject) -> Option<String> {
    let status = &pod.status;
    let failed = first_failed(&status.container_statuses);
    let failed = failed.or_else(|| first_failed(&status.init_container_statuses));

    let decided = failed.or_else(|| terminated(&status.container_statuses).next())?;
    let code = u32::try_from(decided.exit_code?).ok()?;
    let signal = decided.signal.and_then(|signal| u32::try_from(signal).ok());
    Some(format!("{code}:{}", signal.unwrap_or(0)))
}

fn first_failed(containers: &[ContainerStatus]) -> Option<&TerminatedState> {
    let failed = terminated(containers).filter(|one| one.exit_code.is_some_and(|code| code != 0));
    // Times in UTC and of one form are in order as texts.
    failed.min_by(|one, other| one.finished_at.cmp(&other.finished_at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const CREATED: UnixTime = UnixTime(1_790_000_000);
    const NOW: UnixTime = UnixTime(1_790_100_000);

    fn at(seconds: i64) -> String {
        jiff::Timestamp::from_second(CREATED.0 + seconds)
            .unwrap()
            .to_string()
    }

    fn finished(from: i64, to: i64, code: i64, reason: &str) -> Value {
        json!({"state": {"terminated": {
            "startedAt": at(from), "finishedAt": at(to), "exitCode": code, "reason": reason,
        }}})
    }

    fn running(from: i64) -> Value {
        json!({"state": {"running": {"startedAt": at(from)}}})
    }

    /// The outcome of a pod that was scheduled after ten seconds.
    fn outcome(pod: Value, removed: Option<i64>) -> Result<PodOutcome, String> {
        let pod: PodObject = serde_json::from_value(pod).unwrap();
        let removed = removed.map(|seconds| CREATED + seconds);
        PodOutcome::of(&pod, CREATED, Some(CREATED + 10), removed, NOW)
    }

    /// End in seconds, state and exit code.
    fn end(pod: Value, removed: Option<i64>) -> Option<(i64, &'static str, String)> {
        let end = outcome(pod, removed).unwrap().end?;
        Some((
            end.at - CREATED,
            end.state,
            end.exit_code.unwrap_or_default(),
        ))
    }

    fn pod(phase: &str, containers: Value) -> Value {
        json!({"status": {"phase": phase, "containerStatuses": containers}})
    }

    #[test]
    fn a_pod_ends_with_the_last_of_its_containers() {
        let two = json!([
            finished(20, 100, 0, "Completed"),
            finished(25, 160, 0, "Completed")
        ]);
        assert_eq!(
            end(pod("Succeeded", two.clone()), None),
            Some((160, "COMPLETED", "0:0".into()))
        );
        let found = outcome(pod("Succeeded", two), None).unwrap();
        assert_eq!(found.first_start, Some(CREATED + 20));
        assert_eq!(
            end(
                pod(
                    "Running",
                    json!([finished(20, 100, 0, "Completed"), running(25)])
                ),
                None
            ),
            None
        );
        assert_eq!(end(pod("Pending", json!([])), None), None);
    }

    #[test]
    fn the_exit_code_is_that_of_the_container_that_failed_first() {
        let failed = json!([
            finished(20, 90, 143, "Error"),
            finished(20, 80, 3, "Error"),
            finished(20, 95, 0, "Completed")
        ]);
        assert_eq!(
            end(pod("Failed", failed), None),
            Some((95, "FAILED", "3:0".into()))
        );
        let mut killed = finished(20, 90, 137, "Error");
        killed["state"]["terminated"]["signal"] = 9.into();
        assert_eq!(
            end(pod("Failed", json!([killed])), None),
            Some((90, "FAILED", "137:9".into()))
        );

        let init = json!({"status": {
            "phase": "Failed", "initContainerStatuses": [finished(12, 15, 1, "Error")],
            "containerStatuses": [{"state": {"waiting": {"reason": "PodInitializing"}}}],
        }});
        assert_eq!(end(init, None), Some((15, "FAILED", "1:0".into())));
    }

    #[test]
    fn reasons_become_states() {
        let of_reason = |reason: &str| {
            let mut pod = pod("Failed", json!([finished(20, 90, 137, "Error")]));
            pod["status"]["reason"] = reason.into();
            end(pod, None).unwrap().1
        };
        for (reason, state) in [
            ("DeadlineExceeded", "TIMEOUT"),
            ("Evicted", "NODE_FAIL"),
            ("NodeLost", "NODE_FAIL"),
            ("Shutdown", "NODE_FAIL"),
            ("Preempting", "PREEMPTED"),
            ("Other", "FAILED"),
        ] {
            assert_eq!(of_reason(reason), state, "{reason}");
            assert!(takt_jobs::is_known_state(state));
        }

        let evicted = |message: &str| {
            let mut pod = pod("Failed", json!([finished(20, 90, 137, "Error")]));
            pod["status"]["reason"] = "Evicted".into();
            pod["status"]["message"] = message.into();
            end(pod, None).unwrap().1
        };
        assert_eq!(
            evicted(
                "The node was low on resource: memory. Container main was using 9Gi, request is 1Gi. "
            ),
            "NODE_FAIL"
        );
        assert_eq!(
            evicted(
                "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "
            ),
            "FAILED"
        );

        let disrupted = |reason: &str| {
            let mut pod = pod("Failed", json!([finished(20, 90, 143, "Error")]));
            pod["status"]["conditions"] = json!([
                {"type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": at(60)},
            ]);
            end(pod, None).unwrap().1
        };
        for (reason, state) in [
            ("PreemptionByScheduler", "PREEMPTED"),
            ("DeletionByTaintManager", "NODE_FAIL"),
            ("DeletionByPodGC", "NODE_FAIL"),
            ("TerminationByKubelet", "NODE_FAIL"),
            ("EvictionByEvictionAPI", "CANCELLED"),
            ("WorkloadPreempted", "PREEMPTED"),
            ("Unheard", "CANCELLED"),
        ] {
            assert_eq!(disrupted(reason), state, "{reason}");
        }

        let killed = json!([
            finished(20, 90, 137, "OOMKilled"),
            finished(20, 95, 143, "Error")
        ]);
        assert_eq!(end(pod("Failed", killed), None).unwrap().1, "OUT_OF_MEMORY");
    }

    #[test]
    fn a_deleted_pod_ends_with_its_containers_or_its_grace_period() {
        let deleted = |phase: &str, containers: Value, seconds: i64, grace: i64| {
            let mut pod = pod(phase, containers);
            pod["metadata"] =
                json!({"deletionTimestamp": at(seconds), "deletionGracePeriodSeconds": grace});
            pod
        };
        // Asked to end at 100, ended by SIGTERM at 102.
        let stopped = json!([finished(20, 102, 143, "Error")]);
        assert_eq!(
            end(deleted("Failed", stopped, 130, 30), Some(102)),
            Some((102, "CANCELLED", "143:0".into()))
        );
        // It had failed before.
        let failed = json!([finished(20, 50, 1, "Error")]);
        assert_eq!(
            end(deleted("Failed", failed, 130, 30), Some(102)),
            Some((50, "FAILED", "1:0".into()))
        );
        // Still running when it was last seen: it ended within its grace period, which counts as a whole.
        assert_eq!(
            end(deleted("Running", json!([running(20)]), 130, 30), Some(102)),
            Some((130, "CANCELLED", "".into()))
        );
        // Being deleted, and not gone: it still holds its node.
        assert_eq!(
            end(deleted("Running", json!([running(20)]), 130, 30), None),
            None
        );
        // No deletion time: not before the latest time that the watch has shown.
        assert_eq!(
            end(pod("Running", json!([running(20)])), Some(700)),
            Some((700, "CANCELLED", "".into()))
        );
        // A grace period that lasts beyond now ends now.
        let long = deleted("Running", json!([running(20)]), 900_000, 900_000);
        assert_eq!(end(long, Some(102)).unwrap().0, NOW - CREATED);
    }

    #[test]
    fn an_end_is_never_invented() {
        let mut evicted = pod("Failed", json!([]));
        evicted["status"]["reason"] = "Evicted".into();
        evicted["status"]["startTime"] = at(12).into();
        // Nothing ran, so it ended with its latest known time.
        assert_eq!(
            end(evicted.clone(), None),
            Some((12, "NODE_FAIL", "".into()))
        );

        // It ran, and its containers' ends are unknown.
        evicted["status"]["containerStatuses"] = json!([{
            "state": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": at(20), "finishedAt": null}},
        }]);
        let error = outcome(evicted.clone(), None).unwrap_err();
        assert_eq!(error, "the pod has ended (Evicted), and nothing shows when");

        evicted["status"]["conditions"] = json!([
            {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "lastTransitionTime": at(300)},
        ]);
        assert_eq!(end(evicted, None), Some((300, "NODE_FAIL", "137:0".into())));
    }

    #[test]
    fn clocks_may_differ_a_little() {
        let ended = |seconds| {
            outcome(
                pod("Failed", json!([finished(seconds, seconds, 1, "Error")])),
                None,
            )
        };
        assert_eq!(ended(-200).unwrap().end.unwrap().at, CREATED + 10);
        assert!(ended(-1000).unwrap_err().contains("earlier time"));
        let epoch = json!([{"state": {"terminated": {"exitCode": 0, "startedAt": "1970-01-01T00:00:00Z", "finishedAt": at(90)}}}]);
        let found = outcome(pod("Succeeded", epoch), None).unwrap();
        assert_eq!(
            (found.first_start, found.end.unwrap().at),
            (None, CREATED + 90)
        );
    }

    #[test]
    fn restarts_are_counted_and_the_first_start_is_kept() {
        let restarted = json!([{
            "restartCount": 3,
            "state": {"running": {"startedAt": at(500)}},
            "lastState": {"terminated": {"startedAt": at(300), "finishedAt": at(400), "exitCode": 1}},
        }, {"restartCount": 1, "state": {"running": {"startedAt": at(350)}}}]);
        let found = outcome(pod("Running", restarted), None).unwrap();
        assert_eq!(found.restarts, 4);
        assert_eq!(found.first_start, Some(CREATED + 300));
        assert_eq!(found.newest, CREATED + 500);
        assert_eq!(found.end, None, "it still holds its GPUs");
    }
}
