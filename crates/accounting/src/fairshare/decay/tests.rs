use super::*;
use proptest::prelude::*;
use proptest::{collection, option};
use std::ops::Range;

const WEEK: u32 = 7 * 86_400;

/// The steps of Slurm's decay thread for one run that is charged 1 per second.
fn step_by_step(
    half_life: u32,
    ticks: &Ticks,
    resets: &[UnixTime],
    as_of: UnixTime,
    start: UnixTime,
    end: Option<UnixTime>,
) -> (f64, f64) {
    let per_second: f64 = if half_life == 0 {
        1.0
    } else {
        1.0 - 0.693 / f64::from(half_life)
    };
    let slice = |seconds: i64| seconds.max(0) as f64 * per_second.powf(seconds.max(0) as f64);
    let mut usage = 0.0;
    let mut at_last_tick = 0.0;
    let mut last_ran = None::<UnixTime>;
    let mut finished = false;
    let mut resets = resets.to_vec();
    resets.sort_unstable();
    for tick in ticks
        .as_slice()
        .iter()
        .copied()
        .filter(|tick| *tick <= as_of)
        // One more step for what ended since the last tick.
        .chain([UnixTime::MAX])
    {
        let since = last_ran.map_or(start, |last: UnixTime| last.max(start));
        // A run that ended before this tick gets its last slice at once.
        if let Some(end) = end.filter(|end| *end < tick && *end <= as_of && !finished) {
            usage += slice(end - since);
            finished = true;
        }
        if tick == UnixTime::MAX {
            break;
        }
        // A reset comes before the decay and the slices of its tick.
        let due = resets.partition_point(|reset| *reset <= tick);
        if due > 0 {
            usage = 0.0;
            resets.drain(..due);
        }
        usage *= last_ran.map_or(1.0, |last| per_second.powf((tick - last) as f64));
        if !finished && start <= tick {
            usage += slice(tick - since);
        }
        (last_ran, at_last_tick) = (Some(tick), usage);
    }
    (at_last_tick, usage)
}

fn close(left: f64, right: f64, relative: f64) -> bool {
    (left - right).abs() <= relative * left.abs().max(right.abs()) + 1e-9
}

fn every(period_seconds: u32, phase: i64, from: i64, to: i64) -> Ticks {
    let [phase, from, to] = [phase, from, to].map(UnixTime);
    Ticks::every(period_seconds, phase, from, to)
}

fn instants(seconds: Range<i64>) -> impl Strategy<Value = UnixTime> {
    seconds.prop_map(UnixTime)
}

#[test]
fn half_a_second_is_left_of_one_after_the_half_life_nearly() {
    // 0.693 is not ln 2, so the rest is not exactly half.
    assert!((Decay::new(WEEK).over(i64::from(WEEK)) - 0.500_073).abs() < 1e-6);
    assert_eq!(Decay::new(0).over(1 << 40), 1.0);
    assert_eq!(Decay::new(1).over(1 << 40), f64::MIN_POSITIVE);
}

#[test]
fn ticks_keep_their_phase() {
    let at = |seconds: &[i64]| Ticks::at(seconds.iter().copied().map(UnixTime).collect());
    assert_eq!(every(60, 7, 100, 300), at(&[127, 187, 247]));
    assert_eq!(every(60, 10_007, 187, 187), at(&[]));
    assert_eq!(every(60, 10_027, 127, 127), at(&[127]));
    assert_eq!(every(60, 0, 300, 100), at(&[]));
    assert_eq!(at(&[9, 3, 9]).as_slice(), [3, 9].map(UnixTime));
}

#[test]
fn what_runs_is_counted_up_to_the_last_tick_and_what_ended_to_its_end() {
    // Ticks each minute until 300, and 50 seconds since.
    let table = DecayTable::new(Decay::new(0), &every(60, 0, 0, 300), &[], UnixTime(350));
    for (start, end, at_last_tick, since) in [
        (100, None, 200.0, 0.0),
        (100, Some(400), 200.0, 0.0),
        (100, Some(340), 200.0, 40.0),
        (100, Some(130), 30.0, 0.0),
        (310, Some(340), 0.0, 30.0),
        (310, None, 0.0, 0.0),
        (400, None, 0.0, 0.0),
        (200, Some(100), 0.0, 0.0),
        (120, Some(240), 120.0, 0.0),
    ] {
        assert_eq!(
            table.seconds(UnixTime(start), end.map(UnixTime)),
            DecayedSeconds {
                at_last_tick,
                since
            },
            "{start} {end:?}"
        );
    }
}

#[test]
fn a_reset_leaves_what_its_own_tick_adds() {
    let table = DecayTable::new(
        Decay::new(0),
        &every(60, 0, 0, 300),
        &[150, 60].map(UnixTime),
        UnixTime(300),
    );
    let total = |table: &DecayTable, end: Option<i64>| {
        table.seconds(UnixTime(0), end.map(UnixTime)).total()
    };
    // The reset at 150 takes effect at 180, whose own slice stays, with the two after it.
    assert_eq!(total(&table, None), 180.0);
    assert_eq!(total(&table, Some(170)), 0.0);
    assert_eq!(total(&table, Some(190)), 70.0);
    // A reset after the last tick has no effect yet.
    let table = DecayTable::new(
        Decay::new(0),
        &every(60, 0, 0, 300),
        &[UnixTime(301)],
        UnixTime(330),
    );
    assert_eq!(total(&table, Some(310)), 310.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn the_table_says_what_the_steps_say(
        half_life in prop_oneof![Just(0_u32), 60_u32..100_000, Just(WEEK)],
        period in 1_u32..400,
        phase in instants(0..400),
        gaps in collection::vec(instants(0..9000), 0..4),
        resets in collection::vec(instants(0..20_000), 0..3),
        as_of in instants(0..25_000),
        start in instants(0..20_000),
        length in option::of(0_i64..20_000),
    ) {
        // Ticks with outages of slurmctld in between.
        let ticks = Ticks::every(period, phase, UnixTime(0), UnixTime(30_000));
        let ticks = Ticks::at(
            ticks
                .as_slice()
                .iter()
                .copied()
                .filter(|tick| !gaps.iter().any(|gap| (*gap..*gap + 2000).contains(tick)))
                .collect(),
        );
        let end = length.map(|length| start + length);
        let (at_last_tick, now) = step_by_step(half_life, &ticks, &resets, as_of, start, end);
        let found =
            DecayTable::new(Decay::new(half_life), &ticks, &resets, as_of).seconds(start, end);
        prop_assert!(
            close(found.at_last_tick, at_last_tick, 1e-9),
            "{} {}",
            found.at_last_tick,
            at_last_tick
        );
        prop_assert!(close(found.total(), now, 1e-9), "{} {}", found.total(), now);
    }

    #[test]
    fn fourteen_days_are_fourteen_times_one(
        half_life in prop_oneof![Just(0_u32), 3600_u32..3_000_000],
        usage in 0.0..1e15,
    ) {
        let decay = Decay::new(half_life);
        let once = usage * decay.over(14 * 86_400);
        let daily = (0..14).fold(usage, |usage, _| usage * decay.over(86_400));
        prop_assert!(close(once, daily, 1e-12), "{once} {daily}");
    }

    #[test]
    fn another_phase_makes_little_difference(
        half_life in 3600_u32..3_000_000,
        phase in instants(0..300),
        start in instants(0..10_000),
        length in 1_i64..200_000,
        after in 600_i64..50_000,
    ) {
        const PERIOD: u32 = 300;
        let end = start + length;
        let decay = Decay::new(half_life);
        let worth = |phase| {
            let ticks = Ticks::every(PERIOD, phase, UnixTime(-300), end + after);
            DecayTable::new(decay, &ticks, &[], end + after)
                .seconds(start, Some(end))
                .total()
        };
        let one = worth(UnixTime(0));
        let other = worth(phase);
        // The value of a run differs by at most the decay of two periods.
        let most = 1.0 / decay.over(2 * i64::from(PERIOD));
        prop_assert!(
            one <= other * most && other <= one * most,
            "{one} {other} {most}"
        );
    }

    #[test]
    fn a_cut_run_is_the_uncut_one_up_to_its_slice(
        half_life in 3600_u32..3_000_000,
        start in instants(0..10_000),
        length in 2_i64..20_000,
        cut in 0.0..1.0,
        after in 0_i64..50_000,
    ) {
        const PERIOD: u32 = 300;
        let end = start + length;
        let decay = Decay::new(half_life);
        let cut = start + 1 + (cut * (length - 1) as f64) as i64;
        let as_of = end + after;
        let ticks = Ticks::every(PERIOD, UnixTime(0), UnixTime(0), as_of);
        let table = DecayTable::new(decay, &ticks, &[], as_of);
        let whole = table.seconds(start, Some(end)).total();
        let parts = table.seconds(start, Some(cut)).total() + table.seconds(cut, Some(end)).total();
        // Only the slice with the cut changes, by at most one period's decay.
        let bound = f64::from(PERIOD) * (1.0 / decay.over(PERIOD.into()) - 1.0);
        prop_assert!(
            (whole - parts).abs() <= bound + 1e-9,
            "{whole} {parts} {bound}"
        );
    }
}
