//! The same samples and queries in Debian's Prometheus and here, value by value.
//!
//! Debian ships 2.42; what Prometheus 3 does otherwise by design is listed in `BY_DESIGN` with its rule, and each case
//! has to differ, else the list is out of date. Skipped where `prometheus` is not installed.

use super::common::{self, BEGIN_MS, Queries};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use takt_model::Timestamp;
use takt_promql::{Answer, Error, Memory, Options, Value, instant, range};
use tempfile::{TempDir, tempdir};

/// Random queries, each evaluated at an instant and over a range.
const GENERATED: usize = 1500;
/// Relative difference that rounding explains: 2.42 sums without compensation.
const EPSILON: f64 = 1e-9;

/// Queries that people write, and those that go wrong.
pub const HAND_MADE: &[&str] = include!("hand_made.in");

/// Intended differences between Prometheus 3 and 2.42: the rule, and a query that shows it. Each
/// query must differ.
const BY_DESIGN: &[(&str, Moment, &str)] = &[
    (
        "a window is open on the left",
        Moment::MinuteAfterASample,
        "count_over_time(requests_total{node=\"g01\",code=\"200\"}[1m])",
    ),
    (
        "the look-back is open on the left",
        Moment::LookBackAfterTheLast,
        "requests_total{node=\"g01\",code=\"200\"}",
    ),
    (
        "a subquery is open on the left",
        Moment::FullMinute,
        "count_over_time(vector(1)[1m:1m])",
    ),
    (
        "the dot of a regex matches a newline",
        Moment::Usual,
        r#"label_replace(label_replace(vector(1), "a", "x\ny", "", ""), "b", "fits", "a", "x.y")"#,
    ),
    ("atan2 drops the name", Moment::Usual, "up atan2 1"),
    (
        "the deviation of what is not finite is NaN",
        Moment::Usual,
        r#"stddev(odd{kind="nan"})"#,
    ),
    (
        "@ holds a window in place at each step",
        Moment::Usual,
        "predict_linear(up[5m] @ end(), 60)",
    ),
    (
        "of several NaN, bottomk picks the first",
        Moment::Usual,
        r#"bottomk(1, odd{kind=~"inf|nan"} * NaN) by (nosuch)"#,
    ),
    (
        "holt_winters is called double_exponential_smoothing",
        Moment::Usual,
        "holt_winters(up[5m], 0.5, 0.5)",
    ),
    ("a duration is a number", Moment::Usual, "5m"),
    ("a metric's name may be quoted", Moment::Usual, r#"{"up"}"#),
    (
        "a counter far from the window's start begins half a distance or its zero before",
        Moment::Usual,
        "rate(requests_total[1h])",
    ),
    (
        "any text is a label's name",
        Moment::Usual,
        r#"count_values("la bel", up)"#,
    ),
    (
        "any text is a label's name",
        Moment::Usual,
        r#"label_replace(up, "la bel", "x", "node", ".*")"#,
    ),
    (
        "a comparison refuses many-to-one matches",
        Moment::Usual,
        "temperature_celsius < on (node) up",
    ),
    // Ours alone: Go converts NaN to an arbitrary instant.
    (
        "a date of NaN is NaN",
        Moment::Usual,
        r#"day_of_week(odd{kind="nan"})"#,
    ),
];

/// When a case of `BY_DESIGN` is evaluated.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// As all other queries.
    Usual,
    FullMinute,
    MinuteAfterASample,
    LookBackAfterTheLast,
}

/// The rule that a random query may have run into, if it differs.
fn rule(query: &str) -> Option<&'static str> {
    let has = |text: &str| query.contains(text);
    let depends_on_time = has("predict_linear") || has("time()");
    let subqueries = [":30s]", ":1m]", ":2m]"]
        .iter()
        .map(|end| query.matches(end).count())
        .sum::<usize>();
    let dates = ["hour(", "day_of_week(", "days_in_month(", "year(", "month("];
    [
        (
            has(" @ ") && depends_on_time,
            "@ holds a window in place at each step",
        ),
        (
            ["stddev by", "stddev without", "stdvar by", "stdvar without"]
                .iter()
                .any(|op| has(op)),
            "the deviation of what is not finite is NaN",
        ),
        (has("atan2"), "atan2 drops the name"),
        (
            [">", "<=", "!="]
                .iter()
                .any(|op| has(&format!(" {op} on (")) || has(&format!(" {op} ignoring ("))),
            "a comparison refuses many-to-one matches",
        ),
        (
            has("rate((") || has("increase(("),
            "a counter far from the window's start begins half a distance or its zero before",
        ),
        (subqueries > 1, "a subquery is open on the left"),
        (dates.iter().any(|date| has(date)), "a date of NaN is NaN"),
    ]
    .into_iter()
    .find(|(applies, _)| *applies)
    .map(|(_, name)| name)
}

/// Queries that are no PromQL.
pub const WRONG: &[&str] = &include!("wrong.in");

/// Messages of Prometheus 3 for wrong queries where 2.42 has other ones, according to its source.
const WRONG_SINCE_3: &[(&str, &str)] = &[
    (
        "",
        "unknown position: parse error: no expression found in input",
    ),
    (
        "rate(up[5m] offset)",
        "1:19: parse error: unexpected \")\" in offset, expected number, duration, step(), or range()",
    ),
    (
        "foo[5x]",
        "1:5: parse error: bad number or duration syntax: \"5\"",
    ),
    (
        "foo[5min]",
        "1:5: parse error: bad number or duration syntax: \"5mi\"",
    ),
    (
        "foo[]",
        "1:5: parse error: unexpected \"]\" in subquery or range selector, expected number, duration, step(), or range()",
    ),
    (
        "foo[5m:x]",
        "1:8: parse error: unexpected character: 'x', expected ':'",
    ),
    (
        "foo{\"a\"=}",
        "1:9: parse error: unexpected \"}\" in label matching, expected string",
    ),
    (
        "1.5.3",
        "1:1: parse error: bad number or duration syntax: \"1.5.\"",
    ),
    (
        "1e",
        "1:1: parse error: bad number or duration syntax: \"1e\"",
    ),
];

pub struct Server {
    child: Child,
    port: u16,
    _directory: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Backfills the samples and serves them on the loopback; `None` where Prometheus is not installed.
    fn start() -> Option<Self> {
        Self::start_programs("prometheus", "promtool", &[])
    }

    /// As [`start`](Self::start), for other programs and with other flags. `promtool` makes the blocks.
    pub fn start_programs(prometheus: &str, promtool: &str, flags: &[&str]) -> Option<Self> {
        let answers = |program: &str| Command::new(program).arg("--version").output().is_ok();
        if !answers(prometheus) || !answers(promtool) {
            return None;
        }
        let directory = tempdir().unwrap();
        let mut page = String::new();
        for (labels, samples) in common::samples() {
            let rest: Vec<String> = labels
                .iter()
                .filter(|(name, _)| *name != "__name__")
                .map(|(n, v)| format!("{n}={v:?}"))
                .collect();
            for (at_ms, value) in samples {
                let value = match value {
                    f64::INFINITY => "+Inf".to_owned(),
                    f64::NEG_INFINITY => "-Inf".to_owned(),
                    value => value.to_string(),
                };
                let at = format!("{}.{:03}", at_ms / 1000, at_ms % 1000);
                writeln!(
                    page,
                    "{}{{{}}} {value} {at}",
                    labels.metric(),
                    rest.join(",")
                )
                .unwrap();
            }
        }
        page.push_str("# EOF\n");
        let path = |name: &str| directory.path().join(name).display().to_string();
        fs::write(path("page"), page).unwrap();
        fs::write(path("prometheus.yml"), "").unwrap();

        // Samples of the past are backfilled as blocks; a scrape would give them today's time.
        let blocks = [
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            "-q",
            &path("page"),
            &path("data"),
        ];
        let made = Command::new(promtool).args(blocks).output().unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let child = Command::new(prometheus)
            .args(flags)
            .arg(format!("--config.file={}", path("prometheus.yml")))
            .arg(format!("--storage.tsdb.path={}", path("data")))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            // The samples are years old and would be deleted at once.
            .args(["--storage.tsdb.retention.time=100y", "--log.level=error"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self {
            child,
            port,
            _directory: directory,
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        while server
            .get("/-/ready")
            .is_none_or(|(status, _)| status != 200)
        {
            assert!(Instant::now() < deadline, "Prometheus does not get ready");
            thread::sleep(Duration::from_millis(100));
        }
        Some(server)
    }

    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        // HTTP/1.0, so that the body is not sent in chunks.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).ok()?;
        let (head, body) = reply.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    fn query(&self, path: &str, parameters: &[(&str, String)]) -> Outcome {
        let json = self.ask(path, parameters);
        if json["status"] == "error" {
            return Outcome::Error(json["errorType"].as_str().unwrap_or_default().to_owned());
        }
        outcome(&json["data"])
    }

    /// The answer of `/api/v1/` and that path.
    pub fn ask(&self, path: &str, parameters: &[(&str, String)]) -> Json {
        let parameters: Vec<String> = parameters
            .iter()
            .map(|(k, v)| format!("{k}={}", percent(v)))
            .collect();
        let (_, body) = self
            .get(&format!("/api/v1/{path}?{}", parameters.join("&")))
            .expect("Prometheus answers");
        serde_json::from_str(&body).expect(&body)
    }

    /// Error message for a query that Prometheus refuses; empty for one that it answers.
    fn refusal(&self, query: &str) -> String {
        let (_, body) = self
            .get(&format!("/api/v1/query?time=1&query={}", percent(query)))
            .expect("Prometheus answers");
        let json: Json = serde_json::from_str(&body).expect(&body);
        let text = json["error"].as_str().unwrap_or_default();
        text.strip_prefix("invalid parameter \"query\": ")
            .unwrap_or(text)
            .to_owned()
    }

    fn instant(&self, query: &str, at_ms: i64) -> Outcome {
        self.query(
            "query",
            &[("query", query.to_owned()), ("time", seconds(at_ms))],
        )
    }

    fn range(&self, query: &str, start_ms: i64, end_ms: i64, step_ms: i64) -> Outcome {
        let times = [
            ("start", seconds(start_ms)),
            ("end", seconds(end_ms)),
            ("step", seconds(step_ms)),
        ];
        self.query(
            "query_range",
            &[&[("query", query.to_owned())][..], &times[..]].concat(),
        )
    }
}

/// The result in the `data` of an answer.
pub fn outcome(data: &Json) -> Outcome {
    let result = &data["result"];
    match data["resultType"].as_str().unwrap_or_default() {
        "scalar" => Outcome::Series(BTreeMap::from([(
            "scalar".to_owned(),
            vec![sample(result)],
        )])),
        "string" => Outcome::Text(result[1].as_str().unwrap_or_default().to_owned()),
        _ => Outcome::Series(result.as_array().unwrap().iter().map(series).collect()),
    }
}

fn series(json: &Json) -> (String, Vec<(i64, f64)>) {
    let labels: BTreeMap<&str, &str> = json["metric"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str().unwrap()))
        .collect();
    let points = match &json["values"] {
        Json::Array(values) => values.iter().map(sample).collect(),
        _ => vec![sample(&json["value"])],
    };
    (format!("{labels:?}"), points)
}

fn sample(json: &Json) -> (i64, f64) {
    let value = match json[1].as_str().unwrap() {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        text => text.parse().unwrap(),
    };
    ((json[0].as_f64().unwrap() * 1e3).round() as i64, value)
}

pub fn seconds(ms: i64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

pub fn percent(text: &str) -> String {
    text.bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() {
                (b as char).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}

/// An answer without its order.
#[derive(Debug, Clone)]
pub enum Outcome {
    Series(BTreeMap<String, Vec<(i64, f64)>>),
    Text(String),
    Error(String),
}

impl From<Result<Answer, Error>> for Outcome {
    fn from(answer: Result<Answer, Error>) -> Self {
        let show = |labels: &takt_model::Labels| {
            format!("{:?}", labels.iter().collect::<BTreeMap<_, _>>())
        };
        match answer.map(|answer| answer.value) {
            Err(error) => Outcome::Error(error.kind().as_str().to_owned()),
            Ok(Value::String { text, .. }) => Outcome::Text(text),
            Ok(Value::Scalar(point)) => Outcome::Series(BTreeMap::from([(
                "scalar".to_owned(),
                vec![(point.at.0, point.value)],
            )])),
            Ok(Value::Vector(samples)) => Outcome::Series(
                samples
                    .iter()
                    .map(|s| (show(&s.labels), vec![(s.point.at.0, s.point.value)]))
                    .collect(),
            ),
            Ok(Value::Matrix(series)) => Outcome::Series(
                series
                    .iter()
                    .map(|s| {
                        (
                            show(&s.labels),
                            s.points.iter().map(|p| (p.at.0, p.value)).collect(),
                        )
                    })
                    .collect(),
            ),
        }
    }
}

/// Values compared and those equal to the last bit, or what differs.
pub fn compare(theirs: &Outcome, ours: &Outcome) -> Result<(usize, usize), String> {
    match (theirs, ours) {
        (Outcome::Error(theirs), Outcome::Error(ours)) if theirs == ours => Ok((0, 0)),
        (Outcome::Text(theirs), Outcome::Text(ours)) if theirs == ours => Ok((1, 1)),
        (Outcome::Series(theirs), Outcome::Series(ours)) => {
            if let Some(labels) = theirs.keys().find(|labels| !ours.contains_key(*labels)) {
                return Err(format!("only there: {labels} {:?}", theirs[labels]));
            }
            if let Some(labels) = ours.keys().find(|labels| !theirs.contains_key(*labels)) {
                return Err(format!("only here: {labels} {:?}", ours[labels]));
            }
            let mut values = 0;
            let mut exact = 0;
            for (labels, theirs) in theirs {
                let ours = &ours[labels];
                let times =
                    |points: &[(i64, f64)]| points.iter().map(|(at, _)| *at).collect::<Vec<_>>();
                if times(theirs) != times(ours) {
                    return Err(format!(
                        "{labels}: there {:?}, here {:?}",
                        times(theirs),
                        times(ours)
                    ));
                }
                for ((at, a), (_, b)) in theirs.iter().zip(ours) {
                    values += 1;
                    exact += usize::from(a == b || (a.is_nan() && b.is_nan()));
                    // Below 1e-3 the difference is absolute: sums that cancel out leave only
                    // rounding.
                    let close = (a - b).abs() <= EPSILON * a.abs().max(b.abs()).max(1e-3);
                    if !(a == b || (a.is_nan() && b.is_nan()) || close) {
                        return Err(format!("{labels} at {at}: there {a}, here {b}"));
                    }
                }
            }
            Ok((values, exact))
        }
        (theirs, ours) => Err(format!("there {theirs:?}, here {ours:?}")),
    }
}

/// Both evaluations of one query on both sides: differences, values, values equal to the bit.
fn both(server: &Server, memory: &Memory, query: &str, at_ms: i64) -> (Vec<String>, usize, usize) {
    let options = Options::default();
    let start_ms = BEGIN_MS + 1_867_000;
    let end_ms = BEGIN_MS + 4_267_000;
    let step_ms = 240_000;
    let pairs = [
        (
            "instant",
            server.instant(query, at_ms),
            instant(memory, query, Timestamp(at_ms), &options).into(),
        ),
        (
            "range",
            server.range(query, start_ms, end_ms, step_ms),
            range(
                memory,
                query,
                Timestamp(start_ms),
                Timestamp(end_ms),
                step_ms,
                &options,
            )
            .into(),
        ),
    ];
    let mut differences = Vec::new();
    let mut values = 0;
    let mut exact = 0;
    for (kind, theirs, ours) in pairs {
        match compare(&theirs, &ours) {
            Ok((compared, equal)) => (values, exact) = (values + compared, exact + equal),
            Err(difference) => differences.push(format!("{query}\n    {kind}: {difference}")),
        }
    }
    (differences, values, exact)
}

#[test]
fn answers_as_prometheus_does() {
    let Some(server) = Server::start() else {
        eprintln!("skipped: prometheus is not installed");
        return;
    };
    let memory = common::memory();
    let usual = BEGIN_MS + 3_667_000;
    let mut queries = Queries::new(1);
    let generated: Vec<String> = (0..GENERATED).map(|_| queries.query()).collect();
    let hand_made = HAND_MADE.iter().map(|query| ((*query).to_owned(), None));
    let generated = generated
        .into_iter()
        .map(|query| (query.clone(), rule(&query)));
    let mut wrong = Vec::new();
    let mut by_design = BTreeMap::new();
    let mut values = 0;
    let mut exact = 0;
    let mut count = 0;
    for (query, rule) in hand_made.chain(generated) {
        let (differences, compared, equal) = both(&server, &memory, &query, usual);
        match rule {
            Some(rule) if !differences.is_empty() => *by_design.entry(rule).or_insert(0) += 1,
            _ => wrong.extend(differences),
        }
        (values, exact, count) = (values + compared, exact + equal, count + 1);
    }
    eprintln!(
        "{count} queries, each at an instant and over a range: {values} values equal, {exact} of them to the bit"
    );
    eprintln!("random queries that differ by design: {by_design:?}");
    assert!(
        wrong.is_empty(),
        "{} differ\n{}",
        wrong.len(),
        wrong.join("\n")
    );

    // The edges of windows, where the two versions differ on purpose.
    let samples = common::samples();
    let first = samples[0].1[0].0;
    let last = samples[0].1[samples[0].1.len() - 1].0;
    for (rule, moment, query) in BY_DESIGN {
        let at_ms = match moment {
            Moment::Usual => usual,
            Moment::FullMinute => BEGIN_MS + 3_660_000,
            Moment::MinuteAfterASample => first + 60_000,
            Moment::LookBackAfterTheLast => last + 300_000,
        };
        let (differences, ..) = both(&server, &memory, query, at_ms);
        assert!(!differences.is_empty(), "{rule}: {query} no longer differs");
    }
    eprintln!("{} rules of Prometheus 3 shown to differ", BY_DESIGN.len());

    // The function has another name in 2.42, so it is compared by itself.
    let options = Options {
        experimental: true,
        ..Options::default()
    };
    for arguments in [
        "temperature_celsius[10m], 0.3, 0.7",
        "requests_total[5m], 0.9, 0.1",
        "odd[2m], 0.5, 0.5",
    ] {
        let theirs = server.instant(&format!("holt_winters({arguments})"), usual);
        let ours = instant(
            &memory,
            &format!("double_exponential_smoothing({arguments})"),
            Timestamp(usual),
            &options,
        )
        .into();
        let (values, _) = compare(&theirs, &ours)
            .unwrap_or_else(|difference| panic!("{arguments}: {difference}"));
        assert!(values > 0, "{arguments} compares nothing");
    }
}

#[test]
fn refuses_in_prometheus_words_at_its_places() {
    let memory = common::memory();
    let refusal = |query: &str| {
        instant(&memory, query, Timestamp(1000), &Options::default())
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    // These need no Prometheus, so they run everywhere.
    for (query, text) in WRONG_SINCE_3 {
        assert_eq!(refusal(query), *text, "{query}");
    }
    let Some(server) = Server::start() else {
        eprintln!("skipped: prometheus is not installed");
        return;
    };
    let differs = |query: &&str| {
        let theirs = server.refusal(query);
        let ours = refusal(query);
        (theirs != ours).then(|| format!("{query}\n    there {theirs}\n    here  {ours}"))
    };
    let is_newer = |query: &&&str| WRONG_SINCE_3.iter().any(|(newer, _)| newer == *query);
    let wrong: Vec<String> = WRONG
        .iter()
        .filter(|query| !is_newer(query))
        .filter_map(differs)
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {} differ\n{}",
        wrong.len(),
        WRONG.len(),
        wrong.join("\n")
    );
}
