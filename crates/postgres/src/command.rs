//! Statements about the session, which DuckDB does not receive: transactions around reads, and
//! settings of drivers.

use super::token::{Kind, Token};

/// The command of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A query for DuckDB.
    Select,
    /// `BEGIN`.
    Begin,
    /// `COMMIT`, with the tag of the answer.
    Commit,
    /// `ROLLBACK`.
    Rollback,
    /// A command without effect on a session that only reads, with the tag of the answer.
    Accepted(&'static str),
    /// `SET name = value`; no value means the default.
    Set {
        /// Name of the setting, in lower case.
        name: String,
        /// Value without quotes.
        value: Option<String>,
    },
    /// `SHOW name`.
    Show(String),
    /// An unsupported command, by name.
    Refused(String),
}

/// Settings that Takt follows, and settings without effect on the answers.
const SETTINGS: &[&str] = &[
    "application_name",
    "bytea_output",
    "client_encoding",
    "client_min_messages",
    "datestyle",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "extra_float_digits",
    "idle_in_transaction_session_timeout",
    "intervalstyle",
    "lock_timeout",
    "search_path",
    "session characteristics",
    "standard_conforming_strings",
    "statement_timeout",
    "timezone",
    "transaction",
    "transaction_isolation",
    "transaction_read_only",
];

/// Commands that are rejected by name. DuckDB and the gate check all others.
const REFUSED: &[&str] = &[
    "alter",
    "analyze",
    "attach",
    "call",
    "checkpoint",
    "cluster",
    "comment",
    "copy",
    "create",
    "declare",
    "delete",
    "detach",
    "do",
    "drop",
    "execute",
    "export",
    "fetch",
    "force",
    "grant",
    "import",
    "insert",
    "install",
    "listen",
    "load",
    "lock",
    "merge",
    "move",
    "notify",
    "pragma",
    "prepare",
    "refresh",
    "reindex",
    "revoke",
    "truncate",
    "update",
    "use",
    "vacuum",
];

/// Answers of `SHOW` for settings without a value.
pub const DEFAULTS: &[(&str, &str)] = &[
    ("client_encoding", "UTF8"),
    ("datestyle", "ISO, MDY"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "on"),
    ("extra_float_digits", "1"),
    ("integer_datetimes", "on"),
    ("intervalstyle", "postgres"),
    ("is_superuser", "off"),
    ("max_identifier_length", "63"),
    ("search_path", "\"$user\", public, metrics"),
    ("server_encoding", "UTF8"),
    ("server_version", super::SERVER_VERSION),
    ("server_version_num", "160000"),
    ("standard_conforming_strings", "on"),
    ("statement_timeout", "0"),
    ("timezone", "UTC"),
    ("transaction isolation level", "read committed"),
    ("transaction_isolation", "read committed"),
    ("transaction_read_only", "on"),
];

/// Returns the command of a statement.
pub fn command(statement: &[Token<'_>]) -> Command {
    // Drivers put comments before their statements, such as the name of an application.
    let words: Vec<Token<'_>> = statement
        .iter()
        .filter(|token| token.kind != Kind::Space)
        .copied()
        .collect();

    let first = words
        .first()
        .map(|word| word.text.to_ascii_lowercase())
        .unwrap_or_default();
    let second = |word: &str| words.get(1).is_some_and(|token| token.is(word));

    match first.as_str() {
        "begin" => Command::Begin,
        "start" if second("transaction") => Command::Begin,
        "commit" | "end" => Command::Commit,
        // Without writes, a savepoint holds nothing, so going back to one changes nothing.
        "rollback" if second("to") => Command::Accepted("ROLLBACK"),
        "rollback" | "abort" => Command::Rollback,
        "savepoint" => Command::Accepted("SAVEPOINT"),
        "release" => Command::Accepted("RELEASE"),
        "discard" => Command::Accepted("DISCARD ALL"),
        "deallocate" => Command::Accepted("DEALLOCATE"),
        "close" => Command::Accepted("CLOSE CURSOR"),
        "unlisten" => Command::Accepted("UNLISTEN"),
        "reset" => Command::Accepted("RESET"),
        "set" => set(&words[1..]),
        "show" if !is_about_tables(&words) => Command::Show(name_of(&words[1..])),
        word if REFUSED.contains(&word) => Command::Refused(first.to_ascii_uppercase()),
        // Also misspelt and unknown words: DuckDB's message about them is the best one.
        _ => Command::Select,
    }
}

/// Returns whether this is `SHOW TABLES` or a similar statement, which DuckDB answers.
fn is_about_tables(words: &[Token<'_>]) -> bool {
    words.get(1).is_some_and(|word| {
        ["tables", "all", "databases", "columns"]
            .iter()
            .any(|kind| word.is(kind))
    }) && (words.len() <= 3 || words[1].is("columns"))
}

fn name_of(words: &[Token<'_>]) -> String {
    match words {
        [time, zone] if time.is("time") && zone.is("zone") => "timezone".to_owned(),
        _ => words
            .iter()
            .map(|word| word.text.trim_matches('"').to_ascii_lowercase())
            .collect::<Vec<_>>()
            .join(" "),
    }
}

/// Parses the words after `SET`.
fn set(words: &[Token<'_>]) -> Command {
    // `LOCAL` ends with the transaction. As nothing is written, clients set such values once a
    // session.
    let words = match words {
        [session, characteristics, ..]
            if session.is("session") && characteristics.is("characteristics") =>
        {
            return Command::Set {
                name: "session characteristics".to_owned(),
                value: None,
            };
        }
        [scope, rest @ ..] if scope.is("session") || scope.is("local") => rest,
        words => words,
    };

    let (name, value) = match words {
        // Isolation and access mode: all statements only read, whatever is set.
        [transaction, ..] if transaction.is("transaction") => return Command::Accepted("SET"),
        [names, rest @ ..] if names.is("names") => ("client_encoding".to_owned(), rest),
        [time, zone, rest @ ..] if time.is("time") && zone.is("zone") => {
            ("timezone".to_owned(), rest)
        }
        [name, to, rest @ ..] if to.is("=") || to.is("to") => {
            (name.text.trim_matches('"').to_ascii_lowercase(), rest)
        }
        _ => return Command::Refused("SET without a name and a value".to_owned()),
    };

    // To accept another setting would promise an effect that it does not have here.
    if !SETTINGS.contains(&name.as_str()) {
        return Command::Refused(format!("SET {name}"));
    }

    let value: String = value
        .iter()
        .map(|word| word.text.trim_matches('\'').trim_matches('"'))
        .collect();
    Command::Set {
        name,
        value: Some(value).filter(|value| !value.eq_ignore_ascii_case("default")),
    }
}

/// Returns the milliseconds of a `statement_timeout`: `5000`, `5s`, `2min`; `None` for 0 and
/// invalid values.
pub fn milliseconds(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let factor = match text[digits..].trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };

    text[..digits]
        .parse::<u64>()
        .ok()?
        .checked_mul(factor)
        .filter(|&n| n > 0)
}

#[cfg(test)]
mod tests {
    use super::super::token::tokens;
    use super::*;

    #[test]
    fn statements_of_drivers_are_accepted() {
        let set = |name: &str, value: &str| Command::Set {
            name: name.into(),
            value: Some(value.into()),
        };
        for (sql, meant) in [
            ("BEGIN READ ONLY", Command::Begin),
            (
                "start transaction isolation level serializable",
                Command::Begin,
            ),
            ("END", Command::Commit),
            ("ROLLBACK TO a", Command::Accepted("ROLLBACK")),
            ("SET extra_float_digits = 3", set("extra_float_digits", "3")),
            (
                "SET application_name TO 'Grafana'",
                set("application_name", "Grafana"),
            ),
            ("set time zone 'UTC'", set("timezone", "UTC")),
            (
                "SET SESSION statement_timeout = '5s'",
                set("statement_timeout", "5s"),
            ),
            (
                "SET datestyle TO DEFAULT",
                Command::Set {
                    name: "datestyle".into(),
                    value: None,
                },
            ),
            (
                "SHOW TRANSACTION ISOLATION LEVEL",
                Command::Show("transaction isolation level".into()),
            ),
            ("show time zone", Command::Show("timezone".into())),
            ("SHOW TABLES", Command::Select),
            ("/* x */ select 1", Command::Select),
            // Left to DuckDB, whose message names the mistake.
            ("SELEC 1", Command::Select),
            ("COPY jobs TO STDOUT", Command::Refused("COPY".into())),
            (
                "SET memory_limit = '1TB'",
                Command::Refused("SET memory_limit".into()),
            ),
            (
                "SET GLOBAL x = 1",
                Command::Refused("SET without a name and a value".into()),
            ),
            ("PRAGMA version", Command::Refused("PRAGMA".into())),
        ] {
            assert_eq!(command(&tokens(sql)), meant, "{sql}");
        }
    }

    #[test]
    fn a_timeout_has_a_unit() {
        assert_eq!(
            ["100", "5s", "2min", "0", "x"].map(milliseconds),
            [Some(100), Some(5000), Some(120_000), None, None]
        );
    }
}
