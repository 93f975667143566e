//! Parts of all pages: layout, navigation, addresses, tables, time ranges, errors, live updates.
//!
//! A page is a [`Page`] in a file of its own and one line in [`crate::pages::PAGES`].

#![allow(
    dead_code,
    unused_imports,
    reason = "pages that are being added use the rest"
)]

mod assets;
mod content;
mod error;
mod form;
mod live;
mod page;
mod range;
mod rendered;
mod routes;
mod table;
mod templates;
mod time;
mod visit;

pub use content::Content;
pub use error::PageError;
pub use form::{Form, FormReply};
pub use page::{Group, Page};
pub use range::{Range, ticks};
pub use routes::routes;
pub use table::{Cell, Column, Table, natural};
pub use templates::{href, person};
pub use visit::Visit;
