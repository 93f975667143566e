//! Durations: literals such as `1h30m`, and computed ones such as `5m * 2` and `step()`.

use super::tree::NumberLiteral;
use crate::numbers::{format_f, go_max, go_min};
use std::fmt;

/// Longest duration in seconds: what fits into nanoseconds in an i64, as in Go (292 years).
pub(super) const MAX_SECONDS: f64 = 9_223_372_036.854_776;

/// Units from the longest to the shortest, in milliseconds.
const UNITS: [(&str, i64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// A duration in a range, a step or an offset.
#[derive(Debug, Clone)]
pub(crate) struct DurationExpression {
    /// The byte of the query at which the duration begins.
    pub at: usize,
    /// Whether the duration stands in parentheses.
    pub is_wrapped: bool,
    pub kind: DurationKind,
}

/// The kinds of durations.
#[derive(Debug, Clone)]
pub(crate) enum DurationKind {
    Literal(NumberLiteral),
    /// `step()`: the step of the query.
    Step,
    /// `range()`: the time from the query's start to its end.
    Range,
    Negative(Box<DurationExpression>),
    Binary(DurationOperator, Box<[DurationExpression; 2]>),
}

impl DurationExpression {
    /// Whether it depends on the query's step or range.
    pub fn is_of_query(&self) -> bool {
        match &self.kind {
            DurationKind::Literal(_) => false,
            DurationKind::Step | DurationKind::Range => true,
            DurationKind::Negative(of) => of.is_of_query(),
            DurationKind::Binary(_, sides) => sides.iter().any(Self::is_of_query),
        }
    }
}

/// Operators between durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DurationOperator {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    MinOf,
    MaxOf,
}

impl DurationOperator {
    /// The operator as it is written.
    pub fn name(self) -> &'static str {
        match self {
            DurationOperator::Add => "+",
            DurationOperator::Sub => "-",
            DurationOperator::Mul => "*",
            DurationOperator::Div => "/",
            DurationOperator::Mod => "%",
            DurationOperator::Pow => "^",
            DurationOperator::MinOf => "min_of",
            DurationOperator::MaxOf => "max_of",
        }
    }

    /// The infix operator of that text, with how tightly it binds.
    pub(super) fn find(text: &str) -> Option<(Self, u8)> {
        Some(match text {
            "+" => (DurationOperator::Add, 1),
            "-" => (DurationOperator::Sub, 1),
            "*" => (DurationOperator::Mul, 2),
            "/" => (DurationOperator::Div, 2),
            "%" => (DurationOperator::Mod, 2),
            "^" => (DurationOperator::Pow, Self::POWER),
            _ => return None,
        })
    }

    /// How tightly `^` binds.
    pub(super) const POWER: u8 = 3;
}

/// Step and range of a query, seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct QueryTimes {
    pub step: f64,
    pub range: f64,
}

impl DurationExpression {
    /// The literal, where nothing has to be computed.
    pub fn literal(&self) -> Option<NumberLiteral> {
        match self.kind {
            DurationKind::Literal(literal) => Some(literal),
            _ => None,
        }
    }

    /// Milliseconds of a literal; 0 where the duration has to be computed.
    pub fn literal_ms(&self) -> i64 {
        self.literal().map_or(0, |literal| millis(literal.value))
    }

    /// The duration in milliseconds. Fails where it does not exist, is too long, or is not positive but has to be.
    pub fn evaluate(&self, times: QueryTimes, may_be_negative: bool) -> Result<i64, String> {
        if let Some(literal) = self.literal() {
            return Ok(millis(literal.value));
        }

        // A computed duration can become anything, so it is checked here, not in the parser.
        let seconds = self.seconds(times)?;
        if !seconds.is_finite() {
            Err("duration is NaN or infinite".to_owned())
        } else if seconds <= 0.0 && !may_be_negative {
            Err("duration must be greater than 0".to_owned())
        } else if seconds.abs() > MAX_SECONDS {
            Err("duration is out of range".to_owned())
        } else {
            Ok((seconds * 1e3) as i64)
        }
    }

    fn seconds(&self, times: QueryTimes) -> Result<f64, String> {
        Ok(match &self.kind {
            DurationKind::Literal(literal) => literal.value,
            DurationKind::Step => times.step,
            DurationKind::Range => times.range,
            DurationKind::Negative(of) => -of.seconds(times)?,
            DurationKind::Binary(op, operands) => {
                let [lhs, rhs] = operands.as_ref();
                let lhs = lhs.seconds(times)?;
                let rhs = rhs.seconds(times)?;
                match op {
                    // The parser refuses a literal 0 already; here it is the value of `step()` or
                    // of a difference.
                    DurationOperator::Div if rhs == 0.0 => {
                        return Err("division by zero".to_owned());
                    }
                    DurationOperator::Mod if rhs == 0.0 => return Err("modulo by zero".to_owned()),
                    DurationOperator::Add => lhs + rhs,
                    DurationOperator::Sub => lhs - rhs,
                    DurationOperator::Mul => lhs * rhs,
                    DurationOperator::Div => lhs / rhs,
                    DurationOperator::Mod => lhs % rhs,
                    DurationOperator::Pow => lhs.powf(rhs),
                    DurationOperator::MinOf => go_min(lhs, rhs),
                    DurationOperator::MaxOf => go_max(lhs, rhs),
                }
            }
        })
    }
}

impl fmt::Display for DurationExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_wrapped {
            f.write_str("(")?;
        }
        match &self.kind {
            DurationKind::Literal(literal) => write!(f, "{literal}")?,
            DurationKind::Step => f.write_str("step()")?,
            DurationKind::Range => f.write_str("range()")?,
            DurationKind::Negative(of) => write!(f, "-{of}")?,
            DurationKind::Binary(op, operands) => {
                let [lhs, rhs] = operands.as_ref();
                let name = op.name();
                if matches!(op, DurationOperator::MinOf | DurationOperator::MaxOf) {
                    write!(f, "{name}({lhs}, {rhs})")?;
                } else {
                    write!(f, "{lhs} {name} {rhs}")?;
                }
            }
        }
        if self.is_wrapped {
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl fmt::Display for NumberLiteral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_duration {
            f.write_str(&format_ms((self.value * 1e3).round() as i64))
        } else {
            f.write_str(&format_f(self.value))
        }
    }
}

/// Milliseconds of a literal in seconds. The literal's range was checked when it was read.
fn millis(seconds: f64) -> i64 {
    // Through nanoseconds, as in Go.
    (seconds * 1e9).round() as i64 / 1_000_000
}

/// A duration as Prometheus prints it: `90000` becomes `1m30s`. Years and weeks only where nothing remains.
pub(super) fn format_ms(ms: i64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    if ms < 0 {
        text.push('-');
    }

    // The sign is written already; `i64::MIN` has no positive counterpart.
    let mut rest = ms.saturating_abs();
    for (unit, length) in UNITS {
        let has_remainder = rest % length != 0;
        if matches!(unit, "y" | "w") && has_remainder {
            continue;
        }
        if rest >= length {
            text.push_str(&format!("{}{unit}", rest / length));
            rest %= length;
        }
    }
    text
}

/// `1h30m` in milliseconds (`model.ParseDuration`): units may neither repeat nor grow. Fails in Prometheus' words.
pub(crate) fn parse_ms(text: &str) -> Result<i64, String> {
    let invalid = || format!("not a valid duration string: {text:?}");
    let mut rest = text;
    let mut total: i64 = 0;
    let mut longest = 0;

    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .filter(|digits| *digits > 0)
            .ok_or_else(invalid)?;

        let (count, after) = rest.split_at(digits);
        let unit = after
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(after.len());
        let name = &after[..unit];
        if name.is_empty() {
            return Err(invalid());
        }

        let nth = UNITS
            .iter()
            .position(|(known, _)| *known == name)
            .ok_or_else(|| format!("unknown unit {name:?} in duration {text:?}"))?;
        if nth < longest {
            return Err(invalid());
        }
        longest = nth + 1;
        let (_, length) = UNITS[nth];

        // Prometheus counts in nanoseconds, so it refuses more than fits into an i64 of them.
        let is_in_range = |ms: &i64| *ms <= i64::MAX / 1_000_000;
        let count: i64 = count.parse().map_err(|_| invalid())?;
        total = Some(count)
            .and_then(|count| count.checked_mul(length))
            .and_then(|ms| ms.checked_add(total))
            .filter(is_in_range)
            .ok_or("duration out of range")?;
        rest = &after[unit..];
    }

    if text.is_empty() {
        Err("empty duration string".to_owned())
    } else {
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_printed_as_prometheus_does() {
        for (text, ms, printed) in [
            ("1h30m", 5_400_000, "1h30m"),
            ("90m", 5_400_000, "1h30m"),
            ("7d", 604_800_000, "1w"),
            // Weeks only where no day remains.
            ("8d", 691_200_000, "8d"),
            ("1y1ms", 31_536_000_001, "365d1ms"),
            ("0s", 0, "0s"),
        ] {
            assert_eq!(parse_ms(text).unwrap(), ms, "{text}");
            assert_eq!(format_ms(ms), printed, "{text}");
        }
        assert_eq!(format_ms(-90_000), "-1m30s");
        for wrong in [
            "",
            "5",
            "1m1h",
            "1m1m",
            "5x",
            "m",
            "300y",
            "99999999999999999999ms",
        ] {
            assert!(parse_ms(wrong).is_err(), "{wrong}");
        }
    }
}
