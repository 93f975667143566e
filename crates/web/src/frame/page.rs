//! A page: its address, its template, and the function that answers it.

use super::{Content, Form, FormReply, PageError, Visit};
use takt_access::{Need, Role};
use takt_api::PageState;

/// Groups of the navigation, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The cluster now.
    Now,
    /// Jobs and the people who run them.
    Work,
    /// Usage and its efficiency.
    Use,
    /// Faults, and Takt itself.
    System,
}

/// Carries out a form of a page.
pub type Submit = fn(&Visit, &Form) -> Result<FormReply, PageError>;

/// A page.
#[derive(Debug)]
pub struct Page {
    /// Address in the router's form: `/nodes/{node}`.
    pub path: &'static str,
    /// Text of the template; it extends `layout`.
    pub template: &'static str,
    /// Group and name of the link in the navigation.
    pub menu: Option<(Group, &'static str)>,
    /// Whether the navigation of this server has the link.
    pub is_listed: fn(&PageState) -> bool,
    /// Names of the filters that the address may have.
    pub filters: &'static [&'static str],
    /// Names of the times that the address may have.
    pub times: &'static [&'static str],
    /// Whether `.csv` and `.json` behind the address give the rows of the page's table.
    pub has_rows: bool,
    /// Whether the page follows the cluster: its sections are renewed while it is open.
    pub is_live: bool,
    /// Answers a visit.
    pub show: fn(&Visit) -> Result<Content, PageError>,
    /// The access that reading the page needs.
    pub need: Need,
    /// Carries out a form of the page.
    pub submit: Option<Submit>,
    /// Least role of those who may send a form.
    pub submit_role: Role,
    /// Whether anybody may send a form, because a secret in it is checked.
    pub is_open: bool,
}

fn always(_: &PageState) -> bool {
    true
}

impl Page {
    /// A page without a place in the navigation.
    pub const fn new(
        path: &'static str,
        template: &'static str,
        show: fn(&Visit) -> Result<Content, PageError>,
    ) -> Self {
        Self {
            path,
            template,
            menu: None,
            is_listed: always,
            filters: &[],
            times: &[],
            has_rows: false,
            is_live: false,
            show,
            need: Need::SignedIn,
            submit: None,
            submit_role: Role::Support,
            is_open: false,
        }
    }

    /// Adds a link in the navigation.
    pub const fn menu(self, group: Group, name: &'static str) -> Self {
        Self {
            menu: Some((group, name)),
            ..self
        }
    }

    /// Leaves the link out of the navigation of servers without something.
    pub const fn listed_if(self, is_listed: fn(&PageState) -> bool) -> Self {
        Self { is_listed, ..self }
    }

    /// Accepts these filters in the address.
    pub const fn filters(self, filters: &'static [&'static str]) -> Self {
        Self { filters, ..self }
    }

    /// Accepts `from` and `to` in the address.
    pub const fn days(self) -> Self {
        Self {
            times: &["from", "to"],
            ..self
        }
    }

    /// Accepts a time range in the address: `from` and `to`, or `range` ([`Visit::range`]).
    pub const fn ranges(self) -> Self {
        Self {
            times: &["from", "to", "range"],
            ..self
        }
    }

    /// Serves the page's table as CSV and JSON as well.
    pub const fn rows(self) -> Self {
        Self {
            has_rows: true,
            ..self
        }
    }

    /// Renews the page's live sections while it is open.
    pub const fn live(self) -> Self {
        Self {
            is_live: true,
            ..self
        }
    }

    /// Needs something else than a known viewer.
    pub const fn needs(self, need: Need) -> Self {
        Self { need, ..self }
    }

    /// Accepts forms of this role and higher ones; default: support.
    pub const fn submit_by(self, submit_role: Role) -> Self {
        Self {
            submit_role,
            ..self
        }
    }

    /// Accepts readers and forms of anybody: the page checks a secret itself.
    pub const fn open(self) -> Self {
        Self {
            need: Need::Nothing,
            is_open: true,
            ..self
        }
    }

    /// Carries out forms that are sent to the page's address.
    pub const fn submit(self, submit: Submit) -> Self {
        Self {
            submit: Some(submit),
            ..self
        }
    }
}
