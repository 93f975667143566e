//! Series as scripts write them: `metric{label="value"} 1 2+3x2 _ stale`.

use crate::syntax::{text_length, unquote};
use takt_model::notation::{NotedValue, values};
use takt_model::{Labels, METRIC_NAME};

/// A series and its values.
pub(super) fn series(line: &str) -> Result<(Labels, Vec<NotedValue>), String> {
    let (labels, rest) = metric(line)?;
    let values = values(rest).map_err(|error| error.to_string())?;
    Ok((labels, values))
}

/// The labels at the start of a line, and what follows them.
fn metric(line: &str) -> Result<(Labels, &str), String> {
    let mut labels = Labels::new();
    let end = line
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':')
        .unwrap_or(line.len());
    labels.set(METRIC_NAME, &line[..end]);
    let rest = line[end..].trim_start();
    // Two braces begin a histogram, the first value, not labels.
    let Some(mut rest) = rest.strip_prefix('{').filter(|_| !rest.starts_with("{{")) else {
        return if end == 0 {
            Err(format!("expected a series, got {line:?}"))
        } else {
            Ok((labels, rest))
        };
    };
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        let name;
        (name, rest) = if rest.starts_with(['"', '\'', '`']) {
            quoted(rest)?
        } else {
            let end = rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            (rest[..end].to_owned(), &rest[end..])
        };
        rest = rest.trim_start();
        match rest.strip_prefix('=') {
            Some(value) => {
                let value = quoted(value.trim_start())?;
                labels.set(&name, &value.0);
                rest = value.1;
            }
            // A quoted text alone is the metric's name.
            None if !name.is_empty() => labels.set(METRIC_NAME, &name),
            None => return Err(format!("malformed labels in {line:?}")),
        }
    }
}

/// A quoted text at the start, and what follows it.
pub(super) fn quoted(text: &str) -> Result<(String, &str), String> {
    let malformed = || format!("expected a quoted text, got {text:?}");
    let quote = text
        .chars()
        .next()
        .filter(|c| matches!(c, '"' | '\'' | '`'))
        .ok_or_else(malformed)?;
    let length = text_length(text, quote).map_err(|_| malformed())?;
    Ok((unquote(&text[..length]).text, &text[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_with_and_without_quotes() {
        let (labels, values) = series(r#"a:b{c="d e", f='{'} 1 {{sum:3}}"#).unwrap();
        assert_eq!(labels.to_string(), r#"a:b{c="d e", f="{"}"#);
        assert_eq!(values.len(), 2);
        let (labels, _) = series(r#"{"my.metric", a="b"} 1"#).unwrap();
        assert_eq!(labels.get(METRIC_NAME), Some("my.metric"));
        assert!(series("{} 5").unwrap().0.is_empty());
        assert!(series("5").is_ok_and(|(labels, _)| labels.metric() == "5"));

        // A value without quotes, an unknown escape, a ramp without a count, no end, a histogram
        // without a series.
        for wrong in ["a{b=c} 1", "a{b='\\é'} 1", "a 1+2", "a{b=\"c\" 1", "{{}} 1"] {
            assert!(series(wrong).is_err(), "{wrong}");
        }
    }
}
