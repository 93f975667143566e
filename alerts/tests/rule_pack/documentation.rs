//! docs/rules.md lists the shipped alerts.

use super::*;

/// Alerts that the server raises without a rule.
const OF_THE_SERVER: [&str; 5] = [
    "TaktRuleFailing",
    "TaktDeliveryFailing",
    "TaktCannotStoreAlerts",
    "TaktCannotStoreSamples",
    "TaktSilencesTooMuch",
];

/// The tables of docs/rules.md have each alert once, with a reason, and no other alert.
#[test]
fn docs_list_exactly_the_existing_alerts() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/rules.md");
    let text = fs::read_to_string(path).unwrap();

    let mut explained = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        for name in cells[2]
            .split(", ")
            .filter_map(|name| name.strip_prefix('`')?.strip_suffix('`'))
        {
            assert!(cells[3].len() > 1, "{name}: receivers and time are missing");
            assert!(
                explained.insert(name.to_owned()),
                "{name} is explained twice"
            );
        }
    }

    let mut names = alert_names();
    names.extend(event_rules().into_iter().map(|rule| rule.name));
    names.extend(OF_THE_SERVER.map(str::to_owned));
    assert_eq!(explained, names);

    let rows: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(' ').next())
        .collect();
    let missing: Vec<_> = (1..=56)
        .filter(|row| !rows.contains(row.to_string().as_str()))
        .collect();
    assert_eq!(missing, [0; 0], "these rows have no line");
}
