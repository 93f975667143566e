use super::*;
use crate::testing::{database, import};
use takt_access::{Privacy, Role, Way};
use takt_jobs::{Amounts, JobRun, Node, NodeEvent};
use takt_simulate::WaitTrend;

const HOUR: i64 = 3600;

/// 2026-10-01, in UTC.
const FIRST: i64 = 1_790_812_800;

/// A node of 8 CPUs and 4 GPUs.
fn node(name: &str) -> Node {
    Node {
        node: name.into(),
        state: "IDLE".into(),
        partitions: vec!["gpu".into()],
        has: Amounts {
            cpus: 8,
            gpus: 4,
            mem_bytes: 64 << 30,
        },
        ..Node::default()
    }
}

fn run(job_id: i64, user: &str, submit: i64, start: i64, hours: i64) -> JobRun {
    JobRun {
        cluster: "lab".into(),
        job_id: job_id.to_string(),
        submit: UnixTime(FIRST + submit),
        eligible: Some(UnixTime(FIRST + submit)),
        start: Some(UnixTime(FIRST + start)),
        end: Some(UnixTime(FIRST + start + hours * HOUR)),
        state: "COMPLETED".into(),
        user: user.into(),
        account: format!("{user}s"),
        partition: "gpu".into(),
        nodes: Some(1),
        cpus: Some(8),
        gpus: Some(4),
        mem_bytes: Some(8 << 30),
        timelimit: Some(24 * 3600),
        node_list: Some("g1".into()),
        ..JobRun::default()
    }
}

/// Each day, six jobs of three hours come within an hour to a node, which runs them one after the other.
fn busy() -> Vec<JobRun> {
    let mut runs = Vec::new();
    for day in 0..20 {
        for at in 0..6 {
            let submit = day * 24 * HOUR + at * 600;
            let start = day * 24 * HOUR + at * 3 * HOUR + 5;
            let user = if at < 3 { "ann" } else { "bob" };
            runs.push(run(day * 10 + at, user, submit, start, 3));
        }
    }
    runs
}

fn asked() -> WhatIfQuestion {
    WhatIfQuestion {
        month: Some("2026-10".into()),
        replays: 5,
        ..WhatIfQuestion::default()
    }
}

fn ask(
    database: &Database,
    viewer: &Viewer,
    asked: &WhatIfQuestion,
) -> Result<WhatIfAnswer, String> {
    let answer = asked.answer(viewer, database, &AnswerConfig::default());
    answer.map_err(|error| error.to_string())
}

fn lab(runs: Vec<JobRun>) -> (tempfile::TempDir, Database) {
    let (root, database) = database();
    import(&database, Some("UTC"), runs);
    let records = Records::of(&database);
    records
        .note_nodes("lab", &[node("g1")], UnixTime(FIRST), false)
        .unwrap();
    (root, database)
}

#[test]
fn a_back_test_compares_the_waits_and_the_use_of_a_period() {
    let (_root, database) = lab(busy());
    let answer = ask(&database, &Viewer::server(), &asked()).unwrap();
    assert_eq!((answer.jobs, answer.nodes, answer.pairs), (120, 1, 0));
    assert!(answer.is_close, "{}", answer.words);
    let [row] = answer.back_test.rows.as_slice() else {
        panic!("{:?}", answer.back_test.rows);
    };
    assert_eq!(
        (row.partition.as_str(), row.size.as_str(), row.jobs),
        ("gpu", "2 to 8 GPUs", 120)
    );
    // Each waits 170 minutes longer than the one before.
    assert_eq!(row.median_wait_seconds, 2 * 170 * 60 + 5);
    assert_eq!((row.p90_replayed_seconds + 60) / HOUR, 14);
    let all = &answer.back_test_use[0];
    // 120 jobs of 3 h within the days of the period that are over.
    assert!(
        (all.first.unwrap() - all.second.unwrap()).abs() < 0.001,
        "{all:?}"
    );
    assert!(
        answer
            .not_modelled
            .iter()
            .any(|rule| rule.rule.starts_with("priorities"))
    );
}

#[test]
fn one_more_node_is_told_with_who_wins() {
    let (_root, database) = lab(busy());
    let with = |change: WhatIfQuestion| ask(&database, &Viewer::server(), &change).unwrap();
    let more = with(WhatIfQuestion {
        add: Some("g[2-3]".into()),
        ..asked()
    });
    assert_eq!(more.changes, ["2 more nodes like g1 (8 CPUs, 4 GPUs)"]);
    assert_eq!(more.pairs, 5);
    let all = &more.rows[0];
    assert_eq!(
        (all.by, all.jobs, all.trend),
        (WaitGroup::All, 120, WaitTrend::Wins)
    );
    assert!(all.mean_change_seconds.high < -4.0 * HOUR as f64, "{all:?}");
    assert!(more.use_change.high < 0.0);
    let users: Vec<&str> = more
        .rows
        .iter()
        .filter(|row| row.by == WaitGroup::User)
        .map(|row| row.name.as_str())
        .collect();
    assert_eq!(users, ["bob", "ann"], "the largest change first");

    let fewer = with(WhatIfQuestion {
        requests: Some(0.5),
        ..asked()
    });
    assert_eq!(fewer.rows[0].trend, WaitTrend::Wins);
    let cut = with(WhatIfQuestion {
        limit: Some("gpu=2".into()),
        ..asked()
    });
    assert_eq!(
        cut.changes,
        [
            "120 jobs of partition gpu ask for 2.00 h instead of more; 120 of them ran longer and end there, which leaves out \
          480 GPU-hours of work"
        ]
    );
    assert_eq!(
        (cut.gpu_hours[0].round(), cut.gpu_hours[1].round()),
        (1440.0, 960.0)
    );
}

#[test]
fn a_user_who_may_not_see_others_gets_totals_and_the_own_row() {
    let (_root, database) = lab(busy());
    let question = WhatIfQuestion {
        add: Some("g2".into()),
        ..asked()
    };
    let of = |privacy: Privacy| {
        let viewer = Viewer::new(Role::User, Way::Token, privacy).with_user("ann");
        let answer = ask(&database, &viewer, &question).unwrap();
        let names = answer.rows.iter().map(|row| (row.by, row.name.clone()));
        (names.collect::<Vec<_>>(), answer)
    };
    let (names, answer) = of(Privacy::Private);
    let own = [
        (WaitGroup::All, String::new()),
        (WaitGroup::User, "ann".to_owned()),
    ];
    assert_eq!(names, own);
    assert!(answer.is_reduced && answer.back_test.rows.is_empty());
    assert!(!serde_json::to_string(&answer).unwrap().contains("bob"));
    assert_eq!(of(Privacy::Open).0.len(), 7);
}

/// The node was down for the first day, so its jobs waited.
#[test]
fn a_failure_of_a_node_delays_jobs_unless_it_had_not_failed() {
    let mut runs = busy();
    runs.truncate(6);
    for (at, run) in runs.iter_mut().enumerate() {
        let start = FIRST + 24 * HOUR + at as i64 * 3 * HOUR;
        run.start = Some(UnixTime(start));
        run.end = Some(UnixTime(start + 3 * HOUR));
    }
    let (_root, database) = lab(runs);
    let down = NodeEvent {
        node: "g1".into(),
        state: "DOWN".into(),
        from: UnixTime(FIRST - HOUR),
        to: Some(UnixTime(FIRST + 24 * HOUR)),
        reason: None,
        has: node("g1").has,
    };
    let records = Records::of(&database);
    records
        .note_node_events("lab", &[down], "slurmdbd")
        .unwrap();
    let ok = WhatIfQuestion {
        node_ok: Some("g1".into()),
        from: Some("2026-10-01".into()),
        to: Some("2026-10-03".into()),
        month: None,
        ..asked()
    };
    let answer = ask(&database, &Viewer::server(), &ok).unwrap();
    assert!(answer.is_close, "{}", answer.words);
    assert_eq!(answer.changes, ["node g1 without its 1 recorded failures"]);
    let change = answer.rows[0].mean_change_seconds;
    assert!(
        (change.middle + 24.0 * HOUR as f64).abs() < HOUR as f64,
        "{change:?}"
    );

    let later = WhatIfQuestion {
        from: Some("2026-10-02".into()),
        ..ok
    };
    let error = ask(&database, &Viewer::server(), &later).unwrap_err();
    assert!(
        error.contains("no failure of node g1 is recorded"),
        "{error}"
    );
}

/// Jobs waited for days at a free node: a rule that the records do not have held them back.
#[test]
fn a_replay_that_is_far_from_the_records_answers_no_what_if() {
    let runs = (0..40).map(|at| run(at, "ann", at * 12 * HOUR, at * 12 * HOUR + 40 * HOUR, 3));
    let (_root, database) = lab(runs.collect());
    let question = WhatIfQuestion {
        add: Some("g2".into()),
        ..asked()
    };
    let answer = ask(&database, &Viewer::server(), &question).unwrap();
    assert!(!answer.is_close);
    assert!(
        answer.words.contains("no what-if is answered"),
        "{}",
        answer.words
    );
    assert_eq!((answer.pairs, answer.rows.len()), (0, 0));
    assert!(!answer.not_modelled.is_empty());
}

#[test]
fn nonsense_gets_a_clear_answer() {
    let (_root, database) = lab(busy());
    let error = |change: fn(&mut WhatIfQuestion)| {
        let mut question = asked();
        change(&mut question);
        ask(&database, &Viewer::server(), &question).unwrap_err()
    };
    let said = error(|asked| asked.remove = Some("g7".into()));
    assert_eq!(said, "the cluster has no node g7");
    let said = error(|asked| asked.remove = Some("g1".into()));
    assert!(said.contains("remove fewer"), "{said}");
    let said = error(|asked| asked.add = Some(String::new()));
    assert!(said.contains("names no node"), "{said}");
    let said = error(|asked| asked.add = Some("g1".into()));
    assert!(said.contains("has a node g1 already"), "{said}");
    let said = error(|asked| asked.like = Some("g1".into()));
    assert!(said.contains("expected add, too"), "{said}");
    let said = error(|asked| asked.limit = Some("gpux=4".into()));
    assert_eq!(
        said,
        "there is no partition gpux; known: gpu; did you mean gpu?"
    );
    for text in ["gpu", "gpu=0", "gpu=-3", "gpu=inf", "=4"] {
        let mut question = asked();
        question.limit = Some(text.into());
        let said = ask(&database, &Viewer::server(), &question).unwrap_err();
        assert!(
            said.contains("limit is") || said.contains("no partition"),
            "{said}"
        );
    }
    for factor in [0.0, -1.0, 100.0, f64::NAN] {
        let question = WhatIfQuestion {
            requests: Some(factor),
            ..asked()
        };
        let said = ask(&database, &Viewer::server(), &question).unwrap_err();
        assert!(said.contains("expected a factor"), "{said}");
    }
    let said = error(|asked| asked.runtime = Some("short".into()));
    assert!(said.contains("expected used"), "{said}");
    let said = error(|asked| asked.month = Some("2020-01".into()));
    assert!(said.contains("no job of cluster lab"), "{said}");
    let said = error(|asked| asked.month = Some("2090-01".into()));
    assert!(said.contains("has not begun"), "{said}");
}

/// Records alone name nodes, and what they held at the same time is their size.
#[test]
fn imported_records_have_the_nodes_that_they_name() {
    let (_root, database) = database();
    let mut runs = busy();
    let (first, second) = (run(900, "cy", 0, 5, 3), run(901, "cy", 0, 5, 3));
    runs.extend([first, second].map(|run| JobRun {
        node_list: Some("n2".into()),
        cpus: Some(3),
        gpus: Some(0),
        mem_bytes: None,
        partition: "cpu".into(),
        ..run
    }));
    import(&database, Some("UTC"), runs);
    let past = PastRecords::read(
        &Records::of(&database),
        "lab",
        UnixTime(FIRST),
        UnixTime(FIRST + 30 * 24 * HOUR),
    )
    .unwrap();
    let nodes: Vec<(&str, u64, u64, &str)> = past
        .period
        .cluster
        .nodes
        .iter()
        .map(|node| {
            (
                node.name.as_str(),
                node.has.cpus,
                node.has.gpus,
                &*node.partitions[0],
            )
        })
        .collect();
    assert_eq!(nodes, [("g1", 8, 4, "gpu"), ("n2", 6, 0, "cpu")]);
    assert!(
        past.period
            .cluster
            .nodes
            .iter()
            .all(|node| node.closed.is_empty())
    );
}
