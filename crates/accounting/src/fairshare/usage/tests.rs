use super::super::decay::{Decay, Ticks};
use super::super::tree::tests::tree;
use super::*;
use takt_jobs::Qos;

const HOUR: i64 = 3600;

fn charged(
    tree: &AssociationTree,
    half_life: u32,
    runs: &[(&str, &str, i64, Option<i64>)],
) -> (DecayTable, Usage) {
    let table = DecayTable::new(
        Decay::new(half_life),
        &Ticks::every(60, UnixTime(0), UnixTime(0), UnixTime(10 * HOUR)),
        &[],
        UnixTime(10 * HOUR),
    );
    let keep = Qos {
        usage_factor: 1.0,
        no_decay: true,
    };
    let rates = BillingRates {
        partitions: [("p".into(), None)].into(),
        qos: [("keep".into(), keep)].into(),
        ..BillingRates::default()
    };
    let tres = TresAmounts::parse("cpu=2").unwrap();
    let run = |&(account, user, start, end): &(_, _, i64, Option<i64>)| Run {
        account,
        user,
        partition: "p",
        qos: Some("keep"),
        start: Some(UnixTime(start)),
        end: end.map(UnixTime),
        timelimit_seconds: Some(11 * 3600),
        // The user `unseen` has runs without TRES.
        tres: (user != "unseen").then_some(&tres),
    };
    let usage = usage(
        tree,
        &table,
        &rates,
        UnixTime(5 * HOUR),
        runs.iter().map(run),
    );
    (table, usage)
}

#[test]
fn usage_climbs_and_what_cannot_be_charged_is_reported() {
    let tree = tree("lab 1\n  @ann 1\n  @bob 1");
    let runs = [
        ("lab", "ann", 0, Some(HOUR)),
        ("lab", "gone", 0, Some(2 * HOUR)),
        ("lab", "bob", 9 * HOUR, None),
        ("lab", "bob", 11 * HOUR, None),
        ("lab", "unseen", 0, Some(HOUR)),
        ("closed", "ann", 0, Some(HOUR)),
    ];
    let (_, usage) = charged(&tree, 0, &runs);
    let [ann, bob] = ["ann", "bob"].map(|user| tree.of_user(user)[0]);
    let lab = tree.account("lab").unwrap();
    let hours = |id| usage.raw_usage(id) / 2.0 / HOUR as f64;
    // The account has the hours of its users, and those of a user who left.
    assert_eq!(
        [ann, bob, lab, tree.root()].map(hours),
        [1.0, 1.0, 4.0, 4.0]
    );
    assert_eq!(
        usage.left_out(),
        LeftOut {
            account_unknown: 1,
            tres_unknown: 1
        }
    );
    assert_eq!(
        [ann, bob, lab].map(|id| usage.recent_rate(id)),
        [0.0, 2.0 / 5.0, 0.0]
    );
    // An hour of the limit of eleven has passed at the last tick.
    assert_eq!(
        usage.tres_run_minutes(lab),
        [("cpu".to_owned(), 2.0 * 600.0)].into()
    );
}

#[test]
fn a_qos_without_decay_keeps_what_its_associations_lose() {
    let tree = tree("lab 1\n  @ann 1");
    let (table, usage) = charged(&tree, 3600, &[("lab", "ann", 0, Some(HOUR))]);
    assert_eq!(usage.raw_usage_of_qos("keep"), 7200.0);
    assert_eq!(usage.raw_usage_of_qos("other"), 0.0);
    // Nine half-lives after its end, less than a five-hundredth is left.
    let left = usage.raw_usage(tree.root());
    assert!(left > 0.0 && left < 7200.0 / 500.0, "{left}");
    assert!(table.undecayed().decay() == Decay::new(0));
}

#[test]
fn projected_usage_meets_what_the_runs_then_make() {
    let tree = tree("lab 1\n  @ann 1\n  @bob 1");
    let half_life = 8 * 3600;
    let (table, now) = charged(
        &tree,
        half_life,
        &[("lab", "ann", 0, Some(4 * HOUR)), ("lab", "bob", 0, None)],
    );
    let bob = tree.of_user("bob")[0];
    let projected = now.projected(
        &tree,
        &table,
        6 * HOUR,
        |id| if id == bob { 2.0 } else { 0.0 },
    );
    let decay = Decay::new(half_life);
    let later = DecayTable::new(
        decay,
        &Ticks::every(60, UnixTime(0), UnixTime(0), UnixTime(16 * HOUR)),
        &[],
        UnixTime(16 * HOUR),
    );
    let ann = 2.0 * later.seconds(UnixTime(0), Some(UnixTime(4 * HOUR))).total();
    let bob_then = 2.0 * later.seconds(UnixTime(0), None).total();
    let close = |left: f64, right: f64| (left - right).abs() < 1e-3 * right;
    assert!(
        close(projected[tree.of_user("ann")[0].index()], ann),
        "{projected:?} {ann}"
    );
    assert!(
        close(projected[bob.index()], bob_then),
        "{projected:?} {bob_then}"
    );
    assert!(close(projected[tree.root().index()], ann + bob_then));
}
