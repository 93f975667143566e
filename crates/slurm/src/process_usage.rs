//! No scheduler at all: whoever has a process on a GPU uses it.
//!
//! The exporter tells which users have processes on which GPU (`takt_gpu_process_without_job`). From their first sighting
//! to their last they become runs of one GPU, `NODE/gpuINDEX/USER`, so that usage, reports and fair share work on a
//! shared server and a few workstations as they do on a cluster. Two users on one GPU at a time are both counted. CPUs
//! and memory are not known.

use crate::JobRun;
use std::collections::BTreeMap;

/// A user who has a process on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sighting {
    /// The node.
    pub node: String,
    /// NVML's index of the GPU, or its UUID where that is not known.
    pub gpu: String,
    /// The Unix user.
    pub user: String,
    /// The GPU's model, where it is known.
    pub model: Option<String>,
}

/// Who is on which GPU, and since when.
#[derive(Debug, Default)]
pub struct Seen {
    open: BTreeMap<Sighting, Interval>,
}

#[derive(Debug, Clone, Copy)]
struct Interval {
    first: i64,
    last: i64,
}

/// Not seen for so many seconds is gone: a process that ends and begins again between two scrapes goes on.
pub const GAP_SECONDS: i64 = 120;

/// A state of Slurm's, for those who look for it.
const RUNNING: &str = "RUNNING";

impl Seen {
    /// Goes on with an interval that was open when the server stopped.
    pub fn resume(&mut self, sighting: Sighting, first: i64, last: i64) {
        self.open.insert(sighting, Interval { first, last });
    }

    /// What changes with these sightings at `now` (UTC seconds): runs that begin, and runs that ended with their last
    /// sighting. `account` is the one of a user.
    pub fn observe(
        &mut self,
        cluster: &str,
        sightings: impl IntoIterator<Item = Sighting>,
        now: i64,
        account: impl Fn(&str) -> String,
    ) -> Vec<JobRun> {
        let mut changed = Vec::new();
        for sighting in sightings {
            if let Some(known) = self.open.get_mut(&sighting)
                && now - known.last <= GAP_SECONDS
            {
                known.last = known.last.max(now);
                continue;
            }
            if let Some(ended) = self.open.remove(&sighting) {
                changed.push(run(cluster, &sighting, ended, true, &account));
            }
            let began = Interval {
                first: now,
                last: now,
            };
            changed.push(run(cluster, &sighting, began, false, &account));
            self.open.insert(sighting, began);
        }
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
    seen: &Sighting,
    interval: Interval,
    over: bool,
    account: &impl Fn(&str) -> String,
) -> JobRun {
    JobRun {
        cluster: cluster.to_owned(),
        job_id: format!("{}/gpu{}/{}", seen.node, seen.gpu, seen.user),
        submit: interval.first,
        eligible: Some(interval.first),
        start: Some(interval.first),
        end: over.then_some(interval.last),
        state: if over { "COMPLETED" } else { RUNNING }.to_owned(),
        user: seen.user.clone(),
        account: account(&seen.user),
        nodes: Some(1),
        gpus: Some(1),
        gpu_model: seen.model.clone(),
        node_list: Some(seen.node.clone()),
        elapsed: over.then(|| u64::try_from(interval.last - interval.first).unwrap_or(0)),
        ..JobRun::default()
    }
}

/// What [`run`] made of a sighting: its node, GPU and user.
pub fn sighting_of(run: &JobRun) -> Option<Sighting> {
    let (node, rest) = run.job_id.split_once("/gpu")?;
    let (gpu, user) = rest.split_once('/')?;
    Some(Sighting {
        node: node.to_owned(),
        gpu: gpu.to_owned(),
        user: user.to_owned(),
        model: run.gpu_model.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(gpu: &str, user: &str) -> Sighting {
        Sighting {
            node: "ws1".into(),
            gpu: gpu.into(),
            user: user.into(),
            model: Some("RTX 5090".into()),
        }
    }

    fn told(runs: &[JobRun]) -> Vec<String> {
        let words =
            |run: &JobRun| format!("{} {} {}-{:?}", run.job_id, run.state, run.submit, run.end);
        runs.iter().map(words).collect()
    }

    #[test]
    fn sightings_become_runs_of_one_gpu() {
        let mut seen = Seen::default();
        let mut at = |now, who: &[Sighting]| {
            told(&seen.observe("local", who.to_vec(), now, |user| format!("lab-of-{user}")))
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
        // A second user on the same GPU; the first leaves the other one.
        assert_eq!(
            at(220, &[on("0", "ann"), on("0", "bob")]),
            ["ws1/gpu0/bob RUNNING 220-None"]
        );
        assert_eq!(
            at(290, &[on("0", "ann"), on("0", "bob")]),
            ["ws1/gpu1/ann COMPLETED 100-Some(160)"]
        );
        // Nobody looked for a while: what was then is not known.
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
    fn a_run_tells_whose_it_was() {
        let mut seen = Seen::default();
        let runs = seen.observe("local", [on("0", "ann")], 100, |_| "lab".to_owned());
        assert_eq!(sighting_of(&runs[0]), Some(on("0", "ann")));
        assert_eq!(
            (runs[0].gpus, runs[0].cpus, runs[0].account.as_str()),
            (Some(1), None, "lab")
        );
        let mut again = Seen::default();
        again.resume(on("0", "ann"), 100, 150);
        assert!(
            again
                .observe("local", [on("0", "ann")], 200, |_| String::new())
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
