//! Our scripts, one a subject: each function and each trap of the language.

use std::fs;
use std::path::Path;
use takt_promql::script::{self, Report};

#[test]
fn scripts_pass() {
    let mut files: Vec<_> = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/promql/scripts")
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "test")
        })
        .collect();
    files.sort();
    let mut report = Report::default();
    for file in &files {
        let name = file.file_name().unwrap().to_string_lossy();
        report.merge(script::run(&name, &fs::read_to_string(file).unwrap()));
    }
    assert!(report.failed.is_empty(), "\n{report}");
    // An empty folder would pass, too.
    assert!(report.passed > 300, "{report}");
}

#[test]
fn a_wrong_script_fails_with_file_and_line() {
    // A wrong value, an unknown command, buckets out of order, a wrong histogram.
    let text = "load 1m\n  m 1 2\n\neval instant at 1m m\n  m 3\n\nevil\n\nload 1m\n  n {{sum:1}}\n  \
                o {{schema:-53 custom_values:[2 1]}}\n\neval instant at 0 n\n  n {{sum:2}}\n";
    let report = script::run("wrong.test", text);
    assert_eq!(
        report.to_string(),
        "wrong.test:4: failed: m: expected 3 for m, got 2\n\
         wrong.test:7: failed: unknown command \"evil\"\n\
         wrong.test:9: failed: o: custom buckets need ascending finite bounds, and have neither a zero bucket nor negative buckets\n\
         wrong.test:13: failed: n: expected {count:0, sum:2} of schema 0 for n, got {count:0, sum:1} of schema 0\n\
         0 passed, 4 failed"
    );
}

/// The functions and aggregations of Prometheus 3.8 that are not experimental there (docs/querying/functions.md and
/// operators.md), and limitk and limit_ratio, which we evaluate where that is allowed.
const STABLE: &str = "abs absent absent_over_time acos acosh asin asinh atan atanh avg_over_time ceil changes clamp \
    clamp_max clamp_min cos cosh count_over_time day_of_month day_of_week day_of_year days_in_month deg delta deriv exp \
    floor histogram_avg histogram_count histogram_fraction histogram_quantile histogram_stddev histogram_stdvar \
    histogram_sum hour idelta increase irate label_join label_replace last_over_time ln log10 log2 max_over_time \
    min_over_time minute month pi predict_linear present_over_time quantile_over_time rad rate resets round scalar sgn sin \
    sinh sort sort_desc sqrt stddev_over_time stdvar_over_time sum_over_time tan tanh time timestamp vector year \
    avg bottomk count count_values group limit_ratio limitk max min quantile stddev stdvar sum topk";

#[test]
fn every_function_has_a_script() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/promql/scripts");
    let scripts: String = folder
        .read_dir()
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    let evaluated: Vec<&str> = scripts
        .lines()
        .filter(|line| line.starts_with("eval"))
        .collect();
    // As a word and with arguments: `rate` is also within `irate`, and a metric may be called
    // `sum`.
    let is_called = |name: &str, line: &str| {
        line.match_indices(name).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            let after = line[at + name.len()..].trim_start();
            before.is_none_or(|c| !(c.is_alphanumeric() || c == '_'))
                && ["(", "by", "without"]
                    .iter()
                    .any(|next| after.starts_with(next))
        })
    };
    let missing: Vec<&str> = STABLE
        .split_whitespace()
        .filter(|name| !evaluated.iter().any(|line| is_called(name, line)))
        .collect();
    assert!(missing.is_empty(), "no script evaluates {missing:?}");
}
