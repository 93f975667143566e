//! Relabelling as in Prometheus: rules that change a label set, or drop its target or series.
//!
//! The rules apply to a target's labels before its scrapes (`relabel_configs`) and to every new
//! series of a page (`metric_relabel_configs`). A series is relabelled once, not at every scrape.

use regex::Regex;
use schemars::JsonSchema;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serialize};
use takt_model::ConfigError;
use takt_model::Labels;
use takt_model::go_regex::expand;
use takt_model::whole;

/// The action of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RelabelAction {
    /// Sets `target_label` to `replacement` where `regex` matches.
    #[default]
    Replace,
    /// Drops the target or series if `regex` does not match.
    Keep,
    /// Drops the target or series if `regex` matches.
    Drop,
    /// Drops the target or series if the value differs from that of `target_label`.
    KeepEqual,
    /// Drops the target or series if the value equals that of `target_label`.
    DropEqual,
    /// Sets `target_label` to a hash of the value, modulo `modulus`.
    HashMod,
    /// Copies each label whose name `regex` matches to the name `replacement`.
    LabelMap,
    /// Removes the labels whose names `regex` matches.
    LabelDrop,
    /// Removes the labels whose names `regex` does not match.
    LabelKeep,
    /// Sets `target_label` to the value in lower case.
    Lowercase,
    /// Sets `target_label` to the value in upper case.
    Uppercase,
}

/// One rule of Prometheus' relabelling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RelabelConfig {
    /// Labels whose values are joined with `separator` and matched.
    pub source_labels: Vec<String>,
    /// Text between the joined values.
    pub separator: String,
    /// Label to set; may refer to groups of `regex`.
    pub target_label: String,
    /// Regular expression that must match the whole value (for `labelmap`, `labeldrop` and
    /// `labelkeep`: the whole label name).
    pub regex: String,
    /// Modulus of `hashmod`.
    pub modulus: u64,
    /// New value; `$1` and `${1}` stand for the groups of `regex`.
    pub replacement: String,
    /// `replace`, `keep`, `drop`, `keepequal`, `dropequal`, `hashmod`, `labelmap`, `labeldrop`,
    /// `labelkeep`, `lowercase` or `uppercase`.
    #[serde(deserialize_with = "in_any_case")]
    pub action: RelabelAction,
}

/// Reads an action in any case: Prometheus also accepts `labelDrop`.
fn in_any_case<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RelabelAction, D::Error> {
    let word = String::deserialize(deserializer)?.to_lowercase();
    RelabelAction::deserialize(word.into_deserializer())
}

impl Default for RelabelConfig {
    fn default() -> Self {
        Self {
            source_labels: Vec::new(),
            separator: ";".to_owned(),
            target_label: String::new(),
            regex: "(.*)".to_owned(),
            modulus: 0,
            replacement: "$1".to_owned(),
            action: RelabelAction::Replace,
        }
    }
}

impl RelabelConfig {
    /// Checks which fields an action needs, with Prometheus' rules. `key` is the rule's key, for
    /// messages.
    fn compile(&self, key: &str) -> Result<Rule, ConfigError> {
        use RelabelAction::{
            DropEqual, HashMod, KeepEqual, LabelDrop, LabelKeep, LabelMap, Lowercase, Replace,
            Uppercase,
        };

        let wrong = |field: &str, expected: &str, found: &dyn ToString| {
            Err(ConfigError::new(
                format!("{key}.{field}"),
                expected,
                found.to_string(),
            ))
        };

        // A field that the action ignores is refused, because its author expects an effect.
        let of = |only: &str| format!("only {only}: {} uses no other fields", self.word());
        let needs_target = matches!(
            self.action,
            Replace | HashMod | KeepEqual | DropEqual | Lowercase | Uppercase
        );

        if needs_target && self.target_label.is_empty() {
            return wrong(
                "target_label",
                &format!("a label, which {} needs", self.word()),
                &"nothing",
            );
        }

        if self.action == HashMod && self.modulus == 0 {
            return wrong("modulus", "at least 1", &0);
        }

        // A field counts as set if it differs from its default, so writing the default out is accepted, as in
        // Prometheus.
        let plain = Self::default();
        let is_plain = |fields: [bool; 4]| !fields.contains(&false);

        match self.action {
            KeepEqual | DropEqual
                if !is_plain([
                    self.regex == plain.regex,
                    self.modulus == plain.modulus,
                    self.separator == plain.separator,
                    self.replacement == plain.replacement,
                ]) =>
            {
                return wrong("action", &of("source_labels and target_label"), &"others");
            }
            LabelDrop | LabelKeep
                if !is_plain([
                    self.source_labels.is_empty() && self.target_label.is_empty(),
                    self.modulus == plain.modulus,
                    self.separator == plain.separator,
                    self.replacement == plain.replacement,
                ]) =>
            {
                return wrong("action", &of("regex"), &"others");
            }
            Lowercase | Uppercase if self.replacement != plain.replacement => {
                return wrong(
                    "replacement",
                    "none, as the action sets the value",
                    &self.replacement,
                );
            }
            LabelMap if self.replacement.is_empty() => {
                return wrong("replacement", "a label name", &"nothing");
            }
            _ => {}
        }

        // `regex` must match the whole value, which `whole` adds; a partial match would keep or drop too much.
        let Ok(regex) = whole(&self.regex) else {
            return wrong("regex", "a regular expression", &self.regex);
        };

        Ok(Rule {
            config: self.clone(),
            regex,
        })
    }

    fn word(&self) -> String {
        format!("{:?}", self.action).to_lowercase()
    }
}

/// A compiled rule.
#[derive(Debug, Clone)]
struct Rule {
    config: RelabelConfig,
    regex: Regex,
}

/// The result of one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelabelStep {
    /// The rule.
    pub rule: RelabelConfig,
    /// Labels after the rule; empty if this or an earlier rule dropped the target.
    pub output: Labels,
    /// Whether the target is still kept.
    pub keep: bool,
}

/// Compiled rules in the order of execution.
#[derive(Debug, Clone, Default)]
pub(super) struct Rules(Vec<Rule>);

impl Rules {
    /// Compiles the rules. `key` is the list's key, for messages.
    pub fn compile(configs: &[RelabelConfig], key: &str) -> Result<Self, ConfigError> {
        let compiled = configs
            .iter()
            .enumerate()
            .map(|(index, config)| config.compile(&format!("{key}[{index}]")));
        Ok(Self(compiled.collect::<Result<_, _>>()?))
    }

    /// Changes `labels`. Returns `false` if the rules drop the target or series.
    pub fn apply(&self, labels: &mut Labels) -> bool {
        self.0.iter().all(|rule| rule.apply(labels))
    }

    /// Applies one rule after the other and returns each result.
    pub fn steps(&self, mut labels: Labels) -> Vec<RelabelStep> {
        let mut keep = true;

        // A dropped target has no labels for the next rule, so the rules after it are not applied.
        let step = |rule: &Rule| {
            keep = keep && rule.apply(&mut labels);
            RelabelStep {
                rule: rule.config.clone(),
                output: if keep { labels.clone() } else { Labels::new() },
                keep,
            }
        };
        self.0.iter().map(step).collect()
    }
}

impl Rule {
    fn apply(&self, labels: &mut Labels) -> bool {
        let RelabelConfig {
            source_labels,
            separator,
            target_label,
            modulus,
            replacement,
            action,
            ..
        } = &self.config;

        // A missing label counts as an empty one, as everywhere in Prometheus.
        let values: Vec<&str> = source_labels
            .iter()
            .map(|name| labels.get(name).unwrap_or_default())
            .collect();
        let value = values.join(separator);

        let is_equal = |labels: &Labels| labels.get(target_label).unwrap_or_default() == value;
        match action {
            RelabelAction::Replace => self.replace(&value, labels),
            RelabelAction::Keep => return self.regex.is_match(&value),
            RelabelAction::Drop => return !self.regex.is_match(&value),
            RelabelAction::KeepEqual => return is_equal(labels),
            RelabelAction::DropEqual => return !is_equal(labels),
            RelabelAction::HashMod => {
                labels.set(target_label, &(hash(&value) % modulus).to_string())
            }
            RelabelAction::Lowercase => {
                labels.set(target_label, &mapped(&value, char::to_lowercase))
            }
            RelabelAction::Uppercase => {
                labels.set(target_label, &mapped(&value, char::to_uppercase))
            }
            RelabelAction::LabelMap => {
                // `labels` changes in the loop, and a new name must not be matched in turn.
                for (name, value) in &self.named(labels, true) {
                    if let Some(groups) = self.regex.captures(name) {
                        labels.set(&expand(&groups, replacement), value);
                    }
                }
            }
            RelabelAction::LabelDrop => self.remove(labels, true),
            RelabelAction::LabelKeep => self.remove(labels, false),
        }
        true
    }

    fn replace(&self, value: &str, labels: &mut Labels) {
        let RelabelConfig {
            target_label,
            replacement,
            ..
        } = &self.config;

        let Some(groups) = self.regex.captures(value) else {
            return;
        };

        let target = expand(&groups, target_label);
        // An empty target name comes from a group that did not match; Prometheus leaves the labels as they are.
        if !target.is_empty() {
            labels.set(&target, &expand(&groups, replacement));
        }
    }

    /// Returns the labels whose names match the expression, or do not match it.
    fn named(&self, labels: &Labels, matches: bool) -> Vec<(String, String)> {
        labels
            .iter()
            .filter(|(name, _)| self.regex.is_match(name) == matches)
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    fn remove(&self, labels: &mut Labels, matches: bool) {
        for (name, _) in self.named(labels, matches) {
            labels.remove(&name);
        }
    }
}

/// Returns the last 8 bytes of the MD5 sum. Prometheus uses this hash, so servers that share
/// targets by `hashmod` agree.
fn hash(value: &str) -> u64 {
    let sum = u128::from_be_bytes(md5::compute(value).0);
    sum as u64
}

/// Maps each character by itself, as Go does: a character whose other case has several characters
/// stays, except `İ`, which becomes `i`.
fn mapped<I: Iterator<Item = char>>(value: &str, map: impl Fn(char) -> I) -> String {
    let one = |c: char| {
        let mut mapped = map(c);

        match (mapped.next(), mapped.next()) {
            (Some(only), None) => only,
            (Some('i'), Some(_)) => 'i',
            _ => c,
        }
    };
    value.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().copied().collect()
    }

    fn rule(json: serde_json::Value) -> RelabelConfig {
        serde_json::from_value(json).unwrap()
    }

    /// Applies the rule to `{a="x1", b="Y", c="Y"}`. Returns the result.
    fn applied(json: serde_json::Value) -> Option<String> {
        let mut set = labels(&[("a", "x1"), ("b", "Y"), ("c", "Y")]);
        let keep = Rules::compile(&[rule(json)], "r").unwrap().apply(&mut set);
        keep.then(|| set.to_string())
    }

    #[test]
    fn each_action() {
        use serde_json::json;
        const SAME: &str = r#"{a="x1", b="Y", c="Y"}"#;
        for (config, expected) in [
            (
                json!({"source_labels": ["a"], "target_label": "d"}),
                Some(r#"{a="x1", b="Y", c="Y", d="x1"}"#),
            ),
            (
                json!({"source_labels": ["a", "b"], "target_label": "d", "regex": "x(.);(.+)", "replacement": "$2-${1}z"}),
                Some(r#"{a="x1", b="Y", c="Y", d="Y-1z"}"#),
            ),
            // `$1z` refers to the group `1z`, which does not exist.
            (
                json!({"source_labels": ["a"], "target_label": "b", "replacement": "$1z"}),
                Some(r#"{a="x1", c="Y"}"#),
            ),
            (
                json!({"source_labels": ["a"], "target_label": "b", "regex": "x"}),
                Some(SAME),
            ),
            (
                json!({"source_labels": ["a"], "target_label": "${1}_b", "regex": "(x).*", "replacement": "$$"}),
                Some(r#"{a="x1", b="Y", c="Y", x_b="$"}"#),
            ),
            (
                json!({"target_label": "b", "replacement": ""}),
                Some(r#"{a="x1", c="Y"}"#),
            ),
            (
                json!({"target_label": "d", "replacement": "fixed"}),
                Some(r#"{a="x1", b="Y", c="Y", d="fixed"}"#),
            ),
            (
                json!({"source_labels": ["a"], "regex": "x.", "action": "keep"}),
                Some(SAME),
            ),
            (
                json!({"source_labels": ["a"], "regex": "x", "action": "keep"}),
                None,
            ),
            (
                json!({"source_labels": ["a"], "regex": "x|x1", "action": "drop"}),
                None,
            ),
            (
                json!({"source_labels": ["a", "none"], "separator": "", "regex": "x", "action": "drop"}),
                Some(SAME),
            ),
            (
                json!({"source_labels": ["b"], "target_label": "c", "action": "keepequal"}),
                Some(SAME),
            ),
            (
                json!({"source_labels": ["a"], "target_label": "c", "action": "keepequal"}),
                None,
            ),
            (
                json!({"source_labels": ["b"], "target_label": "c", "action": "dropequal"}),
                None,
            ),
            (
                json!({"source_labels": ["a"], "target_label": "c", "action": "dropequal"}),
                Some(SAME),
            ),
            (
                json!({"regex": "(a|b)", "replacement": "n_$1", "action": "labelmap"}),
                Some(r#"{a="x1", b="Y", c="Y", n_a="x1", n_b="Y"}"#),
            ),
            (
                json!({"regex": "a|b", "action": "labelDrop"}),
                Some(r#"{c="Y"}"#),
            ),
            // The regular expressions are Go's: `\d` is ASCII, `\Q` quotes, `$01` is not a group.
            (
                json!({"source_labels": ["a"], "regex": "x\\d", "action": "drop"}),
                None,
            ),
            (
                json!({"source_labels": ["a"], "regex": "\\Qx\\E.", "action": "drop"}),
                None,
            ),
            (
                json!({"source_labels": ["a"], "target_label": "b", "regex": "(.*)", "replacement": "$01${1-}"}),
                Some(r#"{a="x1", b="${1-}", c="Y"}"#),
            ),
            (
                json!({"regex": "a|b", "action": "labelkeep"}),
                Some(r#"{a="x1", b="Y"}"#),
            ),
            (
                json!({"source_labels": ["b"], "target_label": "b", "action": "lowercase"}),
                Some(r#"{a="x1", b="y", c="Y"}"#),
            ),
            (
                json!({"source_labels": ["a"], "target_label": "a", "action": "uppercase"}),
                Some(r#"{a="X1", b="Y", c="Y"}"#),
            ),
        ] {
            assert_eq!(applied(config.clone()).as_deref(), expected, "{config}");
        }
    }

    #[test]
    fn the_hash_is_md5s_end() {
        // md5("") is d41d8cd98f00b204 e9800998ecf8427e.
        assert_eq!(hash(""), 0xe980_0998_ecf8_427e);

        assert_eq!(hash("foo"), 0xedef_654f_ccc4_a4d8);
        let config = serde_json::json!({"source_labels": ["a"], "target_label": "h", "modulus": 1, "action": "hashmod"});
        assert_eq!(
            applied(config).as_deref(),
            Some(r#"{a="x1", b="Y", c="Y", h="0"}"#)
        );
    }

    #[test]
    fn case_is_mapped_character_by_character() {
        assert_eq!(mapped("straße ÄÖ", char::to_uppercase), "STRAßE ÄÖ");
        assert_eq!(mapped("ÄÖİ", char::to_lowercase), "äöi");
    }

    #[test]
    fn each_mistake_names_its_field() {
        use serde_json::json;
        for (config, message) in [
            (
                json!({"source_labels": ["a"]}),
                "r[0].target_label: expected a label, which replace needs, found nothing",
            ),
            (
                json!({"source_labels": ["a"], "action": "lowercase"}),
                "r[0].target_label: expected a label, which lowercase needs, found nothing",
            ),
            (
                json!({"source_labels": ["a"], "target_label": "h", "action": "hashmod"}),
                "r[0].modulus: expected at least 1, found 0",
            ),
            (
                json!({"regex": "a", "source_labels": ["b"], "action": "labeldrop"}),
                "r[0].action: expected only regex: labeldrop uses no other fields, found others",
            ),
            (
                json!({"source_labels": ["b"], "target_label": "c", "regex": "x", "action": "keepequal"}),
                "r[0].action: expected only source_labels and target_label: keepequal uses no other fields, found others",
            ),
            (
                json!({"regex": "a(", "action": "labelkeep"}),
                "r[0].regex: expected a regular expression, found a(",
            ),
            (
                json!({"source_labels": ["b"], "target_label": "c", "replacement": "x", "action": "uppercase"}),
                "r[0].replacement: expected none, as the action sets the value, found x",
            ),
        ] {
            assert_eq!(
                Rules::compile(&[rule(config)], "r")
                    .unwrap_err()
                    .to_string(),
                message
            );
        }
    }
}
