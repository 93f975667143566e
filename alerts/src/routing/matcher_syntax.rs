//! Alertmanager's syntax of conditions: `severity="critical"`, `node=~g0[1-3]`.

use super::matcher::{Matcher, MatcherError};
use crate::unquote::unquote;
use takt_model::MatchOp;

/// A condition that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    /// It is not written as a condition.
    #[error("`{0}` is not a matcher such as `severity=\"critical\"` or `node=~\"g0.*\"`")]
    Syntax(String),
    /// Its regular expression cannot be used.
    #[error(transparent)]
    Regex(#[from] MatcherError),
}

/// The condition as Alertmanager writes it: a name in quotes only where it needs them, the value
/// always.
pub fn print_matcher(matcher: &Matcher) -> String {
    let name = matcher.name();
    let name = if name.chars().all(is_bare) {
        name.to_owned()
    } else {
        quoted(name)
    };
    format!("{name}{}{}", matcher.op(), quoted(matcher.value()))
}

fn quoted(text: &str) -> String {
    // The backslash first, or the ones that are added here would be doubled.
    let text = text.replace('\\', "\\\\");
    let text = text.replace('\n', "\\n").replace('"', "\\\"");
    format!("\"{text}\"")
}

/// Reads one or several conditions separated by commas, in braces or not. Names and values may be
/// bare or quoted.
///
/// Alertmanager has two grammars. The newer one knows any name; the older one lets a bare value
/// hold anything up to the next comma, and keeps escapes that it does not know. As in Alertmanager
/// (from 0.27 on) what only one of them can read means what it says, and where both can and differ,
/// the older one is believed.
///
/// # Errors
/// Where neither grammar can read it.
pub fn parse_matchers(text: &str) -> Result<Vec<Matcher>, SyntaxError> {
    // The older grammar first: where both can read a text, its meaning counts.
    older(text)
        .or_else(|| newer(text.trim()))
        .ok_or_else(|| SyntaxError::Syntax(text.trim().to_owned()))?
        .into_iter()
        .map(|(name, op, value)| Ok(Matcher::new(&name, op, &value)?))
        .collect()
}

/// Reads one condition, without braces: here a comma is part of a bare value.
///
/// # Errors
/// Where neither grammar can read it, or it is several.
pub fn parse_matcher(text: &str) -> Result<Matcher, SyntaxError> {
    // Without braces a comma belongs to the value, so only one condition can come of it.
    let several =
        || newer(text.trim()).filter(|parts| parts.len() == 1 && !text.trim().starts_with('{'));
    let (name, op, value) = older_part(text)
        .or_else(|| several()?.pop())
        .ok_or_else(|| SyntaxError::Syntax(text.trim().to_owned()))?;
    Ok(Matcher::new(&name, op, &value)?)
}

type Part = (String, MatchOp, String);

fn newer(text: &str) -> Option<Vec<Part>> {
    let inside = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}')?,
        None => text,
    };

    let mut parts = Vec::new();
    let mut rest = inside.trim_start();
    while !rest.is_empty() {
        let (name, behind) = word(rest)?;
        let (op, behind) = operator(behind.trim_start())?;
        let (value, behind) = word(behind.trim_start())?;
        parts.push((name, op, value));

        rest = behind.trim_start();
        if rest.is_empty() {
            break;
        }
        // A comma at the end is allowed, two in a row are not.
        rest = rest.strip_prefix(',')?.trim_start();
    }
    Some(parts)
}

/// One brace at either end is taken off, whether or not there is one at the other.
fn older(text: &str) -> Option<Vec<Part>> {
    let text = text.strip_prefix('{').unwrap_or(text);
    let text = text.strip_suffix('}').unwrap_or(text);
    split_at_commas(text).into_iter().map(older_part).collect()
}

fn older_part(part: &str) -> Option<Part> {
    // Go's `\s`.
    let part = part.trim_matches(['\t', '\n', '\x0c', '\r', ' ']);

    let end = part.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | ':')))?;
    let (name, behind) = part.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }

    let (op, value) = operator(behind.trim_ascii_start())?;
    Some((name.to_owned(), op, older_value(value.trim_ascii_start())?))
}

/// A quote at the beginning of a value must also end it. Quotes between them need a backslash.
/// Escapes that are not known stay as they are, for the sake of regular expressions.
fn older_value(text: &str) -> Option<String> {
    let (text, mut is_open) = text
        .strip_prefix('"')
        .map_or((text, false), |rest| (rest, true));
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some(same @ ('"' | '\\')) => out.push(same),
                // As in a regular expression: `\d` stays `\d`.
                Some(other) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
            // Only a quote at the very end closes the value.
            '"' if is_open && chars.as_str().is_empty() => is_open = false,
            '"' => return None,
            c => out.push(c),
        }
    }
    (!is_open).then_some(out)
}

fn split_at_commas(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut quoted = false;
    let mut escaped = false;

    for (at, c) in text.char_indices() {
        match c {
            ',' if !quoted => {
                parts.push(&text[start..at]);
                start = at + 1;
                continue;
            }
            '"' if !escaped => quoted = !quoted,
            _ => {}
        }
        // Two backslashes are an escaped backslash, and the quote after them counts.
        escaped = c == '\\' && !escaped;
    }
    parts.push(&text[start..]);
    // As in Go, a comma at the end is ignored.
    if parts.last().is_some_and(|last| last.trim().is_empty()) {
        parts.pop();
    }
    parts
}

fn operator(text: &str) -> Option<(MatchOp, &str)> {
    // The longest signs first: `=~` begins with `=`.
    [
        ("=~", MatchOp::Regex),
        ("!~", MatchOp::NotRegex),
        ("!=", MatchOp::NotEqual),
        ("=", MatchOp::Equal),
    ]
    .into_iter()
    .find_map(|(sign, op)| text.strip_prefix(sign).map(|rest| (op, rest)))
}

fn is_bare(c: char) -> bool {
    !c.is_whitespace() && !"{}!=~,\\\"'`".contains(c)
}

fn word(text: &str) -> Option<(String, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        // A quote after a backslash belongs to the value.
        let mut escaped = false;
        let end = quoted.find(|c| {
            let closes = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        })?;
        return Some((unquote(&quoted[..end])?, &quoted[end + 1..]));
    }

    let end = text.find(|c| !is_bare(c)).unwrap_or(text.len());
    (end > 0).then(|| (text[..end].to_owned(), &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::super::matcher::Matchers;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_both_grammars() {
        for (text, printed) in [
            ("severity=critical", r#"{severity="critical"}"#),
            (
                r#"{a="1", b!="2" , c=~"3.*",d!~e,}"#,
                r#"{a="1",b!="2",c=~"3.*",d!~"e"}"#,
            ),
            ("node=~g0[1-3]|g1.", r#"{node=~"g0[1-3]|g1."}"#),
            (r#""gpu type"="RTX 5090""#, r#"{"gpu type"="RTX 5090"}"#),
            (r#"a="b,c""#, r#"{a="b,c"}"#),
            ("ä=ö", r#"{ä="ö"}"#),
            ("{}", "{}"),
            ("", "{}"),
            // Only the older grammar reads these.
            ("foo=bar=baz", r#"{foo="bar=baz"}"#),
            (r#"path=~"\d+""#, r#"{path=~"\\d+"}"#),
            // Both can read these and differ: a tab, or a backslash and a letter.
            (r#"a="x\ty""#, r#"{a="x\\ty"}"#),
            (r#""gpu.type"="\u0041""#, r#"{gpu.type="A"}"#),
            // Bytes.
            (r#""\xf0\x9f\x99\x82"=dΘ"#, r#"{🙂="dΘ"}"#),
            (r#"{"\xf0\x9f\x99\x82"="\xce\x98"}"#, r#"{🙂="Θ"}"#),
            (r#"{"a b"!~"c",d="e"}"#, r#"{"a b"!~"c",d="e"}"#),
            ("foo=", r#"{foo=""}"#),
            // Only the older one reads these: one brace, quotes that are escaped, a comma behind
            // the braces.
            ("{a=b", r#"{a="b"}"#),
            ("a=b}", r#"{a="b"}"#),
            ("{a=b},", r#"{a="b}"}"#),
            (r#"a=b\""#, r#"{a="b\""}"#),
            (r#"a=~"[a-z{]\Q.\E""#, r#"{a=~"[a-z{]\\Q.\\E"}"#),
        ] {
            let matchers =
                Matchers(parse_matchers(text).unwrap_or_else(|error| panic!("{text}: {error}")));
            assert_eq!(matchers.to_string(), printed, "{text}");

            assert_eq!(
                parse_matchers(printed).unwrap(),
                matchers.0,
                "what is printed is read back: {printed}"
            );
        }
    }

    #[test]
    fn one_alone_has_no_braces_and_may_have_commas() {
        for (text, printed) in [
            // Here the comma is part of the value, unlike in a list.
            ("a=1,b=2", Some(r#"a="1,b=2""#)),
            (r#""a b"="1""#, Some(r#""a b"="1""#)),
            ("{a=1}", None),
            (r#"a="1","#, Some(r#"a="1""#)),
            ("", None),
            ("a", None),
        ] {
            assert_eq!(
                parse_matcher(text)
                    .ok()
                    .map(|one| print_matcher(&one))
                    .as_deref(),
                printed,
                "{text}"
            );
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "a",
            "=b",
            "a=b,,c=d",
            "a=\"b",
            "1a==\"",
            "a=~(",
            "a~b",
            "a=b\"c",
            "a=\"b\"\"c\"",
            r#"a="b\""#,
            "{\"a\"=b",
            "a=~x**",
            "a=~\"x{1001}\"",
            r"a=~\u0041",
        ] {
            assert!(parse_matchers(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_value_survives_printing(name in "[a-z \"\\\\=]{1,6}", value in "\\PC{0,12}") {
            let matcher = Matcher::new(&name, MatchOp::Equal, &value).unwrap();
            prop_assert_eq!(
                parse_matchers(&print_matcher(&matcher)).unwrap(),
                vec![matcher]
            );
        }
    }
}
