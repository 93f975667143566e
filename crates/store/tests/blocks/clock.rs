//! A clock that is set, and what it must not delete.

use super::bench_store::{BEGIN, Bench, DAY, HOUR, SECOND, config};
use std::fs;
use std::path::Path;
use takt_model::{Labels, METRIC_NAME, Timestamp};
use takt_store::{Group, STALE, Sample, StoreConfig};
use tempfile::tempdir;

const MINUTE: i64 = 60 * SECOND;
const YEAR: i64 = 366 * DAY;

fn kept_for(days: u64) -> StoreConfig {
    StoreConfig {
        retention_days: days,
        retention_5m_days: 0,
        retention_1h_days: 0,
        ..config()
    }
}

/// Folders below `removed/`, as `DAY/RESOLUTION/BLOCK`.
fn removed(root: &Path) -> Vec<String> {
    let names = |path: &Path| -> Vec<String> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect()
    };
    let root = root.join("removed");
    let mut found = Vec::new();
    for day in names(&root) {
        for resolution in names(&root.join(&day)) {
            let blocks = names(&root.join(&day).join(&resolution));
            found.extend(
                blocks
                    .iter()
                    .map(|block| format!("{day}/{resolution}/{block}")),
            );
        }
    }
    found
}

/// Seconds since 1970 at which a witness was booted. The server's machine was at 0.
const BOOTED: f64 = 1e6;

fn target(node: &str) -> Labels {
    [("node", node)].into_iter().collect()
}

/// Writes what NTP-kept targets say about the clock, in a group of their own. Returns both.
fn witness(bench: &Bench, ahead_ms: &[i64]) -> (Vec<Labels>, Group) {
    let of_target = |number| target(&format!("n{number}"));
    let targets: Vec<Labels> = (0..ahead_ms.len()).map(of_target).collect();
    let group = write_witnesses(bench, &targets, ahead_ms, BOOTED);
    (targets, group)
}

fn readings(target: &Labels, time: Timestamp, booted: f64) -> [(Labels, f64); 3] {
    [
        ("node_time_seconds", time.0 as f64 / 1e3),
        ("node_timex_sync_status", 1.0),
        ("node_boot_time_seconds", booted),
    ]
    .map(|(metric, value)| {
        let mut labels = target.clone();
        labels.set(METRIC_NAME, metric);
        (labels, value)
    })
}

fn write_witnesses(bench: &Bench, targets: &[Labels], ahead_ms: &[i64], booted: f64) -> Group {
    let group = bench.store.group();
    bench.set_clock(bench.now() + SECOND);
    let at = Timestamp(bench.now());
    let mut values = Vec::new();
    for (target, ahead) in targets.iter().zip(ahead_ms) {
        for (labels, value) in readings(target, at.plus_ms(*ahead), booted) {
            values.push((group.column(&labels).unwrap().index(), value));
        }
    }
    let mut row = vec![STALE; group.width()];
    for (column, value) in values {
        row[column] = value;
    }
    let ticket = group.ticket(at).unwrap();
    group.commit(ticket, &row, &[]).unwrap();
    bench.set_clock(bench.now() + SECOND);
    group
}

#[test]
fn a_clock_a_year_ahead_deletes_no_sample_and_poisons_no_block() {
    let root = tempdir().unwrap();
    let bench = Bench::open(root.path(), &kept_for(15), BEGIN);
    bench.scrape_and_seal(BEGIN, BEGIN + 3 * HOUR, MINUTE);
    bench.jump(YEAR);
    let wrong = bench.now() + MINUTE;
    bench.scrape_all(wrong, wrong + MINUTE, SECOND);
    for _ in 0..3 {
        bench.store.seal().unwrap();
    }
    assert_eq!(
        bench.metric("takt_store_clock_trusted"),
        1.0,
        "not heard yet"
    );
    let state = bench.store.hear_witnesses(&[]).unwrap();
    assert!(!state.is_trusted);
    assert_eq!(bench.metric("takt_store_clock_trusted"), 0.0);
    let ahead = bench.metric("takt_store_clock_ahead_seconds");
    assert!((ahead - (YEAR / 1000) as f64).abs() < 100.0, "{ahead}");
    bench.expect_all(BEGIN, BEGIN + 3 * HOUR, MINUTE);
    assert_eq!(removed(root.path()), Vec::<String>::new());
    drop(bench);

    // The clock is corrected; the server opens the store again.
    let now = BEGIN + 3 * HOUR + 3 * MINUTE;
    let bench = Bench::open(root.path(), &kept_for(15), now);
    assert!(bench.store.database().clock_state().is_trusted);
    let from = now + MINUTE;
    bench.scrape_and_seal(from, from + HOUR, MINUTE);
    bench.expect_all(from, from + HOUR, MINUTE);
    bench.expect_all(BEGIN, BEGIN + 3 * HOUR, MINUTE);
    // No block has samples of both times, so the day of the true ones can be merged and expire.
    let blocks = bench.store.database().stat().unwrap().blocks;
    assert!(
        blocks.iter().all(|block| block.to - block.from < DAY),
        "{blocks:?}"
    );
    assert!(blocks.iter().any(|block| block.from.0 >= wrong));
}

#[test]
fn blocks_expire_after_their_time_and_can_be_brought_back_for_a_day() {
    let root = tempdir().unwrap();
    let bench = Bench::open(root.path(), &kept_for(3), BEGIN);
    bench.scrape_and_seal(BEGIN, BEGIN + HOUR, MINUTE);
    for day in 1..5 {
        bench.scrape_all(BEGIN + day * DAY, BEGIN + day * DAY + HOUR, MINUTE);
        bench.store.seal().unwrap();
    }
    assert_eq!(bench.samples(0, BEGIN, BEGIN + HOUR), []);
    drop(bench);
    let found = removed(root.path());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("2026-11-25/raw/2026-11-21T"),
        "{found:?}"
    );

    // The documented way back.
    let name = found[0].rsplit('/').next().unwrap();
    fs::rename(
        root.path().join("removed").join(&found[0]),
        root.path().join("blocks/raw").join(name),
    )
    .unwrap();
    let end = BEGIN + 4 * DAY + HOUR;
    let bench = Bench::open(root.path(), &kept_for(30), end);
    assert_eq!(bench.samples(0, BEGIN, BEGIN + HOUR).len(), 60);
    drop(bench);

    // With the short retention it is removed again, and deleted a day after.
    let bench = Bench::open(root.path(), &kept_for(3), end);
    bench.store.seal().unwrap();
    bench.set_clock(end + MINUTE);
    bench.store.seal().unwrap();
    let first = |found: &[String]| found.iter().any(|path| path.ends_with(name));
    assert!(first(&removed(root.path())));
    assert!(bench.metric("takt_store_removed_bytes") > 1000.0);
    bench.scrape_all(end + DAY, end + DAY + MINUTE, SECOND);
    bench.store.seal().unwrap();
    assert!(first(&removed(root.path())), "kept for a day at least");
    bench.scrape_all(end + 2 * DAY, end + 2 * DAY + MINUTE, SECOND);
    bench.store.seal().unwrap();
    assert!(!first(&removed(root.path())));
}

#[test]
fn after_a_month_off_samples_expire_once_targets_confirm_the_time() {
    let root = tempdir().unwrap();
    let bench = Bench::open(root.path(), &kept_for(15), BEGIN);
    bench.scrape_and_seal(BEGIN, BEGIN + HOUR, MINUTE);
    drop(bench);
    // Another boot of the machine.
    let file = root.path().join("clock.json");
    let saved = fs::read_to_string(&file).unwrap();
    assert!(saved.contains("\"given\""), "{saved}");
    fs::write(&file, saved.replace("\"given\"", "\"earlier\"")).unwrap();

    let month = BEGIN + 30 * DAY;
    let bench = Bench::open(root.path(), &kept_for(15), month);
    bench.scrape_all(month, month + MINUTE, SECOND);
    bench.store.seal().unwrap();
    bench.store.seal().unwrap();
    assert!(!bench.store.hear_witnesses(&[]).unwrap().is_trusted);
    assert_eq!(bench.samples(0, BEGIN, BEGIN + HOUR).len(), 60);

    let (targets, group) = witness(&bench, &[-YEAR, -YEAR, 0]);
    assert!(!bench.store.hear_witnesses(&targets).unwrap().is_trusted);
    drop(group);
    bench.set_clock(bench.now() + 30 * SECOND);
    let (targets, _group) = witness(&bench, &[300, -200, -YEAR]);
    assert!(bench.store.hear_witnesses(&targets).unwrap().is_trusted);
    bench.store.seal().unwrap();
    assert_eq!(bench.samples(0, BEGIN, BEGIN + HOUR), []);
}

/// A sender of pushed series, the server's own exporter, and two targets of one node.
#[test]
fn neither_pushed_series_nor_the_servers_own_machine_confirm_a_clock() {
    let root = tempdir().unwrap();
    let bench = Bench::open(root.path(), &kept_for(15), BEGIN);
    bench.scrape_and_seal(BEGIN, BEGIN + HOUR, MINUTE);
    bench.jump(YEAR);
    bench.set_clock(bench.now() + 40 * SECOND);
    let is_trusted = |targets: &[Labels]| bench.store.hear_witnesses(targets).unwrap().is_trusted;

    let pushed: Vec<Labels> = (0..100).map(|n| target(&format!("pushed{n}"))).collect();
    let _others = write_witnesses(&bench, &pushed, &[0; 100], BOOTED);
    assert!(!is_trusted(&[target("n0"), target("n1")]), "no targets");

    let group = bench.store.pushed_group();
    let at = Timestamp(bench.now());
    let samples: Vec<_> = ["p0", "p1"]
        .into_iter()
        .flat_map(|node| readings(&target(node), at, BOOTED))
        .map(|(labels, value)| (group.column(&labels).unwrap(), Sample { at, value }))
        .collect();
    let placed = bench.store.place(&group, &samples).unwrap();
    bench.store.confirm(&group, &placed).unwrap();
    let stands_for = [target("p0"), target("p1")];
    assert!(
        !is_trusted(&stands_for),
        "pushed with the labels of targets"
    );

    let own = [target("own0"), target("own1"), target("own2")];
    let booted = (YEAR / 1000) as f64;
    let _own = write_witnesses(&bench, &own, &[0; 3], booted);
    assert!(!is_trusted(&own), "they show the clock that is judged");

    let mut twice = [target("n1"), target("n1")];
    twice[1].set("job", "other");
    let group = write_witnesses(&bench, &twice, &[0; 2], BOOTED);
    assert!(!is_trusted(&twice), "one node has one vote");

    drop(group);
    let (all, _group) = witness(&bench, &[0, 0]);
    assert!(is_trusted(&all));
    assert!(bench.store.database().clock_state().is_trusted);
}

/// The name of the boot cannot be read, or is another one's: its uptime was longer.
#[test]
fn time_passes_after_a_boot_whose_name_is_not_known() {
    for boot in ["given", ""] {
        let root = tempdir().unwrap();
        let bench = Bench::open(root.path(), &kept_for(15), BEGIN);
        bench.scrape_and_seal(BEGIN, BEGIN + HOUR, MINUTE);
        drop(bench);
        let file = root.path().join("clock.json");
        let text = fs::read_to_string(&file).unwrap();
        let mut saved: serde_json::Value = serde_json::from_str(&text).unwrap();
        saved["boot"] = boot.into();
        let seen = saved["time"]["seen_ms"].as_i64().unwrap();
        for reading in ["seen_ms", "stands_since_ms"] {
            saved["time"][reading] = (seen + YEAR).into();
        }
        fs::write(&file, saved.to_string()).unwrap();

        let bench = Bench::open(root.path(), &kept_for(15), BEGIN + HOUR + MINUTE);
        bench.set_clock(bench.now() + HOUR);
        let state = bench.store.database().clock_state();
        assert!(state.is_trusted, "{boot:?}: {state:?}");
        assert_eq!(state.trusted.0, bench.now());
    }
}

/// The clock is right, and no other node can say so.
#[test]
fn after_a_month_off_samples_expire_without_other_nodes_a_day_later() {
    let root = tempdir().unwrap();
    let bench = Bench::open(root.path(), &kept_for(15), BEGIN);
    bench.scrape_and_seal(BEGIN, BEGIN + HOUR, MINUTE);
    drop(bench);
    let file = root.path().join("clock.json");
    let saved = fs::read_to_string(&file).unwrap();
    fs::write(&file, saved.replace("\"given\"", "\"earlier\"")).unwrap();

    let month = BEGIN + 30 * DAY;
    let bench = Bench::open(root.path(), &kept_for(15), month);
    bench.scrape_all(month, month + HOUR, MINUTE);
    let own = [target("own")];
    let _own = write_witnesses(&bench, &own, &[0], 0.0);
    assert!(!bench.store.hear_witnesses(&own).unwrap().is_trusted);
    bench.scrape_all(month + DAY - HOUR, month + DAY - MINUTE, MINUTE);
    bench.store.seal().unwrap();
    assert_eq!(bench.samples(0, BEGIN, BEGIN + HOUR).len(), 60);

    bench.set_clock(month + DAY);
    bench.store.seal().unwrap();
    assert!(bench.store.database().clock_state().is_trusted);
    assert_eq!(bench.samples(0, BEGIN, BEGIN + HOUR), []);
    // The samples of today stay.
    assert_eq!(bench.samples(0, month, month + HOUR).len(), 60);
}
