//! A disk that is full for a while: samples wait, the status shows the reason, and no sample is
//! lost.

use crate::support::{Answer, Scraping, TEXT, Target, config, open, target};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use takt_store::Health;
use tempfile::tempdir;

const DIRECTORY: &str = "TAKT_TEST_DIRECTORY";
const TARGET: &str = "TAKT_TEST_TARGET";
const SERIES: usize = 500;

/// Scrapes until stdin ends, and prints how samples reach the disk. A line on stdin requests a
/// checkpoint. An invalid database is reopened, as in `takt serve`.
#[test]
#[ignore = "the full disk tests start this as a process of its own"]
fn ingest_and_tell() {
    let directory = env::var_os(DIRECTORY).unwrap();
    let address: SocketAddr = env::var(TARGET).unwrap().parse().unwrap();
    let mut asked = io::stdin().lines();
    loop {
        let scraping = Scraping::start(
            Path::new(&directory),
            config(100, vec![target(address, "g01")]),
        );

        let store = Arc::clone(&scraping.store);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);

        // The parent reads a line for each change; 5 ms are short enough to see a state that lasts one commit.
        let teller = thread::spawn(move || {
            let mut said = String::new();
            while !stopped.load(Ordering::Relaxed) {
                let now = format!(
                    "health {:?} watermark {}",
                    *store.health().borrow(),
                    store.watermark().0
                );
                if said != now {
                    writeln!(io::stdout(), "{now}").unwrap();
                    said = now;
                }
                thread::sleep(Duration::from_millis(5));
            }
        });

        // The end of stdin means a clean stop. Otherwise the parent asks for the checkpoint that fails.
        let is_asked = asked.next().is_some();
        if is_asked {
            let db = scraping.store.database().connect().unwrap();
            // The writer rejects the checkpoint while it is busy.
            scraping.wait_until("the checkpoint has failed", |all| {
                let _ = db.execute_batch("CHECKPOINT hot");
                matches!(*all.store.health().borrow(), Health::Invalidated(_))
            });

            // The other thread must print the state before it stops.
            thread::sleep(Duration::from_millis(100));
        }
        stop.store(true, Ordering::Relaxed);
        teller.join().unwrap();
        drop(scraping.stop());
        if !is_asked {
            return;
        }
    }
}

/// Starts a process with a limit on the file size. Every write above it fails, as on a full disk.
/// The shell makes the process ignore the signal of such a write.
fn start(directory: &Path, served: &Target) -> Child {
    Command::new("sh")
        .args(["-c", r#"trap "" XFSZ; exec "$0" "$@""#])
        .arg(env::current_exe().unwrap())
        .args([
            "--exact",
            "full_disk::ingest_and_tell",
            "--ignored",
            "--nocapture",
        ])
        .env(DIRECTORY, directory)
        .env(TARGET, served.address.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn counting_target() -> Target {
    Target::start(|_, number| {
        Answer::Page(
            TEXT,
            (0..SERIES)
                .map(|series| format!("scrapes{{series=\"{series}\"}} {number}\n"))
                .collect(),
        )
    })
}

#[test]
fn samples_wait_while_the_disk_is_full() {
    let root = tempdir().unwrap();

    let served = counting_target();
    let mut child = start(root.path(), &served);
    let health = printed_lines(&mut child);
    wait_for(&health, "Writing");

    // A second of samples makes sure that the log exists and grows.
    thread::sleep(Duration::from_secs(1));
    let log = fs::read_dir(root.path().join("unsealed"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|found| found == "log"))
        .unwrap();

    // The limit is a little above the log's present size, so a write fails in the middle of the file.
    limit_files(&child, Some(fs::metadata(&log).unwrap().len() + 20_000));
    let said = wait_for(&health, "Waiting");
    assert!(
        said.contains("cannot store samples") && said.contains(".log"),
        "{said}"
    );

    // Scrapes of this second have to wait in memory.
    thread::sleep(Duration::from_secs(1));
    limit_files(&child, None);
    wait_for(&health, "Writing");
    thread::sleep(Duration::from_millis(500));

    // The end of stdin stops the child, which then commits all that waits.
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());

    let Stored {
        rows,
        scrapes,
        failed,
        last,
    } = stored(root.path());
    assert_eq!(rows, SERIES * scrapes, "every scrape is there once");

    assert_eq!(scrapes + failed, last, "every scrape is there once");
}

#[test]
fn a_failed_checkpoint_makes_the_owner_reopen_the_database() {
    let root = tempdir().unwrap();
    let served = counting_target();
    let mut child = start(root.path(), &served);
    let health = printed_lines(&mut child);
    wait_for(&health, "Writing");
    thread::sleep(Duration::from_secs(1));
    // The log may still grow, but the database, which grows in blocks of 256 KiB, may not.
    limit_files(
        &child,
        Some(
            fs::metadata(root.path().join("hot.duckdb.wal"))
                .unwrap()
                .len()
                + 100_000,
        ),
    );
    child
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"checkpoint\n")
        .unwrap();
    let said = wait_for(&health, "Invalidated");
    assert!(
        said.contains("must be reopened") && said.contains("checkpointing failed"),
        "{said}"
    );
    limit_files(&child, None);
    let again = wait_for(&health, "Writing");
    thread::sleep(Duration::from_secs(1));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());

    let durable = |line: &str| {
        line.rsplit_once("watermark ")
            .unwrap()
            .1
            .parse::<i64>()
            .unwrap()
    };

    // A watermark that moves back would take back a promise: these samples were reported as durable.
    assert!(durable(&again) >= durable(&said), "{said} {again}");
    let Stored {
        rows,
        scrapes,
        failed,
        last,
    } = stored(root.path());
    assert_eq!(
        rows,
        SERIES * scrapes,
        "no scrape is there in part or twice"
    );
    // Thirty scrapes are three seconds at 100 ms: samples not yet durable at the failure may be lost.
    assert!(
        scrapes + failed + 30 > last,
        "{scrapes} of {last}: more is gone than what was on its way"
    );
}

/// The stored samples of the counting series.
struct Stored {
    rows: usize,
    scrapes: usize,
    /// Number of scrapes recorded as failed: on a busy machine one may time out.
    failed: usize,
    /// Number of the last scrape.
    last: usize,
}

fn stored(directory: &Path) -> Stored {
    let store = open(directory, &mut Default::default());
    assert_eq!(store.database().damaged(), []);
    let db = store.database().connect().unwrap();
    let sql = "SELECT count(value) FILTER (metric = 'scrapes'), count(DISTINCT value) FILTER (metric = 'scrapes'),
                      count(*) FILTER (metric = 'up' AND value = 0), max(value::BIGINT) FILTER (metric = 'scrapes')
               FROM samples";
    db.query_row(sql, [], |row| {
        Ok(Stored {
            rows: row.get(0)?,
            scrapes: row.get(1)?,
            failed: row.get(2)?,
            last: row.get(3)?,
        })
    })
    .unwrap()
}

fn printed_lines(child: &mut Child) -> Receiver<String> {
    let (send, receive) = channel();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    thread::spawn(move || {
        stdout
            .lines()
            .map_while(Result::ok)
            .for_each(|line| drop(send.send(line)))
    });
    receive
}

fn wait_for(health: &Receiver<String>, wanted: &str) -> String {
    loop {
        let line = health
            .recv_timeout(Duration::from_secs(20))
            .unwrap_or_else(|_| panic!("never became {wanted}"));
        if line.contains("health ") && line.contains(wanted) {
            return line;
        }
    }
}

fn limit_files(child: &Child, bytes: Option<u64>) {
    let pid = Pid::from_raw(child.id().cast_signed());

    // Only the soft limit changes: without privileges, a lowered hard limit cannot be raised again.
    let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
    let limit = Rlimit {
        current: bytes.or(maximum),
        maximum,
    };
    prlimit(pid, Resource::Fsize, limit).unwrap();
}
