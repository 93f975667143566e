//! One visit: who asks, for which address.

use super::{Page, PageError, Range};
use jiff::tz::TimeZone;
use std::fmt::Display;
use std::str::FromStr;
use takt_access::Viewer;
use takt_api::PageState;
use takt_questions::{AnswerData, Question};

/// Form of the reply, from the end of the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Html,
    Csv,
    Json,
    Svg,
}

impl Format {
    /// Splits an ending from a path.
    pub fn of(path: &str) -> (&str, Self) {
        [
            (".csv", Self::Csv),
            (".json", Self::Json),
            (".svg", Self::Svg),
        ]
        .into_iter()
        .find_map(|(ending, format)| Some((path.strip_suffix(ending)?, format)))
        .unwrap_or((path, Self::Html))
    }
}

/// One visit to a page. Pages reach data only through it, so each question carries the viewer.
pub struct Visit {
    /// The sources of the pages.
    pub site: PageState,
    /// The viewer who asks.
    pub viewer: Viewer,
    /// Time of the visit.
    pub now: jiff::Timestamp,
    /// Path of the address, without `.csv` or `.json`, percent-encoded.
    pub path: String,
    pub(super) parameters: Vec<(String, String)>,
    pub(super) query: Vec<(String, String)>,
    pub(super) format: Format,
}

impl Visit {
    /// Asks a question.
    ///
    /// # Errors
    /// If the viewer may not ask it, or it has no answer.
    pub fn ask<Q>(&self, question: &Q) -> Result<Q::Answer, PageError>
    where
        Q: Question,
    {
        // The page has its own need, which may be a weaker one.
        self.viewer.check(Q::NEED)?;
        let data = Q::Data::of(&self.site.store);
        Ok(question.answer(&self.viewer, data, &self.site.config)?)
    }

    /// Time zone of the cluster.
    pub fn zone(&self) -> &TimeZone {
        &self.site.zone
    }

    /// A part of the path, decoded: `g01` of `/nodes/g01` for `node`.
    pub fn parameter(&self, name: &str) -> &str {
        self.parameters
            .iter()
            .find(|(key, _)| key == name)
            .map_or("", |(_, value)| value)
    }

    /// A filter of the address; `None` if it is missing or empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.trim())
            .filter(|value| !value.is_empty())
    }

    /// All values of a filter that may occur several times.
    pub fn all<'v>(&'v self, name: &'v str) -> impl Iterator<Item = &'v str> {
        self.query
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.trim())
    }

    /// Whether the reply is a file: all rows of a table, or a picture.
    pub fn is_file(&self) -> bool {
        self.format != Format::Html
    }

    /// A filter of the address as a number.
    ///
    /// # Errors
    /// If its value is no such number.
    pub fn number<N>(&self, name: &str) -> Result<Option<N>, PageError>
    where
        N: FromStr<Err: Display>,
    {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        // Whole numbers have no fractions.
        let expected = match "0.5".parse::<N>() {
            Ok(_) => "a number",
            Err(_) => "a whole number",
        };
        text.parse().map(Some).map_err(|error| {
            let text = format!("{name}={text}: expected {expected}, such as {name}=50 ({error}).");
            PageError::wrong(text)
        })
    }

    /// The time range of the address (`from` and `to`, or `range`); `usual` is the range without
    /// them, such as `24h`.
    ///
    /// # Errors
    /// If a time cannot be read, or the range is empty.
    pub fn range(&self, usual: &str) -> Result<Range, PageError> {
        Range::of(self, usual)
    }

    /// This address with some parts of the query changed; an empty value removes a part.
    pub fn address(&self, changes: &[(&str, &str)]) -> String {
        address(&self.path, &self.query, changes)
    }

    /// This address with another ending, such as `.csv`.
    pub(super) fn address_as(&self, ending: &str) -> String {
        let path = if self.path == "/" {
            // The page `/` has no name that an ending could follow.
            "/index"
        } else {
            &self.path
        };
        address(&format!("{path}{ending}"), &self.query, &[])
    }

    /// Refuses parts of the query that the page does not know: a misspelt filter must not show
    /// everything.
    pub(super) fn check_query(&self, page: &Page) -> Result<(), PageError> {
        let names = self.query.iter().map(|(name, _)| name.as_str());
        match unknown_filter(page, names) {
            None => Ok(()),
            Some(text) => Err(PageError::wrong(text).next(&self.path, "The page without filters")),
        }
    }
}

/// What is wrong with the first name that the page does not know, with the names that it knows.
fn unknown_filter<'n>(page: &Page, mut names: impl Iterator<Item = &'n str>) -> Option<String> {
    /// Order and length of a table.
    const OF_TABLES: [&str; 2] = ["sort", "limit"];
    let known: Vec<&str> = [page.filters, page.times, &OF_TABLES].concat();
    let unknown = names.find(|name| !known.contains(name))?;
    Some(format!(
        "This page has no filter '{unknown}'. Its filters: {}.",
        known.join(", ")
    ))
}

fn address(path: &str, query: &[(String, String)], changes: &[(&str, &str)]) -> String {
    // Parts without a value are what an empty field of a form sends.
    let kept = query
        .iter()
        .filter(|(name, value)| {
            !value.is_empty() && changes.iter().all(|(changed, _)| changed != name)
        })
        .map(|(name, value)| (name.as_str(), value.as_str()));

    let changed = changes
        .iter()
        .copied()
        .filter(|(_, value)| !value.is_empty());

    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(kept.chain(changed))
        .finish();
    if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{query}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_what_is_not_changed() {
        let query = [("user", "a b"), ("sort", "-gpus"), ("limit", "")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(
            address("/jobs", &query, &[("sort", "user")]),
            "/jobs?user=a+b&sort=user"
        );
        assert_eq!(
            address("/jobs", &query, &[("sort", ""), ("user", "")]),
            "/jobs"
        );
    }

    #[test]
    fn a_page_refuses_times_that_it_does_not_have() {
        let page = |path: &str| {
            let mut pages = crate::pages::PAGES.iter();
            pages.find(|page| page.path == path).unwrap()
        };
        for (path, name, is_known) in [
            ("/jobs", "range", false),
            ("/jobs", "from", true),
            ("/jobs/{job}", "range", false),
            ("/jobs/{job}", "to", true),
            ("/nodes", "range", false),
            ("/nodes", "from", false),
            ("/nodes", "state", true),
            ("/nodes", "sort", true),
            ("/nodes/{node}", "range", true),
            ("/events", "range", true),
            ("/", "range", true),
            ("/", "from", false),
            ("/waste", "to", true),
            ("/waste", "range", false),
        ] {
            let said = unknown_filter(page(path), [name].into_iter());
            assert_eq!(said.is_none(), is_known, "{path}?{name}");
        }
        let said = unknown_filter(page("/jobs/{job}"), ["range"].into_iter());
        let expected = "This page has no filter 'range'. \
                        Its filters: submit, metric, from, to, sort, limit.";
        assert_eq!(said.as_deref(), Some(expected));
    }

    #[test]
    fn an_ending_names_the_format() {
        // Names of nodes have dots, so only the known endings are split off.
        assert_eq!(Format::of("/nodes.csv"), ("/nodes", Format::Csv));
        assert_eq!(
            Format::of("g01.cluster.lan"),
            ("g01.cluster.lan", Format::Html)
        );
        assert_eq!(
            Format::of("g01.cluster.lan.json"),
            ("g01.cluster.lan", Format::Json)
        );
    }
}
