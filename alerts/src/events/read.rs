//! From the text of an event rule file to its rules.

use super::xid::{XidTable, numbers};
use super::{EndCondition, EventFile, EventGroup, EventPattern, EventRule, RepeatCount};
use crate::ports::Query;
use crate::routing::matcher::{Matchers, parse_matchers};
use crate::rules::templates;
use crate::template::Template;
use crate::yaml::{Mistake, Node};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as NameError, StrDeserializer};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use takt_model::EventKind;

/// How long an alert is held if its rule has neither `hold` nor `until`.
const HOLD: Duration = Duration::from_secs(3600);

const RULE_KEYS: &[&str] = &[
    "alert",
    "when",
    "by",
    "repeat",
    "hold",
    "until",
    "labels",
    "annotations",
];

impl EventFile {
    /// Reads the text of the file called `name`; `xids` has the known classes.
    ///
    /// # Errors
    /// At the first mistake.
    pub fn read(name: &str, text: &str, xids: &XidTable) -> Result<Self, Mistake> {
        let groups = || -> Result<Vec<EventGroup>, Mistake> {
            let root = Node::read(text)?;
            let mut groups: Vec<EventGroup> = Vec::new();
            for node in root.fields(&["groups"])?.or_default("groups", Node::list)? {
                let group = group(node, xids)?;
                // Stored alerts are found by file, group and rule, so a group's name has to be unique.
                if groups.iter().any(|known| known.name == group.name) {
                    return Err(
                        node.mistake(format!("there are two groups called `{}`", group.name))
                    );
                }
                groups.push(group);
            }
            Ok(groups)
        };
        let groups = groups().map_err(|mistake| mistake.in_file(name))?;
        Ok(Self {
            name: name.to_owned(),
            groups,
        })
    }

    /// Checks every end condition with `query`.
    ///
    /// # Errors
    /// At the first that cannot be evaluated.
    pub fn check(&self, query: &dyn Query) -> Result<(), Mistake> {
        for rule in self.groups.iter().flat_map(|group| &group.rules) {
            if let EndCondition::Until(expr) = &rule.ends {
                let wrong = |error| {
                    Mistake::new(rule.line, format!("{error}"))
                        .within(format!("rule `{}`", rule.name))
                };
                query
                    .check(expr)
                    .map_err(|error| wrong(error).in_file(&self.name))?;
            }
        }
        Ok(())
    }
}

/// Templates that also work without labels: an event may lack some of them, and event rules have no
/// database.
fn rehearsed(node: &Node, are_labels: bool) -> Result<Vec<(String, Template)>, Mistake> {
    let all = templates(node, are_labels)?;
    for (name, template) in &all {
        template
            .rehearse()
            .map_err(|error| node.mistake(error.to_string()).within(format!("`{name}`")))?;
    }
    Ok(all)
}

fn group(node: &Node, xids: &XidTable) -> Result<EventGroup, Mistake> {
    let fields = node.fields(&["name", "rules"])?;
    let name = fields.require("name")?.text()?.to_owned();
    if name.is_empty() {
        return Err(node.mistake("a group needs a name"));
    }

    let read = || -> Result<Vec<EventRule>, Mistake> {
        let mut rules: Vec<EventRule> = Vec::new();
        for node in fields.or_default("rules", Node::list)? {
            let rule = rule(node, xids)?;
            if let Some(first) = rules.iter().find(|known| raises_same_alerts(known, &rule)) {
                return Err(node.mistake(format!(
                    "rule `{}` of line {} has the same labels, so both would raise and end the same alerts; write one \
                     rule with both conditions in `when`, or give one of them another label",
                    rule.name, first.line
                )));
            }
            rules.push(rule);
        }
        Ok(rules)
    };

    let rules = read().map_err(|mistake| mistake.within(format!("group `{name}`")))?;
    Ok(EventGroup { name, rules })
}

/// Whether one event would give an alert with the same labels by both rules.
fn raises_same_alerts(one: &EventRule, other: &EventRule) -> bool {
    let labels = |rule: &EventRule| -> BTreeMap<String, String> {
        let labels = rule.labels.iter();
        labels
            .map(|(name, template)| (name.clone(), template.source().to_owned()))
            .collect()
    };
    let by = |rule: &EventRule| -> BTreeSet<String> { rule.by.iter().cloned().collect() };

    one.name == other.name && by(one) == by(other) && labels(one) == labels(other)
}

fn rule(node: &Node, xids: &XidTable) -> Result<EventRule, Mistake> {
    // The name is read first, so that every mistake in the rule can be reported with it.
    let name = node
        .pairs()?
        .find(|(key, _)| *key == "alert")
        .map_or(Ok(""), |(_, node)| node.text())?
        .to_owned();

    let read = || -> Result<EventRule, Mistake> {
        let fields = node.fields(RULE_KEYS)?;
        if fields.require("alert")?.text()?.is_empty() {
            return Err(node.mistake("an alert needs a name"));
        }

        let when = fields.require("when")?;

        let when: Vec<_> = when
            .list()?
            .iter()
            .map(|node| read_when(node, xids))
            .collect::<Result<_, _>>()?;

        if when.is_empty() {
            return Err(node.mistake("`when` is empty: the rule would never fire"));
        }
        // A burst is a way of counting, and without `repeat` the first event fires.
        if fields.get("repeat").is_none() && when.iter().any(|when| when.burst.is_some()) {
            return Err(node.mistake("`burst` needs `repeat`: without `repeat` nothing is counted"));
        }

        let ends = match (fields.get("hold"), fields.get("until")) {
            (Some(_), Some(_)) => {
                return Err(node.mistake("an alert ends after `hold` or at `until`, not both"));
            }
            (Some(hold), None) => EndCondition::After(hold.duration()?),
            (None, Some(until)) => EndCondition::Until(until.text()?.to_owned()),
            (None, None) => EndCondition::After(HOLD),
        };

        Ok(EventRule {
            name: name.clone(),
            when,
            by: fields.or_default("by", Node::texts)?,
            repeat: fields.optional("repeat", repeat)?.unwrap_or(RepeatCount {
                times: 1,
                within: Duration::ZERO,
                burst: Duration::ZERO,
                distinct: None,
            }),
            ends,
            labels: fields.or_default("labels", |node| rehearsed(node, true))?,
            annotations: fields.or_default("annotations", |node| rehearsed(node, false))?,
            line: node.line(),
        })
    };
    read().map_err(|mistake| mistake.within(format!("rule `{name}`")))
}

fn read_when(node: &Node, xids: &XidTable) -> Result<EventPattern, Mistake> {
    let fields = node.fields(&["kind", "xid", "class", "match", "burst"])?;
    let kind = fields.require("kind")?;
    let burst = fields.optional("burst", Node::duration)?;

    let mut when = EventPattern {
        kind: event_kind(kind)?,
        xid: Vec::new(),
        class: Vec::new(),
        matchers: Matchers::default(),
        burst,
    };

    for item in fields.or_default("xid", Node::list)? {
        let text = item.text()?;
        when.xid.push(
            numbers(text)
                .ok_or_else(|| item.mistake(format!("`{text}` is neither `n` nor `n-m`")))?,
        );
    }

    for item in fields.or_default("class", Node::list)? {
        let class = item.text()?;
        // A class that no XID has would be a rule that never fires.
        if !xids.has_class(class) {
            return Err(item.mistake(format!("no XID has the class `{class}`")));
        }
        when.class.push(class.to_owned());
    }

    if when.kind != EventKind::Xid && !(when.xid.is_empty() && when.class.is_empty()) {
        return Err(node.mistake("only events of kind `xid` have `xid` and `class`"));
    }

    for item in fields.or_default("match", Node::list)? {
        when.matchers
            .0
            .extend(parse_matchers(item.text()?).map_err(|error| item.mistake(error.to_string()))?);
    }
    Ok(when)
}

/// The kind of event with that name.
fn event_kind(node: &Node) -> Result<EventKind, Mistake> {
    let name = node.text()?;
    // The names are those of the exporter's events, so a new kind needs no list here.
    let word: StrDeserializer<'_, NameError> = name.into_deserializer();
    EventKind::deserialize(word).map_err(|error| node.mistake(format!("no kind of event: {error}")))
}

fn repeat(node: &Node) -> Result<RepeatCount, Mistake> {
    let fields = node.fields(&["times", "within", "burst", "distinct"])?;
    let times = fields.require("times")?;

    let repeat = RepeatCount {
        times: times.number()?,
        within: fields.require("within")?.duration()?,
        burst: fields.or_default("burst", Node::duration)?,
        distinct: fields.optional("distinct", Node::text)?.map(str::to_owned),
    };
    match repeat.times {
        0 => Err(times.mistake("has to be at least 1")),
        // Only as many bursts are remembered.
        many if many > super::run::SEEN_MAX => {
            Err(times.mistake(format!("at most {}", super::run::SEEN_MAX)))
        }
        _ => Ok(repeat),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let rule = |text: &str| format!("groups: [{{name: g, rules: [{{alert: A, {text}}}]}}]");
        for (text, says) in [
            (rule("when: []"), "`when` is empty"),
            (rule("hold: 1h"), "rule `A`: `when` is missing"),
            (
                rule("when: [{kind: xyz}]"),
                "no kind of event: unknown variant `xyz`, expected one of `xid`",
            ),
            (rule("when: [{kind: xid, xid: [a]}]"), "`a` is neither"),
            (
                rule("when: [{kind: xid, class: [reset]}]"),
                "no XID has the class `reset`",
            ),
            (
                rule("when: [{kind: oom_kill, xid: [3]}]"),
                "only events of kind `xid`",
            ),
            (
                rule("when: [{kind: xid, match: ['(']}]"),
                "`(` is not a matcher",
            ),
            (rule("when: [{kind: xid}], hold: 1h, until: up"), "not both"),
            (
                rule("when: [{kind: xid}], repeat: {times: 0, within: 1h}"),
                "at least 1",
            ),
            (
                rule("when: [{kind: xid}], repeat: {times: 2}"),
                "`within` is missing",
            ),
            (
                rule("when: [{kind: xid}], holds: 1h"),
                "did you mean `hold`?",
            ),
            (
                rule("when: [{kind: xid, burst: 3h}]"),
                "without `repeat` nothing is counted",
            ),
            (
                rule("when: [{kind: xid, burst: x}], repeat: {times: 2, within: 1h}"),
                "`burst`",
            ),
        ] {
            let message = EventFile::read("x.events.yml", &text, XidTable::shipped())
                .unwrap_err()
                .to_string();
            assert!(
                message.contains(says)
                    && message.starts_with("x.events.yml, line 1: group `g`, rule `A`"),
                "{text}\n  gave {message}"
            );
        }
    }

    #[test]
    fn names_that_stored_alerts_are_found_by_are_unique() {
        let read = |text: &str| EventFile::read("x.events.yml", text, XidTable::shipped());
        let two = |second: &str| {
            let first = "{alert: A, when: [{kind: xid}], by: [node, uuid], labels: {severity: critical, team: gpu}}";
            read(&format!(
                "groups: [{{name: g, rules: [{first}, {{alert: A, {second}}}]}}]"
            ))
        };

        for (file, says) in [
            (
                two(
                    "when: [{kind: oom_kill}], by: [uuid, node], labels: {team: gpu, severity: critical}",
                ),
                "x.events.yml, line 1: group `g`: rule `A` of line 1 has the same labels",
            ),
            (
                read("groups: [{name: g}, {name: g}]"),
                "there are two groups called `g`",
            ),
            (read("groups: [{name: ''}]"), "a group needs a name"),
            (
                read("groups: [{name: g, rules: [{alert: '', when: [{kind: xid}]}]}]"),
                "an alert needs a name",
            ),
        ] {
            let message = file.unwrap_err().to_string();
            assert!(message.contains(says), "{message}");
        }

        for second in [
            "when: [{kind: oom_kill}], by: [node, uuid], labels: {severity: warning, team: gpu}",
            "when: [{kind: oom_kill}], by: [node], labels: {severity: critical, team: gpu}",
        ] {
            assert_eq!(two(second).unwrap().groups[0].rules.len(), 2, "{second}");
        }
    }
}
