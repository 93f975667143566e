//! Inhibition: alerts that another alert explains. If a node is down, no message says that its GPUs
//! are missing.

use super::matcher::Matchers;
use crate::fingerprint::Fingerprint;
use std::collections::HashMap;
use std::time::Duration;
use takt_model::{Labels, Timestamp};

/// Time after its end for which a source still inhibits alerts that fired before its end. Rules are
/// evaluated group by group: without this, a consequence that ends a few seconds after its cause
/// would be sent in between.
pub const LINGER: Duration = Duration::from_secs(60);

/// While an alert fires that `source` accepts, no message is sent about alerts that `target`
/// accepts, if both have the same value in each of the labels `equal`. A missing label counts as
/// empty, so two alerts that lack it agree.
#[derive(Debug, Clone, PartialEq)]
pub struct InhibitRule {
    /// Matches the alerts that inhibit.
    pub source: Matchers,
    /// Matches the alerts that are inhibited.
    pub target: Matchers,
    /// Labels that must agree.
    pub equal: Vec<String>,
}

/// All alerts that inhibit others at one instant, found by the labels that have to agree.
///
/// Every source of a rule is kept, not one for each set of labels: when one of two sources
/// resolves, the other still inhibits.
#[derive(Debug, Default)]
pub struct Inhibitor<'a> {
    rules: Vec<(&'a InhibitRule, Sources<'a>)>,
}

/// The sources of one rule, by the values of the labels that have to agree.
type Sources<'a> = HashMap<Vec<&'a str>, Vec<Source>>;

#[derive(Debug)]
struct Source {
    fingerprint: Fingerprint,
    is_target_too: bool,
    /// When it resolved; `None` while it fires.
    ended_at: Option<Timestamp>,
}

/// An alert that may inhibit others.
#[derive(Debug, Clone, Copy)]
pub struct SourceAlert<'a> {
    /// Its identity.
    pub fingerprint: Fingerprint,
    /// Its labels.
    pub labels: &'a Labels,
    /// When it resolved, at most [`LINGER`] ago; `None` while it fires.
    pub ended_at: Option<Timestamp>,
}

/// The alert that inhibits another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inhibition {
    /// The source.
    pub by: Fingerprint,
    /// When the inhibition ends, if the source has resolved already; `None` while the source fires.
    pub until: Option<Timestamp>,
}

impl<'a> Inhibitor<'a> {
    /// An index of the alerts that fire, or fired until a moment ago.
    pub fn new(rules: &'a [InhibitRule], alerts: impl Iterator<Item = SourceAlert<'a>>) -> Self {
        let mut rules: Vec<_> = rules.iter().map(|rule| (rule, Sources::new())).collect();
        // Without rules the alerts need not be walked over, thousands of them.
        if rules.is_empty() {
            return Self::default();
        }
        for alert in alerts {
            for (rule, sources) in &mut rules {
                if rule.source.accept(alert.labels) {
                    let source = Source {
                        fingerprint: alert.fingerprint,
                        is_target_too: rule.target.accept(alert.labels),
                        ended_at: alert.ended_at,
                    };
                    // By the values that have to agree, each target finds its sources with one look-up.
                    let values = rule.values(alert.labels);
                    sources.entry(values).or_default().push(source);
                }
            }
        }
        Self { rules }
    }

    /// The alert that inhibits one with these labels: one that fires if there is one, else one that
    /// resolved a moment ago. `fires_since` is when the inhibited alert began to fire, `None` if it
    /// has resolved: its end is held back only by sources that fire.
    pub fn inhibits(&self, labels: &Labels, fires_since: Option<Timestamp>) -> Option<Inhibition> {
        let candidates = self.rules.iter().flat_map(|(rule, sources)| {
            let is_target = rule.target.accept(labels);
            let found = is_target.then(|| sources.get(&rule.values(labels)));
            // An alert on both sides is not inhibited by another on both sides: each would inhibit
            // the other.
            let is_source_too = is_target && rule.source.accept(labels);
            found
                .flatten()
                .into_iter()
                .flatten()
                .filter(move |source| !(is_source_too && source.is_target_too))
        });

        let mut lingering = None;
        for source in candidates {
            // A source that fires counts more than one that has ended: the inhibition has no end yet.
            let Some(end) = source.ended_at else {
                return Some(Inhibition {
                    by: source.fingerprint,
                    until: None,
                });
            };
            // Only what fired before the source's end can be its consequence.
            if fires_since.is_some_and(|since| since <= end) {
                let until = Some(end.plus(LINGER));
                lingering = lingering.max(until.map(|until| (until, source.fingerprint)));
            }
        }
        lingering.map(|(until, by)| Inhibition {
            by,
            until: Some(until),
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
        let alerts = firing.iter().map(|labels| SourceAlert {
            fingerprint: Fingerprint::of(labels),
            labels,
            ended_at: None,
        });

        let inhibitor = Inhibitor::new(rules, alerts);
        inhibitor
            .inhibits(&parse_series(target), Some(Timestamp(0)))
            .is_some()
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
    fn a_source_that_has_just_ended_inhibits_what_fired_before_its_end() {
        let rules = [rule("alertname=NodeDown", "alertname!=NodeDown", &["node"])];
        let down = parse_series("{alertname=NodeDown,node=g01}");
        let end = Timestamp::from_seconds(100);

        let alert = SourceAlert {
            fingerprint: Fingerprint::of(&down),
            labels: &down,
            ended_at: Some(end),
        };
        let inhibitor = Inhibitor::new(&rules, [alert].into_iter());
        let target = parse_series("{alertname=ExporterDown,node=g01}");
        let until = |since: Option<i64>| {
            let since = since.map(Timestamp::from_seconds);
            inhibitor.inhibits(&target, since).map(|found| found.until)
        };
        assert_eq!(until(Some(90)), Some(Some(end.plus(LINGER))));
        assert_eq!(until(Some(101)), None, "it has another cause");
        assert_eq!(until(None), None, "an end is not held back");
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
        // The first source of these labels is on both sides and explains nothing here; the second
        // one does.
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
