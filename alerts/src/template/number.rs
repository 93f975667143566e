//! Numbers as Go prints them.

/// `%g` in its shortest form, which is also `%v`: with an exponent below 1e-4 and from 1e6 on.
pub(super) fn print_float(value: f64) -> String {
    if let Some(text) = not_finite(value) {
        return text;
    }

    let text = format!("{value:e}");
    let exponent = exponent_of(&text);
    if value != 0.0 && !(-4..6).contains(&exponent) {
        let (mantissa, _) = text.split_once('e').unwrap_or((&text, ""));
        return with_exponent(mantissa, exponent);
    }
    format!("{value}")
}

/// `%e` in its shortest form: `9.5e+01`.
pub fn print_scientific(value: f64) -> String {
    not_finite(value).unwrap_or_else(|| {
        let text = format!("{value:e}");
        let (mantissa, _) = text.split_once('e').unwrap_or((&text, ""));
        with_exponent(mantissa, exponent_of(&text))
    })
}

/// `%.{digits}g`: that many digits, none of them trailing zeros.
pub(super) fn significant(value: f64, digits: usize) -> String {
    if let Some(text) = not_finite(value) {
        return text;
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = digits.max(1);

    let scientific = format!("{:.*e}", digits - 1, value);
    let exponent = exponent_of(&scientific);
    if exponent < -4 || exponent >= digits as i32 {
        let (mantissa, _) = scientific.split_once('e').unwrap_or((&scientific, ""));
        return with_exponent(trim_zeros(mantissa), exponent);
    }

    let decimals = usize::try_from(digits as i32 - 1 - exponent).unwrap_or(0);
    trim_zeros(&format!("{value:.decimals$}")).to_owned()
}

/// `%.{decimals}f`.
pub(super) fn fixed(value: f64, decimals: usize) -> String {
    not_finite(value).unwrap_or_else(|| format!("{value:.decimals$}"))
}

/// `%.{decimals}e`.
pub(super) fn scientific(value: f64, decimals: usize) -> String {
    not_finite(value).unwrap_or_else(|| {
        let text = format!("{value:.decimals$e}");
        let (mantissa, _) = text.split_once('e').unwrap_or((&text, ""));
        with_exponent(mantissa, exponent_of(&text))
    })
}

fn not_finite(value: f64) -> Option<String> {
    match value {
        value if value.is_nan() => Some("NaN".to_owned()),
        f64::INFINITY => Some("+Inf".to_owned()),
        f64::NEG_INFINITY => Some("-Inf".to_owned()),
        _ => None,
    }
}

fn exponent_of(scientific: &str) -> i32 {
    scientific
        .split_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok())
        .unwrap_or(0)
}

/// At least two digits of exponent, always with its sign.
fn with_exponent(mantissa: &str, exponent: i32) -> String {
    format!(
        "{mantissa}e{}{:02}",
        if exponent < 0 { '-' } else { '+' },
        exponent.abs()
    )
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}
