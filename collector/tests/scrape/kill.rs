//! `kill -9` at any moment: all samples reported as durable are stored, and none twice.

use crate::support::{Answer, Scraping, TEXT, Target, config, now, open, target};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};
use takt_model::Timestamp;
use takt_store::Store;
use tempfile::tempdir;

const DIRECTORY: &str = "TAKT_TEST_DIRECTORY";
const TARGET: &str = "TAKT_TEST_TARGET";
const NODES: [&str; 3] = ["g01", "g02", "g03"];
const SERIES: usize = 40;
const KILLS: usize = 20;

/// Scrapes until it is killed, and prints each time up to which all samples are durable.
#[test]
#[ignore = "the kill test starts this as a process of its own"]
fn ingest_until_killed() {
    let directory = env::var_os(DIRECTORY).unwrap();
    let address: SocketAddr = env::var(TARGET).unwrap().parse().unwrap();
    let targets = NODES.map(|node| target(address, node)).to_vec();
    let scraping = Scraping::start(Path::new(&directory), config(100, targets));
    let mut said = scraping.store.watermark();
    loop {
        let watermark = scraping.store.watermark();
        if watermark > said {
            said = watermark;
            writeln!(io::stdout(), "watermark {}", said.0).unwrap();
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn twenty_kills_lose_nothing_that_was_durable() {
    let root = tempdir().unwrap();
    // Arrival time of each scrape by its number: its timestamp is no later.
    let arrivals = Arc::new(Mutex::new(BTreeMap::new()));
    let arrived = Arc::clone(&arrivals);
    let served = Target::start(move |_, number| {
        arrived.lock().unwrap().insert(number, now());
        Answer::Page(
            TEXT,
            (0..SERIES)
                .map(|series| format!("scrapes{{series=\"{series}\"}} {number}\n"))
                .collect(),
        )
    });
    let mut must_have = BTreeSet::new();
    let mut clock = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .subsec_nanos();
    for kill in 0.. {
        // A busy machine needs more rounds for the same number of scrapes.
        if kill >= KILLS && must_have.len() > 5 * KILLS {
            return;
        }
        assert!(
            kill < 5 * KILLS,
            "only {} scrapes were durable: the test tested little",
            must_have.len()
        );
        let first = arrivals.lock().unwrap().len() as u64 + 1;
        let mut child = Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                "kill::ingest_until_killed",
                "--ignored",
                "--nocapture",
            ])
            .env(DIRECTORY, root.path())
            .env(TARGET, served.address.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Kill at any moment, from before the first commit to about the tenth.
        clock = clock.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        thread::sleep(Duration::from_millis(200 + u64::from(clock >> 16) % 1300));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut said = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        let watermarks = said
            .lines()
            .filter_map(|line| line.strip_prefix("watermark ")?.parse().ok());
        if let Some(watermark) = watermarks.max() {
            let arrivals = arrivals.lock().unwrap();
            // A timestamp may move to the grid by up to 2 ms.
            let durable = arrivals
                .range(first..)
                .filter(|(_, at)| at.0 + 2 <= watermark)
                .map(|(&number, _)| number);
            must_have.extend(durable);
        }
        let store = open(root.path(), &mut Default::default());
        check(&store, &must_have, kill);
    }
}

fn check(store: &Store, must_have: &BTreeSet<u64>, kill: usize) {
    assert_eq!(store.database().damaged(), [], "kill {kill}");
    let db = store.database().connect().unwrap();
    let stored: BTreeMap<u64, (usize, usize)> = db
        .prepare(
            "SELECT value::BIGINT, count(*), count(DISTINCT ts) FROM samples WHERE metric = 'scrapes' GROUP BY value",
        )
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let missing: Vec<_> = must_have
        .iter()
        .filter(|number| !stored.contains_key(number))
        .collect();
    // On a busy machine a scrape may time out after the target served it. It is then recorded as
    // failed.
    let failed: usize = db
        .query_row(
            "SELECT count(*) FROM samples WHERE metric = 'up' AND value = 0",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert!(
        missing.len() <= failed,
        "kill {kill}: scrapes {missing:?} were durable and are gone, {failed} failed"
    );
    let torn: Vec<_> = stored
        .iter()
        .filter(|(_, counts)| **counts != (SERIES, 1))
        .collect();
    assert!(
        torn.is_empty(),
        "kill {kill}: scrapes in part or twice: {torn:?}"
    );
    let doubled: i64 = db
        .query_row(
            "SELECT count(*) - count(DISTINCT (metric, labels, ts)) FROM samples",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(doubled, 0, "kill {kill}");
    let newest: Option<i64> = db
        .query_row("SELECT epoch_ms(max(ts)) FROM samples", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert!(
        newest.is_none_or(|newest| store.watermark() >= Timestamp(newest)),
        "kill {kill}"
    );
}
