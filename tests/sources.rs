//! One workload, told by each source of job records: the same runs come out, whoever tells.

#![allow(clippy::unwrap_used, reason = "a test that cannot have its surroundings shall end")]

mod support;

use std::time::{Duration, Instant};

use support::process::{Daemon, free_port, http_get, tail};
use support::slurm::{Mode, Service, SlurmLab};
use support::takt::Takt;
use support::{Needed, need, or_skip};

/// Long enough for a busy machine.
const SOON: Duration = Duration::from_secs(120);

/// A server with these sources. Gives its address too.
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

/// Waits until a statement has this answer.
#[track_caller]
fn wait_for_answer(takt: &Takt, statement: &str, answer: &str) {
    let mut last = String::new();
    let until = Instant::now() + SOON;
    while last.split_once('\n').map(|(_, rows)| rows.trim()) != Some(answer.trim()) {
        assert!(
            Instant::now() < until,
            "{statement}: expected\n{answer}\nthe last answer was\n{last}\nthe server says\n{}",
            tail(&std::fs::read_to_string(takt.directory().join("takt.log")).unwrap_or_default())
        );
        std::thread::sleep(Duration::from_millis(300));
        last = takt.run(["sql", "--format", "csv", statement]).stdout;
    }
}

/// Waits until the page says this of the scheduler.
#[track_caller]
fn wait_for_page(address: &str, words: &str) {
    let until = Instant::now() + SOON;
    loop {
        let page = http_get(&format!("http://{address}/")).map(|page| page.body).unwrap_or_default();
        if page.contains(words) {
            return;
        }
        assert!(Instant::now() < until, "no '{words}' on the page:\n{page}");
        std::thread::sleep(Duration::from_millis(300));
    }
}

const RUNS: &str = "SELECT job_name, state, \"user\", account, nodes, cpus, gpus, gpu_model, exit_code, timelimit_seconds, \
                    count(*) AS runs FROM jobs WHERE job_name <> 'meanwhile' GROUP BY ALL ORDER BY job_name, state";

/// Jobs with and without GPUs, on one node and two, an array and a failure; long enough that slurmctld tells of each.
fn the_same_runs(lab: &SlurmLab, takt: &Takt, exit_code: &str) {
    lab.submit("alice", &["-J", "train", "--gres=gpu:a100:1", "-t", "5"], "sleep 12");
    lab.submit("dave", &["-J", "spread", "-N2", "-n2", "--gres=gpu:a100:1", "-t", "5"], "sleep 12");
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
    // How long each ran is what slurmctld says, to the second.
    let rows = takt.run(["sql", "--format", "csv", "SELECT job_id, epoch(end_time - start_time)::INT FROM jobs"]).ok();
    for row in rows.lines().skip(1) {
        let (id, seconds) = row.split_once(',').unwrap();
        let shown = lab.run(&["scontrol", "show", "job", "-o", id]);
        let run_time = shown.split("RunTime=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        assert_eq!(run_time, format!("00:00:{seconds}"), "{id}");
    }
    wait_for_answer(
        takt,
        "SELECT job_name, count(DISTINCT (node, gpu_index)) AS gpus FROM job_gpus JOIN jobs USING (job_id) \
         GROUP BY job_name ORDER BY job_name",
        "spread,2\ntrain,1",
    );
}

#[test]
fn sacct_tells() {
    let Some(lab) = or_skip(SlurmLab::start(Mode::WithDbd)) else { return };
    let (takt, mut server, _) = serve(&lab, "");
    the_same_runs(&lab, &takt, "3:0");
    server.stop();
}

#[test]
fn slurmrestd_tells_and_a_token_that_ran_out_leaves_no_hole() {
    let Some(mut lab) = or_skip(
        need(&[Needed { program: "slurmrestd", package: "slurmrestd slurm-wlm-jwt-plugin" }])
            .and_then(|()| SlurmLab::start(Mode::WithDbd)),
    ) else {
        return;
    };
    lab.start_service(Service::Slurmrestd);
    let sources =
        format!("[jobs.slurmrestd]\nurl = \"{}\"\nuser = \"monitor\"\ntoken_file = \"token\"", lab.slurmrestd());
    let takt = Takt::fresh();
    let token = takt.file("token", lab.token("monitor", 3600));
    let sources = sources.replace("\"token\"", &format!("{token:?}"));
    let (takt, mut server, address) = serve(&lab, &sources);
    // Slurm 22.05 says 0 over REST, which is not believed.
    the_same_runs(&lab, &takt, "");

    std::fs::write(&token, "not.a.token").unwrap();
    wait_for_page(&address, "slurmrestd refuses us");
    lab.submit("carol", &["-J", "meanwhile", "-t", "5"], "sleep 1");
    lab.wait_until_idle(SOON);
    std::fs::write(&token, lab.token("monitor", 3600)).unwrap();
    wait_for_answer(&takt, "SELECT state FROM jobs WHERE job_name = 'meanwhile'", "COMPLETED");
    lab.stop(Service::Slurmdbd);
    wait_for_page(&address, "slurmdbd does not answer");
    lab.start_service(Service::Slurmdbd);
    wait_for_page(&address, "records are up to date");
    lab.stop(Service::Slurmrestd);
    wait_for_page(&address, "slurmrestd does not answer at");
    server.stop();
}

/// The accounts are takt.toml's; what ran while nobody looked is known, but not its GPUs.
#[test]
fn without_slurmdbd_the_completion_file_and_slurmctld_tell() {
    let Some(lab) = or_skip(SlurmLab::start(Mode::WithoutDbd)) else { return };
    let accounts = "[[fairshare.accounts]]\naccount = \"lab-a\"\nshares = 60\nusers = { alice = 10, bob = 10 }\n\
                    [[fairshare.accounts]]\naccount = \"lab-b\"\nshares = 40\nusers = { carol = 10, dave = 10 }\n";
    let (takt, mut server, address) = serve(&lab, accounts);
    the_same_runs(&lab, &takt, "3:0");
    wait_for_page(&address, "records are up to date");
    server.stop();

    lab.submit("carol", &["-J", "meanwhile", "--gres=gpu:1", "-t", "5"], "sleep 1");
    lab.wait_until_idle(SOON);
    // After that slurmctld no longer knows what the job held, and its file never did.
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    wait_for_answer(
        &takt,
        "SELECT state, account, cpus, gpus IS NULL AS unknown FROM jobs WHERE job_name = 'meanwhile'",
        "COMPLETED,lab-b,1,true",
    );
    server.stop();

    // The same file by hand changes nothing.
    let path = lab.jobcomp().display().to_string();
    let imported =
        takt.run(["--config", "takt.toml", "import", "jobcomp", &path, "--cluster", "lab", "--format", "csv"]).ok();
    assert!(imported.contains("runs new,0\nruns corrected,0\nruns known already,6"), "{imported}");
    let wrong = takt.run(["import", "jobcomp", &path, "--cluster", "lab", "--timezone", "Asia/Tokyo"]).fails(1);
    assert!(wrong.contains("are known already, 9 h") && wrong.contains("--timezone"), "{wrong}");
}
