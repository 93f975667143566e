//! Files and folders of the lake. Each has the permissions of the lake's folder, so that the
//! operator decides there who may read the lake, and each is durable before it has its name.

use crate::LakeError;
use crate::log::{LOG, Version};
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use takt_store::crash_point;

/// Beginning of the names of unfinished files. Engines ignore files whose names begin so.
pub const UNFINISHED: &str = ".new-";

/// A folder of the lake.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    /// Permissions of folders.
    mode: u32,
}

impl Folder {
    /// The lake's folder, which exists.
    pub fn of_lake(path: &Path) -> Result<Self, LakeError> {
        let found = fs::metadata(path).map_err(LakeError::read(path))?;
        Ok(Self {
            path: path.to_owned(),
            mode: found.permissions().mode() & 0o777,
        })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder `name` in this one, which need not exist yet.
    pub fn below(&self, name: &str) -> Self {
        Self {
            path: self.path.join(name),
            mode: self.mode,
        }
    }

    /// Creates the folder `name` in this one, and this one, if they do not exist.
    pub fn create(&self, name: &str) -> Result<(), LakeError> {
        for path in [&self.path, &self.path.join(name)] {
            match fs::create_dir(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                created => created.map_err(LakeError::write(path))?,
            }
            fs::set_permissions(path, Permissions::from_mode(self.mode))
                .and_then(|()| sync(path.parent().unwrap_or(path)))
                .map_err(LakeError::write(path))?;
        }
        Ok(())
    }

    /// Writes a small file under a name that must not exist.
    pub fn publish(&self, folder: &str, name: &str, bytes: &[u8]) -> Result<(), LakeError> {
        let folder = self.path.join(folder);
        let aside = folder.join(format!("{UNFINISHED}{name}.part"));
        let path = folder.join(name);
        let write = || {
            let mut file = File::create(&aside)?;
            file.write_all(bytes)?;
            self.finish(&file)?;
            crash_point("lake-commit-written");
            fs::hard_link(&aside, &path)?;
            sync(&folder)
        };
        let written = write();
        // Its content is under its own name, or the next attempt writes it again.
        let _ = fs::remove_file(&aside);
        written.map_err(LakeError::write(path))
    }

    /// Copies the file `source` to a name, replacing a file that no commit has named. Returns its
    /// size in bytes.
    pub fn place(&self, source: &Path, folder: &str, name: &str) -> Result<u64, LakeError> {
        self.create(folder)?;
        let folder = self.path.join(folder);
        let aside = folder.join(format!("{UNFINISHED}{name}.part"));
        let path = folder.join(name);
        let write = || {
            let bytes = io::copy(&mut File::open(source)?, &mut File::create(&aside)?)?;
            self.finish(&File::open(&aside)?)?;
            crash_point("lake-file-written");
            fs::rename(&aside, &path)?;
            sync(&folder)?;
            Ok(bytes)
        };
        write().map_err(|source| {
            // A full disk keeps no part of a file.
            let _ = fs::remove_file(&aside);
            LakeError::Write { path, source }
        })
    }

    /// Makes a new file readable and durable.
    fn finish(&self, file: &File) -> io::Result<()> {
        file.set_permissions(Permissions::from_mode(self.mode & 0o666))?;
        file.sync_all()
    }

    /// Deletes unfinished files in this folder, which a crash has left.
    pub fn sweep(&self) -> Result<(), LakeError> {
        for name in names_in(&self.path)? {
            if name.starts_with(UNFINISHED) {
                let file = self.path.join(name);
                fs::remove_file(&file).map_err(LakeError::write(file))?;
            }
        }
        Ok(())
    }

    /// Deletes the files of a table that do not belong to its newest version: those that were
    /// removed before `before_ms`, and those that a crash has left. Returns the number of deleted
    /// files.
    pub fn clean(&self, version: &Version, before_ms: i64) -> Result<u64, LakeError> {
        let mut deleted = 0;
        for folder in names_in(&self.path)? {
            let path = self.path.join(&folder);
            for name in names_in(&path)? {
                let key = format!("{folder}/{name}");
                let is_left = name.starts_with(UNFINISHED) || {
                    let is_named = version.files.contains_key(&key) || folder == LOG;
                    let is_read = version.removed.get(&key).is_some_and(|at| *at > before_ms);
                    name.ends_with(".parquet") && !is_named && !is_read
                };
                if is_left {
                    let file = path.join(&name);
                    fs::remove_file(&file).map_err(LakeError::write(file))?;
                    deleted += 1;
                }
            }
            if folder != LOG {
                // Fails if files are left, and then it stays.
                let _ = fs::remove_dir(&path);
            }
        }
        Ok(deleted)
    }
}

/// Names of the files and folders in a folder. A folder that does not exist has none, and neither
/// has a file.
pub fn names_in(folder: &Path) -> Result<Vec<String>, LakeError> {
    let entries = match fs::read_dir(folder) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Vec::new());
        }
        entries => entries.map_err(LakeError::read(folder))?,
    };
    let names: io::Result<Vec<String>> = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect();
    names.map_err(LakeError::read(folder))
}

/// Makes the names in a folder durable.
fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
