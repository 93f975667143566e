//! Statements that take more memory or time than they may: the server ends them and continues.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::process::{Daemon, free_port, http_get, wait_for};
use crate::support::takt::Takt;
use crate::support::{Needed, need, or_skip};
use rustix::process::{self, Pid};
use std::fs;
use std::path::Path;

const SOON: Duration = Duration::from_secs(60);

/// Time limit of a statement in these tests, and the time until its end has been reported.
const LIMIT: Duration = Duration::from_secs(2);
const ENDED: Duration = Duration::from_secs(20);

/// DuckDB computes each of these in one step: outside its memory limit, or without looking for an
/// interrupt.
const STATEMENTS: [&str; 4] = [
    "SELECT len(range(TIMESTAMP '1970-01-01', TIMESTAMP '2030-01-01', INTERVAL 1 SECOND))",
    "SELECT length(repeat(repeat('a',100000),40000))",
    "SELECT levenshtein(repeat('a',1000000), repeat('b',1000000))",
    "SELECT len(generate_series(TIMESTAMP '1970-01-01', TIMESTAMP '2030-01-01', \
     INTERVAL 1 MICROSECOND))",
];

/// Runs a statement. Returns its result or its error.
type Ask<'s> = dyn Fn(&str) -> Result<String, String> + 's;

struct Server {
    takt: Takt,
    daemon: Daemon,
    url: String,
    sql_port: u16,
}

impl Server {
    fn start() -> Self {
        let takt = Takt::fresh();
        let sql_port = free_port();
        let page = format!("127.0.0.1:{}", free_port());
        let exporter = format!("127.0.0.1:{}", free_port());
        takt.file(
            "takt.toml",
            format!(
                "cluster = \"lab\"\n[jobs]\npoll = false\n[sql]\nmemory_limit_mib = 512\n\
                 listen_address = \"127.0.0.1:{sql_port}\"\ntimeout_seconds = {}\n",
                LIMIT.as_secs()
            ),
        );

        // Scrapes twice a second, so that a pause of the writer shows at once.
        let mut daemon = takt.start([
            "up",
            "--config",
            "takt.toml",
            "--listen-address",
            &page,
            "--web.listen-address",
            &exporter,
            "--interval-seconds",
            "0.5",
        ]);
        let url = format!("http://{page}");
        let ready = format!("{url}/api/v1/query?query=node_load1");
        daemon.wait_until("scraping", SOON, || {
            http_get(&ready)
                .ok()?
                .body
                .contains("node_load1")
                .then_some(())
        });
        Self {
            takt,
            daemon,
            url,
            sql_port,
        }
    }

    /// Samples that the server has written.
    fn samples(&self) -> f64 {
        let page = http_get(&format!("{}/metrics", self.url)).unwrap().body;
        let line = page
            .lines()
            .find(|line| line.starts_with("takt_store_samples_total "));
        line.and_then(|line| line.split(' ').nth(1))
            .map_or(0.0, |value| value.parse().unwrap())
    }

    /// Resident memory of the server, in bytes.
    fn resident(&self) -> u64 {
        let statm = format!("/proc/{}/statm", self.daemon.pid());
        let statm = fs::read_to_string(statm).unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    fn over_http(&self, statement: &str) -> Result<String, String> {
        let run = self.takt.run(["sql", statement, "--format", "csv"]);
        if run.code == Some(0) {
            Ok(run.stdout)
        } else {
            Err(run.stderr)
        }
    }

    fn psql(&self, statement: &str) -> Command {
        let to = format!(
            "host=127.0.0.1 port={} dbname=takt user=alice",
            self.sql_port
        );
        let mut command = Command::new("psql");
        command.args(["-X", "-A", "-t", &to, "-c", statement]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn over_postgres(&self, statement: &str) -> Result<String, String> {
        let output = self.psql(statement).output().unwrap();
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Process id of the query process, once its statements have ended.
    fn query_process(&self) -> u32 {
        wait_for("the end of all statements", SOON, || {
            match self.daemon.descendants()[..] {
                [process] => Some(process),
                _ => None,
            }
        })
    }
}

fn has_psql() -> bool {
    let psql = Needed {
        program: "psql",
        package: "postgresql-client",
    };
    or_skip(need(&[psql])).is_some()
}

#[test]
fn a_greedy_statement_ends_at_its_limits_and_samples_are_written_meanwhile() {
    let server = Server::start();
    let has_psql = has_psql();
    let before = server.resident();
    let written = server.samples();
    for statement in STATEMENTS {
        let ways: [(&str, &Ask); 2] = [
            ("HTTP", &|statement| server.over_http(statement)),
            ("PostgreSQL", &|statement| server.over_postgres(statement)),
        ];
        // Both ways lead to the same process of the statements, but have ends and errors of their
        // own.
        for (way, ask) in ways.into_iter().take(if has_psql { 2 } else { 1 }) {
            let samples = server.samples();
            let began = Instant::now();
            let answer = ask(statement);
            let took = began.elapsed();
            assert!(took < ENDED, "{statement} over {way} took {took:?}");
            let said = answer.expect_err(statement);
            assert!(
                ["interrupted after 2 s", "memory", "Out of Memory"]
                    .iter()
                    .any(|cause| said.contains(cause)),
                "{statement} over {way}: {said}"
            );

            // A commit comes each second, later on a busy machine.
            if took > 2 * LIMIT {
                let after = server.samples();
                assert!(
                    after > samples,
                    "{statement} over {way} stopped the samples"
                );
            }
        }
    }
    assert!(server.samples() > written);

    // The memory of a statement is that of its own process.
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 256 << 20, "the server grew by {grown} bytes");

    // Others still get answers, and no statement is left.
    let count = server
        .over_http("SELECT count(*) > 0 AS n FROM node_load1")
        .unwrap();
    assert_eq!(count, "n\ntrue\n");
    server.query_process();
}

#[test]
fn many_greedy_statements_leave_place_for_the_next_one() {
    let server = Server::start();
    if !has_psql() {
        return;
    }
    let mut clients: Vec<_> = STATEMENTS
        .iter()
        .cycle()
        .take(12)
        .map(|statement| server.psql(statement).spawn().unwrap())
        .collect();
    let samples = server.samples();
    for client in &mut clients {
        let status = client.wait().unwrap();
        assert!(!status.success());
    }
    assert!(server.samples() > samples);
    assert_eq!(server.over_postgres("SELECT 41 + 1").unwrap(), "42\n");
}

#[test]
fn the_server_stops_in_time_while_greedy_statements_run() {
    let mut server = Server::start();
    let mut clients = Vec::new();
    for statement in STATEMENTS {
        let mut command = server.takt.command(["sql", statement]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        clients.push(command.spawn().unwrap());
    }
    wait_for("running statements", SOON, || {
        (server.daemon.descendants().len() >= 3).then_some(())
    });
    let began = Instant::now();
    // Listed before the stop, as orphans get another parent.
    let children = server.daemon.descendants();
    let status = server.daemon.stop();
    let took = began.elapsed();
    assert!(status.success(), "{status}: {}", server.daemon.log());
    assert!(took < Duration::from_secs(15), "stopping took {took:?}");
    for client in &mut clients {
        client.wait().unwrap();
    }
    for child in children {
        let is_gone = || (!Path::new(&format!("/proc/{child}")).exists()).then_some(());
        wait_for("the end of the statements", SOON, is_gone);
    }

    // The store was closed in order.
    server.takt.run(["store", "verify"]).ok();
}

#[test]
fn statements_that_are_hard_to_parse_are_refused() {
    let server = Server::start();
    // Nesting of brackets, of operators, of calls and of lists: each is a recursion of a parser.
    let statements = [
        format!("SELECT {}", "(".repeat(200_000)),
        format!("SELECT 1{}", "+1".repeat(300_000)),
        format!("SELECT {}1{}", "abs(".repeat(50_000), ")".repeat(50_000)),
        format!("SELECT {}{}", "[".repeat(100_000), "]".repeat(100_000)),
    ];
    for statement in statements {
        server.takt.file("statement.sql", &statement);
        let began = Instant::now();
        let file = fs::read(server.takt.directory().join("statement.sql")).unwrap();
        // Over the standard input: the kernel limits the length of an argument.
        let run = server.takt.run_with_input(["sql", "-"], &file);
        let said = run.fails(1);
        assert!(said.contains("Parser Error"), "{said}");
        assert!(began.elapsed() < ENDED);
    }
    assert_eq!(server.over_http("SELECT 1 AS n").unwrap(), "n\n1\n");
}

#[test]
fn a_query_process_that_ends_is_replaced() {
    let server = Server::start();
    let ask = || server.over_http("SELECT 6 * 7 AS n");
    assert_eq!(ask().unwrap(), "n\n42\n");

    // As the kernel does for want of memory.
    let process = server.query_process();
    let pid = Pid::from_raw(process.cast_signed()).unwrap();
    process::kill_process(pid, process::Signal::KILL).unwrap();
    assert_eq!(ask().unwrap(), "n\n42\n");

    // Like the server, it ends when nothing needs it any more.
    let next = server.query_process();
    assert_ne!(next, process);
    let mut server = server;
    server.daemon.kill();
    let is_gone = || (!Path::new(&format!("/proc/{next}")).exists()).then_some(());
    wait_for("the end of the query process", SOON, is_gone);
}

#[test]
fn statements_see_what_was_committed_before_them() {
    let server = Server::start();
    let header = "JobID|User|Account|Partition|Submit|Eligible|Start|End|State|AllocTRES|NNodes|\
                  NCPUS|NodeList|ElapsedRaw";
    for count in 1..=5 {
        let line = format!(
            "{count}|alice|a|gpu|2026-10-01T10:00:00|2026-10-01T10:00:00|2026-10-01T10:01:00|\
             2026-10-01T12:01:00|COMPLETED|cpu=8,node=1|1|8|n1|7200"
        );
        server.takt.file("jobs.txt", format!("{header}\n{line}\n"));
        let zone = ["--timezone", "UTC", "--cluster", "lab"];
        server
            .takt
            .run(["import", "sacct", "jobs.txt"].iter().chain(&zone))
            .ok();
        // The query process has the files open all the time, and must not answer from an older
        // state.
        let found = server.over_http("SELECT count(*) AS n FROM jobs").unwrap();
        assert_eq!(found, format!("n\n{count}\n"));
    }
}
