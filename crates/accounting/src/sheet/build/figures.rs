//! The figures of one user, account or cluster in one period.

use super::super::books::{Entry, Tally};
use super::super::{Figures, Subject, Waiting};
use super::{Facts, HOUR, SeenRun, is_of};
use crate::efficiency::AssessedRun;
use crate::rates::{Cost, HeldAmounts, Rates};
use crate::{Period, in_force};

pub(super) fn last(entry: &Entry) -> &Tally {
    entry.periods.last().expect("books have a period")
}

/// Returns the run time within a period in seconds, and the cost of GPUs and their energy. `None`
/// if the run lies outside.
pub(super) fn held_cost(
    assessed: &AssessedRun,
    period: &Period,
    rates: &Rates,
) -> Option<(f64, Cost)> {
    let run = &assessed.run;
    let efficiency = &assessed.efficiency;
    let joules = efficiency.gpu_energy_joules.unwrap_or(0.0);

    // The mean power of the run stands for its power in each period.
    let held = HeldAmounts {
        gpus: run.gpus.unwrap_or(0),
        gpu_watts: joules / efficiency.held_seconds.max(1) as f64,
        ..HeldAmounts::default()
    };

    let from = run.start.unwrap_or_default().max(period.from());
    let to = run.end.unwrap_or_default().min(period.to());

    (from < to).then(|| {
        (
            (to - from) as f64,
            rates.cost(&held, run.gpu_model.as_deref(), from, to),
        )
    })
}

/// Returns the cost of the measured energy of a run in a period.
pub fn energy_money(assessed: &AssessedRun, period: &Period, rates: &Rates) -> f64 {
    let cost = held_cost(assessed, period, rates).map_or_else(Cost::default, |(_, cost)| cost);
    cost.money - cost.gpu_money
}

/// Computes the figures of one period from usage and assessed runs.
pub(super) fn figures(
    facts: &Facts<'_>,
    entry: &Entry,
    seen: &[&SeenRun<'_>],
    at: usize,
) -> Figures {
    let tally = &entry.periods[at];
    let period = &facts.books.periods()[at];
    // The books have no energy: it is added from the assessed runs below.
    let mut figures = Figures {
        period: period.label(),
        is_partial: (facts.records_from)
            .is_some_and(|records_from| period.begins_unrecorded(records_from)),
        jobs_started: tally.jobs_started,
        jobs_ended: tally.jobs_ended,
        jobs_failed: tally.jobs_failed,
        jobs_gpu_unknown: tally.jobs_gpu_unknown,
        gpu_hours: tally.gpu_seconds / HOUR,
        cpu_hours: tally.cpu_seconds / HOUR,
        mem_gib_hours: tally.gib_seconds / HOUR,
        money: tally.cost.money,
        ..Figures::default()
    };

    let mut utilization = Mean::default();
    let mut cpu = Mean::default();

    for seen in seen.iter().filter(|seen| seen.seconds[at] > 0.0) {
        let efficiency = &seen.assessed.efficiency;
        let cost = &seen.cost[at];
        let share = seen.share(at);
        let held = efficiency.held_gpu_seconds.unwrap_or(0.0);

        figures.runs_assessed += 1;
        figures.runs_measured += u64::from(efficiency.is_measured(facts.rules));
        figures
            .split_gpu_hours
            .add(&efficiency.split(), share / HOUR);
        // A run without GPUs has no GPU cost to split.
        if held > 0.0 {
            figures
                .split_money
                .add(&efficiency.split(), cost.gpu_money / held);
        }

        figures.limit_excess_gpu_hours += efficiency.limit_excess_gpu_seconds * share / HOUR;
        figures.kwh += cost.kwh;
        figures.co2_kg += cost.co2_grams / 1e3;
        // The tally has the cost of the allocation already, so only the energy is added.
        figures.money += cost.money - cost.gpu_money;

        // Weighted by the GPU time that was measured.
        utilization.add(
            efficiency.gpu_utilization_mean,
            held * efficiency.coverage_ratio * share,
        );
        cpu.add(
            efficiency.cpu_ratio,
            seen.assessed.run.cpus.unwrap_or(0) as f64 * seen.seconds[at],
        );
    }

    figures.gpu_utilization = utilization.value();
    figures.cpu_ratio = cpu.value();
    figures
}

/// Weighted mean of the known values.
#[derive(Default)]
pub(super) struct Mean(f64, f64);

impl Mean {
    pub fn add(&mut self, value: Option<f64>, weight: f64) {
        if let Some(value) = value {
            self.0 += value * weight;
            self.1 += weight;
        }
    }

    pub fn value(&self) -> Option<f64> {
        (self.1 > 0.0).then(|| self.0 / self.1)
    }
}

pub(super) fn credited(facts: &Facts<'_>, subject: &Subject, period: &Period) -> f64 {
    in_force(facts.credits)
        .filter(|credit| {
            let is_in_period =
                period.from() <= credit.credited_to && credit.credited_to < period.to();
            is_in_period && is_of(facts, subject, &credit.user, &credit.account)
        })
        // `sum` would give -0.0 without credits.
        .fold(0.0, |sum, credit| sum + credit.gpu_seconds)
        / HOUR
}

pub(super) fn waiting(waits: &[u32]) -> Option<Waiting> {
    let mean_seconds = wait_mean(waits)?;
    // A copy, because the selection reorders the waits.
    let mut waits = waits.to_vec();
    let mut quantile = |q: f64| {
        let at = ((waits.len() as f64 * q).ceil() as usize).clamp(1, waits.len()) - 1;
        u64::from(*waits.select_nth_unstable(at).1)
    };
    Some(Waiting {
        mean_seconds,
        median_seconds: quantile(0.5),
        p90_seconds: quantile(0.9),
        longest_seconds: quantile(1.0),
        runs: waits.len() as u64,
    })
}

pub(super) fn wait_mean(waits: &[u32]) -> Option<f64> {
    let sum: u64 = waits.iter().map(|wait| u64::from(*wait)).sum();
    (!waits.is_empty()).then(|| sum as f64 / waits.len() as f64)
}
