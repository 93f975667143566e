//! Indexes of GPUs in the texts of alerts: "GPU 3 of g01" instead of "GPU GPU-2c57… of g01". Rules
//! know a GPU by its UUID or PCI address, which stay in the labels.

use crate::fingerprint::Fingerprint;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use takt_model::Labels;

/// Labels by which texts name a GPU.
const GPU_LABELS: [&str; 2] = ["uuid", "pci_bus_id"];

/// Indexes of the GPUs of firing alerts.
#[derive(Debug, Default)]
pub(super) struct GpuNames {
    /// The index of an alert's GPU; `None` if it could not be found.
    indexes: BTreeMap<Fingerprint, Option<String>>,
    /// Alerts whose GPU was not looked up yet.
    unknown: BTreeSet<Fingerprint>,
}

impl GpuNames {
    /// Returns the annotations with the index in place of the GPU's UUID or address. An alert whose
    /// GPU was not looked up yet is noted.
    pub fn name<'w>(
        &mut self,
        fingerprint: Fingerprint,
        labels: &Labels,
        words: &'w [(String, String)],
    ) -> Cow<'w, [(String, String)]> {
        // Most alerts are about nodes or jobs, and cost no look-up.
        if GPU_LABELS.iter().all(|name| labels.get(name).is_none()) {
            return Cow::Borrowed(words);
        }

        match self.indexes.get(&fingerprint) {
            Some(Some(_)) => Cow::Owned(self.named(fingerprint, labels, words.to_vec())),
            // The look-up found no such GPU. Asking again each evaluation would cost a query each time.
            Some(None) => Cow::Borrowed(words),
            None => {
                self.unknown.insert(fingerprint);
                Cow::Borrowed(words)
            }
        }
    }

    /// Returns the annotations with the index in place of the GPU's UUID or address, if the index is known.
    pub fn named(
        &self,
        fingerprint: Fingerprint,
        labels: &Labels,
        words: Vec<(String, String)>,
    ) -> Vec<(String, String)> {
        let Some(Some(index)) = self.indexes.get(&fingerprint) else {
            return words;
        };

        words
            .into_iter()
            .map(|(name, text)| (name, with_index(&text, labels, index)))
            .collect()
    }

    /// Removes at most `most` alerts whose GPU is to be looked up.
    pub fn take_unknown(&mut self, most: usize) -> Vec<Fingerprint> {
        let taken: Vec<_> = self.unknown.iter().take(most).copied().collect();
        self.unknown
            .retain(|fingerprint| !taken.contains(fingerprint));
        taken
    }

    /// Notes an alert whose GPU is to be looked up later.
    pub fn note_unknown(&mut self, fingerprint: Fingerprint) {
        self.unknown.insert(fingerprint);
    }

    /// Notes what the lookup found.
    pub fn found(&mut self, fingerprint: Fingerprint, index: Option<String>) {
        self.indexes.insert(fingerprint, index);
    }

    /// Forgets an alert that ended: the GPU may have another index when it fires again.
    pub fn forget(&mut self, fingerprint: Fingerprint) {
        self.indexes.remove(&fingerprint);
        self.unknown.remove(&fingerprint);
    }
}

/// The text with the index in place of the GPU's UUID or address after the word GPU.
fn with_index(text: &str, labels: &Labels, index: &str) -> String {
    let mut text = Cow::Borrowed(text);
    for name in GPU_LABELS {
        let Some(id) = labels.get(name).filter(|id| !id.is_empty()) else {
            continue;
        };

        // The word before it shows that the text means the GPU: a bare UUID in a command has to stay.
        let long = format!("GPU {id}");
        if text.contains(&long) {
            text = Cow::Owned(text.replace(&long, &format!("GPU {index}")));
        }
    }
    text.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_the_index_as_soon_as_it_is_known() {
        let labels: Labels = [("node", "g01"), ("uuid", "GPU-2c57")]
            .into_iter()
            .collect();
        let fingerprint = Fingerprint::of(&labels);
        let summary = |text: &str| vec![("summary".to_owned(), text.to_owned())];

        let raw = summary("Memory error on GPU GPU-2c57 of g01");
        let mut names = GpuNames::default();

        // Until the look-up, the text keeps the UUID.
        assert_eq!(*names.name(fingerprint, &labels, &raw), raw);
        assert_eq!(names.take_unknown(9), [fingerprint]);

        names.found(fingerprint, Some("3".to_owned()));
        let named = summary("Memory error on GPU 3 of g01");
        assert_eq!(*names.name(fingerprint, &labels, &raw), named);

        // After its end the alert may fire for another GPU, so the index is looked up again.
        names.forget(fingerprint);
        assert_eq!(*names.name(fingerprint, &labels, &raw), raw);

        // A GPU that cannot be found is not asked for a second time.
        names.found(fingerprint, None);
        assert_eq!(*names.name(fingerprint, &labels, &raw), raw);
        assert!(names.take_unknown(9).len() == 1 && names.take_unknown(9).is_empty());
    }

    #[test]
    fn an_address_gives_way_to_the_index_too() {
        let labels: Labels = [("pci_bus_id", "0000:07:00.0")].into_iter().collect();
        let text = "GPU 0000:07:00.0 of g01 has fallen off the bus";
        let named = "GPU 0 of g01 has fallen off the bus";
        assert_eq!(with_index(text, &labels, "0"), named);
    }
}
