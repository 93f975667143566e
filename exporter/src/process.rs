//! The process's own use of the machine, under the names that Prometheus' client libraries use.
//!
//! Source: `/proc/self`, whatever `--path.procfs` says: that may be another process namespace.

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::sync::OnceLock;
use takt_model::{Metric, Samples};

const CPU: Metric = Metric::counter(
    "process_cpu_seconds_total",
    "Total user and system CPU time spent in seconds.",
    &[],
);
const OPEN_FILES: Metric =
    Metric::gauge("process_open_fds", "Number of open file descriptors.", &[]);
const MAX_FILES: Metric = Metric::gauge(
    "process_max_fds",
    "Maximum number of open file descriptors.",
    &[],
);
const RESIDENT: Metric = Metric::gauge(
    "process_resident_memory_bytes",
    "Resident memory size in bytes.",
    &[],
);
const VIRTUAL: Metric = Metric::gauge(
    "process_virtual_memory_bytes",
    "Virtual memory size in bytes.",
    &[],
);
const VIRTUAL_MAX: Metric = Metric::gauge(
    "process_virtual_memory_max_bytes",
    "Maximum amount of virtual memory available in bytes.",
    &[],
);
const START_TIME: Metric = Metric::gauge(
    "process_start_time_seconds",
    "Start time of the process since unix epoch in seconds.",
    &[],
);

/// Current resource usage of this process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessUsage {
    /// CPU time of all threads since the start, in seconds.
    pub cpu_seconds: f64,
    /// Open file descriptors.
    pub open_fds: u64,
    /// Soft limit of open file descriptors.
    pub max_fds: u64,
    /// Memory in RAM, in bytes.
    pub resident_bytes: u64,
    /// Address space in use, in bytes.
    pub virtual_bytes: u64,
    /// Soft limit of the address space, in bytes; [`u64::MAX`] without a limit.
    pub virtual_max_bytes: u64,
    /// Start of the process, in seconds since 1970.
    pub start_time_seconds: f64,
}

impl ProcessUsage {
    /// Reads `/proc/self`.
    ///
    /// # Errors
    /// When `/proc` is not mounted or has another format.
    pub fn read() -> io::Result<Self> {
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        let stat = Stat::parse(&stat).ok_or_else(|| malformed("/proc/self/stat"))?;

        let ticks = clock_ticks_per_second() as f64;
        let limit = |resource| getrlimit(resource).current.unwrap_or(u64::MAX);

        Ok(Self {
            cpu_seconds: stat.cpu_ticks as f64 / ticks,
            open_fds: open_fds()?,
            max_fds: limit(Resource::Nofile),
            resident_bytes: stat.resident_pages * page_size() as u64,
            virtual_bytes: stat.virtual_bytes,
            virtual_max_bytes: limit(Resource::As),
            start_time_seconds: boot_seconds()? + stat.start_ticks as f64 / ticks,
        })
    }

    /// Each metric with its value.
    pub fn metrics(&self) -> [(&'static Metric, f64); 7] {
        [
            (&CPU, self.cpu_seconds),
            (&OPEN_FILES, self.open_fds as f64),
            (&MAX_FILES, self.max_fds as f64),
            (&RESIDENT, self.resident_bytes as f64),
            (&VIRTUAL, self.virtual_bytes as f64),
            (&VIRTUAL_MAX, self.virtual_max_bytes as f64),
            (&START_TIME, self.start_time_seconds),
        ]
    }

    /// Adds the metrics to a page.
    pub fn report(&self, out: &mut Samples) {
        for (metric, value) in self.metrics() {
            out.push::<&str>(metric, &[], value);
        }
    }
}

/// Number of open file descriptors. Since Linux 6.2 it is the size of the directory, which takes no
/// listing.
fn open_fds() -> io::Result<u64> {
    const DIRECTORY: &str = "/proc/self/fd";
    let size = std::fs::metadata(DIRECTORY)?.len();
    if size > 0 {
        return Ok(size);
    }

    // The directory that is being read is one of its own entries.
    Ok((std::fs::read_dir(DIRECTORY)?.count() as u64).saturating_sub(1))
}

/// The node's boot, in seconds since 1970. Read once: the kernel moves it when the clock is set,
/// and the start of a process must not move.
fn boot_seconds() -> io::Result<f64> {
    static BOOT: OnceLock<f64> = OnceLock::new();
    if let Some(boot) = BOOT.get() {
        return Ok(*boot);
    }

    let stat = std::fs::read_to_string("/proc/stat")?;
    let mut lines = stat.lines();
    let boot = lines.find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok());
    let boot = boot.ok_or_else(|| malformed("/proc/stat"))?;
    Ok(*BOOT.get_or_init(|| boot))
}

fn malformed(path: &str) -> io::Error {
    let reason = format!("{path}: unexpected format");
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// The fields of `/proc/PID/stat` that are exported; proc_pid_stat(5) counts them from 1.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_ticks: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, which may hold spaces and more of
        // those.
        let (_, rest) = text.rsplit_once(')')?;

        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();

        Some(Self {
            cpu_ticks: number(14)? + number(15)?,
            start_ticks: number(22)?,
            virtual_bytes: number(23)?,
            resident_pages: number(24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel() {
        let line = "4242 (a) b (c) S 1 4242 4242 0 -1 4194560 1029 0 0 0 17 25 0 0 20 0 40 0 \
                    9117 12345678 1400 18446744073709551615 1 1 0";
        let stat = Stat {
            cpu_ticks: 42,
            start_ticks: 9117,
            virtual_bytes: 12_345_678,
            resident_pages: 1400,
        };
        assert_eq!(Stat::parse(line), Some(stat));
        assert_eq!(Stat::parse("4242 (a) S 1"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn this_process() {
        let read = || {
            let before = ProcessUsage::read().unwrap();
            let files: Vec<_> = (0..5)
                .map(|_| std::fs::File::open("/proc/self/stat").unwrap())
                .collect();
            let after = ProcessUsage::read().unwrap();
            drop(files);
            (before, after)
        };
        // Other tests of this process open and close files, too.
        let (before, after) = (0..1000)
            .map(|_| read())
            .find(|(before, after)| after.open_fds == before.open_fds + 5)
            .unwrap();
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs_f64();
        assert!((now - 3600.0..=now + 2.0).contains(&after.start_time_seconds));
        assert_eq!(before.start_time_seconds, after.start_time_seconds);
        assert!(after.resident_bytes > 1 << 20 && after.virtual_bytes > after.resident_bytes);
        assert!(after.cpu_seconds >= before.cpu_seconds && after.max_fds >= 16);
    }
}
