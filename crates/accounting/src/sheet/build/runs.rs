//! Single jobs: advice, the costliest jobs, those limited by the network, and lost hours.

use super::super::{FixRow, LostRow, NetworkRow, RunRow};
use super::figures::Mean;
use super::{Facts, HOUR, SeenRun};
use crate::efficiency::{AssessedRun, FixKind, Split, hints};
use crate::{Period, in_force};
use jiff::Timestamp;
use std::collections::{BTreeMap, HashMap, HashSet};
use takt_model::UnixTime;

/// Maximum number of changes in a report.
const MOST_FIXES: usize = 5;
/// Maximum number of changes of one kind.
const MOST_OF_A_KIND: usize = 2;

/// Combines equal advice for several runs of one script. The amount suits all of them.
pub(super) fn fixes(facts: &Facts<'_>, seen: &[SeenRun<'_>]) -> Vec<FixRow> {
    struct Wanted {
        row: FixRow,
        amount: u64,
        most: f64,
        held: f64,
    }

    let mut wanted: BTreeMap<(&str, &str, FixKind), Wanted> = BTreeMap::new();

    for seen in seen.iter().filter(|seen| seen.is_in_last()) {
        let run = &seen.assessed.run;
        let efficiency = &seen.assessed.efficiency;
        let share = seen.share(seen.seconds.len() - 1);
        let cost = seen.cost.last().copied().unwrap_or_default();
        let held = efficiency.held_gpu_seconds.unwrap_or(0.0);

        let job = run
            .name
            .as_deref()
            .filter(|name| !name.is_empty())
            .unwrap_or(&run.job_id);

        for advice in hints(run, efficiency, facts.rules) {
            let spared = advice.spares_gpu_seconds * share;
            let row = wanted
                .entry((&run.user, job, advice.fix))
                .or_insert_with(|| Wanted {
                    row: FixRow {
                        job: job.to_owned(),
                        user: run.user.clone(),
                        fix: advice.fix,
                        line: String::new(),
                        why: String::new(),
                        runs: 0,
                        gpu_hours: 0.0,
                        money: 0.0,
                    },
                    amount: 0,
                    // Below any savings, so that the first run sets the words.
                    most: -1.0,
                    held: 0.0,
                });

            row.row.runs += 1;
            row.row.gpu_hours += spared / HOUR;
            row.row.money += if held > 0.0 {
                cost.gpu_money * advice.spares_gpu_seconds / held
            } else {
                0.0
            };

            row.amount = row.amount.max(advice.amount);
            row.held += efficiency.held_seconds as f64 * share;
            if spared > row.most {
                row.most = spared;
                row.row.why = advice.why;
            }
        }
    }

    let mut rows: Vec<Wanted> = wanted.into_values().collect();
    // Among equal savings, the longest run time first.
    rows.sort_by(|a, b| {
        b.row
            .gpu_hours
            .total_cmp(&a.row.gpu_hours)
            .then(b.held.total_cmp(&a.held))
    });

    let mut rows: Vec<FixRow> = rows
        .into_iter()
        .map(|Wanted { row, amount, .. }| FixRow {
            line: row.fix.line(amount),
            ..row
        })
        .collect();

    // Different advice helps more than the same advice five times.
    let mut of_kind: BTreeMap<FixKind, usize> = BTreeMap::new();
    rows.retain(|row| {
        let seen = of_kind.entry(row.fix).or_default();
        *seen += 1;
        *seen <= MOST_OF_A_KIND
    });
    rows.truncate(MOST_FIXES);

    rows
}

pub(super) fn runs(facts: &Facts<'_>, seen: &[SeenRun<'_>]) -> Vec<RunRow> {
    let mut found: Vec<&SeenRun<'_>> = seen.iter().filter(|seen| seen.is_in_last()).collect();
    // The waste of a run that was not measured is unknown, so it has no place among the most wasted.
    if found.iter().any(|seen| is_measured(seen)) {
        found.retain(|seen| is_measured(seen));
    }

    let wasted = |seen: &SeenRun<'_>| seen.assessed.efficiency.split().wasted();
    found.sort_by(|a, b| {
        wasted(b)
            .total_cmp(&wasted(a))
            .then_with(|| a.assessed.run.job_id.cmp(&b.assessed.run.job_id))
    });
    found.truncate(facts.most_runs);
    found
        .into_iter()
        .map(|seen| run_row(facts, seen.assessed))
        .collect()
}

/// Returns whether the waste of a run is known; of a run without GPUs, whether it was measured.
fn is_measured(seen: &SeenRun<'_>) -> bool {
    let efficiency = &seen.assessed.efficiency;
    match seen.assessed.run.gpus {
        Some(0) => efficiency.coverage_ratio > 0.0,
        _ => efficiency.split().known_waste().is_some(),
    }
}

fn run_row(facts: &Facts<'_>, AssessedRun { run, efficiency }: &AssessedRun) -> RunRow {
    let mut split_gpu_hours = Split::default();
    split_gpu_hours.add(&efficiency.split(), 1.0 / HOUR);
    let zone = facts.books.periods().last().map(Period::zone);
    let end = run
        .end
        .and_then(|end| Some(Timestamp::try_from(end).ok()?.to_zoned(zone?)));

    RunRow {
        job_id: run.job_id.clone(),
        name: run.name.clone(),
        user: run.user.clone(),
        account: run.account.clone(),
        state: run.state.clone(),
        end: end.map_or_else(String::new, |end| {
            end.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
        }),
        hours: efficiency.held_seconds as f64 / HOUR,
        gpus: run.gpus,
        gpu_model: run.gpu_model.clone(),
        // Efficiencies stored by older versions may contain -0.0.
        coverage: efficiency.coverage_ratio + 0.0,
        gpu_utilization: efficiency.gpu_utilization_mean,
        gpu_utilization_p95: efficiency.gpu_utilization_p95,
        idle_longest_hours: efficiency
            .gpu_idle_longest_seconds
            .map(|seconds| seconds / HOUR),
        gpu_memory_peak_ratio: (efficiency.gpu_memory_peak_bytes)
            .zip(
                efficiency
                    .gpu_memory_total_bytes
                    .filter(|total| *total > 0.0),
            )
            .map(|(peak, total)| peak / total),
        gpu_sm: efficiency.gpu_sm_mean,
        cpu_ratio: efficiency.cpu_ratio,
        memory_ratio: efficiency.memory_ratio,
        kwh: efficiency.gpu_energy_joules.map(|joules| joules / 3.6e6),
        cause: cause(&split_gpu_hours).to_owned(),
        split_gpu_hours,
    }
}

/// Returns the cause of the largest waste, in words.
fn cause(split: &Split) -> &'static str {
    [
        (split.idle, "did nothing"),
        (split.streak, "idle streaks"),
        (split.low, "low utilization"),
        (split.lost, "lost to a fault"),
    ]
    .into_iter()
    .max_by(|a, b| a.0.total_cmp(&b.0))
    .filter(|(hours, _)| *hours > 0.0)
    .map_or("", |(_, name)| name)
}

pub(super) fn network_bound(seen: &[SeenRun<'_>]) -> Vec<NetworkRow> {
    // The user's runs on one node show what the GPUs do without the network.
    let mut on_one_node: HashMap<&str, Mean> = HashMap::new();
    for seen in seen
        .iter()
        .filter(|seen| seen.assessed.run.nodes == Some(1))
    {
        let efficiency = &seen.assessed.efficiency;
        let weight = efficiency.held_gpu_seconds.unwrap_or(0.0) * efficiency.coverage_ratio;
        on_one_node
            .entry(&seen.assessed.run.user)
            .or_default()
            .add(efficiency.gpu_utilization_mean, weight);
    }

    let bound = seen
        .iter()
        .filter(|seen| seen.is_in_last() && seen.assessed.efficiency.is_network_bound);

    let row = |AssessedRun { run, efficiency }: &AssessedRun| NetworkRow {
        job_id: run.job_id.clone(),
        name: run.name.clone(),
        user: run.user.clone(),
        nodes: run.nodes.unwrap_or(0),
        link_bound: efficiency.link_bound_ratio.unwrap_or(0.0),
        gpu_utilization: efficiency.gpu_utilization_mean,
        single_node_utilization: on_one_node.get(run.user.as_str()).and_then(Mean::value),
    };

    let mut rows: Vec<NetworkRow> = bound.map(|seen| row(seen.assessed)).collect();
    rows.sort_by(|a, b| {
        b.link_bound
            .total_cmp(&a.link_bound)
            .then_with(|| a.job_id.cmp(&b.job_id))
    });

    rows
}

pub(super) fn lost(facts: &Facts<'_>, seen: &[SeenRun<'_>]) -> Vec<LostRow> {
    // Job ids are reused, so the submission counts too.
    let credited: HashSet<(&str, Option<UnixTime>)> = in_force(facts.credits)
        .filter_map(|credit| Some((credit.job_id.as_deref()?, credit.submit)))
        .collect();

    let row = |AssessedRun { run, efficiency }: &AssessedRun| {
        Some(LostRow {
            job_id: run.job_id.clone(),
            name: run.name.clone(),
            user: run.user.clone(),
            nodes: run.node_list.clone().unwrap_or_default(),
            fault: efficiency.fault.clone()?,
            gpu_hours: efficiency.lost_gpu_seconds / HOUR,
            cpu_hours: efficiency.lost_cpu_seconds / HOUR,
            is_credited: credited.contains(&(run.job_id.as_str(), Some(run.submit))),
        })
    };

    let mut rows: Vec<LostRow> = seen
        .iter()
        .filter(|seen| seen.is_in_last())
        .filter_map(|seen| row(seen.assessed))
        .collect();
    rows.sort_by(|a, b| {
        b.gpu_hours
            .total_cmp(&a.gpu_hours)
            .then_with(|| a.job_id.cmp(&b.job_id))
    });

    rows
}
