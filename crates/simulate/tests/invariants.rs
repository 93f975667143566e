//! Laws that every replay keeps, for any nodes and jobs.

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use std::sync::Arc;
use takt_accounting::fairshare::{AssociationTree, PriorityWeights};
use takt_jobs::{Amounts, Association, PrioritySettings, Shares};
use takt_model::UnixTime;
use takt_simulate::{
    Closure, FairShare, Limit, LimitScope, Outcome, SimulatedCluster, SimulatedJob, SimulatedNode,
    replay,
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

/// A million jobs within a year, without a queue and with a deep one. Prints the times:
/// `cargo test --release -p takt-simulate -- --ignored --nocapture million`.
#[test]
#[ignore = "long"]
fn a_year_of_a_million_jobs() {
    let mut state = 7_u64;
    let mut random = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let jobs: Vec<SimulatedJob> = (0..1_000_000_i64)
        .map(|at| {
            let run = 60 + random(36_000) as i64;
            let many = u32::from(random(50) == 0);
            let mut job = job(
                at * 31 + random(7200) as i64,
                run,
                3600 * (1 + run / 3600) * 2,
                1 + many,
                8,
            );
            job.per_node.gpus = [0, 1, 1, 2, 4, 8][random(6) as usize];
            job.user = format!("u{}", random(100)).into();
            job
        })
        .collect();

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
