//! A file that others append to, followed over its rotation.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most bytes in one piece.
const PIECE_BYTES: u64 = 32 << 20;

/// How far a file has been read. Only whole lines are read.
#[derive(Debug)]
pub(super) struct Follow {
    path: PathBuf,
    /// Kept open: what was appended before the file was moved away is still read.
    file: Option<File>,
    offset: u64,
}

impl Follow {
    /// From its beginning.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            offset: 0,
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lines that were not read before; empty where there are none.
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

    /// Begins again: what was read could not be used.
    pub fn restart(&mut self) {
        (self.file, self.offset) = (None, 0);
    }

    /// The next whole lines; with `last` also a line without an end.
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
        // A line that fills a whole piece is damage; it is handed on, to be set aside.
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

    #[test]
    fn lines_are_read_once_and_whole_over_a_rotation() {
        let folder = tempfile::tempdir().unwrap();
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
        let mut follow = Follow::new(path.clone());
        assert_eq!(follow.read().unwrap_err().kind(), io::ErrorKind::NotFound);
        append(&path, "a\nb");
        assert_eq!(follow.read().unwrap(), b"a\n");
        assert_eq!(follow.read().unwrap(), b"");
        append(&path, "b\n");
        assert_eq!(follow.read().unwrap(), b"bb\n");
        // Moved away with a line that we have not seen; a new file takes its place.
        append(&path, "c\n");
        fs::rename(&path, folder.path().join("jobcomp.log.1")).unwrap();
        append(&path, "d\n");
        assert_eq!(follow.read().unwrap(), b"c\n");
        assert_eq!(follow.read().unwrap(), b"d\n");
        // Emptied in place.
        fs::write(&path, "").unwrap();
        assert_eq!(follow.read().unwrap(), b"");
        append(&path, "e\n");
        assert_eq!(follow.read().unwrap(), b"e\n");
        follow.restart();
        assert_eq!(follow.read().unwrap(), b"e\n");
    }
}
