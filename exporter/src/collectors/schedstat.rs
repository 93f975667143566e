//! How long tasks ran on each CPU, and how long they waited for it.
//!
//! Source: `/proc/schedstat`, in nanoseconds; we publish seconds.

use crate::collector::{CollectError, Collector, OrAbsent, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

struct Schedstat {
    schedstat: KernelFile,
}

const RUNNING: Metric = Metric::counter(
    "node_schedstat_running_seconds_total",
    "Number of seconds CPU spent running a process.",
    &["cpu"],
);
const WAITING: Metric = Metric::counter(
    "node_schedstat_waiting_seconds_total",
    "Number of seconds spent by processing waiting for this CPU.",
    &["cpu"],
);
const TIMESLICES: Metric = Metric::counter(
    "node_schedstat_timeslices_total",
    "Number of timeslices executed by CPU.",
    &["cpu"],
);

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Schedstat {
        schedstat: KernelFile::new(paths.procfs.join("schedstat")),
    })
}

impl Collector for Schedstat {
    fn metrics(&self) -> &'static [Metric] {
        &[RUNNING, WAITING, TIMESLICES]
    }

    fn max_series(&self) -> usize {
        3 * 4096
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let read = self.schedstat.parse(|text| {
            for cpu in parse(text) {
                let (cpu, [running, waiting, timeslices]) = cpu?;
                out.push(&RUNNING, &[cpu], running as f64 / 1e9);
                out.push(&WAITING, &[cpu], waiting as f64 / 1e9);
                out.push(&TIMESLICES, &[cpu], timeslices as f64);
            }
            Ok(())
        });
        read.or_absent("the kernel keeps no statistics of its scheduler")
    }
}

/// `cpu0` and nine numbers; the last three are published. Lines of scheduling domains come between.
fn parse(text: &str) -> impl Iterator<Item = Result<(&str, [u64; 3]), ParseError>> {
    let lines = text.lines().enumerate();
    let cpus = lines.filter_map(|(number, line)| Some((number, line.strip_prefix("cpu")?)));
    cpus.map(|(number, line)| {
        let error = ParseError {
            line: number + 1,
            expected: "cpuN and nine numbers",
        };

        let mut words = line.split_ascii_whitespace();
        let is_number = |cpu: &&str| cpu.bytes().all(|byte| byte.is_ascii_digit());
        let cpu = words.next().filter(is_number).ok_or(error)?;

        let mut times = words.skip(6).map(str::parse::<u64>);
        let mut next = || times.next().and_then(Result::ok).ok_or(error);
        Ok((cpu, [next()?, next()?, next()?]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let text = "version 17\ntimestamp 1\ncpu0 0 0 0 0 0 0 7 8 9\ndomain0 MC 3 0 0\ncpu1 1 2 3 \
             4 5 6 70 80 90 5\n";
        let parsed: Result<Vec<_>, _> = parse(text).collect();
        assert_eq!(parsed, Ok(vec![("0", [7, 8, 9]), ("1", [70, 80, 90])]));
        for line in [
            "cpu",
            "cpu0 1 2 3",
            "cpux 1 2 3 4 5 6 7 8 9",
            "cpu0 1 2 3 4 5 6 7 8 x",
        ] {
            let text = format!("version 17\n{line}\n");
            assert_eq!(parse(&text).next().unwrap().unwrap_err().line, 2, "{line}");
        }
    }
}
