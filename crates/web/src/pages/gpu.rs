//! `/gpus/UUID`: the life of a card: errors, readings, and the jobs that held it.

use crate::frame::{self, Cell, Column, Content, Page, PageError, Table, Visit, href, person};
use crate::{history, pictures};
use minijinja::{Value, context};
use takt_model::words;
use takt_questions::{EventsQuestion, GpuQuestion, GpuReading, StripsQuestion, sparkline};

pub const PAGE: Page = Page::new("/gpus/{uuid}", include_str!("gpu.html"), show)
    .ranges()
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

    let range = visit.range("7d")?;
    let events = visit.ask(&EventsQuestion {
        from: range.from,
        to: range.to,
        uuid: Some(uuid.clone()),
        ..EventsQuestion::default()
    })?;
    let card = super::cards::section(visit, &uuid)?;
    // A GPU that was never seen anywhere.
    if gpu.node.is_none() && gpu.holds.is_empty() && events.is_empty() && card.is_none() {
        return Err(PageError::unknown("GPU", &uuid).next("/nodes", "All nodes and their GPUs"));
    }

    // Seven days in steps of half an hour, as long as strips are kept.
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
            match hold.job_id.as_str() {
                "" => Cell::unknown(),
                job => Cell::text(job).link(href("jobs", job)),
            },
            match person(&hold.user) {
                Some(address) => Cell::text(&hold.user).link(address),
                None => Cell::text(&hold.user),
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

    // The labels of `takt_gpu_info` describe the card.
    let label = |name: &str| {
        let info = gpu
            .readings
            .iter()
            .find(|reading| reading.metric == "takt_gpu_info")?;
        // Labels are one text, `index="3" model="H200"`.
        let (_, rest) = info.labels.split_once(&format!("{name}=\""))?;
        rest.split_once('"').map(|(value, _)| value.to_owned())
    };

    let (faults, others): (Vec<_>, Vec<_>) = gpu
        .readings
        .iter()
        .filter(|reading| reading.metric != "takt_gpu_info")
        .partition(|reading| FAULTS.iter().any(|fault| reading.metric.contains(fault)));
    let shown = |readings: Vec<&GpuReading>| -> Vec<Value> {
        readings
            .into_iter()
            .map(|reading| {
                let (name, value) = in_words(&reading.metric, reading.value);
                context! {
                    name,
                    value,
                    labels => labels_in_words(&reading.labels),
                }
            })
            .collect()
    };

    let past = history::of(visit, &range, None, Some(&uuid))?;
    let values = context! {
        charts => history::charts(&past),
        axis => range.ticks(visit.zone()),
        uuid,
        card,
        node => gpu.node,
        index => label("index"),
        model => label("model"),
        driver => label("driver"),
        faults => shown(faults),
        others => shown(others),
        strip => strip.map(|_| picture.inline("strip tall")),
        ticks => frame::ticks(strips.from, strips.to, visit.zone()),
        events,
        range,
    };

    Ok(
        Content::new(format!("GPU {}", visit.parameter("uuid")), values)
            .table(table)
            .picture(picture),
    )
}

/// Units at the end of a metric's name: the ending, the factor, and the unit that people read.
const UNITS: [(&str, f64, &str); 6] = [
    ("_bytes", 1.0 / (1 << 30) as f64, " GiB"),
    ("_ratio", 100.0, " %"),
    ("_celsius", 1.0, " °C"),
    ("_watts", 1.0, " W"),
    ("_hertz", 1e-6, " MHz"),
    ("_joules_total", 1.0 / 3.6e6, " kWh"),
];

/// Name and value of a reading for people: `takt_gpu_memory_used_bytes` becomes `memory used`,
/// `72.0 GiB`.
fn in_words(metric: &str, value: f64) -> (String, String) {
    let name = metric.trim_start_matches("takt_gpu_");
    let unit = UNITS
        .iter()
        .find_map(|(ending, factor, unit)| Some((name.strip_suffix(ending)?, factor, unit)));
    // Without a known unit, the value is a count.
    let (name, value) = match unit {
        Some((name, factor, unit)) => (name, format!("{}{unit}", words::amount(value * factor))),
        None => (name, sparkline::number(value)),
    };
    // Abbreviations stay in capitals.
    let name = match name.trim_end_matches("_total").replace('_', " ") {
        name if name == "xid errors" => "XID errors".to_owned(),
        name => name.replace("ecc", "ECC").replace("pcie", "PCIe"),
    };
    (name, value)
}

/// Values of labels: `type="corrected" scope="volatile"` becomes `corrected, volatile`.
fn labels_in_words(labels: &str) -> String {
    labels
        .split("\" ")
        .filter_map(|label| {
            let (_, value) = label.split_once("=\"")?;
            Some(value.trim_end_matches('"'))
        })
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_have_units_that_people_read() {
        let read = |metric, value| in_words(metric, value);
        assert_eq!(
            read("takt_gpu_memory_used_bytes", 77_309_411_328.0),
            ("memory used".to_owned(), "72.0 GiB".to_owned())
        );
        assert_eq!(read("takt_gpu_utilization_ratio", 0.5).1, "50.0 %");
        assert_eq!(
            read("takt_gpu_xid_errors_total", 3.0),
            ("XID errors".to_owned(), "3".to_owned())
        );

        assert_eq!(
            labels_in_words("scope=\"volatile\" type=\"corrected\""),
            "volatile, corrected"
        );
        assert_eq!(labels_in_words(""), "");
    }
}
