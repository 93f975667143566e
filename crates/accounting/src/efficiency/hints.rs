//! Hints: changes to a job's script as lines to paste, with the reason and the savings.

use super::{Efficiency, EfficiencyConfig};
use crate::failure::recorded_cause;
use serde::{Deserialize, Serialize};
use takt_jobs::JobRun;

/// Kind of a change. Two runs of one script may need the same kind with different values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FixKind {
    /// Request no GPU.
    NoGpu,
    /// Request fewer GPUs.
    FewerGpus,
    /// Release the GPUs once their work is done.
    EndIdle,
    /// Request more CPUs: the GPUs wait for them.
    MoreCpus,
    /// Use one node: the GPUs wait for the network.
    OneNode,
    /// Request fewer CPUs.
    FewerCpus,
    /// Request less memory.
    LessMemory,
    /// Request less time.
    LessTime,
}

impl FixKind {
    /// Returns the line for the script. `amount` is in GPUs, CPUs, GiB per node or seconds,
    /// depending on the kind. The line is a comment if `sbatch` has no option for the change.
    pub fn line(self, amount: u64) -> String {
        match self {
            Self::NoGpu | Self::FewerGpus => format!("#SBATCH --gpus={amount}"),
            Self::EndIdle => "# end the job, or split it, where its GPUs are done".to_owned(),
            Self::MoreCpus | Self::FewerCpus => {
                format!("#SBATCH --ntasks=1 --cpus-per-task={amount}")
            }
            Self::OneNode => "#SBATCH --nodes=1".to_owned(),
            Self::LessMemory => format!("#SBATCH --mem={amount}G"),
            Self::LessTime => format!("#SBATCH --time={}", slurm_time(amount)),
        }
    }
}

/// One change to one job's script.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// Kind of the change.
    pub fix: FixKind,
    /// Amount to request. For several runs the highest suits all.
    pub amount: u64,
    /// Observation that leads to the advice.
    pub why: String,
    /// GPU-seconds that the change would have saved.
    pub spares_gpu_seconds: f64,
}

const GIB: f64 = (1_u64 << 30) as f64;
/// Safety margin above the highest observed use.
const MARGIN: f64 = 1.25;
/// Savings of memory below this are not reported.
const MEMORY_FLOOR: f64 = 4.0 * GIB;
/// Excess time limits below this, in seconds, are not reported.
const TIME_FLOOR: u64 = 3600;
const QUARTER: u64 = 900;

/// Returns the advice for a run, largest savings first. Empty if too little was measured. Changes that
/// would make the recorded failure of the run more likely are left out.
pub fn hints(run: &JobRun, seen: &Efficiency, rules: &EfficiencyConfig) -> Vec<Advice> {
    // A fault hides how the program behaves, and the saved hours were lost anyway.
    if !seen.is_measured(rules) || seen.fault.is_some() {
        return Vec::new();
    }
    let mut found: Vec<Advice> = [gpus, idle_streaks, feeding, network, cpus, memory, time]
        .into_iter()
        .filter_map(|look| look(run, seen, rules))
        // A hint must not contradict the cause of the failure beside it.
        .filter(|advice| !recorded_cause(run).is_some_and(|cause| cause.forbids(advice.fix)))
        .collect();
    found.sort_by(|a, b| {
        b.spares_gpu_seconds
            .total_cmp(&a.spares_gpu_seconds)
            .then(a.fix.cmp(&b.fix))
    });
    found
}

fn gpus(run: &JobRun, seen: &Efficiency, _: &EfficiencyConfig) -> Option<Advice> {
    let held = run.gpus?;
    let idle = seen.gpus_idle;
    // With unmeasured GPUs, the idle ones may not be all that could be spared.
    if idle == 0 || seen.gpus_measured < held {
        return None;
    }

    let used = held.saturating_sub(idle);
    let fix = if used == 0 {
        FixKind::NoGpu
    } else {
        FixKind::FewerGpus
    };

    let held = count(held, "GPU");
    let why = if used == 0 {
        format!("its {held} did nothing")
    } else {
        format!("{idle} of its {held} did nothing")
    };

    Some(Advice {
        fix,
        amount: used,
        why,
        spares_gpu_seconds: seen.waste_idle_gpu_seconds,
    })
}

fn idle_streaks(_: &JobRun, seen: &Efficiency, _: &EfficiencyConfig) -> Option<Advice> {
    let wasted = seen.waste_streak_gpu_seconds;
    // Less than an hour of idle GPU time is not worth a hint.
    if wasted < 3600.0 {
        return None;
    }
    let longest = hours_minutes(seen.gpu_idle_longest_seconds.unwrap_or(0.0));
    Some(Advice {
        fix: FixKind::EndIdle,
        why: format!("GPUs that had worked then idled, {longest} at the longest"),
        spares_gpu_seconds: wasted,
        amount: 0,
    })
}

/// Low GPU utilization with busy CPUs: the GPUs wait for data.
fn feeding(run: &JobRun, seen: &Efficiency, rules: &EfficiencyConfig) -> Option<Advice> {
    let cpus = run.cpus?;
    let ratio = seen.cpu_ratio?;
    let mean = seen.gpu_utilization_mean?;

    // The line of the hint is for one node.
    if ratio < 0.85 || mean >= rules.low_utilization_ratio || run.nodes != Some(1) {
        return None;
    }

    let wanted = cpus * 2;
    Some(Advice {
        fix: FixKind::MoreCpus,
        why: format!(
            "its {} were busy ({}) while its GPUs waited",
            count(cpus, "CPU"),
            percent(ratio)
        ),
        spares_gpu_seconds: seen.waste_low_gpu_seconds,
        amount: wanted,
    })
}

fn network(run: &JobRun, seen: &Efficiency, _: &EfficiencyConfig) -> Option<Advice> {
    let bound = seen.link_bound_ratio.filter(|_| seen.is_network_bound)?;
    let nodes = run.nodes.unwrap_or(2);
    Some(Advice {
        fix: FixKind::OneNode,
        why: format!(
            "{} of the time a link of its {nodes} nodes was full and its GPUs waited",
            percent(bound)
        ),
        spares_gpu_seconds: seen.waste_low_gpu_seconds,
        amount: 1,
    })
}

fn cpus(run: &JobRun, seen: &Efficiency, _: &EfficiencyConfig) -> Option<Advice> {
    let cpus = run.cpus?;
    let used = seen.cpu_seconds?;
    let ratio = seen.cpu_ratio?;
    // Few CPUs cannot be spared, and the line of the hint is for one node.
    if cpus < 4 || ratio > 0.4 || run.nodes != Some(1) || seen.held_seconds == 0 {
        return None;
    }
    let wanted = (used / seen.held_seconds as f64 * MARGIN).ceil().max(1.0) as u64;
    (wanted <= cpus / 2).then(|| Advice {
        fix: FixKind::FewerCpus,
        why: format!("{} of its {} were used", percent(ratio), count(cpus, "CPU")),
        spares_gpu_seconds: 0.0,
        amount: wanted,
    })
}

fn memory(run: &JobRun, seen: &Efficiency, _: &EfficiencyConfig) -> Option<Advice> {
    let held = run.largest_mem_bytes()? as f64;
    let peak = seen.memory_peak_bytes?;
    let nodes = run.nodes.filter(|nodes| *nodes > 0)?;
    // `--mem` is for each node.
    let wanted = (peak * MARGIN / nodes as f64 / GIB).ceil().max(1.0);
    // Small savings are not worth a change, and half of the memory is a reserve.
    (peak < held / 2.0 && held - wanted * GIB * nodes as f64 >= MEMORY_FLOOR).then(|| Advice {
        fix: FixKind::LessMemory,
        why: format!(
            "{:.1} GiB of {:.0} GiB were used at the highest",
            peak / GIB,
            held / GIB
        ),
        spares_gpu_seconds: 0.0,
        amount: wanted as u64,
    })
}

fn time(run: &JobRun, seen: &Efficiency, _: &EfficiencyConfig) -> Option<Advice> {
    let limit = run.timelimit?;
    // Rounded up to a quarter of an hour, as people write limits.
    let wanted = ((seen.held_seconds as f64 * MARGIN) as u64)
        .div_ceil(QUARTER)
        .max(1)
        * QUARTER;

    // Only a completed run shows how long the job takes.
    let worth = run.state == "COMPLETED"
        && seen.held_seconds < limit / 2
        && limit.saturating_sub(wanted) >= TIME_FLOOR;

    worth.then(|| Advice {
        fix: FixKind::LessTime,
        why: format!(
            "it ran {} of its limit of {}; a shorter job starts sooner",
            hours_minutes(seen.held_seconds as f64),
            hours_minutes(limit as f64)
        ),
        spares_gpu_seconds: 0.0,
        amount: wanted,
    })
}

pub(super) fn percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

pub(super) fn count(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn hours_minutes(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    format!("{}:{:02} h", minutes / 60, minutes % 60)
}

/// Formats a duration for sbatch: `1-06:15:00`.
fn slurm_time(seconds: u64) -> String {
    let days = seconds / 86_400;
    let hours = seconds / 3600 % 24;
    let minutes = seconds / 60 % 60;
    let day = if days > 0 {
        format!("{days}-")
    } else {
        String::new()
    };
    format!("{day}{hours:02}:{minutes:02}:00")
}
