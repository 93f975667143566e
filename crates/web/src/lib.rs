//! The pages.
//!
//! `/` shows nodes and GPUs, the queue, the month's top users, and the collector's health.
//!
//! The page is one HTML file without scripts, below 100 kB for thirty nodes with eight GPUs each.
//! It reloads itself every 15 s.

mod alerts;
mod facts;
mod routes;
mod scheduler;
mod view;

pub use alerts::{AlertsView, ENDED_DAYS, ENDED_MOST};
pub use facts::{Facts, ServerFacts, gather};
pub use routes::routes;

use minijinja::{AutoEscape, Environment, context};
use std::sync::LazyLock;

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut templates = Environment::new();
    templates.set_auto_escape_callback(|_| AutoEscape::Html);
    templates.set_trim_blocks(true);
    templates
        .add_template("page.html", include_str!("page.html"))
        .expect("the page's template is part of the program");
    templates
        .add_template("alerts.html", include_str!("alerts.html"))
        .expect("this page too");
    templates
});

/// Renders the overview page.
///
/// # Errors
/// If the template needs a value that the view does not have.
pub fn render(facts: &Facts) -> Result<String, minijinja::Error> {
    let view = view::View::of(facts);
    TEMPLATES
        .get_template("page.html")?
        .render(context! { ..minijinja::Value::from_serialize(&view) })
}
