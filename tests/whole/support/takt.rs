//! The `takt` program, each time in a directory of its own.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use super::process::Daemon;

/// A place to run `takt` in: an empty working directory and a data directory that does not exist
/// yet.
pub struct Takt {
    directory: TempDir,
    environment: Vec<(String, String)>,
}

/// What a command did.
#[derive(Debug)]
pub struct Run {
    /// The exit code; `None` where a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Takt {
    pub fn fresh() -> Self {
        Self {
            directory: TempDir::with_prefix("takt-test-").unwrap(),
            environment: Vec::new(),
        }
    }

    /// Adds variables to the environment of all commands, such as a Slurm lab's.
    pub fn with_environment(
        mut self,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        self.environment.extend(environment);
        self
    }

    /// The working directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn data_directory(&self) -> PathBuf {
        self.directory().join("takt-data")
    }

    /// Writes a file into the working directory and gives its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.directory().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The program with these arguments, for a test that runs it in its own way.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_takt"));
        // What the person who runs the tests has set is not the test's.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"TAKT_"))
        {
            command.env_remove(name);
        }
        command
            .args(arguments)
            .current_dir(self.directory())
            .env("TAKT_DATA_DIR", self.data_directory());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a command to its end.
    pub fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Run {
        self.run_with_input(arguments, b"")
    }

    /// Runs a command to its end with `input` as its standard input.
    pub fn run_with_input<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
        input: &[u8],
    ) -> Run {
        let mut command = self.command(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let output = std::thread::scope(|scope| {
            // A program that does not read its input to the end closes the pipe: no failure of the
            // test.
            scope.spawn(move || stdin.write_all(input));
            child.wait_with_output().unwrap()
        });
        Run::of(&output)
    }

    /// Starts a command that goes on, such as `serve`.
    pub fn start<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Daemon {
        Daemon::start(
            "takt",
            self.command(arguments),
            &self.directory().join("takt.log"),
        )
    }
}

impl Run {
    pub fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Standard output of a command that has to succeed.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(
            self.code,
            Some(0),
            "takt failed:\n{}{}",
            self.stdout,
            self.stderr
        );
        self.stdout
    }

    /// Standard error of a command that has to fail with this exit code and print nothing on
    /// standard output.
    #[track_caller]
    pub fn fails(self, code: i32) -> String {
        assert_eq!(
            (self.code, self.stdout.as_str()),
            (Some(code), ""),
            "{}",
            self.stderr
        );
        self.stderr
    }
}
