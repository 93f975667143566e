use super::*;
use crate::sacct::Cluster;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use serde_json::json;
use takt_jobs::JobRun;

fn options() -> Options {
    Options {
        cluster: Cluster::Named("lab".into()),
        zone: TimeZone::UTC,
        columns: None,
    }
}

fn run(entry: Entry) -> JobRun {
    match entry {
        Entry::Run(run) => run,
        other => panic!("{other:?}"),
    }
}

/// The same run in v0.0.38, and in the schemas of v0.0.40 and later.
fn both() -> [Value; 2] {
    let tres = json!([
        {"type": "cpu", "name": null, "id": 1, "count": 2},
        {"type": "mem", "name": "", "id": 2, "count": 1000},
        // -2 is NO_VAL64 as a signed number.
        {"type": "energy", "name": null, "id": 3, "count": -2},
        {"type": "node", "name": null, "id": 4, "count": 1},
        {"type": "gres", "name": "gpu", "id": 1001, "count": 1},
        {"type": "gres", "name": "gpu:a100", "id": 1002, "count": 1},
    ]);

    let plain = json!({
        "job_id": 12,
        "account": "lab-a",
        "name": "train",
        "nodes": "node0",
        "partition": "gpu",
        "qos": "normal",
        "array": {"job_id": 6, "task_id": 3, "task": null},
        "het": {"job_id": 0, "job_offset": null},
        "association": {"user": "alice"},
        "state": {"current": "FAILED"},
        "allocation_nodes": 1,
        "time": {
            "submission": 1000,
            "eligible": 1001,
            "start": 1010,
            "end": 1110,
            "elapsed": 90,
            "suspended": 10,
            "limit": 5,
        },
        "exit_code": {"status": "ERROR", "return_code": 3},
        "tres": {"allocated": tres, "requested": []},
    });
    // Since v0.0.40 a number is an object that says whether it is set, and states are lists.
    let mut marked = plain.clone();
    let number = |number: i64| json!({"set": true, "infinite": false, "number": number});
    marked["array"]["task_id"] = number(3);
    marked["array"]["task"] = json!("");
    marked["het"]["job_offset"] = json!({"set": false, "infinite": false, "number": 0});
    marked["state"]["current"] = json!(["FAILED"]);
    marked["time"]["limit"] = number(5);
    marked["exit_code"] = json!({
        "status": ["ERROR"],
        "return_code": number(3),
        "signal": {"id": {"set": false, "number": 0}},
    });

    marked["licenses"] = json!("new fields are passed over");
    [plain, marked]
}

#[test]
fn every_version_gives_the_same_run() {
    for job in both() {
        let run = run(database_jobs(&json!({"jobs": [job]}), &options()).remove(0));
        let expected = JobRun {
            cluster: "lab".into(),
            job_id: "6_3".into(),
            submit: UnixTime(1000),
            eligible: Some(UnixTime(1001)),
            start: Some(UnixTime(1010)),
            end: Some(UnixTime(1110)),
            state: "FAILED".into(),
            user: "alice".into(),
            account: "lab-a".into(),
            partition: "gpu".into(),
            qos: Some("normal".into()),
            name: Some("train".into()),
            nodes: Some(1),
            cpus: Some(2),
            gpus: Some(1),
            gpu_model: Some("a100".into()),
            mem_bytes: Some(1000 << 20),
            alloc_tres: Some("cpu=2,mem=1000M,node=1,gres/gpu=1,gres/gpu:a100=1".into()),
            node_list: Some("node0".into()),
            elapsed: Some(90),
            suspended: Some(10),
            timelimit: Some(300),
            exit_code: Some("3:0".into()),
            raw_job_id: Some("12".into()),
            ..JobRun::default()
        };
        assert_eq!(run, expected);
    }
}

#[test]
fn missing_fields_leave_unknown_what_they_would_say() {
    let [mut job, _] = both();
    for field in [
        "qos",
        "name",
        "exit_code",
        "allocation_nodes",
        "array",
        "het",
    ] {
        job.as_object_mut().unwrap().remove(field);
    }
    // Without `array` and `het` the job stands by itself.
    let job_now = run(database_job(&job, &options()));
    assert_eq!(job_now.job_id.as_str(), "12");
    assert_eq!(job_now.qos, None);
    assert_eq!(job_now.name, None);

    // The submission is part of a run's identity, so a record without it cannot be stored.
    job["time"] = json!(null);
    let Entry::Rejected(reject) = database_job(&job, &options()) else {
        panic!()
    };
    assert_eq!(reject.reason, "Submit is missing");
}

/// Its priority and the time that it has run change from poll to poll.
#[test]
fn a_job_that_cannot_be_read_is_the_same_in_each_answer() {
    let live = |priority: u64| {
        let job = json!({
            "job_id": 5,
            "job_state": ["RUNNING"],
            "user_name": "dave",
            "start_time": 20,
            "priority": priority,
        });
        live_jobs(&json!({ "jobs": [job] }), &options())
            .remove(0)
            .entry
    };
    let stored = |elapsed: u64| {
        let [mut job, _] = both();
        job["time"] = json!({ "elapsed": elapsed });
        database_job(&job, &options())
    };
    // Rejected records are stored by their text. A text that changes would store one at each poll.
    assert_eq!(live(1), live(2));
    assert_eq!(stored(1), stored(2));

    let Entry::Rejected(reject) = live(1) else {
        panic!()
    };
    assert_eq!(reject.reason, "Submit is missing");
    assert_eq!(
        reject.text,
        r#"{"JobId":"5","JobIdRaw":"5","Start":"20","State":"RUNNING","User":"dave"}"#
    );
}

#[test]
fn a_running_job_lists_its_gpus_by_node_and_index() {
    let job = json!({
        "job_id": 5,
        "job_state": ["RUNNING"],
        "user_name": "dave",
        "submit_time": 10,
        "start_time": 20,
        "end_time": 320,
        "partition": "gpu",
        "nodes": "node[0-1]",
        "node_count": 2,
        "cpus": 4,
        "time_limit": 5,
        "tres_alloc_str": "cpu=4,mem=4000M,node=2,billing=4",
        "gres_detail": ["gpu:a100:1(IDX:0)", "gpu:a100:3(IDX:0,2-3)"],
        "job_resources": {"nodes": "node[0-1]"},
        "exit_code": 0,
    });
    let job_now = live_jobs(&json!({"jobs": [job]}), &options()).remove(0);
    // The end of a running job in slurmctld's answer is its start plus the limit, which is not when it ended.
    let held = run(job_now.entry);
    assert_eq!(held.end, None);
    assert_eq!(held.gpus, Some(4));
    assert_eq!(held.gpu_model.as_deref(), Some("a100"));
    let at = |node: &str, index| (node.to_owned(), index);
    assert_eq!(
        job_now.gpus,
        [
            at("node0", 0),
            at("node1", 0),
            at("node1", 2),
            at("node1", 3)
        ]
    );

    // Once a job completes, Slurm no longer lists its GPUs: their number is unknown, not 0.
    for (state, asked) in [("COMPLETING", ""), ("RUNNING", "gres:gpu:1")] {
        let mut completing = job_of(&held);
        completing["job_state"] = json!(state);
        completing["gres_detail"] = json!([]);
        completing["tres_per_node"] = json!(asked);
        assert_eq!(
            run(live_job(&completing, &options()).entry).gpus,
            None,
            "{state}"
        );
    }

    let mut over = job_of(&held);
    over["gres_detail"] = json!([]);
    let job_now = live_job(&over, &options());
    assert_eq!(run(job_now.entry).gpus, None);
    assert_eq!(job_now.gpus, Vec::new());
}

fn job_of(run: &JobRun) -> Value {
    json!({
        "job_id": 5,
        "job_state": "COMPLETED",
        "user_name": run.user,
        "submit_time": run.submit,
        "start_time": 20,
        "end_time": 30,
        "nodes": "node[0-1]",
        "tres_alloc_str": "cpu=4,mem=4000M,node=2",
        "cpus": 4,
    })
}

#[test]
fn pending_jobs_hold_nothing_and_say_why_they_wait() {
    // A start and an end of a pending job are slurmctld's guess, so they must not become times of the run.
    let job = json!({
        "job_id": 8,
        "array_job_id": 8,
        "array_task_string": "0-2,5",
        "job_state": "PENDING",
        "user_id": 61003,
        "user_name": null,
        "submit_time": 10,
        "start_time": 4000,
        "end_time": 4300,
        "state_reason": "Resources",
        "nodes": "",
        "tres_alloc_str": "",
        "cpus": 1,
    });
    let job_now = live_job(&job, &options());

    assert_eq!(job_now.reason.as_deref(), Some("Resources"));
    // A description of slurmctld is more exact than the reason, and squeue shows it.
    let mut described = job.clone();
    let drained = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions";
    described["state_description"] = drained.into();
    let reason = live_job(&described, &options()).reason;
    assert_eq!(reason.as_deref(), Some(drained), "as squeue shows it");
    let Entry::Tasks { run, job_ids } = job_now.entry else {
        panic!("{:?}", job_now.entry)
    };
    assert_eq!(job_ids, ["8_0", "8_1", "8_2", "8_5"]);
    assert_eq!(run.user.as_str(), "61003");
    assert_eq!(run.start, None);
    assert_eq!(run.end, None);
    assert_eq!(run.gpus, None);
}

#[test]
fn a_pending_job_has_its_priority_and_what_else_it_asks_for() {
    let of = |more: Value| {
        let mut job = json!({
            "job_id": 8, "job_state": "PENDING", "user_name": "ann", "submit_time": 10, "cpus": 1,
            "features": "", "licenses": null, "required_nodes": "", "shared": [],
        });
        for (key, value) in more.as_object().unwrap() {
            job[key] = value.clone();
        }
        let job = live_job(&job, &options());
        (job.priority, job.demands)
    };
    assert_eq!(
        of(json!({"priority": 4_294_901_755_u32})),
        (Some(4_294_901_755), vec![])
    );
    assert_eq!(
        of(json!({"priority": {"set": true, "infinite": false, "number": 0}})),
        (Some(0), vec![])
    );
    for unknown in [
        json!(4_294_967_294_u32),
        json!(4_294_967_295_u32),
        json!({"set": false, "infinite": false, "number": 0}),
        json!(-1),
        json!("high"),
        Value::Null,
    ] {
        assert_eq!(of(json!({"priority": unknown})).0, None, "{unknown}");
    }
    let demands =
        of(json!({"features": "a100&nvlink", "licenses": "matlab:1", "shared": ["none"]})).1;
    assert_eq!(demands, ["features", "licenses", "whole nodes"]);
    assert_eq!(
        of(json!({"job_state": "RUNNING", "priority": 5, "features": "a100"})),
        (None, vec![])
    );
}

/// Issue 29: a start of NO_VAL was after the end, and each other number of these is not set, too.
#[test]
fn numbers_that_mean_not_set_are_not_set() {
    // NO_VAL, INFINITE, both of 64 bits, the same as floats, and the forms of `set` and `infinite`.
    let not_set = [
        json!(4_294_967_294_u32),
        json!(4_294_967_295_u32),
        json!(18_446_744_073_709_551_614_u64),
        json!(18_446_744_073_709_551_615_u64),
        json!(4_294_967_294.0),
        json!(18_446_744_073_709_551_615.0),
        json!({"set": false, "infinite": false, "number": 0}),
        json!({"set": false, "infinite": true, "number": 0}),
        json!({"set": true, "infinite": true, "number": 4_294_967_295_u32}),
        json!({"set": true, "infinite": false, "number": 4_294_967_294_u32}),
        json!({"set": true, "infinite": false, "number": 18_446_744_073_709_551_614_u64}),
    ];
    // The number stands for every optional field of a record at once.
    for not_set in not_set {
        let [mut plain, _] = both();
        plain["state"]["current"] = "CANCELLED".into();
        for key in ["start", "eligible", "elapsed", "suspended", "limit"] {
            plain["time"][key] = not_set.clone();
        }
        plain["array"]["job_id"] = not_set.clone();
        plain["array"]["task_id"] = not_set.clone();
        plain["het"]["job_id"] = not_set.clone();
        plain["exit_code"] = not_set.clone();
        plain["allocation_nodes"] = not_set.clone();
        plain["tres"]["allocated"] = json!([{"type": "cpu", "count": not_set}]);
        let run = run(database_jobs(&json!({"jobs": [plain]}), &options()).remove(0));
        assert_eq!(run.job_id, "12", "{not_set}");
        assert_eq!((run.start, run.eligible, run.elapsed), (None, None, None));
        assert_eq!(run.end, Some(UnixTime(1110)));
        assert_eq!(
            (run.timelimit, run.exit_code, run.nodes),
            (None, None, None)
        );

        let answer = json!({"qos": [{"name": "low", "usage_factor": not_set}]});
        assert_eq!(qos(&answer)["low"].usage_factor, 1.0, "{not_set}");
        let reserved = json!({"reservations": [
            {"name": "a", "start_time": 1000, "end_time": not_set},
            {"name": "b", "start_time": not_set, "end_time": 1000},
        ]});
        let found = reservations(&reserved);
        assert_eq!(found.len(), 1, "{not_set}");
        assert_eq!(found[0].to - found[0].from, UNLIMITED_RESERVATION_SECONDS);
        let node = json!({"nodes": [{"name": "a", "state": "IDLE", "reason_changed_at": not_set}]});
        assert_eq!(nodes(&node)[0].reason_at, None);
        assert_eq!(time(&json!({"statistics": {"req_time": not_set}})), None);
        // The same in slurmctld's answer, which has other names for the fields.
        let live = json!({
            "job_id": 7, "job_state": "CANCELLED", "user_name": "ann", "submit_time": 10, "start_time": not_set,
            "end_time": 30, "resize_time": not_set, "time_limit": not_set, "exit_code": not_set,
            "array_job_id": not_set, "array_task_id": not_set, "het_job_id": 0, "het_job_offset": not_set,
            "cpus": not_set, "node_count": not_set,
        });
        let Entry::Run(run) = live_job(&live, &options()).entry else {
            panic!("{not_set}")
        };
        assert_eq!((run.job_id.as_str(), run.start), ("7", None), "{not_set}");
        assert_eq!((run.end, run.exit_code), (Some(UnixTime(30)), None));
    }
    // 65534 is NO_VAL of 16 bits, which exit codes and signals have.
    let signal = json!({"status": ["SIGNALED"], "return_code": 65534, "signal": {"id": 65534}});
    assert_eq!(exit_code(&signal), "0:0");
}

/// Pending arrays of slurmrestd never appeared: slurmdbd lists their tasks as a mask, and slurmctld cuts long
/// lists.
#[test]
fn pending_tasks_of_masks_and_of_cut_lists() {
    let ids = |tasks: &str| {
        let [mut job, _] = both();
        job["array"] = json!({"job_id": 6, "task_id": 4_294_967_294_u32, "task": tasks});
        job["state"]["current"] = "PENDING".into();
        match database_jobs(&json!({"jobs": [job]}), &options()).remove(0) {
            Entry::Tasks { job_ids, .. } => job_ids.join(" "),
            other => panic!("{other:?}"),
        }
    };
    // The mask counts from its lowest bit: task 0.
    assert_eq!(ids("0x1E"), "6_1 6_2 6_3 6_4");
    assert_eq!(ids("0x10001%2"), "6_0 6_16");
    assert_eq!(ids("1,3,7-8,1..."), "6_1 6_3 6_7 6_8");

    let live = json!({
        "job_id": 8, "array_job_id": 8, "array_task_string": "0-2,5,...", "job_state": "PENDING",
        "user_name": "ann", "submit_time": 10, "cpus": 1,
    });
    let job = live_job(&live, &options());
    assert!(job.is_cut);
    assert!(matches!(job.entry, Entry::Tasks { job_ids, .. } if job_ids.len() == 4));
}

#[test]
fn slurmctlds_clock() {
    let of = |at: Value| time(&json!({"statistics": {"req_time": at}}));
    assert_eq!(of(json!(1_795_200_573)), Some(UnixTime(1_795_200_573)));
    assert_eq!(
        of(json!({"set": true, "infinite": false, "number": 1_795_200_573})),
        Some(UnixTime(1_795_200_573))
    );
    // A time of 0 is not set.
    assert_eq!(of(json!(0)), None);
    assert_eq!(time(&json!({})), None);
}

#[test]
fn errors_are_seen_under_any_status() {
    let answer = json!({
        "errors": [{
            "error_number": 1007,
            "error": "Protocol authentication error",
            "source": "slurmdb_tres_get",
        }],
    });
    let found = error(&answer).unwrap();
    assert_eq!(found.number, 1007);
    assert_eq!(
        found.to_string().as_str(),
        "slurmdb_tres_get: Protocol authentication error (error 1007)"
    );
    // Some versions call the number of the error `errno`.
    assert_eq!(
        error(&json!({"errors": [{"error": "Unspecified error", "errno": -1}]}))
            .unwrap()
            .number,
        -1
    );
    // An empty list is what an answer without an error has.
    assert_eq!(error(&json!({"errors": []})), None);
    assert_eq!(error(&json!({})), None);
}

#[test]
fn shares_and_prices() {
    // The root account, an account with `fairshare=parent`, a user, and an association of another cluster.
    let answer = json!({
        "associations": [
            {
                "cluster": "lab",
                "account": "root",
                "parent_account": null,
                "user": null,
                "partition": null,
                "shares_raw": 1,
            },
            {
                "cluster": "lab",
                "account": "vision",
                "parent_account": "root",
                "user": "",
                "shares_raw": 2147483647,
            },
            {
                "cluster": "lab",
                "account": "vision",
                "parent_account": "",
                "user": "ann",
                "shares_raw": 10,
            },
            {
                "cluster": "other",
                "account": "root",
                "shares_raw": 1,
            },
        ],
    });
    let found = associations(&answer, "lab");
    // Only those of the cluster `lab`.
    assert_eq!(found.len(), 3);
    assert_eq!(found[1].shares, Shares::Parent);
    assert_eq!(found[2].shares, Shares::Raw(10));
    assert_eq!(found[1].user.as_deref(), None);
    assert_eq!(found[2].user.as_deref(), Some("ann"));

    let old = qos(&json!({
        "QOS": [{
            "name": "low",
            "flags": ["NO_DECAY"],
            "usage_factor": 0.5,
        }],
    }));
    let new = qos(&json!({
        "qos": [{
            "name": "low",
            "flags": ["NO_DECAY"],
            "usage_factor": {"set": true, "number": 0.5},
        }],
    }));
    assert_eq!(old["low"], new["low"]);
    assert_eq!(old["low"].usage_factor, 0.5);

    let old = billing_weights(&json!({
        "partitions": [
            {
                "name": "gpu",
                "billing_weights": "CPU=1,GRES/gpu=8",
            },
            {"name": "x"},
        ],
    }));
    let new = billing_weights(&json!({
        "partitions": [
            {
                "name": "gpu",
                "tres": {"billing_weights": "CPU=1,GRES/gpu=8"},
            },
            {"name": "x"},
        ],
    }));

    assert!(old == new && old["gpu"].is_some() && old["x"].is_none());
}

#[test]
fn nodes_of_old_and_new_versions() {
    // Before v0.0.39, flags had a field of their own and the base state was one text.
    let old = json!({
        "nodes": [{
            "name": "node0",
            "state": "mixed",
            "state_flags": ["DRAIN"],
            "reason": "fan",
            "reason_set_by_user": "root",
            "reason_changed_at": 1700000000,
            "partitions": ["gpu", "all"],
            "tres": "cpu=8,gres/gpu=2",
            "tres_used": "cpu=1",
            "gres": "gpu:a100:2",
            "gres_used": "gpu:a100:1(IDX:0)",
        }],
    });
    let new = json!({
        "nodes": [{
            "name": "node0",
            "state": ["MIXED", "DRAIN"],
            "reason": "fan",
            "reason_set_by_user": "root",
            "reason_changed_at": {
                "set": true,
                "infinite": false,
                "number": 1700000000,
            },
            "partitions": ["gpu", "all"],
            "tres": "cpu=8,gres/gpu=2",
            "tres_used": "cpu=1",
            "gres": "gpu:a100:2",
            "gres_used": "gpu:a100:1(IDX:0)",
        }],
    });
    assert_eq!(nodes(&old), nodes(&new));

    let node = &nodes(&old)[0];
    assert_eq!(node.state.as_str(), "MIXED+DRAIN");
    assert_eq!(node.partitions.join(" ").as_str(), "gpu all");
    assert_eq!(node.reason_by.as_deref(), Some("root"));
    assert_eq!(node.reason_at, Some(UnixTime(1_700_000_000)));
    // A node without a reason has an empty user and the time 0.
    let well = json!({
        "nodes": [{
            "name": "node1",
            "state": ["IDLE"],
            "reason_set_by_user": "",
            "reason_changed_at": 0,
        }],
    });
    assert_eq!(&nodes(&well)[0].reason_by, &None);
    assert_eq!(nodes(&well)[0].reason_at, None);
}

proptest! {
    #[test]
    fn no_json_makes_a_reader_panic(
        key in "job_id|time|array|state|tres|gres_detail|nodes|exit_code|job_state|submit_time",
        value in prop_oneof![Just(json!(null)), Just(json!(-1)), Just(json!([1, {}])), Just(json!({"set": 1})), Just(json!("x,[")), Just(json!(1e300))],
    ) {
        // Each value stands in a field of the job, as a job, and as the list of nodes.
        for mut job in both() {
            job[&key] = value.clone();
            let answer = json!({"jobs": [job, value], "nodes": value});
            database_jobs(&answer, &options());
            live_jobs(&answer, &options());
            nodes(&answer);
            let _ = error(&answer);
        }
    }
}
