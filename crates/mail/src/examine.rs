//! Examines the mail server for `takt doctor`: connects and logs in, and sends nothing.

use crate::{EmailConfig, Mailer};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for which a result is kept: pages ask often, and the server belongs to others.
const KEPT: Duration = Duration::from_secs(60);

/// The last result, with its configuration and time.
static LAST: Mutex<Option<(EmailConfig, Instant, Option<String>)>> = Mutex::new(None);

/// Returns why the server takes no mail from Takt. Asks it at most once a minute. Blocks for some seconds if it does not
/// answer.
pub fn defect(config: &EmailConfig) -> Option<String> {
    // Held while the server is asked: of two callers, the second gets the result of the first.
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((of, at, defect)) = &*last
        && of == config
        && at.elapsed() < KEPT
    {
        return defect.clone();
    }

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    // A machine that has no files left for a connection has other findings.
    let Ok(runtime) = runtime else {
        return None;
    };

    let asked = Mailer::new(config).and_then(|mailer| runtime.block_on(mailer.probe()));
    let defect = asked.err().map(|error| error.in_full());
    *last = Some((config.clone(), Instant::now(), defect.clone()));
    defect
}
