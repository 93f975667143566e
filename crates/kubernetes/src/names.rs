//! Whose a pod is: sources of the user and the account, in order.
//!
//! Kubernetes records no user with a pod. Labels and annotations of a pod are written by whoever creates it, unless an
//! admission webhook writes them; those of its namespace are written by administrators.

use crate::context::NamespaceFacts;
use crate::objects::{ObjectMetadata, TextMap};
use takt_jobs::bounded;
use takt_model::shown::printable;

/// A source of a user or an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameSource {
    /// A label of the pod.
    Label(String),
    /// An annotation of the pod.
    Annotation(String),
    /// A label of its namespace.
    NamespaceLabel(String),
    /// An annotation of its namespace.
    NamespaceAnnotation(String),
    /// A name that all pods of a namespace have.
    Mapped {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
    },
    /// The namespace itself.
    Namespace,
    /// `NAMESPACE:SERVICEACCOUNT`.
    ServiceAccount,
}

/// Sources in the order in which they are asked. The first that has a name wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameSources(Vec<NameSource>);

/// A text that names no source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a source of names: expected label:KEY, annotation:KEY, namespace-label:KEY, namespace-annotation:KEY, \
     map:NAMESPACE=NAME, namespace or serviceaccount, separated by commas"
)]
pub struct NameSourceError(String);

/// Maximum number of sources: a mapping has one for each namespace.
const MAX_SOURCES: usize = 1000;

/// Maximum length of a name in bytes.
const MAX_NAME_BYTES: usize = 256;

/// Sources of users by default: CEEMS' webhook, Kubeflow, and at last the service account.
const USERS: &str = "annotation:ceems.io/created-by,annotation:notebook-creator,annotation:owner,\
                     namespace-annotation:owner,serviceaccount";

/// Source of accounts by default.
const ACCOUNTS: &str = "namespace";

impl NameSources {
    /// Returns the sources of users that are used by default.
    pub fn of_users() -> Self {
        Self::parse(USERS).unwrap_or(Self(vec![NameSource::ServiceAccount]))
    }

    /// Returns the sources of accounts that are used by default.
    pub fn of_accounts() -> Self {
        Self::parse(ACCOUNTS).unwrap_or(Self(vec![NameSource::Namespace]))
    }

    /// Parses `label:KEY,annotation:KEY,namespace`.
    ///
    /// # Errors
    /// A part is no source, or there are more than a thousand.
    pub fn parse(text: &str) -> Result<Self, NameSourceError> {
        let sources: Option<Vec<NameSource>> = text.split(',').map(source).collect();
        sources
            .filter(|sources| sources.len() <= MAX_SOURCES)
            .map(Self)
            .ok_or_else(|| {
                let bad = text.split(',').find(|part| source(part).is_none());
                NameSourceError(printable(&bounded(bad.unwrap_or(text), 64)))
            })
    }

    /// Returns what the pod itself has, by source: the rest of its labels is not kept.
    pub(crate) fn of_pod(&self, pod: &ObjectMetadata) -> Vec<Option<Box<str>>> {
        let texts = self.0.iter().map(|source| match source {
            NameSource::Label(key) => name(&pod.labels, key),
            NameSource::Annotation(key) => name(&pod.annotations, key),
            _ => None,
        });
        texts.map(|text| text.map(String::into_boxed_str)).collect()
    }

    /// Returns the labels and annotations of a namespace that are a source.
    pub(crate) fn of_namespace(&self, namespace: &ObjectMetadata, kept: &mut NamespaceFacts) {
        for source in &self.0 {
            let (texts, key, kept) = match source {
                NameSource::NamespaceLabel(key) => (&namespace.labels, key, &mut kept.labels),
                NameSource::NamespaceAnnotation(key) => {
                    (&namespace.annotations, key, &mut kept.annotations)
                }
                _ => continue,
            };
            if let Some(text) = name(texts, key) {
                kept.insert(key.clone(), text);
            }
        }
    }

    /// Returns the name of the first source that has one. Empty if none has.
    pub(crate) fn choose(
        &self,
        of_pod: &[Option<Box<str>>],
        namespace: &str,
        service_account: &str,
        facts: Option<&NamespaceFacts>,
    ) -> String {
        let found = self
            .0
            .iter()
            .enumerate()
            .find_map(|(at, source)| match source {
                NameSource::Label(_) | NameSource::Annotation(_) => {
                    of_pod.get(at)?.as_deref().map(str::to_owned)
                }
                NameSource::NamespaceLabel(key) => facts?.labels.get(key).cloned(),
                NameSource::NamespaceAnnotation(key) => facts?.annotations.get(key).cloned(),
                NameSource::Mapped {
                    namespace: of,
                    name,
                } => (of == namespace).then(|| name.clone()),
                NameSource::Namespace => Some(namespace.to_owned()),
                NameSource::ServiceAccount => Some(format!("{namespace}:{service_account}")),
            });
        found.unwrap_or_default()
    }
}

fn source(text: &str) -> Option<NameSource> {
    let text = text.trim();
    let (kind, key) = text.split_once(':').unwrap_or((text, ""));
    let owned = || key.to_owned();
    match kind {
        "namespace" if key.is_empty() => Some(NameSource::Namespace),
        "serviceaccount" if key.is_empty() => Some(NameSource::ServiceAccount),
        _ if key.is_empty() => None,
        "label" => Some(NameSource::Label(owned())),
        "annotation" => Some(NameSource::Annotation(owned())),
        "namespace-label" => Some(NameSource::NamespaceLabel(owned())),
        "namespace-annotation" => Some(NameSource::NamespaceAnnotation(owned())),
        "map" => key
            .split_once('=')
            .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
            .map(|(namespace, name)| NameSource::Mapped {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
        _ => None,
    }
}

/// Returns the text of a key as a name: in one line, bounded, without unseen characters. `None` if it is empty.
fn name(texts: &TextMap, key: &str) -> Option<String> {
    let text = bounded(texts.get(key)?.trim(), MAX_NAME_BYTES).into_owned();
    Some(printable(&text)).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> ObjectMetadata {
        let texts = |texts: &[(&str, &str)]| {
            let texts = texts.iter();
            texts
                .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
                .collect()
        };
        ObjectMetadata {
            labels: texts(labels),
            annotations: texts(annotations),
            ..ObjectMetadata::default()
        }
    }

    fn chosen(
        sources: &NameSources,
        pod: &ObjectMetadata,
        namespace: Option<&ObjectMetadata>,
    ) -> String {
        let mut facts = NamespaceFacts::default();
        if let Some(namespace) = namespace {
            sources.of_namespace(namespace, &mut facts);
        }
        sources.choose(&sources.of_pod(pod), "vision", "trainer", Some(&facts))
    }

    #[test]
    fn the_first_source_with_a_name_wins() {
        let sources = NameSources::parse(
            "label:user, annotation:example.org/by,namespace-label:team,map:audio=bob,map:vision=carl,namespace",
        )
        .unwrap();
        let of_namespace = pod(&[("team", "dora"), ("other", "x")], &[]);
        let labelled = pod(&[("user", "ann")], &[("example.org/by", "eve")]);
        assert_eq!(chosen(&sources, &labelled, Some(&of_namespace)), "ann");
        let annotated = pod(&[("user", " ")], &[("example.org/by", "eve")]);
        assert_eq!(chosen(&sources, &annotated, Some(&of_namespace)), "eve");
        assert_eq!(
            chosen(&sources, &pod(&[], &[]), Some(&of_namespace)),
            "dora"
        );
        assert_eq!(chosen(&sources, &pod(&[], &[]), None), "carl");
        let last = NameSources::parse("label:user,namespace").unwrap();
        assert_eq!(chosen(&last, &pod(&[], &[]), None), "vision");
        let none = NameSources::parse("label:user").unwrap();
        assert_eq!(chosen(&none, &pod(&[], &[]), None), "");
    }

    #[test]
    fn defaults_are_webhooks_then_kubeflow_then_the_service_account() {
        let sources = NameSources::of_users();
        let both = pod(&[], &[("ceems.io/created-by", "ann"), ("owner", "bob")]);
        assert_eq!(chosen(&sources, &both, None), "ann");
        let profile = pod(&[], &[("owner", "carl@example.org")]);
        assert_eq!(
            chosen(&sources, &pod(&[], &[]), Some(&profile)),
            "carl@example.org"
        );
        assert_eq!(chosen(&sources, &pod(&[], &[]), None), "vision:trainer");
        assert_eq!(chosen(&NameSources::of_accounts(), &both, None), "vision");
    }

    #[test]
    fn names_of_users_are_bounded_and_printable() {
        let sources = NameSources::parse("label:user").unwrap();
        let hostile = pod(&[("user", "a\u{1b}[31m\u{202e}b\nc")], &[]);
        assert_eq!(
            chosen(&sources, &hostile, None),
            "a\u{fffd}[31m\u{fffd}b\u{fffd}c"
        );
        let long = pod(&[("user", &"x".repeat(100_000))], &[]);
        assert_eq!(chosen(&sources, &long, None).len(), MAX_NAME_BYTES);
    }

    #[test]
    fn what_is_no_source_is_refused() {
        for text in [
            "",
            "label",
            "label:",
            "user:x",
            "map:vision",
            "map:=x",
            "namespace:x",
            "label:a,,namespace",
        ] {
            assert!(NameSources::parse(text).is_err(), "{text}");
        }
        let error = NameSources::parse("label:a,nonsense")
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("'nonsense' is not a source of names: expected label:KEY"),
            "{error}"
        );
    }
}
