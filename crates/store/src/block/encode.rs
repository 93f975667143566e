//! Stores values as integers. Exporters nearly always print decimal numbers with few digits.
//!
//! `12.75` becomes the mantissa 1275 with the divisor 100. Integers in order of time compress to
//! about two thirds of the same floats. `mantissa / divisor` must return the exact bits, which is
//! checked for every value. Other values (1/3, NaN, -0.0) are stored as floats.

use crate::is_stale;

/// 10^0 to 10^15. A double holds 15 to 16 digits.
const POWERS: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// Integers below this are exact as doubles.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Number of values that are not decimals after which a series is stored as floats, if they are
/// more than a quarter of the values so far.
const MISSES: usize = 8;

/// Encoding of the values of one series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scale {
    /// As integers: each value times this power of ten.
    Decimal(f64),
    /// As floats.
    Float,
}

impl Scale {
    /// Returns the encoding that suits most values.
    pub fn of(values: &[f64]) -> Self {
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

    /// Divisor of the mantissa.
    pub fn divisor(self) -> f64 {
        match self {
            Self::Decimal(power) => power,
            Self::Float => 1.0,
        }
    }

    /// Computes the mantissas of values. Returns whether all values have one; a caller needs
    /// [`Scale::split`] otherwise.
    pub fn mantissas(self, values: &[f64], out: &mut Vec<i64>) -> bool {
        out.clear();
        let Self::Decimal(power) = self else {
            return false;
        };
        out.extend(values.iter().map_while(|&value| mantissa(value, power)));
        out.len() == values.len()
    }

    /// Returns the two columns of a value: the mantissa or the float. Both are `None` at the end of
    /// a series.
    pub fn split(self, value: f64) -> (Option<i64>, Option<f64>) {
        if is_stale(value) {
            return (None, None);
        }
        let mantissa = match self {
            Self::Decimal(power) => mantissa(value, power),
            Self::Float => None,
        };
        (
            mantissa,
            if mantissa.is_none() {
                Some(value)
            } else {
                None
            },
        )
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
    use crate::STALE;
    use proptest::prelude::*;

    type Split = (Option<i64>, Option<f64>);

    fn split(values: &[f64]) -> (f64, Vec<Split>) {
        let scale = Scale::of(values);
        (
            scale.divisor(),
            values.iter().map(|&value| scale.split(value)).collect(),
        )
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
            let scale = Scale::of(&values);
            let mut mantissas = Vec::new();
            let all: Option<Vec<i64>> = values.iter().map(|&value| scale.split(value).0).collect();
            let has_all = scale.mantissas(&values, &mut mantissas);
            prop_assert_eq!(has_all.then_some(mantissas), all);
            for value in values {
                let back = match scale.split(value) {
                    (Some(mantissa), None) => mantissa as f64 / scale.divisor(),
                    (None, Some(float)) => float,
                    (None, None) => STALE,
                    both => return Err(TestCaseError::fail(format!("{both:?}"))),
                };
                prop_assert_eq!(back.to_bits(), value.to_bits());
            }
        }
    }
}
