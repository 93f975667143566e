//! The GPUs that a job was given.
//!
//! The surest evidence counts, in this order: the device list of its cgroup (version 1, where
//! everything is denied but what is listed; version 2 keeps no list), UUIDs in its environment,
//! Slurm's numbers there, and what its processes hold open, where that is less than all.

use super::environment::{GrantedGpus, StepEnvironment};
use crate::gpus::GpuTable;
use std::collections::BTreeSet;

/// Meaning of the GPU numbers that Slurm passes to jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum GpuOrder {
    /// GPUs in the order of the PCI bus, as slurmd does with `AutoDetect=nvml`.
    Pci,
    /// The numbers of `/dev/nvidia*`, as slurmd does with `File=/dev/nvidia[0-3]` and no links.
    Minor,
}

/// The GPUs that a job was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GpuGrant {
    /// These, and no others: GPUs, or parts of them, by UUID.
    Gpus(BTreeSet<String>),
    /// No source says which GPUs the job was given.
    Unknown,
}

/// Sources from which the GPUs of a job are derived.
#[derive(Debug, Default)]
pub(super) struct GpuEvidence<'a> {
    /// `devices.list` of the job or of its containers, version 1.
    pub device_lists: Vec<String>,
    /// Environment of the first process of each step.
    pub environments: Vec<&'a StepEnvironment>,
    /// The minors that its processes hold open.
    pub open: BTreeSet<u32>,
}

/// NVIDIA's character devices.
const NVIDIA_MAJOR: &str = "195";

pub(super) fn grant(evidence: &GpuEvidence<'_>, table: &GpuTable, order: GpuOrder) -> GpuGrant {
    let by_minor = |minors: &BTreeSet<u32>| {
        let is_one = |minor: Option<u32>| minor.is_some_and(|minor| minors.contains(&minor));
        let gpus = table.gpus.iter().filter(|gpu| is_one(gpu.minor));
        gpus.map(|gpu| gpu.uuid.clone()).collect::<BTreeSet<_>>()
    };

    let lists = evidence.device_lists.iter();
    let lists = lists.filter_map(|list| parse_device_list(list));
    // Each container has a list of its own, and the job has what any of them has.
    if let Some(minors) = lists.reduce(|a, b| &a | &b) {
        return GpuGrant::Gpus(by_minor(&minors));
    }

    let mut gpus = BTreeSet::new();
    for environment in &evidence.environments {
        match &environment.gpus {
            GrantedGpus::Nothing => {}
            GrantedGpus::Uuids(uuids) => {
                gpus.extend(uuids.iter().filter_map(|uuid| whole(uuid, table)))
            }
            GrantedGpus::Indices(numbers) => match order {
                GpuOrder::Minor => gpus.extend(by_minor(numbers)),
                GpuOrder::Pci => {
                    let found = table.gpus.iter().filter(|gpu| numbers.contains(&gpu.index));
                    gpus.extend(found.map(|gpu| gpu.uuid.clone()));
                }
            },
        }
    }

    let mut environments = evidence.environments.iter();
    let is_told = environments
        .clone()
        .any(|environment| environment.gpus != GrantedGpus::Nothing);
    let would_be_told = environments.any(|environment| environment.knows_all);
    match (is_told, would_be_told) {
        // A job whose environment would name its GPUs, and names none, has none.
        (true, _) | (false, true) => GpuGrant::Gpus(gpus),
        // Where no cgroup forbids it, a process that looks for GPUs opens them all.
        (false, false) if !evidence.open.is_empty() && evidence.open.len() < table.gpus.len() => {
            GpuGrant::Gpus(by_minor(&evidence.open))
        }
        (false, false) => GpuGrant::Unknown,
    }
}

/// The UUID of the table that begins so: CUDA takes beginnings too. An unknown beginning is
/// returned unchanged, since the GPU may be lost.
fn whole(uuid: &str, table: &GpuTable) -> Option<String> {
    let gpus = table.gpus.iter();
    let known = gpus.flat_map(|gpu| {
        let parts = gpu.parts.iter().map(|(part, _)| part);
        std::iter::once(&gpu.uuid).chain(parts)
    });

    let mut matching = known.filter(|known| known.starts_with(uuid));
    match (matching.next(), matching.next()) {
        (Some(one), None) => Some(one.clone()),
        // Their GPUs are unknown.
        (Some(_), Some(_)) => None,
        (None, _) => Some(uuid.to_owned()),
    }
}

/// The minors of the GPUs on the list; `None` where it allows all devices, or the driver's all. A
/// list says that also where single devices are denied, which it does not show.
fn parse_device_list(text: &str) -> Option<BTreeSet<u32>> {
    /// `/dev/nvidiactl` and its like are no GPUs.
    const FIRST_OTHER: u32 = 254;
    let mut minors = BTreeSet::new();
    for line in text.lines() {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let [kind, numbers, access] = words[..] else {
            // A line of another form says nothing, so the list is not used.
            return None;
        };

        let (major, minor) = numbers.split_once(':')?;

        match (kind, major, minor) {
            // Containers may make any device's file, not use it.
            _ if !access.contains(['r', 'w']) => {}
            ("a", ..) | ("c", "*", _) | ("c", NVIDIA_MAJOR, "*") => return None,
            ("c", NVIDIA_MAJOR, minor) => {
                let minor = minor.parse::<u32>().ok();
                minors.extend(minor.filter(|minor| *minor < FIRST_OTHER));
            }
            _ => {}
        }
    }

    // An empty text is no list, so it denies nothing.
    (!text.trim_ascii().is_empty()).then_some(minors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus::KnownGpu;
    use proptest::prelude::*;

    /// Two GPUs whose order on the bus is not that of their minors, and one in parts.
    fn table() -> GpuTable {
        let gpu = |uuid: &str, index, minor| KnownGpu {
            uuid: uuid.into(),
            index,
            minor: Some(minor),
            ..KnownGpu::default()
        };
        let mut gpus = vec![gpu("GPU-a1", 0, 1), gpu("GPU-a2", 1, 0), gpu("GPU-b", 2, 2)];
        gpus[2].parts = vec![("MIG-b1".into(), 7), ("MIG-b2".into(), 8)];
        GpuTable { gpus, read_at: 0.0 }
    }

    fn given(evidence: &GpuEvidence<'_>, order: GpuOrder) -> Option<Vec<String>> {
        match grant(evidence, &table(), order) {
            GpuGrant::Gpus(gpus) => Some(gpus.into_iter().collect()),
            GpuGrant::Unknown => None,
        }
    }

    fn environment(text: &str, knows_all: bool) -> StepEnvironment {
        StepEnvironment {
            knows_all,
            ..StepEnvironment::parse(text.replace(' ', "\0").as_bytes())
        }
    }

    fn told(text: &str, knows_all: bool, order: GpuOrder) -> Option<Vec<String>> {
        let environment = environment(text, knows_all);
        given(
            &GpuEvidence {
                environments: vec![&environment],
                ..GpuEvidence::default()
            },
            order,
        )
    }

    #[test]
    fn gpu_numbers_follow_slurmd() {
        assert_eq!(
            told("SLURM_JOB_GPUS=0", true, GpuOrder::Pci),
            Some(vec!["GPU-a1".into()])
        );
        assert_eq!(
            told("SLURM_JOB_GPUS=0", true, GpuOrder::Minor),
            Some(vec!["GPU-a2".into()])
        );
        assert_eq!(
            told("SLURM_JOB_GPUS=0-1", true, GpuOrder::Minor),
            Some(vec!["GPU-a1".into(), "GPU-a2".into()])
        );
    }

    #[test]
    fn uuids_may_be_cut_and_of_parts() {
        let told = |text| told(text, true, GpuOrder::Pci);
        assert_eq!(
            told("CUDA_VISIBLE_DEVICES=GPU-b"),
            Some(vec!["GPU-b".into()])
        );
        assert_eq!(
            told("CUDA_VISIBLE_DEVICES=GPU-a"),
            Some(vec![]),
            "either of two"
        );
        assert_eq!(
            told("CUDA_VISIBLE_DEVICES=MIG-b2"),
            Some(vec!["MIG-b2".into()])
        );
        assert_eq!(
            told("CUDA_VISIBLE_DEVICES=GPU-lost"),
            Some(vec!["GPU-lost".into()])
        );
    }

    #[test]
    fn who_would_have_been_told_of_gpus_and_was_not_has_none() {
        assert_eq!(told("SLURM_JOB_ID=1", true, GpuOrder::Pci), Some(vec![]));
        assert_eq!(told("SLURM_JOB_ID=1", false, GpuOrder::Pci), None);
    }

    #[test]
    fn steps_add_up() {
        let steps = [
            environment("SLURM_STEP_GPUS=0", false),
            environment("SLURM_STEP_GPUS=2", false),
        ];
        let evidence = GpuEvidence {
            environments: steps.iter().collect(),
            ..GpuEvidence::default()
        };
        assert_eq!(
            given(&evidence, GpuOrder::Pci),
            Some(vec!["GPU-a1".into(), "GPU-b".into()])
        );
    }

    #[test]
    fn a_device_list_that_denies_the_rest_is_the_surest() {
        let listed = |list: &str| {
            let environment = environment("SLURM_JOB_GPUS=2", true);
            let environments = vec![&environment];
            let device_lists = vec![list.to_owned()];
            given(
                &GpuEvidence {
                    device_lists,
                    environments,
                    open: BTreeSet::new(),
                },
                GpuOrder::Pci,
            )
        };
        let slurm = Some(vec!["GPU-b".to_owned()]);
        assert_eq!(
            listed("c 1:3 rwm\nc 195:1 rwm\nc 195:255 rwm\nb 8:0 r\n"),
            Some(vec!["GPU-a1".into()])
        );
        assert_eq!(
            listed("c *:* m\nb *:* m\nc 1:3 rwm\n"),
            Some(vec![]),
            "none"
        );
        for all in [
            "a *:* rwm\n",
            "c *:* rwm\n",
            "c 1:3 rwm\nc 195:* rwm\n",
            "",
            "nonsense\n",
        ] {
            assert_eq!(listed(all), slurm, "{all:?} tells nothing");
        }
    }

    #[test]
    fn open_devices_name_the_gpu_without_another_source() {
        let open = |minors: &[u32]| {
            given(
                &GpuEvidence {
                    open: minors.iter().copied().collect(),
                    ..GpuEvidence::default()
                },
                GpuOrder::Pci,
            )
        };
        assert_eq!(open(&[1]), Some(vec!["GPU-a1".into()]));
        assert_eq!(open(&[0, 1, 2]), None, "whoever looks opens all");
        assert_eq!(open(&[]), None);
    }

    proptest! {
        #[test]
        fn any_list_is_read(text in "(a|b|c|195|:|\\*| |\n|[0-9]{1,12}|\\PC){0,40}") {
            let _ = parse_device_list(&text);
        }
    }
}
