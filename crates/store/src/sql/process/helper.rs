//! The query process: `takt sql-process`, which only a server starts.
//!
//! The process holds copies of the databases and all views, and has one thread. For each statement
//! it forks: the new process sees the same data at once, and its memory and time have limits that
//! the kernel enforces. It ends with its statement.

use super::super::session::Session;
use super::super::{Cancel, Limits, ResultSet, SqlError};
use super::remote;
use super::wire::{self, Failure, Follow, Kind, Message, Outcome, Statement};
use crate::metric_views::MetricViews;
use crate::{StoreError, quoted};
use arrow_ipc::writer::StreamWriter;
use duckdb::arrow::error::ArrowError;
use duckdb::{Config, Connection};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Resource, Rlimit, Signal, getpid, getppid, getrlimit, set_parent_process_death_signal,
    setrlimit,
};
use rustix::{param, process};
use std::fs;
use std::io::{self, BufWriter, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// Memory of the query process for its copies, in bytes: the log of a database is replayed there.
const HELPER_MEMORY_BYTES: u64 = 512 << 20;

/// Address space of the query process, in bytes, several times what a large cluster needs. Beyond it, SQL is not
/// available, but the machine's memory is.
const HELPER_SPACE_BYTES: u64 = 4 << 30;

/// Address space of a statement besides its memory: stacks of threads and reserves of allocators.
const SLACK_BYTES: u64 = 512 << 20;

/// Time after a statement's limit at which the kernel ends its process.
const ALARM_GRACE: Duration = Duration::from_secs(3);

/// Priority of statements: the server's own work comes first.
const NICENESS: i32 = 5;

/// Serves requests until the other end of `control` is closed.
///
/// # Errors
/// If DuckDB or the control socket fails. The server then starts another process.
pub fn serve(control: OwnedFd) -> Result<(), SqlError> {
    let failed = |error: io::Error| SqlError::Unavailable(error.to_string());
    let control = UnixStream::from(control);
    // A lower priority is always permitted.
    let _ = process::nice(NICENESS);
    limit_space().map_err(failed)?;
    // SAFETY: sets no handler. The kernel forgets ended statement processes by itself (wait(2)).
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };

    let mut helper = Helper::open()?;
    while let Some((kind, socket)) = wire::receive(&control).map_err(failed)? {
        match kind {
            Kind::Follow => {
                let outcome = match helper.follow(&wire::read(&socket).map_err(failed)?) {
                    Ok(()) => Outcome::Following {
                        left_out: helper.metrics.left_out(),
                    },
                    Err(error) => Outcome::Failed(follow_failure(&error)),
                };
                wire::write(&socket, &outcome).map_err(failed)?;
            }
            Kind::Statement => helper.fork(socket).map_err(failed)?,
        }
    }
    Ok(())
}

/// Limits the address space of this process. Statements set limits of their own.
fn limit_space() -> io::Result<()> {
    // The other limit stays, since a statement's may be higher than this one.
    let maximum = getrlimit(Resource::As).maximum;
    let current = maximum.map_or(HELPER_SPACE_BYTES, |most| most.min(HELPER_SPACE_BYTES));
    let space = Rlimit {
        current: Some(current),
        maximum,
    };
    Ok(setrlimit(Resource::As, space)?)
}

/// Returns why copies cannot be attached.
fn follow_failure(error: &SqlError) -> Failure {
    match Failure::of(error) {
        Failure::Other(text) if text.contains("bad_alloc") || text.contains("Out of Memory") => {
            Failure::Other(format!(
                "the query process needs more than {} MiB for its copies, or {} GiB in all: too many series or records \
                 are stored ({text})",
                HELPER_MEMORY_BYTES >> 20,
                HELPER_SPACE_BYTES >> 30,
            ))
        }
        failure => failure,
    }
}

struct Helper {
    db: Connection,
    metrics: MetricViews,
    has_views: bool,
}

impl Helper {
    fn open() -> Result<Self, SqlError> {
        let opened = || -> Result<Connection, duckdb::Error> {
            let config = Config::default()
                .enable_autoload_extension(false)?
                .max_memory(&format!("{HELPER_MEMORY_BYTES}B"))?
                // A process with one thread can fork without harm.
                .threads(1)?;
            let db = Connection::open_in_memory_with_flags(config)?;
            db.execute_batch("SET parquet_metadata_cache = true")?;
            Ok(db)
        };

        let db = opened().map_err(StoreError::sql("start the query process"))?;
        remote::register(&db)?;
        Ok(Self {
            db,
            metrics: MetricViews::default(),
            has_views: false,
        })
    }

    fn follow(&mut self, asked: &Follow) -> Result<(), SqlError> {
        let mut sql = String::from("USE memory;");
        for (catalog, path) in &asked.databases {
            let path = quoted(&path.to_string_lossy());
            sql += &format!(
                "DETACH DATABASE IF EXISTS {catalog}; ATTACH {path} AS {catalog} (READ_ONLY);"
            );
        }
        sql += asked.views.as_deref().unwrap_or_default();

        if !self.has_views {
            sql += include_str!("../../views.sql");
            sql += include_str!("../../postgres.sql");
        }

        let failed = StoreError::sql("attach a copy of the databases");
        self.db.execute_batch(&sql).map_err(failed)?;
        self.has_views = true;
        self.metrics.follow(&self.db)?;
        Ok(())
    }

    /// Answers a statement in a process of its own.
    fn fork(&self, socket: UnixStream) -> io::Result<()> {
        let threads = fs::read_dir("/proc/self/task")?.count();
        if threads != 1 {
            return Err(io::Error::other(format!(
                "the query process has {threads} threads"
            )));
        }

        let parent = getpid();
        // SAFETY: this process has one thread, so no lock is held by a thread that the new process
        // lacks, and the new process may do anything (fork(2)).
        match unsafe { libc::fork() } {
            0 => {
                let run = AssertUnwindSafe(|| {
                    let _ = set_parent_process_death_signal(Some(Signal::KILL));
                    if getppid() == Some(parent) {
                        self.answer(&socket)
                    } else {
                        Ok(())
                    }
                });
                let is_done = matches!(catch_unwind(run), Ok(Ok(())));
                end(!is_done)
            }
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Runs a statement and writes its answer. Runs in the statement's process.
    fn answer(&self, socket: &UnixStream) -> io::Result<()> {
        let statement: Statement = wire::read(socket)?;
        limit_process(&statement)?;
        end_with_peer(socket.try_clone()?)?;
        remote::connect(socket.try_clone()?);

        let answer = self.confine(&statement).and_then(|db| run(db, &statement));
        let mut out = BufWriter::new(socket);
        let (outcome, rows) = match answer {
            Ok(Answer::Rows(rows)) => {
                let truncated = rows.truncated();
                (Outcome::Rows { truncated }, Some(rows))
            }
            Ok(Answer::Parameters(outcome)) => (outcome, None),
            Err(error) => (Outcome::Failed(Failure::of(&error)), None),
        };

        wire::write(&mut out, &Message::Outcome(outcome))?;
        if let Some(rows) = rows {
            write_rows(&mut out, &rows).map_err(io::Error::other)?;
        }

        out.flush()?;
        // The server need not wait until the kernel has freed this process's memory.
        socket.shutdown(Shutdown::Write)
    }

    /// Sets DuckDB's limits and returns a connection. Nothing can change them afterwards.
    fn confine(&self, statement: &Statement) -> Result<Connection, SqlError> {
        let path = |path: &PathBuf| quoted(&path.to_string_lossy());
        let memory = HELPER_MEMORY_BYTES + statement.memory_bytes / 4 * 3;
        let sql = format!(
            "SET threads = {}; SET memory_limit = '{memory}B'; SET temp_directory = {};
             SET max_temp_directory_size = '4GiB'; SET allowed_directories = [{}];
             SET enable_external_access = false; SET lock_configuration = true;",
            statement.threads,
            path(&statement.temporary),
            path(&statement.data),
        );
        let failed = || StoreError::sql("limit a statement");
        self.db.execute_batch(&sql).map_err(failed())?;
        Ok(self.db.try_clone().map_err(failed())?)
    }
}

enum Answer {
    Rows(ResultSet),
    Parameters(Outcome),
}

fn run(db: Connection, statement: &Statement) -> Result<Answer, SqlError> {
    let session = Session::open(db, statement.user.as_deref(), statement.is_admin)?;
    if statement.only_parameters {
        let types = session.parameter_types(&statement.sql)?;
        return Ok(Answer::Parameters(Outcome::Parameters(types)));
    }
    let limits = Limits {
        timeout: statement.timeout,
        max_rows: statement.max_rows,
        memory_bytes: statement.memory_bytes,
    };
    let rows = session.select(&statement.sql, limits, &Cancel::default())?;
    Ok(Answer::Rows(rows))
}

fn write_rows(out: impl Write, rows: &ResultSet) -> Result<(), ArrowError> {
    let mut writer = StreamWriter::try_new(out, rows.schema())?;
    for batch in rows.batches() {
        writer.write(batch)?;
    }
    writer.finish()
}

/// Limits this process: address space, time, core files. If the machine runs out of memory, the
/// kernel ends this process before others.
fn limit_process(statement: &Statement) -> io::Result<()> {
    drop(fs::write("/proc/self/oom_score_adj", "1000"));

    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm
        .split(' ')
        .next()
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);

    let used = pages * param::page_size() as u64;
    let address_space = used + statement.memory_bytes + SLACK_BYTES;
    let both = |bytes| Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };

    setrlimit(Resource::As, both(address_space))?;
    setrlimit(Resource::Core, both(0))?;

    let seconds = (statement.timeout + ALARM_GRACE).as_secs() + 1;
    // SAFETY: neither call takes a pointer. The default action of SIGALRM ends the process, whatever
    // its threads do (alarm(2), signal(7)). It is set here, because a program that ignores the signal
    // passes that on to the programs that it starts (execve(2)).
    unsafe {
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::alarm(u32::try_from(seconds).unwrap_or(u32::MAX));
    }
    Ok(())
}

/// Ends this process when the server closes its end of the socket: the statement was cancelled.
fn end_with_peer(socket: UnixStream) -> io::Result<()> {
    let watch = move || {
        let mut watched = [PollFd::new(&socket, PollFlags::RDHUP)];
        loop {
            match poll(&mut watched, None) {
                Ok(_) => end(true),
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    };
    thread::Builder::new().spawn(watch).map(drop)
}

/// Ends this process at once, without destructors: the data belong to the process it was forked
/// from.
fn end(is_failed: bool) -> ! {
    // SAFETY: ends the process and takes no pointer.
    unsafe { libc::_exit(i32::from(is_failed)) }
}
