//! The content of a page: its title, the values of its template, and its table.

use super::Table;
use minijinja::Value;

/// The content of one page.
#[derive(Debug)]
pub struct Content {
    /// Title of the page and of the browser's tab.
    pub title: String,
    /// Values for the template.
    pub values: Value,
    /// The page's table; `.csv` and `.json` give its rows.
    pub table: Option<Table>,
    /// A picture that `.svg` behind the address gives.
    pub picture: Option<takt_draw::Picture>,
    /// A whole document with inline style, instead of the template: a report as it is mailed.
    pub document: Option<String>,
    /// Address of another page that is shown instead.
    pub moved: Option<String>,
}

impl Content {
    /// Content without a table.
    pub fn new(title: impl Into<String>, values: Value) -> Self {
        Self {
            title: title.into(),
            values,
            table: None,
            picture: None,
            document: None,
            moved: None,
        }
    }

    /// Adds the page's table. The template shows it with `{{ parts.table(table) }}`.
    pub fn table(self, table: Table) -> Self {
        Self {
            table: Some(table),
            ..self
        }
    }

    /// Leads the reader to another page.
    pub fn moved(self, address: String) -> Self {
        Self {
            moved: Some(address),
            ..self
        }
    }

    /// Adds the picture for `.svg`.
    pub fn picture(self, picture: takt_draw::Picture) -> Self {
        Self {
            picture: Some(picture),
            ..self
        }
    }

    /// Replaces the page by a whole document.
    pub fn document(self, document: String) -> Self {
        Self {
            document: Some(document),
            ..self
        }
    }
}
