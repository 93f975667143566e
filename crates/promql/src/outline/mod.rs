//! What stands where in a query, for messages that name a place.
//!
//! The parser crate refuses a query without a word of where, and its tree has no positions. So a query that it refused is
//! read once more, as Prometheus' grammar reads it (`promql/parser/{lex.go,generated_parser.y,parse.go}`): the first
//! fault of grammar ([`read`]) or of types ([`check`]) is told in Prometheus' words. A remark about an answer needs
//! no more than where the arguments of a call begin ([`Outline::arguments`]).
//!
//! The crate alone decides what is PromQL; where this reading finds no fault, the crate's words stand.

mod check;
mod lex;
mod read;

pub(crate) use check::check;
pub(crate) use read::read;

use lex::Token;

/// A place in a query, from 1. The column counts bytes, as Prometheus' does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The byte in it.
    pub column: usize,
}

impl Place {
    /// The place of a byte.
    pub(crate) fn of(query: &str, at: usize) -> Self {
        let before = &query[..at];
        let line = before.matches('\n').count() + 1;
        Self {
            line,
            column: at - before.rfind('\n').map_or(0, |newline| newline + 1) + 1,
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// What is wrong, and at which byte.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub at: usize,
    pub text: String,
}

/// A part of a query, from byte to byte.
#[derive(Debug)]
pub(crate) struct Outline<'a> {
    pub at: usize,
    pub end: usize,
    /// How many parts there are from here down to the deepest.
    height: usize,
    pub part: Part<'a>,
}

/// What a part is.
#[derive(Debug)]
pub(crate) enum Part<'a> {
    Number,
    Text,
    /// With begin and end of each matcher.
    Selector(Vec<(usize, usize)>),
    /// `of[5m]` or, a subquery, `of[5m:1m]`
    Window {
        of: Box<Outline<'a>>,
        range_at: usize,
        is_subquery: bool,
    },
    Paren(Box<Outline<'a>>),
    Unary(Box<Outline<'a>>),
    Binary(Box<Binary<'a>>),
    Call {
        name: &'a str,
        args: Vec<Outline<'a>>,
    },
    Aggregate {
        /// In small letters.
        name: String,
        args: Vec<Outline<'a>>,
    },
}

/// Two parts and what is between them.
#[derive(Debug)]
pub(crate) struct Binary<'a> {
    pub lhs: Outline<'a>,
    op: Token<'a>,
    matching: Matching<'a>,
    pub rhs: Outline<'a>,
}

/// What may stand between an operator and its right side.
#[derive(Debug, Default)]
struct Matching<'a> {
    is_bool: bool,
    /// Whether the labels are those of `on`.
    is_on: bool,
    labels: Vec<&'a str>,
    /// The labels of `group_left` or `group_right`.
    group: Option<Vec<&'a str>>,
}

impl<'a> Outline<'a> {
    fn new(at: usize, end: usize, part: Part<'a>) -> Self {
        let mut outline = Self {
            at,
            end,
            height: 1,
            part,
        };
        outline.height += outline
            .children()
            .iter()
            .map(|child| child.height)
            .max()
            .unwrap_or(0);
        outline
    }

    /// Where the arguments of each call and of each aggregation begin, in the order in which these are written.
    pub fn arguments(&self) -> Vec<Vec<usize>> {
        let mut found = Vec::new();
        self.walk(&mut |part| {
            if let Part::Call { args, .. } | Part::Aggregate { args, .. } = &part.part {
                found.push(args.iter().map(|arg| arg.at).collect());
            }
        });
        found
    }

    /// Where the smallest part begins that is refused alone.
    pub fn blame(&self, query: &str, is_refused: &impl Fn(&str) -> bool) -> Option<usize> {
        if let Some(at) = self
            .children()
            .into_iter()
            .find_map(|child| child.blame(query, is_refused))
        {
            return Some(at);
        }
        is_refused(&query[self.at..self.end]).then(|| match &self.part {
            Part::Window { range_at, .. } => *range_at,
            Part::Selector(matchers) => {
                let matcher = matchers
                    .iter()
                    .find(|(at, end)| is_refused(&format!("x{{{}}}", &query[*at..*end])));
                matcher.map_or(self.at, |(at, _)| *at)
            }
            _ => self.at,
        })
    }

    /// This part and all below, in the order in which they are written.
    fn walk(&self, visit: &mut impl FnMut(&Self)) {
        visit(self);
        self.children()
            .into_iter()
            .for_each(|child| child.walk(visit));
    }

    fn children(&self) -> Vec<&Self> {
        match &self.part {
            Part::Number | Part::Text | Part::Selector(_) => Vec::new(),
            Part::Window { of, .. } | Part::Paren(of) | Part::Unary(of) => vec![of],
            Part::Binary(binary) => vec![&binary.lhs, &binary.rhs],
            Part::Call { args, .. } | Part::Aggregate { args, .. } => args.iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const HAND_MADE: &[&str] = include!("../../tests/promql/hand_made.in");

    #[test]
    fn what_is_promql_has_no_fault() {
        let mut calls = 0;
        for query in HAND_MADE.iter().filter(|query| parse(query).is_ok()) {
            let outline = read(query).unwrap_or_else(|fault| panic!("{query}: {fault:?}"));
            assert_eq!(
                (outline.at, outline.end),
                (query.find(|c| c != ' ').unwrap(), query.trim_end().len()),
                "{query}"
            );
            check(&outline).unwrap_or_else(|fault| panic!("{query}: {fault:?}"));
            calls += outline.arguments().len();
        }
        assert!(calls > HAND_MADE.len() / 2, "{calls}");
    }

    #[test]
    fn a_place_counts_lines_and_bytes() {
        let query = "é +\n  sum(x)";
        assert_eq!(
            Place::of(query, query.find('+').unwrap()).to_string(),
            "1:4"
        );
        assert_eq!(
            Place::of(query, query.find('x').unwrap()).to_string(),
            "2:7"
        );
        assert_eq!(Place::of(query, query.len()).to_string(), "2:9");
    }
}
