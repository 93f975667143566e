use super::queue::pending;
use super::*;
use crate::schedulers::detect;
use jiff::tz::TimeZone;
use serde_json::json;
use std::fs;
use std::os::unix::fs::symlink;
use std::time::Instant;
use takt_jobs::JobRun;
use takt_model::UnixTime;
use takt_slurm::openapi;
use takt_slurm::sacct::Cluster;
use takt_store::{DataDir, JobFilter, Records, Settings};
use tempfile::{TempDir, tempdir};

const HEADER: &str = "JobID|Submit|Eligible|Start|End|State|User|Account|Partition|QOS|AllocTRES|ReqTRES|NNodes|NCPUS|\
     NodeList|ElapsedRaw|Suspended|TimelimitRaw|ExitCode|JobName";

/// 2026-10-10T00:00:00Z
const NOW: UnixTime = UnixTime(1_791_590_400);

/// A poller whose Slurm commands are shell scripts in a folder.
struct TestSlurm {
    poller: Poller,
    folder: TempDir,
    _dir: DataDir,
}

impl TestSlurm {
    fn new() -> Self {
        let folder = tempdir().unwrap();
        let dir = DataDir::claim(&folder.path().join("data")).unwrap();
        let database = Arc::new(Database::open(&dir, &Settings::default()).unwrap());
        let config = JobsConfig {
            slurm_bin: Some(folder.path().to_owned()),
            timeout_seconds: 5,
            history_days: 10,
            ..JobsConfig::default()
        };
        let poller = Poller::new(config, database, None, "Europe/Oslo".into());
        let stage = Self {
            poller,
            folder,
            _dir: dir,
        };
        stage.script(
            "scontrol",
            "echo 'Configuration data'; echo 'ClusterName             = lab'",
        );
        stage
    }

    fn script(&self, name: &str, body: &str) {
        let path = self.folder.path().join(name);
        fs::write(path.with_extension("body"), body).unwrap();
        if !path.exists() {
            symlink(
                concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/stand-in.sh"),
                path,
            )
            .unwrap();
        }
    }

    /// Makes sacct answer every request with these runs and log the request.
    fn answer(&self, runs: &[&str]) {
        fs::write(
            self.folder.path().join("answer"),
            format!("{HEADER}\n{}\n", runs.join("\n")),
        )
        .unwrap();
        self.script("sacct", &self.sacct("print < $folder/answer"));
    }

    /// Returns a script of sacct that logs the request. Its function `print` replaces `|` by the
    /// delimiter of the request, and `!` in names by `|`.
    fn sacct(&self, body: &str) -> String {
        let folder = self.folder.path().display();
        format!(
            "folder={folder}; delimiter=${{3#--delimiter=}}; shift 7; echo \"$@\" >> $folder/asked\n\
             print() {{ sed \"/^$/d; s/|/$delimiter/g; s/\\$/$delimiter/; s/!/|/g\" | tr '~' '\\n'; }}\n\
             {body}"
        )
    }

    /// Returns the requests since the last call, without their common part.
    fn asked(&self) -> Vec<String> {
        let path = self.folder.path().join("asked");
        let asked = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, "").unwrap();
        asked.lines().map(str::to_owned).collect()
    }

    fn jobs(&self) -> Vec<JobRun> {
        Records::of(&self.poller.database)
            .jobs(&JobFilter::default())
            .unwrap()
    }

    fn states(&self) -> Vec<String> {
        self.jobs()
            .iter()
            .map(|run| format!("{} {}", run.job_id, run.state))
            .collect()
    }
}

fn row(job_id: &str, submit: UnixTime, end: Option<UnixTime>, state: &str) -> String {
    let start = if state == "PENDING" {
        "Unknown".to_owned()
    } else {
        submit.to_string()
    };
    let end = end.map_or_else(|| "Unknown".to_owned(), |end| end.to_string());
    format!(
        "{job_id}|{submit}|{submit}|{start}|{end}|{state}|ann|lab|gpu|normal|cpu=1,node=1||1|1|g1|5|00:00:00|60|0:0|a!b"
    )
}

#[tokio::test]
async fn the_first_poll_reads_history_in_weeks_and_the_next_continues() {
    let mut stage = TestSlurm::new();
    stage.answer(&[&row("7", NOW - 50, None, "RUNNING")]);
    let summary = stage.poller.poll(NOW).await.unwrap();

    // sacct gives the open run in each of the three windows.
    assert_eq!(summary.runs_inserted, 1);
    assert_eq!(summary.unchanged, 2);
    assert_eq!(summary.rejected, 0);
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
    assert_eq!(
        Records::of(&stage.poller.database)
            .timezone("lab")
            .unwrap()
            .as_deref(),
        Some("Europe/Oslo")
    );

    // Each request begins an hour before the previous one, because records reach slurmdbd late.
    stage.poller.poll(NOW + 60).await.unwrap();
    assert_eq!(stage.asked(), ["-S 2026-10-09T23:00:00"]);
    stage.poller.poll(NOW + 3660).await.unwrap();
    assert_eq!(stage.asked(), ["-S 2026-10-09T23:01:00"]);
}

#[tokio::test]
async fn a_wrong_clock_loses_no_records_and_is_reported() {
    let mut stage = TestSlurm::new();
    stage.answer(&[]);
    let slurm_says = |stage: &TestSlurm, at: UnixTime| {
        stage.script(
            "scontrol",
            &format!(
                "echo 'Configuration data as of {at}'; echo 'ClusterName = lab'; \
                 echo 'TaskPlugin = task/affinity'; echo 'SLURM_VERSION           = 25.05.8'"
            ),
        );
    };
    // Two hours behind this machine: requests cover the records that Slurm writes now.
    slurm_says(&stage, NOW - 7200);
    stage.poller.poll(NOW).await.unwrap();
    stage.asked();
    slurm_says(&stage, NOW - 7200 + 3700);
    stage.poller.poll(NOW + 3700).await.unwrap();
    assert_eq!(
        stage.asked(),
        ["-S 2026-10-09T21:00:00"],
        "a look-back before the last question by Slurm's clock"
    );
    let mut status = PollStatus::default();
    stage
        .poller
        .note(&mut status, &Ok(ImportSummary::default()));
    assert_eq!(status.clock_ahead_seconds, -7200);
    assert_eq!(status.constrains_devices, Some(false));
    assert_eq!(status.version.as_deref(), Some("25.05.8"));
    // A few seconds do not count as a difference.
    slurm_says(&stage, NOW + 7195);
    stage.poller.poll(NOW + 7200).await.unwrap();
    assert_eq!(stage.poller.clock_ahead_seconds, 0);
}

#[tokio::test]
async fn sluids_are_requested_from_an_sacct_that_has_them() {
    let sluid = "s88DKSW5HH2P00";
    for (version, if_requested, expected) in [
        ("25.11.7", "exit 1", None),
        ("26.05.3", "file=with", Some(sluid)),
    ] {
        let mut stage = TestSlurm::new();
        // slurmctld is upgraded before the commands.
        stage.script(
            "scontrol",
            "echo 'ClusterName = lab'; echo 'SLURM_VERSION = 26.05.3'",
        );
        let run = row("7", NOW - 900, Some(NOW - 600), "COMPLETED");
        let folder = stage.folder.path();
        fs::write(folder.join("without"), format!("{HEADER}\n{run}\n")).unwrap();
        let with = format!("{HEADER}|SLUID|OriginalSLUID\n{run}|{sluid}|{sluid}\n");
        fs::write(folder.join("with"), with).unwrap();
        let columns = format!(
            "case \"$*\" in --version) echo slurm {version}; exit;; *SLUID*) {if_requested};; *) file=without;; esac"
        );
        stage.script(
            "sacct",
            &format!("{columns}\n{}", stage.sacct("print < $folder/$file")),
        );

        stage.poller.poll(NOW).await.unwrap();
        assert_eq!(stage.jobs()[0].sluid.as_deref(), expected, "{version}");
    }
}

#[tokio::test]
async fn resources_that_were_changed_after_the_end_are_read_again_since_25_11() {
    for (version, expected) in [("25.05.8", 1), ("26.05.3", 4)] {
        let mut stage = TestSlurm::new();
        stage.script(
            "scontrol",
            &format!("echo 'ClusterName = lab'; echo 'SLURM_VERSION = {version}'"),
        );
        let ended = |gpus: u64| {
            row(
                "7",
                NOW - 7 * 86_400,
                Some(NOW - 7 * 86_400 + 900),
                "COMPLETED",
            )
            .replace("cpu=1,node=1", &format!("cpu=1,node=1,gres/gpu={gpus}"))
        };
        stage.answer(&[&ended(1)]);
        stage.poller.poll(NOW).await.unwrap();
        stage.asked();
        assert_eq!(stage.jobs()[0].gpus, Some(1));

        // sacctmgr changes the job. Only a request for its day has it.
        fs::write(
            stage.folder.path().join("answer"),
            format!("{HEADER}\n{}\n", ended(4)),
        )
        .unwrap();
        let day = "case \"$*\" in *-E*) print < $folder/answer;; *) head -1 $folder/answer > $folder/none; print < $folder/none;; esac";
        stage.script("sacct", &stage.sacct(day));
        for hour in 1..=3 {
            stage.poller.poll(NOW + hour * 3700).await.unwrap();
        }
        assert_eq!(stage.jobs()[0].gpus, Some(expected), "{version}");
        let days = stage
            .asked()
            .iter()
            .filter(|asked| asked.contains("-E"))
            .count();
        assert_eq!(days, if expected == 1 { 0 } else { 3 }, "{version}");
    }
}

#[tokio::test]
async fn an_outage_leaves_no_hole_even_if_records_come_after_it() {
    let mut stage = TestSlurm::new();
    stage.answer(&[]);
    for seconds in (0..=7200).step_by(600) {
        stage.poller.poll(NOW + seconds).await.unwrap();
    }
    stage.asked();
    stage.script(
        "sacct",
        "echo 'sacct: error: Problem talking to the database: Connection refused' >&2; exit 1",
    );
    for seconds in (7800..=20_400).step_by(600) {
        let error = stage.poller.poll(NOW + seconds).await.unwrap_err();
        assert_eq!(error.state(), PollState::DatabaseDown);
    }
    stage.answer(&[]);
    // For one look-back after the outage, requests start before it; the first covers records that
    // were on their way when it began.
    for (seconds, since) in [
        (21_000, "01:00:00"),
        (24_000, "02:00:00"),
        (24_600, "05:40:00"),
        (28_200, "05:50:00"),
    ] {
        stage.poller.poll(NOW + seconds).await.unwrap();
        assert_eq!(
            stage.asked(),
            [format!("-S 2026-10-10T{since}")],
            "{seconds}"
        );
    }
}

/// The clock is ahead at one poll. When it is right again, slurmdbd is away, until the time has come that
/// the clock had shown.
#[tokio::test]
async fn a_clock_that_was_ahead_leaves_no_hole() {
    for ahead in [4 * 3600, 365 * 86_400] {
        let mut stage = TestSlurm::new();
        stage.answer(&[]);
        for seconds in (0..=7200).step_by(600) {
            stage.poller.poll(NOW + seconds).await.unwrap();
        }
        stage.poller.poll(NOW + 7200 + ahead).await.unwrap();

        stage.script("sacct", "echo 'Connection refused' >&2; exit 1");
        stage.poller.poll(NOW + 7800).await.unwrap_err();
        stage.answer(&[]);
        stage.asked();
        stage.poller.poll(NOW + 7200 + ahead + 600).await.unwrap();
        let first = stage.asked().remove(0);
        assert!(first.starts_with("-S 2026-10-10T01:00:00"), "{first}");
    }
}

#[test]
fn after_the_clock_was_set_back_nothing_waits_for_its_time() {
    let due = |last: i64, now: i64| is_due(Some(UnixTime(last)), 900, UnixTime(now));
    assert!(is_due(None, 900, UnixTime(0)));
    assert_eq!(
        [due(1_000, 1_899), due(1_000, 1_900), due(1_000_000, 1_000)],
        [false, true, true]
    );
}

#[tokio::test]
async fn runs_that_no_window_shows_are_asked_for_by_id() {
    let mut stage = TestSlurm::new();
    stage.answer(&[
        &row("7", NOW - 50, None, "RUNNING"),
        &row("8_[1-3%1]", NOW - 50, None, "PENDING"),
        &row("9", NOW - 50, None, "RUNNING"),
    ]);
    stage.poller.poll(NOW).await.unwrap();
    stage.asked();
    // The window is empty. By id, sacct knows the end of 7 and 8, but not 9.
    stage.answer(&[
        &row("7", NOW - 50, Some(NOW), "FAILED"),
        &row("8_[1-3%1]", NOW - 50, Some(NOW), "CANCELLED by 0"),
    ]);
    stage.script(
        "sacct",
        &stage.sacct(
            "case $1 in -j) print < $folder/answer;; *) head -1 $folder/answer | print;; esac",
        ),
    );
    let summary = stage.poller.poll(NOW + 3600).await.unwrap();
    assert_eq!(stage.asked(), ["-S 2026-10-09T23:00:00", "-j 7,8,9"]);
    assert_eq!(summary.runs_updated, 4);
    assert_eq!(summary.runs_inserted, 0);
    assert_eq!(
        stage.states(),
        [
            "9 RUNNING",
            "8_3 CANCELLED",
            "8_2 CANCELLED",
            "8_1 CANCELLED",
            "7 FAILED"
        ]
    );
    // A run that sacct no longer knows is not requested forever.
    stage.poller.poll(NOW + 3660).await.unwrap();
    assert_eq!(stage.asked(), ["-S 2026-10-10T00:00:00"]);
    assert_eq!(stage.poller.forgotten.len(), 1);
}

#[tokio::test]
async fn a_bad_row_is_set_aside_once() {
    let mut stage = TestSlurm::new();
    // The elapsed time of a running job grows from poll to poll, which must not make a second reject.
    for (elapsed, inserted) in [("|g1|5|", 1), ("|g1|65|", 0)] {
        let bad = row("the rest of a job's name", NOW - 50, None, "RUNNING");
        stage.answer(&[
            &bad.replace("|g1|5|", elapsed),
            &row("7", NOW - 50, Some(NOW), "COMPLETED"),
        ]);
        assert_eq!(
            stage.poller.poll(NOW).await.unwrap().runs_inserted,
            inserted
        );
    }
    let db = stage.poller.database.connect().unwrap();
    let rejects: (i64, String) = db
        .query_row(
            "SELECT count(*), any_value(source) FROM records.rejects",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!(rejects, (1, "sacct of lab".into()));
}

/// Issue 28: a line feed in a job's name began the record of another job.
#[tokio::test]
async fn the_name_of_a_job_makes_and_changes_no_other_job() {
    let mut stage = TestSlurm::new();
    let victim = row("5", NOW - 500, Some(NOW - 100), "COMPLETED");
    stage.answer(&[&victim]);
    stage.poller.poll(NOW).await.unwrap();
    let before = stage.jobs();
    // `~` is a line feed in the answer, and `!` a `|`.
    let forged = row("5", NOW - 500, Some(NOW - 499), "COMPLETED").replace('|', "!");
    let forger = row("6", NOW - 50, Some(NOW), "COMPLETED").replace("a!b", &format!("a~{forged}~"));
    stage.answer(&[&victim, &forger]);
    let summary = stage.poller.poll(NOW + 60).await.unwrap();
    assert_eq!(summary.runs_inserted, 1);
    assert_eq!(summary.runs_updated, 0);
    assert_eq!(summary.rejected, 0);
    let after = stage.jobs();
    assert_eq!(after.len(), 2);
    assert!(after.contains(&before[0]), "{after:?}");
}

#[tokio::test]
async fn each_failure_has_its_state_and_keeps_the_message() {
    let mut stage = TestSlurm::new();
    stage.poller.config.timeout_seconds = 1;
    for (script, state, detail) in [
        (
            "echo 'Slurm accounting storage is disabled' >&2; exit 1",
            PollState::NoAccounting,
            "storage is disabled",
        ),
        (
            "echo 'sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to \
             host:127.0.0.1:6819: Connection refused' >&2; exit 1",
            PollState::DatabaseDown,
            "host:127.0.0.1:6819: Connection refused",
        ),
        (
            "echo 'sacct: error: Invalid field requested: \"QOS\"' >&2; exit 1",
            PollState::Failed,
            "sacct failed: exit code 1: sacct: error: Invalid field requested: \"QOS\"",
        ),
        (
            "exit 3",
            PollState::Failed,
            "sacct failed: exit code 3, without a message",
        ),
        (
            "sleep 60",
            PollState::Timeout,
            "sacct did not answer within 1 s",
        ),
        ("echo '<html>'", PollState::Failed, "found '<html>'"),
        ("true", PollState::Failed, "found an empty line or nothing"),
    ] {
        stage.script("sacct", script);
        let began = Instant::now();
        let error = stage.poller.poll(NOW).await.unwrap_err();
        assert_eq!(error.state(), state, "{script}: {error}");
        assert!(
            error_chain(&error).contains(detail),
            "{}",
            error_chain(&error)
        );
        assert!(began.elapsed() < Duration::from_secs(5));
    }

    // A failed poll covers no time, so the next one begins where this one did.
    assert_eq!(
        Records::of(&stage.poller.database)
            // Far ahead, with microseconds that still fit into 64 bits.
            .complete_until("lab", "sacct", UnixTime(i64::MAX / 2_000_000))
            .unwrap(),
        None
    );
}

#[tokio::test]
async fn slurm_is_found_by_its_name() {
    let stage = TestSlurm::new();
    let config = &stage.poller.config;
    assert_eq!(detect(config).await.unwrap(), "lab");
    // slurmctld is down.
    stage.script(
        "scontrol",
        "echo 'slurm_load_ctl_conf error: Unable to contact slurm controller' >&2; exit 1",
    );
    stage.script("sacctmgr", "echo lab2");
    assert_eq!(detect(config).await.unwrap(), "lab2");
    stage.script("sacctmgr", "echo lab2; echo other");
    assert_eq!(detect(config).await.unwrap_err().state(), PollState::Failed);
    // First the commands without a Slurm, then no commands.
    stage.script(
        "scontrol",
        "echo 'fatal: Could not establish a configuration source' >&2; exit 1",
    );
    let error = detect(config).await.unwrap_err();
    assert_eq!(error.state(), PollState::Unconfigured);
    assert_eq!(
        error.to_string(),
        "Slurm's commands find no configuration of Slurm: scontrol: exit code 1: fatal: Could not \
         establish a configuration source"
    );
    fs::remove_file(stage.folder.path().join("scontrol")).unwrap();
    assert_eq!(
        detect(config).await.unwrap_err().state(),
        PollState::NoSlurm
    );
}

#[tokio::test]
async fn the_status_says_how_it_goes() {
    let stage = TestSlurm::new();
    stage.script("sacct", "echo 'sacct: error: no permission' >&2; exit 3");
    let folder = stage.folder.path().to_owned();
    let TestSlurm {
        mut poller,
        folder: _folder,
        _dir,
    } = stage;
    poller.config.interval_seconds = 1;
    let (sender, mut status) = watch::channel(PollStatus::default());
    let running = tokio::spawn(poller.run(sender));
    let failed = status
        .wait_for(|status| status.failures > 0)
        .await
        .unwrap()
        .clone();
    assert_eq!(failed.state, PollState::Failed);
    assert_eq!(failed.cluster.as_deref(), Some("lab"));
    assert_eq!(failed.last_success, None);
    let said = "sacct failed: exit code 3: sacct: error: no permission";
    assert_eq!(failed.detail.as_deref(), Some(said));
    assert_eq!(failed.sources[JOB_RECORDS].detail.as_deref(), Some(said));

    // The stand-in reads its script at each start, so the next poll runs this one.
    let header = format!("echo '{HEADER}' | sed \"s/|/${{3#--delimiter=}}/g\"");
    fs::write(folder.join("sacct.body"), header).unwrap();
    let well = status
        .wait_for(|status| status.state == PollState::Ok)
        .await
        .unwrap()
        .clone();
    assert_eq!(well.failures, 0);
    assert_eq!(well.detail, None);
    assert_eq!(well.sources[JOB_RECORDS].detail, None);
    assert!(well.last_success.is_some());
    running.abort();
}

#[test]
fn pending_jobs_are_counted_by_reason() {
    let job = |id: u64, state: &str, partition: &str, reason: &str| {
        json!({
            "job_id": id,
            "job_state": state,
            "partition": partition,
            "state_reason": reason,
            "user_name": "ann",
            "submit_time": NOW,
            "array_job_id": 0,
            "array_task_id": null,
            "array_task_string": "",
        })
    };

    // One record for three tasks that have not started.
    let mut tasks = job(4, "PENDING", "gpu", "Resources");
    (tasks["array_job_id"], tasks["array_task_string"]) = (4.into(), "1-3".into());
    let jobs = [
        job(1, "PENDING", "gpu", "Resources"),
        // A job that waits for either of two partitions counts in both.
        job(2, "PENDING", "gpu,long", "Priority"),
        job(3, "RUNNING", "gpu", "None"),
        tasks,
        job(5, "PENDING", "long", "None"),
    ];
    let zone = TimeZone::UTC;
    let options = takt_slurm::sacct::Options {
        cluster: Cluster::Named("lab".into()),
        zone,
        columns: None,
    };
    let found = pending(&openapi::live_jobs(&json!({ "jobs": jobs }), &options));
    let found: Vec<_> = found
        .iter()
        .map(|one| (one.partition.as_str(), one.reason.as_str(), one.jobs))
        .collect();
    assert_eq!(
        found,
        [
            ("gpu", "Priority", 1),
            ("gpu", "Resources", 4),
            ("long", "None", 1),
            ("long", "Priority", 1)
        ]
    );
}

#[test]
fn pauses_grow_up_to_a_quarter_of_an_hour() {
    let config = JobsConfig::default();
    let pauses: Vec<u64> = [0, 1, 2, 3, 5, 6, 4_000_000_000]
        .map(|n| pause(&config, n).as_secs())
        .into();
    assert_eq!(pauses, [60, 60, 120, 240, 900, 900, 900]);
}

#[test]
fn windows_are_whole_and_at_most_a_week() {
    let parts = |begin, now| {
        windows(UnixTime(begin), UnixTime(now), 7 * 86_400)
            .map(|(from, to)| (from.0, to.0))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        parts(0, 1_300_000),
        [(0, 604_800), (604_800, 1_209_600), (1_209_600, 1_300_000)]
    );
    assert_eq!(parts(0, 604_800), [(0, 604_800)]);
    assert_eq!(parts(50, 50), [(50, 50)]);
    assert_eq!(parts(60, 50), [(50, 50)], "a clock that was set back");
}

#[tokio::test]
async fn a_slurm_of_another_name_is_not_stored_under_the_configured_one() {
    let mut stage = TestSlurm::new();
    stage.answer(&[&row("7", NOW - 50, None, "RUNNING")]);
    stage.poller.cluster = Some("labb".to_owned());
    let mut status = PollStatus::default();
    let result = stage.poller.poll(NOW).await;
    stage.poller.note(&mut status, &result);
    assert_eq!(stage.jobs(), []);
    assert_eq!(status.state, PollState::OtherCluster);
    assert_eq!(status.slurm_cluster.as_deref(), Some("lab"));
    let detail = status.detail.unwrap();
    assert!(
        detail.contains("\"labb\"") && detail.contains("\"lab\""),
        "{detail}"
    );
    // The name of slurm.conf was wrong.
    stage.script("scontrol", "echo 'ClusterName = labb'");
    stage.poller.poll(NOW + 60).await.unwrap();
    assert_eq!(stage.jobs().len(), 1);
}

/// Without an answer, a configured name is taken for right.
#[tokio::test]
async fn records_are_read_while_slurm_does_not_say_its_name() {
    let mut stage = TestSlurm::new();
    stage.answer(&[&row("7", NOW - 50, None, "RUNNING")]);
    stage.poller.cluster = Some("lab".to_owned());
    stage.script("scontrol", "exit 1");
    stage.poller.poll(NOW).await.unwrap();
    assert_eq!(stage.jobs().len(), 1);
}

#[tokio::test]
async fn slurmdbd_was_last_seen_at_the_last_poll_that_it_answered() {
    let mut stage = TestSlurm::new();
    stage.answer(&[]);
    stage.script(
        "sacctmgr",
        "echo 'Cluster|NodeName|TimeStart|TimeEnd|State|Reason|TRES'",
    );
    let seen = |stage: &TestSlurm| stage.poller.sources[SLURMDBD].clone();
    for seconds in [0, 60, 120] {
        stage.poller.poll(NOW + seconds).await.unwrap();
        assert_eq!(seen(&stage).last_success, Some(NOW + seconds));
    }
    let down =
        "echo 'sacct: error: Problem talking to the database: Connection refused' >&2; exit 1";
    stage.script("sacct", down);
    stage.poller.poll(NOW + 180).await.unwrap_err();
    assert_eq!(seen(&stage).last_success, Some(NOW + 120));
    assert_eq!(
        seen(&stage).problem.as_deref(),
        Some("slurmdbd does not answer")
    );
    stage.answer(&[]);
    stage.poller.poll(NOW + 240).await.unwrap();
    assert_eq!(
        (seen(&stage).last_success, seen(&stage).problem),
        (Some(NOW + 240), None)
    );
}

/// A Slurm whose records fail for hours was asked for its queue each quarter of an hour.
#[test]
fn while_slurmctld_answers_a_poll_follows_soon() {
    let mut stage = TestSlurm::new();
    let status = PollStatus {
        state: PollState::NoAccounting,
        failures: 9,
        ..PollStatus::default()
    };
    assert_eq!(stage.poller.failures_in_a_row(&status), 9);
    stage.poller.pending = Some(Vec::new());
    assert_eq!(stage.poller.failures_in_a_row(&status), 1);
}
