//! Hours given back by an operator: a ledger of who gave what to whom, when and why.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// An entry of the ledger. Entries are never changed; a mistake is revoked by an entry that names it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Credit {
    /// Its number.
    pub id: i64,
    /// The cluster.
    pub cluster: String,
    /// Who gets it.
    pub user: String,
    /// The account whose hours they were.
    pub account: String,
    /// The run whose hours were lost: its job.
    pub job_id: Option<String>,
    /// And its submission, UTC seconds.
    pub submit: Option<i64>,
    /// GPU-seconds given back.
    pub gpu_seconds: f64,
    /// CPU-seconds given back.
    pub cpu_seconds: f64,
    /// The instant for whose month it counts: the run's end. UTC seconds.
    pub credited_to: i64,
    /// Why.
    pub reason: String,
    /// Who gave it.
    pub granted_by: String,
    /// When, UTC seconds.
    pub granted_at: i64,
    /// The entry that this one takes back.
    pub revokes: Option<i64>,
}

/// The entries that are in force: no revocations, and none that was revoked.
pub fn in_force(ledger: &[Credit]) -> impl Iterator<Item = &Credit> {
    let revoked: BTreeSet<i64> = ledger.iter().filter_map(|credit| credit.revokes).collect();
    ledger
        .iter()
        .filter(move |credit| credit.revokes.is_none() && !revoked.contains(&credit.id))
}
