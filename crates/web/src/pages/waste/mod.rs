//! `/waste`: where GPU-hours go, whose, and for which cause.

use super::work::{PeriodPick, account, address, hours, share, user};
use crate::frame::{Cell, Column, Content, Group, Page, PageError, Table, Visit, href};
use minijinja::{Value, context};
use takt_accounting::waste::{WasteCause, WasteRow};
use takt_draw::{Bar, Dot, bars, dots, scale};
use takt_model::shown::shell_word;
use takt_model::words::{amount, percent};
use takt_questions::{WasteAnswer, WasteQuestion};

pub const PAGE: Page = Page::new("/waste", include_str!("waste.html"), show)
    .menu(Group::Use, "Waste")
    .filters(&["month", "user", "account", "partition", "by"])
    .days()
    .rows();

fn show(visit: &Visit) -> Result<Content, PageError> {
    let pick = PeriodPick::of(visit);
    let text = |name: &str| visit.get(name).map(str::to_owned);
    let question = WasteQuestion {
        month: pick.month.clone(),
        from: pick.from.clone(),
        to: pick.to.clone(),
        user: text("user"),
        account: text("account"),
        partition: text("partition"),
        cluster: Some(visit.site.cluster.to_string()),
        ..WasteQuestion::default()
    };

    let answer = visit
        .ask(&question)
        .map_err(|error| error.next("/waste", "The current month"))?;

    let by = visit.get("by").unwrap_or("user");
    let table = match by {
        "user" => groups(visit, &answer.waste.users, "user")?,
        "account" => groups(visit, &answer.waste.accounts, "account")?,
        "job" => jobs(visit, &answer)?,
        other => {
            let error = format!("Waste cannot be listed by '{other}': user, account or job.");
            return Err(PageError::wrong(error).next("/waste", "Waste by user"));
        }
    };

    let waste = &answer.waste;
    let causes: Vec<Value> = waste
        .causes
        .iter()
        .map(|row| {
            context! {
                words => row.cause.words(),
                gpu_hours => row.gpu_hours,
                runs => row.runs,
                class => class(Some(row.cause)),
            }
        })
        .collect();

    let tabs: Vec<Value> = [
        ("user", "by user"),
        ("account", "by account"),
        ("job", "by job"),
    ]
    .iter()
    .map(|(key, name)| {
        context! {
            name,
            address => visit.address(&[("by", key)]),
            is_current => *key == by,
        }
    })
    .collect();

    let histogram = histogram(visit, &answer);
    let values = context! {
        pick => Value::from_serialize(&pick),
        label => answer.period,
        runs => waste.runs,
        runs_measured => waste.runs_measured,
        held => waste.split.held(),
        used => waste.split.used,
        wasted => waste.split.known_waste(),
        unmeasured => waste.split.unmeasured,
        limit_excess => waste.limit_excess_gpu_hours,
        causes,
        tabs,
        subject => visit
            .get("user")
            .or(visit.get("account"))
            .or(visit.get("partition")),
        everything => visit.address(&[("user", ""), ("account", ""), ("partition", "")]),
        histogram => histogram.as_ref().map(|picture| picture.inline("chart")),
        scatter => scatter(&answer),
        points => waste.points.len(),
        command => command(visit, &pick),
    };

    let content = Content::new(format!("Waste {}", answer.period), values).table(table);
    Ok(match histogram {
        Some(picture) => content.picture(picture),
        None => content,
    })
}

/// The command with the same period and subject. `None` without such a command: it selects no partition, and
/// either a user or an account.
fn command(visit: &Visit, pick: &PeriodPick) -> Option<String> {
    let subject = match ["user", "account", "partition"].map(|name| visit.get(name)) {
        [Some(user), None, None] => format!(" --user {}", shell_word(user)),
        [None, Some(account), None] => format!(" --account {}", shell_word(account)),
        [None, None, None] => String::new(),
        _ => return None,
    };
    Some(pick.command("takt report waste") + &subject)
}

/// CSS class of a cause: faults are the cluster's, all else is waste.
fn class(cause: Option<WasteCause>) -> &'static str {
    match cause {
        Some(WasteCause::Lost) => "lost",
        _ => "wasted",
    }
}

fn groups(visit: &Visit, rows: &[WasteRow], kind: &'static str) -> Result<Table, PageError> {
    let heading = if kind == "user" { "User" } else { "Account" };
    let columns = vec![
        Column::text(kind, heading),
        Column::number("wasted", "Wasted").unit("GPU\u{2011}h"),
        Column::text("cause", "Main cause"),
        Column::number("idle", "Did nothing")
            .unit("GPU\u{2011}h")
            .minor(),
        Column::number("streak", "Idle streaks")
            .unit("GPU\u{2011}h")
            .minor(),
        Column::number("low", "Low utilization")
            .unit("GPU\u{2011}h")
            .minor(),
        Column::number("used", "Used").unit("GPU\u{2011}h"),
        Column::number("lost", "Lost to faults")
            .unit("GPU\u{2011}h")
            .minor(),
        Column::number("unmeasured", "Not measured")
            .unit("GPU\u{2011}h")
            .minor(),
        Column::number("runs", "Jobs"),
    ];

    let row = |row: &WasteRow| {
        let split = &row.split;
        // Without measurements the parts are unknown; only lost and unmeasured hours are known.
        let known = |hours: f64| row.wasted.map(|_| hours);
        let runs = address("/jobs", &[(kind, &row.name), ("sort", "-waste")]);
        vec![
            if kind == "user" {
                user(&row.name)
            } else {
                account(&row.name)
            },
            hours(row.wasted).link(runs.clone()),
            Cell::text(row.cause.map_or("", WasteCause::words)),
            hours(known(split.idle)),
            hours(known(split.streak)),
            hours(known(split.low)),
            hours(known(split.used)),
            hours(Some(split.lost)),
            hours(Some(split.unmeasured)),
            Cell::count(row.runs).link(runs),
        ]
    };

    let caption = format!("Waste by {kind}, largest first");
    Table::new(
        visit,
        "groups",
        caption,
        columns,
        rows.iter().map(row).collect(),
    )
}

fn jobs(visit: &Visit, answer: &WasteAnswer) -> Result<Table, PageError> {
    let columns = vec![
        Column::text("job_id", "Job"),
        Column::text("name", "Name"),
        Column::text("user", "User"),
        Column::number("wasted", "Wasted").unit("GPU\u{2011}h"),
        Column::number("gpu_hours", "Held").unit("GPU\u{2011}h"),
        Column::number("utilization", "GPUs busy"),
        Column::text("cause", "Main cause"),
    ];
    // Points are the largest jobs; the page sorts them by their waste.
    let mut points: Vec<_> = answer.waste.points.iter().collect();
    points.sort_by(|a, b| b.wasted.total_cmp(&a.wasted));
    let rows = points.into_iter().map(|point| {
        vec![
            Cell::text(&point.job_id).link(href("jobs", &point.job_id)),
            Cell::text(point.name.clone().unwrap_or_default()),
            user(&point.user),
            hours(Some(point.wasted)),
            hours(Some(point.gpu_hours)),
            share(Some(point.utilization)),
            Cell::text(point.cause.map_or("", WasteCause::words)),
        ]
    });

    let caption = "Largest measured jobs, largest waste first";
    Table::new(visit, "points", caption, columns, rows.collect())
}

/// GPU-hours by mean utilization of the job.
fn histogram(visit: &Visit, answer: &WasteAnswer) -> Option<takt_draw::Picture> {
    let waste = &answer.waste;

    let most = waste.histogram.iter().map(|bar| bar.gpu_hours);
    let (most, _) = scale(most.reduce(f64::max)?)?;
    // Half of the time busy: the page calls less than that wasted.
    let low = 0.5;
    let marks: Vec<Bar> = waste
        .histogram
        .iter()
        .map(|bar| Bar {
            parts: vec![(
                bar.gpu_hours,
                if bar.from < low { "wasted" } else { "used" },
            )],
            title: format!(
                "{} to {} busy: {} GPU-hours of {} jobs",
                percent(bar.from),
                percent(bar.to),
                amount(bar.gpu_hours),
                bar.runs
            ),
            // An empty bar leads nowhere.
            href: (bar.runs > 0).then(|| visit.address(&[("by", "job"), ("sort", "utilization")])),
        })
        .collect();
    let label = format!(
        "GPU-hours of {} measured jobs by mean utilization, bars up to {} GPU-hours",
        waste.runs_measured,
        amount(most)
    );
    Some(bars(&marks, most, label))
}

/// A dot for each job: GPU-hours to the right, on a logarithmic scale, and utilization upwards.
fn scatter(answer: &WasteAnswer) -> Option<Value> {
    let points = &answer.waste.points;
    let positive = || {
        points
            .iter()
            .map(|point| point.gpu_hours)
            .filter(|hours| *hours > 0.0)
    };
    // Decades: 0.01 GPU-hours and below are in the first one, since 0 has no logarithm.
    let least = positive().reduce(f64::min)?.max(0.01).log10().floor();
    // At least one decade, or a single job would have no width.
    let most = positive().reduce(f64::max)?.log10().ceil().max(least + 1.0);
    let marks: Vec<Dot> = points
        .iter()
        .map(|point| Dot {
            x: (point.gpu_hours.max(0.01).log10() - least) / (most - least),
            y: point.utilization,
            class: if point.utilization < 0.5 {
                "wasted"
            } else {
                "used"
            },
            title: format!(
                "job {} of {}: {} GPU-hours, busy {}",
                point.job_id,
                point.user,
                amount(point.gpu_hours),
                percent(point.utilization)
            ),
            href: Some(href("jobs", &point.job_id)),
        })
        .collect();

    let label = format!("{} jobs by GPU-hours and mean utilization", marks.len());
    // Marks at 1, 10, 100 and so on.
    let decades = (least as i32..=most as i32).map(|decade| amount(10_f64.powi(decade)));
    Some(context! {
        picture => dots(&marks, label).inline("chart"),
        ticks => decades.collect::<Vec<_>>(),
    })
}
