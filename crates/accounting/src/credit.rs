//! Ledger of hours that operators credited back.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use takt_model::UnixTime;

/// An entry of the ledger. Entries never change; a mistake is revoked by another entry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Credit {
    /// Number of the entry.
    pub id: i64,
    /// Cluster name.
    pub cluster: String,
    /// User who gets the credit.
    pub user: String,
    /// Account that the lost hours were charged to.
    pub account: String,
    /// Job id of the run that was lost.
    pub job_id: Option<String>,
    /// Submission of that run.
    pub submit: Option<UnixTime>,
    /// GPU-seconds credited.
    pub gpu_seconds: f64,
    /// CPU-seconds credited.
    pub cpu_seconds: f64,
    /// Time that decides in which month the credit counts: the end of the run.
    pub credited_to: UnixTime,
    /// Reason.
    pub reason: String,
    /// Operator who granted the credit.
    pub granted_by: String,
    /// Time of the grant.
    pub granted_at: UnixTime,
    /// Number of the entry that this one revokes.
    pub revokes: Option<i64>,
}

/// Returns the effective entries: neither revocations nor revoked entries.
pub fn in_force(ledger: &[Credit]) -> impl Iterator<Item = &Credit> {
    let revoked: BTreeSet<i64> = ledger.iter().filter_map(|credit| credit.revokes).collect();
    ledger
        .iter()
        .filter(move |credit| credit.revokes.is_none() && !revoked.contains(&credit.id))
}
