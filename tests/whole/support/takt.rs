//! The `takt` program in a fresh directory.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use super::process::Daemon;
use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::thread;

/// Returns the number that a statement counts in the tables of a data directory without a server. Users see
/// views only. The store itself is not opened, since it changes the umask of all tests.
pub fn count_stored(data_directory: &Path, sql: &str) -> u64 {
    let db = duckdb::Connection::open(data_directory.join("records.duckdb")).unwrap();
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Copies a program. A process of its own does it: a child of another test would hold a copy that this one
/// writes open, and nothing can run what is open for writing.
pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").args([from, to]).status().unwrap();
    assert!(status.success(), "cp {} {}", from.display(), to.display());
}

/// An empty working directory for `takt`, and a data directory that does not exist yet.
pub struct Takt {
    directory: TempDir,
    environment: Vec<(String, String)>,
}

/// Result of a command.
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

    /// Adds environment variables for all commands, such as those of a Slurm lab.
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

    /// Writes a file into the working directory and returns its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.directory().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Imports the output of `sacct --parsable2` as jobs of the cluster `lab` in UTC.
    pub fn import_sacct(&self, text: impl AsRef<[u8]>) {
        self.file("jobs.txt", text);
        let cluster = ["--timezone", "UTC", "--cluster", "lab"];
        self.run([&["import", "sacct", "jobs.txt"], &cluster[..]].concat())
            .ok();
    }

    /// Returns the command with these arguments, for a test that runs it by itself.
    pub fn command<A>(&self, arguments: impl IntoIterator<Item = A>) -> Command
    where
        A: AsRef<OsStr>,
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_takt"));

        // Settings of the person who runs the tests must not affect a test.
        for (name, _) in
            env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"TAKT_"))
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

    /// A copy of the program that every user can run: the build may be in a folder of root.
    pub fn readable_program(&self) -> PathBuf {
        let folder = self.directory().join("bin");
        let program = folder.join("takt");
        if program.exists() {
            return program;
        }

        let built = Path::new(env!("CARGO_BIN_EXE_takt"));
        fs::create_dir(&folder).unwrap();

        // A build with DuckDB compiled in has no library beside it.
        let library = built.with_file_name("libduckdb.so");
        for file in [built, &library].into_iter().filter(|file| file.exists()) {
            copy_program(file, &folder.join(file.file_name().unwrap()));
        }
        // The umask of the one who runs the tests may be strict.
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        program
    }

    /// Runs a command to its end.
    pub fn run<A>(&self, arguments: impl IntoIterator<Item = A>) -> Run
    where
        A: AsRef<OsStr>,
    {
        self.run_with_input(arguments, b"")
    }

    /// Runs a command to its end with `input` as its standard input.
    pub fn run_with_input<A>(&self, arguments: impl IntoIterator<Item = A>, input: &[u8]) -> Run
    where
        A: AsRef<OsStr>,
    {
        let mut command = self.command(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();

        // Written on a thread: a program that prints before it has read everything would block
        // both.
        let mut stdin = child.stdin.take().unwrap();
        let output = thread::scope(|scope| {
            // A program that does not read all its input closes the pipe; that does not fail the
            // test.
            scope.spawn(move || stdin.write_all(input));
            child.wait_with_output().unwrap()
        });
        Run::of(&output)
    }

    /// Starts a long-running command, such as `serve`.
    pub fn start<A>(&self, arguments: impl IntoIterator<Item = A>) -> Daemon
    where
        A: AsRef<OsStr>,
    {
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

    /// Returns the standard output; fails if the command failed.
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

    /// Returns the standard error; fails unless the exit code is this one and standard output is
    /// empty.
    #[track_caller]
    pub fn fails(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert_eq!(self.stdout.as_str(), "", "{}", self.stderr);
        self.stderr
    }
}
