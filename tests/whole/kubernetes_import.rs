//! `takt import kubernetes`: from the file to jobs and reports.

use crate::support::takt::{Run, Takt};

/// Its sums are in the tests of takt-kubernetes.
const TWO_TEAMS: &str = include_str!("../../crates/kubernetes/fixtures/made-up/two-teams.json");

fn import(takt: &Takt, file: &str, more: &[&str]) -> Run {
    let import = [
        "import",
        "kubernetes",
        file,
        "--cluster",
        "k8s",
        "--format",
        "json",
    ];
    takt.run(import.iter().chain(more))
}

/// The summary of an import that sets one object aside.
#[track_caller]
fn import_in_part(takt: &Takt, file: &str, more: &[&str]) -> serde_json::Value {
    let run = import(takt, file, more);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(
        run.stderr.contains("rows that were set aside: 1 (lines "),
        "{}",
        run.stderr
    );
    serde_json::from_str(&run.stdout).unwrap()
}

fn figures(summary: &serde_json::Value) -> [u64; 5] {
    [
        "runs_inserted",
        "runs_updated",
        "unchanged",
        "steps_skipped",
        "rejected",
    ]
    .map(|name| summary[name].as_u64().unwrap())
}

#[test]
fn pods_are_imported_once_and_reported() {
    let takt = Takt::fresh();
    takt.file("takt.toml", "timezone = \"UTC\"\n");
    let config = ["--config", "takt.toml"];
    takt.file("pods.json", TWO_TEAMS);

    let first = import_in_part(&takt, "pods.json", &config);
    assert_eq!(figures(&first), [6, 0, 0, 1, 1], "{first}");
    assert_eq!(first["running"], 1);
    let second = import_in_part(&takt, "pods.json", &config);
    assert_eq!(figures(&second), [0, 0, 6, 1, 1], "{second}");

    // Whole GPUs only: the MIG share and the time slice are no GPU-hours.
    let report = [
        "report",
        "usage",
        "--from",
        "2025-03-03",
        "--to",
        "2025-03-04",
        "--by",
        "account,user",
        "--format",
        "json",
    ];
    let report = takt.run(report.iter().chain(&config)).ok();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let gpu_seconds = |user: &str| {
        let rows = report["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["user"] == user);
        row.unwrap_or_else(|| panic!("no {user}: {report:#}"))["gpu_seconds"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(gpu_seconds("ann@example.org"), 6 * 3600);
    assert_eq!(gpu_seconds("bob"), 2 * 3600);
    assert_eq!(gpu_seconds("audio:trainer"), 0);

    let jobs = takt
        .run(["jobs", "--format", "csv"].iter().chain(&config))
        .ok();
    for part in [
        "vision/pretrain-w-1-fghij",
        "OUT_OF_MEMORY",
        "audio/big-0",
        "PENDING",
        "PREEMPTED",
    ] {
        assert!(jobs.contains(part), "no {part}: {jobs}");
    }
    // By the id that people type, and by the uid that exporters know.
    for id in [
        "vision/pretrain-w-1-fghij",
        "00000015-1111-4222-8333-444455556666",
    ] {
        let job = takt.run(["job", id].iter().chain(&config)).ok();
        assert!(job.contains("pretrain"), "{id}: {job}");
    }

    let undone = takt
        .run(["records", "undo", "1"].iter().chain(&config))
        .ok();
    assert_eq!(undone, "import 1 undone: 6 runs deleted\n");

    // Another source of users.
    let by_map = ["--user-from", "map:vision=carl,namespace"];
    let third = import_in_part(&takt, "pods.json", &[&config[..], &by_map].concat());
    assert_eq!(figures(&third), [6, 0, 0, 1, 1], "{third}");
    let statement = "SELECT DISTINCT \"user\" FROM jobs ORDER BY 1";
    let users = ["sql", "--format", "csv", statement];
    assert_eq!(
        takt.run(users.iter().chain(&config)).ok(),
        "user\naudio\ncarl\n"
    );
}

#[test]
fn a_watch_ends_what_a_list_saw_running() {
    let takt = Takt::fresh();
    let pod = |phase: &str, state: &str| {
        format!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"namespace":"vision","name":"train-0","uid":"u-1","creationTimestamp":"2025-03-03T08:00:00Z"}},"spec":{{"nodeName":"g1","containers":[{{"resources":{{"limits":{{"nvidia.com/gpu":"2"}}}}}}]}},"status":{{"phase":"{phase}","conditions":[{{"type":"PodScheduled","status":"True","lastTransitionTime":"2025-03-03T08:00:00Z"}}],"containerStatuses":[{{"state":{{{state}}}}}]}}}}"#
        )
    };
    let running = pod(
        "Running",
        r#""running":{"startedAt":"2025-03-03T08:00:05Z"}"#,
    );
    let ended = pod(
        "Failed",
        r#""terminated":{"startedAt":"2025-03-03T08:00:05Z","finishedAt":"2025-03-03T09:00:00Z","exitCode":3}"#,
    );
    takt.file(
        "list.json",
        format!(r#"{{"kind":"PodList","items":[{running}]}}"#),
    );
    takt.file(
        "watch.json",
        format!("{{\"type\":\"MODIFIED\",\"object\":{ended}}}\n{{\"type\":\"DELETED\",\"object\":{ended}}}\n"),
    );

    let summary = import(&takt, "list.json", &[]).ok();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(
        (figures(&summary), &summary["running"]),
        ([1, 0, 0, 0, 0], &1.into())
    );
    // The list again would not open the run that has ended.
    for (file, expected) in [
        ("watch.json", [0, 1, 0, 0, 0]),
        ("list.json", [0, 0, 1, 0, 0]),
    ] {
        let summary = import(&takt, file, &[]).ok();
        let summary = serde_json::from_str(&summary).unwrap();
        assert_eq!(figures(&summary), expected, "{file}");
    }
    let statement =
        "SELECT state, exit_code, gpus, epoch(end_time) - epoch(start_time) AS held FROM jobs";
    let found = takt.run(["sql", "--format", "csv", statement]).ok();
    assert_eq!(found.lines().nth(1), Some("FAILED,3:0,2,3600.0"), "{found}");

    // Wrong files and flags.
    takt.file("pods.yaml", "apiVersion: v1\nkind: Pod\n");
    let said = import(&takt, "pods.yaml", &[]).fails(1);
    assert!(said.contains("is not JSON of Kubernetes"), "{said}");
    let said = import(&takt, "list.json", &["--user-from", "owner"]).fails(2);
    assert!(said.contains("'owner' is not a source of names"), "{said}");
}
