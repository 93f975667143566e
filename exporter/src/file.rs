//! Reading the kernel's files again and again.

use crate::collector::{CollectError, ParseError};
use rustix::buffer::spare_capacity;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, pread};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// No file of the kernel that we read is larger; what is, is not one.
const MAX_FILE_BYTES: usize = 16 << 20;

/// A file that is read at every scrape. It stays open: the kernel writes `/proc` and `/sys` files anew for each read
/// from their beginning, and opening costs more than reading.
#[derive(Debug)]
pub(crate) struct File {
    path: PathBuf,
    handle: Option<OwnedFd>,
    bytes: Vec<u8>,
    lossy: String,
}

impl File {
    pub fn new(path: PathBuf) -> Self {
        Self { path, handle: None, bytes: Vec::new(), lossy: String::new() }
    }

    /// Whether there is such a file and it may be read.
    pub fn opens(&mut self) -> bool {
        self.open().is_ok()
    }

    /// What is in it now. Bytes that are no UTF-8, as in the name of a mount point, come as `\u{fffd}`.
    pub fn read(&mut self) -> Result<&str, CollectError> {
        // A handle may outlive what it was opened on, a network device for one; then a new one is opened.
        let was_open = self.handle.is_some();
        let mut result = self.fill();
        if result.is_err() {
            self.handle = None;
            if was_open {
                result = self.fill();
            }
        }
        result.map_err(|error| CollectError::read(&self.path, error))?;
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => Ok(text),
            Err(_) => {
                self.lossy = String::from_utf8_lossy(&self.bytes).into_owned();
                Ok(&self.lossy)
            }
        }
    }

    /// Reads it and takes it apart; `parse` knows lines, and here they get the file's name.
    pub fn parse<T>(&mut self, parse: impl FnOnce(&str) -> Result<T, ParseError>) -> Result<T, CollectError> {
        let parsed = parse(self.read()?);
        parsed.map_err(|error| error.in_file(&self.path))
    }

    fn open(&mut self) -> Result<(), Errno> {
        if self.handle.is_none() {
            self.handle = Some(open_to_read(self.path.as_os_str())?);
        }
        Ok(())
    }

    fn fill(&mut self) -> Result<(), Errno> {
        self.open()?;
        let Some(handle) = &self.handle else { return Err(Errno::BADF) };
        self.bytes.clear();
        loop {
            if self.bytes.capacity() - self.bytes.len() < 1024 {
                self.bytes.reserve(self.bytes.capacity().max(4096));
            }
            let offset = self.bytes.len() as u64;
            if pread(handle, spare_capacity(&mut self.bytes), offset)? == 0 {
                return Ok(());
            }
            if self.bytes.len() > MAX_FILE_BYTES {
                return Err(Errno::FBIG);
            }
        }
    }
}

/// A file of `/sys`: one value, at most a page. It stays open, as [`File`] does.
#[derive(Debug)]
pub(crate) struct Attribute(OwnedFd);

impl Attribute {
    pub fn open(path: &Path) -> Result<Self, Errno> {
        open_to_read(path.as_os_str()).map(Self)
    }

    /// The value now, without the line feed, in `buffer`.
    pub fn read<'b>(&self, buffer: &'b mut Vec<u8>) -> Result<&'b str, Errno> {
        buffer.clear();
        buffer.reserve(4096);
        pread(&self.0, spare_capacity(buffer), 0)?;
        std::str::from_utf8(buffer.trim_ascii_end()).map_err(|_| Errno::ILSEQ)
    }
}

fn open_to_read(path: &OsStr) -> Result<OwnedFd, Errno> {
    open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_anew_each_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stat");
        let mut file = File::new(path.clone());
        assert!(matches!(file.read(), Err(CollectError::Read { .. })));
        std::fs::write(&path, "a".repeat(100_000)).unwrap();
        assert_eq!(file.read().unwrap().len(), 100_000);
        std::fs::write(&path, b"b\xff\n").unwrap();
        assert_eq!(file.read().unwrap(), "b\u{fffd}\n");
    }

    #[test]
    fn the_kernel_writes_an_open_file_anew() {
        let mut file = File::new("/proc/uptime".into());
        let first = file.read().unwrap().to_owned();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_ne!(file.read().unwrap(), first);
    }
}
