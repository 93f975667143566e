//! From the text of a rule file to its rules. A mistake names file, line, group and rule.

use super::{AlertingRule, Group, ON_EXPORTER_DOWN, OnExporterDown, RecordingRule, Rule, RuleFile};
use crate::ports::Query;
use crate::template::{Template, TemplateError};
use crate::yaml::{Fields, Mistake, Node};
use std::time::Duration;
use takt_model::METRIC_NAME;

const GROUP_KEYS: &[&str] = &[
    "name",
    "interval",
    "query_offset",
    "limit",
    "labels",
    "rules",
];
const RULE_KEYS: &[&str] = &[
    "alert",
    "record",
    "expr",
    "for",
    "keep_firing_for",
    "labels",
    "annotations",
];

impl RuleFile {
    /// Reads the text of the file called `name`.
    ///
    /// # Errors
    /// At the first mistake.
    pub fn read(name: &str, text: &str) -> Result<Self, Mistake> {
        groups(text)
            .map(|groups| Self {
                name: name.to_owned(),
                groups,
            })
            .map_err(|mistake| mistake.in_file(name))
    }

    /// Checks every expression with `query`.
    ///
    /// # Errors
    /// At the first expression that cannot be evaluated.
    pub fn check(&self, query: &dyn Query) -> Result<(), Mistake> {
        for group in &self.groups {
            for rule in &group.rules {
                query.check(rule.expr()).map_err(|error| {
                    Mistake::new(rule.line(), error.to_string())
                        .within(format!("rule `{}`", rule.name()))
                        .within(format!("group `{}`", group.name))
                        .in_file(&self.name)
                })?;
            }
        }
        Ok(())
    }
}

fn groups(text: &str) -> Result<Vec<Group>, Mistake> {
    let root = Node::read(text)?;

    let mut groups: Vec<Group> = Vec::new();
    for node in root.fields(&["groups"])?.or_default("groups", Node::list)? {
        let group = group(node)?;
        // Stored alerts are found by file, group and rule, so a group's name has to be unique.
        if groups.iter().any(|known| known.name == group.name) {
            return Err(node.mistake(format!("there are two groups called `{}`", group.name)));
        }
        groups.push(group);
    }
    Ok(groups)
}

fn group(node: &Node) -> Result<Group, Mistake> {
    let name = name_of(node, &["name"]);
    let inside = |mistake: Mistake| mistake.within(format!("group `{name}`"));
    let fields = node.fields(GROUP_KEYS).map_err(inside)?;
    if name.is_empty() {
        return Err(node.mistake("a group needs a name"));
    }

    let read = || -> Result<Group, Mistake> {
        let labels = fields.or_default("labels", |node| templates(node, true))?;
        let rules = fields.or_default("rules", Node::list)?;
        Ok(Group {
            name: name.to_owned(),
            interval: fields.optional("interval", Node::duration)?,
            query_offset: fields.optional("query_offset", Node::duration)?,
            // As in Prometheus, less than none is no limit either.
            limit: usize::try_from(fields.or_default("limit", Node::number::<i64>)?).unwrap_or(0),
            rules: rules
                .iter()
                .map(|node| rule(node, &labels))
                .collect::<Result<_, _>>()?,
        })
    };
    read().map_err(inside)
}

/// The name of a group or rule, for the message about a mistake in it.
fn name_of<'a>(node: &'a Node, keys: &[&str]) -> &'a str {
    let find = |key: &str| {
        node.pairs()
            .ok()?
            .find(|(known, _)| *known == key)?
            .1
            .text()
            .ok()
    };
    keys.iter().find_map(|key| find(key)).unwrap_or_default()
}

fn rule(node: &Node, group_labels: &[(String, Template)]) -> Result<Rule, Mistake> {
    // For the mistake only: a rule with both keys is refused below.
    let name = name_of(node, &["alert", "record"]);
    let read = || -> Result<Rule, Mistake> {
        let fields = node.fields(RULE_KEYS)?;
        match (fields.get("alert"), fields.get("record")) {
            (Some(_), Some(_)) => Err(node.mistake("a rule is an alert or a record, not both")),
            (Some(alert), None) if alert.text() == Ok("") => {
                Err(alert.mistake("an alert needs a name"))
            }
            (Some(alert), None) => {
                alerting(alert.text()?, &fields, group_labels).map(Rule::Alerting)
            }
            (None, Some(record)) => recording(record, &fields, group_labels).map(Rule::Recording),
            (None, None) => Err(node.mistake("a rule needs `alert` or `record`")),
        }
    };
    read().map_err(|mistake| mistake.within(format!("rule `{name}`")))
}

fn alerting(
    name: &str,
    fields: &Fields<'_>,
    group_labels: &[(String, Template)],
) -> Result<AlertingRule, Mistake> {
    let own = fields.or_default("labels", |node| templates(node, true))?;
    let mut annotations = fields.or_default("annotations", |node| templates(node, false))?;
    // The annotation is Takt's own, and no text for people.
    let on_exporter_down = match annotations
        .iter()
        .position(|(name, _)| name == ON_EXPORTER_DOWN)
    {
        None => OnExporterDown::default(),
        Some(at) => match annotations.remove(at).1.source() {
            "hold" => OnExporterDown::Hold,
            "resolve" => OnExporterDown::Resolve,
            other => {
                let what = format!("`{ON_EXPORTER_DOWN}` is `hold` or `resolve`, not `{other}`");
                return Err(Mistake::new(fields.line(), what));
            }
        },
    };

    Ok(AlertingRule {
        name: name.to_owned(),
        expr: expression(fields)?,
        hold: fields.or_default("for", Node::duration)?,
        keep_firing_for: fields.or_default("keep_firing_for", Node::duration)?,
        labels: merged(group_labels, own),
        annotations,
        on_exporter_down,
        line: fields.line(),
    })
}

fn recording(
    record: &Node,
    fields: &Fields<'_>,
    group_labels: &[(String, Template)],
) -> Result<RecordingRule, Mistake> {
    let name = record.text()?;
    // Since Prometheus 3 any text is a name; braces are an expression in the wrong place.
    if name.is_empty() || name.contains(['{', '}']) {
        return Err(record.mistake(format!(
            "`{name}` is not a name for a metric; an expression belongs into `expr`"
        )));
    }

    let says_something = |key: &str| match (key, fields.get(key)) {
        (_, None) => false,
        ("annotations", Some(node)) => node.pairs().is_ok_and(|mut all| all.next().is_some()),
        (_, Some(node)) => node.duration() != Ok(Duration::ZERO),
    };
    if let Some(key) = ["for", "keep_firing_for", "annotations"]
        .iter()
        .find(|key| says_something(key))
    {
        return Err(Mistake::new(
            fields.line(),
            format!("a recording rule has no `{key}`"),
        ));
    }

    let own = fields.or_default("labels", |node| templates(node, true))?;
    let labels = merged(group_labels, own);
    Ok(RecordingRule {
        name: name.to_owned(),
        expr: expression(fields)?,
        labels: labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.source()))
            .collect(),
        line: fields.line(),
    })
}

fn expression(fields: &Fields<'_>) -> Result<String, Mistake> {
    let node = fields.require("expr")?;
    match node.text()?.trim() {
        "" => Err(node.mistake("`expr` is empty")),
        expr => Ok(expr.to_owned()),
    }
}

/// A rule's own labels win over those of its group.
fn merged(group: &[(String, Template)], own: Vec<(String, Template)>) -> Vec<(String, Template)> {
    let inherited = group
        .iter()
        .filter(|(name, _)| !own.iter().any(|(own, _)| own == name));
    let mut all: Vec<_> = inherited.cloned().collect();
    all.extend(own);
    all
}

pub(crate) fn templates(node: &Node, are_labels: bool) -> Result<Vec<(String, Template)>, Mistake> {
    let mut out = Vec::new();
    for (name, value) in node.pairs()? {
        if name.is_empty() || (are_labels && name == METRIC_NAME) {
            return Err(value.mistake(format!("`{name}` cannot be set here")));
        }
        let wrong =
            |error: TemplateError| value.mistake(error.to_string()).within(format!("`{name}`"));
        let template = Template::read(value.text()?).map_err(wrong)?;
        template.check().map_err(wrong)?;
        // Whether a template works may depend on its alert; who tries it on none may be wrong about
        // it.
        if let Err(error) = template.rehearse().map_err(wrong) {
            tracing::debug!(%error, "a template fails where there are no labels");
        }
        out.push((name.to_owned(), template));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
groups:
  - name: gpu
    interval: 15s
    query_offset: 5s
    limit: 100
    labels: {team: gpu, severity: info}
    rules:
      - alert: GpuHot
        expr: |
          takt_gpu_temperature_celsius > 90
        for: 5m
        keep_firing_for: 1m
        labels: {severity: warning}
        annotations:
          summary: "{{ $labels.node }} is at {{ $value }}"
          takt_on_exporter_down: resolve
      - record: node:gpu_power:sum
        expr: sum by (node) (takt_gpu_power_watts)
        labels: {source: 1}
  - name: empty
"#;

    #[test]
    fn empty_values_are_accepted() {
        let text = "groups: [{name: g, limit: -1, rules: [{record: a, expr: up, for: 0s, \
             annotations: {}}]}]";
        assert_eq!(RuleFile::read("a.yml", text).unwrap().groups[0].limit, 0);
    }

    #[test]
    fn reads_every_field() {
        let file = RuleFile::read("gpu.rules.yml", GOOD).unwrap();
        let group = &file.groups[0];

        assert_eq!(group.interval, Some(Duration::from_secs(15)));
        assert_eq!(group.query_offset, Some(Duration::from_secs(5)));
        assert_eq!(group.limit, 100);
        assert_eq!(group.rules.len(), 2);
        assert_eq!(file.groups[1].rules.len(), 0);

        let Rule::Alerting(hot) = &group.rules[0] else {
            panic!("an alerting rule")
        };
        assert_eq!(hot.name.as_str(), "GpuHot");
        assert_eq!(hot.expr.as_str(), "takt_gpu_temperature_celsius > 90");
        assert_eq!(hot.hold, Duration::from_secs(300));
        assert_eq!(hot.keep_firing_for, Duration::from_secs(60));
        assert_eq!(hot.on_exporter_down, OnExporterDown::Resolve);

        assert_eq!(
            hot.annotations.len(),
            1,
            "our own annotation is not for people"
        );
        let labels: Vec<_> = hot
            .labels
            .iter()
            .map(|(name, value)| (name.as_str(), value.source()))
            .collect();
        assert_eq!(labels, [("team", "gpu"), ("severity", "warning")]);

        let Rule::Recording(power) = &group.rules[1] else {
            panic!("a recording rule")
        };
        assert_eq!(
            power.labels.to_string(),
            r#"{severity="info", source="1", team="gpu"}"#
        );
    }

    /// One mistake each, and what has to be said about it.
    #[test]
    fn mistakes_name_file_group_rule_and_nearest_key() {
        for (text, says) in [
            (
                "grops: []",
                "r.yml, line 1: unknown key `grops`; did you mean `groups`?",
            ),
            (
                "groups: [{name: g, intervall: 5m}]",
                "group `g`: unknown key `intervall`; did you mean `interval`?",
            ),
            (
                "groups:\n- name: g\n  rules:\n  - alert: A\n    expr: up\n    fro: 5m\n",
                "r.yml, line 6: group `g`, rule `A`: unknown key `fro`; did you mean `for`?",
            ),
            (
                "groups:\n- name: g\n  rules:\n  - alert: A\n    expr: up\n    for: 5 minutes\n",
                "r.yml, line 6: group `g`, rule `A`, `for`: `5 minutes` is not a duration such as \
                 `90s` or `1h30m`",
            ),
            ("groups: [{rules: []}]", "a group needs a name"),
            (
                "groups: [{name: g}, {name: g}]",
                "there are two groups called `g`",
            ),
            (
                "groups: [{name: g, rules: [{expr: up}]}]",
                "a rule needs `alert` or `record`",
            ),
            (
                "groups: [{name: g, rules: [{alert: A, record: a, expr: up}]}]",
                "not both",
            ),
            (
                "groups: [{name: g, rules: [{alert: A}]}]",
                "group `g`, rule `A`: `expr` is missing",
            ),
            (
                "groups: [{name: g, rules: [{alert: A, expr: ' '}]}]",
                "`expr` is empty",
            ),
            (
                "groups: [{name: g, rules: [{record: 'a{b=\"c\"}', expr: up}]}]",
                "`a{b=\"c\"}` is not a name for a metric",
            ),
            (
                "groups: [{name: g, rules: [{record: a, expr: up, for: 1m}]}]",
                "a recording rule has no `for`",
            ),
            (
                "groups: [{name: g, rules: [{alert: '', expr: up}]}]",
                "an alert needs a name",
            ),
            (
                "groups: [{name: g, rules: [{alert: A, expr: up, labels: {__name__: x}}]}]",
                "`__name__` cannot be set",
            ),
            (
                "groups: [{name: g, rules: [{alert: A, expr: up, labels: {'': x}}]}]",
                "`` cannot be set here",
            ),
            (
                "groups: [{name: g, rules: [{alert: A, expr: up, annotations: {s: '{{ qery \"up\" \
                 }}'}}]}]",
                "rule `A`, `annotations`, `s`: template: no function `qery`; did you mean `query`?",
            ),
            (
                "groups: [{name: g, rules: [{alert: A, expr: up, annotations: \
                 {takt_on_exporter_down: x}}]}]",
                "is `hold` or `resolve`, not `x`",
            ),
            ("groups: {}", "expected a list, found a mapping"),
            (
                "groups: [{name: g, limit: many}]",
                "`many` is not a number that fits here",
            ),
        ] {
            let message = RuleFile::read("r.yml", text).unwrap_err().to_string();
            assert!(message.contains(says), "{text}\n  gave {message}");
        }
    }
}
