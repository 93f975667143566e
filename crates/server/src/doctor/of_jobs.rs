//! Checks of jobs and their GPUs.

use super::facts::{Facts, Reading};
use super::of_nodes::gpu_name;
use super::{Finding, Severity, finding, word};
use std::collections::{BTreeMap, BTreeSet};

/// A job that uses GPUs which, by the exporter, it was not given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StrayJob<'f> {
    pub node: &'f str,
    pub job: &'f str,
    pub user: &'f str,
    /// UUIDs of the GPUs that its processes use and that it was not given.
    pub used: BTreeSet<&'f str>,
    /// Whether these are the GPUs that it was given if GPUs are counted in the other order.
    pub is_other_order: bool,
}

/// Returns the jobs that use GPUs which they were not given. Nodes with divided GPUs are left out:
/// a job uses a part of a GPU that it holds.
pub(super) fn stray_jobs(facts: &Facts) -> Vec<StrayJob<'_>> {
    type GpusOfJobs<'f> = BTreeMap<(&'f str, &'f str), BTreeSet<&'f str>>;
    let by_job = |metric| {
        let mut jobs = GpusOfJobs::new();
        for reading in facts.values(metric) {
            let key = (reading.node(), reading.label("jobid"));
            jobs.entry(key).or_default().insert(reading.label("uuid"));
        }
        jobs
    };

    let divided: BTreeSet<&str> = facts
        .values("takt_gpu_mig_info")
        .iter()
        .map(Reading::node)
        .collect();

    let user_of = |node: &str, job: &str| {
        facts
            .values("takt_job_info")
            .iter()
            .filter(|info| info.node() == node && info.label("jobid") == job)
            .map(|info| info.label("user"))
            .next()
    };

    let given = by_job("takt_gpu_job_info");
    let used = by_job("takt_gpu_job_memory_used_bytes");
    used.iter()
        .filter_map(|(&(node, job), used)| {
            let given = given
                .get(&(node, job))
                // A job without given GPUs is unknown to the exporter, and not stray.
                .filter(|_| !divided.contains(node))?;

            // GPUs that it uses and was not given. If all that it uses fit another order, only the order is wrong.
            let others: BTreeSet<&str> = used.difference(given).copied().collect();
            (!others.is_empty()).then(|| StrayJob {
                node,
                job,
                user: user_of(node, job).unwrap_or_default(),
                is_other_order: in_other_orders(facts, node, given)
                    .iter()
                    .any(|other| used.is_subset(other)),
                used: others,
            })
        })
        .collect()
}

/// Returns the GPUs of a job if Slurm's numbers mean device files instead of places on the PCI bus,
/// and the reverse.
fn in_other_orders<'f>(
    facts: &'f Facts,
    node: &str,
    given: &BTreeSet<&str>,
) -> [BTreeSet<&'f str>; 2] {
    let gpus: Vec<&Reading> = facts
        .values("takt_gpu_info")
        .iter()
        .filter(|gpu| gpu.node() == node)
        .collect();
    [("index", "minor"), ("minor", "index")].map(|(from, to)| {
        // The numbers of the given GPUs in one order, and the GPUs with these numbers in the other one.
        let numbers: BTreeSet<&str> = gpus
            .iter()
            .filter(|gpu| given.contains(gpu.label("uuid")))
            .map(|gpu| gpu.label(from))
            .collect();
        gpus.iter()
            .filter(|gpu| numbers.contains(gpu.label(to)))
            .map(|gpu| gpu.label("uuid"))
            .collect()
    })
}

pub(super) fn gpu_order(facts: &Facts) -> Vec<Finding> {
    // One job shows it for the whole node.
    let mut nodes = BTreeMap::new();
    for stray in stray_jobs(facts) {
        if stray.is_other_order {
            nodes.entry(stray.node).or_insert(stray);
        }
    }

    let report = |(node, stray): (&str, StrayJob<'_>)| {
        finding(
            Severity::Failure,
            node,
            format!(
                "job {} uses {}; the exporter counts GPUs in another order than Slurm and shows \
                 the job on another GPU",
                stray.job,
                gpu_names(facts, node, &stray.used)
            ),
            "Usage, efficiency and alerts of GPUs on this node name the wrong job.",
            [
                "AutoDetect=nvml        # in gres.conf, then: scontrol reconfigure".to_owned(),
                format!(
                    "ssh {} sudo systemctl edit takt-exporter        # or: add \
                     --collector.jobs.gpu-order=minor to ExecStart",
                    word(node)
                ),
            ],
        )
    };
    nodes.into_iter().map(report).collect()
}

/// Returns the settings that keep jobs from GPUs of others; where they are set, what keeps them from working.
pub(super) fn remedy_of_isolation(facts: &Facts) -> [String; 2] {
    match facts.constrains_devices() {
        Some(true) => [
            "sudo systemctl restart slurmd        # on the node: ConstrainDevices is set, and slurmd reads it at its \
             start"
                .to_owned(),
            "slurmd -G        # on the node: gres.conf must name the device file of each GPU".to_owned(),
        ],
        _ => [
            "ConstrainDevices=yes        # in cgroup.conf on every node".to_owned(),
            "TaskPlugin=task/cgroup,task/affinity        # in slurm.conf, then restart slurmctld \
             and each slurmd"
                .to_owned(),
        ],
    }
}

pub(super) fn isolation(facts: &Facts) -> Vec<Finding> {
    let remedy = || remedy_of_isolation(facts);
    let cost = "A job can use the GPUs of other jobs, which then run out of memory or slow down.";
    let stray = stray_jobs(facts).into_iter();
    // The other order is `jobs.gpu_order`'s finding, and no isolation is missing there.
    let mut found: Vec<Finding> = stray
        .filter(|stray| !stray.is_other_order)
        .map(|stray| {
            finding(
                Severity::Failure,
                stray.node,
                format!(
                    "job {} of {} uses {}, which it was not given",
                    stray.job,
                    stray.user,
                    gpu_names(facts, stray.node, &stray.used)
                ),
                cost,
                remedy(),
            )
        })
        .collect();

    let has_gpus = facts.slurm_nodes.values().any(|gpus| *gpus > 0);
    // A job that was seen with GPUs of others is the stronger finding.
    let is_open = facts.constrains_devices() == Some(false);
    if found.is_empty() && has_gpus && is_open {
        let evidence = "each job can open all GPUs of its node (scontrol show config)".to_owned();
        found.push(finding(Severity::Warning, "", evidence, cost, remedy()));
    }
    found
}

fn gpu_names(facts: &Facts, node: &str, uuids: &BTreeSet<&str>) -> String {
    uuids
        .iter()
        .map(|uuid| gpu_name(facts, node, uuid))
        .collect::<Vec<_>>()
        .join(", ")
}
