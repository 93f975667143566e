use super::*;

const DAY: i64 = 86_400;
const NOW: i64 = 1000 * DAY;

fn placement(card: &str, node: &str, from: i64, seen: i64, to: Option<i64>) -> CardPlacement {
    CardPlacement {
        card: card.into(),
        node: node.into(),
        slot: "0000:01:00.0".into(),
        driver: "580.1".into(),
        from: UnixTime(from * DAY),
        seen: UnixTime(seen * DAY),
        to: to.map(|to| UnixTime(to * DAY)),
        ..CardPlacement::default()
    }
}

fn fault(card: &str, xid: u32, kind: FaultKind, node: &str, day: i64) -> CardFault {
    CardFault {
        card: card.into(),
        at: UnixTime(day * DAY),
        node: node.into(),
        slot: "0000:01:00.0".into(),
        xid: Some(xid),
        kind,
        meaning: "a meaning".into(),
        ..CardFault::default()
    }
}

fn hardware(card: &str, node: &str, day: i64) -> CardFault {
    fault(card, 79, FaultKind::Hardware, node, day)
}

fn change(reading: &str, before: f64, value: f64, day: i64) -> CardChange {
    CardChange {
        card: "A".into(),
        at: UnixTime(day * DAY),
        reading: reading.into(),
        before: Some(before),
        value,
    }
}

fn counter(value: f64, lowest: f64, since: i64) -> CardCounter {
    CardCounter {
        lowest,
        seen: UnixTime(NOW),
        changed_at: UnixTime(since * DAY),
        ..CardCounter::new(value, UnixTime(0))
    }
}

/// A card in g1 since day 900.
fn card() -> CardFacts {
    CardFacts {
        card: "A".into(),
        placements: vec![placement("A", "g1", 900, 1000, None)],
        now: UnixTime(NOW),
        ..CardFacts::default()
    }
}

fn with_readings(readings: &[(&str, f64)]) -> CardFacts {
    let readings = readings
        .iter()
        .map(|(name, value)| ((*name).to_owned(), counter(*value, *value, 990)));
    CardFacts {
        readings: readings.collect(),
        ..card()
    }
}

fn with_faults(faults: Vec<CardFault>, changes: Vec<CardChange>) -> CardFacts {
    CardFacts {
        faults,
        changes,
        ..card()
    }
}

/// Every row: what is known, the verdict, and a part of its first criterion.
#[test]
fn the_table_of_verdicts() {
    use CardVerdict::{Healthy, Inspect, Return, Watch};
    let of_user = |user: &str| CardFault {
        user: Some(user.into()),
        ..fault("A", 31, FaultKind::Application, "g1", 999)
    };
    let reset = || change(reading::ENERGY, 5000.0, 3.0, 995);
    let rows: Vec<(&str, CardFacts, CardVerdict, &str)> = vec![
        ("nothing", card(), Healthy, ""),
        (
            "flags that are not set",
            with_readings(&[(reading::ROW_REMAP_FAILED, 0.0), (reading::LOST, 0.0)]),
            Healthy,
            "",
        ),
        (
            "remap failed",
            with_readings(&[(reading::ROW_REMAP_FAILED, 1.0)]),
            Return,
            "replacing a row",
        ),
        (
            "SRAM",
            with_readings(&[(reading::SRAM_THRESHOLD, 1.0)]),
            Return,
            "SRAM",
        ),
        (
            "SRAM of a lost card",
            with_readings(&[(reading::SRAM_THRESHOLD, 1.0), (reading::LOST, 1.0)]),
            Return,
            "SRAM",
        ),
        (
            "lost",
            with_readings(&[(reading::LOST, 1.0)]),
            Inspect,
            "does not answer",
        ),
        (
            "recovery action",
            with_readings(&[(reading::RECOVERY_ACTION, 2.0)]),
            Inspect,
            "demands",
        ),
        (
            "remap pending",
            with_readings(&[(reading::ROW_REMAP_PENDING, 1.0)]),
            Watch,
            "next reset",
        ),
        (
            "narrow link",
            with_readings(&[(reading::LINK_WIDTH, 8.0), (reading::LINK_WIDTH_MAX, 16.0)]),
            Inspect,
            "8 of 16",
        ),
        (
            "full link",
            with_readings(&[(reading::LINK_WIDTH, 8.0), (reading::LINK_WIDTH_MAX, 8.0)]),
            Healthy,
            "",
        ),
        (
            "no link",
            with_readings(&[(reading::LINK_WIDTH, 0.0), (reading::LINK_WIDTH_MAX, 16.0)]),
            Healthy,
            "",
        ),
        (
            "heat",
            with_readings(&[(reading::THERMAL, 40_000.0)]),
            Watch,
            "heat",
        ),
        (
            "a little heat",
            with_readings(&[(reading::THERMAL, 4000.0)]),
            Healthy,
            "",
        ),
        (
            "hardware fault",
            with_faults(vec![hardware("A", "g1", 990)], vec![]),
            Inspect,
            "no reset since",
        ),
        (
            "reset since",
            with_faults(vec![hardware("A", "g1", 990)], vec![reset()]),
            Watch,
            "not come back",
        ),
        (
            "long quiet",
            with_faults(vec![hardware("A", "g1", 950)], vec![reset()]),
            Healthy,
            "",
        ),
        (
            "long ago",
            with_faults(vec![hardware("A", "g1", 905)], vec![]),
            Healthy,
            "",
        ),
        (
            "back after a reset",
            with_faults(
                vec![hardware("A", "g1", 990), hardware("A", "g1", 998)],
                vec![reset()],
            ),
            Inspect,
            "came back",
        ),
        (
            "back, and reset again",
            with_faults(
                vec![hardware("A", "g1", 990), hardware("A", "g1", 998)],
                vec![reset(), change(reading::ENERGY, 9.0, 0.0, 999)],
            ),
            Inspect,
            "came back",
        ),
        (
            "an application's error",
            with_faults(vec![of_user("ann"), of_user("ann"), of_user("ann")], vec![]),
            Healthy,
            "",
        ),
        (
            "those of three users",
            with_faults(["ann", "bob", "eve"].map(of_user).into(), vec![]),
            Watch,
            "3 users",
        ),
        (
            "contained error",
            with_faults(vec![fault("A", 94, FaultKind::Warning, "g1", 980)], vec![]),
            Watch,
            "XID 94",
        ),
        (
            "a note",
            with_faults(vec![fault("A", 45, FaultKind::Note, "g1", 999)], vec![]),
            Healthy,
            "",
        ),
        (
            "uncorrected once",
            with_faults(vec![], vec![change(reading::UNCORRECTED, 0.0, 1.0, 990)]),
            Watch,
            "once",
        ),
        (
            "uncorrected twice",
            with_faults(
                vec![],
                [980, 990]
                    .map(|day| change(reading::UNCORRECTED, 0.0, 1.0, day))
                    .into(),
            ),
            Inspect,
            "2 times",
        ),
        (
            "uncorrected long ago",
            with_faults(vec![], vec![change(reading::UNCORRECTED, 0.0, 1.0, 900)]),
            Healthy,
            "",
        ),
    ];

    for (name, facts, verdict, criterion) in rows {
        let found = judge_card(&facts);
        assert_eq!(found.verdict, verdict, "{name}: {found:?}");
        let first = found
            .findings
            .first()
            .map(|one| one.criterion.as_str())
            .unwrap_or_default();
        assert!(
            first.contains(criterion) && first.is_empty() == criterion.is_empty(),
            "{name}: {first}"
        );
        // A return always names NVIDIA's policy, and that a diagnostic must confirm it.
        for one in found.findings.iter().filter(|one| one.verdict == Return) {
            assert!(
                one.source.starts_with("NVIDIA, ") && one.action.contains("confirms"),
                "{one:?}"
            );
        }
    }
}

#[test]
fn another_boot_and_a_move_are_resets() {
    let boot = |day, boot: &str| CardFault {
        boot_id: Some(boot.into()),
        ..hardware("A", "g1", day)
    };
    let course = |faults| FaultCourse::of(&with_faults(faults, vec![]));
    assert!(matches!(
        course(vec![boot(990, "a"), boot(991, "a")]),
        FaultCourse::Unresolved { .. }
    ));
    assert!(matches!(
        course(vec![boot(990, "a"), boot(991, "b")]),
        FaultCourse::Returned { .. }
    ));

    let moved = CardFacts {
        placements: vec![
            placement("A", "g1", 900, 991, Some(991)),
            placement("A", "g2", 992, 1000, None),
        ],
        ..with_faults(vec![hardware("A", "g1", 990)], vec![])
    };
    assert!(matches!(FaultCourse::of(&moved), FaultCourse::Quiet { .. }));
}

/// The card A was in g1 and is in g2 since the given day; B took its place in g1.
fn swapped(day: i64, own: Vec<CardFault>, of_b: Vec<CardFault>) -> OriginReport {
    judge_card(&CardFacts {
        placements: vec![
            placement("A", "g1", 900, day, Some(day)),
            placement("A", "g2", day, 1000, None),
        ],
        others: vec![placement("B", "g1", day, 1000, None)],
        faults: own,
        faults_of_others: of_b,
        ..card()
    })
    .origin
}

#[test]
fn a_fault_stays_with_the_slot_or_moves_with_the_card() {
    use FaultOrigin::{Card, Slot, Unknown};
    let before = || hardware("A", "g1", 940);
    let table = [
        (
            "moved with the card",
            950,
            vec![before(), hardware("A", "g2", 970)],
            vec![],
            Card,
        ),
        (
            "stayed",
            950,
            vec![before()],
            vec![hardware("B", "g1", 970)],
            Slot,
        ),
        (
            "the card before had it, too",
            950,
            vec![before()],
            vec![hardware("C", "g1", 910)],
            Slot,
        ),
        (
            "both",
            950,
            vec![before(), hardware("A", "g2", 970)],
            vec![hardware("B", "g1", 980)],
            Unknown,
        ),
        (
            "too early",
            996,
            vec![before()],
            vec![hardware("B", "g1", 998)],
            Unknown,
        ),
        ("neither", 950, vec![before()], vec![], Unknown),
        (
            "no fault at all",
            950,
            vec![],
            vec![hardware("B", "g1", 970)],
            Unknown,
        ),
        (
            "an application's error of the other card",
            950,
            vec![before()],
            vec![fault("B", 31, FaultKind::Application, "g1", 970)],
            Unknown,
        ),
    ];
    for (name, day, own, of_b, origin) in table {
        let found = swapped(day, own, of_b);
        assert_eq!(found.origin, origin, "{name}: {}", found.why);
        assert!(!found.why.is_empty(), "{name}");
    }

    let neither = swapped(950, vec![before()], vec![]).why;
    assert!(neither.contains("nor card B"), "{neither}");
    // Never moved.
    let stayed = judge_card(&with_faults(vec![before()], vec![])).origin;
    assert!(
        stayed.origin == Unknown && stayed.why.contains("swap it"),
        "{stayed:?}"
    );
}

#[test]
fn evidence_is_in_order_of_time_and_repeated_faults_are_one_line() {
    let mut faults = vec![hardware("A", "g1", 940)];
    faults.extend((1..50).map(|second| CardFault {
        at: UnixTime(940 * DAY + second),
        ..hardware("A", "g1", 940)
    }));
    let facts = CardFacts {
        killed: vec![KilledJob {
            job_id: "7".into(),
            user: "ann".into(),
            account: "a".into(),
            state: "NODE_FAIL".into(),
            end: UnixTime(940 * DAY + 60),
            fault: "XID 79".into(),
        }],
        ..with_faults(
            faults,
            vec![change(reading::ROW_REMAP_FAILED, 0.0, 1.0, 930)],
        )
    };
    let lines: Vec<String> = judge_card(&facts)
        .evidence
        .into_iter()
        .map(|line| line.text)
        .collect();
    assert_eq!(
        lines,
        [
            "first seen: 0000:01:00.0 in g1, driver 580.1",
            "flag set: replacing a row of the memory failed",
            "XID 79: a meaning (0000:01:00.0 in g1), 50 times within 49 s",
            "job 7 ended as NODE_FAIL after XID 79",
        ]
    );
}

#[test]
fn causes_are_ruled_out_by_measurements_only() {
    let state = |facts: &CardFacts, name: &str| {
        let causes = judge_card(facts).causes;
        let cause = causes.into_iter().find(|one| one.cause == name).unwrap();
        (cause.state, cause.evidence)
    };
    let measured = with_readings(&[
        (reading::THERMAL, 0.0),
        (reading::POWER_BRAKE, 12.0),
        (reading::LINK_WIDTH, 16.0),
        (reading::LINK_WIDTH_MAX, 16.0),
    ]);
    assert_eq!(state(&measured, "cooling").0, CauseState::RuledOut);
    assert_eq!(state(&measured, "power").0, CauseState::Suspected);
    assert_eq!(
        state(&measured, "seating and PCIe link").0,
        CauseState::RuledOut
    );
    for name in [
        "cooling",
        "power",
        "seating and PCIe link",
        "application",
        "slot, board or riser",
        "driver",
    ] {
        assert_eq!(state(&card(), name).0, CauseState::Unknown, "{name}");
    }

    // An hour of measurements rules nothing out.
    let mut new = measured;
    new.readings.insert(
        reading::THERMAL.to_owned(),
        CardCounter {
            first_seen: UnixTime(NOW - 3600),
            ..counter(0.0, 0.0, 1000)
        },
    );
    assert_eq!(state(&new, "cooling").0, CauseState::Unknown);
}
