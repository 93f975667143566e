//! Running and waiting jobs of a user or an account.

use super::{Plain, Strips, columns, runs};
use crate::frame::{PageError, Visit};
use takt_model::UnixTime;
use takt_questions::JobsQuestion;

/// Jobs in the list.
const MOST: usize = 20;

/// The running and waiting jobs, with their strips; `None` without one.
///
/// # Errors
/// If the store fails.
pub fn current_jobs(
    visit: &Visit,
    user: Option<&str>,
    account: Option<&str>,
    caption: &str,
) -> Result<Option<Plain>, PageError> {
    const KEYS: [&str; 9] = [
        "job_id",
        "name",
        "user",
        "state",
        "length",
        "gpus",
        "strip",
        "utilization",
        "nodes",
    ];
    let listed = visit.ask(&JobsQuestion {
        cluster: Some(visit.site.cluster.to_string()),
        user: user.map(str::to_owned),
        account: account.map(str::to_owned),
        state: Some("RUNNING,PENDING".to_owned()),
        limit: MOST,
        ..JobsQuestion::default()
    })?;
    // A heading without jobs says nothing.
    if listed.is_empty() {
        return Ok(None);
    }

    let mut columns = columns();
    let mut rows = runs(&listed, UnixTime::from(visit.now));
    Strips::of(visit, &listed)?.add(&mut columns, &mut rows, &listed);
    Ok(Some(Plain::of(caption, columns, rows).keep(&KEYS)))
}
