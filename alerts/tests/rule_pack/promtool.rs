//! Debian's promtool accepts the rules and passes their scenarios.

use super::*;
use std::io;
use std::thread;

/// Runs promtool on each file, on all at the same time, if Debian's is installed; else prints the
/// name of the skipped test.
fn promtool(arguments: &[&str], files: &[(String, String)]) {
    thread::scope(|scope| {
        for (path, _) in files {
            scope.spawn(move || promtool_accepts(arguments, path));
        }
    });
}

fn promtool_accepts(arguments: &[&str], path: &str) {
    let output = match Command::new("promtool").args(arguments).arg(path).output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return eprintln!("skipped: promtool is not installed");
        }
        output => output.unwrap(),
    };

    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{path}: {stdout}{stderr}");
}

#[test]
fn promtool_accepts_the_rules() {
    promtool(&["check", "rules"], &files(&pack(), ".rules.yml"));
}

/// promtool does not know event rules, but their end conditions are PromQL, which it can check.
#[test]
fn promtool_accepts_the_end_conditions() {
    let files = files(&pack(), ".events.yml");
    let ends = files
        .iter()
        .flat_map(|(name, text)| {
            EventFile::read(name, text, XidTable::shipped())
                .unwrap()
                .groups
        })
        .flat_map(|group| group.rules)
        .filter_map(|rule| match rule.ends {
            EndCondition::Until(expr) => {
                Some(format!("  - {{record: '{}', expr: '{expr}'}}\n", rule.name))
            }
            EndCondition::After(_) => None,
        });

    let rules: String = ends.collect();
    assert!(!rules.is_empty());

    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ends.rules.yml");
    fs::write(&path, format!("groups:\n- name: ends\n  rules:\n{rules}")).unwrap();
    promtool(
        &["check", "rules"],
        &[(path.display().to_string(), String::new())],
    );
}

#[test]
fn promtool_passes_the_scenarios() {
    promtool(
        &["test", "rules"],
        &files(&pack().join("tests"), ".test.yml"),
    );
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/made-up/promtool");
    promtool(&["test", "rules"], &files(&ours, ".test.yml"));
}
