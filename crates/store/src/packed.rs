//! The values of one series over the rows of a chunk, packed.
//!
//! Most values are decimal numbers with few digits, and most steps are small: so a value is a whole number of some
//! power of ten, and only the differences are kept, each in as many bits as the largest needs. Counters of seconds that
//! an exporter has from microseconds are often the double next to such a number: then two bits say which. What is not
//! like that (a NaN, an infinity, a number of seventeen digits) is kept as it is. Every value comes out bit by bit as it
//! went in.
//!
//! The form is the memory's own and never written to disk.

use super::head::{STALE, is_stale};

/// Largest power of ten that a value is multiplied with.
const MAX_EXPONENT: u32 = 14;

/// Whole numbers below this are exact as doubles.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The values stand as they are; else as differences.
const RAW: u8 = 1;
/// Some rows lack the series: a bit for each row says which.
const ABSENT: u8 = 2;
/// Some values repeat: a bit for each after the first says which do not.
const REPEATS: u8 = 4;
/// Some values are the double before or after their decimal number: two bits for each.
const BESIDE: u8 = 8;

/// Appends `values` ([`STALE`] where a row lacks the series) to `out`.
pub(super) fn pack(values: &[f64], out: &mut Vec<u8>) {
    let present: Vec<f64> = values
        .iter()
        .copied()
        .filter(|&value| !is_stale(value))
        .collect();
    let absent = if present.len() < values.len() {
        ABSENT
    } else {
        0
    };
    let Some(plan) = Plan::of(&present) else {
        let repeats = if present.windows(2).any(|pair| is_same(pair[0], pair[1])) {
            REPEATS
        } else {
            0
        };
        out.push(RAW | absent | repeats);
        push_presence(values, absent, out);
        if repeats != 0 {
            push_bits(
                present
                    .windows(2)
                    .map(|pair| (u64::from(!is_same(pair[0], pair[1])), 1)),
                out,
            );
        }
        let is_kept =
            |&at: &usize| at == 0 || repeats == 0 || !is_same(present[at - 1], present[at]);
        (0..present.len())
            .filter(is_kept)
            .for_each(|at| out.extend_from_slice(&present[at].to_le_bytes()));
        return;
    };
    let beside = if plan.numbers.iter().any(|number| number.beside != 0) {
        BESIDE
    } else {
        0
    };
    out.push(absent | beside | if plan.skips_zeros { REPEATS } else { 0 });
    push_presence(values, absent, out);
    if beside != 0 {
        push_bits(
            plan.numbers
                .iter()
                .map(|number| ((number.beside + 1) as u64, 2)),
            out,
        );
    }
    out.extend_from_slice(
        &(plan.exponent as u16 | (plan.shift as u16) << 4 | (plan.width as u16) << 10)
            .to_le_bytes(),
    );
    push_number(plan.numbers[0].whole, out);
    push_number(plan.least, out);
    if plan.skips_zeros {
        push_bits(
            plan.steps.iter().map(|&step| (u64::from(step != 0), 1)),
            out,
        );
    }
    let kept = plan
        .steps
        .iter()
        .filter(|&&step| !plan.skips_zeros || step != 0);
    push_bits(
        kept.map(|&step| (((step >> plan.shift) - plan.least) as u64, plan.width)),
        out,
    );
}

/// The values that [`pack`] was given, `rows` of them.
pub(super) fn unpack(packed: &[u8], rows: usize) -> Vec<f64> {
    let mut reader = Reader { rest: packed };
    let tag = reader.byte();
    let presence = (tag & ABSENT != 0).then(|| reader.bits(rows));
    let is_present = |row: usize| presence.is_none_or(|bits| bit(bits, row));
    let count = (0..rows).filter(|&row| is_present(row)).count();
    let mut next = unpacked(reader, tag, count).into_iter();
    (0..rows)
        .map(|row| {
            if is_present(row) {
                next.next().unwrap_or(STALE)
            } else {
                STALE
            }
        })
        .collect()
}

fn unpacked(mut reader: Reader<'_>, tag: u8, count: usize) -> Vec<f64> {
    let after_first = count.saturating_sub(1);
    if tag & RAW != 0 {
        let changes = (tag & REPEATS != 0).then(|| reader.bits(after_first));
        let mut value = STALE;
        let mut at = |at: usize| {
            if at == 0 || changes.is_none_or(|bits| bit(bits, at - 1)) {
                value = reader.double();
            }
            value
        };
        return (0..count).map(&mut at).collect();
    }
    let beside = (tag & BESIDE != 0).then(|| reader.bits(2 * count));
    let form = u16::from(reader.byte()) | u16::from(reader.byte()) << 8;
    let (exponent, shift, width) = (u32::from(form & 15), form >> 4 & 63, u32::from(form >> 10));
    let (mut whole, least) = (reader.number(), reader.number());
    let changes = (tag & REPEATS != 0).then(|| reader.bits(after_first));
    let value = |whole: i64, at: usize| {
        let beside = beside.map_or(0, |bits| take_bits(bits, 2 * at, 2) as i64 - 1);
        Decimal { whole, beside }.value(exponent)
    };
    let mut at = 0;
    let mut values = Vec::with_capacity(count);
    values.push(value(whole, 0));
    for step in 0..after_first {
        if changes.is_none_or(|bits| bit(bits, step)) {
            let step = (take_bits(reader.rest, at, width) as i64).wrapping_add(least);
            whole = whole.wrapping_add(step << shift);
            at += width as usize;
        }
        values.push(value(whole, step + 1));
    }
    values
}

/// How values become differences.
struct Plan {
    exponent: u32,
    /// At least one.
    numbers: Vec<Decimal>,
    /// From each number to the next.
    steps: Vec<i64>,
    /// All steps are multiples of two to this.
    shift: u32,
    /// The smallest kept step, after the shift.
    least: i64,
    /// Bits of a step less the smallest.
    width: u32,
    /// Whether steps of zero are a bit each instead of a number.
    skips_zeros: bool,
}

impl Plan {
    /// `None` if there is no value, or one that is no short decimal number.
    fn of(values: &[f64]) -> Option<Self> {
        let mut exponent = 0;
        for &value in values {
            while Decimal::of(value, exponent).is_none() {
                exponent += 1;
                if exponent > MAX_EXPONENT {
                    return None;
                }
            }
        }
        let numbers: Option<Vec<Decimal>> = values
            .iter()
            .map(|&value| Decimal::of(value, exponent))
            .collect();
        let numbers = numbers.filter(|numbers| !numbers.is_empty())?;
        let steps: Vec<i64> = numbers
            .windows(2)
            .map(|pair| pair[1].whole - pair[0].whole)
            .collect();
        let moving = || steps.iter().copied().filter(|&step| step != 0);
        let shift = moving().map(i64::trailing_zeros).min().unwrap_or(0);
        let (with_zeros, without) = (span(steps.iter().copied(), shift), span(moving(), shift));
        let bits_with = steps.len() * with_zeros.1 as usize;
        let bits_without = steps.len() + moving().count() * without.1 as usize;
        let skips_zeros = bits_without < bits_with;
        let (least, width) = if skips_zeros { without } else { with_zeros };
        Some(Self {
            exponent,
            numbers,
            steps,
            shift,
            least,
            width,
            skips_zeros,
        })
    }
}

/// The smallest of the steps after the shift, and the bits that hold each less that.
fn span(steps: impl Iterator<Item = i64> + Clone, shift: u32) -> (i64, u32) {
    let least = steps.clone().min().unwrap_or(0) >> shift;
    let most = steps.max().unwrap_or(0) >> shift;
    (least, u64::BITS - ((most - least) as u64).leading_zeros())
}

/// A value as a whole number of some power of ten.
#[derive(Debug, Clone, Copy)]
struct Decimal {
    whole: i64,
    /// Which double it is, seen from the one nearest to the number: the one before (-1), that one, the one after (1).
    beside: i64,
}

impl Decimal {
    /// Of ten to minus `exponent`; `None` if the value is no such number.
    #[inline]
    fn of(value: f64, exponent: u32) -> Option<Self> {
        let scaled = (value * power(exponent)).round();
        if scaled.abs() >= EXACT || scaled.is_nan() {
            return None;
        }
        let whole = scaled as i64;
        let beside = value
            .to_bits()
            .wrapping_sub(Self { whole, beside: 0 }.value(exponent).to_bits())
            as i64;
        (-1..=1).contains(&beside).then_some(Self { whole, beside })
    }

    #[inline]
    fn value(self, exponent: u32) -> f64 {
        let nearest = self.whole as f64 / power(exponent);
        f64::from_bits(nearest.to_bits().wrapping_add(self.beside as u64))
    }
}

#[inline]
fn power(exponent: u32) -> f64 {
    const POWERS: [f64; 16] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
    ];
    POWERS[exponent as usize & 15]
}

fn is_same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits()
}

fn push_presence(values: &[f64], absent: u8, out: &mut Vec<u8>) {
    if absent != 0 {
        push_bits(
            values.iter().map(|&value| (u64::from(!is_stale(value)), 1)),
            out,
        );
    }
}

/// Appends each number in its width of bits, the lowest first; ends on a whole byte.
fn push_bits(numbers: impl Iterator<Item = (u64, u32)>, out: &mut Vec<u8>) {
    let (mut held, mut count) = (0_u128, 0);
    for (number, width) in numbers {
        held |= u128::from(number) << count;
        count += width;
        while count >= 8 {
            out.push(held as u8);
            held >>= 8;
            count -= 8;
        }
    }
    if count > 0 {
        out.push(held as u8);
    }
}

/// The number of `width` bits that begins at bit `at`.
#[inline]
fn take_bits(bytes: &[u8], at: usize, width: u32) -> u64 {
    if width == 0 {
        return 0;
    }
    let mut window = [0; 16];
    let begin = (at / 8).min(bytes.len());
    let length = (bytes.len() - begin).min(9);
    window[..length].copy_from_slice(&bytes[begin..begin + length]);
    (u128::from_le_bytes(window) >> (at % 8)) as u64 & (u64::MAX >> (u64::BITS - width))
}

fn bit(bytes: &[u8], at: usize) -> bool {
    bytes
        .get(at / 8)
        .is_some_and(|byte| byte >> (at % 8) & 1 == 1)
}

/// Seven bits a byte, small numbers of either sign first.
fn push_number(number: i64, out: &mut Vec<u8>) {
    let mut rest = (number << 1 ^ number >> 63) as u64;
    while rest >= 128 {
        out.push(rest as u8 | 128);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Reads what [`pack`] wrote; beyond the end there are zeros.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> u8 {
        let (&byte, rest) = self.rest.split_first().unwrap_or((&0, &[]));
        self.rest = rest;
        byte
    }

    fn bits(&mut self, count: usize) -> &'a [u8] {
        let (bits, rest) = self.rest.split_at(count.div_ceil(8).min(self.rest.len()));
        self.rest = rest;
        bits
    }

    fn number(&mut self) -> i64 {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let byte = self.byte();
            number |= u64::from(byte & 127) << shift;
            shift += 7;
            if byte < 128 || shift > 63 {
                return (number >> 1) as i64 ^ -((number & 1) as i64);
            }
        }
    }

    fn double(&mut self) -> f64 {
        let mut bytes = [0; 8];
        bytes.iter_mut().for_each(|byte| *byte = self.byte());
        f64::from_le_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packed(values: &[f64]) -> Vec<u8> {
        let mut out = Vec::new();
        pack(values, &mut out);
        out
    }

    #[test]
    fn usual_series_become_small() {
        let sizes = [
            // A counter at a steady pace, one whose pace wavers, pages of memory, centiseconds.
            packed(
                &(0..56)
                    .map(|n| 1e9 + f64::from(n) * 512.0)
                    .collect::<Vec<_>>(),
            ),
            packed(
                &(0..56)
                    .map(|n| 1e6 + f64::from(n * 100 + n % 3))
                    .collect::<Vec<_>>(),
            ),
            packed(
                &(0..56)
                    .map(|n| 8e9 + f64::from(n * n % 7) * 4096.0)
                    .collect::<Vec<_>>(),
            ),
            packed(
                &(0..56)
                    .map(|n| 12345.0 + f64::from(n) / 100.0)
                    .collect::<Vec<_>>(),
            ),
            // Something that changes once.
            packed(
                &(0..56)
                    .map(|n| f64::from(u8::from(n > 20)) * 77.0)
                    .collect::<Vec<_>>(),
            ),
            // Microseconds as seconds, by multiplication: every other one is beside its number.
            packed(
                &(0..56)
                    .map(|n| f64::from(123_456_789 + n * 1000) * 1e-6)
                    .collect::<Vec<_>>(),
            ),
        ]
        .map(|packed| packed.len());
        assert!(sizes.iter().sum::<usize>() < 6 * 20, "{sizes:?}");
    }

    fn value() -> impl Strategy<Value = f64> {
        prop_oneof![
            4 => (-1000_i32..1000).prop_map(f64::from),
            2 => any::<i64>().prop_map(|whole| whole as f64),
            3 => (any::<i32>(), 0_u32..12).prop_map(|(whole, exponent)| f64::from(whole) / power(exponent)),
            2 => (any::<i32>(), 0_i32..12).prop_map(|(whole, exponent)| f64::from(whole) * 10_f64.powi(-exponent)),
            1 => any::<u64>().prop_map(f64::from_bits),
            1 => prop::sample::select(vec![0.0, -0.0, f64::INFINITY, f64::NAN, STALE, f64::MAX, f64::MIN_POSITIVE, EXACT, -EXACT]),
        ]
    }

    /// What stays, what moves on, what is anything.
    fn series() -> impl Strategy<Value = Vec<f64>> {
        let steps = (
            value(),
            proptest::collection::vec((0_u8..4, -50_i32..5000), 0..100),
        )
            .prop_map(|(first, steps)| {
                let mut value = first;
                let step = |(kind, step)| {
                    value += if kind == 0 { 0.0 } else { f64::from(step) };
                    if kind == 3 && step < 100 {
                        STALE
                    } else {
                        value
                    }
                };
                steps.into_iter().map(step).collect()
            });
        prop_oneof![steps, proptest::collection::vec(value(), 0..100)]
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(values in series()) {
            let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&unpack(&packed(&values), values.len())), bits(&values));
        }

        #[test]
        fn nothing_is_too_strange_to_unpack(bytes: Vec<u8>, rows in 0_usize..200) {
            prop_assert_eq!(unpack(&bytes, rows).len(), rows);
        }
    }
}
