//! Each mistake gives one line that names it and its place, and the right exit code. Stored data
//! stay as they were.

use crate::support::mount::Mount;
use crate::support::process::{Daemon, free_port, http_get, wait_for};
use crate::support::takt::Takt;
use crate::support::{need_root, or_skip};
use flate2::{Compression, write::GzEncoder};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

const HEADER: &str = "JobID|User|Account|Partition|Submit|Start|End|State|AllocTRES|NNodes|NCPUS|NodeList|ElapsedRaw";
const ROW: &str = "7|alice|lab-a|gpu|2026-10-01T10:00:00|2026-10-01T10:01:00|2026-10-01T11:01:00|COMPLETED|\
                   cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=32G,node=1|1|8|node0|3600";

/// A data directory with one run: one hour on eight CPUs and two GPUs.
fn with_one_run() -> Takt {
    let takt = Takt::fresh();
    let file = takt.file("good.txt", format!("{HEADER}\n{ROW}\n"));
    takt.run([
        "import",
        "sacct",
        &file.to_string_lossy(),
        "--timezone",
        "UTC",
        "--cluster",
        "lab",
    ])
    .ok();
    takt
}

/// Fails unless the store holds exactly the one run.
#[track_caller]
fn assert_unharmed(takt: &Takt) {
    let answer = takt
        .run([
            "sql",
            "--format",
            "csv",
            "SELECT count(*) AS runs, sum(gpus) AS gpus FROM jobs",
        ])
        .ok();
    assert_eq!(answer, "runs,gpus\n1,2\n");
}

/// Fails unless `said` is one line that contains all of `parts`.
#[track_caller]
fn assert_one_line(said: &str, parts: &[&str]) {
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in {said:?}");
    }
}

#[test]
fn an_unknown_time_zone() {
    let takt = with_one_run();
    let said = takt
        .run(["import", "sacct", "good.txt", "--timezone", "Europe/Olso"])
        .fails(2);
    assert_one_line(&said, &["Europe/Olso", "Europe/Oslo"]);
    assert_unharmed(&takt);
}

#[test]
fn a_file_that_is_not_from_sacct() {
    let takt = with_one_run();
    for (name, text) in [
        ("page.html", "<!doctype html>\n<p>404\n"),
        ("empty.txt", ""),
        ("binary.bin", "\u{1}\u{2}\u{fffd}\n"),
    ] {
        takt.file(name, text);
        let said = takt.run(["import", "sacct", name]).fails(1);
        assert_one_line(&said, &[name, "sacct -P", "JobID"]);
    }
    assert_one_line(
        &takt.run(["import", "sacct", "absent.txt"]).fails(1),
        &["absent.txt", "No such file"],
    );
    assert_unharmed(&takt);
}

#[test]
fn a_header_without_jobid() {
    let takt = with_one_run();
    takt.file(
        "no_id.txt",
        format!("{}\n{ROW}\n", HEADER.replace("JobID", "JobName")),
    );
    assert_one_line(
        &takt.run(["import", "sacct", "no_id.txt"]).fails(1),
        &["no_id.txt", "JobID"],
    );
    assert_unharmed(&takt);
}

#[test]
fn a_gzip_that_ends_in_the_middle() {
    let takt = with_one_run();
    let mut text = format!("{HEADER}\n");
    for id in 100..5_000 {
        text += &format!("{id}{}\n", &ROW[1..]);
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let whole = gzip.finish().unwrap();
    takt.file("cut.gz", &whole[..whole.len() / 2]);
    assert_one_line(
        &takt.run(["import", "sacct", "cut.gz"]).fails(1),
        &["cut.gz", "line", "gzip"],
    );
    assert_unharmed(&takt);
}

#[test]
fn a_row_with_a_missing_field_is_set_aside_and_the_others_stay() {
    let takt = Takt::fresh();
    let short = ROW.strip_suffix("|3600").unwrap().replacen('7', "8", 1);
    takt.file(
        "jobs.txt",
        format!("{HEADER}\n{ROW}\n{short}\n{}\n", ROW.replacen('7', "9", 1)),
    );
    let run = takt.run([
        "import",
        "sacct",
        "jobs.txt",
        "--timezone",
        "UTC",
        "--cluster",
        "lab",
        "--format",
        "json",
    ]);
    assert!(run.stderr.contains("jobs.txt, line 3"), "{}", run.stderr);
    let end = "jobs.txt: rows that were set aside: 1 (lines 3); the others are imported";
    assert!(run.stderr.contains(end), "{}", run.stderr);
    assert_eq!(run.code, Some(1));
    let summary: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(summary["runs_inserted"], 2);
    assert_eq!(summary["rejected"], 1);
    let kept = takt
        .run(["sql", "--format", "csv", "SELECT line, text FROM rejects"])
        .ok();
    assert_eq!(kept, format!("line,text\n3,\"{short}\"\n"));
}

#[test]
fn an_invalid_period() {
    let takt = with_one_run();
    for (arguments, parts) in [
        (
            &["--month", "2999-01"][..],
            &["2999-01", "has not begun"][..],
        ),
        (&["--month", "2026-13"], &["2026-13", "not a month"]),
        (&["--month", "October"], &["October", "not a month"]),
        (
            &["--from", "2026-10-31", "--to", "2026-10-01"],
            &["2026-10-31", "empty"],
        ),
        (
            &["--from", "2026-02-30", "--to", "2026-03-01"],
            &["2026-02-30", "not a time"],
        ),
        (&["--by", "colour"], &["colour", "gpu_model"]),
        (&["--cluster", "moon"], &["moon", "lab"]),
    ] {
        let said = takt
            .run(["report", "usage"].iter().chain(arguments))
            .fails(2);
        assert_one_line(&said, parts);
    }
    assert_unharmed(&takt);
}

#[test]
fn a_configuration_with_an_unknown_key() {
    let takt = with_one_run();
    takt.file("takt.toml", "[scrape]\nintervall_seconds = 5\n");
    for command in [&["serve"][..], &["check-config"], &["report", "usage"]] {
        let said = takt
            .run(command.iter().chain(&["--config", "takt.toml"]))
            .fails(2);
        assert_one_line(
            &said,
            &[
                "takt.toml, line 2",
                "intervall_seconds",
                "did you mean interval_seconds",
            ],
        );
    }
    assert_unharmed(&takt);
}

#[test]
fn sql_that_is_no_select() {
    let takt = with_one_run();
    for (statement, parts) in [
        ("DROP TABLE records.jobs", &["only SELECT"][..]),
        ("SELECT * FROM read_text('/etc/passwd')", &["read_text"]),
        ("SELECT nothing FROM jobs", &["nothing"]),
        ("SELECT FROM", &["syntax error"]),
    ] {
        assert_one_line(&takt.run(["sql", statement]).fails(1), parts);
    }
    assert_unharmed(&takt);
}

#[test]
fn a_port_in_use() {
    let takt = with_one_run();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert_one_line(
        &takt.run(["serve", "--listen-address", &address]).fails(1),
        &[&address, "Address already in use"],
    );
    let up = [
        "up",
        "--web.listen-address",
        &address,
        "--listen-address",
        "127.0.0.1:0",
    ];
    assert_one_line(
        &takt.run(up).fails(1),
        &[&address, "exporter", "Address already in use"],
    );
    assert_unharmed(&takt);
}

/// Starts a server without targets and returns its address.
fn serve(takt: &Takt) -> (Daemon, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let mut server = takt.start(["serve", "--listen-address", &address]);
    let health = format!("http://{address}/-/healthy");
    server.wait_until("healthy", Duration::from_secs(20), || {
        http_get(&health).ok().filter(|page| page.status == 200)
    });
    (server, address)
}

#[test]
fn a_directory_that_another_server_holds() {
    let takt = with_one_run();
    let (mut server, address) = serve(&takt);
    let said = takt
        .run(["serve", "--listen-address", "127.0.0.1:0"])
        .fails(1);
    assert_one_line(
        &said,
        &[
            "takt-data",
            "held by another takt",
            &server.pid().to_string(),
            &address,
        ],
    );

    // Commands that only read ask that server.
    assert_unharmed(&takt);
    server.stop();
    assert_unharmed(&takt);
}

#[test]
fn a_bad_query_fails_alike_with_and_without_a_server() {
    let takt = with_one_run();
    takt.file("no_id.txt", "JobName|State\nx|y\n");
    let asked = || {
        [
            takt.run(["report", "usage", "--month", "2999-01"]).fails(2),
            takt.run(["sql", "DROP TABLE jobs"]).fails(1),
            takt.run(["import", "sacct", "no_id.txt"]).fails(1),
            takt.run(["import", "sacct", "good.txt", "--timezone", "Mars/Base"])
                .fails(2),
        ]
    };
    let files = asked();
    let (mut server, _) = serve(&takt);
    assert_eq!(asked(), files);
    assert_unharmed(&takt);
    server.stop();
}

#[test]
fn writes_need_the_token() {
    let takt = with_one_run();
    let (mut server, address) = serve(&takt);
    let client = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .build()
        .new_agent();
    let import = format!("http://{address}/api/takt/v1/import?name=x&timezone=UTC");
    let body = format!("{HEADER}\n{}\n", ROW.replacen('7', "8", 1));
    let refused = client.post(&import).send(&body).unwrap();
    assert_eq!(refused.status(), 401);

    // Another site's page in a browser on this machine sends the right address and a wrong Host.
    let foreign = client
        .get(format!("http://{address}/"))
        .header("Host", "evil.example")
        .call()
        .unwrap();
    assert_eq!(foreign.status(), 401);
    assert_unharmed(&takt);
    server.stop();
}

#[test]
fn a_directory_that_cannot_be_written() {
    let takt = Takt::fresh();
    let file = takt.file("file", "");
    let said = takt
        .run(["jobs", "--data-dir", &file.to_string_lossy()])
        .fails(1);
    assert_one_line(&said, &["cannot use the data directory", "file"]);
}

#[test]
fn a_full_disk_and_a_read_only_one() {
    let Some(()) = or_skip(need_root()) else {
        return;
    };
    let takt = Takt::fresh();
    let mount = Mount::tmpfs(&takt.data_directory(), "size=64m");
    takt.file("good.txt", format!("{HEADER}\n{ROW}\n"));
    takt.run([
        "import",
        "sacct",
        "good.txt",
        "--timezone",
        "UTC",
        "--cluster",
        "lab",
    ])
    .ok();

    let mut text = format!("{HEADER}\n");
    for id in 0_u64..400_000 {
        text += &format!(
            "{}{}\n",
            id + 1000,
            &ROW[1..].replace("node0", &format!("node{}", id * 7919 % 100_003))
        );
    }
    takt.file("many.txt", text);
    mount.fill();
    let said = takt
        .run([
            "import",
            "sacct",
            "many.txt",
            "--timezone",
            "UTC",
            "--cluster",
            "lab",
        ])
        .fails(1);
    assert_one_line(&said, &["No space left"]);
    mount.free();
    assert_unharmed(&takt);

    mount.again("ro");
    assert_one_line(
        &takt.run(["jobs"]).fails(1),
        &["takt-data", "Read-only file system"],
    );
    mount.again("rw");
    assert_unharmed(&takt);
}

/// Answers every request with `head` and then repeats `chunk` until the reader disconnects.
fn endless_target(head: &'static str, chunk: Vec<u8>, most: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let _ = connection.read(&mut [0; 4096]);
            let _ = connection.write_all(head.as_bytes());
            for _ in 0..most / chunk.len() {
                if connection.write_all(&chunk).is_err() {
                    break;
                }
            }
        }
    });
    address
}

#[test]
fn targets_that_answer_html_or_two_gigabytes_or_nothing() {
    let takt = with_one_run();
    let html = endless_target(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n",
        b"<p>hi</p>\n".to_vec(),
        10,
    );
    let huge = endless_target(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n\r\n",
        b"# a comment that says nothing, again and again and again\n".repeat(1000),
        2 << 30,
    );
    let nobody = format!("127.0.0.1:{}", free_port());
    let page = format!("127.0.0.1:{}", free_port());
    takt.file(
        "takt.toml",
        format!(
            "[server]\nlisten_address = \"{page}\"\n[scrape]\ninterval_seconds = 1\ntimeout_seconds = 1\n\
             [[scrape.targets]]\naddress = \"{html}\"\nnode = \"html\"\n\
             [[scrape.targets]]\naddress = \"{huge}\"\nnode = \"huge\"\n\
             [[scrape.targets]]\naddress = \"{nobody}\"\nnode = \"nobody\"\n"
        ),
    );
    let mut server = takt.start(["serve", "--config", "takt.toml"]);
    let shown = |part: &str| {
        http_get(&format!("http://{page}/health"))
            .ok()
            .map(|page| page.body)
            .filter(|body| body.contains(part))
    };
    let limit = Duration::from_secs(30);
    server.wait_until("telling of the HTML", limit, || shown("text/html"));
    server.wait_until("telling of the size", limit, || shown("bytes"));
    server.wait_until("telling of nobody", limit, || {
        shown("0 of 3 exporters answer")
    });
    let resident = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let peak_kib: u64 = resident
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    assert!(
        peak_kib < 512 << 10,
        "two gigabytes were not cut off: {peak_kib} kB resident"
    );
    wait_for("up 0 of all three", limit, || {
        let answer = takt
            .run([
                "sql",
                "--format",
                "csv",
                "SELECT count(DISTINCT labels) AS n FROM samples WHERE metric = 'up' AND value = 0",
            ])
            .ok();
        (answer == "n\n3\n").then_some(())
    });
    assert_unharmed(&takt);
    server.stop();
}

/// Issue 13: an import in the wrong time zone could not be taken back.
#[test]
fn imports_are_listed_and_undone() {
    let takt = with_one_run();
    let late = ROW.replacen('7', "8", 1);
    takt.file("late.txt", format!("{HEADER}\n{ROW}\n{late}\n"));
    takt.run(["import", "sacct", "late.txt", "--timezone", "UTC"])
        .ok();
    let listed = takt.run(["records", "imports", "--format", "csv"]).ok();
    let rows: Vec<&str> = listed.lines().skip(1).collect();
    assert_eq!(rows.len(), 2, "{listed}");
    assert!(
        rows[0].starts_with("2,") && rows[0].ends_with(",sacct,late.txt,UTC,1,0,1,"),
        "{listed}"
    );
    assert!(
        rows[1].starts_with("1,") && rows[1].contains("good.txt"),
        "{listed}"
    );
    assert_eq!(
        takt.run(["records", "undo", "2"]).ok(),
        "import 2 undone: 1 run deleted\n"
    );
    assert_unharmed(&takt);
    assert_one_line(
        &takt.run(["records", "undo", "2"]).fails(2),
        &["no import 2", "takt records imports"],
    );
    assert_one_line(
        &takt.run(["records", "delete", "--job", "7"]).fails(2),
        &["--yes"],
    );
    assert_one_line(
        &takt.run(["records", "delete", "--yes"]).fails(2),
        &["--job"],
    );
    assert_eq!(
        takt.run(["records", "delete", "--job", "7", "--yes"]).ok(),
        "1 run deleted\n"
    );
}
