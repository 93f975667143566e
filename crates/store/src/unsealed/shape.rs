//! Shapes: the series of a chunk's columns. Consecutive chunks of a group nearly always share one.

use crate::SeriesId;
use roaring::RoaringBitmap;

/// Bytes of a pair in a record.
const PAIR: usize = 8;

/// Series and columns of a chunk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Series and column, sorted by series.
    pairs: Box<[(u32, u32)]>,
}

impl Shape {
    /// Returns the shape of a group's columns.
    pub fn of_columns(columns: &[Option<SeriesId>]) -> Self {
        let pairs = (0_u32..).zip(columns);
        let mut pairs: Vec<(u32, u32)> = pairs
            .filter_map(|(column, series)| Some(((*series)?.0, column)))
            .collect();
        pairs.sort_unstable();
        Self {
            pairs: pairs.into(),
        }
    }

    /// All series with their columns.
    pub fn pairs(&self) -> &[(u32, u32)] {
        &self.pairs
    }

    /// Returns the wanted series of this shape with their columns, in order of the series.
    pub fn columns_of(&self, wanted: &RoaringBitmap) -> Vec<(u32, u32)> {
        let (Some(&(first, _)), Some(&(last, _))) = (self.pairs.first(), self.pairs.last()) else {
            return Vec::new();
        };

        let is_few = wanted.range_cardinality(first..=last) < self.pairs.len() as u64 / 8;
        if is_few {
            wanted
                .range(first..=last)
                .filter_map(|series| {
                    let at = self.pairs.binary_search_by_key(&series, |pair| pair.0);
                    Some(self.pairs[at.ok()?])
                })
                .collect()
        } else {
            self.pairs
                .iter()
                .copied()
                .filter(|(series, _)| wanted.contains(*series))
                .collect()
        }
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        for (series, column) in &self.pairs {
            out.extend_from_slice(&series.to_le_bytes());
            out.extend_from_slice(&column.to_le_bytes());
        }
    }

    /// Reads the output of [`encode`](Self::encode).
    pub fn decode(bytes: &[u8]) -> Self {
        let four = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
        Self {
            pairs: bytes
                .chunks_exact(PAIR)
                .map(|pair| (four(&pair[..4]), four(&pair[4..])))
                .collect(),
        }
    }
}
