//! The text that `sacct -P` prints: a header and one row a line, fields between `|`.
//!
//! Columns come in any order; those that are not known are passed over. Times are the site's local time without an
//! offset, or seconds since 1970 (`SLURM_TIME_FORMAT=%s`), or carry an offset. sacct quotes nothing, so a job's name
//! with a `|` in it makes a row of too many fields, unless the name is the last column.

use crate::lines::{self, Lines, LinesError};
use crate::times::{Times, Written};
use crate::tres::{Tres, scaled};
use crate::{Entry, JobRun, Reject, nodelist};
use jiff::tz::TimeZone;
use std::io::Read;

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
    #[error(transparent)]
    Read(#[from] LinesError),
    /// The first line is no header, or lacks a column that nothing can stand in for.
    #[error(
        "{name} is not what 'sacct -P' prints: expected a header with {missing}, found {found}"
    )]
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
    ("reservation", Field::Reservation),
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

/// A column that is read.
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
    Reservation,
}

const FIELDS: usize = Field::Reservation as usize + 1;

/// The rows of one text, in order. An `Err` is the last item.
pub struct Reader<'i> {
    lines: Lines<'i>,
    options: Options,
    columns: Vec<Option<Field>>,
    header: String,
}

impl<'i> Reader<'i> {
    /// Reads up to the header. A gzip file is known by its first bytes. `name` is what errors call the text.
    ///
    /// # Errors
    /// [`SacctError::Header`] where this is no sacct output, [`SacctError::Read`] where it cannot be read at all.
    pub fn open(input: impl Read + 'i, name: &str, options: Options) -> Result<Self, SacctError> {
        let mut lines = Lines::open(input, name)?;
        let header = match &options.columns {
            Some(columns) => columns.join("|"),
            None => {
                let header = lines.next().transpose()?.unwrap_or_default();
                String::from_utf8_lossy(header)
                    .trim_start_matches('\u{feff}')
                    .to_owned()
            }
        };
        let columns: Vec<_> = header.split('|').map(column).collect();
        let missing: Vec<&str> = REQUIRED
            .iter()
            .filter(|(_, field)| !columns.contains(&Some(*field)))
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
            columns,
            header,
        })
    }

    fn entry(&self, row: &str) -> Entry {
        match self.parse(row) {
            Ok(entry) => entry,
            Err(reason) => Entry::Rejected(Reject {
                line: Some(self.lines.line()),
                reason,
                text: row.to_owned(),
            }),
        }
    }

    fn parse(&self, row: &str) -> Result<Entry, String> {
        entry_of(&self.split(row)?, &self.options)
    }

    /// The row's known fields by column. Separators beyond the last column belong to it if it is the name.
    fn split<'r>(&self, row: &'r str) -> Result<Fields<'r>, String> {
        let mut fields = Fields([""; FIELDS]);
        let name_is_last = self.columns.last() == Some(&Some(Field::JobName));
        let most = if name_is_last {
            self.columns.len()
        } else {
            usize::MAX
        };
        let mut found = 0;
        for value in row.splitn(most, '|') {
            let value = value.trim_ascii();
            // Of two columns that say the same (`NCPUS`, `AllocCPUS`) an empty one says nothing.
            if let Some(Some(field)) = self.columns.get(found).filter(|_| !value.is_empty()) {
                fields.0[*field as usize] = value;
            }
            found += 1;
        }
        if found == self.columns.len() {
            Ok(fields)
        } else {
            Err(format!(
                "expected {} fields, found {found}",
                self.columns.len()
            ))
        }
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Entry, SacctError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let row = match self.lines.next()? {
                Ok(row) => row,
                Err(error) => return Some(Err(error.into())),
            };
            // Files are often put together with `cat`: a header that comes again says nothing.
            if row.is_empty() || row.eq_ignore_ascii_case(self.header.as_bytes()) {
                continue;
            }
            let row = self.lines.text();
            return Some(Ok(self.entry(&row)));
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

/// What one row says, in sacct's words. Other sources put theirs in these words, so that one set of rules reads all.
pub(super) fn entry_of(fields: &Fields<'_>, options: &Options) -> Result<Entry, String> {
    let job_id = fields.get(Field::JobId);
    let array = job_id.split_once("_[");
    // Only a step has a dot: `123.batch`, `123_4.0`, `123+1.extern`.
    if array.map_or(job_id, |(array, _)| array).contains('.') {
        return Ok(Entry::Step);
    }
    if !job_id.starts_with(|letter: char| letter.is_ascii_digit()) {
        return Err(format!("JobID '{job_id}' is no number"));
    }
    let run = run(fields, options)?;
    let Some((array, tasks)) = array else {
        let raw_job_id = fields.text(Field::JobIdRaw).filter(|raw| raw != job_id);
        return Ok(Entry::Run(JobRun {
            job_id: job_id.to_owned(),
            raw_job_id,
            ..run
        }));
    };
    // `17_[5-9%2]`: tasks that were never split off, at most two of them at a time.
    let tasks = tasks
        .strip_suffix(']')
        .map(|tasks| tasks.split_once('%').map_or(tasks, |(tasks, _)| tasks));
    let tasks = tasks
        .and_then(|tasks| nodelist::ranges(tasks, MAX_TASKS))
        .ok_or_else(|| format!("JobID '{job_id}' does not name its tasks"))?;
    let job_ids = tasks
        .into_iter()
        .map(|task| format!("{array}_{task}"))
        .collect();
    Ok(Entry::Tasks { run, job_ids })
}

/// The values of one row by column; empty where there is no such column.
pub(super) struct Fields<'r>([&'r str; FIELDS]);

impl<'r> Fields<'r> {
    /// Of these columns.
    pub fn of(values: &[(Field, &'r str)]) -> Self {
        let mut fields = Self([""; FIELDS]);
        values
            .iter()
            .for_each(|(field, value)| fields.0[*field as usize] = value);
        fields
    }

    /// The field, or `""` where there is no such column.
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
                .ok_or_else(|| format!("{name} '{text}' is no number")),
        }
    }
}

/// A row's run, without its id.
fn run(fields: &Fields<'_>, options: &Options) -> Result<JobRun, String> {
    let state = fields
        .get(Field::State)
        .split_ascii_whitespace()
        .next()
        .unwrap_or_default();
    if state.is_empty() {
        return Err("State is empty".to_owned());
    }
    let tres =
        Tres::parse(fields.get(Field::AllocTres)).map_err(|error| format!("Alloc{error}"))?;
    let suspended = duration(fields.get(Field::Suspended), "Suspended")?;
    let elapsed = match fields.count(Field::ElapsedRaw, "ElapsedRaw")? {
        None => duration(fields.get(Field::Elapsed), "Elapsed")?,
        raw => raw,
    };
    let written = Written {
        submit: fields.get(Field::Submit),
        eligible: fields.get(Field::Eligible),
        start: fields.get(Field::Start),
        end: fields.get(Field::End),
    };
    let times = Times::of(
        &written,
        &options.zone,
        elapsed.map(|ran| ran + suspended.unwrap_or(0)),
    )?;
    let node_list = fields.text(Field::NodeList).filter(|list| list != NO_NODES);
    let never_started = state == "PENDING"
        || fields.get(Field::NodeList) == NO_NODES
        // Slurm gives a job that left the queue unstarted its end for a start.
        || (tres.is_none() && times.start == times.end && ["CANCELLED", "DEADLINE", "REVOKED"].contains(&state));
    // After a resize the job has a record of its own from then on, which slurmdbd gives the old start: what it held
    // before is told by the record that ended with the resize.
    let resized = times
        .start
        .map_or(0, |start| u64::try_from(times.submit - start).unwrap_or(0));
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
        ..JobRun::default()
    };
    if start.is_none() {
        return Ok(run);
    }
    // Without AllocTRES the plain columns stand in, and nobody counted GPUs.
    let tres = tres.unwrap_or_default();
    let cpus = tres.cpus.or(fields.count(Field::NCpus, "NCPUS")?);
    if cpus.is_none() {
        return Err("neither AllocTRES nor NCPUS says what it held".to_owned());
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

/// What sacct writes for the nodes of a job that has none.
pub(super) const NO_NODES: &str = "None assigned";

/// The states of a run that has left its nodes or the queue for good.
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

/// `[D-]HH:MM:SS` or `MM:SS`, with or without thousandths, in seconds.
pub(super) fn duration(text: &str, name: &str) -> Result<Option<u64>, String> {
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
    seconds()
        .map(Some)
        .ok_or_else(|| format!("{name} '{text}' is no duration"))
}

/// The limit in seconds; `None` where there is none (`UNLIMITED`, `Partition_Limit`).
fn timelimit(fields: &Fields<'_>) -> Result<Option<u64>, String> {
    let is_amount = |text: &str| text.starts_with(|letter: char| letter.is_ascii_digit());
    match fields.get(Field::TimelimitRaw) {
        raw if is_amount(raw) => Ok(fields
            .count(Field::TimelimitRaw, "TimelimitRaw")?
            .map(|minutes| minutes * 60)),
        _ => duration(
            Some(fields.get(Field::Timelimit))
                .filter(|text| is_amount(text))
                .unwrap_or_default(),
            "Timelimit",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::MAX_LINE_BYTES;
    use crate::time_zone;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use jiff::Timestamp;
    use std::error::Error;
    use std::io::{Cursor, Write};

    const HEADER: &str =
        "JobID|User|Submit|Start|End|State|AllocTRES|NCPUS|NNodes|NodeList|ElapsedRaw";

    fn options(zone: &str) -> Options {
        Options {
            cluster: Cluster::Named("lab".into()),
            zone: time_zone(zone).unwrap(),
            columns: None,
        }
    }

    fn open(text: impl AsRef<[u8]>) -> Result<Reader<'static>, SacctError> {
        Reader::open(
            Cursor::new(text.as_ref().to_vec()),
            "jobs.txt",
            options("Europe/Oslo"),
        )
    }

    fn entries(text: impl AsRef<[u8]>) -> Vec<Entry> {
        open(text).unwrap().map(Result::unwrap).collect()
    }

    /// The one run of a row under `HEADER`.
    fn run_of(row: &str) -> JobRun {
        let entries = entries(format!("{HEADER}\n{row}\n"));
        let [Entry::Run(run)] = entries.as_slice() else {
            panic!("{row}: {entries:?}")
        };
        run.clone()
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn at(instant: &str) -> i64 {
        instant.parse::<Timestamp>().unwrap().as_second()
    }

    const ROW: &str = "7|ann|2026-09-01T10:00:00|2026-09-01T10:05:00|2026-09-01T11:05:00|COMPLETED|\
         cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=8G,node=1|4|1|g1|3600";

    #[test]
    fn a_run() {
        let expected = JobRun {
            cluster: "lab".into(),
            job_id: "7".into(),
            submit: at("2026-09-01T08:00:00Z"),
            start: Some(at("2026-09-01T08:05:00Z")),
            end: Some(at("2026-09-01T09:05:00Z")),
            state: "COMPLETED".into(),
            user: "ann".into(),
            nodes: Some(1),
            cpus: Some(4),
            gpus: Some(2),
            gpu_model: Some("a100".into()),
            mem_bytes: Some(8 << 30),
            alloc_tres: Some("cpu=4,gres/gpu:a100=2,gres/gpu=2,mem=8G,node=1".into()),
            node_list: Some("g1".into()),
            elapsed: Some(3600),
            ..JobRun::default()
        };
        assert_eq!(run_of(ROW), expected);
    }

    #[test]
    fn columns_come_in_any_order_and_case_and_unknown_ones_are_passed_over() {
        let text = "\u{feff}STATE|end|Start|submit|Comment|user|JobID|QOS|Cluster|TimelimitRaw|Suspended|JobName\r\n\
                    COMPLETED|1788250200|1788249600|1788249000|x|ann|7|normal|other|90|1-00:00:05|a|b\r\n";
        let error = open(text).unwrap().next().unwrap().unwrap();
        assert!(
            matches!(&error, Entry::Rejected(reject) if reject.reason == "neither AllocTRES nor NCPUS says what it held")
        );
        let entries = entries(text.replace("Comment", "NCPUS").replace("|x|", "|12|"));
        let [Entry::Run(run)] = entries.as_slice() else {
            panic!("{entries:?}")
        };
        assert_eq!(
            (run.submit, run.start, run.end),
            (1_788_249_000, Some(1_788_249_600), Some(1_788_250_200))
        );
        assert_eq!(
            (run.cpus, run.nodes, run.gpus),
            (Some(12), None, None),
            "GPUs that nobody counted are unknown"
        );
        assert_eq!((run.timelimit, run.suspended), (Some(5400), Some(86_405)));
        assert_eq!(
            (run.cluster.as_str(), run.name.as_deref()),
            ("lab", Some("a|b"))
        );
    }

    #[test]
    fn a_text_without_header_is_told_its_columns() {
        let columns = "JobID|User|Submit|Start|End|State|NCPUS"
            .split('|')
            .map(str::to_owned)
            .collect();
        let options = Options {
            columns: Some(columns),
            cluster: Cluster::Column("here".into()),
            ..options("UTC")
        };
        let row = "7|ann|2026-09-01T10:00:00Z|2026-09-01T12:00:00+02:00|2026-09-01T11:00:00.5Z|FAILED|1\n";
        let mut reader = Reader::open(row.as_bytes(), "-", options).unwrap();
        let Some(Ok(Entry::Run(run))) = reader.next() else {
            panic!()
        };
        assert_eq!(
            (run.end.unwrap() - run.submit, run.start),
            (3600, Some(run.submit))
        );
        assert_eq!(run.cluster, "here");
        assert!(reader.next().is_none());
    }

    #[test]
    fn steps_blank_lines_and_repeated_headers_are_no_runs() {
        let text = format!(
            "{HEADER}\n{ROW}\n7.batch||||||||||\n7.0||||||||||\n7_3.extern||||||||||\n\n{HEADER}\n{ROW}\n"
        );
        let entries = entries(text);
        assert_eq!(entries.len(), 5);
        assert_eq!(
            entries
                .iter()
                .filter(|entry| **entry == Entry::Step)
                .count(),
            3
        );
    }

    #[test]
    fn runs_that_never_got_a_node_hold_nothing() {
        for row in [
            "8|ann|2026-09-01T10:00:00|Unknown|Unknown|PENDING||4|1|None assigned|0",
            "8|ann|2026-09-01T10:00:00|None|2026-09-01T10:30:00|CANCELLED by 61003||4|1|None assigned|0",
            "8|ann|2026-09-01T10:00:00|2026-09-01T10:30:00|2026-09-01T10:30:00|CANCELLED by 61003||4|1||0",
            "8|ann|2026-09-01T10:00:00|2026-09-01T10:30:00|2026-09-01T10:30:00|CANCELLED|cpu=4|4|1|None assigned|0",
        ] {
            let run = run_of(row);
            assert_eq!(
                (run.start, run.cpus, run.gpus, run.nodes, run.node_list),
                (None, None, None, None, None),
                "{row}"
            );
            assert!(["PENDING", "CANCELLED"].contains(&run.state.as_str()));
        }
        // One that was cancelled in its first second did get one.
        let row = "8|ann|2026-09-01T10:00:00|2026-09-01T10:30:00|2026-09-01T10:30:00|CANCELLED|cpu=4,node=1|4|1|g1|0";
        assert_eq!(
            (run_of(row).start, run_of(row).cpus),
            (Some(at("2026-09-01T08:30:00Z")), Some(4))
        );
    }

    #[test]
    fn plain_columns_stand_in_for_alloctres() {
        let row = "8|ann|2026-09-01T10:00:00|2026-09-01T10:05:00|Unknown|RUNNING||16|2|g[1-2]|99";
        let run = run_of(row);
        assert_eq!(
            (run.cpus, run.nodes, run.gpus, run.mem_bytes),
            (Some(16), Some(2), None, None)
        );
        assert_eq!(
            (run.end, run.elapsed),
            (None, None),
            "how long it has run is not known until it ends"
        );
        // An AllocTRES without GPUs says that there were none.
        assert_eq!(
            run_of(&row.replace("RUNNING||", "RUNNING|cpu=16,node=2|")).gpus,
            Some(0)
        );
    }

    #[test]
    fn an_arrays_tasks_are_runs() {
        let row =
            "17_[5-6,9%2]|ann|2026-09-01T10:00:00|Unknown|Unknown|PENDING||1|1|None assigned|0";
        let entries = entries(format!("{HEADER}\n{row}\n"));
        let [Entry::Tasks { run, job_ids }] = entries.as_slice() else {
            panic!("{entries:?}")
        };
        assert_eq!(
            (job_ids.join(" ").as_str(), run.start, run.user.as_str()),
            ("17_5 17_6 17_9", None, "ann")
        );
        assert_eq!(run_of(&ROW.replacen('7', "17_4", 1)).job_id, "17_4");
        assert_eq!(run_of(&ROW.replacen('7', "123+1", 1)).job_id, "123+1");
    }

    /// 2026-10-25, 03:00 CEST → 02:00 CET: the hour from 00:00Z to 01:00Z comes again from 01:00Z to 02:00Z.
    #[test]
    fn an_hour_that_comes_twice_is_settled_by_how_long_the_run_was() {
        for (submit, start, end, elapsed, expected) in [
            // The end lies in the hour: before or after the change.
            (
                "00:30:00",
                "01:00:00",
                "02:30:00",
                "5400",
                ("2026-10-24T23:00:00Z", "2026-10-25T00:30:00Z"),
            ),
            (
                "00:30:00",
                "01:00:00",
                "02:30:00",
                "9000",
                ("2026-10-24T23:00:00Z", "2026-10-25T01:30:00Z"),
            ),
            // The start does.
            (
                "00:30:00",
                "02:30:00",
                "04:00:00",
                "9000",
                ("2026-10-25T00:30:00Z", "2026-10-25T03:00:00Z"),
            ),
            (
                "00:30:00",
                "02:30:00",
                "04:00:00",
                "5400",
                ("2026-10-25T01:30:00Z", "2026-10-25T03:00:00Z"),
            ),
            // Both do; the clock seems to run backwards.
            (
                "00:30:00",
                "02:50:00",
                "02:10:00",
                "1200",
                ("2026-10-25T00:50:00Z", "2026-10-25T01:10:00Z"),
            ),
            // Both do and either passage fits: the first.
            (
                "00:30:00",
                "02:10:00",
                "02:50:00",
                "2400",
                ("2026-10-25T00:10:00Z", "2026-10-25T00:50:00Z"),
            ),
            // Nothing says how long it was: the first passage that keeps the order.
            (
                "00:30:00",
                "02:50:00",
                "02:10:00",
                "",
                ("2026-10-25T00:50:00Z", "2026-10-25T01:10:00Z"),
            ),
            (
                "02:40:00",
                "02:20:00",
                "02:30:00",
                "",
                ("2026-10-25T01:20:00Z", "2026-10-25T01:30:00Z"),
            ),
        ] {
            let row = format!(
                "7|ann|2026-10-25T{submit}|2026-10-25T{start}|2026-10-25T{end}|COMPLETED|cpu=1,node=1|1|1|g1|{elapsed}"
            );
            let run = run_of(&row);
            assert_eq!(
                (run.start, run.end),
                (Some(at(expected.0)), Some(at(expected.1))),
                "{row}"
            );
        }
    }

    /// Slurm 22.05: what follows a resize was submitted then, and began before.
    #[test]
    fn what_was_held_before_a_resize_is_not_held_twice() {
        let text = "JobID|User|Submit|Start|End|State|NCPUS|NNodes|ElapsedRaw\n\
                    14|bob|1795280453|1795280454|1795280457|RESIZING|2|2|3\n\
                    14|bob|1795280457|1795280454|1795280474|COMPLETED|1|1|20\n";
        let held: Vec<_> = entries(text)
            .into_iter()
            .map(|entry| match entry {
                Entry::Run(run) => (run.submit, run.start, run.end, run.elapsed, run.cpus),
                other => panic!("{other:?}"),
            })
            .collect();
        let at = 1_795_280_454;
        assert_eq!(
            held,
            [
                (at - 1, Some(at), Some(at + 3), Some(3), Some(2)),
                (at + 3, Some(at + 3), Some(at + 20), Some(17), Some(1))
            ]
        );
    }

    #[test]
    fn suspension_counts_when_an_hour_is_settled() {
        let text = "JobID|User|Submit|Start|End|State|NCPUS|ElapsedRaw|Suspended\n\
                    7|ann|2026-10-25T00:30:00|2026-10-25T01:00:00|2026-10-25T02:30:00|COMPLETED|1|5400|01:00:00\n";
        let entries = entries(text);
        let [Entry::Run(run)] = entries.as_slice() else {
            panic!("{entries:?}")
        };
        assert_eq!(run.end, Some(at("2026-10-25T01:30:00Z")));
    }

    #[test]
    fn bad_rows_are_set_aside_with_their_line_and_reason() {
        for (row, reason) in [
            (
                "7|ann|2026-09-01T10:00:00|COMPLETED",
                "expected 11 fields, found 4",
            ),
            (&format!("{ROW}|more"), "expected 11 fields, found 12"),
            (&ROW.replacen('7', "job", 1), "JobID 'job' is no number"),
            (&ROW.replacen('7', "", 1), "JobID '' is no number"),
            (
                &ROW.replacen('7', "17_[1,3,...]", 1),
                "JobID '17_[1,3,...]' does not name its tasks",
            ),
            (
                &ROW.replacen("2026-09-01T10:00:00", "yesterday", 1),
                "Submit 'yesterday' is no time",
            ),
            (
                &ROW.replacen("2026-09-01T10:00:00", "Unknown", 1),
                "Submit is missing",
            ),
            (
                &ROW.replacen("2026-09-01T10:05:00", "2026-09-01T11:06:00", 1),
                "End is before Start",
            ),
            (
                &ROW.replacen("2026-09-01T10:05:00", "2026-03-29T02:30:00", 1),
                "Start '2026-03-29T02:30:00' does not exist in Europe/Oslo; is the time zone right?",
            ),
            (
                &ROW.replacen("2026-09-01T11:05:00", "Unknown", 1),
                "State is COMPLETED, but End is 'Unknown'",
            ),
            (&ROW.replacen("COMPLETED", "", 1), "State is empty"),
            (
                &ROW.replacen("cpu=4", "cpu", 1),
                "AllocTRES 'cpu' is not NAME=AMOUNT",
            ),
            (
                &ROW.replacen("3600", "an hour", 1),
                "ElapsedRaw 'an hour' is no number",
            ),
            (
                "7|ann|2026-09-01T10:00:00|2026-09-01T10:05:00|2026-09-01T11:05:00|FAILED||||g1|3600",
                "neither AllocTRES nor NCPUS says what it held",
            ),
        ] {
            let entries = entries(format!("{HEADER}\n{ROW}\n{row}\n{ROW}\n"));
            let expected = Reject {
                line: Some(3),
                reason: reason.into(),
                text: row.into(),
            };
            assert_eq!(entries[1], Entry::Rejected(expected), "{row}");
            assert!(
                matches!((&entries[0], &entries[2]), (Entry::Run(_), Entry::Run(_))),
                "{row}"
            );
        }
        // What is no UTF-8 is set aside or read, never a reason to stop.
        let mut text = format!("{HEADER}\n").into_bytes();
        text.extend(
            ROW.replace("ann", "an\u{1}")
                .bytes()
                .map(|byte| if byte == 1 { 0xe9 } else { byte }),
        );
        let entries = entries(text);
        assert!(
            matches!(&entries[0], Entry::Run(run) if run.user == "an\u{fffd}"),
            "{entries:?}"
        );
    }

    #[test]
    fn what_is_no_sacct_output_is_refused_in_one_line() {
        let binary = [0x7f, b'E', b'L', b'F', 2, 1, 0, 0, b'\n', 0];
        for (text, message) in [
            (
                &b""[..],
                "expected a header with JobID, User, Submit, Start, End, State, found an empty line or nothing",
            ),
            (
                b"<!DOCTYPE html>\n<html>",
                "JobID, User, Submit, Start, End, State, found '<!DOCTYPE html>'",
            ),
            (&binary, r"found '\u{7f}ELF\u{2}\u{1}\0\0'"),
            (
                b"JobIDRaw|User|Submit|Start|End|State\n7|a|b|c|d|e",
                "a header with JobID, found 'JobIDRaw|User|Submit",
            ),
            (
                b"JobID|User|Start|End|State\n",
                "a header with Submit, found 'JobID|User|Start|End|State'",
            ),
            (
                b"JobID    User   Submit\n",
                "State, found 'JobID    User   Submit'",
            ),
        ] {
            let message_of = open(text).err().expect("refused").to_string();
            assert!(
                message_of
                    .starts_with("jobs.txt is not what 'sacct -P' prints: expected a header with "),
                "{message_of}"
            );
            assert!(message_of.contains(message), "{message_of}");
        }
    }

    #[test]
    fn gzip_is_known_by_its_magic() {
        let mut two_members = gzip(&format!("{HEADER}\n{ROW}\n"));
        two_members.extend(gzip(&format!("{ROW}\n")));
        assert_eq!(entries(two_members).len(), 2);
    }

    #[test]
    fn a_truncated_gzip_ends_in_an_error_that_names_the_file() {
        let whole = gzip(&format!("{HEADER}\n{}", format!("{ROW}\n").repeat(2000)));
        let cut = &whole[..whole.len() - 20];
        let last = open(cut).unwrap().last().unwrap().unwrap_err();
        assert!(
            last.to_string()
                .starts_with("cannot read jobs.txt after line "),
            "{last}"
        );
        assert_eq!(
            last.source().unwrap().to_string(),
            "the gzip data end in the middle"
        );
        // Even before the header.
        let Err(error) = open(&whole[..12]) else {
            panic!("opened")
        };
        assert_eq!(error.to_string(), "cannot read jobs.txt after line 0");
        let mut broken = whole.clone();
        broken[whole.len() / 2] ^= 0xff;
        assert!(open(broken).unwrap().last().unwrap().is_err());
    }

    #[test]
    fn a_row_without_end_is_refused() {
        let mut text = format!("{HEADER}\n").into_bytes();
        text.resize(
            text.len() + usize::try_from(MAX_LINE_BYTES).unwrap() + 1,
            b'x',
        );
        let error = open(text).unwrap().next().unwrap().unwrap_err();
        assert!(
            error
                .source()
                .unwrap()
                .to_string()
                .starts_with("line 2 is longer than"),
            "{error:?}"
        );
    }

    #[test]
    fn durations_and_limits() {
        for (text, seconds) in [
            ("00:01:26", 86),
            ("1-00:00:05", 86_405),
            ("12:30", 750),
            ("00:02.004", 2),
            ("100:00:00", 360_000),
        ] {
            assert_eq!(duration(text, "Elapsed"), Ok(Some(seconds)), "{text}");
        }
        for text in ["INVALID", "5", "1:2:3:4", "1--2:00:00", ":", "1-"] {
            assert_eq!(
                duration(text, "Elapsed"),
                Err(format!("Elapsed '{text}' is no duration"))
            );
        }
        let limit = |raw, formatted| {
            let mut fields = Fields([""; FIELDS]);
            fields.0[Field::TimelimitRaw as usize] = raw;
            fields.0[Field::Timelimit as usize] = formatted;
            timelimit(&fields).unwrap()
        };
        assert_eq!(limit("90", ""), Some(5400));
        assert_eq!(limit("", "01:30:00"), Some(5400));
        assert_eq!(limit("UNLIMITED", "UNLIMITED"), None);
        assert_eq!(limit("Partition_Limit", ""), None);
        assert_eq!(limit("", ""), None);
    }
}
