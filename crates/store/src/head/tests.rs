//! Tests of the head.

use super::*;
use crate::segments::Segment;
use crate::unsealed::{Repeated, SegmentFile};
use proptest::prelude::*;

const WINDOW: Duration = Duration::from_secs(8);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(1_000_000 + seconds)
}

fn group(head: &Head, series: u32) -> (u32, Arc<RwLock<GroupRows>>) {
    let (id, rows) = head.open_group(at(0));
    for number in 0..series {
        assert_eq!(
            head.column(id, &rows, SeriesId(number)),
            Some(Column(number))
        );
    }
    (id, rows)
}

fn show(samples: &[Sample]) -> Vec<(i64, String)> {
    let show = |value: f64| {
        if is_stale(value) {
            "stale".to_owned()
        } else {
            value.to_string()
        }
    };
    samples
        .iter()
        .map(|sample| (sample.at.whole_seconds().0 - 1_000_000, show(sample.value)))
        .collect()
}

fn range(head: &Head, series: u32, from: i64, to: i64) -> Vec<(i64, String)> {
    show(
        &head
            .range(&[SeriesId(series)], at(from), at(to), &mut |_| true)
            .unwrap()[0]
            .samples,
    )
}

#[test]
fn an_absent_series_ends_once() {
    let head = Head::new(WINDOW, at(0));
    let (_, rows) = group(&head, 2);
    let mut written = Vec::new();
    for (second, row) in [
        (0, [1.0, 5.0]),
        (1, [1.0, STALE]),
        (2, [2.0, STALE]),
        (3, [2.0, f64::NAN]),
    ] {
        write(&rows).push(at(second), &row, |id, value| {
            written.push((second, id.0, value.to_string()))
        });
    }
    let expected = [
        (0, "5".to_owned()),
        (1, "stale".to_owned()),
        (3, "NaN".to_owned()),
    ];
    assert_eq!(range(&head, 1, 0, 9), expected);
    assert_eq!(
        range(&head, 0, 1, 2),
        [(1, "1".to_owned()), (2, "2".to_owned())]
    );
    assert_eq!(written.iter().filter(|(_, id, _)| *id == 1).count(), 3);
    let last = |series, to| {
        show(
            &head
                .last(&[SeriesId(series)], at(0), at(to), &mut |_| true)
                .unwrap()[0]
                .samples,
        )
    };
    assert_eq!(last(0, 9), [(3, "2".to_owned())]);
    assert_eq!(last(1, 2), [(1, "stale".to_owned())]);
    assert_eq!(last(1, 0), [(0, "5".to_owned())]);
}

#[test]
fn a_series_absent_for_long_loses_its_column() {
    let head = Head::new(WINDOW, at(0));
    let (group, rows) = group(&head, 1);
    let mut dropped = Vec::new();
    for second in 0..30 {
        let row = [if second < 3 { 7.0 } else { STALE }];
        dropped.extend(write(&rows).push(at(second), &row, |_, _| {}).dropped);
    }
    let [gone] = dropped[..] else {
        panic!("{dropped:?}")
    };
    assert_eq!((gone.series, gone.column), (SeriesId(0), Column(0)));
    // The staleness marker is the last sample in the database.
    assert!(gone.from > at(3) && gone.from < at(13), "{gone:?}");
    head.forget(&dropped);
    assert_eq!(
        head.last(&[SeriesId(0)], at(0), at(99), &mut |_| true)
            .unwrap()[0]
            .complete_from,
        gone.from
    );
    assert_eq!(head.column(group, &rows, SeriesId(9)), Some(Column(0)));
    write(&rows).push(at(30), &[1.0], |_, _| {});
    assert_eq!(range(&head, 9, 0, 99), [(30, "1".to_owned())]);
    assert_eq!(range(&head, 0, 0, 99), []);
}

#[test]
fn two_groups_cannot_have_one_series() {
    let head = Head::new(WINDOW, at(0));
    let (first, _) = group(&head, 1);
    let (second, rows) = head.open_group(at(0));
    assert_eq!(head.column(second, &rows, SeriesId(0)), None);
    head.close_group(first);
    assert_eq!(head.column(second, &rows, SeriesId(0)), Some(Column(0)));
}

#[test]
fn own_timestamps_are_kept_once() {
    let head = Head::new(WINDOW, at(0));
    let (_, rows) = group(&head, 1);
    let push = |second, value| {
        write(&rows).push_own_time(
            Column(0),
            at(9),
            Sample {
                at: at(second),
                value,
            },
        )
    };
    assert_eq!(
        [push(1, 1.0), push(1, 2.0), push(0, 3.0), push(2, 4.0)],
        [true, false, false, true]
    );
    assert_eq!(
        range(&head, 0, 0, 9),
        [(1, "1".to_owned()), (2, "4".to_owned())]
    );
    assert_eq!(
        show(
            &head
                .last(&[SeriesId(0)], at(0), at(1), &mut |_| true)
                .unwrap()[0]
                .samples
        ),
        [(1, "1".to_owned())]
    );
}

/// Chunks of the first two thirds of the window are in the file of their segment only, also after
/// that file was removed because a block has its samples.
#[test]
fn old_chunks_leave_memory() {
    let folder = tempfile::tempdir().unwrap();
    let file = SegmentFile::create(folder.path(), Segment(1)).unwrap();
    let head = Head::new(Duration::from_secs(960), at(0));
    let (_, rows) = group(&head, 1);
    for second in 0..960 {
        let outcome = write(&rows).push(at(second), &[second as f64], |_, _| {});
        if let Some(full) = outcome.full {
            file.add((1, 1), full);
            file.persist(&Repeated::default()).unwrap();
        }
    }
    let (in_memory, all) = write(&rows).chunk_counts();
    assert!(in_memory <= 6 && all >= 14, "{in_memory} of {all}");
    std::fs::remove_file(file.path()).unwrap();
    drop(file);
    let expected: Vec<_> = (0..960)
        .map(|second| (second, second.to_string()))
        .collect();
    assert_eq!(range(&head, 0, 0, 999), expected);
}

/// Values of each kind: ending, constant, rising, random, and not a number.
fn value(second: i64, cell: u8) -> f64 {
    match cell {
        // Every fifth row is full, so that no column is dropped.
        0 if second % 5 != 0 => STALE,
        0 | 1 => 1.0,
        2 => second as f64 / 10.0,
        3 => (second * second % 13) as f64 * 4096.0,
        4 => f64::NAN,
        _ => f64::from(cell).sqrt(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Compares the head with a plain table that stores every row in full.
    #[test]
    fn a_head_answers_like_a_table(
        table in proptest::collection::vec(proptest::collection::vec(0_u8..7, 70), 1..130),
        // Number of seconds for which a column keeps its kind of value.
        pace in prop::sample::select(vec![1_usize, 3, 40]),
        window in prop::sample::select(vec![8_i64, 64]),
        column in 0_usize..70,
        from in 0_i64..130,
        length in 0_i64..130,
        // Whether old chunks are read from the file of a segment.
        is_stored in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let file = SegmentFile::create(folder.path(), Segment(1)).unwrap();
        let head = Head::new(Duration::from_secs(window.unsigned_abs()), at(0));
        let (_, rows) = group(&head, 70);
        let cell = |second: i64, column: usize| {
            let row = &table[second as usize / pace];
            // The last columns appear later, like the series of a new job.
            if second < 5 && column >= 50 { STALE } else { value(second, row[column]) }
        };
        let seconds = table.len() as i64;
        for second in 0..seconds {
            let width = if second < 5 { 50 } else { 70 };
            let row: Vec<f64> = (0..width).map(|column| cell(second, column)).collect();
            let outcome = write(&rows).push(at(second), &row, |_, _| {});
            if let Some(full) = outcome.full.filter(|_| is_stored) {
                file.add((1, 1), full);
                file.persist(&Repeated::default()).unwrap();
            }
        }
        let from = from.max(seconds - 1 - window);
        let to = from + length;
        let mut expected = Vec::new();
        let mut was_stale = true;
        for second in 0..seconds {
            let value = cell(second, column);
            if second >= from && second <= to && !(is_stale(value) && was_stale) {
                expected.push(Sample { at: at(second), value });
            }
            was_stale = is_stale(value);
        }
        let series = [SeriesId(column as u32)];
        let mut found = head.range(&series, at(from), at(to), &mut |_| true).unwrap().remove(0).samples;
        let last = head.last(&series, at(from), at(to), &mut |_| true).unwrap().remove(0).samples;
        let bits = |samples: &[Sample]| -> Vec<_> {
            samples.iter().map(|sample| (sample.at, sample.value.to_bits())).collect()
        };
        if let [.., newest] = expected[..] && !is_stale(newest.value) {
            prop_assert_eq!(bits(&last), bits(&[newest]));
        } else {
            prop_assert!(last.iter().all(|sample| is_stale(sample.value)));
        }
        // Chunks before `from` are not read, so the two results may differ in a marker at the
        // start.
        for samples in [&mut expected, &mut found] {
            if samples.first().is_some_and(|first| is_stale(first.value)) {
                samples.remove(0);
            }
        }
        prop_assert_eq!(bits(&found), bits(&expected));
    }
}
