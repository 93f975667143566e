//! The short notation for a series' values in promtool's test files: `1+2x3 _ stale`.

/// How many values one series of a test may have.
const VALUES_MAX: usize = 1_000_000;

/// One value of a test's series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// No sample at this step.
    Missing,
    /// The series ends here.
    Stale,
    /// A sample.
    Is(f64),
}

/// Reads values separated by spaces: `a`, `axn` (a, then n times a again), `a+bxn` (a, then n steps
/// of b), `_`, `_xn` (n steps without a sample), `stale`.
///
/// # Errors
/// With the word that cannot be read. Histograms are refused by name.
pub fn parse(text: &str) -> Result<Vec<Value>, String> {
    let mut values = Vec::new();
    if text.contains("{{") {
        return Err("histograms are not covered".to_owned());
    }
    for word in text.split_whitespace() {
        expand(word, &mut values).ok_or_else(|| {
            format!("`{word}` is not a value such as `1`, `1+2x3`, `_x4` or `stale`")
        })?;
        if values.len() > VALUES_MAX {
            return Err(format!("more than {VALUES_MAX} values"));
        }
    }
    Ok(values)
}

fn expand(word: &str, out: &mut Vec<Value>) -> Option<()> {
    if word == "stale" {
        out.push(Value::Stale);
        return Some(());
    }
    let (head, times) = match word.rsplit_once('x') {
        Some((head, times)) => (
            head,
            Some(
                times
                    .parse::<usize>()
                    .ok()
                    .filter(|times| *times <= VALUES_MAX)?,
            ),
        ),
        None => (word, None),
    };
    if head == "_" {
        out.extend(std::iter::repeat_n(Value::Missing, times.unwrap_or(1)));
        return Some(());
    }
    let (start, step) = match (times, step_at(head)) {
        (Some(_), Some(at)) => (
            number(&head[..at])?,
            number(head[at..].strip_prefix('+').unwrap_or(&head[at..]))?,
        ),
        // Zero would take its sign from -0.
        _ => (number(head)?, -0.0),
    };
    // Added up step by step, as Prometheus does: the last bits of `0+0.1x8` are those of a sum.
    let values = std::iter::successors(Some(start), |value| Some(value + step));
    out.extend(values.take(times.unwrap_or(0) + 1).map(Value::Is));
    Some(())
}

/// Where the step of `a+b` or `a-b` begins: the last sign that is neither the first character nor
/// an exponent's.
fn step_at(head: &str) -> Option<usize> {
    let bytes = head.as_bytes();
    let is_sign = |at: usize| matches!(bytes[at], b'+' | b'-');
    let is_exponent =
        |at: usize| at >= 1 && matches!(bytes[at], b'e' | b'E') && bytes[at - 1].is_ascii_digit();
    let ends_before = |at: usize| !is_exponent(at - 1) && !is_sign(at - 1);
    let mut signs = (1..bytes.len()).filter(|&at| is_sign(at));
    signs.rfind(|&at| ends_before(at))
}

fn number(text: &str) -> Option<f64> {
    if text.is_empty() || text.starts_with("++") || text.starts_with("+-") {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_short_forms() {
        let is = |values: &[f64]| values.iter().map(|v| Value::Is(*v)).collect::<Vec<_>>();
        for (text, expected) in [
            ("1 2.5 -3", is(&[1.0, 2.5, -3.0])),
            ("1+2x3", is(&[1.0, 3.0, 5.0, 7.0])),
            ("1-1x2", is(&[1.0, 0.0, -1.0])),
            ("-2+4x2", is(&[-2.0, 2.0, 6.0])),
            ("4x2", is(&[4.0, 4.0, 4.0])),
            ("1e2+1e1x1", is(&[100.0, 110.0])),
            ("1e-2x1", is(&[0.01, 0.01])),
            ("0.6+0.1x2", is(&[0.6, 0.7, 0.799_999_999_999_999_9])),
            ("Inf", is(&[f64::INFINITY])),
            (
                "_ 1 _x2 stale",
                vec![
                    Value::Missing,
                    Value::Is(1.0),
                    Value::Missing,
                    Value::Missing,
                    Value::Stale,
                ],
            ),
            ("", vec![]),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(expected.as_slice()), "{text:?}");
        }
    }

    #[test]
    fn zero_keeps_its_sign() {
        let values = parse("-0 -0x1").unwrap();
        assert!(values.iter().all(
            |value| matches!(value, Value::Is(zero) if *zero == 0.0 && zero.is_sign_negative())
        ));
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "a",
            "1+x3",
            "1x",
            "x3",
            "1 2 nope",
            "{{schema:0}}",
            "1x9999999999",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
