//! Each source says when it was last seen, with how much, and whether it is complete: pages and commands that would show
//! old truth say so.

use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use crate::support::or_skip;
use crate::support::process::{Daemon, free_port, http_get};
use crate::support::slurm::{Mode, Service, SlurmLab};
use crate::support::takt::Takt;

/// A limit that a busy machine does not reach.
const SOON: Duration = Duration::from_secs(120);

fn config(takt: &Takt, address: &str, jobs: &str) {
    takt.file(
        "takt.toml",
        format!(
            "cluster = \"lab\"\ntimezone = \"UTC\"\n[server]\nlisten_address = \"{address}\"\n\
             [sql]\nlisten_address = \"\"\n[jobs]\ninterval_seconds = 1\nlook_back_seconds = 60\n{jobs}"
        ),
    );
}

/// The problem of a source in the API; an empty text if it is complete.
fn problem(address: &str, source: &str) -> Option<String> {
    let answer = http_get(&format!("http://{address}/api/takt/v1/sources")).ok()?;
    let sources: Vec<Value> = serde_json::from_str(&answer.body).ok()?;
    let found = sources.iter().find(|one| one["source"] == source)?;
    Some(found["problem"].as_str().unwrap_or_default().to_owned())
}

/// New jobs were invisible while slurmdbd was down, though squeue had them.
#[test]
fn jobs_that_slurmdbd_does_not_record_are_shown_from_the_queue() {
    let Some(mut lab) = or_skip(SlurmLab::start(Mode::WithDbd)) else {
        return;
    };
    let takt = Takt::fresh().with_environment(lab.environment());
    let address = format!("127.0.0.1:{}", free_port());
    config(&takt, &address, "");
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    server.wait_until("complete job records", SOON, || {
        problem(&address, "job_records").filter(String::is_empty)
    });

    lab.stop(Service::Slurmdbd);
    let job = lab.submit("alice", &["-J", "unseen", "-t", "5"], "sleep 600");
    lab.wait_for_state(job, "RUNNING", SOON);
    server.wait_until("the job in the records", SOON, || {
        let listed = takt.run(["jobs", "--format", "csv"]);
        let is_said = listed.stderr.contains("slurmdbd does not answer");
        (listed.stdout.contains(&format!("{job},alice,unseen")) && is_said).then_some(())
    });
    server.wait_until("the reason in the API", SOON, || {
        problem(&address, "job_records").filter(|problem| problem == "slurmdbd does not answer")
    });
    // The queue is slurmctld's, so it is complete all the time.
    assert_eq!(problem(&address, "queue").as_deref(), Some(""));
    let get = |path: &str| http_get(&format!("http://{address}{path}")).unwrap().body;
    for path in ["/jobs", "/queue", "/"] {
        let page = get(path);
        let words = "Job records may be old or not complete: slurmdbd does not answer.";
        assert!(page.contains(words), "{path}: {page}");
    }
    let health = get("/health");
    assert!(health.contains("not complete</b> job records"), "{health}");

    lab.start_service(Service::Slurmdbd);
    server.wait_until("complete job records again", SOON, || {
        problem(&address, "job_records").filter(String::is_empty)
    });
    assert!(
        !get("/jobs").contains("may be old"),
        "the records are complete"
    );

    // The run from the queue and that from sacct are one.
    let jobs = takt.run(["jobs", "--format", "csv"]).ok();
    assert_eq!(jobs.matches("unseen").count(), 1, "{jobs}");
    server.stop();
}

/// `PrivateData=jobs`, set while Takt runs as a user without privileges: new jobs vanished without a word.
#[test]
fn jobs_that_slurm_begins_to_hide_are_reported_with_a_cure() {
    let Some(lab) = or_skip(SlurmLab::start(Mode::WithoutDbd)) else {
        return;
    };
    let takt = Takt::fresh().with_environment(lab.environment());
    let address = format!("127.0.0.1:{}", free_port());
    config(&takt, &address, "");

    // slurmctld hides nothing from root, so the server runs as alice.
    let uid = lab.as_user("alice", &["id", "-u"]);
    let uid = uid.trim();
    let program = takt.readable_program();
    let serve = takt.command(["serve", "--config", "takt.toml"]);
    let mut as_alice = Command::new("setpriv");
    as_alice
        .args(["--reuid", uid, "--regid", uid, "--clear-groups", "--"])
        .arg(program)
        .args(serve.get_args())
        .current_dir(takt.directory());
    for (name, value) in serve.get_envs() {
        as_alice.env(name, value.unwrap_or_default());
    }
    let chown = Command::new("chown")
        .args([uid, &takt.directory().display().to_string()])
        .status();
    assert!(chown.unwrap().success());
    let log = takt.directory().join("takt.log");
    let mut server = Daemon::start("takt", as_alice, &log);
    server.wait_until("a complete queue", SOON, || {
        problem(&address, "queue").filter(String::is_empty)
    });

    let environment = lab.environment();
    let (_, settings) = environment
        .iter()
        .find(|(name, _)| name == "SLURM_CONF")
        .expect("the lab has a slurm.conf");
    let mut file = fs::OpenOptions::new().append(true).open(settings).unwrap();
    writeln!(file, "PrivateData=jobs").unwrap();
    lab.run(&["scontrol", "reconfigure"]);
    let bob = lab.submit("bob", &["-t", "5"], "sleep 600");
    lab.wait_for_state(bob, "RUNNING", SOON);
    server.wait_until("the reason in the API", SOON, || {
        problem(&address, "queue").filter(|problem| problem.contains("PrivateData hides"))
    });
    let url = format!("http://{address}");
    let doctor = [
        "--server", &url, "doctor", "--only", "sources", "--format", "json",
    ];
    let found = takt.run(doctor);
    let text = format!("{}{}", found.stdout, found.stderr);
    for words in ["PrivateData hides the jobs", "SlurmUser sees all jobs"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    server.stop();
}

/// Two seconds after a start all checks were in order, because nothing had been read.
#[test]
fn checks_without_facts_are_not_in_order() {
    let takt = Takt::fresh();
    let address = format!("127.0.0.1:{}", free_port());
    let bin = takt.directory().join("bin");
    fs::create_dir(&bin).unwrap();
    for program in ["scontrol", "squeue", "sinfo", "sacct", "sacctmgr"] {
        let file = bin.join(program);
        // Commands that never answer hold the first poll.
        fs::write(&file, "#!/bin/sh\nexec sleep 600\n").unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    }
    config(
        &takt,
        &address,
        &format!("slurm_bin = {:?}\n", bin.display().to_string()),
    );
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let ready = format!("http://{address}/-/ready");
    server.wait_until("ready", SOON, || {
        http_get(&ready).ok().filter(|page| page.status == 200)
    });
    let diagnosis = takt
        .run(["doctor", "--config", "takt.toml", "--format", "json"])
        .stdout;
    let diagnosis: Value = serde_json::from_str(&diagnosis).unwrap();
    let has = |list: &str, id: &str| {
        let ids = diagnosis[list].as_array().unwrap();
        ids.iter().any(|one| one == id)
    };
    for id in ["slurm.answers", "slurm.records", "jobs.recorded"] {
        assert!(
            has("unknown", id) && !has("in_order", id),
            "{id}: {diagnosis}"
        );
    }
    let text = takt.run(["doctor", "--config", "takt.toml"]).stdout;
    assert!(text.contains("not known yet"), "{text}");
    assert!(!text.contains("All "), "{text}");
    server.stop();
}
