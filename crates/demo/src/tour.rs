//! The things worth looking at first.

use crate::faults::FaultKind;
use crate::page::Demo;
use crate::schedule::Job;
use crate::workload::Kind;

/// One line of the tour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// A sentence about what happens.
    pub text: String,
    /// A command, or the path of a page.
    pub look: String,
}

/// Returns the tour at `now` (UTC seconds).
pub fn tour(demo: &Demo, now: i64) -> Vec<Stop> {
    let job_of = |user: &str, kind: Kind| -> Option<&Job> {
        let user = demo.cluster.user(user)?;
        demo.schedule
            .jobs
            .iter()
            .rev()
            .find(|job| job.user == user && job.kind == kind && job.is_running(now))
    };
    let mut stops = Vec::new();
    let mut add = |text: String, look: String| stops.push(Stop { text, look });
    if let Some(job) = job_of("alice", Kind::Steady) {
        let place = &demo.cluster.nodes[job.placed[0].node].name;
        let fault = demo.script.of(FaultKind::GpuLost);
        add(
            format!(
                "alice's job {} on {place} loses a GPU (XID 79) {} seconds after the start",
                job.id, fault.begins
            ),
            "takt alerts list".to_owned(),
        );
    }
    if let Some(job) = job_of("bob", Kind::Unused) {
        add(
            format!("bob's job {} has never used its GPU", job.id),
            format!("takt job {}", job.id),
        );
    }
    if let Some(job) = job_of("erin", Kind::Hung) {
        add(
            format!("erin's job {} hangs", job.id),
            format!("takt job {}", job.id),
        );
    }
    if let Some(job) = job_of("carol", Kind::OneOfMany) {
        add(
            format!("carol's job {} uses one of its GPUs", job.id),
            format!("takt job {}", job.id),
        );
    }
    add(
        "who used the GPUs in the last month, and who wasted them".to_owned(),
        format!(
            "takt report waste --from {} --to {}",
            date(now - 30 * 86_400),
            date(now + 86_400)
        ),
    );
    add(
        "fair share, explained".to_owned(),
        "takt fairshare".to_owned(),
    );
    stops
}

fn date(at: i64) -> String {
    let at = jiff::Timestamp::from_second(at).unwrap_or_default();
    at.strftime("%Y-%m-%d").to_string()
}
