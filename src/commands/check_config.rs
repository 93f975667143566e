//! `takt check-config`: reads the configuration as the server does and prints the effective
//! settings.

use super::one_thread;
use crate::cli::Place;
use crate::output::stdout;
use crate::place;
use anyhow::Error;
use clap::Args;
use rustix::process;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use takt_collector::schedulers::{self, JobsConfig};
use takt_model::shown::{shown_address, shown_parameter, without_secrets};
use takt_model::{ConfigError, error_chain};
use takt_questions::password::knows_user;
use takt_server::alerting;
use takt_server::config::{ServiceUser, in_lines};
use takt_server::{Config, Failure, OrUsage};

/// What the names of labels begin with that are parameters of a scrape.
const PARAM: &str = "__param_";

/// Maximum time that Slurm has to say its name, in seconds.
const SLURM_SECONDS: u64 = 10;

#[derive(Debug, Args)]
pub struct CheckConfig {
    /// Print the reference page of all keys instead
    #[arg(long)]
    pub reference: bool,
}

/// Runs the command.
pub fn run(place: &Place, asked: &CheckConfig) -> Result<(), Failure> {
    let mut out = stdout();
    if asked.reference {
        return Ok(out.write_all(takt_server::config_reference().as_bytes())?);
    }

    // All mistakes are collected, so that one run of the command shows all of them.
    let mut config = place::load(place).usage()?;
    let mut mistakes = mistakes(place, &config);
    name_unknown_users(&config)?;

    let mut err = io::stderr();
    for file in config.open_secrets() {
        let file = file.display();
        writeln!(
            err,
            "every user can read the secret in {file}: chmod o-rwx {file}"
        )?;
    }

    // Files that the configuration names are checked too.
    let loaded = alerting::load(&config);
    for doubt in config.doubts(loaded.as_ref().ok()) {
        writeln!(err, "{doubt}")?;
    }
    match loaded {
        Ok(loaded) => {
            mistakes.extend(loaded.template_mistakes.into_iter().map(Error::msg));
        }
        Err(error) => mistakes.push(error),
    }
    if !mistakes.is_empty() {
        return Err(in_lines(mistakes)).usage();
    }

    // The file that is in force is named: a file in the current directory is not read by itself.
    let text = effective(&mut config)?;
    match place::config_file(place) {
        Some(path) => writeln!(out, "# {} is good. In force:\n", path.display())?,
        None if Path::new("takt.toml").exists() => writeln!(
            out,
            "# takt.toml in this directory is not read: name it with --config takt.toml. The \
             defaults:\n"
        )?,
        None => writeln!(
            out,
            "# No configuration file was named (--config); these are the defaults:\n"
        )?,
    }

    Ok(out.write_all(text.as_bytes())?)
}

/// Returns what a valid configuration names and cannot be used here.
fn mistakes(place: &Place, config: &Config) -> Vec<Error> {
    let data_dir = place::server_dir(place, config);
    let mut found = config.defects(&data_dir);
    let secrets = service_user(place, config).map(|user| config.check_secrets_of(&user));
    let others = [check_cluster(config), secrets.unwrap_or(Ok(()))];
    found.extend(others.into_iter().filter_map(Result::err));
    found
}

/// Says on standard error which users of `[auth]` the machine does not know. That is no mistake: a
/// directory that is not asked may know them.
fn name_unknown_users(config: &Config) -> io::Result<()> {
    let mut err = io::stderr();
    for (key, name) in config.auth.named_users() {
        if !knows_user(name) {
            writeln!(err, "{key}: this machine knows no user {name}")?;
        }
    }
    Ok(())
}

/// Checks that the cluster is that of the Slurm whose records the server reads.
///
/// # Errors
/// If Slurm answers and has another name.
fn check_cluster(config: &Config) -> anyhow::Result<()> {
    let Some(cluster) = config.cluster.as_ref().filter(|_| config.jobs.poll) else {
        return Ok(());
    };

    // A wrong name would split the records into two clusters, so it is worth asking Slurm.
    let jobs = JobsConfig {
        timeout_seconds: SLURM_SECONDS,
        ..config.jobs.clone()
    };
    match one_thread()?.block_on(schedulers::detect(&jobs)) {
        Ok(name) if name != *cluster => {
            let expected = format!("{name}, the ClusterName of the Slurm that [jobs] reads");
            Err(config.located(&ConfigError::new("cluster", expected, cluster)))
        }
        Ok(_) => Ok(()),
        // Without an answer, nothing is known.
        Err(error) => {
            if !error.state().is_absent() {
                let error = error_chain(&error);
                tracing::warn!("cluster was not compared with the name that Slurm has: {error}");
            }
            Ok(())
        }
    }
}

/// Shown in place of a secret.
const HIDDEN: &str = "<hidden>";

/// Returns the effective configuration as TOML, with the secret parts of URLs hidden.
pub fn effective(config: &mut Config) -> anyhow::Result<String> {
    // A webhook's path is its password, and a heartbeat's, too.
    for url in [
        &mut config.alerts.webhook_url,
        &mut config.alerts.heartbeat_url,
    ] {
        *url = url.as_deref().map(without_secret);
    }

    // On a public server, the topic is all that a reader needs.
    let topic = &mut config.alerts.ntfy_topic;
    *topic = topic.take().map(|_| HIDDEN.to_owned());
    for job in &mut config.scrape.configs {
        job.metrics_path = shown_address(&job.metrics_path);
        for (name, values) in &mut job.params {
            for value in values {
                *value = shown_parameter(name, value).to_owned();
            }
        }

        // Labels can be parameters, too.
        let listed = job.static_configs.iter_mut();
        for (label, value) in listed.flat_map(|listed| &mut listed.labels) {
            if let Some(name) = label.strip_prefix(PARAM) {
                *value = shown_parameter(name, value).to_owned();
            }
        }
        for rule in &mut job.relabel_configs {
            // `$1` is a part of another label.
            if let Some(name) = rule.target_label.strip_prefix(PARAM)
                && !rule.replacement.starts_with('$')
            {
                rule.replacement = shown_parameter(name, &rule.replacement).to_owned();
            }
        }
    }

    Ok(without_secrets(&toml::to_string(config)?))
}

/// Returns the user that the server of this configuration runs as, if root checks it: the owner of
/// the data directory, else the user that `make install` creates.
fn service_user(place: &Place, config: &Config) -> Option<ServiceUser> {
    if !process::geteuid().is_root() {
        return None;
    }

    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let passwd = text("/etc/passwd");
    let owner = fs::metadata(place::server_dir(place, config))
        .ok()
        .map(|found| found.uid());

    let id = owner
        .or_else(|| {
            passwd
                .lines()
                .find(|line| line.starts_with("takt:"))?
                .split(':')
                .nth(2)?
                .parse()
                .ok()
        })
        // Root's own directory shows nothing about the service.
        .filter(|id| *id != 0)?;
    ServiceUser::with_id(id, &passwd, &text("/etc/group"))
}

/// The scheme, host and port of a URL. The rest of a webhook's URL is a secret.
fn without_secret(url: &str) -> String {
    match reqwest::Url::parse(url) {
        Ok(parsed) if parsed.has_host() => {
            format!("{}/{HIDDEN}", parsed.origin().ascii_serialization())
        }
        _ => HIDDEN.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_hidden_wherever_they_are_set() {
        let text = "[[scrape.configs]]\njob_name = 'x'\nparams = {key = ['s3cret']}\n\
            static_configs = [{targets = ['g01:1'], labels = {__param_key = 's3cret', rack = 'r1'}}]\n\
            relabel_configs = [{target_label = '__param_key', replacement = 's3cret'},\n\
                {source_labels = ['__address__'], target_label = '__param_target', replacement = '$1'}]\n";
        let mut config = Config::parse(text, Path::new("takt.toml")).unwrap();
        let shown = effective(&mut config).unwrap();
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(shown.contains("r1") && shown.contains("\"$1\""), "{shown}");
    }

    #[test]
    fn only_the_server_of_a_url_is_shown() {
        for (url, shown) in [
            (
                "https://hooks.example/T0/s3cret",
                "https://hooks.example/<hidden>",
            ),
            (
                "http://u:s3cret@127.0.0.1:81/x?key=s3cret#s3cret",
                "http://127.0.0.1:81/<hidden>",
            ),
            ("s3cret", "<hidden>"),
            ("mailto:s3cret", "<hidden>"),
        ] {
            assert_eq!(without_secret(url), shown);
        }
    }
}
