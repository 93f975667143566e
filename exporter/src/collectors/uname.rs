//! Kernel and host name.
//!
//! Source: the system call `uname`.

use crate::collector::{CollectError, Collector};
use rustix::system::uname;
use takt_model::{Metric, Samples};

struct Uname;

const INFO: Metric = Metric::gauge(
    "node_uname_info",
    "Labeled system information as provided by the uname system call.",
    &[
        "sysname",
        "release",
        "version",
        "machine",
        "nodename",
        "domainname",
    ],
);

pub(crate) fn new() -> Box<dyn Collector> {
    Box::new(Uname)
}

impl Collector for Uname {
    fn metrics(&self) -> &'static [Metric] {
        &[INFO]
    }

    fn max_series(&self) -> usize {
        1
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let uname = uname();
        let values = [
            uname.sysname(),
            uname.release(),
            uname.version(),
            uname.machine(),
            uname.nodename(),
            uname.domainname(),
        ];
        out.push(&INFO, &values.map(|value| value.to_string_lossy()), 1.0);
        Ok(())
    }
}
