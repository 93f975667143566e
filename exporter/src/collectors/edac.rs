//! Errors of the node's memory, as its controllers count them.
//!
//! Source: `/sys/devices/system/edac/mc`. A node whose memory corrects nothing, or whose driver is not loaded, has no
//! controllers; that is a success without series, as with node_exporter.

use crate::collector::{CollectError, Collector};
use crate::collectors::MAX_DEVICES;
use crate::options::Options;
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

pub(crate) fn new(options: &Options) -> Box<dyn Collector> {
    Box::new(Edac {
        controllers: options.paths.sysfs.join("devices/system/edac/mc"),
    })
}

impl Collector for Edac {
    fn name(&self) -> &'static str {
        "edac"
    }

    fn metrics(&self) -> &'static [Metric] {
        &[
            CORRECTABLE,
            UNCORRECTABLE,
            CSROW_CORRECTABLE,
            CSROW_UNCORRECTABLE,
            DIMM_CORRECTABLE,
            DIMM_UNCORRECTABLE,
        ]
    }

    fn max_series(&self) -> usize {
        MAX_DEVICES * 6
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        for (name, controller) in sysfs::numbered(&self.controllers, "mc").unwrap_or_default() {
            let directory = self.controllers.join(name);
            push(out, &CORRECTABLE, &[&controller], &directory, "ce_count");
            push(
                out,
                &CSROW_CORRECTABLE,
                &[&controller, "unknown"],
                &directory,
                "ce_noinfo_count",
            );
            push(out, &UNCORRECTABLE, &[&controller], &directory, "ue_count");
            push(
                out,
                &CSROW_UNCORRECTABLE,
                &[&controller, "unknown"],
                &directory,
                "ue_noinfo_count",
            );
            for (name, csrow) in sysfs::numbered(&directory, "csrow").unwrap_or_default() {
                let row = directory.join(name);
                push(
                    out,
                    &CSROW_CORRECTABLE,
                    &[&controller, &csrow],
                    &row,
                    "ce_count",
                );
                push(
                    out,
                    &CSROW_UNCORRECTABLE,
                    &[&controller, &csrow],
                    &row,
                    "ue_count",
                );
            }
            for (name, dimm) in sysfs::numbered(&directory, "dimm").unwrap_or_default() {
                let module = directory.join(name);
                let text = |file: &str| sysfs::text(&module.join(file)).unwrap_or_default();
                let (label, location) = (text("dimm_label"), text("dimm_location"));
                let labels = [controller.as_str(), &dimm, &label, &location];
                push(out, &DIMM_CORRECTABLE, &labels, &module, "dimm_ce_count");
                push(out, &DIMM_UNCORRECTABLE, &labels, &module, "dimm_ue_count");
            }
        }
        Ok(())
    }
}

fn push(out: &mut Samples, metric: &Metric, labels: &[&str], directory: &Path, file: &str) {
    if let Some(count) = sysfs::number::<u64>(&directory.join(file)) {
        out.push(metric, labels, count as f64);
    }
}
