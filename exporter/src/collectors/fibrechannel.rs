//! Fibre Channel adapters: their state and how their links do.
//!
//! Source: `/sys/class/fc_host`. The drivers count in hexadecimal; all bits set means that the
//! adapter does not count this. They ask the adapter's firmware, so this collector has a thread.

use crate::collector::{CollectError, Collector, MAX_DEVICES, device_names};
use crate::paths::Paths;
use crate::sysfs;
use std::path::PathBuf;
use takt_model::{Metric, Samples};

struct Fibrechannel {
    class: PathBuf,
}

const INFO: Metric = Metric::gauge(
    "node_fibrechannel_info",
    "Non-numeric data from /sys/class/fc_host/<host>, value is always 1.",
    &[
        "fc_host",
        "speed",
        "port_state",
        "port_type",
        "port_id",
        "port_name",
        "fabric_name",
        "symbolic_name",
        "supported_classes",
        "supported_speeds",
        "dev_loss_tmo",
    ],
);
/// Hexadecimal values, which are published without `0x`.
const NUMBERS: [&str; 3] = ["port_id", "port_name", "fabric_name"];

macro_rules! counters {
    ($($file:literal $name:literal $help:literal,)*) => {
        const FILES: &[&str] = &[$($file),*];
        const METRICS: &[Metric] =
            &[INFO, $(Metric::counter(concat!("node_fibrechannel_", $name, "_total"), $help, &["fc_host"])),*];
    };
}

counters! {
    "dumped_frames" "dumped_frames" "Number of dumped frames",
    "error_frames" "error_frames" "Number of errors in frames",
    "invalid_crc_count" "invalid_crc" "Invalid Cyclic Redundancy Check count",
    "rx_frames" "rx_frames" "Number of frames received",
    "rx_words" "rx_words" "Number of words received by host port",
    "tx_frames" "tx_frames" "Number of frames transmitted by host port",
    "tx_words" "tx_words" "Number of words transmitted by host port",
    "seconds_since_last_reset" "seconds_since_last_reset"
        "Number of seconds since last host port reset",
    "invalid_tx_word_count" "invalid_tx_words" "Number of invalid words transmitted by host port",
    "link_failure_count" "link_failure" "Number of times the host port link has failed",
    "loss_of_sync_count" "loss_of_sync"
        "Number of failures on either bit or transmission word boundaries",
    "loss_of_signal_count" "loss_of_signal" "Number of times signal has been lost",
    "nos_count" "nos" "Number Not_Operational Primitive Sequence received by host port",
    "fcp_packet_aborts" "fcp_packet_aborts" "Number of aborted packets",
}

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Fibrechannel {
        class: paths.sysfs.join("class/fc_host"),
    })
}

impl Collector for Fibrechannel {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let hosts = device_names(&self.class, "", "no Fibre Channel")?;
        for host in hosts {
            let directory = self.class.join(&host);
            let label = |file: &&str| {
                let text = sysfs::text(&directory.join(file)).unwrap_or_default();
                if NUMBERS.contains(file) {
                    text.strip_prefix("0x").unwrap_or(&text).to_owned()
                } else {
                    text
                }
            };

            let labels: Vec<_> = INFO.labels[1..].iter().map(label).collect();
            out.push(&INFO, &[std::slice::from_ref(&host), &labels].concat(), 1.0);

            for (file, metric) in FILES.iter().zip(&METRICS[1..]) {
                let text = sysfs::text(&directory.join("statistics").join(file));
                if let Some(count) = text.as_deref().and_then(parse) {
                    out.push(metric, &[&host], count as f64);
                }
            }
        }
        Ok(())
    }
}

fn parse(text: &str) -> Option<u64> {
    let count = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    count.ok().filter(|count| *count != u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_counters_of_an_adapter_are_left_out() {
        assert_eq!(
            (parse("0x1f"), parse("31"), parse("0xffffffffffffffff")),
            (Some(31), Some(31), None)
        );
        assert_eq!((parse("0x"), parse("many")), (None, None));
    }
}
