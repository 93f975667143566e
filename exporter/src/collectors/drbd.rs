//! Disks mirrored over the network (DRBD): what was sent and written, what waits, whether both
//! sides are well.
//!
//! Source: `/proc/drbd`, of DRBD 8; version 9 has it no more. The kernel counts KiB; we publish
//! bytes.

use crate::collector::{CollectError, Collector, MAX_DEVICES, OrAbsent, flag};
use crate::file::KernelFile;
use crate::paths::Paths;
use takt_model::{Kind, Metric, Samples};

struct Drbd {
    drbd: KernelFile,
}

const DEVICE: &[&str] = &["device"];
const SIDE: &[&str] = &["device", "node"];

macro_rules! numbers {
    ($($key:literal $kind:ident $name:literal $unit:literal $help:literal;)*) => {
        /// The kernel's word, and its unit in ours.
        const NUMBERS: &[(&str, f64)] = &[$(($key, $unit)),*];
        const METRICS: &[Metric] = &[
            $(Metric { name: concat!("node_drbd_", $name), help: $help, kind: Kind::$kind, labels: DEVICE },)*
            PRIMARY, UP_TO_DATE, CONNECTED,
        ];
    };
}

numbers! {
    "ns" Counter "network_sent_bytes_total" 1024.0 "Total number of bytes sent via the network.";
    "nr" Counter "network_received_bytes_total" 1024.0 "Total number of bytes received via the \
         network.";
    "dw" Counter "disk_written_bytes_total" 1024.0 "Net data written on local hard disk; in bytes.";
    "dr" Counter "disk_read_bytes_total" 1024.0 "Net data read from local hard disk; in bytes.";
    "al" Counter "activitylog_writes_total" 1.0 "Number of updates of the activity log area of the \
         meta data.";
    "bm" Counter "bitmap_writes_total" 1.0 "Number of updates of the bitmap area of the meta data.";
    "lo" Gauge "local_pending" 1.0 "Number of open requests to the local I/O sub-system.";
    "pe" Gauge "remote_pending" 1.0 "Number of requests sent to the peer, but that have not yet \
         been answered by the latter.";
    "ua" Gauge "remote_unacknowledged" 1.0 "Number of requests received by the peer via the \
         network connection, but that have not yet been answered.";
    "ap" Gauge "application_pending" 1.0 "Number of block I/O requests forwarded to DRBD, but not \
         yet answered by DRBD.";
    "ep" Gauge "epochs" 1.0 "Number of Epochs currently on the fly.";
    "oos" Gauge "out_of_sync_bytes" 1024.0 "Amount of data known to be out of sync; in bytes.";
}

const PRIMARY: Metric = Metric::gauge(
    "node_drbd_node_role_is_primary",
    "Whether the role of the node is in the primary state.",
    SIDE,
);
const UP_TO_DATE: Metric = Metric::gauge(
    "node_drbd_disk_state_is_up_to_date",
    "Whether the disk of the node is up to date.",
    SIDE,
);
const CONNECTED: Metric = Metric::gauge(
    "node_drbd_connected",
    "Whether DRBD is connected to the peer.",
    DEVICE,
);

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Drbd {
        drbd: KernelFile::new(paths.procfs.join("drbd")),
    })
}

impl Collector for Drbd {
    fn metrics(&self) -> &'static [Metric] {
        METRICS
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * (METRICS.len() + 2)
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let text = self.drbd.read();
        push(text.or_absent("no DRBD")?, out);
        Ok(())
    }
}

/// Words such as ` 0:`, which begins a device, `cs:Connected` and `ns:17`; those that we do not
/// know are passed over.
fn push(text: &str, out: &mut Samples) {
    let mut device = None;
    let words = text.split_ascii_whitespace();
    for (key, value) in words.filter_map(|word| word.split_once(':')) {
        if let (Ok(number), "") = (key.parse::<u32>(), value) {
            // The words that follow belong to this device, up to the next number.
            device = Some(format!("drbd{number}"));
            continue;
        }

        // Words before the first device are about the module.
        let Some(device) = device.as_deref() else {
            continue;
        };

        // Our side stands before the slash, the other's behind it.
        let mut sides = |metric, good: &str| {
            for (side, state) in ["local", "remote"].into_iter().zip(value.split('/')) {
                out.push(metric, &[device, side], flag(state == good));
            }
        };

        match key {
            "ro" => sides(&PRIMARY, "Primary"),
            "ds" => sides(&UP_TO_DATE, "UpToDate"),
            "cs" => out.push(&CONNECTED, &[device], flag(value == "Connected")),
            _ => {
                let mut numbers = NUMBERS.iter().zip(METRICS);
                let known = numbers.find(|((word, _), _)| *word == key);
                if let (Some(((_, unit), metric)), Ok(number)) = (known, value.parse::<u64>()) {
                    out.push(metric, &[device], number as f64 * unit);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn two_devices() {
        let text = "version: 8.4.11 (api:1/proto:86-101)\nsrcversion: 1:2\n\n 0: cs:Connected \
             ro:Primary/Secondary ds:UpToDate/Inconsistent C r-----\n    \
                    ns:17 nr:0 dw:x oos:3\n 12: cs:WFConnection ro:Secondary/Unknown\n";
        let mut samples = Samples::new();
        let mut page = String::new();
        push(text, &mut samples);
        takt_model::exposition::write_page(
            takt_model::exposition::Format::Text,
            [&samples],
            &mut page,
        );
        let lines: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                r#"node_drbd_connected{device="drbd0"} 1"#,
                r#"node_drbd_connected{device="drbd12"} 0"#,
                r#"node_drbd_node_role_is_primary{device="drbd0",node="local"} 1"#,
                r#"node_drbd_node_role_is_primary{device="drbd0",node="remote"} 0"#,
                r#"node_drbd_node_role_is_primary{device="drbd12",node="local"} 0"#,
                r#"node_drbd_node_role_is_primary{device="drbd12",node="remote"} 0"#,
                r#"node_drbd_disk_state_is_up_to_date{device="drbd0",node="local"} 1"#,
                r#"node_drbd_disk_state_is_up_to_date{device="drbd0",node="remote"} 0"#,
                r#"node_drbd_network_sent_bytes_total{device="drbd0"} 17408"#,
                r#"node_drbd_network_received_bytes_total{device="drbd0"} 0"#,
                r#"node_drbd_out_of_sync_bytes{device="drbd0"} 3072"#,
            ]
        );
    }

    proptest! {
        #[test]
        fn no_text_ends_it(text in "( |\n|[0-9]{1,12}:|[a-z]{2,3}:|[A-Za-z0-9/:]{0,9}){0,30}") {
            push(&text, &mut Samples::new());
        }
    }
}
