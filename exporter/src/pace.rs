//! The times at which collector threads read: shortly before each expected scrape.
//!
//! One reading for each scrape, finished just before it, gives the freshest values without making
//! the scrape wait, and costs no more than reading during the scrape.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Interval of readings before two scrapes have shown their interval.
const UNKNOWN_INTERVAL: Duration = Duration::from_secs(5);
const SHORTEST_INTERVAL: Duration = Duration::from_millis(500);
const LONGEST_INTERVAL: Duration = Duration::from_secs(15);

/// Largest error of a scraper's clock and the thread's wake-up together.
const JITTER: Duration = Duration::from_millis(50);

/// Shortest sleep.
const NEAR: Duration = Duration::from_millis(25);

/// Scrapes that are remembered: enough for two scrapers with different intervals.
const REMEMBERED: usize = 8;

/// The pace, shared by the collector threads and the page.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    rhythm: Rhythm,
    is_over: bool,
}

impl Pace {
    /// Notes a scrape. Returns the interval between two readings.
    pub fn scraped(&self, at: Instant) -> Duration {
        let mut state = self.lock();
        let before = state.rhythm.interval();
        state.rhythm.scraped(at);
        let interval = state.rhythm.interval();

        // Only then is a thread sleeping too long. To wake all of them because of a scraper's
        // jitter would cost more than their readings do.
        if interval + JITTER < before {
            self.changed.notify_all();
        }
        interval
    }

    /// Returns the interval between two readings, for one who looks at the page and is no scraper.
    pub fn interval(&self) -> Duration {
        self.lock().rhythm.interval()
    }

    /// Sleeps until the next reading, which takes about `duration`, is due. False when the exporter
    /// ends.
    pub fn wait(&self, duration: Duration) -> bool {
        let lead = JITTER + 2 * duration;
        let mut state = self.lock();
        let began = Instant::now();
        while !state.is_over {
            let next = state.rhythm.next(began, lead);
            let left = next.saturating_duration_since(Instant::now());
            if left <= NEAR {
                return true;
            }

            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        false
    }

    /// Sleeps, also through scrapes. False when the exporter ends.
    pub fn sleep(&self, duration: Duration) -> bool {
        let until = Instant::now() + duration;
        let mut state = self.lock();
        while !state.is_over {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }

            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        false
    }

    /// Ends the threads.
    pub fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The last scrapes.
#[derive(Debug, Default)]
struct Rhythm {
    scrapes: VecDeque<Instant>,
}

impl Rhythm {
    fn scraped(&mut self, at: Instant) {
        self.scrapes.truncate(REMEMBERED - 1);
        self.scrapes.push_front(at);
    }

    /// The shortest time between two scrapes.
    fn interval(&self) -> Duration {
        let scrapes = self.scrapes.iter();
        let intervals = scrapes.zip(self.scrapes.iter().skip(1));
        let intervals = intervals.map(|(later, earlier)| *later - *earlier);
        let shortest = intervals.min().unwrap_or(UNKNOWN_INTERVAL);
        shortest.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
    }

    /// The next reading: the first instant more than [`NEAR`] behind `after` that is `lead` before
    /// an expected scrape. Scrapes faster than the shortest interval postpone the expected scrapes,
    /// but not the next reading.
    fn next(&self, after: Instant, lead: Duration) -> Instant {
        let interval = self.interval();
        let Some(&last) = self.scrapes.front() else {
            return after + interval;
        };

        let since_last = (after + NEAR + lead).saturating_duration_since(last);
        let beats = (since_last.as_nanos() / interval.as_nanos() + 1) as u32;
        (last + interval * beats - lead).min(after + interval * 3 / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LEAD: Duration = Duration::from_millis(100);

    /// When the readings are due that follow those at `began`, after scrapes at `scrapes`; all in
    /// milliseconds.
    fn due(scrapes: &[u64], began: u64) -> u64 {
        let start = Instant::now();
        let mut rhythm = Rhythm::default();
        scrapes
            .iter()
            .for_each(|&at| rhythm.scraped(start + Duration::from_millis(at)));
        (rhythm.next(start + Duration::from_millis(began), LEAD) - start).as_millis() as u64
    }

    #[test]
    fn readings_come_just_before_scrapes() {
        assert_eq!(due(&[], 0), 5000, "nobody asks");
        assert_eq!(due(&[1000], 0), 5900, "one scrape tells no interval");
        assert_eq!(due(&[1000, 2000], 2050), 2900);
        assert_eq!(
            due(&[1000, 2000], 2910),
            3900,
            "the scrape at 3000 has not come yet"
        );
        assert_eq!(
            due(&[1000, 2000, 3060], 2910),
            3960,
            "it came late: no second reading for it"
        );
        assert_eq!(
            due(&[0, 60_000], 60_100),
            74_900,
            "between rare scrapes the values stay fresh"
        );
        assert_eq!(
            due(&[0, 100], 150),
            500,
            "a flood of scrapes brings no flood of readings"
        );
        assert_eq!(
            due(&[0, 100, 200, 300, 400, 500, 600, 700, 800], 150),
            900,
            "nor their end"
        );
    }

    /// When readings begin that take `duration`, while the page is scraped at `scrapes`; all in
    /// milliseconds.
    fn readings(scrapes: &[u64], duration: u64) -> Vec<u64> {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut rhythm = Rhythm::default();
        let mut now = 0;
        let mut begun = vec![0];
        let mut scrapes = scrapes.iter().copied().peekable();
        loop {
            now += duration;
            let began = now;
            loop {
                let due = (rhythm.next(at(began), JITTER + Duration::from_millis(2 * duration))
                    - start)
                    .as_millis() as u64;
                if due.saturating_sub(now) <= NEAR.as_millis() as u64 {
                    break;
                }
                match scrapes.next_if(|scrape| *scrape <= due) {
                    Some(scrape) => {
                        now = now.max(scrape);
                        rhythm.scraped(at(scrape));
                    }
                    None if scrapes.peek().is_none() => return begun,
                    None => now = due,
                }
            }
            begun.push(now);
        }
    }

    #[test]
    fn one_scrape_one_reading() {
        // Scrapes 20 ms early and late.
        let scrapes: Vec<u64> = (1..=60)
            .map(|n| n * 1000 + [0, 20, 40][n as usize % 3])
            .collect();
        for duration in [0, 1, 30, 200] {
            let begun = readings(&scrapes, duration);
            assert!(
                (58..=63).contains(&begun.len()),
                "{} readings of {duration} ms: {begun:?}",
                begun.len()
            );
            for scrape in &scrapes[3..] {
                let fresh = begun
                    .iter()
                    .any(|begun| (scrape - 600..*scrape).contains(begun));
                assert!(
                    fresh,
                    "a scrape at {scrape}, readings of {duration} ms at {begun:?}"
                );
            }
        }
        assert!(
            readings(&(0..100).map(|n| n * 100).collect::<Vec<_>>(), 1).len() <= 21,
            "a flood"
        );
    }

    #[test]
    fn two_scrapers_are_both_served() {
        // Every 15 s each, 5 s apart: beats every 5 s meet both.
        let scrapes = [0, 5000, 15_000, 20_000];
        assert_eq!(due(&scrapes, 20_100), 24_900);
        assert_eq!(due(&scrapes, 25_000), 29_900);
        assert_eq!(due(&scrapes, 30_000), 34_900);
    }

    #[test]
    fn a_sleeper_is_woken_when_scrapes_become_frequent_and_at_the_end() {
        let pace = Pace::default();
        let start = Instant::now();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| (pace.wait(Duration::ZERO), pace.wait(60 * SECOND)));
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(pace.scraped(start), UNKNOWN_INTERVAL);
            assert_eq!(
                pace.scraped(start + Duration::from_millis(1)),
                SHORTEST_INTERVAL
            );
            std::thread::sleep(2 * SHORTEST_INTERVAL);
            pace.end();
            let (first, last) = sleeper.join().unwrap();
            assert!(first, "woken for a reading");
            let _ = last;
        });
        assert!(start.elapsed() < UNKNOWN_INTERVAL);
        assert!(!pace.wait(Duration::ZERO));
    }
}
