//! Runs the statements of users in processes of their own, so that none can stop the server.
//!
//! A `SELECT` can allocate gigabytes outside DuckDB's memory limit, and compute for minutes without
//! looking for an interrupt. Only the kernel can end that with certainty, and only for a process.
//! The *query process* ([`helper`]) holds copies of the databases ([`snapshot`]) and forks a
//! process for each statement. The server sends a statement, waits at most for the time limit, and
//! reads the rows. It never waits for a statement's process to end.
//!
//! Records are as fresh as in the server: each statement compares the files with the copies. Unsealed
//! samples come from the server while the statement runs ([`remote`]). New series appear after
//! [`SAMPLES_AGE`], or ten times the time that copying took.

mod helper;
mod places;
mod remote;
mod snapshot;
mod wire;

pub use helper::serve;

use super::client::Reader;
use super::session::MAX_ANSWER_BYTES;
use super::{Cancel, Limits, ResultSet, SqlError};
use crate::free_space::check_free_space;
use crate::layout::{Layout, remove_if_there};
use crate::metric_views::LISTED_METRICS;
use crate::unsealed::{SegmentScan, Unsealed};
use crate::{Database, HeldMemory, MemoryAccount, MemoryRefusal, MemoryUse};
use arrow_ipc::reader::StreamReader;
use places::Places;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use snapshot::{Copy, FileState};
use std::collections::HashMap;
use std::fs;
use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use takt_model::error_chain;
use wire::{Follow, Kind, Message, Outcome, Statement};

/// Directory of the copies and of temporary files, in the data directory.
const DIRECTORY: &str = "sql";

/// Minimum age of the copied series before they are copied again.
const SAMPLES_AGE: Duration = Duration::from_secs(1);

/// Copying series takes at most one part in this many of the time.
const COPYING_SHARE: u32 = 10;

/// Time for a statement's process to end by itself after its limit.
const GRACE: Duration = Duration::from_secs(1);

/// Time limit for attaching copies.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(120);

/// Bytes of an answer that are read at once.
const READ_BYTES: usize = 64 << 10;

/// Memory that a statement holds before it runs, in bytes.
const LEAST_ANSWER_BYTES: u64 = 256 << 10;

/// Attempts to begin a statement.
const ATTEMPTS: u32 = 5;

/// Interval at which a waiting call looks whether it was cancelled.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// How to run the query process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessConfig {
    /// Makes the command that calls [`serve`] with its standard input.
    pub command: fn() -> Command,
    /// Threads of a statement.
    pub threads: u32,
    /// Free disk space that copies leave, in bytes.
    pub min_free_bytes: u64,
}

/// The query process of a database.
#[derive(Debug)]
pub(crate) struct QueryProcess {
    config: ProcessConfig,
    data: PathBuf,
    copies: Mutex<Copies>,
    places: Places,
    closed: AtomicBool,
    /// Whether the log says that not all metrics are listed.
    is_warned: AtomicBool,
    /// Number of the next directory for temporary files.
    next: AtomicU64,
}

/// A statement of a client.
struct Asked<'a> {
    reader: Reader<'a>,
    sql: &'a str,
    only_parameters: bool,
    limits: Limits,
}

/// The running process and what it has attached.
#[derive(Debug, Default)]
struct Copies {
    helper: Option<Helper>,
    /// Number of the next directory of copies.
    next: u64,
    records: Option<Copy>,
    samples: Option<Samples>,
}

#[derive(Debug)]
struct Samples {
    copy: Copy,
    /// Keeps the blocks that the views name.
    layout: Arc<Layout>,
    taken: Instant,
    /// Time that copying and attaching took.
    cost: Duration,
}

#[derive(Debug)]
struct Helper {
    child: Child,
    control: UnixStream,
}

impl Drop for Helper {
    /// Ends the process, and with it all statements (they ask the kernel for that).
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Whether samples that are still fresh enough may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freshness {
    Recent,
    Newest,
}

fn unavailable(error: impl ToString) -> SqlError {
    SqlError::Unavailable(error.to_string())
}

impl QueryProcess {
    /// Prepares the directory. The process starts with the first statement.
    pub fn new(data: &Path, config: ProcessConfig) -> io::Result<Self> {
        // Copies that an earlier server left have no process that reads them.
        remove_if_there(&data.join(DIRECTORY))?;
        Ok(Self {
            config,
            data: data.to_owned(),
            copies: Mutex::default(),
            places: Places::default(),
            closed: AtomicBool::new(false),
            is_warned: AtomicBool::new(false),
            next: AtomicU64::new(0),
        })
    }

    /// Ends the process and all statements. Later statements fail.
    pub fn close(&self) {
        // Closed first, so that no statement starts the process again.
        self.closed.store(true, Ordering::SeqCst);
        *self.copies() = Copies::default();
        drop(remove_if_there(&self.data.join(DIRECTORY)));
    }

    pub fn select(
        &self,
        database: &Database,
        reader: Reader<'_>,
        sql: &str,
        limits: Limits,
        cancel: &Cancel,
        memory: &MemoryAccount,
    ) -> Result<ResultSet, SqlError> {
        // Who waits for memory must not keep a place from others meanwhile.
        let held = memory
            .hold(MemoryUse::Answer, LEAST_ANSWER_BYTES)
            .map_err(SqlError::NoMemory)?;
        let asked = Asked {
            reader,
            sql,
            only_parameters: false,
            limits,
        };
        match self.ask(database, asked, cancel, memory, Some(held))? {
            (Outcome::Rows { .. }, Some(rows)) => Ok(rows),
            _ => Err(unavailable("unexpected answer of the query process")),
        }
    }

    pub fn parameter_types(
        &self,
        database: &Database,
        reader: Reader<'_>,
        sql: &str,
        limits: Limits,
        memory: &MemoryAccount,
    ) -> Result<HashMap<usize, String>, SqlError> {
        let cancel = Cancel::default();
        let asked = Asked {
            reader,
            sql,
            only_parameters: true,
            limits,
        };
        match self.ask(database, asked, &cancel, memory, None)? {
            (Outcome::Parameters(types), _) => Ok(types),
            _ => Err(unavailable("unexpected answer of the query process")),
        }
    }

    fn ask(
        &self,
        database: &Database,
        asked: Asked<'_>,
        cancel: &Cancel,
        memory: &MemoryAccount,
        mut held: Option<HeldMemory>,
    ) -> Result<(Outcome, Option<ResultSet>), SqlError> {
        let Asked {
            reader,
            sql,
            only_parameters,
            limits,
        } = asked;
        let _place = self.places.take(limits.timeout, cancel, memory)?;

        let name = format!("tmp-{}", self.next.fetch_add(1, Ordering::Relaxed));
        let temporary = TemporaryDirectory(self.data.join(DIRECTORY).join(name));

        let statement = Statement {
            user: reader.user.map(str::to_owned),
            is_admin: reader.is_admin,
            sql: sql.to_owned(),
            only_parameters,
            timeout: limits.timeout,
            max_rows: limits.max_rows,
            memory_bytes: limits.memory_bytes,
            threads: self.config.threads,
            data: self.data.clone(),
            temporary: temporary.0.clone(),
        };

        let answer = self.run(database, &statement, Freshness::Recent, cancel, &mut held);
        match answer {
            // The metric may be newer than the copies.
            Err(error) if error.is_unknown_name() => {
                self.run(database, &statement, Freshness::Newest, cancel, &mut held)
            }
            answer => answer,
        }
    }

    fn run(
        &self,
        database: &Database,
        statement: &Statement,
        freshness: Freshness,
        cancel: &Cancel,
        held: &mut Option<HeldMemory>,
    ) -> Result<(Outcome, Option<ResultSet>), SqlError> {
        let began = Instant::now();
        let (socket, _layout) = self.begin(database, freshness)?;

        // A process that does not read its request must not block this thread.
        let sent = socket
            .set_write_timeout(Some(statement.timeout + GRACE))
            .and_then(|()| wire::write(&socket, statement));

        let deadline = Instant::now() + statement.timeout + GRACE;
        let answer = sent.and_then(|()| {
            let mut answer = BufReader::new(Watched {
                socket: &socket,
                deadline,
                cancel,
                closed: &self.closed,
            });
            let outcome = serve_samples(&mut answer, &socket, database.unsealed())?;
            // The memory goes along with the rows. Without rows it stays for another attempt.
            let rows = match (&outcome, held.take()) {
                (Outcome::Rows { truncated }, Some(held)) => {
                    Some(read_rows(answer, *truncated, held)?)
                }
                (_, untouched) => {
                    *held = untouched;
                    None
                }
            };
            Ok((outcome, rows.transpose()))
        });

        match answer {
            Ok((Outcome::Failed(failure), _)) => Err(failure.into_error(statement.timeout)),
            Ok((outcome, rows)) => Ok((outcome, rows.map_err(SqlError::NoMemory)?)),
            // The end of the connection looks the same for each cause, so the causes are asked in turn.
            Err(_) if self.closed.load(Ordering::SeqCst) => Err(unavailable("the server stops")),
            Err(_) if cancel.asked() => Err(SqlError::Cancelled),
            Err(_) if began.elapsed() >= statement.timeout => {
                Err(SqlError::Timeout(statement.timeout))
            }
            Err(_) => Err(SqlError::ProcessEnded),
        }
    }

    /// Begins a request over current copies. Returns its socket, and the layout whose blocks must
    /// stay until the answer.
    fn begin(
        &self,
        database: &Database,
        freshness: Freshness,
    ) -> Result<(UnixStream, Option<Arc<Layout>>), SqlError> {
        let mut copies = self.copies();
        if self.closed.load(Ordering::SeqCst) {
            return Err(unavailable("the server stops"));
        }

        // The process may have ended, for instance for lack of memory, or the copy may have a block
        // that a checkpoint was writing, which its checksum shows: a new process starts.
        for attempt in 1..=ATTEMPTS {
            let begun = self
                .follow(&mut copies, database, freshness)
                .and_then(|helper| request(helper, Kind::Statement).map_err(unavailable));
            match begun {
                Ok(socket) => {
                    let layout = copies
                        .samples
                        .as_ref()
                        .map(|samples| Arc::clone(&samples.layout));
                    return Ok((socket, layout));
                }
                Err(error) => {
                    copies.helper = None;
                    if attempt == ATTEMPTS || self.closed.load(Ordering::SeqCst) {
                        tracing::error!(error = %error_chain(&error), "cannot run SQL statements");
                        return Err(error);
                    }
                    thread::sleep(LOOK_INTERVAL * attempt);
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    fn copies(&self) -> MutexGuard<'_, Copies> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the process if necessary, and attaches current copies.
    fn follow<'c>(
        &self,
        copies: &'c mut Copies,
        database: &Database,
        freshness: Freshness,
    ) -> Result<&'c Helper, SqlError> {
        let is_running = |helper: &mut Helper| matches!(helper.child.try_wait(), Ok(None));
        // A new process has nothing attached, so all copies are taken again.
        if !copies.helper.as_mut().is_some_and(is_running) {
            *copies = Copies {
                next: copies.next,
                ..Copies::default()
            };
            copies.helper = Some(self.start().map_err(unavailable)?);
        }

        let began = Instant::now();
        let asked = self.copy(copies, database, freshness)?;
        let helper = copies.helper.as_ref().expect("started above");

        if !asked.databases.is_empty() {
            let socket = request(helper, Kind::Follow).map_err(unavailable)?;
            wire::write(&socket, &asked).map_err(unavailable)?;
            let answer = wire::read(Watched {
                socket: &socket,
                deadline: Instant::now() + FOLLOW_TIMEOUT,
                cancel: &Cancel::default(),
                closed: &self.closed,
            });

            match answer.map_err(unavailable)? {
                Outcome::Following { left_out } => self.warn_of_left_out(left_out),
                Outcome::Failed(failure) => return Err(failure.into_error(FOLLOW_TIMEOUT)),
                _ => return Err(unavailable("unexpected answer of the query process")),
            }

            // The time for attaching counts, too, when the next copy is due.
            if let Some(samples) = &mut copies.samples {
                samples.cost = samples.cost.max(began.elapsed());
            }
        }
        Ok(helper)
    }

    /// Logs once that lists of tables are incomplete.
    fn warn_of_left_out(&self, left_out: usize) {
        if left_out > 0 && !self.is_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                listed = LISTED_METRICS,
                left_out,
                "SQL lists the oldest metrics only; statements can name all of them"
            );
        }
    }

    /// Copies the databases that changed. Older copies are removed: the process has them open.
    fn copy(
        &self,
        copies: &mut Copies,
        database: &Database,
        freshness: Freshness,
    ) -> Result<Follow, SqlError> {
        let mut asked = Follow::default();
        let failed = |error: io::Error| unavailable(format!("cannot copy the databases: {error}"));
        let directory = self.data.join(DIRECTORY).join(copies.next.to_string());
        let file = |name: &str| self.data.join(name);

        let records = file("records.duckdb");
        let state = FileState::read(&records).map_err(failed)?;
        if copies
            .records
            .as_ref()
            .is_none_or(|copy| copy.state != state)
        {
            self.prepare(&directory, &state)?;
            let copy = Copy::take(&records, &directory, copies.records.as_ref()).map_err(failed)?;
            asked
                .databases
                .push(("records".to_owned(), copy.path.clone()));
            copies.records = Some(copy);
        }

        let hot = file("hot.duckdb");
        let age = copies.samples.as_ref().map(|samples| {
            (
                samples.taken.elapsed(),
                SAMPLES_AGE.max(samples.cost * COPYING_SHARE),
            )
        });
        let is_fresh = age.is_some_and(|(age, most)| age < most && freshness == Freshness::Recent);
        let state = FileState::read(&hot).map_err(failed)?;
        let layout = database.layout();
        let is_same = |samples: &Samples| {
            samples.copy.state == state && Arc::ptr_eq(&samples.layout, &layout)
        };
        if !is_fresh && !copies.samples.as_ref().is_some_and(is_same) {
            self.prepare(&directory, &state)?;
            let samples = take_samples(&hot, &directory, database, copies.samples.as_ref())
                .map_err(failed)?;
            // The views name blocks, so they change only with the layout.
            let known = copies.samples.as_ref().map(|known| &known.layout);
            if known.is_none_or(|known| !Arc::ptr_eq(known, &samples.layout)) {
                asked.views = Some(samples.layout.views() + &samples.layout.read_footers());
            }
            asked
                .databases
                .push(("hot".to_owned(), samples.copy.path.clone()));
            copies.samples = Some(samples);
        }

        if !asked.databases.is_empty() {
            copies.next += 1;
            self.sweep(copies);
        }
        Ok(asked)
    }

    /// Makes a directory for copies, if the disk has space for them.
    fn prepare(&self, directory: &Path, state: &FileState) -> Result<(), SqlError> {
        // A copy can become as large as the files.
        check_free_space(
            &self.data,
            self.config.min_free_bytes.saturating_add(state.bytes()),
        )
        .map_err(|_| unavailable("the disk has too little free space"))?;
        fs::create_dir_all(directory).map_err(unavailable)
    }

    /// Removes copies that are no longer in use.
    fn sweep(&self, copies: &Copies) {
        let used = [
            copies.records.as_ref().map(|copy| &copy.path),
            copies.samples.as_ref().map(|samples| &samples.copy.path),
        ];
        for entry in fs::read_dir(self.data.join(DIRECTORY))
            .into_iter()
            .flatten()
            .flatten()
        {
            let is_used = used
                .iter()
                .flatten()
                .any(|path| path.starts_with(entry.path()));
            // Other directories have temporary files of running statements.
            let is_copy = entry.file_name().to_string_lossy().parse::<u64>().is_ok();
            if is_copy && !is_used {
                drop(remove_if_there(&entry.path()));
            }
        }
    }

    fn start(&self) -> io::Result<Helper> {
        let (control, theirs) = UnixStream::pair()?;
        let child = (self.config.command)()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            // With many threads, glibc would keep freed memory in an arena for each of them.
            .env("MALLOC_ARENA_MAX", "2")
            .spawn()?;
        tracing::debug!(pid = child.id(), "started the query process");
        Ok(Helper { child, control })
    }
}

impl Drop for QueryProcess {
    fn drop(&mut self) {
        self.close();
    }
}

/// Answers a statement's process that asks for unsealed samples, until it has an outcome.
fn serve_samples(
    mut messages: impl Read,
    socket: &UnixStream,
    unsealed: &Arc<Unsealed>,
) -> io::Result<Outcome> {
    let mut scans: HashMap<u32, SegmentScan> = HashMap::new();
    loop {
        let scan = match wire::read(&mut messages)? {
            Message::Outcome(outcome) => return Ok(outcome),
            Message::More { scan } => scan,
            Message::Scan { scan, arguments } => {
                if let Ok(opened) = SegmentScan::open(unsealed, &arguments) {
                    scans.insert(scan, opened);
                }
                scan
            }
        };
        let rows = scans.get_mut(&scan).map(SegmentScan::next);
        let rows = rows.and_then(|rows| {
            rows.inspect_err(|error| tracing::warn!(%error, "cannot read unsealed samples"))
                .ok()
        });
        wire::write_samples(socket, rows)?;
    }
}

/// Sends one end of a new socket with a request's kind. Returns the other end.
fn request(helper: &Helper, kind: Kind) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    wire::send(&helper.control, kind, &theirs)?;
    Ok(ours)
}

/// Copies the samples together with the layout that names their tables.
fn take_samples(
    hot: &Path,
    directory: &Path,
    database: &Database,
    earlier: Option<&Samples>,
) -> io::Result<Samples> {
    let taken = Instant::now();
    // If the layout changes while the file is copied, the two may not fit together.
    loop {
        let layout = database.layout();
        let copy = Copy::take(hot, directory, earlier.map(|samples| &samples.copy))?;
        if Arc::ptr_eq(&layout, &database.layout()) {
            return Ok(Samples {
                copy,
                layout,
                taken,
                cost: Duration::ZERO,
            });
        }
    }
}

/// Reads rows as they arrive, and holds memory for them before they are read.
///
/// # Errors
/// If they do not arrive. The inner error: if there is no memory.
fn read_rows(
    from: impl Read,
    truncated: bool,
    memory: HeldMemory,
) -> io::Result<Result<ResultSet, MemoryRefusal>> {
    // Arrow's format adds little to the values, whose size is limited.
    let counted = CountedReader {
        from: from.take(2 * MAX_ANSWER_BYTES as u64),
        read: 0,
        memory,
        refusal: None,
    };
    let mut reader = match StreamReader::try_new(counted, None) {
        Ok(reader) => reader,
        Err(error) => return Err(io::Error::other(error)),
    };
    let mut batches = Vec::new();
    while let Some(batch) = reader.next() {
        match (batch, reader.get_ref().refusal) {
            (Ok(batch), _) => batches.push(batch),
            (Err(_), Some(refusal)) => return Ok(Err(refusal)),
            (Err(error), None) => return Err(io::Error::other(error)),
        }
    }

    let schema = reader.schema();
    let memory = &mut reader.get_mut().memory;
    let memory = memory.split(memory.bytes());
    Ok(Ok(ResultSet::of(schema, batches, truncated, memory)))
}

/// A reader whose bytes take memory before they are read. The system gives a buffer its memory as it is filled.
struct CountedReader<R> {
    from: R,
    read: u64,
    memory: HeldMemory,
    refusal: Option<MemoryRefusal>,
}

impl<R> Read for CountedReader<R>
where
    R: Read,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Memory is taken for what arrives, not for the whole of a large buffer.
        let length = buffer.len().min(READ_BYTES);
        let most = self.read + length as u64;
        if let Err(refusal) = self
            .memory
            .try_grow(most.saturating_sub(self.memory.bytes()))
        {
            self.refusal = Some(refusal);
            return Err(io::Error::other(refusal));
        }

        let read = self.from.read(&mut buffer[..length])?;
        self.read += read as u64;
        Ok(read)
    }
}

/// A socket that is read until a deadline, a cancellation, or the end of the server.
struct Watched<'s> {
    socket: &'s UnixStream,
    deadline: Instant,
    cancel: &'s Cancel,
    closed: &'s AtomicBool,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // A cancellation has no file that could be waited for, so the waits are short.
        let interval = Timespec::try_from(LOOK_INTERVAL).expect("20 ms fit");
        loop {
            if Instant::now() >= self.deadline
                || self.cancel.asked()
                || self.closed.load(Ordering::SeqCst)
            {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut watched = [PollFd::new(self.socket, PollFlags::IN)];
            match poll(&mut watched, Some(&interval)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return self.socket.read(buffer),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A directory that is removed with its content.
struct TemporaryDirectory(PathBuf);

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        drop(remove_if_there(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryBudget;

    #[test]
    fn rows_take_memory_before_they_are_read() {
        let budget = MemoryBudget::of_bytes(2 << 20);
        let mut reader = CountedReader {
            from: io::repeat(0).take(16 << 20),
            read: 0,
            memory: budget.account("alice").holder(MemoryUse::Answer),
            refusal: None,
        };

        // A viewer may hold half of the budget, which is a sixteenth of these rows.
        let mut rows = vec![0; 16 << 20];
        assert!(reader.read_exact(&mut rows).is_err());
        assert!(reader.refusal.is_some());
        assert!(reader.read <= reader.memory.bytes() && reader.memory.bytes() <= 1 << 20);
        assert!(reader.read >= (1 << 20) - READ_BYTES as u64);
    }
}
