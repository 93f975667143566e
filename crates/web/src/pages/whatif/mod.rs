//! `/whatif`: what other nodes, limits or requests would have changed in a past period.

use super::work::share;
use crate::frame::{Cell, Column, Content, Page, PageError, Table, Visit};
use minijinja::{Value, context};
use takt_model::shown::shell_word;
use takt_model::words::{amount, percent};
use takt_questions::{WaitTrend, WhatIfAnswer, WhatIfQuestion};

pub const PAGE: Page = Page::new("/whatif", include_str!("whatif.html"), show)
    .filters(&[
        "add", "like", "remove", "limit", "runtime", "node_ok", "requests", "month", "go",
    ])
    .days()
    .rows();

/// Time for the replays of a page, in seconds.
const SECONDS: u64 = 10;

const HOUR: f64 = 3600.0;

fn show(visit: &Visit) -> Result<Content, PageError> {
    // A form sends its empty fields, too.
    let text = |name: &str| {
        visit
            .get(name)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let question = WhatIfQuestion {
        add: text("add"),
        like: text("like"),
        remove: text("remove"),
        limit: text("limit"),
        runtime: text("runtime"),
        node_ok: text("node_ok"),
        requests: match text("requests") {
            Some(_) => visit.number("requests")?,
            None => None,
        },
        month: text("month"),
        from: text("from"),
        to: text("to"),
        cluster: Some(visit.site.cluster.to_string()),
        seconds: SECONDS,
        ..WhatIfQuestion::default()
    };

    // Nothing is replayed before somebody asks for it.
    let unasked = WhatIfQuestion {
        cluster: question.cluster.clone(),
        seconds: SECONDS,
        ..WhatIfQuestion::default()
    };
    let is_asked = text("go").is_some() || question != unasked;
    let answer = if is_asked {
        let answer = visit.ask(&question);
        Some(answer.map_err(|error| error.next("/whatif", "Another what-if"))?)
    } else {
        None
    };

    let table = match &answer {
        Some(answer) if answer.pairs > 0 => differences(visit, answer)?,
        other => back_test(visit, other.as_ref())?,
    };
    let values = context! {
        asked => Value::from_serialize(&question),
        answer => answer.as_ref().map(told),
        command => command(&question),
    };
    Ok(Content::new("What if", values).table(table))
}

/// The sentences of an answer.
fn told(answer: &WhatIfAnswer) -> Value {
    let uses = answer.uses.first();
    let points = |ratio: f64| format!("{:+.1}", ratio * 100.0);
    let rules = answer.not_modelled.iter().map(|rule| match rule.count {
        Some(count) => format!("{} ({count})", rule.rule),
        None => rule.rule.clone(),
    });
    context! {
        period => answer.period,
        jobs => answer.jobs,
        nodes => answer.nodes,
        words => answer.words,
        is_close => answer.is_close,
        changes => answer.changes,
        pairs => answer.pairs,
        use_before => uses.and_then(|row| row.first).map(percent),
        use_after => uses.and_then(|row| row.second).map(percent),
        use_change => points(answer.use_change.middle),
        use_low => points(answer.use_change.low),
        use_high => points(answer.use_change.high),
        gpu_hours_before => answer.gpu_hours[0],
        gpu_hours_after => answer.gpu_hours[1],
        lost_jobs => answer.lost_jobs,
        is_reduced => answer.is_reduced,
        not_modelled => rules.collect::<Vec<_>>().join("; "),
    }
}

fn wait(seconds: f64) -> Cell {
    Cell::number(Some(seconds / HOUR), amount)
}

/// A row for each group of jobs.
fn differences(visit: &Visit, answer: &WhatIfAnswer) -> Result<Table, PageError> {
    let columns = vec![
        Column::text("of", "Jobs of"),
        Column::text("name", "Name"),
        Column::number("jobs", "Jobs"),
        Column::number("median", "Median").unit("h").minor(),
        Column::number("median_after", "after").unit("h").minor(),
        Column::number("p90", "P90").unit("h").minor(),
        Column::number("p90_after", "after").unit("h").minor(),
        Column::number("mean", "Mean").unit("h"),
        Column::number("mean_after", "after").unit("h"),
        Column::number("change", "Change").unit("h"),
        Column::number("low", "from").unit("h").minor(),
        Column::number("high", "to").unit("h").minor(),
        Column::text("who", "Who"),
    ];

    let rows = answer.rows.iter().map(|row| {
        let change = row.mean_change_seconds;
        let who = match row.trend {
            WaitTrend::Wins => "waits less",
            WaitTrend::Loses => "waits longer",
            WaitTrend::Same => "",
        };

        vec![
            Cell::text(row.by.name()),
            Cell::text(&row.name),
            Cell::number(Some(row.jobs as f64), amount),
            wait(row.before.median_seconds),
            wait(row.after.median_seconds),
            wait(row.before.p90_seconds),
            wait(row.after.p90_seconds),
            wait(row.before.mean_seconds),
            wait(row.after.mean_seconds),
            wait(change.middle),
            wait(change.low),
            wait(change.high),
            Cell::text(who),
        ]
    });

    let caption = "Waits before and after the change";
    Table::new(visit, "rows", caption, columns, rows.collect())
}

/// A row for each partition and class of sizes.
fn back_test(visit: &Visit, answer: Option<&WhatIfAnswer>) -> Result<Table, PageError> {
    let columns = vec![
        Column::text("partition", "Partition"),
        Column::text("size", "Size"),
        Column::number("jobs", "Jobs"),
        Column::number("median", "Median wait").unit("h"),
        Column::number("median_replayed", "replayed").unit("h"),
        Column::number("p90", "P90").unit("h"),
        Column::number("p90_replayed", "replayed").unit("h"),
        Column::number("used", "Used"),
        Column::number("used_replayed", "replayed"),
    ];

    let test = answer.map(|answer| (&answer.back_test, &answer.back_test_use));
    let rows = test.into_iter().flat_map(|(test, uses)| {
        [&test.all].into_iter().chain(&test.rows).map(move |row| {
            let of_partition = uses.iter().find(|one| one.partition == row.partition);
            let name = if row.partition.is_empty() {
                "all"
            } else {
                &row.partition
            };
            vec![
                Cell::text(name),
                Cell::text(&row.size),
                Cell::number(Some(row.jobs as f64), amount),
                wait(row.median_wait_seconds as f64),
                wait(row.median_replayed_seconds as f64),
                wait(row.p90_wait_seconds as f64),
                wait(row.p90_replayed_seconds as f64),
                share(of_partition.and_then(|one| one.first)),
                share(of_partition.and_then(|one| one.second)),
            ]
        })
    });
    let caption = "Waits and utilization, recorded and replayed";
    Table::new(visit, "rows", caption, columns, rows.collect())
}

/// The command that asks the same.
fn command(asked: &WhatIfQuestion) -> String {
    let options = [
        ("add", &asked.add),
        ("like", &asked.like),
        ("remove", &asked.remove),
        ("limit", &asked.limit),
        ("runtime", &asked.runtime),
        ("node-ok", &asked.node_ok),
        ("month", &asked.month),
        ("from", &asked.from),
        ("to", &asked.to),
    ];
    let mut command = "takt whatif".to_owned();
    for (name, value) in options {
        if let Some(value) = value {
            command += &format!(" --{name} {}", shell_word(value));
        }
    }
    if let Some(factor) = asked.requests {
        command += &format!(" --requests {factor}");
    }
    command
}
