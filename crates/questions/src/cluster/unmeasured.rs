//! GPUs of nodes whose exporter does not answer or does not see them, and holders that only Slurm's allocation names.

use super::{GpuHolder, GpuKey, GpuNow, Holder, LOOKBACK, Look, UNSEEN, by_number, key_of};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use takt_accounting::capacity::NodeCapacity;
use takt_jobs::{NodeCondition, NodeState};
use takt_model::Labels;
use takt_store::{AllocatedGpu, GpuPlace, Listed, RunningJob, SLOTS, Slot, StoreError, slot_of};

/// How long a GPU is remembered whose exporter does not answer: as long as its strip.
const REMEMBERED: Duration = Duration::from_secs(7 * 86_400);

/// Reason of a GPU that was measured before.
const SILENT: &str = "exporter does not answer";

/// Reason of a GPU that Slurm has and no exporter ever reported.
const NO_EXPORTER: &str = "no exporter";

/// Reason of a GPU that Slurm has and the node's exporter does not show.
const NOT_SHOWN: &str = "exporter does not see it";

impl Look<'_> {
    /// Adds the GPUs that exist and are not measured: as exporters last reported them, else as many as Slurm has.
    pub(super) fn unmeasured(&mut self, capacities: &[NodeCapacity]) -> Result<(), StoreError> {
        // An exporter that answers and reports no GPU has measured that there are none.
        let measured: BTreeSet<String> = self
            .latest("takt_exporter_build_info")?
            .iter()
            .filter_map(|series| series.labels.get("node").map(str::to_owned))
            .chain(self.gpus.keys().map(|(node, _)| node.clone()))
            .collect();
        for node in &measured {
            self.heard(node);
        }
        self.silent(&measured)?;

        let known: BTreeSet<String> = self.gpus.keys().map(|(node, _)| node.clone()).collect();
        let divided = self.divided()?;
        for capacity in capacities {
            // Slurm lists future nodes before they are installed.
            let is_here = self.nodes.get(&capacity.node).is_some_and(|node| {
                let state = NodeState::parse(node.state.as_deref().unwrap_or_default());
                state.condition() != NodeCondition::Future
            });
            // Slurm counts the parts of divided GPUs.
            if !is_here || divided.contains(&capacity.node) {
                continue;
            }
            if measured.contains(&capacity.node) {
                self.of_slurm(capacity, NOT_SHOWN);
            } else if !known.contains(&capacity.node) {
                self.of_slurm(capacity, NO_EXPORTER);
            }
        }
        Ok(())
    }

    /// Adds the GPUs that the exporters reported which do not answer now.
    fn silent(&mut self, measured: &BTreeSet<String>) -> Result<(), StoreError> {
        let info = self.matchers("takt_gpu_info");
        let listed = self.store.series(Listed {
            matchers: &info,
            from: self.now.minus(REMEMBERED),
            to: self.now,
        })?;
        // A card that moved to another node is measured there.
        let elsewhere: BTreeSet<String> = self.gpus.keys().map(|(_, uuid)| uuid.clone()).collect();

        // A card that replaced another has its index, and was measured later.
        let mut cards: BTreeMap<(String, String), (i64, Labels)> = BTreeMap::new();
        for labels in listed {
            let (node, uuid) = key_of(&labels);
            let is_silent = !measured.contains(&node) && self.is_present(&node);
            if !is_silent || elsewhere.contains(&uuid) {
                continue;
            }

            let last = self.last_slot(GpuPlace {
                node: node.clone(),
                uuid,
            });
            let index = labels.get("index").unwrap_or_default().to_owned();
            match cards.get(&(node.clone(), index.clone())) {
                Some((known, _)) if *known > last => {}
                _ => {
                    cards.insert((node, index), (last, labels));
                }
            }
        }

        for (_, labels) in cards.into_values() {
            self.describe(&labels);
            self.gpu(&labels).reason = Some(SILENT.to_owned());
        }
        Ok(())
    }

    /// Whether a node belongs to the cluster. Before the first scrape, and without a server, every node may.
    fn is_present(&self, node: &str) -> bool {
        self.targets.is_empty() || self.nodes.contains_key(node)
    }

    /// Returns the last measured slot of a GPU; 0 if it has none.
    fn last_slot(&self, place: GpuPlace) -> i64 {
        // From the first slot that a strip keeps to the one that is being written.
        let until = slot_of(self.now.whole_seconds()) + 1;
        let slots = self.store.strips().read_one(&place, until - SLOTS, until);
        (until - SLOTS..until)
            .zip(slots)
            .filter(|(_, slot)| *slot != Slot::UNKNOWN)
            .last()
            .map_or(0, |(number, _)| number)
    }

    /// Adds the GPUs that Slurm has in a node beyond those that are known.
    fn of_slurm(&mut self, capacity: &NodeCapacity, reason: &str) {
        // Slurm's numbers are small; a mistake in gres.conf must not take all memory.
        let all = capacity.amounts.gpus.min(128) as usize;
        let of_node = self.gpus.keys().filter(|(node, _)| *node == capacity.node);
        let missing = all.saturating_sub(of_node.count());
        let unused = |index: &u32| !self.devices.contains_key(&(capacity.node.clone(), *index));
        let indices: Vec<u32> = (0..).filter(unused).take(missing).collect();
        for index in indices {
            let key = (capacity.node.clone(), format!("{UNSEEN}{index}"));
            let gpu = GpuNow {
                uuid: key.1.clone(),
                index: index.to_string(),
                reason: Some(reason.to_owned()),
                ..GpuNow::default()
            };
            self.devices
                .insert((capacity.node.clone(), index), key.clone());
            self.gpus.insert(key, gpu);
        }
    }

    /// Adds the jobs that Slurm has placed on GPUs and that no exporter reports there: a job that does not use its
    /// GPU, or whose environment the exporter may not read, and the jobs of nodes whose exporter does not answer.
    pub(super) fn allocated(
        &mut self,
        running: &[RunningJob],
        allocated: &[AllocatedGpu],
    ) -> Result<(), StoreError> {
        let by_number = by_number(running);
        let reported = self.jobs_of("takt_gpu_job_info")?;
        let on_nodes = self.jobs_of("takt_job_info")?;
        let before = self.jobs_before()?;
        let divided = self.divided()?;

        // A job that the exporter reports is a holder already.
        for one in allocated {
            let on_node = (one.node.clone(), one.number.clone());
            // Slurm counts the parts of divided GPUs. It is asked once a minute, so a job that the node no longer
            // has, has ended.
            let has_ended = before.contains(&on_node)
                && !on_nodes.contains(&on_node)
                && self.nodes.get(&one.node).is_some_and(|node| node.is_up);
            if divided.contains(&one.node) || reported.contains(&on_node) || has_ended {
                continue;
            }
            // A device that no exporter reported has no place here.
            let key = self.devices.get(&(one.node.clone(), one.index)).cloned();
            let job = by_number.get(one.number.as_str());
            if let (Some(key), Some(job)) = (key, job) {
                self.allocate(key, job, one);
            }
        }
        Ok(())
    }

    fn allocate(&mut self, key: GpuKey, job: &RunningJob, allocated: &AllocatedGpu) {
        let holder = Holder {
            job_id: Some(job.job_id.clone()),
            user: job.user.clone(),
            account: job.account.clone(),
        };
        let holder = GpuHolder {
            job_name: job.name.clone(),
            is_allocated_only: true,
            ..GpuHolder::of(holder)
        };
        self.hold_since(&key, job.start);
        self.hold(&key, holder);
        // The slots do not show this holder; from this moment on they count as held.
        self.allocated_since.insert(key, allocated.since);
    }

    /// Returns the nodes with divided GPUs.
    fn divided(&self) -> Result<BTreeSet<String>, StoreError> {
        let found = self.latest("takt_gpu_mig_info")?;
        let nodes = found.iter().filter_map(|series| series.labels.get("node"));
        Ok(nodes.map(str::to_owned).collect())
    }

    /// Returns node and number of the jobs in a metric now.
    fn jobs_of(&self, metric: &str) -> Result<BTreeSet<(String, String)>, StoreError> {
        let found = self.latest(metric)?;
        Ok(found.iter().map(|series| job_of(&series.labels)).collect())
    }

    /// Returns node and number of the jobs that exporters reported in the last minutes.
    fn jobs_before(&self) -> Result<BTreeSet<(String, String)>, StoreError> {
        let matchers = self.matchers("takt_job_info");
        // Also series that have ended, which an instant query leaves out.
        let found = self.store.series(Listed {
            matchers: &matchers,
            from: self.now.minus(LOOKBACK),
            to: self.now,
        })?;
        Ok(found.iter().map(job_of).collect())
    }
}

fn job_of(labels: &Labels) -> (String, String) {
    let label = |name| labels.get(name).unwrap_or_default().to_owned();
    (label("node"), label("jobid"))
}
