//! A series is listed for the time in which it had samples, wherever they are stored.

use crate::bench_store::{BEGIN, Bench, HOUR, SECOND, config};
use std::iter;
use takt_model::{Labels, METRIC_NAME, Timestamp};
use takt_store::Listed;
use tempfile::tempdir;

/// Writes samples of a series in a group of its own. The series ends afterwards.
fn scrape_briefly(bench: &Bench, metric: &str, times: impl Iterator<Item = i64>) {
    let group = bench.store.group();
    let labels: Labels = [(METRIC_NAME, metric), ("rack", metric)]
        .into_iter()
        .collect();
    let column = group.column(&labels).unwrap().index();
    for at in times {
        bench.set_clock(at);
        let mut row = vec![0.0; group.width()];
        row[column] = 1.0;
        group
            .commit(group.ticket(Timestamp(at)).unwrap(), &row, &[])
            .unwrap();
    }
    bench.store.flush();
}

#[track_caller]
fn expect(bench: &Bench, from: i64, to: i64, expected: &[&str]) {
    let listed = Listed {
        matchers: &[],
        from: Timestamp(from),
        to: Timestamp(to),
    };
    let values = bench.store.label_values(METRIC_NAME, listed).unwrap();
    let of_interest: Vec<&str> = values
        .iter()
        .map(String::as_str)
        .filter(|name| name.contains("_one"))
        .collect();
    assert_eq!(of_interest, expected);
    let labels: Vec<Labels> = bench.store.series(listed).unwrap();
    assert_eq!(labels.len(), values.len());
    let has_rack = bench
        .store
        .label_names(listed)
        .unwrap()
        .contains(&"rack".to_owned());
    assert_eq!(has_rack, !expected.is_empty());
}

#[test]
fn listings_are_limited_to_their_time() {
    let root = tempdir().unwrap();
    let minute = 60 * SECOND;
    {
        let bench = Bench::open(root.path(), &config(), BEGIN);
        scrape_briefly(
            &bench,
            "early_one",
            (BEGIN..BEGIN + HOUR).step_by(minute as usize),
        );
        bench.store.seal().unwrap();
        bench.scrape_all(BEGIN + 2 * HOUR, BEGIN + 3 * HOUR, minute);
        scrape_briefly(
            &bench,
            "late_one",
            [BEGIN + 3 * HOUR, BEGIN + 3 * HOUR + minute].into_iter(),
        );
        bench.scrape_all(BEGIN + 4 * HOUR, BEGIN + 5 * HOUR, minute);

        expect(&bench, i64::MIN, i64::MAX, &["early_one", "late_one"]);
        expect(&bench, i64::MIN, BEGIN - 1, &[]);
        expect(&bench, BEGIN, BEGIN + HOUR / 2, &["early_one"]);
        expect(&bench, BEGIN + 2 * HOUR, i64::MAX, &["late_one"]);
        expect(&bench, BEGIN + 4 * HOUR, BEGIN + 5 * HOUR, &[]);
    }
    {
        // The same without a block.
        let root = tempdir().unwrap();
        for at in [BEGIN + HOUR, BEGIN + HOUR + minute] {
            let bench = Bench::open(root.path(), &config(), at);
            scrape_briefly(&bench, "only_one", iter::once(at));
            expect(&bench, BEGIN, BEGIN + HOUR / 2, &[]);
            expect(&bench, BEGIN + HOUR, BEGIN + 2 * HOUR, &["only_one"]);
        }
    }
    // After a restart, nothing of the series is in memory.
    let bench = Bench::open(root.path(), &config(), BEGIN + 5 * HOUR);
    expect(&bench, BEGIN, BEGIN + HOUR / 2, &["early_one"]);
    expect(&bench, BEGIN + 2 * HOUR, BEGIN + 5 * HOUR, &["late_one"]);
    bench.store.seal().unwrap();
    expect(&bench, BEGIN + 2 * HOUR, BEGIN + 5 * HOUR, &["late_one"]);
    expect(&bench, BEGIN + 6 * HOUR, i64::MAX, &[]);
}

/// A block of weeks has the jobs of all of them.
#[test]
fn a_long_block_lists_the_series_of_the_asked_time() {
    let root = tempdir().unwrap();
    let bench = Bench::open(root.path(), &config(), BEGIN);
    let minute = 60 * SECOND;
    scrape_briefly(&bench, "early_one", [BEGIN, BEGIN + minute].into_iter());
    bench.scrape_all(BEGIN + HOUR, BEGIN + 3 * HOUR, minute);
    scrape_briefly(&bench, "late_one", iter::once(BEGIN + 3 * HOUR));
    bench.scrape_all(BEGIN + 4 * HOUR, BEGIN + 5 * HOUR, minute);
    bench.store.seal().unwrap();

    expect(&bench, i64::MIN, i64::MAX, &["early_one", "late_one"]);
    expect(&bench, BEGIN, BEGIN + HOUR / 2, &["early_one"]);
    expect(&bench, BEGIN + 3 * HOUR, BEGIN + 4 * HOUR, &["late_one"]);
    let between = Listed {
        matchers: &[],
        from: Timestamp(BEGIN + HOUR),
        to: Timestamp(BEGIN + 2 * HOUR),
    };
    let listed = bench.store.label_values("rack", between).unwrap();
    assert!(listed.is_empty(), "{listed:?}");
}
