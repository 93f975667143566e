//! Sealing and merging move samples and change nothing else.

use super::bench_store::{BEGIN, Bench, DAY, HOUR, METRICS, SECOND, config, value};
use takt_model::{Labels, METRIC_NAME, Matcher, Timestamp};
use takt_store::{Sample, StoreConfig};
use tempfile::tempdir;

const STEP: i64 = 15 * SECOND;

#[test]
fn sealing_keeps_every_sample() {
    let root = tempdir().unwrap();
    let end = BEGIN + 3 * HOUR;
    {
        let bench = Bench::open(root.path(), &config(), BEGIN);
        bench.scrape_all(BEGIN, BEGIN + HOUR, STEP);
        let kept = bench.store.seal().unwrap();
        assert_eq!(kept.written.len(), 1);
        assert_eq!(kept.rows, METRICS.len() as u64 * 240);
        bench.scrape_and_seal(BEGIN + HOUR, end, STEP);
        let stat = bench.store.database().stat().unwrap();
        assert_eq!(stat.hot_samples, 0);
        assert_eq!(stat.series, 4);
        let rows: u64 = stat.blocks.iter().map(|block| block.rows).sum();
        assert_eq!(rows, METRICS.len() as u64 * 720);
        assert_eq!(stat.blocks.len(), 3, "{stat:?}");
        bench.expect_all(BEGIN, end, STEP);
        assert_eq!(bench.store.database().verify_blocks().unwrap(), [""; 0]);
        assert_eq!(
            bench.metric("takt_store_sealed_samples_total "),
            rows as f64
        );
    }
    let bench = Bench::open(root.path(), &config(), end);
    bench.expect_all(BEGIN, end, STEP);
    // New samples are in the next segment.
    bench.scrape_all(end, end + HOUR, STEP);
    bench.expect_all(BEGIN, end + HOUR, STEP);
}

#[test]
fn a_day_becomes_one_block_and_gets_its_lower_resolutions() {
    let root = tempdir().unwrap();
    let bench = Bench::open(root.path(), &config(), BEGIN);
    let minute = 60 * SECOND;
    bench.scrape_and_seal(BEGIN, BEGIN + 25 * HOUR, minute);
    assert_eq!(bench.blocks("5m"), 1);
    assert_eq!(bench.blocks("1h"), 1);
    let stat = bench.store.database().stat().unwrap();
    let day = stat
        .blocks
        .iter()
        .find(|block| block.resolution == "raw")
        .unwrap();
    assert!(day.to - day.from > 20 * HOUR, "{stat:?}");
    bench.expect_all(BEGIN, BEGIN + 25 * HOUR, minute);
    // A second call changes nothing.
    assert_eq!(bench.store.keep().unwrap().written, [""; 0]);

    // Every five-minute row agrees with the samples.
    let db = bench.store.database().connect().unwrap();
    let sql = "SELECT epoch_ms(ts), samples, min, max, avg, last, increase FROM samples_5m WHERE metric = ? ORDER BY ts";
    for metric in [0, 1] {
        let rows: Vec<_> = db
            .prepare(sql)
            .unwrap()
            .query_map([METRICS[metric]], |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, i64>(1)?,
                    [2, 3, 4, 5, 6].map(|n| row.get::<_, f64>(n).unwrap()),
                ))
            })
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert!(rows.len() >= 12 * 22, "{}", rows.len());
        for (at, samples, [min, max, avg, last, increase]) in &rows[1..rows.len() - 1] {
            let part: Vec<f64> = (at - 300 * SECOND + minute..=*at)
                .step_by(minute as usize)
                .map(|t| value(metric, t))
                .collect();
            assert_eq!(*samples, 5);
            assert_eq!(*min, part.iter().copied().fold(f64::INFINITY, f64::min));
            assert_eq!(*max, part.iter().copied().fold(f64::NEG_INFINITY, f64::max));
            assert!((avg - part.iter().sum::<f64>() / 5.0).abs() < 1e-9);
            assert_eq!(*last, part[4]);
            if metric == 0 {
                assert_eq!(*increase, 300.0);
            }
        }
    }
}

#[test]
fn late_samples_with_own_timestamps_are_sorted_in() {
    let root = tempdir().unwrap();
    let own: Labels = [(METRIC_NAME, "own_time"), ("node", "g01")]
        .into_iter()
        .collect();
    let own_times = |bench: &Bench| -> Vec<i64> {
        bench
            .store
            .range(
                &[Matcher::metric("own_time")],
                Timestamp(0),
                Timestamp(i64::MAX),
            )
            .unwrap()
            .iter()
            .flat_map(|series| &series.samples)
            .map(|sample| sample.at.0)
            .collect()
    };
    let give = |bench: &Bench, now: i64, at: i64| {
        bench.set_clock(now);
        let group = bench.store.group();
        let column = group.column(&own).unwrap();
        let sample = Sample {
            at: Timestamp(at),
            value: 1.5,
        };
        group
            .commit(
                group.ticket(Timestamp(now)).unwrap(),
                &[f64::from_bits(0x7ff0_0000_0000_0002)],
                &[(column, sample)],
            )
            .unwrap();
        bench.store.flush();
    };
    {
        let bench = Bench::open(root.path(), &config(), BEGIN);
        give(&bench, BEGIN, BEGIN - 2 * HOUR);
        bench.store.seal().unwrap();
        give(&bench, BEGIN + HOUR, BEGIN - HOUR);
        bench.store.seal().unwrap();
        assert_eq!(own_times(&bench), [BEGIN - 2 * HOUR, BEGIN - HOUR]);
    }
    // A target repeats its sample after a restart. The store finds it in the blocks.
    let bench = Bench::open(root.path(), &config(), BEGIN + 2 * HOUR);
    give(&bench, BEGIN + 2 * HOUR, BEGIN - HOUR);
    give(&bench, BEGIN + 3 * HOUR, BEGIN + 2 * HOUR);
    assert_eq!(
        own_times(&bench),
        [BEGIN - 2 * HOUR, BEGIN - HOUR, BEGIN + 2 * HOUR]
    );
    let db = bench.store.database().connect().unwrap();
    let stored: i64 = db
        .query_row("SELECT count(*) FROM samples", [], |row| row.get(0))
        .unwrap();
    assert_eq!(stored, 3);
}

#[test]
fn a_small_memory_makes_the_same_blocks_in_more_slices() {
    let small = tempdir().unwrap();
    let large = tempdir().unwrap();
    let fill = |root: &std::path::Path, config: &StoreConfig| {
        let bench = Bench::open(root, config, BEGIN);
        bench.scrape_all(BEGIN, BEGIN + HOUR, SECOND / 4);
        bench.store.seal().unwrap();
        bench.expect_all(BEGIN, BEGIN + HOUR, SECOND / 4);
        bench.store.database().stat().unwrap().blocks
    };
    let one = fill(large.path(), &config());
    assert_eq!(one.len(), 1);
    assert_eq!(one[0].rows, 4 * 4 * 3600);
    // Far below the minimum of 16 MiB for servers: one slice per series and row.
    let found = fill(
        small.path(),
        &StoreConfig {
            seal_memory_mib: 0,
            ..config()
        },
    );
    assert_eq!(
        found.iter().map(|block| block.rows).sum::<u64>(),
        one[0].rows
    );
}

#[test]
fn deleting_a_series_leaves_the_others() {
    let root = tempdir().unwrap();
    let long = StoreConfig {
        retention_days: 30,
        ..config()
    };
    let end = BEGIN + DAY + 3 * HOUR;
    {
        let bench = Bench::open(root.path(), &long, BEGIN);
        bench.scrape_and_seal(BEGIN, end - HOUR, 60 * SECOND);
        bench.scrape_all(end - HOUR, end, 60 * SECOND);
        assert_eq!(bench.blocks("1h"), 1);
    }
    let gone = |bench: &Bench| {
        assert_eq!(bench.samples(0, BEGIN, end), []);
        assert_eq!(bench.samples(1, BEGIN, end - 1).len(), 27 * 60);
        let db = bench.store.database().connect().unwrap();
        for table in ["samples", "samples_5m", "samples_1h"] {
            let count = |metric: &str| -> i64 {
                db.query_row(
                    &format!("SELECT count(*) FROM {table} WHERE metric = ?"),
                    [metric],
                    |row| row.get(0),
                )
                .unwrap()
            };
            assert_eq!(count(METRICS[0]), 0, "{table}");
            assert!(count(METRICS[1]) > 0, "{table}");
        }
        assert_eq!(bench.store.database().verify_blocks().unwrap(), [""; 0]);
    };
    {
        let bench = Bench::open(root.path(), &long, end);
        let kept = bench.store.delete(&[Matcher::metric(METRICS[0])]).unwrap();
        assert!(kept.rows > 27 * 60, "{kept:?}");
        gone(&bench);
    }
    gone(&Bench::open(root.path(), &long, end));
}
