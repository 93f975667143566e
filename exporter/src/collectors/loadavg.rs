//! Load averages: how many tasks ran, waited to run or slept uninterruptibly, over 1, 5 and 15
//! minutes.
//!
//! Source: `/proc/loadavg`.

use crate::collector::{CollectError, Collector, ParseError};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Metric, Samples};

struct Loadavg {
    loadavg: KernelFile,
}

const LOAD1: Metric = Metric::gauge("node_load1", "1m load average.", &[]);
const LOAD5: Metric = Metric::gauge("node_load5", "5m load average.", &[]);
const LOAD15: Metric = Metric::gauge("node_load15", "15m load average.", &[]);
const METRICS: &[Metric] = &[LOAD1, LOAD5, LOAD15];

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Loadavg {
        loadavg: KernelFile::new(paths.procfs.join("loadavg")),
    })
}

impl Collector for Loadavg {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        for (metric, load) in METRICS.iter().zip(self.loadavg.parse(parse)?) {
            out.push::<&str>(metric, &[], load);
        }
        Ok(())
    }
}

fn parse(text: &str) -> Result<[f64; 3], ParseError> {
    let mut loads = text.split_ascii_whitespace().map(|load| load.parse().ok());
    let mut next = || {
        loads.next().flatten().ok_or(ParseError {
            line: 1,
            expected: "three load averages",
        })
    };
    Ok([next()?, next()?, next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads() {
        assert_eq!(
            parse("0.45 0.23 12.5 3/111 26278\n"),
            Ok([0.45, 0.23, 12.5])
        );
        assert!(parse("").is_err());
        assert!(parse("0.45 0.23").is_err());
        assert!(parse("0.45 high 0.1 1/1 1").is_err());
    }
}
