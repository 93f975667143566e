//! Jobs of a real Slurm as the exporter sees them: a GPU that a job holds without using it, its
//! user, and its release. Also the server's view of them, and processes on a machine without a
//! scheduler.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::or_skip;
use crate::support::process::{Daemon, free_port, http_get};
use crate::support::slurm::{Mode, SlurmLab};
use crate::support::takt::{Takt, copy_program};
use jiff::tz::TimeZone;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;

/// A limit that a busy machine does not reach.
const SOON: Duration = Duration::from_secs(90);

/// Starts an exporter with two GPUs of the NVML stand-in and returns its address; `script` adds
/// statements about the GPUs.
fn two_gpus(takt: Takt, script: &str) -> (Takt, Daemon, String) {
    let gpus = format!("profile rtx5090 2\ngpu 0 uuid GPU-first\ngpu 1 uuid GPU-second\n{script}");
    let gpus = takt.file("gpus.txt", gpus).display().to_string();
    let library = Path::new(env!("CARGO_BIN_EXE_takt")).with_file_name("libnvml_stand_in.so");
    assert!(
        library.exists(),
        "{} is missing; cargo build -p nvml-stand-in",
        library.display()
    );

    // Only the lab's environment knows its users.
    let takt = takt.with_environment([("NVML_STAND_IN_SCRIPT".to_owned(), gpus)]);
    let address = format!("127.0.0.1:{}", free_port());
    let library = library.display().to_string();
    let exporter = takt.start([
        "exporter",
        "--web.listen-address",
        &address,
        "--nvml.library",
        &library,
    ]);
    (takt, exporter, address)
}

/// Starts a server that scrapes the exporter every second as `node0`.
fn serve(takt: &Takt, exporter: &str, jobs: &str) -> Daemon {
    takt.file(
        "takt.toml",
        format!(
            "cluster = \"lab\"\ntimezone = \"UTC\"\n[server]\nlisten_address = \"127.0.0.1:{}\"\n\
             [scrape]\ninterval_seconds = 1\ntimeout_seconds = 1\n\
             [[scrape.targets]]\naddress = \"{exporter}\"\nnode = \"node0\"\n[jobs]\n{jobs}",
            free_port()
        ),
    );
    takt.start(["serve", "--config", "takt.toml"])
}

/// Waits until a command prints these rows.
#[track_caller]
fn wait_for_rows(takt: &Takt, command: &[&str], within: Duration, rows: &str) {
    let until = Instant::now() + within;
    let mut last = String::new();
    while last.split_once('\n').map(|(_, rows)| rows.trim()) != Some(rows) {
        assert!(
            Instant::now() < until,
            "{command:?}: expected\n{rows}\nthe last answer was\n{last}"
        );
        thread::sleep(Duration::from_millis(300));
        last = takt.run(command).stdout;
    }
}

/// The current month in the format of reports.
fn this_month() -> String {
    jiff::Timestamp::now()
        .to_zoned(TimeZone::UTC)
        .strftime("%Y-%m")
        .to_string()
}

#[test]
fn a_slurm_job_holds_its_gpu_though_no_process_uses_it() {
    let Some(lab) = or_skip(SlurmLab::start(Mode::WithoutDbd)) else {
        return;
    };
    let (_takt, mut exporter, address) =
        two_gpus(Takt::fresh().with_environment(lab.environment()), "");
    let page = format!("http://{address}/metrics");
    let mut wait_for = |what: &str, is_so: &dyn Fn(&str) -> bool| {
        exporter.wait_until(what, SOON, || {
            http_get(&page).ok().filter(|page| is_so(&page.body))
        })
    };

    // One job takes both GPUs of the node, so the order in which Slurm assigns them does not
    // matter. The other takes none.
    let holds = lab.submit("alice", &["--gres=gpu:2", "-t", "5"], "sleep 300");
    let none = lab.submit("bob", &["-t", "5"], "sleep 300");
    wait_for("both jobs", &|page| {
        let line = |name: &str, labels: &str| page.contains(&format!("{name}{{{labels}}} 1\n"));
        let info = |job, user| {
            line(
                "takt_job_info",
                &format!("jobid=\"{job}\",user=\"{user}\",scheduler=\"slurm\",sluid=\"\""),
            )
        };
        let given = |uuid| {
            line(
                "takt_gpu_job_info",
                &format!("uuid=\"{uuid}\",jobid=\"{holds}\",user=\"alice\""),
            )
        };
        info(holds, "alice") && info(none, "bob") && given("GPU-first") && given("GPU-second")
    });
    let now = http_get(&page).unwrap().body;
    assert!(
        !now.contains(&format!("jobid=\"{none}\",user=\"bob\"}}")),
        "it was given no GPU:\n{now}"
    );
    assert!(now.contains("takt_jobs_unreadable 0\n"), "{now}");

    lab.run(&["scancel", &holds.to_string(), &none.to_string()]);
    let gone = [holds, none].map(|job| format!("jobid=\"{job}\""));
    wait_for("their end", &|page| {
        gone.iter().all(|job| !page.contains(job))
    });
}

/// The node knows array tasks by their raw job ids, slurmctld by array and task id.
#[test]
fn gpus_of_array_tasks_are_shown_by_task_and_charged_though_unused() {
    let Some(lab) = or_skip(SlurmLab::start(Mode::WithDbd)) else {
        return;
    };
    let idle = "gpu 0 utilization 0 0\ngpu 1 utilization 0 0\n";
    let (takt, mut exporter, address) =
        two_gpus(Takt::fresh().with_environment(lab.environment()), idle);
    let mut server = serve(
        &takt,
        &address,
        "interval_seconds = 1\nlook_back_seconds = 60\n",
    );
    let array = lab.submit(
        "alice",
        &["-a", "5-6", "-w", "node0", "--gres=gpu:a100:1", "-t", "5"],
        "sleep 300",
    );

    // The exporter also sees jobs of labs that other tests run at the same time.
    let held = &format!(
        "SELECT string_agg(job_id, ' ' ORDER BY job_id) AS tasks,
                string_agg(uuid, ' ' ORDER BY uuid) AS gpus, count(submit_time) AS known
         FROM job_gpus WHERE source = 'exporter' AND starts_with(job_id, '{array}_')"
    );
    let tasks = format!("{array}_5 {array}_6");
    wait_for_rows(
        &takt,
        &["sql", "--format", "csv", held],
        SOON,
        &format!("{tasks},GPU-first GPU-second,2"),
    );
    let on_gpus = takt.run(["gpus", "--format", "csv"]).ok();
    assert!(
        tasks
            .split(' ')
            .all(|task| on_gpus.contains(&format!(",alice,{task},"))),
        "{on_gpus}"
    );

    lab.run(&["scancel", &array.to_string()]);
    let ended = "SELECT count(*) AS n FROM jobs WHERE end_time > start_time AND gpus = 1 AND \
         raw_job_id <> ''";
    wait_for_rows(&takt, &["sql", "--format", "csv", ended], SOON, "2");
    takt.run(["--config", "takt.toml", "assess", "--month", &this_month()])
        .ok();
    let judged = "SELECT gpus_measured, gpus_idle, coverage_ratio > 0.5 AS seen, waste_idle_gpu_seconds > 0 AS wasted
                  FROM run_efficiency ORDER BY job_id";
    let found = takt.run(["sql", "--format", "csv", judged]).ok();
    assert_eq!(
        found,
        "gpus_measured,gpus_idle,seen,wasted\n1,1,true,true\n1,1,true,true\n"
    );
    server.stop();
    exporter.stop();
}

/// A shared server without a scheduler: one process holds GPU memory and computes nothing.
#[test]
fn without_a_scheduler_processes_have_usage_and_efficiency() {
    let takt = Takt::fresh();
    let program = takt.file("finetune", "");
    copy_program(Path::new("/bin/sleep"), &program);
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let mut process = Command::new(&program).arg("600").spawn().unwrap();
    let held = format!(
        "gpu 0 utilization 0 0\ngpu 0 process {} 8GiB compute\n",
        process.id()
    );
    let (takt, mut exporter, address) = two_gpus(takt, &held);
    let mut server = serve(&takt, &address, "poll = false\n");
    let runs = "SELECT job_id, gpus, source, end_time IS NULL AS goes_on FROM jobs";
    wait_for_rows(
        &takt,
        &["sql", "--format", "csv", runs],
        SOON,
        "node0/gpu0/root,1,processes,true",
    );

    // The exporter also sees jobs of labs that run at the same time.
    let on_gpus = takt.run(["gpus", "--user", "root", "--format", "csv"]).ok();

    // It has not been idle for five minutes yet.
    let held = "node0,0,NVIDIA GeForce RTX 5090,busy,root,,,finetune,8.0,0 %,";
    assert_eq!(on_gpus.lines().skip(1).collect::<Vec<_>>(), [held]);

    // The server polls every fifteen seconds, and a process seen once has no duration.
    let looks = "SELECT count(*) >= 45 AS enough FROM samples WHERE metric = \
         'takt_gpu_process_without_job'";
    wait_for_rows(
        &takt,
        &["sql", "--format", "csv", looks],
        Duration::from_secs(180),
        "true",
    );
    process.kill().unwrap();
    process.wait().unwrap();
    let script = fs::read_to_string(takt.directory().join("gpus.txt")).unwrap();
    takt.file(
        "gpus.txt",
        script
            .lines()
            .filter(|line| !line.contains(" process "))
            .collect::<Vec<_>>()
            .join("\n"),
    );

    // A process counts as ended after two minutes without being seen.
    let runs = "SELECT job_id, state, end_time > start_time AS lasted FROM jobs";
    wait_for_rows(
        &takt,
        &["sql", "--format", "csv", runs],
        Duration::from_secs(300),
        "node0/gpu0/root,COMPLETED,true",
    );
    takt.run(["--config", "takt.toml", "assess", "--month", &this_month()])
        .ok();
    let judged = "SELECT gpus_measured, gpus_idle, coverage_ratio > 0.5 AS seen, \
         gpu_utilization_mean FROM run_efficiency";
    let found = takt.run(["sql", "--format", "csv", judged]).ok();
    assert_eq!(found.lines().nth(1), Some("1,1,true,0.0"), "{found}");
    let report = [
        "--config",
        "takt.toml",
        "report",
        "user",
        "--user",
        "root",
        "--month",
        &this_month(),
    ];
    let report = takt.run(report).ok();
    assert!(report.contains("did nothing"), "{report}");
    server.stop();
    exporter.stop();
}
