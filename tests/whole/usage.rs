//! Usage equals sreport's and sacct's to the second.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::support::or_skip;
use crate::support::process::{Daemon, free_port, http_get, wait_for};
use crate::support::slurm::{Job, Mode, PastEvent, PastReservation, Service, SlurmLab, Usage};
use crate::support::takt::Takt;
use std::fs;
use std::thread;

/// A limit that a busy machine does not reach.
const SOON: Duration = Duration::from_secs(90);

/// Starts a server that polls the lab's Slurm every second.
fn serve(lab: &SlurmLab, timezone: &str) -> (Takt, Daemon) {
    let takt = Takt::fresh().with_environment(lab.environment());
    takt.file(
        "takt.toml",
        format!(
            "timezone = \"{timezone}\"\n[server]\nlisten_address = \"127.0.0.1:{}\"\n\
             [jobs]\ninterval_seconds = 1\nlook_back_seconds = 60\n",
            free_port()
        ),
    );
    let server = takt.start(["serve", "--config", "takt.toml"]);
    (takt, server)
}

/// Waits until an SQL statement gives this answer.
#[track_caller]
fn wait_for_answer(takt: &Takt, statement: &str, answer: &str) {
    let mut last = String::new();
    let until = Instant::now() + SOON;
    // The first line is the header.
    while last.lines().nth(1) != Some(answer) {
        assert!(
            Instant::now() < until,
            "{statement}: expected {answer}, the last answer was {last}"
        );
        thread::sleep(Duration::from_millis(200));
        last = takt.run(["sql", "--format", "csv", statement]).stdout;
    }
}

/// Returns the usage of each account and user by `takt report usage`.
fn reported(takt: &Takt, period: &[&str]) -> BTreeMap<(String, String), Usage> {
    let arguments = [
        "report",
        "usage",
        "--by",
        "account,user",
        "--format",
        "json",
    ];
    let report: serde_json::Value =
        serde_json::from_str(&takt.run(arguments.iter().chain(period)).ok()).unwrap();
    assert_eq!(report["cluster"], "lab");
    report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let seconds = |name: &str| row[name].as_u64().unwrap();
            let key = (
                row["account"].as_str().unwrap().to_owned(),
                row["user"].as_str().unwrap().to_owned(),
            );
            (
                key,
                Usage {
                    cpu_seconds: seconds("cpu_seconds"),
                    gpu_seconds: seconds("gpu_seconds"),
                },
            )
        })
        // sreport has no line for a user without usage.
        .filter(|(_, usage)| *usage != Usage::default())
        .collect()
}

/// Two past months, one with a day of 25 hours: every user's CPU and GPU seconds equal sreport's.
#[test]
fn two_months_of_jobs_equal_sreport() {
    let Some(lab) = or_skip(SlurmLab::start_in(Mode::WithDbd, "Europe/Oslo")) else {
        return;
    };

    // 2026-09-01, 2026-10-01 and 2026-11-01 in Oslo.
    let september = 1_788_213_600;
    let october = 1_790_805_600;
    let november = 1_793_487_600;
    // A day more on both sides: jobs that cross the ends of a month are cut there.
    let jobs = jobs_between(september - 86_400, november + 86_400);
    // A job over the end of a month is the case in which a sum by end time would be wrong.
    assert!(jobs.iter().any(|job| {
        job.start
            .is_some_and(|start| start < october && job.end > october)
    }));
    lab.inject(&jobs);

    let (takt, mut server) = serve(&lab, "Europe/Oslo");
    wait_for_answer(
        &takt,
        "SELECT count(*) AS runs FROM jobs",
        &jobs.len().to_string(),
    );

    // The server polls the cluster's capacity after the jobs.
    wait_for_answer(
        &takt,
        "SELECT count(*) > 0 AS known FROM node_events",
        "true",
    );

    // October has the day of 25 hours.
    for (month, from, to) in [
        ("2026-09", "2026-09-01", "2026-10-01"),
        ("2026-10", "2026-10-01", "2026-11-01"),
    ] {
        let sreport = lab.sreport(from, to);
        assert_eq!(sreport.len(), 4, "{sreport:?}");
        assert_eq!(reported(&takt, &["--month", month]), sreport, "{month}");
        assert_eq!(
            reported(&takt, &["--from", from, "--to", to]),
            sreport,
            "{month}"
        );
        only_planned_gpu_hours_differ(&takt, month);
    }
    server.stop();

    // The files give the same answer once the server has ended.
    assert_eq!(
        reported(&takt, &["--month", "2026-10"]),
        lab.sreport("2026-10-01", "2026-11-01")
    );
}

/// Fails unless `takt reconcile` finds that all hours of users and of the cluster equal sreport's.
/// The only difference are planned GPU-hours, which Slurm does not count.
fn only_planned_gpu_hours_differ(takt: &Takt, month: &str) {
    let lines: serde_json::Value = serde_json::from_str(
        &takt
            .run(["reconcile", "--month", month, "--format", "json"])
            .ok(),
    )
    .unwrap();
    let lines = lines.as_array().unwrap();

    // CPUs and GPUs: four users and six parts of the capacity each.
    assert_eq!(lines.len(), 4 * 2 + 6 * 2, "{lines:#?}");
    for line in lines {
        let what = (
            line["resource"].as_str().unwrap(),
            line["part"].as_str().unwrap(),
        );
        let expected = matches!(what, ("gres/gpu", "planned" | "idle"));
        assert_eq!(line["difference"] != 0, expected, "{line:#}");
        assert_eq!(
            line["reason"].as_str().unwrap().contains("wait"),
            expected,
            "{line:#}"
        );
    }
    let idle: i64 = lines
        .iter()
        .filter(|line| line["resource"] == "gres/gpu")
        .map(|line| line["difference"].as_i64().unwrap())
        .sum();
    assert_eq!(idle, 0, "what is planned here is idle there");
}

/// A month with three reservations: a course, a maintenance, and a maintenance during which jobs
/// kept running. CPU hours equal sreport's, and each difference is named.
#[test]
fn reservations_equal_sreport() {
    let Some(lab) = or_skip(SlurmLab::start(Mode::WithDbd)) else {
        return;
    };
    const HOUR: i64 = 3600;
    let day = |day: i64| 1_788_220_800 + (day - 1) * 86_400; // September 2026
    let kept =
        |id, name, node, owners: &[(&'static str, &'static str)], from, to| PastReservation {
            id,
            name,
            node,
            cpus: 8,
            is_maintenance: false,
            ignores_jobs: false,
            owners: owners.to_vec(),
            from,
            to,
        };

    // It begins within one of the hours that slurmdbd rolls up.
    let lesson = kept(
        1,
        "lesson",
        "node0",
        &[("alice", "lab-a"), ("dave", "lab-b")],
        day(2) + 1800,
        day(2) + 5 * HOUR,
    );

    // A maintenance for which jobs have left, and one that ignores them.
    let upgrade = PastReservation {
        is_maintenance: true,
        ..kept(2, "upgrade", "node2", &[], day(3), day(4))
    };
    let beside = PastReservation {
        is_maintenance: true,
        ignores_jobs: true,
        ..kept(3, "beside", "node1", &[], day(5), day(6))
    };
    lab.inject_reservations(&[lesson, upgrade, beside]);

    // node2 is drained from the noon before the maintenance until its noon: 12 hours are down, the rest is planned.
    lab.inject_events(&[PastEvent {
        node: "node2",
        state: 2 | 1 << 9,
        from: day(2) + 12 * HOUR,
        to: day(3) + 12 * HOUR,
    }]);
    let job = |id, user: &str, account: &str, from: i64, hours: i64, reservation| Job {
        cpus: 4,
        gpus: 1,
        gpu_type: Some("a100"),
        reservation,
        ..Job::new(id, user, account, from - 600, from, from + hours * HOUR)
    };
    lab.inject(&[
        job(1, "alice", "lab-a", day(2) + HOUR, 2, 1),
        Job {
            nodes: vec!["node1"],
            ..job(2, "carol", "lab-b", day(2) + HOUR, 20, 0)
        },
        Job {
            nodes: vec!["node1"],
            ..job(3, "bob", "lab-a", day(5), 30, 0)
        },
        // The month has ended, and the server knows all its records.
        job(4, "bob", "lab-a", day(30), 1, 0),
    ]);

    let (takt, mut server) = serve(&lab, "UTC");
    wait_for_answer(&takt, "SELECT count(*) AS runs FROM jobs", "4");
    wait_for_answer(&takt, "SELECT count(*) AS n FROM reservations", "3");
    wait_for_answer(
        &takt,
        "SELECT count(*) > 0 AS known FROM node_events",
        "true",
    );
    let month: &[&str] = &["--month", "2026-09", "--format", "json"];
    let lines: Vec<serde_json::Value> =
        serde_json::from_str(&takt.run(["reconcile"].iter().chain(month)).ok()).unwrap();

    let line = |user: &str, resource: &str, part: &str| {
        lines
            .iter()
            .find(|line| {
                (&line["user"], &line["resource"], &line["part"])
                    == (&user.into(), &resource.into(), &part.into())
            })
            .unwrap_or_else(|| panic!("no {user} {resource} {part} in {lines:#?}"))
    };

    // All parts of the cluster's hours, so that an hour is not in two of them.
    for part in [
        "allocated",
        "down",
        "planned_down",
        "idle",
        "planned",
        "reported",
    ] {
        assert_eq!(
            line("", "cpu", part)["difference"],
            0,
            "{:#}",
            line("", "cpu", part)
        );
    }

    // The maintenance's day is planned, also while the node is drained; only the half day before is
    // down.
    assert_eq!(line("", "cpu", "planned_down")["ours"], 8 * 86_400);
    assert_eq!(line("", "cpu", "down")["ours"], 8 * 12 * HOUR);

    // The course reservation lasted four and a half hours; Slurm counts the two hours in which a
    // job ran in it as used.
    let idle = 8 * (9 * HOUR / 2 - 2 * HOUR);
    for (user, difference) in [
        ("alice", -idle / 2),
        ("dave", -idle / 2),
        ("bob", 0),
        ("carol", 0),
    ] {
        let used = line(user, "cpu", "used");
        assert_eq!(used["difference"], difference, "{used:#}");
        let reason = used["reason"].as_str().unwrap();
        assert_eq!(
            reason.starts_with(&format!("reservations: Slurm charges {}", -difference)),
            difference != 0,
            "{reason}"
        );
    }

    // Slurm counts no GPUs in a reservation; Takt counts those of its nodes.
    let reason = line("", "gres/gpu", "allocated")["reason"]
        .as_str()
        .unwrap();
    assert!(
        reason.starts_with("Slurm counts the CPUs of reservations only"),
        "{reason}"
    );

    // Two GPUs for four and a half hours, one of them used for two hours.
    let capacity: serde_json::Value =
        serde_json::from_str(&takt.run(["capacity"].iter().chain(month)).ok()).unwrap();
    let gpus = &capacity["rows"][1];
    assert_eq!(gpus["planned_down"], 2 * 86_400, "{gpus:#}");
    assert_eq!(gpus["reserved_idle"], 9 * HOUR - 2 * HOUR, "{gpus:#}");
    server.stop();
}

/// A node spends an hour in each state of `slurm.h`, with each flag: its down time equals sreport's.
#[test]
fn each_state_of_a_node_is_down_time_as_in_sreport() {
    let Some(lab) = or_skip(SlurmLab::start(Mode::WithDbd)) else {
        return;
    };
    const HOUR: i64 = 3600;
    let september = 1_788_220_800;

    // UNKNOWN, ERROR and FUTURE, then DOWN, IDLE, ALLOCATED and MIXED with each flag from RES to BLOCKED, except
    // POWERED_DOWN: Slurm 22.05 counts it as down, later releases as planned down.
    const POWERED_DOWN: u32 = 12;
    let mut states = vec![0, 1 << 11, 4, 6];
    for base in [1, 2, 3, 5] {
        states.push(base);
        let flags = (5..=27).filter(|flag| *flag != POWERED_DOWN);
        states.extend(flags.map(|flag| base | 1 << flag));
    }
    let events: Vec<PastEvent> = (september..)
        .step_by(HOUR as usize)
        .zip(&states)
        .map(|(from, state)| PastEvent {
            node: "node0",
            state: *state,
            from,
            to: from + HOUR,
        })
        .collect();
    lab.inject_events(&events);

    // Jobs at both ends of the month, as records begin with the first job and end with the last.
    let last = september + 29 * 86_400;
    lab.inject(&[
        Job::new(1, "alice", "lab-a", september, september, september + 60),
        Job::new(2, "bob", "lab-a", last, last, last + HOUR),
    ]);

    let (takt, mut server) = serve(&lab, "UTC");
    wait_for_answer(&takt, "SELECT count(*) AS runs FROM jobs", "2");
    wait_for_answer(
        &takt,
        "SELECT count(*) AS n FROM node_events WHERE reason = 'test'",
        &events.len().to_string(),
    );
    let lines: Vec<serde_json::Value> = serde_json::from_str(
        &takt
            .run(["reconcile", "--month", "2026-09", "--format", "json"])
            .ok(),
    )
    .unwrap();
    for line in lines.iter().filter(|line| line["user"] == "") {
        assert_eq!(line["difference"], 0, "{line:#}");
    }
    let ours = |part: &str| {
        let is_asked =
            |line: &&serde_json::Value| line["resource"] == "gres/gpu" && line["part"] == part;
        lines.iter().find(is_asked).unwrap()["ours"].clone()
    };

    // MAINT is one flag of each of four bases, and FUTURE is planned.
    let down = events.len() as i64 - 4 - 1;
    assert_eq!(ours("down"), 2 * HOUR * down);
    assert_eq!(ours("planned_down"), 2 * HOUR);
    server.stop();
}

/// The usage of an account includes its sub-accounts. CPUs, GPUs, memory and billing equal
/// sreport's.
#[test]
fn accounts_with_those_below_them_equal_sreport() {
    let Some(lab) = or_skip(SlurmLab::start(Mode::WithDbd)) else {
        return;
    };
    // Two levels below lab-a, so that a sum over children alone would be wrong.
    for (account, parent) in [("optics", "lab-a"), ("laser", "optics")] {
        let parent = format!("parent={parent}");
        lab.run(&[
            "sacctmgr",
            "-i",
            "-Q",
            "add",
            "account",
            account,
            &parent,
            "cluster=lab",
        ]);
    }
    let day = |day: i64| 1_788_220_800 + (day - 1) * 86_400; // September 2026
    let job = |id, user: &str, account: &str, gpus, from: i64, seconds: i64| Job {
        cpus: 2 + gpus,
        gpus,
        gpu_type: Some("a100").filter(|_| gpus > 0),
        memory_mib: 3000,
        ..Job::new(id, user, account, from - 60, from, from + seconds)
    };

    // One job crosses midnight, and one the end of the month.
    lab.inject(&[
        job(1, "alice", "lab-a", 1, day(1), 10_000),
        job(2, "erin", "optics", 2, day(2), 7777),
        job(3, "frank", "laser", 0, day(3), 86_400),
        job(4, "alice", "laser", 1, day(4) - 100, 200),
        job(5, "carol", "lab-b", 1, day(30) + 80_000, 20_000),
    ]);
    let (takt, mut server) = serve(&lab, "UTC");
    wait_for_answer(&takt, "SELECT count(*) AS runs FROM jobs", "5");
    wait_for_answer(
        &takt,
        "SELECT count(*) > 0 AS known FROM share_settings WHERE settings LIKE '%laser%'",
        "true",
    );

    let sreport = lab.run(&[
        "sreport",
        "-n",
        "-P",
        "-t",
        "seconds",
        "--tres=cpu,gres/gpu,mem,billing",
        "cluster",
        "AccountUtilizationByUser",
        "start=2026-09-01",
        "end=2026-10-01",
        "format=Account,Login,TresName,Used",
    ]);

    // A row without a user is the account with its sub-accounts; root's row is the whole cluster.
    let mut expected: BTreeMap<(String, String), u64> = BTreeMap::new();
    for row in sreport.lines() {
        let [account, "", tres, used] = row.split('|').collect::<Vec<_>>()[..] else {
            continue;
        };
        if account != "root" {
            expected.insert((account.to_owned(), tres.to_owned()), used.parse().unwrap());
        }
    }
    assert_eq!(expected.len(), 4 * 4, "{sreport}");
    let arguments = [
        "report",
        "usage",
        "--by",
        "account_tree",
        "--month",
        "2026-09",
        "--format",
        "json",
    ];
    let report: serde_json::Value = serde_json::from_str(&takt.run(arguments).ok()).unwrap();
    let mut ours = BTreeMap::new();
    for row in report["rows"].as_array().unwrap() {
        let account = row["account_tree"]
            .as_str()
            .unwrap()
            .rsplit('/')
            .next()
            .unwrap();
        let seconds = |name: &str| row[name].as_u64().unwrap();
        // sreport counts memory in MiB-seconds.
        let mebibyte_seconds =
            (row["mem_gib_hours"].as_f64().unwrap() * 1024.0 * 3600.0).round() as u64;
        for (tres, used) in [
            ("cpu", seconds("cpu_seconds")),
            ("gres/gpu", seconds("gpu_seconds")),
            ("mem", mebibyte_seconds),
            ("billing", seconds("billing_seconds")),
        ] {
            ours.insert((account.to_owned(), tres.to_owned()), used);
        }
    }
    assert_eq!(ours, expected);
    assert!(
        report["rows"]
            .as_array()
            .unwrap()
            .iter()
            .any(|row| row["account_tree"] == "lab-a/optics/laser"),
        "{report:#}"
    );

    // The days of the month add up to the month.
    let arguments = [
        "report", "usage", "--by", "day,user", "--month", "2026-09", "--format", "json",
    ];
    let days: serde_json::Value = serde_json::from_str(&takt.run(arguments).ok()).unwrap();
    let sum = |name: &str| {
        days["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row[name].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(
        sum("cpu_seconds"),
        report["totals"]["cpu_seconds"].as_u64().unwrap()
    );
    assert_eq!(
        sum("billing_seconds"),
        report["totals"]["billing_seconds"].as_u64().unwrap()
    );
    server.stop();
}

/// Live jobs: an array, a failure, a requeue, with and without GPUs; and a slurmdbd that is down
/// for a while.
#[test]
fn live_jobs_equal_sacct() {
    let Some(mut lab) = or_skip(SlurmLab::start(Mode::WithDbd)) else {
        return;
    };
    let (takt, mut server) = serve(&lab, "UTC");

    lab.submit(
        "alice",
        &["-J", "train", "--gres=gpu:a100:1", "-t", "5"],
        "sleep 4",
    );
    lab.submit(
        "alice",
        &["-J", "wide", "-N2", "-n6", "--gres=gpu:1", "-t", "5"],
        "sleep 2",
    );
    // At most two tasks at a time, so that some of them are pending for a while.
    lab.submit("bob", &["-J", "array", "-a", "0-3%2", "-t", "5"], "sleep 1");
    lab.submit("carol", &["-J", "fails", "-t", "5"], "exit 3");
    let again = lab.submit(
        "dave",
        &[
            "-J",
            "again",
            "--requeue",
            "-n3",
            "--gres=gpu:l40s:2",
            "-t",
            "5",
        ],
        "sleep 600",
    );
    lab.wait_for_state(again, "RUNNING", SOON);

    // The first run is recorded as running before it is recorded as requeued.
    wait_for_answer(
        &takt,
        "SELECT count(*) AS n FROM jobs WHERE \"user\" = 'dave' AND state = 'RUNNING'",
        "1",
    );
    lab.stop(Service::Slurmdbd);
    lab.run(&["scontrol", "requeue", &again.to_string()]);
    lab.submit(
        "carol",
        &["-J", "meanwhile", "-n2", "--gres=gpu:1", "-t", "5"],
        "sleep 1",
    );
    // Some polls fail meanwhile.
    thread::sleep(Duration::from_secs(3));
    lab.start_service(Service::Slurmdbd);
    lab.run(&["scancel", &again.to_string()]);
    lab.wait_until_idle(SOON);

    // With -D, or sacct hides the run before the requeue.
    let sacct = || {
        let fields = "JobID,User,Account,State,ElapsedRaw,AllocCPUS,AllocTRES";
        lab.run(&[
            "sacct",
            "-a",
            "-D",
            "-X",
            "-P",
            "-n",
            "-S",
            "1970-01-01",
            "-o",
            fields,
        ])
    };
    let until = Instant::now() + SOON;
    let rows = loop {
        let rows = sacct();
        let ended = rows
            .lines()
            .all(|row| !row.contains("|RUNNING|") && !row.contains("|PENDING|"));
        if rows.lines().count() == 9 && ended {
            break rows;
        }
        assert!(
            Instant::now() < until,
            "expected nine runs that have ended:\n{rows}"
        );
        thread::sleep(Duration::from_millis(500));
    };
    assert!(
        rows.contains("|REQUEUED|") && rows.contains("|FAILED|"),
        "{rows}"
    );
    wait_for_answer(
        &takt,
        "SELECT count(*) AS n FROM jobs WHERE end_time IS NOT NULL",
        "9",
    );

    let mut expected: BTreeMap<(String, String), Usage> = BTreeMap::new();
    for row in rows.lines() {
        let fields: Vec<&str> = row.split('|').collect();
        let elapsed: u64 = fields[4].parse().unwrap();
        let amount = |name: &str| {
            fields[6]
                .split(',')
                .find_map(|tres| tres.strip_prefix(name)?.strip_prefix('='))
                .map_or(0, |amount| amount.parse::<u64>().unwrap())
        };
        let usage = expected
            .entry((fields[2].to_owned(), fields[1].to_owned()))
            .or_default();
        usage.cpu_seconds += elapsed * amount("cpu");
        usage.gpu_seconds += elapsed * amount("gres/gpu");
    }
    expected.retain(|_, usage| *usage != Usage::default());
    assert_eq!(expected.len(), 4, "{rows}");

    // Some seconds may pass until a poll sees the end of a run.
    wait_for("the last poll", SOON, || {
        (reported(&takt, &["--from", "2026-01-01", "--to", "2100-01-01"]) == expected).then_some(())
    });

    let config = fs::read_to_string(takt.directory().join("takt.toml")).unwrap();
    let address = config.split('"').nth(3).unwrap();
    for (path, expected) in [("/people", "alice"), ("/health", "records are up to date")] {
        let page = http_get(&format!("http://{address}{path}")).unwrap().body;
        assert!(page.contains(expected), "{page}");
    }
    server.stop();
}

/// Returns consecutive jobs on each of the lab's six GPUs, so that usage stays within capacity.
fn jobs_between(from: i64, to: i64) -> Vec<Job> {
    let users = [
        ("alice", "lab-a"),
        ("bob", "lab-a"),
        ("carol", "lab-b"),
        ("dave", "lab-b"),
    ];
    let mut jobs = Vec::new();
    let mut seed = 42_u64;
    // The same jobs in each run, so that a failure can be looked into.
    let mut below = move |limit: i64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((seed >> 33) % limit as u64) as i64
    };
    for slot in 0..6 {
        let (node, gpu_type) = [("node0", "a100"), ("node1", "a100"), ("node2", "l40s")][slot / 2];
        let mut free = from;
        while free < to {
            let (user, account) = users[below(4) as usize];
            let start = free + below(3600);
            let end = start + below(40_000);
            let mut job = Job::new(
                200_000 + jobs.len() as u32,
                user,
                account,
                start - below(7200),
                start,
                end,
            );
            job.nodes = vec![node];
            job.cpus = 1 + below(4) as u32;
            match below(8) {
                0 => job.state = "FAILED",
                1 => job.state = "TIMEOUT",
                // Cancelled before its start: it used nothing.
                2 => (job.start, job.state) = (None, "CANCELLED"),
                _ => {}
            }
            if below(3) > 0 {
                (job.gpus, job.gpu_type) = (1, Some(gpu_type));
            }
            free = end + 1;
            jobs.push(job);
        }
    }
    jobs
}
