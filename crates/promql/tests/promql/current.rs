//! The same samples and queries in a current Prometheus and here: values, errors, annotations, trees and printed queries, word
//! by word.
//!
//! Needs Prometheus 3.14, which `scripts/peers.sh` builds (or its path in `TAKT_CURRENT_PROMETHEUS`), and a `promtool`, that
//! of `scripts/peers.sh` or Debian's; skipped without them.

use super::common::{self, BEGIN_MS, Queries, Random};
use super::prometheus::{HAND_MADE, Outcome, Server, WRONG, compare, outcome, seconds};
use serde_json::Value as Json;
use std::env;
use std::fmt;
use std::path::Path;
use takt_model::Timestamp;
use takt_promql::{Answer, Error, Memory, Options, instant, parse, range};

/// Random queries, each evaluated at an instant and over a range.
const GENERATED: usize = 4000;
/// Queries that are broken at random.
const BROKEN: usize = 4000;
/// A step that does not divide the range, so that the query's end is not a step.
const STEP_MS: i64 = 170_000;

/// Queries about what is new in Prometheus 3, and about annotations.
const NEW: &[&str] = &include!("new.in");

/// Differences that stay: a part of the query, and the reason.
const BY_DESIGN: &[(&str, &str)] = &[
    (
        "topk(1, sort(up))",
        "which of equal elements stays depends on an order that ranges do not have",
    ),
    (
        "quantile by (node) (time(), -(vector(1)))",
        "Prometheus takes the parameter of the first step for all",
    ),
    ("error parsing regexp", "Go's reasons are not Rust's"),
    (
        "duration must be greater than 0",
        "Prometheus has bytes before this text, not a place",
    ),
    (
        "division by zero",
        "Prometheus has bytes before this text, not a place",
    ),
    ("</ ", "refused by name: trims native histograms"),
    (
        "\\\\xff",
        "text that is no UTF-8 is shown as in Prometheus' JSON",
    ),
    (
        "\\ufffd",
        "text that is no UTF-8 is shown as in Prometheus' JSON",
    ),
    (
        "info(up @",
        "Prometheus does not look for the info series at that time",
    ),
    (
        "needed to be fixed for monotonicity",
        "Prometheus counts samples again when it merges",
    ),
];

fn start() -> Option<Server> {
    let features = "promql-experimental-functions,promql-binop-fill-modifiers,\
                    promql-extended-range-selectors";
    let flags = [&*format!("--enable-feature={features}")];
    let promtool = built("promtool")
        .filter(|path| Path::new(path).exists())
        .unwrap_or_else(|| "promtool".to_owned());
    let found = env::var("TAKT_CURRENT_PROMETHEUS")
        .ok()
        .or_else(|| built("prometheus"))
        .and_then(|path| Server::start_programs(&path, &promtool, &flags));
    if found.is_none() {
        eprintln!(
            "skipped: no Prometheus 3.14 (scripts/peers.sh builds it with Go) or no promtool"
        );
    }
    found
}

/// The path that `scripts/peers.sh` gives a program.
fn built(name: &str) -> Option<String> {
    let folder = |variable: &str, below: &str| {
        let folder = env::var(variable).ok()?;
        Some(format!("{folder}{below}/peers/{name}-3.14.0"))
    };
    folder("TAKT_CACHE_DIR", "")
        .or_else(|| folder("XDG_CACHE_HOME", "/takt"))
        .or_else(|| folder("HOME", "/.cache/takt"))
}

/// The part of an error that does not depend on the order of a Go map: not which of several duplicates is named.
fn comparable(error: &str) -> &str {
    let duplicate = "found duplicate series for the match group";
    if error.starts_with(duplicate) {
        duplicate
    } else {
        error
    }
}

fn options() -> Options {
    Options {
        experimental: true,
        ..Options::default()
    }
}

/// Value, error text and annotations of both sides: what differs.
fn differences(theirs: &Json, ours: Result<Answer, Error>) -> Vec<String> {
    let texts = |key: &str| -> Vec<String> {
        theirs[key]
            .as_array()
            .cloned()
            .unwrap_or_default()
            .iter()
            .filter_map(|text| Some(text.as_str()?.to_owned()))
            .collect()
    };
    let mut found = Vec::new();
    let mut equal = |what: &str, theirs: &dyn fmt::Debug, ours: &dyn fmt::Debug| {
        let theirs = format!("{theirs:?}");
        let ours = format!("{ours:?}");
        if theirs != ours {
            found.push(format!("{what}\n      there {theirs}\n      here  {ours}"));
        }
    };
    match ours {
        Err(error) => {
            let text = theirs["error"].as_str().unwrap_or_default();
            let text = text
                .strip_prefix("invalid parameter \"query\": ")
                .unwrap_or(text);
            equal("error", &comparable(text), &comparable(&error.to_string()));
        }
        Ok(_) if theirs["status"] == "error" => {
            equal("error", &theirs["error"].as_str(), &None::<&str>);
        }
        Ok(answer) => {
            let [mut warnings, mut infos] = answer.annotations.messages();
            warnings.sort();
            infos.sort();
            let sorted = |key| {
                let mut texts = texts(key);
                texts.sort();
                texts
            };
            // Above ten, the order of a Go map decides which are shown.
            let is_cut = |texts: &[String]| texts.iter().any(|text| text.ends_with("omitted"));
            if !is_cut(&warnings) || !is_cut(&texts("warnings")) {
                equal("warnings", &sorted("warnings"), &warnings);
            }
            equal("infos", &sorted("infos"), &infos);
            let ours: Outcome = Ok(answer).into();
            if let Err(difference) = compare(&outcome(&theirs["data"]), &ours) {
                found.push(difference);
            }
        }
    }
    found
}

fn both(server: &Server, memory: &Memory, query: &str) -> Vec<String> {
    // Seven seconds after a full minute, so that no subquery's step lies on the end of a window.
    let at_ms = BEGIN_MS + 3_667_000;
    let start_ms = BEGIN_MS + 1_867_000;
    let end_ms = BEGIN_MS + 4_267_000;
    let text = ("query", query.to_owned());
    let theirs = server.ask("query", &[text.clone(), ("time", seconds(at_ms))]);
    let mut found = differences(
        &theirs,
        instant(memory, query, Timestamp(at_ms), &options()),
    );
    let times = [
        text,
        ("start", seconds(start_ms)),
        ("end", seconds(end_ms)),
        ("step", seconds(STEP_MS)),
    ];
    let theirs = server.ask("query_range", &times);
    let ours = range(
        memory,
        query,
        Timestamp(start_ms),
        Timestamp(end_ms),
        STEP_MS,
        &options(),
    );
    found.extend(differences(&theirs, ours));
    found
        .iter()
        .map(|text| format!("{query}\n    {text}"))
        .collect()
}

/// Whether a random query runs into a difference that stays.
fn is_by_design(text: &str) -> bool {
    let query = text.lines().next().unwrap_or_default();
    let has = |parts: &[&str]| parts.iter().any(|part| query.contains(part));
    // Go converts NaN and infinity to an arbitrary date.
    let dates = has(&["hour(", "day_of_week(", "days_in_month(", "year(", "month("]);
    // Prometheus evaluates a subquery with `@` once, for the first step, and loses its samples at the others.
    let varies = has(&["predict_linear(", "time()"]);
    let subqueries = has(&[":30s] @", ":1m] @", ":2m] @"]);
    // Prometheus takes the parameter of an aggregation whose argument has `@` at the first step for all.
    let parameters = has(&["quantile by", "quantile without"]) && has(&["time()"]);
    dates || (varies && subqueries) || parameters
}

fn assert_none(mut wrong: Vec<String>, of: usize) {
    let all = wrong.len();
    let is_listed = |text: &String| BY_DESIGN.iter().any(|(part, _)| text.contains(part));
    wrong.retain(|text| !is_listed(text) && !is_by_design(text));
    let shown = wrong
        .iter()
        .take(60)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    assert!(wrong.is_empty(), "{} of {of} differ\n{shown}", wrong.len());
    eprintln!("{of} queries compared; {all} differences by design");
}

#[test]
fn answers_as_the_current_prometheus_does() {
    let Some(server) = start() else { return };
    let memory = common::memory();
    let mut queries = Queries::new(3);
    let generated: Vec<String> = (0..GENERATED).map(|_| queries.query()).collect();
    let all: Vec<&str> = HAND_MADE
        .iter()
        .chain(NEW)
        .chain(WRONG)
        .copied()
        .chain(generated.iter().map(String::as_str))
        .collect();
    let wrong = all
        .iter()
        .flat_map(|query| both(&server, &memory, query))
        .collect();
    assert_none(wrong, all.len());
}

#[test]
fn parses_and_prints_as_the_current_prometheus_does() {
    let Some(server) = start() else { return };
    let mut queries = Queries::new(4);
    let generated: Vec<String> = (0..GENERATED).map(|_| queries.query()).collect();
    let all: Vec<&str> = HAND_MADE
        .iter()
        .chain(NEW)
        .chain(WRONG)
        .copied()
        .chain(generated.iter().map(String::as_str))
        .collect();
    let mut wrong = Vec::new();
    for query in &all {
        let ask = |path| server.ask(path, &[("query", (*query).to_owned())]);
        // Refusals are compared by the two other tests.
        let Ok(ours) = parse(query) else { continue };
        let theirs = ask("format_query");
        if theirs["data"].as_str() != Some(ours.prettify().as_str()) {
            wrong.push(format!(
                "{query}\n    there {theirs}\n    here  {}",
                ours.prettify()
            ));
        }
        let theirs = ask("parse_query");
        let ours = serde_json::to_value(&ours).unwrap();
        if theirs["data"] != ours {
            wrong.push(format!("{query}\n    there {theirs}\n    here  {ours}"));
        }
    }
    assert_none(wrong, all.len());
}

/// Both refuse a broken query in the same words, or read the same query from it.
#[test]
fn breaks_where_the_current_prometheus_does() {
    let Some(server) = start() else { return };
    let mut queries = Queries::new(5);
    let mut random = Random::new(6);
    let mut wrong = Vec::new();
    for _ in 0..BROKEN {
        let query = match random.below(3) {
            0 => queries.query(),
            1 => random.pick(HAND_MADE).to_owned(),
            _ => random.pick(NEW).to_owned(),
        };
        let query = common::broken(query, &mut random);
        let theirs = server.ask("format_query", &[("query", query.clone())]);
        let text = theirs["error"].as_str().unwrap_or_default();
        let text = text
            .strip_prefix("invalid parameter \"query\": ")
            .unwrap_or(text)
            .to_owned();
        let theirs = theirs["data"].as_str().ok_or(text);
        let ours = parse(&query)
            .map(|tree| tree.prettify())
            .map_err(|error| error.to_string());
        if theirs != ours.as_deref().map_err(Clone::clone) {
            wrong.push(format!("{query}\n    there {theirs:?}\n    here  {ours:?}"));
        }
    }
    assert_none(wrong, BROKEN);
}
