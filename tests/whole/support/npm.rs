//! Packages of npm that tests use.

use super::{Skip, need_program};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Returns a folder below `tests/` after the packages of its lock file were installed.
///
/// # Errors
/// If node or npm is missing, or npm cannot install.
pub fn with_packages(folder: &str) -> Result<PathBuf, Skip> {
    /// Two tests must not install into one folder at once.
    static INSTALL: Mutex<()> = Mutex::new(());
    need_program("node")?;
    need_program("npm")?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(folder);
    let _one = INSTALL.lock().unwrap_or_else(PoisonError::into_inner);

    // npm writes this file last.
    if !folder.join("node_modules/.package-lock.json").exists() {
        let run = Command::new("npm")
            // Without scripts: packages of others run nothing on this machine while they are
            // installed.
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
            .current_dir(&folder)
            .output()
            .map_err(|error| Skip(error.to_string()))?;
        if !run.status.success() {
            return Err(Skip(format!(
                "npm ci: {}",
                String::from_utf8_lossy(&run.stderr)
            )));
        }
    }
    Ok(folder)
}
