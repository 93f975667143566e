//! SQL over PostgreSQL's protocol, from the real psql and the real drivers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::process::{Daemon, free_port, http_get, wait_for};
use crate::support::takt::Takt;
use crate::support::{Needed, Skip, need, or_skip};
use std::fs;
use tempfile::tempdir;

const SOON: Duration = Duration::from_secs(60);

const JOBS: &str = "JobID|User|Account|Partition|Submit|Eligible|Start|End|State|AllocTRES|NNodes|NCPUS|NodeList|ElapsedRaw\n\
    1|alice|a|gpu|2026-10-01T10:00:00|2026-10-01T10:00:00|2026-10-01T10:01:00|2026-10-01T12:01:00|COMPLETED|cpu=8,gres/gpu=2,mem=64G,node=1|1|8|n1|7200\n\
    2|alice|a|gpu|2026-10-02T10:00:00|2026-10-02T10:00:00|2026-10-02T11:00:00|2026-10-02T12:00:00|FAILED|cpu=8,gres/gpu=1,mem=64G,node=1|1|8|n1|3600\n\
    3|bob|b|cpu|2026-10-03T10:00:00|2026-10-03T10:00:00|2026-10-03T10:00:10|2026-10-03T10:10:10|COMPLETED|cpu=4,mem=8G,node=1|1|4|n2|600\n";

/// A server with some jobs that scrapes one node.
pub struct Server {
    pub takt: Takt,
    daemon: Daemon,
    pub port: u16,
    _exporter: Daemon,
}

impl Server {
    /// Starts it with the lines `extra` in the section `[sql]`.
    pub fn start(extra: &str) -> Self {
        let takt = Takt::fresh();
        takt.file("jobs.txt", JOBS);
        takt.run([
            "import",
            "sacct",
            "jobs.txt",
            "--timezone",
            "Europe/Oslo",
            "--cluster",
            "lab",
        ])
        .ok();

        let exporter_address = format!("127.0.0.1:{}", free_port());
        let exporter = takt.start(["exporter", "--web.listen-address", &exporter_address]);
        let page = format!("127.0.0.1:{}", free_port());
        let port = free_port();
        takt.file(
            "takt.toml",
            format!(
                "cluster = \"lab\"\n[server]\nlisten_address = \"{page}\"\n[jobs]\npoll = false\n\
                 [scrape]\ninterval_seconds = 0.5\ntimeout_seconds = 0.5\n\
                 [[scrape.targets]]\naddress = \"{exporter_address}\"\nnode = \"n1\"\n\
                 [sql]\nlisten_address = \"127.0.0.1:{port}\"\n{extra}"
            ),
        );
        let mut daemon = takt.start(["serve", "--config", "takt.toml"]);
        daemon.wait_until("scraping", SOON, || {
            http_get(&format!("http://{page}/api/v1/query?query=node_load1"))
                .ok()?
                .body
                .contains("node_load1")
                .then_some(())
        });
        let server = Self {
            takt,
            daemon,
            port,
            _exporter: exporter,
        };

        // PromQL sees a sample at once, SQL with the next commit.
        let ask = ["sql", "SELECT 1 FROM node_load1 LIMIT 1", "--format", "csv"];
        wait_for("samples in SQL", SOON, || {
            server.takt.run(ask).stdout.contains("\n1").then_some(())
        });
        server
    }

    fn psql(&self, commands: &[&str]) -> Answer {
        self.psql_as("user=alice", None, commands)
    }

    /// `psql -c` for each command; `connection` is a libpq connection string.
    fn psql_as(&self, connection: &str, password: Option<&str>, commands: &[&str]) -> Answer {
        let mut command = Command::new("psql");
        command.args([
            "-X",
            "-A",
            "-t",
            &format!("host=127.0.0.1 port={} dbname=takt {connection}", self.port),
        ]);
        command
            .args(commands.iter().flat_map(|text| ["-c", text]))
            .stdin(Stdio::null());
        command
            // A password of the one who runs the tests must not help.
            .env_remove("PGPASSWORD")
            .envs(password.map(|password| ("PGPASSWORD", password)));
        let output = command.output().unwrap();
        Answer {
            ok: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    fn python(&self, script: &str, files: &[&str]) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
        let mut command = Command::new("/usr/bin/python3");
        command
            .arg(folder.join(script))
            .args(["127.0.0.1", &self.port.to_string()]);
        let output = command
            .args(files.iter().map(|file| folder.join(file)))
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr]
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .concat();
        assert!(output.status.success(), "{said}\n{}", self.daemon.log());
    }
}

struct Answer {
    ok: bool,
    stdout: String,
    stderr: String,
}

impl Answer {
    #[track_caller]
    fn ok(self) -> String {
        assert!(
            self.ok && self.stderr.is_empty(),
            "{}{}",
            self.stdout,
            self.stderr
        );
        self.stdout
    }

    #[track_caller]
    fn fails(self, said: &str) {
        assert!(
            !self.ok && self.stderr.contains(said),
            "expected {said:?}:\n{}{}",
            self.stdout,
            self.stderr
        );
    }
}

fn psql() -> Result<(), Skip> {
    need(&[Needed {
        program: "psql",
        package: "postgresql-client",
    }])
}

pub fn python(module: &'static str, package: &'static str) -> Result<(), Skip> {
    let known = Command::new("/usr/bin/python3")
        .args(["-c", &format!("import {module}")])
        .output();
    if known.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }

    // A name that no program has, so that the skip says which package is missing.
    need(&[Needed {
        program: "no-such-python-module",
        package,
    }])
}

#[test]
fn psql_shows_the_tables() {
    if or_skip(psql()).is_none() {
        return;
    }
    let server = Server::start("");
    let tables = server.psql(&["\\dt"]).ok();
    for table in ["jobs", "job_usage", "users", "nodes", "gpus", "samples"] {
        assert!(
            tables.contains(&format!("public|{table}|table|takt\n")),
            "{tables}"
        );
    }
    let columns = server.psql(&["\\d jobs"]).ok();
    assert!(
        columns.contains("submit_time|timestamp without time zone|||\n"),
        "{columns}"
    );
    assert!(columns.contains("gpus|bigint|||\n"), "{columns}");
    let metrics = server.psql(&["\\dv"]).ok();
    assert!(
        metrics.contains("metrics|node_load1|view|takt\n"),
        "{metrics}"
    );
    assert!(
        server
            .psql(&["\\d node_load1"])
            .ok()
            .contains("node|text|||\n")
    );
    // psql sends queries to the catalogue for these; an error in one of them would make it useless.
    for command in [
        "\\d",
        "\\d+ jobs",
        "\\dt+",
        "\\dn",
        "\\dn+",
        "\\l",
        "\\du",
        "\\dT",
        "\\df",
        "\\di",
        "\\ds",
        "\\dx",
        "\\conninfo",
    ] {
        let answer = server.psql(&[command]);
        assert!(
            answer.ok && !answer.stderr.contains("ERROR"),
            "{command}: {}",
            answer.stderr
        );
    }
    assert!(
        server
            .psql(&["\\d no_such_table"])
            .stderr
            .contains("Did not find any relation")
    );
    let answers = server.psql(&[
        "SELECT job_id, wait_seconds, run_seconds FROM jobs ORDER BY job_id LIMIT 1",
        "SELECT count(*) > 0 FROM node_load1 WHERE node = 'n1' AND ts > now() - INTERVAL 1 HOUR",
        "SELECT node, up FROM nodes",
        "EXPLAIN SELECT 1",
        "SHOW server_version",
        "BEGIN; SELECT 1; COMMIT",
    ]).ok();
    assert!(answers.starts_with("1|60|7200\nt\nn1|t\n"), "{answers}");
    assert!(answers.ends_with("16.0\nBEGIN\n1\nCOMMIT\n"), "{answers}");
}

#[test]
fn drivers_and_tools_work() {
    let needed = [
        python("psycopg", "python3-psycopg"),
        python("psycopg2", "python3-psycopg2"),
        python("asyncpg", "python3-asyncpg"),
        python("sqlalchemy", "python3-sqlalchemy"),
    ];
    if needed.into_iter().any(|needed| or_skip(needed).is_none()) {
        return;
    }
    let server = Server::start("");
    server.python("drivers.py", &[]);
    server.python(
        "statements.py",
        &["grafana.sql", "catalog.sql", "panels.sql"],
    );
}

/// Columns are in UTC. As PostgreSQL's `timestamp`, they would be taken for times on the zone's clocks.
#[test]
fn columns_in_a_time_zone_are_refused_with_advice() {
    if or_skip(psql()).is_none() {
        return;
    }
    let server = Server::start("");
    for statement in [
        "SELECT submit_time AT TIME ZONE 'Europe/Oslo' FROM jobs",
        "SELECT timezone('Europe/Oslo', submit_time) FROM jobs",
    ] {
        server
            .psql(&[statement])
            .fails("local_time(cluster, ts) gives the time on the cluster's clocks");
    }
    let day = "SELECT date_trunc('day', local_time(cluster, submit_time)) FROM jobs LIMIT 1";
    assert_eq!(server.psql(&[day]).ok(), "2026-10-01 00:00:00\n");
}

/// Statements that try to leave the sandbox, each with its error.
#[test]
fn statements_cannot_leave_the_sandbox() {
    if or_skip(psql()).is_none() {
        return;
    }
    let server = Server::start("timeout_seconds = 2\nmax_rows = 1000\nmemory_limit_mib = 512\n");
    let secret = server.takt.data_directory().join("secret.csv");
    fs::write(&secret, "key\nhunter2\n").unwrap();

    // Files of the data directory are the nearest prey: the process may open some of them.
    let folder = server.takt.data_directory();
    let folder = folder.to_str().unwrap();
    for attempt in [
        // Access to files.
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_csv('/etc/passwd')",
        &format!("SELECT * FROM read_csv('{folder}/secret.csv')"),
        &format!("SELECT * FROM '{folder}/secret.csv'"),
        &format!("SELECT * FROM \"{folder}/secret\".csv"),
        &format!("SELECT * FROM \"{folder}\".secret.csv"),
        &format!("SELECT * FROM public.\"{folder}/secret.csv\""),
        "SELECT * FROM glob('*')",
        "SELECT * FROM read_blob('takt.lock')",
        "SELECT * FROM read_parquet('x')",
        "SELECT * FROM parquet_metadata('x')",
        "SELECT * FROM sniff_csv('/etc/passwd')",
        "SELECT * FROM unnest([(SELECT content FROM read_text('/etc/passwd'))])",
        "WITH t AS MATERIALIZED (FROM read_text('/etc/passwd')) FROM t",
        "SELECT 1 WHERE EXISTS (FROM read_text('/etc/passwd'))",
        "SELECT * FROM jobs ORDER BY (SELECT max(content) FROM read_text('/etc/passwd'))",
        "EXPLAIN ANALYZE SELECT * FROM read_text('/etc/passwd')",
        "EXPLAIN ANALYZE SELECT * FROM samples",
        "SELECT * FROM duckdb_columns()",
        "SELECT * FROM records.jobs",
        "DESCRIBE SELECT * FROM read_csv('/etc/passwd')",
        "SUMMARIZE '/etc/passwd'",
        "PIVOT (FROM read_text('/etc/passwd')) ON filename USING count(*)",
        "COPY jobs TO '/tmp/takt-escape.csv'",
        "COPY jobs TO STDOUT",
        "COPY jobs FROM PROGRAM 'id'",
        "EXPORT DATABASE '/tmp/takt-escape'",
        "ATTACH '/tmp/takt-escape.db'",
        // Network and extensions.
        "SELECT * FROM 'https://example.org/x.csv'",
        "SELECT * FROM 's3://bucket/x.parquet'",
        "INSTALL httpfs",
        "LOAD httpfs",
        // Settings and secrets of the server.
        "SELECT * FROM duckdb_secrets()",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM duckdb_databases()",
        "SELECT * FROM which_secret('s3://x', 's3')",
        "SELECT getenv('HOME')",
        "SET memory_limit = '1TB'",
        "SET lock_configuration = false",
        "RESET ALL; SET enable_external_access = true",
        "PRAGMA database_list",
        "SELECT * FROM pragma_database_list()",
        "CALL pragma_version()",
        "CREATE SECRET (TYPE s3)",
        // Writes.
        "INSERT INTO records.jobs SELECT * FROM jobs",
        "DELETE FROM records.jobs",
        "UPDATE records.jobs SET \"user\" = 'x'",
        "DROP VIEW jobs",
        "CREATE TABLE t (a INT)",
        "CREATE TEMP MACRO now() AS 1",
        "WITH t AS (DELETE FROM records.jobs RETURNING *) SELECT * FROM t",
        "VACUUM",
        "CHECKPOINT",
        "FORCE CHECKPOINT",
        // Statements inside of statements.
        "SELECT * FROM query('DROP VIEW jobs')",
        "SELECT * FROM query_table('jobs')",
        "SELECT * FROM json_execute_serialized_sql('{}')",
        "SELECT 1; DROP VIEW jobs",
        "PREPARE p AS DROP VIEW jobs",
        "EXECUTE p",
        "DO $$ BEGIN END $$",
        "LISTEN x",
        // Limits of time, memory and rows.
        "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE (a.range * b.range) % 7 = 3",
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t",
        "SELECT * FROM range(1001)",
        "SELECT repeat('x', 4000000000)",
        "SELECT repeat('x', n) FROM range(4000000000, 4000000001) AS t(n)",
        "SELECT range(1000000000)",
        "SELECT lpad('', (SELECT 2000000000), 'x')",
        "SELECT printf('%1000000000d', 1)",
        "SELECT format('{:1000000000}', 1)",
        "SELECT list_resize([1], 1000000000)",
        "WITH RECURSIVE t AS (SELECT repeat('x', 1000000) AS s UNION ALL SELECT s || s FROM t) \
         SELECT max(len(s)) FROM t",
        "SELECT len(list(a.range)) FROM range(100000) a, range(100000) b",
    ] {
        let began = Instant::now();
        let answer = server.psql(&[attempt]);
        // A refusal, whether by the parser, the gate or a limit; the words are tested elsewhere.
        assert!(!answer.ok, "{attempt} was answered:\n{}", answer.stdout);
        assert!(
            !answer.stdout.contains("hunter2") && !answer.stdout.contains("root:"),
            "{attempt}: {}",
            answer.stdout
        );
        assert!(
            answer.stderr.contains("ERROR"),
            "{attempt} ended the connection:\n{}",
            answer.stderr
        );
        assert!(began.elapsed() < SOON, "{attempt} went on");
    }

    // After all of this the server answers, and nothing was changed.
    assert_eq!(server.psql(&["SELECT count(*) FROM jobs"]).ok(), "3\n");
    assert!(!Path::new("/tmp/takt-escape.csv").exists());
}

/// Creates a self-signed certificate for localhost and returns the paths of certificate and key.
fn certificate(folder: &Path) -> (PathBuf, PathBuf) {
    let cert = folder.join("cert.pem");
    let key = folder.join("key.pem");
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]);
    command
        .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .arg("-out")
        .arg(&cert);
    let output = command.arg("-keyout").arg(&key).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    (cert, key)
}

#[test]
fn passwords_and_tls() {
    let needed = psql().and_then(|()| {
        need(&[Needed {
            program: "openssl",
            package: "openssl",
        }])
    });
    if or_skip(needed).is_none() {
        return;
    }
    let folder = tempdir().unwrap();
    let (cert, key) = certificate(folder.path());
    let passwords = folder.path().join("passwords");
    fs::write(&passwords, "# dashboards\ngrafana:correct horse\n").unwrap();
    let server = Server::start(&format!(
        "password_file = \"{}\"\ntls_cert_file = \"{}\"\ntls_key_file = \"{}\"\n",
        passwords.display(),
        cert.display(),
        key.display()
    ));

    // Without TLS, with TLS, and with the certificate verified.
    let ask =
        |connection: &str, password| server.psql_as(connection, password, &["SELECT current_user"]);
    for connection in [
        "user=grafana sslmode=disable",
        "user=grafana sslmode=require channel_binding=require",
        &format!(
            "user=grafana sslmode=verify-full sslrootcert={}",
            cert.display()
        ),
    ] {
        assert_eq!(
            ask(connection, Some("correct horse")).ok(),
            "grafana\n",
            "{connection}"
        );
    }
    ask("user=grafana", Some("correct hors")).fails("assword authentication failed");
    // An unknown user gets the same answer as a wrong password.
    ask("user=nobody", Some("correct horse")).fails("assword authentication failed");
    ask("user=grafana passfile=/dev/null", Some("")).fails("no password supplied");
    let in_sight = server
        .psql_as(
            "user=grafana sslmode=require",
            Some("correct horse"),
            &["\\conninfo"],
        )
        .ok();
    assert!(in_sight.contains("TLSv1.3"), "{in_sight}");

    // Replaced files take effect for the next client without a restart.
    let renewed = tempdir().unwrap();
    let (new_cert, new_key) = certificate(renewed.path());
    let verified = |cert: &Path| {
        let connection = format!(
            "user=grafana sslmode=verify-full sslrootcert={}",
            cert.display()
        );
        ask(&connection, Some("correct horse"))
    };
    let old_cert = renewed.path().join("old.pem");
    fs::copy(&cert, &old_cert).unwrap();
    fs::copy(&new_cert, &cert).unwrap();

    // The new certificate does not fit the old key, so the previous pair stays in use.
    assert_eq!(verified(&old_cert).ok(), "grafana\n");
    fs::copy(&new_key, &key).unwrap();
    assert_eq!(verified(&new_cert).ok(), "grafana\n");
    verified(&old_cert).fails("certificate verify failed");
    assert_eq!(
        ask(
            "user=grafana channel_binding=require",
            Some("correct horse")
        )
        .ok(),
        "grafana\n"
    );
    fs::write(&passwords, "grafana:battery staple\n").unwrap();
    ask("user=grafana", Some("correct horse")).fails("assword authentication failed");
    // A file with a mistake does not lock everybody out.
    fs::write(&passwords, "no password\n").unwrap();
    assert_eq!(
        ask("user=grafana", Some("battery staple")).ok(),
        "grafana\n"
    );
}

const ENDLESS: &str =
    "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE (a.range * b.range) % 7 = 3";

#[test]
fn a_statement_ends_when_cancelled_or_when_its_client_is_gone() {
    if or_skip(python("psycopg", "python3-psycopg")).is_none() {
        return;
    }
    let server = Server::start("timeout_seconds = 600\n");
    // psycopg cancels over a connection of its own, once a simple statement and once one with a
    // parameter.
    let script = format!(
        "import psycopg, threading, sys\n\
         for sql, given in [({ENDLESS:?}, None), ({ENDLESS:?}.replace('%', '%%') + ' + %s', \
         (1,))]:\n\
         \x20   c = psycopg.connect('host=127.0.0.1 port={port} user=alice dbname=takt')\n\
         \x20   t = threading.Timer(1, c.cancel); t.start()\n\
         \x20   try: c.execute(sql, given); sys.exit('answered')\n\
         \x20   except psycopg.errors.QueryCanceled: c.rollback()\n\
         \x20   assert c.execute('SELECT 1').fetchone() == (1,)\n\
         c = psycopg.connect('host=127.0.0.1 port={port} user=alice dbname=takt')\n\
         c.execute(\"SET statement_timeout = '300ms'\")\n\
         try: c.execute({ENDLESS:?}); sys.exit('answered')\n\
         except psycopg.errors.QueryCanceled: pass\n",
        port = server.port
    );
    let output = Command::new("/usr/bin/python3")
        .args(["-c", &script])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    // A client that disconnects without ending its session.
    let mut client = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let startup = b"\0\x03\0\0user\0alice\0\0";
    client
        .write_all(&(startup.len() as u32 + 4).to_be_bytes())
        .unwrap();
    client.write_all(startup).unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"Z\0\0\0\x05I") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
    client.write_all(b"Q").unwrap();
    client
        .write_all(&(ENDLESS.len() as u32 + 5).to_be_bytes())
        .unwrap();
    client
        .write_all(&[ENDLESS.as_bytes(), b"\0"].concat())
        .unwrap();
    // The query process, and the process of the statement.
    let processes = || server.daemon.descendants().len();
    wait_for("work", SOON, || (processes() == 2).then_some(()));
    drop(client);
    wait_for("the end of the work", SOON, || {
        (processes() == 1).then_some(())
    });
}

/// A client that has logged in and waits. It sends the startup message, and reads up to the end of
/// the answer, "ready for a query".
fn logged_in(port: u16) -> TcpStream {
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    let parameters = b"\0\x03\0\0user\0takt\0\0";
    let length = u32::try_from(parameters.len() + 4).unwrap();
    client.write_all(&length.to_be_bytes()).unwrap();
    client.write_all(parameters).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"Z\0\0\0\x05I") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        answer.extend(byte);
    }
    client
}

#[test]
fn clients_are_limited() {
    if or_skip(psql()).is_none() {
        return;
    }
    let server = Server::start("max_connections = 1\n");

    // The start has asked the server, too.
    let held = wait_for("a free place", SOON, || {
        std::panic::catch_unwind(|| logged_in(server.port)).ok()
    });

    let refused = server.psql(&["SELECT 1"]).stderr;
    assert!(refused.contains("too many clients already"), "{refused}");
    drop(held);
    wait_for("a place", SOON, || {
        server.psql(&["SELECT 1"]).ok.then_some(())
    });
}

/// Issue 28: 64 idle connections kept everybody from logging in.
#[test]
fn clients_that_do_not_log_in_keep_no_place_from_others() {
    let server = Server::start("max_connections = 4\n");
    let silent: Vec<_> = (0..200)
        .map(|_| TcpStream::connect(("127.0.0.1", server.port)).unwrap())
        .collect();
    let began = Instant::now();
    drop(logged_in(server.port));
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );

    // They are closed after the time for a login.
    for mut client in silent {
        client.set_read_timeout(Some(SOON)).unwrap();

        // A closed connection, or a broken one.
        assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
        assert!(began.elapsed() < SOON);
    }
}
