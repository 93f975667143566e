//! `takt card bundle`: what a vendor wants to see with a returned card, in one archive.

use anyhow::Context;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use takt_model::UnixTime;
use takt_questions::CardReport;
use takt_reports::{CardBundle, card_files};
use takt_server::{Failure, OrUsage};

/// Writes the archive. `file` must not exist. Only its owner can read it.
pub fn write(report: &CardReport, with_names: bool, file: &Path) -> Result<(), Failure> {
    let opened = OpenOptions::new()
        .write(true)
        // Never over another file, and never through a link that someone placed in /tmp.
        .create_new(true)
        .mode(0o600)
        .open(file)
        .with_context(|| format!("--output: cannot create {}", file.display()))
        .usage()?;

    let bundle = CardBundle {
        report,
        written_at: jiff::Timestamp::now().into(),
        version: env!("CARGO_PKG_VERSION"),
        with_names,
    };
    let files = card_files(&bundle)?;
    let compressed = GzEncoder::new(opened, Compression::default());
    let mut compressed = pack(&folder(&report.card), &files, bundle.written_at, compressed)?;
    compressed.flush()?;
    compressed.finish()?.sync_all()?;

    tracing::info!("wrote {}", file.display());
    Ok(())
}

/// Name of the folder in the archive. A serial number comes from the network, and must not lead out of it.
fn folder(card: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' {
            c
        } else {
            '_'
        }
    };
    format!("takt-card-{}", card.chars().map(plain).collect::<String>())
}

/// Writes the files and their checksums.
fn pack<W: Write>(folder: &str, files: &[(&str, String)], at: UnixTime, out: W) -> io::Result<W> {
    let sums: String = files
        .iter()
        .map(|(name, text)| format!("{}  {name}\n", takt_access::hash(text)))
        .collect();

    let mut archive = tar::Builder::new(out);
    for (name, text) in files.iter().chain([&("SHA256SUMS", sums)]) {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        // The extracted files, too, are only for the one who extracts them.
        header.set_mode(0o600);
        header.set_mtime(at.0.max(0).cast_unsigned());
        archive.append_data(&mut header, format!("{folder}/{name}"), text.as_bytes())?;
    }
    archive.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn the_archive_has_all_files_and_their_checksums() {
        let report = CardReport {
            card: "../16".into(),
            ..CardReport::default()
        };
        let bundle = CardBundle {
            report: &report,
            written_at: UnixTime(1000),
            version: "0",
            with_names: false,
        };
        let files = card_files(&bundle).unwrap();
        let packed = pack(&folder(&report.card), &files, UnixTime(1000), Vec::new()).unwrap();

        let mut archive = tar::Archive::new(packed.as_slice());
        let mut listed = Vec::new();
        let mut sums = String::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            listed.push(entry.path().unwrap().display().to_string());
            if listed
                .last()
                .is_some_and(|name| name.ends_with("SHA256SUMS"))
            {
                entry.read_to_string(&mut sums).unwrap();
            }
        }
        let names = [
            "README.md",
            "timeline.csv",
            "placements.csv",
            "xid.csv",
            "counters.csv",
            "jobs.csv",
            "versions.txt",
            "SHA256SUMS",
        ];
        assert_eq!(listed, names.map(|name| format!("takt-card-___16/{name}")));
        // `sha256sum --check` reads these lines.
        assert_eq!(sums.lines().count(), names.len() - 1);
        assert!(
            sums.lines()
                .all(|line| line.len() > 66 && line[64..].starts_with("  ")),
            "{sums}"
        );
    }
}
