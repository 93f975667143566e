//! Numbers and durations for people: `humanize`, `humanize1024`, `humanizeDuration`.

use super::super::number::significant;

const LARGE: [&str; 8] = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
const LARGE_1024: [&str; 8] = ["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"];
const SMALL: [&str; 8] = ["m", "u", "n", "p", "f", "a", "z", "y"];

pub(super) fn humanize(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return significant(value, 4);
    }
    if value.abs() >= 1.0 {
        return scaled_down(value, 1000.0, &LARGE);
    }
    scaled_up(value)
}

pub(super) fn humanize_1024(value: f64) -> String {
    if value.abs() <= 1.0 || !value.is_finite() {
        significant(value, 4)
    } else {
        scaled_down(value, 1024.0, &LARGE_1024)
    }
}

pub(super) fn humanize_duration(value: f64) -> String {
    if !value.is_finite() {
        return significant(value, 4);
    }
    if value == 0.0 {
        return "0s".to_owned();
    }
    // As in Prometheus, a part of a second has a prefix: `250ms`.
    if value.abs() < 1.0 {
        return scaled_up(value) + "s";
    }

    let sign = if value < 0.0 { "-" } else { "" };
    let value = value.abs();
    let whole = value as i64;
    let days = whole / 86_400;
    let hours = whole / 3_600 % 24;
    let minutes = whole / 60 % 60;
    let seconds = whole % 60;

    match (days, hours, minutes) {
        (0, 0, 0) => format!("{sign}{}s", significant(value, 4)),
        (0, 0, _) => format!("{sign}{minutes}m {seconds}s"),
        (0, _, _) => format!("{sign}{hours}h {minutes}m {seconds}s"),
        _ => format!("{sign}{days}d {hours}h {minutes}m {seconds}s"),
    }
}

fn scaled_down(value: f64, step: f64, prefixes: &[&str]) -> String {
    let mut value = value;
    let mut prefix = "";
    for next in prefixes {
        if value.abs() < step {
            break;
        }
        (value, prefix) = (value / step, next);
    }
    significant(value, 4) + prefix
}

fn scaled_up(value: f64) -> String {
    let mut value = value;
    let mut prefix = "";
    for next in SMALL {
        if value.abs() >= 1.0 {
            break;
        }
        (value, prefix) = (value * 1000.0, next);
    }
    significant(value, 4) + prefix
}
