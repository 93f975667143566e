//! The main table of a report with exact values, for CSV.

use super::View;
use super::blocks::CAUSES;
use takt_accounting::efficiency::Split;
use takt_accounting::sheet::{Member, RunRow, Sheet};
use takt_questions::listing::{Column, Listing};

/// Returns the main table of a view, with exact values.
pub(super) fn exact(sheet: &Sheet, view: View) -> Listing {
    match view {
        View::Efficiency => exact_runs(&sheet.runs),
        _ => exact_members(sheet),
    }
}

fn exact_runs(runs: &[RunRow]) -> Listing {
    let texts = [
        "job_id",
        "name",
        "user",
        "account",
        "state",
        "end",
        "gpu_model",
        "cause",
    ]
    .map(Column::Text);
    let numbers = [
        "hours",
        "gpus",
        "coverage_ratio",
        "gpu_utilization_mean",
        "gpu_utilization_p95",
        "idle_longest_hours",
        "gpu_memory_peak_ratio",
        "gpu_sm_mean",
        "cpu_ratio",
        "memory_ratio",
        "kwh",
        "used_gpu_hours",
        "low_gpu_hours",
        "streak_gpu_hours",
        "idle_gpu_hours",
        "lost_gpu_hours",
        "unmeasured_gpu_hours",
    ];

    let mut listing = Listing::new(
        &texts
            .into_iter()
            .chain(numbers.map(Column::Number))
            .collect::<Vec<_>>(),
    );
    for run in runs {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        // Unknown values are empty: 0 would be a measurement.
        let mut row = vec![
            run.job_id.clone(),
            text(&run.name),
            run.user.clone(),
            run.account.clone(),
            run.state.clone(),
            run.end.clone(),
            text(&run.gpu_model),
            run.cause.clone(),
            run.hours.to_string(),
            run.gpus.map_or_else(String::new, |gpus| gpus.to_string()),
            run.coverage.to_string(),
            number(run.gpu_utilization),
            number(run.gpu_utilization_p95),
            number(run.idle_longest_hours),
            number(run.gpu_memory_peak_ratio),
            number(run.gpu_sm),
            number(run.cpu_ratio),
            number(run.memory_ratio),
            number(run.kwh),
        ];
        row.extend(exact_split(&run.split_gpu_hours));
        listing.push(row);
    }
    listing
}

/// Returns the hours of each category. Use and waste are empty if nothing was measured.
fn exact_split(split: &Split) -> impl Iterator<Item = String> {
    // Lost and unmeasured hours are known without a measurement.
    let is_known = split.known_waste().is_some();
    CAUSES.iter().map(move |cause| {
        if is_known || ["lost", "unknown"].contains(&cause.class) {
            (cause.of)(split).to_string()
        } else {
            String::new()
        }
    })
}

fn exact_members(sheet: &Sheet) -> Listing {
    let name = if sheet.subject.kind() == "user" {
        "account"
    } else {
        "user"
    };
    let numbers = [
        "gpu_hours",
        "cpu_hours",
        "mem_gib_hours",
        "jobs_started",
        "jobs_ended",
        "jobs_failed",
        "money",
        "kwh",
        "co2_kg",
        "gpu_utilization_mean",
        "limit_excess_gpu_hours",
        "used_gpu_hours",
        "low_gpu_hours",
        "streak_gpu_hours",
        "idle_gpu_hours",
        "lost_gpu_hours",
        "unmeasured_gpu_hours",
        "wasted_money",
    ];
    let columns: Vec<Column> = [Column::Text(name)]
        .into_iter()
        .chain(numbers.map(Column::Number))
        .collect();

    let mut listing = Listing::new(&columns);
    // Without prices nothing has a cost, and without measurements no energy is known.
    let measured = |value: f64| {
        if value > 0.0 {
            value.to_string()
        } else {
            String::new()
        }
    };
    let priced = |value: f64| {
        sheet
            .currency
            .as_ref()
            .map_or_else(String::new, |_| value.to_string())
    };
    for Member { name, figures, .. } in &sheet.members {
        let mut row = vec![
            name.clone(),
            figures.gpu_hours.to_string(),
            figures.cpu_hours.to_string(),
            figures.mem_gib_hours.to_string(),
            figures.jobs_started.to_string(),
            figures.jobs_ended.to_string(),
            figures.jobs_failed.to_string(),
            priced(figures.money),
            measured(figures.kwh),
            measured(figures.co2_kg),
            figures
                .gpu_utilization
                .map_or_else(String::new, |ratio| ratio.to_string()),
            figures.limit_excess_gpu_hours.to_string(),
        ];
        row.extend(exact_split(&figures.split_gpu_hours));

        let wasted_money = figures.split_money.known_waste();
        row.push(wasted_money.map_or_else(String::new, |money| money.to_string()));
        listing.push(row);
    }
    listing
}
