//! Tests of the files of unsealed samples.

use super::log::{LogReader, path_of, read_log};
use super::*;
use crate::head::{GroupRows, STALE};
use crate::{Sample, SeriesId};
use proptest::prelude::*;
use record::Record;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const SEGMENT: Segment = Segment(7);
const OWNER: (u64, u32) = (1, 2);
const SECOND: i64 = 1000;

/// Samples by series and time, as bits.
type Samples = BTreeMap<(u32, i64), u64>;

/// Rows of a group: values by series, and whether the chunk ends after the row.
fn rows() -> impl Strategy<Value = Vec<(Vec<f64>, bool)>> {
    // Repeated values are frequent, as in most series.
    let value = prop_oneof![
        4 => (0_i32..3).prop_map(f64::from),
        2 => Just(STALE),
        2 => (-1000_i32..1000).prop_map(|n| f64::from(n) / 10.0),
        1 => any::<f64>(),
    ];
    let row = prop::collection::vec(value, 70);
    prop::collection::vec((row, prop::bool::weighted(0.1)), 1..60)
}

/// Writes rows as the head does. Returns the samples that were written.
fn write_rows(file: &SegmentFile, rows: &[(Vec<f64>, bool)]) -> Samples {
    let mut group = GroupRows::new(Timestamp(0), Duration::from_secs(240), 0);
    for series in 0..70 {
        group.add_column(SeriesId(100 + series), Timestamp(0));
    }

    let mut written = Samples::new();
    for (number, (row, ends)) in rows.iter().enumerate() {
        let at = number as i64 * SECOND;
        let outcome = group.push(Timestamp(at), row, |series, value| {
            written.insert((series.0, at), value.to_bits());
        });
        let ended = if *ends { group.seal_open() } else { None };
        for full in outcome.full.into_iter().chain(ended) {
            file.add(OWNER, full);
        }
    }
    if let Some(full) = group.seal_open() {
        file.add(OWNER, full);
    }
    written
}

fn stored(file: &SegmentFile, wanted: &RoaringBitmap, range: (i64, i64)) -> Samples {
    let mut found = Samples::new();
    let range = (Timestamp(range.0), Timestamp(range.1));
    let mut add = |series, samples: &[Sample]| {
        for sample in samples {
            let twice = found.insert((series, sample.at.0), sample.value.to_bits());
            assert_eq!(twice, None, "{series} at {}", sample.at);
        }
        true
    };
    file.each(wanted, range, &mut add).unwrap();
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// A segment has exactly the written samples: in memory, in its file, and after it was opened
    /// again.
    #[test]
    fn a_segment_returns_the_written_samples(
        rows in rows(),
        // The last few of these series do not exist.
        wanted in prop::collection::btree_set(100_u32..175, 1..75),
        from in 0_i64..60,
        length in 0_i64..60,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let file = SegmentFile::create(folder.path(), SEGMENT).unwrap();
        let written = write_rows(&file, &rows);

        let wanted: RoaringBitmap = wanted.into_iter().collect();
        let range = (from * SECOND, (from + length) * SECOND);
        let is_wanted = |(series, at): (u32, i64)| {
            wanted.contains(series) && range.0 <= at && at <= range.1
        };
        let expected = written.iter().filter(|(key, _)| is_wanted(**key));
        let expected: Samples = expected.map(|(&key, &value)| (key, value)).collect();
        prop_assert_eq!(&stored(&file, &wanted, range), &expected);

        file.persist(&Repeated::default()).unwrap();
        prop_assert_eq!(&stored(&file, &wanted, range), &expected);
        prop_assert_eq!(file.samples(), written.len() as u64);
        for verify in [false, true] {
            let opened = SegmentFile::open(folder.path(), SEGMENT, verify, 0);
            let (again, findings) = opened.unwrap();
            prop_assert_eq!((findings.damaged, findings.length), (0, file.length()));
            prop_assert_eq!(&stored(&again, &wanted, range), &expected);
            prop_assert_eq!(again.samples(), written.len() as u64);
            prop_assert_eq!(again.leave_damaged_out().unwrap(), 0);
        }
    }
}

/// Changes the last byte of a record. Returns where the record begins.
fn damage(file: &SegmentFile, number: usize) -> u64 {
    let record = |at| Record::at(&file.file, at, file.length()).unwrap().unwrap();
    let begin = (0..number).fold(0, |at, _| record(at).end());
    let last = record(begin).end() - 1;
    let byte = record::read(&file.file, last, 1).unwrap()[0];
    file.file.write_all_at(&[!byte], last).unwrap();
    begin
}

/// A file with a shape, a chunk, another shape and its chunk, and loose samples.
fn write_records(folder: &Path) -> (SegmentFile, Samples) {
    let file = SegmentFile::create(folder, SEGMENT).unwrap();
    let row = |value: f64, columns: usize| (vec![value; columns], false);
    let mut written = write_rows(&file, &[row(1.0, 70), row(2.0, 70)]);
    let mut other = GroupRows::new(Timestamp(0), Duration::from_secs(240), 0);
    other.add_column(SeriesId(500), Timestamp(0));
    let _ = other.push(Timestamp(5), &[9.0], |_, _| {});
    file.add((1, 3), other.seal_open().unwrap());
    written.insert((500, 5), 9.0_f64.to_bits());
    file.persist(&Repeated::default()).unwrap();
    let loose = (
        600,
        Sample {
            at: Timestamp(6),
            value: 3.0,
        },
    );
    file.add_loose(&[Arc::new(vec![loose].into())]);
    file.persist_loose(4).unwrap();
    written.insert((600, 6), 3.0_f64.to_bits());
    (file, written)
}

/// A power failure may leave the second of two records that were not synced.
#[test]
fn what_follows_a_damaged_record_that_was_not_synced_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let (file, written) = write_records(folder.path());

    // The record of the second chunk. The loose samples behind it are cut, too, and still are in the log.
    let begin = damage(&file, 3);
    let (again, findings) = SegmentFile::open(folder.path(), SEGMENT, true, begin).unwrap();
    assert_eq!((findings.damaged, findings.length), (0, begin));
    assert_eq!((again.length(), again.loose_log()), (begin, 0));
    assert_eq!(again.coverage().get((1, 3)), None);
    let first = written.iter().filter(|((series, _), _)| *series < 500);
    let all = (100..=600).collect();
    let found = stored(&again, &all, (0, 10 * SECOND));
    assert!(found.iter().eq(first));
    again.cut().unwrap();
    assert_eq!(fs::metadata(again.path()).unwrap().len(), begin);
}

#[test]
fn a_damaged_record_that_was_synced_is_left_out() {
    for number in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let (file, mut written) = write_records(folder.path());
        damage(&file, number);
        let length = file.length();
        let (again, findings) = SegmentFile::open(folder.path(), SEGMENT, true, length).unwrap();
        // A chunk is lost with its shape.
        let lost = match number {
            0 | 1 => 100..500,
            2 | 3 => 500..501,
            _ => 600..601,
        };
        written.retain(|(series, _), _| !lost.contains(series));
        let damaged = if number % 2 == 0 && number < 4 { 2 } else { 1 };
        assert_eq!(findings.damaged, damaged, "{number}");
        let all = (100..=600).collect();
        assert_eq!(stored(&again, &all, (0, 10 * SECOND)), written, "{number}");
    }
}

/// After a failed sync, Linux takes pages for written that are not. The next sync writes them again.
#[test]
fn what_a_failed_sync_left_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = write_records(folder.path());
    let length = file.length();
    // At first nothing was synced, then all records before the damaged one.
    for synced in [0, damage(&file, 3)] {
        let opened = SegmentFile::open(folder.path(), SEGMENT, true, synced);
        let (again, _) = opened.unwrap();
        let before = fs::metadata(again.path()).unwrap().modified().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(again.sync().unwrap().length < length);
        let after = fs::metadata(again.path()).unwrap().modified().unwrap();
        assert_eq!(after > before, synced == 0, "{synced}");
    }
    let _ = write_records(folder.path());
    let (again, _) = SegmentFile::open(folder.path(), SEGMENT, true, 0).unwrap();
    // The record was intact when the file was opened, but is not when it is to be written again.
    damage(&again, 4);
    assert!(again.sync().is_err());
}

#[test]
fn no_samples_make_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let file = SegmentFile::create(folder.path(), SEGMENT).unwrap();
    file.add_loose(&[Arc::default()]);
    file.persist_loose(3).unwrap();
    assert_eq!((file.length(), file.times()), (0, None));
}

/// Rows of groups, as bits, and loose samples.
#[derive(Default)]
struct Seen {
    rows: Vec<SeenRow>,
    loose: Vec<LooseSample>,
}

type SeenRow = (u32, i64, Vec<(u32, u64)>);

impl LogReader for Seen {
    fn row(&mut self, owner: (u64, u32), at: Timestamp, series: &Arc<[u32]>, values: &[f64]) {
        let values = values.iter().map(|value| value.to_bits());
        let pairs = series.iter().copied().zip(values).collect();
        self.rows.push((owner.1, at.0, pairs));
    }

    fn loose(&mut self, sample: LooseSample) {
        self.loose.push(sample);
    }
}

/// Rows of groups: series and values.
type LogRows = Vec<(u32, Vec<u32>, Vec<f64>)>;

fn commit() -> impl Strategy<Value = LogRows> {
    let value = prop_oneof![Just(1.0), (0_i32..9).prop_map(f64::from), Just(STALE)];
    let pairs = prop::collection::vec((0_u32..4, value), 0..12);
    let row = (0_u32..3, pairs).prop_map(|(group, pairs)| {
        let (series, values) = pairs.into_iter().unzip();
        (group, series, values)
    });
    prop::collection::vec(row, 0..4)
}

proptest! {
    /// A log has the rows that were appended, in order. A cut end loses only the last commits.
    #[test]
    fn a_log_returns_the_appended_rows(
        commits in prop::collection::vec(commit(), 1..8),
        cut in 0_u64..200,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogWriter::new(folder.path(), 5, 0);
        let mut expected = Vec::new();
        for (at, commit) in (0_i64..).zip(&commits) {
            let loose = (9, Sample { at: Timestamp(at), value: at as f64 });
            let rows = commit
                .iter()
                .map(|(group, series, values)| (*group, Timestamp(at), &**series, &**values));
            log.append(SEGMENT, rows, &[Arc::new(vec![loose].into())]).unwrap();
            let rows = commit.iter().map(|(group, series, values)| {
                let values = values.iter().map(|value| value.to_bits());
                (*group, at, series.iter().copied().zip(values).collect())
            });
            let (_, length) = log.position().unwrap();
            expected.push((length, rows.collect::<Vec<SeenRow>>(), loose));
        }

        let path = path_of(folder.path(), SEGMENT, 1);
        let left = fs::metadata(&path).unwrap().len().saturating_sub(cut);
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(left).unwrap();
        let mut seen = Seen::default();
        let found = read_log(&path, &mut seen).unwrap();
        expected.retain(|(length, ..)| *length <= left);
        let rows: Vec<_> = expected.iter().flat_map(|(_, rows, _)| rows.clone()).collect();
        let loose: Vec<_> = expected.iter().map(|(.., loose)| *loose).collect();
        prop_assert_eq!(seen.rows, rows);
        prop_assert_eq!(seen.loose, loose);
        prop_assert_eq!(found.damaged, 0);
    }
}

#[test]
fn a_log_is_deleted_when_all_its_rows_are_in_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = LogWriter::new(folder.path(), 5, 0);
    let row = |group, at| (group, Timestamp(at), &[1_u32][..], &[2.0][..]);
    log.append(SEGMENT, [row(1, 10), row(2, 20)].into_iter(), &[])
        .unwrap();
    log.end();
    let path = path_of(folder.path(), SEGMENT, 1);
    let mut covered = Coverage::default();
    covered.note((5, 1), Timestamp(15));
    // A group of another run has the same number.
    covered.note((4, 2), Timestamp(99));
    assert!(!log.delete_covered(&covered, 0) && path.exists());
    covered.note((5, 2), Timestamp(20));
    assert!(log.delete_covered(&covered, 0) && !path.exists());
}
