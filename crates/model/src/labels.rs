//! Label sets.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Label with the name of the metric.
pub const METRIC_NAME: &str = "__name__";

/// Labels of a series: unique names, in byte order. A label with an empty value is absent.
///
/// Clones share their data until one of them changes, and texts even then: queries pass the labels
/// of 100,000 series between their steps.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Labels(Arc<Vec<(Arc<str>, Arc<str>)>>);

impl Labels {
    /// Returns an empty label set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns labels that are already sorted, with unique names and no empty values.
    pub fn from_sorted(pairs: Vec<(Arc<str>, Arc<str>)>) -> Self {
        debug_assert!(
            pairs.windows(2).all(|pair| pair[0].0 < pair[1].0),
            "{pairs:?}"
        );
        debug_assert!(
            pairs.iter().all(|(_, value)| !value.is_empty()),
            "{pairs:?}"
        );
        Self(Arc::new(pairs))
    }

    /// Returns the value of the label `name`, if present.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.position(name).ok().map(|at| &*self.0[at].1)
    }

    /// Sets a label, replacing an earlier value. An empty value removes the label.
    pub fn set(&mut self, name: &str, value: &str) {
        match (self.position(name), value.is_empty()) {
            // Changing makes a copy only if another clone shares the labels.
            (Ok(at), true) => drop(Arc::make_mut(&mut self.0).remove(at)),
            (Ok(at), false) => Arc::make_mut(&mut self.0)[at].1 = value.into(),
            (Err(_), true) => {}
            (Err(at), false) => Arc::make_mut(&mut self.0).insert(at, (name.into(), value.into())),
        }
    }

    /// Removes a label and returns its value.
    pub fn remove(&mut self, name: &str) -> Option<Arc<str>> {
        self.position(name)
            .ok()
            .map(|at| Arc::make_mut(&mut self.0).remove(at).1)
    }

    /// Returns the labels whose names `wanted` accepts. Their texts are shared.
    #[must_use]
    pub fn only(&self, mut wanted: impl FnMut(&str) -> bool) -> Self {
        Self(Arc::new(
            self.0
                .iter()
                .filter(|(name, _)| wanted(name))
                .cloned()
                .collect(),
        ))
    }

    /// Name of the metric; `""` if absent.
    pub fn metric(&self) -> &str {
        self.get(METRIC_NAME).unwrap_or_default()
    }

    /// All labels, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Number of labels.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| (**known).cmp(name))
    }
}

impl<N, V> FromIterator<(N, V)> for Labels
where
    N: AsRef<str>,
    V: AsRef<str>,
{
    /// Later pairs replace earlier ones of the same name.
    fn from_iter<I>(pairs: I) -> Self
    where
        I: IntoIterator<Item = (N, V)>,
    {
        let mut labels = Self::new();
        for (name, value) in pairs {
            labels.set(name.as_ref(), value.as_ref());
        }
        labels
    }
}

impl fmt::Display for Labels {
    /// Formats a series like Prometheus: `up{job="node"}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.metric())?;
        let mut rest = self
            .iter()
            .filter(|(name, _)| *name != METRIC_NAME)
            .peekable();

        // A metric without other labels has no braces; labels without a metric keep them, even if
        // empty.
        if rest.peek().is_none() && !self.metric().is_empty() {
            return Ok(());
        }

        f.write_str("{")?;
        for (at, (name, value)) in rest.enumerate() {
            write!(f, "{}{name}={value:?}", if at == 0 { "" } else { ", " })?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection;
    use proptest::prelude::*;

    #[test]
    fn prints_as_prometheus_does() {
        let up: Labels = [("job", "node"), (METRIC_NAME, "up"), ("instance", "a\"b")]
            .into_iter()
            .collect();
        assert_eq!(up.to_string(), r#"up{instance="a\"b", job="node"}"#);
        assert_eq!(Labels::new().to_string(), "{}");
        assert_eq!(
            [(METRIC_NAME, "up")]
                .into_iter()
                .collect::<Labels>()
                .to_string(),
            "up"
        );
    }

    #[test]
    fn an_empty_value_removes_the_label() {
        let mut labels: Labels = [("a", "1"), ("b", "")].into_iter().collect();
        assert_eq!(labels.len(), 1);
        labels.set("a", "");
        assert!(labels.is_empty());
    }

    proptest! {
        #[test]
        fn the_order_of_setting_does_not_matter(
            mut pairs in collection::btree_map("[a-z]{1,3}", "[a-z]{1,3}", 0..8),
        ) {
            let forwards: Labels = pairs.iter().collect();
            let backwards: Labels = pairs.iter().rev().collect();
            prop_assert_eq!(&forwards, &backwards);
            if let Some((name, value)) = pairs.pop_first() {
                prop_assert_eq!(forwards.get(&name), Some(value.as_str()));
            }
        }
    }
}
