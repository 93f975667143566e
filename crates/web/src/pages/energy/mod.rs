//! `/energy`: kWh, CO2 and money of the GPUs.

use super::work::{PeriodPick, account, address, hours, user};
use crate::frame::{Cell, Column, Content, Group, Page, PageError, Table, Visit};
use minijinja::{Value, context};
use takt_accounting::energy::EnergyPart;
use takt_draw::{Bar, bars, scale};
use takt_model::words::amount;
use takt_questions::{EnergyAnswer, EnergyQuestion, Question};

pub const PAGE: Page = Page::new("/energy", include_str!("energy.html"), show)
    .menu(Group::Use, "Energy")
    .filters(&["month", "by"])
    .days()
    .rows();

/// Groups: key, name of the tab.
const GROUPS: [(&str, &str); 4] = [
    ("user", "by user"),
    ("account", "by account"),
    ("model", "by GPU model"),
    ("day", "by day"),
];

fn show(visit: &Visit) -> Result<Content, PageError> {
    let pick = PeriodPick::of(visit);
    let question = EnergyQuestion {
        month: pick.month.clone(),
        from: pick.from.clone(),
        to: pick.to.clone(),
        cluster: Some(visit.site.cluster.to_string()),
    };
    let answer = visit
        .ask(&question)
        .map_err(|error| error.next("/energy", "The current month"))?;

    let by = visit.get("by").unwrap_or("user");
    let energy = &answer.energy;

    let parts = match by {
        "user" => &energy.users,
        "account" => &energy.accounts,
        "model" => &energy.models,
        "day" => &energy.days,
        other => {
            let error =
                format!("Energy cannot be listed by '{other}': user, account, model or day.");
            return Err(PageError::wrong(error).next("/energy", "Energy by user"));
        }
    };

    let table = table(visit, by, parts, &answer)?;
    let picture = chart(&answer);
    let tabs = GROUPS.map(|(key, name)| {
        context! {
            name,
            address => visit.address(&[("by", key)]),
            is_current => key == by,
        }
    });

    let values = context! {
        pick => Value::from_serialize(&pick),
        label => answer.period,
        total => Value::from_serialize(&energy.total),
        runs_unmeasured => energy.runs_unmeasured,
        has_co2 => answer.has_co2,
        currency => answer.currency,
        tabs,
        scale => picture.as_ref().map(|picture| &picture.label),
        picture => picture.as_ref().map(|picture| picture.inline("chart low")),
        first_day => energy.days.first().map(|day| day.name.clone()),
        last_day => energy.days.last().map(|day| day.name.clone()),
        api => address(EnergyQuestion::PATH, &pick.query()),
    };

    let content = Content::new(format!("Energy {}", answer.period), values).table(table);
    Ok(match picture {
        Some(picture) => content.picture(picture),
        None => content,
    })
}

fn table(
    visit: &Visit,
    by: &str,
    parts: &[EnergyPart],
    answer: &EnergyAnswer,
) -> Result<Table, PageError> {
    let mut columns = vec![
        match by {
            "user" => Column::text("user", "User"),
            "account" => Column::text("account", "Account"),
            "model" => Column::text("model", "GPU model"),
            _ => Column::text("day", "Day"),
        },
        Column::number("kwh", "Energy").unit("kWh"),
        Column::number("gpu_hours", "GPU-hours"),
        Column::number("runs", "Jobs"),
    ];
    // Without a factor or a price, the column would be 0 in each row.
    if answer.has_co2 {
        columns.push(Column::number("co2_kg", "CO2").unit("kg"));
    }
    if answer.currency.is_some() {
        columns.push(Column::number("money", "Money"));
    }

    let row = |part: &EnergyPart| {
        let mut cells = vec![
            match by {
                "user" => user(&part.name),
                "account" => account(&part.name),
                _ => Cell::text(&part.name),
            },
            hours(Some(part.kwh)),
            hours(Some(part.gpu_hours)),
            Cell::count(part.runs),
        ];
        if answer.has_co2 {
            cells.push(hours(Some(part.co2_kg)));
        }
        if answer.currency.is_some() {
            cells.push(hours(Some(part.money)));
        }
        cells
    };

    let caption = format!("Energy of the GPUs of finished jobs, by {by}");
    Table::new(
        visit,
        "energy",
        caption,
        columns,
        parts.iter().map(row).collect(),
    )
}

fn chart(answer: &EnergyAnswer) -> Option<takt_draw::Picture> {
    let days = &answer.energy.days;
    // Days without energy have no scale, and so no picture.
    let (most, _) = scale(days.iter().map(|day| day.kwh).reduce(f64::max)?)?;
    let marks: Vec<Bar> = days
        .iter()
        .map(|day| Bar {
            parts: vec![(day.kwh, "used")],
            title: format!("{}: {} kWh", day.name, amount(day.kwh)),
            href: None,
        })
        .collect();
    let label = format!("kWh by day, bars up to {}", amount(most));
    Some(bars(&marks, most, label))
}
