//! Small real file systems, for tests of a full or read-only disk.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system, unmounted at the end. Needs root.
pub struct Mount(PathBuf);

impl Mount {
    pub fn tmpfs(at: &Path, options: &str) -> Self {
        Self::new(at, &["-t", "tmpfs", "-o", options, "tmpfs"])
    }

    /// Mounts the ext4 file system in `image`. A missing image is created, an existing one is
    /// checked.
    pub fn ext4(at: &Path, image: &Path, bytes: u64) -> Self {
        let is_new = !image.exists();
        if is_new {
            fs::File::create(image).unwrap().set_len(bytes).unwrap();
        }
        let (program, arguments): (_, &[&str]) = if is_new {
            ("mkfs.ext4", &["-q", "-F"])
        } else {
            // A file system that was aborted has to be checked before it can be written again.
            ("e2fsck", &["-f", "-y"])
        };
        let done = Command::new(program)
            .args(arguments)
            .arg(image)
            .output()
            .unwrap();
        // Exit code 1: errors were found and repaired.
        assert!(
            matches!(done.status.code(), Some(0 | 1)),
            "{program}: {done:?}"
        );
        Self::new(at, &["-o", "loop", &image.to_string_lossy()])
    }

    fn new(at: &Path, arguments: &[&str]) -> Self {
        fs::create_dir_all(at).unwrap();
        let done = Command::new("mount")
            .args(arguments)
            .arg(at)
            .output()
            .unwrap();
        assert!(
            done.status.success(),
            "cannot mount at {}: {done:?}",
            at.display()
        );
        Self(at.to_owned())
    }

    pub fn again(&self, options: &str) {
        let done = Command::new("mount")
            .args(["-o", &format!("remount,{options}")])
            .arg(&self.0)
            .status()
            .unwrap();
        assert!(done.success());
    }

    /// Fills the file system up to half a MiB.
    pub fn fill(&self) {
        let mut filler = fs::File::create(self.filler()).unwrap();
        while filler.write_all(&[0; 4096]).is_ok() {}
        let length = filler.metadata().unwrap().len();
        filler.set_len(length.saturating_sub(512 << 10)).unwrap();
    }

    /// Fills the file system until no byte is left.
    pub fn fill_whole(&self) {
        let mut filler = fs::File::create(self.filler()).unwrap();
        while filler.write_all(&[0; 4096]).is_ok() {}
    }

    /// Frees the filled space.
    pub fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily, as a killed program may still hold files for a moment.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
