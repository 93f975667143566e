//! `/gpus/UUID`: the life of a card: errors, readings, and the jobs that held it.

use crate::frame::{Cell, Column, Content, Page, PageError, Table, Visit, href};
use crate::pictures;
use minijinja::{Value, context};
use takt_server::answers::{EventsQuestion, GpuQuestion, GpuReading, StripsQuestion};
use takt_server::reports::words;

pub const PAGE: Page = Page::new("/gpus/{uuid}", include_str!("gpu.html"), show)
    .rows()
    .live();

const COLUMNS: &[Column] = &[
    Column::text("job_id", "job"),
    Column::text("user", "user"),
    Column::text("node", "node"),
    Column::text("from", "from"),
    Column::text("to", "to"),
    Column::number("seconds", "held"),
];

/// Readings that show wear or a fault, at the top of the page.
const FAULTS: [&str; 6] = ["xid", "ecc", "row_remap", "recovery", "throttle", "replays"];

fn show(visit: &Visit) -> Result<Content, PageError> {
    let uuid = visit.parameter("uuid").to_owned();
    let gpu = visit.ask(&GpuQuestion {
        uuid: uuid.clone(),
        ..GpuQuestion::default()
    })?;
    let range = visit.range("30d")?;
    let events = visit.ask(&EventsQuestion {
        from: range.from,
        to: range.to,
        uuid: Some(uuid.clone()),
        ..EventsQuestion::default()
    })?;
    if gpu.node.is_none() && gpu.holds.is_empty() && events.is_empty() {
        return Err(PageError::unknown("GPU", &uuid).next("/nodes", "All nodes and their GPUs"));
    }
    let strips = visit.ask(&StripsQuestion {
        hours: 168,
        steps: 336,
        node: gpu.node.clone(),
        ..StripsQuestion::default()
    })?;
    let strip = strips.rows.iter().find(|row| row.uuid == uuid);
    let picture = pictures::strips(
        strip,
        40,
        40,
        format!("Utilization of {uuid} over seven days"),
    );
    let rows = gpu.holds.iter().map(|hold| {
        vec![
            Cell::text(&hold.job_id).link(href("jobs", &hold.job_id)),
            match hold.user.as_str() {
                "" => Cell::unknown(),
                user => Cell::text(user).link(href("people", user)),
            },
            Cell::text(&hold.node).link(href("nodes", &hold.node)),
            Cell::time(Some(hold.from)),
            Cell::time(Some(hold.to)),
            Cell::number(Some((hold.to - hold.from) as f64), words::duration),
        ]
    });
    let table = Table::new(
        visit,
        "jobs",
        "Jobs that held the GPU",
        COLUMNS.to_vec(),
        rows.collect(),
    )?;
    let label = |name: &str| {
        let info = gpu
            .readings
            .iter()
            .find(|reading| reading.metric == "takt_gpu_info")?;
        let (_, rest) = info.labels.split_once(&format!("{name}=\""))?;
        rest.split_once('"').map(|(value, _)| value.to_owned())
    };
    let is_fault =
        |reading: &&GpuReading| FAULTS.iter().any(|fault| reading.metric.contains(fault));
    let (faults, others): (Vec<_>, Vec<_>) = gpu
        .readings
        .iter()
        .filter(|reading| reading.metric != "takt_gpu_info")
        .partition(is_fault);
    let shown = |readings: Vec<&GpuReading>| -> Vec<Value> {
        readings
            .into_iter()
            .map(|reading| {
                context! {
                    name => reading.metric.trim_start_matches("takt_gpu_").replace('_', " "),
                    labels => reading.labels,
                    value => takt_server::sparkline::number(reading.value),
                }
            })
            .collect()
    };
    let values = context! {
        uuid,
        node => gpu.node,
        index => label("index"),
        model => label("model"),
        driver => label("driver"),
        faults => shown(faults),
        others => shown(others),
        strip => strip.map(|_| picture.inline("strip tall")),
        ticks => crate::frame::ticks(strips.from, strips.to, visit.zone()),
        events,
        range,
    };
    Ok(
        Content::new(format!("GPU {}", visit.parameter("uuid")), values)
            .table(table)
            .picture(picture),
    )
}
