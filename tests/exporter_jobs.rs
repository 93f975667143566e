//! The exporter's sight of a real Slurm's jobs: a GPU that is held and not used, by whom, and that it is given back.

#![allow(clippy::unwrap_used, reason = "a test that cannot have its surroundings shall end")]

mod support;

use std::path::Path;
use std::time::Duration;

use support::or_skip;
use support::process::{free_port, http_get};
use support::slurm::{Mode, SlurmLab};
use support::takt::Takt;

/// Long enough for a busy machine.
const SOON: Duration = Duration::from_secs(90);

#[test]
fn a_slurm_job_holds_its_gpu_though_no_process_uses_it() {
    let Some(lab) = or_skip(SlurmLab::start(Mode::WithoutDbd)) else { return };
    let takt = Takt::fresh();
    let gpus = takt.file("gpus.txt", "profile rtx5090 2\ngpu 0 uuid GPU-first\ngpu 1 uuid GPU-second\n");
    let library = Path::new(env!("CARGO_BIN_EXE_takt")).with_file_name("libnvml_stand_in.so");
    assert!(library.exists(), "{} is missing; cargo build -p nvml-stand-in", library.display());
    // The lab's names of users are its own.
    let environment =
        lab.environment().into_iter().chain([("NVML_STAND_IN_SCRIPT".to_owned(), gpus.display().to_string())]);
    let takt = takt.with_environment(environment);
    let address = format!("127.0.0.1:{}", free_port());
    let library = library.display().to_string();
    let mut exporter = takt.start(["exporter", "--web.listen-address", &address, "--nvml.library", &library]);
    let page = format!("http://{address}/metrics");
    let mut wait_for = |what: &str, is_so: &dyn Fn(&str) -> bool| {
        exporter.wait_until(what, SOON, || http_get(&page).ok().filter(|page| is_so(&page.body)))
    };

    // Both of a node's GPUs, so that it does not matter which Slurm takes first; and a job without.
    let holds = lab.submit("alice", &["--gres=gpu:2", "-t", "5"], "sleep 300");
    let none = lab.submit("bob", &["-t", "5"], "sleep 300");
    wait_for("both jobs", &|page| {
        let line = |name: &str, labels: &str| page.contains(&format!("{name}{{{labels}}} 1\n"));
        let info = |job, user| {
            line("takt_job_info", &format!("jobid=\"{job}\",user=\"{user}\",scheduler=\"slurm\",sluid=\"\""))
        };
        let given = |uuid| line("takt_gpu_job_info", &format!("uuid=\"{uuid}\",jobid=\"{holds}\",user=\"alice\""));
        info(holds, "alice") && info(none, "bob") && given("GPU-first") && given("GPU-second")
    });
    let now = http_get(&page).unwrap().body;
    assert!(!now.contains(&format!("jobid=\"{none}\",user=\"bob\"}}")), "it was given no GPU:\n{now}");
    assert!(now.contains("takt_jobs_unreadable 0\n"), "{now}");

    lab.run(&["scancel", &holds.to_string(), &none.to_string()]);
    let gone = [holds, none].map(|job| format!("jobid=\"{job}\""));
    wait_for("their end", &|page| gone.iter().all(|job| !page.contains(job)));
}
