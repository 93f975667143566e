//! Errors of the node's memory, as its controllers count them.
//!
//! Source: `/sys/devices/system/edac/mc`. A node whose memory corrects nothing, or whose driver is
//! not loaded, has no controllers; that is a success without series, as with node_exporter.

use crate::collector::{CollectError, Collector, MAX_DEVICES};
use crate::paths::Paths;
use crate::sysfs;
use std::path::{Path, PathBuf};
use takt_model::{Metric, Samples};

struct Edac {
    controllers: PathBuf,
}

const CONTROLLER: &[&str] = &["controller"];
const CSROW: &[&str] = &["controller", "csrow"];
const CORRECTABLE: Metric = Metric::counter(
    "node_edac_correctable_errors_total",
    "Total correctable memory errors.",
    CONTROLLER,
);
const UNCORRECTABLE: Metric = Metric::counter(
    "node_edac_uncorrectable_errors_total",
    "Total uncorrectable memory errors.",
    CONTROLLER,
);
const CSROW_CORRECTABLE: Metric = Metric::counter(
    "node_edac_csrow_correctable_errors_total",
    "Total correctable memory errors for this csrow.",
    CSROW,
);
const CSROW_UNCORRECTABLE: Metric = Metric::counter(
    "node_edac_csrow_uncorrectable_errors_total",
    "Total uncorrectable memory errors for this csrow.",
    CSROW,
);
const CHANNEL: &[&str] = &["controller", "csrow", "channel", "dimm_label"];
const CHANNEL_CORRECTABLE: Metric = Metric::counter(
    "node_edac_channel_correctable_errors_total",
    "Total correctable memory errors for this channel.",
    CHANNEL,
);
const CHANNEL_UNCORRECTABLE: Metric = Metric::counter(
    "node_edac_channel_uncorrectable_errors_total",
    "Total uncorrectable memory errors for this channel.",
    CHANNEL,
);
const DIMM: &[&str] = &["controller", "dimm", "label", "location"];
const DIMM_CORRECTABLE: Metric = Metric::counter(
    "takt_edac_dimm_correctable_errors_total",
    "Correctable errors of one memory module; label is the board's name for its slot.",
    DIMM,
);
const DIMM_UNCORRECTABLE: Metric = Metric::counter(
    "takt_edac_dimm_uncorrectable_errors_total",
    "Uncorrectable errors of one memory module; label is the board's name for its slot.",
    DIMM,
);

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Edac {
        controllers: paths.sysfs.join("devices/system/edac/mc"),
    })
}

impl Collector for Edac {
    fn metrics(&self) -> &'static [Metric] {
        &[
            CORRECTABLE,
            UNCORRECTABLE,
            CSROW_CORRECTABLE,
            CSROW_UNCORRECTABLE,
            CHANNEL_CORRECTABLE,
            CHANNEL_UNCORRECTABLE,
            DIMM_CORRECTABLE,
            DIMM_UNCORRECTABLE,
        ]
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * 8
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        for (name, controller) in sysfs::numbered(&self.controllers, "mc").unwrap_or_default() {
            let directory = self.controllers.join(name);
            let of_controller = [controller.as_str()];
            // Errors whose row the controller does not know.
            let unknown = [controller.as_str(), "unknown"];
            let corrected = "ce_noinfo_count";
            let uncorrected = "ue_noinfo_count";
            push(out, &CORRECTABLE, &of_controller, &directory, "ce_count");
            push(out, &CSROW_CORRECTABLE, &unknown, &directory, corrected);
            push(out, &UNCORRECTABLE, &of_controller, &directory, "ue_count");
            push(out, &CSROW_UNCORRECTABLE, &unknown, &directory, uncorrected);

            for (name, csrow) in sysfs::numbered(&directory, "csrow").unwrap_or_default() {
                let row = directory.join(name);
                let labels = [controller.as_str(), &csrow];
                push(out, &CSROW_CORRECTABLE, &labels, &row, "ce_count");
                push(out, &CSROW_UNCORRECTABLE, &labels, &row, "ue_count");
                push_channels(&controller, &csrow, &row, out);
            }

            for (name, dimm) in sysfs::numbered(&directory, "dimm").unwrap_or_default() {
                let module = directory.join(name);
                let text = |file: &str| sysfs::text(&module.join(file)).unwrap_or_default();
                let label = text("dimm_label");
                let location = text("dimm_location");
                let labels = [controller.as_str(), &dimm, &label, &location];
                push(out, &DIMM_CORRECTABLE, &labels, &module, "dimm_ce_count");
                push(out, &DIMM_UNCORRECTABLE, &labels, &module, "dimm_ue_count");
            }
        }
        Ok(())
    }
}

/// Channels of a row: `ch0_ce_count`, and `ch0_ue_count` where the driver has it.
fn push_channels(controller: &str, csrow: &str, row: &Path, out: &mut Samples) {
    for file in sysfs::names(row, "ch").unwrap_or_default() {
        let channel = file[2..].strip_suffix("_ce_count").unwrap_or_default();
        if channel.is_empty() || !channel.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }

        let label = dimm_label(sysfs::text(&row.join(format!("ch{channel}_dimm_label"))));
        let labels = [controller, csrow, channel, &label];
        let uncorrectable = format!("ch{channel}_ue_count");
        push(out, &CHANNEL_CORRECTABLE, &labels, row, &file);
        push(out, &CHANNEL_UNCORRECTABLE, &labels, row, &uncorrectable);
    }
}

/// The driver's `mc#0csrow#1channel#0`, as node_exporter writes it: `mc0_csrow1_channel0`.
fn dimm_label(text: Option<String>) -> String {
    let Some(text) = text else {
        return "unknown".to_owned();
    };
    text.replace('#', "")
        .replace("csrow", "_csrow")
        .replace("channel", "_channel")
}

fn push(out: &mut Samples, metric: &Metric, labels: &[&str], directory: &Path, file: &str) {
    if let Some(count) = sysfs::number::<u64>(&directory.join(file)) {
        out.push(metric, labels, count as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_memory_modules() {
        let label = |text: &str| dimm_label(Some(text.to_owned()));
        assert_eq!(label("mc#0csrow#1channel#0"), "mc0_csrow1_channel0");
        assert_eq!(label("CPU1_DIMM_A1"), "CPU1_DIMM_A1");
        assert_eq!(dimm_label(None), "unknown");
    }
}
