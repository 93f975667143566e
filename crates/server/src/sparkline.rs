//! A row of bars for a few values, for terminals and messages.

/// Returns a bar for each value between `least` and `most`, and a gap for `None`.
pub fn bars(values: impl IntoIterator<Item = Option<f64>>, least: f64, most: f64) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let share = |value: f64| {
        if most > least {
            (value - least) / (most - least)
        } else {
            0.5
        }
    };
    let bar = |value: f64| BARS[((share(value) * 8.0) as usize).min(7)];
    values
        .into_iter()
        .map(|value| value.map_or(' ', bar))
        .collect()
}

/// Formats a number with four significant digits.
pub fn number(x: f64) -> String {
    match x.abs() {
        0.0 => "0".to_owned(),
        a if (1e-3..1e6).contains(&a) => {
            let places = (3 - a.log10().floor() as i32).clamp(0, 6) as usize;
            let text = format!("{x:.places$}");
            if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                text
            }
        }
        _ => format!("{x:.3e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        assert_eq!(
            [0.0, 1.5, 1234.5678, 0.00012, 2.5e9].map(number),
            ["0", "1.5", "1235", "1.200e-4", "2.500e9"]
        );
    }
}
