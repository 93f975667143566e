//! Clients that make the server hold memory: answers that they do not read, statements, pushed requests
//! of empty messages. The server stays within its budget, refuses the excess with a reason, and
//! answers others meanwhile.

use crate::support::process::{Daemon, free_port, http_get, http_post, wait_for};
use crate::support::takt::Takt;
use crate::support::target::{self, scrape_target};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(60);

/// How long unread answers take memory, at least.
const ATTACK: Duration = Duration::from_secs(10);

/// Until heavy answers are computed on a machine that runs other tests.
const PATIENCE: Duration = Duration::from_secs(180);

/// The budget of these tests, in MiB. One viewer has half of it.
const BUDGET_MIB: u64 = 128;

/// Memory beyond the server's own at rest and its budget, in MiB: what glibc's arenas, up to eight for
/// each core, keep of answers that have ended, the code that the attack uses, and one batch of rows of
/// each running statement.
const SLACK_MIB: u64 = 384;

const TOKEN: &str = "0123456789abcdef-attacker";

struct Server {
    daemon: Daemon,
    address: String,
    sql: u16,
    /// Resident memory before the attack, in MiB.
    at_rest: u64,
    takt: Takt,
}

impl Server {
    fn start() -> Self {
        Self::start_with(|_| String::new())
    }

    /// `prepare` returns more of the configuration.
    fn start_with(prepare: impl FnOnce(&Takt) -> String) -> Self {
        let takt = Takt::fresh();
        let settings = prepare(&takt);
        let address = format!("127.0.0.1:{}", free_port());
        let sql = free_port();
        takt.file("sender.token", TOKEN);
        takt.file(
            "takt.toml",
            format!(
                "cluster = \"lab\"\njobs.poll = false\nalerts.enabled = false\n\
                 server.listen_address = \"{address}\"\n\
                 server.memory_budget_mib = {BUDGET_MIB}\n\
                 sql.listen_address = \"127.0.0.1:{sql}\"\n\
                 [[push.senders]]\nname = \"one\"\ntoken_file = \"sender.token\"\n{settings}"
            ),
        );
        let mut daemon = takt.start(["serve", "--config", "takt.toml"]);
        let query = format!("http://{address}/api/v1/query?query=takt_server_connections");
        daemon.wait_until("having series", SOON, || {
            http_get(&query)
                .ok()?
                .body
                .contains("\"value\"")
                .then_some(())
        });
        let mut server = Self {
            daemon,
            address,
            sql,
            at_rest: 0,
            takt,
        };

        // The first statement starts the query process.
        server.answers_others();
        server.at_rest = server.status("VmHWM");
        server
    }

    /// A value of the kernel's status of the process, in MiB.
    fn status(&self, key: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.daemon.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let value = line.unwrap().trim_matches([':', ' ', '\t', 'k', 'B']);
        value.parse::<u64>().unwrap() >> 10
    }

    fn metric(&self, line: &str) -> f64 {
        let page = http_get(&format!("http://{}/metrics", self.address)).unwrap();
        let value = page.body.lines().find_map(|found| found.strip_prefix(line));
        value.map_or(0.0, |value| value.trim().parse().unwrap())
    }

    fn refused(&self, kind: &str) -> f64 {
        ["full", "share", "too_large"]
            .map(|reason| {
                self.metric(&format!(
                    "takt_server_memory_refused_total{{kind=\"{kind}\",reason=\"{reason}\"}}"
                ))
            })
            .iter()
            .sum()
    }

    /// Another viewer, whom the kernel names, asks in SQL and in PromQL.
    fn answers_others(&self) {
        let url = format!("http://{}", self.address);
        let page = http_post(&format!("{url}/api/takt/v1/sql"), &[], b"SELECT 42 AS n");
        let page = page.unwrap();
        assert_eq!(page.status, 200, "{}", page.body);
        assert!(page.body.contains("42"), "{}", page.body);
        let page = http_get(&format!("{url}/api/v1/query?query=vector(1)")).unwrap();
        assert_eq!(page.status, 200, "{}", page.body);
    }

    fn is_within_budget(&self, attack: &str) {
        let most = self.at_rest + BUDGET_MIB + SLACK_MIB;
        let peak = self.status("VmHWM");
        eprintln!("{attack}: {peak} MiB, {} at rest", self.at_rest);
        assert!(
            peak < most,
            "{attack}: {peak} MiB; expected less than {most}"
        );
    }

    /// Sends requests whose answers nobody reads. Some are answered, others refused, and others'
    /// questions answered meanwhile.
    fn are_refused_unread(&self, count: usize, request: &str) {
        let clients: Vec<TcpStream> = (0..count)
            .map(|_| {
                let mut client = TcpStream::connect(&self.address).unwrap();
                client.write_all(request.as_bytes()).unwrap();
                client.set_nonblocking(true).unwrap();
                client
            })
            .collect();

        let began = Instant::now();
        while began.elapsed() < ATTACK {
            self.answers_others();
            thread::sleep(Duration::from_millis(500));
        }

        wait_for("answers and refusals", PATIENCE, || {
            let statuses: Vec<[u8; 3]> = clients.iter().filter_map(status).collect();
            let strange = statuses.iter().find(|one| !matches!(*one, b"200" | b"503"));
            assert!(strange.is_none(), "{strange:?}");
            (statuses.contains(b"200") && statuses.contains(b"503")).then_some(())
        });
    }
}

/// The status of an answer, which stays unread. `None` until it has begun.
fn status(client: &TcpStream) -> Option<[u8; 3]> {
    let mut head = [0; 12];
    let arrived = client.peek(&mut head).ok()?;
    (arrived == head.len()).then(|| [head[9], head[10], head[11]])
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// `bytes` of `[tag, 0]` in messages with these tags.
fn empty_messages(bytes: usize, outer: &[u8], tag: u8) -> Vec<u8> {
    let begin = outer.iter().rev().fold(Vec::new(), |inner, tag| {
        let length = varint(bytes + inner.len());
        [vec![*tag], length, inner].concat()
    });
    [begin, [tag, 0].repeat(bytes / 2)].concat()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A message of [`empty_messages`] in snappy's block format: its begin, and copies of 64 bytes.
fn snappy(message: &[u8]) -> Vec<u8> {
    const BEGIN: usize = 128;
    let mut body = varint(message.len());
    body.push(61 << 2);
    body.extend((BEGIN as u16 - 1).to_le_bytes());
    body.extend(&message[..BEGIN]);
    for copied in message[BEGIN..].chunks(64) {
        body.push((copied.len() as u8 - 1) << 2 | 2);
        body.extend(64_u16.to_le_bytes());
    }
    body
}

#[test]
fn pushed_requests_of_empty_messages_take_no_memory() {
    const BYTES: usize = 60 << 20;
    let server = Server::start();
    let bearer = format!("Bearer {TOKEN}");
    let otlp = format!("http://{}/api/v1/otlp/v1/metrics", server.address);
    let write = format!("http://{}/api/v1/write", server.address);

    let json = [
        &b"{\"resourceMetrics\":["[..],
        &b"{},".repeat(BYTES / 3),
        b"{}]}",
    ]
    .concat();
    for (kind, message) in [
        ("application/x-protobuf", empty_messages(BYTES, &[], 10)),
        (
            "application/x-protobuf",
            empty_messages(BYTES, &[10, 18], 18),
        ),
        (
            "application/x-protobuf",
            empty_messages(BYTES, &[10, 18, 18, 42], 10),
        ),
        ("application/json", json),
    ] {
        let headers = [
            ("Content-Type", kind),
            ("Content-Encoding", "gzip"),
            ("Authorization", &bearer),
        ];
        let page = http_post(&otlp, &headers, &gzip(&message)).unwrap();
        assert_eq!(page.status, 413, "{}", page.body);
        assert!(page.body.contains("memory_budget_mib"), "{}", page.body);
        server.is_within_budget("OTLP");
    }

    let v2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
    for (kind, message) in [
        ("application/x-protobuf", empty_messages(BYTES, &[10], 18)),
        (v2, empty_messages(BYTES, &[], 34)),
        (v2, empty_messages(BYTES, &[42], 18)),
    ] {
        let headers = [
            ("Content-Type", kind),
            ("Content-Encoding", "snappy"),
            ("Authorization", &bearer),
        ];
        let page = http_post(&write, &headers, &snappy(&message)).unwrap();
        assert_eq!(page.status, 413, "{}", page.body);
        server.is_within_budget("remote write");
    }
    assert!(server.refused("push") >= 7.0);
    server.answers_others();
}

#[test]
fn answers_that_nobody_reads_stay_within_the_budget() {
    let server = Server::start();
    let token = [
        "token", "create", "attack", "--role", "viewer", "--user", "nobody",
    ];
    let token = server.takt.run(token).ok();
    let authorization = format!("Authorization: Bearer {}", token.trim());
    let statement = "SELECT repeat('x', 100000) AS x FROM range(100)";
    let request = format!(
        "POST /api/takt/v1/sql HTTP/1.1\r\nHost: x\r\n{authorization}\r\nContent-Type: text/plain\r\n\
         Content-Length: {}\r\n\r\n{statement}",
        statement.len()
    );
    server.are_refused_unread(120, &request);
    server.is_within_budget("unread SQL answers");

    // Others found no place among the statements that wait.
    assert!(server.refused("answer") + server.refused("query") > 0.0);

    // Each series has a value at each of 8,000 steps.
    let query = "last_over_time(%7B__name__%3D~%22takt_server_task_.%2B%22%7D%5B1d%5D)";
    let now = jiff::Timestamp::now().as_second();
    let request = format!(
        "GET /api/v1/query_range?query={query}&start={now}&end={}&step=1 HTTP/1.1\r\nHost: x\r\n\
         {authorization}\r\n\r\n",
        now + 7999
    );
    server.are_refused_unread(24, &request);
    server.is_within_budget("unread range queries");
    assert!(server.refused("query") + server.refused("answer") > 0.0);
    let held = server.metric("takt_server_memory_held_bytes{kind=\"answer\"}");
    assert!(held <= (BUDGET_MIB << 20) as f64);
}

/// A page of 50,000 series with long labels.
fn many_series(_: &str) -> target::Page {
    let text = "long ".repeat(40);
    let lines =
        (0..50_000).map(|number| format!("many{{number=\"{number}\",text=\"{text}\"}} 1\n"));
    ("text/plain; version=0.0.4", lines.collect())
}

#[test]
fn lists_of_all_series_stay_within_the_budget() {
    let target = scrape_target(many_series);
    let server = Server::start_with(|_| format!("[[scrape.targets]]\naddress = \"{target}\"\n"));
    let counted = format!("http://{}/api/v1/query?query=count(many)", server.address);
    wait_for("50,000 series", SOON, || {
        http_get(&counted)
            .ok()?
            .body
            .contains("\"50000\"")
            .then_some(())
    });

    let token = [
        "token", "create", "attack", "--role", "viewer", "--user", "nobody",
    ];
    let token = server.takt.run(token).ok();
    let path = "/api/v1/series?match%5B%5D=many";
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n",
        token.trim()
    );
    // Those that find no memory wait five seconds for it, one after another.
    server.are_refused_unread(20, &request);
    server.is_within_budget(path);
}

/// A year of jobs of a thousand users, each for a day and a half on one of a hundred nodes.
fn year_of_jobs() -> String {
    const HEADER: &str = "JobID|User|Account|Partition|Submit|Start|End|State|AllocTRES|NNodes|NCPUS|NodeList|ElapsedRaw";
    let first: jiff::Timestamp = "2025-01-01T00:00:00Z".parse().unwrap();
    let jobs = (0..20_000_i64).map(|at| {
        let start = first + jiff::SignedDuration::from_secs(at * 1577);
        let end = start + jiff::SignedDuration::from_hours(36);
        let [start, end] = [start, end].map(|at| at.strftime("%Y-%m-%dT%H:%M:%S").to_string());
        format!(
            "{}|u{}|a{}|gpu|{start}|{start}|{end}|COMPLETED|cpu=8,gres/gpu=1,mem=64G,node=1|1|8|g{}|129600",
            at + 1,
            at % 1000,
            at % 50,
            at % 100,
        )
    });
    [HEADER.to_owned()]
        .into_iter()
        .chain(jobs)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Six such questions took 7.7 GB, and went on after their clients had left and after SIGTERM.
#[test]
fn questions_about_centuries_stay_within_the_budget_and_end_with_the_server() {
    let mut server = Server::start_with(|takt| {
        takt.import_sacct(year_of_jobs());
        String::new()
    });
    let token = [
        "token", "create", "attack", "--role", "viewer", "--user", "nobody",
    ];
    let token = server.takt.run(token).ok();
    let paths = [
        "/api/takt/v1/report/usage?from=1950-01-01&to=2049-01-01&by=hour,user",
        "/api/takt/v1/report/usage?from=1950-01-01&to=2049-01-01&by=hour,user,node",
        "/api/takt/v1/report/sheets?from=1950-01-01&to=2049-01-01&everybody=true",
        "/api/takt/v1/report/sheets?from=1950-01-01&to=2049-01-01",
        "/api/takt/v1/capacity?from=2017-01-01&to=2026-12-31&days=true",
        "/people?from=1950-01-01&to=2049-01-01",
    ];
    let ask = |path: &&str| {
        let mut client = TcpStream::connect(&server.address).unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n",
            token.trim()
        );
        client.write_all(request.as_bytes()).unwrap();
        client.set_nonblocking(true).unwrap();
        client
    };

    let mut clients = Vec::new();
    let began = Instant::now();
    while began.elapsed() < ATTACK {
        // Those of the last round leave.
        clients = [paths; 2].iter().flatten().map(ask).collect();
        server.answers_others();
        thread::sleep(Duration::from_secs(1));
    }
    wait_for("all answers", PATIENCE, || {
        let statuses: Vec<[u8; 3]> = clients.iter().filter_map(status).collect();
        let strange = statuses
            .iter()
            .find(|one| !matches!(*one, b"200" | b"400" | b"422" | b"503"));
        assert!(strange.is_none(), "{strange:?}");
        (statuses.len() == clients.len()).then_some(())
    });
    server.is_within_budget("questions about centuries");

    let _asking: Vec<TcpStream> = [paths; 4].iter().flatten().map(ask).collect();
    wait_for("work", SOON, || (server.daemon.load() > 0.3).then_some(()));
    let status = server.daemon.stop();
    let log = server.daemon.log();
    assert!(status.success(), "{log}");
    assert!(!log.contains("a task still reads the store"), "{log}");
}

/// A message of PostgreSQL's protocol.
fn message(letter: &[u8], content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len() + 4).unwrap();
    [letter, &length.to_be_bytes(), content].concat()
}

fn connect(server: &Server) -> TcpStream {
    let mut client = TcpStream::connect(("127.0.0.1", server.sql)).unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    client
        .write_all(&message(b"", b"\0\x03\0\0user\0alice\0\0"))
        .unwrap();
    read_until_ready(&mut client);
    client
}

/// Reads messages until the server is ready. Returns them without their lengths, or what arrived
/// until the connection ended.
fn read_until_ready(client: &mut TcpStream) -> Vec<(u8, Vec<u8>)> {
    let mut found = Vec::new();
    let mut head = [0; 5];
    while client.read_exact(&mut head).is_ok() {
        let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize - 4;
        let mut content = vec![0; length];
        if client.read_exact(&mut content).is_err() {
            break;
        }
        if head[0] == b'D' {
            content.clear();
        }
        found.push((head[0], content));
        if head[0] == b'Z' {
            break;
        }
    }
    found
}

#[test]
fn statements_of_the_sql_port_stay_within_the_budget() {
    let server = Server::start();

    // Each result is sent before the next statement runs.
    let mut client = connect(&server);
    let statements = "SELECT repeat('x', 100000) FROM range(200);".repeat(80);
    client
        .write_all(&message(b"Q", format!("{statements}\0").as_bytes()))
        .unwrap();
    let count = read_until_ready(&mut client)
        .iter()
        .filter(|(letter, _)| *letter == b'C')
        .count();
    assert_eq!(count, 80);
    server.is_within_budget("80 statements in one message");

    // 15 MiB each, on two connections.
    let text = format!("SELECT '{}'\0\0\0", "x".repeat(15 << 20));
    let mut refusal = String::new();
    let mut clients = [connect(&server), connect(&server)];
    for at in 0..60 {
        let client = &mut clients[at % 2];
        let parse = message(b"P", format!("s{at}\0{text}").as_bytes());
        let sent = client
            .write_all(&parse)
            .and_then(|()| client.write_all(&message(b"S", b"")));
        let answers = read_until_ready(client);
        let is_prepared = answers.iter().any(|(letter, _)| *letter == b'1');
        if sent.is_err() || !is_prepared {
            let said = answers.iter().find(|(letter, _)| *letter == b'E');
            refusal = said.map_or_else(String::new, |(_, text)| {
                String::from_utf8_lossy(text).into_owned()
            });
            break;
        }
    }
    assert!(refusal.contains("53200"), "{refusal}");
    server.is_within_budget("prepared statements of 15 MiB");
    assert!(server.refused("statement") > 0.0);
    drop(clients);
    server.answers_others();
}
