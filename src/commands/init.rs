//! `takt init`: proposes a configuration for this machine and its cluster.

use super::one_thread;
use crate::output::stdout;
use crate::place::INSTALLED_CONFIG;
use anyhow::Context;
use clap::Args;
use futures_util::stream::{self, StreamExt};
use jiff::tz::TimeZone;
use rustix::system;
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use takt_collector::schedulers::{self, JobsConfig};
use takt_server::setup::{EXPORTER_PORTS, Found, RemoteTool, installation, proposal};
use takt_server::{Config, Failure, OrUsage};
use tokio::net::TcpStream;
use tokio::time;

#[derive(Debug, Clone, Args)]
pub struct Init {
    /// File to write
    #[arg(long, value_name = "FILE", default_value = "takt.toml")]
    pub to: PathBuf,
    /// Print the proposal instead of writing it
    #[arg(long)]
    pub dry_run: bool,
    /// Replace an existing file, which is kept as FILE.old
    #[arg(long)]
    pub force: bool,
    /// Directory of Slurm's commands [default: PATH]
    #[arg(long, value_name = "DIR")]
    pub slurm_bin: Option<PathBuf>,
}

/// Time for a node to accept a connection.
const CONNECT: Duration = Duration::from_millis(500);

/// Number of connections that are tried at the same time.
const AT_ONCE: usize = 64;

/// Longest wait for one of Slurm's commands, in seconds.
const SLURM_SECONDS: u64 = 10;

/// Runs the command.
pub fn run(asked: &Init) -> Result<(), Failure> {
    let found = one_thread()?.block_on(look(asked.slurm_bin.clone()));
    let text = proposal(&found, is_installed(&asked.to));
    // The proposal goes through the server's own parser, so that it is never refused later.
    Config::parse(&text, &asked.to).context("the proposal is not valid")?;
    if asked.dry_run {
        return Ok(stdout().write_all(text.as_bytes())?);
    }
    write(&asked.to, &text, asked.force).usage()?;
    Ok(report(&found, &asked.to)?)
}

/// Writes the file. Keeps a replaced one beside it.
fn write(path: &Path, text: &str, force: bool) -> anyhow::Result<()> {
    if path.exists() {
        anyhow::ensure!(
            force,
            "{} exists; --force replaces it and keeps it as {0}.old, --dry-run prints the proposal",
            path.display()
        );
        let old = PathBuf::from(format!("{}.old", path.display()));
        fs::rename(path, &old).with_context(|| format!("cannot write {}", old.display()))?;
    }

    let file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        // The file may get secrets, and the service reads it as its group.
        .mode(0o640)
        .open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn report(found: &Found, path: &Path) -> io::Result<()> {
    let mut out = stdout();

    writeln!(out, "Found:")?;
    for line in found.lines() {
        writeln!(out, "  {line}")?;
    }
    for warning in found.warnings() {
        writeln!(out, "  ! {warning}")?;
    }

    let is_installed = is_installed(path);
    let path = path.display();
    writeln!(out, "\nWrote {path}\n")?;

    let commands = installation(found);
    if !commands.is_empty() {
        writeln!(out, "Install the exporter on the nodes:")?;
        for command in commands {
            writeln!(out, "  {command}")?;
        }
        writeln!(out)?;
    }

    if is_installed {
        writeln!(
            out,
            "Then, with your channels for messages in the file:\n  chgrp takt {path}\n  \
             takt check-config\n  systemctl enable --now takt\n  takt doctor"
        )
    } else {
        writeln!(
            out,
            "Then:\n  takt check-config --config {path}\n  takt serve --config {path}\n  \
             takt doctor --config {path}"
        )
    }
}

/// Whether the file is the one that the installed service reads.
fn is_installed(path: &Path) -> bool {
    path == Path::new(INSTALLED_CONFIG)
}

/// Looks for everything that the proposal depends on.
async fn look(slurm_bin: Option<PathBuf>) -> Found {
    let config = JobsConfig {
        slurm_bin,
        timeout_seconds: SLURM_SECONDS,
        ..JobsConfig::default()
    };

    let host = system::uname();
    let host = host.nodename().to_string_lossy();
    let mut found = Found {
        // Slurm's NodeName is nearly always the short name.
        host: host.split('.').next().unwrap_or("localhost").to_owned(),
        gpus_here: fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, Iterator::count),
        timezone: TimeZone::system().iana_name().map(str::to_owned),
        prometheus: first_file(&["/etc/prometheus/prometheus.yml"]),
        alertmanager: first_file(&[
            "/etc/alertmanager/alertmanager.yml",
            "/etc/prometheus/alertmanager.yml",
        ]),
        tool: tool(),
        ..Found::default()
    };

    match schedulers::survey(&config).await {
        Ok(survey) => {
            found.cluster = Some(survey.cluster);
            found.nodes = survey
                .nodes
                .into_iter()
                .map(|node| (node.node, node.has.gpus))
                .collect();
            found.slurm = survey.settings;
        }
        // A machine without Slurm is a normal case.
        Err(error) => tracing::debug!(%error, "no Slurm"),
    }

    found.answering = answering(found.nodes.keys()).await;
    found
}

fn first_file(paths: &[&str]) -> Option<PathBuf> {
    paths.iter().map(PathBuf::from).find(|path| path.is_file())
}

/// Returns the first tool for many nodes that is installed.
fn tool() -> Option<RemoteTool> {
    let path = env::var_os("PATH")?;
    let folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let has = |program: &str| folders.iter().any(|folder| folder.join(program).is_file());
    // Ansible needs an inventory to know the nodes.
    if has("ansible") && Path::new("/etc/ansible/hosts").is_file() {
        Some(RemoteTool::Ansible)
    } else if has("clush") {
        Some(RemoteTool::Clush)
    } else if has("pdsh") && has("pdcp") {
        Some(RemoteTool::Pdsh)
    } else {
        None
    }
}

/// Returns the nodes that accept a connection, by port.
async fn answering(nodes: impl Iterator<Item = &String>) -> BTreeMap<u16, Vec<String>> {
    let mut addresses: Vec<(String, u16)> = Vec::new();
    for node in nodes {
        addresses.extend(EXPORTER_PORTS.map(|(port, _)| (node.clone(), port)));
    }

    // A node that is down never answers, and one after another they would take minutes.
    let tried = stream::iter(addresses).map(|(node, port)| async move {
        let connect = TcpStream::connect((node.as_str(), port));
        let connected = time::timeout(CONNECT, connect).await;
        matches!(connected, Ok(Ok(_))).then_some((node, port))
    });
    let found: Vec<Option<(String, u16)>> = tried.buffer_unordered(AT_ONCE).collect().await;

    let mut answering: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for (node, port) in found.into_iter().flatten() {
        answering.entry(port).or_default().push(node);
    }
    // Answers come in any order, and the file should not change between two runs.
    for nodes in answering.values_mut() {
        nodes.sort();
    }

    answering
}
