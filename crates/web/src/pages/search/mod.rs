//! `/search?q=`: jobs, people, nodes, GPUs and alerts by their names.

use super::work::address;
use crate::frame::{Content, Page, PageError, Visit, href};
use minijinja::{Value, context};
use takt_questions::{HitKind, SearchHit, SearchQuestion};

pub const PAGE: Page = Page::new("/search", include_str!("search.html"), show).filters(&["q"]);

fn show(visit: &Visit) -> Result<Content, PageError> {
    let q = visit.get("q").unwrap_or_default().to_owned();
    let answer = visit.ask(&SearchQuestion { q: q.clone() })?;
    let hits: Vec<Value> = answer
        .hits
        .iter()
        .map(|hit| {
            context! {
                kind => hit.kind.word(),
                name => hit.name,
                detail => hit.detail,
                address => page_of(hit),
            }
        })
        .collect();

    let values = context! { q, hits };
    let content = Content::new(format!("Search {q}").trim_end(), values);
    // A single hit, or an exact one, needs no choice.
    Ok(match answer.direct {
        Some(direct) => content.moved(page_of(&direct)),
        None => content,
    })
}

/// Address of the page about a hit.
fn page_of(hit: &SearchHit) -> String {
    match hit.kind {
        HitKind::Job => href("jobs", &hit.name),
        HitKind::User => href("people", &hit.name),
        HitKind::Account => href("accounts", &hit.name),
        HitKind::Node => href("nodes", &hit.name),
        HitKind::Gpu => href("gpus", &hit.name),
        // Alerts have no page of their own.
        HitKind::Alert => address("/alerts", &[]),
    }
}
