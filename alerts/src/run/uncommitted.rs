//! Bounds the state that waits for a store that fails.
//!
//! A batch whose commit failed grows with every further turn. Only the latest version of a record
//! has to be stored, so the batch stays as small as the engine's own state. The log of transitions
//! is the exception: beyond [`TRANSITIONS_MAX`] the oldest are dropped and counted.

use crate::Batch;
use crate::alert::Alert;
use crate::fingerprint::Fingerprint;
use std::collections::BTreeSet;
use std::mem;

/// Transitions that wait for the store; a transition of 1 kB makes this 20 MB.
const TRANSITIONS_MAX: usize = 20_000;

/// Keeps the latest version of each record. Returns the number of transitions that were dropped.
pub(super) fn compact(batch: &mut Batch) -> usize {
    keep_last(&mut batch.instances, |(rule, instance)| {
        (rule.clone(), Fingerprint::of(&instance.labels))
    });
    keep_last(&mut batch.event_instances, |(rule, instance)| {
        (rule.clone(), Fingerprint::of(&instance.labels))
    });
    keep_last(&mut batch.forgotten_instances, Clone::clone);
    keep_last(&mut batch.forgotten_event_instances, Clone::clone);
    keep_last(&mut batch.alerts, Alert::fingerprint);
    keep_last(&mut batch.forgotten_alerts, |fingerprint| *fingerprint);
    keep_last(&mut batch.flapping, |(fingerprint, _)| *fingerprint);
    keep_last(&mut batch.silences, |silence| silence.id.clone());
    keep_last(&mut batch.forgotten_silences, Clone::clone);
    keep_last(&mut batch.log, |logged| logged.key.clone());
    keep_last(&mut batch.outbox, |row| row.id);
    keep_last(&mut batch.read, |(exporter, _)| exporter.clone());

    // The oldest go: the newest ones say in which state each alert is.
    let surplus = batch.transitions.len().saturating_sub(TRANSITIONS_MAX);
    batch.transitions.drain(..surplus);
    surplus
}

/// Removes all but the last item of each identity.
fn keep_last<T, K>(items: &mut Vec<T>, identity: impl Fn(&T) -> K)
where
    K: Ord,
{
    let mut seen = BTreeSet::new();
    let newest_first = mem::take(items)
        .into_iter()
        .rev()
        .filter(|item| seen.insert(identity(item)));
    items.extend(newest_first);
    items.reverse();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify::suite::row;
    use crate::outbox::{Row, RowState};

    #[test]
    fn the_latest_version_of_each_record_is_kept() {
        let row = |id: u64, state: RowState| Row {
            id,
            state,
            ..row(1, "hot")
        };
        let mut batch = Batch::default();
        for _ in 0..1_000 {
            let sending = row(1, RowState::Sending);
            let later = Batch {
                outbox: vec![sending, row(2, RowState::Queued)],
                read: vec![("http://g01".to_owned(), 7)],
                ..Batch::default()
            };
            batch = batch.then(later);
            assert_eq!(compact(&mut batch), 0);
        }
        batch = batch.then(Batch {
            outbox: vec![row(1, RowState::Sent)],
            read: vec![("http://g01".to_owned(), 8)],
            ..Batch::default()
        });
        compact(&mut batch);
        let rows: Vec<_> = batch.outbox.iter().map(|row| (row.id, row.state)).collect();
        assert_eq!(rows, [(2, RowState::Queued), (1, RowState::Sent)]);
        assert_eq!(batch.read, [("http://g01".to_owned(), 8)]);
    }
}
