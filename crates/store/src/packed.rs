//! Packed values of one series over the rows of a chunk.
//!
//! Most values are decimal numbers with few digits, and most differences are small. A value is
//! stored as an integer multiple of a power of ten; consecutive differences take as many bits as
//! the largest one needs. Counters that an exporter converts from microseconds to seconds are often
//! the double next to the decimal number: two bits record which. Other values (NaN, infinity, 17
//! digits) are stored unchanged. Unpacking returns every value bit by bit.
//!
//! Chunks keep this format on disk until they are sealed (docs/storage.md).

use super::head::{STALE, is_stale};

/// Largest power of ten to multiply a value with.
const MAX_EXPONENT: u32 = 14;

/// Integers below this are exact as doubles.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Flag: the values are stored unchanged, not as differences.
const RAW: u8 = 1;
/// Flag: some rows lack the series. One bit per row follows.
const ABSENT: u8 = 2;
/// Flag: some values repeat. One bit for each value after the first follows, set if it differs.
const REPEATS: u8 = 4;
/// Flag: some values are the double before or after their decimal number. Two bits per value
/// follow.
const BESIDE: u8 = 8;

/// Packs the values of one series after another.
#[derive(Debug, Default)]
pub(super) struct Packer {
    present: Vec<f64>,
    numbers: Vec<Decimal>,
    /// Difference of each number from the one before.
    steps: Vec<i64>,
}

impl Packer {
    /// Appends `values` to `out`; [`STALE`] where a row lacks the series.
    pub fn pack(&mut self, values: &[f64], out: &mut Vec<u8>) {
        self.present.clear();
        let present = values.iter().filter(|&&value| !is_stale(value));
        self.present.extend(present);

        let absent = if self.present.len() < values.len() {
            ABSENT
        } else {
            0
        };

        let Some(plan) = self.plan() else {
            return self.pack_raw(values, absent, out);
        };

        let has_beside = self.numbers.iter().any(|number| number.beside != 0);
        let beside = if has_beside { BESIDE } else { 0 };
        out.push(absent | beside | if plan.skips_zeros { REPEATS } else { 0 });
        push_presence(values, absent, out);

        if has_beside {
            push_bits(
                self.numbers
                    .iter()
                    .map(|number| ((number.beside + 1) as u64, 2)),
                out,
            );
        }

        out.extend_from_slice(
            &(plan.exponent as u16 | (plan.shift as u16) << 4 | (plan.width as u16) << 10)
                .to_le_bytes(),
        );
        push_number(self.numbers[0].whole, out);
        push_number(plan.least, out);

        if plan.skips_zeros {
            push_bits(
                self.steps.iter().map(|&step| (u64::from(step != 0), 1)),
                out,
            );
        }

        let kept = self
            .steps
            .iter()
            .filter(|&&step| !plan.skips_zeros || step != 0)
            .map(|&step| (((step >> plan.shift) - plan.least) as u64, plan.width));
        push_bits(kept, out);
    }

    /// Stores values unchanged.
    fn pack_raw(&self, values: &[f64], absent: u8, out: &mut Vec<u8>) {
        let present = &self.present;
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

        (0..present.len())
            .filter(|&at| at == 0 || repeats == 0 || !is_same(present[at - 1], present[at]))
            .for_each(|at| out.extend_from_slice(&present[at].to_le_bytes()));
    }

    /// Converts the values into differences. Returns `None` if there are none, or one is not a
    /// short decimal number.
    fn plan(&mut self) -> Option<DifferencePlan> {
        let exponent = self.find_numbers()?;

        let pairs = self.numbers.windows(2);
        self.steps.clear();
        self.steps
            .extend(pairs.map(|pair| pair[1].whole - pair[0].whole));

        let mut bits = 0;
        let mut moving = 0;
        let mut with_zeros = Span::default();
        let mut without = Span::default();
        for &step in &self.steps {
            bits |= step;
            with_zeros.add(step);
            if step != 0 {
                moving += 1;
                without.add(step);
            }
        }

        // The lowest bit that is set in any step.
        let shift = if bits == 0 { 0 } else { bits.trailing_zeros() };
        let with_zeros = with_zeros.after(shift);
        let without = without.after(shift);

        let bits_with = self.steps.len() * with_zeros.1 as usize;
        let bits_without = self.steps.len() + moving * without.1 as usize;
        let skips_zeros = bits_without < bits_with;
        let (least, width) = if skips_zeros { without } else { with_zeros };

        Some(DifferencePlan {
            exponent,
            shift,
            least,
            width,
            skips_zeros,
        })
    }

    /// Finds the values' numbers and their common exponent.
    fn find_numbers(&mut self) -> Option<u32> {
        let mut exponent = 0;
        self.numbers.clear();
        let mut last = STALE;
        for &value in &self.present {
            let mut number = self
                .numbers
                .last()
                .filter(|_| is_same(value, last))
                .copied()
                .or_else(|| Decimal::of(value, exponent));

            while number.is_none() {
                exponent += 1;
                if exponent > MAX_EXPONENT {
                    return None;
                }
                // A number ten times as large for the next exponent is the same double.
                for known in &mut self.numbers {
                    known.whole *= 10;
                    if known.whole.unsigned_abs() >= EXACT as u64 {
                        return None;
                    }
                }
                number = Decimal::of(value, exponent);
            }

            self.numbers.extend(number);
            last = value;
        }
        (!self.numbers.is_empty()).then_some(exponent)
    }
}

/// Appends to `out` the `rows` values that [`Packer::pack`] wrote.
pub(super) fn unpack(packed: &[u8], rows: usize, out: &mut Vec<f64>) {
    let mut reader = PackedReader { rest: packed };
    let tag = reader.byte();
    let presence = (tag & ABSENT != 0).then(|| reader.bits(rows));

    let Some(presence) = presence else {
        return unpack_present(reader, tag, rows, out);
    };

    let count = (0..rows).filter(|&row| bit(presence, row)).count();
    let begin = out.len();
    unpack_present(reader, tag, count, out);

    // From the end, so that no value is overwritten before it has moved.
    out.resize(begin + rows, STALE);
    let mut next = begin + count;
    for row in (0..rows).rev() {
        out[begin + row] = if bit(presence, row) {
            next -= 1;
            out[next]
        } else {
            STALE
        };
    }
}

fn unpack_present(mut reader: PackedReader<'_>, tag: u8, count: usize, out: &mut Vec<f64>) {
    let after_first = count.saturating_sub(1);
    if tag & RAW != 0 {
        let changes = (tag & REPEATS != 0).then(|| reader.bits(after_first));
        let mut value = STALE;
        out.extend((0..count).map(|at| {
            if at == 0 || changes.is_none_or(|bits| bit(bits, at - 1)) {
                value = reader.double();
            }
            value
        }));
        return;
    }

    let beside = (tag & BESIDE != 0).then(|| reader.bits(2 * count));
    let form = u16::from(reader.byte()) | u16::from(reader.byte()) << 8;
    let exponent = u32::from(form & 15);
    let shift = form >> 4 & 63;
    let width = u32::from(form >> 10);

    let mut whole = reader.number();
    let least = reader.number();
    let changes = (tag & REPEATS != 0).then(|| reader.bits(after_first));

    let value = |whole: i64, at: usize| {
        let beside = beside.map_or(0, |bits| take_bits(bits, 2 * at, 2) as i64 - 1);
        Decimal { whole, beside }.value(exponent)
    };

    let mut at = 0;
    out.extend((0..count).map(|number| {
        if number > 0 && changes.is_none_or(|bits| bit(bits, number - 1)) {
            let step = (take_bits(reader.rest, at, width) as i64).wrapping_add(least);
            whole = whole.wrapping_add(step << shift);
            at += width as usize;
        }
        value(whole, number)
    }));
}

/// How the values of a series are stored as differences.
struct DifferencePlan {
    exponent: u32,
    /// All steps are multiples of `2^shift`.
    shift: u32,
    /// Smallest stored step, after the shift.
    least: i64,
    /// Bits of a step minus the smallest one.
    width: u32,
    /// Whether steps of zero take one bit instead of a number.
    skips_zeros: bool,
}

/// Smallest and largest step.
#[derive(Debug, Default)]
struct Span(Option<(i64, i64)>);

impl Span {
    #[inline]
    fn add(&mut self, step: i64) {
        let (least, most) = self.0.unwrap_or((step, step));
        self.0 = Some((least.min(step), most.max(step)));
    }

    /// Returns the smallest step after the shift, and the number of bits that each step needs beyond
    /// it.
    fn after(self, shift: u32) -> (i64, u32) {
        let (least, most) = self.0.unwrap_or_default();
        let least = least >> shift;
        let most = most >> shift;
        (least, u64::BITS - ((most - least) as u64).leading_zeros())
    }
}

/// A value as an integer multiple of a power of ten.
#[derive(Debug, Clone, Copy)]
struct Decimal {
    whole: i64,
    /// Position of the double relative to the one nearest to the number: before (-1), equal (0) or
    /// after (1).
    beside: i64,
}

impl Decimal {
    /// Returns `value` as a multiple of `10^-exponent`; `None` if it is not one.
    #[inline]
    fn of(value: f64, exponent: u32) -> Option<Self> {
        let whole = value as i64;
        if exponent == 0 && (whole as f64).to_bits() == value.to_bits() {
            let is_exact = whole.unsigned_abs() < EXACT as u64;
            return is_exact.then_some(Self { whole, beside: 0 });
        }

        let scaled = value * power(exponent);
        // `round` would be a call into libm on the oldest x86-64. The last line detects a wrong
        // result.
        let rounded = scaled + 0.5_f64.copysign(scaled);
        if rounded.is_nan() || rounded.abs() >= EXACT {
            return None;
        }

        let whole = rounded as i64;
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

/// Appends numbers with their widths in bits, lowest bit first, and pads to a whole byte.
fn push_bits(numbers: impl Iterator<Item = (u64, u32)>, out: &mut Vec<u8>) {
    let mut held = 0_u128;
    let mut count = 0;
    for (number, width) in numbers {
        held |= u128::from(number) << count;
        count += width;
        if count >= 64 {
            out.extend_from_slice(&(held as u64).to_le_bytes());
            held >>= 64;
            count -= 64;
        }
    }
    let rest = (held as u64).to_le_bytes();
    out.extend_from_slice(&rest[..count.div_ceil(8) as usize]);
}

/// Returns the number of `width` bits at bit position `at`.
#[inline]
fn take_bits(bytes: &[u8], at: usize, width: u32) -> u64 {
    if width == 0 {
        return 0;
    }
    let begin = (at / 8).min(bytes.len());
    let mut window = [0; 16];
    match bytes[begin..].first_chunk() {
        Some(whole) => window = *whole,
        None => window[..bytes.len() - begin].copy_from_slice(&bytes[begin..]),
    }
    (u128::from_le_bytes(window) >> (at % 8)) as u64 & (u64::MAX >> (u64::BITS - width))
}

fn bit(bytes: &[u8], at: usize) -> bool {
    bytes
        .get(at / 8)
        .is_some_and(|byte| byte >> (at % 8) & 1 == 1)
}

/// Appends a number as zigzag varint: seven bits per byte.
fn push_number(number: i64, out: &mut Vec<u8>) {
    let mut rest = (number << 1 ^ number >> 63) as u64;
    while rest >= 128 {
        out.push(rest as u8 | 128);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Reads the output of [`pack`]. Beyond the end it returns zeros.
struct PackedReader<'a> {
    rest: &'a [u8],
}

impl<'a> PackedReader<'a> {
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
        let mut number = 0_u64;
        let mut shift = 0;
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
    use proptest::collection;
    use proptest::prelude::*;

    fn packed(values: &[f64]) -> Vec<u8> {
        let mut out = Vec::new();
        Packer::default().pack(values, &mut out);
        out
    }

    fn unpacked(packed: &[u8], rows: usize) -> Vec<f64> {
        let mut out = Vec::new();
        unpack(packed, rows, &mut out);
        out
    }

    #[test]
    fn usual_series_pack_well() {
        let sizes = [
            // Counters with a constant and a varying rate, memory pages, centiseconds.
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
            // A value that changes once.
            packed(
                &(0..56)
                    .map(|n| f64::from(u8::from(n > 20)) * 77.0)
                    .collect::<Vec<_>>(),
            ),
            // Microseconds converted to seconds by multiplication: every other value is next to its
            // decimal number.
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

    /// Constant, rising and random values.
    fn series() -> impl Strategy<Value = Vec<f64>> {
        let steps = (value(), collection::vec((0_u8..4, -50_i32..5000), 0..100)).prop_map(
            |(first, steps)| {
                let mut value = first;
                steps
                    .into_iter()
                    .map(|(kind, step)| {
                        value += if kind == 0 { 0.0 } else { f64::from(step) };
                        if kind == 3 && step < 100 {
                            STALE
                        } else {
                            value
                        }
                    })
                    .collect()
            },
        );
        prop_oneof![steps, collection::vec(value(), 0..100)]
    }

    proptest! {
        #[test]
        fn unpacking_returns_the_packed_values(values in series()) {
            let bits = |values: &[f64]| {
                values
                    .iter()
                    .map(|value| value.to_bits())
                    .collect::<Vec<_>>()
            };
            prop_assert_eq!(
                bits(&unpacked(&packed(&values), values.len())),
                bits(&values)
            );
        }

        #[test]
        fn unpacking_arbitrary_bytes_does_not_panic(bytes: Vec<u8>, rows in 0_usize..200) {
            prop_assert_eq!(unpacked(&bytes, rows).len(), rows);
        }
    }
}
