//! Maps by column.
//!
//! Columns are numbered without gaps, and most callers visit them in order. With this hash,
//! neighbouring columns are neighbours in memory.

use hashbrown::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};

/// Map by the number of a column.
pub(super) type ColumnMap<V> = HashMap<u32, V, HashColumns>;

/// Hashes columns.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HashColumns;

impl BuildHasher for HashColumns {
    type Hasher = ColumnHasher;

    #[inline]
    fn build_hasher(&self) -> ColumnHasher {
        ColumnHasher(0)
    }

    #[inline]
    #[expect(
        clippy::manual_hash_one,
        reason = "this is the default, but inlined into the map's functions"
    )]
    fn hash_one<T: Hash>(&self, column: T) -> u64 {
        let mut hasher = self.build_hasher();
        column.hash(&mut hasher);
        hasher.finish()
    }
}

/// Hash of a column's number.
#[derive(Debug)]
pub(super) struct ColumnHasher(u64);

impl Hasher for ColumnHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32((self.0 as u32).rotate_left(8) ^ u32::from(byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, column: u32) {
        // The map takes the position from the low bits, and compares the upper seven bits.
        const UPPER: u64 = 0x7f << 57;
        let column = u64::from(column);
        self.0 = column | (column.wrapping_mul(0x9e37_79b9_7f4a_7c15) & UPPER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_among_others() {
        let mut map = ColumnMap::default();
        for column in (0..5000).chain([u32::MAX, 1 << 31]) {
            assert_eq!(map.insert(column, column), None);
        }
        assert!((0..5000).all(|column| map.get(&column) == Some(&column)));
        assert_eq!(map.get(&5000), None);
        assert_eq!(map.remove(&u32::MAX), Some(u32::MAX));
        assert_eq!(map.len(), 5001);
    }
}
