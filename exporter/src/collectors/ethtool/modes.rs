//! The bits of link modes, from `linux/ethtool.h`.

/// The bits of kinds of ports.
pub(super) const PORTS: &[(u32, &str)] = &[
    (7, "TP"),
    (8, "AUI"),
    (9, "MII"),
    (10, "FIBRE"),
    (11, "BNC"),
    (16, "Backplane"),
];

/// The bits of autonegotiation, pause and asymmetric pause.
pub(super) const FEATURES: [u32; 3] = [6, 13, 14];

/// The bits of speeds: megabits a second, whether it is full duplex, and what the mode's name ends
/// with.
#[rustfmt::skip]
pub(super) const SPEEDS: &[(u32, u32, bool, &str)] = &[
    (0, 10, false, "T"),
    (1, 10, true, "T"),
    (2, 100, false, "T"),
    (3, 100, true, "T"),
    (4, 1000, false, "T"),
    (5, 1000, true, "T"),
    (12, 10_000, true, "T"),
    (17, 1000, true, "KX"),
    (18, 10_000, true, "KX4"),
    (19, 10_000, true, "KR"),
    (20, 10_000, true, "R_FEC"),
    (21, 20_000, true, "MLD2"),
    (22, 20_000, true, "KR2"),
    (23, 40_000, true, "KR4"),
    (24, 40_000, true, "CR4"),
    (25, 40_000, true, "SR4"),
    (26, 40_000, true, "LR4"),
    (27, 56_000, true, "KR4"),
    (28, 56_000, true, "CR4"),
    (29, 56_000, true, "SR4"),
    (30, 56_000, true, "LR4"),
    (31, 25_000, true, "CR"),
    (32, 25_000, true, "KR"),
    (33, 25_000, true, "SR"),
    (34, 50_000, true, "CR2"),
    (35, 50_000, true, "KR2"),
    (36, 100_000, true, "KR4"),
    (37, 100_000, true, "SR4"),
    (38, 100_000, true, "CR4"),
    (39, 100_000, true, "R4_ER4"),
    (40, 50_000, true, "SR2"),
    (41, 1000, true, "X"),
    (42, 10_000, true, "CR"),
    (43, 10_000, true, "SR"),
    (44, 10_000, true, "LR"),
    (45, 10_000, true, "LRM"),
    (46, 10_000, true, "ER"),
    (47, 2500, true, "T"),
    (48, 5000, true, "T"),
    (52, 50_000, true, "KR"),
    (53, 50_000, true, "SR"),
    (54, 50_000, true, "CR"),
    (55, 50_000, true, "LR_ER_FR"),
    (56, 50_000, true, "DR"),
    (57, 100_000, true, "KR2"),
    (58, 100_000, true, "SR2"),
    (59, 100_000, true, "CR2"),
    (60, 100_000, true, "LR2_ER2_FR2"),
    (61, 100_000, true, "DR2"),
    (62, 200_000, true, "KR4"),
    (63, 200_000, true, "SR4"),
    (64, 200_000, true, "LR4_ER4_FR4"),
    (65, 200_000, true, "DR4"),
    (66, 200_000, true, "CR4"),
    (67, 100, true, "T1"),
    (68, 1000, true, "T1"),
    (69, 400_000, true, "KR8"),
    (70, 400_000, true, "SR8"),
    (71, 400_000, true, "LR8_ER8_FR8"),
    (72, 400_000, true, "DR8"),
    (73, 400_000, true, "CR8"),
    (75, 100_000, true, "KR"),
    (76, 100_000, true, "SR"),
    (77, 100_000, true, "LR_ER_FR"),
    (78, 100_000, true, "CR"),
    (79, 100_000, true, "DR"),
    (80, 200_000, true, "KR2"),
    (81, 200_000, true, "SR2"),
    (82, 200_000, true, "LR2_ER2_FR2"),
    (83, 200_000, true, "DR2"),
    (84, 200_000, true, "CR2"),
    (85, 400_000, true, "KR4"),
    (86, 400_000, true, "SR4"),
    (87, 400_000, true, "LR4_ER4_FR4"),
    (88, 400_000, true, "DR4"),
    (89, 400_000, true, "CR4"),
    (90, 100, false, "FX"),
    (91, 100, true, "FX"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_modes_have_the_same_labels() {
        let labels: BTreeSet<_> = SPEEDS
            .iter()
            .map(|(_, megabits, is_full, suffix)| (megabits, is_full, suffix))
            .collect();
        assert_eq!(labels.len(), SPEEDS.len());
    }
}
