//! Our scripts, one a subject: each function and each trap of the language.

use std::path::Path;
use takt_collector::query::promql::script::{self, Report};

#[test]
fn scripts_pass() {
    let mut files: Vec<_> = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/promql/scripts")
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "test"))
        .collect();
    files.sort();
    let mut report = Report::default();
    for file in &files {
        let name = file.file_name().unwrap().to_string_lossy();
        report.merge(script::run(&name, &std::fs::read_to_string(file).unwrap()));
    }
    assert!(report.failed.is_empty() && report.skipped.is_empty(), "\n{report}");
    assert!(report.passed > 300, "{report}");
}

#[test]
fn a_wrong_script_fails_with_file_and_line() {
    let text =
        "load 1m\n  m 1 2\n\neval instant at 1m m\n  m 3\n\nevil\n\nload 1m\n  n {{sum:1}}\n\neval instant at 0 n\n";
    let report = script::run("wrong.test", text);
    assert_eq!(
        report.to_string(),
        "wrong.test:12: skipped: n: selects n, which holds native histograms\n\
         wrong.test:4: failed: m: expected 3 for m, got 2\n\
         wrong.test:7: failed: unknown command \"evil\"\n\
         1 skipped\n\
         0 passed, 2 failed"
    );
}
