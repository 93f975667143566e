use super::*;
use crate::input::{Closure, Running, SimulatedNode};
use crate::{ChangeInterval, WaitDifference, WaitGroup, WaitTrend, back_test, compare_periods};

const HOUR: i64 = 3600;

/// A job of 8 CPUs, all of a node.
fn job(number: u32, eligible: i64, hours: i64, user: &str) -> PastJob {
    PastJob {
        job: SimulatedJob {
            eligible: UnixTime(eligible),
            run_seconds: hours * HOUR,
            limit_seconds: Some(2 * hours * HOUR),
            nodes: 1,
            per_node: Amounts {
                cpus: 8,
                gpus: 4,
                mem_bytes: 0,
            },
            gpu_model: None,
            partition: "gpu".into(),
            user: user.into(),
            account: "lab".into(),
            qos: None,
            reservation: None,
            association: None,
            billing_per_second: 0.0,
            priority: None,
            running: None,
        },
        waits_from: UnixTime(eligible),
        recorded: None,
        number,
    }
}

fn node(name: &str) -> SimulatedNode {
    SimulatedNode {
        name: name.into(),
        has: Amounts {
            cpus: 8,
            gpus: 4,
            mem_bytes: 0,
        },
        partitions: vec!["gpu".into()],
        ..SimulatedNode::default()
    }
}

/// A day in which ten jobs of two hours come at once to one node.
fn busy() -> PastPeriod {
    PastPeriod {
        from: UnixTime(0),
        to: UnixTime(24 * HOUR),
        cluster: SimulatedCluster {
            nodes: vec![node("g1")],
            ..SimulatedCluster::default()
        },
        jobs: (0..10_u32)
            .map(|at| job(at, i64::from(at), 2, if at < 5 { "ann" } else { "bob" }))
            .collect(),
        are_limits_exact: false,
    }
}

fn replay(period: &PastPeriod) -> PastReplay {
    period.replay(0, &mut || true).unwrap()
}

fn mean(replay: &PastReplay) -> i64 {
    let waits: Vec<i64> = replay.waits.iter().copied().flatten().collect();
    waits.iter().sum::<i64>() / waits.len().max(1) as i64
}

#[test]
fn a_node_more_halves_the_queue_and_a_node_less_ends_it() {
    let as_it_was = busy();
    let mut more = busy();
    let effect = PeriodChange::AddNodes(vec!["g2".into()], 0).apply(&mut more);
    assert_eq!(effect.changed, 1);
    assert_eq!(more.cluster.nodes[1].name, "g2");
    assert_eq!(more.capacity().gpu_seconds(""), 2.0 * 4.0 * 24.0 * 3600.0);
    // 0, 2, … 18 hours; then twice 0, 2, … 8.
    assert_eq!(mean(&replay(&as_it_was)) / HOUR, 8);
    assert_eq!((mean(&replay(&more)) + 60) / HOUR, 4);

    let mut none = busy();
    PeriodChange::RemoveNodes(vec![0]).apply(&mut none);
    let found = replay(&none);
    assert_eq!((found.without_start, found.used.gpu_seconds("")), (10, 0.0));
    assert_eq!(none.capacity().gpu_seconds(""), 0.0);
}

/// Jobs of an hour that asked for ten do not fit before a reservation in two hours; those that had asked for an hour do.
#[test]
fn the_used_run_time_as_limit_fits_before_a_reservation() {
    let mut period = busy();
    for one in &mut period.jobs {
        one.job.run_seconds = HOUR;
        one.job.limit_seconds = Some(10 * HOUR);
    }
    period.cluster.nodes[0].closed.push(Closure {
        from: UnixTime(2 * HOUR + 600),
        to: UnixTime(20 * HOUR),
        reservation: Some("maint".into()),
        is_foreseen: true,
    });
    let first = |found: &PastReplay| found.waits.iter().flatten().copied().min().unwrap();
    assert!(first(&replay(&period)) >= 19 * HOUR);

    let effect = PeriodChange::RunTimeUsed.apply(&mut period);
    assert_eq!(effect.changed, 10);
    assert_eq!(first(&replay(&period)), 0);
    // The random changes of a run time are those of the limit, too.
    let drawn = period.drawn(&period.jobs[3], 1);
    assert_eq!(drawn.limit_seconds, Some(drawn.run_seconds));
}

#[test]
fn a_limit_cuts_what_ran_longer_and_says_how_much() {
    let mut period = busy();
    let effect = PeriodChange::LimitTime("gpu".into(), HOUR).apply(&mut period);
    assert_eq!((effect.changed, effect.cut_jobs), (10, 10));
    assert_eq!(effect.cut_gpu_seconds, 10.0 * 4.0 * HOUR as f64);
    assert_eq!(mean(&replay(&period)) / HOUR, 4);
    let effect = PeriodChange::LimitTime("cpu".into(), HOUR).apply(&mut period);
    assert_eq!(effect, ChangeEffect::default());
}

#[test]
fn a_node_that_had_not_failed_is_open_but_for_its_reservations() {
    let mut period = busy();
    let closed = |reservation: Option<&str>| Closure {
        from: UnixTime(0),
        to: UnixTime(5 * HOUR),
        reservation: reservation.map(Into::into),
        is_foreseen: reservation.is_some(),
    };
    period.cluster.nodes[0].closed = vec![closed(None), closed(None)];
    assert_eq!(period.capacity().gpu_seconds(""), 4.0 * 19.0 * 3600.0);
    let before = mean(&replay(&period));

    let effect = PeriodChange::NodeOk(0).apply(&mut period);
    assert_eq!(effect.changed, 2);
    assert!(mean(&replay(&period)) < before - 4 * HOUR);

    period.cluster.nodes[0].closed = vec![closed(Some("class"))];
    assert_eq!(PeriodChange::NodeOk(0).apply(&mut period).changed, 0);
}

#[test]
fn more_requests_are_copies_at_other_times_and_fewer_leave_out_jobs() {
    let with = |factor: f64| {
        let mut period = busy();
        period.jobs = (0..1000).map(|at| job(at, 0, 2, "ann")).collect();
        let effect = PeriodChange::Requests(factor).apply(&mut period);
        (period, effect.changed)
    };
    let (period, added) = with(2.3);
    assert!((1250..1350).contains(&added), "{added}");
    let mut numbers: Vec<u32> = period.jobs.iter().map(|one| one.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(
        numbers.len(),
        period.jobs.len(),
        "each has draws of its own"
    );
    assert!(period.jobs.iter().all(|one| one.job.eligible < period.to));

    let (period, left_out) = with(0.25);
    assert!((700..800).contains(&left_out), "{left_out}");
    assert_eq!(period.jobs.len(), 1000 - left_out);
    assert_eq!(with(1.0).1, 0);
}

#[test]
fn jobs_of_before_the_period_count_as_the_records_have_them() {
    let mut period = busy();
    period.jobs.truncate(2);
    // One runs since two hours before, and one has waited since an hour before.
    period.jobs[0].job.running = Some(Running {
        start: UnixTime(-2 * HOUR),
        nodes: vec![0],
    });
    period.jobs[0].job.run_seconds = 3 * HOUR;
    period.jobs[0].recorded = Some((UnixTime(-2 * HOUR), UnixTime(HOUR)));
    period.jobs[1].waits_from = UnixTime(-HOUR);
    period.jobs[1].job.eligible = UnixTime(0);
    period.jobs[1].recorded = Some((UnixTime(HOUR), UnixTime(3 * HOUR)));

    let found = replay(&period);
    assert_eq!(found.waits, [None, Some(2 * HOUR)]);
    // The first hour of the running job, and the two of the other, are within the period.
    assert_eq!(found.used.gpu_seconds("gpu"), 4.0 * 3.0 * 3600.0);
    assert_eq!(period.recorded_use(), found.used);
    assert_eq!(found.used.ratio(&period.capacity(), ""), Some(0.125));

    let test = back_test(&period.waited(&found));
    assert_eq!((test.all.jobs, test.all.p90_error_seconds), (1, 0));
}

#[test]
fn who_wins_and_who_loses_is_told_with_an_interval() {
    let before = busy();
    let mut after = busy();
    PeriodChange::AddNodes(vec!["g2".into()], 0).apply(&mut after);
    let found = compare_periods(&before, &after, |pairs| pairs < 9).unwrap();
    assert_eq!(found.pairs, 9);
    let names: Vec<&str> = found.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["", "gpu", "2 to 8 GPUs", "lab", "bob", "ann"]);
    let bob = &found.rows[4];
    assert_eq!(
        (bob.by, bob.jobs, bob.trend),
        (WaitGroup::User, 5, WaitTrend::Wins)
    );
    let ChangeInterval { low, middle, high } = bob.mean_change_seconds;
    assert!(
        low <= middle && middle <= high && low < high,
        "{low} {middle} {high}"
    );
    assert!(
        found.use_change.middle < 0.0,
        "twice as many GPUs are less used"
    );

    let same = compare_periods(&before, &busy(), |pairs| pairs < 3).unwrap();
    assert!(same.rows.iter().all(|row| row.trend == WaitTrend::Same));
    assert_eq!(same.rows[0].mean_change_seconds, ChangeInterval::default());
    assert!(compare_periods(&before, &after, |_| false).is_none());

    // Without its node the cluster starts nothing: everybody loses, though no wait can be compared.
    PeriodChange::RemoveNodes(vec![0]).apply(&mut after);
    PeriodChange::RemoveNodes(vec![1]).apply(&mut after);
    let none = compare_periods(&before, &after, |pairs| pairs < 2).unwrap();
    assert_eq!((none.lost_jobs, none.rows.len()), (10, 6));
    let has_lost = |row: &WaitDifference| row.lost_jobs > 0 && row.trend == WaitTrend::Loses;
    assert!(none.rows.iter().all(has_lost));
}
