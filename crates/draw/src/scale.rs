//! The scale of an axis.

/// Returns a round number above `most`, and round positions of lines below it.
pub fn scale(most: f64) -> Option<(f64, Vec<f64>)> {
    if most <= 0.0 || !most.is_finite() {
        return None;
    }

    let magnitude = 10_f64.powf(most.log10().floor());
    let step = [0.25, 0.5, 1.0, 2.0, 2.5, 5.0]
        .into_iter()
        .map(|step| step * magnitude)
        .find(|step| most / step <= 4.0)?;

    let lines = (most / step).ceil();
    Some((
        lines * step,
        (1..=lines as u32)
            .map(|line| f64::from(line) * step)
            .collect(),
    ))
}

/// Formats a number with at most four digits, for the space beside the axis.
pub fn beside_axis(value: f64) -> String {
    match value {
        // Without a fraction for whole numbers; the scale gives round ones.
        value if value >= 1e9 => format!("{} G", value / 1e9),
        value if value >= 1e6 => format!("{} M", value / 1e6),
        value if value >= 1e4 => format!("{} k", value / 1e3),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_beside_the_axis() {
        let names = [0.25, 15_000.0, 200_000.0, 2_500_000.0, 1e10].map(beside_axis);
        assert_eq!(names, ["0.25", "15 k", "200 k", "2.5 M", "10 G"]);
    }

    #[test]
    fn scales_are_round() {
        // From hundredths to billions: the scale is never more than twice the value.
        for most in [0.01, 0.3, 1.0, 7.0, 24.0, 96.0, 1234.0, 9.9e9] {
            let (highest, lines) = scale(most).unwrap();
            assert!(
                highest >= most && highest <= most * 2.0 && lines.len() <= 5,
                "{most}: {highest} {lines:?}"
            );
        }
        assert_eq!(scale(0.0), None);
    }
}
