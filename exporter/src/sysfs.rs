//! The small files of `/sys`: one value each, opened at every reading, since devices come and go.

use rustix::buffer::spare_capacity;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read};
use std::io;
use std::path::Path;
use std::str::FromStr;

/// The files of `/sys` have a page at most.
const PAGE: usize = 4096;

/// Content of the file without surrounding blanks; `None` if it cannot be read, as for a value that
/// does not apply now.
pub(crate) fn text(path: &Path) -> Option<String> {
    try_text(path).ok()
}

/// The same, with the reason.
pub(crate) fn try_text(path: &Path) -> Result<String, Errno> {
    // Some drivers give EAGAIN where Go's or Rust's own file types would wait for the file to
    // become readable.
    let file = open(
        path,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK,
        Mode::empty(),
    )?;

    let mut bytes = Vec::with_capacity(PAGE);
    read(&file, spare_capacity(&mut bytes))?;

    let text = String::from_utf8_lossy(&bytes);
    Ok(text.trim_matches([' ', '\n', '\t', '\0']).to_owned())
}

/// The number in the file, if it is one.
pub(crate) fn number<T: FromStr>(path: &Path) -> Option<T> {
    text(path)?.parse().ok()
}

/// Whether the device is a GPU that sleeps, as those of laptops do while unused. Drivers
/// (amdgpu before Linux 6.15, nouveau) wake it for most of its files; those read here wake none.
pub(crate) fn is_sleeping_gpu(device: &Path) -> bool {
    const DISPLAY: &str = "0x03";
    let is_gpu = text(&device.join("class")).is_some_and(|class| class.starts_with(DISPLAY));
    is_gpu && text(&device.join("power/runtime_status")).as_deref() == Some("suspended")
}

/// The names in a directory that begin with `prefix`, sorted.
pub(crate) fn names(directory: &Path, prefix: &str) -> io::Result<Vec<String>> {
    let entries = std::fs::read_dir(directory)?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| name.starts_with(prefix)).collect();
    names.sort_unstable();
    Ok(names)
}

/// The same, with what follows the prefix, which must be digits: `mc0`, `mc1`, but not `mc`.
pub(crate) fn numbered(directory: &Path, prefix: &str) -> io::Result<Vec<(String, String)>> {
    let with_number = |name: String| {
        let number = name[prefix.len()..].to_owned();
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        (!number.is_empty() && is_number).then_some((name, number))
    };

    let names = names(directory, prefix)?.into_iter();
    Ok(names.filter_map(with_number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_names() {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("mc1", " 12\n"),
            ("mc0", "x\0"),
            ("mc", "-1"),
            ("other", "\u{1f4a5}"),
        ] {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let path = |name: &str| directory.path().join(name);
        assert_eq!(number::<u32>(&path("mc1")), Some(12));
        assert_eq!(number::<u32>(&path("mc0")), None);
        assert_eq!(text(&path("mc0")).as_deref(), Some("x"));
        assert_eq!(text(&path("nothing")), None);
        assert_eq!(names(directory.path(), "mc").unwrap(), ["mc", "mc0", "mc1"]);
        let of = |name: &str, number: &str| (name.to_owned(), number.to_owned());
        assert_eq!(
            numbered(directory.path(), "mc").unwrap(),
            [of("mc0", "0"), of("mc1", "1")]
        );
        assert!(names(&path("nothing"), "").is_err());
    }
}
