//! The statements of Grafana's PostgreSQL source and of the boards, from pgx (which Grafana uses),
//! psycopg and pgjdbc. Each driver also does what programs usually do with it.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dashboards::{VALUES, statements};
use crate::sql_clients::{Server, python};
use crate::support::{Needed, Skip, need, need_file, need_program, or_skip};

const JDBC: &str = "/usr/share/java/postgresql.jar";

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// Builds the client with pgx in `folder`.
fn pgx(folder: &Path) -> Result<Command, Skip> {
    let go = need_program("go")?;
    let program = folder.join("pgx");
    let in_module = |arguments: &[&str]| {
        let mut command = Command::new(&go);
        command
            .args(arguments)
            .env("GOWORK", "off")
            .env("CGO_ENABLED", "0")
            .current_dir(clients().join("pgx"));
        command.output().unwrap()
    };
    if !in_module(&["mod", "download"]).status.success() {
        return Err(Skip("needs pgx; Go cannot fetch its module".to_owned()));
    }
    let built = in_module(&["build", "-o", program.to_str().unwrap(), "."]);
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    Ok(Command::new(program))
}

fn pgjdbc() -> Result<Command, Skip> {
    // Java runs a source file with its compiler.
    need(&[Needed {
        program: "javac",
        package: "default-jdk-headless",
    }])?;
    need_file(JDBC, "libpostgresql-jdbc-java")?;
    let mut command = Command::new(need_program("java")?);
    command.args(["-cp", JDBC]).arg(clients().join("Jdbc.java"));
    Ok(command)
}

fn psycopg() -> Result<Command, Skip> {
    python("psycopg", "python3-psycopg")?;
    let mut command = Command::new("/usr/bin/python3");
    command.arg(clients().join("board_statements.py"));
    Ok(command)
}

/// Statements of the boards and of the source's own macros, as Grafana sends them.
fn as_sent() -> Vec<String> {
    let of_boards = statements().into_iter().map(|query| {
        query
            .sent(&VALUES)
            .replace("$__timeFrom()", "'2026-09-30T22:00:00.123456789Z'")
            .replace("$__timeTo()", "'2026-10-31T23:00:00Z'")
    });
    let of_source = std::fs::read_to_string(clients().join("grafana.sql")).unwrap();
    let of_source = of_source
        .split("\n----\n")
        .filter_map(|block| block.split("\n=> ").next())
        .filter(|sql| sql.starts_with("SELECT") && !sql.contains(';'))
        .map(str::to_owned);
    of_boards.chain(of_source).collect()
}

/// The answers of a client to the statements in `file`.
fn answers(mut client: Command, server: &Server, file: &Path) -> Vec<Value> {
    let output = client
        .args(["127.0.0.1", &server.port.to_string()])
        .arg(file)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{client:?}: {stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let mut answers: Vec<Value> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect();
    // Rows of equal rank have no order.
    for answer in &mut answers {
        let rows = answer["rows"].as_array_mut().unwrap();
        rows.sort_by_cached_key(Value::to_string);
    }
    answers
}

#[test]
fn three_drivers_read_the_boards_alike() {
    let folder = tempfile::tempdir().unwrap();
    let clients = [
        ("psycopg", or_skip(psycopg())),
        ("pgx", or_skip(pgx(folder.path()))),
        ("pgjdbc", or_skip(pgjdbc())),
    ];
    if clients.iter().all(|(_, client)| client.is_none()) {
        return;
    }
    let server = Server::start(
        "[rates]\ncurrency = \"EUR\"\n[[rates.cards]]\nfrom = \"2026-01-01\"\ngpu_hour = 1.5\n\
         [[budgets]]\naccount = \"a\"\ngpu_hours = 100\n",
    );
    let sent = as_sent();
    let file = server
        .takt
        .file("statements.json", serde_json::to_string(&sent).unwrap());
    let mut first: Option<Vec<Value>> = None;
    for (name, client) in clients {
        let Some(client) = client else { continue };
        let found = answers(client, &server, &file);
        assert_eq!(found.len(), sent.len(), "{name}");
        let filled = found
            .iter()
            .filter(|answer| answer["rows"] != Value::Array(Vec::new()));
        assert!(filled.count() > 40, "{name}: most statements have no rows");
        let Some(first) = &first else {
            first = Some(found);
            continue;
        };
        for ((ours, theirs), sql) in first.iter().zip(&found).zip(&sent) {
            // pgx reads the columns with the first row.
            if name != "pgx" || ours["rows"][0].is_array() {
                assert_eq!(ours["columns"], theirs["columns"], "{name}: {sql}");
            }
            if name == "pgjdbc" {
                // It writes times and numbers in Java's form.
                let count = |answer: &Value| answer["rows"].as_array().unwrap().len();
                assert_eq!(count(ours), count(theirs), "{name}: {sql}");
            } else {
                assert_eq!(ours["rows"], theirs["rows"], "{name}: {sql}");
            }
        }
    }
}
