//! The file that Slurm writes when there is no slurmdbd (`JobCompType=jobcomp/filetxt`): one line a run that ended.
//!
//! `KEY=VALUE` between blanks, and blanks may be in a job's name and in its directory, so values are found by the keys
//! around them. Times are local. Slurm writes no GPU into `Tres` without slurmdbd, so a line without one says nothing of
//! GPUs; who ran and for how long is exact. A requeued run is written with `JobState=PENDING`.

use crate::lines::{Lines, LinesError, beginning};
use crate::sacct::{Cluster, OVER};
use crate::times::{Times, Written};
use crate::tres::Tres;
use crate::{Entry, JobRun, Reject};
use jiff::tz::TimeZone;
use std::collections::HashMap;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

/// How to read a file that does not say everything itself.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whose jobs these are; Slurm writes `Cluster=unknown` without slurmdbd.
    pub cluster: Cluster,
    /// Where its times are at home.
    pub zone: TimeZone,
    /// The accounts of users whose runs name none.
    pub accounts: HashMap<String, String>,
    /// Jobs that were resized, from one piece of a file to the next.
    pub resized: Resized,
}

/// When jobs were resized last, by id and submission. Slurm writes a line for what a job held up to then, though not since
/// when, and at its end one for what it held in the end.
pub type Resized = Arc<Mutex<HashMap<(String, i64), i64>>>;

/// A text that cannot be read as jobcomp's.
#[derive(Debug, thiserror::Error)]
pub enum JobcompError {
    /// Reading failed.
    #[error(transparent)]
    Read(#[from] LinesError),
    /// The first line is none of jobcomp's.
    #[error("{name} is not what jobcomp/filetxt writes: expected JobId=…, found {found}")]
    Format {
        /// The file.
        name: String,
        /// How it begins.
        found: String,
    },
}

/// The runs of one file, in order. An `Err` is the last item.
pub struct Reader<'i> {
    lines: Lines<'i>,
    name: String,
    options: Options,
    any: bool,
}

impl<'i> Reader<'i> {
    /// Reads nothing yet but the first bytes: a gzip file is known by them. `name` is what errors call the file.
    ///
    /// # Errors
    /// [`JobcompError::Read`] where it cannot be read at all.
    pub fn open(input: impl Read + 'i, name: &str, options: Options) -> Result<Self, JobcompError> {
        Ok(Self {
            lines: Lines::open(input, name)?,
            name: name.to_owned(),
            options,
            any: false,
        })
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
            let text = self.lines.text();
            if !self.any && !text.starts_with("JobId=") {
                let found = beginning(&text);
                return Some(Err(JobcompError::Format {
                    name: self.name.clone(),
                    found,
                }));
            }
            self.any = true;
            return Some(Ok(match run(&text, &self.options) {
                Ok(run) => Entry::Run(since_resize(run, &self.options.resized)),
                Err(reason) => Entry::Rejected(Reject {
                    line: Some(self.lines.line()),
                    reason,
                    text: text.into_owned(),
                }),
            }));
        }
    }
}

/// The keys in the order in which Slurm writes them. What it leaves out is passed over.
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

/// The keys after which comes what a user wrote.
const FREE: &[&str] = &["Name", "WorkDir"];

/// The values of a line by key. Those that users write (a name, a directory) may hold anything, another key too; then
/// nobody can say what is meant and the line is refused.
fn fields(line: &str) -> Result<HashMap<&'static str, &str>, String> {
    let mut fields = HashMap::new();
    let (mut rest, mut keys) = (line.trim_end(), KEYS.iter().copied().peekable());
    while let Some(key) = keys.next() {
        let Some(value) = rest
            .strip_prefix(key)
            .and_then(|rest| rest.strip_prefix('='))
        else {
            continue;
        };
        // The value ends where the next key that is there begins.
        let end = keys.clone().filter_map(|next| position(value, next)).min();
        let mut taken = &value[..end.unwrap_or(value.len())];
        rest = value[taken.len()..].trim_start();
        if FREE.contains(&key) {
            let again = keys
                .peek()
                .and_then(|next| position(&value[end.map_or(0, |at| at + 1)..], next));
            if again.is_some() {
                return Err(format!(
                    "{key} holds another key, so it is unclear where it ends"
                ));
            }
        } else {
            // Keys of later versions may follow.
            taken = taken.split(' ').next().unwrap_or_default();
        }
        fields.insert(key, taken);
    }
    match rest {
        "" => Ok(fields),
        rest => Err(format!(
            "'{}' was not expected",
            rest.chars().take(40).collect::<String>()
        )),
    }
}

/// Where ` KEY=` begins in a text.
fn position(text: &str, key: &str) -> Option<usize> {
    text.match_indices(key)
        .find(|(at, _)| text[..*at].ends_with(' ') && text[at + key.len()..].starts_with('='))
        .map(|(at, _)| at - 1)
}

fn run(line: &str, options: &Options) -> Result<JobRun, String> {
    let fields = fields(line)?;
    let get = |key: &str| fields.get(key).copied().unwrap_or_default();
    let text = |key: &str| {
        Some(get(key))
            .filter(|text| !text.is_empty() && *text != "(null)")
            .map(str::to_owned)
    };
    let times = Times::of(
        &Written {
            submit: get("SubmitTime"),
            eligible: get("EligibleTime"),
            start: get("StartTime"),
            end: get("EndTime"),
        },
        &options.zone,
        None,
    )?;
    // The last run of a job that was requeued is over, whatever its job is now.
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
    let tres = Tres::parse(get("Tres"))
        .map_err(|error| error.to_string())?
        .unwrap_or_default();
    let count = |key: &str| get(key).parse::<u64>().ok();
    // A job that Slurm killed while it was suspended, or that used no GPU, looks the same here as any other.
    let gpus = tres.gpus.filter(|_| get("Tres").contains("gres/gpu"));
    Ok(JobRun {
        nodes: tres.nodes.or_else(|| count("NodeCnt")),
        // After a resize Slurm writes the CPUs of before into Tres.
        cpus: count("ProcCnt").or(tres.cpus),
        gpus,
        gpu_model: tres.gpu_model,
        mem_bytes: tres.mem_bytes,
        billing: tres.billing,
        alloc_tres: text("Tres"),
        elapsed: u64::try_from(end - start).ok(),
        ..run
    })
}

/// Of a job that was resized, what it held since; and what is to be known when the rest of it is told.
fn since_resize(run: JobRun, resized: &Resized) -> JobRun {
    let mut resized = resized.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (run.job_id.clone(), run.submit);
    let (before, is_last) = match run.end.filter(|_| run.state == "RESIZING") {
        Some(end) => (resized.insert(key, end), false),
        None => (resized.remove(&key), true),
    };
    match before {
        None if is_last => run,
        // Its start is the time of the resize here; whoever saw it run knows better.
        None => JobRun {
            start: None,
            elapsed: None,
            ..run
        },
        Some(at) => JobRun {
            submit: at,
            eligible: Some(at),
            start: Some(at),
            elapsed: run.end.map(|end| u64::try_from(end - at).unwrap_or(0)),
            ..run
        },
    }
}

/// Slurm's id as `sacct` writes it: `123`, `123_4`, `123+1`.
fn job_id<'l>(get: &impl Fn(&str) -> &'l str) -> Result<String, String> {
    let number = |key: &str| {
        get(key)
            .parse::<u32>()
            .ok()
            .filter(|number| *number < NO_VAL)
    };
    let id = number("JobId").ok_or_else(|| format!("JobId '{}' is no number", get("JobId")))?;
    let part =
        |of: &str, at: &str, sign: char| Some(format!("{}{sign}{}", number(of)?, number(at)?));
    Ok(part("ArrayJobId", "ArrayTaskId", '_')
        .or_else(|| part("HetJobId", "HetJobOffset", '+'))
        .or_else(|| part("PackJobId", "PackJobOffset", '+'))
        .unwrap_or_else(|| id.to_string()))
}

/// Slurm's numbers from here on mean that there is none.
const NO_VAL: u32 = 0xffff_fffe;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time_zone;
    use proptest::prelude::*;

    fn options() -> Options {
        Options {
            cluster: Cluster::Column("lab".into()),
            zone: time_zone("UTC").unwrap(),
            accounts: [("carol".to_owned(), "vision".to_owned())].into(),
            resized: Resized::default(),
        }
    }

    fn read(text: &str) -> Vec<Result<Entry, JobcompError>> {
        Reader::open(text.as_bytes(), "jobcomp.log", options())
            .unwrap()
            .collect()
    }

    /// As Slurm 22.05.8 writes it: two nodes, then three for ten seconds, then one for twenty.
    #[test]
    fn what_a_job_held_before_and_after_a_resize_is_told_apart() {
        let line = |state: &str, start: &str, end: &str, nodes: u32| {
            format!(
                "JobId=1 UserId=bob(61002) GroupId=labusers(61000) Name=shrink JobState={state} Partition=gpu TimeLimit=5 \
                 StartTime=2026-11-21T17:{start} EndTime=2026-11-21T17:{end} NodeList=node0 NodeCnt={nodes} ProcCnt=2 \
                 WorkDir=/home/bob ReservationName= Tres=cpu=2,node={nodes} Account= QOS= WcKey= Cluster=unknown \
                 SubmitTime=2026-11-21T17:01:00 EligibleTime=2026-11-21T17:01:00 DerivedExitCode=0:0 ExitCode=0:0 \n"
            )
        };
        let text = line("RESIZING", "01:30", "01:30", 2)
            + &line("RESIZING", "01:40", "01:40", 3)
            + &line("COMPLETED", "01:40", "02:00", 1);
        // In one piece and, as a file that is followed comes, in several.
        let options = options();
        let piece = |text: &str| -> Vec<JobRun> {
            let runs = Reader::open(text.as_bytes(), "jobcomp.log", options.clone()).unwrap();
            runs.map(|entry| match entry.unwrap() {
                Entry::Run(run) => run,
                other => panic!("{other:?}"),
            })
            .collect()
        };
        let whole = piece(&text);
        let parts: Vec<JobRun> = text.split_inclusive('\n').flat_map(piece).collect();
        assert_eq!(whole, parts);
        let seen: Vec<_> = whole
            .iter()
            .map(|run| {
                let start = run.start.map(|start| start - whole[0].submit);
                (run.submit - whole[0].submit, start, run.elapsed, run.nodes)
            })
            .collect();
        assert_eq!(
            seen,
            [
                (0, None, None, Some(2)),
                (30, Some(30), Some(10), Some(3)),
                (40, Some(40), Some(20), Some(1))
            ],
            "{whole:?}"
        );
    }

    /// Written by Slurm 22.05.8.
    const LINE: &str = "JobId=5 UserId=dave(61004) GroupId=labusers(61000) Name=multi JobState=COMPLETED Partition=gpu \
        TimeLimit=5 StartTime=2026-11-20T18:53:01 EndTime=2026-11-20T18:53:21 NodeList=node[0-1] NodeCnt=2 ProcCnt=4 \
        WorkDir=/home/dave ReservationName= Tres=cpu=4,mem=4000M,node=2,billing=4 Account= QOS= WcKey= Cluster=unknown \
        SubmitTime=2026-11-20T18:52:59 EligibleTime=2026-11-20T18:52:59 DerivedExitCode=0:0 ExitCode=0:0 ";

    fn run_of(line: &str) -> JobRun {
        match read(line).remove(0).unwrap() {
            Entry::Run(run) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_run() {
        let run = run_of(LINE);
        let expected = JobRun {
            cluster: "lab".into(),
            job_id: "5".into(),
            submit: 1_795_200_779,
            eligible: Some(1_795_200_779),
            start: Some(1_795_200_781),
            end: Some(1_795_200_801),
            state: "COMPLETED".into(),
            user: "dave".into(),
            partition: "gpu".into(),
            name: Some("multi".into()),
            nodes: Some(2),
            cpus: Some(4),
            mem_bytes: Some(4000 << 20),
            billing: Some(4),
            alloc_tres: Some("cpu=4,mem=4000M,node=2,billing=4".into()),
            node_list: Some("node[0-1]".into()),
            elapsed: Some(20),
            timelimit: Some(300),
            exit_code: Some("0:0".into()),
            ..JobRun::default()
        };
        assert_eq!(run, expected, "GPUs that nobody wrote down are unknown");
        assert_eq!(
            run_of(&LINE.replace("node=2,b", "node=2,gres/gpu=2,b")).gpus,
            Some(2)
        );
        assert_eq!(run_of(&LINE.replace("dave(", "carol(")).account, "vision");
        assert_eq!(
            run_of(&LINE.replace("Account=", "Account=physics")).account,
            "physics"
        );
        assert_eq!(run_of(&LINE.replace("=unknown", "=other")).cluster, "other");
        assert_eq!(
            run_of(&LINE.replace("TimeLimit=5", "TimeLimit=UNLIMITED")).timelimit,
            None
        );
        let later = LINE
            .replace("QOS=", "New=1 QOS=high Newer=2")
            .trim_end()
            .to_owned()
            + " Newest=3";
        let run = run_of(&later);
        assert_eq!(
            (run.qos.as_deref(), run.exit_code.as_deref()),
            (Some("high"), Some("0:0")),
            "keys of later versions"
        );
    }

    #[test]
    fn ids_of_arrays_and_heterogeneous_jobs() {
        let with = |more: &str| {
            run_of(&LINE.replace(" DerivedExitCode", &format!(" {more} DerivedExitCode"))).job_id
        };
        assert_eq!(with("ArrayJobId=6 ArrayTaskId=3"), "6_3");
        assert_eq!(with("HetJobId=20 HetJobOffset=1"), "20+1");
        assert_eq!(with("PackJobId=20 PackJobOffset=0"), "20+0");
        assert_eq!(with("ArrayJobId=6 ArrayTaskId=4294967294"), "5");
    }

    #[test]
    fn a_requeued_run_is_over_and_one_that_never_started_holds_nothing() {
        assert_eq!(
            run_of(&LINE.replace("COMPLETED", "PENDING")).state,
            "REQUEUED"
        );
        let cancelled = LINE
            .replace("COMPLETED", "CANCELLED")
            .replace("node[0-1]", "(null)")
            .replace("Cnt=2", "Cnt=0")
            .replace("EligibleTime=2026-11-20T18:52:59", "EligibleTime=unknown");
        let run = run_of(&cancelled);
        assert_eq!(
            (run.start, run.cpus, run.eligible, run.end),
            (None, None, None, Some(1_795_200_801))
        );
    }

    #[test]
    fn names_and_directories_hold_anything() {
        let run = run_of(
            &LINE
                .replace("Name=multi", "Name=a b = c")
                .replace("/home/dave", "/home/dave/my work"),
        );
        assert_eq!(run.name.as_deref(), Some("a b = c"));
        let forged = LINE.replace("Name=multi", "Name=x JobState=FAILED Partition=gpu");
        let Ok(Entry::Rejected(reject)) = &read(&forged)[0] else {
            panic!()
        };
        assert_eq!(
            reject.reason,
            "Name holds another key, so it is unclear where it ends"
        );
    }

    #[test]
    fn bad_lines_are_set_aside_and_other_files_refused() {
        for (line, reason) in [
            (LINE.replace("JobId=5", "JobId=x"), "JobId 'x' is no number"),
            (
                LINE.replace("EndTime=2026-11-20T18:53:21", "EndTime=Unknown"),
                "JobState is COMPLETED, but EndTime is 'Unknown'",
            ),
            (
                LINE.replace("SubmitTime=2026-11-20T18:52:59", "SubmitTime=never"),
                "Submit 'never' is no time",
            ),
            (
                LINE.replace("JobId=5 UserId", "JobId=5 Surprise UserId")
                    .replace("JobState=COMPLETED", ""),
                "is missing",
            ),
        ] {
            let entries = read(&format!("{LINE}\n{line}\n\n{LINE}\n"));
            let Ok(Entry::Rejected(reject)) = &entries[1] else {
                panic!("{line}: {:?}", entries[1])
            };
            assert!(
                reject.reason.contains(reason) && reject.line == Some(2),
                "{}",
                reject.reason
            );
            assert!(matches!(entries[2], Ok(Entry::Run(_))));
        }
        let error = read("JobID|User|State\n1|a|b\n").remove(0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "jobcomp.log is not what jobcomp/filetxt writes: expected JobId=…, found 'JobID|User|State'"
        );
        assert!(read("").is_empty());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "(JobId=|EndTime=| Name=|[ -~]|é|\n){0,80}") {
            read(&format!("JobId={text}"));
            read(&LINE.replace("multi", &text));
        }
    }
}
