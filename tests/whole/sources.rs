//! The same workload read from each source of job records gives the same runs.

use std::time::{Duration, Instant};

use crate::support::process::{self, Daemon, free_port, http_get, http_get_with, tail};
use crate::support::slurm::{Mode, PREEMPTION, Service, SlurmLab};
use crate::support::takt::Takt;
use crate::support::{Needed, need, or_skip};
use std::fs;
use std::thread;

/// A limit that a busy machine does not reach.
const SOON: Duration = Duration::from_secs(120);

/// Starts a server with these sources and returns its address.
fn serve(lab: &SlurmLab, sources: &str) -> (Takt, Daemon, String) {
    let takt = Takt::fresh().with_environment(lab.environment());
    let address = format!("127.0.0.1:{}", free_port());
    takt.file(
        "takt.toml",
        format!(
            "timezone = \"UTC\"\n[server]\nlisten_address = \"{address}\"\n\
             [jobs]\ninterval_seconds = 1\nlook_back_seconds = 60\nhistory_days = 1\n{sources}\n"
        ),
    );
    let server = takt.start(["serve", "--config", "takt.toml"]);
    (takt, server, address)
}

/// Waits until an SQL statement gives this answer.
#[track_caller]
fn wait_for_answer(takt: &Takt, statement: &str, answer: &str) {
    let mut last = String::new();
    let until = Instant::now() + SOON;
    // All rows but the header.
    while last.split_once('\n').map(|(_, rows)| rows.trim()) != Some(answer.trim()) {
        assert!(
            Instant::now() < until,
            "{statement}: expected\n{answer}\nthe last answer was\n{last}\nthe server says\n{}",
            tail(&fs::read_to_string(takt.directory().join("takt.log")).unwrap_or_default())
        );
        thread::sleep(Duration::from_millis(300));
        last = takt.run(["sql", "--format", "csv", statement]).stdout;
    }
}

/// Waits until the page of the server's health shows these words about the scheduler.
#[track_caller]
fn wait_for_page(address: &str, words: &str) {
    let until = Instant::now() + SOON;
    loop {
        let page = http_get(&format!("http://{address}/health"))
            .map(|page| page.body)
            .unwrap_or_default();
        if page.contains(words) {
            return;
        }
        assert!(Instant::now() < until, "no '{words}' on the page:\n{page}");
        thread::sleep(Duration::from_millis(300));
    }
}

const RUNS: &str = "SELECT job_name, state, \"user\", account, nodes, cpus, gpus, gpu_model, \
     exit_code, timelimit_seconds, \
                    count(*) AS runs FROM jobs WHERE job_name <> 'meanwhile' GROUP BY ALL ORDER BY \
                    job_name, state";

/// Jobs with and without GPUs, on one node and two, an array and a failure; each long enough that
/// slurmctld reports it.
fn the_same_runs(lab: &SlurmLab, takt: &Takt, exit_code: &str) {
    lab.submit(
        "alice",
        &["-J", "train", "--gres=gpu:a100:1", "-t", "5"],
        "sleep 12",
    );
    lab.submit(
        "dave",
        &["-J", "spread", "-N2", "-n2", "--gres=gpu:a100:1", "-t", "5"],
        "sleep 12",
    );
    lab.submit("bob", &["-J", "array", "-a", "0-1", "-t", "5"], "sleep 12");
    lab.submit("carol", &["-J", "fails", "-t", "5"], "sleep 12; exit 3");
    wait_for_answer(
        takt,
        RUNS,
        &format!(
            "array,COMPLETED,bob,lab-a,1,1,0,,0:0,300,2\n\
             fails,FAILED,carol,lab-b,1,1,0,,{exit_code},300,1\n\
             spread,COMPLETED,dave,lab-b,2,2,2,a100,0:0,300,1\n\
             train,COMPLETED,alice,lab-a,1,1,1,a100,0:0,300,1"
        ),
    );

    // The run times equal slurmctld's to the second.
    let rows = takt
        .run([
            "sql",
            "--format",
            "csv",
            "SELECT job_id, epoch(end_time - start_time)::INT FROM jobs",
        ])
        .ok();
    for row in rows.lines().skip(1) {
        let (id, seconds) = row.split_once(',').unwrap();
        let shown = lab.run(&["scontrol", "show", "job", "-o", id]);
        let run_time = shown
            .split("RunTime=")
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .unwrap();
        assert_eq!(run_time, format!("00:00:{seconds}"), "{id}");
    }
    wait_for_answer(
        takt,
        "SELECT job_name, count(DISTINCT (node, gpu_index)) AS gpus FROM job_gpus JOIN jobs USING \
         (job_id) GROUP BY job_name ORDER BY job_name",
        "spread,2\ntrain,1",
    );
}

/// Heterogeneous jobs, a job that gives a node back while it runs, preempted jobs and waiting jobs.
fn the_hard_cases(lab: &SlurmLab, takt: &Takt) {
    let parts = [
        "-J",
        "parts",
        "--mem=100",
        "--gres=gpu:a100:1",
        "-t",
        "5",
        ":",
        "-n2",
        "--mem=100",
        "-t",
        "5",
    ];
    // Two components, of which only one has a GPU.
    lab.submit("carol", &parts, "sleep 12");
    let shrinks = lab.submit(
        "bob",
        &[
            "-J",
            "shrinks",
            "-N2",
            "-n2",
            "--gres=gpu:a100:1",
            "-t",
            "5",
        ],
        "sleep 20",
    );
    lab.wait_for_state(shrinks, "RUNNING", SOON);
    wait_for_answer(
        takt,
        "SELECT state, gpus FROM jobs WHERE job_name = 'shrinks'",
        "RUNNING,2",
    );

    // Slurm's times are whole seconds, so a resize in the second of the submission starts no second
    // run.
    thread::sleep(Duration::from_millis(1100));
    lab.run(&[
        "scontrol",
        "update",
        &format!("JobId={shrinks}"),
        "NumNodes=1",
    ]);
    nothing_is_queued(lab);

    // One job in each partition of PREEMPTION, on the whole node, so that `urgent` must preempt it.
    let jobs = ["requeued", "cancelled", "suspended"].map(|way| {
        lab.submit(
            "alice",
            &[
                "-J",
                way,
                "-p",
                way,
                "-n8",
                "--mem=1000",
                "--requeue",
                "-t",
                "5",
            ],
            "sleep 20",
        )
    });
    jobs.iter()
        .for_each(|job| lab.wait_for_state(*job, "RUNNING", SOON));
    wait_for_answer(
        takt,
        "SELECT count(*) AS n FROM jobs WHERE \"partition\" LIKE '%ed' AND state = 'RUNNING'",
        "3",
    );
    for node in ["node0", "node1", "node2"] {
        lab.submit(
            "dave",
            &[
                "-J",
                "urgent",
                "-p",
                "urgent",
                "-w",
                node,
                "-n8",
                "--mem=1000",
                "-t",
                "5",
            ],
            "sleep 12",
        );
    }
    lab.wait_for_state(jobs[2], "SUSPENDED", SOON);

    // One job that its user holds, and one for which no three nodes are free.
    let held = lab.submit("bob", &["-J", "held", "--hold", "-t", "5"], "sleep 1");
    let wide = lab.submit(
        "bob",
        &["-J", "wide", "-N3", "--exclusive", "-t", "5"],
        "sleep 1",
    );
    jobs_that_wait(takt, held, wide);
    lab.run(&[
        "scancel",
        &held.to_string(),
        &wide.to_string(),
        &jobs[0].to_string(),
    ]);
    nothing_is_queued(lab);
    wait_for_answer(
        takt,
        "SELECT job_name, nodes, cpus, gpus, count(*) AS runs FROM jobs WHERE start_time IS NOT \
         NULL AND end_time IS NOT NULL \
         AND job_name IN ('parts', 'shrinks', 'requeued', 'cancelled', 'suspended', 'urgent') \
         GROUP BY ALL ORDER BY ALL",
        "cancelled,1,8,0,1\nparts,1,1,1,1\nparts,1,2,0,1\nrequeued,1,8,0,1\nshrinks,1,1,1,1\nshrinks,2,2,2,1\n\
         suspended,1,8,0,1\nurgent,1,8,0,3",
    );

    // The run before the resize ends when the run after it begins.
    wait_for_answer(
        takt,
        "SELECT count(*) AS n FROM jobs AS a JOIN jobs AS b USING (cluster, job_id)
         WHERE a.job_name = 'shrinks' AND a.end_time = b.start_time AND b.end_time > b.start_time AND a.nodes = 2",
        "1",
    );
    wait_for_answer(
        takt,
        "SELECT string_agg(job_id[-1:], ' ' ORDER BY job_id) AS parts FROM jobs WHERE job_name = \
         'parts'",
        "0 1",
    );
}

/// Waits until slurmctld's queue is empty. sacct has no row for a job that was held until it was
/// cancelled.
fn nothing_is_queued(lab: &SlurmLab) {
    let queued = || {
        lab.run(&["squeue", "-h", "-o", "%A"])
            .is_empty()
            .then_some(())
    };
    process::wait_for("end of all jobs", SOON, queued);
}

/// `takt job` explains in words why a job waits.
fn jobs_that_wait(takt: &Takt, held: u32, wide: u32) {
    let listed = |job: u32, reason: &str| {
        let waits = || {
            takt.run(["jobs", "--state", "pending", "--format", "csv"])
                .ok()
                .lines()
                .any(|line| {
                    line.starts_with(&format!("{job},"))
                        && line.split(',').any(|cell| cell == reason)
                })
                .then_some(())
        };
        process::wait_for(&format!("{job} {reason}"), SOON, waits);
    };
    listed(held, "JobHeldUser");

    // The command wraps its lines.
    let shown = |job: u32| {
        takt.run(["job", &job.to_string()])
            .ok()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let said = shown(held);
    assert!(
        said.contains("its user holds it: scontrol release"),
        "{said}"
    );
    listed(wide, "Resources");
    let said = shown(wide);
    assert!(
        said.contains("it is next, but cpu=")
            && said.contains("is not free at once in partition gpu"),
        "{said}"
    );
}

#[test]
fn runs_from_sacct() {
    let Some(lab) = or_skip(SlurmLab::start_with(Mode::WithDbd, "UTC", PREEMPTION)) else {
        return;
    };
    let (takt, mut server, _) = serve(&lab, "");
    the_same_runs(&lab, &takt, "3:0");
    the_hard_cases(&lab, &takt);
    server.stop();
}

#[test]
fn runs_from_slurmrestd_and_an_expired_token_loses_none() {
    let Some(mut lab) = or_skip(
        need(&[Needed {
            program: "slurmrestd",
            package: "slurmrestd slurm-wlm-jwt-plugin",
        }])
        .and_then(|()| SlurmLab::start_with(Mode::WithDbd, "UTC", PREEMPTION)),
    ) else {
        return;
    };
    lab.start_service(Service::Slurmrestd);
    let sources = format!(
        "[jobs.slurmrestd]\nurl = \"{}\"\nuser = \"monitor\"\ntoken_file = \"token\"",
        lab.slurmrestd()
    );
    let takt = Takt::fresh();
    let token = takt.file("token", lab.token("monitor", 3600));
    let sources = sources.replace("\"token\"", &format!("{token:?}"));
    let (takt, mut server, address) = serve(&lab, &sources);

    // Slurm 22.05 sends 0 over REST, which Takt ignores.
    the_same_runs(&lab, &takt, "");
    the_hard_cases(&lab, &takt);

    // A job runs and ends while the token is refused.
    fs::write(&token, "not.a.token").unwrap();
    wait_for_page(&address, "slurmrestd rejected the request");
    lab.submit("carol", &["-J", "meanwhile", "-t", "5"], "sleep 1");
    nothing_is_queued(&lab);
    fs::write(&token, lab.token("monitor", 3600)).unwrap();
    wait_for_answer(
        &takt,
        "SELECT state FROM jobs WHERE job_name = 'meanwhile'",
        "COMPLETED",
    );
    lab.stop(Service::Slurmdbd);
    wait_for_page(&address, "slurmdbd does not answer");
    lab.start_service(Service::Slurmdbd);
    wait_for_page(&address, "records are up to date");

    lab.stop(Service::Slurmrestd);
    wait_for_page(&address, "slurmrestd does not answer at");
    server.stop();
}

/// Accounts come from takt.toml. Runs that ended between two polls are known, but not their GPUs.
#[test]
fn runs_from_the_completion_file_and_slurmctld() {
    let Some(lab) = or_skip(SlurmLab::start_with(Mode::WithoutDbd, "UTC", PREEMPTION)) else {
        return;
    };
    let accounts = "[[fairshare.accounts]]\naccount = \"lab-a\"\nshares = 60\nusers = { alice = \
         10, bob = 10 }\n\
                    [[fairshare.accounts]]\naccount = \"lab-b\"\nshares = 40\nusers = { carol = \
                    10, dave = 10 }\n";
    let (takt, mut server, address) = serve(&lab, accounts);
    the_same_runs(&lab, &takt, "3:0");
    the_hard_cases(&lab, &takt);
    wait_for_page(&address, "records are up to date");
    server.stop();

    lab.submit(
        "carol",
        &["-J", "meanwhile", "--gres=gpu:1", "-t", "5"],
        "sleep 1",
    );
    lab.wait_until_idle(SOON);

    // slurmctld has then forgotten the job's resources, and the completion file never has GPUs.
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    wait_for_answer(
        &takt,
        "SELECT state, account, cpus, gpus IS NULL AS unknown FROM jobs WHERE job_name = \
         'meanwhile'",
        "COMPLETED,lab-b,1,true",
    );
    server.stop();

    // Importing the same file by hand changes nothing.
    let path = lab.jobcomp().display().to_string();
    let every_run = || {
        let every = "SELECT * EXCLUDE (source, recorded_at) FROM jobs ORDER BY ALL";
        takt.run(["sql", "--format", "csv", every]).ok()
    };
    let before = every_run();
    let imported = takt
        .run([
            "--config",
            "takt.toml",
            "import",
            "jobcomp",
            &path,
            "--cluster",
            "lab",
            "--format",
            "csv",
        ])
        .ok();
    assert!(
        imported.contains("runs new,0\nruns corrected,0\nruns known already,"),
        "{imported}\nbefore\n{before}\nafter\n{}",
        every_run()
    );

    // The times of the same runs are nine hours off, which must not make them other runs.
    let wrong = takt
        .run([
            "import",
            "jobcomp",
            &path,
            "--cluster",
            "lab",
            "--timezone",
            "Asia/Tokyo",
        ])
        .fails(1);
    assert!(
        wrong.contains("are known already, 9 h") && wrong.contains("--timezone"),
        "{wrong}"
    );
}

/// slurmrestd on its Unix socket, its default without a port, with a user's token.
#[test]
fn runs_from_slurmrestd_over_its_socket() {
    let Some(mut lab) = or_skip(
        need(&[Needed {
            program: "slurmrestd",
            package: "slurmrestd slurm-wlm-jwt-plugin",
        }])
        .and_then(|()| SlurmLab::start(Mode::WithDbd)),
    ) else {
        return;
    };
    lab.start_service(Service::Slurmrestd);
    let takt = Takt::fresh();
    let token = takt.file("token", lab.token("monitor", 3600));
    let (takt, mut server, address) = serve(
        &lab,
        &format!(
            "[jobs.slurmrestd]\nurl = \"unix:{}\"\nuser = \"monitor\"\ntoken_file = {token:?}",
            lab.slurmrestd_socket().display()
        ),
    );
    lab.run(&[
        "scontrol",
        "create",
        "reservation",
        "ReservationName=class",
        "StartTime=now",
        "Duration=60",
        "Nodes=node0",
        "Accounts=lab-a",
    ]);
    lab.submit(
        "alice",
        &[
            "-J",
            "lesson",
            "--reservation=class",
            "--gres=gpu:1",
            "-t",
            "5",
        ],
        "sleep 2",
    );

    wait_for_answer(
        &takt,
        "SELECT state, gpus, reservation FROM jobs WHERE job_name = 'lesson'",
        "COMPLETED,1,class",
    );
    wait_for_answer(
        &takt,
        "SELECT name, cpus, owners, source FROM reservations",
        "class,8,lab-a,slurmctld",
    );
    wait_for_page(&address, "records are up to date");
    server.stop();
}

/// slurmdbd does not record GPUs: they are counted for jobs that were polled while running, unknown
/// for others, and never 0.
#[test]
fn gpus_that_slurmdbd_does_not_record_come_from_slurmctld() {
    let Some(lab) = or_skip(SlurmLab::start(Mode::WithoutGpuTres)) else {
        return;
    };
    lab.submit(
        "carol",
        &["-J", "before", "--gres=gpu:a100:1", "-t", "5"],
        "sleep 1",
    );
    lab.wait_until_idle(SOON);

    // slurmctld has then forgotten the job's resources.
    let (takt, mut server, address) = serve(&lab, "");
    lab.submit(
        "alice",
        &["-J", "train", "--gres=gpu:a100:2", "-t", "5"],
        "sleep 12",
    );
    lab.submit("alice", &["-J", "compile", "-t", "5"], "sleep 12");
    // Unknown for the first, 0 for a job that held none, and two for the other.
    wait_for_answer(
        &takt,
        "SELECT job_name, state, gpus, gpu_model FROM jobs ORDER BY job_name",
        "before,COMPLETED,,\ncompile,COMPLETED,0,\ntrain,COMPLETED,2,a100",
    );
    wait_for_page(
        &address,
        "but without GPUs: AccountingStorageTRES in slurm.conf lacks",
    );
    server.stop();
}

/// The series about Slurm for rules and dashboards: daemons, nodes, waiting jobs and the last job
/// start.
#[test]
fn the_servers_own_series_show_the_state_of_slurm() {
    let Some(mut lab) = or_skip(SlurmLab::start(Mode::WithDbd)) else {
        return;
    };
    let (_takt, _server, address) = serve(&lab, "");
    let wait = |query: &str, value: &str| {
        let url = format!("http://{address}/api/v1/query");
        let mut last = String::new();
        let until = Instant::now() + SOON;
        while !last.contains(&format!(",\"{value}\"]")) {
            assert!(
                Instant::now() < until,
                "{query}: expected {value}, the last answer was {last}"
            );
            thread::sleep(Duration::from_millis(300));
            last = http_get_with(&url, &[("query", query)], &[])
                .map(|page| page.body)
                .unwrap_or_default();
        }
    };
    wait("count(takt_slurm_up == 1)", "2");
    wait("takt_slurm_nodes{state=\"idle\",job=\"takt-server\"}", "3");

    // A drained node, a held job and a running one.
    lab.run(&[
        "scontrol",
        "update",
        "nodename=node1",
        "state=drain",
        "reason=bad fan",
    ]);
    lab.submit("bob", &["-t", "5", "--hold"], "sleep 1");
    lab.submit("alice", &["-t", "5"], "sleep 300");

    // The series are written every 15 seconds: one reading shows all of these changes.
    wait(
        "takt_slurm_node_unavailable{node=\"node1\",reason=\"bad fan\"}",
        "1",
    );
    wait("takt_slurm_nodes{state=\"unavailable\"}", "1");
    wait(
        "sum by (reason) (takt_slurm_jobs_pending{reason=\"JobHeldUser\"})",
        "1",
    );
    wait(
        "time() - takt_slurm_last_start_timestamp_seconds < bool 600",
        "1",
    );
    lab.stop(Service::Slurmdbd);
    wait("takt_slurm_up{daemon=\"slurmdbd\"}", "0");
    wait("takt_slurm_up{daemon=\"slurmctld\"}", "1");
    lab.start_service(Service::Slurmdbd);
    wait("count(takt_slurm_up == 1)", "2");

    // Without slurmctld nodes and queue are unknown, not 0.
    lab.stop(Service::Slurmctld);
    wait("takt_slurm_up{daemon=\"slurmctld\"}", "0");
    wait("absent(takt_slurm_nodes)", "1");
    wait("absent(takt_slurm_jobs_pending)", "1");
}
