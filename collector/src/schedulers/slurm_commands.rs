//! Reads Slurm with its commands on this machine: `scontrol`, `squeue`, `sinfo`, `sacct` and
//! `sacctmgr`.
//!
//! Jobs, nodes and the queue carry texts of users. squeue, sinfo and `scontrol show nodes` print them
//! as JSON; sacct, whose JSON costs ten times the time and the memory, prints rows with a delimiter
//! that is drawn for each request. sacctmgr has neither: its lists carry texts of administrators,
//! operators and coordinators only.

use super::command::{ask, cluster_name, settings, time};
use super::config::JobsConfig;
use super::scheduler::{Scheduler, SchedulerAnswer, options};
use super::status::PollError;
use async_trait::async_trait;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};
use takt_jobs::{Node, NodeEvent, Reservation, ShareSettings};
use takt_model::UnixTime;
use takt_slurm::access_text::{self, constrains_devices};
use takt_slurm::openapi::{self, LiveJob};
use takt_slurm::releases::Release;
use takt_slurm::{node, reservation, share_text};

/// Columns to read from `sacct`. Users write only the name, which is not last.
const COLUMNS: &str = "JobID,JobIDRaw,Submit,Eligible,Start,End,State,User,Account,Partition,QOS,AllocTRES,ReqTRES,NNodes,NCPUS,\
                       NodeList,ElapsedRaw,Suspended,TimelimitRaw,Reservation,JobName,ExitCode";

/// Further columns of sacct since 26.05. An earlier sacct refuses a request for them.
const SLUID_COLUMNS: &str = ",SLUID,OriginalSLUID";

/// The first release whose sacct has [`SLUID_COLUMNS`].
const SLUIDS_SINCE: Release = Release { year: 26, month: 5 };

/// Time after which sacct is asked for its version again: it may be upgraded without slurmctld.
const SACCT_VERSION_INTERVAL: Duration = Duration::from_secs(3600);

/// Slurm's commands, from `jobs.slurm_bin` or PATH.
#[derive(Debug)]
struct SlurmCommands {
    config: JobsConfig,
    /// Whether jobs can open only their own GPUs, when slurmctld last answered.
    constrains_devices: Option<bool>,
    /// Version of slurmctld, when it last answered.
    version: Option<String>,
    /// Whether sacct has [`SLUID_COLUMNS`].
    has_sluids: bool,
    /// When sacct was asked for its version. `None` if it is to be asked at the next poll.
    sacct_asked: Option<Instant>,
    /// Whether Slurm hid other users' jobs, when slurmctld last answered.
    hides_jobs: bool,
    /// User who asks, if known.
    uid: Option<u32>,
}

/// Returns Slurm's commands, which need no configuration.
pub(super) fn from_config(config: &JobsConfig) -> Option<Result<Box<dyn Scheduler>, PollError>> {
    let config = config.clone();
    let own = fs::metadata("/proc/self").ok();
    Some(Ok(Box::new(SlurmCommands::new(
        config,
        own.map(|own| own.uid()),
    ))))
}

impl SlurmCommands {
    fn new(config: JobsConfig, uid: Option<u32>) -> Self {
        Self {
            config,
            constrains_devices: None,
            version: None,
            has_sluids: false,
            sacct_asked: None,
            hides_jobs: false,
            uid,
        }
    }

    async fn text(&self, program: &'static str, args: &[&str]) -> Result<String, PollError> {
        let printed = ask(&self.config, program, args).await?;
        Ok(String::from_utf8_lossy(&printed).into_owned())
    }

    /// Whether slurmctld lets a user see all jobs.
    async fn is_operator(&self, uid: u32) -> Result<bool, PollError> {
        let args = ["show", "assoc_mgr", "flags=users"];
        let users = self.text("scontrol", &args).await?;
        Ok(access_text::is_operator(&users, uid))
    }

    async fn sacct(&mut self, which: &[&str]) -> Result<SchedulerAnswer, PollError> {
        let delimiter = secret_delimiter().map_err(|source| PollError::Run {
            program: "sacct",
            source,
        })?;

        let delimited = format!("--delimiter={delimiter}");
        let sluids = if self.has_sluids { SLUID_COLUMNS } else { "" };
        let columns = format!("{COLUMNS}{sluids}");
        let args = [
            "--allusers",
            "--parsable",
            &delimited,
            "--duplicates",
            "--allocations",
            "--format",
            &columns,
        ];

        let answer = ask(&self.config, "sacct", args.iter().chain(which)).await;
        if answer.is_err() {
            // It may be another sacct now, which refuses the columns.
            self.sacct_asked = None;
        }
        let text = answer?;
        Ok(SchedulerAnswer::Sacct { text, delimiter })
    }

    /// Asks sacct whether it has [`SLUID_COLUMNS`]: it may be older than slurmctld. Without an answer, the last one counts.
    async fn ask_for_sluids(&mut self) {
        let Ok(printed) = self.text("sacct", &["--version"]).await else {
            self.sacct_asked = None;
            return;
        };
        let version = printed.trim().strip_prefix("slurm ");
        let release = version.and_then(|version| version.parse::<Release>().ok());
        self.has_sluids = release.is_some_and(|release| release >= SLUIDS_SINCE);
        self.sacct_asked = Some(Instant::now());
    }
}

/// Returns a delimiter that no text of a user contains: it is drawn for one request. sacct prints texts
/// as they are, so a known delimiter would let a job's name end its field and begin other records. It
/// has 64 random bits: it makes half of each row.
fn secret_delimiter() -> io::Result<String> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("|{}", BASE64_URL_SAFE_NO_PAD.encode(bytes)))
}

#[async_trait]
impl Scheduler for SlurmCommands {
    fn name(&self) -> &'static str {
        "sacct"
    }

    fn window_seconds(&self) -> i64 {
        7 * 86_400
    }

    fn records_lack_reservations(&self) -> bool {
        false
    }

    async fn cluster(&mut self) -> Result<String, PollError> {
        cluster_name(&self.config).await
    }

    async fn time(&mut self) -> Option<UnixTime> {
        let settings = settings(&self.config).await?;
        self.constrains_devices = constrains_devices(&settings);
        let version = access_text::version(&settings).map(str::to_owned);
        // A process for each poll would be too much.
        let is_known = self
            .sacct_asked
            .is_some_and(|at| at.elapsed() < SACCT_VERSION_INTERVAL);
        if version != self.version || !is_known {
            self.ask_for_sluids().await;
            self.version = version;
        }
        // Without slurmdbd, Slurm has no operators.
        let hidden_from = self
            .uid
            .filter(|uid| access_text::hides_jobs(&settings, *uid));
        match hidden_from {
            None => self.hides_jobs = false,
            Some(uid) => {
                if let Ok(is_operator) = self.is_operator(uid).await {
                    self.hides_jobs = !is_operator;
                }
            }
        }
        time(&settings)
    }

    fn constrains_devices(&self) -> Option<bool> {
        self.constrains_devices
    }

    fn hides_jobs(&self) -> bool {
        self.hides_jobs
    }

    fn version(&self) -> Option<String> {
        self.version.clone()
    }

    async fn nodes(&mut self) -> Result<Vec<Node>, PollError> {
        // Available since Slurm 23.02; the JSON of sinfo in that release has another form.
        let text = match ask(&self.config, "scontrol", ["show", "nodes", "--json"]).await {
            Ok(text) => text,
            Err(_) => ask(&self.config, "sinfo", ["--json"]).await?,
        };

        let answer = json("sinfo", &text)?;
        Ok(openapi::nodes(&answer).iter().map(node::node).collect())
    }

    fn keeps_history(&self) -> bool {
        true
    }

    async fn node_events(
        &mut self,
        cluster: &str,
        since: UnixTime,
    ) -> Result<Vec<NodeEvent>, PollError> {
        let of_cluster = format!("cluster={cluster}");
        let fields = "format=Cluster,NodeName,TimeStart,TimeEnd,State,Reason,TRES";
        let args = [
            "--parsable2",
            "show",
            "event",
            "event=cluster,node",
            &of_cluster,
            &start(since),
            fields,
        ];

        let text = self.text("sacctmgr", &args).await?;
        Ok(node::events(&text, cluster))
    }

    async fn reservations(&mut self) -> Result<Vec<Reservation>, PollError> {
        let args = ["--oneliner", "show", "reservations"];
        let text = self.text("scontrol", &args).await?;
        Ok(text.lines().filter_map(reservation::of_scontrol).collect())
    }

    async fn past_reservations(
        &mut self,
        cluster: &str,
        since: UnixTime,
    ) -> Result<Vec<Reservation>, PollError> {
        let of_cluster = format!("cluster={cluster}");
        let show = |what, rest: &[&str]| {
            ["--noheader", "--parsable2", "show", what, &of_cluster]
                .iter()
                .chain(rest)
                .map(|arg| (*arg).to_owned())
                .collect::<Vec<_>>()
        };

        let fields = "format=Name,Start,End,Flags,NodeNames,Assoc,TRES";
        let args = show("reservation", &[&start(since), fields]);
        let listed = ask(&self.config, "sacctmgr", args).await?;
        if listed.trim_ascii().is_empty() {
            return Ok(Vec::new());
        }

        // The owners of a reservation are association ids.
        let args = show("associations", &["format=ID,Account,User"]);
        let owners = ask(&self.config, "sacctmgr", args).await?;
        let owners = reservation::owners_by_id(&String::from_utf8_lossy(&owners));

        let listed = String::from_utf8_lossy(&listed);
        Ok(reservation::of_sacctmgr(&listed, &owners))
    }

    async fn shares(&mut self, cluster: &str) -> Result<ShareSettings, PollError> {
        let config_text = self.text("scontrol", &["show", "config"]).await?;
        let partitions = self.text("scontrol", &["show", "partition"]).await?;

        let of_cluster = format!("cluster={cluster}");
        let fields = "format=Cluster,Account,ParentName,User,Partition,Share,GrpTRESMins,LFT";
        let args = ["--parsable2", "show", "assoc", "tree", &of_cluster, fields];
        let associations = self.text("sacctmgr", &args).await?;

        let args = [
            "--parsable2",
            "show",
            "qos",
            "format=Name,Flags,UsageFactor",
        ];
        let qos = self.text("sacctmgr", &args).await?;

        Ok(ShareSettings {
            associations: share_text::associations(&associations, cluster)
                .map_err(PollError::shares("sacctmgr"))?,
            priority: share_text::priority_settings(&config_text)
                .map_err(PollError::shares("scontrol"))?,
            partitions: share_text::partitions(&partitions)
                .map_err(PollError::shares("scontrol"))?,
            qos: share_text::qos(&qos).map_err(PollError::shares("sacctmgr"))?,
            otherwise: None,
        })
    }

    async fn live_jobs(&mut self, cluster: &str) -> Result<Vec<LiveJob>, PollError> {
        let text = ask(&self.config, "squeue", ["--all", "--json"]).await?;
        let answer = json("squeue", &text)?;
        Ok(openapi::live_jobs(&answer, &options(cluster)))
    }

    async fn jobs_in(
        &mut self,
        from: UnixTime,
        to: Option<UnixTime>,
    ) -> Result<SchedulerAnswer, PollError> {
        let since = local_text(from);

        let until = to.map(local_text);
        let mut period = vec!["-S", &since];
        if let Some(until) = &until {
            period.extend(["-E", until]);
        }
        self.sacct(&period).await
    }

    async fn jobs_by_id(&mut self, ids: &[&str]) -> Result<SchedulerAnswer, PollError> {
        self.sacct(&["-j", &ids.join(",")]).await
    }
}

/// Parses the JSON output of a command. Slurm's commands report an unreachable slurmctld as JSON,
/// with exit code 0.
fn json(program: &'static str, text: &[u8]) -> Result<Value, PollError> {
    let answer: Value = serde_json::from_slice(text).map_err(|error| PollError::Failed {
        program,
        stderr: format!("its answer is not JSON: {error}"),
    })?;

    match openapi::error(&answer) {
        Some(error) => Err(PollError::ControllerDown(error.to_string())),
        None => Ok(answer),
    }
}

/// Returns a start time as an option of `sacctmgr show`.
fn start(since: UnixTime) -> String {
    format!("start={}", local_text(since))
}

/// Formats a time for Slurm's options. The commands run with time zone UTC.
fn local_text(instant: UnixTime) -> String {
    Timestamp::try_from(instant)
        .unwrap_or(Timestamp::UNIX_EPOCH)
        .strftime("%Y-%m-%dT%H:%M:%S")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::tempdir;

    #[tokio::test]
    async fn sacct_is_asked_again_although_slurmctld_stays() {
        let folder = tempdir().unwrap();
        let stand_in = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/stand-in.sh");
        for program in ["scontrol", "sacct"] {
            symlink(stand_in, folder.path().join(program)).unwrap();
        }
        let is = |program: &str, body: &str| {
            fs::write(folder.path().join(format!("{program}.body")), body).unwrap();
        };
        let config = JobsConfig {
            slurm_bin: Some(folder.path().to_owned()),
            ..JobsConfig::default()
        };
        let mut slurm = SlurmCommands::new(config, None);

        // slurmctld is upgraded first. Without an answer, sacct is asked at the next poll.
        is("scontrol", "echo 'SLURM_VERSION = 26.05.1'");
        is("sacct", "exit 1");
        slurm.time().await;
        is("sacct", "echo slurm 25.11.2");
        slurm.time().await;
        assert!(!slurm.has_sluids && slurm.sacct_asked.is_some());

        is("sacct", "echo slurm 26.05.1");
        slurm.time().await;
        assert!(!slurm.has_sluids, "not at each poll");
        slurm.sacct_asked = Instant::now().checked_sub(SACCT_VERSION_INTERVAL);
        slurm.time().await;
        assert!(slurm.has_sluids);

        // The machine gets an older sacct, which refuses the columns.
        is(
            "sacct",
            "case \"$*\" in *SLUID*) exit 1;; *) echo slurm 25.11.2;; esac",
        );
        assert!(slurm.jobs_by_id(&["7"]).await.is_err());
        slurm.time().await;
        assert!(slurm.jobs_by_id(&["7"]).await.is_ok());
    }

    /// An operator of a directory service, who is not in /etc/passwd, was told that jobs are hidden.
    #[tokio::test]
    async fn jobs_are_hidden_from_whom_slurmctld_has_as_no_operator() {
        let folder = tempdir().unwrap();
        let stand_in = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/stand-in.sh");
        symlink(stand_in, folder.path().join("scontrol")).unwrap();
        let config = JobsConfig {
            slurm_bin: Some(folder.path().to_owned()),
            ..JobsConfig::default()
        };
        let mut slurm = SlurmCommands::new(config, Some(4_000_000));
        for (private, level, hides) in [
            (
                "jobs",
                "echo UserName='takt(4000000)' DefAccount=a DefWckey= AdminLevel=None",
                true,
            ),
            ("jobs", "exit 1", true),
            ("none", "exit 1", false),
            ("usage,jobs", "exit 1", false),
            ("jobs", "echo", true),
            (
                "jobs",
                "echo UserName='takt(4000000)' DefAccount=a DefWckey= AdminLevel=Operator",
                false,
            ),
            ("jobs", "exit 1", false),
        ] {
            let body = format!(
                "case \"$*\" in *assoc_mgr*) {level};; *) echo 'PrivateData = {private}';; esac"
            );
            fs::write(folder.path().join("scontrol.body"), body).unwrap();
            slurm.time().await;
            assert_eq!(slurm.hides_jobs(), hides, "{private} {level}");
        }
    }
}
