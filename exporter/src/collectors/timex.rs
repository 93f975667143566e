//! How well the clock is kept.
//!
//! Source: the system call `adjtimex`, which needs no right as long as it changes nothing.

use crate::collector::{CollectError, Collector, flag};
use std::io;
use takt_model::{Metric, Samples};

struct Timex;

macro_rules! gauges {
    ($($name:literal $help:literal,)*) => {
        const METRICS: &[Metric] = &[$(Metric::gauge(concat!("node_timex_", $name), $help, &[])),*];
    };
}

gauges! {
    "sync_status" "Is clock synchronized to a reliable server (1 = yes, 0 = no).",
    "offset_seconds" "Time offset in between local system and reference clock.",
    "frequency_adjustment_ratio" "Local clock frequency adjustment.",
    "maxerror_seconds" "Maximum error in seconds.",
    "estimated_error_seconds" "Estimated error in seconds.",
    "status" "Value of the status array bits.",
    "loop_time_constant" "Phase-locked loop time constant.",
    "tick_seconds" "Seconds between clock ticks.",
    "pps_frequency_hertz" "Pulse per second frequency.",
    "pps_jitter_seconds" "Pulse per second jitter.",
    "pps_shift_seconds" "Pulse per second interval duration.",
    "pps_stability_hertz" "Pulse per second stability, average of recent frequency changes.",
    "tai_offset_seconds" "International Atomic Time (TAI) offset.",
}

macro_rules! counters {
    ($($name:literal $help:literal,)*) => {
        const COUNTERS: &[Metric] = &[$(Metric::counter(concat!("node_timex_", $name), $help, &[])),*];
    };
}

counters! {
    "pps_jitter_total" "Pulse per second count of jitter limit exceeded events.",
    "pps_calibration_total" "Pulse per second count of calibration intervals.",
    "pps_error_total" "Pulse per second count of calibration errors.",
    "pps_stability_exceeded_total" "Pulse per second count of stability limit exceeded events.",
}

const ALL: [Metric; METRICS.len() + COUNTERS.len()] = {
    let mut all = [METRICS[0]; METRICS.len() + COUNTERS.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < METRICS.len() {
            METRICS[at]
        } else {
            COUNTERS[at - METRICS.len()]
        };
        at += 1;
    }
    all
};

pub(crate) fn new() -> Box<dyn Collector> {
    Box::new(Timex)
}

impl Collector for Timex {
    fn metrics(&self) -> &'static [Metric] {
        &ALL
    }

    fn max_series(&self) -> usize {
        ALL.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let (state, timex) = adjtimex().map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => {
                CollectError::Denied("reading the state of the clock")
            }
            _ => CollectError::Read {
                path: "adjtimex".into(),
                source,
            },
        })?;

        for (metric, value) in METRICS.iter().zip(gauges(state, &timex)) {
            out.push::<&str>(metric, &[], value);
        }

        let counts = [timex.jitcnt, timex.calcnt, timex.errcnt, timex.stbcnt];
        for (metric, count) in COUNTERS.iter().zip(counts) {
            out.push::<&str>(metric, &[], count as f64);
        }
        Ok(())
    }
}

/// In the order of [`METRICS`].
fn gauges(state: i32, timex: &libc::timex) -> [f64; METRICS.len()] {
    let micros = |value: libc::c_long| value as f64 / 1e6;
    // Offset and jitter are in nanoseconds where the clock is kept that well.
    let fine = if timex.status & libc::STA_NANO != 0 {
        1e9
    } else {
        1e6
    };

    // Parts in a million, with 16 bits of fraction.
    let ppm = |value: libc::c_long| value as f64 / (1e6 * 65536.0);

    [
        flag(state != libc::TIME_ERROR),
        timex.offset as f64 / fine,
        1.0 + ppm(timex.freq),
        micros(timex.maxerror),
        micros(timex.esterror),
        f64::from(timex.status),
        timex.constant as f64,
        micros(timex.tick),
        ppm(timex.ppsfreq),
        timex.jitter as f64 / fine,
        f64::from(timex.shift),
        ppm(timex.stabil),
        f64::from(timex.tai),
    ]
}

fn adjtimex() -> io::Result<(i32, libc::timex)> {
    // SAFETY: zeroes are a valid timex, and with modes 0 the call changes nothing but it.
    let (state, timex) = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut timex), timex)
    };

    if state < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok((state, timex))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        let (_, mut timex) = adjtimex().unwrap();
        timex.offset = 1_500_000;
        timex.freq = 65_536;
        timex.tick = 10_000;
        timex.status = libc::STA_NANO;
        let values = gauges(libc::TIME_OK, &timex);
        assert_eq!(values[..3], [1.0, 0.0015, 1.000_001]);
        assert_eq!(values[7], 0.01);
        timex.status = 0;
        assert_eq!(gauges(libc::TIME_ERROR, &timex)[..2], [0.0, 1.5]);
    }
}
