//! `/capacity`: how much of the cluster was held, reserved, down, idle and stranded.

use super::work::PeriodPick;
use crate::frame::{Cell, Column, Content, Group, Page, PageError, Table, Visit};
use minijinja::{Value, context};
use takt_accounting::capacity::CapacityRow;
use takt_draw::{Bar, bars};
use takt_model::words::{amount, percent};
use takt_questions::{CapacityAnswer, CapacityQuestion};

pub const PAGE: Page = Page::new("/capacity", include_str!("capacity.html"), show)
    .menu(Group::Use, "Capacity")
    .filters(&["month", "resource"])
    .days()
    .rows();

const HOUR: f64 = 3600.0;

/// CSS classes of the parts of a row, in the order of [`CapacityRow::parts`].
const CLASSES: [&str; 7] = [
    "used", "reserved", "lost", "lost", "none", "none", "unknown",
];

fn show(visit: &Visit) -> Result<Content, PageError> {
    let pick = PeriodPick::of(visit);
    let question = CapacityQuestion {
        month: pick.month.clone(),
        from: pick.from.clone(),
        to: pick.to.clone(),
        days: true,
        cluster: Some(visit.site.cluster.to_string()),
    };
    let answer = visit
        .ask(&question)
        .map_err(|error| error.next("/capacity", "The current month"))?;

    let rows = &answer.report.rows;
    // A cluster without GPUs shows its CPUs.
    let has_gpus = rows
        .iter()
        .any(|row| row.resource == "gres/gpu" && row.reported > 0);
    let usual = if has_gpus { "gpu" } else { "cpu" };
    let resource = match visit.get("resource").unwrap_or(usual) {
        "gpu" => "gres/gpu",
        "cpu" => "cpu",
        other => {
            let error = format!("Capacity knows no resource '{other}': gpu or cpu.");
            return Err(PageError::wrong(error).next("/capacity", "Capacity"));
        }
    };

    let unit = if resource == "cpu" { "CPU" } else { "GPU" };
    let row = rows.iter().find(|row| row.resource == resource);
    let table = days(visit, &answer, resource, unit)?;
    let picture = chart(&answer, resource, unit);
    let uses: Vec<Value> = row.map(uses).unwrap_or_default();

    let values = context! {
        pick => Value::from_serialize(&pick),
        label => pick.month.clone().unwrap_or_else(|| {
            format!(
                "{} to {}",
                pick.from.clone().unwrap_or_default(),
                pick.to.clone().unwrap_or_default()
            )
        }),
        unit,
        is_known => row.is_some_and(|row| row.reported > 0),
        reported => row.map(|row| row.reported as f64 / HOUR),
        uses,
        stranded => row
            .and_then(|row| row.stranded)
            .map(|seconds| seconds as f64 / HOUR),
        overcommitted => row.map(|row| row.overcommitted as f64 / HOUR),
        reservations => answer.reservations,
        by_gpu => visit.address(&[("resource", "gpu")]),
        by_cpu => visit.address(&[("resource", "cpu")]),
        is_gpu => unit == "GPU",
        scale => picture.as_ref().map(|picture| &picture.label),
        picture => picture.as_ref().map(|picture| picture.inline("chart")),
        first_day => answer.days.first().map(|day| day.date.clone()),
        last_day => answer.days.last().map(|day| day.date.clone()),
        command => pick.command("takt capacity"),
    };
    let content = Content::new("Capacity", values).table(table);
    Ok(match picture {
        Some(picture) => content.picture(picture),
        None => content,
    })
}

fn uses(row: &CapacityRow) -> Vec<Value> {
    row.parts()
        .into_iter()
        .zip(CLASSES)
        .map(|(part, class)| {
            let (name, seconds) = part;
            context! {
                name,
                class,
                hours => seconds as f64 / HOUR,
                share => row.ratio(part).map(percent),
            }
        })
        .collect()
}

fn days(
    visit: &Visit,
    answer: &CapacityAnswer,
    resource: &str,
    unit: &'static str,
) -> Result<Table, PageError> {
    let mut columns = vec![Column::text("day", "Day")];
    let names = [
        ("held", "Held"),
        ("reserved", "Reserved, unused"),
        ("down", "Down"),
        ("planned_down", "Planned down"),
        ("planned", "Planned"),
        ("idle", "Idle"),
    ];
    columns.extend(names.map(|(key, heading)| Column::number(key, heading)));
    columns.push(Column::number("unknown", "Unknown").minor());
    columns.push(Column::number("stranded", "Stranded").minor());
    columns.push(Column::number("reported", "All"));

    let of_day = |row: &CapacityRow, date: &str| {
        let hours = |seconds: u64| Cell::number(Some(seconds as f64 / HOUR), amount);
        let mut cells = vec![Cell::text(date)];
        cells.extend(row.parts().map(|(_, seconds)| hours(seconds)));
        cells.push(Cell::number(
            row.stranded.map(|seconds| seconds as f64 / HOUR),
            amount,
        ));
        cells.push(hours(row.reported));
        cells
    };
    let rows = answer.days.iter().filter_map(|day| {
        // A day before the first node has no hours at all.
        let row = day
            .rows
            .iter()
            .find(|row| row.resource == resource && row.reported > 0)?;
        Some(of_day(row, &day.date))
    });

    let caption = format!("{unit}-hours by day");
    Table::new(visit, "days", caption, columns, rows.collect())
}

/// A bar for each day.
fn chart(answer: &CapacityAnswer, resource: &str, unit: &str) -> Option<takt_draw::Picture> {
    let rows: Vec<(&str, &CapacityRow)> = answer
        .days
        .iter()
        .filter_map(|day| {
            let row = day.rows.iter().find(|row| row.resource == resource)?;
            Some((day.date.as_str(), row))
        })
        .collect();

    // All bars have the scale of the largest day, since nodes come and go.
    let most = rows
        .iter()
        .map(|(_, row)| row.reported)
        .max()
        .filter(|most| *most > 0)?;

    let marks: Vec<Bar> = rows
        .iter()
        .map(|(date, row)| {
            let parts = row.parts();
            let said: Vec<String> = parts
                .iter()
                // Parts without hours would make the text long.
                .filter(|(_, seconds)| *seconds > 0)
                .map(|(name, seconds)| format!("{} {name}", amount(*seconds as f64 / HOUR)))
                .collect();
            Bar {
                parts: parts
                    .iter()
                    .zip(CLASSES)
                    .map(|((_, seconds), class)| (*seconds as f64, class))
                    .collect(),
                title: format!("{date}, {unit}-hours: {}", said.join(", ")),
                href: None,
            }
        })
        .collect();

    Some(bars(
        &marks,
        most as f64,
        format!("{unit}-hours by day, up to {}", amount(most as f64 / HOUR)),
    ))
}
