//! When each device is asked.

use crate::ask::DeviceProbe;
use crate::config::DeviceConfig;
use crate::reading::DeviceReading;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{self, Instant};

/// Longest pause between two rounds. Queries take a series for ended after five minutes, and `takt_device_up` must go on.
const LONGEST_PAUSE: Duration = Duration::from_secs(240);

/// Time between the first rounds of two devices, so that not all of them are asked at once for ever.
const STAGGER: Duration = Duration::from_millis(50);

/// Returns the time from the beginning of a round to that of the next. It doubles with each round in a row that failed.
pub fn pause_after(interval: Duration, failures: u32) -> Duration {
    let factor = 1 << failures.min(8);
    (interval * factor).min(LONGEST_PAUSE.max(interval))
}

/// Asks all devices, each on its own, and sends what they say. A device that is slow or dead delays no other. Runs until the
/// receiver is dropped.
pub async fn keep_asking(devices: Vec<DeviceConfig>, readings: mpsc::Sender<DeviceReading>) {
    let mut tasks = JoinSet::new();
    for (number, device) in (0..).zip(devices) {
        let readings = readings.clone();
        let first = Instant::now() + STAGGER * number;
        tasks.spawn(keep_asking_one(device, first, readings));
    }
    // A task ends if the receiver is gone, or if it panicked: then the supervisor starts all of them again.
    tasks.join_next().await;
}

async fn keep_asking_one(
    config: DeviceConfig,
    first: Instant,
    readings: mpsc::Sender<DeviceReading>,
) {
    let mut probe = DeviceProbe::new(config);
    let mut failures = 0;
    let mut next = first;
    loop {
        time::sleep_until(next).await;
        let started = Instant::now();
        let reading = probe.ask().await;

        log(&reading, failures);
        failures = if reading.is_up { 0 } else { failures + 1 };
        // A round that was late does not make the next one early.
        next = started + pause_after(probe.config().interval(), failures);
        if readings.send(reading).await.is_err() {
            return;
        }
    }
}

/// Logs a device that stops or begins to answer, once.
fn log(reading: &DeviceReading, failures: u32) {
    let device = &reading.device;
    match reading.problems.first() {
        Some(problem) if !reading.is_up && failures == 0 => {
            tracing::warn!(
                device,
                address = reading.address,
                problem = problem.text,
                "a device does not answer"
            );
        }
        _ if reading.is_up && failures > 0 => {
            tracing::info!(device, "the device answers again");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_device_is_asked_less_often() {
        let seconds =
            |interval, failures| pause_after(Duration::from_secs(interval), failures).as_secs();
        assert_eq!(
            [0, 1, 2, 3, 99].map(|failures| seconds(60, failures)),
            [60, 120, 240, 240, 240]
        );
        assert_eq!(
            [0, 1, 5, 9].map(|failures| seconds(10, failures)),
            [10, 20, 240, 240]
        );
        assert_eq!(seconds(240, 3), 240);
    }

    #[tokio::test]
    async fn asking_ends_with_its_receiver() {
        let device = DeviceConfig::at("x", "127.0.0.1:1");
        let (sender, mut receiver) = mpsc::channel(1);
        let asking = tokio::spawn(keep_asking(vec![device], sender));
        let reading = receiver.recv().await.unwrap();
        assert_eq!((reading.device.as_str(), reading.is_up), ("x", false));
        asking.abort();
        assert!(asking.await.unwrap_err().is_cancelled());
    }
}
