//! Random queries and random bytes: whatever comes in, something sensible comes out, within the budget.

use super::common::{self, BEGIN_MS, Queries, Random};
use proptest::collection;
use proptest::prelude::*;
use std::env;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use takt_model::Timestamp;
use takt_promql::{Error, Limits, Memory, Options, Value, instant, range, script};

/// Random queries of the grammar.
const QUERIES: u64 = 4_000;

fn tight() -> Options {
    let limits = Limits {
        max_samples: 20_000,
        max_series: 50,
        deadline: Some(Instant::now() + Duration::from_secs(5)),
        ..Limits::default()
    };
    Options {
        experimental: true,
        limits,
        ..Options::default()
    }
}

fn evaluate(memory: &Memory, query: &str) {
    let options = tight();
    let at_ms = BEGIN_MS + 3_667_000;
    let allowed = options.limits.max_samples;
    let answers = [
        instant(memory, query, Timestamp(at_ms), &options),
        range(
            memory,
            query,
            Timestamp(at_ms),
            Timestamp(at_ms + 600_000),
            60_000,
            &options,
        ),
        // The ends of time, where a sum of instants overflows, and more steps than memory.
        range(memory, query, Timestamp::MIN, Timestamp::MAX, 1, &options),
        range(
            memory,
            query,
            Timestamp(i64::MAX - 5),
            Timestamp::MAX,
            1,
            &options,
        ),
    ];
    for answer in answers {
        match answer {
            Ok(answer) => assert!(
                answer.peak_samples <= allowed,
                "{query}: {} samples",
                answer.peak_samples
            ),
            Err(Error::Timeout) => panic!("{query}: took more than five seconds"),
            Err(_) => {}
        }
    }
}

#[test]
fn random_queries_stay_within_the_budget() {
    let memory = common::memory();
    let mut queries = Queries::new(99);
    for _ in 0..QUERIES {
        evaluate(&memory, &queries.query());
    }
}

/// Queries to break: typical ones, odd ones, and queries generated from the grammar.
const HAND_MADE: &[&str] = include!("hand_made.in");
const ODD: &[&str] = include!("odd.in");

/// Some thousand queries, or as many as fit into `TAKT_FUZZ_SECONDS` (`make soak`), which begin elsewhere each time.
#[test]
fn broken_queries_are_refused_or_answered() {
    let long = env::var("TAKT_FUZZ_SECONDS")
        .ok()
        .map(|seconds| Duration::from_secs(seconds.parse().unwrap()));
    let clock = SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64;
    // A fixed seed in the usual tests, so that a failure is one of the change.
    let seed = if long.is_some() { clock } else { 4 };
    let began = Instant::now();
    let memory = common::memory();
    let mut queries = Queries::new(seed.wrapping_add(1));
    let mut random = Random::new(seed);
    let mut count = 0_u64;
    while long.map_or(count < QUERIES, |long| began.elapsed() < long) {
        let query = match random.below(3) {
            0 => queries.query(),
            1 => random.pick(HAND_MADE).to_owned(),
            _ => random.pick(ODD).to_owned(),
        };
        evaluate(&memory, &common::broken(query, &mut random));
        count += 1;
    }
    println!("{count} broken queries, seed {seed}");
}

#[test]
fn odd_queries_are_refused_or_answered() {
    let memory = common::memory();
    for query in ODD {
        evaluate(&memory, query);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn any_text_is_refused_or_answered(query in "\\PC{0,60}") {
        evaluate(&Memory::new(), &query);
    }

    #[test]
    fn any_words_are_refused_or_answered(
        words in collection::vec(prop_oneof![
        Just("sum"), Just("by"), Just("("), Just(")"), Just("a"), Just("[5m]"), Just("[1m:1s]"), Just("offset"), Just("@"),
        Just("start()"), Just("1"), Just("Inf"), Just("-"), Just("^"), Just("and"), Just("on"), Just("group_left"),
        Just("{"), Just("}"), Just("b=\"c\""), Just(","), Just("rate"), Just("bool"), Just("topk"), Just("\"x\""), Just("=~"),
    ], 0..25),
    ) {
        evaluate(&Memory::new(), &words.join(" "));
    }

    #[test]
    fn any_script_is_run(
        text in "(load 1m\n|  a 1\\+1x3\n|eval instant at 1m a\n|\\PC{0,20}\n|\n|expect [a-z]{4} msg: x\n){0,12}",
    ) {
        script::run("any.test", &text).to_string();
    }
}

#[test]
fn deep_queries_do_not_overflow_the_stack_of_a_thread() {
    let deepest = [
        format!("{}1{}", "(".repeat(299), ")".repeat(299)),
        vec!["a"; 300].join(" or "),
        vec!["1"; 300].join(" + "),
        format!("{}a", "-".repeat(300)),
        format!("{}a{}", "abs(".repeat(290), ")".repeat(290)),
        format!("{}a{}", "sum(".repeat(290), ")".repeat(290)),
        format!(
            "{}a{}",
            "max_over_time(".repeat(140),
            "[1m:1m])".repeat(140)
        ),
    ];
    // 2 MiB is the stack that a thread has by default.
    let thread = thread::Builder::new().stack_size(2 << 20).spawn(move || {
        let mut memory = Memory::new();
        memory.add(
            [("__name__", "a")].into_iter().collect(),
            [(Timestamp(0), Some(1.0))],
        );
        for query in &deepest {
            let answer = instant(&memory, query, Timestamp(0), &Options::default());
            assert!(answer.is_ok(), "{}: {answer:?}", &query[..30]);
        }
    });
    thread.unwrap().join().unwrap();
}

#[test]
fn each_bound_is_enforced_and_named() {
    let memory = common::memory();
    let at_ms = BEGIN_MS + 3_667_000;
    let with = |limits: Limits| Options {
        limits,
        ..Options::default()
    };
    let run = |query: &str, options: &Options| {
        instant(&memory, query, Timestamp(at_ms), options).map(|answer| answer.value)
    };
    let error = |query: &str, limits: Limits| run(query, &with(limits)).expect_err(query);

    let few = Limits {
        max_samples: 100,
        ..Limits::default()
    };
    assert!(matches!(
        error("sum(rate(requests_total[1h]))", few.clone()),
        Error::TooManySamples
    ));
    assert!(matches!(
        error("vector(1)[100y:1ms]", few.clone()),
        Error::TooManySamples
    ));
    assert!(matches!(run("sum(up)", &with(few)), Ok(Value::Vector(_))));

    let narrow = Limits {
        max_series: 2,
        ..Limits::default()
    };
    assert!(matches!(error("up", narrow), Error::TooManySeries(2)));

    // Even a number is refused, so that a query which waited too long costs nothing more.
    let late = Limits {
        deadline: Some(Instant::now()),
        ..Limits::default()
    };
    assert_eq!(error("1", late).kind().as_str(), "timeout");

    let gone = Limits::default();
    gone.canceled.store(true, Ordering::Relaxed);
    assert_eq!(error("1", gone).kind().as_str(), "canceled");
}

/// A node releases the memory of its operands, so a long chain costs no more than its widest part.
#[test]
fn the_account_falls_again() {
    let memory = common::memory();
    let peak = |query: &str| {
        instant(
            &memory,
            query,
            Timestamp(BEGIN_MS + 3_667_000),
            &Options::default(),
        )
        .unwrap()
        .peak_samples
    };
    let one = peak("sum(rate(requests_total[1h]))");
    let many = peak(&vec!["sum(rate(requests_total[1h]))"; 50].join(" + "));
    // Without a release, fifty operands would hold fifty times as much.
    assert!(many < 2 * one, "{one} samples for one, {many} for fifty");
}
