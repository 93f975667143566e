//! OOM kills, which take two messages: `oom-kill:…` with the cgroup, and `… Killed process …`.

use super::Recognised;
use crate::job_path::{JobKey, job_of};
use regex_lite::Regex;
use takt_model::{EventKind, Labels};

/// A kill; before 5.0 `Kill process`. The name of the process may have parentheses.
const KILL: &str = r"(?s)^(?P<scope>Memory cgroup out of memory|Out of memory(?: \(oom_kill_allocating_task\))?): Kill(?:ed)? process (?P<pid>\d{1,10}) \((?P<process>.*)\)(?: |$)";

/// Messages that belong to the kills that follow.
#[derive(Debug)]
pub(super) struct OomKills {
    kill: Regex,
    /// `oom-kill:constraint=…`, whose process is killed next.
    victim: Option<String>,
    /// The cgroup of which all processes are killed.
    group: Option<String>,
}

impl OomKills {
    pub fn new() -> Self {
        Self {
            kill: Regex::new(KILL).expect("a test compiles it"),
            victim: None,
            group: None,
        }
    }

    pub fn read(&mut self, message: &str) -> Option<Recognised> {
        if message.starts_with("oom-kill:constraint=") {
            // Another victim ends what is known of the last kill.
            self.victim = Some(message.to_owned());
            self.group = None;
            return None;
        }

        if let Some(rest) = message.strip_prefix("Tasks in ") {
            let group = rest.strip_suffix(" are going to be killed due to memory.oom.group set");
            self.group = group.map(str::to_owned);
            return None;
        }

        // Cheap, and enough to reject nearly all messages. The two forms begin with `O` and `o`.
        if !message.contains("ut of memory") {
            return None;
        }

        let found = self.kill.captures(message)?;
        let of_cgroup = found["scope"].starts_with("Memory cgroup");
        let mut labels = Labels::from_iter([
            ("pid", &found["pid"]),
            ("process", &found["process"]),
            ("scope", if of_cgroup { "cgroup" } else { "node" }),
        ]);

        let victim = self.victim.as_deref();
        let victim = victim.and_then(|line| victim_of(line, &found["process"], &found["pid"]));
        if let Some((_, uid)) = victim {
            labels.set("uid", uid);
        }

        // A group is killed for the limit of a cgroup only.
        let group = self.group.as_deref().filter(|_| of_cgroup);
        let cgroup = victim.map(|(cgroup, _)| cgroup).or(group);
        if let Some(cgroup) = cgroup {
            labels.set("cgroup", cgroup);
            set_job(&mut labels, cgroup);
        }

        Some(Recognised {
            kind: EventKind::OomKill,
            labels,
            message: message.to_owned(),
        })
    }
}

/// Sets the job of a cgroup, which Slurm may name by the SLUID alone.
fn set_job(labels: &mut Labels, cgroup: &str) {
    match job_of(cgroup) {
        Some(JobKey::Sluid(sluid)) => labels.set("sluid", &sluid),
        Some(job) => labels.set("jobid", &job.name()),
        None => {}
    }
}

/// Returns the cgroup and the user of the process that is killed next, from
/// `oom-kill:constraint=…,cpuset=C,mems_allowed=0,oom_memcg=A,task_memcg=B,task=NAME,pid=1,uid=2`.
///
/// Users choose NAME, and the names of cgroups below their own, commas and all. NAME is known from
/// the next message; C is one name without a slash; and B is A or below it, so a part of a user's
/// cgroup is never taken for another cgroup.
fn victim_of<'line>(
    line: &'line str,
    process: &str,
    pid: &str,
) -> Option<(&'line str, &'line str)> {
    let (before, uid) = line.rsplit_once(",uid=")?;
    uid.parse::<u32>().ok()?;
    let before = before
        .strip_suffix(pid)?
        .strip_suffix(",pid=")?
        .strip_suffix(process)?
        .strip_suffix(",task=")?;

    // The kernel's own field comes first: names that a user chose can only follow it.
    let of_node = before.find(",global_oom,task_memcg=/");
    let of_cgroup = before.find(",oom_memcg=/");
    let is_of_node = of_node.is_some_and(|at| of_cgroup.is_none_or(|other| at < other));
    let cgroup = if is_of_node {
        before[of_node?..].strip_prefix(",global_oom,task_memcg=")
    } else {
        below_limit(before[of_cgroup?..].strip_prefix(",oom_memcg=")?)
    };
    Some((cgroup?, uid))
}

/// The second path of `A,task_memcg=B`: the first that is A or below it.
fn below_limit(paths: &str) -> Option<&str> {
    let between = ",task_memcg=";
    paths.match_indices(between).find_map(|(at, _)| {
        let (limited, cgroup) = (&paths[..at], &paths[at + between.len()..]);
        let below = cgroup.strip_prefix(limited.trim_end_matches('/'))?;
        (below.is_empty() || below.starts_with('/')).then_some(cgroup)
    })
}
