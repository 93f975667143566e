//! Alerts that another alert explains: the node is down, so nobody needs to hear that its GPUs are gone.

use super::matcher::Matchers;
use crate::fingerprint::Fingerprint;
use std::collections::HashMap;
use takt_model::Labels;

/// While an alert fires that `source` accepts, alerts that `target` accepts are not told, if both have the same value
/// in each of the labels `equal` (missing is empty, so both lacking one counts as the same).
#[derive(Debug, Clone, PartialEq)]
pub struct InhibitRule {
    /// What explains.
    pub source: Matchers,
    /// What is explained.
    pub target: Matchers,
    /// Labels that must agree.
    pub equal: Vec<String>,
}

/// All alerts that explain others at one instant, found by the labels that have to agree.
///
/// Every source of a rule is kept, not one for each set of labels: when one of two sources resolves, the other still
/// explains.
#[derive(Debug, Default)]
pub struct Inhibitor<'a> {
    rules: Vec<(&'a InhibitRule, Sources<'a>)>,
}

/// The alerts that one rule takes for sources, by the values of the labels that have to agree.
type Sources<'a> = HashMap<Vec<&'a str>, Vec<Source>>;

#[derive(Debug)]
struct Source {
    fingerprint: Fingerprint,
    is_target_too: bool,
}

impl<'a> Inhibitor<'a> {
    /// An index of the alerts that fire.
    pub fn new(
        rules: &'a [InhibitRule],
        firing: impl Iterator<Item = (Fingerprint, &'a Labels)>,
    ) -> Self {
        let mut rules: Vec<_> = rules.iter().map(|rule| (rule, Sources::new())).collect();
        if rules.is_empty() {
            return Self::default();
        }
        for (fingerprint, labels) in firing {
            for (rule, sources) in &mut rules {
                if rule.source.accept(labels) {
                    let source = Source {
                        fingerprint,
                        is_target_too: rule.target.accept(labels),
                    };
                    sources.entry(rule.values(labels)).or_default().push(source);
                }
            }
        }
        Self { rules }
    }

    /// The first alert that explains one with these labels.
    pub fn muted_by(&self, labels: &Labels) -> Option<Fingerprint> {
        self.rules.iter().find_map(|(rule, sources)| {
            if !rule.target.accept(labels) {
                return None;
            }
            // An alert on both sides is not explained by another on both sides: else each would silence the other.
            let is_source_too = rule.source.accept(labels);
            let candidates = sources.get(&rule.values(labels))?;
            candidates
                .iter()
                .find(|source| !(is_source_too && source.is_target_too))
                .map(|source| source.fingerprint)
        })
    }
}

impl InhibitRule {
    fn values<'l>(&self, labels: &'l Labels) -> Vec<&'l str> {
        self.equal
            .iter()
            .map(|name| labels.get(name).unwrap_or_default())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::matcher::parse_matchers;
    use super::*;
    use crate::testing::parse_series;

    fn rule(source: &str, target: &str, equal: &[&str]) -> InhibitRule {
        InhibitRule {
            source: Matchers(parse_matchers(source).unwrap()),
            target: Matchers(parse_matchers(target).unwrap()),
            equal: equal.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn is_muted(rules: &[InhibitRule], firing: &[&str], target: &str) -> bool {
        let firing: Vec<Labels> = firing.iter().map(|text| parse_series(text)).collect();
        let inhibitor = Inhibitor::new(
            rules,
            firing
                .iter()
                .map(|labels| (Fingerprint::of(labels), labels)),
        );
        inhibitor.muted_by(&parse_series(target)).is_some()
    }

    #[test]
    fn a_node_that_is_down_explains_its_own_alerts_only() {
        let rules = [rule(
            "alertname=NodeDown",
            "alertname!=NodeDown,node!=\"\"",
            &["node"],
        )];
        let down = ["{alertname=NodeDown,node=g01}"];
        assert!(is_muted(&rules, &down, "{alertname=GpuHot,node=g01}"));
        assert!(!is_muted(&rules, &down, "{alertname=GpuHot,node=g02}"));
        assert!(!is_muted(&rules, &down, "{alertname=NodeDown,node=g01}"));
        assert!(!is_muted(&rules, &[], "{alertname=GpuHot,node=g01}"));
    }

    #[test]
    fn labels_that_both_lack_agree() {
        let rules = [rule("s=1", "t=1", &["node"])];
        assert!(is_muted(&rules, &["{s=1}"], "{t=1}"));
        assert!(!is_muted(&rules, &["{s=1}"], "{t=1,node=g01}"));
    }

    #[test]
    fn an_alert_on_both_sides_is_explained_by_a_plain_source_only() {
        let rules = [rule(
            "severity=~\"critical|warning\"",
            "severity=warning",
            &["node"],
        )];
        assert!(
            !is_muted(
                &rules,
                &["{severity=warning,node=a}"],
                "{severity=warning,node=a}"
            ),
            "not by itself"
        );
        assert!(is_muted(
            &rules,
            &["{severity=critical,node=a}"],
            "{severity=warning,node=a}"
        ));
    }

    #[test]
    fn every_source_counts() {
        // The first source of these labels is on both sides and explains nothing here; the second one does.
        let rules = [rule(
            "severity=~\"critical|warning\"",
            "severity=warning",
            &["node"],
        )];
        let both = [
            "{severity=warning,node=a,x=1}",
            "{severity=critical,node=a}",
        ];
        assert!(is_muted(&rules, &both, "{severity=warning,node=a,x=2}"));
        let other_order = [both[1], both[0]];
        assert!(is_muted(
            &rules,
            &other_order,
            "{severity=warning,node=a,x=2}"
        ));
    }
}
