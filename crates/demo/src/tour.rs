//! The things worth looking at first.

use crate::faults::{Fault, FaultKind};
use crate::page::Demo;
use crate::schedule::{Job, Placement};
use crate::workload::Kind;
use takt_model::UnixTime;

/// One stop of the tour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// The events at this step.
    pub text: String,
    /// Command that shows it.
    pub command: String,
    /// Path of the page that shows it.
    pub page: String,
}

/// The GPU that falls off the bus, with the job that holds it then.
fn lost_gpu(demo: &Demo, now: UnixTime) -> Stop {
    let fault = demo.script.of(FaultKind::GpuLost);
    let at = demo.script.pace.clock(now + fault.begins);
    let node = &demo.cluster.nodes[fault.node].name;
    let gpu = fault.gpu;
    let whose = holder(demo, &fault, at).map_or_else(String::new, |job| {
        let user = demo.cluster.users[job.user].name;
        format!(" under {user}'s job {}", job.id)
    });

    Stop {
        text: format!(
            "GPU {gpu} of {node} is lost{whose} (XID 79), {} s after the start",
            at - now
        ),
        command: "takt alerts list".to_owned(),
        page: "/alerts".to_owned(),
    }
}

/// The job that holds the GPU of a fault at `at`.
fn holder<'d>(demo: &'d Demo, fault: &Fault, at: UnixTime) -> Option<&'d Job> {
    let holds = |placed: &Placement| placed.node == fault.node && placed.gpus.contains(&fault.gpu);
    demo.schedule
        .jobs
        .iter()
        .find(|job| job.is_running(at) && job.placed.iter().any(holds))
}

/// Returns the tour at `now`.
pub fn tour(demo: &Demo, now: UnixTime) -> Vec<Stop> {
    let job_of = |user: &str, kind: Kind| -> Option<&Job> {
        let user = demo.cluster.user(user)?;
        demo.schedule
            .jobs
            .iter()
            .rev()
            // The latest one, if the user has several such jobs.
            .find(|job| job.user == user && job.kind == kind && job.is_running(now))
    };
    let of_job = |job: &Job, text: String| Stop {
        text,
        command: format!("takt job {}", job.id),
        page: format!("/jobs/{}", job.id),
    };
    let stop = |text: &str, command: &str, page: &str| Stop {
        text: text.to_owned(),
        command: command.to_owned(),
        page: page.to_owned(),
    };

    let mut stops = vec![lost_gpu(demo, now)];
    // A cluster of workstations has no jobs of carol and grace, and their stops are left out.
    for (user, kind, text) in [
        ("bob", Kind::Unused, "bob's job ID has never used its GPU"),
        ("erin", Kind::Hung, "erin's job ID hangs"),
        (
            "carol",
            Kind::OneOfMany,
            "carol's job ID uses one of its GPUs",
        ),
        (
            "grace",
            Kind::Straggler,
            "one GPU of grace's job ID makes the others wait",
        ),
    ] {
        if let Some(job) = job_of(user, kind) {
            stops.push(of_job(job, text.replace("ID", &job.id)));
        }
    }

    stops.push(stop(
        "what is wrong now, and the commands that repair it",
        "takt doctor",
        "/health",
    ));
    stops.push(stop(
        "who wasted GPU-hours this month, and why",
        "takt report waste",
        "/waste",
    ));
    stops.push(stop(
        "fair share, explained",
        "takt fairshare",
        "/fairshare",
    ));
    stops
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Cluster, Size};

    #[test]
    fn the_first_stop_names_the_job_that_holds_the_gpu() {
        for nodes in [3, 30, 300] {
            // Times in different parts of a day and week: the GPU must be held at each.
            for now in [1_795_000_000, 1_795_030_000, 1_795_555_555] {
                let now = UnixTime(now);
                let cluster = Cluster::new(Size::of(nodes).unwrap());
                let demo = Demo::new(cluster, now, 1);
                let fault = demo.script.of(FaultKind::GpuLost);

                let text = &tour(&demo, now)[0].text;
                let job = holder(&demo, &fault, now + fault.begins);
                let job = job.unwrap_or_else(|| panic!("{nodes} nodes: the GPU is free: {text}"));

                assert!(text.contains(&format!("'s job {} ", job.id)), "{text}");
                assert!(
                    text.contains(&demo.cluster.nodes[fault.node].name),
                    "{text}"
                );
            }
        }
    }
}
