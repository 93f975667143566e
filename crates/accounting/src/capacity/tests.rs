use super::*;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use proptest::collection;
use proptest::prelude::*;
use takt_slurm::node;

fn day() -> Period {
    let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
    Period::span("2026-10-01", "2026-10-02", &TimeZone::UTC, now).unwrap()
}

const DAY: u64 = 86_400;

fn amounts(cpus: u64, gpus: u64) -> Amounts {
    Amounts {
        cpus,
        gpus,
        mem_bytes: 0,
    }
}

fn existed(cpus: u64, gpus: u64) -> CapacitySpan {
    CapacitySpan {
        effect: Effect::Existed,
        from: UnixTime(0),
        to: None,
        amounts: amounts(cpus, gpus),
    }
}

fn report(
    spans: &[CapacitySpan],
    nodes: &[NodeCapacity],
    runs: &[CapacityRun<'_>],
) -> Vec<CapacityRow> {
    let period = day();
    capacity(
        "lab",
        &period,
        spans,
        &[],
        nodes,
        runs.iter().copied(),
        period.to() + 1000,
    )
    .rows
}

#[test]
fn a_day_of_a_small_cluster() {
    let from = day().from();
    let down = CapacitySpan {
        effect: Effect::Down,
        from: from + HOUR,
        to: Some(from + 2 * HOUR),
        amounts: amounts(8, 2),
    };
    // Waits for one hour, runs for two, half an hour of it suspended.
    let run = CapacityRun {
        eligible: Some(from + 2 * HOUR),
        start: Some(from + 3 * HOUR),
        end: Some(from + 5 * HOUR),
        suspended: 1800,
        held: amounts(4, 1),
        wanted: amounts(4, 1),
        // The node is not known by its capacities, so nothing is known of stranded GPUs.
        node_list: Some("g1"),
        reservation: None,
    };
    let rows = report(&[existed(16, 4), down], &[], &[run]);
    let hour = HOUR as u64;
    assert_eq!(
        rows[0],
        CapacityRow {
            resource: "cpu".into(),
            reported: 16 * DAY,
            allocated: 4 * (2 * hour - 1800),
            down: 8 * hour,
            planned: 4 * hour,
            idle: 16 * DAY - 4 * (2 * hour - 1800) - 8 * hour - 4 * hour,
            ..CapacityRow::default()
        }
    );
    // A suspended run keeps its GPU, and waiting for GPUs counts.
    assert_eq!(rows[1].allocated, 2 * hour);
    assert_eq!(rows[1].planned, hour);
    assert_eq!(rows[1].down, 2 * hour);
    assert_eq!(rows[1].stranded, None, "no node is known");
}

#[test]
fn a_reservation_is_allocated_whether_it_is_used_or_not() {
    let from = day().from();
    let kept = ReservedPeriod {
        name: "class",
        from: from + HOUR,
        to: from + 3 * HOUR,
    };
    let span = |effect| CapacitySpan {
        effect,
        from: kept.from,
        to: Some(kept.to),
        amounts: amounts(8, 2),
    };
    let run = |reservation, hours: i64| CapacityRun {
        eligible: Some(from),
        start: Some(from + HOUR),
        end: Some(from + (1 + hours) * HOUR),
        held: amounts(4, 1),
        wanted: amounts(4, 1),
        reservation,
        ..CapacityRun::default()
    };

    let period = day();
    let rows = |effect, runs: &[CapacityRun<'_>]| {
        let spans = [existed(16, 4), span(effect)];
        capacity(
            "lab",
            &period,
            &spans,
            &[kept],
            &[],
            runs.iter().copied(),
            period.to() + 1000,
        )
        .rows
    };
    let hour = HOUR as u64;
    // One run in the reservation for an hour, and one outside for two hours after an hour of
    // waiting.
    let found = rows(Effect::Reserved, &[run(Some("class"), 1), run(None, 2)]);
    assert_eq!(found[0].allocated, 16 * hour + 4 * 2 * hour);
    assert_eq!(found[0].reserved_idle, 12 * hour);
    assert_eq!(found[1].allocated, 4 * hour + 2 * hour);
    assert_eq!(found[1].reserved_idle, 3 * hour);
    assert_eq!(
        found[0].planned,
        4 * hour,
        "what waits for the reservation is not counted"
    );
    // A reservation for maintenance counts as planned down and not as allocated.
    let found = rows(Effect::PlannedDown, &[]);
    assert_eq!(found[0].planned_down, 16 * hour);
    assert_eq!(found[0].allocated, 0);
    assert_eq!(found[1].planned_down, 4 * hour);
}

#[test]
fn what_waits_beyond_the_room_is_overcommitted() {
    let from = day().from();
    let waits = CapacityRun {
        eligible: Some(from),
        end: Some(from + HOUR),
        wanted: amounts(100, 0),
        ..CapacityRun::default()
    };
    // 16 CPUs are free; the other 84 that the job asks for do not exist.
    let rows = report(&[existed(16, 0)], &[], &[waits]);
    assert_eq!(rows[0].planned, 16 * 3600);
    assert_eq!(rows[0].overcommitted, 84 * 3600);
    assert_eq!(rows[0].idle, 16 * (DAY - 3600));
}

#[test]
fn gpus_are_stranded_where_the_cpus_or_the_memory_are_taken() {
    let from = day().from();
    let gib = |n: u64| n << 30;
    let node = |node: &str| NodeCapacity {
        node: node.into(),
        amounts: Amounts {
            cpus: 8,
            gpus: 2,
            mem_bytes: gib(64),
        },
    };
    let run = |list, hours: i64, cpus, gpus, mem_bytes| CapacityRun {
        start: Some(from),
        end: Some(from + hours * HOUR),
        held: Amounts {
            cpus,
            gpus,
            mem_bytes,
        },
        node_list: Some(list),
        ..CapacityRun::default()
    };
    let nodes = [node("g1"), node("g2")];
    let stranded = |runs: &[CapacityRun<'_>]| report(&[existed(16, 4)], &nodes, runs)[1].stranded;
    assert_eq!(stranded(&[]), Some(0));
    assert_eq!(
        stranded(&[run("g1", 2, 8, 0, gib(8))]),
        Some(2 * 2 * 3600),
        "all CPUs"
    );
    assert_eq!(
        stranded(&[run("g1", 2, 1, 1, gib(64))]),
        Some(2 * 3600),
        "all memory, one GPU in use"
    );

    assert_eq!(
        stranded(&[run("g[1-2]", 1, 16, 4, gib(8))]),
        Some(0),
        "nothing is left to strand"
    );
    // Two runs that take all CPUs together, each by itself too small.
    assert_eq!(
        stranded(&[run("g1", 1, 4, 0, gib(8)), run("g1", 1, 4, 0, gib(8))]),
        Some(2 * 3600)
    );

    // Slurm does not say how much memory or how many CPUs this node has.
    let unknown = [NodeCapacity {
        node: "g1".into(),
        amounts: Amounts {
            cpus: 0,
            gpus: 2,
            mem_bytes: 1 << 20,
        },
    }];
    let runs = [run("g1", 2, 1, 1, 0)];
    assert_eq!(
        report(&[existed(16, 4)], &unknown, &runs)[1].stranded,
        Some(0)
    );
}

#[test]
fn every_event_without_maintenance_is_down_time_as_in_slurms_rollup() {
    for down in [
        "DOWN*", "DRAIN", "DRNG@", "INVAL", "REBOOT^", "BOOT*", "FAIL", "FAILG*", "UNK*", "DOWN#",
        "DOWN%", "IDLE", "MIX-", "ALLOC+", "COMP", "PLND", "RESV", "BLOCK", "ERROR", "?",
        "QUANTUM", "",
    ] {
        assert_eq!(effect_of_event(down), Some(Effect::Down), "{down}");
    }
    for planned in [
        "FUTR",
        "FUTURE*",
        "IDLE~",
        "DOWN~",
        "DRAIN~",
        "IDLE+POWERED_DOWN",
    ] {
        assert_eq!(
            effect_of_event(planned),
            Some(Effect::PlannedDown),
            "{planned}"
        );
    }
    for reserved in ["MAINT", "MAINT*", "DOWN$", "DRAIN$", "DOWN+MAINTENANCE"] {
        assert_eq!(effect_of_event(reserved), None, "{reserved}");
    }
}

/// Six events of a day each, about nodes with eight GPUs: DRAIN, INVAL, REBOOT^, FAILG, DOWN* and UNK*.
#[test]
fn the_events_of_a_month_are_1152_gpu_hours_down() {
    let events = node::events(
        include_str!("../../../slurm/fixtures/made-up/sacctmgr_events.txt"),
        "alpha",
    );
    let spans: Vec<CapacitySpan> = events
        .iter()
        .map(|event| CapacitySpan {
            effect: match event.node.as_str() {
                // The registration of the cluster is an event without a node.
                "" => Effect::Existed,
                _ => effect_of_event(&event.state).unwrap(),
            },
            from: event.from,
            to: event.to,
            amounts: event.has,
        })
        .collect();
    let now: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
    let october = Period::month("2026-10", &TimeZone::UTC, now).unwrap();
    let found = capacity("alpha", &october, &spans, &[], &[], [], october.to());
    assert_eq!(found.rows[1].down, 1152 * HOUR as u64);
    assert_eq!(found.rows[1].reported, 32 * 31 * DAY);
}

#[test]
fn a_current_state_counts_if_slurmdbd_would_record_an_event() {
    for (state, effect) in [
        ("IDLE", None),
        ("MIXED+CLOUD", None),
        ("IDLE+PLANNED", None),
        ("IDLE+RESERVED", None),
        // Powering up and waiting for a reboot are no events of slurmdbd.
        ("IDLE+POWERING_UP+NOT_RESPONDING", None),
        ("MIXED+REBOOT_REQUESTED", None),
        ("IDLE+MAINT", None),
        ("", None),
        ("DOWN*", Some(Effect::Down)),
        ("IDLE+DRAIN", Some(Effect::Down)),
        ("drained*", Some(Effect::Down)),
        ("IDLE+INVALID_REG", Some(Effect::Down)),
        ("DOWN+REBOOT_ISSUED", Some(Effect::Down)),
        ("UNKNOWN", Some(Effect::Down)),
        ("IDLE+POWERED_DOWN", Some(Effect::PlannedDown)),
        ("FUTURE", Some(Effect::PlannedDown)),
    ] {
        assert_eq!(effect_of_state(state), effect, "{state}");
    }
}

proptest! {
    /// For all inputs, the parts add up to the total, and no part exceeds it.
    #[test]
    fn parts_add_up(
        runs in collection::vec((-50_000..90_000_i64, 0..50_000_i64, 0..90_000_i64, 0..40_u64, 0..9_u64), 0..20),
        down in collection::vec((-9000..90_000_i64, 0..20_000_i64, 0..20_u64, 0..5_u64, any::<bool>()), 0..6),
    ) {
        let from = day().from();
        // Runs and outages that overlap in any way, also beyond the period and beyond the cluster's size.
        let runs: Vec<_> = runs
            .into_iter()
            .map(|(at, wait, ran, cpus, gpus)| CapacityRun {
                eligible: Some(from + at),
                start: Some(from + at + wait),
                end: Some(from + at + wait + ran),
                held: amounts(cpus, gpus),
                wanted: amounts(cpus, gpus),
                ..CapacityRun::default()
            })
            .collect();
        let spans: Vec<_> = down
            .into_iter()
            .map(|(at, lasted, cpus, gpus, planned)| CapacitySpan {
                effect: if planned {
                    Effect::PlannedDown
                } else {
                    Effect::Down
                },
                from: from + at,
                to: Some(from + at + lasted),
                amounts: amounts(cpus, gpus),
            })
            .chain([existed(16, 4)])
            .collect();
        for row in report(&spans, &[], &runs) {
            // The parts that people see, and those of the row, have to agree.
            let named: u64 = row.parts().iter().map(|(_, seconds)| seconds).sum();
            prop_assert_eq!(named, row.reported);
            let parts = row.allocated + row.down + row.planned_down + row.planned + row.idle;
            prop_assert_eq!(parts, row.reported);
            prop_assert_eq!(
                row.reported,
                if row.resource == "cpu" {
                    16 * DAY
                } else {
                    4 * DAY
                }
            );
        }
    }
}
