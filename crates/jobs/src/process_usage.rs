//! Usage without a scheduler: a user with a process on a GPU uses that GPU.
//!
//! The exporter reports which users have processes on which GPU (`takt_gpu_process_without_job`).
//! The time from the first to the last sighting becomes a run of one GPU, `NODE/gpuINDEX/USER`, so
//! that usage, reports and fair share also work on a shared server or a few workstations. Two users
//! on one GPU at the same time are both counted. CPUs and memory are unknown.

use crate::JobRun;
use std::collections::BTreeMap;
use takt_model::UnixTime;

/// A user with a process on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessSighting {
    /// Node name.
    pub node: String,
    /// NVML index of the GPU, or its UUID if the index is unknown.
    pub gpu: String,
    /// Unix user.
    pub user: String,
    /// GPU model, if known.
    pub model: Option<String>,
}

/// Users with processes on GPUs, with the first and last sighting of each.
#[derive(Debug, Default)]
pub struct ProcessUsage {
    open: BTreeMap<ProcessSighting, SeenInterval>,
}

#[derive(Debug, Clone, Copy)]
struct SeenInterval {
    first: UnixTime,
    last: UnixTime,
}

/// Seconds after which an unseen process counts as ended. A process that restarts between two
/// scrapes continues its run.
pub const GAP_SECONDS: i64 = 120;

/// Slurm's state, so that queries for running jobs find these runs.
const RUNNING: &str = "RUNNING";

impl ProcessUsage {
    /// Restores a run that was open when the server stopped.
    pub fn resume(&mut self, sighting: ProcessSighting, first: UnixTime, last: UnixTime) {
        self.open.insert(sighting, SeenInterval { first, last });
    }

    /// Records the sightings at `now`. Returns the runs that changed: new ones, and
    /// those that ended with their last sighting. `account` returns the account of a user.
    pub fn observe(
        &mut self,
        cluster: &str,
        sightings: impl IntoIterator<Item = ProcessSighting>,
        now: UnixTime,
        account: impl Fn(&str) -> String,
    ) -> Vec<JobRun> {
        let mut changed = Vec::new();
        // The key of `open` has the model: a GPU whose model becomes known later is another sighting.
        for sighting in sightings {
            // A sighting may arrive late, so the end never moves back.
            if let Some(known) = self.open.get_mut(&sighting)
                && now - known.last <= GAP_SECONDS
            {
                known.last = known.last.max(now);
                continue;
            }

            // Usage in the gap is unknown, so the old run ends at its last sighting and a new one begins.
            if let Some(ended) = self.open.remove(&sighting) {
                changed.push(run(cluster, &sighting, ended, true, &account));
            }
            let began = SeenInterval {
                first: now,
                last: now,
            };
            changed.push(run(cluster, &sighting, began, false, &account));
            self.open.insert(sighting, began);
        }

        // A process has ended when a scrape could have seen it and did not.
        self.open.retain(|sighting, interval| {
            let gone = now - interval.last > GAP_SECONDS;
            if gone {
                changed.push(run(cluster, sighting, *interval, true, &account));
            }
            !gone
        });
        changed
    }
}

fn run(
    cluster: &str,
    seen: &ProcessSighting,
    interval: SeenInterval,
    over: bool,
    account: &impl Fn(&str) -> String,
) -> JobRun {
    JobRun {
        cluster: cluster.to_owned(),
        job_id: format!("{}/gpu{}/{}", seen.node, seen.gpu, seen.user),
        // The submission is part of a run's identity. The first sighting stays the same over restarts of the server.
        submit: interval.first,
        eligible: Some(interval.first),
        start: Some(interval.first),
        // The end is the last sighting, not the moment at which the gap was noticed: that time was not used.
        end: over.then_some(interval.last),
        state: if over { "COMPLETED" } else { RUNNING }.to_owned(),
        user: seen.user.clone(),
        account: account(&seen.user),
        nodes: Some(1),
        gpus: Some(1),
        gpu_model: seen.model.clone(),
        node_list: Some(seen.node.clone()),
        elapsed: over.then(|| interval.last.since(interval.first)),
        ..JobRun::default()
    }
}

/// Returns node, GPU and user of a run that [`run`] created.
pub fn sighting_of(run: &JobRun) -> Option<ProcessSighting> {
    // Ids of Slurm begin with digits and have no slash, so other runs yield `None`.
    let (node, rest) = run.job_id.split_once("/gpu")?;
    let (gpu, user) = rest.split_once('/')?;
    Some(ProcessSighting {
        node: node.to_owned(),
        gpu: gpu.to_owned(),
        user: user.to_owned(),
        model: run.gpu_model.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(gpu: &str, user: &str) -> ProcessSighting {
        ProcessSighting {
            node: "ws1".into(),
            gpu: gpu.into(),
            user: user.into(),
            model: Some("RTX 5090".into()),
        }
    }

    fn summary(runs: &[JobRun]) -> Vec<String> {
        runs.iter()
            .map(|run| {
                let end = run.end.map(|end| end.0);
                format!("{} {} {}-{end:?}", run.job_id, run.state, run.submit)
            })
            .collect()
    }

    #[test]
    fn sightings_become_runs_of_one_gpu() {
        let mut seen = ProcessUsage::default();
        let mut at = |now, who: &[ProcessSighting]| {
            summary(&seen.observe("local", who.to_vec(), UnixTime(now), |user| {
                format!("lab-of-{user}")
            }))
        };

        assert_eq!(
            at(100, &[on("0", "ann"), on("1", "ann")]),
            [
                "ws1/gpu0/ann RUNNING 100-None",
                "ws1/gpu1/ann RUNNING 100-None"
            ]
        );
        assert!(
            at(160, &[on("0", "ann"), on("1", "ann")]).is_empty(),
            "nothing new"
        );
        // A second user on the same GPU; the first user leaves the other one.
        assert_eq!(
            at(220, &[on("0", "ann"), on("0", "bob")]),
            ["ws1/gpu0/bob RUNNING 220-None"]
        );
        assert_eq!(
            at(290, &[on("0", "ann"), on("0", "bob")]),
            ["ws1/gpu1/ann COMPLETED 100-Some(160)"]
        );
        // No sightings for a while: usage in between is unknown.
        assert_eq!(
            at(1000, &[on("0", "ann")]),
            [
                "ws1/gpu0/ann COMPLETED 100-Some(290)",
                "ws1/gpu0/ann RUNNING 1000-None",
                "ws1/gpu0/bob COMPLETED 220-Some(290)",
            ]
        );
    }

    #[test]
    fn a_run_names_its_node_gpu_and_user() {
        let mut seen = ProcessUsage::default();
        let runs = seen.observe("local", [on("0", "ann")], UnixTime(100), |_| {
            "lab".to_owned()
        });
        assert_eq!(sighting_of(&runs[0]), Some(on("0", "ann")));
        // One GPU is known; the CPUs of the process are not, and 0 would count as measured.
        assert_eq!(runs[0].gpus, Some(1));
        assert_eq!(runs[0].cpus, None);
        assert_eq!(runs[0].account.as_str(), "lab");

        let mut again = ProcessUsage::default();
        again.resume(on("0", "ann"), UnixTime(100), UnixTime(150));
        assert!(
            again
                .observe("local", [on("0", "ann")], UnixTime(200), |_| String::new())
                .is_empty(),
            "it goes on"
        );
        assert_eq!(
            sighting_of(&JobRun {
                job_id: "123_4".into(),
                ..JobRun::default()
            }),
            None
        );
    }
}
