//! Where the files of a lake are: a folder ([`Folder`]), or a bucket of S3 (`Bucket`).

use crate::{LakeConfig, LakeError};
use std::fmt::Debug;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use takt_store::crash_point;
use tempfile::TempPath;

/// Beginning of the names of unfinished files. Engines ignore files whose names begin so.
pub const UNFINISHED: &str = ".new-";

/// Beginning of the names of files in the data directory that have a copy of a file of the lake.
pub const COPY: &str = "lake-reading-";

/// Files of a lake. Each has a name such as `usage/_delta_log/00000000000000000000.json`, is complete
/// under its name, and durable when the method that wrote it returns.
pub trait Files: Debug + Send + Sync {
    /// The place of a file, for people.
    fn path_of(&self, name: &str) -> PathBuf;

    /// Prepares the place for the first file, and removes what a crash has left beside the tables.
    fn begin(&mut self) -> Result<(), LakeError>;

    /// Whether a new lake may begin here.
    fn is_empty(&self) -> Result<bool, LakeError>;

    /// Names of all files below a folder, without the folder. A folder that does not exist has none.
    fn list(&self, folder: &str) -> Result<Vec<String>, LakeError>;

    /// Content of a small file; `None` if it does not exist.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, LakeError>;

    /// Size of a file in bytes; `None` if it does not exist.
    fn size(&self, name: &str) -> Result<Option<u64>, LakeError>;

    /// Makes a file readable by a path of this machine; `aside` is the folder for copies.
    fn fetch(&self, name: &str, aside: &Path) -> Result<LocalFile, LakeError>;

    /// Writes a small file under a name that must not exist. Returns false if the file exists with
    /// another content.
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, LakeError>;

    /// Checks that a second file of the name `name`, which exists with these bytes, is refused.
    fn check_create(&self, name: &str, bytes: &[u8]) -> Result<(), LakeError>;

    /// Writes a small file, in place of one that exists.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), LakeError>;

    /// Copies the file `source` to a name, in place of a file that no commit has named. Returns its
    /// size in bytes.
    fn place(&self, source: &Path, name: &str) -> Result<u64, LakeError>;

    /// Deletes a file.
    fn delete(&self, name: &str) -> Result<(), LakeError>;
}

/// The files of the configured lake.
///
/// # Errors
/// If none is configured, or the keys of S3 cannot be read.
pub fn configured(config: &LakeConfig) -> Result<Box<dyn Files>, LakeError> {
    let path = config.path.as_deref().ok_or(LakeError::Unconfigured)?;
    #[cfg(feature = "s3")]
    if let Some(address) = config.s3_address() {
        return Ok(Box::new(crate::bucket::Bucket::open(address, &config.s3)?));
    }
    // The state in the data directory names the folder, whatever the working directory was.
    let path = std::path::absolute(path).map_err(LakeError::read(path))?;
    Ok(Box::new(Folder::new(&path)))
}

/// A file of the lake, or a copy of it that is deleted with this value.
#[derive(Debug)]
pub enum LocalFile {
    /// The file itself.
    Own(PathBuf),
    /// A copy.
    #[cfg_attr(
        not(feature = "s3"),
        expect(dead_code, reason = "only a bucket needs copies")
    )]
    Copy(TempPath),
}

impl LocalFile {
    /// Its path.
    pub fn path(&self) -> &Path {
        match self {
            Self::Own(path) => path,
            Self::Copy(path) => path,
        }
    }
}

/// A lake in a folder. Its files have the permissions of the folder, so that the operator decides
/// there who may read the lake.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Permissions of folders.
    mode: u32,
}

impl Folder {
    /// The lake in `path`, which need not exist.
    pub fn new(path: &Path) -> Self {
        let mode = fs::metadata(path).map_or(0o755, |found| found.permissions().mode() & 0o777);
        Self {
            path: path.to_owned(),
            mode,
        }
    }

    /// Creates the folders in which the file `name` belongs.
    fn create_folders(&self, name: &str) -> Result<(), LakeError> {
        let mut path = self.path.clone();

        let folders = name.rsplit_once('/').map_or("", |(folders, _)| folders);
        for part in folders.split('/').filter(|part| !part.is_empty()) {
            path.push(part);
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                created => created.map_err(LakeError::write(&path))?,
            }

            // The umask of the process must not decide who reads the lake.
            fs::set_permissions(&path, Permissions::from_mode(self.mode))
                .and_then(|()| sync(folder_of(&path)))
                .map_err(LakeError::write(&path))?;
        }
        Ok(())
    }

    /// Writes a small file aside, and gives it its name with `finish`.
    fn write(
        &self,
        name: &str,
        bytes: &[u8],
        finish: impl FnOnce(&Path, &Path) -> io::Result<()>,
    ) -> Result<(), LakeError> {
        self.create_folders(name)?;
        let path = self.path.join(name);
        let aside = aside(&path);

        let write = || {
            let mut file = File::create(&aside)?;
            file.write_all(bytes)?;
            self.finish(&file)?;
            crash_point("lake-commit-written");
            finish(&aside, &path)?;
            sync(folder_of(&path))
        };

        let written = write();
        // Its content is under its own name, or the next attempt writes it again.
        let _ = fs::remove_file(&aside);
        written.map_err(LakeError::write(path))
    }

    /// Makes a new file readable and durable.
    fn finish(&self, file: &File) -> io::Result<()> {
        file.set_permissions(Permissions::from_mode(self.mode & 0o666))?;
        file.sync_all()
    }
}

impl Files for Folder {
    fn path_of(&self, name: &str) -> PathBuf {
        match name {
            "" => self.path.clone(),
            name => self.path.join(name),
        }
    }

    fn begin(&mut self) -> Result<(), LakeError> {
        fs::create_dir_all(&self.path).map_err(LakeError::write(&self.path))?;
        // The folder's permissions are known only now if it was just created.
        *self = Self::new(&self.path);
        for name in names_in(&self.path)? {
            if name.starts_with(UNFINISHED) {
                self.delete(&name)?;
            }
        }
        Ok(())
    }

    fn is_empty(&self) -> Result<bool, LakeError> {
        Ok(names_in(&self.path)?
            .iter()
            // A fresh ext4 file system has this folder.
            .all(|name| name == "lost+found" || name.starts_with(UNFINISHED)))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, LakeError> {
        let root = self.path.join(folder);
        let mut found = Vec::new();
        let mut folders = vec![String::new()];

        while let Some(folder) = folders.pop() {
            let path = root.join(&folder);
            for name in names_in(&path)? {
                // Links are not followed: one to a folder above would never end.
                let is_folder = fs::symlink_metadata(path.join(&name)).is_ok_and(|it| it.is_dir());
                if is_folder {
                    folders.push(format!("{folder}{name}/"));
                } else {
                    found.push(format!("{folder}{name}"));
                }
            }
        }
        Ok(found)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, LakeError> {
        let path = self.path.join(name);
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some).map_err(LakeError::read(path)),
        }
    }

    fn size(&self, name: &str) -> Result<Option<u64>, LakeError> {
        let path = self.path.join(name);
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found
                .map(|found| Some(found.len()))
                .map_err(LakeError::read(path)),
        }
    }

    fn fetch(&self, name: &str, _aside: &Path) -> Result<LocalFile, LakeError> {
        Ok(LocalFile::Own(self.path.join(name)))
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, LakeError> {
        // A link fails if the name is taken.
        match self.write(name, bytes, |aside, path| fs::hard_link(aside, path)) {
            Err(LakeError::Write { source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists =>
            {
                // NFS repeats a request whose reply was lost.
                Ok(self.read(name)?.is_some_and(|found| found == bytes))
            }
            done => done.map(|()| true),
        }
    }

    fn check_create(&self, _name: &str, _bytes: &[u8]) -> Result<(), LakeError> {
        Ok(())
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), LakeError> {
        // A rename takes the place of a file in one step; readers see the old content or the new
        // one.
        self.write(name, bytes, |aside, path| fs::rename(aside, path))
    }

    fn place(&self, source: &Path, name: &str) -> Result<u64, LakeError> {
        self.create_folders(name)?;
        let path = self.path.join(name);
        let aside = aside(&path);
        let write = || {
            // A copy, because the data directory is usually on another file system, where a rename
            // fails.
            let bytes = io::copy(&mut File::open(source)?, &mut File::create(&aside)?)?;
            self.finish(&File::open(&aside)?)?;
            crash_point("lake-file-written");
            fs::rename(&aside, &path)?;
            sync(folder_of(&path))?;
            Ok(bytes)
        };

        write().map_err(|source| {
            // A full disk keeps no part of a file.
            let _ = fs::remove_file(&aside);
            LakeError::Write { path, source }
        })
    }

    fn delete(&self, name: &str) -> Result<(), LakeError> {
        let path = self.path.join(name);
        fs::remove_file(&path).map_err(LakeError::write(&path))?;
        if name.contains('=') {
            // The folder of a day or month. Fails if files are left, and then it stays.
            let _ = fs::remove_dir(folder_of(&path));
        }
        Ok(())
    }
}

/// Path of the unfinished file that becomes `path`.
fn aside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{UNFINISHED}{name}.part"))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
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
