//! Values of a series as Prometheus' test scripts and promtool's tests of rules write them: `1+2x3 _ stale {{sum:3 count:2}}`.

use crate::native::{HistogramError, NativeHistogram, ResetHint};
use std::iter;
use std::sync::Arc;

/// Most values that one series may have.
const VALUES_MAX: usize = 1_000_000;

/// The value at one step.
#[derive(Debug, Clone, PartialEq)]
pub enum NotedValue {
    /// No sample.
    Missing,
    /// The series ends.
    Stale,
    /// A float.
    Float(f64),
    /// A native histogram.
    Histogram(NotedHistogram),
}

/// A native histogram as it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct NotedHistogram {
    /// The histogram, without empty buckets. Its counts need not add up.
    pub histogram: Arc<NativeHistogram>,
    /// Whether the text has a `counter_reset_hint`.
    pub has_hint: bool,
}

impl NotedHistogram {
    /// The histogram as a database stores it: the database finds out for itself where a counter began again.
    ///
    /// # Errors
    /// If no database stores it: a count is negative, for instance.
    pub fn stored(&self) -> Result<NativeHistogram, HistogramError> {
        let mut histogram = NativeHistogram::clone(&self.histogram);
        if histogram.hint == ResetHint::Reset {
            histogram.hint = ResetHint::Unknown;
        }
        match histogram.validate(false) {
            // Test scripts often leave out the count or some buckets.
            Ok(()) | Err(HistogramError::Total) => Ok(histogram),
            Err(HistogramError::Count) if histogram.count.is_nan() => Ok(histogram),
            Err(error) => Err(error),
        }
    }
}

/// The text is not a list of values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotationError {
    /// A word is malformed.
    #[error("`{0}` is not a value such as `1`, `1+2x3`, `_x4`, `stale` or `{{{{sum:1 count:2}}}}`")]
    Value(String),
    /// A part of a histogram is malformed.
    #[error("`{0}` is not a part of a native histogram such as `schema:1` or `buckets:[1 2]`")]
    Part(String),
    /// A part of a histogram comes twice.
    #[error("a native histogram has `{0}` twice")]
    Twice(String),
    /// A histogram is added to one of a finer schema, or one with custom buckets to another one.
    #[error(
        "a native histogram cannot be added to one with a finer schema or without its custom buckets"
    )]
    Finer,
    /// There are too many values.
    #[error("more than {VALUES_MAX} values")]
    TooMany,
}

/// Reads values with blanks between them: `a`, `axn` (a, then n times a again), `a+bxn` (a, then n steps of b), `_`, `_xn` (n steps
/// without a sample), `stale`.
///
/// # Errors
/// With the first word that cannot be read.
pub fn values(text: &str) -> Result<Vec<NotedValue>, NotationError> {
    let mut values = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (word, after) = rest.split_at(end_of_word(rest));
        expand(word, &mut values)?;
        rest = after.trim_start();
    }
    Ok(values)
}

/// A word ends at a blank outside of braces.
fn end_of_word(text: &str) -> usize {
    let mut depth = 0;
    let end = text.find(|c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        depth == 0 && c.is_whitespace()
    });
    end.unwrap_or(text.len())
}

fn expand(word: &str, out: &mut Vec<NotedValue>) -> Result<(), NotationError> {
    let malformed = || NotationError::Value(word.to_owned());
    let more = |text: &str| {
        text.parse::<usize>()
            .ok()
            // Rust parses `+1` as a count; Prometheus' grammar does not.
            .filter(|_| !text.starts_with('+'))
    };
    let mut push = |count: usize, values: &mut dyn Iterator<Item = NotedValue>| {
        // Checked before the values are made: `1x9999999999` in a rules test would fill the memory.
        if count > VALUES_MAX - out.len().min(VALUES_MAX) {
            return Err(NotationError::TooMany);
        }
        out.extend(values.take(count));
        Ok(())
    };

    if word == "stale" {
        return push(1, &mut iter::once(NotedValue::Stale));
    }
    if let Some(times) = word.strip_prefix('_') {
        let count = match times.strip_prefix('x') {
            Some(count) => more(count).ok_or_else(malformed)?,
            None if times.is_empty() => 1,
            None => return Err(malformed()),
        };
        return push(count, &mut iter::repeat(NotedValue::Missing));
    }
    if word.starts_with("{{") {
        return expand_histograms(word, &mut push);
    }

    let (first, rest) = signed_number(word).ok_or_else(malformed)?;
    // Zero would take its sign from -0.
    let (step, rest, is_stepped) = match rest.starts_with(['+', '-']) {
        true => {
            let (step, rest) = signed_number(rest).ok_or_else(malformed)?;
            (step, rest, true)
        }
        false => (-0.0, rest, false),
    };
    let times = match rest.strip_prefix('x') {
        Some(times) => more(times).ok_or_else(malformed)?,
        None if rest.is_empty() && !is_stepped => 0,
        None => return Err(malformed()),
    };
    // Added up step by step, as in Prometheus: the last bits of `0+0.1x8` are those of a sum.
    let mut floats = iter::successors(Some(first), |value| Some(value + step));
    push(
        times.saturating_add(1),
        &mut floats.by_ref().map(NotedValue::Float),
    )
}

/// Takes the first values of an iterator, as many as the number says.
type Push<'p> =
    dyn FnMut(usize, &mut dyn Iterator<Item = NotedValue>) -> Result<(), NotationError> + 'p;

/// `{{…}}`, `{{…}}xn`, `{{…}}+{{…}}xn` and the same with a minus.
fn expand_histograms(word: &str, push: &mut Push<'_>) -> Result<(), NotationError> {
    let malformed = || NotationError::Value(word.to_owned());
    let (first, rest) = braced(word).ok_or_else(malformed)?;
    let first = histogram(first)?;
    let (step, rest) = match rest.strip_prefix(['+', '-']) {
        Some(after) => {
            let (step, after) = braced(after).ok_or_else(malformed)?;
            let sign = if rest.starts_with('-') { -1.0 } else { 1.0 };
            (Some((histogram(step)?, sign)), after)
        }
        None => (None, rest),
    };
    let times = match rest.strip_prefix('x') {
        Some(times) if !times.starts_with('+') => times.parse().map_err(|_| malformed())?,
        None if rest.is_empty() && step.is_none() => 0,
        _ => return Err(malformed()),
    };
    let count = usize::saturating_add(times, 1);

    let Some((step, sign)) = step else {
        return push(count, &mut iter::repeat(NotedValue::Histogram(first)));
    };

    let is_finer = step.histogram.schema < first.histogram.schema;
    if is_finer || !step.histogram.has_kind_of(&first.histogram) {
        return Err(NotationError::Finer);
    }
    let has_hint = first.has_hint || step.has_hint;
    let mut all = iter::successors(Some(first), |last| {
        let mut next = NativeHistogram::clone(&last.histogram);
        if sign > 0.0 {
            next.add(&step.histogram);
        } else {
            next.subtract(&step.histogram);
        }
        next.compact();
        Some(NotedHistogram {
            histogram: Arc::new(next),
            has_hint,
        })
    });
    push(count, &mut all.by_ref().map(NotedValue::Histogram))
}

/// What is between double braces at the start, and what follows them.
fn braced(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix("{{")?.split_once("}}")
}

fn histogram(inner: &str) -> Result<NotedHistogram, NotationError> {
    let mut histogram = NativeHistogram::default();
    let mut hint = None;
    let mut seen = Vec::new();
    let mut offsets = [0; 2];
    let mut buckets = [Vec::new(), Vec::new()];

    let mut rest = if inner.trim().is_empty() { "" } else { inner };
    while !rest.is_empty() {
        // A list in brackets may contain blanks; elsewhere a blank ends the part.
        let end = match (rest.find('['), rest.find(char::is_whitespace)) {
            (Some(open), blank) if blank.is_none_or(|blank| open < blank) => {
                rest.find(']').map_or(rest.len(), |close| close + 1)
            }
            (_, blank) => blank.unwrap_or(rest.len()),
        };
        let (part, after) = rest.split_at(end);
        let malformed = || NotationError::Part(part.to_owned());
        if !after.is_empty() && !after.starts_with(char::is_whitespace) {
            return Err(malformed());
        }
        rest = after.trim_start();

        let (key, value) = part.split_once(':').ok_or_else(malformed)?;
        let key = key.to_ascii_lowercase();
        let float = || plain_number(value).ok_or_else(malformed);
        let integer = || {
            value
                .parse::<i32>()
                .ok()
                .filter(|_| !value.starts_with('+'))
        };
        match key.as_str() {
            "schema" => histogram.schema = integer().ok_or_else(malformed)?,
            "sum" => histogram.sum = float()?,
            "count" => histogram.count = float()?,
            "z_bucket" => histogram.zero_count = float()?,
            "z_bucket_w" => histogram.zero_threshold = float()?,
            "offset" => offsets[0] = integer().ok_or_else(malformed)?,
            "n_offset" => offsets[1] = integer().ok_or_else(malformed)?,
            "buckets" => buckets[0] = numbers(value).ok_or_else(malformed)?,
            "n_buckets" => buckets[1] = numbers(value).ok_or_else(malformed)?,
            "custom_values" => {
                histogram.custom_values = numbers(value).ok_or_else(malformed)?.into();
            }
            "counter_reset_hint" => {
                hint = Some(match value {
                    "gauge" => ResetHint::Gauge,
                    "reset" => ResetHint::Reset,
                    "unknown" | "not_reset" => ResetHint::Unknown,
                    _ => return Err(malformed()),
                });
            }
            _ => return Err(malformed()),
        }
        // Keys are compared in lower case, as they are read.
        if seen.contains(&key) {
            return Err(NotationError::Twice(key));
        }
        seen.push(key);
    }

    let [positive, negative] = buckets;
    histogram.positive = indexed(offsets[0], positive);
    histogram.negative = indexed(offsets[1], negative);
    histogram.hint = hint.unwrap_or_default();
    histogram.compact();
    Ok(NotedHistogram {
        histogram: Arc::new(histogram),
        has_hint: hint.is_some(),
    })
}

fn indexed(offset: i32, counts: Vec<f64>) -> Vec<(i32, f64)> {
    (offset..i32::MAX).zip(counts).collect()
}

/// `[1 2 3]`
fn numbers(text: &str) -> Option<Vec<f64>> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    if inner.trim() != inner {
        return None;
    }
    inner
        .split_whitespace()
        .map(plain_number)
        .collect::<Option<Vec<_>>>()
        .filter(|all| !all.is_empty())
}

/// A whole text as a number, with a minus or without.
fn plain_number(text: &str) -> Option<f64> {
    let (value, rest) = signed_number(text).filter(|_| !text.starts_with('+'))?;
    rest.is_empty().then_some(value)
}

/// A number at the start, and what follows it.
fn signed_number(text: &str) -> Option<(f64, &str)> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (value, rest) = number(unsigned)?;

    Some((if text.starts_with('-') { -value } else { value }, rest))
}

/// A number without a sign. `x` always means times: hexadecimal numbers do not occur.
fn number(text: &str) -> Option<(f64, &str)> {
    let bytes = text.as_bytes();
    if bytes.first()?.is_ascii_alphabetic() {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (word, rest) = text.split_at(end.unwrap_or(text.len()));
        return match word.to_ascii_lowercase().as_str() {
            "inf" => Some((f64::INFINITY, rest)),
            "nan" => Some((f64::NAN, rest)),
            _ => None,
        };
    }

    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    // An underscore between two digits separates them.
    let belongs = |at: &usize| {
        is_digit(*at) || bytes[*at] == b'_' && *at > 0 && is_digit(at - 1) && is_digit(at + 1)
    };
    let digits = |from: usize| from + (from..bytes.len()).take_while(belongs).count();
    let mut end = digits(0);
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let signed = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        if is_digit(end + 1 + signed) {
            end = digits(end + 1 + signed);
        }
    }
    let (number, rest) = text.split_at(end);
    let is_separated = rest.is_empty() || rest.starts_with(['x', '+', '-']);
    let plain = number.replace('_', "");
    // As Go reads integers, a leading zero means octal.
    let octal = Some(&plain).filter(|plain| plain.len() > 1 && plain.starts_with('0'));
    let octal = octal.and_then(|plain| i64::from_str_radix(plain, 8).ok());
    let value = octal.map_or_else(|| plain.parse().ok(), |octal| Some(octal as f64))?;
    is_separated.then_some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, NotationError> {
        let show = |value: &NotedValue| match value {
            NotedValue::Missing => "_".to_owned(),
            NotedValue::Stale => "stale".to_owned(),
            NotedValue::Float(value) => value.to_string(),
            NotedValue::Histogram(one) => {
                let hint = match (one.has_hint, one.histogram.hint) {
                    (false, _) => "",
                    (true, ResetHint::Unknown) => " unknown",
                    (true, ResetHint::Reset) => " reset",
                    (true, ResetHint::Gauge) => " gauge",
                };
                format!("{}/{}{hint}", one.histogram.schema, one.histogram)
            }
        };
        Ok(Vec::from_iter(values(text)?.iter().map(show)).join(" "))
    }

    /// Each as Prometheus 3.14's own runner reads it.
    #[test]
    fn values_are_read_as_prometheus_reads_them() {
        for (text, expected) in [
            ("", ""),
            ("1 2.5\t -3", "1 2.5 -3"),
            ("1+2x3 -2+4x2 1-1x1", "1 3 5 7 -2 2 6 1 0"),
            ("4x2 .5x1 5.", "4 4 4 0.5 0.5 5"),
            ("1e2+1e1x1 1e-2x1 1E3", "100 110 0.01 0.01 1000"),
            ("0.6+0.1x2", "0.6 0.7 0.7999999999999999"),
            // A step of +0 would turn -0 into 0.
            ("-0 -0x1", "-0 -0 -0"),
            ("Inf -inf +Inf nan Inf+1x1", "inf -inf inf NaN inf inf"),
            ("1_000 010 08 0x2", "1000 8 8 0 0 0"),
            ("_ 1 _x2 _x0 stale", "_ 1 _ _ stale"),
            ("1+0x1", "1 1"),
            (
                "{{}} {{ }}x1",
                "0/{count:0, sum:0} 0/{count:0, sum:0} 0/{count:0, sum:0}",
            ),
            (
                "{{schema:1 sum:-0.5 COUNT:6  z_bucket:1 z_bucket_w:0.5 buckets:[1 0 2] offset:3 n_buckets:[2] n_offset:3}}",
                "1/{count:6, sum:-0.5, [-2.8284271247461903,-2):2, [-0.5,0.5]:1, (2,2.8284271247461903]:1, \
                 (4,5.656854249492381]:2}",
            ),
            (
                "{{count:3 counter_reset_hint:gauge}}",
                "0/{count:3, sum:0} gauge",
            ),
            (
                "{{counter_reset_hint:not_reset}}",
                "0/{count:0, sum:0} unknown",
            ),
            (
                "{{schema:0 count:3 buckets:[1 2]}}+{{schema:1 count:1 buckets:[1]}}x2",
                "0/{count:3, sum:0, (0.5,1]:1, (1,2]:2} 0/{count:4, sum:0, (0.5,1]:2, (1,2]:2} \
                 0/{count:5, sum:0, (0.5,1]:3, (1,2]:2}",
            ),
            (
                "{{sum:1}}-{{sum:1}}x2",
                "0/{count:0, sum:1} 0/{count:0, sum:0} 0/{count:0, sum:-1}",
            ),
            (
                "{{schema:-53 custom_values:[1 2] buckets:[1 2 3]}}x1 1",
                "-53/{count:0, sum:0, [-Inf,1]:1, (1,2]:2, (2,+Inf]:3} \
                 -53/{count:0, sum:0, [-Inf,1]:1, (1,2]:2, (2,+Inf]:3} 1",
            ),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn what_prometheus_refuses_is_refused() {
        for text in [
            "a",
            "1a",
            "1 # comment",
            "1,2",
            "1+1",
            "1+x3",
            "1x",
            "x3",
            "1 x3",
            "1x 3",
            "1x-1",
            "1x+1",
            "1x1.5",
            "1x1e1",
            "1+-1x2",
            "--1",
            "1__0",
            "1_",
            "_1",
            "1_x2",
            "5m",
            "1.5.2",
            "stalex2",
            "Stale",
            "infinity",
            "Infx2",
            "nanx2",
            "{{ schema:0}}",
            "{{schema: 0}}",
            "{{schema :0}}",
            "{{schema:1.5}}",
            "{{schema:+1}}",
            "{{foo:1}}",
            "{{sum:x}}",
            "{{sum:+Inf}}",
            "{{sum:--1}}",
            "{{sum:0x10}}",
            "{{sum:1 sum:2}}",
            "{{buckets:[]}}",
            "{{buckets:[ 1 ]}}",
            "{{buckets:[1,2]}}",
            "{{buckets:[+1]}}",
            "{{buckets:1}}",
            "{{buckets:[1]offset:1}}",
            "{{counter_reset_hint:foo}}",
            "{{sum:1}}+{{sum:1}}",
            "{{sum:1}} x3",
            "-{{sum:1}}",
            "{{sum:1}}+1x3",
            "{{sum:1}}x-1",
            "{{sum:1",
            "{{sum:1}",
            "{sum:1}",
            "{{sum:1}}}",
            "{{sum:1}}{{sum:2}}",
            "{{sum:1}}_",
            "{{schema:1}}+{{schema:0}}x1",
            "1x9999999999",
            "1x18446744073709551615",
            "_x18446744073709551615",
            "{{}}x18446744073709551615",
        ] {
            assert!(values(text).is_err(), "{text:?} gave {:?}", shown(text));
        }
    }
}
