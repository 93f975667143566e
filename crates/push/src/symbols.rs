//! The symbols of a request of version 2.0: each text once, with its key.

use crate::label_key::LabelKey;
use crate::memory::{MemoryDenied, MemoryGrant};
use std::ops::Range;

/// Texts to which the series of a request refer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Symbols {
    text: Vec<u8>,
    all: Vec<(Range<usize>, LabelKey)>,
}

impl Symbols {
    pub fn push(
        &mut self,
        symbol: &[u8],
        memory: &mut MemoryGrant<'_>,
    ) -> Result<(), MemoryDenied> {
        let begin = self.text.len();
        memory.reserve(&mut self.text, symbol.len())?;
        self.text.extend_from_slice(symbol);
        let found = (begin..self.text.len(), LabelKey::of_text(symbol));
        memory.push(&mut self.all, found)
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the key of labels: positions of names and values.
    pub fn key(&self, references: &[u32]) -> LabelKey {
        let references = references
            .iter()
            .map(|&reference| self.all[reference as usize].1);
        LabelKey::of_list(references)
    }

    /// Returns names and values, given their positions.
    pub fn pairs(&self, references: &[u32]) -> impl Iterator<Item = (&[u8], &[u8])> {
        let text = |reference: u32| &self.text[self.all[reference as usize].0.clone()];
        let (pairs, _) = references.as_chunks::<2>();
        pairs
            .iter()
            .map(move |&[name, value]| (text(name), text(value)))
    }
}
