//! Parser of the file that Slurm writes without slurmdbd (`JobCompType=jobcomp/filetxt`): one line
//! for each finished run.
//!
//! A line is a list of `KEY=VALUE` separated by blanks. Job names and directories may contain
//! blanks and line feeds, so a value ends where the next key begins, and a record ends with its last
//! key. A record in which a key occurs twice can be read in two ways and is rejected. Slurm does not
//! escape: a name that contains the end of one record and the beginning of another makes two complete
//! records, which no reader can tell from true ones. So the file may add records, and may not change
//! those of finished runs. Times are local. Without slurmdbd Slurm does
//! not write GPUs into `Tres`: a line without GPUs means that their number is unknown. Users and
//! times are exact. A requeued run has `JobState=PENDING`.

use crate::lines::{self, Lines, LinesError, MAX_LINE_BYTES, beginning};
use crate::sacct::{Cluster, OVER};
use crate::times::{RunTimes, WrittenTimes};
use crate::tres::TresCounts;
use crate::{Entry, JobRun, Reject};
use jiff::tz::TimeZone;
use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use takt_model::UnixTime;

/// Settings for facts that the file lacks.
#[derive(Debug, Clone)]
pub struct Options {
    /// Cluster of the jobs. Without slurmdbd Slurm writes `Cluster=unknown`.
    pub cluster: Cluster,
    /// Time zone of the file's timestamps.
    pub zone: TimeZone,
    /// Default accounts by user, for runs without an account.
    pub accounts: HashMap<String, String>,
    /// Resized jobs, carried from one part of a file to the next.
    pub resized: Resized,
}

/// Time of the last resize, by job id and submission. Slurm writes one line at each resize with the
/// previous allocation but without its start, and one line at the end with the last allocation.
pub type Resized = Arc<Mutex<HashMap<(String, UnixTime), UnixTime>>>;

/// Error while reading a jobcomp file.
#[derive(Debug, thiserror::Error)]
pub enum JobcompError {
    /// Reading failed.
    #[error(transparent)]
    Read(#[from] LinesError),
    /// The first line does not have jobcomp's format.
    #[error("{name} is not what jobcomp/filetxt writes: expected JobId=…, found {found}")]
    Format {
        /// File name.
        name: String,
        /// Beginning of the line.
        found: String,
    },
}

/// Iterator over the runs of one file, in order. An `Err` is the last item.
pub struct Reader<'i> {
    lines: Lines<'i>,
    name: String,
    options: Options,
    any: bool,
}

impl<'i> Reader<'i> {
    /// Opens a file, which may be gzip-compressed. `name` is the file's name in errors.
    ///
    /// # Errors
    /// [`JobcompError::Read`] if the file cannot be read.
    pub fn open(input: impl Read + 'i, name: &str, options: Options) -> Result<Self, JobcompError> {
        Ok(Self {
            lines: Lines::open(input, name)?,
            name: name.to_owned(),
            options,
            any: false,
        })
    }
}

impl Reader<'_> {
    /// Reads the further lines of a record that has begun. Returns why the record is unusable, if it
    /// is.
    fn finish(&mut self, record: &mut String) -> Result<Option<String>, LinesError> {
        let mut last_line = 0;
        let mut more = 0;
        while position(&record[last_line..], LAST_KEY).is_none() && !self.lines.is_cut() {
            match self.lines.next() {
                None => break,
                Some(line) => line?,
            };
            // Older versions of Slurm write no exit codes.
            let is_complete = position(&record[last_line..], OLDER_LAST_KEY).is_some();
            if is_complete && self.lines.text().starts_with(FIRST_KEY) {
                self.lines.put_back();
                break;
            }
            last_line = record.len();
            record.push('\n');
            record.push_str(&self.lines.text());
            more += 1;
            if more == MAX_RECORD_LINES || record.len() as u64 > MAX_LINE_BYTES {
                return Ok(Some(lines::too_long()));
            }
        }
        Ok(self.lines.is_cut().then(lines::too_long))
    }

    fn entry(&self, line: u64, record: &str, unusable: Option<String>) -> Entry {
        let parsed = match unusable {
            Some(reason) => Err(reason),
            None => run(record, &self.options),
        };
        match parsed {
            Ok(run) => Entry::Run(since_resize(run, &self.options.resized)),
            Err(reason) => Entry::Rejected(Reject::new(Some(line), reason, record)),
        }
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<Entry, JobcompError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.lines.next()? {
                Ok(line) if line.trim_ascii().is_empty() => continue,
                Ok(_) => {}
                Err(error) => return Some(Err(error.into())),
            }
            let line = self.lines.line();
            let mut record = self.lines.text().into_owned();
            if !record.starts_with(FIRST_KEY) {
                if !self.any {
                    let found = beginning(&record);
                    return Some(Err(JobcompError::Format {
                        name: self.name.clone(),
                        found,
                    }));
                }
                let reason = "the rest of a record whose end is unclear".to_owned();
                return Some(Ok(self.entry(line, &record, Some(reason))));
            }
            self.any = true;
            return Some(match self.finish(&mut record) {
                Ok(unusable) => Ok(self.entry(line, &record, unusable)),
                Err(error) => Err(error.into()),
            });
        }
    }
}

/// Begin of each record.
const FIRST_KEY: &str = "JobId=";

/// Last key of each record.
const LAST_KEY: &str = "ExitCode";

/// Last key of each record of Slurm without exit codes.
const OLDER_LAST_KEY: &str = "EligibleTime";

/// Maximum number of lines of one record: job names have at most 1024 bytes, directories 4096.
const MAX_RECORD_LINES: u32 = 8192;

/// Keys in the order in which Slurm writes them. Missing keys are skipped.
const KEYS: &[&str] = &[
    "JobId",
    "UserId",
    "GroupId",
    "Name",
    "JobState",
    "Partition",
    "TimeLimit",
    "StartTime",
    "EndTime",
    "NodeList",
    "NodeCnt",
    "ProcCnt",
    "WorkDir",
    "ReservationName",
    "Tres",
    "Account",
    "QOS",
    "WcKey",
    "Cluster",
    "SubmitTime",
    "EligibleTime",
    "ArrayJobId",
    "ArrayTaskId",
    "HetJobId",
    "HetJobOffset",
    "PackJobId",
    "PackJobOffset",
    "DerivedExitCode",
    "ExitCode",
];

/// Keys whose values may contain blanks.
const FREE: &[&str] = &["Name", "WorkDir"];

/// Returns the values of a record by key. Fails if a key occurs twice: then a text of a user contains
/// it, and its end is ambiguous.
fn fields(record: &str) -> Result<HashMap<&'static str, &str>, String> {
    let mut fields = HashMap::new();
    let mut rest = record.trim_end();
    if let Some(key) = KEYS.iter().find(|key| occurs_twice(rest, key)) {
        return Err(format!(
            "{key}= occurs twice, so it is unclear where a text ends"
        ));
    }
    let mut keys = KEYS.iter().copied();
    while let Some(key) = keys.next() {
        let Some(value) = rest
            .strip_prefix(key)
            .and_then(|rest| rest.strip_prefix('='))
        else {
            continue;
        };
        // The value ends where the next key of the record begins.
        let end = keys.clone().filter_map(|next| position(value, next)).min();
        let mut taken = &value[..end.unwrap_or(value.len())];
        rest = value[taken.len()..].trim_start();
        if !FREE.contains(&key) {
            // Newer versions of Slurm may add keys here.
            taken = taken.split(' ').next().unwrap_or_default();
        }
        fields.insert(key, taken);
    }
    match rest {
        "" => Ok(fields),
        rest => Err(format!(
            "unexpected text '{}'",
            rest.chars().take(40).collect::<String>()
        )),
    }
}

/// Returns the positions at which `KEY=` begins in a text, after white space.
fn positions<'t>(text: &'t str, key: &'t str) -> impl Iterator<Item = usize> {
    text.match_indices(key).map(|(at, _)| at).filter(move |at| {
        let is_word = text[..*at].ends_with(|letter: char| letter.is_ascii_whitespace());
        is_word && text[at + key.len()..].starts_with('=')
    })
}

/// Returns the position of the white space before `KEY=` in a text.
fn position(text: &str, key: &str) -> Option<usize> {
    positions(text, key).next().map(|at| at - 1)
}

/// Returns whether a text has `KEY=` twice; the first may begin the text.
fn occurs_twice(text: &str, key: &str) -> bool {
    let begins = text
        .strip_prefix(key)
        .is_some_and(|rest| rest.starts_with('='));
    positions(text, key).nth(usize::from(!begins)).is_some()
}

fn run(line: &str, options: &Options) -> Result<JobRun, String> {
    let fields = fields(line)?;
    let get = |key: &str| fields.get(key).copied().unwrap_or_default();
    let text = |key: &str| {
        Some(get(key))
            .filter(|text| !text.is_empty() && *text != "(null)")
            .map(str::to_owned)
    };
    let times = RunTimes::of(
        &WrittenTimes {
            submit: get("SubmitTime"),
            eligible: get("EligibleTime"),
            start: get("StartTime"),
            end: get("EndTime"),
        },
        &options.zone,
        None,
    )?;
    // `PENDING` marks a requeued job; the run in this line has ended.
    let state = match get("JobState") {
        "PENDING" => "REQUEUED",
        "" => return Err("JobState is missing".to_owned()),
        state => state,
    };
    if times.end.is_none() && OVER.contains(&state) {
        return Err(format!(
            "JobState is {state}, but EndTime is '{}'",
            get("EndTime")
        ));
    }
    let node_list = text("NodeList");
    let (user, _) = get("UserId").split_once('(').unwrap_or((get("UserId"), ""));
    let account = text("Account").or_else(|| options.accounts.get(user).cloned());
    let job_id = job_id(&get)?;
    let run = JobRun {
        cluster: match &options.cluster {
            Cluster::Named(name) => name.clone(),
            Cluster::Column(name) => text("Cluster")
                .filter(|named| named != "unknown")
                .unwrap_or_else(|| name.clone()),
        },
        raw_job_id: text("JobId").filter(|raw| *raw != job_id),
        job_id,
        submit: times.submit,
        eligible: times.eligible,
        start: times.start.filter(|_| node_list.is_some()),
        end: times.end,
        state: state.to_owned(),
        user: user.to_owned(),
        account: account.unwrap_or_default(),
        partition: get("Partition").to_owned(),
        qos: text("QOS"),
        name: text("Name"),
        reservation: text("ReservationName"),
        node_list,
        timelimit: get("TimeLimit")
            .parse::<u64>()
            .ok()
            .and_then(|minutes| minutes.checked_mul(60)),
        exit_code: text("ExitCode"),
        ..JobRun::default()
    };
    let (Some(start), Some(end)) = (run.start, run.end) else {
        return Ok(JobRun {
            req_tres: text("Tres"),
            ..run
        });
    };
    let tres = TresCounts::parse(get("Tres"))
        .map_err(|error| error.to_string())?
        .unwrap_or_default();
    let count = |key: &str| get(key).parse::<u64>().ok();
    let cpus = count("ProcCnt").or(tres.cpus);
    // After a resize, `Tres` has the amounts of before.
    let is_stale = tres.cpus.is_some_and(|before| cpus != Some(before));
    let tres = if is_stale {
        TresCounts::default()
    } else {
        tres
    };
    // Without GPUs in `Tres` their number is unknown, not 0.
    let gpus = tres.gpus.filter(|_| get("Tres").contains("gres/gpu"));
    Ok(JobRun {
        nodes: tres.nodes.or_else(|| count("NodeCnt")),
        cpus,
        gpus,
        gpu_model: tres.gpu_model,
        mem_bytes: tres.mem_bytes,
        billing: tres.billing,
        alloc_tres: text("Tres").filter(|_| !is_stale),
        elapsed: u64::try_from(end - start).ok(),
        ..run
    })
}

/// Corrects the start of a resized run, and stores the time of a resize for the next line of the
/// same job.
fn since_resize(run: JobRun, resized: &Resized) -> JobRun {
    let mut resized = resized.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (run.job_id.clone(), run.submit);
    let (before, is_last) = match run.end.filter(|_| run.state == "RESIZING") {
        Some(end) => (resized.insert(key, end), false),
        None => (resized.remove(&key), true),
    };
    match before {
        None if is_last => run,
        // At the first resize StartTime is the time of the resize; the real start is unknown here.
        None => JobRun {
            start: None,
            elapsed: None,
            ..run
        },
        Some(at) => JobRun {
            submit: at,
            eligible: Some(at),
            start: Some(at),
            elapsed: run.end.map(|end| end.since(at)),
            ..run
        },
    }
}

/// Returns the job id as `sacct` writes it: `123`, `123_4`, `123+1`.
fn job_id<'l>(get: &impl Fn(&str) -> &'l str) -> Result<String, String> {
    let number = |key: &str| {
        get(key)
            .parse::<u32>()
            .ok()
            .filter(|number| *number < NO_VAL)
    };
    let id = number("JobId").ok_or_else(|| format!("JobId '{}' is not a number", get("JobId")))?;
    let part =
        |of: &str, at: &str, sign: char| Some(format!("{}{sign}{}", number(of)?, number(at)?));
    Ok(part("ArrayJobId", "ArrayTaskId", '_')
        .or_else(|| part("HetJobId", "HetJobOffset", '+'))
        .or_else(|| part("PackJobId", "PackJobOffset", '+'))
        .unwrap_or_else(|| id.to_string()))
}

/// Slurm's numbers from this one on mean "not set".
const NO_VAL: u32 = 0xffff_fffe;

#[cfg(test)]
mod tests;
