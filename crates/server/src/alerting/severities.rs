//! What is valid in rules and routes and probably not meant: misspelt severities of a rule, of a route, and of
//! `alerts.page_severity`, and receivers that no route reaches. Any text is a severity, so none is a mistake, but a page that
//! waits for its group, or goes to nobody, is found out at night.

use super::Rules;
use std::collections::BTreeSet;
use takt_alerts::routing::config::Config as Routing;
use takt_alerts::rules::Rule;
use takt_alerts::template::Template;
use takt_model::MatchOp;
use takt_questions::did_you_mean;

/// The severities of Takt's own rules.
const KNOWN: [&str; 4] = ["critical", "warning", "info", "none"];

/// Returns what is probably not meant in rules, a sentence for each.
pub fn doubts_of_rules(rules: &Rules) -> Vec<String> {
    let severities = severities_of(rules).into_iter();
    severities
        .filter_map(|(place, severity)| {
            let meant = doubt(severity, KNOWN)?;
            Some(format!("{place}: severity {severity:?}{meant}"))
        })
        .collect()
}

/// Returns what is probably not meant in routes and receivers, a sentence for each. `rules` are those whose alerts they get.
pub fn doubts_of_routing(routing: &Routing, rules: &Rules) -> Vec<String> {
    let known = known_severities(rules);
    let severities = of_routes(routing).into_iter();
    let severities = severities.filter_map(|(key, severity)| {
        let meant = doubt(severity, known.iter().copied())?;
        Some(format!(
            "route {key}: no rule has severity {severity:?}{meant}"
        ))
    });

    let unreached = routing.unreached().map(|receiver| {
        let name = &receiver.name;
        format!("receiver {name}: no route leads to it, so it gets no message")
    });
    severities.chain(unreached).collect()
}

/// Returns what is doubtful about the severity whose alerts are sent at once.
pub fn doubt_of_page(page: &str, rules: &Rules) -> Option<String> {
    let known = known_severities(rules);
    if page.is_empty() || known.contains(page) {
        return None;
    }

    let meant = did_you_mean(page, known);
    Some(format!(
        "alerts.page_severity: no rule has severity {page:?}, so no alert of a rule is sent at once{meant}"
    ))
}

/// The severities of rules. One that a rule sets is known, however unusual it is: routes may name it.
fn known_severities(rules: &Rules) -> BTreeSet<&str> {
    let raised = severities_of(rules).into_iter();
    raised.map(|(_, severity)| severity).chain(KNOWN).collect()
}

/// What was probably meant instead of a severity that is not known. `None` if it is known, or like none.
fn doubt<'k>(severity: &str, known: impl IntoIterator<Item = &'k str> + Clone) -> Option<String> {
    let is_known = known.clone().into_iter().any(|known| known == severity);
    let meant = did_you_mean(severity, known);
    (!is_known && !meant.is_empty()).then_some(meant)
}

/// The severities that rules set, and where. Those of a template are left out.
fn severities_of(rules: &Rules) -> Vec<(String, &str)> {
    let samples = rules.files.iter().flat_map(|file| {
        let rules = file.groups.iter().flat_map(|group| &group.rules);
        rules.filter_map(move |rule| match rule {
            Rule::Alerting(rule) => Some((&file.name, rule.line, &rule.labels)),
            Rule::Recording(_) => None,
        })
    });

    let events = rules.events.iter().flat_map(|file| {
        let rules = file.groups.iter().flat_map(|group| &group.rules);
        rules.map(move |rule| (&file.name, rule.line, &rule.labels))
    });

    samples
        .chain(events)
        .filter_map(|(file, line, labels)| {
            Some((format!("{file}, line {line}"), severity(labels)?))
        })
        .collect()
}

fn severity(labels: &[(String, Template)]) -> Option<&str> {
    let (_, template) = labels.iter().find(|(name, _)| name == "severity")?;
    // A template's severity is known only when the alert fires.
    Some(template.source()).filter(|source| !source.contains("{{"))
}

/// The severities that routes name, with the key of the route.
fn of_routes(routing: &Routing) -> Vec<(&str, &str)> {
    let mut named = Vec::new();
    for route in routing.routes.iter() {
        let severities = route
            .matchers
            .0
            .iter()
            .filter(|one| one.name() == "severity");
        for matcher in severities {
            // Alertmanager's regular expressions are mostly alternatives of whole words.
            let alternatives = match matcher.op() {
                MatchOp::Equal | MatchOp::NotEqual => vec![matcher.value()],
                MatchOp::Regex | MatchOp::NotRegex => matcher.value().split('|').collect(),
            };
            // The key of a route contains those of the routes above it.
            named.extend(
                alternatives
                    .into_iter()
                    .map(|one| (route.key.as_str(), one)),
            );
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::super::load;
    use super::*;
    use crate::Config;
    use std::fs;
    use tempfile::tempdir;

    #[test]
    fn misspelt_severities_are_named_and_unusual_ones_are_not() {
        let folder = tempdir().unwrap();
        let rules = "groups:\n- name: own\n  rules:\n\
            \x20 - {alert: A, expr: up == 0, labels: {severity: critcal}}\n\
            \x20 - {alert: B, expr: up == 0, labels: {severity: ticket}}\n";
        let routes = "route:\n  receiver: a\n  routes:\n\
            \x20 - {receiver: a, matchers: ['severity=~\"warnin|tickets\"']}\n\
            \x20 - {receiver: a, matchers: ['severity=\"ticket\"']}\nreceivers: [{name: a}]\n";

        fs::create_dir(folder.path().join("rules")).unwrap();
        fs::write(folder.path().join("rules/own.yml"), rules).unwrap();
        fs::write(folder.path().join("am.yml"), routes).unwrap();
        let text = "[alerts]\nrule_dirs = ['rules']\nalertmanager_file = 'am.yml'\n";
        let config = Config::parse(text, &folder.path().join("takt.toml")).unwrap();

        let loaded = load(&config).unwrap();

        let mut found = doubts_of_rules(&loaded.rules);
        found.extend(doubts_of_routing(&loaded.routing, &loaded.rules));
        let found: Vec<&str> = found
            .iter()
            .map(|one| one.trim_start_matches(&*folder.path().to_string_lossy()))
            .collect();
        assert_eq!(
            found,
            [
                "/rules/own.yml, line 4: severity \"critcal\"; did you mean critical?",
                "route {}/{severity=~\"warnin|tickets\"}: no rule has severity \"warnin\"; did you mean warning?",
                "route {}/{severity=~\"warnin|tickets\"}: no rule has severity \"tickets\"; did you mean ticket?",
            ]
        );

        let said = "alerts.page_severity: no rule has severity \"error\", so no alert of a rule is sent at once";
        let page = |severity: &str| doubt_of_page(severity, &loaded.rules);
        assert_eq!(page("error").as_deref(), Some(said));
        assert_eq!([page("critical"), page("")], [None, None]);
    }
}
