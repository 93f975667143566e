//! A reader of the lake that knows nothing of Takt: delta-rs in a process of its own.

use crate::support::{Skip, cache};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Tables that the records of the tests fill.
pub const TABLES: [&str; 2] = ["job_runs", "usage"];

/// The folder `name` of the engines that `scripts/lake-engines.sh` installs, if it is complete.
pub fn engine(name: &str) -> Option<PathBuf> {
    let folder = cache()?.join(name);
    folder.join("complete").exists().then_some(folder)
}

/// The running reader.
pub struct Reader {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Reader {
    /// Starts a reader of the lake at an address, with the keys of its S3 in the environment.
    pub fn start(lake: &str, environment: &[(&str, &str)]) -> Result<Self, Skip> {
        let folder =
            engine("lake-venv").ok_or_else(|| Skip("needs scripts/lake-engines.sh".to_owned()))?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/whole/lake_reader.py");
        let mut process = Command::new(folder.join("bin/python"))
            .arg(script)
            .arg(lake)
            .args(TABLES)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Ok(Self {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()),
            process,
        })
    }

    /// The rows of each table as texts; `null` without a table.
    pub fn read(&mut self) -> Value {
        self.input.write_all(b"\n").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).expect("the reader's own error is above")
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Checks that each table is the one before a round, or the one after it. A table that the round creates
/// may be empty. Returns how many tables were the new ones.
pub fn check_whole(before: &Value, seen: &Value, after: &Value, step: &str) -> usize {
    let mut new_tables = 0;
    for table in TABLES {
        let old = &before[table];
        let seen = &seen[table];
        let new = &after[table];
        assert_ne!(old, new, "{step}: the round changes nothing in {table}");
        let is_created = old.is_null() && *seen == serde_json::json!([]);
        assert!(
            is_created || [old, new].contains(&seen),
            "{step}: {table} is neither the old nor the new one: {old} {seen} {new}"
        );
        new_tables += usize::from(seen == new);
    }
    new_tables
}
