//! A law over random moves: each announced episode has exactly one end.

use super::*;
use proptest::collection;

/// One event in a running Takt.
#[derive(Debug, Clone)]
enum Chaos {
    Set(usize, bool),
    Down(usize, bool),
    Event(u32),
    Silence(usize, i64),
    Wait(usize),
    Crash(usize),
}

fn chaos() -> impl Strategy<Value = Chaos> {
    prop_oneof![
        3 => (0usize..3, any::<bool>()).prop_map(|(node, hot)| Chaos::Set(node, hot)),
        1 => (0usize..3, any::<bool>()).prop_map(|(node, down)| Chaos::Down(node, down)),
        1 => prop_oneof![Just(79u32), Just(119)].prop_map(Chaos::Event),
        1 => (0usize..3, 1i64..300).prop_map(|(node, seconds)| Chaos::Silence(node, seconds)),
        3 => (1usize..90).prop_map(Chaos::Wait),
        3 => (0usize..4).prop_map(Chaos::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// With any sequence of faults, silences, inhibitions and crashes, a channel with
    /// `send_resolved` gets beginnings and ends of each alert alternately, and an end once all is
    /// well. Every message is delivered at least once, and twice only if the process ended before
    /// the answer was committed.
    #[test]
    fn every_announced_episode_has_exactly_one_end(
        moves in collection::vec(chaos(), 1..40),
    ) {
        let mut takt = Takt::new();
        let mut lost_in_flight = 0;
        takt.set("takt_gpu_up{node=\"g01\",uuid=\"GPU-1\"}", 0.0);

        let mut values = BTreeMap::new();
        for (n, what) in moves.iter().enumerate() {
            match what {
                Chaos::Set(node, hot) => drop(values.insert(
                    format!("hot{{node=\"g{node}\"}}"),
                    if *hot { 95.0 } else { 60.0 },
                )),
                Chaos::Down(node, down) => drop(values.insert(
                    format!("up{{node=\"g{node}\"}}"),
                    if *down { 0.0 } else { 1.0 },
                )),
                Chaos::Event(number) => {
                    let event = xid(*number, "7", takt.now.whole_seconds().0);
                    let batch = takt.engine.event(&event, &[], takt.now);
                    takt.commit(&batch);
                }
                Chaos::Silence(node, seconds) => {
                    let wanted = Silence {
                        id: String::new(),
                        matchers: vec![Matchers(parse_matchers(&format!("node=g{node}")).unwrap())],
                        starts_at: takt.now,
                        ends_at: takt.now.plus(Duration::from_secs(seconds.unsigned_abs())),
                        updated_at: takt.now,
                        created_by: "ada".to_owned(),
                        comment: String::new(),
                        annotations: BTreeMap::new(),
                    };
                    let (_, batch) = takt
                        .engine
                        .silence(wanted, &format!("s{n}"), takt.now)
                        .unwrap();
                    takt.commit(&batch);
                }
                Chaos::Wait(seconds) => {
                    for _ in 0..*seconds {
                        values
                            .iter()
                            .for_each(|(series, value)| takt.set(series, *value));
                        takt.second(None);
                    }
                }
                Chaos::Crash(step) => {
                    values
                        .iter()
                        .for_each(|(series, value)| takt.set(series, *value));
                    takt.second(Some(*step));
                    // At most the rows of both channels were delivered without a record.
                    lost_in_flight += usize::from(*step == 3) * 2;
                }
            }
        }
        // All is well from here on; wait until silences, flapping and group intervals have ended.
        values.values_mut().for_each(|value| *value = 60.0);

        let series: Vec<_> = values.keys().cloned().collect();
        for second in 0..4200 {
            // Samples are seen for five minutes.
            if second % 120 == 0 {
                series.iter().for_each(|series| {
                    takt.set(series, if series.starts_with("up") { 1.0 } else { 60.0 })
                });
                takt.set("takt_gpu_up{node=\"g01\",uuid=\"GPU-1\"}", 1.0);
            }
            takt.second(None);
        }

        let mut last: BTreeMap<String, Status> = BTreeMap::new();
        for (status, labels) in takt.sent(SLACK) {
            let before = last.insert(labels.clone(), status);
            // A message about another alert of the group, or a repetition, lists the firing alerts
            // again; an end comes once.
            prop_assert!(
                status == Status::Firing || before == Some(Status::Firing),
                "an end without a beginning: {}",
                labels
            );
        }
        for (labels, status) in &last {
            prop_assert_eq!(*status, Status::Resolved, "no end was sent: {}", labels);
        }

        // No channel is left that waits for an end.
        let tables = takt.disk.0.borrow();
        prop_assert!(tables.log.values().all(|entry| entry.open.is_empty()));

        let rows: BTreeSet<_> = tables
            .outbox
            .values()
            .filter(|row| row.state != RowState::Superseded)
            .map(|row| row.id)
            .collect();
        let delivered: BTreeSet<_> = takt.delivered.iter().map(|(id, _)| *id).collect();
        prop_assert_eq!(&rows, &delivered, "all are delivered");
        prop_assert!(takt.delivered.len() <= delivered.len() + lost_in_flight);
    }
}
