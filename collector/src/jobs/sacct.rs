//! The text that `sacct -P` prints: a header and one row a line, fields between `|`.
//!
//! Columns come in any order; those that are not known are passed over. Times are the site's local time without an
//! offset, or seconds since 1970 (`SLURM_TIME_FORMAT=%s`), or carry an offset. sacct quotes nothing, so a job's name
//! with a `|` in it makes a row of too many fields, unless the name is the last column.
//!
//! An hour that a clock goes through twice is settled by how long the job ran (`ElapsedRaw`), where its start or end
//! lies in it. `Submit` is part of a run's identity and must not depend on anything that changes: it is always taken
//! from the first passage.

use super::tres::{Tres, scaled};
use super::{Entry, JobRun, Reject, nodelist};
use flate2::bufread::MultiGzDecoder;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use std::io::{self, BufRead, BufReader, Read};

/// Most bytes in one row. sacct's longest fields (`SubmitLine`, `Comment`) stay far below.
pub const MAX_ROW_BYTES: u64 = 1 << 20;

/// Most array tasks that one row may stand for: more than any site's `MaxArraySize`.
pub const MAX_TASKS: usize = 1_000_000;

/// How to read a text that does not say everything itself.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whose jobs these are.
    pub cluster: Cluster,
    /// Where times without an offset are at home.
    pub zone: TimeZone,
    /// The columns' names, where the text has no header.
    pub columns: Option<Vec<String>>,
}

/// Whose jobs a text holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cluster {
    /// All are this cluster's, whatever a `Cluster` column says.
    Named(String),
    /// As the `Cluster` column says, or this one where there is none.
    Column(String),
}

/// A text that cannot be read as sacct's.
#[derive(Debug, thiserror::Error)]
pub enum SacctError {
    /// Reading failed.
    #[error("cannot read {name} after line {line}")]
    Read {
        /// The file.
        name: String,
        /// The last line that was read.
        line: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The first line is no header, or lacks a column that nothing can stand in for.
    #[error("{name} is not what 'sacct -P' prints: expected a header with {missing}, found {found}")]
    Header {
        /// The file.
        name: String,
        /// The columns that were looked for in vain.
        missing: String,
        /// How the line begins.
        found: String,
    },
}

/// The columns that are read; several names for one where Slurm has them.
const COLUMNS: &[(&str, Field)] = &[
    ("jobid", Field::JobId),
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
];

/// Without one of these there is no run, or nobody whose it is.
const REQUIRED: &[(&str, Field)] = &[
    ("JobID", Field::JobId),
    ("User", Field::User),
    ("Submit", Field::Submit),
    ("Start", Field::Start),
    ("End", Field::End),
    ("State", Field::State),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    JobId,
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
}

const FIELDS: usize = Field::ExitCode as usize + 1;

/// The rows of one text, in order. An `Err` is the last item.
pub struct Reader<'i> {
    name: String,
    input: Box<dyn BufRead + 'i>,
    options: Options,
    columns: Vec<Option<Field>>,
    header: String,
    line: u64,
    row: Vec<u8>,
    done: bool,
}

impl<'i> Reader<'i> {
    /// Reads up to the header. A gzip file is known by its first bytes. `name` is what errors call the text.
    ///
    /// # Errors
    /// [`SacctError::Header`] where this is no sacct output, [`SacctError::Read`] where it cannot be read at all.
    pub fn open(input: impl Read + 'i, name: &str, options: Options) -> Result<Self, SacctError> {
        let mut reader = Self {
            name: name.to_owned(),
            input: Box::new(io::empty()),
            columns: Vec::new(),
            header: String::new(),
            line: 0,
            row: Vec::new(),
            done: false,
            options,
        };
        reader.input = decompressed(input).map_err(|source| reader.failed(source))?;
        let header = match reader.options.columns.take() {
            Some(columns) => columns.join("|"),
            None => {
                reader.next_row()?;
                String::from_utf8_lossy(&reader.row).trim_start_matches('\u{feff}').to_owned()
            }
        };
        reader.columns = header.split('|').map(column).collect();
        let missing: Vec<&str> = REQUIRED
            .iter()
            .filter(|(_, field)| !reader.columns.contains(&Some(*field)))
            .map(|(name, _)| *name)
            .collect();
        if !missing.is_empty() {
            let found = match header.chars().take(60).collect::<String>() {
                empty if empty.is_empty() => "an empty line or nothing".to_owned(),
                begin => format!("'{}'", begin.escape_debug()),
            };
            return Err(SacctError::Header { name: reader.name, missing: missing.join(", "), found });
        }
        reader.header = header;
        Ok(reader)
    }

    /// Puts the next row into `self.row`, without its line end; `false` at the end of the text.
    fn next_row(&mut self) -> Result<bool, SacctError> {
        self.row.clear();
        let read = (&mut self.input).take(MAX_ROW_BYTES).read_until(b'\n', &mut self.row);
        match read {
            Ok(0) => return Ok(false),
            Ok(_) => self.line += 1,
            Err(source) => return Err(self.failed(source)),
        }
        if self.row.last() == Some(&b'\n') {
            self.row.pop();
        } else if self.row.len() as u64 == MAX_ROW_BYTES {
            let problem = format!("line {} is longer than {MAX_ROW_BYTES} bytes", self.line);
            return Err(self.failed(io::Error::new(io::ErrorKind::InvalidData, problem)));
        }
        if self.row.last() == Some(&b'\r') {
            self.row.pop();
        }
        Ok(true)
    }

    fn failed(&self, source: io::Error) -> SacctError {
        let source = match source.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(source.kind(), "the gzip data end in the middle"),
            _ => source,
        };
        SacctError::Read { name: self.name.clone(), line: self.line, source }
    }

    fn entry(&self, row: &str) -> Entry {
        match self.parse(row) {
            Ok(entry) => entry,
            Err(reason) => Entry::Rejected(Reject { line: Some(self.line), reason, text: row.to_owned() }),
        }
    }

    fn parse(&self, row: &str) -> Result<Entry, String> {
        let fields = self.split(row)?;
        let job_id = fields.get(Field::JobId);
        // Only a step has a dot: `123.batch`, `123_4.0`, `123+1.extern`.
        if job_id.contains('.') {
            return Ok(Entry::Step);
        }
        if !job_id.starts_with(|letter: char| letter.is_ascii_digit()) {
            return Err(format!("JobID '{job_id}' is no number"));
        }
        let run = run(&fields, &self.options)?;
        let Some((array, tasks)) = job_id.split_once("_[") else {
            return Ok(Entry::Run(JobRun { job_id: job_id.to_owned(), ..run }));
        };
        // `17_[5-9%2]`: tasks that were never split off, at most two of them at a time.
        let tasks = tasks.strip_suffix(']').map(|tasks| tasks.split_once('%').map_or(tasks, |(tasks, _)| tasks));
        let tasks = tasks
            .and_then(|tasks| nodelist::ranges(tasks, MAX_TASKS))
            .ok_or_else(|| format!("JobID '{job_id}' does not name its tasks"))?;
        let of_task = |task| JobRun { job_id: format!("{array}_{task}"), ..run.clone() };
        Ok(Entry::Tasks(tasks.into_iter().map(of_task).collect()))
    }

    /// The row's known fields by column. Separators beyond the last column belong to it if it is the name.
    fn split<'r>(&self, row: &'r str) -> Result<Fields<'r>, String> {
        let mut fields = Fields([""; FIELDS]);
        let name_is_last = self.columns.last() == Some(&Some(Field::JobName));
        let most = if name_is_last { self.columns.len() } else { usize::MAX };
        let mut found = 0;
        for value in row.splitn(most, '|') {
            if let Some(Some(field)) = self.columns.get(found) {
                fields.0[*field as usize] = value.trim_ascii();
            }
            found += 1;
        }
        if found == self.columns.len() {
            Ok(fields)
        } else {
            Err(format!("expected {} fields, found {found}", self.columns.len()))
        }
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Entry, SacctError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            match self.next_row() {
                Ok(true) => {}
                Ok(false) => self.done = true,
                Err(error) => {
                    self.done = true;
                    return Some(Err(error));
                }
            }
            // Files are often put together with `cat`: a header that comes again says nothing.
            if self.row.is_empty() || self.row.eq_ignore_ascii_case(self.header.as_bytes()) {
                continue;
            }
            return Some(Ok(match std::str::from_utf8(&self.row) {
                Ok(row) => self.entry(row),
                Err(_) => self.entry(&String::from_utf8_lossy(&self.row)),
            }));
        }
        None
    }
}

fn column(name: &str) -> Option<Field> {
    let name = name.trim();
    COLUMNS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, field)| *field)
}

fn decompressed<'i>(mut input: impl Read + 'i) -> io::Result<Box<dyn BufRead + 'i>> {
    const GZIP: &[u8] = &[0x1f, 0x8b];
    const BUFFER: usize = 1 << 17;
    let mut magic = Vec::new();
    input.by_ref().take(GZIP.len() as u64).read_to_end(&mut magic)?;
    let is_gzip = magic == GZIP;
    let input = BufReader::with_capacity(BUFFER, io::Cursor::new(magic).chain(input));
    Ok(if is_gzip {
        // `pigz` and `cat a.gz b.gz` make files of several members.
        Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(input)))
    } else {
        Box::new(input)
    })
}

struct Fields<'r>([&'r str; FIELDS]);

impl<'r> Fields<'r> {
    /// The field, or `""` where there is no such column.
    fn get(&self, field: Field) -> &'r str {
        self.0[field as usize]
    }

    fn text(&self, field: Field) -> Option<String> {
        Some(self.get(field)).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    fn count(&self, field: Field, name: &str) -> Result<Option<u64>, String> {
        match self.get(field) {
            "" => Ok(None),
            text => scaled(text, 1).map(Some).ok_or_else(|| format!("{name} '{text}' is no number")),
        }
    }
}

/// A row's run, without its id.
fn run(fields: &Fields<'_>, options: &Options) -> Result<JobRun, String> {
    let state = fields.get(Field::State).split_ascii_whitespace().next().unwrap_or_default();
    if state.is_empty() {
        return Err("State is empty".to_owned());
    }
    let tres = Tres::parse(fields.get(Field::AllocTres)).map_err(|error| format!("Alloc{error}"))?;
    let suspended = duration(fields.get(Field::Suspended), "Suspended")?;
    let elapsed = match fields.count(Field::ElapsedRaw, "ElapsedRaw")? {
        None => duration(fields.get(Field::Elapsed), "Elapsed")?,
        raw => raw,
    };
    let times = Times::of(fields, &options.zone, elapsed.map(|ran| ran + suspended.unwrap_or(0)))?;
    let node_list = fields.text(Field::NodeList).filter(|list| list != NO_NODES);
    let never_started = state == "PENDING"
        || fields.get(Field::NodeList) == NO_NODES
        // Slurm gives a job that left the queue unstarted its end for a start.
        || (tres.is_none() && times.start == times.end && ["CANCELLED", "DEADLINE", "REVOKED"].contains(&state));
    let start = times.start.filter(|_| !never_started);
    if times.end.is_none() && OVER.contains(&state) {
        return Err(format!("State is {state}, but End is '{}'", fields.get(Field::End)));
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
        elapsed: elapsed.filter(|_| times.end.is_some()),
        suspended,
        timelimit: timelimit(fields)?,
        exit_code: fields.text(Field::ExitCode),
        ..JobRun::default()
    };
    if start.is_none() {
        return Ok(run);
    }
    // Without AllocTRES the plain columns stand in, and nobody counted GPUs.
    let gpus_counted = tres.is_some();
    let tres = tres.unwrap_or_default();
    let cpus = tres.cpus.or(fields.count(Field::NCpus, "NCPUS")?);
    if cpus.is_none() {
        return Err("neither AllocTRES nor NCPUS says what it held".to_owned());
    }
    Ok(JobRun {
        nodes: tres.nodes.or(fields.count(Field::NNodes, "NNodes")?),
        cpus,
        gpus: gpus_counted.then_some(tres.gpus),
        gpu_model: tres.gpu_model,
        mem_bytes: tres.mem_bytes,
        billing: tres.billing,
        ..run
    })
}

/// What sacct writes for the nodes of a job that has none.
const NO_NODES: &str = "None assigned";

/// The states of a run that has left its nodes or the queue for good.
const OVER: &[&str] = &[
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

/// The instants of a run, in UTC seconds.
struct Times {
    submit: i64,
    eligible: Option<i64>,
    start: Option<i64>,
    end: Option<i64>,
}

impl Times {
    /// `held` is how many seconds lie between start and end, if that is known.
    fn of(fields: &Fields<'_>, zone: &TimeZone, held: Option<u64>) -> Result<Self, String> {
        let moment = |field, name| moment(fields.get(field), zone).map_err(|reason| format!("{name} {reason}"));
        let submit = moment(Field::Submit, "Submit")?.ok_or("Submit is missing")?.first;
        let eligible = moment(Field::Eligible, "Eligible")?.map(|moment| moment.not_before(submit));
        let (start, end) = match (moment(Field::Start, "Start")?, moment(Field::End, "End")?) {
            (Some(start), Some(end)) => {
                let (start, end) = settle(start, end, submit, held);
                if end < start {
                    return Err("End is before Start".to_owned());
                }
                (Some(start), Some(end))
            }
            (start, end) => {
                (start.map(|moment| moment.not_before(submit)), end.map(|moment| moment.not_before(submit)))
            }
        };
        Ok(Self { submit, eligible, start, end })
    }
}

/// A time as it was written: one instant, or the two at which the clock showed it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Moment {
    first: i64,
    second: i64,
}

impl Moment {
    fn at(instant: i64) -> Self {
        Self { first: instant, second: instant }
    }

    fn not_before(self, earliest: i64) -> i64 {
        if self.first < earliest { self.second } else { self.first }
    }
}

/// Which passages of the clock are meant: those that lie as far apart as the job ran, after its submission.
fn settle(start: Moment, end: Moment, submit: i64, held: Option<u64>) -> (i64, i64) {
    let fits = |start: i64, end: i64| held.is_some_and(|held| end.checked_sub_unsigned(held) == Some(start));
    let pairs = [start.first, start.second].into_iter().flat_map(|s| [(s, end.first), (s, end.second)]);
    pairs.filter(|&(start, end)| start >= submit && fits(start, end)).min().unwrap_or_else(|| {
        let start = start.not_before(submit);
        (start, end.not_before(start))
    })
}

/// A time as sacct writes it; `None` where it says that there is none.
fn moment(text: &str, zone: &TimeZone) -> Result<Option<Moment>, String> {
    if ["", "Unknown", "None", "NONE", "N/A", "0"].contains(&text) {
        return Ok(None);
    }
    let no_time = || format!("'{text}' is no time");
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let seconds = text.parse().ok().and_then(|seconds| Timestamp::from_second(seconds).ok()).ok_or_else(no_time)?;
        return Ok(Some(Moment::at(seconds.as_second())));
    }
    if text.len() > "2026-10-25T02:30:00".len() {
        let instant: Timestamp = text.parse().map_err(|_| no_time())?;
        return Ok(Some(Moment::at(instant.as_second())));
    }
    let local: DateTime = text.parse().map_err(|_| no_time())?;
    let seconds = |offset: Offset| offset.to_timestamp(local).map(Timestamp::as_second).map_err(|_| no_time());
    Ok(Some(match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } => Moment::at(seconds(offset)?),
        AmbiguousOffset::Fold { before, after } => Moment { first: seconds(before)?, second: seconds(after)? },
        // Slurm's clock never showed it, so the zone is not the one it was written in, and every other row is suspect.
        AmbiguousOffset::Gap { .. } => {
            let zone = zone.iana_name().unwrap_or("its time zone");
            return Err(format!("'{text}' does not exist in {zone}; is the time zone right?"));
        }
    }))
}

/// `[D-]HH:MM:SS` or `MM:SS`, with or without thousandths, in seconds.
fn duration(text: &str, name: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let seconds = || {
        let (days, clock) = text.split_once('-').unwrap_or(("0", text));
        let (clock, _) = clock.split_once('.').unwrap_or((clock, ""));
        let (rest, seconds) = clock.rsplit_once(':')?;
        let (hours, minutes) = rest.split_once(':').unwrap_or(("0", rest));
        let count = |text| scaled(text, 1).filter(|&count| count < 1 << 32);
        Some(((count(days)? * 24 + count(hours)?) * 60 + count(minutes)?) * 60 + count(seconds)?)
    };
    seconds().map(Some).ok_or_else(|| format!("{name} '{text}' is no duration"))
}

/// The limit in seconds; `None` where there is none (`UNLIMITED`, `Partition_Limit`).
fn timelimit(fields: &Fields<'_>) -> Result<Option<u64>, String> {
    let is_amount = |text: &str| text.starts_with(|letter: char| letter.is_ascii_digit());
    match fields.get(Field::TimelimitRaw) {
        raw if is_amount(raw) => Ok(fields.count(Field::TimelimitRaw, "TimelimitRaw")?.map(|minutes| minutes * 60)),
        _ => {
            duration(Some(fields.get(Field::Timelimit)).filter(|text| is_amount(text)).unwrap_or_default(), "Timelimit")
        }
    }
}
