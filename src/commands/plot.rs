//! Plots series in a terminal: up to four as curves, more as one line each.

use serde_json::Value;
use takt_api::QueryData;
use takt_questions::sparkline::{bars, number};

/// Number of series that are drawn as curves; more series get one line each.
const CURVES: usize = 4;

/// Height of a curve, in rows.
const ROWS: usize = 8;

/// Maximum number of series that are drawn; further ones are only counted.
const MOST: usize = 40;

/// One series: its name and its points, as seconds and value.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Returns the plot of a range query, `width` characters wide.
pub fn plot(data: &QueryData, width: usize) -> String {
    let lines: Vec<Line> = data
        .result
        .as_array()
        .into_iter()
        .flatten()
        .map(line)
        .collect();
    let times = lines
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| point.0);

    // The axis is that of the points, as the answer does not say what was asked.
    let Some((from, to)) = bounds(times) else {
        return "no values\n".to_owned();
    };

    let mut out = String::new();
    if lines.len() <= CURVES {
        for line in &lines {
            curve(line, from, to, width, &mut out);
        }
    } else {
        sparks(&lines, from, to, width, &mut out);
    }

    let from = instant(from);
    let to = instant(to);
    out.push_str(&format!(
        "{from}{to:>rest$}\n",
        rest = width.saturating_sub(from.len()).max(to.len() + 1)
    ));
    out
}

fn line(series: &Value) -> Line {
    let labels = series["metric"].as_object().into_iter().flatten();
    let mut metric = String::new();
    let mut pairs = Vec::new();
    for (name, value) in labels {
        let value = value.as_str().unwrap_or_default();
        match name.as_str() {
            "__name__" => metric = value.to_owned(),
            name => pairs.push(format!("{name}=\"{value}\"")),
        }
    }

    let name = if pairs.is_empty() && !metric.is_empty() {
        metric
    } else {
        format!("{metric}{{{}}}", pairs.join(","))
    };

    let points = series["values"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|point| {
            let value = match point[1].as_str()? {
                // One such value would flatten all others.
                "+Inf" | "-Inf" | "NaN" => return None,
                number => number.parse().ok()?,
            };
            Some((point[0].as_f64()?, value))
        })
        .collect();

    Line { name, points }
}

fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |bounds, value| match bounds {
        None => Some((value, value)),
        Some((least, most)) => Some((f64::min(least, value), f64::max(most, value))),
    })
}

/// Returns the mean of each of `columns` equal parts of the time; `None` for parts without values.
fn columns(line: &Line, from: f64, to: f64, columns: usize) -> Vec<Option<f64>> {
    let mut sums = vec![(0.0, 0_u32); columns];
    for (at, value) in &line.points {
        // A single instant has no length to divide by.
        let share = if to > from {
            (at - from) / (to - from)
        } else {
            0.0
        };
        let (sum, count) = &mut sums[((share * columns as f64) as usize).min(columns - 1)];
        *sum += value;
        *count += 1;
    }
    sums.into_iter()
        .map(|(sum, count)| (count > 0).then(|| sum / f64::from(count)))
        .collect()
}

/// Draws a curve of dots; each character has two columns and four rows of dots.
fn curve(line: &Line, from: f64, to: f64, width: usize, out: &mut String) {
    let Some((least, most)) = bounds(line.points.iter().map(|point| point.1)) else {
        return;
    };

    let scale = [number(most), number(least)];
    let margin = scale.iter().map(String::len).max().unwrap_or(0);
    let dots = width.saturating_sub(margin + 2).max(10) * 2;
    let mut canvas = vec![vec![0_u8; dots / 2]; ROWS];
    let height = ROWS * 4 - 1;
    let mut before: Option<usize> = None;

    for (x, value) in columns(line, from, to, dots).into_iter().enumerate() {
        let Some(value) = value else { continue };
        // A constant series is a line in the middle.
        let share = if most > least {
            (value - least) / (most - least)
        } else {
            0.5
        };
        let y = height - (share * height as f64).round() as usize;

        // Steep parts are joined to a continuous line.
        let last = before.unwrap_or(y);
        for y in y.min(last)..=y.max(last) {
            canvas[y / 4][x / 2] |= dot(x % 2, y % 4);
        }
        before = Some(y);
    }

    out.push_str(&format!("{}\n", line.name));
    for (row, cells) in canvas.iter().enumerate() {
        let label = match row {
            0 => scale[0].as_str(),
            _ if row == ROWS - 1 => scale[1].as_str(),
            _ => "",
        };
        let cells: String = cells
            .iter()
            .map(|&dots| char::from_u32(0x2800 + u32::from(dots)).unwrap_or(' '))
            .collect();
        out.push_str(&format!("{label:>margin$} │{cells}\n"));
    }
}

/// Returns the bit of a dot in a Braille character.
fn dot(x: usize, y: usize) -> u8 {
    const BITS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
    BITS[x][y]
}

/// Draws one line for each series, all on one scale, with minimum, maximum and last value.
fn sparks(lines: &[Line], from: f64, to: f64, width: usize, out: &mut String) {
    let all = lines
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| point.1);
    let (least, most) = bounds(all).unwrap_or((0.0, 0.0));

    let names = lines
        .iter()
        .take(MOST)
        .map(|line| line.name.chars().count())
        .max()
        .unwrap_or(0)
        // Long names are cut, as the picture needs half of the line.
        .min(width / 2);
    let bars = width.saturating_sub(names + 36).max(10);

    out.push_str(&format!(
        "{:names$} {:bars$} {:>10} {:>10} {:>10}\n",
        "", "", "min", "max", "last"
    ));

    for line in lines.iter().take(MOST) {
        let name: String = line.name.chars().take(names).collect();
        let picture = self::bars(columns(line, from, to, bars), least, most);
        let (low, high) =
            bounds(line.points.iter().map(|point| point.1)).unwrap_or((f64::NAN, f64::NAN));
        let last = line.points.last().map_or(f64::NAN, |point| point.1);
        let [low, high, last] = [low, high, last].map(number);
        out.push_str(&format!(
            "{name:names$} {picture} {low:>10} {high:>10} {last:>10}\n"
        ));
    }

    if lines.len() > MOST {
        out.push_str(&format!(
            "and {} series more; use topk() to select some\n",
            lines.len() - MOST
        ));
    }
}

fn instant(seconds: f64) -> String {
    jiff::Timestamp::from_second(seconds as i64)
        .map_or_else(|_| seconds.to_string(), |at| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn data(series: usize) -> QueryData {
        let series = (0..series).map(|n| {
            let values: Vec<Value> = (0..5)
                .map(|t| json!([t * 60, (t + n).to_string()]))
                .collect();
            json!({
                "metric": {"__name__": "x", "n": n.to_string()},
                "values": values,
            })
        });
        QueryData {
            result_type: "matrix".into(),
            result: series.collect(),
        }
    }

    #[test]
    fn a_rising_line_rises() {
        let picture = plot(&data(1), 40);
        let lines: Vec<&str> = picture.lines().collect();
        assert_eq!(lines.len(), 1 + ROWS + 1, "{picture}");
        assert_eq!(lines[0], "x{n=\"0\"}");
        assert!(
            lines[1].starts_with("4 │") && lines[ROWS].starts_with("0 │"),
            "{picture}"
        );

        // Blank Braille characters before the first dot: the top is reached late.
        let blank = |line: &str| {
            line.chars()
                .skip(3)
                .take_while(|&c| c == '\u{2800}')
                .count()
        };
        assert!(blank(lines[1]) > blank(lines[ROWS]), "{picture}");
        assert!(
            lines[9].starts_with("1970-01-01T00:00:00Z")
                && lines[9].ends_with("1970-01-01T00:04:00Z")
        );
    }

    #[test]
    fn many_series_get_a_line_each() {
        let picture = plot(&data(50), 100);
        assert_eq!(picture.lines().count(), 1 + MOST + 2, "{picture}");
        assert!(picture.contains("and 10 series more"));
        assert!(
            picture
                .lines()
                .nth(1)
                .is_some_and(|line| line.starts_with("x{n=\"0\"}") && line.ends_with("4"))
        );
    }

    #[test]
    fn no_series_gives_no_values() {
        assert_eq!(plot(&data(0), 80), "no values\n");
        let one = json!([{
            "metric": {},
            "values": [[1, "NaN"], [2, "7"], [3, "+Inf"]],
        }]);

        // One value, and a terminal that is too narrow for anything.
        let picture = plot(
            &QueryData {
                result_type: "matrix".into(),
                result: one,
            },
            1,
        );
        assert!(picture.starts_with("{}\n7 │"), "{picture}");
    }
}
