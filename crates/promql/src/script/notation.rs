//! Series as scripts write them: `metric{label="value"} 1 2+3x2 _ stale`.

use crate::syntax::{text_length, unquote};
use takt_model::{Labels, METRIC_NAME};

/// Value of a series at one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Slot {
    Missing,
    Stale,
    Value(f64),
    /// A native histogram; its content is not read.
    Histogram,
}

/// A series and its slots.
pub(super) fn series(line: &str) -> Result<(Labels, Vec<Slot>), String> {
    let (labels, rest) = metric(line)?;
    Ok((labels, slots(rest)?))
}

/// The labels at the start of a line, and what follows them.
fn metric(line: &str) -> Result<(Labels, &str), String> {
    let mut labels = Labels::new();
    let end = line
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':')
        .unwrap_or(line.len());
    labels.set(METRIC_NAME, &line[..end]);
    let rest = line[end..].trim_start();
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
    Ok((unquote(&text[..length]), &text[length..]))
}

/// The slots of a line: items apart by blanks, a native histogram in double braces being one. A `#` ends them.
fn slots(text: &str) -> Result<Vec<Slot>, String> {
    let mut slots = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() && !rest.starts_with('#') {
        let mut braces = 0;
        let end = rest.find(|c: char| {
            braces += match c {
                '{' => 1,
                '}' => -1,
                _ => 0,
            };
            braces == 0 && c.is_whitespace()
        });
        let (item, after) = rest.split_at(end.unwrap_or(rest.len()));
        expand(item, &mut slots).ok_or_else(|| format!("malformed value {item:?}"))?;
        rest = after.trim_start();
    }
    Ok(slots)
}

/// `a+bxn`, `a-bxn`, `axn`, `_xn`, or one slot.
fn expand(item: &str, slots: &mut Vec<Slot>) -> Option<()> {
    /// More than any script needs, less than hurts.
    const MOST: usize = 1_000_000;
    let times = |text: &str| text.parse().ok().filter(|times| *times <= MOST);
    if item.starts_with("{{") || item.starts_with("-{{") || item.starts_with("+{{") {
        let tail = item.rfind("}}")?;
        let repeats = item[tail + 2..]
            .strip_prefix('x')
            .and_then(times)
            .unwrap_or(0);
        slots.extend(vec![Slot::Histogram; repeats + 1]);
        return Some(());
    }
    for (word, slot, extra) in [("stale", Slot::Stale, 1), ("_", Slot::Missing, 0)] {
        if let Some(rest) = item.strip_prefix(word) {
            let count = match rest.strip_prefix('x') {
                Some(rest) => times(rest)? + extra,
                None if rest.is_empty() => 1,
                None => return None,
            };
            slots.extend(vec![slot; count]);
            return Some(());
        }
    }
    let (mut value, mut rest) = number(item)?;
    let mut step = 0.0;
    if rest.starts_with(['+', '-']) {
        (step, rest) = number(rest)?;
    }
    let repeats = match rest.strip_prefix('x') {
        Some(rest) => times(rest)?,
        None if rest.is_empty() && step == 0.0 => 0,
        None => return None,
    };
    for _ in 0..=repeats {
        slots.push(Slot::Value(value));
        value += step;
    }
    Some(())
}

/// A number at the start, and what follows it. `x` always means times: hexadecimal numbers do not occur.
fn number(text: &str) -> Option<(f64, &str)> {
    let unsigned = text.trim_start_matches(['+', '-']);
    let sign = text.len() - unsigned.len();
    let bytes = unsigned.as_bytes();
    let words = ["infinity", "inf", "nan"];
    let word = words.iter().find(|word| {
        unsigned
            .get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word))
    });
    let length = match word {
        Some(word) => word.len(),
        None => {
            let belongs = |at: usize| match bytes[at] {
                b'.' => true,
                // Between two digits it separates them.
                b'_' => {
                    at > 0
                        && bytes[at - 1].is_ascii_digit()
                        && bytes.get(at + 1).is_some_and(u8::is_ascii_digit)
                }
                digit => digit.is_ascii_digit(),
            };
            let digits = |from: usize| (from..bytes.len()).take_while(|at| belongs(*at)).count();
            let mut end = digits(0);
            if matches!(bytes.get(end), Some(b'e' | b'E')) {
                let signed = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
                if bytes.get(end + 1 + signed).is_some_and(u8::is_ascii_digit) {
                    end += 1 + signed + digits(end + 1 + signed);
                }
            }
            end
        }
    };
    let (number, rest) = text.split_at(sign + length);
    Some((number.replace('_', "").parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_scripts_write() {
        let (labels, slots) =
            series(r#"a:b{c="d e", f='{'} 1_000 -2+4x2 _ _x2 stale 3x1 1e1-1x1 NaN -Inf"#).unwrap();
        assert_eq!(labels.to_string(), r#"a:b{c="d e", f="{"}"#);
        let shown: Vec<String> = slots
            .iter()
            .map(|slot| match slot {
                Slot::Value(value) => value.to_string(),
                other => format!("{other:?}"),
            })
            .collect();
        let wanted = "1000 -2 2 6 Missing Missing Missing Stale 3 3 10 9 NaN -inf";
        assert_eq!(shown.join(" "), wanted);
    }

    #[test]
    fn reads_quoted_names_and_passes_over_native_histograms() {
        let (labels, slots) =
            series(r#"{"my.metric", a="b"} {{schema:1 sum:3}} {{}}+{{sum:1}}x2"#).unwrap();
        assert_eq!(labels.get(METRIC_NAME), Some("my.metric"));
        assert_eq!(slots, vec![Slot::Histogram; 4]);
        assert!(series("{} 5").unwrap().0.is_empty());
        assert!(series("5").is_ok_and(|(labels, _)| labels.metric() == "5"));
        for wrong in [
            "a{b=c} 1",
            "a{b='\\é'} 1",
            "a 1+2",
            "a 1y",
            "a{b=\"c\" 1",
            "{{}} 1",
        ] {
            assert!(series(wrong).is_err(), "{wrong}");
        }
    }
}
