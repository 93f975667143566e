//! Runs Slurm's commands on this machine and explains their errors.

use super::config::JobsConfig;
use super::status::PollError;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use takt_model::UnixTime;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time;

/// Maximum size of an answer, in bytes: a week of a million jobs.
const MAX_ANSWER_BYTES: u64 = 512 << 20;

/// Maximum length of a kept error message, in bytes.
const MAX_STDERR_BYTES: u64 = 4096;

/// Returns the `ClusterName` of the Slurm that this machine's commands use.
///
/// # Errors
/// [`PollError::NoSlurm`] or [`PollError::Unconfigured`] without a Slurm; other variants if Slurm does not answer.
pub(super) async fn cluster_name(config: &JobsConfig) -> Result<String, PollError> {
    let named = |text: Vec<u8>| String::from_utf8_lossy(&text).trim().to_owned();

    let failure = match ask(config, "scontrol", ["show", "config"]).await {
        Ok(text) => {
            let text = named(text);
            match text
                .lines()
                .filter_map(|line| line.split_once('='))
                .find(|(key, _)| key.trim() == "ClusterName")
            {
                Some((_, cluster)) => {
                    return Ok(cluster.trim().to_owned());
                }
                None => PollError::Failed {
                    program: "scontrol",
                    stderr: "its configuration has no ClusterName".to_owned(),
                },
            }
        }
        // Without a Slurm on this machine, sacctmgr cannot answer either.
        Err(error) if error.state().is_absent() => return Err(error),
        Err(error) => error,
    };

    // slurmctld is down. slurmdbd also knows the name, if it has only one cluster.
    match ask(
        config,
        "sacctmgr",
        [
            "--noheader",
            "--parsable2",
            "show",
            "cluster",
            "format=cluster",
        ],
    )
    .await
    {
        // With several clusters, the one of this machine is unknown.
        Ok(text) if named(text.clone()).lines().count() == 1 => Ok(named(text)),
        _ => Err(failure),
    }
}

/// Returns slurmctld's configuration as text, which begins with its clock; `None` if slurmctld does
/// not answer.
pub(super) async fn settings(config: &JobsConfig) -> Option<String> {
    let text = ask(config, "scontrol", ["show", "config"]).await.ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Returns slurmctld's clock in its [`settings`].
pub(super) fn time(settings: &str) -> Option<UnixTime> {
    settings
        .lines()
        .next()?
        .strip_prefix("Configuration data as of ")?
        .trim()
        .parse()
        .ok()
}

/// Returns the job completion file of slurmctld, if slurm.conf names one and this machine can read
/// it.
pub(super) async fn completion_file(config: &JobsConfig) -> Option<PathBuf> {
    let text = settings(config).await?;
    let settings: HashMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect();

    if settings.get("JobCompType") != Some(&"jobcomp/filetxt") {
        return None;
    }

    let path = PathBuf::from(settings.get("JobCompLoc")?);
    path.is_file().then_some(path)
}

/// Runs one of Slurm's commands, from `slurm_bin` or PATH, and returns its output.
pub(crate) async fn ask_slurm<A>(
    slurm_bin: Option<&Path>,
    program: &'static str,
    args: impl IntoIterator<Item = A>,
) -> Result<Vec<u8>, PollError>
where
    A: AsRef<OsStr>,
{
    ask(
        &JobsConfig {
            slurm_bin: slurm_bin.map(Path::to_owned),
            ..JobsConfig::default()
        },
        program,
        args,
    )
    .await
}

/// Runs one of Slurm's commands and returns its output. Arguments are independent of the time zone.
pub(super) async fn ask<A>(
    config: &JobsConfig,
    program: &'static str,
    args: impl IntoIterator<Item = A>,
) -> Result<Vec<u8>, PollError>
where
    A: AsRef<OsStr>,
{
    ask_in(config, program, args, "UTC").await
}

/// Runs one of Slurm's commands with local times in its arguments and returns its output.
pub(super) async fn ask_in<A>(
    config: &JobsConfig,
    program: &'static str,
    args: impl IntoIterator<Item = A>,
    zone: &str,
) -> Result<Vec<u8>, PollError>
where
    A: AsRef<OsStr>,
{
    let path = config
        .slurm_bin
        .as_ref()
        .map_or_else(|| PathBuf::from(program), |folder| folder.join(program));

    let failed = |source| PollError::Run { program, source };
    let mut child = Command::new(path)
        .args(args)
        // UTC makes all times unambiguous, arrays get their full names, and messages stay in
        // English.
        .envs([
            ("SLURM_TIME_FORMAT", "%s"),
            ("TZ", zone),
            ("SLURM_BITSTR_LEN", "0"),
            ("LC_ALL", "C"),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => PollError::NoSlurm(format!("no {program}")),
            _ => failed(source),
        })?;

    let stdout = child.stdout.take();
    let stderr = child.stderr.take();

    // Both streams are read at the same time, because a full pipe would block the command.
    let answer = async {
        let (stdout, stderr) = tokio::join!(
            read(stdout, MAX_ANSWER_BYTES),
            read(stderr, MAX_STDERR_BYTES)
        );
        Ok::<_, io::Error>((stdout?, stderr?, child.wait().await?))
    };

    // At the timeout the child is dropped, which kills it.
    let patience = Duration::from_secs(config.timeout_seconds);
    let (stdout, stderr, status) = time::timeout(patience, answer)
        .await
        .map_err(|_| PollError::Timeout {
            program,
            seconds: config.timeout_seconds,
        })?
        .map_err(failed)?;

    // A cut answer would look like a shorter list of jobs.
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
    let end = match status.code() {
        Some(code) => format!("exit code {code}"),
        None => status.to_string(),
    };
    Err(refusal(
        program,
        if stderr.is_empty() {
            format!("{end}, without a message")
        } else {
            format!("{end}: {stderr}")
        },
    ))
}

/// Converts the error message of a failed command.
fn refusal(program: &'static str, stderr: String) -> PollError {
    // Slurm's exit codes do not tell these causes apart, so the words of its messages do.
    let says = |words: &[&str]| words.iter().any(|words| stderr.contains(words));
    if says(&[
        "Could not establish a configuration source",
        "Unable to process configuration file",
    ]) {
        PollError::Unconfigured(format!("{program}: {stderr}"))
    } else if says(&[
        "accounting storage is disabled",
        "not running a supported accounting_storage plugin",
    ]) {
        PollError::NoAccounting(stderr)
    } else if says(&[
        "Problem talking to the database",
        "failed to open persistent connection",
        "slurmdbd",
    ]) {
        PollError::DatabaseDown(stderr)
    } else {
        PollError::Failed { program, stderr }
    }
}

/// Reads at most `most` bytes. The rest is read and discarded, because the writer would otherwise
/// block.
async fn read(stream: Option<impl AsyncRead + Unpin>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        (&mut stream).take(most).read_to_end(&mut bytes).await?;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    }
    Ok(bytes)
}
