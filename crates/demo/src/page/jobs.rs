//! Jobs on a node: their cgroups.

use super::{Demo, Instant, Scope, Sink};
use crate::metrics as m;
use crate::schedule::Job;

const GIB: f64 = 1_073_741_824.0;

pub(super) fn read(
    demo: &Demo,
    _node: usize,
    at: Instant,
    running: &[(&Job, usize)],
    scope: Scope,
    sink: &mut impl Sink,
) {
    for (job, _) in running {
        let id = [job.raw_id.as_str()];
        let user = demo.cluster.users[job.user].name;
        sink.push(&m::JOB, &[&job.raw_id, user, "slurm", ""], 1.0);

        let cpus = f64::from(job.request.cpus);
        let start = job.start.unwrap_or(at.second).0 as f64;
        // A hung job uses no CPU, but its memory stays.
        let worked = (at.exact.min(job.works_until().0 as f64) - start).max(0.0);
        let cpu = worked * cpus * job.kind.cpu();
        sink.push(&m::JOB_CPU, &id, (cpu * 100.0).round() / 100.0);

        let limit = f64::from(job.request.memory_gib) * GIB;
        let noise = at.noise(job.seed);
        // Memory fills within ten minutes.
        let filled = (worked / 600.0).min(1.0);
        let used = limit * job.kind.memory() * filled * (0.97 + 0.03 * noise);
        let peak = limit * job.kind.memory() * filled;

        // The peak never falls, unlike the memory in use.
        sink.push(&m::JOB_MEMORY, &id, used.round());
        sink.push(&m::JOB_MEMORY_PEAK, &id, peak.round());
        if scope == Scope::Everything {
            sink.push_all(
                &id,
                &[
                    (&m::JOB_CPUS, cpus),
                    (&m::JOB_MEMORY_LIMIT, limit),
                    (&m::JOB_PROCESSES, cpus + 1.0),
                    (&m::JOB_OOM, 0.0),
                ],
            );
        }
    }
}
