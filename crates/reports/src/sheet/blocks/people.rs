//! Budgets, users and accounts.

use super::capacity::judged_waste;
use super::{Block, table};
use takt_accounting::sheet::{Member, Sheet};
use takt_model::words::{amount, count, duration, known, percent};
use takt_questions::listing::Column;

pub(super) fn budgets(sheet: &Sheet) -> Option<Block> {
    table(
        sheet,
        "Budgets",
        &sheet.budgets,
        &[
            (Column::Text("budget"), |budget| budget.name.clone()),
            (Column::Text("period"), |budget| {
                budget.period.name().to_owned()
            }),
            (Column::Number("used"), |budget| amount(budget.used)),
            (Column::Number("limit"), |budget| amount(budget.limit)),
            (Column::Text("unit"), |budget| budget.unit.clone()),
            (Column::Number("share"), |budget| {
                percent(budget.used / budget.limit)
            }),
            (Column::Text("warning"), |budget| {
                budget
                    .warning
                    .map_or_else(String::new, |share| format!("{} reached", percent(share)))
            }),
            (Column::Text("outlook"), |budget| {
                budget.outlook.clone().unwrap_or_default()
            }),
        ],
    )
}

fn people(
    sheet: &Sheet,
    title: &'static str,
    name: &'static str,
    members: &[Member],
) -> Option<Block> {
    table(
        sheet,
        title,
        members,
        &[
            (Column::Text(name), |member| member.name.clone()),
            (Column::Number("gpu_hours"), |member| {
                amount(member.figures.gpu_hours)
            }),
            (Column::Number("cpu_hours"), |member| {
                amount(member.figures.cpu_hours)
            }),
            (Column::Number("runs"), |member| {
                count(member.figures.jobs_started)
            }),
            (Column::Number("gpu_utilization"), |member| {
                known(member.figures.gpu_utilization, percent)
            }),
            (Column::Number("wasted"), |member| {
                known(judged_waste(&member.figures), amount)
            }),
            (Column::Number("wait"), |member| {
                member
                    .wait_mean_hours
                    .map_or_else(String::new, |hours| duration(hours * 3600.0))
            }),
        ],
    )
}

pub(super) fn members(sheet: &Sheet) -> Option<Block> {
    match sheet.subject.kind() {
        // With one account, the table would repeat the summary.
        "user" if sheet.members.len() < 2 => None,
        "user" => people(sheet, "By account", "account", &sheet.members),
        _ => people(sheet, "By user", "user", &sheet.members),
    }
}

pub(super) fn accounts(sheet: &Sheet) -> Option<Block> {
    people(sheet, "By account", "account", &sheet.accounts)
}
