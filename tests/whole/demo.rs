//! `takt demo`: the whole program with the simulated cluster.

use crate::support::process::{Daemon, http_get, wait_for};
use crate::support::takt::{Run, Takt};
use std::env;
use std::fs;
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

/// Time for what takes seconds in a release build on an idle machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// Rounds of forecasts are five minutes apart, and the first one may find a queue without a job that can be forecast.
const FORECAST_PATIENCE: Duration = Duration::from_secs(480);

/// A demo in the directory `demo` of a fresh working directory.
struct RunningDemo {
    takt: Takt,
    daemon: Daemon,
    /// Address of the pages.
    pages: String,
    /// Address of the simulated cluster.
    cluster: String,
}

impl RunningDemo {
    fn start(nodes: &str) -> Self {
        let takt = Takt::fresh();
        let asked = [
            "demo",
            "--nodes",
            nodes,
            "--keep",
            "demo",
            "--listen-address",
            "127.0.0.1:0",
            "--as",
            "erin",
        ];
        let mut daemon = takt.start(asked);
        let log = daemon.wait_until("ready", PATIENCE, || {
            let log = fs::read_to_string(takt.directory().join("takt.log")).ok()?;
            log.contains("export TAKT_CONFIG=").then_some(log)
        });
        let address = |name: &str| {
            log.lines()
                .find(|line| line.trim_start().starts_with(name))
                .unwrap()
                .split_whitespace()
                .last()
                .unwrap()
                .to_owned()
        };
        let pages = address("Web pages").trim_end_matches('/').to_owned();
        let cluster = address("Slack").trim_end_matches("/slack").to_owned();
        Self {
            takt,
            daemon,
            pages,
            cluster,
        }
    }

    fn run(&self, arguments: &[&str]) -> Run {
        let config = self.takt.directory().join("demo/takt.toml");
        let mut command = self.takt.command(arguments);
        command
            .env_remove("TAKT_DATA_DIR")
            .env("TAKT_CONFIG", config);
        Run::of(&command.output().unwrap())
    }

    fn ask(&self, arguments: &[&str]) -> String {
        self.run(arguments).ok()
    }

    fn wait_for_the_history(&mut self) {
        let directory = self.takt.directory().to_owned();
        self.daemon.wait_until("complete", PATIENCE, || {
            fs::read_to_string(directory.join("takt.log"))
                .ok()?
                .contains("history are complete")
                .then_some(())
        });
    }
}

fn mails(folder: &Path) -> String {
    let Ok(entries) = fs::read_dir(folder) else {
        return String::new();
    };
    entries
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok())
        .collect()
}

#[test]
fn the_demo_shows_faults_jobs_and_waste_and_leaves_nothing_running() {
    let began = Instant::now();
    let mut demo = RunningDemo::start("3");
    let page = http_get(&demo.pages).unwrap();
    assert_eq!(page.status, 200);
    eprintln!("first page after {:?}", began.elapsed());
    demo.wait_for_the_history();
    eprintln!("complete after {:?}", began.elapsed());

    // Slurm's records came through sacct, the queue through squeue.
    // At some hours, no job among the newest 50 has timed out.
    let jobs = wait_for("jobs", PATIENCE, || {
        let jobs = demo.ask(&["jobs", "--limit", "1000", "--format", "json"]);
        jobs.contains("\"TIMEOUT\"").then_some(jobs)
    });
    for word in [
        "\"alice\"",
        "\"RUNNING\"",
        "\"PENDING\"",
        "\"COMPLETED\"",
        "\"rtx5090\"",
    ] {
        assert!(jobs.contains(word), "{word} is missing in {jobs}");
    }

    // The scripted faults reach Slack and the mail folder through rules and the outbox.
    let slack = wait_for("messages in Slack", PATIENCE, || {
        let page = http_get(&format!("{}/slack", demo.cluster)).ok()?.body;
        let is_whole = page.contains("has fallen off the bus") && page.contains("nas01");
        is_whole.then_some(page)
    });
    assert!(slack.contains("<article>"), "{slack}");
    let folder = demo.takt.directory().join("demo/mail");
    let mail = wait_for("mails", PATIENCE, || {
        let mails = mails(&folder);
        mails.contains("GpuFellOffBus").then_some(mails)
    });
    assert!(mail.contains("To: ops@demo.example"), "{mail}");
    let list = http_get(&format!("{}/mail", demo.cluster)).unwrap().body;
    assert!(list.contains("<a href=\"/mail/1\">"), "{list}");
    let shown = http_get(&format!("{}/mail/1", demo.cluster)).unwrap().body;
    assert!(
        shown.contains("</table>") && !shown.contains("=3D"),
        "{shown}"
    );

    // The history gives every job of the last weeks an efficiency.
    let waste = wait_for("an efficiency", PATIENCE, || {
        let text = demo.ask(&[
            "report",
            "waste",
            "--from",
            "2000-01-01",
            "--to",
            "2100-01-01",
            "--format",
            "json",
        ]);
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        (!report.is_null()).then_some(text)
    });
    assert!(waste.len() > 500, "{waste}");
    let count: u64 = demo
        .ask(&[
            "sql",
            "SELECT count(*) AS n FROM samples",
            "--format",
            "csv",
        ])
        .lines()
        .last()
        .unwrap()
        .parse()
        .unwrap();
    assert!(count > 500_000, "{count} samples");
    let hours = "SELECT count(DISTINCT date_trunc('hour', ts)) FROM samples WHERE metric = 'up'";
    let hours: u64 = demo
        .ask(&["sql", hours, "--format", "csv"])
        .lines()
        .last()
        .unwrap()
        .parse()
        .unwrap();
    assert!(hours > 34 * 24, "{hours} hours");

    a_user_sees_the_demo_with_that_user_s_rights(&demo);
    the_commands_of_the_pages_run(&demo);
    the_doctor_finds_the_faults(&demo);
    the_waiting_jobs_have_forecasts(&demo);
    the_past_weeks_answer_what_ifs(&demo);
    the_first_configuration_is_that_of_the_cluster(&demo);
    a_backup_of_the_running_server_is_a_store(&demo);

    assert!(demo.daemon.stop().success(), "{}", demo.daemon.log());
    assert!(http_get(&demo.pages).is_err());
}

/// The command, the list, the page and SQL have the same forecast of a job.
fn the_waiting_jobs_have_forecasts(demo: &RunningDemo) {
    let (job, words) = wait_for("a forecast", FORECAST_PATIENCE, || {
        let text = demo.ask(&[
            "jobs", "--state", "PD", "--limit", "1000", "--format", "json",
        ]);
        let jobs: serde_json::Value = serde_json::from_str(&text).unwrap();
        let of = |job: &serde_json::Value| {
            let forecast = &job["start_forecast"];
            let is_known = forecast["p50"].is_number();
            is_known.then(|| (job["job_id"].clone(), forecast["words"].clone()))
        };
        jobs.as_array().unwrap().iter().find_map(of)
    });
    let (job, words) = (job.as_str().unwrap(), words.as_str().unwrap());
    // A job of an earlier round may have started by now.
    assert!(
        words.contains("graded") || words.contains("right"),
        "{words}"
    );

    let shown = demo.ask(&["job", job]);
    let line = words.split(';').next().unwrap();
    let folded: Vec<&str> = shown.split_whitespace().collect();
    assert!(
        folded.join(" ").contains(line),
        "{line} is missing in {shown}"
    );
    let page = http_get(&format!("{}/jobs/{job}", demo.pages))
        .unwrap()
        .body;
    assert!(page.contains(line), "{line} is missing in {page}");
    let queue = http_get(&format!("{}/queue", demo.pages)).unwrap().body;
    assert!(queue.contains("jobs that are submitted later"), "{queue}");

    let first = format!("SELECT count(*) FROM forecasts WHERE kind = 'first' AND job_id = '{job}'");
    let count = demo.ask(&["sql", &first, "--format", "csv"]);
    assert_eq!(count.lines().last(), Some("1"));
}

/// The command, the page and the API answer the same what-if; who asks for nonsense is told.
fn the_past_weeks_answer_what_ifs(demo: &RunningDemo) {
    let test = demo.ask(&["whatif", "--format", "json"]);
    let test: serde_json::Value = serde_json::from_str(&test).unwrap();
    assert!(test["jobs"].as_u64().unwrap() > 100, "{test}");
    assert!(
        test["back_test"]["rows"].as_array().unwrap().len() > 1,
        "{test}"
    );
    assert_eq!(test["pairs"], 0);

    let run = demo.run(&["whatif", "--requests", "0.5", "--replays", "5"]);
    if test["is_close"] == true {
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert!(run.stdout.contains("5 pairs of"), "{}", run.stdout);
        let page = http_get(&format!("{}/whatif?requests=0.5", demo.pages)).unwrap();
        assert!(page.body.contains("are left out"), "{}", page.body);
    } else {
        assert_eq!(run.code, Some(1), "{}", run.stdout);
        assert!(
            run.stdout.contains("no what-if is answered"),
            "{}",
            run.stdout
        );
    }
    let wrong = demo.run(&["whatif", "--remove", "nowhere7"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stdout);
    assert!(
        wrong.stderr.contains("no node nowhere7"),
        "{}",
        wrong.stderr
    );

    // The first waiting job of the queue says what it waits for.
    let text = demo.ask(&["jobs", "--state", "PD", "--limit", "1", "--format", "json"]);
    let jobs: serde_json::Value = serde_json::from_str(&text).unwrap();
    if let Some(job) = jobs[0]["job_id"].as_str() {
        let text = demo.ask(&["job", job, "--format", "json"]);
        let shown: serde_json::Value = serde_json::from_str(&text).unwrap();
        // It may have started meanwhile.
        let is_pending = shown["report"]["phase"] == "pending";
        assert!(
            !is_pending || shown["blocked"]["words"].is_array(),
            "{shown}"
        );
    }
}

fn a_user_sees_the_demo_with_that_user_s_rights(demo: &RunningDemo) {
    let log = fs::read_to_string(demo.takt.directory().join("takt.log")).unwrap();
    assert!(log.contains(&format!("{}/login#", demo.pages)), "{log}");
    let token = demo.takt.directory().join("demo/erin-token");
    let as_erin = |arguments: &[&str]| {
        let mut command = demo.takt.command(arguments);
        command
            .env_remove("TAKT_DATA_DIR")
            .env("TAKT_SERVER", &demo.pages)
            .env("TAKT_TOKEN_FILE", &token);
        Run::of(&command.output().unwrap())
    };
    let who = as_erin(&["whoami"]).ok();
    assert!(who.contains("erin"), "{who}");
    let refused = as_erin(&["token", "create", "x", "--role", "admin"]);
    assert_ne!(refused.code, Some(0), "{}", refused.stdout);
}

/// Runs every command of `takt` in the shell blocks of a page, as a reader types it. Paths of a
/// real installation become paths of this test.
fn the_commands_of_the_pages_run(demo: &RunningDemo) {
    let root = demo.takt.directory();
    for folder in ["etc", "var", "copies"] {
        fs::create_dir(root.join(folder)).unwrap();
    }
    let bin = Path::new(env!("CARGO_BIN_EXE_takt")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), env::var("PATH").unwrap());
    let mut ran = 0;
    for page in ["demo", "doctor", "first-steps", "install", "backup"] {
        let file = format!("{}/docs/{page}.md", env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(file).unwrap();
        let lines = text
            .split("```")
            .skip(1)
            .step_by(2)
            .filter_map(|block| block.strip_prefix("sh\n"));
        for line in lines.flat_map(str::lines) {
            let typed = line
                .trim_start_matches("sudo ")
                .trim_start_matches("-u takt ");
            let typed = typed.trim_start_matches("target/release/");

            // The demo runs already.
            if !typed.starts_with("takt ") || typed == "takt demo" {
                continue;
            }
            let here = |folder: &str| format!("{}/{folder}/", root.display());
            let typed = typed
                .replace("/etc/takt/", &here("etc"))
                .replace("/var/lib/", &here("var"))
                .replace("/backup/", &here("copies"));
            let done = process::Command::new("sh")
                .args(["-c", &typed])
                .current_dir(root)
                .env("PATH", &path)
                .env("TAKT_CONFIG", root.join("demo/takt.toml"))
                .env_remove("TAKT_DATA_DIR")
                .output()
                .unwrap();
            let code = done.status.code();

            // With findings the exit code is 1 or 2.
            let finds_faults =
                typed.starts_with("takt doctor") && code.is_some_and(|code| code <= 2);
            assert!(
                finds_faults || code == Some(0),
                "docs/{page}.md: {typed}: {done:?}"
            );
            assert!(
                !done.stdout.is_empty(),
                "docs/{page}.md: {typed} prints nothing"
            );
            ran += 1;
        }
    }
    assert!(ran >= 15, "only {ran} commands were found");
}

fn the_doctor_finds_the_faults(demo: &RunningDemo) {
    let diagnosis = wait_for("findings", PATIENCE, || {
        let run = demo.run(&["doctor", "--format", "json"]);
        assert_eq!(run.code, Some(2), "{}{}", run.stdout, run.stderr);
        let diagnosis: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        let ids: Vec<String> = diagnosis["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| {
                format!(
                    "{} {}",
                    finding["id"].as_str().unwrap(),
                    finding["node"].as_str().unwrap()
                )
            })
            .collect();
        ["gpu.answers desk01", "nfs.hung desk02", "link.speed desk02"]
            .iter()
            .all(|id| ids.iter().any(|found| found == id))
            .then_some(diagnosis)
    });
    let order = diagnosis["in_order"].to_string();
    for id in [
        "jobs.joined",
        "targets.complete",
        "slurm.answers",
        "messages.channels",
    ] {
        assert!(order.contains(id), "{diagnosis:#}");
    }
    let text = demo.run(&["doctor", "--only", "gpu.answers"]).stdout;
    assert!(
        text.contains("scontrol update node=desk01 state=drain"),
        "{text}"
    );
    let order = demo.run(&["doctor", "--only", "slurm.answers"]);
    assert_eq!(order.code, Some(0));
    assert_eq!(order.stdout.as_str(), "The check is in order.\n");
    let bundled = demo.run(&["doctor", "--bundle", "bundle.tar.gz"]);
    assert_eq!(bundled.code, Some(2), "{}", bundled.stderr);
    let read = process::Command::new("tar")
        .args(["-xzOf", "bundle.tar.gz"])
        .current_dir(demo.takt.directory())
        .output()
        .unwrap();
    let bundle = String::from_utf8(read.stdout).unwrap();
    for word in [
        "\"gpu.answers\"",
        "cluster = \"demo\"",
        "takt_store_series",
        "desk01:9855",
    ] {
        assert!(bundle.contains(word), "{word}");
    }
    assert!(!bundle.contains("xoxb-demo-token"), "{bundle}");
    let again = demo.run(&["doctor", "--bundle", "bundle.tar.gz"]);
    assert!(
        again.stderr.contains("--bundle: cannot create"),
        "{}",
        again.stderr
    );
    let unknown = demo.run(&["doctor", "--only", "nonsense"]);
    assert_eq!(unknown.code, Some(2), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("gpu.answers"), "{}", unknown.stderr);
}

fn the_first_configuration_is_that_of_the_cluster(demo: &RunningDemo) {
    let slurm = demo.takt.directory().join("demo/slurm");
    let asked = ["init", "--slurm-bin", slurm.to_str().unwrap()];
    let printed = demo.takt.run(asked).ok();
    assert!(
        printed.contains("Slurm cluster demo: 3 nodes, 6 GPUs"),
        "{printed}"
    );
    assert!(
        printed.contains("for n in desk01 desk02 desk03; do scp"),
        "{printed}"
    );
    let config = fs::read_to_string(demo.takt.directory().join("takt.toml")).unwrap();
    assert!(config.contains("cluster = \"demo\""), "{config}");
    let checked = ["check-config", "--config", "takt.toml"];
    demo.takt.run(checked).ok();
    let refused = demo.takt.run(asked).fails(2);
    assert!(refused.contains("takt.toml exists"), "{refused}");
    let proposal = demo
        .takt
        .run(["init", "--dry-run", "--slurm-bin", "/nonexistent"])
        .ok();
    assert!(proposal.contains("[[scrape.targets]]"), "{proposal}");
}

fn a_backup_of_the_running_server_is_a_store(demo: &RunningDemo) {
    let count = |text: String| -> u64 { text.lines().last().unwrap().parse().unwrap() };
    let runs = ["sql", "SELECT count(*) FROM jobs", "--format", "csv"];
    let before = count(demo.ask(&runs));
    let said = demo.ask(&["backup", "--to", "backup/"]);
    assert!(said.contains("Backed up and verified"), "{said}");
    let again = demo.run(&["backup", "--to", "backup"]);
    assert_eq!(again.code, Some(2), "{}", again.stderr);
    assert!(!demo.takt.directory().join("demo/data/snapshot").exists());

    let restored = Takt::fresh();
    let from = demo.takt.directory().join("backup");
    let from = from.to_str().unwrap();
    restored.run(["restore", "--from", from]).ok();
    let after = count(restored.run(runs).ok());
    assert!(before > 300 && after >= before, "{before} {after}");
    let samples = ["sql", "SELECT count(*) FROM samples", "--format", "csv"];
    assert!(count(restored.run(samples).ok()) > 500_000);
    let error = restored.run(["restore", "--from", from]).fails(2);
    assert!(error.contains("has data"), "{error}");
    let error = Takt::fresh().run(["restore", "--from", "/"]).fails(2);
    assert!(error.contains("is not a backup"), "{error}");
}

#[test]
fn a_folder_of_the_demo_s_own_is_deleted_at_the_end() {
    let takt = Takt::fresh();
    let temporary = takt.directory().join("tmp");
    fs::create_dir(&temporary).unwrap();
    let mut command = takt.command(["demo", "--listen-address", "127.0.0.1:0"]);
    command.env("TMPDIR", &temporary);
    let log = takt.directory().join("demo.log");
    let mut daemon = Daemon::start("takt", command, &log);
    daemon.wait_until("ready", PATIENCE, || {
        fs::read_to_string(&log)
            .ok()?
            .contains("Web pages")
            .then_some(())
    });
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 1);
    assert!(daemon.stop().success(), "{}", daemon.log());
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
}

#[test]
fn a_wrong_number_of_nodes_and_an_existing_folder_are_refused() {
    let takt = Takt::fresh();
    let error = takt.run(["demo", "--nodes", "31"]).fails(2);
    assert!(error.contains("expected 3, 30 or 300"), "{error}");
    let error = takt.run(["demo", "--as", "zorro"]).fails(2);
    assert!(error.contains("no user \"zorro\""), "{error}");
    assert!(error.contains("alice, bob"), "{error}");
    let error = takt.run(["demo", "--speed", "0"]).fails(2);
    assert!(error.contains("--speed"), "{error}");
    let error = takt.run(["demo", "--keep", "."]).fails(2);
    assert!(error.contains("--keep: cannot create ."), "{error}");
}
