//! Noise that depends on a seed and a time only, so that every reader sees the same value.

/// Seconds between two independent values. Between them the noise is interpolated.
const STEP_SECONDS: i64 = 45;

/// Returns smooth noise between -1 and 1 at a time in seconds.
pub fn wobble(seed: u64, at: i64) -> f64 {
    // Euclidean, so that times before 1970 have noise as well.
    let step = at.div_euclid(STEP_SECONDS);
    let share = at.rem_euclid(STEP_SECONDS) as f64 / STEP_SECONDS as f64;
    let before = unit(seed, step);
    let after = unit(seed, step + 1);
    before + (after - before) * share
}

/// Returns a value between -1 and 1 for a seed and a number.
pub fn unit(seed: u64, number: i64) -> f64 {
    // SplitMix64's output function.
    let mut bits = seed
        .wrapping_add(number.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    // 53 bits fit in a double: 0 to 2, shifted to -1 to 1.
    (bits >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_bounded_smooth_and_the_same_each_time() {
        let values: Vec<f64> = (0..10_000).map(|at| wobble(7, at)).collect();
        assert!(values.iter().all(|value| (-1.0..=1.0).contains(value)));
        // Two values at most 2 apart, over 45 seconds.
        assert!(
            values
                .windows(2)
                .all(|pair| (pair[0] - pair[1]).abs() < 0.05)
        );
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.1, "{mean}");
        assert_eq!(wobble(7, 1234), values[1234]);
        assert_ne!(wobble(8, 1234), values[1234]);
    }
}
