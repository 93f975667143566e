//! The pages.
//!
//! `/`: nodes and GPUs, the queue, the month's top users, the collector's health.
//!
//! One HTML file without scripts, below 100 kB for thirty nodes of eight GPUs; it asks for itself again every 15 s.

mod alerts;
mod facts;
mod routes;
mod scheduler;
mod view;

pub use alerts::{AlertsView, ENDED_DAYS, ENDED_MOST};
pub use facts::{Facts, Surroundings, gather};
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

/// The page of what is known now.
///
/// # Errors
/// Only where the template asks for something that its values have not.
pub fn render(facts: &Facts) -> Result<String, minijinja::Error> {
    let view = view::View::of(facts);
    TEMPLATES
        .get_template("page.html")?
        .render(context! { ..minijinja::Value::from_serialize(&view) })
}
