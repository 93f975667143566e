//! `/queue`: why jobs wait, when they start, what would start now.

use super::work::{Plain, account, address, job, length, time_row, user};
use crate::frame::{Cell, Column, Content, Group, Page, PageError, Table, Visit, href};
use minijinja::{Value, context};
use takt_draw::{Span, lanes};
use takt_model::UnixTime;
use takt_model::words::duration;
use takt_questions::{QueueAnswer, QueueQuestion, QueuedRun, RunningRun};

pub const PAGE: Page = Page::new("/queue", include_str!("queue.html"), show)
    .menu(Group::Now, "Queue")
    .filters(&["user", "partition", "reason"])
    .rows()
    .live();

/// Length of the lanes, in seconds.
const DAY: i64 = 86_400;

/// Maximum number of lanes.
const MOST_LANES: usize = 40;

/// Waiting jobs in a file.
const MOST_IN_FILE: usize = 100_000;

fn show(visit: &Visit) -> Result<Content, PageError> {
    let text = |name: &str| visit.get(name).map(str::to_owned);
    let mut question = QueueQuestion {
        cluster: Some(visit.site.cluster.to_string()),
        partition: text("partition"),
        user: text("user"),
        ..QueueQuestion::default()
    };
    if visit.is_file() {
        question.limit = MOST_IN_FILE;
    }

    let mut answer = visit
        .ask(&question)
        .map_err(|error| error.next("/queue", "The whole queue"))?;
    if let Some(reason) = visit.get("reason") {
        answer.pending.retain(|one| {
            one.listed
                .waiting
                .as_ref()
                .map(|why| why.reason.as_str())
                .unwrap_or("unknown")
                == reason
        });
    }

    let table = pending(visit, &answer)?;
    let reasons: Vec<Value> = answer
        .reasons
        .iter()
        .map(|count| {
            let name = count.reason.as_deref().unwrap_or("unknown");
            context! {
                name,
                runs => count.runs,
                gpus => count.gpus,
                address => visit.address(&[("reason", name)]),
            }
        })
        .collect();
    let values = context! {
        answer => context! {
            at => answer.at,
            pending_runs => answer.pending_runs,
            pending_gpus => answer.pending_gpus,
            running_runs => answer.running_runs,
            free => Value::from_serialize(answer.free),
            has_nodes => !answer.nodes.is_empty(),
        },
        running_page => address("/jobs", &[("state", "RUNNING")]),
        reasons,
        forecasts => forecasts(&answer),
        is_filtered => ["user", "partition", "reason"]
            .iter()
            .any(|name| visit.get(name).is_some()),
        all => "/queue",
        lanes => day(&answer),
        nodes => nodes(&answer),
        reservations => reservations(&answer),
    };
    Ok(Content::new("Queue", values).table(table))
}

/// How good forecasts are, and what they do not know.
fn forecasts(answer: &QueueAnswer) -> Value {
    let state = &answer.forecasts;
    let rules: Vec<String> = state
        .not_modelled
        .iter()
        .map(|one| match one.count {
            Some(count) => format!("{} ({count})", one.rule),
            None => one.rule.clone(),
        })
        .collect();
    let grades = &state.grades;
    let slurm = grades
        .slurm_median_error_seconds
        .zip(grades.paired_median_error_seconds);
    context! {
        made_at => state.made_at,
        waiting_jobs => state.waiting_jobs,
        forecast_jobs => state.forecast_jobs,
        replays => state.replays,
        words => &state.words,
        slurm_graded => grades.slurm_graded,
        slurm => slurm.map(|(slurm, _)| duration(slurm as f64)),
        paired => slurm.map(|(_, paired)| duration(paired as f64)),
        not_modelled => rules.join(", "),
    }
}

fn pending(visit: &Visit, answer: &QueueAnswer) -> Result<Table, PageError> {
    let columns = vec![
        Column::text("job_id", "Job"),
        Column::number("place", "Place"),
        Column::text("user", "User"),
        Column::text("account", "Account").minor(),
        Column::text("partition", "Partition").minor(),
        Column::number("gpus", "GPUs"),
        Column::number("cpus", "CPUs").minor(),
        Column::number("waited", "Waits for"),
        Column::text("forecast", "Starts at (80 %)"),
        Column::text("expected", "Slurm's estimate").minor(),
        Column::text("reason", "Reason"),
        Column::text("words", "In words").minor(),
        Column::text("forecast_words", "Forecast in words").minor(),
    ];

    let row = |one: &QueuedRun| {
        let run = &one.listed.run;
        let why = one.listed.waiting.as_ref();
        let reason = why.map_or("unknown", |why| why.reason.as_str());
        let forecast_words = one.listed.start_forecast.as_ref();
        let words = forecast_words.map_or("", |forecast| forecast.words.as_str());

        vec![
            job(run),
            Cell::count(one.place as u64),
            user(&run.user),
            account(&run.account),
            Cell::text(&run.partition),
            Cell::count(one.wants_gpus),
            Cell::count(one.wants_cpus),
            length(Some(one.waited_seconds as f64)),
            forecast(one),
            Cell::time(why.and_then(|why| why.expected_start)),
            Cell::text(reason).link(visit.address(&[("reason", reason)])),
            Cell::text(why.map_or("", |why| why.words.as_str())).class("wrap"),
            Cell::text(words).class("wrap"),
        ]
    };

    let rows: Vec<_> = answer.pending.iter().map(row).collect();
    let caption = format!(
        "{} waiting jobs, by expected start, then by submission",
        rows.len()
    );
    Table::new(visit, "pending", caption, columns, rows)
}

/// When a waiting job starts.
fn forecast(one: &QueuedRun) -> Cell {
    match &one.listed.start_forecast {
        Some(forecast) => Cell::text(&forecast.brief),
        None => Cell::unknown(),
    }
}

/// The next 24 hours, a row for each job: running ones until their limit, waiting ones from their
/// expected start.
fn day(answer: &QueueAnswer) -> Option<Plain> {
    let columns = vec![
        Column::text("job_id", "Job"),
        Column::text("user", "User"),
        Column::number("gpus", "GPUs"),
        Column::picture("lane", ""),
        Column::text("when", "Ends or starts"),
    ];
    let lane = |from: UnixTime, to: UnixTime, class: &'static str, words: &str| {
        let place = |at: UnixTime| (at - answer.at) as f64 / DAY as f64;
        let span = Span {
            from: place(from),
            to: place(to),
            class,
            ..Span::default()
        };
        Cell::picture(lanes(&[vec![span]], 16, words.to_owned()).inline("lane")).class("curvecell")
    };

    let running = |one: &RunningRun| {
        let ends = one.ends_by?;
        let run = &one.run;
        let words = format!("ends within {}", duration(ends.since(answer.at) as f64));
        Some(vec![
            job(run),
            user(&run.user),
            run.gpus.map_or_else(Cell::unknown, Cell::count),
            lane(answer.at, ends, "used", &words),
            Cell::text(words),
        ])
    };

    let waiting = |one: &QueuedRun| {
        let run = &one.listed.run;
        let forecast = one
            .listed
            .start_forecast
            .as_ref()
            .and_then(|known| known.p50);
        let slurm = one
            .listed
            .waiting
            .as_ref()
            .and_then(|why| why.expected_start);
        let start = forecast.or(slurm)?;
        let limit = i64::try_from(run.timelimit.unwrap_or(3600)).ok()?;
        let begin = start.max(answer.at);
        let words = format!("starts in {}", duration((begin - answer.at) as f64));
        (begin < answer.at + DAY).then(|| {
            vec![
                job(run),
                user(&run.user),
                Cell::count(one.wants_gpus),
                lane(begin, begin + limit, "reserved", &words),
                Cell::text(words),
            ]
        })
    };

    let mut rows: Vec<Vec<Cell>> = answer
        .running
        .iter()
        .filter_map(running)
        .chain(answer.pending.iter().filter_map(waiting))
        .take(MOST_LANES)
        .collect();
    if rows.is_empty() {
        return None;
    }

    let times = ["now", "in 6 h", "in 12 h", "in 18 h", "in 24 h"].map(str::to_owned);
    rows.push(time_row(&times, 3, columns.len()));
    let caption = "Blue: running, until its time limit. Pale: waiting, from its most likely start";
    Some(Plain::of(caption, columns, rows))
}

/// A number of GPUs; a dash on a node that has no GPU.
fn with_gpus(count: u64, of: u64) -> Cell {
    if of > 0 {
        Cell::count(count)
    } else {
        Cell::unknown()
    }
}

fn nodes(answer: &QueueAnswer) -> Option<Plain> {
    let columns = vec![
        Column::text("node", "Node"),
        Column::text("state", "State"),
        Column::number("free_gpus", "GPUs free"),
        Column::number("gpus", "of"),
        Column::number("free_cpus", "CPUs free"),
        Column::number("cpus", "of"),
        Column::number("memory", "Memory free"),
    ];
    let rows: Vec<Vec<Cell>> = answer
        .nodes
        .iter()
        .filter(|node| {
            node.is_usable && node.free_cpus > 0 && (node.free_gpus > 0 || node.gpus == 0)
        })
        .take(MOST_LANES)
        .map(|node| {
            vec![
                Cell::text(&node.node).link(href("nodes", &node.node)),
                Cell::text(node.state.to_lowercase()),
                with_gpus(node.free_gpus, node.gpus),
                with_gpus(node.gpus, node.gpus),
                Cell::count(node.free_cpus),
                Cell::count(node.cpus),
                super::work::memory(Some(node.free_mem_bytes as f64)),
            ]
        })
        .collect();
    (!rows.is_empty()).then(|| Plain::of("Nodes with free resources", columns, rows))
}

fn reservations(answer: &QueueAnswer) -> Option<Plain> {
    let columns = vec![
        Column::text("name", "Reservation"),
        Column::text("from", "From"),
        Column::text("to", "To"),
        Column::text("nodes", "Nodes"),
        Column::text("owners", "For"),
        Column::text("flags", "Flags").minor(),
    ];
    let rows: Vec<Vec<Cell>> = answer
        .reservations
        .iter()
        .map(|kept| {
            let owners: Vec<&str> = kept
                .owners
                .iter()
                .map(|owner| owner.user.as_deref().unwrap_or(&owner.account))
                .collect();
            vec![
                Cell::text(&kept.name),
                Cell::time(Some(kept.from)),
                Cell::time(Some(kept.to)),
                Cell::text(kept.node_list.clone().unwrap_or_default()),
                Cell::text(owners.join(", ")),
                Cell::text(kept.flags.to_lowercase()),
            ]
        })
        .collect();
    (!rows.is_empty()).then(|| Plain::of("Reservations", columns, rows))
}
