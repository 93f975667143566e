//! Regular expressions as Go's `regexp` reads them, for the crate `regex`.
//!
//! Both are RE2's dialect, with differences that give another answer without a word: in Go `\d`, `\w`, `\s` and `\b` mean
//! ASCII, `\Q…\E` quotes, a class has no sets in it, and a repetition goes to 1000. What Rust has and Go has not is
//! refused, as Prometheus refuses it.

/// Go's greatest repetition.
const MAX_REPEAT: u32 = 1000;

/// The classes that are written `[:name:]`.
const CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// Why Go would not compile an expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GoRegexError {
    /// An escape that only Rust knows.
    #[error("invalid escape sequence: `\\{0}`")]
    Escape(String),
    /// A repetition of more than 1000.
    #[error("invalid repeat count: `{{{0}}}`")]
    Repeat(String),
    /// A repetition of a repetition.
    #[error("invalid nested repetition operator: `{0}`")]
    Nested(String),
    /// A class of characters that neither knows, or that Rust would read as a set.
    #[error("invalid character class range: `{0}`")]
    Class(String),
    /// Flags that only Rust knows.
    #[error("invalid or unsupported Perl syntax: `(?{0}`")]
    Flags(String),
}

/// The same expression in Rust's dialect.
///
/// # Errors
/// What Go does not know.
pub fn translate(pattern: &str) -> Result<String, GoRegexError> {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    // The repetition just read, with what follows it.
    let mut repeated: Option<&str> = None;
    while let Some(c) = rest.chars().next() {
        if let Some(length) = repetition(rest)? {
            let lazy = usize::from(rest[length..].starts_with('?'));
            let after = &rest[length + lazy..];
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
                let (quoted, after) = rest[1..].split_once("\\E").unwrap_or((&rest[1..], ""));
                out.push_str(&regex::escape(quoted));
                rest = after;
            }
            '\\' => rest = escape(rest, false, &mut out)?,
            '[' => rest = class(rest, &mut out)?,
            // No repetition, so it means itself.
            '{' | '}' => out.extend(['\\', c]),
            '(' if rest.starts_with('?') => {
                check_flags(&rest[1..])?;
                out.push(c);
            }
            // These mean themselves to both; in Rust's verbose mode, which Go has not, they would not.
            c => out.push(c),
        }
    }
    Ok(out)
}

/// Writes `template` with the groups of a match, as Go's `Expand` does: `$1`, `${1}`, `$name`, `$$`. What is neither stays as it is;
/// a group that is not there, or is written with a leading zero, is empty.
pub fn expand(groups: &regex::Captures<'_>, template: &str) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        rest = after;
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = reference(after) {
            let is_number = name.bytes().all(|byte| byte.is_ascii_digit())
                && (name == "0" || !name.starts_with('0'));
            let group = match is_number {
                true => name
                    .parse()
                    .ok()
                    .and_then(|number: usize| groups.get(number)),
                false => groups.name(name),
            };
            out.push_str(group.map_or("", |group| group.as_str()));
            rest = after;
        } else {
            out.push('$');
        }
    }
    out + rest
}

/// The name of a group, with or without braces, and what follows it.
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

/// What follows a backslash; what is left of the pattern.
fn escape<'p>(rest: &'p str, in_class: bool, out: &mut String) -> Result<&'p str, GoRegexError> {
    let Some(c) = rest.chars().next() else {
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
        // Rust has ASCII's for bytes only, where it could split a character; this one differs beside letters beyond it.
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
        // Octal, which Rust does not read: \0 to \377.
        '0'..='7' => {
            let digits = rest.len().min(3).min(
                rest.find(|c: char| !('0'..='7').contains(&c))
                    .unwrap_or(rest.len()),
            );
            // One digit but 0 would be a reference to a group.
            if digits == 1 && c != '0' {
                return Err(GoRegexError::Escape(c.to_string()));
            }
            let value = u32::from_str_radix(&rest[..digits], 8).unwrap_or(0);
            out.push_str(&format!("\\x{{{value:x}}}"));
            return Ok(&rest[digits..]);
        }
        c if c.is_ascii_alphanumeric() => return Err(GoRegexError::Escape(c.to_string())),
        // Any other character means itself.
        c => {
            out.push_str(&regex::escape(&c.to_string()));
            return Ok(after);
        }
    }
    out.push('\\');
    out.push(c);
    // A name or a number in braces belongs to it.
    let braced = matches!(c, 'p' | 'P' | 'x') && after.starts_with('{');
    let end = after.find('}').filter(|_| braced).map_or(0, |at| at + 1);
    out.push_str(&after[..end]);
    Ok(&after[end..])
}

/// A class, after its `[`: what is a set in Rust is a character in Go.
fn class<'p>(mut rest: &'p str, out: &mut String) -> Result<&'p str, GoRegexError> {
    out.push('[');
    if let Some(after) = rest.strip_prefix('^') {
        out.push('^');
        rest = after;
    }
    let mut first = true;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        match c {
            ']' if !first => {
                out.push(']');
                return Ok(after);
            }
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
            // `--` would be a difference.
            '-' if after.starts_with('-') => out.push_str("\\-"),
            c => out.push(c),
        }
        first = false;
        rest = after;
    }
    Ok(rest)
}

/// How long the repetition is that this begins with, if it does. `{n,m}` goes to 1000 in Go.
fn repetition(rest: &str) -> Result<Option<usize>, GoRegexError> {
    if rest.starts_with(['*', '+', '?']) {
        return Ok(Some(1));
    }
    let Some((inside, _)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
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
    match counts
        .map(str::parse::<u32>)
        .all(|count| count.is_ok_and(|count| count <= MAX_REPEAT))
    {
        true => Ok(Some(inside.len() + 2)),
        false => Err(GoRegexError::Repeat(inside.to_owned())),
    }
}

/// After `(?`: Go knows groups with and without names, and the flags i, m, s and U.
fn check_flags(rest: &str) -> Result<(), GoRegexError> {
    if rest.starts_with("P<")
        || (rest.starts_with('<') && !rest.starts_with("<=") && !rest.starts_with("<!"))
    {
        return Ok(());
    }
    let end = rest.find([':', ')']).unwrap_or(rest.len());
    match rest[..end].chars().all(|c| "imsU-".contains(c)) {
        true => Ok(()),
        false => Err(GoRegexError::Flags(rest[..end].to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use regex::Regex;

    fn matches(pattern: &str, text: &str) -> bool {
        Regex::new(&format!("^(?s:{})$", translate(pattern).unwrap()))
            .unwrap()
            .is_match(text)
    }

    #[test]
    fn templates_are_gos() {
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
    fn what_is_special_to_one_of_them_only() {
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
    fn what_go_does_not_know_is_refused() {
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
        fn any_text_is_translated(pattern in "[a-z\\[\\]\\\\(){}?*+|&~^$.:<>=!0-9QEdwsbB-]*|\\PC*") {
            // Whatever comes out is an expression, or the crate says what is wrong.
            let _ = translate(&pattern).map(|text| Regex::new(&text));
        }
    }
}
