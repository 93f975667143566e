//! Formats numbers for people: on pages, in reports, mails and tables of commands.

/// Formats an amount: `1,234` from 100 on, `12.3` from 10 on, `0.12` below 10.
pub fn amount(value: f64) -> String {
    let magnitude = value.abs();
    // The limits are those at which rounding reaches one more digit: 9.996 must not become `10.00`.
    match magnitude {
        m if m >= 99.95 => whole(value.round()),
        m if m >= 9.995 => format!("{value:.1}"),
        m if m < 0.005 => "0".to_owned(),
        _ => format!("{value:.2}"),
    }
}

/// Formats a count: `76`, `1,234`.
pub fn count(value: u64) -> String {
    whole(value as f64)
}

/// Formats a ratio (0 to 1): `12 %`, `0.4 %`.
pub fn percent(ratio: f64) -> String {
    match ratio * 100.0 {
        value if value.abs() >= 9.95 => format!("{value:.0} %"),
        value if value.abs() < 0.05 => "0 %".to_owned(),
        value => format!("{value:.1} %"),
    }
}

/// Placeholder for an unknown value.
pub const UNKNOWN: &str = "–";

/// Formats a number; [`UNKNOWN`] for `None`.
pub fn known(value: Option<f64>, write: fn(f64) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), write)
}

/// Formats a duration: `45 s`, `12 min`, `3:05 h`, `2 d 4 h`.
pub fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    let hours = seconds / 3600.0;
    match seconds {
        s if s < 60.0 => format!("{s:.0} s"),
        _ if minutes < 60 => format!("{minutes} min"),
        _ if hours < 48.0 => format!("{}:{:02} h", minutes / 60, minutes % 60),
        _ => format!("{} d {} h", minutes / 1440, minutes / 60 % 24),
    }
}

/// Formats money: `12.50 EUR`.
pub fn money(value: f64, currency: &str) -> String {
    // Half a cent is no amount, and has no sign.
    let value = if value.abs() < 0.005 { 0.0 } else { value };
    let whole = if value.abs() >= 999.995 {
        whole(value.round())
    } else {
        format!("{value:.2}")
    };
    format!("{whole} {currency}")
}

/// Formats a month: `October 2026` for `2026-10`. Returns other periods unchanged.
pub fn month(period: &str) -> String {
    const NAMES: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];

    period
        .split_once('-')
        .filter(|(_, month)| month.len() == 2)
        .and_then(|(year, month)| {
            Some((
                year,
                NAMES.get(month.parse::<usize>().ok()?.checked_sub(1)?)?,
            ))
        })
        .map_or_else(
            || period.to_owned(),
            |(year, name)| format!("{name} {year}"),
        )
}

/// Formats a number without decimals: `76`, `1,234`.
pub fn whole(value: f64) -> String {
    with_separators(&format!("{value:.0}"))
}

/// Adds separators to the whole part of a number in digits: `39,049.2` for `39049.2`. Returns other
/// texts unchanged.
pub fn with_separators(number: &str) -> String {
    let begin = number.find(|c: char| c.is_ascii_digit()).unwrap_or(0);
    let (sign, rest) = number.split_at(begin);
    let end = rest.find(|c: char| !c.is_ascii_digit());
    let (digits, rest) = rest.split_at(end.unwrap_or(rest.len()));

    // Texts that only begin with digits, such as dates and versions, stay as they are.
    let is_number = matches!(sign, "" | "-" | "<")
        && rest
            .strip_prefix('.')
            .unwrap_or(rest)
            .bytes()
            .all(|byte| byte.is_ascii_digit());
    if !is_number {
        return number.to_owned();
    }

    let mut out = String::from(sign);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let amounts = [
            0.0,
            0.004,
            0.124,
            9.99,
            9.996,
            99.94,
            99.96,
            1234.4,
            1_234_567.0,
            -1234.0,
        ]
        .map(amount);
        assert_eq!(
            amounts,
            [
                "0",
                "0",
                "0.12",
                "9.99",
                "10.0",
                "99.9",
                "100",
                "1,234",
                "1,234,567",
                "-1,234"
            ]
        );
        assert_eq!(
            [0.0, 0.0004, 0.004, 0.0994, 0.5, 1.2].map(percent),
            ["0 %", "0 %", "0.4 %", "9.9 %", "50 %", "120 %"]
        );
        let durations = [0.0, 59.0, 60.0, 3599.0, 3600.0, 11_100.0, 187_200.0].map(duration);
        assert_eq!(
            durations,
            [
                "0 s", "59 s", "1 min", "1:00 h", "1:00 h", "3:05 h", "2 d 4 h"
            ]
        );
        assert_eq!(money(12.5, "EUR"), "12.50 EUR");
        assert_eq!(money(1234.6, "EUR"), "1,235 EUR");
        assert_eq!(month("2026-10"), "October 2026");
        assert_eq!(
            month("2026-10-01 to 2026-10-15"),
            "2026-10-01 to 2026-10-15"
        );
        assert_eq!(
            [
                "39049.2", "-1234567", "999.75", "<0.1", "", "1,234", "12 %", "2026-10", "1e6",
            ]
            .map(with_separators),
            [
                "39,049.2",
                "-1,234,567",
                "999.75",
                "<0.1",
                "",
                "1,234",
                "12 %",
                "2026-10",
                "1e6"
            ]
        );
        // A remainder of a float sum must not show as `-0.00`.
        assert_eq!(money(-0.004, "EUR"), "0.00 EUR");
        assert_eq!(month("2026-13"), "2026-13");
    }
}
