//! Numbers on a page.

use super::SyntaxError;
use crate::parse_float;

pub(super) fn parse_int(token: &[u8]) -> Option<i64> {
    std::str::from_utf8(token).ok()?.parse().ok()
}

pub(super) fn parse_value(token: &[u8]) -> Result<f64, SyntaxError<'_>> {
    if let Some((value, length)) = decimal(token)
        && length == token.len()
    {
        return Ok(value);
    }
    std::str::from_utf8(token)
        .ok()
        .and_then(parse_float)
        .ok_or(SyntaxError {
            expected: "a number",
            found: token,
        })
}

/// Parses the decimal number at the start of `text`, if one rounding yields the nearest double: up
/// to 15 digits and an exact power of ten (Clinger's fast path). Returns the number and its length.
/// Nearly all samples take this path.
#[inline]
pub(super) fn decimal(text: &[u8]) -> Option<(f64, usize)> {
    const POWERS: [f64; 23] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
        1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
    ];
    let digit = |at: usize| {
        text.get(at)
            .map(|byte| byte.wrapping_sub(b'0'))
            .filter(|&digit| digit < 10)
    };

    let is_negative = text.first() == Some(&b'-');
    let begin = usize::from(is_negative);
    let mut at = begin;
    let mut mantissa = 0_u64;
    let mut exponent = 0_i32;
    while let Some(next) = digit(at) {
        // An overflow does no harm: numbers of more than 15 digits are given up below.
        mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(next));
        at += 1;
    }

    let mut digits = at - begin;
    if text.get(at) == Some(&b'.') {
        let point = at;
        at += 1;
        while let Some(next) = digit(at) {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(next));
            at += 1;
        }
        digits += at - point - 1;
        exponent = -i32::try_from(at - point - 1).ok()?;
    }

    if digits == 0 || digits > 15 {
        return None;
    }

    if matches!(text.get(at), Some(b'e' | b'E')) {
        let is_down = text.get(at + 1) == Some(&b'-');
        at += 1 + usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let tens = digit(at)?;
        let (power, length) = digit(at + 1).map_or((tens, 1), |ones| (tens * 10 + ones, 2));
        at += length;
        // Three digits are rare, and left to the general path.
        if digit(at).is_some() {
            return None;
        }
        exponent += if is_down {
            -i32::from(power)
        } else {
            i32::from(power)
        };
    }

    let scale = POWERS.get(exponent.unsigned_abs() as usize)?;
    let value = if exponent < 0 {
        mantissa as f64 / scale
    } else {
        mantissa as f64 * scale
    };

    Some((if is_negative { -value } else { value }, at))
}
