//! Aborts the process at a chosen step, so that tests can check what the next start finds.

use std::env;
use std::process;
use std::sync::OnceLock;

/// Aborts the process, as `kill -9` would, if `TAKT_CRASH_AT` names this step.
pub fn crash_point(step: &str) {
    static AT: OnceLock<Option<String>> = OnceLock::new();
    if AT.get_or_init(|| env::var("TAKT_CRASH_AT").ok()).as_deref() == Some(step) {
        tracing::error!(step, "aborting at the step named in TAKT_CRASH_AT");
        process::abort();
    }
}
