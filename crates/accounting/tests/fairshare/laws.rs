//! Laws that hold for all trees, settings and runs.

use proptest::prelude::*;
use proptest::{collection, option};
use takt_accounting::fairshare::{
    Accumulator, AssociationId, AssociationTree, Decay, DecayTable, Run, Ticks, Usage, share_rows,
    standings,
};
use takt_jobs::billing::TresAmounts;
use takt_jobs::{
    Association, BillingRates, BillingWeights, PriorityFlags, PrioritySettings, Qos, Shares,
};
use takt_model::UnixTime;

const AS_OF: UnixTime = UnixTime(400_000);
const USERS: [&str; 5] = ["alice", "bob", "carol", "dave", "erin"];

#[derive(Debug, Clone)]
struct Job {
    account: usize,
    user: usize,
    start: UnixTime,
    length: Option<i64>,
    cpus: u32,
    qos: usize,
}

fn shares() -> impl Strategy<Value = Shares> {
    prop_oneof![8 => (0_u32..50).prop_map(Shares::Raw), 2 => Just(Shares::Parent)]
}

/// Accounts below earlier accounts, each with some users.
fn associations() -> impl Strategy<Value = Vec<Association>> {
    let account = (
        any::<proptest::sample::Index>(),
        shares(),
        collection::vec((0..USERS.len(), shares()), 0..5),
    );
    collection::vec(account, 1..8).prop_map(|accounts| {
        let name = |index: usize| {
            if index == 0 {
                "root".to_owned()
            } else {
                format!("account{index}")
            }
        };
        let root = Association {
            account: name(0),
            parent_account: None,
            user: None,
            partition: None,
            shares: Shares::Raw(1),
            grp_tres_mins: None,
        };
        let mut associations = vec![root.clone()];
        for (index, (parent, shares, users)) in accounts.into_iter().enumerate() {
            let account = name(index + 1);
            let parent_account = Some(name(parent.index(index + 1)));
            associations.push(Association {
                account: account.clone(),
                parent_account,
                shares,
                ..root.clone()
            });
            // A user has one association in an account.
            let mut seen = Vec::new();
            for (user, shares) in users {
                if !seen.contains(&user) {
                    seen.push(user);
                    let user = Some(USERS[user].to_owned());
                    associations.push(Association {
                        account: account.clone(),
                        user,
                        shares,
                        ..root.clone()
                    });
                }
            }
        }
        associations
    })
}

fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let job = (
        0..9_usize,
        0..USERS.len(),
        0..AS_OF.0 + 1000,
        option::of(0_i64..100_000),
        1_u32..64,
        0..3_usize,
    )
        .prop_map(|(account, user, start, length, cpus, qos)| Job {
            account,
            user,
            start: UnixTime(start),
            length,
            cpus,
            qos,
        });
    collection::vec(job, 0..40)
}

fn settings() -> impl Strategy<Value = PrioritySettings> {
    (
        prop_oneof![Just(0_u32), 3600_u32..2_000_000],
        any::<bool>(),
        any::<bool>(),
        1_u16..5,
    )
        .prop_map(
            |(decay_half_life_seconds, no_fair_tree, depth_oblivious, dampening_factor)| {
                PrioritySettings {
                    decay_half_life_seconds,
                    flags: PriorityFlags {
                        no_fair_tree,
                        depth_oblivious,
                        ..PriorityFlags::default()
                    },
                    dampening_factor,
                    ..PrioritySettings::default()
                }
            },
        )
}

fn usage_of(tree: &AssociationTree, settings: &PrioritySettings, jobs: &[Job]) -> Usage {
    let ticks = Ticks::every(300, UnixTime(17), UnixTime(0), AS_OF);
    let table = DecayTable::new(
        Decay::new(settings.decay_half_life_seconds),
        &ticks,
        &[UnixTime(20_000)],
        AS_OF,
    );
    let weights = BillingWeights::parse("cpu=0.7").unwrap();
    let rates = BillingRates {
        partitions: [("gpu".to_owned(), Some(weights))].into(),
        qos: [
            (
                "half".to_owned(),
                Qos {
                    usage_factor: 0.5,
                    no_decay: false,
                },
            ),
            (
                "keep".to_owned(),
                Qos {
                    usage_factor: 1.0,
                    no_decay: true,
                },
            ),
        ]
        .into(),
        otherwise: None,
        flags: settings.flags,
    };
    let mut usage = Accumulator::new(tree, &table, &rates, AS_OF - 100_000);
    for job in jobs {
        let tres = TresAmounts::parse(&format!("cpu={}", job.cpus)).unwrap();
        usage.add(&Run {
            account: &account_name(job),
            user: USERS[job.user],
            partition: "gpu",
            qos: [None, Some("half"), Some("keep")][job.qos],
            start: Some(job.start),
            end: job.length.map(|length| job.start + length),
            timelimit_seconds: Some(86_400),
            tres: Some(&tres),
        });
    }
    usage.finish()
}

fn raw_usage(tree: &AssociationTree, usage: &Usage) -> Vec<f64> {
    (0..tree.len())
        .map(|index| usage.raw_usage(at(tree, index)))
        .collect()
}

fn at(tree: &AssociationTree, index: usize) -> AssociationId {
    *tree
        .top_down()
        .iter()
        .find(|id| id.index() == index)
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn children_add_up_to_their_account(
        associations in associations(),
        settings in settings(),
        jobs in jobs(),
    ) {
        let tree = AssociationTree::new(associations).unwrap();
        let usage = usage_of(&tree, &settings, &jobs);
        for id in tree.top_down() {
            let below: f64 = tree
                .children(*id)
                .iter()
                .map(|child| usage.raw_usage(*child))
                .sum();
            // An account's own charges come from users without an association.
            let charged =
                |job: &Job| tree.charged(&account_name(job), USERS[job.user], "gpu") == Some(*id);
            let own: Vec<Job> = jobs.iter().filter(|job| charged(job)).cloned().collect();
            let own = usage_of(&tree, &settings, &own).raw_usage(*id);
            let both = below + own;
            prop_assert!(
                (usage.raw_usage(*id) - both).abs() <= 1e-14 * both,
                "{} {both}",
                usage.raw_usage(*id)
            );
        }
    }

    #[test]
    fn the_order_of_runs_does_not_matter(
        associations in associations(),
        settings in settings(),
        jobs in jobs(),
        turn in any::<proptest::sample::Index>(),
    ) {
        let tree = AssociationTree::new(associations).unwrap();
        let mut turned = jobs.clone();
        turned.reverse();
        if !turned.is_empty() {
            let turn = turn.index(turned.len());
            turned.rotate_left(turn);
        }
        let usage = usage_of(&tree, &settings, &jobs);
        let other = usage_of(&tree, &settings, &turned);
        for id in tree.top_down() {
            prop_assert_eq!(usage.raw_usage(*id), other.raw_usage(*id));
        }
        prop_assert_eq!(
            usage.raw_usage_of_qos("keep"),
            other.raw_usage_of_qos("keep")
        );
        let factors = |usage: &Usage| {
            let rows = share_rows(&tree, &settings, usage);
            rows.into_iter()
                .map(|row| (row.fair_share, row.level_fs))
                .collect::<Vec<_>>()
        };
        prop_assert_eq!(factors(&usage), factors(&other));
    }

    #[test]
    fn fair_share_is_between_0_and_1(
        associations in associations(),
        settings in settings(),
        jobs in jobs(),
    ) {
        let tree = AssociationTree::new(associations).unwrap();
        let usage = usage_of(&tree, &settings, &jobs);
        for row in share_rows(&tree, &settings, &usage) {
            let fair_share = row.fair_share.unwrap_or(1.0);
            prop_assert_eq!(
                row.fair_share.is_some(),
                row.user.is_some() || settings.flags.no_fair_tree
            );
            prop_assert!((0.0..=1.0).contains(&fair_share), "{row:?}");
            // Only the classic factor can be 0: without shares, or if the usage is so large that a
            // double underflows.
            prop_assert!(
                fair_share > 0.0
                    || (settings.flags.no_fair_tree
                        && row.effective_usage >= 1000.0 * row.norm_shares)
            );
            prop_assert!(
                row.effective_usage.is_finite() && row.norm_shares <= 1.0,
                "{row:?}"
            );
        }
    }

    #[test]
    fn more_usage_never_raises_ones_own_level_fs(
        associations in associations(),
        settings in settings(),
        jobs in jobs(),
        who in any::<proptest::sample::Index>(),
        more in 0.0..1e9,
    ) {
        let tree = AssociationTree::new(associations).unwrap();
        // Only Fair Tree has a level FS.
        let settings = PrioritySettings {
            flags: PriorityFlags::default(),
            ..settings
        };
        let before = raw_usage(&tree, &usage_of(&tree, &settings, &jobs));
        let mut after = before.clone();
        let id = at(&tree, who.index(tree.len()));
        // Usage of an association is usage of all above it, too.
        for id in tree.path(id) {
            after[id.index()] += more;
        }
        let before = standings(&tree, &settings, &before);
        let after = standings(&tree, &settings, &after);
        for id in tree.path(id) {
            let before = before[id.index()].level_fs;
            let after = after[id.index()].level_fs;
            prop_assert!(
                after <= before.map(|level_fs| level_fs * (1.0 + 1e-12)),
                "{before:?} {after:?}"
            );
        }
    }

    #[test]
    fn time_alone_changes_no_factor(
        associations in associations(),
        settings in settings(),
        jobs in jobs(),
        days in 1_i64..30,
    ) {
        // All usage decays equally, so waiting without others running never changes the order.
        let tree = AssociationTree::new(associations).unwrap();
        let now = raw_usage(&tree, &usage_of(&tree, &settings, &jobs));
        let left = Decay::new(settings.decay_half_life_seconds).over(days * 86_400);
        let later: Vec<f64> = now.iter().map(|usage| usage * left).collect();
        let now = standings(&tree, &settings, &now);
        let later = standings(&tree, &settings, &later);
        for (now, later) in now.iter().zip(&later) {
            prop_assert!(
                (now.effective_usage - later.effective_usage).abs()
                    <= 1e-9 * now.effective_usage.abs()
            );
        }
    }
}

fn account_name(job: &Job) -> String {
    if job.account == 0 {
        "root".to_owned()
    } else {
        format!("account{}", job.account)
    }
}

/// A million runs in half a year on a cluster of 500 users, with one tick per five minutes.
#[test]
fn a_million_runs_take_seconds() {
    const DAY: i64 = 86_400;
    let names: Vec<(String, String)> = (0..500)
        .map(|user| (format!("lab{}", user % 40), format!("user{user}")))
        .collect();
    let root = Association {
        account: "root".to_owned(),
        parent_account: None,
        user: None,
        partition: None,
        shares: Shares::Raw(1),
        grp_tres_mins: None,
    };
    let mut associations = vec![root.clone()];
    for (account, user) in &names {
        if associations.iter().all(|known| known.account != *account) {
            let parent_account = Some("root".to_owned());
            associations.push(Association {
                account: account.clone(),
                parent_account,
                ..root.clone()
            });
        }
        associations.push(Association {
            account: account.clone(),
            user: Some(user.clone()),
            ..root.clone()
        });
    }
    let tree = AssociationTree::new(associations).unwrap();
    let weights = BillingWeights::parse("CPU=1.0,Mem=0.25G,GRES/gpu=8.0").unwrap();
    let rates = BillingRates {
        partitions: [("gpu".to_owned(), Some(weights))].into(),
        ..BillingRates::default()
    };
    let tres: Vec<TresAmounts> = (1..65)
        .map(|cpus| {
            TresAmounts::parse(&format!(
                "billing={cpus},cpu={cpus},gres/gpu:a100=1,gres/gpu=1,mem=32G,node=1"
            ))
            .unwrap()
        })
        .collect();
    let as_of = UnixTime(180 * DAY);
    let began = std::time::Instant::now();
    let table = DecayTable::new(
        Decay::new(604_800),
        &Ticks::every(300, UnixTime(17), UnixTime(0), as_of),
        &[],
        as_of,
    );
    let mut usage = Accumulator::new(&tree, &table, &rates, as_of - 7 * DAY);
    let mut random = 1_u64;
    for _ in 0..1_000_000 {
        // A linear congruential generator spreads runs well enough over users and days.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let bits = random >> 20;
        let (account, user) = &names[(bits % 500) as usize];
        let start = UnixTime((bits / 500 % (180 * 86_400)) as i64);
        usage.add(&Run {
            account,
            user,
            partition: "gpu",
            qos: Some("normal"),
            start: Some(start),
            end: Some(start + (bits % 40_000) as i64),
            timelimit_seconds: None,
            tres: Some(&tres[(bits % 64) as usize]),
        });
    }
    let usage = usage.finish();
    let rows = share_rows(&tree, &PrioritySettings::default(), &usage);
    let took = began.elapsed();
    println!("{} rows of 1,000,000 runs in {took:?}", rows.len());
    assert!(usage.raw_usage(tree.root()) > 0.0);
    // A debug build takes longer.
    if !cfg!(debug_assertions) {
        assert!(took.as_secs() < 5, "{took:?}");
    }
}
