//! Receivers of alerts in a test: a stand-in for Slack (`slack.py`) and a real mail server
//! (`smtp.py`).

use super::process::{Daemon, wait_for};
use super::{Needed, Skip, need};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Debian's Python, which finds Debian's packages; `PATH` may name another one first.
const PYTHON: &str = "/usr/bin/python3";

const SOON: Duration = Duration::from_secs(120);

/// One of the two programs, and the messages that it has received.
pub struct Channel {
    pub port: u16,
    daemon: Option<Daemon>,
    taken: PathBuf,
    script: PathBuf,
    options: &'static [&'static str],
    directory: TempDir,
}

impl Channel {
    /// Starts the stand-in for Slack's Web API, webhooks and ntfy.
    pub fn slack() -> Result<Self, Skip> {
        need(&[Needed {
            program: "python3",
            package: "python3",
        }])?;
        Ok(Self::start("slack.py", &[]))
    }

    /// Starts the mail server, without TLS and authentication.
    pub fn smtp() -> Result<Self, Skip> {
        Self::smtp_with(&[])
    }

    /// As [`smtp`](Self::smtp), with further options of `smtp.py`.
    pub fn smtp_with(options: &'static [&'static str]) -> Result<Self, Skip> {
        need(&[Needed {
            program: "aiosmtpd",
            package: "python3-aiosmtpd",
        }])?;
        Ok(Self::start("smtp.py", options))
    }

    fn start(program: &str, options: &'static [&'static str]) -> Self {
        let directory = TempDir::with_prefix("takt-channel-").unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/whole/support")
            .join(program);
        let mut channel = Self {
            port: 0,
            daemon: None,
            taken: directory.path().join("taken"),
            script,
            options,
            directory,
        };
        channel.run();
        channel
    }

    /// Starts the program again on the same port.
    pub fn run(&mut self) {
        let log = self.directory.path().join("log");
        // Its first line is the port; a line of an earlier start must not be read.
        let _ = fs::remove_file(&log);
        let mut command = Command::new(PYTHON);
        command
            .arg(&self.script)
            .arg(&self.taken)
            .args(self.options)
            .args(["--port", &self.port.to_string()]);
        let mut daemon = Daemon::start("channel", command, &log);
        self.port = daemon.wait_until("listening", SOON, || {
            fs::read_to_string(&log)
                .ok()?
                .lines()
                .next()?
                .trim()
                .parse()
                .ok()
        });
        self.daemon = Some(daemon);
    }

    /// Stops the program: connections are refused from now on.
    pub fn stop(&mut self) {
        self.daemon = None;
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns all received messages in order; HTTP bodies are parsed if they are JSON.
    pub fn taken(&self) -> Vec<Value> {
        fs::read_to_string(&self.taken)
            .unwrap_or_default()
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .map(|mut one| {
                if let Some(body) = one["body"]
                    .as_str()
                    .and_then(|body| serde_json::from_str(body).ok())
                {
                    one["body"] = body;
                }
                one
            })
            .collect()
    }

    /// Waits until a path has received `count` requests, and returns them.
    pub fn wait(&self, path: &str, count: usize) -> Vec<Value> {
        let what = format!("{count} requests on {path}");
        wait_for(&what, SOON, || {
            let all: Vec<_> = self.on(path);
            (all.len() >= count).then_some(all)
        })
    }

    /// Returns the requests to a path that were answered with success.
    pub fn on(&self, path: &str) -> Vec<Value> {
        // Slack answers failures with status 200.
        let is_ok = |one: &Value| {
            one["status"] == 200
                && !one["answer"]
                    .as_str()
                    .unwrap_or_default()
                    .contains("\"ok\": false")
        };
        self.taken()
            .into_iter()
            .filter(|one| one["path"].as_str().is_some_and(|p| p.starts_with(path)) && is_ok(one))
            .collect()
    }

    /// Waits until an address has received `count` mails, and returns them.
    pub fn mails(&self, to: &str, count: usize) -> Vec<String> {
        wait_for(&format!("{count} mails to {to}"), SOON, || {
            let mails: Vec<String> = self
                .taken()
                .into_iter()
                .filter(|mail| mail["to"][0] == to)
                .map(|mail| mail["content"].as_str().unwrap().to_owned())
                .collect();
            (mails.len() >= count).then_some(mails)
        })
    }

    /// Sets the answers for the next requests; see `slack.py`.
    pub fn script(&self, path: &str, answers: Value) {
        let body = json!({"path": path, "answers": answers}).to_string();
        ureq::post(format!("{}/script", self.url()))
            .send(body)
            .unwrap();
    }
}
