//! Laws that every replay keeps, for any nodes and jobs.

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use std::sync::Arc;
use takt_accounting::fairshare::{AssociationTree, PriorityWeights};
use takt_jobs::{Amounts, Association, PrioritySettings, Shares};
use takt_model::UnixTime;
use takt_simulate::{
    BackfillSettings, Closure, FairShare, Limit, LimitScope, Outcome, PastJob, PastPeriod,
    PeriodChange, SimulatedCluster, SimulatedJob, SimulatedNode, compare_periods, replay,
};

fn node(cpus: u64, gpus: u64, partitions: &[&str]) -> SimulatedNode {
    SimulatedNode {
        has: Amounts {
            cpus,
            gpus,
            mem_bytes: cpus,
        },
        partitions: partitions.iter().map(|name| Arc::from(*name)).collect(),
        ..SimulatedNode::default()
    }
}

fn job(eligible: i64, run: i64, limit: i64, nodes: u32, cpus: u64) -> SimulatedJob {
    SimulatedJob {
        eligible: UnixTime(eligible),
        run_seconds: run,
        limit_seconds: Some(limit),
        nodes,
        per_node: Amounts {
            cpus,
            ..Amounts::default()
        },
        gpu_model: None,
        partition: "a".into(),
        user: "u".into(),
        account: "x".into(),
        qos: None,
        reservation: None,
        association: None,
        billing_per_second: cpus as f64,
        priority: None,
        running: None,
    }
}

fn cluster(nodes: Vec<SimulatedNode>) -> SimulatedCluster {
    SimulatedCluster {
        nodes,
        max_age_seconds: 86_400,
        ..SimulatedCluster::default()
    }
}

fn starts(outcome: &Outcome) -> Vec<Option<i64>> {
    let placed = outcome.placed.iter();
    placed
        .map(|placed| placed.as_ref().map(|placed| placed.start.0))
        .collect()
}

fn some_jobs() -> impl Strategy<Value = Vec<SimulatedJob>> {
    let one = (
        0..5000_i64,
        1..3000_i64,
        1..3_i64,
        1..4_u32,
        1..9_u64,
        0..3_u64,
        any::<bool>(),
        0..3_u8,
    );
    let one = one.prop_map(|(eligible, run, slack, nodes, cpus, gpus, in_b, user)| {
        let mut job = job(eligible, run, run * slack, nodes, cpus);
        job.per_node.gpus = gpus;
        job.per_node.mem_bytes = cpus / 2;
        if in_b {
            job.partition = "b".into();
        }
        job.user = format!("u{user}").into();
        job
    });
    vec(one, 0..60)
}

fn some_nodes() -> impl Strategy<Value = Vec<SimulatedNode>> {
    let one = (
        0..9_u64,
        0..3_u64,
        0..3_u8,
        0..6000_i64,
        0..2000_i64,
        any::<bool>(),
    );
    let one = one.prop_map(|(cpus, gpus, which, from, length, is_foreseen)| {
        let partitions: &[&str] = match which {
            0 => &["a"],
            1 => &["b"],
            _ => &["a", "b"],
        };
        let mut node = node(cpus, gpus, partitions);
        node.closed.push(Closure {
            from: UnixTime(from),
            to: UnixTime(from + length),
            reservation: None,
            is_foreseen,
        });
        node
    });
    vec(one, 0..6)
}

proptest! {
    #[test]
    fn no_node_is_over_full_and_no_job_starts_early_or_elsewhere(nodes in some_nodes(), jobs in some_jobs()) {
        let cluster = cluster(nodes);
        let outcome = replay(&cluster, &jobs);
        prop_assert_eq!(outcome.placed.len(), jobs.len());

        let placed: Vec<_> = jobs
            .iter()
            .zip(&outcome.placed)
            .filter_map(|(job, placed)| Some((job, placed.as_ref()?)))
            .collect();
        prop_assert_eq!(placed.len() + outcome.impossible, jobs.len(), "a job that can start was left");
        for (job, at) in &placed {
            prop_assert!(at.start >= job.eligible);
            prop_assert_eq!(at.end - at.start, job.run_seconds);
            prop_assert_eq!(at.nodes.len(), job.nodes as usize);
            for index in &at.nodes {
                let node = &cluster.nodes[*index as usize];
                prop_assert!(node.partitions.contains(&job.partition));
                for closed in &node.closed {
                    prop_assert!(at.start < closed.from || at.start >= closed.to);
                    // What is foreseen is kept clear by the time limit.
                    let ends = at.start + job.limit_seconds.unwrap_or(0);
                    prop_assert!(!closed.is_foreseen || at.start >= closed.to || ends <= closed.from);
                }
            }
            let mut different = at.nodes.to_vec();
            different.sort_unstable();
            different.dedup();
            prop_assert_eq!(different.len(), at.nodes.len());
        }

        // Use only rises where a job begins.
        for (_, at) in &placed {
            for index in &at.nodes {
                let mut held = Amounts::default();
                for (job, other) in &placed {
                    if other.nodes.contains(index) && other.start <= at.start && other.end > at.start {
                        held.cpus += job.per_node.cpus;
                        held.gpus += job.per_node.gpus;
                        held.mem_bytes += job.per_node.mem_bytes;
                    }
                }
                let has = cluster.nodes[*index as usize].has;
                prop_assert!(held.cpus <= has.cpus && held.gpus <= has.gpus && held.mem_bytes <= has.mem_bytes);
            }
        }
    }

    #[test]
    fn only_backfill_lets_a_job_pass_an_equal_one(nodes in some_nodes(), jobs in some_jobs()) {
        // Equal requests in one partition: nothing but the order of the queue tells them apart.
        let mut jobs = jobs;
        for job in &mut jobs {
            job.per_node = Amounts { cpus: 2, ..Amounts::default() };
            job.nodes = 1;
            job.partition = "a".into();
            job.limit_seconds = Some(3000);
        }
        let outcome = replay(&cluster(nodes), &jobs);
        for (one, at) in jobs.iter().zip(&outcome.placed) {
            for (other, later) in jobs.iter().zip(&outcome.placed) {
                if let (Some(at), Some(later)) = (at, later)
                    && one.eligible < other.eligible
                {
                    prop_assert!(at.start <= later.start || later.is_backfilled);
                }
            }
        }
    }

    #[test]
    fn a_limit_of_jobs_is_never_passed(nodes in some_nodes(), jobs in some_jobs(), most in 0..4_u64) {
        let mut cluster = cluster(nodes);
        cluster.limits.push(Limit { scope: LimitScope::User, name: None, jobs: Some(most), cpus: None, gpus: None });
        let outcome = replay(&cluster, &jobs);
        for (job, at) in jobs.iter().zip(&outcome.placed) {
            let Some(at) = at else { continue };
            let running = jobs.iter().zip(&outcome.placed).filter(|(other, placed)| {
                let is_then = |placed: &takt_simulate::Placed| placed.start <= at.start && placed.end > at.start;
                other.user == job.user && placed.as_ref().is_some_and(is_then)
            });
            prop_assert!(running.count() as u64 <= most);
        }
    }

    /// More nodes may delay a later job, as another one starts before it; the first one has nobody before it.
    #[test]
    fn more_nodes_never_delay_the_first_job(nodes in some_nodes(), more in some_nodes(), jobs in some_jobs()) {
        let first = (0..jobs.len()).min_by_key(|at| (jobs[*at].eligible, *at));
        let few = replay(&cluster(nodes.clone()), &jobs);
        let many = replay(&cluster([nodes, more].concat()), &jobs);
        if let Some(first) = first
            && let Some(before) = &few.placed[first]
        {
            let after = many.placed[first].as_ref();
            prop_assert!(after.is_some_and(|after| after.start <= before.start));
        }
    }

    #[test]
    fn changed_periods_keep_the_laws_of_replays(nodes in some_nodes(), jobs in some_jobs(), draw in 0..3_u32, factor in 0.0..3.0_f64) {
        let number = |(at, job): (usize, SimulatedJob)| PastJob {
            waits_from: job.eligible,
            job,
            recorded: None,
            number: at as u32,
        };
        let mut period = PastPeriod {
            from: UnixTime(0),
            to: UnixTime(6000),
            cluster: cluster(nodes),
            jobs: jobs.into_iter().enumerate().map(number).collect(),
            are_limits_exact: false,
        };
        PeriodChange::Requests(factor).apply(&mut period);
        PeriodChange::LimitTime("a".into(), 500).apply(&mut period);
        if !period.cluster.nodes.is_empty() {
            PeriodChange::NodeOk(0).apply(&mut period);
            PeriodChange::AddNodes(vec!["new".into()], 0).apply(&mut period);
        }
        let found = period.replay(draw, &mut || true).unwrap();
        prop_assert_eq!(found.waits.len(), period.jobs.len());
        prop_assert!(found.waits.iter().flatten().all(|wait| *wait >= 0));
        prop_assert_eq!(found.waits.iter().flatten().count() + found.without_start, period.jobs.len());
        // Open nodes alone start jobs; within a period they cannot be more than full, but a job may outlast an opening.
        let whole = period.cluster.nodes.iter().map(|node| node.has.cpus).sum::<u64>() as f64 * 6000.0;
        prop_assert!(found.used.cpu_seconds("") <= whole);
        prop_assert_eq!(period.replay(draw, &mut || true).unwrap(), found);
    }

    #[test]
    fn the_same_input_gives_the_same_replay(nodes in some_nodes(), jobs in some_jobs()) {
        let cluster = cluster(nodes);
        prop_assert_eq!(replay(&cluster, &jobs), replay(&cluster, &jobs));
    }
}

/// 8 CPUs; the first job holds 6 until 1000 and the second needs all. A short job fits before, a long one would delay it.
#[test]
fn backfill_starts_what_delays_nobody() {
    let jobs = [
        job(0, 1000, 1000, 1, 6),
        job(10, 500, 500, 1, 8),
        job(20, 600, 3000, 1, 2),
        job(30, 600, 900, 1, 2),
    ];
    let outcome = replay(&cluster(vec![node(8, 0, &["a"])]), &jobs);
    assert_eq!(
        starts(&outcome),
        [Some(0), Some(1000), Some(1500), Some(40)]
    );
    let backfilled = outcome.placed.iter().flatten().map(|at| at.is_backfilled);
    assert_eq!(backfilled.collect::<Vec<_>>(), [false, false, false, true]);
}

#[test]
fn a_cluster_without_nodes_starts_nothing() {
    let outcome = replay(&cluster(Vec::new()), &[job(0, 1, 1, 1, 1)]);
    assert_eq!(outcome.impossible, 1);
    assert_eq!(starts(&outcome), [None]);
}

/// Two users with equal shares: the one without usage goes first, whose own usage then puts the other first.
#[test]
fn usage_of_the_replay_moves_fair_share() {
    let associations = vec![
        Association::account("root", None, Shares::Raw(1)),
        Association::account("x", Some("root"), Shares::Raw(1)),
        Association::user("x", "ann", Shares::Raw(1)),
        Association::user("x", "bob", Shares::Raw(1)),
    ];
    let tree = AssociationTree::new(associations).unwrap();
    let mut raw_usage = vec![0.0; 4];
    let ann = tree.charged("x", "ann", "a").unwrap();
    for id in tree.path(ann) {
        raw_usage[id.index()] = 4000.0;
    }

    let mut jobs: Vec<SimulatedJob> = (0..12).map(|at| job(at, 1000, 1000, 1, 8)).collect();
    for (at, job) in jobs.iter_mut().enumerate() {
        let user = if at % 2 == 0 { "ann" } else { "bob" };
        job.user = user.into();
        job.association = tree.charged("x", user, "a");
    }

    let mut cluster = cluster(vec![node(8, 0, &["a"])]);
    cluster.weights = PriorityWeights {
        fair_share: 1000,
        ..PriorityWeights::default()
    };
    cluster.fair_share = Some(FairShare {
        tree,
        settings: PrioritySettings::default(),
        raw_usage,
    });
    let outcome = replay(&cluster, &jobs);

    let mut order: Vec<(i64, &str)> = jobs
        .iter()
        .zip(starts(&outcome))
        .map(|(job, start)| (start.unwrap(), &*job.user))
        .collect();
    order.sort_unstable();
    let users: Vec<&str> = order.iter().map(|(_, user)| *user).collect();
    // The first job starts alone; bob follows while ann's usage is larger, then they take turns.
    assert_eq!(&users[..4], ["ann", "bob", "bob", "ann"]);
    assert_eq!(users.iter().filter(|user| **user == "bob").count(), 6);
}

/// A month of 50,000 jobs and a year of a million, as a what-if replays them. Prints the times:
/// `cargo test --release -p takt-simulate -- --ignored --nocapture period`.
#[test]
#[ignore = "long"]
fn a_period_of_many_jobs() {
    for (count, days, nodes) in [(50_000, 30, 130), (1_000_000, 365, 205)] {
        let seconds = days * 86_400;
        let jobs = many_jobs(count, seconds / count);
        let number = |(at, job): (usize, SimulatedJob)| PastJob {
            waits_from: job.eligible,
            job,
            recorded: None,
            number: at as u32,
        };
        let before = PastPeriod {
            from: UnixTime(0),
            to: UnixTime(seconds),
            // As what-ifs replay: to the minute.
            cluster: SimulatedCluster {
                backfill: BackfillSettings {
                    interval_seconds: 60,
                    reserve_depth: 20,
                    ..BackfillSettings::default()
                },
                ..cluster(vec![node(64, 8, &["a"]); nodes])
            },
            jobs: jobs.into_iter().enumerate().map(number).collect(),
            are_limits_exact: false,
        };
        let mut after = before.clone();
        PeriodChange::RunTimeUsed.apply(&mut after);
        let began = std::time::Instant::now();
        before.replay(0, &mut || true).unwrap();
        let once = began.elapsed();
        let found = compare_periods(&before, &after, |pairs| pairs < 1).unwrap();
        println!(
            "{count} jobs, {nodes} nodes: a replay {once:?}, with a pair {:?}; mean wait {:.0} s, {:.0} s after",
            began.elapsed(),
            found.rows[0].before.mean_seconds,
            found.rows[0].after.mean_seconds,
        );
    }
}

/// Jobs at a rate of one in `every` seconds.
fn many_jobs(count: i64, every: i64) -> Vec<SimulatedJob> {
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    (0..count)
        .map(|at| {
            let run = 60 + random(36_000) as i64;
            let many = u32::from(random(50) == 0);
            let mut job = job(
                at * every + random(7200) as i64,
                run,
                3600 * (1 + run / 3600) * 2,
                1 + many,
                8,
            );
            job.per_node.gpus = [0, 1, 1, 2, 4, 8][random(6) as usize];
            job.user = format!("u{}", random(100)).into();
            job
        })
        .collect()
}

/// A million jobs within a year, without a queue and with a deep one. Prints the times:
/// `cargo test --release -p takt-simulate -- --ignored --nocapture million`.
#[test]
#[ignore = "long"]
fn a_year_of_a_million_jobs() {
    let jobs = many_jobs(1_000_000, 31);

    for nodes in [300, 210, 202] {
        let nodes = (0..nodes).map(|_| node(64, 8, &["a"])).collect::<Vec<_>>();
        let count = nodes.len();
        let began = std::time::Instant::now();
        let outcome = replay(&cluster(nodes), &jobs);
        let waits = jobs.iter().zip(&outcome.placed);
        let waited: i64 = waits
            .map(|(job, at)| at.as_ref().map_or(0, |at| at.start - job.eligible))
            .sum();
        println!(
            "{count} nodes: {:?}, mean wait {} s",
            began.elapsed(),
            waited / jobs.len() as i64
        );
        assert_eq!(outcome.placed.iter().flatten().count(), jobs.len());
    }
}
