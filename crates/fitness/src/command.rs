//! The command: its options, and its answer.

use crate::ask::{AskError, Place};
use crate::checks::{Action, Checks, ChecksError};
use crate::facts::{COLLECTORS, Facts};
use crate::job_gpus::{GpuOrder, JobGpus};
use crate::judge::{CHECKS, Finding, judge};
use crate::words::{self, Fitness};
use clap::{Args, ValueEnum};
use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The file of checks that is read if it exists.
const CHECKS_FILE: &str = "/etc/takt/node-ok.toml";

/// The kernel's name of this machine.
const HOSTNAME_FILE: &str = "/proc/sys/kernel/hostname";

/// The exit codes, for `--help`.
pub const EXIT_CODES: &str =
    "Exit codes: 0 fit, 1 not fit, 2 wrong usage, or the exporter cannot be asked.";

/// Is this node fit for a job?
#[derive(Debug, Clone, Args)]
pub struct NodeOk {
    /// Address of the node's exporter: HOST:PORT, or http://HOST:PORT/metrics
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9855")]
    pub exporter: String,
    /// File of checks (TOML) [default: /etc/takt/node-ok.toml, if it exists, else the built-in list]
    #[arg(long, value_name = "FILE")]
    pub checks: Option<PathBuf>,
    /// File with `user:password` of the exporter, where its web configuration asks for one
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Milliseconds to wait for the exporter
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub timeout_milliseconds: u64,
    /// Result if the exporter cannot be asked: error (exit code 2), fit (0) or unfit (1)
    #[arg(long, value_enum, default_value_t)]
    pub if_unknown: IfUnknown,
    /// Faults of GPUs that the job does not get are warnings (reads SLURM_JOB_GPUS)
    #[arg(long)]
    pub only_job_gpus: bool,
    /// GPUs of the job, such as 0,2-3, instead of SLURM_JOB_GPUS; implies --only-job-gpus
    #[arg(long, value_name = "LIST")]
    pub job_gpus: Option<String>,
    /// Order in which slurmd counts GPUs, as of the exporter's --collector.jobs.gpu-order
    #[arg(long, value_enum, default_value_t)]
    pub gpu_order: GpuOrder,
    /// Also print the checks that passed, and exit with 0 whatever fails
    #[arg(long)]
    pub dry_run: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: OutputFormat,
}

/// Result if the exporter cannot be asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum IfUnknown {
    /// Exit code 2
    #[default]
    Error,
    /// Exit code 0: a stopped exporter drains no node
    Fit,
    /// Exit code 1: a node that nobody can judge gets no jobs
    Unfit,
}

/// Format of the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// One line for each failed check, as of NHC; nothing if all passed
    #[default]
    Text,
    /// One object
    Json,
    /// The failed checks on one line, for the reason of a drained node
    Reason,
    /// The command that drains the node; it is printed, not run
    Scontrol,
}

/// What the command prints, and its exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Text for standard output.
    pub stdout: String,
    /// One line for standard error, without a line feed; empty if there is nothing to say.
    pub stderr: String,
    /// 0 fit, 1 not fit, 2 wrong usage or unknown.
    pub exit_code: u8,
}

impl NodeOk {
    /// Asks the exporter and judges. Changes nothing.
    pub fn answer(&self) -> Answer {
        // Mistakes of the command line end before the exporter is asked, and never count as a fault
        // of the node.
        let usage = |error: String| Answer {
            stdout: String::new(),
            stderr: words::plain(&format!("takt node ok: {error}"), 1000),
            exit_code: 2,
        };
        let checks = match self.read_checks() {
            Ok(checks) => checks,
            Err(error) => return usage(error.to_string()),
        };
        let place = match Place::parse(&self.exporter) {
            Ok(place) => place,
            Err(error) => return usage(format!("--exporter: {error}")),
        };
        if let Some(part) = self.job_gpus.as_deref().and_then(JobGpus::mistake) {
            let expected = "expected numbers such as 0,2-3, or UUIDs";
            return usage(format!("--job-gpus: {expected}, found {part:?}"));
        }
        let password = match self.password_file.as_deref().map(read_password).transpose() {
            Ok(password) => password,
            Err(error) => return usage(error.to_string()),
        };

        match self.facts(&place, password.as_deref()) {
            Ok(facts) => self.judged(&facts, &checks),
            Err(error) => self.unknown(&error),
        }
    }

    /// The answer for these facts.
    fn judged(&self, facts: &Facts, checks: &Checks) -> Answer {
        let mut findings = Vec::new();
        let job_gpus = match self.find_job_gpus(facts) {
            Ok(job_gpus) => job_gpus,
            // A job must not start where its GPU does not exist; the other checks still count for
            // all GPUs.
            Err(part) => {
                findings.push(Finding {
                    check: "gpu_count",
                    gpu: None,
                    text: format!("the job's GPU {part:?} is not on this node"),
                    action: Action::Fail,
                });
                JobGpus::All
            }
        };
        findings.extend(judge(facts, checks, &job_gpus, now()));

        let is_unfit = findings.iter().any(|one| one.action == Action::Fail);
        let fitness = if is_unfit {
            Fitness::Unfit
        } else {
            Fitness::Fit
        };
        // A dry run in a prolog must drain nothing.
        let exit_code = u8::from(is_unfit && !self.dry_run);
        let mut stdout = self.printed(&findings, fitness, exit_code, None);
        if self.format == OutputFormat::Text && self.dry_run {
            let verdict = if is_unfit { "not fit" } else { "fit" };
            stdout.push_str(&passed(checks, &findings));
            stdout.push_str(&format!("takt node ok: dry run: the node is {verdict}\n"));
        }
        Answer {
            stdout,
            stderr: String::new(),
            exit_code,
        }
    }

    /// The answer if the exporter could not be asked.
    fn unknown(&self, error: &AskError) -> Answer {
        let exit_code = match self.if_unknown {
            _ if self.dry_run => 0,
            IfUnknown::Error => 2,
            IfUnknown::Fit => 0,
            IfUnknown::Unfit => 1,
        };
        let failed = Finding {
            check: "exporter",
            gpu: None,
            text: error.to_string(),
            action: Action::Fail,
        };
        // Only an unfit node has a reason for `scontrol`.
        let counted = match self.if_unknown {
            IfUnknown::Unfit => std::slice::from_ref(&failed),
            _ => &[],
        };

        let error = error.to_string();
        let stdout = self.printed(counted, Fitness::Unknown, exit_code, Some(&error));
        Answer {
            stdout,
            stderr: words::plain(&format!("takt node ok: unknown: {error}"), 1000),
            exit_code,
        }
    }

    /// The findings in the format that was asked for. `error` says why the exporter could not be asked.
    fn printed(
        &self,
        findings: &[Finding],
        fitness: Fitness,
        exit_code: u8,
        error: Option<&str>,
    ) -> String {
        match self.format {
            OutputFormat::Text => words::lines(findings),
            OutputFormat::Json => {
                let node = node_name();
                words::json(findings, &node, fitness, exit_code, self.dry_run, error)
            }
            OutputFormat::Reason => match words::reason(findings) {
                reason if reason.is_empty() => reason,
                reason => reason + "\n",
            },
            OutputFormat::Scontrol => words::scontrol(findings, &node_name()),
        }
    }

    fn facts(&self, place: &Place, password: Option<&str>) -> Result<Facts, AskError> {
        let within = Duration::from_millis(self.timeout_milliseconds);
        let page = place.page(COLLECTORS, password, within)?;
        let stranger = || AskError::Stranger(place.address().to_owned());
        // Another exporter on this port has pages, too, and each missing metric would look like a
        // healthy node.
        let facts = Facts::parse(&page).map_err(|_| stranger())?;
        if facts.are_of_takt_exporter() {
            Ok(facts)
        } else {
            Err(stranger())
        }
    }

    fn read_checks(&self) -> Result<Checks, ChecksError> {
        let path = self.checks.as_deref().unwrap_or(Path::new(CHECKS_FILE));
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            // Only the default file may be missing. A named one that is missing would turn its
            // checks off.
            Err(error) if self.checks.is_none() && error.kind() == ErrorKind::NotFound => {
                return Ok(Checks::default());
            }
            Err(source) => {
                return Err(ChecksError::Read {
                    path: path.to_owned(),
                    source,
                });
            }
        };
        Checks::parse(&text).map_err(|problem| ChecksError::Mistake {
            path: path.to_owned(),
            problem,
        })
    }

    fn find_job_gpus(&self, facts: &Facts) -> Result<JobGpus, String> {
        if let Some(list) = &self.job_gpus {
            return JobGpus::find(list, self.gpu_order, facts);
        }
        if !self.only_job_gpus {
            return Ok(JobGpus::All);
        }
        // Slurm sets the variable for jobs with GPUs only.
        let list = env::var("SLURM_JOB_GPUS").unwrap_or_default();
        JobGpus::find(&list, self.gpu_order, facts)
    }
}

/// Lines for the checks without a finding.
fn passed(checks: &Checks, findings: &[Finding]) -> String {
    let has_passed = |name: &str| !findings.iter().any(|finding| finding.check == name);
    let mut out = String::new();
    for check in CHECKS.iter().filter(|check| has_passed(check.name)) {
        let word = match checks.action(check.name) {
            Action::Off => "off",
            Action::Fail | Action::Warn if checks.asks_nothing_of(check.name) => "not configured",
            Action::Fail | Action::Warn => "passed",
        };
        out.push_str(&format!(
            "check_takt_{}:  {word}:  {}\n",
            check.name, check.about
        ));
    }
    out
}

fn read_password(path: &Path) -> Result<String, ChecksError> {
    let text = fs::read_to_string(path).map_err(|source| ChecksError::Read {
        path: path.to_owned(),
        source,
    })?;
    let line = text.trim_end_matches(['\r', '\n']);
    // A line feed in the header would end it.
    if !line.contains(':') || line.contains('\n') {
        return Err(ChecksError::Mistake {
            path: path.to_owned(),
            problem: "expected one line, user:password".to_owned(),
        });
    }
    Ok(line.to_owned())
}

/// The scheduler's name of this node, else the first part of the machine's name.
fn node_name() -> String {
    let of_slurm = env::var("SLURMD_NODENAME")
        .ok()
        .filter(|name| !name.is_empty());
    let of_machine = || {
        let name = fs::read_to_string(HOSTNAME_FILE).unwrap_or_default();
        name.trim().split('.').next().unwrap_or_default().to_owned()
    };

    of_slurm.unwrap_or_else(of_machine)
}

/// Seconds since 1970.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}
