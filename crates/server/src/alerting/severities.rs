//! Severities that are probably misspelt: of a rule, of a route, and `alerts.page_severity`. Any text is a severity, so
//! none is a mistake, but a page that waits for its group, or goes to nobody, is found out at night.

use super::Loaded;
use std::collections::BTreeSet;
use takt_alerts::rules::Rule;
use takt_alerts::template::Template;
use takt_model::MatchOp;
use takt_questions::did_you_mean;

/// The severities of Takt's own rules.
const KNOWN: [&str; 4] = ["critical", "warning", "info", "none"];

/// Returns what is doubtful about the severities of rules and routes, and about `page`, the severity that is sent at once.
pub fn doubtful_severities(loaded: &Loaded, page: &str) -> Vec<String> {
    let of_rules = of_rules(loaded);
    let rules = of_rules.iter().filter_map(|(place, severity)| {
        let meant = doubt(severity, KNOWN)?;
        Some(format!("{place}: severity {severity:?}{meant}"))
    });

    // A severity that a rule sets is known, however unusual it is: routes may name it.
    let raised: BTreeSet<&str> = of_rules.iter().map(|(_, severity)| *severity).collect();
    let known: BTreeSet<&str> = raised.union(&KNOWN.into()).copied().collect();
    let routes = of_routes(loaded).into_iter().filter_map(|(key, severity)| {
        let meant = doubt(severity, known.iter().copied())?;
        Some(format!(
            "route {key}: no rule has severity {severity:?}{meant}"
        ))
    });

    let pages = (!page.is_empty() && !known.contains(page)).then(|| {
        let meant = did_you_mean(page, known.iter().copied());
        format!("alerts.page_severity: no rule has severity {page:?}, so no alert of a rule is sent at once{meant}")
    });
    rules.chain(routes).chain(pages).collect()
}

/// What was probably meant instead of a severity that is not known. `None` if it is known, or like none.
fn doubt<'k>(severity: &str, known: impl IntoIterator<Item = &'k str> + Clone) -> Option<String> {
    let is_known = known.clone().into_iter().any(|known| known == severity);
    let meant = did_you_mean(severity, known);
    (!is_known && !meant.is_empty()).then_some(meant)
}

/// The severities that rules set, and where. Those of a template are left out.
fn of_rules(loaded: &Loaded) -> Vec<(String, &str)> {
    let samples = loaded.rules.files.iter().flat_map(|file| {
        let rules = file.groups.iter().flat_map(|group| &group.rules);
        rules.filter_map(move |rule| match rule {
            Rule::Alerting(rule) => Some((&file.name, rule.line, &rule.labels)),
            Rule::Recording(_) => None,
        })
    });

    let events = loaded.rules.events.iter().flat_map(|file| {
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
fn of_routes(loaded: &Loaded) -> Vec<(&str, &str)> {
    let mut named = Vec::new();
    for route in loaded.routing.routes.iter() {
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

        let found = doubtful_severities(&loaded, "error");
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
                "alerts.page_severity: no rule has severity \"error\", so no alert of a rule is sent at once",
            ]
        );

        assert_eq!(doubtful_severities(&loaded, "critical").len(), 3);
        assert_eq!(doubtful_severities(&loaded, "").len(), 3);
    }
}
