use super::*;
use crate::assess;
use crate::testing::{import, store_in};
use crate::{AnswerConfig, JobsQuestion};
use std::convert::Infallible;
use std::iter;
use takt_access::{Privacy, Role, Way};
use takt_accounting::FailureCause;
use takt_accounting::efficiency::Grade;
use takt_model::{Labels, METRIC_NAME, UnixTime};
use takt_store::{Column, Corrections, Origin, STALE, Shifted};
use tempfile::tempdir;

const NODE: &str = "gpu-1";

fn run(job_id: &str, submit: UnixTime, end: Option<UnixTime>, state: &str) -> JobRun {
    JobRun {
        cluster: "lab".into(),
        job_id: job_id.into(),
        submit,
        start: Some(submit),
        end,
        state: state.into(),
        user: "ann".into(),
        account: "vision".into(),
        name: Some("train".into()),
        nodes: Some(1),
        cpus: Some(4),
        gpus: Some(2),
        mem_bytes: Some(32 << 30),
        node_list: Some(NODE.into()),
        timelimit: Some(86_400),
        exit_code: Some("1:0".into()),
        ..JobRun::default()
    }
}

/// Writes an hour of a node with two GPUs of job 7: one works, and one is idle and reports an XID
/// half an hour after `from`.
fn write_hour(store: &Store, from: UnixTime) {
    let group = store.group();
    let column = |metric: &str, pairs: &[(&str, &str)]| {
        let labels: Labels = [(METRIC_NAME, metric), ("cluster", "lab"), ("node", NODE)]
            .into_iter()
            .chain(pairs.iter().copied())
            .collect();
        group.column(&labels).unwrap()
    };
    let xid = column(
        "takt_gpu_xid_errors_total",
        &[("uuid", "GPU-b"), ("xid", "31")],
    );
    let mut always: Vec<(Column, f64)> = Vec::new();
    for (index, uuid, work) in [("0", "GPU-a", 0.9), ("1", "GPU-b", 0.0)] {
        let gpu = [("uuid", uuid)];
        let info = [("uuid", uuid), ("index", index), ("model", "RTX 5090")];
        let job = [("uuid", uuid), ("jobid", "7"), ("user", "ann")];
        always.push((column("takt_gpu_info", &info), 1.0));
        always.push((column("takt_gpu_utilization_ratio", &gpu), work));
        always.push((column("takt_gpu_power_watts", &gpu), 300.0));
        always.push((column("takt_gpu_job_info", &job), 1.0));
    }

    for seconds in (0..3600).step_by(30) {
        let at = from + seconds;
        let mut row = vec![STALE; group.width()];
        for (column, value) in &always {
            row[column.index()] = *value;
        }
        // The counter does not exist before the first error.
        if at >= from + 1800 {
            row[xid.index()] = 1.0;
        }

        let ticket = group.ticket(at.into()).unwrap();
        group.commit(ticket, &row, &[]).unwrap();
    }
    store.flush();
}

fn ask(store: &Store, question: &JobQuestion) -> Result<JobAnswer, AnswerError> {
    question.answer(&Viewer::server(), store, &AnswerConfig::default())
}

fn job(job_id: &str) -> JobQuestion {
    JobQuestion {
        job_id: job_id.into(),
        ..JobQuestion::default()
    }
}

#[test]
fn the_owner_of_a_reused_id_sees_no_details_of_the_older_run() {
    let root = tempdir().unwrap();
    let store = store_in(root.path());

    let older = UnixTime::from(Timestamp::now()) - 90_000;
    let of_bob = JobRun {
        user: "bob".into(),
        ..run("7", older + 80_000, Some(older + 81_000), "COMPLETED")
    };
    let of_ann = run("7", older, Some(older + 3600), "FAILED");
    import(store.database(), Some("UTC"), vec![of_ann, of_bob]);
    let bob = Viewer::new(Role::User, Way::Socket, Privacy::Usage).with_user("bob");
    // Bob has the id now, but the older run is Ann's.
    let seen = |submit: UnixTime| {
        let question = JobQuestion {
            submit: Some(submit.to_string()),
            ..job("7")
        };
        let config = AnswerConfig::default();
        let answer = question.answer(&bob, &store, &config).unwrap();
        let report = answer.report.unwrap();
        (report.run.name.is_some(), report.failure.is_some())
    };

    assert_eq!(seen(older), (false, false));
    assert!(seen(older + 80_000).0);
}

#[test]
fn a_failed_job_in_full() {
    let root = tempdir().unwrap();
    let store = store_in(root.path());

    let from = UnixTime::from(Timestamp::now()) - 7200;
    import(
        store.database(),
        Some("UTC"),
        vec![
            run("7", from, Some(from + 3600), "FAILED"),
            // An older job of the same name, and a job of another user on the same node at the same time.
            run("6", from - 9000, Some(from - 8000), "COMPLETED"),
            JobRun {
                user: "bob".into(),
                ..run("8", from + 60, Some(from + 600), "COMPLETED")
            },
        ],
    );

    write_hour(&store, from);
    let answer = ask(&store, &job("7")).unwrap();
    let json = serde_json::to_string(&answer).unwrap();
    // Clients read the answer as JSON, so nothing may be lost in it.
    assert_eq!(serde_json::from_str::<JobAnswer>(&json).unwrap(), answer);
    let report = answer.report.as_ref().unwrap();

    assert_eq!(report.phase, JobPhase::Finished);
    assert_eq!(report.waited_seconds, 0);
    assert_eq!(report.ran_seconds, Some(3600));
    let verdict = report.verdict.as_ref().unwrap();
    assert_eq!(verdict.grade, Grade::Fair, "{verdict:?}");

    assert_eq!(
        verdict.words,
        "1 of its 2 GPUs did nothing; all together were busy 45 %"
    );
    assert_eq!(report.hints[0].line, "#SBATCH --gpus=1");
    assert!((report.hints[0].gpu_hours - 1.0).abs() < 0.02);

    let gpus = &report.by_node[0].gpus;
    assert_eq!(gpus.len(), 2);
    assert_eq!(gpus[0].index.as_deref(), Some("0"));
    assert_eq!(gpus[0].uuid.as_deref(), Some("GPU-a"));
    assert!((gpus[0].utilization_mean.unwrap() - 0.9).abs() < 1e-9);

    let axis = report.axis.unwrap();
    assert_eq!(axis.steps, 120);
    assert_eq!(axis.step_ms, 30_000);
    assert_eq!(gpus[0].utilization.0.len(), 120);

    assert!(
        gpus[0]
            .utilization
            .0
            .iter()
            .all(|value| *value == Some(0.9))
    );
    assert_eq!(gpus[1].idle_streaks, [(0, 120)]);

    let failure = report.failure.as_ref().unwrap();
    assert_eq!(failure.cause, FailureCause::GpuFault);
    let xid = failure
        .evidence
        .iter()
        .find(|one| one.gpu.is_some())
        .unwrap();
    assert_eq!(xid.at, Some(from + 1800), "{failure:?}");
    assert!(xid.words.starts_with("XID 31: "), "{}", xid.words);

    let ids = |runs: &[ListedRun]| -> Vec<String> {
        runs.iter().map(|one| one.run.job_id.clone()).collect()
    };
    assert_eq!(ids(&answer.same_name), ["6"]);
    assert_eq!(ids(&answer.neighbours), ["8"]);
    assert_eq!(ids(&answer.runs), ["7"]);

    let zoomed = JobQuestion {
        from: Some((from + 600).to_string()),
        to: Some((from + 1200).to_string()),
        ..job("7")
    };
    let zoomed = ask(&store, &zoomed).unwrap().report.unwrap();
    // Steps of the part, whatever the curve of the whole has.
    let axis = zoomed.axis.unwrap();
    assert_eq!(axis.from, (from + 600).into());
    assert_eq!(axis.to(), (from + 1200).into());
    assert_eq!(
        zoomed.verdict, report.verdict,
        "the verdict is on the whole run"
    );
}

#[test]
fn the_curves_of_an_ended_job_outlive_its_samples() {
    let root = tempdir().unwrap();
    let with_samples = store_in(root.path());

    let from = UnixTime::from(Timestamp::now()) - 7200;
    let ended = run("7", from, Some(from + 3600), "FAILED");
    import(with_samples.database(), Some("UTC"), vec![ended.clone()]);
    write_hour(&with_samples, from);

    let rules = AnswerConfig::default().accounting.efficiency;
    let until = from + 7200;
    let due = takt_store::Due::New;
    assess::pass(&with_samples, "lab", (from, until), due, &rules, |_| true).unwrap();
    let of = |store: &Store, question: &JobQuestion| ask(store, question).unwrap().report.unwrap();
    let before = of(&with_samples, &job("7"));
    assert_eq!(before.axis.unwrap().steps, 120);
    let records = Records::of(with_samples.database());
    // Half a million of them are a gigabyte, so the size is checked.
    let report = records.curves_of(&ended).unwrap().unwrap();
    assert!(report.len() < 2500, "{} bytes: {report}", report.len());

    // The same records without the samples.
    let root = tempdir().unwrap();
    let without = store_in(root.path());
    import(without.database(), Some("UTC"), vec![ended.clone()]);
    let records = Records::of(without.database());
    records
        .keep_curves(&[takt_store::RunCurves {
            cluster: "lab".into(),
            job_id: "7".into(),
            submit: from,
            end: from + 3600,
            utilization: None,
            report,
        }])
        .unwrap();

    let after = of(&without, &job("7"));
    let gpus = |report: &JobReport| report.by_node[0].gpus.clone();
    assert_eq!(gpus(&after).len(), 2);
    assert_eq!(gpus(&after)[0].utilization.0[..100], [Some(0.9); 100]);
    assert_eq!(gpus(&after)[0].power.0[60], Some(300.0));
    assert_eq!(gpus(&after)[1].fault, gpus(&before)[1].fault);
    let streaks = gpus(&after)[1].idle_streaks.clone();
    assert!(streaks[0].0 == 0 && streaks[0].1 >= 119, "{streaks:?}");
    assert_eq!(after.failure, before.failure);

    // A part of the time, and fewer steps.
    let part = of(
        &without,
        &JobQuestion {
            from: Some((from + 900).to_string()),

            to: Some((from + 1800).to_string()),
            ..job("7")
        },
    );
    // 900 seconds in steps of 30.
    let axis = part.axis.unwrap();
    assert_eq!(axis.from.whole_seconds(), from + 900);
    assert_eq!(axis.steps, 30);
    let coarse = JobQuestion {
        steps: 10,
        ..job("7")
    };

    let coarse = of(&without, &coarse);
    assert_eq!(coarse.axis.unwrap().steps, 10);
    assert_eq!(coarse.by_node[0].gpus[0].utilization.0.len(), 10);
}

#[test]
fn a_running_job_is_measured_until_now() {
    let root = tempdir().unwrap();
    let store = store_in(root.path());

    let from = UnixTime::from(Timestamp::now()) - 3600;
    import(
        store.database(),
        Some("UTC"),
        vec![run("7", from, None, "RUNNING")],
    );
    write_hour(&store, from);

    let report = ask(&store, &job("7")).unwrap().report.unwrap();
    assert_eq!(report.phase, JobPhase::Running);
    assert!(report.ran_seconds.unwrap() >= 3600);
    assert_eq!(report.ends_by, Some(from + 86_400));
    assert_eq!(report.verdict.unwrap().grade, Grade::Fair);
    // A running job has no failure, whatever its exit code says.
    assert_eq!(report.failure, None);
    assert_eq!(report.efficiency.unwrap().gpus_idle, 1);
}

#[test]
fn arrays_requeues_and_unknown_jobs() {
    let root = tempdir().unwrap();
    let store = store_in(root.path());
    import(
        store.database(),
        Some("UTC"),
        vec![
            run("20_1", UnixTime(100), Some(UnixTime(200)), "COMPLETED"),
            run("20_2", UnixTime(100), Some(UnixTime(200)), "FAILED"),
            run("20_2", UnixTime(300), Some(UnixTime(400)), "COMPLETED"),
            run("20_3", UnixTime(100), Some(UnixTime(200)), "TIMEOUT"),
        ],
    );
    // The id of the array names its tasks; a report is of one task.
    let array = ask(&store, &job("20")).unwrap();
    assert_eq!(array.report, None);
    let states = array.array.unwrap();
    assert_eq!(states.tasks, 3);
    assert_eq!(
        states.states[0].state.as_str(),
        "COMPLETED",
        "the newest run of a task counts"
    );
    assert_eq!(states.states[0].runs, 2, "the newest run of a task counts");

    let task = ask(&store, &job("20_2")).unwrap();
    assert_eq!(task.report.as_ref().unwrap().run.submit, UnixTime(300));
    assert_eq!(task.runs.len(), 2);
    // The submission as a number, and as a time.
    let first = JobQuestion {
        submit: Some("100".to_owned()),
        ..job("20_2")
    };
    let first = ask(&store, &first).unwrap().report.unwrap();
    assert_eq!(
        first.failure.unwrap().words,
        "the program ended with exit status 1"
    );
    let written = JobQuestion {
        submit: Some("1970-01-01T00:01:40Z".to_owned()),
        ..job("20_2")
    };
    let written = ask(&store, &written).unwrap().report.unwrap();
    assert_eq!(written.run.submit, UnixTime(100));

    let limit = ask(&store, &job("20_3")).unwrap().report.unwrap();
    assert_eq!(limit.failure.unwrap().cause, FailureCause::TimeLimit);

    let error = |question: &JobQuestion| ask(&store, question).unwrap_err().to_string();
    assert_eq!(error(&job("999")), "no job 999 is recorded");
    assert_eq!(
        error(&job("trai")),
        "no job trai is recorded; the newest job named train is 20_2"
    );
    // A poll 40 seconds ago: the job may have been submitted behind it.
    let origin = Origin {
        source: "sacct",
        name: "poll",
        timezone: None,
        complete_until: Some(("lab", UnixTime::from(Timestamp::now()) - 40)),
        shifted: Shifted::Refuse,
        corrections: Corrections::Accept,
    };
    let none = iter::empty::<Result<_, Infallible>>();
    Records::of(store.database()).import(&origin, none).unwrap();
    let said = error(&job("999"));
    assert!(
        said.starts_with("no job 999 is recorded; a new job appears with the next poll of Slurm"),
        "{said}"
    );
    assert!(!error(&job("trai")).contains("poll"), "no job id");

    let outside = JobQuestion {
        from: Some("1970-01-01T00:08:20Z".into()),
        ..job("20_1")
    };
    assert_eq!(error(&outside), "job 20_1 did not run in this time");
    let backwards = JobQuestion {
        from: Some("1970-01-02".into()),
        to: Some("1970-01-01".into()),
        ..job("20_1")
    };
    assert!(error(&backwards).contains("'to' has to be later than 'from'"));
}

#[test]
fn others_see_of_a_job_what_privacy_leaves() {
    use takt_access::{Privacy, Role, Way};

    let root = tempdir().unwrap();
    let store = store_in(root.path());
    let from = UnixTime::from(Timestamp::now()) - 7200;
    import(
        store.database(),
        Some("UTC"),
        vec![run("7", from, Some(from + 3600), "FAILED")],
    );
    write_hour(&store, from);
    let config = AnswerConfig::default();
    // Bob, as each setting of privacy leaves him.
    let viewer = |privacy| Viewer::new(Role::User, Way::Socket, privacy).with_user("bob");
    let by = |viewer: &Viewer| job("7").answer(viewer, &store, &config);

    let open = by(&viewer(Privacy::Open)).unwrap().report.unwrap();
    assert_eq!(open.run.name, None);
    assert_eq!(open.run.exit_code, None);
    assert!(open.verdict.is_some() && open.failure.is_none());

    let usage = by(&viewer(Privacy::Usage)).unwrap();
    assert!(usage.runs[0].used.is_none());
    let usage = usage.report.unwrap();
    assert!(usage.verdict.is_none() && usage.by_node.is_empty() && usage.hints.is_empty());

    let error = by(&viewer(Privacy::Private)).unwrap_err().to_string();
    assert_eq!(
        error, "no job 7 is recorded",
        "as for a job that does not exist"
    );

    let ann = viewer(Privacy::Private).with_user("ann");
    assert!(by(&ann).unwrap().report.unwrap().failure.is_some());
    // A coordinator of the account sees its jobs.
    let head = viewer(Privacy::Private).with_accounts(BTreeSet::from(["vision".to_owned()]));
    assert!(by(&head).unwrap().report.unwrap().run.name.is_some());

    // A filter by a name that is hidden would give the name away.
    let named = JobsQuestion {
        name: Some("train".into()),
        ..JobsQuestion::default()
    };
    let found = |viewer: &Viewer| {
        named
            .answer(viewer, store.database(), &config)
            .unwrap()
            .len()
    };
    assert_eq!(found(&viewer(Privacy::Open)), 0);
    assert_eq!(found(&ann), 1);
}

/// Eight GPUs of two nodes for twenty minutes; a power brake holds one of them after so many seconds, and the others spin.
fn write_power_brake(store: &Store, from: UnixTime, brakes_after: i64) {
    let group = store.group();
    let column = |metric: &str, node: &str, pairs: &[(&str, &str)]| {
        let labels: Labels = [(METRIC_NAME, metric), ("cluster", "lab"), ("node", node)]
            .into_iter()
            .chain(pairs.iter().copied())
            .collect();
        group.column(&labels).unwrap()
    };

    // A column, its value before the brake, and after.
    let mut columns: Vec<(Column, f64, f64)> = Vec::new();
    // Two nodes with four GPUs each; GPU-6 is the third one of the second node.
    for index in 0..8 {
        let node = if index < 4 { "g01" } else { "g02" };
        let uuid = format!("GPU-{index}");
        let number = (index % 4).to_string();
        let is_held = index == 6;
        let gpu = |pairs: &[(&'static str, &str)]| {
            let more = pairs
                .iter()
                .map(|(name, value)| (*name, (*value).to_owned()));
            [("uuid", uuid.clone())]
                .into_iter()
                .chain(more)
                .collect::<Vec<_>>()
        };
        let mut add =
            |metric: &str, pairs: Vec<(&'static str, String)>, before: f64, after: f64| {
                let pairs: Vec<(&str, &str)> = pairs
                    .iter()
                    .map(|(name, value)| (*name, value.as_str()))
                    .collect();
                columns.push((column(metric, node, &pairs), before, after));
            };
        add(
            "takt_gpu_info",
            gpu(&[("model", "H200"), ("index", &number)]),
            1.0,
            1.0,
        );
        add(
            "takt_gpu_job_info",
            gpu(&[("jobid", "7"), ("user", "ann")]),
            1.0,
            1.0,
        );
        // All of them are busy: a GPU that waits in a collective spins.
        add("takt_gpu_utilization_ratio", gpu(&[]), 0.99, 0.99);
        add(
            "takt_gpu_power_watts",
            gpu(&[]),
            600.0,
            if is_held { 320.0 } else { 350.0 },
        );
        let clock = if is_held { 1.1e9 } else { 1.98e9 };

        add(
            "takt_gpu_clock_hertz",
            gpu(&[("domain", "sm")]),
            1.98e9,
            clock,
        );
        let brake = f64::from(u8::from(is_held));
        add(
            "takt_gpu_throttle",
            gpu(&[("reason", "hw_power_brake")]),
            0.0,
            brake,
        );
    }

    let until_now = UnixTime::from(Timestamp::now()) - from;
    // Up to now: the last windows of a running job are read.
    for seconds in (0..until_now - 10).step_by(15) {
        let mut row = vec![STALE; group.width()];
        for (column, before, after) in &columns {
            row[column.index()] = if seconds < brakes_after {
                *before
            } else {
                *after
            };
        }
        let ticket = group.ticket((from + seconds).into()).unwrap();
        group.commit(ticket, &row, &[]).unwrap();
    }
    store.flush();
}

#[test]
fn the_gpu_that_the_others_wait_for_is_named() {
    let root = tempdir().unwrap();
    let store = store_in(root.path());

    let now = UnixTime::from(Timestamp::now());
    // Forty windows of 30 seconds are 1,200 seconds.
    let from = now - 1210;
    let running = JobRun {
        nodes: Some(2),
        gpus: Some(8),
        node_list: Some("g[01-02]".into()),
        ..run("7", from, None, "RUNNING")
    };
    import(store.database(), Some("UTC"), vec![running]);
    write_power_brake(&store, from, 600);

    let report = ask(&store, &job("7")).unwrap().report.unwrap();
    let pace = report.pace.unwrap();
    let takt_diagnosis::Pace::Slow(slow) = &pace.pace else {
        panic!("{pace:?}");
    };
    assert_eq!(slow.uuid.as_deref(), Some("GPU-6"));
    // A finding is as exact as a window.
    assert!((slow.since - (from + 600)).abs() <= 30, "{slow:?}");
    assert!(
        pace.words.starts_with("GPU 2 of g02 is slow since "),
        "{}",
        pace.words
    );
    assert!(
        pace.words.contains("the others wait 44 % of the time"),
        "{}",
        pace.words
    );
    assert!(!pace.words.contains("or earlier"), "{}", pace.words);
    assert!(
        pace.evidence_words
            .contains(&"clock 1,100 MHz, of the others 1,980 MHz".to_owned())
    );

    // Who does not see measurements sees none of this.
    let viewer = Viewer::new(Role::User, Way::Socket, Privacy::Usage).with_user("bob");
    let answer = job("7")
        .answer(&viewer, &store, &AnswerConfig::default())
        .unwrap();
    assert_eq!(answer.report.unwrap().pace, None);
}

/// A GPU that is slow in all that was read may have been slow before, also if the first of the windows
/// were not measured.
#[test]
fn a_gpu_that_was_always_slow_is_slow_since_the_first_window_or_earlier() {
    let root = tempdir().unwrap();
    let store = store_in(root.path());
    // The job runs for two hours, and only the last 18 minutes have samples.
    let from = UnixTime::from(Timestamp::now()) - 1100;
    let running = JobRun {
        gpus: Some(8),
        node_list: Some("g[01-02]".into()),
        ..run("7", from - 7200, None, "RUNNING")
    };
    import(store.database(), Some("UTC"), vec![running]);
    write_power_brake(&store, from, 0);

    let pace = ask(&store, &job("7"))
        .unwrap()
        .report
        .unwrap()
        .pace
        .unwrap();
    assert!(
        pace.words.contains(" or earlier, the others wait"),
        "{}",
        pace.words
    );
}
