use super::*;
use proptest::collection;
use proptest::prelude::*;

const WINDOW: Window = Window {
    from: Timestamp(0),
    to: Timestamp(100_000),
    reach_ms: 20_000,
};

fn stretches(samples: &[(i64, Option<f64>)]) -> Vec<(i64, i64, f64)> {
    let mut held = GaugeReader::new(WINDOW);
    let mut found: Vec<Stretch> = samples
        .iter()
        .filter_map(|&(at, value)| held.push(Timestamp(at), value))
        .collect();
    found.extend(held.finish());
    found
        .iter()
        .map(|stretch| (stretch.from.0, stretch.to.0, stretch.value))
        .collect()
}

#[test]

fn a_sample_speaks_for_what_is_nearest_and_no_further_than_it_reaches() {
    let a = Some(1.0);
    let b = Some(2.0);
    assert_eq!(
        stretches(&[(10_000, a), (30_000, b)]),
        [(0, 20_000, 1.0), (20_000, 50_000, 2.0)]
    );
    // A gap, and the edges of the run.
    assert_eq!(
        stretches(&[(5_000, a), (90_000, b)]),
        [(0, 25_000, 1.0), (70_000, 100_000, 2.0)]
    );
    // The end of a series ends its last stretch, and the next sample does not reach back over it.
    assert_eq!(
        stretches(&[(10_000, a), (12_000, None), (20_000, b)]),
        [(0, 12_000, 1.0), (12_000, 40_000, 2.0)]
    );
    // Outside the run, or out of order.
    assert_eq!(
        stretches(&[(-5, b), (10_000, a), (9_000, b), (100_001, b)]),
        [(0, 30_000, 1.0)]
    );
}

#[test]
fn idle_streaks_and_percentiles() {
    // Streaks count from ten seconds on.
    let mut activity = Activity::new(0.05, 10_000);
    for (from, to, value) in [
        (0, 5_000, 0.0),        // 5 s idle: too short
        (5_000, 45_000, 0.8),   // 40 s of work
        (45_000, 58_000, 0.01), // 13 s idle …
        (58_000, 60_000, 0.0),  // … and 2 more without a break
        (70_000, 79_000, 0.0),  // 9 s after a hole: not the same streak
        (79_000, 80_000, 0.9),
    ] {
        activity.add(Stretch {
            from: Timestamp(from),
            to: Timestamp(to),
            value,
        });
    }
    let figures = activity.finish().unwrap();
    assert_eq!(figures.covered_seconds, 70.0);
    assert_eq!(figures.idle_longest_seconds, 15.0);
    assert_eq!(figures.idle_streak_seconds, 15.0);

    assert!((figures.mean - (40.0 * 0.8 + 13.0 * 0.01 + 0.9) / 70.0).abs() < 1e-12);
    // The streak of 15 s is out of the working time, the two shorter ones are in it.
    assert!((figures.working_mean - (40.0 * 0.8 + 0.9) / 55.0).abs() < 1e-12);
    assert!((figures.idle_ratio - 29.0 / 70.0).abs() < 1e-12);
    assert!((figures.p95 - 0.8).abs() < 1e-12);
}

#[test]
fn a_counter_counts_through_holes_and_resets_and_is_cut_at_the_ends() {
    let mut energy = Growth::new(WINDOW);
    for (at, value) in [
        (-10_000, 1000.0),
        (10_000, 1200.0),
        (90_000, 2000.0),
        (95_000, 50.0),
        (105_000, 70.0),
    ] {
        energy.push(Timestamp(at), value);
    }
    // Half of 200, all of 800, 50 since the reset, half of 20.
    assert_eq!(energy.total(), Some(960.0));
    assert_eq!(energy.covered_seconds(), 100.0);
    // A counter that began with the run: the first sample has all of its growth.
    let mut cpu = Growth::from_zero(WINDOW);
    cpu.push(Timestamp(15_000), 30.0);
    assert_eq!(cpu.total(), Some(30.0));
    assert_eq!(Growth::new(WINDOW).total(), None);
}

proptest! {
    /// Samples whose distance is within their reach cover all time between the first and the last.
    /// No set of samples covers more than the run, or the same time twice.
    #[test]
    fn coverage(gaps in collection::vec(1_i64..60_000, 1..40), first in 0_i64..20_000) {
        let mut at = first;
        let mut samples = vec![at];
        samples.extend(gaps.iter().map(|gap| {
            at += gap;
            at
        }));
        let found = stretches(
            &samples
                .iter()
                .map(|&at| (at, Some(0.5)))
                .collect::<Vec<_>>(),
        );
        let covered: i64 = found.iter().map(|(from, to, _)| to - from).sum();
        prop_assert!(covered <= WINDOW.to.0);
        // No two stretches overlap.
        prop_assert!(found.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        if gaps.iter().all(|gap| *gap <= 2 * WINDOW.reach_ms) {
            let end = (samples
                .iter()
                .copied()
                .filter(|at| *at <= WINDOW.to.0)
                .max()
                .unwrap_or(0)
                + WINDOW.reach_ms)
                .min(WINDOW.to.0);
            let begin = if first <= WINDOW.to.0 { 0 } else { end };
            prop_assert_eq!(covered, end - begin);
        }
    }

    /// The halves of a run add up to the run.
    #[test]
    fn a_counter_of_a_run_cut_in_two(
        values in collection::vec(0.0_f64..1e6, 2..30),

        cut in 1_i64..99_999,
    ) {
        // A reset may lie in either half, or at the cut.
        let grown = |window: Window| {
            let mut growth = Growth::new(window);
            for (at, value) in values.iter().enumerate() {
                growth.push(Timestamp(at as i64 * 7_000 - 10_000), *value);
            }
            growth.total().unwrap_or(0.0)
        };
        let whole = grown(WINDOW);
        let cut = Timestamp(cut);
        let halves = grown(Window { to: cut, ..WINDOW })
            + grown(Window {
                from: cut,
                ..WINDOW
            });
        prop_assert!(
            (whole - halves).abs() <= 1e-6 * whole.max(1.0),
            "{whole} {halves}"
        );
    }

    /// Figures stay within the range of the samples.
    #[test]
    fn figures_are_bounded(values in collection::vec(0.0_f64..=1.0, 1..60)) {
        let mut activity = Activity::new(0.05, 5_000);
        let mut held = GaugeReader::new(WINDOW);
        for (at, value) in values.iter().enumerate() {
            held.push(Timestamp(at as i64 * 2_000), Some(*value))
                .into_iter()
                .for_each(|stretch| activity.add(stretch));
        }
        held.finish()
            .into_iter()
            .for_each(|stretch| activity.add(stretch));
        let figures = activity.finish().expect("one sample covers something");
        // The window has 51 samples at most: one each two seconds.
        let (low, high) = values[..values.len().min(51)]
            .iter()
            .fold((1.0_f64, 0.0_f64), |(low, high), v| {
                (low.min(*v), high.max(*v))
            });
        prop_assert!(figures.mean >= low - 1e-9 && figures.mean <= high + 1e-9);
        // The percentile is rounded to NVML's steps.
        prop_assert!(figures.p95 <= high + 0.005 && (0.0..=1.0).contains(&figures.idle_ratio));
        prop_assert!(
            figures.idle_streak_seconds <= figures.idle_ratio * figures.covered_seconds + 1e-6
        );
        prop_assert!(
            figures.idle_longest_seconds <= figures.idle_ratio * figures.covered_seconds + 1e-6
        );
    }
}
