//! Random samples and random queries, the same for the same seed.

use takt_model::Labels;
use takt_model::Timestamp;
use takt_promql::Memory;

/// First instant with samples, milliseconds since 1970; a multiple of every step in use.
pub const BEGIN_MS: i64 = 1_699_999_200_000;
/// Minutes of samples.
pub const MINUTES: i64 = 90;

/// A small linear congruential generator: good enough to choose, and the same everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(
            seed.wrapping_mul(2_862_933_555_777_941_757)
                .wrapping_add(3_037_000_493),
        )
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    pub fn ratio(&mut self) -> f64 {
        self.below(1 << 30) as f64 / (1u64 << 30) as f64
    }

    pub fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

/// Series as a cluster has them. No sample lies on a whole second, so none lies on the end of a window of whole seconds
/// at a whole second: there Prometheus 2 and 3 differ.
pub fn samples() -> Vec<(Labels, Vec<(i64, f64)>)> {
    let mut random = Random::new(7);
    let mut series = Vec::new();
    let mut add =
        |name: &str, labels: &[(&str, &str)], values: &mut dyn FnMut(i64) -> Option<f64>| {
            // Each series has its own phase, so that no two samples share an instant.
            let mut at = BEGIN_MS + 137 + 31 * series.len() as i64;
            let labels: Labels = labels.iter().copied().chain([("__name__", name)]).collect();
            let mut samples = Vec::new();
            for step in 0..MINUTES * 4 {
                samples.extend(values(step).map(|value| (at, value)));
                // Scrapes are not exact; a perfect rhythm would hide faults of interpolation.
                at += 15_000 + if step % 7 == 0 { 3 } else { 0 };
            }
            series.push((labels, samples));
        };
    for node in ["g01", "g02", "g03"] {
        for code in ["200", "500"] {
            let mut count = 0.0;
            add(
                "requests_total",
                &[("node", node), ("code", code)],
                &mut |step| {
                    // A counter that falls to 0 in the middle of a window.
                    let restarts = node == "g02" && step % 90 == 60;
                    count = if restarts {
                        0.0
                    } else {
                        count + (random.ratio() * 20.0).floor()
                    };
                    // Single scrapes fail.
                    (step % 41 != 3).then_some(count)
                },
            );
        }
    }
    for (at, node) in ["g01", "g02", "g03", "g04"].into_iter().enumerate() {
        for gpu in ["0", "1"] {
            let mut value = 40.0 + at as f64;
            add(
                "temperature_celsius",
                &[("node", node), ("gpu", gpu)],
                &mut |step| {
                    value += random.ratio() * 4.0 - 2.0;
                    Some(if node == "g04" && gpu == "0" && step % 50 == 9 {
                        f64::NAN
                    } else {
                        value
                    })
                },
            );
        }
        add(
            "node_info",
            &[("node", node), ("rack", if at < 2 { "r1" } else { "r2" })],
            &mut |_| Some(1.0),
        );
        add("up", &[("node", node), ("job", "exporter")], &mut |step| {
            Some(f64::from(u8::from(step % 30 > at as i64)))
        });
        add("sparse", &[("node", node)], &mut |step| {
            // Far from zero and rising: Prometheus 2 and 3 differ in where a counter near zero begins.
            (step % 60 < 12).then(|| 1e6 + step as f64 + random.ratio() / 2.0)
        });
    }
    for node in ["g01", "g02"] {
        let mut counts = [0.0; 5];
        let mut grow = |bucket: usize, step: i64, random: &mut Random| {
            if bucket == 0 && step >= 0 {
                let mut more = 0.0;
                for count in &mut counts {
                    more += (random.ratio() * 5.0).floor();
                    *count += more;
                }
            }
            counts[bucket]
        };

        // All buckets of a step grow together, so the table is made before the series.
        let mut table = Vec::new();
        for step in 0..MINUTES * 4 {
            table.push([0, 1, 2, 3, 4].map(|bucket| grow(bucket, step, &mut random)));
        }
        for (bucket, le) in ["0.1", "0.5", "1", "5", "+Inf"].into_iter().enumerate() {
            add(
                "latency_bucket",
                &[("node", node), ("le", le)],
                &mut |step| Some(table[step as usize][bucket]),
            );
        }
        add("latency_count", &[("node", node)], &mut |step| {
            Some(table[step as usize][4])
        });
        add("latency_sum", &[("node", node)], &mut |step| {
            Some(table[step as usize][4] * 0.7)
        });
    }
    for (name, label, value) in [
        ("target_info", "site", "physics"),
        ("build_info", "version", "7"),
    ] {
        add(name, &[("job", "exporter"), (label, value)], &mut |step| {
            (step % 100 < 80).then_some(1.0)
        });
    }
    // Values for which Go's and Rust's arithmetic may differ.
    for (kind, value) in [
        ("inf", f64::INFINITY),
        ("neg", f64::NEG_INFINITY),
        ("nan", f64::NAN),
        ("zero", 0.0),
    ] {
        add("odd", &[("kind", kind)], &mut |step| {
            Some(if step % 20 == 0 { 1.5 } else { value })
        });
    }
    series
}

/// The samples as our evaluator takes them.
pub fn memory() -> Memory {
    let mut memory = Memory::new();
    for (labels, samples) in samples() {
        memory.add(
            labels,
            samples
                .into_iter()
                .map(|(at, value)| (Timestamp(at), Some(value))),
        );
    }
    memory
}

const METRICS: [&str; 8] = [
    "requests_total",
    "temperature_celsius",
    "node_info",
    "up",
    "sparse",
    "latency_bucket",
    "latency_count",
    "odd",
];
const LABELS: [&str; 7] = ["node", "gpu", "code", "rack", "le", "kind", "job"];

/// Writes random queries of the stable language.
pub struct Queries {
    pub random: Random,
}

impl Queries {
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
        }
    }

    /// A query of type scalar or instant vector.
    pub fn query(&mut self) -> String {
        let depth = 1 + self.random.below(4) as u32;
        match self.random.below(20) {
            0 => self.scalar(depth),
            _ => self.vector(depth),
        }
    }

    fn selector(&mut self) -> String {
        let name = self.random.pick(&METRICS);
        let matchers = match self.random.below(6) {
            0 => "{node=\"g01\"}",
            1 => "{node=~\"g0[12]\"}",
            2 => "{node!=\"g03\", le!~\"1|5\"}",
            3 => "{gpu=\"\"}",
            _ => "",
        };
        format!("{name}{matchers}")
    }

    fn shift(&mut self) -> String {
        match self.random.below(12) {
            0 => " offset 3m".to_owned(),
            1 => " offset -2m".to_owned(),
            2 => format!(" @ {}", BEGIN_MS / 1000 + 1807),
            3 => " @ end()".to_owned(),
            4 => format!(" @ {} offset 1m", BEGIN_MS / 1000 + 3007),
            _ => String::new(),
        }
    }

    fn labels(&mut self) -> String {
        let count = self.random.below(3);
        (0..count)
            .map(|_| self.random.pick(&LABELS))
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn scalar(&mut self, depth: u32) -> String {
        // Without depth only the leaves, so that the query ends.
        match self.random.below(if depth == 0 { 3 } else { 7 }) {
            0 => format!("{}", self.random.below(10)),
            1 => format!("{:.2}", self.random.ratio() * 4.0 - 1.0),
            2 => self
                .random
                .pick(&["time()", "pi()", "Inf", "NaN", "-1"])
                .to_owned(),
            3 => format!("scalar({})", self.vector(depth - 1)),
            4 => {
                let op = self.random.pick(&["== bool", "< bool", ">= bool"]);
                format!(
                    "({} {op} {})",
                    self.scalar(depth - 1),
                    self.scalar(depth - 1)
                )
            }
            _ => {
                let op = self.random.pick(&["+", "-", "*", "/", "%", "^", "atan2"]);
                format!(
                    "({} {op} {})",
                    self.scalar(depth - 1),
                    self.scalar(depth - 1)
                )
            }
        }
    }

    /// A range vector. Widths and steps of subqueries are such that no step lies on the end of a window when the query
    /// is evaluated seven seconds after a full minute.
    fn window(&mut self, depth: u32) -> String {
        match self.random.below(if depth == 0 { 3 } else { 4 }) {
            3 => {
                let width = self.random.pick(&["5m", "10m", "20m"]);
                let step = self.random.pick(&["30s", "1m", "2m"]);
                format!(
                    "({})[{width}:{step}]{}",
                    self.vector(depth - 1),
                    self.shift()
                )
            }
            _ => {
                let width = self.random.pick(&["30s", "1m", "5m", "17m"]);
                format!("{}[{width}]{}", self.selector(), self.shift())
            }
        }
    }

    fn vector(&mut self, depth: u32) -> String {
        if depth == 0 {
            return match self.random.below(12) {
                0 => format!("vector({})", self.scalar(0)),
                _ => format!("{}{}", self.selector(), self.shift()),
            };
        }
        let inner = depth - 1;
        match self.random.below(16) {
            0 | 1 => {
                let function = self.random.pick(&[
                    "rate", "increase", "irate", "delta", "idelta", "deriv", "changes", "resets",
                ]);
                format!("{function}({})", self.window(inner))
            }
            2 | 3 => {
                let function = self.random.pick(&[
                    "avg_over_time",
                    "sum_over_time",
                    "min_over_time",
                    "max_over_time",
                    "count_over_time",
                    "stddev_over_time",
                    "stdvar_over_time",
                    "last_over_time",
                    "present_over_time",
                    "absent_over_time",
                ]);
                format!("{function}({})", self.window(inner))
            }
            4 => match self.random.below(2) {
                0 => format!(
                    "quantile_over_time({}, {})",
                    self.scalar(0),
                    self.window(inner)
                ),
                _ => format!("predict_linear({}, {})", self.window(inner), self.scalar(0)),
            },
            5 => {
                let function = self.random.pick(&[
                    "abs",
                    "ceil",
                    "floor",
                    "exp",
                    "ln",
                    "log2",
                    "log10",
                    "sqrt",
                    "sgn",
                    "sin",
                    "cos",
                    "tan",
                    "atan",
                    "sinh",
                    "tanh",
                    "asinh",
                    "deg",
                    "rad",
                    "absent",
                    "sort",
                    "timestamp",
                    "hour",
                    "day_of_week",
                    "days_in_month",
                    "year",
                    "month",
                    "round",
                ]);
                format!("{function}({})", self.vector(inner))
            }
            6 => match self.random.below(4) {
                0 => format!(
                    "clamp({}, {}, {})",
                    self.vector(inner),
                    self.scalar(0),
                    self.scalar(0)
                ),
                1 => format!("clamp_min({}, {})", self.vector(inner), self.scalar(0)),
                2 => format!("clamp_max({}, {})", self.vector(inner), self.scalar(0)),
                _ => format!("round({}, {})", self.vector(inner), self.scalar(0)),
            },
            7 => match self.random.below(3) {
                0 => format!(
                    "label_replace({}, \"node\", \"n$1\", \"node\", \"g(.*)\")",
                    self.vector(inner)
                ),
                1 => format!(
                    "label_join({}, \"both\", \"-\", \"node\", \"gpu\")",
                    self.vector(inner)
                ),
                _ => format!(
                    "histogram_quantile({}, rate(latency_bucket[5m]))",
                    self.scalar(0)
                ),
            },
            8..=10 => {
                let by = self.random.pick(&["by", "without"]);
                let labels = self.labels();
                match self.random.below(12) {
                    0 => format!(
                        "quantile {by} ({labels}) ({}, {})",
                        self.scalar(0),
                        self.vector(inner)
                    ),
                    1 => format!(
                        "count_values {by} ({labels}) (\"value\", round({}))",
                        self.vector(inner)
                    ),
                    2 => format!(
                        // Only on distinct values: which of equal ones stays is not defined.
                        "topk {by} ({labels}) ({}, temperature_celsius)",
                        self.random.below(4)
                    ),
                    3 => format!(
                        "bottomk {by} ({labels}) ({}, temperature_celsius)",
                        self.random.below(4)
                    ),
                    _ => {
                        let op = self.random.pick(&[
                            "sum", "avg", "min", "max", "count", "group", "stddev", "stdvar",
                        ]);
                        format!("{op} {by} ({labels}) ({})", self.vector(inner))
                    }
                }
            }
            11 => {
                let op = self.random.pick(&[
                    "+", "-", "*", "/", "%", "^", ">", "<=", "!=", "== bool", "atan2",
                ]);
                match self.random.below(2) {
                    0 => format!("({} {op} {})", self.vector(inner), self.scalar(0)),
                    _ => format!("({} {op} {})", self.scalar(0), self.vector(inner)),
                }
            }
            12 | 13 => {
                let op = self
                    .random
                    .pick(&["+", "-", "*", "/", ">", "<=", "!=", "== bool"]);
                let labels = self.labels();
                let matching = match self.random.below(6) {
                    0 => format!("on ({labels})"),
                    1 => format!("ignoring ({labels})"),
                    2 => "on (node) group_left".to_owned(),
                    3 => "on (node) group_left (rack)".to_owned(),
                    4 => "on (node) group_right ()".to_owned(),
                    _ => String::new(),
                };
                format!(
                    "({} {op} {matching} {})",
                    self.vector(inner),
                    self.vector(inner)
                )
            }
            14 => {
                let op = self.random.pick(&["and", "or", "unless"]);
                let labels = self.labels();
                let matching = match self.random.below(3) {
                    0 => format!("on ({labels})"),
                    1 => format!("ignoring ({labels})"),
                    _ => String::new(),
                };
                format!(
                    "({} {op} {matching} {})",
                    self.vector(inner),
                    self.vector(inner)
                )
            }
            _ => format!("-({})", self.vector(inner)),
        }
    }
}

/// Takes a query and breaks it: pieces are left out, doubled, or exchanged for something odd.
pub fn broken(mut query: String, random: &mut Random) -> String {
    let odd = [
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "\"",
        "`",
        "\\",
        "1e999",
        "Inf",
        "@",
        "offset",
        "-",
        "0x",
        "5m",
        ":",
        "#",
        "é",
        "\n",
        "end()",
        "__name__",
        "=~",
        "group_left",
        "bool",
        "9223372036854775807",
    ];
    for _ in 0..1 + random.below(4) {
        let boundaries: Vec<usize> = query
            .char_indices()
            .map(|(at, _)| at)
            .chain([query.len()])
            .collect();
        let a = random.below(boundaries.len() as u64) as usize;
        let b = random.below(boundaries.len() as u64) as usize;
        let (a, b) = (boundaries[a.min(b)], boundaries[a.max(b)]);
        match random.below(3) {
            0 => query.replace_range(a..b, ""),
            1 => query.insert_str(a, &query.clone()[a..b]),
            _ => query.insert_str(a, random.pick(&odd)),
        }
    }
    query
}
