use super::*;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use proptest::{collection, option};
use std::array;
use takt_model::UnixTime;

const HOUR: i64 = 3600;

fn now() -> UnixTime {
    at("2026-11-15T12:00:00Z")
}

fn at(text: &str) -> UnixTime {
    text.parse::<Timestamp>().unwrap().into()
}

fn days(from: &str, to: &str) -> Period {
    let zone = TimeZone::get("Europe/Oslo").unwrap();
    Period::span(from, to, &zone, Timestamp::try_from(now()).unwrap()).unwrap()
}

fn october() -> Period {
    days("2026-10-01", "2026-11-01")
}

fn run(start: UnixTime, end: UnixTime) -> HeldRun<'static> {
    HeldRun {
        submit: start - 60,
        start: Some(start),
        end: Some(end),
        nodes: Some(1),
        cpus: Some(8),
        gpus: Some(2),
        mem_bytes: Some(4 << 30),
        user: "ann",
        account: "lab",
        partition: "gpu",
        state: "COMPLETED",
        ..HeldRun::default()
    }
}

fn totals(runs: &[HeldRun<'_>], period: &Period) -> Figures {
    usage(runs.iter().copied(), "c", period, &[], now()).totals
}

/// A forged record of a century by hour and node had a row for each of 876 million pairs.
#[test]
fn the_number_of_rows_is_bounded() {
    let century = days("1950-01-01", "2049-01-01");
    let mut usage = Usage::new(&century, &[GroupBy::Hour, GroupBy::Node], now());
    let before = usage.bytes();
    let forged = HeldRun {
        node_list: Some("n[1-1000]"),
        ..run(century.from(), century.to())
    };
    usage.add(&forged);
    assert!(usage.is_too_large());
    let rows = usage.groups.len();
    assert_eq!(rows, MOST_ROWS + 1);
    assert_eq!(usage.bytes() - before, (rows * ROW_BYTES) as u64);
}

#[test]
fn a_run_is_cut_at_the_ends_of_the_period() {
    let from = october().from();
    let to = october().to();
    for (start, end, hours, started, ended, running) in [
        (from, from + HOUR, 1, 1, 1, 1),
        (from - HOUR, from + HOUR, 1, 0, 1, 1),
        (to - HOUR, to + HOUR, 1, 1, 0, 1),
        // October in Oslo has 745 hours.
        (from - HOUR, to + HOUR, 745, 0, 0, 1),
        // Half-open: a run that ends at the start of the period used nothing in it, but ended in
        // it.
        (from - HOUR, from, 0, 0, 1, 0),
        (to, to + HOUR, 0, 0, 0, 0),
        (from + 5, from + 5, 0, 1, 1, 1),
    ] {
        let figures = totals(&[run(start, end)], &october());
        let counts = (
            figures.jobs_started,
            figures.jobs_ended,
            figures.jobs_running,
        );
        assert_eq!(counts, (started, ended, running), "{start} {end}");
        assert_eq!(figures.wall_seconds, hours * 3600);
        assert_eq!(figures.cpu_seconds, hours * 8 * 3600);
        assert_eq!(figures.gpu_seconds, Some(hours * 2 * 3600));
        assert_eq!(figures.node_hours, hours as f64);
        assert_eq!(figures.mem_gib_hours, (hours * 4) as f64);
        assert_eq!(figures.wait_seconds, 60 * started.cast_signed());
    }
}

#[test]
fn a_running_job_counts_up_to_now() {
    let period = days("2026-11-01", "2026-12-01");
    let running = HeldRun {
        end: None,
        ..run(now() - HOUR, UnixTime(0))
    };
    let figures = totals(&[running], &period);
    assert_eq!(figures.wall_seconds, 3600);
    assert_eq!(figures.jobs_running, 1);
    assert_eq!(figures.jobs_ended, 0);
    // In a past month it counts until the end of the month.
    let old = HeldRun {
        end: None,
        ..run(october().from(), UnixTime(0))
    };
    assert_eq!(totals(&[old], &october()).wall_hours, 745.0);
}

#[test]
fn a_run_that_never_got_a_node_holds_nothing() {
    let from = october().from();
    let cancelled = HeldRun {
        start: None,
        gpus: None,
        ..run(from, from + HOUR)
    };
    let pending = HeldRun {
        end: None,
        ..cancelled
    };
    let figures = totals(
        &[
            HeldRun {
                submit: from,
                ..cancelled
            },
            HeldRun {
                submit: from,
                ..pending
            },
        ],
        &october(),
    );
    let expected = Figures {
        jobs_submitted: 2,
        jobs_ended: 1,
        gpu_seconds: Some(0),
        gpu_hours: Some(0.0),
        ..Figures::default()
    };
    assert_eq!(figures, expected);
    // A run that waits during the whole period does not count in it.
    assert!(
        usage([pending], "c", &october(), &[GroupBy::User], now())
            .rows
            .is_empty()
    );
}

#[test]
fn gpus_are_unknown_only_where_nobody_saw_any() {
    let from = october().from();
    let unseen = HeldRun {
        gpus: None,
        user: "bob",
        ..run(from, from + HOUR)
    };
    let report = usage(
        [unseen, run(from, from + HOUR), unseen],
        "c",
        &october(),
        &[GroupBy::User],
        now(),
    );
    assert_eq!(report.totals.gpu_seconds, Some(7200));
    assert_eq!(report.totals.jobs_gpu_unknown, 2);
    let bob = &report.rows[1].figures;
    assert_eq!(bob.gpu_seconds, None);
    assert_eq!(bob.gpu_hours, None);
    assert_eq!(bob.jobs_gpu_unknown, 2);
    assert_eq!(bob.cpu_hours, 16.0);
}

#[test]
fn by_node_whole_units_are_shared_out() {
    let from = october().from();
    let two = HeldRun {
        nodes: Some(2),
        cpus: Some(3),
        gpus: Some(4),
        node_list: Some("g[1-2]"),
        ..run(from, from + HOUR)
    };
    let none = HeldRun {
        start: None,
        end: None,
        submit: from,
        node_list: None,
        ..two
    };
    // This list cannot be expanded, so it is a group of its own.
    let odd = HeldRun {
        node_list: Some("g[1-"),
        nodes: Some(1),
        cpus: Some(1),
        ..two
    };
    let report = usage([two, none, odd], "c", &october(), &[GroupBy::Node], now());
    let rows: Vec<_> = report
        .rows
        .iter()
        .map(|row| {
            (
                row.group.0[0].1.as_deref(),
                row.figures.cpu_hours,
                row.figures.gpu_hours,
                row.figures.jobs_running,
            )
        })
        .collect();
    // Three CPUs are one on `g1` and two on `g2`.
    let expected = [
        (Some("g[1-"), 1.0, Some(4.0), 1),
        (Some("g2"), 2.0, Some(2.0), 1),
        (Some("g1"), 1.0, Some(2.0), 1),
        (None, 0.0, Some(0.0), 0),
    ];
    assert_eq!(rows, expected);
}

/// 25 October 2026 in Oslo: the hour from 02:00 to 03:00 occurs twice.
#[test]
fn by_hour_and_day_over_a_change_of_clocks() {
    let day = days("2026-10-24", "2026-10-27");
    let night = run(
        at("2026-10-25T01:30:00+02:00"),
        at("2026-10-25T03:30:00+01:00"),
    );
    let by = |by| {
        usage([night], "c", &day, &[by, GroupBy::User], now())
            .rows
            .iter()
            .map(|row| (row.group.0[0].1.clone().unwrap(), row.figures.wall_seconds))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        by(GroupBy::Hour),
        [
            ("2026-10-25T01:00+02:00".to_owned(), 1800),
            ("2026-10-25T02:00+02:00".to_owned(), 3600),
            ("2026-10-25T02:00+01:00".to_owned(), 3600),
            ("2026-10-25T03:00+01:00".to_owned(), 1800)
        ]
    );
    assert_eq!(by(GroupBy::Day), [("2026-10-25".to_owned(), 10_800)]);
    assert_eq!(by(GroupBy::Month), [("2026-10".to_owned(), 10_800)]);
    assert_eq!(by(GroupBy::Year), [("2026".to_owned(), 10_800)]);
}

#[test]
fn an_account_holds_what_those_below_it_hold() {
    let from = october().from();
    let of = |account| HeldRun {
        account,
        ..run(from, from + HOUR)
    };
    let parents = [
        ("optics", "physics"),
        ("laser", "optics"),
        ("physics", "root"),
        // These two form a cycle.
        ("odd", "even"),
        ("even", "odd"),
    ];
    let parents = parents
        .map(|(account, parent)| (account.to_owned(), parent.to_owned()))
        .into();
    let period = october();
    let mut usage =
        Usage::new(&period, &[GroupBy::AccountTree], now()).with_accounts(Accounts::new(parents));
    for account in ["physics", "laser", "laser", "odd", "unknown"] {
        usage.add(&of(account));
    }
    let rows = usage.report("c").rows;
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row.group.0[0].1.as_deref().unwrap(), row.figures.wall_hours))
        .collect();
    assert_eq!(
        found,
        [
            ("physics", 3.0),
            ("physics/optics", 2.0),
            ("physics/optics/laser", 2.0),
            ("even", 1.0),
            ("even/odd", 1.0),
            ("unknown", 1.0)
        ]
    );
}

#[test]
fn a_report_is_flat_json_that_can_be_read_back() {
    let from = october().from();
    let cpu_only = HeldRun {
        gpus: Some(0),
        ..run(from, from + 1800)
    };
    let by = [GroupBy::User, GroupBy::GpuModel];
    let report = usage(
        [
            cpu_only,
            HeldRun {
                gpu_model: Some("a100"),
                ..run(from, from + HOUR)
            },
        ],
        "c",
        &october(),
        &by,
        now(),
    );
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["from"], "2026-10-01T00:00:00+02:00");
    assert_eq!(json["to"], "2026-11-01T00:00:00+01:00");
    assert_eq!(json["timezone"], "Europe/Oslo");
    assert_eq!(json["totals"]["cpu_seconds"], 8 * 5400);
    assert_eq!(json["rows"][0]["user"], "ann");
    assert_eq!(json["rows"][0]["gpu_model"], "a100");
    assert_eq!(json["rows"][0]["gpu_hours"], 2.0);
    assert!(json["rows"][1]["gpu_model"].is_null());
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<UsageReport>(&text).unwrap(), report);
    assert!(
        text.contains(r#""rows":[{"user":"ann","gpu_model":"a100","jobs_submitted":0,"#),
        "{text}"
    );
}

#[test]
fn groups_have_the_names_of_the_columns() {
    for (name, by) in GroupBy::ALL {
        assert_eq!(name.parse(), Ok(*by));
        assert_eq!(by.name(), *name);
    }
    assert_eq!("gpu".parse::<GroupBy>(), Err(UnknownGroup("gpu".into())));
}

/// Runs around October, at any second.
fn any_run() -> impl Strategy<Value = HeldRun<'static>> {
    let from = october().from();
    let times = (
        -900_000..3_600_000_i64,
        0..500_000_i64,
        0..2_000_000_i64,
        0..10_u8,
    );
    let held = (
        0..5_u64,
        0..300_u64,
        option::of(0..9_u64),
        option::of(0..1_u64 << 40),
    );
    let words = (0..4_usize, 0..3_usize, 0..3_usize);
    (times, held, words).prop_map(
        move |((at, wait, length, fate), (nodes, cpus, gpus, mem_bytes), (a, b, c))| {
            let submit = from + at;
            // Fate 0 never starts, and fate 1 does not end.
            let start = Some(submit + wait).filter(|_| fate > 0);
            HeldRun {
                submit,
                start,
                end: Some(submit + wait + length).filter(|_| fate != 1),
                nodes: Some(nodes),
                cpus: Some(cpus),
                gpus,
                mem_bytes,
                billing: mem_bytes.map(|bytes| bytes >> 30),
                user: ["ann", "bob", "", "carol"][a],
                account: ["lab-a", "lab-b", "lab-a|x"][b],
                partition: "gpu",
                state: ["COMPLETED", "FAILED", "RUNNING"][c],
                qos: [None, Some("normal"), Some("")][b],
                gpu_model: [None, Some("a100"), Some("l40s")][c],
                node_list: [None, Some("g1"), Some("g[1-3]"), Some("n[01-16],g1")][a],
                reservation: None,
            }
        },
    )
}

fn exact(figures: &Figures) -> [u128; 4] {
    let gpu_seconds = figures.gpu_seconds.unwrap_or(0);
    [
        figures.cpu_seconds,
        gpu_seconds,
        figures.node_seconds,
        figures.wall_seconds,
    ]
    .map(u128::from)
}

fn sum(rows: &[Row]) -> [u128; 4] {
    rows.iter().fold([0; 4], |sums, row| {
        array::from_fn(|i| sums[i] + exact(&row.figures)[i])
    })
}

proptest! {
    /// The period in two parts, cut anywhere, equals the whole period.
    #[test]
    fn cut_anywhere_is_uncut(runs in collection::vec(any_run(), 0..20), cut in 2..31_u8) {
        let middle = format!("2026-10-{cut:02}");
        for by in [GroupBy::User, GroupBy::Node] {
            let report = |from: &str, to: &str| {
                usage(runs.iter().copied(), "c", &days(from, to), &[by], now())
            };
            let parts = [report("2026-10-01", &middle), report(&middle, "2026-11-01")];
            let whole = report("2026-10-01", "2026-11-01");
            let of = |report: &UsageReport, group: &Group| -> [u128; 4] {
                report
                    .rows
                    .iter()
                    .find(|row| row.group == *group)
                    .map_or([0; 4], |row| exact(&row.figures))
            };
            for row in &whole.rows {
                let a = of(&parts[0], &row.group);
                let b = of(&parts[1], &row.group);
                prop_assert_eq!(array::from_fn(|i| a[i] + b[i]), exact(&row.figures));
            }
            for count in [
                |f: &Figures| f.jobs_submitted,
                |f: &Figures| f.jobs_started,
                |f: &Figures| f.jobs_ended,
            ] {
                prop_assert_eq!(
                    parts.iter().map(|part| count(&part.totals)).sum::<u64>(),
                    count(&whole.totals)
                );
            }
            let hours: f64 = parts.iter().map(|part| part.totals.mem_gib_hours).sum();
            prop_assert!((hours - whole.totals.mem_gib_hours).abs() <= 1e-12 * hours);
        }
    }

    /// A run cut at any instant adds up to the whole run.
    #[test]
    fn a_run_cut_anywhere_is_the_run(run in any_run(), share in 0.0..1.0_f64) {
        let (Some(start), Some(end)) = (run.start, run.end) else {
            return Ok(());
        };
        let cut = start + ((end - start) as f64 * share) as i64;
        let halves = [
            HeldRun {
                end: Some(cut),
                ..run
            },
            HeldRun {
                start: Some(cut),
                ..run
            },
        ];
        prop_assert_eq!(
            exact(&totals(&halves, &october())),
            exact(&totals(&[run], &october()))
        );
    }

    #[test]
    fn groups_add_up_to_the_totals(runs in collection::vec(any_run(), 0..30)) {
        for (name, by) in GroupBy::ALL {
            let report = usage(
                runs.iter().copied(),
                "c",
                &october(),
                &[*by, GroupBy::State],
                now(),
            );
            let groups = sum(&report.rows);
            let totals = exact(&report.totals);
            prop_assert_eq!(&groups[..3], &totals[..3], "{}", name);
            // A run is submitted, starts and ends once, but may run in several units of time.
            if by.unit().is_some() {
                let count = |of: fn(&Figures) -> u64| {
                    report.rows.iter().map(|row| of(&row.figures)).sum::<u64>()
                };
                prop_assert_eq!(count(|f| f.jobs_submitted), report.totals.jobs_submitted);
                prop_assert_eq!(count(|f| f.jobs_started), report.totals.jobs_started);
                prop_assert_eq!(count(|f| f.jobs_ended), report.totals.jobs_ended);
            }
            // On several nodes or in several units of time, a run counts more than once.
            if *by != GroupBy::Node && by.unit().is_none() {
                prop_assert_eq!(groups[3], totals[3]);
                let count = |of: fn(&Figures) -> u64| {
                    report.rows.iter().map(|row| of(&row.figures)).sum::<u64>()
                };
                prop_assert_eq!(count(|f| f.jobs_running), report.totals.jobs_running);
                prop_assert_eq!(count(|f| f.jobs_submitted), report.totals.jobs_submitted);
                let waited: i64 = report.rows.iter().map(|row| row.figures.wait_seconds).sum();
                prop_assert_eq!(waited, report.totals.wait_seconds);
            }
        }
    }

    #[test]
    fn order_does_not_matter(
        (runs, shuffled) in collection::vec(any_run(), 0..30)
            .prop_flat_map(|runs| (Just(runs.clone()), Just(runs).prop_shuffle())),
    ) {
        let by = [GroupBy::User, GroupBy::Qos];
        let report =
            |runs: &[HeldRun<'static>]| usage(runs.iter().copied(), "c", &october(), &by, now());
        prop_assert_eq!(report(&runs), report(&shuffled));
    }
}
