//! Random numbers that depend on nothing but the seed.

/// A generator of random numbers (SplitMix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// A number from `from` to `to`, both included.
    pub fn between(&mut self, from: i64, to: i64) -> i64 {
        from + (self.next() % (to - from + 1).unsigned_abs()).cast_signed()
    }

    /// True once in `times` calls.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn pick<T>(&mut self, from: &[T]) -> T
    where
        T: Copy,
    {
        from[self.below(from.len())]
    }
}
