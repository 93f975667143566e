//! `takt lake` with the real program and a real S3 server: kills at requests, a server whose S3 answers
//! 503, and two writers. They need a program with the feature `s3`, which `make exam` builds.

#[allow(dead_code, reason = "the lake's own tests use the rest of it")]
#[path = "../../crates/lake/tests/lake/s3_server.rs"]
mod s3_server;

use crate::lake_reader::{Reader, TABLES, check_whole, engine};
use crate::support::process::{Daemon, free_port, http_get};
use crate::support::takt::Takt;
use crate::support::{Skip, or_skip};
use rustix::process::Pid;
use s3_server::{Fate, KEYS, S3};
use serde_json::Value;
use std::process;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(120);

const INIT: [&str; 6] = ["lake", "init", "--config", "takt.toml", "--format", "json"];
const VERIFY: [&str; 4] = ["lake", "verify", "--config", "takt.toml"];

const HEADER: &str = "JobID|User|Account|Partition|Submit|Eligible|Start|End|State|AllocTRES|\
                      NNodes|NCPUS|NodeList|ElapsedRaw";

/// Runs of a month, the last of which ends at an hour.
fn jobs(hour: u32) -> String {
    format!(
        "{HEADER}\n1|ann|a|gpu|2024-10-01T10:00:00|2024-10-01T10:00:00|2024-10-02T10:00:00|\
         2024-10-05T{hour:02}:00:00|COMPLETED|cpu=8,gres/gpu=2,mem=64G,node=1|1|8|n1|7200\n"
    )
}

fn start() -> Result<S3, Skip> {
    if let Some(folder) = engine("lake-versity") {
        return Ok(S3::versity(&folder.join("bin/versitygw")));
    }
    if let Some(folder) = engine("lake-s3") {
        return Ok(S3::moto(&folder.join("bin/python")));
    }
    Err(Skip("needs scripts/lake-engines.sh exam".to_owned()))
}

/// A reader without Takt of the lake that [`with_records`] configures.
fn reader(s3: &S3) -> Result<Reader, Skip> {
    let [id, secret] = KEYS;
    let environment = [
        ("AWS_ENDPOINT_URL", s3.own_endpoint()),
        ("AWS_ACCESS_KEY_ID", id.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", secret.to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
    ];
    let environment = environment
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    Reader::start("s3://lake/of/lab", &environment)
}

/// A data directory with records, and the configuration of its lake on S3.
fn with_records(takt: &Takt, endpoint: &str, config: &str) {
    takt.import_sacct(jobs(10));
    let [id, secret] = KEYS;
    let keys = format!("aws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
    takt.file("keys", keys);
    takt.file(
        "takt.toml",
        format!(
            "cluster = \"lab\"\ntimezone = \"UTC\"\n{config}\n[lake]\npath = \"s3://lake/of/lab\"\n\
             interval_minutes = 1\ncheckpoint_commits = 2\n\n[lake.s3]\n\
             endpoint = \"{endpoint}\"\nallow_http = true\ncredentials_file = \"keys\"\n"
        ),
    );
}

/// Version of a table, by `takt lake status`.
fn version(takt: &Takt, table: &str) -> Option<u64> {
    let run = takt.run([
        "lake",
        "status",
        "--config",
        "takt.toml",
        "--format",
        "json",
    ]);
    let status: Value = serde_json::from_str(&run.stdout).unwrap();
    status["tables"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["table"] == table)?["version"]
        .as_u64()
}

#[test]
#[ignore = "needs a program with the feature s3"]
fn a_round_on_s3_may_be_killed_at_any_request() {
    let Some(s3) = or_skip(start()) else { return };
    let Some(mut reader) = or_skip(reader(&s3)) else {
        return;
    };
    let takt = Takt::fresh();
    with_records(&takt, &s3.endpoint(), "");
    let process = Arc::new(AtomicU32::new(0));
    let mut new_tables = 0;
    for last in 1..400_i32 {
        // A correction in each round, after the first.
        takt.import_sacct(jobs((10 + last % 14).cast_unsigned()));
        let before = reader.read();
        let killed = Arc::new(AtomicUsize::new(0));
        let victim = Arc::clone(&process);
        let hits = Arc::clone(&killed);
        let mut left = last;
        s3.judge(move |_| {
            left -= 1;
            if left == 0 {
                let pid = victim.load(Ordering::Relaxed).cast_signed();
                let pid = Pid::from_raw(pid).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
                hits.fetch_add(1, Ordering::Relaxed);
            }

            // Messages on their way arrive.
            Fate::Pass
        });
        process.store(0, Ordering::Relaxed);
        let mut child = takt
            .command(INIT)
            .stdout(process::Stdio::null())
            .spawn()
            .unwrap();
        process.store(child.id(), Ordering::Relaxed);
        let status = child.wait().unwrap();
        s3.judge(|_| Fate::Pass);
        let seen = reader.read();
        let run = takt.run(VERIFY);
        let late = ["takt lake init", "the next round writes"];
        let is_late = |line: &str| {
            line.trim().eq_ignore_ascii_case("finding") || late.iter().any(|it| line.contains(it))
        };
        let is_whole = match run.code {
            Some(0) => true,
            code => code == Some(1) && run.stdout.lines().all(is_late),
        };
        assert!(is_whole, "request {last}: {run:?}");
        takt.run(INIT).ok();
        takt.run(VERIFY).ok();
        let step = format!("request {last}");
        let new = check_whole(&before, &seen, &reader.read(), &step);
        if status.success() {
            assert!(last > 20, "only {last} requests");
            assert_eq!(killed.load(Ordering::Relaxed), 0);
            assert_eq!(new, TABLES.len());
            assert!(new_tables > 0, "no round ended between two commits");
            return;
        }
        new_tables += new;
    }
    panic!("a round makes more than 400 requests");
}

/// The other writer takes the lake over just before the first one commits.
#[test]
#[ignore = "needs a program with the feature s3"]
fn two_writers_on_s3_lose_no_commit() {
    let Some(s3) = or_skip(start()) else { return };
    let one = Takt::fresh();
    let other = Takt::fresh();
    with_records(&one, &s3.endpoint(), "");
    with_records(&other, &s3.own_endpoint(), "");
    one.run(INIT).ok();
    one.import_sacct(jobs(12));
    other.import_sacct(jobs(14));
    let takeover = Mutex::new(Some(other.command(INIT)));
    s3.judge(move |request| {
        if request.is_conditional && request.target.contains("job_runs/_delta_log") {
            let takeover = takeover.lock().unwrap().take();
            if let Some(mut command) = takeover {
                assert!(command.output().unwrap().status.success());
            }
        }
        Fate::Pass
    });
    let run = one.run(INIT);
    s3.judge(|_| Fate::Pass);
    assert_eq!(run.code, Some(1), "{run:?}");
    let said = run.stderr;
    assert!(
        said.contains("only Takt may write the tables of the lake"),
        "{said}"
    );
    assert!(
        said.contains("another data directory writes the data lake"),
        "{said}"
    );
    assert_eq!(version(&other, "job_runs"), Some(2));
    other.run(VERIFY).ok();
}

/// A server stores samples while S3 is away, says so, and writes what is missing when it is back.
#[test]
#[ignore = "needs a program with the feature s3"]
fn a_server_outlives_its_s3() {
    let Some(s3) = or_skip(start()) else { return };
    let takt = Takt::fresh();
    let address = format!("127.0.0.1:{}", free_port());
    let config = format!(
        "[server]\nlisten_address = \"{address}\"\n[sql]\nlisten_address = \"127.0.0.1:{}\"\n\
         [jobs]\npoll = false\n",
        free_port()
    );
    with_records(&takt, &s3.endpoint(), &config);
    takt.run(INIT).ok();
    takt.import_sacct(jobs(12));
    s3.judge(|_| Fate::Refuse);
    let mut server: Daemon = takt.start(["serve", "--config", "takt.toml"]);
    let metric = |name: &str| -> Option<f64> {
        http_get(&format!("http://{address}/metrics"))
            .ok()?
            .body
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?
            .parse()
            .ok()
    };
    let failing = "takt_lake_failing{table=\"usage\"}";
    let failures = "takt_lake_failures_total{table=\"usage\"}";
    server.wait_until("failing to write the lake", SOON, || {
        (metric(failing)? == 1.0).then_some(())
    });
    let before = metric("takt_store_samples_total").unwrap();
    server.wait_until("trying again", SOON, || {
        (metric(failures)? >= 2.0).then_some(())
    });
    assert!(metric("takt_store_samples_total").unwrap() > before);
    let log = server.log();
    assert!(log.contains("cannot write the data lake"), "{log}");
    s3.judge(|_| Fate::Pass);
    server.wait_until("writing the lake", SOON, || {
        (metric(failing)? == 0.0).then_some(())
    });
    assert_eq!(version(&takt, "job_runs"), Some(2));
    takt.run(VERIFY).ok();
    server.stop();
}
