//! Waste by cause, category and user, and advice.

use super::{Block, table};
use takt_accounting::efficiency::Split;
use takt_accounting::sheet::{FixRow, Member, Sheet};
use takt_model::words::{amount, money, percent};
use takt_questions::listing::{Column, Listing};

/// Causes of a split with their CSS classes and meanings.
pub(crate) const CAUSES: &[Cause] = &[
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
pub(crate) struct Cause {
    pub name: &'static str,
    pub class: &'static str,
    pub meaning: &'static str,
    pub of: fn(&Split) -> f64,
}

/// Returns how many of the period's GPU-hours the categories cover, if these are not all:
/// `274 of 1,390 GPU-hours were judged. The others …`. `None` without GPU-hours.
pub(crate) fn coverage(sheet: &Sheet) -> Option<String> {
    let figures = &sheet.figures;
    let all = figures.gpu_hours;
    // Hours that were lost to a fault need no measurement to be judged.
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
    // Below half a percent, the rest would be rounded away.
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
pub(super) fn causes(sheet: &Sheet) -> Vec<Block> {
    // Without any measurement, a table of zeros would look like no waste.
    let is_judged = sheet.figures.split_gpu_hours.known_waste().is_some();
    let listing = is_judged.then(|| categories(sheet));
    coverage(sheet)
        .map(Block::Line)
        .into_iter()
        .chain(listing)
        .collect()
}

fn categories(sheet: &Sheet) -> Block {
    let columns = [
        Column::Text("where_gpu_hours_went"),
        Column::Number("gpu_hours"),
        Column::Number("share"),
    ];
    // Without a price of GPU-hours, the column would have zeros only.
    let has_price = sheet.figures.split_money.held() > 0.0;
    let currency = sheet.currency.as_deref().filter(|_| has_price);
    let columns: Vec<Column> = columns
        .into_iter()
        .chain(currency.map(|_| Column::Number("money")))
        .collect();

    let mut listing = Listing::new(&columns);
    let split = &sheet.figures.split_gpu_hours;
    let cost = &sheet.figures.split_money;
    // All hours may be unknown, and a share of 0 would be no number.
    let held = split.held().max(f64::MIN_POSITIVE);
    for cause in CAUSES.iter().filter(|cause| (cause.of)(split) > 0.0) {
        let hours = (cause.of)(split);
        let row = [cause.name.to_owned(), amount(hours), percent(hours / held)];
        let price = currency.map(|currency| money((cause.of)(cost), currency));
        listing.push(row.into_iter().chain(price).collect());
    }
    Block::Listing("GPU-hours of finished runs by category", listing)
}

pub(super) fn wasters(sheet: &Sheet) -> Option<Block> {
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

pub(super) fn fixes(sheet: &Sheet) -> Vec<Block> {
    let mut blocks = Vec::new();
    for fix in &sheet.fixes {
        blocks.push(Block::Line(fix_words(sheet, fix)));
        blocks.push(Block::Code(fix.line.clone()));
    }
    blocks
}

/// Returns a suggestion: `train (3 runs): 1 of its 2 GPUs did nothing; would spare 12.5 GPU-hours`.
pub(crate) fn fix_words(sheet: &Sheet, fix: &FixRow) -> String {
    let runs = if fix.runs == 1 {
        "1 run".to_owned()
    } else {
        format!("{} runs", fix.runs)
    };
    // A user's own report needs no name in each line.
    let whose = if sheet.subject.kind() == "user" {
        String::new()
    } else {
        format!("{}, ", fix.user)
    };
    // Less than a hundredth of a GPU-hour would be shown as 0.
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
