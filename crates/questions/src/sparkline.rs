//! A row of bars for a few values, for terminals and messages.

/// Returns a bar for each value between `least` and `most`, and a gap for `None`.
pub fn bars(values: impl IntoIterator<Item = Option<f64>>, least: f64, most: f64) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let share = |value: f64| {
        // Equal values have no scale; the middle shows that they are known.
        if most > least {
            (value - least) / (most - least)
        } else {
            0.5
        }
    };
    // `most` itself would be the ninth bar.
    let bar = |value: f64| BARS[((share(value) * 8.0) as usize).min(7)];
    values
        .into_iter()
        .map(|value| value.map_or(' ', bar))
        .collect()
}

/// Prefixes of SI, the largest first.
const PREFIXES: [(f64, &str); 4] = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")];

/// Formats a number with four significant digits, and from a million on with a prefix of SI.
pub fn number(x: f64) -> String {
    match x.abs() {
        0.0 => "0".to_owned(),
        a if (1e-3..1e6).contains(&a) => {
            // Four digits: fewer decimals for larger numbers.
            let places = (3 - a.log10().floor() as i32).clamp(0, 6) as usize;
            let text = format!("{x:.places$}");
            if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                text
            }
        }
        a if (1e6..1e18).contains(&a) => {
            // The prefix is found, as the arm begins with the smallest.
            let prefix = PREFIXES.iter().find(|(least, _)| a >= *least);
            prefix.map_or_else(String::new, |(least, prefix)| number(x / least) + prefix)
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
            [0.0, 1.5, 1234.5678, 0.00012, 2.5e9, -2.0889e10, 1e18].map(number),
            [
                "0", "1.5", "1235", "1.200e-4", "2.5G", "-20.89G", "1.000e18"
            ]
        );
    }
}
