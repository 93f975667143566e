//! GPUs of a node.

use super::{Demo, Instant, Scope, Sink};
use crate::cluster::GpuModel;
use crate::faults::FaultKind;
use crate::metrics as m;
use crate::schedule::Job;
use crate::workload::Kind;

/// Version of the driver.
const DRIVER: &str = "570.124.06";

/// XIDs with a counter from the start.
const XIDS: [&str; 4] = ["31", "48", "63", "79"];

/// Returns the power draw at a utilization.
pub(super) fn watts(model: &GpuModel, utilization: f64) -> f64 {
    // Even at full utilization, most GPUs stay below their limit.
    let span = 0.86 * model.limit_watts - model.idle_watts;
    model.idle_watts + span * utilization
}

pub(super) fn read(
    demo: &Demo,
    number: usize,
    at: Instant,
    running: &[(&Job, usize)],
    scope: Scope,
    sink: &mut impl Sink,
) {
    let node = &demo.cluster.nodes[number];
    let Some(model) = node.model else {
        return;
    };
    for (index, gpu) in node.gpus.iter().enumerate() {
        let uuid = gpu.uuid.as_str();

        let holder = running.iter().find_map(|&(job, place)| {
            let held = &job.placed[place].gpus;
            let position = held.iter().position(|held| *held == index)?;
            Some((job, job.rank(place, position)))
        });
        let is_everything = scope == Scope::Everything;
        // An idle GPU says nothing about the efficiency of a job.
        if holder.is_none() && !is_everything {
            continue;
        }

        let fault = |kind| demo.script.on_gpu(kind, number, index, at.second);
        let lost = fault(FaultKind::GpuLost);

        // A lost GPU keeps its job, since Slurm does not know of the loss.
        if let Some((job, _)) = holder {
            let user = demo.cluster.users[job.user].name;
            sink.push(&m::GPU_JOB, &[uuid, &job.raw_id, user], 1.0);
        }

        let reason = if lost.is_some() { "lost" } else { "" };
        let up = if lost.is_some() { 0.0 } else { 1.0 };
        sink.push(&m::GPU_UP, &[uuid, reason], up);
        let info = [
            uuid,
            &gpu.index,
            &gpu.index,
            &gpu.bus_id,
            model.name,
            DRIVER,
            &gpu.serial,
        ];
        sink.push(&m::GPU_INFO, &info, 1.0);

        // XIDs are read from the kernel's log, so they are known of a lost GPU as well.
        if is_everything {
            xids(demo, number, index, at, uuid, sink);
        }
        // NVML answers nothing else about a GPU that has fallen off the bus.
        if lost.is_some() {
            continue;
        }

        let moment = holder.map(|(job, rank)| (job, job.moment(rank, at.second)));
        let busy = moment.map_or(0.0, |(job, moment)| job.kind.utilization(moment));
        let used = moment.map_or(0.0, |(job, moment)| job.kind.gpu_memory(moment));
        let used = used * model.memory_bytes;
        let energy = demo.nodes[number].energy[index].at(at.exact);
        sink.push_all(
            // Rounded as NVML gives them: a percent of utilization and a millijoule of energy.
            &[uuid],
            &[
                (&m::GPU_UTILIZATION, (busy * 100.0).round() / 100.0),
                (&m::GPU_MEMORY_USED, used.round()),
                (&m::GPU_MEMORY_TOTAL, model.memory_bytes),
                (&m::GPU_ENERGY, (energy * 1e3).round() / 1e3),
            ],
        );
        if !is_everything {
            continue;
        }

        let noise = at.noise(number as u64 * 64 + 16 + index as u64);
        let power = watts(model, busy) + 3.0 * noise;
        let temperature = 33.0 + 42.0 * busy + 3.0 * noise;
        let memory_busy = (busy * 0.6 * 100.0).round() / 100.0;
        sink.push_all(
            &[uuid],
            &[
                (&m::GPU_MEMORY_UTILIZATION, memory_busy),
                (&m::GPU_POWER, (power * 10.0).round() / 10.0),
                (&m::GPU_POWER_LIMIT, model.limit_watts),
            ],
        );
        sink.push(&m::GPU_TEMPERATURE, &[uuid, "gpu"], temperature.round());

        // The GPU that the others of its job wait for: the hardware holds its clocks down.
        let is_braked = moment.is_some_and(|(job, moment)| {
            job.kind == Kind::Straggler && moment.rank == 0 && busy > 0.0
        });
        let clock = match (used > 0.0, is_braked) {
            (true, true) => 1.11e9 + 15e6 * noise.round(),
            (true, false) => 1.755e9 + 15e6 * noise.round(),
            (false, _) => 2.1e8,
        };
        sink.push(&m::GPU_CLOCK, &[uuid, "sm"], clock);
        let capped = if busy > 0.96 { 1.0 } else { 0.0 };
        sink.push(&m::GPU_THROTTLE, &[uuid, "sw_power_cap"], capped);
        sink.push(&m::GPU_THROTTLE, &[uuid, "sw_thermal"], 0.0);
        let braked = f64::from(u8::from(is_braked));
        sink.push(&m::GPU_THROTTLE, &[uuid, "hw_slowdown"], braked);

        let processes = if used > 0.0 { 1.0 } else { 0.0 };
        sink.push(&m::GPU_PROCESSES, &[uuid], processes);
        if let Some((job, _)) = holder.filter(|_| used > 0.0) {
            sink.push(&m::GPU_JOB_MEMORY, &[uuid, &job.raw_id], used.round());
        }

        if model.has_ecc {
            let is_marked = fault(FaultKind::EccError).is_some();
            let errors = demo.script.times(FaultKind::EccError, number, at.second);
            // The fault hits the first GPU. The others only share the node.
            let errors = if index == 0 { errors as f64 } else { 0.0 };
            sink.push(&m::GPU_ECC_ENABLED, &[uuid], 1.0);
            sink.push(&m::GPU_ECC, &[uuid, "uncorrected", "volatile"], errors);
            sink.push(
                &m::GPU_ECC,
                &[uuid, "corrected", "volatile"],
                (index % 3) as f64,
            );
            let pending = if is_marked { 1.0 } else { 0.0 };
            sink.push(&m::GPU_REMAP_PENDING, &[uuid], pending);
            sink.push(&m::GPU_REMAP_FAILED, &[uuid], 0.0);
        }
    }
    if scope == Scope::Everything {
        without_job(demo, number, at, running, sink);
    }
}

/// A user runs a program on the last GPU of the last node, outside Slurm, for an hour each day.
fn without_job(
    demo: &Demo,
    number: usize,
    at: Instant,
    running: &[(&Job, usize)],
    sink: &mut impl Sink,
) {
    let node = &demo.cluster.nodes[number];
    let Some(last_with_gpus) = demo
        .cluster
        .nodes
        .iter()
        .rposition(|node| !node.gpus.is_empty())
    else {
        return;
    };
    // From half an hour before the start, so that the first page shows it.
    let since = (at.second - demo.script.pace.began + 1800).rem_euclid(86_400);
    let last = node.gpus.len() - 1;
    let is_held = running
        .iter()
        .any(|(job, place)| job.placed[*place].gpus.contains(&last));

    // The scheduler may have given the GPU to a job, and then the program has a job.
    if number != last_with_gpus || since >= 7200 || is_held {
        return;
    }
    let uuid = node.gpus[last].uuid.as_str();
    let user = demo.cluster.users.last().map_or("noor", |user| user.name);
    sink.push(&m::GPU_WITHOUT_JOB, &[uuid, user], 1.0);
    sink.push(&m::GPU_PROCESS_MEMORY, &[uuid, user, "python3"], 6.1e9);
}

fn xids(demo: &Demo, number: usize, index: usize, at: Instant, uuid: &str, sink: &mut impl Sink) {
    for xid in XIDS {
        let kind = match xid {
            "79" => Some(FaultKind::GpuLost),
            "48" | "63" => Some(FaultKind::EccError),
            _ => None,
        };
        // Both errors are counted only on the GPU that has them.
        let count = kind
            .filter(|kind| demo.script.of(*kind).gpu == index)
            .map_or(0, |kind| demo.script.times(kind, number, at.second));
        sink.push(&m::GPU_XIDS, &[uuid, xid], count as f64);
    }
}
