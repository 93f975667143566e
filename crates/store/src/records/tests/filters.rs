//! Queries with filters.

use super::*;

#[test]
fn filters() {
    let store = Store::new();
    let named =
        |job_id: &str, submit, end, user: &str, state: &str, node_list: Option<&str>| JobRun {
            user: user.into(),
            state: state.into(),
            node_list: node_list.map(str::to_owned),
            ..run(job_id, submit, end)
        };
    // Ids that begin alike: a job, a task of an array, and a component of a heterogeneous job.
    store.import(&[
        named("12", 100, Some(200), "ann", "COMPLETED", Some("g1")),
        named("123", 200, Some(300), "bob", "FAILED", Some("g[1-3]")),
        JobRun {
            raw_job_id: Some("130".into()),
            sluid: Some("s88DKSW5HH2P09".into()),
            ..named("123_4", 300, None, "ann", "RUNNING", Some("g[10-12]"))
        },
        named("123+1", 400, None, "ann", "PENDING", None),
    ]);
    let ids = |filter: JobFilter| -> String {
        store
            .records()
            .jobs(&filter)
            .unwrap()
            .iter()
            .map(|run| run.job_id.as_str())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let text = |text: &str| Some(text.to_owned());
    let any = JobFilter::default;

    // The latest submission comes first.
    assert_eq!(ids(any()), "123+1 123_4 123 12");
    assert_eq!(
        ids(JobFilter {
            limit: Some(2),
            ..any()
        }),
        "123+1 123_4"
    );

    // The id of an array or of a heterogeneous job stands for its parts.
    assert_eq!(
        ids(JobFilter {
            job_id: text("123"),
            ..any()
        }),
        "123+1 123_4 123"
    );
    for name in ["123_4", "s88DKSW5HH2P09"] {
        assert_eq!(
            ids(JobFilter {
                job_id: text(name),
                ..any()
            }),
            "123_4"
        );
    }

    // A part of an id finds nothing.
    assert_eq!(
        ids(JobFilter {
            job_id: text("1"),
            ..any()
        }),
        ""
    );
    // The number that processes see belongs to one task, not to the whole array.
    for (number, expected) in [
        ("9123", "123"),
        ("130", "123_4"),
        ("123", ""),
        ("123_4", ""),
    ] {
        let filter = JobFilter {
            job_number: text(number),
            ..any()
        };
        assert_eq!(ids(filter), expected, "{number}");
    }
    assert_eq!(
        ids(JobFilter {
            user: text("ann"),
            cluster: text("lab"),
            ..any()
        }),
        "123+1 123_4 12"
    );

    // The case of a state does not matter.
    assert_eq!(
        ids(JobFilter {
            states: vec!["failed".into(), "RUNNING".into()],
            ..any()
        }),
        "123_4 123"
    );

    // `g[1-3]` has the node g1, and `g[10-12]` has not.
    assert_eq!(
        ids(JobFilter {
            node: text("g1"),
            ..any()
        }),
        "123 12"
    );
    assert_eq!(
        ids(JobFilter {
            node: text("g1"),
            limit: Some(1),
            ..any()
        }),
        "123"
    );
    assert_eq!(
        ids(JobFilter {
            node: text("g11"),
            ..any()
        }),
        "123_4"
    );
    // Several nodes, as Slurm writes them and as people do.
    for asked in ["g[1,11]", "g1,g11", "g[11-12],g1"] {
        let node = text(asked);
        assert_eq!(ids(JobFilter { node, ..any() }), "123_4 123 12", "{asked}");
    }
    assert_eq!(
        ids(JobFilter {
            from: Some(UnixTime(200)),
            to: Some(UnixTime(400)),
            ..any()
        }),
        "123_4 123"
    );

    // A value of a filter is never a part of the SQL.
    assert_eq!(
        ids(JobFilter {
            user: text("ann' OR true --"),
            ..any()
        }),
        ""
    );
    assert_eq!(
        ids(JobFilter {
            account: text("physics"),
            partition: text("cpu"),
            ..any()
        }),
        ""
    );
}

#[test]
fn accounting_gets_only_runs_of_the_period() {
    let store = Store::new();
    let pending = JobRun {
        start: None,
        ..run("5", 50, None)
    };
    let cancelled = JobRun {
        start: None,
        ..run("6", 50, Some(100))
    };

    // The period is [100, 200): run 1 ended before it, and run 4 begins with its end.
    store.import(&[
        run("1", 10, Some(99)),
        run("2", 10, Some(100)),
        run("3", 199, Some(400)),
        run("4", 200, Some(400)),
        pending,
        cancelled,
        JobRun {
            cluster: "other".into(),
            ..run("7", 100, None)
        },
    ]);
    let mut submits = Vec::new();
    store
        .records()
        .held_runs("lab", UnixTime(100), UnixTime(200), |run| {
            submits.push((run.submit.0, run.end.map(|end| end.0)));
        })
        .unwrap();
    submits.sort_unstable();
    assert_eq!(
        submits,
        [
            (10, Some(100)),
            (50, None),
            (50, Some(100)),
            (199, Some(400))
        ]
    );
}
