//! `to_char(timestamp, 'YYYY-MM-DD')`, which is `strftime` in DuckDB; `to_timestamp` and `to_date` of a text, which are
//! `strptime`.

use super::Translator;
use crate::token::Kind;

/// Patterns of PostgreSQL and those of `strftime`, longer ones before their beginnings. `None`: without a counterpart.
const PATTERNS: &[(&str, Option<&str>)] = &[
    ("FMMonth", Some("%B")),
    ("FMDay", Some("%A")),
    ("FMHH24", Some("%-H")),
    ("FMHH12", Some("%-I")),
    ("FMHH", Some("%-I")),
    ("FMMM", Some("%-m")),
    ("FMDD", Some("%-d")),
    ("FMMI", Some("%-M")),
    ("FMSS", Some("%-S")),
    ("FM", None),
    ("YYYY", Some("%Y")),
    ("yyyy", Some("%Y")),
    ("IYYY", Some("%G")),
    ("YYY", None),
    ("YY", Some("%y")),
    ("yy", Some("%y")),
    ("IW", Some("%V")),
    ("IDDD", None),
    ("ID", Some("%u")),
    ("HH24", Some("%H")),
    ("hh24", Some("%H")),
    ("HH12", Some("%I")),
    ("HH", Some("%I")),
    ("hh", Some("%I")),
    ("MI", Some("%M")),
    ("mi", Some("%M")),
    ("MM", Some("%m")),
    ("mm", Some("%m")),
    ("MS", Some("%g")),
    ("ms", Some("%g")),
    ("US", Some("%f")),
    ("us", Some("%f")),
    ("Mon", Some("%b")),
    ("Dy", Some("%a")),
    ("SSSS", None),
    ("SS", Some("%S")),
    ("ss", Some("%S")),
    ("DDD", Some("%j")),
    ("DD", Some("%d")),
    ("dd", Some("%d")),
    ("AM", Some("%p")),
    ("PM", Some("%p")),
    ("TZ", Some("UTC")),
];

/// Functions of PostgreSQL with a format, and DuckDB's beginning and end of the same call.
const FUNCTIONS: &[(&str, &str, &str)] = &[
    ("to_char", "strftime(", ")"),
    ("to_timestamp", "strptime(", ")"),
    ("to_date", "strptime(", ")::DATE"),
];

impl Translator<'_, '_> {
    /// Translates `to_char(x, 'format')` and the like if every pattern of the format has a counterpart.
    pub(super) fn time_format(&mut self, at: usize) -> Option<usize> {
        let name = self.tokens[at];
        let (_, begin, end) = FUNCTIONS.iter().find(|(theirs, ..)| name.is(theirs))?;

        let open = self.phrase(at + 1, &["("])?;
        let close = self.closing(open)?;
        // The format is the last argument; the first one may contain texts of its own.
        let format_at = (open..close)
            .rev()
            .find(|&at| self.tokens[at].kind == Kind::Text)?;

        let (comma, _) = self.significant_before(format_at)?;
        let is_last = self.significant(format_at + 1)?.0 == close;
        if !is_last || !self.tokens[comma].is(",") {
            return None;
        }

        let format = strftime(self.tokens[format_at].text)?;
        let argument = self.inner(open..comma);
        self.out
            .push_str(&format!("{begin}{argument}, {format}{end}"));
        Some(close + 1)
    }
}

/// The literal of a format in the patterns of `strftime`; `None` for numbers and patterns without a counterpart.
fn strftime(literal: &str) -> Option<String> {
    let mut rest = literal.strip_prefix('\'')?.strip_suffix('\'')?;
    let mut out = String::from("'");
    while let Some(first) = rest.chars().next() {
        if let Some((pattern, counterpart)) = PATTERNS
            .iter()
            .find(|(pattern, _)| rest.starts_with(pattern))
        {
            out.push_str((*counterpart)?);
            rest = &rest[pattern.len()..];
            continue;
        }

        rest = &rest[first.len_utf8()..];
        match first {
            '"' => {
                let (text, after) = rest.split_once('"')?;
                out.push_str(&text.replace('%', "%%"));
                rest = after;
            }
            '%' => out.push_str("%%"),
            // Letters may be patterns that this table lacks; a wrong date is worse than DuckDB's
            // error.
            c if c.is_alphanumeric() => return None,
            c => out.push(c),
        }
    }

    out.push('\'');
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_of_dates_have_a_counterpart_and_those_of_numbers_do_not() {
        for (theirs, ours) in [
            ("'YYYY-MM-DD HH24:MI:SS'", Some("'%Y-%m-%d %H:%M:%S'")),
            (
                "'FMDD. Mon YY, \"100%\" FMHH12 AM'",
                Some("'%-d. %b %y, 100%% %-I %p'"),
            ),
            ("'IYYY\"-W\"IW'", Some("'%G-W%V'")),
            ("'it''s YYYY'", None),
            ("'Day'", None),
            ("'FM999.00'", None),
            ("'Q'", None),
        ] {
            assert_eq!(strftime(theirs).as_deref(), ours, "{theirs}");
        }
    }
}
