//! Where a query stops being PromQL.
//!
//! The parser crate says no more than that. But what comes before the place can be completed to a query, and what
//! comes up to it cannot: so the tokens are taken away from the end until some completion is understood.

/// Queries of more tokens are not searched.
const MOST_TOKENS: usize = 120;

/// What may be missing behind a beginning, before its brackets are closed and after.
const INSIDE: [&str; 9] = ["", " a", " 1", "\"a\"", "=\"a\"", " 5m", " (a)", "(a) (a)", "\"a\", a"];
const AFTER: [&str; 3] = ["", " a", " (a)"];

/// The place of an error: from 1, the column in characters, as Prometheus counts them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub line: usize,
    pub column: usize,
    /// The first text that does not fit; `None` where more was expected.
    pub unexpected: Option<String>,
}

/// The first token that no query can have there; `None` where that is not found out.
pub(crate) fn locate(query: &str, is_understood: impl Fn(&str) -> bool) -> Option<Place> {
    let tokens = tokens(query);
    if tokens.len() > MOST_TOKENS {
        return None;
    }
    let begins = |end: usize| {
        let closing = closing(&query[..end]);
        let completed = |inside: &&str| {
            AFTER.iter().any(|after| is_understood(&format!("{}{inside}{closing}{after}", &query[..end])))
        };
        INSIDE.iter().any(completed)
    };
    let ends = tokens.iter().map(|(_, end)| *end).rev().chain([0]);
    let understood = ends.into_iter().find(|end| begins(*end))?;
    let next = tokens.iter().find(|(start, _)| *start >= understood);
    let at = next.map_or(query.len(), |(start, _)| *start);
    let line = query[..at].matches('\n').count() + 1;
    let column = query[..at].rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Some(Place { line, column, unexpected: next.map(|(start, end)| query[*start..*end].to_owned()) })
}

/// Begin and end of each token, without blanks and comments.
fn tokens(query: &str) -> Vec<(usize, usize)> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = query[at..].chars().next() {
        let rest = &query[at..];
        let length = match first {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' | '`' => {
                let mut is_escaped = false;
                let end = rest[1..].find(|c| {
                    let closes = c == first && !is_escaped;
                    is_escaped = c == '\\' && !is_escaped && first != '`';
                    closes
                });
                end.map_or(rest.len(), |end| end + 2)
            }
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ => match ["==", "!=", "=~", "!~", "<=", ">="].iter().find(|pair| rest.starts_with(**pair)) {
                Some(pair) => pair.len(),
                None => first.len_utf8(),
            },
        };
        if !first.is_whitespace() && first != '#' {
            tokens.push((at, at + length));
        }
        at += length;
    }
    tokens
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | ':' | '.')
}

/// What closes the brackets that are open at the end.
fn closing(text: &str) -> String {
    let mut open = Vec::new();
    for (start, end) in tokens(text) {
        match &text[start..end] {
            "(" => open.push(')'),
            "[" => open.push(']'),
            "{" => open.push('}'),
            ")" | "]" | "}" => drop(open.pop()),
            _ => {}
        }
    }
    open.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use crate::query::promql::parse;

    #[test]
    fn says_where_it_stops() {
        for (query, expected) in [
            ("1 +", "1:4: parse error: unexpected end of input"),
            ("sum(rate(up[5m])", "1:17: parse error: unexpected end of input"),
            ("foo bar", "1:5: parse error: unexpected \"bar\""),
            ("sum(up))", "1:8: parse error: unexpected \")\""),
            ("up{job=x}", "1:8: parse error: unexpected \"x\""),
            ("up{job=\"é\"} * * 2", "1:15: parse error: unexpected \"*\""),
            ("up + # two lines\n  on(a) )", "2:9: parse error: unexpected \")\""),
            ("rate(up[5m] offset)", "1:19: parse error: unexpected \")\""),
            ("up @ [", "1:6: parse error: unexpected \"[\""),
            ("] up", "1:1: parse error: unexpected \"]\""),
        ] {
            assert_eq!(parse(query).unwrap_err().to_string(), expected, "{query}");
        }
    }
}
