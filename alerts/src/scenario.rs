//! Scenarios of one rule as text: samples, and the expected states of the alert. The files are in
//! `scenarios/state/`.
//!
//! ```text
//! rule  hot > 90  for 5m  keep_firing_for 2m
//! load 1m  hot{node="g01"}  70x5 91x10
//! down     g01 8m..10m          no answer from the exporter of that node
//! broken   12m..13m             queries fail
//! away     15m..20m             Takt itself is not running
//! at 5m    inactive
//! at 6m    pending  breached
//! ```
//! A word after the state is the reason of the transition at that evaluation; `quiet` means no
//! transition.

use crate::duration;
use crate::group::{Defaults, Evaluation, GroupRun};
use crate::ports::ExporterState;
use crate::rules::RuleFile;
use crate::state::{Instance, RuleKey, State, Surroundings};
use crate::testing::Memory;
use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::time::Duration;
use takt_model::{Labels, Timestamp};

const EVERY: Duration = Duration::from_secs(60);

#[test]
fn scenarios_of_state() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/state");
    let mut count = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        run(
            &path.display().to_string(),
            &fs::read_to_string(&path).unwrap(),
        );
        count += 1;
    }
    assert!(count >= 10, "only {count} scenarios were found");
}

#[derive(Default)]
struct Script {
    rules: Vec<(Timestamp, String)>,
    down: Vec<(String, Range<i64>)>,
    broken: Vec<Range<i64>>,
    away: Vec<Range<i64>>,
    expected: Vec<(usize, Timestamp, Vec<String>)>,
}

fn run(name: &str, text: &str) {
    let store = Memory::default();
    let script = read(text, &store);

    let last = script.expected.iter().map(|(_, at, _)| *at).max().unwrap();
    let mut group: Option<GroupRun> = None;
    let mut stored: HashMap<RuleKey, Vec<Instance>> = HashMap::new();
    let mut now = Timestamp(0);

    while now <= last {
        let within = |ranges: &[Range<i64>]| ranges.iter().any(|range| range.contains(&now.0));
        if let Some(away) = script.away.iter().find(|range| range.contains(&now.0)) {
            // Only what the store would have kept survives: the alerts of the last evaluation.
            if let Some(old) = group.take() {
                stored = old
                    .instances()
                    .map(|(key, all)| (key.clone(), all.iter().map(|(_, i)| i.clone()).collect()))
                    .collect();
            }

            now = Timestamp(away.end);
            let mut fresh = load(&script, now);
            for (key, instances) in &stored {
                // The last evaluation was one step before the gap.
                let down_at = Timestamp(away.start).minus(EVERY);
                instances.iter().for_each(|instance| {
                    assert!(fresh.restore(key, instance, down_at, now).is_some())
                });
            }
            group = Some(fresh);
            continue;
        }

        if script.rules.iter().any(|(at, _)| *at == now) {
            let mut fresh = load(&script, now);
            if let Some(mut old) = group.take() {
                fresh.take_over(&mut old);
            }
            group = Some(fresh);
        }

        let group = group.as_mut().expect("a rule at 0m");
        store.break_queries(within(&script.broken));
        let state = |labels: &Labels| {
            let node = labels.get("node").unwrap_or_default();
            let mut down = script.down.iter();
            if down.any(|(down, range)| down == node && range.contains(&now.0)) {
                ExporterState::Down
            } else {
                ExporterState::Answers
            }
        };

        let nothing = Labels::new();
        let around = Surroundings {
            query: None,
            until: None,
            external_labels: &nothing,
            external_url: "",
            exporter_state: &state,
        };

        let evaluation = group.evaluate(now, &store, &store, &around);
        for (line, _, words) in script.expected.iter().filter(|(_, at, _)| *at == now) {
            compare(&format!("{name}, line {line}"), group, &evaluation, words);
        }
        now = now.plus(EVERY);
    }
}

fn load(script: &Script, now: Timestamp) -> GroupRun {
    let (_, text) = script
        .rules
        .iter()
        .rev()
        .find(|(at, _)| *at <= now)
        .unwrap();
    let file = RuleFile::read("scenario", text).unwrap();
    GroupRun::of_file(
        &file,
        Defaults {
            interval: EVERY,
            query_offset: Duration::ZERO,
        },
    )
    .remove(0)
}

fn compare(place: &str, group: &GroupRun, evaluation: &Evaluation, words: &[String]) {
    let (_, instances) = group.instances().next().unwrap();
    let (node, words) = match words[0].split_once('=') {
        Some(("node", node)) => (Some(node), &words[1..]),
        _ => (None, words),
    };
    let is_meant = |labels: &Labels| node.is_none() || labels.get("node") == node;

    let shown = instances
        .iter()
        .find(|(_, i)| is_meant(&i.labels))
        .map_or(State::Inactive, |(_, i)| i.shown());
    assert_eq!(shown.as_str(), words[0], "{place}");

    let reason = evaluation
        .transitions
        .iter()
        .find(|t| is_meant(&t.labels))
        .map(|t| t.reason);
    let reason = reason.map_or("quiet".to_owned(), |reason| {
        serde_json::to_string(&reason).unwrap().replace('"', "")
    });

    if let Some(expected) = words.get(1) {
        assert_eq!(&reason, expected, "{place}");
    }
}

fn read(text: &str, store: &Memory) -> Script {
    let mut script = Script::default();
    let mut started = Timestamp(0);
    for (line, content) in text.lines().enumerate() {
        let Some((word, rest)) = content
            .split('#')
            .next()
            .unwrap()
            .trim()
            .split_once(char::is_whitespace)
        else {
            continue;
        };

        let rest = rest.trim();
        match word {
            "rule" => script.rules.push((started, rule(rest))),
            "edit" => {
                let (at, rest) = rest.split_once(char::is_whitespace).unwrap();
                script.rules.push((instant(at), rule(rest.trim())));
                // The rule begins at the edit, as after a reload.
                started = instant(at);
            }
            "load" => {
                let (step, rest) = rest.split_once(char::is_whitespace).unwrap();
                let (series, values) = rest.trim().split_once(char::is_whitespace).unwrap();
                store.load(duration::parse(step).unwrap(), series, values);
            }
            "down" => {
                let (node, during) = rest.split_once(char::is_whitespace).unwrap();
                script.down.push((node.to_owned(), range(during)));
            }
            "broken" => script.broken.push(range(rest)),
            "away" => script.away.push(range(rest)),
            "at" => {
                let (at, rest) = rest.split_once(char::is_whitespace).unwrap();
                let words = rest.split_whitespace().map(str::to_owned).collect();
                script.expected.push((line + 1, instant(at), words));
            }
            other => panic!("line {}: `{other}`", line + 1),
        }
    }
    script
}

/// `EXPR for 5m limit 2` as a rule file.
fn rule(text: &str) -> String {
    let option = |key: &str| {
        let (_, behind) = text.split_once(&format!(" {key} "))?;
        behind.split_whitespace().next().map(str::to_owned)
    };
    let end = [
        " for ",
        " keep_firing_for ",
        " limit ",
        " on_exporter_down ",
    ]
    .iter()
    .filter_map(|key| text.find(key))
    .min()
    .unwrap_or(text.len());

    let mut yaml = format!(
        "groups:\n- name: g\n  limit: {}\n  rules:\n  - alert: A\n    expr: '{}'\n",
        option("limit").unwrap_or_else(|| "0".to_owned()),
        text[..end].trim()
    );
    for key in ["for", "keep_firing_for"] {
        yaml += &option(key)
            .map(|value| format!("    {key}: {value}\n"))
            .unwrap_or_default();
    }

    let down = option("on_exporter_down");
    yaml + &down
        .map(|word| format!("    annotations: {{takt_on_exporter_down: {word}}}\n"))
        .unwrap_or_default()
}

fn instant(text: &str) -> Timestamp {
    Timestamp(0).plus(duration::parse(text).unwrap_or_else(|| panic!("`{text}` is not a time")))
}

fn range(text: &str) -> Range<i64> {
    let (from, to) = text.trim().split_once("..").unwrap();
    instant(from).0..instant(to).0
}
