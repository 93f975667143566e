//! What a pod reserves, computed as the scheduler does.
//!
//! The larger of two sums counts for each resource: all containers and sidecars together, and each init container with the sidecars
//! that were started before it. The pod's overhead is added. Where the pod itself has resources, these replace the sums of CPUs
//! and memory. Shares of a GPU (MIG devices, time slices, HAMi's parts) are counted by their name, never as GPUs.

use crate::objects::{AmountTexts, ContainerResources, ContainerSpec, PodSpec};
use crate::quantity::Quantity;
use std::collections::BTreeMap;
use std::fmt::Write;
use takt_jobs::bounded;
use takt_model::shown::printable;

/// Resources of one pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodAmounts {
    /// CPUs.
    pub cpus: Quantity,
    /// Memory in bytes.
    pub memory: Quantity,
    /// Whole GPUs.
    pub gpus: u64,
    /// Shares of GPUs by the name of their resource.
    pub gpu_shares: BTreeMap<String, u64>,
}

/// Most kinds of shares that a pod is recorded with.
const MAX_SHARE_KINDS: usize = 16;

/// Maximum length of the name of a resource in bytes: a domain, a slash and a label's name.
const MAX_NAME_BYTES: usize = 317;

/// Most CPUs or devices of a pod: more than a node has. Their sums over years stay far below 2^63.
const MOST_DEVICES: u64 = 1 << 20;

/// Most memory of a pod in bytes: 1 PiB.
const MOST_MEMORY_BYTES: u64 = 1 << 50;

impl PodAmounts {
    /// Returns the resources that a pod with this specification reserves.
    ///
    /// # Errors
    /// An amount is not one.
    pub(crate) fn of(spec: &PodSpec) -> Result<Self, String> {
        let mut together = Self::default();
        for container in &spec.containers {
            together = together.plus(&Self::of_container(container)?);
        }

        // Init containers run one after the other, beside the sidecars that began before them.
        let mut sidecars = Self::default();
        let mut largest = Self::default();
        for container in &spec.init_containers {
            let own = Self::of_container(container)?;
            if container.restart_policy.as_deref() == Some("Always") {
                sidecars = sidecars.plus(&own);
                largest = largest.larger(&sidecars);
            } else {
                largest = largest.larger(&own.plus(&sidecars));
            }
        }
        let mut reserved = together.plus(&sidecars).larger(&largest);

        let of_pod = Self::of_container_resources(&spec.resources)?;
        if has(&spec.resources, "cpu") {
            reserved.cpus = of_pod.cpus;
        }
        if has(&spec.resources, "memory") {
            reserved.memory = of_pod.memory;
        }

        let all = reserved.plus(&Self::of_amounts(&spec.overhead, &AmountTexts::new())?);
        // Anybody may ask for more than there is, and a pod may name a node by itself. Such amounts would overflow sums.
        let shares = all.gpu_shares.values().copied();
        let counts = shares.chain([all.gpus, all.cpus.ceil()]);
        if counts.max() > Some(MOST_DEVICES) || all.memory.ceil() > MOST_MEMORY_BYTES {
            return Err("it reserves more than a node has".to_owned());
        }
        Ok(all)
    }

    fn of_container(container: &ContainerSpec) -> Result<Self, String> {
        Self::of_container_resources(&container.resources)
    }

    fn of_container_resources(resources: &ContainerResources) -> Result<Self, String> {
        Self::of_amounts(&resources.requests, &resources.limits)
    }

    fn of_amounts(requests: &AmountTexts, limits: &AmountTexts) -> Result<Self, String> {
        let mut amounts = Self::default();
        // A limit without a request is the request, too.
        let unrequested = limits
            .iter()
            .filter(|(name, _)| !requests.contains_key(*name));
        let is_part = requests
            .keys()
            .chain(limits.keys())
            .any(|name| is_part_of_gpu(name));

        for (name, amount) in requests.iter().chain(unrequested) {
            let parsed = || {
                let quantity = Quantity::parse(&amount.0);
                quantity.map_err(|error| format!("{}: {error}", printable(&bounded(name, 64))))
            };
            match name.as_str() {
                "cpu" => amounts.cpus = parsed()?,
                "memory" => amounts.memory = parsed()?,
                // HAMi: `nvidia.com/gpu` counts the cards of which the container has a part.
                _ if is_whole_gpu(name) && !is_part => {
                    amounts.gpus = amounts.gpus.saturating_add(parsed()?.ceil());
                }
                _ if is_whole_gpu(name) || is_share(name) => {
                    amounts.add_share(name, parsed()?.ceil())?;
                }
                _ => {}
            }
        }
        Ok(amounts)
    }

    fn add_share(&mut self, name: &str, count: u64) -> Result<(), String> {
        // The name becomes a part of a TRES text, in which commas and equal signs have meanings.
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte);
        if name.len() > MAX_NAME_BYTES || !name.bytes().all(is_name) {
            let name = printable(&bounded(name, 64));
            return Err(format!("'{name}' is not the name of a resource"));
        }

        if count > 0
            && (self.gpu_shares.len() < MAX_SHARE_KINDS || self.gpu_shares.contains_key(name))
        {
            let shares = self.gpu_shares.entry(name.to_owned()).or_default();
            *shares = shares.saturating_add(count);
        }
        Ok(())
    }

    /// Returns the sum of two amounts.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.combined(other, Quantity::plus, u64::saturating_add)
    }

    /// Returns the larger of two amounts, for each resource.
    #[must_use]
    pub fn larger(&self, other: &Self) -> Self {
        self.combined(other, Quantity::max, u64::max)
    }

    fn combined(
        &self,
        other: &Self,
        quantity: fn(Quantity, Quantity) -> Quantity,
        count: fn(u64, u64) -> u64,
    ) -> Self {
        let mut gpu_shares = self.gpu_shares.clone();
        for (name, shares) in &other.gpu_shares {
            if gpu_shares.len() < MAX_SHARE_KINDS || gpu_shares.contains_key(name) {
                let own = gpu_shares.entry(name.clone()).or_default();
                *own = count(*own, *shares);
            }
        }
        Self {
            cpus: quantity(self.cpus, other.cpus),
            memory: quantity(self.memory, other.memory),
            gpus: count(self.gpus, other.gpus),
            gpu_shares,
        }
    }

    /// Returns the amounts with all GPUs counted as shares, for a node whose `nvidia.com/gpu` are parts of cards.
    #[must_use]
    pub fn with_gpus_as_shares(&self) -> Self {
        let mut amounts = self.clone();
        let whole = std::mem::take(&mut amounts.gpus);
        if whole > 0 {
            let shares = amounts.gpu_shares.entry(WHOLE_NVIDIA.to_owned());
            let shares = shares.or_default();
            *shares = shares.saturating_add(whole);
        }
        amounts
    }

    /// Returns whether the pod reserves nothing.
    pub fn is_nothing(&self) -> bool {
        self.cpus.is_zero() && self.memory.is_zero() && self.gpus == 0 && self.gpu_shares.is_empty()
    }

    /// Returns the amounts as a TRES text of Slurm: `cpu=2.5,mem=16G,node=1,gres/gpu=2,gres/gpu:A100=2`.
    pub fn tres(&self, gpu_model: Option<&str>) -> String {
        let mut text = String::new();
        let milli = self.cpus.milli();
        if milli > 0 {
            let decimals = format!(".{:03}", milli % 1000);
            let decimals = decimals.trim_end_matches('0').trim_end_matches('.');
            let _ = write!(text, "cpu={}{decimals},", milli / 1000);
        }

        if !self.memory.is_zero() {
            let _ = write!(text, "mem={},", memory_text(self.memory.ceil()));
        }
        text.push_str("node=1");

        if self.gpus > 0 {
            let _ = write!(text, ",gres/gpu={}", self.gpus);
            if let Some(model) = gpu_model {
                let _ = write!(text, ",gres/gpu:{model}={}", self.gpus);
            }
        }
        for (name, shares) in &self.gpu_shares {
            let _ = write!(text, ",gres/{name}={shares}");
        }
        text
    }
}

/// Returns bytes in the largest unit of Slurm that divides them; KiB, rounded up, if none does.
fn memory_text(bytes: u64) -> String {
    let units = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];
    let (letter, shift) = units
        .into_iter()
        .find(|(_, shift)| bytes.trailing_zeros() >= *shift)
        .unwrap_or(('K', 10));
    format!("{}{letter}", bytes.div_ceil(1 << shift))
}

/// Returns whether requests or limits name a resource.
fn has(resources: &ContainerResources, name: &str) -> bool {
    resources.requests.contains_key(name) || resources.limits.contains_key(name)
}

/// NVIDIA's resource of whole GPUs.
const WHOLE_NVIDIA: &str = "nvidia.com/gpu";

/// Ends of names below `gpu.intel.com/` that are no GPUs: the right to read counters, and parts.
const INTEL_PARTS: &[&str] = &["_monitoring", "millicores", "memory.max", "tiles"];

/// Returns whether a resource counts whole GPUs.
pub fn is_whole_gpu(resource: &str) -> bool {
    match resource.split_once('/') {
        Some(("nvidia.com" | "amd.com", "gpu")) => true,
        Some(("gpu.intel.com", name)) => {
            !name.ends_with(".shared") && !INTEL_PARTS.iter().any(|part| name.ends_with(part))
        }
        _ => false,
    }
}

/// Returns whether a resource counts parts of GPUs: MIG devices, time slices, partitions.
fn is_share(resource: &str) -> bool {
    match resource.split_once('/') {
        Some(("nvidia.com", name)) => name.starts_with("mig-") || name.ends_with(".shared"),
        // AMD's partitions of a GPU: `amd.com/cpx_nps4`.
        Some(("amd.com", name)) => name.ends_with(".shared") || name.contains("_nps"),
        Some(("gpu.intel.com", name)) => name.ends_with(".shared"),
        _ => false,
    }
}

/// Returns whether a resource of HAMi, or of Intel's scheduler, limits a container to a part of its GPUs.
fn is_part_of_gpu(resource: &str) -> bool {
    matches!(
        resource,
        "nvidia.com/gpucores"
            | "nvidia.com/gpumem"
            | "nvidia.com/gpumem-percentage"
            | "gpu.intel.com/millicores"
            | "gpu.intel.com/tiles"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn amounts(spec: Value) -> Result<PodAmounts, String> {
        PodAmounts::of(&serde_json::from_value(spec).unwrap())
    }

    fn requests(cpu: &str, memory: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    fn sidecar(cpu: &str, memory: &str) -> Value {
        let mut container = requests(cpu, memory);
        container["restartPolicy"] = "Always".into();
        container
    }

    fn tres(spec: Value) -> String {
        amounts(spec).unwrap().tres(None)
    }

    #[test]
    fn containers_add_up() {
        let spec = json!({"containers": [requests("500m", "1Gi"), requests("2", "512Mi")]});
        assert_eq!(tres(spec), "cpu=2.5,mem=1536M,node=1");
    }

    #[test]
    fn an_init_container_counts_where_it_needs_more() {
        let spec = json!({
            "containers": [requests("1", "4Gi")],
            "initContainers": [requests("3", "1Gi"), requests("2", "2Gi")],
        });
        assert_eq!(tres(spec), "cpu=3,mem=4G,node=1");
    }

    #[test]
    fn a_sidecar_runs_beside_containers_and_later_init_containers() {
        // Before the sidecar: 3 CPUs. Beside it: 2 + 0.5. Containers and sidecar: 1 + 0.5.
        let spec = |first: &str| {
            json!({
                "containers": [requests("1", "1Gi")],
                "initContainers": [requests(first, "0"), sidecar("500m", "1Gi"), requests("2", "3Gi")],
            })
        };
        assert_eq!(tres(spec("3")), "cpu=3,mem=4G,node=1");
        assert_eq!(tres(spec("1")), "cpu=2.5,mem=4G,node=1");
    }

    #[test]
    fn resources_of_the_pod_win_for_cpus_and_memory_and_overhead_is_added() {
        let spec = json!({
            "containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "2"}}}],
            "resources": {"requests": {"cpu": "6", "nvidia.com/gpu": "9"}, "limits": {"cpu": "8", "memory": "10Gi"}},
            "overhead": {"cpu": "250m", "memory": "128Mi"},
        });
        // Its limit of memory is its request, too; its GPUs are those of its containers.
        assert_eq!(tres(spec), "cpu=6.25,mem=10368M,node=1,gres/gpu=2");
    }

    #[test]
    fn gpus_are_whole_and_shares_are_not() {
        let limits = |limits: Value| {
            let found =
                amounts(json!({"containers": [{"resources": {"limits": limits}}]})).unwrap();
            (found.gpus, found.tres(None))
        };
        for (given, gpus, text) in [
            (json!({"nvidia.com/gpu": "8"}), 8, "node=1,gres/gpu=8"),
            (json!({"nvidia.com/gpu": 1}), 1, "node=1,gres/gpu=1"),
            (json!({"amd.com/gpu": "2"}), 2, "node=1,gres/gpu=2"),
            (
                json!({"gpu.intel.com/i915": "1", "gpu.intel.com/i915_monitoring": "1"}),
                1,
                "node=1,gres/gpu=1",
            ),
            (
                json!({"nvidia.com/mig-1g.5gb": "3"}),
                0,
                "node=1,gres/nvidia.com/mig-1g.5gb=3",
            ),
            (
                json!({"nvidia.com/gpu.shared": "1"}),
                0,
                "node=1,gres/nvidia.com/gpu.shared=1",
            ),
            (
                json!({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "30"}),
                0,
                "node=1,gres/nvidia.com/gpu=1",
            ),
            (
                json!({"amd.com/cpx_nps4": "1"}),
                0,
                "node=1,gres/amd.com/cpx_nps4=1",
            ),
            (
                json!({"rdma/ib": "1", "ephemeral-storage": "10Gi"}),
                0,
                "node=1",
            ),
        ] {
            assert_eq!(limits(given.clone()), (gpus, text.to_owned()), "{given}");
        }

        // With a model, and on a node that shares its GPUs.
        let four =
            amounts(json!({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}]}))
                .unwrap();
        assert_eq!(
            four.tres(Some("NVIDIA-A100")),
            "node=1,gres/gpu=4,gres/gpu:NVIDIA-A100=4"
        );
        let shared = four.with_gpus_as_shares();
        assert_eq!(
            (shared.gpus, shared.tres(None)),
            (0, "node=1,gres/nvidia.com/gpu=4".to_owned())
        );
    }

    #[test]
    fn bad_amounts_are_refused_and_absent_ones_are_nothing() {
        let cpu = |cpu: Value| {
            amounts(json!({"containers": [{"resources": {"requests": {"cpu": cpu}}}]}))
        };
        assert_eq!(
            cpu("-1".into()).unwrap_err(),
            "cpu: '-1' is not an amount: expected one that is not negative"
        );
        assert!(cpu("many".into()).is_err());
        assert!(
            amounts(json!({"containers": [null_resources(), {}], "initContainers": null}))
                .unwrap()
                .is_nothing()
        );
        let name =
            json!({"containers": [{"resources": {"limits": {"nvidia.com/mig-1,cpu=9": "1"}}}]});
        assert!(amounts(name).is_err());
    }

    fn null_resources() -> Value {
        json!({"resources": {"requests": null, "limits": null}})
    }

    #[test]
    fn memory_has_the_largest_unit_that_divides_it() {
        for (bytes, text) in [
            (1, "1K"),
            (1025, "2K"),
            (1 << 20, "1M"),
            (3 << 29, "1536M"),
            (1 << 40, "1T"),
        ] {
            assert_eq!(memory_text(bytes), text);
        }
    }

    /// A container with random amounts of CPUs (in thousandths), memory, GPUs and shares.
    fn container() -> impl Strategy<Value = (u64, u64, u64, u64, bool)> {
        (
            0..10_000_u64,
            0..1_000_000_u64,
            0..9_u64,
            0..8_u64,
            any::<bool>(),
        )
    }

    fn json_of(
        (cpu, memory, gpus, shares, is_sidecar): (u64, u64, u64, u64, bool),
        is_init: bool,
    ) -> Value {
        let mut container = json!({"resources": {
            "requests": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Ki")},
            "limits": {"nvidia.com/gpu": gpus.to_string(), "nvidia.com/mig-1g.5gb": shares.to_string()},
        }});
        if is_init && is_sidecar {
            container["restartPolicy"] = "Always".into();
        }
        container
    }

    proptest! {
        #[test]
        fn a_pod_reserves_at_least_each_of_its_containers(
            containers in prop::collection::vec(container(), 0..5),
            init in prop::collection::vec(container(), 0..5),
        ) {
            let spec = json!({
                "containers": containers.iter().map(|one| json_of(*one, false)).collect::<Vec<_>>(),
                "initContainers": init.iter().map(|one| json_of(*one, true)).collect::<Vec<_>>(),
            });
            let all = amounts(spec).unwrap();

            // At least each container by itself, at least all containers together, and at most everything.
            for (cpu, memory, gpus, shares, _) in containers.iter().chain(&init) {
                prop_assert!(all.cpus.milli() >= u128::from(*cpu));
                prop_assert!(all.memory.ceil() >= memory * 1024);
                prop_assert!(all.gpus >= *gpus);
                prop_assert!(all.gpu_shares.values().sum::<u64>() >= *shares);
            }
            let sum = |of: &[(u64, u64, u64, u64, bool)]| of.iter().map(|one| one.2).sum::<u64>();
            prop_assert!(all.gpus >= sum(&containers));
            prop_assert!(all.gpus <= sum(&containers) + sum(&init));
        }

        #[test]
        fn shares_are_never_whole_gpus(shares in 0..1000_u64, profile in "[1-7]g\\.[0-9]{1,2}gb(\\.shared)?") {
            let spec = json!({"containers": [{"resources": {"limits": {
                format!("nvidia.com/mig-{profile}"): shares.to_string(),
                "nvidia.com/gpu.shared": shares.to_string(),
            }}}]});
            let found = amounts(spec).unwrap();
            prop_assert_eq!(found.gpus, 0);
            prop_assert_eq!(found.gpu_shares.values().sum::<u64>(), 2 * shares);
        }
    }
}
