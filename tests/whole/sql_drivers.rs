//! The statements of Grafana's PostgreSQL source and of the boards, from pgx (which Grafana uses),
//! psycopg and pgjdbc. Each driver also does what programs usually do with it.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dashboards::{VALUES, statements};
use crate::sql_clients::{Server, python};
use crate::support::{Needed, Skip, need, need_file, need_program, or_skip};
use std::fs;
use tempfile::tempdir;

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
            // A workspace of the one who runs the tests must not replace the pinned modules.
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
            // Grafana writes nanoseconds.
            .replace("$__timeFrom()", "'2026-09-30T22:00:00.123456789Z'")
            .replace("$__timeTo()", "'2026-10-31T23:00:00Z'")
    });
    let of_source = fs::read_to_string(clients().join("grafana.sql")).unwrap();
    let of_source = of_source
        .split("\n----\n")
        .filter_map(|block| block.split("\n=> ").next())
        .filter(|sql| sql.starts_with("SELECT") && !sql.contains(';'))
        .map(str::to_owned);
    of_boards.chain(of_source).collect()
}

/// The answers of a client to `statements`.
fn answers(client: &Command, server: &Server, statements: &[String]) -> Vec<Value> {
    let file = server.takt.file(
        "statements.json",
        serde_json::to_string(statements).unwrap(),
    );
    let output = Command::new(client.get_program())
        .args(client.get_args())
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
    assert_eq!(answers.len(), statements.len(), "{client:?}");

    // Rows of equal rank have no order.
    for answer in &mut answers {
        let rows = answer["rows"].as_array_mut().unwrap();
        rows.sort_by_cached_key(Value::to_string);
    }
    answers
}

/// Whether the client `name` answered as the first one did.
fn alike(name: &str, ours: &Value, theirs: &Value) -> bool {
    // pgx reads the columns with the first row.
    let columns_known = name != "pgx" || ours["rows"][0].is_array();
    if columns_known && ours["columns"] != theirs["columns"] {
        return false;
    }
    if name == "pgjdbc" {
        // It writes times and numbers in Java's form.
        let count = |answer: &Value| answer["rows"].as_array().unwrap().len();
        count(ours) == count(theirs)
    } else {
        ours["rows"] == theirs["rows"]
    }
}

#[test]
fn three_drivers_read_the_boards_alike() {
    let folder = tempdir().unwrap();
    let clients = [
        ("psycopg", or_skip(psycopg())),
        ("pgx", or_skip(pgx(folder.path()))),
        ("pgjdbc", or_skip(pgjdbc())),
    ];
    let clients: Vec<(&str, Command)> = clients
        .into_iter()
        .filter_map(|(name, client)| Some((name, client?)))
        .collect();
    let Some(((_, first), others)) = clients.split_first() else {
        return;
    };

    // Prices and budgets, so that the boards about them have rows.
    let server = Server::start(
        "[rates]\ncurrency = \"EUR\"\n[[rates.cards]]\nfrom = \"2026-01-01\"\ngpu_hour = 1.5\n\
         [[budgets]]\naccount = \"a\"\ngpu_hours = 100\n",
    );
    let sent = as_sent();
    let filled = answers(first, &server, &sent)
        .iter()
        .filter(|answer| answer["rows"] != Value::Array(Vec::new()))
        .count();
    assert!(filled > 40, "most statements have no rows");
    for (name, client) in others {
        // The server notes fair share and usage meanwhile, so what differs is asked again.
        let mut open = sent.clone();
        let mut differences = Vec::new();
        for _ in 0..3 {
            let ours = answers(first, &server, &open);
            let theirs = answers(client, &server, &open);
            (open, differences) = ours
                .iter()
                .zip(&theirs)
                .zip(open)
                .filter(|((ours, theirs), _)| !alike(name, ours, theirs))
                .map(|((ours, theirs), sql)| {
                    let difference = format!("{sql}: {ours} and {theirs}");
                    (sql, difference)
                })
                .unzip();
            if open.is_empty() {
                break;
            }
        }
        assert!(open.is_empty(), "{name}: {differences:#?}");
    }
}
