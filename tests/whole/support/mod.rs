//! Shared by the whole-program tests: the `takt` program in a fresh directory, programs that run
//! beside it, a real Slurm, a real Prometheus.

pub mod channels;
pub mod machine;
pub mod mount;
pub mod npm;
pub mod process;
pub mod prometheus;
pub mod slurm;
pub mod takt;
pub mod target;

use std::env;
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;

/// A reason to skip a test: the missing requirement, and how to install it.
#[derive(Debug)]
pub struct Skip(pub String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A program that a test needs, and the Debian package that has it.
pub struct Needed {
    pub program: &'static str,
    pub package: &'static str,
}

/// Skips unless all programs are installed.
pub fn need(programs: &[Needed]) -> Result<(), Skip> {
    let missing: Vec<_> = programs
        .iter()
        .filter(|n| find_program(n.program).is_none())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let programs: Vec<_> = missing.iter().map(|n| n.program).collect();
    let mut packages: Vec<_> = missing.iter().map(|n| n.package).collect();
    // Neighbours in the list often are of one package.
    packages.dedup();
    Err(Skip(format!(
        "needs {}; apt-get install {}",
        programs.join(", "),
        packages.join(" ")
    )))
}

/// Skips unless the tests run as root.
pub fn need_root() -> Result<(), Skip> {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err(Skip("needs root".to_owned()))
    }
}

/// Skips where a program is missing.
pub fn need_program(name: &str) -> Result<PathBuf, Skip> {
    find_program(name).ok_or_else(|| Skip(format!("needs {name}")))
}

/// Skips where a file of a package is missing.
pub fn need_file(path: &str, package: &str) -> Result<(), Skip> {
    if Path::new(path).exists() {
        Ok(())
    } else {
        Err(Skip(format!("needs {path}; apt-get install {package}")))
    }
}

/// Returns the value, or prints why the test is skipped and returns `None`.
///
/// With `TAKT_TEST_NO_SKIP`, for machines that have all requirements, a skip is a failure.
pub fn or_skip<T>(wanted: Result<T, Skip>) -> Option<T> {
    match wanted {
        Ok(wanted) => Some(wanted),
        Err(skip) => {
            let thread = thread::current();
            let test = thread.name().unwrap_or("test");
            assert!(
                env::var_os("TAKT_TEST_NO_SKIP").is_none(),
                "{test} would be skipped: {skip}"
            );

            // Written to the terminal although the output of passing tests is captured: a skipped
            // test must be visible.
            let line = format!("test {test} ... skipped: {skip}\n");
            io::stderr().write_all(line.as_bytes()).unwrap();
            None
        }
    }
}

/// Programs that `scripts/peers.sh` builds, and their versions.
const CURRENT: [(&str, &str); 4] = [
    ("prometheus", "3.14.0"),
    ("promtool", "3.14.0"),
    ("alertmanager", "0.34.0"),
    ("amtool", "0.34.0"),
];

/// Returns the path of the current release of a program, which `scripts/peers.sh` has built.
pub fn need_current(program: &str) -> Result<PathBuf, Skip> {
    let (_, version) = CURRENT
        .iter()
        .find(|(name, _)| *name == program)
        .expect("the list has every program that is asked for");
    need_peer(&format!("{program}-{version}"))
}

/// Returns the paths of all releases of a program that are at hand: the current one and Debian's.
pub fn releases(debian: Needed) -> Result<Vec<PathBuf>, Skip> {
    let current = need_current(debian.program).ok();
    let installed = find_program(debian.program);

    // The current one first, as it decides.
    let found: Vec<_> = current.into_iter().chain(installed).collect();
    if found.is_empty() {
        need(&[debian])?;
    }
    Ok(found)
}

/// Returns the folder in which the scripts keep what they build and download.
pub fn cache() -> Option<PathBuf> {
    let folder = |variable: &str, below: &str| {
        env::var_os(variable).map(|folder| PathBuf::from(folder).join(below))
    };
    folder("TAKT_CACHE_DIR", "")
        .or_else(|| folder("XDG_CACHE_HOME", "takt"))
        .or_else(|| folder("HOME", ".cache/takt"))
}

/// Returns the path of something that `scripts/peers.sh` has built, such as `prometheus-3.14.0`.
pub fn need_peer(program: &str) -> Result<PathBuf, Skip> {
    cache()
        .map(|folder| folder.join("peers").join(program))
        .filter(|file| is_executable(file))
        .ok_or_else(|| {
            Skip(format!(
                "needs {program}; scripts/peers.sh builds it with Go"
            ))
        })
}

/// Returns the path of a program; searches /sbin and the like too, which a user's `PATH` may lack.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/bin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
