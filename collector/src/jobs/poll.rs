//! A live Slurm on this machine, asked through `sacct`.
//!
//! Every answer is imported like a file, so asking twice does no harm, and each question goes back to the last success
//! that is at least a look-back old. That covers records which reach slurmdbd late, and an outage closes by itself:
//! for a look-back after it, questions still go back to before it, while slurmctld hands in what it kept.
//!
//! sacct does not tell of jobs that were never eligible (held, waiting for another job) unless they are asked for by
//! id, so those are not seen until they are eligible. They hold nothing meanwhile.

use super::sacct::{Cluster, Options, Reader, SacctError};
use super::{Entry, Reject};
use crate::store::{Database, ImportError, ImportSummary, OpenRun, Origin, Records, StoreError};
use crate::{ConfigError, error_chain};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::watch;

/// Where job records come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobsConfig {
    /// Whether the Slurm of this machine, if there is one, is asked for its jobs.
    pub poll: bool,
    /// Seconds between two questions.
    pub interval_seconds: u64,
    /// Seconds that every question goes back beyond the last answer; records may reach slurmdbd that late.
    pub look_back_seconds: u64,
    /// Seconds after which a question is given up.
    pub timeout_seconds: u64,
    /// Days of history that the first question goes back.
    pub history_days: u32,
    /// Directory of `sacct` and `scontrol`; else where PATH says.
    pub slurm_bin: Option<PathBuf>,
}

impl Default for JobsConfig {
    fn default() -> Self {
        Self {
            poll: true,
            interval_seconds: 60,
            look_back_seconds: 3600,
            timeout_seconds: 60,
            history_days: 92,
            slurm_bin: None,
        }
    }
}

impl JobsConfig {
    /// What no type can say.
    ///
    /// # Errors
    /// The first key whose value makes no sense.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let seconds = [
            ("interval_seconds", self.interval_seconds),
            ("look_back_seconds", self.look_back_seconds),
            ("timeout_seconds", self.timeout_seconds),
        ];
        if let Some((key, found)) = seconds.into_iter().find(|(_, seconds)| !(1..=MAX_SECONDS).contains(seconds)) {
            return Err(ConfigError::new(key, format!("1 to {MAX_SECONDS}"), found));
        }
        if self.look_back_seconds < self.interval_seconds {
            let expected = format!("at least interval_seconds ({})", self.interval_seconds);
            return Err(ConfigError::new("look_back_seconds", expected, self.look_back_seconds));
        }
        Ok(())
    }
}

/// Largest of the periods in a [`JobsConfig`]: a day. The store remembers that long how far it was told.
const MAX_SECONDS: u64 = 86_400;

/// The Slurm of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalSlurm {
    /// Its `ClusterName`.
    pub cluster: String,
}

/// Why Slurm could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum PollError {
    /// The program is not there, or has no Slurm to ask.
    #[error("there is no Slurm on this machine: {0}")]
    NoSlurm(String),
    /// Slurm runs without slurmdbd.
    #[error("this Slurm keeps no accounts: {0}")]
    NoAccounting(String),
    /// slurmdbd, or the way to it, is down.
    #[error("slurmdbd does not answer: {0}")]
    DatabaseDown(String),
    /// No answer in time.
    #[error("{program} did not answer within {seconds} s")]
    Timeout {
        /// What was asked.
        program: &'static str,
        /// How long was waited.
        seconds: u64,
    },
    /// Any other failure.
    #[error("{program} failed: {stderr}")]
    Failed {
        /// What was asked.
        program: &'static str,
        /// What it said.
        stderr: String,
    },
    /// The program could not be started, or its answer not be read.
    #[error("cannot ask {program}")]
    Run {
        /// What was asked.
        program: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The answer is not sacct's.
    #[error(transparent)]
    Unreadable(#[from] SacctError),
    /// The answer could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How polling goes, in one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PollState {
    /// Nothing was asked yet.
    #[default]
    Waiting,
    /// The last question was answered and stored.
    Ok,
    /// There is no Slurm here.
    NoSlurm,
    /// This Slurm keeps no accounts.
    NoAccounting,
    /// slurmdbd is down.
    DatabaseDown,
    /// sacct takes too long.
    Timeout,
    /// Something else; the detail says what.
    Failed,
}

impl PollError {
    /// The error in one word.
    pub fn state(&self) -> PollState {
        match self {
            Self::NoSlurm(_) => PollState::NoSlurm,
            Self::NoAccounting(_) => PollState::NoAccounting,
            Self::DatabaseDown(_) => PollState::DatabaseDown,
            Self::Timeout { .. } => PollState::Timeout,
            Self::Failed { .. } | Self::Run { .. } | Self::Unreadable(_) | Self::Store(_) => PollState::Failed,
        }
    }
}

/// How polling goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollStatus {
    /// In one word.
    pub state: PollState,
    /// The last error and its causes.
    pub detail: Option<String>,
    /// The cluster, once it is known.
    pub cluster: Option<String>,
    /// When it last went well, UTC seconds.
    pub last_success: Option<i64>,
    /// Failures since.
    pub failures: u32,
    /// Runs that have not ended as far as we know, and that sacct knows nothing of any more.
    pub forgotten_runs: usize,
}

/// Asks a Slurm for its jobs, again and again.
#[derive(Debug)]
pub struct Poller {
    config: JobsConfig,
    database: Arc<Database>,
    /// The time zone to remember for the cluster if none is remembered yet.
    timezone: String,
    cluster: Option<String>,
    forgotten: HashSet<OpenRun>,
}

/// What told, in `jobs.source` and `polls.source`.
const SOURCE: &str = "sacct";

/// Everything that is read. The name is last: it alone may hold a separator.
const COLUMNS: &str = "JobID,Submit,Eligible,Start,End,State,User,Account,Partition,QOS,AllocTRES,ReqTRES,NNodes,NCPUS,\
                       NodeList,ElapsedRaw,Suspended,TimelimitRaw,ExitCode,JobName";

/// Longest period of one question, so that no answer grows without bound: history is asked for by the week.
const WINDOW_SECONDS: i64 = 7 * 86_400;

/// Largest answer that is read: a week of two million jobs.
const MAX_ANSWER_BYTES: u64 = 512 << 20;

/// Most of an error message that is kept.
const MAX_STDERR_BYTES: u64 = 4096;

/// Job ids in one question.
const IDS_PER_QUESTION: usize = 500;

/// Longest pause after failures.
const MAX_PAUSE: Duration = Duration::from_secs(900);

impl Poller {
    /// Polls into `database`. `cluster` overrides Slurm's own name; `timezone` is remembered for the cluster unless
    /// one is already.
    pub fn new(config: JobsConfig, database: Arc<Database>, cluster: Option<String>, timezone: String) -> Self {
        Self { config, database, timezone, cluster, forgotten: HashSet::new() }
    }

    /// Polls for ever, telling `status` how it goes. Dropping the future stops it between two questions, or kills the
    /// sacct that was asked; what was imported stays.
    pub async fn run(mut self, status: watch::Sender<PollStatus>) {
        loop {
            let asked = self.poll(Timestamp::now().as_second()).await;
            status.send_modify(|status| self.note(status, &asked));
            let failures = status.borrow().failures;
            tokio::time::sleep(pause(&self.config, failures)).await;
        }
    }

    fn note(&self, status: &mut PollStatus, asked: &Result<ImportSummary, PollError>) {
        status.cluster.clone_from(&self.cluster);
        status.forgotten_runs = self.forgotten.len();
        match asked {
            Ok(summary) => {
                if status.failures > 0 {
                    tracing::info!(failures = status.failures, "sacct answers again");
                }
                tracing::debug!(inserted = summary.runs_inserted, updated = summary.runs_updated, "polled sacct");
                let last_success = Some(Timestamp::now().as_second());
                let forgotten_runs = status.forgotten_runs;
                let cluster = status.cluster.take();
                *status =
                    PollStatus { state: PollState::Ok, cluster, last_success, forgotten_runs, ..PollStatus::default() };
            }
            Err(error) => {
                let detail = error_chain(error);
                // A machine without Slurm is no failure, and a failure that lasts is told once.
                if error.state() != status.state && error.state() != PollState::NoSlurm {
                    tracing::warn!(error = detail, "cannot poll Slurm, will retry");
                }
                status.state = error.state();
                status.detail = Some(detail);
                status.failures = status.failures.saturating_add(1);
            }
        }
    }

    /// Asks for everything since the last success that is a look-back old, and for the runs that are still open as far
    /// as we know. `now` is the present in UTC seconds.
    ///
    /// # Errors
    /// [`PollError`]; what was stored before it stays, and the next question begins where this one failed.
    pub async fn poll(&mut self, now: i64) -> Result<ImportSummary, PollError> {
        let cluster = match &self.cluster {
            Some(cluster) => cluster.clone(),
            None => detect(&self.config).await?.cluster,
        };
        self.cluster = Some(cluster.clone());
        let recent = now - self.config.look_back_seconds.cast_signed();
        let known = self.blocking({
            let cluster = cluster.clone();
            move |records| Ok((records.told_until(&cluster, SOURCE, recent)?, records.timezone(&cluster)?))
        });
        let (told_until, timezone) = known.await?;
        let timezone = timezone.is_none().then(|| self.timezone.clone());
        let windows: Vec<_> = match told_until {
            Some(begin) => windows(begin, now).collect(),
            // What is a look-back old now will not change any more, so the next question need not go back to it.
            None => {
                windows(now - i64::from(self.config.history_days) * 86_400, recent).chain([(recent, now)]).collect()
            }
        };

        let mut total = ImportSummary::default();
        let mut open = HashSet::new();
        for (from, to) in windows {
            let (since, until) = (utc(from), utc(to));
            let period = ["-S", &since, "-E", &until];
            // What began after this question is the next one's.
            let period = if to == now { &period[..2] } else { &period[..] };
            let text = self.sacct(period).await?;
            // Told is what all windows told: one that fails after others leaves everything to the next question.
            let told = (to == now || (to == recent && told_until.is_none())).then_some(to);
            let (summary, told_open) = self.import(&cluster, text, timezone.clone(), told).await?;
            total += summary;
            open.extend(told_open);
        }
        total += self.ask_for_open_runs(&cluster, open).await?;
        Ok(total)
    }

    /// Asks by id for the runs that are open as far as we know and that no window showed: those that ended while
    /// nobody asked, those that sacct leaves out of a window (a dependency, an array's limit).
    async fn ask_for_open_runs(&mut self, cluster: &str, told: HashSet<OpenRun>) -> Result<ImportSummary, PollError> {
        let known = {
            let cluster = cluster.to_owned();
            self.blocking(move |records| Ok(records.open_runs(&cluster)?)).await?
        };
        self.forgotten.retain(|run| known.contains(run));
        let missing: Vec<OpenRun> =
            known.into_iter().filter(|run| !told.contains(run) && !self.forgotten.contains(run)).collect();
        let mut total = ImportSummary::default();
        let mut told = HashSet::new();
        let ids: BTreeSet<&str> = missing.iter().map(|run| base_id(&run.job_id)).collect();
        let ids: Vec<&str> = ids.into_iter().collect();
        for ids in ids.chunks(IDS_PER_QUESTION) {
            let text = self.sacct(&["-j", &ids.join(",")]).await?;
            let (summary, told_open) = self.import(cluster, text, None, None).await?;
            total += summary;
            told.extend(told_open);
        }
        if !missing.is_empty() {
            let cluster = cluster.to_owned();
            let still_open = self.blocking(move |records| Ok(records.open_runs(&cluster)?)).await?;
            let still_open: HashSet<OpenRun> = still_open.into_iter().collect();
            let forgotten = missing.into_iter().filter(|run| still_open.contains(run) && !told.contains(run));
            for run in forgotten {
                tracing::warn!(
                    job_id = run.job_id,
                    submit = run.submit,
                    "sacct no longer knows a run that has not ended"
                );
                self.forgotten.insert(run);
            }
        }
        Ok(total)
    }

    /// Imports an answer; also the runs in it that have not ended.
    async fn import(
        &self,
        cluster: &str,
        text: Vec<u8>,
        timezone: Option<String>,
        told_until: Option<i64>,
    ) -> Result<(ImportSummary, Vec<OpenRun>), PollError> {
        let cluster = cluster.to_owned();
        self.blocking(move |records| {
            let name = format!("sacct of {cluster}");
            let options = Options { cluster: Cluster::Named(cluster.clone()), zone: TimeZone::UTC, columns: None };
            let mut open = Vec::new();
            let entries = Reader::open(Cursor::new(text), &name, options)?.map(|entry| {
                let entry = entry?;
                let (run, job_ids) = match &entry {
                    Entry::Run(run) => (Some(run), std::slice::from_ref(&run.job_id)),
                    Entry::Tasks { run, job_ids } => (Some(run), job_ids.as_slice()),
                    Entry::Step | Entry::Rejected(_) => (None, &[][..]),
                };
                if let Some(run) = run.filter(|run| run.end.is_none()) {
                    open.extend(job_ids.iter().map(|job_id| OpenRun { job_id: job_id.clone(), submit: run.submit }));
                }
                Ok(match entry {
                    // Its line in an answer means nothing, and the same row comes with every answer.
                    Entry::Rejected(reject) => Entry::Rejected(Reject { line: None, ..reject }),
                    entry => entry,
                })
            });
            let origin = Origin {
                source: SOURCE,
                name: &name,
                timezone: timezone.as_deref(),
                told_until: told_until.map(|instant| (cluster.as_str(), instant)),
            };
            let summary = records.import(&origin, entries).map_err(|error| match error {
                ImportError::Source(error) => PollError::Unreadable(error),
                ImportError::Store(error) => PollError::Store(error),
            })?;
            Ok((summary, open))
        })
        .await
    }

    /// What sacct prints of all runs of all users in a period or with these ids.
    async fn sacct(&self, which: &[&str]) -> Result<Vec<u8>, PollError> {
        let args = ["--allusers", "--parsable2", "--duplicates", "--allocations", "--format", COLUMNS];
        ask(&self.config, "sacct", args.iter().chain(which)).await
    }

    /// Asks the store, which takes its time, on a thread of its own.
    async fn blocking<T: Send + 'static>(
        &self,
        ask: impl FnOnce(Records<'_>) -> Result<T, PollError> + Send + 'static,
    ) -> Result<T, PollError> {
        let database = self.database.clone();
        match tokio::task::spawn_blocking(move || ask(Records::of(&database))).await {
            Ok(answer) => answer,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => Err(PollError::Run { program: "the store", source: io::Error::other(error) }),
            },
        }
    }
}

/// The Slurm that this machine's commands talk to.
///
/// # Errors
/// [`PollError::NoSlurm`] where there is none; others where there is one that does not answer.
pub async fn detect(config: &JobsConfig) -> Result<LocalSlurm, PollError> {
    let named = |text: Vec<u8>| String::from_utf8_lossy(&text).trim().to_owned();
    let failure = match ask(config, "scontrol", ["show", "config"]).await {
        Ok(text) => {
            let text = named(text);
            let mut lines = text.lines().filter_map(|line| line.split_once('='));
            match lines.find(|(key, _)| key.trim() == "ClusterName") {
                Some((_, cluster)) => return Ok(LocalSlurm { cluster: cluster.trim().to_owned() }),
                None => {
                    PollError::Failed { program: "scontrol", stderr: "its configuration has no ClusterName".to_owned() }
                }
            }
        }
        Err(PollError::NoSlurm(why)) => return Err(PollError::NoSlurm(why)),
        Err(error) => error,
    };
    // slurmctld is down; slurmdbd knows the name too, if it has but one.
    match ask(config, "sacctmgr", ["--noheader", "--parsable2", "show", "cluster", "format=cluster"]).await {
        Ok(text) if named(text.clone()).lines().count() == 1 => Ok(LocalSlurm { cluster: named(text) }),
        _ => Err(failure),
    }
}

/// Runs one of Slurm's commands, from `slurm_bin` or where PATH says, and hands back what it prints.
pub(crate) async fn ask_slurm<A: AsRef<OsStr>>(
    slurm_bin: Option<&Path>,
    program: &'static str,
    args: impl IntoIterator<Item = A>,
) -> Result<Vec<u8>, PollError> {
    ask(&JobsConfig { slurm_bin: slurm_bin.map(Path::to_owned), ..JobsConfig::default() }, program, args).await
}

/// Runs one of Slurm's commands and hands back what it prints.
async fn ask<A: AsRef<OsStr>>(
    config: &JobsConfig,
    program: &'static str,
    args: impl IntoIterator<Item = A>,
) -> Result<Vec<u8>, PollError> {
    let path = config.slurm_bin.as_ref().map_or_else(|| PathBuf::from(program), |folder| folder.join(program));
    let failed = |source| PollError::Run { program, source };
    let mut child = Command::new(path)
        .args(args)
        // Instants need no time zone; arrays are named in full; messages can be recognised.
        .envs([("SLURM_TIME_FORMAT", "%s"), ("TZ", "UTC"), ("SLURM_BITSTR_LEN", "0"), ("LC_ALL", "C")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => PollError::NoSlurm(format!("no {program}")),
            _ => failed(source),
        })?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let answer = async {
        let (stdout, stderr) = tokio::join!(read(stdout, MAX_ANSWER_BYTES), read(stderr, MAX_STDERR_BYTES));
        Ok::<_, io::Error>((stdout?, stderr?, child.wait().await?))
    };
    let patience = Duration::from_secs(config.timeout_seconds);
    let (stdout, stderr, status) = tokio::time::timeout(patience, answer)
        .await
        .map_err(|_| PollError::Timeout { program, seconds: config.timeout_seconds })?
        .map_err(failed)?;
    if stdout.len() as u64 == MAX_ANSWER_BYTES {
        return Err(PollError::Failed {
            program,
            stderr: format!("its answer is larger than {MAX_ANSWER_BYTES} bytes"),
        });
    }
    if status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&stderr).trim().replace('\n', "; ");
    Err(refusal(program, if stderr.is_empty() { status.to_string() } else { stderr }))
}

/// What a command means that ends with an error.
fn refusal(program: &'static str, stderr: String) -> PollError {
    let says = |words: &[&str]| words.iter().any(|words| stderr.contains(words));
    if says(&["Could not establish a configuration source", "Unable to process configuration file"]) {
        PollError::NoSlurm(stderr)
    } else if says(&["accounting storage is disabled", "not running a supported accounting_storage plugin"]) {
        PollError::NoAccounting(stderr)
    } else if says(&["Problem talking to the database", "failed to open persistent connection", "slurmdbd"]) {
        PollError::DatabaseDown(stderr)
    } else {
        PollError::Failed { program, stderr }
    }
}

/// Everything up to `most` bytes. The rest is read and let go: a writer that nobody reads from would not end.
async fn read(stream: Option<impl AsyncRead + Unpin>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        (&mut stream).take(most).read_to_end(&mut bytes).await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    }
    Ok(bytes)
}

/// `[begin, end)` in parts of at most a week, oldest first; at least one.
fn windows(begin: i64, end: i64) -> impl Iterator<Item = (i64, i64)> {
    let begin = begin.min(end);
    std::iter::successors(Some((begin, end.min(begin + WINDOW_SECONDS))), move |&(_, to)| {
        (to < end).then(|| (to, end.min(to + WINDOW_SECONDS)))
    })
}

/// An instant as sacct's options take it in the zone UTC.
fn utc(instant: i64) -> String {
    let instant = Timestamp::from_second(instant).unwrap_or(Timestamp::UNIX_EPOCH);
    instant.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

/// The job's id without its array task or component.
fn base_id(job_id: &str) -> &str {
    job_id.split(['_', '+']).next().unwrap_or(job_id)
}

/// How long to wait after so many failures: twice as long each time.
fn pause(config: &JobsConfig, failures: u32) -> Duration {
    let interval = Duration::from_secs(config.interval_seconds);
    let longest = MAX_PAUSE.max(interval);
    interval.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{DataDir, JobFilter, Settings};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Instant;

    const HEADER: &str = "JobID|Submit|Eligible|Start|End|State|User|Account|Partition|QOS|AllocTRES|ReqTRES|NNodes|NCPUS|\
         NodeList|ElapsedRaw|Suspended|TimelimitRaw|ExitCode|JobName";

    /// 2026-10-10T00:00:00Z
    const NOW: i64 = 1_791_590_400;

    /// A poller whose Slurm is a folder of shell scripts.
    struct Stage {
        poller: Poller,
        folder: tempfile::TempDir,
        _dir: DataDir,
    }

    impl Stage {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let dir = DataDir::claim(&folder.path().join("data")).unwrap();
            let database = Arc::new(Database::open(&dir, &Settings::default()).unwrap());
            let config = JobsConfig {
                slurm_bin: Some(folder.path().to_owned()),
                timeout_seconds: 5,
                history_days: 10,
                ..JobsConfig::default()
            };
            let poller = Poller::new(config, database, None, "Europe/Oslo".into());
            let stage = Self { poller, folder, _dir: dir };
            stage.script("scontrol", "echo 'Configuration data'; echo 'ClusterName             = lab'");
            stage
        }

        fn script(&self, name: &str, body: &str) {
            let path = self.folder.path().join(name);
            fs::write(path.with_extension("body"), body).unwrap();
            if !path.exists() {
                symlink(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/stand-in.sh"), path).unwrap();
            }
        }

        /// sacct tells these runs whatever it is asked, and keeps the question.
        fn answer(&self, runs: &[&str]) {
            fs::write(self.folder.path().join("answer"), format!("{HEADER}\n{}\n", runs.join("\n"))).unwrap();
            let folder = self.folder.path().display();
            self.script("sacct", &format!("shift 6; echo \"$@\" >> {folder}/asked; cat {folder}/answer"));
        }

        /// The questions since the last call, without what is the same in all of them.
        fn asked(&self) -> Vec<String> {
            let path = self.folder.path().join("asked");
            let asked = fs::read_to_string(&path).unwrap_or_default();
            fs::write(path, "").unwrap();
            asked.lines().map(str::to_owned).collect()
        }

        fn states(&self) -> Vec<String> {
            let runs = Records::of(&self.poller.database).jobs(&JobFilter::default()).unwrap();
            runs.iter().map(|run| format!("{} {}", run.job_id, run.state)).collect()
        }
    }

    fn row(job_id: &str, submit: i64, end: Option<i64>, state: &str) -> String {
        let start = if state == "PENDING" { "Unknown".to_owned() } else { submit.to_string() };
        let end = end.map_or_else(|| "Unknown".to_owned(), |end| end.to_string());
        format!(
            "{job_id}|{submit}|{submit}|{start}|{end}|{state}|ann|lab|gpu|normal|cpu=1,node=1||1|1|g1|5|00:00:00|60|0:0|a|b"
        )
    }

    #[tokio::test]
    async fn the_first_question_goes_through_history_by_the_week_and_the_next_goes_on() {
        let mut stage = Stage::new();
        stage.answer(&[&row("7", NOW - 50, None, "RUNNING")]);
        let summary = stage.poller.poll(NOW).await.unwrap();
        assert_eq!((summary.runs_inserted, summary.unchanged, summary.rejected), (1, 2, 0));
        assert_eq!(
            stage.asked(),
            [
                "-S 2026-09-30T00:00:00 -E 2026-10-07T00:00:00",
                "-S 2026-10-07T00:00:00 -E 2026-10-09T23:00:00",
                "-S 2026-10-09T23:00:00"
            ],
            "what the last window showed to be open is not asked for again"
        );
        assert_eq!(stage.poller.cluster.as_deref(), Some("lab"));
        assert_eq!(Records::of(&stage.poller.database).timezone("lab").unwrap().as_deref(), Some("Europe/Oslo"));
        stage.poller.poll(NOW + 60).await.unwrap();
        assert_eq!(stage.asked(), ["-S 2026-10-09T23:00:00"]);
        stage.poller.poll(NOW + 3660).await.unwrap();
        assert_eq!(stage.asked(), ["-S 2026-10-10T00:01:00"]);
    }

    #[tokio::test]
    async fn an_outage_leaves_no_hole_even_if_records_come_after_it() {
        let mut stage = Stage::new();
        stage.answer(&[]);
        for seconds in (0..=7200).step_by(600) {
            stage.poller.poll(NOW + seconds).await.unwrap();
        }
        stage.asked();
        stage.script("sacct", "echo 'sacct: error: Problem talking to the database: Connection refused' >&2; exit 1");
        for seconds in (7800..=20_400).step_by(600) {
            let error = stage.poller.poll(NOW + seconds).await.unwrap_err();
            assert_eq!(error.state(), PollState::DatabaseDown);
        }
        stage.answer(&[]);
        // For a look-back after it, questions go back to before it.
        for (seconds, since) in [(21_000, "02:00:00"), (24_000, "02:00:00"), (24_600, "05:50:00"), (28_200, "06:50:00")]
        {
            stage.poller.poll(NOW + seconds).await.unwrap();
            assert_eq!(stage.asked(), [format!("-S 2026-10-10T{since}")], "{seconds}");
        }
    }

    #[tokio::test]
    async fn runs_that_no_window_shows_are_asked_for_by_id() {
        let mut stage = Stage::new();
        stage.answer(&[
            &row("7", NOW - 50, None, "RUNNING"),
            &row("8_[1-3%1]", NOW - 50, None, "PENDING"),
            &row("9", NOW - 50, None, "RUNNING"),
        ]);
        stage.poller.poll(NOW).await.unwrap();
        stage.asked();
        // The window is empty; asked by id, sacct knows what became of 7 and 8, and nothing of 9.
        let folder = stage.folder.path().display().to_string();
        stage.answer(&[
            &row("7", NOW - 50, Some(NOW), "FAILED"),
            &row("8_[1-3%1]", NOW - 50, Some(NOW), "CANCELLED by 0"),
        ]);
        stage.script(
            "sacct",
            &format!("shift 6; echo \"$@\" >> {folder}/asked; case $1 in -j) cat {folder}/answer;; *) head -1 {folder}/answer;; esac"),
        );
        let summary = stage.poller.poll(NOW + 3600).await.unwrap();
        assert_eq!(stage.asked(), ["-S 2026-10-10T00:00:00", "-j 7,8,9"]);
        assert_eq!((summary.runs_updated, summary.runs_inserted), (4, 0));
        assert_eq!(stage.states(), ["9 RUNNING", "8_3 CANCELLED", "8_2 CANCELLED", "8_1 CANCELLED", "7 FAILED"]);
        // What sacct has forgotten is not asked for for ever.
        stage.poller.poll(NOW + 3660).await.unwrap();
        assert_eq!(stage.asked(), ["-S 2026-10-10T00:00:00"]);
        assert_eq!(stage.poller.forgotten.len(), 1);
    }

    #[tokio::test]
    async fn a_bad_row_is_set_aside_once() {
        let mut stage = Stage::new();
        stage.answer(&["the rest of a job's name", &row("7", NOW - 50, Some(NOW), "COMPLETED")]);
        for inserted in [1, 0] {
            assert_eq!(stage.poller.poll(NOW).await.unwrap().runs_inserted, inserted);
        }
        let db = stage.poller.database.connect().unwrap();
        let rejects: (i64, String) = db
            .query_row("SELECT count(*), any_value(source) FROM records.rejects", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap();
        assert_eq!(rejects, (1, "sacct of lab".into()));
    }

    #[tokio::test]
    async fn each_failure_has_its_state_and_keeps_what_was_said() {
        let mut stage = Stage::new();
        stage.poller.config.timeout_seconds = 1;
        for (script, state, detail) in [
            ("echo 'Slurm accounting storage is disabled' >&2; exit 1", PollState::NoAccounting, "storage is disabled"),
            (
                "echo 'sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to \
                 host:127.0.0.1:6819: Connection refused' >&2; exit 1",
                PollState::DatabaseDown,
                "host:127.0.0.1:6819: Connection refused",
            ),
            (
                "echo 'sacct: error: Invalid field requested: \"QOS\"' >&2; exit 1",
                PollState::Failed,
                "sacct failed: sacct: error: Invalid field requested: \"QOS\"",
            ),
            ("exit 3", PollState::Failed, "exit status: 3"),
            ("sleep 60", PollState::Timeout, "sacct did not answer within 1 s"),
            ("echo '<html>'", PollState::Failed, "found '<html>'"),
            ("true", PollState::Failed, "found an empty line or nothing"),
        ] {
            stage.script("sacct", script);
            let began = Instant::now();
            let error = stage.poller.poll(NOW).await.unwrap_err();
            assert_eq!(error.state(), state, "{script}: {error}");
            assert!(error_chain(&error).contains(detail), "{}", error_chain(&error));
            assert!(began.elapsed() < Duration::from_secs(5));
        }
        assert_eq!(Records::of(&stage.poller.database).told_until("lab", SOURCE, i64::MAX / 2_000_000).unwrap(), None);
    }

    #[tokio::test]
    async fn slurm_is_found_by_its_name() {
        let stage = Stage::new();
        let config = &stage.poller.config;
        assert_eq!(detect(config).await.unwrap(), LocalSlurm { cluster: "lab".into() });
        // slurmctld is down.
        stage.script("scontrol", "echo 'slurm_load_ctl_conf error: Unable to contact slurm controller' >&2; exit 1");
        stage.script("sacctmgr", "echo lab2");
        assert_eq!(detect(config).await.unwrap(), LocalSlurm { cluster: "lab2".into() });
        stage.script("sacctmgr", "echo lab2; echo other");
        assert_eq!(detect(config).await.unwrap_err().state(), PollState::Failed);
        // Slurm's commands without a Slurm, and no commands at all.
        stage.script("scontrol", "echo 'scontrol: fatal: Could not establish a configuration source' >&2; exit 1");
        assert_eq!(detect(config).await.unwrap_err().state(), PollState::NoSlurm);
        fs::remove_file(stage.folder.path().join("scontrol")).unwrap();
        assert_eq!(detect(config).await.unwrap_err().state(), PollState::NoSlurm);
    }

    #[tokio::test]
    async fn the_status_says_how_it_goes() {
        let stage = Stage::new();
        stage.script("sacct", "exit 1");
        let folder = stage.folder.path().to_owned();
        let Stage { mut poller, folder: _folder, _dir } = stage;
        poller.config.interval_seconds = 1;
        let (sender, mut status) = watch::channel(PollStatus::default());
        let running = tokio::spawn(poller.run(sender));
        let failed = status.wait_for(|status| status.failures > 0).await.unwrap().clone();
        assert_eq!(
            (failed.state, failed.cluster.as_deref(), failed.last_success),
            (PollState::Failed, Some("lab"), None)
        );
        assert_eq!(failed.detail.as_deref(), Some("sacct failed: exit status: 1"));
        fs::write(folder.join("sacct.body"), format!("echo '{HEADER}'")).unwrap();
        let well = status.wait_for(|status| status.state == PollState::Ok).await.unwrap().clone();
        assert_eq!((well.failures, well.detail, well.last_success.is_some()), (0, None, true));
        running.abort();
    }

    #[test]
    fn pauses_grow_up_to_a_quarter_of_an_hour() {
        let config = JobsConfig::default();
        let pauses: Vec<u64> = [0, 1, 2, 3, 5, 6, 4_000_000_000].map(|n| pause(&config, n).as_secs()).into();
        assert_eq!(pauses, [60, 60, 120, 240, 900, 900, 900]);
    }

    #[test]
    fn windows_are_whole_and_at_most_a_week() {
        let parts = |begin, now| windows(begin, now).collect::<Vec<_>>();
        assert_eq!(parts(0, 1_300_000), [(0, 604_800), (604_800, 1_209_600), (1_209_600, 1_300_000)]);
        assert_eq!(parts(0, 604_800), [(0, 604_800)]);
        assert_eq!(parts(50, 50), [(50, 50)]);
        assert_eq!(parts(60, 50), [(50, 50)], "a clock that was set back");
    }

    #[test]
    fn a_configuration_that_makes_no_sense_says_which_key() {
        assert_eq!(JobsConfig::default().validate(), Ok(()));
        let said = |config: JobsConfig| config.validate().unwrap_err().to_string();
        let zero = JobsConfig { timeout_seconds: 0, ..JobsConfig::default() };
        assert_eq!(said(zero), "timeout_seconds: expected 1 to 86400, found 0");
        let short = JobsConfig { look_back_seconds: 30, ..JobsConfig::default() };
        assert_eq!(said(short), "look_back_seconds: expected at least interval_seconds (60), found 30");
    }
}
