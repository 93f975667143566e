//! One node whose series are doubled, by its exporter or by someone who pushes, spoils only its own alerts: the scenarios of
//! the shipped rules give the same results for all others.

use super::{InMemory, Rules};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use takt_alerts::promtest::{Failure, Test, TestFile, run};
use takt_alerts::rules::Rule;
use takt_alerts::state::EvalError;
use takt_model::notation::NotedValue;
use takt_model::{Labels, METRIC_NAME};

/// Labels by which the rules know a machine and its parts, and labels that all series of a target have.
const IDENTITY: [&str; 8] = [
    METRIC_NAME,
    "cluster",
    "node",
    "uuid",
    "UUID",
    "gpu_uuid",
    "device",
    "job",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dashboards/rules/tests")
}

fn with(labels: &Labels, more: &[(&str, &str)]) -> Labels {
    let mut labels = labels.clone();
    more.iter()
        .for_each(|(name, value)| labels.set(name, value));
    labels
}

/// Series that differ from this one in labels that the rules do not mention, that they set, or that they copy.
fn doubles(labels: &Labels) -> Vec<Labels> {
    // A pusher chooses any label: the rules must not match two series where they expect one.
    let mut changed = with(labels, &[("sender", "evil"), ("model", "other")]);
    for (name, value) in labels.iter() {
        if !IDENTITY.contains(&name)
            && !["kind", "type", "sensor", "limit", "collector"].contains(&name)
        {
            changed.set(name, &format!("{value}-other"));
        }
    }
    vec![
        with(labels, &[("sender", "evil")]),
        with(labels, &[("sender", "evil"), ("severity", "other")]),
        with(
            labels,
            &[
                ("sender", "evil"),
                ("severity", "third"),
                ("scope", "other"),
            ],
        ),
        with(labels, &[("uuid", labels.get("uuid").unwrap_or("other"))]),
        changed,
    ]
}

/// Adds the doubles of the node's series, and series with the names that the rules record.
fn double(test: &mut Test, node: &str, recorded: &BTreeSet<String>, limits: &BTreeSet<String>) {
    let of_node: Vec<(Labels, Vec<NotedValue>)> = test
        .series
        .iter()
        .filter(|(labels, _)| labels.get("node") == Some(node))
        .cloned()
        .collect();

    let known: BTreeSet<Labels> = test
        .series
        .iter()
        .map(|(labels, _)| labels.clone())
        .collect();

    let mut added: Vec<_> = of_node
        .iter()
        .flat_map(|(labels, values)| {
            doubles(labels)
                .into_iter()
                .map(move |one| (one, values.clone()))
        })
        .collect();

    let longest = test
        .series
        .iter()
        .map(|(_, values)| values.len())
        .max()
        .unwrap_or(0);
    let constant = |value: f64| vec![NotedValue::Float(value); longest];

    for name in recorded {
        for (labels, _) in &of_node {
            let labels = with(labels, &[(METRIC_NAME, name), ("sender", "evil")]);
            added.push((labels, constant(7.0)));
        }
    }

    for name in limits {
        // Limits are recorded series, which a pusher or an exporter may imitate.
        for writer in ["sender", "instance"] {
            let mut labels = Labels::default();
            labels.set(METRIC_NAME, "takt_threshold");
            labels.set("name", name);
            labels.set(writer, "evil");
            added.push((labels, constant(1e9)));
        }
    }

    let mut seen = known;
    // A double may equal a series of the scenario, and a series has one list of values.
    added.retain(|(labels, _)| seen.insert(labels.clone()));
    test.series.extend(added);
}

/// Returns the lines of a failure that are about other nodes.
fn of_others(failure: &Failure, node: &str) -> Option<String> {
    let of_node = format!("node=\"{node}\"");
    // A sum over several nodes, or over alerts, may count the doubles.
    let is_of_another = |line: &&String| line.contains("node=\"") && !line.contains(&of_node);
    match failure {
        Failure::Rule {
            error: EvalError::SameLabels(_),
            ..
        } => None,
        Failure::Expression {
            expected,
            got: Ok(got),
            ..
        } => {
            let [expected, got] = [expected, got]
                .map(|lines| lines.iter().filter(is_of_another).collect::<BTreeSet<_>>());
            (expected != got).then(|| failure.to_string())
        }
        Failure::Alerts { .. } => None,
        failure => Some(failure.to_string()),
    }
}

#[test]
fn a_node_with_doubled_series_spoils_only_its_own_alerts() {
    let mut files: Vec<PathBuf> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();

    let mut spoilt = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let mut file = TestFile::read(&path.display().to_string(), &text).unwrap();

        let mut rules = Rules::default();
        for name in &file.rule_files {
            let path = folder().join(name);
            let text = fs::read_to_string(&path).unwrap();
            rules.add("rules.yml", name, &text).unwrap();
        }
        let all = rules
            .files
            .iter()
            .flat_map(|file| &file.groups)
            .flat_map(|group| &group.rules);

        let (mut recorded, mut limits) = (BTreeSet::new(), BTreeSet::new());
        for rule in all {
            if let Rule::Recording(rule) = rule {
                match rule.labels.get("name") {
                    Some(limit) => limits.insert(limit.to_owned()),
                    None => recorded.insert(rule.name.clone()),
                };
            }
        }

        for test in std::mem::take(&mut file.tests) {
            let nodes: BTreeSet<String> = test
                .series
                .iter()
                .filter_map(|(labels, _)| labels.get("node").map(str::to_owned))
                .collect();
            for node in nodes {
                let mut test = test.clone();
                double(&mut test, &node, &recorded, &limits);
                file.tests = vec![test];
                let failures = run(&file, &rules.files, &|| Box::new(InMemory::default()));
                spoilt.extend(
                    failures
                        .iter()
                        .filter_map(|failure| of_others(failure, &node)),
                );
            }
        }
    }
    assert!(spoilt.is_empty(), "{}", spoilt.join("\n"));
}
