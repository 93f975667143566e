//! The server as a whole: its pages, the data that survive a kill, and commands that work with and
//! without it.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::process::{Daemon, free_port, http_get, wait_for};
use crate::support::prometheus::raw_samples;
use crate::support::takt::Takt;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

const SOON: Duration = Duration::from_secs(30);

/// Starts an exporter with eight GPUs, one of them lost.
fn exporter(takt: &Takt) -> (Daemon, String) {
    let library = Path::new(env!("CARGO_BIN_EXE_takt")).with_file_name("libnvml_stand_in.so");
    assert!(
        library.exists(),
        "{} is missing; cargo build -p nvml-stand-in",
        library.display()
    );
    let script = takt.file(
        "gpus.txt",
        "profile rtx5090 8\ngpu 1 utilization 97 40\ngpu 2 lost\n",
    );
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = takt.command([
        "exporter",
        "--web.listen-address",
        &address,
        "--nvml.library",
    ]);
    command.arg(library).env("NVML_STAND_IN_SCRIPT", script);
    let mut exporter = Daemon::start("exporter", command, &takt.directory().join("exporter.log"));
    exporter.wait_until("showing GPUs", SOON, || {
        http_get(&format!("http://{address}/metrics"))
            .ok()?
            .body
            .contains("takt_gpu_utilization_ratio")
            .then_some(())
    });
    (exporter, address)
}

/// Asks a starting server without a pause until it is ready. Returns its other answers; none of them may be empty.
fn answers_until_ready(address: &str) -> Vec<String> {
    let began = Instant::now();
    let mut answers = Vec::new();
    while began.elapsed() < SOON {
        // Until it listens, nobody is there.
        let Ok(mut stream) = TcpStream::connect(address) else {
            continue;
        };
        let request =
            format!("GET /-/ready HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        if answer.starts_with("HTTP/1.1 200 ") {
            return answers;
        }
        answers.push(answer);
    }
    panic!("not ready: {answers:?}");
}

/// Starts a server that scrapes the exporter under several node names four times a second.
fn serve(takt: &Takt, exporter: &str, nodes: usize) -> (Daemon, String) {
    serve_every(0.25, takt, exporter, nodes)
}

/// Starts a server that scrapes the exporter under several node names at this interval.
fn serve_every(seconds: f64, takt: &Takt, exporter: &str, nodes: usize) -> (Daemon, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let targets = (1..=nodes)
        .map(|n| format!("[[scrape.targets]]\naddress = \"{exporter}\"\nnode = \"gpu{n:02}\"\n"));
    let config = format!(
        "cluster = \"lab\"\n[server]\nlisten_address = \"{address}\"\n[jobs]\npoll = false\n\
         [scrape]\ninterval_seconds = {seconds}\ntimeout_seconds = {seconds}\n{}",
        targets.collect::<String>()
    );
    takt.file("takt.toml", config);
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    server.wait_until("serving", SOON, || {
        http_get(&format!("http://{address}/-/healthy"))
            .ok()
            .filter(|page| page.status == 200)
    });
    (server, address)
}

/// 13.11: the greeting of `takt up` was buried under a line for each absent collector.
#[test]
fn up_greets_without_lines_about_absent_hardware() {
    let takt = Takt::fresh();
    let exporter = format!("127.0.0.1:{}", free_port());
    let server = format!("127.0.0.1:{}", free_port());
    let mut up = takt.start([
        "up",
        "--web.listen-address",
        &exporter,
        "--listen-address",
        &server,
    ]);
    up.wait_until("greeting", SOON, || {
        fs::read_to_string(takt.directory().join("takt.log"))
            .ok()?
            .contains("Press Ctrl-C to stop")
            .then_some(())
    });
    let page = http_get(&format!("http://{exporter}/metrics")).unwrap();
    let absent = page
        .body
        .lines()
        .filter(|line| line.starts_with("takt_exporter_collector_absent{") && line.ends_with(" 1"));
    assert!(absent.count() > 0, "this machine has all kinds of hardware");
    let log = up.log();
    assert!(log.contains(&format!("http://{server}/")), "{log}");
    assert!(!log.contains(" absent "), "{log}");
}

#[test]
fn thirty_nodes_of_eight_gpus_fit_on_a_page_below_100_kb() {
    let takt = Takt::fresh();
    let (_exporter, node) = exporter(&takt);

    // All nodes must answer at the same time, on a busy machine too.
    let (mut server, address) = serve_every(4.0, &takt, &node, 30);

    // The load of most GPUs changes, so the number of busy ones does, too.
    let all = " of 240 GPUs work";
    let up = "<dt>nodes up</dt><dd><a href=\"/nodes\">30</a> <small>of 30</small>";
    let page = server.wait_until("showing thirty nodes", SOON, || {
        let page = http_get(&format!("http://{address}/")).ok()?;
        (page.body.contains(up) && page.body.contains(all)).then_some(page)
    });
    assert!(page.body.len() < 100_000, "{} bytes", page.body.len());

    // A tile for each node, with a bar for the busy GPU and a cross for the lost one.
    let tiles = page.body.matches("class=\"tile bad\"").count();
    assert_eq!(tiles, 30);
    assert_eq!(
        page.body.matches("GPU 2 lost").count(),
        12,
        "the page names twelve"
    );
    assert!(page.body.contains("and 18 more nodes"));
    assert!(page.body.contains("gpu30"), "every node is named");
}

#[test]
fn a_command_gets_the_same_answer_from_the_server_and_from_the_files() {
    let takt = Takt::fresh();
    let (_exporter, node) = exporter(&takt);
    takt.file(
        "jobs.txt",
        "JobID|User|Account|Partition|Submit|Start|End|State|AllocTRES|NNodes|NCPUS|NodeList|ElapsedRaw\n\
         1|alice|a|gpu|2026-10-01T10:00:00|2026-10-01T10:01:00|2026-10-01T12:01:00|COMPLETED|cpu=8,gres/gpu=2,mem=64G,node=1|1|8|n1|7200\n",
    );
    let import = [
        "import",
        "sacct",
        "jobs.txt",
        "--timezone",
        "Europe/Oslo",
        "--format",
        "json",
    ];
    let asked = [
        &[
            "report",
            "usage",
            "--month",
            "2026-10",
            "--format",
            "json",
            "--by",
            "user,node",
        ][..],
        &["report", "usage", "--month", "2026-10", "--format", "html"],
        &["jobs", "--format", "csv"],
        &["job", "1"],
        &[
            "sql",
            "SELECT count(*) AS runs, min(start_time) AS first FROM jobs",
        ],
    ];
    let answers = || asked.map(|arguments| takt.run(arguments).ok());

    let (mut server, _) = serve(&takt, &node, 1);
    let first: Value = serde_json::from_str(&takt.run(import).ok()).unwrap();
    assert_eq!(first["runs_inserted"], 1);

    // The server would do this by itself, at some time.
    takt.run(["assess"]).ok();
    let from_server = answers();
    server.stop();
    assert_eq!(answers(), from_server);

    // The same file once more, into the files: nothing changes.
    let again: Value = serde_json::from_str(&takt.run(import).ok()).unwrap();
    assert_eq!(again["runs_inserted"], 0);
    assert_eq!(again["runs_updated"], 0);
    assert_eq!(again["unchanged"], 1);
    assert_eq!(answers(), from_server);
}

/// A server that starts while `takt sql` holds the data directory waits until the command has
/// ended.
#[test]
fn a_server_waits_for_a_command_that_has_the_directory() {
    let takt = Takt::fresh();
    let address = format!("127.0.0.1:{}", free_port());
    takt.file(
        "takt.toml",
        format!(
            "cluster = \"lab\"\n[server]\nlisten_address = \"{address}\"\n[jobs]\npoll = false\n"
        ),
    );
    fs::create_dir_all(takt.data_directory()).unwrap();
    // As a command that runs: the lock, and a file without an address.
    let lock = fs::File::create(takt.data_directory().join("takt.lock")).unwrap();
    lock.lock().unwrap();
    fs::write(
        takt.data_directory().join("takt.lock"),
        r#"{"pid":4711,"address":null,"token":null}"#,
    )
    .unwrap();
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let log = || fs::read_to_string(takt.directory().join("takt.log")).ok();
    server.wait_until("waiting", SOON, || {
        log()?
            .contains("a command uses the data directory")
            .then_some(())
    });
    drop(lock);
    let answers = answers_until_ready(&address);
    assert!(
        answers
            .iter()
            .all(|answer| answer.starts_with("HTTP/1.1 503 ")),
        "{answers:?}"
    );
    assert!(
        answers
            .iter()
            .all(|answer| answer.contains("\r\nRetry-After: 3\r\n")),
        "{answers:?}"
    );
    server.wait_until("serving", SOON, || {
        http_get(&format!("http://{address}/-/healthy"))
            .ok()
            .filter(|page| page.status == 200)
    });

    // A second server does not wait, as the first one would never end.
    let second = takt.run(["serve", "--config", "takt.toml"]).fails(1);
    assert!(
        second.contains("is held by another takt") && second.contains(&address),
        "{second}"
    );
    server.stop();
}

/// `kill -9` again and again: every sample up to the last published watermark is stored exactly
/// once.
#[test]
fn nothing_up_to_the_watermark_is_lost_by_a_kill() {
    let takt = Takt::fresh();
    let (_exporter, node) = exporter(&takt);

    // Samples of `up` that a server showed up to its watermark, by node.
    let mut known: BTreeSet<(String, i64)> = BTreeSet::new();
    for kill in 0..6_u64 {
        let (mut server, address) = serve(&takt, &node, 3);
        let url = format!("http://{address}");
        let watermark = || {
            http_get(&format!("{url}/metrics"))
                .ok()?
                .body
                .lines()
                .find_map(|line| line.strip_prefix("takt_store_watermark_timestamp_seconds "))?
                .parse::<f64>()
                .ok()
                .filter(|seconds| *seconds > 0.0)
                .map(|seconds| (seconds * 1000.0) as i64)
        };
        let begun = server.wait_until("publishing a watermark", SOON, watermark);

        // The first watermark may be that of the server before.
        let shown = server.wait_until("showing durable samples", SOON, || {
            let reached = watermark().filter(|now| *now > begun + 2500)?;
            let shown = raw_samples(&url, "up{node!=\"\"}", begun, reached, &["instance"]);
            let count: usize = shown.values().map(|samples| samples.len()).sum();
            (count >= 12).then_some(shown)
        });
        // At different moments between two commits.
        thread::sleep(Duration::from_millis(kill * 170 % 1000));
        for (labels, samples) in shown {
            let labels: BTreeMap<String, String> = serde_json::from_str(&labels).unwrap();
            let named = samples.into_keys().map(|at| (labels["node"].clone(), at));
            known.extend(named);
        }
        server.kill();

        let answer = wait_for("the files", SOON, || {
            let sql = "SELECT json_extract_string(labels, '$.node') AS node, epoch_ms(ts) AS at, \
                       count(*) AS n FROM samples WHERE metric = 'up' AND value IS NOT NULL \
                       AND node IS NOT NULL GROUP BY ALL";
            let run = takt.run(["sql", "--format", "json", sql]);
            (run.code == Some(0)).then_some(run.stdout)
        });
        let rows: Vec<Value> = serde_json::from_str(&answer).unwrap();
        assert!(
            rows.iter().all(|row| row["n"] == 1),
            "a sample is there twice"
        );
        let stored: BTreeSet<_> = rows
            .iter()
            .map(|row| {
                let node = row["node"].as_str().unwrap().to_owned();
                (node, row["at"].as_i64().unwrap())
            })
            .collect();
        let lost: Vec<_> = known.difference(&stored).collect();
        assert!(
            lost.is_empty(),
            "{} of {}: {lost:?}",
            lost.len(),
            known.len()
        );
    }
}

/// Background tasks of a server that scrapes, polls and sends messages. `scheduler` and `reports`
/// need a configuration.
const TASKS: [&str; 12] = [
    "http",
    "sql",
    "scheduler",
    "reload",
    "events",
    "process-usage",
    "strips",
    "cards",
    "fairshare-history",
    "calendar",
    "efficiency",
    "own-series",
];

#[test]
fn each_task_that_ends_early_is_reported_and_started_again() {
    thread::scope(|threads| {
        for task in TASKS {
            threads.spawn(move || killed_task_returns(task));
        }
    });
}

fn killed_task_returns(task: &str) {
    let kill = [("TAKT_KILL_TASK".to_owned(), task.to_owned())];
    let takt = Takt::fresh().with_environment(kill);
    let address = format!("127.0.0.1:{}", free_port());
    let sql = format!("127.0.0.1:{}", free_port());
    takt.file(
        "takt.toml",
        format!(
            "cluster = \"lab\"\n[server]\nlisten_address = \"{address}\"\n\
             [sql]\nlisten_address = \"{sql}\"\n"
        ),
    );
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let restarted = format!("takt_server_task_restarts_total{{task=\"{task}\"}} 1");
    let running = format!("takt_server_task_running{{task=\"{task}\"}} 1");
    let page = server.wait_until("restarting the task", SOON, || {
        let page = http_get(&format!("http://{address}/metrics")).ok()?.body;
        (page.contains(&restarted) && page.contains(&running)).then_some(page)
    });

    // The end of one task does not take others with it.
    for other in TASKS.iter().filter(|other| **other != task) {
        let untouched = format!("takt_server_task_restarts_total{{task=\"{other}\"}} 0");
        assert!(page.contains(&untouched), "{other}: {page}");
    }
    let log = server.log();
    assert!(
        log.contains("a background task ended early") && log.contains(task),
        "{log}"
    );
    if task == "sql" {
        TcpStream::connect(&sql).expect("SQL is served again");
    }
    assert!(server.stop().success());
}
