//! The shipped rules: Takt and Debian's promtool accept them, and every rule has a scenario that
//! fires it and a similar one that must not.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test says what is missing by failing, and what it skips"
)]

mod documentation;
mod events;
mod promtool;
mod routes;
mod rules;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use takt_alerts::alert::Alert;
use takt_alerts::config::AlertsConfig;
use takt_alerts::events::xid::XidTable;
use takt_alerts::events::{EndCondition, EventFile, EventRule, EventRun};
use takt_alerts::promtest::{Test, TestFile};
use takt_alerts::routing::config::Config;
use takt_alerts::routing::maintenance::Maintenance;
use takt_alerts::routing::{Router, Settings};
use takt_alerts::rules::{Rule, RuleFile};
use takt_model::{Event, EventKind, Labels, Timestamp};

fn pack() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboards/rules")
}

fn files(directory: &Path, suffix: &str) -> Vec<(String, String)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(suffix))
        .map(|path| {
            (
                path.display().to_string(),
                fs::read_to_string(&path).unwrap(),
            )
        })
        .collect();

    assert!(!files.is_empty(), "no {suffix} in {}", directory.display());
    files.sort();
    files
}

fn alert_names() -> BTreeSet<String> {
    let rules: Vec<_> = files(&pack(), ".rules.yml")
        .iter()
        .flat_map(|(name, text)| {
            RuleFile::read(name, text)
                .unwrap_or_else(|e| panic!("{e}"))
                .groups
        })
        .flat_map(|group| group.rules)
        .collect();
    // A rule without severity or summary would be routed and shown as nothing.
    rules
        .iter()
        .filter_map(|rule| match rule {
            Rule::Alerting(rule) => {
                let severity = rule.labels.iter().find(|(name, _)| name == "severity");
                let severity = severity
                    .unwrap_or_else(|| panic!("{} has no severity", rule.name))
                    .1
                    .source();
                assert!(
                    ["critical", "warning", "info", "none"].contains(&severity),
                    "{}: {severity}",
                    rule.name
                );
                assert!(
                    rule.annotations.iter().any(|(name, _)| name == "summary"),
                    "{} says nothing",
                    rule.name
                );
                Some(rule.name.clone())
            }
            Rule::Recording(_) => None,
        })
        .collect()
}

fn event_files() -> Vec<EventFile> {
    files(&pack(), ".events.yml")
        .iter()
        .map(|(name, text)| {
            EventFile::read(name, text, XidTable::shipped()).unwrap_or_else(|e| panic!("{e}"))
        })
        .collect()
}

fn event_rules() -> Vec<EventRule> {
    event_files()
        .into_iter()
        .flat_map(|file| file.groups)
        .flat_map(|group| group.rules)
        .collect()
}
