//! Bytes of sealed blocks change while the store answers, merges days and down-samples them. The
//! damaged block is set aside by name, the rest answers, and no value is wrong afterwards.

use super::bench_store::{BEGIN, Bench, DAY, HOUR, METRICS, SECOND, config, value};
use std::env;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use takt_model::{Matcher, Timestamp};
use tempfile::tempdir;

const HOURS: i64 = 6;
const END: i64 = BEGIN + HOURS * HOUR;

/// A time at which the day is merged.
const NEXT_DAY: i64 = BEGIN + DAY + HOUR;

/// Flips of a single bit that are tried. `TAKT_TEST_SEEDS` asks for ten times as many.
const FLIPS: u64 = 12;

/// A day with a block for each of its first hours.
fn day(root: &Path) -> Bench {
    let bench = Bench::open(root, &config(), BEGIN);
    bench.scrape_and_seal(BEGIN, END, SECOND);
    bench
}

/// The folders of raw blocks, in order of time, without those that were set aside.
fn raw_blocks(root: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(root.join("blocks/raw"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.retain(|path| !path.to_string_lossy().contains(".damaged-"));
    found.sort();
    found
}

/// Opens a block's samples. The store may rename or delete the block meanwhile.
fn open_samples(block: &Path) -> fs::File {
    open_file(block, "samples.parquet")
}

fn open_file(block: &Path, name: &str) -> fs::File {
    let path = block.join(name);
    fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

/// Changes a part of a block's file in place.
fn change(file: &fs::File, at: u64, with: impl Fn(u8) -> u8, length: usize) {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).unwrap();
    bytes.iter_mut().for_each(|byte| *byte = with(*byte));
    file.write_all_at(&bytes, at).unwrap();
}

fn length(file: &fs::File) -> u64 {
    file.metadata().unwrap().len()
}

/// Asserts that all samples are right, and that exactly these hours have none.
#[track_caller]
fn expect_without(bench: &Bench, hours: &[i64], case: &str) {
    let is_gone = |at: i64| hours.contains(&((at - BEGIN) / HOUR));
    for (metric, name) in METRICS.iter().enumerate() {
        let expected: Vec<_> = (BEGIN..END)
            .step_by(SECOND as usize)
            .filter(|at| !is_gone(*at))
            .map(|at| (at, value(metric, at)))
            .collect();
        let found = bench.samples(metric, BEGIN, END - 1);
        assert!(found == expected, "{case}: {name}: {} samples", found.len());
    }
}

#[test]
fn blocks_that_are_damaged_while_queries_run_are_set_aside() {
    let root = tempdir().unwrap();
    let bench = day(root.path());
    let blocks = raw_blocks(root.path());
    assert_eq!(blocks.len(), HOURS as usize);
    let is_over = AtomicBool::new(false);
    let answers = AtomicUsize::new(0);
    let store = &bench.store;
    let read = || {
        let mut metric = 0;
        while !is_over.load(Ordering::SeqCst) {
            metric = (metric + 1) % METRICS.len();
            let matchers = [Matcher::metric(METRICS[metric])];
            let found = store
                .range(&matchers, Timestamp(BEGIN), Timestamp(END))
                .unwrap_or_else(|error| panic!("{error:?}"));
            for series in found {
                let times = series.samples.iter().map(|sample| sample.at);
                assert!(times.is_sorted_by(|one, next| one < next));
            }
            answers.fetch_add(1, Ordering::SeqCst);
        }
    };
    thread::scope(|threads| {
        let readers: Vec<_> = (0..3).map(|_| threads.spawn(read)).collect();
        for hour in [1, 3, 4] {
            let file = open_samples(&blocks[hour]);
            change(&file, 64, |byte| byte ^ 0xa5, length(&file) as usize / 2);
            let so_far = answers.load(Ordering::SeqCst);
            while answers.load(Ordering::SeqCst) < so_far + 12 && !readers[0].is_finished() {
                thread::yield_now();
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
    // What memory still answered is read from the disk by the merge.
    bench.set_clock(NEXT_DAY);
    let _ = bench.store.seal();
    bench.store.seal().unwrap();
    expect_without(&bench, &[1, 3, 4], "three blocks");
    assert_eq!(bench.metric("takt_store_damaged_files "), 3.0);
    for hour in [1, 3, 4] {
        let name = blocks[hour].file_name().unwrap().to_string_lossy();
        let mut all = fs::read_dir(root.path().join("blocks/raw")).unwrap();
        let aside = format!("{name}.damaged-");
        let is_there = all.any(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with(&aside)
        });
        assert!(is_there, "{aside}");
    }
    assert_eq!(bench.blocks("1h"), 1);
}

/// A block is damaged while its day is merged and down-sampled.
#[test]
fn a_block_that_is_damaged_during_a_merge_is_set_aside() {
    let root = tempdir().unwrap();
    let bench = day(root.path());
    let blocks = raw_blocks(root.path());
    let file = open_samples(&blocks[2]);
    bench.set_clock(NEXT_DAY);
    thread::scope(|threads| {
        let merge = threads.spawn(|| {
            while bench.blocks("1h") == 0 {
                let _ = bench.store.seal();
            }
        });
        // The block differs from moment to moment, and stays damaged.
        for n in 0..40 {
            if !blocks[2].exists() || merge.is_finished() {
                break;
            }
            let at = 64 + n * 97 % (length(&file) - 200);
            change(&file, at, |byte| byte ^ 0x11, 64);
            thread::yield_now();
        }
    });
    bench.store.seal().unwrap();
    let damaged = bench.metric("takt_store_damaged_files ");
    // The merge may have been done before the first change.
    if damaged == 0.0 {
        expect_without(&bench, &[], "merged before");
    } else {
        assert_eq!(damaged, 1.0);
        expect_without(&bench, &[2], "damaged while merged");
    }
    assert_eq!(bench.blocks("raw"), 1);
    assert_eq!(bench.store.database().verify_blocks().unwrap(), [""; 0]);
}

/// A single bit, which usually changes a value and fails no decoder: a merge must not make a good
/// block of it.
#[test]
fn a_merge_keeps_no_value_that_a_flipped_bit_has_changed() {
    let kept = tempdir().unwrap();
    drop(day(kept.path()));
    let flips = match env::var_os("TAKT_TEST_SEEDS") {
        Some(_) => 10 * FLIPS,
        None => FLIPS,
    };
    for flip in 0..flips {
        let root = tempdir().unwrap();
        copy(kept.path(), root.path());
        let blocks = raw_blocks(root.path());
        let hour = flip as i64 % HOURS;
        let file = open_samples(&blocks[hour as usize]);
        let place = flip.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (length(&file) - 16);
        change(&file, place, |byte| byte ^ (1 << (flip % 8)), 1);
        let bench = Bench::open(root.path(), &config(), NEXT_DAY);
        let _ = bench.store.seal();
        bench.store.seal().unwrap();
        expect_without(&bench, &[hour], &format!("bit {place} of hour {hour}"));
        assert_eq!(bench.metric("takt_store_damaged_files "), 1.0, "{place}");
    }
}

/// Any changed byte in a block's list of series, while the database has lost its own: no series with
/// another name may come of it.
#[test]
fn no_series_is_restored_from_a_damaged_list() {
    let kept = tempdir().unwrap();
    drop(day(kept.path()));
    fs::remove_file(kept.path().join("hot.duckdb")).unwrap();
    for flip in 0..FLIPS {
        let root = tempdir().unwrap();
        copy(kept.path(), root.path());
        let blocks = raw_blocks(root.path());
        let hour = flip as i64 % HOURS;
        let file = open_file(&blocks[hour as usize], "series.parquet");
        let place = 4 + flip * (length(&file) - 8) / FLIPS;
        change(&file, place, |byte| byte ^ 0x41, 4);
        let bench = Bench::open(root.path(), &config(), NEXT_DAY);
        expect_without(&bench, &[hour], &format!("byte {place} of hour {hour}"));
        assert_eq!(bench.metric("takt_store_damaged_files "), 1.0, "{place}");
        assert_eq!(bench.metric("takt_store_series "), METRICS.len() as f64);
        // A restart does not forget it.
        drop(bench);
        let bench = Bench::open(root.path(), &config(), NEXT_DAY);
        assert_eq!(bench.metric("takt_store_damaged_files "), 1.0, "{place}");
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
