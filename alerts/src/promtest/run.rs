//! Running a test file: rules are evaluated from time 0 on, then every expectation is compared.

use super::{AlertTest, Outcome, Storage, Test, TestFile};
use crate::group::{Defaults, GroupRun};
use crate::ports::{ExporterState, Sample, StoreError};
use crate::rules::{Rule, RuleFile};
use crate::state::{EvalError, RuleKey, State, Surroundings};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use takt_model::Labels;
use takt_model::notation::NotedValue;

/// A failed expectation.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// Other alerts fire than should.
    Alerts {
        /// The test.
        test: String,
        /// The alert's name.
        alert: String,
        /// The time, counted from the beginning.
        at: Duration,
        /// The expected alerts.
        expected: Vec<String>,
        /// The firing alerts.
        got: Vec<String>,
    },
    /// An expression gives something else.
    Expression {
        /// The test.
        test: String,
        /// The expression.
        expr: String,
        /// The time, counted from the beginning.
        at: Duration,
        /// The expected result.
        expected: Vec<String>,
        /// The result, or the error.
        got: Result<Vec<String>, String>,
    },
    /// A rule could not be evaluated.
    Rule {
        /// The test.
        test: String,
        /// The rule.
        rule: RuleKey,
        /// Why.
        error: EvalError,
    },
    /// The database refused the samples.
    Store {
        /// The test.
        test: String,
        /// Why.
        error: StoreError,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let print = crate::duration::print;
        match self {
            Self::Alerts {
                test,
                alert,
                at,
                expected,
                got,
            } => {
                write!(
                    f,
                    "{test}: {alert} at {}: expected {expected:?}, got {got:?}",
                    print(*at)
                )
            }
            Self::Expression {
                test,
                expr,
                at,
                expected,
                got: Ok(got),
            } => {
                write!(
                    f,
                    "{test}: {expr} at {}: expected {expected:?}, got {got:?}",
                    print(*at)
                )
            }
            Self::Expression {
                test,
                expr,
                at,
                got: Err(error),
                ..
            } => {
                write!(f, "{test}: {expr} at {}: {error}", print(*at))
            }
            Self::Rule { test, rule, error } => write!(f, "{test}: rule {rule}: {error}"),
            Self::Store { test, error } => write!(f, "{test}: {error}"),
        }
    }
}

/// Runs all tests of a file over its rules, each in a database of its own.
pub fn run(
    file: &TestFile,
    rules: &[RuleFile],
    storage: &dyn Fn() -> Box<dyn Storage>,
) -> Vec<Failure> {
    file.tests
        .iter()
        .flat_map(|test| run_one(file, test, rules, storage().as_ref()))
        .collect()
}

fn run_one(
    file: &TestFile,
    test: &Test,
    rules: &[RuleFile],
    storage: &dyn Storage,
) -> Vec<Failure> {
    if let Err(error) = load(test, storage) {
        return vec![Failure::Store {
            test: test.name.clone(),
            error,
        }];
    }

    let mut groups = ordered(file, rules);
    let mut failures = BTreeMap::new();
    // Nothing is compared after the last expectation.
    let last = test
        .alerts
        .iter()
        .map(|test| test.at)
        .chain(test.expressions.iter().map(|test| test.at))
        .max()
        .unwrap_or_default();

    let around = Surroundings {
        query: None,
        until: None,
        external_labels: &test.external_labels,
        external_url: &test.external_url,
        exporter_state: &|_| ExporterState::Answers,
    };

    let mut found = Vec::new();
    let mut now = Duration::ZERO;
    // An interval of zero would never end.
    let step = file.evaluation_interval.max(Duration::from_millis(1));
    while now <= last {
        for group in &mut groups {
            let evaluation = group.evaluate(test.start.plus(now), storage, storage, &around);
            // An error to promtool, and to the authors of rules who run tests.
            let twins = evaluation.twins.into_iter();
            let twins = twins.map(|(rule, labels)| (rule, EvalError::SameLabels(labels)));
            for (rule, error) in evaluation.failures.into_iter().chain(twins) {
                failures.entry(rule.clone()).or_insert(Failure::Rule {
                    test: test.name.clone(),
                    rule,
                    error,
                });
            }
        }

        // As in promtool, an expectation between two evaluations is compared at the one before.
        let due = test
            .alerts
            .iter()
            .filter(|expected| (now..now + step).contains(&expected.at))
            .filter_map(|expected| compare_alerts(test, expected, &groups));
        found.extend(due);
        now += step;
    }

    // Expressions are asked at their own times, which needs the samples of all rules.
    let expressions = test.expressions.iter().filter_map(|expected| {
        let got = storage.result(&expected.expr, test.start.plus(expected.at));
        let is_same = got
            .as_ref()
            .is_ok_and(|got| are_same(got, &expected.expected, file.fuzzy_compare));
        let got = got
            .map(|all| printed(&all))
            .map_err(|error| error.to_string());
        let wanted = printed(&expected.expected);
        (!is_same).then(|| Failure::Expression {
            test: test.name.clone(),
            expr: expected.expr.clone(),
            at: expected.at,
            expected: wanted,
            got,
        })
    });

    failures
        .into_values()
        .chain(found)
        .chain(expressions)
        .collect()
}

fn load(test: &Test, storage: &dyn Storage) -> Result<(), StoreError> {
    for (labels, values) in &test.series {
        let mut samples = Vec::with_capacity(values.len());
        let mut histograms = Vec::new();
        let mut at = test.start;
        for value in values {
            let float = match value {
                NotedValue::Float(value) => Some(Some(*value)),
                NotedValue::Stale => Some(None),
                NotedValue::Histogram(noted) => {
                    let histogram = noted
                        .stored()
                        .map_err(|error| StoreError(format!("{labels}: {error}")))?;
                    histograms.push((at, histogram));
                    None
                }
                NotedValue::Missing => None,
            };
            samples.extend(float.map(|value| Sample {
                labels: labels.clone(),
                at,
                value,
            }));
            at = at.plus(test.interval);
        }

        storage.write(&samples)?;
        if !histograms.is_empty() {
            storage.write_histograms(labels, histograms)?;
        }
    }
    Ok(())
}

fn ordered(file: &TestFile, rules: &[RuleFile]) -> Vec<GroupRun> {
    let defaults = Defaults {
        interval: file.evaluation_interval,
        query_offset: Duration::ZERO,
    };

    let mut groups: Vec<_> = rules
        .iter()
        .flat_map(|rules| GroupRun::of_file(rules, defaults))
        .collect();
    // As in promtool, groups that the order does not name come first.
    let place = |group: &GroupRun| {
        file.group_eval_order
            .iter()
            .position(|name| *name == group.group().name)
    };
    groups.sort_by_key(|group| place(group).map_or(0, |at| at + 1));
    groups
}

fn compare_alerts(test: &Test, expected: &AlertTest, groups: &[GroupRun]) -> Option<Failure> {
    let mut got: Vec<String> = groups
        .iter()
        .flat_map(|group| group.instances().zip(&group.group().rules))
        .filter(|(_, rule)| matches!(rule, Rule::Alerting(rule) if rule.name == expected.alert))
        .flat_map(|((_, all), _)| all.iter())
        .filter(|(_, instance)| instance.state == State::Firing)
        .map(|(_, instance)| {
            let mut annotations = instance.annotations.clone();
            annotations.sort();
            describe(&instance.labels, &annotations)
        })
        .collect();
    let mut wanted: Vec<String> = expected
        .expected
        .iter()
        .map(|(labels, annotations)| describe(labels, annotations))
        .collect();

    got.sort();
    wanted.sort();
    (got != wanted).then(|| Failure::Alerts {
        test: test.name.clone(),
        alert: expected.alert.clone(),
        at: expected.at,
        expected: wanted,
        got,
    })
}

fn describe(labels: &Labels, annotations: &[(String, String)]) -> String {
    format!("{labels} {annotations:?}")
}

/// Whether two results have the same series with the same values, in any order. With `fuzzy` the last bit of a float may differ.
fn are_same(got: &[(Labels, Outcome)], expected: &[(Labels, Outcome)], fuzzy: bool) -> bool {
    let sorted = |all: &[(Labels, Outcome)]| {
        let mut all = all.to_vec();

        all.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| order(&a.1, &b.1)));
        all
    };
    let got = sorted(got);
    let expected = sorted(expected);

    let mut pairs = got.iter().zip(&expected);
    got.len() == expected.len()
        && pairs.all(|((labels, got), (wanted, expected))| {
            labels == wanted && is_same(got, expected, fuzzy)
        })
}

fn order(a: &Outcome, b: &Outcome) -> Ordering {
    match (a, b) {
        (Outcome::Float(a), Outcome::Float(b)) => a.total_cmp(b),
        (Outcome::Float(_), Outcome::Histogram(_)) => Ordering::Less,
        (Outcome::Histogram(_), Outcome::Float(_)) => Ordering::Greater,
        (Outcome::Histogram(_), Outcome::Histogram(_)) => Ordering::Equal,
    }
}

fn is_same(got: &Outcome, expected: &Outcome, fuzzy: bool) -> bool {
    match (got, expected) {
        (Outcome::Float(got), Outcome::Float(expected)) => {
            let distance = (got - expected).abs();
            // `fuzzy_compare` allows the last bit of the larger number.
            let last_bit = f64::EPSILON * got.abs().max(expected.abs());
            got == expected || got.is_nan() && expected.is_nan() || fuzzy && distance <= last_bit
        }
        (Outcome::Histogram(got), Outcome::Histogram(expected)) => {
            // promtool tells `not_reset` from `unknown`, which are the same to us.
            got.is_same(expected) && got.hint == expected.hint
        }
        _ => false,
    }
}

fn printed(all: &[(Labels, Outcome)]) -> Vec<String> {
    let mut lines: Vec<_> = all
        .iter()
        .map(|(labels, value)| match value {
            Outcome::Float(value) => format!("{labels} {value}"),
            Outcome::Histogram(one) => format!("{labels} {one} of schema {}", one.schema),
        })
        .collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Memory;

    const RULES: &str = include_str!("../../fixtures/made-up/promtool/hot.rules.yml");
    const TESTS: &str = include_str!("../../fixtures/made-up/promtool/hot.test.yml");

    fn failures(tests: &str) -> Vec<String> {
        let rules = RuleFile::read("hot.rules.yml", RULES).unwrap();
        let file = TestFile::read("hot.test.yml", tests).unwrap();
        run(&file, &[rules], &|| Box::new(Memory::default()))
            .iter()
            .map(Failure::to_string)
            .collect()
    }

    /// `tests/rule_pack/promtool.rs` has promtool run the same file.
    #[test]
    fn passes_what_promtool_passes() {
        assert_eq!(failures(TESTS), [""; 0]);
    }

    /// Each change of the expectations is found, and named.
    #[test]
    fn finds_failures() {
        for (from, to, says) in [
            (
                "summary: \"g01 is at 95\"",
                "summary: \"g01 is at 96\"",
                "by hand: Hot at 7m: expected",
            ),
            ("node: g01", "node: g02", "by hand: Hot at 7m: expected"),
            (
                "eval_time: 4m59s",
                "eval_time: 5m",
                "by hand: Hot at 5m: expected [], got [\"{alertname=",
            ),
            ("value: 95", "value: 94", "by hand: hot at 7m: expected"),
            ("expr: hot", "expr: ho t", "by hand: ho t at 7m:"),
        ] {
            assert!(TESTS.contains(from), "{from}");
            let failures = failures(&TESTS.replacen(from, to, 1));
            assert!(
                failures.iter().any(|failure| failure.contains(says)),
                "{to} gave {failures:?}"
            );
        }
    }

    #[test]
    fn the_last_bit_and_the_beginning() {
        let with = |more: &str, test: &str, value: &str| {
            failures(&format!(
                "{more}\ntests: [{{interval: 1m, {test}input_series: [{{series: '{{\"m.x\", \
                 a=\"b\"}}', values: '0.3'}}], promql_expr_test: \
                 [{{expr: '{{__name__=\"m.x\"}}', eval_time: 0s, exp_samples: [{{labels: \
                 '{{\"m.x\",a=\"b\"}}', value: {value}}}]}}]}}]\n"
            ))
        };

        let almost = "0.30000000000000004";
        assert_eq!(with("", "", "0.3"), [""; 0]);
        assert_eq!(with("", "", almost).len(), 1);
        assert_eq!(with("fuzzy_compare: true", "", almost), [""; 0]);
        assert_eq!(with("fuzzy_compare: true", "", "0.3001").len(), 1);
        assert_eq!(
            with("", "start_timestamp: 2026-11-21T12:00:00Z, ", "0.3"),
            [""; 0]
        );
        assert_eq!(with("", "start_timestamp: 1700000000, ", "0.3"), [""; 0]);
    }

    /// Each as promtool 3.14 takes it.
    #[test]
    fn odd_series_are_read_as_promtool_reads_them() {
        let with = |input: &str, expr: &str| {
            let text = format!(
                "tests: [{{interval: 0s, input_series: [{input}], promql_expr_test: \
                 [{{expr: '{expr}', exp_samples: [{{labels: m, value: 1}}]}}]}}]"
            );
            TestFile::read("t.yml", &text).map(|file| {
                let failures = run(&file, &[], &|| Box::new(Memory::default()));
                failures.iter().map(Failure::to_string).collect::<Vec<_>>()
            })
        };

        for input in [
            "{series: m, values: '1'}",
            "{series: 'm{}', values: 1}",
            "{series: m 1}",
            "{series: 'm 1', values: 2}, {series: n}, {series: o, values: ''}, {}",
            "{series: m, values: '1 {{sum:1}}x0'}",
        ] {
            let is_histogram = input.contains("sum");
            assert_eq!(
                with(input, "m").unwrap().is_empty(),
                !is_histogram,
                "{input}"
            );
        }

        for input in [
            "{series: '', values: 1}",
            "{series: '{}', values: 1}",
            "{series: 'm {}', values: 1}",
            "{series: '5m', values: 1}",
            "{series: inf, values: 1}",
            "{series: on, values: 1}",
            "{series: 'm[5m]', values: 1}",
            "{series: 'sum(m)', values: 1}",
            "{series: 'm-1', values: 1}",
            "{series: 'mä', values: 1}",
            "{series: m, values: stalex2}",
            "{series: m, values: infinity}",
        ] {
            assert!(with(input, "m").is_err(), "{input}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, says) in [
            (
                "test: []",
                "line 1: unknown key `test`; did you mean `tests`?",
            ),
            (
                "tests: [{name: a, input_series: [{series: 'up{', values: '1'}]}]",
                "test `a`: `up{` is not a series",
            ),
            (
                "tests: [{name: a, input_series: [{series: 'up', values: '1 x'}]}]",
                "`x` is not a value",
            ),
            (
                "tests: [{name: a, input_series: [{series: 'up{a=~\"b\"}', values: '1'}]}]",
                "is not a series",
            ),
            (
                "tests: [{promql_expr_test: [{expr: up, exp_samples: [{histogram: x}]}]}]",
                "`x` is not a value",
            ),
            (
                "tests: [{promql_expr_test: [{expr: up, exp_samples: [{histogram: 1}]}]}]",
                "expected one native histogram",
            ),
            (
                "tests: [{name: a, start_timestamp: noon}]",
                "`start_timestamp`: `noon` is not an instant",
            ),
            ("group_eval_order: [a, b, a]", "names `a` twice"),
        ] {
            let message = TestFile::read("t.yml", text).unwrap_err().to_string();
            assert!(message.contains(says), "{text} gave {message}");
        }
    }
}
