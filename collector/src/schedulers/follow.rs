//! Follows the job completion file, to which slurmctld appends, also over rotation.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use takt_slurm::jobcomp;

/// Maximum size of one piece, in bytes.
const PIECE_BYTES: u64 = 32 << 20;

/// Number of bytes before the read position that tell a file from a truncated one.
const MARK_BYTES: usize = 128;

/// The read position in a file. Only whole records are read.
#[derive(Debug)]
pub(super) struct FileFollower {
    path: PathBuf,
    /// The open file. It stays open, so that records written before a rotation are still read.
    file: Option<File>,
    offset: u64,
    /// The last bytes before `offset`. A file that was truncated and has grown since has others.
    mark: Vec<u8>,
    /// End of the lines that were no whole record at the last poll.
    unfinished: Option<u64>,
}

impl FileFollower {
    /// Follows the file from its beginning.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            offset: 0,
            mark: Vec::new(),
            unfinished: None,
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the records that were not read before; empty if the file has no new ones. Lines that are
    /// no whole record are returned if they are the same at the next poll, which is the next call after
    /// one that returned nothing.
    pub fn read(&mut self) -> io::Result<Vec<u8>> {
        let now = match fs::metadata(&self.path) {
            // Just rotated: slurmctld goes on writing into the open file until it is told to reopen it.
            Err(error) if error.kind() == ErrorKind::NotFound && self.file.is_some() => None,
            now => Some(now?),
        };

        // Once slurmctld writes the new file, the rotated one is complete.
        if self.is_rotated(now.as_ref())? && now.is_some_and(|now| now.len() > 0) {
            let rest = self.piece(true)?;
            if !rest.is_empty() {
                return Ok(rest);
            }
            self.reopen();
        }

        if self.file.is_none() {
            self.file = Some(File::open(&self.path)?);
        }

        if self.is_truncated()? {
            self.rewind();
        }
        self.piece(false)
    }

    /// Starts from the beginning of the open file, because the records could not be stored.
    pub fn rewind(&mut self) {
        self.offset = 0;
        self.mark.clear();
        self.unfinished = None;
    }

    /// Starts from the beginning of the file that has the name now.
    pub fn reopen(&mut self) {
        self.file = None;
        self.rewind();
    }

    /// Returns whether the open file has lost its name to another one.
    fn is_rotated(&self, now: Option<&Metadata>) -> io::Result<bool> {
        let (Some(file), Some(now)) = (&self.file, now) else {
            return Ok(false);
        };
        let open = file.metadata()?;
        Ok((open.dev(), open.ino()) != (now.dev(), now.ino()))
    }

    /// Returns whether the open file no longer has what was read.
    fn is_truncated(&mut self) -> io::Result<bool> {
        let Some(file) = &mut self.file else {
            return Ok(false);
        };
        if file.metadata()?.len() < self.offset {
            return Ok(true);
        }
        let mut before = Vec::new();
        file.seek(SeekFrom::Start(self.offset - self.mark.len() as u64))?;
        file.take(self.mark.len() as u64).read_to_end(&mut before)?;
        Ok(before != self.mark)
    }

    /// Returns the next whole records; with `is_last`, also an unfinished one.
    fn piece(&mut self, is_last: bool) -> io::Result<Vec<u8>> {
        let Some(file) = &mut self.file else {
            return Ok(Vec::new());
        };

        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(PIECE_BYTES).read_to_end(&mut bytes)?;

        let has_more = bytes.len() as u64 == PIECE_BYTES;
        let lines = bytes.iter().rposition(|byte| *byte == b'\n');
        let lines = lines.map_or(0, |at| at + 1);
        let lines_end = self.offset + lines as u64;
        let whole = match jobcomp::whole_records(&bytes[..lines]) {
            // A record that fills a whole piece is damaged. The parser rejects it.
            0 if has_more => bytes.len(),
            _ if is_last && !has_more => bytes.len(),
            // slurmctld writes a record at once: this one was not finished.
            0 if self.unfinished == Some(lines_end) => lines,
            whole => whole,
        };
        self.unfinished = (whole == 0).then_some(lines_end);

        bytes.truncate(whole);
        self.offset += whole as u64;
        if whole > 0 {
            self.mark = bytes[whole.saturating_sub(MARK_BYTES)..].to_vec();
        }

        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::Write;
    use tempfile::{TempDir, tempdir};

    struct Stage {
        folder: TempDir,
        path: PathBuf,
        follow: FileFollower,
    }

    impl Stage {
        fn new() -> Self {
            let folder = tempdir().unwrap();
            let path = folder.path().join("jobcomp.log");
            Self {
                follow: FileFollower::new(path.clone()),
                path,
                folder,
            }
        }

        fn append(&self, name: &str, text: &str) {
            let mut options = OpenOptions::new();
            let file = options.create(true).append(true);
            let mut file = file.open(self.folder.path().join(name)).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }

        fn write(&self, text: &str) {
            self.append("jobcomp.log", text);
        }

        fn rotate(&self) {
            fs::rename(&self.path, self.folder.path().join("jobcomp.log.1")).unwrap();
        }

        fn read(&mut self) -> String {
            String::from_utf8(self.follow.read().unwrap()).unwrap()
        }
    }

    fn record(id: u32, name: &str) -> String {
        format!(
            "JobId={id} UserId=ann(1) GroupId=lab(1) Name={name} JobState=COMPLETED Partition=gpu \
             TimeLimit=600 StartTime=2026-10-03T08:00:00 EndTime=2026-10-03T09:00:00 NodeList=g01 \
             NodeCnt=1 ProcCnt=4 WorkDir=/home/ann ReservationName= Tres=cpu=4 Account=phys QOS=normal \
             WcKey= Cluster=lab SubmitTime=2026-10-03T07:59:00 EligibleTime=2026-10-03T07:59:00 \
             DerivedExitCode=0:0 ExitCode=0:0 \n"
        )
    }

    #[test]
    fn records_are_read_once_and_whole_over_a_rotation() {
        let mut stage = Stage::new();
        let missing = stage.follow.read().unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let [a, b, c, d] = [1, 2, 3, 4].map(|id| record(id, "train"));
        stage.write(&a);
        stage.write(&b[..50]);
        assert_eq!(stage.read(), a);
        assert_eq!(stage.read(), "");
        assert_eq!(stage.read(), "", "half a line is no record, however old");
        stage.write(&b[50..]);
        assert_eq!(stage.read(), b);

        // The file is rotated while it has an unread record. A new file replaces it.
        stage.write(&c);
        stage.rotate();
        stage.write(&d);
        assert_eq!(stage.read(), c);
        assert_eq!(stage.read(), d);

        // The file is truncated in place.
        fs::write(&stage.path, "").unwrap();
        assert_eq!(stage.read(), "");
        stage.write(&a);
        assert_eq!(stage.read(), a);
        stage.follow.rewind();
        assert_eq!(stage.read(), a);
    }

    #[test]
    fn a_record_of_many_kilobytes_in_several_lines_is_read_whole_wherever_it_is_cut() {
        let name = format!("one\ntwo\nJobId=7 UserId=eve(2)\n{}", "x".repeat(9_000));
        let [before, long, after] = [record(1, "a"), record(2, &name), record(3, "c")];
        let end = long.len();
        let cuts = (0..end).filter(|at| *at < 300 || at % 1000 == 0 || end - at < 300);
        for cut in cuts.chain([4096, 8192]) {
            let mut stage = Stage::new();
            stage.write(&before);
            stage.write(&long[..cut]);
            let mut read = stage.read();
            assert_eq!(stage.read(), "");
            stage.write(&long[cut..]);
            stage.write(&after);
            read += &stage.read();
            assert_eq!(read, [&*before, &*long, &*after].concat(), "cut at {cut}");
            assert_eq!(stage.read(), "");
        }
    }

    #[test]
    fn a_record_that_is_never_finished_is_returned_at_the_next_poll() {
        let mut stage = Stage::new();
        stage.write(&record(1, "a"));
        stage.write("JobId=2 UserId=ann(1) GroupId=lab(1) Name=a\nb");
        assert_eq!(stage.read(), record(1, "a"));
        assert_eq!(stage.read(), "");
        assert_eq!(
            stage.read(),
            "JobId=2 UserId=ann(1) GroupId=lab(1) Name=a\n"
        );
    }

    #[test]
    fn a_file_that_is_rotated_in_the_middle_of_a_record_is_read_to_its_end() {
        let [a, b, c] = [1, 2, 3].map(|id| record(id, "two\nlines"));
        // Logrotate creates a new file, or slurmctld does.
        for is_created in [true, false] {
            let mut stage = Stage::new();
            stage.write(&a);
            stage.write(&b[..60]);
            assert_eq!(stage.read(), a);
            stage.rotate();
            if is_created {
                stage.write("");
            }
            assert_eq!(stage.read(), "");
            // slurmctld has the rotated file open until it is told to open the new one.
            stage.append("jobcomp.log.1", &b[60..]);
            assert_eq!(stage.read(), b);
            stage.append("jobcomp.log.1", &a);
            stage.write(&c);
            assert_eq!(stage.read(), a);
            assert_eq!(stage.read(), c);
            assert_eq!(stage.read(), "");
        }
    }

    #[test]
    fn records_that_could_not_be_stored_are_read_again_although_the_file_is_rotated() {
        let mut stage = Stage::new();
        stage.write(&record(1, "a"));
        stage.rotate();
        stage.write(&record(2, "b"));
        assert_eq!(stage.read(), record(2, "b"), "it began with the new file");
        stage.write(&record(3, "c"));
        assert_eq!(stage.read(), record(3, "c"));
        stage.rotate();
        stage.write(&record(4, "d"));
        stage.follow.rewind();
        assert_eq!(stage.read(), record(2, "b") + &record(3, "c"));
        assert_eq!(stage.read(), record(4, "d"));
    }

    #[test]
    fn a_truncated_file_that_has_grown_beyond_the_position_is_read_from_its_beginning() {
        let mut stage = Stage::new();
        stage.write(&record(1, "a"));
        assert_eq!(stage.read(), record(1, "a"));
        let new = record(2, "longer") + &record(3, "c");
        fs::write(&stage.path, &new).unwrap();
        assert_eq!(stage.read(), new);
    }
}
