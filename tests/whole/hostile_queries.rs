//! Hostile requests for series, and hostile clients of the SQL port: each is bounded, refused and
//! counted, and others are answered meanwhile.

use crate::support::process::{Daemon, free_port, http_get, http_get_with, http_post, wait_for};
use crate::support::takt::Takt;
use crate::support::{Needed, need, or_skip};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// Bytes that both kernels may hold of what a client has sent, and a little for the server.
const TAKEN_MAX: usize = 24 << 20;

/// A server without targets.
struct Server {
    takt: Takt,
    daemon: Daemon,
    url: String,
    sql: u16,
}

impl Server {
    fn start(more: &str) -> Self {
        let takt = Takt::fresh();
        let address = format!("127.0.0.1:{}", free_port());
        let sql = free_port();
        takt.file("passwords", "grafana:correct horse\nbob:battery staple\n");
        takt.file(
            "takt.toml",
            format!(
                "cluster = \"lab\"\njobs.poll = false\nserver.listen_address = \"{address}\"\n\
                 sql.listen_address = \"127.0.0.1:{sql}\"\n{more}"
            ),
        );
        let mut daemon = takt.start(["serve", "--config", "takt.toml"]);
        let url = format!("http://{address}");
        daemon.wait_until("having series", SOON, || {
            let query = [("match[]", "{__name__=~\"takt_.+\"}")];
            http_get_with(&format!("{url}/federate"), &query, &[])
                .ok()?
                .body
                .contains("takt_server_")
                .then_some(())
        });
        Self {
            takt,
            daemon,
            url,
            sql,
        }
    }

    fn metric(&self, line: &str) -> f64 {
        let page = http_get(&format!("{}/metrics", self.url)).unwrap().body;
        page.lines()
            .find_map(|found| found.strip_prefix(line))
            .unwrap_or_else(|| panic!("no {line} in {page}"))
            .trim()
            .parse()
            .unwrap()
    }

    /// Number of SQL connections that were closed for this reason.
    fn closed(&self, reason: &str) -> f64 {
        self.metric(&format!(
            "takt_sql_connections_closed_total{{reason=\"{reason}\"}}"
        ))
    }

    /// Fails unless the server answers as ever.
    fn assert_answers(&mut self) {
        assert_eq!(
            http_get(&format!("{}/-/healthy", self.url)).unwrap().status,
            200
        );
        let answer = self.takt.run(["sql", "--format", "csv", "SELECT 1 AS n"]);
        assert_eq!(answer.ok(), "n\n1\n");
        assert!(self.daemon.is_running());
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(("127.0.0.1", self.sql)).unwrap();
        client.set_read_timeout(Some(SOON)).unwrap();
        client.set_write_timeout(Some(SOON)).unwrap();
        client
    }
}

#[test]
fn hostile_selectors_are_refused_and_delay_nobody() {
    let mut server = Server::start("query.timeout_seconds = 2\n");
    let long = "a".repeat(20_000);
    let nested = format!("{{x=~\"{}a{}\"}}", "(".repeat(1000), "){9}".repeat(1000));
    for (selector, status) in [
        ("", 400),
        ("{}", 400),
        ("{__name__=~\".*\"}", 400),
        ("{__name__!=\"up\"}", 400),
        ("up{", 400),
        ("up{a=\"\\x00\n", 400),
        ("{\"", 400),
        ("up[5m]", 400),
        ("{x=~\"(a{1000}){1000}\"}", 400),
        ("{__name__=~\"[\"}", 400),
        (nested.as_str(), 400),
        (long.as_str(), 200),
        ("{__name__=~\"(?i)[\\\\w\\\\W]+\"}", 200),
        ("up\u{0}", 400),
    ] {
        let query = [("match[]", selector)];
        for path in ["/federate", "/api/v1/series", "/api/v1/labels"] {
            let page = http_get_with(&format!("{}{path}", server.url), &query, &[]).unwrap();
            let short: String = selector.chars().take(50).collect();
            assert_eq!(page.status, status, "{path} {short:?}: {}", page.body);
        }
    }

    // Many selectors in one request.
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let series = format!("{}/api/v1/series", server.url);
    let body = "match[]=a&".repeat(100_000);
    let page = http_post(&series, &form, body.as_bytes()).unwrap();
    assert_eq!(page.status, 400, "{}", page.body);
    assert!(
        page.body.contains("at most 1000 selectors"),
        "{}",
        page.body
    );

    // The most that are answered, by many clients at once: each ends at the time limit, and others
    // are answered meanwhile.
    let body: String = (0..1000)
        .map(|n| format!("match[]=%7B__name__%3D~%22.%2B%22%2Cx{n}%3D%22%22%7D&"))
        .collect();
    let answers = thread::scope(|threads| {
        let ask = || http_post(&series, &form, body.as_bytes()).unwrap();
        let asked: Vec<_> = (0..48).map(|_| threads.spawn(ask)).collect();
        while asked.iter().any(|one| !one.is_finished()) {
            let health = http_get(&format!("{}/-/healthy", server.url)).unwrap();
            assert_eq!(health.status, 200);
            thread::sleep(Duration::from_millis(50));
        }
        asked
            .into_iter()
            .map(|one| one.join().unwrap().status)
            .collect::<Vec<_>>()
    });
    assert!(
        answers.iter().all(|status| matches!(status, 200 | 503)),
        "{answers:?}"
    );
    server.assert_answers();
}

/// A message of PostgreSQL's protocol: a letter, if it has one, the length, and the content.
fn message(letter: &[u8], length: u32, content: &[u8]) -> Vec<u8> {
    [letter, &length.to_be_bytes(), content].concat()
}

fn startup(user: &str) -> Vec<u8> {
    let content = [b"\0\x03\0\0user\0", user.as_bytes(), b"\0\0"].concat();
    message(b"", content.len() as u32 + 4, &content)
}

/// Sends `first`, then zeros until the server goes away. Returns the number of zeros.
fn flood(mut client: TcpStream, first: &[u8]) -> usize {
    let mut sent = 0;
    let part = [0; 64 << 10];
    let mut written = client.write_all(first);
    while written.is_ok() && sent < 8 * TAKEN_MAX {
        written = client.write_all(&part);
        sent += part.len();
    }
    sent
}

/// Sends bytes, and reads until the server closes the connection.
fn answer_to(mut client: TcpStream, bytes: &[u8]) -> Vec<u8> {
    let _ = client.write_all(bytes);
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    loop {
        match client.read(&mut part) {
            Ok(count) if count > 0 => answer.extend_from_slice(&part[..count]),
            // A reset ends the connection, too; a timeout is a server that waits for ever.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                panic!(
                    "the connection stays open after {:?}",
                    &bytes[..bytes.len().min(40)]
                )
            }
            _ => return answer,
        }
    }
}

#[test]
fn huge_messages_to_the_sql_port_fill_no_memory() {
    const HUGE: u32 = 900 << 20;
    let mut server = Server::start("sql.password_file = \"passwords\"\n");

    // Before the login: the content of any message, and of the startup message.
    let after_startup = |letter: &[u8]| [startup("grafana"), message(letter, HUGE, b"")].concat();
    for first in [
        message(b"", HUGE, b"\0\x03\0\0"),
        after_startup(b"Q"),
        after_startup(b"P"),
        after_startup(b"p"),
        after_startup(b"d"),
    ] {
        let sent = flood(server.connect(), &first);
        assert!(sent < TAKEN_MAX, "{first:?}: {sent} bytes");
    }
    wait_for("the count of malformed messages", SOON, || {
        (server.closed("malformed") + server.closed("login_failed") >= 5.0).then_some(())
    });
    server.assert_answers();
    drop(server);

    // After the login, which needs no password here.
    let mut server = Server::start("");
    for letter in [b"Q", b"P", b"B"] {
        let first = [startup("alice"), message(letter, HUGE, b"")].concat();
        let sent = flood(server.connect(), &first);
        assert!(sent < 3 * TAKEN_MAX, "{sent} bytes");
    }
    wait_for("the count of malformed messages", SOON, || {
        (server.closed("malformed") >= 3.0).then_some(())
    });
    server.assert_answers();
    assert!(server.daemon.log().contains("closed a SQL connection"));
}

#[test]
fn malformed_messages_to_the_sql_port_end_their_connection() {
    let mut server = Server::start("sql.password_file = \"passwords\"\n");
    let sasl = |mechanism: &str, length: u32, content: &str| {
        let body = [
            mechanism.as_bytes(),
            b"\0",
            &length.to_be_bytes(),
            content.as_bytes(),
        ]
        .concat();
        let sent = message(b"p", body.len() as u32 + 4, &body);
        [startup("grafana"), sent].concat()
    };
    let ssl = message(b"", 8, &80_877_103_u32.to_be_bytes());
    let cancel = message(
        b"",
        16,
        &[&80_877_102_u32.to_be_bytes()[..], &[7; 8]].concat(),
    );
    let attacks: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        vec![0xff; 64],
        vec![0; 64],
        // Lengths that are none, and a protocol of the future.
        message(b"", 0, b"\0\x03\0\0user\0a\0\0"),
        message(b"", 7, b"\0\x03\0\0user\0a\0\0"),
        message(b"", u32::MAX, b"\0\x03\0\0user\0a\0\0"),
        message(b"", 20, b"\0\x63\0\0user\0a\0\0\0\0\0"),
        message(b"", 13, b"\0\x03\0\0user\0"),
        message(b"", 9, b"\0\x03\0\0\0"),
        cancel,
        // TLS, which this server does not have: a request, then nothing but requests; and a handshake.
        [ssl.clone(), b"\x16\x03\x01\0\x05aaaaa".to_vec()].concat(),
        ssl.repeat(1000),
        b"\x16\x03\x01\0\x05\x01\0\0\x01\x03".to_vec(),
        // A login that is none.
        [startup("grafana"), message(b"Q", 13, b"SELECT 1\0")].concat(),
        [startup("grafana"), message(b"p", 4, b"")].concat(),
        [startup("grafana"), message(b"p", 0, b"")].concat(),
        [startup("grafana"), message(b"B", 8, b"\xff\xff\xff\xff")].concat(),
        sasl("SCRAM-SHA-256", 9, "n,,n=,r=x"),
        sasl("SCRAM-SHA-256", u32::MAX, ""),
        sasl("SCRAM-SHA-256", 5, "y,,n="),
        sasl("SCRAM-SHA-256", 3, "\u{fffd}"),
        sasl("SCRAM-SHA-256-PLUS", 9, "p=x,,n=,r=x"),
        sasl("PLAIN", 4, "\0a\0b"),
        sasl("", 0, ""),
        // Nothing, and half of a message: both lose their place.
        Vec::new(),
        startup("grafana")[..9].to_vec(),
    ];
    let count = attacks.len();
    let answers: Vec<Vec<u8>> = thread::scope(|threads| {
        let clients = attacks.iter().map(|attack| {
            let client = server.connect();
            threads.spawn(move || answer_to(client, attack))
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for (attack, answer) in attacks.iter().zip(&answers) {
        // No row, and no sign that the server is ready for a query.
        let is_in = answer.windows(6).any(|part| part == b"Z\0\0\0\x05I");
        assert!(
            !is_in && !answer.starts_with(b"R\0\0\0\x08\0\0\0\0"),
            "{attack:?}: {answer:?}"
        );
    }
    let counted = wait_for("the counts", SOON, || {
        (server.metric("takt_sql_connections ") == 0.0).then(|| {
            ["malformed", "login_failed", "login_timeout"].map(|reason| server.closed(reason))
        })
    });
    assert!(
        counted.iter().all(|count| *count >= 2.0),
        "{counted:?} of {count}"
    );
    let log = server.daemon.log();
    assert!(log.contains("closed a SQL connection"), "{log}");
    server.assert_answers();
}

#[test]
fn guessing_a_sql_password_is_limited() {
    let needed = need(&[Needed {
        program: "psql",
        package: "postgresql-client",
    }]);
    if or_skip(needed).is_none() {
        return;
    }
    let server = Server::start("sql.password_file = \"passwords\"\n");
    let ask = |user: &str, password: &str| {
        let target = format!("host=127.0.0.1 port={} dbname=takt user={user}", server.sql);
        let mut command = Command::new("psql");
        command.args(["-X", "-A", "-t", &target, "-c", "SELECT 1"]);
        let run = command.env("PGPASSWORD", password).output().unwrap();
        let said = [run.stdout, run.stderr].concat();
        String::from_utf8_lossy(&said).into_owned()
    };
    for guess in ["1", "2", "3", "4", "5"] {
        let said = ask("grafana", guess);
        assert!(said.contains("assword authentication failed"), "{said}");
    }
    let said = ask("grafana", "correct horse");
    assert!(said.contains("too many wrong passwords"), "{said}");
    assert_eq!(ask("bob", "battery staple"), "1\n");
    assert!(server.closed("login_failed") >= 6.0);
}
