//! `/people`, `/people/U` and `/accounts/A`: who used what, how well, and of which budget.

mod subject;

use super::work::{PeriodPick, account, address, hours, length, share, user};
use crate::frame::{Cell, Column, Content, Group, Page, PageError, Table, Visit};
use minijinja::{Value, context};
use takt_accounting::sheet::{Figures, Member, Sheet};
use takt_questions::SheetQuestion;

pub use subject::{ACCOUNT, USER};

pub const PAGE: Page = Page::new("/people", include_str!("people.html"), show)
    .menu(Group::Use, "People")
    .filters(&["month", "by"])
    .days()
    .rows();

fn show(visit: &Visit) -> Result<Content, PageError> {
    let pick = PeriodPick::of(visit);

    let by_account = match visit.get("by") {
        None | Some("user") => false,
        Some("account") => true,
        Some(other) => {
            return Err(PageError::wrong(format!(
                "People cannot be listed by '{other}': by=user or by=account."
            ))
            .next("/people", "People by user"));
        }
    };

    let question = SheetQuestion {
        month: pick.month.clone(),
        from: pick.from.clone(),
        to: pick.to.clone(),
        runs: 0,
        cluster: Some(visit.site.cluster.to_string()),
        ..SheetQuestion::default()
    };
    let Some(sheet) = visit
        .ask(&question)
        .map_err(|error| error.next("/people", "The current month"))?
        .into_iter()
        .next()
    else {
        return Err(PageError::empty_range("No job is recorded in this period.")
            .next("/people", "The current month"));
    };

    let members = if by_account {
        &sheet.accounts
    } else {
        &sheet.members
    };
    let caption = if by_account {
        "Accounts, by GPU-hours"
    } else {
        "People, by GPU-hours"
    };

    let links = Links::of(&sheet, &pick);
    let rows = members
        .iter()
        .map(|member| row(member, by_account, &links))
        .collect();
    let table = Table::new(visit, "people", caption, columns(by_account), rows)?;

    let figures = &sheet.figures;
    let values = context! {
        pick => Value::from_serialize(&pick),
        label => sheet.period,
        is_open => sheet.is_open,
        figures => figures_of(figures),
        count => members.len(),
        by_account,
        by_user => visit.address(&[("by", "")]),
        by_accounts => visit.address(&[("by", "account")]),
        budgets => Value::from_serialize(&sheet.budgets),
        notes => sheet.notes,
        jobs => address("/jobs", &[("from", &links.from), ("to", &links.to)]),
        waste => address("/waste", &pick.query()),
        energy => address("/energy", &pick.query()),
        command => pick.command("takt report cluster"),
    };
    Ok(Content::new(format!("People {}", sheet.period), values).table(table))
}

/// The period of the links to other pages.
struct Links {
    /// First day.
    from: String,
    /// First day after the period.
    to: String,
    /// The period of the address.
    pick: PeriodPick,
}

impl Links {
    fn of(sheet: &Sheet, pick: &PeriodPick) -> Self {
        // An RFC 3339 time begins with its date.
        let day = |time: &str| time.chars().take(10).collect();
        Self {
            from: day(&sheet.from),
            to: day(&sheet.to),
            pick: pick.clone(),
        }
    }
}

fn columns(by_account: bool) -> Vec<Column> {
    vec![
        if by_account {
            Column::text("account", "Account")
        } else {
            Column::text("user", "User")
        },
        Column::number("gpu_hours", "GPU-hours"),
        Column::number("cpu_hours", "CPU-hours"),
        Column::number("utilization", "GPUs busy"),
        Column::number("wasted", "Wasted").unit("GPU\u{2011}h"),
        Column::number("lost", "Lost to faults")
            .unit("GPU\u{2011}h")
            .minor(),
        Column::number("jobs", "Jobs started"),
        Column::number("failed", "Failed").minor(),
        Column::number("wait", "Mean wait").minor(),
        Column::number("kwh", "Energy").unit("kWh").minor(),
    ]
}

fn row(member: &Member, by_account: bool, links: &Links) -> Vec<Cell> {
    let figures = &member.figures;

    let split = &figures.split_gpu_hours;
    let name = if by_account {
        account(&member.name)
    } else {
        user(&member.name)
    };
    let group = if by_account { "account" } else { "user" };
    // The numbers lead to the jobs that they count.
    let jobs = |state: &str| {
        let period = [("from", links.from.as_str()), ("to", links.to.as_str())];
        let [from, to] = period;
        address(
            "/jobs",
            &[(group, &member.name), ("state", state), from, to],
        )
    };
    let [month, from, to] = links.pick.query();
    let waste = address("/waste", &[(group, &member.name), month, from, to]);
    // More than half of the measured hours: a word for the eye, not a verdict.
    let wasted = split.known_waste();
    let wasteful = wasted.is_some_and(|wasted| wasted > split.measured() / 2.0);
    vec![
        name,
        hours(Some(figures.gpu_hours)).link(jobs("")),
        hours(Some(figures.cpu_hours)),
        share(figures.gpu_utilization),
        hours(wasted)
            .class(if wasteful { "warn" } else { "" })
            .link(waste),
        hours(Some(split.lost).filter(|hours| *hours > 0.0)),
        Cell::count(figures.jobs_started).link(jobs("")),
        Cell::count(figures.jobs_failed).link(jobs("FAILED,OUT_OF_MEMORY,TIMEOUT,NODE_FAIL")),
        length(member.wait_mean_hours.map(|hours| hours * 3600.0)),
        hours(Some(figures.kwh).filter(|kwh| *kwh > 0.0)),
    ]
}

/// The figures of a period, for a template.
fn figures_of(figures: &Figures) -> Value {
    context! {
        gpu_hours => figures.gpu_hours,
        cpu_hours => figures.cpu_hours,
        utilization => figures.gpu_utilization,
        wasted => figures.split_gpu_hours.known_waste(),
        lost => figures.split_gpu_hours.lost,
        jobs_started => figures.jobs_started,
        jobs_failed => figures.jobs_failed,
        kwh => figures.kwh,
        co2_kg => figures.co2_kg,
        money => figures.money,
        gpu_unknown => figures.jobs_gpu_unknown,
    }
}
