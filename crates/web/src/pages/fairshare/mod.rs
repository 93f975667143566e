//! `/fairshare`: where one stands, why, when it changes, and what a planned job would do.

use super::work::{account, address, user};
use crate::frame::{Cell, Column, Content, Group, Page, PageError, Table, Visit};
use minijinja::context;
use std::iter;
use takt_accounting::fairshare::ShareRow;
use takt_draw::{Picture, area};
use takt_jobs::Shares;
use takt_model::shown::shell_word;
use takt_model::words;
use takt_questions::{FairshareAnswer, FairshareQuestion};

pub const PAGE: Page = Page::new("/fairshare", include_str!("fairshare.html"), show)
    .menu(Group::Use, "Fair share")
    .filters(&[
        "user",
        "account",
        "gpus",
        "cpus",
        "mem",
        "hours",
        "partition",
        "qos",
    ])
    .rows();

/// Days of history on the page.
const HISTORY_DAYS: u32 = 30;

fn show(visit: &Visit) -> Result<Content, PageError> {
    let text = |name: &str| visit.get(name).map(str::to_owned);

    let plan = planned(visit)?;
    let who = text("user");
    // A plan changes a factor, and each user has another one.
    if plan.is_some() && who.is_none() {
        return Err(
            PageError::wrong("A planned job needs a user: fill in the field 'user'.")
                .next("/fairshare", "Fair share"),
        );
    }

    let question = FairshareQuestion {
        cluster: Some(visit.site.cluster.to_string()),
        account: text("account"),
        explain: who.is_some(),
        plan_hours: match &plan {
            Some(_) => visit.number("hours")?,
            None => None,
        },
        plan_partition: text("partition").filter(|_| plan.is_some()),
        plan_qos: text("qos").filter(|_| plan.is_some()),
        history_days: who.is_some().then_some(HISTORY_DAYS),
        plan,
        user: who.clone(),
    };
    let answer = visit
        .ask(&question)
        .map_err(|error| error.next("/fairshare", "Fair share of everybody"))?;

    let table = rows(visit, &answer)?;
    let history = who.as_deref().and_then(|who| history(&answer, who));
    let values = context! {
        who,
        account => text("account"),
        shares_from => answer.shares_from,
        fair_tree => answer.fair_tree,
        half_life => f64::from(answer.half_life_seconds),
        // A line for each element: the templates' escape replaces line breaks.
        explanations => answer.explanations.iter().map(|text| {
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        }).collect::<Vec<_>>(),
        unknown_accounts => answer.runs_of_unknown_accounts,
        unknown_amounts => answer.runs_of_unknown_amounts,
        fields => ["gpus", "cpus", "mem", "hours", "partition", "qos"].map(|name| context! {
            name,
            label => label(name),
            value => visit.get(name),
        }),
        history => history.as_ref().map(|picture| picture.inline("chart low")),
        history_days => HISTORY_DAYS,
        history_from => answer.history.first().map(|point| point.at),
        history_to => answer.history.last().map(|point| point.at),
        command => match visit.get("user") {
            Some(user) => format!("takt fairshare --user {} --explain", shell_word(user)),
            None => "takt fairshare".to_owned(),
        },
    };

    let title = match visit.get("user") {
        Some(user) => format!("Fair share of {user}"),
        None => "Fair share".to_owned(),
    };

    let content = Content::new(title, values).table(table);
    Ok(match history {
        Some(picture) => content.picture(picture),
        None => content,
    })
}

fn label(name: &str) -> &'static str {
    match name {
        "gpus" => "GPUs",
        "cpus" => "CPUs",
        "mem" => "memory in GiB",
        "hours" => "hours",
        "partition" => "partition",
        _ => "QOS",
    }
}

/// The TRES of the planned job; `None` without one.
fn planned(visit: &Visit) -> Result<Option<String>, PageError> {
    let mut tres = Vec::new();
    // Names of the fields are those of people, and of TRES are Slurm's.
    for (field, name, unit) in [
        ("cpus", "cpu", ""),
        ("gpus", "gres/gpu", ""),
        ("mem", "mem", "G"),
    ] {
        let amount: Option<u64> = visit.number(field)?;
        if let Some(amount) = amount.filter(|amount| *amount > 0) {
            tres.push(format!("{name}={amount}{unit}"));
        }
    }
    Ok((!tres.is_empty()).then(|| tres.join(",")))
}

fn rows(visit: &Visit, answer: &FairshareAnswer) -> Result<Table, PageError> {
    let columns = vec![
        Column::text("account", "Account"),
        Column::text("user", "User"),
        Column::number("fair_share", "Fair share"),
        Column::number("level_fs", "Level FS"),
        Column::text("raw_shares", "Shares"),
        Column::number("norm_shares", "Share").minor(),
        Column::number("effective_usage", "Usage").minor(),
        Column::number("raw_usage", "Raw usage").minor(),
    ];

    let row = |row: &ShareRow| {
        let shares = match row.raw_shares {
            None => String::new(),
            Some(Shares::Raw(shares)) => shares.to_string(),
            Some(Shares::Parent) => "parent".to_owned(),
        };
        let standing = |name: &str| address("/fairshare", &[("user", name)]);
        // A share without usage has an infinite level, which no number can show.
        let level = match row.level_fs {
            Some(level) if level.is_infinite() => Cell::text("∞ (no usage)"),

            level => Cell::number(level, |level| format!("{level:.3}")),
        };
        vec![
            account(&row.account),
            row.user.as_deref().map_or_else(|| Cell::text(""), user),
            match (&row.user, row.fair_share) {
                (Some(name), Some(value)) => {
                    Cell::number(Some(value), |value| format!("{value:.4}")).link(standing(name))
                }
                (_, value) => Cell::number(value, |value| format!("{value:.4}")),
            },
            level,
            Cell::text(shares),
            Cell::number(Some(row.norm_shares), |share| format!("{share:.4}")),
            Cell::number(Some(row.effective_usage), |usage| format!("{usage:.4}")),
            Cell::number(Some(row.raw_usage), words::whole),
        ]
    };

    let caption = "As sshare -l -a: fair share from 0 to 1, 1 is the best; level FS above 1: used \
                   less than one's share";
    Table::new(
        visit,
        "shares",
        caption,
        columns,
        answer.rows.iter().map(row).collect(),
    )
}

/// The recorded fair share of a user's first association.
fn history(answer: &FairshareAnswer, who: &str) -> Option<Picture> {
    let mut points = answer
        .history
        .iter()
        .filter(|point| point.user.as_deref() == Some(who));
    let first = points.next()?;
    // A user in several accounts has a line for each; mixing them would make a zigzag.
    let same = |account: &str| *account == first.account;
    let values: Vec<Option<f64>> = iter::once(first)
        .chain(points.filter(|point| same(&point.account)))
        .map(|point| point.fair_share)
        .collect();
    // One point is no line.
    if values.len() < 2 {
        return None;
    }

    let drawn = area(&values, 1.0);
    Some(Picture {
        width: drawn.width,
        height: drawn.height,
        label: format!("fair share of {who} in the last {HISTORY_DAYS} days, from 0 to 1"),
        body: format!("<path class=\"area\" d=\"{}\"/>", drawn.d),
    })
}
