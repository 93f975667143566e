//! The GPUs of the job that is about to start or has ended.

use crate::facts::{Fact, Facts};
use clap::ValueEnum;
use std::collections::BTreeSet;

/// Order of the list in which slurmd counts GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum GpuOrder {
    /// Order of the PCI bus, as `AutoDetect=nvml` has it
    #[default]
    Pci,
    /// Order of /dev/nvidia*, as plain `File=` lines have it
    Minor,
}

/// The job's GPUs among those of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobGpus {
    /// All GPUs of the node count: none were named, or it is not certain which ones are meant.
    All,
    /// Only the GPUs with these UUIDs.
    Only(BTreeSet<String>),
}

impl JobGpus {
    /// Finds the GPUs of a list such as `0,2-3` (`SLURM_JOB_GPUS`) or of UUIDs.
    ///
    /// Where a GPU does not say its number, the numbers of those behind it are not certain either, and all GPUs count:
    /// the job must not start on a faulty one.
    ///
    /// # Errors
    /// With the part of the list that is no GPU of this node.
    pub fn find(list: &str, order: GpuOrder, facts: &Facts) -> Result<Self, String> {
        let infos = facts.of("takt_gpu_info");
        // A GPU that is gone has no information, and NVML renumbers the others without it.
        let are_numbered = facts.of("takt_gpu_up").iter().all(|up| {
            facts
                .of_with("takt_gpu_info", "uuid", up.label("uuid"))
                .count()
                == 1
        });

        let mut uuids = BTreeSet::new();

        for part in list
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            if let Some(info) = infos.iter().find(|info| info.label("uuid") == part) {
                uuids.insert(info.label("uuid").to_owned());
                continue;
            }

            let Some((first, last)) = range(part) else {
                return Err(part.to_owned());
            };
            if !are_numbered {
                return Ok(Self::All);
            }
            for number in first..=last {
                let Some(info) = infos
                    .iter()
                    .find(|info| number_of(info, order) == Some(number))
                else {
                    return Err(number.to_string());
                };
                uuids.insert(info.label("uuid").to_owned());
            }
        }
        Ok(Self::Only(uuids))
    }

    /// Returns the first part of a list that can be no GPU of any node.
    pub fn mistake(list: &str) -> Option<&str> {
        list.split(',').map(str::trim).find(|part| {
            let is_uuid = part.starts_with("GPU-") || part.starts_with("MIG-");
            !part.is_empty() && !is_uuid && range(part).is_none()
        })
    }

    /// Whether a fault of the GPU concerns the job.
    pub fn include(&self, uuid: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(uuids) => uuids.contains(uuid),
        }
    }
}

fn number_of(info: &Fact, order: GpuOrder) -> Option<u32> {
    let label = match order {
        GpuOrder::Pci => "index",
        GpuOrder::Minor => "minor",
    };
    info.label(label).parse().ok()
}

/// `n` or `n-m`, of at most a node's GPUs.
fn range(text: &str) -> Option<(u32, u32)> {
    const MOST: u32 = 1024;
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    // A range such as 0-4000000000 must not be counted through.
    (first <= last && last < MOST).then_some((first, last))
}
