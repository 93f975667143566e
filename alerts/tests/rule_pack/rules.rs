//! Each rule has a scenario that fires it and a similar one that does not.

use super::*;

/// A rule over an undefined threshold compares with an empty result and never fires.
#[test]
fn thresholds_are_set_once_and_used() {
    let named = |text: &str, before: &str, after: char| -> BTreeSet<String> {
        text.split(before)
            .skip(1)
            .map(|rest| rest.split(after).next().unwrap().to_owned())
            .collect()
    };

    let text: String = files(&pack(), ".rules.yml")
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    let set = named(&text, "record: takt_threshold, labels: {name: ", '}');
    assert!(!set.is_empty());

    let mut used = named(&text, "scalar(takt_threshold{name=\"", '"');
    used.remove("…"); // the file's own explanation
    assert_eq!(used, set);
}

fn scenarios() -> Vec<Test> {
    files(&pack().join("tests"), ".test.yml")
        .iter()
        .flat_map(|(name, text)| {
            TestFile::read(name, text)
                .unwrap_or_else(|e| panic!("{e}"))
                .tests
        })
        .collect()
}

#[test]
fn every_rule_has_a_scenario_that_fires_it() {
    let tests = scenarios();
    let fired: BTreeSet<String> = tests
        .iter()
        .flat_map(|test| &test.expressions)
        .flat_map(|expression| &expression.expected)
        .filter_map(|(labels, _)| labels.get("alertname").map(str::to_owned))
        .collect();
    assert_eq!(fired, alert_names());
}

/// Each scenario also has a similar case without an alert: the same series of another node, cluster
/// or job, at an instant at which all firing alerts are compared.
#[test]
fn every_rule_has_a_scenario_that_must_not_fire_it() {
    // Watchdog always fires.
    let mut with_twin = BTreeSet::from(["Watchdog".to_owned()]);
    for test in scenarios() {
        for all in &test.expressions {
            for (labels, _) in &all.expected {
                let Some(alert) = labels.get("alertname") else {
                    continue;
                };

                let mut others = labels.iter().filter(|(name, _)| *name != "alertname");
                let has_twin = others.any(|(name, _)| {
                    let is_expected = |value: &str| {
                        let same = |labels: &Labels| {
                            labels.get(name) == Some(value)
                                && labels.get("alertname") == Some(alert)
                        };
                        all.expected.iter().any(|(labels, _)| same(labels))
                    };
                    test.series
                        .iter()
                        .filter_map(|(labels, _)| labels.get(name))
                        .any(|value| !is_expected(value))
                });
                with_twin.extend(has_twin.then(|| alert.to_owned()));
            }
        }
    }

    let without: Vec<_> = alert_names().difference(&with_twin).cloned().collect();
    assert_eq!(
        without, [""; 0],
        "nothing shows what these must not fire for"
    );
}
