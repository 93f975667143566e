//! `/cards`: the cards (physical GPUs) with their verdicts.

use crate::frame::{Cell, Column, Content, Page, PageError, Table, Visit, href};
use minijinja::{Value, context};
use takt_model::words;
use takt_questions::{CardLine, CardQuestion, CardVerdict, CardsQuestion, CauseState, FaultOrigin};

pub const PAGE: Page = Page::new("/cards", include_str!("cards.html"), show)
    .filters(&["node", "verdict"])
    .rows();

const COLUMNS: &[Column] = &[
    Column::text("card", "card"),
    Column::text("verdict", "verdict"),
    Column::text("criterion", "criterion"),
    Column::text("node", "node"),
    Column::text("slot", "slot").minor(),
    Column::text("since", "since"),
    Column::text("last_seen", "last seen").minor(),
    Column::number("faults", "faults"),
    Column::number("hardware_faults", "of hardware"),
    Column::number("jobs_killed", "jobs killed"),
    Column::text("model", "model").minor(),
    Column::text("uuid", "UUID").minor(),
];

const VERDICTS: [CardVerdict; 4] = [
    CardVerdict::Return,
    CardVerdict::Inspect,
    CardVerdict::Watch,
    CardVerdict::Healthy,
];

fn show(visit: &Visit) -> Result<Content, PageError> {
    let wanted = visit.get("verdict").filter(|word| !word.is_empty());
    let verdict = wanted
        .map(|word| {
            let known = VERDICTS.into_iter().find(|verdict| verdict.word() == word);
            let error = || {
                let text =
                    format!("No verdict is called '{word}': return, inspect, watch or healthy.");
                PageError::wrong(text).next("/cards", "All cards")
            };
            known.ok_or_else(error)
        })
        .transpose()?;
    let node = visit.get("node").filter(|node| !node.is_empty());

    let cards = visit.ask(&CardsQuestion {
        node: node.map(str::to_owned),
        verdict,
        cluster: Some(visit.site.cluster.to_string()),
    })?;
    let rows = cards.iter().map(row).collect();
    let table = Table::new(
        visit,
        "list",
        "Cards, the worst first",
        COLUMNS.to_vec(),
        rows,
    )?;

    let values = context! {
        fields => [
            context! {
                name => "node",
                label => "node",
                value => node.unwrap_or_default(),
            },
            context! {
                name => "verdict",
                label => "verdict",
                value => wanted.unwrap_or_default(),
                choices => VERDICTS.map(CardVerdict::word),
            },
        ],
    };
    Ok(Content::new("Cards", values).table(table))
}

fn row(card: &CardLine) -> Vec<Cell> {
    let count = |count: usize| Cell::count(count as u64);
    vec![
        Cell::text(&card.card).link(href("gpus", &card.uuid)),
        Cell::text(card.verdict.word()).class(class(card.verdict)),
        Cell::text(&card.criterion).class("wrap"),
        match &card.node {
            Some(node) => Cell::text(node).link(href("nodes", node)),
            None => Cell::unknown(),
        },
        card.slot.as_deref().map(Cell::text).unwrap_or_default(),
        Cell::time(Some(card.since)),
        Cell::time(Some(card.seen)),
        count(card.faults),
        count(card.hardware_faults),
        count(card.jobs_killed),
        Cell::text(&card.model),
        Cell::text(&card.uuid),
    ]
}

/// CSS class of a verdict; the word says the same.
fn class(verdict: CardVerdict) -> &'static str {
    match verdict {
        CardVerdict::Return | CardVerdict::Inspect => "bad",
        CardVerdict::Watch | CardVerdict::Healthy => "",
    }
}

/// The section about the card on the page of its GPU; `None` if no server has followed the card.
pub(super) fn section(visit: &Visit, uuid: &str) -> Result<Option<Value>, PageError> {
    let answer = visit.ask(&CardQuestion {
        card: uuid.to_owned(),
        cluster: Some(visit.site.cluster.to_string()),
    })?;
    let Some(report) = answer.card else {
        return Ok(None);
    };

    let diagnosis = report.diagnosis;
    let findings: Vec<Value> = diagnosis
        .findings
        .iter()
        .map(|finding| {
            context! {
                verdict => finding.verdict.word(),
                criterion => finding.criterion,
                since => finding.since,
                source => finding.source,
                action => finding.action,
            }
        })
        .collect();
    let placements: Vec<Value> = report
        .placements
        .iter()
        .rev()
        .map(|placement| {
            context! {
                node => placement.node,
                slot => placement.slot,
                from => placement.from,
                to => placement.to,
                seen => placement.seen,
                lasted => words::duration(placement.seconds() as f64),
            }
        })
        .collect();
    let causes: Vec<Value> = diagnosis
        .causes
        .iter()
        .filter_map(|cause| {
            let state = match cause.state {
                CauseState::RuledOut => "ruled out",
                CauseState::Suspected => "suspected",
                CauseState::Unknown => return None,
            };
            Some(context! {
                cause => cause.cause,
                state,
                evidence => cause.evidence,
            })
        })
        .collect();

    Ok(Some(context! {
        card => report.card,
        verdict => diagnosis.verdict.word(),
        class => class(diagnosis.verdict),
        findings,
        origin => match diagnosis.origin.origin {
            FaultOrigin::Card => "the card",
            FaultOrigin::Slot => "the slot",
            FaultOrigin::Unknown => "not known",
        },
        why => diagnosis.origin.why,
        causes,
        placements,
        killed => report.killed.len(),
        notes => report.notes,
        command => format!("takt card show {}", takt_model::shown::shell_word(&report.card)),
    }))
}
