//! InfiniBand and RoCE ports.
//!
//! Source: `/sys/class/infiniband/*/ports/*`. The counters of data count words of four bytes; we publish bytes. Some drivers
//! ask the adapter's firmware for each counter, so this collector has a thread.

use crate::collector::{CollectError, Collector};
use crate::collectors::MAX_DEVICES;
use crate::options::Options;
use crate::sysfs;
use std::path::{Path, PathBuf};
use takt_model::{Metric, Samples};

struct Infiniband {
    class: PathBuf,
}

const PORT: &[&str] = &["device", "port"];
const INFO: Metric = Metric::gauge(
    "node_infiniband_info",
    "Non-numeric data from /sys/class/infiniband/<device>, value is always 1.",
    &["device", "board_id", "firmware_version", "hca_type"],
);
const STATE: Metric = Metric::gauge(
    "node_infiniband_state_id",
    "State of the InfiniBand port (0: no change, 1: down, 2: init, 3: armed, 4: active, 5: act defer)",
    PORT,
);
const PHYSICAL_STATE: Metric = Metric::gauge(
    "node_infiniband_physical_state_id",
    "Physical state of the InfiniBand port (0: no change, 1: sleep, 2: polling, 3: disable, 4: shift, 5: link up, 6: link error recover, 7: phytest)",
    PORT,
);
const RATE: Metric = Metric::gauge(
    "node_infiniband_rate_bytes_per_second",
    "Maximum signal transfer rate",
    PORT,
);

/// A counter's file, how many bytes or events one count is, and its metric.
struct Counter {
    directory: &'static str,
    file: &'static str,
    unit: u64,
}

macro_rules! counters {
    ($($directory:literal $file:literal $unit:literal $name:literal $help:literal,)*) => {
        const COUNTERS: &[Counter] = &[$(Counter { directory: $directory, file: $file, unit: $unit }),*];
        const METRICS: &[Metric] = &[
            INFO, STATE, PHYSICAL_STATE, RATE,
            $(Metric::counter(concat!("node_infiniband_", $name), $help, PORT)),*
        ];
    };
}

counters! {
    "counters_ext" "port_multicast_rcv_packets" 1 "legacy_multicast_packets_received_total" "Number of multicast packets received",
    "counters_ext" "port_multicast_xmit_packets" 1 "legacy_multicast_packets_transmitted_total" "Number of multicast packets transmitted",
    "counters_ext" "port_rcv_data_64" 4 "legacy_data_received_bytes_total" "Number of data octets received on all links",
    "counters_ext" "port_rcv_packets_64" 1 "legacy_packets_received_total" "Number of data packets received on all links",
    "counters_ext" "port_unicast_rcv_packets" 1 "legacy_unicast_packets_received_total" "Number of unicast packets received",
    "counters_ext" "port_unicast_xmit_packets" 1 "legacy_unicast_packets_transmitted_total" "Number of unicast packets transmitted",
    "counters_ext" "port_xmit_data_64" 4 "legacy_data_transmitted_bytes_total" "Number of data octets transmitted on all links",
    "counters_ext" "port_xmit_packets_64" 1 "legacy_packets_transmitted_total" "Number of data packets received on all links",
    "counters" "excessive_buffer_overrun_errors" 1 "excessive_buffer_overrun_errors_total" "Number of times that OverrunErrors consecutive flow control update periods occurred, each having at least one overrun error.",
    "counters" "link_downed" 1 "link_downed_total" "Number of times the link failed to recover from an error state and went down",
    "counters" "link_error_recovery" 1 "link_error_recovery_total" "Number of times the link successfully recovered from an error state",
    "counters" "local_link_integrity_errors" 1 "local_link_integrity_errors_total" "Number of times that the count of local physical errors exceeded the threshold specified by LocalPhyErrors.",
    "counters" "multicast_rcv_packets" 1 "multicast_packets_received_total" "Number of multicast packets received (including errors)",
    "counters" "multicast_xmit_packets" 1 "multicast_packets_transmitted_total" "Number of multicast packets transmitted (including errors)",
    "counters" "port_rcv_constraint_errors" 1 "port_constraint_errors_received_total" "Number of packets received on the switch physical port that are discarded",
    "counters" "port_xmit_constraint_errors" 1 "port_constraint_errors_transmitted_total" "Number of packets not transmitted from the switch physical port",
    "counters" "port_rcv_data" 4 "port_data_received_bytes_total" "Number of data octets received on all links",
    "counters" "port_xmit_data" 4 "port_data_transmitted_bytes_total" "Number of data octets transmitted on all links",
    "counters" "port_rcv_discards" 1 "port_discards_received_total" "Number of inbound packets discarded by the port because the port is down or congested",
    "counters" "port_xmit_discards" 1 "port_discards_transmitted_total" "Number of outbound packets discarded by the port because the port is down or congested",
    "counters" "port_rcv_errors" 1 "port_errors_received_total" "Number of packets containing an error that were received on this port",
    "counters" "port_rcv_packets" 1 "port_packets_received_total" "Number of packets received on all VLs by this port (including errors)",
    "counters" "port_xmit_packets" 1 "port_packets_transmitted_total" "Number of packets transmitted on all VLs from this port (including errors)",
    "counters" "port_rcv_remote_physical_errors" 1 "port_receive_remote_physical_errors_total" "Number of packets marked with the EBP (End of Bad Packet) delimiter received on the port.",
    "counters" "port_rcv_switch_relay_errors" 1 "port_receive_switch_relay_errors_total" "Number of packets that could not be forwarded by the switch.",
    "counters" "port_xmit_wait" 1 "port_transmit_wait_total" "Number of ticks during which the port had data to transmit but no data was sent during the entire tick",
    "counters" "symbol_error" 1 "symbol_error_total" "Number of minor link errors detected on one or more physical lanes.",
    "counters" "unicast_rcv_packets" 1 "unicast_packets_received_total" "Number of unicast packets received (including errors)",
    "counters" "unicast_xmit_packets" 1 "unicast_packets_transmitted_total" "Number of unicast packets transmitted (including errors)",
    "counters" "VL15_dropped" 1 "vl15_dropped_total" "Number of incoming VL15 packets dropped due to resource limitations.",
}

pub(crate) fn new(options: &Options) -> Box<dyn Collector> {
    Box::new(Infiniband {
        class: options.paths.sysfs.join("class/infiniband"),
    })
}

impl Collector for Infiniband {
    fn name(&self) -> &'static str {
        "infiniband"
    }

    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let devices = sysfs::names(&self.class, "")
            .map_err(|source| CollectError::read(&self.class, source).or_absent("no InfiniBand"))?;
        for device in &devices {
            let directory = self.class.join(device);
            let text = |file: &str| sysfs::text(&directory.join(file)).unwrap_or_default();
            out.push(
                &INFO,
                &[
                    device.as_str(),
                    &text("board_id"),
                    &text("fw_ver"),
                    &text("hca_type"),
                ],
                1.0,
            );
            for port in sysfs::names(&directory.join("ports"), "").unwrap_or_default() {
                push_port(&directory.join("ports").join(&port), &[device, &port], out);
            }
        }
        Ok(())
    }
}

fn push_port(directory: &Path, labels: &[&str; 2], out: &mut Samples) {
    for (file, metric) in [("state", &STATE), ("phys_state", &PHYSICAL_STATE)] {
        // `4: ACTIVE`
        let state = sysfs::text(&directory.join(file))
            .and_then(|text| text.split(':').next()?.trim().parse::<u32>().ok());
        if let Some(state) = state {
            out.push(metric, labels, f64::from(state));
        }
    }
    if let Some(gigabits) = sysfs::text(&directory.join("rate"))
        .as_deref()
        .and_then(rate)
    {
        out.push(&RATE, labels, gigabits * 1e9 / 8.0);
    }
    for (counter, metric) in COUNTERS.iter().zip(&METRICS[4..]) {
        // What a kind of port does not count is no number: "N/A (no PMA)".
        if let Some(count) =
            sysfs::number::<u64>(&directory.join(counter.directory).join(counter.file))
        {
            out.push(metric, labels, count.wrapping_mul(counter.unit) as f64);
        }
    }
}

/// `40 Gb/sec (4X QDR)`
fn rate(text: &str) -> Option<f64> {
    text.split_once(" Gb/sec")?.0.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!(rate("40 Gb/sec (4X QDR)"), Some(40.0));
        assert_eq!(rate("2.5 Gb/sec (1X SDR)"), Some(2.5));
        assert_eq!(rate("fast"), None);
    }
}
