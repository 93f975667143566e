//! Files as kubectl writes them, and what becomes of them.

use super::*;
use crate::names::NameSources;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::io::BufReader;
use takt_jobs::JobRun;

const TWO_TEAMS: &str = include_str!("../../fixtures/made-up/two-teams.json");

/// 2025-03-04 in UTC.
const NOW: UnixTime = UnixTime(1_741_046_400);

/// 2025-03-03T08:00:00Z.
const EIGHT: UnixTime = UnixTime(1_740_988_800);

fn options() -> PodOptions {
    PodOptions {
        cluster: "k8s".to_owned(),
        users: NameSources::of_users(),
        accounts: NameSources::of_accounts(),
        now: NOW,
    }
}

/// What a text has: runs, pods that reserve nothing, and rejects.
#[derive(Debug, Default)]
struct Contents {
    runs: Vec<JobRun>,
    nothing: usize,
    rejects: Vec<String>,
    restarts: u64,
}

impl Contents {
    fn run(&self, job_id: &str) -> &JobRun {
        let run = self.runs.iter().find(|run| run.job_id == job_id);
        run.unwrap_or_else(|| panic!("no {job_id} in {self:#?}"))
    }
}

fn read_with(text: &str, options: PodOptions) -> Result<Contents, ObjectReaderError> {
    let mut reader = ObjectReader::new(
        BufReader::with_capacity(61, text.as_bytes()),
        "pods.json",
        options,
    );
    let mut contents = Contents::default();
    for entry in reader.by_ref() {
        match entry? {
            (_, Entry::Run(run)) => contents.runs.push(run),
            (_, Entry::Step) => contents.nothing += 1,
            (line, Entry::Rejected(reject)) => {
                assert_eq!(reject.line, Some(line));
                contents
                    .rejects
                    .push(format!("{line}: {}: {}", reject.text, reject.reason));
            }
            (_, Entry::Tasks { .. }) => panic!("pods are no arrays"),
        }
    }
    contents.restarts = reader.restarts();
    Ok(contents)
}

fn read(text: &str) -> Contents {
    read_with(text, options()).unwrap()
}

/// A pod that was created at eight and holds a GPU since ten seconds later.
fn pod(name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "vision", "name": name, "uid": uid, "creationTimestamp": "2025-03-03T08:00:00Z"},
        "spec": {
            "nodeName": "gpu-1",
            "containers": [{"resources": {"requests": {"cpu": "2"}, "limits": {"nvidia.com/gpu": "1"}}}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2025-03-03T08:00:10Z"}],
            "containerStatuses": [{"state": {"running": {"startedAt": "2025-03-03T08:00:30Z"}}}],
        },
    })
}

fn finished(mut pod: Value, at: &str) -> Value {
    pod["status"]["phase"] = "Succeeded".into();
    pod["status"]["containerStatuses"] = json!([{"state": {"terminated": {
        "startedAt": "2025-03-03T08:00:30Z", "finishedAt": at, "exitCode": 0, "reason": "Completed",
    }}}]);
    pod
}

fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

/// The sums of the fixture, by hand:
///
/// | pod | GPUs | CPUs | held | GPU-seconds | CPU-seconds |
/// | --- | --- | --- | --- | --- | --- |
/// | `pretrain-w-0` | 4 | 8 | 08:00:10 to 09:00:10 | 14,400 | 28,800 |
/// | `pretrain-w-1` | 4 | 4.5 → 5 | 08:00:10 to 08:30:10 | 7,200 | 9,000 |
/// | `sweep-7` | 1 | 4 | 08:00:00 to 10:00:00 | 7,200 | 28,800 |
/// | `infer` | a time slice | 2 | 08:00:00 to 09:00:00 | 0 | 7,200 |
#[test]
fn the_sums_of_a_list_are_those_by_hand() {
    let contents = read(TWO_TEAMS);
    assert_eq!((contents.runs.len(), contents.nothing), (6, 1));
    let [reject] = &contents.rejects[..] else {
        panic!("{:?}", contents.rejects);
    };
    assert!(
        reject.ends_with(
            "Pod audio/broken-0: cpu: '-1' is not an amount: expected one that is not negative"
        ),
        "{reject}"
    );

    let mut gpu_seconds = 0;
    let mut cpu_seconds = 0;
    for run in contents.runs.iter().filter(|run| run.end.is_some()) {
        let held = run.end.unwrap().since(run.start.unwrap());
        gpu_seconds += run.gpus.unwrap() * held;
        cpu_seconds += run.cpus.unwrap() * held;
    }
    assert_eq!((gpu_seconds, cpu_seconds), (28_800, 73_800));
    assert_eq!(contents.restarts, 3);
    assert!(
        contents
            .runs
            .iter()
            .all(|run| takt_jobs::is_known_state(&run.state))
    );
}

#[test]
fn a_pod_of_a_job_has_all_its_facts() {
    let contents = read(TWO_TEAMS);
    let expected = JobRun {
        cluster: "k8s".into(),
        job_id: "vision/pretrain-w-1-fghij".into(),
        submit: EIGHT,
        eligible: Some(EIGHT),
        start: Some(EIGHT + 10),
        end: Some(EIGHT + 1810),
        state: "OUT_OF_MEMORY".into(),
        user: "ann@example.org".into(),
        account: "vision".into(),
        // Of its Job, which has the limit, too.
        partition: "batch".into(),
        qos: Some("high".into()),
        // The Job's owner.
        name: Some("pretrain".into()),
        nodes: Some(1),
        // 4 and a sidecar of 0.5.
        cpus: Some(5),
        gpus: Some(4),
        gpu_model: Some("NVIDIA-A100-SXM4-80GB".into()),
        mem_bytes: Some((32 << 30) + (256 << 20)),
        alloc_tres: Some(
            "cpu=4.5,mem=33024M,node=1,gres/gpu=4,gres/gpu:NVIDIA-A100-SXM4-80GB=4".into(),
        ),
        req_tres: Some(
            "cpu=4.5,mem=33024M,node=1,gres/gpu=4,gres/gpu:NVIDIA-A100-SXM4-80GB=4".into(),
        ),
        node_list: Some("gpu-1.example.org".into()),
        // From the first start of a container.
        elapsed: Some(1740),
        timelimit: Some(7200),
        exit_code: Some("137:0".into()),
        raw_job_id: Some("00000015-1111-4222-8333-444455556666".into()),
        ..JobRun::default()
    };
    assert_eq!(contents.run("vision/pretrain-w-1-fghij"), &expected);
}

#[test]
fn shares_waiting_and_running_pods() {
    let contents = read(TWO_TEAMS);
    let share = contents.run("audio/notebook-0");
    assert_eq!((share.gpus, share.gpu_model.as_deref()), (Some(0), None));
    assert_eq!(
        share.alloc_tres.as_deref(),
        Some("cpu=1.5,mem=8G,node=1,gres/nvidia.com/mig-1g.5gb=1")
    );
    assert_eq!((share.state.as_str(), share.end), ("RUNNING", None));
    assert_eq!(
        (share.user.as_str(), share.name.as_deref()),
        ("audio:trainer", Some("notebook"))
    );
    assert_eq!(
        share.partition, "audio",
        "without a queue it is the namespace"
    );

    // The node says that its GPUs are time slices.
    let slice = contents.run("audio/infer-6b8c9d-xk2lp");
    assert_eq!(slice.gpus, Some(0));
    assert_eq!(
        slice.alloc_tres.as_deref(),
        Some("cpu=2,mem=4G,node=1,gres/nvidia.com/gpu=1")
    );
    assert_eq!(
        slice.name.as_deref(),
        Some("infer"),
        "the Deployment, without the hash of its ReplicaSet"
    );

    let waiting = contents.run("audio/big-0");
    assert_eq!(
        (waiting.state.as_str(), waiting.start, waiting.gpus),
        ("PENDING", None, None)
    );
    assert_eq!(
        waiting.req_tres.as_deref(),
        Some("cpu=64,mem=512G,node=1,gres/gpu=8")
    );

    let preempted = contents.run("vision/sweep-7");
    assert_eq!(
        (preempted.state.as_str(), preempted.user.as_str()),
        ("PREEMPTED", "bob")
    );
    assert_eq!(
        preempted.start.unwrap() - preempted.submit,
        30,
        "waiting time"
    );
}

#[test]
fn all_forms_of_a_file_have_the_same_runs() {
    let list: Value = serde_json::from_str(TWO_TEAMS).unwrap();
    let items = list["items"].as_array().unwrap();
    let expected = read(TWO_TEAMS).runs;
    let lines: String = items.iter().map(|item| format!("{item}\n")).collect();
    let pretty: String = items.iter().map(|item| format!("{item:#}\n")).collect();
    let events: String = items.iter().map(|item| event("ADDED", item)).collect();
    // As `kubectl get --watch --output-watch-events` writes them.
    let pretty_events = items
        .iter()
        .map(|item| json!({"type": "ADDED", "object": item}));
    let pretty_events: String = pretty_events.map(|event| format!("{event:#}\n")).collect();
    // Pods first: the objects around them come later.
    let backwards: String = items.iter().rev().map(|item| format!("{item}\n")).collect();
    for text in [
        lines,
        pretty,
        events,
        pretty_events,
        backwards,
        list.to_string(),
    ] {
        let mut runs = read(&text).runs;
        runs.sort_by(|one, other| one.raw_job_id.cmp(&other.raw_job_id));
        assert_eq!(runs, expected, "{:.200}", text);
    }

    // An API server's own list names the kind once, before its items.
    let mut bare = pod("a", "u1");
    for key in ["kind", "apiVersion"] {
        bare.as_object_mut().unwrap().remove(key);
    }
    let typed = format!("{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"items\":[{bare}]}}");
    assert_eq!(read(&typed).runs.len(), 1);
    assert_eq!(
        read(&format!("[{bare}]")).runs.len(),
        1,
        "a pod is known by its containers"
    );
}

#[test]
fn a_watch_becomes_one_run_for_each_pod() {
    let mut restarted = pod("a", "u1");
    restarted["status"]["containerStatuses"] = json!([{
        "restartCount": 5,
        "state": {"running": {"startedAt": "2025-03-03T09:00:00Z"}},
        "lastState": {"terminated": {"startedAt": "2025-03-03T08:50:00Z", "exitCode": 1}},
    }]);
    let mut waiting = pod("a", "u1");
    waiting["spec"]["nodeName"] = Value::Null;
    waiting["status"] = json!({"phase": "Pending"});
    let done = finished(restarted.clone(), "2025-03-03T10:00:00Z");

    let text = event("ADDED", &waiting)
        + &event("MODIFIED", &pod("a", "u1"))
        + &event("MODIFIED", &restarted)
        + &event("BOOKMARK", &json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}}))
        + &event("MODIFIED", &done)
        + &event("DELETED", &done)
        // An old state behind a newer one changes nothing.
        + &event("MODIFIED", &pod("a", "u1"));
    let contents = read(&text);
    assert_eq!((contents.runs.len(), contents.rejects.len()), (1, 0));
    let run = contents.run("vision/a");
    assert_eq!(
        (run.state.as_str(), run.end),
        ("COMPLETED", Some(EIGHT + 7200))
    );
    // Since the first start, which the last state does not have any more.
    assert_eq!(run.elapsed, Some(7200 - 30));
}

#[test]
fn a_watch_sees_deletions_and_errors() {
    let mut deleted = pod("a", "u1");
    deleted["metadata"]["deletionTimestamp"] = "2025-03-03T08:30:00Z".into();
    deleted["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    let gone = json!({"kind": "Status", "apiVersion": "v1", "code": 410, "message": "too old resource version: 1 (2)"});
    let contents = read(
        &(event("MODIFIED", &pod("a", "u1"))
            + &event("DELETED", &deleted)
            + &event("ERROR", &gone)),
    );
    let run = contents.run("vision/a");
    assert_eq!(
        (run.state.as_str(), run.end),
        ("CANCELLED", Some(EIGHT + 1800))
    );
    assert_eq!(
        contents.rejects,
        [
            "3: Status without a name: the watch ended: too old resource version: 1 (2); what happened after it is missing"
        ]
    );

    // Without a deletion time, the latest time in the file before the deletion.
    let later = finished(pod("b", "u2"), "2025-03-03T09:00:00Z");
    let text = event("ADDED", &pod("a", "u1"))
        + &event("ADDED", &later)
        + &event("DELETED", &pod("a", "u1"));
    assert_eq!(read(&text).run("vision/a").end, Some(EIGHT + 3600));

    let odd = event("ADDED", &pod("a", "u1")) + &event("RESYNC", &pod("b", "u2"));
    assert!(read(&odd).rejects[0].contains("'RESYNC' is not an event of a watch"));
}

#[test]
fn a_broken_object_is_set_aside_with_its_line_and_the_rest_is_read() {
    let no_uid =
        json!({"kind": "Pod", "metadata": {"namespace": "vision", "name": "manifest"}, "spec": {}});
    let mut wrong = pod("wrong", "u3");
    wrong["spec"]["containers"] = "none".into();
    let torn = &pod("torn", "u4").to_string()[..150];
    let text = format!(
        "{}\n{no_uid}\n{wrong:#}\n{torn}\n{}\n{{\"kind\": \"Pod\",\n \"metadata\": }}\n{}",
        pod("a", "u1"),
        pod("b", "u2"),
        &pod("last", "u5").to_string()[..40]
    );
    let contents = read(&text);
    let mut ids: Vec<&str> = contents
        .runs
        .iter()
        .map(|run| run.job_id.as_str())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, ["vision/a", "vision/b"]);

    let line_of_torn = text.lines().position(|line| line == torn).unwrap() + 1;
    let said = &contents.rejects;
    assert_eq!(
        said[0],
        "2: Pod vision/manifest: metadata.uid is missing; objects of an API server have it, manifests have not"
    );
    assert!(
        said[1].starts_with("3: ")
            && said[1].contains("invalid type: string \"none\", expected a sequence"),
        "{said:?}"
    );
    assert!(
        said[2].starts_with(&format!("{line_of_torn}: ")) && said[2].contains("cut off"),
        "{said:?}"
    );
    // The line of the mistake, not of the object.
    assert!(
        said[3].contains(&format!("line {}: ", line_of_torn + 3)),
        "{said:?}"
    );
    assert!(
        said[4].ends_with("the file ends within an object or a list"),
        "{said:?}"
    );
    assert_eq!(said.len(), 5);
}

#[test]
fn what_is_no_json_of_kubernetes_is_one_error() {
    for (text, found) in [
        ("", "an empty file"),
        ("apiVersion: v1\nkind: Pod\n", "'apiVersion: v1 kind: Pod'"),
        ("JobID|User\n1|ann\n", "'JobID|User 1|ann'"),
    ] {
        let error = read_with(text, options()).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "pods.json is not JSON of Kubernetes: expected what 'kubectl get pods -A -o json' prints, found {found}"
            )
        );
    }
    // A warning before the objects is one row.
    let contents = read(&format!("Warning: v1 is old\n{}", pod("a", "u1")));
    assert_eq!((contents.runs.len(), contents.rejects.len()), (1, 1));
    // An empty list is a file without pods.
    assert_eq!(read("{\"kind\": \"List\", \"items\": []}{}").runs.len(), 0);
    let refused = json!({"kind": "Status", "status": "Failure", "message": "pods is forbidden"});
    assert!(read(&refused.to_string()).rejects[0].contains("pods is forbidden"));
}

#[test]
fn names_come_round_again() {
    // At another time it is another run; in the same second the uid tells them apart, in any order.
    let mut again = pod("a", "u1");
    again["metadata"]["creationTimestamp"] = "2025-03-03T08:00:05Z".into();
    let twin = pod("a", "0123456789");
    for text in [
        format!("{}{}{twin}", pod("a", "u9"), again),
        format!("{twin}{again}{}", pod("a", "u9")),
    ] {
        let mut ids: Vec<(String, i64)> = read(&text)
            .runs
            .into_iter()
            .map(|run| (run.job_id, run.submit - EIGHT))
            .collect();
        ids.sort_unstable();
        let expected = [("vision/a", 0), ("vision/a", 5), ("vision/a@u9", 0)];
        assert_eq!(ids, expected.map(|(id, submit)| (id.to_owned(), submit)));
    }
}

#[test]
fn kueue_says_queue_admission_eviction_and_limit() {
    let workload = |reason: &str| {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"namespace": "vision", "name": "pod-a", "uid": "w1",
                "ownerReferences": [{"kind": "Pod", "name": "a", "uid": "u1", "controller": true}]},
            "spec": {"queueName": "gpus", "maximumExecutionTimeSeconds": 600},
            "status": {"conditions": [
                {"type": "Admitted", "status": "True", "reason": "Admitted", "lastTransitionTime": "2025-03-03T08:00:04Z"},
                {"type": "Evicted", "status": "True", "reason": reason, "lastTransitionTime": "2025-03-03T08:29:00Z"},
            ]},
        })
    };
    let mut deleted = pod("a", "u1");
    deleted["metadata"]["deletionTimestamp"] = "2025-03-03T08:30:00Z".into();
    for (reason, state) in [
        ("Preempted", "PREEMPTED"),
        ("MaximumExecutionTimeExceeded", "TIMEOUT"),
        ("NodeFailures", "NODE_FAIL"),
        ("Deactivated", "CANCELLED"),
    ] {
        let text = event("DELETED", &deleted) + &workload(reason).to_string();
        let contents = read(&text);
        let run = contents.run("vision/a");
        assert_eq!(run.state, state, "{reason}");
        assert_eq!((run.partition.as_str(), run.timelimit), ("gpus", Some(600)));
        assert_eq!(run.eligible, Some(EIGHT + 4));
    }

    // Another group's kind of the same name is not Kueue's.
    let other = workload("Preempted")
        .to_string()
        .replace("kueue.x-k8s.io", "example.org");
    assert_eq!(
        read(&(event("DELETED", &deleted) + &other))
            .run("vision/a")
            .partition,
        "vision"
    );

    // A pod behind gates waits for Kueue, not for resources.
    let mut gated = pod("g", "u7");
    gated["spec"]["nodeName"] = Value::Null;
    gated["status"] = json!({"phase": "Pending", "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastTransitionTime": "2025-03-03T08:00:00Z"},
    ]});
    assert_eq!(read(&gated.to_string()).run("vision/g").eligible, None);
}

#[test]
fn a_job_at_its_deadline_ends_its_pods() {
    let mut deleted = pod("a", "u1");
    deleted["metadata"]["deletionTimestamp"] = "2025-03-03T08:30:00Z".into();
    deleted["metadata"]["ownerReferences"] =
        json!([{"kind": "Job", "name": "train", "uid": "j1", "controller": true}]);
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"uid": "j1", "name": "train", "namespace": "vision"},
        "spec": {"activeDeadlineSeconds": 1800},
        "status": {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]},
    });
    let contents = read(&(event("DELETED", &deleted) + &job.to_string()));
    let run = contents.run("vision/a");
    assert_eq!(
        (run.state.as_str(), run.timelimit, run.name.as_deref()),
        ("TIMEOUT", Some(1800), Some("train"))
    );
}

#[test]
fn roots_are_named_by_labels_owners_or_the_pod() {
    let named = |labels: Value, owner: Option<(&str, &str)>| {
        let mut pod = pod("p-0", "u1");
        pod["metadata"]["labels"] = labels;
        if let Some((kind, name)) = owner {
            pod["metadata"]["ownerReferences"] =
                json!([{"kind": kind, "name": name, "uid": "o", "controller": true}]);
        }
        read(&pod.to_string()).runs[0].name.clone().unwrap()
    };
    for (labels, owner, expected) in [
        (json!({}), None, "p-0"),
        (json!({}), Some(("StatefulSet", "web")), "web"),
        (
            json!({"pod-template-hash": "abc"}),
            Some(("ReplicaSet", "web-abc")),
            "web",
        ),
        (
            json!({"training.kubeflow.org/job-name": "bert", "batch.kubernetes.io/job-name": "j"}),
            Some(("PyTorchJob", "bert")),
            "bert",
        ),
        (
            json!({"ray.io/cluster": "ray-1"}),
            Some(("RayCluster", "ray-1")),
            "ray-1",
        ),
        (
            json!({"jobset.sigs.k8s.io/jobset-name": "set", "batch.kubernetes.io/job-name": "set-w-0"}),
            Some(("Job", "set-w-0")),
            "set",
        ),
        (
            json!({"leaderworkerset.sigs.k8s.io/name": "lws"}),
            Some(("StatefulSet", "lws-0")),
            "lws",
        ),
        (
            json!({"kueue.x-k8s.io/pod-group-name": "group"}),
            None,
            "group",
        ),
    ] {
        assert_eq!(named(labels.clone(), owner), expected, "{labels}");
    }
}

#[test]
fn hostile_values_are_refused_bounded_or_ignored() {
    let with = |path: &str, value: Value| {
        let mut pod = pod("a", "u1");
        *pod.pointer_mut(path).unwrap() = value;
        read(&pod.to_string())
    };
    for (path, value, reason) in [
        (
            "/metadata/name",
            json!("a\u{1b}[2J"),
            "metadata.name 'a\u{fffd}[2J' is not a name",
        ),
        (
            "/metadata/name",
            json!("../../etc"),
            "is not a name of Kubernetes",
        ),
        (
            "/metadata/name",
            json!("x".repeat(10_000)),
            "is not a name of Kubernetes",
        ),
        ("/metadata/uid", json!(""), "metadata.uid is missing"),
        (
            "/spec/nodeName",
            json!("gpu[1-9]"),
            "spec.nodeName 'gpu[1-9]' is not a name",
        ),
        (
            "/metadata/creationTimestamp",
            json!(null),
            "creationTimestamp is missing",
        ),
        (
            "/metadata/creationTimestamp",
            json!("1970-01-02T00:00:00Z"),
            "is before 2014-06-06",
        ),
        (
            "/metadata/creationTimestamp",
            json!("9999-01-01T00:00:00Z"),
            "is in the future",
        ),
        (
            "/metadata/creationTimestamp",
            json!("2025-03-03T12:00:00Z"),
            "earlier time",
        ),
    ] {
        let contents = with(path, value.clone());
        let said = contents.rejects.join("\n");
        assert!(
            contents.runs.is_empty() && said.contains(reason),
            "{value}: {said}"
        );
        assert!(said.len() < 500 && !said.contains('\u{1b}'), "{said}");
    }

    let mut labelled = pod("a", "u1");
    labelled["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "a,b"});
    assert!(read(&labelled.to_string()).rejects[0].contains("'a,b' is not a name"));

    // A large annotation is neither kept nor shown.
    let mut large = pod("a", "u1");
    large["metadata"]["annotations"] =
        json!({"note": "x".repeat(1 << 20), "owner": format!("e{}ve", "\u{202e}")});
    let contents = read(&large.to_string());
    assert_eq!(contents.runs[0].user, "e\u{fffd}ve");
    assert!(format!("{:?}", contents.runs[0]).len() < 2000);
}

#[test]
fn secrets_of_an_object_are_not_in_its_reject() {
    let mut broken = pod("a", "u1");
    broken["spec"]["containers"][0]["env"] = json!([{"name": "TOKEN", "value": "hunter2"}]);
    broken["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "-1".into();
    let text = broken.to_string();
    for text in [&text[..], &text[..text.len() - 20]] {
        let said = read(&format!("{text}\n{{}}")).rejects.join("\n");
        assert!(!said.is_empty() && !said.contains("hunter2"), "{said}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_to_its_end(
        cut in 0..TWO_TEAMS.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..10_usize), 0..6),
    ) {
        const PIECES: [&str; 10] = ["", "\"", "{", "}", "[", "\n", "null", "-1e999", "\u{0}", "ä"];
        let mut text: Vec<char> = TWO_TEAMS[..cut].chars().collect();
        for (at, piece) in edits {
            if !text.is_empty() {
                let at = at.index(text.len());
                text.splice(at..=at, PIECES[piece].chars());
            }
        }
        let text: String = text.into_iter().collect();
        if let Ok(contents) = read_with(&text, options()) {
            for run in contents.runs {
                prop_assert!(run.start.is_none_or(|start| start >= run.submit));
                prop_assert!(run.end.is_none_or(|end| end >= run.start.unwrap_or(run.submit)));
            }
        }
    }
}
