//! The pages of one user and of one account.

use super::{Links, columns, figures_of, row};
use crate::frame::{Cell, Column, Content, Page, PageError, Table, Visit, href};
use crate::pages::work::{PeriodPick, Plain, address, current_jobs, hours, share, state, user};
use minijinja::{Value, context};
use takt_accounting::sheet::{Day, Figures, RunRow, Sheet};
use takt_draw::{Bar, bars, scale};
use takt_model::shown::shell_word;
use takt_model::words::{amount, duration};
use takt_questions::SheetQuestion;

/// `/people/U`: one user.
pub const USER: Page = Page::new("/people/{user}", include_str!("subject.html"), show_user)
    .filters(&["month"])
    .days();

/// `/accounts/A`: one account, with the accounts below it.
pub const ACCOUNT: Page = Page::new("/accounts/{account}", SUBJECT, show_account)
    .filters(&["month"])
    .days();

const SUBJECT: &str = include_str!("subject.html");

/// Runs in the table of a user.
const RUNS: usize = 20;

fn show_user(visit: &Visit) -> Result<Content, PageError> {
    show(visit, "user", visit.parameter("user"))
}

fn show_account(visit: &Visit) -> Result<Content, PageError> {
    show(visit, "account", visit.parameter("account"))
}

fn show(visit: &Visit, kind: &'static str, name: &str) -> Result<Content, PageError> {
    let pick = PeriodPick::of(visit);
    // One template for both, since a user and an account have the same figures.
    let is_user = kind == "user";
    let of = |wanted: bool| wanted.then(|| name.to_owned());
    let question = SheetQuestion {
        month: pick.month.clone(),
        from: pick.from.clone(),
        to: pick.to.clone(),
        user: of(is_user),
        account: of(!is_user),
        runs: RUNS,
        cluster: Some(visit.site.cluster.to_string()),
        ..SheetQuestion::default()
    };

    let Some(sheet) = visit
        .ask(&question)
        .map_err(|error| {
            error
                .next(
                    &address("/search", &[("q", name)]),
                    &format!("Search for {name}"),
                )
                .next(
                    &address("/jobs", &[(kind, name)]),
                    &format!("All jobs of {name}"),
                )
                .next("/people", "All people")
        })?
        .into_iter()
        .next()
    else {
        return Err(PageError::unknown(kind, name).next("/people", "All people"));
    };

    let links = Links::of(&sheet, &pick);
    let table = if is_user {
        run_table(visit, &sheet.runs)?
    } else {
        let rows = sheet
            .members
            .iter()
            .map(|member| row(member, false, &links))
            .collect();
        Table::new(
            visit,
            "members",
            "People of the account",
            columns(false),
            rows,
        )?
    };

    let picture = days(&sheet, name);
    let (by_user, by_account) = if is_user {
        (Some(name), None)
    } else {
        (None, Some(name))
    };
    let current = current_jobs(visit, by_user, by_account, "Running and waiting now")?;
    let rank = sheet.rank.as_ref();

    let values = context! {
        kind,
        name,
        pick => Value::from_serialize(&pick),
        label => sheet.period,
        is_open => sheet.is_open,
        figures => figures_of(&sheet.figures),
        before => sheet.before.iter().map(before).collect::<Vec<_>>(),
        share_gpu => sheet.share.and_then(|share| share.gpu),
        place => rank.map(|rank| rank.place),
        places => rank.map(|rank| rank.of),
        rank_unit => rank.map(|rank| rank.unit.clone()),
        currency => sheet.currency,
        budgets => sheet
            .budgets
            .iter()
            .map(|budget| {
                context! {
                    unit => budget.unit,
                    used => budget.used,
                    limit => budget.limit,
                    period => budget.period.name(),
                    is_over => budget.warning.is_some(),
                    outlook => budget.outlook,
                }
            })
            .collect::<Vec<_>>(),
        fixes => sheet
            .fixes
            .iter()
            .map(|fix| {
                context! {
                    line => fix.line,
                    why => fix.why,
                    job => fix.job,
                    runs => fix.runs,
                    gpu_hours => fix.gpu_hours,
                }
            })
            .collect::<Vec<_>>(),
        accounts => members(&sheet, is_user, &links),
        waiting => sheet.waiting.map(|waiting| {
            context! {
                median => duration(waiting.median_seconds as f64),
                p90 => duration(waiting.p90_seconds as f64),
                runs => waiting.runs,
            }
        }),
        scale => picture.as_ref().map(|picture| &picture.label),
        picture => picture.as_ref().map(|picture| picture.inline("chart low")),
        first_day => sheet.days.first().map(|day| day.date.clone()),
        last_day => sheet.days.last().map(|day| day.date.clone()),
        lost => lost(&sheet),
        notes => sheet.notes,
        current,
        jobs => address(
            "/jobs",
            &[(kind, name), ("from", &links.from), ("to", &links.to)],
        ),
        waste => {
            let [month, from, to] = pick.query();
            address("/waste", &[(kind, name), month, from, to])
        },
        fairshare => address("/fairshare", &[(kind, name)]),
        csv => visit.address(&[]),
        command => pick.command(&format!(
            "takt report {kind} --{kind} {}",
            shell_word(name)
        )),
    };

    let title = if is_user {
        name.to_owned()
    } else {
        format!("Account {name}")
    };
    let content = Content::new(title, values).table(table);
    Ok(match picture {
        Some(picture) => content.picture(picture),
        None => content,
    })
}

fn before(figures: &Figures) -> Value {
    // The address of a former period is relative: the page stays the same.
    context! {
        period => figures.period,
        address => format!("?month={}", figures.period),
        // A span of days has no address as a month.
        is_month => figures.period.len() == 7,
        gpu_hours => figures.gpu_hours,
        utilization => figures.gpu_utilization,
        is_partial => figures.is_partial,
    }
}

fn run_table(visit: &Visit, runs: &[RunRow]) -> Result<Table, PageError> {
    let columns = vec![
        Column::text("job_id", "Job"),
        Column::text("name", "Name"),
        Column::text("state", "State"),
        Column::number("gpus", "GPUs"),
        Column::number("hours", "Ran").unit("h"),
        Column::number("utilization", "GPUs busy"),
        Column::number("wasted", "Wasted").unit("GPU\u{2011}h"),
        Column::text("cause", "Main cause"),
        Column::number("memory", "Memory used").minor(),
        Column::number("coverage", "Measured").minor(),
    ];
    let rows = runs
        .iter()
        .map(|run| {
            vec![
                Cell::text(&run.job_id).link(href("jobs", &run.job_id)),
                Cell::text(run.name.clone().unwrap_or_default()),
                state(&run.state),
                run.gpus.map_or_else(Cell::unknown, Cell::count),
                hours(Some(run.hours)),
                share(run.gpu_utilization),
                hours(run.split_gpu_hours.known_waste()),
                Cell::text(&run.cause),
                share(run.memory_ratio),
                share(Some(run.coverage)),
            ]
        })
        .collect();
    Table::new(
        visit,
        "runs",
        "Finished jobs, largest waste first",
        columns,
        rows,
    )
}

/// GPU-hours, or CPU-hours without GPUs, of each day.
fn days(sheet: &Sheet, name: &str) -> Option<takt_draw::Picture> {
    let of = |day: &Day| {
        if sheet.has_gpus {
            day.gpu_hours
        } else {
            day.cpu_hours
        }
    };
    let unit = if sheet.has_gpus {
        "GPU-hours"
    } else {
        "CPU-hours"
    };
    // Days without usage have no scale, and so no picture.
    let most = sheet.days.iter().map(of).reduce(f64::max)?;
    let (most, _) = scale(most)?;
    let marks: Vec<Bar> = sheet
        .days
        .iter()
        .map(|day| Bar {
            parts: vec![(of(day), "used")],
            title: format!("{}: {} {unit}", day.date, amount(of(day))),
            href: None,
        })
        .collect();
    let label = format!("{unit} of {name} by day, up to {}", amount(most));
    Some(bars(&marks, most, label))
}

/// Accounts of a user, or accounts below an account.
fn members(sheet: &Sheet, is_user: bool, links: &Links) -> Option<Plain> {
    let parts = if is_user {
        &sheet.members
    } else {
        &sheet.accounts
    };
    let rows: Vec<Vec<Cell>> = parts
        .iter()
        .map(|member| row(member, true, links))
        .collect();
    let caption = if is_user {
        "Accounts that the jobs were charged to"
    } else {
        "This account and those below it"
    };
    let keys = [
        "account",
        "gpu_hours",
        "cpu_hours",
        "utilization",
        "wasted",
        "jobs",
    ];
    // A single account would repeat the page's own figures.
    (rows.len() > 1).then(|| Plain::of(caption, columns(true), rows).keep(&keys))
}

fn lost(sheet: &Sheet) -> Option<Plain> {
    let columns = vec![
        Column::text("job_id", "Job"),
        Column::text("user", "User"),
        Column::text("nodes", "Nodes"),
        Column::text("fault", "Fault"),
        Column::number("gpu_hours", "GPU-hours"),
        Column::text("credited", "Credited"),
    ];
    let rows: Vec<Vec<Cell>> = sheet
        .lost
        .iter()
        .map(|lost| {
            vec![
                Cell::text(&lost.job_id).link(href("jobs", &lost.job_id)),
                user(&lost.user),
                Cell::text(&lost.nodes),
                Cell::text(&lost.fault),
                hours(Some(lost.gpu_hours)),
                Cell::text(if lost.is_credited { "yes" } else { "no" }),
            ]
        })
        .collect();
    (!rows.is_empty()).then(|| Plain::of("Jobs that a fault of the cluster ended", columns, rows))
}
