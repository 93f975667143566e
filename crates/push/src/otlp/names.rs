//! Names of metrics and labels, translated as Prometheus does by default
//! (`UnderscoreEscapingWithSuffixes`).

/// Kind of a metric, as far as it decides the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A gauge.
    Gauge,
    /// A sum that only grows.
    Counter,
    /// Histograms, summaries and sums that may fall.
    Other,
}

const UNITS: &[(&str, &str)] = &[
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tibibytes"),
    ("KBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("1", ""),
    ("%", "percent"),
];

/// Units after a slash.
const PER_UNITS: &[(&str, &str)] = &[
    ("s", "second"),
    ("m", "minute"),
    ("h", "hour"),
    ("d", "day"),
    ("w", "week"),
    ("mo", "month"),
    ("y", "year"),
];

/// Returns the name of a metric: words joined by underscores, with its unit, and `_total` for a
/// counter or `_ratio` for a gauge of the unit `1`.
pub fn metric_name(name: &str, unit: &str, kind: Kind) -> String {
    let is_separator = |letter: char| !letter.is_ascii_alphanumeric() && letter != ':';
    let mut words: Vec<String> = name
        .split(is_separator)
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();

    let (main, per) = unit.split_once('/').unwrap_or((unit, ""));
    let main = unit_word(main, UNITS);
    // Many names have their unit already.
    if !main.is_empty() && !words.contains(&main) {
        words.push(main);
    }

    let per = unit_word(per, PER_UNITS);
    if !per.is_empty() && !words.contains(&per) {
        words.extend(["per".to_owned(), per]);
    }

    let suffix = match kind {
        Kind::Counter => Some("total"),
        Kind::Gauge if unit == "1" => Some("ratio"),
        _ => None,
    };
    if let Some(suffix) = suffix {
        // The suffix comes last, wherever the word stood.
        words.retain(|word| word != suffix);
        words.push(suffix.to_owned());
    }

    let name = words.join("_");
    // A name cannot begin with a digit.
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        format!("_{name}")
    } else {
        name
    }
}

/// Returns the word of a unit; empty for units in braces.
fn unit_word(unit: &str, known: &[(&str, &str)]) -> String {
    let unit = unit.trim();
    // Braces are annotations such as `{request}`: what is counted, and no unit.
    if unit.contains(['{', '}']) {
        return String::new();
    }

    let word = known.iter().find(|(short, _)| *short == unit);
    let word = word.map_or(unit, |(_, word)| word);
    let parts: Vec<&str> = word
        .split(|letter: char| !letter.is_ascii_alphanumeric())
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("_")
}

/// Returns the name of a label: letters, digits and underscores.
pub fn label_name(key: &str) -> String {
    let name: String = key
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '_'
            }
        })
        .collect();

    if name.starts_with(|first: char| first.is_ascii_digit()) {
        format!("key_{name}")
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that Prometheus 3.14 gives.
    #[test]
    fn metrics_get_the_names_that_prometheus_gives() {
        for (name, unit, kind, expected) in [
            ("steps.done", "1", Kind::Counter, "steps_done_total"),
            ("util", "1", Kind::Gauge, "util_ratio"),
            ("queue.length", "1", Kind::Other, "queue_length"),
            ("my.gauge", "W", Kind::Gauge, "my_gauge_watts"),
            (
                "gpu.memory.used",
                "By",
                Kind::Other,
                "gpu_memory_used_bytes",
            ),
            (
                "net.io",
                "By/s",
                Kind::Counter,
                "net_io_bytes_per_second_total",
            ),
            ("step.duration", "s", Kind::Other, "step_duration_seconds"),
            ("a..b__c", "", Kind::Gauge, "a_b_c"),
            ("jobs", "{job}", Kind::Gauge, "jobs"),
            ("total.bytes", "By", Kind::Counter, "bytes_total"),
            ("2nd.try", "", Kind::Gauge, "_2nd_try"),
            ("gpu:util", "%", Kind::Gauge, "gpu:util_percent"),
            (
                "odd",
                "furlongs/fortnight",
                Kind::Gauge,
                "odd_furlongs_per_fortnight",
            ),
        ] {
            assert_eq!(metric_name(name, unit, kind), expected, "{name} {unit}");
        }
    }

    #[test]
    fn labels_have_letters_digits_and_underscores() {
        for (key, expected) in [
            ("a.b", "a_b"),
            ("0day", "key_0day"),
            ("gerät", "ger_t"),
            ("a..b", "a__b"),
            ("_x", "_x"),
        ] {
            assert_eq!(label_name(key), expected);
        }
    }
}
