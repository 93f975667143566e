//! `takt backup` and `takt restore`.

use super::source;
use crate::cli::Place;
use crate::output::stdout;
use crate::place;
use crate::source::Whereabouts;
use anyhow::{Context, bail};
use clap::Args;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use takt_questions::SnapshotQuestion;
use takt_server::{Failure, OrUsage};
use takt_store::{DataDir, Snapshot, Store};

#[derive(Debug, Clone, Args)]
pub struct Backup {
    /// Directory of the backup; it must not exist
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub struct Restore {
    /// Directory of the backup
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
}

/// File that makes a directory a backup. It is written last.
const FACTS: &str = "backup.json";

/// Folder of the data directory into which a backup is restored, until it is verified.
const UNFINISHED: &str = "restore.unfinished";

/// File that makes a directory a store. It is moved last.
const RECORDS: &str = "records.duckdb";

/// Copies records and samples into a new directory.
pub fn backup(place: &Place, asked: &Backup) -> Result<(), Failure> {
    if place.server.is_some() {
        let error = "takt backup reads the data directory itself; run it on the server's machine";
        return Err(anyhow::anyhow!(error)).usage();
    }

    let to = place::absolute(&asked.to)?;
    if to.exists() {
        let error = format!("--to: {} exists; a backup is a new directory", to.display());
        return Err(anyhow::anyhow!(error)).usage();
    }

    // Beside the target, on the same file system, so that the last step is a rename.
    let unfinished = PathBuf::from(format!("{}.unfinished", to.display()));
    remove(&unfinished)?;

    let source = source::<Store>(place)?;
    let taken = source
        .ask(&SnapshotQuestion::default())?
        .context("the server made no copy; is it of another version?")?;

    // The server's copy is removed even if ours failed: it holds disk space.
    let copied = copy_folder(&taken.path, &unfinished);
    let drop = |backup: Option<Snapshot>| source.ask(&SnapshotQuestion { drop: true, backup });
    let dropped = drop(None);
    copied.with_context(|| format!("cannot copy {}", taken.path.display()))?;
    dropped?;

    // Opened and counted again: a copy that was never read is no backup.
    let verified = Snapshot::of(&unfinished, taken.taken_at)?;
    if !verified.is_same_as(&taken) {
        let error = format!("the copy differs from the original: {verified:?}, not {taken:?}");
        return Err(anyhow::anyhow!(error).into());
    }

    let facts = Snapshot {
        path: to.clone(),
        ..verified
    };

    fs::write(unfinished.join(FACTS), serde_json::to_vec_pretty(&facts)?)?;
    fs::rename(&unfinished, &to).with_context(|| format!("cannot create {}", to.display()))?;

    // For `takt doctor`.
    drop(Some(facts.clone()))?;
    report("Backed up and verified", &facts, &to);
    Ok(())
}

/// Copies a backup into an empty data directory.
pub fn restore(place: &Place, asked: &Restore) -> Result<(), Failure> {
    let facts = facts(&asked.from).usage()?;
    let to = match place::find(place)? {
        (_, Whereabouts::Directory { path, .. }) => place::absolute(&path)?,
        (_, Whereabouts::Server { .. }) => {
            let error = "takt restore writes a data directory; name it with --data-dir";
            return Err(anyhow::anyhow!(error)).usage();
        }
    };

    // Neither a running server's directory nor one with data is overwritten.
    if DataDir::holder(&to).is_some() || DataDir::has_store(&to) {
        let error = format!(
            "{0} has data; stop the server and move them away first: mv {0} {0}.old",
            to.display()
        );
        return Err(anyhow::anyhow!(error)).usage();
    }

    // Other files in the folder, such as a configuration, must survive a failure.
    let was_empty = fs::read_dir(&to).map_or(true, |mut found| found.next().is_none());
    if let Err(error) = fill(&to, &asked.from, &facts) {
        // Another attempt must not take an incomplete copy for data.
        if was_empty {
            clear(&to)?;
            return Err(error.into());
        }
        let to = to.display();
        let advice = format!("the restore is not complete: remove {to} before another attempt");
        return Err(error.context(advice).into());
    }

    report("Restored and verified", &facts, &to);
    Ok(())
}

/// Copies a backup aside, checks the copy, and moves it into place. A server must not find a part of
/// it, whenever this ends.
fn fill(to: &Path, from: &Path, facts: &Snapshot) -> anyhow::Result<()> {
    let unfinished = to.join(UNFINISHED);
    remove(&unfinished)?;
    copy_folder(from, &unfinished).with_context(|| format!("cannot copy {}", from.display()))?;
    fs::remove_file(unfinished.join(FACTS))?;
    let verified = Snapshot::of(&unfinished, facts.taken_at)?;
    if !verified.is_same_as(facts) {
        bail!("the data differ from the backup: {verified:?}, not {facts:?}");
    }

    // The records last: without them the directory is not taken for a store.
    let mut names = Vec::new();
    for entry in fs::read_dir(&unfinished)? {
        names.push(entry?.file_name());
    }
    names.sort_by_key(|name| name == RECORDS);
    for name in names {
        let target = to.join(&name);
        // An attempt that was killed may have moved it already.
        if target.is_dir() {
            remove(&target)?;
        }
        fs::rename(unfinished.join(&name), &target)
            .with_context(|| format!("cannot create {}", target.display()))?;
    }
    remove(&unfinished)?;
    Ok(fs::File::open(to)?.sync_all()?)
}

/// Removes everything in a folder, if it exists.
fn clear(folder: &Path) -> anyhow::Result<()> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(());
    };
    for entry in entries {
        let path = entry?.path();
        let removed = if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Reads the description of a backup.
fn facts(from: &Path) -> anyhow::Result<Snapshot> {
    let path = from.join(FACTS);
    let Ok(text) = fs::read(&path) else {
        bail!("{} is not a backup: it has no {FACTS}", from.display());
    };
    serde_json::from_slice(&text).with_context(|| format!("cannot read {}", path.display()))
}

fn report(done: &str, facts: &Snapshot, to: &Path) {
    let at = jiff::Timestamp::try_from(facts.taken_at).unwrap_or_default();
    let _ = writeln!(
        stdout(),
        "{done}: {} job runs, {} series, {} blocks, as of {at}\n{}",
        facts.runs,
        facts.series,
        facts.blocks,
        to.display()
    );
}

/// Copies a folder with all its files. The files are on disk when it returns.
fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut builder = fs::DirBuilder::new();
    // The records name users, so only the owner can read the copy, whatever the umask is.
    builder.recursive(true).mode(0o700);
    builder
        .create(to)
        .with_context(|| format!("cannot create {}", to.display()))?;

    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)
                .with_context(|| format!("cannot write {}", target.display()))?;
            // A power cut after the report must not lose the backup.
            fs::File::open(&target)?.sync_all()?;
        }
    }
    Ok(fs::File::open(to)?.sync_all()?)
}

/// Removes what an interrupted backup left.
fn remove(folder: &Path) -> anyhow::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_model::UnixTime;
    use tempfile::tempdir;

    #[test]
    fn a_failed_restore_leaves_an_empty_folder() {
        let folder = tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
        fs::create_dir_all(from.join("blocks")).unwrap();
        fs::write(from.join("blocks/one"), "x").unwrap();
        let facts = Snapshot {
            path: from.clone(),
            version: String::new(),
            taken_at: UnixTime(0),
            runs: 0,
            series: 0,
            blocks: 1,
        };
        // Without its description, the copy cannot be completed.
        fill(&to, &from, &facts).unwrap_err();
        assert!(to.join(UNFINISHED).join("blocks/one").exists());
        clear(&to).unwrap();
        assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
    }
}
