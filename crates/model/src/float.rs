//! Floats as Go prints them, and the labels whose values are floats.

/// Labels with a float as value: the upper bound of a bucket, and the rank of a quantile.
const FLOAT_LABELS: [&str; 2] = ["le", "quantile"];

/// A float as Go prints it with `%g` and the fewest digits.
pub fn format_g(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => non_finite(value).to_owned(),
        0.0 | 1e-4..1e6 => format!("{value}"),
        _ => exponential(value),
    }
}

/// A finite float as Go prints it with `%e` and the fewest digits: the exponent has a sign and at least two digits.
pub fn exponential(value: f64) -> String {
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let (sign, digits) = exponent
        .strip_prefix('-')
        .map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// A float as OpenMetrics writes it into a label: always with a fraction or an exponent.
pub fn format_open_metrics(value: f64) -> String {
    // Zero has no sign in a label.
    let text = format_g(if value == 0.0 { 0.0 } else { value });

    if value.is_finite() && !text.contains(['e', '.']) {
        text + ".0"
    } else {
        text
    }
}

/// The name of an infinity, or `NaN`.
pub fn non_finite(value: f64) -> &'static str {
    match value {
        f64::INFINITY => "+Inf",
        f64::NEG_INFINITY => "-Inf",
        _ => "NaN",
    }
}

/// Parses a float in Go's decimal syntax. Fails for a number that overflows, and for a NaN with a sign.
pub fn parse_float(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    let is_word = text
        .bytes()
        .find(|byte| !b"+-".contains(byte))
        .is_some_and(|byte| byte.is_ascii_alphabetic());
    let is_valid = match value {
        // Rust parses 1e400 as infinity, where Go reports an overflow. Only a word such as `+Inf`
        // means it.
        value if value.is_infinite() => is_word,
        value if value.is_nan() => text.starts_with(['n', 'N']),
        _ => true,
    };
    is_valid.then_some(value)
}

/// Whether the values of the label `name` are floats: the bounds of buckets, and quantiles.
pub fn is_float_label(name: &str) -> bool {
    FLOAT_LABELS.contains(&name)
}

/// The one spelling of a float label's value: `1.0` for `1`, `1e+06` for `1000000`. `None` if the value is not a
/// float.
pub fn normal_spelling(value: &str) -> Option<String> {
    parse_float(value).map(format_open_metrics)
}

/// Whether the value of a float label has its one spelling, or is not a float. Bounds such as `0.25` and `10.0` need no
/// parsing.
pub fn is_normal_spelling(value: &str) -> bool {
    let is_short = value.len() <= 7
        && value
            .bytes()
            .all(|byte| byte == b'.' || byte.is_ascii_digit());
    if is_short
        && let Some((whole, fraction)) = value.split_once('.')
        && !fraction.contains('.')
        && (fraction == "0" || !(fraction.is_empty() || fraction.ends_with('0')))
        && (whole == "0" || !(whole.is_empty() || whole.starts_with('0')))
        // Below 1e-4 the one spelling has an exponent.
        && !value.starts_with("0.000")
    {
        return true;
    }

    normal_spelling(value).is_none_or(|normal| normal == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_has_one_spelling() {
        // Prometheus 3.14 stores these bounds in this form.
        for (written, stored) in [
            ("1", Some("1.0")),
            ("1e6", Some("1e+06")),
            ("5e-05", Some("5e-05")),
            ("0.10", Some("0.1")),
            ("100000", Some("100000.0")),
            ("123456789", Some("1.23456789e+08")),
            ("Inf", Some("+Inf")),
            ("+Inf", Some("+Inf")),
            ("nan", Some("NaN")),
            ("-0", Some("0.0")),
            ("1e400", None),
            ("-nan", None),
            ("abc", None),
            ("", None),
        ] {
            assert_eq!(normal_spelling(written).as_deref(), stored, "{written}");
            assert_eq!(
                is_normal_spelling(written),
                stored.is_none_or(|stored| stored == written),
                "{written}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn what_needs_no_parsing_is_normal(value in "[0-9]{1,4}\\.[0-9]{0,4}") {
            let normal = normal_spelling(&value).expect("a number");
            proptest::prop_assert_eq!(is_normal_spelling(&value), normal == value);
        }
    }
}
