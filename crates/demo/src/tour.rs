//! The things worth looking at first.

use crate::faults::FaultKind;
use crate::page::Demo;
use crate::schedule::Job;
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

/// Returns the tour at `now`.
pub fn tour(demo: &Demo, now: UnixTime) -> Vec<Stop> {
    let job_of = |user: &str, kind: Kind| -> Option<&Job> {
        let user = demo.cluster.user(user)?;
        demo.schedule
            .jobs
            .iter()
            .rev()
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
    let mut stops = Vec::new();
    if let Some(job) = job_of("alice", Kind::Steady) {
        let place = &demo.cluster.nodes[job.placed[0].node].name;
        let fault = demo.script.of(FaultKind::GpuLost);
        let seconds = demo.script.pace.clock(now + fault.begins) - now;
        stops.push(Stop {
            text: format!(
                "alice's job {} on {place} loses a GPU (XID 79) {seconds} s after the start",
                job.id
            ),
            command: "takt alerts list".to_owned(),
            page: "/alerts".to_owned(),
        });
    }
    if let Some(job) = job_of("bob", Kind::Unused) {
        stops.push(of_job(
            job,
            format!("bob's job {} has never used its GPU", job.id),
        ));
    }
    if let Some(job) = job_of("erin", Kind::Hung) {
        stops.push(of_job(job, format!("erin's job {} hangs", job.id)));
    }
    if let Some(job) = job_of("carol", Kind::OneOfMany) {
        stops.push(of_job(
            job,
            format!("carol's job {} uses one of its GPUs", job.id),
        ));
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
