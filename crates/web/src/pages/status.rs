//! `/status`: a screen in the corridor. Numbers and nodes, no names of people or jobs.

use crate::frame::{Content, Page, PageError, Visit};
use crate::pictures;
use minijinja::context;
use takt_access::{Need, Role};
use takt_questions::ClusterQuestion;

pub const PAGE: Page = Page::new("/status", include_str!("status.html"), show)
    .needs(Need::Role(Role::Status))
    .live();

fn show(visit: &Visit) -> Result<Content, PageError> {
    let cluster = visit.ask(&ClusterQuestion::default())?;
    // No names of people: the screen hangs where visitors pass.
    let tiles: Vec<_> = pictures::gpus_first(&cluster.nodes)
        .map(|node| {
            context! {
                node => node.node,
                picture => pictures::tile(node),
                words => pictures::words(node),
                class => pictures::tile_class(node),
            }
        })
        .collect();

    let values = context! {
        counts => cluster.gpus,
        capacity => pictures::capacity(&cluster.nodes, false),
        nodes_up => cluster.nodes_up,
        nodes_unscraped => cluster.nodes_unscraped,
        nodes_all => cluster.nodes.len(),
        jobs_running => cluster.jobs_running,
        jobs_pending => cluster.jobs_pending,
        tiles,
    };
    Ok(Content::new("Status", values))
}
