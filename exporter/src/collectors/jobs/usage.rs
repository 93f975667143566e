//! Resource usage of a job, from the files of its cgroups.
//!
//! Both versions of cgroups count a job's directory with all below it, but for version 1's
//! `oom_kill`. Values that are unlimited, not counted by this kernel or unreadable are left out.

use std::collections::HashMap;
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Resource usage of one job, in base units.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct JobUsage {
    pub cpu_seconds: Option<f64>,
    pub cpu_user_seconds: Option<f64>,
    pub cpu_system_seconds: Option<f64>,
    pub cpu_throttled_seconds: Option<f64>,
    /// All memory that is charged to the job, cached files included.
    pub memory_current: Option<f64>,
    pub memory_peak: Option<f64>,
    pub memory_limit: Option<f64>,
    /// Memory that the kernel cannot free by dropping cached files.
    pub memory_anonymous: Option<f64>,
    pub memory_file: Option<f64>,
    pub memory_swap: Option<f64>,
    pub oom_kills: Option<f64>,
    /// Bytes read and written.
    pub io_bytes: Option<[f64; 2]>,
    /// Requests to read and write.
    pub io_operations: Option<[f64; 2]>,
    pub threads: Option<f64>,
    /// Seconds in which some of its tasks waited for CPU, I/O and memory.
    pub pressure_seconds: [Option<f64>; 3],
    /// CPUs that it may run on.
    pub cpus: Option<f64>,
}

/// Values at or above this mean no limit: version 1 reports the largest multiple of a page.
const NO_LIMIT: f64 = (1_u64 << 62) as f64;

/// Linux counts `cpuacct.stat` in hundredths, whatever its own tick is.
const USER_HZ: f64 = 100.0;

impl JobUsage {
    /// Adds a job's directory in the hierarchy of version 2.
    pub fn add_v2(&mut self, directory: &Path, disks: &mut BlockDevices) {
        let cpu = fields(directory, "cpu.stat");
        let seconds = |key: &str| cpu.get(key).map(|microseconds| microseconds / 1e6);
        add(&mut self.cpu_seconds, seconds("usage_usec"));
        add(&mut self.cpu_user_seconds, seconds("user_usec"));
        add(&mut self.cpu_system_seconds, seconds("system_usec"));
        add(&mut self.cpu_throttled_seconds, seconds("throttled_usec"));

        add(
            &mut self.memory_current,
            number(directory, "memory.current"),
        );
        add(&mut self.memory_peak, number(directory, "memory.peak"));
        add(&mut self.memory_limit, number(directory, "memory.max"));
        add(
            &mut self.memory_swap,
            number(directory, "memory.swap.current"),
        );

        let memory = fields(directory, "memory.stat");
        add(&mut self.memory_anonymous, memory.get("anon").copied());
        add(&mut self.memory_file, memory.get("file").copied());
        add(
            &mut self.oom_kills,
            fields(directory, "memory.events").get("oom_kill").copied(),
        );

        if let Ok(text) = read_to_string(directory.join("io.stat")) {
            let [bytes, operations] = parse_io_stat(&text, |device| disks.is_stacked(device));
            add_pair(&mut self.io_bytes, bytes);
            add_pair(&mut self.io_operations, operations);
        }

        add(&mut self.threads, number(directory, "pids.current"));
        for (total, resource) in self
            .pressure_seconds
            .iter_mut()
            .zip(["cpu", "io", "memory"])
        {
            let text = read_to_string(directory.join(format!("{resource}.pressure")));
            add(total, text.ok().and_then(|text| parse_pressure(&text)));
        }

        add(&mut self.cpus, cpus(directory, "cpuset.cpus.effective"));
    }

    /// Adds a job's directory in the hierarchy of one controller of version 1.
    pub fn add_v1(&mut self, controller: &str, directory: &Path, disks: &mut BlockDevices) {
        match controller {
            "cpuacct" => {
                add(
                    &mut self.cpu_seconds,
                    number(directory, "cpuacct.usage").map(|nanoseconds| nanoseconds / 1e9),
                );

                let cpu = fields(directory, "cpuacct.stat");
                add(
                    &mut self.cpu_user_seconds,
                    cpu.get("user").map(|ticks| ticks / USER_HZ),
                );
                add(
                    &mut self.cpu_system_seconds,
                    cpu.get("system").map(|ticks| ticks / USER_HZ),
                );
            }
            "memory" => {
                add(
                    &mut self.memory_current,
                    number(directory, "memory.usage_in_bytes"),
                );
                add(
                    &mut self.memory_peak,
                    number(directory, "memory.max_usage_in_bytes"),
                );
                add(
                    &mut self.memory_limit,
                    number(directory, "memory.limit_in_bytes"),
                );

                let memory = fields(directory, "memory.stat");
                add(&mut self.memory_anonymous, memory.get("total_rss").copied());
                add(&mut self.memory_file, memory.get("total_cache").copied());
                add(&mut self.memory_swap, memory.get("total_swap").copied());
                add(&mut self.oom_kills, oom_kills_v1(directory, DEEPEST));
            }
            "blkio" => {
                // Without "_recursive" it counts only what the directory's own tasks did.
                let mut sums = |file| {
                    let file = format!("blkio.throttle.{file}_recursive");
                    let text = read_to_string(directory.join(file)).ok()?;
                    Some(parse_blkio(&text, |device| disks.is_stacked(device)))
                };
                if let Some(bytes) = sums("io_service_bytes") {
                    add_pair(&mut self.io_bytes, bytes);
                }
                if let Some(operations) = sums("io_serviced") {
                    add_pair(&mut self.io_operations, operations);
                }
            }
            "pids" => add(&mut self.threads, number(directory, "pids.current")),
            "cpuset" => add(&mut self.cpus, cpus(directory, "cpuset.effective_cpus")),
            _ => {}
        }
    }
}

/// Steps and tasks below a job.
const DEEPEST: usize = 4;

/// Each directory of version 1 counts only its own.
fn oom_kills_v1(directory: &Path, depth: usize) -> Option<f64> {
    let own = fields(directory, "memory.oom_control")
        .get("oom_kill")
        .copied();

    if depth == 0 {
        return own;
    }

    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let below = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| oom_kills_v1(&entry.path(), depth - 1));
    own.into_iter().chain(below).reduce(|a, b| a + b)
}

fn add(total: &mut Option<f64>, more: Option<f64>) {
    // A value that no directory has stays unknown, and does not become 0.
    *total = total.iter().copied().chain(more).reduce(|a, b| a + b);
}

fn add_pair(total: &mut Option<[f64; 2]>, more: [f64; 2]) {
    let before = total.unwrap_or_default();
    *total = Some([before[0] + more[0], before[1] + more[1]]);
}

/// Reads a file with one number; `None` for `max` and other texts.
fn number(directory: &Path, file: &str) -> Option<f64> {
    let text = read_to_string(directory.join(file)).ok()?;
    let value: f64 = text.trim_ascii().parse().ok()?;
    (value.is_finite() && (0.0..NO_LIMIT).contains(&value)).then_some(value)
}

/// A file of lines `key number`.
fn fields(directory: &Path, file: &str) -> HashMap<String, f64> {
    parse_fields(&read_to_string(directory.join(file)).unwrap_or_default())
}

fn parse_fields(text: &str) -> HashMap<String, f64> {
    let field = |line: &str| {
        let (key, value) = line.split_once(' ')?;
        let value = value.trim_ascii().parse::<u64>().ok()?;
        Some((key.to_owned(), value as f64))
    };
    text.lines().filter_map(field).collect()
}

/// `8:0 rbytes=1 wbytes=2 rios=3 wios=4 …`: bytes, then operations, read and written.
fn parse_io_stat(text: &str, mut is_stacked: impl FnMut(&str) -> bool) -> [[f64; 2]; 2] {
    let mut sums = [[0.0; 2]; 2];
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();

        // What passes through a stacked device is counted by those below it too.
        if words.next().is_none_or(&mut is_stacked) {
            continue;
        }

        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            let place = match key {
                "rbytes" => (0, 0),
                "wbytes" => (0, 1),
                "rios" => (1, 0),
                "wios" => (1, 1),
                _ => continue,
            };

            sums[place.0][place.1] += value.parse::<u64>().unwrap_or(0) as f64;
        }
    }
    sums
}

/// `8:0 Read 4096`, and a last line `Total 4096`.
fn parse_blkio(text: &str, mut is_stacked: impl FnMut(&str) -> bool) -> [f64; 2] {
    let mut sums = [0.0; 2];
    for line in text.lines() {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let [device, direction, value] = words[..] else {
            continue;
        };

        // `Sync`, `Async` and `Total` count the same bytes once more.
        let place = match direction {
            "Read" => 0,
            "Write" => 1,
            _ => continue,
        };

        if !is_stacked(device) {
            sums[place] += value.parse::<u64>().unwrap_or(0) as f64;
        }
    }
    sums
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234`, in microseconds.
fn parse_pressure(text: &str) -> Option<f64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let (_, total) = some.rsplit_once("total=")?;
    let microseconds: u64 = total.trim_ascii().parse().ok()?;
    Some(microseconds as f64 / 1e6)
}

fn cpus(directory: &Path, file: &str) -> Option<f64> {
    let text = read_to_string(directory.join(file)).ok()?;
    let list = parse_list(text.trim_ascii())?;
    Some(list.len() as f64)
}

/// `0-3,8`: the kernel's way, and Slurm's, to write numbers. `None` for anything else, and for
/// nothing.
pub(super) fn parse_list(text: &str) -> Option<Vec<u32>> {
    /// No machine has more CPUs or GPUs.
    const MOST: u32 = 16_384;
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first = first.trim_ascii().parse::<u32>().ok()?;
        let last = last.trim_ascii().parse::<u32>().ok()?;

        // Without a bound, a few bytes could fill the memory.
        if first > last || last > MOST {
            return None;
        }

        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// The node's block devices: what passes through one that lies on others is counted by those too.
#[derive(Debug)]
pub(super) struct BlockDevices {
    sysfs: PathBuf,
    stacked: HashMap<String, bool>,
}

impl BlockDevices {
    pub fn new(sysfs: PathBuf) -> Self {
        Self {
            sysfs,
            stacked: HashMap::new(),
        }
    }

    fn is_stacked(&mut self, device: &str) -> bool {
        // Each job has the same few devices, and their stacking hardly ever changes.
        if let Some(known) = self.stacked.get(device) {
            return *known;
        }

        let below = self.sysfs.join("dev/block").join(device).join("slaves");
        let is_stacked = std::fs::read_dir(below).is_ok_and(|mut entries| entries.next().is_some());
        self.stacked.insert(device.to_owned(), is_stacked);
        is_stacked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn io_of_disks_is_counted_once() {
        let text = "8:0 rbytes=100 wbytes=20 rios=3 wios=4 dbytes=9 dios=9\n253:0 rbytes=100 \
             wbytes=20 rios=3 wios=4\n7:7 \n";
        assert_eq!(
            parse_io_stat(text, |device| device == "253:0"),
            [[100.0, 20.0], [3.0, 4.0]]
        );
        assert_eq!(parse_io_stat("", |_| false), [[0.0; 2]; 2]);
        let text = "8:0 Read 10\n8:0 Write 5\n8:0 Sync 15\n9:0 Read 10\n8:0 Total 15\nTotal 15\n";
        assert_eq!(parse_blkio(text, |device| device == "9:0"), [10.0, 5.0]);
    }

    #[test]
    fn lists() {
        assert_eq!(parse_list("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(parse_list("5"), Some(vec![5]));
        for odd in ["", "a", "3-1", "1,,2", "0-99999999"] {
            assert_eq!(parse_list(odd), None, "{odd}");
        }
    }

    #[test]
    fn pressure() {
        let text =
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 total=7\n";
        assert_eq!(parse_pressure(text), Some(2.5));
        assert_eq!(parse_pressure("full total=7\n"), None);
    }

    #[test]
    fn unlimited_values_have_no_limit() {
        let directory = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(directory.path().join("memory.max"), text).unwrap();
        let read = || number(directory.path(), "memory.max");
        assert_eq!(read(), None, "no file");
        for (text, limit) in [
            ("max\n", None),
            // The largest multiple of a page below 2^63, by which version 1 means no limit.
            ("9223372036854771712\n", None),
            ("1073741824\n", Some(1_073_741_824.0)),
            ("-1\n", None),
        ] {
            write(text);
            assert_eq!(read(), limit, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "([a-z_]{0,9}|[0-9:]{0,22}| |=|,|-|\n|total=|some |8:0 Read |\\PC){0,40}") {
            let _ = (parse_fields(&text), parse_io_stat(&text, |_| false), parse_blkio(&text, |_| false));
            let _ = (parse_pressure(&text), parse_list(&text));
        }
    }
}
