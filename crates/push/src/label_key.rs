//! Keys of labels: a receiver finds a series by its key, without comparing texts.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Differs in each process, so that no sender can choose labels with equal keys.
static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0_u8));

/// An odd number of 128 bits.
const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

/// Hash of the labels of a series, as a request spells them. Each version of the protocol has keys
/// of its own, and keys are valid in this process only. Of ten million series, two have the same
/// key with a probability of 10⁻²⁵.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct LabelKey(u128);

impl LabelKey {
    /// Returns the key of a text.
    #[inline]
    pub(crate) fn of_text(text: &[u8]) -> Self {
        Self(xxh3_128_with_seed(text, *SEED))
    }

    /// Returns the key of a list of texts, given the key of each.
    #[inline]
    pub(crate) fn of_list(keys: impl Iterator<Item = Self>) -> Self {
        // Multiplied in turn, so that the order of the texts counts.
        let start = u128::from(*SEED);
        Self(keys.fold(start, |all, key| {
            all.wrapping_mul(FACTOR).wrapping_add(key.0)
        }))
    }
}
