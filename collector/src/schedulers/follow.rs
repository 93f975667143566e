//! Follows a file that another program appends to, also over rotation.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum size of one piece, in bytes.
const PIECE_BYTES: u64 = 32 << 20;

/// The read position in a file. Only whole lines are read.
#[derive(Debug)]
pub(super) struct FileFollower {
    path: PathBuf,
    /// The open file. It stays open, so that lines written before a rotation are still read.
    file: Option<File>,
    offset: u64,
}

impl FileFollower {
    /// Follows the file from its beginning.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            offset: 0,
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the lines that were not read before; empty if the file has no new lines.
    pub fn read(&mut self) -> io::Result<Vec<u8>> {
        let now = fs::metadata(&self.path)?;

        if let Some(file) = &self.file {
            let known = file.metadata()?;
            let same = (known.dev(), known.ino()) == (now.dev(), now.ino());
            if !same || now.len() < self.offset {
                let rest = if same { Vec::new() } else { self.piece(true)? };
                if rest.is_empty() {
                    (self.file, self.offset) = (None, 0);
                } else {
                    return Ok(rest);
                }
            }
        }

        if self.file.is_none() {
            self.file = Some(File::open(&self.path)?);
        }

        self.piece(false)
    }

    /// Starts from the beginning, because the lines could not be used.
    pub fn restart(&mut self) {
        (self.file, self.offset) = (None, 0);
    }

    /// Returns the next whole lines; with `last`, also an unfinished line.
    fn piece(&mut self, last: bool) -> io::Result<Vec<u8>> {
        let Some(file) = &mut self.file else {
            return Ok(Vec::new());
        };

        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(PIECE_BYTES).read_to_end(&mut bytes)?;

        let whole = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);

        // A line that fills a whole piece is damaged. The parser rejects it.
        if !last && (whole > 0 || bytes.len() as u64 != PIECE_BYTES) {
            bytes.truncate(whole);
        }

        self.offset += bytes.len() as u64;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use tempfile::tempdir;

    #[test]
    fn lines_are_read_once_and_whole_over_a_rotation() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("jobcomp.log");
        let append = |path: &Path, text: &str| {
            fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .unwrap()
                .write_all(text.as_bytes())
                .unwrap();
        };
        let mut follow = FileFollower::new(path.clone());
        assert_eq!(follow.read().unwrap_err().kind(), io::ErrorKind::NotFound);
        append(&path, "a\nb");
        assert_eq!(follow.read().unwrap(), b"a\n");
        assert_eq!(follow.read().unwrap(), b"");
        append(&path, "b\n");
        assert_eq!(follow.read().unwrap(), b"bb\n");
        // The file is rotated while it has an unread line. A new file replaces it.
        append(&path, "c\n");
        fs::rename(&path, folder.path().join("jobcomp.log.1")).unwrap();
        append(&path, "d\n");
        assert_eq!(follow.read().unwrap(), b"c\n");
        assert_eq!(follow.read().unwrap(), b"d\n");
        // The file is truncated in place.
        fs::write(&path, "").unwrap();
        assert_eq!(follow.read().unwrap(), b"");
        append(&path, "e\n");
        assert_eq!(follow.read().unwrap(), b"e\n");
        follow.restart();
        assert_eq!(follow.read().unwrap(), b"e\n");
    }
}
