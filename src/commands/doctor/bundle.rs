//! `takt doctor --bundle`: what a helper needs to see, in one file.

use crate::cli::Place;
use crate::commands::check_config;
use crate::{place, source};
use anyhow::Context;
use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::system;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::mem;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use takt_model::shown::without_secrets;
use takt_questions::Diagnosis;
use takt_server::{Failure, OrUsage};

/// Number of lines of each log.
const LOG_LINES: &str = "2000";

/// Paths of the server whose answers go into the bundle.
const PATHS: [(&str, &str); 3] = [
    ("metrics.txt", "/metrics"),
    ("targets.json", "/api/v1/targets"),
    ("about.json", "/api/takt/v1/about"),
];

/// Logs of the units of this machine.
const UNITS: [&str; 3] = ["takt", "takt-exporter", "slurmctld"];

const README: &str = "\
Written by `takt doctor --bundle`. Read the files before you pass them on: they name nodes, users
and addresses. Passwords and tokens are not in them; secret files and the paths of webhooks are
left out.

doctor.json    findings of takt doctor
takt.toml      effective configuration
machine.txt    kernel, distribution, version of Takt
metrics.txt    series of the server about itself
targets.json   targets and their last errors
about.json     cluster and version of the server
*.log          last lines of the units' logs, as far as this user may read them
missing.txt    what could not be read, and why
";

/// Writes the bundle. `file` must not exist. Only its owner can read it.
pub fn write(place: &Place, diagnosis: &Diagnosis, file: &Path) -> Result<(), Failure> {
    let opened = OpenOptions::new()
        .write(true)
        // Never over another file, and never through a link that someone placed in /tmp.
        .create_new(true)
        .mode(0o600)
        .open(file)
        .with_context(|| format!("--bundle: cannot create {}", file.display()));

    let mut bundle = Bundle {
        archive: tar::Builder::new(GzEncoder::new(opened.usage()?, Compression::default())),
        missing: String::new(),
    };

    bundle.add("README", README)?;
    bundle.add("doctor.json", &serde_json::to_string_pretty(diagnosis)?)?;
    bundle.add_or_note("takt.toml", configuration(place))?;
    bundle.add("machine.txt", &machine())?;

    // Without a server the bundle is still useful, so its absence is only noted.
    let server = place::find(place).and_then(|(_, at)| source::server(at));
    match server {
        Ok(server) => {
            for (name, path) in PATHS {
                bundle.add_or_note(name, server.text(path))?;
            }
        }
        Err(Failure::Usage(error) | Failure::Failed(error)) => bundle.note("server", &error),
    }

    for unit in UNITS {
        bundle.add_or_note(&format!("{unit}.log"), journal(unit))?;
    }

    // Last, as it has the failures of all others.
    let missing = mem::take(&mut bundle.missing);
    bundle.add("missing.txt", &missing)?;
    let mut compressed = bundle.archive.into_inner()?;
    compressed.flush()?;
    compressed.finish()?.sync_all()?;

    tracing::info!("wrote {}", file.display());
    Ok(())
}

struct Bundle<W: Write> {
    archive: tar::Builder<W>,
    missing: String,
}

impl<W> Bundle<W>
where
    W: Write,
{
    fn add(&mut self, name: &str, text: &str) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        // The extracted files, too, are only for the one who extracts them.
        header.set_mode(0o600);
        header.set_mtime(jiff::Timestamp::now().as_second().max(0).cast_unsigned());
        let path = format!("takt-doctor/{name}");
        self.archive.append_data(&mut header, path, text.as_bytes())
    }

    fn add_or_note(&mut self, name: &str, text: anyhow::Result<String>) -> io::Result<()> {
        match text {
            Ok(text) => self.add(name, &text),
            Err(error) => {
                self.note(name, &error);
                Ok(())
            }
        }
    }

    fn note(&mut self, name: &str, error: &anyhow::Error) {
        self.missing.push_str(&format!("{name}: {error:#}\n"));
    }
}

/// Returns the effective configuration. Secrets are in files, of which it has the names only.
fn configuration(place: &Place) -> anyhow::Result<String> {
    let mut config = place::load(place)?;
    check_config::effective(&mut config)
}

fn machine() -> String {
    let host = system::uname();
    let kernel = host.release().to_string_lossy();
    let processor = host.machine().to_string_lossy();
    let version = env!("CARGO_PKG_VERSION");
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    format!("takt {version}\nLinux {kernel} {processor}\n{release}")
}

/// Returns the last lines of a unit's log.
fn journal(unit: &str) -> anyhow::Result<String> {
    let asked = ["--no-pager", "--lines", LOG_LINES, "--unit", unit];
    let done = Command::new("journalctl")
        .args(asked)
        .output()
        .context("cannot run journalctl")?;
    anyhow::ensure!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr).trim()
    );
    // Older versions wrote addresses as they are configured.
    Ok(without_secrets(&String::from_utf8_lossy(&done.stdout)))
}
