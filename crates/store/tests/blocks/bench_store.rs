//! A store with a clock controlled by the test, and a few series whose values follow from the time.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use takt_model::Matcher;
use takt_model::{Labels, METRIC_NAME, Timestamp};
use takt_store::{Clock, DataDir, Group, Store, StoreConfig, StoreError, is_stale};

/// A midnight, in milliseconds.
pub const BEGIN: i64 = 1_795_219_200_000;
pub const SECOND: i64 = 1000;
pub const HOUR: i64 = 3600 * SECOND;
pub const DAY: i64 = 24 * HOUR;

pub const METRICS: [&str; 4] = ["counter_total", "power_watts", "share", "constant"];

/// Configuration in which the test decides when to seal.
pub fn config() -> StoreConfig {
    StoreConfig {
        commit_interval_ms: 20,
        min_free_bytes: 0,
        // A day, so that no segment ends by itself within a test.
        seal_minutes: 1440,
        ..StoreConfig::default()
    }
}

/// Value of a series at a time: a counter, a decimal, a fraction that is not a decimal, a constant.
pub fn value(metric: usize, at: i64) -> f64 {
    let seconds = (at - BEGIN) as f64 / 1000.0;
    match metric {
        0 => seconds.floor(),
        1 => ((seconds / 7.0).sin() * 1000.0).round() / 10.0,
        2 => (seconds / 11.0).cos() / 3.0,
        _ => 42.0,
    }
}

/// Labels of a series.
pub fn labels(metric: usize) -> Labels {
    [
        (METRIC_NAME, METRICS[metric]),
        ("node", ["g01", "g02"][metric % 2]),
    ]
    .into_iter()
    .collect()
}

/// Claims a directory. Another test that starts a program at this moment holds a copy of the lock until
/// the program has begun.
pub fn claim(root: &Path) -> DataDir {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match DataDir::claim(root) {
            Err(StoreError::Held { .. }) if Instant::now() < until => {
                thread::sleep(Duration::from_millis(5));
            }
            claimed => return claimed.unwrap(),
        }
    }
}

pub struct Bench {
    pub store: Store,
    registry: Registry,
    now: Arc<AtomicI64>,
    /// Milliseconds by which the clock was set, of which no time has passed.
    jumped: Arc<AtomicI64>,
    group: Group,
}

impl Bench {
    pub fn open(root: &Path, config: &StoreConfig, now: i64) -> Self {
        let now = Arc::new(AtomicI64::new(now));
        let jumped = Arc::new(AtomicI64::new(0));
        let shown = Arc::clone(&now);
        // The time since boot follows the clock, but not its jumps.
        let [passed, by] = [Arc::clone(&now), Arc::clone(&jumped)];
        let mut registry = Registry::default();
        let clock = Clock::new(move || Timestamp(shown.load(Ordering::SeqCst)))
            .with_boot_ms(move || passed.load(Ordering::SeqCst) - by.load(Ordering::SeqCst));
        let store = Store::open_at(claim(root), config, &mut registry, clock).unwrap();
        let group = store.group();
        Self {
            store,
            registry,
            now,
            jumped,
            group,
        }
    }

    pub fn set_clock(&self, now: i64) {
        self.now.store(now, Ordering::SeqCst);
    }

    /// Sets the clock by a jump: no time passes.
    pub fn jump(&self, by: i64) {
        self.jumped.fetch_add(by, Ordering::SeqCst);
        self.now.fetch_add(by, Ordering::SeqCst);
        // The store notices a jump when its clock is read.
        self.store.database().clock_state();
    }

    pub fn now(&self) -> i64 {
        self.now.load(Ordering::SeqCst)
    }

    /// Sets the clock to `at` and writes a row of all series.
    pub fn scrape(&self, at: i64) {
        self.set_clock(at);
        let ticket = self.group.ticket(Timestamp(at)).unwrap();
        assert_eq!(ticket.at(), Timestamp(at));
        let columns: Vec<usize> = (0..METRICS.len())
            .map(|metric| self.group.column(&labels(metric)).unwrap().index())
            .collect();
        let mut row = vec![0.0; self.group.width()];
        for (metric, column) in columns.into_iter().enumerate() {
            row[column] = value(metric, at);
        }
        self.group.commit(ticket, &row, &[]).unwrap();
    }

    /// Writes rows in `[from, to)`.
    pub fn scrape_all(&self, from: i64, to: i64, step: i64) {
        for (n, at) in (from..to).step_by(step as usize).enumerate() {
            self.scrape(at);
            // The queue is bounded and would drop samples.
            if n % 1000 == 999 {
                self.store.flush();
            }
        }
        self.store.flush();
    }

    /// Writes rows, and seals after each hour.
    pub fn scrape_and_seal(&self, from: i64, to: i64, step: i64) {
        for hour in (from..to).step_by(HOUR as usize) {
            self.scrape_all(hour, to.min(hour + HOUR), step);
            self.store.seal().unwrap();
        }
    }

    /// Samples of a series, from memory and disk.
    pub fn samples(&self, metric: usize, from: i64, to: i64) -> Vec<(i64, f64)> {
        self.samples_of(METRICS[metric], from, to)
    }

    /// The samples of the only series of a metric.
    pub fn samples_of(&self, metric: &str, from: i64, to: i64) -> Vec<(i64, f64)> {
        let metric = [Matcher::metric(metric)];
        let found = self
            .store
            .range(&metric, Timestamp(from), Timestamp(to))
            .unwrap();
        assert!(found.len() <= 1);
        found
            .iter()
            .flat_map(|series| &series.samples)
            .filter(|sample| !is_stale(sample.value))
            .map(|sample| (sample.at.0, sample.value))
            .collect()
    }

    /// Asserts that every written sample exists exactly once, bit for bit.
    #[track_caller]
    pub fn expect_all(&self, from: i64, to: i64, step: i64) {
        for (metric, name) in METRICS.iter().enumerate() {
            let found = self.samples(metric, from, to - 1);
            let expected: Vec<_> = (from..to)
                .step_by(step as usize)
                .map(|at| (at, value(metric, at)))
                .collect();
            let missing = expected.iter().find(|sample| !found.contains(sample));
            let count = found.len();
            let wanted = expected.len();
            assert!(
                found == expected,
                "{name}: {count} samples, expected {wanted}; missing: {missing:?}"
            );
        }

        // A query could hide a duplicate, so rows are counted in SQL, too.
        let db = self.store.database().connect().unwrap();
        let sql = "SELECT count(*), count(DISTINCT (metric, labels, ts)) FROM samples WHERE value IS NOT NULL";
        let counts: (i64, i64) = db
            .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        assert_eq!(counts.0, counts.1, "a sample is there twice");
    }

    /// Value of one of the store's own metrics, found by the beginning of its line.
    pub fn metric(&self, line: &str) -> f64 {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text.lines()
            .find_map(|found| found.strip_prefix(line))
            .unwrap_or_else(|| panic!("{line}: {text}"))
            .trim()
            .parse()
            .unwrap()
    }

    /// Number of blocks of a resolution.
    pub fn blocks(&self, resolution: &str) -> usize {
        self.store
            .database()
            .stat()
            .unwrap()
            .blocks
            .iter()
            .filter(|block| block.resolution == resolution)
            .count()
    }
}
