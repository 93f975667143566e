//! The content of a request, of whichever protocol: series with their samples.

use crate::label_key::LabelKey;
use crate::memory::{MemoryDenied, MemoryGrant};
use crate::symbols::Symbols;
use crate::wire::{BYTES_1, BYTES_2, Field, Fields, WireError, push_varint};
use std::ops::Range;
use std::sync::Arc;
use takt_model::native::{HistogramError, NativeHistogram};
use takt_model::{Labels, METRIC_NAME, Timestamp};

/// Series of a request. All labels and samples are in a few lists, so that a request of thousands
/// of series needs few allocations.
#[derive(Debug, Clone, Default)]
pub struct PushedSeries {
    /// Encoded labels, as in a request of version 1.0; there, it is the request.
    pub(crate) blocks: Vec<u8>,
    /// Texts of a request of version 2.0.
    pub(crate) symbols: Symbols,
    /// Labels of a request of version 2.0: positions of name and value in the symbols.
    pub(crate) references: Vec<u32>,
    pub(crate) samples: Vec<PushedSample>,
    pub(crate) histograms: Vec<PushedHistogram>,
    pub(crate) parts: Vec<Part>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub block: Range<usize>,
    pub references: Range<usize>,
    pub key: LabelKey,
    pub samples: Range<usize>,
    pub histograms: Range<usize>,
    pub is_delta: bool,
    pub point: usize,
}

/// A sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PushedSample {
    /// Timestamp.
    pub at: Timestamp,
    /// The value. A NaN with the bits `0x7ff0000000000002` ends the series.
    pub value: f64,
}

/// A native histogram.
#[derive(Debug, Clone, PartialEq)]
pub struct PushedHistogram {
    /// Timestamp.
    pub at: Timestamp,
    /// The histogram, `None` for the end of the series, or the rule that it breaks.
    pub value: Result<Option<NativeHistogram>, HistogramError>,
}

/// A series with some of its samples.
#[derive(Debug, Clone, Copy)]
pub struct OneSeries<'a> {
    request: &'a PushedSeries,
    part: &'a Part,
    /// Key of the labels: equal keys mean the same series.
    pub key: LabelKey,
    /// Samples, usually in order of time.
    pub samples: &'a [PushedSample],
    /// Native histograms, usually in order of time.
    pub histograms: &'a [PushedHistogram],
    /// Whether the samples are increases since the sample before.
    pub is_delta: bool,
    /// Number of the data point from which an OTLP series comes.
    pub point: usize,
}

impl PushedSeries {
    /// The series, in the order of the request. A series may occur more than once.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = OneSeries<'_>> {
        self.parts.iter().map(|part| OneSeries {
            request: self,
            part,
            key: part.key,
            samples: &self.samples[part.samples.clone()],
            histograms: &self.histograms[part.histograms.clone()],
            is_delta: part.is_delta,
            point: part.point,
        })
    }

    /// Number of samples.
    pub fn sample_count(&self) -> usize {
        self.samples.len()
    }

    /// Appends a label to the block of the next series.
    pub(crate) fn push_label(
        &mut self,
        name: &[u8],
        value: &[u8],
        memory: &mut MemoryGrant<'_>,
    ) -> Result<(), MemoryDenied> {
        // As in a request of version 1.0: two texts with their tags, in a message.
        let length =
            2 + varint_length(name.len()) + name.len() + varint_length(value.len()) + value.len();
        memory.reserve(&mut self.blocks, 1 + varint_length(length) + length)?;
        self.blocks.push(BYTES_1);
        push_varint(&mut self.blocks, length as u64);
        for (tag, text) in [(BYTES_1, name), (BYTES_2, value)] {
            self.blocks.push(tag);
            push_varint(&mut self.blocks, text.len() as u64);
            self.blocks.extend_from_slice(text);
        }
        Ok(())
    }

    /// Ends a series: its labels, samples and histograms are what was appended since the last call.
    pub(crate) fn end_series(
        &mut self,
        part: Part,
        memory: &mut MemoryGrant<'_>,
    ) -> Result<(), MemoryDenied> {
        let last = self.parts.last();
        let block = last.map_or(0, |last| last.block.end)..self.blocks.len();
        let references = last.map_or(0, |last| last.references.end)..self.references.len();

        // Series without references have their labels in the blocks, as in version 1.0.
        let key = if references.is_empty() {
            LabelKey::of_text(&self.blocks[block.clone()])
        } else {
            self.symbols.key(&self.references[references.clone()])
        };

        let part = Part {
            block,
            references,
            key,
            ..part
        };
        self.push_part(part, memory)
    }

    /// Adds a series with the labels of `part`. Its samples and histograms are what was appended
    /// since the last call.
    pub(crate) fn push_part(
        &mut self,
        part: Part,
        memory: &mut MemoryGrant<'_>,
    ) -> Result<(), MemoryDenied> {
        let last = self.parts.last();
        let samples = last.map_or(0, |last| last.samples.end)..self.samples.len();
        let histograms = last.map_or(0, |last| last.histograms.end)..self.histograms.len();
        let part = Part {
            samples,
            histograms,
            ..part
        };
        memory.push(&mut self.parts, part)
    }
}

impl OneSeries<'_> {
    /// Returns the labels. A label with an empty value is left out.
    ///
    /// # Errors
    /// If the labels break a rule of the remote-write specification.
    pub fn labels(&self) -> Result<Labels, LabelError> {
        let references = &self.request.references[self.part.references.clone()];
        if references.is_empty() {
            labels_of(&self.request.blocks[self.part.block.clone()])
        } else {
            checked_labels(self.request.symbols.pairs(references).map(Ok))
        }
    }
}

fn varint_length(number: usize) -> usize {
    (usize::BITS - number.leading_zeros()).div_ceil(7).max(1) as usize
}

/// Why the labels of a series are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The block cannot be decoded.
    #[error("the labels cannot be decoded")]
    Damaged,
    /// A text is not UTF-8.
    #[error("a label is not valid UTF-8")]
    NotUtf8,
    /// A label has no name.
    #[error("a label has no name")]
    NoName,
    /// The names are not sorted.
    #[error("the label {0:?} is not in the order of names")]
    Unsorted(String),
    /// A name occurs twice.
    #[error("the label {0:?} occurs twice")]
    Twice(String),
    /// No metric name.
    #[error("the series has no label __name__")]
    NoMetric,
}

impl From<WireError> for LabelError {
    fn from(_: WireError) -> Self {
        Self::Damaged
    }
}

/// Reads a label block.
pub(crate) fn labels_of(block: &[u8]) -> Result<Labels, LabelError> {
    checked_labels(Fields(block).map(|label| {
        let mut name: &[u8] = &[];
        let mut value: &[u8] = &[];
        for field in Fields(label?.1.bytes()?) {
            match field? {
                (1, Field::Bytes(text)) => name = text,
                (2, Field::Bytes(text)) => value = text,
                // A name that is no text would otherwise be read as an empty one.
                (1 | 2, _) => return Err(LabelError::Damaged),
                _ => {}
            }
        }
        Ok((name, value))
    }))
}

fn checked_labels<'a>(
    given: impl Iterator<Item = Result<(&'a [u8], &'a [u8]), LabelError>>,
) -> Result<Labels, LabelError> {
    let mut pairs: Vec<(Arc<str>, Arc<str>)> = Vec::new();
    let mut last: Option<&str> = None;
    for label in given {
        let (name, value) = label?;

        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| LabelError::NotUtf8);
        let name = text(name)?;
        let value = text(value)?;
        if name.is_empty() {
            return Err(LabelError::NoName);
        }

        // The specifications require sorted names. A receiver that sorts would accept two keys for
        // one series.
        match last.map(|last| last.cmp(name)) {
            Some(std::cmp::Ordering::Equal) => return Err(LabelError::Twice(name.to_owned())),
            Some(std::cmp::Ordering::Greater) => {
                return Err(LabelError::Unsorted(name.to_owned()));
            }
            _ => last = Some(name),
        }

        // An empty label equals an absent one.
        if !value.is_empty() {
            pairs.push((name.into(), value.into()));
        }
    }

    let labels = Labels::from_sorted(pairs);
    if labels.get(METRIC_NAME).is_none() {
        return Err(LabelError::NoMetric);
    }
    Ok(labels)
}
