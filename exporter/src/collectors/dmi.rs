//! Description of the machine by its firmware: vendor, model, BIOS.
//!
//! Source: `/sys/class/dmi/id`. Serial numbers can be read by root only; what cannot be read has no
//! label.

use crate::collector::{CollectError, Collector};
use crate::paths::Paths;
use crate::sysfs;
use std::path::{Path, PathBuf};
use takt_model::{Metric, Samples};

struct Dmi {
    id: PathBuf,
    /// It does not change before the next start of the node.
    labels: Option<Vec<(&'static str, String)>>,
}

const LABELS: &[&str] = &[
    "bios_date",
    "bios_release",
    "bios_vendor",
    "bios_version",
    "board_asset_tag",
    "board_name",
    "board_serial",
    "board_vendor",
    "board_version",
    "chassis_asset_tag",
    "chassis_serial",
    "chassis_vendor",
    "chassis_version",
    "product_family",
    "product_name",
    "product_serial",
    "product_sku",
    "product_uuid",
    "product_version",
    "system_vendor",
];
const INFO: Metric = Metric::gauge(
    "node_dmi_info",
    "A metric with a constant '1' value labeled by bios_date, bios_release, bios_vendor, \
     bios_version, board_asset_tag, board_name, board_serial, board_vendor, board_version, \
     chassis_asset_tag, chassis_serial, chassis_vendor, chassis_version, product_family, \
     product_name, product_serial, product_sku, product_uuid, product_version, system_vendor if \
     provided by DMI.",
    LABELS,
);

pub(crate) fn new(paths: &Paths) -> Box<dyn Collector> {
    Box::new(Dmi {
        id: paths.sysfs.join("class/dmi/id"),
        labels: None,
    })
}

impl Collector for Dmi {
    fn metrics(&self) -> &'static [Metric] {
        &[INFO]
    }

    fn max_series(&self) -> usize {
        1
    }

    fn collect(&mut self, out: &mut Samples) -> Result<(), CollectError> {
        let id = &self.id;
        let labels = self.labels.get_or_insert_with(|| read_labels(id));
        if labels.is_empty() {
            return Err(CollectError::Absent("the firmware says nothing"));
        }

        let labels = labels.iter();
        let labels: Vec<_> = labels
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        out.push_foreign(INFO.name, INFO.kind, INFO.help, &labels, 1.0);
        Ok(())
    }
}

/// The labels whose files can be read, with their values.
fn read_labels(id: &Path) -> Vec<(&'static str, String)> {
    let labels = LABELS.iter().filter_map(|label| {
        let file = match *label {
            "system_vendor" => "sys_vendor",
            label => label,
        };
        Some((*label, sysfs::text(&id.join(file))?))
    });
    labels.collect()
}
