//! GPUs in the environment of the first process of each step of a job.
//!
//! Source: `/proc/PID/environ`, which holds the environment that the process was started with; what
//! it changed later does not show there, what its children were started with may be of its own
//! making. So the first process counts, which the scheduler started.

use super::usage::parse_list;
use std::collections::BTreeSet;

/// The variables of one process that name GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StepEnvironment {
    /// `SLURM_JOB_ID`.
    pub jobid: Option<u32>,
    /// Whether it is a batch script's or an interactive shell's: those have all GPUs of the job.
    pub knows_all: bool,
    pub gpus: GrantedGpus,
}

/// The GPUs that a variable names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum GrantedGpus {
    /// The variable is not set, or names no GPU.
    #[default]
    Nothing,
    /// Their UUIDs, GPUs' or parts' (MIG).
    Uuids(BTreeSet<String>),
    /// Their numbers in slurmd's list.
    Indices(BTreeSet<u32>),
}

impl StepEnvironment {
    /// Reads `NAME=value`s that end with a zero each.
    pub fn parse(bytes: &[u8]) -> Self {
        let (mut jobid, mut indices, mut step_indices, mut uuids, mut runtime_uuids) =
            (None, None, None, None, None);

        for (name, value) in bytes.split(|byte| *byte == 0).filter_map(variable) {
            match name {
                "SLURM_JOB_ID" => jobid = value.parse().ok(),
                "SLURM_JOB_GPUS" => indices = Some(value),
                "SLURM_STEP_GPUS" => step_indices = Some(value),
                "CUDA_VISIBLE_DEVICES" => uuids = parse_uuids(value),
                "NVIDIA_VISIBLE_DEVICES" => runtime_uuids = parse_uuids(value),
                _ => {}
            }
        }

        let numbered = |text: &str| Some(parse_list(text)?.into_iter().collect());
        let named = |text: &str| parse_uuids(text).map(GrantedGpus::Uuids);
        let listed = |text: &str| named(text).or_else(|| numbered(text).map(GrantedGpus::Indices));

        // UUIDs need no interpretation. Numbers in CUDA_VISIBLE_DEVICES do not help: within a
        // cgroup they begin at 0.
        let gpus = uuids
            .or(runtime_uuids)
            .map(GrantedGpus::Uuids)
            .or_else(|| indices.and_then(listed))
            .or_else(|| step_indices.and_then(listed));

        Self {
            jobid,
            knows_all: false,
            gpus: gpus.unwrap_or_default(),
        }
    }
}

fn variable(bytes: &[u8]) -> Option<(&str, &str)> {
    std::str::from_utf8(bytes).ok()?.split_once('=')
}

/// A list in which everything is a UUID, or a beginning of one, as CUDA allows.
fn parse_uuids(text: &str) -> Option<BTreeSet<String>> {
    let is_uuid = |word: &&str| word.starts_with("GPU-") || word.starts_with("MIG-");

    let words: Vec<_> = text.split(',').map(str::trim_ascii).collect();
    words
        .iter()
        .all(is_uuid)
        .then(|| words.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> StepEnvironment {
        StepEnvironment::parse(text.replace('\n', "\0").as_bytes())
    }

    fn indices(numbers: &[u32]) -> GrantedGpus {
        GrantedGpus::Indices(numbers.iter().copied().collect())
    }

    #[test]
    fn the_surest_word_counts() {
        let uuids = |words: &[&str]| {
            GrantedGpus::Uuids(words.iter().map(|word| (*word).to_owned()).collect())
        };
        for (text, told) in [
            (
                "SLURM_JOB_ID=7\nSLURM_JOB_GPUS=0,3\nCUDA_VISIBLE_DEVICES=0,1",
                indices(&[0, 3]),
            ),
            ("SLURM_JOB_ID=7\nSLURM_JOB_GPUS=0-2", indices(&[0, 1, 2])),
            (
                "SLURM_JOB_ID=7\nSLURM_STEP_GPUS=1\nCUDA_VISIBLE_DEVICES=0",
                indices(&[1]),
            ),
            ("SLURM_JOB_GPUS=0,1\nSLURM_STEP_GPUS=1", indices(&[0, 1])),
            (
                "SLURM_JOB_GPUS=0\nCUDA_VISIBLE_DEVICES=GPU-a,GPU-b",
                uuids(&["GPU-a", "GPU-b"]),
            ),
            ("CUDA_VISIBLE_DEVICES=MIG-c\n", uuids(&["MIG-c"])),
            ("NVIDIA_VISIBLE_DEVICES=GPU-a", uuids(&["GPU-a"])),
            ("NVIDIA_VISIBLE_DEVICES=all", GrantedGpus::Nothing),
            (
                "NVIDIA_VISIBLE_DEVICES=void\nCUDA_VISIBLE_DEVICES=0,1",
                GrantedGpus::Nothing,
            ),
            ("CUDA_VISIBLE_DEVICES=NoDevFiles", GrantedGpus::Nothing),
            ("SLURM_JOB_GPUS=", GrantedGpus::Nothing),
            ("SLURM_JOB_GPUS=a,b", GrantedGpus::Nothing),
            ("", GrantedGpus::Nothing),
        ] {
            assert_eq!(read(text).gpus, told, "{text}");
        }
        assert_eq!(read("A=1\nSLURM_JOB_ID=123\nB").jobid, Some(123));
        assert_eq!(read("SLURM_JOB_ID=x").jobid, None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "(SLURM_JOB_GPUS=|CUDA_VISIBLE_DEVICES=|[0-9,-]|GPU-|\\PC){0,20}") {
            let _ = StepEnvironment::parse(&[&bytes, text.as_bytes()].concat());
        }
    }
}
