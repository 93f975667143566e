//! Tests of intervals that contradict each other.

use super::Store;
use proptest::collection;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::Cell;
use takt_jobs::{Amounts, NodeEvent};
use takt_model::UnixTime;

/// An interval of the cluster, with this number of GPUs.
fn size(from: i64, to: Option<i64>, gpus: u64) -> NodeEvent {
    NodeEvent {
        node: String::new(),
        state: String::new(),
        reason: Some("Cluster Registered TRES".to_owned()),
        has: Amounts {
            gpus,
            ..Amounts::default()
        },
        from: UnixTime(from),
        to: to.map(UnixTime),
    }
}

fn noted(store: &Store, cluster: &str, events: &[NodeEvent]) -> Vec<(i64, Option<i64>, u64)> {
    let records = store.records();
    records
        .note_node_events(cluster, events, "slurmdbd")
        .expect("the store takes them");
    let found = records.node_events(cluster, UnixTime(0)).unwrap();
    found
        .iter()
        .map(|event| (event.from.0, event.to.map(|to| to.0), event.has.gpus))
        .collect()
}

#[test]
fn of_two_open_sizes_the_newer_counts_and_both_are_reported() {
    let store = Store::new();
    let known = noted(
        &store,
        "lab",
        &[size(100, None, 152), size(1000, None, 152)],
    );
    assert_eq!(known, [(100, Some(1000), 152), (1000, None, 152)]);
    let registered = store.records().registered_size("lab").unwrap().unwrap();
    assert_eq!((registered.gpus, registered.open_records), (152, 2));

    let known = noted(&store, "lab", &[size(100, Some(1000), 152)]);
    assert_eq!(known, [(100, Some(1000), 152), (1000, None, 152)]);
    let registered = store.records().registered_size("lab").unwrap().unwrap();
    assert_eq!(registered.open_records, 1);
}

#[test]
fn an_interval_within_an_older_one_is_left_out() {
    let store = Store::new();
    let known = noted(
        &store,
        "lab",
        &[size(100, None, 8), size(200, Some(300), 4)],
    );
    assert_eq!(known, [(100, None, 8)]);
}

#[test]
fn at_each_instant_one_size_counts_wherever_one_was_reported() {
    let store = Store::new();
    let case = Cell::new(0);
    let spans = collection::btree_map(1_i64..60, (1_i64..30, any::<bool>()), 1..8);
    let covers = |from: i64, to: Option<i64>, at: i64| from <= at && to.is_none_or(|to| at < to);

    let tried = TestRunner::new(ProptestConfig::with_cases(40)).run(&spans, |spans| {
        let events: Vec<NodeEvent> = spans
            .iter()
            .map(|(from, (length, is_open))| size(*from, (!is_open).then_some(from + length), 1))
            .collect();
        case.set(case.get() + 1);
        let known = noted(&store, &format!("lab{}", case.get()), &events);

        for at in 0..100 {
            let is_reported = |event: &NodeEvent| covers(event.from.0, event.to.map(|to| to.0), at);
            let counted = known.iter().filter(|(from, to, _)| covers(*from, *to, at));
            let expected = usize::from(events.iter().any(is_reported));
            prop_assert_eq!(counted.count(), expected, "at {}: {:?}", at, known);
        }
        Ok(())
    });
    tried.unwrap();
}
