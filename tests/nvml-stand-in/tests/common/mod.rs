//! A simulated machine for a test: the library, its script, and nvml-wrapper.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot have its machine shall end"
)]

use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::env;
use std::fs;
use tempfile::TempDir;

/// One library and one script serve the whole process, so tests run one after the other.
pub struct Machine {
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

static DIRECTORY: LazyLock<TempDir> = LazyLock::new(|| {
    let directory = TempDir::new().unwrap();
    // SAFETY: tests change the environment only here, under the lock.
    unsafe { env::set_var("NVML_STAND_IN_SCRIPT", directory.path().join("script")) };
    directory
});

impl Machine {
    pub fn new(script: &str) -> Self {
        let machine = Self {
            _turn: TURN.lock().unwrap_or_else(PoisonError::into_inner),
        };
        machine.becomes(script);
        machine
    }

    /// Changes the script, and waits until the library has seen it.
    pub fn becomes(&self, script: &str) {
        let draft = DIRECTORY.path().join("draft");
        fs::write(&draft, script).unwrap();
        fs::rename(draft, DIRECTORY.path().join("script")).unwrap();
        thread::sleep(Duration::from_millis(15));
    }

    pub fn nvml(&self) -> Result<Nvml, NvmlError> {
        Nvml::builder().lib_path(library().as_os_str()).init()
    }
}

/// Returns the path of the library; Cargo puts it beside the test programs.
pub fn library() -> PathBuf {
    let library = env::current_exe()
        .unwrap()
        .with_file_name("libnvml_stand_in.so");
    assert!(library.exists(), "{} is not built", library.display());
    library
}
