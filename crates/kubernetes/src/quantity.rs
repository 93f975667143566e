//! Quantities of Kubernetes: `100m`, `1Gi`, `1e3`, `2k`, `1.5`.
//!
//! The grammar is that of `k8s.io/apimachinery/pkg/api/resource`: a decimal number and a suffix, which is decimal (`n` to `E`),
//! binary (`Ki` to `Ei`) or an exponent (`e3`, `E3`). Kubernetes allows a sign; an amount that is reserved has none.

use takt_jobs::bounded;
use takt_model::shown::printable;

/// A parsed quantity, exact to a billionth of its unit (CPUs, bytes, devices). Smaller parts are rounded up, as Kubernetes does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity {
    nanos: u128,
}

/// A text that is not a quantity, or not one that a pod can reserve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not an amount: expected {expected}")]
pub struct QuantityError {
    text: String,
    expected: &'static str,
}

/// Largest quantity, in units. Sums of a few thousand of them fit into 128 bits of billionths.
const MAX_UNITS: u128 = 1 << 62;

const NANOS: u128 = 1_000_000_000;

/// Most significant digits of a number. Kubernetes keeps 18.
const MAX_DIGITS: usize = 19;

/// Suffixes, their power of two and their power of ten. An exponent is none of them.
const SUFFIXES: &[(&str, u32, i32)] = &[
    ("", 0, 0),
    ("n", 0, -9),
    ("u", 0, -6),
    ("m", 0, -3),
    ("k", 0, 3),
    ("M", 0, 6),
    ("G", 0, 9),
    ("T", 0, 12),
    ("P", 0, 15),
    ("E", 0, 18),
    ("Ki", 10, 0),
    ("Mi", 20, 0),
    ("Gi", 30, 0),
    ("Ti", 40, 0),
    ("Pi", 50, 0),
    ("Ei", 60, 0),
];

impl Quantity {
    /// Parses a quantity.
    ///
    /// # Errors
    /// The text is no quantity, is negative, or is larger than 2⁶² units.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let refused = |expected| QuantityError {
            text: printable(&bounded(text, 32)),
            expected,
        };
        let form = "a number such as 2, 1.5, 100m or 4Gi";

        let unsigned = text.strip_prefix('+').unwrap_or(text);
        if unsigned.starts_with('-') {
            return Err(refused("one that is not negative"));
        }

        let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
        let end = unsigned
            .find(|letter| !is_number(letter))
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + decimals.len() == 0 || decimals.contains('.') {
            return Err(refused(form));
        }

        let decimals = decimals.trim_end_matches('0');
        let digits = format!("{whole}{decimals}");
        let digits = digits.trim_start_matches('0');
        if digits.len() > MAX_DIGITS {
            return Err(refused("at most 19 digits"));
        }
        if digits.is_empty() {
            return scale(suffix)
                .map(|_| Self::default())
                .ok_or_else(|| refused(form));
        }

        let (two, ten) = scale(suffix).ok_or_else(|| refused(form))?;
        // At most 19 digits and 2⁶⁰ fit into 128 bits.
        let mantissa = digits.parse::<u128>().map_err(|_| refused(form))? << two;
        let places = i32::try_from(decimals.len()).map_err(|_| refused(form))?;
        let nanos = scaled(mantissa, ten - places + 9);

        match nanos {
            Some(nanos) if nanos <= MAX_UNITS * NANOS => Ok(Self { nanos }),
            _ => Err(refused("at most 2^62")),
        }
    }

    /// Returns a whole number of units.
    pub fn units(units: u64) -> Self {
        Self {
            nanos: u128::from(units) * NANOS,
        }
    }

    /// Returns the number of whole units that the quantity needs: 1.5 CPUs need 2.
    pub fn ceil(self) -> u64 {
        u64::try_from(self.nanos.div_ceil(NANOS)).unwrap_or(u64::MAX)
    }

    /// Returns the quantity in thousandths, rounded up.
    pub fn milli(self) -> u128 {
        self.nanos.div_ceil(NANOS / 1000)
    }

    /// Returns whether the quantity is 0.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Returns the sum. It saturates, because a file may list any number of containers.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_add(other.nanos),
        }
    }
}

/// Returns the power of two and the power of ten of a suffix.
fn scale(suffix: &str) -> Option<(u32, i32)> {
    let known = SUFFIXES.iter().find(|(known, ..)| *known == suffix);
    if let Some((_, two, ten)) = known {
        return Some((*two, *ten));
    }

    // `1E` is exa, `1E3` a thousand.
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let is_number =
        !digits.is_empty() && digits.len() <= 3 && digits.bytes().all(|d| d.is_ascii_digit());
    if !is_number {
        return None;
    }
    exponent.parse().ok().map(|ten| (0, ten))
}

/// Returns `mantissa` × 10^`ten`, rounded up. `None` if it is too large for 128 bits.
fn scaled(mantissa: u128, ten: i32) -> Option<u128> {
    let factor = 10_u128.checked_pow(ten.unsigned_abs());
    match factor {
        Some(factor) if ten >= 0 => mantissa.checked_mul(factor),
        Some(factor) => Some(mantissa.div_ceil(factor)),
        None if ten >= 0 => None,
        // A number that is not 0 and smaller than every factor.
        None => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nanos(text: &str) -> Option<u128> {
        Quantity::parse(text).ok().map(|quantity| quantity.nanos)
    }

    #[test]
    fn quantities_are_exact() {
        for (text, expected) in [
            ("0", 0),
            ("0.000", 0),
            ("0Gi", 0),
            ("100m", 100_000_000),
            ("1.5", 1_500_000_000),
            (".5", 500_000_000),
            ("5.", 5_000_000_000),
            ("+2", 2 * NANOS),
            ("2k", 2000 * NANOS),
            ("1e3", 1000 * NANOS),
            ("1E3", 1000 * NANOS),
            ("1.5e+2", 150 * NANOS),
            ("15e-1", 1_500_000_000),
            ("1Ki", 1024 * NANOS),
            ("1.5Gi", (3 << 29) * NANOS),
            ("1E", 1_000_000_000_000_000_000 * NANOS),
            ("4Ei", (1 << 62) * NANOS),
            ("100n", 100),
            ("250u", 250_000),
            // Less than a billionth is rounded up.
            ("0.1n", 1),
            ("1e-999", 1),
            ("0e999", 0),
            ("0000000000000000000000000000000000012", 12 * NANOS),
        ] {
            assert_eq!(nanos(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in [
            "",
            ".",
            "m",
            "Gi",
            "-1",
            "-0",
            "1.2.3",
            "1 Gi",
            "1gi",
            "1K",
            "1mi",
            "0x10",
            "1e",
            "1e+",
            "1e1000",
            "1e3Ki",
            "NaN",
            "inf",
            "4.1Ei",
            "8E",
            "1e30",
            "12345678901234567890",
            "١",
        ] {
            let error = Quantity::parse(text);
            assert!(error.is_err(), "{text}: {error:?}");
        }
        let error = Quantity::parse("-1").unwrap_err().to_string();
        assert_eq!(
            error,
            "'-1' is not an amount: expected one that is not negative"
        );
        let long = Quantity::parse(&"x\u{1b}".repeat(100)).unwrap_err();
        assert!(long.text.len() < 80 && !long.text.contains('\u{1b}'));
    }

    #[test]
    fn parts_of_a_unit_need_a_whole_one() {
        let ceil = |text| Quantity::parse(text).unwrap().ceil();
        assert_eq!(
            [ceil("0"), ceil("1n"), ceil("1"), ceil("1001m")],
            [0, 1, 1, 2]
        );
        assert_eq!(Quantity::parse("1.0001").unwrap().milli(), 1001);
    }

    proptest! {
        #[test]
        fn suffixes_mean_their_factors(number in 0..1_000_000_u64) {
            prop_assert_eq!(nanos(&format!("{number}m")), Some(u128::from(number) * 1_000_000));
            prop_assert_eq!(nanos(&format!("{number}Ki")), Some(u128::from(number) * 1024 * NANOS));
            prop_assert_eq!(nanos(&format!("{number}k")), nanos(&format!("{number}e3")));
            prop_assert_eq!(nanos(&format!("{number}000")), nanos(&format!("{number}k")));
            prop_assert_eq!(Quantity::parse(&number.to_string()).unwrap(), Quantity::units(number));
        }

        #[test]
        fn decimals_are_exact(whole in 0..1_000_000_u32, decimals in 0..1_000_000_000_u32) {
            let text = format!("{whole}.{decimals:09}");
            prop_assert_eq!(nanos(&text), Some(u128::from(whole) * NANOS + u128::from(decimals)));
        }

        #[test]
        fn any_text_is_a_quantity_or_refused(text in "[-+]?[0-9.]{0,24}[a-zA-Z0-9+-]{0,5}|\\PC*") {
            if let Ok(quantity) = Quantity::parse(&text) {
                prop_assert!(quantity.nanos <= MAX_UNITS * NANOS);
            }
        }
    }
}
