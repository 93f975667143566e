//! `/`: the cluster now.

mod facts;
mod scheduler;
mod view;

use crate::frame::{Content, Group, Page, PageError, Visit};
use facts::{ServerFacts, gather};
use minijinja::Value;
use scheduler::scheduler;
use view::View;

pub const PAGE: Page = Page::new("/", include_str!("overview.html"), show)
    .menu(Group::Now, "Overview")
    .live();

fn show(visit: &Visit) -> Result<Content, PageError> {
    let site = &visit.site;
    let surroundings = ServerFacts {
        cluster: site.cluster.to_string(),
        zone: site.zone.clone(),
        targets: site.scrape.targets(),
        scheduler: site
            .polls
            .as_ref()
            .and_then(|polls| scheduler(&polls.borrow())),
    };
    let facts = gather(&site.store, &visit.viewer, &surroundings)?;
    let values = Value::from_serialize(View::of(&facts));
    Ok(Content::new("Overview", values))
}
