//! Fair Tree, Slurm's algorithm since 19.05: it ranks users, and the rank gives the factor.
//!
//! Siblings are ordered by `level_fs` = S / U, their fraction of the shares over their fraction of
//! the usage. Users come before accounts with an equal value. Then the tree is traversed depth
//! first, and each user gets the next rank. A user who is tied with the previous sibling gets the
//! same rank.
//!
//! Slurm's documentation says that the users of tied accounts are ranked together. Its code does
//! not do so (the count of tied accounts stops at the first account): the first user of an account
//! that is tied with the previous account gets the rank of the last user there. Idle accounts,
//! whose `level_fs` is infinite, make this common. Takt follows the code.

use super::factor::{Standing, norm_usage, share_of_level};
use super::tree::{AssociationId, AssociationTree};
use std::cmp::Ordering;
use takt_jobs::Shares;

/// Computes the standing of each association. `raw_usage` is by association and includes the usage
/// below it.
pub fn standings(tree: &AssociationTree, raw_usage: &[f64]) -> Vec<Standing> {
    let mut standings: Vec<Standing> = vec![Standing::default(); tree.len()];
    for id in tree.top_down() {
        standings[id.index()] = at_level(tree, raw_usage, *id);
    }
    let count = u32::try_from(tree.user_count()).unwrap_or(u32::MAX);
    Walk {
        tree,
        standings: &mut standings,
        count,
        rank: count,
        without_ties: count,
    }
    .level(tree.root(), false);
    standings
}

/// Sort key among siblings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Key {
    /// Shares over usage.
    LevelFs(f64),
    /// A transparent account (`fairshare=parent`). Its key decides its position, but it has no
    /// children here.
    Transparent,
}

impl Key {
    /// Slurm's number for a transparent account.
    const NO_VAL: f64 = 4_294_967_294.0;

    pub(super) fn value(self) -> f64 {
        match self {
            Self::LevelFs(level_fs) => level_fs,
            Self::Transparent => Self::NO_VAL,
        }
    }
}

/// Returns the value for the comparison. A user with `fairshare=parent` ranks before all others.
pub(super) fn key(tree: &AssociationTree, standing: &Standing, id: AssociationId) -> Key {
    match (tree.get(id).shares, &tree.get(id).user) {
        (Shares::Raw(_), _) => Key::LevelFs(standing.level_fs.unwrap_or(f64::INFINITY)),
        (Shares::Parent, Some(_)) => Key::LevelFs(f64::INFINITY),
        (Shares::Parent, None) => Key::Transparent,
    }
}

fn at_level(tree: &AssociationTree, raw_usage: &[f64], id: AssociationId) -> Standing {
    let norm_usage = norm_usage(tree, raw_usage, id);
    // The root competes with nothing.
    let Some(above) = tree.fs_parent(id) else {
        return Standing {
            norm_usage,
            effective_usage: 1.0,
            ..Standing::default()
        };
    };

    let effective_usage = match raw_usage[above.index()] {
        0.0 => 0.0,
        all => raw_usage[id.index()] / all,
    };

    let share = share_of_level(tree, id);
    // With `fairshare=parent` Slurm shows the account's fraction of the shares.
    let norm_shares = share.or_else(|| share_of_level(tree, above)).unwrap_or(0.0);
    // Without shares the value is 0, also without usage, where the quotient would be undefined.
    let level_fs = share.map(|share| match share {
        0.0 => 0.0,
        share => share / effective_usage,
    });

    Standing {
        norm_shares,
        norm_usage,
        effective_usage,
        level_fs,
        ..Standing::default()
    }
}

struct Walk<'a> {
    tree: &'a AssociationTree,
    standings: &'a mut [Standing],
    count: u32,
    /// The last rank that was assigned.
    rank: u32,
    /// The next rank without a tie.
    without_ties: u32,
}

impl Walk<'_> {
    fn level(&mut self, above: AssociationId, tied_above: bool) {
        let key = |walk: &Self, id: AssociationId| {
            key(walk.tree, &walk.standings[id.index()], id).value()
        };

        let mut siblings = self.tree.fs_children(above).to_vec();
        // The sort is stable: equal siblings keep Slurm's order.
        siblings.sort_by(|left, right| {
            let by_level_fs = key(self, *right)
                .partial_cmp(&key(self, *left))
                .unwrap_or(Ordering::Equal);
            let is_account = |id: &AssociationId| self.tree.get(*id).user.is_none();
            by_level_fs.then_with(|| is_account(left).cmp(&is_account(right)))
        });

        let mut before = None;
        for id in siblings {
            let own = key(self, id);
            // The first of a level inherits a tie of its account with the sibling before.
            let tied = before.map_or(tied_above, |before: f64| before == own);
            if self.tree.get(id).user.is_some() {
                if !tied {
                    self.rank = self.without_ties;
                }
                // A tied user takes a place all the same, so the next rank is lower by one.
                self.without_ties -= 1;
                let standing = &mut self.standings[id.index()];
                standing.rank = Some(self.rank);
                standing.fair_share = Some(f64::from(self.rank) / f64::from(self.count));
            } else {
                self.level(id, tied);
            }

            before = Some(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::tests::tree;
    use super::*;
    use std::fmt::Write as _;

    /// Returns the ranks of a tree as text. Users' usage is given as `name=usage`; accounts have
    /// the sum.
    fn ranks(drawing: &str, usage: &[(&str, f64)]) -> String {
        let tree = tree(drawing);
        let mut raw_usage = vec![0.0; tree.len()];
        for (user, usage) in usage {
            for id in tree.path(tree.of_user(user)[0]) {
                raw_usage[id.index()] += usage;
            }
        }
        let standings = standings(&tree, &raw_usage);
        let mut users: Vec<_> = tree
            .top_down()
            .iter()
            .filter(|id| tree.get(**id).user.is_some())
            .collect();
        users.sort_by_key(|id| tree.get(**id).name());
        users.iter().fold(String::new(), |mut text, id| {
            let _ = write!(
                text,
                "{} {}, ",
                tree.get(**id).name(),
                standings[id.index()].rank.unwrap()
            );
            text
        })
    }

    #[test]
    fn tied_accounts_are_not_merged() {
        const TWO: &str = "a 1\n  @a1 1\n  @a2 1\nb 1\n  @b1 1\n  @b2 1";
        let usage = [("a1", 25.0), ("a2", 75.0), ("b1", 40.0), ("b2", 60.0)];
        assert_eq!(ranks(TWO, &usage), "a1 4, a2 3, b1 3, b2 1, ");
        // The order in Slurm's list decides which account comes first.
        const OTHER: &str = "b 1\n  @b1 1\n  @b2 1\na 1\n  @a1 1\n  @a2 1";
        assert_eq!(ranks(OTHER, &usage), "a1 3, a2 1, b1 4, b2 3, ");
    }

    #[test]
    fn an_account_without_users_hands_its_tie_on() {
        assert_eq!(
            ranks(
                "@u 1\nempty 1\nidle 1\n  @i 1\nbusy 1\n  @b 1",
                &[("b", 1.0)]
            ),
            "b 1, i 3, u 3, "
        );
    }

    #[test]
    fn parent_shares_of_a_user_put_her_first_and_of_an_account_nowhere() {
        let usage = [("carol", 90.0), ("dave", 5.0), ("alice", 5.0)];
        assert_eq!(
            ranks(
                "@alice 1\n@carol parent\nrobotics parent\n  @dave 1",
                &usage
            ),
            "alice 2, carol 3, dave 2, "
        );
    }

    #[test]
    fn no_shares_are_last_and_no_usage_first() {
        assert_eq!(
            ranks("@zero 0\n@idle 1\n@busy 5", &[("busy", 9.0)]),
            "busy 2, idle 3, zero 1, "
        );
        assert_eq!(ranks("@a 1\n@b 7\nx 1\n  @c 1", &[]), "a 3, b 3, c 3, ");
    }
}
