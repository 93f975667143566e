//! Translates regular expressions of Go's `regexp` for the crate `regex`.
//!
//! Both implement RE2's syntax, but some expressions match differently without an error. In Go,
//! `\d`, `\w`, `\s` and `\b` are ASCII, `\Q…\E` quotes, a class contains no set operators, and
//! repetitions go up to 1000. Syntax that only Rust has is rejected, as in Prometheus.

/// Go's maximum repetition count.
const MAX_REPEAT: u32 = 1000;

/// Classes written as `[:name:]`.
const CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// Reason why Go would reject an expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GoRegexError {
    /// An escape sequence that Go does not have.
    #[error("invalid escape sequence: `\\{0}`")]
    Escape(String),
    /// A repetition count above 1000.
    #[error("invalid repeat count: `{{{0}}}`")]
    Repeat(String),
    /// A repetition of a repetition.
    #[error("invalid nested repetition operator: `{0}`")]
    Nested(String),
    /// A character class that is invalid, or that Rust would parse as a set operation.
    #[error("invalid character class range: `{0}`")]
    Class(String),
    /// Flags that Go does not have.
    #[error("invalid or unsupported Perl syntax: `(?{0}`")]
    Flags(String),
}

/// Translates an expression into Rust's syntax.
///
/// # Errors
/// If Go would reject the expression.
pub fn translate(pattern: &str) -> Result<String, GoRegexError> {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    // The last repetition, with the rest of the pattern.
    let mut repeated: Option<&str> = None;

    while let Some(c) = rest.chars().next() {
        if let Some(length) = repetition(rest)? {
            let lazy = usize::from(rest[length..].starts_with('?'));
            let after = &rest[length + lazy..];
            // Rust accepts `a**`; Go refuses a repetition of a repetition.
            if let Some(first) = repeated {
                return Err(GoRegexError::Nested(
                    first[..first.len() - after.len()].to_owned(),
                ));
            }
            repeated = Some(rest);
            out.push_str(&rest[..length + lazy]);
            rest = after;
            continue;
        }

        repeated = None;
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' if rest.starts_with('Q') => {
                // Without `\E`, the quotation extends to the end, as in Go.
                let (quoted, after) = rest[1..].split_once("\\E").unwrap_or((&rest[1..], ""));
                out.push_str(&regex::escape(quoted));
                rest = after;
            }
            '\\' => rest = escape(rest, false, &mut out)?,
            '[' => rest = class(rest, &mut out)?,
            // Not a repetition, so a literal.
            '{' | '}' => out.extend(['\\', c]),
            '(' if rest.starts_with('?') => {
                check_flags(&rest[1..])?;
                out.push(c);
            }
            // Literals in both. In Rust's verbose mode, which Go lacks, they would not be.
            c => out.push(c),
        }
    }

    Ok(out)
}

/// Expands `template` with the groups of a match, like Go's `Expand`: `$1`, `${1}`, `$name`, `$$`.
/// Other text is copied. Unknown groups, and numbers with a leading zero, expand to the empty
/// string.
pub fn expand(groups: &regex::Captures<'_>, template: &str) -> String {
    expand_within(groups, template, usize::MAX).unwrap_or_default()
}

/// As [`expand`], or `None` if the result would have more than `max_bytes` bytes: a template of a few
/// kilobytes can repeat a group of some megabytes.
pub fn expand_within(
    groups: &regex::Captures<'_>,
    template: &str,
    max_bytes: usize,
) -> Option<String> {
    let mut out = String::new();

    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        // Checked in each turn, before the text grows by one more group.
        if out.len() > max_bytes {
            return None;
        }
        out.push_str(before);
        rest = after;

        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = reference(after) {
            // Go takes `$01` for the name of a group, which no group has.
            let is_number = name.bytes().all(|byte| byte.is_ascii_digit())
                && (name == "0" || !name.starts_with('0'));
            let group = if is_number {
                name.parse()
                    .ok()
                    .and_then(|number: usize| groups.get(number))
            } else {
                groups.name(name)
            };
            let group = group.map_or("", |group| group.as_str());
            if group.len() > max_bytes {
                return None;
            }
            out.push_str(group);
            rest = after;
        } else {
            out.push('$');
        }
    }

    out.push_str(rest);
    (out.len() <= max_bytes).then_some(out)
}

/// Parses a group reference, with or without braces. Returns its name and the rest of the text.
fn reference(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('{');
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let begin = inner.unwrap_or(text);
    let (name, after) = begin.split_at(begin.find(|c| !is_name(c)).unwrap_or(begin.len()));
    let after = if inner.is_some() {
        after.strip_prefix('}')?
    } else {
        after
    };
    (!name.is_empty()).then_some((name, after))
}

/// Translates an escape sequence. Returns the rest of the pattern.
fn escape<'p>(rest: &'p str, in_class: bool, out: &mut String) -> Result<&'p str, GoRegexError> {
    let Some(c) = rest.chars().next() else {
        // A lone backslash at the end stays one, which the crate `regex` reports.
        out.push('\\');
        return Ok(rest);
    };

    let after = &rest[c.len_utf8()..];
    let ascii = match (c, in_class) {
        ('d', false) => "[0-9]",
        ('w', false) => "[0-9A-Za-z_]",
        ('s', false) => "[\\t\\n\\x0c\\r ]",
        ('d', true) => "0-9",
        ('w', true) => "0-9A-Za-z_",
        ('s', true) => "\\t\\n\\x0c\\r ",
        ('D', _) => "[^0-9]",
        ('W', _) => "[^0-9A-Za-z_]",
        ('S', _) => "[^\\t\\n\\x0c\\r ]",
        ('b', false) => "(?-u:\\b)",
        _ => "",
    };

    if c == 'B' && !in_class {
        // Rust has an ASCII `\B` for bytes only, which could split a character. This one differs
        // next to non-ASCII letters.
        out.push_str("\\B");
        return Ok(after);
    }

    if !ascii.is_empty() {
        out.push_str(ascii);
        return Ok(after);
    }

    match c {
        'a' | 'f' | 'n' | 'r' | 't' | 'v' | 'x' | 'p' | 'P' => {}
        'A' | 'z' if !in_class => {}
        // Octal from \0 to \377, which Rust does not support.
        '0'..='7' => {
            let digits = rest.len().min(3).min(
                rest.find(|c: char| !('0'..='7').contains(&c))
                    .unwrap_or(rest.len()),
            );
            // A single digit other than 0 would be a back-reference.
            if digits == 1 && c != '0' {
                return Err(GoRegexError::Escape(c.to_string()));
            }
            let value = u32::from_str_radix(&rest[..digits], 8).unwrap_or(0);
            out.push_str(&format!("\\x{{{value:x}}}"));
            return Ok(&rest[digits..]);
        }
        c if c.is_ascii_alphanumeric() => return Err(GoRegexError::Escape(c.to_string())),
        // Other characters are literals.
        c => {
            out.push_str(&regex::escape(&c.to_string()));
            return Ok(after);
        }
    }

    out.push('\\');
    out.push(c);

    // Followed by a name or number in braces.
    let braced = matches!(c, 'p' | 'P' | 'x') && after.starts_with('{');
    let end = after.find('}').filter(|_| braced).map_or(0, |at| at + 1);
    out.push_str(&after[..end]);
    Ok(&after[end..])
}

/// Translates a character class after its `[`: set operators of Rust are literals in Go.
fn class<'p>(mut rest: &'p str, out: &mut String) -> Result<&'p str, GoRegexError> {
    out.push('[');
    if let Some(after) = rest.strip_prefix('^') {
        out.push('^');
        rest = after;
    }

    // A `]` directly after the bracket is a literal.
    let mut first = true;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        match c {
            ']' if !first => {
                out.push(']');
                return Ok(after);
            }
            // Rust takes an unknown `[:name:]` for a nested class; Go reports it.
            '[' if after.starts_with(':') && after.contains(":]") => {
                let end = after.find(":]").map_or(after.len(), |at| at + 2);
                let name = after[1..end].trim_end_matches(":]");
                if !CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)) {
                    return Err(GoRegexError::Class(format!("[{}", &after[..end])));
                }
                out.push('[');
                out.push_str(&after[..end]);
                rest = &after[end..];
                first = false;
                continue;
            }
            '\\' => {
                rest = escape(after, true, out)?;
                first = false;
                continue;
            }
            '[' | ']' | '&' | '~' => {
                out.push('\\');
                out.push(c);
            }
            // `--` would be a set difference.
            '-' if after.starts_with('-') => out.push_str("\\-"),
            c => out.push(c),
        }

        first = false;
        rest = after;
    }
    Ok(rest)
}

/// Returns the length of the repetition at the start, if present. Go allows `{n,m}` up to 1000.
fn repetition(rest: &str) -> Result<Option<usize>, GoRegexError> {
    if rest.starts_with(['*', '+', '?']) {
        return Ok(Some(1));
    }

    let Some((inside, _)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
        // In Go, a brace that begins no valid count is a literal.
        return Ok(None);
    };

    let is_count = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let (least, most) = inside
        .split_once(',')
        .map_or((inside, None), |(least, most)| (least, Some(most)));
    if !is_count(least) || most.is_some_and(|most| !most.is_empty() && !is_count(most)) {
        return Ok(None);
    }

    let counts = [Some(least), most]
        .into_iter()
        .flatten()
        .filter(|text| !text.is_empty());
    if counts
        .map(str::parse::<u32>)
        .all(|count| count.is_ok_and(|count| count <= MAX_REPEAT))
    {
        Ok(Some(inside.len() + 2))
    } else {
        Err(GoRegexError::Repeat(inside.to_owned()))
    }
}

/// Checks the text after `(?`: Go has named and unnamed groups, and the flags i, m, s and U.
fn check_flags(rest: &str) -> Result<(), GoRegexError> {
    // `(?<=` and `(?<!` are look-behinds, which neither dialect has.
    if rest.starts_with("P<")
        || (rest.starts_with('<') && !rest.starts_with("<=") && !rest.starts_with("<!"))
    {
        return Ok(());
    }
    let end = rest.find([':', ')']).unwrap_or(rest.len());
    if rest[..end].chars().all(|c| "imsU-".contains(c)) {
        Ok(())
    } else {
        Err(GoRegexError::Flags(rest[..end].to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use regex::Regex;

    fn matches(pattern: &str, text: &str) -> bool {
        // Anchored and with `s`, as matchers use the translation.
        Regex::new(&format!("^(?s:{})$", translate(pattern).unwrap()))
            .unwrap()
            .is_match(text)
    }

    #[test]
    fn templates_expand_as_in_go() {
        let regex = Regex::new("(?P<a>x)(y)?(z)").unwrap();
        let groups = regex.captures("xz").unwrap();
        for (template, expected) in [
            ("$1-$3", "x-z"),
            ("${1}b$2$4.", "xb."),
            ("$1b", ""),
            ("$a ${a}", "x x"),
            ("$$1 $$$1 $", "$1 $x $"),
            ("$-${}${1${a-}", "$-${}${1${a-}"),
            ("$01$00$0", "xz"),
            ("$99999999999999999999", ""),
            ("$ä${ä}ä", "ä"),
        ] {
            assert_eq!(expand(&groups, template), expected, "{template}");
        }
    }

    #[test]
    fn classes_are_ascii() {
        for (pattern, text, is_match) in [
            (r"\d", "7", true),
            (r"\d", "٣", false),
            (r"\w+", "naïve", false),
            (r"[\w]+", "n_1", true),
            (r"\D", "٣", true),
            (r"[\D]", "٣", true),
            (r"\s", "\u{a0}", false),
            (r"\s", "\u{b}", false),
            (r"[[:alpha:]]+", "abc", true),
            (r"a\b.*", "aé", true),
        ] {
            assert_eq!(matches(pattern, text), is_match, "{pattern} {text}");
        }
    }

    #[test]
    fn syntax_of_only_one_dialect_is_translated() {
        for (pattern, text, is_match) in [
            (r"\Qa.b[\E.", "a.b[x", true),
            (r"\Qa.b", "axb", false),
            ("[a[b]", "[", true),
            ("[a&&b]+", "a&b", true),
            ("[a~~b]+", "~", true),
            ("[]a]", "]", true),
            ("[^]a]", "b", true),
            ("[+--]", "-", true),
            (r"\/\:\ ", "/: ", true),
            (r"\101", "A", true),
            (r"\x{41}\x41", "AA", true),
            (r"\pL+", "é", true),
            (r"\p{Greek}{2}", "αβ", true),
            (r".\b{start}", "a{start}", true),
            ("(?i:ab)", "AB", true),
            ("(?P<n>a)(?<m>b)", "ab", true),
            ("a{1,2}", "aa", true),
            ("a{x}{", "a{x}{", true),
            ("a{,2}", "a{,2}", true),
            ("(?:a*)*?b", "aab", true),
        ] {
            assert_eq!(matches(pattern, text), is_match, "{pattern} {text}");
        }
    }

    #[test]
    fn syntax_unknown_to_go_is_rejected() {
        for (pattern, said) in [
            (r"\<a", None),
            (r"\G", Some("invalid escape sequence: `\\G`")),
            (r"\1", Some("invalid escape sequence: `\\1`")),
            (r"\u0041", Some("invalid escape sequence: `\\u`")),
            ("a{1001}", Some("invalid repeat count: `{1001}`")),
            ("a{1,2000}", Some("invalid repeat count: `{1,2000}`")),
            ("a**", Some("invalid nested repetition operator: `**`")),
            (
                "a{2}+?b",
                Some("invalid nested repetition operator: `{2}+?`"),
            ),
            ("a*?*", Some("invalid nested repetition operator: `*?*`")),
            (
                "[[:foo:]]",
                Some("invalid character class range: `[:foo:]`"),
            ),
            ("(?x)a", Some("invalid or unsupported Perl syntax: `(?x`")),
            ("(?=a)", Some("invalid or unsupported Perl syntax: `(?=a`")),
            (
                "(?<=a)",
                Some("invalid or unsupported Perl syntax: `(?<=a`"),
            ),
        ] {
            assert_eq!(
                translate(pattern)
                    .err()
                    .map(|error| error.to_string())
                    .as_deref(),
                said,
                "{pattern}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_translated(
            pattern in "[a-z\\[\\]\\\\(){}?*+|&~^$.:<>=!0-9QEdwsbB-]*|\\PC*",
        ) {
            // The result is a valid expression, or the crate `regex` reports an error.
            let _ = translate(&pattern).map(|text| Regex::new(&text));
        }
    }
}
