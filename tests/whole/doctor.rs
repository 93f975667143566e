//! `takt init` and `takt doctor` on a real Slurm with several things broken at once.

use crate::support::or_skip;
use crate::support::process::{Daemon, free_port, http_get, wait_for};
use crate::support::slurm::{Mode, Service, SlurmLab};
use crate::support::takt::Takt;
use crate::support::target::scrape_target;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(180);

/// The page of an exporter with two GPUs.
fn page(path: &str) -> (&'static str, String) {
    let page = match path {
        "/metrics" => format!(
            "takt_exporter_build_info{{version=\"{}\"}} 1\n\
             takt_gpu_up{{uuid=\"GPU-0\",reason=\"\"}} 1\ntakt_gpu_up{{uuid=\"GPU-1\",reason=\"\"}} 1\n",
            env!("CARGO_PKG_VERSION")
        ),
        _ => String::new(),
    };
    ("text/plain; version=0.0.4", page)
}

fn target(node: &str, address: &str) -> String {
    format!("[[scrape.targets]]\naddress = \"{address}\"\nnode = \"{node}\"\n")
}

fn serve(takt: &Takt, config: &str) -> Daemon {
    takt.file("takt.toml", config);
    takt.start(["serve", "--config", "takt.toml"])
}

/// Findings of the server: evidence, cost and lines to paste by id and node.
fn findings(takt: &Takt) -> BTreeMap<String, String> {
    let run = takt.run(["doctor", "--format", "json"]);
    let Ok(diagnosis) = serde_json::from_str::<Value>(&run.stdout) else {
        return BTreeMap::new();
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    diagnosis["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| {
            let place = format!("{} {}", text(&finding["id"]), text(&finding["node"]));
            let fix = finding["fix"].as_array().unwrap().iter().map(text);
            let lines: Vec<String> = [text(&finding["evidence"])]
                .into_iter()
                .chain(fix)
                .collect();
            (place.trim_end().to_owned(), lines.join("\n"))
        })
        .collect()
}

/// Commands that are there and fail were a line that named neither them nor what they said.
#[test]
fn a_failing_command_of_slurm_and_a_silent_exporter_have_their_reasons() {
    let takt = Takt::fresh();
    let bin = takt.directory().join("bin");
    fs::create_dir(&bin).unwrap();
    let script = |name: &str, body: &str| {
        let path = takt.file(&format!("bin/{name}"), format!("#!/bin/sh\n{body}\n"));
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    };
    script("scontrol", "echo 'ClusterName = lab'");
    for name in ["sacct", "squeue", "sinfo", "sacctmgr"] {
        let said = format!("echo '{name}: error: no permission' >&2; exit 3");
        script(name, &said);
    }
    let server = format!("127.0.0.1:{}", free_port());
    let silent = format!("127.0.0.1:{}", free_port());
    let config = format!(
        "[server]\nlisten_address = \"{server}\"\n[jobs]\nslurm_bin = \"bin\"\n\
         interval_seconds = 1\n[sql]\nlisten_address = \"\"\n[store]\nmin_free_bytes = 0\n\
         [scrape]\ninterval_seconds = 1\ntimeout_seconds = 1\n{}{}",
        target("node0", &silent),
        target("node1", "node1.invalid:9855"),
    );
    let mut daemon = serve(&takt, &config);
    let expected = [
        (
            "sources.complete",
            "job records: the request to Slurm failed: sacct failed: exit code 3: sacct: error: no permission",
            "sudo -u takt sacct -a",
        ),
        (
            "exporter.answers node0",
            "Connection refused",
            "systemctl enable --now takt-exporter",
        ),
        (
            "exporter.answers node1",
            "failed to lookup address",
            "getent hosts node1.invalid",
        ),
    ];
    let found = |place: &str| {
        let run = takt.run(["doctor", "--format", "json"]);
        let diagnosis: Value = serde_json::from_str(&run.stdout).ok()?;
        let is_at = |finding: &&Value| {
            let [id, node] = ["id", "node"].map(|key| finding[key].as_str().unwrap());
            format!("{id} {node}").trim_end() == place
        };
        let found: Vec<String> = diagnosis["findings"]
            .as_array()?
            .iter()
            .filter(is_at)
            .map(Value::to_string)
            .collect();
        Some(found.join("\n"))
    };
    for (place, reason, remedy) in expected {
        wait_for(place, PATIENCE, || {
            let said = found(place)?;
            (said.contains(reason) && said.contains(remedy)).then_some(())
        });
    }
    let page = format!("http://{server}/health");
    let shown = http_get(&page).unwrap().body;
    assert!(shown.contains("sacct failed: exit code 3"), "{shown}");
    let log = daemon.log();
    assert!(log.contains("squeue failed: exit code 3"), "{log}");
    assert!(daemon.stop().success(), "{}", daemon.log());
}

/// Each command failed with a mistake in the file, `takt doctor` too.
#[test]
fn a_mistake_in_the_configuration_is_the_first_finding() {
    let takt = Takt::fresh();
    let server = format!("127.0.0.1:{}", free_port());
    let right = format!(
        "[server]\nlisten_address = \"{server}\"\n[jobs]\npoll = false\n\
         [sql]\nlisten_address = \"\"\n[store]\nmin_free_bytes = 0\n"
    );
    let wrong = format!("{right}[scrape]\nintervall_seconds = 5\n");
    let mistake =
        "takt.toml, line 10: unknown key intervall_seconds; did you mean interval_seconds?";
    // Ids of the findings, of which the first is the mistake.
    let ids = |arguments: &[&str]| {
        // The disk of this machine may be nearly full.
        let asked = [&["doctor", "--format", "json", "--skip", "data"], arguments].concat();
        let run = takt.run(asked);
        assert_eq!(run.code, Some(2), "{}{}", run.stdout, run.stderr);
        let diagnosis: Value = serde_json::from_str(&run.stdout).unwrap();
        let findings = diagnosis["findings"].as_array().unwrap();
        assert!(findings[0]["evidence"].as_str().unwrap().ends_with(mistake));
        findings
            .iter()
            .map(|finding| finding["id"].clone())
            .collect::<Vec<Value>>()
    };
    let mut daemon = serve(&takt, &right);
    wait_for("the server", PATIENCE, || {
        findings(&takt)
            .contains_key("messages.channels")
            .then_some(())
    });
    takt.file("takt.toml", &wrong);

    // The server reads the file again, too: its page has the same finding.
    for arguments in [&["--config", "takt.toml"][..], &[]] {
        assert_eq!(ids(arguments), ["config.valid", "messages.channels"]);
    }
    let others = || takt.run(["jobs", "--config", "takt.toml"]);
    let asked = others();
    assert_eq!(asked.code, Some(0), "the server answers");
    assert!(asked.stderr.contains(mistake), "{}", asked.stderr);
    assert!(daemon.stop().success(), "{}", daemon.log());
    let asked = others();
    assert_eq!(asked.code, Some(2));
    assert!(asked.stderr.contains(mistake), "{}", asked.stderr);
    assert_eq!(ids(&["--config", "takt.toml"]), ["config.valid"]);
}

#[test]
fn before_an_upgrade_of_slurm_it_says_what_changes_here() {
    let takt = Takt::fresh();
    let config = format!(
        "[server]\nlisten_address = \"127.0.0.1:{}\"\n[sql]\nlisten_address = \"\"\n[store]\nmin_free_bytes = 0\n\
         [jobs.slurmrestd]\nurl = \"unix:/nowhere/slurmrestd.sock\"\nversion = \"v0.0.41\"\n",
        free_port()
    );
    let mut daemon = serve(&takt, &config);
    wait_for("the server", PATIENCE, || {
        findings(&takt)
            .contains_key("messages.channels")
            .then_some(())
    });
    let asked = |release: &str| takt.run(["doctor", "--config", "takt.toml", "--slurm", release]);
    let upgrade = asked("26.05");
    assert_eq!(
        upgrade.code,
        Some(2),
        "{}{}",
        upgrade.stdout,
        upgrade.stderr
    );
    for words in [
        " ✗ slurm.upgrade      slurmrestd 26.05 does not have the API version v0.0.41 of takt.toml",
        "version = \"v0.0.45\"",
        " ! slurm.upgrade      the memory of a running job can shrink since 26.05",
    ] {
        assert!(upgrade.stdout.contains(words), "{}", upgrade.stdout);
    }

    // Nothing of the checks of today.
    assert!(!upgrade.stdout.contains("messages."), "{}", upgrade.stdout);
    let nothing = asked("next");
    assert_eq!(nothing.code, Some(2));
    assert!(
        nothing
            .stderr
            .contains("expected a release of Slurm, such as 26.05"),
        "{}",
        nothing.stderr
    );
    assert!(daemon.stop().success(), "{}", daemon.log());
}

#[test]
fn each_of_many_defects_is_named_with_its_remedy() {
    let Some(mut lab) = or_skip(SlurmLab::start_with(
        Mode::WithoutGpuTres,
        "UTC",
        "PrivateData=jobs\n",
    )) else {
        return;
    };
    let takt = Takt::fresh().with_environment(lab.environment());

    // Before the first start: init finds the cluster, and what Slurm does not record or hides.
    let said = takt.run(["init", "--to", "proposed.toml"]).ok();
    for words in [
        "Slurm cluster lab: 3 nodes, 6 GPUs",
        "AccountingStorageTRES=gres/gpu",
        "sacctmgr add user takt account=root adminlevel=operator",
        "takt doctor --config proposed.toml",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    takt.run(["check-config", "--config", "proposed.toml"]).ok();

    let exporter = scrape_target(page).to_string();
    let silent = format!("127.0.0.1:{}", free_port());
    let password = takt.file("ldap-password", "secret\n");
    fs::set_permissions(&password, Permissions::from_mode(0o644)).unwrap();
    let server = format!("127.0.0.1:{}", free_port());
    let ldap = format!("127.0.0.1:{}", free_port());
    let common = format!(
        "timezone = \"UTC\"\n[server]\nlisten_address = \"{server}\"\n\
         [jobs]\ninterval_seconds = 1\nlook_back_seconds = 60\nhistory_days = 1\n\
         [sql]\nlisten_address = \"\"\n[store]\nmin_free_bytes = 0\n\
         [scrape]\ninterval_seconds = 1\ntimeout_seconds = 1\n"
    );
    let broken = format!(
        "{common}{}{}[auth]\nprivacy = \"open\"\n[auth.ldap]\nurl = \"ldap://{ldap}\"\n\
         base = \"dc=uni\"\nbind_dn = \"cn=takt,dc=uni\"\nbind_password_file = \"ldap-password\"\n",
        target("node0", &exporter),
        target("node1", &silent),
    );
    lab.submit(
        "alice",
        &[
            "-J",
            "train",
            "--gres=gpu:a100:1",
            "-w",
            "node0",
            "-t",
            "20",
        ],
        "sleep 900",
    );
    let mut daemon = serve(&takt, &broken);
    wait_for("the running job", PATIENCE, || {
        takt.run(["jobs", "--format", "json"])
            .stdout
            .contains("\"RUNNING\"")
            .then_some(())
    });
    lab.stop(Service::Slurmdbd);
    let expected = [
        // What is broken, and a part of the remedy.
        ("targets.complete", "slurm_sd_configs = [{ port = 9855 }]"),
        (
            "exporter.answers node1",
            "systemctl enable --now takt-exporter",
        ),
        ("config.secrets", "sudo chmod 640"),
        ("slurm.answers", "systemctl status slurmdbd"),
        ("auth.ldap", "ldapsearch -x -H ldap://127.0.0.1:"),
        ("auth.privacy", "privacy = \"slurm\""),
    ];
    let began = Instant::now();
    let found = loop {
        let found = findings(&takt);
        let missing = expected
            .iter()
            .find(|(place, _)| !found.contains_key(*place));
        let Some((missing, _)) = missing else {
            break found;
        };
        assert!(began.elapsed() < PATIENCE, "no {missing} in {found:#?}");
        thread::sleep(Duration::from_secs(1));
    };
    for (place, remedy) in expected {
        assert!(found[place].contains(remedy), "{place}: {}", found[place]);
    }
    assert!(found["targets.complete"].contains("1 of 3 nodes of Slurm are not scraped: node2"));
    assert!(found["slurm.answers"].contains("slurmdbd did not answer"));
    assert!(found["config.secrets"].contains("ldap-password"));
    assert!(!found.contains_key("exporter.answers node0"), "{found:?}");
    let run = takt.run(["doctor"]);
    assert_eq!(run.code, Some(2), "{}", run.stdout);

    // The remedies: each finding that the lab can repair is gone.
    assert!(daemon.stop().success(), "{}", daemon.log());
    lab.start_service(Service::Slurmdbd);
    let listen = format!("--web.listen-address={silent}");
    let state = format!(
        "--state-directory={}",
        takt.directory().join("state").display()
    );
    let log = takt.directory().join("exporter.log");
    let _started = Daemon::start(
        "exporter",
        takt.command(["exporter", &listen, &state]),
        &log,
    );
    let repaired = format!(
        "{common}{}{}{}",
        target("node0", &exporter),
        target("node1", &silent),
        target("node2", &exporter),
    );
    fs::set_permissions(&password, Permissions::from_mode(0o600)).unwrap();
    let mut daemon = serve(&takt, &repaired);
    wait_for("the end of the findings", PATIENCE, || {
        let found = findings(&takt);
        let is_over = expected
            .iter()
            .all(|(place, _)| !found.contains_key(*place));
        // A finding that stays shows that the server answers.
        (is_over && found.contains_key("messages.channels")).then_some(())
    });
    assert!(daemon.stop().success(), "{}", daemon.log());
}
