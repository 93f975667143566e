//! Parser of the file that Slurm writes without slurmdbd (`JobCompType=jobcomp/filetxt`): one line
//! for each finished run.
//!
//! A line is a list of `KEY=VALUE` separated by blanks. Job names, directories, accounts and WCKeys may
//! contain blanks, line feeds and keys. Between these texts Slurm writes blocks of keys in a fixed order, with
//! values of one word, so mostly one reading is left; a record with several is set aside. Slurm does not
//! escape: a name that contains the end of one record and the beginning of another makes two complete
//! records, which no reader can tell from true ones. So the file may add records, and may not change
//! those of finished runs. Times are local. Without slurmdbd Slurm does
//! not write GPUs into `Tres`: a line without GPUs means that their number is unknown. Users and
//! times are exact. A requeued run has `JobState=PENDING`.

use crate::lines::{self, Lines, LinesError, MAX_LINE_BYTES, beginning};
use crate::sacct::{Cluster, OVER, check_state};
use crate::times::{RunTimes, WrittenTimes};
use crate::tres::TresCounts;
use jiff::tz::TimeZone;
use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use takt_jobs::{Entry, JobRun, Reject, bounded};
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
    /// Line on which the last entry began.
    line: u64,
    /// An entry that follows the last one.
    next: Option<(u64, Entry)>,
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
            line: 0,
            next: None,
        })
    }
}

impl Reader<'_> {
    /// Returns the number of the line on which the last entry began, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Reads the further lines of a record that has begun: all that do not begin a record. A record that
    /// has no end takes a line that begins one, too.
    fn finish(&mut self, text: String) -> Result<WrittenRecord, LinesError> {
        let mut record = WrittenRecord {
            complete: is_complete(&text).then_some(text.len()),
            has_two_heads: false,
            unusable: None,
            text,
        };
        let mut has_ended = has_last_key(&record.text);
        let mut more = 0;

        while !self.lines.is_cut() {
            match self.lines.next() {
                None => break,
                Some(line) => line?,
            };
            let line = self.lines.text();

            let begins = line.starts_with(FIRST_KEY);
            // Behind a complete record, a blank line belongs to nothing.
            if begins && has_ended || record.complete.is_some() && line.trim_ascii().is_empty() {
                self.lines.put_back();
                break;
            }

            // A user's text may contain a line that looks like the begin of a record. Both readings are possible then.
            record.has_two_heads |= begins;
            record.text.push('\n');
            record.text.push_str(&line);

            has_ended |= has_last_key(&line);
            if record.complete.is_none() && has_last_key(&line) && is_complete(&record.text) {
                record.complete = Some(record.text.len());
            }

            // Bounds the memory and the repeated readings of a record whose end never comes.
            more += 1;
            if more == MAX_RECORD_LINES || record.text.len() as u64 > MAX_LINE_BYTES {
                record.unusable = Some(lines::too_long());
                return Ok(record);
            }
        }
        record.unusable = self.lines.is_cut().then(lines::too_long);
        Ok(record)
    }

    /// Returns the entry of a record, and an entry for the lines behind it that do not belong to it.
    fn entries(&self, line: u64, record: &WrittenRecord) -> (Entry, Option<(u64, Entry)>) {
        let rejected =
            |line, reason, text: &str| Entry::Rejected(Reject::new(Some(line), reason, text));

        if let Some(reason) = &record.unusable {
            return (rejected(line, reason.clone(), &record.text), None);
        }
        if record.has_two_heads {
            let reason = format!(
                "{} has a line that begins another record",
                owner(&record.text)
            );

            return (rejected(line, reason, &record.text), None);
        }

        let whole = run(&record.text, &self.options);
        let (read, rest) = match record.complete.map(|end| record.text.split_at(end)) {
            // The lines are no part of the record, which ends before them.
            Some((first, rest)) if !rest.is_empty() && !is_complete(&record.text) => {
                let after = line + first.matches('\n').count() as u64 + 1;
                let reason = "the rest of a record whose end is unclear".to_owned();
                let rest = rejected(after, reason, rest.trim_start_matches('\n'));
                (run(first, &self.options), Some((after, rest)))
            }
            _ => (whole, None),
        };

        match read {
            Ok(run) => (Entry::Run(since_resize(run, &self.options.resized)), rest),
            Err(reason) => (rejected(line, reason, &record.text), None),
        }
    }
}

/// A record as it is written.
struct WrittenRecord {
    text: String,
    /// Length of the lines that together can be read as a record.
    complete: Option<usize>,
    /// Whether a further line begins as a record does.
    has_two_heads: bool,
    /// Reason why the record cannot be parsed.
    unusable: Option<String>,
}

impl Iterator for Reader<'_> {
    type Item = Result<Entry, JobcompError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((line, entry)) = self.next.take() {
            self.line = line;
            return Some(Ok(entry));
        }
        // `line` is set only where an entry begins, so that it stays on the first of the lines of a record.
        loop {
            match self.lines.next()? {
                Ok(line) if line.trim_ascii().is_empty() => continue,
                Ok(_) => {}
                Err(error) => return Some(Err(error.into())),
            }

            self.line = self.lines.line();
            let record = self.lines.text().into_owned();
            // The first line decides whether this is such a file at all; later lines may be the rest of a user's text.
            if !record.starts_with(FIRST_KEY) {
                if !self.any {
                    let found = beginning(&record);
                    return Some(Err(JobcompError::Format {
                        name: self.name.clone(),
                        found,
                    }));
                }
                let reason = "the rest of a record whose end is unclear".to_owned();
                let reject = Reject::new(Some(self.line), reason, &record);
                return Some(Ok(Entry::Rejected(reject)));
            }

            self.any = true;
            return Some(match self.finish(record) {
                Ok(record) => {
                    let (entry, next) = self.entries(self.line, &record);
                    self.next = next;
                    Ok(entry)
                }
                Err(error) => Err(error.into()),
            });
        }
    }
}

/// Returns the length of the whole records at the beginning of a part of a file that Slurm is writing. The
/// last record may have only some of its lines: texts of users may contain line feeds.
pub fn whole_records(part: &[u8]) -> usize {
    let line_ends = part.iter().enumerate().rev();
    let mut line_ends = line_ends.filter(|(_, byte)| **byte == b'\n');
    // The last line may be half written, so only whole lines count.
    let Some((last, _)) = line_ends.next() else {
        return 0;
    };

    let end = last + 1;
    // From the last head backwards. A head further back than the longest record cannot belong to the last one.
    let mut heads = line_ends
        .map(|(at, _)| at + 1)
        .chain([0])
        .filter(|at| part[*at..].starts_with(FIRST_KEY.as_bytes()))
        .take_while(|at| (end - at) as u64 <= MAX_LINE_BYTES);
    let Some(mut begin) = heads.next() else {
        return end;
    };

    // A line that begins as a record does may belong to a record that has not ended before it.
    for head in heads {
        let before = String::from_utf8_lossy(&part[head..begin]);
        if has_last_key(&before) {
            break;
        }
        begin = head;
    }

    // A record that has not all of its keys yet waits for the next reading of the file.
    if is_complete(&String::from_utf8_lossy(&part[begin..end])) {
        end
    } else {
        begin
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

/// Keys that Slurm writes before, between and behind the texts of users, in its order. Each block but the
/// last ends with the key of a text. Values of other keys are one word.
const BLOCKS: [&[&str]; 5] = [
    &["JobId", "UserId", "GroupId", "Name"],
    &[
        "JobState",
        "Partition",
        "TimeLimit",
        "StartTime",
        "EndTime",
        "NodeList",
        "NodeCnt",
        "ProcCnt",
        "WorkDir",
    ],
    &["ReservationName", "Account"],
    &["QOS", "WcKey"],
    &["Cluster", "SubmitTime", "EligibleTime"],
];

/// Maximum number of ways in which a record is read.
const MAX_READINGS: usize = 256;

/// Values of a record by key.
type Values<'r> = HashMap<&'r str, &'r str>;

/// A block of keys in a record.
struct Block<'r> {
    /// Position of the white space before its first key, or 0.
    begin: usize,
    /// Position behind the `=` of its last key.
    end: usize,
    /// Key of the text behind it.
    text: &'static str,
    values: Values<'r>,
}

/// Returns the block with these keys at a position. Later versions of Slurm may add other keys. The last
/// block goes on to the end of the record.
fn block<'r>(record: &'r str, begin: usize, number: usize) -> Option<Block<'r>> {
    let mut values = Values::new();
    let mut wanted = BLOCKS[number].iter().copied();
    let mut next = wanted.next();
    let is_last = number + 1 == BLOCKS.len();
    let mut at = begin;
    // Each word is a wanted key, in Slurm's order, or a key that no block has.
    loop {
        let rest = &record[at..];
        if is_last && next.is_none() && rest.trim_ascii().is_empty() {
            let (end, text) = (record.len(), "");
            return Some(Block {
                begin,
                end,
                text,
                values,
            });
        }
        // Only the begin of the file has no white space before it.
        let word = match at {
            0 => rest,
            _ => rest.strip_prefix(|letter: char| letter.is_ascii_whitespace())?,
        };

        let word = word
            .split(|letter: char| letter.is_ascii_whitespace())
            .next()?;
        let (key, value) = word.split_once('=')?;

        let is_wanted = next == Some(key);
        if is_wanted {
            next = wanted.next();
        // A known key in the wrong place: the text of a user has begun or ended elsewhere.
        } else if BLOCKS.iter().any(|keys| keys.contains(&key)) {
            return None;
        }

        at += usize::from(at > 0) + key.len() + 1;
        // The last key of a block is one of a text. Its value may have several words, so it is not read here.
        if is_wanted && !is_last && next.is_none() {
            let (end, text) = (at, BLOCKS[number].last()?);
            return Some(Block {
                begin,
                end,
                text,
                values,
            });
        }

        at += value.len();
        // A key twice in one block leaves open which value counts.
        if values.insert(key, value).is_some() {
            return None;
        }
    }
}

/// Returns the values of a record in each way in which it can be read: a text of a user ends where a
/// block begins. More than [`MAX_READINGS`] are too many.
fn readings(record: &str) -> Vec<Values<'_>> {
    let Some(head) = block(record, 0, 0) else {
        return Vec::new();
    };

    // Every place where a block could begin: a user's text may contain the keys of one.
    let later: Vec<Vec<Block<'_>>> = (1..BLOCKS.len())
        .map(|number| {
            positions(record, BLOCKS[number][0])
                .filter_map(|at| block(record, at - 1, number))
                .collect()
        })
        .collect();

    let mut readings = vec![vec![&head]];
    // Each reading is continued with each block that begins behind it, so the number of readings may grow quickly.
    for blocks in &later {
        let longer = readings.iter().flat_map(|reading| {
            let before = reading.last().map_or(0, |block| block.end);
            let follows = move |block: &&Block<'_>| block.begin >= before;
            blocks
                .iter()
                .filter(follows)
                .map(move |block| [reading.as_slice(), &[block]].concat())
        });
        // One more than the limit shows that some were left out.
        readings = longer.take(MAX_READINGS + 1).collect();
    }

    readings
        .iter()
        .map(|blocks| {
            let texts = blocks
                .windows(2)
                .map(|pair| (pair[0].text, &record[pair[0].end..pair[1].begin]));
            let values = blocks.iter().flat_map(|block| &block.values);
            values
                .map(|(key, value)| (*key, *value))
                .chain(texts)
                .collect()
        })
        .collect()
}

/// Returns whether a text can be read as a whole record.
fn is_complete(record: &str) -> bool {
    !readings(record).is_empty()
}

/// Returns the job and the user of a record; no user's text comes before them.
fn owner(record: &str) -> String {
    let word = |key: &str| {
        // Up to the name, values have no blanks. `bounded` keeps the reason short in a forged line, too.
        let word = record.split(' ').find_map(|word| word.strip_prefix(key));
        bounded(word.unwrap_or("?"), 64).into_owned()
    };
    format!("job {} of user {}", word("JobId="), word("UserId="))
}

/// Parses the run of a record that can be read in one way, or in several that differ only in the name.
fn run(record: &str, options: &Options) -> Result<JobRun, String> {
    let readings = readings(record);

    // The reason names the first missing key, since most such records are of another format or cut.
    if readings.is_empty() {
        let mut keys = BLOCKS.iter().copied().flatten();
        let is_missing = |key: &&&str| !record.starts_with(*key) && position(record, key).is_none();
        return Err(match keys.find(is_missing) {
            Some(key) => format!("{key} is missing"),
            None => "its keys are not in the order of Slurm".to_owned(),
        });
    }

    let is_cut = readings.len() > MAX_READINGS;
    let mut runs = Vec::new();
    let mut reason = None;
    for values in readings {
        // A reading whose values are malformed is no reading.
        match run_of(&values, options) {
            Ok(run) => runs.push(run),
            Err(why) => reason = reason.or(Some(why)),
        }
    }

    let mut runs = runs.into_iter();
    let Some(first) = runs.next() else {
        return Err(reason.unwrap_or_default());
    };
    // The name alone decides nothing in accounting, so readings that differ in it agree.
    let without_name = |run: &JobRun| JobRun {
        name: None,
        ..run.clone()
    };
    if !is_cut && runs.all(|other| without_name(&other) == without_name(&first)) {
        Ok(first)
    } else {
        Err(format!(
            "{} can be read in several ways, because a user's text has keys of Slurm",
            owner(record)
        ))
    }
}

/// Returns whether a line has the last key of a record. Older versions of Slurm write no exit codes.
fn has_last_key(line: &str) -> bool {
    [LAST_KEY, OLDER_LAST_KEY]
        .iter()
        .any(|key| position(line, key).is_some())
}

/// Returns the positions at which `KEY=` begins in a text, after white space.
fn positions<'t>(text: &'t str, key: &'t str) -> impl Iterator<Item = usize> {
    text.match_indices(key).map(|(at, _)| at).filter(move |at| {
        // A text of a user may end in `XExitCode=`, so the key must be a word.
        let is_word = text[..*at].ends_with(|letter: char| letter.is_ascii_whitespace());
        is_word && text[at + key.len()..].starts_with('=')
    })
}

/// Returns the position of the white space before `KEY=` in a text.
fn position(text: &str, key: &str) -> Option<usize> {
    positions(text, key).next().map(|at| at - 1)
}

fn run_of(values: &Values<'_>, options: &Options) -> Result<JobRun, String> {
    // Texts of users but names and directories are single words; later keys may follow them.
    let get = |key: &str| {
        let value = values.get(key).copied().unwrap_or_default();
        let word = value
            .split(|letter: char| letter.is_ascii_whitespace())
            .next();
        word.unwrap_or_default()
    };

    let text = |key: &str| {
        Some(get(key))
            .filter(|text| !text.is_empty() && *text != "(null)")
            .map(str::to_owned)
    };

    // jobcomp writes no run time: in an hour that occurs twice, the first reading counts that keeps the order.
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
        state => state,
    };
    check_state(state, "JobState")?;
    if times.end.is_none() && OVER.contains(&state) {
        return Err(format!(
            "JobState is {state}, but EndTime is '{}'",
            get("EndTime")
        ));
    }

    let node_list = text("NodeList");
    // `UserId=alice(1000)`.
    let (user, _) = get("UserId").split_once('(').unwrap_or((get("UserId"), ""));
    // Without slurmdbd Slurm knows no default account.
    let account = text("Account").or_else(|| options.accounts.get(user).cloned());
    let job_id = job_id(&get)?;
    let run = JobRun {
        cluster: match &options.cluster {
            Cluster::Named(name) => name.clone(),
            // A name that Slurm wrote comes before the configured one.
            Cluster::Column(name) => text("Cluster")
                .filter(|named| named != "unknown")
                .unwrap_or_else(|| name.clone()),
        },
        // For an array task, JobId is the number that the node's cgroups use.
        raw_job_id: text("JobId").filter(|raw| *raw != job_id),
        job_id,
        submit: times.submit,
        eligible: times.eligible,
        // For a job that left the queue unstarted, Slurm sets a start, but no nodes.
        start: times.start.filter(|_| node_list.is_some()),
        end: times.end,
        state: state.to_owned(),
        user: user.to_owned(),
        account: account.unwrap_or_default(),
        partition: get("Partition").to_owned(),
        qos: text("QOS"),
        name: values
            .get("Name")
            .filter(|name| !name.is_empty() && **name != "(null)")
            .map(|name| (*name).to_owned()),
        reservation: text("ReservationName"),
        node_list,
        // TimeLimit is in minutes; `UNLIMITED` and `Partition_Limit` are no numbers.
        timelimit: get("TimeLimit")
            .parse::<u64>()
            .ok()
            .and_then(|minutes| minutes.checked_mul(60)),
        exit_code: text("ExitCode"),
        ..JobRun::default()
    };
    // A run that held nothing has no amounts, only those that it asked for.
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
    // A poisoned lock has no half-made entry: each access is one operation.
    let mut resized = resized.lock().unwrap_or_else(PoisonError::into_inner);

    let key = (run.job_id.clone(), run.submit);
    // Each line of a resize begins where the one before it ended.
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
    // NO_VAL in one of the two numbers means that the job has no such part.
    let part =
        |of: &str, at: &str, sign: char| Some(format!("{}{sign}{}", number(of)?, number(at)?));
    Ok(part("ArrayJobId", "ArrayTaskId", '_')
        .or_else(|| part("HetJobId", "HetJobOffset", '+'))
        // Earlier releases call heterogeneous jobs packs.
        .or_else(|| part("PackJobId", "PackJobOffset", '+'))
        .unwrap_or_else(|| id.to_string()))
}

/// Slurm's numbers from this one on mean "not set".
const NO_VAL: u32 = 0xffff_fffe;

#[cfg(test)]
mod tests;
