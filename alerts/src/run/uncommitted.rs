//! Bounds the state that waits for a store that fails.
//!
//! A batch whose commit failed grows with every further turn. Only the latest version of a record
//! has to be stored, so the batch stays as small as the engine's own state. What is appended has a
//! bound: of transitions, events and finished messages the oldest are dropped and counted.

use crate::Batch;
use crate::alert::Alert;
use crate::fingerprint::Fingerprint;
use crate::outbox::Row;
use std::collections::BTreeSet;
use std::mem;

/// Transitions that wait for the store; a transition of 1 kB makes this 20 MB.
const TRANSITIONS_MAX: usize = 20_000;

/// Events that wait for the store; an event of 1 kB makes this 20 MB.
const EVENTS_MAX: usize = 20_000;

/// Finished messages that wait for the store; a message of 10 kB makes this 20 MB.
const FINISHED_MAX: usize = 2_000;

/// What was dropped of a batch that waits for the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DroppedRecords {
    /// Transitions of alerts.
    pub transitions: usize,
    /// Events of exporters.
    pub events: usize,
    /// Messages whose delivery has ended.
    pub messages: usize,
}

/// Keeps the latest version of each record, and of what is appended the newest. Returns what was dropped.
pub(super) fn compact(batch: &mut Batch) -> DroppedRecords {
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

    // The newest transitions say in which state each alert is.
    DroppedRecords {
        transitions: drop_oldest(&mut batch.transitions, TRANSITIONS_MAX),
        events: drop_oldest(&mut batch.events, EVENTS_MAX),
        messages: drop_finished(&mut batch.outbox),
    }
}

/// Keeps the last `max` items. Returns how many were before them.
fn drop_oldest<T>(items: &mut Vec<T>, max: usize) -> usize {
    let surplus = items.len().saturating_sub(max);
    items.drain(..surplus);
    surplus
}

/// Drops the oldest finished messages beyond their bound. One that the store knows as waiting is sent again after a
/// restart, which is better than none.
fn drop_finished(rows: &mut Vec<Row>) -> usize {
    let finished = rows.iter().filter(|row| row.state.is_final()).count();
    let surplus = finished.saturating_sub(FINISHED_MAX);

    let mut to_drop = surplus;
    rows.retain(|row| {
        let is_dropped = row.state.is_final() && to_drop > 0;
        to_drop -= usize::from(is_dropped);
        !is_dropped
    });
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
    use crate::outbox::RowState;
    use takt_model::{Event, EventKind, Labels, Timestamp};

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
            assert_eq!(compact(&mut batch), DroppedRecords::default());
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

    /// Events and finished messages grew without a bound while the store failed.
    #[test]
    fn what_is_appended_has_a_bound_and_the_newest_stay() {
        let event = |id: usize| Event {
            id: id as u64,
            at: Timestamp(0),
            kind: EventKind::Xid,
            labels: Labels::new(),
            message: String::new(),
        };
        let message = |id: usize, state| Row {
            id: id as u64,
            state,
            ..row(1, "hot")
        };

        let mut batch = Batch {
            events: (0..EVENTS_MAX + 7).map(event).collect(),
            ..Batch::default()
        };
        batch.outbox.push(message(0, RowState::Queued));
        let sent = 1..=FINISHED_MAX + 3;
        batch
            .outbox
            .extend(sent.map(|id| message(id, RowState::Sent)));

        let dropped = DroppedRecords {
            transitions: 0,
            events: 7,
            messages: 3,
        };
        assert_eq!(compact(&mut batch), dropped);
        assert_eq!((batch.events.len(), batch.events[0].id), (EVENTS_MAX, 7));
        // A message that waits is never dropped.
        let ids: Vec<u64> = batch.outbox.iter().map(|row| row.id).take(2).collect();
        assert_eq!((batch.outbox.len(), ids), (FINISHED_MAX + 1, vec![0, 4]));
        assert_eq!(compact(&mut batch), DroppedRecords::default());
    }
}
