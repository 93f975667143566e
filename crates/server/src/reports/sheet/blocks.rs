//! The content of a report as lines and tables.

use super::View;
use crate::listing::{Column, Listing};
use crate::reports::words::{UNKNOWN, amount, count, duration, known, money, month, percent};
use takt_accounting::BudgetPeriod;
use takt_accounting::efficiency::Split;
use takt_accounting::sheet::{Figures, LostRow, Member, Sheet};

/// A part of a report.
pub(super) enum Block {
    /// A title and its table.
    Listing(&'static str, Listing),
    /// A sentence.
    Line(String),
    /// A line to copy.
    Code(String),
}

/// Returns the heading: `alice on lab, October 2026`.
pub(super) fn heading(sheet: &Sheet, view: View) -> String {
    let whose = match sheet.subject.kind() {
        "user" => format!("{} on {}", sheet.subject.name(), sheet.cluster),
        "account" => format!("Account {} on {}", sheet.subject.name(), sheet.cluster),
        _ => sheet.cluster.clone(),
    };
    let what = match view {
        View::Efficiency => "Efficiency of ",
        View::Waste => "Waste of ",
        _ => "",
    };
    format!(
        "{what}{whose}, {}{}",
        month(&sheet.period),
        if sheet.is_open { " so far" } else { "" }
    )
}

/// Returns the blocks of a view, in order.
pub(super) fn blocks(sheet: &Sheet, view: View) -> Vec<Block> {
    let mut blocks: Vec<Option<Block>> = Vec::new();
    match view {
        View::Efficiency => {
            blocks.push(Some(summary(sheet)));
            blocks.push(runs(sheet));
            blocks.push(network(sheet));
        }
        View::Waste => {
            blocks.extend(causes(sheet).into_iter().map(Some));
            blocks.push(wasters(sheet));
            blocks.extend(fixes(sheet).into_iter().map(Some));
            blocks.push(runs(sheet));
            blocks.push(lost(sheet));
            blocks.push(shown_lost(sheet).1.map(Block::Line));
        }
        View::Cluster | View::Account | View::User => {
            blocks.push(Some(summary(sheet)));
            blocks.push(trend(sheet));
            blocks.push(capacity_table(sheet));
            blocks.extend(causes(sheet).into_iter().map(Some));
            blocks.extend(fixes(sheet).into_iter().map(Some));
            blocks.push(budgets(sheet));
            blocks.push(members(sheet));
            blocks.push(accounts(sheet));
            blocks.push(runs(sheet));
            blocks.push(network(sheet));
            blocks.push(lost(sheet));
            blocks.push(shown_lost(sheet).1.map(Block::Line));
            blocks.push(breaches(sheet));
        }
    }
    let notes = sheet.notes.iter().cloned().map(Block::Line);
    blocks.into_iter().flatten().chain(notes).collect()
}

/// Returns the figures of the period as label, value and note. HTML shows them as tiles.
pub(super) fn facts(sheet: &Sheet) -> Vec<(&'static str, String, String)> {
    let Sheet {
        figures, currency, ..
    } = sheet;
    let mut facts = Vec::new();
    if sheet.has_gpus {
        facts.push((
            "GPU-hours",
            amount(figures.gpu_hours),
            change(sheet, |figures| figures.gpu_hours),
        ));
    }
    facts.push((
        "CPU-hours",
        amount(figures.cpu_hours),
        change(sheet, |figures| figures.cpu_hours),
    ));
    if let Some(share) = sheet.share.and_then(|share| share.gpu.or(share.cpu)) {
        let rank = sheet
            .rank
            .as_ref()
            .map(|rank| format!("place {} of {}", rank.place, rank.of));
        facts.push(("of the cluster", percent(share), rank.unwrap_or_default()));
    }
    if let Some(utilization) = figures.gpu_utilization {
        let coverage = format!(
            "{} of {} runs measured",
            count(figures.runs_measured),
            count(figures.runs_assessed)
        );
        facts.push(("GPU utilization", percent(utilization), coverage));
    }
    if let Some(ratio) = figures.cpu_ratio.filter(|_| !sheet.has_gpus) {
        facts.push(("of the CPU time used", percent(ratio), String::new()));
    }
    let split = &figures.split_gpu_hours;
    if split.held() > 0.0 {
        let note = split.known_waste().map_or_else(
            || "nothing was measured".to_owned(),
            |wasted| match currency {
                Some(currency) if figures.split_money.held() > 0.0 => {
                    money(figures.split_money.wasted(), currency)
                }
                _ => format!("{} of those judged", percent(wasted / split.held())),
            },
        );
        facts.push((
            "GPU-hours wasted",
            known(judged_waste(figures), amount),
            note,
        ));
    }
    if let Some(currency) = currency {
        facts.push((
            "cost",
            money(figures.money, currency),
            change(sheet, |figures| figures.money),
        ));
    }
    if figures.kwh > 0.0 {
        let co2 = sheet
            .has_co2
            .then(|| format!("{} kg CO₂", amount(figures.co2_kg)));
        facts.push((
            "kWh of the GPUs",
            amount(figures.kwh),
            co2.unwrap_or_default(),
        ));
    }
    if let Some(waiting) = sheet.waiting {
        let others = format!(
            "9 of 10 under {}",
            duration((waiting.p90_seconds as f64 + 0.5).max(1.0))
        );
        facts.push((
            "median wait",
            duration(waiting.median_seconds as f64),
            others,
        ));
    }
    let failed = match figures.jobs_failed {
        0 => String::new(),
        failed => format!("{} of {} failed", count(failed), count(figures.jobs_ended)),
    };
    facts.push(("runs started", count(figures.jobs_started), failed));
    if figures.credited_gpu_hours > 0.0 {
        facts.push((
            "GPU-hours credited",
            amount(figures.credited_gpu_hours),
            "for faults".to_owned(),
        ));
    }
    facts
}

/// Returns the change against the mean of the previous periods: `+23 % on the 3 before`. Empty
/// without a period to compare with.
fn change(sheet: &Sheet, of: fn(&Figures) -> f64) -> String {
    let Some((change, periods)) = sheet.change(of) else {
        return String::new();
    };
    let sign = if change >= 0.0 { "+" } else { "−" };
    format!("{sign}{} on the {periods} before", percent(change.abs()))
}

fn summary(sheet: &Sheet) -> Block {
    let mut listing = Listing::new(&[
        Column::Text("figure"),
        Column::Number("value"),
        Column::Text("note"),
    ]);
    for (name, value, note) in facts(sheet) {
        listing.push(vec![name.to_owned(), value, note]);
    }
    Block::Listing("In short", listing)
}

/// Returns the text of a cell from its row.
type Cell<T> = fn(&T) -> String;

/// Columns for clusters with GPUs.
const OF_GPUS: &[&str] = &[
    "gpu_hours",
    "gpu_utilization",
    "gpus",
    "gpu_util",
    "p95",
    "gpu_mem",
    "kwh",
    "wasted",
    "cause",
];

/// Columns that narrow tables omit, the first ones first.
const OMITTED: &[&str] = &[
    "p95",
    "kwh",
    "gpu_mem",
    "mem",
    "measured",
    "state",
    "cpu",
    "cpu_hours",
    "warning",
    "credited",
    "low_utilization",
    "over_limit",
];

/// Returns a table; `None` without rows. Omits columns without known values.
fn table<'a, T: 'a>(
    sheet: &Sheet,
    title: &'static str,
    rows: impl IntoIterator<Item = &'a T>,
    columns: &[(Column, Cell<T>)],
) -> Option<Block> {
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|row| columns.iter().map(|(_, cell)| cell(row)).collect())
        .collect();
    let says_something = |at: &usize| {
        (sheet.has_gpus || !OF_GPUS.contains(&columns[*at].0.name()))
            && (*at == 0
                || rows
                    .iter()
                    .any(|row| !["", UNKNOWN].contains(&row[*at].as_str())))
    };
    let shown: Vec<usize> = (0..columns.len()).filter(says_something).collect();
    let headings: Vec<Column> = shown.iter().map(|at| columns[*at].0).collect();
    let mut listing = Listing::new(&headings).omitting(OMITTED);
    rows.iter()
        .for_each(|row| listing.push(shown.iter().map(|at| row[*at].clone()).collect()));
    (!rows.is_empty()).then_some(Block::Listing(title, listing))
}

fn trend(sheet: &Sheet) -> Option<Block> {
    if sheet.before.iter().all(|figures| figures.cpu_hours == 0.0) {
        return None;
    }
    table(
        sheet,
        "Trend",
        sheet.before.iter().chain([&sheet.figures]),
        &[
            (Column::Text("month"), |figures| figures.period.clone()),
            (Column::Number("gpu_hours"), |figures| {
                amount(figures.gpu_hours)
            }),
            (Column::Number("cpu_hours"), |figures| {
                amount(figures.cpu_hours)
            }),
            (Column::Number("runs"), |figures| {
                count(figures.jobs_started)
            }),
            (Column::Number("gpu_utilization"), |figures| {
                known(figures.gpu_utilization, percent)
            }),
            (Column::Number("wasted"), |figures| {
                known(judged_waste(figures), amount)
            }),
        ],
    )
}

/// Returns the wasted GPU-hours. `None` if nothing was measured.
pub(super) fn judged_waste(figures: &Figures) -> Option<f64> {
    figures.split_gpu_hours.known_waste()
}

/// Returns the split of all GPU-hours of the cluster (without GPUs: all CPU-hours): name, amount
/// and ratio, with a heading. `None` if the capacity is unknown.
pub(super) fn capacity(sheet: &Sheet) -> Option<(&'static str, Vec<[String; 3]>)> {
    let (resource, row) = match (&sheet.gpu_capacity, &sheet.cpu_capacity) {
        (Some(row), _) => ("GPU", row),
        (None, Some(row)) if !sheet.has_gpus => ("CPU", row),
        _ => return None,
    };
    let stranded = (
        "stranded: idle, but the node's CPUs or memory were allocated",
        row.stranded.unwrap_or(0),
    );
    let part = |(name, seconds): (&str, u64)| {
        [
            name.to_owned(),
            amount(seconds as f64 / 3600.0),
            percent(seconds as f64 / row.reported as f64),
        ]
    };
    Some((
        resource,
        row.parts()
            .into_iter()
            .chain([stranded])
            .filter(|(_, seconds)| *seconds > 0)
            .map(part)
            .collect(),
    ))
}

fn capacity_table(sheet: &Sheet) -> Option<Block> {
    let (resource, rows) = capacity(sheet)?;
    let (title, of, hours) = match resource {
        "GPU" => ("Capacity of the GPUs", "the_gpus", "gpu_hours"),
        _ => ("Capacity of the CPUs", "the_cpus", "cpu_hours"),
    };
    table(
        sheet,
        title,
        &rows,
        &[
            (Column::Text(of), |[name, ..]| name.clone()),
            (Column::Number(hours), |[_, hours, _]| hours.clone()),
            (Column::Number("share"), |[.., share]| share.clone()),
        ],
    )
}

/// Causes of a split with their CSS classes and meanings.
pub(super) const CAUSES: &[Cause] = &[
    Cause {
        name: "used",
        class: "used",
        meaning: "a kernel ran, or nearly always did",
        of: |split| split.used,
    },
    Cause {
        name: "low utilization",
        class: "low",
        meaning: "no kernel ran, on GPUs at work less than half of the time",
        of: |split| split.low,
    },
    Cause {
        name: "idle streaks",
        class: "streak",
        meaning: "a quarter of an hour or more without work on a GPU that worked at other times",
        of: |split| split.streak,
    },
    Cause {
        name: "did nothing",
        class: "idle",
        meaning: "GPUs that did nothing during the whole run",
        of: |split| split.idle,
    },
    Cause {
        name: "lost to faults",
        class: "lost",
        meaning: "allocated to runs that a fault of a node or GPU ended",
        of: |split| split.lost,
    },
    Cause {
        name: "not measured",
        class: "unknown",
        meaning: "the GPUs were not measured",
        of: |split| split.unmeasured,
    },
];

/// A cause of a split.
pub(super) struct Cause {
    pub name: &'static str,
    pub class: &'static str,
    pub meaning: &'static str,
    pub of: fn(&Split) -> f64,
}

/// Returns how many of the period's GPU-hours the categories cover, if these are not all:
/// `274 of 1,390 GPU-hours were judged. The others …`. `None` without GPU-hours.
pub(super) fn coverage(sheet: &Sheet) -> Option<String> {
    let figures = &sheet.figures;
    let all = figures.gpu_hours;
    let judged = figures.split_gpu_hours.measured() + figures.split_gpu_hours.lost;
    if !sheet.has_gpus || all <= 0.0 {
        return None;
    }
    if judged <= 0.0 {
        return Some(format!(
            "None of the {} GPU-hours were judged: nothing was measured of finished jobs.",
            amount(all)
        ));
    }
    (judged < 0.995 * all).then(|| {
        format!(
            "{} of {} GPU-hours ({}) were judged. The others belong to jobs that still run, or of \
             which too little was measured.",
            amount(judged),
            amount(all),
            percent(judged / all)
        )
    })
}

/// Returns the GPU-hours by category, with their coverage. Empty without GPUs.
fn causes(sheet: &Sheet) -> Vec<Block> {
    let is_judged = sheet.figures.split_gpu_hours.known_waste().is_some();
    let listing = is_judged.then(|| categories(sheet));
    let coverage = coverage(sheet).map(Block::Line);
    coverage.into_iter().chain(listing).collect()
}

fn categories(sheet: &Sheet) -> Block {
    let columns = [
        Column::Text("where_gpu_hours_went"),
        Column::Number("gpu_hours"),
        Column::Number("share"),
    ];
    let has_price = sheet.figures.split_money.held() > 0.0;
    let currency = sheet.currency.as_deref().filter(|_| has_price);
    let columns: Vec<Column> = columns
        .into_iter()
        .chain(currency.map(|_| Column::Number("money")))
        .collect();
    let mut listing = Listing::new(&columns);
    let split = &sheet.figures.split_gpu_hours;
    let cost = &sheet.figures.split_money;
    let held = split.held().max(f64::MIN_POSITIVE);
    for cause in CAUSES.iter().filter(|cause| (cause.of)(split) > 0.0) {
        let hours = (cause.of)(split);
        let row = [cause.name.to_owned(), amount(hours), percent(hours / held)];
        let price = currency.map(|currency| money((cause.of)(cost), currency));
        listing.push(row.into_iter().chain(price).collect());
    }
    Block::Listing("GPU-hours of finished runs by category", listing)
}

fn wasters(sheet: &Sheet) -> Option<Block> {
    let mut members: Vec<&Member> = sheet
        .members
        .iter()
        .filter(|member| member.figures.split_gpu_hours.wasted() > 0.0)
        .collect();
    let wasted = |member: &Member| member.figures.split_gpu_hours.wasted();
    members.sort_by(|a, b| wasted(b).total_cmp(&wasted(a)));
    table(
        sheet,
        "Users with the most wasted GPU-hours",
        members.into_iter().take(20),
        &[
            (Column::Text("name"), |member| member.name.clone()),
            (Column::Number("wasted"), |member| {
                amount(member.figures.split_gpu_hours.wasted())
            }),
            (Column::Number("share"), |member| {
                let split = &member.figures.split_gpu_hours;
                percent(split.wasted() / split.held())
            }),
            (Column::Number("did_nothing"), |member| {
                amount(member.figures.split_gpu_hours.idle)
            }),
            (Column::Number("idle_streaks"), |member| {
                amount(member.figures.split_gpu_hours.streak)
            }),
            (Column::Number("low_utilization"), |member| {
                amount(member.figures.split_gpu_hours.low)
            }),
            (Column::Number("over_limit"), |member| {
                amount(member.figures.limit_excess_gpu_hours)
            }),
        ],
    )
}

fn fixes(sheet: &Sheet) -> Vec<Block> {
    let mut blocks = Vec::new();
    for fix in &sheet.fixes {
        blocks.push(Block::Line(fix_words(sheet, fix)));
        blocks.push(Block::Code(fix.line.clone()));
    }
    blocks
}

/// Returns a suggestion: `train (3 runs): 1 of its 2 GPUs did nothing; would spare 12.5 GPU-hours`.
pub(super) fn fix_words(sheet: &Sheet, fix: &takt_accounting::sheet::FixRow) -> String {
    let runs = if fix.runs == 1 {
        "1 run".to_owned()
    } else {
        format!("{} runs", fix.runs)
    };
    let whose = if sheet.subject.kind() == "user" {
        String::new()
    } else {
        format!("{}, ", fix.user)
    };
    let spares = match (fix.gpu_hours >= 0.005, &sheet.currency) {
        (false, _) => String::new(),
        (true, Some(currency)) if fix.money > 0.0 => {
            format!(
                "; would spare {} GPU-hours ({})",
                amount(fix.gpu_hours),
                money(fix.money, currency)
            )
        }
        _ => format!("; would spare {} GPU-hours", amount(fix.gpu_hours)),
    };
    format!("{whose}{} ({runs}): {}{spares}", fix.job, fix.why)
}

fn budgets(sheet: &Sheet) -> Option<Block> {
    table(
        sheet,
        "Budgets",
        &sheet.budgets,
        &[
            (Column::Text("budget"), |budget| budget.name.clone()),
            (Column::Text("period"), |budget| {
                if budget.period == BudgetPeriod::Year {
                    "year"
                } else {
                    "month"
                }
                .to_owned()
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

fn members(sheet: &Sheet) -> Option<Block> {
    match sheet.subject.kind() {
        "user" if sheet.members.len() < 2 => None,
        "user" => people(sheet, "By account", "account", &sheet.members),
        _ => people(sheet, "By user", "user", &sheet.members),
    }
}

fn accounts(sheet: &Sheet) -> Option<Block> {
    people(sheet, "By account", "account", &sheet.accounts)
}

fn runs(sheet: &Sheet) -> Option<Block> {
    table(
        sheet,
        if sheet.has_gpus {
            "Runs, the most wasted first"
        } else {
            "Runs"
        },
        &sheet.runs,
        &[
            (Column::Text("job_id"), |run| run.job_id.clone()),
            (Column::Text("name"), |run| {
                run.name.clone().unwrap_or_default()
            }),
            (Column::Text("user"), |run| run.user.clone()),
            (Column::Text("state"), |run| run.state.clone()),
            (Column::Number("hours"), |run| amount(run.hours)),
            (Column::Number("gpus"), |run| {
                run.gpus
                    .map_or_else(|| "?".to_owned(), |gpus| gpus.to_string())
            }),
            (Column::Number("measured"), |run| percent(run.coverage)),
            (Column::Number("gpu_util"), |run| {
                known(run.gpu_utilization, percent)
            }),
            (Column::Number("p95"), |run| {
                known(run.gpu_utilization_p95, percent)
            }),
            (Column::Number("gpu_mem"), |run| {
                known(run.gpu_memory_peak_ratio, percent)
            }),
            (Column::Number("cpu"), |run| known(run.cpu_ratio, percent)),
            (Column::Number("mem"), |run| {
                known(run.memory_ratio, percent)
            }),
            (Column::Number("kwh"), |run| known(run.kwh, amount)),
            (Column::Number("wasted"), |run| {
                known(run.split_gpu_hours.known_waste(), amount)
            }),
            (Column::Text("cause"), |run| run.cause.clone()),
        ],
    )
}

fn network(sheet: &Sheet) -> Option<Block> {
    table(
        sheet,
        "Runs whose GPUs waited for the network",
        &sheet.network_bound,
        &[
            (Column::Text("job_id"), |run| run.job_id.clone()),
            (Column::Text("name"), |run| {
                run.name.clone().unwrap_or_default()
            }),
            (Column::Text("user"), |run| run.user.clone()),
            (Column::Number("nodes"), |run| run.nodes.to_string()),
            (Column::Number("waited_for_the_link"), |run| {
                percent(run.link_bound)
            }),
            (Column::Number("gpu_util"), |run| {
                known(run.gpu_utilization, percent)
            }),
            (Column::Number("on_one_node"), |run| {
                known(run.single_node_utilization, percent)
            }),
        ],
    )
}

/// Returns the largest runs that a fault ended, limited for a page, and a note about the omitted
/// runs.
pub(super) fn shown_lost(sheet: &Sheet) -> (&[LostRow], Option<String>) {
    const MOST: usize = 20;
    let (shown, others) = sheet.lost.split_at(sheet.lost.len().min(MOST));
    let more = (!others.is_empty()).then(|| {
        format!(
            "{} smaller ones are not listed; JSON has all.",
            others.len()
        )
    });
    (shown, more)
}

fn lost(sheet: &Sheet) -> Option<Block> {
    table(
        sheet,
        if sheet.has_gpus {
            "Lost to faults of nodes and GPUs"
        } else {
            "Lost to faults of nodes"
        },
        shown_lost(sheet).0,
        &[
            (Column::Text("job_id"), |run| run.job_id.clone()),
            (Column::Text("name"), |run| {
                run.name.clone().unwrap_or_default()
            }),
            (Column::Text("user"), |run| run.user.clone()),
            (Column::Text("fault"), |run| run.fault.clone()),
            (Column::Text("nodes"), |run| run.nodes.clone()),
            (Column::Number("gpu_hours"), |run| amount(run.gpu_hours)),
            (Column::Number("cpu_hours"), |run| amount(run.cpu_hours)),
            (Column::Text("credited"), |run| {
                if run.is_credited { "yes" } else { "no" }.to_owned()
            }),
        ],
    )
}

fn breaches(sheet: &Sheet) -> Option<Block> {
    table(
        sheet,
        "Runs outside the allowed hours",
        &sheet.breaches,
        &[
            (Column::Text("rule"), |breach| breach.window.clone()),
            (Column::Text("job_id"), |breach| breach.job_id.clone()),
            (Column::Text("name"), |breach| {
                breach.name.clone().unwrap_or_default()
            }),
            (Column::Text("user"), |breach| breach.user.clone()),
            (Column::Text("nodes"), |breach| breach.nodes.join(",")),
            (Column::Text("time"), |breach| {
                duration(breach.seconds as f64)
            }),
        ],
    )
}
