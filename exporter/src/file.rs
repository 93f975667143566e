//! Reading the kernel's files again and again.

use crate::collector::{CollectError, ParseError};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, PROC_SUPER_MAGIC, fstatfs, open};
use rustix::io::{Errno, pread};
use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// No file of the kernel that a collector reads is larger.
const MAX_FILE_BYTES: usize = 16 << 20;

/// Smallest size of the pages that the kernel fills with lines of a file.
const PAGE_BYTES: usize = 4096;

thread_local! {
    /// Buffer of [`KernelFile::parse`]. Collectors read one after the other, so there is room for the
    /// longest file only.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A file that is read at every scrape. It stays open: the kernel writes `/proc` and `/sys` files
/// again for each read from their beginning, and opening costs more than reading.
#[derive(Debug)]
pub(crate) struct KernelFile {
    path: PathBuf,
    handle: Option<OwnedFd>,
    text: String,
}

impl KernelFile {
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            handle: None,
            text: String::new(),
        }
    }

    /// Whether the file exists and may be read.
    pub fn opens(&mut self) -> bool {
        self.open().is_ok()
    }

    /// The content now, kept until the next reading; [`KernelFile::parse`] keeps nothing. Bytes that are
    /// no UTF-8, as in the name of a mount point, come as `\u{fffd}`.
    pub fn read(&mut self) -> Result<&str, CollectError> {
        let mut bytes = std::mem::take(&mut self.text).into_bytes();
        self.fill(&mut bytes, usize::MAX)?;
        self.text = String::from_utf8(bytes).unwrap_or_else(|error| lossy(error.as_bytes()));
        Ok(&self.text)
    }

    /// Reads and parses the content; an error of `parse` gets the file's name.
    pub fn parse<T>(
        &mut self,
        parse: impl FnOnce(&str) -> Result<T, ParseError>,
    ) -> Result<T, CollectError> {
        self.parse_lines(usize::MAX, parse)
    }

    /// As [`parse`](Self::parse), for a file whose lines have at most `line_bytes`. The kernel
    /// writes whole lines into a page, so a read that leaves room for another line was the last
    /// one. Saves the read that finds the end, which searches some tables from the beginning again.
    pub fn parse_lines<T>(
        &mut self,
        line_bytes: usize,
        parse: impl FnOnce(&str) -> Result<T, ParseError>,
    ) -> Result<T, CollectError> {
        let mut bytes = SCRATCH.take();
        let filled = self.fill(&mut bytes, line_bytes);
        let parsed = filled.map(|()| match std::str::from_utf8(&bytes) {
            Ok(text) => parse(text),
            Err(_) => parse(&lossy(&bytes)),
        });

        // Also after an error, so that the next file finds the room.
        SCRATCH.set(bytes);
        parsed?.map_err(|error| error.in_file(&self.path))
    }

    fn open(&mut self) -> Result<(), Errno> {
        if self.handle.is_none() {
            self.handle = Some(open_to_read(self.path.as_os_str())?);
        }
        Ok(())
    }

    /// Reads all of it into `bytes`, in place of what is there.
    fn fill(&mut self, bytes: &mut Vec<u8>, line_bytes: usize) -> Result<(), CollectError> {
        // A handle may outlive what it was opened on, a network device for one; then a new one is
        // opened.
        let was_open = self.handle.is_some();
        let mut result = self.try_fill(bytes, line_bytes);
        if result.is_err() {
            self.handle = None;
            if was_open {
                result = self.try_fill(bytes, line_bytes);
            }
        }
        result.map_err(|error| CollectError::read(&self.path, error))
    }

    fn try_fill(&mut self, bytes: &mut Vec<u8>, line_bytes: usize) -> Result<(), Errno> {
        self.open()?;
        let Some(handle) = &self.handle else {
            return Err(Errno::BADF);
        };

        bytes.clear();
        loop {
            if bytes.capacity() - bytes.len() < 1024 {
                bytes.reserve(bytes.capacity().max(4096));
            }

            let offset = bytes.len() as u64;
            let room = PAGE_BYTES.min(bytes.capacity() - bytes.len());

            let read = pread(handle, spare_capacity(bytes), offset)?;
            if read == 0 || read.saturating_add(line_bytes) < room {
                return Ok(());
            }

            if bytes.len() > MAX_FILE_BYTES {
                return Err(Errno::FBIG);
            }
        }
    }
}

/// A list of mounts: `mounts` or `mountinfo`. The kernel says when a mount came or went, and
/// writing the list is slow, so the last text serves for up to [`MOUNTS_KEPT`].
#[derive(Debug)]
pub(crate) struct MountList {
    file: KernelFile,
    read_at: Option<Instant>,
    /// Whether the kernel reports changes; it does for the lists of procfs.
    reports_changes: bool,
}

/// A file system that turns read-only after an error is no change of the list.
const MOUNTS_KEPT: Duration = Duration::from_secs(4);

impl MountList {
    pub fn new(path: PathBuf) -> Self {
        Self {
            file: KernelFile::new(path),
            read_at: None,
            reports_changes: false,
        }
    }

    /// Whether there is such a list and it may be read.
    pub fn opens(&mut self) -> bool {
        self.file.opens()
    }

    /// Parses the list; an error of `parse` gets the file's name.
    pub fn parse<T>(
        &mut self,
        parse: impl FnOnce(&str) -> Result<T, ParseError>,
    ) -> Result<T, CollectError> {
        self.read()?;
        parse(&self.file.text).map_err(|error| error.in_file(&self.file.path))
    }

    /// Returns the current list.
    pub fn read(&mut self) -> Result<&str, CollectError> {
        let is_young = self.read_at.is_some_and(|at| at.elapsed() < MOUNTS_KEPT);

        // The question must be asked after a reading too: the answer says what changed since the
        // last question.
        if self.has_changed() || !is_young {
            self.read_at = None;
            self.file.read()?;
            self.read_at = Some(Instant::now());

            let system = self.file.handle.as_ref().map(fstatfs);
            let system = system.and_then(Result::ok);
            self.reports_changes = system.is_some_and(|system| system.f_type == PROC_SUPER_MAGIC);
        }
        Ok(&self.file.text)
    }

    fn has_changed(&self) -> bool {
        let Some(handle) = self.file.handle.as_ref().filter(|_| self.reports_changes) else {
            return true;
        };

        let mut question = [PollFd::new(handle, PollFlags::PRI)];
        let answer = poll(&mut question, Some(&Timespec::default()));
        let changed = PollFlags::PRI | PollFlags::ERR;
        answer.is_err() || question[0].revents().intersects(changed)
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file of `/sys`: one value, at most a page. It stays open, as [`KernelFile`] does.
#[derive(Debug)]
pub(crate) struct SysfsFile(OwnedFd);

impl SysfsFile {
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
    open(
        path,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
    )
}

/// Decodes `\040` and the like: in mount tables the kernel writes blanks and backslashes as three
/// octal digits.
pub(crate) fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return text.into();
    }

    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }

    String::from_utf8_lossy(&bytes).into_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_again_each_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stat");
        let mut file = KernelFile::new(path.clone());
        assert!(matches!(file.read(), Err(CollectError::Read { .. })));
        std::fs::write(&path, "a".repeat(100_000)).unwrap();
        assert_eq!(file.read().unwrap().len(), 100_000);
        std::fs::write(&path, b"b\xff\n").unwrap();
        assert_eq!(file.read().unwrap(), "b\u{fffd}\n");
    }

    #[test]
    fn a_list_of_mounts_is_read_again_when_it_may_have_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mounts");
        std::fs::write(&path, "one\n").unwrap();
        let mut list = MountList::new(path.clone());
        assert_eq!(list.read().unwrap(), "one\n");
        std::fs::write(&path, "two\n").unwrap();
        assert_eq!(list.read().unwrap(), "two\n", "not of procfs: always read");
        let mut list = MountList::new("/proc/self/mountinfo".into());
        let mounts = list.read().unwrap().to_owned();
        assert!(!mounts.is_empty() && list.reports_changes);
        assert_eq!(list.read().unwrap(), mounts);
    }

    #[test]
    fn a_file_may_be_read_while_another_is_taken_apart() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &[u8]| {
            std::fs::write(directory.path().join(name), text).unwrap();
            KernelFile::new(directory.path().join(name))
        };
        let mut outer = file("outer", b"outer");
        let mut inner = file("inner", b"in\xffner");
        for _ in 0..2 {
            let both = outer.parse(|outer| {
                let inner = inner.parse(|inner| Ok(inner.to_owned())).unwrap();
                Ok(format!("{outer} {inner}"))
            });
            assert_eq!(both.unwrap(), "outer in\u{fffd}ner");
        }
        let error = outer
            .parse(|_| {
                Err::<(), _>(ParseError {
                    line: 7,
                    expected: "a number",
                })
            })
            .unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("outer, line 7: expected a number"),
            "{error}"
        );
    }

    #[test]
    fn a_long_file_of_lines_is_read_to_its_end() {
        let sockets = (0..200).map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let sockets: Vec<_> = sockets.collect();
        let mut udp = KernelFile::new("/proc/net/udp".into());
        let text = udp.parse_lines(256, |text| Ok(text.to_owned())).unwrap();
        for socket in &sockets {
            let address = format!("0100007F:{:04X}", socket.local_addr().unwrap().port());
            assert!(text.contains(&address), "{address} is missing:\n{text}");
        }
        let line = text.lines().map(str::len).max().unwrap();
        assert!(line + 1 < 256, "{line}");
    }

    #[test]
    fn the_kernel_rewrites_an_open_file() {
        let mut file = KernelFile::new("/proc/uptime".into());
        let first = file.read().unwrap().to_owned();
        std::thread::sleep(Duration::from_millis(20));
        assert_ne!(file.read().unwrap(), first);
    }
}
