//! Stores values as integers. Exporters nearly always print decimal numbers with few digits.
//!
//! `12.75` becomes the mantissa 1275 with the divisor 100. Integers in order of time compress to
//! about two thirds of the same floats. `mantissa / divisor` must return the exact bits, which is
//! checked for every value. Other values (1/3, NaN, -0.0) are stored as floats.

use crate::{STALE, is_stale};

/// 10^0 to 10^15. A double holds 15 to 16 digits.
const POWERS: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// Integers below this are exact as doubles.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Number of values that are not decimals after which a series is stored as floats, if they are
/// more than a quarter of the values so far.
const MISSES: usize = 8;

/// Encodes the values of one series after another.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    mantissas: Vec<i64>,
    /// Encoding of values that are not all decimals.
    mixed: Option<Scale>,
    /// Number of decimal places, if all values are decimals.
    digits: usize,
}

impl Encoder {
    /// Encodes values.
    pub fn encode(&mut self, values: &[f64]) {
        self.mixed = if self.encode_decimals(values) {
            None
        } else {
            Some(Scale::of(values))
        };
    }

    /// Divisor of the mantissas.
    pub fn divisor(&self) -> f64 {
        self.mixed
            .map_or(POWERS[self.digits], |scale| scale.divisor())
    }

    /// The mantissas, if all values have one. A caller needs [`Encoder::split`] otherwise.
    pub fn mantissas(&self) -> Option<&[i64]> {
        self.mixed.is_none().then_some(&self.mantissas)
    }

    /// Returns the two columns of a value: the mantissa or the float. Both are `None` at the end of
    /// a series.
    pub fn split(&self, value: f64) -> (Option<i64>, Option<f64>) {
        self.mixed
            .unwrap_or(Scale::Decimal(POWERS[self.digits]))
            .split(value)
    }

    /// Computes the mantissas. Returns `false` if a value has none.
    fn encode_decimals(&mut self, values: &[f64]) -> bool {
        self.mantissas.clear();
        self.mantissas.reserve(values.len());
        self.digits = 0;
        let mut last = STALE.to_bits();

        for &value in values {
            let repeated = self
                .mantissas
                .last()
                .filter(|_| value.to_bits() == last)
                .copied();
            last = value.to_bits();

            let mantissa = loop {
                match repeated.or_else(|| mantissa(value, POWERS[self.digits])) {
                    Some(mantissa) => break mantissa,
                    None if self.digits + 1 == POWERS.len() || !value.is_finite() => return false,
                    None if !self.add_digit() => return false,
                    None => {}
                }
            };

            self.mantissas.push(mantissa);
        }
        true
    }

    /// Multiplies all mantissas by ten. Returns `false` if one would be too large. A mantissa ten
    /// times as large, divided by a power ten times as large, is the same double: both are the one
    /// nearest to the same number.
    fn add_digit(&mut self) -> bool {
        self.digits += 1;
        self.mantissas.iter_mut().all(|mantissa| {
            *mantissa *= 10;
            mantissa.unsigned_abs() < EXACT as u64
        })
    }
}

/// Encoding of the values of one series.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scale {
    /// As integers: each value times this power of ten.
    Decimal(f64),
    /// As floats.
    Float,
}

impl Scale {
    /// Returns the encoding that suits most values.
    fn of(values: &[f64]) -> Self {
        let mut digits = 0;
        let mut misses = 0;
        let mut last = 0;

        for (seen, &value) in values.iter().enumerate() {
            let is_old = value.to_bits() == last;
            last = value.to_bits();
            if is_old || !value.is_finite() || mantissa(value, POWERS[digits]).is_some() {
                continue;
            }
            match (digits + 1..POWERS.len())
                .find(|&digits| mantissa(value, POWERS[digits]).is_some())
            {
                Some(more) => digits = more,
                None => misses += 1,
            }

            if misses > MISSES && 4 * misses > seen {
                return Self::Float;
            }
        }
        Self::Decimal(POWERS[digits])
    }

    fn divisor(self) -> f64 {
        match self {
            Self::Decimal(power) => power,
            Self::Float => 1.0,
        }
    }

    fn split(self, value: f64) -> (Option<i64>, Option<f64>) {
        if is_stale(value) {
            return (None, None);
        }
        let mantissa = match self {
            Self::Decimal(power) => mantissa(value, power),
            Self::Float => None,
        };
        let exact = if mantissa.is_none() {
            Some(value)
        } else {
            None
        };
        (mantissa, exact)
    }
}

fn mantissa(value: f64, power: f64) -> Option<i64> {
    let scaled = value * power;
    // `round` would be a call into libm on the oldest x86-64. The last line of this function
    // detects a wrong result.
    let mantissa = (scaled + 0.5_f64.copysign(scaled)) as i64;
    (scaled.abs() < EXACT && (mantissa as f64 / power).to_bits() == value.to_bits())
        .then_some(mantissa)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Split = (Option<i64>, Option<f64>);

    fn split(values: &[f64]) -> (f64, Vec<Split>) {
        let mut encoder = Encoder::default();
        encoder.encode(values);
        let cell = |(row, &value)| match encoder.mantissas() {
            Some(mantissas) => (Some(mantissas[row]), None),
            None => encoder.split(value),
        };
        let cells = values.iter().enumerate().map(cell).collect();
        (encoder.divisor(), cells)
    }

    #[test]
    fn decimals_become_integers() {
        assert_eq!(
            split(&[12.75, 3.0, -0.5]),
            (
                100.0,
                vec![(Some(1275), None), (Some(300), None), (Some(-50), None)]
            )
        );
        assert_eq!(split(&[1.5e15, 7.0]).0, 1.0);
        assert_eq!(
            split(&[7.0, 7.0, 0.25, 0.25, 7.0]).1,
            [700, 700, 25, 25, 700].map(|mantissa| (Some(mantissa), None))
        );
    }

    #[test]
    fn values_too_far_apart_for_one_divisor_stay_exact() {
        let values = [4.5e15, 0.25, f64::NAN];
        let (divisor, cells) = split(&values);
        assert_eq!(divisor, 100.0);
        assert_eq!(cells[0], (None, Some(4.5e15)));
        assert_eq!(cells[1], (Some(25), None));
    }

    #[test]
    fn other_values_stay_floats_and_an_end_is_null() {
        let (divisor, cells) = split(&[0.1, 1.0 / 3.0, -0.0, f64::INFINITY, STALE]);
        assert_eq!(divisor, 10.0);
        assert_eq!(cells[..2], [(Some(1), None), (None, Some(1.0 / 3.0))]);
        assert_eq!(cells[2].1.map(f64::to_bits), Some((-0.0_f64).to_bits()));
        assert_eq!(cells[3..], [(None, Some(f64::INFINITY)), (None, None)]);
    }

    #[test]
    fn a_series_of_fractions_is_stored_as_floats() {
        let values: Vec<f64> = (1..100).map(|n| 1.0 / (f64::from(n) * 3.0)).collect();
        assert_eq!(Scale::of(&values), Scale::Float);
    }

    proptest! {
        #[test]
        fn every_value_comes_back_bit_for_bit(
            values in proptest::collection::vec(
                prop_oneof![any::<f64>(), (-1_000_000_i64..1_000_000, 0_u32..8).prop_map(|(m, d)| m as f64 / 10_f64.powi(d as i32))],
                1..60,
            )
        ) {
            let (divisor, cells) = split(&values);
            for (cell, value) in cells.into_iter().zip(values) {
                let back = match cell {
                    (Some(mantissa), None) => mantissa as f64 / divisor,
                    (None, Some(float)) => float,
                    (None, None) => STALE,
                    both => return Err(TestCaseError::fail(format!("{both:?}"))),
                };
                prop_assert_eq!(back.to_bits(), value.to_bits());
            }
        }
    }
}
