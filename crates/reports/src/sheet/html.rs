//! A report as one HTML file: without scripts and other files; it prints well, and supports light
//! and dark themes.

use super::View;
use super::blocks::{self, CAUSES};
use super::charts;
use crate::templates;
use minijinja::{Environment, Value, context};
use std::sync::LazyLock;
use takt_accounting::sheet::{Member, RunRow, Sheet};
use takt_model::words::{UNKNOWN, amount, count, duration, known, money, month, percent};

pub(super) static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut templates = templates::of_pages();
    templates.set_trim_blocks(true);
    templates.set_lstrip_blocks(true);
    for (name, template) in [
        ("sheet.html", include_str!("sheet.html")),
        ("mail.html", include_str!("mail.html")),
    ] {
        templates
            .add_template(name, template)
            .expect("the template is part of the program");
    }
    templates
});

/// Renders the page.
///
/// # Errors
/// If the template needs a value that the view does not have.
pub fn page(sheet: &Sheet, view: View) -> Result<String, minijinja::Error> {
    let is_sheet = is_sheet(view);
    let (days_unit, days) = charts::days(sheet).filter(|_| is_sheet).unzip();
    let (months_unit, months) = charts::months(sheet).filter(|_| is_sheet).unzip();
    let rank = sheet.rank.as_ref().filter(|_| is_sheet);
    let rank_chart = rank.and_then(|rank| {
        charts::names(rank.rows.iter().map(|row| {
            let name = row.name.clone().unwrap_or_else(|| "somebody".to_owned());
            (format!("{}. {name}", row.place), row.hours, row.is_self)
        }))
    });

    let models = charts::names(
        sheet
            .gpu_models
            .iter()
            .map(|part| (part.name.clone(), part.gpu_hours, true)),
    );
    TEMPLATES.get_template("sheet.html")?.render(context! {
        split => charts::split(&sheet.figures.split_gpu_hours),
        days_unit,
        days,
        months_unit,
        months,
        rank_chart,
        models => models.filter(|_| is_sheet && sheet.gpu_models.len() > 1),
        ..shared(sheet, view)
    })
}

fn is_sheet(view: View) -> bool {
    matches!(view, View::Cluster | View::Account | View::User)
}

/// Returns the values that the page and the mail show alike.
pub(super) fn shared(sheet: &Sheet, view: View) -> Value {
    let is_sheet = is_sheet(view);

    let capacity = blocks::capacity(sheet).filter(|_| is_sheet);
    let (lost, lost_more) = blocks::shown_lost(sheet);
    let rank = sheet.rank.as_ref().filter(|_| is_sheet);
    context! {
        heading => blocks::heading(sheet, view),
        title => title(sheet, view),
        month => month(&sheet.period),
        is_open => sheet.is_open,
        is_user => sheet.subject.kind() == "user",
        cluster => sheet.cluster,
        from => sheet.from,
        to => sheet.to,
        timezone => sheet.timezone,
        facts => blocks::facts(sheet).into_iter()
            .map(|(name, value, note)| context! { name, value, note }).collect::<Vec<_>>(),
        coverage => blocks::coverage(sheet),
        causes => causes(sheet),
        capacity_of => capacity.as_ref().map(|(resource, _)| *resource),
        capacity => capacity.map(|(_, rows)| rows),
        rank_unit => rank.map(|rank| rank.unit.clone()),
        fixes => sheet.fixes.iter().filter(|_| view != View::Efficiency)
            .map(|fix| context! { words => blocks::fix_words(sheet, fix), line => fix.line }).collect::<Vec<_>>(),
        budgets => if is_sheet { budgets(sheet) } else { Vec::new() },
        members => if view == View::Efficiency { Vec::new() } else { people(sheet, &sheet.members) },
        members_name => if sheet.subject.kind() == "user" { "account" } else { "user" },
        accounts => if is_sheet { people(sheet, &sheet.accounts) } else { Vec::new() },
        has_money => sheet.currency.is_some(),
        has_gpus => sheet.has_gpus,
        was_judged => sheet.has_gpus && sheet.figures.split_gpu_hours.held() > 0.0,
        // Columns without known values are omitted.
        has_memory => sheet.runs.iter().any(|run| run.gpu_memory_peak_ratio.is_some()),
        has_cpu => sheet.runs.iter().any(|run| run.cpu_ratio.is_some() || run.memory_ratio.is_some()),
        runs => sheet.runs.iter().map(run).collect::<Vec<_>>(),
        network => sheet.network_bound.iter().map(|run| context! {
            job_id => run.job_id,
            name => run.name,
            user => run.user,
            nodes => run.nodes,
            link => percent(run.link_bound),
            utilization => known(run.gpu_utilization, percent),
            single => known(run.single_node_utilization, percent),
        }).collect::<Vec<_>>(),
        lost_more => lost_more,
        lost => lost.iter().map(|run| context! {
            job_id => run.job_id,
            name => run.name,
            user => run.user,
            fault => run.fault,
            nodes => run.nodes,
            gpu_hours => amount(run.gpu_hours),
            cpu_hours => amount(run.cpu_hours),
            credited => if run.is_credited { "yes" } else { "no" },
        }).collect::<Vec<_>>(),
        breaches => sheet.breaches.iter().map(|breach| context! {
            rule => breach.window,
            job_id => breach.job_id,
            name => breach.name,
            user => breach.user,
            nodes => breach.nodes.join(", "),
            time => duration(breach.seconds as f64),
        }).collect::<Vec<_>>(),
        notes => sheet.notes,
    }
}

pub(super) fn title(sheet: &Sheet, view: View) -> String {
    match (view, sheet.subject.name()) {
        (View::Efficiency, "") => format!("Efficiency of {}", sheet.cluster),
        (View::Efficiency, name) => format!("Efficiency of {name} on {}", sheet.cluster),
        (View::Waste, "") => format!("Waste of {}", sheet.cluster),
        (View::Waste, name) => format!("Waste of {name}"),
        (View::Account, name) => format!("Account {name}"),
        (_, "") => sheet.cluster.clone(),
        (_, name) => name.to_owned(),
    }
}

fn causes(sheet: &Sheet) -> Vec<Value> {
    let held = sheet.figures.split_gpu_hours.held().max(f64::MIN_POSITIVE);
    let has_price = sheet.figures.split_money.held() > 0.0;
    let currency = sheet.currency.as_ref().filter(|_| has_price);
    CAUSES
        .iter()
        .filter_map(|cause| {
            let hours = (cause.of)(&sheet.figures.split_gpu_hours);
            let price =
                currency.map(|currency| money((cause.of)(&sheet.figures.split_money), currency));
            (hours > 0.0).then(|| {
                context! {
                    name => cause.name,
                    class => cause.class,
                    meaning => cause.meaning,
                    hours => amount(hours),
                    share => percent(hours / held),
                    width => (hours / held * 1000.0).round() / 10.0,
                    money => price,
                }
            })
        })
        .collect()
}

fn budgets(sheet: &Sheet) -> Vec<Value> {
    let row = |budget: &takt_accounting::BudgetUse| {
        let share = budget.used / budget.limit;
        context! {
            name => budget.name,
            period => budget.period.name(),
            outlook => budget.outlook,
            used => amount(budget.used),
            // A bar ends at its frame, even if the budget is exceeded.
            limit => amount(budget.limit),
            unit => budget.unit,
            share => percent(share),
            width => (share.clamp(0.0, 1.0) * 1000.0).round() / 10.0,
            class => match budget.warning {
                Some(reached) if reached >= 1.0 => "idle",
                Some(reached) if reached >= 0.8 => "streak",
                Some(_) => "low",
                None => "used",
            },
        }
    };
    sheet.budgets.iter().map(row).collect()
}

fn people(sheet: &Sheet, members: &[Member]) -> Vec<Value> {
    // The bars show GPU-hours on a cluster with GPUs, else CPU-hours.
    let hours = |member: &Member| {
        if sheet.has_gpus {
            member.figures.gpu_hours
        } else {
            member.figures.cpu_hours
        }
    };

    let most = members.iter().map(hours).fold(0.0, f64::max);
    let row = |member: &Member| {
        let split = &member.figures.split_gpu_hours;
        context! {
            name => member.name,
            gpu_hours => amount(member.figures.gpu_hours),
            width => if most > 0.0 {
                (hours(member) / most * 1000.0).round() / 10.0
            } else {
                0.0
            },
            cpu_hours => amount(member.figures.cpu_hours),
            runs => count(member.figures.jobs_started),
            failed => count(member.figures.jobs_failed),
            utilization => known(member.figures.gpu_utilization, percent),
            wasted => known(blocks::judged_waste(&member.figures), amount),
            wasted_share => split.known_waste().map_or_else(String::new, |wasted| {
                percent(wasted / split.held())
            }),
            wait => member
                .wait_mean_hours
                .map_or_else(|| UNKNOWN.to_owned(), |hours| duration(hours * 3600.0)),
            money => sheet
                .currency
                .as_ref()
                .map(|currency| money(member.figures.money, currency)),
        }
    };
    members.iter().map(row).collect()
}

fn run(run: &RunRow) -> Value {
    // A ratio may exceed 1 (CPU time of more threads than allocated), and the bar has a frame.
    let bar =
        |ratio: Option<f64>| ratio.map(|ratio| (ratio.clamp(0.0, 1.0) * 1000.0).round() / 10.0);
    context! {
        job_id => run.job_id,
        name => run.name,
        user => run.user,
        state => run.state.to_lowercase().replace('_', " "),
        // An RFC 3339 time without its seconds and zone.
        ended => run.end.get(..16).unwrap_or_default().replace('T', " "),
        hours => amount(run.hours),
        gpus => run
            .gpus
            .map_or_else(|| "?".to_owned(), |gpus| gpus.to_string()),
        model => run.gpu_model,
        coverage => percent(run.coverage),
        utilization => known(run.gpu_utilization, percent),
        utilization_width => bar(run.gpu_utilization),
        idle => run
            .idle_longest_hours
            .map_or_else(|| UNKNOWN.to_owned(), |hours| duration(hours * 3600.0)),
        gpu_memory => known(run.gpu_memory_peak_ratio, percent),
        cpu => known(run.cpu_ratio, percent),
        memory => known(run.memory_ratio, percent),
        wasted => known(run.split_gpu_hours.known_waste(), amount),
        cause => run.cause,
    }
}
