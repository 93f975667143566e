//! InfiniBand and RoCE ports.
//!
//! Source: `/sys/class/infiniband/*/ports/*`. The counters of data count words of four bytes; we
//! publish bytes. The counters' lifespan is in milliseconds; we publish seconds. Some drivers ask
//! the adapter's firmware for each counter, so this collector has a thread.

use crate::collector::{CollectError, Collector, MAX_DEVICES, device_names};
use crate::filter::{NameFilter, NamePattern};
use crate::paths::Paths;
use crate::sysfs;
use std::path::{Path, PathBuf};
use takt_model::{Metric, Samples};

/// Flags of the collector `infiniband`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Collectors' own flags")]
pub struct InfinibandOptions {
    /// InfiniBand devices to leave out.
    #[arg(
        id = "infiniband-exclude",
        long = "collector.infiniband.device-exclude",
        value_name = "REGEXP",
        default_value = ""
    )]
    pub device_exclude: NamePattern,
    /// InfiniBand devices to keep, all others being left out.
    #[arg(
        id = "infiniband-include",
        long = "collector.infiniband.device-include",
        value_name = "REGEXP",
        conflicts_with = "infiniband-exclude"
    )]
    pub device_include: Option<NamePattern>,
}

struct Infiniband {
    class: PathBuf,
    devices: NameFilter,
}

const PORT: &[&str] = &["device", "port"];
const INFO: Metric = Metric::gauge(
    "node_infiniband_info",
    "Non-numeric data from /sys/class/infiniband/<device>, value is always 1.",
    &["device", "board_id", "firmware_version", "hca_type"],
);
const STATE: Metric = Metric::gauge(
    "node_infiniband_state_id",
    "State of the InfiniBand port (0: no change, 1: down, 2: init, 3: armed, 4: active, 5: act \
     defer)",
    PORT,
);
const PHYSICAL_STATE: Metric = Metric::gauge(
    "node_infiniband_physical_state_id",
    "Physical state of the InfiniBand port (0: no change, 1: sleep, 2: polling, 3: disable, 4: \
     shift, 5: link up, 6: link error recover, 7: phytest)",
    PORT,
);
const RATE: Metric = Metric::gauge(
    "node_infiniband_rate_bytes_per_second",
    "Maximum signal transfer rate",
    PORT,
);

const LIFESPAN: Metric = Metric::gauge(
    "node_infiniband_lifespan_seconds",
    "The maximum period in ms which defines the aging of the counter reads. Two consecutive reads \
     within this period might return the same values.",
    PORT,
);

/// A counter's file, and how many bytes or events one count is.
struct Counter {
    directory: &'static str,
    file: &'static str,
    unit: u64,
}

macro_rules! counters {
    ($($directory:literal $file:literal $unit:literal $name:literal $help:literal,)*) => {
        const COUNTERS: &[Counter] = &[$(Counter { directory: $directory, file: $file, unit: $unit }),*];
        const METRICS: &[Metric] = &[
            INFO, STATE, PHYSICAL_STATE, RATE, LIFESPAN,
            $(Metric::counter(concat!("node_infiniband_", $name), $help, PORT)),*
        ];
    };
}

counters! {
    "counters_ext" "port_multicast_rcv_packets" 1 "legacy_multicast_packets_received_total"
        "Number of multicast packets received",
    "counters_ext" "port_multicast_xmit_packets" 1 "legacy_multicast_packets_transmitted_total"
        "Number of multicast packets transmitted",
    "counters_ext" "port_rcv_data_64" 4 "legacy_data_received_bytes_total"
        "Number of data octets received on all links",
    "counters_ext" "port_rcv_packets_64" 1 "legacy_packets_received_total"
        "Number of data packets received on all links",
    "counters_ext" "port_unicast_rcv_packets" 1 "legacy_unicast_packets_received_total"
        "Number of unicast packets received",
    "counters_ext" "port_unicast_xmit_packets" 1 "legacy_unicast_packets_transmitted_total"
        "Number of unicast packets transmitted",
    "counters_ext" "port_xmit_data_64" 4 "legacy_data_transmitted_bytes_total"
        "Number of data octets transmitted on all links",
    "counters_ext" "port_xmit_packets_64" 1 "legacy_packets_transmitted_total"
        "Number of data packets received on all links",
    "counters" "excessive_buffer_overrun_errors" 1 "excessive_buffer_overrun_errors_total"
        "Number of times that OverrunErrors consecutive flow control update periods occurred, each \
         having at least one overrun error.",
    "counters" "link_downed" 1 "link_downed_total"
        "Number of times the link failed to recover from an error state and went down",
    "counters" "link_error_recovery" 1 "link_error_recovery_total"
        "Number of times the link successfully recovered from an error state",
    "counters" "local_link_integrity_errors" 1 "local_link_integrity_errors_total"
        "Number of times that the count of local physical errors exceeded the threshold specified \
         by LocalPhyErrors.",
    "counters" "multicast_rcv_packets" 1 "multicast_packets_received_total"
        "Number of multicast packets received (including errors)",
    "counters" "multicast_xmit_packets" 1 "multicast_packets_transmitted_total"
        "Number of multicast packets transmitted (including errors)",
    "counters" "port_rcv_constraint_errors" 1 "port_constraint_errors_received_total"
        "Number of packets received on the switch physical port that are discarded",
    "counters" "port_xmit_constraint_errors" 1 "port_constraint_errors_transmitted_total"
        "Number of packets not transmitted from the switch physical port",
    "counters" "port_rcv_data" 4 "port_data_received_bytes_total"
        "Number of data octets received on all links",
    "counters" "port_xmit_data" 4 "port_data_transmitted_bytes_total"
        "Number of data octets transmitted on all links",
    "counters" "port_rcv_discards" 1 "port_discards_received_total"
        "Number of inbound packets discarded by the port because the port is down or congested",
    "counters" "port_xmit_discards" 1 "port_discards_transmitted_total"
        "Number of outbound packets discarded by the port because the port is down or congested",
    "counters" "port_rcv_errors" 1 "port_errors_received_total"
        "Number of packets containing an error that were received on this port",
    "counters" "port_rcv_packets" 1 "port_packets_received_total"
        "Number of packets received on all VLs by this port (including errors)",
    "counters" "port_xmit_packets" 1 "port_packets_transmitted_total"
        "Number of packets transmitted on all VLs from this port (including errors)",
    "counters" "port_rcv_remote_physical_errors" 1 "port_receive_remote_physical_errors_total"
        "Number of packets marked with the EBP (End of Bad Packet) delimiter received on the port.",
    "counters" "port_rcv_switch_relay_errors" 1 "port_receive_switch_relay_errors_total"
        "Number of packets that could not be forwarded by the switch.",
    "counters" "port_xmit_wait" 1 "port_transmit_wait_total"
        "Number of ticks during which the port had data to transmit but no data was sent during \
         the entire tick",
    "counters" "symbol_error" 1 "symbol_error_total"
        "Number of minor link errors detected on one or more physical lanes.",
    "counters" "unicast_rcv_packets" 1 "unicast_packets_received_total"
        "Number of unicast packets received (including errors)",
    "counters" "unicast_xmit_packets" 1 "unicast_packets_transmitted_total"
        "Number of unicast packets transmitted (including errors)",
    "counters" "VL15_dropped" 1 "vl15_dropped_total"
        "Number of incoming VL15 packets dropped due to resource limitations.",
    "hw_counters" "duplicate_request" 1 "duplicate_requests_packets_total"
        "The number of received packets. A duplicate request is a request that had been previously \
         executed.",
    "hw_counters" "implied_nak_seq_err" 1 "implied_nak_seq_errors_total"
        "The number of time the requested decided an ACK. with a PSN larger than the expected PSN \
         for an RDMA read or response.",
    "hw_counters" "local_ack_timeout_err" 1 "local_ack_timeout_errors_total"
        "The number of times QP's ack timer expired for RC, XRC, DCT QPs at the sender side. The \
         QP retry limit was not exceed, therefore it is still recoverable error.",
    "hw_counters" "np_cnp_sent" 1 "np_cnp_packets_sent_total"
        "The number of CNP packets sent by the Notification Point when it noticed congestion \
         experienced in the RoCEv2 IP header (ECN bits). The counters was added in MLNX_OFED 4.1",
    "hw_counters" "np_ecn_marked_roce_packets" 1 "np_ecn_marked_roce_packets_received_total"
        "The number of RoCEv2 packets received by the notification point which were marked for \
         experiencing the congestion (ECN bits where '11' on the ingress RoCE traffic) . The \
         counters was added in MLNX_OFED 4.1",
    "hw_counters" "out_of_buffer" 1 "out_of_buffer_drops_total"
        "The number of drops occurred due to lack of WQE for the associated QPs.",
    "hw_counters" "out_of_sequence" 1 "out_of_sequence_packets_received_total"
        "The number of out of sequence packets received.",
    "hw_counters" "packet_seq_err" 1 "packet_sequence_errors_total"
        "The number of received NAK sequence error packets. The QP retry limit was not exceeded.",
    "hw_counters" "req_cqe_error" 1 "req_cqes_errors_total"
        "The number of times requester detected CQEs completed with errors. The counters was added \
         in MLNX_OFED 4.1",
    "hw_counters" "req_cqe_flush_error" 1 "req_cqes_flush_errors_total"
        "The number of times requester detected CQEs completed with flushed errors. The counters \
         was added in MLNX_OFED 4.1",
    "hw_counters" "req_remote_access_errors" 1 "req_remote_access_errors_total"
        "The number of times requester detected remote access errors. The counters was added in \
         MLNX_OFED 4.1",
    "hw_counters" "req_remote_invalid_request" 1 "req_remote_invalid_request_errors_total"
        "The number of times requester detected remote invalid request errors. The counters was \
         added in MLNX_OFED 4.1",
    "hw_counters" "resp_cqe_error" 1 "resp_cqes_errors_total"
        "The number of times responder detected CQEs completed with errors. The counters was added \
         in MLNX_OFED 4.1",
    "hw_counters" "resp_cqe_flush_error" 1 "resp_cqes_flush_errors_total"
        "The number of times responder detected CQEs completed with flushed errors. The counters \
         was added in MLNX_OFED 4.1",
    "hw_counters" "resp_local_length_error" 1 "resp_local_length_errors_total"
        "The number of times responder detected local length errors. The counters was added in \
         MLNX_OFED 4.1",
    "hw_counters" "resp_remote_access_errors" 1 "resp_remote_access_errors_total"
        "The number of times responder detected remote access errors. The counters was added in \
         MLNX_OFED 4.1",
    "hw_counters" "rnr_nak_retry_err" 1 "rnr_nak_retry_packets_received_total"
        "The number of received RNR NAK packets. The QP retry limit was not exceeded.",
    "hw_counters" "roce_adp_retrans" 1 "roce_adp_retransmits_total"
        "The number of adaptive retransmissions for RoCE traffic. The counter was added in \
         MLNX_OFED rev 5.0-1.0.0.0 and kernel v5.6.0",
    "hw_counters" "roce_adp_retrans_to" 1 "roce_adp_retransmits_timeout_total"
        "The number of times RoCE traffic reached timeout due to adaptive retransmission. The \
         counter was added in MLNX_OFED rev 5.0-1.0.0.0 and kernel v5.6.0",
    "hw_counters" "roce_slow_restart" 1 "roce_slow_restart_used_total"
        "The number of times RoCE slow restart was used. The counter was added in MLNX_OFED rev \
         5.0-1.0.0.0 and kernel v5.6.0",
    "hw_counters" "roce_slow_restart_cnps" 1 "roce_slow_restart_cnps_total"
        "The number of times RoCE slow restart generated CNP packets. The counter was added in \
         MLNX_OFED rev 5.0-1.0.0.0 and kernel v5.6.0",
    "hw_counters" "roce_slow_restart_trans" 1 "roce_slow_restart_total"
        "The number of times RoCE slow restart changed state to slow restart. The counter was \
         added in MLNX_OFED rev 5.0-1.0.0.0 and kernel v5.6.0",
    "hw_counters" "rp_cnp_handled" 1 "rp_cnp_packets_handled_total"
        "The number of CNP packets handled by the Reaction Point HCA to throttle the transmission \
         rate. The counters was added in MLNX_OFED 4.1",
    "hw_counters" "rp_cnp_ignored" 1 "rp_cnp_ignored_packets_received_total"
        "The number of CNP packets received and ignored by the Reaction Point HCA. This counter \
         should not raise if RoCE Congestion Control was enabled in the network. If this counter \
         raise, verify that ECN was enabled on the adapter.",
    "hw_counters" "rx_atomic_requests" 1 "rx_atomic_requests_total"
        "The number of received ATOMIC request for the associated QPs.",
    "hw_counters" "rx_dct_connect" 1 "rx_dct_connect_requests_total"
        "The number of received connection requests for the associated DCTs.",
    "hw_counters" "rx_icrc_encapsulated" 1 "rx_icrc_encapsulated_errors_total"
        "The number of RoCE packets with ICRC errors. This counter was added in MLNX_OFED 4.4 and \
         kernel 4.19",
    "hw_counters" "rx_read_requests" 1 "rx_read_requests_total"
        "The number of received READ requests for the associated QPs.",
    "hw_counters" "rx_write_requests" 1 "rx_write_requests_total"
        "The number of received WRITE requests for the associated QPs.",
}

pub(crate) fn new(paths: &Paths, options: &InfinibandOptions) -> Box<dyn Collector> {
    let InfinibandOptions {
        device_exclude,
        device_include,
    } = options.clone();
    Box::new(Infiniband {
        class: paths.sysfs.join("class/infiniband"),
        devices: NameFilter::new(device_include, device_exclude),
    })
}

impl Collector for Infiniband {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * METRICS.len()
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let devices = device_names(&self.class, "", "no InfiniBand")?;

        for device in &devices {
            if !self.devices.passes(device) {
                continue;
            }

            let directory = self.class.join(device);
            let text = |file: &str| sysfs::text(&directory.join(file)).unwrap_or_default();
            let board = text("board_id");
            let firmware = text("fw_ver");
            let labels = [device.as_str(), &board, &firmware, &text("hca_type")];
            out.push(&INFO, &labels, 1.0);

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

    let rate = sysfs::text(&directory.join("rate"))
        .as_deref()
        .and_then(rate);
    if let Some(gigabits) = rate {
        out.push(&RATE, labels, gigabits * 1e9 / 8.0);
    }
    if let Some(millis) = sysfs::number::<u64>(&directory.join("hw_counters/lifespan")) {
        out.push(&LIFESPAN, labels, millis as f64 / 1e3);
    }

    for (counter, metric) in COUNTERS.iter().zip(&METRICS[5..]) {
        // A counter that a kind of port lacks is no number: "N/A (no PMA)".
        let file = directory.join(counter.directory).join(counter.file);
        if let Some(count) = sysfs::number::<u64>(&file) {
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
    use crate::collector::defaults;

    #[test]
    fn left_out_devices_and_counters_of_the_adapter() {
        let sysfs = tempfile::tempdir().unwrap();
        for device in ["mlx5_0", "mlx5_1"] {
            let counters = sysfs
                .path()
                .join(format!("class/infiniband/{device}/ports/1/hw_counters"));
            std::fs::create_dir_all(&counters).unwrap();
            std::fs::write(counters.join("lifespan"), "10\n").unwrap();
            std::fs::write(counters.join("out_of_sequence"), "7\n").unwrap();
        }
        let paths = Paths {
            sysfs: sysfs.path().to_owned(),
            ..defaults()
        };
        let options = InfinibandOptions {
            device_exclude: "_1$".parse().unwrap(),
            ..defaults()
        };
        let mut samples = Samples::new();
        new(&paths, &options).collect(&mut samples).unwrap();
        let mut page = String::new();
        takt_model::exposition::write_page(
            takt_model::exposition::Format::Text,
            [&samples],
            &mut page,
        );
        let lines: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                r#"node_infiniband_info{device="mlx5_0",board_id="",firmware_version="",hca_type=""} 1"#,
                r#"node_infiniband_lifespan_seconds{device="mlx5_0",port="1"} 0.01"#,
                r#"node_infiniband_out_of_sequence_packets_received_total{device="mlx5_0",port="1"} 7"#,
            ]
        );
    }

    #[test]
    fn rates() {
        assert_eq!(rate("40 Gb/sec (4X QDR)"), Some(40.0));
        assert_eq!(rate("2.5 Gb/sec (1X SDR)"), Some(2.5));
        assert_eq!(rate("fast"), None);
    }
}
