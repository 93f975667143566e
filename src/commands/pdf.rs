//! Prints an HTML report as PDF with an installed Chromium.
//!
//! The page's style sheet has rules for paper. A second layout of each report in a PDF library would
//! be one more thing that can differ from the page.

use crate::output::{stdout, width};
use anyhow::{Context, bail};
use std::fs;
use std::io::{self, Write};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use takt_server::{Failure, OrUsage};
use tempfile::tempdir;

/// Names under which distributions install Chromium and its relatives.
const PROGRAMS: &[&str] = &[
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
];

/// Maximum time to print a report.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Writes the page as PDF to standard output. Fails without Chromium, and on a terminal.
pub fn print(page: &[u8]) -> Result<(), Failure> {
    if width().is_some() {
        return Err(anyhow::anyhow!(
            "a PDF is not for a terminal: redirect it, as in --format pdf > report.pdf"
        ))
        .usage();
    }
    let pdf = rendered(page)?;
    let mut out = stdout();
    out.write_all(&pdf)?;
    Ok(out.flush()?)
}

fn rendered(page: &[u8]) -> anyhow::Result<Vec<u8>> {
    let directory = tempdir().context("cannot create a directory for the PDF")?;
    let html = directory.path().join("report.html");
    let pdf = directory.path().join("report.pdf");
    fs::write(&html, page).context("cannot write the page")?;

    for program in PROGRAMS {
        let mut command = Command::new(program);
        command
            .args(["--headless", "--disable-gpu", "--no-pdf-header-footer"])
            // A report is Takt's own page without scripts. The sandbox needs rights that root and
            // services lack.
            .args(["--no-sandbox", "--disable-dev-shm-usage"])
            // A profile of its own: a browser that is open would take the order and print nothing.
            .arg(format!(
                "--user-data-dir={}",
                directory.path().join("profile").display()
            ))
            .arg(format!("--print-to-pdf={}", pdf.display()))
            .arg(format!("file://{}", html.display()))
            .env("HOME", directory.path());

        let output = match finished(&mut command) {
            Err(error) if is_missing(&error) => continue,
            output => output.with_context(|| format!("{program} cannot print the page"))?,
        };

        // The file decides, whatever the exit code is.
        if let Ok(bytes) = fs::read(&pdf) {
            return Ok(bytes);
        }

        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.trim().lines().last().unwrap_or("no message");
        bail!("{program} printed nothing ({}): {last}", output.status);
    }

    bail!(
        "--format pdf needs an installed Chromium ({}); without it, write --format html and print \
         the page in a browser",
        PROGRAMS.join(", ")
    )
}

fn is_missing(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Runs a command to its end, and kills it after [`TIMEOUT`].
fn finished(command: &mut Command) -> anyhow::Result<Output> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if began.elapsed() > TIMEOUT {
            child.kill()?;
            bail!("no end after {} s", TIMEOUT.as_secs());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(child.wait_with_output()?)
}
