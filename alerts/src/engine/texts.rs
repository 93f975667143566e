//! The texts of active alerts that may be shown to people who do not see all labels.

use super::Engine;
use crate::fingerprint::Fingerprint;
use crate::rules::Rule;
use crate::template::{Template, templates_hash};
use std::collections::{BTreeMap, BTreeSet};
use takt_model::Labels;

/// Names and texts of annotations.
pub type Texts = Vec<(String, String)>;

impl Engine {
    /// Returns the annotations of these alerts, as far as they are alerts of rules, whose templates depend only on labels that `is_shown` accepts. Texts
    /// of templates that the rule no longer has are not among them, since nobody knows which labels they depend on; nor are the
    /// kernel's lines and the annotations of posted alerts, which may contain anything.
    pub fn texts_without_hidden_labels(
        &self,
        of: &BTreeSet<Fingerprint>,
        is_shown: impl Fn(&Labels, &str) -> bool,
    ) -> BTreeMap<Fingerprint, Texts> {
        let of_samples = self.groups.iter().flat_map(|group| {
            group.views().flat_map(|view| {
                // A recording rule has no alerts, and so no texts.
                let templates = match view.rule {
                    Rule::Alerting(rule) => rule.annotations.as_slice(),
                    Rule::Recording(_) => &[],
                };
                let instances = view.instances.iter();
                instances.map(move |(print, one)| {
                    let texts = (one.templates, one.annotations.as_slice());
                    (print, templates, &one.labels, texts)
                })
            })
        });
        let of_events = self.events.with_rules().map(|(rule, print, one)| {
            let texts = (one.templates, one.annotations.as_slice());
            (print, rule.annotations.as_slice(), &one.labels, texts)
        });

        of_samples
            .chain(of_events)
            .filter(|(print, ..)| of.contains(print))
            // A text of an earlier template may contain labels that the present one does not read.
            .filter(|(_, templates, _, (written, _))| *written == Some(templates_hash(templates)))
            .map(|(print, templates, labels, (_, texts))| {
                // The index of a GPU is no hidden label, so it is put in after the check.
                let texts = shown(templates, texts, &|name| is_shown(labels, name));
                (print, self.gpus.named(print, labels, texts))
            })
            .collect()
    }
}

fn shown(
    templates: &[(String, Template)],
    texts: &[(String, String)],
    is_shown: &dyn Fn(&str) -> bool,
) -> Texts {
    let is_public = |(name, _): &&(String, String)| {
        let mut of_name = templates.iter().filter(|(known, _)| known == name);
        of_name
            .next()
            .is_some_and(|(_, template)| template.reads_only(is_shown))
    };
    texts.iter().filter(is_public).cloned().collect()
}
