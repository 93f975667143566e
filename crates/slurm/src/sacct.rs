//! Parser of `sacct -P`: a header and one row per line, with `|` between the fields.
//!
//! Columns may come in any order; unknown columns are ignored. Times are local without an offset,
//! seconds since 1970 (`SLURM_TIME_FORMAT=%s`), or have an offset.
//!
//! sacct neither quotes nor escapes: a job's name may contain delimiters and line feeds, and a name
//! such as `x⏎5|mallory|…` looks like a row of its own. No parser can tell it from one. Two things
//! can:
//!
//! - A delimiter that the writer of the name could not know (`--delimiter`). The poller draws one
//!   for each request and asks for one at the end of each row, too (`--parsable`), so that a row
//!   ends where its columns are complete, however many lines its texts have. The header shows the
//!   delimiter of a file.
//! - The columns. Without a column that users write, every row is Slurm's own.
//!
//! Rows of other files [may be forged](Reader::may_be_forged): they may add records, and may not
//! change those of finished runs. In these, surplus delimiters and the lines between two rows belong to
//! texts of users. Slurm's own columns have neither, so mostly one reading is left; a row with several is
//! set aside, with the rows that may be its end: [`DoubtedRun`].

mod layout;

use self::layout::{DEFAULT_DELIMITER, RowLayout, delimiter_of, is_secret};
use crate::lines::{self, Lines, LinesError, MAX_LINE_BYTES};
use crate::times::{RunTimes, WrittenTimes};
use crate::tres::{TresCounts, scaled};
use jiff::tz::TimeZone;
use std::collections::VecDeque;
use std::io::Read;
use takt_jobs::{Entry, JobRun, Reject, bounded, nodelist};

/// Maximum number of array tasks in one row: more than any site's `MaxArraySize`.
pub const MAX_TASKS: usize = 1_000_000;

/// Settings for facts that the text lacks.
#[derive(Debug, Clone)]
pub struct Options {
    /// Cluster of the jobs.
    pub cluster: Cluster,
    /// Time zone of timestamps without an offset.
    pub zone: TimeZone,
    /// Column names, for a text without a header.
    pub columns: Option<Vec<String>>,
}

/// Source of the cluster name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cluster {
    /// All jobs belong to this cluster, even if a `Cluster` column differs.
    Named(String),
    /// The `Cluster` column, or this name if the column is missing or empty.
    Column(String),
}

/// Error while reading sacct's output.
#[derive(Debug, thiserror::Error)]
pub enum SacctError {
    /// Reading failed.
    #[error(transparent)]
    Read(#[from] LinesError),
    /// The first line is not a header, or lacks a required column.
    #[error(
        "{name} is not what 'sacct -P' prints: expected a header with {missing}, found {found}"
    )]
    Header {
        /// File name.
        name: String,
        /// Missing columns.
        missing: String,
        /// Beginning of the line.
        found: String,
    },
}

/// Known columns. Slurm has several names for some of them.
const COLUMNS: &[(&str, Field)] = &[
    ("jobid", Field::JobId),
    ("jobidraw", Field::JobIdRaw),
    ("submit", Field::Submit),
    ("start", Field::Start),
    ("end", Field::End),
    ("state", Field::State),
    ("user", Field::User),
    ("account", Field::Account),
    ("partition", Field::Partition),
    ("qos", Field::Qos),
    ("jobname", Field::JobName),
    ("cluster", Field::Cluster),
    ("eligible", Field::Eligible),
    ("alloctres", Field::AllocTres),
    ("reqtres", Field::ReqTres),
    ("nnodes", Field::NNodes),
    ("allocnodes", Field::NNodes),
    ("ncpus", Field::NCpus),
    ("alloccpus", Field::NCpus),
    ("nodelist", Field::NodeList),
    ("elapsedraw", Field::ElapsedRaw),
    ("elapsed", Field::Elapsed),
    ("suspended", Field::Suspended),
    ("timelimitraw", Field::TimelimitRaw),
    ("timelimit", Field::Timelimit),
    ("exitcode", Field::ExitCode),
    ("sluid", Field::Sluid),
    ("originalsluid", Field::OriginalSluid),
    ("reservation", Field::Reservation),
];

/// Required columns: without them a run cannot be identified or charged.
const REQUIRED: &[(&str, Field)] = &[
    ("JobID", Field::JobId),
    ("User", Field::User),
    ("Submit", Field::Submit),
    ("Start", Field::Start),
    ("End", Field::End),
    ("State", Field::State),
];

/// A known column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    JobId,
    JobIdRaw,
    Submit,
    Start,
    End,
    State,
    User,
    Account,
    Partition,
    Qos,
    JobName,
    Cluster,
    Eligible,
    AllocTres,
    ReqTres,
    NNodes,
    NCpus,
    NodeList,
    ElapsedRaw,
    Elapsed,
    Suspended,
    TimelimitRaw,
    Timelimit,
    ExitCode,
    Sluid,
    OriginalSluid,
    Reservation,
}

impl Field {
    /// Returns whether the value goes on while a job runs.
    pub fn goes_on(self) -> bool {
        matches!(self, Self::Elapsed | Self::ElapsedRaw | Self::Suspended)
    }
}

const FIELDS: usize = Field::Reservation as usize + 1;

/// Maximum number of lines of one row: job names have at most 1024 bytes.
const MAX_ROW_LINES: u32 = 2048;

/// Maximum length of a row and of those behind it that are tried as one row, in bytes. Longer texts of users
/// than the name of a job, such as `SubmitLine`, are rare in exports.
const MAX_DOUBTED_BYTES: usize = 16 << 10;

/// Seconds for which a step may outlast its run, while its processes are killed.
const STEP_GRACE_SECONDS: i64 = 600;

/// Iterator over the rows of one text, in order. An `Err` is the last item.
pub struct Reader<'i> {
    lines: Lines<'i>,
    options: Options,
    header: String,
    layout: RowLayout,
    /// Line on which the last entry began.
    line: u64,
    /// Rows that have been read.
    read: VecDeque<ReadRow>,
    /// A run that waits for the rows behind it.
    doubted: Option<DoubtedRun>,
    /// Entries to return, with their lines.
    ready: VecDeque<(u64, Entry)>,
    error: Option<SacctError>,
}

/// An entry and what it was read from.
struct ReadRow {
    line: u64,
    entry: Entry,
    /// Empty where no reading of several rows is tried.
    text: String,
}

/// A run in a file whose delimiter is known, with columns of Slurm behind a text of its user. That text may
/// have written these columns and a line feed; then the true ones are at the end of a row behind it, which
/// looks like a step, another row of the run, or a malformed row. Any other row counts by itself.
struct DoubtedRun {
    line: u64,
    run: JobRun,
    /// The row and those behind it.
    text: String,
    /// Entries of the rows behind it, with their lines.
    behind: Vec<(u64, Entry)>,
}

impl<'i> Reader<'i> {
    /// Reads the header of a text, which may be gzip-compressed. `name` is the file's name in
    /// errors. The header shows the delimiter.
    ///
    /// # Errors
    /// [`SacctError::Header`] if this is not output of sacct, [`SacctError::Read`] if it cannot be
    /// read.
    pub fn open(input: impl Read + 'i, name: &str, options: Options) -> Result<Self, SacctError> {
        let mut lines = Lines::open(input, name)?;
        let header = match &options.columns {
            Some(columns) => columns.join(DEFAULT_DELIMITER),
            None => read_header(&mut lines)?,
        };

        let delimiter = delimiter_of(&header)
            .unwrap_or(DEFAULT_DELIMITER)
            .to_owned();
        let is_secret = is_secret(&delimiter);
        Self::of(lines, name, options, header, &delimiter, is_secret)
    }

    /// Reads the header of a text with this delimiter, which was drawn for it, as [`Reader::open`] does.
    ///
    /// # Errors
    /// As [`Reader::open`]; also if the text has another delimiter.
    pub fn with_delimiter(
        input: impl Read + 'i,
        name: &str,
        options: Options,
        delimiter: &str,
    ) -> Result<Self, SacctError> {
        let mut lines = Lines::open(input, name)?;
        let header = read_header(&mut lines)?;
        Self::of(lines, name, options, header, delimiter, true)
    }

    fn of(
        lines: Lines<'i>,
        name: &str,
        options: Options,
        header: String,
        delimiter: &str,
        is_secret: bool,
    ) -> Result<Self, SacctError> {
        let layout = RowLayout::of(&header, delimiter, is_secret);
        // A missing column and one that stands under an unknown name are the same: the header alone decides.
        let missing: Vec<&str> = REQUIRED
            .iter()
            .filter(|(_, field)| !layout.columns.contains(&Some(*field)))
            .map(|(name, _)| *name)
            .collect();
        if !missing.is_empty() {
            let found = lines::beginning(&header);
            return Err(SacctError::Header {
                name: name.to_owned(),
                missing: missing.join(", "),
                found,
            });
        }
        Ok(Self {
            lines,
            options,
            header,
            layout,
            line: 0,
            read: VecDeque::new(),
            doubted: None,
            ready: VecDeque::new(),
            error: None,
        })
    }

    /// Returns whether a user's text can look like a row: users write a column, and could know the
    /// delimiter.
    pub fn may_be_forged(&self) -> bool {
        self.layout.may_be_forged()
    }

    /// Returns the number of the line on which the last entry began, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Reads the further lines of a row that has begun.
    fn finish(&mut self, text: String) -> Result<WrittenRow, LinesError> {
        let needed = self.layout.delimiters();
        let mut found = text.matches(&self.layout.delimiter).count();
        let mut row = WrittenRow {
            complete: (found >= needed).then_some(text.len()),
            text,
            unusable: None,
        };
        // Where the delimiter is secret, a complete row is Slurm's. Only a file with a known one may need more lines.
        let is_known = self.may_be_forged();
        let begins = !is_known || self.layout.may_begin(&row.text);
        let mut more = 0;
        // With a secret delimiter a row ends where it is complete, with a known one where the next row begins.
        while begins && !self.lines.is_cut() {
            let goes_on = match row.complete {
                None => self.layout.spans_lines,
                Some(_) => is_known,
            };
            if !goes_on {
                break;
            }

            match self.lines.next() {
                None => break,
                Some(line) => line?,
            };
            let line = self.lines.text();
            if is_known && self.ends_row(&line, row.complete.is_some()) {
                self.lines.put_back();
                break;
            }

            // Delimiters in a text of a user count as well: `entries` finds out which of them are surplus.
            found += line.matches(&self.layout.delimiter).count();
            row.text.push('\n');
            row.text.push_str(&line);
            if found >= needed && row.complete.is_none() {
                row.complete = Some(row.text.len());
            }

            // Bounds the memory that a row without an end may take.
            more += 1;
            if more == MAX_ROW_LINES || row.text.len() as u64 > MAX_LINE_BYTES {
                row.unusable = Some(lines::too_long());
                return Ok(row);
            }
        }
        row.unusable = self.lines.is_cut().then(lines::too_long);
        Ok(row)
    }

    /// Returns whether a line is no part of the row before it, in a file whose delimiter is known. A row
    /// is never a part of another: a name could have begun a row that takes the next one. Behind a complete
    /// row come only lines that can begin none.
    fn ends_row(&self, line: &str, is_complete: bool) -> bool {
        if is_complete {
            line.is_empty() || self.is_header(line.as_bytes()) || self.layout.may_begin(line)
        } else {
            self.layout.is_row(line)
        }
    }

    fn is_header(&self, line: &[u8]) -> bool {
        line.eq_ignore_ascii_case(self.header.as_bytes())
    }

    /// Returns the entry of a row, and an entry for the lines behind it that do not belong to it.
    fn entries(&self, line: u64, row: WrittenRow) -> Vec<ReadRow> {
        let one = |entry, text| vec![ReadRow { line, entry, text }];
        if let Some(reason) = row.unusable {
            return one(self.rejected(line, reason, &row.text), row.text);
        }
        let whole = self.parse(&row.text);
        let complete = row.complete.filter(|end| *end < row.text.len());
        let Some((first, rest)) = complete.map(|end| row.text.split_at(end)) else {
            return one(self.or_rejected(line, whole, &row.text), row.text);
        };

        match (self.parse(first), whole) {
            // The lines are no part of the row: in that reading, a column of Slurm is malformed.
            (Ok(entry), Err(_)) => {
                let after = line + first.matches('\n').count() as u64 + 1;
                let reason = "the rest of a row, or no row".to_owned();
                let rest = rest.trim_start_matches('\n').to_owned();
                let rejected = self.rejected(after, reason, &rest);
                let mut rows = one(entry, first.to_owned());
                rows.push(ReadRow {
                    line: after,
                    entry: rejected,
                    text: rest,
                });
                rows
            }
            (Ok(without), Ok(with)) if is_same_but_name(&without, &with) => one(with, row.text),
            (Ok(_), Ok(_)) => {
                let reason = self.ambiguous(&row.text);
                one(self.rejected(line, reason, &row.text), row.text)
            }
            (Err(_), whole) => one(self.or_rejected(line, whole, &row.text), row.text),
        }
    }

    /// Reads the next row, or a row and the lines behind it. `None` at the end.
    fn read_rows(&mut self) -> Option<Result<Vec<ReadRow>, LinesError>> {
        loop {
            let row = match self.lines.next()? {
                Ok(row) => row,
                Err(error) => return Some(Err(error)),
            };
            // `cat` of several files repeats the header. Skip it.
            if row.is_empty() || row.eq_ignore_ascii_case(self.header.as_bytes()) {
                continue;
            }

            let line = self.lines.line();
            // Without a column of users, a row is one line, which is parsed without a copy: most exports are such.
            let spans_lines = self.layout.spans_lines || self.may_be_forged();
            if !spans_lines && !self.lines.is_cut() {
                let row = self.lines.text();
                let entry = self.or_rejected(line, self.parse(&row), &row);
                let text = String::new();
                return Some(Ok(vec![ReadRow { line, entry, text }]));
            }

            let row = self.lines.text().into_owned();
            return Some(self.finish(row).map(|row| self.entries(line, row)));
        }
    }

    /// Makes the entries of a row ready. A run whose columns its user may have written waits for the rows
    /// behind it.
    fn add(&mut self, row: ReadRow) {
        let Some(mut doubted) = self.doubted.take() else {
            return self.begin(row);
        };

        // Longer texts are not tried as one row, which bounds the work for each row.
        let together = format!("{}\n{}", doubted.text, row.text);
        if together.len() > MAX_DOUBTED_BYTES {
            self.ready.extend(doubted.into_entries());
            return self.begin(row);
        }

        if self.may_be_end(&doubted.run, &row, &together) {
            // Neither reading counts: the smaller one may be the user's, and the larger one is not certain.
            let entry = self.rejected(doubted.line, self.ambiguous(&together), &together);
            self.ready.push_back((doubted.line, entry));
            return;
        }
        if matches!(row.entry, Entry::Run(_) | Entry::Tasks { .. }) {
            // A row that counts by itself ends the wait: the rows before it are whole.
            self.ready.extend(doubted.into_entries());
            return self.begin(row);
        }
        doubted.text = together;
        doubted.behind.push((row.line, row.entry));
        self.doubted = Some(doubted);
    }

    fn begin(&mut self, row: ReadRow) {
        match row.entry {
            Entry::Run(run) if self.layout.can_users_complete() => {
                self.doubted = Some(DoubtedRun {
                    line: row.line,
                    run,
                    text: row.text,
                    behind: Vec::new(),
                });
            }
            entry => self.ready.push_back((row.line, entry)),
        }
    }

    /// Returns whether a row may be the end of the run's row: both together can be read as another run, and
    /// the row would not be counted by itself.
    fn may_be_end(&self, run: &JobRun, row: &ReadRow, together: &str) -> bool {
        let is_other: &dyn Fn(&JobRun) -> bool = match &row.entry {
            Entry::Rejected(_) => &|other| !is_same_run_but_name(run, other),
            // Steps have no user, and hold no more than their run.
            Entry::Step if self.layout.shows_user_last() => &|other| !other.user.is_empty(),
            Entry::Step => &|other| holds_more(other, run),
            Entry::Run(again) if again.job_id == run.job_id && again.submit == run.submit => {
                &|other| holds_more(other, run)
            }
            Entry::Run(_) | Entry::Tasks { .. } => return false,
        };
        // Trying all readings takes long, and most steps hold less in any.
        if matches!(row.entry, Entry::Step) && !self.is_suspect_step(run, &row.text) {
            return false;
        }

        let readings = self.layout.readings(together).unwrap_or_default();
        let mut entries = readings
            .iter()
            .filter_map(|fields| entry_of(fields, &self.options).ok());
        entries.any(|entry| matches!(&entry, Entry::Run(other) if is_other(other)))
    }

    /// Returns whether a step says itself what its run would say of it: a user, or that it holds more.
    fn is_suspect_step(&self, run: &JobRun, step: &str) -> bool {
        let readings = self.layout.readings(step).unwrap_or_default();
        let is_suspect = |fields: &Fields<'_>| {
            if self.layout.shows_user_last() {
                !fields.get(Field::User).is_empty()
            } else {
                run_of(fields, &self.options).is_ok_and(|step| holds_more(&step, run))
            }
        };
        readings.iter().any(is_suspect)
    }

    /// Parses a row. In a file whose delimiter is known, surplus delimiters belong to texts of users.
    fn parse(&self, row: &str) -> Result<Entry, String> {
        let exact = self.layout.split(row);
        if !self.may_be_forged() || exact.is_ok() && !row.contains('\n') {
            // A row with exactly its columns and one line is not doubted, so the usual row is split once.
            return exact.and_then(|fields| entry_of(&fields, &self.options));
        }
        let mut entries = Vec::new();
        let mut reasons = Vec::new();
        for fields in self.layout.readings(row)? {
            match entry_of(&fields, &self.options) {
                Ok(entry) => entries.push(entry),
                Err(reason) => reasons.push(reason),
            }
        }

        let mut entries = entries.into_iter();
        let Some(first) = entries.next() else {
            // One reason is that of the only reading; several contradict each other, and the plain split says more.
            let only = reasons.pop().filter(|_| reasons.is_empty());
            let fallback = || "a line feed in a column of Slurm".to_owned();
            return Err(only.or(exact.err()).unwrap_or_else(fallback));
        };
        if entries.all(|other| is_same_but_name(&first, &other)) {
            Ok(first)
        } else {
            Err(self.ambiguous(row))
        }
    }

    fn ambiguous(&self, row: &str) -> String {
        format!(
            "{} can be read in several ways, because a user's text has a delimiter or a line feed",
            bounded(&self.layout.owner(row), MAX_OWNER_BYTES)
        )
    }

    fn or_rejected(&self, line: u64, parsed: Result<Entry, String>, row: &str) -> Entry {
        parsed.unwrap_or_else(|reason| self.rejected(line, reason, row))
    }

    fn rejected(&self, line: u64, reason: String, row: &str) -> Entry {
        Entry::Rejected(Reject::new(Some(line), reason, &self.layout.settled(row)))
    }
}

/// A row as it is written.
struct WrittenRow {
    text: String,
    /// Length of the lines that together have all delimiters.
    complete: Option<usize>,
    /// Reason why the row cannot be parsed.
    unusable: Option<String>,
}

/// Maximum length of a job and its user in a reason, in bytes.
const MAX_OWNER_BYTES: usize = 128;

impl DoubtedRun {
    /// Returns the entries of the run and of the rows behind it, each a row by itself.
    fn into_entries(self) -> impl Iterator<Item = (u64, Entry)> {
        [(self.line, Entry::Run(self.run))]
            .into_iter()
            .chain(self.behind)
    }
}

/// Returns whether two entries say the same, except the name of the job.
fn is_same_but_name(one: &Entry, other: &Entry) -> bool {
    match (one, other) {
        (Entry::Run(one), Entry::Run(other)) => is_same_run_but_name(one, other),
        (
            Entry::Tasks { run, job_ids },
            Entry::Tasks {
                run: other,
                job_ids: others,
            },
        ) => job_ids == others && is_same_run_but_name(run, other),
        _ => one == other,
    }
}

fn is_same_run_but_name(one: &JobRun, other: &JobRun) -> bool {
    let without_name = |run: &JobRun| JobRun {
        name: None,
        ..run.clone()
    };
    without_name(one) == without_name(other)
}

/// Returns whether a reading holds more than the run, or holds it longer.
fn holds_more(other: &JobRun, run: &JobRun) -> bool {
    let amounts = |run: &JobRun| {
        [run.gpus, run.cpus, run.nodes, run.billing].map(|amount| amount.unwrap_or(0))
    };

    let seconds = |run: &JobRun| match (run.start, run.end) {
        (Some(start), Some(end)) => end.since(start).cast_signed(),
        _ => 0,
    };

    let holds = amounts(other)
        .into_iter()
        .zip(amounts(run))
        .any(|(other, own)| other > own);
    holds || seconds(other) > seconds(run) + STEP_GRACE_SECONDS
}

fn read_header(lines: &mut Lines<'_>) -> Result<String, LinesError> {
    let header = lines.next().transpose()?.unwrap_or_default();
    Ok(String::from_utf8_lossy(header)
        // Files that came through Windows may begin with a byte order mark.
        .trim_start_matches('\u{feff}')
        .to_owned())
}

impl Iterator for Reader<'_> {
    type Item = Result<Entry, SacctError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((line, entry)) = self.ready.pop_front() {
                self.line = line;
                return Some(Ok(entry));
            }
            if let Some(row) = self.read.pop_front() {
                self.add(row);
                continue;
            }

            match self.read_rows() {
                Some(Ok(rows)) => self.read.extend(rows),
                end => {
                    // The error is kept until the doubted run is returned: it was read before the error.
                    self.error = self
                        .error
                        .take()
                        .or(end.and_then(Result::err).map(SacctError::from));
                    match self.doubted.take() {
                        Some(doubted) => self.ready.extend(doubted.into_entries()),
                        None => return self.error.take().map(Err),
                    }
                }
            }
        }
    }
}

fn column(name: &str) -> Option<Field> {
    let name = name.trim();
    COLUMNS
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, field)| *field)
}

/// Parses one row in sacct's fields. Other sources convert to these fields, so that all share the
/// same rules.
pub(super) fn entry_of(fields: &Fields<'_>, options: &Options) -> Result<Entry, String> {
    let job_id = fields.get(Field::JobId);
    // `105_4294967294` is the whole array, as `sacct` prints one of which no task has begun.
    let job_id = job_id.strip_suffix(NO_TASK).unwrap_or(job_id);
    let array = job_id.split_once("_[");
    // Only a step has a dot: `123.batch`, `123_4.0`, `123+1.extern`.
    if array.map_or(job_id, |(array, _)| array).contains('.') {
        return Ok(Entry::Step);
    }

    // Slurm's ids have digits, `_` before a task, and `+` before a component.
    let number = array.map_or(job_id, |(array, _)| array);
    let is_number = |letter: u8| letter.is_ascii_digit() || matches!(letter, b'_' | b'+');
    if !number.starts_with(|letter: char| letter.is_ascii_digit()) || !number.bytes().all(is_number)
    {
        return Err(format!("JobID '{}' is not a number", bounded(job_id, 64)));
    }

    let run = run_of(fields, options)?;
    let Some((array, tasks)) = array else {
        let raw_job_id = fields.text(Field::JobIdRaw).filter(|raw| raw != job_id);
        return Ok(Entry::Run(JobRun {
            job_id: job_id.to_owned(),
            raw_job_id,
            ..run
        }));
    };

    // `17_[5-9%2]`: pending tasks, of which at most two run at a time.
    let tasks = tasks
        .strip_suffix(']')
        .map(|tasks| tasks.split_once('%').map_or(tasks, |(tasks, _)| tasks));
    let job_ids = tasks
        .and_then(|tasks| nodelist::ranges(tasks, MAX_TASKS))
        .ok_or_else(|| cut_or_malformed(job_id))?
        .into_iter()
        .map(|task| format!("{array}_{task}"))
        .collect();
    Ok(Entry::Tasks { run, job_ids })
}

/// Returns why the tasks of an array are unknown. Slurm cuts long lists, with or without a bracket behind
/// the dots.
fn cut_or_malformed(job_id: &str) -> String {
    let shown = bounded(job_id, 64);
    if job_id.trim_end_matches(']').ends_with("...") {
        format!(
            "JobID '{shown}' lists only some of its tasks; set SLURM_BITSTR_LEN=0 where sacct or \
             slurmrestd runs"
        )
    } else {
        format!("JobID '{shown}' does not list its tasks")
    }
}

/// Values of one row by column. Empty for a missing column.
pub(super) struct Fields<'r>([&'r str; FIELDS]);

impl<'r> Fields<'r> {
    /// Returns fields with these values.
    pub fn of(values: &[(Field, &'r str)]) -> Self {
        let mut fields = Self([""; FIELDS]);
        values
            .iter()
            .for_each(|(field, value)| fields.0[*field as usize] = value);
        fields
    }

    /// Sets a field. If two columns mean the same (`NCPUS`, `AllocCPUS`), an empty one does not
    /// overwrite the other.
    fn put(&mut self, field: Field, value: &'r str) {
        let value = value.trim_ascii();
        if !value.is_empty() {
            self.0[field as usize] = value;
        }
    }

    /// Returns the field, or `""` if the column is missing.
    fn get(&self, field: Field) -> &'r str {
        self.0[field as usize]
    }

    fn text(&self, field: Field) -> Option<String> {
        Some(self.get(field))
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    }

    fn count(&self, field: Field, name: &str) -> Result<Option<u64>, String> {
        match self.get(field) {
            "" => Ok(None),
            text => scaled(text, 1)
                .map(Some)
                .ok_or_else(|| format!("{name} '{text}' is not a number")),
        }
    }
}

/// Parses the run of a row, without its id.
fn run_of(fields: &Fields<'_>, options: &Options) -> Result<JobRun, String> {
    let state = fields
        // `CANCELLED by 1000` has the user who cancelled it behind the state.
        .get(Field::State)
        .split_ascii_whitespace()
        .next()
        .unwrap_or_default();
    check_state(state, "State")?;

    let tres =
        TresCounts::parse(fields.get(Field::AllocTres)).map_err(|error| format!("Alloc{error}"))?;

    let suspended = duration(fields.get(Field::Suspended), "Suspended")?;
    let elapsed = match fields.get(Field::ElapsedRaw) {
        // Clocks that disagree. The times are what slurmctld wrote.
        raw if is_negative(raw) => None,
        _ => fields.count(Field::ElapsedRaw, "ElapsedRaw")?,
    };
    let elapsed = match elapsed {
        None => duration(fields.get(Field::Elapsed), "Elapsed")?,
        raw => raw,
    };

    let written = WrittenTimes {
        submit: fields.get(Field::Submit),
        eligible: fields.get(Field::Eligible),
        start: fields.get(Field::Start),
        end: fields.get(Field::End),
    };
    let times = RunTimes::of(
        &written,
        &options.zone,
        // The times include the suspension, and the run time does not.
        elapsed.map(|ran| ran + suspended.unwrap_or(0)),
    )?;

    let node_list = fields.text(Field::NodeList).filter(|list| list != NO_NODES);
    let never_started = state == "PENDING"
        || fields.get(Field::NodeList) == NO_NODES
        // For a job that left the queue unstarted, Slurm sets the start to the end.
        || (tres.is_none() && times.start == times.end && LEFT_THE_QUEUE.contains(&state));

    // After a resize slurmdbd adds a record with the old start. The earlier record already covers
    // the time before the resize.
    let resized = times.start.map_or(0, |start| times.submit.since(start));
    let start = times
        .start
        .filter(|_| !never_started)
        .map(|start| start.max(times.submit));

    if times.end.is_none() && OVER.contains(&state) {
        return Err(format!(
            "State is {state}, but End is '{}'",
            fields.get(Field::End)
        ));
    }

    let run = JobRun {
        cluster: match &options.cluster {
            Cluster::Named(name) => name.clone(),
            Cluster::Column(name) => fields.text(Field::Cluster).unwrap_or_else(|| name.clone()),
        },
        job_id: String::new(),
        submit: times.submit,
        eligible: times.eligible,
        start,
        end: times.end,
        state: state.to_owned(),
        user: fields.get(Field::User).to_owned(),
        account: fields.get(Field::Account).to_owned(),
        partition: fields.get(Field::Partition).to_owned(),
        qos: fields.text(Field::Qos),
        name: fields.text(Field::JobName),
        alloc_tres: fields.text(Field::AllocTres),
        req_tres: fields.text(Field::ReqTres),
        node_list,
        elapsed: elapsed
            .filter(|_| times.end.is_some())
            .map(|ran| ran.saturating_sub(resized)),
        suspended,
        timelimit: timelimit(fields)?,
        exit_code: fields.text(Field::ExitCode),
        reservation: fields.text(Field::Reservation),
        sluid: sluid(fields.get(Field::Sluid)),
        original_sluid: sluid(fields.get(Field::OriginalSluid)),
        ..JobRun::default()
    };

    if start.is_none() {
        return Ok(run);
    }

    // Without AllocTRES the plain columns are used, and the number of GPUs is unknown.
    let tres = tres.unwrap_or_default();
    let cpus = tres.cpus.or(fields.count(Field::NCpus, "NCPUS")?);
    if cpus.is_none() {
        return Err("AllocTRES and NCPUS are both empty".to_owned());
    }
    Ok(JobRun {
        nodes: tres.nodes.or(fields.count(Field::NNodes, "NNodes")?),
        cpus,
        gpus: tres.gpus,
        gpu_model: tres.gpu_model,
        mem_bytes: tres.mem_bytes,
        billing: tres.billing,
        ..run
    })
}

/// Length of an SLUID: `s` and 13 digits in base 32.
const SLUID_BYTES: usize = 14;

/// Returns an SLUID. `None` for other texts, and for the zero of records of earlier releases.
fn sluid(text: &str) -> Option<String> {
    let digits = text.strip_prefix('s')?;
    let is_sluid = text.len() == SLUID_BYTES
        && digits
            // Base 32 of Slurm has digits and capital letters.
            .bytes()
            .all(|digit| digit.is_ascii_uppercase() || digit.is_ascii_digit())
        && digits.bytes().any(|digit| digit != b'0');
    is_sluid.then(|| text.to_owned())
}

/// Final states of a job that may have ended in the queue.
const LEFT_THE_QUEUE: &[&str] = &["CANCELLED", "DEADLINE", "REVOKED"];

/// Task number NO_VAL: an array of which no task has begun.
const NO_TASK: &str = "_4294967294";

/// sacct's node list of a job without nodes.
pub(super) const NO_NODES: &str = "None assigned";

/// Final states of a run.
pub(super) const OVER: &[&str] = &[
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REQUEUED",
    "REVOKED",
    "TIMEOUT",
];

/// Maximum length of a state in bytes.
const MAX_STATE_BYTES: usize = 32;

/// Refuses what cannot be a state: Slurm prints capitals. A later version may have further states.
pub(super) fn check_state(state: &str, name: &str) -> Result<(), String> {
    if state.is_empty() {
        return Err(format!("{name} is empty"));
    }
    let is_word = |state: &str| {
        state.len() <= MAX_STATE_BYTES
            && state
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    };
    if is_word(state) {
        Ok(())
    } else {
        Err(format!(
            "{name} '{}' is not a state of Slurm",
            bounded(state, 64)
        ))
    }
}

fn is_negative(number: &str) -> bool {
    number
        .strip_prefix('-')
        .is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))
}

/// sacct's word for a negative time.
const INVALID: &str = "INVALID";

/// Parses `[D-]HH:MM:SS` or `MM:SS`, with or without thousandths. Returns seconds; `None` for an
/// empty text and a negative time.
pub(super) fn duration(text: &str, name: &str) -> Result<Option<u64>, String> {
    if text.is_empty() || text == INVALID {
        return Ok(None);
    }
    // Minutes and seconds are always printed; days and hours may be missing.
    let seconds = || {
        let (days, clock) = text.split_once('-').unwrap_or(("0", text));
        let (clock, _) = clock.split_once('.').unwrap_or((clock, ""));
        let (rest, seconds) = clock.rsplit_once(':')?;
        let (hours, minutes) = rest.split_once(':').unwrap_or(("0", rest));
        // The bound keeps the product below 64 bits.
        let count = |text| scaled(text, 1).filter(|&count| count < 1 << 32);
        Some(((count(days)? * 24 + count(hours)?) * 60 + count(minutes)?) * 60 + count(seconds)?)
    };
    seconds()
        .map(Some)
        .ok_or_else(|| format!("{name} '{text}' is not a duration"))
}

/// Returns the time limit in seconds. `None` without a limit (`UNLIMITED`, `Partition_Limit`).
fn timelimit(fields: &Fields<'_>) -> Result<Option<u64>, String> {
    let is_amount = |text: &str| text.starts_with(|letter: char| letter.is_ascii_digit());
    // The raw column is in minutes, the other in `D-HH:MM:SS`.
    match fields.get(Field::TimelimitRaw) {
        raw if is_amount(raw) => Ok(fields
            .count(Field::TimelimitRaw, "TimelimitRaw")?
            .and_then(|minutes| minutes.checked_mul(60))),
        _ => duration(
            Some(fields.get(Field::Timelimit))
                .filter(|text| is_amount(text))
                .unwrap_or_default(),
            "Timelimit",
        ),
    }
}

#[cfg(test)]
mod tests;
